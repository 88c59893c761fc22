//! `srun --pty` and `salloc` at a terminal, which the test plays with a pseudo terminal.

#![allow(clippy::unwrap_used)]

#[allow(dead_code, reason = "shared with other tests")]
use crate::fake_door::{Conversation, FakeCluster, views::job_view};
use garrick_model::{
    ids::{JobId, Sluid, StepId, StepNum},
    messages::{
        command::{CommandReply, CommandRequest},
        shepherd::Stream,
        step::{CommandToStepMgr, StepGroup, StepLayout, StepMgrToCommand},
    },
    refusal::Refusal,
    spec::JobSpec,
    state::{ExitStatus, JobState, StepState},
    time::Timestamp,
    view::StepCounts,
};
use nix::{
    pty::{OpenptyResult, Winsize, openpty},
    sys::termios::{LocalFlags, tcgetattr},
};
use serde_bytes::ByteBuf;
use std::{
    fs::File,
    io::{Read, Write},
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::process::CommandExt,
    },
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
};

pub fn terminal() -> OpenptyResult {
    openpty(Some(&Winsize { ws_row: 40, ws_col: 120, ws_xpixel: 0, ws_ypixel: 0 }), None).unwrap()
}

/// Starts a command with the terminal as its own.
pub fn start_at(mut command: Command, slave: &OwnedFd) -> Child {
    let end = || Stdio::from(slave.try_clone().unwrap());
    command.stdin(end()).stdout(end()).stderr(end());
    // SAFETY: between fork and exec only async-signal-safe system calls are made.
    unsafe {
        command.pre_exec(|| {
            libc::setsid();
            libc::ioctl(0, libc::TIOCSCTTY, 0);
            Ok(())
        });
    }
    command.spawn().unwrap()
}

/// Reads from the terminal until `end` has been seen.
pub fn read_until(master: &mut File, end: &str) -> String {
    let mut seen = Vec::new();
    let mut byte = [0];
    while !seen.ends_with(end.as_bytes()) {
        match master.read(&mut byte) {
            Ok(1) => seen.push(byte[0]),
            _ => panic!("the terminal closed after {:?}", String::from_utf8_lossy(&seen)),
        }
    }
    String::from_utf8_lossy(&seen).into_owned()
}

fn echo(door: &mut Conversation) {
    let Some(CommandToStepMgr::Launch { spec, .. }) = door.hear() else { return };
    assert_eq!(spec.pty, Some((40, 120)));
    let step = StepId::new(JobId(7), StepNum::Number(0));
    door.say(StepMgrToCommand::Accepted { step, sluid: Sluid(1), warnings: vec![] });
    door.say(StepMgrToCommand::Started(StepLayout {
        nodes: vec!["n1".to_owned()],
        ranks: vec![vec![0]],
        handed: [false; 3],
    }));
    let say = |door: &mut Conversation, text: String| {
        let data = ByteBuf::from(text);
        door.say(StepMgrToCommand::Output { rank: 0, stream: Stream::Stdout, data });
    };
    // Raw mode is on when the first key comes through without a line end.
    say(door, "ready".to_owned());
    while let Some(message) = door.hear() {
        match message {
            CommandToStepMgr::Stdin(keys) if keys.contains(&b'q') => break,
            CommandToStepMgr::Stdin(keys) => say(door, format!("<{keys:?}>")),
            CommandToStepMgr::Resize { rows, cols } => say(door, format!("<{rows}x{cols}>")),
            other => say(door, format!("<{other:?}>")),
        }
    }
    let exit = ExitStatus { code: 4, signal: None };
    door.say(StepMgrToCommand::TaskExited { rank: 0, status: exit, oom: false });
    door.say(StepMgrToCommand::Finished { exit, state: StepState::Failed });
}

#[test]
fn a_step_in_a_terminal_gets_every_key_and_size_and_leaves_the_terminal_as_it_was() {
    let cluster = FakeCluster::dead();
    let door = cluster.serve("run/j7-n1-x.sock", |mut door| echo(&mut door));
    let OpenptyResult { master, slave } = terminal();
    let before = tcgetattr(&slave).unwrap().local_flags;
    let mut command = cluster.command(&["srun", "--pty", "bash"]);
    command.env("SLURM_JOB_ID", "7").env("GARRICK_STEPD_DOOR", door);
    let mut child = start_at(command, &slave);
    let mut master = File::from(master);
    read_until(&mut master, "ready");
    assert!(!tcgetattr(&slave).unwrap().local_flags.contains(LocalFlags::ICANON));
    // Ctrl-C is a key like any other.
    master.write_all(&[3]).unwrap();
    assert_eq!(read_until(&mut master, ">"), "<[3]>");
    let size = libc::winsize { ws_row: 50, ws_col: 132, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: TIOCSWINSZ reads one winsize, which is what the pointer refers to.
    assert_eq!(unsafe { libc::ioctl(slave.as_raw_fd(), libc::TIOCSWINSZ, &raw const size) }, 0);
    assert_eq!(read_until(&mut master, ">"), "<50x132>");
    master.write_all(b"q").unwrap();
    let end = read_until(&mut master, "code 4\r\n");
    assert_eq!(end, "srun: error: n1: task 0: Exited with exit code 4\r\n");
    assert_eq!(child.wait().unwrap().code(), Some(4));
    assert_eq!(tcgetattr(&slave).unwrap().local_flags, before);
}

/// A controller that grants one allocation.
fn granting() -> FakeCluster {
    let kept = Mutex::new(None::<JobSpec>);
    FakeCluster::with_controller(move |mut door| match door.hear() {
        Some(CommandRequest::SubmitJob { spec, .. }) => {
            *kept.lock().unwrap() = Some(*spec);
            door.say(CommandReply::Submitted { job: JobId(7), warnings: vec![] });
        }
        Some(CommandRequest::Watch { .. }) => {
            let spec = kept.lock().unwrap().clone().unwrap();
            door.say(CommandReply::Job(Arc::new(job_view(JobId(7), spec, JobState::Running))));
            door.hear::<CommandRequest>();
        }
        Some(CommandRequest::LocateStepManager { .. }) => door.say(CommandReply::Refused(Refusal::JobPending)),
        _ => door.say(CommandReply::Done),
    })
}

#[test]
fn the_command_of_salloc_has_the_terminal_and_ctrl_c_ends_only_what_it_runs() {
    let cluster = granting();
    let OpenptyResult { master, slave } = terminal();
    // Behind the name: state, parent, group, session, terminal, group of the terminal. See proc_pid_stat(5).
    let script = "set -- $(sed 's/.*) //' /proc/$$/stat); test \"$3\" -eq \"$6\" && echo has it; \
                  trap 'echo interrupted; exit 3' INT; echo ready; while :; do sleep 0.1; done";
    let mut child = start_at(cluster.command(&["salloc", "bash", "-c", script]), &slave);
    let mut master = File::from(master);
    let start = read_until(&mut master, "ready\r\n");
    assert!(start.contains("salloc: Granted job allocation 7\r\n"), "{start}");
    assert!(start.contains("has it\r\n"), "{start}");
    master.write_all(&[3]).unwrap();
    let end = read_until(&mut master, "job allocation 7\r\n");
    assert!(end.contains("interrupted\r\n"), "{end}");
    assert!(end.ends_with("salloc: Relinquishing job allocation 7\r\n"), "{end}");
    assert_eq!(child.wait().unwrap().code(), Some(3));
}

#[test]
fn a_wait_shows_how_far_it_is_and_leaves_nothing_behind() {
    let cluster = FakeCluster::dead();
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let door = cluster.serve("run/j7-n1-x.sock", move |mut door| {
        let Some(CommandToStepMgr::Wait { progress_ms, .. }) = door.hear() else { return };
        assert!(progress_ms > 0);
        let counts = StepCounts { queued: 30, running: 4, done: 60, failed: 6, cancelled: 0 };
        door.say(StepMgrToCommand::Progress(counts));
        // Not before the bar was seen.
        wait.lock().unwrap().recv().unwrap();
        door.say(StepMgrToCommand::Drained { job: JobId(7), counts, worst: ExitStatus::SUCCESS });
    });
    let OpenptyResult { master, slave } = terminal();
    let mut command = cluster.command(&["swait"]);
    command.env("SLURM_JOB_ID", "7").env("GARRICK_STEPD_DOOR", door).env("TERM", "xterm");
    let mut child = start_at(command, &slave);
    drop(slave);
    let mut master = File::from(master);
    let bar = read_until(&mut master, ">");
    assert!(bar.contains("30 queued, 4 running, 60 done, 6 failed [==="), "{bar:?}");
    let rest = read_until(&mut master, "]");
    // Two thirds are over, and it is one line of this terminal.
    let (done, left) = (bar.matches('=').count(), rest.matches(' ').count());
    assert!(done > 40 && left > 20 && bar.chars().filter(|c| !c.is_control()).count() + left <= 130, "{bar:?}{rest:?}");
    go.send(()).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let mut rest = Vec::new();
    // A terminal that nobody holds any more ends with an error.
    let _ = master.read_to_end(&mut rest);
    let rest = String::from_utf8_lossy(&rest);
    assert!(rest.ends_with("\x1b[2K") && !rest.contains('\n'), "{rest:?}");
}

/// What a terminal of so many rows shows of arrays of which the first are the busiest, up to `end`; and the rest.
fn bars_of(rows: u16, arrays: u32, end: &str) -> (String, String) {
    let cluster = FakeCluster::dead();
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let door = cluster.serve("run/j7-n1-x.sock", move |mut door| {
        let Some(CommandToStepMgr::Wait { groups: true, .. }) = door.hear() else { return };
        let counts = |queued, running| StepCounts { queued, running, done: 1, failed: 0, cancelled: 0 };
        let array = |n: u32| StepGroup {
            first: n,
            last: n,
            array: true,
            name: "work".to_owned(),
            counts: counts(9, u64::from(arrays - n)),
        };
        let (groups, rest) = ((0..arrays).map(array).collect(), StepCounts::default());
        door.say(StepMgrToCommand::Groups { counts: counts(90, 30), groups, left_out: 0, rest });
        wait.lock().unwrap().recv().unwrap();
        let counts = counts(0, 0);
        door.say(StepMgrToCommand::Drained { job: JobId(7), counts, worst: ExitStatus::SUCCESS });
    });
    let size = Winsize { ws_row: rows, ws_col: 120, ws_xpixel: 0, ws_ypixel: 0 };
    let OpenptyResult { master, slave } = openpty(Some(&size), None).unwrap();
    let mut command = cluster.command(&["swait"]);
    command.env("SLURM_JOB_ID", "7").env("GARRICK_STEPD_DOOR", door).env("TERM", "xterm");
    let mut child = start_at(command, &slave);
    drop(slave);
    let mut master = File::from(master);
    let seen = read_until(&mut master, end);
    go.send(()).unwrap();
    let mut rest = Vec::new();
    let _ = master.read_to_end(&mut rest);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    (seen, String::from_utf8_lossy(&rest).into_owned())
}

#[test]
fn each_array_has_a_bar_and_what_the_terminal_has_no_room_for_is_one_line() {
    let all = "90 queued, 30 running, 1 done, 0 failed [";
    let (seen, rest) = bars_of(40, 3, all);
    for bar in ["7.0 work  9 queued, 3 running, 1 done, 0 failed [", "7.1 work  9", "7.2 work  9"] {
        assert!(seen.contains(bar), "{bar}: {seen:?}");
    }
    // They are gone at the end.
    assert!(rest.ends_with("\x1b[2K"), "{rest:?}");
    let (seen, _) = bars_of(6, 9, all);
    for bar in ["7.0 work  9 queued, 9 running", "7.2 work", "6 more    54 queued, 21 running, 6 done, 0 failed ["] {
        assert!(seen.contains(bar), "{bar}: {seen:?}");
    }
    assert!(!seen.contains("7.3"), "{seen:?}");
}

#[test]
fn the_name_of_anothers_job_does_nothing_to_the_terminal() {
    let spec = JobSpec { name: "a\u{1b}[2Jb".to_owned(), ..JobSpec::default() };
    let cluster = FakeCluster::with_controller(move |mut door| {
        while let Some(CommandRequest::ListJobs { .. }) = door.hear() {
            let job = Arc::new(job_view(JobId(7), spec.clone(), JobState::Running));
            door.say(CommandReply::Jobs { jobs: vec![job], at: Timestamp(0), more: false });
        }
    });
    let OpenptyResult { master, slave } = terminal();
    let mut child = start_at(cluster.command(&["squeue", "-h", "-o", "%j"]), &slave);
    // Held until it has ended: it would be hung up on.
    let mut master = File::from(master);
    assert_eq!(read_until(&mut master, "\n"), "a\\u{1b}[2Jb\r\n");
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let output = cluster.command(&["squeue", "-h", "-o", "%j"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "a\\u{1b}[2Jb\n");
}
