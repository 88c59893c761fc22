//! What was used in a window of time, summed up from the rows of jobs when it is asked for. Rows are read one after the other, and
//! only the sums are kept: memory is bounded by the number of accounts, users, WCKeys and QOS that differ.

use crate::{
    database::{Link, Reader, Statement, dialect::Dialect},
    pages::restrict_to,
    store::{Store, StoreError},
};
use garrick_accounts::{
    filter::{JobFilter, Owner},
    row::{JobRow, RunEnergy},
    tres::{CPU, Tres},
    usage::{Ran, UsageKey, UsageQuestion, UsageRow, UsageSum, secs_in},
};
use garrick_model::{spec::ArraySpec, time::Timestamp};
use serde::Deserialize;
use std::collections::BTreeMap;

/// Most sums of one question. With more, memory would not be bounded by anything that a site means.
pub const MOST_SUMS: usize = 500_000;
/// Sums in one answer: some hundred KiB.
const IN_ANSWER: usize = 2_000;
/// Sums that are kept between two parts of an answer: some ten MiB.
const KEPT: usize = 50_000;
/// Rows that are read at a time.
const CHUNK: i64 = 1_000;

/// Sums of the last answer, for its next parts: they need not be made again. Very many are not kept.
#[derive(Debug, Default)]
pub struct Summed {
    /// Of which question.
    asked: Option<(UsageQuestion, Option<Owner>)>,
    sums: BTreeMap<UsageKey, UsageSum>,
}

/// A part of an answer.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Sums, by whose they are.
    pub rows: Vec<UsageRow>,
    /// There is more.
    pub more: bool,
}

/// A question that is not answered.
#[derive(Debug, thiserror::Error)]
pub enum UsageError {
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// There is too much to tell apart.
    #[error("more than {MOST_SUMS} sums are asked for: ask for a shorter time, or for fewer accounts")]
    TooMany,
}

impl From<sqlx::Error> for UsageError {
    fn from(error: sqlx::Error) -> Self {
        Self::Store(error.into())
    }
}

/// The fields of a row's body that count. Reading only these takes a fraction of the time.
#[derive(Deserialize)]
struct Counted {
    uid: u32,
    user: String,
    #[serde(default)]
    account: Option<String>,
    #[serde(default)]
    wckey: Option<String>,
    #[serde(default)]
    qos: Option<String>,
    #[serde(default)]
    eligible: Option<Timestamp>,
    #[serde(default)]
    requested: Tres,
    /// Tasks of an array that still wait.
    #[serde(default)]
    waiting: Option<ArraySpec>,
    #[serde(default)]
    allocated: Tres,
    #[serde(default)]
    suspended_ms: u64,
    #[serde(default)]
    suspended_since: Option<Timestamp>,
    #[serde(default)]
    energy: RunEnergy,
}

/// End (`None`: it has none yet), time since which it is there, job and run: rows are read on behind them.
type Place = (Option<i64>, i64, i64, i64);

impl Store {
    /// Sums up what was used, and gives the part of the answer behind that line.
    ///
    /// # Errors
    /// The database failed, or there is too much to tell apart.
    pub async fn usage(
        &self,
        question: &UsageQuestion,
        after: Option<&UsageKey>,
        only: Option<&Owner>,
        (now, summed): (Timestamp, &mut Summed),
    ) -> Result<Part, UsageError> {
        // What runs counts until now: the next part is asked for with that end.
        let asked = UsageQuestion { end: question.end.min(now), ..question.clone() };
        let goes_on =
            after.is_some() && summed.asked.as_ref().is_some_and(|(known, of)| (known, of.as_ref()) == (&asked, only));
        let sums = match goes_on {
            true => std::mem::take(&mut summed.sums),
            false => self.sums(question, only, now).await?,
        };
        let behind = || sums.iter().filter(|(key, _)| after.is_none_or(|after| *key > after));
        let rows = behind().take(IN_ANSWER).map(|(key, sum)| UsageRow { key: key.clone(), sum: sum.clone() }).collect();
        let more = behind().nth(IN_ANSWER).is_some();
        *summed = match more && sums.len() <= KEPT {
            true => Summed { asked: Some((asked, only.cloned())), sums },
            false => Summed::default(),
        };
        Ok(Part { rows, more })
    }

    async fn sums(
        &self,
        question: &UsageQuestion,
        only: Option<&Owner>,
        now: Timestamp,
    ) -> Result<BTreeMap<UsageKey, UsageSum>, UsageError> {
        let mut sums = Sums { question, only, now, sums: BTreeMap::new() };
        let read = self.read(async |reader| match sums.read_all(reader).await {
            Err(UsageError::Store(error)) => Err(error),
            done => Ok(done),
        });
        read.await??;
        Ok(sums.sums)
    }
}

/// Rows with an end, or those without: an index finds the ones and the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    Live,
    Over,
}

struct Sums<'q> {
    question: &'q UsageQuestion,
    only: Option<&'q Owner>,
    now: Timestamp,
    sums: BTreeMap<UsageKey, UsageSum>,
}

impl Sums<'_> {
    /// Adds what was used. All of it is of one moment: a job that ends meanwhile counts once.
    async fn read_all(&mut self, reader: &mut Reader) -> Result<(), UsageError> {
        let mut tx = reader.begin().await?;
        let mut link = tx.link();
        let clusters = link.rows(Statement::of("SELECT id, name FROM clusters")).await?;
        for cluster in &clusters {
            let (id, name) = (cluster.number(0)?, cluster.text(1)?);
            let asked = &self.question.such.clusters;
            if asked.is_empty() || asked.iter().any(|asked| asked == name) {
                self.read(&mut link, (id, name), Which::Live).await?;
                self.read(&mut link, (id, name), Which::Over).await?;
            }
        }
        Ok(())
    }

    /// Adds what was used on one cluster.
    async fn read(&mut self, link: &mut Link<'_>, (id, name): (i64, &str), which: Which) -> Result<(), UsageError> {
        let mut place: Option<Place> = None;
        loop {
            let rows = link.rows(self.statement(link.dialect(), (id, which), place)).await?;
            for row in &rows {
                let (over, job) = (row.maybe(0)?, row.number(2)?);
                place = Some((over, row.number(1)?, job, row.number(3)?));
                let start = row.maybe(4)?.map(Timestamp);
                if start.is_some() || self.question.waits {
                    self.add((name, job), (start, over.map(Timestamp)), row.bytes(5)?);
                }
            }
            if self.sums.len() > MOST_SUMS {
                return Err(UsageError::TooMany);
            }
            if rows.len() < usize::try_from(CHUNK).unwrap_or(usize::MAX) {
                return Ok(());
            }
            // Others are served in between.
            tokio::task::yield_now().await;
        }
    }

    /// The next rows that were there in the window, as the index has them in order.
    fn statement(&self, dialect: Dialect, (cluster, which): (i64, Which), place: Option<Place>) -> Statement<'static> {
        let mut sql = Statement::built("SELECT end_ms, since_ms, job, sluid, start_ms, body FROM jobs");
        sql.push_with(" WHERE cluster = ", cluster);
        match which {
            Which::Live => sql.push(" AND end_ms IS NULL"),
            Which::Over => sql.push_with(" AND end_ms >= ", self.question.start.0),
        };
        sql.push_with(" AND since_ms < ", self.question.end.0);
        if let Some(owner) = self.only {
            restrict_to(&mut sql, owner);
        }
        if let Some((end, since, job, sluid)) = place {
            let columns = ["end_ms", "since_ms", "job", "sluid"];
            let values: Vec<i64> = end.into_iter().chain([since, job, sluid]).collect();
            sql.push(" AND ").push(dialect.behind(&columns[columns.len() - values.len()..], &values));
        }
        sql.push_with(" ORDER BY end_ms, since_ms, job, sluid LIMIT ", CHUNK);
        sql
    }

    /// Adds a run that started and ended then.
    fn add(&mut self, (cluster, job): (&str, i64), (start, over): (Option<Timestamp>, Option<Timestamp>), body: &[u8]) {
        let unreadable = |error: rmp_serde::decode::Error| tracing::error!(job, %error, "a row is passed over");
        if let Some(such) = beyond_window(&self.question.such) {
            match rmp_serde::from_slice::<JobRow>(body) {
                Ok(row) if such.takes(&row) => {}
                Ok(_) => return,
                Err(error) => return unreadable(error),
            }
        }
        let counted = match rmp_serde::from_slice::<Counted>(body) {
            Ok(counted) => counted,
            Err(error) => return unreadable(error),
        };
        let sees = |owner: &Owner| {
            owner.is(counted.uid, cluster, &counted.user) || owner.coordinates(cluster, counted.account.as_deref())
        };
        if self.only.is_some_and(|owner| !sees(owner)) {
            return;
        }
        let (begin, end) = (self.question.start, self.question.end);
        let ran = start.map(|start| counted.ran(start, over.unwrap_or(self.now)));
        let ran = ran.filter(|ran| ran.meets(begin, end));
        let waited = match counted.eligible.filter(|_| self.question.waits) {
            Some(from) => {
                let until = start.or(over).unwrap_or(self.now);
                secs_in((from, until), (begin, end))
            }
            None => 0,
        };
        if ran.is_none() && waited == 0 {
            return;
        }
        let key = UsageKey {
            cluster: cluster.to_owned(),
            account: counted.account,
            user: counted.user,
            wckey: counted.wckey,
            qos: counted.qos,
            cpus: if self.question.by_size { counted.allocated.count(CPU) } else { 0 },
        };
        let sum = self.sums.entry(key).or_default();
        if let Some(ran) = ran {
            sum.add(&counted.allocated, ran.secs_in(begin, end));
            sum.add_energy(ran.part_in(counted.energy.joules(), begin, end));
        }
        let tasks = counted.waiting.as_ref().map_or(1, |waiting| u64::from(waiting.count()));
        sum.add_wait(&counted.requested, waited.saturating_mul(tasks));
    }
}

impl Counted {
    /// When it was there, with an end that is not before its start.
    fn ran(&self, start: Timestamp, end: Timestamp) -> Ran {
        let end = end.max(start);
        let since = self.suspended_since.map_or(0, |since| u64::try_from(end.0 - since.0).unwrap_or(0));
        Ran { start, end, suspended_ms: self.suspended_ms.saturating_add(since) }
    }
}

/// What may be asked of a job beyond the window.
fn beyond_window(such: &JobFilter) -> Option<JobFilter> {
    let such = JobFilter {
        clusters: Vec::new(),
        states: Vec::new(),
        start: None,
        end: None,
        duplicates: false,
        ..such.clone()
    };
    (such != JobFilter::default()).then_some(such)
}

#[cfg(test)]
#[path = "usage_test.rs"]
mod tests;
