//! Which files of a series contain which positions: for readers of old events, and to find files that may be removed.

use garrick_journal::JournalError;
use std::{
    collections::VecDeque,
    fs::File,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

/// A file that can be read from: those that are closed, then the one that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Segment {
    /// `None`: `journal`.
    number: Option<u64>,
    /// Position of the last event before it.
    before: u64,
}

/// See the module. Each file begins where the one before it ends.
#[derive(Debug)]
pub struct Segments {
    folder: PathBuf,
    list: Mutex<VecDeque<Segment>>,
}

/// A file that holds a position.
#[derive(Debug)]
pub struct Found {
    /// The file, opened for reading.
    pub file: File,
    /// What it is called now.
    pub path: PathBuf,
    /// Position of the last event before it.
    pub before: u64,
}

impl Segments {
    pub(super) fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), list: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Segment>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn path(&self, number: Option<u64>) -> PathBuf {
        number.map_or_else(|| super::series::path(&self.folder), |number| self.folder.join(format!("journal.{number}")))
    }

    /// A file whose first event has the number after `counted`, or after what it says itself: then those before it were counted
    /// otherwise, and nobody can tell which of their events is which.
    pub(super) fn add(&self, number: Option<u64>, counted: u64, said: Option<u64>) {
        let mut list = self.lock();
        let before = said.unwrap_or(counted);
        if before != counted {
            list.clear();
        }
        list.push_back(Segment { number, before });
    }

    /// A closed file before all others.
    pub(super) fn add_older(&self, number: u64, before: u64) -> bool {
        let mut list = self.lock();
        let fits = list.front().is_none_or(|next| before <= next.before);
        if fits {
            list.push_front(Segment { number: Some(number), before });
        }
        fits
    }

    /// `rename` closes `journal` as that number, and puts one in its place that follows that position. Nobody opens a file
    /// meanwhile.
    pub(super) fn close<E>(&self, number: u64, position: u64, rename: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        let mut list = self.lock();
        rename()?;
        if let Some(last) = list.back_mut() {
            last.number = Some(number);
        }
        list.push_back(Segment { number: None, before: position });
        Ok(())
    }

    /// Of these closed files, in order, those that hold nothing beyond that position. The rest has to stay.
    pub(super) fn upto(&self, position: u64, closed: impl Iterator<Item = u64>) -> Vec<u64> {
        let list = self.lock();
        let last_of = |number: u64| {
            let place = list.iter().position(|segment| segment.number == Some(number))?;
            Some(list.get(place + 1)?.before)
        };
        // What is not in the list can be read by nobody.
        closed.take_while(|number| last_of(*number).is_none_or(|last| last <= position)).collect()
    }

    /// A closed file is removed by `remove`.
    pub(super) fn remove<E>(&self, number: u64, remove: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        let mut list = self.lock();
        remove()?;
        // What stands before it is gone as well, or of no use.
        if let Some(place) = list.iter().position(|segment| segment.number == Some(number)) {
            list.drain(..=place);
        }
        Ok(())
    }

    /// The oldest position that can be read; the next one where there is none.
    pub fn oldest(&self) -> u64 {
        self.lock().front().map_or(1, |first| first.before.saturating_add(1))
    }

    /// The file that holds a position. `None`: there is none any more.
    pub fn find(&self, position: u64) -> Result<Option<Found>, JournalError> {
        let list = self.lock();
        let Some(segment) = list.iter().rev().find(|segment| segment.before < position) else { return Ok(None) };
        let path = self.path(segment.number);
        let file = File::open(&path).map_err(|e| JournalError::io("open", &path, &e))?;
        Ok(Some(Found { file, path, before: segment.before }))
    }
}
