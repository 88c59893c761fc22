#![allow(clippy::unwrap_used)]
use super::*;
use crate::{
    archive::Noted,
    pages::{Cursor, Question},
    testing::{HOUR, LOG, Place, ended, filled, on_each, report, submitted},
    texts::Told,
};
use garrick_accounts::{
    event::EventQuestion,
    filter::{JobFilter, NamedJob},
    records::{JobEdit, Which as Meant},
    reservation::ReservationQuestion,
};
use garrick_events::{
    event::ControllerEvent,
    progress::Position,
    records::node::{SavedNode, SavedService},
};
use garrick_model::{
    ids::{JobId, Sluid, StepKey},
    reservation::Reservation,
    state::StepState,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

async fn left(store: &Store) -> Vec<u32> {
    let question = Question { filter: &JobFilter::default(), steps: false, after: None, only: None };
    let page = store.page(question, &mut Cursor::default()).await.unwrap();
    page.jobs.iter().map(|job| job.row.job.0).collect()
}

/// The script of a run; `None`: there is no such run.
async fn text(store: &Store, run: u64) -> Option<Option<Vec<u8>>> {
    match store.text(Sluid(run), Text::Script, |_| true).await.unwrap() {
        Some(Told::Text(text)) => Some(text),
        Some(Told::Denied) => panic!("everybody may"),
        None => None,
    }
}

fn hours(count: u32) -> Option<Age> {
    Some(Age { count, unit: garrick_model::config::purge::AgeUnit::Hours })
}

fn archived(folder: &Path) -> Vec<Archived> {
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let texts = files.iter().map(|file| fs::read_to_string(file).unwrap());
    let lines: Vec<String> = texts.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>()).collect();
    lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn jobs_that_are_old_are_archived_and_gone_with_their_steps_and_scripts() {
    on_each(async |place| {
        let store = filled(place, 6).await;
        let folder = place.folder.join("archive");
        let settings = PurgeSettings {
            jobs: hours(3),
            archive_jobs: true,
            at_a_time: 2,
            folder: Some(folder.clone()),
            ..PurgeSettings::default()
        };
        let script = async |store: Store, run| (text(&store, run).await, store);
        let (before, store) = script(store, 1).await;
        assert!(before.unwrap().is_some());
        // At 7:30, what ended before 4:00.
        let purged = store.purge(&settings, Timestamp(7 * HOUR + HOUR / 2)).await.unwrap();
        assert_eq!(purged, Purged { jobs: 3, steps: 6, ..Purged::default() });
        assert_eq!(left(&store).await, [4, 5, 6, 7]);
        let (gone, store) = script(store, 1).await;
        assert_eq!(gone, None);
        let (kept, store) = script(store, 4).await;
        assert!(kept.unwrap().is_some(), "another job has the same script");
        let kept = archived(&folder);
        let jobs = kept.iter().filter(|line| matches!(line, Archived::Job(row) if row.end.is_some())).count();
        let steps = kept.iter().filter(|line| matches!(line, Archived::Step { cluster, .. } if cluster == "c")).count();
        assert_eq!((jobs, steps), (3, 6));
        // What is not old enough stays, and nothing is written twice.
        assert_eq!(store.purge(&settings, Timestamp(7 * HOUR + HOUR / 2)).await.unwrap(), Purged::default());
        assert_eq!(archived(&folder), kept);
    });
}

#[test]
fn steps_and_scripts_may_go_before_their_jobs() {
    on_each(async |place| {
        let store = filled(place, 6).await;
        // Steps of these tests end in the first second.
        let settings = PurgeSettings { steps: hours(1), scripts: hours(3), ..PurgeSettings::default() };
        let purged = store.purge(&settings, Timestamp(7 * HOUR)).await.unwrap();
        assert_eq!(purged, Purged { steps: 12, texts: 3, ..Purged::default() });
        assert_eq!(left(&store).await, [1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(text(&store, 1).await, Some(None));
        assert!(text(&store, 5).await.unwrap().is_some());
        assert_eq!(store.purge(&PurgeSettings::default(), Timestamp(7 * HOUR)).await.unwrap(), Purged::default());
    });
}

#[test]
fn a_job_with_more_steps_than_are_read_at_a_time_is_archived_whole() {
    on_each(async |place| {
        let store = place.open().await;
        let (of, _) = store.follow("c", LOG).await.unwrap();
        store.begin(&of, Position(0)).await.unwrap();
        let many = 2 * u32::try_from(CHUNK).unwrap() + 5;
        let steps = report(1, (0..many).map(|task| StepKey::task(0, task)), StepState::Completed);
        let events = vec![submitted(1), steps, ended(1, HOUR), submitted(2), ended(2, HOUR)];
        store.keep(&of, Position(0), Position(1), events).await.unwrap();
        let folder = place.folder.join("archive");
        let settings = PurgeSettings {
            jobs: hours(1),
            archive_steps: true,
            folder: Some(folder.clone()),
            ..PurgeSettings::default()
        };
        let purged = store.purge(&settings, Timestamp(9 * HOUR)).await.unwrap();
        assert_eq!(purged, Purged { jobs: 2, steps: many.into(), ..Purged::default() });
        let mut tasks = BTreeSet::new();
        for line in archived(&folder) {
            let Archived::Step { step, .. } = line else { panic!("{line:?}") };
            tasks.extend(step.key.array);
        }
        assert_eq!(tasks, (0..many).collect());
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "nothing that is half written is left");
    });
}

#[test]
fn events_and_reservations_that_are_over_are_archived_and_gone() {
    on_each(async |place| {
        let store = place.open().await;
        let (of, _) = store.follow("c", LOG).await.unwrap();
        store.begin(&of, Position(0)).await.unwrap();
        let node = |name: &str, out, at| ControllerEvent::Node {
            node: name.to_owned(),
            saved: Box::new(SavedNode {
                drain: out,
                service: Some(SavedService { out, since: Timestamp(at) }),
                ..SavedNode::default()
            }),
        };
        let reservation = Reservation { name: "r".to_owned(), end: Timestamp(HOUR), ..Reservation::default() };
        let reserved = ControllerEvent::Reservation {
            reservation: "r".to_owned(),
            saved: Some(Box::new(reservation)),
            at: Some(Timestamp(0)),
        };
        let events = vec![node("n1", true, 0), node("n2", true, 0), node("n1", false, HOUR), reserved];
        store.keep(&of, Position(0), Position(4), events).await.unwrap();
        let folder = place.folder.join("archive");
        let settings = PurgeSettings {
            events: hours(3),
            reservations: hours(3),
            archive_events: true,
            archive_reservations: true,
            folder: Some(folder.clone()),
            ..PurgeSettings::default()
        };
        let purged = store.purge(&settings, Timestamp(7 * HOUR)).await.unwrap();
        assert_eq!(purged, Purged { events: 1, reservations: 1, ..Purged::default() });
        let (left, _) = store.events(&EventQuestion::default(), None).await.unwrap();
        assert_eq!(left.iter().map(|row| row.node.as_deref()).collect::<Vec<_>>(), [Some("n2")], "it goes on");
        assert!(store.reservations(&ReservationQuestion::default(), None).await.unwrap().0.is_empty());
        let kept = archived(&folder);
        assert!(
            matches!(&kept[..], [Archived::Event(event), Archived::Reservation(_)] if event.end.is_some()),
            "{kept:?}"
        );
    });
}

/// Jobs that are archived, by how often, with the comment of each.
fn archived_jobs(folder: &Path) -> BTreeMap<u32, Vec<Option<String>>> {
    let mut jobs: BTreeMap<u32, Vec<Option<String>>> = BTreeMap::new();
    for line in archived(folder) {
        if let Archived::Job(row) = line {
            jobs.entry(row.job.0).or_default().push(row.comment.clone());
        }
    }
    jobs
}

/// Where a purge is interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum At {
    Begun,
    Written,
    OnDisk,
    PartlyDeleted,
    Deleted,
}

/// Begins a purge of jobs 1 to 3, and goes no further than that.
async fn begin_purge(store: &Store, purge: &Purge<'_>, at: At) -> Option<Noted> {
    let of = Of { cluster: Some(1), name: "c" };
    let before = purge.before(purge.settings.jobs).unwrap();
    let old = store.old((Kind::Jobs, before), of.cluster, (10, true)).await.unwrap();
    assert_eq!(old.len(), 3);
    let draft = store.draft(purge.folder, about(Kind::Jobs, of, "job", before)).await.unwrap();
    if at == At::Begun {
        return None;
    }
    let keys: Vec<Vec<i64>> = old.iter().map(|old| old.key.clone()).collect();
    let row =
        |old: Old| Row { key: old.key, at: old.at, line: Kind::Jobs.line("c", &old.body).unwrap(), content: old.body };
    let draft = draft.add(old.into_iter().map(row).collect()).await.unwrap();
    if at == At::Written {
        return None;
    }
    let noted = draft.finish().await.unwrap();
    let gone = match at {
        At::PartlyDeleted => &keys[..1],
        At::Deleted => &keys[..],
        _ => &[],
    };
    if !gone.is_empty() {
        let which = (Kind::Jobs, time(Kind::Jobs), before);
        store.delete_old(which, gone, purge.manner(), &mut Settled::default()).await.unwrap();
    }
    Some(noted)
}

async fn comment(store: &Store, job: u32) {
    let filter = JobFilter { jobs: vec![NamedJob::job(JobId(job))], ..JobFilter::default() };
    let edit = JobEdit { comment: Some("changed".to_owned()), ..JobEdit::default() };
    store.edit(&Meant { filter, ..Meant::default() }, &edit, None, false).await.unwrap();
}

/// Jobs 1 to 6 without steps.
async fn without_steps(place: &Place) -> Store {
    let store = filled(place, 6).await;
    let settings = PurgeSettings { steps: hours(1), ..PurgeSettings::default() };
    store.purge(&settings, Timestamp(7 * HOUR)).await.unwrap();
    store
}

fn of_jobs(folder: &Path) -> PurgeSettings {
    PurgeSettings { jobs: hours(3), archive_jobs: true, folder: Some(folder.to_owned()), ..PurgeSettings::default() }
}

/// Killed anywhere between the file and its name, and with a job changed in between: each job is in the database or once in a file,
/// as it was last.
#[test]
fn whoever_is_killed_while_it_purges_loses_and_doubles_nothing() {
    on_each(async |place| {
        for at in [At::Begun, At::Written, At::OnDisk, At::PartlyDeleted, At::Deleted] {
            for change in [false, true] {
                let folder = place.folder.join(format!("archive-{at:?}-{change}"));
                let settings = of_jobs(&folder);
                let now = Timestamp(7 * HOUR + HOUR / 2);
                let purge = Purge { settings: &settings, folder: &folder, now, zone: TimeZone::system() };
                let store = without_steps(place).await;
                begin_purge(&store, &purge, at).await;
                // Job 1 is deleted already where some are.
                let changed = if at < At::Deleted && change { Some(2) } else { None };
                if let Some(job) = changed {
                    comment(&store, job).await;
                }
                drop(store);
                let store = place.open().await;
                store.purge(&settings, now).await.unwrap();
                assert_eq!(left(&store).await, [4, 5, 6, 7], "{at:?}");
                let comment = |job: u32| (changed == Some(job)).then(|| "changed".to_owned());
                let wanted: BTreeMap<u32, _> = (1..=3).map(|job| (job, vec![comment(job)])).collect();
                assert_eq!(archived_jobs(&folder), wanted, "{at:?}");
                assert!(store.unsettled().await.unwrap().is_empty());
                let hidden = fs::read_dir(&folder)
                    .unwrap()
                    .flatten()
                    .filter(|one| one.file_name().as_encoded_bytes()[0] == b'.');
                assert_eq!(hidden.count(), 0, "{at:?}");
                // Again with an empty database.
                let all = PurgeSettings { jobs: hours(1), ..PurgeSettings::default() };
                store.purge(&all, Timestamp(9 * HOUR)).await.unwrap();
                let forget = Statement::of("DELETE FROM clusters");
                store.write(async |writer| Ok(writer.connection()?.link().execute(forget).await?)).await.unwrap();
                let forget = Statement::of("DELETE FROM jobs");
                store.write(async |writer| Ok(writer.connection()?.link().execute(forget).await?)).await.unwrap();
            }
        }
    });
}

#[test]
fn what_changes_after_it_was_read_stays_and_is_archived_as_it_is_then() {
    on_each(async |place| {
        let store = without_steps(place).await;
        let folder = place.folder.join("archive");
        let settings = of_jobs(&folder);
        let now = Timestamp(7 * HOUR + HOUR / 2);
        let purge = Purge { settings: &settings, folder: &folder, now, zone: TimeZone::system() };
        let noted = begin_purge(&store, &purge, At::OnDisk).await.unwrap();
        comment(&store, 2).await;
        // A step is told of late: its job waits for it.
        let (of, stored) = store.follow("c", LOG).await.unwrap();
        let at = stored.unwrap().0;
        store.keep(&of, at, at.next(), vec![report(3, [StepKey::number(5)], StepState::Completed)]).await.unwrap();
        let (kind, settled) = store.settle(&noted, purge.manner()).await.unwrap().unwrap();
        assert_eq!((kind, settled.gone), (Kind::Jobs, 1));
        assert_eq!(left(&store).await, [2, 3, 4, 5, 6, 7]);
        assert_eq!(archived_jobs(&folder), [(1, vec![None])].into());
        let purged = store.purge(&settings, now).await.unwrap();
        assert_eq!(purged, Purged { jobs: 2, steps: 1, ..Purged::default() });
        let changed = Some("changed".to_owned());
        assert_eq!(archived_jobs(&folder), [(1, vec![None]), (2, vec![changed]), (3, vec![None])].into());
    });
}

#[test]
fn whoever_stores_something_has_its_turn_while_much_is_purged() {
    const OLD: u32 = 30;
    on_each(async |place| {
        let store = place.open().await;
        let (of, _) = store.follow("c", LOG).await.unwrap();
        store.begin(&of, Position(0)).await.unwrap();
        let events = (1..=OLD).flat_map(|job| {
            [submitted(job), report(job, [StepKey::BATCH, StepKey::number(0)], StepState::Completed), ended(job, 1)]
        });
        store.keep(&of, Position(0), Position(1), events.collect::<Vec<_>>()).await.unwrap();
        let settings = PurgeSettings {
            jobs: hours(1),
            archive_jobs: true,
            archive_scripts: true,
            at_a_time: 1,
            folder: Some(place.folder.join("archive")),
            ..PurgeSettings::default()
        };
        // A file that is being written holds up nobody either.
        let of_none = About { kind: Kind::Jobs, cluster: "c".into(), word: "job".into(), before: Timestamp(0) };
        let draft = store.draft(&place.folder, of_none).await.unwrap();
        store.keep(&of, Position(1), Position(2), Vec::new()).await.unwrap();
        drop(draft);
        let purging = store.purge(&settings, Timestamp(9 * HOUR));
        tokio::pin!(purging);
        let mut at = Position(2);
        let purged = loop {
            tokio::select! {
                biased;
                purged = &mut purging => break purged.unwrap(),
                kept = store.keep(&of, at, at.next(), Vec::new()) => kept.unwrap(),
            }
            at = at.next();
        };
        assert_eq!((purged.jobs, purged.steps), (OLD.into(), 2 * u64::from(OLD)));
        // It deleted in more transactions than there are jobs, and between two of them others come first.
        assert!(at.0 > OLD.into(), "{at:?}");
    });
}

#[test]
fn scripts_that_an_interrupted_purge_left_are_archived_and_gone() {
    on_each(async |place| {
        let store = without_steps(place).await;
        let folder = place.folder.join("archive");
        let settings = PurgeSettings { archive_scripts: true, ..of_jobs(&folder) };
        let now = Timestamp(7 * HOUR + HOUR / 2);
        let purge = Purge { settings: &settings, folder: &folder, now, zone: TimeZone::system() };
        // Its jobs are deleted, and it is killed before their scripts are archived.
        begin_purge(&store, &purge, At::Deleted).await;
        drop(store);
        let store = place.open().await;
        assert!(store.has_old(&PurgeSettings { scripts: hours(3), ..settings.clone() }, now).await.unwrap());
        store.purge(&settings, now).await.unwrap();
        let texts = |folder| archived(folder).iter().filter(|line| matches!(line, Archived::Text { .. })).count();
        assert_eq!(texts(&folder), 3);
        assert!(text(&store, 4).await.unwrap().is_some(), "another job has the same script");
        store.purge(&settings, now).await.unwrap();
        assert_eq!(texts(&folder), 3);
        assert!(!store.has_old(&settings, now).await.unwrap());
    });
}

#[test]
fn a_folder_that_is_away_is_waited_for_and_one_that_cannot_be_made_is_an_error() {
    on_each(async |place| {
        let store = without_steps(place).await;
        let (folder, away) = (place.folder.join("archive"), place.folder.join("away"));
        let settings = of_jobs(&folder);
        let now = Timestamp(7 * HOUR + HOUR / 2);
        let purge = Purge { settings: &settings, folder: &folder, now, zone: TimeZone::system() };
        begin_purge(&store, &purge, At::OnDisk).await;
        fs::rename(&folder, &away).unwrap();
        store.purge(&PurgeSettings::default(), now).await.unwrap();
        assert_eq!((left(&store).await.len(), store.unsettled().await.unwrap().len()), (7, 1));
        fs::rename(&away, &folder).unwrap();
        store.purge(&PurgeSettings::default(), now).await.unwrap();
        assert_eq!(left(&store).await, [4, 5, 6, 7]);
        assert_eq!(archived_jobs(&folder).len(), 3);
        // Where a file stands no folder is made.
        fs::write(place.folder.join("file"), "").unwrap();
        let wrong = PurgeSettings { jobs: hours(1), ..of_jobs(&place.folder.join("file/archive")) };
        assert!(matches!(store.purge(&wrong, Timestamp(9 * HOUR)).await, Err(StoreError::File(_))));
        assert_eq!(
            (left(&store).await.len(), store.unsettled().await.unwrap().len()),
            (4, 0),
            "nothing is deleted or noted"
        );
    });
}
