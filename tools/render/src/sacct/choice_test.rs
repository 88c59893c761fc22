//! Which jobs sacct of Slurm 26.05.3 showed of the same ones.
#![allow(clippy::unwrap_used)]
use super::*;
use crate::testing::accounting::{at, job, job_12, waiting, with_steps};
use garrick_model::{
    ids::{ArrayTask, JobId, StepKey},
    step_selector::WhichSteps,
};

/// Everything of all time.
pub(in crate::sacct) fn choice() -> Choice {
    Choice::everything(at(100_000))
}

fn window(start: i64, end: i64, states: &str) -> Choice {
    let states =
        states.split(',').filter(|word| !word.is_empty()).map(|word| RecordState::read(word).unwrap()).collect();
    Choice { window: Window { start: at(start), end: at(end) }, states, ..choice() }
}

fn ids(choice: &Choice, rows: &[JobRow]) -> Vec<u32> {
    let rows = rows.iter().map(|row| with_steps(row.clone(), [])).collect();
    choice.rows(rows).iter().map(|job| job.row.job.0).collect()
}

/// Jobs 1, 2, 5, 7, 12, 14 and 15 of the transcripts, and one that waits.
fn rows() -> Vec<JobRow> {
    let later = |row: JobRow| JobRow { submit: at(4), eligible: Some(at(4)), ..row };
    vec![
        job(1, "ok", 4, 6),
        JobRow { state: JobState::Failed, ..job(2, "fail3", 4, 4) },
        JobRow { state: JobState::Timeout, ..job(5, "tlimit", 9, 90) },
        JobRow { state: JobState::Cancelled, end: Some(at(1)), cancelled_by: Some(0), ..waiting(7, "cancelme") },
        job(12, "steps", 0, 8),
        later(job(14, "lic", 15, 18)),
        later(job(15, "gpus", 8, 11)),
        JobRow { submit: at(24), eligible: Some(at(24)), ..waiting(28, "dep") },
    ]
}

#[test]
fn jobs_are_shown_that_were_eligible_in_the_window() {
    assert_eq!(ids(&window(6, 8, ""), &rows()), [1, 5, 12, 14, 15]);
    assert_eq!(ids(&window(-1000, 2, ""), &rows()), [1, 2, 5, 7, 12]);
    assert_eq!(ids(&window(20, 3000, ""), &rows()), [5, 28]);
    let held = JobRow { eligible: None, ..waiting(6, "held") };
    assert!(!window(-1000, 3000, "").takes(&held));
    let named = JobFilter { jobs: vec![NamedJob::job(JobId(6))], ..JobFilter::default() };
    let by_number = Choice { such: named, ..choice() };
    assert!(by_number.takes(&held), "it is asked for by its number");
    let later = JobRow { eligible: Some(at(200_000)), ..held };
    assert!(by_number.takes(&later) && by_number.question().end.is_none());
    assert!(!choice().takes(&later) && choice().question().end.is_some());
}

#[test]
fn states_are_those_of_the_window() {
    assert_eq!(ids(&window(7, 8, "r"), &rows()), [12]);
    assert_eq!(ids(&window(7, 8, "pd"), &rows()), [5, 14, 15]);
    assert_eq!(ids(&window(-1000, 3000, "pd"), &rows()), [1, 2, 5, 7, 12, 14, 15, 28]);
    assert_eq!(ids(&window(-1000, 3000, "f,to"), &rows()), [2, 5]);
    assert_eq!(ids(&window(20, 3000, "f"), &rows()), [0; 0], "it failed before");
    assert_eq!(ids(&window(-1000, 3000, "ca"), &rows()), [7]);
    assert_eq!(ids(&window(30, 31, "r"), &rows()), [5]);
    let stood = [JobRow { suspended_ms: 3000, ..job(24, "susp", 15, 25) }];
    assert_eq!((ids(&window(0, 100, "s"), &stood), ids(&window(0, 100, "rs"), &stood)), (vec![24], vec![]));
}

#[test]
fn of_several_runs_the_newest_that_fits_is_shown() {
    let first = JobRow { state: JobState::Cancelled, requeued: true, ..job(25, "rq", 21, 23) };
    let second = JobRow { sluid: Sluid(first.sluid.0 + 9), restarts: 1, ..job(25, "rq", 144, 150) };
    let rows = [second, first];
    let runs = |choice: &Choice| {
        let rows = rows.iter().map(|row| with_steps(row.clone(), [])).collect();
        choice.rows(rows).iter().map(|job| job.row.restarts).collect::<Vec<_>>()
    };
    assert_eq!(runs(&choice()), [1]);
    assert_eq!(runs(&Choice { duplicates: true, ..choice() }), [0, 1]);
    assert_eq!(runs(&window(0, 1000, "rq")), [0]);
    // Whatever the service leaves out, it is not that.
    let question = window(0, 1000, "rq").question();
    assert_eq!((question.states, question.duplicates), (vec![JobState::Cancelled], true));
    assert_eq!(window(0, 1000, "s,f").question().states, []);
}

#[test]
fn rows_are_in_the_order_of_their_submission_with_arrays_last() {
    let task =
        |id, index| JobRow { array_task: Some(ArrayTask { array_job: JobId(9), index }), ..job(id, "arr", 9, 11) };
    let rows = [task(9, 4), job(14, "lic", 15, 18), task(19, 2), job(3, "sig9", 4, 4), task(18, 1)];
    assert_eq!(ids(&choice(), &rows), [3, 14, 18, 19, 9]);
    let later = JobRow { submit: at(4), ..rows[1].clone() };
    assert_eq!(ids(&choice(), &[later, rows[0].clone()]), [9, 14]);
}

#[test]
fn places_are_in_the_order_of_what_they_are_of() {
    let task = |id, index, submit| JobRow {
        array_task: Some(ArrayTask { array_job: JobId(9), index }),
        submit: at(submit),
        ..job(id, "arr", 9, 11)
    };
    let one = |id, submit| JobRow { submit: at(submit), ..job(id, "x", 9, 11) };
    let before_1970 = JobRow { submit: Timestamp(-5000), ..job(1, "x", 9, 11) };
    let newer = JobRow { sluid: Sluid(one(2, 0).sluid.0 + 1), ..one(2, 0) };
    let rows =
        [before_1970, one(300, -1), one(2, 0), newer, one(300, 0), task(400, 1, 0), task(70_000, 2, 0), one(1, 1)];
    let key =
        |row: &JobRow| (row.submit.secs(), row.array_task.map(|task| (task.array_job, task.index)), row.job, row.sluid);
    for (a, b) in rows.iter().zip(&rows[1..]) {
        assert!(key(a) < key(b) && Place::of(a) < Place::of(b), "{a:?} {b:?}");
    }
}

fn named(word: NamedJob) -> Choice {
    Choice { such: JobFilter { jobs: vec![word], ..JobFilter::default() }, ..choice() }
}

#[test]
fn a_step_is_shown_without_its_job() {
    let of = |which: WhichSteps| NamedJob { steps: Some(which), ..NamedJob::job(JobId(12)) };
    let lines = |choice: &Choice| choice.entries(&job_12()).iter().map(|entry| entry.id(None)).collect::<Vec<_>>();
    assert_eq!(lines(&named(of(WhichSteps::one(StepKey::BATCH)))), ["12.batch"]);
    assert_eq!(lines(&named(of(WhichSteps::one(StepKey::number(3))))), ["12.3"]);
    assert_eq!(lines(&named(of(WhichSteps::one(StepKey::number(9))))), [""; 0]);
    assert_eq!(lines(&Choice { steps: false, ..choice() }), ["12"]);
    assert_eq!(lines(&named(NamedJob::job(JobId(12))))[..3], ["12", "12.batch", "12.extern"]);
}

#[test]
fn a_leader_stands_for_its_job_unless_told_otherwise() {
    let part = |id, offset| JobRow { het: Some((JobId(10), offset)), ..job(id, "het", 9, 11) };
    let rows = [part(10, 0), part(11, 1)];
    let by = |id, whole_het| Choice { whole_het, ..named(NamedJob::job(JobId(id))) };
    assert_eq!(ids(&by(10, None), &rows), [10, 11]);
    assert_eq!(ids(&by(11, None), &rows), [11]);
    assert_eq!(ids(&by(10, Some(false)), &rows), [10]);
    let second = named(NamedJob { het: Some(1), ..NamedJob::job(JobId(10)) });
    assert_eq!(ids(&second, &rows), [11]);
    assert_eq!(ids(&Choice { whole_het: Some(false), ..second }, &rows), [11]);
    let whole = by(11, Some(true));
    let found: Vec<JobWithSteps> = rows[1..].iter().map(|row| with_steps(row.clone(), [])).collect();
    assert_eq!(whole.rest_of_het_jobs(&found), [NamedJob::job(JobId(10))]);
    assert_eq!(by(11, None).rest_of_het_jobs(&found), []);
}

#[test]
fn tasks_that_wait_have_no_record_of_their_own() {
    let array = JobRow { waiting: Some("1,3,5-9".parse().unwrap()), ..waiting(225, "arrp") };
    assert!(named(NamedJob::job(JobId(225))).takes(&array));
    assert!(!named(NamedJob { tasks: Some("5".parse().unwrap()), ..NamedJob::job(JobId(225)) }).takes(&array));
}

#[test]
fn sizes_limits_and_features_choose() {
    let row = JobRow { constraint: Some("fast&gpu".into()), ..job_12().row };
    let takes = |change: fn(&mut Choice)| {
        let mut choice = choice();
        change(&mut choice);
        choice.takes(&row)
    };
    assert!(takes(|c| c.cpus = Some(4..=4)) && !takes(|c| c.cpus = Some(2..=3)));
    assert!(takes(|c| c.nodes = Some(1..=2)) && !takes(|c| c.nodes = Some(2..=2)));
    let minutes = Limit::Minutes;
    assert!(takes(|c| c.limits = Some(Limit::Minutes(10)..=Limit::Minutes(10))));
    assert!(!takes(|c| c.limits = Some(Limit::Minutes(11)..=Limit::Unlimited)));
    assert!(minutes(99) < Limit::Unlimited);
    assert!(
        takes(|c| c.constraints = vec!["gpu".into()]) && takes(|c| c.constraints = vec!["gpu".into(), "fast".into()])
    );
    assert!(!takes(|c| c.constraints = vec!["gpu".into(), "big".into()]));
    assert!(takes(|c| c.flags = vec![Flag::SchedMain]) && !takes(|c| c.flags = vec![Flag::SchedBackfill]));
    assert!(takes(|c| c.reasons = vec!["none".into()]) && !takes(|c| c.reasons = vec!["Priority".into()]));
    assert!(!takes(|c| c.such.users = vec![3002]) && takes(|c| c.such.users = vec![3001]));
}
