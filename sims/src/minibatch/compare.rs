//! The same commands through other ways of running many: a loop of `srun`, a job array, and other tools if they are installed.
//! Each runs as many at a time as there are CPUs, and afterwards it is checked that all succeeded.

use super::{
    cluster::{self, ClusterError, Embedded, Order, Stage, fresh_home, remove},
    figures::Findings,
    inside::{Account, Fallible, Inside},
    processes,
};
use std::{
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

const USUAL: usize = 10_000;
/// Sruns and jobs are slower by an order of magnitude; so many times fewer of them.
const FEWER: usize = 10;
/// Longest for HyperQueue's server or worker to be there.
const PATIENCE: Duration = Duration::from_secs(30);

/// The scenario.
pub fn compare(order: &Order) -> Result<Findings, ClusterError> {
    let count = order.steps.unwrap_or(if order.quick { USUAL / 50 } else { USUAL });
    let mut found = Findings::default();
    let cluster = Embedded::up(1, None)?;
    let order = Order { steps: Some(count), ..order.clone() };
    found.0.extend(cluster::as_job(&cluster, 1, order)?.0);
    job_array(&cluster, count / FEWER, &mut found)?;
    cluster.down()?;

    let home = fresh_home("compare")?;
    let others = others(&home, count, &mut found);
    remove(&home)?;
    others.map(|()| found)
}

/// What needs an allocation.
pub fn inside(inside: &Inside) -> Fallible<Findings> {
    let mut found = Findings::default();
    let count = inside.steps(USUAL);
    let account = Account::open()?;
    let tasks = format!("--array=0-{}", count - 1);
    inside.run("srun", &["--async", "--parsable", &tasks, "-n1", "-o", "/dev/null", "/bin/true"])?;
    let took = account.close(count as u64, 0)?;
    found.pace("Garrick, one step array", count as u64, took.as_secs_f64(), None);

    let path = inside.order.home.join("commands.txt");
    super::array::write_list(&path, count)?;
    let path = path.to_string_lossy().into_owned();
    let account = Account::open()?;
    inside.run("srun", &["--async", "--parsable", "-n1", "-o", "/dev/null", "--from-file", &path])?;
    let took = account.close(count as u64, 0)?;
    found.pace("Garrick, srun --from-file", count as u64, took.as_secs_f64(), None);

    let few = (count / FEWER).max(1);
    let account = Account::open()?;
    for _ in 0..few {
        inside.run_quietly("srun", &["--quiet", "-n1", "--exact", "/bin/true"])?;
    }
    let took = account.close(few as u64, 0)?;
    found.pace("Garrick, srun in a loop", few as u64, took.as_secs_f64(), None);
    Ok(found)
}

fn job_array(cluster: &Embedded, count: usize, found: &mut Findings) -> Result<(), ClusterError> {
    let count = count.max(1);
    let began = Instant::now();
    let tasks = format!("--array=0-{}", count - 1);
    // `--wait` ends with the highest exit code of all tasks.
    let wrap = ["--quiet", "--wait", &tasks, "-n1", "-o", "/dev/null", "--wrap", "exec /bin/true"];
    cluster::run(cluster.command("sbatch").args(wrap))?;
    found.pace("Garrick, a job array", count as u64, began.elapsed().as_secs_f64(), None);
    Ok(())
}

fn others(home: &Path, count: usize, found: &mut Findings) -> Result<(), ClusterError> {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from).to_string();
    let list = home.join("arguments.txt");
    let lines: String = (0..count).map(|n| format!("{n}\n")).collect();
    std::fs::write(&list, lines).map_err(|cause| ClusterError::File {
        operation: "write",
        path: list.clone(),
        cause,
    })?;
    let forked = |name: &str, args: &[&str], found: &mut Findings| -> Result<(), ClusterError> {
        let Some(program) = in_path(name) else {
            found.note(format!("{name} is not installed"));
            return Ok(());
        };
        let forks = || processes::forks().map_err(|e| ClusterError::Unable(e.to_string()));
        let (began, before) = (Instant::now(), forks()?);
        cluster::run(Command::new(program).args(args).env("HOME", home))?;
        let (took, forks) = (began.elapsed(), forks()? - before);
        if forks < count as u64 {
            return Err(ClusterError::Scenario(format!("{name} started {forks} processes of {count}")));
        }
        found.pace(name, count as u64, took.as_secs_f64(), None);
        Ok(())
    };
    let list = list.to_string_lossy().into_owned();
    // Two arguments each, as in `write_list`.
    forked("xargs", &["-a", &list, "-n1", "-P", &cpus, "/bin/true", "line"], found)?;
    forked("parallel", &["--will-cite", "-a", &list, "-j", &cpus, "/bin/true", "line"], found)?;
    let loop_of = format!("for i in $(seq {count}); do /bin/true line $i; done");
    forked("bash", &["-c", &loop_of], found)?;
    match in_path("hq") {
        None => found.note("hq (HyperQueue) is not installed"),
        Some(hq) => hyperqueue(&hq, home, &cpus, count, found)?,
    }
    Ok(())
}

/// The first program of this name in `PATH`.
fn in_path(name: &str) -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?).map(|dir| dir.join(name)).find(|p| p.is_file())
}

/// A process that ends with this program.
struct Background(Child);

impl Drop for Background {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn hyperqueue(hq: &Path, home: &Path, cpus: &str, count: usize, found: &mut Findings) -> Result<(), ClusterError> {
    let command = |args: &[&str]| {
        let mut c = Command::new(hq);
        c.arg("--server-dir").arg(home.join("hq")).args(args).env("HOME", home).current_dir(home).stdin(Stdio::null());
        c
    };
    let background = |args: &[&str]| -> Result<Background, ClusterError> {
        let child = command(args).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        child.map(Background).map_err(|cause| ClusterError::Run { program: "hq".to_owned(), cause })
    };
    let wait_for = |args: &[&str], sign: &str| {
        let began = Instant::now();
        loop {
            let said = cluster::run(&mut command(args));
            if said.as_ref().is_ok_and(|s| s.contains(sign)) {
                return Ok(());
            }
            if began.elapsed() > PATIENCE {
                return Err(ClusterError::Unable(format!("hq {args:?} does not say {sign}: {said:?}")));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    let version = cluster::run(&mut command(&["--version"]))?;
    let _server = background(&["server", "start"])?;
    wait_for(&["server", "info"], "Server")?;
    let _worker = background(&["worker", "start", "--cpus", cpus])?;
    wait_for(&["worker", "list"], "RUNNING")?;
    let tasks = format!("1-{count}");
    let submit = ["submit", "--wait", "--array", &tasks, "--stdout", "none", "--stderr", "none", "--", "/bin/true"];
    let began = Instant::now();
    cluster::run(&mut command(&submit))?;
    let took = began.elapsed();
    wait_for(&["job", "list", "--all"], "FINISHED")?;
    found.pace(format!("HyperQueue ({})", version.trim()), count as u64, took.as_secs_f64(), None);
    Ok(())
}
