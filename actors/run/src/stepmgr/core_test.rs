//! Scenarios of whole runs: step manager, steps and shepherds as they are, launchers made up.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::stepmgr::{
    builders::{bytes, exact, job_spec, run, step},
    harness::Harness,
    messages::StepMgrInput,
};
use garrick_model::{
    batch::{GivenNumbers, StepBatch},
    messages::{
        node::SignalScope,
        shepherd::{StepMgrToShepherd, Stream},
        step::{CommandToStepMgr, OUTPUT_GRANT, STDIN_WINDOW, StepMgrToCommand},
    },
    refusal::Refusal,
    signal::{SIGCONT, SIGKILL, SIGSTOP, SIGTERM, SIGTSTP},
    spec::{JobKind, JobSpec, NodeCount, SignalWarning, StepSharing, StreamTarget},
    state::StepState,
    step_selector::WhichSteps,
    view::StepCounts,
};
use serde_bytes::ByteBuf;
use std::collections::BTreeSet;

const OK: ExitStatus = ExitStatus::SUCCESS;

fn code(code: u8) -> ExitStatus {
    ExitStatus { code, signal: None }
}

fn killed(signal: u8) -> ExitStatus {
    ExitStatus { code: 0, signal: Some(signal) }
}

fn batch(cpus: &[u32]) -> Harness {
    Harness::ready(run(JobKind::Batch, cpus), StepMgrConfig::default())
}

fn batch_with(cpus: &[u32], change: impl FnOnce(&mut JobSpec)) -> Harness {
    let mut facts = run(JobKind::Batch, cpus);
    let mut spec = job_spec(JobKind::Batch);
    change(&mut spec);
    facts.spec = Arc::new(spec);
    Harness::ready(facts, StepMgrConfig::default())
}

fn ended(harness: &Harness) -> (JobState, Reason, ExitStatus, ExitStatus) {
    match harness.job_reports().iter().find(|r| matches!(r, StepdReport::Ended { .. })) {
        Some(StepdReport::Ended { state, reason, exit, derived, .. }) => (*state, reason.clone(), *exit, *derived),
        other => panic!("the job did not end: {other:?}"),
    }
}

fn errors(harness: &Harness) -> Vec<String> {
    harness.files.iter().map(|(path, text)| format!("{path}: {}", text.trim_end())).collect()
}

#[test]
fn a_batch_job_runs_its_script_and_ends_with_its_exit_code() {
    let mut harness = batch(&[4]);
    assert_eq!(harness.job_reports(), [StepdReport::Started]);
    let (_, token, ..) = harness.running()[0];
    let spawn = &harness.nodes[0].processes[&token].spawn;
    assert_eq!(*spawn.argv, [bytes("/spool/502.batch")]);
    harness.exit(StepKey::BATCH, code(3));
    assert_eq!(ended(&harness), (JobState::Failed, Reason::NonZeroExitCode, code(3), OK));
    assert_eq!(harness.job_reports().last(), Some(&StepdReport::Gone));
    assert!(harness.exited);
}

#[test]
fn an_srun_gets_its_number_its_layout_its_output_and_its_end_in_order() {
    let mut harness = batch(&[4]);
    let srun = harness.srun(exact("hostname", 2));
    harness.settle();
    let ranks: Vec<(usize, u64, StepKey, u32)> =
        harness.running().into_iter().filter(|(_, _, s, _)| *s == StepKey::number(0)).collect();
    assert_eq!(ranks.len(), 2);
    harness.print(0, ranks[1].1, Stream::Stdout, b"n1\n");
    harness.exit_code(0, 0);
    let told: Vec<String> = harness.heard[&srun]
        .iter()
        .map(|m| match m {
            StepMgrToCommand::Accepted { step, .. } => format!("accepted {step}"),
            StepMgrToCommand::Started(layout) => format!("started {:?} {:?}", layout.nodes, layout.ranks),
            StepMgrToCommand::TaskStarted { rank, .. } => format!("task {rank}"),
            StepMgrToCommand::Output { rank, data, .. } => format!("{rank}: {}", String::from_utf8_lossy(data)),
            StepMgrToCommand::TaskExited { rank, status, .. } => format!("exit {rank} {}", status.code),
            StepMgrToCommand::Finished { state, .. } => format!("{state:?}"),
            other => format!("{other:?}"),
        })
        .collect();
    assert_eq!(
        told,
        [
            "accepted 502.0",
            "started [\"n1\"] [[0, 1]]",
            "task 0",
            "task 1",
            "1: n1\n",
            "exit 0 0",
            "1: ",
            "exit 1 0",
            "Completed",
        ]
    );
}

#[test]
fn default_steps_take_turns_and_exact_ones_run_side_by_side() {
    let mut harness = batch(&[2]);
    let first = harness.srun(step("a"));
    let second = harness.srun(step("b"));
    harness.settle();
    assert_eq!(harness.running_steps(), [0]);
    assert_eq!(harness.last(second), Some(&StepMgrToCommand::Queued { reason: Reason::Resources }));
    harness.exit_code(0, 0);
    assert_eq!(harness.finished(first), Some((StepState::Completed, OK)));
    assert_eq!(harness.running_steps(), [1]);
    harness.exit_code(1, 0);
    harness.srun(exact("c", 1));
    harness.srun(exact("d", 1));
    harness.settle();
    assert_eq!(harness.running_steps(), [2, 3]);
}

#[test]
fn immediate_is_refused_when_there_is_no_room_and_overlap_needs_none() {
    let mut harness = batch(&[1]);
    harness.srun(step("a"));
    let immediate = harness.srun(StepSpec { immediate: true, ..step("b") });
    let overlap = harness.srun(StepSpec { sharing: StepSharing::Overlap, ..step("c") });
    harness.settle();
    assert_eq!(harness.last(immediate), Some(&StepMgrToCommand::Refused(Refusal::Busy)));
    assert_eq!(harness.running_steps(), [0, 1]);
    harness.exit_code(1, 7);
    assert_eq!(harness.finished(overlap), Some((StepState::Failed, code(7))));
}

#[test]
fn an_srun_that_goes_away_while_waiting_is_withdrawn_and_killed_when_it_ran() {
    let mut harness = batch(&[1]);
    let running = harness.srun(step("a"));
    let waiting = harness.srun(step("b"));
    harness.settle();
    harness.hang_up(waiting);
    harness.settle();
    assert_eq!(harness.core.counts(), StepCounts { queued: 0, running: 1, done: 0, failed: 1, cancelled: 1 });
    harness.hang_up(running);
    harness.settle();
    assert_eq!(harness.running_steps(), Vec::<u32>::new());
    assert_eq!(harness.core.ledger().end_of(StepKey::number(0)).unwrap().exit, killed(15));
}

#[test]
fn what_can_never_run_is_refused_at_once() {
    let mut harness = batch(&[2]);
    let srun = harness.srun(exact("a", 3));
    harness.settle();
    let Some(StepMgrToCommand::Refused(Refusal::StepImpossible { detail })) = harness.last(srun) else {
        panic!("not refused: {:?}", harness.last(srun));
    };
    assert_eq!(detail, "More processors requested than permitted: 3 of 2");
}

#[test]
fn a_step_has_no_more_tasks_on_a_node_than_the_site_allows() {
    let config = StepMgrConfig { max_tasks_per_node: 3, ..StepMgrConfig::default() };
    let mut harness = Harness::ready(run(JobKind::Batch, &[8, 8]), config);
    let tasks = |tasks, nodes| StepSpec { tasks: Some(tasks), nodes: Some(nodes), ..step("a") };
    let wide = harness.srun(tasks(7, NodeCount { min: 1, max: Some(2) }));
    let narrow = harness.srun(tasks(4, NodeCount { min: 1, max: Some(1) }));
    harness.settle();
    for (client, on_a_node) in [(wide, 4), (narrow, 4)] {
        let Some(StepMgrToCommand::Refused(Refusal::StepImpossible { detail })) = harness.last(client) else {
            panic!("not refused: {:?}", harness.last(client));
        };
        assert_eq!(*detail, format!("{on_a_node} tasks on a node, where a step may have 3 (MaxTasksPerNode)"));
    }
    harness.srun(tasks(6, NodeCount { min: 2, max: Some(2) }));
    harness.settle();
    assert_eq!(harness.running_steps(), [0]);
}

#[test]
fn a_job_has_no_more_steps_than_the_site_allows() {
    let config = StepMgrConfig { max_step_count: Some(3), ..StepMgrConfig::default() };
    let mut harness = Harness::ready(run(JobKind::Batch, &[2]), config);
    harness.srun(exact("a", 1));
    harness.settle();
    let too_many = harness.enqueue(vec![step("b"), step("c"), step("d")]);
    harness.settle();
    assert!(matches!(harness.last(too_many), Some(StepMgrToCommand::Refused(Refusal::StepLimit))));
    harness.enqueue(vec![step("b"), step("c")]);
    harness.settle();
    let one_more = harness.srun(exact("e", 1));
    harness.settle();
    assert!(matches!(harness.last(one_more), Some(StepMgrToCommand::Refused(Refusal::StepLimit))));
}

#[test]
fn other_users_are_refused_and_root_may_speak_for_the_owner_only_if_trusted() {
    let mut harness = batch(&[2]);
    let stranger = harness.connect_as(2000);
    harness.say(stranger, CommandToStepMgr::List);
    let root = harness.connect_as(0);
    harness.say(root, CommandToStepMgr::List);
    let liar = harness.connect();
    let caller = garrick_model::messages::command::Caller { uid: 0, gid: 0, pid: 1, host: "n1".into() };
    harness.say(liar, CommandToStepMgr::OnBehalfOf(caller));
    harness.settle();
    assert_eq!(harness.last(stranger), Some(&StepMgrToCommand::Refused(Refusal::AccessDenied)));
    assert!(matches!(harness.last(root), Some(StepMgrToCommand::Steps(steps)) if steps.len() == 1));
    assert_eq!(harness.last(liar), Some(&StepMgrToCommand::Refused(Refusal::AccessDenied)));
}

#[test]
fn a_step_over_two_nodes_starts_only_when_both_are_there() {
    let mut harness = Harness::new(run(JobKind::Batch, &[2, 2]), StepMgrConfig::default());
    harness.shepherd_up(0);
    harness.settle();
    let both = harness.srun(StepSpec { nodes: Some(NodeCount { min: 2, max: None }), tasks: Some(2), ..step("a") });
    harness.settle();
    assert_eq!(harness.running_steps(), Vec::<u32>::new());
    // Its command is not told of a wait that is a matter of milliseconds.
    assert!(matches!(harness.last(both), Some(StepMgrToCommand::Accepted { .. })));
    harness.shepherd_up(1);
    harness.settle();
    let nodes: Vec<usize> =
        harness.running().iter().filter(|(_, _, s, _)| *s == StepKey::number(0)).map(|(n, ..)| *n).collect();
    assert_eq!(nodes, [0, 1]);
}

#[test]
fn steps_sent_together_are_acknowledged_when_durable_and_run_as_there_is_room() {
    let mut harness = batch(&[2]);
    let client = harness.enqueue((0..5).map(|_| exact("a", 1)).collect());
    harness.settle();
    let given = Some(GivenNumbers { first: 0, count: 5, array: false });
    let enqueued = StepMgrToCommand::Enqueued { given, declined: Vec::new(), warnings: Vec::new() };
    assert_eq!(harness.heard[&client], [enqueued]);
    assert_eq!(harness.running_steps(), [0, 1]);
    let wait = harness.wait(&[], 0);
    harness.settle();
    for n in 0..5 {
        harness.exit_code(n, n as u8);
    }
    let counts = StepCounts { queued: 0, running: 0, done: 1, failed: 4, cancelled: 0 };
    let drained = StepMgrToCommand::Drained { job: harness.core.facts().job, counts, worst: code(4) };
    assert_eq!(harness.last(wait), Some(&drained));
}

#[test]
fn nothing_is_acknowledged_before_it_is_on_disk_and_a_repeat_gets_the_first_answer() {
    let mut core = StepMgrCore::new(Arc::new(run(JobKind::Batch, &[1])), StepMgrConfig::default(), Ledger::default());
    let mut out = Vec::new();
    let now = Timestamp(0);
    let open = |core: &mut StepMgrCore, n| {
        let caller = garrick_model::messages::command::Caller { uid: 1001, gid: 1001, pid: 1, host: "n1".into() };
        core.handle(now, StepMgrInput::ClientOpened { client: ClientId(n), caller }, &mut Vec::new());
        ClientId(n)
    };
    let enqueue = |client| StepMgrInput::Client {
        client,
        message: CommandToStepMgr::Enqueue { request: RequestId(1, 2), batch: Box::new(StepBatch::one(exact("a", 1))) },
    };
    let first = open(&mut core, 1);
    core.handle(now, enqueue(first), &mut out);
    let [StepMgrEffect::Journal { event: StepEvent::Accepted { .. }, durable: Some(1) }] = out.as_slice() else {
        panic!("{out:?}");
    };
    out.clear();
    let repeat = open(&mut core, 2);
    core.handle(now, enqueue(repeat), &mut out);
    assert_eq!(out, []);
    core.handle(now, StepMgrInput::Journaled { upto: 1 }, &mut out);
    let answered: Vec<ClientId> = out
        .iter()
        .filter_map(|e| match e {
            StepMgrEffect::ToClient { client, message: StepMgrToCommand::Enqueued { given, .. } } => {
                assert_eq!(*given, Some(GivenNumbers { first: 0, count: 1, array: false }));
                Some(*client)
            }
            _ => None,
        })
        .collect();
    assert_eq!(answered, [first, repeat]);
    out.clear();
    let late = open(&mut core, 3);
    core.handle(now, enqueue(late), &mut out);
    assert!(matches!(out.as_slice(), [StepMgrEffect::ToClient { message: StepMgrToCommand::Enqueued { .. }, .. }]));
    assert_eq!(core.counts().queued, 1);
}

#[test]
fn a_full_queue_says_when_to_try_again() {
    let config = StepMgrConfig { queue_limit: 2, ..StepMgrConfig::default() };
    let mut harness = Harness::ready(run(JobKind::Batch, &[1]), config);
    harness.enqueue(vec![step("a"), step("b"), step("c")]);
    harness.settle();
    let client = harness.enqueue(vec![step("d")]);
    harness.settle();
    assert!(matches!(harness.last(client), Some(StepMgrToCommand::Refused(Refusal::RetryAfter { .. }))));
    // The conversation goes on, for the same request.
    harness.exit_code(0, 0);
    harness.say(
        client,
        CommandToStepMgr::Enqueue { request: RequestId(9, 9), batch: Box::new(StepBatch::one(step("d"))) },
    );
    harness.settle();
    assert!(matches!(harness.last(client), Some(StepMgrToCommand::Enqueued { .. })));
}

#[test]
fn a_blocking_srun_goes_ahead_of_queued_minibatch_steps_until_they_have_aged() {
    let mut harness = batch(&[1]);
    harness.enqueue(vec![step("a"), step("b"), step("c")]);
    harness.settle();
    harness.srun(step("urgent"));
    harness.settle();
    harness.exit_code(0, 0);
    assert_eq!(harness.running_steps(), [3]);
    harness.advance(Duration::from_secs(61));
    harness.srun(step("too late"));
    harness.settle();
    harness.exit_code(3, 0);
    assert_eq!(harness.running_steps(), [1]);
}

#[test]
fn small_steps_fill_gaps_but_a_large_one_gets_its_nodes_in_the_end() {
    let config = StepMgrConfig { max_bypass: 3, bypass_per_cpu: 1, ..StepMgrConfig::default() };
    let mut harness = Harness::ready(run(JobKind::Batch, &[2]), config);
    harness.srun(exact("first", 1));
    harness.settle();
    let large = harness.srun(exact("large", 2));
    harness.settle();
    // A new small step comes whenever one ends: without a bound the large one would never start.
    let mut bypassed = 0;
    for n in 2..10 {
        harness.srun(exact("small", 1));
        harness.settle();
        let running: Vec<u32> = harness.running_steps().into_iter().filter(|s| *s != 1).collect();
        bypassed += usize::from(running.contains(&n));
        if harness.running_steps().contains(&1) {
            break;
        }
        if let Some(oldest) = running.first() {
            harness.exit_code(*oldest, 0);
        }
    }
    assert!(harness.running_steps().contains(&1), "{:?}", harness.last(large));
    assert_eq!(bypassed, 3);
}

#[test]
fn when_the_script_ends_its_steps_are_cancelled_and_its_user_is_told_of_swait() {
    let mut harness = batch(&[1]);
    harness.enqueue(vec![step("a"), step("b"), step("c")]);
    harness.settle();
    harness.exit(StepKey::BATCH, OK);
    assert_eq!(ended(&harness), (JobState::Completed, Reason::None, OK, killed(15)));
    assert_eq!(
        errors(&harness).first().map(String::as_str),
        Some(
            "/home/alice/demo/slurm-502.out: slurmstepd: error: *** JOB 502 ON n1: BATCH SCRIPT ENDED WITH 1 RUNNING \
             AND 2 QUEUED STEPS, WHICH ARE CANCELLED (\"swait\" at the end of a script waits for them) ***"
        )
    );
    assert_eq!(harness.core.counts(), StepCounts { queued: 0, running: 0, done: 0, failed: 3, cancelled: 3 });
}

#[test]
fn a_cancelled_job_says_so_in_its_error_file_and_ends_with_what_its_script_made_of_it() {
    let mut harness = batch(&[2]);
    let srun = harness.srun(step("a"));
    harness.settle();
    harness.tell(NodeToStepd::EndJob { state: JobState::Cancelled, reason: Reason::None, lost: Vec::new() });
    harness.settle();
    assert_eq!(ended(&harness), (JobState::Cancelled, Reason::None, killed(15), killed(15)));
    assert_eq!(
        errors(&harness),
        ["/home/alice/demo/slurm-502.out: slurmstepd: error: *** JOB 502 ON n1 CANCELLED AT 2026-11-21T10:00:01 ***"]
    );
    let told = &harness.heard[&srun];
    assert!(told.contains(&StepMgrToCommand::Terminating {
        message: "STEP 502.0 ON n1 CANCELLED AT 2026-11-21T10:00:01".into()
    }));
    assert_eq!(harness.finished(srun), Some((StepState::Cancelled, killed(15))));
}

#[test]
fn the_time_limit_warns_then_ends_then_kills() {
    let mut facts = run(JobKind::Batch, &[1]);
    facts.time_limit = TimeLimit::Secs(600);
    let mut spec = job_spec(JobKind::Batch);
    spec.signal = Some(SignalWarning { signal: 10, before_secs: 60, batch_only: true, overlaps: false });
    facts.spec = Arc::new(spec);
    let mut harness = Harness::ready(facts, StepMgrConfig::default());
    harness.stubborn = true;
    harness.advance(Duration::from_secs(539));
    assert_eq!(harness.signals, []);
    harness.advance(Duration::from_secs(1));
    assert_eq!(harness.signals, [(10, false)]);
    harness.advance(Duration::from_secs(60));
    assert_eq!(harness.signals[1..], [(18, true), (15, true)]);
    assert_eq!(harness.core.phase(), RunPhase::Ending);
    harness.advance(Duration::from_secs(29));
    assert_eq!(harness.signals.len(), 3);
    harness.advance(Duration::from_secs(1));
    assert_eq!(harness.signals[3..], [(9, true)]);
    assert_eq!(ended(&harness), (JobState::Timeout, Reason::TimeLimit, OK, OK));
    assert_eq!(
        errors(&harness),
        [
            "/home/alice/demo/slurm-502.out: slurmstepd: error: *** JOB 502 ON n1 CANCELLED AT 2026-11-21T10:10:01 DUE TO TIME LIMIT ***"
        ]
    );
}

#[test]
fn a_new_time_limit_counts_from_the_start_of_the_run() {
    let mut facts = run(JobKind::Batch, &[1]);
    facts.time_limit = TimeLimit::Secs(60);
    let mut harness = Harness::ready(facts, StepMgrConfig::default());
    harness.advance(Duration::from_secs(50));
    harness.tell(NodeToStepd::SetTimeLimit(TimeLimit::Secs(100)));
    harness.settle();
    harness.advance(Duration::from_secs(49));
    assert_eq!(harness.core.phase(), RunPhase::Running);
    harness.advance(Duration::from_secs(1));
    assert_eq!(ended(&harness).0, JobState::Timeout);
}

#[test]
fn over_time_limit_is_a_grace_period_and_may_be_unlimited() {
    for (over, end) in [(Some(Duration::from_secs(120)), Some(180)), (None, None)] {
        let mut facts = run(JobKind::Batch, &[1]);
        facts.time_limit = TimeLimit::Secs(60);
        let config = StepMgrConfig { over_time_limit: over, ..StepMgrConfig::default() };
        let mut harness = Harness::ready(facts, config);
        harness.advance(Duration::from_secs(179));
        assert_eq!(harness.core.phase(), RunPhase::Running);
        harness.advance(Duration::from_secs(1));
        assert_eq!(harness.core.phase() != RunPhase::Running, end.is_some());
    }
}

#[test]
fn a_step_has_a_time_limit_of_its_own() {
    let mut harness = batch(&[1]);
    let srun = harness.srun(StepSpec { time_limit: Some(TimeLimit::Secs(60)), ..step("a") });
    harness.settle();
    harness.advance(Duration::from_secs(60));
    assert_eq!(harness.finished(srun), Some((StepState::Timeout, killed(15))));
    let told = harness.heard[&srun].iter().any(|m| {
        *m == StepMgrToCommand::Terminating {
            message: "STEP 502.0 ON n1 CANCELLED AT 2026-11-21T10:01:01 DUE TO TIME LIMIT".into(),
        }
    });
    assert!(told);
    assert_eq!(harness.core.phase(), RunPhase::Running);
}

#[test]
fn a_lost_node_ends_the_job_unless_no_kill() {
    let mut harness = batch(&[1, 1]);
    let there = harness.srun(StepSpec { nodelist: vec!["n2".into()], ..exact("a", 1) });
    harness.settle();
    harness.lose(1);
    harness.settle();
    assert_eq!(harness.finished(there), Some((StepState::NodeFail, killed(9))));
    assert_eq!(ended(&harness).0, JobState::NodeFail);
    assert!(harness.exited);

    let mut harness = batch_with(&[1, 1], |spec| spec.no_kill = true);
    let there = harness.srun(StepSpec { nodelist: vec!["n2".into()], ..exact("a", 1) });
    let here = harness.srun(StepSpec { nodelist: vec!["n1".into()], ..exact("b", 1) });
    harness.settle();
    let never = harness.srun(exact("c", 2));
    harness.settle();
    harness.lose(1);
    harness.settle();
    assert_eq!(harness.finished(there), Some((StepState::NodeFail, killed(9))));
    assert_eq!(harness.finished(never).map(|f| f.0), Some(StepState::NodeFail));
    assert_eq!(harness.running_steps(), [1]);
    harness.exit_code(1, 0);
    assert_eq!(harness.finished(here), Some((StepState::Completed, OK)));
    harness.exit(StepKey::BATCH, OK);
    assert_eq!(ended(&harness).0, JobState::Completed);
}

/// A restarted step manager knows which nodes had a shepherd: what is lost while nobody looks is not begun anew.
#[test]
fn the_next_step_manager_looks_for_shepherds_that_were_there_and_has_others_begun() {
    let mut harness = Harness::new(run(JobKind::Batch, &[1, 1, 1]), StepMgrConfig::default());
    harness.shepherd_up(0);
    harness.shepherd_up(2);
    harness.settle();
    let ledger = Ledger::replay(harness.journal.iter().cloned());
    assert_eq!(ledger.begun, BTreeSet::from([2]));
    let facts = Arc::new(harness.core.facts().clone());
    let mut core = StepMgrCore::new(facts, StepMgrConfig { restarted: true, ..StepMgrConfig::default() }, ledger);
    let mut out = Vec::new();
    core.handle(harness.now, StepMgrInput::Begin, &mut out);
    let asked = |effect: &StepMgrEffect| match effect {
        StepMgrEffect::StartShepherd { node, again } => Some((node.0, *again)),
        _ => None,
    };
    assert_eq!(out.iter().filter_map(asked).collect::<Vec<_>>(), [(1, false), (2, true)]);
    // Its agent has nothing of the run any more.
    let result = Err(Refusal::AlreadyDone);
    out.clear();
    core.handle(harness.now, StepMgrInput::ShepherdStart { node: NodeSlot(2), result }, &mut out);
    assert_eq!(core.ledger().lost, BTreeSet::from([2]));
    assert_eq!(core.ledger().ending.as_ref().map(|(state, ..)| *state), Some(JobState::NodeFail));
}

/// The controller has let go of a lost node. A step manager that was started again once asked it for a shepherd all the same,
/// which began the run there anew beside whoever had the node by then.
#[test]
fn a_node_that_was_lost_is_not_asked_again_by_the_next_step_manager() {
    let mut harness = batch_with(&[1, 1], |spec| spec.no_kill = true);
    harness.settle();
    harness.lose(1);
    harness.settle();
    let ledger = Ledger::replay(harness.journal.iter().cloned());
    assert_eq!(ledger.lost, BTreeSet::from([1]));
    let facts = Arc::new(harness.core.facts().clone());
    let mut core = StepMgrCore::new(facts, StepMgrConfig { restarted: true, ..StepMgrConfig::default() }, ledger);
    let mut out = Vec::new();
    core.handle(harness.now, StepMgrInput::Begin, &mut out);
    let asked: Vec<&StepMgrEffect> = out.iter().filter(|e| matches!(e, StepMgrEffect::StartShepherd { .. })).collect();
    assert_eq!(asked, Vec::<&StepMgrEffect>::new());
    // One that comes by itself is told to end.
    out.clear();
    core.handle(harness.now, StepMgrInput::ShepherdUp { node: NodeSlot(1) }, &mut out);
    assert_eq!(out, [StepMgrEffect::ToShepherd { node: NodeSlot(1), message: StepMgrToShepherd::EndJob }]);
    harness.restart_manager();
    harness.settle();
    harness.exit(StepKey::BATCH, OK);
    assert_eq!(ended(&harness).0, JobState::Completed);
    assert!(harness.exited);
}

/// A crash kept the loss of a node, and not the end behind it.
#[test]
fn a_lost_node_ends_the_job_under_the_next_step_manager_too() {
    for no_kill in [false, true] {
        let mut harness = batch_with(&[1, 1], |spec| spec.no_kill = no_kill);
        harness.settle();
        harness.lose(1);
        harness.settle();
        let lost = |event: &StepEvent| matches!(event, StepEvent::NodeLost { .. });
        let upto = harness.journal.iter().position(lost).unwrap();
        let ledger = Ledger::replay(harness.journal[..=upto].iter().cloned());
        assert!(ledger.ending.is_none());
        let facts = Arc::new(harness.core.facts().clone());
        let mut core = StepMgrCore::new(facts, StepMgrConfig { restarted: true, ..StepMgrConfig::default() }, ledger);
        let mut out = Vec::new();
        core.handle(harness.now, StepMgrInput::Begin, &mut out);
        let ends = |effect: &StepMgrEffect| {
            let failed = |event: &StepEvent| matches!(event, StepEvent::Ending { state: JobState::NodeFail, .. });
            matches!(effect, StepMgrEffect::Journal { event, .. } if failed(event))
        };
        assert_eq!(out.iter().any(ends), !no_kill);
    }
}

/// The manager died with the news on its way, while a step ran on both nodes: the next one hears it when it asks.
#[test]
fn a_node_that_was_lost_while_the_step_manager_was_away_is_not_waited_for() {
    let mut harness = batch_with(&[1, 1], |spec| spec.no_kill = true);
    harness.enqueue(vec![exact("wide", 2)]);
    harness.settle();
    assert_eq!(harness.running_steps(), [0]);
    harness.lose(1);
    harness.restart_manager();
    harness.settle();
    harness.exit(StepKey::BATCH, OK);
    harness.settle();
    assert_eq!(ended(&harness).0, JobState::Completed);
    assert!(harness.exited);
}

#[test]
fn a_node_that_the_controller_gave_up_is_not_waited_for_and_the_end_is_as_it_says() {
    let mut harness = batch(&[1, 1]);
    let wide = harness.srun(exact("a", 2));
    harness.settle();
    // It is silent: nothing of what is sent there is answered.
    harness.nodes[1].away = true;
    harness.nodes[1].lost = true;
    harness.tell(NodeToStepd::EndJob {
        state: JobState::NodeFail,
        reason: Reason::NodeDown,
        lost: vec!["n2".to_owned()],
    });
    harness.settle();
    assert_eq!(harness.finished(wide).map(|f| f.0), Some(StepState::NodeFail));
    let report = harness.job_reports().iter().find_map(|r| match r {
        StepdReport::Ended { state, reason, lost, .. } => Some((*state, reason.clone(), lost.clone())),
        _ => None,
    });
    assert_eq!(report, Some((JobState::NodeFail, Reason::NodeDown, vec!["n2".to_owned()])));
    assert!(harness.exited, "it waits for the lost node");
}

#[test]
fn an_allocation_is_ready_when_its_first_node_is_and_ends_with_its_owner() {
    let mut harness = Harness::new(run(JobKind::Allocation, &[2, 2]), StepMgrConfig::default());
    assert_eq!(harness.job_reports(), []);
    harness.shepherd_up(0);
    harness.settle();
    assert_eq!(harness.job_reports(), [StepdReport::Started]);
    harness.shepherd_up(1);
    let srun = harness.srun(StepSpec { tasks: Some(2), ..step("a") });
    harness.settle();
    harness.tell(NodeToStepd::FinishAllocation(code(1)));
    harness.settle();
    assert_eq!(harness.finished(srun).map(|f| f.0), Some(StepState::Cancelled));
    assert_eq!(ended(&harness), (JobState::Failed, Reason::NonZeroExitCode, code(1), killed(15)));
}

#[test]
fn a_program_that_cannot_be_executed_ends_with_the_errno_and_says_why() {
    let mut harness = batch(&[1]);
    let srun = harness.srun(step("/nosuch/program"));
    harness.settle();
    assert_eq!(harness.finished(srun), Some((StepState::Failed, code(2))));
    let failed = StepMgrToCommand::TaskFailed {
        rank: 0,
        message: "[2026-11-21T10:00:01.000] error: execve(): /nosuch/program: No such file or directory".into(),
        status: code(2),
    };
    assert!(harness.heard[&srun].contains(&failed));
}

#[test]
fn kill_on_bad_exit_ends_the_other_tasks_and_keeps_the_worst_exit() {
    let mut harness = batch(&[4]);
    let srun = harness.srun(StepSpec { kill_on_bad_exit: true, ..exact("a", 3) });
    harness.settle();
    let (node, token, ..) =
        harness.running().into_iter().find(|(_, _, s, r)| *s == StepKey::number(0) && *r == 1).unwrap();
    harness.end_process(node, token, code(7));
    harness.settle();
    assert_eq!(harness.finished(srun), Some((StepState::Failed, killed(15))));
}

#[test]
fn wait_gives_the_other_tasks_some_seconds_after_the_first_end() {
    let mut harness = batch(&[4]);
    let srun = harness.srun(StepSpec { wait_secs: Some(5), ..exact("a", 2) });
    harness.settle();
    let (node, token, ..) = harness.running().into_iter().find(|(_, _, s, _)| *s == StepKey::number(0)).unwrap();
    harness.end_process(node, token, OK);
    harness.settle();
    harness.advance(Duration::from_secs(4));
    assert_eq!(harness.finished(srun), None);
    harness.advance(Duration::from_secs(1));
    assert_eq!(harness.finished(srun), Some((StepState::Failed, killed(15))));
}

#[test]
fn signals_reach_steps_the_batch_shell_or_all() {
    let mut harness = batch(&[2]);
    harness.srun(exact("a", 1));
    harness.settle();
    for (to, reached) in [
        (SignalScope::Steps, vec![(10, true)]),
        (SignalScope::BatchShell, vec![(10, false)]),
        (SignalScope::Full, vec![(10, true), (10, true)]),
    ] {
        harness.signals.clear();
        harness.tell(NodeToStepd::SignalJob { signal: 10, to });
        harness.settle();
        assert_eq!(harness.signals, reached, "{to:?}");
    }
}

fn signal_all(harness: &mut Harness, signal: i32) -> Vec<(i32, bool)> {
    harness.signals.clear();
    harness.tell(NodeToStepd::SignalJob { signal, to: SignalScope::Full });
    harness.settle();
    std::mem::take(&mut harness.signals)
}

#[test]
fn a_job_that_stands_still_starts_no_step_until_it_goes_on() {
    let mut harness = batch(&[1]);
    harness.enqueue(vec![exact("a", 1), exact("b", 1)]);
    harness.settle();
    assert_eq!(signal_all(&mut harness, SIGSTOP), [(SIGSTOP, true), (SIGSTOP, true)]);
    assert_eq!(harness.run_signals, [(0, SIGSTOP)]);
    // A place is free, and one comes that would fit.
    harness.exit_code(0, 0);
    let srun = harness.srun(StepSpec { sharing: StepSharing::Overlap, ..exact("c", 1) });
    harness.settle();
    assert!(harness.running_steps().is_empty());
    assert_eq!(harness.last(srun), Some(&StepMgrToCommand::Queued { reason: Reason::Resources }));
    let hurried = harness.srun(StepSpec { immediate: true, sharing: StepSharing::Overlap, ..exact("d", 1) });
    harness.settle();
    assert_eq!(harness.last(hurried), Some(&StepMgrToCommand::Refused(Refusal::Busy)));
    // Signals for some of it change nothing.
    harness.tell(NodeToStepd::SignalJob { signal: SIGCONT, to: SignalScope::Steps });
    harness.settle();
    assert!(harness.running_steps().is_empty());
    assert_eq!(signal_all(&mut harness, SIGCONT), [(SIGCONT, true)]);
    assert_eq!(harness.run_signals, [(0, SIGSTOP), (0, SIGCONT)]);
    assert_eq!(harness.running_steps(), [1, 2]);
}

#[test]
fn a_step_manager_that_took_over_goes_on_standing_still() {
    for continued in [false, true] {
        let mut harness = batch(&[2]);
        harness.enqueue(vec![exact("a", 1), exact("b", 1), exact("c", 1)]);
        harness.settle();
        signal_all(&mut harness, SIGSTOP);
        harness.exit_code(0, 0);
        harness.restart_manager();
        let last = if continued { SIGCONT } else { SIGSTOP };
        if continued {
            // Nothing is known yet of what runs.
            let signal = NodeToStepd::SignalJob { signal: SIGCONT, to: SignalScope::Full };
            harness.tell_manager(StepMgrInput::Agent(signal));
            assert_eq!(harness.signals, []);
        }
        harness.settle();
        assert_eq!(harness.signals, [(last, true), (last, true)]);
        assert_eq!(harness.run_signals, [(0, SIGSTOP), (0, last)]);
        assert_eq!(harness.running_steps(), if continued { vec![1, 2] } else { vec![1] });
    }
}

#[test]
fn what_is_to_end_is_not_stopped_by_an_order_from_before() {
    let mut harness = batch(&[1]);
    harness.stubborn = true;
    harness.tell(NodeToStepd::EndJob { state: JobState::Cancelled, reason: Reason::None, lost: Vec::new() });
    harness.settle();
    assert_eq!(harness.signals, [(SIGCONT, true), (SIGTERM, true)]);
    for signal in [SIGTSTP, SIGSTOP] {
        assert_eq!(signal_all(&mut harness, signal), []);
    }
    harness.advance(Duration::from_secs(30));
    assert_eq!((&harness.signals[..], &harness.run_signals[..]), (&[(SIGKILL, true)][..], &[][..]));
}

#[test]
fn what_ends_while_it_stands_still_goes_on_for_that() {
    let mut harness = batch(&[1]);
    harness.stubborn = true;
    signal_all(&mut harness, SIGSTOP);
    harness.tell(NodeToStepd::EndJob { state: JobState::Cancelled, reason: Reason::None, lost: Vec::new() });
    harness.settle();
    assert_eq!(harness.signals, [(SIGCONT, true), (SIGTERM, true)]);
    assert_eq!(harness.run_signals, [(0, SIGSTOP), (0, SIGCONT)]);
}

#[test]
fn the_warning_is_given_once_however_often_the_limit_moves_with_the_time() {
    let mut facts = run(JobKind::Batch, &[1]);
    facts.time_limit = TimeLimit::Secs(600);
    let mut spec = job_spec(JobKind::Batch);
    spec.signal = Some(SignalWarning { signal: 10, before_secs: 60, batch_only: true, overlaps: false });
    facts.spec = Arc::new(spec);
    let mut harness = Harness::ready(facts, StepMgrConfig::default());
    let limit = |harness: &mut Harness, limit| {
        harness.tell(NodeToStepd::SetTimeLimit(limit));
        harness.settle();
    };
    harness.advance(Duration::from_secs(550));
    assert_eq!(harness.signals, [(10, false)]);
    limit(&mut harness, TimeLimit::Unlimited);
    harness.advance(Duration::from_secs(100));
    limit(&mut harness, TimeLimit::Secs(700));
    harness.advance(Duration::from_secs(1));
    assert_eq!(harness.signals.len(), 1);
    // One that is far ahead is warned of again.
    limit(&mut harness, TimeLimit::Secs(2000));
    harness.advance(Duration::from_secs(1300));
    assert_eq!(harness.signals, [(10, false), (10, false)]);
}

#[test]
fn steps_are_cancelled_or_signalled_by_number() {
    let mut harness = batch(&[1]);
    harness.enqueue(vec![step("a"), step("b")]);
    harness.settle();
    let client = harness.connect();
    let named = |text: &str| text.parse::<WhichSteps>().unwrap();
    let steps = vec![named("0"), named("1"), named("9")];
    harness.say(client, CommandToStepMgr::SignalSteps { steps, pending_only: false, signal: Some(10) });
    harness.settle();
    assert_eq!(
        harness.last(client),
        Some(&StepMgrToCommand::PerStep(vec![
            Ok(1),
            Err(Refusal::JobPending),
            Err(Refusal::InvalidStep("502.9".into())),
        ]))
    );
    let steps = vec![named("[0-1]")];
    harness.say(client, CommandToStepMgr::SignalSteps { steps, pending_only: false, signal: None });
    harness.settle();
    assert_eq!(harness.core.counts(), StepCounts { queued: 0, running: 0, done: 0, failed: 2, cancelled: 2 });
}

#[test]
fn a_slow_srun_stops_its_own_tasks_output_and_nothing_grows() {
    let mut harness = batch(&[2]);
    let slow = harness.srun(exact("a", 1));
    harness.settle();
    let (node, token, ..) = harness.running().into_iter().find(|(_, _, s, _)| *s == StepKey::number(0)).unwrap();
    let piece = vec![b'x'; 16 * 1024];
    for _ in 0..200 {
        harness.print(node, token, Stream::Stdout, &piece);
    }
    harness.settle();
    let bytes = |harness: &Harness| -> u64 {
        harness.heard[&slow]
            .iter()
            .map(|m| if let StepMgrToCommand::Output { data, .. } = m { data.len() as u64 } else { 0 })
            .sum()
    };
    assert_eq!(bytes(&harness), OUTPUT_GRANT);
    let unread: usize = harness.nodes[node].processes[&token].unread[0].len();
    assert!(unread > 100, "the task's pipe is not read any further: {unread} pieces are left in it");
    // Another step is not held up.
    let other = harness.srun(exact("b", 1));
    harness.settle();
    harness.exit_code(1, 0);
    assert_eq!(harness.finished(other), Some((StepState::Completed, OK)));
    for _ in 0..200 {
        harness.say(slow, CommandToStepMgr::Consumed(16 * 1024));
        harness.settle();
    }
    assert_eq!(bytes(&harness), 200 * 16 * 1024);
}

#[test]
fn input_goes_to_all_tasks_and_is_granted_as_they_take_it() {
    let mut harness = batch(&[2]);
    let srun = harness.srun(exact("a", 2));
    harness.settle();
    let data = ByteBuf::from(vec![b'y'; STDIN_WINDOW as usize]);
    harness.say(srun, CommandToStepMgr::Stdin(data));
    harness.say(srun, CommandToStepMgr::Stdin(ByteBuf::new()));
    harness.settle();
    for (node, token, step, _) in harness.running() {
        if step == StepKey::number(0) {
            let got = &harness.nodes[node].processes[&token].got;
            assert_eq!(got.iter().map(|g| g.len()).collect::<Vec<_>>(), [STDIN_WINDOW as usize, 0]);
        }
    }
    assert!(harness.heard[&srun].contains(&StepMgrToCommand::StdinConsumed(STDIN_WINDOW)));
}

#[test]
fn input_sent_while_a_step_waits_reaches_it_when_it_starts() {
    let mut harness = batch(&[1]);
    harness.srun(step("a"));
    let second = harness.srun(step("b"));
    harness.say(second, CommandToStepMgr::Stdin(bytes("hello")));
    harness.settle();
    harness.exit_code(0, 0);
    let (node, token, ..) = harness.running().into_iter().find(|(_, _, s, _)| *s == StepKey::number(1)).unwrap();
    assert_eq!(harness.nodes[node].processes[&token].got, [bytes("hello")]);
}

#[test]
fn minibatch_output_goes_to_a_file_of_its_own() {
    let mut harness = batch(&[1]);
    harness.enqueue(vec![step("a")]);
    harness.settle();
    let (node, token, ..) = harness.running().into_iter().find(|(_, _, s, _)| *s == StepKey::number(0)).unwrap();
    let spawn = &harness.nodes[node].processes[&token].spawn;
    let garrick_model::messages::launcher::FdSource::File { path, .. } = &spawn.stdio[1] else {
        panic!("{:?}", spawn.stdio);
    };
    assert_eq!(path, "/home/alice/demo/slurm-502.0.out");
}

#[test]
fn a_cancelled_step_with_an_error_file_gets_its_notice_there() {
    let mut harness = batch(&[1]);
    harness.enqueue(vec![StepSpec { stderr: StreamTarget::File("err.%s".into()), ..step("a") }]);
    harness.settle();
    let steps = WhichSteps::one(StepKey::number(0));
    harness.tell(NodeToStepd::SignalSteps { steps, pending_only: false, signal: None, by: None });
    harness.settle();
    assert_eq!(
        errors(&harness),
        ["/home/alice/demo/err.0: slurmstepd: error: *** STEP 502.0 ON n1 CANCELLED AT 2026-11-21T10:00:01 ***"]
    );
}

#[test]
fn step_changes_are_reported_in_batches_newest_state_first() {
    let mut harness = batch(&[2]);
    harness.enqueue(vec![exact("a", 1), exact("b", 1)]);
    harness.settle();
    harness.exit_code(0, 0);
    harness.advance(Duration::from_secs(1));
    let reported: Vec<Vec<(String, StepState)>> = harness
        .agent
        .iter()
        .filter_map(|m| match m {
            StepdToNode::Report { report: StepdReport::Steps(rows), .. } => {
                let rows = rows.unpack().unwrap();
                Some(rows.views(harness.core.facts().job).map(|v| (v.id.to_string(), v.state)).collect())
            }
            _ => None,
        })
        .collect();
    assert_eq!(
        reported,
        [vec![
            ("502.0".to_owned(), StepState::Completed),
            ("502.batch".to_owned(), StepState::Running),
            ("502.1".to_owned(), StepState::Running)
        ]]
    );
}

#[test]
fn reports_are_repeated_to_a_new_agent_until_acknowledged() {
    let mut core = StepMgrCore::new(Arc::new(run(JobKind::Batch, &[1])), StepMgrConfig::default(), Ledger::default());
    let mut out = Vec::new();
    let now = Timestamp(0);
    core.handle(now, StepMgrInput::Begin, &mut out);
    core.handle(now, StepMgrInput::ShepherdUp { node: NodeSlot(0) }, &mut out);
    let started = StepMgrEffect::ToAgent(StepdToNode::Report { seq: 1, report: StepdReport::Started });
    assert!(out.contains(&started));
    out.clear();
    core.handle(now, StepMgrInput::AgentUp, &mut out);
    assert_eq!(out[..2], [StepMgrEffect::OpenAgent, started.clone()]);
    out.clear();
    core.handle(now, StepMgrInput::Agent(NodeToStepd::Ack { upto: 1 }), &mut out);
    core.handle(now, StepMgrInput::AgentUp, &mut out);
    assert!(!out.contains(&started));
}

/// A run ended while its node's agent was being started anew. Its manager was connected to the new agent, and said its last
/// numbers before that had welcomed it: the agent took those, and dropped the end, which was repeated behind them under its
/// lower number, as something that it had. The controller never heard of that end.
#[test]
fn what_is_said_before_an_agent_welcomes_does_not_overtake_what_it_has_to_be_told_again() {
    let mut harness = batch(&[2]);
    harness.acknowledges = false;
    harness.enqueue(vec![exact("a", 1)]);
    harness.settle();
    harness.advance(Duration::from_secs(60));
    let report = |message: &StepdToNode| match message {
        StepdToNode::Report { seq, report } => Some((*seq, report.clone())),
        _ => None,
    };
    let (lost, _) = harness.agent.iter().filter_map(report).last().expect("the step that runs is reported");
    // The agent is another one now, and connected.
    let connected = harness.agent.len();
    harness.agent_opened = None;
    harness.exit(StepKey::BATCH, OK);
    harness.settle();
    harness.advance(Duration::from_secs(120));
    assert!(harness.agent.len() > connected, "the end is said before the welcome");
    assert_eq!(harness.agent_opened, None, "and that does not go over the new connection");
    harness.tell_manager(StepMgrInput::AgentUp);
    let opened = harness.agent_opened.expect("the new connection is open");
    assert!(opened >= connected);
    let heard: Vec<_> = harness.agent[opened..].iter().filter_map(report).collect();
    assert!(heard.iter().any(|(seq, _)| *seq == lost));
    assert!(heard.is_sorted_by_key(|(seq, _)| *seq), "an agent takes growing numbers only");
    assert!(heard.iter().any(|(_, report)| matches!(report, StepdReport::Ended { .. })));
}

#[test]
fn a_restarted_manager_keeps_its_queue_ends_what_it_lost_and_goes_on_with_the_script() {
    let mut harness = batch(&[2]);
    let srun = harness.srun(exact("a", 1));
    harness.enqueue(vec![exact("b", 1), exact("c", 1)]);
    harness.settle();
    assert_eq!(harness.running_steps(), [0, 1]);
    harness.restart_manager();
    harness.settle();
    // The output of the step that had a command had nowhere to go; the others go on.
    assert_eq!(harness.core.ledger().end_of(StepKey::number(0)).unwrap().state, StepState::Failed);
    assert!(harness.finished(srun).is_none());
    assert_eq!(harness.running_steps(), [1, 2]);
    harness.exit_code(1, 3);
    harness.exit_code(2, 0);
    assert_eq!(harness.core.ledger().end_of(StepKey::number(1)).unwrap().exit, code(3));
    harness.exit(StepKey::BATCH, code(4));
    assert_eq!(ended(&harness), (JobState::Failed, Reason::NonZeroExitCode, code(4), killed(9)));
}

#[test]
fn waiting_for_named_steps_reports_their_worst_exit() {
    let mut harness = batch(&[1]);
    harness.enqueue(vec![step("a"), step("b"), step("c")]);
    harness.settle();
    harness.exit_code(0, 9);
    let wait = harness.wait(&["0", "1"], 0);
    harness.settle();
    assert_eq!(harness.last(wait), None);
    harness.exit_code(1, 1);
    assert!(matches!(harness.last(wait), Some(StepMgrToCommand::Drained { worst, .. }) if *worst == code(9)));
}

#[test]
fn progress_is_told_no_more_often_than_asked_for() {
    let mut harness = batch(&[4]);
    harness.enqueue((0..4).map(|_| exact("a", 1)).collect());
    harness.settle();
    let wait = harness.wait(&[], 1000);
    harness.settle();
    for n in 0..3 {
        harness.exit_code(n, 0);
    }
    let told = |harness: &Harness| harness.heard.get(&wait).map_or(0, Vec::len);
    assert_eq!(told(&harness), 1);
    harness.advance(Duration::from_secs(1));
    let counts = StepCounts { queued: 0, running: 1, done: 3, failed: 0, cancelled: 0 };
    assert_eq!(harness.last(wait), Some(&StepMgrToCommand::Progress(counts)));
    assert_eq!(told(&harness), 2);
}

#[test]
fn a_batch_host_that_never_gets_ready_is_a_launch_failure() {
    let mut harness = Harness::new(run(JobKind::Batch, &[1]), StepMgrConfig::default());
    harness.lose(0);
    harness.settle();
    let [StepdReport::LaunchFailed { reason, .. }, StepdReport::Gone] = &harness.job_reports()[..] else {
        panic!("{:?}", harness.job_reports());
    };
    assert_eq!(*reason, Reason::JobLaunchFailure);
}

/// The disk of the batch host was full, so the script could not be written, and the job was recorded as one whose script had
/// exited with 1.
#[test]
fn a_script_that_could_not_be_written_is_a_launch_failure() {
    let mut harness = Harness::new(run(JobKind::Batch, &[1]), StepMgrConfig::default());
    harness.disk_full = true;
    harness.shepherd_up(0);
    harness.settle();
    let [StepdReport::Started, StepdReport::LaunchFailed { reason, detail }, StepdReport::Gone] =
        &harness.job_reports()[..]
    else {
        panic!("{:?}", harness.job_reports());
    };
    assert_eq!(*reason, Reason::JobLaunchFailure);
    assert!(detail.contains("No space left on device"), "{detail}");
}

/// A job whose output could not be opened ended with a code and no word.
#[test]
fn a_script_that_could_not_be_started_ends_the_job_with_the_reason() {
    let mut harness = batch_with(&[1], |spec| spec.stdout = Some("/nosuch/x.out".to_owned()));
    harness.settle();
    let [StepdReport::Started, StepdReport::Ended { exit, cause, .. }, StepdReport::Gone] = &harness.job_reports()[..]
    else {
        panic!("{:?}", harness.job_reports());
    };
    assert_eq!(*exit, ExitStatus { code: 0, signal: Some(53) });
    assert_eq!(cause.as_deref(), Some("Could not open stdout file /nosuch/x.out: No such file or directory"));
}

/// The node's daemon and the step manager were killed before anybody had the report: the next one said that the script had
/// exited with 1, and the job ended as failed.
#[test]
fn a_launch_failure_whose_report_was_lost_is_one_for_the_next_step_manager_too() {
    let mut harness = Harness::new(run(JobKind::Batch, &[1]), StepMgrConfig::default());
    harness.disk_full = true;
    harness.shepherd_up(0);
    harness.settle();
    let said = |harness: &Harness| {
        let reports = harness.job_reports();
        let failures = reports.iter().filter(|r| matches!(r, StepdReport::LaunchFailed { .. })).count();
        (failures, reports.iter().any(|r| matches!(r, StepdReport::Ended { .. })))
    };
    assert_eq!(said(&harness), (1, false));
    harness.restart_manager();
    harness.settle();
    assert_eq!(said(&harness), (2, false));
}

/// It was killed just after it had noted why the script could not be tried: the next one had the script run after all.
#[test]
fn a_launch_failure_on_record_keeps_the_next_step_manager_from_running_the_script() {
    let mut harness = Harness::new(run(JobKind::Batch, &[1]), StepMgrConfig::default());
    harness.shepherd_up(0);
    let noted = StepEvent::LaunchFailed { detail: "write /spool: No space left on device".to_owned() };
    harness.journal.push(noted);
    harness.restart_manager();
    harness.settle();
    assert_eq!(harness.spawned.get(&(StepKey::BATCH, 0)), None);
    let reports = harness.job_reports();
    let [.., StepdReport::LaunchFailed { reason, detail }, StepdReport::Gone] = &reports[..] else {
        panic!("{reports:?}");
    };
    assert_eq!((reason, detail.as_str()), (&Reason::JobLaunchFailure, "write /spool: No space left on device"));
}

/// The controller had acknowledged all ends of steps, and was killed before the job ended: it counted none.
#[test]
fn the_numbers_of_steps_are_said_once_more_behind_the_end_of_the_job() {
    let mut harness = batch(&[1]);
    harness.srun(step("a"));
    harness.settle();
    harness.exit_code(0, 3);
    harness.settle();
    harness.exit(StepKey::BATCH, OK);
    harness.settle();
    let reports: Vec<&StepdReport> = harness
        .agent
        .iter()
        .filter_map(|said| match said {
            StepdToNode::Report { report, .. } => Some(report),
            _ => None,
        })
        .collect();
    let end = reports.iter().position(|r| matches!(r, StepdReport::Ended { .. })).unwrap();
    let StepdReport::Steps(last) = reports[end + 1] else { panic!("{reports:?}") };
    assert_eq!((last.tally.counts.failed, last.tally.unreported, last.rows), (1, 0, 0));
}

#[test]
fn a_node_that_stays_dirty_does_not_hold_the_batch_host_for_ever() {
    let mut harness = Harness::new(run(JobKind::Batch, &[1, 1]), StepMgrConfig::default());
    harness.shepherd_up(0);
    harness.settle();
    harness.exit(StepKey::BATCH, OK);
    assert_eq!(ended(&harness).0, JobState::Completed);
    assert!(!harness.exited);
    harness.advance(Duration::from_secs(60));
    harness.settle();
    assert_eq!(harness.job_reports().last(), Some(&StepdReport::Gone));
    assert!(harness.exited);
}

/// Found by simulation: the controller keeps the numbers of a working run in memory and has acknowledged them; it died, the run
/// ended without another step, and the job was recorded with none.
#[test]
fn numbers_of_steps_are_said_once_more_after_the_end() {
    let mut harness = batch(&[2]);
    harness.srun(step("x"));
    harness.settle();
    harness.exit_code(0, 0);
    harness.advance(Duration::from_secs(5));
    let before = harness.agent.len();
    harness.tell(NodeToStepd::EndJob { state: JobState::Cancelled, reason: Reason::None, lost: Vec::new() });
    harness.settle();
    harness.advance(Duration::from_secs(300));
    let mut ended = false;
    let after_end = harness.agent[before..].iter().filter_map(|message| match message {
        StepdToNode::Report { report: StepdReport::Ended { .. }, .. } => {
            ended = true;
            None
        }
        StepdToNode::Report { report: StepdReport::Steps(steps), .. } if ended => Some(steps.tally.counts.done),
        _ => None,
    });
    assert_eq!(after_end.last(), Some(1));
}

/// What a step manager counts is newer than all that those before it counted, however its reports are passed on.
#[test]
fn tallies_are_numbered_over_all_step_managers_of_a_run() {
    let mut harness = batch(&[2]);
    for _life in 0..2 {
        harness.srun(step("x"));
        harness.settle();
        let token = harness.running().last().map(|running| running.1).unwrap();
        harness.end_process(0, token, OK);
        harness.advance(Duration::from_secs(5));
        harness.restart_manager();
        harness.settle();
    }
    let numbers: Vec<(u64, u64)> = harness
        .agent
        .iter()
        .filter_map(|message| match message {
            StepdToNode::Report { seq, report: StepdReport::Steps(steps) } => Some((*seq, steps.tally.number)),
            _ => None,
        })
        .collect();
    assert!(numbers.is_sorted_by(|a, b| a.1 < b.1), "{numbers:?}");
    assert!(numbers.iter().all(|(seq, number)| seq == number), "{numbers:?}");
    assert!(numbers.last().is_some_and(|last| last.1 > 1 << 32), "{numbers:?}");
}
