//! Questions to the database. An answer is bounded in size, and so is the work for it: what is left out is asked for with the place
//! where the answer ended. The database leaves out what it can by its columns, [`JobFilter::takes`] decides.

use crate::{
    database::{Link, Row, Statement, Value, dialect::Dialect},
    store::{Store, StoreError, column, numbers, readable, signed},
};
use garrick_accounts::{
    filter::{JobFilter, Owner},
    messages::{JobWithSteps, PageEnd},
    row::JobRow,
    step::StepRecord,
};
use garrick_model::{
    entities::Entities,
    ids::{JobId, Sluid, StepKey},
    state::JobState,
};
use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt::Display,
};

/// Bytes of bodies in one answer, about.
const PAGE_BYTES: usize = 512 << 10;
/// Rows that are looked at for one answer.
const LOOKED_AT: usize = 20_000;
/// Keys that are looked up at a time.
const KEYS: usize = LOOKED_AT;
/// Rows that are read at a time ([`behind_step`] has it in its text).
pub(crate) const CHUNK: usize = 1_000;
/// Rows that are read first, before it is known how long they are.
const FIRST_ROWS: usize = 100;
/// Runs whose first steps are read with one statement: SQLite takes 500 parts at most.
const RUNS_AT_ONCE: usize = 100;
/// Steps of each that are read so: the batch step, the external one and two more. They are in memory together.
const FIRST_STEPS: usize = 4;
/// Values in a list of a statement. With more, all rows are compared here.
pub(crate) const LISTED: usize = 200;

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
    /// Only rows that this user sees.
    pub only: Option<&'q Owner>,
}

/// Cluster, job and run: what rows are ordered by.
type Key = (i64, i64, i64);
/// Their columns.
const KEY: [&str; 3] = ["cluster", "job", "sluid"];

/// Keys of rows that were looked up for a question: the next pages of its answer need not look them up again.
#[derive(Debug, Default)]
pub struct Cursor {
    /// For which question.
    asked: Option<(JobFilter, Option<Owner>)>,
    /// In order.
    keys: Vec<Key>,
    /// There are no more.
    whole: bool,
}

impl Cursor {
    /// Has it what comes behind that place?
    fn goes_on(&self, question: &Question<'_>, place: Option<Key>) -> bool {
        let same = self
            .asked
            .as_ref()
            .is_some_and(|(filter, only)| filter == question.filter && only.as_ref() == question.only);
        // At the first place a new answer begins, as of now.
        let within = place.is_some_and(|at| {
            self.keys.first().is_some_and(|first| *first <= at) && (self.whole || self.keys.last() > Some(&at))
        });
        same && within
    }

    /// The next keys behind that place, so many as are read at a time.
    fn next(&self, place: Option<Key>, most: usize) -> &[Key] {
        let from = self.keys.partition_point(|key| Some(*key) <= place);
        &self.keys[from..self.keys.len().min(from + most)]
    }
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
    /// Answers a question. The cursor is that of the last page of the same answer, or new.
    pub async fn page(&self, question: Question<'_>, cursor: &mut Cursor) -> Result<Page, StoreError> {
        let entities = self.entities();
        self.read(async |reader| page(&mut reader.link(), question, &entities, cursor).await).await
    }

    /// How the database would look up the keys.
    #[cfg(test)]
    pub(crate) async fn explain(&self, question: &Question<'_>, place: Option<Key>) -> Result<Vec<String>, StoreError> {
        let mut sql = Statement::built("EXPLAIN QUERY PLAN ");
        statement(&mut sql, Dialect::Sqlite, question, &[1], place);
        let rows = self.read(async |reader| Ok(reader.link().rows(sql).await?)).await?;
        // The last of its columns says it.
        rows.iter().map(|row| Ok(row.text(3)?.to_owned())).collect()
    }
}

/// Gives rows the numbers of what they name.
async fn number(link: &mut Link<'_>, entities: &Entities, jobs: &mut [JobWithSteps]) -> Result<(), StoreError> {
    let some_have = jobs.iter().any(|job| job.row.wckey.is_some());
    let keys = entities.wckeys.values().filter(|_| some_have);
    let keys: HashMap<(&str, &str, &str), u32> =
        keys.map(|key| ((&*key.cluster, &*key.user, &*key.name), key.id)).collect();
    let mut reservations: HashMap<(String, String), Vec<(i64, u64)>> = HashMap::new();
    for JobWithSteps { row, .. } in jobs {
        row.ids.qos = row.qos.as_ref().and_then(|name| entities.qos.get(name)).map(|qos| qos.id);
        // The default one of a user is marked.
        let key = row.wckey.as_deref().map(|key| key.strip_prefix('*').unwrap_or(key));
        row.ids.wckey = key.and_then(|key| keys.get(&(&*row.cluster, &*row.user, key))).copied();
        let Some(name) = &row.reservation else { continue };
        let named = (row.cluster.clone(), name.clone());
        if !reservations.contains_key(&named) {
            let times = times_of(link, &named.0, &named.1).await?;
            reservations.insert(named.clone(), times);
        }
        let times = &reservations[&named];
        // Of several of that name the one that had begun.
        let begun = times.iter().rev().find(|(start, _)| row.start.is_none_or(|at| *start <= at.0));
        row.ids.reservation = begun.or(times.first()).map(|(_, id)| *id);
    }
    Ok(())
}

/// When reservations of a name began, and their numbers.
async fn times_of(link: &mut Link<'_>, cluster: &str, name: &str) -> Result<Vec<(i64, u64)>, StoreError> {
    let sql = "SELECT start_ms, resv FROM reservations WHERE cluster = (SELECT id FROM clusters WHERE name = ?) AND name = ? \
        ORDER BY start_ms";
    let rows = link.rows(Statement::of(sql).with(cluster).with(Some(column(name)))).await?;
    rows.iter().map(|row| Ok((row.number(0)?, row.number(1)?.cast_unsigned()))).collect()
}

/// Types of generic resources that are not counted of the job are not of its steps either (`AccountingStorageTRES`).
fn count_only(row: &JobRow, steps: &mut [StepRecord]) {
    for step in steps {
        step.allocated.retain(|name| !name.contains(':') || row.allocated.count(name) > 0);
    }
}

async fn page(
    link: &mut Link<'_>,
    question: Question<'_>,
    entities: &Entities,
    cursor: &mut Cursor,
) -> Result<Page, StoreError> {
    let clusters = clusters(link).await?;
    let found = rows(link, &question, &clusters, cursor).await?;
    let mut page = if question.steps {
        with_steps(link, found, &question).await?
    } else {
        let jobs = found.rows.into_iter().map(|(_, row)| JobWithSteps { row, steps: Vec::new() }).collect();
        Page { jobs, next: found.next }
    };
    number(link, entities, &mut page.jobs).await?;
    Ok(page)
}

/// Clusters by number.
async fn clusters(link: &mut Link<'_>) -> Result<BTreeMap<i64, String>, StoreError> {
    let rows = link.rows(Statement::of("SELECT id, name FROM clusters")).await?;
    rows.iter().map(|row| Ok((row.number(0)?, row.text(1)?.to_owned()))).collect()
}

async fn rows(
    link: &mut Link<'_>,
    question: &Question<'_>,
    clusters: &BTreeMap<i64, String>,
    cursor: &mut Cursor,
) -> Result<Found, StoreError> {
    let mut found = Found::default();
    let mut place = question.after.map(|end| {
        let cluster = clusters.iter().find(|(_, name)| **name == end.cluster).map_or(0, |(id, _)| *id);
        // One whose steps were not all told comes again.
        (cluster, i64::from(end.job), signed(end.sluid.0).saturating_sub(i64::from(end.step.is_some())))
    });
    let (mut looked_at, mut most) = (0, FIRST_ROWS);
    loop {
        if !cursor.goes_on(question, place) {
            *cursor = look_up(link, question, clusters, place).await?;
        }
        let next = cursor.next(place, most);
        let Some(last) = next.last().copied() else { return Ok(found) };
        let chunk = bodies(link, next).await?;
        // About as many as a page has room for are in memory: some rows have long texts.
        let bytes: usize = chunk.iter().map(|(_, body)| body.len()).sum();
        most = (PAGE_BYTES / (bytes / chunk.len().max(1)).max(1)).clamp(1, CHUNK);
        for (key, body) in &chunk {
            let full = found.bytes >= PAGE_BYTES || looked_at >= LOOKED_AT;
            let same_job = place.is_some_and(|at| (at.0, at.1) == (key.0, key.1));
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
            (place, looked_at) = (Some(*key), looked_at + 1);
            let job = JobId(u32::try_from(key.1).unwrap_or(u32::MAX));
            if let Some(row) = readable(body, job) {
                found.take(key.0, row, body.len(), question);
            }
        }
        // A row that was deleted since is passed over.
        place = Some(last);
        if cursor.whole && cursor.next(place, 1).is_empty() {
            return Ok(found);
        }
    }
}

/// Keys of rows behind that place.
async fn look_up(
    link: &mut Link<'_>,
    question: &Question<'_>,
    clusters: &BTreeMap<i64, String>,
    place: Option<Key>,
) -> Result<Cursor, StoreError> {
    let wanted = |name: &String| question.filter.clusters.is_empty() || question.filter.clusters.contains(name);
    let among: Vec<i64> = clusters.iter().filter(|(_, name)| wanted(name)).map(|(id, _)| *id).collect();
    let mut keys: Vec<Key> = Vec::new();
    if !among.is_empty() {
        let mut sql = Statement::built("");
        statement(&mut sql, link.dialect(), question, &among, place);
        for row in &link.rows(sql).await? {
            keys.push((row.number(0)?, row.number(1)?, row.number(2)?));
        }
    }
    let (filter, only) = (question.filter.clone(), question.only.cloned());
    Ok(Cursor { asked: Some((filter, only)), whole: keys.len() < KEYS, keys })
}

/// Bodies of these rows.
async fn bodies(link: &mut Link<'_>, keys: &[Key]) -> Result<Vec<(Key, Vec<u8>)>, StoreError> {
    let keys: Vec<[i64; 3]> = keys.iter().map(|(cluster, job, sluid)| [*cluster, *job, *sluid]).collect();
    let mut sql = Statement::built("SELECT cluster, job, sluid, body FROM jobs WHERE ");
    sql.push(link.dialect().among(&KEY, &keys)).push(" ORDER BY cluster, job, sluid");
    let rows = link.rows(sql).await?;
    let key = |row: &Row| Ok::<Key, sqlx::Error>((row.number(0)?, row.number(1)?, row.number(2)?));
    rows.iter().map(|row| Ok((key(row)?, row.bytes(3)?.to_vec()))).collect()
}

/// Adds the steps, as many as there is room for.
async fn with_steps(link: &mut Link<'_>, found: Found, question: &Question<'_>) -> Result<Page, StoreError> {
    let mut page = Page { jobs: Vec::new(), next: found.next };
    let mut bytes = found.bytes;
    let resumed = question.after.and_then(|end| Some((end.sluid, end.step?)));
    let mut rows = found.rows.into_iter();
    while !rows.as_slice().is_empty() {
        let runs: Vec<(i64, JobRow)> = rows.by_ref().take(RUNS_AT_ONCE).collect();
        let mut first = first_steps(link, &runs).await?;
        for (cluster, row) in runs {
            let after = resumed.filter(|(sluid, _)| *sluid == row.sluid).map(|(_, step)| step);
            let end = |step| PageEnd { cluster: row.cluster.clone(), job: row.job.0, sluid: row.sluid, step };
            let first = first.remove(&(cluster, signed(row.sluid.0))).unwrap_or_default();
            let (mut steps, more) = steps_of(link, (cluster, row.job, row.sluid), (first, after), &mut bytes).await?;
            steps.iter_mut().for_each(|step| step.end_with(&row));
            let cut = more.then(|| steps.last().map(|last: &StepRecord| last.key)).flatten();
            let next = end(cut);
            count_only(&row, &mut steps);
            page.jobs.push(JobWithSteps { row, steps });
            if more || bytes >= 2 * PAGE_BYTES {
                page.next = Some(next);
                return Ok(page);
            }
        }
    }
    Ok(page)
}

/// The first steps of many runs, by cluster and run, with one statement: most runs have no more. Each part of it has its own limit, so
/// that a run with millions costs no more than others.
async fn first_steps(link: &mut Link<'_>, runs: &[(i64, JobRow)]) -> Result<HashMap<(i64, i64), Vec<Row>>, StoreError> {
    let mut sql = Statement::built("");
    for (number, (cluster, row)) in runs.iter().enumerate() {
        sql.push(if number == 0 { "" } else { " UNION ALL " });
        let run = signed(row.sluid.0);
        sql.push(format_args!(
            "SELECT * FROM (SELECT step, task, body, cluster, sluid FROM steps WHERE cluster = {cluster} AND sluid = {run} \
             ORDER BY step, task LIMIT {FIRST_STEPS}) AS run{number}"
        ));
    }
    let mut first: HashMap<(i64, i64), Vec<Row>> = HashMap::new();
    for row in link.rows(sql).await? {
        first.entry((row.number(3)?, row.number(4)?)).or_default().push(row);
    }
    for rows in first.values_mut() {
        let mut placed = Vec::with_capacity(rows.len());
        for row in rows.drain(..) {
            placed.push(((row.number(0)?, row.number(1)?), row));
        }
        // The parts have an order, the whole has none.
        placed.sort_by_key(|(place, _)| *place);
        rows.extend(placed.into_iter().map(|(_, row)| row));
    }
    Ok(first)
}

/// Steps of a run after one, and whether there are more. `first`: its first steps, as far as one statement has them.
async fn steps_of(
    link: &mut Link<'_>,
    (cluster, job, sluid): (i64, JobId, Sluid),
    (first, after): (Vec<Row>, Option<StepKey>),
    bytes: &mut usize,
) -> Result<(Vec<StepRecord>, bool), StoreError> {
    let mut place = after.map(numbers);
    let mut steps = Vec::new();
    // What is known already, at the beginning.
    let mut known = Some(first).filter(|_| place.is_none());
    loop {
        let (chunk, most) = match known.take() {
            Some(first) => (first, FIRST_STEPS),
            None => (link.rows(behind_step(link.dialect(), cluster, signed(sluid.0), place)).await?, CHUNK),
        };
        for row in &chunk {
            if *bytes >= 2 * PAGE_BYTES && !steps.is_empty() {
                return Ok((steps, true));
            }
            let body = row.bytes(2)?;
            place = Some((row.number(0)?, row.number(1)?));
            *bytes += body.len();
            steps.extend(readable::<StepRecord>(body, job));
        }
        if chunk.len() < most {
            return Ok((steps, false));
        }
    }
}

/// A thousand steps of a run, as they come behind that one.
pub(crate) fn behind_step(dialect: Dialect, cluster: i64, run: i64, place: Option<(i64, i64)>) -> Statement<'static> {
    let Some((step, task)) = place else {
        let first = "SELECT step, task, body FROM steps WHERE cluster = ? AND sluid = ? ORDER BY step, task LIMIT 1000";
        return Statement::of(first).with(cluster).with(run);
    };
    let mut sql = Statement::built("SELECT step, task, body FROM steps");
    sql.push_with(" WHERE cluster = ", cluster).push_with(" AND sluid = ", run);
    sql.push(" AND ").push(dialect.behind(&["step", "task"], &[step, task])).push(" ORDER BY step, task LIMIT 1000");
    sql
}

impl Found {
    fn take(&mut self, cluster: i64, row: JobRow, bytes: usize, question: &Question<'_>) {
        let filter = question.filter;
        if !filter.takes(&row) || question.only.is_some_and(|owner| !owner.sees(&row)) {
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

/// Keys of the rows behind that place that may be asked for. A part for each way in which a job may be named, for names of jobs and
/// rows whose name has no column yet, and for jobs that have ended or not: so that each part has an index.
fn statement(sql: &mut Statement<'_>, dialect: Dialect, question: &Question<'_>, clusters: &[i64], place: Option<Key>) {
    let filter = question.filter;
    let ends: &[Option<bool>] = if filter.start.is_some() { &[Some(false), Some(true)] } else { &[None] };
    let names: &[Option<Named>] = match is_listed(&filter.names) {
        true => &[Some(Named::So), Some(Named::Unknown)],
        false => &[None],
    };
    let mut first = true;
    for way in &named(filter) {
        for name in names {
            for over in ends {
                sql.push(if first { "" } else { " UNION " });
                first = false;
                sql.push("SELECT cluster, job, sluid FROM jobs");
                // SQLite, which does not know how many jobs have a name, would rather read all in order than sort those.
                if dialect == Dialect::Sqlite && name.is_some() && way.is_none() {
                    sql.push(" INDEXED BY jobs_by_name");
                }
                sql.push(" WHERE ");
                one_of(sql, "cluster", clusters);
                if let Some((cluster, job, sluid)) = place {
                    sql.push(" AND ").push(dialect.behind(&KEY, &[cluster, job, sluid]));
                }
                if let Some((column, values)) = way {
                    sql.push(" AND ");
                    one_of(sql, column, values);
                }
                match name {
                    Some(Named::So) => one_of_texts(sql, " AND name", &filter.names),
                    Some(Named::Unknown) => drop(sql.push(" AND name IS NULL")),
                    None => {}
                }
                restrict(sql, question, *over);
            }
        }
    }
    sql.push(format!(" ORDER BY cluster, job, sluid LIMIT {KEYS}"));
}

/// Rows by the name of the job.
#[derive(Clone, Copy)]
enum Named {
    /// It has one of those that are asked for.
    So,
    /// The row is of before there was a column for it.
    Unknown,
}

/// Can the database compare with that list?
const fn is_listed<T>(list: &[T]) -> bool {
    !list.is_empty() && list.len() <= LISTED
}

/// What holds in each part. `over`: only jobs that have ended, or only others.
fn restrict(sql: &mut Statement<'_>, question: &Question<'_>, over: Option<bool>) {
    let filter = question.filter;
    if let Some(owner) = question.only {
        restrict_to(sql, owner);
    }
    for (column, values) in [("uid", &filter.users), ("gid", &filter.groups)] {
        if is_listed(values) {
            sql.push(" AND ");
            one_of(sql, column, &values.iter().map(|value| i64::from(*value)).collect::<Vec<_>>());
        }
    }
    if is_listed(&filter.accounts) {
        // One without an account has none in its column.
        let none = if filter.accounts.iter().any(String::is_empty) { " OR account IS NULL" } else { "" };
        one_of_texts(sql, " AND (account", &filter.accounts);
        sql.push(none).push(")");
    }
    // One without a value in its column is of before there was one, or may run in several partitions, or with
    // several QOS.
    for (column, values) in [("part", &filter.partitions), ("qos", &filter.qos), ("wckey", &filter.wckeys)] {
        if is_listed(values) {
            sql.push(format_args!(" AND ({column} IS NULL OR"));
            one_of_texts(sql, format_args!(" {column}"), values);
            sql.push(")");
        }
    }
    in_states(sql, filter);
    if let Some(end) = filter.end {
        sql.push_with(" AND since_ms <= ", end.0);
    }
    match (over, filter.start) {
        (Some(true), Some(start)) => drop(sql.push_with(" AND end_ms >= ", start.0)),
        (Some(false), _) => drop(sql.push(" AND end_ms IS NULL")),
        _ => {}
    }
}

/// Rows that may have been in one of the states that are asked for, in the window where there is one.
fn in_states(sql: &mut Statement<'_>, filter: &JobFilter) {
    let windowed = filter.start.is_some() || filter.end.is_some();
    // What waited or ran in the window may have ended since, in whichever state. All jobs have waited.
    if !is_listed(&filter.states) || windowed && filter.states.contains(&JobState::Pending) {
        return;
    }
    let words: Vec<String> = filter.states.iter().map(|state| state.word().to_owned()).collect();
    let ran = windowed && filter.states.contains(&JobState::Running);
    one_of_texts(sql, if ran { " AND (start_ms IS NOT NULL OR state" } else { " AND (state" }, &words);
    sql.push(")");
}

/// Only what that user may see; with very many accounts that is for the filter.
pub(crate) fn restrict_to(sql: &mut Statement<'_>, owner: &Owner) {
    if owner.coordinates.len() > LISTED {
        return;
    }
    sql.push_with(" AND (uid = ", i64::from(owner.uid));
    let accounts: BTreeSet<&String> = owner.coordinates.iter().map(|(_, account)| account).collect();
    if !accounts.is_empty() {
        // A job in one of them has its name as accounting keeps it.
        sql.push(" OR account IN (");
        for (number, account) in accounts.into_iter().enumerate() {
            sql.push_with(
                if number == 0 { "" } else { ", " },
                Some(Cow::<'static, str>::Owned(column(account).into_owned())),
            );
        }
        sql.push(")");
    }
    sql.push(")");
}

fn one_of(sql: &mut Statement<'_>, column: &str, values: &[i64]) {
    let values: Vec<String> = values.iter().map(ToString::to_string).collect();
    sql.push(format_args!("{column} IN ({})", values.join(", ")));
}

/// One of these texts, as far as columns have them.
fn one_of_texts(sql: &mut Statement<'_>, what: impl Display, values: &[String]) {
    sql.push(what);
    for (number, value) in values.iter().enumerate() {
        sql.push_with(if number == 0 { " IN (" } else { ", " }, Value::Text(Some(column(value).into_owned().into())));
    }
    sql.push(")");
}

/// Columns and values for jobs by their ids, in whichever way they may be named. One without a column: all jobs.
fn named(filter: &JobFilter) -> Vec<Option<(&'static str, Vec<i64>)>> {
    if filter.jobs.is_empty() || filter.jobs.len() > LISTED {
        return vec![None];
    }
    let runs: Vec<i64> = filter.jobs.iter().filter_map(|named| Some(signed(named.run?.0))).collect();
    let jobs: Vec<i64> =
        filter.jobs.iter().filter(|named| named.run.is_none()).map(|named| named.job.0.into()).collect();
    let ways = [("sluid", runs), ("job", jobs.clone()), ("array_job", jobs.clone()), ("het_leader", jobs)];
    ways.into_iter().filter(|(_, values)| !values.is_empty()).map(Some).collect()
}
