//! `garrick topology`: jobs put onto the empty cluster of a configuration by the scheduler itself, and a picture of where
//! they went.

use super::SiteError;
use crate::{
    cluster::Cluster,
    options::{
        sources::{self, SourceError},
        table::{Arg, Command},
        typed::Typed,
    },
    output::{self, Console},
    query::arguments::{self, Outcome, Table, option},
    render::words,
};
use garrick_model::{
    config::{self, Config},
    hostlist,
    spec::{JobSpec, NodeCount},
    time::Timestamp,
};
use garrick_replay::map;
use std::{ffi::OsString, fmt::Write as _, path::PathBuf};

static TABLE: Table = Table {
    program: "garrick topology",
    purpose: "Where would these jobs go on the empty cluster of a slurm.conf, in its topology? They take whole nodes,\n\
              in the order given.",
    operands: "[FILE]",
    options: &[
        option(
            "job",
            None,
            Arg::Required("OPTIONS"),
            "options of sbatch, for example \"-N16 --segment=8\"; again for more",
        ),
        option("topology", None, Arg::Required("NAME"), "the topology to draw (default: the cluster's)"),
        option("picture", None, Arg::Required("FILE"), "draw its units and the jobs in them (SVG)"),
    ],
    misuse: 1,
};

/// Runs `garrick topology`. Without a file it is the one that the commands would read.
pub fn main(args: &[OsString], console: &Console) -> Result<i32, SiteError> {
    let arguments = match arguments::read(&TABLE, args, console) {
        Outcome::Go(arguments) => arguments,
        Outcome::Done(code) => return Ok(code),
    };
    let path = match arguments.operands.as_slice() {
        [] => Cluster::find(None)?.conf().to_owned(),
        [file] => PathBuf::from(file),
        _ => return Err(SiteError::Usage("topology takes one file".to_owned())),
    };
    let (config, report) = config::read_reporting(&path);
    let config = config.ok_or_else(|| SiteError::Other(report.to_string()))?;
    let named = arguments.value("topology");
    let topology = match &named {
        Some(name) => config.topology(name),
        None => config.default_topology(),
    };
    let topology = topology.ok_or_else(|| {
        SiteError::Other(match named {
            Some(name) => format!("{}: no topology is called {name}", path.display()),
            None => format!("{}: no topology (set TopologyPlugin, or write topology.yaml)", path.display()),
        })
    })?;
    let asked: Vec<String> = arguments
        .options
        .iter()
        .filter(|o| o.def.long == "job")
        .filter_map(|o| Some(o.value.as_ref()?.to_string_lossy().into_owned()))
        .collect();
    let specs = asked.iter().map(|text| job(&config, text)).collect::<Result<Vec<_>, _>>()?;
    let placed = map::place(&config, specs);
    let mut text = String::new();
    let mut shown = Vec::new();
    for ((number, asked), placed) in asked.iter().enumerate().zip(placed) {
        let number = number + 1;
        let where_to = match placed.after_secs {
            None => format!("does not start: {}", words::reason(&placed.reason)),
            Some(secs) => {
                let nodes = hostlist::fold(&placed.nodes);
                let units = map::units_of(topology, &placed.nodes);
                let when = if secs == 0 { String::new() } else { format!("after {secs} s: ") };
                format!("{when}{nodes} ({} {units})", topology.layout.unit_word())
            }
        };
        let _ = writeln!(text, "job {number}: {asked}: {where_to}");
        let now = if placed.after_secs == Some(0) { placed.nodes } else { Vec::new() };
        shown.push((format!("job {number}: {asked}"), now));
    }
    if let Some(file) = arguments.value("picture") {
        let picture = map::svg(topology, &shown).map_err(|e| SiteError::Other(e.to_string()))?;
        std::fs::write(&file, picture).map_err(|e| SiteError::Other(format!("cannot write {file}: {e}")))?;
        let _ = writeln!(text, "picture: {file}");
    }
    Ok(output::finish(console, output::stdout(|out| out.write_all(text.as_bytes())), 0))
}

/// The job that `sbatch` with these options would ask for, as far as it is about nodes.
fn job(config: &Config, text: &str) -> Result<JobSpec, SiteError> {
    let wrong = |error: &dyn std::fmt::Display| SiteError::Other(format!("--job \"{text}\": {error}"));
    let words: Vec<OsString> = text.split_whitespace().map(OsString::from).collect();
    let parsed = sources::command_line(Command::Sbatch, &words).map_err(|e| wrong(&told(&e)))?;
    if let Some(word) = parsed.rest.first() {
        return Err(wrong(&format!("\"{}\" is no option", word.to_string_lossy())));
    }
    let typed: Typed = sources::lay_over(Command::Sbatch, &[], &|_| None, &parsed.options, Timestamp::from_secs(0))
        .map_err(|e| wrong(&told(&e)))?;
    let names = |list: &Option<String>| {
        let names = hostlist::expand(list.as_deref().unwrap_or_default()).map_err(|e| wrong(&e))?;
        config.with_functions(&names, &|feature| config.nodes_with_feature(feature)).map_err(|e| wrong(&e))
    };
    if let Some(unknown) = typed.partitions.iter().find(|name| config.partition(name).is_none()) {
        return Err(wrong(&format!("there is no partition {unknown}")));
    }
    let nodelist = names(&typed.nodelist)?;
    // As where it is submitted: all that are named, unless it says how many.
    let all = u32::try_from(nodelist.len()).ok().filter(|count| *count > 0).map(|min| NodeCount { min, max: None });
    Ok(JobSpec {
        nodes: typed.nodes.as_ref().map(|n| n.value).or(all),
        tasks: typed.ntasks.as_ref().map(|n| n.value),
        tasks_per_node: typed.ntasks_per_node.as_ref().map(|n| n.value),
        cpus_per_task: typed.cpus_per_task,
        partitions: typed.partitions.clone(),
        constraint: typed.constraint.clone(),
        nodelist,
        exclude: names(&typed.exclude)?,
        sharing: typed.sharing,
        mcs_label: None,
        time_limit: typed.time_limit,
        topology: typed.topology.clone(),
        ..JobSpec::default()
    })
}

fn told(error: &SourceError) -> String {
    match error {
        SourceError::Getopt { error, .. } => error.to_string(),
        SourceError::Stray { word, .. } => format!("\"{word}\" is no option"),
        SourceError::Option { error, .. } => error.to_string(),
    }
}
