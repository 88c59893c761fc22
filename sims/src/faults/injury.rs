//! What is done to the cluster: which fault, to which process, when it is undone; and the record of it, which later decides which
//! deviations it explains.

use super::{
    population::{self, Member, Role},
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
    /// Of the service of accounting.
    KillService,
    /// Of its database's server.
    KillDatabase,
    /// A process is stopped for some seconds.
    Stop,
    /// A host's cable is pulled for some seconds.
    Cut,
    /// A disk is full for some seconds.
    FillDisk,
}

/// Several faults that are aimed together at one run with steps over several nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Compound {
    /// One of its step daemons is stopped, and another killed meanwhile.
    StoppedAndKilled,
    /// One is killed, and the next one in its place some seconds later.
    KilledAgain,
    /// The same half a minute later, when a third death would still count.
    KilledAgainLate,
    /// One is away, killed or stopped, and a daemon is killed: that of its node, of another one, or the controller.
    DaemonWhileAway,
}

/// How often each, in a thousand. Where nothing lasts half a minute, the late one is one of some seconds.
const COMPOUND_WEIGHTS: [(Compound, u32); 4] = [
    (Compound::StoppedAndKilled, 350),
    (Compound::KilledAgain, 200),
    (Compound::KilledAgainLate, 150),
    (Compound::DaemonWhileAway, 300),
];
/// So many of a thousand faults are compound ones, and where these lag behind: often there is no run that they could be aimed at.
const COMPOUND: u32 = 180;
const COMPOUND_LAGGING: u32 = 600;
/// A step daemon is stopped for so long while something else happens, milliseconds.
const STOP_MEANWHILE_MS: (u32, u32) = (2_000, 9_000);
/// What happens while one is stopped, so much later.
const MEANWHILE_MS: (u32, u32) = (50, 1_800);
/// The second kill of the same one.
const AGAIN_MS: (u32, u32) = (1_000, 8_000);
/// And where it comes late.
const AGAIN_LATE_MS: (u32, u32) = (25_000, 32_000);

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
        drawn(&WEIGHTS, random).unwrap_or(Self::KillStepd)
    }
}

/// One of these, as often as its weight says.
pub(super) fn drawn<T: Copy>(weights: &[(T, u32)], random: &mut Random) -> Option<T> {
    let total: u32 = weights.iter().map(|(_, w)| w).sum();
    let mut at = random.between(0, total.saturating_sub(1));
    for (what, weight) in weights {
        if at < *weight {
            return Some(*what);
        }
        at -= weight;
    }
    None
}

impl fmt::Display for Compound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::StoppedAndKilled => "one stepd stopped, another killed",
            Self::KilledAgain => "stepd killed again after seconds",
            Self::KilledAgainLate => "stepd killed again after half a minute",
            Self::DaemonWhileAway => "daemon killed while a stepd was away",
        })
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
            Self::KillService => "slurmdbd killed",
            Self::KillDatabase => "database server killed",
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
    /// Compound ones that were carried through; their parts are in `done` too.
    pub compound: BTreeMap<Compound, u32>,
    /// By the last digits of the run's identity.
    pub runs: BTreeMap<String, RunFaults>,
}

impl Book {
    /// Kills.
    pub fn kills(&self) -> u32 {
        self.done.iter().filter(|(f, _)| f.is_kill()).map(|(_, n)| n).sum()
    }

    /// Compound faults.
    pub fn compounds(&self) -> u32 {
        self.compound.values().sum()
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

/// What there is of compound faults.
#[derive(Clone, Copy, Debug)]
pub struct CompoundState {
    /// They lag behind kills.
    pub lag: bool,
    /// There are jobs that last half a minute.
    pub late: bool,
}

/// The second part of a compound fault.
#[derive(Clone, Debug)]
enum Second {
    /// Kill the step daemon of a run on a node.
    Stepd { run: String, node: String },
    /// Kill the daemon on a host.
    Daemon(usize),
}

/// The one who does it.
#[derive(Debug)]
pub struct Injurer {
    /// The book.
    pub book: Book,
    key: String,
    /// The program of every step.
    step: PathBuf,
    undo: Vec<(Instant, Undo)>,
    seconds: Vec<(Instant, Compound, Second)>,
    log: File,
    began: Instant,
}

impl Injurer {
    /// Keeps a log of what it does.
    pub fn new(site: &Site, key: String, step: PathBuf) -> Result<Self, ClusterError> {
        let log = super::site::append(&site.home.join("faults.log"))?;
        let (undo, seconds) = (Vec::new(), Vec::new());
        Ok(Self { book: Book::default(), key, step, undo, seconds, log, began: Instant::now() })
    }

    fn note(&mut self, fault: Fault, what: &str) {
        *self.book.done.entry(fault).or_default() += 1;
        // For people only.
        let _ = writeln!(self.log, "{:9.3} {fault}: {what}", self.began.elapsed().as_secs_f64());
    }

    /// One fault, or a compound one, which is more likely where they lag.
    pub fn strike(
        &mut self,
        site: &mut Site,
        submissions: &[u32],
        CompoundState { lag, late }: CompoundState,
        random: &mut Random,
    ) -> Result<Option<u32>, ClusterError> {
        if !random.one_in_thousand(if lag { COMPOUND_LAGGING } else { COMPOUND }) {
            return self.strike_once(site, submissions, random);
        }
        match drawn(&COMPOUND_WEIGHTS, random) {
            Some(Compound::KilledAgainLate) if !late => self.strike_at_run(Compound::KilledAgain, site, random),
            Some(compound) => self.strike_at_run(compound, site, random),
            None => {}
        }
        Ok(None)
    }

    /// The first part of a compound fault; the second follows in its time.
    fn strike_at_run(&mut self, compound: Compound, site: &mut Site, random: &mut Random) {
        let mut runs = population::over_several_nodes(&site.home, &self.key);
        if compound == Compound::KilledAgainLate {
            let lasting = population::with_lasting_steps(&self.step);
            runs.retain(|members| members[0].run.as_ref().is_some_and(|run| lasting.contains(run)));
        }
        let Some(members) = random.pick(&runs) else { return };
        let Some(first) = random.pick(members) else { return };
        let now = Instant::now();
        let (Some(run), Some(node)) = (first.run.clone(), first.node.clone()) else { return };
        let others: Vec<&Member> = members.iter().filter(|m| m.node != first.node).collect();
        let Some(other) = random.pick(&others).and_then(|m| m.node.clone()) else { return };
        let (at, second) = match compound {
            Compound::StoppedAndKilled => {
                if !self.stop(first.pid, STOP_MEANWHILE_MS, random) {
                    return;
                }
                (now + millis(MEANWHILE_MS, random), Second::Stepd { run, node: other })
            }
            Compound::KilledAgain | Compound::KilledAgainLate => {
                if !self.kill_one(first) {
                    return;
                }
                let late = compound == Compound::KilledAgainLate;
                let after = millis(if late { AGAIN_LATE_MS } else { AGAIN_MS }, random);
                (now + after, Second::Stepd { run, node })
            }
            Compound::DaemonWhileAway => {
                let name = match random.between(0, 3) {
                    0 | 1 => node,
                    2 => other,
                    _ => site.hosts[0].name.clone(),
                };
                let Some(host) = site.hosts.iter().position(|host| host.name == name) else { return };
                // One that was killed is there again within moments.
                let stopped = random.one_in_thousand(500);
                let away = if stopped { self.stop(first.pid, STOP_MEANWHILE_MS, random) } else { self.kill_one(first) };
                if !away {
                    return;
                }
                let after = if stopped { millis(MEANWHILE_MS, random) } else { Duration::ZERO };
                (now + after, Second::Daemon(host))
            }
        };
        self.seconds.push((at, compound, second));
    }

    /// The second parts that are due. One whose victim is gone makes no compound fault.
    pub fn go_on(&mut self, site: &mut Site, now: Instant) {
        let (due, later) = std::mem::take(&mut self.seconds).into_iter().partition(|(at, ..)| *at <= now);
        self.seconds = later;
        let due: Vec<(Instant, Compound, Second)> = due;
        for (_, compound, second) in due {
            let done = match second {
                Second::Stepd { run, node } => {
                    let is_meant = |m: &Member| {
                        m.role == Role::Stepd && m.run.as_ref() == Some(&run) && m.node.as_ref() == Some(&node)
                    };
                    let all = population::of_runs(&site.home, &self.key);
                    all.iter().find(|m| is_meant(m)).is_some_and(|m| self.kill_one(m))
                }
                Second::Daemon(host) => {
                    let fault = if host == 0 { Fault::KillController } else { Fault::KillNoded };
                    self.kill_daemon(fault, host, site)
                }
            };
            if done {
                *self.book.compound.entry(compound).or_default() += 1;
                // For people only.
                let _ = writeln!(self.log, "{:9.3} that was: {compound}", self.began.elapsed().as_secs_f64());
            }
        }
    }

    /// One fault. `submissions` are the processes of `sbatch` under way; the one that is hit is given back. Nothing happens
    /// where there is no victim of the kind that was drawn.
    fn strike_once(
        &mut self,
        site: &mut Site,
        submissions: &[u32],
        random: &mut Random,
    ) -> Result<Option<u32>, ClusterError> {
        let fault = Fault::draw(random);
        let now = Instant::now();
        match fault {
            Fault::KillController | Fault::KillStepd | Fault::KillService | Fault::KillDatabase => {
                self.kill(fault, site, random);
            }
            Fault::KillNoded => {
                let last = u32::try_from(site.daemons.len()).unwrap_or(1) - 1;
                self.kill_daemon(fault, random.between(1, last) as usize, site);
            }
            Fault::KillLauncher => self.kill_member(Role::Launcher, site, random),
            Fault::KillCommand => self.kill_member(Role::Command, site, random),
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
                self.stop(pid, STOP_MS, random);
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

    /// A kill of a daemon that keeps records, where there is one.
    pub fn kill(&mut self, fault: Fault, site: &mut Site, random: &mut Random) {
        match fault {
            Fault::KillController => {
                self.kill_daemon(fault, 0, site);
            }
            Fault::KillStepd => self.kill_member(Role::Stepd, site, random),
            Fault::KillService => {
                if let Some(pid) = site.kill_service() {
                    self.note(fault, &pid.to_string());
                }
            }
            Fault::KillDatabase if site.kill_server(random) => self.note(fault, ""),
            _ => {}
        }
    }

    /// Stops a process for a while.
    fn stop(&mut self, pid: u32, length: (u32, u32), random: &mut Random) -> bool {
        let called = population::called(pid);
        let stopped = population::signal(pid, Signal::SIGSTOP);
        if stopped {
            let length = millis(length, random);
            self.undo.push((Instant::now() + length, Undo::Resume(pid)));
            self.note(Fault::Stop, &format!("{length:?} {called}"));
        }
        stopped
    }

    fn kill_daemon(&mut self, fault: Fault, at: usize, site: &mut Site) -> bool {
        let Some(daemon) = site.daemons.get_mut(at) else { return false };
        let Some(pid) = daemon.pid() else { return false };
        daemon.kill();
        self.note(fault, &format!("{} {pid}", site.hosts[at].name));
        true
    }

    fn kill_member(&mut self, role: Role, site: &Site, random: &mut Random) {
        let all = population::of_runs(&site.home, &self.key);
        let victims: Vec<_> = all.into_iter().filter(|m| m.role == role && m.run.is_some()).collect();
        if let Some(victim) = random.pick(&victims) {
            self.kill_one(victim);
        }
    }

    fn kill_one(&mut self, victim: &Member) -> bool {
        let called = population::called(victim.pid);
        if !population::signal(victim.pid, Signal::SIGKILL) {
            return false;
        }
        let run = self.book.runs.entry(victim.run.clone().unwrap_or_default()).or_default();
        let fault = match victim.role {
            Role::Stepd => {
                run.stepds += 1;
                Fault::KillStepd
            }
            Role::Launcher => {
                run.launchers += 1;
                Fault::KillLauncher
            }
            _ => {
                run.commands += 1;
                Fault::KillCommand
            }
        };
        self.note(fault, &format!("{} {called}", victim.pid));
        true
    }

    /// Undoes what is due.
    pub fn undo_due(&mut self, site: &Site, now: Instant) -> Result<(), ClusterError> {
        let (due, later) = std::mem::take(&mut self.undo).into_iter().partition(|(at, _)| *at <= now);
        self.undo = later;
        let due: Vec<(Instant, Undo)> = due;
        due.into_iter().try_for_each(|(_, undo)| undone(undo, site))
    }

    /// Undoes everything, and begins nothing more.
    pub fn undo_all(&mut self, site: &Site) -> Result<(), ClusterError> {
        self.seconds.clear();
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
