//! The CPU time of one step, layer by layer. The sums are those of the real processes over a list of steps. The cost of the
//! layers within `stepd` is measured by driving the same code in this process ([`super::layer_line`]); the rest of `stepd`'s sum
//! is its system calls, its mailboxes, and whatever else was not driven.

use super::{
    array,
    figures::Findings,
    inside::{Account, Fallible, Inside},
    layer_line::{Layer, Line},
    spent::Spent,
};
use crate::spawn_floor::{Way, spawn_rate};
use garrick_daemon::journal::{self, Log};
use garrick_events::steps::event::StepEvent;
use nix::sys::{
    resource::{Usage, UsageWho, getrusage},
    time::TimeValLike,
};
use std::{path::Path, time::Duration};

const USUAL: usize = 20_000;
/// Commands in a request of the made-up line, about what `srun --from-file` sends at a time.
const PER_REQUEST: usize = 1_000;

/// The scenario.
pub fn layers(inside: &Inside) -> Fallible<Findings> {
    let mut found = Findings::default();
    let count = inside.steps(USUAL);
    let path = inside.order.home.join("commands.txt");
    array::write_list(&path, count)?;
    let path = path.to_string_lossy().into_owned();

    let (account, before) = (Account::open()?, Spent::now(inside)?);
    inside.run("srun", &["--async", "--parsable", "-n1", "-o", "/dev/null", "--from-file", &path])?;
    let took = account.close(count as u64, 0)?;
    let spent = Spent::now(inside)?.since(&before);
    found.pace("steps of a list", count as u64, took.as_secs_f64(), None);

    let driven = drive(&inside.order.home, count)?;
    let raw = raw_spawn(count.min(2000))?;
    let cpus = std::thread::available_parallelism()?.get();
    found.table(
        format!(
            "CPU time of one step ({count} from a list; wall time is {:.0} us)",
            took.as_secs_f64() * 1e6 / count as f64
        ),
        &["layer", "us"],
        rows(&spent, &driven, count, raw, took, cpus),
    );
    Ok(found)
}

/// Microseconds a step, by layer.
#[derive(Debug)]
struct Driven {
    each: Vec<(Layer, f64)>,
    /// Of [`Layer::Place`], what there is also when nothing waits: recording ends.
    record: f64,
}

impl Driven {
    fn of(&self, layer: Layer) -> f64 {
        self.each.iter().find(|(l, _)| *l == layer).map_or(0.0, |(_, micros)| *micros)
    }
}

fn drive(folder: &Path, count: usize) -> Fallible<Driven> {
    use Layer::*;
    let line = |name: &str| -> Fallible<Line> {
        let path = folder.join(name);
        Ok(Line::new(Log::start(&path, journal::open::<StepEvent>(&path)?.file)?)?)
    };
    let mut many = line("many.journal")?;
    many.run(count, PER_REQUEST, false)?;
    let all = [Send, Accept, Journal, Place, Step, Shepherd, StepdFrames, LauncherFrames, Report];
    let each = all.map(|layer| (layer, many.meter.micros_each(layer, count))).to_vec();
    many.end()?;
    // One after the other: an end then finds nothing that could start.
    let few = (count / 20).max(10);
    let mut single = line("single.journal")?;
    single.run(few, 1, true)?;
    let record = single.meter.micros_each(Place, few);
    single.end()?;
    Ok(Driven { each, record })
}

/// CPU time of one raw spawn: of the parent and of the child.
fn raw_spawn(count: usize) -> Fallible<(f64, f64)> {
    let used = |who| -> Fallible<Duration> {
        let usage: Usage = getrusage(who)?;
        let micros = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
        Ok(Duration::from_micros(micros.unsigned_abs()))
    };
    let (parent, child) = (used(UsageWho::RUSAGE_SELF)?, used(UsageWho::RUSAGE_CHILDREN)?);
    spawn_rate(Way { threads: 1, in_flight: 1 }, count)?;
    let each = |after: Duration, before: Duration| (after - before).as_secs_f64() * 1e6 / count as f64;
    Ok((each(used(UsageWho::RUSAGE_SELF)?, parent), each(used(UsageWho::RUSAGE_CHILDREN)?, child)))
}

fn rows(
    spent: &Spent,
    driven: &Driven,
    count: usize,
    raw: (f64, f64),
    took: Duration,
    cpus: usize,
) -> Vec<Vec<String>> {
    use Layer::*;
    let each = |d: Duration| d.as_secs_f64() * 1e6 / count as f64;
    let mut rows = Vec::new();
    let mut row = |what: &str, micros: f64| rows.push(vec![what.to_owned(), format!("{micros:.1}")]);
    let inner = [
        ("  accept: read the request, number, answer", driven.of(Accept)),
        ("  journal: encode the records, write them", driven.of(Journal)),
        ("  record: take an end down, counters", driven.record.min(driven.of(Place))),
        ("  queue: pick, place, start the next", (driven.of(Place) - driven.record).max(0.0)),
        ("  step: state of the running step", driven.of(Step)),
        ("  shepherd: task orders, ends on the node", driven.of(Shepherd)),
        ("  frames to and from the launcher", driven.of(StepdFrames)),
        ("  report: rows to the agent", driven.of(Report)),
    ];
    let known: f64 = inner.iter().map(|i| i.1).sum();
    row("srun --from-file: reading, packing, sending", each(spent.commands));
    row("stepd, without its journal's thread", each(spent.stepd));
    for (what, micros) in inner {
        row(what, micros);
    }
    row("  remainder: system calls, mailboxes, timers", each(spent.stepd) - known);
    row("stepd, journal's thread: sync", each(spent.journal));
    row("launcher, user mode: orders, environment, answers", each(spent.launcher_user));
    row("  of that frames from and to stepd", driven.of(LauncherFrames));
    row("launcher, kernel: spawn, reap, its socket", each(spent.launcher_system));
    row("node daemon: reports, heartbeats", each(spent.nodes));
    row("controller: reports, heartbeats", each(spent.controllers));
    row("the task: exec of /bin/true to its end", each(spent.tasks));
    let total =
        [spent.commands, spent.stepd, spent.journal, spent.launcher(), spent.nodes, spent.controllers, spent.tasks];
    let total: f64 = total.map(each).iter().sum();
    row("all of these", total);
    row("raw spawn for comparison: parent and child", raw.0 + raw.1);
    row("  of that the child", raw.1);
    row("what Garrick adds to a raw spawn", total - raw.0 - raw.1);
    let idle = each(took) * cpus as f64 - total;
    row("CPU time there was and these did not use", idle);
    rows
}
