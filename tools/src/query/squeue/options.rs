//! Options of `squeue` and the `SQUEUE_*` variables, parsed into what is requested, selected and shown.

use crate::{
    options::table::Arg,
    query::{
        arguments::{Arguments, NO_FEDERATION, Table, inert, option},
        choices,
    },
};
use garrick_model::{
    job_query::{JobQuery, JobStates},
    step_selector::StepsSelector,
    time::{TimeLimit, Timestamp, parse_duration_secs},
    view::JobView,
};
use garrick_render::{
    amounts::Amounts as _,
    columns::Layout,
    job_rows::{Arrays, Choice},
    json::Form,
    squeue::{
        fields::{self, Entry},
        sort::SortKey,
    },
    words,
};
use std::time::Duration;

/// Options of `squeue`.
pub static TABLE: Table = Table {
    program: "squeue",
    purpose: "Show jobs and job steps in the queue.",
    operands: "",
    words: &[],
    options: &[
        option("account", Some('A'), Arg::Required("account(s)"), "only jobs of these accounts"),
        option("all", Some('a'), Arg::None, "include jobs in hidden partitions"),
        option("array", Some('r'), Arg::None, "one line for each array task, or waiting step"),
        option("clusters", Some('M'), Arg::Required("names"), "the cluster, only the own one"),
        option("noheader", Some('h'), Arg::None, "no heading"),
        option("helpformat", None, Arg::None, "list the letters of fields"),
        option("hide", None, Arg::None, "exclude jobs in hidden partitions"),
        option("iterate", Some('i'), Arg::Required("seconds"), "repeat at this interval in seconds"),
        option("jobs", Some('j'), Arg::Optional("job(s)"), "only these jobs"),
        option("json", None, Arg::Optional("data_parser"), "as JSON"),
        option("yaml", None, Arg::Optional("data_parser"), "as YAML"),
        option("long", Some('l'), Arg::None, "longer lines"),
        option("licenses", Some('L'), Arg::Required("license(s)"), "only jobs that request or have these licenses"),
        inert("local", None, Arg::None, "only jobs of this cluster", NO_FEDERATION),
        option("me", None, Arg::None, "only jobs of the caller"),
        option("name", Some('n'), Arg::Required("job_name(s)"), "only jobs of these names"),
        option("noconvert", None, Arg::None, "do not convert units of memory"),
        option("format", Some('o'), Arg::Required("format"), "fields by letters, %[.][size]letter"),
        option("Format", Some('O'), Arg::Required("format"), "fields by names, name[:[.]size]"),
        option("partition", Some('p'), Arg::Required("partition(s)"), "only jobs in these partitions"),
        option("priority", Some('P'), Arg::None, "show a waiting job of several partitions once for each partition"),
        option("qos", Some('q'), Arg::Required("qos(s)"), "only jobs of these QOS"),
        option("reservation", Some('R'), Arg::Required("reservation(s)"), "only jobs of these reservations"),
        option("running-over", None, Arg::Required("time"), "only jobs that have run for longer"),
        option("running-under", None, Arg::Required("time"), "only jobs that have run for less"),
        option("steps", Some('s'), Arg::Optional("step(s)"), "steps instead of jobs"),
        option(
            "sort",
            Some('S'),
            Arg::Required("fields"),
            "order by letters of -o; - before a letter for descending order",
        ),
        option("start", None, Arg::None, "expected start of pending jobs"),
        option("notme", None, Arg::None, "only jobs of others"),
        option("only-job-state", None, Arg::None, "ids and states only"),
        option("expand-patterns", None, Arg::None, "names of files with their patterns replaced"),
        inert("federation", None, Arg::None, "jobs of the federation", NO_FEDERATION),
        inert("sibling", None, Arg::None, "jobs of other clusters of a federation", NO_FEDERATION),
        option("states", Some('t'), Arg::Required("states"), "only jobs in these states, or all"),
        option("user", Some('u'), Arg::Required("user(s)"), "only jobs of these users"),
        option("nodelist", Some('w'), Arg::Required("hostlist"), "only jobs on these nodes"),
        option("verbose", Some('v'), Arg::None, "more messages"),
    ],
    misuse: 1,
};

const JOBS: &str = "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R";
const JOBS_STATE: &str = "%.18i %.2t";
const JOBS_LONG: &str = "%.18i %.9P %.8j %.8u %.8T %.10M %.9l %.6D %R";
const JOBS_START: &str = "%.18i %.9P %.8j %.8u %.2t %.19S %.6D %20Y %R";
const STEPS: &str = "%.15i %.8j %.9P %.8u %.9M %N";
const STEPS_LONG: &str = "%.15i %.8j %.9P %.8u %.9M %.8T %.9l %N";

/// What is listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Jobs.
    Jobs,
    /// Steps, all or the named ones.
    Steps(Vec<StepsSelector>),
}

/// What is to be done.
#[derive(Debug)]
pub struct Request {
    /// Jobs or steps.
    pub subject: Subject,
    /// Which.
    pub choice: Choice,
    /// How arrays are shown.
    pub arrays: Arrays,
    /// A waiting job of several partitions is a row for each.
    pub each_partition: bool,
    /// Columns.
    pub layout: Layout<&'static Entry>,
    /// Nobody asked for these columns: the first may grow for ids that Slurm does not have (`503.7_[3-9999%64]`).
    pub own_layout: bool,
    /// Order.
    pub sort: Vec<SortKey>,
    /// Heading line.
    pub heading: bool,
    /// Date above the heading.
    pub banner: bool,
    /// Also jobs in hidden partitions.
    pub hidden: bool,
    /// A document instead of columns.
    pub form: Option<Form>,
    /// Again and again.
    pub iterate: Option<Duration>,
    /// Patterns in names of files are replaced.
    pub expand: bool,
    /// Units of memory are converted.
    pub convert: bool,
    /// For how long jobs have run.
    pub running: Running,
    /// Ids and states only: jobs that are not known are passed over (squeue(1)).
    pub only_states: bool,
    /// Say more.
    pub verbose: bool,
    /// Users who are not known: they are told of, and have no jobs.
    pub unknown_users: Vec<choices::ChoiceError>,
}

/// A time that jobs have run for: a job that has not started is of none (squeue(1)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Running {
    /// Longer.
    pub over: Option<TimeLimit>,
    /// Less long.
    pub under: Option<TimeLimit>,
}

impl Running {
    /// Has the job run for such a time?
    pub fn takes(&self, job: &JobView, now: Timestamp) -> bool {
        if *self == Self::default() {
            return true;
        }
        let secs = job.run_secs(now);
        job.state.is_live()
            && !job.state.waits()
            && self.over.is_none_or(|limit| limit.duration().is_some_and(|limit| secs > limit.as_secs()))
            && self.under.is_none_or(|limit| limit.duration().is_none_or(|limit| secs < limit.as_secs()))
    }
}

/// The time behind an option: not 0.
fn run_time(arguments: &Arguments, option: &str) -> Result<Option<TimeLimit>, RequestError> {
    let Some(text) = arguments.value(option) else { return Ok(None) };
    match parse_duration_secs(&text) {
        Ok(None) => Ok(Some(TimeLimit::Unlimited)),
        Ok(Some(secs @ 1..)) => Ok(Some(TimeLimit::Secs(secs))),
        Ok(Some(0)) | Err(_) => Err(RequestError::RunTime),
    }
}

/// Options that cannot be used, in the words that the user gets.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// A sort specification.
    #[error("Invalid sort specification: {0}")]
    Sort(String),
    /// A state.
    #[error("Invalid job state specified: {0}\nValid job states include: {words}", words = words::job_state_words().to_lowercase())]
    State(String),
    /// A time that jobs have run for.
    #[error("Invalid time limit specification")]
    RunTime,
    /// A number of seconds.
    #[error("--iterate={0}")]
    Iterate(String),
    /// Ids, users, node names.
    #[error(transparent)]
    Choice(#[from] choices::ChoiceError),
    /// No document is written.
    #[error("there is no such form of documents")]
    Form(choices::FormError),
}

/// Reads the options; `env` looks variables up.
pub fn read(arguments: &Arguments, env: impl Fn(&str) -> Option<String>) -> Result<Request, RequestError> {
    let text = |long: &str, variable: &str| arguments.value(long).or_else(|| env(variable)).filter(|v| !v.is_empty());
    let long = arguments.has("long");
    let start = arguments.has("start");
    let steps = arguments.has("steps");
    let form = choices::form(arguments).map_err(RequestError::Form)?;

    let subject = if steps {
        let named = arguments.value("steps").unwrap_or_default();
        Subject::Steps(choices::steps(&named)?)
    } else {
        Subject::Jobs
    };
    let table = if steps { fields::STEP } else { fields::JOB };
    let default = match (steps, start, long) {
        (true, _, false) => STEPS,
        (true, _, true) => STEPS_LONG,
        (false, true, _) => JOBS_START,
        (false, false, true) => JOBS_LONG,
        (false, false, false) if arguments.has("only-job-state") => JOBS_STATE,
        (false, false, false) => JOBS,
    };
    let layout = layout(arguments, &env, table, default);

    let each_state = form.is_some() && arguments.has("only-job-state");
    let (users, unknown_users) = users(arguments, &env);
    let choice = choice(arguments, &env, (start, each_state), users)?;
    // What is asked for by name is shown.
    let named = !choice.jobs.is_empty() || !choice.such.partitions.is_empty();
    let default_sort = match (steps, start) {
        (true, _) => "P,i",
        (false, true) => "S",
        (false, false) => "P,t,-p",
    };
    let sort = sort(table, &text("sort", "SQUEUE_SORT").unwrap_or_else(|| default_sort.to_owned()))?;
    let iterate = choices::interval(arguments).map_err(RequestError::Iterate)?;
    let expanded = arguments.has("array") || env("SQUEUE_ARRAY").is_some() || each_state;
    Ok(Request {
        subject,
        choice,
        arrays: if expanded { Arrays::Expanded } else { Arrays::Folded },
        each_partition: arguments.has("priority") || env("SQUEUE_PRIORITY").is_some(),
        own_layout: own_layout(arguments, &env),
        layout,
        sort,
        heading: !arguments.has("noheader"),
        banner: (long || iterate.is_some()) && !arguments.has("noheader"),
        hidden: arguments.has("all") || (env("SQUEUE_ALL").is_some() && !arguments.has("hide")) || named,
        form,
        iterate,
        expand: arguments.has("expand-patterns"),
        convert: !arguments.has("noconvert"),
        running: Running { over: run_time(arguments, "running-over")?, under: run_time(arguments, "running-under")? },
        only_states: arguments.has("only-job-state"),
        verbose: arguments.has("verbose"),
        unknown_users,
    })
}

/// No user has this number (chown(2) takes it for none).
const NOBODY: u32 = u32::MAX;

/// Whose jobs are meant, none of them: everybody's; and who is not known.
fn users(arguments: &Arguments, env: impl Fn(&str) -> Option<String>) -> (Vec<u32>, Vec<choices::ChoiceError>) {
    let text = arguments.value("user").or_else(|| env("SQUEUE_USERS")).unwrap_or_default();
    let (mut users, unknown) = choices::known_users(&text);
    if arguments.has("me") {
        users = vec![nix::unistd::Uid::current().as_raw()];
    }
    if users.is_empty() && !unknown.is_empty() {
        users.push(NOBODY);
    }
    (users, unknown)
}

/// Which jobs are meant. `start`: those that wait, unless others are named.
fn choice(
    arguments: &Arguments,
    env: impl Fn(&str) -> Option<String>,
    (start, each_state): (bool, bool),
    users: Vec<u32>,
) -> Result<Choice, RequestError> {
    let text = |long: &str, variable: &str| arguments.value(long).or_else(|| env(variable)).filter(|v| !v.is_empty());
    let list = |long: &str, variable: &str| choices::words(&text(long, variable).unwrap_or_default());
    let states = match text("states", "SQUEUE_STATES") {
        Some(text) => states(&text)?,
        // As a document, ids and states are of all jobs (seen in 26.05.3).
        None if each_state => JobStates::All,
        None if start => JobStates::Only(vec![garrick_model::state::JobState::Pending]),
        None => JobStates::Live,
    };
    Ok(Choice {
        not_of: arguments.has("notme").then(|| nix::unistd::Uid::current().as_raw()),
        jobs: choices::jobs(&arguments.value("jobs").unwrap_or_default())?,
        such: JobQuery {
            users,
            partitions: list("partition", "SQUEUE_PARTITION"),
            names: list("name", "SQUEUE_NAMES"),
            accounts: list("account", "SQUEUE_ACCOUNT"),
            qos: list("qos", "SQUEUE_QOS"),
            licenses: list("licenses", "SQUEUE_LICENSES"),
            reservations: choices::words(&arguments.value("reservation").unwrap_or_default()),
            nodes: choices::nodes(&arguments.value("nodelist").unwrap_or_default())?,
            states,
        },
    })
}

/// No columns were asked for.
fn own_layout(arguments: &Arguments, env: impl Fn(&str) -> Option<String>) -> bool {
    let given = arguments.has("format") || arguments.has("Format");
    let set = env("SQUEUE_FORMAT").is_some() || env("SQUEUE_FORMAT2").is_some();
    !given && (!set || arguments.has("long") || arguments.has("start"))
}

/// The columns asked for: of `-o` and `-O` the later one, then the variables, then the default.
fn layout(
    arguments: &Arguments,
    env: impl Fn(&str) -> Option<String>,
    table: &'static [Entry],
    default: &str,
) -> Layout<&'static Entry> {
    let short = |format: &str| {
        let format = format.replace("%all", &fields::all(table));
        Layout::short(&format, |c| fields::by_letter(table, c))
    };
    let long = |format: &str| Layout::long(format, |n| fields::by_name(table, n));
    let given = arguments.options.iter().rev().find(|o| o.def.long.eq_ignore_ascii_case("format"));
    match given.and_then(|o| Some((o.def.long, o.value.as_ref()?.to_string_lossy().into_owned()))) {
        Some(("format", format)) => short(&format),
        Some((_, format)) => long(&format),
        None => match (env("SQUEUE_FORMAT"), env("SQUEUE_FORMAT2")) {
            _ if arguments.has("long") || arguments.has("start") => short(default),
            (Some(format), _) => short(&format),
            (None, Some(format)) => long(&format),
            (None, None) => short(default),
        },
    }
}

fn states(text: &str) -> Result<JobStates, RequestError> {
    let mut states = Vec::new();
    for word in text.split(',').map(str::trim).filter(|w| !w.is_empty()) {
        if word.eq_ignore_ascii_case("all") {
            return Ok(JobStates::All);
        }
        states.push(words::parse_job_state(word).ok_or_else(|| RequestError::State(word.to_owned()))?);
    }
    Ok(JobStates::Only(states))
}

fn sort(table: &'static [Entry], text: &str) -> Result<Vec<SortKey>, RequestError> {
    let mut keys = Vec::new();
    let mut descending = false;
    for c in text.chars() {
        match c {
            ',' | ' ' => descending = false,
            '-' => descending = true,
            '+' => descending = false,
            c => {
                let entry = fields::by_letter(table, c).ok_or_else(|| RequestError::Sort(c.to_string()))?;
                keys.push(SortKey { field: entry, descending });
                descending = false;
            }
        }
    }
    Ok(keys)
}
