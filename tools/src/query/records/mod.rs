//! `garrick steps`: every step of a job that runs or is over, from the records of its run.
//!
//! | module | what it does |
//! |---|---|
//! | `follow` | continues to read while the job runs |
//! | `shown` | where steps are shown |
//!
//! [`garrick_asking::run_records`] finds and reads the records, and [`garrick_render::steps`] has what is shown of them.

mod follow;
mod shown;

use super::{
    arguments::{self, Arguments, Outcome, Table, option},
    choices,
};
use crate::{
    options::table::Arg,
    output::{self, Console},
};
use garrick_asking::{
    cluster::{Cluster, ClusterError},
    run_records::{self, Over},
};
use garrick_model::{
    messages::records::WantedRecords,
    state::StepState,
    step_selector::{StepsSelector, WhichSteps},
};
use garrick_render::{
    columns::Layout,
    step_lines::all_of,
    steps::{
        FAILED,
        fields::{self, Field},
    },
    words,
};
use shown::Shown;
use std::{ffi::OsString, path::PathBuf};

pub(crate) static TABLE: Table = Table {
    program: "garrick steps",
    purpose: "Print every step of a running or ended job: how it ended, how long it took, where its output is.\n\
              Exit code: 0, 1 if the records cannot be read, 2 if some of them are missing.",
    operands: "JOB[.STEP]...",
    words: &[],
    options: &[
        option("failed", None, Arg::None, "only steps that failed (FAILED, TIMEOUT, NODE_FAIL, OUT_OF_MEMORY)"),
        option("state", Some('t'), Arg::Required("LIST"), "only steps in these states: completed,running,..."),
        option(
            "tries",
            None,
            Arg::None,
            "a line for each try of steps that were tried again (STEP#N: the try after N earlier ones)",
        ),
        option(
            "sort",
            None,
            Arg::Required("KEY"),
            "step, end, start, elapsed, cputime, maxrss or exit; -KEY reverses the order. Default: by time of end",
        ),
        option("format", Some('o'), Arg::Required("FIELDS"), "columns, NAME[:[.]WIDTH],...; \"help\" lists them"),
        option("noheader", Some('h'), Arg::None, "no headings"),
        option(
            "json",
            None,
            Arg::Optional("lines"),
            "as a JSON array of objects, or one object on each line (--json=lines)",
        ),
        option(
            "follow",
            Some('f'),
            Arg::None,
            "go on while the job runs: how far it is, and a line for each step as it fails; with --state or --json=lines \
             those steps as they end. Until the job is over; of named steps until they are, and in the job itself until \
             nothing is left to do. Ctrl-C ends it (130)",
        ),
        option("summary", Some('s'), Arg::None, "counts, percentiles, the ten slowest, how busy the job's CPUs were"),
        option("svg", None, Arg::Required("FILE"), "draw how busy the job's CPUs were, to this file (SVG)"),
        option(
            "joblog",
            None,
            Arg::Required("FILE"),
            "a line for each step that ended, in the columns of GNU parallel",
        ),
    ],
    misuse: 1,
};

/// What is said of a job that is followed besides its steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum News {
    /// How far it is, wherever that is read.
    Always,
    /// That only where somebody looks on.
    OnTerminal,
}

/// By what rows are ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Order {
    key: Field,
    turned: bool,
}

#[derive(Debug)]
enum Form {
    Table(Layout<Field>),
    Json,
    JsonLines,
    Summary,
    /// Only what goes into files.
    Nothing,
}

#[derive(Debug)]
struct Request {
    named: Vec<StepsSelector>,
    wanted: WantedRecords,
    order: Option<Order>,
    form: Form,
    heading: bool,
    /// How far the job is, is told too.
    follow: Option<News>,
    svg: Option<PathBuf>,
    joblog: Option<PathBuf>,
}

/// Every state.
const STATES: [StepState; 8] = [
    StepState::Pending,
    StepState::Running,
    StepState::Completed,
    StepState::Failed,
    StepState::Cancelled,
    StepState::Timeout,
    StepState::NodeFail,
    StepState::OutOfMemory,
];

/// `12` (all steps), `12.7`, `12.7_[1-9]`, `9_0`, `s1M83C5Z9JNYP4.0`.
pub fn named(text: &str) -> Result<Vec<StepsSelector>, String> {
    if text.contains('.') {
        return choices::steps(text).map_err(|e| e.to_string());
    }
    let jobs = choices::jobs(text).map_err(|e| e.to_string())?;
    Ok(jobs.iter().flat_map(all_of).collect())
}

fn states(text: &str) -> Result<Vec<StepState>, String> {
    let one = |word: &String| {
        let same = |state: &&StepState| words::step_state(**state).eq_ignore_ascii_case(word);
        let known = || STATES.map(words::step_state).join(", ");
        STATES.iter().find(same).copied().ok_or_else(|| format!("Invalid state: {word}; one of {}", known()))
    };
    choices::words(text).iter().map(one).collect()
}

fn order(text: &str) -> Result<Order, String> {
    let (key, turned) = text.strip_prefix('-').map_or((text, false), |key| (key, true));
    let sortable = [Field::Step, Field::End, Field::Start, Field::Elapsed, Field::CpuTime, Field::MaxRss, Field::Exit];
    let key = fields::named(key).filter(|key| sortable.contains(key));
    key.map(|key| Order { key, turned })
        .ok_or_else(|| format!("cannot sort by {text}: one of step, end, start, elapsed, cputime, maxrss, exit"))
}

fn request(arguments: &Arguments) -> Result<Request, String> {
    let mut all = Vec::new();
    for word in arguments.words() {
        all.extend(named(&word)?);
    }
    if all.is_empty() {
        return Err("of which job?".to_owned());
    }
    let mut wanted_states = arguments.value("state").map_or_else(|| Ok(Vec::new()), |text| states(&text))?;
    if arguments.has("failed") {
        wanted_states.extend(FAILED);
    }
    let follow = arguments.has("follow").then(|| follow::news(arguments, &mut wanted_states)).transpose()?;
    let format = arguments.value("format");
    let (svg, joblog) = (arguments.value("svg").map(PathBuf::from), arguments.value("joblog").map(PathBuf::from));
    let form = match (arguments.has("json"), arguments.value("json").as_deref(), arguments.has("summary")) {
        (true, _, true) => return Err("--json and --summary do not go together".to_owned()),
        (true, None | Some(""), _) => Form::Json,
        (true, Some("lines"), _) => Form::JsonLines,
        (true, Some(other), _) => return Err(format!("--json={other}: --json or --json=lines")),
        (false, _, true) => Form::Summary,
        (false, ..) if format.is_none() && (svg.is_some() || joblog.is_some()) => Form::Nothing,
        (false, ..) => {
            let layout = Layout::long(format.as_deref().unwrap_or(fields::DEFAULT), fields::named);
            let layout = layout.known("step").map_err(|e| format!("{e}; fields: {}", fields::names()))?;
            if layout.columns.is_empty() {
                return Err(format!("no field is named; fields: {}", fields::names()));
            }
            Form::Table(layout)
        }
    };
    let texts = match &form {
        Form::Table(layout) => {
            layout.columns.iter().any(|column| matches!(column.field, Field::Command | Field::Values | Field::Output))
                || joblog.is_some()
        }
        _ => true,
    };
    Ok(Request {
        named: all,
        wanted: WantedRecords {
            which: Vec::new(),
            states: wanted_states,
            tries: arguments.has("tries"),
            texts,
            ..WantedRecords::default()
        },
        order: arguments.value("sort").map(|text| order(&text)).transpose()?,
        form,
        heading: !arguments.has("noheader"),
        follow,
        svg,
        joblog,
    })
}

/// Runs `garrick steps`. Returns its exit code.
pub fn main(args: &[OsString], console: &Console) -> i32 {
    let arguments = match arguments::read(&TABLE, args, console) {
        Outcome::Go(arguments) => arguments,
        Outcome::Done(code) => return code,
    };
    if arguments.value("format").as_deref() == Some("help") {
        return output::finish(console, output::print_line(fields::names()), 0);
    }
    let request = match request(&arguments) {
        Ok(request) => request,
        Err(text) => {
            console.error(text);
            output::stderr(format!("Try \"{} --help\" for more information\n", TABLE.program).as_bytes());
            return TABLE.misuse;
        }
    };
    let cluster = match Cluster::find(None) {
        Ok(cluster) => cluster,
        Err(error) => return tell(console, "", &error),
    };
    if let Some(news) = request.follow {
        return follow::main(&cluster, console, &request, news);
    }
    let mut code = 0;
    let written = output::stdout_as_is(|out| {
        let mut shown = Shown::new(&request, out)?;
        let named: Vec<StepsSelector> =
            request.named.iter().flat_map(|named| run_records::by_number(&cluster, console, named)).collect();
        for (which, named) in runs_of(&named) {
            let wanted = WantedRecords { which, ..request.wanted.clone() };
            let read = run_records::read(&cluster, console, &named, wanted, &mut |part| shown.take(part));
            shown.end_of_run()?;
            match read {
                Ok(Over { missing, ending }) => {
                    shown.summary.end(ending);
                    for what in missing {
                        console.warning(format_args!("the records of {named} are not whole: {what}"));
                        code = code.max(2);
                    }
                }
                Err(error) => code = code.max(tell(console, &job_text(&named), &error)),
            }
            if shown.is_closed() {
                break;
            }
        }
        shown.finish()
    });
    output::finish(console, written, code)
}

/// `12`, `9_0`, `s1M83C5Z9JNYP4`: the job of a selector.
fn job_text(named: &StepsSelector) -> String {
    let text = named.to_string();
    text.split('.').next().unwrap_or(&text).to_owned()
}

/// Says that records cannot be read. Returns the exit code.
pub fn tell(console: &Console, job: &str, error: &ClusterError) -> i32 {
    error.details().iter().for_each(|line| console.error(line));
    match error.refusal() {
        Some(garrick_model::refusal::Refusal::InvalidJobId) => console.error(format_args!(
            "no records of job {job}: no such job ran, or its records are removed (they are kept for a week unless the site says otherwise)"
        )),
        _ => console.error(format_args!("{job}: {error}")),
    }
    1
}

/// Selectors of the same run together, so that each run is read once, in the order in which they were named.
pub fn runs_of(named: &[StepsSelector]) -> Vec<(Vec<WhichSteps>, StepsSelector)> {
    let mut runs: Vec<(Vec<WhichSteps>, StepsSelector)> = Vec::new();
    for selector in named {
        let same = |other: &StepsSelector| {
            (other.job, other.task, other.het, other.run) == (selector.job, selector.task, selector.het, selector.run)
        };
        match runs.iter_mut().find(|(_, other)| same(other)) {
            Some((which, _)) => which.push(selector.which.clone()),
            None => runs.push((vec![selector.which.clone()], selector.clone())),
        }
    }
    // All steps of a job are those without a number as well.
    for (which, _) in &mut runs {
        if which.contains(&WhichSteps::All) {
            which.clear();
        }
    }
    runs
}
