//! `sreport cluster Utilization`: what a cluster had, and what of it was allocated. When nodes were down is not recorded, nor what was
//! kept for planned jobs: what was not allocated was idle.

use super::{Facts, tree::by};
use crate::{
    field_table::{self, Kind as Long},
    sacctmgr::kind::begins,
};
use garrick_accounts::usage::{UsageRow, UsageSum};

/// A line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line {
    cluster: String,
    tres: String,
    count: u64,
    allocated: String,
    idle: String,
    none: String,
    reported: String,
}

/// What stands in a field.
pub type Shown = fn(&Line) -> String;
/// A column.
pub type Column = field_table::Column<Shown>;
type Field = field_table::Field<Shown>;

const fn field(name: &'static str, width: usize, value: Shown) -> Field {
    Field { name, width, left: false, kind: Long::Text, value }
}

const fn number(name: &'static str, width: usize, value: Shown) -> Field {
    Field { kind: Long::Number, ..field(name, width, value) }
}

const fn amounts(width: usize) -> [(&'static str, Field); 7] {
    [
        ("allocated", number("Allocated", width, |line| line.allocated.clone())),
        ("down", number("Down", width, |line| line.none.clone())),
        ("plannedDown", number("PLND Down", width, |line| line.none.clone())),
        ("idle", number("Idle", width, |line| line.idle.clone())),
        ("planned", number("Planned", width, |line| line.none.clone())),
        ("reported", number("Reported", width, |line| line.reported.clone())),
        ("overcommitted", number("Over Comm", width, |line| line.none.clone())),
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
    let find = |name: &str| {
        let all = || NAMES.iter().chain(amounts);
        let exact = all().find(|(known, _)| known.eq_ignore_ascii_case(name));
        exact.or_else(|| all().find(|(known, _)| begins(known, name, 1))).map(|(_, field)| field)
    };
    let tres = if several { "tresname," } else { "" };
    let usual = format!("cluster,{tres}allocated,down,plannedDown,idle,planned,reported");
    field_table::chosen(format.unwrap_or(&usual), find)
}

/// A line for each cluster and TRES. Clusters that were not there in the window have none.
pub fn lines(rows: &[UsageRow], facts: &Facts<'_>, wanted: impl Fn(&str) -> bool) -> Vec<Line> {
    let used = by(rows, |_| ());
    let mut lines = Vec::new();
    for cluster in facts.entities.clusters.values().filter(|cluster| wanted(&cluster.name)) {
        let none = UsageSum::default();
        let sum = used.get(&(cluster.name.clone(), ())).unwrap_or(&none);
        let there = facts.window.secs_of(cluster, facts.now);
        if there == 0 || (cluster.tres.is_empty() && *sum == none) {
            continue;
        }
        for tres in facts.tres {
            let count = cluster.tres.get(tres).copied().unwrap_or(0);
            let allocated = sum.of(tres);
            // More than it has can be allocated: CPUs that jobs share.
            let whole = count.saturating_mul(there).max(allocated);
            let amount = |secs| facts.units.amount(secs, whole);
            lines.push(Line {
                cluster: cluster.name.clone(),
                tres: tres.clone(),
                count,
                allocated: amount(allocated),
                idle: amount(whole - allocated),
                none: amount(0),
                reported: facts.units.amount(whole, count.saturating_mul(facts.window.secs())),
            });
        }
    }
    lines
}
