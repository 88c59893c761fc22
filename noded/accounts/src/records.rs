//! Records that are changed by hand (`sacctmgr modify job`, `show runawayjobs`), and archives that are read back (`archive load`).
//! Each in one transaction. What the controller says of a job later holds.

use crate::{
    archive::Archived,
    database::{Link, Statement},
    entities::insert,
    events,
    pages::{Cursor, Question},
    store::{Store, StoreError, Writer, decoded, numbers, put_jobs, put_step, signed},
    texts,
};
use garrick_accounts::{
    change::Transaction,
    filter::Owner,
    records::{JobEdit, Modified, Which},
    row::JobRow,
    step::StepRecord,
};
use garrick_model::{
    ids::{JobId, Sluid},
    messages::encoded_bytes,
};
use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    fs::File,
    io::{self, BufRead as _, BufReader, Read as _},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

/// Rows that are changed in one transaction at most: whoever stores something waits for so long.
const MOST: usize = 100_000;
/// Bytes of what is set in them, all together.
const MOST_BYTES: usize = 64 << 20;
/// Rows of an ordinary user: whoever stores something waits for his change.
const MOST_OF_OWNER: usize = 10_000;
/// Bytes of an archive at most. One has the rows of a transaction ([`crate::purge`]).
const LONGEST: u64 = 1 << 30;

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
        owner: Option<&Owner>,
        only_try: bool,
    ) -> Result<Edited, StoreError> {
        let of_owner = owner.map_or(MOST, |_| MOST_OF_OWNER);
        let most = (MOST_BYTES / encoded_bytes(edit).max(1)).min(of_owner);
        let mut found = Vec::new();
        let (mut cursor, mut after) = (Cursor::default(), None);
        loop {
            let question = Question { filter: &which.filter, steps: false, after: after.as_ref(), only: None };
            let page = self.page(question, &mut cursor).await?;
            found.extend(page.jobs.into_iter().map(|job| job.row).filter(|row| which.takes(row) && edit.fits(row)));
            if owner.is_some_and(|owner| !found.iter().all(|row| owner.has(row))) {
                return Ok(Edited::Denied);
            }
            if found.len() > most {
                return Ok(Edited::TooMany);
            }
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        if !only_try {
            self.write(async |writer| {
                let mut rows = Vec::new();
                for row in &found {
                    // More may be known of it by now.
                    rows.extend(current(writer, &row.cluster, row.job, row.sluid).await?);
                }
                rows.iter_mut().for_each(|row| edit.on(row));
                write(writer, &rows).await
            })
            .await?;
        }
        Ok(Edited::Done(found.iter().map(Modified::from).collect()))
    }

    /// Gives these runs an end, where they have none ([`JobRow::repair`]). How many got one.
    pub async fn repair(&self, cluster: &str, runs: &[(JobId, Sluid)], failed: bool) -> Result<u64, StoreError> {
        self.write(async |writer| {
            let mut rows = Vec::new();
            for (job, run) in runs {
                let row = current(writer, cluster, *job, *run).await?;
                rows.extend(row.and_then(|mut row| row.repair(failed).then_some(row)));
            }
            write(writer, &rows).await?;
            Ok(rows.len() as u64)
        })
        .await
    }

    /// Stores records of an archive that are not there, or only counts them.
    pub async fn load(&self, file: &Path, only_try: bool) -> Result<Loaded, LoadError> {
        let path = file.to_owned();
        let lines = tokio::task::spawn_blocking(move || read(&path)).await;
        let lines = lines.map_err(|error| LoadError::File(io::Error::other(error)))??;
        self.write(async |writer| match load(writer, lines, only_try).await {
            Err(LoadError::Store(error)) => Err(error),
            done => Ok(done),
        })
        .await?
    }
}

/// Stores records that are not there.
async fn load(writer: &mut Writer, lines: Vec<Archived>, only_try: bool) -> Result<Loaded, LoadError> {
    let mut tx = writer.connection()?.begin().await?;
    let mut link = tx.link();
    let mut clusters = BTreeMap::new();
    for row in &link.rows(Statement::of("SELECT name, id FROM clusters")).await? {
        clusters.insert(row.text(0)?.to_owned(), row.number(1)?);
    }
    let id = |name: &String| clusters.get(name).copied().ok_or_else(|| LoadError::Cluster(name.clone()));
    let (mut loaded, mut transactions) = (Loaded::default(), Vec::new());
    for line in lines {
        match line {
            Archived::Job(row) => loaded.note(load_job(&mut link, id(&row.cluster)?, &row).await?),
            Archived::Step { cluster, step } => loaded.note(load_step(&mut link, id(&cluster)?, &step).await?),
            Archived::Event(event) => loaded.note(events::load_event(&mut link, id(&event.cluster)?, &event).await?),
            Archived::Reservation(row) => {
                loaded.note(events::load_reservation(&mut link, id(&row.cluster)?, &row).await?);
            }
            Archived::Text { cluster, job, which, words } => {
                loaded.note(texts::load(&mut link, id(&cluster)?, (job, which), &words).await?);
            }
            Archived::Transaction(one) => transactions.push(one),
            Archived::Unreadable { .. } => tracing::warn!("a record of an archive was damaged before"),
        }
    }
    load_transactions(&mut link, transactions, &mut loaded).await?;
    if only_try {
        return Ok(loaded);
    }
    tx.commit().await?;
    writer.known.clear();
    Ok(loaded)
}

/// A run as it is stored now.
async fn current(writer: &mut Writer, cluster: &str, job: JobId, run: Sluid) -> Result<Option<JobRow>, StoreError> {
    let row = Statement::of(
        "SELECT body FROM jobs WHERE cluster = (SELECT id FROM clusters WHERE name = ?) AND job = ? AND sluid = ?",
    );
    let row = row.with(cluster).with(i64::from(job.0)).with(signed(run.0));
    match writer.connection()?.link().row(row).await? {
        Some(row) => Ok(Some(decoded(row.bytes(0)?)?)),
        None => Ok(None),
    }
}

/// Writes rows that are there anew.
async fn write(writer: &mut Writer, rows: &[JobRow]) -> Result<(), StoreError> {
    let mut tx = writer.connection()?.begin().await?;
    let mut link = tx.link();
    let clusters: BTreeSet<&str> = rows.iter().map(|row| row.cluster.as_str()).collect();
    for cluster in clusters {
        let of = Statement::of("SELECT id FROM clusters WHERE name = ?").with(cluster);
        let id = link.row(of).await?.ok_or(sqlx::Error::RowNotFound)?.number(0)?;
        put_jobs(&mut link, id, rows.iter().filter(|row| row.cluster == cluster)).await?;
    }
    tx.commit().await?;
    if !rows.is_empty() {
        writer.known.clear();
    }
    Ok(())
}

/// The records of an archive. A link is not followed: the file is where it is said to be.
fn read(path: &Path) -> Result<Vec<Archived>, LoadError> {
    let file = File::options()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path)
        .map_err(LoadError::File)?;
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

/// True: it was not there.
async fn load_job(link: &mut Link<'_>, cluster: i64, row: &JobRow) -> Result<bool, StoreError> {
    let known = Statement::of("SELECT 1 FROM jobs WHERE cluster = ? AND job = ? AND sluid = ?");
    let known = known.with(cluster).with(i64::from(row.job.0)).with(signed(row.sluid.0));
    let is_new = link.row(known).await?.is_none();
    if is_new {
        put_jobs(link, cluster, std::iter::once(row)).await?;
    }
    Ok(is_new)
}

async fn load_step(link: &mut Link<'_>, cluster: i64, step: &StepRecord) -> Result<bool, StoreError> {
    let (number, task) = numbers(step.key);
    let known = Statement::of("SELECT 1 FROM steps WHERE cluster = ? AND sluid = ? AND step = ? AND task = ?");
    let known = known.with(cluster).with(signed(step.sluid.0)).with(number).with(task);
    let is_new = link.row(known).await?.is_none();
    if is_new {
        put_step(link, cluster, step).await?;
    }
    Ok(is_new)
}

/// Transactions have no key: each comes as often as it is in the archive and not yet in the database.
async fn load_transactions(
    link: &mut Link<'_>,
    archived: Vec<Transaction>,
    loaded: &mut Loaded,
) -> Result<(), StoreError> {
    let mut known: BTreeMap<i64, Vec<Transaction>> = BTreeMap::new();
    for one in archived {
        let there = match known.entry(one.time.0) {
            Entry::Occupied(there) => there.into_mut(),
            Entry::Vacant(new) => new.insert(transactions_at(link, one.time.0).await?),
        };
        let found = there.iter().position(|known| *known == one);
        loaded.note(found.is_none());
        match found {
            // The next one like it is another one.
            Some(at) => drop(there.swap_remove(at)),
            None => insert(link, &one).await?,
        }
    }
    Ok(())
}

async fn transactions_at(link: &mut Link<'_>, at: i64) -> Result<Vec<Transaction>, StoreError> {
    let rows = link.rows(Statement::of("SELECT body FROM transactions WHERE time_ms = ?").with(at)).await?;
    rows.iter().map(|row| decoded(row.bytes(0)?)).collect()
}

#[cfg(test)]
#[path = "records_test.rs"]
mod tests;
