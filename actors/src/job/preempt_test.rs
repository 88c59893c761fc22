//! Rules of giving way, one job at a time.
#![allow(clippy::unwrap_used)]

use super::{
    fixtures::{ALICE, Bench},
    messages::{JobCommand, JobEffect, JobInput, JobTimer},
    record::Phase,
};
use crate::scheduler::{fixtures::spec, preempt::PreemptProposal};
use garrick_model::{
    config::PreemptMode,
    ids::{JobId, Sluid},
    messages::node::{ControllerToNode, SignalScope},
    spec::JobSpec,
    state::{JobState, Reason},
    time::Timestamp,
};
use std::time::Duration;

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
            JobEffect::ToAgent { frame, .. } => Some((**frame).clone()),
            _ => None,
        })
        .collect()
}

fn accepted(out: &[JobEffect]) -> Vec<bool> {
    out.iter()
        .filter_map(|effect| match effect {
            JobEffect::Outcome { pass: 4, accepted } => Some(*accepted),
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
    let moved = |e: &&JobEffect| matches!(e, JobEffect::MoveEnd { expected_end, .. } if *expected_end == Some(at));
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
