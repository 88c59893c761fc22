//! Which cores a reservation of cores gets: free ones, preferably those that it has already, and the lowest of them. A core is
//! not free if a job has it beyond the begin, or another reservation at one of its times.

use super::{
    change::Terms,
    core::{ReservationsCore, Site, TIMES_COMPARED, ignores_jobs, may_share, meet},
};
use garrick_model::{
    node_shape::NodeShape,
    refusal::Refusal,
    reservation::{CoresWanted, NodesWanted, Reservation, ReservationFlag},
    resources::CpuSet,
    spec::Sharing,
    view::NodeView,
};
use garrick_plan::snapshot::facts::in_service;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// The request, for each node or in all.
struct Wish<'w> {
    counts: &'w [u32],
    by_cpu: bool,
}

impl<'w> Wish<'w> {
    const fn of(wanted: &'w CoresWanted) -> Self {
        match wanted {
            CoresWanted::Cores(counts) => Self { counts: counts.as_slice(), by_cpu: false },
            CoresWanted::Cpus(counts) => Self { counts: counts.as_slice(), by_cpu: true },
        }
    }

    /// Cores of such a node that correspond to the requested count.
    fn cores(&self, shape: &NodeShape, count: u32) -> u32 {
        if self.by_cpu { count.div_ceil(shape.cpus_per_core().max(1)) } else { count }
    }

    /// A count for each of so many nodes.
    fn each(&self, nodes: usize) -> Result<Vec<u32>, Refusal> {
        let inconsistent = || Refusal::InvalidUpdate("Core count for reservation node list is not consistent!".into());
        let nodes = u32::try_from(nodes).ok().filter(|nodes| *nodes > 0).ok_or(Refusal::BadNodeCount)?;
        let each: Vec<u32> = match self.counts {
            [total] => (0..nodes).map(|node| total / nodes + u32::from(node < total % nodes)).collect(),
            counts if counts.len() == nodes as usize => counts.to_vec(),
            _ => return Err(inconsistent()),
        };
        if each.contains(&0) { Err(inconsistent()) } else { Ok(each) }
    }
}

impl ReservationsCore {
    /// Cores of each of its nodes.
    pub(super) fn cores(
        &self,
        site: &Site<'_>,
        new: &Reservation,
        nodes: Option<&NodesWanted>,
        wanted: &CoresWanted,
    ) -> Result<BTreeMap<String, CpuSet>, Refusal> {
        let (terms, wish) = (Terms::of(site, new)?, Wish::of(wanted));
        match nodes {
            Some(NodesWanted::Named(names)) => {
                let named: BTreeSet<&str> = names.iter().map(String::as_str).collect();
                if let Some(unknown) = named.iter().find(|name| !site.nodes.iter().any(|n| n.name == ***name)) {
                    return Err(Refusal::InvalidNode((*unknown).to_owned()));
                }
                let chosen: Vec<_> = site.nodes.iter().filter(|node| named.contains(node.name.as_str())).collect();
                if chosen.iter().all(|node| terms.fits(node)) {
                    self.on_these(site, new, &chosen, &wish)
                } else {
                    Err(Refusal::NodeConfigUnavailable { detail: None })
                }
            }
            Some(NodesWanted::All) => {
                let all: Vec<_> = site.nodes.iter().filter(|node| terms.fits(node)).collect();
                self.on_these(site, new, &all, &wish)
            }
            Some(NodesWanted::Count(count)) => self.on_some(site, new, &terms, wish.each(*count as usize)?, &wish),
            None => self.anywhere(site, new, &terms, &wish),
            Some(_) => Err(Refusal::BadNodeCount),
        }
    }

    /// Are its cores free of other reservations at its times?
    pub(super) fn are_clear(&self, site: &Site<'_>, new: &Reservation) -> bool {
        let of = |name: &str| site.nodes.iter().find(|node| node.name == name);
        new.core_ids
            .iter()
            .all(|(name, cores)| of(name).is_some_and(|node| cores.is_subset(&self.free(site, new, node))))
    }

    fn on_these(
        &self,
        site: &Site<'_>,
        new: &Reservation,
        nodes: &[&Arc<NodeView>],
        wish: &Wish<'_>,
    ) -> Result<BTreeMap<String, CpuSet>, Refusal> {
        let each = wish.each(nodes.len())?;
        let mut chosen = BTreeMap::new();
        for (node, count) in nodes.iter().zip(each) {
            let count = wish.cores(&node.shape, count);
            if count > own_cores(&node.shape).len() {
                return Err(Refusal::NodeConfigUnavailable { detail: None });
            }
            chosen.insert(node.name.clone(), self.choose(site, new, node, count).ok_or(Refusal::Busy)?);
        }
        Ok(chosen)
    }

    /// Nodes that it may have: first those that it has, then idle ones, then those of low weight.
    fn in_order<'s>(&self, site: &Site<'s>, new: &Reservation, terms: &Terms<'_>) -> Vec<&'s Arc<NodeView>> {
        let mut could: Vec<_> = site.nodes.iter().filter(|node| terms.fits_counted(node)).collect();
        let has = |node: &NodeView| new.nodes.contains(&node.name);
        could.sort_by_key(|node| (!has(node), !node.holds.is_empty(), node.weight, node.index));
        could
    }

    /// So many nodes, each with one of the counts.
    fn on_some(
        &self,
        site: &Site<'_>,
        new: &Reservation,
        terms: &Terms<'_>,
        mut each: Vec<u32>,
        wish: &Wish<'_>,
    ) -> Result<BTreeMap<String, CpuSet>, Refusal> {
        // The largest counts are the hardest to satisfy, and go first.
        each.sort_unstable_by_key(|count| std::cmp::Reverse(*count));
        let could = self.in_order(site, new, terms);
        let wide =
            |count: u32| could.iter().filter(|n| own_cores(&n.shape).len() >= wish.cores(&n.shape, count)).count();
        if each.iter().zip(1..).any(|(count, number)| wide(*count) < number) {
            return Err(Refusal::NodeConfigUnavailable { detail: None });
        }
        let mut chosen: BTreeMap<String, CpuSet> = BTreeMap::new();
        for count in each {
            let mut open = could.iter().filter(|node| in_service(node) && !chosen.contains_key(&node.name));
            let on = |node: &&Arc<NodeView>| {
                let cores = self.choose(site, new, node, wish.cores(&node.shape, count))?;
                Some((node.name.clone(), cores))
            };
            let (name, cores) = open.find_map(on).ok_or(Refusal::Busy)?;
            chosen.insert(name, cores);
        }
        Ok(chosen)
    }

    /// So many in all, on few nodes.
    fn anywhere(
        &self,
        site: &Site<'_>,
        new: &Reservation,
        terms: &Terms<'_>,
        wish: &Wish<'_>,
    ) -> Result<BTreeMap<String, CpuSet>, Refusal> {
        let &[mut left] = wish.counts else { return Err(Refusal::BadNodeCount) };
        let could = self.in_order(site, new, terms);
        let size = |shape: &NodeShape| if wish.by_cpu { shape.cpus_per_core().max(1) } else { 1 };
        let all: u64 = could.iter().map(|n| u64::from(own_cores(&n.shape).len()) * u64::from(size(&n.shape))).sum();
        if left == 0 || all < u64::from(left) {
            return Err(Refusal::NodeConfigUnavailable { detail: None });
        }
        let mut chosen = BTreeMap::new();
        for node in could.into_iter().filter(|node| in_service(node)) {
            let size = size(&node.shape);
            let count = left.div_ceil(size).min(self.free(site, new, node).len());
            if let Some(cores) = self.choose(site, new, node, count).filter(|_| count > 0) {
                left = left.saturating_sub(count * size);
                chosen.insert(node.name.clone(), cores);
            }
            if left == 0 {
                return Ok(chosen);
            }
        }
        Err(Refusal::Busy)
    }

    fn choose(&self, site: &Site<'_>, new: &Reservation, node: &NodeView, count: u32) -> Option<CpuSet> {
        let free = self.free(site, new, node);
        if new.has(ReservationFlag::FirstCores) {
            let first = own_cores(&node.shape).take(count);
            return (first.len() == count && first.is_subset(&free)).then_some(first);
        }
        let has = new.core_ids.get(&node.name).map_or_else(CpuSet::new, |has| has.intersection(&free));
        let rest = free.difference(&has);
        (free.len() >= count).then(|| has.iter().chain(rest.iter()).take(count as usize).collect())
    }

    /// Cores of a node that it could have. Its own cores count, whoever uses them.
    fn free(&self, site: &Site<'_>, new: &Reservation, node: &NodeView) -> CpuSet {
        let mut free = own_cores(&node.shape);
        if !ignores_jobs(new) {
            let start = new.start.max(site.now);
            for hold in node.holds.iter().filter(|hold| hold.expected_end.is_none_or(|end| end > start)) {
                if matches!(hold.sharing, Sharing::Exclusive | Sharing::User | Sharing::Mcs) {
                    free = CpuSet::new();
                }
                free.subtract(&hold.share.cpus.iter().map(|cpu| node.shape.core_of_cpu(cpu)).collect());
            }
            if let Some(has) = new.core_ids.get(&node.name) {
                free.add(&has.intersection(&own_cores(&node.shape)));
            }
        }
        if may_share(new) {
            return free;
        }
        let own = new.times(site.now, TIMES_COMPARED, site.zone);
        let others = self.list().filter(|r| r.name != new.name && !may_share(r) && r.nodes.contains(&node.name));
        for other in others {
            if meet(&own, &other.times(site.now, TIMES_COMPARED, site.zone)) {
                match other.core_ids.get(&node.name) {
                    Some(theirs) => free.subtract(theirs),
                    None => return CpuSet::new(),
                }
            }
        }
        free
    }
}

/// Cores of a node that jobs can have completely, whether a GPU comes with them or not.
pub(super) fn own_cores(shape: &NodeShape) -> CpuSet {
    let cpus = shape.common_cpus();
    (0..shape.cores()).filter(|core| shape.cpus_of_core(*core).all(|cpu| cpus.contains(cpu))).collect()
}
