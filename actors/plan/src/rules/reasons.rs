//! Which of the reasons why a job waits is the most informative.

use garrick_model::{entities::reasons::is_of_accounting, state::Reason};

/// A higher weight is more informative: that a job could start soon matters more than a partition that will never accept it.
pub(crate) fn weight_of(reason: &Reason) -> u8 {
    match reason {
        reason if reason.is_unavailable_nodes() || is_of_accounting(reason) => 3,
        Reason::JobArrayTaskLimit => 6,
        Reason::Resources | Reason::Fragmentation | Reason::Other(_) => 5,
        Reason::Priority => 4,
        Reason::PartitionDown | Reason::PartitionInactive => 2,
        Reason::PartitionTimeLimit
        | Reason::PartitionNodeLimit
        | Reason::PartitionConfig
        | Reason::AccountNotAllowed
        | Reason::QosNotAllowed => 1,
        _ => 0,
    }
}

/// Does the job wait for resources, or behind jobs that do? Nodes out of service do not count: nobody knows when they return.
/// Limits of accounting hold no other job back.
pub(crate) fn waits_for_room(reason: &Reason) -> bool {
    matches!(reason, Reason::Resources | Reason::Priority | Reason::Other(_))
        && !reason.is_unavailable_nodes()
        && !is_of_accounting(reason)
}
