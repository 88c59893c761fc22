//! `srun --graph`: submits all steps of a graph; without `--async` it waits for them.

use super::list::{self, Done, ListRequest};
use crate::{
    graph::{GraphText, check::Graph, plan::Plan, resume::Completed},
    options::{job_spec::Submitter, typed::Typed},
    output::Console,
    submit::{startup, swait},
};
use garrick_asking::manager::Way;
use garrick_model::{spec::ArraySpec, step_selector::WhichSteps};
use std::{ffi::OsStr, path::Path, sync::Arc};

/// Most steps that did not end well that are named.
const MOST_CULPRITS: usize = 20;

/// Hands over the graph in a file, and waits. Returns the exit code: with `--async` 0 when every step was accepted, else
/// the worst of the steps that count.
pub fn run(typed: &Typed, file: &OsStr, submitter: Submitter, way: Way, console: &Console) -> Result<i32, i32> {
    let dir = typed.chdir.as_ref().map_or_else(|| submitter.work_dir.clone(), |own| submitter.work_dir.join(own));
    let read = GraphText::read(Path::new(file)).and_then(|text| Ok((text.graph(&dir)?, text.file)));
    let (graph, file) = read.map_err(|error| {
        error.to_string().lines().for_each(|line| console.error(line));
        startup::exit_code(1)
    })?;
    let graph = Arc::new(graph);
    let mut shares = Vec::new();
    if let Some(jobs) = &typed.resume_from {
        let left = Completed::read(jobs, typed.conf.as_deref(), console)?.left(&graph);
        left.say(&graph, jobs, console);
        if left.is_nothing() {
            return Ok(0);
        }
        shares = left.shares;
    }
    let plan = Plan::new(Arc::clone(&graph), &shares);
    let job = way.job();
    let graph_of = Some((plan, file));
    let done = list::hand_over(ListRequest { typed, submitter, command: &[], graph: graph_of, way, console })?;
    // All are waited for, and then those are asked about whose ends say whether all went well.
    let all = numbers(&graph, &done, &graph.in_order());
    if typed.asynchronous || done.is_interrupted || all.is_empty() {
        return Ok(done.code);
    }
    if done.code != 0 {
        console.error("not all steps of the graph were handed over; those that were are waited for");
    }
    let waited = swait::wait_for_end(job, all, typed, console)?;
    if waited != 0 {
        return Ok(waited);
    }
    let counts = graph.counting();
    let counting: Vec<usize> = graph.in_order().into_iter().filter(|at| counts[*at]).collect();
    let mut worst = |steps: &[usize]| match numbers(&graph, &done, steps) {
        named if named.is_empty() => Ok(0),
        named => swait::worst_of_steps(job, named, typed, console),
    };
    let code = worst(&counting)?;
    if code != 0 {
        console.error(format_args!(
            "not all steps of the graph ended well (garrick steps {job} --failed); what never ran counts as 1"
        ));
        let mut found = Vec::new();
        culprits(&counting, &mut worst, &mut found)?;
        for (at, code) in found {
            let step = &graph.steps[at];
            console.error(format_args!("step \"{}\" (line {}): exit code {code}", step.label, step.line));
        }
    }
    Ok(code.max(done.code))
}

/// The first of the steps that did not end well, with their exit codes: halves are asked about until there is one left.
fn culprits(
    steps: &[usize],
    worst: &mut dyn FnMut(&[usize]) -> Result<i32, i32>,
    found: &mut Vec<(usize, i32)>,
) -> Result<(), i32> {
    if steps.is_empty() || found.len() >= MOST_CULPRITS {
        return Ok(());
    }
    match (worst(steps)?, steps) {
        (0, _) => Ok(()),
        (code, [one]) => {
            found.push((*one, code));
            Ok(())
        }
        (_, several) => {
            let (before, behind) = several.split_at(several.len() / 2);
            culprits(before, worst, found)?;
            culprits(behind, worst, found)
        }
    }
}

/// The steps of a job that some of the graph's were handed over as.
fn numbers(graph: &Graph, done: &Done, which: &[usize]) -> Vec<WhichSteps> {
    let of = which.iter().map(|at| &graph.steps[*at]);
    let mut ranges: Vec<(u32, u32)> = of.flat_map(|step| done.labels.numbers(&step.label)).copied().collect();
    ranges.sort_unstable();
    let mut merged: Vec<(u32, u32, u32)> = Vec::new();
    for (first, last) in ranges {
        match merged.last_mut() {
            Some((_, end, _)) if *end + 1 >= first => *end = last.max(*end),
            _ => merged.push((first, last, 1)),
        }
    }
    if merged.is_empty() { Vec::new() } else { vec![WhichSteps::Numbers(ArraySpec { ranges: merged, limit: None })] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_that_did_not_end_well_are_found_by_asking_about_halves() {
        let codes = [0, 0, 7, 0, 0, 0, 1, 0, 0];
        let mut asked = 0;
        let mut worst = |steps: &[usize]| {
            asked += 1;
            Ok(steps.iter().map(|at| codes[*at]).max().unwrap_or(0))
        };
        let mut found = Vec::new();
        assert_eq!(culprits(&[8, 6, 0, 2, 1], &mut worst, &mut found), Ok(()));
        assert_eq!(found, [(6, 1), (2, 7)]);
        assert!(asked <= 9, "{asked}");
        let mut all = Vec::new();
        let many: Vec<usize> = (0..1000).collect();
        assert_eq!(culprits(&many, &mut |_| Ok(3), &mut all), Ok(()));
        assert_eq!((all.len(), all[19]), (MOST_CULPRITS, (19, 3)));
    }
}
