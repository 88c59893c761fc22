//! Memory that a plan takes. Each plan is made in a process of its own, so that earlier freed memory does not hide any of it, and
//! the peak is counted from just before the plan (`proc_pid_clear_refs(5)`).

use super::workload::{self, Mix};
use crate::minibatch::{
    figures::Findings,
    processes::{self, ProcError},
};
use garrick_plan::plan::kept::plan_to_keep;
use garrick_replay::cluster::Choice;
use std::{
    io,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

/// The memory of a plan could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// Of the process that makes the plan.
    #[error("cannot measure the memory of a plan: {0}")]
    Process(#[from] io::Error),
    /// Of `/proc`.
    #[error("cannot measure the memory of a plan: {0}")]
    Proc(#[from] ProcError),
    /// No such mix, or a word that is no number.
    #[error("\"{0}\" names no mix of jobs and how many of them wait, as in \"nodes 1000\" or \"cores 1000\"")]
    Unknown(String),
    /// The other process.
    #[error("the process that made a plan failed: {0}")]
    Failed(String),
}

/// Bytes for one plan, its snapshot of the cluster left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanMemory {
    /// At most, while it was made.
    pub peak: u64,
    /// For as long as the plan is kept.
    pub kept: u64,
}

impl Mix {
    const fn word(self) -> &'static str {
        match self {
            Self::Nodes => "nodes",
            Self::Cores => "cores",
        }
    }
}

/// Makes the plan that `words` name (`nodes 1000`) in this very process, which should have done nothing else.
pub fn of_one(nodes: u32, words: &[String]) -> Result<PlanMemory, MemoryError> {
    let unknown = || MemoryError::Unknown(words.join(" "));
    let [mix, waiting] = words else { return Err(unknown()) };
    let mix = [Mix::Nodes, Mix::Cores].into_iter().find(|known| known.word() == mix).ok_or_else(unknown)?;
    let waiting = waiting.parse().map_err(|_| unknown())?;
    let mut view = workload::cluster(nodes, waiting, mix, Choice::Conservative);
    view.policy.resolution = Duration::from_secs(60);
    view.policy.backfill_depth = usize::MAX;
    view.policy.backfill_window = Duration::from_secs(86_400);
    std::fs::write("/proc/self/clear_refs", "5")?;
    let own = std::process::id();
    let before = processes::memory(own)?.resident;
    let made = plan_to_keep(view, workload::NOW);
    let after = processes::memory(own)?;
    drop(made);
    Ok(PlanMemory { peak: after.peak.saturating_sub(before), kept: after.resident.saturating_sub(before) })
}

/// Of plans over so many nodes for queues of these lengths, each made by `program --memory-of MIX WAITING`.
pub fn memory(program: &Path, nodes: u32, queues: &[u32]) -> Result<Findings, MemoryError> {
    let mut found = Findings::default();
    let mut rows = Vec::new();
    for mix in [Mix::Nodes, Mix::Cores] {
        for waiting in queues {
            let mut command = Command::new(program);
            command.args(["--memory-of", mix.word(), &waiting.to_string()]).stdin(Stdio::null());
            let made = command.output()?;
            let said = String::from_utf8_lossy(&made.stdout);
            let numbers: Vec<u64> = said.split_whitespace().filter_map(|n| n.parse().ok()).collect();
            let &[peak, kept] = numbers.as_slice() else {
                return Err(MemoryError::Failed(String::from_utf8_lossy(&made.stderr).trim().to_owned()));
            };
            let mib = |bytes: u64| format!("{:.1}", bytes as f64 / f64::from(1 << 20));
            rows.push(vec![
                mix.name().to_owned(),
                waiting.to_string(),
                mib(peak),
                format!("{:.0}", peak as f64 / f64::from(*waiting)),
                mib(kept),
            ]);
        }
    }
    found.table(
        format!("Memory of a first plan over {nodes} nodes, beside the snapshot of the cluster that it is made from"),
        &["waiting jobs", "how many", "MiB at most", "bytes a job", "MiB while it is kept"],
        rows,
    );
    Ok(found)
}
