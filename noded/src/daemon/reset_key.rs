//! The key with which a daemon that was killed and restarted tells its peers so at once. Otherwise they would wait for answers
//! for ten seconds, and a restarted controller would have no nodes for that long.

use garrick_kernel::files;
use garrick_transport::ResetKey;
use std::path::Path;

const FILE: &str = "reset.key";

/// The key that is kept in a folder, or a new one that is kept there from now on. `None`, and said in the log, where neither can
/// be: the daemon serves all the same.
pub fn kept(folder: &Path) -> Option<ResetKey> {
    let path = folder.join(FILE);
    let kept = files::read_if_there(&path).unwrap_or_else(|e| {
        tracing::warn!(error = %e, "the key of resets");
        None
    });
    if let Some(bytes) = kept.and_then(|bytes| bytes.try_into().ok()) {
        return Some(ResetKey::from_bytes(bytes));
    }
    let made = ResetKey::random().map_err(|e| e.to_string()).and_then(|key| {
        files::write_atomically(&path, key.as_bytes(), 0o600).map_err(|e| e.to_string())?;
        Ok(key)
    });
    made.inspect_err(|e| tracing::warn!("no key of resets, peers learn of a restart ten seconds later: {e}")).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use garrick_kernel::scratch::Scratch;

    #[test]
    fn the_next_process_has_the_same_key() {
        let dir = Scratch::new("reset-key");
        let first = kept(dir.path()).unwrap();
        assert_eq!(kept(dir.path()), Some(first.clone()));
        dir.put(FILE, "x");
        let new = kept(dir.path()).unwrap();
        assert_ne!(new, first);
        assert_eq!(kept(dir.path()), Some(new));
        assert_eq!(kept(&dir.path().join("nowhere")), None);
    }
}
