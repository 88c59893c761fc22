//! `sreport job Sizes...`: time of jobs, or their number, by how many CPUs they had.

use super::{
    Facts, Report,
    tree::{Tree, account},
    units::Units,
    usage::wckey,
};
use crate::field_table::Setting;
use garrick_accounts::{tres::CPU, usage::UsageRow};
use garrick_model::entities::ROOT;
use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, Write},
};

/// Into which sizes jobs are divided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Grouping {
    /// Below the first, from each to below the next, and from the last on.
    Bounds(Vec<u64>),
    /// Each size that there is.
    Individual,
}

impl Default for Grouping {
    fn default() -> Self {
        Self::Bounds(vec![50, 250, 500, 1000])
    }
}

impl Grouping {
    /// `50,250,500` or `individual`. `None`: neither.
    pub fn read(text: &str) -> Option<Self> {
        if text.eq_ignore_ascii_case("individual") {
            return Some(Self::Individual);
        }
        let mut bounds = text.split(',').map(|bound| bound.trim().parse().ok()).collect::<Option<Vec<u64>>>()?;
        bounds.sort_unstable();
        bounds.dedup();
        Some(Self::Bounds(bounds))
    }

    /// The groups: from, to (not in it), and the heading.
    fn groups(&self, rows: &[UsageRow]) -> Vec<(u64, u64, String)> {
        match self {
            Self::Individual => {
                let sizes: BTreeSet<u64> = rows.iter().map(|row| row.key.cpus).filter(|cpus| *cpus > 0).collect();
                sizes.into_iter().map(|cpus| (cpus, cpus + 1, format!("{cpus} CPUs"))).collect()
            }
            Self::Bounds(bounds) => {
                let mut groups = Vec::new();
                let mut from = 0;
                for bound in bounds {
                    groups.push((from, *bound, format!("{from}-{} CPUs", bound.saturating_sub(1))));
                    from = *bound;
                }
                groups.push((from, u64::MAX, format!(">= {from} CPUs")));
                groups
            }
        }
    }
}

/// How jobs are put together.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    /// Sizes.
    pub grouping: Grouping,
    /// Numbers of jobs instead of their time.
    pub counts: bool,
    /// Accounts without those below them.
    pub flat: bool,
    /// Accounts below the root stand for those below them.
    pub parents: bool,
    /// Accounts, with those below them.
    pub accounts: Vec<String>,
    /// WCKeys.
    pub wckeys: Vec<String>,
    /// Users.
    pub users: Vec<String>,
}

impl Choice {
    /// The account under which a row's jobs are shown; `None`: under none.
    fn place(&self, tree: &Tree, row: &UsageRow) -> Option<String> {
        let own = account(&row.key);
        let line = tree.line(own);
        if !self.accounts.is_empty() {
            let named = line.iter().find(|name| self.accounts.contains(name))?;
            return Some(if self.flat { own.to_owned() } else { named.clone() });
        }
        Some(if self.flat {
            own.to_owned()
        } else if self.parents {
            line.get(1).cloned().unwrap_or_else(|| ROOT.to_owned())
        } else {
            ROOT.to_owned()
        })
    }
}

/// A line: what each group comes to.
struct Line {
    cluster: String,
    name: String,
    groups: Vec<u64>,
}

fn lines(
    report: Report,
    rows: &[UsageRow],
    facts: &Facts<'_>,
    choice: &Choice,
    groups: &[(u64, u64, String)],
) -> Vec<Line> {
    let mut found: BTreeMap<(String, String), Vec<u64>> = BTreeMap::new();
    let mut trees: BTreeMap<&str, Tree> = BTreeMap::new();
    for row in rows {
        let key = wckey(&row.key);
        let cluster = row.key.cluster.as_str();
        let tree = trees.entry(cluster).or_insert_with(|| Tree::of(facts.entities, cluster));
        let of_key = choice.wckeys.is_empty() || choice.wckeys.contains(&key);
        let wanted = of_key && (choice.users.is_empty() || choice.users.contains(&row.key.user));
        let Some(place) = choice.place(tree, row).filter(|_| wanted) else { continue };
        let name = match report {
            Report::SizesByAccountAndWckey => format!("{place}:{key}"),
            Report::SizesByWckey => key,
            _ => place,
        };
        let amount = if choice.counts { row.sum.jobs } else { row.sum.of(CPU) };
        let line = found.entry((cluster.to_owned(), name)).or_insert_with(|| vec![0; groups.len()]);
        if let Some(at) = groups.iter().position(|(from, to, _)| (*from..*to).contains(&row.key.cpus)) {
            line[at] = line[at].saturating_add(amount);
        }
    }
    found.into_iter().map(|((cluster, name), groups)| Line { cluster, name, groups }).collect()
}

/// Characters of a column, and whether its values stand at the left.
type Column = (String, usize, bool);

fn cell(out: &mut dyn Write, (width, left): (usize, bool), text: &str, cut: bool) -> io::Result<()> {
    let long = text.chars().count() > width;
    let text = match long {
        true if cut => text.chars().take(width - 1).chain(['+']).collect(),
        true => text.chars().take(width).collect(),
        false => text.to_owned(),
    };
    if left { write!(out, "{text:<width$} ") } else { write!(out, "{text:>width$} ") }
}

fn write_line(
    out: &mut dyn Write,
    setting: &Setting,
    columns: &[Column],
    values: &[String],
    cut: bool,
) -> io::Result<()> {
    match setting {
        Setting::Columns => {
            for ((_, width, left), value) in columns.iter().zip(values) {
                cell(out, (*width, *left), value, cut)?;
            }
            writeln!(out)
        }
        Setting::Parsable(mark) => {
            values.iter().try_for_each(|value| write!(out, "{value}{mark}"))?;
            writeln!(out)
        }
        Setting::Parsable2(mark) => writeln!(out, "{}", values.join(mark)),
    }
}

/// Writes the report's table.
///
/// # Errors
/// It cannot be written.
pub fn write(
    out: &mut dyn Write,
    (setting, heading): (&Setting, bool),
    report: Report,
    rows: &[UsageRow],
    (facts, choice): (&Facts<'_>, &Choice),
) -> io::Result<()> {
    let groups = choice.grouping.groups(rows);
    let name = match report {
        Report::SizesByAccountAndWckey => ("Account".to_owned(), 20, true),
        Report::SizesByWckey => ("Wckey".to_owned(), 9, false),
        _ => ("Account".to_owned(), 9, false),
    };
    let mut columns: Vec<Column> = vec![("Cluster".to_owned(), 9, false), name];
    columns.extend(groups.iter().map(|(_, _, heading)| (heading.clone(), 13, false)));
    columns.extend([("Total Count".to_owned(), 11, false), ("% of cluster".to_owned(), 12, false)]);
    if heading {
        let names: Vec<String> = columns.iter().map(|(name, ..)| name.clone()).collect();
        write_line(out, setting, &columns, &names, false)?;
        if *setting == Setting::Columns {
            let dashes: Vec<String> = columns.iter().map(|(_, width, _)| "-".repeat(*width)).collect();
            write_line(out, setting, &columns, &dashes, false)?;
        }
    }
    let lines = lines(report, rows, facts, choice, &groups);
    let mut totals: BTreeMap<String, u64> = BTreeMap::new();
    for line in &lines {
        let total = totals.entry(line.cluster.clone()).or_default();
        *total = total.saturating_add(line.groups.iter().sum());
    }
    for line in lines {
        let total: u64 = line.groups.iter().sum();
        let whole = totals.get(&line.cluster).copied().unwrap_or(0);
        let text = |amount: u64| if choice.counts { amount.to_string() } else { facts.units.amount(amount, whole) };
        let percent = Units::read("percent").unwrap_or_default().amount(total, whole);
        let mut values = vec![line.cluster, line.name];
        values.extend(line.groups.iter().map(|amount| text(*amount)));
        values.extend([text(total), percent]);
        write_line(out, setting, &columns, &values, true)?;
    }
    Ok(())
}
