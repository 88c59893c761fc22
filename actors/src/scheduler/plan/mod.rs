//! `plan`: which pending jobs start now, where, and why the others do not. Pure: the same picture and time give the same
//! plan. Owners may refuse any part of it.
//!
//! Jobs that are expedited go first, whatever their partition, in the order of their submission. The nodes that are kept
//! for such a job are free to it and taken to all others.
//!
//! The others are taken by their partition's tier, then priority, then submission, then id. The first job that does not fit in
//! a partition waits for `Resources`; what is behind it and shares nodes with that partition waits for `Priority`, and may
//! start only where that delays nobody who has room reserved. Who has: with [`Backfill::Conservative`] every job that was
//! looked at, with [`Backfill::First`] the first ones of each partition, with [`Backfill::Off`] nobody, and nothing starts
//! behind a waiting job. A job that could not start on an idle cluster (nodes down, limits of the partition) holds nobody
//! back.
//!
//! A job that does not start may have others make room for it ([`crate::scheduler::rules::preempt`]); that room is nobody else's meanwhile.

mod bounded;

mod declined;
mod het;
mod made;
mod order;
mod place;
mod reserve;

pub mod kept;
mod ledger;
pub mod obstacle;
pub mod probe;
mod whole;

use self::{
    het::Trial,
    ledger::{Ledger, Promise},
    obstacle::Ends,
    order::Entry,
    whole::{Patience, costs_others},
};
use crate::scheduler::{
    picture::{
        facts::{Backfill, ClusterView, PartitionFacts, UNLIMITED_FOR_PLANNING},
        licenses::reason as no_licenses,
        preempt::Claim,
        request::{Matters, NodeUse, Request, run_limit},
        reservations::Eyes,
    },
    room::{
        horizon::{Horizon, Limits},
        hres,
        licenses::LicensePlan,
        machine::{Floor, Machine, PlannedHold},
        node::free::Amount,
        promises::Promises,
        reservations::{Futures, seen},
        topology,
    },
    rules::{
        arrays::{NextTask, PendingTasks},
        bounds::Tally,
        expedited::place_expedited,
        preempt::Preemption,
        resume,
    },
};
use fixedbitset::FixedBitSet;
use garrick_model::{
    ids::{JobId, NodeIndex},
    resources::NodeShare,
    spec_text::licenses::Licenses,
    state::{JobState, Reason},
    time::{TimeLimit, Timestamp},
    view::{AllocatedNode, JobView},
};
use rustc_hash::{FxHashMap, FxHashSet};
use std::{
    cell::OnceCell,
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

pub(super) use crate::scheduler::{
    picture::request::without_limit,
    plan::order::{Key, Keys},
    rules::{
        features::{Features, node_names},
        limits::within_limits,
    },
};
pub use crate::scheduler::{
    plan::made::Plan, proposals::StartProposal, room::reserved::Reservation, rules::limits::longer,
};

/// Makes a plan.
pub fn plan(view: &ClusterView, now: Timestamp) -> Plan {
    plan_until(view, now, None)
}

/// Makes a plan that looks at nobody any more once `late` says so.
pub fn plan_until(view: &ClusterView, now: Timestamp, late: Option<&dyn Fn() -> bool>) -> Plan {
    let with = |most: usize| {
        let mut pass = Pass::new(view, now);
        pass.late = late;
        pass.patience.most = most;
        pass.run();
        let begun = std::mem::take(&mut pass.patience.begun);
        (pass.finish().0, begun)
    };
    let (mut made, mut begun) = with(usize::MAX);
    if begun.is_empty() {
        return made;
    }
    let without = with(0).0;
    while costs_others(&made, &without, &begun) {
        let most = begun.len() / 2;
        if most == 0 {
            return without;
        }
        (made, begun) = with(most);
    }
    made
}

/// Makes a plan in which that job is looked at in any case, and has room reserved however far ahead it is. Where nobody may go
/// ahead of anybody ([`Backfill::Off`]), all have room reserved, none before those before it.
pub(super) fn plan_minding(view: &ClusterView, now: Timestamp, job: JobId) -> Plan {
    let mut pass = Pass::new(view, now);
    pass.minded = Some(job);
    pass.in_order = view.policy.backfill == Backfill::Off;
    pass.run();
    pass.finish().0
}

/// Makes a plan, and what it takes to repair it, where that is wanted and the plan did not stop at its limit.
pub(super) fn plan_noting(view: &ClusterView, now: Timestamp, notes: bool) -> (Plan, Option<(Future, Ledger)>) {
    if !notes {
        return (plan(view, now), None);
    }
    let mut pass = Pass::new(view, now);
    pass.ledger = Some(Ledger::new(view.nodes.len()));
    pass.run();
    let (plan, future, ledger) = pass.finish();
    // What is kept for those who have others go is not noted.
    let whole = !plan.truncated && plan.kept_for_preempting.is_empty();
    (plan, ledger.filter(|_| whole).map(|ledger| (future, ledger)))
}

/// What a plan came to on the nodes: free room to the single CPU now, and in amounts from now on.
#[derive(Debug)]
pub(super) struct Future {
    pub floor: Floor,
    pub horizon: Horizon,
}

/// Times at which a request for named or neighbouring nodes, or for so many of each kind, is tried in a pass, at most. Each
/// is a look at every node.
const MOST_LOOKS_AHEAD: usize = 200;
/// The same for those of whom amounts say most: they have another way when it is spent.
const MOST_LOOKS_BY_AMOUNTS: usize = 50;

/// The making of a plan.
#[derive(Clone)]
pub(super) struct Pass<'a> {
    pub view: &'a ClusterView,
    pub now: Timestamp,
    matters: Matters,
    machine: Machine<'a>,
    pub horizon: Horizon,
    futures: Futures,
    pub licenses: LicensePlan,
    limits: Limits,
    /// Built when first needed.
    idle: Option<Machine<'a>>,
    ideal: Option<Machine<'a>>,
    /// Made when a job first names a node.
    names: OnceCell<HashMap<&'a str, NodeIndex>>,
    features: Features<'a>,
    pub planned: Vec<PlannedHold>,
    promises: Promises,
    /// Nodes of partitions in which a job is blocked.
    pub blocked: FixedBitSet,
    /// How many jobs of each partition have room reserved.
    pub reserved: BTreeMap<usize, u32>,
    pub tried_behind: usize,
    looks_left: usize,
    /// The same for those of whom amounts say when they fit at the earliest.
    looks_left_by_amounts: usize,
    glances_ahead: usize,
    /// Requests that found no room now. Room only shrinks while a pass goes on.
    pub failed: FxHashSet<Request>,
    /// Before that time they find none later either.
    pub not_before: FxHashMap<Request, Timestamp>,
    /// Whether requests, whatever their time limit, would find room if nobody else were there, and why not.
    possible: FxHashMap<Request, Result<(), Reason>>,
    pub started: BTreeMap<JobId, BTreeSet<u32>>,
    /// Tasks of each array started in this pass.
    array_started: BTreeMap<JobId, u32>,
    reasons: BTreeMap<JobId, Reason>,
    preemption: Preemption,
    pub ends: Ends,
    /// A job that is looked at whatever the policy's bounds say.
    minded: Option<JobId>,
    /// Nobody goes ahead of anybody, and all have room reserved.
    in_order: bool,
    /// What was reserved that way: in which partition, from when on.
    turns: Vec<(usize, Timestamp)>,
    /// What was done so far, as far as [`Policy::bounds`](crate::scheduler::picture::facts::Policy::bounds) are about it.
    tally: Tally,
    /// Until when nothing starts in partitions that were asked about.
    frozen: FxHashMap<usize, Option<Timestamp>>,
    /// Says when there is no more time.
    late: Option<&'a dyn Fn() -> bool>,
    /// Whom it did not come to.
    unlooked: Vec<Entry>,
    /// Who waits for blocks that are broken already.
    patience: Patience,
    /// Where it is noted what was done for whom, if the plan is to be kept.
    pub ledger: Option<Ledger>,
    /// Heterogeneous jobs that were looked at.
    groups: BTreeSet<JobId>,
    /// A component of one of them is being looked at, on a copy.
    trial: Option<Trial>,
    /// What was reserved for components, with their partitions.
    of_groups: Vec<(JobId, usize, Promise)>,
    pub plan: Plan,
}

impl<'a> Pass<'a> {
    fn new(view: &'a ClusterView, now: Timestamp) -> Self {
        Self::on(view, now, Machine::now(view), seen(view, None, now))
    }

    /// One that goes on from there.
    pub fn on(view: &'a ClusterView, now: Timestamp, machine: Machine<'a>, horizon: Horizon) -> Self {
        Self {
            view,
            now,
            matters: horizon.matters(),
            machine,
            horizon,
            futures: Futures::default(),
            licenses: LicensePlan::among(&view.licenses, &view.reservations, now),
            limits: Limits::default(),
            idle: None,
            ideal: None,
            names: OnceCell::new(),
            features: Features::new(view),
            planned: Vec::new(),
            promises: Promises::of(view),
            blocked: FixedBitSet::with_capacity(view.nodes.len()),
            reserved: BTreeMap::new(),
            tried_behind: 0,
            looks_left: MOST_LOOKS_AHEAD,
            looks_left_by_amounts: MOST_LOOKS_BY_AMOUNTS,
            glances_ahead: 0,
            failed: FxHashSet::default(),
            not_before: FxHashMap::default(),
            possible: FxHashMap::default(),
            started: BTreeMap::new(),
            array_started: BTreeMap::new(),
            reasons: BTreeMap::new(),
            preemption: Preemption::default(),
            ends: Ends::default(),
            minded: None,
            in_order: false,
            turns: Vec::new(),
            tally: Tally::default(),
            frozen: FxHashMap::default(),
            late: None,
            unlooked: Vec::new(),
            patience: Patience::default(),
            ledger: None,
            groups: BTreeSet::new(),
            trial: None,
            of_groups: Vec::new(),
            plan: Plan::default(),
        }
    }

    /// Nodes that could ever do.
    pub fn candidates(&mut self, request: &Request) -> FixedBitSet {
        self.features.candidates(request)
    }

    /// Is there room for that now, as far as amounts say?
    pub fn has_room_now(&mut self, request: &Request, candidates: &FixedBitSet, length: Duration) -> bool {
        self.horizon.room_now(request, candidates, length, &mut self.limits)
    }

    /// Nobody is asked to give way.
    pub fn preempt_nobody(&mut self) {
        self.preemption = Preemption::spent();
    }

    /// The jobs that are tried, each in its partitions, in no order.
    fn entries(&self) -> impl Iterator<Item = Entry> + use<'a> {
        let keys = self.keys();
        let jobs = self.view.pending.iter().enumerate();
        jobs.flat_map(move |(job, waiting)| keys.of(waiting).into_iter().map(move |key| Entry { key, job }))
    }

    /// By what jobs are ordered.
    pub fn keys(&self) -> Keys<'a> {
        let view = self.view;
        Keys {
            view,
            partitions: view.partitions.iter().enumerate().map(|(place, facts)| (facts.name.as_str(), place)).collect(),
            groups: view.policy.bounds.as_ref().map(|bounds| bounds.het_priorities(view)).unwrap_or_default(),
        }
    }

    fn run(&mut self) {
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
            let limit = run_limit(&self.view.pending[entry.job], &self.view.partitions[entry.key.partition]);
            let patient = entry.key.ordinary && self.now.since(entry.key.submit) <= patience;
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

    pub fn is_full(&mut self) -> bool {
        self.plan.truncated = self.has_started_all();
        self.plan.truncated
    }

    fn is_behind(&self, partition: usize) -> bool {
        !self.blocked.is_disjoint(&self.view.partitions[partition].nodes)
    }

    /// Is room reserved for the next job of the partition that does not fit?
    fn reserves(&self, partition: usize) -> bool {
        if let Some(Trial::Later { reserves, .. }) = self.trial {
            return reserves;
        }
        match self.view.policy.backfill {
            Backfill::Off => self.in_order,
            Backfill::First(most) => self.reserved.get(&partition).copied().unwrap_or(0) < most,
            Backfill::Conservative => true,
        }
    }

    fn try_entry(&mut self, entry: Entry) {
        let job = Arc::clone(&self.view.pending[entry.job]);
        self.try_job(entry.key, &job);
    }

    /// Tries one job in one of its partitions.
    pub fn try_job(&mut self, key: Key, job: &Arc<JobView>) {
        // Components are noted when all of them were looked at.
        if let Some(ledger) = self.ledger.as_mut().filter(|_| job.spec.het.is_none()) {
            ledger.turn_to(key, job);
        }
        if job.array_pending.is_none() && self.started.contains_key(&job.id) {
            return;
        }
        match job.spec.het {
            None => {}
            Some((_, 0)) => return self.try_group(key, job),
            // With its leader.
            Some(_) => return,
        }
        let partition = &self.view.partitions[key.partition].name;
        let eyes = self.view.reservations.eyes(job, partition, self.now);
        if eyes.is_empty() {
            self.decline(job.id, self.view.reservations.refused(job));
        }
        for eyes in eyes {
            match self.consider(job, key.partition, eyes) {
                Ok(()) => break,
                Err(reason) => self.decline(job.id, reason),
            }
        }
    }

    /// Tries one job in one partition; for an array, as many of its tasks as fit.
    fn consider(&mut self, job: &JobView, place: usize, eyes: Eyes) -> Result<(), Reason> {
        let view = self.view;
        let partition = &view.partitions[place];
        within_limits(job, partition)?;
        if !self.enters(job, place) {
            return Err(Reason::Priority);
        }
        let names = &self.names;
        let mut request =
            Request::new(view, job, place, &|name| names.get_or_init(|| node_names(view)).get(name).copied())
                .as_of(self.now);
        request.reservation = eyes;
        request.owner = request.owner.where_matters(self.matters);
        self.futures.look(&mut self.horizon, eyes, view, self.now);
        self.licenses.look(eyes);
        if !self.licenses.is_possible(request.licenses.as_deref()) {
            return Err(no_licenses());
        }
        let mut candidates = self.features.candidates(&request);
        view.reservations.restrict(eyes, &mut candidates);
        let mut tasks = PendingTasks::new(view, job, self.started.get(&job.id), &self.array_started);
        if tasks.room == Some(0) {
            return Err(Reason::JobArrayTaskLimit);
        }
        let preferred = job.spec.prefer.as_deref().filter(|text| !text.is_empty()).map(|text| {
            let request = request.with_constraint(text);
            let mut candidates = self.features.candidates(&request);
            view.reservations.restrict(eyes, &mut candidates);
            (request, candidates)
        });
        let is_behind = |nodes: &FixedBitSet| !self.blocked.is_disjoint(nodes);
        let behind = is_behind(&candidates) || preferred.as_ref().is_some_and(|(_, nodes)| is_behind(nodes));
        let minded = self.minds(job);
        let deep =
            !minded && (self.tried_behind >= view.policy.backfill_depth || self.has_seen_enough_like(job, place));
        let passes_by = behind && view.policy.backfill == Backfill::Off;
        if (passes_by && !self.in_order) || (behind && deep) {
            return Err(Reason::Priority);
        }
        let limit = run_limit(job, partition);
        let most = |limit: Option<Duration>| limit.unwrap_or(UNLIMITED_FOR_PLANNING).min(UNLIMITED_FOR_PLANNING);
        let (length, longest) = (most(self.length(job, limit)), most(limit.duration()));
        request.taken_secs = (length < longest).then_some(length.as_secs());
        let frozen = self.is_frozen(place) || Trial::is_later(self.trial) || passes_by;
        let expedited = job.state == JobState::Expediting;
        // It did not ask for a reservation that draws it: if it does not start there now, it waits elsewhere.
        let drawn = view.reservations.name(eyes).is_some() && job.spec.reservations.is_empty();
        let asked = Asked { job, request: &request, candidates: &candidates, length, longest, behind, drawn };
        if !expedited
            && preferred.is_none()
            && let Some(Err(reason)) = self.possible.get(&without_limit(&request))
        {
            return Err(reason.clone());
        }
        let least = self.shortest(&asked).unwrap_or(length);
        if let Some(ledger) = &mut self.ledger {
            ledger.asks(&request, length, least);
        }
        if behind {
            self.tried_behind += 1;
            self.count_behind(job, place);
            // Nothing is reserved for it, and it needs more than is left.
            let starved = !view.has_parked && !self.reserves(place) && self.machine.is_short_for(&request);
            if starved && !expedited {
                return Err(self.waits(&asked, &mut tasks));
            }
        }
        let own = expedited.then(|| {
            let closed = view.reservations.closed_cpus(eyes, self.now, self.now, self.now.plus(longest));
            let open = self.open_to(&asked, self.now.plus(longest));
            (Machine::now_for(view, job.id, &self.planned).without_cpus(closed), open)
        });
        loop {
            let array_index = match tasks.next() {
                NextTask::Whole => None,
                NextTask::Index(index) => Some(index),
                NextTask::LimitReached => return Err(Reason::JobArrayTaskLimit),
                NextTask::Exhausted => return Ok(()),
            };
            let barred = frozen || self.has_started_its_kind(behind);
            let licenses = self.licenses.at(request.licenses.as_deref(), self.now, length);
            let placed = match &own {
                _ if licenses.is_none() || barred => None,
                // What is kept for it makes its request like no other.
                Some((machine, open)) => {
                    let room = self.room(&request, self.now, length);
                    place_expedited(machine, job, &request, open, room.as_ref())
                }
                None => {
                    let first = preferred.as_ref().map(|(request, candidates)| Asked { request, candidates, ..asked });
                    let first = first.and_then(|first| self.place_now(&first));
                    first.or_else(|| self.place_now(&asked))
                }
            };
            let beside = placed.is_some();
            let placed = match placed {
                None if own.is_none() && licenses.is_some() && !barred => self.place_over_suspended(&asked),
                placed => placed,
            };
            let all = placed.as_deref().zip(licenses).and_then(|(nodes, licenses)| {
                self.with_layers(licenses, &request, &hres::places(nodes), self.now, length)
            });
            let (Some(nodes), Some(licenses)) = (placed, all) else {
                let shortened = if own.is_none() && !barred { self.place_shortened(&asked) } else { None };
                let Some((nodes, licenses, secs)) = shortened else {
                    return Err(self.waits(&asked, &mut tasks));
                };
                let shorter = Asked { length: Duration::from_secs(secs), ..asked };
                let Some(nodes) = self.keep_whole(&shorter, nodes) else { return Err(Reason::Fragmentation) };
                self.start(&shorter, array_index, partition, (nodes, licenses), TimeLimit::Secs(secs));
                if array_index.is_none() || self.has_started_all() {
                    return Ok(());
                }
                continue;
            };
            // Where the CPUs of suspended runs are taken, nothing is idle.
            let kept = if beside { self.keep_whole(&asked, nodes) } else { Some(nodes) };
            let Some(nodes) = kept else { return Err(Reason::Fragmentation) };
            self.start(&asked, array_index, partition, (nodes, licenses), limit);
            if array_index.is_none() || self.has_started_all() {
                return Ok(());
            }
        }
    }

    fn start(
        &mut self,
        asked: &Asked<'_>,
        array_index: Option<u32>,
        partition: &PartitionFacts,
        (nodes, licenses): (Vec<AllocatedNode>, Licenses),
        time_limit: TimeLimit,
    ) {
        let Asked { job, request, length, .. } = *asked;
        let end = self.now.plus(length);
        let generations = nodes.iter().map(|node| self.view.nodes[node.index.0 as usize].generation).collect();
        self.occupy(asked, &nodes, end);
        self.licenses.hold(&licenses, self.now, end);
        self.started.entry(job.id).or_default().extend(array_index);
        if let Some(array) = array_index.map(|_| job.id).or(job.array_task.map(|t| t.array_job)) {
            *self.array_started.entry(array).or_insert(0) += 1;
        }
        if let Some(ledger) = &mut self.ledger {
            ledger.starts();
        }
        self.tally.start(asked.behind);
        self.plan.starts.push(StartProposal {
            pass: 0,
            job: job.id,
            array_index,
            job_generation: job.generation,
            partition: partition.name.clone(),
            nodes,
            generations,
            usage: request.usage,
            caps: request.caps,
            time_limit,
            licenses,
            reservation: self.view.reservations.name(request.reservation),
            others: Vec::new(),
        });
    }

    fn hold(&mut self, nodes: Vec<(usize, Amount)>, from: Timestamp, until: Timestamp) {
        self.futures.hold(&mut self.horizon, self.view, nodes, (from, until));
    }

    /// From now until `end` nobody else gets that.
    fn occupy(&mut self, asked: &Asked<'_>, nodes: &[AllocatedNode], end: Timestamp) {
        let Asked { job, request, .. } = *asked;
        for node in nodes {
            let place = node.index.0 as usize;
            let hold = PlannedHold {
                node: place,
                share: node.share.clone(),
                usage: request.usage,
                owner: request.owner,
                partition: request.partition,
                end,
            };
            self.machine.take_planned(&hold);
            self.promises.take(&hold);
            self.planned.push(hold);
        }
        let closed = topology::rest_of_units(self.view, request, nodes.iter().map(|n| n.index.0 as usize));
        for (node, closing) in &closed {
            let (usage, partition) = (closing.usage, request.partition);
            let share = NodeShare::default();
            let hold = PlannedHold { node: *node, share, usage, owner: request.owner, partition, end };
            self.machine.take_planned(&hold);
            self.promises.take(&hold);
            self.planned.push(hold);
        }
        self.hold(closed, self.now, end);
        self.ends.note(job.id, nodes.iter().map(|n| n.index.0 as usize), self.horizon.round(end));
        self.hold(amounts(self.view, nodes, request), self.now, end);
    }

    pub fn finish(mut self) -> (Plan, Future, Option<Ledger>) {
        // What is kept is what those see who are for no reservation.
        if self.ledger.is_some() {
            self.futures.look(&mut self.horizon, None, self.view, self.now);
        }
        self.plan.again = self.patience.next;
        (self.plan.in_order, self.plan.backfilled) = self.tally.started();
        let started = self.started;
        // It starts in another of its partitions after all.
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
        // Who was not looked at yet may want the CPUs.
        let pending = &self.view.pending;
        let claim = |entry: &Entry| Claim { job: &pending[entry.job], partition: entry.key.partition, eyes: None };
        self.plan.resumptions =
            resume::resumptions(self.view, self.now, self.plan.given(), self.unlooked.iter().map(claim));
        (self.plan, Future { floor: self.machine.into_floor(), horizon: self.horizon }, self.ledger)
    }
}

/// A job in one of its partitions, as it is looked at.
#[derive(Clone, Copy)]
struct Asked<'j> {
    job: &'j JobView,
    request: &'j Request,
    candidates: &'j FixedBitSet,
    /// How long it is taken to run.
    length: Duration,
    /// How long it may.
    longest: Duration,
    behind: bool,
    drawn: bool,
}

fn amounts(view: &ClusterView, nodes: &[AllocatedNode], request: &Request) -> Vec<(usize, Amount)> {
    let amount = |node: &AllocatedNode| {
        let place = node.index.0 as usize;
        let of_share = Amount::of_share(&view.nodes[place].shape, &node.share, request.usage, request.owner);
        let parted = view.reservations.is_parted(place) && request.usage != NodeUse::Whole;
        let own = || node.share.cpus.difference(&view.nodes[place].shape.restricted_cpus());
        (place, Amount { named: parted.then(own), ..of_share })
    };
    nodes.iter().map(amount).collect()
}
