//! `garrick why JOB.STEP`: what a step waits for and which steps hold it, or why it ended as it did.

use crate::{output::Console, query::choices};
use garrick_asking::{
    cluster::Answer,
    contact::{self, Contact},
    run_records::{self, Part},
};
use garrick_model::{
    messages::records::{RecordedOrigin, RecordedRun, RecordedStep, WantedRecords},
    refusal::Refusal,
    state::{Reason, StepState},
    step_selector::{StepsSelector, WhichSteps},
    time::Timestamp,
    view::StepView,
};
use garrick_render::{
    steps::{Row, fields},
    words,
};
use std::fmt::Write as _;

/// Steps that are told of one by one; of more only the first.
const MOST: usize = 20;
/// Holders that are named.
const HOLDERS: usize = 5;

/// A paragraph for each of the named steps.
pub fn explain(cluster: &mut Contact, named: &StepsSelector, console: &Console) -> Answer<Vec<String>> {
    let (mut run, mut found, mut more) = (None::<RecordedRun>, Vec::new(), 0_u64);
    let wanted = WantedRecords { which: vec![named.which.clone()], texts: true, ..WantedRecords::default() };
    run_records::read(&cluster.cluster().clone(), console, named, wanted, &mut |part| {
        match part {
            Part::Run(read) => run = Some(read),
            Part::Batch(_) => {}
            Part::Steps(origins, steps) => {
                for step in steps {
                    match origins.get(step.origin as usize) {
                        Some(origin) if found.len() < MOST => found.push((origin.clone(), step)),
                        _ => more += 1,
                    }
                }
            }
        }
        true
    })?;
    let Some(run) = run.filter(|_| !found.is_empty()) else {
        return Err(Refusal::InvalidStep(named.to_string()).into());
    };
    let waits = found.iter().any(|(_, step)| step.state == StepState::Pending);
    let live = if waits && run.end.is_none() { contact::live_steps(cluster, run.job)? } else { Vec::new() };
    let mut told: Vec<String> = found.iter().map(|(origin, step)| text(&run, origin, step, &live)).collect();
    if more > 0 {
        told.push(format!("{more} more are left out: name fewer, or see garrick steps {named}."));
    }
    Ok(told)
}

fn text(run: &RecordedRun, origin: &RecordedOrigin, step: &RecordedStep, live: &[StepView]) -> String {
    let row = Row { run, origin, step, user: choices::user_name };
    let id = fields::step(&row);
    match step.state {
        StepState::Pending => waiting(run, &id, step, live),
        StepState::Running => {
            let ran = step.elapsed_ms(Timestamp::now()).map(fields::duration).unwrap_or_default();
            format!("Step {id} does not wait: it runs on {} since {ran} s.", fields::nodes(&row).join(","))
        }
        state => ended(&row, &id, state),
    }
}

/// Why it ended as it did.
fn ended(row: &Row<'_>, id: &str, state: StepState) -> String {
    let step = row.step;
    let mut text = format!("Step {id} ended as {}", words::step_state(state));
    match (step.exit.signal, step.exit.code) {
        (Some(signal), _) => drop(write!(text, ", by signal {signal}")),
        (None, 0) => {}
        (None, code) => drop(write!(text, ", with exit code {code}")),
    }
    let reason = fields::reason(row);
    if !reason.is_empty() {
        let _ = write!(text, ": {reason}");
    }
    text.push('.');
    match step.elapsed_ms(Timestamp::now()).filter(|_| step.start.is_some()) {
        Some(ms) => {
            let (took, nodes) = (fields::duration(ms), fields::nodes(row).join(","));
            let _ =
                write!(text, "\nIt ran {took} s on {nodes} with {} at most", fields::memory(step.usage.max_rss_kib));
            if step.attempt > 0 {
                let _ = write!(text, ", in its try number {}", step.attempt + 1);
            }
            text.push('.');
        }
        None => text.push_str("\nIt never started."),
    }
    let _ = write!(text, "\nCommand: {}", fields::command(row));
    if !step.output.is_empty() {
        let _ = write!(text, "\nOutput: {}", step.output);
    }
    text
}

/// What it waits for, and who has it.
fn waiting(run: &RecordedRun, id: &str, step: &RecordedStep, live: &[StepView]) -> String {
    let own = |view: &&StepView| {
        let all = view.waiting.clone().unwrap_or_else(|| WhichSteps::one(view.id.key()));
        view.state == StepState::Pending && all.contains(step.key)
    };
    let Some(view) = live.iter().find(own) else {
        return match run.end {
            Some(_) => format!("Step {id} never started: its job is over."),
            None => format!("Step {id} starts just now, or its step manager does not answer."),
        };
    };
    let running: Vec<&StepView> = live.iter().filter(|view| view.state == StepState::Running).collect();
    let numbered: Vec<&&StepView> = running.iter().filter(|view| view.id.step.number().is_some()).collect();
    let held: u32 = numbered.iter().map(|view| view.cpus).sum();
    let mut text = format!("Step {id} waits ({})", words::reason(&view.reason));
    if !view.dependency.is_empty() {
        let _ = write!(text, " for {}", view.dependency);
    }
    if let Some(WhichSteps::Tasks { step: array, tasks }) = &view.waiting
        && let Some(limit) = tasks.limit
    {
        let of_array = numbered.iter().filter(|view| view.id.step.number() == Some(*array)).count();
        let _ = write!(text, "; {of_array} tasks of its array run, and {limit} may at a time");
    }
    text.push('.');
    if view.reason == Reason::Resources || view.reason == Reason::Priority {
        let free = run.cpus.saturating_sub(held);
        let _ = write!(
            text,
            "\nIt needs {} CPUs on {} nodes; {free} of the job's {} are free.",
            view.cpus, view.nodes, run.cpus
        );
        let mut holders = numbered;
        holders.sort_by_key(|view| std::cmp::Reverse(view.cpus));
        let named: Vec<String> = holders
            .iter()
            .take(HOLDERS)
            .map(|view| format!("{} ({} CPUs on {})", view.id, view.cpus, view.nodelist))
            .collect();
        if !named.is_empty() {
            let more = holders.len().saturating_sub(HOLDERS);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            let _ = write!(text, "\nHeld by {}{more}.", named.join(", "));
        }
    }
    text
}
