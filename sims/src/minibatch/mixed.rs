//! A mixed queue on four nodes: many steps of one CPU, some of a whole node, a few of all four. How much of the allocation do
//! steps hold while steps are queued, and how long does a large step wait when it is first in the queue?

use super::{
    cluster::own_program,
    figures::{Findings, Goal},
    inside::{Account, Fallible, Inside},
    packing::Seeded,
    steps::{self, Ran, STEP},
};
use std::fmt::Write as _;

/// Nodes of the cluster.
pub const NODES: usize = 4;
/// CPUs of each.
pub const CPUS: usize = 4;
const USUAL: usize = 1_000;
const SEED: u64 = 4_711;
/// One in so many takes a whole node, and one in so many all of them.
const NODE_ONE_IN: usize = 20;
const ALL_ONE_IN: usize = 250;

/// What a step asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Size {
    Cpu,
    Node,
    All,
}

impl Size {
    const fn of(index: usize) -> Self {
        if index % ALL_ONE_IN == ALL_ONE_IN / 2 {
            Self::All
        } else if index % NODE_ONE_IN == NODE_ONE_IN / 2 {
            Self::Node
        } else {
            Self::Cpu
        }
    }

    const fn cpus(self) -> usize {
        match self {
            Self::Cpu => 1,
            Self::Node => CPUS,
            Self::All => CPUS * NODES,
        }
    }

    const fn tasks(self) -> usize {
        if matches!(self, Self::All) { NODES } else { 1 }
    }
}

/// Milliseconds.
fn lengths(count: usize) -> Vec<u64> {
    let mut seeded = Seeded::new(SEED);
    (0..count).map(|_| 200 + seeded.next() % 600).collect()
}

/// The scenario.
pub fn mixed(inside: &Inside) -> Fallible<Findings> {
    let mut found = Findings::default();
    let count = inside.steps(USUAL);
    let lengths = lengths(count);
    let (me, log) = (own_program()?, inside.order.home.join("mixed.log"));
    let cpus = format!("-c{CPUS}");
    let all_nodes = [format!("-N{NODES}"), format!("-n{NODES}"), cpus.clone()];
    let mut list = String::new();
    for (index, ms) in lengths.iter().enumerate() {
        let shape = match Size::of(index) {
            Size::Cpu => "-n1".to_owned(),
            Size::Node => format!("-N1 -n1 {cpus}"),
            Size::All => all_nodes.join(" "),
        };
        writeln!(list, "{shape} -- {} {STEP} {} {index} {ms}", me.display(), log.display())?;
    }
    let path = inside.order.home.join("mixed.txt");
    std::fs::write(&path, list)?;
    let account = Account::open()?;
    let path = path.to_string_lossy().into_owned();
    inside.run("srun", &["--async", "--parsable", "-o", "/dev/null", "--from-file", &path])?;
    let took = account.close(count as u64, 0)?;

    let ran = steps::read(&log)?;
    steps::check(&ran, count, |i| (vec![0], Size::of(i).tasks()))?;
    let steps = steps_of(&ran, count);
    found.pace("steps of 1, 4 and 16 CPUs on four nodes", count as u64, took.as_secs_f64(), None);
    let held = utilisation(&steps);
    found.amount("of the allocation held while work is queued", held, "", Some(Goal::AtLeast(0.95)));
    let mean = lengths.iter().sum::<u64>() as f64 / 1000.0 / count.max(1) as f64;
    for (size, what) in [(Size::Node, "whole-node"), (Size::All, "four-node")] {
        let waits: Vec<f64> =
            turn_waits(&steps).into_iter().filter(|(i, _)| Size::of(*i) == size).map(|w| w.1).collect();
        if waits.is_empty() {
            continue;
        }
        let longest = waits.iter().copied().fold(0.0, f64::max) / mean;
        let average = waits.iter().sum::<f64>() / waits.len() as f64 / mean;
        found.amount(
            format!("longest wait of a {what} step at its turn"),
            longest,
            "mean step lengths",
            // A step that waits for others to end waits for the longest of them; several times that would be starving.
            Some(Goal::AtMost(10.0)),
        );
        found.amount(format!("mean wait of a {what} step at its turn"), average, "mean step lengths", None);
    }
    found.note(format!(
        "a mean step is {mean:.2} s long; one in {NODE_ONE_IN} takes a whole node, one in {ALL_ONE_IN} all four"
    ));
    Ok(found)
}

/// When each step began and ended, its tasks taken together; by index.
fn steps_of(ran: &[Ran], count: usize) -> Vec<(f64, f64)> {
    let mut steps = vec![(f64::INFINITY, 0.0_f64); count];
    for r in ran {
        if let Some(step) = steps.get_mut(r.index) {
            *step = (step.0.min(r.began), step.1.max(r.ended));
        }
    }
    steps
}

/// Part of the allocation's CPU time that steps held from the first begin to the last: while something still waited.
fn utilisation(steps: &[(f64, f64)]) -> f64 {
    let first = steps.iter().map(|s| s.0).fold(f64::INFINITY, f64::min);
    let last = steps.iter().map(|s| s.0).fold(0.0, f64::max);
    let held: f64 =
        steps.iter().enumerate().map(|(i, s)| (s.1.min(last) - s.0).max(0.0) * Size::of(i).cpus() as f64).sum();
    held / ((last - first).max(1e-9) * (NODES * CPUS) as f64)
}

/// For each step, how long it waited after the last step sent before it had begun: its turn.
fn turn_waits(steps: &[(f64, f64)]) -> Vec<(usize, f64)> {
    let mut turn = f64::NEG_INFINITY;
    let mut waits = Vec::with_capacity(steps.len());
    for (index, step) in steps.iter().enumerate() {
        if turn.is_finite() {
            waits.push((index, (step.0 - turn).max(0.0)));
        }
        turn = turn.max(step.0);
    }
    waits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_counts_by_cpus_until_the_queue_is_empty() {
        // Step 10 takes a node of four CPUs, the others one each.
        let mut steps = vec![(0.0, 10.0); 10];
        steps.push((10.0, 20.0));
        let all = (10 * 10) as f64 / (16.0 * 10.0);
        assert!((utilisation(&steps) - all).abs() < 1e-9);
    }

    #[test]
    fn a_turn_comes_when_all_sent_before_have_begun() {
        let waits = turn_waits(&[(0.0, 1.0), (5.0, 6.0), (1.0, 2.0), (7.0, 8.0)]);
        assert_eq!(waits, [(1, 5.0), (2, 0.0), (3, 2.0)]);
    }

    #[test]
    fn sizes_are_spread_over_the_queue() {
        let count = |size| (0..USUAL).filter(|i| Size::of(*i) == size).count();
        assert_eq!((count(Size::Node) + count(Size::All), count(Size::All)), (54, 4));
    }
}
