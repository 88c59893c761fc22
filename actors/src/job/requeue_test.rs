//! Rules of returning to the queue: in the ordinary way, for an exit code, and ahead of all others.
#![allow(clippy::unwrap_used)]

use super::{
    effects::{JobEffect, JobErrand},
    fixtures::{Bench, ROOT, site},
};
use crate::messages::{
    job::{JobCommand, JobInput, JobTimer},
    letter::Letter,
    node::NodeInput,
};
use garrick_events::{
    records::{
        job::{Afterwards, EarlierHold, End, Ending},
        job_event::JobEvent,
    },
    testing::record,
};
use garrick_model::{
    ids::Sluid,
    messages::node::{AgentReport, ControllerToNode},
    refusal::Refusal,
    spec::{JobKind, JobSpec},
    state::{ExitStatus, JobState, Reason},
    testing::spec,
    time::Timestamp,
};
use std::time::Duration;

fn expedited() -> JobSpec {
    JobSpec { expedite: true, ..spec() }
}

fn running(spec: JobSpec, lines: &str) -> Bench {
    let (mut bench, _) = Bench::new(record(7, spec));
    bench.send(JobInput::Site(site(lines)));
    bench.allocate(&["n0", "n1"]);
    bench.started();
    bench
}

const ENABLED: &str = "SlurmctldParameters=enable_expedited_requeue";

fn hurried() -> Bench {
    running(expedited(), ENABLED)
}

fn kept(out: &[JobEffect]) -> Vec<&str> {
    out.iter()
        .filter_map(|e| {
            if let JobEffect::Tell(Letter::Node(node, NodeInput::Keep { .. })) = e { Some(node.as_str()) } else { None }
        })
        .collect()
}

fn released(out: &[JobEffect]) -> Vec<(&str, u64)> {
    out.iter()
        .filter_map(|e| match e {
            JobEffect::Tell(Letter::Node(node, NodeInput::Release { sluid, .. })) => Some((node.as_str(), sluid.0)),
            _ => None,
        })
        .collect()
}

fn lost(bench: &mut Bench, node: &str) -> Vec<JobEffect> {
    let sluid = bench.core.record().sluid;
    bench.send(JobInput::NodeLost { node: node.to_owned(), sluid })
}

fn epilog_failed(bench: &mut Bench, node: &str) -> Vec<JobEffect> {
    let (job, sluid) = (bench.core.record().id, bench.core.record().sluid);
    let epilog_failed = Some("exit 1".to_owned());
    bench.report(node, AgentReport::NodeReleased { job, sluid, epilog_failed, unkillable: None })
}

#[test]
fn a_lost_node_sends_an_expedited_job_ahead_at_once_with_its_healthy_node_kept() {
    let mut job = hurried();
    let out = lost(&mut job, "n1");
    // The step manager is told which node it need not wait for.
    let told = out.iter().find_map(|e| match e {
        JobEffect::Tell(Letter::Node(node, NodeInput::Send(frame))) => match &**frame {
            ControllerToNode::EndJob { lost, .. } => Some((node.clone(), lost.clone())),
            _ => None,
        },
        _ => None,
    });
    assert_eq!(told, Some(("n0".to_owned(), vec!["n1".to_owned()])));
    assert_eq!((job.state(), job.view().ending), (JobState::Completing, Some(JobState::NodeFail)));
    let out = job.released("n0");
    assert_eq!((kept(&out), released(&out)), (vec!["n0"], vec![]));
    let view = job.view();
    assert_eq!((view.state, view.eligible, view.restarts), (JobState::Expediting, true, 1));
    assert_ne!(view.sluid, Sluid(7));
    let holds = job.core.record().holds();
    let hold = holds.first().unwrap();
    assert_eq!((holds.len(), hold.node.name.as_str(), hold.sluid, hold.kept), (1, "n0", Sluid(7), true));
    assert_eq!(&job.replayed(), job.core.record());
}

/// The order to keep the node, or to give it back, was lost with the job's owner: the node asks the next one.
#[test]
fn a_node_that_asks_is_told_again_whether_it_is_kept() {
    let mut job = hurried();
    lost(&mut job, "n1");
    job.released("n0");
    let asks = |job: &mut Bench| job.send(JobInput::RunMissing { node: "n0".to_owned(), sluid: Sluid(7) });
    assert_eq!(kept(&asks(&mut job)), ["n0"]);
    assert_eq!(job.core.record().holds().len(), 1);
    job.order(JobCommand::Cancel).unwrap();
    assert_eq!(released(&asks(&mut job)), [("n0", 7)]);
}

#[test]
fn the_next_run_takes_over_what_was_kept_and_the_rest_is_given_back() {
    let mut job = hurried();
    lost(&mut job, "n1");
    job.released("n0");
    let out = job.allocate(&["n2"]);
    assert_eq!(released(&out), [("n0", 7)]);
    assert_eq!(job.core.record().earlier, []);
    assert_eq!(job.state(), JobState::Configuring);
    let launched = out
        .iter()
        .find_map(|e| if let JobEffect::Do(JobErrand::Launch(order)) = e { Some(order.restarts) } else { None });
    assert_eq!(launched, Some(1));
    assert_eq!(&job.replayed(), job.core.record());

    let mut job = hurried();
    lost(&mut job, "n1");
    job.released("n0");
    let out = job.allocate(&["n0", "n2"]);
    // Of n0 the old claim only: the new run has its place there.
    assert_eq!((released(&out), &job.core.record().earlier[..]), (vec![("n0", 7)], &[][..]));
}

/// Its step manager lost a node, and says that the run is over.
fn lost_by_step_manager(job: &mut Bench, state: JobState, reason: Reason, node: &str) {
    let (id, sluid, exit, at) = (job.core.record().id, job.core.record().sluid, ExitStatus::SUCCESS, job.now);
    let lost = vec![node.to_owned()];
    job.report(
        "n0",
        AgentReport::JobEnded { job: id, sluid, state, reason, exit, derived: exit, at, lost, cause: None },
    );
}

fn waits(job: &Bench) -> (JobState, Reason, bool) {
    let view = job.view();
    (view.state, view.reason, view.eligible)
}

/// Found by simulation: the node was cut off from the controller as well, so that its part of the run went on beside the next run.
#[test]
fn a_node_that_only_the_step_manager_gave_up_is_waited_for_in_the_queue() {
    let mut job = hurried();
    let id = job.core.record().id;
    lost_by_step_manager(&mut job, JobState::NodeFail, Reason::NodeDown, "n1");
    let out = job.released("n0");
    assert_eq!(kept(&out), ["n0"]);
    assert_eq!(waits(&job), (JobState::Expediting, Reason::Cleaning, false));
    let holds: Vec<(String, bool)> =
        job.core.record().earlier.iter().map(|h: &EarlierHold| (h.node.name.clone(), h.kept)).collect();
    assert_eq!(holds, [("n0".to_owned(), true), ("n1".to_owned(), false)]);
    // Its agent comes back with the run: it is to end it, and gives the node back when that is done.
    let out = job.send(JobInput::RunHeld { node: "n1".to_owned(), sluid: Sluid(7), requeue: None });
    assert!(matches!(&out[..], [JobEffect::Tell(Letter::Node(node, NodeInput::Send(_)))] if node == "n1"));
    let report = AgentReport::NodeReleased { job: id, sluid: Sluid(7), epilog_failed: None, unkillable: None };
    assert_eq!(released(&job.report("n1", report)), [("n1", 7)]);
    assert_eq!(job.core.record().earlier.len(), 1);
    assert_eq!(waits(&job), (JobState::Expediting, Reason::None, true));
    assert_eq!(&job.replayed(), job.core.record());
}

#[test]
fn a_node_that_the_step_manager_gave_up_is_not_waited_for_when_the_controller_gives_it_up_too() {
    let mut job = hurried();
    lost_by_step_manager(&mut job, JobState::NodeFail, Reason::NodeDown, "n1");
    job.released("n0");
    assert_eq!(waits(&job), (JobState::Expediting, Reason::Cleaning, false));
    job.send(JobInput::NodeLost { node: "n1".to_owned(), sluid: Sluid(7) });
    assert_eq!(waits(&job), (JobState::Expediting, Reason::None, true));
    assert_eq!(&job.replayed(), job.core.record());
}

/// Its run is over but for a node that was lost: it goes back to the queue at once, and waits for that node there.
#[test]
fn an_expedited_job_that_waits_for_a_lost_node_only_goes_back_at_once_when_told_to() {
    let mut job = hurried();
    lost_by_step_manager(&mut job, JobState::Completed, Reason::None, "n1");
    job.released("n0");
    assert_eq!((job.state(), job.view().restarts), (JobState::Completing, 0));
    job.order(JobCommand::Requeue { hold: false }).unwrap();
    assert_eq!((job.view().restarts, waits(&job)), (1, (JobState::Expediting, Reason::Cleaning, false)));
    // The node comes back without the run, and is given back once.
    let out = job.send(JobInput::RunMissing { node: "n1".to_owned(), sluid: Sluid(7) });
    assert_eq!((released(&out), job.core.record().holds().len()), (vec![("n1", 7)], 0));
    assert!(job.view().eligible);
    assert_eq!(&job.replayed(), job.core.record());
}

#[test]
fn a_failed_script_is_expedited_only_if_an_epilog_fails_too() {
    let mut job = hurried();
    job.ended(JobState::Failed, 3);
    // Kept until all epilogs are through.
    assert_eq!(kept(&job.released("n0")), ["n0"]);
    assert_eq!(job.state(), JobState::Completing);
    let out = epilog_failed(&mut job, "n1");
    let drained = out.iter().any(
        |e| matches!(e, JobEffect::Tell(Letter::Node(node, NodeInput::Release { drain: Some(why), .. })) if node == "n1" && why == "Epilog error"),
    );
    assert!(drained, "{out:?}");
    assert_eq!((job.state(), job.view().eligible), (JobState::Expediting, true));
    assert_eq!(job.core.record().holds().len(), 1);
    assert_eq!(&job.replayed(), job.core.record());

    let mut fine = hurried();
    fine.ended(JobState::Failed, 3);
    fine.released("n0");
    let out = fine.released("n1");
    assert_eq!((fine.state(), released(&out)), (JobState::RequeueHold, vec![("n0", 7), ("n1", 7)]));
    assert_eq!(fine.core.record().holds(), []);

    let mut good = hurried();
    good.ended(JobState::Completed, 0);
    good.released("n0");
    epilog_failed(&mut good, "n1");
    assert_eq!(good.state(), JobState::Completed);
}

fn drained(out: &[JobEffect]) -> Vec<(&str, Option<&str>)> {
    out.iter()
        .filter_map(|e| match e {
            JobEffect::Tell(Letter::Node(node, NodeInput::Release { drain, .. })) => {
                Some((node.as_str(), drain.as_deref()))
            }
            _ => None,
        })
        .collect()
}

/// Also where the node would be kept for the next run, where its epilog failed too, and for a run that is not the newest.
#[test]
fn a_node_on_which_processes_of_a_job_are_left_is_drained() {
    let mut job = hurried();
    let (id, sluid) = (job.core.record().id, job.core.record().sluid);
    let left = |epilog_failed| AgentReport::NodeReleased {
        job: id,
        sluid,
        epilog_failed,
        unkillable: Some("processes that cannot be killed: [51]".to_owned()),
    };
    lost(&mut job, "n1");
    let out = job.report("n0", left(Some("exit 1".to_owned())));
    assert_eq!((drained(&out), kept(&out)), (vec![("n0", Some("Kill task failed"))], vec![]));
    assert_eq!(&job.replayed(), job.core.record());

    let mut earlier = hurried();
    lost(&mut earlier, "n1");
    earlier.allocate(&["n1", "n2"]);
    let out = earlier.report("n0", left(None));
    assert_eq!(drained(&out), [("n0", Some("Kill task failed"))]);
}

/// As a live 26.05.3 has it, for a code of `RequeueExit` too.
#[test]
fn a_failed_script_with_good_epilogs_goes_back_and_is_held() {
    for lines in [ENABLED, "SchedulerParameters=enable_expedited_requeue\nRequeueExit=5\nRequeueExitHold=6"] {
        for code in [1, 5, 6] {
            let mut job = running(expedited(), lines);
            job.ended(JobState::Failed, code);
            job.released("n0");
            job.released("n1");
            let view = job.view();
            assert_eq!((view.state, view.priority, view.restarts), (JobState::RequeueHold, 0, 1));
            assert_eq!(view.reason, Reason::Other("job requeued in held state".to_owned()));
            assert_eq!((view.exit.code, view.start_time), (code, None));
            assert_eq!(&job.replayed(), job.core.record());
            job.order(JobCommand::Release).unwrap();
            assert_eq!((job.state(), job.view().eligible), (JobState::Pending, true));
        }
    }
}

#[test]
fn a_script_that_a_signal_killed_or_that_succeeded_is_over_with_good_epilogs() {
    let mut job = hurried();
    let (id, sluid, at) = (job.core.record().id, job.core.record().sluid, job.now);
    let (state, reason) = (JobState::Failed, Reason::RaisedSignal(9));
    let exit = ExitStatus { code: 0, signal: Some(9) };
    job.report(
        "n0",
        AgentReport::JobEnded { job: id, sluid, state, reason, exit, derived: exit, at, lost: vec![], cause: None },
    );
    job.released("n0");
    job.released("n1");
    assert_eq!((job.state(), job.core.record().holds()), (JobState::Failed, vec![]));
    let mut job = hurried();
    job.ended(JobState::Completed, 0);
    job.released("n0");
    job.released("n1");
    assert_eq!(job.state(), JobState::Completed);
}

/// The node's own word may come before that of the batch host.
#[test]
fn an_epilog_that_failed_before_the_end_was_told_counts() {
    let mut job = hurried();
    epilog_failed(&mut job, "n1");
    job.ended(JobState::Failed, 3);
    job.released("n0");
    assert_eq!(job.state(), JobState::Expediting);
}

#[test]
fn an_expedited_job_that_is_requeued_by_hand_does_not_wait() {
    let mut job = hurried();
    job.command(ROOT, None, JobCommand::Requeue { hold: false }).0.unwrap();
    job.ended(JobState::Cancelled, 0);
    job.released("n0");
    job.released("n1");
    assert_eq!((job.state(), job.view().eligible, job.view().restarts), (JobState::Expediting, true, 1));
    assert_eq!(&job.replayed(), job.core.record());
}

#[test]
fn without_the_wish_or_the_site_a_lost_node_means_the_ordinary_delay() {
    for mut job in [running(spec(), ENABLED), running(expedited(), "")] {
        lost(&mut job, "n1");
        let out = job.released("n0");
        assert_eq!((kept(&out), released(&out)), (vec![], vec![("n0", 7)]));
        assert_eq!((job.state(), job.view().reason), (JobState::Pending, Reason::BeginTime));
    }
}

#[test]
fn a_job_that_is_cancelled_or_held_gives_back_what_was_kept_for_it() {
    for command in [JobCommand::Cancel, JobCommand::Hold { admin: false }] {
        let mut job = hurried();
        lost(&mut job, "n1");
        job.released("n0");
        let out = job.command(super::fixtures::ALICE, None, command).1;
        assert_eq!((released(&out), job.core.record().holds()), (vec![("n0", 7)], vec![]));
        assert_ne!(job.state(), JobState::Expediting);
        assert_eq!(&job.replayed(), job.core.record());
    }
    // While it is being cleaned, too.
    let mut job = hurried();
    job.ended(JobState::Failed, 3);
    job.released("n1");
    let out = job.command(super::fixtures::ALICE, None, JobCommand::Cancel).1;
    assert_eq!(released(&out), [("n1", 7)]);
    epilog_failed(&mut job, "n0");
    assert_eq!(job.state(), JobState::Failed);
}

#[test]
fn a_kept_node_that_goes_down_is_let_go_and_the_job_waits_on() {
    let mut job = hurried();
    lost(&mut job, "n1");
    job.released("n0");
    let out = job.send(JobInput::NodeLost { node: "n0".to_owned(), sluid: Sluid(7) });
    assert_eq!(released(&out), [("n0", 7)]);
    assert_eq!((job.state(), job.core.record().holds()), (JobState::Expediting, vec![]));
}

#[test]
fn a_repeated_report_does_not_give_a_kept_node_back() {
    let mut job = hurried();
    lost(&mut job, "n1");
    job.released("n0");
    let (job_id, sluid) = (job.core.record().id, Sluid(7));
    let again = AgentReport::NodeReleased { job: job_id, sluid, epilog_failed: None, unkillable: None };
    assert_eq!(released(&job.report("n0", again)), []);
    assert_eq!(released(&job.send(JobInput::RunMissing { node: "n0".to_owned(), sluid })), []);
}

#[test]
fn exit_codes_requeue_as_the_site_says() {
    let site = "RequeueExit=1-9,18\nRequeueExitHold=77";
    let end = |spec: JobSpec, code: u8| {
        let mut job = running(spec, site);
        job.ended(if code == 0 { JobState::Completed } else { JobState::Failed }, code);
        job.released("n0");
        job.released("n1");
        job
    };
    let job = end(spec(), 18);
    assert_eq!((job.state(), job.view().reason, job.view().restarts), (JobState::Pending, Reason::BeginTime, 1));
    let mut job = end(spec(), 77);
    assert_eq!((job.state(), job.view().reason), (JobState::SpecialExit, Reason::JobHeldUser));
    assert_eq!(job.view().priority, 0);
    job.order(JobCommand::Release).unwrap();
    assert_eq!(job.state(), JobState::Pending);
    job.now = job.now.plus(Duration::from_secs(120));
    job.send(JobInput::Timer(JobTimer::Eligible));
    assert!(job.view().eligible);
    assert_eq!(&job.replayed(), job.core.record());
    assert_eq!(end(spec(), 10).state(), JobState::Failed);
    assert_eq!(end(spec(), 0).state(), JobState::Completed);
    assert_eq!(end(JobSpec { requeue: Some(false), ..spec() }, 18).state(), JobState::Failed);
}

#[test]
fn only_batch_jobs_go_back_for_their_exit_code() {
    let mut job = running(JobSpec { kind: JobKind::Allocation, script: None, ..spec() }, "RequeueExit=1");
    job.ended(JobState::Failed, 1);
    job.released("n0");
    job.released("n1");
    assert_eq!(job.state(), JobState::Failed);
}

#[test]
fn a_job_is_put_into_special_exit_by_hand() {
    let mut job = running(spec(), "");
    job.order(JobCommand::RequeueSpecialExit).unwrap();
    job.ended(JobState::Cancelled, 0);
    job.released("n0");
    job.released("n1");
    assert_eq!((job.state(), job.view().start_time), (JobState::SpecialExit, None::<Timestamp>));
}

#[test]
fn no_kill_goes_on_without_the_lost_node_and_gives_it_back() {
    let mut job = running(JobSpec { no_kill: true, ..expedited() }, ENABLED);
    assert_eq!(released(&lost(&mut job, "n1")), [("n1", 7)]);
    assert_eq!((job.state(), job.core.record().holds().len()), (JobState::Running, 1));
    // The batch host is another matter.
    lost(&mut job, "n0");
    assert_eq!(job.state(), JobState::Expediting);
}

#[test]
fn a_job_that_was_requeued_too_often_unasked_is_held() {
    let mut job = running(spec(), "MaxBatchRequeue=1\nRequeueExit=3\nSchedulerParameters=requeue_delay=7");
    let fails = |job: &mut Bench| {
        job.ended(JobState::Failed, 3);
        job.released("n0");
        job.released("n1");
        let (view, record) = (job.view(), job.core.record());
        (view.state, view.reason, record.requeues_unasked)
    };
    assert_eq!(fails(&mut job), (JobState::Pending, Reason::BeginTime, 1));
    job.now = job.now.plus(Duration::from_secs(7));
    job.send(JobInput::Timer(JobTimer::Eligible));
    job.allocate(&["n0", "n1"]);
    job.started();
    assert_eq!(fails(&mut job), (JobState::Pending, Reason::JobHoldMaxRequeue, 2));
    assert_eq!(&job.replayed(), job.core.record());
    // His own hold does not weaken it.
    job.order(JobCommand::Hold { admin: false }).unwrap();
    assert_eq!(job.order(JobCommand::Release), Err(Refusal::AccessDenied));
    assert_eq!(job.view().reason, Reason::JobHoldMaxRequeue);
    job.command(ROOT, None, JobCommand::Release).0.unwrap();
    assert_eq!((job.core.record().hold, job.core.record().requeues_unasked), (None, 0));
}

#[test]
fn an_end_that_nobody_asked_for_counts_and_a_release_begins_anew() {
    let ended_after = |asked: Option<bool>| {
        let mut record = running(spec(), "").core.record().clone();
        let (state, reason, exit) = (JobState::NodeFail, Reason::NodeDown, ExitStatus::SUCCESS);
        let then = Afterwards::Requeue { hold: None, delay: true };
        if let Some(asked) = asked {
            let ending =
                Ending { state, reason: reason.clone(), then, by: asked.then_some(0), at: None, unasked: !asked };
            record.apply(&JobEvent::Ending(ending)).unwrap();
        }
        let end = End {
            state,
            reason,
            exit,
            derived: exit,
            at: Timestamp::from_secs(20_000),
            then,
            cause: None,
            by: None,
            sluid: None,
        };
        record.apply(&JobEvent::Ended(end)).unwrap();
        record
    };
    let counted = [None, Some(false), Some(true)].map(|asked| ended_after(asked).requeues_unasked);
    assert_eq!(counted, [1, 1, 0]);
    let mut record = ended_after(Some(false));
    record.apply(&JobEvent::Released { priority: 1 }).unwrap();
    assert_eq!(record.requeues_unasked, 0);
}

#[test]
fn a_failed_prolog_holds_nobody_where_the_site_says_so() {
    let (mut job, _) = Bench::new(record(7, spec()));
    job.send(JobInput::Site(site("SchedulerParameters=nohold_on_prolog_fail")));
    job.allocate(&["n0"]);
    let (id, sluid) = (job.core.record().id, job.core.record().sluid);
    let (reason, detail) = (Reason::PrologFailure, "exit 1".to_owned());
    job.report("n0", AgentReport::JobLaunchFailed { job: id, sluid, reason, detail, drain_node: true });
    let view = job.view();
    assert_eq!((view.state, view.reason, view.restarts), (JobState::Pending, Reason::BeginTime, 1));
}
