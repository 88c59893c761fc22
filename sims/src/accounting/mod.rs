//! What accounting takes in and how quickly it answers, beside hand-written SQL on the same rows.
//!
//! | file | what |
//! |---|---|
//! | [`fill`] | events of many jobs, stored as the service stores them |
//! | [`ask`] | questions of `sacct`, beside one statement that reads the same rows |

pub mod ask;
pub mod fill;

use crate::minibatch::{figures::Findings, inside::Fallible};
use garrick_accountant::store::Store;
use std::{fs, path::Path, time::Instant};

/// How much is stored.
#[derive(Clone, Copy, Debug)]
pub struct Amounts {
    /// Jobs.
    pub jobs: u32,
    /// Steps of each.
    pub steps: u32,
}

/// Fills a database in that folder, asks, and tells.
pub fn accounting(folder: &Path, amounts: Amounts) -> Fallible<Findings> {
    let path = folder.join("accounting/accounting.db");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut findings = Findings::default();
    runtime.block_on(async {
        let store = Store::open_file(&path).await?;
        fill::fill(&store, amounts, &mut findings).await?;
        let size = fs::metadata(&path)?.len();
        let records = u64::from(amounts.jobs) * (1 + u64::from(amounts.steps));
        findings.amount("size on disk per record", as_f64(size) / as_f64(records), "bytes", None);
        ask::ask(&store, &path, amounts, &mut findings).await
    })?;
    Ok(findings)
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
