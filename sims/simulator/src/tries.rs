//! Runs worlds in parallel and prints them in order.

use crate::show;
use garrick_simulator::{Setup, Trial, attempt, ledger::Counts};
use std::{
    collections::BTreeMap,
    error::Error,
    io::Write,
    num::NonZero,
    sync::{
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::Instant,
};

/// All cores.
pub fn threads() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}

/// What came of many worlds.
#[derive(Default)]
pub struct Sum {
    pub worlds: u64,
    pub events: u64,
    pub violations: u32,
    pub counts: Counts,
}

impl Sum {
    pub fn add(&mut self, trial: &Trial) {
        self.worlds += 1;
        self.events += trial.events;
        self.violations += u32::from(trial.result.is_err());
        self.counts.merge(&trial.counts);
    }

    pub fn show(&self, out: &mut impl Write, secs: f64, threads: usize, counts: bool) -> Result<(), Box<dyn Error>> {
        if counts {
            show::counts(out, &self.counts)?;
        }
        let (worlds, events, rate) = (self.worlds, self.events, self.events as f64 / secs.max(0.001));
        writeln!(out, "{worlds} worlds, {events} events in {secs:.1} s on {threads} threads, {rate:.0} events/s")?;
        writeln!(out, "{} violations", self.violations)?;
        Ok(())
    }
}

/// How many broke a rule. One that is interrupted says which seeds were done.
pub fn try_all(out: &mut impl Write, setups: &[Setup], counts: bool, stop: &AtomicBool) -> Result<u32, Box<dyn Error>> {
    let (mut sum, mut done, began) = (Sum::default(), Vec::new(), Instant::now());
    let threads = threads().min(setups.len());
    let (next, (sender, receiver)) = (AtomicUsize::new(0), mpsc::channel());
    thread::scope(|scope| -> Result<(), Box<dyn Error>> {
        for _ in 0..threads {
            let (next, sender) = (&next, sender.clone());
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed)
                    && let Some((at, setup)) = take(next, setups)
                {
                    let start = Instant::now();
                    let tried = attempt(*setup, None, None);
                    let _ = sender.send((at, tried, start.elapsed().as_secs_f64()));
                }
            });
        }
        drop(sender);
        // In the order of the seeds.
        let (mut early, mut shown) = (BTreeMap::new(), 0);
        for (at, tried, secs) in receiver {
            done.push(setups[at].seed);
            sum.add(&tried);
            early.insert(at, (tried, secs));
            while let Some((tried, secs)) = early.remove(&shown) {
                show::trial(out, &tried, secs)?;
                shown += 1;
            }
        }
        for (tried, secs) in early.into_values() {
            show::trial(out, &tried, secs)?;
        }
        Ok(())
    })?;
    if done.len() < setups.len() {
        done.sort_unstable();
        writeln!(out, "interrupted; seeds that are done: {}", ranges(&done))?;
    }
    sum.show(out, began.elapsed().as_secs_f64(), threads, counts)?;
    Ok(sum.violations)
}

fn take<'s>(next: &AtomicUsize, setups: &'s [Setup]) -> Option<(usize, &'s Setup)> {
    let at = next.fetch_add(1, Ordering::Relaxed);
    Some((at, setups.get(at)?))
}

/// `1-3,5`, of numbers in order.
fn ranges(numbers: &[u64]) -> String {
    let runs = numbers.chunk_by(|one, next| one + 1 == *next);
    let text = runs.filter_map(|run| match (run.first()?, run.last()?) {
        (first, last) if first == last => Some(first.to_string()),
        (first, last) => Some(format!("{first}-{last}")),
    });
    text.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_told_as_ranges() {
        assert_eq!(ranges(&[]), "");
        assert_eq!(ranges(&[1, 2, 3, 5, 8, 9]), "1-3,5,8-9");
    }
}
