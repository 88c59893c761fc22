//! Events as a job's owner saves them, replayed.
#![allow(clippy::unwrap_used)]

use crate::{
    job::{
        effects::JobEffect,
        fixtures::{Bench, proposal},
    },
    messages::job::{Authority, JobCommand, JobInput},
};
use garrick_events::{
    event::{ControllerEvent, Replayed},
    records::job_event::JobEvent,
    testing::record,
};
use garrick_model::{
    ids::JobId,
    spec::JobSpec,
    testing::{array, spec},
};
use serde_bytes::ByteBuf;
use std::sync::Arc;

fn about(job: u32, event: JobEvent) -> ControllerEvent {
    ControllerEvent::Job { job: JobId(job), event: Box::new(event) }
}

fn saved(out: Vec<JobEffect>) -> impl Iterator<Item = ControllerEvent> {
    out.into_iter().filter_map(|effect| match effect {
        JobEffect::Save(event) => Some(event),
        _ => None,
    })
}

/// A thousand tasks of an array were a thousand times its script and environment in one record, which was too long to be
/// written: their end was told to nobody, and after a restart they were back.
#[test]
fn tasks_have_their_arrays_script_and_any_number_of_them_is_saved() {
    let work = || Arc::new(vec![ByteBuf::from(vec![b'x'; 34_000])]);
    let array_spec = JobSpec { array: Some(array(0, 1999, None)), environment: work(), ..spec() };
    let head = about(7, JobEvent::Submitted(Box::new(record(7, array_spec.clone()))));
    let mut job = Bench::with(array_spec);
    let by = Authority { uid: 1001, admin: false };
    let (answer, out) = job.command(by, Some(vec![(0, 999, 1)]), JobCommand::Cancel);
    answer.unwrap();
    let mut events: Vec<ControllerEvent> = Vec::new();
    events.extend(saved(out));
    assert_eq!(events.len(), 2000);
    let bytes = |event: &ControllerEvent| format!("{event:?}").len();
    assert!(events.iter().all(|event| bytes(event) < 20_000), "none has the environment");
    let most = 100_000;
    let parts = ControllerEvent::records(events.clone(), most, bytes);
    assert!(parts.len() > 10 && parts.len() < 1000, "{}", parts.len());
    let size_of = |part: &ControllerEvent| match part {
        ControllerEvent::Part { events, .. } => events.iter().map(bytes).sum::<usize>(),
        other => panic!("{other:?}"),
    };
    assert!(parts.iter().all(|part| size_of(part) <= most));
    // However far the write came, all of it counts or nothing does, also when the next start writes behind it.
    for came in [0, 1, parts.len() - 1, parts.len()] {
        let mut replayed = Replayed::default();
        replayed.apply(&head).unwrap();
        parts[..came].iter().for_each(|part| replayed.apply(part).unwrap());
        replayed.apply(&ControllerEvent::Started { epoch: 2 }).unwrap();
        let tasks = if came == parts.len() { 1000 } else { 0 };
        assert_eq!(replayed.jobs.len(), 1 + tasks, "{came} parts");
        assert_eq!(replayed.jobs[&JobId(7)].array.as_ref().unwrap().tasks.len(), tasks);
        let shared = &replayed.jobs[&JobId(7)].spec.environment;
        assert!(replayed.jobs.values().all(|job| Arc::ptr_eq(&job.spec.environment, shared)));
        // Nor does the shortest form hold it more than once.
        let before = replayed.jobs.clone();
        let shortest: Vec<ControllerEvent> = replayed.into_events().collect();
        assert_eq!(shortest.iter().filter(|event| bytes(event) >= 34_000).count(), 1);
        let mut again = Replayed::default();
        shortest.iter().for_each(|event| again.apply(event).unwrap());
        assert_eq!(again.jobs, before);
    }
    let one = vec![head.clone()];
    assert_eq!(ControllerEvent::records(one, 10, bytes), [head], "one event is one record");
}

/// Found by simulation with torn writes: the array's mark was on disk, the task's own record was not, and after the
/// restart the task was nowhere.
#[test]
fn a_write_that_is_cut_short_loses_no_task() {
    let array_spec = JobSpec { array: Some(array(1, 3, None)), ..spec() };
    let mut job = Bench::with(array_spec.clone());
    let out = job.send(JobInput::Start(Box::new(proposal(7, Some(1), &["n0"]))));
    let events: Vec<ControllerEvent> = saved(out).collect();
    assert_eq!(events.len(), 2);
    for cut in 0..=events.len() {
        let mut replayed = Replayed::default();
        replayed.apply(&about(7, JobEvent::Submitted(Box::new(record(7, array_spec.clone()))))).unwrap();
        events[..cut].iter().for_each(|event| replayed.apply(event).unwrap());
        let tasks = replayed.jobs[&JobId(7)].array.as_ref().unwrap();
        assert_eq!(tasks.pending.contains(&1), cut == 0);
        assert_eq!(replayed.jobs.contains_key(&JobId(5001)), cut > 0);
        assert_eq!(tasks.tasks.contains_key(&1), cut > 0);
    }
}
