#![allow(clippy::unwrap_used)]
use super::*;
use crate::{
    testing::{HOUR, LOG, ended, filled, on_each},
    texts::{Text, Told},
};
use garrick_accounts::{
    change::{Action, Actor, Change, edit::QosEdit},
    filter::JobFilter,
};
use garrick_events::progress::Position;
use garrick_model::{
    config::purge::{Age, AgeUnit, PurgeSettings},
    state::{ExitStatus, JobState},
    time::Timestamp,
};
use std::path::PathBuf;

async fn rows(store: &Store) -> Vec<JobRow> {
    let question = Question { filter: &JobFilter::default(), steps: false, after: None, only: None };
    let page = store.page(question, &mut Cursor::default()).await.unwrap();
    page.jobs.into_iter().map(|job| job.row).collect()
}

fn in_state(state: JobState) -> Which {
    Which { filter: JobFilter { states: vec![state], ..JobFilter::default() }, ..Which::default() }
}

fn comment(text: &str) -> JobEdit {
    JobEdit {
        comment: Some(text.to_owned()),
        derived: Some(ExitStatus { code: 3, signal: None }),
        ..JobEdit::default()
    }
}

#[test]
fn records_are_changed_as_owners_and_administrators_say() {
    on_each(async |place| {
        let store = filled(place, 3).await;
        let uid = rows(&store).await[0].uid;
        let all = Which::default();
        assert_eq!(store.edit(&all, &comment("x"), Some(&Owner::known(uid + 1)), false).await.unwrap(), Edited::Denied);
        let Edited::Done(tried) = store.edit(&all, &comment("x"), Some(&Owner::known(uid)), true).await.unwrap() else {
            panic!()
        };
        assert_eq!(tried.iter().map(|one| one.job.0).collect::<Vec<_>>(), [1, 2, 3, 7]);
        assert!(rows(&store).await.iter().all(|row| row.comment.is_none()));
        let ended = in_state(JobState::Cancelled);
        let Edited::Done(done) = store.edit(&ended, &comment("x"), None, false).await.unwrap() else { panic!() };
        assert_eq!(done.len(), 3);
        let comments: Vec<_> = rows(&store).await.into_iter().map(|row| (row.job.0, row.comment.is_some())).collect();
        assert_eq!(comments, [(1, true), (2, true), (3, true), (7, false)]);
        let nothing = Which { end: Some(Timestamp(0)), ..Which::default() };
        assert_eq!(store.edit(&nothing, &comment("x"), None, false).await.unwrap(), Edited::Done(Vec::new()));
    });
}

#[test]
fn what_the_controller_says_later_holds_for_a_changed_record() {
    on_each(async |place| {
        let store = filled(place, 3).await;
        let waiting = in_state(JobState::Pending);
        store.edit(&waiting, &comment("kept"), None, false).await.unwrap();
        let (of, _) = store.follow("c", LOG).await.unwrap();
        store.keep(&of, Position(1), Position(2), vec![ended(7, 9 * HOUR)]).await.unwrap();
        let last = rows(&store).await.pop().unwrap();
        assert_eq!((last.job.0, last.state, last.comment.as_deref()), (7, JobState::Cancelled, Some("kept")));
        assert_eq!(last.end, Some(Timestamp(9 * HOUR)));
    });
}

#[test]
fn only_runs_without_an_end_are_repaired() {
    on_each(async |place| {
        let store = filled(place, 3).await;
        let before = rows(&store).await;
        let runs: Vec<(JobId, Sluid)> = before.iter().map(|row| (row.job, row.sluid)).collect();
        assert_eq!(store.repair("elsewhere", &runs, false).await.unwrap(), 0);
        assert_eq!(store.repair("c", &runs, false).await.unwrap(), 1);
        assert_eq!(store.repair("c", &runs, true).await.unwrap(), 0);
        let after = rows(&store).await;
        assert_eq!(after[..3], before[..3]);
        assert_eq!((after[3].state, after[3].end.is_some()), (JobState::Completed, true));
    });
}

fn archives(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

#[test]
fn archives_are_read_back_and_nothing_is_doubled() {
    on_each(async |place| {
        let store = filled(place, 3).await;
        let root = Actor { name: "root".to_owned(), believed: true };
        let change =
            |name: &str| Change::from(Action::AddQos { names: vec![name.to_owned()], edit: QosEdit::default() });
        for name in ["high", "low"] {
            store.change(&change(name), &root, None, false).await.unwrap().unwrap();
        }
        let (jobs, log) = (rows(&store).await, store.transactions(None, None).await.unwrap());
        let age = Some(Age { count: 1, unit: AgeUnit::Hours });
        let settings = PurgeSettings {
            jobs: age,
            steps: age,
            transactions: age,
            archive_jobs: true,
            archive_steps: true,
            archive_transactions: true,
            folder: Some(place.folder.join("archive")),
            ..PurgeSettings::default()
        };
        let later = Timestamp(Timestamp::now().0 + 48 * HOUR);
        store.purge(&settings, later).await.unwrap();
        assert_eq!((rows(&store).await.len(), store.transactions(None, None).await.unwrap().len()), (1, 0));
        let files = archives(&place.folder.join("archive"));
        assert_eq!(files.len(), 3, "jobs, steps, transactions: {files:?}");
        for file in &files {
            let tried = store.load(file, true).await.unwrap();
            assert!(tried.new > 0 && tried.known == 0, "{file:?}");
            assert_eq!(store.load(file, false).await.unwrap(), tried);
            assert_eq!(store.load(file, false).await.unwrap(), Loaded { new: 0, known: tried.new });
        }
        assert_eq!((rows(&store).await, store.transactions(None, None).await.unwrap()), (jobs, log));
        let steps = Statement::of("SELECT COUNT(*) FROM steps");
        let steps = store.reader().await.unwrap().link().row(steps).await.unwrap().unwrap();
        assert_eq!(steps.number(0).unwrap(), 6);
    });
}

#[test]
fn scripts_are_archived_and_read_back() {
    on_each(async |place| {
        let store = filled(place, 3).await;
        let age = Some(Age { count: 1, unit: AgeUnit::Hours });
        let folder = place.folder.join("archive");
        let settings = PurgeSettings {
            scripts: age,
            archive_scripts: true,
            archive_environments: true,
            folder: Some(folder.clone()),
            ..PurgeSettings::default()
        };
        let script = async |run| match store.text(Sluid(run), Text::Script, |_| true).await.unwrap() {
            Some(Told::Text(text)) => text,
            other => panic!("{other:?}"),
        };
        let before = script(1).await;
        assert!(before.is_some());
        let purged = store.purge(&settings, Timestamp(9 * HOUR)).await.unwrap();
        assert_eq!((purged.texts, script(1).await, script(7).await), (3, None, before.clone()));
        let files = archives(&folder);
        let name = files[0].file_name().unwrap().to_string_lossy().into_owned();
        assert!(files.len() == 1 && name.starts_with("c_job_script_table_archive_"), "{files:?}");
        assert_eq!(store.load(&files[0], false).await.unwrap(), Loaded { new: 3, known: 0 });
        assert_eq!(store.load(&files[0], false).await.unwrap(), Loaded { new: 0, known: 3 });
        assert_eq!(script(1).await, before);
        // With their jobs it is the same; what another job has stays.
        let jobs = PurgeSettings { scripts: None, jobs: age, ..settings };
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(store.purge(&jobs, Timestamp(9 * HOUR)).await.unwrap().jobs, 3);
        assert_eq!((archives(&folder).len(), script(7).await), (1, before));
        let texts = Statement::of("SELECT COUNT(*) FROM texts");
        let texts = store.reader().await.unwrap().link().row(texts).await.unwrap().unwrap();
        assert_eq!(texts.number(0).unwrap(), 1);
    });
}

/// Bytes that are no text too.
#[test]
fn an_archived_text_is_what_it_was() {
    let told = [&b"#!/bin/sh\n"[..], b"\xff\x00"].map(|bytes| {
        let line = Archived::Text { cluster: "c".to_owned(), job: 1, which: Text::Environment, words: bytes.into() };
        let text = serde_json::to_string(&line).unwrap();
        assert_eq!(serde_json::from_str::<Archived>(&text).unwrap(), line);
        text
    });
    assert!(told[0].contains("\"#!/bin/sh\\n\"") && told[1].contains("[255,0]"), "{told:?}");
}

#[test]
fn what_is_no_archive_changes_nothing() {
    on_each(async |place| {
        let store = filled(place, 3).await;
        let folder = &place.folder;
        std::fs::create_dir_all(folder).unwrap();
        let (text, link) = (folder.join("text"), folder.join("link"));
        let row = JobRow { cluster: "other".to_owned(), ..rows(&store).await.remove(0) };
        let lines = [Archived::Job(Box::new(row.clone()))].map(|line| serde_json::to_string(&line).unwrap() + "\n");
        std::fs::write(&text, lines.concat()).unwrap();
        std::os::unix::fs::symlink(&text, &link).unwrap();
        assert!(matches!(store.load(&text, false).await, Err(LoadError::Cluster(name)) if name == "other"));
        assert!(matches!(store.load(&link, false).await, Err(LoadError::File(_))));
        assert!(matches!(store.load(folder, false).await, Err(LoadError::File(_))));
        let new = JobRow { cluster: "c".to_owned(), job: JobId(99), ..row };
        let good = serde_json::to_string(&Archived::Job(Box::new(new))).unwrap();
        std::fs::write(&text, format!("{good}\nnonsense\n")).unwrap();
        assert!(matches!(store.load(&text, false).await, Err(LoadError::Line(2))));
        assert_eq!(rows(&store).await.len(), 4);
    });
}
