//! `garrick sim`: replays a workload through the scheduler, on a cluster of a number of slots or of a `slurm.conf`, under one
//! policy or several for comparison.

use garrick_model::{
    config::{self, Config},
    time::parse_duration_secs,
};
use garrick_options::table::Arg;
use garrick_replay::{
    TraceJob,
    cluster::{self, Choice, ClusterView},
    engine::{Estimates, Replay, replay, replay_with},
    figures::{Blocks, Figures, Summary},
    journal, picture,
    shares::{self, Course, Entitled, Sharing},
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
        option(
            "fair-share",
            None,
            Arg::Required("LIST"),
            "users are accounts, and jobs have multifactor priorities: equal (shares), demand (shares by what users' jobs come to), \
             off (priorities do not go by shares, which are shown all the same); or a list of these",
        ),
        option(
            "half-life",
            None,
            Arg::Required("TIME"),
            "PriorityDecayHalfLife for --fair-share (default: that of --conf, or 7-0)",
        ),
        option(
            "users",
            None,
            Arg::Required("N"),
            "of a trace that names no users: deal its jobs to N; each has half of what is left, the last two as much",
        ),
        option(
            "shares-picture",
            None,
            Arg::Required("FILE"),
            "draw what users had of their shares over time (SVG), with --fair-share",
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
    for drawn in ["picture", "shares-picture"].into_iter().filter_map(|name| arguments.value(name)) {
        only_svg(&PathBuf::from(drawn))?;
    }
    let shared = shared(arguments)?;
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
    let mut trace = workload(arguments, confs.first().map(|(_, config)| config))?;
    if let Some(users) = count(arguments, "users")? {
        deal(&mut trace, users)?;
    }
    let mut told = Vec::new();
    for policy in policies {
        for (name, view, config) in clusters_under(policy, arguments, &confs, &trace)? {
            if shared.is_empty() {
                told.push(replayed(name, &trace, |jobs| replay(view, jobs, estimates)));
                continue;
            }
            for entitled in &shared {
                let sharing = sharing(*entitled, &trace, &view, config, arguments)?;
                let (name, view) = (format!("{name}, {entitled}"), view.clone());
                told.push(replayed(name, &trace, |jobs| replay_with(view, jobs, estimates, Some(sharing))));
            }
        }
    }
    let named: Vec<picture::Named<'_>> = told.iter().map(|t| (t.name.as_str(), &t.replay)).collect();
    if let Some(path) = arguments.value("picture") {
        let drawn = picture::svg(&named).map_err(|e| e.to_string())?;
        std::fs::write(&path, drawn).map_err(|e| format!("cannot write {path}: {e}"))?;
    }
    if let Some(path) = arguments.value("shares-picture") {
        let drawn = picture::shares_svg(&named).map_err(|e| e.to_string())?;
        std::fs::write(&path, drawn).map_err(|e| format!("cannot write {path}: {e}"))?;
    }
    if arguments.has("json") {
        return json(&told, &trace);
    }
    Ok(table(&told, &trace, by.as_deref()) + &shares_table(&told) + "\n" + &picture::lines(&named))
}

/// One replay, and how long it takes.
fn replayed(name: String, trace: &Trace, replay: impl FnOnce(&[TraceJob]) -> Replay) -> Told {
    let began = Instant::now();
    let replay = replay(&trace.jobs);
    let seconds = began.elapsed().as_secs_f64();
    Told { name, summary: Summary::of(&replay), replay, seconds }
}

/// `--fair-share`: one replay each.
fn shared(arguments: &Arguments) -> Result<Vec<Entitled>, String> {
    let Some(list) = arguments.value("fair-share") else {
        let alone = ["half-life", "shares-picture"].into_iter().find(|name| arguments.has(name));
        return alone.map_or(Ok(Vec::new()), |name| Err(format!("--{name} goes with --fair-share")));
    };
    list.split(',').map(|word| word.trim().parse().map_err(|e| format!("--fair-share: {e}"))).collect()
}

/// The users' shares on such a cluster.
fn sharing(
    entitled: Entitled,
    trace: &Trace,
    view: &ClusterView,
    config: Option<&Config>,
    arguments: &Arguments,
) -> Result<Sharing, String> {
    let mut settings = config.map_or_else(shares::defaults, |config| config.priority.clone());
    if let Some(text) = arguments.value("half-life") {
        let secs = parse_duration_secs(&text).ok().flatten().filter(|secs| *secs > 0);
        settings.half_life_secs = secs.ok_or_else(|| format!("--half-life: \"{text}\" is not a time"))?;
    }
    let partitions = config.map(cluster::partition_views).unwrap_or_default();
    Ok(Sharing::new(&trace.jobs, entitled, shares::settings(settings, entitled), partitions, view.nodes.clone()))
}

/// Gives the jobs of a trace without users to so many, always in the same way.
fn deal(trace: &mut Trace, users: u32) -> Result<(), String> {
    if trace.jobs.iter().any(|job| job.user != 0) {
        return Err("--users: the workload names its users".to_owned());
    }
    for job in &mut trace.jobs {
        // Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014.
        let mut z = u64::from(job.id.0).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        job.user = ((z ^ (z >> 31)).trailing_zeros() + 1).min(users);
    }
    Ok(())
}

/// Most users of whom a table tells; the others are one line.
const TOLD_USERS: usize = 12;

/// What users were entitled to and had, and how long their jobs waited, in each replay with shares.
fn shares_table(told: &[Told]) -> String {
    let told: Vec<(&Told, &Course)> = told.iter().filter_map(|t| Some((t, t.replay.shares.as_ref()?))).collect();
    let Some((first, _)) = told.first() else { return String::new() };
    let mut text = format!("\n{:<10} {:>8} {:>9}", "user", "jobs", "of work");
    for (t, _) in &told {
        let _ = write!(text, "  {:>26}", t.name);
    }
    let _ = write!(text, "\n{:<29}", "");
    for _ in &told {
        let _ = write!(text, "  {:>8} {:>17}", "share", "mean wait, s");
    }
    text.push('\n');
    let mut users: Vec<(&u32, &Figures)> = first.summary.users.iter().collect();
    users.sort_by(|(a, x), (b, y)| y.work_cpu_s.total_cmp(&x.work_cpu_s).then(a.cmp(b)));
    let (named, rest) = users.split_at(users.len().min(TOLD_USERS));
    let mut lines: Vec<(String, Vec<u32>)> = named.iter().map(|(user, _)| (user.to_string(), vec![**user])).collect();
    if !rest.is_empty() {
        lines.push((format!("{} more", rest.len()), rest.iter().map(|(user, _)| **user).collect()));
    }
    for (name, users) in lines {
        let of = |t: &Told| {
            let figures = users.iter().filter_map(|user| t.summary.users.get(user));
            figures.fold((0, 0.0, 0.0), |(jobs, work, wait), f| {
                (jobs + f.jobs, work + f.work_cpu_s, wait + f.mean_wait_s * f.jobs as f64)
            })
        };
        let (jobs, work, _) = of(first);
        let _ = write!(text, "{name:<10} {jobs:>8} {:>9.3}", work / first.summary.all.work_cpu_s.max(1.0));
        for (t, course) in &told {
            let (jobs, _, wait) = of(t);
            let entitled: u64 =
                users.iter().filter_map(|user| course.entitled.get(user)).map(|part| u64::from(*part)).sum();
            let _ = write!(text, "  {:>8.3} {:>17.0}", entitled as f64 / 1e6, wait / (jobs.max(1) as f64));
        }
        text.push('\n');
    }
    text
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

/// A cluster with its name, and its configuration if it has one.
type Cluster<'c> = (String, ClusterView, Option<&'c Config>);

/// Each configured cluster under this policy; without configurations one of like nodes.
fn clusters_under<'c>(
    policy: Choice,
    arguments: &Arguments,
    confs: &'c [(PathBuf, Config)],
    trace: &Trace,
) -> Result<Vec<Cluster<'c>>, String> {
    if !confs.is_empty() {
        let named = confs.iter().map(|(path, config)| {
            let name = if confs.len() > 1 { format!("{} {policy}", path.display()) } else { policy.to_string() };
            (name, cluster::configured(config, policy), Some(config))
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
    Ok(vec![(policy.to_string(), cluster::places(nodes, cpus, policy), None)])
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
    fn with_fair_share_who_has_had_less_waits_less() {
        let file = std::env::temp_dir().join(format!("garrick-sim-shares-{}.swf", std::process::id()));
        let job = |number: u32, user: u32| format!("{number} {number} -1 600 1 -1 -1 1 600 -1 1 {user}\n");
        // The first user's forty jobs come before the other's ten.
        let jobs: String = (1..=50).map(|number| job(number, if number <= 40 { 1 } else { 2 })).collect();
        std::fs::write(&file, jobs).unwrap();
        let picture = file.with_extension("svg");
        let words =
            ["--trace", file.to_str().unwrap(), "--nodes", "1", "--policy", "easy", "--fair-share", "off,equal"];
        let text = sim(&[&words[..], &["--shares-picture", picture.to_str().unwrap()]].concat()).unwrap();
        let drawn = std::fs::read_to_string(&picture).unwrap();
        let refused = sim(&[&words[..6], &["--half-life", "1-0"]].concat());
        std::fs::remove_file(&file).unwrap();
        std::fs::remove_file(&picture).unwrap();
        let row = text.lines().find(|line| line.starts_with("2   ")).unwrap();
        let numbers: Vec<f64> = row.split_whitespace().map(|word| word.parse().unwrap()).collect();
        let [_, jobs, work, _, off, share, on] = numbers.as_slice() else { panic!("{row}") };
        assert_eq!((*jobs, *work, *share), (10.0, 0.2, 0.5), "{text}");
        assert!(on < off && *on < 10_000.0, "{text}");
        assert!(drawn.contains("equal shares: used / entitled") && drawn.contains("user 2"), "{drawn}");
        assert_eq!(refused, Err("--half-life goes with --fair-share".to_owned()));
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
