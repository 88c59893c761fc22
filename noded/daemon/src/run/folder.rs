//! What a `stepd` keeps in its run's folder, besides its journal, for a later `stepd` of the same run and for the agent: its
//! process, that it began, and the address of its endpoint. None of it has to survive a crash of the machine, after which no
//! `stepd` is started again.

use garrick_kernel::{
    files::{self, FileError},
    proc_tree::{PROC, Process},
};
use garrick_transport::ResetKey;
use std::path::{Path, PathBuf};

/// Name of the file whose lock a `stepd` holds all its life. The agent takes it and passes the descriptor on at the start,
/// so that there is no moment at which a `stepd` lives and the lock is free.
pub const LIFE: &str = "life";
/// The step manager's journal, in the folder of a run and in that of its records.
pub const JOURNAL: &str = "steps";
const NOTE: &str = "stepd";
const PORT: &str = "port";

/// Which process the run's latest `stepd` is, as it noted itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Noted {
    /// Process.
    pub pid: u32,
    /// Its start, in clock ticks since boot.
    pub start: u64,
}

impl Noted {
    /// The process, if it still lives.
    pub fn living(&self) -> Option<u32> {
        let process = Process::read(Path::new(PROC), self.pid)?;
        (process.start_time == self.start && !process.is_dead()).then_some(self.pid)
    }
}

/// Reads the note.
pub fn noted(folder: &Path) -> Option<Noted> {
    let text = std::fs::read_to_string(folder.join(NOTE)).ok()?;
    let (pid, start) = text.trim().split_once(' ')?;
    Some(Noted { pid: pid.parse().ok()?, start: start.parse().ok()? })
}

/// Notes this process as the run's `stepd`, before anything is started that the next one would have to take over. True when there
/// was one before: this one takes over.
pub fn enter(folder: &Path) -> Result<bool, FileError> {
    let pid = std::process::id();
    let start = Process::read(Path::new(PROC), pid).map_or(0, |p| p.start_time);
    let note = folder.join(NOTE);
    let takes_over = note.exists();
    files::replace(&note, format!("{pid} {start}\n").as_bytes(), 0o600)?;
    Ok(takes_over)
}

/// Where an endpoint was bound, and the key with which a later one tells its peers that it is a new one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptPort {
    /// UDP port.
    pub port: u16,
    /// Key.
    pub key: ResetKey,
}

/// Reads what [`keep_port`] wrote; `None` where there is nothing, or nothing that can be read.
pub fn kept_port(folder: &Path) -> Option<KeptPort> {
    let bytes = std::fs::read(folder.join(PORT)).ok()?;
    let (port, key) = bytes.split_first_chunk::<2>()?;
    Some(KeptPort { port: u16::from_be_bytes(*port), key: ResetKey::from_bytes(key.try_into().ok()?) })
}

/// Keeps it for the next `stepd` of the run.
pub fn keep_port(folder: &Path, kept: &KeptPort) -> Result<(), FileError> {
    let mut bytes = kept.port.to_be_bytes().to_vec();
    bytes.extend_from_slice(kept.key.as_bytes());
    files::replace(&folder.join(PORT), &bytes, 0o600)
}

/// Where the launcher of a run listens, whose `stepd` has this door.
pub fn launcher_socket(door: &Path) -> PathBuf {
    let mut path = door.as_os_str().to_owned();
    path.push(".launcher");
    PathBuf::from(path)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use garrick_kernel::scratch::Scratch;

    #[test]
    fn the_second_to_enter_knows_that_it_is() {
        let dir = Scratch::new("run-folder");
        assert_eq!(noted(dir.path()), None);
        assert!(!enter(dir.path()).unwrap());
        assert!(enter(dir.path()).unwrap());
        let note = noted(dir.path()).unwrap();
        assert_eq!(note.living(), Some(std::process::id()));
        assert_eq!(Noted { start: note.start + 1, ..note }.living(), None);
    }

    #[test]
    fn the_port_is_kept_with_its_key() {
        let dir = Scratch::new("run-folder");
        assert_eq!(kept_port(dir.path()), None);
        let kept = KeptPort { port: 40_001, key: ResetKey::random().unwrap() };
        keep_port(dir.path(), &kept).unwrap();
        assert_eq!(kept_port(dir.path()), Some(kept));
        dir.put(PORT, "x");
        assert_eq!(kept_port(dir.path()), None);
    }
}
