//! How long a set of steps must take on so many CPUs: the lower bound, and greedy list scheduling.

use std::{cmp::Reverse, collections::BinaryHeap};

/// A step: the lengths of its runs one after the other, in seconds. More than one where it is tried again.
pub type Runs = Vec<f64>;

/// No schedule is shorter: all places busy all the time, and no step's runs overlap.
pub fn lower_bound(steps: &[Runs], places: usize) -> f64 {
    let sum: f64 = steps.iter().flatten().sum();
    let longest = steps.iter().map(|runs| runs.iter().sum()).fold(0.0, f64::max);
    longest.max(sum / places.max(1) as f64)
}

/// Greedy: whenever a place is free, the next step in order takes it; a run that is tried again goes to the end of the queue
/// when the run before it ends. Returns when the last run ends.
pub fn greedy(steps: &[Runs], places: usize) -> f64 {
    let mut queue: std::collections::VecDeque<(usize, usize)> = (0..steps.len()).map(|s| (s, 0)).collect();
    // Ends of what runs, the earliest first, with what comes after it.
    let mut busy: BinaryHeap<Reverse<(Moment, usize, usize)>> = BinaryHeap::new();
    let (mut now, mut last) = (0.0, 0.0_f64);
    loop {
        while busy.len() < places.max(1)
            && let Some((step, run)) = queue.pop_front()
        {
            let Some(length) = steps.get(step).and_then(|runs| runs.get(run)) else { continue };
            busy.push(Reverse((Moment(now + length), step, run)));
        }
        let Some(Reverse((Moment(end), step, run))) = busy.pop() else { return last };
        (now, last) = (end, last.max(end));
        if steps.get(step).is_some_and(|runs| run + 1 < runs.len()) {
            queue.push_back((step, run + 1));
        }
    }
}

/// A step that waits for others, by their places.
#[derive(Clone, Debug, PartialEq)]
pub struct Chain {
    /// Its runs.
    pub runs: Runs,
    /// What it waits for. They stand anywhere; there is no circle.
    pub waits: Vec<usize>,
}

/// By step: the steps that wait for it.
fn behind(steps: &[Chain]) -> Vec<Vec<usize>> {
    let mut behind = vec![Vec::new(); steps.len()];
    for (at, step) in steps.iter().enumerate() {
        step.waits.iter().for_each(|on| behind[*on].push(at));
    }
    behind
}

/// No schedule is shorter: all places busy all the time, and no step before those that it waits for.
pub fn bound_of_chains(steps: &[Chain], places: usize) -> f64 {
    let sum: f64 = steps.iter().flat_map(|step| &step.runs).sum();
    // With a place for each step the longest chain is all that counts.
    greedy_chains(steps, steps.len()).max(sum / places.max(1) as f64)
}

/// Greedy: whenever a place is free, the next step that waits for nothing more takes it, those that became free first before
/// others; a run that is tried again goes to the end of the queue. Returns when the last run ends.
pub fn greedy_chains(steps: &[Chain], places: usize) -> f64 {
    let behind = behind(steps);
    let mut open: Vec<usize> = steps.iter().map(|step| step.waits.len()).collect();
    let mut queue: std::collections::VecDeque<(usize, usize)> =
        (0..steps.len()).filter(|at| open[*at] == 0).map(|at| (at, 0)).collect();
    let mut busy: BinaryHeap<Reverse<(Moment, usize, usize)>> = BinaryHeap::new();
    let (mut now, mut last) = (0.0, 0.0_f64);
    loop {
        while busy.len() < places.max(1)
            && let Some((step, run)) = queue.pop_front()
        {
            let Some(length) = steps.get(step).and_then(|step| step.runs.get(run)) else { continue };
            busy.push(Reverse((Moment(now + length), step, run)));
        }
        let Some(Reverse((Moment(end), step, run))) = busy.pop() else { return last };
        (now, last) = (end, last.max(end));
        if run + 1 < steps[step].runs.len() {
            queue.push_back((step, run + 1));
            continue;
        }
        for waiting in &behind[step] {
            open[*waiting] -= 1;
            if open[*waiting] == 0 {
                queue.push_back((*waiting, 0));
            }
        }
    }
}

/// A time that can be ordered.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Moment(f64);

impl Eq for Moment {}

impl PartialOrd for Moment {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Moment {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

/// Numbers from a seed, the same on every machine (SplitMix64, Steele, Lea and Flood 2014).
#[derive(Clone, Debug)]
pub struct Seeded(u64);

impl Seeded {
    /// From a seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next one.
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Between 0 and 1, never 0.
    pub fn unit(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// From the normal distribution (Box and Muller 1958).
    pub fn normal(&mut self) -> f64 {
        (-2.0 * self.unit().ln()).sqrt() * (std::f64::consts::TAU * self.unit()).cos()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_is_the_work_or_the_longest_chain() {
        assert_eq!(lower_bound(&[vec![1.0], vec![1.0], vec![2.0]], 2), 2.0);
        assert_eq!(lower_bound(&[vec![2.0, 3.0], vec![1.0]], 4), 5.0);
        assert_eq!(lower_bound(&[], 4), 0.0);
    }

    #[test]
    fn greedy_takes_the_next_when_a_place_is_free() {
        assert_eq!(greedy(&[vec![1.0], vec![1.0], vec![2.0]], 2), 3.0);
        assert_eq!(greedy(&[vec![2.0], vec![1.0], vec![1.0]], 2), 2.0);
        // The second run waits behind the last of the queue.
        assert_eq!(greedy(&[vec![1.0, 1.0], vec![3.0]], 1), 5.0);
        assert_eq!(greedy(&[vec![1.0, 1.0], vec![3.0]], 2), 3.0);
        assert_eq!(greedy(&[], 3), 0.0);
    }

    #[test]
    fn chains_are_as_long_as_their_steps_and_places_allow() {
        let chain = |runs: &[f64], waits: &[usize]| Chain { runs: runs.to_vec(), waits: waits.to_vec() };
        // Two in front of one, which is tried again.
        let steps = [chain(&[1.0, 1.0], &[1, 2]), chain(&[3.0], &[]), chain(&[2.0], &[])];
        assert_eq!((bound_of_chains(&steps, 2), greedy_chains(&steps, 2)), (5.0, 5.0));
        assert_eq!((bound_of_chains(&steps, 1), greedy_chains(&steps, 1)), (7.0, 7.0));
        let wide: Vec<Chain> = (0..4).map(|_| chain(&[1.0], &[])).collect();
        assert_eq!((bound_of_chains(&wide, 3), greedy_chains(&wide, 3)), (4.0 / 3.0, 2.0));
    }

    #[test]
    fn a_seed_gives_the_same_numbers_each_time() {
        let (mut a, mut b) = (Seeded::new(7), Seeded::new(7));
        let mean: f64 = (0..10_000).map(|_| a.normal()).sum::<f64>() / 10_000.0;
        assert!(mean.abs() < 0.05, "{mean}");
        assert_eq!((0..10_000).map(|_| b.normal()).sum::<f64>() / 10_000.0, mean);
    }
}
