//! One search for runs to preempt for a job: where it would fit without them, and which of them can be spared.

use crate::{
    proposals::PreemptProposal,
    room::{
        hres,
        licenses::LicensePlan,
        machine::{Machine, PlannedHold},
        node::room::Remains,
    },
    snapshot::{
        facts::ClusterView,
        preempt::{Claim, Way},
        request::{NodeUse, Owner, Request},
    },
};
use fixedbitset::FixedBitSet;
use garrick_model::{
    config::PreemptMode,
    ids::JobId,
    resources::CpuSet,
    spec::Sharing,
    spec_text::licenses::Licenses,
    state::JobState,
    time::Timestamp,
    view::{AllocatedNode, JobView, NodeHold},
};
use rustc_hash::{FxHashMap, FxHashSet};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// Resources that a job gets after preemption.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    /// The nodes and shares.
    pub(crate) nodes: Vec<AllocatedNode>,
    /// Runs that have to be preempted. Empty: all that are in the way are ending already.
    pub(crate) victims: Vec<PreemptProposal>,
    /// All runs that end with them, including the components of heterogeneous jobs.
    pub(crate) gone: Vec<(JobId, PreemptMode)>,
    /// Licenses, and what it takes of hierarchical resources.
    pub(crate) licenses: Licenses,
    /// When the last of them is expected to end.
    pub(crate) from: Timestamp,
}

/// A job that may be preempted: one run, or those of all components of a heterogeneous job, the leader's first.
#[derive(Clone, Debug)]
struct Victim<'v> {
    job: &'v JobView,
    runs: Vec<&'v JobView>,
    way: Way,
    cpus: u32,
}

impl Victim<'_> {
    /// The order in which they are named.
    fn order(&self, youngest_first: bool) -> impl Ord + use<> {
        let start = youngest_first.then_some(Reverse(self.job.start_time));
        (self.way.rank, start, Reverse(self.cpus), self.job.id)
    }

    fn nodes(&self) -> impl Iterator<Item = usize> + '_ {
        self.runs.iter().flat_map(|job| nodes_of(job))
    }
}

/// What a request needs besides nodes: licenses for some time.
#[derive(Clone, Copy)]
pub(crate) struct Fees<'s> {
    /// Current and planned use of licenses.
    pub(crate) licenses: &'s LicensePlan,
    /// How long it needs them.
    pub(crate) length: Duration,
}

/// Where a request fits, and what it needs besides nodes.
#[derive(Clone, Debug)]
struct Found {
    nodes: Vec<AllocatedNode>,
    licenses: Licenses,
}

/// A choice of runs to preempt.
struct Choice<'v> {
    victims: Vec<Victim<'v>>,
    found: Found,
    /// Position in the tried order of the last run that was needed.
    last: usize,
}

/// One search for resources.
pub(super) struct Search<'s> {
    pub(super) view: &'s ClusterView,
    pub(super) now: Timestamp,
    pub(super) claim: Claim<'s>,
    pub(super) request: &'s Request,
    pub(super) open: &'s FixedBitSet,
    pub(super) planned: &'s [PlannedHold],
    pub(super) named: &'s BTreeMap<JobId, PreemptMode>,
    pub(super) closed: BTreeMap<usize, CpuSet>,
    pub(super) fees: Fees<'s>,
}

impl<'s> Search<'s> {
    pub(super) fn run(&self, by: JobId) -> Option<Room> {
        if let Some(found) = self.place(&[]) {
            let not_yet = |hold: &NodeHold| self.leaves(hold) || (!hold.parked && self.will_stand_aside(hold));
            let waits = found.nodes.iter().any(|n| self.view.nodes[n.index.0 as usize].holds.iter().any(not_yet))
                || !self.has_licenses_now(&found.nodes);
            return waits.then(|| self.room(by, found, &[]));
        }
        let rules = &self.view.policy.preempt;
        let mut order = self.victims();
        order.sort_by_key(|victim| victim.order(rules.youngest_first));
        self.place(&order)?;
        let mut best = self.choose(&order)?;
        let mut last = best.last;
        for _ in 0..rules.reorders {
            if best.victims.len() == 1 {
                break;
            }
            if rules.strict_order {
                let needed = order.remove(last);
                order.insert(0, needed);
            } else {
                order.sort_by_key(|victim| Reverse(victim.cpus));
            }
            let next = self.choose(&order)?;
            last = next.last;
            if next.victims.len() < best.victims.len() {
                best = next;
            } else if !rules.strict_order {
                // The same order again.
                break;
            }
        }
        Some(self.room(by, best.found, &best.victims))
    }

    /// The shortest beginning of that order that frees enough, without runs that are not needed.
    fn choose(&self, order: &[Victim<'s>]) -> Option<Choice<'s>> {
        let (mut low, mut high) = (1, order.len());
        while low < high {
            let middle = low + (high - low) / 2;
            if self.place(&order[..middle]).is_some() {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        let last = high.checked_sub(1)?;
        let mut victims = order[..high].to_vec();
        let mut found = self.place(&victims)?;
        // Most of them are on other nodes.
        let there: FxHashSet<usize> = found.nodes.iter().map(|n| n.index.0 as usize).collect();
        let is_near = |victim: &&Victim<'_>| victim.nodes().any(|node| there.contains(&node));
        let near: Vec<Victim<'_>> = victims.iter().filter(is_near).cloned().collect();
        if let Some(same) = self.place(&near) {
            (victims, found) = (near, same);
        }
        loop {
            let before = victims.len();
            for at in (0..victims.len()).rev() {
                let mut without = victims.clone();
                without.remove(at);
                if let Some(same) = self.place(&without) {
                    (victims, found) = (without, same);
                }
            }
            if victims.len() == before {
                return Some(Choice { victims, found, last });
            }
        }
    }

    /// Will the hold be released without a preemption?
    fn leaves(&self, hold: &NodeHold) -> bool {
        !hold.kept
            && (hold.completing
                || self.is_named(hold.job)
                || self.view.working.get(&hold.job).is_some_and(|job| job.sluid == hold.sluid && self.ends(job)))
    }

    fn is_named(&self, job: JobId) -> bool {
        self.named.get(&job).is_some_and(|mode| *mode != PreemptMode::Suspend)
    }

    /// Does the run end without a preemption?
    fn ends(&self, job: &JobView) -> bool {
        job.state == JobState::Completing || job.preempted.is_some() || self.is_named(job.id)
    }

    /// Is the run suspended for another, so that the request may have its CPUs?
    pub(super) fn stands_aside(&self, hold: &NodeHold) -> bool {
        hold.parked && !hold.completing && self.may_have_cpus_of(hold)
    }

    /// Is it suspended, or will it be without a further request?
    fn will_stand_aside(&self, hold: &NodeHold) -> bool {
        let told = |job: &JobView| {
            job.sluid == hold.sluid && job.suspended.is_some_and(|suspended| suspended.yielded.is_some())
        };
        let goes = hold.parked
            || self.named.get(&hold.job) == Some(&PreemptMode::Suspend)
            || self.view.working.get(&hold.job).is_some_and(|job| told(job));
        goes && !hold.kept && !hold.completing && self.may_have_cpus_of(hold)
    }

    /// May a suspended run be preempted by this request?
    fn may_have_cpus_of(&self, hold: &NodeHold) -> bool {
        self.may_be_neighbours(hold) && self.view.working.get(&hold.job).is_some_and(|job| self.way(job).is_some())
    }

    fn way(&self, job: &JobView) -> Option<Way> {
        self.view.policy.preempt.way(self.view, self.claim, job)
    }

    /// A hold that keeps its node for a user or an MCS label keeps it while it is suspended.
    fn may_be_neighbours(&self, hold: &NodeHold) -> bool {
        // The node's account puts no whole-node job beside one that keeps the node for its user or label.
        let kept = matches!(hold.sharing, Sharing::User | Sharing::Mcs);
        if kept && self.request.usage == NodeUse::Whole {
            return false;
        }
        let owner = Owner::of(hold);
        let for_user = hold.sharing == Sharing::User || self.request.usage == NodeUse::User;
        let for_label = hold.sharing == Sharing::Mcs || self.request.usage == NodeUse::Label;
        match (for_user, for_label) {
            (true, true) => false,
            (true, false) => owner.user == self.request.owner.user,
            (false, true) => owner.label == self.request.owner.label,
            (false, false) => true,
        }
    }

    /// Where the request fits now, with runs suspended as they are.
    pub(super) fn place_now(&self) -> Option<Vec<AllocatedNode>> {
        let remains = |hold: &NodeHold| if self.stands_aside(hold) { Remains::ButCpus } else { Remains::All };
        self.place_where(remains, |_| false).map(|found| found.nodes)
    }

    fn place_where(&self, remains: impl Fn(&NodeHold) -> Remains, gone: impl Fn(&JobView) -> bool) -> Option<Found> {
        let (mut licenses, layers) = self.licenses_without(gone)?;
        let machine = Machine::without(self.view, self.planned, remains).without_cpus(self.closed.clone());
        let nodes = hres::place(&machine, self.request, self.open, None, layers.as_ref())?;
        if let Some(layers) = layers {
            licenses.0.extend(layers.share(&hres::places(&nodes))?.0);
        }
        Some(Found { nodes, licenses })
    }

    /// Where the request fits after these runs are gone too.
    fn place(&self, victims: &[Victim<'_>]) -> Option<Found> {
        let gone: FxHashMap<JobId, PreemptMode> =
            victims.iter().flat_map(|victim| victim.runs.iter().map(|run| (run.id, victim.way.mode))).collect();
        let remains = |hold: &NodeHold| match gone.get(&hold.job).filter(|_| !hold.kept) {
            _ if self.leaves(hold) => Remains::Nothing,
            _ if self.will_stand_aside(hold) => Remains::ButCpus,
            Some(PreemptMode::Suspend) => Remains::ButCpus,
            Some(_) => Remains::Nothing,
            None => Remains::All,
        };
        let ends =
            |job: &JobView| self.ends(job) || gone.get(&job.id).is_some_and(|mode| *mode != PreemptMode::Suspend);
        self.place_where(remains, ends)
    }

    /// Licenses that it would get without those jobs, and what would be free of layers; `None`: too few.
    fn licenses_without(&self, gone: impl Fn(&JobView) -> bool) -> Option<(Licenses, Option<hres::Room<'s>>)> {
        let (text, facts) = (self.request.licenses.as_deref(), &self.view.licenses);
        if text.is_none() && self.request.hres.is_none() {
            return Some((Licenses::default(), None));
        }
        let mut left = self.fees.licenses.clone();
        if self.reclaims() {
            // What jobs inside a reservation hold returns to the reservation.
            let free = facts.held.iter().filter(|(job, _, _)| !facts.inside.contains_key(job));
            for (_, licenses, end) in free.filter(|(job, _, _)| self.view.working.get(job).is_some_and(|j| gone(j))) {
                left.give_back(licenses, *end, self.now);
            }
        }
        let licenses = left.at(text, self.now, self.fees.length)?;
        Some((licenses, hres::Room::within(&facts.hres, &left, self.request, self.now, self.fees.length)))
    }

    fn has_licenses_now(&self, nodes: &[AllocatedNode]) -> bool {
        let enough = |layers: &hres::Room<'_>| layers.share(&hres::places(nodes)).is_some();
        self.licenses_without(|_| false).is_some_and(|(_, layers)| layers.as_ref().is_none_or(enough))
    }

    /// As in Slurm, not for a request with alternatives.
    fn reclaims(&self) -> bool {
        let choice = self.request.licenses.as_ref().is_some_and(|text| text.contains('|'));
        self.view.policy.preempt.reclaim_licenses && !choice
    }

    /// Jobs that hold some of the licenses that it names.
    fn licensees(&self) -> Vec<&'s JobView> {
        let (request, facts) = (self.request, &self.view.licenses);
        if !self.reclaims() || (request.licenses.is_none() && request.hres.is_none()) {
            return Vec::new();
        }
        let named: Option<Licenses> = request.licenses.as_ref().and_then(|text| text.parse().ok());
        let layers = request.hres.iter().flat_map(|asks| asks.iter());
        let layers = layers.filter_map(|ask| facts.hres.resources.get(ask.resource)).flat_map(|one| &one.layers);
        let mut wanted: BTreeSet<&str> = layers.map(|layer| layer.name.as_str()).collect();
        wanted.extend(named.iter().flat_map(|licenses| &licenses.0).map(|license| license.name.as_str()));
        let has = |licenses: &Licenses| licenses.0.iter().any(|license| wanted.contains(license.name.as_str()));
        let held = facts.held.iter().filter(|(_, licenses, _)| has(licenses));
        held.filter_map(|(job, _, _)| self.view.working.get(job).map(|job| &**job)).collect()
    }

    /// All jobs on these nodes that may be preempted, and those whose licenses it could have.
    fn victims(&self) -> Vec<Victim<'s>> {
        let mut found: BTreeMap<JobId, Option<Victim<'s>>> = BTreeMap::new();
        for hold in self.open.ones().filter_map(|place| self.view.nodes.get(place)).flat_map(|node| &node.holds) {
            if hold.kept || self.leaves(hold) || self.will_stand_aside(hold) {
                continue;
            }
            let Some(job) = self.view.working.get(&hold.job).filter(|job| job.sluid == hold.sluid) else { continue };
            let victim = found.entry(first_of(job)).or_insert_with(|| self.victim(job));
            let suspends = victim.as_ref().is_some_and(|victim| victim.way.mode == PreemptMode::Suspend);
            let stands = matches!(job.state, JobState::Running | JobState::Suspended) && !hold.parked;
            if suspends && !(stands && self.may_be_neighbours(hold)) {
                *victim = None;
            }
        }
        for job in self.licensees() {
            found.entry(first_of(job)).or_insert_with(|| {
                self.victim(job).filter(|victim| victim.way.mode != PreemptMode::Suspend && !self.ends(job))
            });
        }
        found.into_values().flatten().collect()
    }

    /// The job as a candidate. All components of a heterogeneous job have to be candidates; it is not suspended.
    fn victim(&self, job: &'s JobView) -> Option<Victim<'s>> {
        let runs: Vec<&JobView> = match job.spec.het {
            None => vec![job],
            Some((leader, _)) => {
                let all = self.view.working.range(leader..JobId(leader.0.saturating_add(job.spec.het_size)));
                let runs = all.map(|(_, job)| &**job).filter(|run| first_of(run) == leader && !self.ends(run));
                runs.collect()
            }
        };
        let first = *runs.first().filter(|first| first.id == first_of(job))?;
        let way = |run: &&JobView| self.way(run).filter(|way| self.eligible(run, *way) <= self.now);
        let ways: Vec<Way> = runs.iter().map(way).collect::<Option<_>>()?;
        let mode = ways.iter().map(|way| way.mode).max_by_key(|mode| weight(*mode))?;
        if mode == PreemptMode::Suspend && job.spec.het.is_some() {
            return None;
        }
        let rank = ways.iter().map(|way| way.rank).max()?;
        let grace = ways.iter().map(|way| way.grace).max()?;
        let way = Way { rank, mode, grace, ..ways[0] };
        let allocations = runs.iter().filter_map(|run| run.allocation.as_ref());
        let cpus = allocations.flat_map(|all| &all.nodes).map(|node| node.share.cpus.len()).sum();
        Some(Victim { job: first, runs, way, cpus })
    }

    /// From when on the run may be preempted.
    fn eligible(&self, job: &JobView, way: Way) -> Timestamp {
        job.start_time.unwrap_or(self.now).plus(way.exempt)
    }

    fn room(&self, by: JobId, found: Found, victims: &[Victim<'_>]) -> Room {
        let Found { nodes, licenses } = found;
        let there = nodes.iter().flat_map(|n| &self.view.nodes[n.index.0 as usize].holds);
        let there = there.filter_map(|hold| self.view.working.get(&hold.job).map(|job| &**job));
        let times = |job: &JobView| {
            let yielded = || job.suspended.and_then(|suspended| suspended.yielded);
            job.preempted.or_else(yielded).map(|times| times.ends)
        };
        let leaving = there.chain(self.licensees()).filter_map(times);
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
        let gone = victims.iter().flat_map(|victim| victim.runs.iter().map(|run| (run.id, victim.way.mode))).collect();
        Room { nodes, victims: victims.iter().map(proposal).collect(), gone, licenses, from }
    }
}

/// The job that represents the whole: the leader of a heterogeneous job.
fn first_of(job: &JobView) -> JobId {
    job.spec.het.map_or(job.id, |(leader, _)| leader)
}

/// If components would be preempted in different ways, the strongest applies to all (slurm.conf(5)).
const fn weight(mode: PreemptMode) -> u8 {
    match mode {
        PreemptMode::Off => 0,
        PreemptMode::Cancel => 1,
        PreemptMode::Requeue => 2,
        PreemptMode::Suspend => 3,
    }
}

fn nodes_of(job: &JobView) -> impl Iterator<Item = usize> + '_ {
    job.allocation.iter().flat_map(|allocation| allocation.nodes.iter().map(|node| node.index.0 as usize))
}
