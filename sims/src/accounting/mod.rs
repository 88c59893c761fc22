//! What accounting takes in, how quickly it answers, and what it costs the cluster beside it; always beside something that was
//! measured in the same run: SQL by hand on the same rows, or the cluster without it.
//!
//! | file | what |
//! |---|---|
//! | [`fill`] | events of many jobs, stored as the service stores them |
//! | [`service`] | the service on such a database, as a process of its own |
//! | [`measured`] | time and memory of a process |
//! | [`questions`] | questions of `sacct` and `sreport`, beside SQL by hand |
//! | [`purge`] | half of it is archived and deleted while more is stored |
//! | [`launching`] | steps launched beside a service that is fed as a large site would |
//! | [`polling`] | jobs submitted while workflow programs ask `sacct` |
//!
//! What is killed meanwhile is in [`crate::faults::accounted`].

pub mod fill;
pub mod launching;
pub mod measured;
pub mod polling;
pub mod purge;
pub mod questions;
pub mod service;

use crate::{
    database::{self, Database, Kind},
    minibatch::{figures::Findings, inside::Fallible},
};
use std::{path::Path, sync::Arc, time::Instant};

/// How much is stored.
#[derive(Clone, Copy, Debug)]
pub struct Amounts {
    /// Jobs.
    pub jobs: u32,
    /// Steps of each.
    pub steps: u32,
}

impl Amounts {
    /// Between two starts, milliseconds: 100,000 jobs a day, or fewer where they would be over in less than eight days.
    pub fn pace(self) -> i64 {
        const DAY: i64 = 86_400_000;
        (DAY / 100_000).max(8 * DAY / i64::from(self.jobs.max(1)))
    }

    fn records(self) -> u64 {
        u64::from(self.jobs) * (1 + u64::from(self.steps))
    }
}

/// Fills a database, asks, purges half of it, and tells.
pub fn accounting(folder: &Path, kind: Kind, amounts: Amounts) -> Fallible<Findings> {
    let place = service::Place::make(folder, Database::make(folder, kind)?)?;
    if !place.database.has_client() {
        return Err(format!("the program to ask {} by hand is not installed", kind.word()).into());
    }
    let mut findings = Findings::default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let open = || database::open(&place.storage);
    let stored =
        runtime.block_on(async { fill::fill(&open().await?, &place.cluster, amounts, &mut findings).await })?;
    sizes(&place.database, amounts, &mut findings)?;
    questions::questions(&place, amounts, &mut findings)?;
    runtime.block_on(async {
        let store = Arc::new(open().await?);
        Box::pin(purge::purge(store, &place, amounts, stored, &mut findings)).await
    })?;
    Ok(findings)
}

/// Bytes on disk.
fn sizes(database: &Database, amounts: Amounts, findings: &mut Findings) -> Fallible<()> {
    if database.kind == Kind::Sqlite {
        // What is in the write-ahead log counts where it belongs.
        database.sql("PRAGMA wal_checkpoint(TRUNCATE)")?;
    }
    let (jobs, steps) = (database.bytes_of("jobs")?, database.bytes_of("steps")?);
    findings.amount("size on disk, of a job", as_f64(jobs) / f64::from(amounts.jobs), "bytes", None);
    if amounts.steps > 0 {
        let count = as_f64(amounts.records() - u64::from(amounts.jobs));
        findings.amount("size on disk, of a step", as_f64(steps) / count, "bytes", None);
    }
    Ok(())
}

/// For ratios: exact below 2^53.
#[expect(clippy::cast_precision_loss, reason = "amounts of a benchmark are far below 2^53")]
const fn as_f64(n: u64) -> f64 {
    n as f64
}

/// Seconds since then.
fn since(began: Instant) -> f64 {
    began.elapsed().as_secs_f64()
}
