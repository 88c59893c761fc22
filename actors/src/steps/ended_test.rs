#![allow(clippy::unwrap_used)]
use super::*;
use garrick_model::{
    ids::StepKey,
    state::{ExitStatus, StepState},
    time::{TimeLimit, Timestamp},
    usage::TaskUsage,
    view::{StepOrigin, StepRow, StepRows},
};
use std::ops::Range;

const JOB: JobId = JobId(5);

fn report(numbers: Range<u32>, state: StepState, line: &str) -> PackedSteps {
    let origin = StepOrigin {
        name: "a".into(),
        uid: 1001,
        partition: "p".into(),
        tasks: 1,
        time_limit: TimeLimit::Unlimited,
        srun: None,
        submit_line: line.into(),
        priority: 0,
        cpu_freq: None,
        layout: None,
    };
    let row = |number: u32| StepRow {
        key: StepKey::number(number),
        origin: 0,
        state,
        nodelist: "n1".into(),
        nodes: 1,
        cpus: 1,
        memory: Default::default(),
        gres: Vec::new(),
        start_time: None,
        end_time: Some(Timestamp(i64::from(number))),
        exit: ExitStatus::SUCCESS,
        attempt: 0,
        usage: TaskUsage::default(),
        spread: None,
        all_of: None,
        reason: Default::default(),
    };
    StepRows { origins: vec![origin], rows: numbers.map(row).collect(), ..StepRows::default() }.into()
}

fn numbers(views: &[StepView]) -> Vec<u32> {
    let mut numbers: Vec<u32> = views.iter().filter_map(|v| v.id.step.number()).collect();
    numbers.sort_unstable();
    numbers
}

#[test]
fn only_steps_that_are_over_are_kept_and_a_repeat_changes_nothing() {
    let mut ended = EndedSteps::default();
    ended.note(JOB, Sluid(1), report(0..3, StepState::Running, ""));
    ended.note(JOB, Sluid(1), report(0..2, StepState::Completed, ""));
    ended.note(JOB, Sluid(1), report(1..4, StepState::Failed, ""));
    ended.note(JOB, Sluid(1), report(1..4, StepState::Failed, ""));
    assert_eq!(numbers(&ended.of(JOB)), [0, 1, 2, 3]);
    assert_eq!(ended.of(JobId(6)), []);
}

#[test]
fn of_many_the_newest_stay() {
    let mut ended = EndedSteps::default();
    for from in (0..100_000).step_by(2000) {
        ended.note(JOB, Sluid(1), report(from..from + 2000, StepState::Completed, ""));
    }
    assert!(ended.by_job[&JOB].rows <= 4000);
    assert_eq!(numbers(&ended.of(JOB)), (99_000..100_000).collect::<Vec<_>>());
    for from in (100_000..103_000).step_by(10) {
        ended.note(JOB, Sluid(1), report(from..from + 10, StepState::Completed, ""));
    }
    assert_eq!(ended.by_job[&JOB].rows, 1000);
    assert_eq!(numbers(&ended.of(JOB)), (102_000..103_000).collect::<Vec<_>>());
}

#[test]
fn large_steps_are_bounded_by_bytes() {
    let mut ended = EndedSteps::default();
    let line = "x".repeat(100_000);
    for number in 0..500 {
        ended.note(JOB, Sluid(1), report(number..number + 1, StepState::Completed, &line));
        assert!(ended.bytes <= PER_JOB_BYTES);
    }
    assert_eq!(*numbers(&ended.of(JOB)).last().unwrap(), 499);
    for job in 6..100 {
        for number in 0..20 {
            ended.note(JobId(job), Sluid(1), report(number..number + 1, StepState::Completed, &line));
            assert!(ended.bytes <= IN_ALL_BYTES);
        }
    }
    assert_eq!(ended.of(JOB), []);
    assert_eq!(ended.of(JobId(99)).len(), 20);
    assert_eq!(ended.bytes, ended.by_job.values().map(|k| k.bytes).sum::<usize>());
}

#[test]
fn a_new_run_starts_empty_and_an_older_one_says_nothing_any_more() {
    let mut ended = EndedSteps::default();
    ended.note(JOB, Sluid(1), report(0..9, StepState::Completed, ""));
    ended.note(JOB, Sluid(2), report(0..2, StepState::Completed, ""));
    ended.note(JOB, Sluid(1), report(9..12, StepState::Completed, ""));
    assert_eq!(numbers(&ended.of(JOB)), [0, 1]);
    ended.keep(|_| false);
    assert_eq!((ended.of(JOB).len(), ended.bytes), (0, 0));
}
