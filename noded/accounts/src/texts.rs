//! Scripts and environments of batch jobs (`AccountingStoreFlags`). Many jobs have the same: a text is stored once, by its SHA-256.

use crate::store::{Store, StoreError, readable, signed};
use garrick_accounts::row::JobRow;
use garrick_events::records::job::JobRecord;
use garrick_model::ids::{JobId, Sluid};
use sha2::{Digest as _, Sha256};
use sqlx::{Row as _, Sqlite, Transaction};

/// A text of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Text {
    /// The batch script, as it was submitted.
    Script = 1,
    /// The environment, a line for each variable.
    Environment = 2,
}

impl Store {
    /// A text of a run, and the run's owner; `None`: there is no such run.
    pub async fn text(&self, run: Sluid, which: Text) -> Result<Option<(u32, Option<Vec<u8>>)>, StoreError> {
        let found =
            sqlx::query("SELECT cluster, job, body FROM jobs WHERE cluster IN (SELECT id FROM clusters) AND sluid = ?")
                .bind(signed(run.0))
                .fetch_optional(&self.readers)
                .await?;
        let Some(found) = found else { return Ok(None) };
        let (cluster, job): (i64, i64) = (found.try_get(0)?, found.try_get(1)?);
        let Some(row) = readable::<JobRow>(found.try_get(2)?, JobId(u32::try_from(job).unwrap_or(u32::MAX))) else {
            return Ok(None);
        };
        // Tasks of an array have those of the array.
        let of = row.array_task.map_or(row.job, |task| task.array_job);
        // The text is that of the newest job of this number.
        let owner: Option<i64> = sqlx::query_scalar(
            "SELECT uid FROM jobs WHERE cluster = ? AND (job = ? OR array_job = ?) ORDER BY sluid DESC LIMIT 1",
        )
        .bind(cluster)
        .bind(i64::from(of.0))
        .bind(i64::from(of.0))
        .fetch_optional(&self.readers)
        .await?;
        if owner != Some(i64::from(row.uid)) {
            return Ok(Some((row.uid, None)));
        }
        let text: Option<Vec<u8>> = sqlx::query_scalar(
            "SELECT texts.body FROM works JOIN texts ON texts.hash = works.hash \
             WHERE works.cluster = ? AND works.job = ? AND works.kind = ?",
        )
        .bind(cluster)
        .bind(i64::from(of.0))
        .bind(which as i64)
        .fetch_optional(&self.readers)
        .await?;
        Ok(Some((row.uid, text)))
    }
}

/// A job has none.
pub(crate) async fn forget(tx: &mut Transaction<'_, Sqlite>, cluster: i64, job: JobId) -> Result<(), StoreError> {
    sqlx::query("DELETE FROM works WHERE cluster = ? AND job = ?")
        .bind(cluster)
        .bind(i64::from(job.0))
        .execute(&mut **tx)
        .await?;
    Ok(())
}

/// Stores what a job's record has of them.
pub(crate) async fn put(tx: &mut Transaction<'_, Sqlite>, cluster: i64, record: &JobRecord) -> Result<(), StoreError> {
    if let Some(script) = &record.spec.script {
        put_text(tx, (cluster, record.id), Text::Script, script).await?;
    }
    if !record.spec.environment.is_empty() {
        let mut lines = Vec::new();
        for entry in record.spec.environment.iter() {
            lines.extend_from_slice(entry);
            lines.push(b'\n');
        }
        put_text(tx, (cluster, record.id), Text::Environment, &lines).await?;
    }
    Ok(())
}

async fn put_text(
    tx: &mut Transaction<'_, Sqlite>,
    (cluster, job): (i64, JobId),
    which: Text,
    text: &[u8],
) -> Result<(), StoreError> {
    let hash = Sha256::digest(text).to_vec();
    sqlx::query("INSERT INTO texts (hash, body) SELECT ?, ? WHERE NOT EXISTS (SELECT 1 FROM texts WHERE hash = ?)")
        .bind(&hash)
        .bind(text)
        .bind(&hash)
        .execute(&mut **tx)
        .await?;
    sqlx::query("DELETE FROM works WHERE cluster = ? AND job = ? AND kind = ?")
        .bind(cluster)
        .bind(i64::from(job.0))
        .bind(which as i64)
        .execute(&mut **tx)
        .await?;
    sqlx::query("INSERT INTO works (cluster, job, kind, hash) VALUES (?, ?, ?, ?)")
        .bind(cluster)
        .bind(i64::from(job.0))
        .bind(which as i64)
        .bind(&hash)
        .execute(&mut **tx)
        .await?;
    Ok(())
}
