//! Questions of `sacct` and `sreport` to the service, each beside SQL by hand that reads the same rows by their best index: the
//! columns, and the whole body of each row, in which the other facts are. Both are processes of their own, from their start on. An
//! answer that is not that of the SQL fails.

use super::{
    Amounts,
    fill::{USERS, start_of, user_of},
    measured::{Measured, measured, mib},
    service::{Place, Service, asker},
};
use crate::{
    database::Kind,
    minibatch::{
        cluster::{beside, own_program, without_cluster},
        figures::{Findings, median},
        inside::Fallible,
    },
};
use garrick_accounts::{
    filter::{JobFilter, NamedJob},
    messages::{AccountsReply, AccountsRequest},
    tres::CPU,
    usage::UsageQuestion,
};
use garrick_model::{ids::JobId, time::Timestamp};
use serde::{Deserialize, Serialize};
use std::{os::unix::fs::symlink, path::Path, process::Command};

/// The word with which this program is told to ask.
pub const ASK: &str = "--ask";
const HOUR: i64 = 3_600_000;
const DAY: i64 = 24 * HOUR;
/// Each is asked so often, the service and the SQL in turns; the middle ones count.
const TIMES: usize = 3;

/// What is asked of the service.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Asked {
    Jobs { filter: Box<JobFilter>, steps: bool },
    Usage(Box<UsageQuestion>),
}

struct Question {
    what: &'static str,
    asked: Asked,
    /// Statements by hand. Of jobs and steps they have a line for each; of usage one with CPU seconds that were used and waited for.
    sql: Vec<String>,
    /// The same as a command.
    command: Vec<String>,
}

/// Asks everything, and tells.
pub fn questions(place: &Place, amounts: Amounts, findings: &mut Findings) -> Fallible<()> {
    let service = Service::start(place)?;
    let questions = all(place, amounts);
    let (mut asked, mut typed) = (Vec::new(), Vec::new());
    let commands = commands(place)?;
    for question in &questions {
        let (ours, by_hand, peak) = beside_sql(place, &service, question)?;
        let took = |all: &[Measured]| median(all.iter().map(|one| one.seconds).collect());
        let most = |all: &[Measured]| all.iter().map(|one| one.peak).max().unwrap_or(0);
        asked.push(row(
            question.what,
            count(question, &by_hand[0]),
            [took(&ours), took(&by_hand)],
            [most(&ours), peak, most(&by_hand)],
        ));
        if let Some(folder) = &commands {
            service.forget_peak()?;
            let said = command(place, folder, &question.command)?;
            answer_is_right(question, &said, &by_hand[0])?;
            typed.push(row(
                question.what,
                count(question, &said),
                [said.seconds, took(&by_hand)],
                [said.peak, service.peak()?, most(&by_hand)],
            ));
        }
    }
    let head = |who| ["question", "rows", "s", "by SQL, s", "ratio", who, "service, MiB", "by SQL, MiB", "ratio"];
    findings.table("Questions at the service's door, until all of the answer is read", &head("asker, MiB"), asked);
    if commands.is_some() {
        findings.table("The same as commands, which print it", &head("command, MiB"), typed);
    }
    Ok(())
}

fn row(what: &str, rows: String, [ours, by_hand]: [f64; 2], [asker, service, sql]: [u64; 3]) -> Vec<String> {
    let more = super::as_f64(asker + service) / super::as_f64(sql.max(1));
    let cells = [
        format!("{ours:.3}"),
        format!("{by_hand:.3}"),
        format!("{:.1}", ours / by_hand),
        mib(asker),
        mib(service),
        mib(sql),
    ];
    [what.to_owned(), rows].into_iter().chain(cells).chain([format!("{more:.1}")]).collect()
}

/// Rows of an answer; of a report it is one.
fn count(question: &Question, said: &Measured) -> String {
    if matches!(question.asked, Asked::Usage(_)) { "a sum".to_owned() } else { said.lines.to_string() }
}

/// Asks the service and the database in turns. What each came to, and the most memory of the service meanwhile.
fn beside_sql(place: &Place, service: &Service, question: &Question) -> Fallible<(Vec<Measured>, Vec<Measured>, u64)> {
    let (mut ours, mut by_hand) = (Vec::new(), Vec::new());
    service.forget_peak()?;
    for _ in 0..TIMES {
        by_hand.push(measured(&mut place.database.by_hand(&question.sql))?);
        let mut ask = Command::new(own_program()?);
        ask.arg(ASK).arg(&service.door).arg(serde_json::to_string(&question.asked)?);
        let told = measured(&mut ask)?;
        let wanted = match question.asked {
            Asked::Jobs { .. } => by_hand[0].lines.to_string(),
            // One of them separates columns by tabs.
            Asked::Usage(_) => by_hand[0].last.replace('\t', "|"),
        };
        if told.last != wanted {
            return Err(format!("{}: the service says {}, and SQL {wanted}", question.what, told.last).into());
        }
        ours.push(told);
    }
    Ok((ours, by_hand, service.peak()?))
}

/// A folder with the commands, where they are built.
fn commands(place: &Place) -> Fallible<Option<std::path::PathBuf>> {
    let Ok(garrick) = beside("garrick") else { return Ok(None) };
    let folder = place.folder().join("bin");
    std::fs::create_dir_all(&folder)?;
    for name in ["sacct", "sreport"] {
        symlink(&garrick, folder.join(name))?;
    }
    Ok(Some(folder))
}

fn command(place: &Place, folder: &Path, words: &[String]) -> Fallible<Measured> {
    let mut command = Command::new(folder.join(&words[0]));
    without_cluster(&mut command).args(&words[1..]).env("SLURM_CONF", place.conf()).env("TZ", "UTC");
    measured(&mut command)
}

fn answer_is_right(question: &Question, said: &Measured, by_hand: &Measured) -> Fallible<()> {
    let is_right = match question.asked {
        Asked::Jobs { .. } => said.lines == by_hand.lines,
        // Its line: cluster, and what was allocated.
        Asked::Usage(_) => said.last.split('|').nth(1) == by_hand.last.split(['|', '\t']).next(),
    };
    if is_right {
        Ok(())
    } else {
        Err(format!("{}: {said:?}, and SQL: {by_hand:?}", question.command.join(" ")).into())
    }
}

/// The hour in which a job of the middle starts.
fn middle(amounts: Amounts) -> i64 {
    let at = start_of(amounts.jobs / 2, amounts);
    at - at.rem_euclid(HOUR)
}

fn all(place: &Place, amounts: Amounts) -> Vec<Question> {
    let (job, user) = (amounts.jobs / 2, user_of(USERS / 2));
    let at = middle(amounts);
    let (day, week) = ((at, at + DAY), (at - 3 * DAY, at + 4 * DAY));
    let cluster = || vec![place.cluster.clone()];
    let such = |(from, to): (i64, i64)| JobFilter {
        clusters: cluster(),
        start: Some(Timestamp(from)),
        end: Some(Timestamp(to)),
        ..JobFilter::default()
    };
    let one = JobFilter { clusters: cluster(), jobs: vec![NamedJob::job(JobId(job))], ..JobFilter::default() };
    let of_user = JobFilter { users: vec![user], ..such(week) };
    let usage = UsageQuestion {
        start: Timestamp(week.0),
        end: Timestamp(week.1),
        such: JobFilter { clusters: cluster(), ..JobFilter::default() },
        waits: true,
        ..UsageQuestion::default()
    };
    let jobs = |what, filter: JobFilter, steps, which: String, words: &str| Question {
        what,
        asked: Asked::Jobs { filter: Box::new(filter), steps },
        sql: rows_by_hand(place.database.kind, &which, steps),
        command: typed(
            "sacct -n -P -o jobid,jobname,user,account,state,exitcode,submit,start,end,alloccpus,nodelist",
            words,
        ),
    };
    let in_window = |(from, to): (i64, i64)| format!("j.end_ms >= {from} AND j.since_ms <= {to}");
    let window = |(from, to): (i64, i64)| format!("-S {} -E {}", clock(from), clock(to));
    vec![
        jobs("a job and its steps", one, true, format!("j.job = {job}"), &format!("-j {job}")),
        jobs(
            "a user's week, with steps",
            of_user,
            true,
            format!("j.uid = {user} AND {}", in_window(week)),
            &format!("-u {user} {}", window(week)),
        ),
        jobs("a day of all jobs", such(day), false, in_window(day), &format!("-a -X {}", window(day))),
        jobs("a day of all jobs and steps", such(day), true, in_window(day), &format!("-a {}", window(day))),
        Question {
            what: "use of the cluster, a week",
            asked: Asked::Usage(Box::new(usage)),
            sql: vec![sum_by_hand(place.database.kind, week)],
            command: typed(
                "sreport -n -P -t seconds cluster utilization format=cluster,allocated",
                &format!("start={} end={}", clock(week.0), clock(week.1)),
            ),
        },
    ]
}

fn typed(words: &str, more: &str) -> Vec<String> {
    [words, more].join(" ").split(' ').map(ToOwned::to_owned).collect()
}

/// As sacct(1) takes it.
fn clock(ms: i64) -> String {
    jiff::Timestamp::from_millisecond(ms).unwrap_or_default().strftime("%Y-%m-%dT%H:%M:%S").to_string()
}

/// Jobs, and their steps. The body is looked through from end to end.
fn rows_by_hand(kind: Kind, which: &str, steps: bool) -> Vec<String> {
    let body = |of: &str| match kind {
        Kind::Postgres => format!("position('\\xc1'::bytea in {of}.body)"),
        Kind::Sqlite => format!("instr({of}.body, x'c1')"),
        Kind::MariaDb => format!("locate(x'c1', {of}.body)"),
    };
    let columns = "j.sluid, j.uid, j.gid, j.account, j.state, j.since_ms, j.start_ms, j.end_ms, j.cpus, j.nodes";
    let jobs = format!(
        "SELECT j.job, {columns}, {} FROM jobs j WHERE j.cluster = 1 AND {which} ORDER BY j.job, j.sluid",
        body("j")
    );
    let of_jobs = format!(
        "SELECT j.job, s.step, s.task, s.start_ms, s.end_ms, s.cpus, {} FROM jobs j JOIN steps s ON s.cluster = j.cluster AND \
         s.sluid = j.sluid WHERE j.cluster = 1 AND {which} ORDER BY j.job, j.sluid, s.step, s.task",
        body("s")
    );
    if steps { vec![jobs, of_jobs] } else { vec![jobs] }
}

/// CPU seconds that were used, and waited for.
fn sum_by_hand(kind: Kind, (from, to): (i64, i64)) -> String {
    let (least, greatest) = if kind == Kind::Sqlite { ("MIN", "MAX") } else { ("LEAST", "GREATEST") };
    let divide = if kind == Kind::MariaDb { "DIV" } else { "/" };
    let secs = |begin: &str, end: &str| {
        format!("({least}({end}, {to}) {divide} 1000 - {greatest}({begin}, {from}) {divide} 1000)")
    };
    let sum = |secs: String| format!("SUM(CASE WHEN {secs} > 0 THEN cpus * {secs} ELSE 0 END)");
    let (used, waited) = (sum(secs("start_ms", "end_ms")), sum(secs("since_ms", "start_ms")));
    format!("SELECT {used}, {waited} FROM jobs WHERE cluster = 1 AND end_ms >= {from} AND since_ms < {to}")
}

/// This program as the one who asks: at that door, that question. How much it was told.
pub fn ask(door: &str, asked: &str) -> Fallible<()> {
    let mut client = asker(Path::new(door))?;
    match serde_json::from_str(asked)? {
        Asked::Jobs { filter, steps } => {
            let (mut rows, mut after) = (0, None);
            loop {
                client.send(&AccountsRequest::Jobs { filter: filter.clone(), steps, after })?;
                let reply: AccountsReply = client.recv()?;
                let AccountsReply::Jobs { jobs, next, .. } = reply else { return Err(format!("{reply:?}").into()) };
                // A job whose steps did not fit into a page comes again with the rest of them.
                let begun = next.as_ref().is_some_and(|next| next.step.is_some());
                rows += jobs.len() + jobs.iter().map(|job| job.steps.len()).sum::<usize>() - usize::from(begun);
                after = next;
                if after.is_none() {
                    break println!("{rows}");
                }
            }
        }
        Asked::Usage(question) => {
            let (mut used, mut waited, mut after) = (0, 0, None);
            loop {
                client.send(&AccountsRequest::Usage { question: question.clone(), after })?;
                let reply: AccountsReply = client.recv()?;
                let AccountsReply::Usage { rows, more, .. } = reply else { return Err(format!("{reply:?}").into()) };
                used += rows.iter().map(|row| row.sum.of(CPU)).sum::<u64>();
                waited += rows.iter().map(|row| row.sum.waited(CPU)).sum::<u64>();
                after = rows.last().map(|last| Box::new(last.key.clone()));
                if !more || after.is_none() {
                    break println!("{used}|{waited}");
                }
            }
        }
    }
    Ok(())
}
