//! `sacctmgr list reservation`: reservations of the past and of now (sacctmgr(1), reservations).

use super::{
    condition::{Key, Request},
    events::{Window, clusters, nodes},
    kind::find_named,
};
use crate::{
    clock::Clock,
    field_table::{self, text as field},
};
use garrick_accounts::{
    reservation::{ReservationQuestion, ReservationRow},
    tres::CPU,
};
use garrick_model::{entities::Entities, hostlist, time::Timestamp};

/// A reservation, and what is computed of it.
#[derive(Clone, Debug, Default)]
pub struct Line {
    /// What is kept of it.
    pub row: ReservationRow,
    /// Numbers of the associations that may use it.
    pub associations: String,
    /// CPU seconds that its jobs had.
    pub used: u64,
}

/// What stands in a field.
pub type Shown = fn(&Line, &Clock) -> String;
/// A column.
pub type Column = field_table::Column<Shown>;
type Field = field_table::Field<Shown>;

static FIELDS: [(&str, Field); 12] = [
    ("associations", Field { left: true, ..field("Associations", 20, |line, _| line.associations.clone()) }),
    ("cluster", field("Cluster", 10, |line, _| line.row.cluster.clone())),
    ("end", field("TimeEnd", 19, |line, clock| clock.at(line.row.end))),
    ("flags", field("Flags", 20, |line, _| line.row.flags.join(","))),
    ("id", field("ID", 6, |line, _| line.row.id.to_string())),
    ("name", field("Name", 15, |line, _| line.row.name.clone())),
    ("nodenames", field("NodeNames", 20, |line, _| line.row.nodes.clone())),
    ("start", field("TimeStart", 19, |line, clock| clock.at(line.row.start))),
    ("timeend", field("TimeEnd", 19, |line, clock| clock.at(line.row.end))),
    ("timestart", field("TimeStart", 19, |line, clock| clock.at(line.row.start))),
    (
        "tres",
        field("TRES", 30, |line, _| {
            super::amounts::tres(line.row.tres.iter().map(|(name, count)| (name.as_str(), *count)))
        }),
    ),
    ("unusedwall", field("UnusedWall", 10, unused)),
];

/// Seconds of its time until now that no job used: a job's time counts by its share of the CPUs.
fn unused(line: &Line, clock: &Clock) -> String {
    let row = &line.row;
    let passed = row.secs_in((row.start, row.end), clock.now);
    let cpus = row.tres.get(CPU).copied().unwrap_or(0).max(1);
    // Microseconds, so that no number loses its last figures.
    let used = u128::from(line.used) * 1_000_000 / u128::from(cpus);
    let unused = (u128::from(passed) * 1_000_000).saturating_sub(used);
    format!("{}.{:06}", unused / 1_000_000, unused % 1_000_000)
}

/// The columns that are asked for, or the usual ones.
///
/// # Errors
/// The first field that there is not.
pub fn columns(format: Option<&str>) -> Result<Vec<Column>, String> {
    // As in Slurm, `nodes` is no field.
    let find = |name: &str| find_named(FIELDS.iter(), name, 2).filter(|_| name != "nodes");
    field_table::chosen(format.unwrap_or("cluster,name,tres,start,end,unusedwall"), find)
}

/// What the service is asked; see [`super::events::question`].
///
/// # Errors
/// A list of nodes that is none.
pub fn question(
    request: &Request,
    window: Window,
    usual: Timestamp,
    here: &str,
) -> Result<ReservationQuestion, hostlist::HostListError> {
    let values = |key: Key| request.conditions.get(&key).cloned().unwrap_or_default();
    Ok(ReservationQuestion {
        clusters: clusters(request, here),
        names: values(Key::Name),
        ids: values(Key::Id).iter().filter_map(|id| id.parse().ok()).collect(),
        nodes: nodes(request)?,
        start: window.start.or(Some(usual)),
        end: window.end,
    })
}

/// The numbers of the associations of its users and accounts, between commas.
pub fn associations(row: &ReservationRow, entities: &Entities) -> String {
    let of = entities.associations.values().filter(|one| one.cluster == row.cluster);
    let may = of.filter(|one| match &one.user {
        Some(user) => row.users.contains(user),
        None => row.accounts.contains(&one.account),
    });
    may.map(|one| one.id.0.to_string()).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{field_table::Setting, sacctmgr::kind::Kind};
    use jiff::tz::TimeZone;

    fn line(used: u64) -> Line {
        let at = Timestamp::from_secs;
        let row = ReservationRow {
            cluster: "cluster".to_owned(),
            id: 1,
            name: "res1".to_owned(),
            start: at(1_795_423_611),
            end: at(1_795_423_632),
            nodes: "n3".to_owned(),
            tres: [(CPU.to_owned(), 4)].into(),
            ..ReservationRow::default()
        };
        Line { row, used, ..Line::default() }
    }

    /// As sacctmgr of Slurm 26.05.3 printed it.
    #[test]
    fn the_table_is_slurms() {
        let clock = Clock { zone: TimeZone::UTC, now: Timestamp::from_secs(1_795_423_700), format: None };
        let shown = |format: Option<&str>, line: &Line| {
            let columns = columns(format).unwrap();
            let mut out = Vec::new();
            let setting = Setting::Parsable("|".to_owned());
            setting.heading(&mut out, &columns).unwrap();
            setting.row(&mut out, &columns, |shown| shown(line, &clock)).unwrap();
            String::from_utf8(out).unwrap()
        };
        assert_eq!(
            shown(None, &line(84)),
            "Cluster|Name|TRES|TimeStart|TimeEnd|UnusedWall|\n\
             cluster|res1|cpu=4|2026-11-23T08:46:51|2026-11-23T08:47:12|0.000000|\n"
        );
        assert_eq!(shown(Some("id,nodenames,unused"), &line(42)), "ID|NodeNames|UnusedWall|\n1|n3|10.500000|\n");
        assert!(columns(Some("nodes")).is_err());
    }

    #[test]
    fn conditions_go_to_the_service() {
        let request = Request::read(Kind::Reservation, &["names=res1,res2", "id=3", "nodes=n[1-2]"]).unwrap();
        let window = Window { start: None, end: None };
        let asked = question(&request, window, Timestamp::from_secs(5), "here").unwrap();
        assert_eq!((asked.names.len(), asked.ids.as_slice(), asked.nodes.len()), (2, [3].as_slice(), 2));
        assert_eq!((asked.start, asked.clusters), (Some(Timestamp::from_secs(5)), vec!["here".to_owned()]));
    }
}
