//! The clusters of scenarios: real daemons of the programs beside this one, in a temporary home, which is removed in any case.
//! The scenario itself runs as the job of that cluster.

use super::{
    figures::Findings,
    processes::{self, ClusterProcesses},
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde::{Deserialize, Serialize};
use std::{
    fs, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    sync::atomic::{AtomicU32, Ordering},
};

/// The word with which this program is told that it is the job.
pub const INSIDE: &str = "--inside";
/// No scenario takes longer; one that hangs ends then, and its cluster with it.
const JOB_LIMIT_MINUTES: &str = "60";

/// Why a cluster could not be used.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// A program is not built.
    #[error("{0} is not built: cargo build --release --workspace")]
    NotBuilt(PathBuf),
    /// A file or folder.
    #[error("{operation} {}: {cause}", path.display())]
    File {
        /// What was tried.
        operation: &'static str,
        /// On what.
        path: PathBuf,
        /// Why.
        #[source]
        cause: io::Error,
    },
    /// A program could not be run at all.
    #[error("cannot run {program}: {cause}")]
    Run {
        /// Which.
        program: String,
        /// Why.
        #[source]
        cause: io::Error,
    },
    /// A program failed.
    #[error("{what}: {status}\n{said}")]
    Failed {
        /// Which, with its arguments.
        what: String,
        /// How it ended.
        status: ExitStatus,
        /// What it wrote.
        said: String,
    },
    /// The job said nothing that can be read.
    #[error("the job's findings: {0}")]
    Findings(#[from] serde_json::Error),
    /// The scenario failed inside the job.
    #[error("{0}")]
    Scenario(String),
    /// The cluster's processes did not go.
    #[error("processes were left and had to be killed: {0}")]
    Left(String),
    /// Not on this machine.
    #[error("not on this machine: {0}")]
    Unable(String),
}

/// What a scenario is told when it runs as the job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// Which.
    pub scenario: String,
    /// The cluster's home.
    pub home: PathBuf,
    /// Its commands.
    pub bin: PathBuf,
    /// Number of steps, where it was chosen.
    pub steps: Option<usize>,
    /// So many times fewer, to see that all works.
    pub quick: bool,
}

/// What the job writes back.
pub type Answer = Result<Findings, String>;

/// A cluster that can take a scenario as its job.
pub trait Stage {
    /// Home: everything of the cluster is below it.
    fn home(&self) -> &Path;
    /// The folder with the commands.
    fn bin(&self) -> &Path;
    /// A command of the cluster, run where users are.
    fn command(&self, name: &str) -> Command;
}

/// The programs built beside this one.
pub fn beside(name: &str) -> Result<PathBuf, ClusterError> {
    let me = own_program()?;
    let path = me.with_file_name(name);
    if path.exists() { Ok(path) } else { Err(ClusterError::NotBuilt(path)) }
}

/// This program.
pub fn own_program() -> Result<PathBuf, ClusterError> {
    std::env::current_exe().map_err(|cause| ClusterError::File {
        operation: "find",
        path: PathBuf::from("/proc/self/exe"),
        cause,
    })
}

/// A new folder that only this run uses.
pub fn fresh_home(name: &str) -> Result<PathBuf, ClusterError> {
    static SERIAL: AtomicU32 = AtomicU32::new(0);
    let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
    let home = std::env::temp_dir().join(format!("garrick-{name}-{}-{serial}", std::process::id()));
    let file = |operation| {
        let path = home.clone();
        move |cause| ClusterError::File { operation, path, cause }
    };
    fs::create_dir(&home).map_err(file("create"))?;
    fs::set_permissions(&home, fs::Permissions::from_mode(0o755)).map_err(file("open"))?;
    Ok(home)
}

/// Runs a command; what it writes is shown if it fails.
pub fn run(command: &mut Command) -> Result<String, ClusterError> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output =
        command.stdin(Stdio::null()).output().map_err(|cause| ClusterError::Run { program: program.clone(), cause })?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() {
        return Ok(text(&output.stdout));
    }
    let args: Vec<_> = command.get_args().map(|a| a.to_string_lossy().into_owned()).collect();
    let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
    Err(ClusterError::Failed { what: format!("{program} {}", args.join(" ")), status: output.status, said })
}

/// Without what a cluster around this process may have left in the environment.
pub fn without_cluster(command: &mut Command) -> &mut Command {
    for (name, _) in std::env::vars_os() {
        let name_text = name.to_string_lossy();
        if ["SLURM", "SBATCH_", "SRUN_", "GARRICK_"].iter().any(|p| name_text.starts_with(p)) {
            command.env_remove(&name);
        }
    }
    command
}

/// `garrick up` in a home of its own.
#[derive(Debug)]
pub struct Embedded {
    home: PathBuf,
    bin: PathBuf,
    garrick: PathBuf,
    ended: bool,
}

impl Embedded {
    /// Starts it: so many nodes with so many CPUs each (those of the machine if not said), each its own process.
    pub fn up(nodes: usize, cpus: Option<usize>) -> Result<Self, ClusterError> {
        let garrick = beside("garrick")?;
        beside("noded")?;
        beside("stepd")?;
        let home = fresh_home("bench")?;
        let cluster = Self { bin: home.join("bin"), home, garrick, ended: false };
        let mut up = cluster.garrick();
        up.args(["up", "--nodes", &nodes.to_string()]);
        if let Some(cpus) = cpus {
            // Memory that many small steps find enough, whatever this machine has.
            up.args(["--cpus", &cpus.to_string(), "--memory", &(cpus * 512).to_string()]);
        }
        run(&mut up)?;
        Ok(cluster)
    }

    /// As [`Self::up`], with more lines in `slurm.conf`.
    pub fn up_with(nodes: usize, cpus: usize, lines: &str) -> Result<Self, ClusterError> {
        let cluster = Self::up(nodes, Some(cpus))?;
        run(cluster.garrick().arg("down"))?;
        let path = cluster.home.join("etc/slurm.conf");
        let file = |operation| {
            let path = path.clone();
            move |cause| ClusterError::File { operation, path, cause }
        };
        let text = fs::read_to_string(&path).map_err(file("read"))?;
        // Without its first line the file counts as somebody's own, and is left as it is.
        let own = text.split_once('\n').map_or("", |(_, rest)| rest);
        fs::write(&path, format!("{own}\n{lines}")).map_err(file("write"))?;
        run(cluster.garrick().arg("up"))?;
        Ok(cluster)
    }

    fn garrick(&self) -> Command {
        let mut c = Command::new(&self.garrick);
        without_cluster(&mut c).env("GARRICK_HOME", &self.home);
        c
    }

    /// Ends it and checks that nothing is left.
    pub fn down(mut self) -> Result<(), ClusterError> {
        self.end()
    }

    fn end(&mut self) -> Result<(), ClusterError> {
        if std::mem::replace(&mut self.ended, true) {
            return Ok(());
        }
        let down = run(self.garrick().arg("down")).map(|_| ());
        let left = kill_leftovers(&self.home);
        let removed = remove(&self.home);
        down.and(left).and(removed)
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        if let Err(e) = self.end() {
            eprintln!("garrick-minibatch: {e}");
        }
    }
}

impl Stage for Embedded {
    fn home(&self) -> &Path {
        &self.home
    }
    fn bin(&self) -> &Path {
        &self.bin
    }
    fn command(&self, name: &str) -> Command {
        let mut c = Command::new(self.bin.join(name));
        without_cluster(&mut c).env("GARRICK_HOME", &self.home);
        c
    }
}

/// Takes a folder away.
pub fn remove(home: &Path) -> Result<(), ClusterError> {
    match fs::remove_dir_all(home) {
        Err(cause) if cause.kind() != io::ErrorKind::NotFound => {
            Err(ClusterError::File { operation: "remove", path: home.to_owned(), cause })
        }
        _ => Ok(()),
    }
}

/// Kills what still runs of a cluster that was told to end, and says so.
pub fn kill_leftovers(home: &Path) -> Result<(), ClusterError> {
    let left = ClusterProcesses::of(home);
    let all: Vec<u32> = [left.controllers, left.nodes, left.stepds, left.launchers].concat();
    let named: Vec<String> = processes::running()
        .into_iter()
        .filter(|p| all.contains(&p.pid))
        .map(|p| format!("{} {}", p.pid, p.args.join(" ")))
        .collect();
    for pid in &all {
        // Gone meanwhile is as good.
        let _ = i32::try_from(*pid).map(|pid| kill(Pid::from_raw(pid), Signal::SIGKILL));
    }
    if named.is_empty() { Ok(()) } else { Err(ClusterError::Left(named.join("; "))) }
}

/// Runs a scenario as a job that has the whole cluster, and brings back what it found.
pub fn as_job(stage: &dyn Stage, nodes: usize, mut order: Order) -> Result<Findings, ClusterError> {
    let me = own_program()?;
    order.home = stage.home().to_owned();
    order.bin = stage.bin().to_owned();
    let (log, answer, script) =
        (stage.home().join("scenario.log"), answer_file(stage.home()), stage.home().join("scenario.sh"));
    let text = format!("#!/bin/sh\nexec '{}' {INSIDE} '{}'\n", me.display(), serde_json::to_string(&order)?);
    let file = |operation, path: &Path| {
        let path = path.to_owned();
        move |cause| ClusterError::File { operation, path, cause }
    };
    fs::write(&script, text).map_err(file("write", &script))?;
    let mut sbatch = stage.command("sbatch");
    sbatch.args(["--quiet", "--wait", "--exclusive", "--time", JOB_LIMIT_MINUTES, "--chdir"]).arg(stage.home());
    sbatch.args(["--nodes", &nodes.to_string(), "--output"]).arg(&log).arg(&script);
    let ran = run(&mut sbatch);
    let said = || fs::read_to_string(&log).unwrap_or_default();
    match fs::read(&answer) {
        Ok(bytes) => {
            let answered: Answer = serde_json::from_slice(&bytes)?;
            let findings = answered.map_err(|e| ClusterError::Scenario(format!("{e}\n{}", said())))?;
            ran.map(|_| findings)
        }
        Err(cause) => {
            ran.map_err(|e| ClusterError::Scenario(format!("{e}\n{}", said())))?;
            Err(file("read", &answer)(cause))
        }
    }
}

/// Where the job leaves what it found.
pub fn answer_file(home: &Path) -> PathBuf {
    home.join("findings.json")
}
