//! What jobs used of what they asked for: CPUs, memory, GPUs and time, with one line of advice; and the same as the words of `seff`.

use super::{
    entry::{Entry, Part},
    state::{self, RecordState},
    units::elapsed,
};
use garrick_accounts::{
    messages::JobWithSteps,
    step::StepRecord,
    tres::{CPU, MEM, NODE},
};
use garrick_model::{
    gres::GPU,
    resources::MemoryRequest,
    state::JobState,
    time::{TimeLimit, Timestamp},
    usage::{Metric, TaskUsage},
};

/// A job's use of what it had.
#[derive(Clone, Debug)]
pub struct Efficiency<'r> {
    of: &'r JobWithSteps,
    /// Seconds that it ran.
    ran_secs: u64,
    /// CPU time of all tasks, microseconds.
    cpu_us: u64,
    /// Greatest memory of a step, KiB.
    memory_kib: u64,
    /// That is the peak of the greatest task times their number.
    estimated: bool,
    /// Use of GPUs at the peaks of all tasks of a step, of the step with most: percent of one GPU.
    gpu_percent: u64,
    /// Memory on GPUs, likewise, KiB.
    gpu_memory_kib: u64,
}

/// What all tasks of a step had together of something, of the step with most.
fn greatest_of(job: &JobWithSteps, metric: Metric) -> u64 {
    let of = |step: &StepRecord| step.used(metric).map_or_else(|| step.usage.of(metric), |used| used.total);
    job.steps.iter().map(of).max().unwrap_or(0)
}

/// Parts of a whole in hundredths of a percent.
fn share(part: u64, whole: u64) -> Option<u64> {
    let parts = u128::from(part) * 10_000 + u128::from(whole) / 2;
    parts.checked_div(whole.into()).map(|share| u64::try_from(share).unwrap_or(u64::MAX))
}

fn percent(share: Option<u64>) -> String {
    share.map_or_else(|| "0.00%".to_owned(), |share| format!("{}.{:02}%", share / 100, share % 100))
}

/// `33.00 MB`, `1.50 GB`.
fn memory(kib: u64) -> String {
    const UNITS: [&str; 5] = ["KB", "MB", "GB", "TB", "PB"];
    let (mut amount, mut unit) = (kib as f64, 0);
    while amount >= 1024.0 && unit + 1 < UNITS.len() {
        (amount, unit) = (amount / 1024.0, unit + 1);
    }
    format!("{amount:.2} {}", UNITS[unit])
}

const KIB_OF_MIB: u64 = 1024;

impl<'r> Efficiency<'r> {
    /// Of a job, whose steps are there too. `now`: for jobs that run.
    pub fn of(job: &'r JobWithSteps, now: Timestamp) -> Self {
        let mut used = TaskUsage::default();
        job.steps.iter().for_each(|step| used.add(step.usage));
        let whole = Entry { row: &job.row, part: Part::Job, used };
        let greatest = job.steps.iter().max_by_key(|step| step.memory_kib());
        let estimated = greatest.is_some_and(|step| step.tasks > 1 && step.spread.is_none());
        Self {
            of: job,
            ran_secs: whole.span(now, None).secs,
            cpu_us: used.cpu_us(),
            memory_kib: greatest.map_or(0, StepRecord::memory_kib),
            estimated,
            gpu_percent: greatest_of(job, Metric::GpuUse),
            gpu_memory_kib: greatest_of(job, Metric::GpuMemory),
        }
    }

    fn gpus(&self) -> u64 {
        self.of.row.allocated.count(&format!("gres/{GPU}"))
    }

    /// Were GPUs looked at, and did the job do anything there?
    const fn used_gpus(&self) -> bool {
        self.gpu_percent > 0 || self.gpu_memory_kib > 0
    }

    fn gpu_share(&self) -> Option<u64> {
        share(self.gpu_percent, self.gpus().saturating_mul(100)).filter(|_| self.used_gpus())
    }

    /// GPUs that were busy at the peaks, of those that it had.
    fn gpu_line(&self) -> String {
        let (gpus, things) = (self.gpus(), if self.gpus() == 1 { "GPU" } else { "GPUs" });
        match self.gpu_share() {
            Some(share) => format!(
                "  {:<7}{:>12} used of {gpus} {things}  {}, {} of their memory",
                "GPU",
                format!("{}.{:02}", self.gpu_percent / 100, self.gpu_percent % 100),
                percent(Some(share)),
                memory(self.gpu_memory_kib)
            ),
            None => {
                format!("  {:<7}{:>12} used of {gpus} {things}: no use was seen, or none is measured here", "GPU", "-")
            }
        }
    }

    fn cpus(&self) -> u64 {
        self.of.row.allocated.count(CPU)
    }

    fn nodes(&self) -> u64 {
        self.of.row.allocated.count(NODE).max(1)
    }

    fn asked_memory_kib(&self) -> u64 {
        self.of.row.allocated.count(MEM).max(self.of.row.requested.count(MEM)).saturating_mul(KIB_OF_MIB)
    }

    fn core_secs(&self) -> u64 {
        self.ran_secs.saturating_mul(self.cpus())
    }

    fn cpu_share(&self) -> Option<u64> {
        share(self.cpu_us, self.core_secs().saturating_mul(1_000_000))
    }

    fn memory_share(&self) -> Option<u64> {
        share(self.memory_kib, self.asked_memory_kib())
    }

    fn time_share(&self) -> Option<u64> {
        match self.of.row.time_limit {
            TimeLimit::Secs(secs) => share(self.ran_secs, secs),
            TimeLimit::Unlimited => None,
        }
    }

    fn id(&self) -> String {
        Entry { row: &self.of.row, part: Part::Job, used: TaskUsage::default() }.id(None)
    }

    /// Did it run at all?
    pub const fn ran(&self) -> bool {
        self.of.row.start.is_some()
    }

    /// The lines of `seff`.
    pub fn seff(&self) -> Vec<String> {
        let row = &self.of.row;
        let mut lines = vec![format!("Job ID: {}", row.job)];
        if let Some(task) = row.array_task {
            lines.push(format!("Array Job ID: {}_{}", task.array_job, task.index));
        }
        lines.push(format!("Cluster: {}", row.cluster));
        lines.push(format!("User/Group: {}/{}", row.user, row.group));
        let state = RecordState::of(row);
        let over = row.is_over();
        lines.push(match over {
            true => format!("State: {} (exit code {})", state.word(), row.exit.code),
            false => format!("State: {}", state.word()),
        });
        if !self.ran() {
            lines.push(format!("Efficiency not available for jobs in the {} state.", state.word()));
            return lines;
        }
        match (self.cpus(), self.nodes()) {
            (1, _) => lines.push("Cores: 1".to_owned()),
            (cpus, nodes) => {
                lines.push(format!("Nodes: {nodes}"));
                lines.push(format!("Cores per node: {}", cpus / nodes));
            }
        }
        lines.push(format!("CPU Utilized: {}", elapsed(self.cpu_us / 1_000_000)));
        lines.push(format!(
            "CPU Efficiency: {} of {} core-walltime",
            percent(self.cpu_share()),
            elapsed(self.core_secs())
        ));
        lines.push(format!("Job Wall-clock time: {}", elapsed(self.ran_secs)));
        let estimated = if self.estimated { " (estimated maximum)" } else { "" };
        lines.push(format!("Memory Utilized: {}{estimated}", memory(self.memory_kib)));
        let (of, each) = match row.requested_memory {
            MemoryRequest::PerCpu(_) => (self.cpus().max(1), "core"),
            _ => (self.nodes(), "node"),
        };
        let asked = self.asked_memory_kib();
        lines.push(format!(
            "Memory Efficiency: {} of {} ({}/{each})",
            percent(self.memory_share()),
            memory(asked),
            memory(asked / of)
        ));
        if !over {
            lines.push(format!("WARNING: Efficiency statistics may be misleading for {} jobs.", state.word()));
        }
        lines
    }

    /// The lines of `garrick efficiency JOB`.
    pub fn report(&self) -> Vec<String> {
        let row = &self.of.row;
        let mut lines = vec![format!("{} {} of {}: {}", self.id(), row.name, row.user, state::words(row))];
        if !self.ran() {
            lines.push("It has not run.".to_owned());
            return lines;
        }
        let line = |name: &str, used: String, asked: String, share: Option<u64>| {
            let share = share.map(|_| format!("  {}", percent(share))).unwrap_or_default();
            format!("  {name:<7}{used:>12} used of {asked}{share}")
        };
        let cpus = self.cpus();
        let cores = format!("{} ({cpus} CPUs for {})", elapsed(self.core_secs()), elapsed(self.ran_secs));
        lines.push(line("CPU", elapsed(self.cpu_us / 1_000_000), cores, self.cpu_share()));
        let asked = match self.asked_memory_kib() {
            0 => "no limit".to_owned(),
            kib => memory(kib),
        };
        lines.push(line("memory", memory(self.memory_kib), asked, self.memory_share()));
        if self.gpus() > 0 {
            lines.push(self.gpu_line());
        }
        let limit = match row.time_limit {
            TimeLimit::Unlimited => "no limit".to_owned(),
            TimeLimit::Secs(secs) => elapsed(secs),
        };
        lines.push(line("time", elapsed(self.ran_secs), limit, self.time_share()));
        lines.push(self.advice());
        lines
    }

    /// What to ask for next time, in one line: the first that matters.
    pub fn advice(&self) -> String {
        /// Under this much used, less would do; hundredths of a percent.
        const LITTLE: u64 = 5_000;
        /// Above this much, it was close.
        const MUCH: u64 = 9_000;
        let row = &self.of.row;
        let memory_share = self.memory_share();
        match row.state {
            JobState::OutOfMemory => return "It ran out of memory: ask for more (--mem).".to_owned(),
            JobState::Timeout => return "It reached its time limit: ask for more (--time).".to_owned(),
            _ if !row.is_over() => return "It is not over: this may change.".to_owned(),
            _ => {}
        }
        if memory_share.is_some_and(|share| share > MUCH) {
            return format!(
                "It nearly used up its memory: ask for more than {} (--mem).",
                memory(self.asked_memory_kib())
            );
        }
        let gpus_busy = self.gpu_percent.div_ceil(100).max(1);
        if self.gpus() > gpus_busy && self.gpu_share().is_some_and(|share| share < LITTLE) {
            return format!("It kept {gpus_busy} of {} GPUs busy: ask for fewer (--gpus, --gres).", self.gpus());
        }
        let busy = self.cpu_us.div_ceil(self.ran_secs.max(1).saturating_mul(1_000_000)).max(1);
        if self.cpus() > 1 && self.cpu_share().is_some_and(|share| share < LITTLE) && busy < self.cpus() {
            return format!("It kept {busy} of {} CPUs busy: ask for fewer (--ntasks, --cpus-per-task).", self.cpus());
        }
        if self.memory_kib > 0 && memory_share.is_some_and(|share| share < LITTLE) {
            // A fifth more than it used, in whole MiB.
            let enough = (self.memory_kib + self.memory_kib / 5).div_ceil(KIB_OF_MIB);
            return format!("{enough}M of memory would do: ask for less (--mem).");
        }
        if self.time_share().is_some_and(|share| share < LITTLE) {
            let minutes = (self.ran_secs + self.ran_secs / 4).div_ceil(60).max(1);
            return format!("{minutes} minutes would do: with a shorter limit (--time) it may start earlier.");
        }
        "It used what it asked for.".to_owned()
    }

    /// What a line of many jobs has: id, name, state, elapsed, and the shares of CPU, memory, GPUs and time.
    pub fn row(&self) -> [String; 8] {
        let share =
            |share: Option<u64>| share.filter(|_| self.ran()).map_or_else(|| "-".to_owned(), |s| percent(Some(s)));
        [
            self.id(),
            self.of.row.name.clone(),
            RecordState::of(&self.of.row).word().to_owned(),
            elapsed(self.ran_secs),
            share(self.cpu_share()),
            share(self.memory_share()),
            share(self.gpu_share()),
            share(self.time_share()),
        ]
    }
}

/// The heading of [`Efficiency::row`].
pub const HEADING: [&str; 8] = ["JobID", "JobName", "State", "Elapsed", "CPUEff", "MemEff", "GPUEff", "TimeEff"];

/// What jobs that are over used, all together.
pub fn together(jobs: &[Efficiency<'_>]) -> Option<String> {
    let over = jobs.iter().filter(|job| job.ran() && job.of.row.is_over());
    let (mut cpu_us, mut cores, mut kib, mut asked_kib, mut count) = (0_u64, 0_u64, 0_u64, 0_u64, 0_u64);
    for job in over {
        cpu_us = cpu_us.saturating_add(job.cpu_us);
        cores = cores.saturating_add(job.core_secs());
        kib = kib.saturating_add(job.memory_kib);
        asked_kib = asked_kib.saturating_add(job.asked_memory_kib());
        count += 1;
    }
    (count > 0).then(|| {
        let cpu = percent(share(cpu_us, cores.saturating_mul(1_000_000)));
        let memory = percent(share(kib, asked_kib));
        let jobs = if count == 1 { "job" } else { "jobs" };
        format!("{count} {jobs} that ended: {cpu} of the CPU time and {memory} of the memory were used.")
    })
}

#[cfg(test)]
#[path = "efficiency_test.rs"]
mod tests;
