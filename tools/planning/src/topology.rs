//! `garrick topology`: places jobs on the empty cluster of a configuration with the scheduler itself, and draws where they are.

use crate::sim;
use garrick_asking::cluster::Cluster;
use garrick_model::{
    config::{self, Config},
    hostlist,
    spec::{JobSpec, NodeCount},
    time::Timestamp,
};
use garrick_options::{
    sources::{self, SourceError},
    table::{Arg, Command},
    typed::Typed,
};
use garrick_render::words;
use garrick_replay::map;
use garrick_tools::{
    SiteError,
    arguments::{self, Arguments, Outcome, Table, option},
    output::{self, Console},
};
use std::{
    ffi::OsString,
    fmt::Write as _,
    path::{Path, PathBuf},
};

static TABLE: Table = Table {
    words: &[],
    program: "garrick topology",
    purpose: "Show which nodes these jobs would get on the empty cluster of a slurm.conf, by its topology. They use whole nodes,\n\
              in the given order. Exit code 1 if one of them does not start.",
    operands: "[FILE]",
    options: &[
        option(
            "job",
            None,
            Arg::Required("OPTIONS"),
            "options of sbatch, for example \"-N16 --segment=8\"; repeat for more jobs",
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
    let (text, code) = answer(&arguments)?;
    Ok(output::finish(console, output::stdout(|out| out.write_all(text.as_bytes())), code))
}

/// What it prints, and its exit code.
fn answer(arguments: &Arguments) -> Result<(String, i32), SiteError> {
    let path = match arguments.operands.as_slice() {
        [] => Cluster::find(None)?.conf().to_owned(),
        [file] => PathBuf::from(file),
        _ => return Err(SiteError::Usage("topology takes one file".to_owned())),
    };
    let picture = arguments.value("picture");
    picture.as_deref().map_or(Ok(()), |file| sim::only_svg(Path::new(file))).map_err(SiteError::Usage)?;
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
    let mut code = 0;
    for ((number, asked), placed) in asked.iter().enumerate().zip(placed) {
        let number = number + 1;
        let where_to = match placed.after_secs {
            None => {
                code = 1;
                format!("does not start: {}", words::reason(&placed.reason))
            }
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
    if let Some(file) = picture {
        let picture = map::svg(topology, &shown).map_err(|e| SiteError::Other(e.to_string()))?;
        std::fs::write(&file, picture).map_err(|e| SiteError::Other(format!("cannot write {file}: {e}")))?;
        let _ = writeln!(text, "picture: {file}");
    }
    Ok((text, code))
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn asked(words: &[&str]) -> Result<(String, i32), SiteError> {
        let conf = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/topology/torus/slurm.conf");
        let args: Vec<OsString> = [conf].iter().chain(words).map(OsString::from).collect();
        answer(&arguments::parse(&TABLE, &args).unwrap())
    }

    #[test]
    fn a_job_that_never_starts_is_a_failure() {
        assert_eq!(asked(&["--job", "-N8"]).unwrap().1, 0);
        let (text, code) = asked(&["--job", "-N8", "--job", "-N7"]).unwrap();
        assert_eq!((text.lines().last(), code), (Some("job 2: -N7: does not start: BadConstraints"), 1));
    }

    #[test]
    fn only_svg_is_drawn() {
        let wrong = asked(&["--job", "-N8", "--picture", "/nowhere/x.PNG"]).unwrap_err().to_string();
        assert_eq!(wrong, "--picture: no png is drawn, only SVG: name a file that ends in .svg");
    }
}
