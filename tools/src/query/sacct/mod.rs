//! `sacct`: jobs and steps of the past and present, from the records of accounting. Options, then a question to the service, then
//! rows, then columns.
//!
//! | module | what it is |
//! |---|---|
//! | [`options`] | what was typed and set |
//! | [`completed`] | the records of job completion |
//! | [`named`], [`window`] | jobs after `-j`; the time window |
//! | [`used`] | `garrick efficiency` and `seff` |
//!
//! Which rows are shown and what stands in each field is in [`garrick_render::sacct`].

pub mod completed;
pub mod named;
pub mod options;
pub mod used;
pub mod window;

use super::{
    arguments::{self, Outcome},
    choices,
    squeue::task_list_limit,
};
use crate::{
    output::{self, Console},
    telling::hints,
};
use garrick_accounts::messages::{AccountsRefusal, AccountsRequest, JobWithSteps};
use garrick_asking::{
    accounting::{Accounts, AccountsError, Rows},
    accounts::User,
    cluster::ClusterError,
};
use garrick_model::{
    ids::Sluid,
    time::{Timestamp, system_zone},
    usage::TaskUsage,
};
use garrick_render::{
    clock::Clock,
    field_table,
    sacct::{
        self as records,
        choice::Choice,
        document,
        entry::{Entry, Part},
        fields, state,
    },
};
use options::{Asker, Request, RequestError, Subject};
use std::{
    ffi::OsString,
    io::{self, Write},
};
use window::{Window, Words};

/// Runs `sacct`. Returns its exit code.
pub fn main(args: Vec<OsString>) -> i32 {
    let mut console = Console::new("sacct");
    if let Err(error) = arguments::parse(&options::TABLE, &args) {
        // Slurm leaves it at that.
        console.line(error);
        return 1;
    }
    let arguments = match arguments::read(&options::TABLE, &args, &console) {
        Outcome::Go(arguments) => arguments,
        Outcome::Done(code) => return code,
    };
    console.set_verbosity(arguments::verbosity(&arguments));
    let listed = ["helpformat", "helpreason", "helpstate"].into_iter().find(|option| arguments.has(option));
    if let Some(listed) = listed {
        return output::finish(&console, output::stdout(|out| list(listed, out)), 0);
    }
    let asker = Asker { uid: nix::unistd::Uid::current().as_raw(), now: Timestamp::now(), zone: system_zone() };
    let mut request = match options::read(&arguments, |name| std::env::var(name).ok(), &asker) {
        Ok(request) => request,
        Err(error) => return refuse(&error, &console),
    };
    if arguments.has("completion") {
        return completed::show(&request, arguments.value("file"), &console);
    }
    say_window(&request.choice, &asker, &console);
    let mut service = match Accounts::open(&console) {
        Ok(service) => service,
        Err(error) => return tell(&error, &console),
    };
    match unknown_qos(&request.choice, &mut service) {
        Ok(None) => {}
        Ok(Some(why)) => {
            console.error(why);
            return 1;
        }
        Err(error) => return tell(&error, &console),
    }
    if !request.all_clusters {
        of_own_cluster(&mut request.choice, &service);
    }
    let done = match request.subject {
        Subject::Records => show(&request, &mut service, &console),
        Subject::Scripts | Subject::Environments => texts(&request, &mut service, &console),
    };
    match done {
        Ok(code) => code,
        Err(error) => tell(&error, &console),
    }
}

/// Says why the options cannot be used. Returns the exit code.
fn refuse(error: &RequestError, console: &Console) -> i32 {
    match error {
        RequestError::Window(window::WindowError::Text(_), _) => output::stderr(format!("{error}\n").as_bytes()),
        RequestError::Unit(_) => {
            console.error(error);
            console.fatal("Invalid unit type");
        }
        _ if error.is_fatal() => console.fatal(error),
        _ => console.error(error),
    }
    1
}

/// Says why the service did not answer. Returns the exit code.
pub(crate) fn tell(error: &AccountsError, console: &Console) -> i32 {
    match error {
        AccountsError::Off => output::stderr(format!("{error}\n").as_bytes()),
        AccountsError::Cluster(ClusterError::Unknown(why)) => console.error(why),
        AccountsError::Cluster(why) => {
            hints(why, console);
            console.error("Problem talking to the database: Connection refused");
        }
        AccountsError::Refused(AccountsRefusal::Away(why)) => {
            console.error(format_args!("Sending PersistInit msg: {why}"));
            console.error(format_args!("Problem talking to the database: {why}"));
        }
        AccountsError::Refused(_) => console.error(format_args!("Problem talking to the database: {error}")),
    }
    1
}

/// `--helpformat`, `--helpreason` and `--helpstate`.
fn list(what: &str, out: &mut dyn Write) -> io::Result<()> {
    let columns = |out: &mut dyn Write, words: &[&str], count: usize, width: usize| {
        words.chunks(count).try_for_each(|line| {
            let cells: Vec<String> = line.iter().map(|word| format!("{word:<width$}")).collect();
            writeln!(out, "{}", cells.join(" "))
        })
    };
    match what {
        "helpreason" => columns(out, &records::reasons().collect::<Vec<_>>(), 2, 39),
        "helpstate" => columns(out, &state::listed().collect::<Vec<_>>(), 4, 19),
        _ => field_table::help_format(out, fields::FIELDS),
    }
}

fn say_window(choice: &Choice, asker: &Asker, console: &Console) {
    let states: Vec<&str> = choice.states.iter().map(|state| state.word()).collect();
    let what = if states.is_empty() { "Eligible".to_owned() } else { states.join(",") };
    let window = Window { start: choice.window.start, end: choice.window.end };
    console.verbose(format_args!("Jobs {what} in the time window {}", Words(window, &asker.zone)));
}

/// What there is to say of the first QOS that is named and that there never was.
fn unknown_qos(choice: &Choice, service: &mut Accounts) -> Result<Option<String>, AccountsError> {
    if choice.such.qos.is_empty() {
        return Ok(None);
    }
    let entities = service.entities()?;
    let unknown = choice.such.qos.iter().find(|name| !entities.qos.contains_key(*name));
    let known = || entities.qos.values().filter(|qos| !qos.deleted).map(|qos| qos.name.as_str()).collect::<Vec<_>>();
    Ok(unknown.map(|name| format!("You gave a bad qos '{name}'. Valid QOS's are {}", known().join(","))))
}

/// Where no cluster is named, jobs of the one from which it is asked (sacct(1), `--allclusters`).
fn of_own_cluster(choice: &mut Choice, service: &Accounts) {
    if choice.such.clusters.is_empty() {
        choice.such.clusters.push(service.cluster().name().to_owned());
    }
}

/// The rows that are asked for, in order.
fn rows(choice: &Choice, service: &mut Accounts) -> Result<Rows, AccountsError> {
    let mut question = choice.question();
    let mut rows = service.jobs(&question, choice.steps)?;
    let rest = choice.rest_of_het_jobs(&rows.jobs);
    let mut choice = choice.clone();
    if !rest.is_empty() {
        question.jobs.clone_from(&rest);
        let more = service.jobs(&question, choice.steps)?.jobs;
        let known: Vec<Sluid> = rows.jobs.iter().map(|job| job.row.sluid).collect();
        rows.jobs.extend(more.into_iter().filter(|job| !known.contains(&job.row.sluid)));
        choice.such.jobs.extend(rest);
    }
    rows.jobs = choice.rows(rows.jobs);
    Ok(rows)
}

fn show(request: &Request, service: &mut Accounts, console: &Console) -> Result<i32, AccountsError> {
    if let Some(form) = &request.form {
        let form = match form {
            Ok(form) => *form,
            // Slurm calls a document in no form no failure.
            Err(error) => return Ok(error.tell(console, 0)),
        };
        let Rows { jobs, at } = rows(&request.choice, service)?;
        let meta = choices::meta(service.cluster().name(), form);
        let set = document::Setting { now: at, user: &choices::user_name };
        let document = document::jobs(&jobs, &whole_jobs(&request.choice), &meta, &set);
        return Ok(output::finish(console, output::stdout(|out| form.write_accounting(out, document)), 0));
    }
    let columns = match fields::columns(&request.format) {
        Ok(columns) => columns,
        Err(field) => {
            console.error(format_args!("Invalid field requested: \"{field}\""));
            return Ok(1);
        }
    };
    let Rows { jobs, at } = rows(&request.choice, service)?;
    let written = output::stdout(|out| table(request, &columns, &jobs, at, out));
    Ok(output::finish(console, written, 0))
}

/// A document has all steps of the jobs that are shown.
fn whole_jobs(choice: &Choice) -> Choice {
    let mut choice = choice.clone();
    choice.such.jobs.clear();
    choice
}

fn table(
    request: &Request,
    columns: &[fields::Column],
    jobs: &[JobWithSteps],
    at: Timestamp,
    out: &mut dyn Write,
) -> io::Result<()> {
    let clock = Clock { now: at, ..Clock::system() };
    let uid = |user: &str| User::by_name(user).map(|user| user.uid);
    let set = fields::Setting {
        clock: &clock,
        units: request.units,
        truncate: request.truncate.then_some(request.choice.window),
        task_list: task_list_limit(),
        expand: request.expand,
        uid: request.local_uid.then_some(&uid),
    };
    if request.heading {
        request.setting.heading(out, columns)?;
    }
    for job in jobs {
        for entry in request.choice.entries(job) {
            request.setting.row(out, columns, |shown| shown(&entry, &set))?;
        }
    }
    Ok(())
}

/// Batch scripts or environments, of each job under a heading.
fn texts(request: &Request, service: &mut Accounts, console: &Console) -> Result<i32, AccountsError> {
    let Rows { jobs, .. } = rows(&Choice { steps: false, ..request.choice.clone() }, service)?;
    let own = nix::unistd::Uid::current().as_raw();
    let all = service.cluster().is_administrator(own);
    for JobWithSteps { row, .. } in jobs.iter().filter(|job| all || job.row.uid == own) {
        let id = Entry { row, part: Part::Job, used: TaskUsage::default() }.id(task_list_limit());
        let (heading, question) = match request.subject {
            Subject::Environments => (
                format!("Environment used for {id} (must be batch to display)"),
                AccountsRequest::Environment(row.sluid),
            ),
            _ => (format!("Batch Script for {id}"), AccountsRequest::Script(row.sluid)),
        };
        let text = service.text(&question)?.unwrap_or_else(|| b"NONE".to_vec());
        let written = output::stdout(|out| {
            writeln!(out, "{heading}\n{}", "-".repeat(80))?;
            out.write_all(&text)?;
            if text.ends_with(b"\n") { Ok(()) } else { writeln!(out) }
        });
        if written.is_err() {
            return Ok(output::finish(console, written, 0));
        }
    }
    Ok(0)
}
