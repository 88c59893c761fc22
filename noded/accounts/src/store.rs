//! The database. Rows of a batch and its position are stored in one transaction: whatever is killed, an event counts once. One
//! connection writes; questions have connections of their own ([`crate::pages`]).
//!
//! What is asked for, summed up or ordered by has columns. The rest of a row is in its body (MessagePack, with names): rows gain
//! fields with each version, and a column for each would have to be added to years of rows at once.

use crate::{entities, texts};
use garrick_accounts::{messages::LogId, row::JobRow, step::StepRecord};
use garrick_events::records::job_event::JobEvent;
use garrick_events::{event::ControllerEvent, progress::Position, records::job::JobRecord};
use garrick_kernel::files::{self, FileError};
use garrick_model::{
    entities::Entities,
    ids::{JobId, Sluid, StepKey, StepNum},
    packed_steps::PackedSteps,
};
use serde::{Serialize, de::DeserializeOwned};
use sqlx::{
    Connection as _, Row as _, Sqlite, SqliteConnection, SqlitePool, Transaction,
    migrate::{Migration, MigrationType, Migrator},
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous},
};
use std::{
    collections::{BTreeMap, HashMap},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio::sync::{Mutex, watch};

/// Form of bodies: MessagePack with names. Others may follow.
const FORM: i64 = 1;
/// Rows of jobs that are kept in memory, as more events of them are likely.
const REMEMBERED: usize = 50_000;
/// Connections that read.
const READERS: u32 = 4;
/// Another process that has the file (a copy is being made) is waited for so long.
const BUSY: Duration = Duration::from_secs(30);

/// The database failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Its folder or file.
    #[error(transparent)]
    File(#[from] FileError),
    /// The file could not be made.
    #[error("cannot create {}: {cause}", path.display())]
    Create {
        /// Which.
        path: PathBuf,
        /// Why not.
        cause: std::io::Error,
    },
    /// A statement.
    #[error("the database: {0}")]
    Sql(#[from] sqlx::Error),
    /// It is of a later version, or was changed.
    #[error("the tables of the database: {0}")]
    Schema(#[from] sqlx::migrate::MigrateError),
    /// A row cannot be read.
    #[error("a row of the database cannot be read: {0}")]
    Row(String),
    /// Events are missing in between.
    #[error("events come after {after}, and {stored} is stored")]
    Gap {
        /// The batch follows this position.
        after: Position,
        /// What is stored.
        stored: Position,
    },
    /// The controller has not said which log it is, or another one took its place.
    #[error("cluster {0} is fed from another log now")]
    OtherLog(String),
}

/// See the module.
pub struct Store {
    /// The database file.
    pub(crate) path: PathBuf,
    pub(crate) writer: Mutex<Writer>,
    /// Accounts, users, associations and QOS, as they are on disk.
    pub(crate) entities: watch::Sender<Arc<Entities>>,
    /// For questions.
    pub(crate) readers: SqlitePool,
}

pub(crate) struct Writer {
    pub(crate) connection: SqliteConnection,
    /// Newest rows of jobs, as stored.
    pub(crate) known: HashMap<(i64, JobId), JobRow>,
}

/// A cluster whose log is being followed.
#[derive(Clone, Debug)]
pub struct Followed {
    /// Its number in the database.
    id: i64,
    /// Its name.
    pub cluster: String,
    /// Its log.
    log: LogId,
}

fn migrator() -> Migrator {
    let all = [
        (1, "jobs and steps", include_str!("sql/0001.sql")),
        (2, "accounts, users, associations, QOS", include_str!("sql/0002.sql")),
    ];
    let migration = |(version, what, sql): (i64, &'static str, &'static str)| {
        Migration::new(version, what.into(), MigrationType::Simple, sqlx::SqlSafeStr::into_sql_str(sql), false)
    };
    Migrator::with_migrations(all.map(migration).to_vec())
}

impl Store {
    /// Opens the database file, made if it is not there: readable for this process's user only, in a folder for him only.
    pub async fn open(path: &Path) -> Result<Self, StoreError> {
        if let Some(folder) = path.parent() {
            files::create_folder(folder, 0o700)?;
        }
        let made = std::fs::OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path);
        made.map_err(|cause| StoreError::Create { path: path.to_owned(), cause })?;
        files::keep_private(path)?;
        let options = SqliteConnectOptions::new()
            .filename(path)
            .journal_mode(SqliteJournalMode::Wal)
            // A controller forgets what is answered: it has to be on disk.
            .synchronous(SqliteSynchronous::Full)
            .busy_timeout(BUSY);
        let mut connection = SqliteConnection::connect_with(&options).await?;
        migrator().run(&mut connection).await?;
        let entities = watch::Sender::new(Arc::new(entities::open(&mut connection).await?));
        let readers = SqlitePoolOptions::new()
            .max_connections(READERS)
            .min_connections(0)
            .connect_lazy_with(options.read_only(true));
        let writer = Mutex::new(Writer { connection, known: HashMap::new() });
        Ok(Self { path: path.to_owned(), writer, entities, readers })
    }

    /// A controller begins to feed. The position up to which its log is stored, and whether a snapshot was; `None`: nothing of that
    /// log.
    pub async fn follow(&self, cluster: &str, log: LogId) -> Result<(Followed, Option<(Position, bool)>), StoreError> {
        let mut writer = self.writer.lock().await;
        let mut tx = writer.connection.begin().await?;
        let found = sqlx::query("SELECT id, log_high, log_low, position, whole FROM clusters WHERE name = ?")
            .bind(cluster)
            .fetch_optional(&mut *tx)
            .await?;
        let (id, stored) = match &found {
            None => {
                let id: i64 =
                    sqlx::query_scalar("SELECT COALESCE(MAX(id), 0) + 1 FROM clusters").fetch_one(&mut *tx).await?;
                sqlx::query("INSERT INTO clusters (id, name, log_high, log_low, whole) VALUES (?, ?, ?, ?, 0)")
                    .bind(id)
                    .bind(cluster)
                    .bind(signed(log.0))
                    .bind(signed(log.1))
                    .execute(&mut *tx)
                    .await?;
                (id, None)
            }
            Some(row) => {
                let id = row.try_get(0)?;
                let same = (row.try_get(1)?, row.try_get(2)?) == (signed(log.0), signed(log.1));
                let stored: Option<i64> = if same { row.try_get(3)? } else { None };
                if !same {
                    sqlx::query(
                        "UPDATE clusters SET log_high = ?, log_low = ?, position = NULL, whole = 0 WHERE id = ?",
                    )
                    .bind(signed(log.0))
                    .bind(signed(log.1))
                    .bind(id)
                    .execute(&mut *tx)
                    .await?;
                }
                let whole: i64 = row.try_get(4)?;
                (id, stored.map(|at| (Position(unsigned(at)), whole != 0)))
            }
        };
        tx.commit().await?;
        writer.known.retain(|(of, _), _| *of != id);
        Ok((Followed { id, cluster: cluster.to_owned(), log }, stored))
    }

    /// What is stored of the log begins after that position.
    pub async fn begin(&self, of: &Followed, position: Position) -> Result<(), StoreError> {
        let mut writer = self.writer.lock().await;
        let mut tx = writer.connection.begin().await?;
        is_followed(&mut tx, of).await?;
        set_position(&mut tx, of, position).await?;
        set_whole(&mut tx, of, false).await?;
        Ok(tx.commit().await?)
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
        let mut writer = self.writer.lock().await;
        let Writer { connection, known } = &mut *writer;
        known.clear();
        let mut tx = connection.begin().await?;
        let stored = is_followed(&mut tx, of).await?.unwrap_or_default();
        if stored != position {
            return Err(StoreError::Gap { after: position, stored });
        }
        for record in jobs {
            put_job(&mut tx, of.id, &JobRow::of(&of.cluster, record)).await?;
            texts::put(&mut tx, of.id, record).await?;
        }
        if last {
            set_whole(&mut tx, of, true).await?;
        }
        Ok(tx.commit().await?)
    }

    /// Stores what events after that position come to, and the position of the last one.
    pub async fn keep(
        &self,
        of: &Followed,
        after: Position,
        upto: Position,
        events: Vec<ControllerEvent>,
    ) -> Result<(), StoreError> {
        let mut writer = self.writer.lock().await;
        let Writer { connection, known } = &mut *writer;
        let kept = keep(connection, known, of, (after, upto), events).await;
        if kept.is_err() || known.len() > REMEMBERED {
            // Nothing of the batch is stored.
            known.clear();
        }
        kept
    }
}

async fn keep(
    connection: &mut SqliteConnection,
    known: &mut HashMap<(i64, JobId), JobRow>,
    of: &Followed,
    (after, upto): (Position, Position),
    events: Vec<ControllerEvent>,
) -> Result<(), StoreError> {
    let mut tx = connection.begin().await?;
    let stored = is_followed(&mut tx, of).await?.unwrap_or_default();
    if stored != after {
        return Err(StoreError::Gap { after, stored });
    }
    // A row is written once for all events of it in the batch.
    let mut changed: BTreeMap<Sluid, JobRow> = BTreeMap::new();
    for event in events {
        match event {
            ControllerEvent::Job { job, event } => {
                if !known.contains_key(&(of.id, job))
                    && let Some(row) = newest(&mut tx, of.id, job).await?
                {
                    known.insert((of.id, job), row);
                }
                if let JobEvent::Submitted(record) = &*event {
                    // An earlier job of that number has nothing to do with it.
                    if record.array_task.is_none() {
                        texts::forget(&mut tx, of.id, job).await?;
                    }
                    texts::put(&mut tx, of.id, record).await?;
                }
                happened(known, &mut changed, of, job, &event);
            }
            ControllerEvent::Steps { job, sluid, steps } => put_steps(&mut tx, of.id, (job, sluid), &steps).await?,
            _ => {}
        }
    }
    for row in changed.values() {
        put_job(&mut tx, of.id, row).await?;
    }
    set_position(&mut tx, of, upto).await?;
    Ok(tx.commit().await?)
}

/// Applies an event to a job's newest row.
fn happened(
    known: &mut HashMap<(i64, JobId), JobRow>,
    changed: &mut BTreeMap<Sluid, JobRow>,
    of: &Followed,
    job: JobId,
    event: &JobEvent,
) {
    let key = (of.id, job);
    if matches!(event, JobEvent::Purged) {
        known.remove(&key);
        return;
    }
    let next = match known.get_mut(&key) {
        None => JobRow::submitted(&of.cluster, event),
        Some(row) => {
            let before = row.clone();
            let next = row.apply(event);
            if *row != before {
                changed.insert(row.sluid, row.clone());
            }
            next
        }
    };
    if let Some(next) = next {
        changed.insert(next.sluid, next.clone());
        known.insert(key, next);
    }
}

/// The stored position of a cluster that is still followed by that log.
async fn is_followed(tx: &mut Transaction<'_, Sqlite>, of: &Followed) -> Result<Option<Position>, StoreError> {
    let position: Option<Option<i64>> =
        sqlx::query_scalar("SELECT position FROM clusters WHERE id = ? AND log_high = ? AND log_low = ?")
            .bind(of.id)
            .bind(signed(of.log.0))
            .bind(signed(of.log.1))
            .fetch_optional(&mut **tx)
            .await?;
    let position = position.ok_or_else(|| StoreError::OtherLog(of.cluster.clone()))?;
    Ok(position.map(|at| Position(unsigned(at))))
}

async fn set_position(tx: &mut Transaction<'_, Sqlite>, of: &Followed, position: Position) -> Result<(), StoreError> {
    sqlx::query("UPDATE clusters SET position = ? WHERE id = ?")
        .bind(signed(position.0))
        .bind(of.id)
        .execute(&mut **tx)
        .await?;
    Ok(())
}

async fn set_whole(tx: &mut Transaction<'_, Sqlite>, of: &Followed, whole: bool) -> Result<(), StoreError> {
    sqlx::query("UPDATE clusters SET whole = ? WHERE id = ?")
        .bind(i64::from(whole))
        .bind(of.id)
        .execute(&mut **tx)
        .await?;
    Ok(())
}

async fn newest(tx: &mut Transaction<'_, Sqlite>, cluster: i64, job: JobId) -> Result<Option<JobRow>, StoreError> {
    let body: Option<Vec<u8>> =
        sqlx::query_scalar("SELECT body FROM jobs WHERE cluster = ? AND job = ? ORDER BY sluid DESC LIMIT 1")
            .bind(cluster)
            .bind(i64::from(job.0))
            .fetch_optional(&mut **tx)
            .await?;
    Ok(body.and_then(|body| readable(&body, job)))
}

/// A row, unless it is damaged: one row must not stop all others. What is known of it is in the log.
pub(crate) fn readable<T: DeserializeOwned>(body: &[u8], job: JobId) -> Option<T> {
    decoded(body).inspect_err(|error| tracing::error!(job = job.0, %error, "a row is passed over")).ok()
}

/// Deleted and inserted: databases differ in how they replace a row.
async fn put_job(tx: &mut Transaction<'_, Sqlite>, cluster: i64, row: &JobRow) -> Result<(), StoreError> {
    let (job, sluid) = (i64::from(row.job.0), signed(row.sluid.0));
    sqlx::query("DELETE FROM jobs WHERE cluster = ? AND job = ? AND sluid = ?")
        .bind(cluster)
        .bind(job)
        .bind(sluid)
        .execute(&mut **tx)
        .await?;
    let amounts = if row.allocated.is_empty() { &row.requested } else { &row.allocated };
    sqlx::query(
        "INSERT INTO jobs (cluster, job, sluid, array_job, het_leader, uid, gid, account, state, since_ms, start_ms, end_ms, \
         cpus, nodes, form, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    )
    .bind(cluster)
    .bind(job)
    .bind(sluid)
    .bind(row.array_task.map(|task| i64::from(task.array_job.0)))
    .bind(row.het.map(|(leader, _)| i64::from(leader.0)))
    .bind(i64::from(row.uid))
    .bind(i64::from(row.gid))
    .bind(row.account.as_deref())
    .bind(row.state.word())
    .bind(row.eligible.unwrap_or(row.submit).0)
    .bind(row.start.map(|at| at.0))
    .bind(row.end.map(|at| at.0))
    .bind(signed(amounts.count(garrick_accounts::tres::CPU)))
    .bind(signed(amounts.count(garrick_accounts::tres::NODE)))
    .bind(FORM)
    .bind(encoded(row))
    .execute(&mut **tx)
    .await?;
    Ok(())
}

async fn put_steps(
    tx: &mut Transaction<'_, Sqlite>,
    cluster: i64,
    (job, sluid): (JobId, Sluid),
    packed: &PackedSteps,
) -> Result<(), StoreError> {
    let report = match packed.unpack() {
        Ok(report) => report,
        Err(error) => {
            // It will not get better: a node's step manager made it.
            tracing::error!(job = job.0, %error, "a report of steps cannot be read");
            return Ok(());
        }
    };
    for step in StepRecord::all(job, sluid, &report) {
        put_step(tx, cluster, &step).await?;
    }
    Ok(())
}

/// What came earlier or says less does not replace what is there ([`StepRecord::follows`]).
async fn put_step(tx: &mut Transaction<'_, Sqlite>, cluster: i64, step: &StepRecord) -> Result<(), StoreError> {
    let (sluid, (number, task)) = (signed(step.sluid.0), numbers(step.key));
    let progress = i64::from(step.attempt) * 4 + i64::from(step.state.is_over()) * 2 + i64::from(step.start.is_some());
    sqlx::query("DELETE FROM steps WHERE cluster = ? AND sluid = ? AND step = ? AND task = ? AND progress <= ?")
        .bind(cluster)
        .bind(sluid)
        .bind(number)
        .bind(task)
        .bind(progress)
        .execute(&mut **tx)
        .await?;
    sqlx::query(
        "INSERT INTO steps (cluster, sluid, step, task, progress, start_ms, end_ms, cpus, form, body) \
         SELECT ?, ?, ?, ?, ?, ?, ?, ?, ?, ? WHERE NOT EXISTS \
         (SELECT 1 FROM steps WHERE cluster = ? AND sluid = ? AND step = ? AND task = ?)",
    )
    .bind(cluster)
    .bind(sluid)
    .bind(number)
    .bind(task)
    .bind(progress)
    .bind(step.start.map(|at| at.0))
    .bind(step.end.map(|at| at.0))
    .bind(signed(step.allocated.count(garrick_accounts::tres::CPU)))
    .bind(FORM)
    .bind(encoded(step))
    .bind(cluster)
    .bind(sluid)
    .bind(number)
    .bind(task)
    .execute(&mut **tx)
    .await?;
    Ok(())
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
