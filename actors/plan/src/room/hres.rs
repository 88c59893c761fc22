//! Hierarchical resources in the choice of nodes: which nodes keep every layer within its amount, and how much they count for.
//!
//! [`crate::room::licenses`] keeps the amounts over time; it counts each layer as a license of its own. Called by [`crate::plan`]
//! and [`crate::plan::probe`]; nothing here holds resources.
//!
//! A result never takes more of a layer than is free. For one resource, and a request without conditions on its nodes'
//! neighbourhood, the search finds nodes whenever some exist: layers that have too little are left out (mode 2), and of the
//! others the nodes with most free resources stay, as many as every layer allows (mode 3; sets of nodes within nested bounds are
//! a matroid, so no better set is missed). In other cases some choices are tried, not all: several resources of mode 3, mode 1
//! where only some nodes of a job can be in a layer that has enough, neighbours, switches, counts of features.

use super::{
    licenses::LicensePlan,
    machine::Machine,
    select::{self, Besides, Bound},
    sizes,
};
use crate::snapshot::{hres::HresAsk, request::Request};
use fixedbitset::FixedBitSet;
use garrick_model::{
    config::{Hres, HresLayer, HresMode, HresResource},
    ids::NodeIndex,
    spec_text::licenses::{LicenseCount, Licenses},
    time::Timestamp,
    view::AllocatedNode,
};
use std::{cmp::Reverse, collections::BTreeMap, time::Duration};

/// What is free of a layer; `None`: unlimited.
type Free = Option<u64>;

struct Wanted<'h> {
    resource: &'h HresResource,
    count: u32,
    /// By layer, in the order of the configuration.
    free: Vec<Free>,
}

impl Wanted<'_> {
    fn has(&self, layer: usize, amount: u64) -> bool {
        self.free[layer].is_none_or(|free| amount <= free)
    }

    fn layers_with(&self, amount: u64) -> FixedBitSet {
        let mut nodes = FixedBitSet::new();
        let layers = self.resource.layers.iter().enumerate();
        for (_, layer) in layers.filter(|(place, _)| self.has(*place, amount)) {
            nodes.grow(layer.members.len());
            nodes.union_with(&layer.members);
        }
        nodes
    }

    /// The most of those nodes that can each have what is requested: layers of equal depth share no nodes.
    fn most_nodes(&self, open: &FixedBitSet) -> u64 {
        let mut by_depth: BTreeMap<usize, u64> = BTreeMap::new();
        for (layer, free) in self.resource.layers.iter().zip(&self.free) {
            let here = open.intersection_count(&layer.members) as u64;
            let most = free.map_or(here, |free| here.min(free / u64::from(self.count.max(1))));
            *by_depth.entry(layer.depth).or_insert(0) += most;
        }
        by_depth.into_values().min().unwrap_or(0)
    }

    /// What a job on these nodes takes of the layers; `None`: too little is free.
    fn share(&self, nodes: &[usize], into: &mut Vec<LicenseCount>) -> Option<()> {
        let layers = &self.resource.layers;
        let all = self.resource.members();
        if nodes.iter().any(|node| !all.contains(*node)) {
            return None;
        }
        let here = |layer: usize| nodes.iter().filter(|node| layers[layer].members.contains(**node)).count();
        let named = |layer: usize, count| LicenseCount { name: layers[layer].name.clone(), count };
        for layer in self.resource.by_size() {
            let overlap = here(layer);
            if overlap == 0 {
                continue;
            }
            let each = u64::from(self.count);
            match self.resource.mode {
                HresMode::One if self.has(layer, each) => {
                    into.push(named(layer, self.count));
                    return Some(());
                }
                HresMode::One => {}
                HresMode::Two if self.has(layer, each) => into.push(named(layer, self.count)),
                HresMode::Three if self.has(layer, each * overlap as u64) => {
                    into.push(named(layer, u32::try_from(each * overlap as u64).ok()?));
                }
                HresMode::Two | HresMode::Three => return None,
            }
        }
        (self.resource.mode != HresMode::One).then_some(())
    }
}

/// What is free of the resources that a request names, for the whole time that it would run.
pub struct Room<'h> {
    wanted: Vec<Wanted<'h>>,
}

impl<'h> Room<'h> {
    /// What is free from `from` on for this time; `None`: the request names no such resource.
    pub(crate) fn within(
        hres: &'h Hres,
        licenses: &LicensePlan,
        request: &Request,
        from: Timestamp,
        length: Duration,
    ) -> Option<Self> {
        let used = |name: &str| licenses.most_used(name, from, from.plus(length));
        Self::with(hres, request, used)
    }

    /// What would be free if no job held any.
    pub fn whole(hres: &'h Hres, request: &Request) -> Option<Self> {
        Self::with(hres, request, |_| 0)
    }

    fn with(hres: &'h Hres, request: &Request, used: impl Fn(&str) -> u64) -> Option<Self> {
        let asks = request.hres.as_ref()?;
        let wanted = |ask: &HresAsk| {
            let resource = hres.resources.get(ask.resource)?;
            let left = |available: u32, name: &str| u64::from(available).saturating_sub(used(name));
            let free = resource.layers.iter().map(|layer| layer.available().map(|most| left(most, &layer.name)));
            Some(Wanted { resource, count: ask.count, free: free.collect() })
        };
        Some(Self { wanted: asks.iter().filter_map(wanted).collect() })
    }

    /// What a job on these nodes, by index, takes of the layers; `None`: too little is free.
    pub fn share(&self, nodes: &[usize]) -> Option<Licenses> {
        let mut licenses = Vec::new();
        self.wanted.iter().try_for_each(|wanted| wanted.share(nodes, &mut licenses))?;
        Some(Licenses(licenses))
    }

    /// Removes nodes that could not have what is requested.
    fn restrict(&self, open: &mut FixedBitSet) {
        for wanted in &self.wanted {
            open.intersect_with(&wanted.resource.members());
            for (place, layer) in wanted.resource.layers.iter().enumerate() {
                if wanted.resource.mode != HresMode::One && !wanted.has(place, u64::from(wanted.count)) {
                    open.difference_with(&layer.members);
                }
            }
        }
    }

    /// Those of the nodes that could have what is requested if no job held any.
    fn ever(&self, candidates: &FixedBitSet) -> FixedBitSet {
        let mut ever = candidates.clone();
        for Wanted { resource, count, .. } in &self.wanted {
            ever.intersect_with(&resource.members());
            let too_small = |layer: &&HresLayer| layer.available().is_some_and(|most| most < *count);
            for layer in resource.layers.iter().filter(|_| resource.mode != HresMode::One).filter(too_small) {
                ever.difference_with(&layer.members);
            }
        }
        ever
    }

    /// Does the search find nodes for the request whenever some exist?
    pub(crate) fn is_sought_everywhere(&self, request: &Request) -> bool {
        let plain = !request.contiguous && request.near.is_none() && request.mix.is_none();
        plain && matches!(self.wanted.as_slice(), [one] if one.resource.mode != HresMode::One)
    }

    /// Keeps the nodes in a layer that has enough by itself, for each resource of mode 1.
    fn restrict_to_rich(&self, open: &mut FixedBitSet) {
        for wanted in self.wanted.iter().filter(|wanted| wanted.resource.mode == HresMode::One) {
            open.intersect_with(&wanted.layers_with(u64::from(wanted.count)));
        }
    }

    /// What is asked for on each node.
    fn of_nodes(&self) -> impl Iterator<Item = &Wanted<'h>> {
        self.wanted.iter().filter(|wanted| wanted.resource.mode == HresMode::Three)
    }

    /// Keeps the nodes with most free resources, as many as every layer allows.
    fn thin(
        &self,
        open: &FixedBitSet,
        machine: &Machine<'_>,
        request: &Request,
        bound: Option<Bound<'_>>,
    ) -> FixedBitSet {
        let capacity = |node: usize| {
            let capacity = machine.capacity(node, request)?;
            let capacity = match bound {
                Some(Bound { horizon, limits, .. }) => {
                    limits.bound(horizon.class_of(node), capacity, request.least_part())?
                }
                None => capacity,
            };
            Some((Reverse((is_named(request, node), capacity.total, capacity.tasks)), machine.class_of(node), node))
        };
        let mut order: Vec<_> = open.ones().filter_map(capacity).collect();
        order.sort_unstable();
        let three: Vec<&Wanted<'_>> = self.of_nodes().collect();
        bearable(&three, order.into_iter().map(|(_, _, node)| node), open.len())
    }

    /// A quick check. False: fewer of those nodes than needed could have what is requested, whatever else holds.
    pub(crate) fn bears(&self, request: &Request, candidates: &FixedBitSet) -> bool {
        let mut open = candidates.clone();
        self.restrict(&mut open);
        let mut rich = open.clone();
        self.restrict_to_rich(&mut rich);
        let enough = |nodes: &FixedBitSet| nodes.count_ones(..) >= request.min_nodes as usize;
        !rich.is_clear()
            && enough(&open)
            && self.of_nodes().all(|wanted| wanted.most_nodes(&open) >= u64::from(request.min_nodes))
    }

    /// Times after `after` at which what is free of those resources changes.
    pub(crate) fn changes(&self, licenses: &LicensePlan, after: Timestamp) -> Vec<Timestamp> {
        let layers = self.wanted.iter().flat_map(|wanted| &wanted.resource.layers);
        layers.flat_map(|layer| licenses.changes(&layer.name, after)).collect()
    }
}

/// The first of those nodes that their layers allow together. For one resource these are as many as possible, in any order.
fn bearable(wanted: &[&Wanted<'_>], order: impl Iterator<Item = usize>, nodes: usize) -> FixedBitSet {
    let mut left: Vec<Vec<Free>> = wanted.iter().map(|wanted| wanted.free.clone()).collect();
    let mut kept = FixedBitSet::with_capacity(nodes);
    for node in order {
        let bears = wanted.iter().zip(&left).all(|(wanted, left)| {
            let each = u64::from(wanted.count);
            let mut layers = wanted.resource.layers.iter().zip(left);
            layers.all(|(layer, free)| !layer.members.contains(node) || free.is_none_or(|free| each <= free))
        });
        if !bears {
            continue;
        }
        kept.insert(node);
        for (wanted, left) in wanted.iter().zip(&mut left) {
            for (layer, free) in wanted.resource.layers.iter().zip(left) {
                if let Some(free) = free.as_mut().filter(|_| layer.members.contains(node)) {
                    *free -= u64::from(wanted.count);
                }
            }
        }
    }
    kept
}

fn is_named(request: &Request, node: usize) -> bool {
    request.nodelist.iter().any(|index| index.0 as usize == node)
}

/// Indices of nodes.
pub fn places(nodes: &[AllocatedNode]) -> Vec<usize> {
    nodes.iter().map(|node| node.index.0 as usize).collect()
}

/// Most runs of neighbours that are tried for one request; each is a search of its own.
const MOST_WINDOWS: usize = 256;
/// Most nodes of layers with enough that are tried as one of the job's nodes.
const MOST_FORCED: usize = 16;

/// Nodes for the request out of `candidates` such that every layer of its resources has enough; as `select::place_within` if
/// `room` is `None`.
pub fn place(
    machine: &Machine<'_>,
    request: &Request,
    candidates: &FixedBitSet,
    bound: Option<Bound<'_>>,
    room: Option<&Room<'_>>,
) -> Option<Vec<AllocatedNode>> {
    sizes::of_sizes(request, &|request| place_sized(machine, request, candidates, bound, room))
}

fn place_sized(
    machine: &Machine<'_>,
    request: &Request,
    candidates: &FixedBitSet,
    bound: Option<Bound<'_>>,
    room: Option<&Room<'_>>,
) -> Option<Vec<AllocatedNode>> {
    let Some(room) = room else { return select::place_within(machine, request, candidates, bound) };
    let mut wide = candidates.clone();
    room.restrict(&mut wide);
    let fits = |nodes: &Vec<AllocatedNode>| room.share(&places(nodes)).is_some();
    let ever = room.ever(candidates);
    let thin = |open: &FixedBitSet| room.thin(open, machine, request, bound);
    let besides = Besides { fits: &fits, thin: &thin };
    let among = |open: &FixedBitSet| select::place_some(machine, request, (&ever, open), bound, besides);
    let mut rich = wide.clone();
    room.restrict_to_rich(&mut rich);
    if let Some(nodes) = among(&rich) {
        return Some(nodes);
    }
    let thinned = |open: &FixedBitSet| among(&thin(open));
    if room.of_nodes().next().is_some()
        && let Some(nodes) = thinned(&rich).or_else(|| neighbours(request, room, &rich, &among, &thinned))
    {
        return Some(nodes);
    }
    // Only some nodes of the job have to be in a layer that has enough.
    if rich == wide {
        return None;
    }
    rich.ones().filter(|node| machine.capacity(*node, request).is_some()).take(MOST_FORCED).find_map(|node| {
        let mut nodelist = request.nodelist.clone();
        nodelist.push(NodeIndex(u32::try_from(node).ok()?));
        nodelist.sort_unstable();
        nodelist.dedup();
        if nodelist.len() > request.max_nodes as usize {
            return None;
        }
        let forced = Request { nodelist, ..request.clone() };
        let thin = |open: &FixedBitSet| room.thin(open, machine, &forced, bound);
        let besides = Besides { thin: &thin, ..besides };
        let among = |open: &FixedBitSet| select::place_some(machine, &forced, (&ever, open), bound, besides);
        among(&wide).or_else(|| among(&thin(&wide)))
    })
}

/// For requests that want nodes near each other: tries one layer, or one run of neighbours, after the other.
fn neighbours(
    request: &Request,
    room: &Room<'_>,
    open: &FixedBitSet,
    among: &dyn Fn(&FixedBitSet) -> Option<Vec<AllocatedNode>>,
    thinned: &dyn Fn(&FixedBitSet) -> Option<Vec<AllocatedNode>>,
) -> Option<Vec<AllocatedNode>> {
    if !request.contiguous && request.near.is_none() && request.mix.is_none() {
        return None;
    }
    if request.contiguous {
        let size = request.min_nodes.max(1) as usize;
        return open.ones().take(MOST_WINDOWS).find_map(|first| {
            let mut window = FixedBitSet::with_capacity(open.len());
            window.insert_range(first..first.saturating_add(size).min(open.len()));
            window.intersect_with(open);
            among(&window)
        });
    }
    room.of_nodes().find_map(|wanted| {
        wanted.resource.by_size().into_iter().find_map(|layer| {
            let mut inside = open.clone();
            inside.intersect_with(&wanted.resource.layers[layer].members);
            thinned(&inside)
        })
    })
}
