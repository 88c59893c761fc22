//! Limits of associations and QOS in a whole controller: what accounting says counts at once, also for a burst of submissions.
#![allow(clippy::unwrap_used)]

use super::fixtures::{Rig, with_rig};
use garrick_model::{
    entities::{
        Entities,
        association::AssocId,
        limits::{Count, Limits},
    },
    ids::{JobId, RequestId},
    messages::{
        command::{CancelRequest, CommandReply, CommandRequest, JobChange, JobSelector},
        request_change::RequestChange,
    },
    refusal::Refusal,
    spec::JobSpec,
    testing::{array, entities, spec},
};
use std::sync::Arc;

/// Nodes that never come, so that all jobs wait.
const SITE: &str = "ClusterName=test\nSlurmctldHost=head\nAccountingStorageType=accounting_storage/slurmdbd\nAccountingStorageEnforce=limits,qos\n\
    NodeName=n[0-1] CPUs=4 RealMemory=1000\nPartitionName=debug Nodes=ALL Default=YES MaxTime=60\n";

fn with(count: Count, most: u64) -> Entities {
    let mut all = entities();
    let limits = Limits { counts: [(count, most)].into(), ..Limits::default() };
    match count {
        Count::MaxSubmit | Count::MaxJobs => all.associations.get_mut(&AssocId(4)).unwrap().limits = limits,
        Count::GrpSubmit | Count::GrpJobs => all.associations.get_mut(&AssocId(3)).unwrap().limits = limits,
        _ => all.qos.get_mut("normal").unwrap().limits = limits,
    }
    all
}

fn know(rig: &Rig, entities: Entities) {
    rig.controller.env.set_entities(Arc::new(entities));
}

fn refusal(reason: &str) -> Refusal {
    Refusal::AccountingPolicy.after(vec![reason.to_owned()])
}

async fn taken(rig: &mut Rig, spec: JobSpec) -> Result<JobId, Refusal> {
    match rig.submit(spec).await {
        CommandReply::Submitted { job, .. } => Ok(job),
        CommandReply::Refused(refusal) => Err(refusal),
        other => panic!("{other:?}"),
    }
}

#[test]
fn no_more_jobs_wait_than_may_and_tasks_of_arrays_count() {
    for (count, reason) in [
        (Count::MaxSubmit, "AssocMaxSubmitJobLimit"),
        (Count::GrpSubmit, "AssocGrpSubmitJobsLimit"),
        (Count::MaxSubmitPerUser, "QOSMaxSubmitJobPerUserLimit"),
        (Count::MaxSubmitPerAccount, "MaxSubmitJobsPerAccount"),
    ] {
        with_rig(SITE, async |mut rig: Rig| {
            know(&rig, with(count, 3));
            let first = taken(&mut rig, JobSpec { array: Some(array(1, 2, None)), ..spec() }).await.unwrap();
            let two = JobSpec { array: Some(array(1, 2, None)), ..spec() };
            assert_eq!(taken(&mut rig, two.clone()).await, Err(refusal(reason)));
            assert!(taken(&mut rig, spec()).await.is_ok());
            assert_eq!(taken(&mut rig, spec()).await, Err(refusal(reason)));
            // What ends makes room.
            let jobs = vec![JobSelector { job: first, tasks: None, het: None, run: None }];
            let cancel = CancelRequest { jobs, ..CancelRequest::default() };
            rig.ask(1001, CommandRequest::Cancel(cancel)).await;
            rig.until(first, |view| !view.state.is_live()).await;
            assert!(taken(&mut rig, two).await.is_ok());
            assert_eq!(taken(&mut rig, spec()).await, Err(refusal(reason)));
            know(&rig, entities());
            assert!(taken(&mut rig, spec()).await.is_ok(), "it was lifted");
        });
    }
}

#[test]
fn jobs_that_are_being_saved_count_too() {
    with_rig(SITE, async |rig: Rig| {
        know(&rig, with(Count::GrpSubmit, 2));
        rig.journal.hold();
        let answers: Vec<_> = (1..=5)
            .map(|number| {
                let (request, spec) = (RequestId(78, number), Box::new(spec()));
                rig.ask_stream(1001, CommandRequest::SubmitJob { request, spec })
            })
            .collect();
        rig.journal.held().await;
        rig.journal.release();
        let mut accepted = 0;
        for mut answer in answers {
            match answer.recv().await.unwrap() {
                CommandReply::Submitted { .. } => accepted += 1,
                CommandReply::Refused(why) => assert_eq!(why, refusal("AssocGrpSubmitJobsLimit")),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(accepted, 2);
    });
}

#[test]
fn a_job_shows_its_place_and_the_limit_that_it_waits_for_until_that_is_lifted() {
    with_rig(SITE, async |mut rig: Rig| {
        know(&rig, with(Count::GrpJobs, 0));
        let job = taken(&mut rig, spec()).await.unwrap();
        rig.until(job, |view| view.reason.text() == "AssocGrpJobsLimit").await;
        rig.until(job, |view| {
            let place = (view.spec.account.as_deref(), view.spec.qos.as_deref(), view.association);
            place == (Some("physics"), Some("normal"), Some(AssocId(4)))
        })
        .await;
        know(&rig, entities());
        rig.until(job, |view| view.reason.text() != "AssocGrpJobsLimit").await;
        let mut gone = entities();
        gone.associations.get_mut(&AssocId(4)).unwrap().deleted = true;
        know(&rig, gone);
        rig.until(job, |view| view.reason.text() == "InvalidAccount").await;
        assert_eq!(taken(&mut rig, spec()).await, Err(Refusal::InvalidAccount(None)));
    });
}

#[test]
fn a_job_does_not_move_to_where_there_are_as_many_as_may_be() {
    with_rig(SITE, async |mut rig: Rig| {
        let mut all = entities();
        let limits = Limits { counts: [(Count::GrpSubmit, 1)].into(), ..Limits::default() };
        all.associations.get_mut(&AssocId(6)).unwrap().limits = limits.clone();
        all.qos.get_mut("high").unwrap().limits = limits;
        know(&rig, all);
        let in_chem = JobSpec { account: Some("chem".to_owned()), ..spec() };
        taken(&mut rig, in_chem).await.unwrap();
        let job = taken(&mut rig, spec()).await.unwrap();
        let update = async |rig: &Rig, uid, change: JobChange| {
            let jobs = vec![JobSelector { job, tasks: None, het: None, run: None }];
            match rig.ask(uid, CommandRequest::UpdateJob { jobs, change: Box::new(change) }).await {
                CommandReply::PerJob(answers) => answers.into_iter().try_for_each(|(_, answer)| answer),
                other => panic!("{other:?}"),
            }
        };
        let to_chem = || JobChange { account: Some("chem".to_owned()), ..JobChange::default() };
        assert_eq!(update(&rig, 1001, to_chem()).await, Err(refusal("AssocGrpSubmitJobsLimit")));
        let high = RequestChange { qos: Some("high".to_owned()), ..RequestChange::default() };
        assert_eq!(update(&rig, 1001, JobChange { request: high, ..JobChange::default() }).await, Ok(()));
        rig.until(job, |view| view.spec.qos.as_deref() == Some("high")).await;
    });
}
