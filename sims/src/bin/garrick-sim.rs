//! Simulated clusters from seeds: rules are checked after every event.
//!
//!     garrick-sim --short                                            a few seeds, always the same ones
//!     garrick-sim --seed N [--jobs J] [--nodes N] [--events E]       one, as a violation tells it

use garrick_sims::simulation::{Outcome, Setup, rules::Violation, run};
use std::{
    error::Error,
    io::{Write, stdout},
    panic::{AssertUnwindSafe, catch_unwind},
    process::ExitCode,
    time::Instant,
};

const USAGE: &str = "usage: garrick-sim --short | --seed N [--jobs J] [--nodes N] [--events E]";
/// Seeds of `--short`.
const SHORT: [u64; 5] = [1, 2, 3, 4, 5];

fn main() -> ExitCode {
    let result = setups(&std::env::args().skip(1).collect::<Vec<_>>()).and_then(|setups| run_all(&setups));
    match result {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("garrick-sim: {error}");
            ExitCode::from(2)
        }
    }
}

fn setups(args: &[String]) -> Result<Vec<Setup>, Box<dyn Error>> {
    if args == ["--short"] {
        return Ok(SHORT.map(Setup::of_seed).to_vec());
    }
    let (mut setup, mut seeded) = (Setup::of_seed(0), false);
    for pair in args.chunks(2) {
        let [name, value] = pair else { return Err(USAGE.into()) };
        match name.as_str() {
            "--seed" => (setup.seed, seeded) = (value.parse()?, true),
            "--jobs" => setup.jobs = value.parse()?,
            "--nodes" => setup.nodes = value.parse()?,
            "--events" => setup.events = value.parse()?,
            _ => return Err(USAGE.into()),
        }
    }
    if seeded { Ok(vec![setup]) } else { Err(USAGE.into()) }
}

/// How many violations there were.
fn run_all(setups: &[Setup]) -> Result<u32, Box<dyn Error>> {
    let mut out = stdout().lock();
    let (mut events, mut violations, began) = (0, 0, Instant::now());
    for setup in setups {
        let start = Instant::now();
        // An assertion of a core is a broken rule too, and is to be repeatable.
        match catch_unwind(AssertUnwindSafe(|| run(*setup))) {
            Ok(Ok(outcome)) => {
                events += outcome.events;
                show(&mut out, setup, &outcome, start)?;
            }
            Ok(Err(violation)) => {
                violations += 1;
                broken(&mut out, setup, &violation)?;
            }
            Err(_) => {
                violations += 1;
                writeln!(out, "seed {}: a core panicked (see above)\nrepeat: {}", setup.seed, setup.command())?;
            }
        }
    }
    let secs = began.elapsed().as_secs_f64();
    let rate = events as f64 / secs.max(0.001);
    writeln!(out, "{} seeds, {events} events in {secs:.1} s, {rate:.0} events/s", setups.len())?;
    writeln!(out, "{violations} violations")?;
    Ok(violations)
}

fn show(out: &mut impl Write, setup: &Setup, outcome: &Outcome, start: Instant) -> Result<(), Box<dyn Error>> {
    let rate = outcome.events as f64 / start.elapsed().as_secs_f64().max(0.001);
    let n = |what| outcome.counts.of(what);
    writeln!(
        out,
        "seed {}: {} jobs on {} nodes, {} events, {rate:.0} events/s, {} simulated s, digest {:016x}",
        setup.seed,
        n("Submitted"),
        setup.nodes,
        outcome.events,
        outcome.simulated_secs,
        outcome.digest
    )?;
    writeln!(
        out,
        "    {} allocations, {} ends, {} requeues, {} nodes kept; {} links broken, {} agent restarts, {} reboots, {} stepds killed and {} started again, \
         {} launches failed, {} drains, {} downs, {} commands, {} controller restarts, {} messages twice",
        n("Allocated"),
        n("Ended"),
        n("Requeued"),
        n("NodeKept"),
        n("link broken"),
        n("agent restart"),
        n("machine reboot"),
        n("stepd killed"),
        n("stepd restarted"),
        n("launch failure"),
        n("node drained"),
        n("node set down"),
        n("command"),
        n("controller restart"),
        n("message delivered twice")
    )?;
    Ok(())
}

fn broken(out: &mut impl Write, setup: &Setup, violation: &Violation) -> Result<(), Box<dyn Error>> {
    writeln!(out, "seed {}: {violation}\nrepeat: {}", setup.seed, setup.command())?;
    Ok(())
}
