//! Which running jobs give way to one that waits. Pure: reads the picture of a plan and names runs; their owners dispose.
//!
//! Who may preempt whom is [`PreemptRules::way`]'s to say. Of those that may be, as few as possible are named:
//!
//! 1. what ends anyhow (runs that are being cleaned up or were told to go) counts as gone, and where that is enough nobody
//!    is named;
//! 2. jobs of the lowest tier go first, among them with `youngest_first` those that started last, then those with more
//!    CPUs, then by id: the shortest beginning of that list that makes room;
//! 3. of those, in the opposite order, everyone is spared without whom there is room all the same.
//!
//! Who is only suspended makes room of CPUs alone. His CPUs are free to all jobs that he gives way to, also to those that come
//! later, and taken to all others: see [`super::resume`].
//!
//! Nodes on which room is reserved for a job that goes before are left alone, and so are jobs whose licenses would be needed:
//! a job that waits for licenses preempts nobody, and neither does one that asks for hierarchical resources.

use super::{
    facts::{ClusterView, UNLIMITED_FOR_PLANNING},
    machine::{Machine, PlannedHold, Remains},
    plan::Reservation,
    request::{NodeUse, Request},
    select,
};
use fixedbitset::FixedBitSet;
use garrick_model::{
    config::{PreemptMode, PreemptType},
    ids::{JobId, Sluid},
    resources::CpuSet,
    spec::Sharing,
    state::JobState,
    time::Timestamp,
    view::{AllocatedNode, JobView, NodeHold},
};
use rustc_hash::{FxHashMap, FxHashSet};
use std::{cmp::Reverse, collections::BTreeMap, time::Duration};

/// Jobs for which a pass looks for others that give way, at most: each look is several at every node.
const MOST_TRIED: usize = 100;

/// Who may preempt whom.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PreemptRules {
    /// `PreemptType`.
    pub kind: PreemptType,
    /// `PreemptMode`: of partitions that have none of their own.
    pub mode: PreemptMode,
    /// `WITHIN` and `PRIORITY` of that.
    pub within: bool,
    /// Likewise.
    pub by_priority: bool,
    /// `PreemptExemptTime`: runs are left alone for so long.
    pub exempt: Duration,
    /// `min_exempt_priority`: jobs of this priority and above are left alone.
    pub exempt_from: Option<u32>,
    /// `youngest_first`: of one tier, runs that started last go first.
    pub youngest_first: bool,
    /// `suspend_grace_time`: for runs that are only suspended, from being told to standing still.
    pub suspend_grace: Duration,
    /// `SchedulerTimeSlice`, where jobs that share CPUs take turns (`GANG`).
    pub time_slice: Option<Duration>,
}

/// How the jobs of a partition, or of a QOS, give way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Yielding {
    /// `PreemptMode`; `None`: the cluster's.
    pub mode: Option<PreemptMode>,
    /// `WITHIN` of that: to jobs of the same QOS too. Counts besides the cluster's.
    pub within: bool,
    /// `PRIORITY` of that: only to jobs of a higher priority. Counts besides the cluster's.
    pub by_priority: bool,
    /// `GraceTime`: from being told to the end.
    pub grace: Duration,
}

/// A run that has to give way, as proposed to the job's owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreemptProposal {
    /// Number of the pass, set when proposals are sent; answers name it.
    pub pass: u64,
    /// Whose.
    pub job: JobId,
    /// Which run: a later one is not meant.
    pub sluid: Sluid,
    /// To whom.
    pub by: JobId,
    /// How. Never [`PreemptMode::Off`].
    pub mode: PreemptMode,
    /// From being told to the end.
    pub grace: Duration,
    /// From when on it could be preempted.
    pub eligible: Timestamp,
    /// When the other is expected to end.
    pub until: Option<Timestamp>,
}

/// How a certain job gives way to a certain other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// Lower ones go first.
    pub rank: u32,
    /// How. Never [`PreemptMode::Off`].
    pub mode: PreemptMode,
    /// From being told to the end.
    pub grace: Duration,
    /// From its start until it may be preempted.
    pub exempt: Duration,
}

/// Who asks others to give way: a job that waits, in one of its partitions.
#[derive(Clone, Copy, Debug)]
pub struct Claim<'c> {
    /// Job.
    pub job: &'c JobView,
    /// Place of the partition.
    pub partition: usize,
}

/// What makes two claims the same besides what they ask for.
type Rank = (Option<String>, Option<u32>);

impl PreemptRules {
    /// Somebody may preempt somebody.
    pub fn is_on(&self) -> bool {
        self.kind != PreemptType::None
    }

    /// How a job that has nodes gives way to one that waits; `None`: it does not.
    pub fn way(&self, view: &ClusterView, claim: Claim<'_>, runs: &JobView) -> Option<Way> {
        let (_, runs_in) = view.partition(&runs.allocation.as_ref()?.partition)?;
        let tier = view.partitions[claim.partition].tier;
        let (rank, yielding, exempt) = match self.kind {
            PreemptType::None => return None,
            PreemptType::PartitionPrio => {
                (runs_in.tier < tier).then_some((runs_in.tier, &runs_in.yielding, self.exempt))?
            }
            PreemptType::Qos => {
                let ((own, asks), (name, gives)) = (view.qos.of(claim.job)?, view.qos.of(runs)?);
                let within = own == name && (gives.yielding.within || self.within);
                let may = within || asks.preempts.contains(name);
                may.then_some((gives.priority, &gives.yielding, gives.exempt.unwrap_or(self.exempt)))?
            }
        };
        let mode = yielding.mode.unwrap_or(self.mode);
        // With QOS, as in Slurm: to one in the same partition, or in one of a higher tier.
        let near = || runs_in.tier < tier || runs_in.name == view.partitions[claim.partition].name;
        let never = match mode {
            PreemptMode::Off => true,
            PreemptMode::Suspend => !near(),
            PreemptMode::Cancel | PreemptMode::Requeue => false,
        };
        let by_priority = self.by_priority || yielding.by_priority;
        let outranked = by_priority && runs.priority >= claim.job.priority;
        let spared = self.exempt_from.is_some_and(|least| runs.priority >= least);
        let grace = if mode == PreemptMode::Suspend { self.suspend_grace } else { yielding.grace };
        (!never && !outranked && !spared).then_some(Way { rank, mode, grace, exempt })
    }

    /// Might anybody give way to it at all?
    fn may_preempt(&self, view: &ClusterView, claim: Claim<'_>) -> bool {
        match self.kind {
            PreemptType::None => false,
            PreemptType::PartitionPrio => {
                let tier = view.partitions[claim.partition].tier;
                let gives = |mode: Option<PreemptMode>| mode.unwrap_or(self.mode) != PreemptMode::Off;
                view.partitions.iter().any(|other| other.tier < tier && gives(other.yielding.mode))
            }
            PreemptType::Qos => view
                .qos
                .of(claim.job)
                .is_some_and(|(_, qos)| !qos.preempts.is_empty() || qos.yielding.within || self.within),
        }
    }

    /// What of a claim decides who gives way to it, besides its partition.
    fn rank(&self, view: &ClusterView, claim: Claim<'_>) -> Rank {
        let minds_priority = self.by_priority
            || view.partitions.iter().any(|partition| partition.yielding.by_priority)
            || view.qos.all().any(|qos| qos.yielding.by_priority);
        let qos = (self.kind == PreemptType::Qos).then(|| view.qos.of(claim.job)).flatten();
        (qos.map(|(name, _)| name.to_owned()), minds_priority.then_some(claim.job.priority))
    }
}

/// Room that a job gets when others have gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Room {
    /// Where, and what.
    pub(super) nodes: Vec<AllocatedNode>,
    /// Who has to go. None: all who are in the way go already.
    pub(super) victims: Vec<PreemptProposal>,
    /// When the last of them is expected to end.
    pub(super) from: Timestamp,
}

/// A run that may be named.
#[derive(Clone, Copy, Debug)]
struct Victim<'v> {
    job: &'v JobView,
    way: Way,
    cpus: u32,
}

impl Victim<'_> {
    /// In which order they are named.
    fn order(&self, youngest_first: bool) -> impl Ord + use<> {
        let start = youngest_first.then_some(Reverse(self.job.start_time));
        (self.way.rank, start, Reverse(self.cpus), self.job.id)
    }
}

/// What is decided on preemption in one pass.
#[derive(Clone, Debug, Default)]
pub(super) struct Preemption {
    /// Named in this pass, and how they go.
    named: BTreeMap<JobId, PreemptMode>,
    /// Requests for which nobody's end makes room.
    failed: FxHashSet<(Request, Rank)>,
    /// Requests for which those that are suspended leave no room.
    failed_over_suspended: FxHashSet<(Request, Rank)>,
    tried: usize,
    tried_over_suspended: usize,
}

impl Preemption {
    /// Room for a job that did not fit, within `candidates` but for nodes reserved for jobs before it; `None`: nobody's end
    /// helps, or it need not.
    pub(super) fn room(
        &mut self,
        view: &ClusterView,
        now: Timestamp,
        (job, request, candidates): (&JobView, &Request, &FixedBitSet),
        (planned, reserved): (&[PlannedHold], &[Reservation]),
    ) -> Option<Room> {
        let rules = &view.policy.preempt;
        let claim = Claim { job, partition: request.partition };
        if !rules.may_preempt(view, claim) || self.tried >= MOST_TRIED {
            return None;
        }
        let key = (request.clone(), rules.rank(view, claim));
        if self.failed.contains(&key) {
            return None;
        }
        self.tried += 1;
        let open = without_reserved(now, request, candidates, reserved);
        let closed = closed_cpus(view, now, request);
        let search = Search { view, now, claim, request, open: &open, planned, named: &self.named, closed };
        let found = search.run(job.id);
        match &found {
            Some(room) => self.named.extend(room.victims.iter().map(|victim| (victim.job, victim.mode))),
            None => {
                self.failed.insert(key);
            }
        }
        found
    }

    /// Room that a job gets at once of runs that stand still for such as it, likewise.
    pub(super) fn room_over_suspended(
        &mut self,
        view: &ClusterView,
        now: Timestamp,
        (job, request, candidates): (&JobView, &Request, &FixedBitSet),
        (planned, reserved): (&[PlannedHold], &[Reservation]),
    ) -> Option<Vec<AllocatedNode>> {
        let rules = &view.policy.preempt;
        if !rules.is_on() || self.tried_over_suspended >= MOST_TRIED {
            return None;
        }
        let claim = Claim { job, partition: request.partition };
        let key = (request.clone(), rules.rank(view, claim));
        if self.failed_over_suspended.contains(&key) {
            return None;
        }
        let open = without_reserved(now, request, candidates, reserved);
        let closed = closed_cpus(view, now, request);
        let search = Search { view, now, claim, request, open: &open, planned, named: &self.named, closed };
        let parked = |place: usize| view.nodes[place].holds.iter().any(|hold| search.stands_aside(hold));
        let found = open.ones().any(parked).then(|| {
            self.tried_over_suspended += 1;
            search.place_now()
        });
        let found = found.flatten();
        if found.is_none() {
            self.failed_over_suspended.insert(key);
        }
        found
    }
}

/// CPUs that are reserved for others before it would end.
fn closed_cpus(view: &ClusterView, now: Timestamp, request: &Request) -> BTreeMap<usize, CpuSet> {
    view.reservations.closed_cpus(request.reservation, now, now, end_of(now, request))
}

fn end_of(now: Timestamp, request: &Request) -> Timestamp {
    now.plus(request.limit_secs.map_or(UNLIMITED_FOR_PLANNING, Duration::from_secs))
}

/// Leaves out nodes of which others have room reserved before it would end.
fn without_reserved(
    now: Timestamp,
    request: &Request,
    candidates: &FixedBitSet,
    reserved: &[Reservation],
) -> FixedBitSet {
    let end = end_of(now, request);
    let mut open = candidates.clone();
    for (node, _) in reserved.iter().filter(|r| r.from < end).flat_map(|r| &r.nodes) {
        open.set(*node, false);
    }
    open
}

/// One search for room.
struct Search<'s> {
    view: &'s ClusterView,
    now: Timestamp,
    claim: Claim<'s>,
    request: &'s Request,
    open: &'s FixedBitSet,
    planned: &'s [PlannedHold],
    named: &'s BTreeMap<JobId, PreemptMode>,
    closed: BTreeMap<usize, CpuSet>,
}

impl<'s> Search<'s> {
    fn run(&self, by: JobId) -> Option<Room> {
        if let Some(nodes) = self.place(&[]) {
            let not_yet = |hold: &NodeHold| self.leaves(hold) || (!hold.parked && self.will_stand_aside(hold));
            let waits = nodes.iter().any(|n| self.view.nodes[n.index.0 as usize].holds.iter().any(not_yet));
            return waits.then(|| self.room(by, nodes, &[]));
        }
        let mut victims = self.victims();
        let youngest_first = self.view.policy.preempt.youngest_first;
        victims.sort_by_key(|victim| victim.order(youngest_first));
        self.place(&victims)?;
        let (mut low, mut high) = (1, victims.len());
        while low < high {
            let middle = low + (high - low) / 2;
            if self.place(&victims[..middle]).is_some() {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        victims.truncate(high);
        let mut nodes = self.place(&victims)?;
        // Most of them are elsewhere.
        let there: FxHashSet<usize> = nodes.iter().map(|n| n.index.0 as usize).collect();
        let near: Vec<Victim<'_>> =
            victims.iter().filter(|v| nodes_of(v.job).any(|n| there.contains(&n))).copied().collect();
        if let Some(same) = self.place(&near) {
            (victims, nodes) = (near, same);
        }
        loop {
            let before = victims.len();
            for at in (0..victims.len()).rev() {
                let mut without = victims.clone();
                without.remove(at);
                if let Some(found) = self.place(&without) {
                    (victims, nodes) = (without, found);
                }
            }
            if victims.len() == before {
                break;
            }
        }
        Some(self.room(by, nodes, &victims))
    }

    /// Will what is held be given back without anybody being told to?
    fn leaves(&self, hold: &NodeHold) -> bool {
        let goes =
            |job: &JobView| job.sluid == hold.sluid && (job.state == JobState::Completing || job.preempted.is_some());
        !hold.kept
            && (hold.completing
                || self.named.get(&hold.job).is_some_and(|mode| *mode != PreemptMode::Suspend)
                || self.view.working.get(&hold.job).is_some_and(|job| goes(job)))
    }

    /// Is it suspended for others, so that the request may have its CPUs?
    fn stands_aside(&self, hold: &NodeHold) -> bool {
        hold.parked && !hold.completing && self.may_have_cpus_of(hold)
    }

    /// Is it, or will it be without being told again?
    fn will_stand_aside(&self, hold: &NodeHold) -> bool {
        let told = |job: &JobView| {
            job.sluid == hold.sluid && job.suspended.is_some_and(|suspended| suspended.yielded.is_some())
        };
        let goes = hold.parked
            || self.named.get(&hold.job) == Some(&PreemptMode::Suspend)
            || self.view.working.get(&hold.job).is_some_and(|job| told(job));
        goes && !hold.kept && !hold.completing && self.may_have_cpus_of(hold)
    }

    /// Does a run that is suspended give way to this request?
    fn may_have_cpus_of(&self, hold: &NodeHold) -> bool {
        self.may_be_neighbours(hold) && self.view.working.get(&hold.job).is_some_and(|job| self.way(job).is_some())
    }

    fn way(&self, job: &JobView) -> Option<Way> {
        self.view.policy.preempt.way(self.view, self.claim, job)
    }

    /// Who keeps a node for his user keeps it when he is suspended too.
    fn may_be_neighbours(&self, hold: &NodeHold) -> bool {
        // The account puts nobody with a whole node beside one that is kept for a user.
        if hold.sharing == Sharing::User && self.request.usage == NodeUse::Whole {
            return false;
        }
        let for_user = hold.sharing == Sharing::User || self.request.usage == NodeUse::User;
        !for_user || hold.uid == self.request.uid
    }

    /// Where the request fits now, with those suspended that are.
    fn place_now(&self) -> Option<Vec<AllocatedNode>> {
        self.place_where(|hold| if self.stands_aside(hold) { Remains::ButCpus } else { Remains::All })
    }

    fn place_where(&self, remains: impl Fn(&NodeHold) -> Remains) -> Option<Vec<AllocatedNode>> {
        let machine = Machine::without(self.view, self.planned, remains).without_cpus(self.closed.clone());
        select::place(&machine, self.request, self.open)
    }

    /// Where the request fits when those have gone too.
    fn place(&self, victims: &[Victim<'_>]) -> Option<Vec<AllocatedNode>> {
        let gone: FxHashMap<JobId, PreemptMode> =
            victims.iter().map(|victim| (victim.job.id, victim.way.mode)).collect();
        self.place_where(|hold: &NodeHold| match gone.get(&hold.job).filter(|_| !hold.kept) {
            _ if self.leaves(hold) => Remains::Nothing,
            _ if self.will_stand_aside(hold) => Remains::ButCpus,
            Some(PreemptMode::Suspend) => Remains::ButCpus,
            Some(_) => Remains::Nothing,
            None => Remains::All,
        })
    }

    /// All runs on these nodes that may be named.
    fn victims(&self) -> Vec<Victim<'s>> {
        let mut found = BTreeMap::new();
        for hold in self.open.ones().filter_map(|place| self.view.nodes.get(place)).flat_map(|node| &node.holds) {
            if hold.kept || found.contains_key(&hold.job) || self.leaves(hold) || self.will_stand_aside(hold) {
                continue;
            }
            let Some(job) = self.view.working.get(&hold.job).filter(|job| job.sluid == hold.sluid) else { continue };
            let Some(allocation) = &job.allocation else { continue };
            let Some(way) = self.way(job) else { continue };
            // Nor part of a heterogeneous job: that would end all of it.
            if self.eligible(job, way) > self.now || job.spec.het.is_some() {
                continue;
            }
            let stands = matches!(job.state, JobState::Running | JobState::Suspended) && !hold.parked;
            if way.mode == PreemptMode::Suspend && !(stands && self.may_be_neighbours(hold)) {
                continue;
            }
            let cpus = allocation.nodes.iter().map(|node| node.share.cpus.len()).sum();
            found.insert(hold.job, Victim { job, way, cpus });
        }
        found.into_values().collect()
    }

    /// From when on the run may be preempted.
    fn eligible(&self, job: &JobView, way: Way) -> Timestamp {
        job.start_time.unwrap_or(self.now).plus(way.exempt)
    }

    fn room(&self, by: JobId, nodes: Vec<AllocatedNode>, victims: &[Victim<'_>]) -> Room {
        let there = nodes.iter().flat_map(|n| &self.view.nodes[n.index.0 as usize].holds);
        let times = |job: &JobView| {
            let yielded = || job.suspended.and_then(|suspended| suspended.yielded);
            job.preempted.or_else(yielded).map(|times| times.ends)
        };
        let leaving = there.filter_map(|hold| times(self.view.working.get(&hold.job)?));
        let told = victims.iter().map(|victim| self.now.plus(victim.way.grace));
        let from = leaving.chain(told).fold(self.now, Timestamp::max);
        let proposal = |victim: &Victim<'_>| PreemptProposal {
            pass: 0,
            job: victim.job.id,
            sluid: victim.job.sluid,
            by,
            mode: victim.way.mode,
            grace: victim.way.grace,
            eligible: self.eligible(victim.job, victim.way),
            until: None,
        };
        Room { nodes, victims: victims.iter().map(proposal).collect(), from }
    }
}

fn nodes_of(job: &JobView) -> impl Iterator<Item = usize> + '_ {
    job.allocation.iter().flat_map(|allocation| allocation.nodes.iter().map(|node| node.index.0 as usize))
}
