//! Rules that hold whatever happens, in whatever order messages arrive: after every message [`Company`] recounts that no
//! CPU or megabyte is held twice; here, that every step ends exactly once, that the journal replays to what lives, that
//! every run ends and reports so once, and that no step waits for ever.
#![allow(clippy::unwrap_used)]

use crate::stepmgr::{
    Ledger, StepEvent, StepMgrConfig,
    builders::{run, step},
    company::Company,
    messages::ClientId,
    state::RunPhase,
};
use garrick_model::{
    ids::StepNum,
    messages::{
        step::{CommandToStepMgr, StepMgrToCommand},
        stepd::{NodeToStepd, StepdReport},
    },
    resources::{MemoryMib, MemoryRequest},
    spec::{JobKind, NodeCount, StepSharing, StepSpec},
    state::{ExitStatus, JobState, Reason},
};
use proptest::prelude::*;
use std::{collections::BTreeMap, time::Duration};

#[derive(Clone, Debug)]
enum Op {
    Srun(Shape),
    Enqueue(Vec<Shape>),
    Wait,
    /// Some process ends.
    Exit(u8, u8),
    HangUp(u8),
    Cancel(u8),
    CancelStep(u8),
    Lose,
    Advance(u16),
    Deliver(u8, u8),
}

#[derive(Clone, Debug)]
struct Shape {
    tasks: u32,
    nodes: Option<u32>,
    sharing: u8,
    memory: Option<u64>,
    limit: bool,
    bad: bool,
}

impl Shape {
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
            ..base
        }
    }
}

fn shape() -> impl Strategy<Value = Shape> {
    let memory = prop_oneof![3 => Just(None), 1 => (0u64..5000).prop_map(Some)];
    (1u32..7, proptest::option::of(1u32..4), 0u8..5, memory, any::<bool>(), prop::bool::weighted(0.1))
        .prop_map(|(tasks, nodes, sharing, memory, limit, bad)| Shape { tasks, nodes, sharing, memory, limit, bad })
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => shape().prop_map(Op::Srun),
        3 => prop::collection::vec(shape(), 1..8).prop_map(Op::Enqueue),
        1 => Just(Op::Wait),
        12 => (any::<u8>(), 0u8..3).prop_map(|(n, code)| Op::Exit(n, code)),
        2 => any::<u8>().prop_map(Op::HangUp),
        1 => any::<u8>().prop_map(Op::Cancel),
        1 => any::<u8>().prop_map(Op::CancelStep),
        1 => Just(Op::Lose),
        3 => (0u16..200).prop_map(Op::Advance),
        30 => (any::<u8>(), 1u8..20).prop_map(|(n, times)| Op::Deliver(n, times)),
    ]
}

fn apply(company: &mut Company, clients: &mut Vec<ClientId>, op: &Op) {
    let pick = |clients: &[ClientId], n: u8| clients.get(usize::from(n) % clients.len().max(1)).copied();
    match op {
        Op::Srun(shape) => clients.push(company.srun(shape.spec())),
        Op::Enqueue(shapes) => clients.push(company.enqueue(shapes.iter().map(Shape::spec).collect())),
        Op::Wait => clients.push(company.wait(Vec::new(), 1000)),
        Op::Exit(n, code) => {
            let running: Vec<_> = company.running().into_iter().filter(|r| r.2 != StepNum::Batch).collect();
            if let Some((node, token, ..)) = running.get(usize::from(*n) % running.len().max(1)) {
                company.end_process(*node, *token, ExitStatus { code: *code, signal: None });
            }
        }
        Op::HangUp(n) => {
            if let Some(client) = pick(clients, *n) {
                clients.retain(|c| *c != client);
                company.hang_up(client);
            }
        }
        Op::Cancel(n) => {
            if let Some(client) = pick(clients, *n) {
                company.say(client, CommandToStepMgr::Cancel);
            }
        }
        Op::CancelStep(n) => {
            company.tell(NodeToStepd::SignalStep { step: company.id(u32::from(*n % 10)), signal: None })
        }
        Op::Lose => {
            let last = company.nodes.len() - 1;
            if last > 0 && !company.nodes[last].lost {
                company.lose(last);
            }
        }
        Op::Advance(secs) => company.advance(Duration::from_secs(u64::from(*secs))),
        Op::Deliver(n, times) => {
            for i in 0..*times {
                company.deliver(usize::from(*n).wrapping_mul(31).wrapping_add(usize::from(i)));
            }
        }
    }
}

fn ends(journal: &[StepEvent]) -> BTreeMap<StepNum, usize> {
    let mut ends = BTreeMap::new();
    for event in journal {
        if let StepEvent::Ended { result, .. } = event {
            *ends.entry(result.step.step).or_default() += 1;
        }
    }
    ends
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn every_step_ends_once_and_every_run_too(
        cpus in prop::collection::vec(1u32..5, 1..4),
        no_kill in any::<bool>(),
        ops in prop::collection::vec(op(), 1..120),
    ) {
        let mut facts = run(JobKind::Batch, &cpus);
        let mut spec = facts.spec.as_ref().clone();
        spec.no_kill = no_kill;
        facts.spec = std::sync::Arc::new(spec);
        let mut company = Company::new(facts, StepMgrConfig { max_bypass: 4, lookahead: 5, ..StepMgrConfig::default() });
        for node in 0..cpus.len() {
            company.shepherd_up(node);
        }
        let mut clients = Vec::new();
        for op in &ops {
            apply(&mut company, &mut clients, op);
            prop_assert!(ends(&company.journal).values().all(|n| *n == 1), "a step ended twice");
        }
        company.tell(NodeToStepd::EndJob { state: JobState::Cancelled, reason: Reason::None });
        company.settle();
        company.advance(Duration::from_secs(300));
        prop_assert_eq!(company.core.phase(), RunPhase::Gone);
        prop_assert!(company.exited);
        let ended = company.job_reports().iter().filter(|r| matches!(r, StepdReport::Ended { .. })).count();
        prop_assert_eq!(ended, 1);
        // Whatever was accepted has ended, and whoever stayed with a step knows.
        let counts = company.core.counts();
        prop_assert_eq!((counts.queued, counts.running), (0, 0));
        prop_assert_eq!(&Ledger::replay(company.journal.iter().cloned()), company.core.ledger());
        let ends = ends(&company.journal);
        for (client, heard) in &company.heard {
            for message in heard {
                match message {
                    StepMgrToCommand::Accepted { step, .. } => {
                        prop_assert!(ends.contains_key(&step.step));
                        let finals = heard.iter().filter(|m| matches!(m, StepMgrToCommand::Finished { .. })).count();
                        prop_assert!(finals == 1 || (finals == 0 && !clients.contains(client)), "{:?}", heard);
                    }
                    StepMgrToCommand::Enqueued { steps, .. } => {
                        prop_assert!(steps.iter().all(|s| ends.contains_key(&s.step)));
                    }
                    _ => {}
                }
            }
        }
        for node in &company.nodes {
            prop_assert!(node.processes.values().all(|p| p.ended), "a process outlived its job");
        }
    }

    #[test]
    fn with_processes_that_end_every_accepted_step_runs_in_the_end(
        cpus in prop::collection::vec(1u32..5, 1..4),
        shapes in prop::collection::vec((any::<bool>(), shape()), 1..40),
    ) {
        let facts = run(JobKind::Batch, &cpus);
        let config = StepMgrConfig { max_bypass: 3, lookahead: 4, ..StepMgrConfig::default() };
        let mut company = Company::ready(facts, config);
        for (attended, shape) in &shapes {
            let spec = StepSpec { time_limit: None, kill_on_bad_exit: false, ..shape.spec() };
            if *attended {
                company.srun(spec);
            } else {
                company.enqueue(vec![spec]);
            }
            company.settle();
        }
        // One process ends at a time, the newest step's first, which is the worst for large steps.
        for _ in 0..2000 {
            let running = company.running();
            let Some((node, token, ..)) = running.iter().filter(|r| r.2 != StepNum::Batch).max_by_key(|r| r.2) else { break };
            company.end_process(*node, *token, ExitStatus::SUCCESS);
            company.settle();
        }
        let counts = company.core.counts();
        prop_assert_eq!((counts.queued, counts.running), (0, 0));
    }

    #[test]
    fn a_manager_restarted_at_any_time_keeps_what_was_promised(
        ops in prop::collection::vec(op(), 1..60),
    ) {
        let mut company = Company::ready(run(JobKind::Batch, &[2, 2]), StepMgrConfig::default());
        let mut clients = Vec::new();
        for op in ops.iter().filter(|o| !matches!(o, Op::Lose | Op::Advance(_))) {
            apply(&mut company, &mut clients, op);
        }
        company.settle();
        let promised: Vec<StepNum> = company
            .heard
            .values()
            .flatten()
            .filter_map(|m| if let StepMgrToCommand::Enqueued { steps, .. } = m { Some(steps.clone()) } else { None })
            .flatten()
            .map(|s| s.step)
            .collect();
        company.restart_manager();
        company.settle();
        for _ in 0..2000 {
            let running = company.running();
            let Some((node, token, ..)) = running.iter().find(|r| r.2 != StepNum::Batch) else { break };
            company.end_process(*node, *token, ExitStatus::SUCCESS);
            company.settle();
        }
        let ends = ends(&company.journal);
        prop_assert!(promised.iter().all(|s| ends.get(s) == Some(&1)), "{:?}", ends);
        prop_assert_eq!(&Ledger::replay(company.journal.iter().cloned()), company.core.ledger());
    }
}
