#![allow(clippy::unwrap_used)]
use super::*;
use garrick_events::{
    records::job::{Afterwards, End, Ending, Resolved, Run},
    testing::{self, record},
};
use garrick_model::{
    gres::GresShare,
    ids::{JobId, NodeIndex},
    node_shape::NodeShare,
    resources::{CpuSet, MemoryMib, MemoryRequest},
    spec_text::licenses::Licenses,
    time::TimeLimit,
    view::{AllocatedNode, Allocation},
};
use proptest::prelude::*;
use std::{collections::BTreeSet, sync::Arc};

fn job_record() -> JobRecord {
    let array = Some(ArraySpec { ranges: vec![(0, 3, 1)], limit: Some(2) });
    let qos = Some("high".to_owned());
    let spec = JobSpec { name: "test".into(), array, qos, submit_line: "sbatch x".into(), ..JobSpec::default() };
    record(7, spec)
}

fn node(name: &str, index: u32) -> AllocatedNode {
    let gres = GresShare { name: "gpu".into(), kind: None, count: 2, devices: CpuSet::from(0..2) };
    let share =
        NodeShare { cpus: CpuSet::from(0..4), memory: Some(MemoryMib(512)), gres: vec![gres], ..NodeShare::default() };
    AllocatedNode { name: name.into(), index: NodeIndex(index), share }
}

fn run(at: Timestamp, booting: bool) -> Run {
    let allocation = Allocation {
        nodes: vec![node("n1", 1), node("n2", 2)],
        partition: "long".into(),
        exclusive: false,
        licenses: "matlab:3".parse::<Licenses>().unwrap(),
        reservation: Some("week".into()),
    };
    let booting = if booting { BTreeSet::from(["n1".to_owned(), "n2".to_owned()]) } else { BTreeSet::new() };
    Run { booting, ..testing::run(allocation, at) }
}

fn end(state: JobState, at: Timestamp, then: Afterwards) -> End {
    let exit = ExitStatus { code: 3, signal: None };
    let cause = Some("no such file".to_owned());
    End { state, reason: Reason::NonZeroExitCode, exit, derived: exit, at, then, cause, by: None, sluid: None }
}

/// An event of the kind of that number, at a time. Whether it is legal is found out by the record.
fn event(kind: u8, at: Timestamp, record: &JobRecord) -> JobEvent {
    let again = Afterwards::Requeue { hold: None, delay: false };
    match kind {
        0 => JobEvent::Allocated(Box::new(run(at, false))),
        1 => JobEvent::Allocated(Box::new(run(at, true))),
        2 => JobEvent::NodeBooted { node: "n1".into(), address: "c".into(), at },
        3 => JobEvent::NodeBooted { node: "n2".into(), address: "d".into(), at },
        4 => JobEvent::Started { at, door: "door".into() },
        5 => JobEvent::Stopped { at, by_admin: false, yielded: None, waits_turn: false },
        6 => JobEvent::Continued { at },
        7 => JobEvent::Ending(Ending {
            state: JobState::Cancelled,
            reason: Reason::None,
            then: Afterwards::Over,
            by: Some(12),
            at: Some(at),
            unasked: false,
        }),
        8 => JobEvent::Ended(end(JobState::Failed, at, Afterwards::Over)),
        9 => JobEvent::Ended(end(JobState::NodeFail, at, again)),
        10 => JobEvent::NodesLost { nodes: vec!["n1".into()] },
        11 => JobEvent::NodeReleased { node: "n1".into(), epilog_failed: false },
        12 => JobEvent::NodeReleased { node: "n2".into(), epilog_failed: false },
        13 => JobEvent::Requeued {
            sluid: Sluid(record.sluid.0 + 1),
            hold: None,
            begin: Some(at),
            expedited: false,
            at: Some(at),
        },
        14 => JobEvent::Eligible { at },
        22 => JobEvent::NotEligible,
        15 => JobEvent::TaskSplit { index: at.0 as u32 % 4, job: JobId(100) },
        16 => JobEvent::BecameTask { index: at.0 as u32 % 4 },
        17 => JobEvent::LimitChanged(TimeLimit::Secs(at.0 as u64)),
        18 => JobEvent::Released { priority: at.0 as u32 },
        19 => JobEvent::Revised(Box::new(revision(record, at))),
        20 => JobEvent::Updated(Box::new(JobChange {
            name: Some("other".into()),
            comment: Some("words".into()),
            account: Some("physics".into()),
            priority: Some(at.0 as u32),
            ..JobChange::default()
        })),
        _ => JobEvent::StepsCounted(Default::default()),
    }
}

fn revision(record: &JobRecord, at: Timestamp) -> Revision {
    let change = JobChange { array_limit: Some(3), admin_comment: Some("seen".into()), ..JobChange::default() };
    let spec = JobSpec { constraint: Some("fast".into()), ..(*record.spec).clone() };
    let resolved = Resolved {
        cpus: 8,
        memory: MemoryRequest::PerNode(MemoryMib(at.0 as u64)),
        partitions: vec!["long".into()],
        ..record.resolved.clone()
    };
    Revision::new(record, &change, spec, resolved)
}

/// What row and record both know, in the same form.
fn compared(mut row: JobRow, record: &JobRecord) -> JobRow {
    row.waiting = row.waiting.map(|tasks| ArraySpec::from_indices(tasks.indices(), tasks.limit));
    // A record has the sum of them only.
    row.suspensions.clear();
    // The loss of a node that did not end the job stays in the record.
    if row.state != JobState::NodeFail {
        row.failed_node = None;
    }
    // A record that is not eligible does not say what became of its begin time.
    if record.eligible_time.is_none() {
        row.eligible = None;
    }
    row
}

proptest! {
    #[test]
    fn rows_say_what_records_say(kinds in prop::collection::vec((0u8..23, 1i64..50), 0..60)) {
        let mut record = job_record();
        let mut row = JobRow::submitted("c", &JobEvent::Submitted(Box::new(record.clone()))).unwrap();
        let mut now = 1_000_000;
        for (kind, passed) in kinds {
            now += passed;
            let event = event(kind, Timestamp(now), &record);
            let before = record.clone();
            if record.apply(&event).is_err() {
                record = before;
                continue;
            }
            if let Some(next) = row.apply(&event) {
                prop_assert!(row.requeued && row.is_over());
                row = next;
            }
            let again = row.clone();
            prop_assert_eq!(row.apply(&event), None);
            prop_assert_eq!(&row, &again, "a repeat of {:?} changed something", event);
            let said = JobRow::of("c", &record);
            prop_assert_eq!(compared(row.clone(), &record), compared(said, &record), "after {:?}", event);
        }
    }
}

#[test]
fn a_requeued_job_has_a_row_for_each_run() {
    let mut row = JobRow::of("c", &record(7, JobSpec { name: "x".into(), ..JobSpec::default() }));
    let first = row.sluid;
    row.apply(&JobEvent::Allocated(Box::new(run(Timestamp(10), false))));
    assert_eq!(row.allocated.to_string(), "billing=8,cpu=8,gres/gpu=4,license/matlab=3,mem=1G,node=2");
    assert_eq!((row.nodes.as_str(), row.partition.as_deref()), ("n[1-2]", Some("long")));
    row.apply(&JobEvent::Ended(end(JobState::NodeFail, Timestamp(30), Afterwards::Over)));
    let requeued =
        JobEvent::Requeued { sluid: Sluid(first.0 + 1), hold: None, begin: None, expedited: false, at: None };
    let next = row.apply(&requeued).unwrap();
    assert_eq!((row.sluid, row.state, row.requeued, row.end), (first, JobState::NodeFail, true, Some(Timestamp(30))));
    assert_eq!((next.state, next.restarts, next.start, next.end), (JobState::Pending, 1, None, None));
    assert!(next.allocated.is_empty() && !next.requeued && next.submit == row.submit, "an earlier version's");
    row.requeued = false;
    let at = Some(Timestamp(31));
    let requeued = JobEvent::Requeued { sluid: Sluid(first.0 + 1), hold: None, begin: None, expedited: false, at };
    assert_eq!(row.apply(&requeued).unwrap().submit, Timestamp(31));
    assert_ne!(row.submit, Timestamp(31));
}

#[test]
fn an_event_of_another_run_changes_nothing() {
    let mut row = JobRow::of("c", &job_record());
    row.apply(&JobEvent::Ended(End { by: Some(12), ..end(JobState::Cancelled, Timestamp(5), Afterwards::Over) }));
    assert_eq!(row.cancelled_by, Some(12));
    let before = row.clone();
    assert_eq!(row.apply(&JobEvent::Ended(end(JobState::Failed, Timestamp(9), Afterwards::Over))), None);
    assert_eq!(row.apply(&JobEvent::Allocated(Box::new(run(Timestamp(9), false)))), None);
    assert_eq!(row, before);
}

/// Its controller was behind when somebody took it for a runaway.
#[test]
fn what_a_controller_says_of_a_repaired_job_holds() {
    let at = |secs: i64| Timestamp(2_000_000 + secs);
    let mut row = JobRow::of("c", &job_record());
    row.apply(&JobEvent::Allocated(Box::new(run(at(5_000), false))));
    assert!(row.repair(false));
    assert_eq!((row.state, row.end), (JobState::Completed, Some(at(5_000))));
    row.apply(&JobEvent::Ended(end(JobState::Failed, at(9_000), Afterwards::Over)));
    assert_eq!((row.state, row.end, row.exit.code, row.repaired), (JobState::Failed, Some(at(9_000)), 3, false));
    // An end that it said stays.
    row.apply(&JobEvent::Ended(end(JobState::Cancelled, at(9_900), Afterwards::Over)));
    assert_eq!(row.end, Some(at(9_000)));
    let mut waiting = JobRow::of("c", &job_record());
    assert!(waiting.repair(true));
    waiting.apply(&JobEvent::Allocated(Box::new(run(at(6_000), false))));
    assert_eq!((waiting.state, waiting.start, waiting.end), (JobState::Running, Some(at(6_000)), None));
}

/// What came between was given up: `MaxDBDMsgs`.
#[test]
fn the_end_of_a_later_run_is_not_that_of_this_one() {
    let mut row = JobRow::of("c", &job_record());
    let (first, next) = (row.sluid, Sluid(row.sluid.0 + 1));
    let begun = |sluid, at| JobEvent::Allocated(Box::new(Run { sluid: Some(sluid), ..run(Timestamp(at), false) }));
    let over = |sluid, at| {
        JobEvent::Ended(End { sluid: Some(sluid), ..end(JobState::Failed, Timestamp(at), Afterwards::Over) })
    };
    assert_eq!(row.apply(&begun(first, 10)), None);
    let known = row.clone();
    // Its end and the requeue were not heard of, and neither was the beginning of the next one.
    let ended = row.apply(&over(next, 90)).unwrap();
    let (state, end) = (JobState::Cancelled, Some(Timestamp(90)));
    assert_eq!(row, JobRow { requeued: true, state, end, repaired: true, ..known.clone() });
    // It is heard of after all.
    assert_eq!(row.apply(&over(first, 40)), None);
    assert_eq!((row.state, row.end, row.requeued, row.repaired), (JobState::Failed, Some(Timestamp(40)), true, false));
    assert_eq!((ended.sluid, ended.start, ended.end, ended.restarts), (next, None, Some(Timestamp(90)), 1));
    let mut row = known;
    let mut began = row.apply(&begun(next, 50)).unwrap();
    assert_eq!((began.state, began.start, row.end), (JobState::Running, Some(Timestamp(50)), Some(Timestamp(50))));
    assert_eq!(began.apply(&over(next, 90)), None);
    assert_eq!((began.state, began.end), (JobState::Failed, Some(Timestamp(90))));
    // What comes late, of an earlier one.
    let before = began.clone();
    assert_eq!((began.apply(&over(first, 99)), began), (None, before));
}

#[test]
fn a_row_says_what_its_run_was_charged_and_waited_for() {
    use garrick_events::records::charge::Charge;
    let mut record = job_record();
    (record.resolved.billing, record.resolved.default_qos) = (Some(12), true);
    let spec = Arc::make_mut(&mut record.spec);
    spec.licenses = Some("matlab:2".into());
    spec.gres.total = vec![garrick_model::gres::GresCount { name: "gpu".into(), kind: Some("h100".into()), count: 2 }];
    let mut row = JobRow::of("c", &record);
    let asked = row.requested.clone();
    let of = |name: &str| asked.count(name);
    assert_eq!((of("billing"), of("license/matlab"), of("gres/gpu"), of("gres/gpu:h100")), (12, 2, 2, 2));
    assert!(row.default_qos);
    let charge = Charge { billing: 99, ..Charge::default() };
    let run = Run {
        charge: Some(Arc::new(charge)),
        backfilled: true,
        waited_for: Reason::Dependency,
        ..run(Timestamp(5), false)
    };
    row.apply(&JobEvent::Allocated(Box::new(run)));
    assert_eq!((row.allocated.count("billing"), row.backfilled), (99, true));
    assert_eq!(row.waited_for, Reason::Dependency);
    row.apply(&JobEvent::Ended(end(JobState::Cancelled, Timestamp(9), Afterwards::Over)));
    let first = row.sluid;
    let requeued = |sluid| JobEvent::Requeued { sluid, hold: None, begin: None, expedited: false, at: None };
    let mut second = row.apply(&requeued(Sluid(first.0 + 1))).unwrap();
    assert_eq!((second.first_run, second.backfilled, second.waited_for.clone()), (Some(first), false, Reason::None));
    second.apply(&JobEvent::Ended(end(JobState::Cancelled, Timestamp(10), Afterwards::Over)));
    let third = second.apply(&requeued(Sluid(first.0 + 2))).unwrap();
    assert_eq!(third.first_run, Some(first));
}

#[test]
fn a_step_stood_still_while_its_job_did() {
    let mut row = JobRow::of("c", &job_record());
    let at = |secs: i64| Timestamp(1_000_000 + secs * 1000);
    row.apply(&JobEvent::Allocated(Box::new(run(at(0), false))));
    let stop = |at| JobEvent::Stopped { at, by_admin: false, yielded: None, waits_turn: false };
    for secs in [10, 20] {
        row.apply(&stop(at(secs)));
        row.apply(&JobEvent::Continued { at: at(secs + 4) });
    }
    let stood = |row: &JobRow, from: i64, until: i64| row.suspended_within(at(from), at(until)) / 1000;
    assert_eq!(row.suspended_ms, 8_000);
    assert_eq!((stood(&row, 0, 30), stood(&row, 12, 16), stood(&row, 15, 30), stood(&row, 25, 30)), (8, 2, 4, 0));
    // What a row of an earlier version, or a record, says: the sum.
    let sum = JobRow { suspensions: Vec::new(), ..row.clone() };
    assert_eq!((stood(&sum, 0, 30), stood(&sum, 5, 30)), (8, 8));
    // Very many are kept together.
    for secs in 0..1000 {
        row.apply(&stop(at(100 + 2 * secs)));
        row.apply(&JobEvent::Continued { at: at(101 + 2 * secs) });
    }
    assert!(row.suspensions.len() < 100);
    assert_eq!((stood(&row, 0, 3000), stood(&row, 2000, 3000)), (1008, 50));
    row.apply(&stop(at(4000)));
    assert_eq!(stood(&row, 3999, 4005), 5);
}

#[test]
fn a_row_has_the_qos_of_its_run_and_those_that_were_asked_for() {
    use garrick_events::records::job::ChosenQos;
    let mut record = job_record();
    Arc::make_mut(&mut record.spec).qos = Some("high,normal".into());
    let mut row = JobRow::of("c", &record);
    let has = |row: &JobRow| (row.qos.clone().unwrap(), row.qos_asked.clone());
    assert_eq!(has(&row), ("high,normal".into(), None));
    let chosen_qos = Some(ChosenQos { qos: "normal".into(), of: "high,normal".into() });
    row.apply(&JobEvent::Allocated(Box::new(Run { chosen_qos, ..run(Timestamp(5), false) })));
    assert_eq!(has(&row), ("normal".into(), Some("high,normal".into())));
    let asks = |name: &str| crate::filter::JobFilter { qos: vec![name.into()], ..Default::default() };
    assert!(asks("normal").takes(&row) && !asks("high").takes(&row));
    row.apply(&JobEvent::Ended(end(JobState::Cancelled, Timestamp(9), Afterwards::Over)));
    let sluid = Sluid(row.sluid.0 + 1);
    let again = JobEvent::Requeued { sluid, hold: None, begin: None, expedited: false, at: None };
    let second = row.apply(&again).unwrap();
    assert_eq!(has(&second), ("high,normal".into(), None));
    assert!(asks("normal").takes(&second) && asks("high").takes(&second) && !asks("low").takes(&second));
    assert_eq!(has(&row), ("normal".into(), Some("high,normal".into())));
}
