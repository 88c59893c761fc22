//! The rules of a plan, one file each. A rule says which jobs may go on (its `gate`), which nodes it leaves to which jobs, and
//! what of the snapshot it reads (`RULES`): a kept plan is still valid while that is unchanged. `plan/consider.rs` applies the
//! rules and sets their order.
//!
//! | file | rule |
//! |---|---|
//! | [`limits`] | does the partition accept such jobs? |
//! | [`accounting`] | limits of associations and QOS |
//! | [`accrual`] | which waiting jobs gain priority by age |
//! | [`mod@minutes`] | running jobs that have reached a limit of minutes |
//! | [`bounds`] | how many jobs are considered and started, for each user, partition and so on |
//! | [`licenses`] | are there as many licenses as are requested? |
//! | [`reservations`] | nodes that advance reservations keep for other jobs |
//! | [`features`] | nodes that satisfy `-C`, `--prefer` and `--extra` |
//! | [`arrays`] | how many tasks of an array run |
//! | [`backfill`] | which jobs are behind others, and which have resources reserved |
//! | [`expedited`] | nodes that are kept for one job |
//! | [`caps`] | CPUs that jobs of a partition may have together on a node |
//! | [`whole`] | blocks of nodes that stay whole |
//! | [`het`] | components that start together |
//! | [`preempt`] | which runs are preempted |
//! | [`resume`] | which suspended runs are resumed |
//! | [`turns`] | gang scheduling: which of the jobs that share CPUs run |
//! | [`priority`] | multifactor priority |
//! | [`fair`] | fair shares, a part of it |
//! | [`reasons`] | which reason is the most informative |

use super::snapshot::{
    changes::{Fact, Follows, Minds, Reads},
    facts::ClusterView,
};
use garrick_model::{time::Timestamp, view::JobView};

pub mod accounting;
pub mod accrual;
pub mod arrays;
pub mod backfill;
pub mod bounds;
pub mod caps;
pub mod expedited;
pub mod fair;
pub mod features;
pub mod het;
pub mod licenses;
pub mod limits;
pub mod minutes;
pub mod preempt;
pub mod priority;
pub mod reasons;
pub mod reservations;
pub mod resume;
pub mod turns;
pub mod whole;

/// All rules that decide whether a kept plan is still valid.
pub(crate) const RULES: [&Reads; 13] = [
    &limits::READS,
    &accounting::READS,
    &bounds::READS,
    &reservations::READS,
    &licenses::READS,
    &features::READS,
    &arrays::READS,
    &backfill::READS,
    &expedited::READS,
    &caps::READS,
    &whole::READS,
    &het::READS,
    &preempt::READS,
];

/// Can plans for such a snapshot be repaired, if repairs can handle all waiting jobs?
pub(crate) fn allow_repairs(view: &ClusterView) -> bool {
    RULES.iter().all(|rule| (rule.at_site)(view))
}

/// How a repair treats such a job. A job that keeps its reservation because of two rules needs a new plan.
pub(crate) fn follow(view: &ClusterView, job: &JobView) -> Follows {
    let both = |all: Follows, rule: &&Reads| match (all, (rule.with_job)(view, job)) {
        (Follows::Keeps, Follows::Keeps) => Follows::No,
        (all, one) => all.max(one),
    };
    RULES.iter().fold(Follows::Wholly, both)
}

/// Is everything that rules read unchanged since the kept plan was made?
pub(crate) fn read_the_same(before: &ClusterView, view: &ClusterView, minds: Minds, now: Timestamp) -> bool {
    let mut known: Vec<Fact> = Vec::new();
    let mut is_the_same = |fact: &Fact| {
        let asked = known.contains(fact);
        known.push(*fact);
        asked || fact.is_the_same(before, view, now)
    };
    RULES.iter().all(|rule| (rule.facts)(minds).iter().all(&mut is_the_same))
}
