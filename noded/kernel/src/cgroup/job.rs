//! The cgroup of a run of a job on this node.

use super::{CgroupError, Group, Kind, MemoryLimit, Usage};
use crate::cpu_list::CpuList;
use std::time::Duration;

/// A run's cgroup. Cheap to clone; dropping it removes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobCgroup {
    kind: Kind,
    top: Group,
    job: u32,
    run: String,
}

impl JobCgroup {
    pub(super) fn new(kind: Kind, top: Group, job: u32, run: String) -> Self {
        Self { kind, top, job, run }
    }

    /// Job id.
    pub fn job(&self) -> u32 {
        self.job
    }

    /// SLUID of the run, as text.
    pub fn run(&self) -> &str {
        &self.run
    }

    /// Everything of the job, manager included.
    pub fn all(&self) -> &Group {
        &self.top
    }

    /// Where `stepd` lives.
    pub fn mgr(&self) -> Group {
        self.top.child("mgr").without_limits()
    }

    /// Everything of the user: the job's limits, kill and freeze. Processes enter [`Self::main`] or a step.
    pub fn tasks(&self) -> Group {
        self.top.tasks()
    }

    /// Where the launcher and tasks without a cgroup of their own live.
    pub fn main(&self) -> Group {
        match self.kind {
            Kind::V2 => self.tasks().child("main"),
            Kind::V1 | Kind::Hybrid => self.tasks(),
        }
    }

    /// A step with limits of its own.
    pub fn step(&self, name: &str) -> Result<Group, CgroupError> {
        if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
            return Err(CgroupError::Name(name.to_owned()));
        }
        Ok(self.tasks().child(&format!("step_{name}")))
    }

    pub(super) fn create(&self) -> Result<(), CgroupError> {
        self.top.create()?;
        self.top.check_controllers()?;
        self.top.hand_on()?;
        self.mgr().create()?;
        let tasks = self.tasks();
        tasks.create()?;
        tasks.check_controllers()?;
        if self.kind == Kind::V2 {
            tasks.hand_on()?;
            self.main().create()?;
        }
        Ok(())
    }

    /// Makes the cgroup of a step. Its limits are within those of the job.
    pub fn create_step(&self, name: &str) -> Result<Group, CgroupError> {
        let step = self.step(name)?;
        step.create()?;
        step.check_controllers()?;
        Ok(step)
    }

    /// Sets the job's limits; `None`: as the node.
    pub fn limit(&self, cpus: Option<&CpuList>, memory: Option<MemoryLimit>) -> Result<(), CgroupError> {
        let tasks = self.tasks();
        if let Some(cpus) = cpus {
            tasks.set_cpus(cpus)?;
        }
        if let Some(memory) = memory {
            tasks.set_memory(memory)?;
        }
        Ok(())
    }

    /// What the job's tasks use.
    pub fn usage(&self) -> Result<Usage, CgroupError> {
        self.tasks().usage()
    }

    /// Kills every process of the run, manager included, and removes its cgroup. For runs whose `stepd` is gone. Blocks for
    /// up to `limit`.
    pub fn clean_up(&self, limit: Duration) -> Result<(), CgroupError> {
        let left = self.top.kill_until_empty(limit)?;
        if !left.is_empty() {
            return Err(CgroupError::Busy { path: self.top.path().to_owned(), pids: left });
        }
        // Those killed may be zombies of a parent outside for a moment.
        self.top.remove_within(limit)
    }
}
