//! Large blocks stay whole (`topology_patience`): a start that would break up idle blocks or leaf switches goes to ones that are
//! already broken up if those have free resources. If they will have them soon, the job waits for them: until its patience ends,
//! counted from when it might start, and never past the expected start that it was told.
//!
//! No other job pays for that: a plan in which jobs begin to wait is compared with one in which they do not, and made again with
//! fewer of them if any job would start later. A job that waits so goes before all that came later, since it could be running.

use super::{Asked, Pass, Plan};
use crate::{
    room::{
        horizon::Slot,
        select::{self, Bound},
        topology,
    },
    rules::whole::waits_already,
    snapshot::facts::Backfill,
    topology::Topology,
};
use fixedbitset::FixedBitSet;
use garrick_model::{ids::JobId, state::JobState, time::Timestamp, view::AllocatedNode};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// Does any job, except for `but`, start later than in the other plan?
pub(super) fn costs_others(plan: &Plan, other: &Plan, but: &[JobId]) -> bool {
    let (ours, theirs) = (starts(plan), starts(other));
    let late = |(job, (count, first)): (&JobId, &(usize, Option<Timestamp>))| {
        let (our_count, our_first) = ours.get(job).copied().unwrap_or_default();
        our_count < *count || (our_count == *count && first.is_some_and(|at| our_first.is_none_or(|ours| ours > at)))
    };
    theirs.iter().filter(|(job, _)| !but.contains(job)).any(late)
}

/// How many runs of each job start now, and when the next one is expected to.
fn starts(plan: &Plan) -> BTreeMap<JobId, (usize, Option<Timestamp>)> {
    let mut all: BTreeMap<JobId, (usize, Option<Timestamp>)> = BTreeMap::new();
    for start in plan.starts.iter().flat_map(|start| std::iter::once(start).chain(&start.others)) {
        all.entry(start.job).or_default().0 += 1;
    }
    for (job, at) in &plan.expected {
        let first = &mut all.entry(*job).or_default().1;
        *first = Some(first.map_or(*at, |known| known.min(*at)));
    }
    all
}

/// Blocks or leaf switches that are idle, by level, the smallest first: no job has resources there, now or reserved within the
/// planned time.
pub(super) struct Wholes(Vec<Vec<Vec<usize>>>);

impl Wholes {
    fn new(topology: &dyn Topology, pass: &Pass<'_>) -> Self {
        let idle = |node: usize| {
            pass.space.machine.is_idle(node)
                && pass.space.horizon.idle_from(node, pass.now, pass.view.policy.backfill_window) == Some(pass.now)
        };
        let mut known: BTreeMap<usize, bool> = BTreeMap::new();
        let mut whole = |area: Vec<usize>| {
            let nodes: Vec<usize> = area.into_iter().filter(|node| pass.space.machine.is_usable(*node)).collect();
            let all = nodes.iter().all(|node| *known.entry(*node).or_insert_with(|| idle(*node)));
            (all && nodes.len() > 1).then_some(nodes)
        };
        Self(topology.wholes().into_iter().map(|level| level.into_iter().filter_map(&mut whole).collect()).collect())
    }

    /// Levels at which these nodes break up something idle, the smallest first, and how many nodes stop being part of something
    /// whole, added over all levels.
    fn broken_by(&self, nodes: &BTreeSet<usize>) -> (Vec<usize>, usize) {
        let (mut levels, mut cost) = (Vec::new(), 0);
        for (level, areas) in self.0.iter().enumerate() {
            let broken = areas.iter().filter(|area| {
                let taken = area.iter().filter(|node| nodes.contains(node)).count();
                taken > 0 && taken < area.len()
            });
            let here: usize = broken.map(Vec::len).sum();
            if here > 0 {
                levels.push(level);
                cost += here;
            }
        }
        (levels, cost)
    }

    /// Nodes of whole blocks on that level and above, except for blocks that `nodes` fill.
    fn from_level(&self, level: usize, nodes: &BTreeSet<usize>, count: usize) -> FixedBitSet {
        let mut all = FixedBitSet::with_capacity(count);
        let kept = self.0[level..].iter().flatten().filter(|area| !area.iter().all(|node| nodes.contains(node)));
        kept.for_each(|area| all.extend(area.iter().copied()));
        all
    }
}

impl Pass<'_> {
    /// Where a job that could start on these nodes starts. `None`: it waits for others, and has them reserved.
    pub(super) fn keep_whole(&mut self, asked: &Asked<'_>, nodes: Vec<AllocatedNode>) -> Option<Vec<AllocatedNode>> {
        let Some(topology) = self.may_wait(asked) else { return Some(nodes) };
        let wholes = Wholes::new(topology.as_ref(), self);
        let (levels, cost) = wholes.broken_by(&places(&nodes));
        let mut best = (cost, levels, nodes);
        for level in best.1.clone() {
            if best.0 == 0 {
                break;
            }
            let spared = wholes.from_level(level, &places(&best.2), self.view.nodes.len());
            let bound = Bound {
                horizon: &self.space.horizon,
                limits: &self.space.limits,
                run: (self.now, self.now.plus(asked.length)),
            };
            let other = select::place_apart(&self.space.machine, asked.request, (asked.candidates, &spared), bound);
            if let Some(nodes) = other {
                let (levels, cost) = wholes.broken_by(&places(&nodes));
                if cost < best.0 {
                    best = (cost, levels, nodes);
                }
            }
        }
        let (cost, levels, nodes) = best;
        if cost == 0 || asked.request.licenses.is_some() {
            return Some(nodes);
        }
        let taken = places(&nodes);
        let later = levels.into_iter().find_map(|level| {
            let spared = wholes.from_level(level, &taken, self.view.nodes.len());
            self.soon(asked, &topology, &spared)
        });
        let Some(slot) = later else { return Some(nodes) };
        if !waits_already(self.view, asked.job) {
            if self.patience.begun.len() >= self.patience.most {
                return Some(nodes);
            }
            self.patience.begun.push(asked.job.id);
        }
        self.patience.next = Some(self.patience.next.map_or(slot.at, |known| known.min(slot.at)));
        let amounts = self.space.horizon.amounts(asked.request, &slot.nodes, slot.at, asked.length);
        self.keep(asked, slot.at, amounts, Default::default());
        // The job could start, so it is not one that lacks resources.
        if let Some(reserved) = self.queue.reserved.get_mut(&asked.request.partition) {
            *reserved -= 1;
        }
        None
    }

    /// The topology, if there is one and the job has a choice of nodes.
    fn may_wait(&self, asked: &Asked<'_>) -> Option<Arc<dyn Topology>> {
        let Asked { job, request, .. } = *asked;
        self.view.policy.topology_patience?;
        let chooses = !request.is_particular()
            && request.want_nodes <= request.min_nodes
            && request.reservation.is_none()
            && !asked.drawn
            && request.near.as_ref().is_none_or(|near| !near.exclusive);
        let ordinary = self.trial.is_none()
            && job.state != JobState::Expediting
            && job.spec.prefer.as_deref().is_none_or(str::is_empty)
            && self.view.policy.backfill != Backfill::Off;
        self.view.topology(request.partition).filter(|_| chooses && ordinary).cloned()
    }

    /// Resources outside of those nodes before the job's patience ends.
    fn soon(&mut self, asked: &Asked<'_>, topology: &Arc<dyn Topology>, spared: &FixedBitSet) -> Option<Slot> {
        let Asked { job, request, candidates, length, .. } = *asked;
        let patience = self.view.policy.topology_patience.filter(|patience| !patience.is_zero())?;
        let end = job.eligible_time.unwrap_or(job.submit_time).plus(patience);
        let until = job.start_time.map_or(end, |told| told.min(end));
        let from = self.space.horizon.round(self.now);
        if until <= self.now || from > until {
            return None;
        }
        let mut open = candidates.clone();
        open.difference_with(spared);
        let within = (from, until);
        // Nodes of one kind and one future do not all answer alike if some are left out.
        let mut apart = request.clone();
        apart.exclude.extend(spared.ones().map(|node| self.view.nodes[node].index));
        apart.exclude.sort_unstable();
        let request = &apart;
        let slot = if request.near.is_some() {
            topology::earliest(&mut self.space.horizon, topology, request, (candidates, &open), within, length)
        } else {
            self.space.horizon.earliest(request, &open, within, length)
        };
        slot.filter(|slot| slot.at > self.now)
    }
}

fn places(nodes: &[AllocatedNode]) -> BTreeSet<usize> {
    nodes.iter().map(|node| node.index.0 as usize).collect()
}
