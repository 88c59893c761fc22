//! What a node does when it has lost its controller: it works on for as long as no other node can have been given its work.
//!
//! If a controller has not heard from a node for `SlurmdTimeout`, it gives up the node's runs, and starts again elsewhere those
//! that may be requeued. So an agent that has not heard from the controller for nearly that long (its lease) asks other nodes. If
//! one of them is connected to the controller, or too few of them can be reached, this node is cut off, alone or together with
//! those few: runs that may have been started elsewhere are ended here. If most nodes answer and none is connected, the
//! controller itself is down and has started nothing: all runs go on, and the agent asks again later. The clock decides only when
//! to ask. A run that the controller starts elsewhere has a new SLUID, and `Welcome` tells a node that comes back late which runs
//! are still its own.

use crate::{
    core::{NodeAgentCore, log_info, log_warning},
    messages::{AgentEffect, AgentTimer, PeersSaid, RunKey},
};
use garrick_model::{
    messages::stepd::NodeToStepd,
    state::{JobState, Reason},
};
use std::time::Duration;

/// A lease ends this long before `SlurmdTimeout`, because the loss of a connection is noticed that much later.
const MARGIN: Duration = Duration::from_secs(15);
/// The shortest lease: by then all other nodes have noticed that a controller is gone (they give up a connection after 10 s of
/// silence), and do not claim to be connected.
const SHORTEST: Duration = Duration::from_secs(12);
/// If other nodes have no controller either, they are asked again after this part of the lease.
const AGAIN: u32 = 3;

/// How long an agent works on without hearing from its controller before it asks other nodes. `patience` is `SlurmdTimeout`,
/// after which the controller gives the node up; `None`: it never does.
pub fn lease_of(patience: Option<Duration>) -> Option<Duration> {
    patience.map(|patience| patience.saturating_sub(MARGIN).max(patience / 2).max(SHORTEST))
}

impl NodeAgentCore {
    /// Begins the lease: the controller is no longer heard from, or was not heard from yet.
    pub(super) fn begin_lease(&self, out: &mut Vec<AgentEffect>) {
        if let Some(after) = self.config.lease {
            out.push(AgentEffect::SetTimer { timer: AgentTimer::Lease, after });
        }
    }

    /// Ends the lease: the controller has welcomed this node and knows what runs here.
    pub(super) fn renew_lease(&mut self, out: &mut Vec<AgentEffect>) {
        // Answers of other nodes no longer matter.
        self.asks_peers = false;
        if self.config.lease.is_some() {
            out.push(AgentEffect::ClearTimer(AgentTimer::Lease));
        }
    }

    fn at_stake(&self) -> Vec<RunKey> {
        let at_stake = self.runs.iter().filter(|(_, run)| run.requeue.allowed && run.phase.works());
        at_stake.map(|(key, _)| *key).collect()
    }

    fn ask_later(&self, out: &mut Vec<AgentEffect>) {
        if let Some(lease) = self.config.lease {
            out.push(AgentEffect::SetTimer { timer: AgentTimer::Lease, after: lease / AGAIN });
        }
    }

    pub(super) fn lease_ended(&mut self, out: &mut Vec<AgentEffect>) {
        if self.has_controller() {
            return;
        }
        if self.at_stake().is_empty() {
            return self.ask_later(out);
        }
        self.asks_peers = true;
        out.push(AgentEffect::AskPeers);
    }

    pub(super) fn peers_said(&mut self, said: PeersSaid, out: &mut Vec<AgentEffect>) {
        if !std::mem::take(&mut self.asks_peers) || self.has_controller() {
            return;
        }
        let PeersSaid { asked, reached, with_controller } = said;
        // This node counts as one that can be reached.
        let most = (reached + 1) * 2 > asked + 1;
        // A dynamic node does not know the other dynamic nodes: that it has none to ask means nothing.
        let knows_nobody = asked == 0 && self.config.joining.is_some();
        let cut_off = with_controller > 0 || !most || knows_nobody;
        if !cut_off {
            out.push(log_info(format!(
                "no controller since {} s ago; {reached} of {asked} other nodes answer and have none either: jobs go on",
                self.config.lease.unwrap_or_default().as_secs()
            )));
            return self.ask_later(out);
        }
        for key in self.at_stake() {
            out.push(log_warning(format!(
                "this node is cut off from the controller ({with_controller} of {asked} other nodes have it, {reached} \
                 answer), and job {} may have been started elsewhere: ending it here",
                key.job
            )));
            let end = NodeToStepd::EndJob { state: JobState::NodeFail, reason: Reason::NodeDown, lost: Vec::new() };
            self.order_end(key, end, out);
        }
        self.ask_later(out);
    }
}
