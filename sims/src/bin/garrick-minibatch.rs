//! Benchmarks of minibatch, each figure beside this machine's raw spawn rate in the same minutes.
//!
//! ```text
//! cargo run --release -p garrick-sims --bin garrick-minibatch -- SCENARIO... [--steps N] [--quick] [--json FILE]
//! ```
//!
//! Starts a cluster of its own in a temporary folder for each scenario and takes it away again. The exit code is 0 when all
//! ran and every step was accounted for, 1 when something failed. A goal that is not met is printed, and is no failure: a
//! busy machine can miss one.

use garrick_sims::minibatch::{
    SCENARIOS, Scenario,
    cluster::{Answer, INSIDE, Order, answer_file},
    figures::Figures,
    inside::Fallible,
    processes,
    steps::{self, STEP},
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use std::{
    io::stdout,
    process::ExitCode,
    sync::atomic::{AtomicBool, Ordering},
};
use tokio::signal::unix::{SignalKind, signal};

/// A signal came: what is under way is given up, and nothing new is begun.
static ENDING: AtomicBool = AtomicBool::new(false);

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let done = match args.first().map(String::as_str) {
        Some(INSIDE) => as_job(&args[1..]).map(|()| 0),
        Some(STEP) => steps::main(&args[1..]),
        _ => outside(&args),
    };
    match done {
        Ok(code) => ExitCode::from(code),
        Err(e) => {
            eprintln!("garrick-minibatch: {e}");
            ExitCode::FAILURE
        }
    }
}

fn usage() -> String {
    let mut text = String::from("usage: garrick-minibatch all | SCENARIO... [--steps N] [--quick] [--json FILE]\n");
    for s in &SCENARIOS {
        text += &format!("  {:<8} {}\n", s.name, s.about);
    }
    text
}

#[derive(Default)]
struct Choice {
    scenarios: Vec<&'static Scenario>,
    order: Order,
    json: Option<String>,
}

fn choice(args: &[String]) -> Fallible<Choice> {
    let mut choice = Choice::default();
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value\n{}", usage()));
        match arg.as_str() {
            "--steps" => choice.order.steps = Some(value()?.parse()?),
            "--json" => choice.json = Some(value()?.clone()),
            "--quick" => choice.order.quick = true,
            "all" => choice.scenarios.extend(&SCENARIOS),
            name => choice.scenarios.push(Scenario::named(name).ok_or_else(usage)?),
        }
    }
    if choice.scenarios.is_empty() { Err(usage().into()) } else { Ok(choice) }
}

fn outside(args: &[String]) -> Fallible<u8> {
    if args.iter().any(|arg| arg == "-h" || arg == "--help") {
        print!("{}", usage());
        return Ok(0);
    }
    let choice = choice(args)?;
    end_children_first()?;
    let (mut all, mut failed): (Vec<Figures>, Vec<&str>) = (Vec::new(), Vec::new());
    for scenario in &choice.scenarios {
        if ENDING.load(Ordering::Relaxed) {
            break;
        }
        match scenario.run(&choice.order) {
            Ok(figures) => {
                figures.render(&mut stdout().lock())?;
                all.push(figures);
            }
            Err(e) => {
                eprintln!("garrick-minibatch: {} failed: {e}", scenario.name);
                failed.push(scenario.name);
            }
        }
        if let Some(path) = &choice.json {
            std::fs::write(path, serde_json::to_vec_pretty(&all)?)?;
        }
    }
    let missed: usize = all.iter().map(Figures::missed).sum();
    println!("{} scenarios ran, {} failed {failed:?}; {missed} goals not met", all.len() + failed.len(), failed.len());
    Ok(u8::from(!failed.is_empty()))
}

/// A signal that ends this program ends its children instead, so that the scenario under way fails and its cluster is taken
/// away as after any failure. (Blocking signals and waiting for them would not do: children inherit what is blocked.)
fn end_children_first() -> Fallible<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let _entered = runtime.enter();
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    std::thread::spawn(move || {
        runtime.block_on(async {
            loop {
                tokio::select! { _ = interrupt.recv() => {} _ = terminate.recv() => {} }
                ENDING.store(true, Ordering::Relaxed);
                eprintln!("garrick-minibatch: ending; the cluster is being taken down");
                let me = std::process::id();
                for child in processes::running().iter().filter(|p| p.parent == me) {
                    // What waits for the job, or for a cluster to come up. Daemons are ended in their order.
                    let waits = child.args.iter().any(|a| a == "--wait" || a == "up");
                    if let (true, Ok(pid)) = (waits, i32::try_from(child.pid)) {
                        // Gone meanwhile is as good.
                        let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
                    }
                }
            }
        });
    });
    Ok(())
}

/// The scenario itself, as the job of the cluster that was started for it.
fn as_job(args: &[String]) -> Fallible<()> {
    let [order] = args else { return Err(format!("usage: {INSIDE} ORDER").into()) };
    let order: Order = serde_json::from_str(order)?;
    let path = answer_file(&order.home);
    let answer: Answer = match Scenario::named(&order.scenario) {
        Some(scenario) => scenario.run_inside(order).map_err(|e| e.to_string()),
        None => Err(format!("no scenario {}", order.scenario)),
    };
    std::fs::write(path, serde_json::to_vec(&answer)?)?;
    answer.map(|_| ()).map_err(Into::into)
}
