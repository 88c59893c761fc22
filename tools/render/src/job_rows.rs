//! From job views to rows: folds job arrays into one row per record or expands them (`-r`), selects jobs by `-j`, `-u`, `-p`,
//! `-t` and so on, and sorts them.

use crate::{
    step_lines::{cut, is_of_job},
    words,
};
use garrick_model::{
    ids::JobId,
    job_query::{JobQuery, JobStates},
    messages::command::JobSelector,
    spec::ArraySpec,
    state::JobState,
    view::{JobView, NodeView, StepView},
};
use std::sync::Arc;

/// Which part of its job a row shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// The job, or the task of an array that it is.
    Whole,
    /// The tasks of an array that were not split off yet.
    Waiting(ArraySpec),
    /// One of those, shown alone (`-r`).
    WaitingTask(u32),
}

/// One line of `squeue`.
#[derive(Clone, Debug)]
pub struct JobRow {
    /// The job.
    pub job: Arc<JobView>,
    /// Which part of it.
    pub part: Part,
    /// The one partition of several that this row is about (`-P`).
    pub partition: Option<String>,
}

/// Whether arrays are one row for all tasks that wait, or a row for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrays {
    /// `504_[3-20%2]`
    Folded,
    /// `504_3`, `504_4`, ...
    Expanded,
}

impl JobRow {
    /// Rows of these jobs, in the order in which equal rows are shown: newest submission first, tasks ascending.
    pub fn list(jobs: &[Arc<JobView>], arrays: Arrays) -> Vec<Self> {
        let mut rows = Vec::with_capacity(jobs.len());
        for job in jobs {
            match &job.array_pending {
                Some(spec) if spec.is_empty() && job.array_task.is_none() => {}
                Some(spec) if !spec.is_empty() && arrays == Arrays::Expanded => {
                    rows.extend(spec.indices().map(|i| Self {
                        job: job.clone(),
                        part: Part::WaitingTask(i),
                        partition: None,
                    }));
                }
                Some(spec) if !spec.is_empty() => {
                    rows.push(Self { job: job.clone(), part: Part::Waiting(spec.clone()), partition: None });
                }
                _ => rows.push(Self { job: job.clone(), part: Part::Whole, partition: None }),
            }
        }
        rows.sort_by_key(|r| (std::cmp::Reverse(r.array_job()), r.first_index(), r.job.id));
        rows
    }

    /// A row for each partition that a waiting job may start in.
    pub fn in_each_partition(self) -> Vec<Self> {
        match self.job.partitions.as_slice() {
            [_, _, ..] if self.job.state.waits() => {
                let names = self.job.partitions.iter();
                names.map(|name| Self { partition: Some(name.clone()), ..self.clone() }).collect()
            }
            _ => vec![self],
        }
    }

    /// The id that `sbatch` printed.
    pub fn array_job(&self) -> JobId {
        self.job.array_task.map_or(self.job.id, |t| t.array_job)
    }

    pub(crate) fn first_index(&self) -> Option<u32> {
        match &self.part {
            Part::Whole => self.job.array_task.map(|t| t.index),
            Part::Waiting(spec) => spec.indices().next(),
            Part::WaitingTask(i) => Some(*i),
        }
    }

    /// `3`, `3-20%2`, or nothing for a job that is no array. Long lists are cut to `limit` characters.
    pub fn task_text(&self, limit: Option<usize>) -> Option<String> {
        match &self.part {
            Part::Whole => self.job.array_task.map(|t| t.index.to_string()),
            Part::WaitingTask(i) => Some(i.to_string()),
            Part::Waiting(spec) => Some(cut(spec, limit)),
        }
    }

    /// `503`, `504_1`, `504_[3-20%2]`, `600+1`.
    pub fn id_text(&self, limit: Option<usize>) -> String {
        let base = self.array_job();
        match (&self.part, self.task_text(limit)) {
            (Part::Waiting(_), Some(tasks)) => format!("{base}_[{tasks}]"),
            (_, Some(task)) => format!("{base}_{task}"),
            (_, None) => match self.job.spec.het {
                Some((leader, offset)) => format!("{leader}+{offset}"),
                None => base.to_string(),
            },
        }
    }
}

/// Which jobs are shown.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    /// `-j`; empty: all.
    pub jobs: Vec<JobSelector>,
    /// `--notme`: none of this user's.
    pub not_of: Option<u32>,
    /// By what they are.
    pub such: JobQuery,
}

/// Steps that are over may be shown.
pub fn has_ended_steps(states: &JobStates) -> bool {
    match states {
        JobStates::Live => false,
        JobStates::All => true,
        JobStates::Only(states) => states.iter().any(|s| !matches!(s, JobState::Pending | JobState::Running)),
    }
}

impl Choice {
    /// Whether that row is shown.
    pub fn takes(&self, row: &JobRow) -> bool {
        let of_partition =
            row.partition.as_ref().is_none_or(|p| self.such.partitions.is_empty() || self.such.partitions.contains(p));
        self.not_of != Some(row.job.uid) && self.named(row) && of_partition && self.such.takes(&row.job)
    }

    fn named(&self, row: &JobRow) -> bool {
        self.jobs.is_empty()
            || self.jobs.iter().any(|wanted| match &wanted.tasks {
                None if wanted.run.is_some() => wanted.run == Some(row.job.sluid),
                None if wanted.het.is_some() => row.job.spec.het == wanted.het.map(|offset| (wanted.job, offset)),
                None if row.job.spec.het.is_some_and(|(leader, _)| leader == wanted.job) => true,
                None => wanted.job == row.job.id || wanted.job == row.array_job(),
                Some(_) => {
                    wanted.job == row.array_job()
                        && match &row.part {
                            Part::Whole => row.job.array_task.is_some_and(|t| wanted.has_task(t.index)),
                            Part::WaitingTask(i) => wanted.has_task(*i),
                            Part::Waiting(spec) => spec.indices().any(|i| wanted.has_task(i)),
                        }
                }
            })
    }

    /// Whether a step of that job is shown.
    pub fn takes_step(&self, step: &StepView, job: Option<&JobView>) -> bool {
        self.not_of != Some(step.uid)
            && (self.jobs.is_empty() || self.jobs.iter().any(|wanted| is_of_job(step, job, wanted)))
            && (self.such.users.is_empty() || self.such.users.contains(&step.uid))
            && (self.such.partitions.is_empty() || self.such.partitions.contains(&step.partition))
            && match &self.such.states {
                JobStates::Live => !step.state.is_over(),
                JobStates::All => true,
                JobStates::Only(states) => states.iter().any(|s| words::job_state(*s) == words::step_state(step.state)),
            }
    }
}

/// Makes of what `-w` names the nodes' names. `Err`: the first that is none.
pub fn node_names(names: &mut Vec<String>, nodes: &[Arc<NodeView>], here: &str) -> Result<(), String> {
    let mut found = Vec::with_capacity(names.len());
    for name in names.iter() {
        let wanted = if name == "localhost" { here } else { name };
        let before = found.len();
        match nodes.iter().find(|node| node.name == *name) {
            Some(node) => found.push(node.name.clone()),
            // Several nodes may be on one host.
            None => found.extend(nodes.iter().filter(|node| node.hostname == wanted).map(|node| node.name.clone())),
        }
        if found.len() == before {
            return Err(name.clone());
        }
    }
    *names = found;
    Ok(())
}
