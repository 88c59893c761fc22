//! Which runs are found to be over, from the events of a log.
#![allow(clippy::unwrap_used)]

use super::runs::{Runs, Wanted};
use garrick_actors::log::{Log as _, memory::MemoryLog};
use garrick_events::{
    event::ControllerEvent,
    records::{
        job::{Afterwards, End, Run},
        job_event::JobEvent,
    },
    testing::{cancelled, record},
};
use garrick_model::{
    ids::{JobId, Sluid},
    spec::JobSpec,
    state::JobState,
};
use garrick_runtime::ReplyTo;
use serde_json::json;

const STARTS: Wanted = Wanted { starts: true, scripts: false };

fn event(event: JobEvent) -> ControllerEvent {
    ControllerEvent::Job { job: JobId(7), event: Box::new(event) }
}

fn run() -> Run {
    let allocation = json!({ "nodes": [], "partition": "main", "exclusive": false });
    let run = json!({ "allocation": allocation, "addresses": [], "start": 5, "time_limit": "Unlimited" });
    serde_json::from_value(run).unwrap()
}

fn submitted() -> ControllerEvent {
    let spec = JobSpec { name: "test".into(), ..JobSpec::default() };
    event(JobEvent::Submitted(Box::new(record(7, spec))))
}

#[test]
fn a_job_that_never_ran_is_told_once() {
    let log = MemoryLog::default();
    log.append(vec![submitted()], ReplyTo::channel().0);
    let mut runs = Runs::new("maple", log.value(), Wanted::default()).unwrap();
    assert!(runs.take(&submitted()).is_none());
    let ended = event(JobEvent::Ended(cancelled()));
    log.append(vec![ended.clone()], ReplyTo::channel().0);
    let over = runs.take(&ended).unwrap();
    assert_eq!((over.row.state, over.row.start), (JobState::Cancelled, None));
    assert_eq!(over.row.cluster, "maple");
    assert!(runs.take(&event(JobEvent::Purged)).is_none());
    // It is gone for good: nothing is made up.
    log.append(vec![event(JobEvent::Purged)], ReplyTo::channel().0);
    assert!(runs.take(&ended).is_none());
}

#[test]
fn a_run_that_is_requeued_is_told_though_the_log_is_ahead() {
    let log = MemoryLog::default();
    log.append(vec![submitted()], ReplyTo::channel().0);
    let run = run();
    let allocated = event(JobEvent::Allocated(Box::new(run.clone())));
    log.append(vec![allocated.clone()], ReplyTo::channel().0);
    let mut runs = Runs::new("maple", log.value(), Wanted::default()).unwrap();
    assert!(runs.take(&allocated).is_none());
    let then = Afterwards::Requeue { hold: None, delay: false };
    let ended = event(JobEvent::Ended(End { state: JobState::NodeFail, then, at: run.start, ..cancelled() }));
    let requeued = event(JobEvent::Requeued { sluid: Sluid(99), hold: None, begin: None, expedited: false, at: None });
    log.append(vec![ended.clone(), requeued.clone()], ReplyTo::channel().0);
    let over = runs.take(&ended).unwrap();
    assert_eq!((over.row.state, over.row.start), (JobState::NodeFail, Some(run.start)));
    assert_ne!(over.row.sluid, Sluid(99));
    assert!(runs.take(&requeued).is_none());
}

/// The log may be ahead by a whole run.
#[test]
fn an_end_is_that_of_its_own_run() {
    let log = MemoryLog::default();
    log.append(vec![submitted()], ReplyTo::channel().0);
    let mut runs = Runs::new("maple", log.value(), Wanted::default()).unwrap();
    let first = log.value().look(JobId(7), |record| record.sluid);
    let run = Run { sluid: first, ..run() };
    let allocated = event(JobEvent::Allocated(Box::new(run.clone())));
    let then = Afterwards::Requeue { hold: None, delay: false };
    let end = End { state: JobState::NodeFail, then, at: run.start, sluid: first, ..cancelled() };
    let ended = event(JobEvent::Ended(end));
    let next = Sluid(first.unwrap().0 + 1);
    let requeued = event(JobEvent::Requeued { sluid: next, hold: None, begin: None, expedited: false, at: None });
    log.append(vec![allocated.clone(), ended.clone(), requeued], ReplyTo::channel().0);
    let over = runs.take(&ended).unwrap().row;
    assert_eq!((over.state, over.start, Some(over.sluid), over.restarts), (JobState::NodeFail, None, first, 0));
    assert!(runs.take(&allocated).is_none());
    let over = runs.take(&ended).unwrap().row;
    assert_eq!((over.state, over.start, Some(over.sluid)), (JobState::NodeFail, Some(run.start), first));
}

#[test]
fn a_start_is_told_where_the_site_wants_it() {
    let log = MemoryLog::default();
    log.append(vec![submitted()], ReplyTo::channel().0);
    let run = run();
    let allocated = event(JobEvent::Allocated(Box::new(run.clone())));
    log.append(vec![allocated.clone()], ReplyTo::channel().0);
    let mut runs = Runs::new("maple", log.value(), STARTS).unwrap();
    let started = runs.take(&allocated).unwrap();
    assert!(started.starts && started.row.end.is_none());
    assert_eq!((started.row.state, started.row.start), (JobState::Running, Some(run.start)));
    let ended = event(JobEvent::Ended(End { at: run.start, ..cancelled() }));
    log.append(vec![ended.clone()], ReplyTo::channel().0);
    assert!(!runs.take(&ended).unwrap().starts);
}

/// With nodes that are powered up for it, it starts when the last one has come.
#[test]
fn a_start_is_told_when_all_nodes_are_there() {
    let log = MemoryLog::default();
    log.append(vec![submitted()], ReplyTo::channel().0);
    let mut run = run();
    run.booting = ["n1".to_owned(), "n2".to_owned()].into();
    let allocated = event(JobEvent::Allocated(Box::new(run.clone())));
    log.append(vec![allocated.clone()], ReplyTo::channel().0);
    let mut runs = Runs::new("maple", log.value(), STARTS).unwrap();
    assert!(runs.take(&allocated).is_none());
    let booted =
        |node: &str| event(JobEvent::NodeBooted { node: node.to_owned(), address: String::new(), at: run.start });
    assert!(runs.take(&booted("n1")).is_none());
    assert!(runs.take(&booted("n2")).is_some_and(|started| started.starts));
}
