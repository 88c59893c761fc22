//! CPU time of a cluster's processes, by kind of process.

use super::{
    inside::{Fallible, Inside},
    processes::{self, ProcError},
};
use nix::sys::{
    resource::{UsageWho, getrusage},
    time::TimeValLike,
};
use std::time::Duration;

/// The thread of `stepd` that writes its journal.
const JOURNAL_THREAD: &str = "journal";

/// CPU time so far, or between two moments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// Commands that this process ran and waited for.
    pub commands: Duration,
    /// `stepd`: everything but its journal's thread.
    pub stepd: Duration,
    /// `stepd`: writing and syncing the journal.
    pub journal: Duration,
    /// The launcher, user mode.
    pub launcher_user: Duration,
    /// The launcher, in the kernel: starting processes, waiting for them.
    pub launcher_system: Duration,
    /// The tasks that it started and reaped.
    pub tasks: Duration,
    /// Node daemons.
    pub nodes: Duration,
    /// Controllers.
    pub controllers: Duration,
}

impl Spent {
    /// Up to now.
    pub fn now(inside: &Inside) -> Fallible<Self> {
        let p = &inside.processes;
        let sum = |pids: &[u32], of: fn(u32) -> Result<Duration, ProcError>| {
            pids.iter().map(|pid| of(*pid)).sum::<Result<Duration, ProcError>>()
        };
        let children = getrusage(UsageWho::RUSAGE_CHILDREN)?;
        let micros = children.user_time().num_microseconds() + children.system_time().num_microseconds();
        let journal = sum(&p.stepds, journal_time)?;
        Ok(Self {
            commands: Duration::from_micros(micros.unsigned_abs()),
            stepd: sum(&p.stepds, processes::cpu_time)?.saturating_sub(journal),
            journal,
            launcher_user: sum(&p.launchers, |pid| Ok(processes::ticks(pid)?.user))?,
            launcher_system: sum(&p.launchers, |pid| Ok(processes::ticks(pid)?.system))?,
            tasks: sum(&p.launchers, |pid| Ok(processes::ticks(pid)?.children))?,
            nodes: sum(&p.nodes, processes::cpu_time)?,
            controllers: sum(&p.controllers, processes::cpu_time)?,
        })
    }

    /// What was spent after `before`.
    pub fn since(&self, before: &Self) -> Self {
        Self {
            commands: self.commands.saturating_sub(before.commands),
            stepd: self.stepd.saturating_sub(before.stepd),
            journal: self.journal.saturating_sub(before.journal),
            launcher_user: self.launcher_user.saturating_sub(before.launcher_user),
            launcher_system: self.launcher_system.saturating_sub(before.launcher_system),
            tasks: self.tasks.saturating_sub(before.tasks),
            nodes: self.nodes.saturating_sub(before.nodes),
            controllers: self.controllers.saturating_sub(before.controllers),
        }
    }

    /// All of the launcher's.
    pub fn launcher(&self) -> Duration {
        self.launcher_user + self.launcher_system
    }
}

fn journal_time(pid: u32) -> Result<Duration, ProcError> {
    Ok(processes::threads(pid)?.iter().filter(|t| t.name == JOURNAL_THREAD).map(|t| t.cpu).sum())
}
