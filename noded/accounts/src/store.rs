//! The database. Rows of a batch and its position are stored in one transaction: whatever is killed, an event counts once. One
//! connection writes; questions have connections of their own ([`crate::pages`]).
//!
//! What is asked for, summed up or ordered by has columns. The rest of a row is in its body (MessagePack, with names): rows gain
//! fields with each version, and a column for each would have to be added to years of rows at once.
//!
//! A database on a server may be away: then everything fails with [`StoreError::Away`], and the next call tries to connect again.
//! Controllers keep what was not stored and come again. A commit whose answer was lost has stored its position too: a controller
//! hears of it when it comes.

pub use crate::database::error::StoreError;
use crate::{
    database::{
        Connection, Link, Reader, Statement, Transaction, Value,
        connect::{self, Readers, Server, Watch},
        dialect::{Table, There},
    },
    entities,
    events::{self, Amounts},
    pages::CHUNK,
    texts::Texts,
};
use garrick_accounts::{change::Rules, fold::run_of, messages::LogId, row::JobRow, step::StepRecord};
use garrick_events::records::job_event::JobEvent;
use garrick_events::{event::ControllerEvent, progress::Position, records::job::JobRecord};
use garrick_model::{
    config::{slurmdbd::DbdConfig, storage::Storage},
    entities::{Entities, qos::are_several},
    ids::{JobId, Sluid, StepKey, StepNum},
    packed_steps::PackedSteps,
    time::Timestamp,
};
use serde::{Serialize, de::DeserializeOwned};
use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet, HashMap, btree_map::Entry},
    path::{Path, PathBuf},
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::{
    sync::{Mutex, watch},
    time::timeout,
};

/// Form of bodies: MessagePack with names. Others may follow.
pub(crate) const FORM: i64 = 1;
/// Rows of jobs that are kept in memory, as more events of them are likely.
const REMEMBERED: usize = 50_000;
/// After so long it is looked whether the connection that writes is still there.
const IDLE: Duration = Duration::from_secs(1);
/// A server that does not answer such a look is away.
const LOOK: Duration = Duration::from_secs(10);
/// A server that was away is not tried again for so long: many ask at a time.
const PAUSE: Duration = Duration::from_millis(200);
/// Bytes of text in a column. The whole is in the row's body.
const COLUMN: usize = 255;

const JOBS: Table = Table {
    name: "jobs",
    columns: &[
        "cluster",
        "job",
        "sluid",
        "array_job",
        "het_leader",
        "uid",
        "gid",
        "account",
        "state",
        "since_ms",
        "start_ms",
        "end_ms",
        "cpus",
        "nodes",
        "name",
        "part",
        "qos",
        "wckey",
        "form",
        "body",
    ],
    key: 3,
    there: There::Replaced,
};
/// What came earlier or says less does not replace what is there ([`StepRecord::follows`]).
const STEPS: Table = Table {
    name: "steps",
    columns: &["cluster", "sluid", "step", "task", "progress", "start_ms", "end_ms", "cpus", "form", "body"],
    key: 4,
    there: There::ReplacedUnlessMore("progress"),
};

type Known = HashMap<(i64, JobId), JobRow>;

/// See the module.
pub struct Store {
    /// Where archives are if no folder is named for them.
    pub(crate) archive: PathBuf,
    /// `None`: it is a file.
    server: Option<Server>,
    /// Which of the server's hosts answered.
    host: AtomicUsize,
    writer: Mutex<Writer>,
    /// Accounts, users, associations and QOS, as they are on disk.
    entities: watch::Sender<Arc<Entities>>,
    /// For questions.
    readers: RwLock<Readers>,
    /// What the site says of changes of accounts and users.
    pub(crate) rules: Rules,
    /// One purge at a time.
    pub(crate) purging: Mutex<()>,
    /// No script is left of jobs that a purge deleted before it was interrupted.
    pub(crate) has_no_orphans: AtomicBool,
}

pub(crate) struct Writer {
    /// `None`: the server is away.
    connection: Option<Connection>,
    /// Its number on the server.
    session: Option<i64>,
    /// When it was last there.
    used: Instant,
    /// When it was last found away, and why.
    failed: Option<(Instant, String)>,
    /// Newest rows of jobs, as stored.
    pub(crate) known: Known,
}

impl Writer {
    fn with(connection: Option<Connection>, session: Option<i64>) -> Self {
        Self { connection, session, used: Instant::now(), failed: None, known: HashMap::new() }
    }

    /// Rows of jobs are deleted: keys of cluster, job and run.
    pub(crate) fn forget_jobs(&mut self, gone: &[Vec<i64>]) {
        for key in gone {
            self.known.remove(&(key[0], JobId(u32::try_from(key[1]).unwrap_or(u32::MAX))));
        }
    }

    /// The connection, of one that is connected.
    pub(crate) fn connection(&mut self) -> Result<&mut Connection, StoreError> {
        self.connection.as_mut().ok_or_else(|| StoreError::Away("the connection is gone".to_owned()))
    }

    fn lose(&mut self) {
        self.connection = None;
        self.known.clear();
    }
}

/// Events of a controller's log.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// Events, in order.
    pub events: Vec<ControllerEvent>,
    /// What the nodes have that they are about.
    pub nodes: BTreeMap<String, Amounts>,
    /// Rows of jobs are changed, and none are added.
    pub no_new_jobs: bool,
    /// All reservations that there are; `None`: events say what becomes of them.
    pub reservations: Option<Vec<String>>,
}

impl From<Vec<ControllerEvent>> for Batch {
    fn from(events: Vec<ControllerEvent>) -> Self {
        Self { events, ..Self::default() }
    }
}

/// A cluster whose log is being followed.
#[derive(Clone, Debug)]
pub struct Followed {
    /// Its number in the database.
    pub(crate) id: i64,
    /// Its name.
    pub cluster: String,
    /// Its log.
    log: LogId,
}

impl Store {
    /// Opens the database of a service with these settings. See [`Self::open`].
    pub async fn of(settings: &DbdConfig) -> Result<Self, StoreError> {
        let rules = Rules {
            no_coordinators: settings.no_coordinators,
            resources_absolute: settings.resources_absolute,
            default_qos: settings.default_qos.clone(),
            no_default_account: settings.no_default_account,
        };
        let store =
            Self::open_with(&settings.storage, Watch { patience: settings.message_timeout, ..Watch::default() });
        Ok(Self { rules, ..store.await? })
    }

    /// Opens the database. A file is made if it is not there. A server need not be there yet; one that is and refuses is an error.
    pub async fn open(storage: &Storage) -> Result<Self, StoreError> {
        Self::open_with(storage, Watch::default()).await
    }

    async fn open_with(storage: &Storage, watch: Watch) -> Result<Self, StoreError> {
        let archive = storage.archive();
        let Some(server) = Server::of(storage, watch)? else {
            let (mut connection, readers) = connect::open_file(storage.file().unwrap_or(Path::new(""))).await?;
            let entities = Arc::new(entities::open(&mut connection).await?);
            return Ok(Self {
                archive,
                server: None,
                host: AtomicUsize::default(),
                writer: Mutex::new(Writer::with(Some(connection), None)),
                entities: watch::Sender::new(entities),
                readers: RwLock::new(readers),
                rules: Rules::default(),
                purging: Mutex::default(),
                has_no_orphans: AtomicBool::default(),
            });
        };
        let readers = RwLock::new(server.readers(0));
        let store = Self {
            archive,
            server: Some(server),
            host: AtomicUsize::default(),
            writer: Mutex::new(Writer::with(None, None)),
            entities: watch::Sender::default(),
            readers,
            rules: Rules::default(),
            purging: Mutex::default(),
            has_no_orphans: AtomicBool::default(),
        };
        match store.ready().await {
            Ok(()) | Err(StoreError::Away(_)) => Ok(store),
            Err(error) => Err(error),
        }
    }

    /// The same, with another way to look whether a server is there.
    #[cfg(test)]
    pub(crate) fn watched(mut self, watch: Watch) -> Self {
        if let Some(server) = &mut self.server {
            server.watch = watch;
        }
        self
    }

    /// Opens a database file.
    pub async fn open_file(path: &Path) -> Result<Self, StoreError> {
        Self::open(&Storage::in_file(path)).await
    }

    /// Can the database be used? A server that was away is tried again.
    pub async fn ready(&self) -> Result<(), StoreError> {
        match (&self.server, self.writer.try_lock()) {
            (Some(server), Ok(mut writer)) => self.connect(server, &mut writer).await,
            // Somebody writes, or it is a file.
            _ => Ok(()),
        }
    }

    /// Whoever writes does it alone, over a connection that is there.
    pub(crate) async fn write<T>(
        &self,
        what: impl AsyncFnOnce(&mut Writer) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut writer = self.writer.lock().await;
        let Some(server) = &self.server else { return what(&mut writer).await };
        self.connect(server, &mut writer).await?;
        let silent = server.until_silent(self.host.load(Ordering::Relaxed), writer.session);
        let done = tokio::select! {
            biased;
            done = what(&mut writer) => done,
            () = silent => Err(StoreError::Away("no answer".to_owned())),
        };
        match done {
            Err(error) if error.is_lost() => {
                writer.lose();
                tracing::error!(%error, "the database is lost, and will be tried again");
                Err(StoreError::Away(format!("{}: {error}", server.name())))
            }
            done => {
                writer.used = Instant::now();
                done
            }
        }
    }

    /// Accounts and users as they are on disk.
    pub(crate) const fn told(&self) -> &watch::Sender<Arc<Entities>> {
        &self.entities
    }

    /// Asks something over a connection for questions.
    pub(crate) async fn read<T>(
        &self,
        what: impl AsyncFnOnce(&mut Reader) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut reader = self.reader().await?;
        let Some(server) = &self.server else { return what(&mut reader).await };
        let session = reader.link().session().await?;
        let silent = server.until_silent(self.host.load(Ordering::Relaxed), session);
        let done = tokio::select! {
            biased;
            done = what(&mut reader) => Some(done),
            () = silent => None,
        };
        let Some(done) = done else {
            // Nobody else is given that connection.
            reader.give_up();
            return Err(StoreError::Away(format!("{}: no answer", server.name())));
        };
        match done {
            Err(error) if error.is_lost() => Err(StoreError::Away(format!("{}: {error}", server.name()))),
            done => done,
        }
    }

    /// A connection for a question.
    pub(crate) async fn reader(&self) -> Result<Reader, StoreError> {
        self.ready().await?;
        let readers = self.readers.read().unwrap_or_else(PoisonError::into_inner).clone();
        match (readers.one().await, &self.server) {
            (Err(error), Some(server)) if connect::is_lost(&error) => {
                Err(StoreError::Away(format!("{}: {error}", server.name())))
            }
            (one, _) => Ok(one?),
        }
    }

    async fn connect(&self, server: &Server, writer: &mut Writer) -> Result<(), StoreError> {
        if let Some(connection) = &mut writer.connection {
            if writer.used.elapsed() < IDLE {
                return Ok(());
            }
            if matches!(timeout(LOOK, connection.ping()).await, Ok(Ok(()))) {
                writer.used = Instant::now();
                return Ok(());
            }
            tracing::error!(server = server.name(), "the connection to the database is lost");
            writer.lose();
        }
        if let Some((when, why)) = &writer.failed
            && when.elapsed() < PAUSE
        {
            return Err(StoreError::Away(why.clone()));
        }
        match self.connected(server).await {
            Ok((connection, session)) => {
                tracing::info!(server = server.name(), "the database is there");
                *writer = Writer::with(Some(connection), session);
                Ok(())
            }
            Err(error) => {
                let why = match &error {
                    StoreError::Away(why) => why.clone(),
                    other => other.to_string(),
                };
                tracing::error!(error = %why, "the database cannot be used, and will be tried again");
                let is_lost = error.is_lost();
                writer.failed = Some((Instant::now(), why.clone()));
                Err(if is_lost { StoreError::Away(why) } else { error })
            }
        }
    }

    /// A new connection that writes, and its number on the server. Another service may have changed accounts and users since.
    async fn connected(&self, server: &Server) -> Result<(Connection, Option<i64>), StoreError> {
        let (mut connection, host) = server.connect().await?;
        let session = connection.link().session().await?;
        let entities = tokio::select! {
            biased;
            entities = entities::open(&mut connection) => entities?,
            () = server.until_silent(host, session) => return Err(StoreError::Away("no answer".to_owned())),
        };
        self.entities.send_if_modified(|told| {
            let is_other = **told != entities;
            if is_other {
                *told = Arc::new(entities);
            }
            is_other
        });
        *self.readers.write().unwrap_or_else(PoisonError::into_inner) = server.readers(host);
        self.host.store(host, Ordering::Relaxed);
        Ok((connection, session))
    }

    /// A controller begins to feed. The position up to which its log is stored, and whether a snapshot was; `None`: nothing of that
    /// log.
    pub async fn follow(&self, cluster: &str, log: LogId) -> Result<(Followed, Option<(Position, bool)>), StoreError> {
        self.write(async |writer| {
            let mut tx = writer.connection()?.begin().await?;
            let (id, stored) = follow(&mut tx.link(), cluster, log).await?;
            tx.commit().await?;
            writer.known.retain(|(of, _), _| *of != id);
            Ok((Followed { id, cluster: cluster.to_owned(), log }, stored))
        })
        .await
    }

    /// What is stored of the log begins after that position.
    pub async fn begin(&self, of: &Followed, position: Position) -> Result<(), StoreError> {
        self.write(async |writer| {
            let mut tx = writer.connection()?.begin().await?;
            is_followed(&mut tx.link(), of).await?;
            set_position(&mut tx.link(), of, position).await?;
            set_whole(&mut tx.link(), of, false).await?;
            Ok(tx.commit().await?)
        })
        .await
    }

    /// Stores a part of all jobs as of the stored position; the last part makes what is stored whole. Parts that come again change
    /// nothing.
    pub async fn snapshot(
        &self,
        of: &Followed,
        position: Position,
        jobs: &[JobRecord],
        last: bool,
    ) -> Result<(), StoreError> {
        self.write(async |writer| {
            writer.known.clear();
            let mut tx = writer.connection()?.begin().await?;
            let mut link = tx.link();
            let stored = is_followed(&mut link, of).await?.unwrap_or_default();
            if stored != position {
                return Err(StoreError::Gap { after: position, stored });
            }
            let mut rows: Vec<JobRow> = jobs.iter().map(|record| JobRow::of(&of.cluster, record)).collect();
            remember(&mut link, of.id, &mut rows).await?;
            put_jobs(&mut link, of.id, rows.iter()).await?;
            end_earlier(&mut link, of.id, &rows).await?;
            let mut texts = Texts::default();
            jobs.iter().for_each(|record| texts.take(record));
            texts.put(&mut link, of.id).await?;
            if last {
                set_whole(&mut link, of, true).await?;
            }
            Ok(tx.commit().await?)
        })
        .await
    }

    /// Stores what events after that position come to, and the position of the last one.
    pub async fn keep(
        &self,
        of: &Followed,
        after: Position,
        upto: Position,
        batch: impl Into<Batch>,
    ) -> Result<(), StoreError> {
        let batch = batch.into();
        self.write(async |writer| {
            // Nothing of the batch is stored unless all is: then what is known of it goes too.
            let mut known = std::mem::take(&mut writer.known);
            let mut tx = writer.connection()?.begin().await?;
            keep(&mut tx, &mut known, of, (after, upto), &batch).await?;
            tx.commit().await?;
            if known.len() <= REMEMBERED {
                writer.known = known;
            }
            Ok(())
        })
        .await
    }
}

async fn follow(link: &mut Link<'_>, cluster: &str, log: LogId) -> Result<(i64, Option<(Position, bool)>), StoreError> {
    let named = "SELECT id, log_high, log_low, position, whole FROM clusters WHERE name = ?";
    let (high, low) = (signed(log.0), signed(log.1));
    let Some(row) = link.row(Statement::of(named).with(cluster)).await? else {
        let next = Statement::of("SELECT COALESCE(MAX(id), 0) + 1 FROM clusters");
        let id = link.row(next).await?.ok_or(sqlx::Error::RowNotFound)?.number(0)?;
        let new = "INSERT INTO clusters (id, name, log_high, log_low, whole) VALUES (?, ?, ?, ?, 0)";
        link.execute(Statement::of(new).with(id).with(cluster).with(high).with(low)).await?;
        return Ok((id, None));
    };
    let id = row.number(0)?;
    if (row.number(1)?, row.number(2)?) != (high, low) {
        let other = "UPDATE clusters SET log_high = ?, log_low = ?, position = NULL, whole = 0 WHERE id = ?";
        link.execute(Statement::of(other).with(high).with(low).with(id)).await?;
        return Ok((id, None));
    }
    let whole = row.number(4)? != 0;
    Ok((id, row.maybe(3)?.map(|at| (Position(unsigned(at)), whole))))
}

async fn keep(
    tx: &mut Transaction<'_>,
    known: &mut Known,
    of: &Followed,
    (after, upto): (Position, Position),
    batch: &Batch,
) -> Result<(), StoreError> {
    let mut link = tx.link();
    let stored = is_followed(&mut link, of).await?.unwrap_or_default();
    if stored != after {
        return Err(StoreError::Gap { after, stored });
    }
    look_up(&mut link, known, of.id, &batch.events).await?;
    let earlier = look_up_earlier(&mut link, known, of.id, &batch.events).await?;
    // A row is written once for all events of it in the batch.
    let mut changed: BTreeMap<Sluid, JobRow> = BTreeMap::new();
    let (mut steps, mut texts) = (Steps::default(), Texts::default());
    let cluster = (of.id, of.cluster.as_str());
    for event in &batch.events {
        match event {
            ControllerEvent::Job { job, event } => {
                if let JobEvent::Submitted(record) = &**event {
                    // An earlier job of that number has nothing to do with it.
                    if record.array_task.is_none() {
                        texts.forget(of.id, *job);
                    }
                    texts.take(record);
                }
                happened((&mut *known, &earlier, &mut changed), of, *job, event, batch.no_new_jobs);
            }
            ControllerEvent::Steps { job, sluid, steps: report } => steps.take(of.id, (*job, *sluid), report),
            ControllerEvent::Node { node, saved } => {
                events::put_node(&mut link, cluster, (node, saved), batch.nodes.get(node)).await?;
            }
            ControllerEvent::Reservation { reservation, saved, at } => {
                let at = at.unwrap_or_else(Timestamp::now);
                events::put_reservation(&mut link, cluster, (reservation, saved.as_deref()), at).await?;
            }
            _ => {}
        }
    }
    if let Some(names) = &batch.reservations {
        events::end_missing_reservations(&mut link, cluster, names, Timestamp::now()).await?;
    }
    texts.put(&mut link, of.id).await?;
    add_energy(&mut link, of.id, &steps, known, &mut changed).await?;
    put_jobs(&mut link, of.id, changed.values()).await?;
    link.put(&STEPS, steps.0.into_values().map(|step| step.columns).collect()).await?;
    set_position(&mut link, of, upto).await
}

/// Applies an event to a job's newest row, or to that of the earlier run that it is about.
fn happened(
    (known, earlier, changed): (&mut Known, &BTreeMap<Sluid, JobRow>, &mut BTreeMap<Sluid, JobRow>),
    of: &Followed,
    job: JobId,
    event: &JobEvent,
    no_new_rows: bool,
) {
    let key = (of.id, job);
    if matches!(event, JobEvent::Purged) {
        known.remove(&key);
        return;
    }
    let next = match known.get_mut(&key) {
        None => JobRow::submitted(&of.cluster, event),
        Some(row) if run_of(event).is_some_and(|run| run < row.sluid) => {
            let run = run_of(event).unwrap_or(row.sluid);
            let there = changed.get(&run).or_else(|| earlier.get(&run)).filter(|row| row.job == job);
            if let Some(mut row) = there.cloned() {
                row.apply(event);
                changed.insert(run, row);
            }
            None
        }
        Some(row) => {
            let before = row.clone();
            let next = row.apply(event);
            if *row != before {
                changed.insert(row.sluid, row.clone());
            }
            next
        }
    };
    if let Some(next) = next.filter(|_| !no_new_rows) {
        changed.insert(next.sluid, next.clone());
        known.insert(key, next);
    }
}

/// The stored position of a cluster that is still followed by that log. Nobody else changes it until the transaction ends.
async fn is_followed(link: &mut Link<'_>, of: &Followed) -> Result<Option<Position>, StoreError> {
    let mut stored = Statement::of("SELECT position FROM clusters WHERE id = ? AND log_high = ? AND log_low = ?")
        .with(of.id)
        .with(signed(of.log.0))
        .with(signed(of.log.1));
    let for_update = link.dialect().for_update();
    if !for_update.is_empty() {
        stored.push(for_update);
    }
    let row = link.row(stored).await?.ok_or_else(|| StoreError::OtherLog(of.cluster.clone()))?;
    Ok(row.maybe(0)?.map(|at| Position(unsigned(at))))
}

async fn set_position(link: &mut Link<'_>, of: &Followed, position: Position) -> Result<(), StoreError> {
    let set = Statement::of("UPDATE clusters SET position = ? WHERE id = ?");
    link.execute(set.with(signed(position.0)).with(of.id)).await?;
    Ok(())
}

async fn set_whole(link: &mut Link<'_>, of: &Followed, whole: bool) -> Result<(), StoreError> {
    let set = Statement::of("UPDATE clusters SET whole = ? WHERE id = ?");
    link.execute(set.with(i64::from(whole)).with(of.id)).await?;
    Ok(())
}

/// Reads the newest rows of jobs that events are about and that are not known.
async fn look_up(
    link: &mut Link<'_>,
    known: &mut Known,
    cluster: i64,
    events: &[ControllerEvent],
) -> Result<(), StoreError> {
    let mut unknown: BTreeSet<[i64; 2]> = BTreeSet::new();
    for event in events {
        if let ControllerEvent::Job { job, .. } = event
            && !known.contains_key(&(cluster, *job))
        {
            unknown.insert([cluster, job.0.into()]);
        }
    }
    let unknown: Vec<[i64; 2]> = unknown.into_iter().collect();
    for jobs in unknown.chunks(CHUNK) {
        let these = link.dialect().among(&["cluster", "job"], jobs);
        let rows = Statement::built(format!("SELECT job, body FROM jobs WHERE {these} ORDER BY job, sluid"));
        for row in &link.rows(rows).await? {
            let job = JobId(u32::try_from(row.number(0)?).unwrap_or(u32::MAX));
            // The last one is the newest.
            match readable(row.bytes(1)?, job) {
                Some(newest) => known.insert((cluster, job), newest),
                None => known.remove(&(cluster, job)),
            };
        }
    }
    Ok(())
}

/// Gives runs of these jobs an end that others followed, and whose end was not heard of.
async fn end_earlier(link: &mut Link<'_>, cluster: i64, newest: &[JobRow]) -> Result<(), StoreError> {
    let newest: BTreeMap<JobId, &JobRow> =
        newest.iter().filter(|row| row.restarts > 0).map(|row| (row.job, row)).collect();
    let jobs: Vec<[i64; 2]> = newest.keys().map(|job| [cluster, job.0.into()]).collect();
    for jobs in jobs.chunks(CHUNK) {
        let these = link.dialect().among(&["cluster", "job"], jobs);
        let rows = Statement::built(format!("SELECT job, body FROM jobs WHERE {these} AND end_ms IS NULL"));
        let mut ended = Vec::new();
        for row in &link.rows(rows).await? {
            let job = JobId(u32::try_from(row.number(0)?).unwrap_or(u32::MAX));
            let Some(mut row) = readable::<JobRow>(row.bytes(1)?, job) else { continue };
            if let Some(next) = newest.get(&job).filter(|next| row.sluid < next.sluid) {
                row.followed_by(next);
                ended.push(row);
            }
        }
        put_jobs(link, cluster, ended.iter()).await?;
    }
    Ok(())
}

/// Reads the rows of earlier runs than the newest ones that events are about.
async fn look_up_earlier(
    link: &mut Link<'_>,
    known: &Known,
    cluster: i64,
    events: &[ControllerEvent],
) -> Result<BTreeMap<Sluid, JobRow>, StoreError> {
    let mut asked: BTreeSet<[i64; 3]> = BTreeSet::new();
    for event in events {
        let ControllerEvent::Job { job, event } = event else { continue };
        let newest = known.get(&(cluster, *job)).map(|row| row.sluid);
        if let Some(run) = run_of(event).filter(|run| newest.is_some_and(|newest| *run < newest)) {
            asked.insert([cluster, job.0.into(), signed(run.0)]);
        }
    }
    stored_runs(link, &asked.into_iter().collect::<Vec<_>>()).await
}

/// The rows of these runs, as far as they are stored: cluster, job and SLUID of each.
async fn stored_runs(link: &mut Link<'_>, runs: &[[i64; 3]]) -> Result<BTreeMap<Sluid, JobRow>, StoreError> {
    let mut stored = BTreeMap::new();
    for some in runs.chunks(CHUNK) {
        let these = link.dialect().among(&["cluster", "job", "sluid"], some);
        for row in &link.rows(Statement::built(format!("SELECT job, body FROM jobs WHERE {these}"))).await? {
            let job = JobId(u32::try_from(row.number(0)?).unwrap_or(u32::MAX));
            stored.extend(readable::<JobRow>(row.bytes(1)?, job).map(|row| (row.sluid, row)));
        }
    }
    Ok(stored)
}

/// A row, unless it is damaged: one row must not stop all others. What is known of it is in the log.
pub(crate) fn readable<T: DeserializeOwned>(body: &[u8], job: JobId) -> Option<T> {
    decoded(body).inspect_err(|error| tracing::error!(job = job.0, %error, "a row is passed over")).ok()
}

/// Text for a column that is no more than a help for who looks into the database: servers take no zeros, and only so much.
pub(crate) fn column(text: &str) -> Cow<'_, str> {
    let text = &text[..text.floor_char_boundary(COLUMN)];
    if text.contains('\0') { text.replace('\0', "?").into() } else { text.into() }
}

/// The partition by which a row is found; `None`: it may run in several.
fn part_of(row: &JobRow) -> Option<&str> {
    match (&row.partition, &row.partitions[..]) {
        (Some(part), _) => Some(part),
        (None, [part]) => Some(part),
        (None, _) => None,
    }
}

/// The QOS by which the database can look for the row; `None`: the job waits with several.
fn qos_of(row: &JobRow) -> Option<&str> {
    let named = row.qos.as_deref().unwrap_or("");
    (!are_several(Some(named))).then_some(named)
}

pub(crate) async fn put_jobs(
    link: &mut Link<'_>,
    cluster: i64,
    rows: impl Iterator<Item = &JobRow>,
) -> Result<(), StoreError> {
    let text = |text: &str| Value::Text(Some(Cow::Owned(column(text).into_owned())));
    let values = |row: &JobRow| {
        let amounts = if row.allocated.is_empty() { &row.requested } else { &row.allocated };
        vec![
            cluster.into(),
            i64::from(row.job.0).into(),
            signed(row.sluid.0).into(),
            row.array_task.map(|task| i64::from(task.array_job.0)).into(),
            row.het.map(|(leader, _)| i64::from(leader.0)).into(),
            i64::from(row.uid).into(),
            i64::from(row.gid).into(),
            row.account.as_deref().map(|account| Cow::Owned(column(account).into_owned())).into(),
            row.state.word().into(),
            row.eligible.unwrap_or(row.submit).0.into(),
            row.start.map(|at| at.0).into(),
            row.end.map(|at| at.0).into(),
            signed(amounts.count(garrick_accounts::tres::CPU)).into(),
            signed(amounts.count(garrick_accounts::tres::NODE)).into(),
            text(&row.name),
            part_of(row).map_or(Value::Text(None), text),
            qos_of(row).map_or(Value::Text(None), text),
            text(row.wckey.as_deref().unwrap_or("")),
            FORM.into(),
            encoded(row).into(),
        ]
    };
    Ok(link.put(&JOBS, rows.map(values).collect()).await?)
}

/// A step that is to be stored.
struct Reported {
    job: JobId,
    key: StepKey,
    progress: i64,
    joules: u64,
    columns: Vec<Value<'static>>,
}

/// Steps by run, number and task: only what says most of a step is written.
#[derive(Default)]
struct Steps(BTreeMap<(i64, i64, i64), Reported>);

impl Steps {
    fn take(&mut self, cluster: i64, (job, sluid): (JobId, Sluid), packed: &PackedSteps) {
        let report = match packed.unpack() {
            Ok(report) => report,
            // It will not get better: a node's step manager made it.
            Err(error) => return tracing::error!(job = job.0, %error, "a report of steps cannot be read"),
        };
        for step in StepRecord::all(job, sluid, &report) {
            let (sluid, (number, task)) = (signed(step.sluid.0), numbers(step.key));
            let progress = progress(&step);
            let key = (sluid, number, task);
            if self.0.get(&key).is_some_and(|there| there.progress > progress) {
                continue;
            }
            let (joules, columns) = (step.usage.energy_joules, step_row(cluster, &step));
            self.0.insert(key, Reported { job, key: step.key, progress, joules, columns });
        }
    }
}

/// Adds the energy of steps to the rows of their runs: what more it is than what is stored of them, as reports may come again.
async fn add_energy(
    link: &mut Link<'_>,
    cluster: i64,
    steps: &Steps,
    known: &mut Known,
    changed: &mut BTreeMap<Sluid, JobRow>,
) -> Result<(), StoreError> {
    let measured: Vec<(&(i64, i64, i64), &Reported)> = steps.0.iter().filter(|(_, step)| step.joules > 0).collect();
    let mut stored: BTreeMap<(i64, i64, i64), (i64, u64)> = BTreeMap::new();
    for some in measured.chunks(CHUNK) {
        let keys: Vec<[i64; 3]> = some.iter().map(|(key, _)| [key.0, key.1, key.2]).collect();
        let these = link.dialect().among(&["sluid", "step", "task"], &keys);
        let sql = format!("SELECT sluid, step, task, progress, body FROM steps WHERE cluster = {cluster} AND {these}");
        for row in &link.rows(Statement::built(sql)).await? {
            let key = (row.number(0)?, row.number(1)?, row.number(2)?);
            let step: Option<StepRecord> = readable(row.bytes(4)?, JobId(0));
            stored.insert(key, (row.number(3)?, step.map_or(0, |step| step.usage.energy_joules)));
        }
    }
    for (key, step) in measured {
        let (progress, before) = stored.get(key).copied().unwrap_or_default();
        // What is stored stays.
        if progress > step.progress || before >= step.joules {
            continue;
        }
        let sluid = Sluid(unsigned(key.0));
        let row = match changed.entry(sluid) {
            Entry::Occupied(there) => there.into_mut(),
            Entry::Vacant(place) => {
                let newest = known.get(&(cluster, step.job)).filter(|row| row.sluid == sluid).cloned();
                let row = match newest {
                    Some(row) => Some(row),
                    None => stored_runs(link, &[[cluster, step.job.0.into(), key.0]]).await?.remove(&sluid),
                };
                // Of runs that are not recorded nothing is.
                let Some(row) = row else { continue };
                place.insert(row)
            }
        };
        row.energy.add(step.key.step, step.joules - before);
        if let Some(newest) = known.get_mut(&(cluster, step.job)).filter(|newest| newest.sluid == sluid) {
            newest.energy = row.energy;
        }
    }
    Ok(())
}

/// Takes over from what is stored of these runs what their controller does not know.
async fn remember(link: &mut Link<'_>, cluster: i64, rows: &mut [JobRow]) -> Result<(), StoreError> {
    for some in rows.chunks_mut(CHUNK) {
        let keys: Vec<[i64; 3]> = some.iter().map(|row| [cluster, i64::from(row.job.0), signed(row.sluid.0)]).collect();
        let stored = stored_runs(link, &keys).await?;
        for row in some {
            if let Some(known) = stored.get(&row.sluid) {
                row.remember(known);
            }
        }
    }
    Ok(())
}

/// The columns of a step.
fn step_row(cluster: i64, step: &StepRecord) -> Vec<Value<'static>> {
    let (number, task) = numbers(step.key);
    vec![
        cluster.into(),
        signed(step.sluid.0).into(),
        number.into(),
        task.into(),
        progress(step).into(),
        step.start.map(|at| at.0).into(),
        step.end.map(|at| at.0).into(),
        signed(step.allocated.count(garrick_accounts::tres::CPU)).into(),
        FORM.into(),
        encoded(step).into(),
    ]
}

/// Stores a step, unless more is known of it.
pub(crate) async fn put_step(link: &mut Link<'_>, cluster: i64, step: &StepRecord) -> Result<(), StoreError> {
    Ok(link.put(&STEPS, vec![step_row(cluster, step)]).await?)
}

/// How much a record says of a step.
fn progress(step: &StepRecord) -> i64 {
    i64::from(step.attempt) * 4 + i64::from(step.state.is_over()) * 2 + i64::from(step.start.is_some())
}

/// A step's numbers, in the order in which sacct(1) shows steps.
pub(crate) fn numbers(key: StepKey) -> (i64, i64) {
    let step = match key.step {
        StepNum::Batch => -3,
        StepNum::Extern => -2,
        StepNum::Interactive => -1,
        StepNum::Number(number) => number.into(),
    };
    (step, key.array.map_or(-1, i64::from))
}

/// Databases have no unsigned numbers. The order of those that occur stays.
pub(crate) const fn signed(number: u64) -> i64 {
    number.cast_signed()
}

const fn unsigned(number: i64) -> u64 {
    number.cast_unsigned()
}

/// The body of a row.
pub(crate) fn encoded<T: Serialize>(row: &T) -> Vec<u8> {
    rmp_serde::to_vec_named(row).expect("rows hold nothing that cannot be encoded")
}

/// A row from its body.
pub(crate) fn decoded<T: DeserializeOwned>(body: &[u8]) -> Result<T, StoreError> {
    rmp_serde::from_slice(body).map_err(|e| StoreError::Row(e.to_string()))
}

#[cfg(test)]
#[path = "store_test.rs"]
mod tests;
