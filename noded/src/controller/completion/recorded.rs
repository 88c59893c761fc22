//! What `jobcomp/mysql` and its like have recorded, for `sacct --completion`: lines as those of `jobcomp/filetxt`, with what the table
//! has. It is read in the name of who asks, with the settings that he can read, as Slurm's sacct does it: nothing runs with more rights.

use super::forms;
use garrick_accountant::{completion::CompletionStore, store::StoreError};
use garrick_model::{
    config::{CompletionSettings, CompletionType},
    time::system_zone,
};
use std::io::{self, Write};

/// Why they cannot be shown.
#[derive(Debug, thiserror::Error)]
pub enum RecordedError {
    /// There is no database.
    #[error("JobCompType names no database")]
    NoDatabase,
    /// It cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// They cannot be written, or nothing can be started.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Writes a line for each run, in the order of jobs and then of their starts.
///
/// # Errors
/// Where there is no database or it cannot be read. A reader that has gone is none.
pub fn show(settings: &CompletionSettings, out: &mut impl Write) -> Result<(), RecordedError> {
    if settings.kind != CompletionType::Database {
        return Err(RecordedError::NoDatabase);
    }
    garrick_transport::install_crypto_provider();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match runtime.block_on(write_all(settings, out)) {
        Err(RecordedError::Io(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        done => done,
    }
}

async fn write_all(settings: &CompletionSettings, out: &mut impl Write) -> Result<(), RecordedError> {
    let mut store = CompletionStore::of(&settings.storage)?.ok_or(RecordedError::NoDatabase)?;
    let zone = system_zone();
    let mut after = None;
    loop {
        let page = store.page(after).await?;
        for row in &page {
            out.write_all(forms::line_of(row, &zone).as_bytes())?;
        }
        match page.last() {
            Some(last) => after = Some(last.key()),
            None => return Ok(out.flush()?),
        }
    }
}
