//! The processes of an embedded cluster: the list of started ones, with their start times so that a reused pid is never taken for
//! one of them, and those found in `/proc` by their command lines and environments.

use super::{SiteError, home::Home};
use garrick_model::env_vars::GARRICK_STEPD_DOOR;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    fs,
    io::{self, Write as _},
    os::unix::{ffi::OsStrExt as _, fs::OpenOptionsExt as _},
    path::{Path, PathBuf},
};

/// A process that was started, or found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// `controller`, `node`, `controller,node` for both in one, `stepd`.
    pub role: String,
    /// Its name: the node's, or the cluster's controller.
    pub name: String,
    /// Process id.
    pub pid: u32,
    /// Clock ticks after boot at which it started (`/proc/PID/stat`, field 22).
    pub start_ticks: u64,
    /// Where it is reached.
    pub address: String,
}

impl Process {
    /// Whether it is still that process.
    pub fn is_alive(&self) -> bool {
        start_ticks(self.pid) == Some(self.start_ticks)
    }

    /// Signals it, if it is still that process.
    pub fn signal(&self, signal: Signal) {
        if self.is_alive() {
            // It may end in between; that is what was wanted.
            let _ = kill(pid(self.pid), signal);
        }
    }
}

fn pid(number: u32) -> Pid {
    Pid::from_raw(i32::try_from(number).unwrap_or(i32::MAX))
}

/// When a process started, in clock ticks after boot; `None` for one that is gone or a zombie.
pub fn start_ticks(pid: u32) -> Option<u64> {
    Stat::of_living(pid).map(|stat| stat.start_ticks)
}

/// What `/proc/PID/stat` says.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    state: char,
    parent: u32,
    start_ticks: u64,
}

impl Stat {
    fn read(pid: u32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// `None` for a process that is gone or a zombie.
    fn of_living(pid: u32) -> Option<Self> {
        Self::read(pid).filter(|stat| stat.state != 'Z' && stat.state != 'X')
    }

    /// The name in parentheses may hold anything, so fields are counted behind the last one (proc_pid_stat(5)).
    fn parse(text: &str) -> Option<Self> {
        let mut fields = text.rsplit_once(')')?.1.split_whitespace();
        let state = fields.next()?.chars().next()?;
        let parent = fields.next()?.parse().ok()?;
        let start_ticks = fields.nth(17)?.parse().ok()?;
        Some(Self { state, parent, start_ticks })
    }
}

/// The list of an embedded cluster; empty when there is none.
pub fn load(home: &Home) -> Result<Vec<Process>, SiteError> {
    let path = home.process_list();
    match fs::read(&path) {
        Ok(bytes) => serde_json::from_slice(&bytes).map_err(|e| SiteError::file("cannot read", &path)(e.into())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(SiteError::file("cannot read", &path)(error)),
    }
}

/// Writes the list, whole or not at all.
pub fn save(home: &Home, processes: &[Process]) -> Result<(), SiteError> {
    let path = home.process_list();
    let new = path.with_extension("json.new");
    let bytes = serde_json::to_vec_pretty(processes).expect("a list of strings and numbers is valid JSON");
    let mut options = fs::OpenOptions::new();
    let opened = options.write(true).create(true).truncate(true).mode(0o600).open(&new);
    let written = opened.and_then(|mut file| file.write_all(&bytes)).and_then(|()| fs::rename(&new, &path));
    written.map_err(SiteError::file("cannot write", &path))
}

/// Removes the list.
pub fn forget(home: &Home) -> Result<(), SiteError> {
    let path = home.process_list();
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(SiteError::file("cannot remove", &path)(error)),
        _ => Ok(()),
    }
}

/// Daemons and step daemons whose command line names the cluster's folder, whoever started them.
pub fn find(home: &Home) -> Vec<Process> {
    let mut found = Vec::new();
    for pid in all_pids() {
        let Ok(line) = fs::read(format!("/proc/{pid}/cmdline")) else { continue };
        let words: Vec<&[u8]> = line.split(|b| *b == 0).collect();
        let Some(role) = words.first().and_then(|w| role_of(w)) else { continue };
        if !words.iter().skip(1).any(|w| names_folder(w, home.root())) {
            continue;
        }
        let Some(stat) = Stat::of_living(pid) else { continue };
        let text = |flag: &str| {
            let at = words.iter().position(|w| *w == flag.as_bytes())?;
            Some(String::from_utf8_lossy(words.get(at + 1)?).into_owned())
        };
        let role = match (role, text("--role")) {
            ("noded", Some(roles)) => roles,
            ("noded", None) => "controller,node".to_owned(),
            (role, _) => role.to_owned(),
        };
        let name = match role.as_str() {
            "stepd" => words.iter().rev().find(|w| !w.is_empty()).map(|w| run_of_spool(&String::from_utf8_lossy(w))),
            _ => text("-N"),
        };
        let name = name.unwrap_or_else(|| role.clone());
        let process = Process { role, name, pid, start_ticks: stat.start_ticks, address: String::new() };
        found.push((stat.parent, process));
    }
    without_forks(found)
}

/// Leaves out children that have not executed their own program yet: until then they have the command line of the daemon that
/// forked them. Each comes with the pid of its parent.
fn without_forks(found: Vec<(u32, Process)>) -> Vec<Process> {
    let is_fork = |(parent, child): &(u32, Process)| {
        found.iter().any(|(_, of)| of.pid == *parent && of.role == child.role && of.name == child.name)
    };
    let forks: Vec<u32> = found.iter().filter(|entry| is_fork(entry)).map(|(_, fork)| fork.pid).collect();
    found.into_iter().map(|(_, process)| process).filter(|process| !forks.contains(&process.pid)).collect()
}

/// `n1/sFSNM7YRTC8Q00` of `/home/x/spool/n1/runs/sFSNM7YRTC8Q00`: node and run of a step daemon.
fn run_of_spool(folder: &str) -> String {
    let mut parts = folder.rsplit('/');
    let run = parts.next().unwrap_or_default();
    match parts.nth(1) {
        Some(node) => format!("{node}/{run}"),
        None => run.to_owned(),
    }
}

fn role_of(argv0: &[u8]) -> Option<&'static str> {
    let name = argv0.rsplit(|b| *b == b'/').next()?;
    match name {
        b"noded" => Some("noded"),
        b"slurmctld" => Some("controller"),
        b"slurmd" => Some("node"),
        b"slurmdbd" => Some("accounting"),
        b"stepd" => Some("stepd"),
        _ => None,
    }
}

/// `/home/x`, `/home/x/etc/slurm.conf` and `--home=/home/x` name `/home/x`; `/home/xy` does not.
fn names_folder(word: &[u8], folder: &Path) -> bool {
    let folder = folder.as_os_str().as_bytes();
    let value = word.iter().position(|b| *b == b'/').map_or(&word[..0], |at| &word[at..]);
    value.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

/// Processes of jobs: those below the given ones, and those whose environment names a step daemon's door in one of the
/// run folders (they were given to init when their step daemon died).
pub fn of_jobs(roots: &[Process], run_folders: &[PathBuf]) -> Vec<Process> {
    let stats: BTreeMap<u32, Stat> = all_pids().into_iter().filter_map(|p| Some((p, Stat::read(p)?))).collect();
    let below = |pid: u32| {
        let mut at = pid;
        for _ in 0..stats.len() {
            let Some(stat) = stats.get(&at) else { return false };
            at = stat.parent;
            if roots.iter().any(|r| r.pid == at) {
                return true;
            }
        }
        false
    };
    let own = std::process::id();
    stats
        .iter()
        .filter(|(pid, stat)| **pid != own && stat.state != 'Z' && !roots.iter().any(|r| r.pid == **pid))
        .filter(|(pid, _)| below(**pid) || names_door(**pid, run_folders))
        .map(|(pid, stat)| Process {
            role: "task".to_owned(),
            name: String::new(),
            pid: *pid,
            start_ticks: stat.start_ticks,
            address: String::new(),
        })
        .collect()
}

fn names_door(pid: u32, run_folders: &[PathBuf]) -> bool {
    let Ok(environment) = fs::read(format!("/proc/{pid}/environ")) else { return false };
    let prefix = format!("{GARRICK_STEPD_DOOR}=");
    environment
        .split(|b| *b == 0)
        .filter_map(|entry| entry.strip_prefix(prefix.as_bytes()))
        .any(|door| run_folders.iter().any(|folder| names_folder(door, folder)))
}

fn all_pids() -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries.flatten().filter_map(|e| e.file_name().to_str()?.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn stat_is_read_behind_a_name_with_anything_in_it() {
        let text = "12 (a) b (c) S 7 12 12 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 98765 1 2";
        assert_eq!(Stat::parse(text), Some(Stat { state: 'S', parent: 7, start_ticks: 98765 }));
    }

    #[test]
    fn a_process_is_known_by_pid_and_start_time() {
        let pid = std::process::id();
        let mut process = Process {
            role: "node".to_owned(),
            name: "n1".to_owned(),
            pid,
            start_ticks: start_ticks(pid).unwrap(),
            address: String::new(),
        };
        assert!(process.is_alive());
        process.start_ticks += 1;
        assert!(!process.is_alive());
    }

    #[test]
    fn a_child_that_has_not_executed_its_program_yet_is_not_another_daemon() {
        let process = |role: &str, name: &str, pid| Process {
            role: role.to_owned(),
            name: name.to_owned(),
            pid,
            start_ticks: 1,
            address: String::new(),
        };
        let found = vec![
            // A fork may have a lower number than its parent.
            (40, process("node", "n2", 7)),
            (1, process("node", "n1", 30)),
            (1, process("node", "n2", 40)),
            (40, process("stepd", "n2/sFSNM7YRTC8Q00", 41)),
        ];
        let left: Vec<u32> = without_forks(found).iter().map(|process| process.pid).collect();
        assert_eq!(left, [30, 40, 41]);
    }

    #[test]
    fn words_that_name_the_folder_or_something_in_it() {
        let folder = Path::new("/home/x");
        for word in ["/home/x", "/home/x/etc/slurm.conf", "--home=/home/x"] {
            assert!(names_folder(word.as_bytes(), folder), "{word}");
        }
        for word in ["/home/xy", "/home", "x", "/srv/home/x"] {
            assert!(!names_folder(word.as_bytes(), folder), "{word}");
        }
    }

    #[test]
    fn step_daemons_are_named_by_node_and_run() {
        assert_eq!(run_of_spool("/home/x/spool/n1/runs/sFSNM7YRTC8Q00"), "n1/sFSNM7YRTC8Q00");
        assert_eq!(run_of_spool("x"), "x");
    }

    #[test]
    fn the_list_survives_writing_and_reading() {
        let folder = std::env::temp_dir().join(format!("garrick-processes-{}", std::process::id()));
        let home = Home::at(&folder).unwrap();
        home.create().unwrap();
        assert_eq!(load(&home).unwrap(), []);
        let list = vec![Process {
            role: "controller".to_owned(),
            name: "controller".to_owned(),
            pid: 4,
            start_ticks: 5,
            address: "127.0.0.1:6".to_owned(),
        }];
        save(&home, &list).unwrap();
        assert_eq!(load(&home).unwrap(), list);
        forget(&home).unwrap();
        assert_eq!(load(&home).unwrap(), []);
        fs::remove_dir_all(&folder).unwrap();
    }
}
