//! Scripts and environments of batch jobs (`AccountingStoreFlags`). Many jobs have the same: a text is stored once, by its SHA-256.

use crate::{
    database::{
        Link, Statement,
        dialect::{Table, There},
    },
    pages::CHUNK,
    store::{Store, StoreError, readable, signed},
};
use garrick_accounts::row::JobRow;
use garrick_events::records::job::JobRecord;
use garrick_model::ids::{JobId, Sluid};
use sha2::{Digest as _, Sha256};
use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

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

/// Texts of the jobs of a batch: they are stored together.
#[derive(Default)]
pub(crate) struct Texts<'r> {
    /// Jobs that have none any more, or others.
    forgotten: BTreeSet<[i64; 2]>,
    /// By job and kind.
    works: BTreeMap<(i64, i64), [u8; 32]>,
    texts: BTreeMap<[u8; 32], Cow<'r, [u8]>>,
}

impl<'r> Texts<'r> {
    /// A job has none: an earlier one of that number has nothing to do with it.
    pub(crate) fn forget(&mut self, cluster: i64, job: JobId) {
        let job = i64::from(job.0);
        self.forgotten.insert([cluster, job]);
        self.works.retain(|(of, _), _| *of != job);
    }

    /// What a job's record has of them.
    pub(crate) fn take(&mut self, record: &'r JobRecord) {
        if let Some(script) = &record.spec.script {
            self.add(record.id, Text::Script, Cow::Borrowed(script.as_slice()));
        }
        if !record.spec.environment.is_empty() {
            let mut lines = Vec::new();
            for entry in record.spec.environment.iter() {
                lines.extend_from_slice(entry);
                lines.push(b'\n');
            }
            self.add(record.id, Text::Environment, lines.into());
        }
    }

    fn add(&mut self, job: JobId, which: Text, text: Cow<'r, [u8]>) {
        let hash: [u8; 32] = Sha256::digest(&text).into();
        self.works.insert((job.0.into(), which as i64), hash);
        self.texts.entry(hash).or_insert(text);
    }

    pub(crate) async fn put(self, link: &mut Link<'_>, cluster: i64) -> Result<(), StoreError> {
        let forgotten: Vec<[i64; 2]> = self.forgotten.into_iter().collect();
        for jobs in forgotten.chunks(CHUNK) {
            let these = link.dialect().among(&["cluster", "job"], jobs);
            link.execute(Statement::built(format!("DELETE FROM works WHERE {these}"))).await?;
        }
        let texts = self.texts.iter().map(|(hash, text)| vec![hash.as_slice().into(), (&**text).into()]);
        link.put(&TEXTS, texts.collect()).await?;
        let works = self.works.iter();
        let works = works
            .map(|((job, kind), hash)| vec![cluster.into(), (*job).into(), (*kind).into(), hash.as_slice().into()]);
        Ok(link.put(&WORKS, works.collect()).await?)
    }
}
