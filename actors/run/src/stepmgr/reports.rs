//! Reports to the node's agent: numbered from 1, repeated on a new connection until acknowledged. Ends of steps are taken from
//! the ledger's outbox and sent in batches, with the steps that run at that time; shared data are sent once. None of this delays
//! a launch.

use crate::stepmgr::{
    journal::{Ledger, UnreportedEnd},
    run::RunFacts,
    view,
};
use garrick_model::{
    hostlist,
    ids::StepKey,
    messages::stepd::{StepdReport, StepdToNode},
    view::{StepCounts, StepOrigin, StepRow, StepRows},
};
use std::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
};

/// Steps in one report; a row is some 150 bytes on the wire.
const BATCH: usize = 2000;
/// Most step reports in flight.
const UNDER_WAY: usize = 4;

/// Reports to the agent.
#[derive(Debug)]
pub struct Reports {
    next: u64,
    unacknowledged: VecDeque<Sent>,
    /// Running steps that were not reported as such.
    started: BTreeSet<StepKey>,
    /// Ends of the outbox that are in reports in flight.
    under_way: usize,
    /// The first change since the last flush was announced.
    announced: bool,
    /// Rows were held back because too many reports were in flight.
    stalled: bool,
}

#[derive(Debug)]
struct Sent {
    seq: u64,
    report: StepdReport,
    ends: u64,
}

impl Reports {
    /// Numbers start after those of earlier step managers of the run.
    pub const fn new(restarts: u64) -> Self {
        Self {
            next: (restarts << 32) + 1,
            unacknowledged: VecDeque::new(),
            started: BTreeSet::new(),
            under_way: 0,
            announced: false,
            stalled: false,
        }
    }

    /// A report that must arrive.
    pub fn push(&mut self, report: StepdReport) -> StepdToNode {
        self.send(report, 0)
    }

    fn send(&mut self, mut report: StepdReport, ends: u64) -> StepdToNode {
        let seq = self.next;
        self.next += 1;
        // Agents number reports anew after a restart; this number stays with the report.
        if let StepdReport::Steps(steps) = &mut report {
            steps.tally.number = seq;
        }
        self.unacknowledged.push_back(Sent { seq, report: report.clone(), ends });
        StepdToNode::Report { seq, report }
    }

    /// A step runs. True if it is the first change since the last flush.
    pub fn step_started(&mut self, step: StepKey) -> bool {
        self.started.insert(step);
        self.changed()
    }

    /// A step that ran waits again.
    pub fn step_waits(&mut self, step: StepKey) {
        self.started.remove(&step);
    }

    /// A step is over, and is in the ledger's outbox.
    pub fn step_ended(&mut self, step: StepKey) -> bool {
        self.started.remove(&step);
        self.changed()
    }

    /// There is something to report. True if it is the first change since the last flush.
    pub const fn changed(&mut self) -> bool {
        let first = !self.announced;
        self.announced = true;
        first
    }

    /// Batches that may go now; `live` returns origin and row of a step that is not over.
    pub fn flush(
        &mut self,
        facts: &RunFacts,
        ledger: &Ledger,
        counts: StepCounts,
        live: impl Fn(StepKey) -> Option<(Arc<StepOrigin>, StepRow)>,
    ) -> Vec<StepdToNode> {
        self.announced = false;
        let mut out = Vec::new();
        let mut busy = self.unacknowledged.iter().filter(|s| matches!(s.report, StepdReport::Steps(_))).count();
        while busy < UNDER_WAY {
            let mut packed = Packed::default();
            let mut ends = 0;
            for end in ledger.outbox.iter().skip(self.under_way).take(BATCH) {
                packed.add_end(facts, end);
                ends += 1;
            }
            while packed.rows.rows.len() < BATCH
                && let Some(step) = self.started.pop_first()
            {
                if let Some((origin, row)) = live(step) {
                    packed.add(Arc::as_ptr(&origin).cast(), || origin.as_ref().clone(), row);
                }
            }
            if packed.rows.rows.is_empty() {
                break;
            }
            self.under_way += ends as usize;
            packed.rows.unreported = (ledger.outbox.len() - self.under_way) as u64;
            packed.rows.dropped = ledger.dropped;
            packed.rows.counts = counts;
            out.push(self.send(StepdReport::Steps(packed.rows.into()), ends));
            busy += 1;
        }
        self.stalled = busy >= UNDER_WAY && (ledger.outbox.len() > self.under_way || !self.started.is_empty());
        out
    }

    /// The counts alone, repeated after the run's end: from then on the controller saves them, and it may have lost earlier ones.
    pub fn last_tally(&mut self, ledger: &Ledger, counts: StepCounts) -> StepdToNode {
        let unreported = (ledger.outbox.len() - self.under_way) as u64;
        let rows = StepRows { counts, unreported, dropped: ledger.dropped, ..StepRows::default() };
        self.send(StepdReport::Steps(rows.into()), 0)
    }

    /// The agent has acknowledged reports. Returns how many ends were among them.
    pub fn acknowledged(&mut self, upto: u64) -> u64 {
        let mut ends = 0;
        while let Some(sent) = self.unacknowledged.front().filter(|s| s.seq <= upto) {
            ends += sent.ends;
            self.unacknowledged.pop_front();
        }
        self.under_way -= ends as usize;
        ends
    }

    /// Everything not acknowledged, for a new connection.
    pub fn again(&self) -> Vec<StepdToNode> {
        let repeat = |s: &Sent| StepdToNode::Report { seq: s.seq, report: s.report.clone() };
        self.unacknowledged.iter().map(repeat).collect()
    }

    /// Everything was acknowledged.
    pub fn is_empty(&self) -> bool {
        self.unacknowledged.is_empty()
    }

    /// A flush held changes back: flush again after the next acknowledgement.
    pub const fn stalled(&self) -> bool {
        self.stalled
    }
}

/// Rows with their origins, each origin once.
#[derive(Default)]
struct Packed {
    rows: StepRows,
    /// Origins by the address of their source, since the same few repeat.
    known: Vec<(*const (), u32)>,
}

impl Packed {
    fn add(&mut self, from: *const (), origin: impl FnOnce() -> StepOrigin, mut row: StepRow) {
        let known = self.known.iter().rev().take(8).find(|(known, _)| *known == from && !from.is_null());
        row.origin = match known {
            Some((_, at)) => *at,
            None => {
                let at = self.rows.origins.len() as u32;
                self.rows.origins.push(origin());
                self.known.push((from, at));
                at
            }
        };
        self.rows.rows.push(row);
    }

    fn add_end(&mut self, facts: &RunFacts, end: &UnreportedEnd) {
        let row = StepRow {
            key: end.key,
            origin: 0,
            state: end.state,
            nodelist: match end.slots.as_slice() {
                [one] => facts.nodes[*one as usize].name.clone(),
                slots => hostlist::fold(slots.iter().map(|slot| &facts.nodes[*slot as usize].name)),
            },
            nodes: end.slots.len() as u32,
            cpus: end.cpus,
            memory: end.memory,
            gres: end.gres.clone(),
            start_time: end.since,
            end_time: Some(end.at),
            exit: end.exit,
            attempt: end.attempt,
            usage: end.usage,
            spread: end.spread.clone(),
            all_of: end.all_of.clone(),
            reason: end.reason.clone(),
        };
        match (&end.origin, &end.spec) {
            (Some(origin), _) => self.add(Arc::as_ptr(origin).cast(), || origin.as_ref().clone(), row),
            (None, Some(spec)) => {
                let tasks = spec.tasks.unwrap_or(1);
                self.add(Arc::as_ptr(spec).cast(), || view::origin(facts, spec, tasks), row);
            }
            (None, None) => self.add(std::ptr::null(), || view::nameless(facts), row),
        }
    }
}
