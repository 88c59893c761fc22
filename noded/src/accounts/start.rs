//! Opens the database and the door, on a thread of its own: in an embedded cluster the service is a part of the controller's
//! process, and must not be in its way.

use super::{
    door::{self, World},
    records::Clockwork,
};
use crate::{background::Background, daemon::place::Cluster, guests::Guests};
use actix_rt::Arbiter;
use garrick_accountant::{
    purge::Purged,
    store::{Store, StoreError},
};
use garrick_kernel::inventory;
use garrick_model::{
    config::{purge::PurgeSettings, slurmdbd::DbdConfig, storage::Storage},
    doors,
    time::Timestamp,
};
use garrick_transport::{DoorBindError, DoorListener};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio::sync::{Semaphore, oneshot};

/// Connections of one user at a time.
const OF_USER: usize = 32;
/// Questions that are being answered at a time: as many as there are connections that read.
const ANSWERING: usize = 4;
/// How often it is looked whether something is old: the shortest unit of an age.
const HOUR: Duration = Duration::from_secs(3600);

/// The service could not be started.
#[derive(Debug, thiserror::Error)]
pub enum AccountsStartError {
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The door.
    #[error("local door: {0}")]
    Door(#[from] DoorBindError),
    /// Its thread.
    #[error("the service of accounting ended while it was started")]
    Thread,
}

/// The settings of the service: those of the file, or of an embedded cluster, whose files are all in its home.
pub fn settings_of(cluster: &Cluster) -> Result<DbdConfig, String> {
    let path = cluster.config.path.with_file_name("slurmdbd.conf");
    let mut settings = match (&cluster.home, path.exists()) {
        (_, true) => match DbdConfig::read(&path) {
            (Some(settings), _) => settings,
            (None, report) => return Err(format!("{} cannot be used:\n{report}", path.display())),
        },
        (Some(_), false) => DbdConfig::at(&path),
        (None, false) => return Err(format!("{} is not there", path.display())),
    };
    if let Some(home) = cluster.home.as_ref().filter(|_| !path.exists()) {
        settings.storage = Storage::in_file(&home.join("accounting/accounting.db"));
        settings.private = cluster.config.private_data.clone();
    }
    Ok(settings)
}

async fn open(settings: &DbdConfig, door: &Path) -> Result<(Arc<Store>, DoorListener), AccountsStartError> {
    let store = Arc::new(Store::open(&settings.storage).await?);
    let listener = DoorListener::bind(door, concat!("garrick ", env!("CARGO_PKG_VERSION")))?;
    let storage = &settings.storage;
    let database = storage.file().map_or_else(|| storage.database().to_owned(), |file| file.display().to_string());
    tracing::info!(door = %door.display(), storage = storage.kind.text(), database, "accounting serves");
    Ok((store, listener))
}

/// Purges now and every hour what is old by then.
async fn purge_hourly(store: Arc<Store>, settings: PurgeSettings) {
    loop {
        match store.purge(&settings, Timestamp::now()).await {
            Ok(purged) if purged == Purged::default() => {}
            Ok(Purged { jobs, steps, transactions, events, reservations, texts }) => {
                tracing::info!(jobs, steps, transactions, events, reservations, texts, "old records were purged");
            }
            Err(error) => tracing::error!(%error, "old records are not purged"),
        }
        tokio::time::sleep(HOUR).await;
    }
}

/// Starts the service, which ends when what is returned is dropped.
pub async fn start(cluster: &Cluster, settings: DbdConfig) -> Result<Background, AccountsStartError> {
    let arbiter = Arbiter::new();
    let (started, is_started) = oneshot::channel::<Result<(), AccountsStartError>>();
    let door: PathBuf = cluster.doors.join(doors::ACCOUNTING);
    let (believed, host) = (cluster.believed(), inventory::hostname().unwrap_or_else(|_| "localhost".into()));
    arbiter.spawn_fn(move || {
        let world = move |store: Arc<Store>, settings| World {
            store,
            settings: Arc::new(settings),
            believed: believed.into(),
            host: host.into(),
            guests: Guests::with_most(OF_USER),
            turns: Arc::new(Semaphore::new(ANSWERING)),
            of_users: Arc::default(),
            clockwork: Arc::new(Clockwork::started()),
        };
        actix_rt::spawn(async move {
            match open(&settings, &door).await {
                Ok((store, listener)) => {
                    if started.send(Ok(())).is_ok() {
                        actix_rt::spawn(purge_hourly(Arc::clone(&store), settings.purge.clone()));
                        door::serve(listener, world(store, settings)).await;
                    }
                }
                Err(e) => drop(started.send(Err(e))),
            }
        });
    });
    let running = Background::new("accounting", arbiter);
    is_started.await.map_err(|_| AccountsStartError::Thread)??;
    Ok(running)
}
