//! `plan`: which pending jobs start now, on which nodes, and why the others do not. It is pure: the same snapshot and time give
//! the same plan. Owners may refuse any part of it.
//!
//! Expedited jobs go first, whatever their partition, in the order of their submission. The nodes that are kept for such a job
//! are free to it and taken to all others.
//!
//! The others are ordered by their partition's tier, then priority, then submission, then id. The first job that does not fit in
//! a partition waits for `Resources`. Jobs behind it that share nodes with that partition wait for `Priority`; they may start
//! only if that delays no job with reserved resources. With [`Backfill::Conservative`] every job that was considered has
//! resources reserved, with [`Backfill::First`] the first ones of each partition. With [`Backfill::Off`] no job has, and nothing
//! starts behind a waiting job. A job that could not start on an idle cluster (nodes down, limits of the partition) holds no
//! other job back.
//!
//! Runs may be preempted for a job that does not start ([`crate::rules::preempt`]); meanwhile no other job gets those resources.
//!
//! | file | what it is |
//! |---|---|
//! | `order` | the order in which jobs are tried |
//! | `pass` | a plan in progress: jobs are tried one after the other |
//! | `consider` | one job in one partition: the rules in their order, then resources |
//! | `place` | resources now |
//! | `reserve` | resources later, which are reserved |
//! | `declined` | preemption, reservation and reason of a job that does not start |
//! | `whole` | blocks that stay whole |
//! | `het` | components that start together |
//! | `bounded` | optional bounds that end a plan |
//! | `known` | what was found out already |
//! | `made` | the result |
//! | [`obstacle`] | what waiting jobs wait for |
//! | `ledger`, [`kept`] | a kept plan, which is repaired when something changes |
//! | [`probe`] | could a job ever run, when would it start |

mod bounded;
mod consider;
mod declined;
mod het;
pub mod kept;
mod known;
mod ledger;
mod made;
pub mod obstacle;
mod order;
mod pass;
mod place;
pub mod probe;
mod reserve;
mod whole;

pub use self::made::Plan;
use self::{
    ledger::Ledger,
    order::Key,
    pass::{Asked, Pass},
    whole::costs_others,
};
use crate::{
    room::{horizon::Horizon, machine::Floor},
    snapshot::facts::{Backfill, ClusterView},
};
use garrick_model::{ids::JobId, time::Timestamp};

/// Makes a plan.
pub fn plan(view: &ClusterView, now: Timestamp) -> Plan {
    plan_until(view, now, None)
}

/// Makes a plan; it considers no further job once `late` returns true.
pub(crate) fn plan_until(view: &ClusterView, now: Timestamp, late: Option<&dyn Fn() -> bool>) -> Plan {
    let with = |most: usize| {
        let mut pass = Pass::new(view, now);
        pass.late = late;
        pass.patience.most = most;
        pass.run();
        let begun = std::mem::take(&mut pass.patience.begun);
        (pass.finish().0, begun)
    };
    let (mut made, mut begun) = with(usize::MAX);
    if begun.is_empty() {
        return made;
    }
    let without = with(0).0;
    while costs_others(&made, &without, &begun) {
        let most = begun.len() / 2;
        if most == 0 {
            return without;
        }
        (made, begun) = with(most);
    }
    made
}

/// Makes a plan that considers this job in any case and reserves resources for it however far ahead. With [`Backfill::Off`],
/// where no job may go ahead of another, all jobs have resources reserved, none before those ahead of it.
pub(super) fn plan_minding(view: &ClusterView, now: Timestamp, job: JobId) -> Plan {
    let mut pass = Pass::new(view, now);
    pass.queue.minded = Some(job);
    pass.queue.in_order = view.policy.backfill == Backfill::Off;
    pass.run();
    pass.finish().0
}

/// Makes a plan; with `notes`, also what is needed to repair it, unless the plan stopped at its limit.
pub(super) fn plan_noting(view: &ClusterView, now: Timestamp, notes: bool) -> (Plan, Option<(Future, Ledger)>) {
    if !notes {
        return (plan(view, now), None);
    }
    let mut pass = Pass::new(view, now);
    pass.ledger = Some(Ledger::new(view.nodes.len()));
    pass.run();
    let (plan, future, ledger) = pass.finish();
    // What is kept for preempting jobs is not in the ledger.
    let whole = !plan.truncated && !plan.barred && plan.kept_for_preempting.is_empty();
    (plan, ledger.filter(|_| whole).map(|ledger| (future, ledger)))
}

/// Free resources as a plan leaves them: by single CPU now, and in amounts from now on.
#[derive(Debug)]
pub(super) struct Future {
    pub floor: Floor,
    pub horizon: Horizon,
}
