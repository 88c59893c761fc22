//! Rules of giving way, one job at a time.
#![allow(clippy::unwrap_used)]

use super::{
    effects::JobEffect,
    fixtures::{ALICE, Bench},
};
use crate::messages::{
    het::HetMessage,
    job::{JobCommand, JobInput, JobSite, JobTimer},
    letter::Letter,
    node::NodeInput,
};
use garrick_events::records::job::{Afterwards, Phase};
use garrick_model::{
    config::PreemptMode,
    ids::{JobId, Sluid},
    messages::node::{ControllerToNode, SignalScope},
    spec::{JobSpec, SignalWarning},
    state::{JobState, Reason},
    testing::spec,
    time::{TimeLimit, Timestamp},
};
use garrick_plan::proposals::PreemptProposal;
use std::{sync::Arc, time::Duration};

fn tell(job: &mut Bench, mode: PreemptMode, grace: u64) -> Vec<JobEffect> {
    let sluid = job.core.record().sluid;
    tell_run(job, sluid, mode, grace)
}

fn tell_run(job: &mut Bench, sluid: Sluid, mode: PreemptMode, grace: u64) -> Vec<JobEffect> {
    let (grace, eligible) = (Duration::from_secs(grace), Timestamp::from_secs(1000));
    let proposal = PreemptProposal { pass: 4, job: JobId(7), sluid, by: JobId(9), mode, grace, eligible, until: None };
    job.send(JobInput::Preempt(Box::new(proposal)))
}

fn orders(out: &[JobEffect]) -> Vec<ControllerToNode> {
    out.iter()
        .filter_map(|effect| match effect {
            JobEffect::Tell(Letter::Node(_, NodeInput::Send(frame))) => Some((**frame).clone()),
            _ => None,
        })
        .collect()
}

fn accepted(out: &[JobEffect]) -> Vec<bool> {
    out.iter()
        .filter_map(|effect| match effect {
            JobEffect::Tell(Letter::Outcome { pass: 4, accepted }) => Some(*accepted),
            _ => None,
        })
        .collect()
}

fn is_end(frame: &ControllerToNode) -> bool {
    matches!(frame, ControllerToNode::EndJob { state: JobState::Preempted, .. })
}

/// The run's end, as its nodes tell of it.
fn goes(job: &mut Bench) {
    job.ended(JobState::Preempted, 0);
    job.released("n0");
    job.released("n1");
}

#[test]
fn a_run_that_is_requeued_ends_at_once_and_waits_again() {
    let mut job = Bench::running(spec());
    let out = tell(&mut job, PreemptMode::Requeue, 0);
    assert_eq!(accepted(&out), [true]);
    assert!(matches!(orders(&out).as_slice(), [end] if is_end(end)), "{:?}", orders(&out));
    let view = job.view();
    assert_eq!((view.state, view.ending), (JobState::Completing, Some(JobState::Preempted)));
    assert_eq!(view.preempted.unwrap().at, job.now);
    // The same again changes nothing.
    assert!(orders(&tell(&mut job, PreemptMode::Cancel, 60)).is_empty());
    let before = job.core.record().sluid;
    goes(&mut job);
    assert_eq!((job.state(), job.view().restarts, job.view().preempted), (JobState::Pending, 1, None));
    assert_eq!(job.view().reason, Reason::BeginTime);
    // What was meant for the run before does not meet the next.
    job.now = job.now.plus(Duration::from_secs(200));
    job.send(JobInput::Timer(JobTimer::Eligible));
    job.allocate(&["n0", "n1"]);
    job.started();
    assert_eq!(accepted(&tell_run(&mut job, before, PreemptMode::Requeue, 0)), [false]);
    assert_eq!(job.state(), JobState::Running);
    assert_eq!(&job.replayed(), job.core.record());
}

#[test]
fn a_run_that_is_cancelled_or_may_not_be_requeued_ends_as_preempted() {
    for (mode, requeue) in [(PreemptMode::Cancel, Some(true)), (PreemptMode::Requeue, Some(false))] {
        let mut job = Bench::running(JobSpec { requeue, ..spec() });
        tell(&mut job, mode, 0);
        goes(&mut job);
        assert_eq!((job.state(), job.view().reason), (JobState::Preempted, Reason::None));
        assert_eq!(accepted(&tell(&mut job, mode, 0)), [false], "it is over");
        assert_eq!(&job.replayed(), job.core.record());
    }
}

#[test]
fn with_grace_the_tasks_are_told_and_the_end_comes_later() {
    let mut job = Bench::running(spec());
    let out = tell(&mut job, PreemptMode::Cancel, 30);
    let signals: Vec<i32> = orders(&out)
        .into_iter()
        .map(|frame| match frame {
            ControllerToNode::SignalJob { signal, to: SignalScope::Steps, .. } => signal,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(signals, [18, 15]);
    let at = job.now.plus(Duration::from_secs(30));
    assert!(out.contains(&JobEffect::SetTimer { timer: JobTimer::Preempt, at }));
    let moved = |e: &&JobEffect| matches!(e, JobEffect::Tell(Letter::Node(_, NodeInput::MoveEnd { expected_end, .. })) if *expected_end == Some(at));
    assert_eq!(out.iter().filter(moved).count(), 2);
    assert_eq!((job.state(), job.view().end_time), (JobState::Running, Some(at)));
    assert!(orders(&tell(&mut job, PreemptMode::Cancel, 30)).is_empty(), "told once");
    // A clock that was set back ends nothing early.
    assert!(orders(&job.send(JobInput::Timer(JobTimer::Preempt))).is_empty());
    job.now = at;
    let out = job.send(JobInput::Timer(JobTimer::Preempt));
    assert!(orders(&out).iter().any(is_end));
    goes(&mut job);
    assert_eq!(job.state(), JobState::Preempted);
    assert_eq!(&job.replayed(), job.core.record());
}

#[test]
fn a_run_that_ends_by_itself_within_its_grace_ends_as_it_says() {
    let mut job = Bench::running(spec());
    tell(&mut job, PreemptMode::Requeue, 30);
    let out = job.ended(JobState::Completed, 0);
    assert!(out.contains(&JobEffect::ClearTimer(JobTimer::Preempt)));
    job.released("n0");
    job.released("n1");
    assert_eq!((job.state(), job.view().restarts), (JobState::Completed, 0));
    assert!(orders(&job.send(JobInput::Timer(JobTimer::Preempt))).is_empty());
}

#[test]
fn a_controller_that_comes_back_goes_on_with_the_grace() {
    let mut job = Bench::running(spec());
    tell(&mut job, PreemptMode::Cancel, 30);
    let (again, out) = Bench::new(job.core.record().clone());
    let at = job.now.plus(Duration::from_secs(30));
    assert!(out.contains(&JobEffect::SetTimer { timer: JobTimer::Preempt, at }));
    assert!(orders(&out).is_empty(), "the tasks know");
    let mut late = again.core.record().clone();
    if let Phase::Running(run) = &mut late.phase {
        run.preempted.as_mut().unwrap().times.ends = Timestamp::from_secs(999);
    }
    let (again, out) = Bench::new(late);
    assert!(orders(&out).iter().any(is_end));
    assert_eq!(again.view().ending, Some(JobState::Preempted));
}

#[test]
fn a_run_that_was_cancelled_within_its_grace_is_cancelled() {
    let mut job = Bench::running(spec());
    tell(&mut job, PreemptMode::Requeue, 30);
    job.command(ALICE, None, JobCommand::Cancel).0.unwrap();
    assert!(orders(&job.send(JobInput::Timer(JobTimer::Preempt))).is_empty());
    job.ended(JobState::Cancelled, 0);
    job.released("n0");
    job.released("n1");
    assert_eq!(job.state(), JobState::Cancelled);
}

#[test]
fn the_signal_that_its_user_asked_for_is_sent_where_the_site_has_it_so() {
    let signal = |batch_only| Some(SignalWarning { signal: 10, before_secs: 60, batch_only, overlaps: false });
    let told = |send_user_signal, warning, grace, after: u64| {
        let mut job = Bench::running(JobSpec { signal: warning, time_limit: Some(TimeLimit::Secs(3600)), ..spec() });
        job.send(JobInput::Site(Arc::new(JobSite { send_user_signal, ..JobSite::default() })));
        job.now = job.now.plus(Duration::from_secs(after));
        let sent = orders(&tell(&mut job, PreemptMode::Cancel, grace)).into_iter();
        let signals = sent.filter_map(|frame| match frame {
            ControllerToNode::SignalJob { signal, to, .. } => Some((signal, to)),
            _ => None,
        });
        signals.collect::<Vec<_>>()
    };
    let usual = vec![(18, SignalScope::Steps), (15, SignalScope::Steps)];
    assert_eq!(told(false, signal(false), 30, 0), usual);
    assert_eq!(told(true, None, 30, 0), usual);
    assert_eq!(told(true, signal(false), 30, 0), [(18, SignalScope::Steps), (10, SignalScope::Steps)]);
    assert_eq!(told(true, signal(true), 30, 0), [(18, SignalScope::BatchShell), (10, SignalScope::BatchShell)]);
    assert_eq!(told(true, signal(false), 30, 3590), usual, "it has had it");
    // Without grace there is nothing else to tell.
    assert_eq!(told(true, signal(false), 0, 0), [(18, SignalScope::Steps), (10, SignalScope::Steps)]);
    assert!(told(false, signal(false), 0, 0).is_empty());
}

/// Of a heterogeneous job the leader is told, and tells the others.
#[test]
fn a_component_gives_way_when_its_leader_says_so_and_ends_with_it() {
    let component = |offset| {
        let mut job = Bench::running(spec());
        let spec = Arc::make_mut(&mut job.core.record.spec);
        (spec.het, spec.het_size) = (Some((JobId(7 - offset), offset)), 2);
        job
    };
    let mut leader = component(0);
    let out = tell(&mut leader, PreemptMode::Cancel, 30);
    let told = |out: &[JobEffect]| {
        let to = |effect: &JobEffect| match effect {
            JobEffect::Tell(Letter::Job(to, JobInput::Het { message, .. })) => Some((*to, (**message).clone())),
            _ => None,
        };
        out.iter().filter_map(to).collect::<Vec<_>>()
    };
    let mark = leader.core.record().phase.run().unwrap().preempted.clone().unwrap();
    let give_way = HetMessage::GiveWay { mark: Box::new(mark) };
    assert_eq!(told(&out), [(JobId(8), give_way.clone())]);
    // In case that was lost.
    assert_eq!(told(&tell(&mut leader, PreemptMode::Cancel, 30)), [(JobId(8), give_way.clone())]);
    leader.now = leader.now.plus(Duration::from_secs(30));
    let end = HetMessage::End { state: JobState::Preempted, then: Afterwards::Over, by: None };
    assert_eq!(told(&leader.send(JobInput::Timer(JobTimer::Preempt))), [(JobId(8), end.clone())]);

    let mut other = component(1);
    assert_eq!(accepted(&tell(&mut other, PreemptMode::Cancel, 30)), [false], "not by the scheduler");
    let out = other.send(JobInput::Het { from: JobId(6), message: Box::new(give_way) });
    assert_eq!(orders(&out).len(), 2, "its tasks are told: {out:?}");
    assert!(other.view().preempted.is_some());
    other.now = other.now.plus(Duration::from_secs(60));
    assert!(orders(&other.send(JobInput::Timer(JobTimer::Preempt))).is_empty(), "its leader says when");
    let out = other.send(JobInput::Het { from: JobId(6), message: Box::new(end) });
    assert!(orders(&out).iter().any(is_end), "{out:?}");
}
