//! Reports of accounts, users and WCKeys: lines with amounts of one TRES each.

use super::{
    Facts, Report,
    tree::{Tree, account, by},
};
use crate::{
    field_table::{self, Kind as Long},
    sacctmgr::kind::begins,
};
use garrick_accounts::usage::{UsageKey, UsageRow, UsageSum};
use garrick_model::entities::NORMAL;
use std::collections::{BTreeMap, BTreeSet};

/// A line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line {
    cluster: String,
    account: String,
    login: String,
    proper: String,
    wckey: String,
    qos: String,
    tres: String,
    count: String,
    used: String,
    energy: String,
}

/// What stands in a field.
pub type Shown = fn(&Line) -> &str;
/// A column.
pub type Column = field_table::Column<Shown>;
type Field = field_table::Field<Shown>;

const fn field(name: &'static str, width: usize, value: Shown) -> Field {
    Field { name, width, left: false, kind: Long::Text, value }
}

const fn number(name: &'static str, width: usize, value: Shown) -> Field {
    Field { kind: Long::Number, ..field(name, width, value) }
}

static USED: Field = number("Used", 8, |line| &line.used);
static ENERGY: Field = number("Energy", 8, |line| &line.energy);
/// With percentages beside the amounts.
static WIDE: [Field; 2] = [number("Used", 17, |line| &line.used), number("Energy", 17, |line| &line.energy)];

static FIELDS: [(&str, Field); 9] = [
    ("accounts", field("Account", 15, |line| &line.account)),
    ("clusters", field("Cluster", 9, |line| &line.cluster)),
    ("logins", field("Login", 9, |line| &line.login)),
    ("users", field("Login", 9, |line| &line.login)),
    ("proper", field("Proper Name", 15, |line| &line.proper)),
    ("qos", field("QOS", 12, |line| &line.qos)),
    ("trescount", field("TRES Count", 10, |line| &line.count)),
    ("tresname", field("TRES Name", 14, |line| &line.tres)),
    ("wckey", field("WCKey", 15, |line| &line.wckey)),
];

fn find(name: &str, wide: bool) -> Option<&'static Field> {
    let known = FIELDS.iter().find(|(known, _)| begins(known, name, 1)).map(|(_, field)| field);
    known.or_else(|| match name {
        _ if begins("used", name, 1) => Some(if wide { &WIDE[0] } else { &USED }),
        _ if begins("energy", name, 1) => Some(if wide { &WIDE[1] } else { &ENERGY }),
        _ => None,
    })
}

/// The columns that are asked for, or the usual ones; `several`: TRES are told apart.
///
/// # Errors
/// The first field that there is not.
pub fn columns(report: Report, format: Option<&str>, set: (bool, bool, bool)) -> Result<Vec<Column>, String> {
    let (several, wide, tree) = set;
    let fields = match report {
        Report::AccountByQos => "cluster,accounts,qos",
        Report::UserByAccount | Report::TopUsage => "cluster,login,proper,accounts",
        Report::UserByWckey => "cluster,login,proper,wckey",
        Report::WckeyByUser => "cluster,wckey,login,proper",
        _ => "cluster,accounts,login,proper",
    };
    let energy = if matches!(report, Report::UserByWckey | Report::WckeyByUser) { "" } else { ",energy" };
    let usual = format!("{fields}{}", if several { ",tresname,used".to_owned() } else { format!(",used{energy}") });
    let columns = field_table::chosen(format.unwrap_or(&usual), |name| find(name, wide))?;
    let indented = |column: Column| match column.field.name {
        "Account" if tree => column.left_if_usual(20),
        _ => column,
    };
    Ok(columns.into_iter().map(indented).collect())
}

/// What is asked for beyond the window.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    /// Accounts, with those below them.
    pub accounts: Vec<String>,
    /// Users.
    pub users: Vec<String>,
    /// WCKeys.
    pub wckeys: Vec<String>,
    /// Accounts are indented.
    pub tree: bool,
    /// A user's accounts are one line.
    pub group: bool,
    /// So many lines of `TopUsage`.
    pub top: usize,
}

impl Choice {
    fn user(&self, user: &str) -> bool {
        self.users.is_empty() || self.users.iter().any(|known| known == user)
    }

    fn wckey(&self, wckey: &str) -> bool {
        self.wckeys.is_empty() || self.wckeys.iter().any(|known| known == wckey)
    }

    /// Is the account one of those, or below one?
    fn account(&self, line: &[String]) -> bool {
        self.accounts.is_empty() || line.iter().any(|name| self.accounts.contains(name))
    }
}

impl Line {
    fn of(cluster: &str) -> Self {
        Self { cluster: cluster.to_owned(), ..Self::default() }
    }

    fn user(mut self, facts: &Facts<'_>, user: &str) -> Self {
        (self.login, self.proper) = (user.to_owned(), (facts.proper)(user));
        self
    }

    /// A line for each TRES.
    fn with(&self, facts: &Facts<'_>, sum: &UsageSum) -> Vec<Self> {
        let amount = |tres: &str| facts.amount(&self.cluster, tres, sum.of(tres));
        let cluster = facts.entities.clusters.get(&self.cluster);
        let count = |tres: &str| cluster.and_then(|cluster| facts.count(cluster, tres));
        let line = |tres: &String| Self {
            tres: tres.clone(),
            count: count(tres).map_or_else(String::new, |count| count.to_string()),
            used: amount(tres),
            energy: amount("energy"),
            ..self.clone()
        };
        facts.tres.iter().map(line).collect()
    }
}

/// Was any of what is reported used?
fn used(facts: &Facts<'_>, sum: &UsageSum) -> bool {
    facts.tres.iter().any(|tres| sum.of(tres) > 0)
}

/// The WCKey of a row, as it was recorded with the job: a `*` before the user's default one, where the job named none (seen in Slurm
/// 26.05). What is his default today says nothing of a job without a record of it.
pub(super) fn wckey(key: &UsageKey) -> String {
    key.wckey.clone().unwrap_or_else(|| "*".to_owned())
}

/// The lines of a report.
pub fn lines(report: Report, rows: &[UsageRow], facts: &Facts<'_>, choice: &Choice) -> Vec<Line> {
    match report {
        Report::AccountByQos => accounts_by_qos(rows, facts, choice),
        Report::UserByAccount => users(rows, facts, choice),
        Report::TopUsage if choice.group => grouped(rows, facts, choice),
        Report::TopUsage => {
            let mut lines = users(rows, facts, choice);
            lines.truncate(choice.top.saturating_mul(facts.tres.len()));
            lines
        }
        Report::UserByWckey => users_by_wckey(rows, facts, choice),
        Report::WckeyByUser => wckeys_by_user(rows, facts, choice),
        _ => accounts_by_user(rows, facts, choice),
    }
}

fn clusters(rows: &[UsageRow]) -> BTreeSet<&str> {
    rows.iter().map(|row| row.key.cluster.as_str()).collect()
}

/// Each account with what it and those below it used, then its users, in the order of the tree.
fn accounts_by_user(rows: &[UsageRow], facts: &Facts<'_>, choice: &Choice) -> Vec<Line> {
    let mut lines = Vec::new();
    for cluster in clusters(rows) {
        let tree = Tree::of(facts.entities, cluster);
        // By path; users before the accounts below.
        let mut found: BTreeMap<(String, Option<String>), (Line, UsageSum)> = BTreeMap::new();
        for row in rows.iter().filter(|row| row.key.cluster == *cluster && choice.user(&row.key.user)) {
            let above = tree.line(account(&row.key));
            for (depth, name) in above.iter().enumerate() {
                if choice.users.is_empty() && choice.account(&above[..=depth]) {
                    add(&mut found, &tree, (cluster, name, depth), None, (facts, choice), &row.sum);
                }
            }
            if choice.account(&above) {
                let place = (cluster, account(&row.key), above.len());
                add(&mut found, &tree, place, Some(&row.key.user), (facts, choice), &row.sum);
            }
        }
        let used = found.into_values().filter(|(_, sum)| used(facts, sum));
        lines.extend(used.flat_map(|(line, sum)| line.with(facts, &sum)));
    }
    lines
}

fn add(
    found: &mut BTreeMap<(String, Option<String>), (Line, UsageSum)>,
    tree: &Tree,
    (cluster, name, depth): (&str, &str, usize),
    user: Option<&str>,
    (facts, choice): (&Facts<'_>, &Choice),
    sum: &UsageSum,
) {
    let path = user.map_or_else(|| tree.path(name), |user| format!("{}0-{user}/", tree.path(name)));
    let entry = found.entry((path, user.map(str::to_owned))).or_insert_with(|| {
        let indent = if choice.tree { depth } else { 0 };
        let line = Line { account: format!("{}{name}", " ".repeat(indent)), ..Line::of(cluster) };
        (user.map_or(line.clone(), |user| line.user(facts, user)), UsageSum::default())
    });
    entry.1.merge(sum);
}

/// Each account with what it and those below it used, by QOS.
fn accounts_by_qos(rows: &[UsageRow], facts: &Facts<'_>, choice: &Choice) -> Vec<Line> {
    let mut lines = Vec::new();
    for cluster in clusters(rows) {
        let tree = Tree::of(facts.entities, cluster);
        let mut found: BTreeMap<(String, u32, String), (Line, UsageSum)> = BTreeMap::new();
        for row in rows.iter().filter(|row| row.key.cluster == *cluster) {
            let above = tree.line(account(&row.key));
            // A job that asks for none has that one.
            let qos = row.key.qos.as_deref().unwrap_or(NORMAL);
            let number = facts.entities.qos.get(qos).map_or(u32::MAX, |qos| qos.id);
            for (depth, name) in above.iter().enumerate().filter(|(depth, _)| choice.account(&above[..=*depth])) {
                let indent = if choice.tree { depth } else { 0 };
                let account = format!("{}{name}", " ".repeat(indent));
                let line = Line { account, qos: qos.to_owned(), ..Line::of(cluster) };
                let entry =
                    found.entry((tree.path(name), number, qos.to_owned())).or_insert((line, UsageSum::default()));
                entry.1.merge(&row.sum);
            }
        }
        let used = found.into_values().filter(|(_, sum)| used(facts, sum));
        lines.extend(used.flat_map(|(line, sum)| line.with(facts, &sum)));
    }
    lines
}

/// Lines by what was used of the first TRES, the most first.
fn most_first(facts: &Facts<'_>, found: Vec<(Line, UsageSum)>) -> Vec<Line> {
    let first = facts.tres.first().map_or("", String::as_str);
    let mut found: Vec<(Line, UsageSum)> = found.into_iter().filter(|(_, sum)| used(facts, sum)).collect();
    // A stable order: the same question has the same answer.
    found.sort_by_key(|(_, sum)| std::cmp::Reverse(sum.of(first)));
    let mut by_cluster: BTreeMap<String, Vec<(Line, UsageSum)>> = BTreeMap::new();
    found.into_iter().for_each(|one| by_cluster.entry(one.0.cluster.clone()).or_default().push(one));
    by_cluster.into_values().flatten().flat_map(|(line, sum)| line.with(facts, &sum)).collect()
}

fn users(rows: &[UsageRow], facts: &Facts<'_>, choice: &Choice) -> Vec<Line> {
    let mut found = Vec::new();
    for ((cluster, (user, name)), sum) in by(rows, |key| (key.user.clone(), account(key).to_owned())) {
        let named = choice.accounts.is_empty() || choice.accounts.contains(&name);
        if choice.user(&user) && named {
            let line = Line { account: name, ..Line::of(&cluster) };
            found.push((line.user(facts, &user), sum));
        }
    }
    most_first(facts, found)
}

/// Each user in one line, with all his accounts.
fn grouped(rows: &[UsageRow], facts: &Facts<'_>, choice: &Choice) -> Vec<Line> {
    let mut found = Vec::new();
    let named =
        |row: &&UsageRow| choice.accounts.is_empty() || choice.accounts.iter().any(|name| name == account(&row.key));
    let rows: Vec<UsageRow> = rows.iter().filter(named).cloned().collect();
    for ((cluster, user), sum) in by(&rows, |key| key.user.clone()) {
        let its = |row: &&UsageRow| row.key.cluster == cluster && row.key.user == user;
        let names: BTreeSet<&str> = rows.iter().filter(its).map(|row| account(&row.key)).collect();
        if choice.user(&user) {
            let account = names.into_iter().collect::<Vec<_>>().join(", ");
            found.push((Line { account, ..Line::of(&cluster) }.user(facts, &user), sum));
        }
    }
    let mut lines = most_first(facts, found);
    lines.truncate(choice.top.saturating_mul(facts.tres.len()));
    lines
}

fn users_by_wckey(rows: &[UsageRow], facts: &Facts<'_>, choice: &Choice) -> Vec<Line> {
    let mut found = Vec::new();
    for ((cluster, (user, wckey)), sum) in by(rows, |key| (key.user.clone(), wckey(key))) {
        if choice.user(&user) && choice.wckey(&wckey) {
            found.push((Line { wckey, ..Line::of(&cluster) }.user(facts, &user), sum));
        }
    }
    most_first(facts, found)
}

/// Each WCKey with what was used under it, then its users.
fn wckeys_by_user(rows: &[UsageRow], facts: &Facts<'_>, choice: &Choice) -> Vec<Line> {
    let of_user = |key: &UsageKey| (wckey(key), Some(key.user.clone()));
    let mut sums = by(rows, of_user);
    sums.extend(by(rows, |key| (wckey(key), None)));
    let mut lines = Vec::new();
    for ((cluster, (wckey, user)), sum) in sums {
        let wanted = user.as_deref().map_or(choice.users.is_empty(), |user| choice.user(user));
        if wanted && choice.wckey(&wckey) && used(facts, &sum) {
            let line = Line { wckey, ..Line::of(&cluster) };
            let line = user.map_or(line.clone(), |user| line.user(facts, &user));
            lines.extend(line.with(facts, &sum));
        }
    }
    lines
}

/// The heading of the report, without window and units.
pub fn title(report: Report, top: usize) -> String {
    match report {
        Report::AccountByUser => "Cluster/Account/User Utilization".to_owned(),
        Report::AccountByQos => "Cluster/Account/QOS Utilization".to_owned(),
        Report::UserByAccount => "Cluster/User/Account Utilization".to_owned(),
        Report::UserByWckey => "Cluster/User/WCKey Utilization".to_owned(),
        Report::WckeyByUser => "Cluster/WCKey/User Utilization".to_owned(),
        Report::Cluster => "Cluster Utilization".to_owned(),
        Report::SizesByAccount | Report::SizesByAccountAndWckey => "Job Sizes".to_owned(),
        Report::SizesByWckey => "Job Sizes by Wckey".to_owned(),
        Report::Reservation => "Reservation Utilization".to_owned(),
        Report::TopUsage => format!("Top {top} Users"),
    }
}

#[cfg(test)]
#[path = "usage_test.rs"]
mod tests;
