//! Commands that come back to their step after its step manager died, or after their connection broke.

use crate::stepmgr::{
    StepEvent, StepMgrConfig,
    builders::{exact, run},
    company::Company,
    messages::ClientId,
};
use garrick_model::{
    ids::{JobId, RequestId, Sluid, StepId, StepKey},
    messages::step::{CommandToStepMgr, StepMgrToCommand},
    refusal::Refusal,
    spec::JobKind,
    state::{ExitStatus, StepState},
};

const REQUEST: RequestId = RequestId(77, 1);

fn batch(cpus: &[u32]) -> Company {
    Company::ready(run(JobKind::Batch, cpus), StepMgrConfig::default())
}

/// Asks for a step of one task.
fn launch(company: &mut Company, client: ClientId) {
    let spec = Box::new(exact("a", 1));
    company.say(client, CommandToStepMgr::Launch { request: REQUEST, spec, descriptors: [false; 3] });
    company.settle();
}

fn launched(company: &mut Company) -> ClientId {
    let client = company.connect();
    launch(company, client);
    client
}

fn rejoined(company: &mut Company, step: u32) -> ClientId {
    let facts = company.core.facts();
    let (step, sluid) = (StepId::of(facts.job, StepKey::number(step)), facts.sluid);
    let client = company.connect();
    company.say(client, CommandToStepMgr::Rejoin { step, sluid });
    company.settle();
    client
}

fn starts(company: &Company, step: u32) -> usize {
    let key = StepKey::number(step);
    company.journal.iter().filter(|e| matches!(e, StepEvent::Started { step, .. } if *step == key)).count()
}

fn killed() -> ExitStatus {
    ExitStatus { code: 0, signal: Some(9) }
}

#[test]
fn a_step_that_waited_waits_again_when_its_command_repeats_the_request() {
    let mut company = batch(&[1]);
    company.enqueue(vec![exact("first", 1)]);
    company.settle();
    launched(&mut company);
    assert_eq!(company.running_steps(), [0]);
    company.restart_manager();
    company.settle();
    let back = launched(&mut company);
    company.exit_code(0, 0);
    company.exit_code(1, 3);
    assert_eq!(company.finished(back), Some((StepState::Failed, ExitStatus { code: 3, signal: None })));
    assert_eq!((starts(&company, 1), starts(&company, 2)), (1, 0));
}

#[test]
fn a_repeat_keeps_the_place_of_a_step_that_waits_whatever_becomes_of_the_first_connection() {
    let mut company = batch(&[1]);
    company.enqueue(vec![exact("first", 1)]);
    company.settle();
    let before = launched(&mut company);
    let back = launched(&mut company);
    company.hang_up(before);
    company.settle();
    company.exit_code(0, 0);
    assert_eq!(company.running_steps(), [1]);
    company.exit_code(1, 0);
    assert_eq!(company.finished(back), Some((StepState::Completed, ExitStatus::SUCCESS)));
}

#[test]
fn a_step_that_was_withdrawn_with_its_connection_is_asked_for_anew() {
    let mut company = batch(&[1]);
    company.enqueue(vec![exact("first", 1)]);
    company.settle();
    let before = launched(&mut company);
    company.hang_up(before);
    company.settle();
    let back = launched(&mut company);
    company.exit_code(0, 0);
    company.exit_code(2, 0);
    assert_eq!(company.finished(back), Some((StepState::Completed, ExitStatus::SUCCESS)));
}

#[test]
fn a_command_that_comes_back_is_told_how_its_step_ended_while_nobody_looked() {
    let mut company = batch(&[1]);
    launched(&mut company);
    let (node, token, ..) = company.running().into_iter().find(|(_, _, of, _)| *of == StepKey::number(0)).unwrap();
    company.end_process(node, token, ExitStatus { code: 5, signal: None });
    company.settle_nodes();
    company.restart_manager();
    company.settle();
    let back = rejoined(&mut company, 0);
    let five = ExitStatus { code: 5, signal: None };
    assert_eq!(company.finished(back), Some((StepState::Failed, five)));
    assert_eq!(company.core.ledger().counts.failed, 1);
    // The same goes for one that never heard of its start.
    let again = launched(&mut company);
    assert_eq!(company.finished(again), Some((StepState::Failed, five)));
    assert_eq!((starts(&company, 0), starts(&company, 1)), (1, 0));
}

#[test]
fn a_step_that_runs_on_without_its_command_is_killed_and_its_room_is_free_again() {
    let mut company = batch(&[1]);
    launched(&mut company);
    company.restart_manager();
    // Before the nodes have said what they have.
    let back = {
        let facts = company.core.facts();
        let (step, sluid) = (StepId::of(facts.job, StepKey::number(0)), facts.sluid);
        let client = company.connect();
        company.say(client, CommandToStepMgr::Rejoin { step, sluid });
        client
    };
    company.settle();
    assert_eq!(company.finished(back), Some((StepState::Failed, killed())));
    assert_eq!(company.running_steps(), Vec::<u32>::new());
    company.enqueue(vec![exact("next", 1)]);
    company.settle();
    assert_eq!(company.running_steps(), [1]);
}

#[test]
fn a_step_that_runs_when_its_command_comes_back_on_another_connection_is_ended() {
    let mut company = batch(&[1]);
    let before = launched(&mut company);
    let back = rejoined(&mut company, 0);
    company.hang_up(before);
    company.settle();
    company.exit(StepKey::number(0), ExitStatus { code: 0, signal: Some(15) });
    let end = company.finished(back).unwrap();
    assert_eq!((end.0, end.1.signal), (StepState::Cancelled, Some(15)));
}

#[test]
fn a_command_of_another_run_and_one_without_a_step_are_turned_away() {
    let mut company = batch(&[1]);
    launched(&mut company);
    let job = company.core.facts().job;
    let mut answer = |job: JobId, step: u32, sluid: Sluid| {
        let client = company.connect();
        company.say(client, CommandToStepMgr::Rejoin { step: StepId::of(job, StepKey::number(step)), sluid });
        company.settle();
        company.last(client).cloned()
    };
    let sluid = run(JobKind::Batch, &[1]).sluid;
    let gone = Some(StepMgrToCommand::Refused(Refusal::AlreadyDone));
    assert_eq!(answer(job, 0, Sluid(sluid.0 + 1)), gone);
    assert_eq!(answer(JobId(job.0 + 1), 0, sluid), gone);
    assert!(matches!(answer(job, 9, sluid), Some(StepMgrToCommand::Refused(Refusal::InvalidStep(_)))));
    assert_eq!(company.running_steps(), [0]);
}
