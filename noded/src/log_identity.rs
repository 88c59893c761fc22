//! The identity of the controller's log, as it is told to whoever stores positions in it: another log's positions mean nothing. Each
//! follower has a file with one of its own, made when it begins to follow.

use garrick_accounts::messages::LogId;
use garrick_kernel::files::{self, FileError};
use garrick_model::ids::RequestId;
use std::path::Path;

/// The identity in a file; `None`: there is none.
pub fn read(path: &Path) -> Result<Option<LogId>, FileError> {
    let text = files::read_if_there(path)?.and_then(|bytes| String::from_utf8(bytes).ok());
    let id = text.as_deref().map(str::trim).filter(|text| text.len() == 32 && text.is_ascii());
    let half = |text: &str| u64::from_str_radix(text, 16).ok();
    Ok(id.and_then(|id| Some(LogId(half(&id[..16])?, half(&id[16..])?))))
}

/// A new one, in that file.
pub fn make(path: &Path) -> Result<LogId, FileError> {
    let RequestId(high, low) = RequestId::random();
    files::replace_for_good(path, format!("{high:016x}{low:016x}\n").as_bytes(), 0o600)?;
    Ok(LogId(high, low))
}
