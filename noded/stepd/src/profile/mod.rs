//! Time series of the steps here: samples become lines of Influx's protocol, which go to a file of the step's user or to a server.
//! Writing is the business of a thread of its own ([`sink`]), so that neither slow disks nor a server that is away hold up a step.

mod sink;

use garrick_kernel::{
    energy::EnergyMeter,
    proc_tree::PROC,
    spawn::Identity,
    traffic::{self, LustreCount, NetworkCount},
};
use garrick_model::{
    ids::{JobId, StepId},
    profile::{Dataset, Point, ProfileSettings, ProfileTo, Series, SeriesSet},
    time::Timestamp,
    usage::{TaskSample, TaskUsage},
};
use sink::{FileOwner, Lines, Sink, To};
use std::{
    collections::HashMap,
    fmt::Write as _,
    io,
    path::{Path, PathBuf},
};

/// Bytes in what Slurm calls MB.
const MIB: f64 = 1024.0 * 1024.0;
/// Microjoules in a joule, and microseconds in a second.
const MICRO: f64 = 1e6;

/// Whose time series they are.
#[derive(Clone, Debug)]
pub struct ProfileOwner {
    /// Job.
    pub job: JobId,
    /// This node.
    pub node: String,
    /// Name of the job's user.
    pub user: String,
    /// The user, where this process is root.
    pub identity: Option<Identity>,
}

/// Makes lines of samples.
pub struct Profiler {
    settings: ProfileSettings,
    owner: ProfileOwner,
    lustre_folders: Vec<PathBuf>,
    sink: Option<Sink>,
    /// CPU time of tasks at their last samples, microseconds.
    tasks: HashMap<(StepId, u32), (Timestamp, u64)>,
    steps: HashMap<StepId, NodeSeen>,
    /// It was told that something cannot be sampled.
    told: SeriesSet,
}

/// What the node's counters showed for a step.
#[derive(Default)]
struct NodeSeen {
    energy: Option<EnergySeen>,
    network: Option<NetworkCount>,
    lustre: Option<LustreCount>,
}

/// Microjoules.
struct EnergySeen {
    began: u64,
    at: Timestamp,
    last: u64,
}

impl Profiler {
    /// For the steps of a run.
    pub fn new(settings: ProfileSettings, owner: ProfileOwner) -> Self {
        Self {
            settings,
            owner,
            lustre_folders: traffic::LUSTRE.map(PathBuf::from).to_vec(),
            sink: None,
            tasks: HashMap::new(),
            steps: HashMap::new(),
            told: SeriesSet::default(),
        }
    }

    /// Samples of running tasks of a step.
    pub fn tasks(&mut self, now: Timestamp, samples: &[(StepId, TaskSample)]) {
        // Lines of neighbours that go to one place are handed over together.
        let mut all: Vec<Lines> = Vec::new();
        for (step, sample) in samples {
            // One that has ended meanwhile has no processes.
            if sample.pids.is_empty() {
                continue;
            }
            let before = self.tasks.insert((*step, sample.rank), (now, sample.cpu_us));
            let passed = before.map(|(at, _)| now.since(at).as_secs_f64()).filter(|secs| *secs > 0.0);
            let used = before.map(|(_, cpu_us)| sample.cpu_us.saturating_sub(cpu_us));
            let utilization = passed.zip(used).map(|(secs, used)| used as f64 / MICRO / secs * 100.0);
            let known = |number: u64| (number > 0).then_some(number as f64);
            let values = [
                (Dataset::CpuFrequency, known(sample.frequency_khz)),
                (Dataset::CpuTime, Some(sample.cpu_us as f64 / MICRO)),
                (Dataset::CpuUtilization, utilization),
                (Dataset::GpuMemMb, known(sample.gpu_memory).map(|bytes| bytes / MIB)),
                (Dataset::GpuUtilization, known(sample.gpu_percent)),
                (Dataset::Rss, Some((sample.rss_now / 1024) as f64)),
                (Dataset::VmSize, Some((sample.vsize_now / 1024) as f64)),
                (Dataset::Pages, Some(sample.pages as f64)),
                (Dataset::ReadMb, Some(sample.read as f64 / MIB)),
                (Dataset::WriteMb, Some(sample.written as f64 / MIB)),
            ];
            let lines = self.lines(now, *step, Series::Task, Some(sample.rank), &values);
            match all.last_mut().filter(|last| last.has_room_for(&lines)) {
                Some(last) => last.append(&lines),
                None => all.push(lines),
            }
        }
        all.into_iter().for_each(|lines| self.hand_over(lines));
    }

    /// What a task had used at its end. What it has no more then is left out.
    pub fn task_over(&mut self, now: Timestamp, step: StepId, rank: u32, usage: &TaskUsage) {
        let before = self.tasks.remove(&(step, rank));
        let passed = before.map(|(at, _)| now.since(at).as_secs_f64()).filter(|secs| *secs > 0.0);
        let used = before.map(|(_, cpu_us)| usage.cpu_us().saturating_sub(cpu_us));
        let values = [
            (Dataset::CpuTime, Some(usage.cpu_us() as f64 / MICRO)),
            (Dataset::CpuUtilization, passed.zip(used).map(|(secs, used)| used as f64 / MICRO / secs * 100.0)),
            (Dataset::Pages, Some(usage.pages as f64)),
            (Dataset::ReadMb, Some(usage.read as f64 / MIB)),
            (Dataset::WriteMb, Some(usage.written as f64 / MIB)),
        ];
        self.put(now, step, Series::Task, Some(rank), &values);
        if let Some(sink) = &self.sink {
            sink.hurry();
        }
    }

    /// A sample of the node for a step; the first one is what the others are compared with.
    pub fn node(&mut self, now: Timestamp, step: StepId, series: SeriesSet, meter: Option<&mut EnergyMeter>) {
        if let Some(meter) = meter.filter(|_| series.has(Series::Energy)) {
            self.energy(now, step, meter.read());
        }
        if series.has(Series::Network) {
            match traffic::network(Path::new(PROC), &self.settings.interfaces) {
                Ok(count) => self.network(now, step, count),
                Err(error) => self.cannot(Series::Network, &error),
            }
        }
        if series.has(Series::Filesystem) {
            match traffic::lustre(&self.lustre_folders) {
                Ok(count) => self.lustre(now, step, count),
                Err(error) => self.cannot(Series::Filesystem, &error),
            }
        }
    }

    fn energy(&mut self, now: Timestamp, step: StepId, total: u64) {
        let seen = &mut self.steps.entry(step).or_default().energy;
        let Some(before) = seen.as_mut() else {
            *seen = Some(EnergySeen { began: total, at: now, last: total });
            return;
        };
        let (secs, more) = (now.since(before.at).as_secs_f64(), total.saturating_sub(before.last));
        (before.at, before.last) = (now, total);
        let values = [
            (Dataset::Power, (secs > 0.0).then(|| more as f64 / MICRO / secs)),
            (Dataset::Energy, Some(total.saturating_sub(before.began) as f64 / MICRO)),
        ];
        self.put(now, step, Series::Energy, None, &values);
    }

    fn network(&mut self, now: Timestamp, step: StepId, count: NetworkCount) {
        let seen = &mut self.steps.entry(step).or_default().network;
        let Some(began) = *seen else {
            *seen = Some(count);
            return;
        };
        let values = [
            (Dataset::PacketsIn, Some(count.packets_in.wrapping_sub(began.packets_in) as f64)),
            (Dataset::PacketsOut, Some(count.packets_out.wrapping_sub(began.packets_out) as f64)),
            (Dataset::InMb, Some(count.bytes_in.wrapping_sub(began.bytes_in) as f64 / MIB)),
            (Dataset::OutMb, Some(count.bytes_out.wrapping_sub(began.bytes_out) as f64 / MIB)),
        ];
        self.put(now, step, Series::Network, None, &values);
    }

    fn lustre(&mut self, now: Timestamp, step: StepId, count: LustreCount) {
        let seen = &mut self.steps.entry(step).or_default().lustre;
        let Some(began) = *seen else {
            *seen = Some(count);
            return;
        };
        let values = [
            (Dataset::Reads, Some(count.reads.wrapping_sub(began.reads) as f64)),
            (Dataset::Writes, Some(count.writes.wrapping_sub(began.writes) as f64)),
            (Dataset::ReadMb, Some(count.bytes_read.wrapping_sub(began.bytes_read) as f64 / MIB)),
            (Dataset::WriteMb, Some(count.bytes_written.wrapping_sub(began.bytes_written) as f64 / MIB)),
        ];
        self.put(now, step, Series::Filesystem, None, &values);
    }

    fn cannot(&mut self, series: Series, error: &io::Error) {
        if !self.told.has(series) {
            self.told = self.told.iter().chain([series]).collect::<Vec<_>>().into();
            tracing::warn!(%error, "no time series of {} are recorded here", series.name());
        }
    }

    /// Nothing of the step is left here.
    pub fn forget(&mut self, step: StepId) {
        self.steps.remove(&step);
        self.tasks.retain(|(of, _), _| *of != step);
    }

    fn put(
        &mut self,
        now: Timestamp,
        step: StepId,
        series: Series,
        task: Option<u32>,
        values: &[(Dataset, Option<f64>)],
    ) {
        let lines = self.lines(now, step, series, task, values);
        self.hand_over(lines);
    }

    fn lines(
        &self,
        now: Timestamp,
        step: StepId,
        series: Series,
        task: Option<u32>,
        values: &[(Dataset, Option<f64>)],
    ) -> Lines {
        let step_name = step.key().to_string();
        let mut point = Point {
            dataset: Dataset::CpuTime,
            series,
            job: self.owner.job.0,
            step: step_name,
            task,
            node: self.owner.node.clone(),
            value: 0.0,
            at_ms: now.0,
        };
        let (mut text, mut count) = (String::new(), 0);
        for (dataset, value) in values.iter().filter_map(|(dataset, value)| Some((*dataset, (*value)?))) {
            (point.dataset, point.value) = (dataset, value);
            // Writing to a text does not fail.
            let _ = writeln!(text, "{point}");
            count += 1;
        }
        let file = match &self.settings.to {
            ProfileTo::Files(_) => Some(format!("{}_{}_{}.lp", self.owner.job, point.step, self.owner.node)),
            ProfileTo::Influx(_) => None,
        };
        Lines { file, text, count }
    }

    fn hand_over(&mut self, lines: Lines) {
        let (settings, owner) = (&self.settings, &self.owner);
        let sink = self.sink.get_or_insert_with(|| {
            let to = match &settings.to {
                ProfileTo::Files(folder) => {
                    To::Files { folder: folder.join(&owner.user), owner: owner.identity.clone().map(FileOwner) }
                }
                ProfileTo::Influx(server) => To::server(server.clone()),
            };
            Sink::start(to)
        });
        sink.put(lines);
    }

    /// Lines that are left are written, if that does not take long.
    pub fn close(&mut self) {
        if let Some(sink) = self.sink.take() {
            sink.close();
        }
    }
}

impl Drop for Profiler {
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use garrick_kernel::scratch::Scratch;
    use garrick_model::ids::StepNum;
    use std::{fs, time::Duration};

    const STEP: StepId = StepId::new(JobId(7), StepNum::Number(0));
    const BEGIN: Timestamp = Timestamp::from_secs(1_795_868_431);

    fn profiler(folder: &Path) -> Profiler {
        let settings = ProfileSettings {
            to: ProfileTo::Files(folder.to_owned()),
            usual: SeriesSet::default(),
            there: SeriesSet::all(),
            periods: Default::default(),
            interfaces: Vec::new(),
        };
        let owner = ProfileOwner { job: JobId(7), node: "n1".into(), user: "alice".into(), identity: None };
        Profiler::new(settings, owner)
    }

    /// What was written, without the times.
    fn written(mut profiler: Profiler, folder: &Path) -> Vec<String> {
        profiler.close();
        let text = fs::read_to_string(folder.join("alice/7_0_n1.lp")).unwrap();
        text.lines().map(|line| line.rsplit_once(' ').unwrap().0.to_owned()).collect()
    }

    fn later(secs: u64) -> Timestamp {
        BEGIN.plus(Duration::from_secs(secs))
    }

    #[test]
    fn what_the_node_counts_begins_with_the_step() {
        let dir = Scratch::new("profile-node");
        let mut profiler = profiler(dir.path());
        profiler.lustre_folders = vec![dir.join("llite")];
        let stats = |reads: u64, sum: u64| format!("read_bytes {reads} samples [bytes] 1 1 {sum}\n");
        dir.put("llite/scratch/stats", &stats(100, 1 << 30));
        let series: SeriesSet = vec![Series::Filesystem].into();
        profiler.node(BEGIN, STEP, series, None);
        dir.put("llite/scratch/stats", &stats(103, (1 << 30) + (3 << 20)));
        profiler.node(later(1), STEP, series, None);
        profiler.energy(BEGIN, STEP, 5_000_000);
        profiler.energy(later(2), STEP, 195_000_000);
        profiler.energy(later(3), STEP, 196_500_000);
        let of = |name: &str, series: &str, value: &str| {
            format!("{name},job=7,step=0,series={series},host=n1 value={value}")
        };
        let wanted = [
            of("Reads", "Filesystem", "3"),
            of("Writes", "Filesystem", "0"),
            of("ReadMB", "Filesystem", "3"),
            of("WriteMB", "Filesystem", "0"),
            of("Power", "Energy", "95"),
            of("Energy", "Energy", "190"),
            of("Power", "Energy", "1.5"),
            of("Energy", "Energy", "191.5"),
        ];
        assert_eq!(written(profiler, dir.path()), wanted);
    }

    #[test]
    fn tasks_have_what_they_use_now_and_at_their_end_what_they_used() {
        let dir = Scratch::new("profile-tasks");
        let mut profiler = profiler(dir.path());
        let sample =
            |cpu_us, rss_now| TaskSample { pids: vec![9], cpu_us, rss: 1 << 40, rss_now, ..TaskSample::default() };
        profiler
            .tasks(BEGIN, &[(STEP, sample(250_000, 2 << 20)), (STEP, TaskSample { rank: 1, ..TaskSample::default() })]);
        profiler.tasks(later(2), &[(STEP, sample(1_250_000, 1 << 20))]);
        let usage = TaskUsage { user_us: 1_500_000, written: 5 << 20, ..TaskUsage::default() };
        profiler.task_over(later(3), STEP, 0, &usage);
        let lines = written(profiler, dir.path());
        let values = |name: &str| -> Vec<&str> {
            let of = lines
                .iter()
                .filter(|line| line.starts_with(&format!("{name},job=7,step=0,series=Task,task=0,host=n1 ")));
            of.map(|line| line.rsplit_once('=').unwrap().1).collect()
        };
        assert_eq!(values("CPUTime"), ["0.25", "1.25", "1.5"]);
        assert_eq!(values("CPUUtilization"), ["50", "25"]);
        assert_eq!((values("RSS"), values("WriteMB")), (vec!["2048", "1024"], vec!["0", "0", "5"]));
        assert!(!lines.iter().any(|line| line.contains("task=1")), "it was not running");
    }
}
