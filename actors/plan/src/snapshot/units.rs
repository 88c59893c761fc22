//! Exclusive use of nodes together with their whole leaf switch or block.

use super::facts::ClusterView;
use garrick_model::{
    ids::JobId,
    node_shape::NodeShare,
    spec::Sharing,
    view::{JobView, NodeHold},
};
use std::{collections::BTreeMap, sync::Arc};

/// Adds holds to the remaining nodes of those units, which keep other jobs away.
pub(crate) fn close_units(view: &mut ClusterView, jobs: &[Arc<JobView>]) {
    if view.policy.topologies.is_empty() {
        return;
    }
    let has_nodes = |job: &JobView| job.state.is_live() && !job.state.waits();
    let mut closing: BTreeMap<JobId, usize> = BTreeMap::new();
    for job in jobs.iter().filter(|job| has_nodes(job)) {
        let Some(place) = job
            .allocation
            .as_ref()
            .and_then(|allocation| view.partitions.iter().position(|p| p.name == allocation.partition))
        else {
            continue;
        };
        if job.spec.topology.exclusive || view.partitions[place].exclusive_topo {
            closing.insert(job.id, place);
        }
    }
    if closing.is_empty() {
        return;
    }
    let mut held: BTreeMap<(usize, usize), Vec<(JobId, NodeHold)>> = BTreeMap::new();
    for (place, node) in view.nodes.iter().enumerate() {
        for hold in &node.holds {
            let Some(partition) = closing.get(&hold.job) else { continue };
            if let Some(unit) = view.topology(*partition).and_then(|topology| topology.units().of(place)) {
                held.entry((*partition, unit)).or_default().push((hold.job, hold.clone()));
            }
        }
    }
    for ((partition, unit), holds) in held {
        let Some(topology) = view.topology(partition).cloned() else { continue };
        for place in topology.units().nodes(unit) {
            let Some(node) = view.nodes.get_mut(*place) else { continue };
            for (job, hold) in &holds {
                if node.holds.iter().all(|known| known.job != *job) {
                    let closed = NodeHold { share: NodeShare::default(), sharing: Sharing::Exclusive, ..hold.clone() };
                    Arc::make_mut(node).holds.push(closed);
                }
            }
        }
    }
}
