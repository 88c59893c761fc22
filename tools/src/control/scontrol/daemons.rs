//! `scontrol ping`, `reconfigure` and `shutdown`.

use super::{Session, too_many};
use crate::{
    cluster::{Cluster, ClusterError},
    query::asking::Tell as _,
};
use garrick_model::{
    config::LogLevel,
    messages::command::{CommandReply, CommandRequest},
};

/// Is the controller there?
pub fn ping(session: &mut Session) -> i32 {
    let answer = session.cluster().and_then(|c| c.ask(&CommandRequest::Ping));
    let (host, word, code) = match answer {
        Ok(CommandReply::Pong { host, .. }) => (host, "UP", 0),
        Err(error @ ClusterError::Unknown(_)) => return error.tell_as(&session.console),
        Ok(_) | Err(_) => (controller_host(), "DOWN", 1),
    };
    session.print(|out| writeln!(out, "Slurmctld(primary) at {host} is {word}")).max(code)
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
        Err(error) => session.failed("slurm_reconfigure", &error),
    }
}

/// How much the controller logs, until it reads `slurm.conf` again.
pub fn set_debug(session: &mut Session, words: &[String]) -> i32 {
    let level = match words {
        [] => {
            return session.plain_error(format_args!(
                "setdebug: a level is missing (quiet, fatal, error, info, verbose, debug to debug5, or 0 to 9)"
            ));
        }
        [level] => level,
        [_, what] if what.to_ascii_lowercase().starts_with("nodes=") => {
            return session.plain_error(format_args!(
                "setdebug: {what} is not supported yet: a node's level is SlurmdDebug, read again at SIGUSR2"
            ));
        }
        _ => return too_many(session, "setdebug"),
    };
    let level = match LogLevel::of(level) {
        Ok(level) => level,
        Err(e) => return session.plain_error(format_args!("invalid debug level {level}: {e}")),
    };
    match session.cluster().and_then(|c| c.ask(&CommandRequest::SetLogLevel(level))) {
        Ok(_) => 0,
        Err(error) => session.failed("slurm_set_debug_level", &error),
    }
}

/// End the controller and every node daemon; `controller`: that one alone.
pub fn shutdown(session: &mut Session, words: &[String]) -> i32 {
    let controller_only = match words {
        [] => false,
        [what] if what.eq_ignore_ascii_case("slurmctld") => false,
        [what] if what.eq_ignore_ascii_case("controller") => true,
        [what] => {
            return session
                .plain_error(format_args!("invalid shutdown option: {what} (slurmctld, controller or nothing)"));
        }
        _ => return too_many(session, "shutdown"),
    };
    match session.cluster().and_then(|c| c.ask(&CommandRequest::Shutdown { controller_only })) {
        Ok(_) => 0,
        Err(error) => session.failed("slurm_shutdown", &error),
    }
}
