//! Options of `sstat`.

use crate::{
    options::table::Arg,
    query::{
        arguments::{Arguments, Table, option},
        choices,
    },
};
use garrick_model::{
    messages::command::JobSelector,
    step_selector::{StepsSelector, WhichSteps},
};
use garrick_render::{
    field_table::Setting,
    sacct::units::Units,
    sstat::{self as fields, Column},
};

/// Options of `sstat`.
pub static TABLE: Table = Table {
    words: &[],
    program: "sstat",
    purpose: "Show what the tasks of running steps use: CPU time, memory, page faults, bytes read and written.",
    operands: "-j JOB[.STEP]",
    options: &[
        option("allsteps", Some('a'), Arg::None, "all running steps of the jobs"),
        option("helpformat", Some('e'), Arg::None, "list the fields"),
        option("help", Some('h'), Arg::None, "show this help"),
        option("pidformat", Some('i'), Arg::None, "the processes on each node: JobID,Nodelist,Pids"),
        option("jobs", Some('j'), Arg::Required("job(s)"), "these jobs, or steps of them"),
        option("noheader", Some('n'), Arg::None, "no heading"),
        option("noconvert", None, Arg::None, "no units"),
        option("format", Some('o'), Arg::Required("fields"), "fields, %WIDTH behind a name; negative: to the left"),
        option("fields", None, Arg::Required("fields"), "the same as --format"),
        option("parsable", Some('p'), Arg::None, "with | behind each value"),
        option("parsable2", Some('P'), Arg::None, "with | between values"),
        option("verbose", Some('v'), Arg::None, "more messages"),
    ],
    misuse: 1,
};

/// Between values.
const DELIMITER: &str = "|";

/// A job, or a step of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// Job.
    pub job: JobSelector,
    /// Its step.
    pub step: Option<WhichSteps>,
}

/// What is to be done.
#[derive(Debug)]
pub struct Request {
    /// What is asked about.
    pub named: Vec<Named>,
    /// All steps of jobs.
    pub all: bool,
    /// Columns.
    pub columns: Vec<Column>,
    /// How they are set.
    pub setting: Setting,
    /// How amounts are written.
    pub units: Units,
    /// The heading.
    pub heading: bool,
    /// A line for each node.
    pub pids: bool,
}

/// Options that cannot be used, in the words that the user gets.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// A job or step.
    #[error("Bad job/step specified: {0}")]
    Step(String),
    /// A field.
    #[error("Invalid field requested: \"{0}\"")]
    Field(String),
    /// Nothing is asked about.
    #[error("You didn't give me any jobs to stat.")]
    Nothing,
}

fn named(word: &str) -> Result<Named, RequestError> {
    if !word.contains('.') {
        let job = choices::job(word).map_err(|_| RequestError::Step(word.to_owned()))?;
        return Ok(Named { job, step: None });
    }
    let steps = word.parse::<StepsSelector>();
    let StepsSelector { job, task, het, run, which } =
        steps.map_err(|_| RequestError::Step(format!("{word}: StepID includes unexpected non-numeric characters")))?;
    let tasks = task.map(|task| vec![(task, task, 1)]);
    Ok(Named { job: JobSelector { job, tasks, het, run }, step: Some(which) })
}

/// Reads the options.
pub fn read(arguments: &Arguments) -> Result<Request, RequestError> {
    let words = arguments.value("jobs").into_iter().chain(arguments.words());
    let words: Vec<String> = words.collect();
    let named: Vec<Named> = words
        .iter()
        .flat_map(|list| choices::outside_brackets(list))
        .map(named)
        .collect::<Result<_, RequestError>>()?;
    let pids = arguments.has("pidformat");
    // Those of both names are shown.
    let asked: Vec<String> = ["format", "fields"].iter().filter_map(|name| arguments.value(name)).collect();
    let format = match (asked.is_empty(), pids) {
        (_, true) => fields::PIDS.to_owned(),
        (true, false) => fields::USUAL.to_owned(),
        (false, false) => asked.join(","),
    };
    let columns = fields::columns(&format).map_err(RequestError::Field)?;
    if named.is_empty() {
        return Err(RequestError::Nothing);
    }
    let setting = match (arguments.has("parsable2"), arguments.has("parsable")) {
        (true, _) => Setting::Parsable2(DELIMITER.to_owned()),
        (false, true) => Setting::Parsable(DELIMITER.to_owned()),
        (false, false) => Setting::Columns,
    };
    Ok(Request {
        named,
        all: arguments.has("allsteps"),
        columns,
        setting,
        units: if arguments.has("noconvert") { Units::Plain } else { Units::Short },
        heading: !arguments.has("noheader"),
        pids,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::query::arguments;
    use std::ffi::OsString;

    fn request(words: &[&str]) -> Result<Request, RequestError> {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        read(&arguments::parse(&TABLE, &words).unwrap())
    }

    #[test]
    fn jobs_and_steps_are_named_in_lists_and_apart() {
        let request = request(&["-a", "-j", "12,13.batch", "14.0"]).unwrap();
        let named: Vec<(u32, Option<String>)> =
            request.named.iter().map(|n| (n.job.job.0, n.step.as_ref().map(ToString::to_string))).collect();
        assert_eq!(named, [(12, None), (13, Some("batch".to_owned())), (14, Some("0".to_owned()))]);
        assert!(request.all && request.heading && request.columns.len() == 48);
    }

    #[test]
    fn what_cannot_be_used_is_told_in_slurms_words() {
        assert_eq!(request(&[]).unwrap_err(), RequestError::Nothing);
        assert_eq!(request(&["-j", "x"]).unwrap_err().to_string(), "Bad job/step specified: x");
        let step = request(&["-j", "12.x"]).unwrap_err().to_string();
        assert_eq!(step, "Bad job/step specified: 12.x: StepID includes unexpected non-numeric characters");
        let field = request(&["-j", "12", "-o", "jobid,nosuch"]).unwrap_err().to_string();
        assert_eq!(field, "Invalid field requested: \"nosuch\"");
    }

    #[test]
    fn fields_of_both_options_are_shown() {
        let request = request(&["-j", "12", "--format=jobid", "--fields=ntasks", "-P", "--noconvert"]).unwrap();
        let names: Vec<&str> = request.columns.iter().map(|column| column.field.name).collect();
        assert_eq!(
            (names, request.setting, request.units),
            (vec!["JobID", "NTasks"], Setting::Parsable2("|".to_owned()), Units::Plain)
        );
    }
}
