//! What jobs and steps ask for of generic resources.

use super::{GPU, GresCount, MOST_TYPES, Totals};
use crate::{refusal::Refusal, resources::MemoryMib};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt};

/// How tasks are bound to the GPUs of their step, `--gpu-bind`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum GpuBind {
    /// Every task sees all GPUs of its step on the node.
    #[default]
    None,
    /// So many GPUs to each task, each GPU to one task.
    PerTask(u32),
    /// One GPU to each task, so many tasks to a GPU.
    Single(u32),
    /// The GPU with this number among those of the step, by local task id, from the front again when it ends.
    Map(Vec<u32>),
    /// The GPUs of this mask, likewise.
    Mask(Vec<u64>),
    /// Those near to the CPUs of the task.
    Closest,
}

impl fmt::Display for GpuBind {
    /// As `--gpu-bind` reads it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |of: Vec<String>| of.join(",");
        match self {
            Self::None => f.write_str("none"),
            Self::PerTask(each) => write!(f, "per_task:{each}"),
            Self::Single(tasks) => write!(f, "single:{tasks}"),
            Self::Map(map) => write!(f, "map_gpu:{}", list(map.iter().map(u32::to_string).collect())),
            Self::Mask(masks) => write!(f, "mask_gpu:{}", list(masks.iter().map(|m| format!("{m:#x}")).collect())),
            Self::Closest => f.write_str("closest"),
        }
    }
}

/// `--gres-flags` about CPUs and devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum GresBinding {
    /// `enforce-binding`: only CPUs near to the devices.
    Enforce,
    /// `disable-binding`: any CPUs.
    Disable,
}

/// What a job or step asks for, with the options about GPUs. The default asks for nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct GresRequest {
    /// `--gres`: on each node.
    pub per_node: Vec<GresCount>,
    /// `--gpus-per-node`: on each node.
    pub gpus_per_node: Vec<GresCount>,
    /// `--gpus`: on all nodes together, at most [`super::MOST_TYPES`]; either one of any type, or each of another type.
    pub total: Vec<GresCount>,
    /// `--gpus-per-task`, `--tres-per-task`: for each task.
    pub per_task: Vec<GresCount>,
    /// `--gpus-per-socket`: on each of the sockets.
    pub per_socket: Vec<GresCount>,
    /// How many sockets of each node that is about (`--sockets-per-node`).
    pub sockets: Option<u32>,
    /// `--gres-flags`; `None`: rather CPUs near to the devices.
    pub binding: Option<GresBinding>,
    /// `--gres=none`: none of what a step would get unasked.
    pub none: bool,
    /// `--cpus-per-gpu`
    pub cpus_per_gpu: Option<u32>,
    /// `--mem-per-gpu`
    pub mem_per_gpu: Option<MemoryMib>,
    /// `--ntasks-per-gpu`
    pub tasks_per_gpu: Option<u32>,
    /// `--gpu-bind`; `None`: with `--gpus-per-task` each task to its own, else none.
    pub bind: Option<GpuBind>,
}

impl GresRequest {
    /// Nothing that nodes must have is asked for.
    pub fn is_empty(&self) -> bool {
        self.all().all(|asked| asked.count == 0)
    }

    /// Everything that is named in it.
    pub fn all(&self) -> impl Iterator<Item = &GresCount> {
        let on_nodes = self.per_node.iter().chain(&self.gpus_per_node).chain(&self.per_socket);
        on_nodes.chain(&self.total).chain(&self.per_task)
    }

    /// What a node must give for so many tasks, and for a part of what is asked for in all.
    pub fn on_node(&self, tasks: u32, of_total: Totals) -> Vec<GresCount> {
        let mut need: Vec<GresCount> = self.per_node.iter().filter(|asked| asked.count > 0).cloned().collect();
        // Asked for in two ways, the greater counts.
        let mut at_least = |asked: &GresCount, count: u64| match need
            .iter_mut()
            .find(|known| known.name == asked.name && known.kind == asked.kind)
        {
            Some(known) => known.count = known.count.max(count),
            None if count > 0 => need.push(GresCount { count, ..asked.clone() }),
            None => {}
        };
        for asked in &self.gpus_per_node {
            at_least(asked, asked.count);
        }
        for asked in &self.per_socket {
            at_least(asked, asked.count.saturating_mul(self.sockets.unwrap_or(1).into()));
        }
        for asked in &self.per_task {
            at_least(asked, asked.count.saturating_mul(u64::from(tasks)));
        }
        for (place, asked) in self.total.iter().enumerate() {
            at_least(asked, of_total.at(place));
        }
        need
    }

    /// How many of each are asked for on so many nodes and for so many tasks, by name (`gpu`) and by name and type (`gpu:h100`). Asked
    /// for in several ways, the greatest counts.
    pub fn counted(&self, nodes: u32, tasks: u32) -> BTreeMap<String, u64> {
        let mut greatest: BTreeMap<String, u64> = BTreeMap::new();
        let mut count = |all: &[GresCount], times: u32| {
            let mut sums: BTreeMap<String, u64> = BTreeMap::new();
            for one in all {
                let typed = one.kind.as_ref().map(|kind| format!("{}:{kind}", one.name));
                for name in std::iter::once(one.name.clone()).chain(typed) {
                    let sum = sums.entry(name).or_default();
                    *sum = sum.saturating_add(one.count.saturating_mul(times.into()));
                }
            }
            for (name, sum) in sums {
                let known = greatest.entry(name).or_default();
                *known = sum.max(*known);
            }
        };
        count(&self.on_node(0, Totals::NONE), nodes);
        count(&self.per_task, tasks);
        count(&self.total, 1);
        greatest
    }

    /// Leaves types out that are not to be counted by themselves. Those of one list that are the same then count together.
    pub fn count_only(&mut self, counts: impl Fn(&str, &str) -> bool) {
        let lists =
            [&mut self.per_node, &mut self.gpus_per_node, &mut self.total, &mut self.per_task, &mut self.per_socket];
        for list in lists {
            let mut kept: Vec<GresCount> = Vec::new();
            for mut one in std::mem::take(list) {
                one.kind = one.kind.take().filter(|kind| counts(&one.name, kind));
                match kept.iter_mut().find(|known| known.name == one.name && known.kind == one.kind) {
                    Some(known) => known.count = known.count.saturating_add(one.count),
                    None => kept.push(one),
                }
            }
            *list = kept;
        }
    }

    /// What is asked for on all nodes together.
    pub fn totals(&self) -> Totals {
        Totals::asked(self)
    }

    /// Can that be asked for on all nodes together?
    pub fn check_totals(&self) -> Result<(), Refusal> {
        let any = self.total.iter().any(|asked| asked.kind.is_none());
        if any && self.total.len() > 1 {
            return Err(Refusal::InvalidGres(super::list(&self.total)));
        }
        if self.total.len() > MOST_TYPES {
            return Err(Refusal::NotSupported(format!("--gpus with more than {MOST_TYPES} types")));
        }
        Ok(())
    }

    /// `SLURM_*` variables by which a job tells what it was asked for with (`sbatch(1)`, "output environment variables").
    pub fn variables(&self) -> Vec<(&'static str, String)> {
        let gpus = |list: &[GresCount]| {
            let own: Vec<String> = list
                .iter()
                .filter(|asked| asked.name == GPU)
                .map(|asked| match &asked.kind {
                    Some(kind) => format!("{kind}:{}", asked.count),
                    None => asked.count.to_string(),
                })
                .collect();
            (!own.is_empty()).then(|| own.join(","))
        };
        let number = |n: Option<u32>| n.map(|n| n.to_string());
        let all = [
            ("SLURM_GPU_BIND", self.bind.as_ref().map(GpuBind::to_string)),
            ("SLURM_GPUS", gpus(&self.total)),
            ("SLURM_GPUS_PER_NODE", gpus(&self.gpus_per_node)),
            ("SLURM_GPUS_PER_SOCKET", gpus(&self.per_socket)),
            ("SLURM_GPUS_PER_TASK", gpus(&self.per_task)),
            ("SLURM_CPUS_PER_GPU", number(self.cpus_per_gpu)),
            ("SLURM_MEM_PER_GPU", self.mem_per_gpu.map(|m| m.0.to_string())),
            ("SLURM_NTASKS_PER_GPU", number(self.tasks_per_gpu)),
        ];
        all.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }

    /// GPUs among what a node gives.
    pub fn gpus(need: &[GresCount]) -> u64 {
        need.iter().filter(|asked| asked.name == GPU).map(|asked| asked.count).sum()
    }
}
