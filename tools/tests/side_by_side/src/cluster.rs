//! The cluster of a scenario on one side: its files and daemons. All of it is in namespaces of its own, so that both sides have
//! the same paths, ports and host name, and end with their first process.

use crate::scenario::Cluster;
use serde::{Deserialize, Serialize};
use std::{
    fs, io,
    os::unix::{
        fs::{MetadataExt as _, PermissionsExt as _, chown, symlink},
        process::CommandExt as _,
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

/// Where a side finds its files, inside its namespace.
pub const ROOT: &str = "/mnt";
/// The name of the only host.
pub const HOST: &str = "head";
/// The first job of each cluster: five digits that nothing else begins with.
pub const FIRST_JOB: u32 = 70001;
/// Longest that daemons may take to serve.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks at something that others change.
pub const PAUSE: Duration = Duration::from_millis(20);

/// Which of the two a side is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Garrick.
    Ours,
    /// Slurm.
    Reference,
}

/// Users of a scenario are accounts of Debian's base system: name there, uid, gid.
#[must_use]
pub fn account(user: &str) -> Option<(&'static str, u32, u32)> {
    Some(match user {
        "root" => ("root", 0, 0),
        "slurm" => ("daemon", 1, 1),
        "alice" => ("games", 5, 60),
        "bob" => ("news", 9, 9),
        _ => return None,
    })
}

/// Slurm's commands, as far as an installation may have them.
const COMMANDS: [&str; 20] = [
    "sacct", "sacctmgr", "salloc", "sattach", "sbatch", "sbcast", "scancel", "scontrol", "scrontab", "sdiag",
    "sgather", "sinfo", "sprio", "squeue", "sreport", "srun", "sshare", "sstat", "strigger", "swait",
];
/// What scenarios and scripts use besides.
const TOOLS: [&str; 40] = [
    "awk", "base64", "bash", "basename", "cat", "chmod", "cp", "cut", "date", "dirname", "echo", "env", "expr",
    "false", "grep", "head", "hostname", "id", "kill", "ls", "mkdir", "mkfifo", "nproc", "printenv", "printf", "ps",
    "pwd", "rm", "script", "sed", "seq", "sh", "sleep", "sort", "tail", "test", "timeout", "tr", "true", "wc",
];

/// Where a folder of built programs is found, which other users may not be let into otherwise.
const BUILT: &str = "/mnt/built";

/// Whether this is a folder in which Garrick was built, rather than a prefix.
#[must_use]
pub fn is_built(prefix: &Path) -> bool {
    prefix.join("garrick").is_file()
}

/// Makes a prefix of a folder of built programs: links to what is in [`BUILT`]. Returns the prefix.
///
/// # Errors
///
/// The folder cannot be mounted there, or a link cannot be made.
pub fn prefix_of_built(built: &Path) -> io::Result<PathBuf> {
    fs::create_dir_all(BUILT)?;
    let done = Command::new("mount").arg("--bind").args([built, Path::new(BUILT)]).status()?;
    if !done.success() {
        return Err(io::Error::other(format!("cannot mount {}", built.display())));
    }
    let prefix = Path::new(ROOT).join("prefix");
    for (folder, name, program) in GARRICK {
        fs::create_dir_all(prefix.join(folder))?;
        symlink(Path::new(BUILT).join(program), prefix.join(folder).join(name))?;
    }
    Ok(prefix)
}

/// What `garrick install` installs: folder, name, program.
const GARRICK: [(&str, &str, &str); 23] = [
    ("bin", "sacct", "garrick"),
    ("bin", "sacctmgr", "garrick"),
    ("bin", "salloc", "garrick"),
    ("bin", "sattach", "garrick"),
    ("bin", "sbatch", "garrick"),
    ("bin", "sbcast", "garrick"),
    ("bin", "scancel", "garrick"),
    ("bin", "scontrol", "garrick"),
    ("bin", "scrontab", "garrick"),
    ("bin", "sgather", "garrick"),
    ("bin", "sdiag", "garrick"),
    ("bin", "sinfo", "garrick"),
    ("bin", "sprio", "garrick"),
    ("bin", "squeue", "garrick"),
    ("bin", "sreport", "garrick"),
    ("bin", "srun", "srun"),
    ("bin", "sshare", "garrick"),
    ("bin", "sstat", "garrick"),
    ("bin", "strigger", "garrick"),
    ("bin", "swait", "garrick"),
    ("sbin", "slurmctld", "noded"),
    ("sbin", "slurmd", "noded"),
    ("sbin", "stepd", "stepd"),
];

/// Lays down the files of a cluster in [`ROOT`], and the programs of an installation in `bin` there.
///
/// # Errors
///
/// A file cannot be written.
pub fn lay_down(cluster: &Cluster, kind: Kind, prefix: &Path) -> io::Result<()> {
    let root = Path::new(ROOT);
    for folder in ["bin", "case", "etc", "log", "run", "state"] {
        fs::create_dir_all(root.join(folder))?;
    }
    let (_, uid, gid) = account("slurm").unwrap_or_default();
    for folder in ["log", "run", "state"] {
        chown(root.join(folder), Some(uid), Some(gid))?;
    }
    fs::set_permissions(root, fs::Permissions::from_mode(0o755))?;
    for name in COMMANDS {
        let program = prefix.join("bin").join(name);
        if program.exists() {
            symlink(program, root.join("bin").join(name))?;
        }
    }
    for name in TOOLS {
        let found = ["/bin", "/usr/bin"].iter().map(|folder| Path::new(folder).join(name)).find(|path| path.exists());
        if let Some(program) = found {
            symlink(program, root.join("bin").join(name))?;
        }
    }
    fs::write(root.join("etc/slurm.conf"), slurm_conf(cluster, kind))?;
    for (name, text) in &cluster.files {
        let path = root.join("etc").join(name);
        fs::write(&path, text)?;
        if text.starts_with("#!") {
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        }
    }
    fs::write(root.join("etc/hosts"), format!("127.0.0.1 localhost {HOST}\n"))?;
    fs::write(root.join("etc/munge.key"), [7; 128])?;
    fs::set_permissions(root.join("etc/munge.key"), fs::Permissions::from_mode(0o600))
}

/// The text of `slurm.conf`.
fn slurm_conf(cluster: &Cluster, kind: Kind) -> String {
    let (slurm, ..) = account("slurm").unwrap_or_default();
    let mut text = format!(
        "ClusterName=site\nSlurmctldHost={HOST}(127.0.0.1)\nSlurmctldPort=6817\nSlurmUser={slurm}\n\
         StateSaveLocation={ROOT}/state\nSlurmdSpoolDir={ROOT}/spool-%n\n\
         SlurmctldPidFile={ROOT}/run/slurmctld.pid\nSlurmdPidFile={ROOT}/run/slurmd-%n.pid\n\
         SlurmctldLogFile={ROOT}/log/slurmctld.log\nSlurmdLogFile={ROOT}/log/slurmd-%n.log\n\
         SelectType=select/cons_tres\nSelectTypeParameters=CR_CPU\nSlurmdParameters=config_overrides\n\
         ReturnToService=2\nFirstJobId={FIRST_JOB}\nKillWait=2\nMpiDefault=none\n"
    );
    if kind == Kind::Reference {
        text.push_str(
            "AuthType=auth/munge\nCredType=cred/munge\nAuthInfo=socket=/run/munge.sock\n\
             ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nJobAcctGatherType=jobacct_gather/none\n",
        );
        if !cluster.conf.contains("SchedulerParameters=") {
            text.push_str("SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,bf_interval=1\n");
        }
    }
    text.push_str(&cluster.conf);
    text.push('\n');
    for node in 1..=cluster.nodes {
        let port = 17000 + node;
        text.push_str(&format!(
            "NodeName=n{node} NodeAddr=127.0.0.1 NodeHostname={HOST} Port={port} {}\n",
            cluster.node
        ));
    }
    text.push_str(&cluster.partitions);
    text.push('\n');
    text
}

/// The environment that every command and daemon starts with.
pub fn plain(command: &mut Command) {
    command.env_clear().env("PATH", format!("{ROOT}/bin")).env("SLURM_CONF", format!("{ROOT}/etc/slurm.conf"));
    command.env("TZ", "UTC").env("LANG", "C").env("SHELL", "/bin/bash");
}

/// Starts the daemons, and waits until all nodes are idle.
///
/// # Errors
///
/// One does not start, or does not serve in time. The text says which, with the ends of the logs.
pub fn start(cluster: &Cluster, kind: Kind, prefix: &Path) -> io::Result<()> {
    if kind == Kind::Reference {
        let mut munged = Command::new("munged");
        munged.args(["--force", "--key-file=/mnt/etc/munge.key", "--socket=/run/munge.sock"]);
        munged.args(["--pid-file=/run/munged.pid", "--log-file=/mnt/log/munged.log", "--seed-file=/run/munged.seed"]);
        daemon(munged.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"))?;
    }
    if cluster.down {
        return Ok(());
    }
    let conf = format!("{ROOT}/etc/slurm.conf");
    let sbin = prefix.join("sbin");
    let mut controller = Command::new(sbin.join("slurmctld"));
    plain(&mut controller);
    if kind == Kind::Reference {
        let (_, uid, gid) = account("slurm").unwrap_or_default();
        controller.uid(uid).gid(gid);
    }
    daemon(controller.args(["-f", &conf]))?;
    for node in 1..=cluster.nodes {
        fs::create_dir_all(format!("{ROOT}/spool-n{node}"))?;
        let mut slurmd = Command::new(sbin.join("slurmd"));
        plain(&mut slurmd);
        daemon(slurmd.args(["-f", &conf, "-N", &format!("n{node}")]))?;
    }
    let began = Instant::now();
    loop {
        let mut sinfo = Command::new(format!("{ROOT}/bin/sinfo"));
        plain(&mut sinfo);
        let told = sinfo.args(["-h", "-N", "-o", "%N %t"]).stdin(Stdio::null()).output()?;
        let text = String::from_utf8_lossy(&told.stdout);
        let mut idle: Vec<&str> = text.lines().filter_map(|line| line.strip_suffix(" idle")).collect();
        idle.sort_unstable();
        idle.dedup();
        if idle.len() == cluster.nodes as usize {
            return Ok(());
        }
        if began.elapsed() > PATIENCE {
            return Err(io::Error::other(format!("the nodes are not idle: {text}\n{}", logs())));
        }
        std::thread::sleep(PAUSE);
    }
}

/// Runs a daemon, which goes to the background when it serves.
fn daemon(command: &mut Command) -> io::Result<()> {
    let told = PathBuf::from(format!("{ROOT}/log/started"));
    let file = fs::File::create(&told)?;
    command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
    let status = command.status().map_err(|e| io::Error::other(format!("{command:?}: {e}")))?;
    if status.success() {
        return Ok(());
    }
    let text = fs::read_to_string(told).unwrap_or_default();
    Err(io::Error::other(format!("{command:?}: {status}: {text}\n{}", logs())))
}

/// The ends of the daemons' logs.
#[must_use]
pub fn logs() -> String {
    let read = |entry: fs::DirEntry| {
        let text = fs::read_to_string(entry.path()).unwrap_or_default();
        let lines: Vec<&str> = text.lines().rev().take(20).collect();
        format!("== {}\n{}\n", entry.path().display(), lines.into_iter().rev().collect::<Vec<_>>().join("\n"))
    };
    fs::read_dir(Path::new(ROOT).join("log")).into_iter().flatten().flatten().map(read).collect()
}

/// The version of Slurm in a prefix, such as `22.05`; `None` where there is none.
#[must_use]
pub fn version(prefix: &Path) -> Option<String> {
    let told = Command::new(prefix.join("sbin/slurmctld")).arg("-V").env_clear().output().ok()?;
    let text = String::from_utf8(told.stdout).ok()?;
    let words: Vec<&str> = text.split_whitespace().nth(1)?.split('.').collect();
    Some(format!("{}.{}", words.first()?, words.get(1)?))
}

/// Whether this user may make namespaces.
#[must_use]
pub fn is_possible() -> bool {
    fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
        && Command::new("unshare")
            .args(["--pid", "--fork", "--mount-proc", "--net", "--mount", "--uts", "true"])
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
}
