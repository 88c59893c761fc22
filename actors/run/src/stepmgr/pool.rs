//! The job's resources, node by node: what it has, what its steps hold, and which nodes can take tasks now. Only the step
//! manager's core changes it. Nothing is ever held twice; [`Pool::check`] verifies that.

use garrick_model::{
    gres::{GresEntry, GresPool, GresShare},
    resources::CpuSet,
    view::AllocatedNode,
};
use std::collections::BTreeSet;

/// Whether tasks can be started on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeUse {
    /// Its shepherd is not there yet.
    Awaited,
    /// Ready.
    Ready,
    /// Its shepherd cannot be reached, and may come back.
    Away,
    /// Lost for this run.
    Lost,
}

/// One node of the job.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolNode {
    /// Name.
    pub name: String,
    /// All CPUs that the job has there.
    pub cpus: CpuSet,
    /// CPUs in `cpus`.
    pub cpu_count: u32,
    /// CPUs that no step holds.
    pub free: CpuSet,
    /// CPUs in `free`.
    pub free_count: u32,
    /// Memory of the job there, MiB; `None`: not counted.
    pub memory: Option<u64>,
    /// Memory that no step holds.
    pub free_memory: u64,
    /// Generic resources of the job there, by name and type.
    pub gres: Vec<GresEntry>,
    /// All of them.
    pub all_gres: GresPool,
    /// Those that no step holds.
    pub free_gres: GresPool,
    /// Number of tasks in the job's own layout.
    pub tasks: u32,
    /// Whether tasks can start there.
    pub usage: NodeUse,
}

/// What a step takes of one node.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    /// Node.
    pub slot: u32,
    /// CPUs.
    pub cpus: CpuSet,
    /// MiB.
    pub memory: u64,
    /// Generic resources.
    pub gres: Vec<GresShare>,
}

/// All nodes of the job.
#[derive(Clone, Debug, PartialEq)]
pub struct Pool {
    nodes: Vec<PoolNode>,
    /// Ready nodes with a free CPU.
    open: BTreeSet<u32>,
}

impl Pool {
    /// Everything free, no node ready.
    pub fn new(nodes: &[AllocatedNode]) -> Self {
        let nodes = nodes
            .iter()
            .map(|n| {
                let memory = n.share.memory.map(|m| m.0);
                let count = n.share.cpus.len();
                let (gres, all_gres) = GresPool::of_shares(&n.share.gres);
                PoolNode {
                    name: n.name.clone(),
                    cpus: n.share.cpus.clone(),
                    cpu_count: count,
                    free: n.share.cpus.clone(),
                    free_count: count,
                    memory,
                    free_memory: memory.unwrap_or(0),
                    gres,
                    free_gres: all_gres.clone(),
                    all_gres,
                    tasks: n.share.tasks,
                    usage: NodeUse::Awaited,
                }
            })
            .collect();
        Self { nodes, open: BTreeSet::new() }
    }

    /// The nodes.
    pub fn nodes(&self) -> &[PoolNode] {
        &self.nodes
    }

    /// One node.
    pub fn node(&self, slot: u32) -> &PoolNode {
        &self.nodes[slot as usize]
    }

    /// Ready nodes with a free CPU, in order.
    pub const fn open(&self) -> &BTreeSet<u32> {
        &self.open
    }

    /// Changes whether a node can take tasks.
    pub fn set_usage(&mut self, slot: u32, usage: NodeUse) {
        self.nodes[slot as usize].usage = usage;
        self.refresh(slot);
    }

    /// Takes what a placement found free.
    pub fn take(&mut self, claims: &[Claim]) {
        for claim in claims {
            let node = &mut self.nodes[claim.slot as usize];
            assert!(claim.cpus.is_subset(&node.free), "CPUs {} of {} are held already", claim.cpus, node.name);
            node.free.subtract(&claim.cpus);
            node.free_count -= claim.cpus.len();
            assert!(claim.memory <= node.free_memory, "memory of {} is held already", node.name);
            node.free_memory -= claim.memory;
            assert!(node.free_gres.has(&node.gres, &claim.gres), "generic resources of {} are held already", node.name);
            node.free_gres.take(&node.gres, &claim.gres);
            self.refresh(claim.slot);
        }
    }

    /// Returns it.
    pub fn give(&mut self, claims: &[Claim]) {
        for claim in claims {
            let node = &mut self.nodes[claim.slot as usize];
            assert!(claim.cpus.is_disjoint(&node.free), "CPUs {} of {} are free already", claim.cpus, node.name);
            node.free.add(&claim.cpus);
            node.free_count += claim.cpus.len();
            node.free_memory += claim.memory;
            node.free_gres.give(&node.gres, &claim.gres);
            self.refresh(claim.slot);
        }
    }

    fn refresh(&mut self, slot: u32) {
        let node = &self.nodes[slot as usize];
        if node.usage == NodeUse::Ready && node.free_count > 0 {
            self.open.insert(slot);
        } else {
            self.open.remove(&slot);
        }
    }

    /// Checks against the claims that are held: every CPU is free or held once, memory adds up.
    pub fn check<'a>(&self, held: impl Iterator<Item = &'a Claim>) -> Result<(), String> {
        let mut fresh: Vec<(BTreeSet<u32>, u64)> =
            self.nodes.iter().map(|n| (n.cpus.iter().collect(), n.memory.unwrap_or(0))).collect();
        let mut gres: Vec<GresPool> = self.nodes.iter().map(|n| n.all_gres.clone()).collect();
        for claim in held {
            let entries = &self.nodes[claim.slot as usize].gres;
            if !gres[claim.slot as usize].has(entries, &claim.gres) {
                return Err(format!("generic resources of node {} are held twice or not the job's", claim.slot));
            }
            gres[claim.slot as usize].take(entries, &claim.gres);
            let (cpus, memory) = &mut fresh[claim.slot as usize];
            for cpu in claim.cpus.iter() {
                if !cpus.remove(&cpu) {
                    return Err(format!("CPU {cpu} of node {} is held twice or not the job's", claim.slot));
                }
            }
            *memory = memory.checked_sub(claim.memory).ok_or(format!("memory of node {} overdrawn", claim.slot))?;
        }
        for (node, left) in self.nodes.iter().zip(gres) {
            if node.free_gres != left {
                return Err(format!("free generic resources of {} do not add up", node.name));
            }
        }
        for (node, (cpus, memory)) in self.nodes.iter().zip(fresh) {
            if node.free.iter().collect::<BTreeSet<u32>>() != cpus || node.free_count as usize != cpus.len() {
                return Err(format!("free CPUs of {} do not add up", node.name));
            }
            if node.free_memory != memory {
                return Err(format!("free memory of {} does not add up", node.name));
            }
        }
        Ok(())
    }
}
