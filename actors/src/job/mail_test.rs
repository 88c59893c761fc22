//! Rules of mail about jobs.
#![allow(clippy::unwrap_used)]

use super::{
    core::{JobCore, Leftover},
    effects::{JobEffect, JobErrand},
    fixtures::{Bench, CountingIds, begun, proposal},
};
use crate::messages::{
    job::{JobCommand, JobFact, JobInput, JobPrograms, JobSite, JobTimer},
    node::Grant,
};
use garrick_events::{records::job::TaskOutcome, testing::record};
use garrick_model::{
    ids::JobId,
    mail::Mail,
    messages::command::JobChange,
    site_program::{Moment, SiteProgram},
    spec::JobSpec,
    state::{ExitStatus, JobState},
    testing::{array, spec},
    time::{TimeLimit, Timestamp},
};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

fn asks(types: &str) -> JobSpec {
    JobSpec { mail: Mail { types: types.parse().unwrap(), user: Some("alice@example.org".to_owned()) }, ..spec() }
}

fn mails(out: &[JobEffect]) -> Vec<&SiteProgram> {
    let mail = |effect| match effect {
        &JobEffect::Do(JobErrand::Mail(ref program)) => Some(&**program),
        _ => None,
    };
    out.iter().filter_map(mail).collect()
}

fn subjects(out: &[JobEffect]) -> Vec<&str> {
    mails(out).iter().map(|mail| mail.arguments[1].as_str()).collect()
}

fn value<'m>(mail: &'m SiteProgram, name: &str) -> Option<&'m str> {
    mail.environment.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
}

#[test]
fn a_job_is_told_of_from_its_start_to_its_end_after_each_event_is_saved() {
    let mut job = Bench::with(asks("ALL"));
    job.now = Timestamp::from_secs(1005);
    let out = job.allocate(&["n0", "n1"]);
    assert_eq!(subjects(&out), ["Slurm Job_id=7 Name=test Began, Queued time 00:00:05"]);
    let saved = out.iter().position(|effect| matches!(effect, JobEffect::Save(_))).unwrap();
    let told = out.iter().position(|effect| matches!(effect, JobEffect::Do(JobErrand::Mail(_)))).unwrap();
    assert!(saved < told, "{out:?}");
    let mail = mails(&out)[0];
    assert_eq!((mail.moment, mail.arguments.len()), (Moment::Mail, 3));
    assert_eq!((mail.arguments[0].as_str(), mail.arguments[2].as_str()), ("-s", "alice@example.org"));
    let of = |name| value(mail, name);
    assert_eq!((of("SLURM_JOB_MAIL_TYPE"), of("SLURM_JOB_STATE")), (Some("Began"), Some("RUNNING")));
    assert_eq!((of("SLURM_JOB_QUEUED_TIME"), of("SLURM_JOB_NODELIST")), (Some("00:00:05"), Some("n[0-1]")));
    assert_eq!((of("SLURM_JOB_CPUS_PER_NODE"), of("SLURM_JOB_EXIT_CODE")), (Some("2(x2)"), None));
    job.started();
    job.now = Timestamp::from_secs(1105);
    let out = job.ended(JobState::Failed, 3);
    assert_eq!(subjects(&out), ["Slurm Job_id=7 Name=test Failed, Run time 00:01:40, FAILED, ExitCode 3"]);
    let mail = mails(&out)[0];
    let codes = ["SLURM_JOB_EXIT_CODE", "SLURM_JOB_EXIT_CODE2", "SLURM_JOB_EXIT_CODE_MAX", "SLURM_JOB_RUN_TIME"];
    assert_eq!(codes.map(|name| value(mail, name)), [Some("768"), Some("3:0"), Some("3"), Some("00:01:40")]);
    assert_eq!(subjects(&job.released("n0")), [""; 0]);
    assert_eq!(subjects(&job.released("n1")), [""; 0]);
}

#[test]
fn only_what_was_asked_for_is_told() {
    for (types, began, failed, completed) in [
        ("NONE", None, None, None),
        ("BEGIN", Some("Began"), None, None),
        ("END", None, Some("Ended"), Some("Ended")),
        ("FAIL", None, Some("Failed"), None),
        ("END,FAIL", None, Some("Failed"), Some("Ended")),
        ("TIME_LIMIT", None, None, None),
    ] {
        let word =
            |out: &[JobEffect]| mails(out).first().map(|mail| value(mail, "SLURM_JOB_MAIL_TYPE").unwrap().to_owned());
        for (state, code, end) in [(JobState::Failed, 1, failed), (JobState::Completed, 0, completed)] {
            let mut job = Bench::with(asks(types));
            assert_eq!(word(&job.allocate(&["n0"])).as_deref(), began, "{types}");
            job.started();
            assert_eq!(word(&job.ended(state, code)).as_deref(), end, "{types}");
        }
    }
}

#[test]
fn a_job_that_is_cancelled_while_it_waits_has_ended_and_one_that_is_requeued_is_told_as_that() {
    let mut job = Bench::with(asks("ALL"));
    let (answer, out) = job.command(super::fixtures::ALICE, None, JobCommand::Cancel);
    answer.unwrap();
    assert_eq!(subjects(&out), ["Slurm Job_id=7 Name=test Ended, Run time 00:00:00, CANCELLED, ExitCode 0"]);
    let mut job = Bench::running(asks("ALL"));
    job.now = Timestamp::from_secs(1010);
    job.order(JobCommand::Requeue { hold: false }).unwrap();
    job.ended(JobState::Cancelled, 0);
    job.released("n0");
    let out = job.released("n1");
    assert_eq!(subjects(&out), ["Slurm Job_id=7 Name=test Requeued, Run time 00:00:10"]);
    assert_eq!(value(mails(&out)[0], "SLURM_JOB_STATE"), Some("PENDING"));
}

#[test]
fn a_subject_is_one_line_whatever_the_job_is_called() {
    let mut job = Bench::with(JobSpec { name: "a\nBcc: b".to_owned(), ..asks("BEGIN") });
    assert_eq!(subjects(&job.allocate(&["n0"])), ["Slurm Job_id=7 Name=a Bcc: b Began, Queued time 00:00:00"]);
}

#[test]
fn parts_of_the_time_limit_are_told_once_each_and_none_again_after_a_restart() {
    let timer = |out: &[JobEffect]| {
        out.iter().find_map(|effect| match effect {
            JobEffect::SetTimer { timer: JobTimer::Mail, at } => Some(at.secs()),
            _ => None,
        })
    };
    let mut job = Bench::with(asks("TIME_LIMIT_50,TIME_LIMIT_90,TIME_LIMIT"));
    // An hour from second 1000 on.
    assert_eq!(timer(&job.allocate(&["n0"])), Some(2800));
    job.started();
    job.now = Timestamp::from_secs(2800);
    let out = job.send(JobInput::Timer(JobTimer::Mail));
    assert_eq!(subjects(&out), ["Slurm Job_id=7 Name=test Reached 50% of time limit, Run time 00:30:00"]);
    assert_eq!(timer(&out), Some(4240));
    assert_eq!(subjects(&job.send(JobInput::Timer(JobTimer::Mail))), [""; 0]);
    // The controller is away while 90 percent pass.
    let mut again = JobCore::new(job.replayed(), Arc::new(JobSite::default()));
    let mut out = Vec::new();
    let mut ids = CountingIds { job: 1, sluid: 1 };
    again.resume(Timestamp::from_secs(4300), &mut ids, Leftover::default(), &mut out);
    assert_eq!((timer(&out), subjects(&out)), (Some(4600), vec![]));
    // A longer limit moves what is left.
    let longer = JobChange { time_limit: Some(TimeLimit::Secs(7200)), ..JobChange::default() };
    let (_, out) = job.command(super::fixtures::ROOT, None, JobCommand::Update(Box::new(longer)));
    assert_eq!(timer(&out), Some(1000 + 3600));
    // Who is ended at the limit has reached it, whatever the timer says.
    let mut job = Bench::running(asks("TIME_LIMIT,END"));
    job.now = Timestamp::from_secs(4600);
    let out = job.ended(JobState::Timeout, 0);
    assert_eq!(
        subjects(&out),
        [
            "Slurm Job_id=7 Name=test Reached time limit, Run time 01:00:00",
            "Slurm Job_id=7 Name=test Ended, Run time 01:00:00, TIMEOUT, ExitCode 0"
        ]
    );
}

#[test]
fn what_is_asked_for_may_change_and_nobody_is_the_jobs_own_user() {
    let mut job = Bench::with(spec());
    let programs = JobPrograms { mail_domain: Some("example.org".to_owned()), ..JobPrograms::default() };
    job.send(JobInput::Site(Arc::new(JobSite { programs, ..JobSite::default() })));
    let change = |types: &str, user: &str| {
        let (mail_types, mail_user) = (Some(types.parse().unwrap()), Some(user.to_owned()));
        JobCommand::Update(Box::new(JobChange { mail_types, mail_user, ..JobChange::default() }))
    };
    job.order(change("BEGIN", "bob")).unwrap();
    assert_eq!(mails(&job.allocate(&["n0"]))[0].arguments[2], "bob");
    job.started();
    job.order(change("END", "")).unwrap();
    let out = job.ended(JobState::Completed, 0);
    assert_eq!(mails(&out)[0].arguments[2], "alice@example.org");
    assert_eq!(job.replayed(), *job.core.record());
}

fn news(job: u32, started: bool, end: Option<ExitStatus>) -> JobInput {
    let over = end.map(|exit| if exit.success() { TaskOutcome::Ok } else { TaskOutcome::NotOk });
    let (job, started) = (JobId(job), started.then_some(Timestamp::from_secs(1001)));
    let fact = JobFact { job, started, over, some_failed: false, tasks: BTreeMap::new(), exit: end, noted: false };
    JobInput::Fact { job, fact: Some(Arc::new(fact)) }
}

#[test]
fn an_array_is_told_of_as_a_whole_unless_each_task_was_asked_for() {
    for (codes, said) in [
        ([0, 0], "Ended, COMPLETED, ExitCode [0-0]"),
        ([2, 1], "Failed, FAILED, ExitCode [1-2]"),
        ([1, 0], "Failed, Mixed, ExitCode [0-1]"),
    ] {
        let mut job = Bench::with(JobSpec { array: Some(array(1, 2, None)), ..asks("BEGIN,END,FAIL") });
        let out = job.send(JobInput::Start(Box::new(proposal(7, Some(1), &["n0"]))));
        let (task, _) = out.iter().find_map(begun).unwrap();
        let task = task.id.0;
        assert_eq!(subjects(&job.send(news(task, true, None))), ["Slurm Array Summary Job_id=7_* (7) Name=test Began"]);
        job.send(JobInput::Start(Box::new(proposal(7, Some(2), &["n0"]))));
        let attempt = job.core.leftover().attempt;
        let out =
            job.send(JobInput::Reserved { attempt, node: "n0".to_owned(), result: Ok(Grant::at("n0:1".to_owned())) });
        assert_eq!(subjects(&out), [""; 0], "it began before");
        job.started();
        let state = if codes[1] == 0 { JobState::Completed } else { JobState::Failed };
        assert_eq!(subjects(&job.ended(state, codes[1])), [""; 0], "a task is left");
        let out = job.send(news(task, true, Some(ExitStatus { code: codes[0], signal: None })));
        assert_eq!(subjects(&out), [format!("Slurm Array Summary Job_id=7_* (7) Name=test {said}")]);
        let bounds = ["SLURM_JOB_EXIT_CODE_MIN", "SLURM_JOB_EXIT_CODE_MAX"].map(|name| value(mails(&out)[0], name));
        let (least, most) = (codes.iter().min().unwrap().to_string(), codes.iter().max().unwrap().to_string());
        assert_eq!(bounds, [Some(least.as_str()), Some(most.as_str())]);
    }
    let mut each = record(9, asks("BEGIN,END,ARRAY_TASKS"));
    each.array_task = Some(garrick_model::ids::ArrayTask { array_job: JobId(7), index: 1 });
    let mut task = Bench::new(each).0;
    assert_eq!(
        subjects(&task.allocate(&["n0"])),
        ["Slurm Array Task Job_id=7_1 (9) Name=test Began, Queued time 00:00:00"]
    );
    let mut silent = record(9, asks("BEGIN,END"));
    silent.array_task = Some(garrick_model::ids::ArrayTask { array_job: JobId(7), index: 1 });
    let mut task = Bench::new(silent).0;
    assert_eq!(subjects(&task.allocate(&["n0"])), [""; 0], "its array tells");
}

#[test]
fn a_restart_tells_nothing_again() {
    let mut job = Bench::running(asks("ALL"));
    job.now = job.now.plus(Duration::from_secs(5));
    for record in [job.replayed(), {
        job.ended(JobState::Completed, 0);
        job.replayed()
    }] {
        let mut again = JobCore::new(record, Arc::new(JobSite::default()));
        let mut out = Vec::new();
        again.resume(job.now, &mut CountingIds { job: 1, sluid: 1 }, Leftover::default(), &mut out);
        assert_eq!(subjects(&out), [""; 0]);
    }
}
