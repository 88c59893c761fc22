//! Arrays and lists that are given up because too much of them fails.
#![allow(clippy::unwrap_used)]

use super::{
    StepEvent, StepMgrConfig,
    builders::{exact, run},
    company::Company,
};
use crate::step::StepEnd;
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

fn state(company: &Company, key: &str) -> Option<StepState> {
    company.core.ledger().end_of(task(key)).map(|end| end.state)
}

fn states(company: &Company, keys: &[&str], wanted: Option<StepState>) {
    for key in keys {
        assert_eq!(state(company, key), wanted, "{key}");
    }
    company.core.check().unwrap();
}

fn batch(cpus: u32) -> Company {
    Company::ready(run(JobKind::Batch, &[cpus]), StepMgrConfig::default())
}

fn list(spec: StepSpec, lines: u32) -> StepBatch {
    let mut list = CommandList::default();
    (0..lines).for_each(|n| list.push(["a".to_owned(), n.to_string()], 0));
    StepBatch { specs: vec![StepSpec { argv: Vec::new(), ..spec }], members: BatchMembers::Commands(list) }
}

/// Causes on record of steps that ended without having started, with how many those are.
fn causes(company: &Company) -> Vec<(StepEnd, u32)> {
    let of = |event: &StepEvent| match event {
        StepEvent::Withdrawn { members, cause, .. } => {
            Some((cause.clone(), members.iter().map(|(from, to)| to - from + 1).sum()))
        }
        _ => None,
    };
    company.journal.iter().filter_map(of).collect()
}

#[test]
fn what_waits_is_cancelled_with_its_reason_and_what_runs_goes_on() {
    let mut company = batch(3);
    company.enqueue_array(limited(FailBound::Steps(2), false), "0-9");
    company.settle();
    company.enqueue(vec![exact("other", 1)]);
    company.settle();
    company.exit(task("0_0"), BAD);
    company.exit(task("0_1"), OK);
    assert_eq!(company.running_keys(), ["0_2", "0_3", "0_4"]);
    company.exit(task("0_3"), BAD);
    assert_eq!(company.running_keys(), ["0_2", "0_4", "1"], "the job's other steps go on");
    states(&company, &["0_5", "0_9"], Some(StepState::Cancelled));
    assert_eq!(causes(&company), [(StepEnd::TooManyFailed, 5)]);
    company.exit(task("0_2"), OK);
    company.exit(task("0_4"), BAD);
    assert_eq!((state(&company, "0_2"), state(&company, "0_4")), (Some(StepState::Completed), Some(StepState::Failed)));
    assert_eq!(company.running_keys(), ["1"]);
}

#[test]
fn what_runs_is_ended_too_where_that_is_asked_for() {
    let mut company = batch(3);
    company.enqueue_array(limited(FailBound::Steps(1), true), "0-9");
    company.enqueue(vec![exact("other", 1)]);
    company.settle();
    company.exit(task("0_1"), BAD);
    company.settle();
    states(&company, &["0_0", "0_2", "0_3"], Some(StepState::Cancelled));
    let ended = |event: &StepEvent| matches!(event, StepEvent::Ended { result, .. } if result.ended == Some(StepEnd::TooManyFailed));
    assert_eq!(company.journal.iter().filter(|event| ended(event)).count(), 2);
    assert_eq!(company.running_keys(), ["1"]);
}

#[test]
fn a_failure_counts_when_it_is_the_last_try() {
    let mut company = batch(1);
    let retry = Some(RetryPolicy { count: 1, delay_secs: 0, on: Vec::new() });
    company.enqueue_array(StepSpec { retry, ..limited(FailBound::Steps(2), false) }, "0-5");
    company.settle();
    for key in ["0_0", "0_0", "0_1"] {
        company.exit(task(key), BAD);
    }
    states(&company, &["0_2"], None);
    company.exit(task("0_1"), BAD);
    states(&company, &["0_0", "0_1"], Some(StepState::Failed));
    states(&company, &["0_2", "0_5"], Some(StepState::Cancelled));
}

#[test]
fn a_step_that_fails_afterwards_is_not_tried_again() {
    let mut company = batch(2);
    let retry = Some(RetryPolicy { count: 3, delay_secs: 60, on: vec!["7".parse().unwrap()] });
    company.enqueue_array(StepSpec { retry, ..limited(FailBound::Steps(1), false) }, "0-5");
    company.settle();
    company.exit(task("0_0"), ExitStatus { code: 7, signal: None });
    assert_eq!(company.running_keys(), ["0_1", "0_2"]);
    company.exit(task("0_1"), BAD);
    states(&company, &["0_0", "0_3"], Some(StepState::Cancelled));
    company.exit(task("0_2"), ExitStatus { code: 7, signal: None });
    states(&company, &["0_2"], Some(StepState::Failed));
    company.advance(Duration::from_secs(100));
    assert!(company.running_keys().is_empty());
}

#[test]
fn a_share_needs_twenty_ends() {
    let mut company = batch(1);
    company.enqueue_array(limited(FailBound::Percent(50), false), "0-99");
    company.settle();
    for n in 0..19 {
        company.exit(task(&format!("0_{n}")), if n % 2 == 0 { BAD } else { OK });
    }
    states(&company, &["0_20"], None);
    // Ten of twenty: an end that is well can be the one that counts.
    company.exit(task("0_19"), OK);
    states(&company, &["0_20", "0_99"], Some(StepState::Cancelled));
}

#[test]
fn requests_of_one_list_count_together_and_what_comes_later_is_cancelled_too() {
    let mut company = batch(2);
    let spec = limited(FailBound::Steps(2), false);
    company.enqueue_batch(list(spec.clone(), 1));
    company.enqueue_batch(list(spec.clone(), 3));
    company.settle();
    company.exit_code(0, 1);
    company.exit_code(1, 1);
    states(&company, &["2"], None);
    states(&company, &["3"], Some(StepState::Cancelled));
    let late = company.enqueue_batch(list(spec, 10));
    company.settle();
    assert!(matches!(company.last(late), Some(StepMgrToCommand::Enqueued { given: Some(_), .. })));
    states(&company, &["4", "13"], Some(StepState::Cancelled));
    let other = FailLimit { group: RequestId(8, 8), most: FailBound::Steps(2), kill: false };
    company.enqueue_batch(list(StepSpec { fail_limit: Some(other), ..exact("a", 1) }, 1));
    company.settle();
    assert_eq!(company.running_keys(), ["2", "14"]);
}

#[test]
fn a_restart_forgets_neither_the_count_nor_the_end_of_it() {
    let mut company = batch(2);
    company.enqueue_array(limited(FailBound::Steps(2), false), "0-9");
    company.settle();
    company.exit(task("0_0"), BAD);
    company.restart_manager();
    company.settle();
    assert_eq!(company.running_keys(), ["0_1", "0_2"]);
    company.exit(task("0_1"), BAD);
    states(&company, &["0_3", "0_9"], Some(StepState::Cancelled));
    // The end that was one too many is on record, and what follows from it is not.
    company.journal.retain(|event| !matches!(event, StepEvent::Withdrawn { .. }));
    company.restart_manager();
    company.settle();
    assert_eq!(company.running_keys(), ["0_2"]);
    states(&company, &["0_3", "0_9"], Some(StepState::Cancelled));
    company.exit(task("0_2"), OK);
    assert_eq!(company.core.counts().queued + company.core.counts().running, 0);
}

#[test]
fn what_was_lined_up_does_not_run() {
    let config = StepMgrConfig { line_length: 3, pace_window: Duration::ZERO, ..StepMgrConfig::default() };
    let mut company = Company::ready(run(JobKind::Batch, &[2]), config);
    company.enqueue_array(limited(FailBound::Steps(1), false), "0-19");
    company.settle();
    company.exit(task("0_0"), OK);
    assert_eq!(company.nodes[0].lines.iter().map(|(_, line)| line.len()).collect::<Vec<_>>(), [3]);
    company.exit(task("0_1"), BAD);
    company.settle();
    assert_eq!(company.running_keys(), ["0_2"]);
    states(&company, &["0_3", "0_4", "0_5", "0_6", "0_19"], Some(StepState::Cancelled));
    company.exit(task("0_2"), OK);
    assert!(company.running_keys().is_empty());
}
