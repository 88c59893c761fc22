//! The cost of a whole job: an array of one-task jobs of `/bin/true` on an embedded cluster, as fast as possible; and single jobs
//! one after the other, for the time of each layer.
//!
//! | file | what |
//! |---|---|
//! | [`exits`] | ended processes, with their CPU time |
//! | [`layers`] | the time of one job, from `sbatch` to the controller's last message |
//!
//! CPU time of daemons comes from `/proc`; for processes of a job, the kernel reports it when they end. A job that failed fails
//! the benchmark.

pub mod exits;
pub mod layers;

use crate::minibatch::{
    cluster::{Embedded, Stage, run},
    figures::{Figures, Findings, Goal},
    inside::Fallible,
    processes::{self, ClusterProcesses},
};
use exits::{Exit, Exits, Kind, by_kind};
use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

/// Nodes of the cluster, and CPUs of each.
const NODES: usize = 4;
const CPUS: usize = 4;
/// Spawns of each way in which the floor is measured, before and after.
const FLOOR_SPAWNS: usize = 2_000;
/// Jobs before anything is measured: the first find cold caches, and a node's first makes a copy of its launcher.
const WARM_UP: usize = 4 * NODES * CPUS;
/// Single jobs whose time is split into layers.
const SINGLE: usize = 25;
/// What is wanted.
const GOAL_PER_SECOND: f64 = 400.0;

/// Starts a cluster, measures, and takes it away.
pub fn measure(jobs: usize) -> Fallible<Figures> {
    let scenario = format!("jobs: an array of {jobs} one-task jobs of /bin/true on {NODES} nodes of {CPUS} CPUs");
    Figures::around(scenario, FLOOR_SPAWNS, || {
        let cluster = Embedded::up_with(NODES, CPUS, &format!("MaxArraySize={}\n", jobs.max(1_000) + 1))?;
        let findings = of_cluster(&cluster, jobs)?;
        cluster.down()?;
        Ok(findings)
    })
}

fn of_cluster(cluster: &Embedded, jobs: usize) -> Fallible<Findings> {
    let script = cluster.home().join("true.sh");
    fs::write(&script, "#!/bin/sh\nexec /bin/true\n")?;
    array(cluster, &script, WARM_UP)?;
    let found = ClusterProcesses::of(cluster.home());
    let mut findings = Findings::default();

    let daemons = |pids: &[u32]| pids.iter().map(|pid| processes::cpu_time(*pid)).sum::<Result<Duration, _>>();
    let (controller, nodes) = (daemons(&found.controllers)?, daemons(&found.nodes)?);
    let listening = Exits::listen()?;
    let began = Instant::now();
    array(cluster, &script, jobs)?;
    let took = began.elapsed();
    // The last step daemons are on their way out.
    until_gone(cluster.home())?;
    let kinds = by_kind(&listening.stop()?, &found.nodes);
    let (controller, nodes) = (daemons(&found.controllers)? - controller, daemons(&found.nodes)? - nodes);
    findings.pace("jobs", jobs as u64, took.as_secs_f64(), Some(Goal::AtLeast(GOAL_PER_SECOND)));

    let of = |kind: Kind| kinds.get(&kind).map(Vec::as_slice).unwrap_or_default();
    let cpu = |exits: &[Exit]| exits.iter().map(|e| e.cpu).sum::<Duration>();
    let started = |exits: &[Exit]| exits.len();
    let mut rows = vec![("controller", controller, 0), ("noded", nodes, 0)];
    for (name, kind) in [("stepd", Kind::Stepd), ("launcher", Kind::Launcher), ("script", Kind::Script)] {
        rows.push((name, cpu(of(kind)), started(of(kind))));
    }
    rows.push(("all", rows.iter().map(|row| row.1).sum(), rows.iter().map(|row| row.2).sum()));
    let each = |time: Duration| format!("{:.2}", time.as_secs_f64() * 1e3 / jobs as f64);
    let rows = rows
        .into_iter()
        .map(|(name, time, threads)| vec![name.into(), each(time), format!("{:.1}", threads as f64 / jobs as f64)])
        .collect();
    findings.table("CPU time of one job, by process", &["process", "ms", "threads started"], rows);

    let singles = (0..SINGLE).map(|_| layers::single(cluster, &script, &found.nodes)).collect::<Result<Vec<_>, _>>()?;
    let rows = layers::medians(&singles)
        .into_iter()
        .map(|(name, time)| vec![name.to_owned(), format!("{:.2}", time.as_secs_f64() * 1e3)])
        .collect();
    let title = format!("time of one job, by layer (medians of {SINGLE} jobs, one after the other)");
    findings.table(title, &["layer", "ms"], rows);
    Ok(findings)
}

/// Runs an array to its end. `sbatch --wait` ends well if every task of it did.
fn array(cluster: &Embedded, script: &Path, jobs: usize) -> Fallible<()> {
    let mut sbatch = cluster.command("sbatch");
    sbatch.args(["--quiet", "--wait", "--output=/dev/null", "--chdir=/"]);
    sbatch.arg(format!("--array=1-{jobs}")).arg(script);
    run(&mut sbatch)?;
    Ok(())
}

/// Waits until no step daemon of the cluster is left.
fn until_gone(home: &Path) -> Fallible<()> {
    const PATIENCE: Duration = Duration::from_secs(60);
    let began = Instant::now();
    loop {
        let left = ClusterProcesses::of(home).stepds;
        if left.is_empty() {
            return Ok(());
        }
        if began.elapsed() > PATIENCE {
            return Err(format!("step daemons of jobs that are over do not end: {left:?}").into());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A command of the cluster and what it wrote.
fn ask(cluster: &Embedded, name: &str, args: &[&str]) -> Fallible<String> {
    Ok(run(cluster.command(name).args(args))?)
}
