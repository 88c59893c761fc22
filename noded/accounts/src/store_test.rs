#![allow(clippy::unwrap_used)]
use super::*;
use crate::{
    pages::{Cursor, Page, Question},
    testing::{LOG, ended, in_file, job, on_each, report, submitted},
};
use garrick_accounts::filter::{JobFilter, NamedJob, Owner};
use garrick_events::{
    records::job::{End, Run},
    testing::{self, record},
};
use garrick_model::{
    ids::NodeIndex,
    node_shape::NodeShare,
    spec::JobSpec,
    spec_text::licenses::Licenses,
    state::{JobState, StepState},
    time::Timestamp,
    view::{AllocatedNode, Allocation},
};

async fn all(store: &Store, filter: &JobFilter) -> Vec<garrick_accounts::messages::JobWithSteps> {
    let mut cursor = Cursor::default();
    let (mut jobs, mut after) = (Vec::<garrick_accounts::messages::JobWithSteps>::new(), None);
    loop {
        let question = Question { filter, steps: true, after: after.as_ref(), only: None };
        let Page { jobs: more, next } = store.page(question, &mut cursor).await.unwrap();
        for one in more {
            match jobs.last_mut().filter(|last| last.row.sluid == one.row.sluid) {
                Some(last) => last.steps.extend(one.steps),
                None => jobs.push(one),
            }
        }
        after = next;
        if after.is_none() {
            return jobs;
        }
    }
}

#[test]
fn a_batch_and_its_position_are_stored_together_and_once() {
    on_each(async |place| {
        let store = place.open().await;
        let (of, stored) = store.follow("c", LOG).await.unwrap();
        assert_eq!(stored, None);
        store.begin(&of, Position(10)).await.unwrap();
        let events = || vec![submitted(1), report(1, [StepKey::BATCH, StepKey::number(0)], StepState::Completed)];
        store.keep(&of, Position(10), Position(12), events()).await.unwrap();
        let again = store.keep(&of, Position(10), Position(12), events()).await;
        assert!(matches!(again, Err(StoreError::Gap { after: Position(10), stored: Position(12) })), "{again:?}");
        drop(store);
        // Another process goes on from what is stored.
        let store = place.open().await;
        let (of, stored) = store.follow("c", LOG).await.unwrap();
        assert_eq!(stored, Some((Position(12), false)));
        store.keep(&of, Position(12), Position(13), vec![ended(1, 5)]).await.unwrap();
        let jobs = all(&store, &JobFilter::default()).await;
        assert_eq!(jobs.len(), 1);
        assert_eq!((jobs[0].row.state, jobs[0].row.end), (JobState::Cancelled, Some(Timestamp(5))));
        let keys: Vec<StepKey> = jobs[0].steps.iter().map(|step| step.key).collect();
        assert_eq!(keys, [StepKey::BATCH, StepKey::number(0)]);
    });
}

#[test]
fn steps_end_with_their_run_whatever_is_reported_of_them() {
    on_each(async |place| {
        let store = place.open().await;
        let (of, _) = store.follow("c", LOG).await.unwrap();
        store.begin(&of, Position(0)).await.unwrap();
        let state = async || {
            let jobs = all(&store, &JobFilter { duplicates: true, ..JobFilter::default() }).await;
            let of = |step: &StepRecord| (step.state, step.end, step.unreported);
            jobs[0].steps.iter().map(of).collect::<Vec<_>>()
        };
        let runs = report(1, [StepKey::BATCH], StepState::Running);
        store.keep(&of, Position(0), Position(1), vec![submitted(1), runs.clone()]).await.unwrap();
        assert!(matches!(state().await[..], [(StepState::Running, ..)]));
        let requeued = JobEvent::Requeued { sluid: Sluid(1000), hold: None, begin: None, expedited: false, at: None };
        store.keep(&of, Position(1), Position(2), vec![ended(1, 1), job(1, requeued)]).await.unwrap();
        let lost = vec![(StepState::Cancelled, Some(Timestamp(1)), true)];
        assert_eq!(state().await, lost);
        store.keep(&of, Position(2), Position(3), vec![runs]).await.unwrap();
        assert_eq!(state().await, lost, "a late report does not bring it back");
        let late = report(1, [StepKey::BATCH], StepState::Failed);
        store.keep(&of, Position(3), Position(4), vec![late]).await.unwrap();
        assert_eq!(state().await, [(StepState::Failed, Some(Timestamp(1)), false)], "but not after its run's end");
    });
}

#[test]
fn a_coordinator_sees_the_jobs_of_his_accounts() {
    on_each(async |place| {
        let store = place.open().await;
        let (of, _) = store.follow("c", LOG).await.unwrap();
        store.begin(&of, Position(0)).await.unwrap();
        let of_account = |id: u32, account: &str| {
            let record = record(id, JobSpec { account: Some(account.to_owned()), ..JobSpec::default() });
            job(id, JobEvent::Submitted(Box::new(record)))
        };
        let events = vec![of_account(1, "physics"), of_account(2, "chem"), submitted(3), of_account(4, "physics")];
        store.keep(&of, Position(0), Position(1), events).await.unwrap();
        let seen = async |owner: Owner| {
            let question = Question { filter: &JobFilter::default(), steps: false, after: None, only: Some(&owner) };
            let page = store.page(question, &mut Cursor::default()).await.unwrap();
            page.jobs.iter().map(|job| job.row.job.0).collect::<Vec<_>>()
        };
        let coordinates = |account: &str| [("c".to_owned(), account.to_owned())].into();
        assert_eq!(seen(Owner::known(5)).await, [0; 0]);
        assert_eq!(seen(Owner { coordinates: coordinates("physics"), ..Owner::known(5) }).await, [1, 4]);
        assert_eq!(
            seen(Owner { coordinates: [("d".to_owned(), "chem".to_owned())].into(), ..Owner::known(5) }).await,
            [0; 0]
        );
        assert_eq!(
            seen(Owner { coordinates: coordinates("chem"), ..Owner::known(1001) }).await,
            [1, 2, 3, 4],
            "his own"
        );
    });
}

#[test]
fn another_log_begins_with_a_snapshot_and_ends_the_earlier_feed() {
    on_each(async |place| {
        let store = place.open().await;
        let (first, _) = store.follow("c", LOG).await.unwrap();
        store.begin(&first, Position(3)).await.unwrap();
        store.snapshot(&first, Position(3), &[record(1, JobSpec::default())], true).await.unwrap();
        let (second, stored) = store.follow("c", LogId(8, 8)).await.unwrap();
        assert_eq!(stored, None);
        let late = store.keep(&first, Position(3), Position(4), vec![ended(1, 9)]).await;
        assert!(matches!(late, Err(StoreError::OtherLog(_))), "{late:?}");
        store.begin(&second, Position(5)).await.unwrap();
        // Jobs that are not known yet come with the snapshot, which has to be of the stored position.
        store.keep(&second, Position(5), Position(6), vec![ended(2, 9)]).await.unwrap();
        let early = store.snapshot(&second, Position(5), &[record(2, JobSpec::default())], true).await;
        assert!(matches!(early, Err(StoreError::Gap { .. })), "{early:?}");
        // A part of it alone is not the whole.
        store.snapshot(&second, Position(6), &[record(2, JobSpec::default())], false).await.unwrap();
        assert_eq!(store.follow("c", LogId(8, 8)).await.unwrap().1, Some((Position(6), false)));
        store.snapshot(&second, Position(6), &[record(2, JobSpec::default())], true).await.unwrap();
        assert_eq!(store.follow("c", LogId(8, 8)).await.unwrap().1, Some((Position(6), true)));
        assert_eq!(all(&store, &JobFilter::default()).await.len(), 2);
        // Another cluster has rows of its own.
        let (other, _) = store.follow("d", LOG).await.unwrap();
        store.begin(&other, Position(1)).await.unwrap();
        store.snapshot(&other, Position(1), &[record(1, JobSpec::default())], true).await.unwrap();
        let only = JobFilter { clusters: vec!["d".into()], ..JobFilter::default() };
        assert_eq!((all(&store, &only).await.len(), all(&store, &JobFilter::default()).await.len()), (1, 3));
    });
}

#[test]
fn answers_come_in_pages_without_losing_or_doubling_anything() {
    const JOBS: u32 = 300;
    const STEPS: u32 = 9_000;
    on_each(async |place| {
        let store = place.open().await;
        let (of, _) = store.follow("c", LOG).await.unwrap();
        let many = report(7, (0..STEPS).map(|task| StepKey::task(0, task)), StepState::Completed);
        let late = report(7, [StepKey::task(0, 5)], StepState::Running);
        let requeued = JobEvent::Requeued { sluid: Sluid(1000), hold: None, begin: None, expedited: false, at: None };
        let mut events: Vec<ControllerEvent> = (1..=JOBS).map(submitted).collect();
        events.extend([many, late, ended(3, 4), job(3, requeued)]);
        store.begin(&of, Position(0)).await.unwrap();
        store.keep(&of, Position(0), Position(1), events).await.unwrap();
        let newest = all(&store, &JobFilter::default()).await;
        assert_eq!(newest.iter().map(|job| job.row.job.0).collect::<Vec<_>>(), (1..=JOBS).collect::<Vec<_>>());
        let steps = &newest[6].steps;
        let tasks: Vec<u32> = steps.iter().filter_map(|step| step.key.array).collect();
        assert_eq!(tasks, (0..STEPS).collect::<Vec<_>>());
        assert!(steps.iter().all(|step| step.state == StepState::Completed), "a late report does not count");
        assert_eq!(newest[2].row.sluid, Sluid(1000));
        let runs = JobFilter { jobs: vec![NamedJob::job(JobId(3))], duplicates: true, ..JobFilter::default() };
        let runs = all(&store, &runs).await;
        assert_eq!(runs.iter().map(|job| job.row.state).collect::<Vec<_>>(), [JobState::Cancelled, JobState::Pending]);
        let question =
            Question { filter: &JobFilter::default(), steps: false, after: None, only: Some(&Owner::known(5)) };
        assert_eq!(store.page(question, &mut Cursor::default()).await.unwrap(), Page::default(), "nobody else's rows");
    });
}

#[test]
fn the_files_are_this_users_alone() {
    use std::os::unix::fs::MetadataExt as _;
    in_file(async |place| {
        let store = place.open().await;
        store.follow("c", LOG).await.unwrap();
        let path = place.storage.file().unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!((mode(path.parent().unwrap()), mode(path)), (0o700, 0o600));
        for file in std::fs::read_dir(path.parent().unwrap()).unwrap() {
            let file = file.unwrap().path();
            assert_eq!(mode(&file), 0o600, "{}", file.display());
        }
    });
}

/// Questions as users ask them: of a job, of users, of a window of time, and together.
fn questions() -> Vec<JobFilter> {
    let named = vec![NamedJob::job(JobId(3)), NamedJob::job(JobId(1_250))];
    let window = such_window();
    vec![
        JobFilter::default(),
        JobFilter { jobs: named.clone(), ..JobFilter::default() },
        JobFilter { jobs: named, ..window.clone() },
        JobFilter { users: vec![1001], ..window.clone() },
        JobFilter { start: Some(Timestamp(1_005_000)), ..JobFilter::default() },
        JobFilter { end: Some(Timestamp(300)), ..JobFilter::default() },
        JobFilter { end: Some(Timestamp(1_000_300)), ..JobFilter::default() },
        JobFilter { clusters: vec!["d".into()], ..window.clone() },
        JobFilter { names: words(["job30", "job31", "job1500", "nosuch"]), ..JobFilter::default() },
        JobFilter { names: words(["job1500", "it's"]), users: vec![1001], ..window.clone() },
        JobFilter { states: vec![JobState::Cancelled], ..window.clone() },
        JobFilter { states: vec![JobState::Failed, JobState::Running], ..window.clone() },
        JobFilter { states: vec![JobState::Pending], ..window.clone() },
        JobFilter { states: vec![JobState::Pending, JobState::Cancelled], ..JobFilter::default() },
        JobFilter { accounts: words(["", "chem"]), ..window.clone() },
        JobFilter { accounts: words(["chem"]), ..window.clone() },
        JobFilter { partitions: words(["debug", "long"]), ..window.clone() },
        JobFilter { qos: words(["high"]), ..window.clone() },
        JobFilter { qos: words([""]), wckeys: words(["", "k"]), ..window.clone() },
        window,
    ]
}

fn such_window() -> JobFilter {
    JobFilter { start: Some(Timestamp(1_002_000)), end: Some(Timestamp(1_006_000)), ..JobFilter::default() }
}

fn words<const N: usize>(words: [&str; N]) -> Vec<String> {
    words.map(str::to_owned).into()
}

/// One of all sorts.
fn of_sort(id: u32) -> ControllerEvent {
    let one = |of: [&str; 3]| Some(of[id as usize % 3].to_owned()).filter(|text| !text.is_empty());
    let partitions = [&["debug"][..], &["debug", "long"], &["other"]][id as usize % 3];
    let spec = JobSpec {
        name: format!("job{id}"),
        account: one(["chem", "", "phys"]),
        qos: one(["", "high", "low"]),
        wckey: one(["k", "", "l"]),
        partitions: partitions.iter().map(|part| (*part).to_owned()).collect(),
        ..JobSpec::default()
    };
    job(id, JobEvent::Submitted(Box::new(record(id, spec))))
}

#[test]
fn a_question_is_answered_with_the_rows_that_the_filter_takes() {
    const JOBS: u32 = 1_500;
    on_each(async |place| {
        let store = place.open().await;
        let (of, _) = store.follow("c", LOG).await.unwrap();
        store.begin(&of, Position(0)).await.unwrap();
        let events = (1..=JOBS).map(of_sort);
        // Every third job has not ended.
        let ends = (1..=JOBS).filter(|id| id % 3 != 0).map(|id| ended(id, 1_000_000 + i64::from(id) * 3));
        store.keep(&of, Position(0), Position(1), events.chain(ends).collect::<Vec<_>>()).await.unwrap();
        let rows = all(&store, &JobFilter::default()).await;
        assert_eq!(rows.len(), JOBS as usize);
        // Some are of before there were columns for what they are asked for by.
        let before =
            "UPDATE jobs SET name = NULL, part = NULL, qos = NULL, wckey = NULL WHERE job > 740 AND job < 1000";
        store
            .write(async |writer| Ok(writer.connection()?.link().execute(Statement::of(before)).await?))
            .await
            .unwrap();
        for filter in questions() {
            let want: Vec<u32> = rows.iter().filter(|job| filter.takes(&job.row)).map(|job| job.row.job.0).collect();
            let told: Vec<u32> = all(&store, &filter).await.iter().map(|job| job.row.job.0).collect();
            assert_eq!(told, want, "{filter:?}");
            // A daemon that remembers nothing of the last page tells the same.
            let (mut told, mut after) = (Vec::new(), None);
            loop {
                let question = Question { filter: &filter, steps: false, after: after.as_ref(), only: None };
                let page = store.page(question, &mut Cursor::default()).await.unwrap();
                told.extend(page.jobs.iter().map(|job| job.row.job.0));
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
            assert_eq!(told, want, "{filter:?}");
        }
    });
}

#[test]
fn no_question_reads_the_whole_table_of_jobs() {
    in_file(async |place| {
        let store = place.open().await;
        store.follow("c", LOG).await.unwrap();
        for filter in questions() {
            let question = Question { filter: &filter, steps: false, after: None, only: None };
            let place = (filter.jobs.is_empty()).then_some((1, 5, 5));
            let plan = store.explain(&question, place).await.unwrap();
            assert!(plan.iter().any(|line| line.contains("SEARCH jobs")), "{filter:?}: {plan:#?}");
            assert!(!plan.iter().any(|line| line.contains("SCAN jobs")), "{filter:?}: {plan:#?}");
            let has = |index: &str| plan.iter().any(|line| line.contains(index));
            if !filter.names.is_empty() && filter.users.is_empty() {
                assert!(
                    !plan.iter().any(|line| line.contains("SEARCH jobs") && !line.contains("jobs_by_name")),
                    "{plan:#?}"
                );
            } else if let [JobState::Cancelled] = filter.states[..] {
                assert!(has("jobs_by_state (cluster=? AND state=? AND end_ms"), "{filter:?}: {plan:#?}");
            } else if filter == such_window() {
                assert!(plan.iter().any(|line| line.contains("COVERING INDEX jobs_in_time")), "{filter:?}: {plan:#?}");
            }
        }
    });
}

#[test]
fn a_damaged_row_is_passed_over() {
    on_each(async |place| {
        let store = place.open().await;
        let (of, _) = store.follow("c", LOG).await.unwrap();
        store.begin(&of, Position(0)).await.unwrap();
        let steps = report(2, [StepKey::BATCH, StepKey::number(0)], StepState::Completed);
        store.keep(&of, Position(0), Position(1), vec![submitted(1), submitted(2), steps]).await.unwrap();
        drop(store);
        let store = place.open().await;
        for sql in ["UPDATE jobs SET body = ? WHERE job = 1", "UPDATE steps SET body = ? WHERE step = 0"] {
            let damage = Statement::of(sql).with(vec![0xc1]);
            store.write(async |writer| Ok(writer.connection()?.link().execute(damage).await?)).await.unwrap();
        }
        let (of, _) = store.follow("c", LOG).await.unwrap();
        store.keep(&of, Position(1), Position(2), vec![ended(1, 5), ended(2, 6)]).await.unwrap();
        let jobs = all(&store, &JobFilter::default()).await;
        let told: Vec<_> = jobs.iter().map(|job| (job.row.job, job.row.end, job.steps.len())).collect();
        assert_eq!(told, [(JobId(2), Some(Timestamp(6)), 1)]);
    });
}

#[test]
fn without_new_jobs_those_that_are_recorded_go_on() {
    in_file(async |place| {
        let store = place.open().await;
        let (of, _) = store.follow("c", LOG).await.unwrap();
        store.begin(&of, Position(0)).await.unwrap();
        store.keep(&of, Position(0), Position(1), vec![submitted(1)]).await.unwrap();
        let requeued = |id, sluid| {
            job(id, JobEvent::Requeued { sluid: Sluid(sluid), hold: None, begin: None, expedited: false, at: None })
        };
        let events = vec![submitted(2), ended(1, 5), requeued(1, 1 << 60), ended(1, 9)];
        let batch = Batch { events, no_new_jobs: true, ..Batch::default() };
        store.keep(&of, Position(1), Position(4), batch).await.unwrap();
        let jobs = all(&store, &JobFilter { duplicates: true, ..JobFilter::default() }).await;
        let told: Vec<_> = jobs.iter().map(|job| (job.row.job.0, job.row.end, job.row.requeued)).collect();
        assert_eq!(told, [(1, Some(Timestamp(5)), true)]);
    });
}

/// More runs than one statement asks for, one of them with more steps than it gives.
#[test]
fn steps_of_many_runs_are_read_together() {
    on_each(async |place| {
        let store = place.open().await;
        let (of, _) = store.follow("c", LOG).await.unwrap();
        store.begin(&of, Position(0)).await.unwrap();
        let count = |job: u32| if job == 120 { 1_300 } else { job % 3 };
        let mut events = Vec::new();
        for job in 1..=250 {
            let keys = (0..count(job)).map(|step| if step == 0 { StepKey::BATCH } else { StepKey::number(step) });
            events.extend([submitted(job), report(job, keys, StepState::Completed), ended(job, 5)]);
        }
        store.keep(&of, Position(0), Position(1), events).await.unwrap();
        let jobs = all(&store, &JobFilter::default()).await;
        assert_eq!(jobs.len(), 250);
        for job in &jobs {
            let keys: Vec<StepKey> = job.steps.iter().map(|step| step.key).collect();
            let numbered = (1..count(job.row.job.0)).map(StepKey::number);
            let wanted: Vec<StepKey> =
                std::iter::once(StepKey::BATCH).filter(|_| count(job.row.job.0) > 0).chain(numbered).collect();
            assert_eq!(keys, wanted, "{}", job.row.job);
        }
    });
}

#[test]
fn energy_of_steps_is_that_of_their_run_once() {
    use crate::{testing::reported, usage::Summed};
    use garrick_accounts::usage::UsageQuestion;
    use garrick_model::usage::TaskUsage;
    on_each(async |place| {
        let store = place.open().await;
        let (of, _) = store.follow("c", LOG).await.unwrap();
        store.begin(&of, Position(0)).await.unwrap();
        let used = |energy_joules| TaskUsage { energy_joules, ..TaskUsage::default() };
        let batch = || reported(1, StepKey::BATCH, used(90));
        let step = |number, joules| reported(1, StepKey::number(number), used(joules));
        store.keep(&of, Position(0), Position(1), vec![submitted(1), step(0, 30), step(1, 20)]).await.unwrap();
        // The same again, and more.
        store.keep(&of, Position(1), Position(2), vec![step(1, 20), batch(), ended(1, 500)]).await.unwrap();
        store.keep(&of, Position(2), Position(3), vec![step(0, 30)]).await.unwrap();
        let joules = async || all(&store, &JobFilter::default()).await[0].row.energy.joules();
        assert_eq!(joules().await, 90);
        store.keep(&of, Position(3), Position(4), vec![step(2, 50)]).await.unwrap();
        assert_eq!(joules().await, 100);
        // A controller's snapshot knows nothing of it.
        store.snapshot(&of, Position(4), &[record(1, JobSpec::default())], true).await.unwrap();
        assert_eq!(joules().await, 100);
        let mut running = record(1, JobSpec::default());
        running.phase = garrick_events::records::job::Phase::Running(testing::run(Allocation::default(), Timestamp(0)));
        store.snapshot(&of, Position(4), &[running], true).await.unwrap();
        let now = Timestamp(100_000_000);
        let question = UsageQuestion { start: Timestamp(0), end: Timestamp(50_000_000), ..UsageQuestion::default() };
        let part = store.usage(&question, None, None, (now, &mut Summed::default())).await.unwrap();
        assert_eq!(part.rows[0].sum.of("energy"), 50, "half of the time until now is in the window");
    });
}

/// A database as the program before made it, with a job in it.
#[test]
fn a_database_of_before_is_brought_up_and_its_rows_are_found() {
    in_file(async |place| {
        let file = place.storage.file().unwrap();
        connect::open_file_as_of(file, 3).await.unwrap();
        let row = JobRow::of("c", &record(5, JobSpec { name: "of before".into(), ..JobSpec::default() }));
        let mut database = connect::open_file_as_of(file, 3).await.unwrap();
        let mut link = database.link();
        let cluster = "INSERT INTO clusters (id, name, log_high, log_low, whole) VALUES (1, 'c', 7, -1, 1)";
        link.execute(Statement::of(cluster)).await.unwrap();
        let insert = "INSERT INTO jobs (cluster, job, sluid, uid, gid, state, since_ms, cpus, nodes, form, body) \
                      VALUES (1, 5, 5, 1001, 1001, 'PENDING', 0, 1, 1, 1, ?)";
        link.execute(Statement::of(insert).with(encoded(&row))).await.unwrap();
        drop(database);
        let store = place.open().await;
        let named = |name| JobFilter { names: words([name]), ..JobFilter::default() };
        assert_eq!(all(&store, &named("of before")).await.len(), 1);
        assert_eq!(all(&store, &named("another")).await.len(), 0);
    });
}

#[test]
fn rows_with_long_texts_are_read_few_at_a_time_and_all_told() {
    on_each(async |place| {
        let store = place.open().await;
        let (of, _) = store.follow("c", LOG).await.unwrap();
        store.begin(&of, Position(0)).await.unwrap();
        let long = |id: u32| {
            let comment = Some("x".repeat(if id < 150 { 10 } else { 60_000 }));
            let spec = JobSpec { name: format!("job{id}"), comment, ..JobSpec::default() };
            job(id, JobEvent::Submitted(Box::new(record(id, spec))))
        };
        store.keep(&of, Position(0), Position(1), (1..=250).map(long).collect::<Vec<_>>()).await.unwrap();
        let told: Vec<u32> = all(&store, &JobFilter::default()).await.iter().map(|job| job.row.job.0).collect();
        assert_eq!(told, (1..=250).collect::<Vec<_>>());
    });
}

/// An event about the run of job 1 that has that SLUID.
fn of_run(sluid: u64, event: JobEvent) -> ControllerEvent {
    let sluid = Some(Sluid(sluid));
    job(
        1,
        match event {
            JobEvent::Allocated(run) => JobEvent::Allocated(Box::new(Run { sluid, ..*run })),
            JobEvent::Ended(end) => JobEvent::Ended(End { sluid, ..end }),
            other => other,
        },
    )
}

fn allocated(at: i64) -> JobEvent {
    JobEvent::Allocated(Box::new(testing::run(allocation(), Timestamp(at))))
}

fn allocation() -> Allocation {
    let node = AllocatedNode { name: "n1".into(), index: NodeIndex(1), share: NodeShare::default() };
    let (partition, licenses) = ("debug".into(), Licenses::default());
    Allocation { nodes: vec![node], partition, exclusive: false, licenses, reservation: None }
}

fn failed(at: i64) -> JobEvent {
    let ControllerEvent::Job { event, .. } = ended(1, at) else { panic!("it is about a job") };
    let JobEvent::Ended(end) = *event else { panic!("it is an end") };
    JobEvent::Ended(End { state: JobState::Failed, ..end })
}

async fn runs(store: &Store) -> Vec<(u64, JobState, Option<i64>)> {
    let runs = JobFilter { duplicates: true, ..JobFilter::default() };
    let told = |row: &JobRow| (row.sluid.0, row.state, row.end.map(|at| at.0));
    all(store, &runs).await.iter().map(|job| told(&job.row)).collect()
}

/// The controller was given an older copy of its state: what is stored goes further than its log.
#[test]
fn the_end_of_a_run_reaches_its_row_where_a_later_run_is_stored() {
    on_each(async |place| {
        let store = place.open().await;
        let (of, _) = store.follow("c", LOG).await.unwrap();
        store.begin(&of, Position(0)).await.unwrap();
        let again = |at| JobEvent::Requeued {
            sluid: Sluid(2000),
            hold: None,
            begin: None,
            expedited: false,
            at: Some(Timestamp(at)),
        };
        let events = vec![
            submitted(1),
            of_run(1, allocated(10)),
            of_run(1, failed(20)),
            job(1, again(20)),
            of_run(2000, allocated(30)),
        ];
        store.keep(&of, Position(0), Position(5), events).await.unwrap();
        drop(store);
        // In that copy the first run goes on.
        let store = place.open().await;
        let (of, _) = store.follow("c", LogId(8, 8)).await.unwrap();
        store.begin(&of, Position(2)).await.unwrap();
        let mut first = record(1, JobSpec::default());
        first.apply(&allocated(10)).unwrap();
        store.snapshot(&of, Position(2), &[first], true).await.unwrap();
        assert_eq!(runs(&store).await, [(1, JobState::Running, None), (2000, JobState::Running, None)]);
        store.keep(&of, Position(2), Position(3), vec![of_run(1, failed(44))]).await.unwrap();
        assert_eq!(runs(&store).await, [(1, JobState::Failed, Some(44)), (2000, JobState::Running, None)]);
        // It comes again, with its beginning, and the end of a job that has no such run comes to nothing.
        let again = vec![of_run(1, allocated(10)), of_run(1, failed(44)), of_run(7, failed(50))];
        store.keep(&of, Position(3), Position(6), again).await.unwrap();
        assert_eq!(runs(&store).await, [(1, JobState::Failed, Some(44)), (2000, JobState::Running, None)]);
    });
}

/// `MaxDBDMsgs`: the end and the requeue were given up.
#[test]
fn a_run_that_another_followed_has_an_end_after_a_snapshot_and_its_own_when_that_is_heard_of() {
    on_each(async |place| {
        let store = place.open().await;
        let (of, _) = store.follow("c", LOG).await.unwrap();
        store.begin(&of, Position(0)).await.unwrap();
        store.keep(&of, Position(0), Position(2), vec![submitted(1), of_run(1, allocated(10))]).await.unwrap();
        let next =
            JobRecord { sluid: Sluid(2000), restarts: 1, submit_time: Timestamp(70), ..record(1, JobSpec::default()) };
        store.begin(&of, Position(9)).await.unwrap();
        store.snapshot(&of, Position(9), &[next], true).await.unwrap();
        assert_eq!(runs(&store).await, [(1, JobState::Cancelled, Some(70)), (2000, JobState::Pending, None)]);
        store.keep(&of, Position(9), Position(10), vec![of_run(1, failed(60))]).await.unwrap();
        assert_eq!(runs(&store).await, [(1, JobState::Failed, Some(60)), (2000, JobState::Pending, None)]);
    });
}
