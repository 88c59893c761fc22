//! What tasks used, and what the tasks of a step used together.

use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Resources a task used; or all tasks of a step, where times and amounts add up and of peaks the greatest stays. What is zero
/// takes no room in messages: most tasks are short.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskUsage {
    /// User CPU time, microseconds.
    pub user_us: u64,
    /// System CPU time, microseconds.
    pub system_us: u64,
    /// Peak resident set, KiB.
    pub max_rss_kib: u64,
    /// It was not more than that: the kernel tells, at the end of a task that had less than its launcher, what the launcher had. What
    /// was seen while the task ran is better.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rss_is_bound: bool,
    /// Peak virtual memory, KiB. The kernel does not tell it at the end: it is the greatest that was seen while the task ran.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub max_vm_kib: u64,
    /// Page faults that read from a disk.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub pages: u64,
    /// Bytes read, from whatever (`rchar` of proc(5)).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub read: u64,
    /// Bytes written (`wchar`).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub written: u64,
    /// Energy of the node while the step ran there, joules; that of the last task on the node is the node's.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub energy_joules: u64,
    /// Greatest memory on GPUs that was seen, KiB.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub gpu_memory_kib: u64,
    /// Greatest use of GPUs that was seen, percent of one.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub gpu_percent: u64,
    /// The frequency of the CPU on which it was seen last, kHz; of several tasks their sum.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub frequency_khz: u64,
}

#[allow(clippy::trivially_copy_pass_by_ref)]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// What a running task uses, with all processes that came of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TaskSample {
    /// Rank.
    pub rank: u32,
    /// Its processes, the first one first.
    pub pids: Vec<u32>,
    /// CPU time so far, of ended processes that were waited for too, microseconds.
    pub cpu_us: u64,
    /// Greatest resident set that was seen: at least that of now, and the peak of each process; bytes.
    pub rss: u64,
    /// Greatest virtual memory that was seen: at least that of now, and the peak of each process; bytes.
    pub vsize: u64,
    /// Resident set now, bytes.
    pub rss_now: u64,
    /// Virtual memory now, bytes.
    pub vsize_now: u64,
    /// Page faults that read from a disk.
    pub pages: u64,
    /// Bytes read so far, from whatever.
    pub read: u64,
    /// Bytes written so far.
    pub written: u64,
    /// The frequency of the CPU that it ran on last, kHz; 0: not known.
    pub frequency_khz: u64,
    /// Memory on GPUs now, bytes.
    pub gpu_memory: u64,
    /// Use of GPUs lately, percent of one.
    pub gpu_percent: u64,
}

impl TaskUsage {
    /// Of several tasks: times and amounts add up, peaks are those of the greatest.
    pub fn add(&mut self, other: Self) {
        self.user_us = self.user_us.saturating_add(other.user_us);
        self.system_us = self.system_us.saturating_add(other.system_us);
        self.max_rss_kib = self.max_rss_kib.max(other.max_rss_kib);
        self.max_vm_kib = self.max_vm_kib.max(other.max_vm_kib);
        self.pages = self.pages.saturating_add(other.pages);
        self.read = self.read.saturating_add(other.read);
        self.written = self.written.saturating_add(other.written);
        self.energy_joules = self.energy_joules.saturating_add(other.energy_joules);
        self.gpu_memory_kib = self.gpu_memory_kib.max(other.gpu_memory_kib);
        self.gpu_percent = self.gpu_percent.max(other.gpu_percent);
        self.frequency_khz = self.frequency_khz.saturating_add(other.frequency_khz);
    }

    /// What was seen of a task while it ran: the kernel tells more at its end, but not of processes that nobody waited for.
    pub fn saw(&mut self, sample: &TaskSample) {
        self.user_us = self.user_us.max(sample.cpu_us);
        self.max_rss_kib = self.max_rss_kib.max(sample.rss / 1024);
        self.max_vm_kib = self.max_vm_kib.max(sample.vsize / 1024);
        self.pages = self.pages.max(sample.pages);
        self.read = self.read.max(sample.read);
        self.written = self.written.max(sample.written);
        self.gpu_memory_kib = self.gpu_memory_kib.max(sample.gpu_memory / 1024);
        self.gpu_percent = self.gpu_percent.max(sample.gpu_percent);
        if sample.frequency_khz > 0 {
            self.frequency_khz = sample.frequency_khz;
        }
    }

    /// The end of a task of which this was seen before.
    pub fn with_seen(self, seen: Self) -> Self {
        // Time of processes that nobody waited for.
        let more_us = seen.cpu_us().saturating_sub(self.cpu_us());
        let is_better = self.rss_is_bound && seen.max_rss_kib > 0;
        let at_end_kib = if is_better { 0 } else { self.max_rss_kib };
        Self {
            rss_is_bound: self.rss_is_bound && !is_better,
            user_us: self.user_us.saturating_add(more_us),
            max_rss_kib: at_end_kib.max(seen.max_rss_kib),
            max_vm_kib: self.max_vm_kib.max(seen.max_vm_kib),
            pages: self.pages.max(seen.pages),
            read: self.read.max(seen.read),
            written: self.written.max(seen.written),
            gpu_memory_kib: self.gpu_memory_kib.max(seen.gpu_memory_kib),
            gpu_percent: self.gpu_percent.max(seen.gpu_percent),
            frequency_khz: self.frequency_khz.max(seen.frequency_khz),
            ..self
        }
    }

    /// What the kernel tells at the end of a task, which its launcher passes on. The rest is for others to find out.
    #[must_use]
    pub const fn told_at_end(self) -> Self {
        Self { max_vm_kib: 0, energy_joules: 0, gpu_memory_kib: 0, gpu_percent: 0, frequency_khz: 0, ..self }
    }

    /// CPU time, microseconds.
    pub const fn cpu_us(&self) -> u64 {
        self.user_us.saturating_add(self.system_us)
    }

    /// A process was measured: each has some memory.
    pub const fn is_measured(&self) -> bool {
        self.max_rss_kib > 0
    }

    /// One figure of it.
    pub const fn of(&self, metric: Metric) -> u64 {
        match metric {
            Metric::Cpu => self.cpu_us(),
            Metric::Rss => self.max_rss_kib,
            Metric::Vm => self.max_vm_kib,
            Metric::Pages => self.pages,
            Metric::Read => self.read,
            Metric::Written => self.written,
            Metric::Energy => self.energy_joules,
            Metric::GpuMemory => self.gpu_memory_kib,
            Metric::GpuUse => self.gpu_percent,
        }
    }
}

/// A figure of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// CPU time, microseconds.
    Cpu,
    /// Peak resident set, KiB.
    Rss,
    /// Peak virtual memory, KiB.
    Vm,
    /// Page faults that read from a disk.
    Pages,
    /// Bytes read.
    Read,
    /// Bytes written.
    Written,
    /// Joules.
    Energy,
    /// Peak memory on GPUs, KiB.
    GpuMemory,
    /// Peak use of GPUs, percent of one.
    GpuUse,
}

impl Metric {
    /// All, in the order in which they are kept.
    pub const ALL: [Self; 9] = [
        Self::Cpu,
        Self::Rss,
        Self::Vm,
        Self::Pages,
        Self::Read,
        Self::Written,
        Self::Energy,
        Self::GpuMemory,
        Self::GpuUse,
    ];
}

/// The task that has least or most of something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extreme {
    /// How much.
    pub value: u64,
    /// Its rank.
    pub task: u32,
    /// Index of its node among the step's.
    pub node: u32,
}

/// What all tasks of a step have of something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spread {
    /// Of all together.
    pub total: u64,
    /// Of the task with least; of equal ones that of the lowest rank.
    pub least: Extreme,
    /// Of the task with most.
    pub greatest: Extreme,
}

impl Spread {
    /// Of a single task.
    pub const fn of_one(value: u64, task: u32, node: u32) -> Self {
        let one = Extreme { value, task, node };
        Self { total: value, least: one, greatest: one }
    }

    fn add(&mut self, value: u64, task: u32, node: u32) {
        self.total = self.total.saturating_add(value);
        if (value, task) < (self.least.value, self.least.task) {
            self.least = Extreme { value, task, node };
        }
        if value > self.greatest.value || (value == self.greatest.value && task < self.greatest.task) {
            self.greatest = Extreme { value, task, node };
        }
    }
}

/// How the use of a step is spread over its tasks. Only steps of several tasks have one. It is kept as a list of numbers, in the
/// order of [`Metric::ALL`]: a reader of an earlier version passes over those behind the ones that it knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<u64>", into = "Vec<u64>")]
pub struct UsageSpread([Spread; Metric::ALL.len()]);

impl UsageSpread {
    /// Of a step with one task.
    pub fn of_one(usage: &TaskUsage, task: u32, node: u32) -> Self {
        Self(Metric::ALL.map(|metric| Spread::of_one(usage.of(metric), task, node)))
    }

    /// One figure.
    pub const fn of(&self, metric: Metric) -> Spread {
        self.0[metric as usize]
    }

    /// Only one task was measured: each has some memory.
    pub const fn is_of_one(&self) -> bool {
        let memory = self.of(Metric::Rss);
        memory.total == memory.greatest.value
    }
}

impl From<UsageSpread> for Vec<u64> {
    fn from(spread: UsageSpread) -> Self {
        let numbers = |one: Extreme| [one.value, one.task.into(), one.node.into()];
        let of = |one: &Spread| [&[one.total][..], &numbers(one.least), &numbers(one.greatest)].concat();
        let mut all: Self = spread.0.iter().flat_map(of).collect();
        // Figures that nobody measured are the last ones, and need not be written.
        all.truncate(all.iter().rposition(|number| *number != 0).map_or(0, |last| last + 1));
        all
    }
}

impl From<Vec<u64>> for UsageSpread {
    fn from(numbers: Vec<u64>) -> Self {
        let mut numbers = numbers.into_iter();
        let mut next = || numbers.next().unwrap_or(0);
        let mut spread = Self([Spread::default(); Metric::ALL.len()]);
        for one in &mut spread.0 {
            one.total = next();
            for extreme in [&mut one.least, &mut one.greatest] {
                extreme.value = next();
                extreme.task = u32::try_from(next()).unwrap_or(u32::MAX);
                extreme.node = u32::try_from(next()).unwrap_or(u32::MAX);
            }
        }
        spread
    }
}

/// What tasks of a step used, as their ends become known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepUsage {
    total: TaskUsage,
    several: bool,
    spread: Option<Box<UsageSpread>>,
}

impl StepUsage {
    /// Of a step with so many tasks.
    pub fn new(tasks: usize) -> Self {
        Self { several: tasks > 1, ..Self::default() }
    }

    /// A task has ended. `node`: index among the step's nodes.
    pub fn add(&mut self, task: u32, node: u32, usage: TaskUsage) {
        self.total.add(usage);
        if !self.several || !usage.is_measured() {
            return;
        }
        match &mut self.spread {
            None => self.spread = Some(Box::new(UsageSpread::of_one(&usage, task, node))),
            Some(spread) => {
                for (one, metric) in spread.0.iter_mut().zip(Metric::ALL) {
                    one.add(usage.of(metric), task, node);
                }
            }
        }
    }

    /// What they come to.
    pub fn finish(self) -> (TaskUsage, Option<Arc<UsageSpread>>) {
        (self.total, self.spread.map(|spread| Arc::new(*spread)))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn usage(user_us: u64, read: u64) -> TaskUsage {
        TaskUsage { user_us, max_rss_kib: 10, read, ..TaskUsage::default() }
    }

    #[test]
    fn the_tasks_with_least_and_most_are_known_in_whatever_order_they_end() {
        let tasks = [(0, 0, usage(5, 70)), (1, 0, usage(9, 70)), (2, 1, usage(2, 30)), (3, 1, usage(9, 0))];
        for order in [[0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1]] {
            let mut sum = StepUsage::new(4);
            order.into_iter().for_each(|at: usize| sum.add(tasks[at].0, tasks[at].1, tasks[at].2));
            // One that never ran is not the one with least.
            sum.add(4, 1, TaskUsage::default());
            let (total, spread) = sum.finish();
            assert_eq!((total.user_us, total.read, total.max_rss_kib), (25, 170, 10));
            let spread = spread.unwrap();
            let cpu = spread.of(Metric::Cpu);
            assert_eq!((cpu.total, cpu.least), (25, Extreme { value: 2, task: 2, node: 1 }));
            assert_eq!(cpu.greatest, Extreme { value: 9, task: 1, node: 0 });
            let read = spread.of(Metric::Read);
            assert_eq!((read.greatest.task, read.least), (0, Extreme { value: 0, task: 3, node: 1 }));
            assert_eq!(spread.of(Metric::Rss).total, 40);
        }
    }

    #[test]
    fn a_step_of_one_task_needs_no_spread() {
        let mut sum = StepUsage::new(1);
        sum.add(0, 0, usage(5, 7));
        assert_eq!(sum.finish(), (usage(5, 7), None));
    }

    #[test]
    fn what_is_not_measured_takes_no_room_and_what_is_longer_is_read() {
        #[derive(Serialize)]
        struct Earlier {
            user_us: u64,
            system_us: u64,
            max_rss_kib: u64,
        }
        let short = rmp_serde::to_vec_named(&TaskUsage { user_us: 1, ..TaskUsage::default() }).unwrap();
        let earlier = rmp_serde::to_vec_named(&Earlier { user_us: 1, system_us: 0, max_rss_kib: 0 }).unwrap();
        assert_eq!(short, earlier);
        let mut sum = StepUsage::new(2);
        sum.add(0, 0, usage(5, 7));
        sum.add(1, 3, usage(6, 0));
        let spread = sum.finish().1.unwrap();
        let mut numbers: Vec<u64> = UsageSpread::clone(&spread).into();
        assert_eq!(numbers.len(), 5 * 7 - 2, "the last figure that anybody has is what the first task read");
        assert_eq!(UsageSpread::from(numbers.clone()), *spread);
        numbers.resize(200, 9);
        assert_eq!(UsageSpread::from(numbers).of(Metric::Cpu), spread.of(Metric::Cpu));
        let packed = rmp_serde::to_vec_named(&*spread).unwrap();
        assert_eq!(rmp_serde::from_slice::<UsageSpread>(&packed).unwrap(), *spread);
    }

    #[test]
    fn what_was_seen_completes_what_the_kernel_tells_at_the_end() {
        let mut seen = TaskUsage::default();
        seen.saw(&TaskSample { rss: 5 << 20, vsize: 9 << 20, read: 10, written: 3, ..TaskSample::default() });
        seen.saw(&TaskSample { rss: 1 << 20, vsize: 1 << 20, read: 12, written: 3, ..TaskSample::default() });
        let end = TaskUsage { user_us: 8, max_rss_kib: 9000, read: 40, ..TaskUsage::default() }.with_seen(seen);
        assert_eq!((end.user_us, end.max_rss_kib, end.max_vm_kib), (8, 9000, 9 << 10));
        assert_eq!((end.read, end.written), (40, 3));
    }

    #[test]
    fn what_the_launcher_had_is_no_peak_of_a_task_that_was_seen() {
        let bound = TaskUsage { max_rss_kib: 20_000, rss_is_bound: true, ..TaskUsage::default() };
        let mut seen = TaskUsage::default();
        assert_eq!(bound.with_seen(seen).max_rss_kib, 20_000, "nothing better is known");
        seen.saw(&TaskSample { rss: 1600 << 10, ..TaskSample::default() });
        let end = bound.with_seen(seen);
        assert_eq!((end.max_rss_kib, end.rss_is_bound), (1600, false));
        let own = TaskUsage { rss_is_bound: false, ..bound };
        assert_eq!(own.with_seen(seen).max_rss_kib, 20_000);
    }

    #[test]
    fn time_of_processes_that_nobody_waited_for_counts() {
        let mut seen = TaskUsage::default();
        seen.saw(&TaskSample { cpu_us: 4_000_000, ..TaskSample::default() });
        let end = TaskUsage { user_us: 5_000, system_us: 1_000, ..TaskUsage::default() };
        assert_eq!(end.with_seen(seen).cpu_us(), 4_000_000);
        let more = TaskUsage { user_us: 9_000_000, ..end };
        assert_eq!(more.with_seen(seen).cpu_us(), 9_001_000);
    }
}
