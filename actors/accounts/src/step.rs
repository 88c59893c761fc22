//! What is kept of a step.

use crate::{
    row::JobRow,
    tres::{CPU, MEM, NODE, Tres},
};
use garrick_model::{
    cpu_freq::CpuFreq,
    ids::{JobId, Sluid, StepKey},
    spec::Distribution,
    state::{ExitStatus, Reason, StepState},
    step_selector::WhichSteps,
    time::{TimeLimit, Timestamp},
    usage::{Metric, Spread, TaskUsage, UsageSpread},
    view::{StepOrigin, StepRow, StepRows},
};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// One step of a run; or several waiting ones that were withdrawn together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepRecord {
    /// Job.
    pub job: JobId,
    /// The run that it belongs to.
    pub sluid: Sluid,
    /// Which step: batch script, external, interactive, a numbered one, or a task of a step array.
    pub key: StepKey,
    /// Set where the record stands for several steps; `key` is the first of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub all_of: Option<WhichSteps>,
    /// Name.
    pub name: String,
    /// State.
    pub state: StepState,
    /// Why it ended, where state and exit status do not say it.
    #[serde(default, skip_serializing_if = "Reason::is_none")]
    pub reason: Reason,
    /// Exit status.
    #[serde(default)]
    pub exit: ExitStatus,
    /// How it ended was never reported: it ended with its run ([`Self::end_with`]). Not stored.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unreported: bool,
    /// Start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<Timestamp>,
    /// End.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<Timestamp>,
    /// Its nodes as a host list.
    #[serde(default)]
    pub nodes: String,
    /// Tasks.
    pub tasks: u32,
    /// What it has or had: CPUs, memory, nodes and generic resources. In records of earlier versions only CPUs and nodes.
    pub allocated: Tres,
    /// Limit.
    pub time_limit: TimeLimit,
    /// Tries before this one. Only the last try of a step is kept.
    #[serde(default)]
    pub attempt: u32,
    /// What all of its tasks used; nothing while it runs.
    #[serde(default)]
    pub usage: TaskUsage,
    /// How that is spread over several tasks; `None` of one task, and of several in a record of an earlier version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread: Option<Arc<UsageSpread>>,
    /// Command line.
    #[serde(default)]
    pub submit_line: String,
    /// `--cpu-freq`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_freq: Option<CpuFreq>,
    /// `-m`, of a numbered step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layout: Option<Distribution>,
}

/// What a step has or had.
fn allocated(row: &StepRow) -> Tres {
    let usual = [(CPU, row.cpus.into()), (MEM, row.memory.0), (NODE, row.nodes.into())];
    let mut tres: Tres = usual.into_iter().collect();
    for one in &row.gres {
        tres.add(&format!("gres/{}", one.name), one.count);
        if let Some(kind) = &one.kind {
            tres.add(&format!("gres/{}:{kind}", one.name), one.count);
        }
    }
    tres
}

impl StepRecord {
    /// From a report.
    pub fn new(job: JobId, sluid: Sluid, row: &StepRow, origin: &StepOrigin) -> Self {
        Self {
            job,
            sluid,
            key: row.key,
            all_of: row.all_of.clone(),
            name: origin.name.clone(),
            state: row.state,
            reason: row.reason.clone(),
            exit: row.exit,
            unreported: false,
            start: row.start_time,
            end: row.end_time,
            nodes: row.nodelist.clone(),
            tasks: origin.tasks,
            allocated: allocated(row),
            time_limit: origin.time_limit,
            attempt: row.attempt,
            usage: row.usage,
            spread: row.spread.clone(),
            submit_line: origin.submit_line.clone(),
            cpu_freq: origin.cpu_freq,
            layout: origin.layout,
        }
    }

    /// All of a report, in its order. Rows that name an origin that is not there are left out.
    pub fn all(job: JobId, sluid: Sluid, report: &StepRows) -> Vec<Self> {
        let made = |row: &StepRow| Some(Self::new(job, sluid, row, report.origins.get(row.origin as usize)?));
        report.rows.iter().filter_map(made).collect()
    }

    /// What its tasks had of something; `None`: it was not measured, or how it is spread is not known.
    pub fn used(&self, metric: Metric) -> Option<Spread> {
        match &self.spread {
            Some(spread) => Some(spread.of(metric)),
            None if self.tasks <= 1 && self.usage.is_measured() => Some(Spread::of_one(self.usage.of(metric), 0, 0)),
            None => None,
        }
    }

    /// Memory of all its tasks together at their peaks, KiB. Where that is not known each is taken to have had what the greatest
    /// had.
    pub fn memory_kib(&self) -> u64 {
        let each = || self.usage.max_rss_kib.saturating_mul(self.tasks.into());
        self.used(Metric::Rss).map_or_else(each, |used| used.total)
    }

    /// No step outlives its run. One whose end was not reported, as its node was lost, is CANCELLED then; what is reported of it later
    /// holds, but for a later end. As sacct of Slurm 26.05.3 shows steps of a lost node.
    pub fn end_with(&mut self, run: &JobRow) {
        let Some(end) = run.end else { return };
        if !self.state.is_over() {
            (self.state, self.unreported) = (StepState::Cancelled, true);
            self.end = Some(end);
        }
        self.end = self.end.map(|own| own.min(end));
    }

    /// Is this report newer than what is known? A try follows another, and an end is final: reports may come again, late, or in
    /// another order.
    pub fn follows(&self, known: &Self) -> bool {
        let progress = |record: &Self| (record.attempt, record.state.is_over(), record.start.is_some());
        progress(self) >= progress(known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use garrick_events::testing::ended_row;
    use garrick_events::testing::record;
    use garrick_model::{gres::GresCount, resources::MemoryMib, spec::JobSpec, state::JobState};

    #[test]
    fn a_late_report_of_an_earlier_state_is_not_taken() {
        let origin = StepOrigin {
            name: "a".into(),
            uid: 1,
            partition: "debug".into(),
            tasks: 2,
            time_limit: TimeLimit::Unlimited,
            srun: None,
            submit_line: "srun a".into(),
            priority: 0,
            cpu_freq: None,
            layout: None,
        };
        let gpus = vec![GresCount { name: "gpu".into(), kind: Some("h100".into()), count: 2 }];
        let first = StepRow { memory: MemoryMib(300), gres: gpus, ..ended_row(StepKey::number(0)) };
        let report = StepRows {
            origins: vec![origin],
            rows: vec![first, StepRow { origin: 9, ..ended_row(StepKey::number(1)) }],
            ..StepRows::default()
        };
        let all = StepRecord::all(JobId(3), Sluid(4), &report);
        assert_eq!(all.len(), 1, "the second has no origin");
        let ended = &all[0];
        let had = "cpu=1,gres/gpu=2,gres/gpu:h100=2,mem=300M,node=1";
        assert_eq!((ended.tasks, ended.allocated.to_string().as_str()), (2, had));
        let runs = StepRecord { state: StepState::Running, end: None, ..ended.clone() };
        let again = StepRecord { attempt: 1, ..runs.clone() };
        assert!(ended.follows(&runs) && !runs.follows(ended) && again.follows(ended) && ended.follows(ended));
    }

    #[test]
    fn no_step_outlives_its_run() {
        let mut run = JobRow::of("c", &record(3, JobSpec::default()));
        (run.state, run.start, run.end) = (JobState::NodeFail, Some(Timestamp(1_000)), Some(Timestamp(9_000)));
        let step = |state, end| StepRecord {
            job: JobId(3),
            sluid: run.sluid,
            key: StepKey::BATCH,
            all_of: None,
            name: "batch".into(),
            state,
            reason: Reason::None,
            exit: ExitStatus { code: 0, signal: Some(9) },
            unreported: false,
            start: Some(Timestamp(2_000)),
            end,
            nodes: "n1".into(),
            tasks: 1,
            allocated: Tres::default(),
            time_limit: TimeLimit::Unlimited,
            attempt: 0,
            usage: TaskUsage::default(),
            spread: None,
            submit_line: String::new(),
            cpu_freq: None,
            layout: None,
        };
        let ended = |mut step: StepRecord, run: &JobRow| {
            step.end_with(run);
            (step.state, step.end, step.unreported)
        };
        let (runs, late) = (step(StepState::Running, None), step(StepState::Failed, Some(Timestamp(41_000))));
        let early = step(StepState::Completed, Some(Timestamp(3_000)));
        assert_eq!(ended(runs.clone(), &run), (StepState::Cancelled, run.end, true));
        assert_eq!(ended(late, &run), (StepState::Failed, run.end, false));
        assert_eq!(ended(early, &run), (StepState::Completed, Some(Timestamp(3_000)), false));
        run.end = None;
        assert_eq!(ended(runs, &run), (StepState::Running, None, false));
    }
}
