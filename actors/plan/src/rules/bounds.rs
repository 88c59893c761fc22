//! How many jobs a plan considers and starts, within [`Bounds`].

use crate::snapshot::{
    bounds::Bounds,
    changes::{Fact, Reads},
    facts::ClusterView,
};
use garrick_model::{
    ids::JobId,
    state::Reason,
    time::{TimeLimit, Timestamp},
    view::JobView,
};
use rustc_hash::{FxHashMap, FxHashSet};
use std::{sync::Arc, time::Duration};

/// What the rule reads.
pub(crate) const READS: Reads = Reads { at_site: allow_repairs, ..Reads::only("bounds", |_| &[Fact::Policy]) };

fn allow_repairs(view: &ClusterView) -> bool {
    view.policy.bounds.as_ref().is_none_or(|bounds| bounds.allow_repairs())
}

/// What a plan has done so far, as far as bounds limit it.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    of_user: FxHashMap<u32, u32>,
    of_partition: FxHashMap<usize, u32>,
    of_user_in_partition: FxHashMap<(u32, usize), u32>,
    of_association: FxHashMap<(u32, Option<String>), u32>,
    in_partition: FxHashMap<usize, u32>,
    entered: Option<(JobId, usize)>,
    backfilled: u32,
    /// Components of heterogeneous jobs among those.
    components: u32,
    in_order: u32,
    /// Jobs with reserved resources.
    pub booked: FxHashSet<JobId>,
}

impl Tally {
    /// Have as many jobs of this kind been considered as the bounds allow?
    pub(crate) fn is_full(&self, bounds: &Bounds, job: &JobView, partition: usize) -> bool {
        fn reached<K: std::hash::Hash + Eq>(
            known: &FxHashMap<K, u32>,
            most: Option<u32>,
            key: impl FnOnce() -> K,
        ) -> bool {
            most.is_some_and(|most| known.get(&key()).copied().unwrap_or(0) >= most)
        }
        reached(&self.of_user, bounds.of_user, || job.uid)
            || reached(&self.of_partition, bounds.of_partition, || partition)
            || reached(&self.of_user_in_partition, bounds.of_user_in_partition, || (job.uid, partition))
            || reached(&self.of_association, bounds.of_association, || association(job))
    }

    /// Counts a job that is considered behind others.
    pub fn look(&mut self, bounds: &Bounds, job: &JobView, partition: usize) {
        *self.of_user.entry(job.uid).or_insert(0) += 1;
        *self.of_partition.entry(partition).or_insert(0) += 1;
        *self.of_user_in_partition.entry((job.uid, partition)).or_insert(0) += 1;
        if bounds.of_association.is_some() {
            *self.of_association.entry(association(job)).or_insert(0) += 1;
        }
    }

    /// Counts one more job of that partition. False: it exceeds the bound.
    pub fn enters(&mut self, bounds: &Bounds, job: JobId, partition: usize) -> bool {
        let Some(most) = bounds.in_partition else { return true };
        let looked = self.in_partition.entry(partition).or_insert(0);
        // A job that a magnetic reservation attracts is considered there and outside of it.
        *looked += u32::from(self.entered.replace((job, partition)) != Some((job, partition)));
        *looked <= most
    }

    /// Counts a start.
    pub const fn start(&mut self, behind: bool, component: bool) {
        if behind {
            self.backfilled += 1;
            self.components += component as u32;
        } else {
            self.in_order += 1;
        }
    }

    /// How many of those behind others are components of heterogeneous jobs.
    pub const fn components(&self) -> u32 {
        self.components
    }

    /// Takes over the number of starts.
    pub(crate) const fn take_starts_of(&mut self, other: &Self) {
        (self.in_order, self.backfilled, self.components) = (other.in_order, other.backfilled, other.components);
    }

    /// Have as many jobs of that kind started as may?
    pub(crate) fn has_started_all(&self, bounds: &Bounds, behind: bool) -> bool {
        let (most, started) =
            if behind { (bounds.backfilled, self.backfilled) } else { (bounds.in_order, self.in_order) };
        most.is_some_and(|most| started >= most)
    }

    /// How many started in order, and how many behind others.
    pub const fn started(&self) -> (u32, u32) {
        (self.in_order, self.backfilled)
    }
}

/// What plans of the same interval have started already. Each start causes a new plan at once, and bounds of starts hold for all
/// plans of an interval together.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quota {
    since: Option<Timestamp>,
    in_order: u32,
    backfilled: u32,
}

impl Quota {
    /// The bounds of the next plan.
    pub fn left(&mut self, bounds: &Arc<Bounds>, now: Timestamp, interval: Duration) -> Arc<Bounds> {
        if bounds.backfilled.is_none() && bounds.in_order.is_none() {
            return Arc::clone(bounds);
        }
        if self.since.is_none_or(|since| now < since || now >= since.plus(interval)) {
            *self = Self { since: Some(now), ..Self::default() };
        }
        let left = |most: Option<u32>, started: u32| most.map(|most| most.saturating_sub(started));
        Arc::new(Bounds {
            in_order: left(bounds.in_order, self.in_order),
            backfilled: left(bounds.backfilled, self.backfilled),
            ..(**bounds).clone()
        })
    }

    /// Counts the starts of a plan.
    pub const fn spend(&mut self, (in_order, backfilled): (u32, u32)) {
        self.in_order = self.in_order.saturating_add(in_order);
        self.backfilled = self.backfilled.saturating_add(backfilled);
    }
}

/// There is no accounting database yet: an association is the user and account that a job names.
fn association(job: &JobView) -> (u32, Option<String>) {
    (job.uid, job.spec.account.clone())
}

/// What a plan in progress has done within the bounds. Without bounds, each method only tests an `Option`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bounded {
    /// The counts.
    pub tally: Tally,
    /// The current job was considered before: it is counted already.
    pub looks_again: bool,
    /// Until when nothing starts, for the partitions that were asked about.
    frozen: FxHashMap<usize, Option<Timestamp>>,
}

impl Bounded {
    /// May one more job of that partition be considered?
    pub(crate) fn gate(&mut self, view: &ClusterView, job: &JobView, partition: usize) -> Result<(), Reason> {
        let bounds = view.policy.bounds.as_deref();
        let enters = bounds.is_none_or(|bounds| self.tally.enters(bounds, job.id, partition));
        if enters { Ok(()) } else { Err(Reason::Priority) }
    }

    /// Have as many such jobs been considered behind others as may be?
    pub(crate) fn has_seen_enough_like(&self, view: &ClusterView, job: &JobView, partition: usize) -> bool {
        let bounds = view.policy.bounds.as_ref().filter(|_| !self.looks_again);
        bounds.is_some_and(|bounds| self.tally.is_full(bounds, job, partition))
    }

    /// Counts a job that is considered behind others.
    pub(crate) fn count_behind(&mut self, view: &ClusterView, job: &JobView, partition: usize) {
        if let Some(bounds) = view.policy.bounds.as_ref().filter(|_| !self.looks_again) {
            self.tally.look(bounds, job, partition);
        }
    }

    /// Until when nothing starts in that partition.
    pub(crate) fn frozen_until(&mut self, view: &ClusterView, partition: usize, now: Timestamp) -> Option<Timestamp> {
        let bounds = view.policy.bounds.as_ref()?;
        *self.frozen.entry(partition).or_insert_with(|| bounds.frozen_until(view, partition, now))
    }
}

/// How long a run is expected to last: no longer than its `--time-min` if that counts as its limit.
pub(crate) fn length(view: &ClusterView, job: &JobView, limit: TimeLimit) -> Option<Duration> {
    let soft = view.policy.bounds.as_ref().filter(|bounds| bounds.soft_limits).and(job.spec.time_min);
    soft.map_or(limit, |soft| soft.min(limit)).duration()
}
