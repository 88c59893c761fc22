//! CPU time of this thread, summed by layer.

use nix::time::{ClockId, clock_gettime};
use std::{collections::BTreeMap, time::Duration};

/// Times code by the CPU clock of the thread that runs it, so that other work on the machine does not count.
#[derive(Debug)]
pub struct Meter<L> {
    spent: BTreeMap<L, Duration>,
    /// What measuring itself costs each time.
    overhead: Duration,
}

impl<L: Ord + Copy> Meter<L> {
    /// Finds out first what measuring costs.
    pub fn calibrated() -> Self {
        const TIMES: u32 = 10_000;
        let mut empty = Duration::ZERO;
        for _ in 0..TIMES {
            let began = thread_time();
            empty += thread_time().saturating_sub(began);
        }
        Self { spent: BTreeMap::new(), overhead: empty / TIMES }
    }

    /// Runs `work` and puts its time down to `layer`.
    pub fn time<T>(&mut self, layer: L, work: impl FnOnce() -> T) -> T {
        let began = thread_time();
        let result = work();
        let took = thread_time().saturating_sub(began).saturating_sub(self.overhead);
        *self.spent.entry(layer).or_default() += took;
        result
    }

    /// Microseconds of a layer for each of so many.
    pub fn micros_each(&self, layer: L, count: usize) -> f64 {
        self.spent.get(&layer).copied().unwrap_or_default().as_secs_f64() * 1e6 / count.max(1) as f64
    }
}

fn thread_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_put_down_to_its_layer() {
        let mut meter = Meter::calibrated();
        let sum = meter.time('a', || (0..3_000_000u64).fold(0, |a, b| std::hint::black_box(a ^ b)));
        meter.time('b', || std::hint::black_box(sum));
        assert!(meter.micros_each('a', 1) > meter.micros_each('b', 1));
        assert_eq!(meter.micros_each('c', 1), 0.0);
    }
}
