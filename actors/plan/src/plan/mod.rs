//! `plan`: which pending jobs start now, where, and why the others do not. Pure: the same snapshot and time give the same
//! plan. Owners may refuse any part of it.
//!
//! Jobs that are expedited go first, whatever their partition, in the order of their submission. The nodes that are kept
//! for such a job are free to it and taken to all others.
//!
//! The others are taken by their partition's tier, then priority, then submission, then id. The first job that does not fit in
//! a partition waits for `Resources`; what is behind it and shares nodes with that partition waits for `Priority`, and may
//! start only where that delays nobody who has room reserved. Who has: with [`Backfill::Conservative`] every job that was
//! looked at, with [`Backfill::First`] the first ones of each partition, with [`Backfill::Off`] nobody, and nothing starts
//! behind a waiting job. A job that could not start on an idle cluster (nodes down, limits of the partition) holds nobody
//! back.
//!
//! A job that does not start may have others make room for it ([`crate::rules::preempt`]); that room is nobody else's meanwhile.
//!
//! | file | what it is |
//! |---|---|
//! | `order` | in which order jobs are tried |
//! | `pass` | a plan under way: jobs are tried one after the other |
//! | `consider` | one job in one partition: the rules in their order, then room |
//! | `place` | room now |
//! | `reserve` | room later, which is reserved |
//! | `declined` | who gives way, what is reserved, and why it waits |
//! | `whole` | blocks that stay whole |
//! | `het` | components that start together |
//! | `bounded` | where further bounds end a plan |
//! | `known` | what was found out already |
//! | `made` | what comes of it |
//! | [`obstacle`] | what stands in the way of those who wait |
//! | `ledger`, [`kept`] | a plan that is kept, and repaired when something changes |
//! | [`probe`] | could it ever run, when would it start |

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

/// Makes a plan that looks at nobody any more once `late` says so.
pub fn plan_until(view: &ClusterView, now: Timestamp, late: Option<&dyn Fn() -> bool>) -> Plan {
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

/// Makes a plan in which that job is looked at in any case, and has room reserved however far ahead it is. Where nobody may go
/// ahead of anybody ([`Backfill::Off`]), all have room reserved, none before those before it.
pub(super) fn plan_minding(view: &ClusterView, now: Timestamp, job: JobId) -> Plan {
    let mut pass = Pass::new(view, now);
    pass.queue.minded = Some(job);
    pass.queue.in_order = view.policy.backfill == Backfill::Off;
    pass.run();
    pass.finish().0
}

/// Makes a plan, and what it takes to repair it, where that is wanted and the plan did not stop at its limit.
pub(super) fn plan_noting(view: &ClusterView, now: Timestamp, notes: bool) -> (Plan, Option<(Future, Ledger)>) {
    if !notes {
        return (plan(view, now), None);
    }
    let mut pass = Pass::new(view, now);
    pass.ledger = Some(Ledger::new(view.nodes.len()));
    pass.run();
    let (plan, future, ledger) = pass.finish();
    // What is kept for those who have others go is not noted.
    let whole = !plan.truncated && !plan.barred && plan.kept_for_preempting.is_empty();
    (plan, ledger.filter(|_| whole).map(|ledger| (future, ledger)))
}

/// What a plan came to on the nodes: free room to the single CPU now, and in amounts from now on.
#[derive(Debug)]
pub(super) struct Future {
    pub floor: Floor,
    pub horizon: Horizon,
}
