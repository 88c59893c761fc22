//! What a node does that has lost its controller: it works on, for so long as nobody else can have been given its work.
//!
//! A controller that has not heard of a node for `SlurmdTimeout` gives up what runs there, and starts again elsewhere what
//! may be. So an agent that has not heard of the controller for nearly as long (its lease) asks other nodes. Where one of
//! them has the controller, or too few of them can be reached, this node is cut off, alone or together with those few: what
//! may have been started elsewhere is ended here. Where most answer and have no controller either, that is what is gone, and
//! nobody has been given anything: all goes on, and the question is asked again later. The clock decides only when the question is asked; what the
//! controller starts elsewhere has a new SLUID, and whoever comes back late is told by `Welcome` what is still its own.

use crate::{
    core::{NodeAgentCore, log_info, log_warning},
    messages::{AgentEffect, AgentTimer, PeersSaid, RunKey},
};
use garrick_model::{
    messages::stepd::NodeToStepd,
    state::{JobState, Reason},
};
use std::time::Duration;

/// A lease ends before the controller's patience by this: the loss of a connection is noticed that much later.
const MARGIN: Duration = Duration::from_secs(15);
/// Never shorter than this: by then all others have noticed too that a controller is gone (their links are given up after
/// 10 s of silence), and do not say that they have it.
const SHORTEST: Duration = Duration::from_secs(12);
/// Where others have no controller either they are asked again after this part of the lease.
const AGAIN: u32 = 3;

/// How long an agent works on without a word from its controller before it asks others. `patience` is `SlurmdTimeout`, after
/// which the controller gives the node up; `None`: it never does.
pub fn lease_of(patience: Option<Duration>) -> Option<Duration> {
    patience.map(|patience| patience.saturating_sub(MARGIN).max(patience / 2).max(SHORTEST))
}

impl NodeAgentCore {
    /// The controller is not heard any more, or was not heard yet.
    pub(super) fn begin_lease(&self, out: &mut Vec<AgentEffect>) {
        if let Some(after) = self.config.lease {
            out.push(AgentEffect::SetTimer { timer: AgentTimer::Lease, after });
        }
    }

    /// The controller has welcomed this node: it knows what runs here.
    pub(super) fn renew_lease(&mut self, out: &mut Vec<AgentEffect>) {
        // What others say now answers a question that is settled.
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
        // This node is one of those that can be reached.
        let most = (reached + 1) * 2 > asked + 1;
        // A node that joined does not know the others that did: that there are none to ask says nothing.
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
