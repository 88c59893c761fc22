//! Questions to the database. An answer is bounded in size, and so is the work for it: what is left out is asked for with the place
//! where the answer ended. The database leaves out what it can by its columns, [`JobFilter::takes`] decides.

use crate::store::{Store, StoreError, decoded, numbers, signed};
use garrick_accounts::{
    filter::JobFilter,
    messages::{JobWithSteps, PageEnd},
    row::JobRow,
    step::StepRecord,
};
use garrick_model::ids::{Sluid, StepKey};
use sqlx::{QueryBuilder, Row as _, Sqlite};
use std::collections::BTreeMap;

/// Bytes of bodies in one answer, about.
const PAGE_BYTES: usize = 512 << 10;
/// Rows that are looked at for one answer.
const LOOKED_AT: usize = 20_000;
/// Rows that are read at a time.
const CHUNK: usize = 1_000;
/// Values in a list of a statement. With more, all rows are compared here.
const LISTED: usize = 200;

/// A page of an answer.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// Rows with their steps.
    pub jobs: Vec<JobWithSteps>,
    /// Where it ended, if there may be more.
    pub next: Option<PageEnd>,
}

/// A question.
#[derive(Clone, Copy, Debug)]
pub struct Question<'q> {
    /// Which rows.
    pub filter: &'q JobFilter,
    /// With steps.
    pub steps: bool,
    /// Where the last page ended.
    pub after: Option<&'q PageEnd>,
    /// Only rows of this user.
    pub only: Option<u32>,
}

/// Rows of a page, before their steps.
#[derive(Default)]
struct Found {
    rows: Vec<(i64, JobRow)>,
    bytes: usize,
    /// Where reading ended; `None`: at the end.
    next: Option<PageEnd>,
}

impl Store {
    /// Answers a question.
    pub async fn page(&self, question: Question<'_>) -> Result<Page, StoreError> {
        let clusters = self.clusters().await?;
        let found = self.rows(&question, &clusters).await?;
        if !question.steps {
            let jobs = found.rows.into_iter().map(|(_, row)| JobWithSteps { row, steps: Vec::new() }).collect();
            return Ok(Page { jobs, next: found.next });
        }
        self.with_steps(found, &question).await
    }

    /// Clusters by number.
    async fn clusters(&self) -> Result<BTreeMap<i64, String>, StoreError> {
        let rows = sqlx::query("SELECT id, name FROM clusters").fetch_all(&self.readers).await?;
        rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect()
    }

    async fn rows(&self, question: &Question<'_>, clusters: &BTreeMap<i64, String>) -> Result<Found, StoreError> {
        let mut found = Found::default();
        let mut place = question.after.map(|end| {
            let cluster = clusters.iter().find(|(_, name)| **name == end.cluster).map_or(0, |(id, _)| *id);
            // One whose steps were not all told comes again.
            (cluster, i64::from(end.job), signed(end.sluid.0).saturating_sub(i64::from(end.step.is_some())))
        });
        let mut looked_at = 0;
        loop {
            let chunk = statement(question, place).build().fetch_all(&self.readers).await?;
            for row in &chunk {
                let (cluster, job, sluid): (i64, i64, i64) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
                let body: &[u8] = row.try_get(3)?;
                let full = found.bytes >= PAGE_BYTES || looked_at >= LOOKED_AT;
                let same_job = place.is_some_and(|at| (at.0, at.1) == (cluster, job));
                // Runs of a job stay together, so that its newest one is known.
                if full && !same_job {
                    found.next = place.map(|(cluster, job, sluid)| PageEnd {
                        cluster: clusters.get(&cluster).cloned().unwrap_or_default(),
                        job: u32::try_from(job).unwrap_or(u32::MAX),
                        sluid: Sluid(sluid.cast_unsigned()),
                        step: None,
                    });
                    return Ok(found);
                }
                (place, looked_at) = (Some((cluster, job, sluid)), looked_at + 1);
                found.take(cluster, decoded(body)?, body.len(), question.filter);
            }
            if chunk.len() < CHUNK {
                return Ok(found);
            }
        }
    }

    /// Adds the steps, as many as there is room for.
    async fn with_steps(&self, found: Found, question: &Question<'_>) -> Result<Page, StoreError> {
        let mut page = Page { jobs: Vec::new(), next: found.next };
        let mut bytes = found.bytes;
        let resumed = question.after.and_then(|end| Some((end.sluid, end.step?)));
        for (cluster, row) in found.rows {
            let after = resumed.filter(|(sluid, _)| *sluid == row.sluid).map(|(_, step)| step);
            let end = |step| PageEnd { cluster: row.cluster.clone(), job: row.job.0, sluid: row.sluid, step };
            let (steps, more) = self.steps(cluster, row.sluid, after, &mut bytes).await?;
            let cut = more.then(|| steps.last().map(|last: &StepRecord| last.key)).flatten();
            let next = end(cut);
            page.jobs.push(JobWithSteps { row, steps });
            if more || bytes >= 2 * PAGE_BYTES {
                page.next = Some(next);
                return Ok(page);
            }
        }
        Ok(page)
    }

    /// Steps of a run after one, and whether there are more.
    async fn steps(
        &self,
        cluster: i64,
        sluid: Sluid,
        after: Option<StepKey>,
        bytes: &mut usize,
    ) -> Result<(Vec<StepRecord>, bool), StoreError> {
        let mut place = after.map_or((i64::MIN, i64::MIN), numbers);
        let mut steps = Vec::new();
        loop {
            let chunk = sqlx::query(
                "SELECT step, task, body FROM steps WHERE cluster = ? AND sluid = ? AND (step > ? OR step = ? AND task > ?) \
                 ORDER BY step, task LIMIT 1000",
            )
            .bind(cluster)
            .bind(signed(sluid.0))
            .bind(place.0)
            .bind(place.0)
            .bind(place.1)
            .fetch_all(&self.readers)
            .await?;
            for row in &chunk {
                if *bytes >= 2 * PAGE_BYTES && !steps.is_empty() {
                    return Ok((steps, true));
                }
                let body: &[u8] = row.try_get(2)?;
                place = (row.try_get(0)?, row.try_get(1)?);
                *bytes += body.len();
                steps.push(decoded(body)?);
            }
            if chunk.len() < CHUNK {
                return Ok((steps, false));
            }
        }
    }
}

impl Found {
    fn take(&mut self, cluster: i64, row: JobRow, bytes: usize, filter: &JobFilter) {
        if !filter.takes(&row) {
            return;
        }
        let newer = |(of, last): &(i64, JobRow)| (*of, last.job) == (cluster, row.job);
        if !filter.duplicates && self.rows.last().is_some_and(newer) {
            self.rows.pop();
        }
        self.bytes += bytes;
        self.rows.push((cluster, row));
    }
}

/// The rows behind that place that may be asked for.
fn statement(question: &Question<'_>, place: Option<(i64, i64, i64)>) -> QueryBuilder<Sqlite> {
    let filter = question.filter;
    let mut sql = QueryBuilder::new("SELECT cluster, job, sluid, body FROM jobs WHERE 1 = 1");
    if let Some((cluster, job, sluid)) = place {
        sql.push(" AND (cluster, job, sluid) > (").push_bind(cluster);
        sql.push(", ").push_bind(job).push(", ").push_bind(sluid).push(")");
    }
    if let Some(uid) = question.only {
        sql.push(" AND uid = ").push_bind(i64::from(uid));
    }
    one_of(&mut sql, "uid", filter.users.iter().map(|uid| i64::from(*uid)));
    one_of(&mut sql, "gid", filter.groups.iter().map(|gid| i64::from(*gid)));
    named(&mut sql, filter);
    if let Some(end) = filter.end {
        sql.push(" AND since_ms <= ").push_bind(end.0);
    }
    if let Some(start) = filter.start {
        sql.push(" AND (end_ms IS NULL OR end_ms >= ").push_bind(start.0).push(")");
    }
    sql.push(" ORDER BY cluster, job, sluid LIMIT 1000");
    sql
}

fn one_of(sql: &mut QueryBuilder<Sqlite>, column: &str, values: impl ExactSizeIterator<Item = i64>) {
    if values.len() == 0 || values.len() > LISTED {
        return;
    }
    sql.push(format!(" AND {column} IN ("));
    let mut list = sql.separated(", ");
    values.for_each(|value| {
        list.push_bind(value);
    });
    sql.push(")");
}

/// Jobs by their ids, in whichever way they may be named.
fn named(sql: &mut QueryBuilder<Sqlite>, filter: &JobFilter) {
    if filter.jobs.is_empty() || filter.jobs.len() > LISTED {
        return;
    }
    let runs: Vec<i64> = filter.jobs.iter().filter_map(|named| Some(signed(named.run?.0))).collect();
    let jobs: Vec<i64> =
        filter.jobs.iter().filter(|named| named.run.is_none()).map(|named| named.job.0.into()).collect();
    sql.push(" AND (1 = 0");
    for (column, values) in [("sluid", &runs), ("job", &jobs), ("array_job", &jobs), ("het_leader", &jobs)] {
        if !values.is_empty() {
            sql.push(format!(" OR {column} IN ("));
            let mut list = sql.separated(", ");
            values.iter().for_each(|value| {
                list.push_bind(*value);
            });
            sql.push(")");
        }
    }
    sql.push(")");
}
