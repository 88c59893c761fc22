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
//! A job that does not start may have others make room for it ([`super::preempt`]); that room is nobody else's meanwhile.

mod bounded;
mod het;
mod whole;

use self::{
    het::Trial,
    whole::{Patience, costs_others, waits_already},
};
use super::{
    bounds::Tally,
    caps::{CpuCaps, Promises},
    constraint::Wish,
    facts::{Backfill, ClusterView, PartitionFacts, UNLIMITED_FOR_PLANNING},
    free::Amount,
    horizon::{Horizon, Limits, NEVER, is_kept_for},
    hres::{self, Room},
    ledger::{Ledger, Promise},
    licenses::{self, LicensePlan},
    machine::{Floor, Machine, PlannedHold},
    obstacle::{Ends, Obstacle},
    preempt::{Fees, PreemptProposal, Preemption},
    request::{Matters, NodeUse, Request, run_limit},
    reservations::{self, Eyes, Futures},
    resume::{self, ResumeProposal},
    select::{self, Bound},
    topology,
};
use fixedbitset::FixedBitSet;
use garrick_model::{
    ids::{JobId, NodeIndex},
    outlook::Blocker,
    resources::{CpuSet, NodeShare},
    spec_text::licenses::Licenses,
    state::{JobState, Reason},
    time::{TimeLimit, Timestamp},
    view::{AllocatedNode, JobView, PartitionState},
};
use rustc_hash::{FxHashMap, FxHashSet};
use std::{
    cell::OnceCell,
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

/// One start, as proposed to the job's owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartProposal {
    /// Number of the pass, set when proposals are sent; answers name it.
    pub pass: u64,
    /// Job, or the record of an array.
    pub job: JobId,
    /// Which task of the array is to be split off and started.
    pub array_index: Option<u32>,
    /// Generation of the job's view.
    pub job_generation: u64,
    /// Partition.
    pub partition: String,
    /// Nodes in configuration order, the batch host first.
    pub nodes: Vec<AllocatedNode>,
    /// Generation of each node's view, in the same order.
    pub generations: Vec<u64>,
    /// How the nodes are used.
    pub usage: NodeUse,
    /// Most CPUs of each that its partition has.
    pub caps: CpuCaps,
    /// The run's limit in this partition.
    pub time_limit: TimeLimit,
    /// Licenses that go with the nodes.
    pub licenses: Licenses,
    /// Reservation that it starts in.
    pub reservation: Option<String>,
    /// Of the leader of a heterogeneous job: its other components, which start with it or not at all.
    pub others: Vec<Self>,
}

/// What came of a pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Starts, in the order decided.
    pub starts: Vec<StartProposal>,
    /// Runs that give way to jobs that do not start yet.
    pub preemptions: Vec<PreemptProposal>,
    /// What is kept for those jobs meanwhile.
    pub kept_for_preempting: Vec<(AllocatedNode, NodeUse)>,
    /// Runs that were suspended for others and go on.
    pub resumptions: Vec<ResumeProposal>,
    /// Why eligible jobs that were looked at do not start.
    pub reasons: Vec<(JobId, Reason)>,
    /// Expected starts of jobs that have nodes reserved.
    pub expected: Vec<(JobId, Timestamp)>,
    /// What is reserved, in the order decided.
    pub reservations: Vec<Reservation>,
    /// What stands in the way of those who have room reserved, where that is known.
    pub obstacles: Vec<(JobId, Obstacle)>,
    /// The pass stopped at its limit of starts: make another one soon.
    pub truncated: bool,
    /// How many starts are of jobs that are behind nobody.
    pub in_order: u32,
    /// How many are of those behind waiting ones.
    pub backfilled: u32,
    /// It stopped at its limit of time: so many jobs in their partitions were not looked at.
    pub left_out: usize,
    /// When the first of those is to start who could start now but wait for blocks that are broken already: make another
    /// one then.
    pub again: Option<Timestamp>,
}

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

/// Makes a plan in which that job is looked at in any case, and has room reserved however far ahead it is.
pub(super) fn plan_minding(view: &ClusterView, now: Timestamp, job: JobId) -> Plan {
    let mut pass = Pass::new(view, now);
    pass.minded = Some(job);
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

/// A job in one of its partitions, ordered as they are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Key {
    /// False sorts first.
    ordinary: bool,
    /// True sorts first: it waits for blocks that are broken already, and would be running if it did not.
    patient: std::cmp::Reverse<bool>,
    tier: std::cmp::Reverse<u32>,
    priority: std::cmp::Reverse<u32>,
    submit: Timestamp,
    /// Tasks that were split off an array go before those that its record still stands for.
    id: (JobId, bool, JobId),
    /// Order of the partitions in the job's own list.
    choice: usize,
    pub partition: usize,
}

impl Key {
    /// Tier of its partition.
    pub const fn tier(&self) -> u32 {
        self.tier.0
    }
}

/// The same with the job's place in the picture.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    key: Key,
    job: usize,
}

/// Makes keys of the jobs of a picture.
pub(super) struct Keys<'a> {
    view: &'a ClusterView,
    partitions: HashMap<&'a str, usize>,
    /// Tiers and priorities of heterogeneous jobs, by their leaders.
    groups: FxHashMap<JobId, (u32, u32)>,
}

impl Keys<'_> {
    /// Of one job: in each of its partitions, where it may start at all.
    pub fn of(&self, job: &JobView) -> Vec<Key> {
        if !job.eligible {
            return Vec::new();
        }
        let group = job.spec.het.and_then(|(leader, _)| self.groups.get(&leader).copied());
        let places = job.partitions.iter().map(|name| self.partitions.get(name.as_str()).copied());
        let chosen = places.enumerate().filter_map(|(choice, place)| Some((choice, place?)));
        let key = |(choice, partition): (usize, usize)| Key {
            ordinary: job.state != JobState::Expediting,
            patient: std::cmp::Reverse(waits_already(self.view, job)),
            tier: std::cmp::Reverse(group.map_or(self.view.partitions[partition].tier, |(tier, _)| tier)),
            priority: std::cmp::Reverse(group.map_or(job.priority, |(_, priority)| priority)),
            submit: job.submit_time,
            id: (job.array_task.map_or(job.id, |t| t.array_job), job.array_pending.is_some(), job.id),
            choice,
            partition,
        };
        chosen.map(key).collect()
    }
}

pub(super) fn node_names(view: &ClusterView) -> HashMap<&str, NodeIndex> {
    view.nodes.iter().map(|n| (n.name.as_str(), n.index)).collect()
}

/// Candidate nodes by constraint, computed once a pass.
#[derive(Clone)]
pub(super) struct Features<'a> {
    by_feature: BTreeMap<String, FixedBitSet>,
    known: HashMap<String, Option<FixedBitSet>>,
    view: &'a ClusterView,
}

impl<'a> Features<'a> {
    pub(super) fn new(view: &'a ClusterView) -> Self {
        let mut by_feature: BTreeMap<String, FixedBitSet> = BTreeMap::new();
        for (place, node) in view.nodes.iter().enumerate() {
            for feature in &node.features {
                match by_feature.get_mut(feature) {
                    Some(set) => set.insert(place),
                    None => {
                        let mut set = FixedBitSet::with_capacity(view.nodes.len());
                        set.insert(place);
                        by_feature.insert(feature.clone(), set);
                    }
                }
            }
        }
        Self { by_feature, known: HashMap::new(), view }
    }

    /// Nodes of the partition that the request could ever use. An expression that is not one has no nodes.
    pub(super) fn candidates(&mut self, request: &Request) -> FixedBitSet {
        let members = &self.view.partitions[request.partition].nodes;
        let Some(text) = &request.constraint else { return request.candidates(members, None) };
        if !self.known.contains_key(text) {
            let nodes = Wish::parse(text).ok().map(|c| c.nodes(&self.by_feature, self.view.nodes.len()));
            self.known.insert(text.clone(), nodes);
        }
        match self.known.get(text) {
            Some(Some(nodes)) => request.candidates(members, Some(nodes)),
            _ => FixedBitSet::with_capacity(members.len()),
        }
    }
}

/// Room reserved for a job that cannot start now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// Job, or the record of an array.
    pub job: JobId,
    /// Place of the partition.
    pub partition: usize,
    /// From when on.
    pub from: Timestamp,
    /// Until when.
    pub until: Timestamp,
    /// What of which nodes, by place.
    pub nodes: Vec<(usize, Amount)>,
    /// Licenses.
    pub licenses: Licenses,
}

/// Times at which a request for named or neighbouring nodes, or for so many of each kind, is tried in a pass, at most. Each
/// is a look at every node.
const MOST_LOOKS_AHEAD: usize = 200;
/// The same for those of whom amounts say most: they have another way when it is spent.
const MOST_LOOKS_BY_AMOUNTS: usize = 50;
/// Times at which hierarchical resources alone say no, at most in a pass. Each is a look at every layer.
const MOST_GLANCES_AHEAD: usize = 2_000;

/// How far ahead a plan looks for the job for whose sake it is made: past all that wait without a time limit.
const AS_FAR_AS_CAN_BE: Duration = Duration::from_secs(100 * UNLIMITED_FOR_PLANNING.as_secs());
const MINUTE: u64 = 60;

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
    /// What was done so far, as far as [`Policy::bounds`](super::facts::Policy::bounds) are about it.
    tally: Tally,
    /// Until when nothing starts in partitions that were asked about.
    frozen: FxHashMap<usize, Option<Timestamp>>,
    /// Says when there is no more time.
    late: Option<&'a dyn Fn() -> bool>,
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
        Self::on(view, now, Machine::now(view), reservations::seen(view, None, now))
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
            tally: Tally::default(),
            frozen: FxHashMap::default(),
            late: None,
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
        let count = entries.len();
        for (done, entry) in entries.into_iter().enumerate() {
            if self.is_full() || self.is_late(count - done + behind.len()) {
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
        let count = behind.len();
        for (done, entry) in behind.into_iter().enumerate() {
            if self.is_full() || self.is_late(count - done) {
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
            Backfill::Off => false,
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
            return Err(licenses::reason());
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
        if behind && (view.policy.backfill == Backfill::Off || deep) {
            return Err(Reason::Priority);
        }
        let limit = run_limit(job, partition);
        let most = |limit: Option<Duration>| limit.unwrap_or(UNLIMITED_FOR_PLANNING).min(UNLIMITED_FOR_PLANNING);
        let (length, longest) = (most(self.length(job, limit)), most(limit.duration()));
        request.taken_secs = (length < longest).then_some(length.as_secs());
        let frozen = self.is_frozen(place) || Trial::is_later(self.trial);
        let expedited = job.state == JobState::Expediting;
        // It did not ask for a reservation that draws it: if it does not start there now, it waits elsewhere.
        let drawn = eyes.is_some() && job.spec.reservations.is_empty();
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

    /// Nodes that the request gets now, such that nobody who has room reserved is delayed.
    fn place_now(&mut self, asked: &Asked<'_>) -> Option<Vec<AllocatedNode>> {
        let Asked { request, candidates, length, .. } = *asked;
        let run = (self.now, self.now.plus(length));
        if self.failed.contains(request) || self.machine.is_short_for(request) {
            return None;
        }
        let soft = asked.longest > length;
        let open = soft.then(|| self.open_to(asked, self.now.plus(asked.longest)));
        let candidates = open.as_ref().unwrap_or(candidates);
        let placed = if self.horizon.room_now(request, candidates, length, &mut self.limits) {
            let mut taken = self.view.reservations.taken(&self.horizon, run.0, run.1);
            if soft {
                for (node, cpus) in self.closed_cpus(asked, self.now) {
                    taken.entry(node).or_default().add(&cpus);
                }
            }
            self.machine.close(taken);
            self.machine.promise(self.promised(request, candidates, run));
            let bound = Bound { horizon: &self.horizon, limits: &self.limits, run };
            let room = self.room(request, self.now, length);
            hres::place(&self.machine, request, candidates, Some(bound), room.as_ref())
        } else {
            None
        };
        if placed.is_none() {
            self.failed.insert(request.clone());
        }
        placed
    }

    /// What is reserved meanwhile for others of a partition with limits of CPUs.
    fn promised(
        &self,
        request: &Request,
        candidates: &FixedBitSet,
        window: (Timestamp, Timestamp),
    ) -> BTreeMap<usize, u32> {
        if !request.caps.count(request.usage) {
            return BTreeMap::new();
        }
        self.promises.within(request.partition, candidates, window)
    }

    /// With `--time-min`: the shortest that its limit may be made for a start now. Limits have whole minutes.
    fn shortest(&self, asked: &Asked<'_>) -> Option<Duration> {
        let least = asked.job.spec.time_min?.duration()?;
        let may = least < asked.length && self.view.policy.backfill != Backfill::Off && self.trial.is_none();
        may.then(|| Duration::from_secs(least.as_secs().div_ceil(MINUTE).max(1) * MINUTE))
    }

    /// Nodes that the request gets now if its limit is lowered, and the longest such limit, in seconds.
    fn place_shortened(&mut self, asked: &Asked<'_>) -> Option<(Vec<AllocatedNode>, Licenses, u64)> {
        let mut fits = self.shortest(asked)?.as_secs() / MINUTE;
        let mut too_long = asked.length.as_secs().div_ceil(MINUTE);
        let mut best = self.place_for(asked, fits * MINUTE)?;
        while too_long - fits > 1 {
            let middle = fits + (too_long - fits) / 2;
            match self.place_for(asked, middle * MINUTE) {
                Some(placed) => (fits, best) = (middle, placed),
                None => too_long = middle,
            }
        }
        Some((best.0, best.1, fits * MINUTE))
    }

    /// Nodes and licenses that the request gets now for so long.
    fn place_for(&mut self, asked: &Asked<'_>, secs: u64) -> Option<(Vec<AllocatedNode>, Licenses)> {
        let length = Duration::from_secs(secs);
        let request = Request { limit_secs: Some(secs), taken_secs: None, ..asked.request.clone() };
        let licenses = self.licenses.at(request.licenses.as_deref(), self.now, length)?;
        let nodes = self.place_now(&Asked { request: &request, length, longest: length, ..*asked })?;
        let licenses = self.with_layers(licenses, &request, &hres::places(&nodes), self.now, length)?;
        Some((nodes, licenses))
    }

    /// Nodes that the request gets now from runs that are suspended for such as it.
    fn place_over_suspended(&mut self, asked: &Asked<'_>) -> Option<Vec<AllocatedNode>> {
        let Asked { job, request, length, longest, .. } = *asked;
        if !self.view.has_parked || Trial::is_later(self.trial) {
            return None;
        }
        let open = self.open_to(asked, self.now.plus(longest));
        let taken = (self.planned.as_slice(), self.plan.reservations.as_slice());
        let fees = Fees { licenses: &self.licenses, length };
        self.preemption.room_over_suspended(self.view, self.now, (job, request, &open), taken, fees)
    }

    /// Candidates that are not others' by reservation until `end`.
    fn open_to(&self, asked: &Asked<'_>, end: Timestamp) -> FixedBitSet {
        let mut open = asked.candidates.clone();
        open.difference_with(&self.view.reservations.closed(asked.request.reservation, self.now, self.now, end));
        open
    }

    /// CPUs that are others' by reservation at some time while it runs from `from` on.
    fn closed_cpus(&self, asked: &Asked<'_>, from: Timestamp) -> BTreeMap<usize, CpuSet> {
        let until = from.plus(asked.longest);
        self.view.reservations.closed_cpus(asked.request.reservation, self.now, from, until)
    }

    /// What is free of hierarchical resources that the request names, from then on for so long.
    fn room(&self, request: &Request, from: Timestamp, length: Duration) -> Option<Room<'a>> {
        Room::within(&self.view.licenses.hres, &self.licenses, request, from, length)
    }

    /// Licenses, and what goes with these nodes of hierarchical resources. `None`: too little of it is free.
    fn with_layers(
        &self,
        mut licenses: Licenses,
        request: &Request,
        nodes: &[usize],
        from: Timestamp,
        length: Duration,
    ) -> Option<Licenses> {
        if let Some(room) = self.room(request, from, length) {
            licenses.0.extend(room.share(nodes)?.0);
        }
        Some(licenses)
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

    /// What becomes of a job that does not start now, and of the tasks behind it: others make room for them, or they wait.
    fn waits(&mut self, asked: &Asked<'_>, tasks: &mut PendingTasks) -> Reason {
        if self.trial == Some(Trial::Now) {
            return Reason::Resources;
        }
        let spent = self.has_started_its_kind(asked.behind);
        let barred = Trial::is_later(self.trial) || self.is_frozen(asked.request.partition) || spent;
        if barred || !self.preempt(asked) {
            if self.trial == Some(Trial::Giving) {
                // What is done for one component is done only if it is for all.
                return Reason::Resources;
            }
            let before = self.plan.reservations.len();
            // Who only has to wait for the next plan leaves those after him in order.
            let blocked = spent.then(|| self.blocked.clone());
            let reason = self.did_not_fit(asked);
            self.blocked = blocked.unwrap_or_else(|| std::mem::take(&mut self.blocked));
            if self.plan.reservations.len() > before {
                self.reserve_for_tasks(asked, tasks);
            }
            return reason;
        }
        while matches!(tasks.next(), NextTask::Index(_)) && self.preempt(asked) {}
        if asked.behind {
            Reason::Priority
        } else {
            self.blocked.union_with(&self.view.partitions[asked.request.partition].nodes);
            Reason::Resources
        }
    }

    /// Has others make room, and keeps it. False: nobody does.
    fn preempt(&mut self, asked: &Asked<'_>) -> bool {
        let Asked { job, request, length, .. } = *asked;
        if !self.view.policy.preempt.is_on() || job.state == JobState::Expediting {
            return false;
        }
        // Nobody gives way for room that others have reserved.
        let closed = |until| self.view.reservations.closed(request.reservation, self.now, self.now, until);
        let open = self.open_to(asked, self.now.plus(asked.longest));
        let wish = (job, request, &open);
        let taken = (self.planned.as_slice(), self.plan.reservations.as_slice());
        let fees = Fees { licenses: &self.licenses, length };
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
        // CPUs that others have until they go cannot be shared meanwhile.
        let usage = if matches!(request.usage, NodeUse::Oversubscribe(_)) { NodeUse::Cpus } else { request.usage };
        let alone = Request { usage, ..request.clone() };
        self.occupy(&Asked { request: &alone, ..*asked }, &room.nodes, end);
        self.licenses.hold(&room.licenses, self.now, end);
        if self.plan.expected.last().is_none_or(|(last, _)| *last != job.id) {
            self.plan.expected.push((job.id, self.horizon.round(room.from)));
        }
        room.victims.iter_mut().for_each(|victim| victim.until = Some(end));
        self.plan.kept_for_preempting.extend(room.nodes.into_iter().map(|node| (node, request.usage)));
        self.plan.preemptions.extend(room.victims);
        true
    }

    /// Why the job does not start now. Where it is for room, that is reserved if the policy gives it any.
    fn did_not_fit(&mut self, asked: &Asked<'_>) -> Reason {
        if asked.drawn {
            if self.reserves_where_drawn() && self.reserves(asked.request.partition) {
                self.reserve(asked);
            }
            return Reason::Resources;
        }
        let expedited = asked.job.state == JobState::Expediting;
        let short = self.licenses.at(asked.request.licenses.as_deref(), self.now, asked.length).is_none()
            || self.is_short_of_layers(asked);
        let modest = self.is_modest(asked.job);
        let reserves = !modest && !self.is_task_too_many(asked.job) && self.reserves(asked.request.partition);
        let reserved = reserves && if expedited { self.reserve_expedited(asked) } else { self.reserve(asked) };
        if !reserved {
            let key = without_limit(asked.request);
            let known = self.possible.get(&key).filter(|_| !expedited).cloned();
            let could = known.unwrap_or_else(|| self.could_start(asked));
            if !expedited {
                self.possible.insert(key, could.clone());
            }
            if let Err(reason) = could {
                return reason;
            }
        }
        // Nobody who wants other things waits for it either.
        let reserved = reservations::reason(&mut self.machine, asked.request, asked.candidates, self.now, asked.length);
        if let Some(reason) = reserved.filter(|_| !short && !expedited) {
            return reason;
        }
        // It holds back nobody who wants other things, but where nobody may go ahead of anybody.
        if short && self.view.policy.backfill != Backfill::Off {
            licenses::reason()
        } else if asked.behind {
            Reason::Priority
        } else {
            if !modest {
                self.blocked.union_with(&self.view.partitions[asked.request.partition].nodes);
            }
            if short { licenses::reason() } else { Reason::Resources }
        }
    }

    /// Do layers of hierarchical resources have too little now, on whatever nodes, or would it start if they had no end?
    fn is_short_of_layers(&mut self, asked: &Asked<'_>) -> bool {
        let Some(room) = self.room(asked.request, self.now, asked.length) else { return false };
        if !room.bears(asked.request, asked.candidates) {
            return true;
        }
        let without = Request { hres: None, ..asked.request.clone() };
        self.place_now(&Asked { request: &without, ..*asked }).is_some()
    }

    /// Would it start if nobody else were there?
    fn could_start(&mut self, asked: &Asked<'_>) -> Result<(), Reason> {
        let view = self.view;
        let Asked { request, candidates, .. } = *asked;
        let request = &request.clone().on_any_switches();
        let anywhere = !request.is_particular() && request.near.is_none() && !request.unknown_nodes;
        if anywhere && self.horizon.suffices_finally(request, candidates) {
            return Ok(());
        }
        let closed = view.reservations.never_open(request.reservation);
        let idle = self.idle.get_or_insert_with(|| Machine::idle(view));
        idle.close(closed.clone());
        let room = Room::whole(&view.licenses.hres, request);
        if hres::place(idle, request, candidates, None, room.as_ref()).is_some() {
            return Ok(());
        }
        if room.is_some() && select::place(idle, request, candidates).is_some() {
            return Err(licenses::reason());
        }
        if request.min_nodes as usize > view.partitions[request.partition].nodes.count_ones(..) {
            return Err(Reason::PartitionNodeLimit);
        }
        let named_out = request.nodelist.iter().map(|n| n.0 as usize).filter(|n| !idle.is_usable(*n));
        let named_out: Vec<&str> = named_out.map(|n| view.nodes[n].name.as_str()).collect();
        let ideal = self.ideal.get_or_insert_with(|| Machine::ideal(view));
        ideal.close(closed);
        Err(match select::place(ideal, request, candidates) {
            Some(_) if !named_out.is_empty() => Reason::unavailable_nodes(named_out),
            Some(_) => Reason::NodesUnavailable,
            None => Reason::BadConstraints,
        })
    }

    /// Keeps room for a job from the earliest time at which it would fit.
    fn reserve(&mut self, asked: &Asked<'_>) -> bool {
        let request = asked.request;
        if request.unknown_nodes {
            return false;
        }
        let from = self.horizon.round(Trial::from(self.trial, self.now));
        let mut from = self.not_before.get(request).map_or(from, |known| from.max(*known));
        let minded = self.minds(asked.job);
        let window = if minded { AS_FAR_AS_CAN_BE } else { self.view.policy.backfill_window };
        let until = self.now.plus(window);
        if minded {
            // Others looked less far.
            from = self.horizon.round(Trial::from(self.trial, self.now));
        }
        if from > until {
            return false;
        }
        let found = self.first_room(asked, (from, until));
        // Reservations count as long as it may run.
        let closed = found.as_ref().is_some_and(|(at, nodes, _)| self.closes_later(asked, *at, nodes));
        let asked = &if closed { Asked { length: asked.longest, ..*asked } } else { *asked };
        let found = if closed { self.first_room(asked, (from, until)) } else { found };
        let Some((at, nodes, licenses)) = found else {
            self.not_before.insert(request.clone(), NEVER);
            return false;
        };
        self.not_before.insert(request.clone(), at);
        self.keep(asked, at, nodes, licenses);
        true
    }

    /// When and where it has room for its length, and licenses.
    fn first_room(&mut self, asked: &Asked<'_>, (mut from, until): (Timestamp, Timestamp)) -> Option<Found> {
        let Asked { request, length, .. } = *asked;
        // Nodes and licenses in turn, until both are free at one time.
        loop {
            let found = if request.fits_by_amounts_first() {
                self.first_by_amounts(asked, (from, until))
            } else if request.is_particular() {
                self.look_ahead(asked, (from, until)).map(|(at, nodes)| (at, amounts(self.view, &nodes, request)))
            } else {
                self.earliest_by_amounts(asked, (from, until))
            };
            let Some((at, nodes)) = found else { break None };
            match self.licenses.earliest(request.licenses.as_deref(), at, length) {
                Some((first, licenses)) if first <= at => {
                    let places: Vec<usize> = nodes.iter().map(|(node, _)| *node).collect();
                    let all = self.with_layers(licenses, request, &places, at, length);
                    break all.map(|licenses| (at, nodes, licenses));
                }
                Some((first, _)) => from = self.horizon.round(first),
                None => break None,
            }
            if from > until {
                break None;
            }
        }
    }

    /// Would one that is taken to run for less time than it may still be there when a reservation closes those nodes?
    fn closes_later(&self, asked: &Asked<'_>, at: Timestamp, nodes: &[(usize, Amount)]) -> bool {
        if asked.longest <= asked.length {
            return false;
        }
        let eyes = asked.request.reservation;
        let closed = self.view.reservations.closed(eyes, self.now, at, at.plus(asked.longest));
        let parts = self.closed_cpus(asked, at);
        let ends = |(node, what): &(usize, Amount)| {
            let part = parts.get(node).filter(|_| !closed.contains(*node));
            let kept = |cpus: &CpuSet| what.named.as_ref().is_none_or(|named| !named.is_disjoint(cpus));
            closed.contains(*node) || part.is_some_and(kept)
        };
        nodes.iter().any(ends)
    }

    /// The earliest time at which amounts say that it fits, and what of which nodes.
    fn earliest_by_amounts(
        &mut self,
        asked: &Asked<'_>,
        window: (Timestamp, Timestamp),
    ) -> Option<(Timestamp, Vec<(usize, Amount)>)> {
        let Asked { request, candidates, length, .. } = *asked;
        let topology = self.view.topology(request.partition).filter(|_| request.near.is_some());
        let slot = match topology {
            Some(topology) => {
                let horizon = &mut self.horizon;
                topology::earliest(horizon, topology, request, (candidates, candidates), window, length)
            }
            None => self.horizon.earliest(request, candidates, window, length),
        }?;
        Some((slot.at, self.horizon.amounts(request, &slot.nodes, slot.at, length)))
    }

    /// The same within the limits of its partition's CPUs, and of one of its numbers of nodes. Where too many times were tried in this pass, amounts have to do:
    /// owners see to the limits when it starts.
    fn first_by_amounts(
        &mut self,
        asked: &Asked<'_>,
        (from, until): (Timestamp, Timestamp),
    ) -> Option<(Timestamp, Vec<(usize, Amount)>)> {
        let (first, nodes) = self.earliest_by_amounts(asked, (from, until))?;
        match self.look_ahead(asked, (first, until)) {
            Some((at, nodes)) => Some((at, amounts(self.view, &nodes, asked.request))),
            None if self.looks_left_by_amounts == 0 => Some((first, nodes)),
            None => None,
        }
    }

    fn keep(&mut self, asked: &Asked<'_>, from: Timestamp, nodes: Vec<(usize, Amount)>, licenses: Licenses) {
        let until = from.plus(asked.length);
        let obstacle = self.ends.obstacle(self.view, &self.horizon, &nodes, from).or_else(|| {
            // With all nodes free before, it is for their neighbourhood that it waits.
            let wish = asked.request.near.as_ref().and_then(|near| near.switches);
            if let Some((most, until)) = wish.filter(|(_, until)| *until <= from) {
                return Some(Obstacle { by: Blocker::Switches(most), node: None, until });
            }
            let (by, node) = (Blocker::Licenses(asked.job.spec.licenses.clone()?), None);
            Some(Obstacle { by, node, until: from })
        });
        self.plan.obstacles.extend(obstacle.map(|obstacle| (asked.job.id, obstacle)));
        self.ends.note(asked.job.id, nodes.iter().map(|(node, _)| *node), self.horizon.round(until));
        let closed = topology::rest_of_units(self.view, asked.request, nodes.iter().map(|(node, _)| *node));
        let component = self.trial.is_some();
        if self.ledger.is_some() || component {
            let nodes = nodes.iter().chain(&closed).cloned().collect();
            let promise = Promise { from, until, nodes, licenses: licenses.clone() };
            match &mut self.ledger {
                Some(ledger) if !component => ledger.promise(promise),
                _ => self.of_groups.push((asked.job.id, asked.request.partition, promise)),
            }
        }
        self.hold(closed, from, until);
        self.hold(nodes.clone(), from, until);
        self.licenses.hold(&licenses, from, until);
        let job = asked.job.id;
        if self.plan.expected.last().is_none_or(|(last, _)| *last != job) {
            self.plan.expected.push((job, from));
        }
        if self.view.policy.bounds.is_some() {
            self.tally.booked.insert(job);
        }
        let partition = asked.request.partition;
        *self.reserved.entry(partition).or_insert(0) += 1;
        self.promises.reserve(partition, &nodes, (from, until));
        self.plan.reservations.push(Reservation { job, partition, from, until, nodes, licenses });
    }

    /// Tries times one by one: for named nodes, neighbours and nodes chosen by what they are together.
    fn look_ahead(
        &mut self,
        asked: &Asked<'_>,
        (from, until): (Timestamp, Timestamp),
    ) -> Option<(Timestamp, Vec<AllocatedNode>)> {
        let wait = (from > self.horizon.round(self.now)).then_some(from);
        let after = wait.unwrap_or(self.now);
        let mut changes = self.horizon.changes(asked.request, asked.candidates, after);
        if let Some(room) = self.room(asked.request, self.now, asked.length) {
            changes.extend(room.changes(&self.licenses, after).into_iter().map(|at| self.horizon.round(at)));
            changes.sort_unstable();
            changes.dedup();
        }
        for at in wait.into_iter().chain(changes) {
            if at > until || *self.looks_left(asked.request) == 0 || self.glances_ahead >= MOST_GLANCES_AHEAD {
                return None;
            }
            let room = self.room(asked.request, at, asked.length);
            if room.as_ref().is_some_and(|room| !room.bears(asked.request, asked.candidates)) {
                self.glances_ahead += 1;
                continue;
            }
            *self.looks_left(asked.request) -= 1;
            let mut machine = Machine::ahead(self.view, &self.horizon, (at, at.plus(asked.length)), &self.planned);
            machine.promise(self.promised(asked.request, asked.candidates, (at, at.plus(asked.length))));
            if let Some(nodes) = hres::place(&machine, asked.request, asked.candidates, None, room.as_ref()) {
                return Some((at, nodes));
            }
        }
        None
    }

    /// How many more times are tried in this pass for such as it.
    fn looks_left(&mut self, request: &Request) -> &mut usize {
        if request.fits_by_amounts_first() { &mut self.looks_left_by_amounts } else { &mut self.looks_left }
    }

    /// The same for a job that has nodes kept for it: those are there for nobody else, and only running jobs stand in its
    /// way.
    fn reserve_expedited(&mut self, asked: &Asked<'_>) -> bool {
        let Asked { job, request, candidates, .. } = *asked;
        let mut open = candidates.clone();
        open.difference_with(&self.view.reservations.closed(request.reservation, self.now, self.now, NEVER));
        let Some((at, nodes)) = earliest(self.view, self.now, job.id, request, &open, &self.planned) else {
            return false;
        };
        let Some((at, licenses)) = self.licenses.earliest(request.licenses.as_deref(), at, asked.length) else {
            return false;
        };
        let room = Room::whole(&self.view.licenses.hres, request);
        let Some((at, licenses)) =
            self.licenses.with_layers_of(room.as_ref(), &hres::places(&nodes), licenses, at, asked.length)
        else {
            return false;
        };
        let kept = |node: usize| is_kept_for(self.view, node, job.id);
        let nodes = amounts(self.view, &nodes, request).into_iter().filter(|(node, _)| !kept(*node)).collect();
        self.keep(asked, at, nodes, licenses);
        true
    }

    /// Keeps the reason that says most of the partitions that declined a job.
    fn decline(&mut self, job: JobId, reason: Reason) {
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

    pub fn finish(mut self) -> (Plan, Future, Option<Ledger>) {
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
        if !self.plan.truncated && self.plan.left_out == 0 {
            self.plan.resumptions = resume::resumptions(self.view, &self.plan);
        }
        (self.plan, Future { floor: self.machine.into_floor(), horizon: self.horizon }, self.ledger)
    }
}

/// When room was found, what of which nodes, and licenses.
type Found = (Timestamp, Vec<(usize, Amount)>, Licenses);

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

fn without_limit(request: &Request) -> Request {
    Request { limit_secs: None, taken_secs: None, ..request.clone() }.on_any_switches()
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

/// A job that could start soon says so rather than naming a partition that will never take it.
pub(super) fn weight_of(reason: &Reason) -> u8 {
    match reason {
        reason if reason.is_unavailable_nodes() => 3,
        Reason::JobArrayTaskLimit => 6,
        Reason::Resources | Reason::Fragmentation | Reason::Other(_) => 5,
        Reason::Priority => 4,
        Reason::PartitionDown | Reason::PartitionInactive => 2,
        Reason::PartitionTimeLimit | Reason::PartitionNodeLimit | Reason::AccountNotAllowed | Reason::QosNotAllowed => {
            1
        }
        _ => 0,
    }
}

/// Rather on the nodes that are kept for the job than on others.
fn place_expedited(
    machine: &Machine<'_>,
    job: &JobView,
    request: &Request,
    open: &FixedBitSet,
    layers: Option<&Room<'_>>,
) -> Option<Vec<AllocatedNode>> {
    let is_kept = |place: &usize| machine.view().nodes[*place].holds.iter().any(|h| h.kept && h.job == job.id);
    let kept: Vec<NodeIndex> =
        open.ones().filter(is_kept).filter(|n| machine.is_usable(*n)).map(|n| machine.view().nodes[n].index).collect();
    let mut on_kept = request.clone();
    on_kept.nodelist.extend(kept);
    on_kept.nodelist.sort_unstable();
    on_kept.nodelist.dedup();
    let room = on_kept.nodelist.len() <= request.max_nodes as usize;
    let place = |request: &Request| hres::place(machine, request, open, None, layers);
    room.then(|| place(&on_kept)).flatten().or_else(|| place(request))
}

pub(super) fn within_limits(job: &JobView, partition: &PartitionFacts) -> Result<(), Reason> {
    match partition.state {
        PartitionState::Up | PartitionState::Drain => {}
        PartitionState::Down => return Err(Reason::PartitionDown),
        PartitionState::Inactive => return Err(Reason::PartitionInactive),
    }
    if let Some(config) = &partition.takes {
        if !config.allows_account(job.spec.account.as_deref()) {
            return Err(Reason::AccountNotAllowed);
        }
        // As in Slurm, root's jobs have any QOS.
        if job.uid != 0 && !config.allows_qos(job.spec.qos.as_deref()) {
            return Err(Reason::QosNotAllowed);
        }
    }
    if longer(run_limit(job, partition), partition.max_time) {
        return Err(Reason::PartitionTimeLimit);
    }
    let most = partition.max_nodes.unwrap_or(u32::MAX);
    let sizes = &job.spec.node_sizes;
    // None has no task.
    let most_of_sizes = job.spec.tasks.map_or(most, |tasks| most.min(tasks));
    let none =
        !sizes.is_empty() && sizes.ascending(partition.min_nodes.max(job.min_nodes), most_of_sizes).next().is_none();
    if none || job.min_nodes > most || job.max_nodes < partition.min_nodes {
        return Err(Reason::PartitionNodeLimit);
    }
    Ok(())
}

/// Is limit `a` longer than `b`?
pub fn longer(a: TimeLimit, b: TimeLimit) -> bool {
    a != b && a.min(b) == b
}

enum NextTask {
    Whole,
    Index(u32),
    LimitReached,
    Exhausted,
}

/// The tasks of a job that may still start in this pass: itself, or indices of an array under its limit.
struct PendingTasks {
    indices: Option<std::vec::IntoIter<u32>>,
    room: Option<u32>,
}

impl PendingTasks {
    fn new(
        view: &ClusterView,
        job: &JobView,
        started: Option<&BTreeSet<u32>>,
        array_started: &BTreeMap<JobId, u32>,
    ) -> Self {
        let array = job.array_pending.as_ref().map(|a| (a, job.id)).or_else(|| {
            // A task that was split off earlier and waits again is still bound by its array's limit.
            job.array_task.and_then(|t| job.spec.array.as_ref().map(|a| (a, t.array_job)))
        });
        let room = array.and_then(|(spec, id)| {
            let running = view.array_running.get(&id).copied().unwrap_or(0);
            let planned = array_started.get(&id).copied().unwrap_or(0);
            spec.limit.map(|limit| limit.saturating_sub(running).saturating_sub(planned))
        });
        let indices = job.array_pending.as_ref().map(|spec| {
            let most = view.policy.max_starts;
            let all = spec.ranges.iter().flat_map(|&(first, last, step)| (first..=last).step_by(step.max(1) as usize));
            let left: Vec<u32> = all.filter(|i| started.is_none_or(|s| !s.contains(i))).take(most).collect();
            left.into_iter()
        });
        Self { indices, room }
    }

    fn next(&mut self) -> NextTask {
        let next = match &mut self.indices {
            None => NextTask::Whole,
            Some(indices) => match indices.next() {
                None => return NextTask::Exhausted,
                Some(index) => NextTask::Index(index),
            },
        };
        match &mut self.room {
            Some(0) => NextTask::LimitReached,
            Some(room) => {
                *room -= 1;
                next
            }
            None => next,
        }
    }
}

/// The earliest time at which the request fits when running jobs end as expected, and where.
pub(super) fn earliest(
    view: &ClusterView,
    now: Timestamp,
    job: JobId,
    request: &Request,
    candidates: &FixedBitSet,
    planned: &[PlannedHold],
) -> Option<(Timestamp, Vec<AllocatedNode>)> {
    let far = now.plus(UNLIMITED_FOR_PLANNING);
    let mut ends: Vec<Timestamp> = candidates
        .ones()
        .filter_map(|place| view.nodes.get(place))
        .flat_map(|node| node.holds.iter().map(move |h| h.expected_end.unwrap_or(far).max(now)))
        .chain(planned.iter().map(|p| p.end))
        .chain([now])
        .collect();
    ends.sort_unstable();
    ends.dedup();
    let closed = view.reservations.closed_cpus(request.reservation, now, now, NEVER);
    // Room only grows with time here, so the first time that fits can be searched for by halves.
    let fits = |at: Timestamp| {
        let machine = if at >= far { Machine::idle(view) } else { Machine::at(view, at, planned, job) };
        select::place(&machine.without_cpus(closed.clone()), request, candidates)
    };
    let (mut low, mut high) = (0, ends.len());
    let mut best = None;
    while low < high {
        let middle = low + (high - low) / 2;
        match fits(ends[middle]) {
            Some(nodes) => {
                best = Some((ends[middle], nodes));
                high = middle;
            }
            None => low = middle + 1,
        }
    }
    best
}
