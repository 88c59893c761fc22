//! Jobs submitted while workflow programs ask how theirs are, fifty times a second: `sacct` as Snakemake's executor for Slurm, its
//! status script for other clusters, and submitit call it. Beside that, the same number of commands that start and ask nothing: what
//! is left is what the questions cost. Needs root.

use super::{launching::with_service, since};
use crate::{
    database::Kind,
    faults::site::Site,
    minibatch::{
        cluster::run,
        figures::{Findings, Goal, median},
        inside::Fallible,
    },
};
use garrick_frame::{DoorClient, LinkKind};
use garrick_model::{
    doors,
    ids::RequestId,
    messages::command::{CommandReply, CommandRequest},
    spec::JobSpec,
};
use serde_bytes::ByteBuf;
use std::{
    path::Path,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// No answer takes longer.
const PATIENCE: Duration = Duration::from_secs(60);
/// Commands that run at a time. A user has 32 connections to the service at most.
const AT_ONCE: usize = 24;
/// The name that a run of Snakemake gives to its jobs.
const RUN: &str = "0b9c2a51-6d0e-4e0b-9d54-5f2d9a3c7e11";

/// Whose workflows they are: an account of Debian's base system. Other jobs are root's, so nobody reads them who asks for his own.
const USER: u32 = 5;

/// How much is done.
#[derive(Clone, Copy, Debug)]
pub struct Polling {
    /// Times of each.
    pub rounds: usize,
    /// Jobs that are submitted each time.
    pub jobs: u32,
    /// Questions a second.
    pub a_second: u32,
    /// Jobs that the workflows wait for.
    pub awaited: u32,
}

impl Polling {
    /// As it is to be shown.
    pub const USUAL: Self = Self { rounds: 7, jobs: 2_000, a_second: 50, awaited: 200 };
    /// To see that all works.
    pub const SHORT: Self = Self { rounds: 1, jobs: 40, a_second: 10, awaited: 10 };
}

/// Who asks meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Beside {
    Nobody,
    /// Commands that start and ask nothing.
    Starts,
    Questions,
}

/// Questions that were asked.
#[derive(Clone, Debug, Default)]
struct Questions {
    asked: u64,
    seconds: f64,
    /// How long each took, seconds.
    took: Vec<f64>,
}

/// Carries it out.
pub fn polling(setup: Polling, kind: Kind) -> Fallible<Findings> {
    let site = with_service("polling", kind, 1)?;
    let awaited = submit_awaited(&site, setup.awaited)?;
    site.await_records()?;
    let all = [Beside::Nobody, Beside::Starts, Beside::Questions];
    let mut rates = all.map(|_| Vec::new());
    let mut asked = all.map(|_| Questions::default());
    for _ in 0..setup.rounds {
        for (at, beside) in all.into_iter().enumerate() {
            let (rate, questions) = submitted(&site, setup, beside, &awaited)?;
            rates[at].push(rate);
            asked[at].asked += questions.asked;
            asked[at].seconds += questions.seconds;
            asked[at].took.extend(questions.took);
        }
    }
    let [alone, starts, questions] = rates.map(median);
    let names = ["nobody asks", "commands start and ask nothing", "sacct is asked"];
    let rows = names.into_iter().zip([alone, starts, questions]).zip(&asked).map(|((what, rate), asked)| {
        let a_second = asked.asked as f64 / asked.seconds.max(1e-9);
        let took =
            if asked.took.is_empty() { String::new() } else { format!("{:.1}", median(asked.took.clone()) * 1e3) };
        vec![what.to_owned(), format!("{a_second:.0}"), took, format!("{rate:.0}"), format!("{:.3}", rate / alone)]
    });
    let mut findings = Findings::default();
    findings.table(
        format!("Jobs submitted a second, one after the other, {} at a time, medians of {}", setup.jobs, setup.rounds),
        &["", "commands/s", "each took, ms", "jobs/s", "of that alone"],
        rows.collect(),
    );
    findings.amount(
        "jobs submitted, sacct against commands that ask nothing",
        questions / starts,
        "",
        Some(Goal::AtLeast(0.95)),
    );
    Ok(findings)
}

/// Jobs that workflows wait for, and have: of Snakemake by name, others by number.
fn submit_awaited(site: &Site, count: u32) -> Fallible<Vec<String>> {
    let script = site.home.join("awaited.sh");
    crate::faults::site::write_program(&script, "#!/bin/sh\nexit 0\n")?;
    let mut jobs = Vec::new();
    for _ in 0..count {
        let mut sbatch = site.command_of(USER, 0, "sbatch");
        let said = run(sbatch
            .args(["--parsable", "-n1", "--mem=20", "-o", "/dev/null", "--chdir=/", "-J", RUN])
            .arg(&script))?;
        jobs.push(said.trim().to_owned());
    }
    let mut squeue = site.command(0, "squeue");
    squeue.arg("-h");
    let began = Instant::now();
    while !run(&mut squeue)?.is_empty() {
        if began.elapsed() > PATIENCE * 10 {
            return Err("the jobs that are asked for do not end".into());
        }
        thread::sleep(Duration::from_millis(100));
    }
    Ok(jobs)
}

/// Submits jobs while others ask. Jobs a second, and what was asked.
fn submitted(site: &Site, setup: Polling, beside: Beside, awaited: &[String]) -> Fallible<(f64, Questions)> {
    let door = site.doors().ok_or("the controller has no door")?.join(doors::CONTROLLER);
    let is_over = AtomicBool::new(false);
    let (rate, asked) = thread::scope(|scope| {
        let asker = scope.spawn(|| match beside {
            Beside::Nobody => Ok(Questions::default()),
            other => {
                ask_on(site, setup.a_second, other == Beside::Questions, awaited, &is_over).map_err(|e| e.to_string())
            }
        });
        let rate = submit(&door, setup.jobs);
        is_over.store(true, Ordering::Relaxed);
        (rate, asker.join().map_err(|_| "asking panicked".to_owned()).and_then(|asked| asked))
    });
    // None of them is to run, now or in the next round.
    run(site.command(0, "scancel").arg("--state=PENDING").arg("--user=root"))?;
    Ok((rate?, asked?))
}

/// One after the other, held, as whoever waits for each answer does. Jobs a second.
fn submit(door: &Path, count: u32) -> Fallible<f64> {
    let mut client = DoorClient::connect(door, LinkKind::CommandToDaemon, "garrick-accounting", Some(PATIENCE))?;
    let script = Some(Arc::new(ByteBuf::from("#!/bin/sh\nexit 0\n")));
    let spec = JobSpec { name: "submitted".into(), script, hold: true, work_dir: "/".into(), ..JobSpec::default() };
    let began = Instant::now();
    for _ in 0..count {
        client.send(&CommandRequest::SubmitJob { request: RequestId::random(), spec: Box::new(spec.clone()) })?;
        match client.recv::<CommandReply>()? {
            CommandReply::Submitted { .. } => {}
            other => return Err(format!("a job was not accepted: {other:?}").into()),
        }
    }
    Ok(f64::from(count) / since(began))
}

/// A command that is run, with how many lines it has to say.
fn question(site: &Site, number: u64, awaited: &[String]) -> (Command, usize) {
    let mut sacct = site.command_of(USER, 0, "sacct");
    let at = |number: u64| awaited[usize::try_from(number).unwrap_or(0) % awaited.len()].as_str();
    let lines = match number % 3 {
        // snakemake-executor-plugin-slurm
        0 => {
            sacct.args(["-X", "--parsable2", "--clusters", "all", "--noheader", "--format=JobIdRaw,State"]);
            sacct.args(["--starttime", "now-2days", "--endtime", "now", "--name", RUN]);
            awaited.len()
        }
        // submitit: `-j` for each job that it has.
        1 => {
            sacct.args(["-o", "JobID,State,NodeList", "--parsable2"]);
            for other in 0..4 {
                sacct.args(["-j", at(number + other)]);
            }
            // Each has its batch script too.
            1 + 2 * awaited.len().min(4)
        }
        // Status scripts of workflows.
        _ => {
            sacct.args(["-n", "-P", "-X", "-o", "State", "-j", at(number)]);
            1
        }
    };
    (sacct, lines)
}

/// Runs so many commands a second until it is over. Each has to succeed, and says as much as it should.
fn ask_on(site: &Site, a_second: u32, asks: bool, awaited: &[String], is_over: &AtomicBool) -> Fallible<Questions> {
    let (began, every) = (Instant::now(), Duration::from_secs(1) / a_second.max(1));
    let mut running: Vec<(Child, Instant, usize)> = Vec::new();
    let (mut due, mut done) = (began, Questions::default());
    while !is_over.load(Ordering::Relaxed) {
        if Instant::now() >= due && running.len() < AT_ONCE {
            let (mut command, lines) = question(site, done.asked, awaited);
            if !asks {
                command = site.command_of(USER, 0, "sacct");
                command.arg("--version");
            }
            let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
            running.push((child, Instant::now(), if asks { lines } else { 1 }));
            done.asked += 1;
            due += every;
        }
        reap(&mut running, &mut done)?;
        thread::sleep(Duration::from_millis(1).min(due.saturating_duration_since(Instant::now())));
    }
    done.seconds = since(began);
    while !running.is_empty() {
        reap(&mut running, &mut done)?;
        thread::sleep(Duration::from_millis(1));
    }
    Ok(done)
}

/// Takes the answers of those that are over.
fn reap(running: &mut Vec<(Child, Instant, usize)>, done: &mut Questions) -> Fallible<()> {
    for (mut child, began, lines) in std::mem::take(running) {
        if child.try_wait()?.is_none() {
            running.push((child, began, lines));
            continue;
        }
        let said = child.wait_with_output()?;
        let count = String::from_utf8_lossy(&said.stdout).lines().count();
        if !said.status.success() || count != lines {
            let why = String::from_utf8_lossy(&said.stderr);
            return Err(format!("sacct: {}, and {count} lines instead of {lines}: {why}", said.status).into());
        }
        done.took.push(since(began));
    }
    Ok(())
}
