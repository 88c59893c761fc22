//! What is known about a step that an earlier step manager had started, until all its nodes have answered: their answers, their
//! later messages, and which nodes are lost. Nothing may be dropped: no node repeats it.

use crate::step::{StepInput, messages::NodeSlot};
use garrick_model::{
    messages::shepherd::{ShepherdToStepMgr, TaskEnd, TaskFound},
    usage::TaskUsage,
};
use std::collections::{BTreeMap, BTreeSet};

/// What is known about a step after a takeover.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Findings {
    /// Nodes that have not answered.
    awaited: BTreeSet<u32>,
    /// Nodes that were lost, before or after their answer.
    lost: BTreeSet<u32>,
    /// Tasks by node and rank, with their end if they are over.
    tasks: BTreeMap<(u32, u32), Option<TaskEnd>>,
    /// Something ran, or may have run, whose end is unknown.
    incomplete: bool,
    /// Orders for the step that came meanwhile.
    orders: Vec<StepInput>,
}

impl Findings {
    /// Nothing is known yet; these nodes are asked.
    pub fn new(awaited: BTreeSet<u32>) -> Self {
        Self { awaited, ..Self::default() }
    }

    /// No further answer is expected.
    pub fn are_all(&self) -> bool {
        self.awaited.is_empty()
    }

    /// Tasks by node and rank, with their end if they are over.
    pub const fn tasks(&self) -> &BTreeMap<(u32, u32), Option<TaskEnd>> {
        &self.tasks
    }

    /// Nodes that were lost.
    pub const fn lost(&self) -> &BTreeSet<u32> {
        &self.lost
    }

    /// As far as is known, the step never began anywhere.
    pub fn are_none(&self) -> bool {
        self.tasks.is_empty() && self.lost.is_empty()
    }

    /// Something may have run whose end is unknown.
    pub const fn are_incomplete(&self) -> bool {
        self.incomplete
    }

    /// Orders for the step that came meanwhile.
    pub fn orders(&self) -> &[StepInput] {
        &self.orders
    }

    /// No process of the step is left on a node.
    pub fn is_over_on(&self, node: u32) -> bool {
        self.on(node).all(|(_, end)| end.is_some())
    }

    /// Tasks on a node by rank, with their end if they are over.
    pub fn on(&self, node: u32) -> impl Iterator<Item = (u32, Option<TaskEnd>)> {
        self.tasks.range((node, 0)..=(node, u32::MAX)).map(|((_, rank), end)| (*rank, *end))
    }

    /// Adds a node's answer. A node that was asked before may have another shepherd by now: tasks that it reported as running
    /// then and does not name now are over, with an unknown end.
    pub fn answered<'a>(&mut self, node: u32, found: impl Iterator<Item = &'a TaskFound>, complete: bool) {
        if self.lost.contains(&node) {
            return;
        }
        self.awaited.remove(&node);
        self.incomplete |= !complete;
        let found: BTreeMap<u32, Option<TaskEnd>> = found.map(|task| (task.rank, task.end)).collect();
        self.forget(node, |rank| !found.contains_key(&rank));
        for (rank, end) in found {
            self.found(node, rank, end);
        }
    }

    /// A known end does not change.
    fn found(&mut self, node: u32, rank: u32, end: Option<TaskEnd>) {
        let task = self.tasks.entry((node, rank)).or_default();
        *task = task.or(end);
    }

    /// The ends of these tasks will never be known.
    fn forget(&mut self, node: u32, which: impl Fn(u32) -> bool) {
        let before = self.tasks.len();
        self.tasks.retain(|(on, rank), end| *on != node || end.is_some() || !which(*rank));
        self.incomplete |= self.tasks.len() < before;
    }

    /// Adds a message of a node about the step, before or after its answer.
    pub fn heard(&mut self, node: u32, message: &ShepherdToStepMgr) {
        if self.lost.contains(&node) {
            return;
        }
        match message {
            ShepherdToStepMgr::TaskExited { rank, end, gone, .. } => {
                self.found(node, *rank, Some(*end));
                if *gone {
                    self.forget(node, |_| true);
                }
            }
            ShepherdToStepMgr::TaskFailed { rank, unknown: true, .. } => {
                self.forget(node, |other| other == *rank);
                self.incomplete = true;
            }
            ShepherdToStepMgr::TaskFailed { rank, status, .. } => {
                let end = TaskEnd { status: *status, usage: TaskUsage::default(), oom: false };
                self.found(node, *rank, Some(end));
            }
            ShepherdToStepMgr::StepGone { .. } => self.forget(node, |_| true),
            // For steps with one task only, which did not run.
            ShepherdToStepMgr::NotStarted { .. } => {
                self.tasks.retain(|(on, _), end| *on != node || end.is_some());
            }
            // The step handles these when its state is known.
            ShepherdToStepMgr::PmiFence { .. } | ShepherdToStepMgr::PmiAbort { .. } => {
                self.keep(StepInput::Shepherd { node: NodeSlot(node), message: message.clone() });
            }
            // No command waits with the step that could be told.
            ShepherdToStepMgr::TaskStarted { .. }
            | ShepherdToStepMgr::Output { .. }
            | ShepherdToStepMgr::StdinConsumed { .. }
            | ShepherdToStepMgr::Register { .. }
            | ShepherdToStepMgr::Gone
            | ShepherdToStepMgr::Sampled { .. }
            | ShepherdToStepMgr::Tasks { .. } => {}
        }
    }

    /// A node is lost: nothing more will come from it.
    pub fn lose(&mut self, node: u32) {
        self.awaited.remove(&node);
        self.lost.insert(node);
    }

    /// Keeps an order for the step until its state is known. Each order is kept once.
    pub fn keep(&mut self, order: StepInput) {
        if !self.orders.contains(&order) {
            self.orders.push(order);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use garrick_model::{
        ids::{JobId, StepId, StepKey},
        state::ExitStatus,
    };

    fn step() -> StepId {
        StepId::of(JobId(1), StepKey::number(0))
    }

    fn end(code: u8) -> TaskEnd {
        TaskEnd { status: ExitStatus { code, signal: None }, usage: TaskUsage::default(), oom: false }
    }

    fn task(rank: u32, end: Option<TaskEnd>) -> TaskFound {
        TaskFound { step: step(), attempt: 0, rank, end }
    }

    fn exited(rank: u32, code: u8, gone: bool) -> ShepherdToStepMgr {
        ShepherdToStepMgr::TaskExited { step: step(), rank, end: end(code), gone }
    }

    /// Ranks 0 and 1 live on node 0, rank 2 on node 1, which has not answered.
    fn one_of_two_answered() -> Findings {
        let mut findings = Findings::new(BTreeSet::from([0, 1]));
        findings.answered(0, [task(0, None), task(1, None)].iter(), true);
        assert!(!findings.are_all());
        findings
    }

    fn codes(findings: &Findings) -> Vec<(u32, u32, Option<u8>)> {
        findings.tasks().iter().map(|((node, rank), end)| (*node, *rank, end.map(|e| e.status.code))).collect()
    }

    #[test]
    fn what_a_node_says_behind_its_answer_counts() {
        let mut findings = one_of_two_answered();
        findings.heard(0, &exited(0, 3, false));
        findings.heard(0, &ShepherdToStepMgr::TaskStarted { step: step(), rank: 1, pid: 9 });
        assert_eq!(codes(&findings), [(0, 0, Some(3)), (0, 1, None)]);
        assert!(!findings.is_over_on(0) && !findings.are_incomplete());
        findings.heard(0, &exited(1, 0, true));
        assert!(findings.is_over_on(0) && !findings.are_incomplete());
        findings.answered(1, [task(2, None)].iter(), true);
        assert!(findings.are_all() && !findings.is_over_on(1));
    }

    #[test]
    fn a_task_whose_end_nobody_saw_is_not_taken_for_one_that_lives() {
        let unknown = ShepherdToStepMgr::TaskFailed {
            step: step(),
            rank: 1,
            message: String::new(),
            status: ExitStatus { code: 1, signal: None },
            unknown: true,
            untried: false,
        };
        for said in [vec![exited(0, 0, false), unknown], vec![exited(0, 0, true)]] {
            let mut findings = one_of_two_answered();
            said.iter().for_each(|message| findings.heard(0, message));
            assert_eq!(codes(&findings), [(0, 0, Some(0))]);
            assert!(findings.is_over_on(0) && findings.are_incomplete());
        }
        let mut findings = one_of_two_answered();
        findings.heard(0, &ShepherdToStepMgr::StepGone { step: step() });
        assert!(findings.are_none() && findings.are_incomplete());
    }

    #[test]
    fn the_later_of_two_answers_counts_and_ends_are_not_forgotten() {
        let mut findings = one_of_two_answered();
        findings.heard(0, &exited(0, 3, false));
        findings.answered(0, [task(1, Some(end(4)))].iter(), true);
        assert_eq!(codes(&findings), [(0, 0, Some(3)), (0, 1, Some(4))]);
        assert!(findings.is_over_on(0) && !findings.are_incomplete());
        // A shepherd that knows nothing any more.
        let mut findings = one_of_two_answered();
        findings.answered(0, [].iter(), true);
        assert!(findings.are_none() && findings.are_incomplete());
    }

    #[test]
    fn nothing_is_heard_of_a_node_that_was_lost() {
        let mut findings = one_of_two_answered();
        findings.lose(0);
        findings.heard(0, &exited(0, 9, true));
        findings.answered(0, [].iter(), false);
        assert_eq!(codes(&findings), [(0, 0, None), (0, 1, None)]);
        assert!(!findings.are_all() && !findings.are_incomplete());
        findings.lose(1);
        assert!(findings.are_all() && !findings.are_none());
    }

    #[test]
    fn an_order_is_kept_once() {
        let mut findings = one_of_two_answered();
        let order = StepInput::End(garrick_events::steps::end::StepEnd::Cancelled);
        findings.keep(order.clone());
        findings.keep(order.clone());
        assert_eq!(findings.orders(), [order]);
    }
}
