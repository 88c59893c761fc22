//! The order in which `squeue` shows jobs.

use super::fields::{Entry, Order, Setting};
use crate::{job_rows::JobRow, step_lines::StepLine};
use std::{cmp::Ordering, collections::BTreeMap};

/// One key of `-S`.
#[derive(Clone, Copy, Debug)]
pub struct SortKey {
    /// By what.
    pub field: &'static Entry,
    /// `-`: largest first.
    pub descending: bool,
}

/// Sorts rows by several keys; equal rows stay in their order. With the tiers of partitions, priority is theirs before the
/// jobs'.
pub fn sort(rows: &mut [JobRow], keys: &[SortKey], tiers: Option<&BTreeMap<String, u16>>, setting: &Setting<'_>) {
    let tier = |row: &JobRow| {
        let partition = row.partition.as_ref().or(row.job.partitions.first());
        tiers.zip(partition).and_then(|(tiers, partition)| tiers.get(partition))
    };
    rows.sort_by(|a, b| {
        compare(keys, |field| match field.order {
            Order::Jobs(order) => order(a, b),
            Order::Priority => tier(a).cmp(&tier(b)).then_with(|| a.job.priority.cmp(&b.job.priority)),
            Order::Text | Order::Steps(_) => field.of_job(a, setting).cmp(&field.of_job(b, setting)),
        })
    });
}

/// The same of steps.
pub fn sort_steps(lines: &mut [StepLine<'_>], keys: &[SortKey], setting: &Setting<'_>) {
    lines.sort_by(|a, b| {
        compare(keys, |field| match field.order {
            Order::Steps(order) => order(a, b),
            _ => field.of_step(a, setting).cmp(&field.of_step(b, setting)),
        })
    });
}

/// First difference over all keys.
fn compare(keys: &[SortKey], by: impl Fn(&Entry) -> Ordering) -> Ordering {
    let mut orders = keys.iter().map(|key| if key.descending { by(key.field).reverse() } else { by(key.field) });
    orders.find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
}
