//! Views of a job.

use super::core::JobCore;
use garrick_events::records::job::{Afterwards, HeldBy, JobRecord, Phase, Run};
use garrick_model::{
    patterns::{default_output, in_folder},
    spec::JobSpec,
    state::{ExitStatus, JobState, Reason},
    time::Timestamp,
    view::{JobView, SuspendTimes},
};
use std::sync::Arc;

/// The spec without what is large or private: script and environment.
pub(super) fn told_spec(spec: &JobSpec) -> JobSpec {
    JobSpec { script: None, environment: Arc::default(), ..spec.clone() }
}

/// The same without what the view contains elsewhere and nobody needs as requested: see [`JobView::spec`].
pub(super) fn shown_spec(spec: &JobSpec) -> Arc<JobSpec> {
    Arc::new(JobSpec {
        partitions: Vec::new(),
        begin: None,
        hold: false,
        priority: None,
        requeue: None,
        array_task: None,
        ..told_spec(spec)
    })
}

/// The view of a job as of `now`.
pub(super) fn of(core: &JobCore, now: Timestamp) -> JobView {
    let record = &core.record;
    let run = record.phase.run();
    let end = record.phase.end();
    let work_over = run.is_some_and(|r| r.ending.is_some());
    let state = match &record.phase {
        Phase::Pending if record.expediting.is_some() => JobState::Expediting,
        Phase::Pending if record.hold == Some(HeldBy::SpecialExit) => JobState::SpecialExit,
        Phase::Pending if record.hold == Some(HeldBy::ScriptFailure) => JobState::RequeueHold,
        Phase::Pending => JobState::Pending,
        Phase::Starting(_) | Phase::Running(_) | Phase::Suspended(_) if work_over => JobState::Completing,
        Phase::Starting(_) => JobState::Configuring,
        Phase::Running(_) => JobState::Running,
        Phase::Suspended(_) => JobState::Suspended,
        Phase::Completing(..) => JobState::Completing,
        Phase::Over(_, end) => end.state,
    };
    let ends = run.and_then(|r| r.ending.as_ref());
    let ending = match (&record.phase, ends) {
        (Phase::Completing(_, end), _) => Some(end.state),
        (Phase::Starting(_) | Phase::Running(_) | Phase::Suspended(_), Some(ending)) => Some(ending.state),
        _ => None,
    };
    let reason = match (&record.phase, end) {
        (Phase::Pending, _) => core.pending_reason(now),
        (_, Some(end)) => end.reason.clone(),
        _ => record.hold.map_or(Reason::None, |by| by.reason()),
    };
    let resolved = &record.resolved;
    let array_running = core.running_tasks();
    let held = record.hold.is_some();
    let cleaning = state == JobState::Completing;
    JobView {
        id: record.id,
        generation: core.generation,
        sluid: record.sluid,
        spec: Arc::clone(&core.shown_spec),
        uid: record.owner.uid,
        gid: record.owner.gid,
        user: record.owner.user.clone(),
        group: record.owner.group.clone(),
        state,
        ending,
        reason,
        array_pending: record
            .array
            .as_ref()
            .filter(|a| record.array_task.is_none() && !a.pending.is_empty())
            .map(garrick_events::records::job::ArrayRecord::pending_spec),
        array_task: record.array_task,
        array_running,
        priority: if held { 0 } else { core.priority() },
        dependencies: record.dependencies.clone(),
        eligible: core.is_eligible(now),
        partitions: resolved.partitions.clone(),
        time_limit: core.shown_limit(),
        submit_time: record.submit_time,
        eligible_time: record.eligible_time.or(record.begin),
        start_time: match run {
            Some(run) if !matches!(record.phase, Phase::Pending) => Some(run.start),
            // As in Slurm, the start time of a job that ended before it ran is its end.
            _ if end.is_some() => end.map(|e| e.at),
            // Not before its begin time; unknown for a job that was held after it ran.
            _ => core.expected.or(record.begin.filter(|begin| *begin > now && !(held && record.restarts > 0))),
        },
        end_time: match run.and_then(|r| r.ending.as_ref()) {
            _ if end.is_some() => end.map(|e| e.at),
            Some(ending) => ending.at,
            None => run.and_then(Run::expected_end),
        },
        last_sched_eval: core.last_eval,
        allocation: run.map(|r| Arc::clone(&r.allocation)),
        completing_nodes: match run {
            Some(run) if cleaning => run.unclean().map(str::to_owned).collect(),
            _ => Vec::new(),
        },
        exit: match (end, &record.phase) {
            (Some(end), _) => end.exit,
            (None, Phase::Pending) => record.last_exit.unwrap_or(ExitStatus::SUCCESS),
            (None, _) => ExitStatus::SUCCESS,
        },
        derived_exit: end.map_or(ExitStatus::SUCCESS, |e| e.derived),
        restarts: record.restarts,
        requeue: resolved.requeue,
        cpus_per_task: resolved.cpus_per_task,
        tasks: resolved.tasks,
        min_nodes: resolved.min_nodes,
        max_nodes: resolved.max_nodes,
        cpus: run.map_or(resolved.cpus, |r| r.allocation.nodes.iter().map(|n| n.share.cpus.len()).sum()),
        memory: resolved.memory,
        sharing: resolved.sharing,
        stdout_path: output(record),
        stderr_path: record.spec.stderr.as_deref().map(|pattern| fill(record, pattern)),
        stdin_path: record.spec.stdin.as_deref().map(|pattern| fill(record, pattern)),
        admin_comment: record.admin_comment.clone(),
        system_comment: match (end, &record.phase) {
            (Some(end), _) => end.cause.clone(),
            (None, Phase::Pending) => record.last_cause.clone(),
            (None, _) => None,
        },
        steps: core.tally,
        terms: record.terms,
        preempted: run.and_then(|run| run.preempted.as_ref()).map(|mark| mark.times),
        leave_by: run.and_then(|run| run.leave_by),
        suspended: run.and_then(|run| run.suspended.as_ref()).map(|suspended| SuspendTimes {
            at: suspended.at,
            stood_ms: suspended.stood_ms,
            by_admin: suspended.by_admin,
            yielded: suspended.yielded.as_ref().map(|yielded| yielded.times),
            waits_turn: suspended.waits_turn,
        }),
        association: resolved.association,
        billing: if core.site.billing.is_empty() { None } else { billing(core) },
        runs_again: cleaning
            && end.map(|end| end.then).or(ends.map(|ending| ending.then)).is_some_and(Afterwards::is_requeue),
        recurs: record.schedule().is_some() && !matches!(record.phase, Phase::Over(..)),
    }
}

/// The billing of the job if its partition has weights: for its allocation, otherwise for its request.
fn billing(core: &JobCore) -> Option<u64> {
    let record = &core.record;
    let resolved = &record.resolved;
    let run = record.phase.run();
    let partition = run.map(|run| &run.allocation.partition).or(resolved.partitions.first())?;
    let weights = core.site.billing.get(partition)?;
    let terms = core.site.billed_terms;
    Some(match run {
        Some(run) => weights.billed(&run.allocation.tres(), terms),
        None => resolved.billed(&record.spec, weights, terms),
    })
}

impl JobCore {
    /// What a run is billed: by its partition's weights, or else its CPUs.
    pub(super) fn billed(&self, run: &Run) -> u64 {
        match self.site.billing.get(&run.allocation.partition) {
            Some(weights) => weights.billed(&run.allocation.tres(), self.site.billed_terms),
            None => run.allocation.nodes.iter().map(|node| u64::from(node.share.cpus.len())).sum(),
        }
    }
}

fn output(record: &JobRecord) -> Option<String> {
    record.spec.script.as_ref()?;
    let default = default_output(record.spec.array.is_some());
    Some(fill(record, record.spec.stdout.as_deref().unwrap_or(default)))
}

/// Fills in what the controller knows of a file pattern and makes it absolute. Parts that only a node or a task knows (`%N`,
/// `%n`, `%t`, `%s`) are filled in as for the batch script on the first node.
fn fill(record: &JobRecord, pattern: &str) -> String {
    let mut text = String::with_capacity(pattern.len() + 16);
    let mut chars = pattern.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '%' {
            text.push(c);
            continue;
        }
        let mut width = String::new();
        while let Some(digit) = chars.next_if(char::is_ascii_digit) {
            width.push(digit);
        }
        // Slurm pads numbers to at most ten digits.
        let width = width.parse::<usize>().unwrap_or(0).min(10);
        let array_job = record.array_task.map_or(record.id, |t| t.array_job);
        let number = |n: u32| format!("{n:0width$}");
        match chars.next() {
            Some('%') => text.push('%'),
            Some('j' | 'J') => text.push_str(&number(record.id.0)),
            Some('A') => text.push_str(&number(array_job.0)),
            // Slurm prints 2^32-2, its "no value", for %a outside of arrays.
            Some('a') => text.push_str(&number(record.array_task.map_or(u32::MAX - 1, |t| t.index))),
            Some('u') => text.push_str(&record.owner.user),
            Some('x') => text.push_str(&record.spec.name),
            Some('N') => text.push_str(record.phase.run().map_or("", |r| r.batch_host())),
            Some('n' | 't') => text.push_str(&number(0)),
            Some('s') => text.push_str("batch"),
            Some(other) => {
                text.push('%');
                text.push(other);
            }
            None => text.push('%'),
        }
    }
    in_folder(text, &record.spec.work_dir)
}
