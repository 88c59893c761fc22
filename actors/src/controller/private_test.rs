//! What a site keeps private is shown to its owner and to administrators only.
#![allow(clippy::unwrap_used)]

use super::fixtures::{MemoryJournal, Rig, TWO_NODES, with_system};
use garrick_model::{
    ids::JobId,
    messages::command::{CommandReply, CommandRequest, JobMilestone},
    refusal::Refusal,
    reservation::{AccessList, NodesWanted, ReservationChange},
    state::NodeBase,
    testing::spec,
    time::Timestamp,
};

const ALICE: u32 = 1001;
const BOB: u32 = 1002;

fn is_unknown(reply: CommandReply) -> bool {
    matches!(reply, CommandReply::Refused(Refusal::InvalidJobId))
}

async fn listed(rig: &Rig, uid: u32, job: JobId) -> bool {
    let all = CommandRequest::list_jobs(Vec::new());
    let CommandReply::Jobs { jobs, .. } = rig.ask(uid, all).await else { panic!() };
    jobs.iter().any(|view| view.id == job)
}

#[test]
fn jobs_of_others_are_not_shown_where_the_site_keeps_them_private() {
    let site = format!("{TWO_NODES}PrivateData=jobs\nPriorityType=priority/multifactor\nPriorityWeightPartition=100\n");
    with_system(async move |system| {
        let mut rig = Rig::start(&system, &site, MemoryJournal::default());
        let job = rig.submitted(spec()).await;
        rig.until(job, |view| view.eligible && view.priority == 100).await;
        for (uid, seen) in [(ALICE, true), (BOB, false), (0, true)] {
            assert_eq!(listed(&rig, uid, job).await, seen, "{uid}");
            let named = CommandRequest::list_jobs(vec![job.into()]);
            assert_eq!(is_unknown(rig.ask(uid, named).await), !seen, "{uid}");
            assert_eq!(is_unknown(rig.ask(uid, CommandRequest::Explain { job }).await), !seen, "{uid}");
            assert_eq!(is_unknown(rig.ask_stream(uid, CommandRequest::Watch { job }).recv().await.unwrap()), !seen);
            let CommandReply::Priorities { jobs, .. } = rig.ask(uid, CommandRequest::ListPriorities).await else {
                panic!()
            };
            assert_eq!(jobs.iter().any(|one| one.job == job), seen, "{uid}");
            let steps = CommandRequest::ListSteps { job: Some(job), ended: true };
            assert!(matches!(rig.ask(uid, steps).await, CommandReply::Steps { .. }), "{uid}");
        }
        let until = JobMilestone::Started;
        assert!(is_unknown(rig.ask(BOB, CommandRequest::WaitJob { job, until }).await));
        // Nodes and partitions are not private.
        assert!(matches!(rig.ask(BOB, CommandRequest::ListNodes).await, CommandReply::Nodes { .. }));
    });
}

#[test]
fn states_of_nodes_and_partitions_are_not_shown_where_the_site_keeps_them_private() {
    let site = format!("{TWO_NODES}PrivateData=nodes\n");
    with_system(async move |system| {
        let rig = Rig::start(&system, &site, MemoryJournal::default());
        for (uid, private) in [(BOB, true), (0, false)] {
            let refused =
                matches!(rig.ask(uid, CommandRequest::ListNodes).await, CommandReply::Refused(Refusal::AccessDenied));
            assert_eq!(refused, private, "{uid}");
            let reply = rig.ask(uid, CommandRequest::ListPartitions).await;
            let CommandReply::Partitions { nodes, nodes_private, .. } = reply else { panic!() };
            assert_eq!(nodes_private, private, "{uid}");
            // What the partition has in total is known all the same.
            assert_eq!(nodes.len(), 2);
            assert!(!private || nodes.iter().all(|node| node.base == NodeBase::Unknown && node.registration.is_none()));
        }
    });
    let site = format!("{TWO_NODES}PrivateData=partitions\n");
    with_system(async move |system| {
        let rig = Rig::start(&system, &site, MemoryJournal::default());
        let refused = |reply| matches!(reply, CommandReply::Refused(Refusal::AccessDenied));
        assert!(refused(rig.ask(BOB, CommandRequest::ListPartitions).await));
        assert!(!refused(rig.ask(0, CommandRequest::ListPartitions).await));
    });
}

#[test]
fn reservations_for_others_are_not_shown_where_the_site_keeps_them_private() {
    let site = format!("{TWO_NODES}PrivateData=reservations\n");
    with_system(async move |system| {
        let rig = Rig::start(&system, &site, MemoryJournal::default());
        let change = ReservationChange {
            start: Some(Timestamp::now()),
            duration_secs: Some(600),
            nodes: Some(NodesWanted::Named(vec!["n0".to_owned()])),
            users: AccessList::parse("alice"),
            ..ReservationChange::default()
        };
        assert_eq!(change.users.as_ref().map(|users| users.names.len()), Some(1));
        let created = rig.ask(0, CommandRequest::CreateReservation(Box::new(change))).await;
        assert!(matches!(created, CommandReply::ReservationCreated(_)), "{created:?}");
        for (uid, shown) in [(ALICE, 1), (BOB, 0), (0, 1)] {
            let reply = rig.ask(uid, CommandRequest::ListReservations).await;
            let CommandReply::Reservations { reservations, .. } = reply else { panic!() };
            assert_eq!(reservations.len(), shown, "{uid}");
        }
    });
}
