//! `stail`: the messages between the actors of a job, a node, a partition or the scheduler, from all their processes, one line
//! each in causal order; or how many messages the controller's actors have handled.

pub mod counts;
pub mod order;

use crate::{
    options::table::Arg,
    output::{self, Console},
    query::arguments::{self, Outcome, Table, option},
    telling::Tell as _,
};
use garrick_asking::{
    cluster::ClusterError,
    contact::{self, AskError, Contact},
    runs,
};
use garrick_model::{
    ids::{JobId, Sluid},
    messages::command::{CommandReply, CommandRequest, TraceLine},
    refusal::Refusal,
    time::Timestamp,
};
use garrick_render::clock::Clock;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use order::{Order, Placed};
use std::{
    ffi::OsString,
    io::{self, Write},
    os::fd::AsFd as _,
};

pub(crate) static TABLE: Table = Table {
    program: "stail",
    purpose: "Show the messages of actors with their queue and handling times, in causal order.",
    operands: "job/N|job/SLUID|node/NAME|partition/NAME|scheduler|/PATH...",
    words: &[],
    options: &[
        option(
            "counts",
            None,
            Arg::None,
            "how many messages each actor of the controller handled; without names, all of them",
        ),
        option("follow", Some('f'), Arg::None, "continue with new messages as they come"),
        option("json", None, Arg::None, "one JSON object on each line"),
        option("lines", Some('n'), Arg::Required("count"), "only this number of the latest ones"),
    ],
    misuse: 1,
};

/// How long a stream holds records back, so that late ones from other processes find their place. Milliseconds.
const HOLD_BACK_MS: u16 = 200;
/// Deepest indentation; longer chains go on at that depth.
const DEEPEST: usize = 12;

/// How records are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Runs `stail`. Returns its exit code.
pub fn main(args: Vec<OsString>) -> i32 {
    let console = Console::new("stail");
    let arguments = match arguments::read(&TABLE, &args, &console) {
        Outcome::Go(arguments) => arguments,
        Outcome::Done(code) => return code,
    };
    let form = if arguments.has("json") { Form::Json } else { Form::Text };
    let last = match arguments.value("lines").map(|n| n.parse::<usize>()) {
        None => usize::MAX,
        Some(Ok(n)) => n,
        Some(Err(_)) => {
            console.error("Invalid --lines specification");
            return 1;
        }
    };
    let words = arguments.words();
    if words.is_empty() && !arguments.has("counts") {
        console.error("which actors? name job/N, node/NAME, partition/NAME, scheduler or a path");
        return 1;
    }
    let mut prefixes = Vec::new();
    for word in &words {
        let found = run_in(word).map(|(run, rest)| Ok(format!("/job/{}{rest}", runs::job_of(None, &console, run)?)));
        match found.transpose() {
            Ok(Some(path)) => prefixes.push(path),
            Ok(None) => match prefix(word) {
                Some(path) => prefixes.push(path),
                None => {
                    console.error(format_args!(
                        "{word}: not job/N, job/SLUID, node/NAME, partition/NAME, scheduler or a path that begins with /"
                    ));
                    return 1;
                }
            },
            Err(error) => return tell(&console, word, &error),
        }
    }
    if arguments.has("counts") {
        return counts::main(&console, prefixes, form);
    }
    let follow = arguments.has("follow");
    let jobs: Vec<JobId> = prefixes.iter().filter_map(|prefix| job_of(prefix)).collect();
    let outcome = Contact::open(&console).and_then(|mut contact| {
        // One that the controller has forgotten may still be in the traces, but nothing more comes of it.
        let unknown = unknown_jobs(&mut contact, &jobs)?;
        let refused = || {
            unknown.iter().for_each(|job| console.error(format_args!("job/{job}: {}", Refusal::InvalidJobId)));
            AskError::Refused(Refusal::InvalidJobId)
        };
        if follow && !unknown.is_empty() {
            return Err(refused());
        }
        let nothing_else = unknown.len() == prefixes.len();
        contact.daemon().send(&CommandRequest::Trace { prefixes, follow })?;
        if follow {
            return stream(&mut contact, form, last);
        }
        match collect(&mut contact, form, last)? {
            Some(written) => Ok(written),
            None if nothing_else && !unknown.is_empty() => Err(refused()),
            None => Ok(Ok(())),
        }
    });
    match outcome {
        Ok(written) => output::finish(&console, written, 0),
        // It was told with the job's name.
        Err(AskError::Refused(Refusal::InvalidJobId)) => 1,
        Err(error) => error.tell_as(&console),
    }
}

/// The run that names the job in a word, and what stands behind it: `job/s1M83C5Z9JNYP4/step/0`.
fn run_in(word: &str) -> Option<(Sluid, &str)> {
    let named = word.strip_prefix("job/")?;
    let (run, rest) = named.split_at(named.find('/').unwrap_or(named.len()));
    Some((run.parse().ok()?, rest))
}

/// The job of an actor's path.
fn job_of(path: &str) -> Option<JobId> {
    path.strip_prefix("/job/")?.split('/').next()?.parse().ok().map(JobId)
}

/// Those of the jobs that the controller does not know.
fn unknown_jobs(contact: &mut Contact, jobs: &[JobId]) -> Result<Vec<JobId>, AskError> {
    let mut unknown = Vec::new();
    for job in jobs {
        if contact::known_jobs(contact, &CommandRequest::list_jobs(vec![(*job).into()]))?.is_empty() {
            unknown.push(*job);
        }
    }
    Ok(unknown)
}

fn tell(console: &Console, word: &str, error: &ClusterError) -> i32 {
    error.details().iter().for_each(|line| console.error(line));
    console.error(format_args!("{word}: {error}"));
    1
}

/// The actor path that a word means.
pub(crate) fn prefix(word: &str) -> Option<String> {
    let named = |kind: &str| word.strip_prefix(kind).filter(|name| !name.is_empty() && !name.starts_with('/'));
    if word.len() > 1 && word.starts_with('/') {
        return Some(word.trim_end_matches('/').to_owned());
    }
    if let Some(id) = named("job/") {
        return id.split('/').next()?.parse::<u32>().ok().map(|_| format!("/job/{id}"));
    }
    if named("node/").is_some() || named("partition/").is_some() {
        return Some(format!("/{word}"));
    }
    (word == "scheduler").then(|| "/scheduler".to_owned())
}

/// Writes what there is; `None`: there is nothing.
fn collect(contact: &mut Contact, form: Form, last: usize) -> Result<Option<io::Result<()>>, AskError> {
    let mut order = Order::default();
    loop {
        match contact.daemon().recv()? {
            CommandReply::TraceRecords(lines) => order.add(lines),
            CommandReply::End => break,
            other => return Err(contact.unexpected(&other)),
        }
    }
    let placed = order.by_trace();
    if placed.is_empty() {
        return Ok(None);
    }
    let skip = placed.len().saturating_sub(last);
    let clock = Clock::system();
    Ok(Some(output::stdout(|out| render(&placed[skip..], form, &clock, out))))
}

fn stream(contact: &mut Contact, form: Form, last: usize) -> Result<io::Result<()>, AskError> {
    let clock = Clock::system();
    let mut order = Order::default();
    let mut first = true;
    contact.daemon().set_timeout(None)?;
    loop {
        let mut ended = false;
        while let Some(reply) = contact.daemon().try_next()? {
            match reply {
                CommandReply::TraceRecords(lines) => order.add(lines),
                CommandReply::End => ended = true,
                other => return Err(contact.unexpected(&other)),
            }
        }
        let daemon = contact.daemon();
        let mut fds = [PollFd::new(daemon.as_fd(), PollFlags::POLLIN)];
        let quiet = matches!(poll(&mut fds, PollTimeout::from(HOLD_BACK_MS)), Ok(0));
        if (quiet || ended || order.len() > MOST_HELD) && !order.is_empty() {
            let placed = order.by_time();
            let skip = if first { placed.len().saturating_sub(last) } else { 0 };
            first = false;
            if let Err(error) = output::stdout(|out| render(&placed[skip..], form, &clock, out)) {
                return Ok(Err(error));
            }
        }
        if ended {
            return Ok(Ok(()));
        }
    }
}

/// Records held back at most; beyond that they are written though others may still come.
const MOST_HELD: usize = 2000;

/// Writes records, one line each.
pub fn render(placed: &[Placed], form: Form, clock: &Clock, out: &mut dyn Write) -> io::Result<()> {
    for p in placed {
        match form {
            Form::Json => {
                serde_json::to_writer(&mut *out, &p.line).map_err(io::Error::from)?;
                writeln!(out)?;
            }
            Form::Text => text(p, clock, out)?,
        }
    }
    Ok(())
}

fn text(p: &Placed, clock: &Clock, out: &mut dyn Write) -> io::Result<()> {
    let TraceLine { at_us, process, actor, message, queue_us, handle_us, outcome, .. } = &p.line;
    let at = Timestamp(at_us.div_euclid(1000)).strftime("%H:%M:%S", &clock.zone);
    let micros = at_us.rem_euclid(1_000_000);
    let arrow = match p.depth {
        0 => String::new(),
        n => format!("{}-> ", "  ".repeat(n.min(DEEPEST) - 1)),
    };
    write!(
        out,
        "{at}.{micros:06} {process:<14} {actor:<24} {arrow}{message}  queue {} handle {}",
        took(*queue_us),
        took(*handle_us)
    )?;
    if outcome != "ok" {
        write!(out, "  {outcome}")?;
    }
    writeln!(out)
}

/// `12us`, `3.4ms`, `1.50s`.
fn took(us: u64) -> String {
    match us {
        0..1000 => format!("{us}us"),
        1000..1_000_000 => format!("{}.{}ms", us / 1000, us % 1000 / 100),
        _ => format!("{}.{:02}s", us / 1_000_000, us % 1_000_000 / 10_000),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn words_name_actor_paths() {
        assert_eq!(prefix("job/503").as_deref(), Some("/job/503"));
        assert_eq!(prefix("job/503/step/0").as_deref(), Some("/job/503/step/0"));
        assert_eq!(prefix("node/n1").as_deref(), Some("/node/n1"));
        assert_eq!(prefix("scheduler").as_deref(), Some("/scheduler"));
        assert_eq!(prefix("/journal/").as_deref(), Some("/journal"));
        for wrong in ["job/x", "job/", "503", "/", "nodes/n1"] {
            assert_eq!(prefix(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_run_names_its_job() {
        let sluid = "s1M83C5Z9JNYP4";
        let run = sluid.parse().unwrap();
        assert_eq!(run_in(&format!("job/{sluid}")), Some((run, "")));
        assert_eq!(run_in(&format!("job/{sluid}/step/0")), Some((run, "/step/0")));
        for other in ["job/7", "job/7/step/0", sluid, "node/s1M83C5Z9JNYP4", "job/"] {
            assert_eq!(run_in(other), None, "{other}");
        }
    }

    #[test]
    fn a_line_has_time_process_actor_message_and_how_long() {
        let line = |id, cause, at_us, actor: &str, message: &str, outcome: &str| TraceLine {
            process: "controller".to_owned(),
            seq: id,
            at_us,
            trace: 9,
            id,
            cause,
            actor: actor.to_owned(),
            message: message.to_owned(),
            queue_us: 12,
            handle_us: 3456,
            outcome: outcome.to_owned(),
        };
        let mut order = Order::default();
        order.add(vec![
            line(2, 1, 1_795_255_251_000_300, "/job/503", "Submit", "panic: oh"),
            line(1, 0, 1_795_255_251_000_002, "/controller", "SubmitJob", "ok"),
        ]);
        let clock = Clock { zone: jiff::tz::TimeZone::UTC, now: Timestamp(0), format: None };
        let mut out = Vec::new();
        render(&order.by_trace(), Form::Text, &clock, &mut out).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "10:00:51.000002 controller     /controller              SubmitJob  queue 12us handle 3.4ms\n\
             10:00:51.000300 controller     /job/503                 -> Submit  queue 12us handle 3.4ms  panic: oh\n"
        );
    }
}
