//! Opens the database and the door, on a thread of its own: in an embedded cluster the service is a part of the controller's
//! process, and must not be in its way.

use super::{
    archive::purge,
    door::{self, ANSWERED_OF_USER, CONVERSING_OF_USER, OfUsers, World},
    live::LiveSettings,
    network::{self, NetworkError},
    reach::is_here,
    records::Clockwork,
};
use crate::{background::Background, daemon::place::Cluster, guests::Guests};
use actix_rt::Arbiter;
use garrick_accountant::{
    purge::Purged,
    store::{Store, StoreError},
};
use garrick_kernel::{
    files::{self, FileError},
    inventory,
    lock::LifeLock,
};
use garrick_model::{
    config::{slurmdbd::DbdConfig, storage::Storage},
    doors,
};
use garrick_transport::{DoorBindError, DoorListener};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio::sync::{Semaphore, oneshot};

/// Questions that are being answered at a time: as many as there are connections that read.
const ANSWERING: usize = 4;
/// A server's database is asked for nothing so often, lest it takes the service for gone.
const SILENT: Duration = Duration::from_secs(20);
/// How often it is looked whether something is old: the shortest unit of an age.
const HOUR: Duration = Duration::from_secs(3600);
/// How often the service that stands by looks whether the other one is gone.
const TURN: Duration = Duration::from_secs(1);

/// The service could not be started.
#[derive(Debug, thiserror::Error)]
pub enum AccountsStartError {
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The door.
    #[error("local door: {0}")]
    Door(#[from] DoorBindError),
    /// The port.
    #[error("port: {0}")]
    Network(#[from] NetworkError),
    /// The lock that says who serves.
    #[error(transparent)]
    Lock(#[from] FileError),
    /// Another process has the database.
    #[error("another slurmdbd serves {}", path.display())]
    InUse {
        /// The database.
        path: PathBuf,
    },
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

fn listen(settings: &DbdConfig, door: &Path) -> Result<DoorListener, AccountsStartError> {
    let listener = DoorListener::bind(door, concat!("garrick ", env!("CARGO_PKG_VERSION")))?;
    let storage = &settings.storage;
    let database = storage.file().map_or_else(|| storage.database().to_owned(), |file| file.display().to_string());
    tracing::info!(door = %door.display(), storage = storage.kind.text(), database, "accounting serves");
    Ok(listener)
}

/// Keeps the connection to a server's database, and so its lock: the server drops one that is silent for a minute.
async fn keep_connected(store: Arc<Store>) {
    loop {
        tokio::time::sleep(SILENT).await;
        if let Err(error) = store.ready().await {
            tracing::debug!(%error, "the database is away");
        }
    }
}

/// Purges now and every hour what is old by then.
async fn purge_hourly(store: Arc<Store>, settings: Arc<LiveSettings>) {
    loop {
        let now = settings.now();
        match purge(&store, &now, &now.purge).await {
            Ok(purged) if purged == Purged::default() => {}
            Ok(Purged { jobs, steps, transactions, events, reservations, texts }) => {
                tracing::info!(jobs, steps, transactions, events, reservations, texts, "old records were purged");
            }
            Err(error) => tracing::error!(%error, "old records are not purged"),
        }
        tokio::time::sleep(HOUR).await;
    }
}

/// A database that this service may use. One on a server has a lock of its own, which the connection that writes takes.
struct Held(#[expect(dead_code, reason = "it is held as long as it is there")] Option<LifeLock>);

/// The lock of the database: of the services that can reach it, the one that has it serves. `None`: another one has it. It lies beside
/// the file, so it holds between hosts where locks of its file system do.
fn lock(settings: &DbdConfig) -> Result<Option<Held>, AccountsStartError> {
    let Some(file) = settings.storage.file() else { return Ok(Some(Held(None))) };
    if let Some(folder) = file.parent() {
        files::create_folder(folder, 0o700)?;
    }
    let mut path = file.as_os_str().to_owned();
    path.push(".lock");
    Ok(LifeLock::take(Path::new(&path))?.map(|lock| Held(Some(lock))))
}

/// Where the service serves, and what conversations share but for the database.
struct Service {
    settings: Arc<DbdConfig>,
    live: Arc<LiveSettings>,
    door: PathBuf,
    believed: Vec<u32>,
    host: String,
    /// It is that of `DbdBackupHost`.
    is_backup: bool,
    /// A part of an embedded cluster, which nobody else reaches.
    embedded: bool,
}

impl Service {
    /// The lock of the database, and the database. `None`: another service has it. Where there is no other one, a server that is away
    /// is waited for while this one serves.
    async fn take(&self) -> Result<Option<(Held, Arc<Store>)>, AccountsStartError> {
        let Some(held) = lock(&self.settings)? else { return Ok(None) };
        let store = Arc::new(Store::of(&self.settings).await?);
        let is_left_to_the_other = self.settings.backup.is_some() && store.ready().await.is_err();
        Ok((!is_left_to_the_other).then_some((held, store)))
    }

    /// Begins to serve, with the lock held.
    fn open(&self, (lock, store): (Held, Arc<Store>)) -> Result<(), AccountsStartError> {
        let listener = listen(&self.settings, &self.door)?;
        let port = if self.embedded { None } else { network::open(&self.settings)? };
        let world = World {
            store: Arc::clone(&store),
            settings: Arc::clone(&self.settings),
            live: Arc::clone(&self.live),
            believed: self.believed.clone().into(),
            host: self.host.clone().into(),
            is_backup: self.is_backup,
            guests: Guests::of_this_process(),
            turns: Arc::new(Semaphore::new(ANSWERING)),
            answering: OfUsers::with_most(ANSWERED_OF_USER),
            conversing: OfUsers::with_most(CONVERSING_OF_USER),
            clockwork: Arc::new(Clockwork::started()),
            controllers: Arc::default(),
        };
        if self.settings.storage.file().is_none() {
            actix_rt::spawn(keep_connected(Arc::clone(&store)));
        }
        actix_rt::spawn(purge_hourly(store, Arc::clone(&self.live)));
        // It is held as long as one of the two serves.
        let lock = Arc::new(lock);
        if let Some(port) = port {
            let (world, lock) = (world.clone(), Arc::clone(&lock));
            actix_rt::spawn(async move {
                port.serve(world).await;
                drop(lock);
            });
        }
        actix_rt::spawn(async move {
            door::serve(listener, world).await;
            drop(lock);
        });
        Ok(())
    }

    /// Serves at once, or, where the site has a second service, when the other one is gone.
    async fn run(self, started: oneshot::Sender<Result<(), AccountsStartError>>) {
        let path = self.settings.storage.file().unwrap_or(Path::new("")).to_owned();
        let outcome = match self.take().await {
            Ok(Some(taken)) => self.open(taken),
            Ok(None) if self.settings.backup.is_some() => {
                tracing::info!(database = %path.display(), "another service of accounting serves: this one stands by");
                // Nobody waits for it.
                drop(started.send(Ok(())));
                return self.stand_by().await;
            }
            Ok(None) => Err(AccountsStartError::InUse { path }),
            Err(error) => Err(error),
        };
        drop(started.send(outcome));
    }

    async fn stand_by(&self) {
        loop {
            tokio::time::sleep(TURN).await;
            let opened = match self.take().await {
                Ok(None) => continue,
                Ok(Some(taken)) => {
                    tracing::info!("the other service of accounting is gone: this one serves");
                    self.open(taken)
                }
                Err(error) => Err(error),
            };
            match opened {
                Ok(()) => return,
                Err(error) => tracing::error!(%error, "this service of accounting cannot serve: it is tried again"),
            }
        }
    }
}

/// A service at work, which ends when this is dropped.
#[derive(Debug)]
pub struct RunningAccounts {
    _background: Background,
    /// Its settings.
    pub settings: Arc<LiveSettings>,
}

/// Starts the service.
pub async fn start(cluster: &Cluster, settings: DbdConfig) -> Result<RunningAccounts, AccountsStartError> {
    let arbiter = Arbiter::new();
    let (started, is_started) = oneshot::channel::<Result<(), AccountsStartError>>();
    let is_backup = settings.backup.as_deref().is_some_and(is_here) && !is_here(&settings.host);
    let live = Arc::new(LiveSettings::new(cluster, settings));
    let service = Service {
        settings: live.now(),
        live: Arc::clone(&live),
        is_backup,
        door: cluster.doors.join(doors::ACCOUNTING),
        believed: cluster.believed(),
        host: inventory::hostname().unwrap_or_else(|_| "localhost".into()),
        embedded: cluster.home.is_some(),
    };
    // What it awaits stays on that thread.
    arbiter.spawn_fn(move || drop(actix_rt::spawn(service.run(started))));
    let running = Background::new("accounting", arbiter);
    is_started.await.map_err(|_| AccountsStartError::Thread)??;
    Ok(RunningAccounts { _background: running, settings: live })
}
