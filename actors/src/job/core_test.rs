//! Rules of a job's life.
#![allow(clippy::unwrap_used)]

use super::{
    effects::{JobEffect, JobErrand, JobShown},
    fixtures::{ALICE, Bench, ROOT, begun, event_of, proposal},
};
use crate::messages::{
    job::{Authority, JobAnswer, JobCommand, JobFact, JobInput, JobSite, JobTimer},
    letter::{Letter, end_lost},
    license::LicenseInput,
    node::{Grant, NodeInput, ReserveRefusal},
};
use garrick_events::{
    event::ControllerEvent,
    records::{
        job::{HeldBy, JobRecord, Phase, TaskOutcome},
        job_event::JobEvent,
    },
    testing::{ended_row, record},
};
use garrick_model::{
    ids::{JobId, Sluid, StepKey},
    messages::{
        command::{JobChange, JobMilestone},
        node::{AgentReport, ControllerToNode},
        request_change::RequestChange,
    },
    node_shape::SpecCores,
    packed_steps::{PackedSteps, StepTally},
    refusal::Refusal,
    spec::{Dependencies, Dependency, DependencyKind, JobKind, JobSpec, LayoutRequest, Sharing},
    spec_text::licenses::Licenses,
    state::{ExitStatus, JobState, Reason},
    testing::{array, depends_on as depends, spec},
    time::{TimeLimit, Timestamp},
    view::{Accrual, JobView, StepCounts, StepRows},
};
use garrick_plan::proposals::StartProposal;
use std::{collections::BTreeMap, sync::Arc, time::Duration};

fn releases(out: &[JobEffect]) -> Vec<&str> {
    out.iter()
        .filter_map(|e| match e {
            JobEffect::Tell(Letter::Node(node, NodeInput::Release { .. })) => Some(node.as_str()),
            _ => None,
        })
        .collect()
}

fn ends_sent(out: &[JobEffect]) -> Vec<&str> {
    out.iter()
        .filter_map(|e| match e {
            JobEffect::Tell(Letter::Node(node, NodeInput::Send(frame)))
                if matches!(**frame, ControllerToNode::EndJob { .. }) =>
            {
                Some(node.as_str())
            }
            _ => None,
        })
        .collect()
}

fn is_reached(out: &[JobEffect], request: u64) -> bool {
    out.iter().any(|e| matches!(e, JobEffect::Answer { request: r, answer: JobAnswer::Reached(_) } if *r == request))
}

fn outcomes(out: &[JobEffect]) -> Vec<bool> {
    out.iter()
        .filter_map(|e| match e {
            JobEffect::Tell(Letter::Outcome { accepted, .. }) => Some(*accepted),
            _ => None,
        })
        .collect()
}

#[test]
fn a_job_runs_from_the_queue_to_its_end() {
    let mut job = Bench::with(spec());
    assert_eq!((job.state(), job.view().eligible), (JobState::Pending, true));
    let out = job.allocate(&["n0", "n1"]);
    assert_eq!(outcomes(&out), [true]);
    let order = out
        .iter()
        .find_map(|e| if let JobEffect::Do(JobErrand::Launch(order)) = e { Some(order) } else { None })
        .unwrap();
    assert_eq!((order.node.as_str(), order.credential.addresses.len()), ("n0", 2));
    assert!(matches!(event_of(&out[1]), Some(JobEvent::Allocated(_))));
    assert_eq!(job.state(), JobState::Configuring);
    job.started();
    assert_eq!((job.state(), job.core.place().unwrap().door.as_str()), (JobState::Running, "/run/door"));
    let out = job.ended(JobState::Completed, 0);
    // The batch host cleans up by itself; the other node is told in case the launch never reached it.
    assert_eq!(ends_sent(&out), ["n1"]);
    assert!(out.contains(&JobEffect::Tell(Letter::Node("n0".to_owned(), NodeInput::ReportSafe { seq: 1 }))));
    assert_eq!((job.state(), job.view().ending), (JobState::Completing, Some(JobState::Completed)));
    assert_eq!(releases(&job.released("n1")), ["n1"]);
    assert_eq!(job.view().completing_nodes, ["n0"]);
    let out = job.released("n0");
    assert_eq!(job.state(), JobState::Completed);
    assert!(out.iter().any(|e| matches!(e, JobEffect::SetTimer { timer: JobTimer::Purge, .. })));
    job.now = job.now.plus(Duration::from_secs(300));
    assert!(job.send(JobInput::Timer(JobTimer::Purge)).contains(&JobEffect::Stop));
    assert_eq!(&job.replayed(), job.core.record());
}

/// Found by simulation: a forging node let go of what it had just been asked for, and a job had a node that did not know of it.
#[test]
fn a_node_that_is_being_asked_has_nothing_to_let_go_of() {
    let mut job = Bench::with(spec());
    job.send(JobInput::Start(Box::new(proposal(7, None, &["n0", "n1"]))));
    for _ in 0..2 {
        let out = job.released("n0");
        assert!(
            matches!(&out[..], [JobEffect::Tell(Letter::Node(_, NodeInput::ReportSafe { .. }))]),
            "it keeps its share: {out:?}"
        );
        job.send(JobInput::Reserved { attempt: 1, node: "n0".to_owned(), result: Ok(Grant::at("n0:6818".to_owned())) });
    }
    let out =
        job.send(JobInput::Reserved { attempt: 1, node: "n1".to_owned(), result: Ok(Grant::at("n1:6818".to_owned())) });
    assert!(!out.is_empty() && job.state() != JobState::Pending, "{out:?}");
    let out = job.released("n0");
    assert!(
        out.iter().any(|effect| matches!(effect, JobEffect::Tell(Letter::Node(_, NodeInput::Release { .. })))),
        "what it was given it may let go of: {out:?}"
    );
}

#[test]
fn nodes_are_told_to_reboot_when_the_run_has_all_of_them_and_it_begins_when_they_are_back() {
    let mut job = Bench::with(JobSpec { reboot: true, ..spec() });
    let out = job.send(JobInput::Start(Box::new(proposal(7, None, &["n0", "n1"]))));
    let asks =
        |effect: &JobEffect| matches!(effect, JobEffect::Tell(Letter::Node(_, NodeInput::Reserve(ask))) if ask.reboot);
    assert_eq!(out.iter().filter(|effect| asks(effect)).count(), 2);
    let grants = |node: &str| {
        let result = Ok(Grant { address: format!("{node}:1"), boots: true });
        JobInput::Reserved { attempt: 1, node: node.to_owned(), result }
    };
    let told = |out: &[JobEffect]| {
        let reboots = |effect: &JobEffect| match effect {
            JobEffect::Tell(Letter::Node(node, NodeInput::Reboot { sluid: Sluid(7), .. })) => Some(node.clone()),
            _ => None,
        };
        out.iter().filter_map(reboots).collect::<Vec<_>>()
    };
    let launched = |out: &[JobEffect]| out.iter().any(|e| matches!(e, JobEffect::Do(JobErrand::Launch(_))));
    assert_eq!(told(&job.send(grants("n0"))), Vec::<String>::new());
    let out = job.send(grants("n1"));
    assert_eq!((told(&out), launched(&out)), (vec!["n0".to_owned(), "n1".to_owned()], false));
    let ready =
        |node: &str| JobInput::NodeReady { node: node.to_owned(), sluid: Sluid(7), address: format!("{node}:2") };
    assert!(!launched(&job.send(ready("n1"))));
    // A controller that starts again asks once more those that are not back.
    let left = job.core.leftover();
    let mut out = Vec::new();
    job.core.resume(job.now, &mut job.ids, left, &mut out);
    assert_eq!(told(&out), ["n0"]);
    assert!(launched(&job.send(ready("n0"))));
    assert_eq!(&job.replayed(), job.core.record());
}

#[test]
fn one_refusal_gives_everything_back() {
    let mut job = Bench::with(spec());
    job.send(JobInput::Start(Box::new(proposal(7, None, &["n0", "n1", "n2"]))));
    job.send(JobInput::Reserved { attempt: 1, node: "n0".to_owned(), result: Ok(Grant::at("n0:1".to_owned())) });
    let no = Err(ReserveRefusal::OutOfService("down"));
    let out = job.send(JobInput::Reserved { attempt: 1, node: "n1".to_owned(), result: no });
    assert_eq!((releases(&out), outcomes(&out)), (vec!["n0", "n2"], vec![false]));
    assert_eq!(job.state(), JobState::Pending);
    // The third node's yes comes late: given back by name of the attempt.
    let out =
        job.send(JobInput::Reserved { attempt: 1, node: "n2".to_owned(), result: Ok(Grant::at("n2:1".to_owned())) });
    assert_eq!(
        out,
        [JobEffect::Tell(Letter::Node(
            "n2".to_owned(),
            NodeInput::Release { job: JobId(7), sluid: Sluid(7), attempt: Some(1), drain: None }
        ))]
    );
    assert_eq!(outcomes(&job.allocate(&["n0"])), [true]);
}

/// A yes that came twice, the second time late: the node was given back under a run whose processes were still on it.
#[test]
fn a_repeated_yes_does_not_give_back_a_node_that_is_being_cleaned() {
    let mut job = Bench::running(spec());
    let attempt = job.core.leftover().attempt;
    let again =
        |node: &str| JobInput::Reserved { attempt, node: node.to_owned(), result: Ok(Grant::at(format!("{node}:1"))) };
    assert_eq!(job.send(again("n1")), []);
    job.ended(JobState::Completed, 0);
    assert_eq!(job.state(), JobState::Completing);
    assert_eq!(job.send(again("n1")), []);
    job.released("n1");
    assert_eq!(releases(&job.send(again("n1"))), ["n1"]);
}

/// The owner of a node that fails over a reservation never answers it, and with it the job would wait for ever.
#[test]
fn a_node_that_does_not_answer_is_given_up_with_the_others() {
    let mut job = Bench::with(spec());
    let out = job.send(JobInput::Start(Box::new(proposal(7, None, &["n0", "n1"]))));
    assert!(out.iter().any(|e| matches!(e, JobEffect::SetTimer { timer: JobTimer::Commit, .. })));
    job.send(JobInput::Reserved { attempt: 1, node: "n0".to_owned(), result: Ok(Grant::at("n0:1".to_owned())) });
    let out = job.send(JobInput::Timer(JobTimer::Commit));
    assert_eq!((releases(&out), outcomes(&out)), (vec!["n0", "n1"], vec![false]));
    assert_eq!(outcomes(&job.allocate(&["n0"])), [true]);
    assert_eq!(job.send(JobInput::Timer(JobTimer::Commit)), [], "too late");
}

/// Its release was lost with the node's owner: the node registers, and names what the job does not have.
#[test]
fn what_an_attempt_before_left_at_a_node_is_given_back() {
    let mut job = Bench::with(spec());
    let missing = |node: &str, sluid| JobInput::RunMissing { node: node.to_owned(), sluid };
    let lost = |node: &str, sluid| JobInput::NodeLost { node: node.to_owned(), sluid };
    let sluid = job.core.record().sluid;
    job.send(JobInput::Start(Box::new(proposal(7, None, &["n0"]))));
    let out = job.send(missing("n2", sluid));
    assert_eq!(releases(&out), ["n2"]);
    let given_up = JobEffect::Tell(Letter::Node(
        "n2".to_owned(),
        NodeInput::Release { job: JobId(7), sluid, attempt: Some(1), drain: None },
    ));
    assert!(out.contains(&given_up), "of an attempt: what is kept there for the job stays: {out:?}");
    assert_eq!(releases(&job.send(missing("n0", sluid))), [""; 0], "asked for just now");
    job.send(JobInput::Timer(JobTimer::Commit));
    let mut job = Bench::running(spec());
    let sluid = job.core.record().sluid;
    assert_eq!(releases(&job.send(missing("n2", sluid))), ["n2"]);
    assert_eq!(releases(&job.send(lost("n2", sluid))), ["n2"]);
    assert_eq!(job.state(), JobState::Running);
}

#[test]
fn a_second_proposal_during_a_commit_is_declined() {
    let mut job = Bench::with(spec());
    job.send(JobInput::Start(Box::new(proposal(7, None, &["n0"]))));
    let out = job.send(JobInput::Start(Box::new(proposal(7, None, &["n1"]))));
    assert_eq!(out, [JobEffect::Tell(Letter::Outcome { pass: 1, accepted: false })]);
}

#[test]
fn a_restart_during_a_commit_gives_back_what_was_asked_for() {
    let mut job = Bench::with(spec());
    job.send(JobInput::Start(Box::new(proposal(7, None, &["n0", "n1"]))));
    let left = job.core.leftover();
    let mut core = super::core::JobCore::new(job.core.record().clone(), Default::default());
    let mut out = Vec::new();
    core.resume(job.now, &mut job.ids, left, &mut out);
    assert_eq!(releases(&out), ["n0", "n1"]);
    assert!(core.view(job.now).generation > job.view().generation);
    // That life ends before the disk lets its effects through, and they end with it.
    let left = core.leftover();
    let mut job = Bench { core: super::core::JobCore::new(job.core.record().clone(), Default::default()), ..job };
    let mut out = Vec::new();
    job.core.resume(job.now, &mut job.ids, left, &mut out);
    assert_eq!(releases(&out), ["n0", "n1"]);
    assert!(job.core.leftover().may_be_at("n1"));
    // Nodes of the run keep what they hold for it, whatever is said again.
    job.allocate(&["n0"]);
    let left = job.core.leftover();
    assert!(!left.may_be_at("n0") && left.may_be_at("n1"));
    let mut core = super::core::JobCore::new(job.core.record().clone(), Default::default());
    let mut out = Vec::new();
    core.resume(job.now, &mut job.ids, left, &mut out);
    assert_eq!(releases(&out), ["n1"]);
}

/// Jobs that wait for this one had asked an owner that failed; its tasks had told that one how far they were.
#[test]
fn who_waits_for_a_job_is_known_from_the_records() {
    let on = |kind, job| JobSpec {
        dependencies: Dependencies {
            any: false,
            list: vec![Dependency { kind, job, array_index: None, failed: false }],
        },
        ..spec()
    };
    let waits = |id, spec| garrick_events::records::job::waits_for(&record(id, spec), &record(7, self::spec()));
    assert!(waits(8, on(DependencyKind::AfterOk, Some(JobId(7)))));
    assert!(!waits(8, on(DependencyKind::AfterOk, Some(JobId(6)))));
    assert!(waits(8, on(DependencyKind::Singleton, None)));
    assert!(!waits(6, on(DependencyKind::Singleton, None)), "a singleton waits for earlier jobs");
    assert!(!waits(8, spec()));
}

#[test]
fn reports_of_an_older_run_change_nothing() {
    let mut job = Bench::running(spec());
    let before = job.core.record().clone();
    let exit = ExitStatus::SUCCESS;
    let old = Sluid(1);
    let out = job.report(
        "n0",
        AgentReport::JobEnded {
            job: JobId(7),
            sluid: old,
            state: JobState::Completed,
            reason: Reason::None,
            exit,
            derived: exit,
            at: job.now,
            lost: Vec::new(),
            cause: None,
        },
    );
    assert_eq!(out, [JobEffect::Tell(Letter::Node("n0".to_owned(), NodeInput::ReportSafe { seq: 1 }))]);
    // A node that lets go of an old run gets that share back, no other.
    let out = job
        .report("n0", AgentReport::NodeReleased { job: JobId(7), sluid: old, epilog_failed: None, unkillable: None });
    assert_eq!(
        out[0],
        JobEffect::Tell(Letter::Node(
            "n0".to_owned(),
            NodeInput::Release { job: JobId(7), sluid: old, attempt: None, drain: None }
        ))
    );
    assert_eq!(job.core.record(), &before);
}

/// The node was set DOWN while an order to start was on its way there: it was obeyed after the job had given the node up.
#[test]
fn a_run_that_starts_on_a_node_that_was_given_up_is_told_to_end() {
    let mut job = Bench::with(spec());
    job.allocate(&["n0"]);
    let first = job.core.record().sluid;
    job.send(JobInput::NodeLost { node: "n0".to_owned(), sluid: first });
    assert_eq!(job.core.record().phase.name(), "pending", "it waits to run again");
    let before = job.core.record().clone();
    let started = AgentReport::JobStarted { job: JobId(7), sluid: first, door: "/run/a".to_owned() };
    let out = job.report("n0", started);
    assert!(out.contains(&JobEffect::Tell(end_lost(JobId(7), "n0".to_owned(), first))), "{out:?}");
    assert_eq!(job.core.record(), &before);
}

/// The machine was set up anew: it came back without the run, and a late order to start began it once more.
#[test]
fn a_batch_host_that_has_nothing_to_say_of_a_run_is_told_to_end_it_before_it_is_given_up() {
    let mut job = Bench::running(spec());
    let sluid = job.core.record().sluid;
    job.send(JobInput::RunMissing { node: "n0".to_owned(), sluid });
    let out = job.send(JobInput::Timer(JobTimer::Missing));
    let end = out.iter().position(|effect| *effect == JobEffect::Tell(end_lost(JobId(7), "n0".to_owned(), sluid)));
    let given_up = out.iter().position(
        |effect| matches!(effect, JobEffect::Tell(Letter::Node(node, NodeInput::Release { .. })) if node == "n0"),
    );
    assert!(end.is_some() && end < given_up, "{out:?}");
}

#[test]
fn a_doubled_end_is_counted_once() {
    let mut job = Bench::running(spec());
    job.ended(JobState::Completed, 0);
    job.ended(JobState::Failed, 1);
    job.released("n0");
    job.released("n0");
    job.released("n1");
    assert_eq!(job.state(), JobState::Completed);
    assert_eq!(job.saved.iter().filter(|e| matches!(e, JobEvent::Ended(_))).count(), 1);
}

#[test]
fn a_waiting_job_is_cancelled_at_once_and_a_running_one_by_its_batch_host() {
    let mut job = Bench::with(spec());
    assert_eq!(job.order(JobCommand::Cancel), Ok(()));
    assert_eq!(job.state(), JobState::Cancelled);
    assert_eq!(job.order(JobCommand::Cancel), Err(Refusal::AlreadyDone));
    let mut job = Bench::running(spec());
    let (answer, out) = job.command(ALICE, None, JobCommand::Cancel);
    assert_eq!((answer, ends_sent(&out)), (Ok(()), vec!["n0"]));
    assert_eq!((job.state(), job.view().ending), (JobState::Completing, Some(JobState::Cancelled)));
    // Its limit is not its end any more.
    assert_eq!((job.view().end_time, job.replayed() == job.core.record), (Some(job.now), true));
    assert_eq!(job.order(JobCommand::Cancel), Ok(()));
    assert_eq!(job.saved.iter().filter(|e| matches!(e, JobEvent::Ending(_))).count(), 1);
    job.ended(JobState::Cancelled, 0);
    job.released("n0");
    job.released("n1");
    assert_eq!(job.state(), JobState::Cancelled);
}

#[test]
fn a_cancel_during_a_commit_takes_the_shares_back() {
    let mut job = Bench::with(spec());
    job.send(JobInput::Start(Box::new(proposal(7, None, &["n0"]))));
    let (_, out) = job.command(ALICE, None, JobCommand::Cancel);
    assert_eq!((releases(&out), outcomes(&out)), (vec!["n0"], vec![false]));
    let out =
        job.send(JobInput::Reserved { attempt: 1, node: "n0".to_owned(), result: Ok(Grant::at("n0:1".to_owned())) });
    assert_eq!(releases(&out), ["n0"]);
    assert_eq!(job.state(), JobState::Cancelled);
}

#[test]
fn others_may_do_nothing_to_a_job() {
    let mallory = Authority { uid: 1002, admin: false };
    let mut job = Bench::running(spec());
    for command in [JobCommand::Cancel, JobCommand::Hold { admin: false }, JobCommand::Requeue { hold: false }] {
        assert_eq!(job.command(mallory, None, command).0, Err(Refusal::AccessDenied));
    }
    assert_eq!(job.command(ALICE, None, JobCommand::Suspend).0, Err(Refusal::AccessDenied));
}

#[test]
fn a_running_job_that_is_held_waits_once_it_is_requeued_and_gets_another_end() {
    let mut job = Bench::running(JobSpec { requeue: Some(true), time_limit: Some(TimeLimit::Secs(3600)), ..spec() });
    job.order(JobCommand::Hold { admin: false }).unwrap();
    assert_eq!((job.view().priority, job.view().reason), (0, Reason::JobHeldUser));
    assert_eq!(job.view().state, JobState::Running);
    job.order(JobCommand::Release).unwrap();
    assert_eq!(job.view().reason, Reason::None);
    let start = job.view().start_time.unwrap();
    let end = |secs| {
        let end_time = Some(start.plus(Duration::from_secs(secs)));
        JobCommand::Update(Box::new(JobChange { end_time, ..JobChange::default() }))
    };
    job.order(end(659)).unwrap();
    assert_eq!(job.view().time_limit, TimeLimit::Secs(600));
    assert_eq!(job.order(end(7200)), Err(Refusal::AccessDenied), "longer than before");
    job.order(end(0)).unwrap();
    assert_eq!(job.view().time_limit, TimeLimit::Secs(60));
    assert_eq!(Bench::with(spec()).order(end(600)), Err(Refusal::JobNotRunning));
    assert_eq!(job.replayed(), *job.core.record());
}

#[test]
fn holds_of_administrators_are_released_by_administrators() {
    let mut job = Bench::with(spec());
    job.command(ROOT, None, JobCommand::Hold { admin: true }).0.unwrap();
    assert_eq!((job.view().reason, job.view().priority, job.view().eligible), (Reason::JobHeldAdmin, 0, false));
    assert_eq!(job.order(JobCommand::Hold { admin: false }), Ok(()));
    assert_eq!(job.order(JobCommand::Release), Err(Refusal::AccessDenied));
    job.command(ROOT, None, JobCommand::Release).0.unwrap();
    assert!(job.view().eligible && job.view().priority > 0);
    job.order(JobCommand::Hold { admin: false }).unwrap();
    assert_eq!(job.view().reason, Reason::JobHeldUser);
    let out = job.send(JobInput::Start(Box::new(proposal(7, None, &["n0"]))));
    assert_eq!(outcomes(&out), [false]);
    job.order(JobCommand::Release).unwrap();
}

#[test]
fn begin_time_is_waited_for() {
    let mut job = Bench::with(JobSpec { begin: Some(Timestamp::from_secs(1100)), ..spec() });
    assert_eq!(job.view().start_time, Some(Timestamp::from_secs(1100)));
    assert_eq!((job.view().reason, job.view().eligible), (Reason::BeginTime, false));
    job.now = Timestamp::from_secs(1100);
    job.send(JobInput::Timer(JobTimer::Eligible));
    assert!(job.view().eligible);
    assert_eq!(job.core.record().eligible_time, Some(job.now));
}

#[test]
fn a_requeued_job_is_a_new_run_that_is_submitted_then() {
    let mut job = Bench::running(spec());
    assert_eq!(job.view().submit_time, Timestamp::from_secs(1000));
    job.now = job.now.plus(Duration::from_secs(7));
    let (_, out) = job.command(ALICE, None, JobCommand::Requeue { hold: false });
    assert_eq!(ends_sent(&out), ["n0"]);
    let of = |view: JobView| (view.state, view.runs_again, view.restart_count());
    assert_eq!(of(job.view()), (JobState::Completing, true, 1));
    job.ended(JobState::Cancelled, 0);
    assert_eq!(of(job.view()), (JobState::Completing, true, 1));
    job.released("n0");
    job.released("n1");
    let view = job.view();
    assert_eq!((view.state, &view.reason, view.restarts), (JobState::Pending, &Reason::BeginTime, 1));
    assert_eq!(of(view.clone()), (JobState::Pending, false, 1));
    assert_eq!((view.submit_time, view.sluid), (job.now, Sluid(90_001)));
    job.now = job.now.plus(Duration::from_secs(120));
    job.send(JobInput::Timer(JobTimer::Eligible));
    assert!(job.view().eligible);
    job.allocate(&["n0"]);
    job.started();
    assert_eq!(job.state(), JobState::Running);
    assert_eq!(&job.replayed(), job.core.record());
}

#[test]
fn a_finished_job_can_be_requeued_and_one_without_requeue_cannot() {
    let mut job = Bench::running(spec());
    job.ended(JobState::Failed, 1);
    job.released("n0");
    job.released("n1");
    job.order(JobCommand::Requeue { hold: true }).unwrap();
    assert_eq!((job.state(), job.view().reason), (JobState::Pending, Reason::JobHeldUser));
    let mut fixed = Bench::running(JobSpec { requeue: Some(false), ..spec() });
    assert_eq!(fixed.order(JobCommand::Requeue { hold: false }), Err(Refusal::Disabled));
    assert_eq!(Bench::with(spec()).order(JobCommand::Requeue { hold: false }), Err(Refusal::JobPending));
}

#[test]
fn a_lost_node_ends_the_run_and_requeues_a_batch_job() {
    let mut job = Bench::running(spec());
    let out = job.send(JobInput::NodeLost { node: "n1".to_owned(), sluid: Sluid(7) });
    assert_eq!((releases(&out), ends_sent(&out)), (vec!["n1"], vec!["n0"]));
    assert_eq!((job.state(), job.view().ending), (JobState::Completing, Some(JobState::NodeFail)));
    job.released("n0");
    assert_eq!((job.state(), job.view().restarts), (JobState::Pending, 1));
    let mut alloc = Bench::running(JobSpec { kind: JobKind::Allocation, script: None, ..spec() });
    alloc.send(JobInput::NodeLost { node: "n0".to_owned(), sluid: Sluid(7) });
    alloc.released("n1");
    assert_eq!((alloc.state(), alloc.view().reason), (JobState::NodeFail, Reason::NodeDown));
    let mut tough = Bench::running(JobSpec { no_kill: true, ..spec() });
    tough.send(JobInput::NodeLost { node: "n1".to_owned(), sluid: Sluid(7) });
    assert_eq!(tough.state(), JobState::Running);
}

#[test]
fn a_failed_prolog_requeues_held_and_drains_the_node() {
    let mut job = Bench::with(spec());
    job.allocate(&["n0", "n1"]);
    let out = job.report(
        "n0",
        AgentReport::JobLaunchFailed {
            job: JobId(7),
            sluid: Sluid(7),
            reason: Reason::PrologFailure,
            detail: "exit 1".to_owned(),
            drain_node: true,
        },
    );
    assert!(out.iter().any(
        |e| matches!(e, JobEffect::Tell(Letter::Node(node, NodeInput::Release { drain: Some(_), .. })) if node == "n0")
    ));
    assert_eq!(ends_sent(&out), ["n1"]);
    job.released("n1");
    assert_eq!(job.view().reason, Reason::Other("launch failed requeued held".to_owned()));
    assert_eq!((job.state(), job.view().priority), (JobState::Pending, 0));
    assert_eq!(job.view().system_comment.as_deref(), Some("exit 1"));
    job.order(JobCommand::Release).unwrap();
    assert!(job.view().eligible);
    job.allocate(&["n0", "n1"]);
    assert_eq!(job.view().system_comment, None);
}

#[test]
fn a_job_whose_script_could_not_be_started_says_why_also_after_a_restart() {
    let mut job = Bench::running(spec());
    let exit = ExitStatus { code: 0, signal: Some(53) };
    let cause = "Could not open stdout file /nosuch/x.out: No such file or directory";
    let end = AgentReport::JobEnded {
        job: JobId(7),
        sluid: Sluid(7),
        state: JobState::Failed,
        reason: Reason::RaisedSignal(53),
        exit,
        derived: ExitStatus::SUCCESS,
        at: job.now,
        lost: Vec::new(),
        cause: Some(cause.to_owned()),
    };
    job.report("n0", end);
    assert_eq!((job.state(), job.view().system_comment.as_deref()), (JobState::Completing, Some(cause)));
    job.released("n0");
    job.released("n1");
    let view = job.view();
    assert_eq!((view.state, view.exit, view.system_comment.as_deref()), (JobState::Failed, exit, Some(cause)));
    assert_eq!(job.replayed().phase.end().and_then(|end| end.cause.as_deref()), Some(cause));
}

#[test]
fn time_limits_of_running_jobs_are_raised_by_administrators_only() {
    let mut job = Bench::running(spec());
    let change = |secs| {
        JobCommand::Update(Box::new(JobChange { time_limit: Some(TimeLimit::Secs(secs)), ..JobChange::default() }))
    };
    assert_eq!(job.order(change(7200)), Err(Refusal::AccessDenied));
    let (answer, out) = job.command(ROOT, None, change(7200));
    assert_eq!(answer, Ok(()));
    assert!(out.iter().any(|e| matches!(e, JobEffect::Tell(Letter::Node(_, NodeInput::Send(frame))) if matches!(**frame, ControllerToNode::SetTimeLimit { limit: TimeLimit::Secs(7200), .. }))));
    assert_eq!(
        out.iter().filter(|e| matches!(e, JobEffect::Tell(Letter::Node(_, NodeInput::MoveEnd { .. })))).count(),
        2
    );
    let down = JobCommand::Update(Box::new(JobChange { time_limit_delta_secs: Some(-3600), ..JobChange::default() }));
    job.order(down).unwrap();
    assert_eq!(job.view().time_limit, TimeLimit::Secs(3600));
    let nodes = JobChange { nodes: Some(garrick_model::spec::NodeCount { min: 2, max: None }), ..JobChange::default() };
    assert_eq!(job.order(JobCommand::Update(Box::new(nodes))), Err(Refusal::JobNotPending));
}

#[test]
fn a_view_says_once_what_nobody_needs_as_it_was_asked_for() {
    let asked = JobSpec {
        partitions: vec!["debug".to_owned()],
        begin: Some(Timestamp::from_secs(2000)),
        hold: true,
        priority: Some(5),
        requeue: Some(false),
        time_limit: None,
        tasks: Some(3),
        array: Some(array(1, 2, None)),
        ..spec()
    };
    let mut job = Bench::with(asked);
    let view = job.view();
    assert_eq!((view.partitions.len(), view.eligible_time), (1, Some(Timestamp::from_secs(2000))));
    assert_eq!((view.priority, view.reason, view.requeue), (0, Reason::JobHeldUser, false));
    let spec = &view.spec;
    assert_eq!(
        (spec.partitions.len(), spec.begin, spec.hold, spec.priority, spec.requeue),
        (0, None, false, None, None)
    );
    // A limit that nobody named is each partition's own.
    assert_eq!((spec.time_limit, spec.tasks, view.tasks), (None, Some(3), 3));
    let (_, out) = job.command(ALICE, Some(vec![(1, 1, 1)]), JobCommand::Hold { admin: false });
    let (_, task) = went(out).remove(0);
    let task = Bench::new(task).0.view();
    assert_eq!((task.array_task.unwrap().index, task.spec.array_task), (1, None));
    assert_eq!(job.core.record().spec.priority, Some(5), "the record has all that was asked for");
}

#[test]
fn preferred_features_are_changed_while_the_job_waits() {
    let prefer =
        |text: &str| JobCommand::Update(Box::new(JobChange { prefer: Some(text.to_owned()), ..JobChange::default() }));
    let mut job = Bench::with(spec());
    job.order(prefer("fast")).unwrap();
    assert_eq!(job.view().spec.prefer.as_deref(), Some("fast"));
    assert_eq!(job.replayed(), *job.core.record());
    job.order(prefer("")).unwrap();
    assert_eq!(job.view().spec.prefer, None);
    assert_eq!(Bench::running(spec()).order(prefer("fast")), Err(Refusal::JobNotPending));
}

#[test]
fn what_a_waiting_job_asks_for_is_changed() {
    let change = |request| JobCommand::Update(Box::new(JobChange { request, ..JobChange::default() }));
    let none = RequestChange::default;
    let mut job = Bench::with(JobSpec { tasks: Some(2), nodes: None, ..spec() });
    let own = RequestChange {
        cpus_per_task: Some(3),
        delay_boot_secs: Some(60),
        stdout: Some("other.out".to_owned()),
        work_dir: Some("/elsewhere".to_owned()),
        ..none()
    };
    job.order(change(own)).unwrap();
    let view = job.view();
    assert_eq!((view.cpus_per_task, view.cpus), (3, 6));
    assert_eq!((view.spec.stdout.as_deref(), view.spec.work_dir.as_str()), (Some("other.out"), "/elsewhere"));
    assert_eq!(view.spec.delay_boot_secs, Some(60));
    job.order(change(RequestChange { stdout: Some(String::new()), ..none() })).unwrap();
    assert_eq!(job.view().spec.stdout, None);
    let zero = RequestChange { cpus_per_task: Some(0), ..none() };
    assert_eq!(job.order(change(zero)), Err(Refusal::BadNodeCount));
    let privileged = [
        RequestChange { deadline: Some(Timestamp::from_secs(90_000)), ..none() },
        RequestChange { tasks_per_node: Some(1), ..none() },
        RequestChange { contiguous: Some(true), ..none() },
        RequestChange { left_to_system: Some(SpecCores::Cores(1)), ..none() },
    ];
    for one in privileged {
        assert_eq!(job.order(change(one.clone())), Err(Refusal::AccessDenied));
        assert_eq!(job.command(ROOT, None, change(one)).0, Ok(()));
    }
    job.order(change(RequestChange { contiguous: Some(false), ..none() })).unwrap();
    assert_eq!(job.view().spec.layout.left_to_system, Some(SpecCores::Cores(1)));
    assert_eq!(job.view().sharing, Sharing::Exclusive);
    assert_eq!(job.replayed(), *job.core.record());
    assert_eq!(
        Bench::running(spec()).order(change(RequestChange { cpus_per_task: Some(1), ..none() })),
        Err(Refusal::JobNotPending)
    );
}

#[test]
fn a_change_leaves_what_it_is_not_about() {
    let update = |change| JobCommand::Update(Box::new(change));
    let comment = || update(JobChange { comment: Some("seen".to_owned()), ..JobChange::default() });
    let mut job = Bench::with(JobSpec { tasks: Some(2), ..spec() });
    job.core.record.resolved.cpus = 32;
    job.order(comment()).unwrap();
    assert_eq!(job.view().cpus, 32, "GPUs may bring more CPUs than tasks do");
    let switches = JobChange {
        switches: Some((2, None)),
        request: RequestChange { switches_wait_secs: Some(60), ..RequestChange::default() },
        ..JobChange::default()
    };
    job.order(update(switches)).unwrap();
    let topology = &job.view().spec.topology;
    assert_eq!((topology.switches, topology.switches_wait_secs), (Some(2), Some(60)));
    let layout = LayoutRequest { task_nodes: vec!["n0".to_owned(), "n1".to_owned()], ..LayoutRequest::default() };
    let mut listed = Bench::with(JobSpec { tasks: Some(2), layout, ..spec() });
    listed.order(comment()).unwrap();
    assert_eq!(listed.view().spec.layout.task_nodes.len(), 2);
    listed.order(update(JobChange { tasks: Some(1), ..JobChange::default() })).unwrap();
    assert!(listed.view().spec.layout.task_nodes.is_empty(), "it was about two tasks");
    assert_eq!(listed.replayed().spec, listed.core.record().spec);
}

#[test]
fn the_least_limit_of_a_waiting_job_is_no_longer_than_its_limit() {
    let of = |change| JobCommand::Update(Box::new(change));
    let change = |secs| of(JobChange { time_min: Some(TimeLimit::Secs(secs)), ..JobChange::default() });
    let limit = |secs| of(JobChange { time_limit: Some(TimeLimit::Secs(secs)), ..JobChange::default() });
    let by = |delta| of(JobChange { time_limit_delta_secs: Some(delta), ..JobChange::default() });
    let mut job = Bench::with(JobSpec { time_limit: Some(TimeLimit::Secs(3600)), ..spec() });
    assert_eq!(job.order(change(3660)), Err(Refusal::InvalidTimeLimit));
    job.order(change(60)).unwrap();
    assert_eq!(job.view().spec.time_min, Some(TimeLimit::Secs(60)));
    assert_eq!(job.order(limit(59)), Err(Refusal::InvalidTimeLimit));
    assert_eq!(job.order(by(-3541)), Err(Refusal::InvalidTimeLimit));
    let both = JobChange {
        time_min: Some(TimeLimit::Secs(30)),
        time_limit: Some(TimeLimit::Secs(59)),
        ..JobChange::default()
    };
    job.order(of(both)).unwrap();
    assert_eq!(job.view().time_limit, TimeLimit::Secs(59));
    let least = JobSpec { time_min: Some(TimeLimit::Secs(60)), ..spec() };
    let mut running = Bench::running(least);
    assert_eq!(running.order(change(60)), Err(Refusal::JobNotPending));
    running.order(limit(30)).unwrap();
    assert_eq!(running.view().time_limit, TimeLimit::Secs(30));
}

/// Found by simulation: the clock was set back behind a begin time that had come. The job was shown as waiting for it again,
/// no timer ran, and it was never started.
#[test]
fn a_begin_time_that_is_ahead_again_is_waited_for_again() {
    let begin = Timestamp::from_secs(1100);
    let mut job = Bench::with(JobSpec { begin: Some(begin), ..spec() });
    job.core.record.begin = Some(begin);
    job.now = begin;
    job.send(JobInput::Timer(JobTimer::Eligible));
    assert!(job.view().eligible);
    job.now = Timestamp::from_secs(1000);
    let reason = Reason::Resources;
    let out = job.send(JobInput::Considered { reason, expected: None });
    assert!(!job.view().eligible);
    assert!(out.contains(&JobEffect::SetTimer { timer: JobTimer::Eligible, at: begin }), "{out:?}");
}

/// Found by simulation: such a job had nothing new to show. It was proposed a start in every plan, and refused each.
#[test]
fn a_job_that_is_not_to_start_yet_shows_so_to_whoever_proposes() {
    let begin = Timestamp::from_secs(1100);
    let mut job = Bench::with(JobSpec { begin: Some(begin), ..spec() });
    job.core.record.begin = Some(begin);
    job.now = begin;
    job.send(JobInput::Timer(JobTimer::Eligible));
    job.now = Timestamp::from_secs(1000);
    let out = job.send(JobInput::Start(Box::new(proposal(7, None, &["n0"]))));
    let shown = out.iter().find_map(|effect| match effect {
        JobEffect::Publish(JobShown::View(view)) => Some((view.eligible, view.reason.clone())),
        _ => None,
    });
    assert_eq!(shown, Some((false, Reason::BeginTime)));
    assert!(out.contains(&JobEffect::SetTimer { timer: JobTimer::Eligible, at: begin }), "{out:?}");
}

#[test]
fn recovered_run_waits_for_its_agent_and_goes_on() {
    let job = Bench::running(spec());
    let (mut again, out) = Bench::new(job.core.record().clone());
    assert!(ends_sent(&out).is_empty());
    let held = JobInput::RunHeld { node: "n0".to_owned(), sluid: Sluid(7), requeue: None };
    assert!(!again.send(held).iter().any(|e| matches!(e, JobEffect::Save(_))));
    assert_eq!(again.state(), JobState::Running);
}

/// Found by simulation: a node was lost, and its agent registered before the job's owner had heard of it. The node still held
/// the run by then, so the agent went on with it, beside the next run of the job.
#[test]
fn a_run_that_comes_back_after_its_node_was_lost_is_told_to_end() {
    let held = |node: &str| JobInput::RunHeld { node: node.to_owned(), sluid: Sluid(7), requeue: None };
    let mut again = Bench::running(spec());
    again.send(JobInput::NodeLost { node: "n0".to_owned(), sluid: Sluid(7) });
    again.released("n1");
    assert_eq!(again.state(), JobState::Pending);
    assert_eq!(ends_sent(&again.send(held("n0"))), ["n0"]);
    let mut over = Bench::running(JobSpec { requeue: Some(false), ..spec() });
    over.send(JobInput::NodeLost { node: "n0".to_owned(), sluid: Sluid(7) });
    over.released("n1");
    assert_eq!(over.state(), JobState::NodeFail);
    assert_eq!(ends_sent(&over.send(held("n0"))), ["n0"]);
    let mut tough = Bench::running(JobSpec { no_kill: true, ..spec() });
    tough.send(JobInput::NodeLost { node: "n1".to_owned(), sluid: Sluid(7) });
    assert_eq!(ends_sent(&tough.send(held("n1"))), ["n1"]);
}

#[test]
fn recovered_run_that_its_agent_does_not_know_ends_after_a_grace() {
    let job = Bench::running(JobSpec { requeue: Some(false), ..spec() });
    let (mut again, _) = Bench::new(job.core.record().clone());
    let out = again.send(JobInput::RunMissing { node: "n0".to_owned(), sluid: Sluid(7) });
    assert!(out.iter().any(|e| matches!(e, JobEffect::SetTimer { timer: JobTimer::Missing, .. })));
    assert_eq!(again.state(), JobState::Running);
    again.send(JobInput::Timer(JobTimer::Missing));
    again.released("n1");
    assert_eq!((again.state(), again.view().reason), (JobState::NodeFail, Reason::StepManagerDied));
}

#[test]
fn a_late_report_within_the_grace_is_what_counts() {
    let job = Bench::running(spec());
    let (mut again, _) = Bench::new(job.core.record().clone());
    again.send(JobInput::RunMissing { node: "n0".to_owned(), sluid: Sluid(7) });
    again.ended(JobState::Completed, 0);
    again.send(JobInput::Timer(JobTimer::Missing));
    again.released("n0");
    again.released("n1");
    assert_eq!(again.state(), JobState::Completed);
}

#[test]
fn a_launch_that_never_arrived_is_sent_again() {
    let mut job = Bench::with(spec());
    job.allocate(&["n0", "n1"]);
    let out = job.send(JobInput::RunMissing { node: "n0".to_owned(), sluid: Sluid(7) });
    assert!(matches!(out.as_slice(), [JobEffect::Do(JobErrand::Launch(_))]));
    let out = job.send(JobInput::RunMissing { node: "n1".to_owned(), sluid: Sluid(7) });
    assert!(out.is_empty());
}

/// A thousand tasks of an array are made in between: `squeue` after `scancel` still showed them as waiting.
#[test]
fn who_is_answered_sees_what_was_done() {
    let mut job = Bench::with(JobSpec { array: Some(array(1, 9, None)), ..spec() });
    let (answer, out) = job.command(ALICE, Some(vec![(1, 8, 1)]), JobCommand::Cancel);
    answer.unwrap();
    let at = |which: fn(&JobEffect) -> bool| out.iter().position(which).unwrap();
    assert!(out.iter().any(|effect| begun(effect).is_some()));
    assert!(at(|e| matches!(e, JobEffect::Publish(JobShown::View(_)))) < at(|e| matches!(e, JobEffect::Answer { .. })));
    assert!(matches!(out.last(), Some(JobEffect::Answer { .. })), "{out:?}");
}

/// Word of its start and end was lost with its batch host, and the other node's part is over: that one has been given back.
#[test]
fn a_run_that_a_node_has_let_go_of_is_not_launched_a_second_time() {
    let mut job = Bench::with(JobSpec { requeue: Some(false), ..spec() });
    job.allocate(&["n0", "n1"]);
    job.released("n1");
    let out = job.send(JobInput::RunMissing { node: "n0".to_owned(), sluid: Sluid(7) });
    assert!(matches!(out.as_slice(), [JobEffect::SetTimer { timer: JobTimer::Missing, .. }]), "{out:?}");
    job.send(JobInput::Timer(JobTimer::Missing));
    assert_eq!((job.state(), job.view().reason), (JobState::NodeFail, Reason::StepManagerDied));
    assert_eq!(&job.replayed(), job.core.record());
}

/// The link may have gone with the order.
#[test]
fn a_batch_host_that_comes_back_is_told_again_to_stop_or_continue() {
    let signals = |out: &[JobEffect]| -> Vec<i32> {
        let signal = |e: &JobEffect| match e {
            JobEffect::Tell(Letter::Node(_, NodeInput::Send(frame))) => match **frame {
                ControllerToNode::SignalJob { signal, .. } => Some(signal),
                _ => None,
            },
            _ => None,
        };
        out.iter().filter_map(signal).collect()
    };
    let mut job = Bench::running(spec());
    let held = JobInput::RunHeld { node: "n0".to_owned(), sluid: job.core.record().sluid, requeue: None };
    assert_eq!(signals(&job.send(held.clone())), [0; 0], "what it stopped itself stays so");
    job.command(ROOT, None, JobCommand::Suspend).0.unwrap();
    assert_eq!(signals(&job.send(held.clone())), [19]);
    job.command(ROOT, None, JobCommand::Resume).0.unwrap();
    assert_eq!(signals(&job.send(held)), [18]);
}

fn fact(job: u32, started: bool, over: Option<TaskOutcome>) -> JobInput {
    let started = started.then(|| Timestamp::from_secs(900));
    let some_failed = over == Some(TaskOutcome::NotOk);
    let fact =
        JobFact { job: JobId(job), started, over, some_failed, tasks: BTreeMap::new(), exit: None, noted: false };
    JobInput::Fact { job: JobId(job), fact: Some(Arc::new(fact)) }
}

#[test]
fn dependencies_are_fulfilled_or_never_will_be() {
    use DependencyKind::{After, AfterAny, AfterNotOk, AfterOk};
    use TaskOutcome::{NotOk, Ok as Good};
    let cases = [
        (AfterOk, None, Reason::Dependency),
        (AfterOk, Some(Good), Reason::None),
        (AfterOk, Some(NotOk), Reason::DependencyNeverSatisfied),
        (AfterNotOk, Some(NotOk), Reason::None),
        (AfterNotOk, Some(Good), Reason::DependencyNeverSatisfied),
        (AfterAny, Some(NotOk), Reason::None),
        (After { minutes: 0 }, None, Reason::None),
        (After { minutes: 10 }, None, Reason::Dependency),
    ];
    for (kind, over, expected) in cases {
        let (mut job, out) = Bench::new(record(7, depends(kind, 3)));
        assert!(out.contains(&JobEffect::Tell(Letter::Job(JobId(3), JobInput::Subscribe { by: JobId(7) }))));
        assert_eq!(job.view().reason, Reason::Dependency);
        job.send(fact(3, true, over));
        assert_eq!(
            (job.view().reason, job.view().eligible),
            (expected.clone(), expected == Reason::None),
            "{kind:?} {over:?}"
        );
        assert_eq!(&job.replayed(), job.core.record());
    }
}

#[test]
fn a_forgotten_job_fulfils_what_needs_no_outcome() {
    for (kind, reason) in
        [(DependencyKind::AfterAny, Reason::None), (DependencyKind::AfterOk, Reason::DependencyNeverSatisfied)]
    {
        let mut job = Bench::with(depends(kind, 3));
        job.send(JobInput::Fact { job: JobId(3), fact: None });
        assert_eq!(job.view().reason, reason);
    }
}

#[test]
fn a_condition_that_failed_is_known_from_those_that_are_open() {
    let list = [3, 4, 5].map(|job| Dependency {
        kind: DependencyKind::AfterOk,
        job: Some(JobId(job)),
        array_index: None,
        failed: false,
    });
    let mut job = Bench::with(JobSpec { dependencies: Dependencies { any: false, list: list.to_vec() }, ..spec() });
    job.send(fact(3, true, Some(TaskOutcome::Ok)));
    job.send(fact(4, true, Some(TaskOutcome::NotOk)));
    let view = job.view();
    assert_eq!(view.reason, Reason::DependencyNeverSatisfied);
    assert_eq!(view.dependencies.unfulfilled_text(), "afterok:4(failed),afterok:5(unfulfilled)");
    assert_eq!(job.replayed(), job.core.record);
}

#[test]
fn of_alternatives_one_is_enough() {
    let on =
        |job| Dependency { kind: DependencyKind::AfterOk, job: Some(JobId(job)), array_index: None, failed: false };
    let either = JobSpec { dependencies: Dependencies { any: true, list: vec![on(3), on(4)] }, ..spec() };
    let mut job = Bench::with(either.clone());
    job.send(fact(3, true, Some(TaskOutcome::NotOk)));
    assert_eq!(job.view().reason, Reason::Dependency);
    job.send(fact(4, true, Some(TaskOutcome::Ok)));
    assert!(job.view().eligible);
    let mut job = Bench::with(either);
    job.send(fact(3, true, Some(TaskOutcome::NotOk)));
    job.send(fact(4, true, Some(TaskOutcome::NotOk)));
    assert_eq!(job.view().reason, Reason::DependencyNeverSatisfied);
}

#[test]
fn singleton_waits_for_earlier_jobs_of_its_name() {
    let one = Dependency { kind: DependencyKind::Singleton, job: None, array_index: None, failed: false };
    let single = JobSpec { dependencies: Dependencies { any: false, list: vec![one] }, ..spec() };
    let (mut job, out) = Bench::new(record(7, single));
    assert!(out.iter().any(|e| matches!(e, JobEffect::Do(JobErrand::FindSiblings))));
    job.send(JobInput::Siblings { jobs: vec![JobId(3), JobId(5)] });
    job.send(fact(3, true, Some(TaskOutcome::NotOk)));
    assert_eq!(job.view().reason, Reason::Dependency);
    job.send(JobInput::Fact { job: JobId(5), fact: None });
    assert!(job.view().eligible);
}

#[test]
fn starting_a_task_splits_it_off_and_the_last_keeps_the_id() {
    let mut job = Bench::with(JobSpec { array: Some(array(1, 2, None)), ..spec() });
    let out = job.send(JobInput::Start(Box::new(proposal(7, Some(1), &["n0"]))));
    let split = out.iter().find_map(begun);
    let (record, then) = split.unwrap();
    assert_eq!((record.id, record.array_task.unwrap().index), (JobId(5001), 1));
    assert!(matches!(then, Some(JobInput::Start(p)) if p.job == JobId(5001) && p.array_index.is_none()));
    assert!(outcomes(&out).is_empty(), "the task answers for itself");
    assert_eq!(job.view().array_pending.unwrap().ranges, [(2, 2, 1)]);
    let out = job.send(JobInput::Start(Box::new(proposal(7, Some(2), &["n0"]))));
    assert!(out.iter().any(|e| matches!(e, JobEffect::Tell(Letter::Node(_, NodeInput::Reserve(_))))));
    let view = job.view();
    assert_eq!((view.id, view.array_task.unwrap().index, view.array_pending), (JobId(7), 2, None));
    assert_eq!(&job.replayed(), job.core.record());
}

#[test]
fn array_limit_counts_tasks_that_run() {
    let mut job = Bench::with(JobSpec { array: Some(array(1, 9, Some(1))), ..spec() });
    job.send(JobInput::Start(Box::new(proposal(7, Some(1), &["n0"]))));
    job.send(fact(5001, true, None));
    assert_eq!(outcomes(&job.send(JobInput::Start(Box::new(proposal(7, Some(2), &["n0"]))))), [false]);
    job.send(fact(5001, true, Some(TaskOutcome::Ok)));
    assert!(outcomes(&job.send(JobInput::Start(Box::new(proposal(7, Some(2), &["n0"]))))).is_empty());
}

/// The scheduler proposed others in place of a task that had been queued again, and the array refused them for ever: it counted
/// that task as running.
#[test]
fn a_task_that_was_queued_again_leaves_room_in_the_limit() {
    let mut job = Bench::with(JobSpec { array: Some(array(1, 9, Some(1))), ..spec() });
    job.send(JobInput::Start(Box::new(proposal(7, Some(1), &["n0"]))));
    job.send(fact(5001, true, None));
    assert_eq!(job.view().array_running, 1);
    job.send(fact(5001, false, None));
    assert_eq!(job.view().array_running, 0);
    assert!(outcomes(&job.send(JobInput::Start(Box::new(proposal(7, Some(2), &["n0"]))))).is_empty());
    // It runs again.
    job.send(fact(5001, true, None));
    assert_eq!(job.view().array_running, 1);
    assert_eq!(outcomes(&job.send(JobInput::Start(Box::new(proposal(7, Some(3), &["n0"]))))), [false]);
}

#[test]
fn only_an_array_has_a_limit_of_tasks() {
    let limit = JobCommand::Update(Box::new(JobChange { array_limit: Some(2), ..JobChange::default() }));
    assert_eq!(Bench::with(spec()).order(limit.clone()), Err(Refusal::InvalidArray));
    let mut array_job = Bench::with(JobSpec { array: Some(array(1, 9, None)), ..spec() });
    assert_eq!(array_job.order(limit), Ok(()));
    assert_eq!(array_job.view().array_pending.unwrap().limit, Some(2));
}

#[test]
fn tasks_that_would_refuse_are_not_split_off_to_say_so() {
    let some = || Some(vec![(2, 3, 1)]);
    let mut array_job = Bench::with(JobSpec { array: Some(array(1, 9, None)), ..spec() });
    let raise = JobChange { nice: Some(-5), ..JobChange::default() };
    let (answer, out) = array_job.command(ALICE, some(), JobCommand::Update(Box::new(raise)));
    assert_eq!((answer, out.len()), (Err(Refusal::AccessDenied), 1), "nothing but the answer: {out:?}");
    array_job.command(ROOT, None, JobCommand::Hold { admin: true }).0.unwrap();
    let (answer, out) = array_job.command(ALICE, some(), JobCommand::Release);
    assert_eq!((answer, out.len()), (Err(Refusal::AccessDenied), 1), "{out:?}");
    assert_eq!(array_job.view().array_pending.unwrap().ranges, [(1, 9, 1)]);
}

#[test]
fn whole_arrays_are_depended_on_through_their_record() {
    let mut array_job = Bench::with(JobSpec { array: Some(array(1, 3, None)), ..spec() });
    array_job.send(JobInput::Subscribe { by: JobId(20) });
    array_job.send(JobInput::Start(Box::new(proposal(7, Some(1), &["n0"]))));
    array_job.send(JobInput::Start(Box::new(proposal(7, Some(2), &["n0"]))));
    let told = |out: &[JobEffect]| {
        out.iter().find_map(|e| match e {
            JobEffect::Tell(Letter::Job(JobId(20), JobInput::Fact { fact: Some(fact), .. })) => Some((**fact).clone()),
            _ => None,
        })
    };
    let news = told(&array_job.send(fact(5001, true, Some(TaskOutcome::NotOk)))).unwrap();
    assert_eq!((news.over, news.some_failed), (None, true));
    array_job.send(fact(5002, true, Some(TaskOutcome::Ok)));
    array_job.allocate(&["n0"]);
    array_job.send(JobInput::Start(Box::new(proposal(7, Some(3), &["n0"]))));
    let attempt = array_job.core.leftover().attempt;
    array_job.send(JobInput::Reserved { attempt, node: "n0".to_owned(), result: Ok(Grant::at(String::new())) });
    array_job.started();
    array_job.ended(JobState::Completed, 0);
    let news = told(&array_job.released("n0")).unwrap();
    assert_eq!((news.over, news.tasks.len()), (Some(TaskOutcome::NotOk), 3));
    assert_eq!(news.tasks[&2].1, Some(TaskOutcome::Ok));
}

/// With thousands of tasks that end together, one letter about all of them for each would take minutes.
#[test]
fn an_array_tells_once_of_all_that_its_tasks_have_told_it() {
    let mut array_job = Bench::with(JobSpec { array: Some(array(1, 4, None)), ..spec() });
    let letters = |out: &[JobEffect]| -> Vec<JobInput> {
        let to_others = |effect: &JobEffect| match effect {
            JobEffect::Tell(Letter::Job(_, input)) => Some(input.clone()),
            _ => None,
        };
        out.iter().filter_map(to_others).collect()
    };
    for index in [1, 2, 3] {
        array_job.send(JobInput::Start(Box::new(proposal(7, Some(index), &["n0"]))));
    }
    assert_eq!(letters(&array_job.send_alone(fact(5001, true, None))), [], "nobody has asked");
    array_job.send(JobInput::Subscribe { by: JobId(20) });
    let over = Some(TaskOutcome::NotOk);
    assert_eq!(letters(&array_job.send_alone(fact(5001, true, over))), [JobInput::TellWatchers]);
    assert_eq!(letters(&array_job.send_alone(fact(5002, true, over))), []);
    let told = letters(&array_job.send_alone(JobInput::TellWatchers));
    let [JobInput::Fact { fact: Some(fact_of_both), .. }] = &told[..] else { panic!("{told:?}") };
    let ended = fact_of_both.tasks.iter().filter(|(_, (_, over))| over.is_some()).map(|(index, _)| *index);
    assert_eq!(ended.collect::<Vec<_>>(), [1, 2]);
    assert_eq!(letters(&array_job.send_alone(fact(5003, true, over))), [JobInput::TellWatchers]);
}

/// A task that was split off job 7 and cancelled.
fn cancelled_task() -> Bench {
    let mut array_job = Bench::with(JobSpec { array: Some(array(1, 2, None)), ..spec() });
    let out = array_job.send(JobInput::Start(Box::new(proposal(7, Some(1), &["n0"]))));
    let split = out.into_iter().find_map(|e| match e {
        JobEffect::Tell(Letter::Begin { record, .. }) => Some(*record),
        _ => None,
    });
    let mut task = Bench::new(split.unwrap()).0;
    task.command(ALICE, None, JobCommand::Cancel).0.unwrap();
    task
}

#[test]
fn a_task_is_forgotten_when_its_array_has_noted_its_end_or_is_gone() {
    let noted = JobFact {
        job: JobId(7),
        started: None,
        over: None,
        some_failed: false,
        tasks: BTreeMap::new(),
        exit: None,
        noted: true,
    };
    for answer in [Some(Arc::new(noted)), None] {
        let mut task = cancelled_task();
        let answer = JobInput::Fact { job: JobId(7), fact: answer };
        assert!(task.send(answer.clone()).is_empty(), "MinJobAge is not over");
        task.now = task.now.plus(Duration::from_secs(300));
        let out = task.send(JobInput::Timer(JobTimer::Purge));
        let [
            JobEffect::Tell(Letter::Job(JobId(7), JobInput::Fact { fact: Some(news), .. })),
            JobEffect::Tell(Letter::Job(JobId(7), JobInput::Subscribe { .. })),
            timer,
        ] = &out[..]
        else {
            panic!("{out:?}");
        };
        assert_eq!(news.over, Some(TaskOutcome::NotOk));
        assert!(matches!(timer, JobEffect::SetTimer { timer: JobTimer::Purge, at } if *at > task.now));
        assert!(task.send(fact(7, true, None)).is_empty());
        let out = task.send(answer);
        assert_eq!((event_of(&out[0]), &out[1..]), (Some(&JobEvent::Purged), &[JobEffect::Stop][..]));
    }
}

#[test]
fn a_requeued_task_is_kept_whatever_its_array_noted() {
    let mut task = cancelled_task();
    task.now = task.now.plus(Duration::from_secs(300));
    task.send(JobInput::Timer(JobTimer::Purge));
    task.order(JobCommand::Requeue { hold: false }).unwrap();
    task.send(JobInput::Fact { job: JobId(7), fact: None });
    assert_eq!(task.state(), JobState::Pending);
}

#[test]
fn an_array_answers_a_task_that_is_over_once() {
    let mut array_job = Bench::with(JobSpec { array: Some(array(1, 3, None)), ..spec() });
    array_job.send(JobInput::Start(Box::new(proposal(7, Some(1), &["n0"]))));
    array_job.send(JobInput::Start(Box::new(proposal(7, Some(2), &["n0"]))));
    let told = |out: Vec<JobEffect>| -> Vec<(u32, bool)> {
        let told = out.iter().filter_map(|e| match e {
            JobEffect::Tell(Letter::Job(to, JobInput::Fact { fact: Some(fact), .. })) => Some((to.0, fact.noted)),
            _ => None,
        });
        told.collect()
    };
    // The second task waits for something of this array and is told of every change.
    assert_eq!(told(array_job.send(JobInput::Subscribe { by: JobId(5002) })), [(5002, false)]);
    assert_eq!(told(array_job.send(fact(5001, true, Some(TaskOutcome::Ok)))), [(5002, false)]);
    assert_eq!(told(array_job.send(JobInput::Subscribe { by: JobId(5001) })), [(5001, true)]);
    assert_eq!(told(array_job.send(fact(5002, true, None))), [(5002, false)]);
}

#[test]
fn after_its_last_event_a_job_changes_nothing_any_more() {
    let mut job = Bench::with(spec());
    job.order(JobCommand::Cancel).unwrap();
    job.send(JobInput::Timer(JobTimer::Purge));
    assert_eq!(job.saved.last(), Some(&JobEvent::Purged));
    assert!(job.send(JobInput::Timer(JobTimer::Purge)).is_empty());
    let (answer, out) = job.command(ALICE, None, JobCommand::Requeue { hold: false });
    assert_eq!((answer, out.len()), (Err(Refusal::InvalidJobId), 1));
    let report = AgentReport::NodeReleased { job: JobId(7), sluid: Sluid(7), epilog_failed: None, unkillable: None };
    let out = job.send(JobInput::Report { node: "n0".to_owned(), seq: 4, report: Box::new(report) });
    assert_eq!(releases(&out), ["n0"]);
    assert_eq!(out.last(), Some(&JobEffect::Tell(Letter::Node("n0".to_owned(), NodeInput::ReportSafe { seq: 4 }))));
}

/// Its owner failed between its last event and being forgotten: the next one is to forget it, and to record nothing more.
#[test]
fn an_owner_built_after_the_last_event_records_no_other() {
    let mut job = Bench::with(spec());
    job.order(JobCommand::Cancel).unwrap();
    job.send(JobInput::Timer(JobTimer::Purge));
    assert_eq!(job.saved.last(), Some(&JobEvent::Purged));
    let mut again = super::core::JobCore::new(job.core.record().clone(), Default::default());
    let mut out = Vec::new();
    again.resume(job.now, &mut job.ids, job.core.leftover(), &mut out);
    assert_eq!(out, [JobEffect::Stop]);
    (job.core, job.saved) = (again, Vec::new());
    assert_eq!(job.command(ALICE, None, JobCommand::Requeue { hold: false }).0, Err(Refusal::InvalidJobId));
    assert_eq!(job.saved, []);
    assert!(job.core.leftover().forgotten, "and so is the next");
}

/// The node was given back in the record, and its owner was not told before the job's failed.
#[test]
fn a_node_that_was_given_back_is_told_again_when_it_asks() {
    let mut job = Bench::running(JobSpec { no_kill: true, ..spec() });
    job.send(JobInput::NodeLost { node: "n1".to_owned(), sluid: Sluid(7) });
    let missing = JobInput::RunMissing { node: "n1".to_owned(), sluid: Sluid(7) };
    assert_eq!(releases(&job.send(missing)), ["n1"]);
    assert_eq!(job.state(), JobState::Running);
}

#[test]
fn cancelling_some_tasks_leaves_the_others() {
    let mut job = Bench::with(JobSpec { array: Some(array(1, 5, None)), ..spec() });
    let (answer, out) = job.command(ALICE, Some(vec![(2, 3, 1)]), JobCommand::Cancel);
    assert_eq!(answer, Ok(()));
    let over = |e: &&JobEffect| begun(e).is_some_and(|(record, _)| matches!(record.phase, Phase::Over(..)));
    assert_eq!(out.iter().filter(over).count(), 2);
    assert_eq!(job.view().array_pending.unwrap().ranges, [(1, 1, 1), (4, 5, 1)]);
    assert_eq!(job.command(ALICE, Some(vec![(2, 2, 1)]), JobCommand::Cancel).0, Err(Refusal::InvalidJobId));
    assert_eq!(job.order(JobCommand::Cancel), Ok(()));
    assert_eq!(job.state(), JobState::Cancelled);
}

#[test]
fn holding_some_tasks_splits_them_off_held() {
    let mut job = Bench::with(JobSpec { array: Some(array(1, 5, None)), ..spec() });
    let (answer, out) = job.command(ALICE, Some(vec![(2, 2, 1)]), JobCommand::Hold { admin: false });
    // Answered when the record is on disk, so the record says it.
    let (index, record) = went(out).remove(0);
    assert_eq!((answer, index, record.hold), (Ok(()), 2, Some(HeldBy::User)));
    assert!(job.view().eligible);
    let change = JobChange { nice: Some(3), ..JobChange::default() };
    let (_, out) = job.command(ALICE, Some(vec![(4, 4, 1)]), JobCommand::Update(Box::new(change)));
    let (other, changed) = went(out).remove(0);
    assert_eq!((other, changed.spec.nice, job.view().spec.nice), (4, 3, 0));
}

#[test]
fn news_of_other_jobs_are_asked_for_again_while_they_are_needed() {
    let again = |job: &mut Bench| {
        let out = job.send(JobInput::Timer(JobTimer::News));
        let asked = |e: &JobEffect| {
            if let JobEffect::Tell(Letter::Job(job, JobInput::Subscribe { .. })) = e { Some(job.0) } else { None }
        };
        let set = out.iter().any(|e| matches!(e, JobEffect::SetTimer { timer: JobTimer::News, .. }));
        (out.iter().filter_map(asked).collect::<Vec<_>>(), set)
    };
    let mut waits = Bench::with(depends(DependencyKind::AfterAny, 3));
    assert_eq!(again(&mut waits), (vec![3], true));
    waits.send(fact(3, true, Some(TaskOutcome::Ok)));
    assert_eq!(again(&mut waits), (vec![], false));

    let mut single = Bench::with(JobSpec {
        dependencies: Dependencies {
            any: false,
            list: vec![Dependency { kind: DependencyKind::Singleton, job: None, array_index: None, failed: false }],
        },
        ..spec()
    });
    single.send(JobInput::Siblings { jobs: vec![JobId(4), JobId(5)] });
    single.send(fact(4, true, Some(TaskOutcome::Ok)));
    assert_eq!(again(&mut single), (vec![5], true));

    let mut many = Bench::with(JobSpec { array: Some(array(1, 3, None)), ..spec() });
    assert_eq!(again(&mut many), (vec![], false));
    let out = many.send(JobInput::Start(Box::new(proposal(7, Some(1), &["n0"]))));
    assert!(out.iter().any(|e| matches!(e, JobEffect::SetTimer { timer: JobTimer::News, .. })), "{out:?}");
    assert_eq!(again(&mut many), (vec![5001], true));
    many.send(fact(5001, true, Some(TaskOutcome::Ok)));
    assert_eq!(again(&mut many), (vec![], false));
}

#[test]
fn waits_are_answered_when_reached_or_over() {
    let mut job = Bench::with(spec());
    let none =
        |out: &[JobEffect]| !out.iter().any(|e| matches!(e, JobEffect::Answer { answer: JobAnswer::Reached(_), .. }));
    assert!(none(&job.send(JobInput::Wait { request: 1, until: JobMilestone::Started })));
    assert!(none(&job.send(JobInput::Wait { request: 2, until: JobMilestone::Ended })));
    job.allocate(&["n0"]);
    let (id, sluid) = (JobId(7), Sluid(7));
    let out = job.report("n0", AgentReport::JobStarted { job: id, sluid, door: String::new() });
    assert!(is_reached(&out, 1));
    job.ended(JobState::Completed, 0);
    assert!(is_reached(&job.released("n0"), 2));
    assert!(is_reached(&job.send(JobInput::Wait { request: 3, until: JobMilestone::Ended }), 3));
}

#[test]
fn output_patterns_are_filled_in() {
    let job = Bench::with(JobSpec { stdout: Some("out/%x-%4j-%u.%%".to_owned()), ..spec() });
    assert_eq!(job.view().stdout_path.unwrap(), "/tmp/out/test-0007-alice.%");
    let plain = Bench::with(spec()).view();
    assert_eq!(plain.stdout_path.unwrap(), "/tmp/slurm-7.out");
    assert!(plain.spec.script.is_none());
}

#[test]
fn an_allocation_is_finished_by_its_owner() {
    let mut job = Bench::running(JobSpec { kind: JobKind::Allocation, script: None, ..spec() });
    let exit = ExitStatus::SUCCESS;
    let (answer, out) = job.command(ALICE, None, JobCommand::FinishAllocation { exit });
    assert_eq!(answer, Ok(()));
    assert!(out.iter().any(|e| matches!(e, JobEffect::Tell(Letter::Node(_, NodeInput::Send(frame))) if matches!(**frame, ControllerToNode::FinishAllocation { .. }))));
}

/// Found by the random runs: what it depended on ended while the job was over, and nobody told it again.
#[test]
fn a_requeued_job_asks_for_its_dependencies_again() {
    let mut job = Bench::with(depends(DependencyKind::AfterAny, 3));
    job.order(JobCommand::Cancel).unwrap();
    job.send(fact(3, true, Some(TaskOutcome::Ok)));
    let (_, out) = job.command(ALICE, None, JobCommand::Requeue { hold: false });
    assert!(out.contains(&JobEffect::Tell(Letter::Job(JobId(3), JobInput::Subscribe { by: JobId(7) }))));
    job.send(JobInput::Fact { job: JobId(3), fact: None });
    assert!(job.view().eligible);
}

/// Found by the random runs: the batch host was rebooted, knew nothing of the run, and the job waited for its end for ever.
#[test]
fn a_release_by_the_batch_host_without_an_end_is_the_end() {
    let mut job = Bench::running(JobSpec { requeue: Some(false), ..spec() });
    job.order(JobCommand::Cancel).unwrap();
    let out = job.released("n0");
    assert_eq!(ends_sent(&out), ["n1"]);
    job.released("n1");
    assert_eq!(job.state(), JobState::Cancelled);
}

fn counted(done: u64, unreported: u64) -> StepTally {
    StepTally { counts: StepCounts { done, ..StepCounts::default() }, unreported, ..StepTally::default() }
}

fn steps_reported(job: &mut Bench, tally: StepTally) -> Vec<JobEffect> {
    let (id, sluid) = (job.core.record().id, job.core.record().sluid);
    let StepTally { counts, unreported, dropped, number } = tally;
    let mut steps = PackedSteps::from(StepRows { counts, unreported, dropped, ..StepRows::default() });
    steps.tally.number = number;
    job.report("n0", AgentReport::Steps { job: id, sluid, steps })
}

#[test]
fn reports_of_steps_change_numbers_beside_the_view_and_save_nothing() {
    let mut job = Bench::running(spec());
    let ack = || JobEffect::Tell(Letter::Node("n0".to_owned(), NodeInput::ReportSafe { seq: 1 }));
    let saved = job.saved.len();
    assert_eq!(steps_reported(&mut job, counted(5, 2)), [JobEffect::Publish(JobShown::Steps(counted(5, 2))), ack()]);
    assert_eq!(steps_reported(&mut job, counted(5, 2)), [ack()]);
    assert_eq!((job.saved.len(), job.view().steps), (saved, counted(5, 2)));
}

#[test]
fn records_of_steps_are_saved_before_their_report_is_acknowledged_while_somebody_keeps_accounts() {
    let mut job = Bench::running(spec());
    let (id, sluid) = (job.core.record().id, job.core.record().sluid);
    let rows = vec![ended_row(StepKey::number(3))];
    let steps = PackedSteps::from(StepRows { rows, ..StepRows::default() });
    let ack = || JobEffect::Tell(Letter::Node("n0".to_owned(), NodeInput::ReportSafe { seq: 1 }));
    let keeps = |keeps_step_records| JobInput::Site(Arc::new(JobSite { keeps_step_records, ..JobSite::default() }));
    let report = |sluid| AgentReport::Steps { job: id, sluid, steps: steps.clone() };
    assert_eq!(job.report("n0", report(sluid)), [ack()]);
    job.send(keeps(true));
    let save = |sluid| JobEffect::Save(ControllerEvent::Steps { job: id, sluid, steps: steps.clone() });
    assert_eq!(job.report("n0", report(sluid)), [save(sluid), ack()]);
    assert!(!job.report("n1", report(sluid)).contains(&save(sluid)), "it is not the batch host");
    // Numbers alone are no records.
    let out = steps_reported(&mut job, counted(5, 2));
    assert_eq!(out, [JobEffect::Publish(JobShown::Steps(counted(5, 2))), ack()]);
    job.send(keeps(false));
    assert!(!job.report("n0", report(sluid)).contains(&save(sluid)));
}

/// Found by simulation: the link of the node's agent broke, its reports came again over the next one behind the newer ones
/// that had come before, and the job ended with a step that still ran.
#[test]
fn numbers_that_come_again_late_do_not_replace_newer_ones() {
    let mut job = Bench::running(spec());
    let (id, sluid) = (job.core.record().id, job.core.record().sluid);
    let mut tell = |seq, done| {
        let counts = StepCounts { done, ..StepCounts::default() };
        let report = AgentReport::Steps { job: id, sluid, steps: StepRows { counts, ..StepRows::default() }.into() };
        job.send(JobInput::Report { node: "n0".to_owned(), seq, report: Box::new(report) });
        job.view().steps.counts.done
    };
    assert_eq!([tell(10, 24), tell(11, 25), tell(10, 24), tell(11, 25), tell(12, 26)], [24, 25, 25, 25, 26]);
}

/// Found by simulation: the report of the end was lost with an owner that failed over it, the last numbers came ahead of it and
/// were safe, that owner failed too, and the end was saved without any.
#[test]
fn numbers_that_are_safe_outlive_the_owner_that_had_them() {
    let mut job = Bench::running(spec());
    steps_reported(&mut job, StepTally { number: 18, ..counted(9, 0) });
    let left = job.core.leftover();
    let mut job = Bench { core: super::core::JobCore::new(job.core.record().clone(), Default::default()), ..job };
    job.core.resume(job.now, &mut job.ids, left, &mut Vec::new());
    job.ended(JobState::Completed, 0);
    assert_eq!(job.core.record().steps, StepTally { number: 18, ..counted(9, 0) });
    assert_eq!(job.replayed().steps, job.core.record().steps);
}

/// Found by simulation: the controller was started again, and the job's owner failed over one of the last reports. The newest
/// had the numbers that were saved already, so it changed nothing, was safe, and did not come again; an older one did.
#[test]
fn an_old_report_does_not_replace_the_final_numbers_over_restarts() {
    let numbered = |done, number| StepTally { number, ..counted(done, 0) };
    let mut job = Bench::running(spec());
    steps_reported(&mut job, numbered(4, 6));
    job.ended(JobState::Completed, 0);
    steps_reported(&mut job, numbered(5, 7));
    for _owner in ["of the next controller", "after that"] {
        let record = job.replayed();
        job = Bench::new(record).0;
        assert_eq!(steps_reported(&mut job, numbered(5, 7)).len(), 1, "acknowledged, and no news");
        steps_reported(&mut job, numbered(4, 6));
        assert_eq!((job.view().steps, job.core.record().steps), (numbered(5, 7), numbered(5, 7)));
    }
    // A step manager that took over begins far behind.
    steps_reported(&mut job, numbered(6, (1 << 32) + 1));
    steps_reported(&mut job, numbered(5, 7));
    assert_eq!(
        (job.core.record().steps, job.replayed().steps),
        (numbered(6, (1 << 32) + 1), numbered(6, (1 << 32) + 1))
    );
}

/// Step managers of earlier versions do not number what they counted.
#[test]
fn numbers_that_come_again_unchanged_are_the_newest_ones_known() {
    let mut job = Bench::running(spec());
    let (id, sluid) = (job.core.record().id, job.core.record().sluid);
    let mut tell = |seq, done| {
        let counts = StepCounts { done, ..StepCounts::default() };
        let report = AgentReport::Steps { job: id, sluid, steps: StepRows { counts, ..StepRows::default() }.into() };
        job.send(JobInput::Report { node: "n0".to_owned(), seq, report: Box::new(report) });
        job.view().steps.counts.done
    };
    assert_eq!([tell(10, 25), tell(12, 25), tell(11, 24)], [25, 25, 25]);
}

#[test]
fn numbers_of_steps_are_saved_with_the_end_and_forgotten_by_the_next_run() {
    let mut job = Bench::running(spec());
    steps_reported(&mut job, counted(5, 2));
    job.ended(JobState::Completed, 0);
    assert_eq!((job.core.record().steps, job.view().steps), (counted(5, 2), counted(5, 2)));
    let out = steps_reported(&mut job, counted(7, 0));
    assert!(matches!(
        out.as_slice(),
        [
            JobEffect::Save(_),
            JobEffect::Tell(Letter::Node(_, NodeInput::ReportSafe { .. })),
            JobEffect::Publish(JobShown::View(_))
        ]
    ));
    for node in ["n0", "n1"] {
        job.released(node);
    }
    assert_eq!((job.state(), job.view().steps), (JobState::Completed, counted(7, 0)));
    assert_eq!(&job.replayed(), job.core.record());
    job.order(JobCommand::Requeue { hold: false }).unwrap();
    assert_eq!((job.state(), job.view().steps), (JobState::Pending, StepTally::default()));
    assert_eq!(&job.replayed(), job.core.record());
}

fn with_deadline(deadline: i64, minutes: u64) -> JobSpec {
    JobSpec {
        deadline: Some(Timestamp::from_secs(deadline)),
        time_limit: Some(TimeLimit::Secs(60 * minutes)),
        ..spec()
    }
}

fn deadline_timer(out: &[JobEffect]) -> Option<Timestamp> {
    out.iter().rev().find_map(|e| match e {
        JobEffect::SetTimer { timer: JobTimer::Deadline, at } => Some(*at),
        _ => None,
    })
}

#[test]
fn a_job_that_cannot_end_before_its_deadline_any_more_is_removed() {
    let (mut job, out) = Bench::new(record(7, with_deadline(2000, 10)));
    let latest = Timestamp::from_secs(1401);
    assert_eq!(deadline_timer(&out), Some(latest));
    job.now = latest;
    job.send(JobInput::Timer(JobTimer::Deadline));
    let view = job.view();
    assert_eq!((view.state, view.reason), (JobState::Deadline, Reason::Other("DeadLine".to_owned())));
}

#[test]
fn a_job_that_runs_has_until_its_deadline() {
    let mut job = Bench::running(with_deadline(2000, 10));
    job.now = Timestamp::from_secs(1401);
    let out = job.send(JobInput::Timer(JobTimer::Deadline));
    assert_eq!((job.state(), deadline_timer(&out)), (JobState::Running, Some(Timestamp::from_secs(2000))));
    job.now = Timestamp::from_secs(2000);
    let out = job.send(JobInput::Timer(JobTimer::Deadline));
    assert_eq!(ends_sent(&out), ["n0"]);
}

#[test]
fn a_job_leaves_its_reservation_in_the_time_that_it_is_given() {
    let mut job = Bench::running(spec());
    let at = Timestamp::from_secs(1600);
    let out = job.send(JobInput::LeaveBy(at));
    assert!(out.contains(&JobEffect::SetTimer { timer: JobTimer::Leave, at }), "{out:?}");
    assert_eq!((job.view().end_time, job.view().leave_by, ends_sent(&out).len()), (Some(at), Some(at), 0));
    // The first word counts.
    job.send(JobInput::LeaveBy(Timestamp::from_secs(1200)));
    assert_eq!(job.view().leave_by, Some(at));
    job.now = at;
    let out = job.send(JobInput::Timer(JobTimer::Leave));
    assert_eq!((ends_sent(&out), job.view().ending), (vec!["n0"], Some(JobState::Timeout)));
    assert_eq!(&job.replayed(), job.core.record());
}

#[test]
fn a_run_that_has_used_up_minutes_of_a_limit_ends_and_says_which() {
    let reason = || Reason::Other("AssocGrpCPUMinutesLimit".to_owned());
    let mut job = Bench::running(spec());
    let sluid = job.core.record.sluid;
    let over = |sluid| JobInput::OverLimit { sluid, reason: reason() };
    assert_eq!(job.send(over(Sluid(sluid.0 + 1))), [], "that was an earlier run");
    let out = job.send(over(sluid));
    assert_eq!((ends_sent(&out), job.view().ending), (vec!["n0"], Some(JobState::Timeout)));
    assert!(ends_sent(&job.send(over(sluid))).is_empty(), "the scheduler may say it again");
    assert_eq!(job.core.record.phase.run().unwrap().ending.as_ref().unwrap().reason, reason());
    assert_eq!(&job.replayed(), job.core.record());
    let mut waiting = Bench::with(spec());
    let sluid = waiting.core.record.sluid;
    assert_eq!(waiting.send(over(sluid)), [], "it has not started");
}

#[test]
fn a_job_without_time_after_its_reservation_ends_at_once() {
    let mut job = Bench::running(spec());
    let out = job.send(JobInput::LeaveBy(job.now));
    assert_eq!((ends_sent(&out).len(), job.view().ending), (1, Some(JobState::Timeout)));
    let mut waiting = Bench::with(spec());
    let now = waiting.now;
    assert_eq!(waiting.send(JobInput::LeaveBy(now)), [], "a job that waits is in none");
}

#[test]
fn a_shorter_limit_leaves_more_time_before_the_deadline() {
    let mut job = Bench::with(with_deadline(2000, 10));
    let change = JobChange { time_limit: Some(TimeLimit::Secs(60)), ..JobChange::default() };
    let (answer, out) = job.command(ALICE, None, JobCommand::Update(Box::new(change)));
    answer.unwrap();
    assert_eq!(deadline_timer(&out), Some(Timestamp::from_secs(1941)));
}

#[test]
fn where_the_site_or_the_job_wants_it_impossible_dependencies_end_it() {
    let failed = |kill_invalid_depend: bool, kill_on_invalid_dep: Option<bool>| {
        let mut job = Bench::with(JobSpec { kill_on_invalid_dep, ..depends(DependencyKind::AfterOk, 5) });
        let site = JobSite { kill_invalid_depend, ..JobSite::default() };
        job.send(JobInput::Site(Arc::new(site)));
        job.send(JobInput::Fact { job: JobId(5), fact: None });
        let view = job.view();
        (view.state, view.reason)
    };
    let stays = (JobState::Pending, Reason::DependencyNeverSatisfied);
    let ends = (JobState::Cancelled, Reason::DependencyNeverSatisfied);
    assert_eq!((failed(false, None), failed(true, Some(false))), (stays.clone(), stays));
    assert_eq!((failed(true, None), failed(false, Some(true))), (ends.clone(), ends));
}

#[test]
fn calculated_priorities_are_shown_and_not_saved() {
    let mut job = Bench::with(spec());
    let first = job.view().priority;
    job.send(JobInput::Priority(77));
    assert_eq!(job.view().priority, first, "not where priorities are not calculated");
    job.send(JobInput::Site(Arc::new(JobSite { multifactor: true, ..JobSite::default() })));
    let out = job.send(JobInput::Priority(77));
    assert_eq!(job.view().priority, 77);
    assert!(matches!(out[..], [JobEffect::Publish(JobShown::View(_))]), "{out:?}");
    assert!(job.send(JobInput::Priority(77)).is_empty());

    job.order(JobCommand::Update(Box::new(JobChange { nice: Some(7), ..JobChange::default() }))).unwrap();
    assert_eq!(job.view().priority, 70);
    let fix = JobChange { priority: Some(9000), ..JobChange::default() };
    job.command(ROOT, None, JobCommand::Update(Box::new(fix))).0.unwrap();
    job.send(JobInput::Priority(80));
    assert_eq!((job.view().priority, job.view().spec.nice), (9000, 0));
    job.order(JobCommand::Hold { admin: false }).unwrap();
    job.order(JobCommand::Release).unwrap();
    job.send(JobInput::Priority(81));
    assert_eq!(job.view().priority, 81);
    assert_eq!(job.replayed(), *job.core.record());
}

#[test]
fn since_when_a_job_gains_priority_by_age_is_saved_and_ends_with_its_run() {
    let mut job = Bench::with(spec());
    let after = |reset, accrual| JobInput::Accrues { accrual, reset, tasks: None };
    let accrues = |accrual| after(None, accrual);
    let reset = || JobCommand::Update(Box::new(JobChange { reset_accrue_time: true, ..JobChange::default() }));
    assert_eq!((job.view().accrue_time(), job.view().terms.accrual), (job.view().eligible_time, Accrual::Eligible));
    let out = job.send(accrues(Accrual::Waits));
    let saved = |effect: &JobEffect| matches!(effect, JobEffect::Save(ControllerEvent::Job { event, .. }) if **event == JobEvent::Accrues(Accrual::Waits));
    assert!(out.iter().any(saved), "{out:?}");
    assert_eq!(job.view().accrue_time(), None);
    assert!(job.send(accrues(Accrual::Waits)).is_empty(), "it was told before");
    job.order(reset()).unwrap();
    assert_eq!(job.view().accrue_time(), None, "it has nothing to lose");
    job.send(accrues(Accrual::Since(Timestamp(5))));
    assert_eq!(job.view().accrue_time(), Some(Timestamp(5)));
    job.order(JobCommand::Hold { admin: false }).unwrap();
    assert_eq!(job.view().accrue_time(), None);
    job.order(reset()).unwrap();
    job.order(JobCommand::Release).unwrap();
    assert_eq!(job.view().accrue_time(), Some(Timestamp(5)), "until the scheduler says something else");
    job.order(reset()).unwrap();
    let anew = Some(job.now);
    assert_eq!((job.view().accrue_time(), job.view().terms.reset), (anew, anew));
    // The scheduler decided that before it knew of the reset.
    for late in [Accrual::Waits, Accrual::Since(Timestamp(5)), Accrual::Eligible] {
        assert!(job.send(accrues(late)).is_empty(), "{late:?}");
    }
    assert_eq!(job.view().accrue_time(), anew);
    job.send(after(anew, Accrual::Waits));
    assert_eq!(job.view().accrue_time(), None);
    assert_eq!(job.replayed(), *job.core.record());
}

/// As Slurm 22.05 shows it: EligibleTime of a job that is held is unknown, and that of one that is released is new; AccrueTime stays.
#[test]
fn a_released_job_is_eligible_anew_and_keeps_its_age() {
    let mut job = Bench::with(spec());
    let first = job.now;
    assert_eq!((job.view().eligible_time, job.view().accrue_time()), (Some(first), Some(first)));
    for (hold, release) in [
        (JobCommand::Hold { admin: false }, JobCommand::Release),
        (
            JobCommand::Update(Box::new(JobChange { begin: Some(Timestamp(i64::MAX)), ..JobChange::default() })),
            JobCommand::Update(Box::new(JobChange { begin: Some(Timestamp(0)), ..JobChange::default() })),
        ),
    ] {
        job.now = job.now.plus(Duration::from_secs(30));
        job.order(hold).unwrap();
        let view = job.view();
        assert_eq!((view.eligible, job.core.record().eligible_time), (false, None));
        job.now = job.now.plus(Duration::from_secs(30));
        job.order(release).unwrap();
        assert_eq!((job.view().eligible_time, job.view().accrue_time()), (Some(job.now), Some(first)));
    }
    job.order(JobCommand::Hold { admin: false }).unwrap();
    assert_eq!(job.core.record().begin, Some(Timestamp(0)));
    assert_eq!(job.replayed(), *job.core.record());
}

#[test]
fn tasks_that_gain_priority_by_age_before_others_become_jobs() {
    let mut job = Bench::with(JobSpec { array: Some(array(1, 4, None)), ..spec() });
    let accrual = Accrual::Since(Timestamp(5));
    let out = job.send(JobInput::Accrues { accrual, reset: None, tasks: Some(2) });
    let tasks: Vec<_> = out
        .iter()
        .filter_map(|effect| match effect {
            JobEffect::Tell(Letter::Begin { record, first: None }) => {
                Some((record.array_task.unwrap().index, record.terms.accrual))
            }
            _ => None,
        })
        .collect();
    assert_eq!(tasks, [(1, accrual), (2, accrual)]);
    let view = job.view();
    assert_eq!((view.array_pending, view.terms.accrual), (Some(array(3, 4, None)), Accrual::Eligible));
    job.send(JobInput::Accrues { accrual, reset: None, tasks: Some(2) });
    assert_eq!(job.view().terms.accrual, accrual, "all that are left");
    assert_eq!(job.replayed(), *job.core.record());
}

#[test]
fn a_priority_permits_a_held_job_to_run() {
    let priority =
        |priority| JobCommand::Update(Box::new(JobChange { priority: Some(priority), ..JobChange::default() }));
    for admin in [false, true] {
        let mut job = Bench::with(spec());
        job.command(ROOT, None, JobCommand::Hold { admin }).0.unwrap();
        assert_eq!(job.order(priority(1)), Err(Refusal::AccessDenied), "only administrators raise it from 0");
        assert_eq!((job.view().priority, job.view().eligible), (0, false));
        job.command(ROOT, None, priority(70)).0.unwrap();
        let view = job.view();
        assert_eq!((view.priority, view.eligible, view.reason), (70, true, Reason::None));
        job.send(JobInput::Site(Arc::new(JobSite { multifactor: true, ..JobSite::default() })));
        job.send(JobInput::Priority(81));
        assert_eq!(job.view().priority, 70, "it stays as it was set");
        assert_eq!(job.replayed(), *job.core.record());
    }
}

/// A job that asks for licenses, and a proposal with them.
fn licensed() -> (Bench, JobInput) {
    let job = Bench::with(JobSpec { licenses: Some("foo:2|bar".to_owned()), ..spec() });
    let licenses = "bar:1".parse().unwrap();
    (job, JobInput::Start(Box::new(StartProposal { licenses, ..proposal(7, None, &["n0"]) })))
}

#[test]
fn licenses_go_with_the_allocation_and_come_back_when_the_work_is_over() {
    let (mut job, start) = licensed();
    let out = job.send(start);
    let licenses: Licenses = "bar:1".parse().unwrap();
    assert!(out.contains(&JobEffect::Tell(Letter::Licenses(LicenseInput::Reserve {
        job: JobId(7),
        attempt: 1,
        licenses: licenses.clone()
    }))));
    let yes = JobInput::Reserved { attempt: 1, node: "n0".to_owned(), result: Ok(Grant::at("n0:1".to_owned())) };
    assert_eq!(job.send(yes), [], "the licenses are still to come");
    let out = job.send(JobInput::LicensesReserved { attempt: 1, granted: true });
    assert_eq!(outcomes(&out), [true]);
    assert_eq!(job.view().allocation.unwrap().licenses, licenses);
    assert_eq!(job.replayed().licenses(), Some(&licenses));
    // A yes that comes twice takes nothing away.
    assert_eq!(job.send(JobInput::LicensesReserved { attempt: 1, granted: true }), []);
    job.started();
    let back = JobEffect::Tell(Letter::Licenses(LicenseInput::Release { job: JobId(7), attempt: None }));
    assert!(job.ended(JobState::Completed, 0).contains(&back));
    assert_eq!((job.state(), job.replayed().licenses()), (JobState::Completing, None));
}

#[test]
fn without_licenses_nodes_are_given_back_and_the_other_way_round() {
    let (mut job, start) = licensed();
    job.send(start.clone());
    let out = job.send(JobInput::LicensesReserved { attempt: 1, granted: false });
    assert_eq!((releases(&out), outcomes(&out)), (vec!["n0"], vec![false]));
    job.send(start);
    let no = Err(ReserveRefusal::OutOfService("down"));
    let out = job.send(JobInput::Reserved { attempt: 2, node: "n0".to_owned(), result: no });
    assert!(
        out.contains(&JobEffect::Tell(Letter::Licenses(LicenseInput::Release { job: JobId(7), attempt: Some(2) })))
    );
    // Their yes comes after that.
    let out = job.send(JobInput::LicensesReserved { attempt: 2, granted: true });
    assert_eq!(out, [JobEffect::Tell(Letter::Licenses(LicenseInput::Release { job: JobId(7), attempt: Some(2) }))]);
}

#[test]
fn a_partitions_weights_say_what_a_job_is_billed() {
    let mut job = Bench::with(spec());
    assert_eq!(job.view().billing, None);
    let partition = job.view().partitions[0].clone();
    let site = |partition: &str| {
        let weights = garrick_model::config::BillingWeights::parse("CPU=2,Mem=0.5").unwrap();
        let billing = [(partition.to_owned(), weights)].into();
        JobInput::Site(Arc::new(JobSite { billing, ..JobSite::default() }))
    };
    job.send(site("other"));
    assert_eq!(job.view().billing, None);
    job.send(site(&partition));
    let view = job.view();
    let garrick_model::resources::MemoryRequest::PerNode(memory) = view.memory else { panic!("{:?}", view.memory) };
    assert_eq!(view.billing, Some(u64::from(view.cpus) * 2 + memory.0 / 2));
    job.allocate(&["n0", "n1"]);
    let view = job.view();
    let allocation = view.allocation.clone().unwrap();
    let shares = || allocation.nodes.iter().map(|node| &node.share);
    let memory: u64 = shares().filter_map(|share| share.memory).map(|mib| mib.0).sum();
    let cpus: u64 = shares().map(|share| u64::from(share.cpus.len())).sum();
    let billed = if allocation.partition == partition { Some(cpus * 2 + memory / 2) } else { None };
    assert_eq!(view.billing, billed);
}

#[test]
fn a_run_is_charged_to_the_association_and_the_qos_of_its_user() {
    use garrick_model::entities::{
        Entities,
        association::{AssocId, Association},
        qos::QosRecord,
    };
    use garrick_plan::snapshot::accounting::AccountingTable;
    let charge = |job: &Bench| job.core.record.phase.run().unwrap().charge.clone();
    let mut nobody = Bench::with(spec());
    nobody.allocate(&["n0"]);
    assert_eq!(charge(&nobody), None, "there is no accounting");
    let weights = garrick_model::config::BillingWeights::parse("Node=7").unwrap();
    let mut billed = Bench::with(spec());
    let billing = [("debug".to_owned(), weights)].into();
    billed.send(JobInput::Site(Arc::new(JobSite { billing, ..JobSite::default() })));
    billed.allocate(&["n0"]);
    let of_nobody = charge(&billed).unwrap();
    assert_eq!((of_nobody.who.clone(), of_nobody.billing), (None, 7), "job completion says it");

    let mut job = Bench::with(JobSpec { qos: Some("High".to_owned()), ..spec() });
    let partition = job.view().partitions[0].clone();
    let own = Association {
        id: AssocId(3),
        cluster: "cluster".to_owned(),
        account: "physics".to_owned(),
        user: Some(job.core.record.owner.user.clone()),
        partition: None,
        is_default: true,
        ..Association::default()
    };
    let qos = QosRecord { usage_factor: 0.25, ..QosRecord::new(2, "high") };
    let entities = Entities {
        associations: [(own.id, own.clone())].into(),
        qos: [(qos.name.clone(), qos)].into(),
        ..Entities::default()
    };
    let partition_qos = [(partition.clone(), "of_part".to_owned()), ("debug".to_owned(), "of_part".to_owned())].into();
    let weights = garrick_model::config::BillingWeights::parse("Node=7").unwrap();
    let billing = [(partition, weights.clone()), ("debug".to_owned(), weights)].into();
    let accounts = Arc::new(AccountingTable::new(&entities, "cluster"));
    let site = JobSite { accounts, partition_qos, billing, ..JobSite::default() };
    job.send(JobInput::Site(Arc::new(site)));
    job.allocate(&["n0", "n1"]);
    let charge = charge(&job).unwrap();
    assert_eq!((charge.who.clone(), charge.billing, charge.factor_millionths), (own.who(), 14, 250_000));
    assert_eq!(charge.qos.iter().map(String::as_str).collect::<Vec<_>>(), ["high", "of_part"]);
}

/// Which tasks went on their own, and the records.
fn went(out: Vec<JobEffect>) -> Vec<(u32, JobRecord)> {
    let split = |e| match e {
        JobEffect::Tell(Letter::Begin { record, first: None }) => Some((record.array_task.unwrap().index, *record)),
        _ => None,
    };
    out.into_iter().filter_map(split).collect()
}

/// How far tasks of job 3 are.
fn of_tasks(tasks: &[(u32, Option<TaskOutcome>)]) -> JobInput {
    let tasks: BTreeMap<_, _> = tasks.iter().map(|(index, over)| (*index, (Some(Timestamp(1)), *over))).collect();
    let some_failed = tasks.values().any(|(_, over)| *over == Some(TaskOutcome::NotOk));
    let fact = JobFact { job: JobId(3), started: None, over: None, some_failed, tasks, exit: None, noted: false };
    JobInput::Fact { job: JobId(3), fact: Some(Arc::new(fact)) }
}

#[test]
fn tasks_wait_for_the_tasks_with_their_index() {
    use TaskOutcome::{NotOk, Ok as Good};
    let spec = JobSpec { array: Some(array(1, 4, None)), ..depends(DependencyKind::AfterCorr, 3) };
    let mut job = Bench::with(spec.clone());
    assert!(went(job.send(of_tasks(&[(1, None), (2, None), (3, None), (4, None)]))).is_empty());
    let gone = went(job.send(of_tasks(&[(1, None), (2, Some(Good)), (3, Some(NotOk)), (4, None)])));
    assert_eq!(gone.iter().map(|(index, _)| *index).collect::<Vec<_>>(), [2, 3]);
    assert_eq!(job.view().reason, Reason::Dependency);
    // Each is judged by its own.
    for (index, record) in gone {
        let (mut task, out) = Bench::new(record);
        let asks = out.contains(&JobEffect::Tell(Letter::Job(JobId(3), JobInput::Subscribe { by: task.first.id })));
        assert_eq!(asks, index == 3, "what is fulfilled is asked for no more");
        task.send(of_tasks(&[(1, None), (2, Some(Good)), (3, Some(NotOk)), (4, None)]));
        let reason = if index == 2 { Reason::None } else { Reason::DependencyNeverSatisfied };
        assert_eq!((task.view().reason, task.view().eligible), (reason, index == 2));
    }
    // Those that are left are judged together where they are alike.
    assert!(
        went(job.send(of_tasks(&[(1, Some(Good)), (2, Some(Good)), (3, Some(NotOk)), (4, Some(Good))]))).is_empty()
    );
    assert_eq!((job.view().reason, job.view().eligible), (Reason::None, true));
    assert_eq!(&job.replayed(), job.core.record());

    // All over at once, one of them badly.
    let mut job = Bench::with(spec.clone());
    let gone = went(job.send(of_tasks(&[(1, Some(Good)), (2, Some(Good)), (3, Some(NotOk)), (4, Some(Good))])));
    assert_eq!((gone.len(), gone[0].0, job.view().eligible), (1, 3, true));
    // A task that has no counterpart waits for ever, and so does one whose other array nobody knows any more.
    let mut job = Bench::with(spec.clone());
    assert_eq!(went(job.send(of_tasks(&[(1, None), (2, None), (3, None)])))[0].0, 4);
    job.send(JobInput::Fact { job: JobId(3), fact: None });
    assert_eq!(job.view().reason, Reason::DependencyNeverSatisfied);
    // After a job that is no array: as afterok.
    let mut job = Bench::with(spec);
    assert!(went(job.send(fact(3, true, Some(Good)))).is_empty());
    assert!(job.view().eligible);
    let mut single = Bench::with(depends(DependencyKind::AfterCorr, 3));
    single.send(of_tasks(&[(1, Some(NotOk)), (2, None)]));
    assert_eq!(single.view().reason, Reason::DependencyNeverSatisfied);
}

#[test]
fn a_start_that_came_too_late_to_be_counted_is_refused() {
    let mut job = Bench::with(spec());
    let late = |job: &Bench| StartProposal { answer_by: Timestamp(job.now.0 - 1), ..proposal(7, None, &["n0"]) };
    let start = JobInput::Start(Box::new(late(&job)));
    assert_eq!(job.send(start), [JobEffect::Tell(Letter::Outcome { pass: 1, accepted: false })]);
    let in_time = StartProposal { answer_by: job.now, ..proposal(7, None, &["n0"]) };
    assert!(outcomes(&job.send(JobInput::Start(Box::new(in_time)))).is_empty(), "nodes are asked");
}

#[test]
fn a_run_says_what_the_job_waited_for_and_whether_it_was_backfilled() {
    let run = |job: &Bench| job.core.record.phase.run().unwrap().clone();
    let mut job = Bench::with(spec());
    let considered = |reason| JobInput::Considered { reason, expected: None };
    let licenses = || Reason::Other("Licenses".to_owned());
    job.send(considered(licenses()));
    job.send(considered(Reason::Resources));
    job.allocate(&["n0"]);
    assert_eq!((run(&job).waited_for, run(&job).backfilled), (licenses(), false));
    let mut plain = Bench::with(spec());
    plain.send(considered(Reason::Priority));
    plain.send(JobInput::Start(Box::new(StartProposal { backfilled: true, ..proposal(7, None, &["n0"]) })));
    let attempt = plain.core.leftover().attempt;
    plain.send(JobInput::Reserved { attempt, node: "n0".into(), result: Ok(Grant::at("n0:6818".into())) });
    assert_eq!((run(&plain).waited_for, run(&plain).backfilled), (Reason::None, true));
}

#[test]
fn a_run_has_one_of_the_qos_that_its_job_names_and_a_requeued_job_waits_with_all_of_them() {
    let mut job = Bench::with(JobSpec { qos: Some("high,normal".to_owned()), ..spec() });
    let shown = |job: &Bench| (job.view().spec.qos.clone().unwrap(), job.core.record().spec.qos.clone().unwrap());
    let both = |name: &str| (name.to_owned(), name.to_owned());
    let with = |qos: Option<&str>| StartProposal { qos: qos.map(str::to_owned), ..proposal(7, None, &["n0", "n1"]) };
    // A plan that was made before the job named these.
    for old in [None, Some("low"), Some("high,normal")] {
        let out = job.send(JobInput::Start(Box::new(with(old))));
        assert!(!out.iter().any(|effect| matches!(effect, JobEffect::Tell(Letter::Node(..)))), "{old:?}");
    }
    assert_eq!(shown(&job), both("high,normal"));
    job.send(JobInput::Start(Box::new(with(Some("normal")))));
    for node in ["n0", "n1"] {
        let (attempt, result) = (job.core.leftover().attempt, Ok(Grant::at(format!("{node}:1"))));
        job.send(JobInput::Reserved { attempt, node: node.to_owned(), result });
    }
    assert_eq!(shown(&job), both("normal"));
    assert_eq!(job.replayed(), *job.core.record(), "a restarted controller knows it");
    job.started();
    job.order(JobCommand::Requeue { hold: false }).unwrap();
    job.ended(JobState::Cancelled, 0);
    ["n0", "n1"].iter().for_each(|node| drop(job.released(node)));
    assert_eq!((job.state(), shown(&job)), (JobState::Pending, both("high,normal")));
    assert_eq!(job.replayed(), *job.core.record());
}
