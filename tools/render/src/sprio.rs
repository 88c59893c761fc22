//! Fields of `sprio`: their letters and headings, and the text of a job or of the weights in each.

use crate::words;
use garrick_model::messages::priority::{JobPriority, PriorityWeights};
use std::cmp::Ordering;

/// A factor with a weight of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Factor {
    /// `a`
    Age,
    /// `b`
    Assoc,
    /// `f`
    Fairshare,
    /// `j`
    JobSize,
    /// `p`
    Partition,
    /// `q`
    Qos,
}

/// What is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Job id.
    Id,
    /// Partition's name.
    PartitionName,
    /// User's name.
    User,
    /// Account.
    Account,
    /// QOS's name.
    QosName,
    /// Cluster's name.
    Cluster,
    /// Priority.
    Priority,
    /// Priority by the greatest number there is.
    PriorityNorm,
    /// A factor times its weight.
    Weighted(Factor),
    /// A factor.
    Norm(Factor),
    /// Weighted TRES.
    Tres,
    /// TRES.
    TresNorm,
    /// Site factor.
    Site,
    /// Nice.
    Nice,
}

/// A field in the table.
#[derive(Debug)]
pub struct Entry {
    /// Letter.
    pub letter: char,
    /// What it shows.
    pub kind: Kind,
    /// Heading.
    pub title: &'static str,
}

const fn entry(letter: char, kind: Kind, title: &'static str) -> Entry {
    Entry { letter, kind, title }
}

static FIELDS: &[Entry] = &[
    entry('a', Kind::Norm(Factor::Age), "AGE"),
    entry('A', Kind::Weighted(Factor::Age), "AGE"),
    entry('b', Kind::Norm(Factor::Assoc), "ASSOC"),
    entry('B', Kind::Weighted(Factor::Assoc), "ASSOC"),
    entry('c', Kind::Cluster, "CLUSTER"),
    entry('f', Kind::Norm(Factor::Fairshare), "FAIRSHARE"),
    entry('F', Kind::Weighted(Factor::Fairshare), "FAIRSHARE"),
    entry('i', Kind::Id, "JOBID"),
    entry('j', Kind::Norm(Factor::JobSize), "JOBSIZE"),
    entry('J', Kind::Weighted(Factor::JobSize), "JOBSIZE"),
    entry('n', Kind::QosName, "QOSNAME"),
    entry('N', Kind::Nice, "NICE"),
    entry('o', Kind::Account, "ACCOUNT"),
    entry('p', Kind::Norm(Factor::Partition), "PARTITION"),
    entry('P', Kind::Weighted(Factor::Partition), "PARTITION"),
    entry('q', Kind::Norm(Factor::Qos), "QOS"),
    entry('Q', Kind::Weighted(Factor::Qos), "QOS"),
    entry('r', Kind::PartitionName, "PARTITION"),
    entry('S', Kind::Site, "SITE"),
    entry('t', Kind::TresNorm, "TRES"),
    entry('T', Kind::Tres, "TRES"),
    entry('u', Kind::User, "USER"),
    entry('y', Kind::PriorityNorm, "PRIORITY"),
    entry('Y', Kind::Priority, "PRIORITY"),
];

/// The entry with that letter.
pub fn by_letter(letter: char) -> Option<&'static Entry> {
    FIELDS.iter().find(|e| e.letter == letter)
}

impl Factor {
    const fn of(self, job: &JobPriority) -> f64 {
        match self {
            Self::Age => job.age,
            Self::Assoc => job.assoc,
            Self::Fairshare => job.fairshare,
            Self::JobSize => job.job_size,
            Self::Partition => job.partition_factor,
            Self::Qos => job.qos,
        }
    }

    const fn weight(self, weights: &PriorityWeights) -> u32 {
        match self {
            Self::Age => weights.age,
            Self::Assoc => weights.assoc,
            Self::Fairshare => weights.fairshare,
            Self::JobSize => weights.job_size,
            Self::Partition => weights.partition,
            Self::Qos => weights.qos,
        }
    }
}

fn id(job: &JobPriority) -> String {
    job.array_task.map_or_else(|| job.job.to_string(), |task| format!("{}_{}", task.array_job, task.index))
}

fn priority_norm(job: &JobPriority) -> f64 {
    f64::from(job.priority) / f64::from(u32::MAX)
}

fn tres(job: &JobPriority, weights: &PriorityWeights, cell: impl Fn(&str, f64, f64) -> String) -> String {
    let parts = weights.tres.iter().zip(&job.tres).map(|((name, weight), factor)| cell(name, *weight, *factor));
    parts.collect::<Vec<_>>().join(",")
}

/// A job's value.
pub fn value(kind: Kind, job: &JobPriority, weights: &PriorityWeights) -> String {
    match kind {
        Kind::Id => id(job),
        Kind::PartitionName => job.partition.clone(),
        Kind::User => job.user.clone(),
        Kind::Account => words::cell_or_null(job.account.as_deref()),
        Kind::QosName => words::cell_or_null(job.qos_name.as_deref()),
        Kind::Cluster => words::cell_or_null(None),
        Kind::Priority => job.priority.to_string(),
        Kind::PriorityNorm => format!("{:.14}", priority_norm(job)),
        Kind::Weighted(factor) => format!("{:.0}", factor.of(job) * f64::from(factor.weight(weights))),
        Kind::Norm(factor) => format!("{:.7}", factor.of(job)),
        Kind::Tres => tres(job, weights, |name, weight, factor| format!("{name}={:.0}", weight * factor)),
        Kind::TresNorm => tres(job, weights, |name, _, factor| format!("{name}={factor:.2}")),
        Kind::Site => job.site.to_string(),
        Kind::Nice => job.nice.to_string(),
    }
}

/// What `-w` shows.
pub fn weight(kind: Kind, weights: &PriorityWeights) -> String {
    match kind {
        Kind::Id => "Weights".to_owned(),
        Kind::Weighted(factor) | Kind::Norm(factor) => factor.weight(weights).to_string(),
        Kind::Tres => weights.tres_text.clone().unwrap_or_default(),
        Kind::Site => "1".to_owned(),
        _ => String::new(),
    }
}

/// Order by a field: numbers as numbers.
pub fn compare(kind: Kind, a: &JobPriority, b: &JobPriority, weights: &PriorityWeights) -> Ordering {
    let task =
        |job: &JobPriority| (job.array_task.map_or(job.job, |t| t.array_job), job.array_task.map(|t| t.index), job.job);
    match kind {
        Kind::Id => task(a).cmp(&task(b)),
        Kind::Priority | Kind::PriorityNorm => a.priority.cmp(&b.priority),
        Kind::Weighted(factor) | Kind::Norm(factor) => factor.of(a).total_cmp(&factor.of(b)),
        Kind::Site => a.site.cmp(&b.site),
        Kind::Nice => a.nice.cmp(&b.nice),
        other => value(other, a, weights).cmp(&value(other, b, weights)),
    }
}
