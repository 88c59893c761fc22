//! Bytes of every version, with the events of either kind: they read back for ever.

use crate::{controller_events, step_events};
use garrick_events::event::{ControllerEvent, Replayed};
use garrick_events::records::job_event::JobEvent;
use garrick_events::steps::event::{Motion, StepEvent};
use garrick_journal::{Form, Reader, replace};
use garrick_model::{
    ids::{JobId, RequestId, StepKey},
    resources::MemoryRequest,
    time::{TimeLimit, Timestamp},
    usage::Metric,
    view::Accrual,
};
use garrick_run::stepmgr::Ledger;
use serde::de::DeserializeOwned;
use std::path::{Path, PathBuf};

pub fn sample(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests", "data", name].iter().collect()
}

/// All of a journal that is whole.
pub fn all<T: DeserializeOwned>(path: &Path) -> Vec<T> {
    let mut reader = Reader::open(path).unwrap();
    let mut events = Vec::new();
    while let Some(record) = reader.next_record().unwrap() {
        events.push(record.decode().unwrap());
    }
    assert_eq!((reader.torn_bytes(), reader.records()), (0, events.len() as u64));
    events
}

fn assert_same<T: PartialEq + std::fmt::Debug>(read: &[T], made: &[T]) {
    for (number, (read, made)) in read.iter().zip(made).enumerate() {
        assert_eq!(read, made, "record {number}");
    }
    assert_eq!(read.len(), made.len());
}

#[test]
fn a_controllers_journal_of_version_1_reads_back() {
    let read: Vec<ControllerEvent> = all(&sample("version-1-controller.journal"));
    assert_same(&read, &controller_events::version_1());
}

#[test]
fn a_controllers_journal_of_version_2_reads_back_without_what_a_fenced_writer_appended() {
    let path = sample("version-2-controller.journal");
    let written = controller_events::version_2();
    let mut reader = Reader::open(&path).unwrap();
    let mut read = Vec::new();
    while let Some(record) = reader.next_written().unwrap() {
        read.push((record.epoch, record.decode::<ControllerEvent>().unwrap()));
    }
    assert_same(&read, &written);
    let late = written.iter().position(|(epoch, _)| *epoch == 4).unwrap() + 1;
    assert_eq!(written[late].0, 3);
    let counts: Vec<ControllerEvent> =
        written.into_iter().enumerate().filter(|(place, _)| *place != late).map(|(_, (_, event))| event).collect();
    let mut reader = Reader::open(&path).unwrap();
    let mut read = Vec::new();
    while let Some(record) = reader.next_record().unwrap() {
        read.push(record.decode::<ControllerEvent>().unwrap());
    }
    assert_same(&read, &counts);
    let first = reader.late().first.as_ref().unwrap();
    assert_eq!((reader.late().records, first.epoch, first.highest), (1, 3, 4));
    assert_eq!((reader.version(), reader.epoch(), reader.torn_bytes()), (2, 4, 0));
}

#[test]
fn what_came_to_a_controllers_journal_of_version_1_later_reads_back() {
    let read: Vec<ControllerEvent> = all(&sample("version-1-expedited.journal"));
    assert_same(&read, &controller_events::expedited());
    let mut replayed = Replayed::default();
    read.iter().for_each(|event| replayed.apply(event).unwrap());
    let left = &replayed.jobs[&JobId(31)].earlier;
    assert_eq!(left.iter().map(|hold| (hold.node.name.as_str(), hold.kept)).collect::<Vec<_>>(), [("n3", false)]);
}

/// Every kind of event there is, cut everywhere: a snapshot of what is before and what is after come to the same.
#[test]
fn a_snapshot_anywhere_and_what_follows_it_come_to_all_events() {
    let mut series: Vec<Vec<ControllerEvent>> = vec![controller_events::version_1()];
    let counts = |(_, event)| event;
    series.push(controller_events::version_2().into_iter().map(counts).collect());
    series.extend([
        controller_events::expedited(),
        controller_events::reservations(),
        controller_events::preempted(),
        controller_events::leaving(),
        controller_events::site_programs(),
        controller_events::several_qos(),
        controller_events::suspended(),
        controller_events::fencing(),
        controller_events::tasks(),
        controller_events::revised(),
        controller_events::associated(),
        controller_events::accruing(),
        controller_events::dynamic_nodes(),
        controller_events::followers(),
        controller_events::step_records(),
        controller_events::beside(),
        controller_events::powered(),
        controller_events::crontabs_and_triggers(),
        controller_events::partition_changes(),
        controller_events::usage(),
        controller_events::zeroed(),
        controller_events::outages(),
        controller_events::rebooted(),
    ]);
    let mut cuts = 0;
    for events in series {
        let mut all = Replayed::default();
        let (mut within, mut stand_in) = (false, 0);
        for cut in 0..=events.len() {
            let (before, rest) = events.split_at(cut);
            if let Some(last) = before.last() {
                all.apply(last).unwrap();
                stand_in = match last {
                    ControllerEvent::Base { events, .. } => *events,
                    ControllerEvent::Follower { .. } => stand_in,
                    _ => stand_in.saturating_sub(1),
                };
                // No file is closed between the parts of a batch, or in what a snapshot says.
                within = matches!(last, ControllerEvent::Part { last: false, .. }) || stand_in > 0;
            }
            if within {
                continue;
            }
            let mut again = Replayed::default();
            all.clone().into_events().for_each(|event| again.apply(&event).unwrap());
            assert_eq!(again, all);
            let mut then = all.clone();
            for event in rest {
                again.apply(event).unwrap();
                then.apply(event).unwrap();
            }
            assert_eq!(again, then);
            cuts += 1;
        }
    }
    assert!(cuts > 100, "{cuts}");
}

#[test]
fn reservations_in_a_controllers_journal_of_version_1_read_back() {
    let read: Vec<ControllerEvent> = all(&sample("version-1-reservations.journal"));
    assert_same(&read, &controller_events::reservations());
    let mut replayed = Replayed::default();
    read.iter().for_each(|event| replayed.apply(event).unwrap());
    let mut again = Replayed::default();
    replayed.clone().into_events().for_each(|event| again.apply(&event).unwrap());
    assert_eq!(replayed.reservations.keys().collect::<Vec<_>>(), ["maint_1"]);
    assert_eq!(again.reservations, replayed.reservations);
}

#[test]
fn what_came_to_a_controllers_journal_of_version_1_after_that_reads_back() {
    let read: Vec<ControllerEvent> = all(&sample("version-1-preempted.journal"));
    assert_same(&read, &controller_events::preempted());
    let mut replayed = Replayed::default();
    read.iter().for_each(|event| replayed.apply(event).unwrap());
    let run = replayed.jobs[&JobId(41)].phase.run().unwrap();
    assert_eq!(run.preempted.as_ref().map(|mark| mark.by.0), Some(42));
}

#[test]
fn several_qos_in_a_controllers_journal_of_version_2_read_back() {
    let read: Vec<ControllerEvent> = all(&sample("version-2-several-qos.journal"));
    assert_same(&read, &controller_events::several_qos());
    let mut replayed = Replayed::default();
    let mut qos = Vec::new();
    for event in &read {
        replayed.apply(event).unwrap();
        qos.push(replayed.jobs[&JobId(81)].spec.qos.clone().unwrap());
    }
    assert_eq!(qos, ["high,normal", "normal", "normal", "normal", "normal", "high,normal"]);
}

#[test]
fn programs_of_the_site_in_a_controllers_journal_of_version_2_read_back() {
    let read: Vec<ControllerEvent> = all(&sample("version-2-site-programs.journal"));
    assert_same(&read, &controller_events::site_programs());
    let mut replayed = Replayed::default();
    read.iter().for_each(|event| replayed.apply(event).unwrap());
    let job = &replayed.jobs[&JobId(71)];
    assert!(matches!(job.phase, garrick_events::records::job::Phase::Over(..)), "its epilog has ended");
    assert_eq!(job.spec.mail.user.as_deref(), Some("b"));
}

#[test]
fn nodes_that_are_rebooted_for_a_job_in_a_controllers_journal_of_version_2_read_back() {
    let read: Vec<ControllerEvent> = all(&sample("version-2-rebooted.journal"));
    assert_same(&read, &controller_events::rebooted());
}

#[test]
fn runs_that_leave_with_their_reservation_in_a_controllers_journal_of_version_1_read_back() {
    let read: Vec<ControllerEvent> = all(&sample("version-1-leaving.journal"));
    assert_same(&read, &controller_events::leaving());
    let mut replayed = Replayed::default();
    read.iter().for_each(|event| replayed.apply(event).unwrap());
    let run = replayed.jobs[&JobId(41)].phase.run().unwrap();
    assert!(run.leave_by.is_some());
}

#[test]
fn runs_that_stand_still_in_a_controllers_journal_of_version_1_read_back() {
    let read: Vec<ControllerEvent> = all(&sample("version-1-suspended.journal"));
    assert_same(&read, &controller_events::suspended());
    let mut replayed = Replayed::default();
    read.iter().for_each(|event| replayed.apply(event).unwrap());
    let run = replayed.jobs[&JobId(41)].phase.run().unwrap();
    assert_eq!((run.stood().as_secs(), run.yielded().map(|other| other.by.0)), (50, Some(42)));
}

#[test]
fn runs_that_were_given_up_unfenced_in_a_controllers_journal_of_version_1_read_back() {
    let read: Vec<ControllerEvent> = all(&sample("version-1-fencing.journal"));
    assert_same(&read, &controller_events::fencing());
    let mut replayed = Replayed::default();
    read.iter().for_each(|event| replayed.apply(event).unwrap());
    let left = |job: u32| {
        let unfenced = &replayed.jobs[&JobId(job)].unfenced;
        unfenced.iter().map(|left| left.node.as_str()).collect::<Vec<_>>()
    };
    assert_eq!((left(51), left(52)), (vec!["n3"], vec!["n2"]));
}

#[test]
fn nodes_of_no_file_in_a_controllers_journal_of_version_1_read_back() {
    let read: Vec<ControllerEvent> = all(&sample("version-1-dynamic-nodes.journal"));
    assert_same(&read, &controller_events::dynamic_nodes());
    let mut replayed = Replayed::default();
    read.iter().for_each(|event| replayed.apply(event).unwrap());
    let mut again = Replayed::default();
    replayed.clone().into_events().for_each(|event| again.apply(&event).unwrap());
    assert_eq!(again.dynamic_nodes, replayed.dynamic_nodes);
    let places: Vec<_> = replayed.dynamic_nodes.values().map(|node| (node.name.as_str(), node.slot)).collect();
    assert_eq!((places, replayed.nodes.contains_key("d3")), (vec![("d1", 0), ("d2", 1)], false));
}

#[test]
fn tasks_without_work_of_their_own_in_a_controllers_journal_of_version_1_read_back() {
    let read: Vec<ControllerEvent> = all(&sample("version-1-tasks.journal"));
    assert_same(&read, &controller_events::tasks());
    let job = JobId;
    for came in 1..=read.len() {
        let mut replayed = Replayed::default();
        read[..came].iter().for_each(|event| replayed.apply(event).unwrap());
        let array = &replayed.jobs[&job(61)];
        let split = match came {
            1..=4 => 0,
            5 => 2,
            _ => 3,
        };
        assert_eq!(array.array.as_ref().unwrap().pending, (split + 1..=4).collect());
        assert_eq!(replayed.jobs.len(), 1 + split as usize);
        assert!(replayed.jobs.values().all(|task| task.has_work_of(array) && task.spec.work_bytes() == 16));
        let mut again = Replayed::default();
        replayed.clone().into_events().for_each(|event| again.apply(&event).unwrap());
        assert_eq!(again.jobs, replayed.jobs);
    }
}

#[test]
fn positions_and_followers_in_a_controllers_journal_of_version_2_read_back() {
    let read: Vec<ControllerEvent> = all(&sample("version-2-followers.journal"));
    assert_same(&read, &controller_events::followers());
    let mut replayed = Replayed::default();
    read.iter().for_each(|event| replayed.apply(event).unwrap());
    assert_eq!((replayed.progress.position.0, replayed.nodes.len(), replayed.epoch), (47, 7, 7));
    let followers: Vec<_> = replayed.progress.followers.iter().map(|(name, upto)| (name.as_str(), upto.0)).collect();
    assert_eq!(followers, [("accounting", 41), ("replay", 41)]);
    let mut again = Replayed::default();
    replayed.clone().into_events().for_each(|event| again.apply(&event).unwrap());
    assert_eq!(again.progress, replayed.progress);
}

#[test]
fn records_of_steps_in_a_controllers_journal_of_version_2_read_back() {
    let read: Vec<ControllerEvent> = all(&sample("version-2-step-records.journal"));
    assert_same(&read, &controller_events::step_records());
    let mut replayed = Replayed::default();
    read.iter().for_each(|event| replayed.apply(event).unwrap());
    let Some(ControllerEvent::Steps { steps, .. }) = read.last() else { panic!("{read:?}") };
    assert_eq!((replayed.progress.position.0, steps.unpack().unwrap().rows.len()), (2, 1));
}

#[test]
fn what_tasks_used_reads_back_from_journals_of_both_kinds() {
    let read: Vec<StepEvent> = all(&sample("version-1-steps-usage.journal"));
    assert_same(&read, &step_events::used());
    let read: Vec<ControllerEvent> = all(&sample("version-2-step-usage.journal"));
    assert_same(&read, &controller_events::step_usage());
    let Some(ControllerEvent::Steps { steps, .. }) = read.last() else { panic!("{read:?}") };
    let spread = steps.unpack().unwrap().rows.remove(0).spread.unwrap();
    let read = spread.of(Metric::Read);
    assert_eq!((read.total, read.least.task, read.greatest.node), (6984, 1, 0));
}

#[test]
fn what_accounting_keeps_of_runs_and_steps_in_a_controllers_journal_of_version_2_reads_back() {
    let read: Vec<ControllerEvent> = all(&sample("version-2-accounted.journal"));
    assert_same(&read, &controller_events::accounted());
}

#[test]
fn pieces_beside_the_log_in_a_controllers_journal_of_version_2_read_back() {
    let read: Vec<ControllerEvent> = all(&sample("version-2-beside.journal"));
    assert_same(&read, &controller_events::beside());
    let mut replayed = Replayed::default();
    read.iter().for_each(|event| replayed.apply(event).unwrap());
    let pieces: Vec<_> = replayed.beside.iter().map(|(name, piece)| (name.as_str(), piece.bytes)).collect();
    assert_eq!((replayed.progress.position.0, pieces), (17, vec![("ca/ca.pem", 1026), ("credential.key", 65)]));
    let mut again = Replayed::default();
    replayed.clone().into_events().for_each(|event| again.apply(&event).unwrap());
    assert_eq!(again, replayed);
}

#[test]
fn crontabs_and_triggers_in_a_controllers_journal_of_version_2_read_back() {
    let read: Vec<ControllerEvent> = all(&sample("version-2-crontabs-and-triggers.journal"));
    assert_same(&read, &controller_events::crontabs_and_triggers());
    let mut replayed = Replayed::default();
    read.iter().for_each(|event| replayed.apply(event).unwrap());
    let crontabs: Vec<_> = replayed.crontabs.iter().map(|(uid, crontab)| (*uid, crontab.jobs.len())).collect();
    assert_eq!(crontabs, [(1001, 1)]);
    let recurs = [81, 82].map(|job| replayed.jobs[&JobId(job)].schedule().map(ToString::to_string));
    assert_eq!(recurs, [Some("0,30 8-17 * * 1-5".to_owned()), None]);
    let due: Vec<_> = replayed.triggers.values().map(|trigger| (trigger.id, trigger.due.is_some())).collect();
    assert_eq!((due, replayed.last_trigger), (vec![(1, true), (2, false)], 3));
}

#[test]
fn partitions_that_came_and_went_in_a_controllers_journal_of_version_2_read_back() {
    let read: Vec<ControllerEvent> = all(&sample("version-2-partition-changes.journal"));
    assert_same(&read, &controller_events::partition_changes());
    let mut replayed = Replayed::default();
    read.iter().for_each(|event| replayed.apply(event).unwrap());
    assert_eq!(replayed.partition_changes.keys().collect::<Vec<_>>(), ["debug", "new"]);
    assert_eq!(replayed.partitions.keys().collect::<Vec<_>>(), ["new"]);
}

/// Their events are numbered from what they hold: a snapshot too, which says nothing of those that it stands for.
#[test]
fn events_of_a_journal_of_an_earlier_version_are_numbered_from_1() {
    let mut replayed = Replayed::default();
    all(&sample("version-1-controller.journal")).iter().for_each(|event| replayed.apply(event).unwrap());
    let size = |event: &ControllerEvent| match event {
        ControllerEvent::Together(events) => events.len(),
        _ => 1,
    };
    let count: usize = controller_events::version_1().iter().map(size).sum();
    assert_eq!((replayed.progress.position.0 as usize, replayed.progress.followers.len()), (count, 0));
}

#[test]
fn jobs_with_associations_in_a_controllers_journal_of_version_2_read_back() {
    let read: Vec<ControllerEvent> = all(&sample("version-2-associations.journal"));
    assert_same(&read, &controller_events::associated());
}

#[test]
fn jobs_that_gain_priority_by_age_in_a_controllers_journal_of_version_2_read_back() {
    let read: Vec<ControllerEvent> = all(&sample("version-2-accruing.journal"));
    assert_same(&read, &controller_events::accruing());
    // Before there was this, jobs gained since they were eligible.
    let earlier: Vec<ControllerEvent> = all(&sample("version-2-associations.journal"));
    let mut replayed = Replayed::default();
    earlier.iter().for_each(|event| replayed.apply(event).unwrap());
    assert!(replayed.jobs.values().all(|record| record.terms.accrual == Accrual::Eligible));
}

#[test]
fn jobs_that_were_submitted_again_in_a_controllers_journal_of_version_2_read_back() {
    let read: Vec<ControllerEvent> = all(&sample("version-2-submitted-again.journal"));
    assert_same(&read, &controller_events::submitted_again());
    let mut replayed = Replayed::default();
    read.iter().for_each(|event| replayed.apply(event).unwrap());
    let of = |job| &replayed.jobs[&JobId(job)];
    assert_eq!(
        (of(78).terms.accrual, of(78).eligible_time),
        (Accrual::Since(of(78).terms.reset.unwrap()), Some(controller_events::at(4)))
    );
    assert_eq!((of(79).submit_time, of(79).restarts), (controller_events::at(70), 1));
    // A requeue that an earlier version saved left the first submission.
    let earlier: Vec<ControllerEvent> = all(&sample("version-1-expedited.journal"));
    let mut replayed = Replayed::default();
    earlier.iter().for_each(|event| replayed.apply(event).unwrap());
    let requeued = replayed.jobs.values().find(|record| record.restarts > 0).unwrap();
    assert_eq!(requeued.submit_time, of_first_submission(&earlier, requeued.id));
}

fn of_first_submission(events: &[ControllerEvent], id: JobId) -> Timestamp {
    let submitted = |event: &ControllerEvent| match event {
        ControllerEvent::Job { job, event } if *job == id => match &**event {
            JobEvent::Submitted(record) => Some(record.submit_time),
            _ => None,
        },
        _ => None,
    };
    events.iter().find_map(submitted).unwrap()
}

#[test]
fn jobs_that_were_changed_while_they_waited_in_a_controllers_journal_of_version_2_read_back() {
    let read: Vec<ControllerEvent> = all(&sample("version-2-revised.journal"));
    assert_same(&read, &controller_events::revised());
    let mut replayed = Replayed::default();
    read.iter().for_each(|event| replayed.apply(event).unwrap());
    let [array, task] = [71, 72].map(|job| &replayed.jobs[&JobId(job)]);
    assert_eq!((array.spec.work_bytes(), task.spec.work_bytes()), (16, 16), "both have the work as it was");
    assert_eq!((array.spec.name.as_str(), task.spec.name.as_str()), ("train \"it\"\n", "task"));
    assert_eq!((array.resolved.cpus, &task.resolved), (15, &array.resolved));
    assert_eq!((array.priority, array.terms.fixed, array.dependency_failed), (77, true, true));
    assert_eq!((task.terms.fixed, task.begin, task.dependencies.list.len()), (false, None, 0));
    let of_array = array.array.as_ref().unwrap();
    assert_eq!((of_array.limit, of_array.pending.len()), (Some(2), 3));
    let mut again = Replayed::default();
    replayed.clone().into_events().for_each(|event| again.apply(&event).unwrap());
    assert_eq!(again.jobs, replayed.jobs);
}

/// What updates meant that were saved as they were asked for.
#[test]
fn a_change_in_a_controllers_journal_of_version_1_means_what_it_meant() {
    let read: Vec<ControllerEvent> = all(&sample("version-1-controller.journal"));
    let change = read.iter().position(|event| controller_events::name(event) == "Updated").unwrap();
    let mut replayed = Replayed::default();
    read[..=change].iter().for_each(|event| replayed.apply(event).unwrap());
    let job = &replayed.jobs[&JobId(11)];
    let resolved = &job.resolved;
    assert_eq!(
        (resolved.partitions.as_slice(), resolved.time_limit),
        (&["long".to_owned()][..], TimeLimit::Secs(1200))
    );
    assert_eq!((resolved.min_nodes, resolved.max_nodes, resolved.tasks, resolved.cpus), (2, 2, 6, 12));
    assert_eq!((resolved.memory, resolved.requeue), (MemoryRequest::All, false));
    assert_eq!((job.priority, job.spec.nice, job.terms.fixed), (6, 3, true));
    assert_eq!((job.spec.requeue, job.spec.account.as_deref()), (Some(true), Some("biology")));
    assert_eq!((job.spec.name.as_str(), job.admin_comment.as_deref()), ("renamed", Some("noted")));
    assert_eq!((job.spec.constraint.as_deref(), job.spec.exclude.len()), (None, 0));
    assert_eq!((&job.dependencies, job.begin), (&job.spec.dependencies, job.spec.begin));
}

#[test]
fn a_step_journal_of_version_1_reads_back() {
    let read: Vec<StepEvent> = all(&sample("version-1-steps.journal"));
    assert_same(&read, &step_events::version_1());
}

#[test]
fn runs_that_stand_still_in_a_step_journal_of_version_1_read_back() {
    let read: Vec<StepEvent> = all(&sample("version-1-steps-moved.journal"));
    assert_same(&read, &step_events::moved());
    assert_eq!(Ledger::replay(read).motion, Motion::Still);
}

#[test]
fn nodes_that_were_lost_in_a_step_journal_of_version_1_read_back() {
    let read: Vec<StepEvent> = all(&sample("version-1-steps-lost.journal"));
    assert_same(&read, &step_events::lost());
    assert_eq!(Ledger::replay(read).lost.into_iter().collect::<Vec<_>>(), [1, 3]);
}

#[test]
fn shepherds_that_were_there_in_a_step_journal_of_version_1_read_back() {
    let read: Vec<StepEvent> = all(&sample("version-1-steps-shepherds.journal"));
    assert_same(&read, &step_events::shepherds());
    assert_eq!(Ledger::replay(read).begun.into_iter().collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn what_is_there_for_records_in_a_step_journal_of_version_1_reads_back() {
    let read: Vec<StepEvent> = all(&sample("version-1-steps-records.journal"));
    assert_same(&read, &step_events::for_records());
}

#[test]
fn a_limit_of_a_step_in_a_step_journal_of_version_1_reads_back() {
    let read: Vec<StepEvent> = all(&sample("version-1-steps-limits.journal"));
    assert_same(&read, &step_events::limits());
    let running = Ledger::replay(read).running;
    assert_eq!(running[&StepKey::number(3)].origin.as_ref().unwrap().time_limit, TimeLimit::Secs(300));
}

#[test]
fn launches_in_a_step_journal_of_version_1_read_back() {
    let read: Vec<StepEvent> = all(&sample("version-1-steps-launches.journal"));
    assert_same(&read, &step_events::launches());
    let ledger = Ledger::replay(read);
    assert_eq!(ledger.launched(&RequestId(7, 9)), Some(StepKey::number(3)));
    assert_eq!(ledger.launch_failure.as_deref(), Some("No space left on device"));
}

#[test]
fn why_a_step_could_not_be_started_reads_back_from_a_step_journal_of_version_1() {
    let read: Vec<StepEvent> = all(&sample("version-1-steps-details.journal"));
    assert_same(&read, &step_events::details());
}

#[test]
fn a_list_that_was_given_up_in_a_step_journal_of_version_1_reads_back() {
    let read: Vec<StepEvent> = all(&sample("version-1-steps-given-up.journal"));
    assert_same(&read, &step_events::given_up());
    let ledger = Ledger::replay(read);
    let group = ledger.fail_groups[&RequestId(3, 4)];
    assert_eq!((group.ended, group.failed, group.stopped), (1, 1, true));
    assert_eq!((ledger.counts.cancelled, ledger.batches.len()), (2, 0));
}

#[test]
fn the_samples_fit_together_and_have_every_event() {
    let mut replayed = Replayed::default();
    let events = controller_events::version_1();
    events.iter().for_each(|event| replayed.apply(event).unwrap());
    assert_eq!(replayed.jobs.keys().map(|job| job.0).collect::<Vec<_>>(), [11, 12, 21, 22]);
    assert_eq!((replayed.epoch, replayed.last_job, replayed.submissions), (3, 22, 5));
    let later = [
        controller_events::expedited,
        controller_events::reservations,
        controller_events::preempted,
        controller_events::suspended,
        controller_events::dynamic_nodes,
        controller_events::site_programs,
        controller_events::several_qos,
        controller_events::fencing,
        controller_events::tasks,
        controller_events::followers,
        controller_events::step_records,
        controller_events::revised,
        controller_events::accruing,
        controller_events::submitted_again,
        controller_events::beside,
        controller_events::powered,
        controller_events::crontabs_and_triggers,
        controller_events::partition_changes,
        controller_events::usage,
    ]
    .map(|make| make())
    .concat();
    let found: Vec<&str> = events.iter().chain(&later).map(controller_events::name).collect();
    for name in controller_events::NAMES {
        assert!(found.contains(&name), "{name} is missing");
    }
    let events = step_events::version_1();
    let later = [
        step_events::moved(),
        step_events::lost(),
        step_events::shepherds(),
        step_events::launches(),
        step_events::for_records(),
        step_events::limits(),
    ]
    .concat();
    let found: Vec<&str> = events.iter().chain(&later).map(step_events::name).collect();
    for name in step_events::NAMES {
        assert!(found.contains(&name), "{name} is missing");
    }
    let ledger = Ledger::replay(events);
    assert_eq!((ledger.next, ledger.restarts, ledger.running.len()), (8, 1, 1));
}

/// Makes the samples of what came later; they are not made again.
#[test]
#[ignore = "makes tests/data/version-1-expedited.journal, by hand"]
fn make_the_later_sample() {
    replace(&sample("version-1-expedited.journal"), controller_events::expedited()).unwrap();
}

/// Makes the sample with reservations; it is not made again.
#[test]
#[ignore = "makes tests/data/version-1-reservations.journal, by hand"]
fn make_the_sample_with_reservations() {
    replace(&sample("version-1-reservations.journal"), controller_events::reservations()).unwrap();
}

#[test]
#[ignore = "makes tests/data/version-1-preempted.journal, by hand"]
fn make_the_sample_of_preemption() {
    replace(&sample("version-1-preempted.journal"), controller_events::preempted()).unwrap();
}

#[test]
#[ignore = "makes tests/data/version-2-site-programs.journal, by hand"]
fn make_the_sample_of_programs_of_the_site() {
    replace(&sample("version-2-site-programs.journal"), controller_events::site_programs()).unwrap();
}

#[test]
#[ignore = "makes tests/data/version-2-rebooted.journal, by hand"]
fn make_the_sample_of_nodes_that_are_rebooted() {
    replace(&sample("version-2-rebooted.journal"), controller_events::rebooted()).unwrap();
}

#[test]
#[ignore = "makes tests/data/version-2-several-qos.journal, by hand"]
fn make_the_sample_of_several_qos() {
    replace(&sample("version-2-several-qos.journal"), controller_events::several_qos()).unwrap();
}

#[test]
#[ignore = "makes tests/data/version-1-leaving.journal, by hand"]
fn make_the_sample_of_leaving() {
    replace(&sample("version-1-leaving.journal"), controller_events::leaving()).unwrap();
}

#[test]
#[ignore = "makes tests/data/version-1-suspended.journal, by hand"]
fn make_the_sample_of_suspension() {
    replace(&sample("version-1-suspended.journal"), controller_events::suspended()).unwrap();
}

#[test]
#[ignore = "makes tests/data/version-1-dynamic-nodes.journal, by hand"]
fn make_the_sample_of_nodes_of_no_file() {
    replace(&sample("version-1-dynamic-nodes.journal"), controller_events::dynamic_nodes()).unwrap();
}

#[test]
#[ignore = "makes tests/data/version-1-tasks.journal, by hand"]
fn make_the_sample_of_tasks() {
    replace(&sample("version-1-tasks.journal"), controller_events::tasks()).unwrap();
}

#[test]
#[ignore = "makes tests/data/version-2-revised.journal, by hand"]
fn make_the_sample_of_changes() {
    replace(&sample("version-2-revised.journal"), controller_events::revised()).unwrap();
}

#[test]
#[ignore = "makes tests/data/version-2-accruing.journal, by hand"]
fn make_the_sample_of_accruing_jobs() {
    replace(&sample("version-2-accruing.journal"), controller_events::accruing()).unwrap();
}

#[test]
#[ignore = "makes tests/data/version-2-submitted-again.journal, by hand"]
fn make_the_sample_of_jobs_that_were_submitted_again() {
    replace(&sample("version-2-submitted-again.journal"), controller_events::submitted_again()).unwrap();
}

#[test]
#[ignore = "makes tests/data/version-2-associations.journal, by hand"]
fn make_the_sample_of_associations() {
    replace(&sample("version-2-associations.journal"), controller_events::associated()).unwrap();
}

#[test]
#[ignore = "makes tests/data/version-1-fencing.journal, by hand"]
fn make_the_sample_of_fencing() {
    replace(&sample("version-1-fencing.journal"), controller_events::fencing()).unwrap();
}

#[test]
#[ignore = "makes tests/data/version-1-steps-moved.journal, by hand"]
fn make_the_sample_of_runs_that_stand_still() {
    replace(&sample("version-1-steps-moved.journal"), step_events::moved()).unwrap();
}

#[test]
#[ignore = "makes tests/data/version-1-steps-lost.journal, by hand"]
fn make_the_sample_of_lost_nodes() {
    replace(&sample("version-1-steps-lost.journal"), step_events::lost()).unwrap();
}

#[test]
#[ignore = "makes tests/data/version-1-steps-shepherds.journal, by hand"]
fn make_the_sample_of_shepherds_that_were_there() {
    replace(&sample("version-1-steps-shepherds.journal"), step_events::shepherds()).unwrap();
}

#[test]
#[ignore = "makes tests/data/version-1-steps-launches.journal, by hand"]
fn make_the_sample_of_launches() {
    replace(&sample("version-1-steps-launches.journal"), step_events::launches()).unwrap();
}

#[test]
#[ignore = "makes tests/data/version-1-steps-records.journal, by hand"]
fn make_the_sample_of_what_is_there_for_records() {
    replace(&sample("version-1-steps-records.journal"), step_events::for_records()).unwrap();
}

#[test]
#[ignore = "makes tests/data/version-1-steps-details.journal, by hand"]
fn make_the_sample_of_details() {
    replace(&sample("version-1-steps-details.journal"), step_events::details()).unwrap();
}

#[test]
#[ignore = "makes tests/data/version-1-steps-given-up.journal, by hand"]
fn make_the_sample_of_a_list_that_was_given_up() {
    replace(&sample("version-1-steps-given-up.journal"), step_events::given_up()).unwrap();
}

/// Makes the samples of the versions that are written now. Samples of versions that have been in use are not made again.
#[test]
#[ignore = "makes tests/data/version-2-controller.journal and version-1-steps.journal, by hand when a version changes"]
fn make_samples() {
    let path = sample("version-2-controller.journal");
    let mut bytes = Form::Epoch(0).header().to_vec();
    for (epoch, event) in controller_events::version_2() {
        Form::Epoch(epoch).frame(&path, &event, &mut bytes).unwrap();
    }
    std::fs::write(&path, bytes).unwrap();
    replace(&sample("version-1-steps.journal"), step_events::version_1()).unwrap();
}

#[test]
#[ignore = "makes tests/data/version-2-followers.journal, by hand"]
fn make_the_sample_of_followers() {
    garrick_journal::replace_as(&sample("version-2-followers.journal"), Form::Epoch(7), controller_events::followers())
        .unwrap();
}

#[test]
#[ignore = "makes tests/data/version-2-step-records.journal, by hand"]
fn make_the_sample_of_step_records() {
    let path = sample("version-2-step-records.journal");
    garrick_journal::replace_as(&path, Form::Epoch(7), controller_events::step_records()).unwrap();
}

#[test]
#[ignore = "makes tests/data/version-1-steps-usage.journal and version-2-step-usage.journal, by hand"]
fn make_the_samples_of_what_tasks_used() {
    replace(&sample("version-1-steps-usage.journal"), step_events::used()).unwrap();
    let path = sample("version-2-step-usage.journal");
    garrick_journal::replace_as(&path, Form::Epoch(7), controller_events::step_usage()).unwrap();
}

#[test]
#[ignore = "makes tests/data/version-2-accounted.journal, by hand"]
fn make_the_sample_of_what_accounting_keeps() {
    let path = sample("version-2-accounted.journal");
    garrick_journal::replace_as(&path, Form::Epoch(7), controller_events::accounted()).unwrap();
}

#[test]
#[ignore = "makes tests/data/version-2-beside.journal, by hand"]
fn make_the_sample_of_pieces_beside_the_log() {
    let path = sample("version-2-beside.journal");
    garrick_journal::replace_as(&path, Form::Epoch(4), controller_events::beside()).unwrap();
}

#[test]
fn nodes_that_are_powered_down_and_up_read_back() {
    let read: Vec<ControllerEvent> = all(&sample("version-2-powered.journal"));
    assert_same(&read, &controller_events::powered());
    let mut replayed = Replayed::default();
    read.iter().for_each(|event| replayed.apply(event).unwrap());
    let run = replayed.jobs[&JobId(81)].phase.run().unwrap();
    assert_eq!(run.booting.iter().collect::<Vec<_>>(), ["n2"]);
    assert_eq!(run.addresses[0], "10.0.0.7:6818");
    assert_eq!(replayed.nodes["n5"].power.unwrap().state, garrick_model::state::NodePower::PoweredDown);
}

#[test]
#[ignore = "makes tests/data/version-2-powered.journal, by hand"]
fn make_the_sample_of_nodes_that_are_powered_down_and_up() {
    let path = sample("version-2-powered.journal");
    garrick_journal::replace_as(&path, Form::Epoch(4), controller_events::powered()).unwrap();
}

/// Makes the sample of what came to version 2 then; it is not made again.
#[test]
#[ignore = "makes tests/data/version-2-crontabs-and-triggers.journal, by hand"]
fn make_the_sample_of_crontabs_and_triggers() {
    let path = sample("version-2-crontabs-and-triggers.journal");
    garrick_journal::replace_as(&path, Form::Epoch(4), controller_events::crontabs_and_triggers()).unwrap();
}

/// Makes the sample of what came to version 2 then; it is not made again.
#[test]
#[ignore = "makes tests/data/version-1-steps-limits.journal, by hand"]
fn make_the_sample_of_limits() {
    replace(&sample("version-1-steps-limits.journal"), step_events::limits()).unwrap();
}

/// Makes the sample of what came to version 2 then; it is not made again.
#[test]
#[ignore = "makes tests/data/version-2-partition-changes.journal, by hand"]
fn make_the_sample_of_partitions_that_came_and_went() {
    let path = sample("version-2-partition-changes.journal");
    garrick_journal::replace_as(&path, Form::Epoch(4), controller_events::partition_changes()).unwrap();
}

#[test]
fn usage_in_a_controllers_journal_of_version_2_reads_back() {
    let read: Vec<ControllerEvent> = all(&sample("version-2-usage.journal"));
    assert_same(&read, &controller_events::usage());
    let mut replayed = Replayed::default();
    read.iter().for_each(|event| replayed.apply(event).unwrap());
    let users: Vec<&str> = replayed.usage.users().map(|(who, _)| who.user.as_str()).collect();
    assert_eq!((users, replayed.usage.qos().count()), (vec!["bob"], 1));
    assert_eq!(replayed.usage.rules().half_life_secs, 604_800);
}

#[test]
#[ignore = "makes tests/data/version-2-usage.journal, by hand"]
fn make_the_sample_of_usage() {
    let path = sample("version-2-usage.journal");
    garrick_journal::replace_as(&path, Form::Epoch(4), controller_events::usage()).unwrap();
}

#[test]
fn usage_that_was_set_to_0_in_a_controllers_journal_of_version_2_reads_back() {
    let read: Vec<ControllerEvent> = all(&sample("version-2-usage-zeroed.journal"));
    assert_same(&read, &controller_events::zeroed());
    let mut replayed = Replayed::default();
    read.iter().for_each(|event| replayed.apply(event).unwrap());
    let zeroed: Vec<_> = replayed.usage.users().map(|(_, meter)| meter.zeroed.map(|at| at.secs())).collect();
    assert_eq!(zeroed, [Some(2_000_000_300); 2]);
}

#[test]
#[ignore = "makes tests/data/version-2-usage-zeroed.journal, by hand"]
fn make_the_sample_of_usage_that_was_set_to_0() {
    let path = sample("version-2-usage-zeroed.journal");
    garrick_journal::replace_as(&path, Form::Epoch(4), controller_events::zeroed()).unwrap();
}

#[test]
fn outages_and_times_of_reservations_in_a_controllers_journal_of_version_2_read_back() {
    let read: Vec<ControllerEvent> = all(&sample("version-2-outages.journal"));
    assert_same(&read, &controller_events::outages());
    let mut replayed = Replayed::default();
    read.iter().for_each(|event| replayed.apply(event).unwrap());
    assert_eq!(
        replayed.nodes["n1"].service.map(|service| (service.out, service.since.secs())),
        Some((false, 2_000_000_000))
    );
    assert!(replayed.reservations.is_empty());
}

#[test]
#[ignore = "makes tests/data/version-2-outages.journal, by hand"]
fn make_the_sample_of_outages() {
    let path = sample("version-2-outages.journal");
    garrick_journal::replace_as(&path, Form::Epoch(4), controller_events::outages()).unwrap();
}

#[test]
fn runs_with_numbers_in_a_controllers_journal_of_version_2_read_back() {
    let read: Vec<ControllerEvent> = all(&sample("version-2-numbered-runs.journal"));
    assert_same(&read, &controller_events::numbered_runs());
    let mut replayed = Replayed::default();
    read.iter().for_each(|event| replayed.apply(event).unwrap());
    let record = &replayed.jobs[&JobId(83)];
    assert_eq!(record.phase.end().map(|end| end.sluid), Some(Some(record.sluid)));
}

#[test]
#[ignore = "makes tests/data/version-2-numbered-runs.journal, by hand"]
fn make_the_sample_of_runs_with_numbers() {
    let path = sample("version-2-numbered-runs.journal");
    garrick_journal::replace_as(&path, Form::Epoch(4), controller_events::numbered_runs()).unwrap();
}

#[test]
fn nodes_that_fail_and_later_triggers_in_a_controllers_journal_of_version_2_read_back() {
    let read: Vec<ControllerEvent> = all(&sample("version-2-failing-and-triggers.journal"));
    assert_same(&read, &controller_events::failing_and_triggers());
    let mut replayed = Replayed::default();
    read.iter().for_each(|event| replayed.apply(event).unwrap());
    assert!(replayed.nodes["n1"].fail && !replayed.nodes["n1"].drain);
}

#[test]
#[ignore = "makes tests/data/version-2-failing-and-triggers.journal, by hand"]
fn make_the_sample_of_nodes_that_fail_and_later_triggers() {
    let path = sample("version-2-failing-and-triggers.journal");
    garrick_journal::replace_as(&path, Form::Epoch(4), controller_events::failing_and_triggers()).unwrap();
}
