use super::*;
use garrick_model::{
    ids::{Sluid, StepNum},
    messages::step::StepLayout,
    refusal::Refusal,
    state::Reason,
};
use serde_bytes::ByteBuf;

const STEP: StepId = StepId::new(JobId(512), StepNum::Number(0));

fn behaviour() -> Behaviour {
    Behaviour {
        own_job: false,
        job: JobId(512),
        label: false,
        unbuffered: false,
        output: Sink::Own,
        error: Sink::Own,
        relays_input: true,
        pty: false,
        disable_status: false,
        quit_on_interrupt: false,
        kill_on_bad_exit: false,
        may_relay: true,
        immediate: None,
    }
}

struct Talk {
    conversation: Conversation,
    now: Duration,
}

/// What `-v` says of launch and ends, which one test is about.
fn is_of_launch(effect: &Effect) -> bool {
    let begins = ["launching ", "Node ", "Received task exit notification "];
    matches!(effect, Effect::Verbose(text) if begins.iter().any(|begin| text.starts_with(begin)))
}

impl Talk {
    fn new(behaviour: Behaviour) -> Self {
        Self { conversation: Conversation::new(behaviour), now: Duration::ZERO }
    }

    fn says(&mut self, message: StepMgrToCommand) -> Vec<Effect> {
        let mut out = Vec::new();
        self.conversation.message(self.now, message, &mut out);
        out.retain(|effect| !is_of_launch(effect));
        out
    }

    fn gets(&mut self, signal: i32) -> Vec<Effect> {
        let mut out = Vec::new();
        self.conversation.signal(self.now, signal, &mut out);
        out
    }

    fn after(&mut self, time: Duration) -> Vec<Effect> {
        self.now += time;
        let mut out = Vec::new();
        self.conversation.tick(self.now, &mut out);
        out.retain(|effect| !is_of_launch(effect));
        out
    }

    /// Two tasks on n1, one on n2, running.
    fn running(behaviour: Behaviour) -> Self {
        let mut talk = Self::new(behaviour);
        let accepted = talk.says(StepMgrToCommand::Accepted { step: STEP, sluid: Sluid(1), warnings: vec![] });
        assert_eq!(accepted, [Effect::Numbered(STEP)]);
        let layout =
            StepLayout { nodes: vec!["n1".into(), "n2".into()], ranks: vec![vec![0, 1], vec![2]], handed: [false; 3] };
        assert!(talk.says(StepMgrToCommand::Started(layout)).is_empty());
        talk
    }
}

#[test]
fn handed_input_is_the_tasks_own_to_read() {
    for (handed, relays) in [([true, true, true], false), ([false, true, true], true)] {
        let mut talk = Talk::new(behaviour());
        talk.says(StepMgrToCommand::Accepted { step: STEP, sluid: Sluid(1), warnings: vec![] });
        let layout = StepLayout { nodes: vec!["n1".into()], ranks: vec![vec![0]], handed };
        assert!(talk.says(StepMgrToCommand::Started(layout)).is_empty());
        assert_eq!(talk.conversation.takes_input(), relays);
        assert_eq!(talk.conversation.input_room(), if relays { STDIN_WINDOW } else { 0 });
        talk.says(exited(0, 0, None));
        let end = talk.says(finished(0, None, StepState::Completed));
        assert_eq!(end.last(), Some(&Effect::End(0)));
    }
}

fn exited(rank: u32, code: u8, signal: Option<u8>) -> StepMgrToCommand {
    StepMgrToCommand::TaskExited { rank, status: ExitStatus { code, signal }, oom: false }
}

fn finished(code: u8, signal: Option<u8>, state: StepState) -> StepMgrToCommand {
    StepMgrToCommand::Finished { exit: ExitStatus { code, signal }, state }
}

fn output(rank: u32, stream: Stream, text: &str) -> StepMgrToCommand {
    StepMgrToCommand::Output { rank, stream, data: ByteBuf::from(text) }
}

fn error(text: &str) -> Effect {
    Effect::Error(text.to_owned())
}

fn info(text: &str) -> Effect {
    Effect::Info(text.to_owned())
}

/// In Slurm's words.
#[test]
fn with_v_launch_and_ends_are_told_by_node() {
    let mut conversation = Conversation::new(behaviour());
    let mut said = |message| {
        let mut out = Vec::new();
        conversation.message(Duration::ZERO, message, &mut out);
        let texts = out.into_iter().filter(is_of_launch).map(|effect| match effect {
            Effect::Verbose(text) => text,
            other => panic!("{other:?}"),
        });
        texts.collect::<Vec<_>>()
    };
    said(StepMgrToCommand::Accepted { step: STEP, sluid: Sluid(1), warnings: vec![] });
    let (nodes, ranks) = (vec!["n1".into(), "n2".into()], vec![vec![0, 2, 3], vec![1]]);
    assert_eq!(
        said(StepMgrToCommand::Started(StepLayout { nodes, ranks, handed: [false; 3] })),
        [
            "launching StepId=512.0 on host n1, 3 tasks: [0,2-3]",
            "launching StepId=512.0 on host n2, 1 tasks: 1",
            "Node n1, 3 tasks started",
            "Node n2, 1 tasks started",
        ]
    );
    for (rank, code) in [(0, 0), (1, 3), (2, 0), (3, 0)] {
        said(exited(rank, code, None));
    }
    assert_eq!(
        said(finished(3, None, StepState::Failed)),
        [
            "Received task exit notification for 3 tasks of StepId=512.0 (status=0x0000).",
            "Received task exit notification for 1 task of StepId=512.0 (status=0x0300).",
        ]
    );
}

#[test]
fn a_failing_task_is_reported_and_its_code_is_the_exit_code() {
    let mut talk = Talk::running(behaviour());
    talk.says(exited(0, 0, None));
    talk.says(exited(1, 0, None));
    talk.says(exited(2, 7, None));
    let end = talk.says(finished(7, None, StepState::Failed));
    assert_eq!(
        end,
        [
            Effect::Verbose("n1: tasks 0-1: Completed".to_owned()),
            error("n2: task 2: Exited with exit code 7"),
            Effect::End(7)
        ]
    );
}

#[test]
fn killed_tasks_are_gathered_by_node_and_end_with_force_terminated() {
    let mut talk = Talk::running(behaviour());
    talk.says(exited(1, 0, Some(9)));
    talk.says(exited(0, 0, Some(9)));
    assert_eq!(
        talk.says(finished(0, Some(9), StepState::Failed)),
        [error("n1: tasks 0-1: Killed"), info("Force Terminated StepId=512.0"), Effect::End(137)]
    );
}

#[test]
fn ends_are_reported_soon_while_other_tasks_run_on() {
    let mut talk = Talk::running(behaviour());
    assert!(talk.says(exited(0, 1, None)).is_empty());
    assert_eq!(talk.conversation.deadline(), Some(GATHER_ENDS));
    assert_eq!(talk.after(GATHER_ENDS), [error("n1: task 0: Exited with exit code 1")]);
    assert_eq!(talk.conversation.deadline(), None);
}

#[test]
fn a_program_that_cannot_be_executed_says_why_once() {
    let mut talk = Talk::running(behaviour());
    let failed = |rank| StepMgrToCommand::TaskFailed {
        rank,
        message: "execve(): /nosuch/program: No such file or directory".to_owned(),
        status: ExitStatus { code: 2, signal: None },
    };
    assert_eq!(
        talk.says(failed(0)),
        [Effect::TaskError("execve(): /nosuch/program: No such file or directory".to_owned())]
    );
    assert!(talk.says(failed(1)).is_empty());
    assert!(talk.says(exited(0, 2, None)).is_empty());
    assert_eq!(
        talk.says(finished(2, None, StepState::Failed)),
        [error("n1: tasks 0-1: Exited with exit code 2"), Effect::End(2)]
    );
}

#[test]
fn output_goes_where_it_belongs() {
    let mut talk = Talk::running(behaviour());
    assert_eq!(talk.says(output(0, Stream::Stdout, "a")), [Effect::Write(Stream::Stdout, b"a".to_vec())]);
    assert_eq!(talk.says(output(0, Stream::Stderr, "b")), [Effect::Write(Stream::Stderr, b"b".to_vec())]);
    assert!(talk.says(output(0, Stream::Stdout, "")).is_empty());
    let mut talk = Talk::running(Behaviour { output: Sink::OwnOf(1), error: Sink::AsOutput, ..behaviour() });
    assert!(talk.says(output(0, Stream::Stdout, "a")).is_empty());
    assert_eq!(talk.says(output(1, Stream::Stdout, "a")).len(), 1);
    assert_eq!(talk.says(output(0, Stream::Stderr, "b")), [Effect::Write(Stream::Stdout, b"b".to_vec())]);
}

#[test]
fn labelled_lines_are_whole_and_the_rest_comes_at_the_end() {
    let mut talk = Talk::running(Behaviour { label: true, ..behaviour() });
    assert_eq!(talk.says(output(2, Stream::Stdout, "x\ny")), [Effect::Write(Stream::Stdout, b"2: x\n".to_vec())]);
    let end = talk.says(finished(0, None, StepState::Completed));
    assert_eq!(end, [Effect::Write(Stream::Stdout, b"2: y\n".to_vec()), Effect::End(0)]);
}

#[test]
fn a_waiting_step_says_so_once_and_again_when_it_starts() {
    let mut talk = Talk::new(behaviour());
    talk.says(StepMgrToCommand::Accepted { step: STEP, sluid: Sluid(1), warnings: vec![] });
    let queued = || StepMgrToCommand::Queued { reason: Reason::Resources };
    let busy = "Job 512 step creation temporarily disabled, retrying (Requested nodes are busy)";
    assert_eq!(talk.says(queued()), [info(busy)]);
    assert!(matches!(talk.says(queued()).as_slice(), [Effect::Verbose(_)]));
    let layout = StepLayout { nodes: vec!["n1".into()], ranks: vec![vec![0]], handed: [false; 3] };
    assert_eq!(talk.says(StepMgrToCommand::Started(layout)), [info("Step created for StepId=512.0")]);
}

#[test]
fn ctrl_c_while_waiting_withdraws_the_step() {
    let mut talk = Talk::new(behaviour());
    talk.says(StepMgrToCommand::Queued { reason: Reason::Resources });
    assert_eq!(talk.gets(libc::SIGINT), [info("Cancelled pending job step with signal 2"), Effect::End(1)]);
}

#[test]
fn one_ctrl_c_reports_two_within_a_second_kill_three_give_up() {
    let mut talk = Talk::running(behaviour());
    talk.says(exited(2, 0, None));
    assert_eq!(
        talk.gets(libc::SIGINT),
        [
            info("interrupt (one more within 1 sec to abort)"),
            info("StepId=512.0 tasks 0-1: running"),
            info("StepId=512.0 task 2: exited"),
        ]
    );
    talk.after(Duration::from_millis(1500));
    assert_eq!(talk.gets(libc::SIGINT)[0], info("interrupt (one more within 1 sec to abort)"));
    talk.after(Duration::from_millis(900));
    assert_eq!(
        talk.gets(libc::SIGINT),
        [
            info("sending Ctrl-C to StepId=512.0"),
            Effect::Send(CommandToStepMgr::Signal(2)),
            Effect::Send(CommandToStepMgr::Cancel),
        ]
    );
    assert_eq!(talk.gets(libc::SIGINT), [info("forcing job termination"), Effect::End(130)]);
}

#[test]
fn ctrl_c_can_be_passed_on_or_quit_at_once() {
    let mut talk = Talk::running(Behaviour { disable_status: true, ..behaviour() });
    assert_eq!(talk.gets(libc::SIGINT), [Effect::Send(CommandToStepMgr::Signal(2))]);
    let mut talk = Talk::running(Behaviour { quit_on_interrupt: true, ..behaviour() });
    assert_eq!(talk.gets(libc::SIGINT).last(), Some(&Effect::Send(CommandToStepMgr::Cancel)));
    let mut talk = Talk::running(Behaviour { pty: true, ..behaviour() });
    assert_eq!(talk.gets(libc::SIGINT), [Effect::Send(CommandToStepMgr::Signal(2))]);
}

#[test]
fn other_signals_are_passed_on_and_stop_is_ignored() {
    let mut talk = Talk::running(behaviour());
    for signal in [libc::SIGTERM, libc::SIGUSR1, libc::SIGHUP] {
        assert_eq!(talk.gets(signal), [Effect::Send(CommandToStepMgr::Signal(signal))]);
    }
    assert!(talk.gets(libc::SIGTSTP).is_empty());
}

#[test]
fn a_cancelled_step_says_who_cancelled_it() {
    let mut talk = Talk::running(behaviour());
    let message = "STEP 512.0 ON n1 CANCELLED AT 2026-11-21T10:00:00 DUE TO TIME LIMIT".to_owned();
    assert_eq!(
        talk.says(StepMgrToCommand::Terminating { message }),
        [
            info("Job step aborted: Waiting up to 32 seconds for job step to finish."),
            Effect::Line(
                "slurmstepd: error: *** STEP 512.0 ON n1 CANCELLED AT 2026-11-21T10:00:00 DUE TO TIME LIMIT ***"
                    .to_owned()
            )
        ]
    );
    talk.says(exited(0, 0, Some(15)));
    assert_eq!(
        talk.says(finished(0, Some(15), StepState::Timeout)),
        [error("n1: task 0: Terminated"), info("Force Terminated StepId=512.0"), Effect::End(143)]
    );
}

#[test]
fn kill_on_bad_exit_names_the_step_that_it_ends() {
    let mut talk = Talk::running(Behaviour { kill_on_bad_exit: true, ..behaviour() });
    talk.says(exited(0, 1, None));
    let said = talk.says(StepMgrToCommand::Terminating { message: "STEP 512.0 ON n1 CANCELLED AT then".to_owned() });
    let failure = Effect::TaskError("*** STEP 512.0 ON n1 CANCELLED AT then DUE TO TASK FAILURE ***".to_owned());
    assert_eq!(said, [error("n1: task 0: Exited with exit code 1"), info("Terminating StepId=512.0"), failure]);
    // Of one that is the last nothing is left to end, and it is said all the same.
    let mut talk = Talk::running(Behaviour { kill_on_bad_exit: true, ..behaviour() });
    talk.says(exited(0, 2, None));
    let said = talk.says(finished(2, None, StepState::Failed));
    assert_eq!(said[1], info("Terminating StepId=512.0"));
}

#[test]
fn a_step_that_did_not_end_by_itself_is_no_success() {
    let mut talk = Talk::running(behaviour());
    assert_eq!(talk.says(finished(0, None, StepState::Cancelled)), [Effect::End(1)]);
    let mut talk = Talk::running(behaviour());
    assert_eq!(
        talk.says(finished(0, None, StepState::NodeFail)),
        [error("StepId=512.0: a node of the step failed"), Effect::End(1)]
    );
}

#[test]
fn out_of_memory_has_its_own_words_and_code() {
    let mut talk = Talk::running(behaviour());
    talk.says(StepMgrToCommand::TaskExited { rank: 0, status: ExitStatus { code: 0, signal: Some(9) }, oom: true });
    let end = talk.says(finished(0, Some(9), StepState::OutOfMemory));
    assert_eq!(end[0], error("n1: task 0: Out Of Memory"));
    assert_eq!(end.last(), Some(&Effect::End(253)));
}

#[test]
fn a_refused_step_gives_the_reason() {
    let mut talk = Talk::new(behaviour());
    let refusal = Refusal::StepImpossible { detail: "More processors requested than permitted".to_owned() };
    assert_eq!(
        talk.says(StepMgrToCommand::Refused(refusal)),
        [
            error("More processors requested than permitted"),
            error("Unable to create step for job 512: Requested node configuration is not available"),
            Effect::End(1)
        ]
    );
}

#[test]
fn a_lost_connection_is_an_error_even_if_no_task_failed() {
    let mut talk = Talk::running(behaviour());
    let mut out = Vec::new();
    talk.conversation.lost("closed", &mut out);
    assert_eq!(out, [error("Lost contact with the step manager of StepId=512.0: closed"), Effect::End(1)]);
}

#[test]
fn a_step_that_was_to_start_at_once_is_not_waited_for_while_nobody_knows_of_it() {
    let immediate = || Behaviour { immediate: Some(Duration::from_secs(1)), ..behaviour() };
    let late = "Unable to create step for job 512: its step manager did not answer in time (--immediate)";
    let mut talk = Talk::new(immediate());
    assert_eq!(talk.conversation.deadline(), Some(Duration::from_secs(1)));
    assert!(talk.after(Duration::from_millis(999)).is_empty());
    assert_eq!(talk.after(Duration::from_millis(1)), [error(late), Effect::End(1)]);
    // One that was accepted runs.
    let mut talk = Talk::running(immediate());
    assert!(talk.after(Duration::from_secs(9)).is_empty());
}

#[test]
fn that_a_connection_broke_is_said_once_until_something_is_heard() {
    let mut talk = Talk::new(behaviour());
    let parted = |talk: &mut Talk| {
        let mut out = Vec::new();
        talk.conversation.parted("closed", &mut out);
        out.len()
    };
    assert_eq!((parted(&mut talk), parted(&mut talk)), (1, 0));
    talk.says(StepMgrToCommand::Queued { reason: Reason::Resources });
    assert_eq!(parted(&mut talk), 1);
}

#[test]
fn a_command_that_waits_for_its_step_asks_again_and_one_with_a_step_asks_how_it_ended() {
    let parted = |talk: &mut Talk| {
        let mut out = Vec::new();
        let question = talk.conversation.parted("closed", &mut out);
        (question, out)
    };
    let mut talk = Talk::new(behaviour());
    let info = |text: &str| Effect::Info(text.to_owned());
    let said = info("Lost contact with the step manager of JobId=512 (closed); retrying");
    assert_eq!(parted(&mut talk), (None, vec![said]));
    let mut talk = Talk::running(behaviour());
    let (question, said) = parted(&mut talk);
    assert_eq!(question, Some(CommandToStepMgr::Rejoin { step: STEP, sluid: Sluid(1) }));
    let text = "Lost contact with the step manager of StepId=512.0 (closed); asking how the step ended";
    assert_eq!(said, [info(text)]);
    // Files that are written are not opened anew.
    assert!(talk.says(StepMgrToCommand::Accepted { step: STEP, sluid: Sluid(1), warnings: vec![] }).is_empty());
    let missing = error("StepId=512.0: output of the step may be missing: its step manager was lost");
    assert_eq!(talk.says(finished(0, None, StepState::Completed)), [missing, Effect::End(1)]);
}

/// What its step manager said of it was under way when the connection broke.
#[test]
fn a_step_that_began_and_ended_unheard_is_not_one_without_output() {
    let accepted = || StepMgrToCommand::Accepted { step: STEP, sluid: Sluid(1), warnings: vec![] };
    for queued in [false, true] {
        let mut talk = Talk::new(behaviour());
        if queued {
            talk.says(StepMgrToCommand::Queued { reason: Reason::Resources });
        }
        assert_eq!(talk.conversation.parted("closed", &mut Vec::new()), None);
        talk.says(accepted());
        let missing = error("StepId=512.0: output of the step may be missing: its step manager was lost");
        assert_eq!(talk.says(finished(0, None, StepState::Completed)), [missing, Effect::End(1)]);
    }
    let mut talk = Talk::new(behaviour());
    talk.conversation.parted("closed", &mut Vec::new());
    talk.says(accepted());
    let layout = StepLayout { nodes: vec!["n1".to_owned()], ranks: vec![vec![0]], handed: [false; 3] };
    talk.says(StepMgrToCommand::Started(layout));
    assert_eq!(talk.says(finished(0, None, StepState::Completed)), [Effect::End(0)], "it began after that");
}

#[test]
fn a_step_whose_tasks_had_their_commands_files_ends_as_it_did() {
    let ended = |exit| {
        let mut talk = Talk::new(behaviour());
        talk.says(StepMgrToCommand::Accepted { step: STEP, sluid: Sluid(1), warnings: vec![] });
        let layout = StepLayout { nodes: vec!["n1".to_owned()], ranks: vec![vec![0]], handed: [true; 3] };
        talk.says(StepMgrToCommand::Started(layout));
        talk.conversation.parted("closed", &mut Vec::new());
        talk.says(exit)
    };
    assert_eq!(ended(finished(0, None, StepState::Completed)), [Effect::End(0)]);
    assert_eq!(ended(finished(3, None, StepState::Failed)), [Effect::End(3)]);
    let aborted = error("StepId=512.0: Job step aborted: it was lost with its step manager");
    let said = ended(finished(0, Some(9), StepState::Failed));
    assert_eq!((said.first(), said.last()), (Some(&aborted), Some(&Effect::End(137))));
}

#[test]
fn a_signal_ends_the_way_back() {
    let mut talk = Talk::running(behaviour());
    let mut out = Vec::new();
    talk.conversation.given_up(libc::SIGTERM, &mut out);
    assert_eq!(out.last(), Some(&Effect::End(1)));
    let mut talk = Talk::new(behaviour());
    out.clear();
    talk.conversation.given_up(libc::SIGINT, &mut out);
    assert_eq!(out, [Effect::Info("Cancelled pending job step with signal 2".to_owned()), Effect::End(1)]);
}

#[test]
fn input_is_taken_only_while_tasks_run() {
    let mut talk = Talk::new(behaviour());
    assert!(!talk.conversation.takes_input());
    talk = Talk::running(behaviour());
    assert!(talk.conversation.takes_input());
    talk.says(finished(0, None, StepState::Completed));
    assert!(!talk.conversation.takes_input());
    assert!(!Talk::running(Behaviour { relays_input: false, ..behaviour() }).conversation.takes_input());
}

#[test]
fn input_under_way_is_bounded_by_the_window() {
    let mut talk = Talk::running(behaviour());
    let mut out = Vec::new();
    talk.conversation.input(vec![b'x'; 1000], &mut out);
    assert_eq!(talk.conversation.input_room(), STDIN_WINDOW - 1000);
    talk.conversation.input(vec![b'x'; 300_000], &mut out);
    assert_eq!(talk.conversation.input_room(), 0);
    assert!(talk.says(StepMgrToCommand::StdinConsumed(301_000)).is_empty());
    assert_eq!(talk.conversation.input_room(), STDIN_WINDOW);
}
