//! What the tasks of a step used, in the fields of `sacct`: the least, greatest, average and total of each figure, and which task
//! on which node that was. Slurm says nothing of a step of which no task was measured, but that it used no energy.

use super::units::{Unit, Units, elapsed};
use garrick_accounts::step::StepRecord;
use garrick_model::{
    hostlist,
    usage::{Metric, Spread, UsageSpread},
};

/// What several tasks come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sum {
    /// Of all, by the number of tasks; of a script that asked for several, which runs once, its own.
    Average,
    /// Of the task with most.
    Greatest,
    /// Of the task with least.
    Least,
    /// Of all.
    Total,
}

/// Which of a sum is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// How much.
    Value,
    /// The node of the task.
    Node,
    /// The number of the task.
    Task,
}

/// What goes into a task, in the order of the names of TRES.
pub const IN: &[Metric] = &[
    Metric::Cpu,
    Metric::Energy,
    Metric::Read,
    Metric::GpuMemory,
    Metric::GpuUse,
    Metric::Rss,
    Metric::Pages,
    Metric::Vm,
];
/// What comes out of a task. No energy does.
pub const OUT: &[Metric] = &[Metric::Energy, Metric::Written];

/// Its name among TRES.
const fn tres(metric: Metric) -> &'static str {
    match metric {
        Metric::Cpu => "cpu",
        Metric::Energy => "energy",
        Metric::Read | Metric::Written => "fs/disk",
        Metric::GpuMemory => "gres/gpumem",
        Metric::GpuUse => "gres/gpuutil",
        Metric::Rss => "mem",
        Metric::Pages => "pages",
        Metric::Vm => "vmem",
    }
}

/// In a list of TRES.
fn amount(metric: Metric, value: u64, units: Units) -> String {
    match metric {
        Metric::Cpu => elapsed(value / 1_000_000),
        Metric::Rss | Metric::Vm | Metric::GpuMemory => units.amount(value.saturating_mul(1024), Unit::BYTE),
        Metric::Energy | Metric::Pages | Metric::Read | Metric::Written | Metric::GpuUse => value.to_string(),
    }
}

/// In a field of its own, where bytes that were read and written are MiB.
fn alone(metric: Metric, value: u64, units: Units) -> String {
    match metric {
        Metric::Read | Metric::Written => units.fraction(value),
        _ => amount(metric, value, units),
    }
}

/// How many tasks an average is of.
fn tasks(step: &StepRecord) -> u64 {
    if step.spread.as_deref().is_some_and(UsageSpread::is_of_one) { 1 } else { step.tasks.into() }
}

fn value(step: &StepRecord, spread: &Spread, sum: Sum) -> u64 {
    match sum {
        Sum::Average => spread.total.checked_div(tasks(step)).unwrap_or(0),
        Sum::Greatest => spread.greatest.value,
        Sum::Least => spread.least.value,
        Sum::Total => spread.total,
    }
}

/// Number of the task, and its node.
fn whose(step: &StepRecord, spread: &Spread, sum: Sum) -> (u32, String) {
    let extreme = if sum == Sum::Least { spread.least } else { spread.greatest };
    let node = hostlist::expand(&step.nodes).ok().and_then(|nodes| nodes.into_iter().nth(extreme.node as usize));
    (extreme.task, node.unwrap_or_default())
}

/// A field of one figure.
pub fn field(step: &StepRecord, metric: Metric, sum: Sum, part: Part, units: Units) -> String {
    let Some(spread) = step.used(metric) else { return String::new() };
    match part {
        Part::Value => alone(metric, value(step, &spread, sum), units),
        Part::Node => whose(step, &spread, sum).1,
        Part::Task => whose(step, &spread, sum).0.to_string(),
    }
}

/// What is in a list. GPUs are there where a task was seen to use one.
fn used(step: &StepRecord, metric: Metric) -> Option<Spread> {
    let of_gpu = matches!(metric, Metric::GpuMemory | Metric::GpuUse);
    step.used(metric).filter(|spread| !of_gpu || spread.greatest.value > 0)
}

/// A list of figures: `cpu=00:00:00,energy=0,fs/disk=15029,mem=4616K,pages=0,vmem=7280K`.
pub fn list(step: &StepRecord, metrics: &[Metric], sum: Sum, part: Part, units: Units) -> String {
    let word = |metric: &Metric| {
        let spread = used(step, *metric)?;
        let text = match part {
            Part::Value => amount(*metric, figure(step, *metric, metrics, &spread, sum), units),
            Part::Node => whose(step, &spread, sum).1,
            // No task has energy of its own.
            Part::Task if *metric == Metric::Energy => return None,
            Part::Task => whose(step, &spread, sum).0.to_string(),
        };
        Some(format!("{}={text}", tres(*metric)))
    };
    let words: Vec<String> = metrics.iter().filter_map(word).collect();
    let of_all = matches!(sum, Sum::Average | Sum::Total);
    if words.is_empty() && of_all && step.end.is_some() { "energy=0".to_owned() } else { words.join(",") }
}

fn figure(step: &StepRecord, metric: Metric, among: &[Metric], spread: &Spread, sum: Sum) -> u64 {
    if metric == Metric::Energy && among == OUT { 0 } else { value(step, spread, sum) }
}

/// Names and counts of a list, as programs read them: CPU time in milliseconds, memory in bytes.
pub fn counts(step: &StepRecord, metrics: &[Metric], sum: Sum) -> Vec<(&'static str, u64)> {
    let count = |metric: &Metric| {
        let value = figure(step, *metric, metrics, &used(step, *metric)?, sum);
        let value = match metric {
            Metric::Cpu => value / 1000,
            Metric::Rss | Metric::Vm | Metric::GpuMemory => value.saturating_mul(1024),
            _ => value,
        };
        Some((tres(*metric), value))
    };
    let counts: Vec<(&'static str, u64)> = metrics.iter().filter_map(count).collect();
    let of_all = matches!(sum, Sum::Average | Sum::Total);
    if counts.is_empty() && of_all && step.end.is_some() { vec![("energy", 0)] } else { counts }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::testing::accounting::{job, step};
    use garrick_model::usage::{StepUsage, TaskUsage};
    use std::sync::Arc;

    fn two_tasks() -> StepRecord {
        let mut used = StepUsage::new(2);
        let task = |secs: u64, rss, read, written| TaskUsage {
            user_us: secs * 1_000_000,
            max_rss_kib: rss,
            max_vm_kib: 2920,
            read,
            written,
            ..TaskUsage::default()
        };
        used.add(1, 1, task(7, 1656, 6977, 1));
        used.add(0, 0, task(3, 1564, 27_424, 5_242_880));
        let (usage, spread) = used.finish();
        StepRecord { tasks: 2, nodes: "n[1,3]".into(), usage, spread, ..step(&job(14, "a", 0, 9), "0", "a") }
    }

    #[test]
    fn least_greatest_average_and_total_have_their_tasks_and_nodes() {
        let step = two_tasks();
        let one = |metric, sum, part| field(&step, metric, sum, part, Units::Short);
        assert_eq!(one(Metric::Rss, Sum::Greatest, Part::Value), "1656K");
        assert_eq!(one(Metric::Rss, Sum::Greatest, Part::Node), "n3");
        assert_eq!(one(Metric::Rss, Sum::Greatest, Part::Task), "1");
        assert_eq!(one(Metric::Rss, Sum::Average, Part::Value), "1610K");
        assert_eq!(one(Metric::Cpu, Sum::Least, Part::Value), "00:00:03");
        assert_eq!(one(Metric::Cpu, Sum::Least, Part::Node), "n1");
        assert_eq!(one(Metric::Read, Sum::Greatest, Part::Value), "0.03M");
        assert_eq!(one(Metric::Written, Sum::Average, Part::Value), "2.50M");
        let all = |metrics, sum, part| list(&step, metrics, sum, part, Units::Short);
        let max = "cpu=00:00:07,energy=0,fs/disk=27424,mem=1656K,pages=0,vmem=2920K";
        assert_eq!(all(IN, Sum::Greatest, Part::Value), max);
        let total = "cpu=00:00:10,energy=0,fs/disk=34401,mem=3220K,pages=0,vmem=5840K";
        assert_eq!(all(IN, Sum::Total, Part::Value), total);
        assert_eq!(all(IN, Sum::Greatest, Part::Task), "cpu=1,fs/disk=0,mem=1,pages=0,vmem=0");
        assert_eq!(all(IN, Sum::Greatest, Part::Node), "cpu=n3,energy=n1,fs/disk=n1,mem=n3,pages=n1,vmem=n1");
        assert_eq!(all(OUT, Sum::Least, Part::Value), "energy=0,fs/disk=1");
        assert_eq!(all(OUT, Sum::Least, Part::Node), "energy=n1,fs/disk=n3");
        assert_eq!(
            counts(&step, IN, Sum::Least),
            [("cpu", 3000), ("energy", 0), ("fs/disk", 6977), ("mem", 1564 << 10), ("pages", 0), ("vmem", 2920 << 10)]
        );
    }

    #[test]
    fn the_average_of_a_script_that_asked_for_several_tasks_is_its_own() {
        let usage = TaskUsage { max_rss_kib: 1656, ..TaskUsage::default() };
        let spread = Some(Arc::new(UsageSpread::of_one(&usage, 0, 0)));
        let step = StepRecord { tasks: 4, usage, spread, ..step(&job(14, "a", 0, 9), "0", "a") };
        assert_eq!(field(&step, Metric::Rss, Sum::Average, Part::Value, Units::Short), "1656K");
    }

    /// As Slurm's page about generic resources shows them.
    #[test]
    fn gpus_are_there_where_they_are_used() {
        let gpu = |gpu_memory_kib, gpu_percent| TaskUsage {
            max_rss_kib: 628_748,
            gpu_memory_kib,
            gpu_percent,
            ..TaskUsage::default()
        };
        let mut used = StepUsage::new(2);
        used.add(0, 0, gpu(36_266 << 10, 100));
        used.add(1, 0, gpu(36_266 << 10, 80));
        let (usage, spread) = used.finish();
        let step = StepRecord { tasks: 2, usage, spread, ..step(&job(14, "a", 0, 9), "0", "a") };
        assert_eq!(
            list(&step, IN, Sum::Total, Part::Value, Units::Short),
            "cpu=00:00:00,energy=0,fs/disk=0,gres/gpumem=72532M,gres/gpuutil=180,mem=1257496K,pages=0,vmem=0"
        );
        assert_eq!(counts(&step, &[Metric::GpuMemory], Sum::Greatest), [("gres/gpumem", 36_266 << 20)]);
    }

    /// As Slurm 26.05.3 told of `extern`.
    #[test]
    fn of_a_step_without_a_measured_task_there_is_no_more_than_no_energy() {
        let row = job(14, "a", 0, 9);
        let over = step(&row, "extern", "extern");
        let runs = StepRecord { end: None, ..over.clone() };
        for (sum, want) in [(Sum::Average, "energy=0"), (Sum::Total, "energy=0"), (Sum::Greatest, ""), (Sum::Least, "")]
        {
            for metrics in [IN, OUT] {
                assert_eq!(list(&over, metrics, sum, Part::Value, Units::Short), want);
                assert_eq!(list(&runs, metrics, sum, Part::Value, Units::Short), "");
            }
        }
        assert_eq!(field(&over, Metric::Rss, Sum::Greatest, Part::Node, Units::Short), "");
        assert_eq!(counts(&over, IN, Sum::Total), [("energy", 0)]);
    }
}
