//! The rules of a plan, one file each: who may go on (its `gate`), which nodes it leaves to whom, and what of the snapshot
//! it reads, by which a kept plan is known to stand (`RULES`). The order in which a plan goes over them is that of
//! `plan/consider.rs`.
//!
//! | file | rule |
//! |---|---|
//! | [`limits`] | does the partition take such jobs? |
//! | [`bounds`] | how many are looked at and started, of whom |
//! | [`licenses`] | are there as many licenses as are asked for? |
//! | [`reservations`] | nodes that are others' by advance reservation |
//! | [`features`] | nodes with what is asked for by `-C`, `--prefer` and `--extra` |
//! | [`arrays`] | how many tasks of an array run |
//! | [`backfill`] | who is behind whom, and for whom room is reserved |
//! | [`expedited`] | nodes that are kept for one job |
//! | [`caps`] | CPUs that jobs of a partition have together of a node |
//! | [`whole`] | blocks of nodes that stay whole |
//! | [`het`] | components that start together |
//! | [`preempt`] | who gives way |
//! | [`resume`] | which runs that were suspended for others go on |
//! | [`turns`] | which of the jobs that share CPUs run, and which wait for their turn |
//! | [`priority`] | priorities of several factors |
//! | [`reasons`] | which reason says most |

use super::snapshot::{
    changes::{Fact, Follows, Minds, Reads},
    facts::ClusterView,
};
use garrick_model::{time::Timestamp, view::JobView};

pub mod arrays;
pub mod backfill;
pub mod bounds;
pub mod caps;
pub mod expedited;
pub mod features;
pub mod het;
pub mod licenses;
pub mod limits;
pub mod preempt;
pub mod priority;
pub mod reasons;
pub mod reservations;
pub mod resume;
pub mod turns;
pub mod whole;

/// All rules on which it depends whether a kept plan stands.
pub(crate) const RULES: [&Reads; 12] = [
    &limits::READS,
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

/// Are plans for such a snapshot repaired, if all that wait are followed?
pub(crate) fn allow_repairs(view: &ClusterView) -> bool {
    RULES.iter().all(|rule| (rule.at_site)(view))
}

/// How a repair goes on with such a job. One that keeps its room for two reasons has a new plan made.
pub(crate) fn follow(view: &ClusterView, job: &JobView) -> Follows {
    let both = |all: Follows, rule: &&Reads| match (all, (rule.with_job)(view, job)) {
        (Follows::Keeps, Follows::Keeps) => Follows::No,
        (all, one) => all.max(one),
    };
    RULES.iter().fold(Follows::Wholly, both)
}

/// Is all the same that rules read when a kept plan was made?
pub(crate) fn read_the_same(before: &ClusterView, view: &ClusterView, minds: Minds, now: Timestamp) -> bool {
    let mut known: Vec<Fact> = Vec::new();
    let mut is_the_same = |fact: &Fact| {
        let asked = known.contains(fact);
        known.push(*fact);
        asked || fact.is_the_same(before, view, now)
    };
    RULES.iter().all(|rule| (rule.facts)(minds).iter().all(&mut is_the_same))
}
