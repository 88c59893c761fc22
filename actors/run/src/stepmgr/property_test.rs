//! Rules that hold whatever happens, in whatever order messages arrive: after every message [`Harness`] recounts that no
//! CPU or megabyte is held twice; here, that every step ends exactly once, that the journal replays to what lives, that
//! every run ends and reports so once, and that no step waits for ever.
#![allow(clippy::unwrap_used)]

use crate::stepmgr::{
    Ledger, RunFacts, StepMgrConfig,
    builders::{run, step},
    harness::Harness,
    messages::ClientId,
    state::RunPhase,
};
use garrick_events::steps::event::StepEvent;
use garrick_model::{
    batch::{
        BatchMembers, FailBound, FailLimit, RetryPolicy, StepBatch, StepDependencies, StepDependency,
        StepDependencyKind,
    },
    gres::{GPU, GresCount, GresRequest, GresShare},
    ids::{RequestId, StepKey},
    messages::{
        step::{CommandToStepMgr, StepMgrToCommand},
        stepd::{NodeToStepd, StepdReport},
    },
    resources::{MemoryMib, MemoryRequest},
    spec::{ArraySpec, JobKind, NodeCount, StepSharing, StepSpec},
    state::{ExitStatus, JobState, Reason},
    step_selector::WhichSteps,
};
use proptest::prelude::*;
use std::{collections::BTreeMap, time::Duration};

#[derive(Clone, Debug)]
enum Op {
    Srun(Shape),
    Enqueue(Vec<Shape>),
    Array(Shape, u32, Option<u32>),
    Wait,
    /// Some process ends.
    Exit(u8, u8),
    HangUp(u8),
    Cancel(u8),
    CancelStep(u8),
    /// A launcher gives back what is lined up.
    GiveBack(u8),
    /// A node and all on it is lost.
    Lose(u8),
    /// A node's link breaks, or is made again.
    Link(u8),
    /// A node that is out of reach is not waited for any longer.
    GiveUp(u8),
    /// Something of a node dies, or is ended there.
    Fault(u8, Fault),
    /// The step manager's process dies, and the next one takes over. So many words to each node still arrive.
    TakeOver(u8),
    Advance(u16),
    Deliver(u8, u8),
}

#[derive(Clone, Copy, Debug)]
enum Fault {
    /// Its shepherd, and the next one has its launcher.
    Shepherd,
    /// Its launcher with all tasks.
    Launcher,
    /// Both.
    Both,
    /// Its agent ends the run there.
    Agent,
}

#[derive(Clone, Debug)]
struct Shape {
    tasks: u32,
    nodes: Option<u32>,
    sharing: u8,
    memory: Option<u64>,
    limit: bool,
    bad: bool,
    after: Option<(u8, u32)>,
    retries: u32,
    priority: i32,
    gpus: u8,
    /// Group of a limit of failures, if there is one.
    fails: u8,
}

impl Shape {
    fn gres(&self) -> GresRequest {
        let gpus = |count| vec![GresCount { name: GPU.into(), kind: None, count }];
        match self.gpus {
            0 => GresRequest { none: true, ..GresRequest::default() },
            1 => GresRequest { per_node: gpus(1), ..GresRequest::default() },
            2 => GresRequest { per_task: gpus(1), ..GresRequest::default() },
            3 => GresRequest { total: gpus(2), ..GresRequest::default() },
            _ => GresRequest::default(),
        }
    }

    fn spec(&self) -> StepSpec {
        let base = if self.bad { step("/nosuch/x") } else { step("x") };
        StepSpec {
            tasks: Some(self.tasks),
            nodes: self.nodes.map(|n| NodeCount { min: n, max: None }),
            sharing: match self.sharing {
                0 => StepSharing::Default,
                1 => StepSharing::Overlap,
                _ => StepSharing::Exact,
            },
            memory: self.memory.map_or(MemoryRequest::Default, |m| MemoryRequest::PerNode(MemoryMib(m))),
            time_limit: self.limit.then_some(garrick_model::time::TimeLimit::Secs(100)),
            kill_on_bad_exit: self.limit,
            dependency: self.after.map(|(kind, step)| StepDependencies {
                any: false,
                on: vec![StepDependency {
                    kind: match kind % 5 {
                        0 => StepDependencyKind::After,
                        1 => StepDependencyKind::AfterAny,
                        2 => StepDependencyKind::AfterOk,
                        3 => StepDependencyKind::AfterNotOk,
                        _ => StepDependencyKind::AfterCorr,
                    },
                    steps: WhichSteps::one(StepKey::number(step)),
                }],
            }),
            retry: (self.retries > 0).then(|| RetryPolicy {
                count: self.retries,
                delay_secs: self.retries - 1,
                on: Vec::new(),
            }),
            priority: self.priority,
            gres: self.gres(),
            fail_limit: (self.fails < 3).then(|| FailLimit {
                group: RequestId(0, u64::from(self.fails)),
                most: FailBound::Steps(u32::from(self.fails) + 1),
                kill: self.fails == 1,
            }),
            ..base
        }
    }
}

fn shape() -> impl Strategy<Value = Shape> {
    let memory = prop_oneof![3 => Just(None), 1 => (0u64..5000).prop_map(Some)];
    let after = proptest::option::weighted(0.3, (any::<u8>(), 0u32..12));
    let more = (after, 0u32..3, -1i32..2, 0u8..7, 0u8..12);
    (1u32..7, proptest::option::of(1u32..4), 0u8..5, memory, any::<bool>(), prop::bool::weighted(0.1), more).prop_map(
        |(tasks, nodes, sharing, memory, limit, bad, (after, retries, priority, gpus, fails))| Shape {
            tasks,
            nodes,
            sharing,
            memory,
            limit,
            bad,
            after,
            retries,
            priority,
            gpus,
            fails,
        },
    )
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => shape().prop_map(Op::Srun),
        3 => prop::collection::vec(shape(), 1..8).prop_map(Op::Enqueue),
        2 => (shape(), 1u32..9, proptest::option::of(1u32..3)).prop_map(|(s, n, limit)| Op::Array(s, n, limit)),
        1 => Just(Op::Wait),
        12 => (any::<u8>(), 0u8..3).prop_map(|(n, code)| Op::Exit(n, code)),
        2 => any::<u8>().prop_map(Op::HangUp),
        1 => any::<u8>().prop_map(Op::Cancel),
        1 => any::<u8>().prop_map(Op::CancelStep),
        1 => any::<u8>().prop_map(Op::GiveBack),
        1 => any::<u8>().prop_map(Op::Lose),
        1 => any::<u8>().prop_map(Op::Link),
        3 => (0u16..200).prop_map(Op::Advance),
        30 => (any::<u8>(), 1u8..20).prop_map(|(n, times)| Op::Deliver(n, times)),
    ]
}

/// Takeovers, and what happens to other nodes meanwhile.
fn trouble() -> impl Strategy<Value = Op> {
    let fault = prop_oneof![
        4 => Just(Fault::Shepherd),
        2 => Just(Fault::Launcher),
        1 => Just(Fault::Both),
        1 => Just(Fault::Agent),
    ];
    prop_oneof![
        5 => any::<u8>().prop_map(Op::TakeOver),
        9 => any::<u8>().prop_map(Op::Link),
        1 => any::<u8>().prop_map(Op::Lose),
        1 => any::<u8>().prop_map(Op::GiveUp),
        2 => (any::<u8>(), fault).prop_map(|(n, fault)| Op::Fault(n, fault)),
        6 => (any::<u8>(), 0u8..3).prop_map(|(n, code)| Op::Exit(n, code)),
        20 => (any::<u8>(), 1u8..20).prop_map(|(n, times)| Op::Deliver(n, times)),
    ]
}

/// One of the nodes besides the batch host.
fn other(harness: &Harness, n: u8) -> Option<usize> {
    let others = harness.nodes.len() - 1;
    (others > 0).then(|| 1 + usize::from(n) % others).filter(|node| !harness.nodes[*node].lost)
}

fn fault(harness: &mut Harness, node: usize, fault: Fault) {
    // Whatever dies with the shepherd, its link breaks first, and is made again if it was there.
    let linked = !harness.nodes[node].away;
    if linked && matches!(fault, Fault::Shepherd | Fault::Both) {
        harness.away(node);
    }
    match fault {
        Fault::Shepherd => harness.adopt(node),
        Fault::Both => harness.forget_node(node),
        Fault::Launcher => harness.lose_launcher(node),
        Fault::Agent => harness.end_by_agent(node),
    }
    if linked && harness.nodes[node].away {
        harness.back(node);
    }
}

fn apply(harness: &mut Harness, clients: &mut Vec<ClientId>, op: &Op) {
    let pick = |clients: &[ClientId], n: u8| clients.get(usize::from(n) % clients.len().max(1)).copied();
    match op {
        Op::Srun(shape) => clients.push(harness.srun(shape.spec())),
        Op::Enqueue(shapes) => clients.push(harness.enqueue(shapes.iter().map(Shape::spec).collect())),
        Op::Array(shape, count, limit) => {
            let tasks = ArraySpec { ranges: vec![(1, *count, 1)], limit: *limit };
            let batch = StepBatch { specs: vec![shape.spec()], members: BatchMembers::Array(tasks) };
            clients.push(harness.enqueue_batch(batch));
        }
        Op::Wait => clients.push(harness.wait(&[], 1000)),
        Op::Exit(n, code) => {
            let running: Vec<_> = harness.running().into_iter().filter(|r| r.2 != StepKey::BATCH).collect();
            if let Some((node, token, ..)) = running.get(usize::from(*n) % running.len().max(1)) {
                harness.end_process(*node, *token, ExitStatus { code: *code, signal: None });
            }
        }
        Op::HangUp(n) => {
            if let Some(client) = pick(clients, *n) {
                clients.retain(|c| *c != client);
                harness.hang_up(client);
            }
        }
        Op::Cancel(n) => {
            if let Some(client) = pick(clients, *n) {
                harness.say(client, CommandToStepMgr::Cancel);
            }
        }
        Op::CancelStep(n) => {
            let steps = WhichSteps::one(StepKey::number(u32::from(*n % 10)));
            harness.tell(NodeToStepd::SignalSteps { steps, pending_only: *n > 200, signal: None, by: None });
        }
        Op::GiveBack(n) => {
            let node = usize::from(*n) % harness.nodes.len();
            harness.give_back(node);
        }
        Op::Lose(n) => {
            if let Some(node) = other(harness, *n) {
                harness.lose(node);
            }
        }
        Op::Link(n) => match other(harness, *n) {
            Some(node) if harness.nodes[node].away => harness.back(node),
            Some(node) => harness.away(node),
            None => {}
        },
        Op::GiveUp(n) => {
            if let Some(node) = other(harness, *n).filter(|node| harness.nodes[*node].away) {
                harness.give_up(node);
            }
        }
        Op::Fault(n, what) => {
            if let Some(node) = other(harness, *n) {
                fault(harness, node, *what);
            }
        }
        Op::TakeOver(words) => {
            // Conversations are gone, and with them steps that waited with their commands.
            clients.clear();
            harness.heard.clear();
            harness.restart_process(usize::from(*words));
        }
        Op::Advance(secs) => harness.advance(Duration::from_secs(u64::from(*secs))),
        Op::Deliver(n, times) => {
            for i in 0..*times {
                harness.deliver(usize::from(*n).wrapping_mul(31).wrapping_add(usize::from(i)));
            }
        }
    }
}

fn ends(journal: &[StepEvent]) -> BTreeMap<StepKey, usize> {
    let mut ends = BTreeMap::new();
    let mut batches = BTreeMap::new();
    for event in journal {
        match event {
            StepEvent::Accepted { first, batch, .. } => {
                batches.insert(*first, batch.clone());
            }
            StepEvent::Ended { result, .. } => *ends.entry(result.step.key()).or_default() += 1,
            StepEvent::Withdrawn { first, members, .. } => {
                for member in members.iter().flat_map(|(from, to)| *from..=*to) {
                    *ends.entry(batches[first].key(*first, member)).or_default() += 1;
                }
            }
            _ => {}
        }
    }
    ends
}

/// Steps that were accepted, as the journal and the answers have them.
fn accepted(journal: &[StepEvent]) -> Vec<StepKey> {
    let of = |event: &StepEvent| match event {
        StepEvent::Accepted { first, batch, .. } => {
            batch.all().into_iter().map(|member| batch.key(*first, member)).collect()
        }
        _ => Vec::new(),
    };
    journal.iter().flat_map(of).collect()
}

/// No task has more processes than its step may have tries.
fn check_tries(harness: &Harness) -> Result<(), String> {
    let mut tries = BTreeMap::new();
    for event in &harness.journal {
        let StepEvent::Accepted { first, batch, .. } = event else { continue };
        for member in batch.all() {
            let retries = batch.spec_of(member).and_then(|spec| spec.retry.as_ref()).map_or(0, |retry| retry.count);
            tries.insert(batch.key(*first, member), 1 + retries);
        }
    }
    for ((key, rank), n) in &harness.spawned {
        let most = tries.get(key).copied().unwrap_or(1);
        if *n > most {
            return Err(format!("task {rank} of step {key} was started {n} times, {most} allowed"));
        }
    }
    Ok(())
}

fn with_gpus(kind: JobKind, cpus: &[u32], no_kill: bool) -> RunFacts {
    let mut facts = run(kind, cpus);
    for node in &mut facts.nodes {
        let devices = node.share.cpus.take(2);
        node.share.gres = vec![GresShare { name: GPU.into(), kind: None, count: devices.len().into(), devices }];
    }
    let mut spec = facts.spec.as_ref().clone();
    spec.no_kill = no_kill;
    facts.spec = std::sync::Arc::new(spec);
    facts
}

/// The run is over, and so is everything of it.
fn check_over(harness: &Harness, clients: &[ClientId]) -> Result<(), TestCaseError> {
    prop_assert_eq!(harness.core.phase(), RunPhase::Gone);
    prop_assert!(harness.exited);
    // Whatever was accepted has ended, and whoever stayed with a step knows.
    let counts = harness.core.counts();
    prop_assert_eq!((counts.queued, counts.running), (0, 0));
    prop_assert_eq!(&Ledger::replay(harness.journal.iter().cloned()), harness.core.ledger());
    let ends = ends(&harness.journal);
    prop_assert!(ends.values().all(|n| *n == 1), "a step ended twice");
    prop_assert!(accepted(&harness.journal).iter().all(|key| ends.contains_key(key)));
    for (client, heard) in &harness.heard {
        for message in heard {
            if let StepMgrToCommand::Accepted { step, .. } = message {
                prop_assert!(ends.contains_key(&step.key()));
                let finals = heard.iter().filter(|m| matches!(m, StepMgrToCommand::Finished { .. })).count();
                prop_assert!(finals == 1 || (finals == 0 && !clients.contains(client)), "{:?}", heard);
            }
        }
    }
    // One that is out of reach for all that time ends its own by itself.
    for node in harness.nodes.iter().filter(|node| !node.away) {
        prop_assert!(node.processes.values().all(|p| p.ended), "a process outlived its job");
    }
    Ok(())
}

fn end_run(harness: &mut Harness) {
    links_back(harness);
    harness.tell(NodeToStepd::EndJob { state: JobState::Cancelled, reason: Reason::None, lost: Vec::new() });
    harness.settle();
    harness.advance(Duration::from_secs(300));
}

fn links_back(harness: &mut Harness) {
    for node in 0..harness.nodes.len() {
        if harness.nodes[node].away {
            harness.back(node);
        }
    }
}

/// With `lines`, steps are lined up after the first end of their row, however long they take.
fn config(lines: bool) -> StepMgrConfig {
    let config = StepMgrConfig::default();
    if lines { StepMgrConfig { line_length: 3, pace_window: Duration::ZERO, ..config } } else { config }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn every_step_ends_once_and_every_run_too(
        cpus in prop::collection::vec(1u32..5, 1..4),
        no_kill in any::<bool>(),
        lines in any::<bool>(),
        ops in prop::collection::vec(op(), 1..120),
    ) {
        let facts = with_gpus(JobKind::Batch, &cpus, no_kill);
        let config = StepMgrConfig { max_bypass: 4, bypass_per_cpu: 1, lookahead: 5, ..config(lines) };
        let mut harness = Harness::new(facts, config);
        for node in 0..cpus.len() {
            harness.shepherd_up(node);
        }
        let mut clients = Vec::new();
        for op in &ops {
            apply(&mut harness, &mut clients, op);
            prop_assert!(ends(&harness.journal).values().all(|n| *n == 1), "a step ended twice");
        }
        end_run(&mut harness);
        let ended = harness.job_reports().iter().filter(|r| matches!(r, StepdReport::Ended { .. })).count();
        prop_assert_eq!(ended, 1);
        check_over(&harness, &clients)?;
    }

    #[test]
    fn with_processes_that_end_every_accepted_step_runs_in_the_end(
        cpus in prop::collection::vec(1u32..5, 1..4),
        shapes in prop::collection::vec((any::<bool>(), shape()), 1..40),
    ) {
        let facts = run(JobKind::Batch, &cpus);
        let config = StepMgrConfig { max_bypass: 3, bypass_per_cpu: 1, lookahead: 4, ..config(true) };
        let mut harness = Harness::ready(facts, config);
        for (attended, shape) in &shapes {
            let spec = StepSpec { time_limit: None, kill_on_bad_exit: false, dependency: None, ..shape.spec() };
            if *attended {
                harness.srun(spec);
            } else {
                harness.enqueue(vec![spec]);
            }
            harness.settle();
        }
        // One process ends at a time, the newest step's first, which is the worst for large steps.
        for _ in 0..2000 {
            let running = harness.running();
            match running.iter().filter(|r| r.2 != StepKey::BATCH).max_by_key(|r| r.2) {
                Some((node, token, ..)) => harness.end_process(*node, *token, ExitStatus::SUCCESS),
                None if harness.core.counts().queued > 0 => harness.advance(Duration::from_secs(2)),
                None => break,
            }
            harness.settle();
        }
        let counts = harness.core.counts();
        prop_assert_eq!((counts.queued, counts.running), (0, 0));
    }

    #[test]
    fn a_manager_restarted_at_any_time_keeps_what_was_promised(
        cpus in prop::collection::vec(1u32..4, 1..4),
        lines in any::<bool>(),
        ops in prop::collection::vec(prop_oneof![3 => op(), 2 => trouble()], 1..100),
    ) {
        let mut harness = Harness::ready(with_gpus(JobKind::Batch, &cpus, true), config(lines));
        let mut clients = Vec::new();
        for op in &ops {
            apply(&mut harness, &mut clients, op);
        }
        links_back(&mut harness);
        harness.settle();
        let promised = accepted(&harness.journal);
        harness.restart_process(usize::MAX);
        harness.settle();
        for _ in 0..2000 {
            let running = harness.running();
            let counts = harness.core.counts();
            match running.iter().find(|r| r.2 != StepKey::BATCH) {
                Some((node, token, ..)) => harness.end_process(*node, *token, ExitStatus::SUCCESS),
                None if counts.queued + counts.running > 0 => harness.advance(Duration::from_secs(2)),
                None => break,
            }
            harness.settle();
        }
        let ends = ends(&harness.journal);
        prop_assert!(promised.iter().all(|s| ends.get(s) == Some(&1)), "{:?}", ends);
        prop_assert_eq!(&Ledger::replay(harness.journal.iter().cloned()), harness.core.ledger());
        prop_assert_eq!(check_tries(&harness), Ok(()));
        prop_assert_eq!(harness.core.phase(), RunPhase::Running);
    }

    #[test]
    fn a_run_that_is_taken_over_and_ended_amid_trouble_ends_with_all_its_steps(
        cpus in prop::collection::vec(1u32..4, 1..4),
        no_kill in any::<bool>(),
        lines in any::<bool>(),
        ops in prop::collection::vec(prop_oneof![2 => op(), 2 => trouble()], 1..80),
        more in prop::collection::vec(trouble(), 0..60),
    ) {
        let mut harness = Harness::ready(with_gpus(JobKind::Batch, &cpus, no_kill), config(lines));
        let mut clients = Vec::new();
        for op in ops.iter().map(Some).chain([None]).chain(more.iter().map(Some)) {
            match op {
                _ if harness.exited => break,
                Some(op) => apply(&mut harness, &mut clients, op),
                None => harness.tell(NodeToStepd::EndJob { state: JobState::Cancelled, reason: Reason::None, lost: Vec::new() }),
            }
        }
        if !harness.exited {
            end_run(&mut harness);
        }
        harness.settle();
        check_over(&harness, &clients)?;
        prop_assert_eq!(check_tries(&harness), Ok(()));
    }
}
