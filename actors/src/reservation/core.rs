//! Decides about reservations: which nodes a new one gets, the result of a change, when one moves on to its next time or is over.
//! A request for named nodes may be refused; nodes that are only counted are chosen.

use super::{
    change::{Terms, count, float, people, settled, source, special, times},
    owner::ReservationAsk,
};
use garrick_model::{
    refusal::Refusal,
    reservation::{AccessList, NodesWanted, RECURRING, Reservation, ReservationChange, ReservationFlag},
    time::Timestamp,
    view::{NodeView, PartitionView},
};
use garrick_plan::snapshot::facts::in_service;
use jiff::tz::TimeZone;
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

/// Times of a recurring reservation that are compared with others. Two recurring reservations overlap within these or never,
/// except for unusual lengths.
pub(super) const TIMES_COMPARED: usize = 400;

/// The input of decisions.
pub struct Site<'a> {
    /// Nodes, in configuration order.
    pub nodes: &'a [Arc<NodeView>],
    /// Partitions.
    pub partitions: &'a [Arc<PartitionView>],
    /// Total of each license.
    pub licenses: &'a BTreeMap<String, u32>,
    /// Names of reservations in which jobs have resources.
    pub in_use: &'a BTreeSet<String>,
    /// Names of reservations that waiting jobs request.
    pub awaited: &'a BTreeSet<String>,
    /// Names of reservations with jobs that have not been told that their time is over.
    pub unaware: &'a BTreeSet<String>,
    /// `ResvOverRun`; `None`: jobs stay as long as they like.
    pub over_run: Option<Duration>,
    /// Zone in which days begin.
    pub zone: &'a TimeZone,
    /// Time.
    pub now: Timestamp,
}

/// A change: a reservation's new state, or its deletion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    /// Name.
    pub name: String,
    /// The new state; `None`: deleted.
    pub saved: Option<Reservation>,
}

/// All reservations.
#[derive(Clone, Debug, Default)]
pub struct ReservationsCore {
    pub(super) known: BTreeMap<String, Reservation>,
    /// Since when reservations with `PURGE_COMP` have been seen idle.
    pub(super) idle_since: BTreeMap<String, Timestamp>,
    /// Requests to be decided when the views have been read.
    pub(super) asked: VecDeque<(u64, ReservationAsk)>,
    /// When they were last read.
    pub(super) looked: Timestamp,
}

impl ReservationsCore {
    /// As saved.
    pub fn new(saved: BTreeMap<String, Reservation>) -> Self {
        Self { known: saved, ..Self::default() }
    }

    /// In name order.
    pub fn list(&self) -> impl Iterator<Item = &Reservation> {
        self.known.values()
    }

    /// Creates one. `by` is the requester, whose name is used if no name is given.
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
        let mut change = change.clone();
        // All nodes of the partition, unless fewer are requested.
        if change.nodes.is_none()
            && change.cores.is_none()
            && change.partition.as_deref().is_some_and(|p| !p.is_empty())
        {
            let any = change.set.contains(&ReservationFlag::AnyNodes);
            change.nodes = (!any).then_some(NodesWanted::All);
        }
        let change = &change;
        if change.nodes.is_none() && change.cores.is_none() && !change.set.contains(&ReservationFlag::AnyNodes) {
            return Err(missing("Nodes=, NodeCnt= or CoreCnt= must be specified, or Licenses= with Flags=ANY_NODES"));
        }
        let lists = [&change.users, &change.accounts, &change.qos, &change.partitions];
        let no_groups = change.groups.as_ref().is_none_or(Vec::is_empty);
        if no_groups && lists.into_iter().flatten().all(AccessList::is_empty) {
            return Err(missing("Either Users/Groups and/or Accounts must be specified"));
        }
        let new = Reservation { name, ..Reservation::default() };
        self.settle(site, new, change)
    }

    /// Changes one.
    pub fn update(&mut self, site: &Site<'_>, change: &ReservationChange) -> Result<Changed, Refusal> {
        let name = change.name.clone().unwrap_or_default();
        let old = self.known.get(&name).ok_or(Refusal::InvalidReservation(name))?;
        let mut old =
            if old.floating.is_some() { old.as_of(site.now, site.zone) } else { None }.unwrap_or_else(|| old.clone());
        if change.skip {
            let said = "only a reservation that comes again can be skipped".to_owned();
            old = old.next(site.zone).ok_or(Refusal::InvalidUpdate(said))?;
        }
        self.settle(site, old, change)
    }

    /// Deletes one that no job is in or waits for.
    pub fn delete(&mut self, site: &Site<'_>, name: &str) -> Result<Changed, Refusal> {
        if self.known.contains_key(name) && (site.in_use.contains(name) || site.awaited.contains(name)) {
            return Err(Refusal::ReservationBusy(name.to_owned()));
        }
        match self.known.remove(name) {
            Some(_) => Ok(Changed { name: name.to_owned(), saved: None }),
            None => Err(Refusal::InvalidReservation(name.to_owned())),
        }
    }

    /// Moves recurring ones on, removes those that are over or were idle for too long, and replaces nodes.
    pub fn tick(&mut self, site: &Site<'_>) -> Vec<Changed> {
        let mut changed = self.replace(site);
        for name in self.idle_too_long(site) {
            changed.push(self.move_on(name, |r| r.next(site.zone)));
        }
        let waits = |r: &Reservation| self.releases(r, site) || dismisses(r, site);
        let over = self.known.values().filter(|r| r.is_over(site.now) && !waits(r));
        for name in over.map(|r| r.name.clone()).collect::<Vec<_>>() {
            changed.push(self.move_on(name, |r| r.as_of(site.now, site.zone)));
        }
        changed
    }

    /// Notes of those whose time has come that they have begun.
    pub fn begin(&mut self, now: Timestamp) -> Vec<Changed> {
        let begins = |r: &&mut Reservation| !r.begun && r.floating.is_none() && r.start <= now && now < r.end;
        let begun = self.known.values_mut().filter(begins).map(|reservation| {
            reservation.begun = true;
            Changed { name: reservation.name.clone(), saved: Some(reservation.clone()) }
        });
        begun.collect()
    }

    fn move_on(&mut self, name: String, next: impl Fn(&Reservation) -> Option<Reservation>) -> Changed {
        let next = self.known.remove(&name).and_then(|r| next(&r));
        if let Some(next) = &next {
            self.known.insert(name.clone(), next.clone());
        }
        Changed { name, saved: next }
    }

    /// Is it over, except for jobs that still have to wait without it? It stays until there are none.
    fn releases(&self, reservation: &Reservation, site: &Site<'_>) -> bool {
        reservation.is_over(site.now)
            && reservation.has(ReservationFlag::NoHoldJobsAfter)
            && !reservation.recurs()
            && site.awaited.contains(&reservation.name)
    }

    /// Reservations for which jobs no longer wait.
    pub fn released(&self, site: &Site<'_>) -> BTreeSet<String> {
        self.known.values().filter(|r| self.releases(r, site)).map(|r| r.name.clone()).collect()
    }

    /// Reservations whose time is over, and when the jobs in them end at the latest.
    pub fn dismissed(&self, site: &Site<'_>) -> BTreeMap<String, Timestamp> {
        let over = self.known.values().filter(|r| dismisses(r, site));
        over.filter_map(|r| Some((r.name.clone(), r.end.plus(site.over_run?)))).collect()
    }

    /// When something begins or ends next.
    pub fn next_change(&self, now: Timestamp) -> Option<Timestamp> {
        let purged = self
            .idle_since
            .iter()
            .filter_map(|(name, since)| Some(since.plus(Duration::from_secs(self.known.get(name)?.purge_secs?))));
        self.known.values().flat_map(|r| [r.start, r.end]).chain(purged).filter(|at| *at > now).min()
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

    /// The reservation after the change, checked and stored.
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
        float(site.now, before.as_ref(), &mut new, change)?;
        // One that is put off begins again.
        new.begun &= new.start <= site.now;
        for (old, new) in [
            (&mut new.partition, &change.partition),
            (&mut new.features, &change.features),
            (&mut new.comment, &change.comment),
        ] {
            if let Some(new) = new {
                *old = Some(new.clone()).filter(|text| !text.is_empty());
            }
        }
        people(&mut new, change)?;
        let wishes_nodes = change.nodes.is_some() || change.cores.is_some();
        special(&mut new, wishes_nodes, change)?;
        let times = |r: &Reservation| (r.floating.is_none().then_some((r.start, r.end)), r.floating);
        let moved = before.as_ref().is_none_or(|old| (times(old), &old.flags) != (times(&new), &new.flags));
        let asked = change.nodes.clone().or_else(|| {
            // Its nodes must be free at its new times too.
            let has = moved && !new.nodes.is_empty();
            has.then(|| NodesWanted::Named(new.nodes.clone()))
        });
        let asked = asked.map(|wanted| settled(&new, wanted)).transpose()?;
        let counted = matches!(asked, Some(NodesWanted::Count(_))) || (asked.is_none() && change.cores.is_some());
        // Named nodes may be of any partition, unless one is given with them.
        let free = matches!(asked, Some(NodesWanted::Named(_))) && change.partition.is_none();
        let aside = if free { new.partition.take() } else { None };
        if !free {
            let counted = counted && !new.has(ReservationFlag::SpecNodes);
            source(site, &mut new, counted);
        }
        if change.cores.is_some() || !new.core_ids.is_empty() {
            self.settle_cores(site, &mut new, change, asked.as_ref())?;
        } else if let Some(wanted) = asked {
            // Adding to or removing from chosen nodes is a choice too.
            let counts = matches!(change.nodes, Some(NodesWanted::More(_) | NodesWanted::Fewer(_)));
            let named = matches!(wanted, NodesWanted::Named(_)) && change.nodes.is_some() && !counts;
            let all = wanted == NodesWanted::All;
            new.nodes = self.nodes(site, &new, before.as_ref(), wanted)?;
            if change.nodes.is_some() {
                say_how(&mut new, named, all);
            }
        }
        new.partition = new.partition.or(aside);
        source(site, &mut new, false);
        check_flags(&new)?;
        self.check_licenses(site, &new)?;
        count(site, &mut new);
        self.known.insert(new.name.clone(), new.clone());
        Ok(Changed { name: new.name.clone(), saved: Some(new) })
    }

    /// The same for a reservation of cores.
    fn settle_cores(
        &self,
        site: &Site<'_>,
        new: &mut Reservation,
        change: &ReservationChange,
        asked: Option<&NodesWanted>,
    ) -> Result<(), Refusal> {
        let wrong = |said: &str| Err(Refusal::InvalidUpdate(said.to_owned()));
        if new.has(ReservationFlag::PartNodes) || new.has(ReservationFlag::AnyNodes) {
            return wrong("CoreCnt= does not go with PART_NODES or ANY_NODES");
        }
        let Some(cores) = &change.cores else {
            if change.nodes.is_some() {
                return wrong("the reservation is one of cores: CoreCnt= must be given with its nodes");
            }
            return if asked.is_none() || self.are_clear(site, new) { Ok(()) } else { Err(Refusal::Busy) };
        };
        let same = (asked.is_none() && !new.nodes.is_empty()).then(|| NodesWanted::Named(new.nodes.clone()));
        new.core_ids = self.cores(site, new, asked.or(same.as_ref()), cores)?;
        let own = |node: &&Arc<NodeView>| new.core_ids.contains_key(&node.name);
        new.nodes = site.nodes.iter().filter(own).map(|node| node.name.clone()).collect();
        if change.nodes.is_some() {
            let all = change.nodes == Some(NodesWanted::All);
            say_how(new, matches!(asked, Some(NodesWanted::Named(_))), all);
        }
        Ok(())
    }

    /// Nodes for it, in configuration order.
    fn nodes(
        &self,
        site: &Site<'_>,
        new: &Reservation,
        before: Option<&Reservation>,
        wanted: NodesWanted,
    ) -> Result<Vec<String>, Refusal> {
        let terms = Terms::of(site, new)?;
        let usable = |node: &NodeView| terms.fits(node);
        let others: Vec<&Reservation> = self.known.values().filter(|r| r.name != new.name).collect();
        let free = |node: &NodeView| {
            let kept = before.is_some_and(|old| old.nodes.contains(&node.name));
            self.is_clear(site, new, &others, &node.name) && (kept || is_idle(site.now, new, node))
        };
        let named = |nodes: Vec<&Arc<NodeView>>| Ok(nodes.into_iter().map(|node| node.name.clone()).collect());
        let unavailable = || Err(Refusal::NodeConfigUnavailable { detail: None });
        match wanted {
            NodesWanted::All => {
                let all: Vec<&Arc<NodeView>> = site.nodes.iter().filter(|node| usable(node)).collect();
                match all.iter().all(|node| free(node)) {
                    _ if all.is_empty() => unavailable(),
                    true => named(all),
                    false => Err(Refusal::Busy),
                }
            }
            NodesWanted::Named(names) => {
                let chosen = self::named(site, &names)?;
                match chosen.iter().all(|node| free(node)) {
                    _ if !chosen.iter().all(|node| usable(node)) => unavailable(),
                    true => named(chosen),
                    false => Err(Refusal::Busy),
                }
            }
            NodesWanted::Count(0) => Err(Refusal::BadNodeCount),
            NodesWanted::Count(count) => {
                let could: Vec<&Arc<NodeView>> = site.nodes.iter().filter(|node| terms.fits_counted(node)).collect();
                if could.len() < count as usize {
                    return unavailable();
                }
                let mut open: Vec<&Arc<NodeView>> =
                    could.into_iter().filter(|node| in_service(node) && free(node)).collect();
                let kept = |node: &NodeView| before.is_some_and(|old| old.nodes.contains(&node.name));
                // Nodes that it has already, then idle ones, then those of low weight.
                open.sort_by_key(|node| (!kept(node), !node.holds.is_empty(), node.weight, node.index));
                open.truncate(count as usize);
                if open.len() < count as usize {
                    return Err(Refusal::Busy);
                }
                open.sort_by_key(|node| node.index);
                named(open)
            }
            // Handled before.
            NodesWanted::With(_) | NodesWanted::Without(_) | NodesWanted::More(_) | NodesWanted::Fewer(_) => {
                Err(Refusal::BadNodeCount)
            }
        }
    }

    /// Do the licenses exist, and do other reservations leave enough at all of its times?
    fn check_licenses(&self, site: &Site<'_>, new: &Reservation) -> Result<(), Refusal> {
        if new.licenses.is_empty() {
            return Ok(());
        }
        if new.licenses.0.iter().any(|l| site.licenses.get(&l.name).is_none_or(|total| *total < l.count)) {
            return Err(Refusal::InvalidLicense(new.licenses.to_string()));
        }
        let own = new.times(site.now, TIMES_COMPARED, site.zone);
        let others = self.known.values().filter(|r| r.name != new.name && !r.licenses.is_empty());
        let others: Vec<(&Reservation, Vec<(Timestamp, Timestamp)>)> =
            others.map(|r| (r, r.times(site.now, TIMES_COMPARED, site.zone))).collect();
        let begins = others.iter().flat_map(|(_, times)| times).chain(&own).map(|(start, _)| *start);
        let holds = |times: &[(Timestamp, Timestamp)], at| times.iter().any(|(from, until)| *from <= at && at < *until);
        for at in begins.filter(|at| holds(&own, *at)) {
            for license in &new.licenses.0 {
                let there = others.iter().filter(|(_, times)| holds(times, at));
                let taken: u64 = there.map(|(r, _)| u64::from(r.licenses.count(&license.name))).sum();
                let total = site.licenses.get(&license.name).copied().unwrap_or(0);
                if taken + u64::from(license.count) > u64::from(total) {
                    let said = format!("{} licenses {} are reserved already", taken, license.name);
                    return Err(Refusal::InvalidUpdate(said));
                }
            }
        }
        Ok(())
    }

    /// Is the node unreserved by others at all of its times?
    pub(super) fn is_clear(&self, site: &Site<'_>, new: &Reservation, others: &[&Reservation], node: &str) -> bool {
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

/// Flags that mean nothing beside others, or without them.
fn check_flags(new: &Reservation) -> Result<(), Refusal> {
    let wrong = |said: &str| Err(Refusal::InvalidUpdate(said.to_owned()));
    if new.has(ReservationFlag::FirstCores) && new.core_ids.is_empty() {
        return wrong("FIRST_CORES requires CoreCnt=");
    }
    if new.has(ReservationFlag::Replace) && new.has(ReservationFlag::SpecNodes) {
        return wrong("REPLACE is for nodes that are counted (NodeCnt=), not for those that are named");
    }
    if new.has(ReservationFlag::PartNodes) && (new.partition.is_none() || !new.has(ReservationFlag::AllNodes)) {
        return wrong("PART_NODES requires PartitionName= and Nodes=ALL");
    }
    Ok(())
}

/// The nodes of these names.
fn named<'s>(site: &Site<'s>, names: &[String]) -> Result<Vec<&'s Arc<NodeView>>, Refusal> {
    let names: BTreeSet<&str> = names.iter().map(String::as_str).collect();
    if names.is_empty() {
        return Err(Refusal::BadNodeCount);
    }
    if let Some(unknown) = names.iter().find(|name| !site.nodes.iter().any(|n| n.name == ***name)) {
        return Err(Refusal::InvalidNode((*unknown).to_owned()));
    }
    Ok(site.nodes.iter().filter(|node| names.contains(node.name.as_str())).collect())
}

/// Is it over, except for jobs in it that have not been told? It stays until they have.
fn dismisses(reservation: &Reservation, site: &Site<'_>) -> bool {
    reservation.is_over(site.now)
        && site.over_run.is_some()
        && !reservation.has(ReservationFlag::Flex)
        && site.unaware.contains(&reservation.name)
}

/// May it overlap other reservations?
pub(super) fn may_share(reservation: &Reservation) -> bool {
    reservation.has(ReservationFlag::Overlap) || reservation.has(ReservationFlag::Maint)
}

/// May its nodes have running jobs?
pub(super) fn ignores_jobs(new: &Reservation) -> bool {
    new.has(ReservationFlag::IgnoreJobs) || new.has(ReservationFlag::Maint)
}

/// Sets the flags that say how its nodes were named.
fn say_how(new: &mut Reservation, named: bool, all: bool) {
    new.flags.remove(&ReservationFlag::SpecNodes);
    new.flags.remove(&ReservationFlag::AllNodes);
    new.flags.extend((named || all).then_some(ReservationFlag::SpecNodes));
    new.flags.extend(all.then_some(ReservationFlag::AllNodes));
}

/// Do any two of these times overlap? Both are sorted.
pub(super) fn meet(ours: &[(Timestamp, Timestamp)], theirs: &[(Timestamp, Timestamp)]) -> bool {
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

/// Is the node free of jobs that stay beyond its begin?
fn is_idle(now: Timestamp, new: &Reservation, node: &NodeView) -> bool {
    let start = new.start.max(now);
    ignores_jobs(new) || node.holds.iter().all(|hold| hold.expected_end.is_some_and(|end| end <= start))
}

#[cfg(test)]
#[path = "core_test.rs"]
mod tests;
