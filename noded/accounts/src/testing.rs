//! Databases of tests, and what happened to jobs.
#![allow(clippy::unwrap_used)]

use crate::store::Store;
use garrick_accounts::messages::LogId;
use garrick_database_servers::{PASSWORD, Program, Server, USER};
use garrick_events::{
    event::ControllerEvent,
    progress::Position,
    records::{
        job::{Afterwards, End},
        job_event::JobEvent,
    },
    testing::{ended_row, record},
};
use garrick_kernel::files;
use garrick_model::{
    config::{
        slurmdbd::DbdConfig,
        storage::{Storage, StorageKind},
    },
    ids::{JobId, Sluid, StepKey},
    spec::JobSpec,
    state::{ExitStatus, JobState, Reason, StepState},
    time::{TimeLimit, Timestamp},
    usage::TaskUsage,
    view::{StepOrigin, StepRow, StepRows},
};
use serde_bytes::ByteBuf;
use std::{
    future::Future,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

/// A database of a test.
pub(crate) struct Place {
    pub(crate) storage: Storage,
    /// For files of the test.
    pub(crate) folder: PathBuf,
    /// Where it is, unless in a file.
    pub(crate) server: Option<Arc<Server>>,
}

impl Place {
    /// In a file.
    pub(crate) fn in_file() -> Self {
        let folder = folder();
        Self { storage: Storage::in_file(&folder.join("accounting/jobs.db")), folder, server: None }
    }

    /// An empty database on that server.
    pub(crate) fn on(server: Arc<Server>, program: Program) -> Self {
        let name = format!("t{}", number());
        server.create_database(&name);
        let kind = match program {
            Program::Postgres => StorageKind::Postgres,
            Program::MariaDb => StorageKind::MySql,
        };
        let storage = storage(&format!(
            "StorageType={}\nStorageHost=127.0.0.1\nStoragePort={}\nStorageUser={USER}\nStoragePass={PASSWORD}\n\
             StorageLoc={name}\n",
            kind.text(),
            server.port
        ));
        Self { storage, folder: folder(), server: Some(server) }
    }

    /// On a server that is shared with other tests, if it is installed.
    pub(crate) fn shared(program: Program) -> Option<Self> {
        Server::shared(program).map(|server| Self::on(server, program))
    }

    /// Opens it, once the last one who had it is gone.
    pub(crate) async fn open(&self) -> Store {
        let store = Store::open(&self.storage).await.unwrap();
        while store.ready().await.is_err() {
            tokio::task::yield_now().await;
        }
        store
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// What lines of slurmdbd.conf say.
pub(crate) fn storage(lines: &str) -> Storage {
    let folder = folder();
    std::fs::create_dir(&folder).unwrap();
    let file = folder.join("slurmdbd.conf");
    files::replace(&file, lines.as_bytes(), 0o600).unwrap();
    let (config, report) = DbdConfig::read(&file);
    std::fs::remove_dir_all(&folder).unwrap();
    config.unwrap_or_else(|| panic!("{report}")).storage
}

fn number() -> u32 {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    NUMBER.fetch_add(1, Ordering::Relaxed)
}

fn folder() -> PathBuf {
    std::env::temp_dir().join(format!("garrick-accounts-{}-{}", std::process::id(), number()))
}

/// Runs it to its end.
pub(crate) fn run(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test);
}

/// Runs it with a file of SQLite.
pub(crate) fn in_file(test: impl AsyncFn(&Place)) {
    let place = Place::in_file();
    run(test(&place));
}

/// Runs it with a file of SQLite, on PostgreSQL and on MariaDB.
pub(crate) fn on_each(test: impl AsyncFn(&Place)) {
    let places = [Some(Place::in_file()), Place::shared(Program::Postgres), Place::shared(Program::MariaDb)];
    for place in places.into_iter().flatten() {
        eprintln!("with {:?}", place.storage.kind);
        run(test(&place));
    }
}

pub(crate) const LOG: LogId = LogId(7, u64::MAX);

pub(crate) fn job(id: u32, event: JobEvent) -> ControllerEvent {
    ControllerEvent::Job { job: JobId(id), event: Box::new(event) }
}

pub(crate) fn submitted(id: u32) -> ControllerEvent {
    job(
        id,
        JobEvent::Submitted(Box::new(record(
            id,
            JobSpec {
                name: format!("job{id}"),
                script: Some(Arc::new(ByteBuf::from("#!/bin/sh\n"))),
                ..JobSpec::default()
            },
        ))),
    )
}

pub(crate) fn ended(id: u32, at: i64) -> ControllerEvent {
    let exit = ExitStatus::SUCCESS;
    let (reason, then) = (Reason::None, Afterwards::Over);
    job(
        id,
        JobEvent::Ended(End {
            state: JobState::Cancelled,
            reason,
            exit,
            derived: exit,
            at: Timestamp(at),
            then,
            cause: None,
            by: None,
            sluid: None,
        }),
    )
}

pub(crate) fn report(id: u32, keys: impl IntoIterator<Item = StepKey>, state: StepState) -> ControllerEvent {
    steps(id, keys.into_iter().map(|key| StepRow { state, ..ended_row(key) }).collect())
}

/// A step that ended and used that.
pub(crate) fn reported(id: u32, key: StepKey, usage: TaskUsage) -> ControllerEvent {
    steps(id, vec![StepRow { usage, ..ended_row(key) }])
}

fn steps(id: u32, rows: Vec<StepRow>) -> ControllerEvent {
    let origin = StepOrigin {
        name: "true".into(),
        uid: 1001,
        partition: "debug".into(),
        tasks: 1,
        time_limit: TimeLimit::Unlimited,
        srun: None,
        submit_line: "srun true".into(),
        priority: 0,
        cpu_freq: None,
        layout: None,
    };
    let steps = StepRows { origins: vec![origin], rows, ..StepRows::default() };
    ControllerEvent::Steps { job: JobId(id), sluid: Sluid(id.into()), steps: steps.into() }
}

/// An hour, milliseconds.
pub(crate) const HOUR: i64 = 3_600_000;

/// That many jobs that ended in the first hours of a day long ago, one an hour, each with two steps; and job 7, which waits.
pub(crate) async fn filled(place: &Place, jobs: u32) -> Store {
    let store = place.open().await;
    let (of, _) = store.follow("c", LOG).await.unwrap();
    store.begin(&of, Position(0)).await.unwrap();
    let mut events = vec![submitted(7)];
    for id in 1..=jobs {
        let steps = report(id, [StepKey::BATCH, StepKey::number(0)], StepState::Completed);
        events.extend([submitted(id), steps, ended(id, i64::from(id) * HOUR)]);
    }
    store.keep(&of, Position(0), Position(1), events).await.unwrap();
    store
}
