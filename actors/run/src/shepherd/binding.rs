//! Which CPUs of its step a task is bound to: tasks are distributed over sockets and cores as the second and third words of `-m`
//! say (srun(1)), and `--cpu-bind` says how far beyond its own CPUs a task may go.

use super::state::StepHere;
use garrick_model::{
    env_vars::{SLURM_CPU_BIND, SLURM_CPU_BIND_LIST, SLURM_CPU_BIND_TYPE, SLURM_CPU_BIND_VERBOSE},
    messages::shepherd::StepLaunch,
    node_shape::NodeShape,
    resources::CpuSet,
    spec::{CpuBind, CpuOrder, EnvEntry, WithinNode},
};
use serde_bytes::ByteBuf;
use std::{
    borrow::Cow,
    collections::{BTreeSet, VecDeque},
    sync::Arc,
};

/// How the tasks of a step are bound on this node. The distribution is computed once for all tasks.
pub(super) struct Bindings {
    launch: Arc<StepLaunch>,
    /// The step's CPUs on this node.
    cpus: CpuSet,
    /// The effective binding.
    bind: CpuBind,
    /// All tasks get the job's own binding.
    as_the_job: bool,
    /// By local id; only tasks for which there were CPUs.
    laid: Vec<CpuSet>,
}

impl Bindings {
    /// For the tasks of the step with local ids below `tasks`.
    pub(super) fn new(job_cpus: &CpuSet, shape: &NodeShape, step: &StepHere, tasks: u32) -> Self {
        let (launch, cpus) = (Arc::clone(&step.launch), step.share.cpus.clone());
        let automatic = automatic(shape, step);
        let as_the_job = launch.cpu_bind == CpuBind::Default && automatic.is_none() && cpus == *job_cpus;
        let bind = automatic.unwrap_or_else(|| launch.cpu_bind.clone());
        let own = || laid(shape, &cpus, launch.within, launch.cpus_per_task, tasks);
        let around = |part: fn(&NodeShape, u32) -> u32| {
            let whole = |own: CpuSet| {
                let parts: BTreeSet<u32> = own.iter().map(|cpu| part(shape, cpu)).collect();
                cpus.iter().filter(|cpu| parts.contains(&part(shape, *cpu))).collect()
            };
            own().into_iter().map(whole).collect()
        };
        let laid = match bind {
            CpuBind::Cores => around(NodeShape::core_of_cpu),
            CpuBind::Sockets => around(NodeShape::socket_of_cpu),
            CpuBind::Threads => own(),
            CpuBind::None | CpuBind::Map(_) | CpuBind::Default => Vec::new(),
        };
        Self { launch, cpus, bind, as_the_job, laid }
    }

    /// The machine's CPUs to which a task is bound; empty if it has the job's own binding.
    pub(super) fn affinity(&self, map: &[u32], local_id: u32) -> Vec<u32> {
        match &self.launch.cpu_bind {
            _ if map.is_empty() => Vec::new(),
            CpuBind::Map(list) if !list.is_empty() => vec![list[local_id as usize % list.len()]],
            CpuBind::None | CpuBind::Map(_) => Vec::new(),
            CpuBind::Default if self.as_the_job => Vec::new(),
            CpuBind::Default | CpuBind::Cores | CpuBind::Sockets | CpuBind::Threads => {
                self.cpus_of(map, local_id).iter().filter_map(|cpu| map.get(cpu as usize).copied()).collect()
            }
        }
    }

    /// The node's CPUs that are meant for a task, even if it cannot be bound to them. If no CPUs were left for it, all CPUs of
    /// the step.
    pub(super) fn cpus_of(&self, map: &[u32], local_id: u32) -> Cow<'_, CpuSet> {
        match &self.bind {
            CpuBind::Map(list) if !list.is_empty() && !map.is_empty() => {
                let machine = list[local_id as usize % list.len()];
                Cow::Owned(map.iter().zip(0..).filter(|(real, _)| **real == machine).map(|(_, cpu)| cpu).collect())
            }
            _ => Cow::Borrowed(self.laid.get(local_id as usize).unwrap_or(&self.cpus)),
        }
    }
}

/// A longer variable is left out: the environment of a program is limited. In bytes.
const LONGEST_LIST: usize = 64 * 1024;

/// What users are told about the binding of a step's tasks here.
impl Bindings {
    /// CPUs of the machine as a mask.
    fn mask(&self, map: &[u32], local_id: u32) -> String {
        let own = self.affinity(map, local_id);
        if !own.is_empty() {
            return mask_text(own);
        }
        mask_text(self.cpus.iter().filter_map(|cpu| map.get(cpu as usize).copied()))
    }

    /// The variables of srun(1) for so many tasks, if CPUs are known and binding is possible.
    pub(super) fn variables(&self, map: &[u32], tasks: u32) -> Vec<EnvEntry> {
        if map.is_empty() || self.launch.batch {
            return Vec::new();
        }
        let (kind, list) = match &self.launch.cpu_bind {
            CpuBind::None => ("none", Vec::new()),
            CpuBind::Map(list) => ("map_cpu:", list.iter().map(ToString::to_string).collect()),
            _ => {
                let mut left = LONGEST_LIST;
                let masks = (0..tasks).map_while(|task| {
                    let mask = self.mask(map, task);
                    left = left.checked_sub(mask.len() + 1)?;
                    Some(mask)
                });
                ("mask_cpu:", masks.collect())
            }
        };
        if kind == "mask_cpu:" && list.len() < tasks as usize {
            return Vec::new();
        }
        let (list, verbosity) = (list.join(","), if self.launch.says_cpu_bind { "verbose" } else { "quiet" });
        let variables = [
            format!("{SLURM_CPU_BIND}={verbosity},{kind}{list}"),
            format!("{SLURM_CPU_BIND_LIST}={list}"),
            format!("{SLURM_CPU_BIND_TYPE}={kind}"),
            format!("{SLURM_CPU_BIND_VERBOSE}={verbosity}"),
        ];
        variables.into_iter().map(|text| EnvEntry::from(text.into_bytes())).collect()
    }

    /// The line of `--cpu-bind=verbose`, before and after the task's process id (as observed with Slurm).
    pub(super) fn says(&self, map: &[u32], node: &str, rank: u32, local_id: u32) -> Option<[ByteBuf; 2]> {
        if !self.launch.says_cpu_bind || map.is_empty() || self.launch.batch {
            return None;
        }
        let (kind, mask) = match &self.launch.cpu_bind {
            CpuBind::None => ("NONE", "0x0".to_owned()),
            CpuBind::Map(_) => ("MAP ", format!("{} set", self.mask(map, local_id))),
            _ => ("MASK", format!("{} set", self.mask(map, local_id))),
        };
        let before = format!("cpu-bind={kind} - {node}, task {rank:>2} {local_id:>2} [");
        Some([ByteBuf::from(before.into_bytes()), ByteBuf::from(format!("]: mask {mask}\n").into_bytes())])
    }
}

/// `0x3` for CPUs 0 and 1.
fn mask_text(cpus: impl IntoIterator<Item = u32>) -> String {
    let mut digits: Vec<u32> = Vec::new();
    for cpu in cpus {
        let place = cpu as usize / 4;
        digits.resize(digits.len().max(place + 1), 0);
        digits[place] |= 1 << (cpu % 4);
    }
    let digits = digits.iter().rev().filter_map(|digit| char::from_digit(*digit, 16));
    let text: String = digits.collect();
    format!("0x{}", if text.is_empty() { "0" } else { &text })
}

/// A step that says how tasks are distributed over sockets or cores, but not what they are bound to, has them bound to threads,
/// cores or sockets if it has as many of those here as its tasks need CPUs (`Auto Binding` in srun(1)).
fn automatic(shape: &NodeShape, step: &StepHere) -> Option<CpuBind> {
    let (launch, cpus) = (&step.launch, &step.share.cpus);
    if launch.cpu_bind != CpuBind::Default || launch.within.is_default() || launch.batch {
        return None;
    }
    let wanted = step.tasks_here.saturating_mul(launch.cpus_per_task.max(1)) as usize;
    let count = |part: fn(&NodeShape, u32) -> u32| {
        let mut parts: Vec<u32> = cpus.iter().map(|cpu| part(shape, cpu)).collect();
        parts.dedup();
        parts.len()
    };
    match wanted {
        n if n == cpus.len() as usize => Some(CpuBind::Threads),
        n if n == count(NodeShape::core_of_cpu) => Some(CpuBind::Cores),
        n if n == count(NodeShape::socket_of_cpu) => Some(CpuBind::Sockets),
        _ => None,
    }
}

/// The CPUs of the first tasks, as far as there are any for them.
fn laid(shape: &NodeShape, cpus: &CpuSet, within: WithinNode, per_task: u32, tasks: u32) -> Vec<CpuSet> {
    let mut board = Board::new(shape, cpus, within);
    (0..tasks).map(|_| board.task(per_task)).take_while(|own| !own.is_empty()).collect()
}

/// A socket's cores with the CPUs that have no task yet, and the core that was used last.
#[derive(Default)]
struct Socket {
    cores: Vec<VecDeque<u32>>,
    left: usize,
    last: Option<usize>,
}

impl Socket {
    fn take(&mut self, order: CpuOrder, first_of_task: bool) -> Option<u32> {
        let from = match (order, self.last) {
            (_, None) | (CpuOrder::Block, _) => 0,
            (CpuOrder::Cyclic, Some(last)) if !first_of_task => last,
            (CpuOrder::Cyclic | CpuOrder::Fcyclic, Some(last)) => last + 1,
        };
        let count = self.cores.len();
        let core = (from..from + count).map(|at| at % count).find(|at| !self.cores[*at].is_empty())?;
        self.last = Some(core);
        self.left -= 1;
        self.cores[core].pop_front()
    }
}

/// What is left of a step's CPUs while tasks are distributed.
struct Board {
    sockets: Vec<Socket>,
    next: usize,
    over_sockets: CpuOrder,
    over_cores: CpuOrder,
}

impl Board {
    fn new(shape: &NodeShape, cpus: &CpuSet, within: WithinNode) -> Self {
        let mut sockets: Vec<Socket> = Vec::new();
        let mut last = None;
        for cpu in cpus.iter() {
            let (socket, core) = (shape.socket_of_cpu(cpu), shape.core_of_cpu(cpu));
            if last.is_none_or(|(before, _)| before != socket) {
                sockets.push(Socket::default());
            }
            let Some(here) = sockets.last_mut() else { continue };
            here.left += 1;
            match here.cores.last_mut() {
                Some(cpus) if last == Some((socket, core)) => cpus.push_back(cpu),
                _ => here.cores.push(VecDeque::from([cpu])),
            }
            last = Some((socket, core));
        }
        let over_sockets = within.sockets.unwrap_or(CpuOrder::Cyclic);
        Self { sockets, next: 0, over_sockets, over_cores: within.cores.unwrap_or(over_sockets) }
    }

    /// The next task's CPUs; fewer if no more are left.
    fn task(&mut self, per_task: u32) -> CpuSet {
        let per_task = per_task.max(1);
        let mut own = CpuSet::new();
        // If possible, all CPUs of a task are on one socket.
        let least = if self.over_sockets == CpuOrder::Cyclic { per_task as usize } else { 1 };
        let mut at = self.socket_from(self.next, least).or_else(|| self.socket_from(self.next, 1));
        let mut first = true;
        while let Some(socket) = at {
            let Some(cpu) = self.sockets[socket].take(self.over_cores, first) else { break };
            own.insert(cpu);
            (first, self.next) = (false, if self.over_sockets == CpuOrder::Block { socket } else { socket + 1 });
            if own.len() >= per_task {
                break;
            }
            at = match self.over_sockets {
                CpuOrder::Fcyclic => self.socket_from(socket + 1, 1),
                CpuOrder::Block | CpuOrder::Cyclic if self.sockets[socket].left > 0 => Some(socket),
                CpuOrder::Block | CpuOrder::Cyclic => self.socket_from(socket + 1, 1),
            };
        }
        own
    }

    /// The first socket from `from` on, going round, with so many CPUs left.
    fn socket_from(&self, from: usize, least: usize) -> Option<usize> {
        let count = self.sockets.len();
        (from..from + count).map(|at| at % count).find(|at| self.sockets[*at].left >= least)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use garrick_model::spec::CpuOrder::{Block, Cyclic, Fcyclic};
    use proptest::prelude::*;

    /// Two sockets with so many cores each, and so many threads per core.
    fn shape(cores: u32, threads: u32) -> NodeShape {
        let cpus = 2 * cores * threads;
        NodeShape { cpus, sockets: 2, cores_per_socket: cores, threads_per_core: threads, ..NodeShape::default() }
    }

    /// The CPUs of this task after those before it; all CPUs if none are left.
    fn own(shape: &NodeShape, cpus: &CpuSet, within: WithinNode, per_task: u32, local_id: u32) -> CpuSet {
        let mut board = Board::new(shape, cpus, within);
        for _ in 0..local_id {
            board.task(per_task);
        }
        let own = board.task(per_task);
        if own.is_empty() { cpus.clone() } else { own }
    }

    fn laid(shape: &NodeShape, cpus: &str, tasks: (u32, u32), sockets: CpuOrder, cores: Option<CpuOrder>) -> String {
        let cpus: CpuSet = cpus.parse().unwrap_or_default();
        let within = WithinNode { sockets: Some(sockets), cores };
        let laid = super::laid(shape, &cpus, within, tasks.1, tasks.0);
        let all = (0..tasks.0 as usize).map(|task| laid.get(task).unwrap_or(&cpus).to_string());
        all.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn masks_are_hexadecimal_however_many_cpus_there_are() {
        let masks = [vec![], vec![0], vec![1, 0], vec![4], vec![0, 130]].map(mask_text);
        assert_eq!(masks, ["0x0", "0x1", "0x3", "0x10", "0x400000000000000000000000000000001"]);
    }

    #[test]
    fn tasks_go_over_sockets_as_in_slurms_examples() {
        let node = shape(4, 1);
        // Example 10 of cpu_management.html: six tasks on three cores of each socket.
        assert_eq!(laid(&node, "0-2,4-6", (6, 1), Cyclic, None), "0 4 1 5 2 6");
        assert_eq!(laid(&node, "0-2,4-6", (6, 1), Block, None), "0 1 2 4 5 6");
        // Example 12: two tasks of three CPUs, four cores on one socket and two on the other.
        assert_eq!(laid(&node, "0-5", (2, 3), Block, None), "0-2 3-5");
        assert_eq!(laid(&node, "0-7", (2, 3), Cyclic, None), "0-2 4-6");
        assert_eq!(laid(&node, "0-7", (2, 4), Fcyclic, None), "0-1,4-5 2-3,6-7");
        // More tasks than CPUs: the later ones may use all.
        assert_eq!(laid(&node, "0-1", (3, 1), Cyclic, None), "0 1 0-1");
    }

    #[test]
    fn tasks_go_over_cores_within_a_socket() {
        let node = shape(2, 2);
        let of_one = |cores| laid(&node, "0-7", (4, 1), Block, Some(cores));
        assert_eq!(of_one(Block), "0 1 2 3");
        assert_eq!(of_one(Cyclic), "0 2 1 3");
        let of_two = |cores| laid(&node, "0-7", (4, 2), Cyclic, Some(cores));
        assert_eq!(of_two(Block), "0-1 4-5 2-3 6-7");
        assert_eq!(of_two(Cyclic), "0-1 4-5 2-3 6-7");
        assert_eq!(of_two(Fcyclic), "0,2 4,6 1,3 5,7");
        assert_eq!(laid(&node, "0-7", (4, 1), Cyclic, None), "0 4 2 6");
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn each_task_has_cpus_of_its_own(
            (sockets, cores, threads) in (1u32..4, 1u32..5, 1u32..4),
            without in prop::collection::vec(0u32..40, 0..12),
            (tasks, per_task) in (1u32..12, 1u32..5),
            over in prop::sample::select(vec![None, Some(Block), Some(Cyclic), Some(Fcyclic)]),
            within in prop::sample::select(vec![None, Some(Block), Some(Cyclic), Some(Fcyclic)]),
        ) {
            let cpus = sockets * cores * threads;
            let shape = NodeShape {
                cpus, sockets, cores_per_socket: cores, threads_per_core: threads, ..NodeShape::default()
            };
            let mut cpus = shape.all_cpus();
            without.iter().for_each(|cpu| _ = cpus.remove(*cpu));
            let within = WithinNode { sockets: over, cores: within };
            let fit = cpus.len() / per_task;
            let laid = super::laid(&shape, &cpus, within, per_task, tasks);
            let mut taken = CpuSet::new();
            for task in 0..tasks {
                let own = own(&shape, &cpus, within, per_task, task);
                prop_assert_eq!(laid.get(task as usize).unwrap_or(&cpus), &own);
                prop_assert!(own.is_subset(&cpus));
                if task < fit {
                    prop_assert_eq!(own.len(), per_task);
                    prop_assert!(own.is_disjoint(&taken), "{own} again, after {taken}");
                }
                prop_assert!(cpus.is_empty() || !own.is_empty());
                taken.add(&own);
            }
        }
    }
}
