#![allow(clippy::unwrap_used)]

use crate::stepmgr::{
    StepMgrConfig,
    builders::{exact, run},
    harness::Harness,
    messages::ClientId,
};
use garrick_model::{
    messages::{
        files::{FileOrder, FileRequest},
        step::{CommandToStepMgr, StepMgrToCommand},
    },
    refusal::Refusal,
    spec::JobKind,
};
use std::sync::Arc;

fn order() -> FileOrder {
    let path = b"/tmp/f".to_vec();
    FileOrder { path, named_by_node: false, force: false, mode: 0o600, times: None, folders: false }
}

fn send(harness: &mut Harness, step: Option<&str>, nodes: &[&str]) -> ClientId {
    let client = harness.connect();
    let nodes = nodes.iter().map(|&node| node.to_owned()).collect();
    let request = FileRequest { step: step.map(|step| step.parse().unwrap()), nodes, file: order(), width: 8 };
    harness.say(client, CommandToStepMgr::SendFile(Box::new(request)));
    harness.settle();
    client
}

#[test]
fn a_file_goes_to_the_nodes_of_the_job_of_a_step_or_of_a_list() {
    let mut harness = Harness::ready(run(JobKind::Allocation, &[2, 2, 2]), StepMgrConfig::default());
    harness.srun(exact("a", 3));
    harness.settle();
    for (step, nodes, slots) in
        [(None, vec![], vec![0, 1, 2]), (Some("502.0"), vec![], vec![0, 1]), (None, vec!["n3", "n1"], vec![0, 2])]
    {
        let client = send(&mut harness, step, &nodes);
        assert_eq!(harness.sent_files.last(), Some(&(client, slots)), "{step:?} {nodes:?}");
    }
    for (step, nodes, refusal) in [
        (Some("502.9"), vec![], Refusal::InvalidStep("502.9".into())),
        (Some("502.0"), vec!["n3"], Refusal::InvalidNode("n3".into())),
        (None, vec!["n9"], Refusal::InvalidNode("n9".into())),
    ] {
        let client = send(&mut harness, step, &nodes);
        assert_eq!(harness.last(client), Some(&StepMgrToCommand::Refused(refusal)));
    }
    assert_eq!(harness.sent_files.len(), 3);
}

#[test]
fn a_file_waits_for_shepherds_and_goes_nowhere_without_one() {
    let mut facts = run(JobKind::Allocation, &[1, 1]);
    Arc::make_mut(&mut facts.spec).no_kill = true;
    let mut harness = Harness::new(facts, StepMgrConfig::default());
    harness.shepherd_up(0);
    harness.settle();
    let client = send(&mut harness, None, &[]);
    assert!(harness.sent_files.is_empty() && harness.last(client).is_none());
    let gone = send(&mut harness, None, &[]);
    harness.hang_up(gone);
    harness.settle();
    harness.shepherd_up(1);
    harness.settle();
    assert_eq!(harness.sent_files, [(client, vec![0, 1])]);
    harness.lose(1);
    harness.settle();
    let late = send(&mut harness, None, &[]);
    let Some(StepMgrToCommand::FileDone(failures)) = harness.last(late) else { panic!("{:?}", harness.last(late)) };
    assert_eq!(failures.iter().map(|f| f.node.as_str()).collect::<Vec<_>>(), ["n2"]);
    assert_eq!(harness.sent_files.len(), 1);
}

#[test]
fn others_send_no_files() {
    let mut harness = Harness::ready(run(JobKind::Allocation, &[1]), StepMgrConfig::default());
    let client = harness.connect_as(4321);
    let request = FileRequest { step: None, nodes: Vec::new(), file: order(), width: 0 };
    harness.say(client, CommandToStepMgr::SendFile(Box::new(request)));
    harness.settle();
    assert_eq!(harness.last(client), Some(&StepMgrToCommand::Refused(Refusal::AccessDenied)));
    assert!(harness.sent_files.is_empty());
}
