//! The parts of a snapshot that rules read, and whether they are equal in two snapshots: if they are, a kept plan is still valid.

use super::facts::{Backfill, ClusterView, Policy};
use garrick_model::{time::Timestamp, view::JobView};
use std::sync::Arc;

/// A part of the snapshot. Waiting jobs, numbers of running array tasks, nodes and their holds are not listed: a repair follows
/// their changes one by one. Neither are runs that may be preempted and limits of QOS: repairs read them anew for each job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fact {
    /// The site's rules.
    Policy,
    /// Partitions.
    Partitions,
    /// How many licenses there are, and hierarchical resources.
    Licenses,
    /// The licenses that jobs hold.
    LicensesHeld,
    /// When advance reservations close which nodes to jobs that request none.
    Closings,
    /// Advance reservations, and which jobs may use them.
    Reservations,
    /// Associations, QOS and their limits, and fair shares. What was used is read anew.
    Accounting,
}

impl Fact {
    /// Is the fact equal in both snapshots, as of now?
    pub(crate) fn is_the_same(self, before: &ClusterView, view: &ClusterView, now: Timestamp) -> bool {
        match self {
            Self::Policy => is_same_policy(&before.policy, &view.policy),
            Self::Partitions => before.partitions == view.partitions,
            Self::Licenses => {
                before.licenses.totals == view.licenses.totals && before.licenses.hres == view.licenses.hres
            }
            Self::LicensesHeld => before.licenses.held == view.licenses.held,
            Self::Closings => before.reservations.closings(None, now) == view.reservations.closings(None, now),
            Self::Accounting => {
                let (before, now) = (&before.accounting, &view.accounting);
                same(&before.table, &now.table) && same(&before.past.fair_share, &now.past.fair_share)
            }
            Self::Reservations => before.reservations.are_the_same(&view.reservations),
        }
    }
}

fn same<T: PartialEq>(before: &Arc<T>, now: &Arc<T>) -> bool {
    Arc::ptr_eq(before, now) || before == now
}

fn is_same_policy(before: &Policy, policy: &Policy) -> bool {
    before == policy
        || before.bounds.as_ref().zip(policy.bounds.as_ref()).is_some_and(|(a, b)| a.are_as(b))
            && Policy { bounds: None, ..before.clone() } == Policy { bounds: None, ..policy.clone() }
}

/// Kinds of requests among the waiting jobs: some facts only matter to such jobs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Minds {
    /// Some job requests licenses.
    pub licenses: bool,
    /// Some job is for an advance reservation.
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

/// How a repair treats a job of a kept plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Follows {
    /// The job is planned anew when a change affects it.
    Wholly,
    /// The job keeps what is reserved for it; when its turn comes, a new plan is due.
    Keeps,
    /// The job cannot be handled: a new plan is due.
    No,
}

impl Follows {
    /// If there is no preemption and all jobs have resources reserved, a job may keep its reservation while others are planned
    /// anew.
    pub(crate) fn if_it_keeps(view: &ClusterView) -> Self {
        let leaves_room = view.policy.backfill == Backfill::Conservative && !view.policy.preempt.is_on();
        if leaves_room { Self::Keeps } else { Self::No }
    }
}

/// A rule as seen by repairs of kept plans.
pub struct Reads {
    /// The rule's name: its file.
    pub rule: &'static str,
    /// What it reads of the snapshot besides nodes and the job itself. If that changes, a new plan is due.
    pub(crate) facts: fn(Minds) -> &'static [Fact],
    /// Can plans be repaired, as the rule is used at this site?
    pub at_site: fn(&ClusterView) -> bool,
    /// Can plans be repaired with such a job?
    pub with_job: fn(&ClusterView, &JobView) -> Follows,
}

impl Reads {
    /// A rule that reads these facts, and that repairs can handle for all jobs.
    pub(crate) const fn only(rule: &'static str, facts: fn(Minds) -> &'static [Fact]) -> Self {
        Self { rule, facts, at_site: |_| true, with_job: |_, _| Follows::Wholly }
    }
}
