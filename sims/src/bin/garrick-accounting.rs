//! Benchmarks of accounting, and kills of all that keeps records.
//!
//! ```text
//! garrick-accounting [questions] [--database D] [--jobs N] [--steps N] [--folder DIR]   questions and a purge beside SQL by hand
//! garrick-accounting launching [--database D] [--rounds N] [--steps N]                  steps launched beside the service
//! garrick-accounting polling [--database D] [--rounds N] [--jobs N]                     jobs submitted while sacct is asked
//! garrick-accounting kills [--database D] [--count N] [--seed S] [--jobs N] [--steps N] [--nodes N]
//! ```
//!
//! Each takes `--json FILE`, and `--short` first: a small size, to see that all works. `D` is `sqlite`, `postgresql` or `mariadb`.
//! All but the questions need root, and the workspace's programs beside this one. The exit code is 0 when all is as it should be,
//! and 1 when something failed or a record is wrong; a goal that is not met is printed, and is no failure.

use garrick_sims::{
    accounting::{Amounts, accounting, launching, polling, questions, service},
    database::Kind,
    faults::accounted::{self, Accounted},
    minibatch::{
        figures::{Figures, Findings},
        inside::Fallible,
    },
    program::{run, tell},
};
use std::{
    io::{Write as _, stdout},
    path::PathBuf,
    process::ExitCode,
    time::{SystemTime, UNIX_EPOCH},
};

/// Spawns of each way in which the floor is measured, before and after.
const FLOOR_SPAWNS: usize = 500;
const USAGE: &str =
    "usage: garrick-accounting [questions] [--short] [--database D] [--jobs N] [--steps N] [--folder DIR] [--json FILE]
       garrick-accounting launching [--short] [--database D] [--rounds N] [--steps N] [--json FILE]
       garrick-accounting polling [--short] [--database D] [--rounds N] [--jobs N] [--json FILE]
       garrick-accounting kills [--short] [--database D] [--count N] [--seed S] [--jobs N] [--steps N] [--nodes N]
D is sqlite, postgresql or mariadb";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        // The service, and one who asks it.
        [service::SERVE, settings] => service::serve(settings),
        [questions::ASK, door, asked] => run("garrick-accounting", USAGE, |_| questions::ask(door, asked)),
        _ => run("garrick-accounting", USAGE, play),
    }
}

/// What was asked for beside a command's own sizes.
struct Order {
    database: Kind,
    folder: PathBuf,
    json: Option<String>,
    /// Words and numbers.
    sizes: Vec<(String, u64)>,
}

impl Order {
    fn of(args: &[String], sizes: &[&str]) -> Fallible<Self> {
        let mut order = Self { database: Kind::Sqlite, folder: std::env::temp_dir(), json: None, sizes: Vec::new() };
        let mut rest = args.iter();
        while let Some(arg) = rest.next() {
            let value = rest.next().ok_or_else(|| format!("{arg} needs a value\n{USAGE}"))?;
            match arg.as_str() {
                "--database" => order.database = Kind::of(value).ok_or_else(|| format!("--database: {value}"))?,
                "--folder" => order.folder = PathBuf::from(value),
                "--json" => order.json = Some(value.clone()),
                size if sizes.contains(&size) => {
                    let number = value.parse().map_err(|_| format!("{arg}: {value}"))?;
                    order.sizes.push((arg.clone(), number));
                }
                _ => return Err(USAGE.into()),
            }
        }
        Ok(order)
    }

    /// The number behind a word, or the usual one.
    fn size<N: TryFrom<u64>>(&self, word: &str, usual: N) -> Fallible<N> {
        let said = self.sizes.iter().rfind(|(named, _)| named == word).map(|(_, number)| *number);
        said.map_or(Ok(usual), |number| N::try_from(number).map_err(|_| format!("{word}: {number}").into()))
    }
}

fn play(args: &[String]) -> Fallible<()> {
    let (command, rest) = match args.split_first() {
        Some((first, rest)) if !first.starts_with("--") => (first.as_str(), rest),
        _ => ("questions", args),
    };
    let (is_short, rest) = match rest.split_first() {
        Some((first, rest)) if first == "--short" => (true, rest),
        _ => (false, rest),
    };
    match command {
        "questions" => ask(is_short, rest),
        "launching" => launch(is_short, rest),
        "polling" => poll(is_short, rest),
        "kills" => kill(is_short, rest),
        _ => Err(USAGE.into()),
    }
}

/// Prints what a scenario finds, beside what this machine can do.
fn figures(is_short: bool, order: &Order, scenario: String, of: impl FnOnce() -> Fallible<Findings>) -> Fallible<()> {
    let spawns = if is_short { FLOOR_SPAWNS / 10 } else { FLOOR_SPAWNS };
    tell(&Figures::around(scenario, spawns, of)?, order.json.as_deref())
}

fn ask(is_short: bool, args: &[String]) -> Fallible<()> {
    let order = Order::of(args, &["--jobs", "--steps"])?;
    let (jobs, steps) = if is_short { (300, 4) } else { (100_000, 10) };
    let amounts = Amounts { jobs: order.size("--jobs", jobs)?, steps: order.size("--steps", steps)? };
    let folder = order.folder.join(format!("garrick-accounting-{}", std::process::id()));
    std::fs::create_dir(&folder)?;
    let scenario = format!("accounting on {}: {} jobs of {} steps", order.database.word(), amounts.jobs, amounts.steps);
    let told = figures(is_short, &order, scenario, || accounting(&folder, order.database, amounts));
    std::fs::remove_dir_all(&folder)?;
    told
}

fn launch(is_short: bool, args: &[String]) -> Fallible<()> {
    let order = Order::of(args, &["--rounds", "--steps"])?;
    let usual = if is_short { launching::Launching::SHORT } else { launching::Launching::USUAL };
    let setup = launching::Launching {
        rounds: order.size("--rounds", usual.rounds)?,
        steps: order.size("--steps", usual.steps)?,
        ..usual
    };
    let scenario = format!("accounting on {}: steps launched beside the service", order.database.word());
    figures(is_short, &order, scenario, || launching::launching(setup, order.database))
}

fn poll(is_short: bool, args: &[String]) -> Fallible<()> {
    let order = Order::of(args, &["--rounds", "--jobs"])?;
    let usual = if is_short { polling::Polling::SHORT } else { polling::Polling::USUAL };
    let setup = polling::Polling {
        rounds: order.size("--rounds", usual.rounds)?,
        jobs: order.size("--jobs", usual.jobs)?,
        ..usual
    };
    let scenario = format!("accounting on {}: jobs submitted while sacct is asked", order.database.word());
    figures(is_short, &order, scenario, || polling::polling(setup, order.database))
}

fn kill(is_short: bool, args: &[String]) -> Fallible<()> {
    let order = Order::of(args, &["--count", "--seed", "--jobs", "--steps", "--nodes"])?;
    let (kills, jobs) = if is_short { (8, 6) } else { (300, 100) };
    // From the clock: each long run is another one.
    let seed = if is_short { 1 } else { SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs() };
    let setup = Accounted {
        seed: order.size("--seed", seed)?,
        kills: order.size("--count", kills)?,
        jobs: order.size("--jobs", jobs)?,
        steps_per_job: order.size("--steps", 12)?,
        nodes: order.size("--nodes", 3)?,
        database: order.database,
    };
    eprintln!("the same again: {}", setup.command());
    let outcome = accounted::run(setup)?;
    let mut out = stdout().lock();
    outcome.report.render(&mut out)?;
    outcome.victims().render(&mut out)?;
    outcome.comparison().render(&mut out)?;
    writeln!(
        out,
        "{} exit codes were told; the controller came to the service {} times",
        outcome.sums.told(),
        outcome.conversations
    )?;
    writeln!(out, "the same again: {}", setup.command())?;
    if outcome.report.verdict.violations.is_empty() && outcome.sums.are_equal() {
        Ok(())
    } else {
        Err("records are wrong".into())
    }
}
