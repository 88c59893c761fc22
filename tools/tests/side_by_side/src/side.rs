//! One side: an installation on which all cases of a scenario run, and what was observed.
//!
//! A side is a process in namespaces of its own: of processes, mounts, network and host name. It runs below a first process that
//! ends when its standard input does; with that one all others of the namespace end, whatever happened.

use crate::{
    cluster::{self, Kind, PAUSE, ROOT, account},
    normal,
    scenario::{Case, Scenario, Step},
};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    fs,
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    os::unix::{
        fs::{PermissionsExt as _, chown},
        process::CommandExt as _,
    },
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    time::{Duration, Instant},
};

/// Longest that a step may take, in seconds, before it is ended.
const STEP_SECS: &str = "20";
/// What is kept of an output, in bytes: a prompt without an answer may be repeated for ever.
const MOST_BYTES: u64 = 1 << 17;
/// Longest that is waited for a state.
const PATIENCE: Duration = Duration::from_secs(20);

/// What a side is asked to run.
#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct Order {
    /// What is run.
    pub scenario: Scenario,
    /// Which of the two it is.
    pub kind: Kind,
    /// Where it is installed, or the folder in which Garrick was built.
    pub prefix: PathBuf,
}

/// What was observed of a step.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Observed {
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
    /// The exit code. 124: it did not end in time.
    pub code: i32,
}

/// What was observed of a case.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Observation {
    /// For each step.
    pub steps: Vec<Observed>,
    /// The files that are compared: names and contents.
    pub written: BTreeMap<String, String>,
    /// Why the case could not be run to its end: a state did not come.
    pub stuck: Option<String>,
    /// How long it took, with putting the cluster in order.
    pub millis: u64,
}

/// A side that runs.
#[derive(Debug)]
pub struct Side {
    child: Child,
    // It ends with this.
    _life: ChildStdin,
    work: PathBuf,
}

impl Side {
    /// Starts a side. `program` is the program of this crate, `work` an empty folder.
    ///
    /// # Errors
    ///
    /// It cannot be started.
    pub fn start(program: &Path, work: &Path, order: &Order) -> io::Result<Self> {
        fs::create_dir_all(work)?;
        fs::set_permissions(work, fs::Permissions::from_mode(0o755))?;
        let asked = work.with_extension("order");
        fs::write(&asked, serde_json::to_vec(order)?)?;
        let mut command = Command::new("unshare");
        command.args(["--pid", "--fork", "--mount-proc", "--kill-child", "--net", "--mount", "--uts", "--ipc"]);
        command.arg(program).arg("inside").arg(&asked).arg(work);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let life = child.stdin.take().ok_or_else(|| io::Error::other("no standard input"))?;
        Ok(Self { child, _life: life, work: work.to_owned() })
    }

    /// Waits for what it observes, a case after the other.
    ///
    /// # Errors
    ///
    /// Its cluster did not start, or it ended early.
    pub fn observations(mut self, cases: usize) -> io::Result<Vec<Observation>> {
        let out = self.child.stdout.take().ok_or_else(|| io::Error::other("no standard output"))?;
        let mut seen = Vec::new();
        for line in BufReader::new(out).lines() {
            seen.push(serde_json::from_str::<Observation>(&line?)?);
        }
        if seen.len() == cases {
            return Ok(seen);
        }
        let status = self.child.wait()?;
        let why = fs::read_to_string(self.work.with_extension("failed")).unwrap_or_default();
        Err(io::Error::other(format!("it ended early, {status}, after {} of {cases} cases: {why}", seen.len())))
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        // `unshare` takes its child with it, and that one the namespace.
        drop(self.child.kill());
        drop(self.child.wait());
        drop(fs::remove_file(self.work.with_extension("order")));
        drop(fs::remove_file(self.work.with_extension("failed")));
    }
}

/// The first process of a side's namespace: ends with its standard input, or with the process that does the work.
///
/// # Errors
///
/// That process cannot be started.
pub fn first_process(order: &Path, work: &Path) -> io::Result<i32> {
    std::thread::spawn(|| {
        drop(io::copy(&mut io::stdin(), &mut io::sink()));
        std::process::exit(1);
    });
    let own = std::env::current_exe()?;
    let worker = Command::new(own).arg("work").arg(order).arg(work).stdin(Stdio::null()).spawn()?;
    // Orphans of the namespace come here as well.
    loop {
        let ended = nix::sys::wait::wait().map_err(io::Error::from)?;
        if ended.pid().is_some_and(|pid| u32::try_from(pid.as_raw()) == Ok(worker.id())) {
            return Ok(i32::from(!matches!(ended, nix::sys::wait::WaitStatus::Exited(_, 0))));
        }
    }
}

/// Runs all cases of an order, and writes a line of JSON for each.
///
/// # Errors
///
/// The cluster does not start, or a file cannot be written. The text is left for who asked.
pub fn work(order: &Path, work: &Path) -> io::Result<()> {
    let done = work_inner(order, work);
    if let Err(error) = &done {
        drop(fs::write(work.with_extension("failed"), error.to_string()));
    }
    done
}

fn work_inner(order: &Path, work: &Path) -> io::Result<()> {
    let order: Order = serde_json::from_slice(&fs::read(order)?)?;
    prepare_namespaces(work)?;
    let cluster = &order.scenario.cluster;
    let built = order.kind == Kind::Ours && cluster::is_built(&order.prefix);
    let prefix = if built { cluster::prefix_of_built(&order.prefix)? } else { order.prefix };
    cluster::lay_down(cluster, order.kind, &prefix)?;
    mount(&["--bind", "/mnt/etc/hosts", "/etc/hosts"])?;
    cluster::start(cluster, order.kind, &prefix)?;
    let mut out = io::stdout().lock();
    for case in &order.scenario.cases {
        let began = Instant::now();
        let mut seen = run_case(case, cluster.down)?;
        seen.millis = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        serde_json::to_writer(&mut out, &seen)?;
        out.write_all(b"\n")?;
        out.flush()?;
    }
    Ok(())
}

fn prepare_namespaces(work: &Path) -> io::Result<()> {
    nix::unistd::sethostname(cluster::HOST).map_err(io::Error::from)?;
    succeed(Command::new("ip").args(["link", "set", "lo", "up"]))?;
    // Without an address that is not the loopback's, the C library finds none to listen at (AI_ADDRCONFIG).
    succeed(Command::new("ip").args(["address", "add", "10.0.0.1/32", "dev", "lo"]))?;
    mount(&["-t", "tmpfs", "-o", "mode=755", "none", "/run"])?;
    let work = work.to_string_lossy();
    mount(&["--bind", &work, ROOT])
}

fn mount(args: &[&str]) -> io::Result<()> {
    succeed(Command::new("mount").args(args))
}

fn succeed(command: &mut Command) -> io::Result<()> {
    let told = command.stdin(Stdio::null()).output()?;
    if told.status.success() {
        return Ok(());
    }
    Err(io::Error::other(format!("{command:?}: {}", String::from_utf8_lossy(&told.stderr))))
}

/// Runs one case in a fresh folder, and puts the cluster in order again.
fn run_case(case: &Case, down: bool) -> io::Result<Observation> {
    let folder = Path::new(ROOT).join("case");
    drop(fs::remove_dir_all(&folder));
    fs::create_dir_all(&folder)?;
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o777))?;
    let user = case.user.as_deref().unwrap_or("alice");
    let (_, uid, gid) = account(user).ok_or_else(|| io::Error::other(format!("no user {user}")))?;
    for (name, text) in &case.files {
        let path = folder.join(name);
        fs::write(&path, text)?;
        let mode = if text.starts_with("#!") { 0o755 } else { 0o644 };
        fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
        chown(&path, Some(uid), Some(gid))?;
    }
    let mut seen = Observation::default();
    let mut jobs = Vec::new();
    for (step, compared) in case.before.iter().map(|s| (s, false)).chain(case.steps.iter().map(|s| (s, true))) {
        let told = run_until(case, step, &folder, &jobs, &mut seen.stuck)?;
        jobs.extend(jobs_in(&told, &jobs));
        if compared {
            seen.steps.push(told);
        }
        if seen.stuck.is_some() {
            break;
        }
    }
    for pattern in &case.written {
        let pattern = with_jobs(pattern, &jobs);
        let found = glob::glob(&folder.join(pattern).to_string_lossy()).map_err(io::Error::other)?;
        for path in found.flatten().filter(|path| path.is_file()) {
            let name = path.strip_prefix(&folder).unwrap_or(&path).to_string_lossy().into_owned();
            seen.written.insert(name, String::from_utf8_lossy(&fs::read(&path)?).into_owned());
        }
    }
    for step in &case.after {
        let as_root = Step { user: Some("root".to_owned()), ..step.clone() };
        run_until(case, &as_root, &folder, &jobs, &mut seen.stuck)?;
    }
    // Only these make jobs.
    let makes_jobs = |step: &Step| ["sbatch", "srun", "salloc", "scrontab"].iter().any(|name| step.run.contains(name));
    if !down && case.before.iter().chain(&case.steps).any(makes_jobs) {
        clear(&folder)?;
    }
    Ok(seen)
}

/// Cancels what is left, and waits until it is gone.
fn clear(folder: &Path) -> io::Result<()> {
    let began = Instant::now();
    loop {
        let left = shell("squeue -h -o %A", "root", folder, &[], |_| {})?;
        let mut jobs: Vec<&str> = left.stdout.split_whitespace().collect();
        jobs.dedup();
        if jobs.is_empty() && left.code == 0 {
            return Ok(());
        }
        if began.elapsed() > PATIENCE {
            return Err(io::Error::other(format!("jobs are left: {left:?}\n{}", cluster::logs())));
        }
        shell(&format!("scancel {}", jobs.join(" ")), "root", folder, &[], |_| {})?;
        std::thread::sleep(PAUSE);
    }
}

/// Runs a step, again and again where it says until when. `stuck` is set if that did not come.
fn run_until(
    case: &Case,
    step: &Step,
    folder: &Path,
    jobs: &[u32],
    stuck: &mut Option<String>,
) -> io::Result<Observed> {
    let began = Instant::now();
    let until = step.until.as_deref().map(regex::Regex::new).transpose().map_err(io::Error::other)?;
    loop {
        let told = run_step(case, step, folder, jobs)?;
        if until.as_ref().is_none_or(|until| until.is_match(&told.stdout)) {
            return Ok(told);
        }
        if began.elapsed() > PATIENCE {
            let until = step.until.as_deref().unwrap_or_default();
            *stuck = Some(format!("{}: no {until} in {:?} {:?}", step.run, told.stdout, told.stderr));
            return Ok(told);
        }
        std::thread::sleep(PAUSE);
    }
}

fn run_step(case: &Case, step: &Step, folder: &Path, jobs: &[u32]) -> io::Result<Observed> {
    let user = step.user.as_deref().or(case.user.as_deref()).unwrap_or("alice");
    let stdin = match &step.stdin {
        Some(text) => {
            let path = Path::new(ROOT).join("run/stdin");
            fs::write(&path, with_jobs(text, jobs))?;
            Some(fs::File::open(path)?)
        }
        None => None,
    };
    shell(&step.run, user, folder, jobs, |command| {
        for (key, value) in case.env.iter().chain(&step.env) {
            command.env(key, with_jobs(value, jobs));
        }
        if let Some(stdin) = stdin {
            command.stdin(stdin);
        }
    })
}

/// Runs a line of a shell as somebody.
fn shell(line: &str, user: &str, folder: &Path, jobs: &[u32], more: impl FnOnce(&mut Command)) -> io::Result<Observed> {
    let (name, uid, gid) = account(user).ok_or_else(|| io::Error::other(format!("no user {user}")))?;
    let outputs = ["run/stdout", "run/stderr"].map(|path| Path::new(ROOT).join(path));
    let mut command = Command::new("/usr/bin/timeout");
    cluster::plain(&mut command);
    command.args(["--kill-after=5", STEP_SECS, "/bin/bash", "-c", line]);
    command.env("HOME", folder).env("USER", name).env("LOGNAME", name).current_dir(folder).uid(uid).gid(gid);
    for (i, job) in jobs.iter().enumerate() {
        command.env(format!("J{}", i + 1), job.to_string());
    }
    command.stdin(Stdio::null()).stdout(fs::File::create(&outputs[0])?).stderr(fs::File::create(&outputs[1])?);
    more(&mut command);
    let status = command.status()?;
    let read = |path: &PathBuf| -> io::Result<String> {
        let mut bytes = Vec::new();
        fs::File::open(path)?.take(MOST_BYTES).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    Ok(Observed { stdout: read(&outputs[0])?, stderr: read(&outputs[1])?, code: status.code().unwrap_or(-1) })
}

/// `$J1` and so on in a text that no shell reads.
fn with_jobs(text: &str, jobs: &[u32]) -> String {
    let put = |text: String, (i, job): (usize, &u32)| text.replace(&format!("$J{}", i + 1), &job.to_string());
    jobs.iter().enumerate().rev().fold(text.to_owned(), put)
}

/// The jobs that a step told of and that were not known, in order of their ids.
fn jobs_in(told: &Observed, known: &[u32]) -> Vec<u32> {
    let last = known.iter().copied().max().unwrap_or(0);
    let ids = [&told.stdout, &told.stderr].into_iter().flat_map(|text| normal::numbers(text));
    let mut new: Vec<u32> = ids.filter_map(|(_, _, id)| id).filter(|id| *id > last).collect();
    new.sort_unstable();
    new.dedup();
    new
}
