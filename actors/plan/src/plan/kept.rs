//! A plan that is kept, and repaired when something changes instead of being made anew.
//!
//! What was reserved stays reserved, so that nobody's reserved start moves later, unless the room is gone (a node is held
//! longer than was expected, or by somebody else): who loses it so is planned again where there is room. What became free
//! is offered, in the usual order, to those whose time has come, to those who wait behind it on the same nodes, and to the
//! first of each kind of request whom it could help; who moves leaves room in turn. Jobs that are new are planned behind
//! what is reserved.
//!
//! A repair gives room to the first who can use it, where a new plan would ask everybody again in order. So a new plan is
//! due from time to time, and at once where what a plan stands on has changed: the policy, partitions, nodes in service,
//! advance reservations. Where an expedited job waits plans are not repaired; with preemption, only while nobody who waits
//! may preempt anybody who runs. Heterogeneous jobs and those for advance reservations keep what they have reserved, and have
//! a new plan made when it is their turn.

use super::{Future, Key, Pass, Plan, ledger::Ledger, plan_noting};
use crate::{
    room::{horizon::Planned, machine::Machine},
    rules,
    snapshot::{
        changes::{Follows, Minds},
        facts::{ClusterView, NEVER},
        reservations::{Closing, Eyes},
    },
};
use garrick_model::{ids::JobId, time::Timestamp, view::JobView};
use rustc_hash::FxHashMap;
use std::{collections::BTreeSet, sync::Arc};

mod changes;
mod offers;
pub mod planning;
mod repair;

use self::changes::{changed_jobs, changed_nodes, first_end, matters, stands};

/// Jobs to which a repair offers freed room, at most: to start now, and to start earlier than was planned. A new plan asks
/// all of them.
const MOST_NOW: usize = 512;
const MOST_EARLIER: usize = 32;
/// Jobs that a repair must plan, at most: for more, a new plan is the better way.
const MOST_DUE: usize = 2_000;

/// Jobs of which as many of the like were looked at as may be, at most, that a repair passes over to find the next to look at.
const MOST_PASSED_OVER: usize = 100;

/// A plan with what it takes to repair it.
#[derive(Debug)]
pub struct Kept {
    view: ClusterView,
    future: Future,
    ledger: Ledger,
    /// Nodes on which the last plan proposed starts: owners may have refused them.
    proposed: Vec<usize>,
    /// Who was to be looked at, and was not.
    left: BTreeSet<Key>,
    /// Something was left out that a new plan would look at.
    stale: bool,
    /// When the first of those who have nodes is expected to end.
    first_end: Timestamp,
    minds: Minds,
}

/// A plan, kept. `Err`: it stopped at its limit of starts, and the next one goes on, or it is such that it is not repaired.
pub fn plan_to_keep(view: ClusterView, now: Timestamp) -> (Plan, Result<Kept, ClusterView>) {
    let fits = |job: &Arc<JobView>| rules::follow(&view, job) <= Follows::Keeps;
    let (plan, noted) = plan_noting(&view, now, rules::allow_repairs(&view) && view.pending.iter().all(fits));
    let moot = |ledger: &Ledger| view.policy.preempt.is_moot(&view, ledger.first().map(|key| key.tier()));
    let Some((future, ledger)) = noted.filter(|(_, ledger)| moot(ledger)) else { return (plan, Err(view)) };
    let kept = Kept {
        proposed: proposed(&plan),
        left: BTreeSet::new(),
        // Components that are refused are not looked at again by repairs.
        stale: plan.starts.iter().any(|start| !start.others.is_empty()),
        first_end: view.nodes.iter().map(|node| first_end(node)).min().unwrap_or(NEVER),
        minds: Minds::of(view.pending.iter()),
        view,
        future,
        ledger,
    };
    (plan, Ok(kept))
}

fn proposed(plan: &Plan) -> Vec<usize> {
    let all = plan.starts.iter().flat_map(|start| std::iter::once(start).chain(&start.others));
    all.flat_map(|start| start.nodes.iter().map(|node| node.index.0 as usize)).collect()
}

impl Kept {
    /// Did the last repair leave out what a new plan would look at?
    pub const fn is_stale(&self) -> bool {
        self.stale
    }

    /// When the first of those that have room reserved is to start.
    pub fn next_start(&self) -> Option<Timestamp> {
        self.ledger.begins().next().map(|(from, _)| from)
    }

    /// What is reserved, in the order decided.
    #[cfg(test)]
    pub(crate) fn reservations(&self) -> Vec<crate::room::reserved::Reservation> {
        let kept = |(key, row): (&Key, &crate::plan::ledger::Row)| {
            let promise = row.promise.clone()?;
            Some(crate::room::reserved::Reservation {
                job: row.job.id,
                partition: key.partition,
                from: promise.from,
                until: promise.until,
                nodes: promise.nodes,
                licenses: promise.licenses,
            })
        };
        self.ledger.rows().filter_map(kept).collect()
    }

    /// Why a job waits, and when it is expected to start, as of its last look.
    #[cfg(test)]
    pub(crate) fn news(&self, job: JobId) -> (Option<garrick_model::state::Reason>, Option<Timestamp>) {
        self.ledger.news(job)
    }

    /// For whom room was looked for, by partition, and whether behind others.
    #[cfg(test)]
    pub(crate) fn looked(&self) -> std::collections::BTreeMap<(JobId, usize), bool> {
        let looked = self.ledger.rows().filter(|(_, row)| row.group.is_some());
        looked.map(|(key, row)| ((row.job.id, key.partition), row.behind)).collect()
    }

    #[cfg(test)]
    pub(crate) const fn horizon(&self) -> &crate::room::horizon::Horizon {
        &self.future.horizon
    }

    /// What is free now, without what was only proposed.
    #[cfg(test)]
    pub(crate) fn floor(&self) -> crate::room::machine::Floor {
        Machine::renewed(&self.view, self.future.floor.clone(), &[]).into_floor()
    }

    /// Repairs the plan for what is now. `Err`: a new one has to be made from this snapshot.
    pub fn repair(self, view: ClusterView, now: Timestamp) -> Result<(Plan, Self), Box<ClusterView>> {
        let Self { view: before, future, ledger, proposed: touched, left, stale, first_end, minds } = self;
        let Future { floor, mut horizon } = future;
        let jobs = changed_jobs(&before.pending, &view.pending);
        let minds = minds.or(Minds::of(jobs.iter().filter_map(|(_, job)| *job)));
        let nodes = changed_nodes(&before, first_end, &view, now);
        let stands = |nodes: &[usize]| {
            matters(horizon.matters(), &view, &jobs, nodes) == horizon.matters()
                && stands(&before, &view, &jobs, minds, now)
        };
        let Some((changed, first_end)) = nodes.filter(|(nodes, _)| stands(nodes)) else {
            return Err(Box::new(view));
        };
        let preempt = view.policy.preempt.is_on();
        horizon.advance(now);
        let mut pass = Pass::on(&view, now, Machine::renewed(&view, floor, &changed), horizon);
        if preempt {
            pass.preempt_nobody();
        }
        let mut repair = Repair::new(&mut pass, ledger, left, stale);
        let changed: BTreeSet<usize> = changed.into_iter().chain(touched).collect();
        if !repair.prepare(&before, &jobs, changed) {
            return Err(Box::new(view));
        }
        repair.go();
        // A new plan says who goes before whom among those who wait for the next starts.
        if repair.pass.plan.barred {
            return Err(Box::new(view));
        }
        let Repair { ledger, looked, stale, due: left, .. } = repair;
        let (mut plan, future, _) = pass.finish();
        let wholly: BTreeSet<JobId> = plan.starts.iter().filter(|s| s.array_index.is_none()).map(|s| s.job).collect();
        plan.reasons.clear();
        plan.expected.clear();
        for job in looked.into_iter().filter(|job| !wholly.contains(job)) {
            let (reason, expected) = ledger.news(job);
            plan.reasons.extend(reason.map(|reason| (job, reason)));
            plan.expected.extend(expected.map(|at| (job, at)));
        }
        let proposed = proposed(&plan);
        Ok((plan, Self { view, future, ledger, proposed, left, stale, first_end, minds }))
    }
}

/// What freed room is offered for.
#[derive(Clone, Copy)]
enum Offer {
    Now,
    Earlier,
}

/// A repair under way.
struct Repair<'p, 'v> {
    pass: &'p mut Pass<'v>,
    ledger: Ledger,
    /// Nodes that are reserved for others, as those see it who look with these eyes: first of all with those of no reservation.
    closings: Vec<(Eyes, Vec<Closing>)>,
    /// Who is to be looked at: those who must be, and those whom freed room may help.
    due: BTreeSet<Key>,
    now: BTreeSet<Key>,
    earlier: BTreeSet<Key>,
    offered: (usize, usize),
    looked: BTreeSet<JobId>,
    /// What starts of this repair take of nodes, and how many of the pass's are in it.
    begun: FxHashMap<usize, Vec<Planned>>,
    noted: usize,
    /// Are the licenses of those who have room reserved counted yet?
    licenses_held: bool,
    stale: bool,
}
