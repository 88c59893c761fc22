//! Purging what is old, and archiving it before. A file of an archive has a line of JSON for each record. It is on disk before the
//! records are deleted: after a crash in between, they are in two files, and nothing is lost.

use crate::store::{Store, StoreError, decoded};
use garrick_accounts::{change::Transaction, row::JobRow, step::StepRecord};
use garrick_kernel::files;
use garrick_model::{
    config::purge::{Age, PurgeSettings},
    time::Timestamp,
};
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use sqlx::{Connection as _, QueryBuilder, Row as _, Sqlite, SqliteConnection};
use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

/// A line of an archive.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Archived {
    /// A run of a job.
    Job(Box<JobRow>),
    /// A step, and its cluster.
    Step {
        /// `ClusterName`.
        cluster: String,
        /// The step.
        step: Box<StepRecord>,
    },
    /// A line of the list of transactions.
    Transaction(Transaction),
    /// A record that cannot be read, as it is in the database.
    Unreadable {
        /// Its bytes.
        body: Vec<u8>,
    },
}

impl Archived {
    /// A record, or its bytes where it cannot be read: one must not keep all others.
    fn of<T: DeserializeOwned>(body: &[u8], line: impl FnOnce(T) -> Self) -> Self {
        decoded(body).map_or_else(|_| Self::Unreadable { body: body.to_vec() }, line)
    }
}

/// What a purge came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Purged {
    /// Runs of jobs.
    pub jobs: u64,
    /// Steps.
    pub steps: u64,
    /// Transactions.
    pub transactions: u64,
    /// Scripts and environments of jobs.
    pub texts: u64,
}

/// What a purge goes by.
struct Purge<'p> {
    settings: &'p PurgeSettings,
    folder: &'p Path,
    now: Timestamp,
    zone: TimeZone,
}

impl Purge<'_> {
    /// What is older ended before that time.
    fn before(&self, age: Option<Age>) -> Option<Timestamp> {
        age?.before(self.now, &self.zone)
    }
}

impl Store {
    /// Purges what is so old now, in the machine's time zone, in parts: between them, others store.
    pub async fn purge(&self, settings: &PurgeSettings, now: Timestamp) -> Result<Purged, StoreError> {
        let beside = self.path.with_file_name("archive");
        let folder = settings.folder.as_deref().unwrap_or(&beside);
        let purge = Purge { settings, folder, now, zone: TimeZone::system() };
        let mut purged = Purged::default();
        let clusters: Vec<(i64, String)> =
            sqlx::query_as("SELECT id, name FROM clusters ORDER BY id").fetch_all(&self.readers).await?;
        for (id, name) in &clusters {
            if let Some(before) = purge.before(settings.steps) {
                while self.purge_steps(&purge, (*id, name), before, &mut purged).await? {}
            }
            for (age, kind) in [(settings.scripts, 1), (settings.environments, 2)] {
                if let Some(before) = purge.before(age) {
                    purged.texts += self.purge_texts(*id, kind, before).await?;
                }
            }
            if let Some(before) = purge.before(settings.jobs) {
                while self.purge_jobs(&purge, (*id, name), before, &mut purged).await? {}
            }
        }
        if let Some(before) = purge.before(settings.transactions) {
            while self.purge_transactions(&purge, before, &mut purged).await? {}
        }
        Ok(purged)
    }

    /// Steps that ended before that time. True: there may be more.
    async fn purge_steps(
        &self,
        purge: &Purge<'_>,
        (id, name): (i64, &str),
        before: Timestamp,
        purged: &mut Purged,
    ) -> Result<bool, StoreError> {
        let mut writer = self.writer.lock().await;
        let rows =
            sqlx::query("SELECT sluid, step, task, end_ms, body FROM steps WHERE cluster = ? AND end_ms < ? LIMIT ?")
                .bind(id)
                .bind(before.0)
                .bind(purge.settings.at_a_time)
                .fetch_all(&mut writer.connection)
                .await?;
        let mut keys = Vec::new();
        for row in &rows {
            let (sluid, step, task): (i64, i64, i64) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
            keys.push(format!("({id}, {sluid}, {step}, {task})"));
        }
        if purge.settings.archive_steps {
            let mut lines = Vec::new();
            for row in &rows {
                lines.push((row.try_get(3)?, step_line(name, row.try_get(4)?)));
            }
            archive(purge.folder, name, "step", &lines)?;
        }
        delete(&mut writer.connection, "steps", "cluster, sluid, step, task", &keys).await?;
        purged.steps += keys.len() as u64;
        Ok(!keys.is_empty())
    }

    /// Jobs that ended before that time, with their steps, scripts and environments.
    async fn purge_jobs(
        &self,
        purge: &Purge<'_>,
        (id, name): (i64, &str),
        before: Timestamp,
        purged: &mut Purged,
    ) -> Result<bool, StoreError> {
        let mut writer = self.writer.lock().await;
        let rows = sqlx::query(
            "SELECT job, sluid, end_ms, body, array_job FROM jobs WHERE cluster = ? AND end_ms < ? LIMIT ?",
        )
        .bind(id)
        .bind(before.0)
        .bind(purge.settings.at_a_time)
        .fetch_all(&mut writer.connection)
        .await?;
        let mut runs: Vec<(i64, i64)> = Vec::new();
        let mut jobs_and_arrays: BTreeSet<i64> = BTreeSet::new();
        for row in &rows {
            runs.push((row.try_get(0)?, row.try_get(1)?));
            jobs_and_arrays.extend([row.try_get(0)?, row.try_get::<Option<i64>, _>(4)?.unwrap_or_default()]);
        }
        if purge.settings.archive_jobs || purge.settings.archive_steps {
            let (mut lines, mut steps) = (Vec::new(), Vec::new());
            for row in &rows {
                let end: i64 = row.try_get(2)?;
                for body in steps_of(&mut writer.connection, id, row.try_get(1)?).await? {
                    steps.push((end, step_line(name, &body)));
                }
                lines.push((end, Archived::of(row.try_get(3)?, |job: JobRow| Archived::Job(Box::new(job)))));
            }
            archive(purge.folder, name, "step", &steps)?;
            if purge.settings.archive_jobs {
                archive(purge.folder, name, "job", &lines)?;
            }
        }
        let mut tx = writer.connection.begin().await?;
        for (_, sluid) in &runs {
            let gone = sqlx::query("DELETE FROM steps WHERE cluster = ? AND sluid = ?")
                .bind(id)
                .bind(sluid)
                .execute(&mut *tx)
                .await?;
            purged.steps += gone.rows_affected();
        }
        let keys: Vec<String> = runs.iter().map(|(job, sluid)| format!("({id}, {job}, {sluid})")).collect();
        delete(&mut tx, "jobs", "cluster, job, sluid", &keys).await?;
        for job in jobs_and_arrays {
            forget_texts(&mut tx, id, job).await?;
        }
        drop_unused_texts(&mut tx).await?;
        tx.commit().await?;
        let gone: BTreeSet<i64> = runs.iter().map(|(job, _)| *job).collect();
        writer.known.retain(|(of, job), _| *of != id || !gone.contains(&i64::from(job.0)));
        purged.jobs += runs.len() as u64;
        Ok(!runs.is_empty())
    }

    /// Scripts (1) or environments (2) of jobs that ended before that time. How many jobs.
    async fn purge_texts(&self, cluster: i64, kind: i64, before: Timestamp) -> Result<u64, StoreError> {
        let mut writer = self.writer.lock().await;
        let mut tx = writer.connection.begin().await?;
        let gone = sqlx::query(
            "DELETE FROM works WHERE cluster = ? AND kind = ? AND NOT EXISTS (SELECT 1 FROM jobs WHERE \
             jobs.cluster = works.cluster AND jobs.job = works.job AND (jobs.end_ms IS NULL OR jobs.end_ms >= ?)) \
             AND NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.cluster = works.cluster AND jobs.array_job = works.job \
             AND (jobs.end_ms IS NULL OR jobs.end_ms >= ?))",
        )
        .bind(cluster)
        .bind(kind)
        .bind(before.0)
        .bind(before.0)
        .execute(&mut *tx)
        .await?;
        drop_unused_texts(&mut tx).await?;
        tx.commit().await?;
        Ok(gone.rows_affected())
    }

    async fn purge_transactions(
        &self,
        purge: &Purge<'_>,
        before: Timestamp,
        purged: &mut Purged,
    ) -> Result<bool, StoreError> {
        let mut writer = self.writer.lock().await;
        let rows = sqlx::query("SELECT id, time_ms, body FROM transactions WHERE time_ms < ? LIMIT ?")
            .bind(before.0)
            .bind(purge.settings.at_a_time)
            .fetch_all(&mut writer.connection)
            .await?;
        let mut keys = Vec::new();
        for row in &rows {
            keys.push(row.try_get::<i64, _>(0)?.to_string());
        }
        if purge.settings.archive_transactions {
            let mut lines = Vec::new();
            for row in &rows {
                lines.push((row.try_get(1)?, Archived::of(row.try_get(2)?, Archived::Transaction)));
            }
            archive(purge.folder, "slurmdbd", "txn", &lines)?;
        }
        delete(&mut writer.connection, "transactions", "id", &keys).await?;
        purged.transactions += keys.len() as u64;
        Ok(!keys.is_empty())
    }
}

/// Bodies of all steps of a run.
async fn steps_of(connection: &mut SqliteConnection, cluster: i64, run: i64) -> Result<Vec<Vec<u8>>, StoreError> {
    let rows = sqlx::query("SELECT body FROM steps WHERE cluster = ? AND sluid = ?")
        .bind(cluster)
        .bind(run)
        .fetch_all(connection)
        .await?;
    rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
}

fn step_line(cluster: &str, body: &[u8]) -> Archived {
    let line = |step: StepRecord| Archived::Step { cluster: cluster.to_owned(), step: Box::new(step) };
    Archived::of(body, line)
}

/// Deletes rows by their keys, as text of a statement.
async fn delete(
    connection: &mut SqliteConnection,
    table: &str,
    columns: &str,
    keys: &[String],
) -> Result<(), StoreError> {
    for keys in keys.chunks(1_000) {
        let mut sql = QueryBuilder::<Sqlite>::new(format!("DELETE FROM {table} WHERE ({columns}) IN (VALUES "));
        let of_one = |key: &String| if key.starts_with('(') { key.clone() } else { format!("({key})") };
        sql.push(keys.iter().map(of_one).collect::<Vec<_>>().join(", ")).push(")");
        sql.build().execute(&mut *connection).await?;
    }
    Ok(())
}

/// A job that has no runs any more, and an array without tasks, have no script either.
async fn forget_texts(tx: &mut sqlx::Transaction<'_, Sqlite>, cluster: i64, job: i64) -> Result<(), StoreError> {
    sqlx::query(
        "DELETE FROM works WHERE cluster = ? AND job = ? \
         AND NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.cluster = works.cluster AND jobs.job = works.job) \
         AND NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.cluster = works.cluster AND jobs.array_job = works.job)",
    )
    .bind(cluster)
    .bind(job)
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// Deletes texts that no job has any more.
async fn drop_unused_texts(tx: &mut sqlx::Transaction<'_, Sqlite>) -> Result<(), StoreError> {
    sqlx::query("DELETE FROM texts WHERE NOT EXISTS (SELECT 1 FROM works WHERE works.hash = texts.hash)")
        .execute(&mut **tx)
        .await?;
    Ok(())
}

/// Writes lines, each with the time by which it was chosen, into a new file of the archive: `CLUSTER_KIND_table_archive_FROM_TO`, as
/// slurmdbd.conf(5) names them, for this process's user only.
fn archive(folder: &Path, cluster: &str, kind: &str, lines: &[(i64, Archived)]) -> Result<(), StoreError> {
    let (Some(first), Some(last)) = (lines.iter().map(|(at, _)| *at).min(), lines.iter().map(|(at, _)| *at).max())
    else {
        return Ok(());
    };
    let mut bytes = Vec::new();
    for (_, line) in lines {
        serde_json::to_writer(&mut bytes, line).map_err(|e| StoreError::Row(e.to_string()))?;
        bytes.push(b'\n');
    }
    files::create_folder(folder, 0o700)?;
    let name = format!("{cluster}_{kind}_table_archive_{}_{}", clock(first), clock(last));
    let path = (1u32..)
        .map(|n| folder.join(if n == 1 { name.clone() } else { format!("{name}.{n}") }))
        .find(|path| !path.exists());
    let path: PathBuf = path.unwrap_or_else(|| folder.join(&name));
    tracing::info!(file = %path.display(), lines = lines.len(), "archived");
    Ok(files::replace_for_good(&path, &bytes, 0o600)?)
}

/// `2026-11-23T08:00:00` in the machine's time zone.
fn clock(ms: i64) -> String {
    let at = jiff::Timestamp::from_millisecond(ms).unwrap_or_default().to_zoned(TimeZone::system());
    at.strftime("%Y-%m-%dT%H:%M:%S").to_string()
}

#[cfg(test)]
#[path = "purge_test.rs"]
mod tests;
