#![allow(clippy::unwrap_used)]
use super::*;
use crate::{
    pages::{Cursor, Question},
    testing::{HOUR, LOG, ended, filled, on_each, report, submitted},
    texts::{Text, Told},
};
use garrick_accounts::{event::EventQuestion, filter::JobFilter, reservation::ReservationQuestion};
use garrick_events::{
    event::ControllerEvent,
    progress::Position,
    records::node::{SavedNode, SavedService},
};
use garrick_model::{
    ids::{Sluid, StepKey},
    reservation::Reservation,
    state::StepState,
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
