//! The certificates that an authority has issued and revoked: a file with one JSON object a line beside the authority's key, and
//! the revocation list (RFC 5280) that is made from it.

use super::{
    IdentityError, files, invalid,
    keep::{Change, InFolder, Keep},
};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

const FILE: &str = "issued";
/// Certificates that ended so long ago are forgotten.
const KEPT: Duration = Duration::from_secs(90 * 24 * 3600);
/// Largest file that is read: some hundred thousand certificates.
const MOST_BYTES: usize = 64 << 20;

/// A certificate that was issued. Times are seconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Issued {
    /// Serial number, hexadecimal.
    pub serial: String,
    /// `controller`, `node`, `client`.
    pub role: String,
    /// Whose.
    pub name: String,
    /// When it was made.
    pub issued: u64,
    /// When it ends.
    pub expires: u64,
    /// When it was revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked: Option<u64>,
}

/// See the module.
pub(super) struct Register {
    path: PathBuf,
    pub(super) keep: Arc<dyn Keep>,
    entries: Mutex<Arc<BTreeMap<String, Issued>>>,
    /// One change at a time; readers do not wait until it is saved.
    changing: Mutex<()>,
}

/// Seconds since 1970.
pub(super) fn seconds(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

impl Register {
    /// Reads the one in the authority's folder; an authority of an earlier version has none.
    pub fn open(folder: &Path) -> Result<Self, IdentityError> {
        let path = folder.join(FILE);
        let mut entries = BTreeMap::new();
        match files::read_secret(&path, MOST_BYTES) {
            Ok(bytes) => {
                for line in bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                    let entry: Issued =
                        serde_json::from_slice(line).map_err(|e| invalid(path.display().to_string(), e))?;
                    entries.insert(entry.serial.clone(), entry);
                }
            }
            Err(IdentityError::Absent { .. }) => {}
            Err(error) => return Err(error),
        }
        Ok(Self { path, keep: Arc::new(InFolder), entries: Mutex::new(Arc::new(entries)), changing: Mutex::default() })
    }

    fn entries(&self) -> Arc<BTreeMap<String, Issued>> {
        Arc::clone(&self.entries.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes it on disk, then here.
    fn change<T>(&self, change: impl FnOnce(&mut BTreeMap<String, Issued>) -> T) -> Result<T, IdentityError> {
        let _one_at_a_time = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut changed = BTreeMap::clone(&self.entries());
        let result = change(&mut changed);
        let mut text = Vec::new();
        for entry in changed.values() {
            serde_json::to_writer(&mut text, entry).map_err(|e| invalid("register of certificates", e))?;
            text.push(b'\n');
        }
        self.keep.keep(vec![Change::private(self.path.clone(), text)])?;
        *self.entries.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(changed);
        Ok(result)
    }

    pub fn add(&self, entry: Issued, now: SystemTime) -> Result<(), IdentityError> {
        let oldest = seconds(now).saturating_sub(KEPT.as_secs());
        self.change(|entries| {
            entries.retain(|_, one| one.expires >= oldest);
            entries.insert(entry.serial.clone(), entry);
        })
    }

    pub fn all(&self) -> Vec<Issued> {
        let mut all: Vec<Issued> = self.entries().values().cloned().collect();
        all.sort_by(|a, b| (&a.role, &a.name, a.issued, &a.serial).cmp(&(&b.role, &b.name, b.issued, &b.serial)));
        all
    }

    /// Revokes all of a name that are valid. Returns how many.
    pub fn revoke(&self, role: &str, name: &str, now: SystemTime) -> Result<usize, IdentityError> {
        let now = seconds(now);
        self.change(|entries| {
            let valid = entries.values_mut().filter(|one| one.role == role && one.name == name);
            valid.filter(|one| one.revoked.is_none() && one.expires > now).map(|one| one.revoked = Some(now)).count()
        })
    }

    /// All that this name ever had and that is known is revoked.
    pub fn is_barred(&self, role: &str, name: &str) -> bool {
        let entries = self.entries();
        let mut own = entries.values().filter(|one| one.role == role && one.name == name).peekable();
        own.peek().is_some() && own.all(|one| one.revoked.is_some())
    }
}
