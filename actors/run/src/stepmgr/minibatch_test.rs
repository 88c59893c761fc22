//! Minibatch: arrays, lists, dependencies, priorities, retries, and what a restart of the step manager leaves of them.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::stepmgr::{
    builders::{bytes, exact, run, step},
    harness::Harness,
    state::RunPhase,
};
use garrick_events::steps::event::StepEvent;
use garrick_model::{
    batch::{BatchMembers, CommandList, GivenNumbers, RetryOn, RetryPolicy, StepBatch},
    messages::{
        step::{CommandToStepMgr, StepMgrToCommand},
        stepd::NodeToStepd,
    },
    spec::{JobKind, NodeCount, StepSharing},
    state::{JobState, Reason, StepState},
    step_selector::WhichSteps,
    view::StepView,
};

const OK: ExitStatus = ExitStatus::SUCCESS;

fn code(code: u8) -> ExitStatus {
    ExitStatus { code, signal: None }
}

fn batch(cpus: &[u32]) -> Harness {
    Harness::ready(run(JobKind::Batch, cpus), StepMgrConfig::default())
}

fn task(text: &str) -> StepKey {
    text.parse().unwrap()
}

fn after(text: &str, spec: StepSpec) -> StepSpec {
    StepSpec { dependency: Some(text.parse().unwrap()), ..spec }
}

fn retried(count: u32, delay_secs: u32, on: &[RetryOn], spec: StepSpec) -> StepSpec {
    StepSpec { retry: Some(RetryPolicy { count, delay_secs, on: on.to_vec() }), ..spec }
}

fn waiting(harness: &Harness) -> Vec<(String, Reason)> {
    let shown = |view: &StepView| match &view.waiting {
        Some(which) => which.to_string(),
        None => view.id.key().to_string(),
    };
    let views = harness.core.views();
    views.iter().filter(|v| v.state == StepState::Pending).map(|v| (shown(v), v.reason.clone())).collect()
}

fn state(harness: &Harness, key: &str) -> Option<StepState> {
    harness.core.ledger().end_of(task(key)).map(|e| e.state)
}

#[test]
fn an_array_is_one_number_and_runs_no_more_at_a_time_than_its_limit() {
    let mut harness = batch(&[4]);
    let client = harness.enqueue_array(exact("a", 1), "0-9%2");
    harness.settle();
    let given = Some(GivenNumbers { first: 0, count: 10, array: true });
    assert_eq!(
        harness.heard[&client],
        [StepMgrToCommand::Enqueued { given, declined: Vec::new(), warnings: Vec::new() }]
    );
    assert_eq!(harness.running_keys(), ["0_0", "0_1"]);
    assert_eq!(waiting(&harness), [("0_[2-9%2]".to_owned(), Reason::JobArrayTaskLimit)]);
    harness.exit(task("0_1"), OK);
    assert_eq!(harness.running_keys(), ["0_0", "0_2"]);
    harness.enqueue(vec![exact("b", 1)]);
    harness.settle();
    assert_eq!(harness.running_keys(), ["0_0", "0_2", "1"]);
}

#[test]
fn a_script_runs_once_in_the_room_that_it_asks_for() {
    let mut harness = batch(&[4]);
    harness
        .enqueue(vec![StepSpec { script: Some(bytes("#!/bin/sh")), argv: Vec::new(), ..exact("a", 3) }, exact("b", 2)]);
    harness.settle();
    assert_eq!(harness.running().iter().filter(|r| r.2 == task("0")).count(), 1);
    assert_eq!(harness.running_keys(), ["0"]);
    harness.exit_code(0, 0);
    assert_eq!(harness.running_keys(), ["1"]);
}

#[test]
fn lines_of_a_list_get_numbers_in_order_and_those_that_cannot_run_are_named() {
    let mut harness = batch(&[2]);
    let mut list = CommandList::default();
    for (line, spec) in [("x", 0), ("y", 1), ("z", 0)] {
        list.push(["/bin/echo", line], spec);
    }
    let too_large = StepSpec { tasks: Some(9), ..exact("", 1) };
    let specs = vec![StepSpec { argv: Vec::new(), ..exact("a", 1) }, too_large];
    let client = harness.enqueue_batch(StepBatch { specs, members: BatchMembers::Commands(list) });
    harness.settle();
    let Some(StepMgrToCommand::Enqueued { given, declined, .. }) = harness.last(client) else { panic!() };
    assert_eq!(*given, Some(GivenNumbers { first: 0, count: 2, array: false }));
    assert_eq!(declined.iter().map(|(place, _)| *place).collect::<Vec<u32>>(), [1]);
    let argv: Vec<Vec<u8>> =
        harness.nodes[0].processes.values().map(|p| p.spawn.argv.last().unwrap().to_vec()).collect();
    assert!(argv.contains(&b"x".to_vec()) && argv.contains(&b"z".to_vec()), "{argv:?}");
}

#[test]
fn tasks_of_an_array_know_their_index() {
    let mut harness = batch(&[1]);
    harness.enqueue_array(exact("a", 1), "7");
    harness.settle();
    let spawn = &harness.nodes[0].processes.values().find(|p| p.spawn.argv[0].as_slice() == b"a").unwrap().spawn;
    let variables: Vec<String> = spawn.extra_env.iter().map(|e| String::from_utf8_lossy(e).into_owned()).collect();
    for one in ["SLURM_STEP_ID=0", "SLURM_STEP_ARRAY_TASK_ID=7"] {
        assert!(variables.contains(&one.to_owned()), "{one} in {variables:?}");
    }
    let garrick_model::messages::launcher::FdSource::File { path, .. } = &spawn.stdio[1] else { panic!() };
    assert_eq!(path, "/home/alice/demo/slurm-502.0_7.out");
}

#[test]
fn a_step_waits_for_those_it_names_and_is_cancelled_when_that_can_never_be() {
    let mut harness = batch(&[4]);
    harness.enqueue(vec![exact("a", 1), exact("b", 1)]);
    harness.settle();
    harness.enqueue(vec![
        after("afterok:0,afterok:1", exact("ok", 1)),
        after("afternotok:0", exact("notok", 1)),
        after("afterany:0:1", exact("any", 1)),
        after("after:0", exact("begun", 1)),
    ]);
    harness.settle();
    assert_eq!(harness.running_steps(), [0, 1, 5]);
    assert_eq!(waiting(&harness), ["2", "3", "4"].map(|n| (n.to_owned(), Reason::Dependency)));
    harness.exit_code(0, 0);
    assert_eq!(state(&harness, "3"), Some(StepState::Cancelled));
    harness.exit_code(1, 7);
    assert_eq!(state(&harness, "2"), Some(StepState::Cancelled));
    assert_eq!(harness.running_steps(), [4, 5]);
    // What waited for a step that was cancelled is cancelled in turn.
    harness.enqueue(vec![after("afterok:4", exact("x", 1))]);
    harness.settle();
    harness.enqueue(vec![after("afterok:6", exact("y", 1))]);
    harness.settle();
    harness.exit_code(4, 1);
    assert_eq!((state(&harness, "6"), state(&harness, "7")), (Some(StepState::Cancelled), Some(StepState::Cancelled)));
}

#[test]
fn any_of_several_conditions_is_enough_where_asked_for() {
    let mut harness = batch(&[4]);
    harness.enqueue(vec![exact("a", 1), exact("b", 1)]);
    harness.settle();
    harness.enqueue(vec![after("afterok:0?afterok:1", exact("x", 1))]);
    harness.settle();
    harness.exit_code(0, 1);
    assert_eq!(harness.running_steps(), [1]);
    harness.exit_code(1, 0);
    assert_eq!(harness.running_steps(), [2]);
}

#[test]
fn a_step_waits_for_a_whole_array_or_task_by_task() {
    let mut harness = batch(&[4]);
    harness.enqueue_array(exact("a", 1), "1-2");
    harness.settle();
    harness.enqueue(vec![after("afterok:0_*", exact("all", 1))]);
    harness.enqueue_array(after("aftercorr:0", exact("each", 1)), "1-3");
    harness.settle();
    assert_eq!(harness.running_keys(), ["0_1", "0_2"]);
    // Task 3 has no task to correspond to.
    assert_eq!(state(&harness, "2_3"), Some(StepState::Cancelled));
    harness.exit(task("0_2"), OK);
    assert_eq!(harness.running_keys(), ["0_1", "2_2"]);
    harness.exit(task("0_1"), OK);
    assert_eq!(harness.running_keys(), ["1", "2_1", "2_2"]);
}

#[test]
fn an_unknown_dependency_is_declined_and_the_other_steps_go_on() {
    let mut harness = batch(&[4]);
    let client = harness.enqueue(vec![after("afterok:77", exact("a", 1)), exact("b", 1)]);
    harness.settle();
    let Some(StepMgrToCommand::Enqueued { given, declined, .. }) = harness.last(client) else { panic!() };
    assert_eq!(*given, Some(GivenNumbers { first: 0, count: 1, array: false }));
    assert_eq!(*declined, [(0, Refusal::InvalidStep("502.77".into()))]);
    let client = harness.enqueue(vec![after("aftercorr:0", exact("a", 1))]);
    harness.settle();
    assert!(
        matches!(harness.last(client), Some(StepMgrToCommand::Enqueued { given: None, declined, .. }) if declined.len() == 1)
    );
}

#[test]
fn the_greater_priority_goes_first() {
    let mut harness = batch(&[1]);
    harness.enqueue(vec![exact("a", 1), exact("b", 1), StepSpec { priority: 5, ..exact("c", 1) }]);
    harness.settle();
    harness.exit_code(2, 0);
    assert_eq!(harness.running_steps(), [0]);
    let late = StepSpec { priority: 9, ..exact("d", 1) };
    harness.enqueue(vec![late]);
    harness.settle();
    harness.exit_code(0, 0);
    assert_eq!(harness.running_steps(), [3]);
}

#[test]
fn a_failed_step_is_tried_again_after_its_delay_on_chosen_codes_only() {
    let mut harness = batch(&[2]);
    let on = [RetryOn::Codes(3, 5)];
    harness.enqueue(vec![retried(2, 10, &on, exact("a", 1)), retried(2, 0, &on, exact("b", 1))]);
    harness.settle();
    harness.exit_code(1, 9);
    assert_eq!(state(&harness, "1"), Some(StepState::Failed));
    harness.exit_code(0, 4);
    assert_eq!((state(&harness, "0"), harness.running_steps()), (None, Vec::new()));
    assert_eq!(waiting(&harness), [("0".to_owned(), Reason::BeginTime)]);
    assert_eq!(harness.core.counts().queued, 1);
    harness.advance(Duration::from_secs(10));
    assert_eq!(harness.running_steps(), [0]);
    harness.exit_code(0, 3);
    harness.advance(Duration::from_secs(10));
    let retry = harness.nodes[0].processes.values().filter(|p| !p.ended);
    let told = retry.flat_map(|p| &p.spawn.extra_env).any(|e| e.as_slice() == b"GARRICK_STEP_RETRY=2");
    assert!(told);
    harness.exit_code(0, 3);
    assert_eq!(state(&harness, "0"), Some(StepState::Failed));
    let retries = harness.journal.iter().filter(|e| matches!(e, StepEvent::Retried { .. })).count();
    assert_eq!(retries, 2);
}

#[test]
fn a_step_on_a_lost_node_is_tried_on_another_only_if_that_was_asked_for() {
    let mut facts = run(JobKind::Batch, &[1, 1]);
    let mut spec = facts.spec.as_ref().clone();
    spec.no_kill = true;
    facts.spec = Arc::new(spec);
    let mut harness = Harness::ready(facts, StepMgrConfig::default());
    harness.enqueue(vec![exact("a", 1), retried(1, 0, &[RetryOn::NodeFail], exact("b", 1))]);
    harness.settle();
    harness.lose(1);
    harness.settle();
    assert_eq!(harness.running_steps(), [0]);
    harness.exit_code(0, 0);
    assert_eq!(harness.running_steps(), [1]);
    harness.exit_code(1, 0);
    assert_eq!(state(&harness, "1"), Some(StepState::Completed));
}

#[test]
fn waiting_steps_are_cancelled_by_range_and_running_ones_left_where_asked_for() {
    let mut harness = batch(&[1]);
    harness.enqueue_array(exact("a", 1), "0-99");
    harness.settle();
    let client = harness.connect();
    let cancel = |steps: &[&str], pending_only| CommandToStepMgr::SignalSteps {
        steps: steps.iter().map(|s| s.parse().unwrap()).collect(),
        pending_only,
        signal: None,
    };
    harness.say(client, cancel(&["0_[10-20]", "0_[500]"], false));
    harness.settle();
    let missing = Refusal::InvalidStep("502.0_500".into());
    assert_eq!(harness.last(client), Some(&StepMgrToCommand::PerStep(vec![Ok(11), Err(missing)])));
    assert_eq!(waiting(&harness), [("0_[1-9,21-99]".to_owned(), Reason::Resources)]);
    harness.say(client, cancel(&["*"], true));
    harness.settle();
    assert_eq!(harness.last(client), Some(&StepMgrToCommand::PerStep(vec![Ok(88)])));
    assert_eq!(harness.running_keys(), ["0_0"]);
    let withdrawn = harness.journal.iter().filter(|e| matches!(e, StepEvent::Withdrawn { .. })).count();
    assert_eq!(withdrawn, 2);
}

#[test]
fn who_attaches_to_an_array_is_told_to_name_a_task() {
    let mut harness = batch(&[1]);
    harness.enqueue_array(exact("a", 1), "3-9");
    harness.settle();
    let attach = |harness: &mut Harness, step: &str| {
        let client = harness.connect();
        harness.say(client, CommandToStepMgr::Attach { step: step.parse().unwrap() });
        harness.settle();
        harness.last(client).cloned()
    };
    let name =
        |task: &str| Some(StepMgrToCommand::Refused(Refusal::StepArray { array: "502.0".into(), task: task.into() }));
    assert_eq!(attach(&mut harness, "502.0"), name("502.0_3"));
    harness.exit(task("0_3"), OK);
    assert_eq!(attach(&mut harness, "502.0"), name("502.0_4"));
    assert!(matches!(attach(&mut harness, "502.0_4"), Some(StepMgrToCommand::Attached { .. })));
    let unknown = |step: &str| Some(StepMgrToCommand::Refused(Refusal::InvalidStep(step.into())));
    assert_eq!(attach(&mut harness, "502.0_10"), unknown("502.0_10"));
    assert_eq!(attach(&mut harness, "502.1"), unknown("502.1"));
}

#[test]
fn who_attaches_and_sends_more_than_was_granted_is_refused() {
    let mut harness = batch(&[1]);
    harness.enqueue_array(exact("a", 1), "3-9");
    harness.settle();
    let client = harness.connect();
    harness.say(client, CommandToStepMgr::Attach { step: "502.0_3".parse().unwrap() });
    harness.settle();
    let too_much = vec![b'x'; garrick_model::messages::step::STDIN_WINDOW as usize + 1];
    harness.say(client, CommandToStepMgr::AttachedInput { rank: None, data: serde_bytes::ByteBuf::from(too_much) });
    harness.settle();
    let last = harness.last(client);
    assert!(matches!(last, Some(StepMgrToCommand::Refused(Refusal::Internal(_)))), "{last:?}");
}

#[test]
fn waiting_for_an_array_ends_with_its_last_task_and_for_any_with_its_first() {
    let mut harness = batch(&[2]);
    harness.enqueue_array(exact("a", 1), "1-2");
    harness.settle();
    let all = harness.wait(&["0"], 0);
    let some = harness.connect();
    let steps: Vec<WhichSteps> = vec!["0".parse().unwrap()];
    harness.say(some, CommandToStepMgr::Wait { steps, any: true, progress_ms: 0, groups: false, stay: false });
    let unknown = harness.wait(&["0_9"], 0);
    harness.settle();
    assert_eq!(harness.last(unknown), Some(&StepMgrToCommand::Refused(Refusal::InvalidStep("502.0_9".into()))));
    harness.exit(task("0_1"), code(5));
    assert!(matches!(harness.last(some), Some(StepMgrToCommand::Drained { worst, .. }) if *worst == code(5)));
    assert_eq!(harness.last(all), None);
    harness.exit(task("0_2"), OK);
    assert!(matches!(harness.last(all), Some(StepMgrToCommand::Drained { worst, .. }) if *worst == code(5)));
}

/// As a live 26.05.3 has it: what runs holds `swait` up, and what was handed over.
#[test]
fn a_blocking_step_that_waits_does_not_hold_up_who_waits_for_the_queue() {
    let mut harness = batch(&[1]);
    harness.enqueue(vec![exact("a", 1)]);
    harness.settle();
    harness.srun(exact("b", 1));
    harness.settle();
    let all = harness.wait(&[], 0);
    harness.settle();
    assert_eq!(harness.last(all), None);
    harness.exit(task("0"), code(5));
    assert!(matches!(harness.last(all), Some(StepMgrToCommand::Drained { worst, .. }) if *worst == code(5)));
    assert_eq!(harness.running_steps(), [1]);
    // One that runs does.
    let all = harness.wait(&[], 0);
    harness.settle();
    assert_eq!(harness.last(all), None);
    harness.exit(task("1"), OK);
    assert!(matches!(harness.last(all), Some(StepMgrToCommand::Drained { .. })));
}

#[test]
fn large_steps_that_wait_behind_one_another_share_one_emptying_of_their_node() {
    let config = StepMgrConfig { max_bypass: 2, bypass_per_cpu: 1, ..StepMgrConfig::default() };
    let mut harness = Harness::ready(run(JobKind::Batch, &[2]), config);
    harness.enqueue_array(exact("small", 1), "0-199");
    harness.settle();
    let whole = StepSpec { nodes: Some(NodeCount { min: 1, max: Some(1) }), priority: 1, ..exact("large", 2) };
    harness.enqueue_array(StepSpec { sharing: StepSharing::Exact, ..whole }, "0-1");
    harness.settle();
    let mut small = 0;
    while !harness.running_keys().contains(&"1_0".to_owned()) {
        let first = harness.running_keys().into_iter().find(|k| k.starts_with("0_")).unwrap();
        harness.exit(task(&first), OK);
        small += 1;
        assert!(small < 200, "the large step never started");
    }
    harness.exit(task("1_0"), OK);
    assert_eq!(harness.running_keys(), ["1_1"]);
}

#[test]
fn after_a_restart_what_ran_is_taken_up_and_what_waits_keeps_waiting() {
    let mut harness = batch(&[2]);
    harness.enqueue_array(exact("a", 1), "0-5%2");
    harness.settle();
    harness.enqueue(vec![after("afterok:0_*", exact("last", 1))]);
    harness.settle();
    harness.exit(task("0_0"), OK);
    assert_eq!(harness.running_keys(), ["0_1", "0_2"]);
    harness.restart_manager();
    harness.settle();
    harness.core.check().unwrap();
    assert_eq!(harness.running_keys(), ["0_1", "0_2"]);
    for n in 1..6 {
        harness.exit(task(&format!("0_{n}")), OK);
    }
    assert_eq!(harness.running_steps(), [1]);
    harness.exit_code(1, 0);
    assert_eq!(harness.core.counts().done, 7);
    assert_eq!(harness.core.counts().queued + harness.core.counts().running, 0);
}

#[test]
fn an_end_that_happened_while_the_manager_was_away_is_learned_from_the_node() {
    let mut harness = batch(&[1]);
    harness.enqueue(vec![retried(1, 0, &[], exact("a", 1)), exact("b", 1)]);
    harness.settle();
    let (node, token, ..) = harness.running().into_iter().find(|r| r.2 == task("0")).unwrap();
    // The manager dies with the message on its way.
    harness.end_process(node, token, code(7));
    harness.settle_nodes();
    harness.restart_manager();
    harness.settle();
    assert_eq!(harness.core.ledger().batches[&0].tried.get(&0).or(None), None);
    let starts =
        harness.journal.iter().filter(|e| matches!(e, StepEvent::Started { step, .. } if *step == task("0"))).count();
    assert_eq!((starts, state(&harness, "0")), (2, None));
    harness.exit_code(0, 0);
    assert_eq!(state(&harness, "0"), Some(StepState::Completed));
}

#[test]
fn steps_of_a_launcher_that_died_too_have_an_unknown_exit_and_do_not_run_again_unless_asked() {
    let mut harness = Harness::ready(run(JobKind::Allocation, &[2]), StepMgrConfig::default());
    harness.enqueue(vec![exact("a", 1), retried(1, 0, &[RetryOn::NodeFail], exact("b", 1)), exact("c", 1)]);
    harness.settle();
    assert_eq!(harness.running_steps(), [0, 1]);
    harness.forget_node(0);
    harness.restart_manager();
    harness.settle();
    assert_eq!(state(&harness, "0"), Some(StepState::Failed));
    assert_eq!(harness.running_steps(), [1, 2]);
    assert_eq!(harness.core.phase(), RunPhase::Running);
}

/// It is among those that wait when all of them are withdrawn, and came back to them afterwards.
#[test]
fn a_step_that_never_reached_its_node_ends_with_its_job() {
    let mut harness = batch(&[1]);
    harness.enqueue_array(exact("a", 1), "0-2");
    harness.settle();
    harness.lose_orders(0);
    harness.restart_manager();
    let end = NodeToStepd::EndJob { state: JobState::Cancelled, reason: Reason::None, lost: Vec::new() };
    harness.tell_manager(StepMgrInput::Agent(end));
    harness.settle();
    harness.core.check().unwrap();
    let states = ["0_0", "0_1", "0_2"].map(|key| state(&harness, key));
    assert_eq!(states, [Some(StepState::Cancelled); 3]);
    assert_eq!(harness.core.counts().queued + harness.core.counts().running, 0);
}

#[test]
fn a_start_whose_record_was_lost_is_taken_up_all_the_same() {
    let mut harness = batch(&[1]);
    harness.enqueue(vec![exact("a", 1), exact("b", 1)]);
    harness.settle();
    harness.journal.retain(|e| !matches!(e, StepEvent::Started { step, .. } if *step == task("0")));
    harness.restart_manager();
    harness.settle();
    harness.core.check().unwrap();
    assert!(harness.running_steps().contains(&0));
    let launched = harness.nodes[0].processes.values().filter(|p| p.spawn.argv[0].as_slice() == b"a").count();
    assert_eq!(launched, 1);
    harness.exit_code(0, 2);
    assert_eq!(harness.core.ledger().end_of(task("0")).unwrap().exit, code(2));
}

#[test]
fn a_shepherd_that_comes_back_keeps_its_steps_and_gets_new_ones_only_then() {
    let mut harness = batch(&[1, 1]);
    harness.enqueue_array(exact("a", 1), "0-3");
    harness.settle();
    assert_eq!(harness.running_keys(), ["0_0", "0_1"]);
    harness.away(1);
    harness.settle();
    harness.exit(task("0_1"), code(3));
    assert_eq!(harness.running_keys(), ["0_0"]);
    harness.back(1);
    harness.settle();
    assert_eq!(harness.core.ledger().end_of(task("0_1")).unwrap().exit, code(3));
    assert_eq!(harness.running_keys(), ["0_0", "0_2"]);
}

#[test]
fn with_a_full_disk_nothing_is_accepted_or_started_and_what_runs_goes_on() {
    let mut harness = batch(&[1]);
    harness.enqueue(vec![exact("a", 1), exact("b", 1)]);
    harness.settle();
    harness.tell_manager(StepMgrInput::JournalBehind { detail: "No space left on device".into() });
    harness.exit_code(0, 3);
    assert_eq!(harness.core.ledger().end_of(task("0")).unwrap().exit, code(3));
    assert_eq!(harness.running_keys(), Vec::<String>::new());
    let srun = harness.srun(exact("c", 1));
    harness.settle();
    assert_eq!(harness.finished(srun), None);
    harness.tell_manager(StepMgrInput::JournalCaughtUp);
    harness.settle();
    assert_eq!(harness.running_steps(), [2]);
    let mut out = Vec::new();
    let client = harness.connect();
    harness.settle();
    let batch = Box::new(StepBatch::one(exact("d", 1)));
    let message = CommandToStepMgr::Enqueue { request: RequestId(8, 8), batch };
    harness.core.handle(harness.now, StepMgrInput::Client { client, message }, &mut out);
    let [StepMgrEffect::Journal { durable: Some(record), .. }] = out.as_slice() else { panic!("{out:?}") };
    let refused = StepMgrInput::JournalRefused { record: *record, detail: "No space left on device".into() };
    let mut out = Vec::new();
    harness.core.handle(harness.now, refused, &mut out);
    assert!(
        matches!(&out[0], StepMgrEffect::ToClient { message: StepMgrToCommand::Refused(Refusal::Internal(why)), .. } if why.contains("No space"))
    );
    harness.core.check().unwrap();
}

#[test]
fn a_million_lines_are_a_few_rows() {
    let mut harness = batch(&[1]);
    harness.srun(exact("busy", 1));
    harness.settle();
    let mut list = CommandList::default();
    for n in 0..100_000u32 {
        list.push(["/bin/true".to_owned(), n.to_string()], 0);
    }
    let spec = StepSpec { argv: Vec::new(), ..step("list") };
    harness.enqueue_batch(StepBatch { specs: vec![spec], members: BatchMembers::Commands(list) });
    harness.settle();
    assert_eq!(harness.core.counts().queued, 100_000);
    assert_eq!(waiting(&harness), [("[1-100000]".to_owned(), Reason::Resources)]);
}

/// Two CPUs, an array of which one task has ended, and what is lined up then.
fn with_lines(tasks: &str) -> Harness {
    let config = StepMgrConfig { line_length: 3, pace_window: Duration::ZERO, ..StepMgrConfig::default() };
    let mut harness = Harness::ready(run(JobKind::Batch, &[2]), config);
    harness.enqueue_array(exact("a", 1), tasks);
    harness.settle();
    assert_eq!(harness.running_keys(), ["0_0", "0_1"]);
    harness.exit(task("0_0"), OK);
    harness
}

fn lined_up(harness: &Harness) -> Vec<usize> {
    let mut lines: Vec<usize> = harness.nodes[0].lines.iter().map(|(_, line)| line.len()).collect();
    lines.sort_unstable();
    lines
}

#[test]
fn short_steps_are_lined_up_and_take_over_one_anothers_place() {
    let mut harness = with_lines("0-19");
    assert_eq!((harness.running_keys(), lined_up(&harness)), (vec!["0_1".into(), "0_2".into()], vec![3]));
    assert_eq!((harness.core.counts().running, harness.core.ledger().counts.running), (2, 5), "as users see it");
    harness.exit(task("0_1"), OK);
    assert_eq!((harness.running_keys(), lined_up(&harness)), (vec!["0_2".into(), "0_6".into()], vec![3, 3]));
    for n in 2..20 {
        assert!(harness.running().iter().filter(|r| r.2 != StepKey::BATCH).count() <= 2);
        harness.exit(task(&format!("0_{n}")), code(n % 2));
    }
    for n in 0..20 {
        let wanted = if n > 1 && n % 2 == 1 { StepState::Failed } else { StepState::Completed };
        assert_eq!(state(&harness, &format!("0_{n}")), Some(wanted), "{n}");
    }
    assert_eq!(harness.core.counts().running, 0);
}

#[test]
fn arrays_with_a_limit_keep_it_and_what_is_given_back_is_next_again() {
    let mut harness = with_lines("0-19%3");
    assert_eq!(lined_up(&harness), [1], "two run, one more is all");
    harness.give_back(0);
    harness.settle();
    assert!(lined_up(&harness).is_empty(), "until it is known again how long they take");
    assert_eq!(harness.core.counts().running, 2);
    harness.exit(task("0_2"), OK);
    assert_eq!(harness.running_keys(), ["0_1", "0_3"]);
}

#[test]
fn a_step_that_is_lined_up_can_be_cancelled_without_having_run() {
    let mut harness = with_lines("0-19");
    let cancel = |steps: &str| NodeToStepd::SignalSteps {
        steps: steps.parse().unwrap(),
        pending_only: false,
        signal: None,
        by: None,
    };
    harness.tell(cancel("0_4"));
    harness.settle();
    assert_eq!(state(&harness, "0_4"), Some(StepState::Cancelled));
    assert_eq!(harness.running_keys(), ["0_1", "0_2"]);
    harness.exit(task("0_2"), OK);
    assert_eq!(harness.running_keys(), ["0_1", "0_3"]);
    harness.exit(task("0_3"), OK);
    assert_eq!(harness.running_keys(), ["0_1", "0_5"]);
    harness.tell(cancel("0"));
    harness.settle();
    harness.advance(Duration::from_secs(40));
    for n in [1, 5, 6, 7, 19] {
        assert_eq!(state(&harness, &format!("0_{n}")), Some(StepState::Cancelled), "{n}");
    }
    assert_eq!((harness.core.counts().queued, harness.core.counts().running), (0, 0));
}

#[test]
fn what_was_lined_up_survives_a_restart_of_the_manager() {
    let mut harness = with_lines("0-9");
    harness.restart_manager();
    harness.settle();
    for _ in 0..10 {
        let running = harness.running();
        if let Some((node, token, ..)) = running.iter().find(|r| r.2 != StepKey::BATCH) {
            harness.end_process(*node, *token, OK);
        }
        harness.settle();
    }
    assert!((0..10).all(|n| state(&harness, &format!("0_{n}")) == Some(StepState::Completed)));
}

fn cancel(harness: &mut Harness, steps: &str, signal: Option<i32>) {
    let steps = steps.parse().unwrap();
    harness.tell(NodeToStepd::SignalSteps { steps, pending_only: false, signal, by: None });
    harness.settle();
}

#[test]
fn a_lined_up_step_that_is_killed_does_not_run_afterwards() {
    let mut harness = with_lines("0-19");
    cancel(&mut harness, "0_4", Some(9));
    harness.exit(task("0_2"), OK);
    harness.exit(task("0_3"), OK);
    assert_eq!(harness.running_keys(), ["0_1", "0_5"]);
    let end = harness.core.ledger().end_of(task("0_4")).unwrap();
    assert_eq!((end.state, end.exit), (StepState::Failed, ExitStatus { code: 0, signal: Some(9) }));
}

#[test]
fn a_step_that_moved_up_keeps_its_place_over_a_restart() {
    let mut harness = with_lines("0-19");
    harness.exit(task("0_2"), OK);
    assert_eq!(harness.running_keys(), ["0_1", "0_3"]);
    harness.restart_manager();
    harness.settle();
    assert_eq!(harness.running_keys(), ["0_1", "0_3"], "nothing runs beside them");
    assert_eq!(harness.core.counts().running, 2);
    harness.exit(task("0_3"), OK);
    harness.exit(task("0_1"), OK);
    assert_eq!(harness.running().iter().filter(|r| r.2 != StepKey::BATCH).count(), 2);
}

#[test]
fn steps_given_back_count_once_as_begun() {
    let mut harness = with_lines("0-5");
    harness.enqueue(vec![after("after:0", exact("late", 1))]);
    harness.settle();
    for _ in 0..4 {
        harness.give_back(0);
        harness.settle();
        let next = harness.running().into_iter().find(|r| r.2 != StepKey::BATCH).unwrap();
        assert!(state(&harness, "1").is_none() && !harness.running_keys().contains(&"1".to_owned()));
        harness.end_process(next.0, next.1, OK);
        harness.settle();
        if (0..6).all(|n| state(&harness, &format!("0_{n}")).is_some()) {
            break;
        }
    }
}

#[test]
fn nothing_is_kept_for_a_row_whose_last_step_was_lined_up() {
    let config = StepMgrConfig {
        line_length: 3,
        pace_window: Duration::ZERO,
        max_bypass: 4,
        bypass_per_cpu: 1,
        ..StepMgrConfig::default()
    };
    let mut harness = Harness::ready(run(JobKind::Batch, &[1]), config);
    harness.enqueue_array(exact("a", 1), "0-4");
    harness.settle();
    for n in 0..5 {
        harness.exit(task(&format!("0_{n}")), OK);
    }
    for step in 1..20 {
        let client = harness.srun(exact("x", 1));
        harness.settle();
        harness.exit_code(step, 0);
        assert_eq!(harness.finished(client), Some((StepState::Completed, OK)), "{step}");
    }
}

#[test]
fn no_step_is_lined_up_on_a_node_out_of_reach() {
    let config = StepMgrConfig { line_length: 3, pace_window: Duration::ZERO, ..StepMgrConfig::default() };
    let mut harness = Harness::ready(run(JobKind::Batch, &[1, 1]), config);
    harness.enqueue_array(exact("a", 1), "0-19");
    harness.settle();
    harness.away(1);
    harness.settle();
    let elsewhere = harness.running().into_iter().find(|r| r.0 == 1).unwrap();
    harness.end_process(1, elsewhere.1, OK);
    harness.back(1);
    for _ in 0..40 {
        harness.settle();
        let Some(next) = harness.running().into_iter().find(|r| r.2 != StepKey::BATCH) else { break };
        harness.end_process(next.0, next.1, OK);
    }
    harness.settle();
    assert!((0..20).all(|n| state(&harness, &format!("0_{n}")) == Some(StepState::Completed)));
}

/// A shepherd was killed with orders that it had not handed to its launcher. The next one took the launcher over, which knew
/// nothing of them, and the steps were recorded as "exit unknown" although nothing of them had run.
#[test]
fn orders_that_died_with_a_shepherd_are_given_again() {
    let mut harness = Harness::ready(run(JobKind::Batch, &[1, 1]), StepMgrConfig::default());
    harness.enqueue_array(exact("a", 1), "0-3");
    harness.settle();
    let lost = harness.running().into_iter().find(|r| r.0 == 1).unwrap().2;
    harness.away(1);
    harness.settle();
    harness.lose_orders(1);
    harness.back(1);
    harness.settle();
    assert!(harness.running().iter().any(|r| r.2 == lost), "{:?} {:?}", lost, harness.running());
    for _ in 0..8 {
        let Some(next) = harness.running().into_iter().find(|r| r.2 != StepKey::BATCH) else { break };
        harness.end_process(next.0, next.1, OK);
        harness.settle();
    }
    assert!((0..4).all(|n| state(&harness, &format!("0_{n}")) == Some(StepState::Completed)));
}

#[test]
fn what_never_ran_is_said_and_counts_as_failed() {
    let mut harness = batch(&[2]);
    harness.enqueue(vec![exact("x", 1)]);
    harness.settle();
    harness.enqueue(vec![after("afterok:0", exact("y", 1))]);
    harness.enqueue(vec![exact("/nosuch/program", 1)]);
    harness.settle();
    harness.exit_code(0, 3);
    let text: String = harness.files.iter().map(|(_, text)| text.as_str()).collect();
    assert!(text.contains("step 502.1 does not run: its dependency can never be satisfied"), "{text}");
    assert!(text.contains("step 502.2, task 0: ") && text.contains("/nosuch/program"), "{text}");
    for (steps, worst) in [(&["1"][..], 1), (&[], 3), (&[], 3)] {
        let client = harness.wait(steps, 0);
        harness.settle();
        let Some(StepMgrToCommand::Drained { worst: told, .. }) = harness.last(client) else { panic!("not drained") };
        assert_eq!(*told, code(worst), "{steps:?}");
    }
}
