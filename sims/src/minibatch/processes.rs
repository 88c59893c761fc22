//! Data of other processes from `/proc`: memory, CPU time, threads; and which processes belong to a cluster.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

/// Resident memory of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Now, bytes.
    pub resident: u64,
    /// The most it ever was, bytes.
    pub peak: u64,
}

/// A process that could not be read.
#[derive(Debug, thiserror::Error)]
#[error("{}: {cause}", path.display())]
pub struct ProcError {
    path: PathBuf,
    #[source]
    cause: io::Error,
}

fn read(path: PathBuf) -> Result<String, ProcError> {
    // Command lines need not be text.
    let bytes = fs::read(&path).map_err(|cause| ProcError { path, cause })?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn odd(path: impl Into<PathBuf>, what: &str) -> ProcError {
    ProcError { path: path.into(), cause: io::Error::new(io::ErrorKind::InvalidData, what.to_owned()) }
}

/// Resident memory now and at its peak.
pub fn memory(pid: u32) -> Result<Memory, ProcError> {
    let path = PathBuf::from(format!("/proc/{pid}/status"));
    let text = read(path.clone())?;
    let kib = |field: &str| {
        let line = text.lines().find_map(|l| l.strip_prefix(field))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
    };
    match (kib("VmRSS:"), kib("VmHWM:")) {
        (Some(resident), Some(peak)) => Ok(Memory { resident: resident * 1024, peak: peak * 1024 }),
        _ => Err(odd(path, "no VmRSS and VmHWM")),
    }
}

/// CPU time that a process has used, its ended threads included and its children left out.
pub fn cpu_time(pid: u32) -> Result<Duration, ProcError> {
    // schedstat counts nanoseconds, but of living threads only; stat has all, in ticks.
    let living: Duration = threads(pid)?.iter().map(|t| t.cpu).sum();
    let counted = ticks(pid)?;
    Ok(living.max(counted.user + counted.system))
}

/// CPU times of a process as `/proc/PID/stat` has them: in hundredths of a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ticks {
    /// In user mode.
    pub user: Duration,
    /// In the kernel.
    pub system: Duration,
    /// Of ended and waited-for children, both together.
    pub children: Duration,
}

/// Reads them.
pub fn ticks(pid: u32) -> Result<Ticks, ProcError> {
    let path = PathBuf::from(format!("/proc/{pid}/stat"));
    let text = read(path.clone())?;
    // utime, stime, cutime and cstime are fields 14 to 17 of proc(5); the third is the first behind the name.
    let fields: Vec<&str> = text.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11).take(4).collect();
    let times: Vec<Duration> = fields
        .iter()
        .filter_map(|f| f.parse::<u64>().ok())
        .map(|t| Duration::from_millis(t * 1000 / TICKS_PER_SECOND))
        .collect();
    match times[..] {
        [user, system, cuser, csystem] => Ok(Ticks { user, system, children: cuser + csystem }),
        _ => Err(odd(path, "no utime, stime, cutime and cstime")),
    }
}

/// `sysconf(_SC_CLK_TCK)` is 100 on every Linux that this runs on (`USER_HZ`).
const TICKS_PER_SECOND: u64 = 100;

/// One thread of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadTime {
    /// Its id.
    pub tid: u32,
    /// Its name.
    pub name: String,
    /// CPU time used.
    pub cpu: Duration,
}

/// CPU times of the living threads, in nanoseconds where the kernel says them.
pub fn threads(pid: u32) -> Result<Vec<ThreadTime>, ProcError> {
    let folder = PathBuf::from(format!("/proc/{pid}/task"));
    let entries = fs::read_dir(&folder).map_err(|cause| ProcError { path: folder, cause })?;
    let mut all = Vec::new();
    for entry in entries.flatten() {
        let Ok(tid) = entry.file_name().to_string_lossy().parse() else { continue };
        // A thread may end while the folder is read.
        let (Ok(name), Ok(stat)) = (read(entry.path().join("comm")), read(entry.path().join("schedstat"))) else {
            continue;
        };
        let nanos = stat.split_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or(0);
        all.push(ThreadTime { tid, name: name.trim().to_owned(), cpu: Duration::from_nanos(nanos) });
    }
    Ok(all)
}

/// Processes started on this machine since it booted: forks and threads, as the kernel counts them.
pub fn forks() -> Result<u64, ProcError> {
    let path = PathBuf::from("/proc/stat");
    let text = read(path.clone())?;
    let count = text.lines().find_map(|l| l.strip_prefix("processes ")).and_then(|n| n.trim().parse().ok());
    count.ok_or_else(|| odd(path, "no count of processes"))
}

/// A running process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Running {
    /// Its id.
    pub pid: u32,
    /// Its parent.
    pub parent: u32,
    /// Its arguments.
    pub args: Vec<String>,
}

/// All processes that can be read.
pub fn running() -> Vec<Running> {
    let mut all = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<u32>() else { continue };
        let (Ok(args), Ok(stat)) = (read(entry.path().join("cmdline")), read(entry.path().join("stat"))) else {
            continue;
        };
        let parent = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1)?.parse().ok());
        let args = args.split_terminator('\0').map(ToOwned::to_owned).collect();
        all.push(Running { pid, parent: parent.unwrap_or(0), args });
    }
    all
}

/// The processes of one cluster, as far as they run on this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterProcesses {
    /// Controllers.
    pub controllers: Vec<u32>,
    /// Node daemons.
    pub nodes: Vec<u32>,
    /// Step managers and shepherds, one per node of a job.
    pub stepds: Vec<u32>,
    /// Launchers.
    pub launchers: Vec<u32>,
}

impl ClusterProcesses {
    /// Those whose command line names the cluster's home, and the launchers below them.
    pub fn of(home: &Path) -> Self {
        let (all, home) = (running(), home.to_string_lossy());
        let mut found = Self::default();
        for process in &all {
            let program = process.args.first().map(|p| p.rsplit('/').next().unwrap_or(p)).unwrap_or_default();
            let has = |word: &str| process.args.iter().any(|a| a == word);
            let ours = process.args.iter().any(|a| a.contains(&*home));
            match program {
                "stepd" if ours => found.stepds.push(process.pid),
                "noded" | "slurmctld" | "slurmd" if ours => {
                    let is_controller = program == "slurmctld" || has("controller");
                    if is_controller { &mut found.controllers } else { &mut found.nodes }.push(process.pid);
                }
                _ => {}
            }
        }
        let launchers =
            all.iter().filter(|p| found.stepds.contains(&p.parent) && p.args.iter().any(|a| a == "launcher"));
        found.launchers = launchers.map(|p| p.pid).collect();
        found
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn this_process_can_be_read() {
        let me = std::process::id();
        let memory = memory(me).unwrap();
        assert!(memory.resident > 0 && memory.peak >= memory.resident, "{memory:?}");
        assert!(!threads(me).unwrap().is_empty());
        assert!(cpu_time(me).is_ok() && ticks(me).is_ok());
        assert!(forks().unwrap() > 0);
        let mine = running().into_iter().find(|p| p.pid == me).unwrap();
        assert_eq!(mine.parent, std::os::unix::process::parent_id());
    }

    #[test]
    fn a_process_that_is_not_there_is_an_error_with_its_path() {
        let error = memory(u32::MAX).unwrap_err().to_string();
        assert!(error.starts_with("/proc/4294967295/status: "), "{error}");
    }
}
