//! Heterogeneous jobs in a plan: all components start together, or resources are reserved for all of them at one time, or nothing
//! is done for any of them. They are considered in their leader's turn.
//!
//! A group is tried on a copy of the pass, one component after the other as any job would be. The copy replaces the pass only if
//! all components found resources. Runs are preempted for a group only if all of it fits afterwards; what fits without preemption
//! is kept for it too.

use super::{Key, Pass, pass::Tried};
use crate::{
    proposals::StartProposal,
    room::reserved::Reservation,
    rules::{
        het::{Trial, not_ready},
        reasons::{waits_for_room, weight_of},
    },
    snapshot::{facts::Backfill, request::Request},
};
use garrick_model::{spec::Sharing, state::Reason, time::Timestamp, view::JobView};
use std::{cmp::Reverse, sync::Arc};

/// Most groups that one pass considers: each copies the snapshot.
const MOST_GROUPS: usize = 64;
/// Most times that are tried for one group. At each of them, one more component finds resources.
const MOST_TIMES: usize = 32;

impl Pass<'_> {
    /// Tries all components of a heterogeneous job, in the turn of its leader.
    pub(super) fn try_group(&mut self, key: Key, leader: &Arc<JobView>) {
        // The leader has a turn in each of its partitions; the first turn tries all of them.
        if self.groups.contains(&leader.id) {
            return;
        }
        self.groups.insert(leader.id);
        let members = self.members(leader);
        // The pass is copied below, and the ledger is its largest part.
        let ledger = self.ledger.take();
        let reasons = self.try_members(key, leader, &members);
        self.ledger = ledger;
        for (member, reason) in members.iter().zip(reasons) {
            self.note_component(member, reason);
        }
    }

    /// Notes the result for one component.
    fn note_component(&mut self, member: &Arc<JobView>, reason: Option<Reason>) {
        if let Some(mut ledger) = self.ledger.take() {
            for key in self.keys().of(member) {
                ledger.turn_to(key, member);
                let reserved =
                    self.of_groups.iter().position(|(job, place, _)| (*job, *place) == (member.id, key.partition));
                if let Some(place) = reserved {
                    ledger.promise(self.of_groups.swap_remove(place).2);
                }
                reason.iter().for_each(|reason| ledger.declines(reason));
            }
            ledger.turn_from();
            self.ledger = Some(ledger);
        }
        if let Some(reason) = reason {
            self.decline(member.id, reason);
        }
    }

    /// Starts all components, or reserves for all. Returns why they wait, in their order.
    fn try_members(&mut self, key: Key, leader: &Arc<JobView>, members: &[Arc<JobView>]) -> Vec<Option<Reason>> {
        if let Some(reason) = not_ready(leader, members) {
            return members.iter().map(|member| member.eligible.then(|| reason.clone())).collect();
        }
        if self.groups.len() > MOST_GROUPS && !self.queue.minds(leader) {
            return vec![Some(Reason::Priority); members.len()];
        }
        let spent = self.has_started_its_kind(self.is_behind(key.partition));
        self.plan.barred |= spent;
        if !spent && self.starts_together(members) {
            return Vec::new();
        }
        if !spent && self.has_others_go(members) {
            return vec![Some(Reason::Resources); members.len()];
        }
        let reasons = self.wait_together(members);
        // Other jobs wait behind the leader only.
        let first = reasons.first() == Some(&Reason::Resources);
        let of_leader = |reason: Reason| if first && reason == Reason::Priority { Reason::Resources } else { reason };
        reasons.into_iter().map(|reason| Some(of_leader(reason))).collect()
    }

    /// The waiting components of the leader's job, the leader first.
    fn members(&self, leader: &JobView) -> Vec<Arc<JobView>> {
        let mut members: Vec<Arc<JobView>> = self
            .view
            .pending
            .iter()
            .filter(|job| job.spec.het.is_some_and(|(of, _)| of == leader.id))
            .map(Arc::clone)
            .collect();
        members.sort_by_key(|job| job.id);
        members
    }

    fn starts_together(&mut self, members: &[Arc<JobView>]) -> bool {
        let found = self.all_now(members.iter()).or_else(|| {
            // A component that could go anywhere may have taken a node that another one names.
            let order = self.most_particular_first(members);
            let is_another = !order.iter().copied().eq(0..members.len());
            is_another.then(|| self.all_now(order.iter().map(|place| &members[*place]))).flatten()
        });
        let Some(mut trial) = found else { return false };
        let mut starts = trial.plan.starts.split_off(self.plan.starts.len());
        starts.sort_by_key(|start| start.job);
        let others = starts.split_off(1);
        trial.plan.starts.extend(starts.into_iter().map(|leader| StartProposal { others: others.clone(), ..leader }));
        trial.trial = None;
        *self = trial;
        true
    }

    /// The order in which components are tried: first those that name nodes, then those that fewest nodes suit, that request
    /// generic resources, that request whole nodes, that request many nodes.
    fn most_particular_first(&mut self, members: &[Arc<JobView>]) -> Vec<usize> {
        let view = self.view;
        let mut open = Vec::with_capacity(members.len());
        for job in members {
            let mut most = None;
            for (place, _) in job.partitions.iter().filter_map(|name| view.partition(name)) {
                let request = Request::new(view, job, place, &|name| self.features.index(name));
                most = most.max(Some(self.features.candidates(&request).count_ones(..)));
            }
            open.push(most);
        }
        let mut order: Vec<usize> = (0..members.len()).collect();
        order.sort_by_key(|place| {
            let (job, spec) = (&members[*place], &members[*place].spec);
            let whole = spec.sharing == Sharing::Exclusive;
            (spec.nodelist.is_empty(), open[*place], spec.gres.is_empty(), !whole, Reverse(job.min_nodes))
        });
        order
    }

    /// The pass in which all of them start, tried in that order.
    fn all_now<'j>(&self, mut members: impl Iterator<Item = &'j Arc<JobView>>) -> Option<Self> {
        let mut trial = self.clone();
        trial.trial = Some(Trial::Now);
        members.all(|member| trial.try_member(member).is_ok()).then_some(trial)
    }

    /// Preempts runs for components that do not fit, and keeps the resources for all. False: that is not enough.
    fn has_others_go(&mut self, members: &[Arc<JobView>]) -> bool {
        if !self.view.policy.preempt.is_on() {
            return false;
        }
        let mut trial = self.clone();
        trial.trial = Some(Trial::Giving);
        let has_room = |trial: &mut Pass<'_>, member: &Arc<JobView>| {
            let before = trial.plan.kept_for_preempting.len();
            trial.try_member(member).is_ok() || trial.plan.kept_for_preempting.len() > before
        };
        if !members.iter().all(|member| has_room(&mut trial, member)) {
            return false;
        }
        trial.trial = None;
        trial.bounds.tally.take_starts_of(&self.bounds.tally);
        // What fits now waits for the rest.
        for start in trial.plan.starts.split_off(self.plan.starts.len()) {
            trial.arrays.started.remove(&start.job);
            trial.plan.kept_for_preempting.extend(start.nodes.into_iter().map(|node| (node, start.usage)));
        }
        *self = trial;
        true
    }

    /// Reserves resources for all at the earliest time at which all fit. Returns why each waits.
    fn wait_together(&mut self, members: &[Arc<JobView>]) -> Vec<Reason> {
        let partition = |job: &JobView| job.partitions.iter().find_map(|name| Some(self.view.partition(name)?.0));
        let reserves = members.iter().filter_map(|job| partition(job)).all(|place| self.reserves(place));
        let mut from = self.now;
        let mut reasons = Vec::new();
        let order = self.most_particular_first(members);
        for _ in 0..MOST_TIMES {
            let mut trial = self.clone();
            trial.trial = Some(Trial::Later { from, reserves });
            let mut why = |job| {
                // Components do not wait behind one another.
                let blocked = std::mem::replace(&mut trial.queue.blocked, self.queue.blocked.clone());
                let reason = trial.try_member(job).err().unwrap_or(Reason::Resources);
                trial.queue.blocked.union_with(&blocked);
                reason
            };
            reasons = vec![Reason::Resources; members.len()];
            order.iter().for_each(|place| reasons[*place] = why(&members[*place]));
            trial.trial = None;
            // If one component can never fit, all of them wait for that, and they hold no other job back.
            if let Some(reason) = reasons.iter().find(|reason| !waits_for_room(reason)) {
                return vec![reason.clone(); members.len()];
            }
            let made = &trial.plan.reservations[self.plan.reservations.len()..];
            if made.len() < members.len() {
                if self.view.policy.backfill != Backfill::Conservative {
                    self.queue.blocked = trial.queue.blocked;
                }
                return reasons;
            }
            let latest = made.iter().map(|reservation| reservation.from).fold(from, Timestamp::max);
            if made.iter().all(|Reservation { from, .. }| *from == latest) {
                // Searches of the trial began at `from`, so their results say nothing about other jobs.
                trial.known.not_before = std::mem::take(&mut self.known.not_before);
                *self = trial;
                return reasons;
            }
            from = latest;
        }
        reasons
    }

    /// Tries one component in each of its partitions.
    fn try_member(&mut self, job: &Arc<JobView>) -> Result<(), Reason> {
        let kept = |pass: &Self| pass.plan.reservations.len() + pass.plan.kept_for_preempting.len();
        let before = kept(self);
        let mut why: Option<Reason> = None;
        for name in &job.partitions {
            let Some((place, _)) = self.view.partition(name) else { continue };
            let tried = self.try_each_qos(job, place, |pass, reason| {
                let keeps = kept(pass) > before;
                if keeps || why.as_ref().is_none_or(|known| weight_of(known) < weight_of(&reason)) {
                    why = Some(reason);
                }
                keeps
            });
            if tried == Tried::Starts {
                return Ok(());
            }
            if kept(self) > before {
                break;
            }
        }
        Err(why.unwrap_or(Reason::Resources))
    }
}
