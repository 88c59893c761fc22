//! `side-by-side`: runs scenarios on two installations, and shows what differs.

use clap::{Parser, Subcommand};
use garrick_side_by_side::{
    cluster::{self, Kind},
    differences::Differences,
    report::{self, Pair},
    scenario::Scenario,
    side,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    error::Error,
    io::{self, Write as _},
    path::PathBuf,
    process::ExitCode,
};

/// Runs the same commands on a cluster of Garrick and on one of Slurm, and shows what differs. Needs root.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    inner: Option<Inner>,
    /// Where Garrick is installed, or the folder in which it was built.
    #[arg(long, value_name = "PREFIX")]
    ours: Option<PathBuf>,
    /// Where Slurm is installed.
    #[arg(long, value_name = "PREFIX", default_value = "/usr")]
    reference: PathBuf,
    /// Only cases whose names (FILE/CASE) match this regular expression.
    #[arg(long, value_name = "PATTERN")]
    only: Option<String>,
    /// Name the cases, and run none.
    #[arg(long)]
    list: bool,
    /// Show both sides of each difference, the listed ones as well.
    #[arg(long)]
    show: bool,
    /// Show all that both sides showed.
    #[arg(long)]
    whole: bool,
    /// Print how many cases are the same, by command.
    #[arg(long)]
    report: bool,
    /// Print how long the slowest cases took.
    #[arg(long)]
    times: bool,
    /// Write the table of differences again, so that it is true for this reference: new ones are `not yet`.
    #[arg(long)]
    renew: bool,
    /// How many scenario files run at a time.
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Scenario files. All of this crate, unless given.
    files: Vec<PathBuf>,
}

#[derive(Subcommand)]
enum Inner {
    /// The first process of a namespace.
    #[command(hide = true)]
    Inside { order: PathBuf, work: PathBuf },
    /// The one that does the work there.
    #[command(hide = true)]
    Work { order: PathBuf, work: PathBuf },
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("side-by-side: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<ExitCode, Box<dyn Error>> {
    match &arguments.inner {
        Some(Inner::Inside { order, work }) => {
            let code = side::first_process(order, work)?;
            return Ok(if code == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
        Some(Inner::Work { order, work }) => {
            // What went wrong is left for who asked.
            return Ok(if side::work(order, work).is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
        None => {}
    }
    let home = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let mut files = arguments.files.clone();
    if files.is_empty() {
        let found = std::fs::read_dir(home.join("scenarios"))?;
        files = found.map(|entry| entry.map(|e| e.path())).collect::<io::Result<_>>()?;
        files.sort();
    }
    let only = regex::Regex::new(arguments.only.as_deref().unwrap_or(""))?;
    let scenarios: Vec<Scenario> = files.iter().map(|file| Scenario::read(file)).collect::<Result<_, _>>()?;
    let mut out = io::stdout().lock();
    if arguments.list {
        for scenario in &scenarios {
            for case in scenario.cases.iter().filter(|case| only.is_match(&scenario.title(case))) {
                writeln!(out, "{}", scenario.title(case))?;
            }
        }
        return Ok(ExitCode::SUCCESS);
    }
    let path = home.join("differences.toml");
    let mut table = Differences::read(&path)?;
    let ours = arguments.ours.clone().ok_or("--ours PREFIX is needed")?.canonicalize()?;
    let version = cluster::version(&arguments.reference)
        .ok_or_else(|| format!("no slurmctld in {}", arguments.reference.display()))?;
    // With Slurm on both sides it shows what differs from one run to the next.
    let ours_is =
        if cluster::is_built(&ours) || ours.join("bin/garrick").exists() { Kind::Ours } else { Kind::Reference };
    let work = std::env::temp_dir().join(format!("side-by-side-{}", std::process::id()));
    let reference = arguments.reference.clone();
    let pair = Pair { program: std::env::current_exe()?, ours, reference, version, ours_is, work };
    let queue = std::sync::Mutex::new(scenarios);
    let results = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..arguments.jobs {
            scope.spawn(|| {
                while let Some(scenario) = queue.lock().ok().and_then(|mut queue| queue.pop()) {
                    let done = report::run(&pair, scenario, &table, |title| only.is_match(title));
                    if let Ok(mut results) = results.lock() {
                        results.push(done);
                    }
                }
            });
        }
    });
    drop(std::fs::remove_dir_all(&pair.work));
    let (mut outcomes, mut failed) = (Vec::new(), 0);
    for done in results.into_inner()? {
        match done {
            Ok(done) => outcomes.extend(done),
            Err(error) => {
                failed += 1;
                writeln!(out, "== {error}")?;
            }
        }
    }
    outcomes.sort_by(|a, b| a.title.cmp(&b.title));
    for outcome in &outcomes {
        if arguments.whole {
            writeln!(out, "== {}\n-- ours\n{}-- reference\n{}", outcome.title, outcome.ours, outcome.reference)?;
        }
        match (outcome.failure(), &outcome.differs) {
            (Some(failure), _) => {
                failed += 1;
                writeln!(out, "== {failure}")?;
            }
            (None, Some(differs)) if arguments.show => {
                let class = outcome.known.map_or(String::new(), |class| format!(" ({class})"));
                writeln!(out, "== {}{class} differs:\n{differs}", outcome.title)?;
            }
            _ => {}
        }
    }
    if arguments.renew {
        let (mut differ, mut same) = (BTreeMap::new(), BTreeSet::new());
        for outcome in &outcomes {
            match &outcome.differs {
                Some(differs) => drop(differ.insert(outcome.title.clone(), report::first_line(differs))),
                None => drop(same.insert(outcome.title.clone())),
            }
        }
        table.renew(&pair.version, &differ, &same);
        table.write(&path)?;
    }
    if arguments.times {
        let mut slow: Vec<_> = outcomes.iter().collect();
        slow.sort_by_key(|outcome| std::cmp::Reverse(outcome.millis.iter().sum::<u64>()));
        for outcome in slow.iter().take(50) {
            let [ours, reference] = outcome.millis;
            writeln!(out, "{ours:>6} ms {reference:>6} ms  {}", outcome.title)?;
        }
    }
    if arguments.report {
        writeln!(out, "Against {}:\n{}", pair.version, report::table(&outcomes))?;
    }
    writeln!(out, "{} cases, {failed} failed", outcomes.len())?;
    Ok(if failed == 0 || arguments.renew { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
