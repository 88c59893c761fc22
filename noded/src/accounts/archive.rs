//! Purging, with the site's own program that archives what is old before (`ArchiveScript` of slurmdbd.conf(5)).

use crate::scripts;
use garrick_accountant::{
    purge::Purged,
    store::{Store, StoreError},
};
use garrick_model::{
    config::{
        purge::{Age, PurgeSettings},
        slurmdbd::DbdConfig,
    },
    site_program::{Moment, SiteProgram},
    time::Timestamp,
};
use jiff::tz::TimeZone;
use std::path::Path;

/// Purges what is old now. Where the site archives by a program, that runs first, if there is anything old, and no files are written;
/// if it fails, nothing is deleted.
pub async fn purge(store: &Store, settings: &DbdConfig, what: &PurgeSettings) -> Result<Purged, StoreError> {
    let now = Timestamp::now();
    let Some(script) = &settings.archive_script else { return store.purge(what, now).await };
    if !store.has_old(what, now).await? {
        return Ok(Purged::default());
    }
    scripts::run(&program(script, what, now)).await.map_err(|why| StoreError::NotArchived(why.to_string()))?;
    tracing::info!(script = %script.display(), "what is old was archived by the site's program");
    store.purge(&without_files(what), now).await
}

fn without_files(what: &PurgeSettings) -> PurgeSettings {
    PurgeSettings {
        archive_jobs: false,
        archive_steps: false,
        archive_transactions: false,
        archive_events: false,
        archive_reservations: false,
        archive_scripts: false,
        archive_environments: false,
        ..what.clone()
    }
}

/// The program and its environment (slurmdbd.conf(5), `ArchiveScript`): what is archived, and the time before which it is old, seconds
/// since the epoch.
fn program(script: &Path, what: &PurgeSettings, now: Timestamp) -> SiteProgram {
    let mut environment = Vec::new();
    let mut tell = |name: &str, age: Option<Age>, is_archived: bool, last: Option<&str>| {
        let before = age.and_then(|age| age.before(now, &TimeZone::system()));
        let is_archived = is_archived && before.is_some();
        environment.push((format!("SLURM_ARCHIVE_{name}"), u8::from(is_archived).to_string()));
        if let (Some(last), Some(before)) = (last, before) {
            environment.push((format!("SLURM_ARCHIVE_LAST_{last}"), before.secs().to_string()));
        }
    };
    tell("EVENTS", what.events, what.archive_events, Some("EVENT"));
    tell("JOBS", what.jobs, what.archive_jobs, Some("JOB"));
    tell("STEPS", what.steps, what.archive_steps, Some("STEP"));
    // Suspensions are kept with their jobs, and usage is summed up from them.
    tell("SUSPEND", None, false, None);
    tell("USAGE", None, false, None);
    tell("TXN", what.transactions, what.archive_transactions, Some("TXN"));
    tell("RESVS", what.reservations, what.archive_reservations, Some("RESV"));
    tell("JOB_SCRIPT", what.scripts, what.archive_scripts, None);
    tell("JOB_ENV", what.environments, what.archive_environments, None);
    SiteProgram {
        moment: Moment::Archive,
        programs: vec![script.display().to_string()],
        arguments: Vec::new(),
        environment,
        limit: None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use garrick_accountant::{
        pages::{Cursor, Question},
        store::Batch,
    };
    use garrick_accounts::{filter::JobFilter, messages::LogId};
    use garrick_events::{
        event::ControllerEvent,
        progress::Position,
        records::{
            job::{Afterwards, End},
            job_event::JobEvent,
        },
        testing::record,
    };
    use garrick_kernel::scratch::{Scratch, put_program};
    use garrick_model::{
        config::{purge::AgeUnit, storage::Storage},
        ids::JobId,
        spec::JobSpec,
        state::{ExitStatus, JobState, Reason},
    };
    use std::fs;

    fn over(job: u32) -> [ControllerEvent; 2] {
        let end = End {
            state: JobState::Completed,
            reason: Reason::None,
            exit: ExitStatus::SUCCESS,
            derived: ExitStatus::SUCCESS,
            at: Timestamp(1000),
            then: Afterwards::Over,
            cause: None,
            by: None,
            sluid: None,
        };
        let of = |event| ControllerEvent::Job { job: JobId(job), event: Box::new(event) };
        [of(JobEvent::Submitted(Box::new(record(job, JobSpec::default())))), of(JobEvent::Ended(end))]
    }

    async fn jobs(store: &Store) -> usize {
        let question = Question { filter: &JobFilter::default(), steps: false, after: None, only: None };
        store.page(question, &mut Cursor::default()).await.unwrap().jobs.len()
    }

    #[tokio::test]
    async fn the_sites_program_archives_what_is_old_and_then_it_is_gone() {
        let dir = Scratch::new("archive-script");
        let store = Store::open_file(&dir.join("acct/accounting.db")).await.unwrap();
        let log = LogId(1, 2);
        let (of, _) = store.follow("c", log).await.unwrap();
        store.begin(&of, Position(0)).await.unwrap();
        let events: Vec<ControllerEvent> = (1..=3).flat_map(over).collect();
        store.keep(&of, Position(0), Position(1), Batch::from(events)).await.unwrap();
        let said = dir.join("said");
        let settings = |exit: u8| {
            let text =
                format!("#!/bin/sh\nenv | grep ^SLURM_ | sort > {}\necho no room\nexit {exit}\n", said.display());
            let script = dir.join("archive-script");
            put_program(&script, &text);
            let hours = Some(Age { count: 2, unit: AgeUnit::Hours });
            let purge = PurgeSettings {
                jobs: hours,
                transactions: hours,
                archive_jobs: true,
                archive_events: true,
                folder: Some(dir.join("archive")),
                ..PurgeSettings::default()
            };
            DbdConfig {
                storage: Storage::in_file(&dir.join("acct/accounting.db")),
                archive_script: Some(script),
                purge,
                ..DbdConfig::at(&dir.join("slurmdbd.conf"))
            }
        };
        let fails = settings(3);
        let failed = purge(&store, &fails, &fails.purge).await.unwrap_err().to_string();
        assert!(
            failed.contains("ArchiveScript") && failed.contains("exit code 3") && failed.contains("no room"),
            "{failed}"
        );
        assert_eq!(jobs(&store).await, 3, "what was not archived is not deleted");
        fs::remove_file(&said).unwrap();
        let works = settings(0);
        let purged = purge(&store, &works, &works.purge).await.unwrap();
        assert_eq!((purged.jobs, jobs(&store).await), (3, 0));
        let text = fs::read_to_string(&said).unwrap();
        let told: Vec<(&str, &str)> = text.lines().filter_map(|line| line.split_once('=')).collect();
        for (name, value) in
            [("JOBS", "1"), ("STEPS", "0"), ("EVENTS", "0"), ("TXN", "0"), ("SUSPEND", "0"), ("USAGE", "0")]
        {
            assert!(told.contains(&(format!("SLURM_ARCHIVE_{name}").as_str(), value)), "{name}: {text}");
        }
        let last = told.iter().find(|(name, _)| *name == "SLURM_ARCHIVE_LAST_JOB").unwrap().1;
        let last: i64 = last.parse().unwrap();
        assert!(last % 3600 == 0 && last < Timestamp::now().secs() - 3600, "{last}");
        assert!(!text.contains("LAST_EVENT"), "they are never purged");
        assert!(!dir.join("archive").exists(), "no files are written");
        // Nothing is old: it is not run.
        fs::remove_file(&said).unwrap();
        purge(&store, &works, &works.purge).await.unwrap();
        assert!(!said.exists());
    }
}
