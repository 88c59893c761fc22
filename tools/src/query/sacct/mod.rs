//! `sacct`: jobs and steps of the past and present, from the records of accounting. Options, then a question to the service, then
//! rows, then columns.
//!
//! | module | what it is |
//! |---|---|
//! | [`options`] | what was typed and set |
//! | [`completed`] | the records of job completion |
//! | [`named`], [`window`] | jobs after `-j`; the time window |
//! | [`sorted`] | texts in order, however many |
//! | [`used`] | `garrick efficiency` and `seff` |
//!
//! Which rows are shown and what stands in each field is in [`garrick_render::sacct`].

pub mod completed;
pub mod named;
pub mod options;
pub mod sorted;
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
    time::{Timestamp, system_zone},
    usage::TaskUsage,
};
use garrick_render::{
    clock::Clock,
    field_table,
    sacct::{
        self as records,
        choice::{Choice, Place, Shown},
        document,
        entry::{Entry, Part},
        fields, state,
    },
};
use options::{Asker, Request, RequestError, Subject};
use sorted::Sorted;
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
        AccountsError::NotTaken(why) => console.error(format_args!("rows cannot be put in order: {why}")),
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

/// The choice, with further components of heterogeneous jobs where names of some stand for all.
fn with_whole_het_jobs(choice: &Choice, service: &mut Accounts) -> Result<Choice, AccountsError> {
    let mut choice = choice.clone();
    if choice.whole_het == Some(true) {
        // Only jobs that are named have others that belong to them: these are few.
        let named = service.jobs(&choice.question(), false)?;
        let rest = choice.rest_of_het_jobs(&named.jobs);
        choice.such.jobs.extend(rest);
    }
    Ok(choice)
}

/// The rows that are asked for, in order.
fn rows(choice: &Choice, service: &mut Accounts) -> Result<Rows, AccountsError> {
    let choice = with_whole_het_jobs(choice, service)?;
    let Rows { jobs, at } = service.jobs(&choice.question(), choice.steps)?;
    Ok(Rows { jobs: choice.rows(jobs), at })
}

/// Puts what is shown of each row in order, as the rows come: neither they nor their texts are held.
fn sorted(
    choice: &Choice,
    service: &mut Accounts,
    text: &dyn Fn(&JobWithSteps, Timestamp) -> io::Result<Vec<u8>>,
) -> Result<Sorted, AccountsError> {
    let choice = with_whole_het_jobs(choice, service)?;
    let mut texts = Texts { shown: Shown::of(&choice), sorted: Sorted::holding(sorted::HELD), text };
    let at = service.each_job(&choice.question(), choice.steps, &mut |job, at| texts.next(job, at))?;
    texts.end(at).map_err(AccountsError::NotTaken)
}

/// The texts of rows that are shown.
struct Texts<'t> {
    shown: Shown<'t>,
    sorted: Sorted,
    /// That of a row which was told at that time.
    text: &'t dyn Fn(&JobWithSteps, Timestamp) -> io::Result<Vec<u8>>,
}

impl Texts<'_> {
    fn take(&mut self, job: Option<JobWithSteps>, at: Timestamp) -> io::Result<()> {
        let Some(job) = job else { return Ok(()) };
        self.sorted.take(Place::of(&job.row), (self.text)(&job, at)?)
    }

    /// The next row came.
    fn next(&mut self, job: JobWithSteps, at: Timestamp) -> io::Result<()> {
        let certain = self.shown.next(job);
        self.take(certain, at)
    }

    /// No more come.
    fn end(mut self, at: Timestamp) -> io::Result<Sorted> {
        let last = self.shown.last();
        self.take(last, at)?;
        Ok(self.sorted)
    }
}

fn show(request: &Request, service: &mut Accounts, console: &Console) -> Result<i32, AccountsError> {
    let (choice, cluster) = (&request.choice, service.cluster().name().to_owned());
    if let Some(form) = &request.form {
        let form = match form {
            Ok(form) => *form,
            // Slurm calls a document in no form no failure.
            Err(error) => return Ok(error.tell(console, 0)),
        };
        let whole = whole_jobs(choice);
        let jobs = sorted(choice, service, &|job, at| {
            let set = document::Setting { now: at, user: &choices::user_name };
            form.accounting_job(document::job(job, &whole, &set))
        })?;
        let written = form.of_accounting(document::empty(&choices::meta(&cluster, form))).and_then(|mut listed| {
            output::stdout(|out| {
                jobs.give(&mut |job| listed.write(out, job))?;
                listed.end(out)
            })
        });
        return Ok(output::finish(console, written, 0));
    }
    let columns = match fields::columns(&request.format) {
        Ok(columns) => columns,
        Err(field) => {
            console.error(format_args!("Invalid field requested: \"{field}\""));
            return Ok(1);
        }
    };
    let lines = Lines { request, columns: &columns, clock: Clock::system(), task_list: task_list_limit() };
    let lines = sorted(choice, service, &|job, at| lines.of(job, at))?;
    let written = output::stdout(|out| {
        if request.heading {
            request.setting.heading(out, &columns)?;
        }
        lines.give(&mut |lines| out.write_all(lines))
    });
    Ok(output::finish(console, written, 0))
}

/// A document has all steps of the jobs that are shown.
fn whole_jobs(choice: &Choice) -> Choice {
    let mut choice = choice.clone();
    choice.such.jobs.clear();
    choice
}

/// How the lines of a table are set.
struct Lines<'r> {
    request: &'r Request,
    columns: &'r [fields::Column],
    clock: Clock,
    task_list: Option<usize>,
}

impl Lines<'_> {
    /// The lines of a job and its steps.
    fn of(&self, job: &JobWithSteps, at: Timestamp) -> io::Result<Vec<u8>> {
        let request = self.request;
        let clock = Clock { now: at, ..self.clock.clone() };
        let uid = |user: &str| User::by_name(user).map(|user| user.uid);
        let set = fields::Setting {
            clock: &clock,
            units: request.units,
            truncate: request.truncate.then_some(request.choice.window),
            task_list: self.task_list,
            expand: request.expand,
            uid: request.local_uid.then_some(&uid),
        };
        let mut lines = Vec::new();
        for entry in request.choice.entries(job) {
            request.setting.row(&mut lines, self.columns, |shown| shown(&entry, &set))?;
        }
        Ok(lines)
    }
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use garrick_accounts::row::JobRow;
    use garrick_model::{ids::Sluid, state::JobState};
    use garrick_render::testing::accounting::{at, job, with_steps};

    /// Rows of many jobs as the service tells them: by job and run. Every third job has two runs, of which one may not fit.
    fn told(jobs: u32) -> Vec<JobWithSteps> {
        let mut rows = Vec::new();
        for id in 1..=jobs {
            let mut row = job(id, "x", 4, 6);
            // Later numbers are not always submitted later.
            row.submit = at(i64::from(id.wrapping_mul(2_654_435_761) % 1000));
            let next = JobRow { sluid: Sluid(row.sluid.0 + (1 << 40)), restarts: 1, ..row.clone() };
            if id % 6 == 3 {
                row.state = JobState::Failed;
            }
            rows.push(with_steps(row, []));
            rows.extend((id % 3 == 0).then(|| with_steps(next, [])));
        }
        rows
    }

    fn name(job: &JobWithSteps, _: Timestamp) -> io::Result<Vec<u8>> {
        Ok(format!("{} {}\n", job.row.job, job.row.restarts).into_bytes())
    }

    #[test]
    fn however_many_rows_come_few_are_held_and_they_are_shown_as_if_all_were() {
        const MOST: usize = 32 << 10;
        for duplicates in [false, true] {
            let choice = Choice { duplicates, ..Choice::everything(at(100_000)) };
            let mut texts = Texts { shown: Shown::of(&choice), sorted: Sorted::holding(MOST), text: &name };
            for row in told(20_000) {
                texts.next(row, at(0)).unwrap();
                assert!(texts.sorted.bytes() <= MOST);
            }
            let mut shown = Vec::new();
            texts.end(at(0)).unwrap().give(&mut |text| shown.write_all(text)).unwrap();
            let whole: Vec<u8> = choice.rows(told(20_000)).iter().flat_map(|row| name(row, at(0)).unwrap()).collect();
            assert!(shown == whole && !whole.is_empty());
        }
    }
}
