//! Starting the controller role: CA and keys, journal and replay, actors, door, links.

use crate::{
    controller::{
        door::{self, DoorWorld},
        host::ThisProcess,
        links,
        ports::{JournalFile, Signer, Users},
    },
    daemon::{guests::Guests, options::Options, place::Cluster, reset_key},
    journal::{self, Fold, JournalError, JournalWriter, Shortener, series},
    kernel::{inventory, users},
};
use garrick_actors::controller::{
    env::Env,
    event::{ControllerEvent, ReplayError, Replayed},
    messages::ControllerMsg,
    ports::Ports,
    setup,
};
use garrick_model::{config, time::Timestamp};
use garrick_runtime::{Address, System};
use garrick_transport::{
    CertAuthority, DoorListener, Endpoint, EndpointOptions, IdentityError, IdentityStore, JoinServer, SigningKey,
    any_address, identity::Role,
};
use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, OnceLock},
};
use tokio::sync::watch;

/// The controller role could not be started.
#[derive(Debug, thiserror::Error)]
pub enum ControllerStartError {
    /// Folders.
    #[error("cannot make {}: {cause}", path.display())]
    Folder {
        /// Which.
        path: PathBuf,
        /// Why not.
        cause: std::io::Error,
    },
    /// CA, certificates, keys.
    #[error("the cluster's identity: {0}")]
    Identity(#[from] IdentityError),
    /// The journal.
    #[error("{0}")]
    Journal(#[from] JournalError),
    /// What it says does not fit together.
    #[error("journal {}: {cause}; start with -i to go on without what does not fit, or with -c to start empty", path.display())]
    Replay {
        /// Which.
        path: PathBuf,
        /// What.
        cause: ReplayError,
    },
    /// Its thread.
    #[error("the journal's thread: {0}")]
    Thread(std::io::Error),
    /// The UDP port.
    #[error("{0}")]
    Endpoint(#[from] garrick_transport::LinkError),
    /// The door.
    #[error("local door: {0}")]
    Door(#[from] garrick_transport::DoorBindError),
}

/// A controller at work.
pub struct RunningController {
    process: Arc<ThisProcess>,
    /// Its front.
    pub front: Address<ControllerMsg>,
}

impl RunningController {
    /// Reads the configuration again (SIGHUP).
    pub fn reconfigure(&self) {
        // A refusal was logged where it was found.
        let _ = self.process.read_again();
    }
}

struct Keys {
    authority: Arc<CertAuthority>,
    identity: Arc<IdentityStore>,
    signing: SigningKey,
}

fn state_folder(cluster: &Cluster) -> Result<PathBuf, ControllerStartError> {
    let state = cluster.config.state_save_location.clone();
    std::fs::create_dir_all(&state).map_err(|cause| ControllerStartError::Folder { path: state.clone(), cause })?;
    Ok(state)
}

fn host_name() -> String {
    inventory::hostname().unwrap_or_else(|_| "localhost".into())
}

fn keys(cluster: &Cluster) -> Result<Keys, ControllerStartError> {
    let state = state_folder(cluster)?;
    let authority = Arc::new(CertAuthority::open_or_create(&state.join("ca"), &cluster.config.cluster_name)?);
    let folder = state.join("identity");
    let identity = match IdentityStore::load(&folder) {
        Ok(store) => store,
        Err(_) => authority.enrol(Role::Controller, &host_name(), &folder)?,
    };
    let signing = SigningKey::open_or_create(&state.join("credential.key"))?;
    Ok(Keys { authority, identity, signing })
}

/// `noded init`: makes what is missing of the cluster's CA and keys, and says what there is.
pub fn init(cluster: &Cluster) -> Result<String, ControllerStartError> {
    garrick_transport::install_crypto_provider();
    let keys = keys(cluster)?;
    Ok(format!(
        "cluster {}: certificate authority in {}, fingerprint {}\ncontroller's identity: {}\n",
        cluster.config.cluster_name,
        keys.authority.folder().display(),
        keys.authority.fingerprint().iter().map(|b| format!("{b:02x}")).collect::<String>(),
        keys.identity.identity(),
    ))
}

impl Fold for Replayed {
    type Record = ControllerEvent;
    type Error = Unread;

    fn fold(&mut self, event: ControllerEvent) -> Result<(), Unread> {
        Ok(self.apply(&event)?)
    }

    fn shortest(self) -> impl Iterator<Item = ControllerEvent> {
        self.into_events().into_iter()
    }
}

/// Why a journal was not read back.
#[derive(Debug, thiserror::Error)]
pub enum Unread {
    /// Its files.
    #[error(transparent)]
    File(#[from] JournalError),
    /// What they say.
    #[error(transparent)]
    Replay(#[from] ReplayError),
}

/// With `-i`: what does not fit is left out.
#[derive(Default)]
struct Forgiving {
    replayed: Replayed,
    left_out: u64,
}

impl Fold for Forgiving {
    type Record = ControllerEvent;
    type Error = JournalError;

    fn fold(&mut self, event: ControllerEvent) -> Result<(), JournalError> {
        if let Err(e) = self.replayed.apply(&event) {
            tracing::error!(error = %e, "an event of the journal was left out");
            self.left_out += 1;
        }
        Ok(())
    }

    fn shortest(self) -> impl Iterator<Item = ControllerEvent> {
        self.replayed.shortest()
    }
}

/// Bytes appended to the journal between two snapshots at least: read back within a second or so.
const SNAPSHOT_FLOOR: u64 = 32 << 20;

/// Reads the journal back and starts its writer.
fn open_journal(
    cluster: &Cluster,
    options: &Options,
) -> Result<(JournalWriter<ControllerEvent>, Replayed), ControllerStartError> {
    let folder = state_folder(cluster)?;
    let path = series::path(&folder);
    let put_aside = |why: &str| {
        series::put_aside(&folder, why).map_err(|cause| ControllerStartError::Folder { path: folder.join(why), cause })
    };
    if options.clean
        && let Some(kept) = put_aside("journal.discarded")?
    {
        tracing::warn!(kept = %kept.display(), "started with -c: saved jobs and node states were put aside");
    }
    let mut replayed = Replayed::default();
    let opened = if options.ignore_errors {
        let mut forgiving = Forgiving::default();
        match series::open(&folder, &mut forgiving) {
            Ok(opened) if forgiving.left_out == 0 => {
                replayed = forgiving.replayed;
                opened
            }
            outcome => {
                let kept = put_aside("journal.unreadable")?.unwrap_or_default();
                match outcome {
                    Ok(_) => tracing::error!(
                        left_out = forgiving.left_out, kept = %kept.display(), "started with -i: a new journal was begun"
                    ),
                    Err(e) => {
                        tracing::error!(error = %e, kept = %kept.display(), "started with -i: the journal was put aside");
                        forgiving = Forgiving::default();
                    }
                }
                journal::replace(&path, forgiving.replayed.shortest())?;
                series::open(&folder, &mut replayed).map_err(|cause| unread(cause, &path))?
            }
        }
    } else {
        series::open(&folder, &mut replayed).map_err(|cause| unread(cause, &path))?
    };
    if opened.torn_bytes > 0 {
        tracing::warn!(bytes = opened.torn_bytes, file = %path.display(), "a torn last record was cut off the journal");
    }
    let shortener = Shortener::new::<Replayed>(&folder, SNAPSHOT_FLOOR, &opened);
    let (writer, _thread) =
        JournalWriter::start(&path, opened.file, Some(shortener)).map_err(ControllerStartError::Thread)?;
    Ok((writer, replayed))
}

fn unread(cause: Unread, path: &Path) -> ControllerStartError {
    match cause {
        Unread::File(e) => e.into(),
        Unread::Replay(cause) => ControllerStartError::Replay { path: path.to_owned(), cause },
    }
}

fn warnings(cluster: &Cluster) -> BTreeSet<String> {
    let (_, mut report) = config::read_reporting(&cluster.config.path);
    report.check_groups(users::knows_group);
    report.warnings().map(ToString::to_string).collect()
}

/// Starts the role. `exit` is set when a command orders the end.
pub async fn start(
    cluster: &Cluster,
    options: &Options,
    system: &System,
    exit: watch::Sender<bool>,
) -> Result<RunningController, ControllerStartError> {
    let keys = keys(cluster)?;
    let (writer, replayed) = open_journal(cluster, options)?;
    let actors: Arc<OnceLock<Arc<Env>>> = Arc::default();
    let known = Arc::clone(&actors);
    let mut join = JoinServer::new(Arc::clone(&keys.authority))?.with_names(move |name| match known.get() {
        Some(env) => env.admits(name),
        None => Err("the controller is only just starting: try again".to_owned()),
    });
    if let Some(key) = cluster.shared_key() {
        join = join.with_shared_key(&key);
    }
    let join = Arc::new(join);
    let bind = any_address(cluster.config.slurmctld_port.first);
    let reset_key = reset_key::kept(&state_folder(cluster)?);
    let endpoint = EndpointOptions { join: Some(Arc::clone(&join)), reset_key, ..EndpointOptions::default() };
    let endpoint = Arc::new(Endpoint::bind_with(bind, keys.identity, endpoint)?);
    let door_path = cluster.controller_door();
    let listener = DoorListener::bind(&door_path, concat!("garrick ", env!("CARGO_PKG_VERSION")))?;

    let process = Arc::new(ThisProcess {
        cluster: cluster.clone(),
        front: Arc::new(OnceLock::new()),
        join: Arc::clone(&join),
        exit,
        started: Timestamp::now(),
        host: host_name(),
        address: endpoint.local_addr().to_string(),
        // Said when the file was read for this start.
        warned: Mutex::new(warnings(cluster)),
    });
    let ports = Ports {
        journal: Arc::new(JournalFile::new(writer)),
        signer: Arc::new(Signer::new(keys.signing)),
        users: Arc::new(Users::default()),
        host: Arc::clone(&process) as _,
    };
    let jobs = replayed.jobs.len();
    let random = || u32::try_from(garrick_model::ids::RequestId::random().0 >> 32).unwrap_or(0);
    let setup::Controller { front, epoch, env } =
        setup::start_replayed(system, Arc::clone(&cluster.config), ports, replayed, options.recover, random);
    let nodes = env.config().nodes.len();
    let _ = actors.set(env);
    let _ = process.front.set(front.clone());
    actix_rt::spawn(links::serve(Arc::clone(&endpoint), front.clone()));
    let world = DoorWorld {
        front: front.clone(),
        endpoint: Arc::clone(&endpoint),
        join,
        host: process.host.clone(),
        guests: Guests::of_this_process(),
    };
    actix_rt::spawn(door::serve(listener, world));
    tracing::info!(
        cluster = cluster.config.cluster_name,
        epoch,
        jobs,
        nodes,
        address = %endpoint.local_addr(),
        door = %door_path.display(),
        "the controller serves"
    );
    Ok(RunningController { process, front })
}
