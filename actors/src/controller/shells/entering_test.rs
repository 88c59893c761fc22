#![allow(clippy::unwrap_used)]
//! Submissions on their way to the log.

use crate::controller::{
    fixtures::{MemoryJournal, Rig, TWO_NODES, with_system},
    messages::ControllerMsg,
};
use garrick_events::{event::ControllerEvent, records::job_event::JobEvent};
use garrick_model::{
    ids::{JobId, RequestId},
    messages::command::{CommandReply, CommandRequest},
    refusal::Refusal,
    testing::spec,
};
use garrick_runtime::{ReplyTo, System};
use std::time::Duration;
use tokio::sync::mpsc::UnboundedReceiver;

fn submission(request: u64) -> CommandRequest {
    CommandRequest::SubmitJob { request: RequestId(9, request), spec: Box::new(spec()) }
}

fn together(request: u64) -> CommandRequest {
    CommandRequest::SubmitHetJob { request: RequestId(9, request), specs: vec![spec(), spec()] }
}

fn rig(system: &System, conf: &str) -> Rig {
    Rig::start(system, conf, MemoryJournal::default())
}

async fn shown(rig: &Rig) -> usize {
    match rig.ask(1001, CommandRequest::list_jobs(Vec::new())).await {
        CommandReply::Jobs { jobs, .. } => jobs.len(),
        other => panic!("{other:?}"),
    }
}

async fn answer(replies: &mut UnboundedReceiver<CommandReply>) -> CommandReply {
    tokio::time::timeout(Duration::from_secs(20), replies.recv()).await.unwrap().unwrap()
}

fn job_of(reply: &CommandReply) -> JobId {
    match reply {
        CommandReply::Submitted { job, .. } => *job,
        other => panic!("{other:?}"),
    }
}

fn submitted(rig: &Rig) -> usize {
    let of_job = |event: &ControllerEvent| match event {
        ControllerEvent::Job { event, .. } => matches!(**event, JobEvent::Submitted(_)),
        _ => false,
    };
    rig.journal.events().iter().filter(|event| of_job(event)).count()
}

#[test]
fn a_job_is_shown_when_it_is_saved_and_a_repeat_waits_for_that() {
    with_system(async |system| {
        let rig = rig(&system, &format!("MaxJobCount=3\n{TWO_NODES}"));
        rig.until_nodes(2).await;
        rig.journal.hold();
        let mut first = rig.ask_stream(1001, submission(1));
        rig.journal.held().await;
        let mut repeat = rig.ask_stream(1001, submission(1));
        let mut both = rig.ask_stream(1001, together(2));
        rig.journal.held().await;
        assert_eq!(shown(&rig).await, 0);
        // They count all the same.
        let full = rig.ask(1001, submission(3)).await;
        assert!(matches!(full, CommandReply::Refused(Refusal::Full { .. })), "{full:?}");
        assert_eq!((rig.controller.env.entering.jobs(), first.is_empty(), repeat.is_empty()), (3, true, true));
        assert!(rig.controller.env.entering.bytes_of(1001) > 0);
        rig.journal.release();
        let job = job_of(&answer(&mut first).await);
        assert_eq!(job_of(&answer(&mut repeat).await), job);
        assert_eq!(job_of(&answer(&mut both).await), JobId(job.0 + 1));
        assert_eq!((shown(&rig).await, submitted(&rig)), (3, 3));
        assert_eq!(rig.controller.env.entering.requests(), []);
        assert_eq!(job_of(&rig.ask(1001, submission(1)).await), job);
        // Its owner says that.
        rig.until(job, |view| view.eligible).await;
    });
}

#[test]
fn what_the_log_refuses_is_to_be_tried_again_and_leaves_nothing_behind() {
    with_system(async |system| {
        let rig = rig(&system, TWO_NODES);
        rig.until_nodes(2).await;
        rig.journal.log.unsteady(5, 1000);
        for request in [submission(1), together(2)] {
            let refused = rig.ask(1001, request).await;
            assert!(matches!(refused, CommandReply::Refused(Refusal::RetryAfter { .. })), "{refused:?}");
        }
        let env = &rig.controller.env;
        assert_eq!((shown(&rig).await, env.committed.jobs(), submitted(&rig)), (0, vec![], 0));
        assert_eq!((env.entering.jobs(), env.entering.requests(), env.entering.bytes_of(1001)), (0, vec![], 0));
        rig.journal.log.unsteady(5, 0);
        job_of(&rig.ask(1001, submission(1)).await);
        job_of(&rig.ask(1001, together(2)).await);
        assert_eq!(shown(&rig).await, 3);
    });
}

#[test]
fn who_does_not_lead_takes_nothing_new_and_answers_questions() {
    with_system(async |system| {
        let rig = rig(&system, TWO_NODES);
        rig.until_nodes(2).await;
        rig.journal.log.lose(Some("host2".to_owned()), 0);
        let refused = rig.ask(1001, submission(1)).await;
        assert!(matches!(refused, CommandReply::Refused(Refusal::RetryAfter { .. })), "{refused:?}");
        assert_eq!((shown(&rig).await, submitted(&rig)), (0, 0));
    });
}

/// It was shown from the start, so that the next frontend had it; now the log's answer finds it wherever the frontend is.
#[test]
fn a_frontend_that_fails_takes_no_submission_with_it() {
    with_system(async |system| {
        let rig = rig(&system, TWO_NODES);
        rig.until_nodes(2).await;
        rig.journal.hold();
        let mut first = rig.ask_stream(1001, submission(1));
        rig.journal.held().await;
        rig.frontend().try_send(ControllerMsg::PanicForTests(ReplyTo::channel().0)).unwrap();
        assert_eq!(first.recv().await, None, "whoever waited is told that it failed");
        let mut repeat = rig.ask_stream(1001, submission(1));
        assert_eq!(shown(&rig).await, 0);
        rig.journal.release();
        let job = job_of(&answer(&mut repeat).await);
        assert_eq!((shown(&rig).await, submitted(&rig)), (1, 1));
        rig.until(job, |view| view.eligible).await;
        assert!(rig.controller.env.job(job).is_some());
        assert_eq!(rig.controller.env.entering.requests(), []);
    });
}
