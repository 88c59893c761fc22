//! A job that does not start now: which runs are preempted for it, what is reserved for it, and why it waits.

use super::{Asked, Pass};
use crate::{
    room::{
        hres::{self, Room},
        machine::Machine,
        reservations::reason as reserved_for_others,
        select,
    },
    rules::{
        accounting::reserves_nothing,
        arrays::{NextTask, PendingTasks},
        het::Trial,
        preempt::Fees,
        reasons::weight_of,
    },
    snapshot::{
        facts::Backfill,
        licenses::reason as no_licenses,
        request::{NodeUse, Request},
    },
};
use garrick_model::{
    ids::JobId,
    state::{JobState, Reason},
    view::AllocatedNode,
};

impl<'a> Pass<'a> {
    /// Handles a job that does not start now, and its remaining tasks: runs are preempted for them, or they wait.
    pub(super) fn waits(&mut self, asked: &Asked<'_>, tasks: &mut PendingTasks) -> Reason {
        if self.trial == Some(Trial::Now) {
            return Reason::Resources;
        }
        let spent = self.has_started_its_kind(asked.behind);
        self.plan.barred |= spent;
        let passes_by = self.queue.in_order && asked.behind;
        let barred = Trial::is_later(self.trial) || self.is_frozen(asked.request.partition) || spent || passes_by;
        if barred || !self.preempt(asked) {
            if self.trial == Some(Trial::Giving) {
                // What is done for one component only counts if it is done for all.
                return Reason::Resources;
            }
            let before = self.plan.reservations.len();
            // A job that only has to wait for the next plan does not put later jobs behind it.
            let blocked = spent.then(|| self.queue.blocked.clone());
            let reason = self.did_not_fit(asked);
            self.queue.blocked = blocked.unwrap_or_else(|| std::mem::take(&mut self.queue.blocked));
            if self.plan.reservations.len() > before {
                self.reserve_for_tasks(asked, tasks);
            }
            return reason;
        }
        while matches!(tasks.next(), NextTask::Index(_)) && self.preempt(asked) {}
        if asked.behind {
            Reason::Priority
        } else {
            self.queue.block(&self.view.partitions[asked.request.partition].nodes);
            Reason::Resources
        }
    }

    /// Preempts runs for the job and keeps their resources for it. False: no preemption helps.
    pub(super) fn preempt(&mut self, asked: &Asked<'_>) -> bool {
        let Asked { job, request, length, .. } = *asked;
        if !self.view.policy.preempt.is_on() || job.state == JobState::Expediting {
            return false;
        }
        // No run is preempted on resources that are reserved for others.
        let closed = |until| self.view.reservations.closed(request.reservation, self.now, self.now, until);
        let open = self.open_to(asked, self.now.plus(asked.longest));
        let wish = (job, request, &open);
        let taken = (self.space.planned.as_slice(), self.plan.reservations.as_slice());
        let fees = Fees { licenses: &self.space.licenses, length };
        let Some(mut room) = self.preemption.room(self.view, self.now, wish, taken, fees) else { return false };
        let end = room.from.plus(length);
        let at_last = room.from.plus(asked.longest);
        let closed = closed(at_last);
        let closed_cpus = self.view.reservations.closed_cpus(request.reservation, self.now, self.now, at_last);
        let is_closed = |node: &AllocatedNode| {
            let place = node.index.0 as usize;
            closed.contains(place) || closed_cpus.get(&place).is_some_and(|cpus| !cpus.is_disjoint(&node.share.cpus))
        };
        if room.nodes.iter().any(is_closed) {
            return false;
        }
        // Nothing is preempted for a job that a limit keeps from what it would get.
        let partition = &self.view.partitions[request.partition];
        let (gets, secs) = ((&room.nodes[..], &room.licenses), Some(asked.longest.as_secs()));
        if self.counted.gate_start(self.view, (job, partition), gets, secs).is_err() {
            return false;
        }
        self.counted.start(self.view, (job, partition), gets, secs);
        // CPUs that others hold until they end cannot be shared before that.
        let usage = if matches!(request.usage, NodeUse::Oversubscribe(_)) { NodeUse::Cpus } else { request.usage };
        let alone = Request { usage, ..request.clone() };
        self.occupy(&Asked { request: &alone, ..*asked }, &room.nodes, end);
        self.space.licenses.hold(&room.licenses, self.now, end);
        if self.plan.expected.last().is_none_or(|(last, _)| *last != job.id) {
            self.plan.expected.push((job.id, self.space.horizon.round(room.from)));
        }
        room.victims.iter_mut().for_each(|victim| victim.until = Some(end));
        self.plan.kept_for_preempting.extend(room.nodes.into_iter().map(|node| (node, request.usage)));
        self.plan.preemptions.extend(room.victims);
        true
    }

    /// Why the job does not start now. If it waits for resources, they are reserved for it if the policy says so.
    pub(super) fn did_not_fit(&mut self, asked: &Asked<'_>) -> Reason {
        if asked.drawn {
            if self.reserves_where_drawn() && self.reserves(asked.request.partition) {
                self.reserve(asked);
            }
            return Reason::Resources;
        }
        let expedited = asked.job.state == JobState::Expediting;
        let short = self.space.licenses.at(asked.request.licenses.as_deref(), self.now, asked.length).is_none()
            || self.is_short_of_layers(asked);
        let partition = &self.view.partitions[asked.request.partition];
        let modest = self.is_modest(asked.job) || reserves_nothing(self.view, asked.job, partition);
        let reserves = !modest && !self.is_task_too_many(asked.job) && self.reserves(asked.request.partition);
        let reserved = reserves && if expedited { self.reserve_expedited(asked) } else { self.reserve(asked) };
        if !reserved {
            let known = if expedited { None } else { self.known.possible(asked.request) };
            let could = known.unwrap_or_else(|| self.could_start(asked));
            if !expedited {
                self.known.note_possible(asked.request, could.clone());
            }
            if let Err(reason) = could {
                return reason;
            }
        }
        // No job with other requests waits behind it either.
        let reserved =
            reserved_for_others(&mut self.space.machine, asked.request, asked.candidates, self.now, asked.length);
        if let Some(reason) = reserved.filter(|_| !short && !expedited) {
            return reason;
        }
        // It does not hold back jobs with other requests, except where no job may go ahead of another.
        if short && self.view.policy.backfill != Backfill::Off {
            no_licenses()
        } else if asked.behind {
            Reason::Priority
        } else {
            if !modest {
                self.queue.block(&self.view.partitions[asked.request.partition].nodes);
            }
            if short { no_licenses() } else { Reason::Resources }
        }
    }

    /// Do layers of hierarchical resources have too little free now, whatever the nodes? Or would the job start if they were
    /// unlimited?
    pub(super) fn is_short_of_layers(&mut self, asked: &Asked<'_>) -> bool {
        let Some(room) = self.room(asked.request, self.now, asked.length) else { return false };
        if !room.bears(asked.request, asked.candidates) {
            return true;
        }
        let without = Request { hres: None, ..asked.request.clone() };
        self.place_now(&Asked { request: &without, ..*asked }).is_some()
    }

    /// Would the job start on an empty cluster?
    pub(super) fn could_start(&mut self, asked: &Asked<'_>) -> Result<(), Reason> {
        let view = self.view;
        let Asked { request, candidates, .. } = *asked;
        let request = &request.clone().on_any_switches();
        let anywhere = !request.is_particular() && request.near.is_none() && !request.unknown_nodes;
        if anywhere && self.space.horizon.suffices_finally(request, candidates) {
            return Ok(());
        }
        let closed = view.reservations.never_open(request.reservation);
        let idle = self.space.idle.get_or_insert_with(|| Machine::idle(view));
        idle.close(closed.clone());
        let room = Room::whole(&view.licenses.hres, request);
        if hres::place(idle, request, candidates, None, room.as_ref()).is_some() {
            return Ok(());
        }
        if room.is_some() && select::place(idle, request, candidates).is_some() {
            return Err(no_licenses());
        }
        if view.exceeds(&view.partitions[request.partition], asked.job) {
            return Err(Reason::PartitionConfig);
        }
        if request.min_nodes as usize > view.partitions[request.partition].nodes.count_ones(..) {
            return Err(Reason::PartitionNodeLimit);
        }
        let named_out = request.nodelist.iter().map(|n| n.0 as usize).filter(|n| !idle.is_usable(*n));
        let named_out: Vec<&str> = named_out.map(|n| view.nodes[n].name.as_str()).collect();
        let ideal = self.space.ideal.get_or_insert_with(|| Machine::ideal(view));
        ideal.close(closed);
        Err(match select::place(ideal, request, candidates) {
            Some(_) if !named_out.is_empty() => Reason::unavailable_nodes(named_out),
            Some(_) => Reason::NodesUnavailable,
            None => Reason::BadConstraints,
        })
    }

    /// Of the reasons that a job's partitions gave for declining it, keeps the most informative one.
    pub(super) fn decline(&mut self, job: JobId, reason: Reason) {
        if let Some(ledger) = &mut self.ledger {
            ledger.declines(&reason);
        }
        match self.reasons.get(&job) {
            Some(known) if weight_of(known) >= weight_of(&reason) => {}
            _ => {
                self.reasons.insert(job, reason);
            }
        }
    }
}
