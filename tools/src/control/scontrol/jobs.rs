//! `scontrol hold`, `uhold`, `release`, `requeue`, `requeuehold`, `suspend`, `resume`, `top` and `write batch_script`.

use super::{NOT_THEIRS, Session, full_word, too_few, too_many, write_config};
use crate::query::choices;
use garrick_asking::{
    contact::{self, AskError},
    runs,
};
use garrick_model::{
    env_vars::SLURM_JOB_ID,
    ids::JobId,
    job_query::JobQuery,
    messages::command::{CommandReply, CommandRequest, JobAction, JobSelector},
    refusal::Refusal,
    spec::ArraySpec,
};
use nix::sys::signal::{SigSet, Signal};
use std::{collections::BTreeSet, fs, io::Write as _, os::unix::fs::OpenOptionsExt as _};

/// Jobs of that name that are not over.
pub(super) fn of_name(session: &mut Session, name: &str) -> Result<Vec<JobSelector>, i32> {
    let such = JobQuery { names: vec![name.to_owned()], ..JobQuery::live() };
    let request = CommandRequest::list_such_jobs(such.clone());
    let found = session.cluster().and_then(|cluster| contact::jobs(cluster, &request));
    let found = found.map_err(|e| session.failed("slurm_load_jobs", &e))?;
    let found = found.iter().filter(|job| such.takes(job));
    Ok(found.map(|j| JobSelector { job: j.id, tasks: None, het: None, run: None }).collect())
}

/// The jobs that a command names: `503 504_1,505`, or `jobname=demo` (`name=demo`).
fn named(session: &mut Session, words: &[String], told: Told) -> Result<Vec<JobSelector>, i32> {
    let mut jobs = Vec::new();
    for word in words {
        match word.split_once('=') {
            Some((key, name)) if key.eq_ignore_ascii_case("jobname") || key.eq_ignore_ascii_case("name") => {
                jobs.extend(of_name(session, name)?);
                if jobs.is_empty() {
                    return Err(session.plain_error(format_args!("Job name {name} not found")));
                }
            }
            Some((key, ids)) if key.eq_ignore_ascii_case("jobid") || key.eq_ignore_ascii_case("job") => {
                jobs.extend(choices::jobs(ids).map_err(|_| invalid(session, ids, told))?);
            }
            _ => jobs.extend(choices::jobs(word).map_err(|_| invalid(session, word, told))?),
        }
    }
    known(session, &mut jobs)?;
    Ok(jobs)
}

/// Finds those that are named by a run.
pub(super) fn known(session: &Session, jobs: &mut [JobSelector]) -> Result<(), i32> {
    runs::find(&session.console, jobs, &mut [])
        .map_err(|unknown| session.plain_error(format_args!("{} for job {}", unknown.error, unknown.name)))
}

fn invalid(session: &Session, text: &str, told: Told) -> i32 {
    let code = session.said_unless_quiet(format_args!("Invalid job id specified for job {text}"));
    told.last(session, &Refusal::InvalidJobId.to_string());
    code
}

/// How a request about jobs is told of that was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// Each job.
    Each,
    /// Each job; of one that is not the caller's, that he is not the right user.
    AsOwner,
    /// The same, and at last the call: `hold` and `release`.
    WithCall,
}

impl Told {
    /// The refusal in this request's words. `own`: the caller's own job, of which he may not change that.
    fn words(self, refusal: &Refusal, own: bool) -> String {
        match refusal {
            Refusal::AccessDenied if self != Self::Each && !own => NOT_THEIRS.to_owned(),
            other => other.to_string(),
        }
    }

    fn last(self, session: &Session, text: &str) {
        if self == Self::WithCall {
            session.said_unless_quiet(format_args!("slurm_suspend error:{text}"));
        }
    }
}

/// Those of the denied jobs that are the caller's own.
fn own_among(session: &mut Session, results: &[(JobSelector, Result<(), Refusal>)]) -> BTreeSet<JobId> {
    let denied = results.iter().filter(|(_, result)| *result == Err(Refusal::AccessDenied));
    let denied: Vec<JobSelector> = denied.map(|(job, _)| job.clone()).collect();
    if denied.is_empty() {
        return BTreeSet::new();
    }
    let request = CommandRequest::list_jobs(denied);
    let found = session.cluster().and_then(|cluster| contact::known_jobs(cluster, &request)).unwrap_or_default();
    let own = nix::unistd::geteuid().as_raw();
    found.iter().filter(|job| job.uid == own).map(|job| job.array_task.map_or(job.id, |task| task.array_job)).collect()
}

/// Runs one of the commands.
pub fn run(session: &mut Session, command: &str, words: &[String]) -> i32 {
    let (special, words): (Vec<&String>, Vec<&String>) = words.iter().partition(|word| {
        command == "requeuehold" && word.split_once('=').is_some_and(|(key, _)| key.eq_ignore_ascii_case("state"))
    });
    if let Some(wrong) = special.iter().find(|word| !word.to_ascii_lowercase().ends_with("=specialexit")) {
        return session.plain_error(format_args!("Invalid state: {wrong}"));
    }
    let words: Vec<String> = words.into_iter().cloned().collect();
    let told = if matches!(command, "hold" | "uhold" | "release") { Told::WithCall } else { Told::Each };
    let action = match command {
        "hold" => JobAction::Hold,
        "uhold" => JobAction::UserHold,
        "release" => JobAction::Release,
        "requeue" => JobAction::Requeue,
        "requeuehold" if !special.is_empty() => JobAction::RequeueSpecialExit,
        "requeuehold" => JobAction::RequeueHold,
        "suspend" => JobAction::Suspend,
        _ => JobAction::Resume,
    };
    if words.is_empty() {
        return too_few(session, command);
    }
    let jobs = match named(session, &words, told) {
        Ok(jobs) => jobs,
        Err(code) => return code,
    };
    if command.starts_with("requeue") {
        outlive_own_job();
    }
    let answer = session.cluster().and_then(|c| c.ask(&CommandRequest::ControlJob { jobs: jobs.clone(), action }));
    tell(session, answer, &jobs, told)
}

/// A job may requeue itself, and looks at the exit code of that. Its end begins with a SIGTERM to all processes in it, which must
/// not reach this one before the answer does; there is time until the SIGKILL (`KillWait`).
fn outlive_own_job() {
    if std::env::var_os(SLURM_JOB_ID).is_some() {
        // Where it cannot be blocked, the job still is requeued.
        let _ = SigSet::from(Signal::SIGTERM).thread_block();
    }
}

/// `top JOB,JOB,...`
pub fn top(session: &mut Session, words: &[String]) -> i32 {
    let list = match words {
        [] => return too_few(session, "top"),
        [list] => list,
        _ => return too_many(session, "top"),
    };
    let Ok(mut jobs) = choices::jobs(list) else { return invalid(session, list, Told::Each) };
    if let Err(code) = known(session, &mut jobs) {
        return code;
    }
    let action = JobAction::Top;
    let answer = session.cluster().and_then(|c| c.ask(&CommandRequest::ControlJob { jobs: jobs.clone(), action }));
    tell(session, answer, &jobs, Told::Each)
}

/// Tells what came of a request about jobs: a line for each that failed. Tasks of an array are told in lines of their own form,
/// and those of them that had no error too where others had one.
pub fn tell(session: &mut Session, answer: Result<CommandReply, AskError>, jobs: &[JobSelector], told: Told) -> i32 {
    let answer = answer.map(|reply| match reply {
        CommandReply::Said { lines, reply } => {
            lines.iter().for_each(|line| session.console.error(line));
            *reply
        }
        reply => reply,
    });
    let results = match answer {
        Ok(CommandReply::PerJob(results)) => results,
        Ok(_) => Vec::new(),
        Err(AskError::Refused(refusal)) => jobs.iter().map(|job| (job.clone(), Err(refusal.clone()))).collect(),
        Err(error) => return session.failed("slurm_update", &error),
    };
    let own = if told == Told::Each { BTreeSet::new() } else { own_among(session, &results) };
    let mut last = None;
    for (job, result) in &results {
        let words = |refusal: &Refusal| told.words(refusal, own.contains(&job.job));
        match (result, &job.tasks) {
            (Err(refusal), Some(tasks)) => {
                session.said_unless_quiet(format_args!("{}: {}", tasks_text(job, tasks), words(refusal)));
            }
            (Err(refusal), None) => {
                session.said_unless_quiet(format_args!("{} for job {job}", words(refusal)));
            }
            // Named since others of its array refuse.
            (Ok(()), Some(tasks)) if !jobs.contains(job) => {
                session.said_unless_quiet(format_args!("{}: No error", tasks_text(job, tasks)));
            }
            (Ok(()), _) => {}
        }
        last = result.as_ref().err().map(|refusal| (words(refusal), job.tasks.is_some())).or(last);
    }
    if let Some((text, false)) = &last {
        told.last(session, text);
    }
    last.map_or(0, |_| 1)
}

/// `12_1-3,5`
fn tasks_text(job: &JobSelector, tasks: &[(u32, u32, u32)]) -> String {
    format!("{}_{}", job.job, ArraySpec { ranges: tasks.to_vec(), limit: None }.indices_text())
}

/// `write batch_script JOB [FILE|-]`
pub fn write(session: &mut Session, words: &[String]) -> i32 {
    let Some((what, rest)) = words.split_first() else { return too_few(session, "write") };
    match full_word(what, &["batch_script", "config"]) {
        Some("batch_script") => {}
        Some("config") => {
            return match rest {
                [] => write_config::run(session, None),
                [file] => write_config::run(session, Some(file)),
                _ => too_many(session, "write"),
            };
        }
        _ => return session.plain_error(format_args!("invalid write argument:{what}")),
    }
    let (id, file) = match rest {
        [] => return too_few(session, "write"),
        [id] => (id, None),
        [id, file] => (id, Some(file.as_str())),
        _ => return too_many(session, "write"),
    };
    let Ok(mut selector) = choices::job(id) else {
        session.console.fatal(format_args!("Bad job/step specified: {id}: JobID can not be zero"));
        return 1;
    };
    if let Err(unknown) = runs::find(&session.console, std::slice::from_mut(&mut selector), &mut []) {
        return session.plain_error(format_args!("job script retrieval failed: {}", unknown.error));
    }
    let answer = session.cluster().and_then(|c| match c.ask(&CommandRequest::ShowScript { job: selector.job })? {
        CommandReply::Script(script) => Ok(script),
        other => Err(c.unexpected(&other)),
    });
    let script = match answer {
        Ok(script) => script,
        Err(error) => return session.denied("job script retrieval failed: ", &error, NOT_THEIRS),
    };
    if file == Some("-") {
        return session.print(|out| out.write_all(&script));
    }
    let path = file.map_or_else(|| format!("slurm-{id}.sh"), str::to_owned);
    let written = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&path)
        .and_then(|mut f| f.write_all(&script));
    match written {
        Err(error) => session.plain_error(format_args!("failed to write script to {path}: {error}")),
        Ok(()) if session.manner.quiet => 0,
        Ok(()) => session.print(|out| writeln!(out, "batch script for job {id} written to {path}")),
    }
}
