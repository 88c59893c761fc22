//! From job views to rows: job arrays folded into one row per record or expanded (`-r`), jobs chosen by `-j`, `-u`,
//! `-p`, `-t` and the like, and the order in which they are shown.

use super::fields::Field;
use crate::{
    query::steps::{cut, is_of_job},
    render::words,
};
use garrick_model::{
    ids::JobId,
    messages::command::JobSelector,
    spec::ArraySpec,
    spec_text::licenses::LicenseRequest,
    state::JobState,
    time::Timestamp,
    view::{JobView, NodeView, StepView},
};
use std::{cmp::Ordering, collections::BTreeMap, sync::Arc};

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

    fn first_index(&self) -> Option<u32> {
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

/// States to show.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum States {
    /// Those of jobs that wait, run or are being cleaned up.
    #[default]
    Live,
    /// `all`
    All,
    /// The named ones.
    Only(Vec<JobState>),
}

/// Which jobs are shown. Empty lists choose nothing out.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    /// `-j`
    pub jobs: Vec<JobSelector>,
    /// `-u`, `--me`
    pub users: Vec<u32>,
    /// `-p`
    pub partitions: Vec<String>,
    /// `-n`
    pub names: Vec<String>,
    /// `-A`
    pub accounts: Vec<String>,
    /// `-q`
    pub qos: Vec<String>,
    /// `-L`
    pub licenses: Vec<String>,
    /// `-R`
    pub reservations: Vec<String>,
    /// `-w`
    pub nodes: Vec<String>,
    /// `-t`
    pub states: States,
}

impl States {
    /// Steps that are over may be shown.
    pub fn has_ended_steps(&self) -> bool {
        match self {
            Self::Live => false,
            Self::All => true,
            Self::Only(states) => states.iter().any(|s| !matches!(s, JobState::Pending | JobState::Running)),
        }
    }
}

impl Choice {
    /// Whether that row is shown.
    pub fn takes(&self, row: &JobRow) -> bool {
        let job = &row.job;
        let listed = |list: &[String], value: &str| list.is_empty() || list.iter().any(|v| v == value);
        self.named(row)
            && (self.users.is_empty() || self.users.contains(&job.uid))
            && (self.partitions.is_empty()
                || row
                    .partition
                    .as_ref()
                    .map_or(job.partitions.as_slice(), std::slice::from_ref)
                    .iter()
                    .any(|p| self.partitions.contains(p)))
            && (self.reservations.is_empty() || self.in_reservations(job))
            && listed(&self.names, &job.spec.name)
            && listed(&self.accounts, job.spec.account.as_deref().unwrap_or(""))
            && listed(&self.qos, job.spec.qos.as_deref().unwrap_or(""))
            && (self.licenses.is_empty() || self.with_licenses(job))
            && (self.nodes.is_empty() || self.on_nodes(job))
            && match &self.states {
                States::Live => words::is_live(job.state),
                States::All => true,
                States::Only(states) => {
                    states.contains(&job.state)
                        || (job.state.waits() && states.contains(&JobState::Pending))
                        || (job.state == JobState::Completing && states.contains(&words::base_state(job)))
                }
            }
    }

    fn with_licenses(&self, job: &JobView) -> bool {
        let asked = job.spec.licenses.as_deref().and_then(|text| text.parse::<LicenseRequest>().ok());
        let named = |name: &String| {
            asked.iter().flat_map(|request| &request.alternatives).any(|licenses| licenses.count(name) > 0)
        };
        self.licenses.iter().any(named)
    }

    fn in_reservations(&self, job: &JobView) -> bool {
        let own = job.allocation.as_ref().filter(|_| !job.state.waits()).map(|a| &a.reservation);
        match own {
            Some(one) => one.as_ref().is_some_and(|name| self.reservations.contains(name)),
            None => job.spec.reservations.iter().any(|name| self.reservations.contains(name)),
        }
    }

    fn on_nodes(&self, job: &JobView) -> bool {
        let Some(allocation) = &job.allocation else { return false };
        match job.state {
            JobState::Completing => job.completing_nodes.iter().any(|n| self.nodes.contains(n)),
            _ => allocation.nodes.iter().any(|n| self.nodes.contains(&n.name)),
        }
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
        (self.jobs.is_empty() || self.jobs.iter().any(|wanted| is_of_job(step, job, wanted)))
            && (self.users.is_empty() || self.users.contains(&step.uid))
            && (self.partitions.is_empty() || self.partitions.contains(&step.partition))
            && match &self.states {
                States::Live => !step.state.is_over(),
                States::All => true,
                States::Only(states) => states.iter().any(|s| words::job_state(*s) == words::step_state(step.state)),
            }
    }
}

/// One key of `-S`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SortKey {
    /// By what.
    pub field: Field,
    /// `-`: largest first.
    pub descending: bool,
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

/// Sorts rows by several keys; equal rows stay in their order. With the tiers of partitions, priority is theirs before the
/// jobs'.
pub fn sort(
    rows: &mut [JobRow],
    keys: &[SortKey],
    tiers: Option<&BTreeMap<String, u16>>,
    text: impl Fn(&JobRow, Field) -> String,
) {
    let tier = |row: &JobRow| {
        let partition = row.partition.as_ref().or(row.job.partitions.first());
        tiers.zip(partition).and_then(|(tiers, partition)| tiers.get(partition))
    };
    rows.sort_by(|a, b| {
        compare(keys, |key| match key {
            Field::Priority | Field::PriorityFloat => tier(a).cmp(&tier(b)).then_with(|| by_job(a, b, key, &text)),
            _ => by_job(a, b, key, &text),
        })
    });
}

/// First difference over all keys.
pub fn compare(keys: &[SortKey], mut by: impl FnMut(Field) -> Ordering) -> Ordering {
    keys.iter()
        .map(|key| {
            let order = by(key.field);
            if key.descending { order.reverse() } else { order }
        })
        .find(|order| order.is_ne())
        .unwrap_or(Ordering::Equal)
}

fn by_job(a: &JobRow, b: &JobRow, field: Field, text: impl Fn(&JobRow, Field) -> String) -> Ordering {
    let (x, y) = (&a.job, &b.job);
    let time = |t: Option<Timestamp>| t.unwrap_or_default();
    match field {
        Field::Id | Field::ArrayJobId => (a.array_job(), a.first_index()).cmp(&(b.array_job(), b.first_index())),
        Field::RawId => x.id.cmp(&y.id),
        Field::Priority | Field::PriorityFloat => x.priority.cmp(&y.priority),
        Field::NodeCount => x.min_nodes.cmp(&y.min_nodes),
        Field::Cpus => x.cpus.cmp(&y.cpus),
        Field::Tasks => x.tasks.cmp(&y.tasks),
        Field::Nice => x.spec.nice.cmp(&y.spec.nice),
        Field::Uid => x.uid.cmp(&y.uid),
        Field::Gid => x.gid.cmp(&y.gid),
        Field::StartTime => time(x.start_time).cmp(&time(y.start_time)),
        Field::EndTime | Field::TimeLeft => time(x.end_time).cmp(&time(y.end_time)),
        Field::SubmitTime => x.submit_time.cmp(&y.submit_time),
        Field::TimeUsed => time(y.start_time).cmp(&time(x.start_time)),
        Field::TimeLimit => limit_order(x).cmp(&limit_order(y)),
        other => text(a, other).cmp(&text(b, other)),
    }
}

fn limit_order(job: &JobView) -> u64 {
    job.time_limit.duration().map_or(u64::MAX, |d| d.as_secs())
}
