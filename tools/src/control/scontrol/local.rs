//! `scontrol listpids`, `listjobs`, `liststeps`, `pidinfo` and `getent`: what runs on this host, without any daemon. Processes of
//! jobs are known by their cgroup, which nobody else can leave or enter; where there are no cgroups, by what they have in
//! their environment, as far as the caller may read that.

use super::{Session, too_many};
use crate::query::choices;
use garrick_asking::{accounts, cluster::Cluster};
use garrick_model::{
    hostlist,
    ids::JobId,
    messages::command::{CommandReply, CommandRequest},
    state::StepState,
    view::StepView,
};
use garrick_render::json;
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    io::Write,
    path::Path,
};

/// A process of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Process {
    pid: u32,
    parent: u32,
    uid: u32,
    job: u32,
    node: Option<String>,
    /// `0`, `batch`; `None`: the caller may not know.
    step: Option<String>,
    /// Task on this node, and of the step, where it is that task's first process.
    task: Option<(u32, u32)>,
}

/// What one file of cgroups or an environment says of a process.
#[derive(Debug, Default, PartialEq, Eq)]
struct Belongs {
    job: Option<u32>,
    node: Option<String>,
    step: Option<String>,
}

/// `.../garrick/<cluster>/<node>/job_<id>.<run>/tasks/...`, in one of the hierarchies.
fn of_cgroups(text: &str, clusters: &BTreeSet<String>) -> Belongs {
    let of_path = |line: &str| {
        let (_, below) = line.split_once("/garrick/")?;
        let mut parts = below.split('/');
        let (cluster, node, run, kind) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let (job, _) = run.strip_prefix("job_")?.split_once('.')?;
        let step = parts.next().and_then(|part| part.strip_prefix("step_"));
        (clusters.contains(cluster) && kind != "mgr").then_some(Belongs {
            job: Some(job.parse().ok()?),
            node: Some(node.to_owned()),
            step: step.map(str::to_owned),
        })
    };
    let mut found: Vec<Belongs> = text.lines().filter_map(of_path).collect();
    let with_step = found.iter().position(|belongs| belongs.step.is_some()).unwrap_or(0);
    if found.is_empty() { Belongs::default() } else { found.swap_remove(with_step) }
}

/// Variables of an environment as the kernel shows it.
fn variables(environ: &[u8]) -> BTreeMap<String, String> {
    let text = String::from_utf8_lossy(environ);
    text.split('\0').filter_map(|pair| pair.split_once('=')).map(|(k, v)| (k.to_owned(), v.to_owned())).collect()
}

/// How a step is called by the number in its environment.
fn step_name(number: &str) -> String {
    match number {
        "-5" | "4294967291" => "batch".to_owned(),
        "-4" | "4294967292" => "extern".to_owned(),
        "-6" | "4294967290" => "interactive".to_owned(),
        other => other.to_owned(),
    }
}

fn read(folder: &Path, pid: u32, clusters: &BTreeSet<String>) -> Option<Process> {
    let status = fs::read_to_string(folder.join("status")).ok()?;
    let number = |key: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(key))?;
        line.split_whitespace().next()?.parse().ok()
    };
    let groups = of_cgroups(&fs::read_to_string(folder.join("cgroup")).unwrap_or_default(), clusters);
    // Another user's environment is not readable: then the cgroup has to do.
    let env = variables(&fs::read(folder.join("environ")).unwrap_or_default());
    let get = |name: &str| env.get(name).and_then(|value| value.parse().ok());
    let step = env.get("SLURM_STEP_ID").map(|number| step_name(number)).or(groups.step);
    let job = match groups.job {
        Some(job) => job,
        // A launcher has no task's number: without cgroups only tasks are known.
        None => get("SLURM_LOCALID").and(get("SLURM_JOB_ID"))?,
    };
    let node = groups.node.or_else(|| env.get("SLURMD_NODENAME").cloned());
    let task = get("SLURM_LOCALID").zip(get("SLURM_PROCID"));
    // It waits among the processes that it launched.
    if fs::read(folder.join("cmdline")).is_ok_and(|words| words.starts_with(b"stepd\0launcher\0")) {
        return None;
    }
    Some(Process { pid, parent: number("PPid:")?, uid: number("Uid:")?, job, node, step, task })
}

/// All processes of jobs on this host that belong to the cluster and, where one is named, to that node.
fn processes(session: &Session, node: Option<&str>) -> Result<Vec<Process>, i32> {
    let cluster = Cluster::find(None).map_err(|error| session.plain_error(error))?;
    let clusters =
        cluster.doors().iter().filter_map(|door| door.parent()?.file_name()?.to_str().map(str::to_owned)).collect();
    let listed = fs::read_dir("/proc").map_err(|error| session.plain_error(format_args!("/proc: {error}")))?;
    let found = listed.flatten().filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        read(&entry.path(), pid, &clusters)
    });
    let mut found: Vec<Process> = found.filter(|p| node.is_none_or(|node| p.node.as_deref() == Some(node))).collect();
    found.sort_by_key(|process| process.pid);
    only_first_of_tasks(&mut found);
    Ok(found)
}

/// A task's number is that of its first process, whose parent is of no task of that step.
fn only_first_of_tasks(found: &mut [Process]) {
    let of: BTreeMap<u32, (u32, Option<String>)> =
        found.iter().filter(|p| p.task.is_some()).map(|p| (p.pid, (p.job, p.step.clone()))).collect();
    for process in found {
        if of.get(&process.parent).is_some_and(|(job, step)| (*job, step) == (process.job, &process.step)) {
            process.task = None;
        }
    }
}

fn text(number: Option<u32>) -> String {
    number.map_or_else(|| "-".to_owned(), |number| number.to_string())
}

fn step_text(process: &Process) -> &str {
    process.step.as_deref().unwrap_or("-")
}

/// `listpids [JOB[.STEP]] [NODE]`
pub fn pids(session: &mut Session, words: &[String]) -> i32 {
    let (what, node) = match words {
        [] => (None, None),
        [what] => (Some(what.as_str()), None),
        [what, node] => (Some(what.as_str()), Some(node.as_str())),
        _ => return too_many(session, "listpids"),
    };
    let wanted = match what.filter(|what| *what != "*").map(job_and_step) {
        Some(None) => {
            return session.plain_error(format_args!("\"{}\" does not look like a jobid", what.unwrap_or_default()));
        }
        Some(Some(wanted)) => Some(wanted),
        None => None,
    };
    let mut found = match processes(session, node) {
        Ok(found) => found,
        Err(code) => return code,
    };
    let any = !found.is_empty();
    found.retain(|process| {
        wanted.as_ref().is_none_or(|(job, step)| {
            process.job == *job && step.as_ref().is_none_or(|step| process.step.as_ref() == Some(step))
        })
    });
    let at = node.unwrap_or("(null)");
    match wanted {
        _ if !found.is_empty() => {}
        // The document says by its empty list that there is none; the exit code stays (seen in 26.05.3).
        _ if session.manner.form.is_some() => return list(session, "pids", Vec::new(), |_| Ok(())).max(1),
        None => return session.plain_error("No job steps exist on this node."),
        Some((job, None)) if any => {
            return session.plain_error(format_args!("There are no steps for job {job} on node {at}."));
        }
        Some((job, None)) => return session.plain_error(format_args!("JobId={job} does not exist on node {at}.")),
        Some((job, Some(step))) => {
            return session.plain_error(format_args!("StepId={job}.{step} does not exist on node {at}."));
        }
    }
    list(session, "pids", found.iter().map(pid_document).collect(), |out| {
        writeln!(out, "{:<8} {:<8} {:<8} {:<7} GLOBALID", "PID", "JOBID", "STEPID", "LOCALID")?;
        found.iter().try_for_each(|p| {
            let (local, global) = (text(p.task.map(|task| task.0)), text(p.task.map(|task| task.1)));
            writeln!(out, "{:<8} {:<8} {:<8} {local:<7} {global:<8} ", p.pid, p.job, step_text(p))
        })
    })
}

/// `503`, `503.0` or `503.batch`.
fn job_and_step(text: &str) -> Option<(u32, Option<String>)> {
    let (job, step) = text.split_once('.').map_or((text, None), |(job, step)| (job, Some(step)));
    let known = |step: &str| ["batch", "extern", "interactive"].contains(&step) || step.parse::<u32>().is_ok();
    let job = job.parse().ok()?;
    step.is_none_or(known).then(|| (job, step.map(str::to_owned)))
}

fn pid_document(process: &Process) -> Value {
    let task = |number: Option<u32>| json::optional(number.map(u64::from));
    json!({
        "global_task_id": task(process.task.map(|task| task.1)),
        "local_task_id": task(process.task.map(|task| task.0)),
        "job_id": process.job,
        "pid": process.pid,
        "step_id": step_text(process),
    })
}

/// A job, its step, and the user whose processes those are.
type Step = (u32, String, u32);

/// The steps here, each once.
fn steps_of(found: &[Process]) -> Vec<Step> {
    sorted_once(found.iter().map(|p| (p.job, step_text(p).to_owned(), p.uid)).collect())
}

fn sorted_once(mut steps: Vec<Step>) -> Vec<Step> {
    steps.sort_by(|a, b| (a.0, a.1 != "batch", &a.1).cmp(&(b.0, b.1 != "batch", &b.1)));
    steps.dedup_by(|a, b| (a.0, &a.1) == (b.0, &b.1));
    steps
}

/// Where the caller may not read what processes have in their environment, as SlurmUser may not of other users, the step managers of
/// their jobs say which steps run on these nodes. What they do not say stays unnamed.
fn named_by_managers(session: &mut Session, found: &[Process], mut steps: Vec<Step>) -> Vec<Step> {
    let unnamed: BTreeMap<u32, u32> =
        steps.iter().filter(|(_, step, _)| step == "-").map(|(j, _, u)| (*j, *u)).collect();
    for (job, uid) in unnamed {
        let Ok(cluster) = session.cluster() else { return steps };
        let asked = CommandRequest::ListSteps { job: Some(JobId(job)), ended: false };
        let Ok(CommandReply::Steps { steps: listed, .. }) = cluster.ask(&asked) else { continue };
        let nodes: BTreeSet<&str> = found.iter().filter(|p| p.job == job).filter_map(|p| p.node.as_deref()).collect();
        let here = |step: &&StepView| {
            let on = hostlist::expand(&step.nodelist).unwrap_or_default();
            step.state == StepState::Running && on.iter().any(|node| nodes.contains(node.as_str()))
        };
        let named: Vec<Step> = listed.iter().filter(here).map(|s| (job, s.id.key().to_string(), uid)).collect();
        if !named.is_empty() {
            steps.retain(|(of, step, _)| *of != job || step != "-");
            steps.extend(named);
        }
    }
    sorted_once(steps)
}

/// `listjobs [NODE]`
pub fn jobs(session: &mut Session, words: &[String]) -> i32 {
    let found = match here(session, "listjobs", words) {
        Ok(found) => found,
        Err(code) => return code,
    };
    let jobs: BTreeSet<u32> = found.iter().map(|process| process.job).collect();
    let documents = jobs.iter().map(|job| json!({ "job_id": job })).collect();
    list(session, "jobs", documents, |out| {
        writeln!(out, "JOBID")?;
        jobs.iter().try_for_each(|job| writeln!(out, "{job:<8}"))
    })
}

/// `liststeps [NODE]`
pub fn steps(session: &mut Session, words: &[String]) -> i32 {
    let found = match here(session, "liststeps", words) {
        Ok(found) => found,
        Err(code) => return code,
    };
    let found = named_by_managers(session, &found, steps_of(&found));
    let documents = found.iter().map(|(job, step, _)| json!({ "job_id": job, "step_id": step })).collect();
    list(session, "steps", documents, |out| {
        writeln!(out, "{:<8} {:<8}", "JOBID", "STEPID")?;
        found.iter().try_for_each(|(job, step, _)| writeln!(out, "{job:<8} {step:<8}"))
    })
}

/// The processes of a command that takes a node and needs some.
fn here(session: &Session, command: &str, words: &[String]) -> Result<Vec<Process>, i32> {
    let node = match words {
        [] => None,
        [node] => Some(node.as_str()),
        _ => return Err(too_many(session, command)),
    };
    let found = processes(session, node)?;
    if found.is_empty() && session.manner.form.is_none() {
        Err(session.plain_error("No slurmstepd's found on this node"))
    } else {
        Ok(found)
    }
}

/// `getent [NODE]`: the user and the groups of each step here.
pub fn entities(session: &mut Session, words: &[String]) -> i32 {
    let node = match words {
        [] => None,
        [node] => Some(node.as_str()),
        _ => return too_many(session, "getent"),
    };
    let found = match processes(session, node) {
        Ok(found) => steps_of(&found),
        Err(code) => return code,
    };
    session.print(|out| {
        found.iter().try_for_each(|(job, step, uid)| {
            writeln!(out, "JobId={job}.{step}:\nUser:")?;
            let (user, groups) = accounts::entries(*uid);
            user.iter().try_for_each(|line| writeln!(out, "{line}"))?;
            writeln!(out, "Groups:")?;
            groups.iter().try_for_each(|line| writeln!(out, "{line}"))?;
            writeln!(out)
        })
    })
}

/// `pidinfo PID`: the job of a process, and when its time is over.
pub fn pid_info(session: &mut Session, words: &[String]) -> i32 {
    let pid = match words {
        [] => return session.plain_error("missing argument for keyword:pidinfo"),
        [pid] => pid,
        _ => return too_many(session, "pidinfo"),
    };
    let found = match processes(session, None) {
        Ok(found) => found,
        Err(code) => return code,
    };
    let process = pid.parse::<u32>().ok().and_then(|pid| found.iter().find(|process| process.pid == pid));
    let Some(process) = process else {
        return session.plain_error("Failed to locate job for requested pid");
    };
    let job = process.job;
    session.end_of_job(job)
}

/// A list of what is here, as a document where that is asked for.
fn list(
    session: &Session,
    name: &str,
    documents: Vec<Value>,
    lines: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> i32 {
    if let Some(form) = session.manner.form {
        let cluster = Cluster::find(None).map(|cluster| cluster.name().to_owned()).unwrap_or_default();
        let document = json::document(name, documents, None, &choices::meta(&cluster, form));
        return session.print(|out| form.write(out, document));
    }
    session.print(lines)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn clusters() -> BTreeSet<String> {
        BTreeSet::from(["cfc96e55e9".to_owned()])
    }

    #[test]
    fn a_cgroup_tells_job_node_and_step() {
        let text = "3:cpuset:/a/garrick/cfc96e55e9/n1/job_7.s1/user\n0::/garrick/cfc96e55e9/n1/job_7.s1/tasks/step_3\n";
        let found = of_cgroups(text, &clusters());
        assert_eq!((found.job, found.node.as_deref(), found.step.as_deref()), (Some(7), Some("n1"), Some("3")));
        let main = of_cgroups("0::/garrick/cfc96e55e9/n1/job_7.s1/tasks/main\n", &clusters());
        assert_eq!((main.job, main.step), (Some(7), None));
    }

    #[test]
    fn managers_other_clusters_and_other_processes_belong_to_no_job() {
        for path in
            ["0::/garrick/cfc96e55e9/n1/job_7.s1/mgr", "0::/garrick/other/n1/job_7.s1/tasks", "0::/user.slice", ""]
        {
            assert_eq!(of_cgroups(path, &clusters()), Belongs::default(), "{path}");
        }
    }

    #[test]
    fn a_tasks_number_is_shown_of_its_first_process_only() {
        let process = |pid, parent, step: &str| Process {
            pid,
            parent,
            uid: 5,
            job: 7,
            node: None,
            step: Some(step.to_owned()),
            task: Some((0, 0)),
        };
        let mut found = [process(10, 1, "batch"), process(11, 10, "batch"), process(12, 9, "0"), process(13, 12, "0")];
        only_first_of_tasks(&mut found);
        assert_eq!(found.each_ref().map(|p| p.task.is_some()), [true, false, true, false]);
        let steps: Vec<String> = steps_of(&found).into_iter().map(|(_, step, _)| step).collect();
        assert_eq!(steps, ["batch", "0"]);
    }

    #[test]
    fn jobs_and_steps_are_told_from_other_words() {
        assert_eq!(job_and_step("503"), Some((503, None)));
        assert_eq!(job_and_step("503.batch"), Some((503, Some("batch".to_owned()))));
        assert_eq!([job_and_step("x"), job_and_step("503.x"), job_and_step("")], [None, None, None]);
        assert_eq!([step_name("-5"), step_name("0")], ["batch", "0"]);
    }
}
