//! Arrays and lists that are given up because too much of them fails.
#![allow(clippy::unwrap_used)]

use super::{
    StepMgrConfig,
    builders::{exact, run},
    harness::Harness,
};
use garrick_events::steps::end::StepEnd;
use garrick_events::steps::event::StepEvent;
use garrick_model::{
    batch::{BatchMembers, CommandList, FailBound, FailLimit, RetryPolicy, StepBatch},
    ids::{RequestId, StepKey},
    messages::step::StepMgrToCommand,
    spec::{JobKind, StepSpec},
    state::{ExitStatus, StepState},
};
use std::time::Duration;

const OK: ExitStatus = ExitStatus::SUCCESS;
const BAD: ExitStatus = ExitStatus { code: 3, signal: None };

fn limited(most: FailBound, kill: bool) -> StepSpec {
    StepSpec { fail_limit: Some(FailLimit { group: RequestId(7, 7), most, kill }), ..exact("a", 1) }
}

fn task(text: &str) -> StepKey {
    text.parse().unwrap()
}

fn state(harness: &Harness, key: &str) -> Option<StepState> {
    harness.core.ledger().end_of(task(key)).map(|end| end.state)
}

fn states(harness: &Harness, keys: &[&str], wanted: Option<StepState>) {
    for key in keys {
        assert_eq!(state(harness, key), wanted, "{key}");
    }
    harness.core.check().unwrap();
}

fn batch(cpus: u32) -> Harness {
    Harness::ready(run(JobKind::Batch, &[cpus]), StepMgrConfig::default())
}

fn list(spec: StepSpec, lines: u32) -> StepBatch {
    let mut list = CommandList::default();
    (0..lines).for_each(|n| list.push(["a".to_owned(), n.to_string()], 0));
    StepBatch { specs: vec![StepSpec { argv: Vec::new(), ..spec }], members: BatchMembers::Commands(list) }
}

/// Causes on record of steps that ended without having started, with how many those are.
fn causes(harness: &Harness) -> Vec<(StepEnd, u32)> {
    let of = |event: &StepEvent| match event {
        StepEvent::Withdrawn { members, cause, .. } => {
            Some((cause.clone(), members.iter().map(|(from, to)| to - from + 1).sum()))
        }
        _ => None,
    };
    harness.journal.iter().filter_map(of).collect()
}

#[test]
fn what_waits_is_cancelled_with_its_reason_and_what_runs_goes_on() {
    let mut harness = batch(3);
    harness.enqueue_array(limited(FailBound::Steps(2), false), "0-9");
    harness.settle();
    harness.enqueue(vec![exact("other", 1)]);
    harness.settle();
    harness.exit(task("0_0"), BAD);
    harness.exit(task("0_1"), OK);
    assert_eq!(harness.running_keys(), ["0_2", "0_3", "0_4"]);
    harness.exit(task("0_3"), BAD);
    assert_eq!(harness.running_keys(), ["0_2", "0_4", "1"], "the job's other steps go on");
    states(&harness, &["0_5", "0_9"], Some(StepState::Cancelled));
    assert_eq!(causes(&harness), [(StepEnd::TooManyFailed, 5)]);
    harness.exit(task("0_2"), OK);
    harness.exit(task("0_4"), BAD);
    assert_eq!((state(&harness, "0_2"), state(&harness, "0_4")), (Some(StepState::Completed), Some(StepState::Failed)));
    assert_eq!(harness.running_keys(), ["1"]);
}

#[test]
fn what_runs_is_ended_too_where_that_is_asked_for() {
    let mut harness = batch(3);
    harness.enqueue_array(limited(FailBound::Steps(1), true), "0-9");
    harness.enqueue(vec![exact("other", 1)]);
    harness.settle();
    harness.exit(task("0_1"), BAD);
    harness.settle();
    states(&harness, &["0_0", "0_2", "0_3"], Some(StepState::Cancelled));
    let ended = |event: &StepEvent| matches!(event, StepEvent::Ended { result, .. } if result.ended == Some(StepEnd::TooManyFailed));
    assert_eq!(harness.journal.iter().filter(|event| ended(event)).count(), 2);
    assert_eq!(harness.running_keys(), ["1"]);
}

#[test]
fn a_failure_counts_when_it_is_the_last_try() {
    let mut harness = batch(1);
    let retry = Some(RetryPolicy { count: 1, delay_secs: 0, on: Vec::new() });
    harness.enqueue_array(StepSpec { retry, ..limited(FailBound::Steps(2), false) }, "0-5");
    harness.settle();
    for key in ["0_0", "0_0", "0_1"] {
        harness.exit(task(key), BAD);
    }
    states(&harness, &["0_2"], None);
    harness.exit(task("0_1"), BAD);
    states(&harness, &["0_0", "0_1"], Some(StepState::Failed));
    states(&harness, &["0_2", "0_5"], Some(StepState::Cancelled));
}

#[test]
fn a_step_that_fails_afterwards_is_not_tried_again() {
    let mut harness = batch(2);
    let retry = Some(RetryPolicy { count: 3, delay_secs: 60, on: vec!["7".parse().unwrap()] });
    harness.enqueue_array(StepSpec { retry, ..limited(FailBound::Steps(1), false) }, "0-5");
    harness.settle();
    harness.exit(task("0_0"), ExitStatus { code: 7, signal: None });
    assert_eq!(harness.running_keys(), ["0_1", "0_2"]);
    harness.exit(task("0_1"), BAD);
    states(&harness, &["0_0", "0_3"], Some(StepState::Cancelled));
    harness.exit(task("0_2"), ExitStatus { code: 7, signal: None });
    states(&harness, &["0_2"], Some(StepState::Failed));
    harness.advance(Duration::from_secs(100));
    assert!(harness.running_keys().is_empty());
}

#[test]
fn a_share_needs_twenty_ends() {
    let mut harness = batch(1);
    harness.enqueue_array(limited(FailBound::Percent(50), false), "0-99");
    harness.settle();
    for n in 0..19 {
        harness.exit(task(&format!("0_{n}")), if n % 2 == 0 { BAD } else { OK });
    }
    states(&harness, &["0_20"], None);
    // Ten of twenty: an end that is well can be the one that counts.
    harness.exit(task("0_19"), OK);
    states(&harness, &["0_20", "0_99"], Some(StepState::Cancelled));
}

#[test]
fn requests_of_one_list_count_together_and_what_comes_later_is_cancelled_too() {
    let mut harness = batch(2);
    let spec = limited(FailBound::Steps(2), false);
    harness.enqueue_batch(list(spec.clone(), 1));
    harness.enqueue_batch(list(spec.clone(), 3));
    harness.settle();
    harness.exit_code(0, 1);
    harness.exit_code(1, 1);
    states(&harness, &["2"], None);
    states(&harness, &["3"], Some(StepState::Cancelled));
    let late = harness.enqueue_batch(list(spec, 10));
    harness.settle();
    assert!(matches!(harness.last(late), Some(StepMgrToCommand::Enqueued { given: Some(_), .. })));
    states(&harness, &["4", "13"], Some(StepState::Cancelled));
    let other = FailLimit { group: RequestId(8, 8), most: FailBound::Steps(2), kill: false };
    harness.enqueue_batch(list(StepSpec { fail_limit: Some(other), ..exact("a", 1) }, 1));
    harness.settle();
    assert_eq!(harness.running_keys(), ["2", "14"]);
}

#[test]
fn a_restart_forgets_neither_the_count_nor_the_end_of_it() {
    let mut harness = batch(2);
    harness.enqueue_array(limited(FailBound::Steps(2), false), "0-9");
    harness.settle();
    harness.exit(task("0_0"), BAD);
    harness.restart_manager();
    harness.settle();
    assert_eq!(harness.running_keys(), ["0_1", "0_2"]);
    harness.exit(task("0_1"), BAD);
    states(&harness, &["0_3", "0_9"], Some(StepState::Cancelled));
    // The end that was one too many is on record, and what follows from it is not.
    harness.journal.retain(|event| !matches!(event, StepEvent::Withdrawn { .. }));
    harness.restart_manager();
    harness.settle();
    assert_eq!(harness.running_keys(), ["0_2"]);
    states(&harness, &["0_3", "0_9"], Some(StepState::Cancelled));
    harness.exit(task("0_2"), OK);
    assert_eq!(harness.core.counts().queued + harness.core.counts().running, 0);
}

#[test]
fn what_was_lined_up_does_not_run() {
    let config = StepMgrConfig { line_length: 3, pace_window: Duration::ZERO, ..StepMgrConfig::default() };
    let mut harness = Harness::ready(run(JobKind::Batch, &[2]), config);
    harness.enqueue_array(limited(FailBound::Steps(1), false), "0-19");
    harness.settle();
    harness.exit(task("0_0"), OK);
    assert_eq!(harness.nodes[0].lines.iter().map(|(_, line)| line.len()).collect::<Vec<_>>(), [3]);
    harness.exit(task("0_1"), BAD);
    harness.settle();
    assert_eq!(harness.running_keys(), ["0_2"]);
    states(&harness, &["0_3", "0_4", "0_5", "0_6", "0_19"], Some(StepState::Cancelled));
    harness.exit(task("0_2"), OK);
    assert!(harness.running_keys().is_empty());
}
