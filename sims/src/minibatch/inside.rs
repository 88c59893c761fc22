//! For scenarios that run as the job: the commands of the cluster, the step manager's counts, and the processes that did the
//! work.

use super::{
    cluster::{self, ClusterError, Order},
    processes::{self, ClusterProcesses, ProcError},
};
use garrick_frame::{DoorClient, LinkKind};
use garrick_model::{
    env_vars::GARRICK_STEPD_DOOR,
    messages::step::{CommandToStepMgr, StepMgrToCommand},
    view::StepCounts,
};
use std::{
    error::Error,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

/// Whatever may go wrong in a scenario.
pub type Fallible<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// The job, seen from within.
#[derive(Debug)]
pub struct Inside {
    /// What was asked for.
    pub order: Order,
    /// Processes of the cluster.
    pub processes: ClusterProcesses,
}

impl Inside {
    /// Looks around.
    pub fn new(order: Order) -> Fallible<Self> {
        let processes = ClusterProcesses::of(&order.home);
        if processes.stepds.is_empty() || processes.launchers.is_empty() {
            return Err(format!("no stepd with a launcher found for {}: {processes:?}", order.home.display()).into());
        }
        Ok(Self { order, processes })
    }

    /// `usual`, or what was chosen, or a fiftieth of it to see that all works.
    pub fn steps(&self, usual: usize) -> usize {
        match self.order.steps {
            Some(chosen) => chosen,
            None if self.order.quick => (usual / 50).max(20),
            None => usual,
        }
    }

    /// A command of the cluster.
    pub fn command(&self, name: &str) -> Command {
        Command::new(self.order.bin.join(name))
    }

    /// Runs a command of the cluster, which must succeed; its output.
    pub fn run(&self, name: &str, args: &[&str]) -> Result<String, ClusterError> {
        cluster::run(self.command(name).args(args))
    }

    /// Runs a command of the cluster without looking at what it writes, which is quicker. It must succeed.
    pub fn run_quietly(&self, name: &str, args: &[&str]) -> Fallible<()> {
        let status = self.command(name).args(args).stdin(Stdio::null()).stdout(Stdio::null()).status()?;
        if status.success() { Ok(()) } else { Err(format!("{name} {}: {status}", args.join(" ")).into()) }
    }

    /// Peak and present memory of the step manager's process (the first, where a job has several).
    pub fn stepd_memory(&self) -> Result<processes::Memory, ProcError> {
        processes::memory(self.stepd())
    }

    /// Of its launcher.
    pub fn launcher_memory(&self) -> Result<processes::Memory, ProcError> {
        processes::memory(self.processes.launchers.first().copied().unwrap_or(0))
    }

    /// The step manager's process.
    pub fn stepd(&self) -> u32 {
        self.processes.stepds.first().copied().unwrap_or(0)
    }
}

/// What the step manager counted once nothing is queued or running. Blocks until then.
pub fn drained() -> Fallible<StepCounts> {
    let door = std::env::var_os(GARRICK_STEPD_DOOR).ok_or("no step manager's door in the environment")?;
    let mut client = DoorClient::connect(Path::new(&door), LinkKind::CommandToStepMgr, "minibatch", None)?;
    client.send(&CommandToStepMgr::Wait {
        steps: Vec::new(),
        any: false,
        progress_ms: 0,
        groups: false,
        stay: false,
    })?;
    loop {
        match client.recv::<StepMgrToCommand>()? {
            StepMgrToCommand::Drained { counts, .. } => return Ok(counts),
            StepMgrToCommand::Progress(_) => {}
            other => return Err(format!("unexpected answer while waiting: {other:?}").into()),
        }
    }
}

/// Counts steps between two moments at which nothing is queued or running, so that none goes unaccounted for.
#[derive(Debug)]
pub struct Account {
    before: StepCounts,
    forks: u64,
    began: Instant,
}

impl Account {
    /// From now on.
    pub fn open() -> Fallible<Self> {
        let before = drained()?;
        Ok(Self { before, forks: processes::forks()?, began: Instant::now() })
    }

    /// When it was opened.
    pub const fn began(&self) -> Instant {
        self.began
    }

    /// Waits until all is over. Exactly so many must have ended well and so many otherwise, and the kernel must have started
    /// at least that many processes meanwhile. Returns how long it took.
    pub fn close(self, done: u64, failed: u64) -> Fallible<Duration> {
        let after = drained()?;
        let took = self.began.elapsed();
        let (ended, wrong) = (after.done - self.before.done, after.failed - self.before.failed);
        if (after.queued, after.running) != (0, 0) {
            return Err(format!("the queue is said to be drained, and counts {after:?}").into());
        }
        if (ended, wrong) != (done, failed) {
            return Err(format!("{done} steps should have ended well and {failed} not: {ended} and {wrong} did").into());
        }
        let forks = processes::forks()? - self.forks;
        if forks < done {
            return Err(
                format!("{ended} steps are said to have ended, and the kernel started {forks} processes").into()
            );
        }
        Ok(took)
    }
}
