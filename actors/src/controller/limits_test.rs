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

/// A change of these jobs by alice: what each of them is told.
async fn updated(rig: &Rig, jobs: Vec<JobSelector>, change: JobChange) -> Vec<Result<(), Refusal>> {
    match rig.ask(1001, CommandRequest::UpdateJob { jobs, change: Box::new(change) }).await {
        CommandReply::PerJob(answers) => answers.into_iter().map(|(_, answer)| answer).collect(),
        other => panic!("{other:?}"),
    }
}

fn whole(job: JobId) -> JobSelector {
    JobSelector { job, tasks: None, het: None, run: None }
}

/// At most so many jobs in the account chem.
fn few_in_chem(most: u64) -> Entities {
    let mut all = entities();
    let limits = Limits { counts: [(Count::GrpSubmit, most)].into(), ..Limits::default() };
    all.associations.get_mut(&AssocId(6)).unwrap().limits = limits;
    all
}

fn to_chem() -> JobChange {
    JobChange { account: Some("chem".to_owned()), ..JobChange::default() }
}

#[test]
fn each_task_of_an_array_that_moves_counts() {
    with_rig(SITE, async |mut rig: Rig| {
        know(&rig, few_in_chem(2));
        let three = JobSpec { array: Some(array(1, 3, None)), ..spec() };
        let job = taken(&mut rig, three).await.unwrap();
        let refused = [Err(refusal("AssocGrpSubmitJobsLimit"))];
        assert_eq!(updated(&rig, vec![whole(job)], to_chem()).await, refused);
        let two = JobSelector { tasks: Some(vec![(1, 2, 1)]), ..whole(job) };
        assert!(updated(&rig, vec![two], to_chem()).await.iter().all(Result::is_ok));
        let last = JobSelector { tasks: Some(vec![(3, 3, 1)]), ..whole(job) };
        assert_eq!(updated(&rig, vec![last.clone()], to_chem()).await, refused);
        know(&rig, few_in_chem(3));
        assert!(updated(&rig, vec![last], to_chem()).await.iter().all(Result::is_ok));
    });
}

#[test]
fn jobs_that_move_together_count_together() {
    with_rig(SITE, async |mut rig: Rig| {
        know(&rig, few_in_chem(2));
        let mut jobs = Vec::new();
        for _ in 0..4 {
            jobs.push(taken(&mut rig, spec()).await.unwrap());
        }
        let full = || Err(refusal("AssocGrpSubmitJobsLimit"));
        let all: Vec<JobSelector> = jobs.iter().copied().map(whole).collect();
        assert_eq!(updated(&rig, all.clone(), to_chem()).await, [Ok(()), Ok(()), full(), full()]);
        // Those that are there stay, and change in other ways; who leaves makes room.
        let comment = JobChange { comment: Some("mine".to_owned()), ..JobChange::default() };
        assert_eq!(updated(&rig, all, comment).await, [Ok(()), Ok(()), Ok(()), Ok(())]);
        let back = JobChange { account: Some("physics".to_owned()), ..JobChange::default() };
        assert_eq!(updated(&rig, vec![whole(jobs[0])], back).await, [Ok(())]);
        rig.until(jobs[0], |view| view.spec.account.as_deref() == Some("physics")).await;
        assert_eq!(updated(&rig, vec![whole(jobs[2]), whole(jobs[3])], to_chem()).await, [Ok(()), full()]);
    });
}

#[test]
fn a_job_does_not_move_to_a_partition_whose_qos_has_as_many_as_it_may() {
    let site = format!("{SITE}PartitionName=small Nodes=ALL MaxTime=60 QOS=high\n");
    with_rig(&site, async |mut rig: Rig| {
        let mut all = entities();
        let limits = Limits { counts: [(Count::GrpSubmit, 1)].into(), ..Limits::default() };
        all.qos.get_mut("high").unwrap().limits = limits;
        know(&rig, all);
        let (one, two) = (taken(&mut rig, spec()).await.unwrap(), taken(&mut rig, spec()).await.unwrap());
        let to_small = JobChange { partitions: Some(vec!["small".to_owned()]), ..JobChange::default() };
        let answers = updated(&rig, vec![whole(one), whole(two)], to_small).await;
        assert_eq!(answers, [Ok(()), Err(refusal("QOSGrpSubmitJobsLimit"))]);
    });
}

#[test]
fn a_job_that_names_several_qos_counts_for_each_of_them() {
    with_rig(SITE, async |mut rig: Rig| {
        let mut all = entities();
        let limits = Limits { counts: [(Count::MaxSubmitPerUser, 2)].into(), ..Limits::default() };
        all.qos.get_mut("low").unwrap().limits = limits;
        know(&rig, all);
        let with = |qos: &str| JobSpec { qos: Some(qos.to_owned()), ..spec() };
        let to = |qos: &str| {
            let request = RequestChange { qos: Some(qos.to_owned()), ..RequestChange::default() };
            JobChange { request, ..JobChange::default() }
        };
        let full = refusal("QOSMaxSubmitJobPerUserLimit");
        taken(&mut rig, with("high,low")).await.unwrap();
        let last = taken(&mut rig, with("low")).await.unwrap();
        assert_eq!(taken(&mut rig, with("high,low")).await, Err(full.clone()));
        assert_eq!(taken(&mut rig, with("low")).await, Err(full.clone()));
        let high = taken(&mut rig, with("high")).await.unwrap();
        assert_eq!(updated(&rig, vec![whole(high)], to("high,low")).await, [Err(full)]);
        // Who leaves makes room.
        assert_eq!(updated(&rig, vec![whole(last)], to("high")).await, [Ok(())]);
        rig.until(last, |view| view.spec.qos.as_deref() == Some("high")).await;
        assert!(taken(&mut rig, with("normal,low")).await.is_ok());
    });
}
