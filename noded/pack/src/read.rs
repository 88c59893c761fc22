//! Reads records in the order in which they were written, all of them or those of some steps, and new ones as they come.

use crate::{
    block::{self, BlockHeader, FILE_HEADER, FIRST, Kind, read_at},
    error::PackError,
    index::{self, Index},
    lock::{self, Presence},
    record::{self, Found, Group, Record},
    select::Selection,
    tail,
};
use std::{
    collections::VecDeque,
    fs::File,
    path::{Path, PathBuf},
};

/// What stands behind the last whole block, as of the last look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tail {
    /// Nothing, and the writer closed the file.
    Closed,
    /// Nothing.
    Open,
    /// A piece of a block: it is being written, or a crash left it.
    Torn {
        /// Where it begins.
        offset: u64,
        /// How long it is.
        bytes: u64,
    },
}

/// A part of a file that is still to be read.
#[derive(Clone, Copy, Debug)]
enum Part {
    /// The block at an offset.
    Block(u64),
    /// Blocks from one offset to another.
    Range(u64, u64),
    /// From an offset on, to wherever the file ends by then.
    Rest(u64),
}

/// The block whose records are being given.
#[derive(Debug)]
struct Current {
    offset: u64,
    group: Group,
    raw: Vec<u8>,
    at: usize,
}

/// A reader of a pack. It does not disturb the writer, and needs no lock.
#[derive(Debug)]
pub struct PackReader {
    path: PathBuf,
    file: File,
    selection: Option<Selection>,
    todo: VecDeque<Part>,
    current: Current,
    stored: Vec<u8>,
    closed_at: u64,
    torn: u64,
}

impl PackReader {
    /// Opens a pack; all its records are to be read.
    pub fn open(path: &Path) -> Result<Self, PackError> {
        let metadata = path.metadata().map_err(PackError::file("cannot open", path))?;
        if !metadata.is_file() {
            return Err(PackError::NotAFile(path.to_owned()));
        }
        let file = File::open(path).map_err(PackError::file("cannot open", path))?;
        let mut header = [0; FILE_HEADER];
        let read = read_at(&file, &mut header, 0).map_err(PackError::file("cannot read", path))?;
        if read < FILE_HEADER {
            return Err(PackError::NotAPack(path.to_owned()));
        }
        block::check_file_header(path, &header)?;
        let group = Group { job: garrick_model::ids::JobId(0), het: None };
        Ok(Self {
            path: path.to_owned(),
            file,
            selection: None,
            todo: VecDeque::from([Part::Rest(FIRST)]),
            current: Current { offset: 0, group, raw: Vec::new(), at: 0 },
            stored: Vec::new(),
            closed_at: 0,
            torn: 0,
        })
    }

    /// The file's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// From here on, from the beginning, only records of these steps. With the file's index, blocks without any are not
    /// read; what stands where an index is damaged is looked through.
    pub fn select(&mut self, selection: Selection) -> Result<(), PackError> {
        let reading = PackError::file("cannot read", &self.path);
        self.todo = self.plan(&selection).map_err(reading)?;
        self.current.raw.clear();
        self.current.at = 0;
        self.selection = Some(selection);
        Ok(())
    }

    /// The next record; `None` when there is none for now. After [`PackError::Damaged`] reading goes on behind the damage, after
    /// [`PackError::Changed`] from the beginning; after other errors there is no sense in going on.
    pub fn next_record(&mut self) -> Option<Result<Record<'_>, PackError>> {
        match self.advance() {
            Ok(Some(found)) => Some(Ok(found.record(&self.current.raw))),
            Ok(None) => None,
            Err(error) => Some(Err(error)),
        }
    }

    /// What stands behind the last whole block. To be asked when there is no record for now.
    pub fn tail(&self) -> Tail {
        match self.todo.front() {
            Some(Part::Rest(offset)) if self.torn > 0 => Tail::Torn { offset: *offset, bytes: self.torn },
            Some(Part::Rest(offset)) if *offset == self.closed_at => Tail::Closed,
            _ => Tail::Open,
        }
    }

    /// Is a writer at work? To be asked before the last records are read, if it matters that there are no more.
    pub fn writer(&self) -> Result<Presence, PackError> {
        lock::ask(&self.file).map_err(PackError::file("cannot ask for the lock of", &self.path))
    }

    fn advance(&mut self) -> Result<Option<Found>, PackError> {
        loop {
            let current = &mut self.current;
            while current.at < current.raw.len() {
                match record::find(&current.raw, &mut current.at, current.group) {
                    Some(Some(found)) => {
                        let wanted = |selection: &Selection| selection.contains(&found.task.step);
                        if self.selection.as_ref().is_none_or(wanted) {
                            return Ok(Some(found));
                        }
                    }
                    Some(None) => {}
                    None => {
                        current.at = current.raw.len();
                        return Err(self.damaged(self.current.offset, "a record in it makes no sense"));
                    }
                }
            }
            if !self.next_block()? {
                return Ok(None);
            }
        }
    }

    fn damaged(&self, offset: u64, why: &'static str) -> PackError {
        PackError::Damaged { path: self.path.clone(), offset, why }
    }

    fn failed(&self, error: std::io::Error) -> PackError {
        PackError::file("cannot read", &self.path)(error)
    }

    /// Goes a block further; false at the end. That block need not have been one of records.
    fn next_block(&mut self) -> Result<bool, PackError> {
        match self.todo.front().copied() {
            None => Ok(false),
            Some(Part::Block(at)) => {
                self.todo.pop_front();
                match block::header_at(&self.file, at).map_err(|e| self.failed(e))? {
                    Some(header) => self.load(&header).map(|()| true),
                    None => Err(self.damaged(at, NO_HEADER)),
                }
            }
            Some(Part::Range(at, end)) if at >= end => {
                self.todo.pop_front();
                Ok(true)
            }
            Some(Part::Range(at, end)) => self.step(at, end, |at| Part::Range(at, end)),
            Some(Part::Rest(at)) => self.step_into_the_open(at),
        }
    }

    fn step_into_the_open(&mut self, at: u64) -> Result<bool, PackError> {
        let length = self.file.metadata().map_err(|e| self.failed(e))?.len();
        self.torn = 0;
        if length <= at {
            if length < at {
                // Emptied or cut off by someone else: what comes next is new.
                self.todo = VecDeque::from([Part::Rest(FIRST)]);
                return Err(PackError::Changed { path: self.path.clone(), expected: at, found: length });
            }
            return Ok(false);
        }
        // The last block may not be whole yet, or never become so. Damage is only what has a block behind it.
        let header = block::header_at(&self.file, at).map_err(|e| self.failed(e))?;
        let last = header.is_none_or(|header| header.end() >= length);
        if last && !self.is_whole(header, length)? {
            let behind = tail::next_from(&self.file, at + 1, length).map_err(|e| self.failed(e))?;
            if behind.is_none() {
                self.torn = length - at;
                return Ok(false);
            }
        }
        self.step(at, length, Part::Rest)
    }

    fn is_whole(&mut self, header: Option<BlockHeader>, length: u64) -> Result<bool, PackError> {
        let Some(header) = header.filter(|header| header.end() <= length) else { return Ok(false) };
        let raw = &mut self.current.raw;
        let whole = block::payload(&self.file, &header, &mut self.stored, raw);
        raw.clear();
        Ok(whole.map_err(|e| self.failed(e))?.is_ok())
    }

    /// Over the block at `at`, or the damage there; `rest` is what then remains to be read.
    fn step(&mut self, at: u64, end: u64, rest: impl Fn(u64) -> Part) -> Result<bool, PackError> {
        let header = block::header_at(&self.file, at).map_err(|e| self.failed(e))?;
        let Some(header) = header.filter(|header| header.end() <= end) else {
            let next = tail::next_from(&self.file, at + 1, end).map_err(|e| self.failed(e))?;
            self.todo[0] = rest(next.map_or(end, |next| next.offset));
            return Err(self.damaged(at, NO_HEADER));
        };
        self.todo[0] = rest(header.end());
        match header.kind {
            Kind::Records { group, first, last } => {
                let wanted = |selection: &Selection| selection.touches_block(group, first, last);
                if self.selection.as_ref().is_none_or(wanted) {
                    self.load(&header)?;
                }
            }
            Kind::Index { closing: true } => self.closed_at = header.end(),
            Kind::Index { closing: false } | Kind::Unknown => {}
        }
        Ok(true)
    }

    fn load(&mut self, header: &BlockHeader) -> Result<(), PackError> {
        let Kind::Records { group, .. } = header.kind else { return Ok(()) };
        (self.current.offset, self.current.group, self.current.at) = (header.offset, group, 0);
        block::payload(&self.file, header, &mut self.stored, &mut self.current.raw)
            .map_err(|e| self.failed(e))?
            .map_err(|why| self.damaged(header.offset, why))
    }

    /// What is to be read for a selection, by the indices: each names the one before it.
    fn plan(&mut self, selection: &Selection) -> std::io::Result<VecDeque<Part>> {
        let length = self.file.metadata()?.len();
        let mut plan = VecDeque::new();
        // What the indices read so far cover begins here.
        let mut covered: Option<u64> = None;
        let mut at = match tail::last_before(&self.file, length)? {
            None => 0,
            Some(last) => match last.kind {
                Kind::Index { .. } => last.offset,
                Kind::Records { .. } | Kind::Unknown => last.index,
            },
        };
        while at != 0 {
            let Some(header) = block::header_at(&self.file, at)? else { break };
            // A header only names earlier blocks, so this ends.
            at = header.index;
            let Some(index) = self.index(&header)? else { continue };
            match covered {
                None => plan.push_front(Part::Rest(index.to)),
                Some(lower) if index.to < lower => plan.push_front(Part::Range(index.to, lower)),
                Some(_) => {}
            }
            for entry in index.entries.iter().rev().filter(|entry| selection.touches_entry(entry)) {
                plan.push_front(Part::Block(entry.offset));
            }
            covered = Some(index.from);
        }
        match covered {
            None => plan.push_front(Part::Rest(FIRST)),
            Some(lower) if FIRST < lower => plan.push_front(Part::Range(FIRST, lower)),
            Some(_) => {}
        }
        Ok(plan)
    }

    fn index(&mut self, header: &BlockHeader) -> std::io::Result<Option<Index>> {
        if !matches!(header.kind, Kind::Index { .. }) {
            return Ok(None);
        }
        let mut raw = Vec::new();
        let read = block::payload(&self.file, header, &mut self.stored, &mut raw)?;
        // An index of what stands behind it would make no sense.
        let index = read.ok().and_then(|()| index::decode(&raw));
        Ok(index.filter(|index| index.from >= FIRST && index.to <= header.offset))
    }
}

const NO_HEADER: &str = "no block begins there";
