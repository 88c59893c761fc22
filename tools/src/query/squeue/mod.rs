//! `squeue`: jobs and steps in the queue. Options, then a query, then rows, then columns.
//!
//! | module | what it does |
//! |---|---|
//! | [`options`] | what was typed and set, read into a request |
//! | [`fields`] | letters, names and headings |
//! | [`cells`] | what a row shows in a field |
//! | [`rows`] | rows from job views: arrays, choice, order |

pub mod cells;
pub mod fields;
pub mod options;
pub mod rows;
#[cfg(test)]
mod transcript_test;

use super::{
    arguments::{self, Outcome},
    asking::{Asked, Contact, Tell as _, resolve_nodes},
    choices,
    steps::{Alike, StepLine, all_of, of_own_job},
};
use crate::{
    output::{self, Console},
    render::{
        clock::Clock,
        columns::{Column, Width},
        json,
    },
};
use cells::Setting;
use garrick_model::{
    env_vars,
    messages::command::{CommandReply, CommandRequest},
    refusal::Refusal,
    step_selector::StepsSelector,
    view::{JobView, StepView},
};
use options::{Request, Subject};
use rows::{Arrays, JobRow};
use std::{
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
    let mut request = match options::read(&arguments, |name| std::env::var(name).ok()) {
        Ok(request) => request,
        Err(error) => {
            error.to_string().lines().for_each(|line| console.error(line));
            return 1;
        }
    };
    if let Err(error) = resolve_nodes(&mut request.choice.nodes, &console) {
        return error.tell("slurm_load_node", &console);
    }
    loop {
        let code = once(&request, &console);
        match request.iterate {
            Some(pause) if code == 0 => std::thread::sleep(pause),
            _ => return code,
        }
    }
}

/// `-j 5` and `-s 5.0`.
fn attach_ids(args: Vec<OsString>) -> Vec<OsString> {
    let is_id = |word: &str| word.starts_with(|c: char| c.is_ascii_digit());
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
    let (cluster, jobs) = match loaded {
        Ok(loaded) => loaded,
        Err(error) => return error.tell("slurm_load_jobs", console),
    };
    let clock = Clock::system();
    if request.verbose {
        console.line(format_args!("{} job records", jobs.len()));
    }
    let written = if request.json {
        let rows = job_rows(&jobs, request, &clock);
        let meta = json::Meta::new(cluster.name());
        output::stdout(|out| json::write(out, &json::jobs(&rows, &meta, &clock)))
    } else {
        output::stdout(|out| render_jobs(&jobs, request, &clock, out))
    };
    output::finish(console, written, 0)
}

fn steps(request: &Request, named: &[StepsSelector], console: &Console) -> i32 {
    let loaded = Contact::open(console).and_then(|mut cluster| {
        let (steps, jobs) = load_steps(&mut cluster, request, console)?;
        Ok((cluster.name().to_owned(), steps, jobs))
    });
    let (cluster, steps, jobs) = match loaded {
        Ok(loaded) => loaded,
        Err(error) => {
            let asked: Vec<_> = request.choice.jobs.iter().flat_map(all_of).chain(named.iter().cloned()).collect();
            match of_own_job(console, &error, &asked) {
                Some(steps) => (std::env::var(env_vars::SLURM_CLUSTER_NAME).unwrap_or_default(), steps, Vec::new()),
                None => return error.tell("slurm_get_job_steps", console),
            }
        }
    };
    let clock = Clock::system();
    let written = if request.json {
        let steps = chosen_steps(&steps, &jobs, request, &clock);
        output::stdout(|out| json::write(out, &json::steps(&steps, &json::Meta::new(&cluster), &clock)))
    } else {
        output::stdout(|out| render_steps(&steps, &jobs, request, &clock, &choices::user_name, out))
    };
    output::finish(console, written, 0)
}

fn load_jobs(cluster: &mut Contact, request: &Request) -> Asked<Vec<Arc<JobView>>> {
    // One id that is unknown is an error; in a list it is passed over.
    let only = match request.choice.jobs.as_slice() {
        [one] => vec![one.clone()],
        _ => Vec::new(),
    };
    let named = !only.is_empty();
    match cluster.ask(&CommandRequest::ListJobs { jobs: only, after: None, most: None, hide: !request.hidden })? {
        CommandReply::Jobs { jobs, .. } if jobs.is_empty() && named => Err(Refusal::InvalidJobId.into()),
        CommandReply::Jobs { jobs, .. } => Ok(jobs),
        other => Err(cluster.unexpected(&other)),
    }
}

type StepsAndJobs = (Vec<StepView>, Vec<Arc<JobView>>);

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
    let ended = request.choice.states.has_ended_steps();
    let steps = match cluster.ask(&CommandRequest::ListSteps { job: only, ended })? {
        CommandReply::Steps { steps, missing, left_out } => {
            for manager in missing {
                console.warning(format_args!("step manager of {manager} does not answer, its steps are not shown"));
            }
            if left_out > 0 {
                console.warning(format_args!("{left_out} more lines are left out; -j JOB shows one job's"));
            }
            steps
        }
        other => return Err(cluster.unexpected(&other)),
    };
    match cluster.ask(&CommandRequest::list_jobs(Vec::new()))? {
        CommandReply::Jobs { jobs, .. } => Ok((steps, jobs)),
        other => Err(cluster.unexpected(&other)),
    }
}

/// The rows to show, in order.
pub fn job_rows(jobs: &[Arc<JobView>], request: &Request, clock: &Clock) -> Vec<JobRow> {
    let setting = Setting { clock, user: &choices::user_name, task_list: None };
    let mut rows = JobRow::list(jobs, request.arrays);
    rows.retain(|row| request.choice.takes(row));
    rows::sort(&mut rows, &request.sort, |row, field| cells::job(row, field, &setting));
    rows
}

/// Writes the list of jobs.
pub fn render_jobs(jobs: &[Arc<JobView>], request: &Request, clock: &Clock, out: &mut dyn Write) -> io::Result<()> {
    if request.banner {
        writeln!(out, "{}", clock.banner())?;
    }
    let setting = Setting { clock, user: &choices::user_name, task_list: task_list_limit() };
    let rows = job_rows(jobs, request, clock);
    request.layout.write(
        out,
        request.heading,
        &rows,
        |entry| entry.title.to_owned(),
        |row, entry| cells::job(row, entry.field, &setting),
    )
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
    let setting = Setting { clock, user: &choices::user_name, task_list: None };
    let alike = if request.arrays == Arrays::Expanded { Alike::Expanded } else { Alike::Folded };
    let mut chosen: Vec<_> = steps
        .iter()
        .map(|step| (step, job_of(step, jobs)))
        .filter(|(step, job)| request.choice.takes_step(step, *job))
        .flat_map(|(step, job)| StepLine::of(step, job, named, alike))
        .collect();
    chosen.sort_by_cached_key(StepLine::first);
    chosen.sort_by(|a, b| {
        rows::compare(&request.sort, |field| match field {
            fields::Field::Id => a.first().cmp(&b.first()),
            fields::Field::TimeUsed => b.view.start_time.cmp(&a.view.start_time),
            fields::Field::Partition => a.view.partition.cmp(&b.view.partition),
            fields::Field::Name => a.view.name.cmp(&b.view.name),
            fields::Field::Priority => a.view.priority.cmp(&b.view.priority),
            other => cells::step(a, other, &setting).cmp(&cells::step(b, other, &setting)),
        })
    });
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
    let setting = Setting { clock, user, task_list: task_list_limit() };
    let lines = chosen_steps(steps, jobs, request, clock);
    let mut layout = request.layout.clone();
    if let Some(Column { width: Width::Fixed(width), .. }) = layout.columns.first_mut().filter(|_| request.own_layout) {
        *width = lines.iter().map(|l| l.id_text(setting.task_list).len()).max().unwrap_or(0).max(*width);
    }
    layout.write(
        out,
        request.heading,
        &lines,
        |entry| entry.title.to_owned(),
        |line, entry| cells::step(line, entry.field, &setting),
    )
}
