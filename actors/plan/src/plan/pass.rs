//! A pass: jobs are tried one after the other, in their order.

use super::{
    Future, Plan,
    known::Known,
    ledger::Ledger,
    obstacle::Ends,
    order::{Entry, Key, Keys},
};
use crate::{
    proposals::StartProposal,
    room::{horizon::Horizon, machine::Machine, reservations::seen, reserved::Promise, space::Space},
    rules::{
        accounting::{Counted, Kind},
        arrays::Starts,
        backfill::Queue,
        bounds::Bounded,
        features::Features,
        het::Trial,
        limits,
        preempt::Preemption,
        reservations, resume,
        whole::Patience,
    },
    snapshot::{
        constraint::Wish,
        facts::{ClusterView, UNLIMITED_FOR_PLANNING},
        preempt::Claim,
        qos::with_each,
        request::{Matters, Request, run_limit},
    },
};
use fixedbitset::FixedBitSet;
use garrick_model::{
    entities::{qos::are_several, reasons::is_of_accounting},
    ids::JobId,
    spec_text::licenses::Licenses,
    state::Reason,
    time::{TimeLimit, Timestamp},
    view::{AllocatedNode, JobView},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// Could the job start with another QOS, where this is why it does not start with this one? What it needs of nodes is the same with
/// each.
fn is_of_qos(reason: &Reason) -> bool {
    use Reason::{PartitionNodeLimit, PartitionTimeLimit, QosNotAllowed};
    is_of_accounting(reason) || matches!(reason, QosNotAllowed | PartitionTimeLimit | PartitionNodeLimit)
}

/// What came of trying a job with the QOS that it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tried {
    /// It starts.
    Starts,
    /// Something other than its QOS keeps it waiting.
    Waits,
    /// A rule keeps it from starting with each of its QOS.
    Barred,
}

/// A pass in progress.
#[derive(Clone)]
pub(super) struct Pass<'a> {
    pub view: &'a ClusterView,
    pub now: Timestamp,
    pub matters: Matters,
    /// Free resources.
    pub space: Space<'a>,
    /// What each constraint needs to find its nodes.
    pub features: Features<'a>,
    pub queue: Queue,
    pub bounds: Bounded,
    pub arrays: Starts,
    /// What jobs have of limits of accounting.
    pub counted: Counted,
    pub preemption: Preemption,
    /// Jobs that wait for blocks that are already broken up.
    pub patience: Patience,
    /// What was found out.
    pub known: Known,
    pub ends: Ends,
    pub reasons: BTreeMap<JobId, Reason>,
    /// Heterogeneous jobs that were considered.
    pub groups: BTreeSet<JobId>,
    /// Set while a component of one is considered, on a copy.
    pub trial: Option<Trial>,
    /// What was reserved for components, with their partitions.
    pub of_groups: Vec<(JobId, usize, Promise)>,
    /// Returns true when there is no more time.
    pub late: Option<&'a dyn Fn() -> bool>,
    /// Jobs that the pass had no time for.
    pub unlooked: Vec<Entry>,
    /// Notes for repairs, if the plan is to be kept.
    pub ledger: Option<Ledger>,
    pub plan: Plan,
}

/// A job in one of its partitions while it is considered.
#[derive(Clone, Copy)]
pub(super) struct Asked<'j> {
    pub job: &'j JobView,
    pub request: &'j Request,
    pub candidates: &'j FixedBitSet,
    /// How long it is expected to run.
    pub length: Duration,
    /// How long it may run.
    pub longest: Duration,
    /// Other waiting jobs go before it on some of its nodes.
    pub behind: bool,
    /// It did not ask for the reservation that it is considered in.
    pub drawn: bool,
}

impl<'a> Pass<'a> {
    pub fn new(view: &'a ClusterView, now: Timestamp) -> Self {
        Self::on(view, now, Machine::now(view), seen(view, None, now))
    }

    /// A pass that begins from this state.
    pub fn on(view: &'a ClusterView, now: Timestamp, machine: Machine<'a>, horizon: Horizon) -> Self {
        Self {
            view,
            now,
            matters: horizon.matters(),
            space: Space::on(view, now, machine, horizon),
            features: Features::new(view),
            queue: Queue::new(view.nodes.len()),
            bounds: Bounded::default(),
            arrays: Starts::default(),
            counted: Counted::new(view),
            preemption: Preemption::default(),
            patience: Patience::default(),
            known: Known::default(),
            ends: Ends::default(),
            reasons: BTreeMap::new(),
            groups: BTreeSet::new(),
            trial: None,
            of_groups: Vec::new(),
            late: None,
            unlooked: Vec::new(),
            ledger: None,
            plan: Plan::default(),
        }
    }

    /// Nodes that could ever satisfy the request.
    pub(crate) fn candidates(&mut self, request: &Request) -> FixedBitSet {
        self.features.candidates(request)
    }

    /// Do amounts say that the request fits now?
    pub(crate) fn has_room_now(&mut self, request: &Request, candidates: &FixedBitSet, length: Duration) -> bool {
        self.space.horizon.room_now(request, candidates, length, &mut self.space.limits)
    }

    /// Switches preemption off.
    pub(crate) fn preempt_nobody(&mut self) {
        self.preemption = Preemption::spent();
    }

    /// The jobs to try, each in its partitions, in no order.
    fn entries(&self) -> impl Iterator<Item = Entry> + use<'a> {
        let keys = self.keys();
        let jobs = self.view.pending.iter().enumerate();
        jobs.flat_map(move |(job, waiting)| keys.of(waiting).into_iter().map(move |key| Entry { key, job }))
    }

    /// What orders the jobs.
    pub fn keys(&self) -> Keys<'a> {
        let view = self.view;
        Keys {
            view,
            partitions: view.partitions.iter().enumerate().map(|(place, facts)| (facts.name.as_str(), place)).collect(),
            groups: view.policy.bounds.as_ref().map(|bounds| bounds.het_priorities(view)).unwrap_or_default(),
        }
    }

    /// Tries all jobs.
    pub fn run(&mut self) {
        let mut behind = Vec::new();
        let mut entries: Vec<Entry> = self.entries().collect();
        entries.sort_unstable();
        for (done, entry) in entries.iter().copied().enumerate() {
            if self.is_full() || self.is_late(entries.len() - done + behind.len()) {
                self.leave_out(&entries, done);
                self.unlooked.append(&mut behind);
                return;
            }
            if self.view.policy.shortest_first.is_some()
                && self.is_behind(entry.key.partition)
                && !self.reserves(entry.key.partition)
            {
                behind.push(entry);
            } else {
                self.try_entry(entry);
            }
        }
        let patience = self.view.policy.shortest_first.unwrap_or_default();
        behind.sort_by_cached_key(|entry| {
            let job = &self.view.pending[entry.job];
            let limit = run_limit(job, &self.view.partitions[entry.key.partition]);
            let patient = entry.key.ordinary && self.now.since(job.submit_time) <= patience;
            let length = limit.duration().unwrap_or(UNLIMITED_FOR_PLANNING);
            (patient.then_some(length), *entry)
        });
        for (done, entry) in behind.iter().copied().enumerate() {
            if self.is_full() || self.is_late(behind.len() - done) {
                self.leave_out(&behind, done);
                return;
            }
            self.try_entry(entry);
        }
    }

    fn try_entry(&mut self, entry: Entry) {
        let job = Arc::clone(&self.view.pending[entry.job]);
        self.try_job(entry.key, &job);
    }

    /// Tries one job in one of its partitions.
    pub(crate) fn try_job(&mut self, key: Key, job: &Arc<JobView>) {
        // Components are noted after all of them were considered.
        if let Some(ledger) = self.ledger.as_mut().filter(|_| job.spec.het.is_none()) {
            ledger.turn_to(key, job);
        }
        if job.array_pending.is_none() && self.arrays.started.contains_key(&job.id) {
            return;
        }
        match job.spec.het {
            None => {}
            Some((_, 0)) => return self.try_group(key, job),
            // It is considered with its leader.
            Some(_) => return,
        }
        let mut limit = None;
        let tried = self.try_each_qos(job, key.partition, |pass, reason| {
            if is_of_accounting(&reason) {
                limit = Some(reason.clone());
            }
            pass.decline(job.id, reason);
            false
        });
        // If one of several QOS lets it wait for resources, the others would get the same ones.
        let is_over = match tried {
            Tried::Starts => false,
            Tried::Waits => !are_several(job.spec.qos.as_deref()),
            Tried::Barred => true,
        };
        if let (Some(ledger), Some(limit), true) = (&mut self.ledger, limit, is_over) {
            ledger.is_over_limits(limit, |job, partition| Kind::of(self.view, job, partition));
        }
    }

    /// Tries one job in one of its partitions with the QOS that it names, one after the other: one that a rule of its QOS keeps from
    /// starting may start with the next one. `declined` is told each reason; if it returns true, nothing else is tried.
    pub(super) fn try_each_qos(
        &mut self,
        job: &JobView,
        place: usize,
        mut declined: impl FnMut(&mut Self, Reason) -> bool,
    ) -> Tried {
        let view = self.view;
        let partition = &view.partitions[place].name;
        for job in with_each(job) {
            let viewers = match reservations::gate(view, &job, partition, self.now) {
                Ok(viewers) => viewers,
                Err(reason) => {
                    if declined(self, reason) {
                        return Tried::Waits;
                    }
                    continue;
                }
            };
            let mut may_help = true;
            for viewer in viewers {
                let Err(reason) = self.consider(&job, place, viewer) else { return Tried::Starts };
                may_help &= is_of_qos(&reason);
                if declined(self, reason) {
                    return Tried::Waits;
                }
            }
            if !may_help {
                return Tried::Waits;
            }
        }
        Tried::Barred
    }

    /// The limit of accounting that the job is over with each QOS that may do otherwise, before resources are searched: that of the
    /// last one. `None`: there is none.
    pub(super) fn limit_of(&self, key: Key, job: &JobView) -> Option<Reason> {
        let partition = &self.view.partitions[key.partition];
        let mut limit = None;
        for job in with_each(job) {
            let is_barred = reservations::gate(self.view, &job, &partition.name, self.now).is_err()
                || limits::gate(self.view, &job, partition).is_err();
            if !is_barred {
                limit = Some(self.counted.gate(self.view, &job, partition).err()?);
            }
        }
        limit
    }

    pub(crate) fn is_full(&mut self) -> bool {
        self.plan.truncated = self.has_started_all();
        self.plan.truncated
    }

    pub(crate) fn is_behind(&self, partition: usize) -> bool {
        self.queue.is_behind(&self.view.partitions[partition].nodes)
    }

    /// Does the next job of the partition that does not fit get resources reserved?
    pub(crate) fn reserves(&self, partition: usize) -> bool {
        match self.trial {
            Some(Trial::Later { reserves, .. }) => reserves,
            _ => self.queue.reserves(self.view.policy.backfill, partition),
        }
    }

    /// Starts the job, or one of its array's tasks, on these nodes.
    pub fn start(
        &mut self,
        asked: &Asked<'_>,
        array_index: Option<u32>,
        (nodes, licenses): (Vec<AllocatedNode>, Licenses),
        time_limit: TimeLimit,
    ) {
        let Asked { job, request, length, .. } = *asked;
        let nodes = self.batch_host_first(job, nodes);
        let end = self.now.plus(length);
        let generations = nodes.iter().map(|node| self.view.nodes[node.index.0 as usize].generation).collect();
        self.occupy(asked, &nodes, end);
        self.space.licenses.hold(&licenses, self.now, end);
        let partition = &self.view.partitions[request.partition];
        let secs = time_limit.duration().map(|limit| limit.as_secs());
        self.counted.start(self.view, (job, partition), (&nodes, &licenses), secs);
        self.arrays.note(job, array_index);
        if let Some(ledger) = &mut self.ledger {
            ledger.starts();
        }
        self.bounds.tally.start(asked.behind, job.spec.het.is_some());
        self.plan.starts.push(StartProposal {
            pass: 0,
            answer_by: Timestamp(i64::MAX),
            job: job.id,
            array_index,
            job_generation: job.generation,
            partition: self.view.partitions[request.partition].name.clone(),
            nodes,
            generations,
            usage: request.usage,
            caps: request.caps,
            time_limit,
            licenses,
            reservation: self.view.reservations.name(request.reservation),
            backfilled: asked.behind,
            qos: job.spec.qos.clone(),
            others: Vec::new(),
        });
    }

    /// `--batch` (sbatch(1)): the first of the job's nodes with these features is its batch host, and the first of the list. Where
    /// none has them, the first one is it.
    fn batch_host_first(&self, job: &JobView, mut nodes: Vec<AllocatedNode>) -> Vec<AllocatedNode> {
        let Some(Ok(Wish::Each(wanted))) = job.spec.batch_features.as_deref().map(Wish::parse) else { return nodes };
        let fits = |node: &AllocatedNode| wanted.holds(&self.view.nodes[node.index.0 as usize].features);
        if let Some(place) = nodes.iter().position(fits) {
            nodes[..=place].rotate_right(1);
        }
        nodes
    }

    /// Takes these resources from now until `end`.
    pub fn occupy(&mut self, asked: &Asked<'_>, nodes: &[AllocatedNode], end: Timestamp) {
        self.space.occupy(asked.request, nodes, end);
        let places = nodes.iter().map(|node| node.index.0 as usize);
        self.ends.note(asked.job.id, places, self.space.horizon.round(end));
    }

    pub fn finish(mut self) -> (Plan, Future, Option<Ledger>) {
        // The ledger keeps amounts in the view of no reservation.
        if self.ledger.is_some() {
            self.space.look_at_nodes(None);
        }
        self.plan.again = self.patience.next;
        (self.plan.in_order, self.plan.backfilled) = self.bounds.tally.started();
        self.plan.backfilled_components = self.bounds.tally.components();
        let started = self.arrays.started;
        // The job starts in another of its partitions after all.
        self.plan.preemptions.retain(|one| started.get(&one.by).is_none_or(|tasks| !tasks.is_empty()));
        let array_rest = |reason: &Reason| {
            use Reason::{Fragmentation, JobArrayTaskLimit, Other, Priority, Resources};
            matches!(reason, JobArrayTaskLimit | Resources | Priority | Fragmentation | Other(_))
        };
        self.plan.reasons = self
            .reasons
            .into_iter()
            .filter(|(job, reason)| started.get(job).is_none_or(|tasks| !tasks.is_empty() && array_rest(reason)))
            .collect();
        // Jobs that were not considered yet may need the CPUs.
        let pending = &self.view.pending;
        let claim = |entry: &Entry| Claim { job: &pending[entry.job], partition: entry.key.partition, viewer: None };
        self.plan.resumptions =
            resume::resumptions(self.view, self.now, self.plan.given(), self.unlooked.iter().map(claim));
        let Space { machine, horizon, .. } = self.space;
        (self.plan, Future { floor: machine.into_floor(), horizon }, self.ledger)
    }
}
