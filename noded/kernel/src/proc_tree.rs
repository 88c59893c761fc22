//! Finds processes through `/proc`: descendants, sessions, and those with a job's marker in their environment. Jobs are tracked
//! this way where there are no cgroups; elsewhere it finds leftovers.
//!
//! Process ids are reused, so every kill first opens a descriptor and then checks that the process behind it has the expected
//! start time.

use super::signals::{Delivery, pidfd_open, send};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// Where processes are shown.
pub const PROC: &str = "/proc";

/// A process as `/proc/PID/stat` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    /// Number.
    pub pid: u32,
    /// Parent.
    pub ppid: u32,
    /// Process group.
    pub pgrp: u32,
    /// Session.
    pub session: u32,
    /// State letter; `Z` and `X` are dead.
    pub state: char,
    /// Start, in clock ticks since boot. With `pid`, names one process for as long as the machine is up.
    pub start_time: u64,
}

impl Process {
    /// Dead, though perhaps not yet reaped.
    pub const fn is_dead(&self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }

    /// Reads the text of `/proc/PID/stat`.
    pub fn parse(text: &str) -> Option<Self> {
        // The name, in parentheses, may hold anything, closing parentheses included.
        let (pid, rest) = text.split_once(" (")?;
        let (_, rest) = rest.rsplit_once(") ")?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        let number = |i: usize| fields.get(i).and_then(|f| f.parse::<u32>().ok());
        Some(Self {
            pid: pid.trim().parse().ok()?,
            state: fields.first()?.chars().next()?,
            ppid: number(1)?,
            pgrp: number(2)?,
            session: number(3)?,
            // Field 22 of proc(5).
            start_time: fields.get(19)?.parse().ok()?,
        })
    }

    /// Reads one; `None` if there is none by that number.
    pub fn read(proc_root: &Path, pid: u32) -> Option<Self> {
        Self::parse(&String::from_utf8_lossy(&fs::read(proc_root.join(pid.to_string()).join("stat")).ok()?))
    }

    fn same_as(&self, other: &Self) -> bool {
        self.pid == other.pid && self.start_time == other.start_time
    }
}

/// Start of a process in clock ticks since boot.
pub fn start_time(pid: u32) -> Option<u64> {
    Process::read(Path::new(PROC), pid).map(|p| p.start_time)
}

/// True when a process was started with one of `arguments`.
pub fn has_argument(proc_root: &Path, pid: u32, arguments: &[&[u8]]) -> bool {
    fs::read(proc_root.join(pid.to_string()).join("cmdline"))
        .is_ok_and(|line| line.split(|b| *b == 0).any(|word| arguments.contains(&word)))
}

/// All processes at one moment (nearly: the kernel does not stop for us).
#[derive(Clone, Debug, Default)]
pub struct ProcessTable {
    root: PathBuf,
    processes: BTreeMap<u32, Process>,
}

impl ProcessTable {
    /// Reads `/proc`, or a folder like it.
    pub fn scan(proc_root: &Path) -> io::Result<Self> {
        let mut processes = BTreeMap::new();
        for entry in fs::read_dir(proc_root)? {
            let Some(pid) = entry?.file_name().to_str().and_then(|n| n.parse::<u32>().ok()) else { continue };
            // A process that ended since is no error.
            if let Some(process) = Process::read(proc_root, pid) {
                processes.insert(pid, process);
            }
        }
        Ok(Self { root: proc_root.to_owned(), processes })
    }

    /// One process.
    pub fn get(&self, pid: u32) -> Option<&Process> {
        self.processes.get(&pid)
    }

    /// Children of `pid`, their children, and so on; not `pid` itself.
    pub fn descendants(&self, pid: u32) -> Vec<Process> {
        let mut children: BTreeMap<u32, Vec<&Process>> = BTreeMap::new();
        for process in self.processes.values() {
            children.entry(process.ppid).or_default().push(process);
        }
        let mut found = BTreeMap::new();
        let mut next = vec![pid];
        while let Some(parent) = next.pop() {
            for child in children.get(&parent).into_iter().flatten() {
                if child.pid != pid && found.insert(child.pid, **child).is_none() {
                    next.push(child.pid);
                }
            }
        }
        found.into_values().collect()
    }

    /// Members of a session.
    pub fn in_session(&self, session: u32) -> Vec<Process> {
        self.processes.values().filter(|p| p.session == session).copied().collect()
    }

    /// Members of a process group.
    pub fn in_group(&self, pgrp: u32) -> Vec<Process> {
        self.processes.values().filter(|p| p.pgrp == pgrp).copied().collect()
    }

    /// Processes with one of `arguments` among their own. They need not be dumpable.
    pub fn with_argument(&self, arguments: &[&[u8]]) -> Vec<Process> {
        self.processes
            .values()
            .filter(|p| !p.is_dead() && has_argument(&self.root, p.pid, arguments))
            .copied()
            .collect()
    }

    /// Processes whose initial environment holds all of `entries` (`NAME=value`). Those whose environment may not be read
    /// belong to others, and are left out.
    pub fn marked(&self, entries: &[&[u8]]) -> Vec<Process> {
        let has_all = |pid: u32| {
            fs::read(self.root.join(pid.to_string()).join("environ")).is_ok_and(|text| {
                let set: BTreeSet<&[u8]> = text.split(|b| *b == 0).collect();
                entries.iter().all(|e| set.contains(e))
            })
        };
        self.processes.values().filter(|p| !p.is_dead() && has_all(p.pid)).copied().collect()
    }
}

/// Opens a process that exists now, to be told of its end: the descriptor becomes readable then.
pub fn open(pid: u32) -> io::Result<OwnedFd> {
    pidfd_open(pid)
}

/// Opens a process if it is still the one that was found.
fn open_same(process: &Process) -> io::Result<Option<OwnedFd>> {
    let pidfd = match pidfd_open(process.pid) {
        Ok(fd) => fd,
        Err(e) if e.raw_os_error() == Some(libc::ESRCH) => return Ok(None),
        Err(e) => return Err(e),
    };
    let same = Process::read(Path::new(PROC), process.pid).is_some_and(|now| now.same_as(process));
    Ok(same.then_some(pidfd))
}

/// Sends a signal to one process found earlier.
pub fn signal(process: &Process, signal: i32) -> io::Result<Delivery> {
    match open_same(process)? {
        Some(pidfd) => send(pidfd.as_fd(), signal),
        None => Ok(Delivery::Gone),
    }
}

/// Longest wait before looking again for processes that were started meanwhile.
const ROUND: Duration = Duration::from_millis(50);

/// A process that is executing a program shows no environment for a moment, so nothing is gone that was looked for only once.
const SECOND_LOOK: Duration = Duration::from_millis(10);

/// Kills what `find` finds, again and again, until it finds nothing alive (twice) or `limit` is over. Returns what is left: processes
/// that may not be killed, or that the kernel has not let go of yet.
pub fn kill_until_gone(
    mut find: impl FnMut() -> io::Result<Vec<Process>>,
    limit: Duration,
) -> io::Result<Vec<Process>> {
    let end = Instant::now() + limit;
    let mut looked = false;
    loop {
        let alive: Vec<Process> = find()?.into_iter().filter(|p| !p.is_dead()).collect();
        if alive.is_empty() {
            if looked {
                return Ok(alive);
            }
            looked = true;
            std::thread::sleep(SECOND_LOOK);
            continue;
        }
        looked = false;
        let mut dying = Vec::new();
        for process in &alive {
            let Some(pidfd) = open_same(process)? else { continue };
            // Not permitted: it is still there in the next round, and is reported in the end.
            if matches!(send(pidfd.as_fd(), libc::SIGKILL), Ok(Delivery::Sent)) {
                dying.push(pidfd);
            }
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(alive);
        }
        wait_for_one(&dying, left.min(ROUND))?;
    }
}

/// Kills everything below a process, in the sense of [`kill_until_gone`]. Below a subreaper that is everything its children
/// ever started.
pub fn kill_descendants(of: u32, limit: Duration) -> io::Result<Vec<Process>> {
    kill_until_gone(|| Ok(ProcessTable::scan(Path::new(PROC))?.descendants(of)), limit)
}

/// Waits until one of the processes ended, or for `limit`.
fn wait_for_one(processes: &[OwnedFd], limit: Duration) -> io::Result<()> {
    let mut fds: Vec<PollFd<'_>> = processes.iter().map(|p| PollFd::new(p.as_fd(), PollFlags::POLLIN)).collect();
    let timeout = PollTimeout::try_from(limit).unwrap_or(PollTimeout::MAX);
    match poll(&mut fds, timeout) {
        Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{
        reap::reap,
        scratch::Scratch,
        spawn::{KillOnDrop, Session, SpawnSpec, Spawned, cstring, spawn},
    };
    use std::{borrow::Cow, io::Read};

    fn put(dir: &Scratch, pid: u32, name: &str, ppid: u32, session: u32, environ: &str) {
        let zeros = "0 ".repeat(15);
        let stat = format!("{pid} ({name}) S {ppid} {session} {session} {zeros}{} 0", 1000 + pid);
        dir.put(&format!("{pid}/stat"), &stat);
        dir.put(&format!("{pid}/environ"), environ);
    }

    #[test]
    fn descendants_and_sessions_come_from_stat() {
        let dir = Scratch::new("proc");
        put(&dir, 1, "init", 0, 1, "");
        put(&dir, 10, "a) S 77 (", 1, 10, "A=1\0B=2\0");
        put(&dir, 11, "b c", 10, 10, "A=1\0");
        put(&dir, 12, "d", 11, 12, "A=10\0B=2\0");
        put(&dir, 20, "other", 1, 20, "");
        dir.put("self/stat", "nonsense");
        let table = ProcessTable::scan(dir.path()).unwrap();
        let pids = |list: Vec<Process>| list.iter().map(|p| p.pid).collect::<Vec<_>>();
        assert_eq!(pids(table.descendants(10)), [11, 12]);
        assert_eq!(pids(table.in_session(10)), [10, 11]);
        assert_eq!(pids(table.marked(&[b"A=1", b"B=2"])), [10]);
        assert_eq!(table.get(12).unwrap().start_time, 1012);
    }

    fn shell(script: &str, marker: &str, out: Option<&OwnedFd>) -> Spawned {
        let arg = |s: &str| Cow::Owned(cstring(s).unwrap());
        let spec = SpawnSpec {
            programs: vec![c"/bin/sh".to_owned()],
            argv: vec![arg("sh"), arg("-c"), arg(script)],
            env: vec![arg(marker), arg("PATH=/usr/bin:/bin")],
            stdio: [None, out.map(AsFd::as_fd), None],
            session: Session::OwnSession,
            ..SpawnSpec::default()
        };
        spawn(&spec).unwrap()
    }

    #[test]
    fn marked_processes_are_killed_wherever_they_went() {
        let marker = format!("GARRICK_TEST_MARKER={}", std::process::id());
        let (mut read, write) = io::pipe().unwrap();
        let write = OwnedFd::from(write);
        // One in the foreground, one that left its session and its parent.
        let child = shell("(setsid sleep 1000 &) ; echo ready; exec sleep 1000", &marker, Some(&write));
        drop(write);
        let mut ready = [0; 6];
        read.read_exact(&mut ready).unwrap();
        let find = || Ok(ProcessTable::scan(Path::new(PROC))?.marked(&[marker.as_bytes()]));
        while find().unwrap().len() < 2 {
            std::thread::yield_now();
        }
        assert_eq!(kill_until_gone(find, Duration::from_secs(600)).unwrap(), []);
        assert_eq!(reap(child.pidfd.as_fd()).unwrap().status.signal, Some(9));
    }

    #[test]
    fn a_process_with_another_start_time_is_never_signalled() {
        let child = KillOnDrop::new(shell("exec sleep 1000", "X=1", None));
        let spawned = child.child().unwrap();
        let mut process = Process::read(Path::new(PROC), spawned.pid).unwrap();
        process.start_time += 1;
        assert_eq!(signal(&process, libc::SIGKILL).unwrap(), Delivery::Gone);
        assert_eq!(crate::reap::peek(spawned.pidfd.as_fd()).unwrap(), None);
    }
}
