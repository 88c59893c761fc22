//! The shepherd's part about tasks: launching, failures to launch in Slurm's wording, ends.

use crate::shepherd::{
    core::ShepherdCore,
    messages::{PassedFd, ShepherdEffect, ShepherdTimer},
    state::{ShepherdPhase, StepHere, StreamState, TaskHere, TaskPhase, stream_at},
    stdio::{self, StdioPlan},
};
use garrick_model::{
    ids::StepId,
    messages::{
        launcher::{SpawnTask, TaskUsage, ToLauncher},
        shepherd::{ShepherdToStepMgr, StepLaunch, StepNodeShare, Stream, TaskLaunch},
    },
    spec::{CpuBind, EnvEntry},
    state::ExitStatus,
    time::Timestamp,
};
use serde_bytes::ByteBuf;
use std::sync::Arc;

/// Exit status of a task that could not be started for the system's reasons.
const NOT_STARTED: ExitStatus = ExitStatus { code: 1, signal: None };

/// Linux's number of the signal that out-of-memory kills are made with.
const SIGKILL: u8 = 9;

impl ShepherdCore {
    pub(super) fn launch(
        &mut self,
        now: Timestamp,
        launch: Arc<StepLaunch>,
        share: StepNodeShare,
        tasks: Vec<TaskLaunch>,
        out: &mut Vec<ShepherdEffect>,
    ) {
        let step = launch.step;
        if self.steps.contains_key(&step) {
            return;
        }
        if self.phase != ShepherdPhase::Serving {
            for task in tasks {
                self.failed(step, task.rank, "the job is ending".into(), NOT_STARTED, out);
            }
            return self.say(ShepherdToStepMgr::StepGone { step }, out);
        }
        let mut here = StepHere::new(launch, share, tasks);
        here.share.own_cgroup &= self.config.cgroups;
        self.steps.insert(step, here);
        if self.launcher_up {
            self.prepare(now, step, out);
        } else if self.launcher_restarts > super::core::LAUNCHER_RESTARTS {
            self.fail_unspawned(step, "no launcher can be started", out);
        }
    }

    /// Script and cgroup first, where the step has them.
    pub(super) fn prepare(&mut self, now: Timestamp, step: StepId, out: &mut Vec<ShepherdEffect>) {
        let Some(here) = self.steps.get(&step) else { return };
        if here.ending {
            return self.fail_unspawned(step, "the step was ended", out);
        }
        let script = here.launch.script.clone().filter(|_| here.script.is_none());
        let cgroup = here.share.own_cgroup.then(|| here.share.clone());
        if script.is_none() && cgroup.is_none() {
            self.spawn_all(now, step, out);
        } else {
            out.push(ShepherdEffect::Prepare { step, script, cgroup });
        }
    }

    pub(super) fn prepared(
        &mut self,
        now: Timestamp,
        step: StepId,
        result: Result<Option<String>, String>,
        out: &mut Vec<ShepherdEffect>,
    ) {
        let Some(here) = self.steps.get_mut(&step) else { return };
        match result {
            Ok(script) => {
                here.script = script.or(here.script.take());
                if here.ending || self.phase != ShepherdPhase::Serving {
                    self.fail_unspawned(step, "the step was ended", out);
                } else if self.launcher_up {
                    self.spawn_all(now, step, out);
                }
            }
            Err(message) => self.fail_unspawned(step, &message, out),
        }
    }

    /// The tasks of a step that were not spawned will not be.
    pub(super) fn fail_unspawned(&mut self, step: StepId, message: &str, out: &mut Vec<ShepherdEffect>) {
        let Some(here) = self.steps.get_mut(&step) else { return };
        let tasks = std::mem::take(&mut here.unspawned);
        here.tasks_left -= tasks.len() as u32;
        for task in tasks {
            self.failed(step, task.rank, format!("slurmstepd: error: {message}"), NOT_STARTED, out);
        }
        self.step_over_if_done(step, out);
    }

    fn spawn_all(&mut self, now: Timestamp, step: StepId, out: &mut Vec<ShepherdEffect>) {
        let Some(here) = self.steps.get_mut(&step) else { return };
        for task in std::mem::take(&mut here.unspawned) {
            self.spawn(now, step, task, false, out);
        }
    }

    /// Hands a task to the launcher. `moved`: its working directory is out of reach, /tmp is taken instead.
    fn spawn(&mut self, _now: Timestamp, id: StepId, task: TaskLaunch, moved: bool, out: &mut Vec<ShepherdEffect>) {
        let token = self.next_token;
        self.next_token += 1;
        let Some(here) = self.steps.get_mut(&id) else { return };
        let launch = here.launch.clone();
        let lookup = self.environments.get(&launch.environment);
        if let Some(dropped) = lookup.dropped {
            let message = ToLauncher::DropEnvironment { id: dropped };
            out.push(ShepherdEffect::ToLauncher { message, passed: Vec::new() });
        }
        if lookup.new {
            let mut entries: Vec<EnvEntry> = launch.environment.as_ref().clone();
            entries.retain(|e| !e.starts_with(b"GARRICK_STEPD_DOOR="));
            entries.push(ByteBuf::from(format!("GARRICK_STEPD_DOOR={}", self.config.door).into_bytes()));
            let message = ToLauncher::SetEnvironment { id: lookup.id, entries };
            out.push(ShepherdEffect::ToLauncher { message, passed: Vec::new() });
        }
        let StdioPlan { sources, mut passed, pty, streams, input, error_path } =
            stdio::plan(here, &self.config.node, &task, token);
        let affinity = affinity(&self.config.cpu_map, &self.config.job_cpus, here, &task);
        let mut argv: Vec<ByteBuf> = task.argv.as_ref().clone();
        if let Some(script) = &here.script {
            let path = ByteBuf::from(script.clone().into_bytes());
            match argv.first_mut() {
                Some(first) => *first = path,
                None => argv.push(path),
            }
        }
        let mut extra_env = Vec::with_capacity(launch.step_env.len() + here.share.env.len() + task.extra_env.len());
        extra_env.extend(launch.step_env.iter().chain(&here.share.env).chain(&task.extra_env).cloned());
        let cgroups = here.share.own_cgroup.then(|| {
            passed.push(PassedFd::Cgroup { step: id });
            passed.len() as u8 - 1
        });
        if here.error_path.is_none() {
            here.error_path.clone_from(&error_path);
        }
        if launch.batch {
            self.job_error_path.clone_from(&error_path);
        }
        here.tokens.insert(task.rank, token);
        if input {
            here.input.add_reader(token);
        }
        let message = ToLauncher::Spawn(Box::new(SpawnTask {
            token,
            argv,
            environment: lookup.id,
            extra_env,
            work_dir: if moved { "/tmp".into() } else { launch.work_dir.clone() },
            stdio: sources,
            pty,
            umask: launch.umask,
            rlimits: launch.rlimits.iter().map(|l| (l.resource, l.soft)).collect(),
            affinity,
            cgroups,
        }));
        let phase = TaskPhase::Spawning;
        self.tasks.insert(token, TaskHere { step: id, task, phase, streams, spoke: [false; 2], error_path, moved });
        out.push(ShepherdEffect::ToLauncher { message, passed });
    }

    pub(super) fn spawned(&mut self, token: u64, pid: u32, out: &mut Vec<ShepherdEffect>) {
        let Some(task) = self.tasks.get_mut(&token) else { return };
        if task.phase != TaskPhase::Spawning {
            return;
        }
        task.phase = TaskPhase::Running { pid };
        let (step, rank) = (task.step, task.task.rank);
        for (at, stream) in task.streams.iter_mut().enumerate() {
            if *stream == StreamState::Idle {
                *stream = StreamState::Reading;
                out.push(ShepherdEffect::Read { token, stream: stream_at(at) });
            }
        }
        self.say(ShepherdToStepMgr::TaskStarted { step, rank, pid }, out);
        self.feed(token, out);
    }

    /// A task could not be started. A working directory out of reach is replaced by /tmp; all else is the task's end, with
    /// the errno as exit code where the program could not be executed.
    pub(super) fn spawn_failed(
        &mut self,
        now: Timestamp,
        token: u64,
        stage: &str,
        subject: &str,
        errno: i32,
        out: &mut Vec<ShepherdEffect>,
    ) {
        let Some(task) = self.tasks.remove(&token) else { return };
        let (id, rank) = (task.step, task.task.rank);
        out.push(ShepherdEffect::Close { token });
        let Some(here) = self.steps.get_mut(&id) else { return };
        let freed = here.input.remove_reader(token);
        here.tokens.remove(&rank);
        let batch = here.launch.batch;
        self.trim_input(id, freed, out);
        let why = error_text(errno);
        if stage == "chdir" && !task.moved {
            let line = format!("slurmstepd: error: couldn't chdir to `{subject}': {why}: going to /tmp instead");
            self.spawn(now, id, task.task, true, out);
            match &task.error_path {
                // After the launcher opened (and truncated) the file.
                Some(path) => self.append(path, &line, out),
                None if task.streams[1] == StreamState::Idle || task.streams[0] == StreamState::Idle => {
                    let data = ByteBuf::from(format!("{line}\n").into_bytes());
                    self.say(ShepherdToStepMgr::Output { step: id, rank, stream: Stream::Stderr, data }, out);
                }
                None => {}
            }
            return;
        }
        let (text, status) = match stage {
            "execve" => (format!("execve(): {subject}: {why}"), ExitStatus { code: exit_code(errno), signal: None }),
            "open stdin" | "open stdout" | "open stderr" => {
                (format!("Could not {stage} file {subject}: {why}"), NOT_STARTED)
            }
            _ => (format!("{stage} {subject}: {why}"), NOT_STARTED),
        };
        if let Some(path) = &task.error_path {
            self.append(path, &format!("slurmstepd: error: {text}"), out);
        }
        let message = format!("[{}] error: {text}", now.text_with_millis(&self.config.zone));
        if batch {
            out.push(ShepherdEffect::Log { text: format!("batch script of job {}: {text}", self.config.job) });
        }
        self.failed(id, rank, message, status, out);
        self.count_out(id, None, out);
    }

    fn failed(&self, step: StepId, rank: u32, message: String, status: ExitStatus, out: &mut Vec<ShepherdEffect>) {
        self.say(ShepherdToStepMgr::TaskFailed { step, rank, message, status }, out);
    }

    pub(super) fn exited(
        &mut self,
        now: Timestamp,
        token: u64,
        status: ExitStatus,
        usage: TaskUsage,
        out: &mut Vec<ShepherdEffect>,
    ) {
        let Some(task) = self.tasks.get_mut(&token) else { return };
        let TaskPhase::Running { pid } = task.phase else { return };
        let step = self.steps.get(&task.step);
        // Only SIGKILL that was not ours may be the kernel's for lack of memory.
        let ask =
            status.signal == Some(SIGKILL) && self.phase == ShepherdPhase::Serving && step.is_some_and(|s| !s.ending);
        let own = step.is_some_and(|s| s.share.own_cgroup);
        task.phase = TaskPhase::Ended { pid, status, usage, oom: (!ask).then_some(false) };
        if ask {
            out.push(ShepherdEffect::AskOom { token, step: own.then_some(task.step) });
        }
        let id = task.step;
        let open = task.streams.iter().any(|s| *s != StreamState::Closed);
        if let Some(here) = self.steps.get_mut(&id) {
            let freed = here.input.remove_reader(token);
            self.trim_input(id, freed, out);
        }
        if open {
            if self.lingering.is_empty() {
                let timer = ShepherdTimer::Linger;
                out.push(ShepherdEffect::SetTimer { timer, after: self.config.linger });
            }
            self.lingering.push_back((now.plus(self.config.linger), token));
        }
        self.report_if_over(token, out);
    }

    pub(super) fn oom_known(&mut self, token: u64, killed: bool, out: &mut Vec<ShepherdEffect>) {
        if let Some(TaskPhase::Ended { oom, .. }) = self.tasks.get_mut(&token).map(|t| &mut t.phase) {
            *oom = Some(killed);
            self.report_if_over(token, out);
        }
    }

    /// Reports a task's end once nothing of its output is outstanding.
    pub(super) fn report_if_over(&mut self, token: u64, out: &mut Vec<ShepherdEffect>) {
        let Some(task) = self.tasks.get(&token) else { return };
        let TaskPhase::Ended { pid, status, usage, oom: Some(oom) } = task.phase else { return };
        if task.streams.iter().any(|s| *s != StreamState::Closed) {
            return;
        }
        let (id, rank) = (task.step, task.task.rank);
        self.tasks.remove(&token);
        if self.steps.get(&id).is_some_and(|s| s.launch.stdin == garrick_model::spec::StreamTarget::Relay) {
            // Output ends are dropped at their end of file; an input end may still be held.
            out.push(ShepherdEffect::Close { token });
        }
        self.say(ShepherdToStepMgr::TaskExited { step: id, rank, status, usage, oom }, out);
        if let Some(here) = self.steps.get_mut(&id) {
            here.tokens.remove(&rank);
        }
        // A made-up end has no process; group 0 would be our own.
        self.count_out(id, Some(pid).filter(|p| *p != 0), out);
    }

    /// One task fewer. `pid`: its process group may have survivors.
    fn count_out(&mut self, id: StepId, pid: Option<u32>, out: &mut Vec<ShepherdEffect>) {
        let Some(here) = self.steps.get_mut(&id) else { return };
        here.tasks_left -= 1;
        here.groups.extend(pid);
        self.step_over_if_done(id, out);
    }

    /// Streams of ended tasks that somebody else still holds open are given up; those that wait for credit are not.
    pub(super) fn give_up_streams(&mut self, now: Timestamp, out: &mut Vec<ShepherdEffect>) {
        while let Some((deadline, token)) = self.lingering.front().copied() {
            if deadline > now {
                let after = deadline.since(now);
                out.push(ShepherdEffect::SetTimer { timer: ShepherdTimer::Linger, after });
                return;
            }
            self.lingering.pop_front();
            let Some(task) = self.tasks.get_mut(&token) else { continue };
            for stream in &mut task.streams {
                if *stream == StreamState::Reading {
                    *stream = StreamState::Closed;
                }
            }
            if task.streams.contains(&StreamState::Paused) {
                self.lingering.push_back((now.plus(self.config.linger), token));
            } else {
                out.push(ShepherdEffect::Close { token });
                self.report_if_over(token, out);
            }
        }
    }
}

/// CPUs of the machine to bind a task to; none where the job's own binding is what it gets.
fn affinity(map: &[u32], job_cpus: &garrick_model::resources::CpuSet, step: &StepHere, task: &TaskLaunch) -> Vec<u32> {
    let real = |cpu: u32| map.get(cpu as usize).copied();
    if map.is_empty() {
        return Vec::new();
    }
    match &step.launch.cpu_bind {
        CpuBind::None => Vec::new(),
        CpuBind::Map(list) if list.is_empty() => Vec::new(),
        CpuBind::Map(list) => vec![list[task.local_id as usize % list.len()]],
        CpuBind::Cores => {
            let per_task = step.launch.cpus_per_task.max(1) as usize;
            let cpus: Vec<u32> = step.share.cpus.iter().filter_map(real).collect();
            let first = task.local_id as usize * per_task;
            cpus.get(first..(first + per_task).min(cpus.len())).filter(|c| !c.is_empty()).unwrap_or(&cpus).to_vec()
        }
        CpuBind::Default if step.share.cpus == *job_cpus => Vec::new(),
        CpuBind::Default => step.share.cpus.iter().filter_map(real).collect(),
    }
}

/// An error number as an exit code.
fn exit_code(errno: i32) -> u8 {
    u8::try_from(errno).ok().filter(|c| *c != 0).unwrap_or(1)
}

/// `No such file or directory`.
fn error_text(errno: i32) -> String {
    let text = std::io::Error::from_raw_os_error(errno).to_string();
    match text.find(" (os error") {
        Some(at) => text[..at].to_owned(),
        None => text,
    }
}
