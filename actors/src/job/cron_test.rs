//! Rules of jobs of crontabs: another run follows each, until they are cancelled or leave.
#![allow(clippy::unwrap_used)]

use super::{
    effects::JobEffect,
    fixtures::{ALICE, Bench, ROOT, site},
};
use crate::{
    messages::crontab::CrontabInput,
    messages::{
        job::{JobCommand, JobInput, JobTimer},
        letter::Letter,
    },
};
use garrick_events::testing::record;
use garrick_model::{
    ids::JobId,
    messages::command::JobChange,
    refusal::Refusal,
    spec::JobSpec,
    state::{JobState, Reason},
    testing::spec,
    time::Timestamp,
};

/// Due every ten minutes; it is 16:40 minutes past midnight, 1970.
fn every_ten_minutes() -> JobSpec {
    JobSpec { cron: Some("*/10 * * * *".parse().unwrap()), ..spec() }
}

fn running() -> Bench {
    Bench::running(every_ten_minutes())
}

fn disabled(out: &[JobEffect]) -> bool {
    let over = CrontabInput::Over { uid: 1001, job: JobId(7) };
    out.iter().any(|effect| *effect == JobEffect::Tell(Letter::Crontabs(over.clone())))
}

#[test]
fn after_each_run_it_waits_for_the_next_time() {
    let mut job = running();
    for (now, state, code, due) in [(1000, JobState::Failed, 3, 1200), (1200, JobState::Timeout, 0, 1800)] {
        job.now = Timestamp::from_secs(now);
        if now > 1000 {
            job.allocate(&["n0", "n1"]);
            job.started();
        }
        let sluid = job.core.record().sluid;
        job.ended(state, code);
        assert_eq!(job.view().state, JobState::Completing);
        job.released("n0");
        let out = job.released("n1");
        let view = job.view();
        assert_eq!((view.state, view.reason, view.recurs), (JobState::Pending, Reason::BeginTime, true));
        assert_eq!(job.core.record().begin, Some(Timestamp::from_secs(due)));
        assert!(!view.eligible && view.sluid != sluid && !disabled(&out));
    }
    assert_eq!(job.core.record().restarts, 2);
    assert_eq!(&job.replayed(), job.core.record());
}

#[test]
fn a_cancelled_one_does_not_recur_and_its_crontab_is_told() {
    let mut job = running();
    job.order(JobCommand::Cancel).unwrap();
    job.ended(JobState::Cancelled, 0);
    job.released("n0");
    let out = job.released("n1");
    assert!(job.core.is_over() && disabled(&out) && !job.view().recurs);
    let (mut waits, _) = Bench::new(record(7, every_ten_minutes()));
    let (result, out) = waits.command(ALICE, None, JobCommand::Cancel);
    assert!(result.is_ok() && waits.core.is_over() && disabled(&out));
}

#[test]
fn one_that_left_its_crontab_runs_to_its_end() {
    let mut job = running();
    job.send(JobInput::LeaveCrontab);
    assert_eq!((job.state(), job.view().recurs), (JobState::Running, false));
    job.ended(JobState::Completed, 0);
    job.released("n0");
    let out = job.released("n1");
    assert_eq!((job.state(), disabled(&out)), (JobState::Completed, false));
    // In between, too.
    let mut job = running();
    job.ended(JobState::Completed, 0);
    job.send(JobInput::LeaveCrontab);
    job.released("n0");
    job.released("n1");
    assert_eq!(job.state(), JobState::Completed);
    let (mut waits, _) = Bench::new(record(7, every_ten_minutes()));
    let out = waits.send(JobInput::LeaveCrontab);
    assert_eq!((waits.state(), disabled(&out)), (JobState::Cancelled, false));
    assert_eq!(waits.send(JobInput::LeaveCrontab), []);
}

#[test]
fn a_requeued_run_waits_for_the_next_time() {
    let mut job = running();
    job.order(JobCommand::Requeue { hold: false }).unwrap();
    job.ended(JobState::Cancelled, 0);
    job.released("n0");
    job.released("n1");
    assert_eq!((job.state(), job.core.record().begin), (JobState::Pending, Some(Timestamp::from_secs(1200))));
    assert_eq!(job.order(JobCommand::Requeue { hold: false }), Err(Refusal::JobPending));
}

#[test]
fn each_time_begins_anew_what_counts_failures_and_who_failed_too_often_is_released() {
    let mut job = running();
    job.send(JobInput::Site(site("MaxBatchRequeue=1\nRequeueExit=3")));
    let mut fails = |code: u8| {
        let state = if code == 0 { JobState::Completed } else { JobState::Failed };
        job.ended(state, code);
        job.released("n0");
        job.released("n1");
        let shown = (job.view().reason, job.core.record().requeues_unasked);
        job.now = Timestamp::from_secs(job.now.secs() + 1200);
        job.send(JobInput::Timer(JobTimer::Eligible));
        if shown.0 != Reason::JobHoldMaxRequeue {
            job.allocate(&["n0", "n1"]);
            job.started();
        }
        shown
    };
    let seen = [3, 0, 3, 3].map(&mut fails);
    let counts = [1, 0, 1, 2];
    let reasons = [Reason::BeginTime, Reason::BeginTime, Reason::BeginTime, Reason::JobHoldMaxRequeue];
    assert_eq!(seen.to_vec(), reasons.into_iter().zip(counts).collect::<Vec<_>>());
    assert_eq!(job.command(ROOT, None, JobCommand::Release).0, Ok(()));
    assert_eq!(job.core.record().hold, None);
    assert_eq!(job.command(ROOT, None, JobCommand::Release).0, Err(Refusal::CronJob));
}

#[test]
fn a_cancelled_one_that_is_requeued_runs_once_more_and_does_not_recur() {
    let (mut job, _) = Bench::new(record(7, every_ten_minutes()));
    job.command(ALICE, None, JobCommand::Cancel).0.unwrap();
    job.order(JobCommand::Requeue { hold: false }).unwrap();
    assert_eq!((job.view().recurs, job.core.record().begin), (false, None));
    assert_eq!(&job.replayed(), job.core.record());
}

#[test]
fn nobody_changes_one_but_with_its_crontab() {
    let (mut job, _) = Bench::new(record(7, every_ten_minutes()));
    let change = JobChange { name: Some("other".to_owned()), ..JobChange::default() };
    for command in [JobCommand::Update(Box::new(change)), JobCommand::Hold { admin: true }, JobCommand::Release] {
        assert_eq!(job.command(ROOT, None, command).0, Err(Refusal::CronJob));
    }
}
