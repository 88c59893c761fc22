//! Reports to the node's agent: numbered from 1, repeated on a new connection until acknowledged. Step changes are
//! gathered and sent in batches, newest state of each step.

use garrick_model::{
    ids::StepNum,
    messages::stepd::{StepdReport, StepdToNode},
    view::StepView,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Steps in one report; a view is some 300 bytes.
const BATCH: usize = 500;
/// Step reports under way at most, so that a slow agent gets newer states instead of more reports.
const UNDER_WAY: usize = 4;

/// See the module.
#[derive(Debug)]
pub struct Reports {
    next: u64,
    unacknowledged: VecDeque<(u64, StepdReport)>,
    changed: BTreeSet<StepNum>,
    /// Final views of steps whose record is gone.
    ended: BTreeMap<StepNum, StepView>,
    backlog: usize,
    dropped: u64,
    /// Changes were held back because too many reports were under way.
    stalled: bool,
}

impl Reports {
    /// Numbers start behind those of earlier step managers of the run.
    pub const fn new(restarts: u64, backlog: usize) -> Self {
        Self {
            next: (restarts << 32) + 1,
            unacknowledged: VecDeque::new(),
            changed: BTreeSet::new(),
            ended: BTreeMap::new(),
            backlog,
            dropped: 0,
            stalled: false,
        }
    }

    /// A report that must arrive.
    pub fn push(&mut self, report: StepdReport) -> StepdToNode {
        let seq = self.next;
        self.next += 1;
        self.unacknowledged.push_back((seq, report.clone()));
        StepdToNode::Report { seq, report }
    }

    /// A step changed. True when it is the first change since the last flush.
    pub fn step_changed(&mut self, step: StepNum) -> bool {
        let first = self.changed.is_empty();
        self.changed.insert(step);
        first
    }

    /// A step is over: its last view.
    pub fn step_ended(&mut self, view: StepView) -> bool {
        let first = self.step_changed(view.id.step);
        self.ended.insert(view.id.step, view);
        if self.ended.len() > self.backlog
            && let Some((step, _)) = self.ended.pop_first()
        {
            self.changed.remove(&step);
            self.dropped += 1;
        }
        first
    }

    /// Batches that may go now; `live` gives the view of a step that is not over.
    pub fn flush(&mut self, live: impl Fn(StepNum) -> Option<StepView>) -> Vec<StepdToNode> {
        let mut out = Vec::new();
        let mut under_way = self.unacknowledged.iter().filter(|(_, r)| matches!(r, StepdReport::Steps(_))).count();
        while under_way < UNDER_WAY && !self.changed.is_empty() {
            let mut views = Vec::new();
            while views.len() < BATCH
                && let Some(step) = self.changed.pop_first()
            {
                views.extend(self.ended.remove(&step).or_else(|| live(step)));
            }
            if !views.is_empty() {
                out.push(self.push(StepdReport::Steps(views)));
                under_way += 1;
            }
        }
        self.stalled = !self.changed.is_empty();
        out
    }

    /// The agent has them on disk.
    pub fn acknowledged(&mut self, upto: u64) {
        while self.unacknowledged.front().is_some_and(|(seq, _)| *seq <= upto) {
            self.unacknowledged.pop_front();
        }
    }

    /// Everything not acknowledged, for a new connection.
    pub fn again(&self) -> Vec<StepdToNode> {
        self.unacknowledged
            .iter()
            .map(|(seq, report)| StepdToNode::Report { seq: *seq, report: report.clone() })
            .collect()
    }

    /// Everything was acknowledged.
    pub fn is_empty(&self) -> bool {
        self.unacknowledged.is_empty()
    }

    /// A flush left changes behind: flush again once something was acknowledged.
    pub const fn stalled(&self) -> bool {
        self.stalled
    }

    /// Ended steps that were not reported, for lack of an agent over a long time.
    pub const fn dropped(&self) -> u64 {
        self.dropped
    }
}
