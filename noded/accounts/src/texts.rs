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
use garrick_model::{
    ids::{JobId, Sluid},
    time::Timestamp,
};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

const TEXTS: Table = Table { name: "texts", columns: &["hash", "body"], key: 1, there: There::Kept };
const WORKS: Table =
    Table { name: "works", columns: &["cluster", "job", "kind", "hash"], key: 3, there: There::Replaced };

/// Hashes of one statement: databases take only so many values.
const HASHES: usize = 500;

/// A text of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Text {
    /// The batch script, as it was submitted.
    Script = 1,
    /// The environment, a line for each variable.
    Environment = 2,
}

/// A text as it is archived: most are UTF-8.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Words {
    /// It is UTF-8.
    Text(String),
    /// It is not.
    Bytes(Vec<u8>),
}

impl From<&[u8]> for Words {
    fn from(bytes: &[u8]) -> Self {
        std::str::from_utf8(bytes).map_or_else(|_| Self::Bytes(bytes.to_vec()), |text| Self::Text(text.to_owned()))
    }
}

impl Words {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Text(text) => text.as_bytes(),
            Self::Bytes(bytes) => bytes,
        }
    }
}

/// A text of a job that is given up.
#[derive(Clone, Debug)]
pub(crate) struct Work {
    /// Its job, or its array.
    pub(crate) job: i64,
    /// Which.
    pub(crate) which: Text,
    pub(crate) hash: Vec<u8>,
    /// When its job ended, milliseconds.
    pub(crate) at: i64,
}

/// What is told of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// The run is not of one who asks.
    Denied,
    /// It; `None`: none is kept.
    Text(Option<Vec<u8>>),
}

impl Store {
    /// A text of a run, if `may` allows it for the run's row; `None`: there is no such run.
    pub async fn text(
        &self,
        run: Sluid,
        which: Text,
        may: impl Fn(&JobRow) -> bool,
    ) -> Result<Option<Told>, StoreError> {
        self.read(async |reader| text(&mut reader.link(), run, which, may).await).await
    }
}

/// A text of a run.
async fn text(
    link: &mut Link<'_>,
    run: Sluid,
    which: Text,
    may: impl Fn(&JobRow) -> bool,
) -> Result<Option<Told>, StoreError> {
    let of_run = "SELECT cluster, job, body FROM jobs WHERE cluster IN (SELECT id FROM clusters) AND sluid = ?";
    let Some(found) = link.row(Statement::of(of_run).with(signed(run.0))).await? else { return Ok(None) };
    let (cluster, job) = (found.number(0)?, found.number(1)?);
    let Some(row) = readable::<JobRow>(found.bytes(2)?, JobId(u32::try_from(job).unwrap_or(u32::MAX))) else {
        return Ok(None);
    };
    if !may(&row) {
        return Ok(Some(Told::Denied));
    }
    // Tasks of an array have those of the array.
    let of = i64::from(row.array_task.map_or(row.job, |task| task.array_job).0);
    // The text is that of the newest job of this number.
    let newest = "SELECT uid FROM jobs WHERE cluster = ? AND (job = ? OR array_job = ?) ORDER BY sluid DESC LIMIT 1";
    let newest = link.row(Statement::of(newest).with(cluster).with(of).with(of)).await?;
    if newest.map(|row| row.number(0)).transpose()? != Some(i64::from(row.uid)) {
        return Ok(Some(Told::Text(None)));
    }
    let text = "SELECT texts.body FROM works JOIN texts ON texts.hash = works.hash \
                    WHERE works.cluster = ? AND works.job = ? AND works.kind = ?";
    let text = link.row(Statement::of(text).with(cluster).with(of).with(which as i64)).await?;
    Ok(Some(Told::Text(text.map(|text| text.bytes(0).map(<[u8]>::to_vec)).transpose()?)))
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

/// No job of that number, and no task of such an array, goes on or ended later.
const IS_OLD: &str = "NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.cluster = works.cluster AND jobs.job = works.job \
     AND (jobs.end_ms IS NULL OR jobs.end_ms >= ?)) \
     AND NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.cluster = works.cluster AND jobs.array_job = works.job \
     AND (jobs.end_ms IS NULL OR jobs.end_ms >= ?))";

/// No job has that number, and no task is of such an array.
const HAS_NO_JOB: &str = "NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.cluster = works.cluster AND jobs.job = works.job) \
     AND NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.cluster = works.cluster AND jobs.array_job = works.job)";

/// A thousand texts of jobs that ended before that time, by job, behind that job.
pub(crate) async fn old(
    link: &mut Link<'_>,
    cluster: i64,
    (which, before): (Text, Timestamp),
    behind: i64,
) -> Result<Vec<Work>, StoreError> {
    let mut sql = Statement::built(format!("SELECT job, kind, hash FROM works WHERE {IS_OLD}"));
    sql = sql.with(before.0).with(before.0);
    sql.push_with(" AND cluster = ", cluster).push_with(" AND kind = ", which as i64).push_with(" AND job > ", behind);
    sql.push(format_args!(" ORDER BY job LIMIT {CHUNK}"));
    works(link, sql, before.0).await
}

/// Those of these (cluster, job and kind) that are old before that time. All are of one cluster.
pub(crate) async fn still_old(
    link: &mut Link<'_>,
    before: Timestamp,
    keys: &[&Vec<i64>],
) -> Result<Vec<Work>, StoreError> {
    let these = link.dialect().among(&["cluster", "job", "kind"], keys);
    let sql = Statement::built(format!("SELECT job, kind, hash FROM works WHERE {IS_OLD} AND {these}"));
    works(link, sql.with(before.0).with(before.0), before.0).await
}

/// A thousand texts of a cluster that no job has, by job, behind that job.
pub(crate) async fn orphans(
    link: &mut Link<'_>,
    cluster: i64,
    before: Timestamp,
    behind: i64,
) -> Result<Vec<Work>, StoreError> {
    let mut sql = Statement::built(format!("SELECT job, kind, hash FROM works WHERE {HAS_NO_JOB}"));
    sql.push_with(" AND cluster = ", cluster).push_with(" AND job > ", behind);
    sql.push(format_args!(" ORDER BY job, kind LIMIT {CHUNK}"));
    works(link, sql, before.0).await
}

/// Texts of these jobs that have no runs any more, and of arrays without tasks. `at`: when they ended.
pub(crate) async fn without_jobs(link: &mut Link<'_>, jobs: &[[i64; 2]], at: i64) -> Result<Vec<Work>, StoreError> {
    let these = link.dialect().among(&["cluster", "job"], jobs);
    let left = format!("SELECT job, kind, hash FROM works WHERE {these} AND {HAS_NO_JOB}");
    works(link, Statement::built(left), at).await
}

async fn works(link: &mut Link<'_>, sql: Statement<'_>, at: i64) -> Result<Vec<Work>, StoreError> {
    let mut all = Vec::new();
    for row in &link.rows(sql).await? {
        let which = if row.number(1)? == Text::Script as i64 { Text::Script } else { Text::Environment };
        all.push(Work { job: row.number(0)?, which, hash: row.bytes(2)?.to_vec(), at });
    }
    Ok(all)
}

/// What these are, each with the one of these that it is.
pub(crate) async fn read<'w>(
    link: &mut Link<'_>,
    cluster: i64,
    some: &'w [Work],
) -> Result<Vec<(&'w Work, Words)>, StoreError> {
    if some.is_empty() {
        return Ok(Vec::new());
    }
    let keys: Vec<[i64; 3]> = some.iter().map(|work| [cluster, work.job, work.which as i64]).collect();
    let these = link.dialect().among(&["works.cluster", "works.job", "works.kind"], &keys);
    let sql = format!(
        "SELECT works.job, works.kind, works.hash, texts.body FROM works JOIN texts ON texts.hash = works.hash WHERE {these}"
    );
    let mut all = Vec::new();
    for row in &link.rows(Statement::built(sql)).await? {
        let (job, kind, hash) = (row.number(0)?, row.number(1)?, row.bytes(2)?);
        // Another job of that number may have come, with another text.
        let same = |work: &&Work| work.job == job && work.which as i64 == kind && work.hash == hash;
        if let Some(work) = some.iter().find(same) {
            all.push((work, row.bytes(3)?.into()));
        }
    }
    Ok(all)
}

/// Jobs do not have these any more. Texts that no job has then go too: only these are looked at.
pub(crate) async fn delete(link: &mut Link<'_>, cluster: i64, works: &[Work]) -> Result<(), StoreError> {
    for some in works.chunks(CHUNK) {
        let keys: Vec<[i64; 3]> = some.iter().map(|work| [cluster, work.job, work.which as i64]).collect();
        let these = link.dialect().among(&["cluster", "job", "kind"], &keys);
        link.execute(Statement::built(format!("DELETE FROM works WHERE {these}"))).await?;
    }
    let hashes: BTreeSet<&[u8]> = works.iter().map(|work| work.hash.as_slice()).collect();
    let hashes: Vec<&[u8]> = hashes.into_iter().collect();
    for some in hashes.chunks(HASHES) {
        let mut sql = Statement::built("DELETE FROM texts WHERE hash IN (");
        for (number, hash) in some.iter().enumerate() {
            sql.push_with(if number == 0 { "" } else { ", " }, *hash);
        }
        sql.push(") AND NOT EXISTS (SELECT 1 FROM works WHERE works.hash = texts.hash)");
        link.execute(sql).await?;
    }
    Ok(())
}

/// A text of an archive. True: its job had none.
pub(crate) async fn load(
    link: &mut Link<'_>,
    cluster: i64,
    (job, which): (u32, Text),
    words: &Words,
) -> Result<bool, StoreError> {
    let known = Statement::of("SELECT 1 FROM works WHERE cluster = ? AND job = ? AND kind = ?");
    let known = known.with(cluster).with(i64::from(job)).with(which as i64);
    let is_new = link.row(known).await?.is_none();
    if is_new {
        let hash: [u8; 32] = Sha256::digest(words.bytes()).into();
        link.put(&TEXTS, vec![vec![hash.as_slice().into(), words.bytes().into()]]).await?;
        let work = vec![cluster.into(), i64::from(job).into(), (which as i64).into(), hash.as_slice().into()];
        link.put(&WORKS, vec![work]).await?;
    }
    Ok(is_new)
}
