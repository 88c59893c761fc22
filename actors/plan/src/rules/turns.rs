//! Gang scheduling: jobs that share CPUs take turns. Pure: it reads the snapshot of a plan and names runs to stop until their
//! turn comes, and runs whose turn it is; their owners stop and continue them.
//!
//! Time is divided into slices of `SchedulerTimeSlice`, the same for all. Jobs are considered one after the other, in the
//! following order; a job has its turn if it shares no CPU with one that was considered before and has its turn:
//!
//! 1. jobs that cannot be stopped (components of heterogeneous jobs, and runs that are ending because of a preemption);
//! 2. jobs whose turn began in this slice;
//! 3. jobs that have waited since an earlier slice, the longest wait first;
//! 4. jobs whose turn began earlier;
//! 5. jobs that started in this slice, or were stopped in it.
//!
//! So at the beginning of a slice, a waiting job is passed over only for one that waited longer and shares a CPU with it, once
//! for each such job: it waits for at most as many slices as other jobs share CPUs with it.
//!
//! Jobs of different tiers take no turns with each other: if the lower one's mode is SUSPEND it waits for the other's end,
//! otherwise both run. Jobs that an administrator suspended, or that are suspended for another job, are left out, and so are jobs
//! that are being launched or cleaned up.

use crate::{
    proposals::TurnProposal,
    snapshot::{facts::ClusterView, preempt::Claim},
};
use garrick_model::{
    config::PreemptMode, ids::JobId, resources::CpuSet, spec::Sharing, state::JobState, time::Timestamp, view::JobView,
};
use std::{cmp::Reverse, collections::BTreeMap, time::Duration};

/// Whose turn it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Turns {
    /// Runs to stop and runs to continue.
    pub proposals: Vec<TurnProposal>,
    /// When the next slice begins, if a job waits for its turn.
    pub again: Option<Timestamp>,
}

/// The order in which jobs of one tier have their turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Standing {
    CannotStop,
    HasTurn,
    Waited,
    HadTurn,
    Newcomer,
}

/// A run that may take turns.
struct Player<'v> {
    job: &'v JobView,
    /// Index of its partition.
    partition: usize,
    tier: u32,
    holds: Vec<(usize, &'v CpuSet)>,
    standing: Standing,
    since: Timestamp,
}

/// A job that has its turn, on one node.
struct On<'v> {
    claim: Claim<'v>,
    tier: u32,
    cpus: &'v CpuSet,
}

/// Whose turn it is now.
pub fn turns(view: &ClusterView, now: Timestamp) -> Turns {
    let slice = view.policy.preempt.time_slice;
    let begins = slice.map_or(now, |slice| beginning(now, slice));
    let mut players = players(view, (begins, now));
    players.sort_by_key(|p| (Reverse(p.tier), p.standing, p.since, p.job.id));
    let mut on: BTreeMap<usize, Vec<On<'_>>> = BTreeMap::new();
    let mut made = Turns::default();
    for player in players {
        let in_the_way = |(place, cpus): &(usize, &CpuSet)| {
            let there = on.get(place).map(Vec::as_slice).unwrap_or_default();
            there.iter().any(|other| !cpus.is_disjoint(other.cpus) && yields(view, &player, other))
        };
        // Where gang scheduling was switched off, no job waits for a turn.
        let plays = slice.is_none() || player.standing == Standing::CannotStop || !player.holds.iter().any(in_the_way);
        if plays {
            for (place, cpus) in &player.holds {
                let claim = Claim { job: player.job, partition: player.partition, viewer: None };
                let one = On { claim, tier: player.tier, cpus };
                on.entry(*place).or_default().push(one);
            }
        } else {
            made.again = slice.map(|slice| begins.plus(slice));
        }
        if plays != (player.job.state == JobState::Running) {
            let (job, sluid) = (player.job.id, player.job.sluid);
            made.proposals.push(TurnProposal { pass: 0, job, sluid, on: plays });
        }
    }
    for job in view.working.values().filter(|job| waits_for_nobody(view, job)) {
        made.proposals.push(TurnProposal { pass: 0, job: job.id, sluid: job.sluid, on: true });
    }
    // Runs are stopped before other runs get their CPUs.
    made.proposals.sort_by_key(|one| one.on);
    made
}

/// The beginning of the slice that contains `now`.
fn beginning(now: Timestamp, slice: Duration) -> Timestamp {
    let slice = i64::try_from(slice.as_millis()).unwrap_or(i64::MAX).max(1);
    Timestamp(now.0 - now.0.rem_euclid(slice))
}

/// Does the job wait while the other has CPUs that both share?
fn yields(view: &ClusterView, own: &Player<'_>, other: &On<'_>) -> bool {
    let stands_aside = || {
        let way = view.policy.preempt.way(view, other.claim, own.job);
        way.is_some_and(|way| way.mode == PreemptMode::Suspend)
    };
    own.tier == other.tier || stands_aside()
}

fn players(view: &ClusterView, (begins, now): (Timestamp, Timestamp)) -> Vec<Player<'_>> {
    if view.policy.preempt.time_slice.is_none() && !view.working.values().any(|job| waits(job)) {
        return Vec::new();
    }
    let mut holds: BTreeMap<JobId, Vec<(usize, &CpuSet)>> = BTreeMap::new();
    for (place, node) in view.nodes.iter().enumerate() {
        for hold in node.holds.iter().filter(|h| h.sharing == Sharing::Oversubscribe && !h.completing && !h.kept) {
            if view.working.get(&hold.job).is_some_and(|job| job.sluid == hold.sluid) {
                holds.entry(hold.job).or_default().push((place, &hold.share.cpus));
            }
        }
    }
    holds.into_iter().filter_map(|(job, holds)| player(view, (begins, now), view.working.get(&job)?, holds)).collect()
}

/// `None`: the job takes no turns now.
fn player<'v>(
    view: &'v ClusterView,
    (begins, now): (Timestamp, Timestamp),
    job: &'v JobView,
    holds: Vec<(usize, &'v CpuSet)>,
) -> Option<Player<'v>> {
    let suspended = job.suspended.as_ref();
    let held_back = is_held_back(job);
    let (partition, facts) = view.partition(&job.allocation.as_ref()?.partition)?;
    let since = suspended.map(|times| times.at).or(job.start_time).unwrap_or(now);
    let of_this_slice = begins <= since && since <= now;
    let standing = match job.state {
        JobState::Suspended if held_back || !waits(job) => return None,
        JobState::Suspended if of_this_slice => Standing::Newcomer,
        JobState::Suspended => Standing::Waited,
        JobState::Running if job.spec.het.is_some() || job.preempted.is_some() => Standing::CannotStop,
        JobState::Running if of_this_slice && suspended.is_some() => Standing::HasTurn,
        JobState::Running if of_this_slice => Standing::Newcomer,
        JobState::Running => Standing::HadTurn,
        _ => return None,
    };
    Some(Player { job, partition, tier: facts.tier, holds, standing, since })
}

/// Does the job wait for a turn in a partition that no longer exists? No job takes turns there.
fn waits_for_nobody(view: &ClusterView, job: &JobView) -> bool {
    let gone = || job.allocation.as_ref().is_some_and(|allocation| view.partition(&allocation.partition).is_none());
    job.state == JobState::Suspended && waits(job) && !is_held_back(job) && gone()
}

fn is_held_back(job: &JobView) -> bool {
    job.suspended.is_some_and(|times| times.by_admin || times.yielded.is_some())
}

fn waits(job: &JobView) -> bool {
    job.suspended.is_some_and(|times| times.waits_turn)
}
