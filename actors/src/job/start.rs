//! From a proposal to a launch: reserve on every node, record the allocation, send the launch. If any node refuses, everything is
//! released and the job stays in the queue.

use super::{
    core::{Commit, JobCore, Turn},
    effects::{JobEffect, JobErrand, LaunchOrder},
};
use crate::messages::{
    job::JobTimer,
    letter::Letter,
    license::LicenseInput,
    node::{Grant, NodeInput, ReserveAsk, ReserveRefusal},
};
use garrick_events::records::charge::Charge;
use garrick_events::records::{
    job::{ArrayRecord, ChosenQos, Phase, Run},
    job_event::JobEvent,
};
use garrick_model::{
    entities::qos::{are_several, choices},
    ids::Sluid,
    messages::node::{ArrayFacts, JobCredential, RequeuePolicy},
    spec::{ArraySpec, JobSpec},
    time::{TimeLimit, Timestamp},
    view::Allocation,
};
use garrick_plan::{
    proposals::StartProposal,
    snapshot::{affiliation::Affiliation, request::NodeUse},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// Nodes' owners answer a reservation at once, or when the disk allows it; an owner that failed over it never does.
pub(super) const COMMIT_LIMIT: Duration = Duration::from_secs(10);

/// The greatest `UsageFactor` that is counted with.
const MOST_FACTOR: f64 = 1e6;

impl JobCore {
    pub(super) fn start(&mut self, mut proposal: StartProposal, turn: &mut Turn<'_>) {
        let pass = proposal.pass;
        let wanted = turn.now <= proposal.answer_by
            && self.is_eligible(turn.now)
            && self.commit.is_none()
            && !proposal.nodes.is_empty()
            && self.record.resolved.partitions.contains(&proposal.partition)
            && self.chosen_qos(&proposal).is_ok()
            && self.is_for_all_of_it(&proposal);
        if !wanted {
            // Its begin time had come, and the clock was set back since: the scheduler uses the published view.
            self.touched |= self.commit.is_none() && !self.is_eligible(turn.now);
            turn.outcome(pass, false);
            return;
        }
        if let Some(index) = proposal.array_index {
            let (pending, full) = match &self.record.array {
                // The scheduler counts tasks that are just starting; here only certain ones count.
                Some(array) => {
                    (array.pending.contains(&index), array.limit.is_some_and(|most| self.running_tasks() >= most))
                }
                None => (false, true),
            };
            if !pending || full {
                turn.outcome(pass, false);
                return;
            }
            if !self.is_last_task(index) {
                self.split(index, proposal, turn);
                return;
            }
            self.save(JobEvent::BecameTask { index }, turn);
            proposal.array_index = None;
        } else if self.record.is_array_record() {
            turn.outcome(pass, false);
            return;
        }
        self.commit(proposal, turn);
    }

    /// The QOS of a start, where the job names several. An error: it names none like that.
    pub(super) fn chosen_qos(&self, proposal: &StartProposal) -> Result<Option<ChosenQos>, ()> {
        let Some(of) = self.record.spec.qos.as_ref().filter(|named| are_several(Some(named))) else { return Ok(None) };
        let qos = proposal.qos.as_ref().filter(|qos| choices(of).any(|one| one == *qos)).ok_or(())?;
        Ok(Some(ChosenQos { qos: qos.clone(), of: of.clone() }))
    }

    pub(super) fn commit(&mut self, mut proposal: StartProposal, turn: &mut Turn<'_>) {
        self.attempt += 1;
        let others = std::mem::take(&mut proposal.others);
        let expected_end = proposal.time_limit.duration().map(|d| turn.now.plus(d));
        let licensed = proposal.licenses.is_empty();
        if !licensed {
            let (attempt, licenses) = (self.attempt, proposal.licenses.clone());
            turn.tell(Letter::Licenses(LicenseInput::Reserve { job: self.record.id, attempt, licenses }));
        }
        for (node, generation) in proposal.nodes.iter().zip(&proposal.generations) {
            turn.tell_node(
                node.name.clone(),
                NodeInput::Reserve(Box::new(ReserveAsk {
                    job: self.record.id,
                    sluid: self.record.sluid,
                    attempt: self.attempt,
                    uid: self.record.owner.uid,
                    mcs_label: self.record.spec.mcs_label.clone(),
                    share: node.share.clone(),
                    usage: proposal.usage,
                    partition: proposal.partition.clone(),
                    caps: proposal.caps,
                    left_to_system: self.record.spec.layout.left_to_system,
                    reboot: self.record.spec.reboot,
                    expected_end,
                    generation: *generation,
                })),
            );
        }
        let at = turn.now.plus(COMMIT_LIMIT).min(proposal.answer_by);
        turn.out.push(JobEffect::SetTimer { timer: JobTimer::Commit, at });
        self.commit = Some(Commit {
            attempt: self.attempt,
            waiting: proposal.nodes.iter().map(|n| n.name.clone()).collect(),
            granted: BTreeMap::new(),
            licensed,
            proposal,
        });
        if !others.is_empty() {
            self.het_prepare(others, turn);
        }
    }

    pub(super) fn reserved(
        &mut self,
        attempt: u64,
        node: String,
        result: Result<Grant, ReserveRefusal>,
        turn: &mut Turn<'_>,
    ) {
        let Some(commit) = self.commit.as_mut().filter(|c| c.attempt == attempt && c.waiting.contains(&node)) else {
            // It belongs to an attempt that was given up; its share is released. A repeated acceptance of this attempt is
            // ignored, and so is one of an attempt that the leader decides about.
            let repeated = self.commit.as_ref().is_some_and(|c| c.attempt == attempt && c.granted.contains_key(&node));
            // The run holds its nodes until they are clean, not only while it works.
            let holds = self.record.phase.run().is_some_and(|run| run.unreleased().any(|held| held == node));
            let allocated = attempt == self.attempt && holds;
            if result.is_ok() && !repeated && !allocated && !self.het_is_undecided(attempt) {
                let sluid = self.record.sluid;
                turn.tell_node(
                    node,
                    NodeInput::Release { job: self.record.id, sluid, attempt: Some(attempt), drain: None },
                );
            }
            return;
        };
        match result {
            Ok(grant) => {
                commit.waiting.remove(&node);
                commit.granted.insert(node, grant);
                if commit.has_all() {
                    self.committed(turn);
                }
            }
            Err(refusal) => {
                tracing::debug!(job_id = self.record.id.0, node, %refusal, "job.reserve_refused");
                commit.waiting.remove(&node);
                self.abandon_commit(turn);
            }
        }
    }

    pub(super) fn licenses_reserved(&mut self, attempt: u64, granted: bool, turn: &mut Turn<'_>) {
        let Some(commit) = self.commit.as_mut().filter(|c| c.attempt == attempt) else {
            // It belongs to an attempt that was given up.
            let kept = attempt == self.attempt && self.record.licenses().is_some();
            if granted && !kept && !self.het_is_undecided(attempt) {
                turn.tell(Letter::Licenses(LicenseInput::Release { job: self.record.id, attempt: Some(attempt) }));
            }
            return;
        };
        if !granted {
            tracing::debug!(job_id = self.record.id.0, "job.licenses_refused");
            return self.abandon_commit(turn);
        }
        commit.licensed = true;
        if commit.has_all() {
            self.committed(turn);
        }
    }

    /// Releases what was reserved. Nodes that have not answered are told too: their grant may be in flight.
    pub(super) fn abandon_commit(&mut self, turn: &mut Turn<'_>) {
        let Some(commit) = self.commit.take() else { return };
        turn.out.push(JobEffect::ClearTimer(JobTimer::Commit));
        if !commit.proposal.licenses.is_empty() {
            turn.tell(Letter::Licenses(LicenseInput::Release { job: self.record.id, attempt: Some(commit.attempt) }));
        }
        for node in commit.granted.into_keys().chain(commit.waiting) {
            turn.tell_node(
                node,
                NodeInput::Release {
                    job: self.record.id,
                    sluid: self.record.sluid,
                    attempt: Some(commit.attempt),
                    drain: None,
                },
            );
        }
        if self.record.spec.het.is_none() || self.het_abandoned(commit.attempt, turn) {
            turn.outcome(commit.proposal.pass, false);
        }
    }

    /// Everything that was requested is reserved.
    pub(super) fn committed(&mut self, turn: &mut Turn<'_>) {
        if self.record.spec.het.is_none() || self.het_may_allocate(turn) {
            self.allocate(turn);
        }
    }

    /// The run that results from a commit.
    pub(super) fn run_of(&self, commit: &Commit, now: Timestamp) -> Run {
        let StartProposal { nodes, partition, usage, time_limit, licenses, reservation, backfilled, .. } =
            commit.proposal.clone();
        let address = |name| commit.granted.get(name).map(|grant| grant.address.clone());
        let addresses = nodes.iter().map(|n| address(&n.name).unwrap_or_default()).collect();
        let booting = commit.granted.iter().filter(|(_, grant)| grant.boots).map(|(node, _)| node.clone()).collect();
        let run = self.with_scripts(Run {
            allocation: Arc::new(Allocation {
                nodes,
                partition,
                exclusive: usage == NodeUse::Whole,
                licenses,
                reservation,
            }),
            addresses,
            start: now,
            time_limit,
            started: None,
            door: String::new(),
            released: BTreeSet::new(),
            ending: None,
            kept: BTreeSet::new(),
            lost: BTreeSet::new(),
            epilog_failed: false,
            after_failure: self.record.expediting,
            continued: false,
            preempted: None,
            leave_by: None,
            suspended: None,
            parts: self.het_parts(),
            booting,
            requeue: Some(RequeuePolicy { allowed: self.another_may_follow(), revision: 0 }),
            awaits_prolog: false,
            awaits_epilog: false,
            charge: None,
            sluid: Some(self.record.sluid),
            backfilled,
            waited_for: self.blocked.clone(),
            chosen_qos: self.chosen_qos(&commit.proposal).ok().flatten(),
        });
        let charge = self.charge_of(&run);
        Run { charge: charge.map(Arc::new), ..run }
    }

    /// To whom a run is charged, and how; `None`: there is no accounting, and its CPUs are billed.
    fn charge_of(&self, run: &Run) -> Option<Charge> {
        let (accounts, partition) = (&self.site.accounts, &run.allocation.partition);
        if accounts.has_no_associations() {
            let nobody = || Charge { billing: self.billed(run), factor_millionths: 1_000_000, ..Charge::default() };
            return self.site.billing.contains_key(partition).then(nobody);
        }
        let (spec, owner) = (&self.record.spec, &self.record.owner);
        let own = Affiliation {
            uid: owner.uid,
            user: owner.user.as_str(),
            account: spec.account.as_deref(),
            qos: run.chosen_qos.as_ref().map(|chosen| chosen.qos.as_str()).or(spec.qos.as_deref()),
            association: self.record.resolved.association,
            partition: Some(partition.as_str()),
        };
        let association = accounts.association_of(own);
        let qos = accounts.qos_of(own, association).map(|qos| &qos.record);
        let factor = qos.map_or(1.0, |qos| qos.usage_factor).clamp(0.0, MOST_FACTOR);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bounded above")]
        let factor_millionths = (factor * 1e6).round() as u64;
        let of_partition = self.site.partition_qos.get(partition);
        Some(Charge {
            who: association.and_then(|rules| rules.who.clone()),
            qos: qos.map(|qos| qos.name.clone()).into_iter().chain(of_partition.cloned()).collect(),
            billing: self.billed(run),
            factor_millionths,
        })
    }

    fn allocate(&mut self, turn: &mut Turn<'_>) {
        let Some(commit) = self.commit.take() else { return };
        turn.out.push(JobEffect::ClearTimer(JobTimer::Commit));
        let pass = commit.proposal.pass;
        let run = self.run_of(&commit, turn.now);
        self.release_earlier(|hold| hold.kept && !run.has_node(&hold.node.name), turn);
        // What was kept on nodes of this run made room for it when they were asked, and is not needed any more.
        for hold in self.record.earlier.iter().filter(|hold| hold.kept) {
            let (node, sluid) = (hold.node.name.clone(), hold.sluid);
            turn.tell_node(node, NodeInput::Release { job: self.record.id, sluid, attempt: None, drain: None });
        }
        // For these nodes, one attempt was the last.
        self.left.retain(|node, _| !run.has_node(node));
        self.save(JobEvent::Allocated(Box::new(run)), turn);
        self.het_grant(turn);
        self.ask_reboots(turn);
        self.launch(turn);
        self.limit_launch(turn);
        turn.outcome(pass, true);
    }

    /// `--reboot`: its nodes are told, and awaited as those that are powered up. May be repeated for the same run.
    pub(super) fn ask_reboots(&self, turn: &mut Turn<'_>) {
        let Phase::Starting(run) = &self.record.phase else { return };
        let (job, sluid) = (self.record.id, self.record.sluid);
        for node in run.booting.iter().filter(|_| self.record.spec.reboot) {
            turn.tell_node(node.clone(), NodeInput::Reboot { job, sluid });
        }
    }

    /// While nodes are being powered up, their own limit applies, and the prolog of the controller has one of its own.
    pub(super) fn limit_launch(&self, turn: &mut Turn<'_>) {
        let Phase::Starting(run) = &self.record.phase else { return };
        if run.awaits_prolog || !run.booting.is_empty() {
            return;
        }
        let at = turn.now.plus(self.site.launch_limit);
        turn.out.push(JobEffect::SetTimer { timer: JobTimer::Launch, at });
    }

    /// A node registered without the run: if it was powered up for that, the run is launched when all nodes have come.
    pub(super) fn node_ready(&mut self, node: &str, sluid: Sluid, address: String, turn: &mut Turn<'_>) {
        if sluid != self.record.sluid {
            return;
        }
        if let Some(grant) = self.commit.as_mut().and_then(|commit| commit.granted.get_mut(node)) {
            // It is rebooted once the run has all that it needs.
            *grant = Grant { address, boots: grant.boots && self.record.spec.reboot };
            return;
        }
        let waits = matches!(&self.record.phase, Phase::Starting(run) if run.booting.contains(node));
        if waits {
            self.save(JobEvent::NodeBooted { node: node.to_owned(), address, at: turn.now }, turn);
            self.launch_if_all_came(turn);
        }
    }

    /// No node is waited for any more.
    pub(super) fn launch_if_all_came(&mut self, turn: &mut Turn<'_>) {
        if !matches!(&self.record.phase, Phase::Starting(run) if run.booting.is_empty()) {
            return;
        }
        self.move_end(turn);
        self.launch(turn);
        self.limit_launch(turn);
    }

    /// Nodes that are being powered up have nothing of the run, and nobody there could say so.
    pub(super) fn let_go_of_booting(&mut self, turn: &mut Turn<'_>) {
        let booting = self.record.phase.working().map(|run| run.booting.clone()).unwrap_or_default();
        for node in booting {
            self.release_node(&node, turn);
        }
    }

    /// Sends the launch; may be repeated for the same run.
    pub(super) fn launch(&mut self, turn: &mut Turn<'_>) {
        if self.het_holds_launch() || self.awaits_prolog(turn) {
            return;
        }
        let Phase::Starting(run) = &self.record.phase else { return };
        // Its prolog in the controller runs meanwhile.
        if !run.booting.is_empty() {
            return;
        }
        let record = &self.record;
        let credential = JobCredential {
            cluster: self.site.cluster.clone(),
            job: record.id,
            sluid: record.sluid,
            uid: record.owner.uid,
            gid: record.owner.gid,
            groups: record.owner.groups.clone(),
            user: record.owner.user.clone(),
            nodes: run.allocation.nodes.clone(),
            addresses: run.addresses.clone(),
            partition: run.allocation.partition.clone(),
            epoch: self.site.epoch,
            expires: turn.now.plus(self.site.credential_lifetime),
        };
        turn.out.push(JobEffect::Do(JobErrand::Launch(Box::new(LaunchOrder {
            node: run.batch_host().to_owned(),
            credential,
            spec: launched_spec(&record.spec, &run.allocation),
            time_limit: run.time_limit,
            start_time: run.start,
            restarts: record.restarts,
            tasks: record.resolved.tasks,
            cpus_per_task: record.resolved.cpus_per_task,
            array: record.spec.array.as_ref().filter(|_| record.array_task.is_some()).map(array_facts),
            het: run.parts.clone(),
            requeue: self.requeue_policy(run),
        }))));
    }

    /// The time limit of a run in a partition with such defaults may differ from the one shown while pending.
    pub(super) fn shown_limit(&self) -> TimeLimit {
        self.record.phase.run().map_or(self.record.resolved.time_limit, |run| run.time_limit)
    }
}

/// The job's request for its step manager: with the reservation that it got.
fn launched_spec(spec: &Arc<JobSpec>, allocation: &Allocation) -> Arc<JobSpec> {
    if spec.reservations.iter().eq(&allocation.reservation) {
        return Arc::clone(spec);
    }
    Arc::new(JobSpec { reservations: allocation.reservation.iter().cloned().collect(), ..(**spec).clone() })
}

impl JobCore {
    /// True when no other task of the array waits without a record of its own.
    fn is_last_task(&self, index: u32) -> bool {
        self.record
            .array
            .as_ref()
            .is_some_and(|ArrayRecord { pending, .. }| pending.len() == 1 && pending.contains(&index))
    }
}

pub(super) fn array_facts(spec: &ArraySpec) -> ArrayFacts {
    let indices = garrick_events::records::job::indices_of(&spec.ranges);
    let first = indices.first().copied().unwrap_or(0);
    ArrayFacts {
        count: u32::try_from(indices.len()).unwrap_or(u32::MAX),
        min: first,
        max: indices.last().copied().unwrap_or(first),
        step: match spec.ranges.as_slice() {
            [(_, _, step)] => (*step).max(1),
            _ => 1,
        },
    }
}
