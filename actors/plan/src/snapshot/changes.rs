//! Parts of a snapshot that rules read, and whether they are the same in two snapshots: by that a kept plan is known to stand.

use super::facts::{Backfill, ClusterView, Policy};
use garrick_model::{time::Timestamp, view::JobView};
use std::sync::Arc;

/// A part of the snapshot. Jobs that wait, how many tasks of arrays run, nodes and what is held of them are none of these: a plan
/// that is kept follows them one by one. Nor are runs that may give way and limits of QOS: repairs look at them anew for each job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fact {
    /// The site's rules.
    Policy,
    /// Partitions.
    Partitions,
    /// How many licenses there are, and hierarchical resources.
    Licenses,
    /// Who has licenses.
    LicensesHeld,
    /// When advance reservations close which nodes to those who ask for none.
    Closings,
    /// Advance reservations, and who may use them.
    Reservations,
}

impl Fact {
    /// Is it the same in both snapshots, as it counts now?
    pub fn is_the_same(self, before: &ClusterView, view: &ClusterView, now: Timestamp) -> bool {
        match self {
            Self::Policy => is_same_policy(&before.policy, &view.policy),
            Self::Partitions => before.partitions == view.partitions,
            Self::Licenses => {
                before.licenses.totals == view.licenses.totals && before.licenses.hres == view.licenses.hres
            }
            Self::LicensesHeld => before.licenses.held == view.licenses.held,
            Self::Closings => before.reservations.closings(None, now) == view.reservations.closings(None, now),
            Self::Reservations => before.reservations.are_the_same(&view.reservations),
        }
    }
}

fn is_same_policy(before: &Policy, policy: &Policy) -> bool {
    before == policy
        || before.bounds.as_ref().zip(policy.bounds.as_ref()).is_some_and(|(a, b)| a.are_as(b))
            && Policy { bounds: None, ..before.clone() } == Policy { bounds: None, ..policy.clone() }
}

/// What of a snapshot those who wait ask for, which rules read for them only.
#[derive(Clone, Copy, Debug, Default)]
pub struct Minds {
    /// Somebody wants licenses.
    pub licenses: bool,
    /// Somebody is for an advance reservation.
    pub reservations: bool,
}

impl Minds {
    /// Of these jobs.
    pub fn of<'j>(jobs: impl Iterator<Item = &'j Arc<JobView>>) -> Self {
        jobs.fold(Self::default(), |minds, job| Self {
            licenses: minds.licenses || job.spec.licenses.is_some(),
            reservations: minds.reservations || !job.spec.reservations.is_empty(),
        })
    }

    /// Of both.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self { licenses: self.licenses || other.licenses, reservations: self.reservations || other.reservations }
    }
}

/// How a repair goes on with a job of a kept plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Follows {
    /// It is planned anew where something changes that concerns it.
    Wholly,
    /// It keeps the room that it has reserved; when it is its turn a new plan is due.
    Keeps,
    /// Not at all: a new plan is due.
    No,
}

impl Follows {
    /// Where nobody gives way, and all have room reserved, one may keep its room while others are planned anew.
    pub fn if_it_keeps(view: &ClusterView) -> Self {
        let leaves_room = view.policy.backfill == Backfill::Conservative && !view.policy.preempt.is_on();
        if leaves_room { Self::Keeps } else { Self::No }
    }
}

/// A rule, as repairs of kept plans know it.
pub struct Reads {
    /// Which rule: its file.
    pub rule: &'static str,
    /// What it reads of the snapshot besides nodes and the job itself. Where that changes a new plan is due.
    pub facts: fn(Minds) -> &'static [Fact],
    /// Can plans be repaired as the rule is used at this site?
    pub at_site: fn(&ClusterView) -> bool,
    /// Can they with such a job?
    pub with_job: fn(&ClusterView, &JobView) -> Follows,
}

impl Reads {
    /// A rule that reads these facts, and is followed by repairs whatever is asked for.
    pub const fn only(rule: &'static str, facts: fn(Minds) -> &'static [Fact]) -> Self {
        Self { rule, facts, at_site: |_| true, with_job: |_, _| Follows::Wholly }
    }
}
