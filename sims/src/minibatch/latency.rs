//! Four nodes on hosts of their own with a millisecond between any two of them: how many steps a second, and the effect of the
//! millisecond.

use super::{
    cluster::{self, ClusterError, Order},
    figures::{Finding, Findings},
    hosts::Hosts,
    inside::{Account, Fallible, Inside},
};
use std::{
    process::{Command, Stdio},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// Nodes, besides the controller's host.
const NODES: usize = 4;
/// CPUs of each.
const CPUS: usize = 2;
/// Way from any host to any other.
const DELAY: Duration = Duration::from_millis(1);
const USUAL: usize = 20_000;
/// Steps over all nodes, for so many single ones.
const WIDE_ONE_IN: usize = 40;
/// Steps over all nodes whose starts are timed.
const WIDE_STARTS: usize = 41;

/// The scenario: once without delay, once with.
pub fn latency(order: &Order) -> Result<Findings, ClusterError> {
    let mut found = Findings::default();
    for (delay, words) in [(Duration::ZERO, "no delay"), (DELAY, "1 ms each way")] {
        let hosts = Hosts::up(NODES, CPUS, delay)?;
        let inside = cluster::as_job(&hosts, NODES, order.clone())?;
        if let Some((frames, bytes, dropped)) = hosts.traffic().map(super::delay_switch::Traffic::counts) {
            found.note(format!("{words}: {frames} frames between hosts, {} KiB, {dropped} dropped", bytes / 1024));
        }
        hosts.down()?;
        found.0.extend(inside.0.into_iter().map(|finding| named(finding, words)));
    }
    found.note("the delay is made by a switch in user space (this program), since not every kernel has netem");
    Ok(found)
}

fn named(mut finding: Finding, words: &str) -> Finding {
    match &mut finding {
        Finding::Pace(p) => p.what = format!("{}, {words}", p.what),
        Finding::Amount(a) => a.what = format!("{}, {words}", a.what),
        Finding::Table(t) => t.title = format!("{}, {words}", t.title),
        Finding::Note(text) => *text = format!("{words}: {text}"),
    }
    finding
}

/// What runs as the job.
pub fn inside(inside: &Inside) -> Fallible<Findings> {
    let mut found = Findings::default();
    let count = inside.steps(USUAL);
    let account = Account::open()?;
    let tasks = format!("--array=0-{}", count - 1);
    inside.run("srun", &["--async", "--parsable", &tasks, "-n1", "-o", "/dev/null", "/bin/true"])?;
    let took = account.close(count as u64, 0)?;
    found.pace("steps of one task on four nodes", count as u64, took.as_secs_f64(), None);

    let wide = (count / WIDE_ONE_IN).max(4);
    let account = Account::open()?;
    let (nodes, ranks) = (format!("-N{NODES}"), format!("-n{NODES}"));
    let tasks = format!("--array=0-{}", wide - 1);
    inside.run("srun", &["--async", "--parsable", &tasks, &nodes, &ranks, "-o", "/dev/null", "/bin/true"])?;
    let took = account.close(wide as u64, 0)?;
    found.pace("steps over all four nodes", wide as u64, took.as_secs_f64(), None);

    let few = (count / 100).max(10);
    let account = Account::open()?;
    for _ in 0..few {
        inside.run_quietly("srun", &["--quiet", "-N1", "-n1", "--exact", "/bin/true"])?;
    }
    let took = account.close(few as u64, 0)?;
    found.serial_pace("srun after srun", few as u64, took.as_secs_f64(), None);
    wide_starts(inside, &mut found)?;
    Ok(found)
}

/// From the start of an `srun` over all nodes to its last task's, and the same for as many processes started here by hand.
fn wide_starts(inside: &Inside, found: &mut Findings) -> Fallible<()> {
    let (nodes, ranks) = (format!("-N{NODES}"), format!("-n{NODES}"));
    let stepped = median_start(|| {
        let mut srun = inside.command("srun");
        srun.args(["--quiet", &nodes, &ranks, "date", "+%s%N"]);
        stamps(vec![srun])
    })?;
    let by_hand = median_start(|| {
        let date = || {
            let mut date = Command::new("date");
            date.arg("+%s%N");
            date
        };
        stamps((0..NODES).map(|_| date()).collect())
    })?;
    let millis = |time: Duration| time.as_secs_f64() * 1e3;
    found.amount("from srun to the last of four tasks' start", millis(stepped), "ms", None);
    found.amount("four processes by hand, to the last one's start", millis(by_hand), "ms", None);
    found.amount("the one over the other", millis(stepped) / millis(by_hand), "", None);
    Ok(())
}

/// Median of the time to the last start.
fn median_start(started: impl Fn() -> Fallible<Duration>) -> Fallible<Duration> {
    let mut times = (0..WIDE_STARTS).map(|_| started()).collect::<Fallible<Vec<_>>>()?;
    times.sort_unstable();
    Ok(times[times.len() / 2])
}

/// Starts commands that print when their processes began, in nanoseconds of the clock; the time until the last of them did.
fn stamps(commands: Vec<Command>) -> Fallible<Duration> {
    let began = SystemTime::now().duration_since(UNIX_EPOCH)?;
    let started = |mut command: Command| command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let children = commands.into_iter().map(started).collect::<Result<Vec<_>, _>>()?;
    let mut last = 0;
    for child in children {
        let output = child.wait_with_output()?;
        for line in std::str::from_utf8(&output.stdout)?.lines() {
            last = last.max(line.trim().parse()?);
        }
    }
    Ok(Duration::from_nanos(last).saturating_sub(began))
}
