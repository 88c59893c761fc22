//! The text of `scontrol show assoc_mgr` (scontrol(1); seen in 26.05.3): limits, and in brackets what counts towards them.

use garrick_model::{
    entities::{
        association::Shares,
        limits::{Count, Limits, TresLimit},
        names::AdminLevel,
        qos::QosPreemptMode,
    },
    messages::shares::{AssocView, Load, QosView, SharesBoard, UserView},
    visible::written_out,
};
use std::{
    collections::BTreeMap,
    io::{self, Write},
};

/// What is shown.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    /// Only these users; `None`: all.
    pub users: Option<Vec<String>>,
    /// Only these accounts; `None`: all.
    pub accounts: Option<Vec<String>>,
    /// Only these QOS; `None`: all.
    pub qos: Option<Vec<String>>,
    /// Users; without any of these three, all.
    pub show_users: bool,
    /// Associations.
    pub show_associations: bool,
    /// QOS.
    pub show_qos: bool,
}

/// Looks up the number of a user.
pub type Uid<'u> = &'u dyn Fn(&str) -> Option<u32>;

/// Slurm's number for a user that nobody has.
const NO_UID: u32 = u32::MAX - 1;

/// Writes it.
pub fn write(out: &mut dyn Write, board: &SharesBoard, choice: &Choice, uid: Uid<'_>) -> io::Result<()> {
    let all = !(choice.show_users || choice.show_associations || choice.show_qos);
    let named =
        |names: &Option<Vec<String>>, name: &str| names.as_ref().is_none_or(|names| names.iter().any(|n| n == name));
    writeln!(out, "Current Association Manager state")?;
    if all || choice.show_users {
        let users: Vec<&UserView> = board.users.iter().filter(|user| named(&choice.users, &user.name)).collect();
        heading(out, "User", "users", users.is_empty())?;
        users.iter().try_for_each(|view| user(out, view, uid))?;
    }
    if all || choice.show_associations {
        let takes = |view: &&AssocView| {
            let own = &view.association;
            named(&choice.accounts, &own.account) && own.user.as_ref().is_none_or(|user| named(&choice.users, user))
        };
        let associations: Vec<&AssocView> = board.associations.iter().filter(takes).collect();
        heading(out, "Association", "associations", associations.is_empty())?;
        associations.iter().try_for_each(|view| association(out, view, board, uid))?;
    }
    if all || choice.show_qos {
        let qos: Vec<&QosView> = board.qos.iter().filter(|qos| named(&choice.qos, &qos.record.name)).collect();
        heading(out, "QOS", "QOS", qos.is_empty())?;
        qos.iter().try_for_each(|view| of_qos(out, view, &board.tres, uid))?;
    }
    Ok(())
}

fn heading(out: &mut dyn Write, records: &str, kind: &str, none: bool) -> io::Result<()> {
    match none {
        true => writeln!(out, "\nNo {kind} currently cached in Slurm.\n"),
        false => writeln!(out, "\n{records} Records\n"),
    }
}

fn with_uid(name: &str, uid: Uid<'_>) -> String {
    format!("{}({})", written_out(name), uid(name).unwrap_or(NO_UID))
}

fn user(out: &mut dyn Write, view: &UserView, uid: Uid<'_>) -> io::Result<()> {
    let admin = match view.admin {
        AdminLevel::None => "None",
        AdminLevel::Operator => "Operator",
        AdminLevel::Administrator => "Administrator",
    };
    writeln!(
        out,
        "UserName={} DefAccount={} DefWckey={} AdminLevel={admin}",
        with_uid(&view.name, uid),
        view.default_account.as_deref().unwrap_or("(null)"),
        view.default_wckey.as_deref().unwrap_or(""),
    )
}

/// `5(2)`, or `N(2)` without a limit.
fn of(limit: Option<u64>, used: impl std::fmt::Display) -> String {
    limit.map_or_else(|| format!("N({used})"), |limit| format!("{limit}({used})"))
}

fn count(limits: &Limits, which: Count) -> String {
    limits.count(which).map_or_else(String::new, |limit| limit.to_string())
}

/// `cpu=8(2),mem=N(0)`: all kinds, with what counts.
fn all_of(limits: &Limits, which: TresLimit, names: &[String], used: impl Fn(&str) -> u64) -> String {
    let one = |name: &String| format!("{name}={}", of(limits.tres(which, name), used(name)));
    names.iter().map(one).collect::<Vec<_>>().join(",")
}

/// `cpu=8`: the limited kinds.
fn only(limits: &Limits, which: TresLimit, names: &[String]) -> String {
    let one = |name: &String| Some(format!("{name}={}", limits.tres(which, name)?));
    names.iter().filter_map(one).collect::<Vec<_>>().join(",")
}

/// Whole minutes of amounts times seconds.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "conversions saturate, and are meant to cut"
)]
fn minutes(used: &BTreeMap<String, f64>, name: &str) -> u64 {
    (used.get(name).copied().unwrap_or(0.0) / 60.0) as u64
}

fn left(load: &Load, name: &str) -> u64 {
    load.left_secs.get(name).map_or(0, |secs| secs / 60)
}

fn has(load: &Load, name: &str) -> u64 {
    load.tres.get(name).copied().unwrap_or(0)
}

fn wall(limits: &Limits, secs: f64) -> String {
    of(limits.count(Count::GrpWall), format_args!("{:.2}", secs / 60.0))
}

fn association(out: &mut dyn Write, view: &AssocView, board: &SharesBoard, uid: Uid<'_>) -> io::Result<()> {
    let (own, load, names) = (&view.association, &view.load, &board.tres);
    let limits = &own.limits;
    let user = own.user.as_deref().map(|user| with_uid(user, uid)).unwrap_or_default();
    writeln!(
        out,
        "ClusterName={} Account={} UserName={user} Partition={} Priority={} ID={}",
        own.cluster,
        own.account,
        own.partition.as_deref().unwrap_or(""),
        own.priority.unwrap_or(0),
        own.id.0
    )?;
    let shares = match own.shares {
        Shares::Number(number) => number.to_string(),
        Shares::Parent => "parent".to_owned(),
    };
    writeln!(
        out,
        "    SharesRaw/Norm/Level/Factor={shares}/{:.2}/{}/{:.2}",
        view.norm_shares,
        view.level_shares,
        view.factor.unwrap_or(0.0)
    )?;
    let raw = view.used.get("billing").copied().unwrap_or(0.0);
    writeln!(out, "    UsageRaw/Norm/Efctv={raw:.2}/{:.2}/{:.2}", view.norm_usage, view.effective)?;
    // Of an account, the one above it; a user's is his account.
    let above = own.parent.filter(|_| own.user.is_none()).zip(view.above.as_ref());
    let above = above.map(|(id, name)| format!("{name}({})", id.0)).unwrap_or_default();
    let mut lineage: String = view.lineage.iter().map(|name| format!("/{name}")).collect();
    if let Some(user) = &own.user {
        lineage.push_str(&format!("/0-{user}"));
    }
    let default = if own.is_default { "Yes" } else { "No" };
    writeln!(out, "    ParentAccount={above} Lineage={lineage}/ DefAssoc={default}")?;
    let jobs = [(Count::GrpJobs, load.jobs), (Count::GrpJobsAccrue, load.accruing), (Count::GrpSubmit, load.submitted)];
    let [jobs, accruing, submitted] = jobs.map(|(which, used)| of(limits.count(which), used));
    writeln!(out, "    GrpJobs={jobs} GrpJobsAccrue={accruing}")?;
    writeln!(out, "    GrpSubmitJobs={submitted} GrpWall={}", wall(limits, view.wall_secs))?;
    writeln!(out, "    GrpTRES={}", all_of(limits, TresLimit::GrpTres, names, |name| has(load, name)))?;
    writeln!(
        out,
        "    GrpTRESMins={}",
        all_of(limits, TresLimit::GrpTresMins, names, |name| minutes(&view.used, name))
    )?;
    writeln!(out, "    GrpTRESRunMins={}", all_of(limits, TresLimit::GrpTresRunMins, names, |name| left(load, name)))?;
    writeln!(
        out,
        "    MaxJobs={} MaxJobsAccrue={} MaxSubmitJobs={} MaxWallPJ={}",
        count(limits, Count::MaxJobs),
        count(limits, Count::MaxJobsAccrue),
        count(limits, Count::MaxSubmit),
        count(limits, Count::MaxWall)
    )?;
    writeln!(out, "    MaxTRESPJ={}", only(limits, TresLimit::MaxTresPerJob, names))?;
    writeln!(out, "    MaxTRESPN={}", only(limits, TresLimit::MaxTresPerNode, names))?;
    writeln!(out, "    MaxTRESMinsPJ={}", only(limits, TresLimit::MaxTresMinsPerJob, names))?;
    writeln!(out, "    MinPrioThresh={}", count(limits, Count::MinPrioThreshold))?;
    let comment = if own.comment.is_empty() { "(null)".into() } else { written_out(&own.comment) };
    writeln!(out, "    Comment={comment}")
}

fn of_qos(out: &mut dyn Write, view: &QosView, names: &[String], uid: Uid<'_>) -> io::Result<()> {
    let (record, load) = (&view.record, &view.load);
    let limits = &record.limits;
    writeln!(out, "QOS={}({})", record.name, record.id)?;
    writeln!(out, "    UsageRaw={:.6}", view.used.get("billing").copied().unwrap_or(0.0))?;
    let jobs = [(Count::GrpJobs, load.jobs), (Count::GrpJobsAccrue, load.accruing), (Count::GrpSubmit, load.submitted)];
    let [jobs, accruing, submitted] = jobs.map(|(which, used)| of(limits.count(which), used));
    let wall = wall(limits, view.wall_secs);
    writeln!(out, "    GrpJobs={jobs} GrpJobsAccrue={accruing} GrpSubmitJobs={submitted} GrpWall={wall}")?;
    writeln!(out, "    GrpTRES={}", all_of(limits, TresLimit::GrpTres, names, |name| has(load, name)))?;
    writeln!(
        out,
        "    GrpTRESMins={}",
        all_of(limits, TresLimit::GrpTresMins, names, |name| minutes(&view.used, name))
    )?;
    writeln!(out, "    GrpTRESRunMins={}", all_of(limits, TresLimit::GrpTresRunMins, names, |name| left(load, name)))?;
    writeln!(out, "    MaxWallPJ={}", count(limits, Count::MaxWall))?;
    writeln!(out, "    MaxTRESPJ={}", only(limits, TresLimit::MaxTresPerJob, names))?;
    writeln!(out, "    MaxTRESPN={}", only(limits, TresLimit::MaxTresPerNode, names))?;
    writeln!(out, "    MaxTRESMinsPJ={}", only(limits, TresLimit::MaxTresMinsPerJob, names))?;
    writeln!(out, "    MinPrioThresh={} ", count(limits, Count::MinPrioThreshold))?;
    writeln!(out, "    MinTRESPJ={}", only(limits, TresLimit::MinTresPerJob, names))?;
    let modes: Vec<&str> = record.preempt_mode.iter().map(|mode| preempt_word(*mode)).collect();
    writeln!(out, "    PreemptMode={}", if modes.is_empty() { "OFF".to_owned() } else { modes.join(",") })?;
    writeln!(out, "    Priority={}", record.priority)?;
    writeln!(out, "    Account Limits")?;
    if view.by_account.is_empty() {
        writeln!(out, "        No Accounts")?;
    }
    for (account, load) in &view.by_account {
        part(out, account, "PA", &OF_ACCOUNT, (limits, load), names)?;
    }
    writeln!(out, "    User Limits")?;
    if view.by_user.is_empty() {
        writeln!(out, "        No Users")?;
    }
    for (user, load) in &view.by_user {
        part(out, &with_uid(user, uid), "PU", &OF_USER, (limits, load), names)?;
    }
    Ok(())
}

const fn preempt_word(mode: QosPreemptMode) -> &'static str {
    match mode {
        QosPreemptMode::Suspend => "SUSPEND",
        QosPreemptMode::Requeue => "REQUEUE",
        QosPreemptMode::Cancel => "CANCEL",
        QosPreemptMode::Within => "WITHIN",
        QosPreemptMode::Priority => "PRIORITY",
    }
}

/// The limits of one account, or of one user, in a QOS.
struct Each {
    counts: [Count; 3],
    tres: TresLimit,
    left: TresLimit,
}

const OF_ACCOUNT: Each = Each {
    counts: [Count::MaxJobsPerAccount, Count::MaxJobsAccruePerAccount, Count::MaxSubmitPerAccount],
    tres: TresLimit::MaxTresPerAccount,
    left: TresLimit::MaxTresRunMinsPerAccount,
};

const OF_USER: Each = Each {
    counts: [Count::MaxJobsPerUser, Count::MaxJobsAccruePerUser, Count::MaxSubmitPerUser],
    tres: TresLimit::MaxTresPerUser,
    left: TresLimit::MaxTresRunMinsPerUser,
};

fn part(
    out: &mut dyn Write,
    name: &str,
    mark: &str,
    each: &Each,
    (limits, load): (&Limits, &Load),
    names: &[String],
) -> io::Result<()> {
    let [jobs, accruing, submitted] = each.counts.map(|which| limits.count(which));
    let (jobs, accruing, submitted) = (of(jobs, load.jobs), of(accruing, load.accruing), of(submitted, load.submitted));
    writeln!(out, "      {name}")?;
    writeln!(out, "        MaxJobs{mark}={jobs} MaxJobsAccrue{mark}={accruing} MaxSubmitJobs{mark}={submitted}")?;
    writeln!(out, "        MaxTRES{mark}={}", all_of(limits, each.tres, names, |name| has(load, name)))?;
    writeln!(out, "        MaxTRESRunMins{mark}={}", all_of(limits, each.left, names, |name| left(load, name)))
}

#[cfg(test)]
#[path = "assoc_mgr_test.rs"]
mod tests;
