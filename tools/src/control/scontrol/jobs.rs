//! `scontrol hold`, `uhold`, `release`, `requeue`, `requeuehold`, `suspend`, `resume`, `top` and `write batch_script`.

use super::{Session, full_word, too_few, too_many};
use crate::query::choices;
use garrick_asking::{
    contact::{self, AskError},
    runs,
};
use garrick_model::{
    job_query::JobQuery,
    messages::command::{CommandReply, CommandRequest, JobAction, JobSelector},
    spec::ArraySpec,
};
use std::{fs, io::Write as _, os::unix::fs::OpenOptionsExt as _};

/// The jobs that a command names: `503 504_1,505`, or `jobname=demo` (`name=demo`).
fn named(session: &mut Session, words: &[String]) -> Result<Vec<JobSelector>, i32> {
    let mut jobs = Vec::new();
    for word in words {
        match word.split_once('=') {
            Some((key, name)) if key.eq_ignore_ascii_case("jobname") || key.eq_ignore_ascii_case("name") => {
                let such = JobQuery { names: vec![name.to_owned()], ..JobQuery::live() };
                let request = CommandRequest::list_such_jobs(such.clone());
                let found = session.cluster().and_then(|cluster| contact::jobs(cluster, &request));
                let found = found.map_err(|e| session.failed("slurm_load_jobs", &e))?;
                let found = found.iter().filter(|job| such.takes(job));
                jobs.extend(found.map(|j| JobSelector { job: j.id, tasks: None, het: None, run: None }));
                if jobs.is_empty() {
                    return Err(session.plain_error(format_args!("Job name {name} not found")));
                }
            }
            Some((key, ids)) if key.eq_ignore_ascii_case("jobid") || key.eq_ignore_ascii_case("job") => {
                jobs.extend(choices::jobs(ids).map_err(|_| invalid(session, ids))?);
            }
            _ => jobs.extend(choices::jobs(word).map_err(|_| invalid(session, word))?),
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

fn invalid(session: &Session, text: &str) -> i32 {
    session.plain_error(format_args!("Invalid job id specified for job {text}"))
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
    let (action, call) = match command {
        "hold" => (JobAction::Hold, "slurm_suspend error:"),
        "uhold" => (JobAction::UserHold, "slurm_suspend error:"),
        "release" => (JobAction::Release, "slurm_suspend error:"),
        "requeue" => (JobAction::Requeue, "slurm_requeue error: "),
        "requeuehold" if !special.is_empty() => (JobAction::RequeueSpecialExit, "slurm_requeue error: "),
        "requeuehold" => (JobAction::RequeueHold, "slurm_requeue error: "),
        "suspend" => (JobAction::Suspend, "slurm_suspend error: "),
        _ => (JobAction::Resume, "slurm_suspend error: "),
    };
    if words.is_empty() {
        return too_few(session, command);
    }
    let jobs = match named(session, &words) {
        Ok(jobs) => jobs,
        Err(code) => return code,
    };
    let answer = session.cluster().and_then(|c| c.ask(&CommandRequest::ControlJob { jobs: jobs.clone(), action }));
    tell(session, answer, &jobs, Some(call))
}

/// `top JOB,JOB,...`
pub fn top(session: &mut Session, words: &[String]) -> i32 {
    let list = match words {
        [] => return too_few(session, "top"),
        [list] => list,
        _ => return too_many(session, "top"),
    };
    let Ok(mut jobs) = choices::jobs(list) else { return invalid(session, list) };
    if let Err(code) = known(session, &mut jobs) {
        return code;
    }
    let action = JobAction::Top;
    let answer = session.cluster().and_then(|c| c.ask(&CommandRequest::ControlJob { jobs: jobs.clone(), action }));
    tell(session, answer, &jobs, None)
}

/// Tells what came of a request about jobs: a line for each that failed, and with `call` a last one naming the call. Tasks of
/// an array are told in lines of their own form, and those of them that had no error too where others had one.
pub fn tell(
    session: &Session,
    answer: Result<CommandReply, AskError>,
    jobs: &[JobSelector],
    call: Option<&str>,
) -> i32 {
    let results = match answer {
        Ok(CommandReply::PerJob(results)) => results,
        Ok(_) => Vec::new(),
        Err(AskError::Refused(refusal)) => jobs.iter().map(|job| (job.clone(), Err(refusal.clone()))).collect(),
        Err(error) => return session.failed("slurm_update", &error),
    };
    let mut last = None;
    for (job, result) in &results {
        match (result, &job.tasks) {
            (Err(refusal), Some(tasks)) => {
                session.plain_error(format_args!("{}: {refusal}", tasks_text(job, tasks)));
            }
            (Err(refusal), None) => {
                session.plain_error(format_args!("{refusal} for job {job}"));
            }
            // Named since others of its array refuse.
            (Ok(()), Some(tasks)) if !jobs.contains(job) => {
                session.plain_error(format_args!("{}: No error", tasks_text(job, tasks)));
            }
            (Ok(()), _) => {}
        }
        last = result.as_ref().err().map(|refusal| (refusal, job.tasks.is_some())).or(last);
    }
    match (last, call) {
        (None, _) => 0,
        (Some((refusal, false)), Some(call)) => session.plain_error(format_args!("{call}{refusal}")),
        (Some(_), _) => 1,
    }
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
        Some("config") => return session.not_supported("scontrol write config"),
        _ => return session.plain_error(format_args!("invalid write argument: {what}")),
    }
    let (id, file) = match rest {
        [] => return too_few(session, "write"),
        [id] => (id, None),
        [id, file] => (id, Some(file.as_str())),
        _ => return too_many(session, "write"),
    };
    let Ok(mut selector) = choices::job(id) else { return invalid(session, id) };
    if let Err(unknown) = runs::find(&session.console, std::slice::from_mut(&mut selector), &mut []) {
        return session.plain_error(format_args!("job script retrieval failed: {}", unknown.error));
    }
    let answer = session.cluster().and_then(|c| match c.ask(&CommandRequest::ShowScript { job: selector.job })? {
        CommandReply::Script(script) => Ok(script),
        other => Err(c.unexpected(&other)),
    });
    let script = match answer {
        Ok(script) => script,
        Err(error) => return session.plain_error(format_args!("job script retrieval failed: {error}")),
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
