//! `garrick efficiency` and `seff`: what jobs used of what they asked for.

use super::{
    named, of_own_cluster,
    options::{Asker, RequestError, Zone},
    rows, tell,
    window::{Given, Window},
};
use crate::{
    options::table::Arg,
    output::{self, Console},
    query::arguments::{self, Arguments, Outcome, Table, option},
};
use garrick_accounts::filter::JobFilter;
use garrick_asking::{
    accounting::{Accounts, AccountsError, Rows},
    accounts::User,
};
use garrick_model::time::{Timestamp, system_zone};
use garrick_render::sacct::{
    self as records,
    choice::Choice,
    efficiency::{Efficiency, HEADING, together},
};
use std::{
    ffi::OsString,
    io::{self, Write},
};

/// Options of `garrick efficiency`.
pub static TABLE: Table = Table {
    program: "garrick efficiency",
    purpose: "Show what jobs used of the CPUs, memory and time that they asked for, with advice.",
    operands: "[JOB...]",
    words: &[],
    options: &[
        option("user", Some('u'), Arg::Required("user"), "a line for each job of this user"),
        option(
            "starttime",
            Some('S'),
            Arg::Required("time"),
            "with --user: only jobs since then; now-7days unless given",
        ),
        option("endtime", Some('E'), Arg::Required("time"), "with --user: only jobs that were there before"),
        option("noheader", Some('n'), Arg::None, "no heading"),
        option("parsable2", Some('P'), Arg::None, "with | between values"),
    ],
    misuse: 1,
};

/// Options of `seff`.
pub static SEFF: Table = Table {
    program: "seff",
    purpose: "Show what a job used of the CPUs and the memory that it asked for.",
    operands: "JOB",
    words: &[],
    options: &[option("help", Some('h'), Arg::None, "show this help")],
    misuse: 1,
};

/// Time that `--user` looks back.
const LOOK_BACK: &str = "now-7days";

/// Everybody's jobs until now.
fn everything(now: Timestamp) -> Choice {
    Choice::everything(Timestamp(now.0 + 1000))
}

/// The jobs that are named.
fn of_jobs(words: &[String], now: Timestamp) -> Result<Choice, RequestError> {
    let mut choice = everything(now);
    for word in words {
        choice.such.jobs.extend(named::read(word)?.into_iter().map(super::options::filter_job));
    }
    // Steps are part of what a job used.
    choice.such.jobs.iter_mut().for_each(|named| named.steps = None);
    Ok(choice)
}

/// The jobs of a user.
fn of_user(arguments: &Arguments, name: &str, asker: &Asker) -> Result<Choice, RequestError> {
    let user = User::by_number_or_name(name).ok_or_else(|| RequestError::User(name.to_owned()))?;
    let (start, end) = (arguments.value("starttime"), arguments.value("endtime"));
    let given = Given { start: Some(start.as_deref().unwrap_or(LOOK_BACK)), end: end.as_deref(), ..Given::default() };
    let window = Window::read(given, asker.now, &asker.zone)
        .map_err(|error| RequestError::Window(error, Zone(asker.zone.clone())))?;
    let such = JobFilter { users: vec![user.uid], ..JobFilter::default() };
    Ok(Choice { such, window: records::Window { start: window.start, end: window.end }, ..everything(asker.now) })
}

/// Runs `garrick efficiency`. Returns its exit code.
pub fn main(args: &[OsString], console: &Console) -> i32 {
    let arguments = match arguments::read(&TABLE, args, console) {
        Outcome::Go(arguments) => arguments,
        Outcome::Done(code) => return code,
    };
    let asker = Asker { uid: nix::unistd::Uid::current().as_raw(), now: Timestamp::now(), zone: system_zone() };
    let user = arguments.value("user");
    let choice = match &user {
        Some(user) => of_user(&arguments, user, &asker),
        None if arguments.operands.is_empty() => {
            console.error("name a job, or a user with --user");
            output::stderr(b"Try \"garrick efficiency --help\" for more information\n");
            return 1;
        }
        None => of_jobs(&arguments.words(), asker.now),
    };
    let choice = match choice {
        Ok(choice) => choice,
        Err(error) => {
            console.error(error);
            return 1;
        }
    };
    let found = match find(&choice, console) {
        Ok(found) => found,
        Err(error) => return tell(&error, console),
    };
    let jobs: Vec<Efficiency<'_>> = found.jobs.iter().map(|job| Efficiency::of(job, found.at)).collect();
    if jobs.is_empty() && user.is_none() {
        console.error(format_args!("no record of {}", arguments.words().join(" ")));
        return 1;
    }
    let heading = !arguments.has("noheader");
    let written = output::stdout(|out| match (&user, arguments.has("parsable2")) {
        (None, false) => reports(&jobs, out),
        (_, parsable) => lines(&jobs, heading, parsable, out),
    });
    output::finish(console, written, 0)
}

fn find(choice: &Choice, console: &Console) -> Result<Rows, AccountsError> {
    let (mut choice, mut service) = (choice.clone(), Accounts::open(console)?);
    of_own_cluster(&mut choice, &service);
    rows(&choice, &mut service)
}

/// A paragraph for each job.
fn reports(jobs: &[Efficiency<'_>], out: &mut dyn Write) -> io::Result<()> {
    for (at, job) in jobs.iter().enumerate() {
        if at > 0 {
            writeln!(out)?;
        }
        job.report().iter().try_for_each(|line| writeln!(out, "{line}"))?;
    }
    Ok(())
}

/// A line for each job.
fn lines(jobs: &[Efficiency<'_>], heading: bool, parsable: bool, out: &mut dyn Write) -> io::Result<()> {
    let heading = heading.then(|| HEADING.map(str::to_owned));
    let rows: Vec<[String; 8]> = heading.into_iter().chain(jobs.iter().map(Efficiency::row)).collect();
    if parsable {
        return rows.iter().try_for_each(|row| writeln!(out, "{}", row.join("|")));
    }
    let width = |at: usize| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0);
    let widths: [usize; 8] = std::array::from_fn(width);
    for row in &rows {
        let cells = row.iter().zip(widths).enumerate().map(|(at, (cell, width))| match at {
            // Words stand at the left, numbers at the right.
            0..3 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        writeln!(out, "{}", cells.collect::<Vec<_>>().join("  "))?;
    }
    together(jobs).map_or(Ok(()), |line| writeln!(out, "{line}"))
}

/// Runs `seff`. Returns its exit code.
pub fn seff(args: Vec<OsString>) -> i32 {
    let console = Console::new("seff");
    let arguments = match arguments::read(&SEFF, &args, &console) {
        Outcome::Go(arguments) => arguments,
        Outcome::Done(code) => return code,
    };
    let words = arguments.words();
    let [job] = &words[..] else {
        output::stderr(format!("{}\n", arguments::usage(&SEFF)).as_bytes());
        return 1;
    };
    let choice = match of_jobs(std::slice::from_ref(job), Timestamp::now()) {
        Ok(choice) => choice,
        Err(error) => {
            console.error(error);
            return 1;
        }
    };
    let found = match find(&choice, &console) {
        Ok(found) => found,
        Err(error) => return tell(&error, &console),
    };
    let Some(first) = found.jobs.first() else {
        output::stderr(b"Job not found.\n");
        return 2;
    };
    let lines = Efficiency::of(first, found.at).seff();
    output::finish(&console, output::stdout(|out| lines.iter().try_for_each(|line| writeln!(out, "{line}"))), 0)
}
