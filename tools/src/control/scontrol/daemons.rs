//! `scontrol ping`, `reconfigure` and `shutdown`.

use super::{NOT_THEIRS, Session, too_few, too_many};
use crate::{query::choices, telling::Tell as _};
use garrick_asking::cluster::{Cluster, ClusterError};
use garrick_model::{
    config::{DebugFlags, LogChange, LogLevel},
    hostlist,
    messages::{
        command::{CommandReply, CommandRequest},
        statistics::AccountingQueue,
    },
    refusal::Refusal,
};
use garrick_render::{clock::Clock, json};
use std::time::Instant;

/// Is the controller there?
pub fn ping(session: &mut Session) -> i32 {
    let asked = Instant::now();
    let answer = session.cluster().and_then(|c| c.ask(&CommandRequest::Ping));
    let (host, word, code, accounting) = match answer {
        Ok(CommandReply::Pong { host, accounting, .. }) => (host, "UP", 0, accounting),
        Err(error @ ClusterError::Unknown(_)) => return error.tell_as(&session.console),
        Ok(_) | Err(_) => (controller_host(), "DOWN", 1, AccountingQueue::default()),
    };
    if let Some(form) = session.manner.form {
        let latency_us = u64::try_from(asked.elapsed().as_micros()).unwrap_or(u64::MAX);
        let ping = json::Ping { host, is_up: code == 0, latency_us };
        let document = json::pings(&[ping], &choices::meta(&own_cluster_name(), form));
        // It says whether there is one: that is no failure (seen in 26.05.3).
        return session.print(|out| form.write(out, document));
    }
    let away = away(&accounting, &Clock::system());
    session.print(|out| write!(out, "Slurmctld(primary) at {host} is {word}\n{away}")).max(code)
}

/// What is said of accounting while its service is away; nothing otherwise, as Slurm says nothing of it.
fn away(accounting: &AccountingQueue, clock: &Clock) -> String {
    let AccountingQueue { events, stored, away_since: Some(since) } = accounting else { return String::new() };
    let since = clock.at(*since);
    format!("Slurmdbd is away since {since}: {events} events after position {stored} of the log wait for it\n")
}

/// The cluster's name, whether or not its controller is there.
fn own_cluster_name() -> String {
    Cluster::find(None).map(|cluster| cluster.name().to_owned()).unwrap_or_default()
}

/// The controller's host as configured.
fn controller_host() -> String {
    let cluster = Cluster::find(None).ok();
    let name = cluster.and_then(|c| c.config().controllers.first().map(|host| host.name.clone()));
    name.unwrap_or_else(|| "localhost".to_owned())
}

/// Read `slurm.conf` again.
pub fn reconfigure(session: &mut Session) -> i32 {
    match session.cluster().and_then(|c| c.ask(&CommandRequest::Reconfigure)) {
        Ok(_) => 0,
        Err(error) => session.denied("slurm_reconfigure error:", &error, NOT_THEIRS),
    }
}

/// How much the controller, or the daemons of nodes, log until they read `slurm.conf` again.
pub fn set_debug(session: &mut Session, words: &[String]) -> i32 {
    let (words, nodes) = match with_nodes(words) {
        Ok(found) => found,
        Err(e) => return session.plain_error(e),
    };
    let level = match &words[..] {
        [] => return too_few(session, "setdebug"),
        [level] => level,
        [first, ..] => return session.plain_error(format_args!("Invalid option: {first}")),
    };
    match LogLevel::of(level) {
        Ok(level) => change_log(session, LogChange::Level(level), nodes, "slurm_set_debug_level error:"),
        Err(e) => {
            session.console.verbose(e);
            session.plain_error(format_args!("invalid debug level: {level}"))
        }
    }
}

/// Topics of which the controller, or the daemons of nodes, log more until they read `slurm.conf` again.
pub fn set_debug_flags(session: &mut Session, words: &[String]) -> i32 {
    let (words, nodes) = match with_nodes(words) {
        Ok(found) => found,
        Err(e) => return session.plain_error(e),
    };
    let (mut without, mut with) = (DebugFlags::default(), DebugFlags::default());
    for word in &words {
        let (flags, name) = match word.split_at_checked(1) {
            Some(("+", name)) => (&mut with, name),
            Some(("-", name)) => (&mut without, name),
            _ => {
                return session.plain_error(format_args!(
                    "invalid debug flag: {word}\nUsage: setdebugflags {{+|-}}NAME [{{+|-}}NAME] [nodes=<NODES>]"
                ));
            }
        };
        match DebugFlags::of(name) {
            Ok((found, not_yet)) if not_yet.is_empty() => flags.0.extend(found.0),
            Ok((_, not_yet)) => {
                return session.plain_error(format_args!("debug flag {} is not supported yet", not_yet.join(",")));
            }
            Err(e) => {
                session.console.verbose(e);
                session.console.error(format_args!("Invalid DebugFlag: {name}"));
                return session.plain_error(format_args!("invalid debug flag: {word}"));
            }
        }
    }
    if words.is_empty() {
        return too_few(session, "setdebugflags");
    }
    change_log(session, LogChange::Flags { without, with }, nodes, "slurm_set_debug_flags error:")
}

/// `nodes=LIST` among the words, expanded, and the others.
fn with_nodes(words: &[String]) -> Result<(Vec<&String>, Vec<String>), String> {
    let (mut rest, mut nodes) = (Vec::new(), Vec::new());
    for word in words {
        match word.split_once('=').filter(|(key, _)| key.eq_ignore_ascii_case("nodes")) {
            Some((_, list)) => nodes = hostlist::expand(list).map_err(|e| format!("nodes={list}: {e}"))?,
            None => rest.push(word),
        }
    }
    Ok((rest, nodes))
}

fn change_log(session: &mut Session, change: LogChange, nodes: Vec<String>, call: &str) -> i32 {
    match session.cluster().and_then(|c| c.ask(&CommandRequest::ChangeLog { change, nodes })) {
        Ok(_) => 0,
        Err(error) => session.denied(call, &error, NOT_PERMITTED),
    }
}

/// What Slurm says to those who may not change how much is logged.
const NOT_PERMITTED: &str = "Permission denied";

/// Whether the scheduler keeps a log of its own (`SlurmSchedLogFile`).
pub fn scheduler_log(session: &mut Session, words: &[String]) -> i32 {
    const CALL: &str = "slurm_set_schedlog_level error:";
    let level = match words {
        [] => return too_few(session, "schedloglevel"),
        [level] => level,
        _ => return too_many(session, "schedloglevel"),
    };
    if !["0", "1", "enable", "disable"].contains(&level.to_ascii_lowercase().as_str()) {
        return session.plain_error(format_args!("invalid schedlog level: {level}"));
    }
    if !session.is_admin() {
        return session.plain_error(format_args!("{CALL}{NOT_PERMITTED}"));
    }
    match session.setting("SlurmSchedLogFile") {
        Ok(None) => session.plain_error(format_args!("{CALL}{}", Refusal::Disabled)),
        Ok(Some(_)) => {
            let on = !["0", "disable"].contains(&level.to_ascii_lowercase().as_str());
            change_log(session, LogChange::Scheduler(on), Vec::new(), CALL)
        }
        Err(code) => code,
    }
}

/// How the shares of parents count for their children: a number above 0.
pub fn dampening_factor(session: &Session, words: &[String]) -> i32 {
    let factor = match words {
        [] => return too_few(session, "fsdampeningfactor"),
        [factor] => factor,
        _ => return too_many(session, "fsdampeningfactor"),
    };
    if !factor.parse::<u32>().is_ok_and(|factor| factor > 0) {
        return session.plain_error(format_args!("invalid dampening factor: {factor}"));
    }
    if !session.is_admin() {
        return session.plain_error(format_args!("slurm_set_fs_dampeningfactor error:{NOT_PERMITTED}"));
    }
    session.not_supported("scontrol fsdampeningfactor")
}

/// End the controller and every node daemon; `controller`: that one alone.
pub fn shutdown(session: &mut Session, words: &[String]) -> i32 {
    let controller_only = match words {
        [] => false,
        [what] if what.eq_ignore_ascii_case("slurmctld") => false,
        [what] if what.eq_ignore_ascii_case("controller") => true,
        [what] => {
            return session.plain_error(format_args!("invalid shutdown argument:{what}"));
        }
        _ => return too_many(session, "shutdown"),
    };
    match session.cluster().and_then(|c| c.ask(&CommandRequest::Shutdown { controller_only })) {
        Ok(_) => 0,
        Err(error) => session.denied("slurm_shutdown error:", &error, NOT_THEIRS),
    }
}
/// `takeover [INDEX]`: there is one controller, so that no backup can take over (scontrol(1)).
pub fn take_over(session: &Session, words: &[String]) -> i32 {
    match words {
        [] => session.plain_error(format_args!("slurm_takeover error: {}", Refusal::ControllerUnreachable)),
        [index] => {
            let number = index.parse::<u32>().unwrap_or(0);
            session.plain_error(format_args!("takeover: invalid backup controller index ({number})"))
        }
        _ => session.plain_error("takeover: too many arguments"),
    }
}
