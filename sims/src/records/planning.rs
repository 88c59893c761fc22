//! Queries and submissions while long plans are made, compared with an idle scheduler: a real cluster whose nodes are allocated,
//! with a long queue of jobs that are all different. With the policy used, every plan is a new one.

use super::{Fallible, client, submission_of};
use crate::minibatch::{
    cluster::{Embedded, Stage as _, run},
    figures::Findings,
};
use garrick_model::{
    config,
    ids::JobId,
    messages::command::{CommandReply, CommandRequest, JobSelector},
    spec::{JobSpec, NodeCount},
    time::TimeLimit,
};
use std::{
    path::Path,
    time::{Duration, Instant},
};

const NODES: usize = 8;
const CPUS: usize = 64;
/// Questions and submissions of each kind, one after the other.
const ASKED: usize = 300;
/// Jobs submitted at a time.
const WINDOW: usize = 128;
const LINES: &str =
    "SchedulerParameters=bf_max_job_test=1000000,bf_order=shortest,bf_window=100000\nMaxJobCount=1000000\n";

/// Latencies beside plans over `jobs` waiting jobs.
pub fn planning(jobs: usize) -> Fallible<Findings> {
    let mut found = Findings::default();
    let cluster = Embedded::up_with(NODES, CPUS, LINES)?;
    let read = config::read_reporting(&cluster.home().join("etc/slurm.conf"))
        .0
        .ok_or("the configuration is not understood")?;
    let door = read.run_dir(nix::unistd::geteuid().as_raw(), Some(cluster.home())).join("ctl.sock");
    for node in 0..NODES {
        let limit = format!("-t{}", 3_000 + node * 7);
        run(cluster.command("sbatch").args(["--exclusive", "-N1", &limit, "--wrap", "sleep 1000000"]))?;
    }
    let like = first_spec(&door)?;
    let idle = Latencies::measure(&door, &like)?;
    fill(&door, &like, jobs)?;
    // Everything that is submitted wakes the scheduler, and its plans are long now.
    let since = Instant::now();
    let busy = Latencies::measure(&door, &like)?;
    let measured = since.elapsed();
    let mut plans = passes(&cluster, measured)?;
    plans.sort_by(f64::total_cmp);
    let longest = plans.last().copied().ok_or("no plan was made meanwhile")?;
    let share = plans.iter().sum::<f64>() / measured.as_secs_f64();
    let rows = idle.0.iter().zip(&busy.0).map(|(idle, busy)| {
        let at = |sorted: &[f64], part: f64| sorted[((sorted.len() - 1) as f64 * part) as usize];
        let mut row = vec![idle.0.to_owned()];
        for part in [0.5, 0.99, 1.0] {
            row.extend([format!("{:.2}", at(&idle.1, part)), format!("{:.2}", at(&busy.1, part))]);
        }
        row.push(format!("{:.2}", at(&busy.1, 0.5) / at(&idle.1, 0.5)));
        row
    });
    found.table(
        format!("Milliseconds with an idle scheduler, and while it plans for {jobs} jobs"),
        &["", "median", "planning", "99 %", "planning", "worst", "planning", "ratio (medians)"],
        rows.collect(),
    );
    found.note(format!(
        "{} plans meanwhile, the longest took {longest:.2} s; the scheduler planned for {:.0} % of the time",
        plans.len(),
        share * 100.0
    ));
    cluster.down()?;
    Ok(found)
}

/// What a job submitted with `sbatch` asked for, with a script of its own.
fn first_spec(door: &Path) -> Fallible<JobSpec> {
    let mut client = client(door)?;
    client.send(&CommandRequest::list_jobs(vec![JobSelector { job: JobId(1), tasks: None, het: None, run: None }]))?;
    match client.recv()? {
        CommandReply::Jobs { jobs, .. } => {
            let view = jobs.into_iter().next().ok_or("the first job is not there")?;
            let script = Some(std::sync::Arc::new(b"#!/bin/sh\ntrue\n".to_vec().into()));
            Ok(JobSpec { script, ..(*view.spec).clone() })
        }
        other => Err(format!("asked for a job: {other:?}").into()),
    }
}

/// No two ask for the same.
fn fill(door: &Path, like: &JobSpec, jobs: usize) -> Fallible<()> {
    let mut client = client(door)?;
    let (mut sent, mut accepted) = (0, 0);
    while accepted < jobs {
        while sent < jobs && sent - accepted < WINDOW {
            let nodes = 1 + sent % NODES;
            let spec = JobSpec {
                nodes: Some(NodeCount { min: u32::try_from(nodes)?, max: None }),
                time_limit: Some(TimeLimit::Secs(600 + 60 * (sent as u64 * 7919 % 40_009))),
                ..like.clone()
            };
            client.send(&submission_of(spec))?;
            sent += 1;
        }
        match client.recv::<CommandReply>()? {
            CommandReply::Submitted { .. } => accepted += 1,
            other => return Err(format!("a job was not accepted: {other:?}").into()),
        }
    }
    Ok(())
}

/// Sorted milliseconds of each kind of request.
struct Latencies([(&'static str, Vec<f64>); 3]);

impl Latencies {
    fn measure(door: &Path, like: &JobSpec) -> Fallible<Self> {
        let mut kinds = [("a submission", Vec::new()), ("a question for a job", Vec::new()), ("all nodes", Vec::new())];
        for number in 0..ASKED {
            let limit = Some(TimeLimit::Secs(3_000_000 + 60 * number as u64));
            let requests = [
                submission_of(JobSpec { time_limit: limit, ..like.clone() }),
                CommandRequest::list_jobs(vec![JobSelector { job: JobId(1), tasks: None, het: None, run: None }]),
                CommandRequest::ListNodes,
            ];
            for ((_, times), request) in kinds.iter_mut().zip(requests) {
                let began = Instant::now();
                let mut client = client(door)?;
                client.send(&request)?;
                if let CommandReply::Refused(refusal) = client.recv::<CommandReply>()? {
                    return Err(format!("refused: {refusal}").into());
                }
                times.push(began.elapsed().as_secs_f64() * 1e3);
            }
            // A user at a terminal, if a quick one.
            std::thread::sleep(Duration::from_millis(10));
        }
        kinds.iter_mut().for_each(|(_, times)| times.sort_by(f64::total_cmp));
        Ok(Self(kinds))
    }
}

/// Seconds of each plan in so much time until now.
fn passes(cluster: &Embedded, within: Duration) -> Fallible<Vec<f64>> {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
    let since = u64::try_from((now - within.min(now)).as_micros())?;
    let lines = run(cluster.command("stail").args(["--json", "scheduler"]))?;
    let plans = lines
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|line| line["message"] == "Pass" && line["at_us"].as_u64().is_some_and(|at| at >= since));
    Ok(plans.filter_map(|line| Some(line["handle_us"].as_f64()? / 1e6)).collect())
}
