//! Where a step runs: which nodes of its job, which CPUs and how much memory on each, and which ranks. Pure; called by the step
//! manager's core for each step that it considers. Rules, from srun(1) and sbatch(1):
//!
//! - by default a step gets all of its job's CPUs on the nodes it uses and shares them with no other step;
//! - `--exact` (and `-c`) gives it what it asks for, and it shares that with no other;
//! - `--overlap` needs nothing free and holds nothing;
//! - with `--overcommit` its tasks share the CPUs that there are;
//! - a step that names no memory gets its share by CPUs;
//! - block layout fills a node before the next, each node gets a task at least; cyclic goes round, with a plane in blocks of
//!   ranks; arbitrary is as a list of nodes says.

use crate::stepmgr::{
    pool::{Claim, NodeUse, Pool, PoolNode},
    shape::{StepGres, StepMemory, StepShape, impossible},
};
use garrick_model::{
    gres::{self, GresCount, GresPool, GresShare, MOST_TYPES, Totals},
    refusal::Refusal,
    resources::CpuSet,
    spec::{Distribution, StepSharing},
};
use std::collections::BTreeSet;

/// Most tasks on a node with `--overcommit` (srun(1), MAX_TASKS_PER_NODE; Slurm's value).
const MOST_OVERCOMMITTED: u32 = 512;

/// A step's place on one node.
#[derive(Clone, Debug, PartialEq)]
pub struct PlacedNode {
    /// Node of the job.
    pub slot: u32,
    /// Its CPUs.
    pub cpus: CpuSet,
    /// How many.
    pub cpu_count: u32,
    /// Memory limit, MiB.
    pub memory: Option<u64>,
    /// Generic resources.
    pub gres: Vec<GresShare>,
    /// Ranks.
    pub ranks: Vec<u32>,
}

/// A step's place.
#[derive(Clone, Debug, PartialEq)]
pub struct Placement {
    /// Nodes in step order.
    pub nodes: Vec<PlacedNode>,
    /// What is taken from the pool: nothing for an overlapping step.
    pub claims: Vec<Claim>,
}

/// Which resources count for a placement.
#[derive(Clone, Copy, Debug)]
pub enum Against<'a> {
    /// What is free now, without some nodes.
    Free {
        /// Nodes kept free for another step.
        kept: &'a BTreeSet<u32>,
    },
    /// All that the job has on nodes that are not lost.
    Whole,
    /// The same, on the nodes with most free resources now.
    Emptiest,
}

impl Against<'_> {
    const fn whole(self) -> bool {
        matches!(self, Self::Whole | Self::Emptiest)
    }
}

/// Places a step; `None`: not now (with `Whole`: never).
pub fn place(shape: &StepShape, pool: &Pool, against: Against<'_>) -> Option<Placement> {
    let total = match &shape.gres {
        StepGres::Asked(asked) => asked.totals(),
        StepGres::None | StepGres::All => Totals::NONE,
    };
    // For totals over all nodes, the fewest nodes may have too little.
    let most = if !total.is_none() { shape.max_nodes.min(shape.tasks).max(shape.min_nodes) } else { shape.min_nodes };
    (shape.min_nodes..=most).find_map(|least| place_on(shape, pool, against, least))
}

/// The same on at least so many nodes.
fn place_on(shape: &StepShape, pool: &Pool, against: Against<'_>, least: u32) -> Option<Placement> {
    let overlap = shape.sharing == StepSharing::Overlap;
    let rooms = |slot: u32| -> u32 {
        let node = pool.node(slot);
        let usable = match against {
            Against::Free { kept } => node.usage == NodeUse::Ready && (overlap || !kept.contains(&slot)),
            Against::Whole => node.usage != NodeUse::Lost,
            Against::Emptiest => node.usage == NodeUse::Ready,
        };
        if !usable || slot < shape.first || shape.excluded.binary_search(&slot).is_ok() {
            return 0;
        }
        let room = room_on(shape, node, overlap || against.whole());
        shape.tasks_per_node.map_or(room, |most| room.min(most))
    };
    let picked = pick(shape, pool, overlap, (against, least), rooms)?;
    let counts = counts(shape, &picked, pool);
    if counts.iter().zip(&picked).any(|(count, (_, room))| count > room) {
        return None;
    }
    let ranks = match shape.distribution {
        Distribution::Arbitrary if !shape.task_slots.is_empty() => ranks_as_listed(shape, &picked),
        other => ranks(other, &counts),
    };
    let mut nodes = Vec::with_capacity(picked.len());
    let mut claims = Vec::new();
    let mut totals = totals(shape, &picked, &counts, pool, overlap || against.whole())?.into_iter();
    for ((slot, _), ranks) in picked.iter().zip(ranks) {
        let node = pool.node(*slot);
        let wanted = if shape.sharing == StepSharing::Default || (overlap && !shape.exact_cpus) {
            node.cpu_count
        } else {
            let asked = ranks.len() as u32 * shape.cpus_per_task;
            let there = if overlap || against.whole() { node.cpu_count } else { node.free_count };
            if shape.overcommit { asked.min(there) } else { asked }
        };
        // Overlapping steps prefer CPUs that no step holds.
        let cpus: CpuSet = if wanted >= node.cpu_count {
            node.cpus.clone()
        } else if against.whole() || (overlap && node.free_count < wanted) {
            node.cpus.take(wanted)
        } else {
            node.free.take(wanted)
        };
        let memory = node.memory.map(|total| match shape.memory {
            StepMemory::All => total,
            StepMemory::PerNode(m) => m,
            StepMemory::PerCpu(m) => m * u64::from(wanted.min(node.cpu_count)),
            StepMemory::ByCpus if overlap => total,
            StepMemory::ByCpus => by_cpus(total, wanted, node.cpu_count),
        });
        let part = (ranks.len() as u32, totals.next().unwrap_or_default());
        let gres = gres_on(shape, node, part, overlap, overlap || against.whole())?;
        if !overlap {
            claims.push(Claim { slot: *slot, cpus: cpus.clone(), memory: memory.unwrap_or(0), gres: gres.clone() });
        }
        nodes.push(PlacedNode { slot: *slot, cpus, cpu_count: wanted.min(node.cpu_count), memory, gres, ranks });
    }
    Some(Placement { nodes, claims })
}

/// Why a step can never run in this job, for its user; `Ok` if it can.
pub fn feasible(shape: &StepShape, pool: &Pool) -> Result<(), Refusal> {
    if place(shape, pool, Against::Whole).is_some() {
        return Ok(());
    }
    let without = StepShape { gres: StepGres::None, ..shape.clone() };
    if let StepGres::Asked(asked) = &shape.gres
        && place(&without, pool, Against::Whole).is_some()
    {
        let all: Vec<GresCount> = asked.all().cloned().collect();
        return Err(Refusal::InvalidGres(gres::list(&all)));
    }
    let usable = pool.nodes().iter().filter(|n| n.usage != NodeUse::Lost);
    let (nodes, cpus) = usable.fold((0, 0), |(n, c), node| (n + 1, c + node.cpu_count));
    let wanted = u64::from(shape.tasks) * u64::from(shape.cpus_per_task);
    if shape.min_nodes > nodes {
        return Err(impossible(format!("{} nodes asked for, the job has {nodes}", shape.min_nodes)));
    }
    if wanted > u64::from(cpus) {
        return Err(impossible(format!("More processors requested than permitted: {wanted} of {cpus}")));
    }
    if matches!(shape.memory, StepMemory::PerNode(_) | StepMemory::PerCpu(_)) {
        return Err(impossible("Memory required by task is not available".into()));
    }
    Err(impossible(format!(
        "{} tasks of {} CPUs do not fit on {} to {} nodes of this job",
        shape.tasks, shape.cpus_per_task, shape.min_nodes, shape.max_nodes
    )))
}

fn by_cpus(total: u64, cpus: u32, of: u32) -> u64 {
    if of == 0 { total } else { total * u64::from(cpus.min(of)) / u64::from(of) }
}

/// Generic resources for so many tasks on a node and a part of the total for all nodes. An overlapping step prefers those that no
/// step holds.
fn gres_on(
    shape: &StepShape,
    node: &PoolNode,
    (tasks, total): (u32, Totals),
    overlap: bool,
    all: bool,
) -> Option<Vec<GresShare>> {
    let choose = |pool: &GresPool, need: &[GresCount]| pool.choose(&node.gres, need, None);
    match &shape.gres {
        StepGres::None => Some(Vec::new()),
        StepGres::All if all || node.free_gres == node.all_gres => Some(node.all_gres.everything(&node.gres)),
        StepGres::All => None,
        StepGres::Asked(asked) => {
            let need = asked.on_node(tasks, total);
            let free = if overlap || !all { choose(&node.free_gres, &need) } else { None };
            free.or_else(|| if all { choose(&node.all_gres, &need) } else { None })
        }
    }
}

/// How the total for all nodes is divided among them: an equal part each, and the rest to the first ones.
fn totals(shape: &StepShape, picked: &[(u32, u32)], counts: &[u32], pool: &Pool, all: bool) -> Option<Vec<Totals>> {
    let total = match &shape.gres {
        StepGres::Asked(asked) => asked.totals(),
        StepGres::None | StepGres::All => Totals::NONE,
    };
    let fixed = total.one_each().times(picked.len() as u64);
    if !total.holds(&fixed) {
        return None;
    }
    let mut parts = vec![total.one_each(); picked.len()];
    let mut left = total.less(fixed);
    for ((part, (slot, _)), tasks) in parts.iter_mut().zip(picked).zip(counts) {
        let node = pool.node(*slot);
        for place in 0..MOST_TYPES {
            let one = Totals::NONE.with(place, 1);
            while left.at(place) > 0 && gres_on(shape, node, (*tasks, part.plus(one)), false, all).is_some() {
                *part = part.plus(one);
                left = left.less(one);
            }
        }
    }
    left.is_none().then_some(parts)
}

/// Number of tasks that fit on a node.
fn room_on(shape: &StepShape, node: &PoolNode, all: bool) -> u32 {
    let tasks = cpu_room_on(shape, node, all);
    let total = match &shape.gres {
        StepGres::None => return tasks,
        StepGres::All => Totals::NONE,
        StepGres::Asked(asked) => asked.totals().one_each(),
    };
    let fits = |tasks: u32| gres_on(shape, node, (tasks, total), false, all).is_some();
    if tasks == 0 || fits(tasks) {
        return tasks;
    }
    (1..tasks).rev().find(|tasks| fits(*tasks)).unwrap_or(0)
}

/// The same by CPUs and memory.
fn cpu_room_on(shape: &StepShape, node: &PoolNode, all: bool) -> u32 {
    let (cpus, memory) =
        if all { (node.cpu_count, node.memory) } else { (node.free_count, node.memory.map(|_| node.free_memory)) };
    if shape.sharing == StepSharing::Default && cpus < node.cpu_count {
        return 0;
    }
    let by_cpu = if shape.overcommit && cpus > 0 { MOST_OVERCOMMITTED } else { cpus / shape.cpus_per_task };
    let (Some(free), Some(total)) = (memory, node.memory) else { return by_cpu };
    // A default step takes its node whole, so its memory does not grow with its tasks.
    let whole = shape.sharing == StepSharing::Default || (shape.sharing == StepSharing::Overlap && !shape.exact_cpus);
    match shape.memory {
        StepMemory::All if free < total => 0,
        StepMemory::All => by_cpu,
        StepMemory::PerNode(m) if m > free => 0,
        StepMemory::PerNode(_) => by_cpu,
        StepMemory::PerCpu(m) if whole => {
            if m * u64::from(node.cpu_count) > free {
                0
            } else {
                by_cpu
            }
        }
        StepMemory::PerCpu(m) => by_cpu.min(limit_u32(free / (m * u64::from(shape.cpus_per_task)).max(1))),
        StepMemory::ByCpus if whole => {
            if free < total {
                0
            } else {
                by_cpu
            }
        }
        StepMemory::ByCpus => {
            let taken = |tasks: u32| {
                let asked = tasks * shape.cpus_per_task;
                if shape.overcommit { asked.min(cpus) } else { asked }
            };
            let fits = |tasks: u32| by_cpus(total, taken(tasks), node.cpu_count) <= free;
            if fits(by_cpu) { by_cpu } else { (0..by_cpu).rev().find(|t| fits(*t)).unwrap_or(0) }
        }
    }
}

fn limit_u32(n: u64) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// Nodes with the number of tasks that fit, ascending. First fit in node order; if that is not enough, the nodes with most room.
fn pick(
    shape: &StepShape,
    pool: &Pool,
    overlap: bool,
    (against, least): (Against<'_>, u32),
    rooms: impl Fn(u32) -> u32,
) -> Option<Vec<(u32, u32)>> {
    let mut picked = Vec::new();
    let mut room = 0u64;
    for slot in &shape.required {
        let here = rooms(*slot);
        if here == 0 {
            return None;
        }
        room += u64::from(here);
        picked.push((*slot, here));
    }
    let tasks = u64::from(shape.tasks);
    let enough = |n: usize, room: u64| n as u32 >= least && room >= tasks;
    let everywhere = 0..pool.nodes().len() as u32;
    let mut emptiest: Vec<u32> = Vec::new();
    let candidates: &mut dyn Iterator<Item = u32> = if matches!(against, Against::Emptiest) {
        emptiest.extend(everywhere.filter(|s| shape.required.binary_search(s).is_err()));
        emptiest.sort_by_key(|slot| std::cmp::Reverse(pool.node(*slot).free_count));
        &mut emptiest.into_iter()
    } else if overlap || against.whole() {
        &mut everywhere.filter(|s| shape.required.binary_search(s).is_err())
    } else {
        &mut pool.open().range(shape.first..).copied().filter(|s| shape.required.binary_search(s).is_err())
    };
    let fixed = picked.len();
    let mut others = Vec::new();
    let most = shape.max_nodes as usize;
    while !(enough(picked.len(), room) || picked.len() >= most && others.is_empty() && room >= tasks) {
        let Some(slot) = candidates.next() else { break };
        let here = rooms(slot);
        if here == 0 {
            continue;
        }
        if picked.len() < most {
            picked.push((slot, here));
            room += u64::from(here);
        } else {
            others.push((slot, here));
            // A step of one node only needs one node with enough room.
            if most == 1 && fixed == 0 && u64::from(here) >= tasks {
                return Some(vec![(slot, here)]);
            }
        }
    }
    if enough(picked.len(), room) {
        picked.sort_unstable();
        return Some(picked);
    }
    if others.is_empty() {
        return None;
    }
    let mut choice = picked.split_off(fixed);
    choice.append(&mut others);
    choice.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
    choice.truncate(most - fixed);
    picked.append(&mut choice);
    let room: u64 = picked.iter().map(|p| u64::from(p.1)).sum();
    if !enough(picked.len(), room) {
        return None;
    }
    picked.sort_unstable();
    Some(picked)
}

/// Tasks on each picked node.
fn counts(shape: &StepShape, picked: &[(u32, u32)], pool: &Pool) -> Vec<u32> {
    if shape.distribution == Distribution::Arbitrary && !shape.task_slots.is_empty() {
        return ranks_as_listed(shape, picked).iter().map(|ranks| limit_u32(ranks.len() as u64)).collect();
    }
    // A step with all of the job's tasks on all of its nodes has the job's layout, unless it says something else.
    let as_the_job = !matches!(shape.distribution, Distribution::BlockPack | Distribution::BlockNoPack);
    if as_the_job
        && picked.len() == pool.nodes().len()
        && picked.iter().all(|(slot, room)| (1..=*room).contains(&pool.node(*slot).tasks))
        && picked.iter().map(|(slot, _)| pool.node(*slot).tasks).sum::<u32>() == shape.tasks
    {
        return picked.iter().map(|(slot, _)| pool.node(*slot).tasks).collect();
    }
    let mut counts = vec![1; picked.len()];
    let mut left = shape.tasks - picked.len() as u32;
    match shape.distribution {
        Distribution::BlockPack => {
            for (count, (_, room)) in counts.iter_mut().zip(picked) {
                let more = left.min(room - 1);
                *count += more;
                left -= more;
            }
        }
        // With a plane, each node has as many tasks as with cyclic; arbitrary without a list is like block (srun(1)), which is
        // even unless it is packed (`CR_Pack_Nodes` in slurm.conf(5)).
        Distribution::Block
        | Distribution::Arbitrary
        | Distribution::Cyclic
        | Distribution::Plane(_)
        | Distribution::BlockNoPack => {
            while left > 0 {
                for (count, (_, room)) in counts.iter_mut().zip(picked) {
                    if left > 0 && *count < *room {
                        *count += 1;
                        left -= 1;
                    }
                }
            }
        }
    }
    counts
}

/// Ranks on each node.
fn ranks(distribution: Distribution, counts: &[u32]) -> Vec<Vec<u32>> {
    let mut ranks: Vec<Vec<u32>> = counts.iter().map(|c| Vec::with_capacity(*c as usize)).collect();
    let total: u32 = counts.iter().sum();
    let mut rank = 0;
    match distribution {
        Distribution::Block | Distribution::BlockNoPack | Distribution::BlockPack | Distribution::Arbitrary => {
            for (list, count) in ranks.iter_mut().zip(counts) {
                list.extend(rank..rank + count);
                rank += count;
            }
        }
        Distribution::Cyclic => {
            while rank < total {
                for (list, count) in ranks.iter_mut().zip(counts) {
                    if (list.len() as u32) < *count {
                        list.push(rank);
                        rank += 1;
                    }
                }
            }
        }
        Distribution::Plane(size) => {
            while rank < total {
                for (list, count) in ranks.iter_mut().zip(counts) {
                    let next = size.max(1).min(count - list.len() as u32);
                    list.extend(rank..rank + next);
                    rank += next;
                }
            }
        }
    }
    ranks
}

/// Ranks on each node if a list gives the node of each rank.
fn ranks_as_listed(shape: &StepShape, picked: &[(u32, u32)]) -> Vec<Vec<u32>> {
    let mut ranks = vec![Vec::new(); picked.len()];
    for (rank, slot) in (0..).zip(&shape.task_slots) {
        if let Some(place) = picked.iter().position(|(picked, _)| picked == slot) {
            ranks[place].push(rank);
        }
    }
    ranks
}

#[cfg(test)]
#[path = "placement_test.rs"]
mod tests;
