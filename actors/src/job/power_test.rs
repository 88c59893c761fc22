//! A job on nodes that are powered up for it.
#![allow(clippy::unwrap_used)]

use super::{
    effects::{JobEffect, JobErrand},
    fixtures::{ALICE, Bench, proposal},
};
use crate::messages::{
    job::{JobCommand, JobInput, JobSite, JobTimer},
    letter::Letter,
    node::{Grant, NodeInput},
};
use garrick_events::records::{
    job::{Afterwards, Ending},
    job_event::JobEvent,
};
use garrick_model::{
    ids::Sluid,
    spec::JobSpec,
    state::{JobState, Reason},
    testing::spec,
};
use std::{sync::Arc, time::Duration};

/// A job on `n0`, which is on, and on `n1`, which is not.
fn configuring(mut job: Bench) -> Bench {
    job.send(JobInput::Start(Box::new(proposal(job.core.record().id.0, None, &["n0", "n1"]))));
    let attempt = job.core.leftover().attempt;
    let grant = |node: &str| Grant { boots: node == "n1", ..Grant::at(format!("{node}:6818")) };
    for node in ["n0", "n1"] {
        let out = job.send(JobInput::Reserved { attempt, node: node.to_owned(), result: Ok(grant(node)) });
        assert!(launches(&out).is_empty(), "{out:?}");
        let limited = |e: &JobEffect| matches!(e, JobEffect::SetTimer { timer: JobTimer::Launch, .. });
        assert!(!out.iter().any(limited), "its nodes have their own time");
    }
    assert_eq!(job.state(), JobState::Configuring);
    job
}

fn launches(out: &[JobEffect]) -> Vec<Vec<String>> {
    let of = |effect: &JobEffect| match effect {
        JobEffect::Do(JobErrand::Launch(order)) => Some(order.credential.addresses.clone()),
        _ => None,
    };
    out.iter().filter_map(of).collect()
}

fn ready(job: &mut Bench, node: &str) -> Vec<JobEffect> {
    let sluid = job.core.record().sluid;
    job.send(JobInput::NodeReady { node: node.to_owned(), sluid, address: "10.0.0.7:6818".to_owned() })
}

fn released(out: &[JobEffect]) -> Vec<&str> {
    let of = |effect: &'_ JobEffect| match effect {
        JobEffect::Tell(Letter::Node(node, NodeInput::Release { attempt: None, .. })) => Some(node.as_str().to_owned()),
        _ => None,
    };
    let names: Vec<String> = out.iter().filter_map(of).collect();
    ["n0", "n1"].into_iter().filter(|node| names.iter().any(|name| name == node)).collect()
}

#[test]
fn it_is_launched_when_all_its_nodes_have_come_with_their_addresses_and_its_whole_time() {
    let mut job = configuring(Bench::with(spec()));
    assert_eq!(ready(&mut job, "n0"), [], "it was on");
    job.now = job.now.plus(Duration::from_secs(40));
    let out = ready(&mut job, "n1");
    assert_eq!(launches(&out), [["n0:6818", "10.0.0.7:6818"]]);
    assert_eq!(job.core.record().phase.run().unwrap().start, job.now);
    assert_eq!(ready(&mut job, "n1"), [], "told twice");
    let other = JobInput::NodeReady { node: "n1".to_owned(), sluid: Sluid(999), address: String::new() };
    assert_eq!(job.send(other), []);
}

#[test]
fn a_node_that_comes_while_others_are_asked_is_not_waited_for() {
    let mut job = Bench::with(spec());
    job.send(JobInput::Start(Box::new(proposal(7, None, &["n0", "n1"]))));
    let attempt = job.core.leftover().attempt;
    let grant = Grant { boots: true, ..Grant::at("n0:6818".to_owned()) };
    job.send(JobInput::Reserved { attempt, node: "n0".to_owned(), result: Ok(grant) });
    ready(&mut job, "n0");
    let last = Ok(Grant::at("n1:6818".to_owned()));
    let out = job.send(JobInput::Reserved { attempt, node: "n1".to_owned(), result: last });
    assert_eq!(launches(&out), [["10.0.0.7:6818", "n1:6818"]]);
}

#[test]
fn while_its_nodes_come_it_can_be_cancelled_at_once() {
    let mut job = configuring(Bench::with(spec()));
    let (answer, out) = job.command(ALICE, None, JobCommand::Cancel);
    assert_eq!(answer, Ok(()));
    assert_eq!(released(&out), ["n1"], "{out:?}");
    assert_eq!(job.state(), JobState::Completing, "n0 is asked");
}

#[test]
fn one_that_was_to_end_when_the_controller_died_is_not_launched() {
    let job = configuring(Bench::with(spec()));
    let mut record = job.core.record().clone();
    let ending = Ending {
        state: JobState::Cancelled,
        reason: Reason::None,
        then: Afterwards::Over,
        by: Some(0),
        at: Some(job.now),
        unasked: false,
    };
    record.apply(&JobEvent::Ending(ending)).unwrap();
    let (mut job, out) = Bench::new(record);
    assert_eq!((job.state(), released(&out)), (JobState::Completing, vec!["n1"]), "{out:?}");
    assert!(launches(&ready(&mut job, "n1")).is_empty());
}

#[test]
fn a_node_that_did_not_come_requeues_it_also_against_its_will_where_the_site_says_so() {
    for (anyway, state) in [(false, JobState::NodeFail), (true, JobState::Pending)] {
        let mut job = Bench::with(JobSpec { requeue: Some(false), ..spec() });
        let site = JobSite { requeue_on_resume_failure: anyway, ..JobSite::default() };
        job.send(JobInput::Site(Arc::new(site)));
        let mut job = configuring(job);
        let sluid = job.core.record().sluid;
        job.send(JobInput::NodeLost { node: "n1".to_owned(), sluid });
        job.send(JobInput::RunMissing { node: "n0".to_owned(), sluid });
        assert_eq!(job.state(), state);
    }
}
