//! What is kept of reservations (sreport(1), reservation reports). A reservation that is changed while it holds is kept in parts: each
//! says what it was from one time until another.

use crate::{filter::is_listed, tres::CPU, usage::secs_in};
use garrick_model::{
    hostlist,
    reservation::{RECURRING, Reservation},
    time::Timestamp,
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashSet};

/// One time of a reservation, or a part of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReservationRow {
    /// Cluster.
    pub cluster: String,
    /// Its number, which all its parts have: those of a cluster are counted from 1.
    pub id: u64,
    /// Name.
    pub name: String,
    /// Beginning.
    pub start: Timestamp,
    /// End. It may still lie ahead.
    pub end: Timestamp,
    /// Nodes, as a host list.
    pub nodes: String,
    /// Flags, as they are shown.
    pub flags: Vec<String>,
    /// `Users`.
    pub users: Vec<String>,
    /// `Accounts`.
    pub accounts: Vec<String>,
    /// Amounts by the name of a TRES.
    pub tres: BTreeMap<String, u64>,
    /// `Comment`.
    pub comment: String,
    /// It was deleted: one of that name that comes later is another one.
    pub gone: bool,
}

/// What is to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// The row with that number and beginning: it did not come to be.
    Delete(u64, Timestamp),
    /// A row, in place of one with the same number and beginning.
    Put(Box<ReservationRow>),
}

impl ReservationRow {
    /// A reservation as it was saved.
    pub fn of(cluster: &str, id: u64, saved: &Reservation) -> Self {
        // Those that may not use it are not among those that may.
        let named = |list: &garrick_model::reservation::AccessList| match list.deny {
            true => Vec::new(),
            false => list.names.clone(),
        };
        let licenses = saved.licenses.0.iter().map(|one| (format!("license/{}", one.name), u64::from(one.count)));
        let tres = [(CPU.to_owned(), u64::from(saved.cpus))].into_iter().chain(licenses);
        Self {
            cluster: cluster.to_owned(),
            id,
            name: saved.name.clone(),
            start: saved.start,
            end: saved.end,
            nodes: hostlist::fold(&saved.nodes),
            flags: saved.flag_words(),
            users: named(&saved.users),
            accounts: named(&saved.accounts),
            tres: tres.filter(|(_, count)| *count > 0).collect(),
            comment: saved.comment.clone().unwrap_or_default(),
            gone: false,
        }
    }

    fn has(&self, flag: &str) -> bool {
        self.flags.iter().any(|known| known == flag)
    }

    /// Is it for maintenance that keeps jobs away (sreport(1), `PlannedDown`)?
    pub fn is_planned_down(&self) -> bool {
        self.has("MAINT") && !self.has("IGNORE_JOBS")
    }

    /// Does its time count as used though no job runs in it (sreport(1), `Allocated`)?
    pub fn is_allocated(&self) -> bool {
        !self.has("MAINT") && !self.has("IGNORE_JOBS")
    }

    fn recurs(&self) -> bool {
        RECURRING.iter().any(|flag| self.has(&flag.to_string()))
    }

    /// Is the same kept from the same beginning, whenever it ends?
    fn differs_in_its_end_only(&self, other: &Self) -> bool {
        *self == Self { end: self.end, ..other.clone() }
    }

    /// Seconds of it in a window, until `now`.
    pub fn secs_in(&self, window: (Timestamp, Timestamp), now: Timestamp) -> u64 {
        secs_in((self.start, self.end.min(now)), window)
    }
}

/// What is written when a reservation was saved, or deleted (`None`), at that time. `last`: the row of that name that begins last;
/// `unused`: the next number.
pub fn follow(
    cluster: &str,
    last: Option<&ReservationRow>,
    saved: Option<&Reservation>,
    at: Timestamp,
    unused: u64,
) -> Vec<Write> {
    // One that is over and does not come again has nothing to do with it.
    let last = last.filter(|last| !last.gone && (last.end > at || last.recurs()));
    let put = |row: ReservationRow| Write::Put(Box::new(row));
    let (last, saved) = match (last, saved) {
        (None, None) => return Vec::new(),
        (None, Some(saved)) => return vec![put(ReservationRow::of(cluster, unused, saved))],
        (Some(last), saved) => (last, saved),
    };
    let mut writes = Vec::new();
    let next = saved.map(|saved| {
        let row = ReservationRow::of(cluster, last.id, saved);
        // The earlier parts of it stay.
        let start = if last.start <= at { row.start.max(last.start) } else { row.start };
        ReservationRow { start, ..row }
    });
    match next {
        Some(next) if next == *last => {}
        // It was not there yet, or is shorter or longer.
        Some(next) if last.start >= at || next.differs_in_its_end_only(last) => {
            if next.start != last.start {
                writes.push(Write::Delete(last.id, last.start));
            }
            writes.push(put(next));
        }
        None if last.start >= at => writes.push(Write::Delete(last.id, last.start)),
        // What it was until now stays.
        next => {
            let gone = next.is_none();
            if last.end > at || gone {
                writes.push(put(ReservationRow { end: last.end.min(at), gone, ..last.clone() }));
            }
            writes.extend(next.map(|next| put(ReservationRow { start: next.start.max(at), ..next })));
        }
    }
    writes
}

/// Which reservations are asked for. An empty list leaves none out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReservationQuestion {
    /// Clusters.
    pub clusters: Vec<String>,
    /// Names.
    pub names: Vec<String>,
    /// Numbers.
    pub ids: Vec<u64>,
    /// Nodes that it had, one by one.
    pub nodes: Vec<String>,
    /// Those that ended then or later.
    pub start: Option<Timestamp>,
    /// Those that began before then.
    pub end: Option<Timestamp>,
}

impl ReservationQuestion {
    /// Is it asked for?
    pub fn takes(&self, row: &ReservationRow) -> bool {
        let had = |nodes: &[String]| {
            let asked: HashSet<&String> = nodes.iter().collect();
            hostlist::expand(&row.nodes).is_ok_and(|of| of.iter().any(|node| asked.contains(node)))
        };
        is_listed(&self.clusters, &row.cluster)
            && is_listed(&self.names, &row.name)
            && (self.ids.is_empty() || self.ids.contains(&row.id))
            && (self.nodes.is_empty() || had(&self.nodes))
            && self.start.is_none_or(|start| row.end >= start)
            && self.end.is_none_or(|end| row.start < end)
    }

    /// For what came from elsewhere: are its lists no longer than those of other questions?
    pub fn is_sound(&self) -> bool {
        let longest = self.clusters.len().max(self.names.len()).max(self.ids.len()).max(self.nodes.len());
        longest <= crate::filter::MOST_LISTED
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use garrick_model::reservation::ReservationFlag;

    fn at(secs: i64) -> Timestamp {
        Timestamp::from_secs(secs)
    }

    fn saved(start: i64, end: i64, nodes: &[&str]) -> Reservation {
        Reservation {
            name: "class".to_owned(),
            start: at(start),
            end: at(end),
            nodes: nodes.iter().map(|&node| node.to_owned()).collect(),
            cpus: 4 * u32::try_from(nodes.len()).unwrap(),
            ..Reservation::default()
        }
    }

    /// The rows after these states, one after the other. Numbers and beginnings tell rows apart.
    fn kept(states: &[(i64, Option<Reservation>)]) -> Vec<ReservationRow> {
        let mut rows: BTreeMap<(u64, Timestamp), ReservationRow> = BTreeMap::new();
        for (when, saved) in states {
            let last = rows.values().max_by_key(|row| row.start).cloned();
            let unused = rows.keys().map(|(id, _)| id + 1).max().unwrap_or(1);
            for write in follow("c", last.as_ref(), saved.as_ref(), at(*when), unused) {
                match write {
                    Write::Delete(id, start) => drop(rows.remove(&(id, start))),
                    Write::Put(row) => drop(rows.insert((row.id, row.start), *row)),
                }
            }
        }
        rows.into_values().collect()
    }

    fn shown(rows: &[ReservationRow]) -> Vec<(u64, i64, i64, &str)> {
        rows.iter().map(|row| (row.id, row.start.secs(), row.end.secs(), row.nodes.as_str())).collect()
    }

    #[test]
    fn what_it_was_stays_when_it_is_changed() {
        let rows = kept(&[
            (0, Some(saved(10, 100, &["n1"]))),
            // Not begun: as if it had been so at once.
            (5, Some(saved(20, 100, &["n1"]))),
            (50, Some(saved(20, 100, &["n1", "n2"]))),
            // Only longer.
            (60, Some(saved(50, 200, &["n1", "n2"]))),
            (150, None),
        ]);
        assert_eq!(shown(&rows), [(1, 20, 50, "n1"), (1, 50, 150, "n[1-2]")]);
        assert_eq!((rows[0].tres[CPU], rows[1].tres[CPU]), (4, 8));
    }

    #[test]
    fn one_that_never_began_is_not_kept_and_a_new_one_has_a_new_number() {
        assert_eq!(shown(&kept(&[(0, Some(saved(10, 100, &["n1"]))), (5, None)])), []);
        let again = kept(&[(0, Some(saved(10, 100, &["n1"]))), (100, None), (300, Some(saved(310, 400, &["n2"])))]);
        assert_eq!(shown(&again), [(1, 10, 100, "n1"), (2, 310, 400, "n2")]);
        let repeated = kept(&[(0, Some(saved(10, 100, &["n1"]))), (0, Some(saved(10, 100, &["n1"])))]);
        assert_eq!(shown(&repeated), [(1, 10, 100, "n1")]);
    }

    #[test]
    fn one_that_comes_again_keeps_its_number() {
        let daily = |start, end| Reservation { flags: [ReservationFlag::Daily].into(), ..saved(start, end, &["n1"]) };
        let rows = kept(&[(0, Some(daily(10, 100))), (101, Some(daily(86_410, 86_500)))]);
        assert_eq!(shown(&rows), [(1, 10, 100, "n1"), (1, 86_410, 86_500, "n1")]);
    }

    #[test]
    fn what_is_said_again_changes_nothing_and_one_after_a_deleted_one_is_another_one() {
        let parts = [(0, Some(saved(10, 100, &["n1"]))), (50, Some(saved(10, 100, &["n1", "n2"])))];
        let again = [&parts[..], &[(50, parts[1].1.clone()), (60, parts[1].1.clone())]].concat();
        assert_eq!(shown(&kept(&again)), [(1, 10, 50, "n1"), (1, 50, 100, "n[1-2]")]);
        let daily = |start, end| Reservation { flags: [ReservationFlag::Daily].into(), ..saved(start, end, &["n1"]) };
        let rows = kept(&[(0, Some(daily(10, 100))), (150, None), (300, Some(daily(310, 400)))]);
        assert_eq!(shown(&rows), [(1, 10, 100, "n1"), (2, 310, 400, "n1")]);
    }

    #[test]
    fn questions_are_about_a_window() {
        let row = ReservationRow::of("c", 3, &saved(10, 100, &["n1", "n2"]));
        let asks = ReservationQuestion { start: Some(at(100)), end: Some(at(200)), ..ReservationQuestion::default() };
        assert!(asks.takes(&row));
        let late = ReservationQuestion { start: Some(at(101)), ..ReservationQuestion::default() };
        let node = ReservationQuestion { nodes: vec!["n2".to_owned()], ..ReservationQuestion::default() };
        let other = ReservationQuestion { ids: vec![4], ..ReservationQuestion::default() };
        assert!(!late.takes(&row) && node.takes(&row) && !other.takes(&row));
        assert_eq!(row.secs_in((at(50), at(400)), at(60)), 10);
    }
}
