//! The results of a replay, in numbers.
//!
//! Bounded slowdown is `max(1, (wait + run) / max(10 s, run))` (D. G. Feitelson and L. Rudolph, Metrics and Benchmarking
//! for Parallel Job Scheduling, JSSPP 1998); utilisation is the work done over processors times makespan.

use crate::engine::{Moment, Ran, Replay};
use serde::Serialize;
use std::{collections::BTreeMap, time::Duration};

/// Run times below this count as this in the slowdown, seconds.
const BOUND: f64 = 10.0;

/// Figures of some jobs. Times are seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Figures {
    /// How many.
    pub jobs: usize,
    /// Mean wait.
    pub mean_wait_s: f64,
    /// Median wait.
    pub median_wait_s: f64,
    /// 95th percentile of the wait.
    pub p95_wait_s: f64,
    /// Longest wait.
    pub max_wait_s: f64,
    /// Mean of the bounded slowdown.
    pub avg_bounded_slowdown: f64,
    /// CPU seconds of work.
    pub work_cpu_s: f64,
}

/// Figures of a whole replay.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// All jobs.
    #[serde(flatten)]
    pub all: Figures,
    /// Work over CPUs times makespan.
    pub utilization: f64,
    /// From the first submission to the last end.
    pub makespan_s: f64,
    /// Share of the CPUs that was idle while jobs waited: too little, or in the wrong places, for those that waited.
    pub fragmentation: f64,
    /// Mean length of the queue.
    pub mean_queue: f64,
    /// Longest queue.
    pub max_queue: usize,
    /// Jobs that could never run.
    pub refused: usize,
    /// Jobs that no plan started.
    pub stranded: usize,
    /// Plans made.
    pub plans: u64,
    /// What was idle of blocks or leaf switches, where there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocks: Option<Blocks>,
    /// By partition.
    pub partitions: BTreeMap<String, Figures>,
    /// By user.
    pub users: BTreeMap<u32, Figures>,
}

/// What was idle of blocks or leaf switches, means over time, and what became of jobs that need whole ones.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Blocks {
    /// Blocks that were idle altogether.
    pub idle: f64,
    /// Nodes of the largest block of any size that was.
    pub largest_idle_nodes: f64,
    /// Share of idle nodes that were not in such a block.
    pub scattered: f64,
    /// Jobs of at least a block.
    pub wide: Figures,
    /// Jobs that waited for broken blocks though they could start (`topology_patience`).
    pub patient_jobs: usize,
    /// How long they did: mean.
    pub patient_mean_s: f64,
    /// Longest.
    pub patient_max_s: f64,
}

impl Blocks {
    fn of(replay: &Replay) -> Option<Self> {
        replay.moments.iter().find(|moment| moment.idle.is_some())?;
        let (mut seconds, mut idle, mut largest, mut nodes, mut in_units) = (0.0, 0.0, 0.0, 0.0, 0.0);
        for (moment, length) in lengths(&replay.moments) {
            let now = moment.idle.unwrap_or_default();
            seconds += length;
            idle += f64::from(now.units) * length;
            largest += f64::from(now.largest) * length;
            nodes += f64::from(now.nodes) * length;
            in_units += f64::from(now.in_units) * length;
        }
        let waited = |ran: &Ran| Some(ran.start.since(*replay.patient.get(&ran.id)?).as_secs_f64());
        let waits: Vec<f64> = replay.ran.iter().filter_map(waited).collect();
        let wide: Vec<&Ran> = replay.ran.iter().filter(|ran| u64::from(ran.cpus) >= replay.unit_cpus).collect();
        Some(Self {
            idle: over(idle, seconds),
            largest_idle_nodes: over(largest, seconds),
            scattered: over(nodes - in_units, nodes),
            wide: Figures::of(&wide),
            patient_jobs: waits.len(),
            patient_mean_s: over(waits.iter().sum(), waits.len() as f64),
            patient_max_s: waits.iter().copied().fold(0.0, f64::max),
        })
    }
}

impl Summary {
    /// Of that replay.
    pub fn of(replay: &Replay) -> Self {
        let mut partitions: BTreeMap<String, Vec<&Ran>> = BTreeMap::new();
        let mut users: BTreeMap<u32, Vec<&Ran>> = BTreeMap::new();
        for ran in &replay.ran {
            partitions.entry(ran.partition.clone()).or_default().push(ran);
            users.entry(ran.user).or_default().push(ran);
        }
        let all = Figures::of(&replay.ran.iter().collect::<Vec<_>>());
        let first = replay.ran.iter().map(|r| r.submit).min().unwrap_or_default();
        let last = replay.ran.iter().map(|r| r.start.plus(Duration::from_secs(r.run))).max().unwrap_or_default();
        let makespan_s = last.since(first).as_secs_f64();
        let (mut waiting_s, mut idle_cpu_s, mut queue_s) = (0.0, 0.0, 0.0);
        for (moment, length) in lengths(&replay.moments) {
            queue_s += moment.waiting as f64 * length;
            if moment.waiting > 0 {
                waiting_s += length;
                idle_cpu_s += (replay.cpus - moment.busy.min(replay.cpus)) as f64 * length;
            }
        }
        Self {
            utilization: over(all.work_cpu_s, replay.cpus as f64 * makespan_s),
            fragmentation: over(idle_cpu_s, replay.cpus as f64 * waiting_s),
            mean_queue: over(queue_s, makespan_s),
            max_queue: replay.moments.iter().map(|m| m.waiting).max().unwrap_or(0),
            refused: replay.refused.len(),
            stranded: replay.stranded.len(),
            plans: replay.plans,
            blocks: Blocks::of(replay),
            partitions: partitions.into_iter().map(|(name, jobs)| (name, Figures::of(&jobs))).collect(),
            users: users.into_iter().map(|(user, jobs)| (user, Figures::of(&jobs))).collect(),
            makespan_s,
            all,
        }
    }
}

/// Moments with the seconds that each lasted.
pub fn lengths(moments: &[Moment]) -> impl Iterator<Item = (&Moment, f64)> {
    moments.iter().zip(moments.iter().skip(1)).map(|(moment, next)| (moment, next.at.since(moment.at).as_secs_f64()))
}

impl Figures {
    /// Of those jobs.
    pub fn of(jobs: &[&Ran]) -> Self {
        let mut waits: Vec<f64> = jobs.iter().map(|job| job.start.since(job.submit).as_secs_f64()).collect();
        waits.sort_by(f64::total_cmp);
        let count = jobs.len() as f64;
        let slowdown = |job: &&Ran| {
            let (wait, run) = (job.start.since(job.submit).as_secs_f64(), job.run as f64);
            ((wait + run) / run.max(BOUND)).max(1.0)
        };
        let at = |part: f64| {
            let place = (part * (waits.len().max(1) - 1) as f64).round() as usize;
            waits.get(place).copied().unwrap_or(0.0)
        };
        Self {
            jobs: jobs.len(),
            mean_wait_s: over(waits.iter().sum(), count),
            median_wait_s: at(0.5),
            p95_wait_s: at(0.95),
            max_wait_s: waits.last().copied().unwrap_or(0.0),
            avg_bounded_slowdown: over(jobs.iter().map(slowdown).sum(), count),
            work_cpu_s: jobs.iter().map(|job| f64::from(job.cpus) * job.run as f64).sum(),
        }
    }
}

fn over(a: f64, b: f64) -> f64 {
    if b > 0.0 { a / b } else { 0.0 }
}
