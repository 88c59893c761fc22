//! What `sshare` shows: the fields of an association, columns of them, and its document (sshare(1); widths as seen in 26.05.3).

use crate::{
    field_table::{self, Kind},
    json::{self, Meta},
};
use garrick_model::{
    entities::{association::Shares, limits::TresLimit},
    messages::shares::{AssocView, SharesBoard},
};
use serde_json::{Value, json};
use std::io::{self, Write};

/// A row: an association, and what all have in common.
#[derive(Clone, Copy, Debug)]
pub struct Row<'r> {
    /// It.
    pub view: &'r AssocView,
    /// Fair Tree is the algorithm.
    pub fair_tree: bool,
    /// Names of all TRES.
    pub tres: &'r [String],
    /// How many of the accounts above it are shown.
    pub indent: usize,
}

/// What stands in a field of a row.
pub type Shown = fn(&Row<'_>) -> String;
/// A field.
pub type Field = field_table::Field<Shown>;
/// A column.
pub type Column = field_table::Column<Shown>;

const fn field(name: &'static str, width: usize, kind: Kind, value: Shown) -> Field {
    Field { name, width, left: false, kind, value }
}

/// Fields in the order of `--helpformat`.
#[rustfmt::skip]
pub static FIELDS: &[Field] = &[
    Field { left: true, ..field("Account", 20, Kind::Text, |row| format!("{}{}", " ".repeat(row.indent), row.view.association.account)) },
    field("Cluster", 10, Kind::Text, |row| row.view.association.cluster.clone()),
    field("EffectvUsage", 13, Kind::Number, |row| six(row.view.effective)),
    field("FairShare", 10, Kind::Number, |row| row.view.factor.map_or_else(String::new, six)),
    field("GrpTRESMins", 30, Kind::Text, limits),
    field("GrpTRESRaw", 30, Kind::Text, |row| counts(row, |name| minutes(row.view.used.get(name)))),
    field("ID", 6, Kind::Number, |row| row.view.association.id.0.to_string()),
    field("LevelFS", 10, Kind::Number, |row| if row.is_root() || !row.fair_tree { String::new() } else { level(row.view.level) }),
    field("NormShares", 11, Kind::Number, |row| six(row.view.norm_shares)),
    field("NormUsage", 11, Kind::Number, |row| if row.is_root() { String::new() } else { six(row.view.norm_usage) }),
    field("Partition", 12, Kind::Text, |row| row.view.association.partition.clone().unwrap_or_default()),
    field("RawShares", 10, Kind::Number, |row| row.shares()),
    field("RawUsage", 11, Kind::Number, |row| whole(row.raw_usage()).to_string()),
    field("TRESRunMins", 30, Kind::Text, |row| counts(row, |name| row.view.load.left_secs.get(name).map_or(0, |secs| secs / 60))),
    field("User", 10, Kind::Text, |row| row.view.association.user.clone().unwrap_or_default()),
];

/// The usual columns.
pub fn usual(long: bool, partition: bool, fair_tree: bool) -> String {
    let mut names = vec!["Account", "User"];
    if partition {
        names.push("Partition");
    }
    names.extend(["RawShares", "NormShares", "RawUsage"]);
    if long {
        names.push("NormUsage");
    }
    names.extend(["EffectvUsage", "FairShare"]);
    if long && fair_tree {
        names.push("LevelFS");
    }
    if long {
        names.extend(["GrpTRESMins", "TRESRunMins"]);
    }
    names.join(",")
}

/// Reads a list of fields. The error is the name that no field has.
pub fn columns(format: &str) -> Result<Vec<Column>, String> {
    field_table::columns(FIELDS, format)
}

/// The names of all fields, four in a line.
pub fn help_format(out: &mut dyn Write) -> io::Result<()> {
    for line in FIELDS.chunks(4) {
        line.iter().try_for_each(|field| write!(out, "{:<17} ", field.name))?;
        writeln!(out)?;
    }
    Ok(())
}

impl Row<'_> {
    fn is_root(&self) -> bool {
        self.view.association.parent.is_none()
    }

    fn shares(&self) -> String {
        match self.view.association.shares {
            _ if self.is_root() => String::new(),
            Shares::Number(number) => number.to_string(),
            Shares::Parent => "parent".to_owned(),
        }
    }

    fn raw_usage(&self) -> f64 {
        self.view.used.get("billing").copied().unwrap_or(0.0)
    }
}

fn six(number: f64) -> String {
    format!("{number:.6}")
}

fn level(level: f64) -> String {
    if level.is_infinite() { "inf".to_owned() } else { six(level) }
}

/// Whole seconds and minutes are shown, as far as they are over.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "conversions saturate, and are meant to cut"
)]
const fn whole(number: f64) -> u64 {
    number as u64
}

fn minutes(secs: Option<&f64>) -> u64 {
    whole(secs.copied().unwrap_or(0.0) / 60.0)
}

fn counts(row: &Row<'_>, count: impl Fn(&str) -> u64) -> String {
    row.tres.iter().map(|name| format!("{name}={}", count(name))).collect::<Vec<_>>().join(",")
}

fn limits(row: &Row<'_>) -> String {
    let limits = &row.view.association.limits;
    let limit = |name: &String| Some(format!("{name}={}", limits.tres(TresLimit::GrpTresMins, name)?));
    row.tres.iter().filter_map(limit).collect::<Vec<_>>().join(",")
}

/// Which associations are shown.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    /// Accounts; `None`: all.
    pub accounts: Option<Vec<String>>,
    /// Users; `None`: all.
    pub users: Option<Vec<String>>,
    /// Associations of users only.
    pub users_only: bool,
}

impl Choice {
    fn takes(&self, view: &AssocView) -> bool {
        let own = &view.association;
        let account = self.accounts.as_ref().is_none_or(|accounts| accounts.contains(&own.account));
        let user = match &own.user {
            None => !self.users_only,
            Some(user) => self.users.as_ref().is_none_or(|users| users.contains(user)),
        };
        account && user
    }
}

/// The rows of a choice. An account is indented by those above it that are shown too.
pub fn rows<'b>(board: &'b SharesBoard, choice: &Choice) -> Vec<Row<'b>> {
    // Accounts above the current one: depth, and whether it is shown.
    let mut above: Vec<(u32, bool)> = Vec::new();
    let mut rows = Vec::new();
    for view in &board.associations {
        above.retain(|(depth, _)| *depth < view.depth);
        let shown = choice.takes(view);
        if shown {
            let indent = above.iter().filter(|(_, shown)| *shown).count();
            rows.push(Row { view, fair_tree: board.fair_tree, tres: &board.tres, indent });
        }
        if view.association.user.is_none() {
            above.push((view.depth, shown));
        }
    }
    rows
}

/// Writes the heading and rows.
pub fn write(
    out: &mut dyn Write,
    rows: &[Row<'_>],
    columns: &[Column],
    setting: &field_table::Setting,
    heading: bool,
) -> io::Result<()> {
    if heading {
        setting.heading(out, columns)?;
    }
    rows.iter().try_for_each(|row| setting.row(out, columns, |shown| shown(row)))
}

fn float(number: f64) -> Value {
    let finite = number.is_finite();
    json!({"set": finite, "infinite": !finite, "number": if finite { number } else { 0.0 }})
}

/// The document.
pub fn document(rows: &[Row<'_>], meta: &Meta) -> Value {
    let mut document = json::document("shares", Vec::new(), None, meta);
    let shares: Vec<Value> = rows.iter().map(share).collect();
    document["shares"] = json!({"total_shares": shares.len(), "shares": shares});
    document
}

fn share(row: &Row<'_>) -> Value {
    let (view, own) = (row.view, &row.view.association);
    let list = |value: &dyn Fn(&str) -> Value| -> Vec<Value> {
        row.tres.iter().map(|name| json!({"name": name, "value": value(name)})).collect()
    };
    json!({
        "id": own.id.0,
        "cluster": own.cluster,
        "name": own.user.as_ref().unwrap_or(&own.account),
        "parent": if own.user.is_some() { Some(&own.account) } else { view.above.as_ref() }.cloned().unwrap_or_default(),
        "partition": own.partition.clone().unwrap_or_default(),
        "shares_normalized": float(view.norm_shares),
        "shares": match own.shares {
            Shares::Number(number) => json::number(number),
            Shares::Parent => json!({"set": false, "infinite": true, "number": 0}),
        },
        "tres": {
            "run_seconds": list(&|name| json::number(view.load.left_secs.get(name).copied().unwrap_or(0))),
            "group_minutes": list(&|name| json::optional(own.limits.tres(TresLimit::GrpTresMins, name))),
            "usage": list(&|name| json!(view.used.get(name).copied().unwrap_or(0.0))),
        },
        "effective_usage": float(view.effective),
        "usage_normalized": float(view.norm_usage),
        "usage": whole(row.raw_usage()),
        "fairshare": {
            "factor": float(view.factor.unwrap_or(0.0)),
            "level": float(view.level),
        },
        "type": [if own.user.is_some() { "USER" } else { "ASSOCIATION" }],
    })
}

#[cfg(test)]
#[path = "sshare_test.rs"]
mod tests;
