//! The cluster's processes according to `/proc`: possible victims, and what is left over.

use super::work::LASTING;
use crate::minibatch::processes;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

/// What a process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Controller.
    Controller,
    /// A node's daemon.
    Noded,
    /// Step manager or shepherd.
    Stepd,
    /// Parent of a run's tasks.
    Launcher,
    /// A command with a request under way.
    Command,
}

/// One of them.
#[derive(Clone, Debug)]
pub struct Member {
    /// Its id.
    pub pid: u32,
    /// What it is.
    pub role: Role,
    /// Last six digits of its run's identity, for those that belong to one.
    pub run: Option<String>,
    /// Its node, of a step manager or shepherd.
    pub node: Option<String>,
}

/// The digits by which a run is told in names of doors.
pub fn tail(sluid: &str) -> String {
    sluid.get(sluid.len().saturating_sub(6)..).unwrap_or_default().to_owned()
}

/// Step daemons, launchers, and commands inside jobs.
pub fn of_runs(home: &Path, key: &str) -> Vec<Member> {
    let home = home.to_string_lossy();
    let doors = format!("/run/garrick/{key}/");
    let (mut found, all) = (Vec::new(), processes::running());
    let is_launcher = |p: &processes::Running| p.args.get(1).is_some_and(|a| a == "launcher");
    let launchers: Vec<u32> = all.iter().filter(|p| is_launcher(p)).map(|p| p.pid).collect();
    let is_stepd = |p: &processes::Running| p.args.get(1).is_some_and(|a| a == "run");
    let stepds: Vec<u32> = all.iter().filter(|p| is_stepd(p)).map(|p| p.pid).collect();
    for process in all {
        let argument = |n: usize| process.args.get(n).map(String::as_str).unwrap_or_default();
        let program = argument(0).rsplit('/').next().unwrap_or_default();
        let member = match (program, argument(1)) {
            ("stepd", "run") if argument(2).starts_with(&*home) => {
                let run = argument(2).rsplit('/').next().map(tail);
                // A child of one is a launcher between fork and exec.
                let role = if stepds.contains(&process.parent) { Role::Launcher } else { Role::Stepd };
                // `.../spool-n1/runs/SLUID`
                let spool = argument(2).rsplit('/').nth(2).and_then(|folder| folder.strip_prefix("spool-"));
                Member { pid: process.pid, role, run, node: spool.map(ToOwned::to_owned) }
            }
            // A child of a launcher is a task between fork and exec.
            ("stepd", "launcher") if !launchers.contains(&process.parent) => {
                let Some(door) = process.args.iter().find(|a| a.starts_with(&doors)) else { continue };
                let run = door.strip_suffix(".sock.launcher").and_then(|d| d.rsplit('-').next()).map(ToOwned::to_owned);
                Member { pid: process.pid, role: Role::Launcher, run, node: None }
            }
            ("srun" | "swait", _) if argument(0).starts_with(&*home) => {
                let run = variable(process.pid, "SLURM_JOB_SLUID=").map(|s| tail(&s));
                Member { pid: process.pid, role: Role::Command, run, node: None }
            }
            _ => continue,
        };
        found.push(member);
    }
    found
}

/// Runs that have steps over several nodes: their step managers and shepherds, by run.
pub fn over_several_nodes(home: &Path, key: &str) -> Vec<Vec<Member>> {
    let mut runs: BTreeMap<String, Vec<Member>> = BTreeMap::new();
    for member in of_runs(home, key).into_iter().filter(|m| m.role == Role::Stepd && m.node.is_some()) {
        if let Some(run) = &member.run {
            runs.entry(run.clone()).or_default().push(member);
        }
    }
    let several = |members: &Vec<Member>| members.iter().any(|m| m.node != members[0].node);
    runs.into_values().filter(several).collect()
}

/// Runs with a step at work that lasts.
pub fn with_lasting_steps(step: &Path) -> BTreeSet<String> {
    let step = step.to_string_lossy();
    let lasting =
        |p: &processes::Running| p.args.iter().any(|arg| *arg == step) && p.args.len() == 5 && p.args[4] == LASTING;
    let pids = processes::running().into_iter().filter(lasting).map(|p| p.pid);
    pids.filter_map(|pid| variable(pid, "SLURM_JOB_SLUID=")).map(|sluid| tail(&sluid)).collect()
}

fn variable(pid: u32, name: &str) -> Option<String> {
    let bytes = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let entries = bytes.split(|b| *b == 0).map(String::from_utf8_lossy);
    entries.into_iter().find_map(|e| e.strip_prefix(name).map(ToOwned::to_owned))
}

/// Processes but this one whose arguments or environment have a text.
pub fn with_text(text: &str) -> Vec<u32> {
    let own = std::process::id();
    let has = |pid: u32, file: &str| {
        fs::read(format!("/proc/{pid}/{file}")).is_ok_and(|b| String::from_utf8_lossy(&b).contains(text))
    };
    let all = processes::running();
    all.iter().map(|p| p.pid).filter(|pid| *pid != own && (has(*pid, "cmdline") || has(*pid, "environ"))).collect()
}

/// What a process was called with.
pub fn called(pid: u32) -> String {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).replace('\0', " ")
}

/// Signals a process, which may be gone.
pub fn signal(pid: u32, signal: Signal) -> bool {
    i32::try_from(pid).is_ok_and(|pid| kill(Pid::from_raw(pid), signal).is_ok())
}
