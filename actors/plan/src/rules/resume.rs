//! Which suspended runs are resumed. Pure: it reads the snapshot of a plan and names runs. Their owners ask the nodes, which
//! never give away CPUs that another job holds.
//!
//! A run is resumed when its CPUs are not held by another job and the plan neither gives nor keeps them. Runs of higher tiers go
//! first, then those that started first. A waiting job that may not preempt the run comes after it: to that job, CPUs of
//! suspended runs are taken.
//!
//! A plan that stopped before it had considered all jobs leaves a run's CPUs to the remaining jobs that may preempt it on its
//! nodes, for `LEFT_TO_OTHERS`. Without this limit, the run would never be resumed where every plan stops early.

use crate::{
    proposals::ResumeProposal,
    snapshot::{
        caps::CpuCaps,
        facts::{ClusterView, PartitionSharing},
        preempt::Claim,
        request::{NodeUse, Owner},
    },
};
use garrick_model::{
    resources::CpuSet,
    spec::Sharing,
    state::JobState,
    time::Timestamp,
    view::{AllocatedNode, JobView, NodeHold},
};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, btree_map},
    time::Duration,
};

/// For this long after a run was suspended, its CPUs are left to jobs that may preempt it and were not considered. Then it is
/// resumed; such a job may preempt it again when it is considered.
pub(crate) const LEFT_TO_OTHERS: Duration = Duration::from_secs(300);

/// A job that holds CPUs of a node, or will.
struct Awake<'v> {
    cpus: &'v CpuSet,
    sharing: Sharing,
    /// Owner; `None`: not known here.
    owner: Option<Owner>,
    /// The most holders that it allows on a CPU.
    most: u32,
    /// Partition; `None`: not known here.
    partition: Option<&'v str>,
}

/// What a plan gives to a job of a node, or keeps for it: the share, its use, and the partition if known.
pub(crate) type Given<'v> = (&'v AllocatedNode, NodeUse, Option<&'v str>);

/// Runs to resume, beside what is given; `unlooked`: jobs that the plan did not consider.
pub(crate) fn resumptions<'v>(
    view: &'v ClusterView,
    now: Timestamp,
    given: impl Iterator<Item = Given<'v>>,
    unlooked: impl Iterator<Item = Claim<'v>>,
) -> Vec<ResumeProposal> {
    let waits = |job: &&JobView| {
        let for_another = job.suspended.is_some_and(|times| times.yielded.is_some() && !times.by_admin);
        job.state == JobState::Suspended && for_another
    };
    let mut waiting: Vec<&JobView> = view.working.values().map(|job| &**job).filter(waits).collect();
    let tier = |job: &JobView| {
        let partition = view.partition(&job.allocation.as_ref()?.partition)?;
        Some(partition.1.tier)
    };
    if waiting.is_empty() {
        return Vec::new();
    }
    waiting.sort_by_key(|job| (Reverse(tier(job)), job.start_time, job.id));
    let unlooked = strongest(view, unlooked);
    let mut planned = planned(given);
    let mut proposals = Vec::new();
    for job in waiting {
        let own: Vec<(usize, &NodeHold)> = holds_of(view, job).collect();
        let is_wanted = |claim: &Claim<'_>| {
            own.iter().any(|(place, _)| view.partitions[claim.partition].nodes.contains(*place))
                && view.policy.preempt.way(view, *claim, job).is_some()
        };
        let is_fresh = job.suspended.is_some_and(|times| now.since(times.at) < LEFT_TO_OTHERS);
        if is_fresh && unlooked.iter().any(is_wanted) {
            continue;
        }
        let free = own.iter().all(|(place, own)| {
            let others = view.nodes[*place].holds.iter().filter(|hold| hold.sluid != own.sluid && !hold.parked);
            let others: Vec<Awake<'_>> = others.map(|hold| awake(view, hold)).collect();
            let besides = planned.get(place).map(Vec::as_slice).unwrap_or_default();
            may_wake(own, most_holders(view, own), &[&others, besides])
                && caps_allow(view, *place, own, &[&others, besides])
        });
        if free && !own.is_empty() {
            for (place, own) in own {
                planned.entry(place).or_default().push(awake(view, own));
            }
            proposals.push(ResumeProposal { pass: 0, job: job.id, sluid: job.sluid });
        }
    }
    proposals
}

/// Of the claims that may preempt the same runs, the one of the highest priority.
fn strongest<'v>(view: &'v ClusterView, claims: impl Iterator<Item = Claim<'v>>) -> Vec<Claim<'v>> {
    let mut strongest: BTreeMap<_, Claim<'v>> = BTreeMap::new();
    for claim in claims {
        let spec = &claim.job.spec;
        let qos = view.qos.of(claim.job).map(|(name, _)| name);
        match strongest.entry((claim.partition, qos, spec.mcs_label.as_deref(), spec.sharing == Sharing::Mcs)) {
            btree_map::Entry::Vacant(place) => _ = place.insert(claim),
            btree_map::Entry::Occupied(mut known) if known.get().job.priority < claim.job.priority => {
                known.insert(claim);
            }
            btree_map::Entry::Occupied(_) => {}
        }
    }
    strongest.into_values().collect()
}

/// The same by node.
fn planned<'v>(given: impl Iterator<Item = Given<'v>>) -> BTreeMap<usize, Vec<Awake<'v>>> {
    let mut planned: BTreeMap<usize, Vec<Awake<'v>>> = BTreeMap::new();
    for (node, usage, partition) in given {
        let most = if matches!(usage, NodeUse::Oversubscribe(_)) { usage.most_holders() } else { 1 };
        let one = Awake { cpus: &node.share.cpus, sharing: usage.sharing(), owner: None, most, partition };
        planned.entry(node.index.0 as usize).or_default().push(one);
    }
    planned
}

fn awake<'v>(view: &ClusterView, hold: &'v NodeHold) -> Awake<'v> {
    Awake {
        cpus: &hold.share.cpus,
        sharing: hold.sharing,
        owner: Some(Owner::of(hold)),
        most: most_holders(view, hold),
        partition: hold.partition.as_deref(),
    }
}

/// The run's holds on its nodes.
fn holds_of<'v>(view: &'v ClusterView, job: &'v JobView) -> impl Iterator<Item = (usize, &'v NodeHold)> {
    let nodes = job.allocation.iter().flat_map(|allocation| &allocation.nodes).map(|node| node.index.0 as usize);
    nodes.filter_map(|place| {
        let hold = view.nodes.get(place)?.holds.iter().find(|hold| hold.sluid == job.sluid)?;
        Some((place, hold))
    })
}

/// The most holders that share a CPU with this hold.
fn most_holders(view: &ClusterView, hold: &NodeHold) -> u32 {
    if hold.sharing != Sharing::Oversubscribe {
        return 1;
    }
    let job = view.working.get(&hold.job).and_then(|job| job.allocation.as_ref());
    match job.and_then(|allocation| view.partition(&allocation.partition)).map(|(_, facts)| facts.sharing) {
        Some(PartitionSharing::Yes(most) | PartitionSharing::Force(most)) => most,
        _ => 1,
    }
}

/// Do the limits of its partition allow its CPUs, besides those that the partition's jobs hold?
fn caps_allow(view: &ClusterView, place: usize, own: &NodeHold, others: &[&[Awake<'_>]]) -> bool {
    let Some((_, partition)) = own.partition.as_deref().and_then(|name| view.partition(name)) else { return true };
    if own.sharing == Sharing::Exclusive || partition.caps == CpuCaps::NONE {
        return true;
    }
    let mut cpus = own.share.cpus.clone();
    let same = others.iter().copied().flatten().filter(|other| other.partition == own.partition.as_deref());
    same.for_each(|other| cpus.add(other.cpus));
    partition.caps.allow(&view.nodes[place].shape, &cpus)
}

/// Do the other jobs leave it its CPUs? No more is granted than the node's own account grants.
fn may_wake(own: &NodeHold, most: u32, others: &[&[Awake<'_>]]) -> bool {
    let others = || others.iter().copied().flatten();
    let owner = Owner::of(own);
    let same_user = |other: &Awake<'_>| other.owner.is_some_and(|other| other.user == owner.user);
    let same_label = |other: &Awake<'_>| other.owner.is_some_and(|other| other.label == owner.label);
    let welcome = match own.sharing {
        Sharing::Exclusive => others().next().is_none(),
        Sharing::User => {
            others().all(|other| !matches!(other.sharing, Sharing::Exclusive | Sharing::Mcs) && same_user(other))
        }
        Sharing::Mcs => {
            others().all(|other| !matches!(other.sharing, Sharing::Exclusive | Sharing::User) && same_label(other))
        }
        _ => others().all(|other| match other.sharing {
            Sharing::Exclusive => false,
            Sharing::User => same_user(other),
            Sharing::Mcs => same_label(other),
            _ => true,
        }),
    };
    welcome
        && own.share.cpus.iter().all(|cpu| {
            let mut holders = 0;
            others().filter(|other| other.cpus.contains(cpu)).all(|other| {
                holders += 1;
                let both = own.sharing == Sharing::Oversubscribe && other.sharing == Sharing::Oversubscribe;
                both && holders < most.min(other.most)
            })
        })
}
