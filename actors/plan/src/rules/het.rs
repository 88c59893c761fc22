//! Heterogeneous jobs: all components start together, or none does.

use crate::snapshot::changes::{Fact, Follows, Reads};
use garrick_model::{ids::JobId, state::Reason, time::Timestamp, view::JobView};
use std::sync::Arc;

/// What it reads.
pub(crate) const READS: Reads = Reads {
    with_job: |view, job| if job.spec.het.is_some() { Follows::if_it_keeps(view) } else { Follows::Wholly },
    ..Reads::only("het", |_| &[Fact::Policy])
};

/// How one component is looked at while all are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trial {
    /// Now, or not at all.
    Now,
    /// Now, or when others have gone for it.
    Giving,
    /// Not now.
    Later {
        /// Not before this.
        from: Timestamp,
        /// Room is reserved for it.
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

/// Why a group cannot be looked at: a component is held, waits for something, or is not back in the queue yet.
pub(crate) fn not_ready(leader: &JobView, members: &[Arc<JobView>]) -> Option<Reason> {
    if let Some(waits) = members.iter().find(|member| !member.eligible) {
        return Some(waits.reason.clone()).filter(|reason| *reason != Reason::None).or(Some(Reason::Resources));
    }
    let all = (0..leader.spec.het_size).map(|offset| JobId(leader.id.0.saturating_add(offset)));
    (!members.iter().map(|member| member.id).eq(all)).then_some(Reason::Resources)
}
