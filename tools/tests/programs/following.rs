//! `garrick steps --follow`: the test plays the step manager, which says that there is news, and the daemon that has the records.
//! No controller answers.

#![allow(clippy::unwrap_used)]

#[allow(dead_code, reason = "shared with other tests")]
use crate::fake_door::{Conversation, FakeCluster, Shown};
use garrick_frame::LinkKind;
use garrick_model::{
    ids::{JobId, Sluid, StepKey},
    messages::{
        command::{CommandReply, CommandRequest, RunStanding},
        records::{RecordedOrigin, RecordedRun, RecordedStep, RecordsReply, RecordsRequest},
        step::{CommandToStepMgr, StepMgrToCommand},
    },
    refusal::Refusal,
    state::{ExitStatus, StepState},
    time::Timestamp,
    view::StepCounts,
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_bytes::ByteBuf;
use std::{
    io::{BufRead, BufReader},
    process::{Command, Stdio},
    sync::{
        Mutex,
        atomic::{AtomicU32, Ordering},
        mpsc,
    },
    time::Duration,
};

const JOB: JobId = JobId(5609);
const RUN: Sluid = Sluid(70);
const DOOR: &str = "run/j5609-n1-x.sock";
const AGENT: &str = "run/n1.sock";

/// A cluster without a controller: `records` plays each conversation about records, from the first on, `manager` each of the step
/// manager's.
fn cluster(
    records: impl Fn(u32, &mut Conversation) + Send + Sync + 'static,
    manager: impl Fn(&mut Conversation) + Send + Sync + 'static,
) -> FakeCluster {
    let cluster = FakeCluster::dead();
    let lives = AtomicU32::new(0);
    cluster.serve(AGENT, move |mut door| match door.hello.link {
        LinkKind::CommandToRecords => records(lives.fetch_add(1, Ordering::Relaxed), &mut door),
        _ => {
            while let Some(CommandRequest::AskRun { .. }) = door.hear() {
                door.say(CommandReply::Run(RunStanding::Here));
            }
        }
    });
    cluster.serve(DOOR, move |mut door| manager(&mut door));
    cluster
}

fn follow(cluster: &FakeCluster, args: &[&str]) -> Command {
    let mut all = vec!["garrick", "steps", "5609", "--follow"];
    all.extend(args);
    let mut command = cluster.command(&all);
    command
        .env("SLURM_JOB_ID", JOB.to_string())
        .env("SLURM_JOB_SLUID", RUN.to_string())
        .env("GARRICK_STEPD_DOOR", cluster.home.join(DOOR))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn counts(failed: u64) -> StepCounts {
    StepCounts { queued: 5, running: 1, done: 4, failed, cancelled: 0 }
}

fn run() -> RecordsReply {
    run_of(RUN)
}

fn run_of(sluid: Sluid) -> RecordsReply {
    RecordsReply::Run(RecordedRun {
        job: JOB,
        sluid,
        node: "n1".to_owned(),
        uid: 1,
        user: "alice".to_owned(),
        name: "demo".to_owned(),
        work_dir: "/w".to_owned(),
        array: None,
        nodes: vec!["n1".to_owned()],
        cpus: 4,
        partition: "debug".to_owned(),
        start: Timestamp(0),
        end: None,
    })
}

/// Steps of an array that failed.
fn failed(tasks: std::ops::Range<u32>) -> RecordsReply {
    let step = |task| RecordedStep {
        key: StepKey::task(0, task),
        all_of: None,
        origin: 0,
        state: StepState::Failed,
        attempt: 0,
        again: false,
        slots: vec![0],
        cpus: 1,
        queued: None,
        start: Some(Timestamp(1000)),
        end: Some(Timestamp(2000)),
        exit: ExitStatus { code: 3, signal: None },
        usage: Default::default(),
        reason: String::new(),
        word: Default::default(),
        line: None,
        argv: vec![ByteBuf::from("work")],
        values: String::new(),
        own_name: String::new(),
        environment: Vec::new(),
        again_number: None,
        output: String::new(),
    };
    RecordsReply::Steps { origins: vec![RecordedOrigin::named("work")], steps: tasks.map(step).collect() }
}

fn so_far(failed: u64, damage: Option<&str>) -> RecordsReply {
    RecordsReply::SoFar { counts: counts(failed), damage: damage.map(ToOwned::to_owned) }
}

/// Hears that records are to be followed.
fn hear_follow(door: &mut Conversation) {
    let Some(RecordsRequest::Follow { wanted, .. }) = door.hear() else { panic!("records are followed") };
    assert_eq!(wanted.states.len(), 4, "those that failed: {wanted:?}");
}

fn hear_wait(door: &mut Conversation) {
    let heard = door.hear();
    // Inside the job the end of the run is not waited for.
    assert!(matches!(heard, Some(CommandToStepMgr::Wait { groups: true, stay: false, .. })), "{heard:?}");
}

fn drained() -> StepMgrToCommand {
    StepMgrToCommand::Drained { job: JOB, counts: counts(2), worst: ExitStatus::SUCCESS }
}

#[test]
fn a_step_is_told_once_though_the_daemon_with_the_records_and_the_step_manager_come_again() {
    let (read, was_read) = mpsc::channel::<()>();
    let (read, was_read) = (Mutex::new(read), Mutex::new(was_read));
    let lives = AtomicU32::new(0);
    let cluster = cluster(
        move |life, door| {
            hear_follow(door);
            door.say(run());
            door.say(failed(0..2 + life));
            door.say(so_far(2 + u64::from(life), None));
            read.lock().unwrap().send(()).unwrap();
            // The first is killed when it is asked for more.
            while let Some(RecordsRequest::More) = door.hear::<RecordsRequest>() {
                if life == 0 {
                    return;
                }
                door.say(so_far(3, None));
            }
        },
        move |door| {
            hear_wait(door);
            door.say(StepMgrToCommand::Progress(counts(2)));
            if lives.fetch_add(1, Ordering::Relaxed) == 0 {
                was_read.lock().unwrap().recv().unwrap();
                // Killed too.
                return;
            }
            door.say(StepMgrToCommand::Progress(counts(3)));
            was_read.lock().unwrap().recv().unwrap();
            door.say(drained());
        },
    );
    let told = Shown::of(follow(&cluster, &["--noheader", "-o", "step:0"]).output().unwrap());
    assert_eq!((told.out.as_str(), told.code), ("5609.0_0\n5609.0_1\n5609.0_2\n", Some(0)), "{}", told.err);
    // No bars where there is no terminal, and a last line.
    assert!(told.err.ends_with("job 5609: 5 queued, 1 running, 4 done, 3 failed\n"), "{}", told.err);
    assert!(!told.err.contains(['\r', '\u{1b}', '[']), "{}", told.err);
}

#[test]
fn the_run_that_was_begun_is_followed_to_its_end_though_the_job_runs_once_more() {
    let (read, was_read) = mpsc::channel::<()>();
    let (read, was_read) = (Mutex::new(read), Mutex::new(was_read));
    let (asked, runs) = mpsc::channel();
    let asked = Mutex::new(asked);
    let cluster = cluster(
        move |life, door| {
            let Some(RecordsRequest::Follow { run, .. }) = door.hear() else { panic!("records are followed") };
            asked.lock().unwrap().send(run).unwrap();
            if life == 0 {
                door.say(run_of(RUN));
                door.say(failed(0..2));
                door.say(so_far(2, None));
                // Killed when it is asked for more.
                read.lock().unwrap().send(()).unwrap();
                door.hear::<RecordsRequest>();
                return;
            }
            // The newest run has other steps.
            let (sluid, steps) = if run == Some(RUN) { (RUN, 0..3) } else { (Sluid(71), 7..12) };
            door.say(run_of(sluid));
            door.say(failed(steps.clone()));
            let over = u64::from(steps.end - steps.start);
            door.say(so_far(over, None));
            while let Some(RecordsRequest::More) = door.hear() {
                door.say(so_far(over, None));
            }
        },
        move |door| {
            hear_wait(door);
            door.say(StepMgrToCommand::Progress(counts(2)));
            was_read.lock().unwrap().recv().unwrap();
            door.say(drained());
        },
    );
    let told = Shown::of(follow(&cluster, &["--noheader", "-o", "step:0"]).output().unwrap());
    assert_eq!((told.out.as_str(), told.code), ("5609.0_0\n5609.0_1\n5609.0_2\n", Some(0)), "{}", told.err);
    assert!(told.err.ends_with("4 done, 3 failed\n"), "{}", told.err);
    drop(cluster);
    let runs: Vec<Option<Sluid>> = runs.try_iter().collect();
    assert_eq!((runs[0], runs.last()), (None, Some(&Some(RUN))), "{runs:?}");
}

#[test]
fn ctrl_c_ends_it_while_a_busy_controller_is_asked_again() {
    let (ask, was_asked) = mpsc::channel::<()>();
    let ask = Mutex::new(ask);
    let cluster = FakeCluster::with_controller(move |mut door| {
        while door.hear::<CommandRequest>().is_some() {
            ask.lock().unwrap().send(()).unwrap();
            door.say(CommandReply::Refused(Refusal::RetryAfter { after: Duration::from_secs(3600) }));
        }
    });
    // By its number first, then by its run.
    for job in ["5609", "s1M83C5Z9JNYP4"] {
        let mut command = cluster.command(&["garrick", "steps", job, "--follow"]);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        was_asked.recv().unwrap();
        kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), Signal::SIGINT).unwrap();
        let told = Shown::of(child.wait_with_output().unwrap());
        assert_eq!((told.out.lines().count(), told.code), (1, Some(130)), "{}", told.err);
        // It did not ask as often as it would have without the signal.
        assert!(was_asked.try_iter().count() < 14, "{}", told.err);
    }
}

#[test]
fn records_whose_daemon_is_away_are_asked_for_again_without_news() {
    let (read, was_read) = mpsc::channel::<()>();
    let (read, was_read) = (Mutex::new(read), Mutex::new(was_read));
    let cluster = cluster(
        move |life, door| {
            hear_follow(door);
            match life {
                // Too many are followed, and later it is away.
                0 => {
                    door.say(RecordsReply::Refused(Refusal::RetryAfter { after: Duration::ZERO }));
                    return;
                }
                2 => return,
                _ => {}
            }
            door.say(run());
            door.say(failed(0..life));
            door.say(so_far(u64::from(life), None));
            read.lock().unwrap().send(()).unwrap();
            // The first that was read is killed when it is asked for more.
            while let Some(RecordsRequest::More) = door.hear::<RecordsRequest>() {
                if life == 1 {
                    return;
                }
                door.say(so_far(u64::from(life), None));
            }
        },
        move |door| {
            hear_wait(door);
            for _ in 0..2 {
                door.say(StepMgrToCommand::Progress(counts(1)));
                was_read.lock().unwrap().recv().unwrap();
            }
            door.say(drained());
        },
    );
    let told = Shown::of(follow(&cluster, &["--noheader", "-o", "step:0"]).output().unwrap());
    assert_eq!((told.out.as_str(), told.code), ("5609.0_0\n5609.0_1\n5609.0_2\n", Some(0)), "{}", told.err);
}

#[test]
fn ctrl_c_ends_it_and_records_with_damage_are_not_whole() {
    let cluster = cluster(
        |life, door| {
            hear_follow(door);
            door.say(run());
            door.say(failed(0..1));
            door.say(so_far(1, (life > 0).then_some("a checksum does not match")));
            while let Some(RecordsRequest::More) = door.hear() {
                door.say(so_far(1, None));
            }
        },
        {
            let lives = AtomicU32::new(0);
            move |door| {
                hear_wait(door);
                door.say(StepMgrToCommand::Progress(counts(1)));
                if lives.fetch_add(1, Ordering::Relaxed) > 0 {
                    door.say(drained());
                }
                assert!(door.hear::<CommandToStepMgr>().is_none());
            }
        },
    );
    let mut child = follow(&cluster, &["--failed", "--json=lines"]).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    assert!(line.contains("\"step\":\"5609.0_0\"") && line.contains("\"exit_code\":3"), "{line}");
    kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), Signal::SIGINT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));

    let told = Shown::of(follow(&cluster, &["--failed", "--noheader", "-o", "step:0"]).output().unwrap());
    assert_eq!((told.out.as_str(), told.code), ("5609.0_0\n", Some(2)), "{}", told.err);
    assert!(told.err.contains("the records of 5609 are not whole: a checksum does not match"), "{}", told.err);
    // Steps were chosen: nothing else is said.
    assert!(!told.err.contains("done"), "{}", told.err);
}

#[test]
fn what_cannot_be_followed_is_refused() {
    let cluster = FakeCluster::dead();
    for (args, said) in [
        (&["--sort=step"][..], "--follow and --sort do not go together"),
        (&["--summary"], "--follow and --summary do not go together"),
        (&["--json"], "--follow goes with --json=lines"),
        (&["--state=running"], "--follow shows steps as they end"),
    ] {
        let told = Shown::of(follow(&cluster, args).output().unwrap());
        assert!(told.code == Some(1) && told.err.contains(said), "{told:?}");
    }
    let pending = FakeCluster::with_controller(|mut door| {
        while let Some(request) = door.hear::<CommandRequest>() {
            let refusal = match request {
                CommandRequest::LocateStepManager { .. } => Refusal::JobPending,
                _ => Refusal::InvalidJobId,
            };
            door.say(CommandReply::Refused(refusal));
        }
    });
    let told = pending.run(&["garrick", "steps", "5609", "--follow"]);
    assert_eq!(told.code, Some(1));
    assert!(told.err.contains("job 5609 is still pending: nothing runs that could be followed"), "{}", told.err);
}
