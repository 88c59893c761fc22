//! Only one controller writes a state folder at a time. A controller takes the lock on `lock`, which the kernel releases when the
//! process ends, and writes its name into `writer`. Where locks do not work (a folder that two hosts mount without locks), the
//! name decides: a controller that finds another's name there ends before it answers anyone.

use garrick_kernel::{
    files::{self, FileError},
    lock::LifeLock,
};
use garrick_model::{
    ids::RequestId,
    time::{Timestamp, system_zone},
    trigger::TriggerEvent,
};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

const LOCK: &str = "lock";
const WRITER: &str = "writer";

/// Who writes a state folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Writer {
    /// Its host.
    pub host: String,
    /// Its process there.
    pub pid: u32,
    /// Since when.
    pub since: Timestamp,
    /// Of this start alone.
    pub token: String,
    /// What its records bear; 0: of a version whose records bear none.
    #[serde(default)]
    pub epoch: u64,
    /// When it ended in order; unset: it writes, or failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Timestamp>,
}

impl Writer {
    fn write(&self, path: &Path) -> Result<(), FileError> {
        let text = serde_json::to_vec(self).expect("names and numbers");
        files::write_atomically(path, &text, 0o600)
    }
}

impl std::fmt::Display for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the controller on host {} (pid {}), since {}", self.host, self.pid, self.since.text(&system_zone()))
    }
}

/// The folder is not this process's to write.
#[derive(Debug, thiserror::Error)]
pub enum TenureError {
    /// A file.
    #[error(transparent)]
    File(#[from] FileError),
    /// Another controller has it.
    #[error(
        "StateSaveLocation={} is written by {}: end that one first, or give this one a StateSaveLocation of its own",
        state.display(),
        by.as_ref().map_or_else(|| "another controller".to_owned(), ToString::to_string)
    )]
    Taken {
        /// The folder.
        state: PathBuf,
        /// Who, where that is known.
        by: Option<Writer>,
    },
}

/// The right to write a state folder, for as long as this lives.
#[derive(Debug)]
pub struct Tenure {
    own: Writer,
    path: PathBuf,
    /// Another host's controller may have been here and not know that it is over.
    pub after_another_host: bool,
    /// Who wrote it last.
    before: Option<Writer>,
    _lock: LifeLock,
}

/// What a writer asks before it writes, and before it says that it has.
#[derive(Clone, Debug)]
pub struct Fence {
    own: Writer,
    path: PathBuf,
}

impl Tenure {
    /// Takes a folder for this process.
    pub fn take(state: &Path, host: &str) -> Result<Self, TenureError> {
        let path = state.join(WRITER);
        let Some(lock) = LifeLock::take(&state.join(LOCK))? else {
            return Err(TenureError::Taken { state: state.to_owned(), by: last(&path)? });
        };
        let before = last(&path)?;
        let after_another_host = before.as_ref().is_some_and(|before| before.host != host);
        let own = Writer {
            host: host.to_owned(),
            pid: std::process::id(),
            since: Timestamp::now(),
            token: format!("{:x}", RequestId::random().0),
            epoch: before.as_ref().map_or(0, |before| before.epoch) + 1,
            ended: None,
        };
        own.write(&path)?;
        Ok(Self { own, path, after_another_host, before, _lock: lock })
    }

    /// What the folder's next records bear at least.
    pub const fn epoch(&self) -> u64 {
        self.own.epoch
    }

    /// This tenure's epoch is that one, after what the journal says. A folder that was taken meanwhile is left alone.
    pub fn hold(&mut self, epoch: u64) -> Result<(), TenureError> {
        if self.fence().passed().is_err() {
            return Err(TenureError::Taken { state: self.path.with_file_name(""), by: last(&self.path)? });
        }
        if epoch != self.own.epoch {
            self.own.epoch = epoch;
            self.own.write(&self.path)?;
        }
        Ok(())
    }

    /// What became of the cluster's controllers with this tenure, as triggers know it (strigger(1)). `is_primary`: does a host of
    /// that name have the primary controller?
    pub fn events(&self, is_primary: impl Fn(&str) -> bool) -> BTreeSet<TriggerEvent> {
        let own = is_primary(&self.own.host);
        let Some(before) = &self.before else {
            return if own { BTreeSet::new() } else { [TriggerEvent::BackupInControl].into() };
        };
        let theirs = is_primary(&before.host);
        let failed = if theirs { TriggerEvent::PrimaryFailed } else { TriggerEvent::BackupFailed };
        let now: &[TriggerEvent] = match (own, theirs) {
            (true, true) => &[TriggerEvent::PrimaryResumed],
            (true, false) => &[TriggerEvent::PrimaryResumed, TriggerEvent::PrimaryInControl],
            (false, true) => &[TriggerEvent::BackupInControl],
            (false, false) if before.host == self.own.host => &[TriggerEvent::BackupResumed],
            (false, false) => &[TriggerEvent::BackupResumed, TriggerEvent::BackupInControl],
        };
        now.iter().copied().chain(before.ended.is_none().then_some(failed)).collect()
    }

    /// The process that has it ends in order: whoever has the folder next is told so. Nothing of it is written from here on.
    pub fn end(mut self) {
        if self.fence().passed().is_err() {
            return;
        }
        self.own.ended = Some(Timestamp::now());
        if let Err(error) = self.own.write(&self.path) {
            tracing::warn!(%error, "it is not written that the controller ended in order");
        }
    }

    /// For the writer.
    pub fn fence(&self) -> Fence {
        Fence { own: self.own.clone(), path: self.path.clone() }
    }
}

/// Who took the folder last. A file that says nothing is as good as none.
fn last(path: &Path) -> Result<Option<Writer>, FileError> {
    Ok(files::read_if_there(path)?.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
}

impl Fence {
    /// Is the folder still this process's? A file that cannot be read now says nothing against it.
    pub fn passed(&self) -> Result<(), String> {
        match last(&self.path) {
            Ok(Some(now)) if now.token != self.own.token => {
                Err(format!("the state folder of {} was taken by {now}", self.own))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use garrick_kernel::scratch::Scratch;

    /// Children that other tests start in this moment have a copy of the lock that was dropped until they execute.
    fn take_again(folder: &Path, host: &str) -> Tenure {
        loop {
            match Tenure::take(folder, host) {
                Err(TenureError::Taken { .. }) => std::thread::yield_now(),
                taken => return taken.unwrap(),
            }
        }
    }

    #[test]
    fn the_second_is_told_who_the_first_is() {
        let dir = Scratch::new("tenure");
        let first = Tenure::take(dir.path(), "host1").unwrap();
        match Tenure::take(dir.path(), "host2") {
            Err(e @ TenureError::Taken { .. }) => {
                let text = e.to_string();
                assert!(text.contains("host host1") && text.contains(&std::process::id().to_string()), "{text}");
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(first.fence().passed(), Ok(()));
        drop(first);
        let next = take_again(dir.path(), "host1");
        assert!(!next.after_another_host, "the kernel says that the one before is dead");
        drop(next);
        assert!(take_again(dir.path(), "host2").after_another_host);
    }

    #[test]
    fn the_next_knows_who_failed_and_who_took_over() {
        use TriggerEvent::{
            BackupFailed, BackupInControl, BackupResumed, PrimaryFailed, PrimaryInControl, PrimaryResumed,
        };
        let dir = Scratch::new("tenure-events");
        let is_primary = |host: &str| host == "host1";
        let events = |tenure: &Tenure| tenure.events(is_primary).into_iter().collect::<Vec<_>>();
        let first = take_again(dir.path(), "host1");
        assert_eq!(events(&first), []);
        first.end();
        let again = take_again(dir.path(), "host1");
        assert_eq!(events(&again), [PrimaryResumed], "the one before ended in order");
        drop(again);
        let killed = take_again(dir.path(), "host1");
        assert_eq!(events(&killed), [PrimaryResumed, PrimaryFailed]);
        drop(killed);
        let backup = take_again(dir.path(), "host2");
        assert_eq!(events(&backup), [PrimaryFailed, BackupInControl]);
        drop(backup);
        let again = take_again(dir.path(), "host2");
        assert_eq!(events(&again), [BackupFailed, BackupResumed]);
        again.end();
        assert_eq!(events(&take_again(dir.path(), "host1")), [PrimaryResumed, PrimaryInControl]);
    }

    #[test]
    fn epochs_rise_from_tenure_to_tenure() {
        let dir = Scratch::new("tenure-epoch");
        let mut first = Tenure::take(dir.path(), "host1").unwrap();
        assert_eq!(first.epoch(), 1);
        first.hold(7).unwrap();
        drop(first);
        let mut second = take_again(dir.path(), "host1");
        assert_eq!(second.epoch(), 8);
        dir.put(WRITER, r#"{"host":"host2","pid":7,"since":1790000000000,"token":"another"}"#);
        assert!(matches!(second.hold(9), Err(TenureError::Taken { .. })));
    }

    #[test]
    fn whoever_finds_another_name_is_fenced() {
        let dir = Scratch::new("tenure");
        let fence = Tenure::take(dir.path(), "host1").unwrap().fence();
        let _second = take_again(dir.path(), "host2");
        assert!(fence.passed().unwrap_err().contains("was taken by the controller on host host2"));
        dir.put(WRITER, "{");
        assert_eq!(fence.passed(), Ok(()));
    }
}
