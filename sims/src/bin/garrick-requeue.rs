//! Benchmark of the expedited requeue: a node is killed under a job, and the job runs again on a spare one.
//!
//! ```text
//! cargo run --release -p garrick-sims --bin garrick-requeue -- [--rounds N]
//! ```
//!
//! Starts a cluster of its own in a temporary folder and takes it away again. Prints what happened in the first round of
//! each kind, then milliseconds from death to detection and from detection to the first line of the new batch script, beside
//! the time that a plain job takes from `sbatch` to its script's first line on the same cluster, and beside the ordinary
//! delay. The exit code is 1 when something failed; a goal that is not met is printed, and is no failure.

use garrick_sims::{
    minibatch::cluster::ClusterError,
    requeue::{Death, ORDINARY_DELAY, Rig, SILENCE_SECS, Victim},
};
use std::{
    io::{self, Write, stdout},
    process::ExitCode,
    time::Duration,
};

/// From detection to the new script, where there are spare nodes.
const GOAL: Duration = Duration::from_secs(1);
const ROUNDS: usize = 5;

const USAGE: &str = "usage: garrick-requeue [--rounds N]";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let rounds = match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["-h" | "--help"] => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        [] => Some(ROUNDS),
        ["--rounds", count] => count.parse().ok().filter(|n| *n > 0),
        _ => None,
    };
    let Some(rounds) = rounds else {
        eprintln!("{USAGE}");
        return ExitCode::FAILURE;
    };
    match play(rounds) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("garrick-requeue: {e}");
            ExitCode::FAILURE
        }
    }
}

#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    #[error("writing what was found: {0}")]
    Output(#[from] io::Error),
}

fn play(rounds: usize) -> Result<(), Failure> {
    let rig = Rig::up()?;
    let mut out = stdout().lock();
    let (mut floors, mut deaths) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        for victim in [Victim::Other, Victim::BatchHost] {
            floors.push(rig.floor()?);
            let death = rig.death(victim)?;
            if !deaths.iter().any(|d: &Death| d.victim == victim) {
                tell(&mut out, &death)?;
            }
            deaths.push(death);
        }
    }
    rig.down()?;
    sum_up(&mut out, &floors, &deaths)?;
    Ok(())
}

fn tell(out: &mut impl Write, death: &Death) -> io::Result<()> {
    let what = match death.victim {
        Victim::BatchHost => "the batch host dies",
        Victim::Other => "the other node dies",
    };
    writeln!(out, "{what}; the job was on {} and runs again on {}", death.nodes.0, death.nodes.1)?;
    for line in &death.story {
        writeln!(out, "  {:>10.1} ms  {:<34} {}", millis(line.after), line.who, line.what)?;
    }
    writeln!(out)
}

fn sum_up(out: &mut impl Write, floors: &[Duration], deaths: &[Death]) -> io::Result<()> {
    writeln!(out, "{:<62} {:>8} {:>8} {:>8} {:>4}", "milliseconds", "least", "median", "most", "n")?;
    row(out, "floor: sbatch to the first line of a plain job's script", floors)?;
    for (victim, name) in [(Victim::Other, "other node"), (Victim::BatchHost, "batch host")] {
        let of_kind = |get: fn(&Death) -> Duration| -> Vec<Duration> {
            deaths.iter().filter(|d| d.victim == victim).map(get).collect()
        };
        row(out, &format!("{name}: death to detection (SlurmdTimeout={SILENCE_SECS})"), &of_kind(|d| d.detection))?;
        row(out, &format!("{name}: detection to the new script's first line"), &of_kind(|d| d.restart))?;
    }
    let all: Vec<Duration> = deaths.iter().map(|d| d.restart).collect();
    let (middle, worst) = (median(&all), all.iter().max().copied().unwrap_or_default());
    writeln!(
        out,
        "\ndetection to script: {:.1} times the floor at the median; an ordinary requeue waits {} s, {:.0} times as long",
        millis(middle) / millis(median(floors)).max(0.001),
        ORDINARY_DELAY.as_secs(),
        ORDINARY_DELAY.as_secs_f64() / middle.as_secs_f64().max(0.001)
    )?;
    let met = if worst < GOAL { "met" } else { "not met" };
    writeln!(out, "goal under {} ms in every round: {met} (worst {:.0} ms)", GOAL.as_millis(), millis(worst))
}

fn row(out: &mut impl Write, name: &str, all: &[Duration]) -> io::Result<()> {
    let (least, most) = (all.iter().min().copied().unwrap_or_default(), all.iter().max().copied().unwrap_or_default());
    let (least, middle, most) = (millis(least), millis(median(all)), millis(most));
    writeln!(out, "{name:<62} {least:>8.1} {middle:>8.1} {most:>8.1} {:>4}", all.len())
}

fn median(all: &[Duration]) -> Duration {
    let mut sorted = all.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
