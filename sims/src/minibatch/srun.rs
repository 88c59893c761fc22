//! `srun /bin/true`: one after the other, and sixteen at a time; and how the time of one is spent.

use super::{
    figures::{Findings, Goal},
    inside::{Account, Fallible, Inside},
    spent::Spent,
};
use std::{
    process::{Command, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, Instant},
};

const USUAL: usize = 3_000;
const AT_A_TIME: usize = 16;
const SRUN: [&str; 4] = ["--quiet", "-n1", "--exact", "/bin/true"];

/// The scenario.
pub fn srun(inside: &Inside) -> Fallible<Findings> {
    let mut found = Findings::default();
    let count = inside.steps(USUAL);

    // Caches are warm before anything is measured.
    for _ in 0..20 {
        inside.run_quietly("srun", &SRUN)?;
    }
    let (account, before) = (Account::open()?, Spent::now(inside)?);
    let began = Instant::now();
    for _ in 0..count {
        inside.run_quietly("srun", &SRUN)?;
    }
    let took = began.elapsed();
    let spent = Spent::now(inside)?.since(&before);
    account.close(count as u64, 0)?;
    // A serial `srun` is two processes where the floor is one: half of it is the bound.
    let goal = 0.4;
    found.serial_pace("srun after srun", count as u64, took.as_secs_f64(), Some(Goal::RateOrOfSerial(300.0, goal)));

    let (next, account) = (AtomicUsize::new(0), Account::open()?);
    let began = Instant::now();
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..AT_A_TIME)
            .map(|_| {
                scope.spawn(|| {
                    while next.fetch_add(1, Ordering::Relaxed) < count {
                        inside.run_quietly("srun", &SRUN)?;
                    }
                    Ok(())
                })
            })
            .collect();
        all.into_iter().try_for_each(|t| t.join().map_err(|_| "an srun thread panicked")?)
    } as Fallible<()>)?;
    let wide = began.elapsed();
    account.close(count as u64, 0)?;
    found.pace(format!("{AT_A_TIME} sruns at a time"), count as u64, wide.as_secs_f64(), Some(Goal::OfBest(goal)));

    let bare = starts(count.min(500), || {
        let mut c = inside.command("srun");
        c.arg("--version");
        c
    })?;
    let raw = starts(count.min(500), || Command::new("/bin/true"))?;
    found.table(
        "where the time of one srun after another goes",
        &["what", "microseconds", "share"],
        rows(&spent, took, count, bare, raw),
    );
    Ok(found)
}

/// Seconds for one start of a program to its end, one at a time.
fn starts(count: usize, command: impl Fn() -> Command) -> Fallible<Duration> {
    let began = Instant::now();
    for _ in 0..count {
        let status = command().stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status()?;
        if !status.success() {
            return Err(format!("{:?}: {status}", command().get_program()).into());
        }
    }
    Ok(began.elapsed() / count.max(1) as u32)
}

fn rows(spent: &Spent, took: Duration, count: usize, bare: Duration, raw: Duration) -> Vec<Vec<String>> {
    let whole = took.as_secs_f64() * 1e6 / count as f64;
    let each = |d: Duration| d.as_secs_f64() * 1e6 / count as f64;
    let row = |what: &str, micros: f64| {
        vec![what.to_owned(), format!("{micros:.0}"), format!("{:.0} %", 100.0 * micros / whole)]
    };
    let parts = [
        ("CPU of the srun process (its start, options, door, waiting for its end)", each(spent.commands)),
        ("CPU of stepd (door, placing, telling, reports)", each(spent.stepd)),
        ("CPU of stepd's journal (writing, syncing)", each(spent.journal)),
        ("CPU of the launcher (spawning, reaping)", each(spent.launcher())),
        ("CPU of the task itself (/bin/true, from its first instruction on the launcher's side)", each(spent.tasks)),
        ("CPU of the node daemon and the controller (reports, heartbeats)", each(spent.nodes + spent.controllers)),
    ];
    let known: f64 = parts.iter().map(|p| p.1).sum();
    let mut rows: Vec<Vec<String>> = parts.iter().map(|(what, micros)| row(what, *micros)).collect();
    rows.push(row("nobody's CPU: waking up, switching, starting srun, the kernel on behalf of none", whole - known));
    rows.push(row("one srun from start to end", whole));
    rows.push(row("for comparison: srun --version from start to end", bare.as_secs_f64() * 1e6));
    rows.push(row("for comparison: /bin/true started by this program", raw.as_secs_f64() * 1e6));
    rows
}
