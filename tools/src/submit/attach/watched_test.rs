#![allow(clippy::unwrap_used)]

use super::*;
use serde_bytes::ByteBuf;

fn watched(filters: Filters, label: bool) -> Watched {
    Watched::new("5609.3".parse().unwrap(), filters, label, false)
}

fn layout(handed: [bool; 3]) -> StepLayout {
    StepLayout { nodes: vec!["n1".to_owned(), "n2".to_owned()], ranks: vec![vec![0, 1], vec![2]], handed }
}

fn file(rank: u32, stream: Stream, path: &str, pack: bool) -> AttachedFile {
    let node = if rank < 2 { "n1" } else { "n2" }.to_owned();
    AttachedFile { rank, node, stream, path: path.to_owned(), pack }
}

fn said(watched: &mut Watched, message: StepMgrToCommand) -> Vec<Effect> {
    let mut out = Vec::new();
    watched.message(message, &mut out);
    out
}

fn output(rank: u32, stream: Stream, text: &str) -> StepMgrToCommand {
    StepMgrToCommand::Output { rank, stream, data: ByteBuf::from(text) }
}

fn attached(files: Vec<AttachedFile>) -> StepMgrToCommand {
    StepMgrToCommand::Attached { layout: layout([false; 3]), files, input: false, pty: false }
}

fn written(text: &str) -> Vec<Effect> {
    vec![Effect::Write(Stream::Stdout, text.as_bytes().to_vec())]
}

#[test]
fn what_is_relayed_is_written_labelled_and_filtered() {
    let mut plain = watched(Filters::default(), false);
    assert_eq!(said(&mut plain, attached(vec![])), []);
    assert_eq!(said(&mut plain, output(1, Stream::Stdout, "x")), written("x"));
    let mut labelled = watched(Filters { output: Some(1), error: None }, true);
    assert_eq!(said(&mut labelled, attached(vec![])), []);
    assert_eq!(said(&mut labelled, output(1, Stream::Stdout, "x\ny")), written("1: x\n"));
    assert_eq!(said(&mut labelled, output(0, Stream::Stdout, "x\n")), []);
    let error = Effect::Write(Stream::Stderr, b"0: e\n".to_vec());
    assert_eq!(said(&mut labelled, output(0, Stream::Stderr, "e\n")), [error]);
    let mut out = Vec::new();
    labelled.finish(&mut out);
    assert_eq!(out, written("1: y\n"));
}

#[test]
fn input_is_sent_where_tasks_take_it_and_a_terminal_where_there_is_one() {
    let attached = |input, pty| StepMgrToCommand::Attached { layout: layout([false; 3]), files: vec![], input, pty };
    let asked = |pty, to_one| watched(Filters::default(), false).with_input(pty, to_one);
    assert_eq!(said(&mut asked(false, false), attached(true, true)), [Effect::TakeInput { terminal: false }]);
    assert_eq!(said(&mut asked(true, true), attached(true, true)), [Effect::TakeInput { terminal: true }]);
    assert_eq!(said(&mut asked(false, false), attached(false, false)), []);
    let none = Effect::Info("step 5609.3 takes no input from commands".to_owned());
    assert_eq!(said(&mut asked(false, true), attached(false, false)), [none]);
    let no_terminal = Effect::Error("step 5609.3 has no pseudo terminal (srun --pty)".to_owned());
    let said_of = said(&mut asked(true, true), attached(true, false));
    assert_eq!(said_of, [no_terminal, Effect::GiveUp]);
    assert_eq!(said(&mut asked(false, false), StepMgrToCommand::StdinConsumed(5)), [Effect::Taken(5)]);
}

#[test]
fn the_exit_code_is_0_or_1() {
    let finished = |code, state| StepMgrToCommand::Finished { exit: ExitStatus { code, signal: None }, state };
    let mut watched = watched(Filters::default(), false);
    assert_eq!(said(&mut watched, finished(0, StepState::Completed)), [Effect::Ended(0)]);
    assert_eq!(said(&mut watched, finished(7, StepState::Failed)), [Effect::Ended(1)]);
    assert_eq!(said(&mut watched, finished(0, StepState::Cancelled)), [Effect::Ended(1)]);
}

#[test]
fn each_file_is_followed_once() {
    let mut watched = watched(Filters::default(), false);
    let files = vec![
        file(0, Stream::Stderr, "/o.0", false),
        file(0, Stream::Stdout, "/o.0", false),
        file(1, Stream::Stdout, "/shared", false),
        file(2, Stream::Stdout, "/shared", false),
        file(1, Stream::Stderr, "/p", true),
        file(2, Stream::Stderr, "/p", true),
    ];
    let effects = said(&mut watched, attached(files));
    let [Effect::Follow(wanted)] = effects.as_slice() else { panic!("{effects:?}") };
    let shown: Vec<_> =
        wanted.iter().map(|w| (w.path.to_str().unwrap(), w.node.as_str(), w.rank, w.stream, w.pack)).collect();
    assert_eq!(
        shown,
        [
            ("/o.0", "n1", Some(0), Stream::Stdout, false),
            ("/shared", "n1", None, Stream::Stdout, false),
            ("/p", "n1", Some(1), Stream::Stderr, true),
            ("/p", "n2", Some(2), Stream::Stderr, true),
        ]
    );
}

#[test]
fn files_of_other_tasks_are_not_followed() {
    let mut watched = watched(Filters { output: Some(1), error: Some(9) }, true);
    let files = vec![file(0, Stream::Stdout, "/o.0", false), file(1, Stream::Stdout, "/o.1", false)];
    let effects = said(&mut watched, attached(files));
    let [Effect::Follow(wanted)] = effects.as_slice() else { panic!("{effects:?}") };
    assert_eq!((wanted.len(), wanted[0].rank), (1, Some(1)));
}

#[test]
fn what_goes_straight_to_srun_cannot_be_watched() {
    let mut watched = watched(Filters::default(), false);
    let handed =
        |handed| StepMgrToCommand::Attached { layout: layout(handed), files: vec![], input: false, pty: false };
    let out = "standard output of step 5609.3 goes straight to its srun and cannot be watched".to_owned();
    assert_eq!(said(&mut watched, handed([true, true, false])), [Effect::Info(out.clone())]);
    let error = "standard error of step 5609.3 goes straight to its srun and cannot be watched".to_owned();
    let both = [Effect::Error(out), Effect::Error(error), Effect::GiveUp];
    assert_eq!(said(&mut watched, handed([true; 3])), both);
}

#[test]
fn the_layout_is_printed_alone() {
    let mut asking = Watched::new("5609.3".parse().unwrap(), Filters::default(), false, true);
    let want = "Job step layout:\n  3 tasks, 2 nodes (n[1-2])\n\n  Node 0 (n1), 2 task(s): 0 1\n  \
                Node 1 (n2), 1 task(s): 2\n";
    let files = vec![file(0, Stream::Stdout, "/o", false)];
    assert_eq!(said(&mut asking, attached(files)), [Effect::Layout(want.to_owned())]);
}

#[test]
fn a_step_that_does_not_run_is_said_so() {
    let mut watched = watched(Filters::default(), false);
    for (refusal, why) in [
        (Refusal::JobPending, "it waits"),
        (Refusal::InvalidStep("5609.3".to_owned()), "Job step 5609.3 not found"),
        (
            Refusal::StepArray { array: "5609.3".to_owned(), task: "5609.3_0".to_owned() },
            "Job step 5609.3 is a step array: name one of its tasks, for example 5609.3_0",
        ),
        (Refusal::AlreadyDone, "Job/step already completing or completed"),
    ] {
        let text = format!("Unable to attach to step 5609.3: {why}");
        assert_eq!(said(&mut watched, StepMgrToCommand::Refused(refusal)), [Effect::Error(text), Effect::GiveUp]);
    }
    let mut out = Vec::new();
    watched.lost("gone", &mut out);
    assert_eq!(out[1], Effect::GiveUp);
}
