//! Options of `sacct` and its variables, parsed into which records are asked for and how they are shown.

use super::{
    named::{self, Named, NamedError, NamedJob},
    window::{Given, Window, WindowError},
};
use crate::{
    options::table::Arg,
    query::{
        arguments::{Arguments, NO_FEDERATION, Table, inert, option},
        choices::{self, FormError},
    },
};
use garrick_accounts::filter::{JobFilter, NamedJob as FilterJob};
use garrick_asking::accounts::{User, gid_of, group_name};
use garrick_model::{
    hostlist,
    ids::JobId,
    time::{Timestamp, parse_duration_secs},
};
use garrick_render::{
    field_table::Setting,
    json::Form,
    sacct::{
        self,
        choice::{Choice, Flag, Limit},
        completed, fields,
        state::{RecordState, StateError},
        units::{Unit, Units},
    },
};
use jiff::tz::TimeZone;
use std::ops::RangeInclusive;

/// Options of `sacct`.
pub static TABLE: Table = Table {
    program: "sacct",
    purpose: "Show jobs and steps of the past and present, from the records of accounting.",
    operands: "",
    words: &[],
    options: &[
        option("accounts", Some('A'), Arg::Required("account(s)"), "only jobs of these accounts"),
        option("allclusters", Some('L'), Arg::None, "jobs of all clusters, not only of this one"),
        option("allocations", Some('X'), Arg::None, "jobs only, not their steps"),
        option("allusers", Some('a'), Arg::None, "jobs of all users: root's default"),
        option("array", None, Arg::None, "a line for each task of an array that waits"),
        option("associations", Some('x'), Arg::Required("id(s)"), "only jobs of these associations"),
        option("batch-script", Some('B'), Arg::None, "the batch scripts of the jobs after -j"),
        option("brief", Some('b'), Arg::None, "id, state and exit code"),
        option("clusters", Some('M'), Arg::Required("name(s)"), "only jobs of these clusters; all: of every one"),
        option("completion", Some('c'), Arg::None, "the records of job completion instead"),
        option("constraints", Some('C'), Arg::Required("feature(s)"), "only jobs that asked for all of these features"),
        option("delimiter", None, Arg::Required("characters"), "between values of -p and -P, instead of |"),
        option("duplicates", Some('D'), Arg::None, "all runs of requeued jobs, not only the newest"),
        option("endtime", Some('E'), Arg::Required("time"), "only jobs that were there before"),
        option("env-vars", None, Arg::None, "the environments of the batch jobs after -j"),
        option("expand-patterns", None, Arg::None, "names of files with their patterns replaced"),
        inert("federation", None, Arg::None, "jobs of the federation", NO_FEDERATION),
        option("file", Some('f'), Arg::Required("file"), "with -c: the records of job completion in this file"),
        option(
            "flags",
            Some('F'),
            Arg::Required("flag(s)"),
            "only jobs that were handled so: SchedSubmit, SchedMain, ...",
        ),
        option("format", Some('o'), Arg::Required("fields"), "fields, %WIDTH behind a name; negative: to the left"),
        option("gid", Some('g'), Arg::Required("group(s)"), "only jobs of these groups"),
        option("group", None, Arg::Required("group(s)"), "the same as --gid"),
        option("help", Some('h'), Arg::None, "show this help"),
        option("helpformat", Some('e'), Arg::None, "list the fields"),
        option("helpreason", None, Arg::None, "list the words of --reason"),
        option("helpstate", None, Arg::None, "list the words of --state"),
        option("jobs", Some('j'), Arg::Required("job(s)"), "only these jobs, or steps of them"),
        option("json", None, Arg::Optional("data_parser"), "as JSON"),
        inert("local", None, Arg::None, "only jobs of this cluster", NO_FEDERATION),
        option("long", Some('l'), Arg::None, "many fields"),
        option("name", None, Arg::Required("job_name(s)"), "only jobs of these names"),
        option("ncpus", Some('I'), Arg::Required("min[-max]"), "only jobs that had so many CPUs"),
        option("nnodes", Some('i'), Arg::Required("min[-max]"), "only jobs that had so many nodes"),
        option("noconvert", None, Arg::None, "memory in the units in which it is kept"),
        option("nodelist", Some('N'), Arg::Required("hostlist"), "only jobs that had one of these nodes"),
        option("noheader", Some('n'), Arg::None, "no heading"),
        option("parsable", Some('p'), Arg::None, "with | behind each value"),
        option("parsable2", Some('P'), Arg::None, "with | between values"),
        option("partition", Some('r'), Arg::Required("partition(s)"), "only jobs in these partitions"),
        option("qos", Some('q'), Arg::Required("qos(s)"), "only jobs of these QOS"),
        option("reason", Some('R'), Arg::Required("reason(s)"), "only jobs that waited for these reasons"),
        option("state", Some('s'), Arg::Required("state(s)"), "only jobs that were in these states in the time window"),
        option("starttime", Some('S'), Arg::Required("time"), "only jobs that were there at that time or later"),
        option("timelimit-max", Some('K'), Arg::Required("time"), "with -k: up to this time limit"),
        option("timelimit-min", Some('k'), Arg::Required("time"), "only jobs with this time limit, or from it on"),
        option("truncate", Some('T'), Arg::None, "times cut to the time window"),
        option("uid", Some('u'), Arg::Required("user(s)"), "only jobs of these users; without it, the caller's own"),
        option("user", None, Arg::Required("user(s)"), "the same as --uid"),
        option("units", None, Arg::Required("K|M|G|T|P"), "memory in this unit"),
        option("use-local-uid", None, Arg::None, "ids of users as this host knows them"),
        option("verbose", Some('v'), Arg::None, "more messages"),
        option("wckeys", Some('W'), Arg::Required("wckey(s)"), "only jobs of these workload characterization keys"),
        option("whole-hetjob", None, Arg::Optional("yes|no"), "whether a component stands for its heterogeneous job"),
        option("yaml", None, Arg::Optional("data_parser"), "as YAML"),
    ],
    misuse: 1,
};

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Records.
    Records,
    /// Batch scripts.
    Scripts,
    /// Environments.
    Environments,
}

/// What is to be done.
#[derive(Debug)]
pub struct Request {
    /// What.
    pub subject: Subject,
    /// Which records.
    pub choice: Choice,
    /// Of all clusters, where none is named.
    pub all_clusters: bool,
    /// Fields, as they were asked for.
    pub format: String,
    /// How the table is set.
    pub setting: Setting,
    /// Units of memory.
    pub units: Units,
    /// The heading.
    pub heading: bool,
    /// Times are cut to the window.
    pub truncate: bool,
    /// Patterns in names of files are filled in.
    pub expand: bool,
    /// Ids of users are looked up here.
    pub local_uid: bool,
    /// A document instead of a table.
    pub form: Option<Result<Form, FormError>>,
}

/// Options that cannot be used, in the words that the user gets.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// A job or step.
    #[error(transparent)]
    Named(#[from] NamedError),
    /// A state.
    #[error(transparent)]
    State(#[from] StateError),
    /// A reason.
    #[error("unrecognized job reason value '{0}'")]
    Reason(String),
    /// Options that exclude each other.
    #[error("Options -o(--format) and -l(--long) are mutually exclusive. Please remove one and retry.")]
    FormatAndLong,
    /// Scripts and environments are printed one at a time.
    #[error("Options --batch-script and --env-vars are mutually exclusive")]
    ScriptAndEnvironment,
    /// Of which jobs?
    #[error("When requesting job {0} you must also request specific jobs with the '-j' option.")]
    NoJobs(&'static str),
    /// A time limit.
    #[error("Invalid time limit specification")]
    Limit,
    /// A user.
    #[error("Invalid user id: {0}")]
    User(String),
    /// A group.
    #[error("Invalid group id: {0}")]
    Group(String),
    /// A flag.
    #[error("str_2_job_flags: Invalid job flag {0}")]
    Flag(String),
    /// A number of nodes or CPUs.
    #[error("Invalid numeric value \"{0}\" for requested {1} range.")]
    Range(String, &'static str),
    /// A host list.
    #[error("Invalid node name specified: {0}")]
    Nodes(String),
    /// A unit. The second line is the end.
    #[error("Invalid unit type '{0}'. Possible options are 'KMGTP'")]
    Unit(String),
    /// `yes` or `no`.
    #[error("Invalid --whole-hetjob value \"{0}\". Valid values: [yes|no].")]
    WholeHet(String),
    /// A window that cannot be.
    #[error("{}", .0.text(.1))]
    Window(WindowError, Zone),
}

/// A zone, for messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zone(pub TimeZone);

impl std::ops::Deref for Zone {
    type Target = TimeZone;

    fn deref(&self) -> &TimeZone {
        &self.0
    }
}

impl RequestError {
    /// Slurm ends with `fatal` for these.
    pub const fn is_fatal(&self) -> bool {
        matches!(
            self,
            Self::Named(_)
                | Self::State(_)
                | Self::Reason(_)
                | Self::FormatAndLong
                | Self::ScriptAndEnvironment
                | Self::NoJobs(_)
                | Self::Limit
        )
    }
}

/// Who asks, and when.
#[derive(Clone, Debug)]
pub struct Asker {
    /// Id of the user.
    pub uid: u32,
    /// Now.
    pub now: Timestamp,
    /// The user's zone.
    pub zone: TimeZone,
}

/// Reads the options; `env` looks variables up.
///
/// # Errors
/// The first that cannot be used.
pub fn read(
    arguments: &Arguments,
    env: impl Fn(&str) -> Option<String>,
    asker: &Asker,
) -> Result<Request, RequestError> {
    let choice = choice(arguments, asker)?;
    let subject = match (arguments.has("batch-script"), arguments.has("env-vars")) {
        (true, true) => return Err(RequestError::ScriptAndEnvironment),
        (true, false) if choice.such.jobs.is_empty() => return Err(RequestError::NoJobs("scripts")),
        (false, true) if choice.such.jobs.is_empty() => return Err(RequestError::NoJobs("environment")),
        (true, false) => Subject::Scripts,
        (false, true) => Subject::Environments,
        (false, false) => Subject::Records,
    };
    let delimiter = arguments.value("delimiter").unwrap_or_else(|| "|".to_owned());
    Ok(Request {
        subject,
        all_clusters: arguments.has("allclusters") || list(arguments, "clusters").iter().any(|name| name == "all"),
        format: format(arguments, env)?,
        setting: match (arguments.has("parsable2"), arguments.has("parsable")) {
            (true, _) => Setting::Parsable2(delimiter),
            (false, true) => Setting::Parsable(delimiter),
            (false, false) => Setting::Columns,
        },
        units: units(arguments)?,
        heading: !arguments.has("noheader"),
        truncate: arguments.has("truncate"),
        expand: arguments.has("expand-patterns"),
        local_uid: arguments.has("use-local-uid"),
        form: choices::form(arguments).transpose(),
        choice,
    })
}

/// Both names of an option, in the order given.
fn lists(arguments: &Arguments, names: [&str; 2]) -> Vec<String> {
    let given = arguments.options.iter().filter(|given| names.contains(&given.def.long));
    given
        .filter_map(|given| Some(given.value.as_ref()?.to_string_lossy().into_owned()))
        .flat_map(|l| choices::words(&l))
        .collect()
}

fn list(arguments: &Arguments, name: &str) -> Vec<String> {
    lists(arguments, [name, name])
}

fn choice(arguments: &Arguments, asker: &Asker) -> Result<Choice, RequestError> {
    let states: Vec<RecordState> =
        list(arguments, "state").iter().map(|word| RecordState::read(word)).collect::<Result<_, _>>()?;
    let such = such(arguments, asker)?;
    let (start, end) = (arguments.value("starttime"), arguments.value("endtime"));
    let given =
        Given { start: start.as_deref(), end: end.as_deref(), jobs: !such.jobs.is_empty(), states: !states.is_empty() };
    let window = Window::read(given, asker.now, &asker.zone)
        .map_err(|error| RequestError::Window(error, Zone(asker.zone.clone())))?;
    Ok(Choice {
        such,
        window: sacct::Window { start: window.start, end: window.end },
        states,
        duplicates: arguments.has("duplicates"),
        whole_het: whole_het(arguments)?,
        constraints: list(arguments, "constraints"),
        associations: list(arguments, "associations"),
        flags: list(arguments, "flags").into_iter().map(flag).collect::<Result<_, _>>()?,
        reasons: list(arguments, "reason").into_iter().map(reason).collect::<Result<_, _>>()?,
        nodes: range(arguments, "nnodes", "node")?,
        cpus: range(arguments, "ncpus", "cpu")?,
        limits: limits(arguments)?,
        steps: !arguments.has("allocations"),
        tasks: arguments.has("array"),
    })
}

fn such(arguments: &Arguments, asker: &Asker) -> Result<JobFilter, RequestError> {
    let mut named: Vec<Named> = Vec::new();
    for list in
        arguments.options.iter().filter(|given| given.def.long == "jobs").filter_map(|given| given.value.as_ref())
    {
        named.extend(named::read(&list.to_string_lossy())?);
    }
    let clusters = list(arguments, "clusters");
    let nodes = arguments.value("nodelist").unwrap_or_default();
    Ok(JobFilter {
        users: users(arguments, asker, !named.is_empty())?,
        groups: lists(arguments, ["gid", "group"]).into_iter().map(group).collect::<Result<_, _>>()?,
        accounts: list(arguments, "accounts").into_iter().map(|name| name.to_lowercase()).collect(),
        partitions: list(arguments, "partition"),
        qos: list(arguments, "qos").into_iter().map(|name| name.to_lowercase()).collect(),
        wckeys: list(arguments, "wckeys"),
        names: list(arguments, "name"),
        clusters: if clusters.iter().any(|name| name == "all") { Vec::new() } else { clusters },
        nodes: match nodes.is_empty() {
            true => Vec::new(),
            false => hostlist::expand(&nodes).map_err(|error| RequestError::Nodes(error.to_string()))?,
        },
        jobs: named.into_iter().map(filter_job).collect(),
        ..JobFilter::default()
    })
}

pub(crate) fn filter_job(Named { job, step: steps }: Named) -> FilterJob {
    let whole = match job {
        NamedJob::Id(id) => FilterJob::job(id),
        NamedJob::Tasks(id, tasks) => FilterJob { tasks: Some(tasks), ..FilterJob::job(id) },
        NamedJob::Component(id, offset) => FilterJob { het: Some(offset), ..FilterJob::job(id) },
        NamedJob::Run(run) => FilterJob { run: Some(run), ..FilterJob::job(JobId::OF_A_RUN) },
    };
    FilterJob { steps, ..whole }
}

/// Ids of users; none: all. Unasked, users see their own jobs, root sees all, and what is named is shown.
fn users(arguments: &Arguments, asker: &Asker, jobs: bool) -> Result<Vec<u32>, RequestError> {
    let named = lists(arguments, ["uid", "user"]);
    if named.iter().any(|name| name == "-1") {
        return Ok(Vec::new());
    }
    if named.is_empty() {
        let all = jobs || asker.uid == 0 || arguments.has("allusers");
        return Ok(if all { Vec::new() } else { vec![asker.uid] });
    }
    named
        .into_iter()
        .map(|name| User::by_number_or_name(&name).map(|user| user.uid).ok_or(RequestError::User(name)))
        .collect()
}

fn group(name: String) -> Result<u32, RequestError> {
    let number = name.parse().ok().filter(|gid| group_name(*gid).is_some());
    number.or_else(|| gid_of(&name)).ok_or(RequestError::Group(name))
}

fn flag(word: String) -> Result<Flag, RequestError> {
    let known = Flag::ALL.iter().find(|(_, name)| name.eq_ignore_ascii_case(&word));
    known.map(|(flag, _)| *flag).ok_or(RequestError::Flag(word))
}

fn reason(word: String) -> Result<String, RequestError> {
    if sacct::reasons().any(|known| known.eq_ignore_ascii_case(&word)) {
        Ok(word)
    } else {
        Err(RequestError::Reason(word))
    }
}

/// `4` or `2-8`
fn range(arguments: &Arguments, option: &str, of: &'static str) -> Result<Option<RangeInclusive<u64>>, RequestError> {
    let Some(text) = arguments.value(option).filter(|text| !text.is_empty()) else { return Ok(None) };
    let (min, max) = text.split_once('-').unwrap_or((&text, &text));
    let number = |figures: &str| figures.parse::<u64>();
    match (number(min), number(max)) {
        (Ok(min), Ok(max)) => Ok(Some(min..=max)),
        _ => Err(RequestError::Range(text.clone(), of)),
    }
}

/// `-k` alone is that limit, with `-K` the least one; `-K` alone is nothing.
fn limits(arguments: &Arguments) -> Result<Option<RangeInclusive<Limit>>, RequestError> {
    let limit = |option| match arguments.value(option).map(|text| parse_duration_secs(&text)) {
        None => Ok(None),
        Some(Ok(None)) => Ok(Some(Limit::Unlimited)),
        Some(Ok(Some(secs @ 1..))) => Ok(Some(Limit::Minutes(secs.div_ceil(60)))),
        Some(Ok(Some(0)) | Err(_)) => Err(RequestError::Limit),
    };
    let (min, max) = (limit("timelimit-min")?, limit("timelimit-max")?);
    Ok(min.map(|min| min..=max.unwrap_or(min)))
}

fn whole_het(arguments: &Arguments) -> Result<Option<bool>, RequestError> {
    if !arguments.has("whole-hetjob") {
        return Ok(None);
    }
    match arguments.value("whole-hetjob").as_deref().map(str::to_lowercase).as_deref() {
        None | Some("" | "yes" | "y") => Ok(Some(true)),
        Some("no" | "n") => Ok(Some(false)),
        Some(other) => Err(RequestError::WholeHet(other.to_owned())),
    }
}

fn units(arguments: &Arguments) -> Result<Units, RequestError> {
    match arguments.value("units") {
        Some(text) => {
            let unit = Unit::read(&text);
            unit.map(Units::In).ok_or_else(|| RequestError::Unit(text.chars().take(1).collect()))
        }
        None if arguments.has("noconvert") => Ok(Units::Plain),
        None => Ok(Units::Short),
    }
}

/// The fields: those of `-o`, `-b` and `-l` in the order given, else those of the variable, else the usual ones.
fn format(arguments: &Arguments, env: impl Fn(&str) -> Option<String>) -> Result<String, RequestError> {
    if arguments.has("format") && arguments.has("long") {
        return Err(RequestError::FormatAndLong);
    }
    // The records of job completion have fewer fields.
    let of_completion = arguments.has("completion");
    let (usual, long) = if of_completion { (completed::USUAL, completed::LONG) } else { (fields::USUAL, fields::LONG) };
    let asked: Vec<String> = arguments
        .options
        .iter()
        .filter_map(|given| match given.def.long {
            "format" => given.value.as_ref().map(|value| value.to_string_lossy().into_owned()),
            "brief" => Some(fields::BRIEF.to_owned()),
            "long" => Some(long.to_owned()),
            _ => None,
        })
        .collect();
    if !asked.is_empty() {
        return Ok(asked.join(","));
    }
    Ok(env("SACCT_FORMAT").filter(|format| !format.is_empty()).unwrap_or_else(|| usual.to_owned()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::query::arguments;
    use std::ffi::OsString;

    fn asker(uid: u32) -> Asker {
        Asker { uid, now: Timestamp::from_secs(1_795_820_521), zone: TimeZone::UTC }
    }

    fn as_user(uid: u32, words: &[&str]) -> Result<Request, RequestError> {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        let env = |name: &str| (name == "SACCT_FORMAT" && uid == 7).then(|| "jobid,user".to_owned());
        read(&arguments::parse(&TABLE, &words).unwrap(), env, &asker(uid))
    }

    fn request(words: &[&str]) -> Request {
        as_user(0, words).unwrap()
    }

    fn told(words: &[&str]) -> String {
        let error = as_user(0, words).unwrap_err();
        format!("{}: {error}", if error.is_fatal() { "fatal" } else { "error" })
    }

    #[test]
    fn users_see_their_own_jobs_and_what_they_name() {
        let users = |uid, words: &[&str]| as_user(uid, words).unwrap().choice.such.users;
        assert_eq!(users(0, &[]), [0; 0]);
        assert_eq!(users(1000, &[]), [1000]);
        assert_eq!(users(1000, &["-a"]), [0; 0]);
        assert_eq!(users(1000, &["-j", "12"]), [0; 0]);
        assert_eq!(users(1000, &["-j", "12", "-u", "root"]), [0]);
        assert_eq!(users(1000, &["--user=root", "--uid", "0"]), [0, 0]);
        assert_eq!(users(1000, &["-u", "-1"]), [0; 0]);
    }

    #[test]
    fn fields_are_asked_for_in_several_ways() {
        assert_eq!(request(&[]).format, fields::USUAL);
        assert_eq!(request(&["-b", "-o", "user"]).format, format!("{},user", fields::BRIEF));
        assert_eq!(request(&["-o", "jobid", "--format=user"]).format, "jobid,user");
        assert_eq!(as_user(7, &[]).unwrap().format, "jobid,user");
        assert_eq!(as_user(7, &["-l"]).unwrap().format, fields::LONG);
        let set = |words: &[&str]| request(words).setting;
        assert_eq!(set(&["--delimiter=,"]), Setting::Columns);
        assert_eq!(set(&["-p", "-P", "--delimiter=,"]), Setting::Parsable2(",".into()));
        assert_eq!(set(&["-p"]), Setting::Parsable("|".into()));
        let units = |words: &[&str]| request(words).units;
        assert_eq!((units(&["--noconvert"]), units(&[])), (Units::Plain, Units::Short));
        assert_eq!(units(&["--noconvert", "--units=K"]), Units::In(Unit::KIB));
    }

    #[test]
    fn records_are_chosen_by_what_they_are() {
        let words =
            ["-i", "2-3", "-I", "4", "-k", "5", "-K", "1:00:00", "-C", "a,b", "-N", "n[1-2]", "-W", "w", "-q", "high"];
        let choice = request(&words).choice;
        assert_eq!((choice.nodes, choice.cpus), (Some(2..=3), Some(4..=4)));
        assert_eq!(choice.limits, Some(Limit::Minutes(5)..=Limit::Minutes(60)));
        assert_eq!(
            (choice.constraints, choice.such.nodes),
            (vec!["a".into(), "b".into()], vec!["n1".into(), "n2".into()])
        );
        assert_eq!((choice.such.wckeys, choice.such.qos), (vec!["w".to_owned()], vec!["high".to_owned()]));
        assert_eq!(request(&["-K", "5"]).choice.limits, None);
        assert_eq!(request(&["-k", "5"]).choice.limits, Some(Limit::Minutes(5)..=Limit::Minutes(5)));
        assert_eq!(request(&["-F", "schedmain", "-R", "priority"]).choice.flags, [Flag::SchedMain]);
        assert_eq!(request(&["-M", "all"]).choice.such.clusters, [""; 0]);
        assert!(
            request(&["-M", "all"]).all_clusters && request(&["-L"]).all_clusters && !request(&["-X"]).all_clusters
        );
        assert_eq!(request(&["-M", "a,b"]).choice.such.clusters, ["a", "b"]);
        assert_eq!(request(&["-A", "Astro"]).choice.such.accounts, ["astro"]);
        let choice = request(&["-X", "-D", "--array", "--whole-hetjob=no", "-s", "r,,f"]).choice;
        assert!(!choice.steps && choice.duplicates && choice.tasks && choice.states.len() == 2);
        assert_eq!((choice.whole_het, request(&["--whole-hetjob"]).choice.whole_het), (Some(false), Some(true)));
        let jobs = request(&["-j", "12,9_3", "-j", "10+1.0"]).choice.such.jobs;
        assert_eq!((jobs.len(), jobs[2].het, jobs[2].steps.is_some()), (3, Some(1), true));
        assert_eq!(request(&["-B", "-j", "1"]).subject, Subject::Scripts);
    }

    /// As sacct of Slurm 26.05.3 said.
    #[test]
    fn what_cannot_be_used_is_told_in_slurms_words() {
        for (words, text) in [
            (&["-j", "1x"][..], "fatal: Bad job/step specified: 1x: JobID includes unexpected non-numeric characters"),
            (&["-s", "bogus"], "fatal: unrecognized job state value 'bogus'"),
            (&["-s", "CG"], "fatal: job state CG is not supported / accounted"),
            (&["-R", "bogus"], "fatal: unrecognized job reason value 'bogus'"),
            (&["-F", "bogus"], "error: str_2_job_flags: Invalid job flag bogus"),
            (&["-k", "x"], "fatal: Invalid time limit specification"),
            (&["-k", "0"], "fatal: Invalid time limit specification"),
            (&["-i", "x"], "error: Invalid numeric value \"x\" for requested node range."),
            (&["-I", "2-"], "error: Invalid numeric value \"2-\" for requested cpu range."),
            (&["-u", "garrick-nosuch-user"], "error: Invalid user id: garrick-nosuch-user"),
            (&["-g", "garrick-nosuch-group"], "error: Invalid group id: garrick-nosuch-group"),
            (&["--units=x"], "error: Invalid unit type 'x'. Possible options are 'KMGTP'"),
            (&["--whole-hetjob=x"], "error: Invalid --whole-hetjob value \"x\". Valid values: [yes|no]."),
            (&["-B"], "fatal: When requesting job scripts you must also request specific jobs with the '-j' option."),
            (
                &["--env-vars"],
                "fatal: When requesting job environment you must also request specific jobs with the '-j' option.",
            ),
            (&["-B", "--env-vars", "-j", "1"], "fatal: Options --batch-script and --env-vars are mutually exclusive"),
            (
                &["-l", "-o", "jobid"],
                "fatal: Options -o(--format) and -l(--long) are mutually exclusive. Please remove one and retry.",
            ),
            (
                &["-S", "now", "-E", "08:00"],
                "error: Start time (2026-11-27T23:02:01) requested is after end time (2026-11-27T08:00:00).",
            ),
        ] {
            assert_eq!(told(words), text);
        }
    }
}
