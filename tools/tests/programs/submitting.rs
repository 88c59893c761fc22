//! `sbatch`, `salloc`, `srun` and `swait` as users run them, against a door that the test plays.

#![allow(clippy::unwrap_used)]

#[allow(dead_code, reason = "shared with other tests")]
use crate::fake_door::{Conversation, FakeCluster, Shown, views::job_view};
use garrick_frame::LinkKind;
use garrick_model::{
    batch::GivenNumbers,
    ids::{JobId, Sluid, StepId, StepNum},
    messages::{
        command::{CommandReply, CommandRequest, JobMilestone, StepManagerPlace},
        shepherd::Stream,
        step::{CommandToStepMgr, StepLayout, StepMgrToCommand},
    },
    refusal::Refusal,
    spec::{JobSpec, Sharing, StepSpec, StreamTarget, TopologyRequest},
    state::{ExitStatus, JobState, Reason, StepState},
    time::Timestamp,
    view::{JobView, StepCounts},
};
use serde_bytes::ByteBuf;
use std::{
    io::Write as _,
    process::Stdio,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
        mpsc,
    },
    time::Duration,
};

const JOB: JobId = JobId(503);
const STEP: StepId = StepId::new(JOB, StepNum::Number(0));

fn shown(out: &str, err: &str, code: i32) -> Shown {
    Shown { out: out.to_owned(), err: err.to_owned(), code: Some(code) }
}

fn submitted() -> CommandReply {
    CommandReply::Submitted { job: JOB, warnings: vec![] }
}

/// A controller that answers every submission so, and hands the specification to the test.
fn controller(reply: impl Fn() -> CommandReply + Send + Sync + 'static) -> (FakeCluster, mpsc::Receiver<JobSpec>) {
    let (send, receive) = mpsc::channel();
    let send = Mutex::new(send);
    let cluster = FakeCluster::with_controller(move |mut door| {
        if let Some(CommandRequest::SubmitJob { spec, .. }) = door.hear() {
            send.lock().unwrap().send(*spec).unwrap();
            door.say(reply());
        }
    });
    (cluster, receive)
}

fn view(spec: JobSpec, state: JobState) -> Arc<JobView> {
    Arc::new(job_view(JOB, spec, state))
}

#[test]
fn sbatch_submits_script_environment_and_arguments() {
    let (cluster, specs) = controller(submitted);
    cluster.file("job.sh", "#!/bin/sh\n#SBATCH -n 4 --mem=100 # small\n#SBATCH -p script\necho hi\n#SBATCH -n 9\n");
    let run = cluster.command(&["sbatch", "-N5", "job.sh", "a", "b c"]).env("SBATCH_PARTITION", "env").output();
    let warning = "sbatch: warning: can't run 4 processes on 5 nodes, setting nnodes to 4\n";
    assert_eq!(Shown::of(run.unwrap()), shown("Submitted batch job 503\n", warning, 0));
    let spec = specs.recv().unwrap();
    assert_eq!((spec.name.as_str(), spec.tasks, spec.partitions), ("job.sh", Some(4), vec!["env".to_owned()]));
    assert_eq!(spec.argv, [ByteBuf::from("a"), ByteBuf::from("b c")]);
    assert_eq!(spec.submit_line, "sbatch -N5 job.sh a b c");
    assert!(spec.script.unwrap().starts_with(b"#!/bin/sh\n#SBATCH -n 4"));
    assert!(spec.environment.contains(&ByteBuf::from("TZ=UTC")));
    assert_eq!(spec.work_dir, cluster.home.to_str().unwrap());
}

#[test]
fn sbatch_takes_wrap_and_standard_input() {
    let (cluster, specs) = controller(submitted);
    assert_eq!(cluster.run(&["sbatch", "--parsable", "--wrap", "echo hi"]), shown("503\n", "", 0));
    let spec = specs.recv().unwrap();
    assert_eq!((spec.name.as_str(), spec.command), ("wrap", None));
    let mut child = cluster.command(&["sbatch", "-Q"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"#!/bin/sh\n#SBATCH -J piped\n").unwrap();
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(0));
    assert_eq!(specs.recv().unwrap().name, "piped");
    let both = cluster.run(&["sbatch", "--wrap", "x", "job.sh"]);
    assert_eq!(both, shown("", "sbatch: error: Script arguments not permitted with --wrap option\n", 1));
}

#[test]
fn the_cluster_of_the_configuration_may_be_named_and_no_other() {
    let (cluster, _specs) = controller(submitted);
    let named = |words: &[&str]| cluster.run(&[&["sbatch", "-M", "fake"], words, &["--wrap", "echo hi"]].concat());
    assert_eq!(named(&[]), shown("Submitted batch job 503 on cluster fake\n", "", 0));
    assert_eq!(named(&["--parsable"]), shown("503;fake\n", "", 0));
    let err = "srun: error: 'elsewhere' can't be reached now, or it is an invalid entry for --cluster.  Use 'sacctmgr list \
               clusters' to see available clusters.\n";
    assert_eq!(cluster.run(&["srun", "--clusters=fake,elsewhere", "true"]), shown("", err, 1));
}

#[test]
fn refusals_are_worded_as_slurm_words_them() {
    let (cluster, _specs) = controller(|| CommandReply::Refused(Refusal::InvalidPartition("nosuch".to_owned())));
    let err = "sbatch: error: invalid partition specified: nosuch\n\
               sbatch: error: Batch job submission failed: Invalid partition name specified\n";
    assert_eq!(cluster.run(&["sbatch", "-p", "nosuch", "--wrap", "x"]), shown("", err, 1));
    let code = cluster.command(&["sbatch", "-p", "nosuch", "--wrap", "x"]).env("SLURM_EXIT_ERROR", "9").output();
    assert_eq!(code.unwrap().status.code(), Some(9));
    let detail = "Memory specification can not be satisfied".to_owned();
    let (cluster, _specs) =
        controller(move || CommandReply::Refused(Refusal::NodeConfigUnavailable { detail: Some(detail.clone()) }));
    let err = "salloc: error: Memory specification can not be satisfied\n\
               salloc: error: Job submit/allocate failed: Requested node configuration is not available\n";
    assert_eq!(cluster.run(&["salloc", "true"]), shown("", err, 1));
}

#[test]
fn licenses_travel_as_written_and_malformed_ones_do_not() {
    let (cluster, specs) = controller(submitted);
    assert_eq!(cluster.run(&["sbatch", "-L", "foo:2|bar", "--wrap", "x"]), shown("Submitted batch job 503\n", "", 0));
    assert_eq!(specs.recv().unwrap().licenses.as_deref(), Some("foo:2|bar"));
    // What a word stands for the controller knows.
    let both = ["sbatch", "--license=foo", "--resources=power:full_node", "--wrap", "x"];
    assert_eq!(cluster.run(&both), shown("Submitted batch job 503\n", "", 0));
    assert_eq!(specs.recv().unwrap().licenses.as_deref(), Some("foo,power:full_node"));
    let err = "sbatch: error: Batch job submission failed: Invalid license specification\n";
    assert_eq!(cluster.run(&["sbatch", "--licenses=foo:", "--wrap", "x"]), shown("", err, 1));
    let (cluster, _specs) = controller(|| CommandReply::Refused(Refusal::InvalidLicense("nosuch".to_owned())));
    assert_eq!(cluster.run(&["sbatch", "-L", "nosuch", "--wrap", "x"]), shown("", err, 1));
    let err = "salloc: error: Job submit/allocate failed: Invalid license specification\n";
    assert_eq!(cluster.run(&["salloc", "-L", "nosuch", "true"]), shown("", err, 1));
}

#[test]
fn what_is_asked_of_the_topology_travels_from_lines_variables_and_options() {
    let (cluster, specs) = controller(submitted);
    let mut command =
        cluster.command(&["sbatch", "--switches=2@5", "--spread-segments", "--exclusive=topo", "--wrap", "x"]);
    let run = command.env("SBATCH_SEGMENT_SIZE", "8").env("SBATCH_WAIT4SWITCH", "9").output().unwrap();
    assert_eq!(run.status.code(), Some(0));
    let spec = specs.recv().unwrap();
    let want = TopologyRequest {
        switches: Some(2),
        switches_wait_secs: Some(300),
        segment: Some(8),
        spread_segments: true,
        consolidate_segments: false,
        exclusive: true,
    };
    assert_eq!((&spec.topology, spec.sharing), (&want, Sharing::Exclusive));
    let run = cluster.command(&["sbatch", "-N1", "--wrap", "x"]).env("SBATCH_REQ_SWITCH", "1@1:30").output().unwrap();
    assert_eq!(run.status.code(), Some(0));
    let asked = specs.recv().unwrap().topology;
    assert_eq!((asked.switches, asked.switches_wait_secs), (Some(1), Some(90)));
    let err = "sbatch: error: Invalid numeric value \"many\" for --switches.\n";
    assert_eq!(cluster.run(&["sbatch", "--switches=many", "--wrap", "x"]).err, err);
}

#[test]
fn options_that_are_wrong_never_reach_the_controller() {
    let cluster = FakeCluster::dead();
    let unknown = "sbatch: unrecognized option '--nosuch'\nTry \"sbatch --help\" for more information\n";
    assert_eq!(cluster.run(&["sbatch", "--nosuch", "job.sh"]), shown("", unknown, 255));
    assert_eq!(
        cluster.run(&["sbatch", "-t", "1x", "--wrap", "true"]),
        shown("", "sbatch: error: Invalid --time specification\n", 255)
    );
    assert_eq!(cluster.run(&["sbatch", "nosuch.sh"]), shown("", "sbatch: error: Unable to open file nosuch.sh\n", 1));
    assert_eq!(
        cluster.run(&["srun", "--mpi=pmix_v9", "true"]),
        shown("", "srun: error: Invalid MPI type 'pmix_v9', --mpi=list for acceptable types\n", 1)
    );
    cluster.file("bad.sh", "#!/bin/sh\n#SBATCH --nosuch\n");
    let in_script = "sbatch: unrecognized option '--nosuch'\n\
                     Try \"sbatch --help\" for more information\n";
    assert_eq!(cluster.run(&["sbatch", "bad.sh"]), shown("", in_script, 255));
}

#[test]
fn a_dead_controller_is_said_within_seconds() {
    let cluster = FakeCluster::dead();
    let run = cluster.run(&["sbatch", "--wrap", "x"]);
    assert_eq!(run.code, Some(1));
    let sentence = "Batch job submission failed: Unable to contact slurm controller (connect failure)\n";
    assert!(run.err.ends_with(sentence), "{}", run.err);
}

#[test]
fn a_busy_controller_is_asked_again_with_the_same_identity() {
    let attempts = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&attempts);
    let cluster = FakeCluster::with_controller(move |mut door| {
        let Some(CommandRequest::SubmitJob { request, .. }) = door.hear() else { return };
        let mut seen = seen.lock().unwrap();
        seen.push(request);
        door.say(match seen.len() {
            1 => CommandReply::Refused(Refusal::RetryAfter { after: Duration::from_millis(1) }),
            _ => submitted(),
        });
    });
    let run = cluster.run(&["sbatch", "--wrap", "x"]);
    assert_eq!((run.out.as_str(), run.code), ("Submitted batch job 503\n", Some(0)));
    assert_eq!(run.err.lines().count(), 1, "{}", run.err);
    let attempts = attempts.lock().unwrap();
    assert!(attempts.len() == 2 && attempts[0] == attempts[1]);
}

#[test]
fn sbatch_waits_for_the_jobs_exit_code() {
    let spec = Mutex::new(None);
    let cluster = FakeCluster::with_controller(move |mut door| {
        let over = |spec: JobSpec| {
            let exit = ExitStatus { code: 7, signal: None };
            Arc::new(JobView { exit, ..(*view(spec, JobState::Failed)).clone() })
        };
        let kept = || spec.lock().unwrap().clone().unwrap();
        match door.hear() {
            Some(CommandRequest::SubmitJob { spec: submitted_spec, .. }) => {
                *spec.lock().unwrap() = Some(*submitted_spec);
                door.say(submitted());
            }
            Some(CommandRequest::WaitJob { until: JobMilestone::Ended, .. }) => {
                door.say(CommandReply::Job(over(kept())));
            }
            Some(CommandRequest::ListJobs { .. }) => {
                door.say(CommandReply::Jobs { jobs: vec![over(kept())], at: Timestamp::from_secs(9), more: false });
            }
            _ => {}
        }
    });
    assert_eq!(cluster.run(&["sbatch", "--wait", "--wrap", "x"]), shown("Submitted batch job 503\n", "", 7));
}

#[test]
fn test_only_submits_nothing() {
    let cluster = FakeCluster::with_controller(|mut door| {
        if let Some(CommandRequest::TestJob { .. }) = door.hear() {
            door.say(CommandReply::WouldStart {
                job: JobId(532),
                at: Timestamp::from_secs(1_795_257_077),
                cpus: 1,
                nodes: "n1".to_owned(),
                partition: "debug".to_owned(),
            });
        }
    });
    let line = "sbatch: Job 532 to start at 2026-11-21T10:31:17 a using 1 processors on nodes n1 in partition debug\n";
    assert_eq!(cluster.run(&["sbatch", "--test-only", "-n1", "--wrap", "true"]), shown("", line, 0));
}

/// A controller that grants an allocation at once, with its step manager behind `door`; tells how it was finished.
fn granting(states: &'static [JobState], door: &str) -> (FakeCluster, mpsc::Receiver<CommandRequest>) {
    let (send, receive) = mpsc::channel();
    let (send, spec) = (Mutex::new(send), Mutex::new(None::<JobSpec>));
    let cluster = FakeCluster::dead();
    let door = cluster.home.join(door);
    cluster.serve("run/ctl.sock", move |mut conversation: Conversation| {
        let Some(request) = conversation.hear::<CommandRequest>() else { return };
        match &request {
            CommandRequest::SubmitJob { spec: submitted_spec, .. } => {
                *spec.lock().unwrap() = Some((**submitted_spec).clone());
                conversation.say(submitted());
            }
            CommandRequest::Watch { .. } => {
                for state in states {
                    let spec = spec.lock().unwrap().clone().unwrap();
                    let mut seen = (*view(spec, *state)).clone();
                    if *state == JobState::Pending {
                        seen.reason = Reason::PartitionNodeLimit;
                    }
                    conversation.say(CommandReply::Job(Arc::new(seen)));
                }
                // The stream stays open while the job runs.
                conversation.hear::<CommandRequest>();
            }
            CommandRequest::LocateStepManager { .. } => {
                conversation.say(CommandReply::StepManager(StepManagerPlace {
                    job: JOB,
                    node: "n1".to_owned(),
                    door: door.to_str().unwrap().to_owned(),
                    address: "127.0.0.1:6818".to_owned(),
                    nodes: vec![],
                }));
            }
            _ => {
                send.lock().unwrap().send(request).unwrap();
                conversation.say(CommandReply::Done);
            }
        }
    });
    (cluster, receive)
}

#[test]
fn salloc_runs_its_command_and_gives_the_allocation_back() {
    let (cluster, finished) = granting(&[JobState::Configuring, JobState::Running], "run/none.sock");
    let script = "echo $SLURM_JOB_ID $SLURM_JOB_NODELIST $SLURM_STEPMGR $GARRICK_STEPMGR_ADDRESS; exit 5";
    let err = "salloc: Granted job allocation 503\nsalloc: Nodes n1 are ready for job\n\
               salloc: Relinquishing job allocation 503\n";
    assert_eq!(cluster.run(&["salloc", "-n1", "bash", "-c", script]), shown("503 n1 n1 127.0.0.1:6818\n", err, 5));
    let exit = ExitStatus { code: 5, signal: None };
    assert_eq!(finished.recv().unwrap(), CommandRequest::FinishAllocation { job: JOB, exit });
}

#[test]
fn salloc_says_when_its_allocation_is_revoked_and_ends_its_command() {
    let (cluster, _) = granting(&[JobState::Running, JobState::Cancelled], "run/none.sock");
    let err = "salloc: Granted job allocation 503\nsalloc: Nodes n1 are ready for job\n\
               salloc: Job allocation 503 has been revoked.\n";
    assert_eq!(cluster.run(&["salloc", "sleep", "1000"]), shown("", err, 128 + 15));
}

#[test]
fn srun_tells_of_a_request_that_cannot_be_met() {
    let (cluster, _) = granting(&[JobState::Pending, JobState::Cancelled], "run/none.sock");
    let err = "srun: Requested partition configuration not available now\n\
               srun: job 503 queued and waiting for resources\n\
               srun: Force Terminated JobId=503\nsrun: Job allocation 503 has been revoked\n";
    assert_eq!(cluster.run(&["srun", "-N3", "true"]), shown("", err, 1));
}

/// A step manager that runs a step of two tasks on n1 and n2 and then goes on by `play`.
fn step_manager(
    play: impl Fn(&mut Conversation, &StepSpec) + Send + Sync + 'static,
) -> impl Fn(Conversation) + Send + Sync {
    move |mut door| {
        assert_eq!(door.hello.link, LinkKind::CommandToStepMgr);
        let Some(CommandToStepMgr::Launch { spec, .. }) = door.hear() else { return };
        door.say(StepMgrToCommand::Accepted { step: STEP, sluid: Sluid(1), warnings: vec![] });
        let layout = StepLayout {
            nodes: vec!["n1".to_owned(), "n2".to_owned()],
            ranks: vec![vec![0], vec![1]],
            handed: [false; 3],
        };
        door.say(StepMgrToCommand::Started(layout));
        play(&mut door, &spec);
    }
}

fn output(rank: u32, stream: Stream, text: &str) -> StepMgrToCommand {
    StepMgrToCommand::Output { rank, stream, data: ByteBuf::from(text) }
}

fn end(door: &mut Conversation, rank: u32, code: u8) {
    let status = ExitStatus { code, signal: None };
    door.say(StepMgrToCommand::TaskExited { rank, status, oom: false });
}

fn finish(door: &mut Conversation, code: u8) {
    let state = if code == 0 { StepState::Completed } else { StepState::Failed };
    door.say(StepMgrToCommand::Finished { exit: ExitStatus { code, signal: None }, state });
}

#[test]
fn srun_alone_allocates_runs_and_finishes() {
    let (cluster, finished) = granting(&[JobState::Running], "run/j503-n1-x.sock");
    cluster.serve(
        "run/j503-n1-x.sock",
        step_manager(|door, spec| {
            assert_eq!(spec.argv[0], ByteBuf::from("hostname"));
            door.say(output(0, Stream::Stdout, "host1\n"));
            end(door, 0, 0);
            end(door, 1, 3);
            finish(door, 3);
        }),
    );
    let err = "srun: error: n2: task 1: Exited with exit code 3\n";
    assert_eq!(cluster.run(&["srun", "-n1", "hostname"]), shown("host1\n", err, 3));
    let exit = ExitStatus { code: 3, signal: None };
    assert_eq!(finished.recv().unwrap(), CommandRequest::FinishAllocation { job: JOB, exit });
}

/// A job's environment without a cluster: steps need neither `slurm.conf` nor controller.
fn in_job(cluster: &FakeCluster, args: &[&str]) -> std::process::Command {
    let mut command = cluster.command(args);
    command
        .env_remove("SLURM_CONF")
        .env("SLURM_JOB_ID", "503")
        .env("SLURM_NTASKS", "2")
        .env("SLURM_NNODES", "2")
        .env("GARRICK_STEPD_DOOR", cluster.home.join("run/j503-n1-x.sock"));
    command
}

#[test]
fn srun_in_a_job_needs_the_step_managers_door_only() {
    let cluster = FakeCluster::dead();
    cluster.serve(
        "run/j503-n1-x.sock",
        step_manager(|door, spec| {
            assert_eq!((spec.tasks, spec.nodes.map(|n| n.min)), (Some(2), Some(2)));
            assert_eq!(spec.srun.as_ref().map(|(_, pid)| *pid > 0), Some(true));
            door.say(output(1, Stream::Stdout, "one\n"));
            door.say(output(0, Stream::Stderr, "zero\n"));
            end(door, 0, 0);
            end(door, 1, 0);
            finish(door, 0);
        }),
    );
    let run = in_job(&cluster, &["srun", "-l", "hostname"]).output().unwrap();
    assert_eq!(Shown::of(run), shown("1: one\n", "0: zero\n", 0));
}

#[test]
fn srun_relays_its_input() {
    let cluster = FakeCluster::dead();
    cluster.serve(
        "run/j503-n1-x.sock",
        step_manager(|door, _| {
            while let Some(message) = door.hear() {
                match message {
                    CommandToStepMgr::Stdin(piece) if piece.is_empty() => break,
                    CommandToStepMgr::Stdin(data) => {
                        door.say(StepMgrToCommand::Output { rank: 0, stream: Stream::Stdout, data });
                    }
                    other => assert!(matches!(other, CommandToStepMgr::Consumed(_)), "{other:?}"),
                }
            }
            finish(door, 0);
        }),
    );
    let mut child = in_job(&cluster, &["srun", "cat"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let text = "line\n".repeat(20_000);
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let run = child.wait_with_output().unwrap();
    assert!(run.stdout == text.as_bytes() && run.status.success());
}

#[test]
fn srun_passes_signals_on_and_an_interrupt_ends_the_step() {
    let cluster = FakeCluster::dead();
    let (heard, hear) = mpsc::channel();
    let heard = Mutex::new(heard);
    cluster.serve(
        "run/j503-n1-x.sock",
        step_manager(move |door, _| {
            let heard = heard.lock().unwrap();
            door.say(output(0, Stream::Stdout, "ready\n"));
            heard.send(None).unwrap();
            while let Some(message) = door.hear::<CommandToStepMgr>() {
                let over = message == CommandToStepMgr::Cancel;
                heard.send(Some(message)).unwrap();
                if over {
                    break;
                }
            }
            let status = ExitStatus { code: 0, signal: Some(2) };
            door.say(StepMgrToCommand::TaskExited { rank: 0, status, oom: false });
            door.say(StepMgrToCommand::TaskExited { rank: 1, status, oom: false });
            door.say(StepMgrToCommand::Finished { exit: status, state: StepState::Cancelled });
        }),
    );
    let mut child = in_job(&cluster, &["srun", "--quit-on-interrupt", "-i", "none", "sleep", "100"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    hear.recv().unwrap();
    // "ready" is written only after the step was started, so the signals below meet a running step.
    let mut ready = [0; 6];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut ready).unwrap();
    let pid = nix::unistd::Pid::from_raw(child.id().cast_signed());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGUSR1).unwrap();
    assert_eq!(hear.recv().unwrap(), Some(CommandToStepMgr::Signal(10)));
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).unwrap();
    assert_eq!(hear.recv().unwrap(), Some(CommandToStepMgr::Signal(2)));
    assert_eq!(hear.recv().unwrap(), Some(CommandToStepMgr::Cancel));
    let run = child.wait_with_output().unwrap();
    assert_eq!(
        String::from_utf8_lossy(&run.stderr),
        "srun: sending Ctrl-C to StepId=503.0\nsrun: error: n1: task 0: Interrupt\n\
         srun: error: n2: task 1: Interrupt\nsrun: Force Terminated StepId=503.0\n"
    );
    assert_eq!(run.status.code(), Some(130));
}

#[test]
fn a_program_that_cannot_be_executed_is_told_with_the_time() {
    let cluster = FakeCluster::dead();
    cluster.serve(
        "run/j503-n1-x.sock",
        step_manager(|door, _| {
            let status = ExitStatus { code: 2, signal: None };
            let message = "execve(): /nosuch/program: No such file or directory".to_owned();
            door.say(StepMgrToCommand::TaskFailed { rank: 0, message, status });
            finish(door, 2);
        }),
    );
    let run = Shown::of(in_job(&cluster, &["srun", "/nosuch/program"]).output().unwrap());
    let (first, rest) = run.err.split_once('\n').unwrap();
    assert!(first.starts_with("[20"), "{first}");
    assert!(first.ends_with("] error: execve(): /nosuch/program: No such file or directory"), "{first}");
    assert_eq!(rest, "srun: error: n1: task 0: Exited with exit code 2\n");
    assert_eq!(run.code, Some(2));
}

#[test]
fn srun_hands_steps_over() {
    let cluster = FakeCluster::dead();
    let attempts = AtomicU32::new(0);
    cluster.serve("run/j503-n1-x.sock", move |mut door| {
        let Some(CommandToStepMgr::Enqueue { batch, .. }) = door.hear() else { return };
        assert!(matches!(&batch.specs[0].stdout, StreamTarget::File(path) if path.ends_with("/slurm-%J.out")));
        if attempts.fetch_add(1, Ordering::Relaxed) == 0 {
            door.say(StepMgrToCommand::Refused(Refusal::RetryAfter { after: Duration::from_millis(1) }));
        } else {
            let given = Some(GivenNumbers { first: 0, count: 1, array: false });
            door.say(StepMgrToCommand::Enqueued { given, declined: vec![], warnings: vec![] });
        }
    });
    let busy = in_job(&cluster, &["srun", "-Q", "--async", "-N1", "-n1", "true"]).output().unwrap();
    assert_eq!(Shown::of(busy), shown("Submitted step 503.0\n", "", 0));
    let run = in_job(&cluster, &["srun", "--async", "--parsable", "-N1", "-n1", "true"]).output().unwrap();
    assert_eq!(Shown::of(run), shown("503.0\n", "", 0));
    cluster.file("step.sh", "#!/bin/sh\n");
    let run = in_job(&cluster, &["srun", "--batch", "-N1", "step.sh", "x"]).output().unwrap();
    assert_eq!(Shown::of(run), shown("Submitted batch step 503.0\n", "", 0));
}

#[test]
fn a_job_that_is_not_there_is_said_so() {
    let cluster = FakeCluster::with_controller(|mut door| {
        if door.hear::<CommandRequest>().is_some() {
            door.say(CommandReply::Refused(Refusal::InvalidJobId));
        }
    });
    let err = "srun: error: Unable to confirm allocation for job 99: Invalid job id specified\n\
               srun: Check SLURM_JOB_ID environment variable. Expired or invalid job 99\n";
    assert_eq!(cluster.run(&["srun", "--jobid=99", "true"]), shown("", err, 1));
}

#[test]
fn swait_ends_when_nothing_is_left_or_the_time_is_up() {
    let cluster = FakeCluster::dead();
    cluster.serve("run/j503-n1-x.sock", |mut door| {
        if let Some(CommandToStepMgr::Wait { .. }) = door.hear() {
            let counts = StepCounts { queued: 0, running: 0, done: 3, failed: 0, cancelled: 0 };
            door.say(StepMgrToCommand::Drained { job: JOB, counts, worst: ExitStatus::SUCCESS });
        }
    });
    let run = in_job(&cluster, &["swait"]).output().unwrap();
    assert_eq!(Shown::of(run), shown("", "", 0));
    let cluster = FakeCluster::dead();
    cluster.serve("run/j503-n1-x.sock", |mut door| {
        door.hear::<CommandToStepMgr>();
        door.hear::<CommandToStepMgr>();
    });
    let run = in_job(&cluster, &["swait", "--timeout", "1"]).output().unwrap();
    assert_eq!(Shown::of(run), shown("", "swait: error: timed out after 1 seconds\n", 1));
}
