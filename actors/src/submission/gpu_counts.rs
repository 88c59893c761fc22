//! GPUs that a job requests in several ways at once: in all, for each node, for each task. Pure.

use garrick_model::{
    gres::{GPU, GresCount, list},
    node_sizes::NodeSizes,
    refusal::Refusal,
    spec::{JobSpec, NodeCount},
};

/// GPUs per task, per node and in all must agree; the resulting numbers of nodes and tasks are filled in.
pub(super) fn agree(spec: &mut JobSpec, each: u32, on_node: u32, total: u32) -> Result<(), Refusal> {
    let asked: Vec<GresCount> = spec.gres.all().filter(|one| one.name == GPU).cloned().collect();
    let contradiction = || Refusal::InvalidGres(list(&asked));
    if total > 0 && on_node > 0 {
        let nodes = total / on_node;
        let fits = |asked: NodeCount| (asked.min..=asked.max.unwrap_or(asked.min)).contains(&nodes);
        if !total.is_multiple_of(on_node)
            || spec.nodes.is_some_and(|asked| !fits(asked))
            || spec.tasks.is_some_and(|tasks| tasks < nodes)
        {
            return Err(contradiction());
        }
        spec.nodes = Some(NodeCount { min: nodes, max: Some(nodes) });
        spec.node_sizes = NodeSizes::default();
    }
    if each > 0 && on_node > 0 {
        // No more tasks than a node has GPUs for.
        let most = on_node / each;
        let on_all = spec.nodes.map(|asked| most.saturating_mul(asked.max.unwrap_or(asked.min)));
        if most == 0
            || spec.tasks_per_node.is_some_and(|tasks| tasks > most)
            || spec.tasks.is_some_and(|tasks| on_all.is_some_and(|on_all| tasks > on_all))
        {
            return Err(contradiction());
        }
        spec.tasks_per_node.get_or_insert(spec.tasks.map_or(most, |tasks| tasks.min(most)));
    }
    // sbatch(1): "requires an explicit task count", not a range of nodes.
    let is_range = spec.nodes.is_none_or(|asked| asked.max.is_some_and(|max| max != asked.min));
    if each > 0 && spec.tasks.is_none() && spec.tasks_per_node.is_none() && is_range {
        return Err(contradiction());
    }
    Ok(())
}
