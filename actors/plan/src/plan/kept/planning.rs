//! Makes a plan apart from the scheduler's state. It may take long, so it decides only from the snapshot that it is given. The
//! kept plan stays where plans are made; the scheduler knows only its outline.

use super::{Kept, plan_to_keep};
use crate::{
    plan::{Plan, plan, plan_until},
    rules::resume,
    snapshot::facts::ClusterView,
};
use garrick_model::{ids::JobId, state::Reason, time::Timestamp, view::JobView};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// An expected start is told again only if it moved by at least this much.
const EXPECTED_STEP: Duration = Duration::from_secs(60);

/// What a plan is made from.
#[derive(Debug)]
pub struct Planning {
    /// The views, with the current priorities and bounds.
    pub view: ClusterView,
    /// The time of the views.
    pub now: Timestamp,
    /// Repair the kept plan if possible; otherwise it is dropped.
    pub repairs: bool,
    /// Keep a new plan if possible.
    pub keeps: bool,
}

/// How a plan was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// No job waits that may start.
    Idle,
    /// A kept plan was repaired.
    Repaired,
    /// A new plan was made.
    Anew {
        /// When that began, on the monotonic clock.
        began: Duration,
        /// How long it took.
        took: Duration,
    },
}

/// A job that was considered and does not start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Considered {
    /// The job.
    pub job: JobId,
    /// Why it waits.
    pub reason: Reason,
    /// When it is expected to start.
    pub expected: Option<Timestamp>,
}

/// A plan that was made.
#[derive(Debug)]
pub struct Made {
    /// The plan. What it tells waiting jobs is in `considered`.
    pub plan: Plan,
    /// Only what jobs do not show yet.
    pub considered: Vec<Considered>,
    /// How it was made.
    pub way: Way,
    /// The plan is kept and may be repaired.
    pub kept: Option<Outline>,
    /// When it was done, on the monotonic clock.
    pub at: Duration,
}

/// What the scheduler knows of a kept plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outline {
    /// See `Kept::is_stale`.
    pub stale: bool,
    /// See [`Kept::next_start`].
    pub next_start: Option<Timestamp>,
}

impl Planning {
    /// Makes the plan. `kept` is the earlier kept plan on entry, and this one on return if it is kept. `clock` is monotonic;
    /// `shown` returns what a job shows now.
    pub fn make(
        self,
        kept: &mut Option<Kept>,
        clock: &dyn Fn() -> Duration,
        shown: &dyn Fn(JobId) -> Option<Arc<JobView>>,
    ) -> Made {
        let (mut plan, now_kept, way) = self.plan(kept.take(), clock);
        *kept = now_kept;
        let outline = kept.as_ref().map(|kept| Outline { stale: kept.is_stale(), next_start: kept.next_start() });
        let considered = considered(&mut plan, shown);
        Made { plan, considered, way, kept: outline, at: clock() }
    }

    fn plan(self, kept: Option<Kept>, clock: &dyn Fn() -> Duration) -> (Plan, Option<Kept>, Way) {
        let Self { view, now, repairs, keeps } = self;
        // Heartbeats change views too: if no job waits, there is nothing to plan.
        if !anybody_waits(&view) {
            let resumptions = resume::resumptions(&view, now, std::iter::empty(), std::iter::empty());
            return (Plan { resumptions, ..Plan::default() }, None, Way::Idle);
        }
        let view = match kept.filter(|_| repairs) {
            Some(kept) => match kept.repair(view, now) {
                Ok((made, kept)) => {
                    tracing::debug!(stale = kept.is_stale(), "sched.repaired");
                    return (made, Some(kept), Way::Repaired);
                }
                Err(view) => *view,
            },
            None => view,
        };
        let began = clock();
        let took = || clock().saturating_sub(began);
        let (made, kept) = match &view.policy.bounds {
            Some(bounds) if !keeps || !bounds.allow_repairs() => {
                let most = bounds.plan_time;
                let late = || most.is_some_and(|most| took() >= most);
                let made = plan_until(&view, now, Some(&late));
                if made.left_out > 0 {
                    tracing::warn!(left_out = made.left_out, "sched.plan_ran_out_of_time");
                }
                (made, None)
            }
            _ if keeps => {
                let (made, kept) = plan_to_keep(view, now);
                (made, kept.ok())
            }
            _ => (plan(&view, now), None),
        };
        (made, kept, Way::Anew { began, took: took() })
    }
}

/// Does any job wait that may start?
pub fn anybody_waits(view: &ClusterView) -> bool {
    view.pending.iter().any(|job| job.eligible)
}

fn considered(made: &mut Plan, shown: &dyn Fn(JobId) -> Option<Arc<JobView>>) -> Vec<Considered> {
    let mut expected: BTreeMap<JobId, Timestamp> = BTreeMap::new();
    for (job, at) in made.expected.drain(..) {
        expected.entry(job).and_modify(|known| *known = at.min(*known)).or_insert(at);
    }
    let considered = made.reasons.drain(..).map(|(job, reason)| {
        let expected = expected.get(&job).copied();
        Considered { job, reason, expected }
    });
    considered.filter(|one| shown(one.job).is_none_or(|view| one.is_news(&view))).collect()
}

impl Considered {
    fn is_news(&self, view: &JobView) -> bool {
        let moved = match (view.start_time, self.expected) {
            (None, None) => false,
            (Some(shown), Some(new)) => shown.since(new).max(new.since(shown)) >= EXPECTED_STEP,
            _ => true,
        };
        view.reason != self.reason || moved
    }
}
