//! Decides about reservations: which nodes a new one gets, what a change comes to, when one moves on to its next time or is
//! over. Nodes that are named may be refused, those that are only counted are chosen.

use crate::scheduler::facts::in_service;
use garrick_model::{
    refusal::Refusal,
    reservation::{AccessList, NodesWanted, RECURRING, Reservation, ReservationChange, ReservationFlag},
    time::Timestamp,
    view::{NodeView, PartitionView},
};
use jiff::tz::TimeZone;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// Times of a recurring reservation that are compared with others. Two that come again and again meet within these or
/// never, but for odd lengths.
const TIMES_COMPARED: usize = 400;

/// What decisions are made from.
pub struct Site<'a> {
    /// Nodes, in configuration order.
    pub nodes: &'a [Arc<NodeView>],
    /// Partitions.
    pub partitions: &'a [Arc<PartitionView>],
    /// Zone in which days begin.
    pub zone: &'a TimeZone,
    /// Time.
    pub now: Timestamp,
}

/// What changed: a reservation as it is now, or that it is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    /// Name.
    pub name: String,
    /// As it is now.
    pub saved: Option<Reservation>,
}

/// All reservations.
#[derive(Clone, Debug, Default)]
pub struct ReservationsCore {
    known: BTreeMap<String, Reservation>,
}

impl ReservationsCore {
    /// As saved.
    pub fn new(saved: BTreeMap<String, Reservation>) -> Self {
        Self { known: saved }
    }

    /// In name order.
    pub fn list(&self) -> impl Iterator<Item = &Reservation> {
        self.known.values()
    }

    /// Makes one. `by` is who asks, for a name where none is given.
    pub fn create(&mut self, site: &Site<'_>, by: &str, change: &ReservationChange) -> Result<Changed, Refusal> {
        let name = match &change.name {
            Some(name) if self.known.contains_key(name) => return Err(Refusal::ReservationExists(name.clone())),
            Some(name) => name.clone(),
            None => self.fresh_name(by, change),
        };
        let missing = |what: &str| Refusal::InvalidUpdate(format!("{what}. No reservation created."));
        if change.start.is_none() {
            return Err(missing("A start time must be specified (StartTime=)"));
        }
        if change.end.is_none() && change.duration_secs.is_none() {
            return Err(missing("An end time or duration must be specified (EndTime= or Duration=)"));
        }
        if change.nodes.is_none() {
            return Err(missing("Nodes= or NodeCnt= must be specified"));
        }
        if [&change.users, &change.accounts].into_iter().flatten().all(AccessList::is_empty) {
            return Err(missing("Either Users and/or Accounts must be specified"));
        }
        let new = Reservation { name, ..Reservation::default() };
        self.settle(site, new, change)
    }

    /// Changes one.
    pub fn update(&mut self, site: &Site<'_>, change: &ReservationChange) -> Result<Changed, Refusal> {
        let name = change.name.clone().unwrap_or_default();
        let old = self.known.get(&name).cloned().ok_or(Refusal::InvalidReservation(name))?;
        self.settle(site, old, change)
    }

    /// Ends one. Jobs that run in it go on.
    pub fn delete(&mut self, name: &str) -> Result<Changed, Refusal> {
        match self.known.remove(name) {
            Some(_) => Ok(Changed { name: name.to_owned(), saved: None }),
            None => Err(Refusal::InvalidReservation(name.to_owned())),
        }
    }

    /// Moves on what comes again, and forgets what is over.
    pub fn tick(&mut self, now: Timestamp, zone: &TimeZone) -> Vec<Changed> {
        let over: Vec<String> = self.known.values().filter(|r| r.end <= now).map(|r| r.name.clone()).collect();
        over.into_iter()
            .map(|name| {
                let next = self.known.remove(&name).and_then(|r| r.as_of(now, zone));
                if let Some(next) = &next {
                    self.known.insert(name.clone(), next.clone());
                }
                Changed { name, saved: next }
            })
            .collect()
    }

    /// When something begins or ends next.
    pub fn next_change(&self, now: Timestamp) -> Option<Timestamp> {
        self.known.values().flat_map(|r| [r.start, r.end]).filter(|at| *at > now).min()
    }

    fn fresh_name(&self, by: &str, change: &ReservationChange) -> String {
        let first = |list: &Option<AccessList>| list.as_ref().and_then(|l| l.names.first().cloned());
        let stem = first(&change.accounts).or_else(|| first(&change.users)).unwrap_or_else(|| by.to_owned());
        let mut number = 1u32;
        loop {
            let name = format!("{stem}_{number}");
            if !self.known.contains_key(&name) {
                return name;
            }
            number += 1;
        }
    }

    /// The change applied, checked and kept.
    fn settle(
        &mut self,
        site: &Site<'_>,
        mut new: Reservation,
        change: &ReservationChange,
    ) -> Result<Changed, Refusal> {
        let before = self.known.get(&new.name).cloned();
        new.flags.extend(&change.set);
        new.flags.retain(|flag| !change.clear.contains(flag));
        if RECURRING.iter().filter(|flag| new.has(**flag)).count() > 1 {
            let said = "only one of the flags HOURLY, DAILY, WEEKDAY, WEEKEND and WEEKLY can be set".to_owned();
            return Err(Refusal::InvalidUpdate(said));
        }
        times(site.now, &mut new, change)?;
        let text = |old: &mut Option<String>, new: &Option<String>| {
            if let Some(new) = new {
                *old = Some(new.clone()).filter(|text| !text.is_empty());
            }
        };
        text(&mut new.partition, &change.partition);
        text(&mut new.features, &change.features);
        text(&mut new.comment, &change.comment);
        if let Some(users) = &change.users {
            new.users = users.clone();
        }
        if let Some(accounts) = &change.accounts {
            new.accounts = accounts.clone();
        }
        if new.users.is_empty() && new.accounts.is_empty() {
            return Err(Refusal::InvalidUpdate("a reservation without Users and Accounts is for nobody".to_owned()));
        }
        let moved =
            before.as_ref().is_none_or(|old| (old.start, old.end, &old.flags) != (new.start, new.end, &new.flags));
        let asked = change.nodes.clone().or_else(|| {
            // The nodes that it has must be free at its new times too.
            moved.then(|| NodesWanted::Named(new.nodes.clone()))
        });
        if let Some(wanted) = asked {
            let named = matches!(wanted, NodesWanted::Named(_)) && change.nodes.is_some();
            let all = wanted == NodesWanted::All;
            new.nodes = self.nodes(site, &new, before.as_ref(), wanted)?;
            if change.nodes.is_some() {
                new.flags.remove(&ReservationFlag::SpecNodes);
                new.flags.remove(&ReservationFlag::AllNodes);
                new.flags.extend((named || all).then_some(ReservationFlag::SpecNodes));
                new.flags.extend(all.then_some(ReservationFlag::AllNodes));
            }
        }
        let own: BTreeSet<&str> = new.nodes.iter().map(String::as_str).collect();
        let shapes = site.nodes.iter().filter(|node| own.contains(node.name.as_str())).map(|node| &node.shape);
        (new.cores, new.cpus) = shapes.fold((0, 0), |(cores, cpus), shape| {
            (cores + shape.cpus / shape.cpus_per_core().max(1), cpus + shape.cpus)
        });
        self.known.insert(new.name.clone(), new.clone());
        Ok(Changed { name: new.name.clone(), saved: Some(new) })
    }

    /// Nodes for it, in configuration order.
    fn nodes(
        &self,
        site: &Site<'_>,
        new: &Reservation,
        before: Option<&Reservation>,
        wanted: NodesWanted,
    ) -> Result<Vec<String>, Refusal> {
        let members: Option<BTreeSet<u32>> = match &new.partition {
            None => None,
            Some(name) => {
                let found = site.partitions.iter().find(|p| p.config.name == *name);
                let partition = found.ok_or_else(|| Refusal::InvalidPartition(name.clone()))?;
                Some(partition.nodes.iter().map(|n| n.0).collect())
            }
        };
        let usable = |node: &NodeView| {
            members.as_ref().is_none_or(|m| m.contains(&node.index.0))
                && new
                    .features
                    .as_ref()
                    .is_none_or(|text| text.split('&').all(|f| node.features.iter().any(|n| n == f)))
        };
        let others: Vec<&Reservation> = self.known.values().filter(|r| r.name != new.name).collect();
        let free = |node: &NodeView| {
            let kept = before.is_some_and(|old| old.nodes.contains(&node.name));
            self.is_clear(site, new, &others, &node.name) && (kept || is_idle(site.now, new, node))
        };
        match wanted {
            NodesWanted::All => {
                let all: Vec<&Arc<NodeView>> = site.nodes.iter().filter(|node| usable(node)).collect();
                if all.is_empty() {
                    return Err(Refusal::NodeConfigUnavailable { detail: None });
                }
                if all.iter().all(|node| free(node)) {
                    Ok(all.into_iter().map(|node| node.name.clone()).collect())
                } else {
                    Err(Refusal::Busy)
                }
            }
            NodesWanted::Named(names) => {
                let named: BTreeSet<&str> = names.iter().map(String::as_str).collect();
                if named.is_empty() {
                    return Err(Refusal::BadNodeCount);
                }
                if let Some(unknown) = named.iter().find(|name| !site.nodes.iter().any(|n| n.name == ***name)) {
                    return Err(Refusal::InvalidNode((*unknown).to_owned()));
                }
                let chosen: Vec<&Arc<NodeView>> =
                    site.nodes.iter().filter(|node| named.contains(node.name.as_str())).collect();
                if !chosen.iter().all(|node| usable(node)) {
                    return Err(Refusal::NodeConfigUnavailable { detail: None });
                }
                if !chosen.iter().all(|node| free(node)) {
                    return Err(Refusal::Busy);
                }
                Ok(chosen.into_iter().map(|node| node.name.clone()).collect())
            }
            NodesWanted::Count(0) => Err(Refusal::BadNodeCount),
            NodesWanted::Count(count) => {
                // What was not asked for by name comes from one partition.
                let default = site.partitions.iter().find(|p| p.config.default);
                let of_default =
                    |node: &NodeView| members.is_some() || default.is_none_or(|p| p.nodes.contains(&node.index));
                let could: Vec<&Arc<NodeView>> =
                    site.nodes.iter().filter(|node| usable(node) && of_default(node)).collect();
                if (could.len() as u64) < u64::from(count) {
                    return Err(Refusal::NodeConfigUnavailable { detail: None });
                }
                let mut open: Vec<&Arc<NodeView>> =
                    could.into_iter().filter(|node| in_service(node) && free(node)).collect();
                let kept = |node: &NodeView| before.is_some_and(|old| old.nodes.contains(&node.name));
                // Those that it has already, then idle ones, then those of low weight.
                open.sort_by_key(|node| (!kept(node), !node.holds.is_empty(), node.weight, node.index));
                open.truncate(count as usize);
                if (open.len() as u64) < u64::from(count) {
                    return Err(Refusal::Busy);
                }
                open.sort_by_key(|node| node.index);
                Ok(open.into_iter().map(|node| node.name.clone()).collect())
            }
        }
    }

    /// Has nobody else reserved the node at any of its times?
    fn is_clear(&self, site: &Site<'_>, new: &Reservation, others: &[&Reservation], node: &str) -> bool {
        let may_share = |r: &Reservation| r.has(ReservationFlag::Overlap) || r.has(ReservationFlag::Maint);
        if may_share(new) {
            return true;
        }
        let mut in_the_way = others.iter().filter(|r| !may_share(r) && r.nodes.iter().any(|n| n == node)).peekable();
        if in_the_way.peek().is_none() {
            return true;
        }
        let own = new.times(site.now, TIMES_COMPARED, site.zone);
        !in_the_way.any(|other| meet(&own, &other.times(site.now, TIMES_COMPARED, site.zone)))
    }
}

/// Do any two of these times overlap? Both are in order.
fn meet(ours: &[(Timestamp, Timestamp)], theirs: &[(Timestamp, Timestamp)]) -> bool {
    let (mut a, mut b) = (ours.iter().peekable(), theirs.iter().peekable());
    while let (Some((from, until)), Some((since, till))) = (a.peek(), b.peek()) {
        if from < till && since < until {
            return true;
        }
        if until <= till {
            a.next();
        } else {
            b.next();
        }
    }
    false
}

/// Is nobody there who stays beyond its begin?
fn is_idle(now: Timestamp, new: &Reservation, node: &NodeView) -> bool {
    let ignores = new.has(ReservationFlag::IgnoreJobs) || new.has(ReservationFlag::Maint);
    let start = new.start.max(now);
    ignores || node.holds.iter().all(|hold| hold.expected_end.is_some_and(|end| end <= start))
}

/// Begin and end, from what of both and of the length is given.
fn times(now: Timestamp, new: &mut Reservation, change: &ReservationChange) -> Result<(), Refusal> {
    let length = new.end.since(new.start);
    let is_new = new.end == Timestamp::default();
    if let Some(start) = change.start {
        new.start = start;
    }
    match (change.end, change.duration_secs) {
        (Some(end), None) => new.end = end,
        (None, Some(secs)) => new.end = new.start.plus(Duration::from_secs(secs)),
        (Some(end), Some(secs)) if new.start.plus(Duration::from_secs(secs)) == end => new.end = end,
        (Some(_), Some(_)) => {
            return Err(Refusal::InvalidUpdate("EndTime and Duration contradict each other".to_owned()));
        }
        (None, None) if change.start.is_some() => new.end = new.start.plus(length),
        (None, None) => {}
    }
    // A minute ago is now to somebody who types; longer ago is not.
    let late = is_new && new.start.plus(Duration::from_secs(60)) < now && !RECURRING.iter().any(|f| new.has(*f));
    if late || new.end <= new.start || (new.end <= now && !new.recurs()) {
        return Err(Refusal::InvalidTime);
    }
    let period = match RECURRING.iter().find(|flag| new.has(**flag)) {
        None => None,
        Some(ReservationFlag::Hourly) => Some(3600),
        Some(ReservationFlag::Weekly) => Some(7 * 86_400),
        Some(_) => Some(86_400),
    };
    match period {
        Some(secs) if new.end.since(new.start) > Duration::from_secs(secs) => {
            Err(Refusal::InvalidUpdate("the reservation is longer than the time after which it comes again".to_owned()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
#[path = "core_test.rs"]
mod tests;
