//! The shepherd's adoption of tasks: tasks that an earlier `stepd` of the run started and whose launcher still has them, and the
//! latest ends, for a step manager that was restarted.
//!
//! An adopted task has no streams here: relaying ended with the earlier `stepd`. Its signals, its end, and the sweep of its
//! step's cgroup are as usual.

use crate::shepherd::{
    core::ShepherdCore,
    messages::ShepherdEffect,
    state::{StepHere, StreamState, TaskHere, TaskPhase},
};
use garrick_model::{
    gres::GpuBind,
    ids::StepId,
    messages::{
        launcher::{ENDS_KEPT, TaskHeld, TaskOver},
        shepherd::{LaunchRef, ShepherdToStepMgr, StepLaunch, StepNodeShare, StepStart, TaskEnd, TaskFound},
    },
    resources::CpuSet,
    spec::{CpuBind, Mpi, OpenMode, StdinTo, StreamTarget, TaskScripts},
};
use std::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
};

/// The latest ends here.
#[derive(Debug, Default)]
pub struct Ends(VecDeque<TaskFound>);

impl Ends {
    /// Remembers an end, and drops the oldest when there are too many.
    pub fn push(&mut self, found: TaskFound) {
        if self.0.len() >= ENDS_KEPT {
            self.0.pop_front();
        }
        self.0.push_back(found);
    }

    fn iter(&self) -> impl Iterator<Item = &TaskFound> {
        self.0.iter()
    }
}

impl ShepherdCore {
    /// A launcher of an earlier `stepd` is alive: its tasks are adopted.
    pub(super) fn adopted(
        &mut self,
        tasks: Vec<TaskHeld>,
        ended: Vec<TaskOver>,
        complete: bool,
        out: &mut Vec<ShepherdEffect>,
    ) {
        self.complete &= complete;
        let launch = Arc::new(unknown_launch());
        let mut over = BTreeSet::new();
        // A launcher may only report about its own job.
        let ours = |step: StepId| step.job == self.config.job;
        let (tasks, ended): (Vec<_>, Vec<_>) = (
            tasks.into_iter().filter(|t| ours(t.label.step) && !t.label.epilog).collect(),
            ended.into_iter().filter(|t| ours(t.label.step) && !t.label.epilog).collect(),
        );
        for task in ended {
            self.next_token = self.next_token.max(task.token + 1);
            if task.label.own_cgroup {
                over.insert(task.label.step);
            }
            let TaskOver { label, status, usage, .. } = task;
            let end = Some(TaskEnd { status, usage: usage.told_at_end(), oom: false });
            self.ends.push(TaskFound { step: label.step, attempt: label.attempt, rank: label.rank, end });
        }
        for TaskHeld { token, pid, label, error_path } in tasks {
            self.next_token = self.next_token.max(token + 1);
            over.remove(&label.step);
            let here = self.steps.entry(label.step).or_insert_with(|| {
                let launch = match label.profiling {
                    said if said.is_default() => Arc::clone(&launch),
                    profiling => {
                        let sample_secs = profiling.periods.task;
                        Arc::new(StepLaunch { profiling, sample_secs, ..unknown_launch() })
                    }
                };
                StepHere::new(Arc::clone(&launch), unknown_start(launch, label.step, label.attempt, label.own_cgroup))
            });
            here.tasks_left += 1;
            here.running.push((label.rank, token));
            if here.error_path.is_none() {
                here.error_path.clone_from(&error_path);
            }
            if label.step.step == garrick_model::ids::StepNum::Batch {
                self.job_error_path.clone_from(&error_path);
            }
            let streams = [StreamState::Closed; 2];
            let phase = TaskPhase::Running { pid };
            let task = TaskHere {
                step: label.step,
                rank: label.rank,
                phase,
                streams,
                spoke: [false; 2],
                error_path,
                epilogs: None,
                seen: None,
                metered: false,
            };
            self.tasks.insert(token, task);
        }
        let steps: Vec<StepId> = self.steps.keys().copied().collect();
        for step in steps {
            self.look_later(step, out);
            self.collect_from_now(step, out);
        }
        // Cgroups of steps that ended while no `stepd` could remove them.
        out.extend(over.into_iter().map(|step| ShepherdEffect::Sweep { step }));
        self.launcher_up(out);
    }

    /// Lists the tasks: at once, or when they are known.
    pub(super) fn list_tasks(&mut self, out: &mut Vec<ShepherdEffect>) {
        if !self.launcher_known {
            self.listing = true;
            return;
        }
        self.listing = false;
        let running = self.steps.iter().flat_map(|(id, here)| {
            let ranks = here.running.iter().map(|(rank, _)| *rank).chain(here.unspawned.iter().map(|task| task.rank));
            ranks.map(|rank| TaskFound { step: *id, attempt: here.attempt, rank, end: None })
        });
        let tasks = running.chain(self.ends.iter().cloned()).collect();
        self.say(ShepherdToStepMgr::Tasks { tasks, complete: self.complete }, out);
        self.repeat_fences(out);
    }
}

/// A placeholder for the launch data of an earlier `stepd`, which are lost. Nothing is started from it.
pub fn unknown_launch() -> StepLaunch {
    StepLaunch {
        name: String::new(),
        job_name: String::new(),
        user: String::new(),
        array_task: None,
        environment: Arc::default(),
        work_dir: "/".into(),
        stdin: StreamTarget::Null,
        stdin_to: StdinTo::All,
        stdout: StreamTarget::Null,
        stderr: StreamTarget::Null,
        open_mode: OpenMode::Append,
        pty: None,
        umask: 0o022,
        process_nice: 0,
        rlimits: Vec::new(),
        cpu_bind: CpuBind::None,
        says_cpu_bind: false,
        within: Default::default(),
        gpu_bind: GpuBind::None,
        cpus_per_task: 1,
        total_tasks: 0,
        script: None,
        batch: false,
        output_pack: None,
        unattended: true,
        or_shell: false,
        unasked_output: false,
        task_scripts: TaskScripts::default(),
        mpi: Mpi::None,
        program_named_by_node: false,
        cpu_freq: None,
        gpu_freq: None,
        sample_secs: None,
        profiling: Default::default(),
        over_with: Default::default(),
    }
}

fn unknown_start(launch: Arc<StepLaunch>, step: StepId, attempt: u32, own_cgroup: bool) -> StepStart {
    StepStart {
        step,
        attempt,
        launch: LaunchRef::Whole(launch),
        env: Arc::default(),
        own_env: Vec::new(),
        share: StepNodeShare {
            node_id: 0,
            cpus: CpuSet::default(),
            memory_mib: None,
            gres: Vec::new(),
            own_cgroup,
            env: Arc::default(),
        },
        tasks: Vec::new(),
        after: None,
        mapping: None,
    }
}
