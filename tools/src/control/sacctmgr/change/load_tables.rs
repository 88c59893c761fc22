//! What `load` shows of what is new.

use super::load_plan::Plan;
use garrick_model::{
    entities::{
        association::{AssocId, Association},
        limits::{Count, TresLimit},
    },
    time::long_duration,
};
use garrick_render::sacctmgr::amounts;

/// A column: its name and width.
type Column = (&'static str, usize);

const VALUES: [Column; 19] = [
    ("Share", 9),
    ("GrpTRESMins", 13),
    ("GrpTRESRunMin", 13),
    ("GrpTRES", 13),
    ("GrpJobs", 7),
    ("GrpJobsAccrue", 13),
    ("GrpMem", 7),
    ("GrpNodes", 8),
    ("GrpSubmit", 9),
    ("GrpWall", 11),
    ("MaxTRESMins", 13),
    ("MaxTRES", 13),
    ("MaxTRESPerNode", 14),
    ("MaxJobs", 7),
    ("MaxSubmit", 9),
    ("MaxNodes", 8),
    ("MaxWall", 11),
    ("QOS", 20),
    ("Def QOS", 9),
];

const ACCOUNTS: [Column; 4] = [("Name", 10), ("Descr", 20), ("Org", 20), ("QOS", 20)];
const LINE: &str = "--------------------------------------------------------------\n\n";
const SHORT_LINE: &str = "---------------------------------------------------\n\n";

/// All that is new.
pub fn text(plan: &Plan) -> String {
    let mut text = String::new();
    if let Some(root) = plan.root {
        let cluster = plan.cluster().and_then(|name| plan.after.clusters.get(name));
        text += &format!("Classification: {}\n", cluster.map_or("", |cluster| &cluster.classification));
        text +=
            &associations(plan, [("Account", 10), ("ParentName", 10)], &[root], |a, above| [a.account.clone(), above]);
        text += LINE;
    }
    text += &plan.notes;
    if !plan.accounts.is_empty() {
        let known = plan.accounts.iter().filter_map(|name| plan.after.accounts.get(name));
        let rows = known.map(|account| {
            vec![account.name.clone(), account.description.clone(), account.organization.clone(), String::new()]
        });
        text += &format!("Accounts\n{}{SHORT_LINE}", table(&ACCOUNTS, rows.collect()));
    }
    if !plan.of_accounts.is_empty() {
        let all = associations(plan, [("Account", 10), ("ParentName", 10)], &plan.of_accounts, |a, above| {
            [a.account.clone(), above]
        });
        text += &format!("Account Associations\n{all}{LINE}");
    }
    if !plan.of_users.is_empty() {
        let all = associations(plan, [("User", 10), ("Account", 10)], &plan.of_users, |a, _| {
            [a.user.clone().unwrap_or_default(), a.account.clone()]
        });
        text += &format!("User Associations\n{all}{LINE}");
    }
    text
}

fn associations(
    plan: &Plan,
    first: [Column; 2],
    ids: &[AssocId],
    names: impl Fn(&Association, String) -> [String; 2],
) -> String {
    let columns: Vec<Column> = first.into_iter().chain(VALUES).collect();
    let above =
        |a: &Association| a.parent.and_then(|id| plan.after.associations.get(&id)).map(|above| above.account.clone());
    let row = |a: &Association| {
        let mut row = names(a, above(a).unwrap_or_default()).to_vec();
        row.extend(values(a));
        row
    };
    table(&columns, ids.iter().filter_map(|id| plan.after.associations.get(id)).map(row).collect())
}

fn values(a: &Association) -> Vec<String> {
    let count = |count: Count| a.limits.count(count).map(|number| number.to_string()).unwrap_or_default();
    let wall = |count: Count| {
        a.limits.count(count).map(|minutes| long_duration(minutes.saturating_mul(60))).unwrap_or_default()
    };
    let tres = |limit: TresLimit| amounts::limit(&a.limits, limit);
    // Of the time before TRES: Slurm leaves them empty.
    let none = String::new;
    let own = a.qos.own.iter().flatten().cloned();
    let deltas =
        a.qos.added.iter().map(|name| format!("+{name}")).chain(a.qos.removed.iter().map(|name| format!("-{name}")));
    vec![
        amounts::shares(a.shares),
        tres(TresLimit::GrpTresMins),
        tres(TresLimit::GrpTresRunMins),
        tres(TresLimit::GrpTres),
        count(Count::GrpJobs),
        count(Count::GrpJobsAccrue),
        none(),
        none(),
        count(Count::GrpSubmit),
        wall(Count::GrpWall),
        tres(TresLimit::MaxTresMinsPerJob),
        tres(TresLimit::MaxTresPerJob),
        tres(TresLimit::MaxTresPerNode),
        count(Count::MaxJobs),
        count(Count::MaxSubmit),
        none(),
        wall(Count::MaxWall),
        own.chain(deltas).collect::<Vec<_>>().join(","),
        a.default_qos.clone().unwrap_or_default(),
    ]
}

/// Right-aligned columns; what does not fit ends in `+`.
fn table(columns: &[Column], rows: Vec<Vec<String>>) -> String {
    let fit = |text: &str, width: usize| match text.chars().count() > width {
        true => text.chars().take(width - 1).chain(['+']).collect(),
        false => format!("{text:>width$}"),
    };
    let mut text = String::new();
    for (name, width) in columns {
        text += &format!("{} ", fit(name, *width));
    }
    text.push('\n');
    for (_, width) in columns {
        text += &format!("{} ", "-".repeat(*width));
    }
    text.push('\n');
    for row in rows {
        for ((_, width), value) in columns.iter().zip(&row) {
            text += &format!("{} ", fit(value, *width));
        }
        text.push('\n');
    }
    text
}
