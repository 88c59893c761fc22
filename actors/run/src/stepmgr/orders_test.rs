#![allow(clippy::unwrap_used)]
use crate::stepmgr::{
    builders::{run, step},
    harness::Harness,
    run::StepMgrConfig,
};
use garrick_model::{
    messages::{
        step::StepMgrToCommand,
        stepd::{NodeToStepd, StepsOrder},
    },
    spec::{JobKind, StepSpec},
    state::StepState,
    step_selector::WhichSteps,
    time::TimeLimit,
};
use std::time::Duration;

fn ready(kind: JobKind) -> Harness {
    Harness::ready(run(kind, &[4]), StepMgrConfig::default())
}

fn limit(harness: &mut Harness, limit: TimeLimit) {
    harness.tell(NodeToStepd::Order(StepsOrder::SetLimit { steps: WhichSteps::All, limit }));
    harness.settle();
}

fn notify(harness: &mut Harness) -> Vec<StepMgrToCommand> {
    harness.tell(NodeToStepd::Order(StepsOrder::Notify("save your work".to_owned())));
    harness.settle();
    let heard = harness.heard.values().flatten();
    heard.filter(|message| matches!(message, StepMgrToCommand::Notice(_))).cloned().collect()
}

#[test]
fn a_new_limit_of_a_step_counts_from_its_start() {
    let mut harness = ready(JobKind::Batch);
    let srun = harness.srun(StepSpec { time_limit: Some(TimeLimit::Secs(60)), ..step("a") });
    harness.settle();
    limit(&mut harness, TimeLimit::Unlimited);
    harness.advance(Duration::from_secs(100));
    assert_eq!(harness.finished(srun), None);
    limit(&mut harness, TimeLimit::Secs(200));
    harness.advance(Duration::from_secs(99));
    assert_eq!(harness.finished(srun), None);
    harness.advance(Duration::from_secs(1));
    assert_eq!(harness.finished(srun).unwrap().0, StepState::Timeout);
}

#[test]
fn a_limit_that_is_past_ends_the_step() {
    let mut harness = ready(JobKind::Batch);
    let srun = harness.srun(step("a"));
    harness.settle();
    harness.advance(Duration::from_secs(10));
    limit(&mut harness, TimeLimit::Secs(5));
    harness.advance(Duration::from_secs(1));
    assert_eq!(harness.finished(srun).unwrap().0, StepState::Timeout);
    assert!(harness.running_keys().is_empty());
}

#[test]
fn a_new_limit_outlives_the_step_manager() {
    let mut harness = ready(JobKind::Batch);
    harness.enqueue(vec![step("a")]);
    harness.settle();
    limit(&mut harness, TimeLimit::Secs(60));
    harness.restart_manager();
    harness.settle_nodes();
    harness.settle();
    assert_eq!(harness.running_keys(), ["0"]);
    harness.advance(Duration::from_secs(61));
    assert!(harness.running_keys().is_empty());
}

#[test]
fn only_the_command_of_an_allocation_hears_a_notice() {
    let mut harness = ready(JobKind::Allocation);
    let srun = harness.srun(step("a"));
    harness.settle();
    assert_eq!(notify(&mut harness), [StepMgrToCommand::Notice("save your work".to_owned())]);
    assert!(harness.heard.contains_key(&srun));
    let mut harness = ready(JobKind::Batch);
    harness.srun(step("a"));
    harness.settle();
    assert_eq!(notify(&mut harness), []);
    let line = "[2026-11-21T10:00:01.000] error: save your work\n";
    assert!(harness.files.iter().any(|(_, text)| text == line), "{:?}", harness.files);
}
