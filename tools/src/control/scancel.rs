//! `scancel`: ends or signals jobs, array tasks and steps, named or chosen by what they are.

use super::own_steps;
use crate::{
    options::table::Arg,
    output::{self, Console},
    query::{
        arguments::{self, Arguments, Outcome, Table, inert, option},
        choices,
    },
    telling::{Tell as _, hints},
};
use garrick_asking::{
    contact::{self, AskError, Contact, named_nodes},
    runs::{self, NoRun},
};
use garrick_model::{
    entities::qos::names_qos,
    job_query::JobQuery,
    messages::command::{CancelRequest, CommandReply, CommandRequest, JobChange, JobSelector},
    refusal::Refusal,
    signal::signal_number,
    slurm_error,
    state::JobState,
    step_selector::StepsSelector,
    view::JobView,
    visible::written_out,
};
use garrick_render::words;
use std::{ffi::OsString, io::BufRead, sync::Arc};

pub(crate) static TABLE: Table = Table {
    program: "scancel",
    purpose: "Signal or cancel jobs, job arrays or job steps.",
    operands: "[job_id[_array_id][.step_id[_array_id]]...]",
    words: &[],
    options: &[
        option("account", Some('A'), Arg::Required("account"), "only jobs of this account"),
        option("admin-comment", None, Arg::Required("comment"), "note that in the jobs; for administrators"),
        option("batch", Some('b'), Arg::None, "signal the batch shell only"),
        option("clusters", Some('M'), Arg::Required("names"), "the cluster, only the own one"),
        option("cron", Some('c'), Arg::None, "also jobs of scrontab, where the site wants that to be said"),
        option("ctld", None, Arg::None, "send requests through the controller, also for steps of the own job"),
        option("full", Some('f'), Arg::None, "signal the batch shell and all steps"),
        inert("hurry", Some('H'), Arg::None, "do not stage out", "there are no burst buffers to stage out of"),
        option("interactive", Some('i'), Arg::None, "ask before each job"),
        option("jobname", None, Arg::Required("name"), "only jobs of this name"),
        option("me", None, Arg::None, "only jobs of the caller"),
        option("name", Some('n'), Arg::Required("name"), "only jobs of this name"),
        option("nodelist", Some('w'), Arg::Required("hostlist"), "only jobs on any of these nodes"),
        option("partition", Some('p'), Arg::Required("partition"), "only jobs in this partition"),
        option("qos", Some('q'), Arg::Required("qos"), "only jobs of this QOS"),
        option("quiet", Some('Q'), Arg::None, "no messages about jobs that are over"),
        option("reservation", Some('R'), Arg::Required("reservation"), "only jobs of this reservation"),
        option(
            "sibling",
            None,
            Arg::Required("cluster"),
            "the job's sibling on that cluster of a federation: there is none, so this is refused for each job",
        ),
        option("signal", Some('s'), Arg::Required("name"), "send this signal instead of ending the job"),
        option(
            "state",
            Some('t'),
            Arg::Required("state"),
            "only jobs in this state; with steps: PENDING for waiting steps",
        ),
        option("user", Some('u'), Arg::Required("user"), "only jobs of this user"),
        option("verbose", Some('v'), Arg::None, "more messages"),
        option("wckey", None, Arg::Required("wckey"), "only jobs of this wckey"),
    ],
    misuse: 1,
};

/// What is to be done.
#[derive(Debug, Default)]
pub(crate) struct Request {
    jobs: Vec<JobSelector>,
    steps: Vec<StepsSelector>,
    filter: Filter,
    signal: Option<i32>,
    batch: bool,
    full: bool,
    interactive: bool,
    /// Of the steps only those that wait.
    pending_only: bool,
    /// Steps of the own job go to the controller too.
    by_controller: bool,
    /// Jobs of crontabs are meant too.
    cron: bool,
    /// What is noted in the jobs.
    admin_comment: Option<String>,
    /// Only their siblings on another cluster.
    of_sibling: bool,
}

/// Which jobs, when some are chosen by what they are.
#[derive(Debug, Default, PartialEq)]
struct Filter {
    uid: Option<u32>,
    name: Option<String>,
    partition: Option<String>,
    account: Option<String>,
    qos: Option<String>,
    reservation: Option<String>,
    wckey: Option<String>,
    states: Vec<JobState>,
    nodes: Vec<String>,
}

impl Filter {
    fn chooses(&self) -> bool {
        *self != Self::default()
    }

    /// All jobs that it takes and can be cancelled, and maybe others.
    fn such(&self) -> JobQuery {
        let one = |given: &Option<String>| given.iter().cloned().collect();
        let (names, partitions, accounts) = (one(&self.name), one(&self.partition), one(&self.account));
        JobQuery { users: self.uid.into_iter().collect(), names, partitions, accounts, ..JobQuery::live() }
    }

    fn takes(&self, job: &JobView) -> bool {
        let same = |wanted: &Option<String>, value: Option<&str>| wanted.is_none() || wanted.as_deref() == value;
        self.uid.is_none_or(|uid| uid == job.uid)
            && same(&self.name, Some(&job.spec.name))
            && self.partition.as_ref().is_none_or(|p| job.partitions.contains(p))
            && same(&self.account, job.spec.account.as_deref())
            && self.qos.as_ref().is_none_or(|asked| names_qos(job.spec.qos.as_deref(), asked))
            && self.reservation.as_ref().is_none_or(|name| job.spec.reservations.contains(name))
            && same(&self.wckey, job.spec.wckey.as_deref())
            && (self.states.is_empty() || self.states.contains(&job.state))
            && (self.nodes.is_empty()
                || job.allocation.as_ref().is_some_and(|a| a.nodes.iter().any(|n| self.nodes.contains(&n.name))))
    }
}

/// Runs `scancel`. Returns its exit code.
pub fn main(args: Vec<OsString>) -> i32 {
    let mut console = Console::new("scancel");
    let arguments = match arguments::read(&TABLE, &args, &console) {
        Outcome::Go(arguments) => arguments,
        Outcome::Done(code) => return code,
    };
    console.set_verbosity(arguments::verbosity(&arguments));
    let mut request = match read(&arguments, |name| std::env::var(name).ok()) {
        Ok(request) => request,
        Err(wrong) => {
            match wrong {
                Wrong::Error(error) => console.error(error),
                Wrong::Bare(text) => output::stderr(format!("{text}\n").as_bytes()),
            }
            return 1;
        }
    };
    if let Err(code) = choices::own_cluster(&arguments, &console) {
        return code;
    }
    if let Err(NoRun { name, error }) = runs::find(&console, &mut request.jobs, &mut request.steps) {
        let what = if name.contains('.') { "step id" } else { "id" };
        hints(&error, &console);
        console.error(format_args!("Kill job error on job {what} {name}: {error}"));
        return 1;
    }
    let named = request.jobs.iter().map(|job| format!("id {job}"));
    let named: Vec<String> = named.chain(request.steps.iter().map(|step| format!("step id {step}"))).collect();
    let looks = request.filter.chooses() || request.interactive;
    match run(request, &console) {
        Ok(code) => code,
        Err(error) if looks => error.tell("slurm_load_jobs", &console),
        Err(error) => {
            hints(&error, &console);
            named.iter().for_each(|job| console.error(format_args!("Kill job error on job {job}: {error}")));
            match error {
                AskError::Refused(refusal) => refused(&refusal),
                _ => UNREACHED,
            }
        }
    }
}

/// The low byte of `SLURMCTLD_COMMUNICATIONS_CONNECTION_ERROR` (1800).
const UNREACHED: i32 = 1800 & 0xff;

/// What is wrong with the arguments.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Wrong {
    /// An error as others.
    Error(String),
    /// Without the command's name, as Slurm tells of signals and states.
    Bare(String),
}

impl From<String> for Wrong {
    fn from(text: String) -> Self {
        Self::Error(text)
    }
}

impl From<&str> for Wrong {
    fn from(text: &str) -> Self {
        Self::Error(text.to_owned())
    }
}

fn states(text: &str) -> Result<Vec<JobState>, Wrong> {
    let wrong = |word: &str| {
        let valid = "Valid job states are PENDING, RUNNING, and SUSPENDED";
        Wrong::Bare(format!("Invalid job state specified: {}\n{valid}", written_out(word)))
    };
    match choices::words(text).as_slice() {
        [] => Err(wrong("")),
        words => words.iter().map(|w| words::parse_job_state(w).ok_or_else(|| wrong(w))).collect(),
    }
}

pub(crate) fn read(arguments: &Arguments, env: impl Fn(&str) -> Option<String>) -> Result<Request, Wrong> {
    let value = |long: &str, variable: &str| arguments.value(long).or_else(|| env(variable)).filter(|v| !v.is_empty());
    let said = |e: choices::ChoiceError| match e {
        choices::ChoiceError::User(name) => format!("Invalid user name: {name}"),
        other => other.to_string(),
    };
    let mut request = Request {
        batch: arguments.has("batch") || env("SCANCEL_BATCH").is_some(),
        full: arguments.has("full") || env("SCANCEL_FULL").is_some(),
        interactive: arguments.has("interactive") || env("SCANCEL_INTERACTIVE").is_some(),
        by_controller: arguments.has("ctld") || env("SCANCEL_CTLD").is_some(),
        cron: arguments.has("cron"),
        admin_comment: arguments.value("admin-comment"),
        of_sibling: arguments.has("sibling"),
        ..Request::default()
    };
    for word in arguments.words().iter().flat_map(|w| choices::outside_brackets(w)) {
        if word.contains('.') {
            let step = word.parse().map_err(|_| format!("Invalid job id {word}"))?;
            request.steps.push(step);
        } else {
            request.jobs.push(choices::job(word).map_err(|_| format!("Invalid job id {word}"))?);
        }
    }
    let uid = match value("user", "SCANCEL_USER") {
        _ if arguments.has("me") => Some(nix::unistd::Uid::current().as_raw()),
        Some(user) => Some(choices::user(&user).map_err(said)?),
        None => None,
    };
    let states = match arguments.value("state").or_else(|| value("state", "SCANCEL_STATE")) {
        None => Vec::new(),
        Some(text) => states(&text)?,
    };
    request.filter = Filter {
        uid,
        name: value("name", "SCANCEL_NAME").or_else(|| arguments.value("jobname")),
        partition: value("partition", "SCANCEL_PARTITION"),
        account: value("account", "SCANCEL_ACCOUNT"),
        qos: value("qos", "SCANCEL_QOS"),
        reservation: arguments.value("reservation"),
        wckey: value("wckey", "SCANCEL_WCKEY"),
        states,
        nodes: choices::nodes(&arguments.value("nodelist").unwrap_or_default()).map_err(said)?,
    };
    if !request.steps.is_empty() && !request.filter.states.is_empty() {
        if request.filter.states != [JobState::Pending] {
            return Err("--state: of steps only those that wait (PENDING) can be chosen".into());
        }
        request.pending_only = true;
        if request.jobs.is_empty() {
            request.filter.states.clear();
        }
    }
    if let Some(name) = arguments.value("signal") {
        let unknown = || Wrong::Bare(format!("Unknown job signal: {}", written_out(&name)));
        request.signal = Some(signal_number(&name).ok_or_else(unknown)?);
    }
    if request.jobs.is_empty() && request.steps.is_empty() && !request.filter.chooses() {
        return Err("No job identification provided".into());
    }
    Ok(request)
}

fn run(mut request: Request, console: &Console) -> Result<i32, AskError> {
    let mut code = 0;
    if !request.by_controller && !request.of_sibling && !request.filter.chooses() && !request.interactive {
        code = own_steps::signal(&mut request.steps, request.pending_only, request.signal, console);
        if request.jobs.is_empty() && request.steps.is_empty() {
            return Ok(code);
        }
    }
    by_controller(request, console).map(|other| other.max(code))
}

fn by_controller(mut request: Request, console: &Console) -> Result<i32, AskError> {
    let mut cluster = Contact::open(console)?;
    request.filter.nodes = named_nodes(&mut cluster, &request.filter.nodes)?;
    let arrays = request.steps.iter().any(|s| s.task.is_some());
    if request.filter.chooses() || request.interactive || arrays {
        // A task of an array is found after its end too.
        let such = if arrays { JobQuery::default() } else { request.filter.such() };
        let jobs = contact::jobs(&mut cluster, &CommandRequest::list_such_jobs(such))?;
        let chosen = choose(&request, &jobs);
        if request.interactive {
            request.jobs = chosen.into_iter().filter(|(_, job)| confirmed(job)).map(|(s, _)| s).collect();
        } else if request.filter.chooses() || !request.jobs.is_empty() {
            request.jobs = chosen.into_iter().map(|(s, _)| s).collect();
        }
        resolve_tasks(&mut request, &jobs);
        if request.jobs.is_empty() && request.steps.is_empty() {
            return Ok(0);
        }
    }
    if request.of_sibling {
        return not_federated(&mut cluster, &request, console);
    }
    say(&request, console);
    if let Some(comment) = &request.admin_comment
        && !note(&mut cluster, &request.jobs, comment)?
    {
        console.error("Invalid user id");
        return Ok(NO_ADMINISTRATOR);
    }
    // A kill of the whole job is what happens without a signal.
    let only_some = request.signal.is_some() && (request.batch || request.full);
    let signal = request.signal.filter(|s| *s != libc::SIGKILL || only_some);
    let cancel = CancelRequest {
        jobs: request.jobs.clone(),
        steps: request.steps.clone(),
        pending_steps_only: request.pending_only,
        signal,
        batch: request.batch && only_some,
        full: request.full && only_some,
        cron: request.cron,
        ..CancelRequest::default()
    };
    match cluster.ask(&CommandRequest::Cancel(cancel)) {
        Ok(CommandReply::PerJob(results)) => Ok(tell(&results, &request, console)),
        Ok(CommandReply::Done) => Ok(0),
        Ok(other) => Err(cluster.unexpected(&other)),
        Err(AskError::Refused(Refusal::InvalidJobId | Refusal::AlreadyDone)) => Ok(0),
        Err(error) => Err(error),
    }
}

/// `ESLURM_JOB_NOT_FEDERATED`.
const NOT_FEDERATED: i32 = 7103;

/// No job has a sibling on another cluster: nothing is cancelled.
fn not_federated(cluster: &mut Contact, request: &Request, console: &Console) -> Result<i32, AskError> {
    let mut code = 0;
    let steps = request.steps.iter().map(|step| JobSelector { job: step.job, tasks: None, het: None, run: None });
    for job in request.jobs.iter().cloned().chain(steps) {
        let known = contact::known_jobs(cluster, &CommandRequest::list_jobs(vec![job.clone()]))?;
        let (number, text) = match known.is_empty() {
            true => (INVALID_JOB_ID, slurm_error::text(INVALID_JOB_ID)),
            false => (NOT_FEDERATED, slurm_error::text(NOT_FEDERATED)),
        };
        console.error(format_args!("Kill job error on job id {job}: {}", text.unwrap_or_default()));
        code = number & 0xff;
    }
    Ok(code)
}

/// `ESLURM_INVALID_JOB_ID`.
const INVALID_JOB_ID: i32 = 2017;

/// The low byte of `ESLURM_USER_ID_MISSING` (2010).
const NO_ADMINISTRATOR: i32 = 2010 & 0xff;

/// Notes something in these jobs. False: that is for administrators. What is wrong otherwise shows when they are cancelled.
fn note(cluster: &mut Contact, jobs: &[JobSelector], comment: &str) -> Result<bool, AskError> {
    let change = JobChange { admin_comment: Some(comment.to_owned()), ..JobChange::default() };
    let denied = |refusal: &Refusal| *refusal == Refusal::AccessDenied;
    match cluster.ask(&CommandRequest::UpdateJob { jobs: jobs.to_vec(), change: Box::new(change) }) {
        Ok(CommandReply::PerJob(results)) => Ok(!results.iter().any(|(_, result)| result.as_ref().is_err_and(denied))),
        Err(AskError::Refused(refusal)) => Ok(!denied(&refusal)),
        answer => answer.map(|_| true),
    }
}

/// Live jobs that fit the filter and, when some are named, one of the names.
fn choose(request: &Request, jobs: &[Arc<JobView>]) -> Vec<(JobSelector, Arc<JobView>)> {
    let named = |job: &JobView| {
        request.jobs.is_empty() && request.steps.is_empty()
            || request.jobs.iter().any(|s| {
                if s.run.is_some() {
                    return s.run == Some(job.sluid);
                }
                if let (Some(offset), het) = (s.het, job.spec.het) {
                    return het == Some((s.job, offset));
                }
                let base = job.array_task.map_or(job.id, |t| t.array_job);
                let task = job.array_task.map(|t| t.index);
                s.job == job.id && s.tasks.is_none() || s.job == base && task.is_none_or(|i| s.has_task(i))
            })
    };
    jobs.iter()
        .filter(|j| j.state.is_live() && j.state != JobState::Completing)
        .filter(|j| request.filter.takes(j) && named(j))
        // What waits of a heterogeneous job goes with its leader.
        .filter(|j| {
            !(j.state.waits()
                && j.spec.het_leader_of_component().is_some()
                && request.jobs.iter().all(|s| s.het.is_none()))
        })
        .map(|j| {
            let tasks =
                request.jobs.iter().find(|s| s.job == j.id && j.array_pending.is_some()).and_then(|s| s.tasks.clone());
            (JobSelector { job: j.id, tasks, het: None, run: None }, j.clone())
        })
        .collect()
}

/// `504_3.0` becomes the step of the job that task 3 of the array 504 is.
fn resolve_tasks(request: &mut Request, jobs: &[Arc<JobView>]) {
    for step in &mut request.steps {
        if let Some(task) = step.array_task()
            && let Some(job) = jobs.iter().find(|j| j.array_task == Some(task))
        {
            step.job = job.id;
            step.task = None;
        }
    }
}

fn confirmed(job: &JobView) -> bool {
    let partition = job.allocation.as_ref().map_or_else(|| job.partitions.join(","), |a| a.partition.clone());
    let question = format!("Cancel job_id={} name={} partition={partition} [y/n]? ", job.id, job.spec.name);
    loop {
        if output::stdout(|out| out.write_all(question.as_bytes())).is_err() {
            return false;
        }
        let mut answer = String::new();
        match std::io::stdin().lock().read_line(&mut answer) {
            Ok(0) | Err(_) => return false,
            Ok(_) => match answer.trim().chars().next() {
                Some('y' | 'Y') => return true,
                Some('n' | 'N') => return false,
                _ => {}
            },
        }
    }
}

fn say(request: &Request, console: &Console) {
    let what = request.signal.map_or_else(|| "Terminating".to_owned(), |s| format!("Signal {s} to"));
    for job in &request.jobs {
        console.verbose(format_args!("{what} job {}", job));
    }
    request.steps.iter().for_each(|step| own_steps::say(request.signal, step, console));
}

/// Tells what could not be done. Jobs that are over or unknown are no error: they do not run.
fn tell(results: &[(JobSelector, Result<(), Refusal>)], request: &Request, console: &Console) -> i32 {
    let mut code = 0;
    for (job, result) in results {
        let Err(refusal) = result else { continue };
        let step = request.steps.iter().find(|s| s.job == job.job && !request.jobs.contains(job));
        let id = step.map_or_else(|| format!("id {job}"), |step| format!("step id {step}"));
        let text = format!("Kill job error on job {id}: {refusal}");
        match refusal {
            Refusal::InvalidJobId | Refusal::AlreadyDone => console.verbose(format_args!("error: {text}")),
            // A job that waits has no steps.
            Refusal::JobPending if step.is_some() => console.verbose(format_args!("error: {text}")),
            refusal => {
                console.error(text);
                code = refused(refusal);
            }
        }
    }
    code
}

/// The exit code of what was declined: the low byte of Slurm's error number, where it is not 1.
fn refused(refusal: &Refusal) -> i32 {
    /// `ESLURM_ACCESS_DENIED`, as scancel ends with it.
    const ACCESS_DENIED: i32 = 2002;
    /// "Cannot cancel scrontab jobs without --cron flag."
    const CRON_NOT_CONFIRMED: i32 = 2098;
    match refusal {
        Refusal::AccessDenied => ACCESS_DENIED & 0xff,
        Refusal::CronNotConfirmed => CRON_NOT_CONFIRMED & 0xff,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use garrick_model::{
        spec::JobSpec,
        testing::{job, spec},
    };

    fn read_words(words: &str) -> Result<Request, Wrong> {
        let args: Vec<OsString> = words.split_whitespace().map(OsString::from).collect();
        read(&arguments::parse(&TABLE, &args).unwrap(), |_| None)
    }

    #[test]
    fn ids_are_jobs_array_tasks_and_steps() {
        let request = read_words("5 6_3 7_[1-4,9] 8.0,8.batch").unwrap();
        let shown: Vec<String> = request.jobs.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["5", "6_3", "7_[1-4,9]"]);
        let steps: Vec<String> = request.steps.iter().map(ToString::to_string).collect();
        assert_eq!(steps, ["8.0", "8.batch"]);
    }

    #[test]
    fn steps_are_named_one_by_one_and_by_the_many() {
        let request = read_words("5609.7 5609.7_3,5609.7_[10-20,30] 5609.[3-9] 5609.*").unwrap();
        let shown: Vec<String> = request.steps.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["5609.7", "5609.7_3", "5609.7_[10-20,30]", "5609.[3-9]", "5609.*"]);
        assert!(!request.pending_only);
    }

    #[test]
    fn of_steps_those_that_wait_can_be_chosen() {
        let request = read_words("--state=PENDING 5609.*").unwrap();
        assert!(request.pending_only && !request.filter.chooses());
        let both = read_words("-t pd 5609.* 7").unwrap();
        assert!(both.pending_only && both.filter.chooses());
        let error = "--state: of steps only those that wait (PENDING) can be chosen";
        assert_eq!(read_words("-t R 5609.3").unwrap_err(), error.into());
    }

    #[test]
    fn a_job_is_found_by_each_qos_that_it_names() {
        let names = |qos: &str| JobSpec { qos: Some(qos.to_owned()), ..spec() };
        let found = |asked: &str, qos: &str| {
            let request = read_words(&format!("-q {asked}")).unwrap();
            request.filter.takes(&job(1, names(qos)))
        };
        assert!(found("low", "high,low") && found("high", "high,low") && found("low", "low"));
        assert!(!found("normal", "high,low") && !found("low", "lower,high"));
    }

    #[test]
    fn unknown_signals_are_refused() {
        assert_eq!(read_words("-s usr1 5").unwrap().signal, Some(libc::SIGUSR1));
        assert_eq!(read_words("-s FOO 5").unwrap_err(), Wrong::Bare("Unknown job signal: FOO".to_owned()));
    }

    #[test]
    fn nothing_named_and_nothing_chosen_is_an_error() {
        assert_eq!(read_words("").unwrap_err(), "No job identification provided".into());
        assert!(read_words("--me").is_ok());
        assert_eq!(read_words("x5").unwrap_err(), "Invalid job id x5".into());
        let valid = "Valid job states are PENDING, RUNNING, and SUSPENDED";
        for (words, state) in [("-t nosuch", "nosuch"), ("--state=", "")] {
            let wrong = Wrong::Bare(format!("Invalid job state specified: {state}\n{valid}"));
            assert_eq!(read_words(words).unwrap_err(), wrong);
        }
        assert_eq!(read_words("-u no_such").unwrap_err(), "Invalid user name: no_such".into());
    }
}
