//! Scripts and environments of batch jobs (`AccountingStoreFlags`). Many jobs have the same: a text is stored once, by its SHA-256.

use crate::{
    database::{
        Link, Statement,
        dialect::{Table, There},
    },
    store::{Store, StoreError, readable, signed},
};
use garrick_accounts::row::JobRow;
use garrick_events::records::job::JobRecord;
use garrick_model::ids::{JobId, Sluid};
use sha2::{Digest as _, Sha256};

const TEXTS: Table = Table { name: "texts", columns: &["hash", "body"], key: 1, there: There::Kept };
const WORKS: Table =
    Table { name: "works", columns: &["cluster", "job", "kind", "hash"], key: 3, there: There::Replaced };

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
        let mut reader = self.reader().await?;
        let mut link = reader.link();
        let of_run = "SELECT cluster, job, body FROM jobs WHERE cluster IN (SELECT id FROM clusters) AND sluid = ?";
        let Some(found) = link.row(Statement::of(of_run).with(signed(run.0))).await? else { return Ok(None) };
        let (cluster, job) = (found.number(0)?, found.number(1)?);
        let Some(row) = readable::<JobRow>(found.bytes(2)?, JobId(u32::try_from(job).unwrap_or(u32::MAX))) else {
            return Ok(None);
        };
        // Tasks of an array have those of the array.
        let of = i64::from(row.array_task.map_or(row.job, |task| task.array_job).0);
        // The text is that of the newest job of this number.
        let newest =
            "SELECT uid FROM jobs WHERE cluster = ? AND (job = ? OR array_job = ?) ORDER BY sluid DESC LIMIT 1";
        let newest = link.row(Statement::of(newest).with(cluster).with(of).with(of)).await?;
        if newest.map(|row| row.number(0)).transpose()? != Some(i64::from(row.uid)) {
            return Ok(Some((row.uid, None)));
        }
        let text = "SELECT texts.body FROM works JOIN texts ON texts.hash = works.hash \
                    WHERE works.cluster = ? AND works.job = ? AND works.kind = ?";
        let text = link.row(Statement::of(text).with(cluster).with(of).with(which as i64)).await?;
        Ok(Some((row.uid, text.map(|text| text.bytes(0).map(<[u8]>::to_vec)).transpose()?)))
    }
}

/// A job has none.
pub(crate) async fn forget(link: &mut Link<'_>, cluster: i64, job: JobId) -> Result<(), StoreError> {
    let gone = Statement::of("DELETE FROM works WHERE cluster = ? AND job = ?");
    link.execute(gone.with(cluster).with(i64::from(job.0))).await?;
    Ok(())
}

/// Stores what a job's record has of them.
pub(crate) async fn put(link: &mut Link<'_>, cluster: i64, record: &JobRecord) -> Result<(), StoreError> {
    if let Some(script) = &record.spec.script {
        put_text(link, (cluster, record.id), Text::Script, script).await?;
    }
    if !record.spec.environment.is_empty() {
        let mut lines = Vec::new();
        for entry in record.spec.environment.iter() {
            lines.extend_from_slice(entry);
            lines.push(b'\n');
        }
        put_text(link, (cluster, record.id), Text::Environment, &lines).await?;
    }
    Ok(())
}

async fn put_text(
    link: &mut Link<'_>,
    (cluster, job): (i64, JobId),
    which: Text,
    text: &[u8],
) -> Result<(), StoreError> {
    let hash = Sha256::digest(text).to_vec();
    // Most are there already, and may be long.
    let known = Statement::of("SELECT 1 FROM texts WHERE hash = ?").with(hash.as_slice());
    if link.row(known).await?.is_none() {
        link.put(&TEXTS, vec![vec![hash.as_slice().into(), text.into()]]).await?;
    }
    let of = vec![cluster.into(), i64::from(job.0).into(), (which as i64).into(), hash.into()];
    Ok(link.put(&WORKS, vec![of]).await?)
}
