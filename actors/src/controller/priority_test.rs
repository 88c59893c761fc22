//! Priorities of several factors in a whole controller.
#![allow(clippy::unwrap_used)]

use super::fixtures::{Rig, with_rig};
use garrick_events::{
    event::ControllerEvent,
    usage::{Amount, Meter, UsageEvent, Who},
};
use garrick_model::{
    entities::{
        Entities,
        association::{AssocId, Association},
        names::Resource,
        qos::QosRecord,
    },
    ids::JobId,
    messages::{
        command::{CommandReply, CommandRequest, JobAction, JobChange, JobSelector},
        shares::SharesBoard,
    },
    refusal::Refusal,
    spec::{JobSpec, NodeCount},
    testing::spec,
    time::Timestamp,
    view::JobView,
};
use std::sync::Arc;

/// Nodes that never come, so that all jobs wait.
const SITE: &str = "ClusterName=test\nSlurmctldHost=head\nPriorityType=priority/multifactor\n\
    PriorityWeightJobSize=1000\nPriorityWeightPartition=100\nSchedulerParameters=enable_user_top\n\
    NodeName=n[0-3] CPUs=4 RealMemory=1000\n\
    PartitionName=debug Nodes=ALL Default=YES PriorityJobFactor=1\n\
    PartitionName=fast Nodes=ALL PriorityJobFactor=10\n";

fn wide(nodes: u32) -> JobSpec {
    JobSpec { nodes: Some(NodeCount { min: nodes, max: Some(nodes) }), tasks: Some(4 * nodes), ..spec() }
}

fn shown(rig: &Rig, job: JobId) -> Arc<JobView> {
    rig.controller.env.boards.jobs.get(&job).unwrap()
}

async fn update(rig: &Rig, uid: u32, job: JobId, change: JobChange) -> Result<(), Refusal> {
    let jobs = vec![JobSelector { job, tasks: None, het: None, run: None }];
    one(rig.ask(uid, CommandRequest::UpdateJob { jobs, change: Box::new(change) }).await)
}

async fn control(rig: &Rig, uid: u32, jobs: &[JobId], action: JobAction) -> Result<(), Refusal> {
    let jobs = jobs.iter().map(|job| JobSelector { job: *job, tasks: None, het: None, run: None }).collect();
    one(rig.ask(uid, CommandRequest::ControlJob { jobs, action }).await)
}

fn one(reply: CommandReply) -> Result<(), Refusal> {
    match reply {
        CommandReply::PerJob(answers) => answers.into_iter().try_for_each(|(_, answer)| answer),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_scheduler_calculates_and_the_owner_shows() {
    with_rig(SITE, async |mut rig: Rig| {
        let small = rig.submitted(wide(1)).await;
        let large = rig.submitted(JobSpec { partitions: vec!["fast".to_owned()], ..wide(4) }).await;
        rig.until(small, |view| view.priority == 260).await;
        rig.until(large, |view| view.priority == 1100).await;

        update(&rig, 1001, small, JobChange { nice: Some(60), ..JobChange::default() }).await.unwrap();
        rig.until(small, |view| view.priority == 200).await;
        let site = || JobChange { site_factor: Some(40), ..JobChange::default() };
        assert_eq!(update(&rig, 1001, small, site()).await, Err(Refusal::AccessDenied));
        update(&rig, 0, small, site()).await.unwrap();
        rig.until(small, |view| view.priority == 240).await;
        let elsewhere = JobChange { partitions: Some(vec!["fast".to_owned()]), ..JobChange::default() };
        update(&rig, 1001, small, elsewhere).await.unwrap();
        rig.until(small, |view| view.priority == 330).await;

        let CommandReply::Priorities { weights, jobs, .. } = rig.ask(1001, CommandRequest::ListPriorities).await else {
            panic!("no priorities");
        };
        assert_eq!((weights.job_size, weights.partition), (1000, 100));
        let of_small = jobs.iter().find(|job| job.job == small).unwrap();
        assert_eq!((of_small.priority, of_small.nice, of_small.site), (330, 60, 40));
    });
}

#[test]
fn what_was_fixed_stays_until_it_is_held_and_released() {
    with_rig(SITE, async |mut rig: Rig| {
        let job = rig.submitted(wide(1)).await;
        rig.until(job, |view| view.priority == 260).await;
        let fix = |priority| JobChange { priority: Some(priority), ..JobChange::default() };
        assert_eq!(update(&rig, 1001, job, fix(5000)).await, Err(Refusal::AccessDenied));
        update(&rig, 0, job, fix(5000)).await.unwrap();
        // Another job makes the scheduler look again.
        let other = rig.submitted(wide(2)).await;
        rig.until(other, |view| view.priority == 510).await;
        assert_eq!((shown(&rig, job).priority, shown(&rig, job).terms.fixed), (5000, true));

        control(&rig, 1001, &[job], JobAction::Hold).await.unwrap();
        rig.until(job, |view| view.priority == 0).await;
        control(&rig, 1001, &[job], JobAction::Release).await.unwrap();
        rig.until(job, |view| view.priority == 260).await;
        let replayed = rig.journal.replayed();
        assert!(!replayed.jobs[&job].terms.fixed);
    });
}

#[test]
fn users_order_their_own_jobs() {
    with_rig(SITE, async |mut rig: Rig| {
        let first = rig.submitted(wide(3)).await;
        let second = rig.submitted(wide(2)).await;
        let third = rig.submitted(wide(1)).await;
        rig.until(third, |view| view.priority == 260).await;
        rig.until(first, |view| view.priority == 760).await;
        assert_eq!(control(&rig, 1002, &[third], JobAction::Top).await, Err(Refusal::AccessDenied));
        assert_eq!(control(&rig, 1001, &[JobId(99)], JobAction::Top).await, Err(Refusal::InvalidJobId));
        control(&rig, 1001, &[third], JobAction::Top).await.unwrap();
        rig.until(third, |view| view.priority == 760).await;
        rig.until(first, |view| view.priority == 510).await;
        rig.until(second, |view| view.priority == 260).await;

        control(&rig, 1001, &[second], JobAction::Hold).await.unwrap();
        rig.until(second, |view| view.priority == 0).await;
        assert_eq!(control(&rig, 1001, &[second], JobAction::Top).await, Err(Refusal::JobHeld));
    });
}

#[test]
fn in_order_of_submission_there_are_no_factors_to_show() {
    let site = SITE.replace("PriorityType=priority/multifactor\n", "");
    with_rig(&site, async |mut rig: Rig| {
        let job = rig.submitted(wide(1)).await;
        rig.until(job, |view| view.priority > 1_000_000).await;
        match rig.ask(1001, CommandRequest::ListPriorities).await {
            CommandReply::Priorities { kind, jobs, .. } => assert!(kind == "priority/basic" && jobs.is_empty()),
            other => panic!("{other:?}"),
        }
    });
}

/// alice and bob in physics, of which bob has used three quarters.
fn accounts() -> Entities {
    let assoc = |id, parent: Option<u32>, account: &str, user: Option<&str>| Association {
        id: AssocId(id),
        cluster: "test".to_owned(),
        account: account.to_owned(),
        user: user.map(str::to_owned),
        parent: parent.map(AssocId),
        is_default: user.is_some(),
        ..Association::default()
    };
    let all = [
        assoc(1, None, "root", None),
        assoc(2, Some(1), "physics", None),
        assoc(3, Some(2), "physics", Some("alice")),
        assoc(4, Some(2), "physics", Some("bob")),
    ];
    let qos = [("normal".to_owned(), QosRecord::new(1, "normal"))].into();
    Entities { version: 1, associations: all.map(|own| (own.id, own)).into(), qos, ..Entities::default() }
}

fn meter(billed: f64) -> Meter {
    let now = Timestamp::now();
    let amount = Amount { value: billed, rate: 0.0 };
    Meter { as_of: now, since: now, tres: [("billing".to_owned(), amount)].into(), ..Meter::default() }
}

#[test]
fn fair_shares_count_in_priorities_and_follow_what_is_used() {
    let site = SITE.replace("PriorityWeightPartition=100\n", "PriorityWeightFairshare=10000\n");
    with_rig(&site, async |mut rig: Rig| {
        let env = Arc::clone(&rig.controller.env);
        let who = |user: &str| Who { account: "physics".to_owned(), user: user.to_owned(), partition: None };
        let used = |user: &str, billed| ControllerEvent::Usage(Box::new(UsageEvent::User(who(user), meter(billed))));
        let saved = env.append(vec![used("alice", 100.0), used("bob", 300.0)]);
        assert!(matches!(saved.await, Ok(Ok(_))));
        env.set_entities(Arc::new(accounts()));
        let first = rig.submitted(wide(1)).await;
        let second = rig.submitted_as(1002, wide(1)).await;
        rig.until(first, |view| view.priority == 10_250).await;
        rig.until(second, |view| view.priority == 5_250).await;
        let CommandReply::Priorities { jobs, .. } = rig.ask(1002, CommandRequest::ListPriorities).await else {
            panic!()
        };
        let of_second = jobs.iter().find(|job| job.job == second).unwrap();
        assert_eq!((of_second.account.as_deref(), of_second.qos_name.as_deref()), (Some("physics"), Some("normal")));
        assert!((of_second.fairshare - 0.5).abs() < 1e-9);
        // Who has the less has the more: as of the next calculation, here because of a change of accounts.
        let saved = env.append(vec![used("alice", 1000.0)]);
        assert!(matches!(saved.await, Ok(Ok(_))));
        env.set_entities(Arc::new(accounts()));
        rig.submitted(wide(2)).await;
        rig.until(first, |view| view.priority == 5_250).await;
        rig.until(second, |view| view.priority == 10_250).await;
        let rules = rig.journal.replayed().usage.rules().clone();
        assert_eq!((rules.half_life_secs, rules.next_reset), (604_800, None));
    });
}

#[test]
fn shares_are_shown_with_what_jobs_have_and_only_ones_own_where_usage_is_private() {
    for (private, seen) in [("none", vec![1, 2, 3, 4]), ("usage", vec![3])] {
        with_rig(&format!("PrivateData={private}\n{SITE}"), async |mut rig: Rig| {
            let env = Arc::clone(&rig.controller.env);
            let who = Who { account: "physics".to_owned(), user: "bob".to_owned(), partition: None };
            let used = ControllerEvent::Usage(Box::new(UsageEvent::User(who, meter(300.0))));
            assert!(matches!(env.append(vec![used]).await, Ok(Ok(_))));
            env.set_entities(Arc::new(accounts()));
            let job = rig.submitted(wide(1)).await;
            rig.until(job, |view| view.eligible).await;
            let ids =
                |board: &SharesBoard| board.associations.iter().map(|own| own.association.id.0).collect::<Vec<_>>();
            let CommandReply::Shares(own) = rig.ask(1001, CommandRequest::ListShares).await else { panic!() };
            assert_eq!((ids(&own), own.qos.len()), (seen.clone(), 0));
            let CommandReply::Shares(all) = rig.ask(0, CommandRequest::ShowAssociations).await else { panic!() };
            assert_eq!((ids(&all), all.qos.len()), (vec![1, 2, 3, 4], 1));
            let [root, physics, alice, bob] = &all.associations[..] else { panic!("{all:?}") };
            let submitted = [root, physics, alice, bob].map(|own| own.load.submitted);
            assert_eq!((submitted, all.qos[0].by_user["alice"].submitted), ([1, 1, 1, 0], 1));
            assert!((bob.used["billing"] - 300.0).abs() < 0.1 && (root.used["billing"] - 300.0).abs() < 0.1);
            assert_eq!((alice.factor, bob.factor, physics.factor), (Some(1.0), Some(0.5), None));
        });
    }
}

#[test]
fn licenses_of_other_servers_are_weighed_as_those_of_the_cluster() {
    let site = format!("{SITE}PriorityWeightTRES=license/nastran@flex=1000\n");
    with_rig(&site, async |mut rig: Rig| {
        let allowed = |count: u32| {
            let nastran = Resource {
                id: 1,
                name: "nastran".to_owned(),
                server: "flex".to_owned(),
                count: 100,
                absolute: true,
                allowed: [("test".to_owned(), count)].into(),
                ..Resource::default()
            };
            Arc::new(Entities { resources: [(1, nastran)].into(), ..Entities::default() })
        };
        rig.controller.env.set_entities(allowed(4));
        let plain = rig.submitted(wide(1)).await;
        let spec = JobSpec { licenses: Some("nastran@flex:1".to_owned()), ..wide(1) };
        let job = rig.submitted(spec).await;
        rig.until(plain, |view| view.priority == 260).await;
        rig.until(job, |view| view.priority == 260 + 250).await;
        // It is allowed others: the job's share of them is another one.
        rig.controller.env.set_entities(allowed(2));
        rig.until(job, |view| view.priority == 260 + 500).await;
    });
}
