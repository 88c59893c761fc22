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

/// The phase of a run on this node.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum RunPhase {
    /// Prolog, spool folder and `stepd` are in preparation; orders that come meanwhile wait.
    Preparing,
    /// The `stepd` was started (or found alive) and has not connected yet.
    Awaited,
    /// The `stepd` died; it is to be started again.
    Restarting {
        /// The start is in progress: a `stepd` that connects now is the new one.
        begun: bool,
    },
    /// Connected, or disconnected for the moment.
    Held {
        /// Connection, if there is one.
        conn: Option<u64>,
    },
    /// Its processes are gone; its `stepd` waits until its reports are acknowledged.
    Leaving,
    /// What is left of it is being killed.
    Sweeping,
    /// The epilog runs.
    Epilog,
    /// All done; waits for the controller's acknowledgement.
    Released,
}

impl RunPhase {
    /// A `stepd` works on the run, or will: orders reach it, now or later.
    pub const fn works(&self) -> bool {
        matches!(self, Self::Preparing | Self::Awaited | Self::Restarting { .. } | Self::Held { .. })
    }
}

/// What applies to a run until its end. It is sent to its `stepd` at every connection, since a restarted one does not know it,
/// and a repeat changes nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Standing {
    /// The last time limit.
    pub limit: Option<TimeLimit>,
    /// The last of SIGSTOP and SIGCONT to the whole run. None once it is to end.
    pub motion: Option<i32>,
    /// The first order to end the run.
    pub end: Option<NodeToStepd>,
}

/// Most orders that wait for a `stepd` to connect. More are of no use: the oldest are dropped.
const MOST_ORDERS: usize = 1000;

/// A run.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Run {
    pub phase: RunPhase,
    pub batch_host: bool,
    /// Owner.
    pub uid: u32,
    pub door: String,
    /// Process id of its `stepd`, if known.
    pub pid: Option<u32>,
    /// Orders for its `stepd` that came while none was connected.
    pub orders: VecDeque<NodeToStepd>,
    /// What every `stepd` of it has to know.
    pub standing: Standing,
    /// When its `stepd` was restarted, within the window.
    pub restarts: Vec<Timestamp>,
    /// Its `stepd` was killed because it did not end the run in time: it is not restarted.
    pub condemned: bool,
    /// Its `stepd` said that the run's processes are gone.
    pub gone: bool,
    /// Number of ends of steps that its `stepd` has still to report, as it last said.
    pub unreported: u64,
    /// No `stepd` takes care of it any more: what is left is killed.
    pub given_up: bool,
    /// Its processes are gone, and the controller has all reports of the `stepd`: its exit is normal.
    pub clean: bool,
    /// Why something of it may be left after the sweep.
    pub unkillable: Option<String>,
    /// The timer for its end is set.
    pub end_awaited: bool,
    /// It was reported as ended or as not started, so its death is not reported.
    pub end_reported: bool,
    /// Highest report of its `stepd` that was passed on.
    pub passed: u64,
    /// The conversation that asked for a shepherd.
    pub asked_by: Option<u64>,
    /// May the controller start the job again elsewhere when it gives this node up? As it last said.
    pub requeue: RequeuePolicy,
    /// The part of that which is on disk, and which a later agent will find.
    pub noted: RequeuePolicy,
}

impl Run {
    /// A run in `phase`, without any order or report.
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

    /// Remembers an order that applies until the end of the run.
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

    /// The state that commands are told.
    pub const fn standing(&self) -> RunStanding {
        match self.phase {
            RunPhase::Restarting { .. } => RunStanding::StartsAgain,
            RunPhase::Preparing | RunPhase::Awaited | RunPhase::Held { .. } => RunStanding::Here,
            _ if self.given_up => RunStanding::GivenUp,
            RunPhase::Leaving | RunPhase::Sweeping | RunPhase::Epilog | RunPhase::Released => RunStanding::Over,
        }
    }

    /// Keeps an order for the next connection, unless it is part of `standing`.
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

    /// What a `stepd` is told when it connects: the time limit, the kept orders, whether it is stopped, the end.
    pub fn greeting(&mut self) -> Vec<NodeToStepd> {
        let mut all = vec![NodeToStepd::Welcome];
        all.extend(self.standing.limit.map(NodeToStepd::SetTimeLimit));
        all.extend(self.orders.drain(..));
        // A SIGTSTP that was kept must not stop a run that was continued after it.
        all.extend(self.standing.motion.map(|signal| NodeToStepd::SignalJob { signal, to: SignalScope::Full }));
        all.extend(self.standing.end.clone());
        all
    }
}

/// The signal of an order to stop or continue the whole run.
const fn motion(order: &NodeToStepd) -> Option<i32> {
    match order {
        NodeToStepd::SignalJob { signal: signal @ (SIGSTOP | SIGCONT), to: SignalScope::Full } => Some(*signal),
        _ => None,
    }
}
