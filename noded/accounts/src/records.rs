//! Records that are changed by hand (`sacctmgr modify job`, `show runawayjobs`), and archives that are read back (`archive load`).
//! Each in one transaction. What the controller says of a job later holds.

use crate::{
    pages::{Cursor, Question},
    purge::Archived,
    store::{Store, StoreError, Writer, decoded, encoded, numbers, put_job, put_step, signed},
};
use garrick_accounts::{
    change::Transaction,
    records::{JobEdit, Modified, Which},
    row::JobRow,
    step::StepRecord,
};
use garrick_model::ids::{JobId, Sluid};
use sqlx::{Connection as _, Row as _, Sqlite};
use std::{
    collections::{BTreeMap, btree_map::Entry},
    fs::File,
    io::{self, BufRead as _, BufReader, Read as _},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

/// Rows that are changed in one transaction at most: whoever stores something waits for so long.
const MOST: usize = 100_000;
/// Bytes of an archive at most. One has the rows of a transaction ([`crate::purge`]).
const LONGEST: u64 = 1 << 30;
/// Form of bodies: MessagePack with names.
const FORM: i64 = 1;

/// What a change of records came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Edited {
    /// These were changed, or would be.
    Done(Vec<Modified>),
    /// One of them is another user's.
    Denied,
    /// More than can be changed at a time.
    TooMany,
}

/// An archive was not read back.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file.
    #[error("{0}")]
    File(io::Error),
    /// It is none of an archive.
    #[error("line {0} is not a record of an archive")]
    Line(usize),
    /// It is longer than any archive.
    #[error("the file is too long for an archive")]
    TooLong,
    /// Records of a cluster that has not come yet.
    #[error("there is no cluster {0}")]
    Cluster(String),
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<sqlx::Error> for LoadError {
    fn from(error: sqlx::Error) -> Self {
        Self::Store(error.into())
    }
}

/// How many records of an archive came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    /// They were not there.
    pub new: u64,
    /// They were.
    pub known: u64,
}

impl Loaded {
    const fn note(&mut self, is_new: bool) {
        if is_new {
            self.new += 1;
        } else {
            self.known += 1;
        }
    }
}

impl Store {
    /// Changes the records that are meant, or only says which they are. `owner`: all of them have to be his.
    pub async fn edit(
        &self,
        which: &Which,
        edit: &JobEdit,
        owner: Option<u32>,
        only_try: bool,
    ) -> Result<Edited, StoreError> {
        let mut found = Vec::new();
        let (mut cursor, mut after) = (Cursor::default(), None);
        loop {
            let question = Question { filter: &which.filter, steps: false, after: after.as_ref(), only: None };
            let page = self.page(question, &mut cursor).await?;
            found.extend(page.jobs.into_iter().map(|job| job.row).filter(|row| which.takes(row)));
            if owner.is_some_and(|owner| found.iter().any(|row| row.uid != owner)) {
                return Ok(Edited::Denied);
            }
            if found.len() > MOST {
                return Ok(Edited::TooMany);
            }
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        if !only_try {
            let mut writer = self.writer.lock().await;
            let mut rows = Vec::new();
            for row in &found {
                // More may be known of it by now.
                rows.extend(current(&mut writer, &row.cluster, row.job, row.sluid).await?);
            }
            rows.iter_mut().for_each(|row| edit.on(row));
            write(&mut writer, &rows).await?;
        }
        Ok(Edited::Done(found.iter().map(Modified::from).collect()))
    }

    /// Gives these runs an end, where they have none ([`JobRow::repair`]). How many got one.
    pub async fn repair(&self, cluster: &str, runs: &[(JobId, Sluid)], failed: bool) -> Result<u64, StoreError> {
        let mut writer = self.writer.lock().await;
        let mut rows = Vec::new();
        for (job, run) in runs {
            let row = current(&mut writer, cluster, *job, *run).await?;
            rows.extend(row.and_then(|mut row| row.repair(failed).then_some(row)));
        }
        write(&mut writer, &rows).await?;
        Ok(rows.len() as u64)
    }

    /// Stores records of an archive that are not there, or only counts them.
    pub async fn load(&self, file: &Path, only_try: bool) -> Result<Loaded, LoadError> {
        let path = file.to_owned();
        let lines = tokio::task::spawn_blocking(move || read(&path)).await;
        let lines = lines.map_err(|error| LoadError::File(io::Error::other(error)))??;
        let mut writer = self.writer.lock().await;
        let mut tx = writer.connection.begin().await?;
        let clusters: Vec<(String, i64)> = sqlx::query_as("SELECT name, id FROM clusters").fetch_all(&mut *tx).await?;
        let clusters: BTreeMap<String, i64> = clusters.into_iter().collect();
        let id = |name: &String| clusters.get(name).copied().ok_or_else(|| LoadError::Cluster(name.clone()));
        let (mut loaded, mut transactions) = (Loaded::default(), Vec::new());
        for line in lines {
            match line {
                Archived::Job(row) => loaded.note(load_job(&mut tx, id(&row.cluster)?, &row).await?),
                Archived::Step { cluster, step } => loaded.note(load_step(&mut tx, id(&cluster)?, &step).await?),
                Archived::Transaction(one) => transactions.push(one),
                Archived::Unreadable { .. } => tracing::warn!("a record of an archive was damaged before"),
            }
        }
        load_transactions(&mut tx, transactions, &mut loaded).await?;
        if only_try {
            return Ok(loaded);
        }
        tx.commit().await?;
        writer.known.clear();
        Ok(loaded)
    }
}

/// A run as it is stored now.
async fn current(writer: &mut Writer, cluster: &str, job: JobId, run: Sluid) -> Result<Option<JobRow>, StoreError> {
    let body: Option<Vec<u8>> = sqlx::query_scalar(
        "SELECT body FROM jobs WHERE cluster = (SELECT id FROM clusters WHERE name = ?) AND job = ? AND sluid = ?",
    )
    .bind(cluster)
    .bind(i64::from(job.0))
    .bind(signed(run.0))
    .fetch_optional(&mut writer.connection)
    .await?;
    body.map(|body| decoded(&body)).transpose()
}

/// Writes rows that are there anew.
async fn write(writer: &mut Writer, rows: &[JobRow]) -> Result<(), StoreError> {
    let mut tx = writer.connection.begin().await?;
    for row in rows {
        let id: i64 =
            sqlx::query_scalar("SELECT id FROM clusters WHERE name = ?").bind(&row.cluster).fetch_one(&mut *tx).await?;
        put_job(&mut tx, id, row).await?;
    }
    tx.commit().await?;
    if !rows.is_empty() {
        writer.known.clear();
    }
    Ok(())
}

/// The records of an archive. A link is not followed: the file is where it is said to be.
fn read(path: &Path) -> Result<Vec<Archived>, LoadError> {
    const O_NOFOLLOW: i32 = 0o400_000;
    const O_NONBLOCK: i32 = 0o4_000;
    let file = File::options().read(true).custom_flags(O_NOFOLLOW | O_NONBLOCK).open(path).map_err(LoadError::File)?;
    let about = file.metadata().map_err(LoadError::File)?;
    if !about.is_file() {
        return Err(LoadError::File(io::Error::from(io::ErrorKind::InvalidInput)));
    }
    if about.len() > LONGEST {
        return Err(LoadError::TooLong);
    }
    let mut lines = Vec::new();
    for (at, line) in BufReader::new(file.take(LONGEST)).split(b'\n').enumerate() {
        let line = line.map_err(LoadError::File)?;
        lines.push(serde_json::from_slice(&line).map_err(|_| LoadError::Line(at + 1))?);
    }
    Ok(lines)
}

type Tx<'t> = sqlx::Transaction<'t, Sqlite>;

/// True: it was not there.
async fn load_job(tx: &mut Tx<'_>, cluster: i64, row: &JobRow) -> Result<bool, StoreError> {
    let known: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM jobs WHERE cluster = ? AND job = ? AND sluid = ?")
        .bind(cluster)
        .bind(i64::from(row.job.0))
        .bind(signed(row.sluid.0))
        .fetch_one(&mut **tx)
        .await?;
    if known == 0 {
        put_job(tx, cluster, row).await?;
    }
    Ok(known == 0)
}

async fn load_step(tx: &mut Tx<'_>, cluster: i64, step: &StepRecord) -> Result<bool, StoreError> {
    let (number, task) = numbers(step.key);
    let known: i64 =
        sqlx::query_scalar("SELECT COUNT(*) FROM steps WHERE cluster = ? AND sluid = ? AND step = ? AND task = ?")
            .bind(cluster)
            .bind(signed(step.sluid.0))
            .bind(number)
            .bind(task)
            .fetch_one(&mut **tx)
            .await?;
    if known == 0 {
        put_step(tx, cluster, step).await?;
    }
    Ok(known == 0)
}

/// Transactions have no key: each comes as often as it is in the archive and not yet in the database.
async fn load_transactions(tx: &mut Tx<'_>, archived: Vec<Transaction>, loaded: &mut Loaded) -> Result<(), StoreError> {
    let mut known: BTreeMap<i64, Vec<Transaction>> = BTreeMap::new();
    for one in archived {
        let there = match known.entry(one.time.0) {
            Entry::Occupied(there) => there.into_mut(),
            Entry::Vacant(new) => new.insert(transactions_at(tx, one.time.0).await?),
        };
        let found = there.iter().position(|known| *known == one);
        loaded.note(found.is_none());
        match found {
            // The next one like it is another one.
            Some(at) => drop(there.swap_remove(at)),
            None => insert(tx, &one).await?,
        }
    }
    Ok(())
}

async fn transactions_at(tx: &mut Tx<'_>, at: i64) -> Result<Vec<Transaction>, StoreError> {
    let rows = sqlx::query("SELECT body FROM transactions WHERE time_ms = ?").bind(at).fetch_all(&mut **tx).await?;
    rows.iter().map(|row| decoded(row.try_get(0)?)).collect()
}

async fn insert(tx: &mut Tx<'_>, one: &Transaction) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO transactions (id, time_ms, form, body) SELECT COALESCE(MAX(id), 0) + 1, ?, ?, ? FROM transactions",
    )
    .bind(one.time.0)
    .bind(FORM)
    .bind(encoded(one))
    .execute(&mut **tx)
    .await?;
    Ok(())
}

#[cfg(test)]
#[path = "records_test.rs"]
mod tests;
