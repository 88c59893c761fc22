//! Tasks in the shepherd: launches, failures to launch in Slurm's wording, ends.

use crate::shepherd::{
    binding::Bindings,
    core::ShepherdCore,
    ending::kill_groups,
    messages::{PassedFd, ShepherdEffect, ShepherdTimer},
    pmi,
    state::{Exit, ShepherdPhase, StepHere, StreamState, TaskHere, TaskPhase, stream_at},
    stdio::{self, NodePlace, StdioPlan},
    task_scripts::{behind_prologs, epilogs},
};
use garrick_model::{
    cpu_freq::CpuFreq,
    gpu_freq::GpuFreq,
    gres::{GPU, devices_in},
    ids::StepId,
    messages::{
        files,
        launch_failure::{LaunchFailure, NOT_STARTED},
        launcher::{SpawnTask, TaskLabel, ToLauncher},
        shepherd::{LaunchRef, ShepherdToStepMgr, StepLaunch, StepStart, TaskEnd, TaskFound, TaskLaunch},
    },
    signal::SIGKILL,
    state::ExitStatus,
    time::Timestamp,
    usage::TaskUsage,
};
use serde_bytes::ByteBuf;
use std::sync::Arc;

/// How many steps given back are remembered: what was sent after them may still be in flight.
const GIVEN_BACK_KEPT: usize = 256;

/// How many scripts are known to be written: those of step arrays are.
const SCRIPTS_KEPT: usize = 16;

impl ShepherdCore {
    pub(super) fn launch(&mut self, start: StepStart, out: &mut Vec<ShepherdEffect>) {
        let step = start.step;
        if self.steps.contains_key(&step) {
            return;
        }
        if self.phase != ShepherdPhase::Serving {
            for task in start.tasks {
                self.failed(step, task.rank, "the job is ending".into(), NOT_STARTED, out);
            }
            return self.say(ShepherdToStepMgr::StepGone { step }, out);
        }
        let LaunchRef::Whole(launch) = &start.launch else {
            // Links replace this by the whole message; there is nothing to start here.
            for task in start.tasks {
                self.failed(step, task.rank, "the step's launch is not known here".into(), NOT_STARTED, out);
            }
            return self.say(ShepherdToStepMgr::StepGone { step }, out);
        };
        if start.after.is_some_and(|after| self.given_back.contains(&after)) {
            // The step whose place it was to get is not known any more.
            self.give_back(step);
            return self.say(ShepherdToStepMgr::NotStarted { step }, out);
        }
        self.given_back.retain(|other| *other != step);
        let mut here = StepHere::new(Arc::clone(launch), start);
        here.share.own_cgroup &= self.config.cgroups;
        self.steps.insert(step, here);
        if self.launcher_up {
            self.prepare(step, out);
        } else if self.launcher_restarts > super::core::LAUNCHER_RESTARTS {
            self.fail_unspawned(step, "no launcher can be started", out);
        }
    }

    /// Prepares script and cgroup first, if the step has them. A script that was written for another step is not written again.
    pub(super) fn prepare(&mut self, step: StepId, out: &mut Vec<ShepherdEffect>) {
        let Some(here) = self.steps.get_mut(&step) else { return };
        if here.ending {
            return self.fail_unspawned(step, "the step was ended", out);
        }
        if here.script.is_none() && here.launch.script.is_some() {
            let same = |(launch, _): &&(Arc<StepLaunch>, String)| {
                Arc::ptr_eq(launch, &here.launch) || launch.script == here.launch.script
            };
            here.script = self.scripts.iter().find(same).map(|(_, path)| path.clone());
        }
        let script = here.launch.script.clone().filter(|_| here.script.is_none());
        let cgroup = here.share.own_cgroup.then(|| here.share.clone());
        if script.is_none() && cgroup.is_none() {
            self.spawn_all(step, out);
        } else {
            out.push(ShepherdEffect::Prepare { step, script, cgroup });
        }
    }

    pub(super) fn prepared(
        &mut self,
        step: StepId,
        result: Result<Option<String>, String>,
        out: &mut Vec<ShepherdEffect>,
    ) {
        let Some(here) = self.steps.get_mut(&step) else { return };
        match result {
            Ok(script) => {
                if let Some(path) = script {
                    self.scripts.truncate(SCRIPTS_KEPT - 1);
                    self.scripts.insert(0, (Arc::clone(&here.launch), path.clone()));
                    here.script = Some(path);
                }
                if here.ending || self.phase != ShepherdPhase::Serving {
                    self.fail_unspawned(step, "the step was ended", out);
                } else if self.launcher_up {
                    self.spawn_all(step, out);
                }
            }
            Err(message) => self.fail_unspawned(step, &message, out),
        }
    }

    /// The step's tasks that were not spawned will not be.
    pub(super) fn fail_unspawned(&mut self, step: StepId, message: &str, out: &mut Vec<ShepherdEffect>) {
        let Some(here) = self.steps.get_mut(&step) else { return };
        let tasks = std::mem::take(&mut here.unspawned);
        here.tasks_left -= tasks.len() as u32;
        for task in tasks {
            self.never_ran(step, task.rank, format!("slurmstepd: error: {message}"), NOT_STARTED, true, out);
        }
        self.step_over_if_done(step, out);
    }

    fn spawn_all(&mut self, step: StepId, out: &mut Vec<ShepherdEffect>) {
        let Some(here) = self.steps.get_mut(&step) else { return };
        let tasks = std::mem::take(&mut here.unspawned);
        let ids = tasks.iter().map(|task| task.local_id + 1).max().unwrap_or(0);
        let bindings = Bindings::new(&self.config.job_cpus, &self.config.shape, here, ids);
        here.own_env.extend(bindings.variables(&self.config.cpu_map, here.tasks_here));
        self.set_frequency(step, out);
        if self.config.meters_energy {
            out.push(ShepherdEffect::StartMeter { step });
        }
        let mut tasks = tasks.into_iter();
        while let Some(task) = tasks.next() {
            self.spawn(step, task, &bindings, tasks.len() == 0, out);
        }
        self.look_later(step, out);
        self.collect_from_now(step, out);
    }

    /// What a step asks for, or the site where it asks for nothing; the batch script's CPUs are those of the steps in it. Tasks that
    /// are not kept to their CPUs have none to be set (srun(1), `--cpu-freq`).
    fn frequency(&self, here: &StepHere) -> Option<CpuFreq> {
        let asked = here.launch.cpu_freq.or(self.config.governor.map(CpuFreq::Governed));
        asked.filter(|_| !here.launch.batch && !self.config.cpu_map.is_empty())
    }

    /// What a step asks of its GPUs here, with the numbers of their files. Those of which it only has shards are others' too.
    fn gpu_clocks(&self, here: &StepHere) -> Option<(GpuFreq, Vec<u32>)> {
        let asked = here.launch.gpu_freq?;
        let own = devices_in(&here.share.gres, GPU);
        let of_step = self.config.gpu_minors.iter().filter(|(gpu, _)| own.contains(*gpu));
        (!own.is_empty()).then(|| (asked, of_step.map(|(_, minor)| *minor).collect()))
    }

    fn set_frequency(&self, step: StepId, out: &mut Vec<ShepherdEffect>) {
        let Some(here) = self.steps.get(&step) else { return };
        match self.gpu_clocks(here) {
            Some((asked, gpus)) if gpus.is_empty() => {
                let text = format!("--gpu-freq={asked} of step {step}: no file /dev/nvidiaN of its GPUs is known");
                out.push(ShepherdEffect::Log { text });
            }
            Some((asked, gpus)) => out.push(ShepherdEffect::SetGpuClocks { step, gpus, asked }),
            None => {}
        }
        let Some(asked) = self.frequency(here) else { return };
        let on_machine = |cpu: u32| self.config.cpu_map.get(cpu as usize).copied();
        let cpus = here.share.cpus.iter().filter_map(on_machine).collect();
        out.push(ShepherdEffect::SetFrequency { step, cpus, asked });
    }

    /// A step that is gone from here leaves its CPUs and GPUs as they were.
    pub(super) fn put_frequency_back(&self, here: &StepHere, out: &mut Vec<ShepherdEffect>) {
        if self.frequency(here).is_some() {
            out.push(ShepherdEffect::PutFrequencyBack { step: here.id });
        }
        if self.gpu_clocks(here).is_some_and(|(_, gpus)| !gpus.is_empty()) {
            out.push(ShepherdEffect::PutGpuClocksBack { step: here.id });
        }
    }

    /// Hands a task to the launcher. `last`: no task of the step is spawned after it.
    fn spawn(&mut self, id: StepId, task: TaskLaunch, bindings: &Bindings, last: bool, out: &mut Vec<ShepherdEffect>) {
        let token = self.next_token;
        self.next_token += 1;
        // A step that is over here, or not with the launcher yet, need not be waited for.
        let after = self.steps.get(&id).and_then(|here| here.after);
        let after = after.and_then(|step| self.steps.get(&step)?.running.first().map(|(_, token)| *token));
        let profiling = self.steps.get(&id).map(|here| self.noted_profiling(here)).unwrap_or_default();
        let Some(here) = self.steps.get_mut(&id) else { return };
        let setting = self.settings.get(&here.launch, &here.env, &here.share.env, |message| {
            out.push(ShepherdEffect::ToLauncher { message, passed: Vec::new() });
        });
        let place = NodePlace { node: &self.config.node, several: self.config.job_nodes > 1 };
        let StdioPlan { sources, mut passed, pty, streams, input, pack, error_path } =
            stdio::plan(here, place, &task, token);
        let map = &self.config.cpu_map;
        let affinity = bindings.affinity(map, task.local_id);
        let on = (task.local_id, &*bindings.cpus_of(map, task.local_id));
        let says = bindings.says(map, &self.config.node, task.rank, task.local_id);
        let gpus = self.config.gpus.of_task(&here.share.gres, &here.launch.gpu_bind, on, here.launch.batch);
        let TaskLaunch { rank, argv, extra_env: task_env, .. } = task;
        let argv = match &here.script {
            None if here.launch.program_named_by_node => named_by_node(&argv, &self.config.node),
            None => argv,
            Some(script) => {
                let script = ByteBuf::from(script.clone().into_bytes());
                Arc::new([script].into_iter().chain(argv.iter().skip(1).cloned()).collect())
            }
        };
        let argv = behind_prologs(&self.config, &here.launch, argv);
        let mut extra_env = if last { std::mem::take(&mut here.own_env) } else { here.own_env.clone() };
        extra_env.extend(task_env);
        extra_env.extend(gpus);
        let epilogs = epilogs(&self.config, &here.launch, &extra_env);
        if let Some(pmi) = here.pmi.as_deref_mut().filter(|_| task.local_id == 0) {
            pmi.starts_server(token);
        }
        let third = here.pmi.is_some().then(|| {
            extra_env.extend(pmi::variables(id, rank, here.launch.total_tasks));
            passed.push(PassedFd::Pmi { token });
            passed.len() as u8 - 1
        });
        let cgroups = here.share.own_cgroup.then(|| {
            passed.push(PassedFd::Cgroup { step: id });
            passed.len() as u8 - 1
        });
        if here.error_path.is_none() {
            here.error_path.clone_from(&error_path);
        }
        if here.launch.batch {
            self.job_error_path.clone_from(&error_path);
        }
        here.running.push((rank, token));
        if input {
            here.input.add_reader(token);
        }
        let own_cgroup = here.share.own_cgroup;
        let label = TaskLabel { step: id, attempt: here.attempt, rank, own_cgroup, epilog: false, profiling };
        let quiet = here.launch.unattended && !input && streams == [StreamState::Closed; 2];
        let message = ToLauncher::Spawn(Box::new(SpawnTask {
            token,
            label,
            argv,
            setting,
            extra_env,
            stdio: sources,
            pack,
            pty,
            affinity,
            says,
            cgroups,
            quiet,
            after,
            or_shell: here.launch.or_shell,
            // Tasks on other nodes may write to the same file.
            third,
            unasked_output: here.launch.unasked_output && here.tasks_here == here.launch.total_tasks,
        }));
        let phase = TaskPhase::Launched;
        let spoke = [false; 2];
        let here = TaskHere { step: id, rank, phase, streams, spoke, error_path, epilogs, seen: None, metered: false };
        self.tasks.insert(token, here);
        out.push(ShepherdEffect::ToLauncher { message, passed });
        self.stop_at_start(token, out);
    }

    pub(super) fn spawned(&mut self, token: u64, pid: u32, out: &mut Vec<ShepherdEffect>) {
        let Some(task) = self.tasks.get_mut(&token) else { return };
        if task.phase != TaskPhase::Launched {
            return;
        }
        task.phase = TaskPhase::Running { pid };
        let (step, rank) = (task.step, task.rank);
        for (at, stream) in task.streams.iter_mut().enumerate() {
            if *stream == StreamState::Idle {
                *stream = StreamState::Reading;
                out.push(ShepherdEffect::Read { token, stream: stream_at(at) });
            }
        }
        self.say(ShepherdToStepMgr::TaskStarted { step, rank, pid }, out);
        self.feed(token, out);
    }

    /// A task could not be started: that is its end, with the errno as exit code if the program could not be executed.
    pub(super) fn spawn_failed(
        &mut self,
        now: Timestamp,
        token: u64,
        failure: &LaunchFailure,
        out: &mut Vec<ShepherdEffect>,
    ) {
        let Some(task) = self.tasks.remove(&token) else { return };
        let (id, rank) = (task.step, task.rank);
        out.push(ShepherdEffect::Close { token });
        let Some(here) = self.steps.get_mut(&id) else { return };
        let freed = here.input.remove_reader(token);
        let others_wait = here.pmi.as_deref_mut().is_some_and(|pmi| pmi.task_ended(token)) && !here.ending;
        here.forget(token);
        let batch = here.launch.batch;
        self.trim_input(id, freed, out);
        let text = failure.text();
        if let Some(path) = &task.error_path {
            self.append(path, &format!("slurmstepd: error: {text}"), out);
        }
        let message = format!("[{}] error: {text}", now.text_with_millis(&self.config.zone));
        if batch {
            out.push(ShepherdEffect::Log { text: format!("batch script of job {}: {text}", self.config.job) });
        }
        self.failed(id, rank, message, failure.status(), out);
        if others_wait {
            self.pmi_abort(id, rank, "it could not be started".to_owned(), out);
        }
        if let Some(here) = self.steps.get_mut(&id) {
            here.tasks_left -= 1;
        }
        self.step_over_if_done(id, out);
    }

    /// A task that was to start after another did not start. Its step has no other task.
    pub(super) fn not_started(&mut self, token: u64, out: &mut Vec<ShepherdEffect>) {
        let Some(step) = self.tasks.get(&token).map(|task| task.step) else { return };
        if !self.steps.get(&step).is_some_and(|here| here.alone && here.after.is_some()) {
            return;
        }
        self.tasks.remove(&token);
        if let Some(here) = self.steps.remove(&step) {
            self.put_frequency_back(&here, out);
        }
        out.push(ShepherdEffect::Close { token });
        self.give_back(step);
        self.say(ShepherdToStepMgr::NotStarted { step }, out);
        self.gone_if_done(out);
    }

    fn give_back(&mut self, step: StepId) {
        if self.given_back.len() >= GIVEN_BACK_KEPT {
            self.given_back.pop_front();
        }
        self.given_back.push_back(step);
    }

    /// A task that did not run and will not run.
    fn failed(&mut self, step: StepId, rank: u32, message: String, status: ExitStatus, out: &mut Vec<ShepherdEffect>) {
        self.never_ran(step, rank, message, status, false, out);
    }

    /// The same; `untried`: because of this node, not because of the task.
    fn never_ran(
        &mut self,
        step: StepId,
        rank: u32,
        message: String,
        status: ExitStatus,
        untried: bool,
        out: &mut Vec<ShepherdEffect>,
    ) {
        let attempt = self.steps.get(&step).map_or(0, |here| here.attempt);
        let end = TaskEnd { status, usage: TaskUsage::default(), oom: false };
        self.ends.push(TaskFound { step, attempt, rank, end: Some(end) });
        self.say(ShepherdToStepMgr::TaskFailed { step, rank, message, status, unknown: false, untried }, out);
    }

    pub(super) fn exited(&mut self, now: Timestamp, token: u64, mut exit: Exit, out: &mut Vec<ShepherdEffect>) {
        let Some(task) = self.tasks.get_mut(&token) else { return };
        if matches!(task.phase, TaskPhase::Ended { .. }) {
            return;
        }
        exit.usage = exit.usage.told_at_end();
        if let Some(seen) = task.seen.take() {
            exit.usage = exit.usage.with_seen(*seen);
        }
        // It is of no use without looks.
        exit.usage.rss_is_bound = false;
        let (id, rank) = (task.step, task.rank);
        task.phase = TaskPhase::Ended { exit, oom: None };
        self.collect_end(id, rank, token, exit.usage, out);
        let Some(task) = self.tasks.get_mut(&token) else { return };
        // If a task's start was not reported, its streams were never read.
        for stream in &mut task.streams {
            if *stream == StreamState::Idle {
                *stream = StreamState::Closed;
            }
        }
        let open = task.streams.iter().any(|s| *s != StreamState::Closed);
        let Some(here) = self.steps.get_mut(&id) else { return };
        let broke_off = here.pmi.as_deref_mut().is_some_and(|pmi| pmi.task_ended(token)) && !here.ending;
        let freed = here.input.remove_reader(token);
        if broke_off {
            self.pmi_abort(id, rank, "it ended before the end of its MPI program".to_owned(), out);
        }
        if freed > 0 {
            self.trim_input(id, freed, out);
        }
        if open {
            if self.lingering.is_empty() {
                let timer = ShepherdTimer::Linger;
                out.push(ShepherdEffect::SetTimer { timer, after: self.config.linger });
            }
            self.lingering.push_back((now.plus(self.config.linger), token));
        }
        if !self.start_epilog(now, token, out) {
            self.examine_end(token, out);
        }
    }

    /// A task has ended, and its epilogs: did it run out of memory? When that is known, its end is reported.
    pub(super) fn examine_end(&mut self, token: u64, out: &mut Vec<ShepherdEffect>) {
        let Some(task) = self.tasks.get_mut(&token) else { return };
        let TaskPhase::Ended { exit, oom: None } = task.phase else { return };
        let (id, metered) = (task.step, task.metered);
        if self.config.meters_energy && !metered && self.is_last_to_end(id, token) {
            return out.push(ShepherdEffect::ReadMeter { token, step: id });
        }
        let Some(task) = self.tasks.get_mut(&token) else { return };
        let Some(here) = self.steps.get(&id) else { return };
        // The kernel may have killed a child of the task for lack of memory, and the task then ends as it likes. Tasks that end
        // normally in a step without a waiting command are not checked: such a kill is found at the end of the batch script.
        let killed_by_us = here.ending && exit.status.signal == Some(SIGKILL as u8);
        let told_well = exit.status.success() && here.launch.unattended && !here.launch.batch;
        let ask = self.config.cgroups && self.phase == ShepherdPhase::Serving && !killed_by_us && !told_well;
        task.phase = TaskPhase::Ended { exit, oom: (!ask).then_some(false) };
        if ask {
            out.push(ShepherdEffect::AskOom { token, step: here.share.own_cgroup.then_some(id) });
        } else {
            self.report_if_over(token, out);
        }
    }

    pub(super) fn oom_known(&mut self, token: u64, killed: bool, out: &mut Vec<ShepherdEffect>) {
        if let Some(TaskPhase::Ended { oom, .. }) = self.tasks.get_mut(&token).map(|t| &mut t.phase) {
            *oom = Some(killed);
            self.report_if_over(token, out);
        }
    }

    /// Reports a task's end when no output of it is outstanding. The end of a step's last task here stands for the end of the
    /// step, if nothing else is left to do for it.
    pub(super) fn report_if_over(&mut self, token: u64, out: &mut Vec<ShepherdEffect>) {
        let Some(task) = self.tasks.get(&token) else { return };
        let TaskPhase::Ended { exit, oom: Some(oom) } = task.phase else { return };
        if task.streams.iter().any(|s| *s != StreamState::Closed) {
            return;
        }
        let (id, rank) = (task.step, task.rank);
        self.tasks.remove(&token);
        let Some(here) = self.steps.get_mut(&id) else { return };
        here.tasks_left -= 1;
        here.forget(token);
        // An invented end has no process; group 0 would be our own.
        here.groups.extend((exit.survivors && exit.pid != 0).then_some(exit.pid));
        let gone = here.tasks_left == 0 && !here.share.own_cgroup && !here.sweeping;
        if let Some(pmi) = here.pmi.as_deref_mut() {
            let unused = pmi.unused(token, rank, here.tasks_left);
            out.extend(unused.into_iter().map(|token| ShepherdEffect::Close { token }));
        } else if here.launch.stdin == garrick_model::spec::StreamTarget::Relay {
            // Output ends are dropped at their end of file; an input end may still be open.
            out.push(ShepherdEffect::Close { token });
        }
        if gone {
            kill_groups(&mut here.groups, out);
        }
        if gone && let Some(here) = self.steps.get(&id) {
            self.put_frequency_back(here, out);
        }
        self.report(id, rank, exit, oom, gone, out);
        if gone {
            self.steps.remove(&id);
            self.gone_if_done(out);
        } else {
            self.step_over_if_done(id, out);
        }
    }

    /// Reports a task's end and remembers it.
    pub(super) fn report(
        &mut self,
        step: StepId,
        rank: u32,
        exit: Exit,
        oom: bool,
        gone: bool,
        out: &mut Vec<ShepherdEffect>,
    ) {
        let end = TaskEnd { status: exit.status, usage: exit.usage, oom };
        let attempt = self.steps.get(&step).map_or(0, |here| here.attempt);
        self.ends.push(TaskFound { step, attempt, rank, end: Some(end) });
        self.say(ShepherdToStepMgr::TaskExited { step, rank, end, gone }, out);
    }

    /// An output pack cannot be written: operator and user are told; the task's end is reported nevertheless.
    pub(super) fn pack_failed(&self, label: TaskLabel, message: &str, out: &mut Vec<ShepherdEffect>) {
        let text = format!("output pack of step {}, task {}: {message}", label.step, label.rank);
        if let Some(path) = &self.job_error_path {
            self.append(path, &format!("slurmstepd: error: {text}"), out);
        }
        out.push(ShepherdEffect::Log { text });
    }

    /// Closes streams of ended tasks that other processes still hold open, except those that wait for credit.
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

/// The command of a program that has the node's name at the end of its own.
fn named_by_node(argv: &[ByteBuf], node: &str) -> Arc<Vec<ByteBuf>> {
    let program = argv.first().map(|program| ByteBuf::from(files::named_by_node(program, node)));
    Arc::new(program.into_iter().chain(argv.iter().skip(1).cloned()).collect())
}
