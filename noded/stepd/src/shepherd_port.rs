//! Carries out the shepherd's effects: launcher, task descriptors, cgroups, scripts, kills.

use crate::{
    handed::{HandedStreams, TaskFd},
    launcher::LauncherAhead,
    launching::{self, KillsSeen, Launcher, RunSignals},
    pmi::PmiSockets,
    profile::{ProfileOwner, Profiler},
    streams::{ReadNow, Streams, read_later, write_all},
};
use garrick_kernel::{
    cgroup::{Group, JobCgroup, MemoryLimit, Swap},
    cpu_freq::CpuFrequencies,
    energy::{EnergyMeter, EnergyPlace},
    files,
    gpu::{self, GpuUses, Nvml},
    gpu_freq::KeptClocks,
    proc_tree::PROC,
    pty::{self, WindowSize},
    sampling::{self, Strays},
    spawn::Identity,
    topology::CpuMap,
};
use garrick_model::{
    cpu_freq::CpuFreq,
    gpu_freq::GpuFreq,
    ids::StepId,
    messages::{
        launch_failure::LaunchFailure,
        launcher::{FromLauncher, ToLauncher},
        shepherd::{ShepherdToStepMgr, StepNodeShare},
    },
    profile::{ProfileSettings, Series, SeriesSet},
    time::Timestamp,
    usage::TaskSample,
};
use garrick_run::shepherd::{LookedAt, PassedFd, ShepherdEffect, ShepherdInput, ShepherdMsg, shell::ShepherdPort};
use garrick_run::stepmgr::env::number_variables;
use garrick_runtime::{Address, TraceContext};
use serde_bytes::ByteBuf;
use std::{
    cell::RefCell,
    collections::HashMap,
    path::{Path, PathBuf},
    rc::Rc,
    sync::{Arc, Mutex},
    time::Duration,
};

/// What a shepherd's world consists of.
#[derive(Clone)]
pub struct ShepherdPlace {
    /// Owner, with groups; `None`: this process's own user.
    pub user: Option<Identity>,
    /// Uid and gid of the owner, for files.
    pub owner: (u32, u32),
    /// The run's folder.
    pub folder: PathBuf,
    /// The job's cgroup, where there are cgroups.
    pub cgroup: Option<JobCgroup>,
    /// The kernel keeps the job from devices that it was not given.
    pub devices_limited: bool,
    /// The node's CPUs.
    pub cpus: CpuMap,
    /// The frequencies of its CPUs, and the name under which this run sets them.
    pub frequencies: (CpuFrequencies, String),
    /// What its GPUs had whose clocks steps have set.
    pub gpu_clocks: KeptClocks,
    /// The job has GPUs here.
    pub has_gpus: bool,
    /// Where energy is read, if it is measured.
    pub energy: Option<EnergyPlace>,
    /// How time series are recorded, if they are, and for whom.
    pub profile: Option<(ProfileSettings, ProfileOwner)>,
    /// Marks in the environment of everything of the run.
    pub marks: [String; 2],
    /// Where the run's launcher is found again.
    pub launcher_socket: PathBuf,
    /// The run's first launcher, where it was started before it was needed.
    pub ahead: Arc<Mutex<Option<LauncherAhead>>>,
    /// How long killing goes on before the rest is given up and named.
    pub sweep_limit: Duration,
    /// A `stepd` served this run here before: its launcher may live, its steps' cgroups may be there.
    pub restarted: bool,
}

/// Where messages to the step manager go.
pub type ToManager = Rc<dyn Fn(ShepherdToStepMgr)>;

/// The world of a shepherd. Lives on its thread.
pub struct ShepherdWorld {
    place: ShepherdPlace,
    shepherd: Address<ShepherdMsg>,
    to_manager: ToManager,
    finished: Box<dyn FnMut()>,
    launcher: Rc<RefCell<Option<Launcher>>>,
    had_launcher: bool,
    streams: Streams,
    pmi: PmiSockets,
    handed: Rc<HandedStreams>,
    steps: HashMap<StepId, Group>,
    kills: KillsSeen,
    run_signals: Arc<RunSignals>,
    energy: Option<StepEnergy>,
    /// There is none to be read, which was told.
    no_energy: bool,
    profiler: Option<Rc<RefCell<Profiler>>>,
}

impl ShepherdWorld {
    /// `finished` is called when nothing of the job is left here. `handed` is what commands of this host handed over.
    pub fn new(
        place: ShepherdPlace,
        shepherd: Address<ShepherdMsg>,
        to_manager: ToManager,
        finished: Box<dyn FnMut()>,
        handed: Rc<HandedStreams>,
    ) -> Self {
        let profiler =
            place.profile.clone().map(|(settings, owner)| Rc::new(RefCell::new(Profiler::new(settings, owner))));
        Self {
            place,
            profiler,
            shepherd,
            to_manager,
            finished,
            launcher: Rc::default(),
            had_launcher: false,
            streams: Streams::default(),
            pmi: PmiSockets::default(),
            handed,
            steps: HashMap::new(),
            kills: KillsSeen::default(),
            run_signals: Arc::default(),
            energy: None,
            no_energy: false,
        }
    }

    fn later(&self, work: impl Future<Output = ShepherdInput> + 'static) {
        let (shepherd, cx) = (self.shepherd.clone(), TraceContext::current());
        actix_rt::spawn(async move {
            let input = work.await;
            launching::tell(&shepherd, cx, input);
        });
    }

    fn now(&self, input: ShepherdInput) {
        launching::tell(&self.shepherd, TraceContext::current(), input);
    }

    fn start_launcher(&mut self) {
        let first = !std::mem::replace(&mut self.had_launcher, true);
        let (place, shepherd) = (self.place.clone(), self.shepherd.clone());
        actix_rt::spawn(launching::obtain(place, first, shepherd, Rc::clone(&self.launcher), self.kills.clone()));
    }

    fn launcher_pid(&self) -> Option<u32> {
        self.launcher.borrow().as_ref().map(|launcher| launcher.pid)
    }

    fn to_launcher(&mut self, message: ToLauncher, passed: &[PassedFd]) {
        let mut fds = Vec::with_capacity(passed.len());
        for one in passed {
            if let Err(e) = self.make(one, &mut fds) {
                tracing::error!(error = %e, "descriptors for a task");
                if let ToLauncher::Spawn(task) = &message {
                    let failure = match e.raw_os_error() {
                        Some(errno) => LaunchFailure::new("pipe", "its descriptors", errno),
                        None => LaunchFailure::new("its descriptors", e.to_string(), 0),
                    };
                    let token = task.token;
                    self.now(ShepherdInput::Launcher(FromLauncher::SpawnFailed { token, failure }));
                }
                return;
            }
        }
        if let Some(launcher) = self.launcher.borrow().as_ref() {
            launcher.link.send(message, fds);
        }
    }

    fn make(&mut self, one: &PassedFd, fds: &mut Vec<TaskFd>) -> std::io::Result<()> {
        match one {
            PassedFd::Input { token } => fds.push(TaskFd::Own(self.streams.input(*token)?)),
            PassedFd::Output { token, stream } => fds.push(TaskFd::Own(self.streams.output(*token, *stream)?)),
            PassedFd::Handed { step, fd } => fds.push(TaskFd::Handed(self.handed.pass(*step, *fd)?)),
            PassedFd::Terminal { token, rows, cols } => {
                let size = WindowSize { rows: *rows, cols: *cols };
                let owner = self.place.user.as_ref().map(|u| u.uid);
                let pair = pty::open(size, owner).map_err(|e| e.cause)?;
                self.streams.terminal(*token, pair.master)?;
                fds.push(TaskFd::Own(pair.terminal));
            }
            PassedFd::Pmi { token } => fds.push(TaskFd::Own(self.pmi.open(*token, &self.shepherd)?)),
            PassedFd::Cgroup { step } => {
                if let Some(group) = self.step_group(*step) {
                    let entries = group.entries().map_err(|e| std::io::Error::other(e.to_string()))?;
                    fds.extend(entries.into_iter().map(TaskFd::Own));
                }
            }
        }
        Ok(())
    }

    fn prepare(
        &mut self,
        step: StepId,
        script: Option<ByteBuf>,
        share: Option<StepNodeShare>,
    ) -> Result<Option<String>, String> {
        if let (Some(share), Some(job)) = (share, &self.place.cgroup) {
            let group = job.create_step(&step_name(step)).map_err(|e| e.to_string())?;
            group.set_cpus(&self.place.cpus.machine_cpus(share.cpus.iter())).map_err(|e| e.to_string())?;
            if let Some(mib) = share.memory_mib {
                let limit = MemoryLimit { bytes: mib << 20, swap: Swap::Within };
                group.set_memory(limit).map_err(|e| e.to_string())?;
            }
            self.steps.insert(step, group);
        }
        let Some(text) = script else { return Ok(None) };
        let folder = self.place.folder.join("scripts");
        files::keep_folder(&folder, 0o711).map_err(|e| e.to_string())?;
        let own = folder.join(step_name(step));
        files::keep_folder(&own, 0o711).map_err(|e| e.to_string())?;
        let path = own.join("slurm_script");
        // Written anew should the machine crash: nothing runs then.
        files::replace(&path, &text, 0o500).map_err(|e| e.to_string())?;
        let (uid, gid) = self.place.owner;
        files::give_to(&path, uid, gid).map_err(|e| e.to_string())?;
        Ok(Some(path.to_string_lossy().into_owned()))
    }

    /// A step's own cgroup. One that a former `stepd` made is found by its name.
    fn step_group(&self, step: StepId) -> Option<Group> {
        let made_before = || {
            let job = self.place.cgroup.as_ref().filter(|_| self.place.restarted)?;
            job.step(&step_name(step)).ok().filter(Group::exists)
        };
        self.steps.get(&step).cloned().or_else(made_before)
    }

    /// True when the cgroup counted more kills than when it was last asked. Steps without a cgroup share the job's, where
    /// a kill is that of the one which ends next.
    fn oom(&mut self, step: Option<StepId>) -> bool {
        let count = match (step.and_then(|s| self.step_group(s)), &self.place.cgroup) {
            (Some(group), _) => group.oom_kills(),
            (None, Some(job)) => job.main().own_oom_kills(),
            (None, None) => return false,
        };
        self.kills.are_more(step, count)
    }

    fn sweep_step(&mut self, step: StepId) {
        let Some(group) = self.step_group(step) else { return self.now(ShepherdInput::Swept { step }) };
        self.steps.remove(&step);
        self.kills.forget(step);
        let limit = self.place.sweep_limit;
        self.later(async move {
            let swept = tokio::task::spawn_blocking(move || {
                let left = group.kill_until_empty(limit)?;
                if left.is_empty() { group.remove_within(limit) } else { Ok(()) }
            });
            if let Ok(Err(e)) = swept.await {
                tracing::warn!(step_id = %step, error = %e, "removing a step's cgroup");
            }
            ShepherdInput::Swept { step }
        });
    }

    fn sweep_job(&self) {
        let (place, launcher) = (self.place.clone(), self.launcher_pid());
        let limit = place.sweep_limit;
        self.later(async move {
            let swept = tokio::task::spawn_blocking(move || launching::sweep_tasks(&place, launcher)).await;
            if let Ok(left) = swept
                && !left.is_empty()
            {
                tracing::error!(after = ?limit, "processes cannot be killed: {left:?}");
            }
            ShepherdInput::JobSwept
        });
    }

    /// Tasks whose processes are not known are children of the launcher, known by what they were started with.
    fn sample(&self, step: StepId, query: u64, tasks: Vec<(u32, Option<u32>)>) {
        let launcher = self.launcher_pid();
        let has_gpus = self.place.has_gpus;
        let of_step: Vec<Vec<u8>> = number_variables(step.key()).into_iter().map(ByteBuf::into_vec).collect();
        self.later(async move {
            let sampled = tokio::task::spawn_blocking(move || {
                let proc_root = Path::new(PROC);
                let unknown = launcher.filter(|_| tasks.iter().any(|(_, pid)| pid.is_none()));
                let children = unknown.map(|pid| sampling::children_with(proc_root, pid, &of_step, "SLURM_PROCID"));
                let children = children.unwrap_or_default();
                let first = |rank, pid: Option<u32>| Some((rank, pid.or_else(|| children.get(&rank).copied())?));
                let found: Vec<_> = tasks.into_iter().filter_map(|(rank, pid)| first(rank, pid)).collect();
                let of = |(rank, _): &(u32, u32)| {
                    let own = format!("SLURM_PROCID={rank}").into_bytes();
                    (*rank, of_step.iter().cloned().chain([own]).collect())
                };
                let strays = Strays { launcher, variables: found.iter().map(of).collect() };
                sampling::sample(proc_root, &found, &strays, &gpu_uses(has_gpus))
            })
            .await;
            let tasks = sampled.map_err(std::io::Error::other).and_then(|sampled| sampled).unwrap_or_else(|error| {
                tracing::warn!(step_id = %step, %error, "looking at what tasks use");
                Vec::new()
            });
            ShepherdInput::Sampled { step, query, tasks }
        });
    }

    /// The same of tasks of any steps, for their records.
    fn look(&mut self, tasks: Vec<LookedAt>) {
        if let Some(energy) = &mut self.energy {
            // Counters overflow between looks that are too far apart.
            energy.meter.read();
        }
        let (launcher, has_gpus) = (self.launcher_pid(), self.place.has_gpus);
        let profiler = self.profiler.clone().filter(|_| tasks.iter().any(|task| task.recorded));
        self.later(async move {
            let of_steps: Vec<Option<(StepId, u32)>> =
                tasks.iter().map(|task| task.recorded.then_some((task.step, task.rank))).collect();
            let tokens: Vec<u64> = tasks.iter().map(|task| task.token).collect();
            let looked =
                tokio::task::spawn_blocking(move || look_at(Path::new(PROC), launcher, &tasks, &gpu_uses(has_gpus)))
                    .await;
            let samples = looked.map_err(std::io::Error::other).and_then(|looked| looked).unwrap_or_else(|error| {
                tracing::warn!(%error, "looking at what tasks use");
                Vec::new()
            });
            if let Some(profiler) = profiler {
                let recorded = |sample: &TaskSample| {
                    let (step, rank) = of_steps.get(sample.rank as usize).copied().flatten()?;
                    Some((step, TaskSample { rank, ..sample.clone() }))
                };
                let recorded: Vec<(StepId, TaskSample)> = samples.iter().filter_map(recorded).collect();
                profiler.borrow_mut().tasks(Timestamp::now(), &recorded);
            }
            let seen = |sample: TaskSample| Some((*tokens.get(sample.rank as usize)?, sample));
            ShepherdInput::Looked { seen: samples.into_iter().filter_map(seen).collect() }
        });
    }

    /// The meter, where there is one. It is made when it is first needed.
    fn meter(&mut self) -> Option<&mut StepEnergy> {
        let place = self.place.energy.as_ref()?;
        if self.energy.is_none() && !self.no_energy {
            match EnergyMeter::find(place) {
                Ok(meter) => self.energy = Some(StepEnergy { meter, began: HashMap::new() }),
                Err(error) => {
                    self.no_energy = true;
                    tracing::warn!(%error, "the energy of steps is not measured");
                }
            }
        }
        self.energy.as_mut()
    }

    /// A sample of the node for a step's time series.
    fn record(&mut self, step: StepId, series: SeriesSet, last: bool) {
        let Some(profiler) = self.profiler.clone() else { return };
        let meter = if series.has(Series::Energy) { self.meter() } else { None };
        let mut profiler = profiler.borrow_mut();
        profiler.node(Timestamp::now(), step, series, meter.map(|energy| &mut energy.meter));
        if last {
            profiler.forget(step);
        }
    }

    fn start_meter(&mut self, step: StepId) {
        if let Some(energy) = self.meter() {
            let now = energy.meter.read();
            energy.began.insert(step, now);
        }
    }

    /// Joules since the meter was started for that step.
    fn read_meter(&mut self, step: StepId) -> u64 {
        let Some(energy) = &mut self.energy else { return 0 };
        let Some(began) = energy.began.remove(&step) else { return 0 };
        energy.meter.read().saturating_sub(began) / 1_000_000
    }

    /// A step whose last task could not be started is gone without a reading.
    fn forget_meter(&mut self, said: &ShepherdToStepMgr) {
        if let ShepherdToStepMgr::StepGone { step }
        | ShepherdToStepMgr::NotStarted { step }
        | ShepherdToStepMgr::TaskExited { step, gone: true, .. } = said
        {
            if let Some(energy) = &mut self.energy {
                energy.began.remove(step);
            }
            if let Some(profiler) = &self.profiler {
                profiler.borrow_mut().forget(*step);
            }
        }
    }

    fn kill_groups(&self, groups: Vec<u32>) {
        let (place, launcher) = (self.place.clone(), self.launcher_pid());
        // Not waited for.
        drop(tokio::task::spawn_blocking(move || launching::kill_groups(&place, launcher, &groups)));
    }

    fn signal_run(&self, signal: i32) {
        let Some(launcher) = self.launcher_pid() else { return };
        let (place, signals, number) = (self.place.clone(), Arc::clone(&self.run_signals), self.run_signals.next());
        // Not waited for.
        drop(tokio::task::spawn_blocking(move || {
            launching::signal_run(&place, launcher, signal, &signals, number);
        }));
    }

    /// A request, not a requirement (srun(1), `--cpu-freq`): what cannot be done is logged.
    fn set_frequency(&self, step: StepId, cpus: Vec<u32>, asked: CpuFreq) {
        let (frequencies, run) = &self.place.frequencies;
        if let Err(e) = frequencies.set(cpus, asked, &format!("{run}.{}.", step_name(step))) {
            tracing::error!(step_id = %step, "--cpu-freq={asked}: {e}");
        }
    }

    /// The same for GPUs (srun(1), `--gpu-freq`).
    fn set_gpu_clocks(&self, step: StepId, gpus: &[u32], asked: GpuFreq) {
        let owner = format!("{}.{}.", self.place.frequencies.1, step_name(step));
        let nvml = match Nvml::load() {
            Ok(nvml) => nvml,
            Err(error) => {
                tracing::error!(step_id = %step, "--gpu-freq={asked}: the GPUs of this node cannot be set: {error}");
                return;
            }
        };
        let (now, result) = self.place.gpu_clocks.set(&nvml, gpus, asked, &owner);
        for (gpu, clocks) in now.iter().filter(|_| asked.verbose) {
            tracing::info!(step_id = %step, "GPU {gpu}: memory_freq:{} graphics_freq:{}", clocks.memory, clocks.gpu);
        }
        if let Err(error) = result {
            tracing::error!(step_id = %step, "--gpu-freq={asked}: {error}");
        }
    }

    /// `None`: of all steps of the run.
    fn put_gpu_clocks_back(&self, step: Option<StepId>) {
        let (run, kept) = (&self.place.frequencies.1, &self.place.gpu_clocks);
        let owner = step.map_or_else(|| format!("{run}."), |step| format!("{run}.{}.", step_name(step)));
        if let Err(error) = kept.put_back(Nvml::load, &owner) {
            tracing::error!("clocks of GPUs: {error}");
        }
    }

    /// `None`: of all steps of the run.
    fn put_frequency_back(&self, step: Option<StepId>) {
        let (frequencies, run) = &self.place.frequencies;
        let owner = step.map_or_else(|| format!("{run}."), |step| format!("{run}.{}.", step_name(step)));
        if let Err(e) = frequencies.put_back(&owner) {
            tracing::error!("frequencies of CPUs: {e}");
        }
    }

    /// Nothing is left here: no process needs to find a launcher of this run any more.
    fn finish(&mut self) {
        if let Err(e) = std::fs::remove_file(&self.place.launcher_socket)
            && e.kind() != std::io::ErrorKind::NotFound
        {
            tracing::warn!(error = %e, "removing {}", self.place.launcher_socket.display());
        }
        self.put_frequency_back(None);
        self.put_gpu_clocks_back(None);
        (self.finished)();
    }
}

/// The machine's meter, and what it showed when each step began.
struct StepEnergy {
    meter: EnergyMeter,
    began: HashMap<StepId, u64>,
}

/// What tasks use; the rank of each sample is the index of its task. Tasks whose processes are not known are children of the
/// launcher, known by what they were started with.
fn look_at(
    proc_root: &Path,
    launcher: Option<u32>,
    tasks: &[LookedAt],
    gpus: &GpuUses,
) -> std::io::Result<Vec<TaskSample>> {
    let unknown = || tasks.iter().filter(|task| task.pid.is_none());
    let variables = |task: &LookedAt| {
        let own = [ByteBuf::from(format!("SLURM_PROCID={}", task.rank).into_bytes())];
        number_variables(task.step.key()).into_iter().chain(own).map(ByteBuf::into_vec).collect()
    };
    let wanted: Vec<Vec<Vec<u8>>> = unknown().map(variables).collect();
    let mut found = match launcher {
        Some(launcher) if !wanted.is_empty() => sampling::children_of(proc_root, launcher, &wanted),
        _ => Vec::new(),
    }
    .into_iter();
    let process = |(task, index): (&LookedAt, u32)| Some((index, task.pid.or_else(|| found.next().flatten())?));
    let processes: Vec<(u32, u32)> = tasks.iter().zip(0..).filter_map(process).collect();
    let of = |(index, _): &(u32, u32)| Some((*index, variables(tasks.get(*index as usize)?)));
    let strays = Strays { launcher, variables: processes.iter().filter_map(of).collect() };
    sampling::sample(proc_root, &processes, &strays, gpus)
}

/// What processes use of GPUs, where that can be told.
fn gpu_uses(has_gpus: bool) -> GpuUses {
    if !has_gpus {
        return GpuUses::new();
    }
    Nvml::load().and_then(|nvml| gpu::by_process(&nvml)).unwrap_or_else(|error| {
        tracing::debug!(%error, "the use of GPUs is not measured");
        GpuUses::new()
    })
}

/// `7`, or `7_123` for a task of a step array.
fn step_name(step: StepId) -> String {
    step.key().to_string()
}

impl ShepherdPort for ShepherdWorld {
    fn perform(&mut self, effect: ShepherdEffect) {
        match effect {
            ShepherdEffect::ToManager(message) => {
                self.forget_meter(&message);
                (self.to_manager)(message);
            }
            ShepherdEffect::ToLauncher { message, passed } => self.to_launcher(message, &passed),
            ShepherdEffect::StartLauncher => self.start_launcher(),
            ShepherdEffect::Prepare { step, script, cgroup } => {
                let result = self.prepare(step, script, cgroup);
                self.now(ShepherdInput::Prepared { step, result });
            }
            ShepherdEffect::SetFrequency { step, cpus, asked } => self.set_frequency(step, cpus, asked),
            ShepherdEffect::PutFrequencyBack { step } => self.put_frequency_back(Some(step)),
            ShepherdEffect::SetGpuClocks { step, gpus, asked } => self.set_gpu_clocks(step, &gpus, asked),
            ShepherdEffect::PutGpuClocksBack { step } => self.put_gpu_clocks_back(Some(step)),
            ShepherdEffect::Read { token, stream } => match self.streams.read(token, stream) {
                ReadNow::Done(data) => self.now(ShepherdInput::Data { token, stream, data: ByteBuf::from(data) }),
                ReadNow::Later(watch) => self.later(async move {
                    let data = ByteBuf::from(read_later(watch).await);
                    ShepherdInput::Data { token, stream, data }
                }),
            },
            ShepherdEffect::Write { token, data } => match self.streams.input_of(token) {
                Some(watch) => self.later(async move {
                    let taken = write_all(watch, &data).await;
                    ShepherdInput::Written { token, taken }
                }),
                None => self.now(ShepherdInput::Written { token, taken: false }),
            },
            ShepherdEffect::CloseInput { token } => self.streams.close_input(token),
            ShepherdEffect::Close { token } => {
                self.streams.close(token);
                self.pmi.close(token);
            }
            ShepherdEffect::PmiAnswer { token, data } => self.pmi.answer(token, data),
            ShepherdEffect::Resize { token, rows, cols } => {
                if let Some(terminal) = self.streams.terminal_of(token)
                    && let Err(e) =
                        pty::set_size(std::os::fd::AsFd::as_fd(terminal.get_ref()), WindowSize { rows, cols })
                {
                    tracing::debug!(error = %e, "resizing a terminal");
                }
            }
            ShepherdEffect::Sample { step, query, tasks } => self.sample(step, query, tasks),
            ShepherdEffect::Look { tasks } => self.look(tasks),
            ShepherdEffect::StartMeter { step } => self.start_meter(step),
            ShepherdEffect::Record { step, series, last } => self.record(step, series, last),
            ShepherdEffect::RecordEnd { step, rank, usage } => {
                if let Some(profiler) = &self.profiler {
                    profiler.borrow_mut().task_over(Timestamp::now(), step, rank, &usage);
                }
            }
            ShepherdEffect::ReadMeter { token, step } => {
                let joules = self.read_meter(step);
                self.now(ShepherdInput::MeterRead { token, joules });
            }
            ShepherdEffect::AskOom { token, step } => {
                let killed = self.oom(step);
                self.now(ShepherdInput::Oom { token, killed });
            }
            ShepherdEffect::SignalRun { signal } => self.signal_run(signal),
            ShepherdEffect::KillGroups { pids } => self.kill_groups(pids),
            ShepherdEffect::Sweep { step } => self.sweep_step(step),
            ShepherdEffect::SweepJob => self.sweep_job(),
            ShepherdEffect::Finished => self.finish(),
            // The shell keeps timers and the log.
            ShepherdEffect::SetTimer { .. } | ShepherdEffect::Log { .. } => {}
        }
    }
}
