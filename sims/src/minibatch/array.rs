//! 100,000 single-task steps of `/bin/true`: as one step array, and as a list from a file.

use super::{
    controller_messages::{Tally, Watch},
    figures::{Findings, Goal, number},
    inside::{Account, Fallible, Inside},
    processes::{self, Memory},
};
use std::{
    fs::File,
    io::{BufWriter, Write},
    path::Path,
    sync::mpsc::{RecvTimeoutError, Sender, channel},
    thread::JoinHandle,
    time::{Duration, Instant},
};

const USUAL: usize = 100_000;
/// Part of the raw spawn rate that is wanted.
const GOAL: Goal = Goal::OfBest(0.75);

/// As one array.
pub fn array(inside: &Inside) -> Fallible<Findings> {
    let count = inside.steps(USUAL);
    let tasks = format!("--array=0-{}", count - 1);
    measure(inside, count, "one step array", &["--async", "--parsable", &tasks, "-n1", "-o", "/dev/null", "/bin/true"])
}

/// From a file.
pub fn list(inside: &Inside) -> Fallible<Findings> {
    let count = inside.steps(USUAL);
    let path = inside.order.home.join("commands.txt");
    write_list(&path, count)?;
    let path = path.to_string_lossy().into_owned();
    measure(inside, count, "a list", &["--async", "--parsable", "-n1", "-o", "/dev/null", "--from-file", &path])
}

/// A list whose lines are all different, as real ones are. Two arguments: with a single one `true` of GNU coreutils loads a
/// locale first, in case it is `--help`, and takes half as long again as the one that the raw rate is measured with.
pub fn write_list(path: &Path, count: usize) -> Fallible<()> {
    let mut file = BufWriter::new(File::create(path)?);
    for line in 0..count {
        writeln!(file, "/bin/true line {line}")?;
    }
    file.flush()?;
    Ok(())
}

fn measure(inside: &Inside, count: usize, what: &str, srun: &[&str]) -> Fallible<Findings> {
    let mut found = Findings::default();
    let mut watch = Watch::begin(inside)?;
    // What the controller does of itself, for as long as one can wait.
    std::thread::sleep(Duration::from_secs(if inside.order.quick { 1 } else { 10 }));
    let (idle, idle_for) = watch.tally();
    watch.settle();

    let (stepd_before, launcher_before) = (inside.stepd_memory()?, inside.launcher_memory()?);
    let account = Account::open()?;
    let began = account.began();
    let sampler = Sampler::begin();
    inside.run("srun", srun)?;
    let (accepted, stepd_accepted) = (began.elapsed(), inside.stepd_memory()?);
    let took = account.close(count as u64, 0)?;
    let rates = sampler.end()?;
    let (stepd, launcher) = (inside.stepd_memory()?, inside.launcher_memory()?);
    let (tally, watched) = watch.tally();

    found.pace(format!("{what}: steps of /bin/true"), count as u64, took.as_secs_f64(), Some(GOAL));
    found.pace("accepted", count as u64, accepted.as_secs_f64(), None);
    if let Some(words) = spread(&rates) {
        found.note(words);
    }
    memory(&mut found, count, "stepd", stepd_before, stepd_accepted, stepd);
    found.amount("launcher, peak memory", mib(launcher.peak), "MiB", None);
    found.amount(
        "launcher, growth over the run",
        (launcher.resident as f64 - launcher_before.resident as f64) / 1024.0,
        "KiB",
        None,
    );
    messages(&mut found, count, &tally, watched, &idle, idle_for);
    Ok(found)
}

/// Memory of a step manager that was sent so many steps.
pub fn memory(found: &mut Findings, count: usize, who: &str, before: Memory, accepted: Memory, after: Memory) {
    let growth = accepted.resident.saturating_sub(before.resident);
    found.amount(format!("{who}, bytes per queued step"), growth as f64 / count as f64, "B", None);
    found.amount(format!("{who}, memory before"), mib(before.resident), "MiB", None);
    found.amount(format!("{who}, memory when all were accepted"), mib(accepted.resident), "MiB", None);
    found.amount(format!("{who}, peak memory"), mib(after.peak), "MiB", None);
}

/// What the controller handled while the steps ran.
fn messages(found: &mut Findings, count: usize, tally: &Tally, took: Duration, idle: &Tally, idle_for: Duration) {
    let per_second = |t: &Tally, d: Duration| t.not_reports() as f64 / d.as_secs_f64().max(1e-9);
    let (busy, quiet) = (per_second(tally, took), per_second(idle, idle_for));
    // What comes with the steps beyond what an idle cluster has anyway. Half a message a second is within what a heartbeat
    // more or less makes.
    let beyond = if busy > quiet + 0.5 { (busy - quiet) * took.as_secs_f64() / count as f64 } else { 0.0 };
    found.amount("controller: messages per step, launch path", beyond, "", Some(Goal::AtMost(0.0)));
    found.amount("controller: messages of batched reports", tally.of_reports as f64, "", None);
    found.amount("controller: steps per message of a report", count as f64 / tally.of_reports.max(1) as f64, "", None);
    let names: Vec<String> = tally.others.iter().map(|(name, times)| format!("{name} {times}")).collect();
    found.note(format!(
        "controller, all other messages in {:.1} s: {} ({}/s; idle: {}/s): {}",
        took.as_secs_f64(),
        tally.not_reports(),
        number(busy),
        number(quiet),
        if names.is_empty() { "none".to_owned() } else { names.join(", ") }
    ));
}

/// Bytes as MiB.
pub fn mib(bytes: u64) -> f64 {
    bytes as f64 / (1024.0 * 1024.0)
}

/// Counts the processes that the kernel starts, second by second: whether a rate holds on, seen without asking Garrick.
struct Sampler {
    stop: Sender<()>,
    thread: JoinHandle<Fallible<Vec<f64>>>,
}

impl Sampler {
    fn begin() -> Self {
        let (stop, stopped) = channel::<()>();
        let thread = std::thread::spawn(move || {
            let (mut rates, mut last, mut at) = (Vec::new(), processes::forks()?, Instant::now());
            while stopped.recv_timeout(Duration::from_secs(1)) == Err(RecvTimeoutError::Timeout) {
                let (now, count) = (Instant::now(), processes::forks()?);
                rates.push((count - last) as f64 / now.duration_since(at).as_secs_f64());
                (last, at) = (count, now);
            }
            Ok(rates)
        });
        Self { stop, thread }
    }

    fn end(self) -> Fallible<Vec<f64>> {
        drop(self.stop);
        self.thread.join().map_err(|_| "the sampling thread panicked")?
    }
}

/// First, middle and last third, and the slowest second. Nothing where there was too little time.
fn spread(rates: &[f64]) -> Option<String> {
    if rates.len() < 6 {
        return None;
    }
    let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len().max(1) as f64;
    let third = rates.len() / 3;
    let slowest = rates.iter().copied().fold(f64::INFINITY, f64::min);
    Some(format!(
        "processes started a second, by the kernel's count: {:.0} in the first third, {:.0} in the second, {:.0} in the last; \
         slowest second {slowest:.0}",
        mean(&rates[..third]),
        mean(&rates[third..2 * third]),
        mean(&rates[2 * third..])
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spread_needs_some_seconds() {
        assert_eq!(spread(&[1.0; 5]), None);
        let text = spread(&[10.0, 10.0, 20.0, 20.0, 30.0, 5.0]).unwrap_or_default();
        assert!(text.contains("10 in the first third, 20 in the second, 18 in the last; slowest second 5"), "{text}");
    }

    #[test]
    fn idle_traffic_is_not_put_down_to_steps() {
        let goal_value = |busy: u64| {
            let mut found = Findings::default();
            let tally = Tally { handled: busy, ..Tally::default() };
            let idle = Tally { handled: 10, ..Tally::default() };
            messages(&mut found, 1000, &tally, Duration::from_secs(10), &idle, Duration::from_secs(10));
            match found.0.first() {
                Some(super::super::figures::Finding::Amount(a)) => a.value,
                _ => f64::NAN,
            }
        };
        assert_eq!(goal_value(12), 0.0);
        assert_eq!(goal_value(1010), 1.0);
    }
}
