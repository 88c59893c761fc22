//! The result of a change of a reservation, one part after the other: times, users, combinations of flags, and the nodes that it
//! may have at all.

use super::core::Site;
use garrick_model::{
    refusal::Refusal,
    reservation::{Floating, NodesWanted, PURGE_SECS, RECURRING, Reservation, ReservationChange, ReservationFlag},
    time::Timestamp,
    view::{NodeView, PartitionView},
};
use std::{collections::BTreeSet, sync::Arc, time::Duration};

/// Which nodes a reservation may have at all.
pub(super) struct Terms<'a> {
    members: Option<BTreeSet<u32>>,
    default: Option<&'a PartitionView>,
    features: Option<&'a str>,
}

impl<'a> Terms<'a> {
    pub(super) fn of(site: &Site<'a>, new: &'a Reservation) -> Result<Self, Refusal> {
        let members = match &new.partition {
            None => None,
            Some(name) => {
                let found = site.partitions.iter().find(|p| p.config.name == *name);
                let partition = found.ok_or_else(|| Refusal::InvalidPartition(name.clone()))?;
                Some(partition.nodes.iter().map(|n| n.0).collect())
            }
        };
        let default = site.partitions.iter().find(|p| p.config.default).map(|p| &**p);
        Ok(Self { members, default, features: new.features.as_deref() })
    }

    pub(super) fn fits(&self, node: &NodeView) -> bool {
        let has = |text: &str| text.split('&').all(|f| node.features.iter().any(|n| n == f));
        self.members.as_ref().is_none_or(|m| m.contains(&node.index.0)) && self.features.is_none_or(has)
    }

    /// Nodes that are not named come from one partition.
    pub(super) fn fits_counted(&self, node: &NodeView) -> bool {
        let of_default = self.members.is_some() || self.default.is_none_or(|p| p.nodes.contains(&node.index));
        of_default && self.fits(node)
    }
}

/// The partition that its nodes come from, if none is given: the first of its partitions, or the default one for counted nodes.
pub(super) fn source(site: &Site<'_>, new: &mut Reservation, counted: bool) {
    if new.partition.is_some() {
        return;
    }
    let first = new.partitions.names.first().filter(|_| !new.partitions.deny);
    let default = site.partitions.iter().find(|p| counted && p.config.default).map(|p| &p.config.name);
    new.partition = first.or(default).cloned();
}

/// Cores and CPUs of its nodes.
pub(super) fn count(site: &Site<'_>, new: &mut Reservation) {
    let own: BTreeSet<&str> = new.nodes.iter().map(String::as_str).collect();
    let of_node = |node: &Arc<NodeView>| {
        let per_core = node.shape.cpus_per_core().max(1);
        match new.core_ids.get(&node.name) {
            Some(cores) => (cores.len(), cores.len() * per_core),
            None => (node.shape.cpus / per_core, node.shape.cpus),
        }
    };
    let counts = site.nodes.iter().filter(|node| own.contains(node.name.as_str())).map(of_node);
    (new.cores, new.cpus) = counts.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
}

/// Changes of its nodes, given as names or as a number.
pub(super) fn settled(old: &Reservation, wanted: NodesWanted) -> Result<NodesWanted, Refusal> {
    let count = u32::try_from(old.nodes.len()).unwrap_or(u32::MAX);
    Ok(match wanted {
        NodesWanted::With(names) => NodesWanted::Named(old.nodes.iter().cloned().chain(names).collect()),
        NodesWanted::Without(names) => {
            if let Some(other) = names.iter().find(|name| !old.nodes.contains(name)) {
                return Err(Refusal::InvalidNode(other.clone()));
            }
            NodesWanted::Named(old.nodes.iter().filter(|name| !names.contains(name)).cloned().collect())
        }
        NodesWanted::More(more) => NodesWanted::Count(count.saturating_add(more)),
        NodesWanted::Fewer(fewer) => NodesWanted::Count(count.checked_sub(fewer).ok_or(Refusal::BadNodeCount)?),
        other => other,
    })
}

/// Users, groups, accounts and QOS.
pub(super) fn people(new: &mut Reservation, change: &ReservationChange) -> Result<(), Refusal> {
    let lists = [
        (&mut new.users, "Users", &change.users, &change.users_more, &change.users_less),
        (&mut new.accounts, "Accounts", &change.accounts, &change.accounts_more, &change.accounts_less),
        (&mut new.qos, "QOS", &change.qos, &None, &None),
        (&mut new.partitions, "AllowedPartitions", &change.partitions, &None, &None),
    ];
    for (list, key, set, more, less) in lists {
        let wrong = || Refusal::InvalidUpdate(format!("{key} cannot be changed that way: {key}={list}"));
        let with = match set.as_ref().unwrap_or(list) {
            list if more.is_some() => more.as_ref().and_then(|more| list.with(more)).ok_or_else(wrong)?,
            list => list.clone(),
        };
        *list = match less {
            Some(less) => with.without(less).ok_or_else(wrong)?,
            None => with,
        };
    }
    if let Some(groups) = &change.groups {
        new.groups.clone_from(groups);
    }
    if !new.groups.is_empty() && !new.users.is_empty() {
        return Err(Refusal::InvalidUpdate("Users and Groups are mutually exclusive".to_owned()));
    }
    if new.is_for_somebody() {
        Ok(())
    } else {
        Err(Refusal::InvalidUpdate("a reservation without Users, Groups and Accounts is for nobody".to_owned()))
    }
}

/// Valid combinations of flags.
pub(super) fn special(new: &mut Reservation, wishes_nodes: bool, change: &ReservationChange) -> Result<(), Refusal> {
    if let Some(licenses) = &change.licenses {
        new.licenses = licenses.clone();
    }
    if let Some(secs) = change.max_start_delay_secs {
        new.max_start_delay_secs = Some(secs).filter(|secs| *secs > 0);
    }
    let wrong = |said: &str| Err(Refusal::InvalidUpdate(said.to_owned()));
    let ways = [ReservationFlag::Replace, ReservationFlag::ReplaceDown, ReservationFlag::Static];
    if ways.iter().filter(|flag| new.has(**flag)).count() > 1 {
        return wrong("only one of the flags REPLACE, REPLACE_DOWN and STATIC_ALLOC can be set");
    }
    if new.has(ReservationFlag::AnyNodes) && (wishes_nodes || !new.nodes.is_empty()) {
        return wrong("ANY_NODES is for reservations without nodes");
    }
    if new.has(ReservationFlag::AnyNodes) && new.licenses.is_empty() {
        return wrong("ANY_NODES requires Licenses=");
    }
    if !new.has(ReservationFlag::AnyNodes) && !wishes_nodes && new.nodes.is_empty() {
        return wrong("a reservation without ANY_NODES has nodes");
    }
    new.purge_secs = match (new.has(ReservationFlag::PurgeComp), change.purge_secs, new.purge_secs) {
        (false, ..) => None,
        (true, Some(secs), _) | (true, None, Some(secs)) => Some(secs),
        (true, None, None) => Some(PURGE_SECS),
    };
    Ok(())
}

/// Whether and how it floats with the time (`TIME_FLOAT`). Times are as of now.
pub(super) fn float(
    now: Timestamp,
    before: Option<&Reservation>,
    new: &mut Reservation,
    change: &ReservationChange,
) -> Result<(), Refusal> {
    let floats = new.has(ReservationFlag::TimeFloat);
    if before.is_some_and(|old| old.has(ReservationFlag::TimeFloat) != floats) {
        let said = "TIME_FLOAT cannot be added to or removed from an existing reservation".to_owned();
        return Err(Refusal::InvalidUpdate(said));
    }
    if floats && new.recurs() {
        return Err(Refusal::InvalidUpdate("a reservation with TIME_FLOAT cannot come again".to_owned()));
    }
    let timed = change.start.is_some() || change.end.is_some() || change.duration_secs.is_some();
    if !floats || (before.is_some() && !timed && change.duration_delta_secs.is_none()) {
        return Ok(());
    }
    let stays = before.and_then(|old| old.floating).is_some_and(|old| old.lasts_secs.is_none());
    if let Some(old) = before.filter(|_| stays && change.end.is_none() && change.start.is_some()) {
        new.end = old.end;
    }
    let lasts = change.end.is_none() && !(stays && change.duration_secs.is_none());
    new.floating = Some(Floating {
        begins_secs: new.start.since(now).as_secs(),
        lasts_secs: lasts.then(|| new.end.since(new.start).as_secs()),
    });
    Ok(())
}

/// Begin and end, from those of begin, end and length that are given.
pub(super) fn times(now: Timestamp, new: &mut Reservation, change: &ReservationChange) -> Result<(), Refusal> {
    let mut length = new.end.since(new.start);
    if let Some(delta) = change.duration_delta_secs {
        let delta_length = Duration::from_secs(delta.unsigned_abs());
        let sum = if delta < 0 { length.checked_sub(delta_length) } else { length.checked_add(delta_length) };
        length = sum.ok_or(Refusal::InvalidTime)?;
        if change.end.is_some() || change.duration_secs.is_some() {
            return Err(Refusal::InvalidUpdate("EndTime and Duration contradict each other".to_owned()));
        }
    }
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
        (None, None) if change.start.is_some() || change.duration_delta_secs.is_some() => {
            new.end = new.start.plus(length)
        }
        (None, None) => {}
    }
    // A minute ago counts as now for a user who types; earlier does not.
    if new.has(ReservationFlag::ForceStart) && !new.recurs() {
        return Err(Refusal::InvalidUpdate("FORCE_START is for reservations that come again (DAILY, ...)".to_owned()));
    }
    let late = is_new && new.start.plus(Duration::from_secs(60)) < now && !new.has(ReservationFlag::ForceStart);
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
