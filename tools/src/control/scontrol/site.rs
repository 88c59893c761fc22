//! `scontrol completing`, `errnumstr`, `getaddrs`, `wait_job`, `token` and `cluster`.

use super::{Session, too_few, too_many};
use crate::query::choices;
use garrick_asking::contact;
use garrick_model::{
    env_vars::SLURM_JWT,
    hostlist::{self, HostList},
    job_query::JobQuery,
    messages::command::{CommandReply, CommandRequest, JobMilestone},
    slurm_error,
    state::NodeBase,
    time::{Timestamp, long_duration},
};
use garrick_render::clock::Clock;
use std::collections::BTreeMap;

/// `completing`: jobs whose nodes are being cleaned, and which of those are down.
pub fn completing(session: &mut Session, words: &[String]) -> i32 {
    if !words.is_empty() {
        return too_many(session, "completing");
    }
    let all = CommandRequest::list_such_jobs(JobQuery::default());
    let jobs = match session.cluster().and_then(|c| contact::jobs(c, &all)) {
        Ok(jobs) => jobs,
        Err(error) => return session.failed("slurm_load_jobs", &error),
    };
    let nodes = match session.cluster().and_then(contact::nodes) {
        Ok(nodes) => nodes,
        Err(error) => return session.failed("slurm_load_nodes", &error),
    };
    let down = |name: &String| nodes.iter().any(|node| node.name == *name && node.base == NodeBase::Down);
    let (clock, now) = (Clock::system(), Timestamp::now());
    session.print(|out| {
        for job in jobs.iter().filter(|job| !job.completing_nodes.is_empty()) {
            let end = job.end_time.unwrap_or(now);
            let since = u64::try_from(now.secs() - end.secs()).unwrap_or(0);
            write!(out, "JobId={} EndTime={} CompletingTime={} ", job.id, clock.at(end), long_duration(since))?;
            let (down, busy): (Vec<_>, Vec<_>) = job.completing_nodes.iter().cloned().partition(down);
            for (state, names) in [("COMPLETING", busy), ("DOWN", down)] {
                if !names.is_empty() {
                    write!(out, "Nodes({state})={} ", names.into_iter().collect::<HostList>())?;
                }
            }
            writeln!(out)?;
        }
        Ok(())
    })
}

/// `errnumstr NUMBER`
pub fn error_text(session: &Session, words: &[String]) -> i32 {
    let [word] = words else { return session.plain_error("one arguments required for keyword:errnumstr") };
    let Ok(number) = word.parse::<i32>() else {
        return session.plain_error("numeric arguments required for keyword:errnumstr");
    };
    let text = text_of(number);
    session.print(|out| writeln!(out, "{text}"))
}

/// Below 1000 they are the system's.
fn text_of(number: i32) -> String {
    match slurm_error::text(number) {
        Some(text) => text.to_owned(),
        None if number == 0 => "No error".to_owned(),
        None if nix::errno::Errno::from_raw(number) != nix::errno::Errno::UnknownErrno => {
            nix::errno::Errno::from_raw(number).desc().to_owned()
        }
        None => format!("Unknown error {number}"),
    }
}

/// `getaddrs NODES`: where the controller reaches them. Names that no node has are passed over.
pub fn addresses(session: &mut Session, words: &[String]) -> i32 {
    let [list] = words else { return session.plain_error("one argument required for keyword:getaddrs") };
    let names = match hostlist::expand(list) {
        Ok(names) => names,
        Err(error) => return session.plain_error(format_args!("Invalid hostlist: {list} ({error})")),
    };
    let nodes = match session.cluster().and_then(contact::nodes) {
        Ok(nodes) => nodes,
        Err(error) => return session.failed("slurm_load_node", &error),
    };
    let by_name: BTreeMap<&str, _> = nodes.iter().map(|node| (node.name.as_str(), node)).collect();
    session.print(|out| {
        let found = names.iter().filter_map(|name| by_name.get(name.as_str()));
        found.into_iter().try_for_each(|node| writeln!(out, "{}: {}:{}", node.name, node.address, node.port))
    })
}

/// `wait_job JOB`: until its nodes are there and its prolog is done.
pub fn wait_job(session: &mut Session, words: &[String]) -> i32 {
    let id = match words {
        [] => return too_few(session, "wait_job"),
        [id] => id,
        _ => return too_many(session, "wait_job"),
    };
    let Ok(selector) = choices::job(id) else { return session.unended_error(format_args!("Invalid job_id {id}")) };
    let request = CommandRequest::WaitJob { job: selector.job, until: JobMilestone::Started };
    let answer = session.cluster().and_then(|c| {
        // It may be long until it starts.
        c.daemon().set_timeout(None)?;
        c.ask(&request)
    });
    match answer {
        Ok(CommandReply::Job(job)) if job.state.is_live() => {
            session.console.line(format_args!("Nodes are ready for job {id}"));
            0
        }
        Ok(_) => {
            session.console.line(format_args!("Problem running job {id}"));
            1
        }
        Err(error) => {
            session.console.line(format_args!("Problem running job {id}"));
            session.console.verbose(error);
            1
        }
    }
}

/// Seconds for which a token holds that names no time, as in Slurm.
const LIFESPAN: u32 = 1800;

/// `token [lifespan=SECONDS] [username=NAME]`: prints one, as it is set for commands.
pub fn token(session: &mut Session, words: &[String]) -> i32 {
    let (mut lifespan_secs, mut user) = (LIFESPAN, None);
    for word in words {
        match word.split_once('=') {
            Some((key, value)) if key.eq_ignore_ascii_case("lifespan") => {
                let secs = if value.eq_ignore_ascii_case("infinite") { Ok(u32::MAX) } else { value.parse() };
                let Ok(secs) = secs else {
                    session.console.error(format_args!("Invalid numeric value \"{value}\" for lifespan."));
                    return 1;
                };
                lifespan_secs = secs;
            }
            Some((key, value)) if key.eq_ignore_ascii_case("username") => user = Some(value.to_owned()),
            _ => return session.plain_error(format_args!("Invalid option: `{word}`")),
        }
    }
    let request = CommandRequest::MakeUserToken { user, lifespan_secs };
    match session.cluster().and_then(|c| match c.ask(&request)? {
        CommandReply::Token(token) => Ok(token),
        other => Err(c.unexpected(&other)),
    }) {
        Ok(token) => session.print(|out| writeln!(out, "{SLURM_JWT}={token}")),
        Err(error) => {
            session.console.error(format_args!("slurm_fetch_token: error with request: {error}"));
            1
        }
    }
}

/// `cluster [NAME]`: clusters are found by their `slurm.conf` alone, so that one is all there is.
pub fn cluster(session: &Session, words: &[String]) -> i32 {
    match words {
        [] => 0,
        [name] => choices::is_own_cluster(name, &session.console).map_or_else(|code| code, |()| 0),
        _ => too_many(session, "cluster"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_numbers_are_slurms_and_the_systems() {
        assert_eq!(text_of(2001), "No partition specified or system default partition");
        assert_eq!(text_of(2017), "Invalid job id specified");
        assert_eq!((text_of(2), text_of(0)), ("No such file or directory".to_owned(), "No error".to_owned()));
        assert_eq!(text_of(99_999), "Unknown error 99999");
    }
}
