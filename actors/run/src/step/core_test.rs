//! One step by itself, effects compared whole.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::{
    step::PlannedNode,
    stepmgr::{
        StepMgrConfig, StepMgrEffect, StepMgrInput,
        builders::{exact, run},
        harness::Harness,
    },
};
use garrick_model::{
    ids::{StepId, StepKey, StepNum},
    messages::shepherd::Stream,
    spec::{JobKind, Mpi, OpenMode},
    usage::TaskUsage,
};
use serde_bytes::ByteBuf;

const NOW: Timestamp = Timestamp::from_secs(1_795_255_201);

/// The plan of a step of two tasks on each of two nodes, made by the step manager itself.
fn plan() -> StepPlan {
    let mut harness = Harness::ready(run(JobKind::Allocation, &[2, 2]), StepMgrConfig::default());
    harness.srun(exact("a", 4));
    while harness.steps.is_empty() {
        assert!(harness.deliver(0));
    }
    harness.steps.values().next().unwrap().plan().clone()
}

fn tell(core: &mut StepCore, input: StepInput) -> Vec<StepEffect> {
    let mut out = Vec::new();
    core.handle(NOW, input, &mut out);
    out
}

fn step() -> StepId {
    StepId::new(garrick_model::ids::JobId(502), StepNum::Number(0))
}

fn from(node: u32, message: ShepherdToStepMgr) -> StepInput {
    StepInput::Shepherd { node: NodeSlot(node), message }
}

fn exited(node: u32, rank: u32, code: u8) -> StepInput {
    let status = ExitStatus { code, signal: None };
    let end = TaskEnd { status, usage: TaskUsage::default(), oom: false };
    from(node, ShepherdToStepMgr::TaskExited { step: step(), rank, end, gone: false })
}

fn to_all(message: StepMgrToShepherd) -> Vec<StepEffect> {
    [0, 1].map(|n| StepEffect::ToShepherd { node: NodeSlot(n), message: message.clone() }).to_vec()
}

/// The plan of a step whose tasks write to a file.
fn plan_to_file(pattern: &str, open_mode: OpenMode) -> StepPlan {
    let mut plan = plan();
    let launch = Arc::make_mut(&mut plan.launch);
    (launch.stdout, launch.stderr) = (StreamTarget::File(pattern.to_owned()), StreamTarget::SameAsStdout);
    (launch.open_mode, launch.unattended) = (open_mode, false);
    plan
}

fn started(node: u32, rank: u32) -> StepInput {
    from(node, ShepherdToStepMgr::TaskStarted { step: step(), rank, pid: 7 })
}

/// Nodes that are told to launch, and to what else.
fn launches(out: &[StepEffect]) -> Vec<u32> {
    let of = |effect: &StepEffect| match effect {
        StepEffect::ToShepherd { node, message: StepMgrToShepherd::Launch(_) } => Some(node.0),
        _ => None,
    };
    out.iter().filter_map(of).collect()
}

#[test]
fn a_task_that_runs_out_of_memory_ends_its_step_where_that_was_asked_for() {
    for kill_on_oom in [false, true] {
        let mut core = StepCore::new(StepPlan { kill_on_oom, ..plan() });
        tell(&mut core, StepInput::Begin);
        tell(&mut core, started(0, 0));
        let status = ExitStatus { code: 0, signal: Some(9) };
        let end = TaskEnd { status, usage: TaskUsage::default(), oom: true };
        let out = tell(&mut core, from(0, ShepherdToStepMgr::TaskExited { step: step(), rank: 0, end, gone: false }));
        let ends = |effect: &StepEffect| {
            matches!(effect, StepEffect::ToShepherd { message: StepMgrToShepherd::Terminate { .. }, .. })
        };
        assert_eq!(out.iter().any(ends), kill_on_oom, "{out:?}");
    }
}

/// Nine of 36 such files held one node's lines only: the first node truncated what another had written.
#[test]
fn a_file_that_several_nodes_write_is_opened_on_the_first_before_others_begin() {
    let mut core = StepCore::new(plan_to_file("f.out", OpenMode::Truncate));
    assert_eq!(launches(&tell(&mut core, StepInput::Begin)), [0]);
    assert_eq!(launches(&tell(&mut core, started(0, 1))), [0u32; 0], "it opens the file after the first one");
    // What is said to all meanwhile comes behind the launch.
    let signal = StepInput::Signal { signal: 10, reach: SignalReach::Groups };
    assert!(matches!(tell(&mut core, signal)[..], [StepEffect::ToShepherd { node: NodeSlot(0), .. }]));
    let out = tell(&mut core, started(0, 0));
    assert_eq!(launches(&out), [1]);
    let Some(StepEffect::ToShepherd { node: NodeSlot(1), message: StepMgrToShepherd::Signal { signal: 10, .. } }) =
        out.last()
    else {
        panic!("{out:?}")
    };
    for (pattern, mode) in [
        ("f.%t", OpenMode::Truncate),
        ("f.%N", OpenMode::Truncate),
        ("f", OpenMode::Append),
        ("/dev/null", OpenMode::Truncate),
    ] {
        let mut core = StepCore::new(plan_to_file(pattern, mode));
        assert_eq!(launches(&tell(&mut core, StepInput::Begin)), [0, 1], "{pattern} {mode:?}");
    }
}

#[test]
fn others_begin_also_where_the_first_task_could_not_be_started_and_not_where_the_step_ends() {
    let failed = ShepherdToStepMgr::TaskFailed {
        step: step(),
        rank: 0,
        untried: false,
        message: "cannot open f.out".to_owned(),
        status: ExitStatus { code: 1, signal: None },
        unknown: false,
    };
    let mut core = StepCore::new(plan_to_file("f.out", OpenMode::Truncate));
    tell(&mut core, StepInput::Begin);
    assert_eq!(launches(&tell(&mut core, from(0, failed))), [1]);

    let mut core = StepCore::new(plan_to_file("f.out", OpenMode::Truncate));
    tell(&mut core, StepInput::Begin);
    let out = tell(&mut core, StepInput::End(StepEnd::Cancelled));
    assert!(out.iter().all(|e| !matches!(e, StepEffect::ToShepherd { node: NodeSlot(1), .. })), "{out:?}");
    assert_eq!(launches(&tell(&mut core, exited(0, 0, 0))), [0u32; 0]);
    tell(&mut core, exited(0, 1, 0));
    let out = tell(&mut core, from(0, ShepherdToStepMgr::StepGone { step: step() }));
    let Some(StepEffect::Over(result)) = out.last() else { panic!("{out:?}") };
    assert_eq!((result.state, result.exit), (StepState::Cancelled, ExitStatus { code: 0, signal: Some(15) }));

    // The first node is lost before it said anything.
    let mut core = StepCore::new(plan_to_file("f.out", OpenMode::Truncate));
    tell(&mut core, StepInput::Begin);
    let out = tell(&mut core, StepInput::NodeLost { node: NodeSlot(0) });
    assert_eq!(launches(&out), [0u32; 0]);
    assert!(core.is_over(), "{out:?}");
}

#[test]
fn a_step_hands_each_node_its_share_and_then_tells_its_layout() {
    let plan = plan();
    let mut core = StepCore::new(plan.clone());
    let launch = |node: &PlannedNode| StepEffect::ToShepherd {
        node: node.slot,
        message: StepMgrToShepherd::Launch(Box::new(StepStart {
            step: plan.id,
            attempt: 0,
            launch: LaunchRef::Whole(plan.launch.clone()),
            env: plan.env.clone(),
            own_env: plan.own_env.clone(),
            share: node.share.clone(),
            tasks: node.tasks.clone(),
            after: None,
            mapping: None,
        })),
    };
    let layout =
        StepLayout { nodes: vec!["n1".into(), "n2".into()], ranks: vec![vec![0, 1], vec![2, 3]], handed: [false; 3] };
    let started = StepEffect::ToClient(StepMgrToCommand::Started(layout));
    assert_eq!(tell(&mut core, StepInput::Begin), [launch(&plan.nodes[0]), launch(&plan.nodes[1]), started]);
    assert_eq!(tell(&mut core, StepInput::Begin), []);
}

#[test]
fn it_is_over_when_every_node_is_rid_of_it_with_the_worst_exit() {
    let mut core = StepCore::new(plan());
    tell(&mut core, StepInput::Begin);
    for (node, rank, code) in [(0, 0, 1), (0, 1, 9), (1, 2, 0), (1, 3, 0)] {
        tell(&mut core, exited(node, rank, code));
    }
    assert_eq!(tell(&mut core, from(0, ShepherdToStepMgr::StepGone { step: step() })), []);
    let result = StepResult {
        step: step(),
        state: StepState::Failed,
        exit: ExitStatus { code: 9, signal: None },
        ended: None,
        usage: Default::default(),
        spread: None,
        detail: None,
    };
    assert_eq!(tell(&mut core, from(1, ShepherdToStepMgr::StepGone { step: step() })), [StepEffect::Over(result)]);
    assert_eq!(tell(&mut core, StepInput::Kill(StepEnd::Cancelled)), []);
}

#[test]
fn a_step_ends_with_the_reason_why_its_first_task_that_could_not_be_started_was_not() {
    let failed = |rank, message: &str, unknown| ShepherdToStepMgr::TaskFailed {
        step: step(),
        rank,
        message: message.to_owned(),
        status: ExitStatus { code: 2, signal: None },
        unknown,
        untried: false,
    };
    let mut core = StepCore::new(plan());
    tell(&mut core, StepInput::Begin);
    tell(&mut core, from(0, failed(0, "task 0: node n1 does not know what became of it", true)));
    tell(
        &mut core,
        from(0, failed(1, "[2026-11-21T10:00:58.001] error: execve(): x: No such file or directory", false)),
    );
    tell(
        &mut core,
        from(1, failed(2, "[2026-11-21T10:00:59.001] error: execve(): y: No such file or directory", false)),
    );
    tell(&mut core, exited(1, 3, 0));
    tell(&mut core, from(0, ShepherdToStepMgr::StepGone { step: step() }));
    let out = tell(&mut core, from(1, ShepherdToStepMgr::StepGone { step: step() }));
    let [StepEffect::Over(result)] = &out[..] else { panic!("{out:?}") };
    assert_eq!(result.detail.as_deref(), Some("execve(): x: No such file or directory"));
}

#[test]
fn a_node_speaks_for_its_own_tasks_only_and_each_ends_once() {
    let mut core = StepCore::new(plan());
    tell(&mut core, StepInput::Begin);
    assert_eq!(tell(&mut core, exited(0, 2, 1)), []);
    assert_eq!(tell(&mut core, exited(1, 2, 1)).len(), 1);
    assert_eq!(tell(&mut core, exited(1, 2, 0)), []);
    assert_eq!(tell(&mut core, exited(1, 99, 0)), []);
    let data = ByteBuf::from(vec![b'x']);
    let output = ShepherdToStepMgr::Output { step: step(), rank: 3, stream: Stream::Stdout, data };
    assert_eq!(tell(&mut core, from(0, output)), []);
}

#[test]
fn the_first_cancel_asks_and_the_second_kills() {
    let mut core = StepCore::new(plan());
    tell(&mut core, StepInput::Begin);
    let cancel = || StepInput::Client(CommandToStepMgr::Cancel);
    let message = "STEP 502.0 ON n1 CANCELLED AT 2026-11-21T10:00:01".into();
    let mut asked = vec![StepEffect::ToClient(StepMgrToCommand::Terminating { message })];
    asked.extend(to_all(StepMgrToShepherd::Terminate { step: step() }));
    assert_eq!(tell(&mut core, cancel()), asked);
    assert_eq!(tell(&mut core, cancel()), to_all(StepMgrToShepherd::Kill { step: step() }));
    assert_eq!(tell(&mut core, cancel()), []);
}

#[test]
fn a_resumed_step_counts_tasks_that_nobody_has_as_lost() {
    let mut core = StepCore::new(plan());
    assert_eq!(tell(&mut core, StepInput::Resume { live: vec![3] }), []);
    tell(&mut core, exited(1, 3, 0));
    let result = StepResult {
        step: step(),
        state: StepState::Failed,
        exit: UNKNOWN_EXIT,
        ended: Some(StepEnd::ExitUnknown),
        usage: Default::default(),
        spread: None,
        detail: None,
    };
    assert_eq!(tell(&mut core, from(1, ShepherdToStepMgr::StepGone { step: step() })), [StepEffect::Over(result)]);
}

#[test]
fn a_step_whose_actor_died_is_killed_and_ends_as_failed() {
    let mut harness = Harness::ready(run(JobKind::Allocation, &[2]), StepMgrConfig::default());
    let srun = harness.srun(exact("a", 1));
    harness.settle();
    harness.steps.clear();
    let mut out = Vec::new();
    harness.core.handle(NOW, StepMgrInput::StepCrashed { step: StepKey::number(0) }, &mut out);
    let kill = StepMgrEffect::ToShepherd { node: NodeSlot(0), message: StepMgrToShepherd::Kill { step: step() } };
    assert_eq!(out[0], kill);
    let finished = StepMgrToCommand::Finished { exit: UNKNOWN_EXIT, state: StepState::Failed };
    assert!(out.contains(&StepMgrEffect::ToClient { client: srun, message: finished }));
    harness.core.check().unwrap();
    assert_eq!(harness.core.counts().running, 0);
}

/// Found by simulation: the link to a node broke after the end of a step's task was said, and before its node was clean. Back
/// again, the node knew nothing of the step, it was taken for one that never ran, and ran a second time.
#[test]
fn a_step_whose_task_ended_is_not_taken_for_one_that_never_started() {
    let one = |harness: &mut Harness| {
        harness.srun(exact("a", 1));
        while harness.steps.is_empty() {
            assert!(harness.deliver(0));
        }
        StepCore::new(harness.steps.values().next().unwrap().plan().clone())
    };
    let mut harness = Harness::ready(run(JobKind::Allocation, &[2]), StepMgrConfig::default());
    let mut core = one(&mut harness);
    tell(&mut core, StepInput::Begin);
    tell(&mut core, exited(0, 0, 3));
    let out = tell(&mut core, from(0, ShepherdToStepMgr::NotStarted { step: step() }));
    assert!(!out.contains(&StepEffect::NotStarted), "{out:?}");
    let over = out.iter().find_map(|e| if let StepEffect::Over(result) = e { Some(result) } else { None });
    assert_eq!(over.map(|result| result.exit), Some(ExitStatus { code: 3, signal: None }), "{out:?}");
}

/// The messages to shepherds.
fn sent(out: &[StepEffect]) -> Vec<(u32, StepMgrToShepherd)> {
    let of = |effect: &StepEffect| match effect {
        StepEffect::ToShepherd { node, message } => Some((node.0, message.clone())),
        _ => None,
    };
    out.iter().filter_map(of).collect()
}

#[test]
fn a_fence_opens_for_all_nodes_when_the_last_has_come_and_gives_each_what_all_told() {
    let mut plan = plan();
    Arc::make_mut(&mut plan.launch).mpi = Mpi::Pmi2;
    let mut core = StepCore::new(plan);
    let begun = sent(&tell(&mut core, StepInput::Begin));
    let mapping = |message: &StepMgrToShepherd| match message {
        StepMgrToShepherd::Launch(start) => start.mapping.clone(),
        other => panic!("{other:?}"),
    };
    let told: Vec<_> = begun.iter().map(|(_, message)| mapping(message)).collect();
    assert_eq!(told, [Some("(vector,(0,2,2))".to_owned()), Some("(vector,(0,2,2))".to_owned())]);
    let pair = |text: &str| (text.to_owned(), text.to_uppercase());
    let come = |node, fence, puts| from(node, ShepherdToStepMgr::PmiFence { step: step(), fence, puts });
    assert_eq!(tell(&mut core, come(1, 0, vec![pair("b")])), []);
    // As a shepherd repeats it to a step manager that may be new.
    assert_eq!(tell(&mut core, come(1, 0, vec![pair("b")])), []);
    let opened = StepMgrToShepherd::PmiFenced { step: step(), fence: 0, puts: Arc::new(vec![pair("a"), pair("b")]) };
    assert_eq!(sent(&tell(&mut core, come(0, 0, vec![pair("a")]))), [(0, opened.clone()), (1, opened)]);
    // As a shepherd repeats it that was out of reach when the last one came.
    assert_eq!(tell(&mut core, come(1, 0, vec![pair("b")])), []);
    assert_eq!(tell(&mut core, come(0, 1, Vec::new())), [], "the next one is another");
    assert_eq!(sent(&tell(&mut core, come(1, 1, Vec::new()))).len(), 2);
    // A node without tasks of the step has no say.
    assert_eq!(tell(&mut core, come(7, 2, Vec::new())), []);
    // The step manager ended when one node had passed a fence and the other had not, whichever comes first to the new one.
    for [first, second] in [[(0, 2), (1, 3)], [(0, 3), (1, 2)]] {
        let mut core = StepCore::new(core.plan().clone());
        tell(&mut core, StepInput::Begin);
        assert_eq!(tell(&mut core, come(first.0, first.1, Vec::new())), []);
        assert!(
            sent(&tell(&mut core, come(second.0, second.1, Vec::new())))
                .iter()
                .any(|(_, message)| matches!(message, StepMgrToShepherd::Terminate { .. }))
        );
    }
}

#[test]
fn what_tasks_tell_each_other_is_bounded_and_counts_where_it_is_empty() {
    let mut core = StepCore::new(plan());
    tell(&mut core, StepInput::Begin);
    let puts = vec![(String::new(), String::new()); pmi::MOST_FENCED / 16 + 1];
    let out = tell(&mut core, from(0, ShepherdToStepMgr::PmiFence { step: step(), fence: 0, puts }));
    assert!(sent(&out).iter().any(|(_, message)| matches!(message, StepMgrToShepherd::Terminate { .. })), "{out:?}");
}

#[test]
fn a_task_that_aborts_its_mpi_program_ends_the_step_and_its_user_reads_why() {
    let mut core = StepCore::new(plan());
    tell(&mut core, StepInput::Begin);
    let abort =
        |node, rank| from(node, ShepherdToStepMgr::PmiAbort { step: step(), rank, message: "exit code 3".to_owned() });
    assert_eq!(tell(&mut core, abort(0, 2)), [], "that task is on another node");
    let out = tell(&mut core, abort(1, 2));
    let terminated: Vec<u32> = sent(&out)
        .iter()
        .filter(|(_, message)| matches!(message, StepMgrToShepherd::Terminate { .. }))
        .map(|(node, _)| *node)
        .collect();
    assert_eq!(terminated, [0, 1], "{out:?}");
    let Some(StepEffect::ToClient(StepMgrToCommand::Output { rank: 2, data, .. })) = out.first() else {
        panic!("{out:?}")
    };
    let text = "slurmstepd: error: *** STEP 502.0 ABORTED BY TASK 2: exit code 3 ***\n";
    assert_eq!(String::from_utf8_lossy(data), text);
    assert_eq!(tell(&mut core, abort(1, 3)), [], "once is enough");
}
