//! A test suite: 1,700 steps of mixed length, 32 at a time, one in twenty failing at first and tried again. How close to the
//! best packing of the same lengths does the step manager come?

use super::{
    cluster::own_program,
    figures::{Findings, Goal},
    inside::{Account, Fallible, Inside},
    packing::{self, Seeded},
    steps::{self, FAILS_AT_FIRST, STEP},
};
use std::fmt::Write as _;

/// Places, as CPUs of the node.
pub const PLACES: usize = 32;
const USUAL: usize = 1_700;
const SEED: u64 = 20_261_121;
/// One in so many fails at first.
const FAILS_ONE_IN: usize = 20;
const SHORTEST_MS: f64 = 20.0;
const LONGEST_MS: f64 = 5_000.0;

/// Length in milliseconds of each step: log-normal, half of them below 0.6 s, cut at both ends.
fn lengths(count: usize) -> Vec<u64> {
    let mut seeded = Seeded::new(SEED);
    (0..count).map(|_| (600.0 * (1.1 * seeded.normal()).exp()).clamp(SHORTEST_MS, LONGEST_MS) as u64).collect()
}

const fn fails(index: usize) -> bool {
    index % FAILS_ONE_IN == FAILS_ONE_IN / 2
}

/// The scenario.
pub fn suite(inside: &Inside) -> Fallible<Findings> {
    let mut found = Findings::default();
    let count = inside.steps(USUAL);
    let lengths = lengths(count);
    let (me, log) = (own_program()?, inside.order.home.join("suite.log"));
    let mut list = String::new();
    for (index, ms) in lengths.iter().enumerate() {
        let once = if fails(index) { " once" } else { "" };
        writeln!(list, "{} {STEP} {} {index} {ms}{once}", me.display(), log.display())?;
    }
    let path = inside.order.home.join("suite.txt");
    std::fs::write(&path, list)?;

    let account = Account::open()?;
    let began = steps::now();
    let path = path.to_string_lossy().into_owned();
    inside.run("srun", &["--async", "--parsable", "-n1", "--retries=1", "-o", "/dev/null", "--from-file", &path])?;
    let took = account.close(count as u64, 0)?;

    let ran = steps::read(&log)?;
    steps::check(&ran, count, |i| (if fails(i) { vec![FAILS_AT_FIRST, 0] } else { vec![0] }, 1))?;
    let runs: Vec<packing::Runs> =
        (lengths.iter().enumerate()).map(|(i, ms)| vec![*ms as f64 / 1000.0; if fails(i) { 2 } else { 1 }]).collect();
    let (bound, greedy) = (packing::lower_bound(&runs, PLACES), packing::greedy(&runs, PLACES));
    let last = ran.iter().map(|r| r.ended).fold(0.0, f64::max) - began;
    let failed = (0..count).filter(|i| fails(*i)).count();
    found.pace(format!("steps, {failed} of them run twice"), count as u64, took.as_secs_f64(), None);
    found.amount("makespan", took.as_secs_f64(), "s", None);
    found.amount("from sending to the last end", last, "s", None);
    found.amount("no schedule is shorter than", bound, "s", None);
    found.amount("greedy list scheduling of the same lengths", greedy, "s", None);
    found.amount("makespan over that bound", took.as_secs_f64() / bound, "times", None);
    found.amount("makespan over greedy", took.as_secs_f64() / greedy, "times", Some(Goal::AtMost(1.05)));
    found.amount("most at a time", most_at_a_time(&ran) as f64, "steps", Some(Goal::AtMost(PLACES as f64)));
    Ok(found)
}

/// The most runs that overlapped.
fn most_at_a_time(ran: &[steps::Ran]) -> usize {
    let mut edges: Vec<(f64, i32)> = ran.iter().flat_map(|r| [(r.began, 1), (r.ended, -1)]).collect();
    edges.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let (mut now, mut most) = (0, 0);
    for (_, change) in edges {
        now += change;
        most = most.max(now);
    }
    usize::try_from(most).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_suite_is_about_a_minute_on_its_places() {
        let all = lengths(USUAL);
        let seconds = all.iter().sum::<u64>() as f64 / 1000.0 / PLACES as f64;
        assert!((45.0..75.0).contains(&seconds), "{seconds}");
        assert!(all.iter().all(|ms| (20..=5000).contains(ms)));
        assert_eq!((0..USUAL).filter(|i| fails(*i)).count(), USUAL / FAILS_ONE_IN);
    }

    #[test]
    fn overlaps_are_counted() {
        let ran = |began, ended| steps::Ran { index: 0, rank: 0, began, ended, code: 0 };
        assert_eq!(most_at_a_time(&[ran(0.0, 2.0), ran(1.0, 3.0), ran(2.0, 4.0)]), 2);
    }
}
