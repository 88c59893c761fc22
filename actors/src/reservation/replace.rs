//! Which nodes of reservations are replaced: those that are out of service; with `REPLACE` also those that jobs have, and with
//! `PART_NODES` those that leave the partition. Also which reservations are deleted because they are unused.

use super::{
    change::{Terms, count},
    core::{Changed, ReservationsCore, Site},
    cores::own_cores,
};
use garrick_model::{
    reservation::{Reservation, ReservationFlag},
    resources::CpuSet,
    state::NodeBase,
    view::NodeView,
};
use garrick_plan::snapshot::facts::in_service;
use std::{collections::BTreeMap, sync::Arc, time::Duration};

impl ReservationsCore {
    /// Replaces nodes by idle ones, as far as there are some. A node is removed only if another takes its place, so a reservation
    /// never gets smaller.
    pub(super) fn replace(&mut self, site: &Site<'_>) -> Vec<Changed> {
        let watched: Vec<Reservation> = self.known.values().filter(|r| is_watched(r)).cloned().collect();
        let mut changed = Vec::new();
        for mut new in watched {
            let nodes =
                if new.has(ReservationFlag::PartNodes) { members(site, &new) } else { self.replaced(site, &new) };
            if let Some(nodes) = nodes.filter(|nodes| *nodes != new.nodes) {
                follow(site, &mut new.core_ids, &nodes);
                new.nodes = nodes;
                count(site, &mut new);
                self.known.insert(new.name.clone(), new.clone());
                changed.push(Changed { name: new.name.clone(), saved: Some(new) });
            }
        }
        changed
    }

    /// Is there a reservation whose nodes or jobs have to be checked regularly?
    pub fn watches(&self) -> bool {
        self.known.values().any(|r| is_watched(r) || r.has(ReservationFlag::PurgeComp))
    }

    /// Its new nodes, in configuration order. `None`: unchanged.
    fn replaced(&self, site: &Site<'_>, old: &Reservation) -> Option<Vec<String>> {
        let places: BTreeMap<&str, &Arc<NodeView>> = site.nodes.iter().map(|n| (n.name.as_str(), n)).collect();
        let taken = old.has(ReservationFlag::Replace) && old.is_active(site.now);
        let goes = |node: &NodeView| is_gone(node) || (taken && !node.holds.is_empty());
        // A node that is not configured any more does not count.
        let (stay, mut go): (Vec<&String>, Vec<&String>) =
            old.nodes.iter().partition(|name| places.get(name.as_str()).is_some_and(|node| !goes(node)));
        if go.is_empty() {
            return None;
        }
        // Nodes that cannot work are replaced first.
        go.sort_by_key(|name| places.get(name.as_str()).is_some_and(|node| !is_gone(node)));
        let terms = Terms::of(site, old).ok()?;
        let others: Vec<&Reservation> = self.known.values().filter(|r| r.name != old.name).collect();
        let most = old.core_ids.values().map(CpuSet::len).max().unwrap_or(0);
        let comes = |node: &&Arc<NodeView>| {
            in_service(node)
                && own_cores(&node.shape).len() >= most
                && node.holds.is_empty()
                && terms.fits_counted(node)
                && !old.nodes.contains(&node.name)
                && self.is_clear(site, old, &others, &node.name)
        };
        let mut idle: Vec<&Arc<NodeView>> = site.nodes.iter().filter(comes).collect();
        idle.sort_by_key(|node| (node.weight, node.index));
        idle.truncate(go.len());
        let left = go.split_off(idle.len());
        let now: Vec<&String> = stay.into_iter().chain(left).chain(idle.into_iter().map(|n| &n.name)).collect();
        let place = |name: &str| places.get(name).map_or(u32::MAX, |node| node.index.0);
        let mut now: Vec<String> = now.into_iter().cloned().collect();
        now.sort_by_key(|name| place(name));
        Some(now)
    }

    /// Reservations with `PURGE_COMP` in which no job has run for the given time while they were active.
    pub(super) fn idle_too_long(&mut self, site: &Site<'_>) -> Vec<String> {
        let idle = |r: &&Reservation| {
            r.has(ReservationFlag::PurgeComp) && r.is_active(site.now) && !site.in_use.contains(&r.name)
        };
        let idle: Vec<&Reservation> = self.known.values().filter(idle).collect();
        let since = |r: &Reservation| self.idle_since.get(&r.name).copied().unwrap_or(site.now);
        let since: BTreeMap<String, _> = idle.iter().map(|r| (r.name.clone(), since(r))).collect();
        let allowed = |r: &Reservation| Duration::from_secs(r.purge_secs.unwrap_or_default());
        let too_long = |r: &&&Reservation| since.get(&r.name).is_some_and(|at| at.plus(allowed(r)) <= site.now);
        let purged: Vec<String> = idle.iter().filter(too_long).map(|r| r.name.clone()).collect();
        self.idle_since = since;
        self.idle_since.retain(|name, _| !purged.contains(name));
        purged
    }
}

/// In a reservation of cores, a new node gives as many cores as the one that it replaces.
fn follow(site: &Site<'_>, cores: &mut BTreeMap<String, CpuSet>, nodes: &[String]) {
    if cores.is_empty() {
        return;
    }
    let gone: Vec<String> = cores.keys().filter(|name| !nodes.contains(name)).cloned().collect();
    let counts: Vec<u32> = gone.iter().filter_map(|name| cores.remove(name)).map(|cores| cores.len()).collect();
    let come = site.nodes.iter().filter(|node| nodes.contains(&node.name));
    let come: Vec<&Arc<NodeView>> = come.filter(|node| !cores.contains_key(&node.name)).collect();
    for (node, count) in come.into_iter().zip(counts) {
        cores.insert(node.name.clone(), own_cores(&node.shape).take(count));
    }
}

/// Is it down or drained? Nodes that have not responded for a while, or not since the controller started, do not count: they may
/// be back at once.
fn is_gone(node: &NodeView) -> bool {
    node.base == NodeBase::Down || node.flags.is_held_back()
}

/// Counted nodes are replaced when they are out of service, unless they are static.
fn is_watched(reservation: &Reservation) -> bool {
    let named = reservation.has(ReservationFlag::SpecNodes) || reservation.has(ReservationFlag::AllNodes);
    let counted = !named && !reservation.nodes.is_empty() && !reservation.has(ReservationFlag::Static);
    let down = reservation.has(ReservationFlag::ReplaceDown) && !reservation.nodes.is_empty();
    counted || down || reservation.has(ReservationFlag::PartNodes)
}

/// Nodes of its partition as that is now.
fn members(site: &Site<'_>, reservation: &Reservation) -> Option<Vec<String>> {
    let terms = Terms::of(site, reservation).ok()?;
    let nodes: Vec<String> = site.nodes.iter().filter(|n| terms.fits(n)).map(|n| n.name.clone()).collect();
    Some(nodes).filter(|nodes| !nodes.is_empty())
}
