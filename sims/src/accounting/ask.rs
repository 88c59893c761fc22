//! Questions, each beside one statement that reads the same bodies by its best index.

use super::{
    Amounts,
    fill::{BEGIN, PACE, USERS},
    since,
};
use crate::minibatch::{figures::Findings, inside::Fallible};
use garrick_accountant::{
    pages::{Cursor, Question},
    store::Store,
};
use garrick_accounts::filter::{JobFilter, NamedJob};
use garrick_model::{ids::JobId, time::Timestamp};
use sqlx::{Connection as _, SqliteConnection, sqlite::SqliteConnectOptions};
use std::{path::Path, time::Instant};

const DAY: i64 = 86_400_000;

/// Asks, and tells how long it took.
pub async fn ask(store: &Store, path: &Path, amounts: Amounts, findings: &mut Findings) -> Fallible<()> {
    let mut by_hand =
        SqliteConnection::connect_with(&SqliteConnectOptions::new().filename(path).read_only(true)).await?;
    let middle = BEGIN + i64::from(amounts.jobs) * PACE / 2;
    let window = |days: i64| JobFilter {
        start: Some(Timestamp(middle)),
        end: Some(Timestamp(middle + days * DAY)),
        ..JobFilter::default()
    };
    let times = |days: i64| format!("end_ms >= {middle} AND since_ms <= {}", middle + days * DAY);
    let (job, user) = (amounts.jobs / 2, 1000 + USERS / 2);
    let questions = [
        (
            "one job",
            JobFilter { jobs: vec![NamedJob::job(JobId(job))], ..JobFilter::default() },
            format!("SELECT body FROM jobs WHERE cluster = 1 AND job = {job}"),
        ),
        (
            "a user's week",
            JobFilter { users: vec![user], ..window(7) },
            format!("SELECT body FROM jobs WHERE cluster = 1 AND uid = {user} AND {}", times(7)),
        ),
        ("a day of everything", window(1), format!("SELECT body FROM jobs WHERE cluster = 1 AND {}", times(1))),
    ];
    let mut rows = Vec::new();
    for (what, filter, sql) in questions {
        let began = Instant::now();
        let told = all(store, &filter).await?;
        let took = since(began);
        let began = Instant::now();
        let bodies: Vec<Vec<u8>> =
            sqlx::query_scalar(sqlx::AssertSqlSafe(sql.as_str())).fetch_all(&mut by_hand).await?;
        let floor = since(began);
        if told != bodies.len() {
            return Err(format!("{what}: {told} rows, and {} by hand", bodies.len()).into());
        }
        let millis = |seconds: f64| format!("{:.1}", seconds * 1e3);
        rows.push(vec![what.to_owned(), told.to_string(), millis(took), millis(floor), format!("{:.1}", took / floor)]);
    }
    findings.table(
        "Questions, rows decoded and in order",
        &["question", "rows", "ms", "SQL by hand, ms", "ratio"],
        rows,
    );
    Ok(())
}

/// How many rows a question has for an answer, page by page.
async fn all(store: &Store, filter: &JobFilter) -> Fallible<usize> {
    let (mut cursor, mut after, mut rows) = (Cursor::default(), None, 0);
    loop {
        let question = Question { filter, steps: false, after: after.as_ref(), only: None };
        let page = store.page(question, &mut cursor).await?;
        rows += page.jobs.len();
        after = page.next;
        if after.is_none() {
            return Ok(rows);
        }
    }
}
