//! Ended steps, for the commands that show steps: those that the controller remembers, and if that is not all, the records of the
//! job's run.

use crate::{
    Asker,
    cluster::{Answer, Cluster},
    run_records::{self, Part},
};
use garrick_model::{
    hostlist,
    ids::StepId,
    messages::records::{RecordedOrigin, RecordedRun, RecordedStep, WantedRecords},
    step_selector::{StepsSelector, WhichSteps},
    view::{JobView, StepView},
};
use std::{collections::BTreeSet, sync::Arc};

fn view(run: &RecordedRun, origin: &RecordedOrigin, step: RecordedStep) -> StepView {
    let named: Vec<&str> =
        step.slots.iter().filter_map(|slot| run.nodes.get(*slot as usize)).map(String::as_str).collect();
    StepView {
        id: StepId::of(run.job, step.key),
        name: if step.own_name.is_empty() { origin.name.clone() } else { step.own_name.clone() },
        state: step.state,
        reason: step.word,
        uid: run.uid,
        partition: run.partition.clone(),
        nodes: named.len() as u32,
        nodelist: hostlist::fold(named),
        cpus: step.cpus,
        tasks: origin.tasks,
        start_time: step.start,
        end_time: step.end,
        time_limit: origin.time_limit,
        exit: step.exit,
        srun: origin.srun.clone(),
        submit_line: origin.submit_line.clone(),
        attempt: step.attempt,
        priority: 0,
        dependency: String::new(),
        waiting: step.all_of,
        usage: step.usage,
        gres: Vec::new(),
        memory: Default::default(),
        cpu_freq: None,
    }
}

/// Steps of a run that are over, from its records; of those that are named, if any are. And what is missing of them.
pub fn ended(
    cluster: &Cluster,
    asker: &dyn Asker,
    of: &StepsSelector,
    which: Vec<WhichSteps>,
) -> Answer<(Vec<StepView>, Vec<String>)> {
    let (mut views, mut whose) = (Vec::new(), None);
    let wanted = WantedRecords { which, ..WantedRecords::default() };
    let over = run_records::read(cluster, asker, of, wanted, &mut |part| {
        match part {
            Part::Run(run) => whose = Some(run),
            Part::Batch(_) => {}
            Part::Steps(origins, steps) => {
                let Some(run) = &whose else { return false };
                let of = |step: RecordedStep| Some(view(run, origins.get(step.origin as usize)?, step));
                views.extend(steps.into_iter().filter_map(of).filter(|view| view.state.is_over()));
            }
        }
        true
    })?;
    Ok((views, over.missing))
}

/// How many numbered steps these are.
fn count(views: &[StepView], job: &JobView) -> u64 {
    let of_job =
        views.iter().filter(|view| view.id.job == job.id && view.state.is_over() && view.id.step.number().is_some());
    of_job.map(|view| view.waiting.as_ref().map_or(1, |all| all.keys().count() as u64)).sum()
}

/// Completes a list of steps: of each of these jobs of which the controller forgot steps that are over, they come from its
/// records. Gives the jobs of which some are missing still.
pub fn complete<'a>(
    cluster: &Cluster,
    asker: &dyn Asker,
    steps: &mut Vec<StepView>,
    jobs: impl Iterator<Item = &'a Arc<JobView>>,
) -> Vec<String> {
    let mut missing = Vec::new();
    for job in jobs {
        let counts = &job.steps.counts;
        if count(steps, job) >= counts.done + counts.failed {
            continue;
        }
        let all = StepsSelector { job: job.id, task: None, het: None, run: Some(job.sluid), which: WhichSteps::All };
        match ended(cluster, asker, &all, Vec::new()) {
            Ok((whole, damage)) => {
                let known: BTreeSet<StepId> = whole.iter().map(|view| view.id).collect();
                steps.retain(|view| view.id.job != job.id || !view.state.is_over() || !known.contains(&view.id));
                steps.extend(whole);
                missing.extend(damage.into_iter().map(|what| format!("job {}: {what}", job.id)));
            }
            Err(error) => missing.push(format!("job {}: {error}", job.id)),
        }
    }
    missing
}
