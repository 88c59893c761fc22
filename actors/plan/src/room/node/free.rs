//! What is free on one node at one time, in amounts, and how many tasks of a request fit into that. The same rule holds for what
//! is free now and for what will be free.

use crate::snapshot::request::{ANYBODY, Label, MemoryNeed, NodeUse, Owner, Part, Request};
use garrick_model::{
    gres::{GPU, GresAmounts, GresRequest, GresTaken, Totals},
    node_shape::{NodeShape, NodeShare},
    resources::CpuSet,
};

/// Which further jobs a node accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Door {
    /// All jobs.
    Open,
    /// Jobs of this user.
    OnlyUser(u32),
    /// Jobs of this MCS label.
    OnlyLabel(Label),
    /// No jobs.
    Closed,
}

impl Door {
    /// Does it accept a job of this owner?
    pub fn lets_in(self, owner: Owner) -> bool {
        match self {
            Self::Open => true,
            Self::OnlyUser(user) => user == owner.user,
            Self::OnlyLabel(label) => label == owner.label,
            Self::Closed => false,
        }
    }

    /// The state once a job uses the node in this way.
    #[must_use]
    pub const fn behind(self, usage: NodeUse, owner: Owner) -> Self {
        match (self, usage) {
            (_, NodeUse::Whole) => Self::Closed,
            (Self::Open, NodeUse::User) => Self::OnlyUser(owner.user),
            (Self::Open, NodeUse::Label) => Self::OnlyLabel(owner.label),
            (door, _) => door,
        }
    }
}

/// Free amounts of a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Free {
    /// CPUs without a holder, in whole units, without those that come with GPUs ([`NodeShape::gpu_cpus`]): while a GPU is free,
    /// so are they.
    pub cpus: u32,
    /// CPUs that no job holds exclusively.
    pub shareable: u32,
    /// Number of holders on those CPUs, all together.
    pub sharers: u32,
    /// MiB.
    pub memory: u64,
    /// Generic resources.
    pub gres: GresAmounts,
    /// Which jobs the node accepts.
    pub door: Door,
    /// No job holds anything.
    pub idle: bool,
    /// The one user whose jobs are on the node; `None` when there are none or several.
    pub only_user: Option<u32>,
    /// The one MCS label whose jobs are on the node; `None` when there are none or several.
    pub only_label: Option<Label>,
    /// Which CPUs are free, in whole units: only on partly reserved nodes, where that matters. CPUs are not shared there.
    pub named: Option<CpuSet>,
}

/// How much of a request a node can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Capacity {
    /// Tasks that fit.
    pub tasks: u32,
    /// CPUs that may be taken.
    pub cpus: u32,
    /// The node's part of generic resources that are requested for all nodes together.
    pub total: Totals,
}

/// What a job takes of a node, in amounts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Amount {
    /// CPUs, without those that come with its GPUs.
    pub cpus: u32,
    /// CPUs that come with its GPUs.
    pub with_gpus: u32,
    /// MiB.
    pub memory: u64,
    /// Generic resources.
    pub gres: GresTaken,
    /// How the node is used.
    pub usage: NodeUse,
    /// Owner.
    pub owner: Owner,
    /// Which CPUs, on partly reserved nodes.
    pub named: Option<CpuSet>,
}

impl Amount {
    /// The amounts of a share of a node with these generic resources.
    pub(crate) fn of_share(shape: &NodeShape, share: &NodeShare, usage: NodeUse, owner: Owner) -> Self {
        let cpus = share.cpus.difference(&shape.restricted_cpus()).len();
        Self {
            cpus,
            with_gpus: share.cpus.len() - cpus,
            memory: share.memory.map_or(0, |m| m.0),
            gres: GresAmounts::held(&shape.gres, &share.gres),
            usage,
            owner,
            named: None,
        }
    }
}

impl Part {
    /// Is there at least as much of everything as in the other?
    pub fn holds(self, other: Self) -> bool {
        self.tasks >= other.tasks && self.total.holds(&other.total)
    }
}

impl Free {
    /// All of an idle node.
    pub fn all(shape: &NodeShape) -> Self {
        Self {
            cpus: shape.common_cpu_count(),
            shareable: shape.common_cpu_count(),
            sharers: 0,
            memory: shape.job_memory(),
            gres: GresAmounts::all(&shape.gres),
            door: Door::Open,
            idle: true,
            only_user: None,
            only_label: None,
            named: None,
        }
    }

    /// Without CPUs that are closed to the job, on partly reserved nodes; `unit` is how many CPUs go together. The node is then
    /// not available as a whole.
    #[must_use]
    pub fn without(&self, cpus: &CpuSet, unit: u32) -> Self {
        let named = self.named.clone().unwrap_or_default().difference(cpus);
        Self { idle: false, only_user: None, only_label: None, ..self.clone() }
            .with_named(whole_units(&named, unit).collect())
    }

    /// With exactly these CPUs free.
    #[must_use]
    pub(crate) fn with_named(self, named: CpuSet) -> Self {
        Self { cpus: named.len(), shareable: named.len(), sharers: 0, named: Some(named), ..self }
    }

    /// Less this amount.
    #[must_use]
    pub fn less(&self, amount: &Amount) -> Self {
        let mut left = self.clone();
        left.gres = self.gres.less(&amount.gres);
        left.memory = self.memory.saturating_sub(amount.memory);
        let Owner { user, label } = amount.owner;
        let only = user != ANYBODY && (self.idle || self.only_user == Some(user));
        left.only_user = only.then_some(user);
        let only = label != Label::ANY && (self.idle || self.only_label == Some(label));
        left.only_label = only.then_some(label);
        left.idle = false;
        left.door = self.door.behind(amount.usage, amount.owner);
        if let Some(named) = &self.named {
            let rest = match &amount.named {
                _ if amount.usage == NodeUse::Whole => CpuSet::new(),
                Some(own) => named.difference(own),
                None => named.iter().skip(amount.cpus as usize).collect(),
            };
            return left.with_named(rest);
        }
        match amount.usage {
            NodeUse::Oversubscribe(_) => {
                left.sharers = self.sharers + amount.cpus;
                left.cpus = self.cpus.min(self.shareable.saturating_sub(left.sharers));
            }
            NodeUse::Whole => (left.cpus, left.shareable) = (0, 0),
            NodeUse::Cpus | NodeUse::User | NodeUse::Label => {
                left.cpus = self.cpus.saturating_sub(amount.cpus);
                left.shareable = self.shareable.saturating_sub(amount.cpus);
            }
        }
        left
    }

    /// Is there enough for this amount?
    pub(crate) fn covers(&self, amount: &Amount) -> bool {
        let welcome = self.welcomes(amount.usage, amount.owner);
        let cpus = match amount.usage {
            NodeUse::Whole => true,
            NodeUse::Oversubscribe(_) if self.named.is_some() => amount.cpus <= self.cpus,
            NodeUse::Oversubscribe(most) => {
                u64::from(amount.cpus) + u64::from(self.sharers) <= u64::from(self.shareable) * u64::from(most)
            }
            NodeUse::Cpus | NodeUse::User | NodeUse::Label => amount.cpus <= self.cpus,
        };
        let there = match (&self.named, &amount.named) {
            (Some(free), Some(own)) => own.is_subset(free),
            _ => true,
        };
        welcome && cpus && there && amount.memory <= self.memory && self.gres.covers(&amount.gres)
    }

    /// The minimum of both: what is free at both times.
    #[must_use]
    pub fn least(&self, other: &Self) -> Self {
        let door = match (self.door, other.door) {
            (Door::Open, door) | (door, Door::Open) => door,
            (one, other) if one == other => one,
            _ => Door::Closed,
        };
        let only_user = match (self.idle, other.idle) {
            (true, _) => other.only_user,
            (_, true) => self.only_user,
            _ => self.only_user.filter(|_| self.only_user == other.only_user),
        };
        let only_label = match (self.idle, other.idle) {
            (true, _) => other.only_label,
            (_, true) => self.only_label,
            _ => self.only_label.filter(|_| self.only_label == other.only_label),
        };
        let least = Self {
            cpus: self.cpus.min(other.cpus),
            shareable: self.shareable.min(other.shareable),
            sharers: self.sharers.max(other.sharers),
            memory: self.memory.min(other.memory),
            gres: self.gres.least(&other.gres),
            door,
            idle: self.idle && other.idle,
            only_user,
            only_label,
            named: None,
        };
        match (&self.named, &other.named) {
            (Some(a), Some(b)) => least.with_named(a.intersection(b)),
            (Some(named), None) | (None, Some(named)) => least.with_named(named.clone()),
            (None, None) => least,
        }
    }

    /// Does the node accept this request at all?
    pub fn admits(&self, request: &Request) -> bool {
        self.welcomes(request.usage, request.owner)
    }

    /// May a job of this owner use the node in this way, beside the jobs that are there?
    fn welcomes(&self, usage: NodeUse, owner: Owner) -> bool {
        let Owner { user, label } = owner;
        self.door.lets_in(owner)
            && match usage {
                NodeUse::Whole => self.idle,
                NodeUse::User => self.idle || self.only_user == Some(user) && !matches!(self.door, Door::OnlyLabel(_)),
                NodeUse::Label => {
                    self.idle || self.only_label == Some(label) && !matches!(self.door, Door::OnlyUser(_))
                }
                NodeUse::Cpus | NodeUse::Oversubscribe(_) => true,
            }
    }

    /// How much of a request a node with these free amounts can hold; `None`: nothing. Shared CPUs count as evenly used.
    pub(crate) fn capacity(&self, shape: &NodeShape, unit: u32, request: &Request) -> Option<Capacity> {
        let cpus = match request.usage {
            NodeUse::Oversubscribe(most) if self.named.is_none() => {
                self.shareable.min(self.shareable.saturating_mul(most).saturating_sub(self.sharers))
            }
            _ => self.cpus,
        };
        self.capacity_with((cpus, shape.cpus_per_gpu(), request.caps.most(shape)), shape, unit, request)
    }

    /// The same, with the CPUs that may be taken, those that come with each GPU, and the maximum of both, counted by the caller.
    pub(crate) fn capacity_with(
        &self,
        (common, per_gpu, most): (u32, u32, u32),
        shape: &NodeShape,
        unit: u32,
        request: &Request,
    ) -> Option<Capacity> {
        let is_too_small = shape.tmp_disk_mib < request.tmp_disk_mib || shape.memory.0 < request.least_memory_mib;
        if is_too_small || !self.admits(request) {
            return None;
        }
        // Parts of cores are left to the system too.
        let (common, unit, most) = match request.own_share(shape) {
            Some(own) => (own.len(), 1, most.min(request.whole(shape).len())),
            None => (common, unit, most),
        };
        let with_gpus = per_gpu.saturating_mul(self.gpus_for(shape, request, per_gpu));
        let mut cpus = common.saturating_add(with_gpus).min(most);
        cpus -= cpus % unit;
        let memory = request.most_memory(self.memory);
        match request.memory {
            MemoryNeed::None | MemoryNeed::PerGpu(_) => {}
            MemoryNeed::PerNode(mib) if mib > memory => return None,
            MemoryNeed::All if memory < request.most_memory(shape.job_memory()) => return None,
            MemoryNeed::PerNode(_) | MemoryNeed::All => {}
            MemoryNeed::AllWithin(_) if memory >= shape.job_memory() => {}
            // The job is given all CPUs of the node.
            MemoryNeed::PerCpu(mib) | MemoryNeed::AllWithin(mib) if request.usage == NodeUse::Whole => {
                let all = usable_cpus(shape, request, request.whole(shape).len());
                if mib.saturating_mul(u64::from(all)) > memory {
                    return None;
                }
            }
            MemoryNeed::PerCpu(mib) | MemoryNeed::AllWithin(mib) => {
                let by_memory = memory.checked_div(mib).map_or(u32::MAX, |n| u32::try_from(n).unwrap_or(u32::MAX));
                let by_memory = request.layout.as_ref().map_or(by_memory, |l| l.with_usable(by_memory, shape));
                cpus = cpus.min(by_memory - by_memory % unit);
            }
        }
        if cpus < request.min_cpus {
            return None;
        }
        let tasks = match &request.layout {
            None => cpus / cpus_of_task(shape, request),
            Some(layout) if layout.admits(shape) => layout.tasks_in(cpus, shape, request.cpus_per_task),
            Some(_) => return None,
        };
        let mut tasks = tasks.min(request.tasks_each.unwrap_or(u32::MAX));
        let mut total = Totals::NONE;
        if let Some(gres) = &request.gres {
            let room = CpuRoom { all: cpus, common, per_gpu, unit };
            (tasks, total) = self.gres_capacity(&room, shape, request, gres, tasks)?;
        }
        (tasks >= request.least_tasks()).then_some(Capacity { tasks, cpus, total })
    }

    /// The most GPUs that a request could get here, where CPUs come with them.
    fn gpus_for(&self, shape: &NodeShape, request: &Request, per_gpu: u32) -> u32 {
        let shared = matches!(request.usage, NodeUse::Oversubscribe(_));
        let asks = request.gres.as_ref().is_some_and(|gres| gres.all().any(|one| one.name == GPU && one.count > 0));
        if per_gpu == 0 || shared || (request.usage != NodeUse::Whole && !asks) {
            return 0;
        }
        let of_gpus = shape.gres.iter().enumerate().filter(|(_, entry)| entry.name == GPU);
        let free = of_gpus.fold(0u64, |sum, (place, _)| sum.saturating_add(self.gres.count(place)));
        u32::try_from(free).unwrap_or(u32::MAX)
    }

    /// Tasks, and the part of the total, that generic resources allow, with the CPUs and memory that go with GPUs.
    fn gres_capacity(
        &self,
        room: &CpuRoom,
        shape: &NodeShape,
        request: &Request,
        gres: &GresRequest,
        tasks: u32,
    ) -> Option<(u32, Totals)> {
        let entries = &shape.gres;
        let fits = |part: Part| {
            let need = gres.on_node(part.tasks, part.total);
            let gpus = GresRequest::gpus(&need);
            let memory = match request.memory {
                MemoryNeed::PerGpu(mib) => mib.saturating_mul(gpus),
                _ => 0,
            };
            let with_gpus = gpus.saturating_mul(u64::from(gres.cpus_per_gpu.unwrap_or(0)));
            memory <= request.most_memory(self.memory)
                && with_gpus <= u64::from(room.all)
                && room.holds(shape, request, part)
                && self.gres.has(entries, &need)
        };
        let even = request.even_part();
        let by_gpus = room.per_gpu > 0 && !gres.totals().is_none() && request.usage != NodeUse::Whole;
        let all_even = by_gpus && even.tasks <= tasks && fits(even);
        let least = gres.totals().one_each();
        let most = u64::from(tasks);
        let fitting =
            greatest(most, |tasks| fits(Part { tasks: u32::try_from(tasks).unwrap_or(u32::MAX), total: least }));
        let tasks = u32::try_from(fitting.unwrap_or(0)).unwrap_or(u32::MAX);
        // CPUs come with GPUs: so many tasks fit with that many GPUs, but not with fewer.
        if all_even && tasks < even.tasks {
            return Some((even.tasks, even.total));
        }
        fitting?;
        let room = self.gres.total_room(entries, gres).min(gres.totals());
        let tasks_then = tasks.min(request.least_tasks());
        let mut total = least;
        for place in 0..gres.total.len() {
            let most = greatest(room.at(place), |n| fits(Part { tasks: tasks_then, total: total.with(place, n) }))?;
            total = total.with(place, most);
        }
        total.holds(&least).then_some((tasks, total))
    }
}

/// CPUs of a node that a request may take.
struct CpuRoom {
    /// With all GPUs that it could have.
    all: u32,
    /// Without GPUs.
    common: u32,
    /// With each GPU.
    per_gpu: u32,
    unit: u32,
}

impl CpuRoom {
    /// Are there enough for this part with its GPUs?
    fn holds(&self, shape: &NodeShape, request: &Request, part: Part) -> bool {
        self.per_gpu == 0
            || request.usage == NodeUse::Whole
            || common_cpus_of_part(shape, (self.unit, self.per_gpu), request, part) <= self.common
    }
}

/// CPUs of the set in ascending order, without units that are incomplete.
pub(crate) fn whole_units(cpus: &CpuSet, unit: u32) -> impl Iterator<Item = u32> + '_ {
    cpus.iter().filter(move |cpu| {
        let first = cpu - cpu % unit;
        unit == 1 || (first..first + unit).all(|c| cpus.contains(c))
    })
}

/// CPUs that a task of the request takes of such a node.
pub(crate) fn cpus_of_task(shape: &NodeShape, request: &Request) -> u32 {
    if request.one_task_per_core {
        request.cpus_per_task.next_multiple_of(shape.cpus_per_core().max(1))
    } else {
        request.cpus_per_task
    }
}

/// The greatest number up to `most` for which `fits` holds, if it holds for all smaller ones. `None`: it does not hold for 0.
pub fn greatest(most: u64, fits: impl Fn(u64) -> bool) -> Option<u64> {
    if fits(most) {
        return Some(most);
    }
    let (mut low, mut high) = (0, most);
    while low < high {
        let middle = low + (high - low) / 2;
        if fits(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low.checked_sub(1)
}

/// CPUs that a part of the request takes of such a node, where it is not taken whole.
pub(crate) fn cpus_of_part(shape: &NodeShape, unit: u32, request: &Request, part: Part) -> u32 {
    let for_tasks = match &request.layout {
        None => part.tasks.saturating_mul(cpus_of_task(shape, request)),
        Some(layout) => layout.cpus_for(part.tasks, shape, request.cpus_per_task),
    };
    let with_gpus = request.gres.as_ref().and_then(|gres| {
        let gpus = GresRequest::gpus(&gres.on_node(part.tasks, part.total));
        gres.cpus_per_gpu.map(|each| each.saturating_mul(u32::try_from(gpus).unwrap_or(u32::MAX)))
    });
    for_tasks.max(request.min_cpus).max(with_gpus.unwrap_or(0)).max(1).next_multiple_of(unit)
}

/// How many of those do not come with its GPUs, if each GPU comes with `per_gpu`.
pub(crate) fn common_cpus_of_part(
    shape: &NodeShape,
    (unit, per_gpu): (u32, u32),
    request: &Request,
    part: Part,
) -> u32 {
    let cpus = cpus_of_part(shape, unit, request, part);
    let shared = matches!(request.usage, NodeUse::Oversubscribe(_));
    let Some(gres) = request.gres.as_ref().filter(|_| per_gpu > 0 && !shared) else { return cpus };
    let gpus = u32::try_from(GresRequest::gpus(&gres.on_node(part.tasks, part.total))).unwrap_or(u32::MAX);
    cpus.saturating_sub(per_gpu.saturating_mul(gpus))
}

/// What a part of the request takes of such a node with these free amounts.
pub fn amount(shape: &NodeShape, unit: u32, request: &Request, part: Part, free: &Free) -> Amount {
    let cpus = match request.usage {
        NodeUse::Whole => request.whole(shape).len(),
        _ => cpus_of_part(shape, unit, request, part),
    };
    let memory = memory_of(shape, request, cpus, part, free.memory).unwrap_or(0);
    let gres = match (request.usage, &request.gres) {
        (NodeUse::Whole, _) => GresAmounts::all(&shape.gres),
        (_, Some(gres)) => free.gres.taken(&shape.gres, &gres.on_node(part.tasks, part.total)),
        (_, None) => GresTaken::default(),
    };
    let common = match request.usage {
        NodeUse::Whole => cpus,
        _ => common_cpus_of_part(shape, (unit, shape.cpus_per_gpu()), request, part),
    };
    let with_gpus = cpus.saturating_sub(common);
    Amount { cpus: common, with_gpus, memory, gres, usage: request.usage, owner: request.owner, named: None }
}

/// How many of a number of CPUs of such a node the request uses.
fn usable_cpus(shape: &NodeShape, request: &Request, cpus: u32) -> u32 {
    request.layout.as_ref().map_or(cpus, |layout| layout.usable(cpus, shape))
}

/// MiB that the request takes of a node with so many of its CPUs, for a part of it; `None`: memory is not accounted.
pub(crate) fn memory_of(shape: &NodeShape, request: &Request, cpus: u32, part: Part, free: u64) -> Option<u64> {
    match request.memory {
        MemoryNeed::None => None,
        MemoryNeed::PerNode(mib) => Some(mib),
        MemoryNeed::All => Some(request.most_memory(shape.job_memory())),
        MemoryNeed::PerCpu(mib) => {
            Some(mib.saturating_mul(u64::from(usable_cpus(shape, request, cpus))).min(request.most_memory(free)))
        }
        MemoryNeed::AllWithin(mib) => {
            Some(mib.saturating_mul(u64::from(usable_cpus(shape, request, cpus))).min(shape.job_memory()))
        }
        MemoryNeed::PerGpu(mib) => {
            let gpus = request.gres.as_ref().map_or(0, |gres| GresRequest::gpus(&gres.on_node(part.tasks, part.total)));
            Some(mib.saturating_mul(gpus).min(free))
        }
    }
}

/// What a reservation of a whole node takes.
pub(crate) fn whole_node() -> Amount {
    let (cpus, gres, usage) = (0, GresTaken::default(), NodeUse::Whole);
    Amount { cpus, with_gpus: 0, memory: 0, gres, usage, owner: Owner::ANYBODY, named: None }
}
