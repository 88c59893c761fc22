//! Parts of steps over several components of a heterogeneous job, as one step manager sees its own.
#![allow(clippy::unwrap_used)]

use crate::stepmgr::{
    StepMgrConfig,
    builders::{exact, run, step},
    harness::Harness,
    messages::ClientId,
};
use garrick_model::{
    ids::{JobId, StepKey},
    messages::step::{CommandToStepMgr, StepLayout, StepMgrToCommand, WholeStep},
    refusal::Refusal,
    spec::{HetPart, JobKind, PartsBefore, SentProgram, StepSpec},
    state::{ExitStatus, StepState},
};

fn harness() -> Harness {
    Harness::ready(run(JobKind::Allocation, &[4]), StepMgrConfig::default())
}

/// Behind two tasks on one node of another component.
fn part(tasks: u32) -> StepSpec {
    let behind = Some(PartsBefore { tasks: 2, nodes: 1 });
    StepSpec { het: Some(HetPart { leader: JobId(501), behind }), ..exact("a", tasks) }
}

fn whole() -> WholeStep {
    WholeStep { nodes: vec!["m1".to_owned(), "n1".to_owned()], tasks_per_node: vec![2, 2] }
}

fn reserve(harness: &mut Harness, client: ClientId, at_least: u32) -> Option<u32> {
    harness.say(client, CommandToStepMgr::ReserveStep { at_least });
    harness.settle();
    match harness.last(client) {
        Some(StepMgrToCommand::Reserved { step }) => step.key().step.number(),
        other => panic!("{other:?}"),
    }
}

fn launch(harness: &mut Harness, client: ClientId, spec: StepSpec) {
    let request = harness.request();
    harness.say(client, CommandToStepMgr::Launch { request, spec: Box::new(spec), descriptors: [false; 3] });
    harness.settle();
}

#[test]
fn a_part_is_placed_waits_for_the_others_and_is_numbered_behind_them() {
    let mut harness = harness();
    let client = harness.connect();
    assert_eq!(reserve(&mut harness, client, 0), Some(0));
    assert_eq!(reserve(&mut harness, client, 3), Some(3));
    launch(&mut harness, client, part(2));
    let layout = StepLayout { nodes: vec!["n1".to_owned()], ranks: vec![vec![2, 3]], handed: [false; 3] };
    assert_eq!(harness.last(client), Some(&StepMgrToCommand::Placed(layout.clone())));
    assert!(harness.running().is_empty());
    harness.say(client, CommandToStepMgr::StartPart(whole()));
    harness.settle();
    assert!(harness.heard[&client].contains(&StepMgrToCommand::Started(layout)));
    let ranks: Vec<(StepKey, u32)> = harness.running().into_iter().map(|(_, _, key, rank)| (key, rank)).collect();
    assert_eq!(ranks, [(StepKey::number(3), 2), (StepKey::number(3), 3)]);
    let plan = harness.steps[&StepKey::number(3)].plan();
    let set: Vec<String> = plan
        .env
        .iter()
        .chain(plan.nodes[0].share.env.iter())
        .chain(&plan.nodes[0].tasks[0].extra_env)
        .map(|entry| String::from_utf8(entry.to_vec()).unwrap())
        .collect();
    for variable in [
        "SLURM_PROCID=2",
        "SLURM_LOCALID=0",
        "SLURM_NODEID=1",
        "SLURM_GTIDS=2,3",
        "SLURM_NTASKS=4",
        "SLURM_STEP_NUM_TASKS=4",
        "SLURM_STEP_NUM_NODES=2",
        "SLURM_STEP_NODELIST=m1,n1",
        "SLURM_JOB_NODELIST=m1,n1",
        "SLURM_JOB_ID=501",
        "GARRICK_STEPD_JOB=502",
    ] {
        assert!(set.iter().any(|entry| entry == variable), "{variable} is not in {set:?}");
    }
    harness.exit_code(3, 5);
    assert_eq!(harness.finished(client), Some((StepState::Failed, ExitStatus { code: 5, signal: None })));
    // The numbers that were passed over stay free of steps.
    let next = harness.srun(step("next"));
    harness.settle();
    assert!(
        matches!(&harness.heard[&next][0], StepMgrToCommand::Accepted { step, .. } if step.key() == StepKey::number(4))
    );
}

#[test]
fn a_part_that_is_not_started_gives_its_place_back_when_its_command_goes() {
    let mut harness = harness();
    let client = harness.connect();
    launch(&mut harness, client, part(4));
    let waiting = harness.srun(exact("next", 1));
    harness.settle();
    assert!(matches!(harness.last(waiting), Some(StepMgrToCommand::Queued { .. })));
    harness.hang_up(client);
    harness.settle();
    assert_eq!(harness.running_steps(), [1]);
    harness.core.check().unwrap();
}

#[test]
fn a_part_that_is_cancelled_before_it_starts_says_so() {
    let mut harness = harness();
    let client = harness.connect();
    launch(&mut harness, client, part(1));
    harness.say(client, CommandToStepMgr::Cancel);
    harness.say(client, CommandToStepMgr::StartPart(whole()));
    harness.settle();
    assert_eq!(harness.finished(client), Some((StepState::Cancelled, ExitStatus::SUCCESS)));
    assert!(harness.running().is_empty());
}

fn refused(harness: &Harness, client: ClientId) -> bool {
    matches!(harness.last(client), Some(StepMgrToCommand::Refused(Refusal::InvalidUpdate(_))))
}

#[test]
fn a_part_does_not_wait_in_the_queue_and_is_not_behind_more_than_there_can_be() {
    let mut harness = harness();
    harness.enqueue(vec![part(1)]);
    harness.settle();
    assert!(harness.running_steps().is_empty());
    let client = harness.connect();
    let behind = Some(PartsBefore { tasks: u32::MAX - 1, nodes: 1 });
    launch(&mut harness, client, StepSpec { het: Some(HetPart { leader: JobId(501), behind }), ..exact("a", 1) });
    assert!(refused(&harness, client));
    harness.core.check().unwrap();
}

#[test]
fn numbers_that_are_passed_over_come_to_an_end_and_those_that_are_used_do_not_count() {
    let mut harness = harness();
    let greedy = harness.connect();
    let first = reserve(&mut harness, greedy, u32::MAX).unwrap();
    assert_eq!(first, (1 << 24) - 1);
    let next = harness.connect();
    harness.say(next, CommandToStepMgr::ReserveStep { at_least: 0 });
    harness.settle();
    assert!(refused(&harness, next));
    // What was reserved may still be launched, and makes room for another.
    launch(&mut harness, greedy, part(1));
    let other = harness.connect();
    assert_eq!(reserve(&mut harness, other, 0), Some(1 << 24));
}

#[test]
fn a_step_whose_program_is_sent_starts_when_it_is_there() {
    let mut harness = harness();
    let client = harness.connect();
    assert_eq!(reserve(&mut harness, client, 0), Some(0));
    launch(&mut harness, client, StepSpec { sent: Some(SentProgram { named_by_node: true }), ..exact("a", 2) });
    let layout = StepLayout { nodes: vec!["n1".to_owned()], ranks: vec![vec![0, 1]], handed: [false; 3] };
    assert_eq!(harness.last(client), Some(&StepMgrToCommand::Placed(layout.clone())));
    assert!(harness.running().is_empty());
    let own = WholeStep { nodes: vec!["n1".to_owned()], tasks_per_node: vec![2] };
    harness.say(client, CommandToStepMgr::StartPart(own));
    harness.settle();
    assert!(harness.heard[&client].contains(&StepMgrToCommand::Started(layout)));
    assert_eq!(harness.running().len(), 2);
}
