//! A folder for a test's database.
#![allow(clippy::unwrap_used)]

use std::{
    future::Future,
    path::PathBuf,
    sync::atomic::{AtomicU32, Ordering},
};

/// Runs it with a folder of its own.
pub(crate) fn with_folder<F: Future<Output = ()>>(test: impl FnOnce(PathBuf) -> F) {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let folder = std::env::temp_dir().join(format!("garrick-accounts-{}-{number}", std::process::id()));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(test(folder.join("accounting/jobs.db")));
    drop(runtime);
    std::fs::remove_dir_all(&folder).unwrap();
}
