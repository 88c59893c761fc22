//! What is known of a step that a former step manager had started, until all its nodes have said what they have: their
//! answers, what they said behind them, and which of them are lost. Nothing of it may be forgotten: no node says it twice.

use crate::step::StepInput;
use garrick_model::{
    messages::shepherd::{ShepherdToStepMgr, TaskEnd, TaskFound},
    usage::TaskUsage,
};
use std::collections::{BTreeMap, BTreeSet};

/// See the module.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Findings {
    /// Nodes that have not answered.
    awaited: BTreeSet<u32>,
    /// Nodes that were lost, before their answer or behind it.
    lost: BTreeSet<u32>,
    /// Tasks by node and rank, with the ends of those that are over.
    tasks: BTreeMap<(u32, u32), Option<TaskEnd>>,
    /// Something ran, or may have run, of which nobody knows what became of it.
    incomplete: bool,
    /// What the step was to be told meanwhile.
    orders: Vec<StepInput>,
}

impl Findings {
    /// Nothing is known yet, and these nodes are asked.
    pub fn new(awaited: BTreeSet<u32>) -> Self {
        Self { awaited, ..Self::default() }
    }

    /// No answer is awaited any more.
    pub fn are_all(&self) -> bool {
        self.awaited.is_empty()
    }

    /// Tasks by node and rank, with the ends of those that are over.
    pub const fn tasks(&self) -> &BTreeMap<(u32, u32), Option<TaskEnd>> {
        &self.tasks
    }

    /// Nodes that were lost.
    pub const fn lost(&self) -> &BTreeSet<u32> {
        &self.lost
    }

    /// The step was never begun anywhere, as far as anybody knows.
    pub fn are_none(&self) -> bool {
        self.tasks.is_empty() && self.lost.is_empty()
    }

    /// Something may have run of which nobody knows what became of it.
    pub const fn are_incomplete(&self) -> bool {
        self.incomplete
    }

    /// What the step was to be told meanwhile.
    pub fn orders(&self) -> &[StepInput] {
        &self.orders
    }

    /// No process of the step is left on a node.
    pub fn is_over_on(&self, node: u32) -> bool {
        self.on(node).all(|(_, end)| end.is_some())
    }

    /// Tasks on a node by rank, with the ends of those that are over.
    pub fn on(&self, node: u32) -> impl Iterator<Item = (u32, Option<TaskEnd>)> {
        self.tasks.range((node, 0)..=(node, u32::MAX)).map(|((_, rank), end)| (*rank, *end))
    }

    /// A node's answer. One that was asked before may have another shepherd by now: what it said to run then and does not
    /// name now is over, and nobody knows how.
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

    /// An end that is known stays what it is.
    fn found(&mut self, node: u32, rank: u32, end: Option<TaskEnd>) {
        let task = self.tasks.entry((node, rank)).or_default();
        *task = task.or(end);
    }

    /// Of these tasks nobody will say how they ended.
    fn forget(&mut self, node: u32, which: impl Fn(u32) -> bool) {
        let before = self.tasks.len();
        self.tasks.retain(|(on, rank), end| *on != node || end.is_some() || !which(*rank));
        self.incomplete |= self.tasks.len() < before;
    }

    /// A node says something of the step, before or behind its answer.
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
            // Of steps with one task only, which did not run.
            ShepherdToStepMgr::NotStarted { .. } => {
                self.tasks.retain(|(on, _), end| *on != node || end.is_some());
            }
            // Nobody stays with the step to whom it could be told.
            ShepherdToStepMgr::TaskStarted { .. }
            | ShepherdToStepMgr::Output { .. }
            | ShepherdToStepMgr::StdinConsumed { .. }
            | ShepherdToStepMgr::Register { .. }
            | ShepherdToStepMgr::Gone
            | ShepherdToStepMgr::Tasks { .. } => {}
        }
    }

    /// A node is lost: what it did not say it will not say.
    pub fn lose(&mut self, node: u32) {
        self.awaited.remove(&node);
        self.lost.insert(node);
    }

    /// The step is to be told this as soon as it is known where it is. Once is enough for each.
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
        let order = StepInput::End(crate::step::StepEnd::Cancelled);
        findings.keep(order.clone());
        findings.keep(order.clone());
        assert_eq!(findings.orders(), [order]);
    }
}
