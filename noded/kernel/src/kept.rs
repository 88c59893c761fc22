//! What parts of the machine had before steps changed them: a file for each, with who changed it last and what it had first. They
//! outlast a crash.

use crate::files::{self, FileError, failed};
use std::{
    fs::{self, File},
    io,
    path::PathBuf,
};

/// Who changed a part last, and what it had first, on one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) owner: String,
    pub(crate) had: String,
}

/// A folder of such files, which only this daemon writes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    folder: PathBuf,
    /// Begins the files' names; the part's number follows.
    kind: &'static str,
}

impl Kept {
    pub(crate) const fn new(folder: PathBuf, kind: &'static str) -> Self {
        Self { folder, kind }
    }

    /// Keeps others out until it is dropped. Makes the folder.
    pub(crate) fn begin(&self) -> Result<File, FileError> {
        files::keep_folder(&self.folder, 0o700)?;
        self.lock()
    }

    /// Keeps others out until it is dropped. The folder is there.
    pub(crate) fn lock(&self) -> Result<File, FileError> {
        let folder = File::open(&self.folder).map_err(failed("open", &self.folder))?;
        folder.lock().map_err(failed("lock", &self.folder))?;
        Ok(folder)
    }

    /// What is kept of a part. A file that is damaged is none.
    pub(crate) fn get(&self, number: u32) -> Result<Option<Entry>, FileError> {
        let Some(bytes) = files::read_if_there(&self.path(number))? else { return Ok(None) };
        let text = String::from_utf8_lossy(&bytes);
        let parts = text.split_once('\n');
        Ok(parts.map(|(owner, had)| Entry { owner: owner.to_owned(), had: had.trim_end().to_owned() }))
    }

    pub(crate) fn put(&self, number: u32, entry: &Entry) -> Result<(), FileError> {
        let text = format!("{}\n{}\n", entry.owner, entry.had);
        files::write_atomically(&self.path(number), text.as_bytes(), 0o600)
    }

    pub(crate) fn remove(&self, number: u32) -> Result<(), FileError> {
        let path = self.path(number);
        fs::remove_file(&path).map_err(failed("remove", &path))
    }

    /// The parts that `owner` changed last, as far as it is the beginning of who did, and what they had.
    pub(crate) fn of(&self, owner: &str) -> Result<Vec<(u32, String)>, FileError> {
        let entries = match fs::read_dir(&self.folder) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(failed("read", &self.folder))?,
        };
        let mut found = Vec::new();
        for entry in entries {
            let name = entry.map_err(failed("read", &self.folder))?.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix(self.kind)?.parse().ok());
            let Some(number) = number else { continue };
            let entry = self.get(number)?.filter(|entry| entry.owner.starts_with(owner));
            found.extend(entry.map(|entry| (number, entry.had)));
        }
        Ok(found)
    }

    fn path(&self, number: u32) -> PathBuf {
        self.folder.join(format!("{}{number}", self.kind))
    }
}
