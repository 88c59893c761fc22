#![allow(clippy::unwrap_used)]
use super::*;
use garrick_model::{
    ids::{JobId, Sluid, StepNum},
    messages::step::StepLayout,
};
use std::rc::Weak;

const SRUN: ClientId = ClientId(4);

fn step() -> StepId {
    StepId::new(JobId(7), StepNum::Number(2))
}

/// A store that keeps three descriptors for a step that was accepted, and what tells whether they are open still.
fn kept(descriptors: [bool; 3]) -> (HandedStreams<Rc<u8>>, Vec<Weak<u8>>) {
    let streams = HandedStreams::default();
    let numbered = descriptors.iter().zip(0..).filter(|(said, _)| **said);
    let fds: Vec<Rc<u8>> = numbered.map(|(_, number)| Rc::new(number)).collect();
    let watches = fds.iter().map(Rc::downgrade).collect();
    let mut said = descriptors;
    streams.keep(SRUN, &mut said, fds);
    assert_eq!(said, descriptors);
    let accepted = StepMgrToCommand::Accepted { step: step(), sluid: Sluid(1), warnings: vec![] };
    streams.told(SRUN, &accepted);
    (streams, watches)
}

fn started(tasks: u32, handed: [bool; 3]) -> StepMgrToCommand {
    let layout = StepLayout { nodes: vec!["n1".to_owned()], ranks: vec![(0..tasks).collect()], handed };
    StepMgrToCommand::Started(layout)
}

fn open(watches: &[Weak<u8>]) -> Vec<bool> {
    watches.iter().map(|w| w.upgrade().is_some()).collect()
}

#[test]
fn each_stream_is_passed_to_each_task_and_closed_with_the_last() {
    let (streams, watches) = kept([false, true, true]);
    streams.told(SRUN, &started(2, [false, true, true]));
    assert_eq!(**streams.pass(step(), 1).unwrap(), 1);
    assert_eq!(**streams.pass(step(), 2).unwrap(), 2);
    assert_eq!(open(&watches), [true, true]);
    assert_eq!(**streams.pass(step(), 1).unwrap(), 1);
    assert_eq!(open(&watches), [false, true]);
    drop(streams.pass(step(), 2).unwrap());
    assert_eq!(open(&watches), [false, false]);
    assert!(streams.pass(step(), 1).is_err());
}

#[test]
fn tasks_may_be_passed_theirs_before_the_command_is_told_of_the_start() {
    let (streams, watches) = kept([true, true, true]);
    for number in 0..3 {
        drop(streams.pass(step(), number).unwrap());
    }
    assert_eq!(open(&watches), [true, true, true]);
    streams.told(SRUN, &started(1, [true, true, true]));
    assert_eq!(open(&watches), [false, false, false]);
}

#[test]
fn what_a_step_does_not_use_is_closed_when_it_starts() {
    let (streams, watches) = kept([true, true, true]);
    streams.told(SRUN, &started(2, [false, true, false]));
    assert_eq!(open(&watches), [false, true, false]);
    let (streams, watches) = kept([true, true, true]);
    streams.told(SRUN, &started(2, [false; 3]));
    assert_eq!(open(&watches), [false, false, false]);
    assert!(streams.pass(step(), 1).is_err());
}

#[test]
fn the_end_of_a_conversation_closes_what_it_brought() {
    let (streams, watches) = kept([false, true, true]);
    streams.forget(ClientId(5));
    assert_eq!(open(&watches), [true, true]);
    streams.forget(SRUN);
    assert_eq!(open(&watches), [false, false]);
    assert!(streams.pass(step(), 1).is_err());
    let (streams, watches) = kept([false, true, true]);
    streams.forget_all();
    assert_eq!(open(&watches), [false, false]);
}

#[test]
fn a_request_whose_descriptors_did_not_all_come_hands_none_over() {
    let streams = HandedStreams::default();
    let fd = Rc::new(1);
    let watch = [Rc::downgrade(&fd)];
    let mut said = [true, true, true];
    streams.keep(SRUN, &mut said, vec![fd]);
    assert_eq!((said, open(&watch)), ([false; 3], vec![false]));
    let mut said = [false, true, true];
    streams.keep(SRUN, &mut said, vec![]);
    assert_eq!(said, [false; 3]);
}
