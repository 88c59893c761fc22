//! Simulated clusters from seeds: rules are checked after every event. Seeds are run on all cores; what is printed does
//! not depend on how many there are, times apart.
//!
//!     garrick-sim --short                                            more than a million events, always the same ones
//!     garrick-sim --long                                             hundreds of seeds
//!     garrick-sim --seeds FROM TO                                    these
//!     garrick-sim --seed N [--jobs J] [--nodes N] [--events E]       one, as a violation tells it

use garrick_simulator::{Outcome, Setup, rules::Violation, run};
use std::{
    collections::BTreeMap,
    error::Error,
    io::{Write, stdout},
    num::NonZero,
    panic::{AssertUnwindSafe, catch_unwind},
    process::ExitCode,
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::Instant,
};

const USAGE: &str =
    "usage: garrick-sim --short | --long | --seeds FROM TO | --seed N [--jobs J] [--nodes N] [--events E]";
/// Seeds of `--short`.
const SHORT: u64 = 14;
/// Seeds of `--long`.
const LONG: u64 = 400;

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
    let seeds = |from: u64, to: u64| (from..=to).map(Setup::of_seed).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--short"] => return Ok(seeds(1, SHORT)),
        ["--long"] => return Ok(seeds(1, LONG)),
        ["--seeds", from, to] => return Ok(seeds(from.parse()?, to.parse()?)),
        _ => {}
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

/// What a thread has to say of a simulation; `None`: a core panicked.
type Said = Option<Result<Outcome, Box<Violation>>>;

/// How many violations there were.
fn run_all(setups: &[Setup]) -> Result<u32, Box<dyn Error>> {
    let mut out = stdout().lock();
    let (mut events, mut violations, began) = (0, 0, Instant::now());
    let threads = thread::available_parallelism().map_or(1, NonZero::get).min(setups.len());
    let (next, (sender, receiver)) = (AtomicUsize::new(0), mpsc::channel());
    thread::scope(|scope| -> Result<(), Box<dyn Error>> {
        for _ in 0..threads {
            let (next, sender) = (&next, sender.clone());
            scope.spawn(move || {
                while let Some((at, setup)) = take(next, setups) {
                    let start = Instant::now();
                    // An assertion of a core is a broken rule too, and is to be repeatable.
                    let said = catch_unwind(AssertUnwindSafe(|| run(*setup))).ok();
                    let _ = sender.send((at, said, start.elapsed().as_secs_f64()));
                }
            });
        }
        drop(sender);
        // Shown in the order of the seeds.
        let (mut early, mut shown) = (BTreeMap::new(), 0);
        for (at, said, secs) in receiver {
            early.insert(at, (said, secs));
            while let Some((said, secs)) = early.remove(&shown) {
                match &said {
                    Some(Ok(outcome)) => events += outcome.events,
                    Some(Err(_)) | None => violations += 1,
                }
                show_one(&mut out, &setups[shown], &said, secs)?;
                shown += 1;
            }
        }
        Ok(())
    })?;
    let secs = began.elapsed().as_secs_f64();
    let rate = events as f64 / secs.max(0.001);
    let seeds = setups.len();
    writeln!(out, "{seeds} seeds, {events} events in {secs:.1} s on {threads} threads, {rate:.0} events/s")?;
    writeln!(out, "{violations} violations")?;
    Ok(violations)
}

fn take<'s>(next: &AtomicUsize, setups: &'s [Setup]) -> Option<(usize, &'s Setup)> {
    let at = next.fetch_add(1, Ordering::Relaxed);
    Some((at, setups.get(at)?))
}

fn show_one(out: &mut impl Write, setup: &Setup, said: &Said, secs: f64) -> Result<(), Box<dyn Error>> {
    match said {
        Some(Ok(outcome)) => show(out, setup, outcome, secs),
        Some(Err(violation)) => broken(out, setup, violation),
        None => {
            writeln!(out, "seed {}: a core panicked (see above)\nrepeat: {}", setup.seed, setup.command())?;
            Ok(())
        }
    }
}

fn show(out: &mut impl Write, setup: &Setup, outcome: &Outcome, secs: f64) -> Result<(), Box<dyn Error>> {
    let rate = outcome.events as f64 / secs.max(0.001);
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
         {} launches failed, {} drains, {} downs, {} commands, {} controller restarts, {} owners of jobs and {} of nodes failed, {} runs ended by leases and {} by time limits, {} messages twice; \
         {} heterogeneous jobs, {} starts and {} requeues of them",
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
        n("owner of a job failed"),
        n("owner of a node failed"),
        n("run ended by a lease"),
        n("run ended by its time limit"),
        n("message delivered twice"),
        n("heterogeneous job"),
        n("heterogeneous job started"),
        n("heterogeneous job queued again")
    )?;
    Ok(())
}

fn broken(out: &mut impl Write, setup: &Setup, violation: &Violation) -> Result<(), Box<dyn Error>> {
    writeln!(out, "seed {}: {violation}\nrepeat: {}", setup.seed, setup.command())?;
    Ok(())
}
