//! What is done to the cluster: which fault, to whom, when it is undone; and the book of it, which later says what may be
//! excused by what.

use super::{
    population::{self, Role},
    site::Site,
};
use crate::minibatch::cluster::ClusterError;
use garrick_simulator::random::Random;
use nix::sys::signal::Signal;
use std::{
    collections::BTreeMap,
    fmt,
    fs::File,
    io::Write,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// `kill -9` of the controller.
    KillController,
    /// Of a node's daemon.
    KillNoded,
    /// Of a step manager or shepherd.
    KillStepd,
    /// Of the parent of a run's tasks.
    KillLauncher,
    /// Of `srun` or `swait` inside a job.
    KillCommand,
    /// Of `sbatch`.
    KillSubmission,
    /// A process is stopped for some seconds.
    Stop,
    /// A host's cable is pulled for some seconds.
    Cut,
    /// A disk is full for some seconds.
    FillDisk,
}

/// How often each, in a thousand.
const WEIGHTS: [(Fault, u32); 9] = [
    (Fault::KillController, 80),
    (Fault::KillNoded, 220),
    (Fault::KillStepd, 280),
    (Fault::KillLauncher, 80),
    (Fault::KillCommand, 130),
    (Fault::KillSubmission, 100),
    (Fault::Stop, 50),
    (Fault::Cut, 40),
    (Fault::FillDisk, 20),
];
/// Length of what is undone, milliseconds.
const STOP_MS: (u32, u32) = (500, 6_000);
/// Links are given up after ten seconds of silence: some cuts are longer.
const CUT_MS: (u32, u32) = (500, 14_000);
const FULL_MS: (u32, u32) = (1_000, 5_000);

impl Fault {
    /// One of those that count as kills.
    pub const fn is_kill(self) -> bool {
        !matches!(self, Self::Stop | Self::Cut | Self::FillDisk)
    }

    fn draw(random: &mut Random) -> Self {
        let total: u32 = WEIGHTS.iter().map(|(_, w)| w).sum();
        let mut at = random.between(0, total - 1);
        for (fault, weight) in WEIGHTS {
            if at < weight {
                return fault;
            }
            at -= weight;
        }
        Self::KillStepd
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::KillController => "controller killed",
            Self::KillNoded => "noded killed",
            Self::KillStepd => "stepd killed",
            Self::KillLauncher => "launcher killed",
            Self::KillCommand => "srun or swait killed",
            Self::KillSubmission => "sbatch killed",
            Self::Stop => "process stopped",
            Self::Cut => "link cut",
            Self::FillDisk => "disk filled",
        })
    }
}

/// What was done to one run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunFaults {
    /// Its step managers and shepherds killed.
    pub stepds: u32,
    /// Its launchers killed.
    pub launchers: u32,
    /// Commands in it killed.
    pub commands: u32,
}

/// What was done so far.
#[derive(Clone, Debug, Default)]
pub struct Book {
    /// By kind.
    pub done: BTreeMap<Fault, u32>,
    /// By the last digits of the run's identity.
    pub runs: BTreeMap<String, RunFaults>,
}

impl Book {
    /// Kills.
    pub fn kills(&self) -> u32 {
        self.done.iter().filter(|(f, _)| f.is_kill()).map(|(_, n)| n).sum()
    }

    /// Times that one was done.
    pub fn of(&self, fault: Fault) -> u32 {
        self.done.get(&fault).copied().unwrap_or(0)
    }

    /// What was done to a run.
    pub fn run(&self, sluid: &str) -> RunFaults {
        self.runs.get(&population::tail(sluid)).copied().unwrap_or_default()
    }
}

#[derive(Debug)]
enum Undo {
    Resume(u32),
    Plug(usize),
    Empty(PathBuf),
}

/// The one who does it.
#[derive(Debug)]
pub struct Injurer {
    /// The book.
    pub book: Book,
    key: String,
    undo: Vec<(Instant, Undo)>,
    log: File,
    began: Instant,
}

impl Injurer {
    /// Keeps a log of what it does.
    pub fn new(site: &Site, key: String) -> Result<Self, ClusterError> {
        let log = super::site::append(&site.home.join("faults.log"))?;
        Ok(Self { book: Book::default(), key, undo: Vec::new(), log, began: Instant::now() })
    }

    fn note(&mut self, fault: Fault, what: &str) {
        *self.book.done.entry(fault).or_default() += 1;
        // For people only.
        let _ = writeln!(self.log, "{:9.3} {fault}: {what}", self.began.elapsed().as_secs_f64());
    }

    /// One fault. `submissions` are the processes of `sbatch` under way; the one that is hit is given back. Nothing happens
    /// where there is no victim of the kind that was drawn.
    pub fn strike(
        &mut self,
        site: &mut Site,
        submissions: &[u32],
        random: &mut Random,
    ) -> Result<Option<u32>, ClusterError> {
        let fault = Fault::draw(random);
        let now = Instant::now();
        match fault {
            Fault::KillController => self.kill_daemon(fault, 0, site),
            Fault::KillNoded => {
                let last = u32::try_from(site.daemons.len()).unwrap_or(1) - 1;
                self.kill_daemon(fault, random.between(1, last) as usize, site);
            }
            Fault::KillStepd => self.kill_member(fault, Role::Stepd, site, random),
            Fault::KillLauncher => self.kill_member(fault, Role::Launcher, site, random),
            Fault::KillCommand => self.kill_member(fault, Role::Command, site, random),
            Fault::KillSubmission => {
                let Some(pid) = random.pick(submissions).copied() else { return Ok(None) };
                population::signal(pid, Signal::SIGKILL);
                self.note(fault, &pid.to_string());
                return Ok(Some(pid));
            }
            Fault::Stop => {
                let mut victims: Vec<u32> = site.daemons.iter().filter_map(super::daemon::Daemon::pid).collect();
                let stepds = population::of_runs(&site.home, &self.key);
                victims.extend(stepds.iter().filter(|m| m.role == Role::Stepd).map(|m| m.pid));
                let Some(pid) = random.pick(&victims).copied() else { return Ok(None) };
                let called = population::called(pid);
                if population::signal(pid, Signal::SIGSTOP) {
                    let until = now + millis(STOP_MS, random);
                    self.undo.push((until, Undo::Resume(pid)));
                    self.note(fault, &format!("{:?} {called}", until - now));
                }
            }
            Fault::Cut => {
                let host = random.between(0, u32::try_from(site.hosts.len()).unwrap_or(1) - 1) as usize;
                if !self.undo.iter().any(|(_, u)| matches!(u, Undo::Plug(h) if *h == host)) {
                    site.cable(host, "down")?;
                    let until = now + millis(CUT_MS, random);
                    self.undo.push((until, Undo::Plug(host)));
                    self.note(fault, &format!("{:?} {}", until - now, site.hosts[host].name));
                }
            }
            Fault::FillDisk => {
                let disks: Vec<PathBuf> = site.hosts.iter().filter_map(|h| Some(h.sees(h.disk.as_deref()?))).collect();
                let Some(disk) = random.pick(&disks) else { return Ok(None) };
                let filler = disk.join("filler");
                if !filler.exists() {
                    fill(&filler);
                    let until = now + millis(FULL_MS, random);
                    self.note(fault, &format!("{:?} {}", until - now, filler.display()));
                    self.undo.push((until, Undo::Empty(filler)));
                }
            }
        }
        Ok(None)
    }

    fn kill_daemon(&mut self, fault: Fault, at: usize, site: &mut Site) {
        let Some(daemon) = site.daemons.get_mut(at) else { return };
        if let Some(pid) = daemon.pid() {
            daemon.kill();
            self.note(fault, &format!("{} {pid}", site.hosts[at].name));
        }
    }

    fn kill_member(&mut self, fault: Fault, role: Role, site: &Site, random: &mut Random) {
        let all = population::of_runs(&site.home, &self.key);
        let victims: Vec<_> = all.into_iter().filter(|m| m.role == role && m.run.is_some()).collect();
        let Some(victim) = random.pick(&victims) else { return };
        let called = population::called(victim.pid);
        if !population::signal(victim.pid, Signal::SIGKILL) {
            return;
        }
        let run = self.book.runs.entry(victim.run.clone().unwrap_or_default()).or_default();
        match role {
            Role::Stepd => run.stepds += 1,
            Role::Launcher => run.launchers += 1,
            _ => run.commands += 1,
        }
        self.note(fault, &format!("{} {called}", victim.pid));
    }

    /// Undoes what is due.
    pub fn undo_due(&mut self, site: &Site, now: Instant) -> Result<(), ClusterError> {
        let (due, later) = std::mem::take(&mut self.undo).into_iter().partition(|(at, _)| *at <= now);
        self.undo = later;
        let due: Vec<(Instant, Undo)> = due;
        due.into_iter().try_for_each(|(_, undo)| undone(undo, site))
    }

    /// Undoes everything.
    pub fn undo_all(&mut self, site: &Site) -> Result<(), ClusterError> {
        std::mem::take(&mut self.undo).into_iter().try_for_each(|(_, undo)| undone(undo, site))
    }
}

fn undone(undo: Undo, site: &Site) -> Result<(), ClusterError> {
    match undo {
        Undo::Resume(pid) => {
            // Killed meanwhile is as good.
            population::signal(pid, Signal::SIGCONT);
            Ok(())
        }
        Undo::Plug(host) => site.cable(host, "up"),
        Undo::Empty(filler) => std::fs::remove_file(&filler).map_err(|cause| ClusterError::File {
            operation: "remove",
            path: filler,
            cause,
        }),
    }
}

fn millis((low, high): (u32, u32), random: &mut Random) -> Duration {
    Duration::from_millis(u64::from(random.between(low, high)))
}

/// Writes until nothing more fits.
fn fill(path: &Path) {
    let Ok(mut file) = File::create(path) else { return };
    for size in [1 << 20, 4096, 1] {
        let block = vec![0; size];
        while file.write_all(&block).is_ok() {}
    }
}
