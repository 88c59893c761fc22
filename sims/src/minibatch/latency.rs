//! Four nodes on hosts of their own with a millisecond between any two of them: how many steps a second, and how much of that
//! is the millisecond's doing.

use super::{
    cluster::{self, ClusterError, Order},
    figures::{Finding, Findings},
    hosts::Hosts,
    inside::{Account, Fallible, Inside},
};
use std::time::Duration;

/// Nodes, besides the controller's host.
const NODES: usize = 4;
/// CPUs of each.
const CPUS: usize = 2;
/// Way from any host to any other.
const DELAY: Duration = Duration::from_millis(1);
const USUAL: usize = 20_000;
/// Steps over all nodes, for so many single ones.
const WIDE_ONE_IN: usize = 40;

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
    Ok(found)
}
