//! What the agent remembers of each run, and what the controller has yet to acknowledge.

use crate::node_agent::messages::RunKey;
use garrick_model::{messages::node::AgentReport, messages::stepd::NodeToStepd};
use std::collections::VecDeque;

/// Where a run is on this node.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum RunPhase {
    /// Prolog, spool folder and `stepd` are being made; orders that came meanwhile wait.
    Preparing,
    /// The `stepd` was started (or found alive) and has not connected yet.
    Awaited {
        /// Its process.
        pid: u32,
    },
    /// Connected, or away for the moment.
    Held {
        /// Connection, when there is one.
        conn: Option<u64>,
    },
    /// Its processes are gone; its `stepd` waits until what it reported is safe.
    Leaving,
    /// What is left of it is being killed.
    Sweeping,
    /// The epilog runs.
    Epilog,
    /// All done; the controller has to acknowledge it.
    Released,
}

/// A run.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Run {
    pub phase: RunPhase,
    pub batch_host: bool,
    pub door: String,
    /// Orders for its `stepd` that came before it connected.
    pub orders: Vec<NodeToStepd>,
    /// It was reported as ended or as not started, so its death is no news.
    pub end_reported: bool,
    /// Highest report of its `stepd` that was passed on.
    pub passed: u64,
    /// The conversation that asked for a shepherd.
    pub asked_by: Option<u64>,
}

/// A report on its way to the controller.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Pending {
    pub seq: u64,
    pub report: AgentReport,
    /// Report of a `stepd` to acknowledge with it.
    pub from_stepd: Option<(RunKey, u64)>,
    /// The run's folder can go when this is acknowledged.
    pub last_of: Option<RunKey>,
}

/// Reports in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Outbox {
    next: u64,
    pub waiting: VecDeque<Pending>,
}

impl Outbox {
    /// Adds a report and gives its number, from 1.
    pub fn push(&mut self, report: AgentReport, from_stepd: Option<(RunKey, u64)>, last_of: Option<RunKey>) -> u64 {
        self.next += 1;
        self.waiting.push_back(Pending { seq: self.next, report, from_stepd, last_of });
        self.next
    }

    /// Takes what is acknowledged.
    pub fn acknowledge(&mut self, upto: u64) -> Vec<Pending> {
        let count = self.waiting.iter().take_while(|p| p.seq <= upto).count();
        self.waiting.drain(..count).collect()
    }
}
