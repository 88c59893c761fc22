//! What a node has to give, and what of it a job or step holds.

use crate::{
    gres::{GresEntry, GresShare, list},
    resources::{CpuSet, MemoryMib},
};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// How much of each of its nodes a job leaves to the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SpecCores {
    /// `--core-spec`.
    Cores(u32),
    /// `--thread-spec`.
    Threads(u32),
}

/// What a node has to give, as configured or measured. Abstract CPU numbers `0..cpus` are what allocations use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeShape {
    /// Logical CPUs that can be allocated.
    pub cpus: u32,
    /// Boards.
    pub boards: u32,
    /// Sockets in the node (all boards).
    pub sockets: u32,
    /// Cores in a socket.
    pub cores_per_socket: u32,
    /// Hardware threads in a core.
    pub threads_per_core: u32,
    /// RealMemory.
    pub memory: MemoryMib,
    /// TmpDisk, MiB.
    pub tmp_disk_mib: u64,
    /// Generic resources, all of a name together.
    #[serde(default)]
    pub gres: Vec<GresEntry>,
    /// CPUs that jobs do not get (`CoreSpecCount`, `CpuSpecList`).
    #[serde(default, skip_serializing_if = "CpuSet::is_empty")]
    pub reserved_cpus: CpuSet,
    /// CPUs that only jobs with that GPU get, for each GPU by its number (`RestrictedCoresPerGPU`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpu_cpus: Vec<CpuSet>,
    /// Memory that jobs do not get (`MemSpecLimit`).
    #[serde(default, skip_serializing_if = "MemoryMib::is_zero")]
    pub reserved_memory: MemoryMib,
}

impl NodeShape {
    /// What it has, by the name of a TRES; what has a type by that too. Billing is the number of CPUs.
    pub fn amounts(&self) -> impl Iterator<Item = (String, u64)> {
        let cpus = u64::from(self.cpus);
        let usual = [("cpu", cpus), ("billing", cpus), ("mem", self.memory.0), ("node", 1)];
        let gres = self.gres.iter().flat_map(|gres| {
            let typed = gres.kind.as_ref().map(|kind| (format!("gres/{}:{kind}", gres.name), gres.count));
            std::iter::once((format!("gres/{}", gres.name), gres.count)).chain(typed)
        });
        usual.into_iter().map(|(name, count)| (name.to_owned(), count)).chain(gres)
    }

    /// Abstract CPUs of one core: its hardware threads, or one where the site counts cores only (`CPUs` = cores).
    pub fn cpus_per_core(&self) -> u32 {
        let cores = self.sockets.max(1).saturating_mul(self.cores_per_socket.max(1));
        let threads = self.threads_per_core.max(1);
        if self.cpus >= cores.saturating_mul(threads) { threads } else { 1 }
    }
    /// Cores that can be allocated.
    pub fn cores(&self) -> u32 {
        self.cpus.div_ceil(self.cpus_per_core())
    }
    /// Abstract CPU numbers of core `core`, from 0.
    pub fn cpus_of_core(&self, core: u32) -> Range<u32> {
        let per_core = self.cpus_per_core();
        let end = |n: u32| n.saturating_mul(per_core).min(self.cpus);
        end(core)..end(core.saturating_add(1))
    }
    /// The core that a CPU belongs to.
    pub fn core_of_cpu(&self, cpu: u32) -> u32 {
        cpu / self.cpus_per_core()
    }
    /// CPUs of each socket.
    pub fn sockets_cpus(&self) -> impl Iterator<Item = Range<u32>> + use<> {
        let size = self.cores_per_socket.max(1).saturating_mul(self.cpus_per_core().max(1));
        let cpus = self.cpus;
        (0..cpus.div_ceil(size))
            .map(move |socket| socket * size..(socket.saturating_add(1)).saturating_mul(size).min(cpus))
    }
    /// The socket that a CPU belongs to.
    pub fn socket_of_cpu(&self, cpu: u32) -> u32 {
        cpu / self.cores_per_socket.max(1).saturating_mul(self.cpus_per_core().max(1))
    }
    /// All its CPUs.
    pub fn all_cpus(&self) -> CpuSet {
        CpuSet::from(0..self.cpus)
    }
    /// The CPUs that jobs may have.
    pub fn job_cpus(&self) -> CpuSet {
        let mut cpus = self.all_cpus();
        cpus.subtract(&self.reserved_cpus);
        cpus
    }
    /// Its cores as they are set aside for the system: the last ones of the last sockets first, going round the sockets
    /// (`CoreSpecCount` in slurm.conf(5)).
    pub fn cores_to_set_aside(&self) -> impl DoubleEndedIterator<Item = u32> + use<> {
        let (sockets, cores) = (self.sockets, self.cores_per_socket);
        let in_turn = (0..cores).rev();
        in_turn.flat_map(move |core| (0..sockets).rev().map(move |socket| socket * cores + core))
    }
    /// The CPUs that a job which says how much is left to the system has, whatever the node sets aside for others. Where
    /// that is less, the lowest of a list stay with the system.
    pub fn job_cpus_but(&self, left: SpecCores) -> CpuSet {
        let is_reserved = |core: &u32| self.cpus_of_core(*core).any(|cpu| self.reserved_cpus.contains(cpu));
        let (mut cores, rest): (Vec<u32>, Vec<u32>) = self.cores_to_set_aside().partition(is_reserved);
        if !self.cores_to_set_aside().take(cores.len()).eq(cores.iter().copied()) {
            cores.sort_unstable();
        }
        cores.extend(rest);
        let mut cpus = self.all_cpus();
        let left: Vec<u32> = match left {
            SpecCores::Cores(n) => cores.iter().take(n as usize).flat_map(|core| self.cpus_of_core(*core)).collect(),
            SpecCores::Threads(n) => {
                cores.iter().flat_map(|core| self.cpus_of_core(*core).rev()).take(n as usize).collect()
            }
        };
        left.into_iter().for_each(|cpu| _ = cpus.remove(cpu));
        cpus
    }
    /// How many those are.
    pub fn job_cpu_count(&self) -> u32 {
        self.cpus.saturating_sub(self.reserved_cpus.len())
    }
    /// The CPUs that only jobs with a GPU may have.
    pub fn restricted_cpus(&self) -> CpuSet {
        self.cpus_of_gpus(|_| true)
    }
    /// Those that come with these GPUs, by number.
    pub fn cpus_of_gpus(&self, gpus: impl Fn(u32) -> bool) -> CpuSet {
        let mut cpus = CpuSet::new();
        let own = (0u32..).zip(&self.gpu_cpus).filter(|(gpu, _)| gpus(*gpu));
        own.for_each(|(_, of_gpu)| cpus.add(of_gpu));
        cpus
    }
    /// How many come with a GPU.
    pub fn cpus_per_gpu(&self) -> u32 {
        self.gpu_cpus.first().map_or(0, CpuSet::len)
    }
    /// The CPUs that a job with these GPUs may have.
    pub fn job_cpus_with(&self, gpus: &CpuSet) -> CpuSet {
        self.job_cpus().difference(&self.cpus_of_gpus(|gpu| !gpus.contains(gpu)))
    }
    /// The CPUs that jobs may have without a GPU.
    pub fn common_cpus(&self) -> CpuSet {
        self.job_cpus_with(&CpuSet::new())
    }
    /// How many those are.
    pub fn common_cpu_count(&self) -> u32 {
        let restricted: u32 = self.gpu_cpus.iter().map(CpuSet::len).sum();
        self.job_cpu_count().saturating_sub(restricted)
    }
    /// The memory that jobs may have, MiB.
    pub const fn job_memory(&self) -> u64 {
        self.memory.0.saturating_sub(self.reserved_memory.0)
    }
}

/// Allocated share of one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeShare {
    /// Abstract CPU numbers of the node given to the holder.
    pub cpus: CpuSet,
    /// Memory given to the holder; `None` where memory is not a consumable resource.
    pub memory: Option<MemoryMib>,
    /// Tasks laid out on this node, from the job's `--ntasks` (0 where the job named none).
    #[serde(default)]
    pub tasks: u32,
    /// Generic resources of the node given to the holder.
    #[serde(default)]
    pub gres: Vec<GresShare>,
}

/// What a node has, as `scontrol show node` prints it, with the sockets that devices are bound to: `gpu:h100:4(S:0-1)`;
/// empty for nothing.
pub fn entries_text(shape: &NodeShape) -> String {
    let one = |entry: &GresEntry| {
        let near = entry.places.iter().filter(|place| !place.cpus.is_empty());
        let sockets: CpuSet = near.flat_map(|place| place.cpus.iter().map(|cpu| shape.socket_of_cpu(cpu))).collect();
        if sockets.is_empty() { entry.to_string() } else { format!("{entry}(S:{sockets})") }
    };
    list(&shape.gres.iter().map(one).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_own_consecutive_cpus() {
        let mut shape = NodeShape {
            cpus: 16,
            boards: 1,
            sockets: 2,
            cores_per_socket: 4,
            threads_per_core: 2,
            memory: MemoryMib(1000),
            tmp_disk_mib: 0,
            gres: Vec::new(),
            reserved_cpus: Default::default(),
            gpu_cpus: Vec::new(),
            reserved_memory: Default::default(),
        };
        assert_eq!((shape.cores(), shape.cpus_of_core(3)), (8, 6..8));
        assert_eq!(shape.core_of_cpu(7), 3);
        shape.cpus = 8;
        assert_eq!((shape.cores(), shape.cpus_per_core(), shape.cpus_of_core(3)), (8, 1, 3..4));
        assert_eq!(shape.all_cpus().to_string(), "0-7");
    }
}
