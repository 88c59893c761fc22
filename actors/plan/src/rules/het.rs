//! Heterogeneous jobs: all components start together, or none does.

use crate::snapshot::changes::{Fact, Follows, Reads};
use garrick_model::{ids::JobId, state::Reason, time::Timestamp, view::JobView};
use std::sync::Arc;

/// What the rule reads.
pub(crate) const READS: Reads = Reads {
    with_job: |view, job| if job.spec.het.is_some() { Follows::if_it_keeps(view) } else { Follows::Wholly },
    ..Reads::only("het", |_| &[Fact::Policy])
};

/// How a component is considered while its whole group is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trial {
    /// It starts now, or the group fails.
    Now,
    /// It starts now, or after runs are preempted for it.
    Giving,
    /// It does not start now.
    Later {
        /// Not before this time.
        from: Timestamp,
        /// Resources are reserved for it.
        reserves: bool,
    },
}

impl Trial {
    pub(crate) const fn is_later(trial: Option<Self>) -> bool {
        matches!(trial, Some(Self::Later { .. }))
    }

    /// The earliest time that counts.
    pub(crate) fn from(trial: Option<Self>, now: Timestamp) -> Timestamp {
        match trial {
            Some(Self::Later { from, .. }) => from.max(now),
            _ => now,
        }
    }
}

/// Why a group cannot be considered: a component is held, has a dependency, or is not back in the queue yet.
pub(crate) fn not_ready(leader: &JobView, members: &[Arc<JobView>]) -> Option<Reason> {
    if let Some(waits) = members.iter().find(|member| !member.eligible) {
        return Some(waits.reason.clone()).filter(|reason| *reason != Reason::None).or(Some(Reason::Resources));
    }
    let all = (0..leader.spec.het_size).map(|offset| JobId(leader.id.0.saturating_add(offset)));
    (!members.iter().map(|member| member.id).eq(all)).then_some(Reason::Resources)
}
