//! Steps per second of one job, three ways, each beside the machine's own raw spawn rate in the same run:
//! `srun` after `srun`, sixteen `srun`s at a time, and many steps sent in one request.
//!
//! Starts an embedded cluster in a temporary home, submits itself as the job, and ends the cluster again.
//!
//!     cargo run --release -p garrick-sims --bin garrick-step-rate [-- STEPS]

use garrick_frame::{DoorClient, LinkKind};
use garrick_model::{
    env_vars::GARRICK_STEPD_DOOR,
    ids::RequestId,
    messages::step::{CommandToStepMgr, StepMgrToCommand},
    spec::{StepSharing, StepSpec, StreamTarget},
};
use garrick_sims::spawn_floor::{rate, raw_spawn_rate};
use serde_bytes::ByteBuf;
use std::{
    error::Error,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, Instant},
};

type Fallible<T> = Result<T, Box<dyn Error>>;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let done = match args.first().map(String::as_str) {
        Some("--inside") => inside(&args[1..]),
        other => outside(other.unwrap_or("5000")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("garrick-step-rate: {e}");
            ExitCode::FAILURE
        }
    }
}

/// The programs built beside this one.
fn beside(name: &str) -> Fallible<PathBuf> {
    let path = std::env::current_exe()?.with_file_name(name);
    if path.exists() { Ok(path) } else { Err(format!("{} is not built: cargo build --release", path.display()).into()) }
}

fn outside(steps: &str) -> Fallible<()> {
    let garrick = beside("garrick")?;
    let home = std::env::temp_dir().join(format!("garrick-step-rate-{}", std::process::id()));
    std::fs::create_dir_all(&home)?;
    let result = run_job(&garrick, &home, steps);
    let down = Command::new(&garrick).arg("down").env("GARRICK_HOME", &home).status()?;
    std::fs::remove_dir_all(&home)?;
    if !down.success() {
        return Err("the cluster did not end cleanly".into());
    }
    result
}

fn run_job(garrick: &Path, home: &Path, steps: &str) -> Fallible<()> {
    let at_home = |args: &[&str]| -> Fallible<()> {
        let status = Command::new(garrick).args(args).env("GARRICK_HOME", home).stdin(Stdio::null()).status()?;
        if status.success() { Ok(()) } else { Err(format!("garrick {args:?}: {status}").into()) }
    };
    at_home(&["up"])?;
    let me = std::env::current_exe()?;
    let (out, wrap) = (home.join("figures"), format!("{} --inside {} {steps}", me.display(), garrick.display()));
    at_home(&["sbatch", "--quiet", "--wait", "-o", &out.to_string_lossy(), "--exclusive", "--wrap", &wrap])
        .inspect_err(|_| print!("{}", std::fs::read_to_string(&out).unwrap_or_default()))?;
    print!("{}", std::fs::read_to_string(&out)?);
    Ok(())
}

fn inside(args: &[String]) -> Fallible<()> {
    let [garrick, steps] = args else { return Err("usage: --inside GARRICK STEPS".into()) };
    let steps: usize = steps.parse()?;
    let few = (steps / 10).clamp(50, 1000);
    let cpus = std::thread::available_parallelism()?.get();

    raw_spawn_rate(200, 1)?;
    let raw_serial = raw_spawn_rate(few * 4, 1)?;
    let raw_wide = raw_spawn_rate(few * 4, cpus)?;
    println!(
        "{cpus} CPUs; raw posix_spawn and wait of /bin/true: {raw_serial:.0}/s one at a time, {raw_wide:.0}/s {cpus} at a time"
    );

    let began = Instant::now();
    for _ in 0..few {
        srun(garrick)?;
    }
    row("srun, one after the other", few, began.elapsed(), raw_serial);

    let (next, failed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let began = Instant::now();
    std::thread::scope(|s| {
        for _ in 0..16 {
            s.spawn(|| {
                while next.fetch_add(1, Ordering::Relaxed) < few * 2 {
                    if srun(garrick).is_err() {
                        failed.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    row("srun, 16 at a time", few * 2, began.elapsed(), raw_wide);
    if failed.load(Ordering::Relaxed) > 0 {
        return Err(format!("{} of the 16-wide sruns failed", failed.load(Ordering::Relaxed)).into());
    }

    let took = in_one_request(steps)?;
    row("sent in one request", steps, took, raw_wide);
    let again = raw_spawn_rate(few * 4, cpus)?;
    println!("raw rate again, {cpus} at a time: {again:.0}/s");
    Ok(())
}

fn row(what: &str, count: usize, took: Duration, floor: f64) {
    let r = rate(count, took);
    println!("{what:<28} {count:>7} steps {:>8.2} s {r:>8.0}/s  ratio to raw {:.2}", took.as_secs_f64(), r / floor);
}

fn srun(garrick: &str) -> Fallible<()> {
    let status =
        Command::new(garrick).args(["srun", "--quiet", "-n1", "--exact", "/bin/true"]).stdin(Stdio::null()).status()?;
    if status.success() { Ok(()) } else { Err(format!("srun: {status}").into()) }
}

fn in_one_request(count: usize) -> Fallible<Duration> {
    let door =
        std::env::var_os(GARRICK_STEPD_DOOR).ok_or("not inside a job: no step manager's door in the environment")?;
    let environment: Vec<ByteBuf> = vec![ByteBuf::from(b"PATH=/usr/bin:/bin".to_vec())];
    let spec = StepSpec {
        name: "true".into(),
        nodes: None,
        tasks: Some(1),
        tasks_per_node: None,
        cpus_per_task: Some(1),
        memory: garrick_model::resources::MemoryRequest::Default,
        nodelist: Vec::new(),
        exclude: Vec::new(),
        relative: None,
        distribution: garrick_model::spec::Distribution::Block,
        sharing: StepSharing::Exact,
        cpu_bind: garrick_model::spec::CpuBind::Default,
        time_limit: None,
        immediate: false,
        argv: vec![ByteBuf::from(b"/bin/true".to_vec())],
        multi_prog: Vec::new(),
        script: None,
        work_dir: None,
        environment,
        stdin: StreamTarget::Null,
        stdin_to: garrick_model::spec::StdinTo::None,
        stdout: StreamTarget::Null,
        stderr: StreamTarget::Null,
        open_mode: garrick_model::spec::OpenMode::Default,
        pty: None,
        kill_on_bad_exit: false,
        wait_secs: None,
        umask: None,
        rlimits: Vec::new(),
        srun: None,
        submit_line: String::new(),
    };
    let began = Instant::now();
    let mut client = DoorClient::connect(Path::new(&door), LinkKind::CommandToStepMgr, "step-rate", None)?;
    client.send(&CommandToStepMgr::Enqueue { request: RequestId::random(), specs: vec![spec; count] })?;
    match client.recv::<StepMgrToCommand>()? {
        StepMgrToCommand::Enqueued { steps, .. } if steps.len() == count => {}
        other => return Err(format!("unexpected answer to the request: {other:?}").into()),
    }
    let mut client = DoorClient::connect(Path::new(&door), LinkKind::CommandToStepMgr, "step-rate", None)?;
    client.send(&CommandToStepMgr::Wait { steps: Vec::new(), progress_ms: 0 })?;
    loop {
        match client.recv::<StepMgrToCommand>()? {
            StepMgrToCommand::Drained { counts, .. } if counts.failed == 0 => return Ok(began.elapsed()),
            StepMgrToCommand::Drained { counts, .. } => return Err(format!("{} steps failed", counts.failed).into()),
            StepMgrToCommand::Progress(_) => {}
            other => return Err(format!("unexpected answer while waiting: {other:?}").into()),
        }
    }
}
