//! Options of `sprio` and the `SPRIO_*` variables.

use super::Sort;
use crate::{
    options::table::Arg,
    query::{
        arguments::{Arguments, NO_FEDERATION, Table, inert, option},
        choices,
    },
};
use garrick_model::messages::{command::JobSelector, priority::JobPriority};
use garrick_render::{
    columns::{Layout, LayoutError},
    sprio::{self as fields, Entry},
};

/// Options of `sprio`.
pub static TABLE: Table = Table {
    program: "sprio",
    purpose: "Show the factors of the priorities of waiting jobs.",
    operands: "",
    words: &[],
    options: &[
        option("clusters", Some('M'), Arg::Required("cluster"), "the cluster, only the own one"),
        inert("federation", None, Arg::None, "jobs of the federation", NO_FEDERATION),
        option("noheader", Some('h'), Arg::None, "no heading"),
        option("jobs", Some('j'), Arg::Optional("job(s)"), "only these jobs"),
        inert("local", None, Arg::None, "only jobs of this cluster", NO_FEDERATION),
        option("long", Some('l'), Arg::None, "all factors"),
        option("norm", Some('n'), Arg::None, "factors without their weights"),
        option("format", Some('o'), Arg::Required("format"), "fields by letters, %[.][size]letter"),
        option("partition", Some('p'), Arg::Required("partition(s)"), "only jobs in these partitions"),
        inert("sibling", None, Arg::None, "also jobs of other clusters of a federation", NO_FEDERATION),
        option(
            "sort",
            Some('S'),
            Arg::Required("fields"),
            "order by letters of -o; - before a letter for descending order",
        ),
        option("user", Some('u'), Arg::Required("user(s)"), "only jobs of these users"),
        option("verbose", Some('v'), Arg::None, "more messages"),
        option("weights", Some('w'), Arg::None, "the weights instead of jobs"),
    ],
    misuse: 1,
};

/// What is to be done.
#[derive(Debug)]
pub struct Request {
    /// Only these jobs; empty: all.
    pub jobs: Vec<JobSelector>,
    /// Only of these users.
    pub users: Vec<u32>,
    /// Only in these partitions.
    pub partitions: Vec<String>,
    /// Columns asked for.
    pub layout: Option<Layout<&'static Entry>>,
    /// Order.
    pub sort: Vec<Sort>,
    /// Heading line.
    pub heading: bool,
    /// All factors.
    pub long: bool,
    /// Before weights.
    pub norm: bool,
    /// Weights only.
    pub weights: bool,
    /// Say more.
    pub verbose: bool,
}

/// Options that cannot be used, in the words that the user gets.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// A format string.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// A sort specification.
    #[error("Invalid sort specification: {0}")]
    Sort(String),
    /// Ids, users.
    #[error(transparent)]
    Choice(#[from] choices::ChoiceError),
    /// Something that is no option.
    #[error("Unrecognized option: {0}")]
    Operand(String),
}

impl Request {
    /// Is this one of the jobs that were asked for?
    pub fn takes(&self, job: &JobPriority) -> bool {
        let named = |selector: &JobSelector| {
            let array = job.array_task.is_some_and(|task| task.array_job == selector.job);
            let task = |index: u32| match &selector.tasks {
                None => true,
                Some(ranges) => ranges
                    .iter()
                    .any(|&(first, last, step)| (first..=last).step_by(step.max(1) as usize).any(|i| i == index)),
            };
            match job.array_task {
                Some(t) if array => task(t.index),
                _ => selector.job == job.job,
            }
        };
        (self.jobs.is_empty() || self.jobs.iter().any(named))
            && (self.users.is_empty() || self.users.contains(&job.uid))
            && (self.partitions.is_empty() || self.partitions.contains(&job.partition))
    }
}

/// Reads the options; `env` looks variables up.
pub fn read(arguments: &Arguments, env: impl Fn(&str) -> Option<String>) -> Result<Request, RequestError> {
    if let Some(word) = arguments.words().into_iter().next() {
        return Err(RequestError::Operand(word));
    }
    let format = arguments.value("format").or_else(|| env("SPRIO_FORMAT")).filter(|f| !f.is_empty());
    let layout = format.map(|format| Layout::short(&format, fields::by_letter).known("job")).transpose()?;
    Ok(Request {
        jobs: choices::jobs(&arguments.value("jobs").unwrap_or_default())?,
        users: choices::users(&arguments.value("user").unwrap_or_default())?,
        partitions: choices::words(&arguments.value("partition").unwrap_or_default()),
        layout,
        sort: sort(&arguments.value("sort").unwrap_or_else(|| "i".to_owned()))?,
        heading: !arguments.has("noheader"),
        long: arguments.has("long"),
        norm: arguments.has("norm"),
        weights: arguments.has("weights"),
        verbose: arguments.has("verbose"),
    })
}

fn sort(text: &str) -> Result<Vec<Sort>, RequestError> {
    let mut keys = Vec::new();
    let mut descending = false;
    for c in text.chars() {
        match c {
            ',' | ' ' | '+' => descending = false,
            '-' => descending = true,
            c => {
                let entry = fields::by_letter(c).ok_or_else(|| RequestError::Sort(c.to_string()))?;
                keys.push((entry.kind, descending));
                descending = false;
            }
        }
    }
    Ok(keys)
}
