//! `squeue`: jobs and steps in the queue. Options, then a query, then rows, then columns.
//!
//! [`options`] has what was typed and set. Fields, their contents and the order of rows are in [`garrick_render::squeue`].

pub mod options;
#[cfg(test)]
mod transcript_test;

use crate::{
    output::{self, Console},
    query::{
        arguments::{self, Outcome},
        choices,
    },
    telling::Tell as _,
};
use garrick_asking::{
    contact::{self, Asked, Contact, resolve_nodes},
    ended_steps,
    own_job::of_own_job,
    runs,
};
use garrick_model::{
    env_vars,
    ids::JobId,
    job_query::JobQuery,
    messages::command::{CommandReply, CommandRequest, JobSelector},
    step_selector::StepsSelector,
    view::{JobView, StepView},
};
use garrick_render::{
    clock::Clock,
    columns::{self, Column, LayoutError, Width},
    job_rows::{Arrays, JobRow, has_ended_steps, node_names},
    json,
    squeue::{
        fields::{self, Entry, Setting},
        sort,
    },
    step_lines::{Alike, StepLine, all_of},
};
use options::{Request, RequestError, Subject};
use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    io::{self, Write},
    sync::Arc,
};

/// Runs `squeue`. Returns its exit code.
pub fn main(args: Vec<OsString>) -> i32 {
    let console = Console::new("squeue");
    let arguments = match arguments::read(&options::TABLE, &attach_ids(args), &console) {
        Outcome::Go(arguments) => arguments,
        Outcome::Done(code) => return code,
    };
    if let Some(word) = arguments.words().first() {
        console.error(format_args!("Unrecognized option: {word}"));
        output::stderr(b"Try \"squeue --help\" for more information\n");
        return 1;
    }
    if arguments.has("helpformat") {
        return output::finish(&console, output::stdout(|out| columns::help_format(fields::HELP_FORMAT, out)), 0);
    }
    let mut request = match options::read(&arguments, |name| std::env::var(name).ok()) {
        Ok(request) => request,
        Err(error @ RequestError::RunTime) => {
            console.fatal(error);
            return 1;
        }
        Err(RequestError::Form(error)) => return error.tell(&console, 1),
        Err(error) => {
            error.to_string().lines().for_each(|line| console.error(line));
            return 1;
        }
    };
    for unknown in &request.unknown_users {
        console.error(unknown);
        // As in Slurm.
        output::stderr(b"\n");
    }
    if let Err(code) = choices::own_cluster(&arguments, &console) {
        return code;
    }
    let kind = if request.subject == Subject::Jobs { "job" } else { "job step" };
    let unknown = &request.layout.unknown;
    unknown.iter().for_each(|given| console.error(LayoutError { kind, given: given.clone() }));
    let steps: &mut [StepsSelector] = match &mut request.subject {
        Subject::Steps(named) => named,
        Subject::Jobs => &mut [],
    };
    if let Err(unknown) = runs::find(&console, &mut request.choice.jobs, steps) {
        return unknown.error.tell("slurm_load_jobs", &console);
    }
    if !request.choice.such.nodes.is_empty() {
        match known_nodes(&mut request.choice.such.nodes, &console) {
            Ok(None) => {}
            Ok(Some(unknown)) => {
                console.error(format_args!("Invalid node name {unknown}"));
                return 1;
            }
            Err(error) => return error.tell("slurm_load_node", &console),
        }
    }
    loop {
        let code = once(&request, &console);
        match request.iterate {
            Some(pause) if code == 0 => std::thread::sleep(pause),
            _ => return code,
        }
    }
}

/// Functions, host names and `localhost` become names of nodes; gives the first that is not there.
fn known_nodes(names: &mut Vec<String>, console: &Console) -> Asked<Option<String>> {
    resolve_nodes(names, console)?;
    let mut cluster = Contact::open(console)?;
    let nodes = contact::nodes(&mut cluster)?;
    let here = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok()).unwrap_or_default();
    Ok(node_names(names, &nodes, here.split('.').next().unwrap_or_default()).err())
}

/// `-j 5` and `-s 5.0`. There are no operands, so that any word behind them is meant for them.
pub(crate) fn attach_ids(args: Vec<OsString>) -> Vec<OsString> {
    let is_id = |word: &str| !word.starts_with('-');
    let args = arguments::attach_ids(args, &["--jobs", "--job"], 'j', "arhlPv", is_id);
    arguments::attach_ids(args, &["--steps", "--step"], 's', "arhlPv", is_id)
}

fn once(request: &Request, console: &Console) -> i32 {
    match &request.subject {
        Subject::Jobs => jobs(request, console),
        Subject::Steps(named) => steps(request, named, console),
    }
}

fn jobs(request: &Request, console: &Console) -> i32 {
    let loaded = Contact::open(console).and_then(|mut cluster| {
        let jobs = load_jobs(&mut cluster, request)?;
        Ok((cluster, jobs))
    });
    let (mut cluster, jobs) = match loaded {
        Ok(loaded) => loaded,
        Err(error) => return error.tell("slurm_load_jobs", console),
    };
    let clock = Clock::system();
    let more = match more_to_show(&mut cluster, request, &jobs) {
        Ok(more) => more,
        Err(error) => return error.tell("slurm_load_jobs", console),
    };
    if request.verbose {
        console.line(format_args!("{} job records", jobs.len()));
    }
    let written = if let Some(form) = request.form {
        let mut rows = job_rows(&jobs, request, &More::default(), &clock);
        let meta = choices::meta(cluster.name(), form);
        let document = match request.only_states {
            true => {
                rows.sort_by_key(|row| row.job.id);
                json::job_states(&rows, &meta)
            }
            false => json::jobs(&rows, &meta, &clock),
        };
        output::stdout(|out| form.write(out, document))
    } else {
        let more = More { cluster: cluster.name().to_owned(), ..more };
        output::stdout(|out| render_jobs(&jobs, request, &more, &clock, out))
    };
    output::finish(console, written, 0)
}

fn steps(request: &Request, named: &[StepsSelector], console: &Console) -> i32 {
    let loaded = Contact::open(console).and_then(|mut cluster| {
        let (steps, jobs, missing) = load_steps(&mut cluster, request, console)?;
        Ok((cluster.name().to_owned(), steps, jobs, missing))
    });
    let (cluster, steps, jobs, missing) = match loaded {
        Ok(loaded) => loaded,
        Err(error) => {
            let asked: Vec<_> = request.choice.jobs.iter().flat_map(all_of).chain(named.iter().cloned()).collect();
            match of_own_job(console, &error, &asked) {
                Some(steps) => {
                    (std::env::var(env_vars::SLURM_CLUSTER_NAME).unwrap_or_default(), steps, Vec::new(), Vec::new())
                }
                None => return error.tell("slurm_get_job_steps", console),
            }
        }
    };
    let clock = Clock::system();
    let written = if let Some(form) = request.form {
        let steps = chosen_steps(&steps, &jobs, request, &clock);
        output::stdout(|out| form.write(out, json::steps(&steps, &choices::meta(&cluster, form), &clock)))
    } else {
        output::stdout(|out| render_steps(&steps, &jobs, request, &clock, &choices::user_name, out))
    };
    // Last, so that it is seen.
    for what in &missing {
        console.error(format_args!("not all steps that are over are shown: {what}"));
    }
    output::finish(console, written, i32::from(!missing.is_empty()))
}

fn load_jobs(cluster: &mut Contact, request: &Request) -> Asked<Vec<Arc<JobView>>> {
    // One id that is unknown is an error, a task that an array has not is none; in a list both are passed over.
    let jobs = match request.choice.jobs.as_slice() {
        [one] => vec![JobSelector { tasks: None, ..one.clone() }],
        list => list.to_vec(),
    };
    // `-v` says how many records there are.
    let which = if request.verbose { JobQuery::default() } else { request.choice.such.coarse() };
    let load = if jobs.len() > 1 || request.only_states { contact::known_jobs } else { contact::jobs };
    load(cluster, &CommandRequest::ListJobs { jobs, which, after: None, most: None, hide: !request.hidden })
}

/// What some columns and orders need beside the jobs.
#[derive(Debug, Default)]
pub struct More {
    /// With `-P`: tiers of the partitions.
    pub tiers: Option<BTreeMap<String, u16>>,
    /// Where room is reserved for jobs that wait.
    pub sched_nodes: BTreeMap<JobId, String>,
    /// The cluster's name.
    pub cluster: String,
}

fn more_to_show(cluster: &mut Contact, request: &Request, jobs: &[Arc<JobView>]) -> Asked<More> {
    let mut more = More::default();
    if request.form.is_some() {
        return Ok(more);
    }
    if request.each_partition {
        let partitions = match cluster.ask(&CommandRequest::ListPartitions)? {
            CommandReply::Partitions { partitions, .. } => partitions,
            other => return Err(cluster.unexpected(&other)),
        };
        more.tiers = Some(partitions.iter().map(|p| (p.config.name.clone(), p.config.priority_tier)).collect());
    }
    if request.layout.columns.iter().any(|column| column.field.needs_outlook()) {
        for job in jobs.iter().filter(|job| job.state.waits() && job.start_time.is_some()) {
            match cluster.ask(&CommandRequest::Explain { job: job.id })? {
                CommandReply::Outlook(Some(outlook)) => {
                    more.sched_nodes.insert(job.id, outlook.nodes);
                }
                CommandReply::Outlook(None) => {}
                other => return Err(cluster.unexpected(&other)),
            }
        }
    }
    Ok(more)
}

/// Steps, all jobs, and of which jobs steps that are over are missing.
type StepsAndJobs = (Vec<StepView>, Vec<Arc<JobView>>, Vec<String>);

fn load_steps(cluster: &mut Contact, request: &Request, console: &Console) -> Asked<StepsAndJobs> {
    let named = match &request.subject {
        Subject::Steps(named) => named.as_slice(),
        Subject::Jobs => &[],
    };
    let only = match (request.choice.jobs.as_slice(), named) {
        ([one], _) if one.tasks.is_none() => Some(one.job),
        ([], [first, rest @ ..])
            if first.task.is_none() && rest.iter().all(|n| n.job == first.job && n.task.is_none()) =>
        {
            Some(first.job)
        }
        _ => None,
    };
    let ended = has_ended_steps(&request.choice.such.states);
    let mut steps = match cluster.ask(&CommandRequest::ListSteps { job: only, ended })? {
        CommandReply::Steps { steps, missing, left_out } => {
            for manager in missing {
                console.warning(format_args!("step manager of {manager} does not answer, its steps are not shown"));
            }
            // Those that are over are the first to be left out, and are looked for below.
            if left_out > 0 && !(ended && steps.iter().any(|view| view.state.is_over())) {
                console.warning(format_args!("{left_out} more lines are left out; -j JOB shows one job's"));
            }
            steps
        }
        other => return Err(cluster.unexpected(&other)),
    };
    let of_jobs = match only {
        Some(job) => CommandRequest::list_jobs(vec![job.into()]),
        // Steps of a job that is over are over.
        None if ended => CommandRequest::list_jobs(Vec::new()),
        None => CommandRequest::list_such_jobs(JobQuery::live()),
    };
    let mut jobs = contact::known_jobs(cluster, &of_jobs)?;
    // A job may have ended between the two questions.
    let known: BTreeSet<JobId> = jobs.iter().map(|job| job.id).collect();
    let ended_since: BTreeSet<JobId> =
        steps.iter().map(|step| step.id.job).filter(|job| !known.contains(job)).collect();
    if !ended_since.is_empty() {
        let named = ended_since.into_iter().map(JobSelector::from).collect();
        jobs.extend(contact::known_jobs(cluster, &CommandRequest::list_jobs(named))?);
    }
    let mut missing = Vec::new();
    if ended {
        let meant = |job: &&Arc<JobView>| {
            let task = job.array_task;
            let of_named = |named: &StepsSelector| {
                named.job == job.id || task.is_some_and(|task| named.array_task() == Some(task)) || named.het.is_some()
            };
            only.is_none_or(|only| only == job.id) && (named.is_empty() || named.iter().any(of_named))
        };
        // Of other users' jobs only administrators read records; unless one is named, nothing is missing for others.
        let own = nix::unistd::geteuid().as_raw();
        let administrator = cluster.cluster().is_administrator(own);
        let may = |job: &&Arc<JobView>| administrator || own == job.uid || only.is_some();
        missing = ended_steps::complete(cluster.cluster(), console, &mut steps, jobs.iter().filter(meant).filter(may));
    }
    Ok((steps, jobs, missing))
}

/// The rows to show, in order.
pub fn job_rows(jobs: &[Arc<JobView>], request: &Request, more: &More, clock: &Clock) -> Vec<JobRow> {
    let (sched_nodes, cluster) = (&more.sched_nodes, more.cluster.as_str());
    let setting = Setting {
        clock,
        user: &choices::user_name,
        task_list: None,
        sched_nodes,
        cluster,
        expand: request.expand,
        convert: request.convert,
    };
    let mut rows = JobRow::list(jobs, request.arrays);
    if more.tiers.is_some() {
        rows = rows.into_iter().flat_map(JobRow::in_each_partition).collect();
    }
    rows.retain(|row| request.choice.takes(row) && request.running.takes(&row.job, clock.now));
    sort::sort(&mut rows, &request.sort, more.tiers.as_ref(), &setting);
    rows
}

/// Writes the list of jobs.
pub fn render_jobs(
    jobs: &[Arc<JobView>],
    request: &Request,
    more: &More,
    clock: &Clock,
    out: &mut dyn Write,
) -> io::Result<()> {
    if request.banner {
        writeln!(out, "{}", clock.banner())?;
    }
    let (task_list, sched_nodes, cluster) = (task_list_limit(), &more.sched_nodes, more.cluster.as_str());
    let setting = Setting {
        clock,
        user: &choices::user_name,
        task_list,
        sched_nodes,
        cluster,
        expand: request.expand,
        convert: request.convert,
    };
    let rows = job_rows(jobs, request, more, clock);
    let title = |entry: &&'static Entry| entry.title.to_owned();
    request.layout.write(out, request.heading, &rows, title, |row, entry| entry.of_job(row, &setting))
}

/// `SLURM_BITSTR_LEN`: most characters of an array's task list; 0 for all, 64 unless set, as documented.
pub fn task_list_limit() -> Option<usize> {
    match std::env::var("SLURM_BITSTR_LEN").ok().and_then(|v| v.parse::<usize>().ok()) {
        None => Some(64),
        Some(0) => None,
        Some(n) => Some(n),
    }
}

fn job_of<'a>(step: &StepView, jobs: &'a [Arc<JobView>]) -> Option<&'a JobView> {
    // Jobs come in the order of their ids.
    let place = jobs.binary_search_by_key(&step.id.job, |j| j.id).ok()?;
    Some(&*jobs[place])
}

/// The steps to show, in order.
fn chosen_steps<'a>(
    steps: &'a [StepView],
    jobs: &'a [Arc<JobView>],
    request: &Request,
    clock: &Clock,
) -> Vec<StepLine<'a>> {
    let Subject::Steps(named) = &request.subject else { return Vec::new() };
    let sched_nodes = &BTreeMap::new();
    let setting = Setting {
        clock,
        user: &choices::user_name,
        task_list: None,
        sched_nodes,
        cluster: "",
        expand: false,
        convert: true,
    };
    let alike = if request.arrays == Arrays::Expanded { Alike::Expanded } else { Alike::Folded };
    let mut chosen: Vec<_> = steps
        .iter()
        .map(|step| (step, job_of(step, jobs)))
        .filter(|(step, job)| request.choice.takes_step(step, *job))
        .flat_map(|(step, job)| StepLine::of(step, job, named, alike))
        .collect();
    chosen.sort_by_cached_key(StepLine::first);
    sort::sort_steps(&mut chosen, &request.sort, &setting);
    chosen
}

/// Writes the list of steps.
pub fn render_steps(
    steps: &[StepView],
    jobs: &[Arc<JobView>],
    request: &Request,
    clock: &Clock,
    user: &dyn Fn(u32) -> String,
    out: &mut dyn Write,
) -> io::Result<()> {
    if request.banner {
        writeln!(out, "{}", clock.banner())?;
    }
    let sched_nodes = &BTreeMap::new();
    let setting =
        Setting { clock, user, task_list: task_list_limit(), sched_nodes, cluster: "", expand: false, convert: true };
    let lines = chosen_steps(steps, jobs, request, clock);
    let mut layout = request.layout.clone();
    if let Some(Column { width: Width::Fixed(width), .. }) = layout.columns.first_mut().filter(|_| request.own_layout) {
        *width = lines.iter().map(|l| l.id_text(setting.task_list).len()).max().unwrap_or(0).max(*width);
    }
    let title = |entry: &&'static Entry| entry.title.to_owned();
    layout.write(out, request.heading, &lines, title, |line, entry| entry.of_step(line, &setting))
}
