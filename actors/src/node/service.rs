//! Whether a node is in service: registration, silence, and administrators' settings.

use super::{
    core::{Link, NOT_RESPONDING, NodeCore, to_job},
    effects::{NodeEffect, NodeErrand},
    reboot::no_transition,
};
use crate::messages::{
    job::JobInput,
    node::{NodeSettings, NodeSite, NodeTimer, Registration, ReturnToService},
};
use garrick_events::records::node::{DownCause, SavedNode, SavedPower};
use garrick_model::{
    gres::GresEntry,
    ids::{JobId, Sluid},
    messages::{
        command::{NodeChange, NodeStateChange, ResumeAfter},
        node::{ControllerToNode, Neighbour, ReleasedRun},
    },
    refusal::Refusal,
    state::NodePower,
    time::Timestamp,
    view::{NodeHold, NodeReason},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// Slurm's reason for a node that rebooted without a request.
const REBOOTED: &str = "Node unexpectedly rebooted";
/// Number of pings in the time for which a node may be silent.
pub(super) const TICKS: u32 = 3;
/// After so many pings without an answer it was silent for that time, whatever the clock says. The clock may have been set: with
/// one ping less, the clock is believed; with two less, it is not.
const MOST_QUIET: u32 = TICKS + 1;

/// The first name of which fewer were found than configured, in Slurm's words.
fn low_gres(found: &[GresEntry], wanted: &[GresEntry]) -> Option<String> {
    let count = |entries: &[GresEntry], name: &str| -> u64 {
        entries.iter().filter(|entry| entry.name == name).map(|entry| entry.count).fold(0, u64::saturating_add)
    };
    wanted.iter().find_map(|entry| {
        let name = &entry.name;
        let (there, all) = (count(found, name), count(wanted, name));
        (there < all).then(|| format!("gres/{name} count reported lower than configured ({there} < {all})"))
    })
}

impl NodeCore {
    pub(super) fn registered(&mut self, now: Timestamp, registration: Registration, out: &mut Vec<NodeEffect>) {
        let Registration { conn, facts, runs, released, incarnation, load, address } = registration;
        self.link = Some(Link { conn, incarnation });
        if !self.power().state.is_on() && !self.comes_on(now, &facts, out) {
            self.touched = true;
            return self.welcome(Vec::new(), out);
        }
        self.note_address(address, out);
        self.facts = Some(Arc::new(facts));
        self.load = load;
        self.heard(now);
        self.registered = true;
        self.touched = true;
        self.check_shape(now, out);
        self.note_reboot(now, out);
        let reboots = self.saved.reboot.is_some_and(|reboot| reboot.issued.is_some());
        let back = !reboots
            && match (self.saved.down, self.site.return_to_service) {
                (None, _)
                | (_, ReturnToService::Never)
                | (Some(DownCause::Admin | DownCause::Reboot | DownCause::Resume), ReturnToService::IfSilent) => false,
                (Some(DownCause::Silence), ReturnToService::IfSilent) | (Some(_), ReturnToService::Always) => {
                    self.invalid.is_none()
                }
            };
        let was_down = self.saved.down.is_some();
        if back {
            let reason = self.saved.reason.clone().filter(|_| self.saved.is_held_back());
            self.save(SavedNode { down: None, reason, ..self.saved.clone() }, out);
        }
        let given_up = !back && matches!(self.saved.down, Some(DownCause::Admin | DownCause::Silence));
        let own =
            self.account.holds().filter(|hold| !hold.kept && !given_up).map(|hold| (hold.job, hold.sluid)).collect();
        self.welcome(own, out);
        self.check_conf(out);
        self.note_boot(now, was_down, out);
        let held: BTreeMap<_, _> = runs.iter().map(|r| ((r.job, r.sluid), r.requeue)).collect();
        if given_up {
            // Jobs were told when the node went down, and may have failed with the whole controller before they handled it.
            self.remains = held.into_keys().collect();
            return self.lose_jobs(out);
        }
        let known: BTreeSet<_> = self.account.holds().map(|h| (h.job, h.sluid)).collect();
        self.remains = held.keys().filter(|run| !known.contains(*run)).copied().collect();
        // The epilog's result is in a report that follows, unless that report was handled already.
        let follows = |hold: &NodeHold| {
            let says = |run: &ReleasedRun| (run.job, run.sluid) == (hold.job, hold.sluid) && !self.is_safe(run.seq);
            released.iter().any(says)
        };
        self.tell_ready(&|hold| held.contains_key(&(hold.job, hold.sluid)), out);
        // A kept share has no run that the agent could know.
        for hold in self.account.holds().filter(|h| !h.kept) {
            let sluid = hold.sluid;
            let node = self.name();
            // It has nothing of the run, which waits for the machine to come back.
            if self.reboots_for(sluid) {
                continue;
            }
            let word = match held.get(&(hold.job, sluid)) {
                Some(&requeue) => JobInput::RunHeld { node, sluid, requeue },
                None if follows(hold) => continue,
                None => JobInput::RunMissing { node, sluid },
            };
            out.push(to_job(hold.job, word));
        }
    }

    fn welcome(&self, runs: Vec<(JobId, Sluid)>, out: &mut Vec<NodeEffect>) {
        let first = ControllerToNode::Welcome {
            epoch: self.site.epoch,
            credential_key: self.site.credential_key.clone().into(),
            key_id: self.site.key_id.clone(),
            runs,
            neighbours: self.settings.neighbours.clone(),
            shape: self.site.config_overrides.then(|| Box::new(self.settings.shape.clone())),
        };
        self.to_agent(first, out);
    }

    /// The address of a cloud node is that from which it registers (power_save.html), unless an administrator has set one.
    fn note_address(&mut self, address: Option<String>, out: &mut Vec<NodeEffect>) {
        let learns = self.settings.cloud && self.site.power.as_ref().is_some_and(|policy| !policy.cloud_dns);
        if learns && !self.settings.dynamic && self.saved.address.is_none() {
            self.save(SavedNode { address, ..self.saved.clone() }, out);
        }
    }

    /// A rebooted machine is DOWN until an administrator has looked at it, unless `ReturnToService=2` is set (slurm.conf(5)). If
    /// it was DOWN already, `ReturnToService` has decided.
    fn note_boot(&mut self, now: Timestamp, was_down: bool, out: &mut Vec<NodeEffect>) {
        let Some(boot) = self.facts.as_ref().and_then(|facts| facts.boot_id.clone()) else { return };
        if self.saved.boot_id.as_ref() == Some(&boot) {
            return;
        }
        let mut saved = SavedNode { boot_id: Some(boot), ..self.saved.clone() };
        let in_use = saved.down.is_none() && self.saved.boot_id.is_some();
        if in_use && !was_down && self.site.return_to_service != ReturnToService::Always {
            tracing::warn!(node = self.settings.name, "node.rebooted");
            saved.down = Some(DownCause::Reboot);
            saved.reason = self.saved.reason.clone().filter(|_| self.saved.is_held_back());
            saved.reason = saved.reason.or_else(|| Some(self.own_reason(now, REBOOTED)));
        }
        self.save(saved, out);
    }

    /// A node with another `slurm.conf` may behave differently from what the controller expects. Reported once for each pair of
    /// hashes.
    fn check_conf(&mut self, out: &mut Vec<NodeEffect>) {
        let theirs = self.facts.as_ref().and_then(|facts| facts.conf_hash);
        let differs = theirs.zip(self.site.conf_hash).filter(|(theirs, ours)| theirs != ours);
        if let Some((theirs, ours)) = differs.filter(|pair| self.conf_differs != Some(*pair)) {
            out.push(NodeEffect::Do(NodeErrand::WarnOfConf { theirs, ours }));
        }
        self.conf_differs = differs;
    }

    /// A machine with less than configured is not used; the reason is in Slurm's words.
    pub(super) fn check_shape(&mut self, now: Timestamp, out: &mut Vec<NodeEffect>) {
        let Some(facts) = &self.facts else { return };
        let (found, wanted) = (&facts.shape, &self.settings.shape);
        let percent = self.site.memory_percent.unwrap_or(if self.settings.cloud { 90 } else { 100 });
        let cores = |s: &garrick_model::node_shape::NodeShape| {
            u64::from(s.sockets) * u64::from(s.cores_per_socket) * u64::from(s.threads_per_core)
        };
        let problem = if self.site.config_overrides {
            // A missing device cannot be allocated.
            low_gres(&found.gres, &wanted.gres)
        } else if cores(found) < cores(wanted) {
            Some("Low socket*core*thread count".to_owned())
        } else if found.cpus < wanted.cpus {
            Some("Low CPUs".to_owned())
        } else if u128::from(found.memory.0) * 100 < u128::from(wanted.memory.0) * u128::from(percent) {
            let (found, wanted) = (found.memory.0, wanted.memory.0);
            Some(format!("Low RealMemory (reported:{found} < {percent}.00% of configured:{wanted})"))
        } else if found.tmp_disk_mib < wanted.tmp_disk_mib {
            Some("Low TmpDisk".to_owned())
        } else {
            low_gres(&found.gres, &wanted.gres)
        };
        if problem == self.invalid && problem == self.saved.invalid {
            return;
        }
        self.touched = true;
        // If another controller found the problem, it is known only from the saved state.
        let was = std::mem::replace(&mut self.invalid, problem.clone()).or_else(|| self.saved.invalid.clone());
        let ours = |reason: &NodeReason| was.as_ref().is_some_and(|was| reason.text == *was);
        let mut reason = self.saved.reason.clone().filter(|reason| problem.is_some() || !ours(reason));
        if let Some(text) = &problem {
            tracing::error!(node = self.settings.name, reason = text, "node.invalid_registration");
            if !self.saved.is_held_back() && self.saved.down.is_none() {
                reason = Some(self.own_reason(now, text));
            }
        }
        self.save(SavedNode { reason, invalid: problem, ..self.saved.clone() }, out);
    }

    pub(super) fn silence(&mut self, now: Timestamp, out: &mut Vec<NodeEffect>) {
        let Some(silence) = self.site.silence else { return };
        let due = self.last_heard.plus(silence);
        let is_silent = self.quiet >= MOST_QUIET || (due <= now && self.quiet + 1 >= MOST_QUIET);
        if !is_silent {
            let at = if due > now { due.min(now.plus(silence)) } else { now.plus(silence / TICKS) };
            out.push(NodeEffect::SetTimer { timer: NodeTimer::Silence, at });
            return;
        }
        out.push(NodeEffect::SetTimer { timer: NodeTimer::Silence, at: now.plus(silence) });
        if self.base() == garrick_model::state::NodeBase::Future || !self.power().state.is_on() || self.reboots_now() {
            return;
        }
        if let Some(Link { conn, .. }) = self.link.take() {
            self.touched = true;
            out.push(NodeEffect::Do(NodeErrand::Close { conn }));
        }
        // A node that is down already is silent too: jobs that still hold something there may have failed before they were told.
        if self.saved.down.is_none() {
            let reason = self
                .saved
                .reason
                .clone()
                .filter(|_| self.saved.is_held_back())
                .or_else(|| Some(self.own_reason(now, NOT_RESPONDING)));
            self.save(SavedNode { down: Some(DownCause::Silence), reason, ..self.saved.clone() }, out);
        }
        self.lose_jobs(out);
    }

    pub(super) fn ping(&mut self, now: Timestamp, out: &mut Vec<NodeEffect>) {
        let Some(silence) = self.site.silence else { return };
        let interval = silence / TICKS;
        self.quiet = self.quiet.saturating_add(1);
        if self.link.is_some() && now.since(self.last_heard) >= interval / 2 {
            self.send_ping(None, out);
        }
        out.push(NodeEffect::SetTimer { timer: NodeTimer::Ping, at: now.plus(interval) });
        if self.quiet == MOST_QUIET {
            self.silence(now, out);
        }
    }

    fn send_ping(&mut self, neighbours: Option<Vec<Neighbour>>, out: &mut Vec<NodeEffect>) {
        self.pings += 1;
        self.to_agent(ControllerToNode::Ping { n: self.pings, neighbours }, out);
    }

    /// The node's configuration has changed.
    pub(super) fn configure(
        &mut self,
        now: Timestamp,
        settings: NodeSettings,
        site: Arc<NodeSite>,
        out: &mut Vec<NodeEffect>,
    ) {
        self.touched |= self.settings != settings;
        // A node in the file cannot be deleted any more.
        if !settings.dynamic && self.retired.take().is_some() {
            self.touched = true;
            out.push(self.saved_event());
        }
        // The site may have begun to save power, or have other times.
        let shown = (self.power(), self.suspend_time_secs());
        let before = std::mem::replace(&mut self.settings, settings);
        self.site = site;
        self.touched |= shown != (self.power(), self.suspend_time_secs());
        if before.neighbours != self.settings.neighbours {
            self.send_ping(Some(self.settings.neighbours.clone()), out);
        }
        self.check_shape(now, out);
    }

    pub(super) fn update(
        &mut self,
        now: Timestamp,
        by: (u32, String),
        change: NodeChange,
        out: &mut Vec<NodeEffect>,
    ) -> Result<(), Refusal> {
        let mut saved = self.saved.clone();
        let (uid, user) = by.clone();
        let said = change.reason.map(|text| NodeReason { text, uid, user, at: now });
        let mut loses_jobs = false;
        match change.state {
            Some(held @ (NodeStateChange::Drain | NodeStateChange::Fail)) => {
                // A node that is to be drained is not expected to fail any more (seen in Slurm 22.05).
                saved.fail = held == NodeStateChange::Fail;
                saved.drain |= held == NodeStateChange::Drain;
                saved.resume_at = resume_at(now, change.resume_after);
                saved.reason = said.or(saved.reason);
            }
            Some(NodeStateChange::Down) => {
                saved.down = Some(DownCause::Admin);
                saved.reboot = None;
                saved.resume_at = resume_at(now, change.resume_after);
                saved.reason = said.or(saved.reason);
            }
            Some(NodeStateChange::Undrain) => {
                saved.drain = false;
                let stands = saved.down.is_some() || saved.fail;
                saved.resume_at = saved.resume_at.filter(|_| stands);
                saved.reason = if stands { said.or(saved.reason) } else { said };
            }
            Some(NodeStateChange::Resume) if self.is_merely_off() => {
                return Err(no_transition());
            }
            Some(NodeStateChange::Resume) => {
                (saved.drain, saved.fail) = (false, false);
                saved.down = None;
                saved.reboot = self.reboot_of_run();
                saved.resume_at = None;
                saved.reason = said;
                // It is eligible at once (power_save.html).
                saved.power = saved.power.map(|power| match power.state {
                    NodePower::PoweringDown => SavedPower { state: NodePower::PoweredDown, since: now, request: None },
                    _ => SavedPower { request: None, ..power },
                });
                self.idle_from = now;
                self.heard(now);
            }
            Some(
                asked @ (NodeStateChange::PowerUp
                | NodeStateChange::PowerDown
                | NodeStateChange::PowerDownAsap
                | NodeStateChange::PowerDownForce),
            ) => {
                loses_jobs = self.request_power(now, &by, asked, &mut saved)?;
                saved.reason = said.or(saved.reason);
            }
            Some(NodeStateChange::CancelReboot) => self.cancel_reboot(&mut saved)?,
            None => saved.reason = said.or(saved.reason),
        }
        if let Some(order) = change.reboot {
            self.order_reboot(now, order, &mut saved)?;
        }
        saved.weight = change.weight.or(saved.weight);
        saved.features = change.features.or(saved.features);
        let place = change.place.map(|place| *place).unwrap_or_default();
        saved.address = place.address.or(saved.address);
        saved.hostname = place.hostname.or(saved.hostname);
        saved.comment = change.comment.or(saved.comment);
        let text = |given: Option<String>, before: Option<String>| given.or(before).filter(|text| !text.is_empty());
        saved.extra = text(change.extra, saved.extra);
        saved.instance_id = text(place.instance_id, saved.instance_id);
        saved.instance_type = text(place.instance_type, saved.instance_type);
        let goes_down = saved.down.is_some() && self.saved.down.is_none();
        self.save(saved, out);
        self.await_resume(out);
        if goes_down || loses_jobs {
            // The machine may well be alive: its runs are to end.
            for hold in self.account.holds().filter(|h| !h.kept) {
                let end = ControllerToNode::EndJob {
                    job: hold.job,
                    sluid: hold.sluid,
                    state: garrick_model::state::JobState::NodeFail,
                    reason: garrick_model::state::Reason::NodeDown,
                    lost: Vec::new(),
                };
                self.to_agent(end, out);
            }
            self.lose_jobs(out);
        }
        Ok(())
    }

    /// Sets the timer of a node that is to be back in service at some time.
    pub(super) fn await_resume(&self, out: &mut Vec<NodeEffect>) {
        if let Some(at) = self.saved.resume_at {
            out.push(NodeEffect::SetTimer { timer: NodeTimer::Resume, at });
        }
    }

    /// It is that time (scontrol(1), `ResumeAfter`).
    pub(super) fn resume_if_due(&mut self, now: Timestamp, out: &mut Vec<NodeEffect>) {
        if self.saved.resume_at.is_none_or(|at| at > now) {
            return self.await_resume(out);
        }
        tracing::info!(node = self.settings.name, "node.is_back_in_service_as_was_asked_for");
        let (drain, fail, down, reboot) = (false, false, None, self.reboot_of_run());
        let saved = SavedNode { drain, fail, down, reboot, resume_at: None, reason: None, ..self.saved.clone() };
        self.idle_from = now;
        self.heard(now);
        self.save(saved, out);
    }
}

/// When that is; `None`: an administrator says it.
fn resume_at(now: Timestamp, after: Option<ResumeAfter>) -> Option<Timestamp> {
    match after {
        Some(ResumeAfter::Secs(secs)) => Some(now.plus(Duration::from_secs(secs.into()))),
        Some(ResumeAfter::Never) | None => None,
    }
}
