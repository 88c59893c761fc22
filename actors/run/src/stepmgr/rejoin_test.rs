//! Commands that come back to their step after its step manager died, or after their connection broke.

use crate::stepmgr::{
    StepMgrConfig,
    builders::{exact, run},
    harness::Harness,
    messages::ClientId,
};
use garrick_events::steps::event::StepEvent;
use garrick_model::{
    ids::{JobId, RequestId, Sluid, StepId, StepKey},
    messages::step::{CommandToStepMgr, StepMgrToCommand},
    refusal::Refusal,
    spec::JobKind,
    state::{ExitStatus, StepState},
};

const REQUEST: RequestId = RequestId(77, 1);

fn batch(cpus: &[u32]) -> Harness {
    Harness::ready(run(JobKind::Batch, cpus), StepMgrConfig::default())
}

/// Asks for a step of one task.
fn launch(harness: &mut Harness, client: ClientId) {
    let spec = Box::new(exact("a", 1));
    harness.say(client, CommandToStepMgr::Launch { request: REQUEST, spec, descriptors: [false; 3] });
    harness.settle();
}

fn launched(harness: &mut Harness) -> ClientId {
    let client = harness.connect();
    launch(harness, client);
    client
}

fn rejoined(harness: &mut Harness, step: u32) -> ClientId {
    let facts = harness.core.facts();
    let (step, sluid) = (StepId::of(facts.job, StepKey::number(step)), facts.sluid);
    let client = harness.connect();
    harness.say(client, CommandToStepMgr::Rejoin { step, sluid });
    harness.settle();
    client
}

fn starts(harness: &Harness, step: u32) -> usize {
    let key = StepKey::number(step);
    harness.journal.iter().filter(|e| matches!(e, StepEvent::Started { step, .. } if *step == key)).count()
}

fn killed() -> ExitStatus {
    ExitStatus { code: 0, signal: Some(9) }
}

#[test]
fn a_step_that_waited_waits_again_when_its_command_repeats_the_request() {
    let mut harness = batch(&[1]);
    harness.enqueue(vec![exact("first", 1)]);
    harness.settle();
    launched(&mut harness);
    assert_eq!(harness.running_steps(), [0]);
    harness.restart_manager();
    harness.settle();
    let back = launched(&mut harness);
    harness.exit_code(0, 0);
    harness.exit_code(1, 3);
    assert_eq!(harness.finished(back), Some((StepState::Failed, ExitStatus { code: 3, signal: None })));
    assert_eq!((starts(&harness, 1), starts(&harness, 2)), (1, 0));
}

#[test]
fn a_repeat_keeps_the_place_of_a_step_that_waits_whatever_becomes_of_the_first_connection() {
    let mut harness = batch(&[1]);
    harness.enqueue(vec![exact("first", 1)]);
    harness.settle();
    let before = launched(&mut harness);
    let back = launched(&mut harness);
    harness.hang_up(before);
    harness.settle();
    harness.exit_code(0, 0);
    assert_eq!(harness.running_steps(), [1]);
    harness.exit_code(1, 0);
    assert_eq!(harness.finished(back), Some((StepState::Completed, ExitStatus::SUCCESS)));
}

#[test]
fn a_step_that_was_withdrawn_with_its_connection_is_asked_for_anew() {
    let mut harness = batch(&[1]);
    harness.enqueue(vec![exact("first", 1)]);
    harness.settle();
    let before = launched(&mut harness);
    harness.hang_up(before);
    harness.settle();
    let back = launched(&mut harness);
    harness.exit_code(0, 0);
    harness.exit_code(2, 0);
    assert_eq!(harness.finished(back), Some((StepState::Completed, ExitStatus::SUCCESS)));
}

#[test]
fn a_command_that_comes_back_is_told_how_its_step_ended_while_nobody_looked() {
    let mut harness = batch(&[1]);
    launched(&mut harness);
    let (node, token, ..) = harness.running().into_iter().find(|(_, _, of, _)| *of == StepKey::number(0)).unwrap();
    harness.end_process(node, token, ExitStatus { code: 5, signal: None });
    harness.settle_nodes();
    harness.restart_manager();
    harness.settle();
    let back = rejoined(&mut harness, 0);
    let five = ExitStatus { code: 5, signal: None };
    assert_eq!(harness.finished(back), Some((StepState::Failed, five)));
    assert_eq!(harness.core.ledger().counts.failed, 1);
    // The same goes for one that never heard of its start.
    let again = launched(&mut harness);
    assert_eq!(harness.finished(again), Some((StepState::Failed, five)));
    assert_eq!((starts(&harness, 0), starts(&harness, 1)), (1, 0));
}

#[test]
fn a_step_that_runs_on_without_its_command_is_killed_and_its_room_is_free_again() {
    let mut harness = batch(&[1]);
    launched(&mut harness);
    harness.restart_manager();
    // Before the nodes have said what they have.
    let back = {
        let facts = harness.core.facts();
        let (step, sluid) = (StepId::of(facts.job, StepKey::number(0)), facts.sluid);
        let client = harness.connect();
        harness.say(client, CommandToStepMgr::Rejoin { step, sluid });
        client
    };
    harness.settle();
    assert_eq!(harness.finished(back), Some((StepState::Failed, killed())));
    assert_eq!(harness.running_steps(), Vec::<u32>::new());
    harness.enqueue(vec![exact("next", 1)]);
    harness.settle();
    assert_eq!(harness.running_steps(), [1]);
}

#[test]
fn a_step_that_runs_when_its_command_comes_back_on_another_connection_is_ended() {
    let mut harness = batch(&[1]);
    let before = launched(&mut harness);
    let back = rejoined(&mut harness, 0);
    harness.hang_up(before);
    harness.settle();
    harness.exit(StepKey::number(0), ExitStatus { code: 0, signal: Some(15) });
    let end = harness.finished(back).unwrap();
    assert_eq!((end.0, end.1.signal), (StepState::Cancelled, Some(15)));
}

#[test]
fn a_command_of_another_run_and_one_without_a_step_are_turned_away() {
    let mut harness = batch(&[1]);
    launched(&mut harness);
    let job = harness.core.facts().job;
    let mut answer = |job: JobId, step: u32, sluid: Sluid| {
        let client = harness.connect();
        harness.say(client, CommandToStepMgr::Rejoin { step: StepId::of(job, StepKey::number(step)), sluid });
        harness.settle();
        harness.last(client).cloned()
    };
    let sluid = run(JobKind::Batch, &[1]).sluid;
    let gone = Some(StepMgrToCommand::Refused(Refusal::AlreadyDone));
    assert_eq!(answer(job, 0, Sluid(sluid.0 + 1)), gone);
    assert_eq!(answer(JobId(job.0 + 1), 0, sluid), gone);
    assert!(matches!(answer(job, 9, sluid), Some(StepMgrToCommand::Refused(Refusal::InvalidStep(_)))));
    assert_eq!(harness.running_steps(), [0]);
}
