//! Nodes, CPUs, memory and time of a job for display: counts, folded host lists, TRES strings. Columns, records and JSON all use
//! it, so that they agree.

use garrick_model::{
    gres::{self, GPU, GresCount, GresEntry, GresShare, Totals, count_text, tres_text},
    hostlist,
    ids::NodeIndex,
    resources::{CpuSet, MemoryMib, MemoryRequest},
    spec::Dependency,
    state::JobState,
    time::Timestamp,
    view::{AllocatedNode, JobView, NodeView, PartitionView, PreemptTimes},
};
use std::{collections::BTreeMap, sync::Arc};

/// Counts of a job: what it has, or what it asks for while it has nothing.
pub trait Amounts {
    /// Nodes.
    fn node_count(&self) -> u32;
    /// CPUs.
    fn cpu_count(&self) -> u32;
    /// Seconds that its current run has taken, or took.
    fn run_secs(&self, now: Timestamp) -> u64;
    /// When it was told to give way to another, and when it could have been first.
    fn preempt_times(&self) -> Option<PreemptTimes>;
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

    fn preempt_times(&self) -> Option<PreemptTimes> {
        self.preempted.or_else(|| self.suspended?.yielded)
    }

    fn run_secs(&self, now: Timestamp) -> u64 {
        let until = match (self.state, self.start_time) {
            (state, _) if state.waits() => return 0,
            (_, None) => return 0,
            (JobState::Suspended, _) => self.suspended.map_or(now, |times| times.at),
            (JobState::Running | JobState::Configuring, _) => now,
            _ => self.end_time.unwrap_or(now),
        };
        let stood = self.suspended.map_or(0, |times| times.stood_ms);
        let passed = self.start_time.map_or(0, |start| until.since(start).as_millis());
        u64::try_from(passed).unwrap_or(u64::MAX).saturating_sub(stood) / 1000
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
pub fn tres(cpus: u32, memory: MemoryMib, nodes: Option<u32>, gres: &GresTotals) -> String {
    billed_tres(cpus, memory, nodes, gres, cpus.into())
}

fn billed_tres(cpus: u32, memory: MemoryMib, nodes: Option<u32>, gres: &GresTotals, billing: u64) -> String {
    let mut parts = Vec::new();
    if cpus > 0 {
        parts.push(format!("cpu={cpus}"));
    }
    if memory.0 > 0 {
        parts.push(format!("mem={memory}"));
    }
    if let Some(nodes) = nodes {
        parts.push(format!("node={nodes}"));
        parts.push(format!("billing={billing}"));
    }
    parts.extend(gres.tres());
    parts.join(",")
}

/// What a running step has: `cpu=2,mem=100M,node=1`.
pub fn step_tres(step: &garrick_model::view::StepView) -> String {
    let memory = if step.memory.is_zero() { String::new() } else { format!("mem={},", step.memory) };
    let mut parts = vec![format!("cpu={},{memory}node={}", step.cpus, step.nodes)];
    parts.extend(GresTotals::of_counts(&step.gres).tres());
    parts.join(",")
}

/// TRES that the job asks for.
pub fn requested_tres(job: &JobView) -> String {
    let memory = match job.memory {
        MemoryRequest::Default | MemoryRequest::All => {
            let each = job.spec.gres.mem_per_gpu.unwrap_or_default().0;
            each.saturating_mul(requested_gres(job).count(GPU))
        }
        MemoryRequest::PerNode(m) => m.0.saturating_mul(u64::from(job.min_nodes)),
        // It counts by the threads that are used, and the CPUs that a job has are all of its cores.
        MemoryRequest::PerCpu(_) if job.spec.layout.threads_per_core.is_some() && held(job).is_some() => {
            memory_held(job)
        }
        MemoryRequest::PerCpu(m) => m.0.saturating_mul(u64::from(job.cpus)),
    };
    let billing = job.billing.unwrap_or(job.cpus.into());
    billed_tres(job.cpus, MemoryMib(memory), Some(job.min_nodes), &requested_gres(job), billing)
}

/// A count, or `*` where none is asked for.
pub fn or_any(count: Option<u32>) -> String {
    count.map_or_else(|| "*".to_owned(), |count| count.to_string())
}

/// TRES that the job has or had; empty for none.
pub fn allocated_tres(job: &JobView) -> String {
    let Some(nodes) = held(job) else { return String::new() };
    let memory = memory_held(job);
    let gres = GresTotals::of_shares(nodes.iter().flat_map(|n| &n.share.gres));
    let billing = job.billing.unwrap_or(job.cpu_count().into());
    billed_tres(job.cpu_count(), MemoryMib(memory), Some(job.node_count()), &gres, billing)
}

/// Memory that the job has or had on its nodes, MiB.
fn memory_held(job: &JobView) -> u64 {
    held(job).into_iter().flatten().filter_map(|n| n.share.memory).map(|m| m.0).sum()
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
            Some((names, first))
                if first.share.cpus == node.share.cpus
                    && first.share.memory == node.share.memory
                    && first.share.gres == node.share.gres =>
            {
                names.push(node.name.clone());
            }
            _ => groups.push((vec![node.name.clone()], node)),
        }
    }
    groups
        .into_iter()
        .map(|(names, node)| {
            let memory = node.share.memory.map_or(0, |m| m.0);
            format!(
                "Nodes={} CPU_IDs={} Mem={memory} GRES={}",
                fold(&names),
                node.share.cpus,
                gres::list(&node.share.gres)
            )
        })
        .collect()
}

/// `afterok:5(unfulfilled),singleton(unfulfilled)`, or `(null)`. Of a job that can never run, as documented, all that it
/// asked for.
pub fn dependencies(job: &JobView) -> String {
    let left = &job.dependencies;
    if left.list.is_empty() {
        return "(null)".to_owned();
    }
    let asked = &job.spec.dependencies;
    let known = |d: &Dependency| asked.list.iter().any(|a| d.is_of(a));
    if !left.list.iter().any(|d| d.failed) || !left.list.iter().all(known) {
        return left.unfulfilled_text();
    }
    asked.text_with(|a| left.list.iter().find(|d| d.is_of(a)).map_or("fulfilled", Dependency::state_text))
}

/// Reservation that the job runs or ran in; of a waiting one, those that it asked for.
pub fn reservation(job: &JobView) -> Option<String> {
    let got = job.allocation.as_ref().and_then(|allocation| allocation.reservation.clone());
    got.or_else(|| Some(job.spec.reservations.join(","))).filter(|text| !text.is_empty())
}

/// Licenses that the job was given.
pub fn licenses(job: &JobView) -> Option<String> {
    job.allocation.as_ref().map(|allocation| allocation.licenses.to_string()).filter(|text| !text.is_empty())
}

/// Generic resources by name, types together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GresTotals(BTreeMap<String, u64>);

impl GresTotals {
    fn add(&mut self, name: &str, count: u64) {
        let sum = self.0.entry(name.to_owned()).or_default();
        *sum = sum.saturating_add(count);
    }

    /// Of what is held.
    pub fn of_shares<'a>(shares: impl IntoIterator<Item = &'a GresShare>) -> Self {
        let mut totals = Self::default();
        shares.into_iter().for_each(|share| totals.add(&share.name, share.count));
        totals
    }

    /// Of what a node has.
    pub fn of_entries(entries: &[GresEntry]) -> Self {
        Self::of_entries_of([entries])
    }

    /// Of what several nodes have.
    pub fn of_entries_of<'a>(nodes: impl IntoIterator<Item = &'a [GresEntry]>) -> Self {
        let mut totals = Self::default();
        nodes.into_iter().flatten().for_each(|entry| totals.add(&entry.name, entry.count));
        totals
    }

    /// Of what a step has or asks for.
    pub fn of_counts(counts: &[GresCount]) -> Self {
        let mut totals = Self::default();
        counts.iter().for_each(|one| totals.add(&one.name, one.count));
        totals
    }

    /// Of a name.
    pub fn count(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// `gres/gpu=4`, one for each name.
    pub fn tres(&self) -> impl Iterator<Item = String> + '_ {
        self.0.iter().filter(|(_, n)| **n > 0).map(|(name, n)| format!("gres/{name}={}", count_text(*n)))
    }
}

/// Generic resources that the job asks for on all its nodes, as far as that is known before it starts.
fn requested_gres(job: &JobView) -> GresTotals {
    let asked = &job.spec.gres;
    let times = |all: &[GresCount], times: u32| {
        let mut totals = GresTotals::default();
        all.iter().for_each(|one| totals.add(&one.name, one.count.saturating_mul(times.into())));
        totals.0
    };
    let on_nodes = times(&asked.on_node(0, Totals::NONE), job.min_nodes);
    let mut totals = GresTotals::default();
    // Asked for in several ways, the greatest counts.
    for (name, count) in on_nodes.into_iter().chain(times(&asked.per_task, job.tasks)).chain(times(&asked.total, 1)) {
        let known = totals.0.entry(name).or_default();
        *known = count.max(*known);
    }
    totals
}

/// What a job asks for on each node.
pub fn tres_per_node(job: &JobView) -> Option<String> {
    tres_text(job.spec.gres.per_node.iter().chain(&job.spec.gres.gpus_per_node))
}

/// What a job asks for on all nodes together.
pub fn tres_per_job(job: &JobView) -> Option<String> {
    tres_text(&job.spec.gres.total)
}

/// What a job asks for on each socket.
pub fn tres_per_socket(job: &JobView) -> Option<String> {
    tres_text(&job.spec.gres.per_socket)
}

/// What a job asks for for each task.
pub fn tres_per_task(job: &JobView) -> Option<String> {
    tres_text(&job.spec.gres.per_task)
}

/// `gres/gpu:4`, for CPUs of each GPU.
pub fn cpus_per_tres(job: &JobView) -> Option<String> {
    job.spec.gres.cpus_per_gpu.map(|n| format!("gres/{GPU}:{n}"))
}

/// `gres/gpu:1024`, for memory (MiB) of each GPU.
pub fn mem_per_tres(job: &JobView) -> Option<String> {
    job.spec.gres.mem_per_gpu.map(|m| format!("gres/{GPU}:{}", m.0))
}

/// What a step has or asks for: `gres/gpu:h100:1`.
pub fn step_gres(gres: &[GresCount]) -> Option<String> {
    tres_text(gres)
}

/// What a job has of each name and type on all nodes: `gpu:h100:4`; `None` for nothing.
pub fn allocated_gres(job: &JobView) -> Option<String> {
    let mut all: Vec<GresCount> = Vec::new();
    for share in held(job).unwrap_or_default().iter().flat_map(|node| &node.share.gres) {
        match all.iter_mut().find(|one| one.name == share.name && one.kind == share.kind) {
            Some(one) => one.count += share.count,
            None => all.push(GresCount { name: share.name.clone(), kind: share.kind.clone(), count: share.count }),
        }
    }
    (!all.is_empty()).then(|| gres::list(&all))
}

/// What jobs hold of a node: `gpu:h100:2(IDX:0-1)`, `gpu:h100:0(IDX:N/A)`, `craynetwork:1`.
pub fn gres_used(node: &NodeView) -> String {
    let entries = &node.shape.gres;
    let shown = entries.iter().map(|entry| {
        if !entry.shards.is_empty() {
            return shards_used(node, entry);
        }
        let held = node.holds.iter().flat_map(|hold| &hold.share.gres);
        let held = held.filter(|share| share.name == entry.name && share.kind == entry.kind && !entry.no_consume);
        let (count, devices) = held.fold((0, CpuSet::new()), |(n, all), s| (n + s.count, all.union(&s.devices)));
        let kind = entry.kind.as_ref().map(|kind| format!(":{kind}")).unwrap_or_default();
        let numbers = match (entry.devices, devices.is_empty()) {
            (false, _) => String::new(),
            (true, true) => "(IDX:N/A)".to_owned(),
            (true, false) => format!("(IDX:{devices})"),
        };
        format!("{}{kind}:{}{numbers}", entry.name, count_text(count))
    });
    shown.collect::<Vec<_>>().join(",")
}

/// Shards of each GPU, of one that is given whole a dash: `shard:8(-/5,5/5,3/5,0/5)`.
fn shards_used(node: &NodeView, entry: &GresEntry) -> String {
    let held = || node.holds.iter().flat_map(|hold| &hold.share.gres);
    let of_gpu = |(gpu, all): (u32, &u64)| {
        let shards = held().filter(|share| share.name == entry.name && share.devices.contains(gpu));
        (shards.map(|share| share.count).sum::<u64>(), held().any(|s| s.name == GPU && s.devices.contains(gpu)), *all)
    };
    let gpus: Vec<(u64, bool, u64)> = (0u32..).zip(&entry.shards).map(of_gpu).collect();
    let used: u64 = gpus.iter().map(|(used, ..)| used).sum();
    let each = gpus.iter().map(|(used, whole, all)| match whole {
        true => format!("-/{all}"),
        false => format!("{used}/{all}"),
    });
    format!("{}:{}({})", entry.name, count_text(used), each.collect::<Vec<_>>().join(","))
}

/// What a node has: `cpu=16,mem=1M,billing=16,gres/gpu=4`.
pub fn configured_tres(node: &NodeView) -> String {
    let shape = &node.shape;
    let mut parts = vec![format!("cpu={},mem={},billing={}", shape.cpus, memory(shape.memory), shape.cpus)];
    parts.extend(GresTotals::of_entries(&shape.gres).tres());
    parts.join(",")
}

/// What jobs hold of a node, of whose CPUs and memory so much is held.
pub fn used_tres(node: &NodeView, cpus: u32, memory: MemoryMib) -> String {
    let held = node.holds.iter().flat_map(|hold| &hold.share.gres);
    tres(cpus, memory, None, &GresTotals::of_shares(held))
}

/// What a job has on each node: `gpu:h100:2(IDX:0-1)`.
pub fn gres_by_node(job: &JobView) -> Vec<String> {
    let nodes = held(job).unwrap_or_default().iter().filter(|node| !node.share.gres.is_empty());
    nodes.map(|node| gres::list(&node.share.gres)).collect()
}

/// Ids of all components of the heterogeneous job that this one belongs to: `65-67`.
pub fn het_ids(job: &JobView) -> Option<String> {
    let (leader, _) = job.spec.het.filter(|_| job.spec.het_size > 1)?;
    Some(format!("{leader}-{}", leader.0.saturating_add(job.spec.het_size - 1)))
}

/// `cpu=32,mem=2M,node=2,billing=32` of some nodes.
pub fn of_nodes(nodes: &[&NodeView]) -> String {
    let cpus = nodes.iter().map(|n| n.shape.cpus).sum();
    let memory = nodes.iter().map(|n| n.shape.memory.0).sum();
    tres(
        cpus,
        MemoryMib(memory),
        Some(u32::try_from(nodes.len()).unwrap_or(u32::MAX)),
        &GresTotals::of_entries_of(nodes.iter().map(|n| &n.shape.gres[..])),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{job_spec, job_view};
    use garrick_model::{
        spec::{JobSpec, LayoutRequest},
        state::JobState,
    };
    use std::sync::Arc;

    /// Memory by CPUs counts the threads that are used, in what was asked for as in what was given.
    #[test]
    fn with_one_thread_of_a_core_the_memory_asked_for_is_what_was_given() {
        let mut view = job_view(7, JobState::Running);
        view.cpus = 6;
        view.memory = MemoryRequest::PerCpu(MemoryMib(100));
        assert!(requested_tres(&view).contains("mem=600M"), "{}", requested_tres(&view));
        let layout = LayoutRequest { threads_per_core: Some(1), ..LayoutRequest::default() };
        view.spec = Arc::new(JobSpec { layout, ..job_spec() });
        for tres in [requested_tres(&view), allocated_tres(&view)] {
            assert!(tres.contains("mem=200M"), "{tres}");
        }
    }
}
