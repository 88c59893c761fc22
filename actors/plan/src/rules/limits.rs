//! Does a partition accept a job? Checks its state, accounts, QOS, time limit and numbers of nodes.

use super::accounting::qos_has;
use crate::snapshot::{
    changes::{Fact, Reads},
    facts::{ClusterView, PartitionFacts},
    request::run_limit,
};
use garrick_model::{
    entities::qos::QosFlag,
    state::{PartitionState, Reason},
    time::TimeLimit,
    view::JobView,
};

/// What the rule reads.
pub(crate) const READS: Reads = Reads::only("limits", |_| &[Fact::Partitions, Fact::Accounting]);

/// Does the partition accept the job?
pub(crate) fn gate(view: &ClusterView, job: &JobView, partition: &PartitionFacts) -> Result<(), Reason> {
    match partition.state {
        PartitionState::Up | PartitionState::Drain => {}
        PartitionState::Down => return Err(Reason::PartitionDown),
        PartitionState::Inactive => return Err(Reason::PartitionInactive),
    }
    if let Some(config) = &partition.takes {
        if !config.allows_account(job.spec.account.as_deref()) {
            return Err(Reason::AccountNotAllowed);
        }
        // As in Slurm, root's jobs may use any QOS.
        if job.uid != 0 && !config.allows_qos(job.spec.qos.as_deref()) {
            return Err(Reason::QosNotAllowed);
        }
    }
    let lifts = |flag| qos_has(&view.accounting, job, flag);
    if longer(run_limit(job, partition), partition.max_time) && !lifts(QosFlag::PartitionTimeLimit) {
        return Err(Reason::PartitionTimeLimit);
    }
    let most = partition.max_nodes.filter(|_| !lifts(QosFlag::PartitionMaxNodes)).unwrap_or(u32::MAX);
    let least = if lifts(QosFlag::PartitionMinNodes) { 0 } else { partition.min_nodes };
    let sizes = &job.spec.node_sizes;
    // No node is without a task.
    let most_of_sizes = job.spec.tasks.map_or(most, |tasks| most.min(tasks));
    let none = !sizes.is_empty() && sizes.ascending(least.max(job.min_nodes), most_of_sizes).next().is_none();
    if none || job.min_nodes > most || job.max_nodes < least {
        return Err(Reason::PartitionNodeLimit);
    }
    Ok(())
}

/// Is limit `a` longer than `b`?
pub fn longer(a: TimeLimit, b: TimeLimit) -> bool {
    a != b && a.min(b) == b
}
