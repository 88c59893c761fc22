#![allow(clippy::unwrap_used)]
use super::*;
use garrick_model::{
    ids::{Sluid, StepId, StepKey},
    messages::step::StepLayout,
    state::Reason,
};

fn step() -> StepId {
    StepId::of(JobId(7), StepKey::number(3))
}

fn accepted() -> StepMgrToCommand {
    StepMgrToCommand::Accepted { step: step(), sluid: Sluid(1), warnings: Vec::new() }
}

fn started(handed: [bool; 3]) -> StepMgrToCommand {
    StepMgrToCommand::Started(StepLayout { nodes: vec!["n1".to_owned()], ranks: vec![vec![0]], handed })
}

fn exited(code: u8, oom: bool) -> StepMgrToCommand {
    StepMgrToCommand::TaskExited { rank: 0, status: ExitStatus { code, signal: None }, oom }
}

fn finished(code: u8, state: StepState) -> StepMgrToCommand {
    StepMgrToCommand::Finished { exit: ExitStatus { code, signal: None }, state }
}

fn queued() -> StepMgrToCommand {
    StepMgrToCommand::Queued { reason: Reason::Resources }
}

fn heard(quiet: bool, messages: &[StepMgrToCommand]) -> Vec<Told> {
    let mut kept = Kept::new(JobId(7), quiet);
    let told = messages.iter().cloned().map(|message| kept.hear(message));
    told.filter(|told| *told != Told::Nothing).collect()
}

#[test]
fn a_step_that_goes_well_is_told_by_its_end_alone() {
    let all = [accepted(), started([true; 3]), exited(0, false), finished(0, StepState::Completed)];
    assert_eq!(heard(false, &all), [Told::Done]);
}

#[test]
fn anything_else_is_the_whole_commands_with_all_that_was_before() {
    let before = [accepted(), started([true; 3])];
    for last in [
        exited(3, false),
        exited(0, true),
        finished(0, StepState::Cancelled),
        finished(1, StepState::Completed),
        StepMgrToCommand::Terminating { message: String::new() },
        StepMgrToCommand::TaskStarted { rank: 0, pid: 1 },
    ] {
        let all = [&before[..], &[last]].concat();
        assert_eq!(heard(false, &all), [Told::TakeOver(all.clone())]);
    }
    let relayed = [accepted(), started([true, true, false])];
    assert_eq!(heard(false, &relayed), [Told::TakeOver(relayed.to_vec())]);
}

#[test]
fn waiting_is_said_once_and_not_told_again() {
    let begun = "srun: Step created for StepId=7.3\n".to_owned();
    let waits = "srun: Job 7 step creation temporarily disabled, retrying (Requested nodes are busy)\n".to_owned();
    let all = [accepted(), queued(), queued(), started([true; 3]), exited(1, false)];
    let missed = vec![accepted(), started([true; 3]), exited(1, false)];
    assert_eq!(heard(false, &all), [Told::Line(waits), Told::Line(begun), Told::TakeOver(missed.clone())]);
    assert_eq!(heard(true, &all), [Told::TakeOver(missed)]);
    let mut kept = Kept::new(JobId(7), false);
    all[..2].iter().cloned().for_each(|message| drop(kept.hear(message)));
    assert_eq!(kept.take(), [accepted(), StepMgrToCommand::Light(LightReply::Waits)]);
}

#[test]
fn what_cannot_be_read_is_left_to_the_whole_command() {
    let asks = Asks { job: JobId(7), uid: 1000, host: "host".to_owned() };
    for body in [&b""[..], b"x", &[1; 4096], &[0; 4096]] {
        assert!(asks.read(body, 1000, 3).is_none());
    }
}
