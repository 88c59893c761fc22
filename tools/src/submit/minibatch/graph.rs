//! `srun --graph`: all steps of a graph are handed over; without `--async` they are waited for.

use super::list::{self, Done, ListRequest};
use crate::{
    graph::{GraphText, check::Graph, plan::Plan, resume::Completed},
    options::{job_spec::Submitter, typed::Typed},
    output::Console,
    submit::{manager::Way, startup, swait},
};
use garrick_model::{spec::ArraySpec, step_selector::WhichSteps};
use std::{ffi::OsStr, path::Path, sync::Arc};

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
    if typed.asynchronous || done.code != 0 {
        return Ok(done.code);
    }
    // All are waited for, and then those are asked about whose ends say whether all went well.
    let all = numbers(&graph, &done, &vec![true; graph.steps.len()]);
    let waited = swait::wait_for_end(job, all, typed, console)?;
    let counting = numbers(&graph, &done, &graph.counting());
    if waited != 0 || counting.is_empty() {
        return Ok(waited);
    }
    let code = swait::worst_of_steps(job, counting, typed, console)?;
    if code != 0 {
        console.error(format_args!("not all steps of the graph ended well (garrick steps {job} --failed)"));
    }
    Ok(code)
}

/// The steps of a job that some of the graph's were handed over as.
fn numbers(graph: &Graph, done: &Done, which: &[bool]) -> Vec<WhichSteps> {
    let of = graph.steps.iter().zip(which).filter(|(_, which)| **which);
    let mut ranges: Vec<(u32, u32)> = of.flat_map(|(step, _)| done.labels.numbers(&step.label)).copied().collect();
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
