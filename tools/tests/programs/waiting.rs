//! Commands whose step manager is away: killed and started again, cut off, stopped. The test plays it, the agent of its node and
//! the controller; what each of them is asked says how far the command is.

#![allow(clippy::unwrap_used)]

#[allow(dead_code, reason = "shared with other tests")]
use crate::fake_door::{Conversation, FakeCluster, Shown, serve, turn_away, views::job_view};
use garrick_model::{
    batch::GivenNumbers,
    ids::{JobId, Sluid, StepId, StepKey},
    messages::{
        command::{CommandReply, CommandRequest, RunStanding, StepManagerPlace},
        shepherd::Stream,
        step::{CommandToStepMgr, StepLayout, StepMgrToCommand},
    },
    refusal::Refusal,
    spec::JobSpec,
    state::{ExitStatus, JobState, StepState},
    time::Timestamp,
    view::StepCounts,
};
use serde_bytes::ByteBuf;
use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
        mpsc,
    },
};

const JOB: JobId = JobId(5609);
const RUN: Sluid = Sluid(70);
const DOOR: &str = "run/j5609-n1-x.sock";
const AGENT: &str = "run/n1.sock";
const CONTROLLER: &str = "run/ctl.sock";
/// So often the agent says that the step manager is started again, before it is.
const STARTS: u32 = 3;
/// What is said of it, once.
const STARTED_AGAIN: &str = "it is started again: waiting for it";

fn shown(out: &str, err: &str, code: i32) -> Shown {
    Shown { out: out.to_owned(), err: err.to_owned(), code: Some(code) }
}

/// A job's environment. `slurm.conf` is there; whether somebody serves the cluster is another thing.
fn in_job(cluster: &FakeCluster, args: &[&str]) -> Command {
    let mut command = cluster.command(args);
    command
        .env("SLURM_JOB_ID", JOB.to_string())
        .env("SLURM_JOB_SLUID", RUN.to_string())
        .env("GARRICK_STEPD_DOOR", cluster.home.join(DOOR))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn run(cluster: &FakeCluster, args: &[&str]) -> Shown {
    Shown::of(in_job(cluster, args).output().unwrap())
}

/// Plays a life of the step manager: which it is, from 1, and a conversation of it.
type Play = Arc<dyn Fn(u32, &mut Conversation) + Send + Sync>;

/// A step manager that serves at a door until one of its conversations ends, which is its death.
fn live(door: &Path, life: u32, play: Play) {
    let path = door.to_owned();
    serve(door, move |mut conversation| {
        play(life, &mut conversation);
        // Gone before the command notices. Whoever begins anew waits for that too.
        let _ = fs::remove_file(&path);
    });
}

/// An agent that is asked by `answer`, with the number of the question, from 0.
fn agent(cluster: &FakeCluster, answer: impl Fn(u32) -> Option<RunStanding> + Send + Sync + 'static) {
    let asked = AtomicU32::new(0);
    cluster.serve(AGENT, move |mut door| {
        while let Some(request) = door.hear::<CommandRequest>() {
            assert_eq!(request, CommandRequest::AskRun { job: JOB, sluid: RUN });
            match answer(asked.fetch_add(1, Ordering::Relaxed)) {
                Some(standing) => door.say(CommandReply::Run(standing)),
                // Silent until the command goes away.
                None => assert!(door.hear::<CommandRequest>().is_none()),
            }
        }
    });
}

/// A step manager that lives, dies, and lives again once its agent was asked [`STARTS`] times.
fn dying(lives_at_first: bool, play: impl Fn(u32, &mut Conversation) + Send + Sync + 'static) -> FakeCluster {
    let cluster = FakeCluster::dead();
    let (door, play): (_, Play) = (cluster.home.join(DOOR), Arc::new(play));
    if lives_at_first {
        live(&door, 1, Arc::clone(&play));
    }
    agent(&cluster, move |asked| {
        if asked + 1 == STARTS {
            live(&door, 2, Arc::clone(&play));
        }
        Some(RunStanding::StartsAgain)
    });
    cluster
}

/// That it is away was said, by this program, once and with that reason; nothing else was.
fn said_once(err: &str, program: &str, why: &str) {
    let lines: Vec<&str> = err.lines().collect();
    let begin = format!("{program}: The step manager of job 5609 is away (");
    assert!(matches!(lines[..], [only] if only.starts_with(&begin) && only.ends_with(why)), "{err}");
}

fn drained(code: u8) -> StepMgrToCommand {
    let worst = ExitStatus { code, signal: None };
    StepMgrToCommand::Drained { job: JOB, counts: StepCounts::default(), worst }
}

/// Hears `Wait`, and answers it in its second life.
fn waited_for(life: u32, door: &mut Conversation) {
    assert!(matches!(door.hear(), Some(CommandToStepMgr::Wait { .. })));
    if life > 1 {
        door.say(drained(0));
    }
}

#[test]
fn swait_waits_while_its_step_manager_is_started_again() {
    let cluster = dying(true, waited_for);
    let told = run(&cluster, &["swait"]);
    assert_eq!((told.out.as_str(), told.code), ("", Some(0)));
    said_once(&told.err, "swait", STARTED_AGAIN);
}

#[test]
fn swait_that_begins_while_its_step_manager_is_away_waits_too() {
    let told = run(&dying(false, waited_for), &["swait"]);
    assert_eq!(told.code, Some(0));
    said_once(&told.err, "swait", STARTED_AGAIN);
}

#[test]
fn swait_ends_when_the_run_is_over_or_given_up_but_not_as_if_the_time_were_up() {
    for (standing, why) in [
        (RunStanding::Over, "the run is over"),
        (RunStanding::GivenUp, "the run was given up: its step manager is not started again"),
    ] {
        let cluster = FakeCluster::dead();
        // Something was heard, so it is this run that is waited for.
        live(
            &cluster.home.join(DOOR),
            1,
            Arc::new(|_, door| {
                assert!(matches!(door.hear(), Some(CommandToStepMgr::Wait { .. })));
                door.say(StepMgrToCommand::Progress(StepCounts::default()));
            }),
        );
        agent(&cluster, move |asked| Some(if asked < STARTS { RunStanding::StartsAgain } else { standing }));
        let told = run(&cluster, &["swait"]);
        assert!(told.err.ends_with(&format!("swait: error: job 5609: {why}\n")), "{}", told.err);
        assert_eq!(told.code, Some(2), "{}", told.err);
    }
}

#[test]
fn a_daemon_that_is_away_too_does_not_end_a_wait() {
    let cluster = FakeCluster::dead();
    let (door, asked) = (cluster.home.join(DOOR), AtomicU32::new(0));
    live(&door, 1, Arc::new(waited_for));
    // Nobody serves the agent's door, and the controller's has lost what it is to ask.
    cluster.serve(CONTROLLER, move |mut conversation| {
        while let Some(CommandRequest::LocateStepManager { job: JOB }) = conversation.hear() {
            if asked.fetch_add(1, Ordering::Relaxed) + 1 == STARTS {
                live(&door, 2, Arc::new(waited_for));
            }
            conversation.say(CommandReply::Refused(Refusal::ControllerUnreachable));
        }
    });
    let told = run(&cluster, &["swait"]);
    assert_eq!(told.code, Some(0));
    said_once(&told.err, "swait", "nobody here knows what became of its run: trying for some minutes");
}

#[test]
fn on_another_node_of_the_job_a_relay_that_turns_away_is_tried_again() {
    let cluster = FakeCluster::dead();
    let (door, tries) = (cluster.home.join(DOOR), AtomicU32::new(0));
    let path = door.clone();
    turn_away(&door, "the job's step manager cannot be reached", move || {
        if tries.fetch_add(1, Ordering::Relaxed) + 1 == STARTS {
            fs::remove_file(&path).unwrap();
            live(&path, 2, Arc::new(waited_for));
        }
    });
    agent(&cluster, |_| Some(RunStanding::Here));
    let told = run(&cluster, &["swait"]);
    assert_eq!(told.code, Some(0));
    said_once(&told.err, "swait", "its run goes on: waiting for it");
}

#[test]
fn swait_whose_time_is_up_ends_though_its_step_manager_is_away() {
    let cluster = FakeCluster::dead();
    // An agent that does not answer either.
    agent(&cluster, |_| None);
    let told = run(&cluster, &["swait", "--timeout=0.3"]);
    assert_eq!(told, shown("", "swait: error: timed out after 0.3 seconds\n", 1));
}

#[test]
fn srun_whose_room_was_to_be_there_at_once_does_not_wait_for_its_step_manager() {
    let cluster = FakeCluster::dead();
    agent(&cluster, |_| None);
    let err =
        "srun: error: Unable to create step for job 5609: its step manager did not answer in time (--immediate)\n";
    assert_eq!(run(&cluster, &["srun", "--immediate=1", "-n1", "true"]), shown("", err, 1));
    // One that is there and says nothing.
    live(&cluster.home.join(DOOR), 1, Arc::new(|_, door| while door.hear::<CommandToStepMgr>().is_some() {}));
    assert_eq!(run(&cluster, &["srun", "--immediate=1", "-n1", "true"]), shown("", err, 1));
}

#[test]
fn an_interrupt_ends_the_search_for_a_step_manager() {
    let cluster = FakeCluster::dead();
    let (send, asked) = mpsc::channel();
    let send = Mutex::new(send);
    agent(&cluster, move |_| {
        send.lock().unwrap().send(()).unwrap();
        None
    });
    cluster.file("cmds", "true\n");
    for (args, err, code) in [
        (vec!["srun", "-n1", "true"], "srun: Cancelled pending job step with signal 2\n", 1),
        (vec!["srun", "--async", "--from-file=cmds"], "", 130),
    ] {
        let child = in_job(&cluster, &args).spawn().unwrap();
        asked.recv().unwrap();
        let pid = nix::unistd::Pid::from_raw(child.id().cast_signed());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).unwrap();
        assert_eq!(Shown::of(child.wait_with_output().unwrap()), shown("", err, code), "{args:?}");
    }
}

#[test]
fn srun_asks_for_its_step_again_however_long_its_step_manager_was_away() {
    let requests = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&requests);
    let cluster = dying(true, move |life, door| {
        let Some(CommandToStepMgr::Launch { request, .. }) = door.hear() else { return };
        noted.lock().unwrap().push(request);
        if life > 1 {
            let step = StepId::of(JOB, StepKey::number(0));
            door.say(StepMgrToCommand::Accepted { step, sluid: RUN, warnings: vec![] });
            let layout = StepLayout { nodes: vec!["n1".to_owned()], ranks: vec![vec![0]], handed: [true; 3] };
            door.say(StepMgrToCommand::Started(layout));
            finish(door, 3);
        }
    });
    let told = run(&cluster, &["srun", "-n1", "true"]);
    assert_eq!(told.code, Some(3), "{}", told.err);
    assert!(told.err.starts_with("srun: Lost contact with the step manager of JobId=5609 ("), "{}", told.err);
    assert_eq!(told.err.matches("Lost contact").count(), 1, "{}", told.err);
    let requests = requests.lock().unwrap();
    assert!(requests.len() == 2 && requests[0] == requests[1], "{requests:?}");
}

#[test]
fn srun_async_hands_its_step_over_once_however_long_its_step_manager_was_away() {
    let requests = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&requests);
    let cluster = dying(true, move |life, door| {
        let Some(CommandToStepMgr::Enqueue { request, .. }) = door.hear() else { return };
        noted.lock().unwrap().push(request);
        if life > 1 {
            let given = Some(GivenNumbers { first: 4, count: 1, array: false });
            door.say(StepMgrToCommand::Enqueued { given, declined: vec![], warnings: vec![] });
        }
    });
    let told = run(&cluster, &["srun", "--async", "--parsable", "-n1", "true"]);
    assert_eq!((told.out.as_str(), told.code), ("5609.4\n", Some(0)), "{}", told.err);
    assert_eq!(told.err.matches("Lost contact with the step manager").count(), 1, "{}", told.err);
    let requests = requests.lock().unwrap();
    assert!(requests.len() == 2 && requests[0] == requests[1], "{requests:?}");
}

fn finish(door: &mut Conversation, code: u8) {
    let state = if code == 0 { StepState::Completed } else { StepState::Failed };
    door.say(StepMgrToCommand::Finished { exit: ExitStatus { code, signal: None }, state });
}

fn output(text: &str) -> StepMgrToCommand {
    StepMgrToCommand::Output { rank: 0, stream: Stream::Stdout, data: ByteBuf::from(text) }
}

/// Says that somebody watches step 3 now.
fn attached(door: &mut Conversation) {
    let step = StepId::of(JOB, StepKey::number(3));
    assert_eq!(door.hear(), Some(CommandToStepMgr::Attach { step }));
    let layout = StepLayout { nodes: vec!["n1".to_owned()], ranks: vec![vec![0]], handed: [false; 3] };
    door.say(StepMgrToCommand::Attached { layout, files: vec![], input: false, pty: false });
}

#[test]
fn sattach_goes_on_where_its_step_manager_goes_on() {
    let cluster = dying(true, |life, door| {
        attached(door);
        door.say(output(if life == 1 { "one\n" } else { "two\n" }));
        if life > 1 {
            finish(door, 0);
        }
    });
    let told = run(&cluster, &["sattach", "5609.3"]);
    assert_eq!((told.out.as_str(), told.code), ("one\ntwo\n", Some(0)), "{}", told.err);
    said_once(&told.err, "sattach", STARTED_AGAIN);
}

#[test]
fn sattach_learns_how_a_step_ended_while_nobody_was_there_to_say_so() {
    let cluster = FakeCluster::dead();
    let door = cluster.home.join(DOOR);
    live(&door, 1, Arc::new(|_, door| attached(door)));
    agent(&cluster, move |_| {
        // Each conversation of the next one is about something else.
        serve(&door, |mut door| match door.hear() {
            Some(CommandToStepMgr::Attach { .. }) => door.say(StepMgrToCommand::Refused(Refusal::AlreadyDone)),
            Some(CommandToStepMgr::Wait { steps, any: false, .. }) => {
                assert_eq!(steps, ["3".parse().unwrap()]);
                door.say(drained(7));
            }
            other => panic!("{other:?}"),
        });
        Some(RunStanding::Here)
    });
    assert_eq!(run(&cluster, &["sattach", "5609.3"]), shown("", "", 1));
}

#[test]
fn steps_are_listed_once_their_step_manager_is_back() {
    let cluster = dying(true, |life, door| {
        assert!(matches!(door.hear(), Some(CommandToStepMgr::List)));
        if life > 1 {
            door.say(StepMgrToCommand::Steps(vec![]));
        }
    });
    let told = run(&cluster, &["squeue", "-s", "-h"]);
    assert_eq!((told.out.as_str(), told.code), ("", Some(0)), "{}", told.err);
    let (first, last) = told.err.trim_end().split_once('\n').unwrap();
    said_once(first, "squeue", STARTED_AGAIN);
    assert!(last.contains("these are the steps of job 5609 alone"), "{last}");
}

#[test]
fn a_question_is_not_asked_twice_of_a_step_manager_that_is_stopped() {
    let cluster = FakeCluster::dead();
    let (go_on, stopped) = mpsc::channel();
    let (go_on, stopped) = (Mutex::new(go_on), Mutex::new(stopped));
    // It has read the question when it goes on, and that is when its agent was asked why it does not answer.
    cluster.serve(DOOR, move |mut door| {
        assert!(matches!(door.hear(), Some(CommandToStepMgr::List)));
        stopped.lock().unwrap().recv().unwrap();
        door.say(StepMgrToCommand::Steps(vec![]));
    });
    agent(&cluster, move |_| {
        go_on.lock().unwrap().send(()).unwrap();
        Some(RunStanding::Here)
    });
    let told = run(&cluster, &["squeue", "-s", "-h"]);
    assert_eq!((told.out.as_str(), told.code), ("", Some(0)), "{}", told.err);
    said_once(told.err.lines().next().unwrap(), "squeue", "its run goes on: waiting for it");
}

#[test]
fn steps_are_ended_once_their_step_manager_is_back() {
    let cluster = dying(true, |life, door| {
        assert!(matches!(door.hear(), Some(CommandToStepMgr::SignalSteps { .. })));
        if life > 1 {
            door.say(StepMgrToCommand::PerStep(vec![Ok(1)]));
        }
    });
    let told = run(&cluster, &["scancel", "5609.3"]);
    assert_eq!((told.out.as_str(), told.code), ("", Some(0)), "{}", told.err);
    said_once(&told.err, "scancel", STARTED_AGAIN);
}

/// Outside the job: a controller that says that it runs there, [`STARTS`] times, and then something else.
fn asked_outside(then: impl Fn() -> CommandReply + Send + Sync + 'static, comes_back: bool) -> Shown {
    let cluster = FakeCluster::dead();
    let (door, asked) = (cluster.home.join(DOOR), AtomicU32::new(0));
    live(
        &door,
        1,
        Arc::new(|_, door| {
            assert!(matches!(door.hear(), Some(CommandToStepMgr::Wait { .. })));
            door.say(StepMgrToCommand::Progress(StepCounts::default()));
        }),
    );
    cluster.serve(CONTROLLER, move |mut conversation| {
        while let Some(request) = conversation.hear() {
            // Does it run at all?
            if let CommandRequest::ListJobs { .. } = request {
                let jobs = vec![Arc::new(job_view(JOB, JobSpec::default(), JobState::Running))];
                conversation.say(CommandReply::Jobs { jobs, at: Timestamp::from_secs(1), more: false });
                continue;
            }
            assert_eq!(request, CommandRequest::LocateStepManager { job: JOB });
            let asked = asked.fetch_add(1, Ordering::Relaxed);
            if asked == STARTS && comes_back {
                live(&door, 2, Arc::new(waited_for));
            }
            let place = StepManagerPlace {
                job: JOB,
                node: "n1".to_owned(),
                door: door.to_str().unwrap().to_owned(),
                address: "localhost:1".to_owned(),
                nodes: vec![],
            };
            conversation.say(if asked < STARTS { CommandReply::StepManager(place) } else { then() });
        }
    });
    let command = cluster.command(&["swait", "5609"]).stdout(Stdio::piped()).stderr(Stdio::piped()).output();
    Shown::of(command.unwrap())
}

#[test]
fn outside_its_job_swait_goes_by_what_the_controller_says() {
    let away = || CommandReply::Refused(Refusal::ControllerUnreachable);
    let told = asked_outside(away, true);
    assert_eq!(told.code, Some(0), "{}", told.err);
    said_once(&told.err, "swait", "its run goes on: waiting for it");
    let told = asked_outside(|| CommandReply::Refused(Refusal::AlreadyDone), false);
    assert_eq!(told.code, Some(0), "{}", told.err);
    let told = asked_outside(|| CommandReply::Refused(Refusal::JobPending), false);
    assert_eq!(told.code, Some(2), "{}", told.err);
    assert!(told.err.ends_with("swait: error: job 5609: the run is over\n"), "{}", told.err);
}

#[test]
fn where_nobody_knows_of_a_run_a_dead_controller_is_said_at_once() {
    let cluster = FakeCluster::dead();
    for (args, code) in [(["swait", "5609"], 2), (["sattach", "5609.3"], 1)] {
        let told = cluster.run(&args);
        assert!(told.err.contains("Unable to contact slurm controller (connect failure)"), "{}", told.err);
        assert_eq!(told.code, Some(code), "{}", told.err);
    }
}
