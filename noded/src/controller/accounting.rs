//! The feed of the service of accounting: it follows the log under the name `accounting`, and acknowledges what the service has
//! stored. While the service is away nothing waits for it: the log keeps the events. On a thread of its own.

use super::links::tell;
use crate::{
    accounts::reach::{Accounting, ReachError, Reached},
    background::Background,
    log_identity,
};
use actix_rt::Arbiter;
use garrick_accounts::{
    messages::{Feed, Inventory, Kept, LogId},
    parts::{EntitiesPart, Gathered},
};
use garrick_actors::{
    controller::{frontend::messages::FrontendInput, messages::ControllerMsg, shells::env::Env},
    log::{ACCOUNTING, AppendError, Committed, FollowError, Follower, Log, answered},
};
use garrick_daemon::links::traced;
use garrick_events::{
    event::{ControllerEvent, Replayed},
    progress::Position,
    records::{job::JobRecord, job_event::JobEvent, request},
};
use garrick_frame::LinkKind;
use garrick_kernel::files::{self, FileError};
use garrick_model::{
    config::{EnforceWord, StoreFlags, TrackedTres},
    entities::Entities,
    hostlist,
    messages::encoded_bytes,
    spec::JobKind,
    time::Timestamp,
    trigger::TriggerEvent,
    view::NodeView,
};
use garrick_runtime::{Address, TraceContext};
use garrick_transport::{LinkError, Receiver, Sender};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until, timeout_at};

/// File in the state folder with the identity of the log, as the service is told it.
const IDENTITY: &str = "accounting.log-id";
/// File in the state folder with the last copy of accounts, users, associations and QOS.
const ENTITIES: &str = "accounting.entities";
/// Pauses between two tries to reach the service.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Events of one message, and bytes after which it takes no more: far below what a frame may have.
const EVENTS: usize = 1000;
const BYTES: usize = 1 << 20;
/// Further events of a batch are waited for so long.
const GATHER: Duration = Duration::from_millis(20);
/// The log is told so seldom what is stored, as that is written too.
const ACKNOWLEDGE: Duration = Duration::from_secs(5);
const ACKNOWLEDGED: u64 = 10_000;
/// How often it is looked whether the cluster has something else now.
const INVENTORY: Duration = Duration::from_secs(30);
/// How often it is looked whether too much waits for a service that is away.
const LOOK: Duration = Duration::from_secs(1);
/// A service that does not answer for so long is given up.
const PATIENCE: Duration = Duration::from_secs(120);

/// Why a connection to the service ended.
#[derive(Debug, thiserror::Error)]
enum FeedError {
    #[error("it cannot be reached: {0}")]
    Away(#[from] ReachError),
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error("it closed the connection")]
    Closed,
    #[error("it has not answered for {} s", PATIENCE.as_secs())]
    Silent,
    #[error("it refused: {0}")]
    Refused(String),
    #[error("its database: {0}")]
    NoDatabase(String),
    #[error("it answered what was not asked")]
    Unexpected,
    #[error(transparent)]
    Log(#[from] FollowError),
    #[error("the log: {0}")]
    Append(#[from] AppendError),
    #[error(transparent)]
    File(#[from] FileError),
    #[error("{0}")]
    State(String),
}

/// What the feed needs.
pub struct AccountingFeed {
    /// `ClusterName`.
    pub cluster: String,
    /// The state folder.
    pub state: PathBuf,
    /// The log.
    pub log: Arc<dyn Log>,
    /// It is told when a follower comes or goes.
    pub frontend: Address<ControllerMsg>,
    /// Where the service is.
    pub service: Accounting,
    /// `AccountingStoreFlags`.
    pub keeps: StoreFlags,
    /// It is given what the service says of accounts, users, associations and QOS.
    pub env: Arc<Env>,
    /// Up to where the service has said that it has stored.
    pub fed: AtomicU64,
    /// Whether the service answers, and its database serves it, as far as was seen.
    pub seen: Seen,
}

/// What was seen of the service last.
#[derive(Debug, Default)]
pub struct Seen(Mutex<Outlook>);

#[derive(Clone, Copy, Debug, Default)]
struct Outlook {
    /// It answers; `None`: it was not asked yet.
    answers: Option<bool>,
    /// It cannot use its database.
    no_database: bool,
}

impl Seen {
    /// It answered, or does not. Returns what triggers know of that: each change is one event (strigger(1)).
    fn note(&self, answers: bool, no_database: bool) -> Vec<TriggerEvent> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut events = Vec::new();
        if last.answers != Some(answers) {
            events.push(if answers { TriggerEvent::SlurmdbdResumed } else { TriggerEvent::SlurmdbdFailed });
        }
        // Of one that does not answer nothing is known about its database.
        let no_database = if answers { no_database } else { last.no_database };
        if last.no_database != no_database {
            events.push(if no_database { TriggerEvent::DatabaseFailed } else { TriggerEvent::DatabaseResumed });
        }
        *last = Outlook { answers: Some(answers), no_database };
        events
    }
}

/// The last copy of accounts, users, associations and QOS that came from the service: the controller works with it until a newer
/// one comes.
pub fn last_entities(state: &Path) -> Option<Entities> {
    let path = state.join(ENTITIES);
    let bytes = files::read_if_there(&path).unwrap_or_else(|error| {
        tracing::error!(%error, "the copy of accounts and limits cannot be read: there is none until the service comes");
        None
    })?;
    match rmp_serde::from_slice(&bytes) {
        Ok(entities) => Some(entities),
        Err(error) => {
            tracing::error!(file = %path.display(), %error, "the copy of accounts and limits is damaged");
            None
        }
    }
}

impl AccountingFeed {
    /// Feeds the service from now on, until what is returned is dropped; or, where the site wants no accounting (any more), nothing
    /// is kept for it.
    pub fn start(self, wanted: bool) -> Option<Background> {
        if !wanted && !self.log.followers().contains_key(ACCOUNTING) {
            return None;
        }
        let arbiter = Arbiter::new();
        arbiter.spawn(async move {
            if wanted {
                self.feed().await;
            } else if let Err(error) = self.unregister().await {
                tracing::error!(%error, "the log still keeps events for accounting");
            }
        });
        Some(Background::new("the feed of accounting", arbiter))
    }

    async fn unregister(&self) -> Result<(), FeedError> {
        if self.log.followers().contains_key(ACCOUNTING) {
            answered(|done| self.log.unregister(ACCOUNTING, done)).await?;
            site_changed(&self.frontend).await;
            self.env.set_accounting_away(None);
            tracing::info!("accounting is off: nothing is kept for it any more");
        }
        Ok(())
    }

    async fn feed(&self) {
        let mut pause = FIRST_PAUSE;
        self.env.set_accounting_away(Some(Timestamp::now()));
        loop {
            let (began, before) = (Instant::now(), self.fed.load(Ordering::Relaxed));
            match self.session().await {
                Ok(()) => return,
                Err(error) => {
                    self.env.set_accounting_away(Some(Timestamp::now()));
                    // One that stored something was there: it is looked for again at once.
                    if began.elapsed() > LONGEST_PAUSE || self.fed.load(Ordering::Relaxed) > before {
                        pause = FIRST_PAUSE;
                    }
                    let (queued, most) = (self.queued(), self.env.config().most_for_accounting());
                    tracing::warn!(%error, queued, most, "the service of accounting (slurmdbd) is not fed now");
                    self.note_failure(&error);
                    if matches!(error, FeedError::Refused(_) | FeedError::NoDatabase(_)) {
                        self.service.try_another();
                    }
                }
            }
            self.wait(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// What the site wants recorded now.
    fn keeps(&self) -> Keeps {
        let config = self.env.config();
        let without = |word| config.enforce.has(word);
        Keeps {
            work: self.keeps,
            jobs: !without(EnforceWord::NoJobs),
            steps: !without(EnforceWord::NoSteps),
            tracked: config.tracked.clone(),
        }
    }

    /// For triggers.
    fn note(&self, answers: bool, no_database: bool) {
        self.seen.note(answers, no_database).into_iter().for_each(|event| self.env.marks.note_event(event));
    }

    /// For triggers: a connection ended, or could not be made.
    fn note_failure(&self, error: &FeedError) {
        match error {
            FeedError::Away(_) | FeedError::Link(_) | FeedError::Closed | FeedError::Silent => self.note(false, false),
            FeedError::NoDatabase(_) => self.note(true, true),
            _ => {}
        }
    }

    /// Events that the service has not stored.
    fn queued(&self) -> u64 {
        let stored = self.stored().0.max(self.fed.load(Ordering::Relaxed));
        self.log.committed().0.saturating_sub(stored)
    }

    /// Waits while the service is away. Not more may wait for it than the site wants.
    async fn wait(&self, pause: Duration) {
        let until = Instant::now() + pause;
        loop {
            if let Err(error) = self.bound().await {
                tracing::error!(%error, "the queue for accounting is not shortened");
            }
            let now = Instant::now();
            if now >= until {
                return;
            }
            sleep_until(until.min(now + LOOK)).await;
        }
    }

    /// Gives up the oldest events that wait for the service where there are too many, or ends this process (slurm.conf(5),
    /// `MaxDBDMsgs` and `max_dbd_msg_action`).
    async fn bound(&self) -> Result<(), FeedError> {
        let config = self.env.config();
        let (queued, most) = (self.queued(), config.most_for_accounting());
        let Some(upto) = given_up(self.log.committed(), queued, most) else { return Ok(()) };
        self.env.marks.note_event(TriggerEvent::AccountingFull);
        if config.ends_when_accounting_is_full() {
            tracing::error!(
                queued,
                most,
                "too much waits for accounting (MaxDBDMsgs): the controller ends, as the site wants"
            );
            std::process::exit(1);
        }
        let lost = queued - self.log.committed().0.saturating_sub(upto.0);
        tracing::error!(
            queued,
            most,
            lost,
            "too much waits for accounting (MaxDBDMsgs): the oldest events are given up"
        );
        self.acknowledge(upto).await
    }

    /// Up to where the log knows that events are stored.
    fn stored(&self) -> Position {
        self.log.followers().get(ACCOUNTING).copied().unwrap_or_default()
    }

    /// The identity of the log. It is made with the registration: an earlier one may be of another log.
    async fn registered(&self) -> Result<LogId, FeedError> {
        let path = self.state.join(IDENTITY);
        if self.log.followers().contains_key(ACCOUNTING)
            && let Some(id) = log_identity::read(&path)?
        {
            return Ok(id);
        }
        let id = log_identity::make(&path)?;
        answered(|done| self.log.register(ACCOUNTING, done)).await?;
        site_changed(&self.frontend).await;
        Ok(id)
    }

    /// One connection, from its greeting on. It ends with an error.
    async fn session(&self) -> Result<(), FeedError> {
        let id = self.registered().await?;
        let (messages, replies) = match self.service.connect(LinkKind::ControllerAccounts).await? {
            Reached::Door(conn) => conn.split::<Feed, Kept>(),
            Reached::Far(mut connection) => connection.split::<Feed, Kept>(),
        };
        let inventory = self.inventory();
        let mut link = Link {
            messages,
            replies,
            stored: Position::default(),
            copy: Copy {
                parts: Gathered::default(),
                path: self.state.join(ENTITIES),
                env: Arc::clone(&self.env),
                frontend: self.frontend.clone(),
            },
            inventory: inventory.clone(),
        };
        let hello = Feed::Hello { cluster: self.cluster.clone(), log: id, inventory: Some(inventory) };
        link.messages.send(traced(hello)).await?;
        let Kept::Welcome { stored, whole } = link.answer().await? else { return Err(FeedError::Unexpected) };
        self.note(true, false);
        let whole = self.begin(&mut link, stored, whole).await?;
        self.fed.store(link.stored.0, Ordering::Relaxed);
        self.env.set_accounting_away(None);
        tracing::info!(stored = link.stored.0, "the service of accounting is fed");
        let mut follower = self.log.subscribe(link.stored.next())?;
        if !whole {
            self.snapshot(&mut link, &mut follower).await?;
        }
        self.go_on(link, follower).await
    }

    /// Agrees with the service on where to go on. False: it needs a snapshot too.
    async fn begin(&self, link: &mut Link, stored: Option<Position>, whole: bool) -> Result<bool, FeedError> {
        let (oldest, last) = (self.log.oldest(), self.log.committed());
        let (begin, whole) = match stored {
            Some(at) if at <= last && at.next() >= oldest => {
                link.stored = at;
                return Ok(whole);
            }
            // What it has of this log is not there any more: an older copy of the log was restored.
            Some(at) if at > last => (last, false),
            // An older copy of the database was restored, or a new one: what is kept follows.
            Some(_) | None => (self.stored(), false),
        };
        link.messages.send(traced(Feed::Begin(begin))).await?;
        link.stored(begin).await?;
        Ok(whole)
    }

    /// Sends events for ever.
    async fn go_on(&self, mut link: Link, mut follower: Follower) -> Result<(), FeedError> {
        let mut acknowledged = (Instant::now(), self.stored());
        let mut looks = interval(INVENTORY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let behind = acknowledged.1 < link.stored;
            // Only what may be dropped while it waits: a batch that has begun is sent.
            let first = tokio::select! {
                first = follower.next() => first?,
                () = sleep(ACKNOWLEDGE), if behind => {
                    self.acknowledge(link.stored).await?;
                    acknowledged = (Instant::now(), link.stored);
                    continue;
                }
                _ = looks.tick() => {
                    link.tell_inventory(self.inventory()).await?;
                    continue;
                }
                said = link.replies.recv() => match said?.map(|said| said.msg) {
                    Some(Kept::Entities(part)) => {
                        link.copy.take(&part).await?;
                        continue;
                    }
                    // On a snapshot's last part, which is not answered by itself.
                    Some(Kept::Working) => continue,
                    Some(Kept::Refused(why)) => return Err(FeedError::Refused(why)),
                    Some(Kept::NoDatabase(why)) => return Err(FeedError::NoDatabase(why)),
                    Some(_) => return Err(FeedError::Unexpected),
                    None => return Err(FeedError::Closed),
                },
            };
            let batch = self.gather(&first, &mut follower).await?;
            link.send(batch).await?;
            self.fed.store(link.stored.0, Ordering::Relaxed);
            let (when, last) = acknowledged;
            if when.elapsed() >= ACKNOWLEDGE || link.stored.0.saturating_sub(last.0) >= ACKNOWLEDGED {
                self.acknowledge(link.stored).await?;
                acknowledged = (Instant::now(), link.stored);
            }
        }
    }

    /// What the cluster has now.
    fn inventory(&self) -> Inventory {
        let (nodes, config) = (self.env.boards.nodes.list(), self.env.config());
        let mut tres: BTreeMap<String, u64> = BTreeMap::new();
        let licenses = config.licenses.0.iter().map(|one| (format!("license/{}", one.name), u64::from(one.count)));
        let amounts = nodes.iter().flat_map(|node| node.shape.amounts()).chain(licenses);
        for (name, count) in amounts.filter(|(name, _)| config.tracked.counts(name)) {
            *tres.entry(name).or_default() += count;
        }
        // What is named may be limited also while there is none.
        for name in config.tracked.names() {
            tres.entry(name.to_owned()).or_default();
        }
        let names: Vec<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
        let control = config.controllers.first().map(|host| (host.target().to_owned(), config.slurmctld_port.first));
        Inventory { control, nodes: hostlist::fold_sorted(names), tres }
    }

    /// Adds to a batch what its nodes have now. One that is not there any more has nothing.
    fn describe_nodes(&self, batch: &mut Batch) {
        let name = |event: &ControllerEvent| match event {
            ControllerEvent::Node { node, .. } => Some(node.clone()),
            _ => None,
        };
        let named: BTreeSet<String> = batch.events.iter().filter_map(name).collect();
        if named.is_empty() {
            return;
        }
        let nodes = self.env.boards.nodes.list();
        let config = self.env.config();
        let amounts = |node: &NodeView| node.shape.amounts().filter(|(name, _)| config.tracked.counts(name)).collect();
        let of = nodes.iter().filter(|node| named.contains(&node.name));
        batch.nodes = of.map(|node| (node.name.clone(), amounts(node))).collect();
    }

    async fn acknowledge(&self, stored: Position) -> Result<(), FeedError> {
        answered(|done| self.log.acknowledge(ACCOUNTING, stored, done)).await?;
        Ok(())
    }

    /// An event, and those that come soon after it.
    async fn gather(&self, first: &Committed, follower: &mut Follower) -> Result<Batch, FollowError> {
        let mut batch = Batch::default();
        let (mut config, mut keeps) = (self.env.config(), self.keeps());
        batch.take(first, &keeps);
        let deadline = Instant::now() + GATHER;
        while batch.seen < EVENTS && batch.bytes < BYTES {
            let Ok(next) = timeout_at(deadline, follower.next()).await else { break };
            // What happens after the settings were read again is kept as they say, also in a batch that was begun before.
            let now = self.env.config();
            if !Arc::ptr_eq(&now, &config) {
                (config, keeps) = (now, self.keeps());
            }
            batch.take(&next?, &keeps);
        }
        self.describe_nodes(&mut batch);
        Ok(batch)
    }

    /// Events up to now, and then all jobs as they are: so both are of one position.
    async fn snapshot(&self, link: &mut Link, follower: &mut Follower) -> Result<(), FeedError> {
        let state = self.log.value().copy().map_err(|e| FeedError::State(e.to_string()))?;
        let (position, keeps) = (state.progress.position, self.keeps());
        while link.stored < position {
            let mut batch = Batch::default();
            while batch.upto < position && batch.seen < EVENTS && batch.bytes < BYTES {
                batch.take(&follower.next().await?, &keeps);
            }
            self.describe_nodes(&mut batch);
            link.send(batch).await?;
        }
        let reservations = Some(state.reservations.keys().cloned().collect());
        let events = nodes_and_reservations(&state);
        let mut batch = Batch { upto: position, events, reservations, ..Batch::default() };
        self.describe_nodes(&mut batch);
        link.send(batch).await?;
        let (mut jobs, mut bytes): (Vec<JobRecord>, usize) = (Vec::new(), 0);
        for (_, record) in state.jobs.iter().filter(|_| keeps.jobs) {
            let record = kept(record, &keeps);
            bytes += encoded_bytes(&record);
            jobs.push(record);
            if bytes >= BYTES {
                let jobs = std::mem::take(&mut jobs);
                bytes = 0;
                link.post(Feed::Snapshot { position, jobs, last: false }).await?;
            }
        }
        link.post(Feed::Snapshot { position, jobs, last: true }).await?;
        link.stored(position).await
    }
}

/// The states of nodes that are or were out of service, and of reservations: to say again what is stored changes nothing, and what was
/// not heard of the end of an outage is made up for.
fn nodes_and_reservations(state: &Replayed) -> Vec<ControllerEvent> {
    let out = state.nodes.iter().filter(|(_, saved)| saved.service.is_some());
    let nodes = out.map(|(node, saved)| ControllerEvent::Node { node: node.clone(), saved: Box::new(saved.clone()) });
    let reservations = state.reservations.iter().map(|(name, saved)| ControllerEvent::Reservation {
        reservation: name.clone(),
        saved: Some(Box::new(saved.clone())),
        at: None,
    });
    nodes.chain(reservations).collect()
}

/// Up to where events are given up when so many are `queued` behind the last one: as many are left that it takes a while until there
/// are too many again.
fn given_up(last: Position, queued: u64, most: u64) -> Option<Position> {
    (queued > most).then(|| Position(last.0.saturating_sub(most - most / 8)))
}

/// Jobs hear what they are told of their site.
async fn site_changed(frontend: &Address<ControllerMsg>) {
    tell(frontend, TraceContext::root(), ControllerMsg::Input(FrontendInput::SiteChanged)).await;
}

/// A connection.
struct Link {
    messages: Sender<Feed>,
    replies: Receiver<Kept>,
    /// Up to where the service has stored.
    stored: Position,
    copy: Copy,
    /// What the service was told last.
    inventory: Inventory,
}

/// Takes what the service says of accounts, users, associations and QOS.
struct Copy {
    parts: Gathered,
    path: PathBuf,
    env: Arc<Env>,
    frontend: Address<ControllerMsg>,
}

impl Copy {
    /// A part. After the last one the controller works with it; the file is for its next start.
    async fn take(&mut self, part: &EntitiesPart) -> Result<(), FeedError> {
        let Some(entities) = self.parts.add(part).map_err(|e| FeedError::State(e.to_string()))? else { return Ok(()) };
        let bytes = rmp_serde::to_vec_named(&entities).map_err(|e| FeedError::State(e.to_string()))?;
        files::replace_for_good(&self.path, &bytes, 0o600)?;
        tracing::info!(version = entities.version, associations = entities.associations.len(), "accounts and limits");
        self.env.set_entities(Arc::new(entities));
        site_changed(&self.frontend).await;
        Ok(())
    }
}

impl Link {
    async fn answer(&mut self) -> Result<Kept, FeedError> {
        let mut deadline = Instant::now() + PATIENCE;
        loop {
            let answer = timeout_at(deadline, self.replies.recv()).await;
            match answer.map_err(|_| FeedError::Silent)??.map(|said| said.msg) {
                Some(Kept::Refused(why)) => return Err(FeedError::Refused(why)),
                Some(Kept::NoDatabase(why)) => return Err(FeedError::NoDatabase(why)),
                Some(Kept::Entities(part)) => self.copy.take(&part).await?,
                Some(Kept::Working) => deadline = Instant::now() + PATIENCE,
                Some(kept) => return Ok(kept),
                None => return Err(FeedError::Closed),
            }
        }
    }

    /// Sends a message, and meanwhile takes entities: both ends may have more to send than fits on the way.
    async fn post(&mut self, message: Feed) -> Result<(), FeedError> {
        let Self { messages, replies, copy, .. } = self;
        let sending = messages.send(traced(message));
        tokio::pin!(sending);
        loop {
            tokio::select! {
                sent = &mut sending => return Ok(sent?),
                said = replies.recv() => match said?.map(|said| said.msg) {
                    Some(Kept::Entities(part)) => copy.take(&part).await?,
                    Some(Kept::Working) => {}
                    Some(Kept::Refused(why)) => return Err(FeedError::Refused(why)),
                    Some(Kept::NoDatabase(why)) => return Err(FeedError::NoDatabase(why)),
                    Some(_) => return Err(FeedError::Unexpected),
                    None => return Err(FeedError::Closed),
                },
            }
        }
    }

    /// Tells the service what the cluster has, if that is something else now.
    async fn tell_inventory(&mut self, now: Inventory) -> Result<(), FeedError> {
        if now != self.inventory {
            self.messages.send(traced(Feed::Inventory(now.clone()))).await?;
            self.inventory = now;
        }
        Ok(())
    }

    /// It has stored what it was sent, up to that position.
    async fn stored(&mut self, upto: Position) -> Result<(), FeedError> {
        match self.answer().await? {
            Kept::Stored(at) if at == upto => {
                self.stored = at;
                Ok(())
            }
            _ => Err(FeedError::Unexpected),
        }
    }

    async fn send(&mut self, batch: Batch) -> Result<(), FeedError> {
        let Batch { upto, events, nodes, no_new_jobs, reservations, .. } = batch;
        let after = self.stored;
        self.messages.send(traced(Feed::Batch { after, upto, events, nodes, no_new_jobs, reservations })).await?;
        self.stored(upto).await
    }
}

/// What is recorded.
struct Keeps {
    /// `AccountingStorageTRES`.
    tracked: TrackedTres,
    /// `AccountingStoreFlags`.
    work: StoreFlags,
    /// Without `nojobs` in `AccountingStorageEnforce`.
    jobs: bool,
    /// Without `nosteps`.
    steps: bool,
}

/// Events that go together.
#[derive(Default)]
struct Batch {
    upto: Position,
    events: Vec<ControllerEvent>,
    /// What nodes have that events are about.
    nodes: BTreeMap<String, BTreeMap<String, u64>>,
    /// Jobs that are not recorded yet are not (`nojobs`).
    no_new_jobs: bool,
    /// All that there are, after a gap.
    reservations: Option<Vec<String>>,
    seen: usize,
    bytes: usize,
}

impl Batch {
    fn take(&mut self, committed: &Committed, keeps: &Keeps) {
        self.upto = committed.position;
        self.seen += 1;
        // Jobs that were submitted before in this batch are recorded.
        self.no_new_jobs |= !keeps.jobs && self.seen == 1;
        if let Some(event) = wanted(&committed.event, keeps) {
            self.bytes += encoded_bytes(&event);
            self.events.push(event);
        }
    }
}

/// What accounting needs of an event: those of jobs, of scripts and environments what the site wants kept, results of steps, and states
/// of nodes and reservations.
fn wanted(event: &ControllerEvent, keeps: &Keeps) -> Option<ControllerEvent> {
    match event {
        ControllerEvent::Job { job, event } => {
            let event = match &**event {
                // What becomes of jobs that are recorded already is wanted all the same: their ends.
                JobEvent::Submitted(_) | JobEvent::SubmittedLike { .. } if !keeps.jobs => return None,
                JobEvent::Submitted(record) => JobEvent::Submitted(Box::new(kept(record, keeps))),
                JobEvent::SubmittedLike { record, like } => {
                    let mut record = record.clone();
                    record.count_only(&keeps.tracked);
                    JobEvent::SubmittedLike { record, like: *like }
                }
                JobEvent::Allocated(run) => {
                    let mut run = run.clone();
                    request::allocation_counts_only(&mut run.allocation, &keeps.tracked);
                    JobEvent::Allocated(run)
                }
                JobEvent::Revised(revision) => {
                    let mut revision = revision.clone();
                    revision.spec.gres.count_only(|name, kind| keeps.tracked.counts_type(name, kind));
                    JobEvent::Revised(revision)
                }
                event => event.clone(),
            };
            Some(ControllerEvent::Job { job: *job, event: Box::new(event) })
        }
        ControllerEvent::Node { .. } | ControllerEvent::Reservation { .. } => Some(event.clone()),
        ControllerEvent::Steps { .. } if keeps.steps => Some(event.clone()),
        _ => None,
    }
}

/// A job with what is kept of it.
fn kept(record: &JobRecord, keeps: &Keeps) -> JobRecord {
    let mut kept = kept_work(record, keeps.work);
    kept.count_only(&keeps.tracked);
    kept
}

/// A job with that of its script and environment which is kept. Only batch jobs have such (slurm.conf(5), `AccountingStoreFlags`).
/// Tasks of an array have those of the array.
fn kept_work(record: &JobRecord, keeps: StoreFlags) -> JobRecord {
    let mut kept = record.without_work();
    if record.spec.kind == JobKind::Batch && record.array_task.is_none() {
        let spec = Arc::make_mut(&mut kept.spec);
        if keeps.script {
            spec.script.clone_from(&record.spec.script);
        }
        if keeps.environment {
            spec.environment = Arc::clone(&record.spec.environment);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_of_the_service_is_told_once() {
        use TriggerEvent::{DatabaseFailed, DatabaseResumed, SlurmdbdFailed, SlurmdbdResumed};
        let seen = Seen::default();
        assert_eq!(seen.note(false, false), [SlurmdbdFailed]);
        assert_eq!(seen.note(false, false), []);
        assert_eq!(seen.note(true, true), [SlurmdbdResumed, DatabaseFailed]);
        assert_eq!(seen.note(false, false), [SlurmdbdFailed]);
        assert_eq!(seen.note(true, false), [SlurmdbdResumed, DatabaseResumed]);
        assert_eq!(seen.note(true, false), []);
    }

    #[test]
    fn what_waits_for_accounting_is_bounded() {
        let last = Position(100_000);
        assert_eq!(given_up(last, 10_000, 10_000), None);
        assert_eq!(given_up(last, 10_001, 10_000), Some(Position(91_250)), "8,750 still wait");
        assert_eq!(given_up(Position(10_001), 10_001, 10_000), Some(Position(1_251)));
    }
}
