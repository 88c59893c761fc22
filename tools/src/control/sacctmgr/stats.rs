//! `sacctmgr show stats`: how often the service was asked what, and how long that took. Nothing is rolled up, so there are no cycles of
//! that.

use super::Session;
use crate::query::choices;
use garrick_accounts::messages::{AccountsRefusal, AccountsReply, AccountsRequest, Statistics, Took};
use garrick_asking::{accounting::AccountsError, accounts::User, cluster::ClusterError};
use garrick_render::{
    clock::Clock,
    sacctmgr::{
        document::{self, Done},
        kind::begins,
    },
};
use std::{
    cmp::Reverse,
    io::{self, Write},
};

const RULE: &str = "*******************************************************************";
/// Questions that Slurm has too, as sacctmgr of 26.05 names and numbers them.
const OF_SLURM: &[(&str, u32, &str)] = &[
    ("Jobs", 1444, "DBD_GET_JOBS_COND"),
    ("Config", 1466, "DBD_GET_CONFIG"),
    ("Transactions", 1445, "DBD_GET_TXN"),
    ("Entities", 1410, "DBD_GET_ASSOCS"),
    ("Feed", 1474, "DBD_SEND_MULT_MSG"),
];
/// Where the numbers of others begin: above all of Slurm's.
const OTHERS: u32 = 30_000;

/// What is listed first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Count,
    MeanTime,
    Time,
}

/// Shows them. The error is an exit code.
pub(super) fn show(session: &mut Session, words: &[String]) -> Result<i32, i32> {
    let order = match words {
        [] => Order::Count,
        [word] if begins("ave_time", word, 1) => Order::MeanTime,
        [word] if begins("total_time", word, 1) => Order::Time,
        [word, ..] => return Err(session.plain_error(format_args!(" Unknown condition: {word}"))),
    };
    let statistics = match session.service()?.ask(&AccountsRequest::Statistics) {
        Ok(AccountsReply::Statistics(statistics)) => statistics,
        Ok(_) => return Err(session.failed(&ClusterError::Unexpected("accounts").into(), "")),
        Err(AccountsError::Refused(AccountsRefusal::Denied)) => {
            return Err(session.plain_error(
                "sacctmgr: accounting_storage/slurmdbd: acct_storage_p_get_stats: RC:2002 \
                 Your user doesn't have privilege to perform this action",
            ));
        }
        Err(error) => return Err(session.failed(&error, "")),
    };
    let name = |uid: u32| User::by_uid(uid).map_or_else(|| uid.to_string(), |user| user.name);
    if let Some(form) = session.manner.form {
        let meta = choices::meta(session.service()?.cluster().name(), form);
        let kinds = kinds(&statistics, order).into_iter().map(|(_, name, took)| done(name, took));
        let users = users(&statistics, order).into_iter().map(|(uid, took)| done(name(uid), took));
        let (kinds, users): (Vec<Done>, Vec<Done>) = (kinds.collect(), users.collect());
        let document = document::statistics(statistics.since, &kinds, &users, &meta);
        return Ok(session.print(|out| form.write(out, document)));
    }
    Ok(session.print(|out| write(out, &statistics, order, &Clock::system(), &name)))
}

const fn done(name: String, took: Took) -> Done {
    Done { name, count: took.count, micros: took.micros }
}

/// Kinds of questions with their numbers and names, in that order.
fn kinds(statistics: &Statistics, order: Order) -> Vec<(u32, String, Took)> {
    let mut others = OTHERS;
    let mut kinds: Vec<(u32, String, Took)> = Vec::new();
    for (kind, took) in &statistics.kinds {
        let of_slurm = OF_SLURM.iter().find(|(name, ..)| name == kind);
        others += u32::from(of_slurm.is_none());
        let (id, name) = of_slurm.map_or_else(|| (others, styled(kind)), |(_, id, name)| (*id, (*name).to_owned()));
        kinds.push((id, name, *took));
    }
    kinds.sort_by_key(|(id, _, took)| (rank(order, *took), *id));
    kinds
}

/// Users in that order.
fn users(statistics: &Statistics, order: Order) -> Vec<(u32, Took)> {
    let mut users: Vec<(u32, Took)> = statistics.users.iter().map(|(uid, took)| (*uid, *took)).collect();
    users.sort_by_key(|(uid, took)| (rank(order, *took), *uid));
    users
}

fn write(
    out: &mut dyn Write,
    statistics: &Statistics,
    order: Order,
    clock: &Clock,
    name: &dyn Fn(u32) -> String,
) -> io::Result<()> {
    let at = |time| format!("{} ({})", clock.long(time), time.secs());
    writeln!(out, "{RULE}\nsacctmgr show stats output at {}", at(clock.now))?;
    writeln!(out, "Data since                    {}", at(statistics.since))?;
    writeln!(out, "All statistics are in microseconds\n{RULE}\n")?;
    writeln!(out, "Remote Procedure Call statistics by message type")?;
    for (id, name, took) in kinds(statistics, order) {
        writeln!(out, "\t{name:<24} ({id:>5}) {}", counted(took))?;
    }
    writeln!(out, "\nRemote Procedure Call statistics by user")?;
    let mut users = users(statistics, order).into_iter();
    users.try_for_each(|(uid, took)| writeln!(out, "\t{:<20}({uid:>10}) {}", name(uid), counted(took)))
}

const fn mean(took: Took) -> u64 {
    match took.count {
        0 => 0,
        count => took.micros / count,
    }
}

fn rank(order: Order, took: Took) -> Reverse<u64> {
    Reverse(match order {
        Order::Count => took.count,
        Order::MeanTime => mean(took),
        Order::Time => took.micros,
    })
}

fn counted(took: Took) -> String {
    format!("count:{:<6} ave_time:{:<6} total_time:{}", took.count, mean(took), took.micros)
}

/// `ModifyJobs` as `DBD_MODIFY_JOBS`.
fn styled(name: &str) -> String {
    let mut text = "DBD".to_owned();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() {
            text.push('_');
        }
        text.push(letter.to_ascii_uppercase());
    }
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use garrick_model::time::Timestamp;
    use jiff::tz::TimeZone;

    /// Lines as sacctmgr of Slurm 26.05.3 set them.
    #[test]
    fn questions_and_users_are_counted() {
        let mut statistics = Statistics { since: Timestamp::from_secs(1_795_423_083), ..Statistics::default() };
        for (kind, uid, micros) in [("Config", 0, 3), ("Config", 0, 4), ("ModifyJobs", 3000, 2_328_577)] {
            statistics.note(kind, uid, micros);
        }
        let clock = Clock { zone: TimeZone::UTC, now: Timestamp::from_secs(1_795_423_188), format: None };
        let name = |uid: u32| if uid == 0 { "root".to_owned() } else { "slurm".to_owned() };
        let written = |order| {
            let mut out = Vec::new();
            write(&mut out, &statistics, order, &clock, &name).unwrap();
            String::from_utf8(out).unwrap()
        };
        let expected = "*******************************************************************
sacctmgr show stats output at Mon Nov 23 08:39:48 2026 (1795423188)
Data since                    Mon Nov 23 08:38:03 2026 (1795423083)
All statistics are in microseconds
*******************************************************************

Remote Procedure Call statistics by message type
\tDBD_GET_CONFIG           ( 1466) count:2      ave_time:3      total_time:7
\tDBD_MODIFY_JOBS          (30001) count:1      ave_time:2328577 total_time:2328577

Remote Procedure Call statistics by user
\troot                (         0) count:2      ave_time:3      total_time:7
\tslurm               (      3000) count:1      ave_time:2328577 total_time:2328577
";
        assert_eq!(written(Order::Count), expected);
        for order in [Order::MeanTime, Order::Time] {
            let text = written(order);
            assert!(text.find("MODIFY_JOBS").unwrap() < text.find("GET_CONFIG").unwrap(), "{text}");
        }
    }
}
