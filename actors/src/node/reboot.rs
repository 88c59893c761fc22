//! Reboots that administrators ask for (`scontrol reboot`), and jobs before they begin (`--reboot`): a node is rebooted when no other
//! job holds anything there, and is awaited for ResumeTimeout.

use super::{
    core::{NodeCore, to_job},
    effects::NodeEffect,
};
use crate::messages::{job::JobInput, node::NodeTimer};
use garrick_events::records::node::{DownCause, Reboot, SavedNode};
use garrick_model::{
    ids::{JobId, Sluid},
    messages::{command::RebootOrder, node::ControllerToNode},
    refusal::Refusal,
    state::NodeBase,
    time::Timestamp,
    view::{AfterReboot, NodeReason},
};

/// Slurm's reasons where nobody names one (scontrol(1)).
const REQUESTED: &str = "reboot requested";
const REQUESTED_ASAP: &str = "Reboot ASAP";

/// Slurm's word for a change that does not fit the node's state.
pub(super) fn no_transition() -> Refusal {
    Refusal::InvalidUpdate("Invalid node state transition".to_owned())
}

/// Does an administrator want it? One for a run has a state after it only if an administrator wants it too.
const fn is_asked_for(reboot: &Reboot) -> bool {
    reboot.run.is_none() || reboot.next.is_some()
}

/// A reboot that was not issued is not wanted any more.
pub(super) fn without_reboot(saved: &mut SavedNode) -> Result<(), Refusal> {
    let reboot = saved.reboot.filter(|reboot| reboot.issued.is_none()).ok_or_else(no_transition)?;
    saved.reboot = None;
    saved.drain &= !reboot.asap;
    saved.reason = saved.reason.take().filter(|_| saved.is_held_back() || saved.down.is_some());
    Ok(())
}

impl NodeCore {
    /// An administrator takes back a reboot that was not issued.
    pub(super) fn cancel_reboot(&self, saved: &mut SavedNode) -> Result<(), Refusal> {
        if saved.reboot.is_some_and(|reboot| !is_asked_for(&reboot)) {
            return Err(no_transition());
        }
        without_reboot(saved)?;
        saved.reboot = self.reboot_of_run();
        Ok(())
    }

    /// The reboot for a run that waits for it, whatever administrators want.
    pub(super) fn reboot_of_run(&self) -> Option<Reboot> {
        let waits = |reboot: &Reboot| self.account.holds().any(|hold| reboot.run == Some(hold.sluid));
        self.saved.reboot.filter(waits).map(|reboot| Reboot { asap: false, next: None, ..reboot })
    }

    /// Notes that it is to be rebooted.
    pub(super) fn order_reboot(
        &self,
        now: Timestamp,
        order: RebootOrder,
        saved: &mut SavedNode,
    ) -> Result<(), Refusal> {
        if saved.reboot.is_some() || self.base() == NodeBase::Future {
            return Err(no_transition());
        }
        // A node that is drained for something else stays so.
        let asap = order.asap && !saved.drain;
        let next = order.next.or(order.asap.then_some(AfterReboot::Undrain));
        saved.reboot = Some(Reboot { asap, next, issued: None, run: None });
        saved.drain |= order.asap;
        let text = if order.asap { REQUESTED_ASAP } else { REQUESTED };
        saved.reason = saved.reason.take().or_else(|| Some(self.own_reason(now, text)));
        Ok(())
    }

    /// What is added to the reason, in the controller's name.
    fn reason_and(&self, now: Timestamp, more: &str) -> Option<NodeReason> {
        let text = match &self.saved.reason {
            Some(reason) => format!("{} : {more}", reason.text),
            None => more.to_owned(),
        };
        Some(self.own_reason(now, &text))
    }

    /// Reboots it, if that was asked for and nothing is left there. It counts as DOWN until it is back.
    pub(super) fn reboot_if_idle(&mut self, now: Timestamp, out: &mut Vec<NodeEffect>) {
        let Some(reboot) = self.saved.reboot.filter(|reboot| reboot.issued.is_none()) else { return };
        let away = self.link.is_none() || !self.registered || !self.power().state.is_on();
        let busy = self.account.holds().any(|hold| reboot.run != Some(hold.sluid));
        if away || self.flags().completing || busy {
            return;
        }
        if reboot.run.is_some() {
            // It stays the run's, so it is not DOWN meanwhile.
            let reboot = Some(Reboot { issued: Some(now), ..reboot });
            self.save(SavedNode { reboot, ..self.saved.clone() }, out);
            self.to_agent(ControllerToNode::Reboot, out);
            return self.limit_reboot(out);
        }
        let reason = self.reason_and(now, "reboot issued");
        let reboot = Some(Reboot { issued: Some(now), ..reboot });
        self.save(SavedNode { down: Some(DownCause::Admin), reason, reboot, ..self.saved.clone() }, out);
        self.to_agent(ControllerToNode::Reboot, out);
        self.limit_reboot(out);
    }

    /// Sets the timer of a reboot that was issued.
    pub(super) fn limit_reboot(&self, out: &mut Vec<NodeEffect>) {
        if let Some(issued) = self.saved.reboot.and_then(|reboot| reboot.issued) {
            let at = issued.plus(self.site.reboot_limit);
            out.push(NodeEffect::SetTimer { timer: NodeTimer::Reboot, at });
        }
    }

    /// It registered: is it back from the reboot?
    pub(super) fn note_reboot(&mut self, now: Timestamp, out: &mut Vec<NodeEffect>) {
        let Some((reboot, issued)) = self.saved.reboot.and_then(|reboot| Some((reboot, reboot.issued?))) else {
            return;
        };
        let Some(facts) = self.facts.clone() else { return };
        let another = facts.boot_id.is_some() && facts.boot_id != self.saved.boot_id;
        if !another && facts.boot_time <= issued {
            return;
        }
        tracing::info!(node = self.settings.name, "node.is_back_from_its_reboot");
        let mut saved = SavedNode { reboot: None, ..self.saved.clone() };
        saved.boot_id = facts.boot_id.clone().or(saved.boot_id);
        if reboot.run.is_some() {
            saved.rebooted_for = reboot.run;
            if !is_asked_for(&reboot) {
                return self.save(saved, out);
            }
        }
        match reboot.next {
            // It cannot be down while the run has it: it is rebooted again after that.
            Some(AfterReboot::Down) if reboot.run.is_some() => {
                saved.reboot = Some(Reboot { issued: None, run: None, ..reboot });
            }
            Some(AfterReboot::Down) => saved.reason = self.reason_and(now, "reboot complete"),
            next => {
                saved.down = None;
                saved.drain &= !reboot.asap && next != Some(AfterReboot::Resume);
                saved.fail &= next != Some(AfterReboot::Resume);
                let held_back = saved.is_held_back();
                saved.reason = saved.reason.filter(|_| held_back);
            }
        }
        self.save(saved, out);
    }

    /// It was awaited long enough. It may return as any silent node.
    pub(super) fn reboot_timed_out(&mut self, now: Timestamp, out: &mut Vec<NodeEffect>) {
        let Some(issued) = self.saved.reboot.and_then(|reboot| reboot.issued) else { return };
        if issued.plus(self.site.reboot_limit) > now {
            return self.limit_reboot(out);
        }
        tracing::error!(node = self.settings.name, "node.reboot_timed_out");
        let reason = self.reason_and(now, "reboot timed out");
        let down = Some(DownCause::Silence);
        let of_run = self.saved.reboot.is_some_and(|reboot| reboot.run.is_some());
        self.save(SavedNode { down, reason, reboot: None, ..self.saved.clone() }, out);
        if of_run {
            self.lose_jobs(out);
        }
    }

    /// Would it be rebooted for that run? Only where nobody else has anything there.
    pub(super) fn may_reboot_for(&self, sluid: Sluid) -> bool {
        self.site.reboots && self.account.holds().all(|hold| hold.sluid == sluid)
    }

    /// It was told to reboot for a run: it says nothing until it is back.
    pub(super) fn reboots_now(&self) -> bool {
        self.saved.reboot.is_some_and(|reboot| reboot.run.is_some() && reboot.issued.is_some())
    }

    /// Is it rebooted for a run, or about to be?
    pub(super) fn reboots_for(&self, sluid: Sluid) -> bool {
        self.saved.reboot.is_some_and(|reboot| reboot.run == Some(sluid))
    }

    /// A run that has this node wants it rebooted before it begins.
    pub(super) fn reboot_for(&mut self, job: JobId, sluid: Sluid, out: &mut Vec<NodeEffect>) {
        let holds = self.account.holds().any(|hold| (hold.job, hold.sluid) == (job, sluid));
        // It boots for the run anyway if it was off.
        if !holds || self.reboots_for(sluid) || self.power().state.must_boot() {
            return;
        }
        // The run is told that it has lost the node.
        if self.saved.down.is_some() {
            return;
        }
        // Without a program there is nothing to wait for.
        if self.saved.rebooted_for == Some(sluid) || !self.site.reboots {
            let (node, address) = (self.name(), self.target());
            return out.push(to_job(job, JobInput::NodeReady { node, sluid, address }));
        }
        let reboot = match self.saved.reboot.filter(is_asked_for) {
            // One that an administrator asked for is done with this.
            Some(asked) => {
                let next = asked.next.or(Some(AfterReboot::Undrain));
                Reboot { next, issued: None, run: Some(sluid), ..asked }
            }
            None => Reboot { asap: false, next: None, issued: None, run: Some(sluid) },
        };
        self.save(SavedNode { reboot: Some(reboot), ..self.saved.clone() }, out);
    }

    /// Its run is over before it was told to.
    pub(super) fn forget_reboot_of(&mut self, sluid: Sluid, out: &mut Vec<NodeEffect>) {
        if self.reboots_for(sluid) && self.saved.reboot.is_some_and(|reboot| reboot.issued.is_none()) {
            // What an administrator wants stays.
            let reboot = self.saved.reboot.filter(is_asked_for).map(|reboot| Reboot { run: None, ..reboot });
            self.save(SavedNode { reboot, ..self.saved.clone() }, out);
        }
    }
}
