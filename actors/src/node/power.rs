//! Whether the node's machine is on (power_save.html): the moves that the owner of power saving proposes, requests of
//! administrators, and what a registration means for a node that was off.
//!
//! ```text
//! On --Suspend--> PoweringDown --Off--> PoweredDown --Resume--> PoweringUp --registers--> On
//!                                                                        \--Failed--> On and DOWN
//! ```

use super::{
    core::{Link, NodeCore, to_job},
    effects::{NodeEffect, NodeErrand},
    reboot::without_reboot,
};
use crate::messages::{job::JobInput, node::PowerMove};
use garrick_events::records::node::{DownCause, SavedNode, SavedPower};
use garrick_model::{
    config::Span,
    messages::command::NodeStateChange,
    refusal::Refusal,
    state::{NodeBase, NodePower, PowerRequest},
    time::Timestamp,
    view::{NodeFacts, NodeReason},
};

/// Slurm's reason for a node that was powered up and did not come.
const RESUME_TIMEOUT: &str = "ResumeTimeout reached";
/// Slurm's reason for a node that is drained to be powered down.
const POWER_DOWN_ASAP: &str = "POWER_DOWN_ASAP";

/// Slurm's words where the site has no program for it.
fn no_power_action() -> Refusal {
    Refusal::InvalidUpdate("Invalid power action".to_owned())
}

impl NodeCore {
    /// Whether it is on. Without programs for it, every node is.
    pub(super) fn power(&self) -> SavedPower {
        if self.site.power.is_none() {
            return SavedPower::default();
        }
        match self.saved.power {
            Some(power) => power,
            // A cloud node exists when it is needed.
            None if self.settings.cloud => SavedPower { state: NodePower::PoweredDown, ..SavedPower::default() },
            None => SavedPower::default(),
        }
    }

    /// `SuspendTime`; `None`: for ever.
    pub(super) fn suspend_time_secs(&self) -> Option<u32> {
        let times = self.site.power.as_ref()?.times(&self.settings.name);
        match times.suspend_time {
            Span::Secs(secs) => Some(secs),
            Span::Infinite => None,
        }
    }

    /// It is off, and nothing else keeps it from being used.
    pub(super) fn is_merely_off(&self) -> bool {
        let power = self.power();
        let stands = self.saved.down.is_none() && !self.saved.is_held_back() && power.request.is_none();
        stands && power.state == NodePower::PoweredDown
    }

    /// Since when it could be powered down: it has no jobs, and is on.
    pub(super) fn idle_since(&self) -> Option<Timestamp> {
        let stands = matches!(self.base(), NodeBase::Up | NodeBase::Down);
        let counts = stands && self.power().state.is_on() && self.account.is_empty();
        counts.then_some(self.idle_from)
    }

    /// A move that was decided from the node's view. It is ignored if the node has changed since.
    pub(super) fn power_move(&mut self, now: Timestamp, what: PowerMove, out: &mut Vec<NodeEffect>) {
        let power = self.power();
        match (what, power.state) {
            (PowerMove::Suspend, NodePower::On | NodePower::PoweredDown | NodePower::PoweringUp)
                if self.account.is_empty() && !self.is_retired() =>
            {
                self.begin_power_down(now, out);
            }
            (PowerMove::Off, NodePower::PoweringDown) => self.powered_down(now, power.request, out),
            (PowerMove::Resume, NodePower::PoweredDown) if !self.is_retired() => {
                let power = SavedPower { state: NodePower::PoweringUp, since: now, request: None };
                self.save(SavedNode { power: Some(power), ..self.saved.clone() }, out);
            }
            (PowerMove::Failed, NodePower::PoweringUp) => self.power_up_failed(now, power.request, out),
            _ => {}
        }
    }

    fn begin_power_down(&mut self, now: Timestamp, out: &mut Vec<NodeEffect>) {
        let power = SavedPower { state: NodePower::PoweringDown, since: now, request: None };
        let mut saved = SavedNode { power: Some(power), ..self.saved.clone() };
        let by_asap = saved.drain && saved.reason.as_ref().is_some_and(|reason| reason.text == POWER_DOWN_ASAP);
        if by_asap || self.site.power.as_ref().is_some_and(|policy| policy.idle_on_suspend) {
            (saved.down, saved.drain, saved.fail, saved.reason) = (None, false, false, None);
        }
        self.save(saved, out);
    }

    fn powered_down(&mut self, now: Timestamp, request: Option<PowerRequest>, out: &mut Vec<NodeEffect>) {
        let request = request.filter(|request| *request == PowerRequest::Up);
        let power = SavedPower { state: NodePower::PoweredDown, since: now, request };
        let mut saved = SavedNode { power: Some(power), ..self.saved.clone() };
        // The next machine of a cloud node has another address.
        if self.settings.cloud && self.site.power.as_ref().is_some_and(|policy| !policy.cloud_dns) {
            (saved.address, saved.hostname) = (None, None);
        }
        // A reboot that was asked for is as good as done: the next machine starts afresh.
        let _ = without_reboot(&mut saved);
        self.registered = false;
        self.load = Default::default();
        self.save(saved, out);
        self.drop_link(out);
    }

    fn drop_link(&mut self, out: &mut Vec<NodeEffect>) {
        if let Some(Link { conn, .. }) = self.link.take() {
            self.touched = true;
            out.push(NodeEffect::Do(NodeErrand::Close { conn }));
        }
    }

    fn power_up_failed(&mut self, now: Timestamp, request: Option<PowerRequest>, out: &mut Vec<NodeEffect>) {
        let reason = self.saved.reason.clone().filter(|_| self.saved.is_held_back());
        let reason = reason.or_else(|| Some(self.own_reason(now, RESUME_TIMEOUT)));
        // As Slurm does, it is powered down, whatever has become of it.
        let request = request.or(Some(PowerRequest::Down));
        let power = SavedPower { state: NodePower::On, since: now, request };
        let down = self.saved.down.or(Some(DownCause::Resume));
        tracing::error!(node = self.settings.name, "node.resume_timeout");
        self.idle_from = now;
        self.save(SavedNode { power: Some(power), down, reason, ..self.saved.clone() }, out);
        self.drop_link(out);
        self.lose_jobs(out);
    }

    /// Did that machine start after the node was powered down? A machine that is still on its way down may register again.
    fn has_booted(&self, facts: &NodeFacts) -> bool {
        let power = self.power();
        let other = match (&facts.boot_id, &self.saved.boot_id) {
            (Some(now), Some(before)) => now != before,
            // It never registered before.
            (_, None) => true,
            (None, Some(_)) => false,
        };
        other || facts.boot_time.secs() >= power.since.secs() && power.since > Timestamp(0)
    }

    /// An agent registers while the node is off. True: the node is on now.
    pub(super) fn comes_on(&mut self, now: Timestamp, facts: &NodeFacts, out: &mut Vec<NodeEffect>) -> bool {
        let power = self.power();
        if power.state == NodePower::PoweringDown || !self.has_booted(facts) {
            tracing::info!(node = self.settings.name, power = ?power.state, "node.registered_while_off");
            return false;
        }
        if power.state == NodePower::PoweredDown {
            tracing::info!(node = self.settings.name, "node.powered_up_by_others");
        }
        let request = power.request.filter(|request| *request == PowerRequest::Down);
        let power = SavedPower { state: NodePower::On, since: now, request };
        let boot_id = facts.boot_id.clone().or_else(|| self.saved.boot_id.clone());
        self.idle_from = now;
        // Whoever waits for it need not have it rebooted.
        let waits = self.account.holds().find(|hold| hold.is_at_work()).map(|hold| hold.sluid);
        let rebooted_for = waits.or(self.saved.rebooted_for);
        self.save(SavedNode { power: Some(power), boot_id, rebooted_for, ..self.saved.clone() }, out);
        true
    }

    /// Tells the jobs that have something here, and whose runs the agent does not have, that they may begin.
    pub(super) fn tell_ready(&self, has: &dyn Fn(&garrick_model::view::NodeHold) -> bool, out: &mut Vec<NodeEffect>) {
        let rebooted = |hold: &garrick_model::view::NodeHold| self.saved.rebooted_for == Some(hold.sluid);
        let waits = |hold: &garrick_model::view::NodeHold| self.site.power.is_some() || rebooted(hold);
        for hold in self.account.holds().filter(|hold| hold.is_at_work() && !has(hold) && waits(hold)) {
            if self.reboots_for(hold.sluid) {
                continue;
            }
            let (node, sluid, address) = (self.name(), hold.sluid, self.target());
            out.push(to_job(hold.job, JobInput::NodeReady { node, sluid, address }));
        }
    }

    /// `PowerDownOnIdle`: a job of that partition has left the node.
    pub(super) fn power_down_after(&mut self, partition: Option<&str>, out: &mut Vec<NodeEffect>) {
        let Some(policy) = &self.site.power else { return };
        let power = self.power();
        let wanted = partition.is_some_and(|partition| policy.ends_with_job(partition));
        if wanted && self.account.is_empty() && power.state.is_on() && power.request.is_none() {
            let power = SavedPower { request: Some(PowerRequest::Down), ..power };
            self.save(SavedNode { power: Some(power), ..self.saved.clone() }, out);
        }
    }

    /// A request of an administrator. Returns whether its jobs end.
    pub(super) fn request_power(
        &self,
        now: Timestamp,
        by: &(u32, String),
        asked: NodeStateChange,
        saved: &mut SavedNode,
    ) -> Result<bool, Refusal> {
        let Some(policy) = &self.site.power else { return Err(no_power_action()) };
        let power = self.power();
        let (program, request) = match asked {
            NodeStateChange::PowerUp => (&policy.settings.resume_program, PowerRequest::Up),
            _ => (&policy.settings.suspend_program, PowerRequest::Down),
        };
        if program.is_none() {
            return Err(no_power_action());
        }
        let keeps = match (request, power.state) {
            (PowerRequest::Up, NodePower::On) | (PowerRequest::Down, NodePower::PoweringDown) => None,
            _ => Some(request),
        };
        saved.power = Some(SavedPower { request: keeps, ..power });
        match asked {
            NodeStateChange::PowerDownAsap => {
                saved.drain = true;
                let (uid, user) = by.clone();
                saved.reason = Some(NodeReason { text: POWER_DOWN_ASAP.to_owned(), uid, user, at: now });
                Ok(false)
            }
            NodeStateChange::PowerDownForce => {
                // It is idle again when it is off.
                (saved.down, saved.drain, saved.fail) = (None, false, false);
                if power.state == NodePower::PoweringUp {
                    let power = SavedPower { state: NodePower::On, since: now, request: Some(PowerRequest::Down) };
                    saved.power = Some(power);
                }
                Ok(true)
            }
            _ => Ok(false),
        }
    }
}
