#![allow(clippy::unwrap_used)]
use super::*;
use crate::options::{
    step_spec::StepStreams,
    stream_plan::{Input, Sink},
};
use garrick_frame::{Decoder, Hello, HelloReply, LinkKind, PROTOCOL, Traced, encode, limits};
use garrick_model::{
    ids::{JobId, Sluid, StepNum},
    messages::step::StepLayout,
    state::{ExitStatus, StepState},
};
use nix::sys::signal::Signal;
use std::{
    fs,
    io::{Read as _, Write as _},
    os::unix::net::UnixStream,
    path::PathBuf,
    thread,
};

/// The step manager's end of a door, played by the test.
struct Manager {
    socket: UnixStream,
    decoder: Decoder,
}

impl Manager {
    fn new(socket: UnixStream) -> Self {
        let mut manager = Self { socket, decoder: Decoder::new(limits::DOOR) };
        let hello: Hello = manager.frame();
        assert_eq!(hello.link, LinkKind::CommandToStepMgr);
        manager.write(&HelloReply::Welcome { version: PROTOCOL.max, program: "stepd".to_owned() });
        manager
    }

    fn frame<T: serde::de::DeserializeOwned>(&mut self) -> T {
        let mut piece = [0; 4096];
        loop {
            if let Some(message) = self.decoder.next().unwrap() {
                return message;
            }
            let count = self.socket.read(&mut piece).unwrap();
            assert!(count > 0, "srun closed the door");
            self.decoder.feed(&piece[..count]);
        }
    }

    fn write<T: serde::Serialize>(&mut self, message: &T) {
        self.socket.write_all(&encode(message, limits::DOOR).unwrap()).unwrap();
    }

    fn hear(&mut self) -> CommandToStepMgr {
        self.frame::<Traced<CommandToStepMgr>>().msg
    }

    fn say(&mut self, message: StepMgrToCommand) {
        self.write(&Traced::untraced(message));
    }

    fn start(&mut self, ranks: Vec<u32>) {
        let step = StepId::new(JobId(7), StepNum::Number(0));
        self.say(StepMgrToCommand::Accepted { step, sluid: Sluid(1), warnings: vec![] });
        self.say(StepMgrToCommand::Started(StepLayout {
            nodes: vec!["n1".to_owned()],
            ranks: vec![ranks],
            handed: [false; 3],
        }));
    }

    fn output(&mut self, rank: u32, text: &[u8]) {
        self.say(StepMgrToCommand::Output { rank, stream: Stream::Stdout, data: serde_bytes::ByteBuf::from(text) });
    }

    fn finish(&mut self, code: u8) {
        let exit = ExitStatus { code, signal: None };
        self.say(StepMgrToCommand::TaskExited { rank: 0, status: exit, oom: false });
        let state = if code == 0 { StepState::Completed } else { StepState::Failed };
        self.say(StepMgrToCommand::Finished { exit, state });
    }
}

fn folder(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("garrick-loop-{name}-{}", std::process::id()));
    fs::create_dir_all(&path).unwrap();
    path
}

/// Runs a conversation with files in `dir`; returns the exit code.
fn run(dir: &std::path::Path, label: bool, input: Input, manager: impl FnOnce(Manager) + Send + 'static) -> i32 {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let played = thread::spawn(move || manager(Manager::new(theirs)));
    let mut door = DoorClient::over(ours, LinkKind::CommandToStepMgr, "srun 0").unwrap();
    door.send(&CommandToStepMgr::Wait { steps: vec![], any: false, progress_ms: 0, groups: false, stay: false })
        .unwrap();
    let plan = StreamPlan {
        input,
        output: Sink::File(dir.join("out-%J").to_str().unwrap().to_owned()),
        error: Sink::AsOutput,
        targets: StepStreams::default(),
    };
    let behaviour = Behaviour {
        own_job: false,
        job: JobId(7),
        label,
        unbuffered: false,
        output: plan.output.clone(),
        error: plan.error.clone(),
        relays_input: plan.input != Input::None,
        pty: false,
        disable_status: false,
        quit_on_interrupt: false,
        kill_on_bad_exit: false,
        may_relay: true,
        immediate: None,
    };
    let names = PatternNames { user: "alice".to_owned(), job_name: "demo".to_owned(), array_task: None };
    let signals = Signals::block(&[Signal::SIGWINCH]).unwrap();
    let console = Console::new("srun");
    let code =
        StepLoop::new(Managers::one(door), behaviour, &plan, OpenMode::Default, &names, &signals, &console).run();
    played.join().unwrap();
    code
}

#[test]
fn output_reaches_the_file_named_by_the_step() {
    let dir = folder("output");
    let code = run(&dir, true, Input::None, |mut manager| {
        manager.hear();
        manager.start(vec![0, 1]);
        manager.output(1, b"hel");
        manager.output(0, b"zero\n");
        manager.output(1, b"lo\n");
        manager.finish(0);
    });
    assert_eq!(code, 0);
    assert_eq!(fs::read_to_string(dir.join("out-7.0")).unwrap(), "0: zero\n1: hello\n");
    fs::remove_dir_all(dir).unwrap();
}

#[test]
fn consumed_output_is_granted_anew() {
    let dir = folder("grant");
    let code = run(&dir, false, Input::None, |mut manager| {
        manager.hear();
        manager.start(vec![0]);
        manager.output(0, &[b'x'; 40_000]);
        assert_eq!(manager.hear(), CommandToStepMgr::Consumed(40_000));
        manager.finish(3);
    });
    assert_eq!(code, 3);
    assert_eq!(fs::metadata(dir.join("out-7.0")).unwrap().len(), 40_000);
    fs::remove_dir_all(dir).unwrap();
}

#[test]
fn input_is_relayed_to_its_end_within_the_window() {
    let dir = folder("input");
    let file = dir.join("in");
    let text: Vec<u8> = (0..600_000u32).map(|i| b'a' + u8::try_from(i % 26).unwrap()).collect();
    fs::write(&file, &text).unwrap();
    let input = Input::File(file.to_str().unwrap().to_owned());
    let code = run(&dir, false, input, move |mut manager| {
        manager.hear();
        manager.start(vec![0]);
        let mut got = Vec::new();
        let mut under_way = 0;
        loop {
            let CommandToStepMgr::Stdin(piece) = manager.hear() else { panic!("only input is expected") };
            if piece.is_empty() {
                break;
            }
            under_way += piece.len();
            assert!(under_way <= 256 * 1024);
            got.extend_from_slice(&piece);
            if under_way == 256 * 1024 {
                manager.say(StepMgrToCommand::StdinConsumed(under_way as u64));
                under_way = 0;
            }
        }
        assert!(got == text);
        manager.finish(0);
    });
    assert_eq!(code, 0);
    fs::remove_dir_all(dir).unwrap();
}

#[test]
fn a_manager_that_goes_away_is_an_error() {
    let dir = folder("lost");
    let code = run(&dir, false, Input::None, |mut manager| {
        manager.hear();
        manager.start(vec![0]);
    });
    assert_eq!(code, 1);
    fs::remove_dir_all(dir).unwrap();
}

#[test]
fn an_output_file_that_cannot_be_opened_ends_the_step() {
    let code = run(std::path::Path::new("/nonexistent"), false, Input::None, |mut manager| {
        manager.hear();
        let step = StepId::new(JobId(7), StepNum::Number(0));
        manager.say(StepMgrToCommand::Accepted { step, sluid: Sluid(1), warnings: vec![] });
        // The closed door is what kills the step.
        let mut rest = Vec::new();
        let _ = manager.socket.read_to_end(&mut rest);
    });
    assert_eq!(code, 1);
}

#[test]
fn a_task_that_cannot_be_executed_is_reported_with_the_time() {
    let at = Timestamp(1_795_255_260_528);
    let zone = jiff::tz::TimeZone::UTC;
    let line = task_error_line("execve(): /nosuch/program: No such file or directory", at, &zone);
    assert_eq!(line, "[2026-11-21T10:01:00.528] error: execve(): /nosuch/program: No such file or directory\n");
}
