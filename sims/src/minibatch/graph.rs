//! A pipeline as a graph: one step fans out into groups, each an array that is reduced to one step, which is processed once more,
//! and all join in the last step; one task in twenty fails at first and is tried again. How close to the best packing of the same
//! lengths does the step manager come, when every step waits for its dependencies?

use super::{
    cluster::own_program,
    figures::{Findings, Goal},
    inside::{Account, Fallible, Inside},
    packing::{self, Chain, Seeded},
    steps::{self, FAILS_AT_FIRST, Ran, STEP},
};
use std::{fmt::Write as _, path::Path, time::Instant};

/// Places, as CPUs of the node.
pub const PLACES: usize = 32;
const USUAL: usize = 10_000;
const SEED: u64 = 20_261_125;
/// One task in so many fails at first.
const FAILS_ONE_IN: usize = 20;
const SHORTEST_MS: f64 = 50.0;
const LONGEST_MS: f64 = 1_000.0;

/// The pipeline: so many groups of so many tasks each.
#[derive(Debug)]
struct Pipeline {
    groups: usize,
    /// By step: how long it takes each time, in milliseconds. First the step before all, then group by group its tasks, its
    /// reduction and what is done with that, at last the end.
    lengths: Vec<u64>,
}

impl Pipeline {
    /// One of about so many steps.
    fn of(count: usize) -> Self {
        // Groups squared, two steps for each group, and two for all.
        let groups = (count.isqrt().saturating_sub(1)).max(2);
        let mut seeded = Seeded::new(SEED);
        let mut length = || (200.0 * (0.7 * seeded.normal()).exp()).clamp(SHORTEST_MS, LONGEST_MS) as u64;
        let mut lengths = vec![length()];
        for _ in 0..groups {
            let tasks = length();
            lengths.extend(std::iter::repeat_n(tasks, groups));
            lengths.extend([length(), length()]);
        }
        lengths.push(length());
        Self { groups, lengths }
    }

    const fn count(&self) -> usize {
        self.lengths.len()
    }

    /// The number of a group's first task.
    const fn first_of(&self, group: usize) -> usize {
        1 + group * (self.groups + 2)
    }

    /// Of a group's task: does it fail at first?
    const fn fails(&self, index: usize) -> bool {
        if index == 0 || index + 1 == self.count() {
            return false;
        }
        let task = (index - 1) % (self.groups + 2);
        task < self.groups && task % FAILS_ONE_IN == FAILS_ONE_IN / 2
    }

    /// What a step waits for.
    fn waits(&self, index: usize) -> Vec<usize> {
        let last = self.count() - 1;
        match index {
            0 => Vec::new(),
            _ if index == last => (0..self.groups).map(|group| self.first_of(group) + self.groups + 1).collect(),
            _ => {
                let (group, place) = ((index - 1) / (self.groups + 2), (index - 1) % (self.groups + 2));
                let first = self.first_of(group);
                match place {
                    task if task < self.groups => vec![0],
                    task if task == self.groups => (first..first + self.groups).collect(),
                    _ => vec![index - 1],
                }
            }
        }
    }

    fn chains(&self) -> Vec<Chain> {
        let runs = |index: usize| {
            let seconds = self.lengths[index] as f64 / 1000.0;
            vec![seconds; if self.fails(index) { 2 } else { 1 }]
        };
        (0..self.count()).map(|index| Chain { runs: runs(index), waits: self.waits(index) }).collect()
    }

    /// The file.
    fn text(&self, me: &Path, log: &Path) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        let step = format!("{} {STEP} {}", me.display(), log.display());
        let mut one = |label: &str, index: usize, after: &str| {
            let ms = self.lengths[index];
            writeln!(text, "[[step]]\nlabel = '{label}'\ncommand = '{step} {index} {ms}'\nafter = [{after}]")
        };
        one("prepare", 0, "")?;
        for group in 0..self.groups {
            let reduce = self.first_of(group) + self.groups;
            one(&format!("reduce-{group}"), reduce, &format!("'map-{group}'"))?;
            one(&format!("refine-{group}"), reduce + 1, &format!("'reduce-{group}'"))?;
        }
        let all: Vec<String> = (0..self.groups).map(|group| format!("'refine-{group}'")).collect();
        one("all", self.count() - 1, &all.join(","))?;
        for group in 0..self.groups {
            let (first, last) = (self.first_of(group), self.groups - 1);
            let ms = self.lengths[first];
            let half = FAILS_ONE_IN / 2;
            writeln!(
                text,
                "[[step]]\nlabel = 'map-{group}'\narray = '0-{last}'\nafter = 'prepare'\n\
                 command = 'n=$SLURM_STEP_ARRAY_TASK_ID; [ $((n % {FAILS_ONE_IN})) = {half} ] && once=once; \
                 exec {step} $((n + {first})) {ms} $once'"
            )?;
        }
        Ok(text)
    }

    /// No step began before those that it waits for had completed.
    fn check_order(&self, ran: &[Ran]) -> Fallible<()> {
        let mut ended = vec![f64::MAX; self.count()];
        ran.iter().filter(|run| run.code == 0).for_each(|run| ended[run.index] = run.ended);
        for run in ran {
            if let Some(on) = self.waits(run.index).into_iter().find(|on| ended[*on] > run.began) {
                return Err(format!("step {} began before step {on} had ended", run.index).into());
            }
        }
        Ok(())
    }
}

/// What came of one run of the pipeline.
struct Done {
    sent: f64,
    took: f64,
    last: f64,
    ran: Vec<Ran>,
}

/// Runs it; with `loose` no step waits for another.
fn run(inside: &Inside, pipeline: &Pipeline, name: &str, loose: bool) -> Fallible<Done> {
    let (me, log) = (own_program()?, inside.order.home.join(format!("{name}.log")));
    let path = inside.order.home.join(format!("{name}.toml"));
    let text = pipeline.text(&me, &log)?;
    let kept = text.lines().filter(|line| !loose || !line.starts_with("after = "));
    std::fs::write(&path, kept.collect::<Vec<_>>().join("\n"))?;
    let count = pipeline.count();
    let account = Account::open()?;
    let (began, sending) = (steps::now(), Instant::now());
    let path = path.to_string_lossy().into_owned();
    inside.run("srun", &["--async", "--parsable", "--retries=1", "-o", "/dev/null", "--graph", &path])?;
    let sent = sending.elapsed().as_secs_f64();
    let took = account.close(count as u64, 0)?.as_secs_f64();
    let ran = steps::read(&log)?;
    steps::check(&ran, count, |i| (if pipeline.fails(i) { vec![FAILS_AT_FIRST, 0] } else { vec![0] }, 1))?;
    let last = ran.iter().map(|r| r.ended).fold(0.0, f64::max) - began;
    Ok(Done { sent, took, last, ran })
}

/// The scenario.
pub fn graph(inside: &Inside) -> Fallible<Findings> {
    let mut found = Findings::default();
    let pipeline = Pipeline::of(inside.steps(USUAL));
    let count = pipeline.count();
    let done = run(inside, &pipeline, "graph", false)?;
    pipeline.check_order(&done.ran)?;
    let loose = run(inside, &pipeline, "loose", true)?;

    let chains = pipeline.chains();
    let (bound, greedy) = (packing::bound_of_chains(&chains, PLACES), packing::greedy_chains(&chains, PLACES));
    let apart: Vec<packing::Runs> = chains.iter().map(|chain| chain.runs.clone()).collect();
    let greedy_apart = packing::greedy(&apart, PLACES);
    let failed = (0..count).filter(|i| pipeline.fails(*i)).count();
    let waits: usize = chains.iter().map(|chain| chain.waits.len()).sum();
    found.pace(format!("steps, {failed} of them run twice"), count as u64, done.took, None);
    found.amount("single steps that are waited for", waits as f64, "", None);
    found.amount("reading the graph and handing it over", done.sent, "s", None);
    found.amount("makespan", done.took, "s", None);
    found.amount("from sending to the last end", done.last, "s", None);
    found.amount("no schedule is shorter than", bound, "s", None);
    found.amount("greedy list scheduling of the same lengths", greedy, "s", None);
    found.amount("the same steps when none waits for another", loose.took, "s", None);
    found.amount("greedy list scheduling of those", greedy_apart, "s", None);
    found.amount("makespan over that bound", done.took / bound, "times", None);
    found.amount("makespan over greedy", done.took / greedy, "times", Some(Goal::AtMost(1.05)));
    found.amount("the same of the steps that do not wait", loose.took / greedy_apart, "times", None);
    // What is left when the machine's own slowness is taken out of both.
    let cost = (done.took / greedy) / (loose.took / greedy_apart);
    found.amount("what waiting costs: the one over the other", cost, "times", Some(Goal::AtMost(1.02)));
    Ok(found)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_pipeline_fans_out_and_in_and_has_the_steps_that_were_asked_for() {
        let pipeline = Pipeline::of(USUAL);
        assert_eq!((pipeline.groups, pipeline.count()), (99, 10_001));
        assert_eq!(pipeline.waits(50), [0]);
        assert_eq!(pipeline.waits(100), (1..100).collect::<Vec<_>>());
        assert_eq!(pipeline.waits(101), [100]);
        assert_eq!((pipeline.waits(102), pipeline.waits(10_000).len()), (vec![0], 99));
        assert_eq!((0..pipeline.count()).filter(|i| pipeline.fails(*i)).count(), 5 * 99);
        let text = pipeline.text(Path::new("/bin/x"), Path::new("/log")).unwrap();
        assert_eq!(text.matches("[[step]]").count(), 2 + 3 * 99);
    }

    #[test]
    fn who_began_too_early_is_found() {
        let pipeline = Pipeline::of(9);
        let ran = |index, began: f64| Ran { index, rank: 0, began, ended: began + 1.0, code: 0 };
        let well = [ran(0, 0.0), ran(1, 2.0), ran(2, 2.0), ran(3, 4.0)];
        assert!(pipeline.check_order(&well).is_ok());
        let early = [ran(0, 0.0), ran(1, 2.0), ran(2, 3.5), ran(3, 4.0)];
        assert_eq!(pipeline.check_order(&early).unwrap_err().to_string(), "step 3 began before step 2 had ended");
    }
}
