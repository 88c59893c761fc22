//! What a request says about sockets, cores and threads of nodes, and how many tasks then fit on CPUs. If it says nothing about
//! them, only the CPUs of a task count ([`crate::room::node::free`]).

use super::{facts::ClusterView, request::Request};
use garrick_model::{
    node_shape::NodeShape,
    resources::CpuSet,
    spec::{Distribution, LayoutRequest},
};
use std::ops::Range;

/// Most tasks on a node with `--overcommit`, as in Slurm (`MAX_TASKS_PER_NODE` in srun(1); its value is 512).
const MOST_TASKS: u32 = 512;

/// Requested sockets, cores and threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    /// Least number of sockets of a node.
    pub sockets: u32,
    /// Least number of cores of a socket.
    pub cores_per_socket: u32,
    /// Least number of threads of a core; no more of them are used. `None`: all are used.
    pub threads: Option<u32>,
    /// Most tasks on a socket.
    pub tasks_per_socket: Option<u32>,
    /// Most tasks on a core.
    pub tasks_per_core: Option<u32>,
    /// One core of each socket is used.
    pub one_core_per_socket: bool,
    /// All tasks on a node have the CPUs of one task.
    pub overcommit: bool,
    /// Nodes get tasks in turn instead of being filled one after the other.
    pub even: bool,
}

impl Layout {
    /// `None`: no special layout.
    pub fn of(view: &ClusterView, asked: &LayoutRequest) -> Option<Self> {
        if asked.is_default() {
            return None;
        }
        let goes_round = asked.distribution.is_some_and(|how| {
            matches!(how, Distribution::Cyclic | Distribution::Plane(_) | Distribution::BlockNoPack)
        });
        let layout = Self {
            sockets: asked.sockets_per_node.unwrap_or(0),
            cores_per_socket: asked.cores_per_socket.unwrap_or(0),
            threads: asked.threads_per_core.map(|threads| threads.max(1)),
            tasks_per_socket: asked.tasks_per_socket.filter(|most| *most > 0),
            tasks_per_core: asked.tasks_per_core.filter(|most| *most > 0),
            one_core_per_socket: asked.one_core_per_socket,
            overcommit: asked.overcommit,
            even: asked.spread || goes_round,
        };
        let nothing = Self {
            sockets: 0,
            cores_per_socket: 0,
            threads: None,
            tasks_per_socket: None,
            tasks_per_core: None,
            one_core_per_socket: false,
            overcommit: false,
            even: false,
        };
        if layout == nothing {
            return None;
        }
        let by_policy = view.policy.one_task_per_core.then_some(1);
        Some(Self { tasks_per_core: layout.tasks_per_core.or(by_policy), ..layout })
    }

    /// Does a node of that shape satisfy the request?
    pub fn admits(&self, shape: &NodeShape) -> bool {
        shape.sockets.max(1) >= self.sockets
            && shape.cores_per_socket.max(1) >= self.cores_per_socket
            && self.threads.is_none_or(|threads| shape.threads_per_core.max(1) >= threads)
    }

    /// Threads of a core that are used on such a node.
    fn threads_of(&self, shape: &NodeShape) -> u32 {
        let all = shape.cpus_per_core().max(1);
        self.threads.map_or(all, |threads| threads.min(all))
    }

    /// How many of these CPUs of such a node are used. Memory per CPU counts those (`--mem-per-cpu` in sbatch(1)).
    pub fn usable(&self, cpus: u32, shape: &NodeShape) -> u32 {
        let (all, used) = (shape.cpus_per_core().max(1), self.threads_of(shape));
        cpus / all * used + (cpus % all).min(used)
    }

    /// CPUs of whole cores that contain so many used CPUs.
    pub(crate) fn with_usable(&self, usable: u32, shape: &NodeShape) -> u32 {
        let (all, used) = (shape.cpus_per_core().max(1), self.threads_of(shape));
        if used == all { usable } else { (usable / used).saturating_mul(all) }
    }

    /// Cores are counted and not CPUs.
    const fn by_core(&self) -> bool {
        self.threads.is_some() || self.tasks_per_core.is_some() || self.one_core_per_socket
    }

    /// Tasks for which so many CPUs of such a node are enough.
    pub(crate) fn tasks_in(&self, cpus: u32, shape: &NodeShape, cpus_per_task: u32) -> u32 {
        let each = cpus_per_task.max(1);
        let tasks = if self.overcommit {
            return if cpus >= each { MOST_TASKS } else { 0 };
        } else if self.by_core() {
            let threads = self.threads_of(shape);
            let mut cores = cpus / shape.cpus_per_core().max(1);
            if self.one_core_per_socket {
                cores = cores.min(shape.sockets.max(1));
            }
            let by_threads = cores.saturating_mul(threads) / each;
            match self.tasks_per_core {
                Some(1) => cores / each.div_ceil(threads),
                Some(most) => by_threads.min(cores.saturating_mul(most)),
                None => by_threads,
            }
        } else {
            cpus / each
        };
        let by_socket = self.tasks_per_socket.map(|most| most.saturating_mul(shape.sockets.max(1)));
        by_socket.map_or(tasks, |most| tasks.min(most))
    }

    /// CPUs that so many tasks take on such a node.
    pub(crate) fn cpus_for(&self, tasks: u32, shape: &NodeShape, cpus_per_task: u32) -> u32 {
        let each = cpus_per_task.max(1);
        if self.overcommit {
            return each;
        }
        if !self.by_core() {
            return tasks.saturating_mul(each);
        }
        let threads = self.threads_of(shape);
        let by_threads = tasks.saturating_mul(each).div_ceil(threads);
        let cores = match self.tasks_per_core {
            Some(1) => tasks.saturating_mul(each.div_ceil(threads)),
            Some(most) => by_threads.max(tasks.div_ceil(most)),
            None => by_threads,
        };
        cores.saturating_mul(shape.cpus_per_core().max(1))
    }

    /// Does it matter to which socket CPUs belong?
    pub(crate) const fn is_by_socket(&self) -> bool {
        self.tasks_per_socket.is_some() || self.one_core_per_socket
    }

    /// Tasks that fit on the free CPUs of a node, socket by socket.
    pub(crate) fn tasks_on(&self, free: &CpuSet, shape: &NodeShape, cpus_per_task: u32) -> u32 {
        let per_core = shape.cpus_per_core().max(1);
        if self.one_core_per_socket {
            let sockets = shape.sockets_cpus().filter(|cpus| has(free, cpus.clone()) >= per_core).count();
            let cpus = u32::try_from(sockets).unwrap_or(u32::MAX).saturating_mul(per_core);
            return self.tasks_in(cpus, shape, cpus_per_task);
        }
        shape.sockets_cpus().fold(0u32, |sum, cpus| {
            let tasks = self.tasks_in(has(free, cpus), shape, cpus_per_task);
            sum.saturating_add(tasks.min(self.tasks_per_socket.unwrap_or(u32::MAX)))
        })
    }

    /// Chooses CPUs of the free ones for so many tasks, socket by socket, `wanted` in all if there are enough.
    pub fn choose(&self, free: &CpuSet, shape: &NodeShape, request: &Request, tasks: u32, wanted: u32) -> CpuSet {
        let per_core = shape.cpus_per_core().max(1);
        let mut chosen = CpuSet::new();
        let mut left = tasks;
        for cpus in shape.sockets_cpus() {
            let most = if self.one_core_per_socket {
                per_core.min(wanted.saturating_sub(chosen.len()))
            } else {
                let here = self.tasks_in(has(free, cpus.clone()), shape, request.cpus_per_task);
                let here = here.min(left).min(self.tasks_per_socket.unwrap_or(u32::MAX));
                left -= here;
                if here > 0 { self.cpus_for(here, shape, request.cpus_per_task) } else { 0 }
            };
            for cpu in cpus.filter(|cpu| free.contains(*cpu)).take(most as usize) {
                chosen.insert(cpu);
            }
        }
        for cpu in free.iter() {
            if chosen.len() >= wanted {
                break;
            }
            chosen.insert(cpu);
        }
        chosen
    }
}

fn has(free: &CpuSet, cpus: Range<u32>) -> u32 {
    u32::try_from(cpus.filter(|cpu| free.contains(*cpu)).count()).unwrap_or(u32::MAX)
}
