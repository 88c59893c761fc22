//! Passes on a job's output files as they grow: standard output to standard output, a separate standard error to standard error.
//! A file that is truncated or replaced (a requeued job) is followed from its beginning.

use std::{
    fs::File,
    io::{self, Read as _, Seek as _, SeekFrom, Write},
    os::unix::fs::MetadataExt as _,
    path::PathBuf,
    time::SystemTime,
};

/// Bytes passed on at a time.
const CHUNK: usize = 64 << 10;

/// A file that is followed.
#[derive(Debug)]
pub struct Followed {
    path: PathBuf,
    file: Option<(File, u64)>,
    read: u64,
    written_since: Option<SystemTime>,
}

impl Followed {
    /// A file that is to be made, or truncated, at `since`: an older one that still stands there is not looked at.
    pub fn made(path: impl Into<PathBuf>, since: SystemTime) -> Self {
        Self { path: path.into(), file: None, read: 0, written_since: Some(since) }
    }

    /// A file that is appended to: what is in it already, `skip` bytes, is left out.
    pub fn appended(path: impl Into<PathBuf>, skip: u64) -> Self {
        Self { path: path.into(), file: None, read: skip, written_since: None }
    }

    /// Passes on what was added. Returns how many bytes that were.
    pub fn pass_on(&mut self, out: &mut dyn Write) -> io::Result<u64> {
        if !self.open()? {
            return Ok(0);
        }
        let Some((file, _)) = &mut self.file else { return Ok(0) };
        let size = file.metadata()?.len();
        if size < self.read {
            self.read = 0;
        }
        file.seek(SeekFrom::Start(self.read))?;
        let mut passed = 0;
        let mut chunk = vec![0; CHUNK];
        loop {
            let n = file.read(&mut chunk)?;
            if n == 0 {
                break;
            }
            out.write_all(&chunk[..n])?;
            passed += n as u64;
        }
        self.read += passed;
        if passed > 0 {
            out.flush()?;
        }
        Ok(passed)
    }

    /// Opens the file, again if another one stands in its place.
    fn open(&mut self) -> io::Result<bool> {
        let now = match self.path.metadata() {
            // Only plain files are followed: /dev/null and terminals have nothing to read back.
            Ok(found) if found.is_file() => {
                let old = |since| found.modified().is_ok_and(|at| at < since);
                if self.file.is_none() && self.written_since.is_some_and(old) {
                    return Ok(false);
                }
                found.ino()
            }
            Ok(_) => return Ok(false),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(self.file.is_some()),
            Err(error) => return Err(error),
        };
        match &self.file {
            Some((_, inode)) if *inode == now => {}
            before => {
                if before.is_some() {
                    self.read = 0;
                }
                self.file = Some((File::open(&self.path)?, now));
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::fs;

    #[test]
    fn what_is_added_is_passed_on_once() {
        let path = std::env::temp_dir().join(format!("garrick-follow-site-{}", std::process::id()));
        drop(fs::remove_file(&path));
        let mut followed = Followed::made(&path, SystemTime::UNIX_EPOCH);
        let mut out = Vec::new();
        assert_eq!(followed.pass_on(&mut out).unwrap(), 0, "not there yet");
        fs::write(&path, "one\n").unwrap();
        assert_eq!(followed.pass_on(&mut out).unwrap(), 4);
        assert_eq!(followed.pass_on(&mut out).unwrap(), 0);
        fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(b"two\n").unwrap();
        followed.pass_on(&mut out).unwrap();
        fs::write(&path, "3\n").unwrap();
        followed.pass_on(&mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "one\ntwo\n3\n");
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn what_an_earlier_run_left_is_not_passed_on() {
        let path = std::env::temp_dir().join(format!("garrick-follow-old-{}", std::process::id()));
        fs::write(&path, "old\n").unwrap();
        let later = SystemTime::now() + std::time::Duration::from_secs(60);
        let mut out = Vec::new();
        assert_eq!(Followed::made(&path, later).pass_on(&mut out).unwrap(), 0);
        assert_eq!(Followed::appended(&path, 4).pass_on(&mut out).unwrap(), 0);
        assert_eq!(Followed::appended(&path, 1).pass_on(&mut out).unwrap(), 3);
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn devices_are_not_followed() {
        let mut out = Vec::new();
        assert_eq!(Followed::appended("/dev/zero", 0).pass_on(&mut out).unwrap(), 0);
    }
}
