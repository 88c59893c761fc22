//! Which CPUs and GPUs of a node go together: as few sockets as possible, with CPUs near to the GPUs, as `Cores` of `gres.conf`
//! says (`--gres-flags`, `--gpus-per-socket`).

use crate::snapshot::request::is_strict;
use garrick_model::{
    gres::{
        GPU, GresAmounts, GresBinding, GresCount, GresEntry, GresPool, GresRequest, GresShare, devices_in, near_cpus,
        place_of_device,
    },
    node_shape::NodeShape,
    resources::CpuSet,
};

/// Nodes with more sockets are tried socket by socket, and then as a whole.
const MOST_SOCKETS: usize = 8;

/// What is requested of a node.
pub struct Wanted<'w> {
    /// The request.
    pub gres: &'w GresRequest,
    /// Generic resources on this node.
    pub need: Vec<GresCount>,
    /// CPUs.
    pub cpus: u32,
}

/// Does it matter which CPUs are given with which GPUs of such a node?
pub fn matters(shape: &NodeShape, gres: &GresRequest) -> bool {
    let bound = |entry: &GresEntry| entry.name == GPU && entry.places.iter().any(|place| !place.cpus.is_empty());
    let asked = gres.all().any(|one| one.name == GPU && one.count > 0);
    asked && gres.binding != Some(GresBinding::Disable) && (is_strict(gres) || shape.gres.iter().any(bound))
}

/// CPUs and generic resources out of the free ones; `None`: too few, or not near to each other where that is required.
pub fn choose(
    shape: &NodeShape,
    free: &CpuSet,
    pool: &GresPool,
    wanted: &Wanted<'_>,
    bound: Option<&GresAmounts>,
) -> Option<(CpuSet, Vec<GresShare>)> {
    let sockets: Vec<CpuSet> =
        shape.sockets_cpus().map(|cpus| cpus.filter(|cpu| free.contains(*cpu)).collect()).collect();
    let among = |only_near: bool| {
        combinations(sockets.len()).find_map(|chosen| {
            let own: Vec<&CpuSet> = chosen.iter().map(|at| &sockets[*at]).collect();
            on_sockets(shape, &own, pool, (wanted, only_near), bound)
        })
    };
    // Without `Cores`, all CPUs are near.
    let must = wanted.gres.binding == Some(GresBinding::Enforce);
    among(true).or_else(|| if must { None } else { among(false) })
}

/// Sets of sockets to try, by index, small sets first.
fn combinations(sockets: usize) -> impl Iterator<Item = Vec<usize>> {
    let of_mask = move |mask: usize| (0..sockets).filter(|at| mask >> at & 1 == 1).collect::<Vec<usize>>();
    let mut all: Vec<Vec<usize>> = if sockets <= MOST_SOCKETS {
        (1..1usize << sockets).map(of_mask).collect()
    } else {
        (0..sockets).map(|at| vec![at]).chain([(0..sockets).collect()]).collect()
    };
    all.sort_by_key(Vec::len);
    all.into_iter()
}

/// GPUs near to some of these CPUs.
fn gpus_near(entries: &[GresEntry], cpus: &CpuSet) -> CpuSet {
    let all: u64 = entries.iter().filter(|entry| entry.name == GPU).map(|entry| entry.count).sum();
    let is_near = |gpu: &u32| {
        let near = place_of_device(entries, GPU, *gpu).map(|place| &place.cpus);
        near.is_none_or(|near| near.is_empty() || !near.is_disjoint(cpus))
    };
    (0..u32::try_from(all).unwrap_or(0)).filter(is_near).collect()
}

fn on_sockets(
    shape: &NodeShape,
    sockets: &[&CpuSet],
    pool: &GresPool,
    (wanted, only_near): (&Wanted<'_>, bool),
    bound: Option<&GresAmounts>,
) -> Option<(CpuSet, Vec<GresShare>)> {
    let entries = &shape.gres;
    let mut all = CpuSet::new();
    sockets.iter().for_each(|cpus| all.add(cpus));
    if all.len() < wanted.cpus {
        return None;
    }
    let mut gpus = gpus_near(entries, &all);
    let per_socket = &wanted.gres.per_socket;
    if !per_socket.is_empty() {
        if sockets.len() != wanted.gres.sockets.unwrap_or(1) as usize {
            return None;
        }
        let mut chosen = CpuSet::new();
        for cpus in sockets {
            let near = gpus_near(entries, cpus).difference(&chosen);
            let shares = pool.choose_among(entries, per_socket, bound, Some(&near))?;
            chosen.add(&devices_in(&shares, GPU));
        }
        gpus = chosen;
    }
    let shares = pool.choose_among(entries, &wanted.need, bound, Some(&gpus))?;
    // GPUs that are not chosen keep the CPUs that come with them.
    let devices = devices_in(&shares, GPU);
    all.subtract(&shape.cpus_of_gpus(|gpu| !devices.contains(gpu)));
    if all.len() < wanted.cpus {
        return None;
    }
    let mut first = CpuSet::new();
    if !per_socket.is_empty() {
        for cpus in sockets {
            // There is a CPU for the GPUs of each socket.
            first.insert(cpus.intersection(&all).first()?);
        }
    }
    let own = all.intersection(&shape.cpus_of_gpus(|gpu| devices.contains(gpu)));
    let near = match near_cpus(entries, GPU, &devices) {
        Some(near) => all.intersection(&near),
        None => all.clone(),
    };
    if only_near && near.len() < wanted.cpus {
        return None;
    }
    let order = first.iter().chain(own.iter()).chain(near.iter()).chain(all.iter());
    let mut cpus = CpuSet::new();
    for cpu in order {
        if cpus.len() >= wanted.cpus {
            break;
        }
        cpus.insert(cpu);
    }
    Some((cpus, shares))
}
