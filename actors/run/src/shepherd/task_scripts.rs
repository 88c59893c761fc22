//! Programs that run before and after each task (slurm.conf(5), `TaskProlog`; srun(1), `--task-prolog`): the site's prolog, the
//! user's, the task, the user's epilog, the site's.
//!
//! With a prolog the task begins as `stepd task`, which runs the prologs and becomes the task's program, or (`--wait-for-children`)
//! runs it and waits for all that it leaves. Epilogs are processes of
//! their own, after the task has ended and before its end is reported. A task that is adopted from an earlier `stepd` has no
//! epilog, since what its step's user asked for is not known any more.

use crate::shepherd::{
    core::{ShepherdConfig, ShepherdCore},
    messages::{ShepherdEffect, ShepherdTimer},
    state::ShepherdPhase,
};
use garrick_model::{
    messages::{
        launcher::{FdSource, FileMode, SpawnTask, TaskLabel, ToLauncher},
        shepherd::StepLaunch,
    },
    signal::SIGKILL,
    spec::{EnvEntry, Mpi, TaskOverWith},
    state::ExitStatus,
    time::Timestamp,
};
use serde_bytes::ByteBuf;
use std::{sync::Arc, time::Duration};

/// How long an epilog may run: "a few seconds" (srun(1), `--task-epilog`).
pub(super) const EPILOG_LIMIT: Duration = Duration::from_secs(5);

/// The epilogs of a task.
#[derive(Debug)]
pub struct Epilogs {
    /// Programs, the next one last.
    left: Vec<String>,
    /// The task's own variables.
    extra_env: Vec<EnvEntry>,
}

/// An epilog that runs.
#[derive(Debug)]
pub struct RunningEpilog {
    /// Token of its task.
    task: u64,
    /// When it is killed.
    deadline: Timestamp,
}

const fn append(path: String) -> FdSource {
    FdSource::File { path, mode: FileMode::Append }
}

/// The program that a task starts as, with its arguments.
pub(super) fn behind_prologs(
    config: &ShepherdConfig,
    launch: &StepLaunch,
    argv: Arc<Vec<ByteBuf>>,
) -> Arc<Vec<ByteBuf>> {
    let (of_site, own) = (&config.task_scripts.prolog, &launch.task_scripts.prolog);
    let pmix = launch.mpi == Mpi::Pmix;
    let over_with = match launch.over_with {
        TaskOverWith::First => None,
        TaskOverWith::Last => Some("last"),
        TaskOverWith::LastOrFailed => Some("last-or-failed"),
    };
    if of_site.is_none() && own.is_none() && over_with.is_none() && !pmix {
        return argv;
    }
    let mut words = vec![ByteBuf::from(config.stepd.as_str()), ByteBuf::from("task")];
    for (flag, prolog) in [("--site-prolog", of_site), ("--prolog", own)] {
        words.extend(prolog.iter().flat_map(|prolog| [ByteBuf::from(flag), ByteBuf::from(prolog.as_str())]));
    }
    let flags = [("--pmix", pmix), ("--or-shell", launch.or_shell)];
    words.extend(flags.into_iter().filter(|(_, set)| *set).map(|(flag, _)| ByteBuf::from(flag)));
    words.extend(over_with.into_iter().flat_map(|with| [ByteBuf::from("--over-with"), ByteBuf::from(with)]));
    words.push(ByteBuf::from("--"));
    words.extend(argv.iter().cloned());
    Arc::new(words)
}

/// What is to run after a task with these variables.
pub(super) fn epilogs(config: &ShepherdConfig, launch: &StepLaunch, extra_env: &[EnvEntry]) -> Option<Box<Epilogs>> {
    let epilogs = [&config.task_scripts.epilog, &launch.task_scripts.epilog];
    let left: Vec<String> = epilogs.into_iter().flatten().cloned().collect();
    (!left.is_empty()).then(|| Box::new(Epilogs { left, extra_env: extra_env.to_vec() }))
}

impl ShepherdCore {
    /// Starts the next epilog of a task that has ended. False: there is none, or none can be started any more.
    pub(super) fn start_epilog(&mut self, now: Timestamp, token: u64, out: &mut Vec<ShepherdEffect>) -> bool {
        let Some(task) = self.tasks.get_mut(&token) else { return false };
        let Some(here) = self.steps.get(&task.step) else { return false };
        let Some(epilogs) = &mut task.epilogs else { return false };
        if !self.launcher_up || self.phase != ShepherdPhase::Serving {
            return false;
        }
        let Some(program) = epilogs.left.pop() else { return false };
        let extra_env = epilogs.extra_env.clone();
        let label = TaskLabel {
            step: task.step,
            attempt: here.attempt,
            rank: task.rank,
            own_cgroup: here.share.own_cgroup,
            epilog: true,
            profiling: Default::default(),
        };
        let setting = self.settings.get(&here.launch, &here.env, &here.share.env, |message| {
            out.push(ShepherdEffect::ToLauncher { message, passed: Vec::new() });
        });
        let token_of_epilog = self.next_token;
        self.next_token += 1;
        let argv = Arc::new(vec![ByteBuf::from(program)]);
        let spawn = SpawnTask {
            extra_env,
            // Where the task's errors are relayed, nobody listens any more.
            stdio: [FdSource::Null, FdSource::Null, task.error_path.clone().map_or(FdSource::Null, append)],
            quiet: true,
            ..SpawnTask::bare(token_of_epilog, label, argv, setting)
        };
        out.push(ShepherdEffect::ToLauncher { message: ToLauncher::Spawn(Box::new(spawn)), passed: Vec::new() });
        if self.running_epilogs.is_empty() {
            out.push(ShepherdEffect::SetTimer { timer: ShepherdTimer::Epilog, after: EPILOG_LIMIT });
        }
        self.running_epilogs.insert(token_of_epilog, RunningEpilog { task: token, deadline: now.plus(EPILOG_LIMIT) });
        true
    }

    /// An epilog is over, or could not be started. True when the token is one's.
    pub(super) fn epilog_over(
        &mut self,
        now: Timestamp,
        token: u64,
        failure: Option<ExitStatus>,
        out: &mut Vec<ShepherdEffect>,
    ) -> bool {
        let Some(RunningEpilog { task, .. }) = self.running_epilogs.remove(&token) else { return false };
        if let Some(status) = failure {
            let text = format!("TaskEpilog failed status={}", status.shell_code());
            if let Some(path) = self.tasks.get(&task).and_then(|task| task.error_path.clone()) {
                self.append(&path, &format!("[{}] error: {text}", now.text_with_millis(&self.config.zone)), out);
            }
            out.push(ShepherdEffect::Log { text: format!("job {}: {text}", self.config.job) });
        }
        if !self.start_epilog(now, task, out) {
            self.examine_end(task, out);
        }
        true
    }

    /// Kills epilogs that run for too long.
    pub(super) fn limit_epilogs(&mut self, now: Timestamp, out: &mut Vec<ShepherdEffect>) {
        for (token, epilog) in &mut self.running_epilogs {
            if epilog.deadline <= now {
                // Its end comes from the launcher; it is not killed twice in the meantime.
                epilog.deadline = now.plus(EPILOG_LIMIT);
                let message = ToLauncher::Signal { token: *token, signal: SIGKILL, group: true };
                out.push(ShepherdEffect::ToLauncher { message, passed: Vec::new() });
            }
        }
        if let Some(next) = self.running_epilogs.values().map(|epilog| epilog.deadline).min() {
            out.push(ShepherdEffect::SetTimer { timer: ShepherdTimer::Epilog, after: next.since(now) });
        }
    }
}
