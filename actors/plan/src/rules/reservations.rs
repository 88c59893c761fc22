//! Advance reservations: which jobs may use which, and for which jobs their nodes are closed.

use crate::snapshot::{
    changes::{Fact, Follows, Reads},
    facts::ClusterView,
    reservations::Viewer,
};
use garrick_model::{state::Reason, time::Timestamp, view::JobView};

/// What the rule reads.
pub(crate) const READS: Reads = Reads {
    at_site: |view| view.reservations.only_close_nodes(),
    with_job: |view, job| match job.spec.reservations.len() {
        0 => Follows::Wholly,
        1 => Follows::if_it_keeps(view),
        _ => Follows::No,
    },
    ..Reads::only("reservations", |minds| {
        if minds.reservations { &[Fact::Closings, Fact::Reservations] } else { &[Fact::Closings] }
    })
};

/// The views of reservations in which a job may be placed, in the order in which they are tried. `Err`: it may use none of the
/// reservations that it requested.
pub(crate) fn gate(view: &ClusterView, job: &JobView, partition: &str, now: Timestamp) -> Result<Vec<Viewer>, Reason> {
    let viewers = view.reservations.viewers(job, partition, now);
    if viewers.is_empty() { Err(view.reservations.refused(job)) } else { Ok(viewers) }
}
