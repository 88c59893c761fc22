//! Real clusters for tests: the built binaries, real processes, one temporary home each. Dropping a cluster ends it and
//! checks that no process of it is left.

#![allow(dead_code, clippy::unwrap_used, missing_docs)]

pub mod network;

use std::{
    ffi::OsStr,
    os::unix::{fs::symlink, process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

/// Longest a condition may take to become true before a test fails; generous, since machines may be busy.
const PATIENCE: Duration = Duration::from_secs(90);
static SERIAL: AtomicU32 = AtomicU32::new(0);

/// What a command answered.
#[derive(Debug, Clone)]
pub struct Answer {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Answer {
    /// The answer, which must have been exit code 0.
    #[track_caller]
    pub fn ok(self) -> Self {
        assert_eq!(self.code, 0, "stdout: {}\nstderr: {}", self.out, self.err);
        self
    }
    /// The number in `Submitted batch job N`.
    #[track_caller]
    pub fn job(&self) -> String {
        let word = self.out.split_whitespace().last().unwrap_or_default().to_owned();
        assert!(word.parse::<u32>().is_ok(), "no job id in {self:?}");
        word
    }
}

/// The files of an installation. Other commands are names of `garrick`, other daemons of `noded`.
pub const PROGRAMS: [&str; 5] = ["garrick", "garrick-planning", "srun", "noded", "stepd"];

/// Folder with the built binaries.
pub fn built() -> PathBuf {
    let dir = Path::new(env!("CARGO_BIN_EXE_noded")).parent().unwrap().to_owned();
    for program in PROGRAMS {
        assert!(dir.join(program).exists(), "{} lacks {program}: build the whole workspace first", dir.display());
    }
    dir
}

/// A copy of a program, as to be where others may execute it. Another process writes it: what this one has open for writing, the
/// command that another test starts in that moment has too, until it executes, and the copy is "busy".
#[track_caller]
pub fn copy_program(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("--preserve=mode").args([from, to]).status().unwrap();
    assert!(copied.success(), "cp {} {}", from.display(), to.display());
}

/// Does a process that was killed hold nothing any more? Its first thread may be dead while others, which die with it, still have the
/// files: their number is the 18th behind the name, which may have anything in it (proc_pid_stat(5)).
pub fn is_dead(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_none_or(|(_, rest)| {
        let threads = rest.split(' ').nth(17).and_then(|count| count.parse::<u32>().ok()).unwrap_or(0);
        rest.starts_with(['Z', 'X']) && threads <= 1
    })
}

/// Ports that nobody uses now, and that the kernel gives to nobody unasked: a daemon that comes back has them.
pub fn free_ports(count: usize) -> Vec<u16> {
    use std::hash::{BuildHasher, RandomState};
    let mut held = Vec::new();
    while held.len() < count {
        let port = 10_240 + u16::try_from(RandomState::new().hash_one(0) % 22_000).unwrap();
        let socket = std::net::UdpSocket::bind(("127.0.0.1", port)).ok();
        // HTTP has the TCP port of the controller's number.
        held.extend(socket.zip(std::net::TcpListener::bind(("127.0.0.1", port)).ok()));
    }
    held.iter().map(|(socket, _)| socket.local_addr().unwrap().port()).collect()
}

pub fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// A fresh folder that every user may enter.
pub fn scratch(name: &str) -> PathBuf {
    let n = SERIAL.fetch_add(1, Ordering::Relaxed);
    let dir = std::env::temp_dir().join(format!("gt-{name}-{}-{n}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).unwrap();
    open_to_all(&dir);
    dir
}

pub fn open_to_all(dir: &Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o1777)).unwrap();
}

/// A cluster of the embedded kind.
pub struct Cluster {
    pub home: PathBuf,
    pub work: PathBuf,
}

impl Cluster {
    /// `garrick up ARGS` in a fresh home.
    pub fn up(name: &str, args: &[&str]) -> Self {
        Self::up_from(scratch(name), &built(), args)
    }

    /// The same with the programs of a folder, in a fresh one to work in.
    pub fn up_from(work: PathBuf, programs: &Path, args: &[&str]) -> Self {
        let home = work.join("home");
        std::fs::create_dir_all(work.join("bin")).unwrap();
        for command in [
            "garrick", "sbatch", "srun", "salloc", "squeue", "sinfo", "sprio", "scancel", "scontrol", "swait", "stail",
            "sbcast", "sgather", "scrontab", "sstat", "strigger", "sacct", "sacctmgr", "seff", "sreport", "sshare",
        ] {
            let program = if PROGRAMS.contains(&command) { command } else { "garrick" };
            symlink(programs.join(program), work.join("bin").join(command)).unwrap();
        }
        let cluster = Self { home, work };
        let mut all = vec!["up"];
        all.extend(args);
        cluster.run("garrick", &all).ok();
        cluster
    }

    /// As `up`, with more lines in `slurm.conf`.
    pub fn up_with(name: &str, args: &[&str], lines: impl FnOnce(&Self) -> String) -> Self {
        Self::up_changed(name, args, |cluster, own| format!("{own}\n{}\n", lines(cluster)))
    }

    /// As `up`, with `slurm.conf` as it comes back.
    pub fn up_changed(name: &str, args: &[&str], change: impl FnOnce(&Self, &str) -> String) -> Self {
        let cluster = Self::up(name, args);
        cluster.sh("garrick down").ok();
        let path = cluster.conf_folder().join("slurm.conf");
        let text = std::fs::read_to_string(&path).unwrap();
        // Without its first line the file is the test's own.
        let own = text.split_once('\n').unwrap().1;
        std::fs::write(&path, change(&cluster, own)).unwrap();
        cluster.sh("garrick up").ok();
        cluster
    }

    /// The folder of `slurm.conf`.
    pub fn conf_folder(&self) -> PathBuf {
        let plain = self.home.join("slurm.conf").exists();
        if plain { self.home.clone() } else { self.home.join("etc") }
    }

    /// Kills a process, and waits until it holds nothing any more: who takes its place finds its locks free.
    #[track_caller]
    pub fn kill(&self, pid: i32) {
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL).unwrap();
        self.await_dead(pid);
    }

    /// Waits until a process that was killed holds nothing any more.
    #[track_caller]
    pub fn await_dead(&self, pid: i32) {
        self.await_that("it is dead", || is_dead(pid));
    }

    /// Kills a node's daemon and all that runs there of a job, at once: to the others that is a machine that died.
    pub fn kill_node(&self, node: &str, job: &str) {
        let mut doomed = vec![self.pid_of("node", Some(node))];
        doomed.extend(self.stepd_of(job, node));
        let mut at = 1;
        while at < doomed.len() {
            doomed.extend(children_of(doomed[at]));
            at += 1;
        }
        for pid in doomed {
            // Those that are gone with their parents are as good.
            let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL);
        }
    }

    pub fn command(&self, name: &str) -> Command {
        self.command_at(&self.work.join("bin").join(name))
    }

    /// The same as another user: by a copy, since the folder in which it was built may be closed to others. So are the commands that
    /// it starts, and those of jobs that it submits.
    pub fn command_as(&self, uid: u32, name: &str) -> Command {
        let (program, bin) = (self.work.join("garrick-of-others"), self.work.join("bin-of-others"));
        if !program.exists() {
            std::fs::create_dir(&bin).unwrap();
            for command in std::fs::read_dir(self.work.join("bin")).unwrap() {
                symlink(&program, bin.join(command.unwrap().file_name())).unwrap();
            }
            copy_program(&built().join("garrick"), &program);
        }
        let mut c = self.command_at(&program);
        c.env("PATH", format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default()));
        c.arg0(name).uid(uid).gid(uid);
        c
    }

    fn command_at(&self, program: &Path) -> Command {
        let mut c = Command::new(program);
        let path = format!("{}:{}", self.work.join("bin").display(), std::env::var("PATH").unwrap_or_default());
        for (k, _) in std::env::vars() {
            if k.starts_with("SLURM_") || k.starts_with("SBATCH_") || k.starts_with("GARRICK_") {
                c.env_remove(k);
            }
        }
        c.env("GARRICK_HOME", &self.home)
            .env("PATH", path)
            .env("TZ", "UTC")
            .current_dir(&self.work)
            .stdin(Stdio::null());
        garrick_testing::interrupts::interruptible(&mut c);
        c
    }

    pub fn run<S: AsRef<OsStr>>(&self, name: &str, args: &[S]) -> Answer {
        answer(self.command(name).args(args))
    }

    /// `name args...` from one line, split at blanks.
    pub fn sh(&self, line: &str) -> Answer {
        let mut words = line.split_whitespace();
        let name = words.next().unwrap();
        self.run(name, &words.collect::<Vec<_>>())
    }

    /// A line for a real shell.
    pub fn shell(&self, line: &str) -> Answer {
        let mut c = self.command("garrick");
        let envs: Vec<_> = c.get_envs().map(|(k, v)| (k.to_owned(), v.map(ToOwned::to_owned))).collect();
        c = Command::new("/bin/bash");
        for (k, v) in envs {
            match v {
                Some(v) => c.env(k, v),
                None => c.env_remove(k),
            };
        }
        garrick_testing::interrupts::interruptible(&mut c);
        answer(c.arg("-c").arg(line).current_dir(&self.work).stdin(Stdio::null()))
    }

    /// Another process writes it, for the reason that [`copy_program`] has.
    pub fn script(&self, name: &str, text: &str) -> PathBuf {
        let path = self.work.join(name);
        let write = "printf %s \"$1\" > \"$0\" && chmod 755 \"$0\"";
        let written = Command::new("/bin/sh").args(["-c", write]).arg(&path).arg(text).status().unwrap();
        assert!(written.success(), "{}", path.display());
        path
    }

    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.work.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
    }

    /// A pipe in the file system: a reader waits for a writer, so tests need not guess when something happens.
    pub fn fifo(&self, name: &str) -> PathBuf {
        let path = self.work.join(name);
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::from_bits_truncate(0o666)).unwrap();
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
        path
    }

    /// `field` of `scontrol -o show job ID`.
    pub fn job_field(&self, job: &str, field: &str) -> Option<String> {
        let a = self.run("scontrol", &["-d", "-o", "show", "job", job]);
        field_of(&a.out, field)
    }

    /// Waits until a job's state is `state`; the test fails when that takes unreasonably long.
    #[track_caller]
    pub fn await_state(&self, job: &str, state: &str) {
        self.await_that(&format!("job {job} is {state}"), || self.job_field(job, "JobState").as_deref() == Some(state));
    }

    /// Asks again and again until it holds.
    #[track_caller]
    pub fn await_that(&self, what: &str, mut holds: impl FnMut() -> bool) {
        let began = Instant::now();
        while !holds() {
            assert!(
                began.elapsed() < PATIENCE,
                "still waiting for: {what}\n{}\n{}",
                self.sh("squeue -t all").out,
                self.logs()
            );
            std::thread::yield_now();
        }
    }

    /// The daemons' logs, for messages of failed tests.
    pub fn logs(&self) -> String {
        let mut all = String::new();
        for dir in [self.home.join("log"), self.home.clone()] {
            for e in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
                if e.path().extension().is_some_and(|x| x == "log") {
                    let text = std::fs::read_to_string(e.path()).unwrap_or_default();
                    let tail: Vec<_> = text.lines().rev().take(40).collect();
                    all.push_str(&format!("== {}\n", e.path().display()));
                    for l in tail.iter().rev() {
                        all.push_str(l);
                        all.push('\n');
                    }
                }
            }
        }
        all
    }

    /// `(role, name, pid)` of the running processes.
    pub fn processes(&self) -> Vec<(String, String, i32)> {
        let a = self.sh("garrick status --json").ok();
        let v: serde_json::Value = serde_json::from_str(&a.out).unwrap();
        v.as_array()
            .unwrap()
            .iter()
            .map(|p| {
                (
                    p["role"].as_str().unwrap().to_owned(),
                    p["name"].as_str().unwrap().to_owned(),
                    i32::try_from(p["pid"].as_i64().unwrap()).unwrap(),
                )
            })
            .collect()
    }

    /// The `stepd` of a job on a node, if there is one.
    pub fn stepd_of(&self, job: &str, node: &str) -> Option<i32> {
        let name = format!("{job}/{node}");
        self.processes().into_iter().find(|(role, n, _)| role == "stepd" && *n == name).map(|p| p.2)
    }

    #[track_caller]
    pub fn pid_of(&self, role: &str, name: Option<&str>) -> i32 {
        let all = self.processes();
        all.iter()
            .find(|(r, n, _)| r == role && name.is_none_or(|want| want == n))
            .unwrap_or_else(|| panic!("no {role} {name:?} among {all:?}"))
            .2
    }

    /// Processes whose environment or command line names this cluster's home.
    pub fn left_over(&self) -> Vec<String> {
        let needle = self.home.to_string_lossy().into_owned();
        let mut found = Vec::new();
        for e in std::fs::read_dir("/proc").unwrap().flatten() {
            let Ok(pid) = e.file_name().to_string_lossy().parse::<u32>() else { continue };
            if pid == std::process::id() {
                continue;
            }
            let read = |f: &str| {
                std::fs::read(e.path().join(f)).map(|b| String::from_utf8_lossy(&b).into_owned()).unwrap_or_default()
            };
            if read("cmdline").contains(&needle) || read("environ").contains(&needle) {
                found.push(format!("{pid} {}", read("cmdline").replace('\0', " ")));
            }
        }
        found
    }

    /// Ends the cluster and checks that nothing stays.
    pub fn down(self) {
        drop(self);
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let a = self.sh("garrick down");
        if std::thread::panicking() {
            eprintln!("{}", self.logs());
            return;
        }
        assert_eq!(a.code, 0, "garrick down: {a:?}");
        assert_eq!(self.left_over(), Vec::<String>::new(), "processes left after garrick down");
        let _ = std::fs::remove_dir_all(&self.work);
    }
}

/// Processes whose parent is `pid`.
pub fn children_of(pid: i32) -> Vec<i32> {
    let mut found = Vec::new();
    for e in std::fs::read_dir("/proc").unwrap().flatten() {
        let stat = std::fs::read_to_string(e.path().join("stat")).unwrap_or_default();
        let parent = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1)?.parse::<i32>().ok());
        if parent == Some(pid) {
            found.extend(e.file_name().to_string_lossy().parse::<i32>().ok());
        }
    }
    found
}

/// All processes.
pub fn pids() -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(|entry| entry.file_name().to_string_lossy().parse().ok()).collect()
}

/// Command lines of all processes but this one.
pub fn command_lines() -> Vec<String> {
    let mut lines = Vec::new();
    for e in std::fs::read_dir("/proc").unwrap().flatten() {
        let own = e.file_name().to_string_lossy().parse::<u32>().is_ok_and(|pid| pid != std::process::id());
        if own && let Ok(bytes) = std::fs::read(e.path().join("cmdline")) {
            lines.push(String::from_utf8_lossy(&bytes).replace('\0', " "));
        }
    }
    lines
}

pub fn field_of(record: &str, field: &str) -> Option<String> {
    let key = format!("{field}=");
    record.split_whitespace().find_map(|w| w.strip_prefix(&key).map(ToOwned::to_owned))
}

pub fn answer(c: &mut Command) -> Answer {
    let o = c.output().unwrap_or_else(|e| panic!("{c:?}: {e}"));
    Answer {
        code: o.status.code().unwrap_or(-1),
        out: String::from_utf8_lossy(&o.stdout).into_owned(),
        err: String::from_utf8_lossy(&o.stderr).into_owned(),
    }
}

/// A child that is killed when the test ends early.
pub struct Killed(pub Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
