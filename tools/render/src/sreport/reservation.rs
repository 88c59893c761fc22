//! `sreport reservation Utilization`: what of reservations was used by their jobs.

use super::Facts;
use crate::{
    field_table::{self, Kind as Long, text as field},
    sacctmgr::{kind::find_named, reservations::associations},
};
use garrick_accounts::{reservation::ReservationRow, usage::UsageSum};
use garrick_model::{
    hostlist,
    time::{Timestamp, long_duration},
};
use std::collections::BTreeMap;

/// What is kept of a reservation, and what its jobs used in the window.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reserved {
    /// What is kept of it.
    pub row: ReservationRow,
    /// What its jobs used.
    pub used: UsageSum,
}

/// A line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line {
    row: ReservationRow,
    associations: String,
    start: String,
    end: String,
    tres: String,
    count: u64,
    secs: u64,
    tres_secs: u64,
    allocated: String,
    idle: String,
}

/// What stands in a field.
pub type Shown = fn(&Line) -> String;
/// A column.
pub type Column = field_table::Column<Shown>;
type Field = field_table::Field<Shown>;

static FIELDS: [(&str, Field); 14] = [
    ("allocated", Field { kind: Long::Number, ..field("Allocated", 20, |line| line.allocated.clone()) }),
    ("associations", field("Associations", 15, |line| line.associations.clone())),
    ("cluster", field("Cluster", 9, |line| line.row.cluster.clone())),
    ("end", field("End", 19, |line| line.end.clone())),
    ("flags", field("Flags", 20, |line| line.row.flags.join(","))),
    ("idle", Field { kind: Long::Number, ..field("Idle", 20, |line| line.idle.clone()) }),
    ("name", field("Name", 9, |line| line.row.name.clone())),
    ("nodes", field("Nodes", 15, |line| line.row.nodes.clone())),
    ("reservationid", field("Id", 8, |line| line.row.id.to_string())),
    ("start", field("Start", 19, |line| line.start.clone())),
    ("totaltime", field("TotalTime", 9, |line| long_duration(line.secs))),
    ("trescount", field("TRES Count", 10, |line| line.count.to_string())),
    ("tresname", field("TRES Name", 14, |line| line.tres.clone())),
    ("trestime", field("TRES Time", 9, |line| long_duration(line.tres_secs))),
];

/// The columns that are asked for, or the usual ones.
///
/// # Errors
/// The first field that there is not.
pub fn columns(format: Option<&str>) -> Result<Vec<Column>, String> {
    let find = |name: &str| find_named(FIELDS.iter(), name, 1);
    field_table::chosen(format.unwrap_or("cluster,name,start,end,tresname,allocated,idle"), find)
}

/// A reservation with all its parts in the window.
#[derive(Default)]
struct Whole {
    row: ReservationRow,
    nodes: Vec<String>,
    secs: u64,
    tres_secs: BTreeMap<String, u64>,
    used: UsageSum,
}

impl Whole {
    fn add(&mut self, part: &Reserved, facts: &Facts<'_>) {
        let Reserved { row, used } = part;
        let first = self.nodes.is_empty() && self.secs == 0;
        let start = if first { row.start } else { self.row.start.min(row.start) };
        let end = self.row.end.max(row.end);
        self.row = ReservationRow { start, end, ..row.clone() };
        let secs = row.secs_in((facts.window.start, facts.window.end), facts.now);
        self.secs += secs;
        for (name, count) in &row.tres {
            *self.tres_secs.entry(name.clone()).or_default() += count.saturating_mul(secs);
        }
        self.nodes.extend(hostlist::expand(&row.nodes).unwrap_or_default());
        self.used.merge(used);
    }
}

/// A line for each reservation and TRES that it had. Parts of one reservation are one line.
pub fn lines(reserved: &[Reserved], facts: &Facts<'_>) -> Vec<Line> {
    let mut all: BTreeMap<(&str, u64), Whole> = BTreeMap::new();
    for part in reserved {
        all.entry((&part.row.cluster, part.row.id)).or_default().add(part, facts);
    }
    let zone = garrick_model::time::system_zone();
    let at = |at: Timestamp| at.text(&zone);
    let mut lines = Vec::new();
    for mut whole in all.into_values() {
        whole.row.nodes = hostlist::fold_sorted(&whole.nodes);
        for tres in facts.tres {
            let Some(&tres_secs) = whole.tres_secs.get(tres) else { continue };
            let used = whole.used.of(tres).min(tres_secs);
            lines.push(Line {
                associations: associations(&whole.row, facts.entities),
                start: at(whole.row.start),
                end: at(whole.row.end),
                tres: tres.clone(),
                count: whole.row.tres.get(tres).copied().unwrap_or(0),
                secs: whole.secs,
                tres_secs,
                allocated: facts.units.amount(used, tres_secs),
                idle: facts.units.amount(tres_secs - used, tres_secs),
                row: whole.row.clone(),
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
    use garrick_accounts::tres::CPU;
    use garrick_model::entities::Entities;

    fn part(start: i64, end: i64, nodes: &str, cpus: u64, used: u64) -> Reserved {
        let of = |count| BTreeMap::from([(CPU.to_owned(), count)]);
        let row = ReservationRow {
            cluster: "cluster".to_owned(),
            id: 1,
            name: "res1".to_owned(),
            start: Timestamp::from_secs(start),
            end: Timestamp::from_secs(end),
            nodes: nodes.to_owned(),
            tres: of(cpus),
            ..ReservationRow::default()
        };
        Reserved { row, used: UsageSum { jobs: 1, tres_secs: of(used), ..UsageSum::default() } }
    }

    fn values(parts: &[Reserved], (start, end): (i64, i64)) -> Vec<String> {
        let at = Timestamp::from_secs;
        let facts = Facts {
            entities: &Entities::default(),
            window: Window { start: at(start), end: at(end) },
            now: at(100_000),
            units: Units::read("seconds").unwrap(),
            tres: &[CPU.to_owned(), "mem".to_owned()],
            proper: &|_| String::new(),
            events: &[],
        };
        let columns = columns(Some("name,nodes,reservationid,totaltime,trestime,trescount,allocated,idle")).unwrap();
        let lines = lines(parts, &facts);
        assert_eq!(lines.len(), 1, "a TRES that it does not have has no line");
        columns.iter().map(|column| (column.field.value)(&lines[0])).collect()
    }

    #[test]
    fn parts_of_a_reservation_are_one_line_and_only_the_window_counts() {
        // As sreport of Slurm 26.05.3 had it: 21 s of 4 CPUs.
        let one = values(&[part(1000, 1021, "n3", 4, 50)], (0, 3600));
        assert_eq!(one, ["res1", "n3", "1", "00:00:21", "00:01:24", "4", "50", "34"]);
        let two = values(&[part(1000, 1100, "n1", 4, 0), part(1100, 1200, "n[1-2]", 8, 100)], (1050, 1150));
        assert_eq!(two, ["res1", "n[1-2]", "1", "00:01:40", "00:10:00", "8", "100", "500"]);
    }
}
