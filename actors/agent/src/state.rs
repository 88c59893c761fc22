//! What the agent remembers of each run.

use garrick_model::{
    messages::{
        command::RunStanding,
        node::{RequeuePolicy, SignalScope},
        stepd::NodeToStepd,
    },
    signal::{SIGCONT, SIGSTOP},
    time::{TimeLimit, Timestamp},
};
use std::collections::VecDeque;

/// Where a run is on this node.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum RunPhase {
    /// Prolog, spool folder and `stepd` are being made; orders that came meanwhile wait.
    Preparing,
    /// The `stepd` was started (or found alive) and has not connected yet.
    Awaited,
    /// The `stepd` died; it is to be started again.
    Restarting {
        /// The start is under way: whoever connects now is the new one.
        begun: bool,
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

impl RunPhase {
    /// A `stepd` works on the run, or will: orders reach it, now or later.
    pub const fn works(&self) -> bool {
        matches!(self, Self::Preparing | Self::Awaited | Self::Restarting { .. } | Self::Held { .. })
    }
}

/// What holds for a run until its end. Said to its `stepd` at every connection, since one that was started again does not
/// know it, and a repeat changes nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Standing {
    /// The latest time limit.
    pub limit: Option<TimeLimit>,
    /// The latest of SIGSTOP and SIGCONT to all of it. None once it is to end.
    pub motion: Option<i32>,
    /// The first order to end the run.
    pub end: Option<NodeToStepd>,
}

/// Orders that wait for a `stepd` to connect. More than this are of no use to anybody: the oldest are dropped.
const MOST_ORDERS: usize = 1000;

/// A run.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Run {
    pub phase: RunPhase,
    pub batch_host: bool,
    /// Owner.
    pub uid: u32,
    pub door: String,
    /// Its `stepd`, where it is known.
    pub pid: Option<u32>,
    /// Orders for its `stepd` that came while none was connected.
    pub orders: VecDeque<NodeToStepd>,
    /// What every `stepd` of it has to know.
    pub standing: Standing,
    /// When its `stepd` was started again, as far as it matters.
    pub restarts: Vec<Timestamp>,
    /// Its `stepd` was killed because it did not end the run in time: there is to be no other.
    pub condemned: bool,
    /// Its `stepd` said that the run's processes are gone.
    pub gone: bool,
    /// Ends of steps that its `stepd` has still to report, as it said last.
    pub unreported: u64,
    /// No `stepd` looks after it any more: what is left is killed.
    pub given_up: bool,
    /// Its processes are gone, and the controller has all that the `stepd` had to report: when that ends, it is in order.
    pub clean: bool,
    /// What of it may be left after all, once it was swept.
    pub unkillable: Option<String>,
    /// The timer for its end runs.
    pub end_awaited: bool,
    /// It was reported as ended or as not started, so its death is no news.
    pub end_reported: bool,
    /// Highest report of its `stepd` that was passed on.
    pub passed: u64,
    /// The conversation that asked for a shepherd.
    pub asked_by: Option<u64>,
    /// May the controller start its job again elsewhere when it gives this node up? As it said last.
    pub requeue: RequeuePolicy,
    /// What the next agent will find of that: it is on the disk.
    pub noted: RequeuePolicy,
}

impl Run {
    /// A run in `phase`, of which nothing was told or reported.
    pub const fn new(phase: RunPhase, batch_host: bool, uid: u32) -> Self {
        Self {
            phase,
            batch_host,
            uid,
            door: String::new(),
            pid: None,
            orders: VecDeque::new(),
            standing: Standing { limit: None, motion: None, end: None },
            restarts: Vec::new(),
            condemned: false,
            given_up: false,
            gone: false,
            unreported: 0,
            clean: false,
            unkillable: None,
            end_awaited: false,
            end_reported: false,
            passed: 0,
            asked_by: None,
            requeue: RequeuePolicy { allowed: false, revision: 0 },
            noted: RequeuePolicy { allowed: false, revision: 0 },
        }
    }

    /// Remembers an order that holds until the end, whoever hears it.
    pub fn note(&mut self, order: &NodeToStepd) {
        match order {
            NodeToStepd::SetTimeLimit(limit) => self.standing.limit = Some(*limit),
            NodeToStepd::EndJob { .. } | NodeToStepd::FinishAllocation(_) => {
                self.standing.end.get_or_insert_with(|| order.clone());
                self.standing.motion = None;
            }
            _ if self.standing.end.is_none() => self.standing.motion = motion(order).or(self.standing.motion),
            _ => {}
        }
    }

    /// What commands are told of it.
    pub const fn standing(&self) -> RunStanding {
        match self.phase {
            RunPhase::Restarting { .. } => RunStanding::StartsAgain,
            RunPhase::Preparing | RunPhase::Awaited | RunPhase::Held { .. } => RunStanding::Here,
            _ if self.given_up => RunStanding::GivenUp,
            RunPhase::Leaving | RunPhase::Sweeping | RunPhase::Epilog | RunPhase::Released => RunStanding::Over,
        }
    }

    /// Keeps an order for the next connection; those that hold anyway are with `standing`.
    pub fn keep(&mut self, order: NodeToStepd) {
        let holds = matches!(
            order,
            NodeToStepd::SetTimeLimit(_) | NodeToStepd::EndJob { .. } | NodeToStepd::FinishAllocation(_)
        );
        if !holds && motion(&order).is_none() {
            if self.orders.len() == MOST_ORDERS {
                self.orders.pop_front();
            }
            self.orders.push_back(order);
        }
    }

    /// What a `stepd` that connects is told: the limit, what was kept, whether it stands still, the end.
    pub fn greeting(&mut self) -> Vec<NodeToStepd> {
        let mut all = vec![NodeToStepd::Welcome];
        all.extend(self.standing.limit.map(NodeToStepd::SetTimeLimit));
        all.extend(self.orders.drain(..));
        // A SIGTSTP that was kept must not stop what was continued after it.
        all.extend(self.standing.motion.map(|signal| NodeToStepd::SignalJob { signal, to: SignalScope::Full }));
        all.extend(self.standing.end.clone());
        all
    }
}

/// The signal of an order to stop or to continue the whole run.
const fn motion(order: &NodeToStepd) -> Option<i32> {
    match order {
        NodeToStepd::SignalJob { signal: signal @ (SIGSTOP | SIGCONT), to: SignalScope::Full } => Some(*signal),
        _ => None,
    }
}
