//! Rules of what nodes are told about another run, and of what waits where one may go on unseen.
#![allow(clippy::unwrap_used)]

use super::{
    core::{JobCore, Leftover},
    effects::{JobEffect, JobErrand},
    fixtures::{Bench, proposal},
};
use crate::messages::{
    het::HetMessage,
    job::{JobCommand, JobInput, JobSite, JobTimer},
    letter::Letter,
    node::{Grant, NodeInput},
};
use garrick_events::{
    records::job::{Afterwards, Unfenced},
    testing::record,
};
use garrick_model::{
    ids::{JobId, Sluid},
    messages::{
        command::JobChange,
        node::{AgentReport, ControllerToNode, RequeuePolicy},
    },
    refusal::Refusal,
    spec::{JobKind, JobSpec},
    state::{JobState, Reason},
    testing::spec,
};
use std::{sync::Arc, time::Duration};

fn no_requeue() -> JobSpec {
    JobSpec { requeue: Some(false), ..spec() }
}

const fn policy(allowed: bool, revision: u32) -> RequeuePolicy {
    RequeuePolicy { allowed, revision }
}

fn update(job: &mut Bench, requeue: bool) -> Vec<JobEffect> {
    let change = JobChange { requeue: Some(requeue), ..JobChange::default() };
    let (answer, out) = job.command(super::fixtures::ALICE, None, JobCommand::Update(Box::new(change)));
    answer.unwrap();
    out
}

fn launched(out: &[JobEffect]) -> Option<RequeuePolicy> {
    out.iter().find_map(
        |effect| if let JobEffect::Do(JobErrand::Launch(order)) = effect { Some(order.requeue) } else { None },
    )
}

fn to_agents(out: &[JobEffect]) -> impl Iterator<Item = (&str, &ControllerToNode)> {
    out.iter().filter_map(|effect| match effect {
        JobEffect::Tell(Letter::Node(node, NodeInput::Send(frame))) => Some((node.as_str(), &**frame)),
        _ => None,
    })
}

/// Which nodes are told of a change.
fn told(out: &[JobEffect]) -> Vec<(&str, RequeuePolicy)> {
    let set = |(node, frame)| match frame {
        &ControllerToNode::SetRequeue { policy, .. } => Some((node, policy)),
        _ => None,
    };
    to_agents(out).filter_map(set).collect()
}

fn answers(job: &mut Bench, node: &str, policy: RequeuePolicy) {
    let (id, sluid) = (job.core.record().id, job.core.record().sluid);
    job.report(node, AgentReport::RequeueSet { job: id, sluid, policy });
}

fn lost(job: &mut Bench, node: &str) -> Vec<JobEffect> {
    let sluid = job.core.record().sluid;
    job.send(JobInput::NodeLost { node: node.to_owned(), sluid })
}

/// Sent to end: which run, where.
fn ends(out: &[JobEffect]) -> Vec<(&str, Sluid)> {
    let end = |(node, frame)| match frame {
        &ControllerToNode::EndJob { sluid, .. } => Some((node, sluid)),
        _ => None,
    };
    to_agents(out).filter_map(end).collect()
}

/// The delay after a requeue is over. What it waits for now, and whether a proposal finds it ready.
fn waits_for(job: &mut Bench) -> (JobState, Reason, bool) {
    job.now = job.now.plus(Duration::from_secs(200));
    job.send(JobInput::Timer(JobTimer::Eligible));
    let view = job.view();
    (view.state, view.reason, view.eligible)
}

fn starts(job: &mut Bench) -> bool {
    let id = job.core.record().id.0;
    let out = job.send(JobInput::Start(Box::new(proposal(id, None, &["n2"]))));
    out.iter().any(|effect| matches!(effect, JobEffect::Tell(Letter::Node(_, NodeInput::Reserve(_)))))
}

const CLEANING: (JobState, Reason, bool) = (JobState::Pending, Reason::Cleaning, false);
const READY: (JobState, Reason, bool) = (JobState::Pending, Reason::None, true);

#[test]
fn a_launch_says_whether_another_run_may_follow() {
    let launch = |spec| launched(&Bench::with(spec).allocate(&["n0"]));
    assert_eq!(launch(spec()), Some(policy(true, 0)));
    assert_eq!(launch(no_requeue()), Some(policy(false, 0)));
    assert_eq!(launch(JobSpec { kind: JobKind::Allocation, ..spec() }), Some(policy(false, 0)));
    let mut job = Bench::with(no_requeue());
    update(&mut job, true);
    assert_eq!(launched(&job.allocate(&["n0"])), Some(policy(true, 0)));
}

/// Found by reading: what the user changed was followed by the controller, and the cut off node went by the request.
#[test]
fn a_run_whose_nodes_have_not_heard_that_another_may_follow_is_waited_for() {
    let mut job = Bench::running(no_requeue());
    let first = job.core.record().sluid;
    let out = update(&mut job, true);
    assert_eq!(told(&out), [("n0", policy(true, 1)), ("n1", policy(true, 1))]);
    answers(&mut job, "n0", policy(true, 1));
    lost(&mut job, "n1");
    job.released("n0");
    assert_eq!(waits_for(&mut job), CLEANING);
    assert!(!starts(&mut job));
    assert_eq!(job.core.record().unfenced, [Unfenced { sluid: first, node: "n1".into(), ends_when_cut_off: false }]);
    // It is told to end the run whenever it can be reached, and says so also where it does not know the run.
    let out = job.send(JobInput::Timer(JobTimer::CleanUp));
    assert_eq!(ends(&out), [("n1", first)]);
    assert_eq!(&job.replayed(), job.core.record());
    job.report("n1", AgentReport::NodeReleased { job: JobId(7), sluid: first, epilog_failed: None, unkillable: None });
    assert_eq!(waits_for(&mut job), READY);
    assert!(starts(&mut job));
    assert_eq!(&job.replayed(), job.core.record());
}

#[test]
fn a_run_whose_nodes_have_heard_is_not_waited_for() {
    let mut job = Bench::running(no_requeue());
    update(&mut job, true);
    for node in ["n0", "n1"] {
        answers(&mut job, node, policy(true, 1));
    }
    lost(&mut job, "n1");
    job.released("n0");
    assert_eq!(waits_for(&mut job), READY);

    // Most jobs: all of it was said with the launch.
    let mut job = Bench::running(spec());
    lost(&mut job, "n0");
    job.released("n1");
    assert_eq!((job.core.record().unfenced.len(), waits_for(&mut job)), (0, READY));
}

#[test]
fn an_answer_to_an_earlier_word_does_not_count() {
    let mut job = Bench::running(spec());
    assert_eq!(told(&update(&mut job, true)), [], "that is what they know");
    update(&mut job, false);
    let out = update(&mut job, true);
    assert_eq!(told(&out), [("n0", policy(true, 2)), ("n1", policy(true, 2))]);
    for (node, revision) in [("n0", 2), ("n1", 2), ("n1", 0)] {
        answers(&mut job, node, policy(true, revision));
    }
    // Those that answered are not told again.
    assert_eq!(told(&update(&mut job, true)), [("n1", policy(true, 2))]);
    lost(&mut job, "n1");
    job.released("n0");
    assert_eq!(waits_for(&mut job), CLEANING);
}

/// The next owner learns from the nodes what they know, and only from them.
#[test]
fn who_takes_over_the_job_counts_on_no_node_that_it_has_not_heard() {
    let rebuilt = |job: &mut Bench| {
        let mut out = Vec::new();
        job.core = JobCore::new(job.replayed(), Arc::new(JobSite::default()));
        job.core.resume(job.now, &mut job.ids, Leftover::default(), &mut out);
        let sluid = job.core.record().sluid;
        let held = |requeue| JobInput::RunHeld { node: "n1".to_owned(), sluid, requeue };
        let old = job.send(held(None));
        assert_eq!(told(&old), [], "one of an earlier version would not understand");
        held(Some(policy(false, 0)))
    };
    let mut job = Bench::running(no_requeue());
    update(&mut job, true);
    answers(&mut job, "n1", policy(true, 1));
    let held = rebuilt(&mut job);
    let out = job.send(held);
    assert_eq!(told(&out), [("n1", policy(true, 1))], "it had not heard");
    lost(&mut job, "n1");
    job.released("n0");
    assert_eq!(waits_for(&mut job), CLEANING);

    let mut job = Bench::running(no_requeue());
    update(&mut job, true);
    let sluid = job.core.record().sluid;
    rebuilt(&mut job);
    let out = job.send(JobInput::RunHeld { node: "n1".to_owned(), sluid, requeue: Some(policy(true, 1)) });
    assert_eq!(told(&out), []);
    lost(&mut job, "n1");
    job.released("n0");
    assert_eq!(waits_for(&mut job), READY);
}

/// Found by reading: nothing was heard of the launch, the node was given up, and an administrator let the job go.
#[test]
fn a_job_that_could_not_be_launched_waits_for_a_node_that_may_have_started_it() {
    let mut job = Bench::with(no_requeue());
    let first = job.core.record().sluid;
    job.allocate(&["n0"]);
    job.send(JobInput::Timer(JobTimer::Launch));
    lost(&mut job, "n0");
    assert_eq!(job.view().reason, Reason::Other("launch failed requeued held".to_owned()));
    job.order(JobCommand::Release).unwrap();
    assert_eq!(waits_for(&mut job), CLEANING);
    assert!(!starts(&mut job));
    // It registered with nothing.
    job.send(JobInput::RunMissing { node: "n0".to_owned(), sluid: first });
    assert_eq!(waits_for(&mut job), READY);
    assert_eq!(&job.replayed(), job.core.record());
}

#[test]
fn a_run_that_no_other_follows_is_not_waited_for() {
    let mut job = Bench::running(no_requeue());
    lost(&mut job, "n1");
    job.released("n0");
    assert_eq!(job.state(), JobState::NodeFail);
    assert_eq!(job.order(JobCommand::Requeue { hold: false }), Err(Refusal::Disabled));
    let mut job = Bench::running(JobSpec { kind: JobKind::Allocation, ..spec() });
    lost(&mut job, "n1");
    assert_eq!(job.core.record().unfenced, []);
}

/// A requeue by hand of a job that is over already.
#[test]
fn a_job_that_was_lost_with_its_node_and_is_requeued_by_hand_waits() {
    let mut job = Bench::running(no_requeue());
    update(&mut job, true);
    job.order(JobCommand::Cancel).unwrap();
    lost(&mut job, "n1");
    lost(&mut job, "n0");
    assert_eq!(job.state(), JobState::Cancelled);
    job.order(JobCommand::Requeue { hold: false }).unwrap();
    assert_eq!(waits_for(&mut job), CLEANING);
}

fn component(offset: u32) -> JobSpec {
    let kind = if offset == 0 { JobKind::Batch } else { JobKind::Allocation };
    JobSpec { het: Some((JobId(7), offset)), het_size: 2, kind, ..spec() }
}

fn prepared(requeue: bool) -> (Bench, Vec<JobEffect>) {
    let mut job = Bench::new(record(8, component(1))).0;
    let proposal = Box::new(proposal(8, None, &["n0"]));
    let prepare = HetMessage::Prepare { attempt: 3, requeue, proposal };
    job.send(JobInput::Het { from: JobId(7), message: Box::new(prepare) });
    let attempt = job.core.leftover().attempt;
    let out =
        job.send(JobInput::Reserved { attempt, node: "n0".to_owned(), result: Ok(Grant::at("n0:6818".to_owned())) });
    (job, out)
}

/// A component of a heterogeneous job with its allocation, launched.
fn component_running(requeue: bool) -> (Bench, Vec<JobEffect>) {
    let (mut job, out) = prepared(requeue);
    let run = out.iter().find_map(|effect| match effect {
        JobEffect::Tell(Letter::Job(_, JobInput::Het { message, .. })) => match &**message {
            HetMessage::Prepared { run, .. } => Some(run.clone()),
            _ => None,
        },
        _ => None,
    });
    let run = run.unwrap();
    job.saved.push(garrick_events::records::job_event::JobEvent::Allocated(run.clone()));
    let granted = HetMessage::Granted { sluid: job.core.record().sluid, run };
    let out = job.send(JobInput::Het { from: JobId(7), message: Box::new(granted) });
    job.started();
    (job, out)
}

/// Found by simulation: a component that was lost with its node was queued again with its leader and started elsewhere. It is
/// an allocation, so its node took it for one that no other run can follow, and went on.
#[test]
fn a_component_is_launched_as_its_leader_says() {
    assert_eq!(launched(&component_running(true).1), Some(policy(true, 0)));
    assert_eq!(launched(&component_running(false).1), Some(policy(false, 0)));
    // Their leader knows.
    let mut leader = Bench::with(component(0));
    let mut start = proposal(7, None, &["n1"]);
    start.others = vec![proposal(8, None, &["n0"])];
    let out = leader.send(JobInput::Start(Box::new(start)));
    let prepares = |effect: &JobEffect| match effect {
        JobEffect::Tell(Letter::Job(_, JobInput::Het { message, .. })) => {
            matches!(**message, HetMessage::Prepare { requeue: true, .. })
        }
        _ => false,
    };
    assert!(out.iter().any(prepares), "{out:?}");
}

#[test]
fn a_component_whose_node_has_not_heard_is_waited_for_when_its_leader_is_requeued() {
    let from_leader = |message| JobInput::Het { from: JobId(7), message: Box::new(message) };
    let again =
        HetMessage::End { state: JobState::NodeFail, then: Afterwards::Requeue { hold: None, delay: true }, by: None };
    for heard in [false, true] {
        let (mut job, _) = component_running(false);
        let out = job.send(from_leader(HetMessage::SetRequeue { allowed: true }));
        assert_eq!(told(&out), [("n0", policy(true, 1))]);
        if heard {
            answers(&mut job, "n0", policy(true, 1));
        }
        lost(&mut job, "n0");
        assert_eq!(job.state(), JobState::NodeFail);
        job.send(from_leader(again.clone()));
        assert_eq!(waits_for(&mut job), if heard { READY } else { CLEANING });
        assert_eq!(&job.replayed(), job.core.record());
    }
}

#[test]
fn all_components_hear_of_the_change() {
    let mut leader = Bench::running(no_requeue());
    let spec = Arc::make_mut(&mut leader.core.record.spec);
    (spec.het, spec.het_size) = (Some((JobId(7), 0)), 3);
    let out = update(&mut leader, true);
    let set = |effect: &JobEffect| match effect {
        JobEffect::Tell(Letter::Job(to, JobInput::Het { from: JobId(7), message }))
            if **message == (HetMessage::SetRequeue { allowed: true }) =>
        {
            Some(to.0)
        }
        _ => None,
    };
    assert_eq!(out.iter().filter_map(set).collect::<Vec<_>>(), [8, 9]);
}
