//! Rules of standing still, one job at a time.
#![allow(clippy::unwrap_used)]

use super::{
    core::{JobCore, Leftover},
    effects::JobEffect,
    fixtures::{ALICE, Bench, ROOT},
};
use crate::messages::{
    job::{JobAnswer, JobCommand, JobInput, JobSite, JobTimer},
    letter::Letter,
    node::NodeInput,
};
use garrick_events::records::job_event::JobEvent;
use garrick_model::{
    config::PreemptMode,
    ids::{JobId, Sluid},
    messages::node::ControllerToNode,
    refusal::Refusal,
    signal::{SIGCONT, SIGSTOP, SIGTSTP},
    state::JobState,
    testing::spec,
    time::{TimeLimit, Timestamp},
};
use garrick_plan::proposals::{PreemptProposal, ResumeProposal, TurnProposal};
use std::{sync::Arc, time::Duration};

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// It is to make room for job 9, which ends in `busy` seconds.
fn told(job: &mut Bench, grace: u64, busy: u64) -> Vec<JobEffect> {
    let (eligible, until) = (Timestamp::from_secs(1000), Some(job.now.plus(secs(busy))));
    let (sluid, mode, grace) = (job.core.record().sluid, PreemptMode::Suspend, secs(grace));
    let proposal = PreemptProposal { pass: 4, job: JobId(7), sluid, by: JobId(9), mode, grace, eligible, until };
    job.send(JobInput::Preempt(Box::new(proposal)))
}

fn go_on(job: &mut Bench) -> Vec<JobEffect> {
    let proposal = ResumeProposal { pass: 5, job: JobId(7), sluid: job.core.record().sluid };
    job.send(JobInput::GoOn(Box::new(proposal)))
}

/// The nodes' answers to the attempt among these effects.
fn answered(job: &mut Bench, out: &[JobEffect], granted: [bool; 2]) -> Vec<JobEffect> {
    let mut last = Vec::new();
    let asked: Vec<(String, u64)> = out
        .iter()
        .filter_map(|effect| match effect {
            JobEffect::Tell(Letter::Node(node, NodeInput::Unpark { attempt, .. })) => Some((node.clone(), *attempt)),
            _ => None,
        })
        .collect();
    assert_eq!(asked.iter().map(|(node, _)| node.as_str()).collect::<Vec<_>>(), ["n0", "n1"]);
    for ((node, attempt), granted) in asked.into_iter().zip(granted) {
        last.extend(job.send(JobInput::Unparked { attempt, node, granted }));
    }
    last
}

fn signals(out: &[JobEffect]) -> Vec<i32> {
    let signal = |effect: &JobEffect| match effect {
        JobEffect::Tell(Letter::Node(_, NodeInput::Send(frame))) => match **frame {
            ControllerToNode::SignalJob { signal, .. } => Some(signal),
            _ => None,
        },
        _ => None,
    };
    out.iter().filter_map(signal).collect()
}

fn limits(out: &[JobEffect]) -> Vec<TimeLimit> {
    let limit = |effect: &JobEffect| match effect {
        JobEffect::Tell(Letter::Node(_, NodeInput::Send(frame))) => match **frame {
            ControllerToNode::SetTimeLimit { limit, .. } => Some(limit),
            _ => None,
        },
        _ => None,
    };
    out.iter().filter_map(limit).collect()
}

fn parked(out: &[JobEffect]) -> Vec<&str> {
    let parks = out.iter().filter_map(|effect| match effect {
        JobEffect::Tell(Letter::Node(node, NodeInput::Park { .. })) => Some(node.as_str()),
        _ => None,
    });
    parks.collect()
}

fn outcome(out: &[JobEffect]) -> Option<bool> {
    out.iter().find_map(|effect| match effect {
        JobEffect::Tell(Letter::Outcome { accepted, .. }) => Some(*accepted),
        _ => None,
    })
}

#[test]
fn it_stands_still_gives_its_cpus_after_the_grace_and_goes_on_when_all_nodes_say_so() {
    let mut job = Bench::running(spec());
    job.now = job.now.plus(secs(100));
    let out = told(&mut job, 2, 500);
    assert_eq!((outcome(&out), signals(&out), limits(&out)), (Some(true), vec![SIGTSTP], vec![TimeLimit::Unlimited]));
    assert!(parked(&out).is_empty(), "not yet");
    assert_eq!((job.state(), job.view().preempted), (JobState::Suspended, None));
    let ends = job.now.plus(secs(2));
    assert_eq!(job.view().suspended.unwrap().yielded.unwrap().ends, ends);
    // A hundred of 3600 seconds are gone when the other ends.
    assert_eq!(job.view().end_time, Some(job.now.plus(secs(500 + 3500))));
    job.now = ends;
    let out = job.send(JobInput::Timer(JobTimer::Preempt));
    assert_eq!((signals(&out), parked(&out)), (vec![SIGSTOP], vec!["n0", "n1"]));
    assert_eq!(outcome(&told(&mut job, 2, 500)), Some(true), "the same again");

    job.now = job.now.plus(secs(598));
    let asked = go_on(&mut job);
    assert_eq!(outcome(&go_on(&mut job)), Some(false), "one attempt at a time");
    let out = answered(&mut job, &asked, [true, false]);
    assert_eq!((outcome(&out), parked(&out), job.state()), (Some(false), vec!["n0", "n1"], JobState::Suspended));
    let asked = go_on(&mut job);
    let out = answered(&mut job, &asked, [true, true]);
    assert_eq!((outcome(&out), signals(&out), parked(&out)), (Some(true), vec![SIGCONT], vec![]));
    assert_eq!(limits(&out), [TimeLimit::Secs(3600 + 600)], "time does not count while it stands still");
    let view = job.view();
    assert_eq!((view.state, view.suspended.unwrap().stood_ms), (JobState::Running, 600_000));
    assert_eq!(view.end_time, Some(view.start_time.unwrap().plus(secs(4200))));
    // And once more.
    assert_eq!(parked(&told(&mut job, 0, 10)), ["n0", "n1"]);
    job.now = job.now.plus(secs(10));
    let asked = go_on(&mut job);
    let out = answered(&mut job, &asked, [true, true]);
    assert_eq!(limits(&out), [TimeLimit::Secs(3600 + 610)]);
    assert_eq!(&job.replayed(), job.core.record());
}

#[test]
fn whom_an_administrator_suspended_the_scheduler_does_not_resume() {
    let mut job = Bench::running(spec());
    job.command(ROOT, None, JobCommand::Suspend).0.unwrap();
    assert_eq!(outcome(&go_on(&mut job)), Some(false));
    // It stands still anyway: its CPUs are free at once, and still it is the administrator's.
    let out = told(&mut job, 30, 100);
    assert_eq!((outcome(&out), parked(&out)), (Some(true), vec!["n0", "n1"]));
    assert_eq!(outcome(&go_on(&mut job)), Some(false));
    job.command(ROOT, None, JobCommand::Resume).0.unwrap();
    assert_eq!(job.state(), JobState::Suspended, "the other has its CPUs");
    let asked = go_on(&mut job);
    // Suspended again in the middle of it.
    let (result, out) = job.command(ROOT, None, JobCommand::Suspend);
    assert_eq!((result, outcome(&out), parked(&out)), (Ok(()), Some(false), vec!["n0", "n1"]));
    assert!(answered(&mut job, &asked, [true, true]).is_empty(), "answers to an attempt that was given up");
    assert_eq!((job.state(), job.view().suspended.unwrap().by_admin), (JobState::Suspended, true));
    assert_eq!(&job.replayed(), job.core.record());
}

#[test]
fn an_administrator_resumes_one_that_stands_still_for_another_where_its_cpus_are_free() {
    let mut job = Bench::running(spec());
    told(&mut job, 0, 100);
    assert_eq!(job.command(ALICE, None, JobCommand::Resume).0, Err(Refusal::AccessDenied));
    let resume = |job: &mut Bench, granted| {
        let command = JobInput::Command { request: 9, by: ROOT, tasks: None, command: JobCommand::Resume };
        let asked = job.send(command);
        let out = answered(job, &asked, granted);
        out.into_iter().find_map(|effect| match effect {
            JobEffect::Answer { request: 9, answer: JobAnswer::Done(result) } => Some(result),
            _ => None,
        })
    };
    assert_eq!(resume(&mut job, [false, true]), Some(Err(Refusal::Busy)));
    assert_eq!(job.state(), JobState::Suspended);
    assert_eq!(resume(&mut job, [true, true]), Some(Ok(())));
    assert_eq!(job.state(), JobState::Running);
}

#[test]
fn one_that_does_not_run_yet_or_no_more_does_not_stand_still() {
    let mut job = Bench::with(spec());
    assert_eq!(outcome(&told(&mut job, 0, 100)), Some(false));
    job.allocate(&["n0", "n1"]);
    assert_eq!((outcome(&told(&mut job, 0, 100)), job.state()), (Some(false), JobState::Configuring));
    job.started();
    job.order(JobCommand::Cancel).unwrap();
    assert!(parked(&told(&mut job, 0, 100)).is_empty(), "it ends anyway");
    assert_eq!(job.state(), JobState::Completing);
}

#[test]
fn one_that_is_cancelled_while_it_stands_still_gives_all_back() {
    let mut job = Bench::running(spec());
    told(&mut job, 0, 100);
    job.now = job.now.plus(secs(30));
    let asked = go_on(&mut job);
    let out = job.command(ALICE, None, JobCommand::Cancel).1;
    assert_eq!(outcome(&out), Some(false), "nobody waits for it to go on: {out:?}");
    assert!(answered(&mut job, &asked, [true, true]).is_empty());
    assert_eq!(outcome(&go_on(&mut job)), Some(false));
    job.ended(JobState::Cancelled, 0);
    assert_eq!(job.view().suspended.unwrap().stood_ms, 30_000);
    let out = [job.released("n0"), job.released("n1")].concat();
    let freed = out
        .iter()
        .filter(|effect| matches!(effect, JobEffect::Tell(Letter::Node(_, NodeInput::Release { attempt: None, .. }))))
        .count();
    assert_eq!((freed, job.state()), (2, JobState::Cancelled));
    assert_eq!(&job.replayed(), job.core.record());
}

#[test]
fn after_a_restart_it_still_stands_still_for_the_other() {
    for (grace, held_back) in [(0, false), (0, true), (2, false)] {
        let mut job = Bench::running(spec());
        if held_back {
            job.command(ROOT, None, JobCommand::Suspend).0.unwrap();
        }
        told(&mut job, grace, 100);
        let record = job.replayed();
        let holds: Vec<bool> = record.holds().iter().map(|hold| hold.parked).collect();
        assert_eq!(holds, [true, true], "no node gives its CPUs to it");
        job.core = JobCore::new(record, Arc::new(JobSite::default()));
        let mut out = Vec::new();
        job.core.resume(job.now, &mut job.ids, Leftover::default(), &mut out);
        assert_eq!(parked(&out).is_empty(), grace > 0, "{out:?}");
        let sluid = Sluid(job.core.record().sluid.0);
        let out = job.send(JobInput::RunHeld { node: "n0".to_owned(), sluid, requeue: None });
        let stopped = if grace > 0 { vec![] } else { vec![SIGSTOP] };
        assert_eq!((signals(&out), limits(&out)), (stopped, vec![TimeLimit::Unlimited]));
        let asked = go_on(&mut job);
        if held_back {
            assert_eq!(outcome(&asked), Some(false));
        } else {
            answered(&mut job, &asked, [true, true]);
            assert_eq!(job.state(), JobState::Running);
            assert!(matches!(job.saved.last(), Some(JobEvent::Continued { .. })));
        }
    }
}

#[test]
fn nodes_that_do_not_answer_are_not_waited_for_for_ever() {
    let mut job = Bench::running(spec());
    told(&mut job, 0, 100);
    go_on(&mut job);
    let out = job.send(JobInput::Timer(JobTimer::Commit));
    assert_eq!((outcome(&out), parked(&out), job.state()), (Some(false), vec!["n0", "n1"], JobState::Suspended));
}

/// A node that has answered must not be told behind that answer to give the CPUs away.
#[test]
fn the_end_of_its_grace_does_not_stop_one_that_is_about_to_go_on() {
    let mut job = Bench::running(spec());
    told(&mut job, 2, 100);
    let asked = go_on(&mut job);
    job.now = job.now.plus(secs(2));
    let late = job.send(JobInput::Timer(JobTimer::Preempt));
    assert_eq!((signals(&late), parked(&late)), (vec![], vec![]));
    let out = answered(&mut job, &asked, [true, true]);
    assert_eq!((signals(&out), parked(&out), job.state()), (vec![SIGCONT], vec![], JobState::Running));
}

#[test]
fn one_that_is_to_end_for_another_still_is_when_an_administrator_resumes_it() {
    let mut job = Bench::running(spec());
    job.command(ROOT, None, JobCommand::Suspend).0.unwrap();
    let (sluid, mode, grace) = (job.core.record().sluid, PreemptMode::Cancel, secs(60));
    let (eligible, until) = (Timestamp::from_secs(1000), None);
    let proposal = PreemptProposal { pass: 4, job: JobId(7), sluid, by: JobId(9), mode, grace, eligible, until };
    job.send(JobInput::Preempt(Box::new(proposal)));
    let out = job.command(ROOT, None, JobCommand::Resume).1;
    let ends = job.now.plus(grace);
    assert!(out.contains(&JobEffect::SetTimer { timer: JobTimer::Preempt, at: ends }), "{out:?}");
}

#[test]
fn one_whose_end_is_ordered_is_not_stopped_again() {
    let mut job = Bench::running(spec());
    told(&mut job, 0, 100);
    job.command(ALICE, None, JobCommand::Cancel).0.unwrap();
    let sluid = job.core.record().sluid;
    let out = job.send(JobInput::RunHeld { node: "n0".to_owned(), sluid, requeue: None });
    assert_eq!((signals(&out), parked(&out)), (vec![], vec![]));
}

fn turn(job: &mut Bench, on: bool) -> Vec<JobEffect> {
    let sluid = job.core.record().sluid;
    job.send(JobInput::Turn(TurnProposal { pass: 6, job: JobId(7), sluid, on }))
}

#[test]
fn one_that_waits_for_its_turn_keeps_its_cpus_and_its_time_does_not_count() {
    let mut job = Bench::running(spec());
    job.now = job.now.plus(secs(100));
    let out = turn(&mut job, false);
    assert_eq!((outcome(&out), signals(&out), limits(&out)), (Some(true), vec![SIGSTOP], vec![TimeLimit::Unlimited]));
    assert!(parked(&out).is_empty(), "it shares them");
    let times = job.view().suspended.unwrap();
    assert_eq!((job.state(), times.waits_turn, times.by_admin), (JobState::Suspended, true, false));
    assert_eq!(outcome(&go_on(&mut job)), Some(false), "it gave way to nobody");
    assert_eq!(job.command(ROOT, None, JobCommand::Resume).0, Err(Refusal::Busy));

    // A restarted owner still knows.
    job.core = JobCore::new(job.replayed(), Arc::new(JobSite::default()));
    let mut out = Vec::new();
    job.core.resume(job.now, &mut job.ids, Leftover::default(), &mut out);
    let sluid = Sluid(job.core.record().sluid.0);
    let out = job.send(JobInput::RunHeld { node: "n0".to_owned(), sluid, requeue: None });
    assert_eq!((signals(&out), parked(&out)), (vec![SIGSTOP], vec![]));

    job.now = job.now.plus(secs(30));
    let out = turn(&mut job, true);
    assert_eq!((outcome(&out), signals(&out)), (Some(true), vec![SIGCONT]));
    assert_eq!(limits(&out), [TimeLimit::Secs(3600 + 30)]);
    assert_eq!((job.state(), job.view().suspended.unwrap().waits_turn), (JobState::Running, false));
    let again = turn(&mut job, true);
    assert_eq!((outcome(&again), signals(&again)), (Some(true), vec![]));
    let other_run = TurnProposal { pass: 6, job: JobId(7), sluid: Sluid(1), on: false };
    assert_eq!(outcome(&job.send(JobInput::Turn(other_run))), Some(false));
    assert_eq!(&job.replayed(), job.core.record());
}

#[test]
fn whom_an_administrator_suspended_takes_no_turn_until_he_resumes_it() {
    let mut job = Bench::running(spec());
    turn(&mut job, false);
    job.command(ROOT, None, JobCommand::Suspend).0.unwrap();
    assert_eq!(outcome(&turn(&mut job, true)), Some(false));
    job.command(ROOT, None, JobCommand::Resume).0.unwrap();
    assert_eq!(job.state(), JobState::Suspended, "its turn has not come");
    assert_eq!(outcome(&turn(&mut job, true)), Some(true));
    // One that ran has no turn to wait for.
    job.command(ROOT, None, JobCommand::Suspend).0.unwrap();
    assert_eq!((outcome(&turn(&mut job, true)), outcome(&turn(&mut job, false))), (Some(false), Some(false)));
    job.command(ROOT, None, JobCommand::Resume).0.unwrap();
    assert_eq!(job.state(), JobState::Running);
    assert_eq!(&job.replayed(), job.core.record());
}

#[test]
fn one_that_waits_for_its_turn_gives_its_cpus_to_one_that_preempts_it() {
    let mut job = Bench::running(spec());
    turn(&mut job, false);
    let out = told(&mut job, 2, 100);
    assert_eq!((outcome(&out), parked(&out)), (Some(true), vec!["n0", "n1"]), "it stands still already");
    let times = job.view().suspended.unwrap();
    assert_eq!((times.waits_turn, times.by_admin), (false, false));
    assert_eq!(outcome(&turn(&mut job, true)), Some(false));
    let asked = go_on(&mut job);
    answered(&mut job, &asked, [true, true]);
    assert_eq!(job.state(), JobState::Running);
}

#[test]
fn one_that_is_to_end_is_not_stopped_until_its_turn() {
    let mut job = Bench::running(spec());
    job.order(JobCommand::Cancel).unwrap();
    assert_eq!(outcome(&turn(&mut job, false)), Some(false));
    let mut job = Bench::running(spec());
    turn(&mut job, false);
    job.command(ALICE, None, JobCommand::Cancel).0.unwrap();
    assert_eq!(outcome(&turn(&mut job, true)), Some(false));
    job.ended(JobState::Cancelled, 0);
    assert_eq!(job.state(), JobState::Completing);
}
