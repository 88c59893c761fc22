//! Which resources a job that waits for resources lacks on the nodes of its partitions.

use super::grounds::Around;
use garrick_model::{
    resources::{MemoryMib, MemoryRequest},
    spec::Sharing,
    state::{NodeBase, Reason},
    view::{JobView, NodeView},
};

/// CPUs or memory of a node.
#[derive(Clone, Copy, Debug)]
struct Amount {
    free: u64,
    total: u64,
    needed: u64,
}

impl Amount {
    fn is_enough(&self) -> bool {
        self.free >= self.needed
    }
}

/// What blocks it on so many nodes that the others are too few: `memory: 0 of 5000M free; you asked for none, which means all of
/// it`. `None` where that is something else, or cannot be said of single nodes.
pub fn lacks(job: &JobView, around: &Around) -> Option<String> {
    let said = matches!(job.sharing, Sharing::Default | Sharing::Oversubscribe);
    if job.reason != Reason::Resources || !said || around.private {
        return None;
    }
    let serves = |node: &&NodeView| node.base == NodeBase::Up && !node.flags.is_held_back() && !node.flags.is_silent();
    let nodes: Vec<&NodeView> = around.nodes_of(job).filter(serves).collect();
    let wanted = job.min_nodes.max(1) as usize;
    let cpus_each = u64::from(job.cpus).div_ceil(wanted as u64).max(1);
    let short = |of: &dyn Fn(&NodeView) -> Amount| {
        let enough = nodes.iter().filter(|node| of(node).is_enough()).count();
        let best = nodes.iter().filter(|node| !of(node).is_enough()).max_by_key(|node| of(node).free)?;
        (enough < wanted).then(|| (of(best), best.name.as_str()))
    };
    let at = |node: &str| if nodes.len() == 1 { String::new() } else { format!(" on {node}, which has most") };
    let cpus_of = |node: &NodeView| cpus(node, cpus_each);
    let memory_of = |node: &NodeView| memory(node, job.memory, cpus_each);
    let cpus = short(&cpus_of).map(|(amount, node)| {
        format!("CPUs: {} of {} free{}, you asked for {cpus_each}", amount.free, amount.total, at(node))
    });
    let memory = short(&memory_of).map(|(amount, node)| {
        let asked = match (job.memory, job.spec.memory) {
            (MemoryRequest::All, MemoryRequest::Default) => {
                "you asked for none, which means all of it (--mem asks for less)".to_owned()
            }
            (MemoryRequest::All, _) => "you asked for all of it (--mem=0)".to_owned(),
            (_, MemoryRequest::Default) => format!("you asked for none, which means {}M", amount.needed),
            _ => format!("you asked for {}M", amount.needed),
        };
        format!("memory: {} of {}M free{}; {asked}", amount.free, amount.total, at(node))
    });
    match (cpus, memory) {
        (Some(cpus), Some(memory)) => Some(format!("{cpus}; {memory}")),
        (Some(one), None) | (None, Some(one)) => Some(one),
        (None, None) => {
            let needed = nodes.iter().map(|node| (cpus_of(node), memory_of(node)));
            let enough = needed.clone().filter(|(cpus, memory)| cpus.is_enough() && memory.is_enough()).count();
            let mib = needed.map(|(_, memory)| memory.needed).max()?;
            let cpus = if cpus_each == 1 { "1 CPU".to_owned() } else { format!("{cpus_each} CPUs") };
            (enough < wanted)
                .then(|| format!("CPUs and memory: there is enough of each, but not on the same node ({cpus}, {mib}M)"))
        }
    }
}

fn cpus(node: &NodeView, needed: u64) -> Amount {
    // A suspended job's are another's.
    let held = node.holds.iter().filter(|hold| !hold.parked).map(|hold| u64::from(hold.share.cpus.len()));
    let total = u64::from(node.shape.cpus.saturating_sub(node.shape.reserved_cpus.len()));
    Amount { free: total.saturating_sub(held.sum()), total, needed }
}

fn memory(node: &NodeView, asked: MemoryRequest, cpus: u64) -> Amount {
    let held: u64 = node.holds.iter().filter_map(|hold| hold.share.memory).map(|MemoryMib(mib)| mib).sum();
    let total = node.shape.memory.0.saturating_sub(node.shape.reserved_memory.0);
    let needed = match asked {
        MemoryRequest::PerNode(mib) => mib.0,
        MemoryRequest::PerCpu(mib) => mib.0.saturating_mul(cpus),
        MemoryRequest::All | MemoryRequest::Default => total,
    };
    // Where the scheduler does not count memory, no node lacks any.
    let counted = node.holds.iter().any(|hold| hold.share.memory.is_some());
    Amount { free: total.saturating_sub(held), total, needed: if counted { needed } else { 0 } }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use garrick_model::{
        config::PartitionConfig,
        ids::Sluid,
        node_shape::NodeShare,
        resources::CpuSet,
        spec::JobSpec,
        state::PartitionState,
        view::{NodeHold, PartitionView},
    };
    use garrick_render::testing::{job, node, waiting};
    use std::sync::Arc;

    fn held(cpus: u32, memory: u64) -> NodeHold {
        let share =
            NodeShare { cpus: CpuSet::from_iter(0..cpus), memory: Some(MemoryMib(memory)), tasks: 0, gres: vec![] };
        NodeHold {
            job: job(1, &[]).id,
            sluid: Sluid(1),
            uid: 1000,
            share,
            sharing: Sharing::Default,
            mcs_label: None,
            partition: None,
            expected_end: None,
            completing: false,
            kept: false,
            parked: false,
        }
    }

    /// Nodes of four CPUs and 5000M, with that much held.
    fn around(held_by_node: &[(u32, u64)]) -> Around {
        let with = |(at, (cpus, memory)): (usize, &(u32, u64))| {
            let mut node = node(u32::try_from(at).unwrap());
            (node.shape.cpus, node.shape.memory) = (4, MemoryMib(5000));
            node.holds = vec![held(*cpus, *memory)];
            Arc::new(node)
        };
        let nodes: Vec<Arc<NodeView>> = held_by_node.iter().enumerate().map(with).collect();
        let config = PartitionConfig { name: "debug".to_owned(), ..PartitionConfig::default() };
        let of = nodes.iter().map(|node| node.index).collect();
        let partition = PartitionView { generation: 1, config: Arc::new(config), state: PartitionState::Up, nodes: of };
        Around { nodes, partitions: vec![Arc::new(partition)], ..Around::default() }
    }

    fn asks(memory: MemoryRequest, resolved: MemoryRequest) -> JobView {
        let job = waiting(7, Reason::Resources);
        let spec = Arc::new(JobSpec { memory, ..(*job.spec).clone() });
        JobView { partitions: vec!["debug".to_owned()], memory: resolved, spec, cpus: 1, ..job }
    }

    #[test]
    fn the_resource_that_blocks_is_named_with_what_was_asked_of_it() {
        let default = asks(MemoryRequest::Default, MemoryRequest::All);
        let told = |job: &JobView, held: &[(u32, u64)]| lacks(job, &around(held));
        assert_eq!(
            told(&default, &[(1, 5000)]).unwrap(),
            "memory: 0 of 5000M free; you asked for none, which means all of it (--mem asks for less)"
        );
        let all = asks(MemoryRequest::All, MemoryRequest::All);
        assert_eq!(told(&all, &[(1, 100)]).unwrap(), "memory: 4900 of 5000M free; you asked for all of it (--mem=0)");
        let some = asks(MemoryRequest::PerNode(MemoryMib(900)), MemoryRequest::PerNode(MemoryMib(900)));
        assert_eq!(
            told(&some, &[(1, 4800), (1, 4500)]).unwrap(),
            "memory: 500 of 5000M free on n2, which has most; you asked for 900M"
        );
        let both = "CPUs and memory: there is enough of each, but not on the same node (1 CPU, 900M)";
        assert_eq!(told(&some, &[(4, 10), (1, 4500)]).unwrap(), both);
    }

    #[test]
    fn cpus_are_named_too_and_nothing_where_the_others_are_enough() {
        let some = asks(MemoryRequest::Default, MemoryRequest::PerCpu(MemoryMib(100)));
        let two = JobView { cpus: 2, ..some.clone() };
        let told = |job: &JobView, held: &[(u32, u64)]| lacks(job, &around(held));
        assert_eq!(
            told(&two, &[(3, 4900)]).unwrap(),
            "CPUs: 1 of 4 free, you asked for 2; memory: 100 of 5000M free; you asked for none, which means 200M"
        );
        assert_eq!(told(&some, &[(4, 400), (3, 300)]), None);
        assert_eq!(told(&JobView { reason: Reason::Priority, ..two }, &[(4, 400)]), None);
    }
}
