//! A kept plan: it is repaired when something changes, instead of being made anew.
//!
//! Reservations stay, so that no job's reserved start moves later. The exception is when the resources are gone (a node is held
//! longer than was expected, or by another job): then the job that loses them is planned again. Freed resources are offered, in
//! the usual order, to jobs whose reserved start has come, to jobs that wait behind them on the same nodes, and to the first of
//! each kind of request that they could help; a job that moves frees resources in turn. New jobs are planned behind what is
//! reserved. Of jobs over limits of accounting, the first of each kind is measured again each time.
//!
//! A repair gives resources to the first job that can use them, where a new plan would ask all jobs again in order. So a new plan
//! is due from time to time, and at once when a base of the plan has changed: the policy, partitions, nodes in service, advance
//! reservations. While an expedited job waits, plans are not repaired; with preemption, they are repaired only while no waiting
//! job may preempt a running one. Heterogeneous jobs and jobs for advance reservations keep what they have reserved; when their
//! turn comes, a new plan is made.

use super::{Future, Key, Pass, Plan, ledger::Ledger, plan_noting};
use crate::{
    room::{horizon::Planned, machine::Machine},
    rules,
    snapshot::{
        changes::{Follows, Minds},
        facts::{ClusterView, NEVER},
        reservations::{Closing, Viewer},
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

/// Most jobs to which one repair offers freed resources: to start now, and to start earlier than was planned. A new plan asks all
/// jobs.
const MOST_NOW: usize = 512;
const MOST_EARLIER: usize = 32;
/// Most jobs that a repair plans because it must: if there are more, a new plan is cheaper.
const MOST_DUE: usize = 2_000;

/// Most jobs that a repair passes over because their kind has reached its bound (`bf_max_job_*`), to find the next one to look
/// at.
const MOST_PASSED_OVER: usize = 100;

/// A plan, with all that is needed to repair it.
#[derive(Debug)]
pub struct Kept {
    view: ClusterView,
    future: Future,
    ledger: Ledger,
    /// Nodes on which the last plan proposed starts: owners may have refused them.
    proposed: Vec<usize>,
    /// Jobs that should have been looked at, and were not.
    left: BTreeSet<Key>,
    /// The last repair left out something that a new plan would look at.
    stale: bool,
    /// When the first of the running jobs is expected to end.
    first_end: Timestamp,
    minds: Minds,
}

/// Makes a plan to be kept. `Err`: it cannot be repaired, or it stopped at its limit of starts and the next plan goes on.
pub fn plan_to_keep(view: ClusterView, now: Timestamp) -> (Plan, Result<Kept, ClusterView>) {
    let fits = |job: &Arc<JobView>| rules::follow(&view, job) <= Follows::Keeps;
    let (plan, noted) = plan_noting(&view, now, rules::allow_repairs(&view) && view.pending.iter().all(fits));
    let moot = |ledger: &Ledger| view.policy.preempt.is_moot(&view, ledger.first().map(|key| key.tier()));
    let Some((future, ledger)) = noted.filter(|(_, ledger)| moot(ledger)) else { return (plan, Err(view)) };
    let kept = Kept {
        proposed: proposed(&plan),
        left: BTreeSet::new(),
        // Repairs do not consider components again whose start was refused.
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
    /// Did the last repair leave out something that a new plan would look at?
    pub(crate) const fn is_stale(&self) -> bool {
        self.stale
    }

    /// The earliest reserved start.
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

    /// Why a job waits, and when it is expected to start, as of its last consideration.
    #[cfg(test)]
    pub(crate) fn news(&self, job: JobId) -> (Option<garrick_model::state::Reason>, Option<Timestamp>) {
        self.ledger.news(job)
    }

    /// Jobs for which resources were searched, by partition, and whether they were behind others.
    #[cfg(test)]
    pub(crate) fn looked(&self) -> std::collections::BTreeMap<(JobId, usize), bool> {
        let looked = self.ledger.rows().filter(|(_, row)| row.group.is_some());
        looked.map(|(key, row)| ((row.job.id, key.partition), row.behind)).collect()
    }

    #[cfg(test)]
    pub(crate) const fn horizon(&self) -> &crate::room::horizon::Horizon {
        &self.future.horizon
    }

    /// What is free now, without starts that were only proposed.
    #[cfg(test)]
    pub(crate) fn floor(&self) -> crate::room::machine::Floor {
        Machine::renewed(&self.view, self.future.floor.clone(), &[]).into_floor()
    }

    /// Repairs the plan for the current snapshot. `Err`: a new plan has to be made from this snapshot.
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

/// For what freed resources are offered.
#[derive(Clone, Copy)]
enum Offer {
    /// It may be under its limit again.
    Limit,
    Now,
    Earlier,
}

/// A repair in progress.
struct Repair<'p, 'v> {
    pass: &'p mut Pass<'v>,
    ledger: Ledger,
    /// Nodes that are reserved for others, for each view of reservations; the view of no reservation comes first.
    closings: Vec<(Viewer, Vec<Closing>)>,
    /// Jobs to look at: those that must be, and those that freed resources may help.
    due: BTreeSet<Key>,
    now: BTreeSet<Key>,
    earlier: BTreeSet<Key>,
    offered: (usize, usize),
    /// Jobs that may have come under the limit that they were over, and how many of them were looked at.
    freed: BTreeSet<Key>,
    measured: usize,
    looked: BTreeSet<JobId>,
    /// What this repair's starts take of each node, and how many of the pass's starts are counted in it.
    begun: FxHashMap<usize, Vec<Planned>>,
    noted: usize,
    /// Are the licenses of jobs with reserved resources counted yet?
    licenses_held: bool,
    stale: bool,
}
