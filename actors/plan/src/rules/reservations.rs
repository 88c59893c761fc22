//! Advance reservations: who may use which, and whose nodes are closed to whom.

use crate::snapshot::{
    changes::{Fact, Follows, Reads},
    facts::ClusterView,
    reservations::Eyes,
};
use garrick_model::{state::Reason, time::Timestamp, view::JobView};

/// What it reads.
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

/// With whose eyes a job may look at nodes, in the order in which they are tried. `Err`: it may use none of those that it
/// asked for.
pub(crate) fn gate(view: &ClusterView, job: &JobView, partition: &str, now: Timestamp) -> Result<Vec<Eyes>, Reason> {
    let eyes = view.reservations.eyes(job, partition, now);
    if eyes.is_empty() { Err(view.reservations.refused(job)) } else { Ok(eyes) }
}
