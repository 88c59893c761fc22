//! Nodes, CPUs, memory and time of a job as readers see them: counts, folded host lists, TRES strings.
//! Used by the columns, the records and the JSON form alike, so that they agree.

use garrick_model::{
    hostlist,
    ids::NodeIndex,
    resources::{MemoryMib, MemoryRequest},
    state::JobState,
    time::Timestamp,
    view::{AllocatedNode, JobView, NodeView, PartitionView},
};
use std::sync::Arc;

/// Counts of a job: what it has, or what it asks for while it has nothing.
pub trait Amounts {
    /// Nodes.
    fn node_count(&self) -> u32;
    /// CPUs.
    fn cpu_count(&self) -> u32;
    /// Seconds that its current run has taken, or took.
    fn run_secs(&self, now: Timestamp) -> u64;
}

impl Amounts for JobView {
    fn node_count(&self) -> u32 {
        match held(self) {
            Some(nodes) => u32::try_from(nodes.len()).unwrap_or(u32::MAX),
            None => self.min_nodes,
        }
    }

    fn cpu_count(&self) -> u32 {
        held(self).map_or(self.cpus, |nodes| nodes.iter().map(|n| n.share.cpus.len()).sum())
    }

    fn run_secs(&self, now: Timestamp) -> u64 {
        match (self.state, self.start_time) {
            (state, _) if state.waits() => 0,
            (_, None) => 0,
            (JobState::Running | JobState::Suspended | JobState::Configuring, Some(start)) => {
                now.since(start).as_secs()
            }
            (_, Some(start)) => self.end_time.unwrap_or(now).since(start).as_secs(),
        }
    }
}

/// Nodes of the job's allocation; `None` while it waits.
fn held(job: &JobView) -> Option<&[AllocatedNode]> {
    match (&job.allocation, job.state) {
        (Some(allocation), state) if !state.waits() && !allocation.nodes.is_empty() => Some(&allocation.nodes),
        _ => None,
    }
}

/// A node by its index, in a list in configuration order.
pub fn node_at(nodes: &[Arc<NodeView>], index: NodeIndex) -> Option<&NodeView> {
    let place = nodes.get(index.0 as usize).filter(|n| n.index == index);
    place.or_else(|| nodes.iter().find(|n| n.index == index)).map(|n| &**n)
}

/// A partition's members.
pub fn members<'a>(partition: &PartitionView, nodes: &'a [Arc<NodeView>]) -> Vec<&'a NodeView> {
    partition.nodes.iter().filter_map(|i| node_at(nodes, *i)).collect()
}

/// Names as a host list, in their order; empty for none.
pub fn fold(names: &[String]) -> String {
    hostlist::fold(names)
}

/// The job's nodes as a host list; empty while it has none.
pub fn node_list(job: &JobView) -> String {
    held(job).map(|nodes| fold(&nodes.iter().map(|n| n.name.clone()).collect::<Vec<_>>())).unwrap_or_default()
}

/// The node of the batch script and of the step manager.
pub fn batch_host(job: &JobView) -> Option<&str> {
    held(job)?.first().map(|n| n.name.as_str())
}

/// `500M`, `2G`, `0`.
pub fn memory(memory: MemoryMib) -> String {
    memory.to_string()
}

/// `cpu=4,mem=2M,node=2,billing=4`; parts that are nothing are left out, all of it when there is nothing.
pub fn tres(cpus: u32, memory: MemoryMib, nodes: Option<u32>) -> String {
    let mut parts = Vec::new();
    if cpus > 0 {
        parts.push(format!("cpu={cpus}"));
    }
    if memory.0 > 0 {
        parts.push(format!("mem={memory}"));
    }
    if let Some(nodes) = nodes {
        parts.push(format!("node={nodes}"));
        parts.push(format!("billing={cpus}"));
    }
    parts.join(",")
}

/// TRES that the job asks for.
pub fn requested_tres(job: &JobView) -> String {
    let memory = match job.memory {
        MemoryRequest::Default | MemoryRequest::All => 0,
        MemoryRequest::PerNode(m) => m.0.saturating_mul(u64::from(job.min_nodes)),
        MemoryRequest::PerCpu(m) => m.0.saturating_mul(u64::from(job.cpus)),
    };
    tres(job.cpus, MemoryMib(memory), Some(job.min_nodes))
}

/// TRES that the job has or had; empty for none.
pub fn allocated_tres(job: &JobView) -> String {
    let Some(nodes) = held(job) else { return String::new() };
    let memory = nodes.iter().filter_map(|n| n.share.memory).map(|m| m.0).sum();
    tres(job.cpu_count(), MemoryMib(memory), Some(job.node_count()))
}

/// What the job has, else what it asks for.
pub fn job_tres(job: &JobView) -> String {
    if held(job).is_some() { allocated_tres(job) } else { requested_tres(job) }
}

/// `Nodes=n[1-2] CPU_IDs=0-3 Mem=0 GRES=`, one line for neighbours with the same share.
pub fn shares_by_node(job: &JobView) -> Vec<String> {
    let mut groups: Vec<(Vec<String>, &AllocatedNode)> = Vec::new();
    for node in held(job).unwrap_or_default() {
        match groups.last_mut() {
            Some((names, first)) if first.share.cpus == node.share.cpus && first.share.memory == node.share.memory => {
                names.push(node.name.clone());
            }
            _ => groups.push((vec![node.name.clone()], node)),
        }
    }
    groups
        .into_iter()
        .map(|(names, node)| {
            let memory = node.share.memory.map_or(0, |m| m.0);
            format!("Nodes={} CPU_IDs={} Mem={memory} GRES=", fold(&names), node.share.cpus)
        })
        .collect()
}

/// `afterok:5(unfulfilled),singleton(unfulfilled)`, or `(null)`.
pub fn dependencies(job: &JobView) -> String {
    if job.dependencies.list.is_empty() {
        return "(null)".to_owned();
    }
    job.dependencies.unfulfilled_text()
}

/// Licenses that the job was given.
pub fn licenses(job: &JobView) -> Option<String> {
    job.allocation.as_ref().map(|allocation| allocation.licenses.to_string()).filter(|text| !text.is_empty())
}
