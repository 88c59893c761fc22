//! Options of minibatch steps, which are handed over to their job's step manager (`srun --async`, `--batch`), and their
//! dependencies. `srun` itself refuses options that only make sense for such steps ([`ONLY_HANDED_OVER`]) elsewhere.

use super::{
    table::{Arg, Arg::Required, BATCH_RUN, OptionDef, RUN},
    typed::OptionError,
    values,
};
use garrick_model::spec_text::{array::ArrayTextError, retry};
use std::ffi::OsString;

/// Which of the steps that were handed over before are handed over once more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Again {
    /// Those that failed.
    Failed,
    /// All that did not end well: those that were cancelled or never started as well.
    Unfinished,
}

/// How the lines of `--from-file` are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListFormat {
    /// `[options --] command`
    Lines,
    /// A JSON object each.
    JsonLines,
}

/// Where parameters come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EachOption {
    /// `--each=[NAME=]VALUES`
    Values(String),
    /// `--each-csv=FILE`
    Csv(OsString),
}

/// Options that say how a step is handed over or kept: without `--async` and `--batch` they would do nothing.
pub const ONLY_HANDED_OVER: &[&str] = &[
    "array",
    "from-file",
    "format",
    "resume-from",
    "each",
    "each-csv",
    "zip",
    "retries",
    "retry-delay",
    "retry-on",
    "max-fails",
    "output-pack",
];

/// Options that a line of `--from-file` may begin with: what a step asks for, where it runs, where its files are, and
/// when it is tried.
pub const IN_A_LINE: &[&str] = &[
    "array",
    "chdir",
    "cpu-bind",
    "cpus-per-task",
    "dependency",
    "distribution",
    "error",
    "exact",
    "exclude",
    "exclusive",
    "input",
    "job-name",
    "kill-on-bad-exit",
    "label",
    "mem",
    "mem-per-cpu",
    "nodelist",
    "nodes",
    "ntasks",
    "ntasks-per-node",
    "open-mode",
    "output",
    "output-pack",
    "overlap",
    "relative",
    "retries",
    "retry-delay",
    "retry-on",
    "step-cgroup",
    "step-priority",
    "time",
    "wait",
];

/// What `--label` is in a line of a list: elsewhere it is about a step's output.
pub static LABEL: OptionDef =
    OptionDef::new("label", None, Required("name"), RUN, "a name that later lines wait for", |t, g| {
        t.line_label = g.string()?;
        Ok(())
    });

/// The options.
pub const OPTIONS: &[OptionDef] = &[
    OptionDef::new("async", None, Arg::None, RUN, "submit the step to the job's step manager and return", |t, _| {
        t.asynchronous = true;
        Ok(())
    }),
    OptionDef::new("batch", None, Arg::None, RUN, "submit a script to the job's step manager and return", |t, _| {
        t.batch = true;
        Ok(())
    }),
    OptionDef::new(
        "array",
        Some('a'),
        Required("indexes"),
        RUN,
        "with async or batch: a step array, 0-9999%64; by default one task for each index",
        |t, g| {
            let invalid = |error: ArrayTextError| OptionError::Text(format!("Invalid --array: {error}"));
            t.array = Some(g.text()?.parse().map_err(invalid)?);
            Ok(())
        },
    ),
    OptionDef::new(
        "from-file",
        None,
        Required("file|-"),
        RUN,
        "with async: a step for every line of a file, [options --] command; by default one task each",
        |t, g| {
            t.from_file = g.value.map(std::ffi::OsStr::to_owned);
            Ok(())
        },
    ),
    OptionDef::new(
        "graph",
        None,
        Required("file|-"),
        BATCH_RUN,
        "run the steps that a file describes as a job; srun: in the current job, and wait for them unless with async",
        |t, g| {
            t.graph = g.value.map(std::ffi::OsStr::to_owned);
            Ok(())
        },
    ),
    OptionDef::new(
        "resume-from",
        None,
        Required("job[,...]"),
        BATCH_RUN,
        "with graph: steps that completed in these jobs are not run again",
        |t, g| {
            t.resume_from = g.string()?;
            Ok(())
        },
    ),
    OptionDef::new(
        "format",
        None,
        Required("lines|jsonl"),
        RUN,
        "with from-file: lines of commands, or of JSON objects (the default for *.jsonl)",
        |t, g| {
            let format = match g.text()? {
                "lines" => Some(ListFormat::Lines),
                "jsonl" => Some(ListFormat::JsonLines),
                _ => None,
            };
            t.list_format = Some(g.checked(format)?);
            Ok(())
        },
    ),
    OptionDef::new(
        "each",
        None,
        Required("[name=]values"),
        RUN,
        "with async: a step for every value for {name}: 1..100, 0..1..0.1, a,b or @file; several: all combinations",
        |t, g| {
            t.each.push(EachOption::Values(g.text()?.to_owned()));
            Ok(())
        },
    ),
    OptionDef::new(
        "each-csv",
        None,
        Required("file|-"),
        RUN,
        "with async: a step for every row of a table, its columns in place of {name} or {number}",
        |t, g| {
            t.each.extend(g.value.map(|file| EachOption::Csv(file.to_owned())));
            Ok(())
        },
    ),
    OptionDef::new(
        "zip",
        None,
        Arg::None,
        RUN,
        "with several each: pair their values instead of combining all",
        |t, _| {
            t.zip = true;
            Ok(())
        },
    ),
    OptionDef::new(
        "rerun-failed",
        None,
        Required("job[.step]"),
        RUN,
        "with async: submit the failed steps of a job again, unchanged",
        |t, g| {
            t.again = Some((Again::Failed, g.text()?.to_owned()));
            Ok(())
        },
    ),
    OptionDef::new(
        "resume",
        None,
        Required("job[.step]"),
        RUN,
        "with async: submit again all steps that did not complete, including those that were cancelled or never started",
        |t, g| {
            t.again = Some((Again::Unfinished, g.text()?.to_owned()));
            Ok(())
        },
    ),
    OptionDef::new(
        "dependency",
        Some('d'),
        Required("type:id[,...]"),
        RUN,
        "defer until conditions on other jobs hold; in a job: on other steps, afterok:3,after:7_*",
        |t, g| {
            let text = g.text()?;
            t.dependency = if text.is_empty() { None } else { g.sourced(text.to_owned()) };
            Ok(())
        },
    )
    .env(&["SLURM_DEPENDENCY"]),
    OptionDef::new(
        "step-priority",
        None,
        Required("n"),
        RUN,
        "among the job's waiting steps the one with the greater number starts first; default 0",
        |t, g| {
            let text = g.text()?;
            t.step_priority = text.trim().parse().map_err(|_| g.no_number())?;
            Ok(())
        },
    )
    .env(&["SRUN_STEP_PRIORITY"]),
    OptionDef::new(
        "retries",
        None,
        Required("n"),
        RUN,
        "with async or batch: try a failed step again, at most this number of times",
        |t, g| {
            t.retries = Some(g.number(0)?);
            Ok(())
        },
    )
    .env(&["SRUN_RETRIES"]),
    OptionDef::new(
        "retry-delay",
        None,
        Required("seconds"),
        RUN,
        "time between the end of a step and its next try; default 0",
        |t, g| {
            t.retry_delay_secs = g.checked(values::seconds(g.text()?))?;
            Ok(())
        },
    )
    .env(&["SRUN_RETRY_DELAY"]),
    OptionDef::new(
        "retry-on",
        None,
        Required("list"),
        RUN,
        "try again only after these ends: exit codes (1-3,75), NODE_FAIL, TIMEOUT, OUT_OF_MEMORY, SIGKILL",
        |t, g| {
            t.retry_on =
                retry::retry_list(g.text()?).map_err(|e| OptionError::Text(format!("Invalid --retry-on: {e}")))?;
            Ok(())
        },
    )
    .env(&["SRUN_RETRY_ON"]),
    OptionDef::new(
        "max-fails",
        None,
        Required("n|p%[,kill]"),
        RUN,
        "with array, from-file, each or graph: start no more steps when this number failed; kill: also end running ones",
        |t, g| {
            let limit = retry::fail_limit(g.text()?);
            t.max_fails = Some(limit.map_err(|e| OptionError::Text(format!("Invalid --max-fails: {e}")))?);
            Ok(())
        },
    ),
    OptionDef::new(
        "output-pack",
        None,
        Required("file"),
        RUN,
        "with async or batch: write outputs and exit records to one file per node (garrick cat reads it)",
        |t, g| {
            t.output_pack = g.string()?.filter(|file| !file.is_empty());
            Ok(())
        },
    )
    .env(&["SRUN_OUTPUT_PACK"]),
    OptionDef::new(
        "step-cgroup",
        None,
        Required("auto|always"),
        RUN,
        "create a cgroup for the step: if its limits need one (auto, the default), or always",
        |t, g| {
            t.step_cgroup = g.checked(g.text()?.parse().ok())?;
            Ok(())
        },
    )
    .env(&["SRUN_STEP_CGROUP"]),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{Command, options_of};

    #[test]
    fn options_that_are_named_apart_exist() {
        let options = options_of(Command::Srun);
        for name in ONLY_HANDED_OVER.iter().chain(IN_A_LINE) {
            assert!(options.iter().any(|o| o.long == *name), "--{name}");
        }
    }
}
