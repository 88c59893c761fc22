//! Decides one node's part of a run. It knows nothing of queues or other nodes: the step manager says what to launch and when to
//! end it, and gets the results. Called by the actor in [`crate::shepherd::shell`], by the simulator and by tests.
//!
//! A task's end is reported after the output that it relayed, but not for ever: a child that became a daemon with the pipe open
//! delays the report for at most `linger`.

use crate::shepherd::{
    adoption::Ends,
    gpus::GpuSight,
    messages::{ShepherdEffect, ShepherdInput, ShepherdTimer},
    series::{SeriesConfig, SeriesDue},
    settings::LauncherSettings,
    state::{Exit, NextInput, ShepherdPhase, StepHere, TaskHere, TaskPhase, stream_index},
    task_scripts::RunningEpilog,
};
use garrick_model::{
    config::PropagatePriority,
    cpu_freq::Governor,
    ids::{JobId, StepId},
    messages::{
        launcher::{FromLauncher, ToLauncher},
        shepherd::{ShepherdToStepMgr, StepLaunch, StepMgrToShepherd, Stream},
    },
    node_shape::NodeShape,
    resources::CpuSet,
    signal::SIGSTOP,
    spec::{SiteOfSrun, TaskScripts},
    time::Timestamp,
};
use jiff::tz::TimeZone;
use serde_bytes::ByteBuf;
use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

/// Facts of the node and settings of the site.
#[derive(Clone, Debug, PartialEq)]
pub struct ShepherdConfig {
    /// Job.
    pub job: JobId,
    /// This node's name.
    pub node: String,
    /// Number of nodes of the job; with more than one, each writes an output pack of its own.
    pub job_nodes: usize,
    /// This process's door, `GARRICK_STEPD_DOOR` of every task.
    pub door: String,
    /// The job's CPUs on this node.
    pub job_cpus: CpuSet,
    /// The machine's CPU number for each abstract CPU; empty: tasks are not bound (more CPUs are configured than exist, or the
    /// site does not bind).
    pub cpu_map: Vec<u32>,
    /// Sockets and cores of the node.
    pub shape: NodeShape,
    /// How the job sees GPUs here.
    pub gpus: GpuSight,
    /// Each GPU of the node of which a file `/dev/nvidiaN` is known, with that number.
    pub gpu_minors: Vec<(u32, u32)>,
    /// Steps can have cgroups of their own here.
    pub cgroups: bool,
    /// `CpuFreqDef`: the governor of steps that ask for none.
    pub governor: Option<Governor>,
    /// `PropagatePrioProcess`. Default: tasks have the nice value of the daemon.
    pub priority: PropagatePriority,
    /// `TaskProlog` and `TaskEpilog`.
    pub task_scripts: TaskScripts,
    /// What each `srun` in a job has to know of the site.
    pub of_srun: SiteOfSrun,
    /// Path of the program `stepd`, as which tasks with prologs begin.
    pub stepd: String,
    /// `JobAcctGatherFrequency`: how often it is looked at what running tasks use, of steps that do not say it. `None`: never.
    pub look_every: Option<Duration>,
    /// The energy of steps is read.
    pub meters_energy: bool,
    /// How time series are recorded here; `None`: none are.
    pub series: Option<SeriesConfig>,
    /// `KillWait`. Default 30 s.
    pub kill_wait: Duration,
    /// How long the streams of an ended task may stay open. Default 2 s: long enough for data that is still in a pipe, short
    /// enough for commands that wait.
    pub linger: Duration,
    /// For messages that name a time.
    pub zone: TimeZone,
}

impl ShepherdConfig {
    /// With defaults.
    pub fn new(job: JobId, node: &str, door: &str, job_cpus: CpuSet) -> Self {
        Self {
            job,
            node: node.into(),
            job_nodes: 1,
            door: door.into(),
            job_cpus,
            cpu_map: Vec::new(),
            shape: NodeShape::default(),
            gpus: GpuSight::default(),
            gpu_minors: Vec::new(),
            cgroups: false,
            governor: None,
            priority: PropagatePriority::No,
            task_scripts: TaskScripts::default(),
            of_srun: SiteOfSrun::default(),
            stepd: String::new(),
            look_every: None,
            meters_energy: false,
            series: None,
            kill_wait: Duration::from_secs(30),
            linger: Duration::from_secs(2),
            zone: TimeZone::UTC,
        }
    }
}

/// How often a launcher that ends is replaced.
pub(super) const LAUNCHER_RESTARTS: u32 = 3;

/// The shepherd's core.
#[derive(Debug)]
pub struct ShepherdCore {
    pub(super) config: ShepherdConfig,
    pub(super) phase: ShepherdPhase,
    pub(super) steps: BTreeMap<StepId, StepHere>,
    pub(super) tasks: BTreeMap<u64, TaskHere>,
    pub(super) next_token: u64,
    pub(super) settings: LauncherSettings,
    pub(super) launcher_up: bool,
    /// It is known what an earlier `stepd` left: a launcher is or was up, or there is none.
    pub(super) launcher_known: bool,
    /// No launcher of the run died: every task that was ever started here is or was known.
    pub(super) complete: bool,
    /// The step manager waits for a list of tasks.
    pub(super) listing: bool,
    pub(super) ends: Ends,
    pub(super) launcher_restarts: u32,
    /// Ended tasks with open streams, in the order of their deadlines.
    pub(super) lingering: VecDeque<(Timestamp, u64)>,
    /// Epilogs of tasks that run, by token.
    pub(super) running_epilogs: BTreeMap<u64, RunningEpilog>,
    /// Steps that were told to end, with the number of the try, in the order in which their KillWait ends.
    pub(super) escalations: VecDeque<(Timestamp, StepId, u32)>,
    /// Steps that were to start after others and did not, the latest last.
    pub(super) given_back: VecDeque<StepId>,
    /// Paths of scripts that were written, the latest first.
    pub(super) scripts: Vec<(Arc<StepLaunch>, String)>,
    /// The batch script's error file, which gets notes after the script's end too.
    pub(super) job_error_path: Option<String>,
    pub(super) manager: bool,
    /// The run is stopped.
    pub(super) still: bool,
    /// Tasks that were ordered since it was stopped.
    pub(super) stopped_at_start: Vec<u64>,
    /// After what time the next look at running tasks was ordered, if one was.
    pub(super) looks_after: Option<Duration>,
    /// When the node is sampled for time series.
    pub(super) series_due: SeriesDue,
    /// The time of the input that is being handled.
    pub(super) now: Timestamp,
}

impl ShepherdCore {
    /// A shepherd whose launcher is being started.
    pub fn new(config: ShepherdConfig) -> Self {
        Self {
            settings: LauncherSettings::new(&config.door, config.priority, &config.of_srun),
            config,
            phase: ShepherdPhase::Serving,
            steps: BTreeMap::new(),
            tasks: BTreeMap::new(),
            next_token: 1,
            launcher_up: false,
            launcher_known: false,
            complete: true,
            listing: false,
            ends: Ends::default(),
            launcher_restarts: 0,
            lingering: VecDeque::new(),
            running_epilogs: BTreeMap::new(),
            escalations: VecDeque::new(),
            given_back: VecDeque::new(),
            scripts: Vec::new(),
            job_error_path: None,
            manager: true,
            still: false,
            stopped_at_start: Vec::new(),
            looks_after: None,
            series_due: SeriesDue::default(),
            now: Timestamp::default(),
        }
    }

    /// The current phase.
    pub const fn phase(&self) -> ShepherdPhase {
        self.phase
    }

    /// Handles one input and appends its effects.
    pub fn handle(&mut self, now: Timestamp, input: ShepherdInput, out: &mut Vec<ShepherdEffect>) {
        if self.phase == ShepherdPhase::Gone {
            return self.on_manager_when_gone(&input, out);
        }
        self.now = now;
        match input {
            ShepherdInput::LauncherUp { first } => {
                self.complete &= first;
                self.launcher_up(out);
            }
            ShepherdInput::Adopted { tasks, ended, complete } => self.adopted(tasks, ended, complete, out),
            ShepherdInput::LauncherDown { detail, for_memory } => self.launcher_down(now, &detail, for_memory, out),
            ShepherdInput::Launcher(message) => self.on_launcher(now, message, out),
            ShepherdInput::Manager(message) => self.on_manager(now, message, out),
            ShepherdInput::ManagerLost => {
                self.manager = false;
                self.end_job(out);
            }
            ShepherdInput::Prepared { step, result } => self.prepared(step, result, out),
            ShepherdInput::Data { token, stream, data } => self.data(token, stream, data, out),
            ShepherdInput::Written { token, taken } => self.written(token, taken, out),
            ShepherdInput::Pmi { token, asked } => self.pmi(token, asked, out),
            ShepherdInput::Oom { token, killed } => self.oom_known(token, killed, out),
            ShepherdInput::Swept { step } => self.step_gone(step, out),
            ShepherdInput::JobSwept => self.job_swept(out),
            ShepherdInput::Sampled { step, query, tasks } => {
                self.sampled(step, &tasks);
                self.say(ShepherdToStepMgr::Sampled { step, query, tasks }, out);
            }
            ShepherdInput::Looked { seen } => self.looked(&seen),
            ShepherdInput::MeterRead { token, joules } => self.meter_read(token, joules, out),
            ShepherdInput::Timer(ShepherdTimer::Look) => self.look(out),
            ShepherdInput::Timer(ShepherdTimer::Series) => self.collect_due(out),
            ShepherdInput::Timer(ShepherdTimer::Linger) => self.give_up_streams(now, out),
            ShepherdInput::Timer(ShepherdTimer::Kill) => self.escalate(now, out),
            ShepherdInput::Timer(ShepherdTimer::LastEnds) => self.give_up_ends(out),
            ShepherdInput::Timer(ShepherdTimer::Leave) if self.phase == ShepherdPhase::Leaving => self.gone(out),
            ShepherdInput::Timer(ShepherdTimer::Leave) => {}
            ShepherdInput::Timer(ShepherdTimer::Epilog) => self.limit_epilogs(now, out),
        }
    }

    /// A new step manager may not know how its steps ended here, and that nothing is left.
    fn on_manager_when_gone(&mut self, input: &ShepherdInput, out: &mut Vec<ShepherdEffect>) {
        match input {
            ShepherdInput::Manager(StepMgrToShepherd::EndJob) => self.say(ShepherdToStepMgr::Gone, out),
            ShepherdInput::Manager(StepMgrToShepherd::ListTasks) => {
                // The run may have been ended before its launcher was found.
                self.complete &= std::mem::replace(&mut self.launcher_known, true);
                self.list_tasks(out);
                self.say(ShepherdToStepMgr::Gone, out);
            }
            _ => {}
        }
    }

    fn on_manager(&mut self, now: Timestamp, message: StepMgrToShepherd, out: &mut Vec<ShepherdEffect>) {
        match message {
            StepMgrToShepherd::Welcome => {}
            StepMgrToShepherd::Keep { .. } => {}
            StepMgrToShepherd::Launch(start) => self.launch(*start, out),
            StepMgrToShepherd::Stdin { step, data, rank } => {
                let push = |here: &mut StepHere| {
                    // A token that no task has: nobody takes it.
                    let only = rank.map(|rank| here.token(rank).unwrap_or(u64::MAX));
                    here.input.push(data, only)
                };
                let tokens = self.steps.get_mut(&step).map(push).unwrap_or_default();
                for token in tokens {
                    self.feed(token, out);
                }
                self.trim_input(step, 0, out);
            }
            StepMgrToShepherd::Signal { signal, whole_run: true, .. } => self.signal_run(signal, out),
            StepMgrToShepherd::Signal { step, signal, reach, .. } => self.signal_step(step, signal, reach, out),
            StepMgrToShepherd::Terminate { step } => self.terminate(now, step, out),
            StepMgrToShepherd::Kill { step } => self.kill(step, out),
            StepMgrToShepherd::Resize { step, rows, cols } => {
                if let Some(token) = self.steps.get(&step).and_then(|s| s.token(0)) {
                    out.push(ShepherdEffect::Resize { token, rows, cols });
                }
            }
            StepMgrToShepherd::EndJob => self.end_job(out),
            StepMgrToShepherd::Credit { step, bytes } => self.credit(step, bytes, out),
            StepMgrToShepherd::Sample { step, query } => {
                let tasks = self.running_tasks(step);
                out.push(ShepherdEffect::Sample { step, query, tasks });
            }
            StepMgrToShepherd::Note { step, text } => self.note(step, &text, out),
            StepMgrToShepherd::PmiFenced { step, fence, puts } => {
                self.fenced(step, fence, Arc::unwrap_or_clone(puts), out)
            }
            StepMgrToShepherd::ListTasks => self.list_tasks(out),
        }
    }

    fn on_launcher(&mut self, now: Timestamp, message: FromLauncher, out: &mut Vec<ShepherdEffect>) {
        match message {
            FromLauncher::Spawned { token, pid } => self.spawned(token, pid, out),
            FromLauncher::SpawnFailed { token, failure } => {
                if !self.epilog_over(now, token, Some(failure.status()), out) {
                    self.spawn_failed(now, token, &failure, out);
                }
            }
            FromLauncher::Exited { token, pid, status, usage, survivors } => {
                let failure = (!status.success()).then_some(status);
                if !self.epilog_over(now, token, failure, out) {
                    self.exited(now, token, Exit { pid, status, usage, survivors }, out);
                }
            }
            FromLauncher::NotStarted { token } => self.not_started(token, out),
            FromLauncher::Survivors { pid } => out.push(ShepherdEffect::KillGroups { pids: vec![pid] }),
            FromLauncher::PackFailed { label, message } => self.pack_failed(label, &message, out),
            // The connection collects these (`Adopted`).
            FromLauncher::Held { .. } => {}
        }
    }

    pub(super) fn launcher_up(&mut self, out: &mut Vec<ShepherdEffect>) {
        self.launcher_up = true;
        self.launcher_known = true;
        let ready: Vec<StepId> =
            self.steps.iter().filter(|(_, s)| !s.unspawned.is_empty() && !s.sweeping).map(|(id, _)| *id).collect();
        for step in ready {
            self.prepare(step, out);
        }
        if self.still {
            self.signal_run(SIGSTOP, out);
        }
        if self.listing {
            self.list_tasks(out);
        }
    }

    /// Output of a task: it is relayed within the step's credit, and the next read is requested while there is some.
    fn data(&mut self, token: u64, stream: Stream, data: ByteBuf, out: &mut Vec<ShepherdEffect>) {
        use crate::shepherd::state::StreamState;
        let at = stream_index(stream);
        let Some(task) = self.tasks.get_mut(&token) else { return };
        if task.streams[at] != StreamState::Reading {
            return;
        }
        let (id, rank) = (task.step, task.rank);
        if data.is_empty() {
            task.streams[at] = StreamState::Closed;
            if task.spoke[at] {
                self.say(ShepherdToStepMgr::Output { step: id, rank, stream, data }, out);
            }
            return self.report_if_over(token, out);
        }
        task.spoke[at] = true;
        let Some(step) = self.steps.get_mut(&id) else { return };
        step.credit -= (data.len() as u64 + garrick_model::messages::shepherd::OUTPUT_FRAME_COST) as i64;
        if step.credit > 0 {
            out.push(ShepherdEffect::ToManager(ShepherdToStepMgr::Output { step: id, rank, stream, data }));
            out.push(ShepherdEffect::Read { token, stream });
        } else {
            task.streams[at] = StreamState::Paused;
            step.paused.insert((token, at as u8));
            self.say(ShepherdToStepMgr::Output { step: id, rank, stream, data }, out);
        }
    }

    /// The step manager passed output on: reading continues.
    fn credit(&mut self, step: StepId, bytes: u64, out: &mut Vec<ShepherdEffect>) {
        use crate::shepherd::state::{StreamState, stream_at};
        let Some(here) = self.steps.get_mut(&step) else { return };
        here.credit = here.credit.saturating_add(i64::try_from(bytes).unwrap_or(i64::MAX));
        if here.credit <= 0 {
            return;
        }
        for (token, at) in std::mem::take(&mut here.paused) {
            if let Some(task) = self.tasks.get_mut(&token)
                && task.streams[usize::from(at)] == StreamState::Paused
            {
                task.streams[usize::from(at)] = StreamState::Reading;
                out.push(ShepherdEffect::Read { token, stream: stream_at(usize::from(at)) });
            }
        }
    }

    /// Hands a task its next input.
    pub(super) fn feed(&mut self, token: u64, out: &mut Vec<ShepherdEffect>) {
        let Some(task) = self.tasks.get(&token) else { return };
        let id = task.step;
        let terminal = task.rank == 0 && self.steps.get(&id).is_some_and(|s| s.launch.pty.is_some());
        let Some(step) = self.steps.get_mut(&id) else { return };
        match step.input.next(token) {
            NextInput::Wait => {}
            NextInput::Write(data) => out.push(ShepherdEffect::Write { token, data }),
            // The input of a terminal has no end of its own; closing it would send a hangup to the task.
            NextInput::End if terminal => {}
            NextInput::End => out.push(ShepherdEffect::CloseInput { token }),
        }
    }

    fn written(&mut self, token: u64, taken: bool, out: &mut Vec<ShepherdEffect>) {
        let Some(id) = self.tasks.get(&token).map(|t| t.step) else { return };
        let Some(step) = self.steps.get_mut(&id) else { return };
        let bytes = if taken { step.input.written(token) } else { step.input.remove_reader(token) };
        self.trim_input(id, bytes, out);
        if taken {
            self.feed(token, out);
        } else {
            out.push(ShepherdEffect::CloseInput { token });
        }
    }

    /// Reports input that was taken, or that no task is left to take.
    pub(super) fn trim_input(&mut self, step: StepId, taken: u64, out: &mut Vec<ShepherdEffect>) {
        let Some(here) = self.steps.get_mut(&step) else { return };
        let bytes = taken + here.input.trim();
        if bytes > 0 {
            self.say(ShepherdToStepMgr::StdinConsumed { step, bytes }, out);
        }
    }

    /// Rank and first process of the step's tasks that run, as far as that process is known here.
    fn running_tasks(&self, step: StepId) -> Vec<(u32, Option<u32>)> {
        let tokens = self.steps.get(&step).map(|here| &here.running[..]).unwrap_or_default();
        let running = |(rank, token): &(u32, u64)| match self.tasks.get(token)?.phase {
            TaskPhase::Running { pid, .. } => Some((*rank, Some(pid))),
            TaskPhase::Launched => Some((*rank, None)),
            _ => None,
        };
        tokens.iter().filter_map(running).collect()
    }

    /// Writes a line into the error file of a step's first task here; for the batch script also after its end.
    fn note(&self, step: StepId, text: &str, out: &mut Vec<ShepherdEffect>) {
        let batch = step.step == garrick_model::ids::StepNum::Batch;
        let path = match self.steps.get(&step) {
            Some(here) => here.error_path.as_ref(),
            None if batch => self.job_error_path.as_ref(),
            None => None,
        };
        if let Some(path) = path {
            self.append(path, text, out);
        }
    }

    pub(super) fn append(&self, path: &str, line: &str, out: &mut Vec<ShepherdEffect>) {
        let message =
            ToLauncher::AppendText { path: path.to_owned(), text: ByteBuf::from(format!("{line}\n").into_bytes()) };
        out.push(ShepherdEffect::ToLauncher { message, passed: Vec::new() });
    }

    pub(super) fn say(&self, message: ShepherdToStepMgr, out: &mut Vec<ShepherdEffect>) {
        if self.manager {
            out.push(ShepherdEffect::ToManager(message));
        }
    }
}

#[cfg(test)]
#[path = "core_test.rs"]
mod tests;
