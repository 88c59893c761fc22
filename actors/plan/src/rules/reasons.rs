//! Which of the reasons why a job waits says most.

use garrick_model::state::Reason;

/// A job that could start soon says so rather than naming a partition that will never take it.
pub(crate) fn weight_of(reason: &Reason) -> u8 {
    match reason {
        reason if reason.is_unavailable_nodes() => 3,
        Reason::JobArrayTaskLimit => 6,
        Reason::Resources | Reason::Fragmentation | Reason::Other(_) => 5,
        Reason::Priority => 4,
        Reason::PartitionDown | Reason::PartitionInactive => 2,
        Reason::PartitionTimeLimit | Reason::PartitionNodeLimit | Reason::AccountNotAllowed | Reason::QosNotAllowed => {
            1
        }
        _ => 0,
    }
}

/// Waits for room, or for others to have theirs. What is out of service is no such room: nobody knows when it returns.
pub(crate) fn waits_for_room(reason: &Reason) -> bool {
    matches!(reason, Reason::Resources | Reason::Priority | Reason::Other(_)) && !reason.is_unavailable_nodes()
}
