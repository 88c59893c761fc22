//! The making of a plan, apart from all that the scheduler remembers: it may take long, and nothing is decided in it that is
//! not in what it is made from. A plan that is kept stays where plans are made; the scheduler knows its outline.

use super::{Kept, plan_to_keep};
use crate::{
    plan::{Plan, plan, plan_until},
    rules::resume,
    snapshot::facts::ClusterView,
};
use garrick_model::{ids::JobId, state::Reason, time::Timestamp, view::JobView};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// Expected starts are told again when they moved by at least this much.
const EXPECTED_STEP: Duration = Duration::from_secs(60);

/// What a plan is made from.
#[derive(Debug)]
pub struct Planning {
    /// The boards, with the priorities and bounds that hold now.
    pub view: ClusterView,
    /// When they were so.
    pub now: Timestamp,
    /// The plan that is kept is repaired, if it can be; otherwise it is given up.
    pub repairs: bool,
    /// A new plan is kept, if it can be.
    pub keeps: bool,
}

/// How a plan was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Nobody waits who may start.
    Idle,
    /// Another one was repaired.
    Repaired,
    /// Anew.
    Anew {
        /// When that began, by the clock that is never set.
        began: Duration,
        /// How long it took.
        took: Duration,
    },
}

/// A job that was looked at and does not start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Considered {
    /// Job.
    pub job: JobId,
    /// Why.
    pub reason: Reason,
    /// When it is expected to.
    pub expected: Option<Timestamp>,
}

/// A plan that was made.
#[derive(Debug)]
pub struct Made {
    /// The plan. What it says to those who wait is in `considered`.
    pub plan: Plan,
    /// What jobs do not show yet.
    pub considered: Vec<Considered>,
    /// How.
    pub way: Way,
    /// It is kept, and may be repaired.
    pub kept: Option<Outline>,
    /// When it was done, by the clock that is never set.
    pub at: Duration,
}

/// What the scheduler knows of a plan that is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outline {
    /// See [`Kept::is_stale`].
    pub stale: bool,
    /// See [`Kept::next_start`].
    pub next_start: Option<Timestamp>,
}

impl Planning {
    /// Makes the plan. `kept` is the one that was kept, and then this one, if it is. `clock` is never set; `shown` is what a job
    /// shows by now.
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
        // Heartbeats change boards too: without anyone waiting there is nothing to plan.
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

/// Does anybody wait who may start?
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
