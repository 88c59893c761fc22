//! `sreport cluster Utilization`: what a cluster had, and what became of it: allocated to jobs and reservations, down, in maintenance,
//! or free although jobs waited (sreport(1)). What is left was idle.

use super::{Facts, reservation::Reserved, tree::by};
use crate::{
    field_table::{self, Kind as Long, text as field},
    sacctmgr::kind::find_named,
};
use garrick_accounts::{
    event::EventRow,
    usage::{UsageRow, UsageSum},
};
use garrick_model::{hostlist, time::Timestamp};

/// What was used in the window, and what stood in the way of using it.
#[derive(Clone, Copy, Debug)]
pub struct Recorded<'r> {
    /// What jobs used.
    pub rows: &'r [UsageRow],
    /// Reservations.
    pub reserved: &'r [Reserved],
}

/// A line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line {
    cluster: String,
    tres: String,
    count: u64,
    allocated: String,
    down: String,
    planned_down: String,
    idle: String,
    planned: String,
    reported: String,
    overcommitted: String,
}

/// What stands in a field.
pub type Shown = fn(&Line) -> String;
/// A column.
pub type Column = field_table::Column<Shown>;
type Field = field_table::Field<Shown>;

const fn number(name: &'static str, width: usize, value: Shown) -> Field {
    Field { kind: Long::Number, ..field(name, width, value) }
}

const fn amounts(width: usize) -> [(&'static str, Field); 7] {
    [
        ("allocated", number("Allocated", width, |line| line.allocated.clone())),
        ("down", number("Down", width, |line| line.down.clone())),
        ("plannedDown", number("PLND Down", width, |line| line.planned_down.clone())),
        ("idle", number("Idle", width, |line| line.idle.clone())),
        ("planned", number("Planned", width, |line| line.planned.clone())),
        ("reported", number("Reported", width, |line| line.reported.clone())),
        ("overcommitted", number("Over Comm", width, |line| line.overcommitted.clone())),
    ]
}

static NARROW: [(&str, Field); 7] = amounts(8);
/// With percentages beside the amounts.
static WIDE: [(&str, Field); 7] = amounts(17);

static NAMES: [(&str, Field); 3] = [
    ("cluster", field("Cluster", 9, |line| line.cluster.clone())),
    ("tresname", field("TRES Name", 14, |line| line.tres.clone())),
    ("trescount", field("TRES Count", 10, |line| line.count.to_string())),
];

/// The columns that are asked for, or the usual ones; `several`: TRES are told apart; `wide`: percentages stand beside the amounts.
///
/// # Errors
/// The first field that there is not.
pub fn columns(format: Option<&str>, several: bool, wide: bool) -> Result<Vec<Column>, String> {
    let amounts = if wide { &WIDE } else { &NARROW };
    let find = |name: &str| find_named(NAMES.iter().chain(amounts), name, 1);
    let tres = if several { "tresname," } else { "" };
    let usual = format!("cluster,{tres}allocated,down,plannedDown,idle,planned,reported");
    field_table::chosen(format.unwrap_or(&usual), find)
}

/// What became of an amount of a TRES times seconds. All but what waited too much add up to the whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Split {
    whole: u64,
    allocated: u64,
    down: u64,
    planned_down: u64,
    planned: u64,
    idle: u64,
    overcommitted: u64,
}

impl Split {
    /// `had`: what there was of it; `used`: by jobs, with what they waited for.
    fn of(tres: &str, had: u64, used: &UsageSum, cluster: &str, recorded: Recorded<'_>, facts: &Facts<'_>) -> Self {
        let window = (facts.window.start, facts.window.end);
        let held = recorded.reserved.iter().filter(|one| one.row.cluster == cluster);
        let (mut kept, mut planned_down) = (0_u64, 0_u64);
        for Reserved { row, used } in held {
            let count = row.tres.get(tres).copied().unwrap_or(0);
            let free = count.saturating_mul(row.secs_in(window, facts.now)).saturating_sub(used.of(tres));
            match (row.is_allocated(), row.is_planned_down()) {
                (true, _) => kept = kept.saturating_add(free),
                (false, true) => planned_down = planned_down.saturating_add(free),
                (false, false) => {}
            }
        }
        let out = facts.events.iter().filter(|event| event.cluster == cluster);
        let down = out
            .map(|event| match event.node.is_some() {
                true => {
                    let secs = secs_beside(event, cluster, recorded.reserved, facts);
                    event.tres.get(tres).copied().unwrap_or(0).saturating_mul(secs)
                }
                // All that is idle while the controller is away counts as down (slurmdbd.conf(5), `TrackSlurmctldDown`).
                false if event.is_disconnect() => {
                    let all = facts.entities.clusters.get(cluster).and_then(|cluster| facts.count(cluster, tres));
                    all.unwrap_or(0).saturating_mul(event.secs_in(window, facts.now))
                }
                false => 0,
            })
            .fold(0, u64::saturating_add);
        let jobs = used.of(tres);
        // More than it has can be allocated: CPUs that jobs share.
        let whole = had.max(jobs);
        let mut left = whole;
        // Each takes what the earlier ones left.
        let mut take = |wanted: u64| {
            let taken = wanted.min(left);
            left -= taken;
            taken
        };
        let allocated = take(jobs.saturating_add(kept));
        let (down, planned_down) = (take(down), take(planned_down));
        let waited = used.waited(tres);
        let planned = take(waited);
        Self { whole, allocated, down, planned_down, planned, idle: left, overcommitted: waited - planned }
    }
}

/// Seconds of an event of a node that are in the window and in no reservation that has the node and counts it itself.
fn secs_beside(event: &EventRow, cluster: &str, reserved: &[Reserved], facts: &Facts<'_>) -> u64 {
    let (start, end) = (event.start.max(facts.window.start), event.end.unwrap_or(facts.now).min(facts.window.end));
    let rows = reserved.iter().map(|reserved| &reserved.row);
    let counts = rows.filter(|row| row.cluster == cluster && (row.is_allocated() || row.is_planned_down()));
    let has_node = |nodes: &str| {
        hostlist::expand(nodes).is_ok_and(|nodes| nodes.iter().any(|node| Some(node) == event.node.as_ref()))
    };
    let mut times: Vec<(Timestamp, Timestamp)> = counts
        .filter(|row| row.start < end && row.end > start && has_node(&row.nodes))
        .map(|row| (row.start.max(start), row.end.min(end)))
        .collect();
    times.sort_unstable();
    // Reservations may overlap.
    let (mut secs, mut until) = (0, start);
    for (from, to) in times.into_iter().chain([(end, end)]) {
        secs += from.secs().saturating_sub(until.secs()).max(0);
        until = until.max(to);
    }
    u64::try_from(secs).unwrap_or(0)
}

/// A line for each cluster and TRES. Clusters that were not there in the window have none.
pub fn lines(recorded: Recorded<'_>, facts: &Facts<'_>, wanted: impl Fn(&str) -> bool) -> Vec<Line> {
    let used = by(recorded.rows, |_| ());
    let mut lines = Vec::new();
    for cluster in facts.entities.clusters.values().filter(|cluster| wanted(&cluster.name)) {
        let none = UsageSum::default();
        let sum = used.get(&(cluster.name.clone(), ())).unwrap_or(&none);
        let there = facts.window.secs_of(cluster, facts.now);
        let had_anything = facts.sizes(cluster).iter().any(|(had, _)| !had.is_empty());
        if there == 0 || (!had_anything && *sum == none) {
            continue;
        }
        for tres in facts.tres {
            let count = facts.count(cluster, tres).unwrap_or(0);
            let split = Split::of(tres, facts.had(cluster, tres), sum, &cluster.name, recorded, facts);
            let amount = |secs| facts.units.amount(secs, split.whole);
            lines.push(Line {
                cluster: cluster.name.clone(),
                tres: tres.clone(),
                count,
                allocated: amount(split.allocated),
                down: amount(split.down),
                planned_down: amount(split.planned_down),
                idle: amount(split.idle),
                planned: amount(split.planned),
                reported: facts.units.amount(split.whole, count.saturating_mul(facts.window.secs())),
                overcommitted: amount(split.overcommitted),
            });
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::sreport::{Window, units::Units};
    use garrick_accounts::{event::DISCONNECTED, reservation::ReservationRow, tres::CPU};
    use garrick_model::entities::{Entities, names::Cluster};

    fn at(secs: i64) -> Timestamp {
        Timestamp::from_secs(secs)
    }

    fn usage(used: u64, waited: u64) -> UsageSum {
        let of = |secs| [(CPU.to_owned(), secs)].into();
        UsageSum { jobs: 1, tres_secs: of(used), waited_secs: of(waited) }
    }

    fn reserved(flags: &[&str], secs: (i64, i64), used: u64) -> Reserved {
        let row = ReservationRow {
            cluster: "c".to_owned(),
            nodes: "n[1-2]".to_owned(),
            start: at(secs.0),
            end: at(secs.1),
            flags: flags.iter().map(|&flag| flag.to_owned()).collect(),
            tres: [(CPU.to_owned(), 4)].into(),
            ..ReservationRow::default()
        };
        Reserved { row, used: usage(used, 0) }
    }

    /// 8 CPUs for 100 s.
    fn split(used: &UsageSum, events: &[EventRow], reserved: &[Reserved]) -> Split {
        let entities = Entities::default();
        let facts = Facts {
            entities: &entities,
            window: Window { start: at(1000), end: at(1100) },
            now: at(5000),
            units: Units::default(),
            tres: &[],
            proper: &|_| String::new(),
            events,
        };
        Split::of(CPU, 800, used, "c", Recorded { rows: &[], reserved }, &facts)
    }

    #[test]
    fn what_a_cluster_had_is_told_apart() {
        let down = EventRow {
            cluster: "c".to_owned(),
            node: Some("n1".to_owned()),
            start: at(900),
            end: Some(at(1050)),
            tres: [(CPU.to_owned(), 4)].into(),
            ..EventRow::default()
        };
        let held = [reserved(&[], (1000, 1020), 30), reserved(&["MAINT"], (1090, 1200), 0)];
        let of = split(&usage(100, 50), std::slice::from_ref(&down), &held);
        // 100 of jobs, and 50 of 80 that nobody used in a reservation, in which the node was down for 20 s.
        assert_eq!((of.allocated, of.down, of.planned_down, of.planned, of.idle), (150, 120, 40, 50, 440));
        assert_eq!((of.whole, of.overcommitted), (800, 0));
        let full = split(&usage(700, 500), std::slice::from_ref(&down), &[]);
        assert_eq!((full.allocated, full.down, full.planned, full.idle, full.overcommitted), (700, 100, 0, 0, 500));
        // A node that is down in maintenance, or in what is kept for somebody, counts once.
        let out = EventRow { end: None, ..down };
        let maintained = [reserved(&["MAINT"], (1000, 1060), 0), reserved(&["MAINT"], (1040, 1070), 0)];
        let once = split(&usage(0, 0), std::slice::from_ref(&out), &maintained);
        assert_eq!((once.down, once.planned_down), (120, 360));
        let kept = split(&usage(0, 0), &[out], &[reserved(&[], (900, 1200), 0)]);
        assert_eq!((kept.down, kept.allocated, kept.idle), (0, 400, 400));
        // Jobs run on in maintenance that ignores them.
        let ignored = split(&usage(0, 0), &[], &[reserved(&["MAINT", "IGNORE_JOBS"], (1000, 1100), 0)]);
        assert_eq!((ignored.planned_down, ignored.idle), (0, 800));
    }

    #[test]
    fn a_cluster_is_reported_with_what_it_had_at_each_time() {
        let had = |cpus, start, end: Option<i64>| EventRow {
            cluster: "c".to_owned(),
            start: at(start),
            end: end.map(at),
            reason: garrick_accounts::event::REGISTERED.to_owned(),
            tres: [(CPU.to_owned(), cpus)].into(),
            ..EventRow::default()
        };
        let gone = EventRow { reason: DISCONNECTED.to_owned(), ..had(0, 1080, Some(1090)) };
        // Today it has 16 CPUs.
        let cluster = Cluster {
            name: "c".to_owned(),
            created: at(1010),
            tres: [(CPU.to_owned(), 16)].into(),
            ..Cluster::default()
        };
        let entities = Entities { clusters: [("c".to_owned(), cluster)].into(), ..Entities::default() };
        let events = [had(4, 1020, Some(1050)), had(8, 1050, Some(2000)), had(16, 2000, None), gone];
        let tres = [CPU.to_owned()];
        let line = |events: &[EventRow]| {
            let facts = Facts {
                entities: &entities,
                window: Window { start: at(1000), end: at(1100) },
                now: at(5000),
                units: Units::read("seconds").unwrap(),
                tres: &tres,
                proper: &|_| String::new(),
                events,
            };
            lines(Recorded { rows: &[], reserved: &[] }, &facts, |_| true).remove(0)
        };
        let then = line(&events);
        // 4 for 40 s, and 8 for 50, of which all was down for 10.
        assert_eq!((then.count, then.reported.as_str(), then.down.as_str()), (8, "560", "80"));
        let unknown = line(&[]);
        assert_eq!((unknown.count, unknown.reported.as_str()), (16, "1440"));
    }
}
