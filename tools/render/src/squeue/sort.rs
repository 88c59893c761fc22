//! The order in which `squeue` shows jobs.

use super::fields::Field;
use crate::job_rows::JobRow;
use garrick_model::{time::Timestamp, view::JobView};
use std::{cmp::Ordering, collections::BTreeMap};

/// One key of `-S`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SortKey {
    /// By what.
    pub field: Field,
    /// `-`: largest first.
    pub descending: bool,
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
