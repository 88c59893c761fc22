//! Starting the controller role: CA and keys, log and replay, actors, door, links.

use super::{
    accounting::{AccountingFeed, Seen},
    audit::AuditLog,
    beside::{Beside, BesideError},
    completion::{
        Completion,
        sinks::{Sink, SinkSetupError},
    },
    door::{Door, DoorWorld},
    host::ThisProcess,
    http::Http,
    links,
    log::{self, FileLog},
    names::{Names, Question},
    ports::Signer,
    primary,
    programs::Runner,
    tenure::{Fence, Tenure, TenureError},
    trust::{self, Trust},
};
use crate::{
    accounts::{
        reach::Accounting,
        start::{self as accounts, AccountsStartError, RunningAccounts},
    },
    background::Background,
    daemon::{options::Options, place::Cluster, reset_key},
    guests::Guests,
};
use garrick_actors::{
    controller::{
        messages::ControllerMsg,
        setup,
        shells::{env::Env, ports::Ports},
    },
    log::{AppendError, Feed, Log as _, committed::Committed},
};
use garrick_daemon::journal::{self, Fold, Form, JournalError, JournalWriter, Series, Shortener, series};
use garrick_events::event::{ControllerEvent, ReplayError, Replayed};
use garrick_hooks::checks::{ChecksError, SiteChecks};
use garrick_kernel::{
    files::{self, FileError},
    inventory, users,
};
use garrick_model::{
    config::{self, Config},
    time::Timestamp,
    trigger::TriggerEvent,
};
use garrick_runtime::{Address, System};
use garrick_transport::{
    CertAuthority, Endpoint, EndpointOptions, IdentityError, IdentityStore, JoinServer, SigningKey, any_address,
    identity::hex,
};
use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, OnceLock, atomic::AtomicU64},
    thread::JoinHandle,
    time::Duration,
};
use tokio::sync::watch;

/// The folder of `slurm.conf`.
fn conf_folder(config: &Config) -> &Path {
    config.path.parent().unwrap_or(Path::new("/"))
}

/// Where runs of jobs that are over are recorded.
fn completion_sink(config: &Config) -> Result<Option<Sink>, SinkSetupError> {
    Sink::of(&config.completion, &config.cluster_name, conf_folder(config))
}

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
    /// A file or folder.
    #[error(transparent)]
    File(#[from] FileError),
    /// CA, certificates, keys.
    #[error("the cluster's identity: {0}")]
    Identity(#[from] IdentityError),
    /// The journal.
    #[error("{0}")]
    Journal(#[from] JournalError),
    /// What is kept beside it.
    #[error("{0}")]
    Beside(#[from] BesideError),
    /// The site's own checks of jobs.
    #[error(transparent)]
    Checks(#[from] ChecksError),
    /// It does not take the first that is to be said.
    #[error("the log: {0}")]
    Log(#[from] AppendError),
    /// What it says does not fit together.
    #[error("journal {}: {cause}; start with -i to go on without what does not fit, or with -c to start empty", path.display())]
    Replay {
        /// Which.
        path: PathBuf,
        /// What.
        cause: ReplayError,
    },
    /// Another controller has its state.
    #[error("{0}")]
    Tenure(#[from] TenureError),
    /// A thread: the journal's, or one that asks the name service.
    #[error("starting a thread: {0}")]
    Thread(std::io::Error),
    /// The UDP port.
    #[error("{0}")]
    Endpoint(#[from] garrick_transport::LinkError),
    /// The door.
    #[error("local door: {0}")]
    Door(#[from] garrick_transport::DoorBindError),
    /// The service of accounting of an embedded cluster.
    #[error("accounting: {0}")]
    Accounts(#[from] AccountsStartError),
    /// Its configuration.
    #[error("{0}")]
    AccountsConf(String),
    /// Job completion.
    #[error("{0}")]
    Completion(#[from] SinkSetupError),
}

/// A controller at work.
pub struct RunningController {
    process: Arc<ThisProcess>,
    _http: Option<Background>,
    _completion: Option<Background>,
    // Before the service that it feeds.
    _feed: Option<Background>,
    _accounts: Option<RunningAccounts>,
    // Closed before the state folder is given up.
    _door: Door,
    tenure: Tenure,
    /// Its frontend.
    pub frontend: Address<ControllerMsg>,
}

impl RunningController {
    /// Reads the configuration again (SIGHUP).
    pub fn reconfigure(&self) {
        // A refusal was logged where it was found.
        self.process.read_again();
    }

    /// The process ends in order. Whoever has the state folder next is told so.
    pub async fn end(self) {
        let Self {
            _http: http, _completion: completion, _feed: feed, _accounts: accounts, _door: door, tenure, ..
        } = self;
        // In this order: what feeds others before these.
        drop((http, completion, feed, accounts, door));
        primary::ends().await;
        tenure.end();
    }
}

struct Keys {
    authority: Arc<CertAuthority>,
    identity: Arc<IdentityStore>,
    signing: SigningKey,
}

fn state_folder(cluster: &Cluster) -> Result<PathBuf, ControllerStartError> {
    let state = cluster.config.state_save_location.clone();
    // Not a folder that others use too: slurm.conf's default is /var/spool.
    let corrected = if state.exists() && !series::path(&state).exists() { false } else { own_state(&state)? };
    if corrected {
        tracing::warn!(state = %state.display(), "others could read the controller's state: closed");
    }
    Ok(state)
}

/// The folder is this process's alone, with what an older version left in it.
fn own_state(state: &Path) -> Result<bool, ControllerStartError> {
    let mut corrected = if state == Path::new("/var/spool") { false } else { files::keep_folder(state, 0o700)? };
    if state.join("beside").exists() {
        corrected |= files::keep_folder(&state.join("beside"), 0o700)?;
    }
    for file in series::files(state)? {
        corrected |= files::keep_private(&file)?;
    }
    Ok(corrected)
}

fn host_name() -> String {
    inventory::hostname().unwrap_or_else(|_| "localhost".into())
}

/// The keys that are there, made where there are none. `keep`: changes of the authority's files from here on.
fn keys(cluster: &Cluster, keep: Option<&Arc<Beside>>) -> Result<Keys, ControllerStartError> {
    let state = state_folder(cluster)?;
    let mut authority = CertAuthority::open_or_create(&state.join("ca"), &cluster.config.cluster_name)?;
    let signing = SigningKey::open_or_create(&state.join("credential.key"))?;
    if let Some(beside) = keep {
        beside.record()?;
        authority = authority.kept_by(Arc::clone(beside) as _);
    }
    let folder = state.join("identity");
    let identity = trust::own_identity(cluster, &authority, &folder)?;
    identity.set_revoked(&folder, authority.revocation_list()?.as_deref())?;
    Ok(Keys { authority: Arc::new(authority), identity, signing })
}

/// `noded init`: makes what is missing of the cluster's CA and keys, and says what there is. Of a cluster that has run nothing is
/// made: its controller does that, whose log says what counts.
pub fn init(cluster: &Cluster) -> Result<String, ControllerStartError> {
    garrick_transport::install_crypto_provider();
    let state = state_folder(cluster)?;
    let (authority, identity) = if series::path(&state).exists() {
        let authority = CertAuthority::open(&state.join("ca"))?;
        (Arc::new(authority), IdentityStore::load(&state.join("identity"))?)
    } else {
        let keys = keys(cluster, None)?;
        (keys.authority, keys.identity)
    };
    Ok(format!(
        "cluster {}: certificate authority in {}, fingerprint {}\ncontroller's identity: {}\n",
        cluster.config.cluster_name,
        authority.folder().display(),
        hex(&authority.fingerprint()),
        identity.identity(),
    ))
}

/// What is read back of the journal, and kept of it.
#[derive(Clone, Debug, Default)]
pub struct Saved(pub Replayed);

impl Fold for Saved {
    type Record = ControllerEvent;
    type Error = Unread;

    fn fold(&mut self, event: ControllerEvent) -> Result<(), Unread> {
        Ok(self.0.apply(&event)?)
    }

    fn began(epoch: u64) -> ControllerEvent {
        ControllerEvent::Started { epoch }
    }

    fn shortest(self) -> impl Iterator<Item = ControllerEvent> {
        self.0.into_events()
    }

    fn position(&self) -> u64 {
        self.0.progress.position.0
    }

    fn head(&self) -> Option<ControllerEvent> {
        Some(self.0.progress.base(0))
    }

    fn says_position(record: &ControllerEvent) -> Option<u64> {
        match record {
            ControllerEvent::Base { position, .. } => Some(position.0),
            _ => None,
        }
    }

    fn slowest(&self) -> Option<(String, u64)> {
        self.0.progress.slowest().map(|(name, upto)| (name.to_owned(), upto.0))
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
#[derive(Clone, Default)]
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

    fn began(epoch: u64) -> ControllerEvent {
        Saved::began(epoch)
    }

    fn shortest(self) -> impl Iterator<Item = ControllerEvent> {
        self.replayed.into_events()
    }

    fn position(&self) -> u64 {
        self.replayed.progress.position.0
    }

    fn says_position(record: &ControllerEvent) -> Option<u64> {
        Saved::says_position(record)
    }
}

/// Bytes appended to the journal between two snapshots at least: read back within a second or so.
const SNAPSHOT_FLOOR: u64 = 32 << 20;

/// Reads the journal back and starts its writer.
fn open_journal(cluster: &Cluster, options: &Options, tenure: &mut Tenure) -> Result<FileLog, ControllerStartError> {
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
    let mut saved = Saved::default();
    let mut opened = if options.ignore_errors {
        let mut forgiving = Forgiving::default();
        match series::open(&folder, &mut forgiving) {
            Ok(opened) if forgiving.left_out == 0 => {
                saved.0 = forgiving.replayed;
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
                let form = Form::Epoch(forgiving.replayed.epoch);
                journal::replace_as(&path, form, forgiving.replayed.into_events())?;
                series::open(&folder, &mut saved).map_err(|cause| unread(cause, &path))?
            }
        }
    } else {
        series::open(&folder, &mut saved).map_err(|cause| unread(cause, &path))?
    };
    if opened.torn_bytes > 0 {
        tracing::warn!(bytes = opened.torn_bytes, file = %path.display(), "a torn last record was cut off the journal");
    }
    let least = tenure.epoch().max(saved.0.epoch + 1);
    let epoch = opened.begin(&folder, &mut saved, least).map_err(|cause| unread(cause, &path))?;
    if let Some(late) = &opened.late.first {
        tracing::warn!(records = opened.late.records, "{late}");
    }
    tenure.hold(epoch)?;
    // The controller's own count goes on from the one before.
    saved.0.epoch = epoch - 1;
    let mark = journal::failure_mark(&path);
    if (tenure.after_another_host || mark.exists() || !opened.says_position())
        && let Err(why) = opened.leave_behind(&folder, &saved)
    {
        tracing::warn!(
            why,
            "another host's controller or an earlier version was here last, or the journal failed: it is gone on with as it is"
        );
    } else if mark.exists() {
        tracing::warn!(file = %path.display(), "the journal failed before: what could be read of it was written anew");
        if let Err(e) = std::fs::remove_file(&mark) {
            tracing::warn!(file = %mark.display(), error = %e, "removing the mark of that");
        }
    }
    let (log, _thread) = start_log(&folder, opened, saved.0, SNAPSHOT_FLOOR, fence_of(tenure), end_with_the_log)
        .map_err(ControllerStartError::Thread)?;
    Ok(log)
}

/// A start waits so long for what it has to tell the log.
const LOG_PATIENCE: Duration = Duration::from_secs(60);

fn fence_of(tenure: &Tenure) -> journal::Fence {
    let fence = tenure.fence();
    Box::new(move || end_if_fenced(&fence))
}

/// Nobody can tell what is on disk now, and owners went on as if it were: only a restart, which reads it back, can go on.
fn end_with_the_log(error: &JournalError) {
    tracing::error!(%error, "the journal cannot be written: the controller ends");
    std::process::exit(1);
}

/// Starts the writer of a series that was begun and came to that, and the log over it. The handle ends when the log is gone and all is written.
pub(super) fn start_log(
    folder: &Path,
    opened: Series,
    replayed: Replayed,
    floor: u64,
    fence: journal::Fence,
    failed: fn(&JournalError),
) -> std::io::Result<(FileLog, JoinHandle<()>)> {
    let feed = Arc::new(Feed::new(replayed.progress.clone()));
    let value = Committed::new(replayed);
    let segments = Arc::clone(&opened.segments);
    let standing = log::standing(&value, folder, opened.epoch);
    let shortener = Shortener::new(folder, floor, &opened, standing);
    let (writer, thread) = JournalWriter::start(&series::path(folder), opened.into(), Some(shortener), fence)?;
    Ok((FileLog::new(writer, value, feed, segments, failed), thread))
}

/// How often a controller that has nothing to write looks whether its folder is still its own.
const FENCE_PAUSE: Duration = Duration::from_secs(1);

/// Ends this process where another one has its state: nothing that it would say from now on holds.
fn end_if_fenced(fence: &Fence) -> Result<(), String> {
    fence.passed().inspect_err(|why| {
        tracing::error!("{why}: ending");
        primary::is_lost();
        std::process::exit(1);
    })
}

fn unread(cause: Unread, path: &Path) -> ControllerStartError {
    match cause {
        Unread::File(e) => e.into(),
        Unread::Replay(cause) => ControllerStartError::Replay { path: path.to_owned(), cause },
    }
}

/// Who administrates must be known before anybody is served; who owns the jobs and triggers that are there is asked meanwhile.
async fn first_names(names: &Names, config: &Config, committed: &Committed) {
    let by_name = [&config.slurm_user, &config.slurmd_user].map(|name| Question::UserCalled(name.clone()));
    names.prepare(&by_name).await;
    let slurm_user = names.uid_called(&config.slurm_user);
    if slurm_user.is_none() {
        tracing::warn!(user = config.slurm_user, "SlurmUser is not known (yet): it administrates once it is");
    }
    let administrators = [Some(0), Some(users::effective_uid()), slurm_user];
    let questions: Vec<Question> = administrators.into_iter().flatten().map(Question::User).collect();
    names.prepare(&questions).await;
    let owners = committed.jobs().into_iter().filter_map(|job| committed.look(job, |record| record.owner.uid));
    let of_triggers = committed.triggers().0.into_values().map(|trigger| trigger.uid);
    let owners: BTreeSet<u32> = owners.chain(of_triggers).collect();
    names.ask(owners.into_iter().map(Question::User));
}

fn warnings(cluster: &Cluster) -> BTreeSet<String> {
    let (_, mut report) = config::read_reporting(&cluster.config.path);
    report.check_groups(users::knows_group);
    report.warnings().map(ToString::to_string).collect()
}

/// In an embedded cluster the controller's process has the service of accounting in it.
async fn own_accounts(cluster: &Cluster) -> Result<Option<RunningAccounts>, ControllerStartError> {
    if cluster.home.is_none() || !cluster.config.accounting {
        return Ok(None);
    }
    let settings = accounts::settings_of(cluster).map_err(ControllerStartError::AccountsConf)?;
    Ok(Some(accounts::start(cluster, settings).await?))
}

/// What a start has once the state folder is this process's.
struct Begun {
    log: Arc<FileLog>,
    audit: AuditLog,
    fence: Fence,
    /// What became of the cluster's controllers.
    happened: BTreeSet<TriggerEvent>,
    exit: watch::Sender<bool>,
}

/// Starts the role. `exit` is set when a command orders the end.
pub async fn start(
    cluster: &Cluster,
    options: &Options,
    system: &System,
    exit: watch::Sender<bool>,
) -> Result<RunningController, ControllerStartError> {
    let mut tenure = Tenure::take(&state_folder(cluster)?, &host_name())?;
    let happened = tenure.events(|host| cluster.is_primary(host));
    let audit_path = cluster.config.audit_log();
    let audit = AuditLog::start(audit_path.as_deref())
        .map_err(|cause| ControllerStartError::Folder { path: audit_path.clone().unwrap_or_default(), cause })?;
    let log = Arc::new(open_journal(cluster, options, &mut tenure)?);
    let begun = Begun { log, audit, fence: tenure.fence(), happened, exit };
    primary::becomes(&cluster.config).await;
    // The folder is this process's until its program has run.
    match start_to_serve(cluster, options, system, begun).await {
        Ok(running) => Ok(running(tenure)),
        Err(error) => {
            primary::ends().await;
            Err(error)
        }
    }
}

/// Starts what serves. What is returned makes a controller of it.
async fn start_to_serve(
    cluster: &Cluster,
    options: &Options,
    system: &System,
    begun: Begun,
) -> Result<impl FnOnce(Tenure) -> RunningController, ControllerStartError> {
    let Begun { log, audit, fence, happened, exit } = begun;
    let state = state_folder(cluster)?;
    let beside = Arc::new(Beside::open(&state, Arc::clone(&log) as _, options.ignore_errors)?);
    let reset_key = reset_key::kept(&state);
    let keys = keys(cluster, Some(&beside))?;
    actix_rt::spawn(async move {
        while end_if_fenced(&fence).is_ok() {
            tokio::time::sleep(FENCE_PAUSE).await;
        }
    });
    let actors: Arc<OnceLock<Arc<Env>>> = Arc::default();
    let known = Arc::clone(&actors);
    let (nodes_are_known, ready) = watch::channel(false);
    let join = JoinServer::new(Arc::clone(&keys.authority))?.once(ready);
    let mut join = join.with_names(move |name| match known.get() {
        Some(env) => env.admits(name),
        None => Err("the controller did not start".to_owned()),
    });
    if let Some(key) = cluster.shared_key() {
        join = join.with_shared_key(&key);
    }
    let join = Arc::new(join);
    let bind = any_address(cluster.config.slurmctld_port.first);
    let endpoint =
        EndpointOptions { join: Some(Arc::<JoinServer>::clone(&join)), reset_key, ..EndpointOptions::default() };
    let folder = state.join("identity");
    let trust = Arc::new(Trust::new(Arc::clone(&keys.authority), Arc::clone(&keys.identity), folder));
    actix_rt::spawn(trust::keep_valid(Arc::clone(&trust)));
    let endpoint = Arc::new(Endpoint::bind_with(bind, keys.identity, endpoint)?);
    let door_path = cluster.controller_door();
    let mut door = Door::open(door_path.clone()).await?;
    cluster.note_conf();

    let names = Names::of_this_host().map_err(ControllerStartError::Thread)?;
    first_names(&names, &cluster.config, &log.value()).await;
    let process = Arc::new(ThisProcess {
        names: names.clone(),
        cluster: cluster.clone(),
        frontend: Arc::new(OnceLock::new()),
        accounts: Arc::new(OnceLock::new()),
        join: Arc::clone(&join),
        trust: Arc::clone(&trust),
        exit,
        started: Timestamp::now(),
        host: host_name(),
        address: endpoint.local_addr().to_string(),
        // Said when the file was read for this start.
        warned: Arc::new(Mutex::new(warnings(cluster))),
    });
    let ports = Ports {
        log: Arc::clone(&log) as _,
        signer: Arc::new(Signer::new(keys.signing)),
        users: Arc::new(names.clone()),
        host: Arc::clone(&process) as _,
        audit: Arc::new(audit),
        job_submit: Arc::new(SiteChecks::start(conf_folder(&cluster.config), &cluster.config)?),
        programs: Arc::new(Runner::here()),
    };
    let service = Accounting::of(cluster);
    let sink = completion_sink(&cluster.config)?;
    let accounts = own_accounts(cluster).await?;
    if let Some(accounts) = &accounts {
        let _ = process.accounts.set(Arc::clone(&accounts.settings));
    }
    let forgotten = tokio::time::timeout(LOG_PATIENCE, setup::forget(&*ports.log, options.recover)).await;
    let unanswered = |why: &dyn std::fmt::Display| Err(AppendError::Failed(why.to_string()));
    forgotten.map_or_else(|e| unanswered(&e), |answer| answer.unwrap_or_else(|e| unanswered(&e)))?;
    let jobs = ports.log.value().jobs().len();
    let random = || u32::try_from(garrick_model::ids::RequestId::random().0 >> 32).unwrap_or(0);
    let setup::Controller { frontend, epoch, env } = setup::start(system, Arc::clone(&cluster.config), ports, random);
    if let Some(entities) = super::accounting::last_entities(&state).filter(|_| cluster.config.accounting) {
        env.set_entities(Arc::new(entities));
    }
    happened.into_iter().for_each(|event| env.marks.note_event(event));
    let nodes = env.config().nodes.len();
    let _ = actors.set(Arc::clone(&env));
    nodes_are_known.send_replace(true);
    let _ = process.frontend.set(frontend.clone());
    let guests = Guests::of_this_process();
    let served = links::Served {
        env: Arc::clone(&env),
        names: names.clone(),
        trust,
        accounting: service.clone(),
        guests: guests.clone(),
    };
    actix_rt::spawn(links::serve(Arc::clone(&endpoint), frontend.clone(), served));
    let feed = AccountingFeed {
        cluster: cluster.config.cluster_name.clone(),
        state: state.clone(),
        log: Arc::clone(&log) as _,
        frontend: frontend.clone(),
        service: service.clone(),
        keeps: cluster.config.store_flags,
        env: Arc::clone(&env),
        fed: AtomicU64::default(),
        seen: Seen::default(),
    };
    let feed = feed.start(cluster.config.accounting);
    let completion = Completion {
        cluster: cluster.config.cluster_name.clone(),
        state: state.clone(),
        log: Arc::clone(&log) as _,
        tracked: cluster.config.tracked.clone(),
        sink,
    };
    let completion = completion.start();
    let world = DoorWorld {
        frontend: frontend.clone(),
        endpoint: Arc::clone(&endpoint),
        env: Arc::clone(&env),
        names,
        join,
        host: process.host.clone(),
        guests,
        accounting: service,
    };
    door.serve(world);
    let http = Http { env, frontend: frontend.clone() }.start(endpoint.local_addr());
    tracing::info!(
        cluster = cluster.config.cluster_name,
        epoch,
        jobs,
        nodes,
        address = %endpoint.local_addr(),
        door = %door_path.display(),
        "the controller serves"
    );
    Ok(move |tenure: Tenure| RunningController {
        process,
        _http: http,
        _completion: completion,
        _feed: feed,
        _accounts: accounts,
        _door: door,
        tenure,
        frontend,
    })
}
