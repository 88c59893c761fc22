//! What is free on one node, by single CPU and device, now and as its holds end.

use super::free::{Door, Free, whole_units};
use crate::snapshot::{
    facts::NEVER,
    request::{Label, NodeUse, Owner},
};
use garrick_model::{
    gres::{GresAmounts, GresEntry, GresPool},
    node_shape::{NodeShape, NodeShare},
    resources::CpuSet,
    spec::Sharing,
    time::Timestamp,
    view::{NodeHold, NodeView},
};
use std::collections::BTreeMap;

/// What is free from a time on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Step {
    /// Begin; the step ends where the next one begins.
    pub from: Timestamp,
    /// What is free then.
    pub free: Free,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Room {
    pub(in crate::room) unit: u32,
    pub(in crate::room) free: CpuSet,
    /// CPUs that come with GPUs.
    pub(in crate::room) restricted: CpuSet,
    /// Free CPUs without those.
    pub(in crate::room) free_cpus: u32,
    pub(in crate::room) memory: u64,
    pub(in crate::room) gres: GresPool,
    pub(in crate::room) door: Door,
    /// The one user whose jobs are on the node; `None` when there are none or several.
    pub(in crate::room) only_user: Option<u32>,
    /// The same for MCS labels.
    pub(in crate::room) only_label: Option<Label>,
    pub(in crate::room) holders: u32,
    /// Holders of each CPU and the most that they allow; only where CPUs are shared.
    pub(in crate::room) shared: BTreeMap<u32, (u32, u32)>,
    /// CPUs that a job holds exclusively, also if jobs that share them are suspended for it.
    pub(in crate::room) alone: CpuSet,
    pub(in crate::room) class: usize,
}

/// What is left of a hold when other jobs have ended or are suspended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remains {
    /// All of it.
    All,
    /// All but its CPUs, and it accepts any neighbours: it is suspended.
    ButCpus,
    /// Nothing.
    Nothing,
}

/// What is free on a node from now on: steps in order of time, the first from now. For a partly reserved node (`parted`) also
/// which CPUs.
pub(crate) fn futures(
    node: &NodeView,
    (unit, parted): (u32, bool),
    round: impl Fn(Timestamp) -> Timestamp,
    now: Timestamp,
    steps: &mut Vec<Step>,
) {
    let mut held: Vec<(Timestamp, &NodeHold)> =
        node.holds.iter().map(|hold| (hold.expected_end.filter(|_| !hold.kept).map_or(NEVER, &round), hold)).collect();
    held.sort_unstable_by_key(|(end, _)| std::cmp::Reverse(*end));
    if held.is_empty() && !parted {
        steps.push(Step { from: now, free: Free::all(&node.shape) });
        return;
    }
    let mut room = Room::all(node, unit);
    let amounts = |room: &Room| {
        let free = room.amounts(&node.shape);
        if parted { free.with_named(room.whole_units().collect()) } else { free }
    };
    for (end, hold) in held {
        let free = amounts(&room);
        if end < NEVER && steps.last().is_none_or(|later| later.from > end) {
            steps.push(Step { from: end, free });
        }
        room.add(&node.shape.gres, &hold.share, used_as(hold.sharing), Owner::of(hold));
    }
    steps.push(Step { from: now, free: amounts(&room) });
    steps.reverse();
    steps.dedup_by(|later, earlier| later.free == earlier.free);
}

/// How a hold uses its node, if it is not known how many other jobs may share its CPUs.
const fn used_as(sharing: Sharing) -> NodeUse {
    match sharing {
        Sharing::Default => NodeUse::Cpus,
        Sharing::Exclusive => NodeUse::Whole,
        Sharing::User => NodeUse::User,
        Sharing::Mcs => NodeUse::Label,
        Sharing::Oversubscribe => NodeUse::Oversubscribe(u32::MAX),
    }
}

impl Room {
    pub(in crate::room) fn all(node: &NodeView, unit: u32) -> Self {
        Self {
            unit,
            free: node.shape.job_cpus(),
            restricted: node.shape.restricted_cpus(),
            free_cpus: node.shape.common_cpu_count(),
            memory: node.shape.job_memory(),
            gres: GresPool::all(&node.shape.gres),
            door: Door::Open,
            only_user: None,
            only_label: None,
            holders: 0,
            shared: BTreeMap::new(),
            alone: CpuSet::new(),
            class: 0,
        }
    }

    /// With what remains of its holds.
    pub(in crate::room) fn of(node: &NodeView, unit: u32, remains: impl Fn(&NodeHold) -> Remains) -> Self {
        let mut room = Self::all(node, unit);
        for hold in &node.holds {
            match remains(hold) {
                Remains::All => room.add(&node.shape.gres, &hold.share, used_as(hold.sharing), Owner::of(hold)),
                Remains::ButCpus => room.add_but_cpus(&node.shape.gres, &hold.share),
                Remains::Nothing => {}
            }
        }
        room
    }

    pub(in crate::room) fn add(&mut self, entries: &[GresEntry], share: &NodeShare, usage: NodeUse, owner: Owner) {
        self.free.subtract(&share.cpus);
        if let NodeUse::Oversubscribe(most_holders) = usage {
            for cpu in share.cpus.iter() {
                let (holders, most) = self.shared.entry(cpu).or_insert((0, u32::MAX));
                *holders += 1;
                *most = (*most).min(most_holders);
            }
        } else {
            self.alone.add(&share.cpus);
        }
        let plain = self.unit == 1 && self.restricted.is_empty();
        self.free_cpus = if plain { self.free.len() } else { u32::try_from(self.whole_units().count()).unwrap_or(0) };
        self.memory = self.memory.saturating_sub(share.memory.map_or(0, |m| m.0));
        self.gres.take(entries, &share.gres);
        let Owner { user, label } = owner;
        self.only_user = Some(user).filter(|_| self.holders == 0 || self.only_user == Some(user));
        self.only_label = Some(label).filter(|_| self.holders == 0 || self.only_label == Some(label));
        self.holders += 1;
        self.door = self.door.behind(usage, owner);
    }

    fn add_but_cpus(&mut self, entries: &[GresEntry], share: &NodeShare) {
        self.memory = self.memory.saturating_sub(share.memory.map_or(0, |m| m.0));
        self.gres.take(entries, &share.gres);
    }

    /// In amounts, for a node of that shape.
    pub(in crate::room) fn amounts(&self, shape: &NodeShape) -> Free {
        let sharing = || self.shared.iter().filter(|(cpu, _)| !self.alone.contains(**cpu));
        let sharers: u32 = sharing().map(|(_, (holders, _))| holders).sum();
        let free =
            if self.restricted.is_empty() { self.free.len() } else { self.free.difference(&self.restricted).len() };
        let shareable = free + u32::try_from(sharing().count()).unwrap_or(0);
        Free {
            cpus: self.free_cpus,
            shareable: shareable.min(shape.cpus),
            sharers,
            memory: self.memory,
            gres: GresAmounts::free(&shape.gres, &self.gres),
            door: self.door,
            idle: self.holders == 0,
            only_user: self.only_user,
            only_label: self.only_label,
            named: None,
        }
    }

    /// Free CPUs in ascending order, without those that come with GPUs, leaving out units of which a part is taken.
    pub(in crate::room) fn whole_units(&self) -> impl Iterator<Item = u32> + '_ {
        let common = |cpu: u32| self.restricted.is_empty() || !self.restricted.contains(cpu);
        whole_units(&self.free, self.unit).filter(move |cpu| common(*cpu))
    }

    /// CPUs that one more sharing holder may have: free ones, and those held by sharing holders only, fewer than all of them
    /// allow.
    pub(in crate::room) fn shareable(&self, cpus: u32, most: u32) -> impl Iterator<Item = u32> + '_ {
        (0..cpus).filter(|cpu| !self.restricted.contains(*cpu)).filter(move |cpu| {
            self.free.contains(*cpu)
                || !self.alone.contains(*cpu)
                    && self.shared.get(cpu).is_some_and(|(holders, allowed)| *holders < most.min(*allowed))
        })
    }

    pub(in crate::room) fn least_shared(&self, cpus: &CpuSet, wanted: u32) -> CpuSet {
        let mut choice: Vec<(u32, u32)> =
            cpus.iter().map(|cpu| (self.shared.get(&cpu).map_or(0, |s| s.0), cpu)).collect();
        choice.sort_unstable();
        choice.into_iter().take(wanted as usize).map(|(_, cpu)| cpu).collect()
    }
}
