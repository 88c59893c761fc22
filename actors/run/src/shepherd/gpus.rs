//! The variables that tell a task its GPUs. Pure. Numbers are those of the node's devices. If the kernel hides all other devices
//! from the job, they are numbered from 0 (`gres.html`, "Cgroup and Task Affinity").

use crate::env_entry::entry;
use garrick_model::{
    config::GpuVariables,
    gres::{GPU, GpuBind, GresEntry, GresShare, SHARD, devices_in, devices_used, place_of_device},
    resources::CpuSet,
    spec::EnvEntry,
};
use std::collections::BTreeSet;

/// How a job sees GPUs on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GpuSight {
    /// Numbers of the GPUs that the job has here.
    pub job: CpuSet,
    /// Which variables are set.
    pub variables: GpuVariables,
    /// The job can open these and no others.
    pub constrained: bool,
    /// GPUs of the job that are near to certain CPUs, with those CPUs; the others are near to all.
    pub near: Vec<(u32, CpuSet)>,
}

impl GpuSight {
    /// For a job with these shares of a node with these entries.
    pub fn new(shares: &[GresShare], entries: &[GresEntry], variables: GpuVariables, constrained: bool) -> Self {
        let job = devices_used(shares, GPU);
        let near = |gpu: u32| Some((gpu, place_of_device(entries, GPU, gpu)?.cpus.clone()));
        let near = job.iter().filter_map(near).filter(|(_, cpus)| !cpus.is_empty()).collect();
        Self { job, variables, constrained, near }
    }

    /// The step's GPUs that are near to some of these CPUs.
    fn closest(&self, step: &[u32], cpus: &CpuSet) -> Vec<u32> {
        let is_near = |gpu: &&u32| {
            let near = self.near.iter().find(|(known, _)| known == *gpu);
            near.is_none_or(|(_, near)| !near.is_disjoint(cpus))
        };
        step.iter().filter(is_near).copied().collect()
    }

    /// Variables of a task on these CPUs, in a step with these shares. None for a job without GPUs.
    pub fn of_task(
        &self,
        step: &[GresShare],
        bind: &GpuBind,
        (local_id, cpus): (u32, &CpuSet),
        batch: bool,
    ) -> Vec<EnvEntry> {
        if self.job.is_empty() {
            return Vec::new();
        }
        let shards: u64 = step.iter().filter(|share| share.name == SHARD).map(|share| share.count).sum();
        let gpus = devices_in(step, GPU).len();
        let step: Vec<u32> = devices_used(step, GPU).iter().collect();
        let mut env = vec![entry("SLURM_JOB_GPUS", list(self.job.iter()))];
        if !batch {
            env.push(entry("SLURM_STEP_GPUS", list(step.iter().copied())));
        }
        if shards == 0 || gpus > 0 {
            env.push(entry("SLURM_GPUS_ON_NODE", gpus));
        }
        if shards > 0 {
            env.push(entry("SLURM_SHARDS_ON_NODE", shards));
        }
        let seen = match bind {
            GpuBind::Closest => bound(&self.closest(&step, cpus), &GpuBind::None, 0),
            bind => bound(&step, bind, local_id as usize),
        };
        let numbers = list(seen.into_iter().filter_map(|gpu| self.number(gpu)));
        let GpuVariables { nvidia, amd, intel, opencl } = self.variables;
        let names = [
            (nvidia, "CUDA_VISIBLE_DEVICES"),
            (amd, "ROCR_VISIBLE_DEVICES"),
            (intel, "ZE_AFFINITY_MASK"),
            (opencl, "GPU_DEVICE_ORDINAL"),
        ];
        env.extend(names.into_iter().filter(|(wanted, _)| *wanted).map(|(_, name)| entry(name, &numbers)));
        env
    }

    fn number(&self, gpu: u32) -> Option<u32> {
        if self.constrained {
            let place = self.job.iter().position(|own| own == gpu)?;
            u32::try_from(place).ok()
        } else {
            Some(gpu)
        }
    }
}

/// The GPUs of a step to which a task is bound; all of them if the binding names none of them.
fn bound(step: &[u32], bind: &GpuBind, task: usize) -> BTreeSet<u32> {
    let all = || step.iter().copied().collect();
    if step.is_empty() {
        return BTreeSet::new();
    }
    let seen: BTreeSet<u32> = match bind {
        GpuBind::None | GpuBind::Closest => return all(),
        GpuBind::PerTask(each) => {
            let each = *each as usize;
            (task * each..(task + 1) * each).take(step.len()).map(|at| step[at % step.len()]).collect()
        }
        GpuBind::Single(tasks) => [step[task / (*tasks).max(1) as usize % step.len()]].into(),
        GpuBind::Map(map) => {
            map.get(task % map.len().max(1)).and_then(|at| step.get(*at as usize)).copied().into_iter().collect()
        }
        GpuBind::Mask(masks) => {
            let mask = masks.get(task % masks.len().max(1)).copied().unwrap_or(0);
            step.iter().enumerate().filter(|(at, _)| *at < 64 && mask >> at & 1 == 1).map(|(_, gpu)| *gpu).collect()
        }
    };
    if seen.is_empty() { all() } else { seen }
}

fn list(numbers: impl Iterator<Item = u32>) -> String {
    numbers.map(|n| n.to_string()).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use garrick_model::gres::DevicePlace;

    fn share(devices: &str) -> Vec<GresShare> {
        let devices: CpuSet = devices.parse().unwrap();
        vec![GresShare { name: GPU.into(), kind: None, count: devices.len().into(), devices }]
    }

    fn told(sight: &GpuSight, step: &str, bind: &GpuBind, task: u32) -> Vec<String> {
        let text = |e: EnvEntry| String::from_utf8(e.into_vec()).unwrap();
        sight.of_task(&share(step), bind, (task, &CpuSet::from(task..task + 1)), false).into_iter().map(text).collect()
    }

    const CUDA: GpuVariables = GpuVariables { nvidia: true, amd: false, intel: false, opencl: false };

    #[test]
    fn a_task_is_told_of_its_steps_gpus() {
        let sight = GpuSight::new(&share("1-3"), &[], CUDA, false);
        let want = ["SLURM_JOB_GPUS=1,2,3", "SLURM_STEP_GPUS=2,3", "SLURM_GPUS_ON_NODE=2", "CUDA_VISIBLE_DEVICES=2,3"];
        assert_eq!(told(&sight, "2-3", &GpuBind::None, 0), want);
        assert_eq!(told(&GpuSight::default(), "", &GpuBind::None, 0), Vec::<String>::new());
        let none = told(&sight, "", &GpuBind::PerTask(1), 0);
        assert!(none.contains(&"CUDA_VISIBLE_DEVICES=".to_owned()), "{none:?}");
        let all = GpuSight::new(&share("0"), &[], GpuVariables::default(), false);
        let names = all.of_task(&share("0"), &GpuBind::None, (0, &CpuSet::new()), true);
        assert_eq!(names.len(), 6, "no SLURM_STEP_GPUS in a batch script");
    }

    #[test]
    fn a_task_may_be_bound_to_what_is_near_to_its_cpus() {
        let near = |cpus: &str| DevicePlace { cpus: cpus.parse().unwrap(), ..DevicePlace::default() };
        let entry = GresEntry {
            name: GPU.into(),
            kind: None,
            count: 4,
            no_consume: false,
            devices: true,
            places: vec![near("0"), near("0"), near("1"), near("")],
            shards: Vec::new(),
        };
        let sight = GpuSight::new(&share("0-3"), &[entry], CUDA, false);
        let of = |task| told(&sight, "1-3", &GpuBind::Closest, task)[3].clone();
        assert_eq!([of(0), of(1), of(2)], ["1,3", "2,3", "3"].map(|gpus| format!("CUDA_VISIBLE_DEVICES={gpus}")));
    }

    #[test]
    fn where_others_cannot_be_opened_numbers_begin_with_0() {
        let sight = GpuSight::new(&share("1-3"), &[], CUDA, true);
        let told = told(&sight, "2-3", &GpuBind::None, 0);
        assert_eq!(told[1], "SLURM_STEP_GPUS=2,3");
        assert_eq!(told[3], "CUDA_VISIBLE_DEVICES=1,2");
    }

    #[test]
    fn bindings_share_gpus_out_among_tasks() {
        let step = [4, 5, 6, 7];
        let of = |bind: &GpuBind, task| list(bound(&step, bind, task).into_iter());
        assert_eq!([0, 1, 2].map(|t| of(&GpuBind::PerTask(2), t)), ["4,5", "6,7", "4,5"]);
        assert_eq!([0, 1, 2, 8].map(|t| of(&GpuBind::Single(2), t)), ["4", "4", "5", "4"]);
        assert_eq!([0, 1, 2].map(|t| of(&GpuBind::Map(vec![3, 0]), t)), ["7", "4", "7"]);
        assert_eq!([0, 1].map(|t| of(&GpuBind::Mask(vec![0b1010, 1]), t)), ["5,7", "4"]);
        assert_eq!(of(&GpuBind::Map(vec![9]), 0), "4,5,6,7");
        assert_eq!(of(&GpuBind::PerTask(9), 0), "4,5,6,7");
    }
}
