#![allow(clippy::unwrap_used)]
use super::*;
use garrick_model::{
    ids::{Sluid, StepNum},
    refusal::Refusal,
};
use serde_bytes::ByteBuf;

const NOW: Duration = Duration::from_secs(10);

fn spec() -> StepSpec {
    StepSpec { name: "a".to_owned(), ..StepSpec::default() }
}

fn layout(node: &str, ranks: &[u32]) -> StepLayout {
    StepLayout { nodes: vec![node.to_owned()], ranks: vec![ranks.to_vec()], handed: [false; 3] }
}

fn begun(spec: &StepSpec) -> Parts {
    let mut parts = Parts::new(JobId(7), vec![(JobId(7), spec.clone()), (JobId(8), spec.clone())]);
    let mut out = Vec::new();
    parts.begin(&mut out);
    assert_eq!(asked(&out), [(0, PartsBefore::default())]);
    parts
}

/// Parts that are asked for, and what comes before them.
fn asked(out: &[Heard]) -> Vec<(usize, PartsBefore)> {
    out.iter()
        .filter_map(|heard| match heard {
            Heard::Send(at, CommandToStepMgr::Launch { spec, .. }) => Some((*at, spec.het.unwrap().behind.unwrap())),
            _ => None,
        })
        .collect()
}

fn hear(parts: &mut Parts, at: usize, message: StepMgrToCommand) -> Vec<Heard> {
    let mut out = Vec::new();
    parts.heard(NOW, at, message, &mut out);
    out
}

/// Two tasks of job 7 on n1, one of job 8 on n2.
fn started(spec: &StepSpec) -> Parts {
    let mut parts = begun(spec);
    hear(&mut parts, 0, StepMgrToCommand::Placed(layout("n1", &[0, 1])));
    hear(&mut parts, 1, StepMgrToCommand::Placed(layout("n2", &[2])));
    parts
}

fn exited(rank: u32, code: u8) -> StepMgrToCommand {
    StepMgrToCommand::TaskExited { rank, status: ExitStatus { code, signal: None }, oom: false }
}

fn finished(code: u8, state: StepState) -> StepMgrToCommand {
    StepMgrToCommand::Finished { exit: ExitStatus { code, signal: None }, state }
}

#[test]
fn parts_are_asked_for_one_after_the_other_and_started_together() {
    let mut parts = begun(&spec());
    let step = StepId::new(JobId(8), StepNum::Number(0));
    let accepted = StepMgrToCommand::Accepted { step, sluid: Sluid(1), warnings: Vec::new() };
    assert_eq!(hear(&mut parts, 0, accepted.clone()), [Heard::Tell(JobId(7), accepted.clone())]);
    let out = hear(&mut parts, 0, StepMgrToCommand::Placed(layout("n1", &[0, 1])));
    assert_eq!(asked(&out), [(1, PartsBefore { tasks: 2, nodes: 1 })]);
    // The step has its number already.
    assert!(hear(&mut parts, 1, accepted).is_empty());
    let whole = WholeStep { nodes: vec!["n1".to_owned(), "n2".to_owned()], tasks_per_node: vec![2, 1] };
    let all = StepLayout { nodes: whole.nodes.clone(), ranks: vec![vec![0, 1], vec![2]], handed: [false; 3] };
    assert_eq!(
        hear(&mut parts, 1, StepMgrToCommand::Placed(layout("n2", &[2]))),
        [
            Heard::Send(0, CommandToStepMgr::StartPart(whole.clone())),
            Heard::Send(1, CommandToStepMgr::StartPart(whole)),
            Heard::Tell(JobId(7), StepMgrToCommand::Started(all)),
        ]
    );
    assert!(hear(&mut parts, 0, StepMgrToCommand::Started(layout("n1", &[0, 1]))).is_empty());
}

#[test]
fn the_worst_end_is_the_steps_and_comes_when_all_are_over() {
    let mut parts = started(&spec());
    assert!(hear(&mut parts, 1, finished(5, StepState::Failed)).is_empty());
    assert!(parts.is_over(1) && !parts.is_over(0));
    let worst = finished(5, StepState::Failed);
    assert_eq!(hear(&mut parts, 0, finished(0, StepState::Completed)), [Heard::Tell(JobId(7), worst)]);
}

#[test]
fn what_one_part_cannot_have_is_said_of_its_own_job() {
    let mut parts = begun(&spec());
    hear(&mut parts, 0, StepMgrToCommand::Placed(layout("n1", &[0])));
    let refused = StepMgrToCommand::Refused(Refusal::Busy);
    assert_eq!(hear(&mut parts, 1, refused.clone()), [Heard::Tell(JobId(8), refused)]);
}

#[test]
fn a_part_that_ends_before_all_are_started_ends_the_step() {
    let mut parts = begun(&spec());
    hear(&mut parts, 0, StepMgrToCommand::Placed(layout("n1", &[0])));
    let end = finished(0, StepState::Cancelled);
    assert_eq!(hear(&mut parts, 0, end.clone()), [Heard::Tell(JobId(7), end)]);
}

#[test]
fn a_bad_exit_ends_the_other_parts_once() {
    let mut parts = started(&StepSpec { kill_on_bad_exit: true, ..spec() });
    let out = hear(&mut parts, 1, exited(2, 1));
    assert_eq!(out, [Heard::Tell(JobId(8), exited(2, 1)), Heard::Send(0, CommandToStepMgr::Cancel)]);
    let out = hear(&mut parts, 0, exited(0, 15));
    assert_eq!(out, [Heard::Tell(JobId(7), exited(0, 15)), Heard::Send(1, CommandToStepMgr::Cancel)]);
    assert_eq!(hear(&mut parts, 0, exited(1, 15)), [Heard::Tell(JobId(7), exited(1, 15))]);
}

#[test]
fn the_wait_after_the_first_end_holds_for_all_parts() {
    let mut parts = started(&StepSpec { wait_secs: Some(30), ..spec() });
    assert_eq!(parts.deadline(), None);
    hear(&mut parts, 0, exited(0, 0));
    let at = NOW + Duration::from_secs(30);
    assert_eq!(parts.deadline(), Some(at));
    let mut out = Vec::new();
    parts.tick(at, &mut out);
    assert_eq!(out, [Heard::Send(1, CommandToStepMgr::Cancel)]);
    assert_eq!(parts.deadline(), None);
}

#[test]
fn input_goes_to_those_who_read_it_and_is_taken_when_all_took_it() {
    let input = CommandToStepMgr::Stdin(ByteBuf::from("hello"));
    let meant = |parts: &Parts| {
        let mut out = Vec::new();
        parts.said(&input, &mut out);
        out
    };
    let mut parts = started(&spec());
    assert_eq!(meant(&parts), [Heard::Send(0, input.clone()), Heard::Send(1, input.clone())]);
    assert!(hear(&mut parts, 0, StepMgrToCommand::StdinConsumed(5)).is_empty());
    let taken = |bytes| [Heard::Tell(JobId(7), StepMgrToCommand::StdinConsumed(bytes))];
    assert_eq!(hear(&mut parts, 1, StepMgrToCommand::StdinConsumed(3)), taken(3));
    // What a part that is over did not take is not waited for.
    assert_eq!(hear(&mut parts, 1, finished(0, StepState::Completed)), taken(2));
    let parts = started(&StepSpec { stdin_to: StdinTo::Task(2), ..spec() });
    assert_eq!(meant(&parts), [Heard::Send(1, input.clone())]);
    let mut out = Vec::new();
    parts.said(&CommandToStepMgr::Signal(2), &mut out);
    assert_eq!(out, [0, 1].map(|at| Heard::Send(at, CommandToStepMgr::Signal(2))));
}

#[test]
fn a_lost_node_ends_the_other_parts() {
    let mut parts = started(&spec());
    let out = hear(&mut parts, 0, finished(0, StepState::NodeFail));
    assert_eq!(out, [Heard::Send(1, CommandToStepMgr::Cancel)]);
    let end = finished(0, StepState::NodeFail);
    assert_eq!(hear(&mut parts, 1, finished(0, StepState::Cancelled)), [Heard::Tell(JobId(7), end)]);
}

#[test]
fn a_common_number_is_the_highest_of_the_first_free_ones() {
    let of = |numbers: &[u32]| {
        let steps: Vec<StepId> = numbers.iter().map(|n| StepId::new(JobId(7), StepNum::Number(*n))).collect();
        common_number(&steps)
    };
    assert_eq!(of(&[2, 2]), Some(Ok(2)));
    assert_eq!(of(&[1, 4, 2]), Some(Err(4)));
    assert_eq!(of(&[]), None);
}
