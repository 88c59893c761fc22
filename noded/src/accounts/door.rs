//! Conversations at the door of the service. Who asks is known from the kernel, or from a daemon that speaks for him.

use super::{live::LiveSettings, records::Clockwork};
use crate::guests::Guests;
use garrick_accountant::{
    pages::{Cursor, Page, Question},
    store::{Batch, Followed, Store, StoreError},
    texts::{Text, Told},
    usage::{Part, Summed, UsageError},
};
use garrick_accounts::{
    change::{Actor, Change},
    filter::{JobFilter, Owner},
    messages::{
        AccountsRefusal, AccountsReply, AccountsRequest, Feed, Inventory, Kept, PageEnd, PassedOn, ServiceOrder,
    },
    parts,
    usage::{UsageKey, UsageQuestion},
    visible,
};
use garrick_daemon::links::{caller_of, traced};
use garrick_frame::LinkKind;
use garrick_kernel::users::{self, UserError};
use garrick_model::{
    config::{PrivateKind, slurmdbd::DbdConfig, storage::Storage},
    doors,
    entities::{Entities, names::AdminLevel},
    ids::Sluid,
    messages::{command::Caller, encoded_bytes},
    time::{TimeLimit, Timestamp},
};
use garrick_transport::{DoorConn, DoorListener, LinkError, Receiver, Sender};
use serde::Serialize;
use serde_bytes::ByteBuf;
use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit},
    time::{interval_at, timeout},
};

/// Questions of one user that are being answered at a time: half of all.
pub(super) const ANSWERED_OF_USER: usize = 2;
/// Conversations of one user at a time: each remembers half a MiB of its last answer.
pub(super) const CONVERSING_OF_USER: usize = 32;
/// Bytes of a change by somebody who is no operator.
const MOST_OF_OTHERS: usize = 64 << 10;
/// A conversation without a question for so long ends.
const IDLE: Duration = Duration::from_secs(600);
/// Who waits for an answer is told so often that it is worked on: far more often than he gives up.
const STILL_WORKING: Duration = Duration::from_secs(30);

/// What the conversations share.
#[derive(Clone)]
pub struct World {
    /// The database.
    pub store: Arc<Store>,
    /// Settings, as of the beginning of a conversation.
    pub settings: Arc<DbdConfig>,
    /// Settings, as of now.
    pub live: Arc<LiveSettings>,
    /// Root, `SlurmUser` and the service's own user: they feed it, speak for others, and see everything.
    pub believed: Arc<[u32]>,
    /// This host.
    pub host: Arc<str>,
    /// It is that of `DbdBackupHost`.
    pub is_backup: bool,
    /// Commands that are connected.
    pub guests: Guests,
    /// For questions that are being answered.
    pub turns: Arc<Semaphore>,
    /// Those of each user who is being answered.
    pub answering: OfUsers,
    /// Conversations of each user.
    pub conversing: OfUsers,
    /// How long questions took.
    pub clockwork: Arc<Clockwork>,
    /// Controllers that are connected.
    pub controllers: Arc<Controllers>,
}

/// So many of each user at a time; the next ones wait in the order in which they came.
#[derive(Clone, Debug)]
pub struct OfUsers {
    most: usize,
    there: Arc<Mutex<HashMap<u32, Arc<Semaphore>>>>,
}

impl OfUsers {
    /// So many of each.
    pub fn with_most(most: usize) -> Self {
        Self { most, there: Arc::default() }
    }

    /// A user's.
    pub(super) fn of(&self, uid: u32) -> Arc<Semaphore> {
        let mut there = self.there.lock().unwrap_or_else(PoisonError::into_inner);
        // Nobody waits or is served where only this table has it.
        there.retain(|_, places| Arc::strong_count(places) > 1);
        Arc::clone(there.entry(uid).or_insert_with(|| Arc::new(Semaphore::new(self.most))))
    }
}

/// Controllers that are connected.
#[derive(Default)]
pub struct Controllers {
    /// Connections of each cluster.
    there: Mutex<HashMap<String, usize>>,
    /// Clusters whose last one has ended, until that is recorded.
    gone: Mutex<Vec<Followed>>,
}

impl Controllers {
    fn has(&self, cluster: &str) -> bool {
        self.there.lock().unwrap_or_else(PoisonError::into_inner).contains_key(cluster)
    }
}

/// A connection of a controller, which counts as long as this is there.
struct Present {
    of: Followed,
    among: Arc<Controllers>,
}

impl Present {
    fn new(of: Followed, among: Arc<Controllers>) -> Self {
        *among.there.lock().unwrap_or_else(PoisonError::into_inner).entry(of.cluster.clone()).or_default() += 1;
        Self { of, among }
    }
}

impl Drop for Present {
    fn drop(&mut self) {
        let mut there = self.among.there.lock().unwrap_or_else(PoisonError::into_inner);
        let left = there.get(&self.of.cluster).map_or(0, |count| count.saturating_sub(1));
        if left > 0 {
            there.insert(self.of.cluster.clone(), left);
        } else {
            there.remove(&self.of.cluster);
            self.among.gone.lock().unwrap_or_else(PoisonError::into_inner).push(self.of.clone());
        }
    }
}

/// Who asks.
#[derive(Debug)]
pub(super) struct Asker {
    pub caller: Caller,
    /// His name: rights go by it.
    name: String,
    /// A host vouches for him that is trusted with ordinary users only.
    ordinary: bool,
    /// Where this host does not know his number: the cluster that he asks from, and his name there.
    elsewhere: Option<(String, Option<String>)>,
}

impl Asker {
    /// One of a host whose users are those of this one.
    ///
    /// # Errors
    /// The name service does not say who he is.
    async fn here(caller: Caller, ordinary: bool) -> Result<Self, UserError> {
        let name = name_of(caller.uid).await?.unwrap_or_else(|| caller.uid.to_string());
        Ok(Self { caller, name, ordinary, elsewhere: None })
    }

    /// Whose rows are his.
    pub(super) fn owner(&self) -> Owner {
        Owner { elsewhere: self.elsewhere.clone(), ..Owner::known(self.caller.uid) }
    }
}

/// The name of a number on this host; `None`: nobody has it. The name service may take its time, and others do not wait for it.
async fn name_of(uid: u32) -> Result<Option<String>, UserError> {
    let found = tokio::task::spawn_blocking(move || users::by_uid(uid)).await;
    let failed = |cause| UserError::Lookup { what: format!("user {uid}"), cause };
    match found.map_err(|error| failed(std::io::Error::other(error)))? {
        Ok(account) => Ok(Some(account.name)),
        Err(UserError::UnknownUid(_) | UserError::UnknownName(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// For whom a controller of another host speaks. A number has to be the same user's here: rights, and what is whose, go by it.
///
/// # Errors
/// The name service does not say whose number it is here.
pub(super) async fn asker_of(passed: PassedOn, cluster: &str) -> Result<Asker, UserError> {
    let PassedOn { caller, user: there, ordinary } = passed;
    Ok(match (name_of(caller.uid).await?, there) {
        (Some(here), Some(there)) if here != there => {
            tracing::warn!(
                cluster,
                uid = caller.uid,
                here,
                there,
                "a number is of another user there: he counts as nobody"
            );
            let (caller, name) = (caller.as_nobody(), "nobody".to_owned());
            Asker { caller, name, ordinary: true, elsewhere: None }
        }
        (Some(name), _) => Asker { caller, name, ordinary, elsewhere: None },
        (None, there) => {
            let name = there.clone().unwrap_or_else(|| caller.uid.to_string());
            Asker { caller, name, ordinary, elsewhere: Some((cluster.to_owned(), there)) }
        }
    })
}

/// What is said where the name service fails: nobody is taken for somebody else, or for nobody.
pub(super) fn not_known(error: &UserError) -> AccountsReply {
    tracing::error!(%error, "it is not known who asks");
    AccountsReply::Refused(AccountsRefusal::Failed(format!("{error}: try again")))
}

/// What is kept of the last answers of a conversation, for their next parts.
#[derive(Default)]
struct Cursors {
    jobs: Cursor,
    usage: Summed,
}

/// Who feeds.
#[derive(Default)]
pub(super) struct Feeder {
    /// The one cluster whose controller it is; `None`: the kernel vouches for it.
    pub cluster: Option<String>,
    /// Its host, as this one sees it.
    pub address: Option<IpAddr>,
    /// Its uid, for the statistics; that of root where it came over the network.
    pub uid: u32,
}

impl Feeder {
    /// Where controllers are is seen here.
    fn seen(&self, mut inventory: Inventory) -> Inventory {
        if let (Some(address), Some((host, _))) = (self.address, &mut inventory.control) {
            *host = address.to_string();
        }
        inventory
    }
}

/// Serves until the door breaks.
pub async fn serve(mut listener: DoorListener, world: World) {
    loop {
        match listener.accept().await {
            Ok(conn) => {
                let world = world.of_now();
                actix_rt::spawn(async move { world.converse(conn).await });
            }
            Err(e) => {
                tracing::error!(error = %e, "the door of accounting is broken");
                return;
            }
        }
    }
}

impl World {
    /// For a conversation that begins now.
    pub(super) fn of_now(&self) -> Self {
        Self { settings: self.live.now(), ..self.clone() }
    }

    async fn converse(&self, conn: DoorConn) {
        match conn.hello.link {
            LinkKind::ControllerAccounts if self.is_believed(conn.peer.uid) => {
                let uid = conn.peer.uid;
                let (replies, messages) = conn.split::<Kept, Feed>();
                self.be_fed(replies, messages, Feeder { uid, ..Feeder::default() }).await;
            }
            LinkKind::ControllerAccounts => {
                tracing::warn!(uid = conn.peer.uid, pid = conn.peer.pid, "somebody posed as a controller");
                conn.refuse("only the cluster's controller feeds accounting");
            }
            LinkKind::CommandToAccounts => {
                // Daemons speak for many users, whom they have counted.
                let believed = self.is_believed(conn.peer.uid);
                let guest = self.guests.enter(conn.peer.uid);
                if guest.is_none() && !believed {
                    return conn.refuse(doors::TOO_MANY);
                }
                let caller = caller_of(&conn, &self.host);
                let asker = match Asker::here(caller, false).await {
                    Ok(asker) => asker,
                    Err(error) => return conn.refuse(&format!("{error}: try again")),
                };
                let (replies, requests) = conn.split::<AccountsReply, AccountsRequest>();
                if believed {
                    return self.answer_all(replies, requests, asker, true).await;
                }
                // Others of his wait, in the order in which they came, and nobody else waits for them.
                let place = self.conversing.of(asker.caller.uid).acquire_owned();
                let _place = working(&replies, || AccountsReply::Working, STILL_WORKING, place).await;
                self.answer_all(replies, requests, asker, false).await;
            }
            other => conn.refuse(&format!("the door of accounting does not serve {other:?}")),
        }
    }

    fn is_believed(&self, uid: u32) -> bool {
        self.believed.contains(&uid)
    }

    /// A controller's feed, until it ends.
    pub(super) async fn be_fed(&self, replies: Sender<Kept>, mut messages: Receiver<Feed>, feeder: Feeder) {
        let mut followed: Option<Present> = None;
        let mut entities = self.store.watch_entities();
        let mut follows = false;
        loop {
            // Both can be dropped while they wait.
            let message = tokio::select! {
                message = messages.recv() => message,
                Ok(()) = entities.changed(), if follows => {
                    let Some(Present { of, .. }) = &followed else { continue };
                    let now = Arc::clone(&entities.borrow_and_update());
                    if self.send_entities(&replies, &now, &of.cluster).await.is_err() {
                        break;
                    }
                    continue;
                }
            };
            let message = match message {
                Ok(Some(message)) => message.msg,
                Ok(None) => break,
                Err(e) => {
                    tracing::warn!(error = %e, "what a controller sends is not understood");
                    break;
                }
            };
            if matches!(message, Feed::Hello { inventory: Some(_), .. }) {
                follows = true;
                entities.mark_changed();
            }
            let begun = Instant::now();
            let kept = working(
                &replies,
                || Kept::Working,
                STILL_WORKING,
                Box::pin(self.keep(&mut followed, message, &feeder)),
            )
            .await;
            self.clockwork.note("Feed", feeder.uid, begun);
            let reply = match kept {
                Ok(None) => continue,
                Ok(Some(reply)) => reply,
                Err(e) => {
                    tracing::error!(error = %e, "accounting does not keep what a controller sends");
                    if e.is_of_database() { Kept::NoDatabase(e.to_string()) } else { Kept::Refused(e.to_string()) }
                }
            };
            let ends = matches!(reply, Kept::Refused(_) | Kept::NoDatabase(_));
            if replies.send(traced(reply)).await.is_err() || ends {
                break;
            }
        }
        if let Some(present) = followed {
            tracing::info!(cluster = present.of.cluster, "a controller is gone");
            drop(present);
            self.note_gone().await;
        }
    }

    /// Records that clusters without a connection are away (`TrackSlurmctldDown`).
    pub(super) async fn note_gone(&self) {
        let gone = std::mem::take(&mut *self.controllers.gone.lock().unwrap_or_else(PoisonError::into_inner));
        for of in gone {
            // Its controller may have come again.
            if self.live.now().track_down
                && !self.controllers.has(&of.cluster)
                && let Err(error) = self.store.note_gone(&of, Timestamp::now()).await
            {
                tracing::error!(%error, cluster = of.cluster, "it is not recorded that a controller is away");
            }
        }
    }

    /// Sends a controller what it has to know.
    async fn send_entities(&self, replies: &Sender<Kept>, entities: &Entities, cluster: &str) -> Result<(), LinkError> {
        let parts = match parts::parts(&entities.of_cluster(cluster)) {
            Ok(parts) => parts,
            Err(error) => {
                tracing::error!(%error, cluster, "accounts and limits cannot be sent to a controller");
                return Ok(());
            }
        };
        for part in parts {
            replies.send(traced(Kept::Entities(part))).await?;
        }
        Ok(())
    }

    async fn keep(
        &self,
        followed: &mut Option<Present>,
        message: Feed,
        feeder: &Feeder,
    ) -> Result<Option<Kept>, StoreError> {
        let unnamed = || Ok(Some(Kept::Refused("a controller says first who it is".to_owned())));
        match message {
            Feed::Hello { cluster, .. } if feeder.cluster.as_ref().is_some_and(|own| *own != cluster) => {
                tracing::warn!(cluster, feeder = feeder.cluster, "a controller says that it is of another cluster");
                Ok(Some(Kept::Refused(format!("this controller is not enrolled as that of cluster {cluster}"))))
            }
            Feed::Hello { cluster, log, inventory } => {
                let inventory = inventory.map(|inventory| feeder.seen(inventory));
                if let Some(inventory) = &inventory {
                    self.store.register(&cluster, inventory).await?;
                }
                let (of, stored) = self.store.follow(&cluster, log).await?;
                // It counts before it is noted: who goes now is not the last one.
                let Present { of, .. } = followed.insert(Present::new(of, Arc::clone(&self.controllers)));
                self.store.note_back(of, Timestamp::now()).await?;
                if let Some(inventory) = &inventory {
                    self.store.note_inventory(of, inventory, Timestamp::now()).await?;
                }
                let (stored, whole) = stored.map_or((None, false), |(at, whole)| (Some(at), whole));
                tracing::info!(cluster, stored = stored.map(|at| at.0), whole, "a controller has come");
                Ok(Some(Kept::Welcome { stored, whole }))
            }
            Feed::Inventory(inventory) => {
                let Some(Present { of, .. }) = followed else { return unnamed() };
                let inventory = feeder.seen(inventory);
                self.store.register(&of.cluster, &inventory).await?;
                self.store.note_inventory(of, &inventory, Timestamp::now()).await?;
                Ok(None)
            }
            Feed::Begin(position) => {
                let Some(Present { of, .. }) = followed else { return unnamed() };
                self.store.begin(of, position).await?;
                Ok(Some(Kept::Stored(position)))
            }
            Feed::Snapshot { position, jobs, last } => {
                let Some(Present { of, .. }) = followed else { return unnamed() };
                self.store.snapshot(of, position, &jobs, last).await?;
                Ok(last.then_some(Kept::Stored(position)))
            }
            Feed::Batch { after, upto, events, nodes, no_new_jobs, reservations } => {
                let Some(Present { of, .. }) = followed else { return unnamed() };
                self.store.keep(of, after, upto, Batch { events, nodes, no_new_jobs, reservations }).await?;
                Ok(Some(Kept::Stored(upto)))
            }
        }
    }

    /// Questions of a command, one after the other.
    pub(super) async fn answer_all(
        &self,
        replies: Sender<AccountsReply>,
        mut requests: Receiver<AccountsRequest>,
        mut caller: Asker,
        mut may_speak_for_others: bool,
    ) {
        let mut cursor = Cursors::default();
        while let Ok(Ok(Some(request))) = timeout(IDLE, requests.recv()).await {
            let (kind, begun) = (request.msg.kind(), Instant::now());
            if needs_database(&request.msg)
                && let Err(error) = self.store.ready().await
            {
                may_speak_for_others = false;
                if replies.send(traced(failed(error))).await.is_err() {
                    break;
                }
                continue;
            }
            let is_ordinary = matches!(request.msg, AccountsRequest::OnBehalfOfOrdinary(_));
            let ends = matches!(request.msg, AccountsRequest::Order(ServiceOrder::Shutdown));
            self.audit(kind, &caller);
            let reply = match request.msg {
                AccountsRequest::OnBehalfOf(other) | AccountsRequest::OnBehalfOfOrdinary(other)
                    if may_speak_for_others =>
                {
                    may_speak_for_others = false;
                    match Asker::here(other, is_ordinary).await {
                        Ok(asker) => caller = asker,
                        // Otherwise what follows would be asked in the name of who speaks for him.
                        Err(error) => {
                            let _ = replies.send(traced(not_known(&error))).await;
                            break;
                        }
                    }
                    continue;
                }
                AccountsRequest::OnBehalfOf(_) | AccountsRequest::OnBehalfOfOrdinary(_) => {
                    AccountsReply::Refused(AccountsRefusal::Denied)
                }
                AccountsRequest::Entities => {
                    may_speak_for_others = false;
                    if self.tell_entities(&replies, &caller).await.is_err() {
                        break;
                    }
                    self.clockwork.note(kind, caller.caller.uid, begun);
                    continue;
                }
                request => {
                    let answer = Box::pin(self.answer(request, &caller, &mut cursor));
                    working(&replies, || AccountsReply::Working, STILL_WORKING, answer).await
                }
            };
            self.clockwork.note(kind, caller.caller.uid, begun);
            may_speak_for_others = false;
            let ends = ends && matches!(reply, AccountsReply::Done);
            let heard = replies.send(traced(reply)).await;
            if ends {
                let ended = async { while let Ok(Some(_)) = requests.recv().await {} };
                return Self::end_when(ended).await;
            }
            if heard.is_err() {
                break;
            }
        }
    }

    /// `DebugFlags=AuditRPCs`: logs what is asked, and by whom.
    fn audit(&self, kind: &str, asker: &Asker) {
        if self.settings.audit {
            let Caller { uid, host, .. } = &asker.caller;
            tracing::info!(request = kind, user = asker.name, uid, host, "audit");
        }
    }

    async fn answer(&self, request: AccountsRequest, caller: &Asker, cursor: &mut Cursors) -> AccountsReply {
        use AccountsRequest::{Config, Entities, OnBehalfOf, OnBehalfOfOrdinary, Order, Ping, Records, Statistics};
        let turn = match request {
            Ping | Config | Statistics | Order(_) | OnBehalfOf(_) | OnBehalfOfOrdinary(_) => None,
            // These take turns of their own.
            Entities | Records(_) => None,
            _ => match self.turn(caller.caller.uid).await {
                Some(turn) => Some(turn),
                None => return AccountsReply::Refused(AccountsRefusal::Busy),
            },
        };
        let reply = self.answered(request, caller, cursor).await;
        drop(turn);
        reply
    }

    async fn answered(&self, request: AccountsRequest, caller: &Asker, cursor: &mut Cursors) -> AccountsReply {
        match request {
            AccountsRequest::Ping | AccountsRequest::OnBehalfOf(_) | AccountsRequest::OnBehalfOfOrdinary(_) => {
                self.here()
            }
            AccountsRequest::Config => AccountsReply::Config(self.shown()),
            AccountsRequest::Jobs { filter, .. } if !filter.is_sound() => too_long(),
            AccountsRequest::Jobs { filter, .. } if self.is_too_wide(&filter, caller) => too_wide(),
            AccountsRequest::Jobs { filter, steps, after } => {
                self.jobs((&filter, steps, after.as_ref()), caller, &mut cursor.jobs).await
            }
            AccountsRequest::Change { change, version, only_try } => {
                self.change(&change, version, only_try, caller).await
            }
            AccountsRequest::Transactions { .. } if self.hides_transactions() && !self.is_admin(caller) => {
                AccountsReply::Refused(AccountsRefusal::Denied)
            }
            AccountsRequest::Transactions { since, until } => {
                self.store.transactions(since, until).await.map_or_else(failed, AccountsReply::Transactions)
            }
            AccountsRequest::Events { question, .. } if !question.is_sound() => too_long(),
            AccountsRequest::Events { .. } if self.is_hidden(PrivateKind::Events, caller) => {
                AccountsReply::Refused(AccountsRefusal::Denied)
            }
            AccountsRequest::Events { question, after } => {
                let told = self.store.events(&question, after).await;
                told.map_or_else(failed, |(rows, next)| AccountsReply::Events { rows, next })
            }
            AccountsRequest::Reservations { question, .. } if !question.is_sound() => too_long(),
            AccountsRequest::Reservations { .. } if self.is_hidden(PrivateKind::Reservations, caller) => {
                AccountsReply::Refused(AccountsRefusal::Denied)
            }
            AccountsRequest::Reservations { question, after } => {
                let told = self.store.reservations(&question, after).await;
                told.map_or_else(failed, |(rows, next)| AccountsReply::Reservations { rows, next })
            }
            // Told in parts.
            AccountsRequest::Entities => AccountsReply::Refused(AccountsRefusal::Busy),
            AccountsRequest::Script(run) => self.text(run, Text::Script, caller).await,
            AccountsRequest::Environment(run) => self.text(run, Text::Environment, caller).await,
            AccountsRequest::Usage { question, .. } if !question.such.is_sound() => too_long(),
            AccountsRequest::Usage { question, .. } if self.is_longer(question.start, question.end, caller) => {
                too_wide()
            }
            AccountsRequest::Usage { question, after } => {
                self.usage(&question, after.as_deref(), caller, &mut cursor.usage).await
            }
            AccountsRequest::Records(request) => self.records(request, caller).await,
            AccountsRequest::Statistics => self.statistics(caller),
            AccountsRequest::Order(order) => self.obey(order, caller),
        }
    }

    fn here(&self) -> AccountsReply {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        AccountsReply::Here { version, host: self.host.to_string(), backup: self.is_backup }
    }

    /// A turn, of the user's and of all; `None`: the service ends.
    async fn turn(&self, uid: u32) -> Option<(OwnedSemaphorePermit, SemaphorePermit<'_>)> {
        let of_user = self.answering.of(uid).acquire_owned().await.ok()?;
        Some((of_user, self.turns.acquire().await.ok()?))
    }

    /// Who asks, by his name here.
    pub(super) fn actor(&self, caller: &Asker) -> Actor {
        let (uid, name) = (caller.caller.uid, caller.name.clone());
        let has_rights = || visible::has_rights(&self.store.entities(), &name);
        // A node that the site does not trust is not believed about those who have rights.
        let name = if caller.ordinary && has_rights() { "nobody".to_owned() } else { name };
        Actor { name, believed: !caller.ordinary && self.is_believed(uid) }
    }

    async fn change(&self, change: &Change, version: Option<u64>, only_try: bool, caller: &Asker) -> AccountsReply {
        let by = self.actor(caller);
        if !self.is_admin(caller) && encoded_bytes(change) > MOST_OF_OTHERS {
            return AccountsReply::Refused(AccountsRefusal::Invalid("too many changes at a time".to_owned()));
        }
        match self.store.change(change, &by, version, only_try).await {
            Ok(Ok((applied, version))) => {
                if !only_try {
                    let done = applied.transactions.iter().map(|one| format!("{}: {}", one.action, one.target));
                    let done = done.collect::<Vec<_>>().join(", ");
                    tracing::info!(user = by.name, host = caller.caller.host, done, "accounts were changed");
                }
                AccountsReply::Changed { applied, version }
            }
            Ok(Err(refusal)) => AccountsReply::NotChanged(refusal),
            Err(e) => failed(e),
        }
    }

    /// Scripts and environments are for their owner and administrators (sacct(1), `--batch-script`).
    async fn text(&self, run: Sluid, which: Text, caller: &Asker) -> AccountsReply {
        let owner = (!self.is_admin(caller)).then(|| caller.owner());
        match self.store.text(run, which, |row| owner.as_ref().is_none_or(|owner| owner.has(row))).await {
            Ok(Some(Told::Text(text))) => AccountsReply::Text(text.map(ByteBuf::from)),
            Ok(Some(Told::Denied)) => AccountsReply::Refused(AccountsRefusal::Denied),
            Ok(None) => AccountsReply::Text(None),
            Err(e) => failed(e),
        }
    }

    /// Is that for administrators only, and he is none?
    fn is_hidden(&self, kind: PrivateKind, caller: &Asker) -> bool {
        self.settings.private.has(kind) && !self.is_admin(caller)
    }

    /// Is that a longer time than he may ask about (`MaxQueryTimeRange`)?
    fn is_longer(&self, start: Timestamp, end: Timestamp, caller: &Asker) -> bool {
        let ms = u64::try_from(end.0.saturating_sub(start.0)).unwrap_or(0);
        self.settings.longest_window.is_some_and(|longest| u128::from(ms) > longest.as_millis())
            && !self.is_admin(caller)
    }

    /// Is the window of that question? Jobs that are named are found without looking through it.
    fn is_too_wide(&self, filter: &JobFilter, caller: &Asker) -> bool {
        let now = Timestamp::now();
        let (start, end) = (filter.start.unwrap_or_default(), filter.end.map_or(now, |end| end.min(now)));
        filter.jobs.is_empty() && self.is_longer(start, end, caller)
    }

    /// They name users and accounts.
    fn hides_transactions(&self) -> bool {
        let private = &self.settings.private;
        private.has(PrivateKind::Users) || private.has(PrivateKind::Accounts)
    }

    /// Those who are believed, operators and administrators.
    pub(super) fn is_admin(&self, caller: &Asker) -> bool {
        let by = self.actor(caller);
        by.believed || self.store.entities().is_operator(&by.name)
    }

    /// Those who are believed are not asked about here.
    pub(super) fn is_administrator(&self, by: &Actor) -> bool {
        let entities = self.store.entities();
        let known = entities.users.get(&by.name).filter(|user| !user.deleted);
        known.is_some_and(|user| user.admin == AdminLevel::Administrator)
    }

    /// Tells a user the entities that he may see.
    async fn tell_entities(&self, replies: &Sender<AccountsReply>, caller: &Asker) -> Result<(), LinkError> {
        // A copy of all is made: one for each user at a time, until it is told.
        let Ok(_turn_of_user) = self.answering.of(caller.caller.uid).acquire_owned().await else { return Ok(()) };
        let all = self.store.entities();
        let seen = visible::visible(&all, &self.actor(caller), &self.settings.private);
        match parts::parts(&seen) {
            Ok(parts) => {
                for part in parts {
                    replies.send(traced(AccountsReply::Entities(part))).await?;
                }
                Ok(())
            }
            Err(e) => {
                let refusal = AccountsRefusal::Failed(e.to_string());
                replies.send(traced(AccountsReply::Refused(refusal))).await
            }
        }
    }

    async fn jobs(
        &self,
        (filter, steps, after): (&JobFilter, bool, Option<&PageEnd>),
        caller: &Asker,
        cursor: &mut Cursor,
    ) -> AccountsReply {
        let private = self.settings.private.has(PrivateKind::Jobs) && !self.is_admin(caller);
        let only = private.then(|| self.sees_of(caller));
        match self.store.page(Question { filter, steps, after, only: only.as_ref() }, cursor).await {
            Ok(Page { jobs, next }) => AccountsReply::Jobs { jobs, next, at: Timestamp::now() },
            Err(e) => failed(e),
        }
    }

    /// Whose rows an ordinary user sees where they are private: his own, and those of accounts that he coordinates.
    fn sees_of(&self, caller: &Asker) -> Owner {
        let coordinates = visible::coordinated(&self.store.entities(), &self.actor(caller).name);
        Owner { coordinates, ..caller.owner() }
    }

    /// What was used: with `PrivateData=usage`, ordinary users are told their own.
    async fn usage(
        &self,
        question: &UsageQuestion,
        after: Option<&UsageKey>,
        caller: &Asker,
        summed: &mut Summed,
    ) -> AccountsReply {
        let private = self.settings.private.has(PrivateKind::Usage) && !self.is_admin(caller);
        let (only, at) = (private.then(|| self.sees_of(caller)), Timestamp::now());
        match self.store.usage(question, after, only.as_ref(), (at, summed)).await {
            Ok(Part { rows, more }) => AccountsReply::Usage { rows, more, at },
            Err(e @ UsageError::TooMany) => AccountsReply::Refused(AccountsRefusal::Invalid(e.to_string())),
            Err(e) => {
                tracing::error!(error = %e, "a question about usage");
                AccountsReply::Refused(AccountsRefusal::Failed(e.to_string()))
            }
        }
    }

    /// The settings, as names and values.
    fn shown(&self) -> Vec<(String, String)> {
        let settings = &self.settings;
        let path = |path: Option<&std::path::Path>| path.map_or("(null)".to_owned(), |path| path.display().to_string());
        let yes_no = |yes: bool| if yes { "yes" } else { "no" }.to_owned();
        let or_null = |text: &Option<String>| text.clone().unwrap_or_else(|| "(null)".to_owned());
        let longest = settings.longest_window.map(|longest| TimeLimit::Secs(longest.as_secs()));
        let pairs = [
            ("AllResourcesAbsolute", yes_no(settings.resources_absolute)),
            ("AllowNoDefAcct", yes_no(settings.no_default_account)),
            ("ArchiveScript", path(settings.archive_script.as_deref())),
            ("DbdAddr", settings.address.clone().unwrap_or_else(|| settings.host.clone())),
            ("DbdBackupHost", settings.backup.clone().unwrap_or_else(|| "(null)".to_owned())),
            ("DbdHost", settings.host.clone()),
            ("DbdPort", settings.port.to_string()),
            ("DebugLevel", settings.debug_level.name().to_owned()),
            ("DefaultQOS", or_null(&settings.default_qos)),
            ("DisableArchiveCommands", yes_no(settings.no_archive_commands)),
            ("DisableCoordDBD", yes_no(settings.no_coordinators)),
            ("LogFile", path(settings.log_file.as_deref())),
            ("MaxQueryTimeRange", longest.unwrap_or(TimeLimit::Unlimited).scontrol_text()),
            ("MessageTimeout", format!("{} secs", settings.message_timeout.as_secs())),
            ("PidFile", path(Some(&settings.pid_file))),
            ("PrivateData", settings.private.text()),
            ("StoragePassScript", path(settings.storage.password_script.as_deref())),
            ("SlurmUser", settings.slurm_user.clone().unwrap_or_else(|| "(null)".to_owned())),
        ];
        let pairs = pairs.into_iter().map(|(key, value)| (key.to_owned(), value));
        pairs.chain(shown_storage(&settings.storage)).collect()
    }
}

/// Does some work, and tells whoever waits for it that it goes on. It does, though nobody may wait for it any more.
async fn working<M: Serialize, T>(
    replies: &Sender<M>,
    message: impl Fn() -> M,
    every: Duration,
    work: impl Future<Output = T>,
) -> T {
    let mut ticks = interval_at(tokio::time::Instant::now() + every, every);
    tokio::pin!(work);
    loop {
        tokio::select! {
            biased;
            done = &mut work => return done,
            // Who does not read what he is told knows anyway that something is coming.
            _ = ticks.tick() => drop(replies.try_send(&traced(message()))),
        }
    }
}

/// Nothing is known while the database is away, and nobody may anything.
const fn needs_database(request: &AccountsRequest) -> bool {
    use AccountsRequest::{Config, OnBehalfOf, OnBehalfOfOrdinary};
    !matches!(request, Config | OnBehalfOf(_) | OnBehalfOfOrdinary(_))
}

/// Where the records are, as Slurm shows it: without the password.
fn shown_storage(storage: &Storage) -> Vec<(String, String)> {
    let or_null = |text: Option<String>| text.unwrap_or_else(|| "(null)".to_owned());
    let mut pairs = Vec::new();
    let mut show = |key: &str, value: String| pairs.push((key.to_owned(), value));
    match storage.file() {
        Some(file) => show("StorageLoc", file.display().to_string()),
        None => {
            show("StorageBackupHost", or_null(storage.backup.as_ref().map(ToString::to_string)));
            show("StorageHost", storage.host.to_string());
            show("StorageLoc", storage.database().to_owned());
            show("StorageParameters", or_null(storage.parameters.clone()));
            show("StoragePort", storage.port().to_string());
        }
    }
    show("StorageType", storage.kind.text().to_owned());
    if storage.file().is_none() {
        show("StorageUser", or_null(storage.user.clone()));
    }
    pairs
}

/// A question with lists that nobody means.
fn too_long() -> AccountsReply {
    let text = "a list of the question is too long, or means nothing";
    AccountsReply::Refused(AccountsRefusal::Invalid(text.to_owned()))
}

/// A question about too long a time, in the words that users know from Slurm.
fn too_wide() -> AccountsReply {
    AccountsReply::Refused(AccountsRefusal::Invalid("Too wide of a date range in query".to_owned()))
}

/// The database failed.
#[expect(clippy::needless_pass_by_value, reason = "it is what a failed call returns")]
pub(super) fn failed(error: StoreError) -> AccountsReply {
    tracing::error!(%error, "a question to accounting");
    AccountsReply::Refused(AccountsRefusal::Failed(error.to_string()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::daemon::place::Cluster;
    use garrick_accounts::{
        filter::NamedJob,
        records::{PurgeOrder, RecordsRequest},
    };
    use garrick_model::{config::Config, ids::JobId};

    #[tokio::test]
    async fn who_waits_is_told_that_it_is_worked_on() {
        let dir = garrick_kernel::scratch::Scratch::new("still-working");
        let mut listener = DoorListener::bind(&dir.join("door"), "test").unwrap();
        let door = dir.join("door");
        let (asks, answers) = tokio::join!(DoorConn::connect(&door, LinkKind::CommandToAccounts, "test"), async {
            listener.accept().await.unwrap().split::<AccountsReply, AccountsRequest>()
        });
        let (replies, _requests) = answers;
        let (_questions, mut heard) = asks.unwrap().split::<AccountsRequest, AccountsReply>();
        // It takes until that was heard three times.
        let work = async {
            for _ in 0..3 {
                assert!(matches!(heard.recv().await, Ok(Some(said)) if said.msg == AccountsReply::Working));
            }
            7
        };
        assert_eq!(working(&replies, || AccountsReply::Working, Duration::from_millis(1), work).await, 7);
    }

    /// A service with an empty database, to which everybody is an ordinary user.
    fn world(store: Store, settings: DbdConfig) -> World {
        let cluster = Cluster::new(Config::default(), None, 0, None, true);
        let live = Arc::new(LiveSettings::new(&cluster, settings));
        World {
            store: Arc::new(store),
            settings: live.now(),
            live,
            believed: Arc::new([]),
            host: "here".into(),
            is_backup: false,
            guests: Guests::with_most(1000),
            turns: Arc::new(Semaphore::new(4)),
            answering: OfUsers::with_most(ANSWERED_OF_USER),
            conversing: OfUsers::with_most(CONVERSING_OF_USER),
            clockwork: Arc::new(Clockwork::started()),
            controllers: Arc::default(),
        }
    }

    #[test]
    fn however_many_ask_all_are_answered_in_their_turn() {
        actix_rt::System::new().block_on(many_ask());
    }

    async fn many_ask() {
        const MANY: usize = 2 * CONVERSING_OF_USER;
        let dir = garrick_kernel::scratch::Scratch::new("many-ask");
        let store = Store::open_file(&dir.join("acct/accounting.db")).await.unwrap();
        let door = dir.join("door");
        let listener = DoorListener::bind(&door, "test").unwrap();
        let served = actix_rt::spawn(serve(listener, world(store, DbdConfig::at(&dir.join("slurmdbd.conf")))));
        let mut asking = Vec::new();
        for number in 0..MANY {
            let asks = DoorConn::connect(&door, LinkKind::CommandToAccounts, "test").await.unwrap();
            let (questions, mut heard) = asks.split::<AccountsRequest, AccountsReply>();
            // The first ones have their places before others come.
            if number < CONVERSING_OF_USER {
                questions.send(traced(AccountsRequest::Ping)).await.unwrap();
                assert!(matches!(heard.recv().await.unwrap().unwrap().msg, AccountsReply::Here { .. }));
            }
            asking.push((questions, heard));
        }
        // The first ones say nothing yet: those behind them wait, and are not turned away.
        let question = || AccountsRequest::Jobs { filter: Box::default(), steps: true, after: None };
        let (first, waiting) = asking.split_at_mut(CONVERSING_OF_USER);
        for (questions, _) in &mut *waiting {
            questions.send(traced(question())).await.unwrap();
        }
        let mut next = Box::pin(waiting[0].1.recv());
        for (questions, heard) in first {
            questions.send(traced(AccountsRequest::Ping)).await.unwrap();
            tokio::select! {
                biased;
                said = heard.recv() => assert!(matches!(said.unwrap().unwrap().msg, AccountsReply::Here { .. })),
                said = &mut next => panic!("{said:?}"),
            }
        }
        drop(next);
        let rest = asking.split_off(CONVERSING_OF_USER);
        drop(asking);
        for (_questions, mut heard) in rest {
            let said = heard.recv().await.unwrap().unwrap().msg;
            assert!(matches!(&said, AccountsReply::Jobs { jobs, .. } if jobs.is_empty()), "{said:?}");
        }
        served.abort();
    }

    fn asker(uid: u32, name: &str) -> Asker {
        let caller = Caller { uid, gid: uid, pid: 1, host: "n1".to_owned() };
        Asker { caller, name: name.to_owned(), ordinary: false, elsewhere: None }
    }

    #[test]
    fn the_site_says_what_ordinary_users_may_ask() {
        actix_rt::System::new().block_on(ordinary_users_ask());
    }

    async fn ordinary_users_ask() {
        const DAY: i64 = 86_400_000;
        let dir = garrick_kernel::scratch::Scratch::new("what-users-may-ask");
        let store = Store::open_file(&dir.join("acct/accounting.db")).await.unwrap();
        let settings = DbdConfig {
            longest_window: Some(Duration::from_secs(86_400)),
            private: [PrivateKind::Events, PrivateKind::Reservations].into_iter().collect(),
            no_archive_commands: true,
            ..DbdConfig::at(&dir.join("slurmdbd.conf"))
        };
        let world = world(store, settings);
        let (ann, root) = (asker(4001, "ann"), asker(0, "root"));
        let ask = async |who: &Asker, request| world.answer(request, who, &mut Cursors::default()).await;
        let jobs = |filter| AccountsRequest::Jobs { filter: Box::new(filter), steps: false, after: None };
        let window = |days: i64| JobFilter {
            start: Some(Timestamp(10 * DAY)),
            end: Some(Timestamp((10 + days) * DAY)),
            ..JobFilter::default()
        };
        let usage = |days: i64| {
            let (start, end) = (Timestamp(10 * DAY), Timestamp((10 + days) * DAY));
            let question = UsageQuestion { start, end, ..UsageQuestion::default() };
            AccountsRequest::Usage { question: Box::new(question), after: None }
        };
        let named = JobFilter { jobs: vec![NamedJob::job(JobId(5))], ..JobFilter::default() };
        let is_told = |reply: AccountsReply| match reply {
            AccountsReply::Refused(AccountsRefusal::Invalid(why)) => {
                assert_eq!(why, "Too wide of a date range in query");
                false
            }
            AccountsReply::Jobs { .. } | AccountsReply::Usage { .. } => true,
            other => panic!("{other:?}"),
        };
        for (request, is_short) in [
            (jobs(window(1)), true),
            (jobs(window(2)), false),
            (jobs(JobFilter::default()), false),
            (jobs(named), true),
            (usage(1), true),
            (usage(2), false),
        ] {
            assert_eq!(is_told(ask(&ann, request.clone()).await), is_short, "{request:?}");
            assert!(is_told(ask(&root, request).await));
        }
        let events = || AccountsRequest::Events { question: Box::default(), after: None };
        let reservations = || AccountsRequest::Reservations { question: Box::default(), after: None };
        for request in [events(), reservations()] {
            assert_eq!(ask(&ann, request).await, AccountsReply::Refused(AccountsRefusal::Denied));
        }
        assert!(matches!(ask(&root, events()).await, AccountsReply::Events { .. }));
        assert!(matches!(ask(&root, reservations()).await, AccountsReply::Reservations { .. }));
        let purge = AccountsRequest::Records(RecordsRequest::Purge(PurgeOrder::default()));
        let load = AccountsRequest::Records(RecordsRequest::Load { file: "/nosuch".to_owned(), only_try: true });
        for request in [purge, load] {
            let said = ask(&root, request).await;
            let AccountsReply::Refused(AccountsRefusal::Invalid(why)) = said else { panic!("{said:?}") };
            assert!(why.contains("DisableArchiveCommands"), "{why}");
        }
    }

    #[tokio::test]
    async fn a_number_counts_where_both_hosts_mean_the_same_user() {
        let ask = async |uid: u32, user: Option<&str>| {
            let caller = Caller { uid, gid: uid, pid: 1, host: "n1".to_owned() };
            asker_of(PassedOn { caller, user: user.map(str::to_owned), ordinary: false }, "maple").await.unwrap()
        };
        let told = async |uid: u32, user: Option<&str>| {
            let asker = ask(uid, user).await;
            (asker.caller.uid, asker.name, asker.ordinary)
        };
        let root = || (0, "root".to_owned(), false);
        assert_eq!(told(0, Some("root")).await, root());
        assert_eq!(told(0, None).await, root(), "this host's name counts");
        assert_eq!(told(0, Some("alice")).await, (65534, "nobody".to_owned(), true));
        assert_eq!(ask(0, None).await.owner(), Owner::known(0));
        // A number that nobody has here: what is his is his on his cluster, and elsewhere under his name.
        let unknown = 3_999_999_999;
        assert_eq!(told(unknown, Some("alice")).await, (unknown, "alice".to_owned(), false));
        let elsewhere = Some(("maple".to_owned(), Some("alice".to_owned())));
        assert_eq!(ask(unknown, Some("alice")).await.owner(), Owner { elsewhere, ..Owner::known(unknown) });
        assert_eq!(told(unknown, None).await.1, unknown.to_string());
    }
}
