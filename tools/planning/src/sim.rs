//! `garrick sim`: replays a workload through the scheduler, on a cluster of a number of slots or of a `slurm.conf`, under one
//! policy or several for comparison.

use garrick_model::config::{self, Config};
use garrick_options::table::Arg;
use garrick_replay::{
    cluster::{self, Choice, ClusterView},
    engine::{Estimates, Replay, replay},
    figures::{Blocks, Figures, Summary},
    journal, picture,
    swf::{self, Trace},
};
use garrick_tools::{
    arguments::{self, Arguments, Outcome, Table, option},
    output::{self, Console},
};
use std::{
    ffi::OsString,
    fmt::Write as _,
    path::{Path, PathBuf},
    time::Instant,
};

static TABLE: Table = Table {
    words: &[],
    program: "garrick sim",
    purpose: "Replay a workload through the scheduler: what would a cluster with this configuration have done with these jobs?\n\
              A trace is in the Standard Workload Format, optionally compressed by gzip. Its processors are CPUs here; its queue\n\
              numbers are partitions in the order of the configuration.",
    operands: "",
    options: &[
        option("trace", None, Arg::Required("FILE"), "the workload"),
        option(
            "journal",
            None,
            Arg::Required("FILE"),
            "the workload of a real cluster instead: a controller's journal, or its StateSaveLocation",
        ),
        option(
            "conf",
            None,
            Arg::Required("FILE"),
            "nodes, partitions and settings of this slurm.conf; repeat for another one",
        ),
        option(
            "nodes",
            None,
            Arg::Required("N"),
            "this number of nodes in one partition instead (default: MaxProcs of the trace)",
        ),
        option("cpus", None, Arg::Required("N"), "CPUs of each of them (default: 1)"),
        option(
            "policy",
            None,
            Arg::Required("LIST"),
            "fcfs, easy[:N], easy-sjbf[:N] (resources are reserved for N jobs), conservative, default; or a list of these",
        ),
        option(
            "estimates",
            None,
            Arg::Required("WHICH"),
            "requested (default), or exact: run times are known beforehand",
        ),
        option("json", None, Arg::None, "print a JSON object, or an array if there are several"),
        option("picture", None, Arg::Required("FILE"), "draw queue and utilisation over time (SVG)"),
        option("by", None, Arg::Required("WHAT"), "also print a table by user or by partition"),
    ],
    misuse: 1,
};

/// One replay: its name, what came of it, and how long it took.
struct Told {
    name: String,
    replay: Replay,
    summary: Summary,
    seconds: f64,
}

/// Runs `garrick sim`. Returns its exit code.
pub fn main(args: &[OsString], console: &Console) -> i32 {
    let arguments = match arguments::read(&TABLE, args, console) {
        Outcome::Done(code) => return code,
        Outcome::Go(arguments) => arguments,
    };
    match run(&arguments) {
        Ok(text) => output::finish(console, output::stdout(|out| out.write_all(text.as_bytes())), 0),
        Err(error) => {
            console.line(error);
            1
        }
    }
}

fn run(arguments: &Arguments) -> Result<String, String> {
    if let Some(operand) = arguments.words().first() {
        return Err(format!("\"{operand}\": expected options only; the workload is named by --trace"));
    }
    let by = arguments.value("by");
    if let Some(by) = by.as_deref().filter(|by| !["user", "partition"].contains(by)) {
        return Err(format!("--by: \"{by}\" is neither user nor partition"));
    }
    let drawn = arguments.value("picture").map(PathBuf::from);
    drawn.as_deref().map_or(Ok(()), only_svg)?;
    let estimates = match arguments.value("estimates").as_deref() {
        None | Some("requested") => Estimates::Requested,
        Some("exact") => Estimates::Exact,
        Some(other) => return Err(format!("--estimates: \"{other}\" is neither requested nor exact")),
    };
    let policies = arguments.value("policy").unwrap_or_else(|| "default".to_owned());
    let policies: Vec<Choice> = policies
        .split(',')
        .map(|p| p.trim().parse().map_err(|e| format!("--policy: {e}")))
        .collect::<Result<_, _>>()?;
    let confs = configurations(arguments)?;
    let trace = workload(arguments, confs.first().map(|(_, config)| config))?;
    let mut clusters = Vec::new();
    for policy in policies {
        clusters.extend(clusters_under(policy, arguments, &confs, &trace)?);
    }
    let told: Vec<Told> = clusters
        .into_iter()
        .map(|(name, view)| {
            let began = Instant::now();
            let replay = replay(view, &trace.jobs, estimates);
            let seconds = began.elapsed().as_secs_f64();
            Told { name, summary: Summary::of(&replay), replay, seconds }
        })
        .collect();
    let named: Vec<picture::Named<'_>> = told.iter().map(|t| (t.name.as_str(), &t.replay)).collect();
    if let Some(path) = arguments.value("picture") {
        let drawn = picture::svg(&named).map_err(|e| e.to_string())?;
        std::fs::write(&path, drawn).map_err(|e| format!("cannot write {path}: {e}"))?;
    }
    if arguments.has("json") {
        return json(&told, &trace);
    }
    Ok(table(&told, &trace, by.as_deref()) + "\n" + &picture::lines(&named))
}

/// The files that `--conf` names.
fn configurations(arguments: &Arguments) -> Result<Vec<(PathBuf, Config)>, String> {
    let named = arguments.options.iter().filter(|o| o.def.long == "conf").filter_map(|o| o.value.as_ref());
    let read = |path: PathBuf| {
        let (read, report) = config::read_reporting(&path);
        read.map(|config| (path, config)).ok_or_else(|| report.to_string())
    };
    let confs: Vec<PathBuf> = named.map(PathBuf::from).collect();
    if !confs.is_empty() && (arguments.has("nodes") || arguments.has("cpus")) {
        return Err("--conf names the nodes: --nodes and --cpus do not go with it".to_owned());
    }
    confs.into_iter().map(read).collect()
}

/// The workload that is named, with the partitions of that configuration.
fn workload(arguments: &Arguments, config: Option<&Config>) -> Result<Trace, String> {
    match (arguments.value("trace"), arguments.value("journal")) {
        (Some(file), None) => swf::read(&PathBuf::from(file)).map_err(|e| e.to_string()),
        (None, Some(file)) => {
            let partitions: Vec<String> =
                config.into_iter().flat_map(|c| &c.partitions).map(|p| p.name.clone()).collect();
            journal::read(&PathBuf::from(file), &partitions).map_err(|e| e.to_string())
        }
        (None, None) => Err("no workload: name one by --trace FILE or --journal FILE".to_owned()),
        (Some(_), Some(_)) => Err("--trace and --journal: one workload at a time".to_owned()),
    }
}

/// `--nodes` or `--cpus`.
fn count(arguments: &Arguments, name: &str) -> Result<Option<u32>, String> {
    let parsed = |text: String| {
        let number = text.parse::<u32>().ok().filter(|n| (1..=1_000_000).contains(n));
        number.ok_or_else(|| format!("--{name}: \"{text}\" is not a number from 1 to 1000000"))
    };
    arguments.value(name).map(parsed).transpose()
}

/// Each configured cluster under this policy, by name; without configurations one of like nodes.
fn clusters_under(
    policy: Choice,
    arguments: &Arguments,
    confs: &[(PathBuf, Config)],
    trace: &Trace,
) -> Result<Vec<(String, ClusterView)>, String> {
    if !confs.is_empty() {
        let named = confs.iter().map(|(path, config)| {
            let name = if confs.len() > 1 { format!("{} {policy}", path.display()) } else { policy.to_string() };
            (name, cluster::configured(config, policy))
        });
        return Ok(named.collect());
    }
    let nodes = match (count(arguments, "nodes")?, trace.max_procs) {
        (Some(nodes), _) | (None, Some(nodes @ 1..=1_000_000)) => nodes,
        (None, Some(wrong)) => {
            return Err(format!(
                "MaxProcs: {wrong} of the trace is not a number from 1 to 1000000: say --nodes N or --conf FILE"
            ));
        }
        (None, None) => return Err("the workload names no MaxProcs: say --nodes N or --conf FILE".to_owned()),
    };
    let cpus = count(arguments, "cpus")?.unwrap_or(1);
    Ok(vec![(policy.to_string(), cluster::places(nodes, cpus, policy))])
}

/// Refuses a name that says another kind of picture than is drawn.
pub fn only_svg(file: &Path) -> Result<(), String> {
    let form = file.extension().and_then(std::ffi::OsStr::to_str).map(str::to_ascii_lowercase);
    match form.filter(|form| ["png", "jpg", "jpeg", "gif", "pdf", "ps", "eps"].contains(&form.as_str())) {
        Some(other) => Err(format!("--picture: no {other} is drawn, only SVG: name a file that ends in .svg")),
        None => Ok(()),
    }
}

fn json(told: &[Told], trace: &Trace) -> Result<String, String> {
    let objects: Vec<serde_json::Value> = told
        .iter()
        .map(|t| {
            let mut object = serde_json::to_value(&t.summary)?;
            object["policy"] = t.name.clone().into();
            object["simulation_s"] = t.seconds.into();
            object["left_out"] = trace.left_out().into();
            object["numbered_anew"] = (!trace.misnumbered.is_empty()).into();
            Ok(object)
        })
        .collect::<Result<_, serde_json::Error>>()
        .map_err(|e| e.to_string())?;
    let text = match objects.as_slice() {
        [one] => serde_json::to_string_pretty(one),
        all => serde_json::to_string_pretty(all),
    };
    text.map(|text| text + "\n").map_err(|e| e.to_string())
}

type Row = (&'static str, fn(&Told) -> String);

const ROWS: [Row; 15] = [
    ("jobs", |t| t.summary.all.jobs.to_string()),
    ("jobs that can never run there", |t| t.summary.refused.to_string()),
    ("jobs that no plan started", |t| t.summary.stranded.to_string()),
    ("mean wait, s", |t| format!("{:.0}", t.summary.all.mean_wait_s)),
    ("median wait, s", |t| format!("{:.0}", t.summary.all.median_wait_s)),
    ("95th percentile, s", |t| format!("{:.0}", t.summary.all.p95_wait_s)),
    ("longest wait, s", |t| format!("{:.0}", t.summary.all.max_wait_s)),
    ("average bounded slowdown", |t| format!("{:.2}", t.summary.all.avg_bounded_slowdown)),
    ("utilisation", |t| format!("{:.3}", t.summary.utilization)),
    ("idle CPUs while jobs waited", |t| format!("{:.3}", t.summary.fragmentation)),
    ("makespan, days", |t| format!("{:.2}", t.summary.makespan_s / 86_400.0)),
    ("mean queue, jobs", |t| format!("{:.1}", t.summary.mean_queue)),
    ("longest queue, jobs", |t| t.summary.max_queue.to_string()),
    ("simulated in, s", |t| format!("{:.2}", t.seconds)),
    ("times real speed", |t| format!("{:.0}", t.summary.makespan_s / t.seconds.max(1e-9))),
];

type BlockRow = (&'static str, fn(&Blocks) -> String);

/// Where there are blocks or leaf switches.
const BLOCK_ROWS: [BlockRow; 8] = [
    ("idle whole blocks", |b| format!("{:.2}", b.idle)),
    ("largest idle block, nodes", |b| format!("{:.2}", b.largest_idle_nodes)),
    ("idle nodes in broken blocks", |b| format!("{:.3}", b.scattered)),
    ("jobs of a block or more", |b| b.wide.jobs.to_string()),
    ("their mean wait, s", |b| format!("{:.0}", b.wide.mean_wait_s)),
    ("their slowdown", |b| format!("{:.2}", b.wide.avg_bounded_slowdown)),
    ("jobs kept from whole blocks", |b| b.patient_jobs.to_string()),
    ("for, s (mean, longest)", |b| format!("{:.0}, {:.0}", b.patient_mean_s, b.patient_max_s)),
];

fn table(told: &[Told], trace: &Trace, by: Option<&str>) -> String {
    let widths: Vec<usize> = told.iter().map(|t| t.name.len().max(12)).collect();
    let mut text = format!("{:<30}", "");
    for (t, width) in told.iter().zip(&widths) {
        let _ = write!(text, " {:>width$}", t.name);
    }
    text.push('\n');
    for (name, value) in ROWS {
        let _ = write!(text, "{name:<30}");
        for (t, width) in told.iter().zip(&widths) {
            let _ = write!(text, " {:>width$}", value(t));
        }
        text.push('\n');
    }
    if told.iter().any(|t| t.summary.blocks.is_some()) {
        for (name, value) in BLOCK_ROWS {
            let _ = write!(text, "{name:<30}");
            for (t, width) in told.iter().zip(&widths) {
                let _ = write!(text, " {:>width$}", t.summary.blocks.as_ref().map_or_else(String::new, value));
            }
            text.push('\n');
        }
    }
    for (cause, jobs) in &trace.left_out {
        let _ = writeln!(text, "{jobs} jobs of the workload {cause} and were left out");
    }
    for (cause, jobs) in &trace.misnumbered {
        let _ = writeln!(text, "{jobs} jobs of the workload {cause}: all were numbered anew");
    }
    for t in told.iter().filter(|_| by.is_some()) {
        let groups: Vec<(String, &Figures)> = match by {
            Some("user") => t.summary.users.iter().map(|(user, figures)| (user.to_string(), figures)).collect(),
            _ => t.summary.partitions.iter().map(|(name, figures)| (name.clone(), figures)).collect(),
        };
        let _ = writeln!(
            text,
            "\n{:<20} {:>8} {:>12} {:>12} {:>12} {:>10}",
            t.name, "jobs", "mean wait", "longest", "slowdown", "share"
        );
        for (name, f) in groups {
            let share = f.work_cpu_s / t.summary.all.work_cpu_s.max(1.0);
            let _ = writeln!(
                text,
                "{name:<20} {:>8} {:>12.0} {:>12.0} {:>12.2} {share:>10.3}",
                f.jobs, f.mean_wait_s, f.max_wait_s, f.avg_bounded_slowdown
            );
        }
    }
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn sim(words: &[&str]) -> Result<String, String> {
        let args: Vec<OsString> = words.iter().map(OsString::from).collect();
        run(&arguments::parse(&TABLE, &args).unwrap())
    }

    #[test]
    fn json_tells_how_many_jobs_were_left_out_and_only_svg_is_drawn() {
        let file = std::env::temp_dir().join(format!("garrick-sim-{}.swf", std::process::id()));
        let job = |number: u32, run: i32| format!("{number} 0 -1 {run} 1 -1 -1 1 10 -1 1 1 1 1 1 -1 -1 -1\n");
        std::fs::write(&file, job(1, 10) + &job(2, -1)).unwrap();
        let words = ["--trace", file.to_str().unwrap(), "--nodes", "1", "--cpus", "2", "--json"];
        let told: serde_json::Value = serde_json::from_str(&sim(&words).unwrap()).unwrap();
        let refused = sim(&[&words[..], &["--picture", "x.png"]].concat());
        std::fs::remove_file(&file).unwrap();
        assert_eq!(told["left_out"], 1, "{told}");
        let said = "--picture: no png is drawn, only SVG: name a file that ends in .svg";
        assert_eq!(refused, Err(said.to_owned()));
    }

    #[test]
    fn two_traces_in_one_file_are_replayed_and_a_cluster_of_nothing_is_not() {
        let file = std::env::temp_dir().join(format!("garrick-sim-twice-{}.swf", std::process::id()));
        let job = |number: u32| format!("{number} 0 -1 60 1 -1 -1 1 60\n");
        std::fs::write(&file, [job(1), job(2), job(1), job(2), job(3)].concat()).unwrap();
        let words = ["--trace", file.to_str().unwrap(), "--nodes", "1"];
        let text = sim(&words);
        std::fs::write(&file, "; MaxProcs: 0\n".to_owned() + &job(1)).unwrap();
        let nothing = sim(&words[..2]);
        std::fs::remove_file(&file).unwrap();
        let text = text.unwrap();
        let row = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        assert_eq!((row("jobs  "), row("jobs that no plan started")), (Some("5"), Some("0")), "{text}");
        assert!(text.contains("\n2 jobs of the workload have the number of an earlier one: all were numbered anew\n"));
        assert!(nothing.unwrap_err().starts_with("MaxProcs: 0 of the trace is not a number"));
    }
}
