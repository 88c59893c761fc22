//! Texts in the order of the rows that they are of, however many there are. So many bytes of them are held in memory; what is more
//! is in a file without a name, in sorted parts that are merged at the end. The service tells rows by job and run, `sacct` shows
//! them by submission, and tasks of arrays have later numbers than jobs that were submitted after them: nothing can be shown before
//! all rows have come.

use garrick_render::sacct::choice::Place;
use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    env,
    fs::{self, File},
    io::{self, BufReader, BufWriter, Read, Write},
    os::unix::fs::{FileExt as _, OpenOptionsExt as _},
    process,
};

/// Bytes that are held in memory, about.
pub const HELD: usize = 32 << 20;
/// Fewest bytes of a part that are read at a time.
const FEWEST: usize = 4 << 10;
/// Bytes that a text takes besides its own, about.
const OVERHEAD: usize = 64;

type Entry = (Place, Vec<u8>);

/// See the module.
#[derive(Debug)]
pub struct Sorted {
    most: usize,
    held: Vec<Entry>,
    bytes: usize,
    parts: Option<Parts>,
}

/// Sorted parts, one behind the other.
#[derive(Debug)]
struct Parts {
    file: File,
    /// Where each of them ends.
    ends: Vec<u64>,
}

impl Sorted {
    /// Holds so many bytes in memory, about.
    pub const fn holding(most: usize) -> Self {
        Self { most, held: Vec::new(), bytes: 0, parts: None }
    }

    /// Takes a text.
    ///
    /// # Errors
    /// The file, whose folder (`TMPDIR`, or `/tmp`) may be full.
    pub fn take(&mut self, place: Place, text: Vec<u8>) -> io::Result<()> {
        self.bytes += text.len() + OVERHEAD;
        self.held.push((place, text));
        if self.bytes > self.most { self.put_away() } else { Ok(()) }
    }

    /// Bytes that are held in memory now, about.
    #[cfg(test)]
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Writes what is held as a part of its own.
    fn put_away(&mut self) -> io::Result<()> {
        let parts = match &mut self.parts {
            Some(parts) => parts,
            none => none.insert(Parts { file: nameless()?, ends: Vec::new() }),
        };
        // Those of one place stay as they came.
        self.held.sort_by_key(|(place, _)| *place);
        let mut out = BufWriter::new(&parts.file);
        let mut end = parts.ends.last().copied().unwrap_or(0);
        for (place, text) in self.held.drain(..) {
            let length = text.len() as u64;
            out.write_all(&place.0)?;
            out.write_all(&length.to_le_bytes())?;
            out.write_all(&text)?;
            end += (place.0.len() + size_of::<u64>()) as u64 + length;
        }
        out.flush()?;
        drop(out);
        parts.ends.push(end);
        self.bytes = 0;
        Ok(())
    }

    /// Gives all texts in order.
    ///
    /// # Errors
    /// Those of the file, and of who takes them.
    pub fn give(mut self, take: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        if self.parts.is_some() && !self.held.is_empty() {
            self.put_away()?;
        }
        let Some(parts) = &self.parts else {
            self.held.sort_by_key(|(place, _)| *place);
            return self.held.iter().try_for_each(|(_, text)| take(text));
        };
        let at_a_time = (self.most / parts.ends.len().max(1)).max(FEWEST);
        let starts = std::iter::once(0).chain(parts.ends.iter().copied());
        let part =
            |(at, end): (u64, &u64)| BufReader::with_capacity(at_a_time, Part { file: &parts.file, at, end: *end });
        let mut readers: Vec<_> = starts.zip(&parts.ends).map(part).collect();
        // Of one place, those of earlier parts came first.
        let mut next = BinaryHeap::new();
        for (number, reader) in readers.iter_mut().enumerate() {
            next.extend(entry(reader)?.map(|(place, text)| Reverse((place, number, text))));
        }
        while let Some(Reverse((_, number, text))) = next.pop() {
            take(&text)?;
            next.extend(entry(&mut readers[number])?.map(|(place, text)| Reverse((place, number, text))));
        }
        Ok(())
    }
}

/// The next text of a part.
fn entry(from: &mut impl Read) -> io::Result<Option<Entry>> {
    let mut place = Place::default();
    match from.read(&mut place.0)? {
        0 => return Ok(None),
        count => from.read_exact(&mut place.0[count..])?,
    }
    let mut length = [0; size_of::<u64>()];
    from.read_exact(&mut length)?;
    let mut text = vec![0; usize::try_from(u64::from_le_bytes(length)).map_err(io::Error::other)?];
    from.read_exact(&mut text)?;
    Ok(Some((place, text)))
}

/// What is left to read of a part.
struct Part<'f> {
    file: &'f File,
    at: u64,
    end: u64,
}

impl Read for Part<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.end - self.at).unwrap_or(usize::MAX).min(into.len());
        let count = self.file.read_at(&mut into[..left], self.at)?;
        if count == 0 && left > 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.at += count as u64;
        Ok(count)
    }
}

/// A file that is gone with this process, however that ends.
fn nameless() -> io::Result<File> {
    let folder = env::temp_dir();
    let failed = |path: &std::path::Path, cause: io::Error| {
        io::Error::new(cause.kind(), format!("{}: {cause} (TMPDIR names another folder)", path.display()))
    };
    for number in 0..u32::MAX {
        let path = folder.join(format!("sacct.{}.{number}", process::id()));
        match File::options().read(true).write(true).create_new(true).mode(0o600).open(&path) {
            Ok(file) => return fs::remove_file(&path).map(|()| file).map_err(|cause| failed(&path, cause)),
            Err(cause) if cause.kind() == io::ErrorKind::AlreadyExists => {}
            Err(cause) => return Err(failed(&path, cause)),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn given(sorted: Sorted) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        sorted
            .give(&mut |text| {
                all.push(text.to_owned());
                Ok(())
            })
            .unwrap();
        all
    }

    fn place(number: u8) -> Place {
        let mut place = Place::default();
        place.0[3] = number;
        place
    }

    proptest! {
        /// However little may be held, texts come in order, and those of one place as they came.
        #[test]
        fn texts_come_in_order_and_few_are_held(
            texts in prop::collection::vec((0_u8..20, prop::collection::vec(any::<u8>(), 0..9000)), 0..60),
            most in prop::sample::select(vec![0_usize, 300, 20_000, 1 << 20]),
        ) {
            let mut sorted = Sorted::holding(most);
            for (number, text) in &texts {
                sorted.take(place(*number), text.clone()).unwrap();
                prop_assert!(sorted.bytes() <= most);
            }
            let mut expected = texts;
            expected.sort_by_key(|(number, _)| *number);
            let expected: Vec<Vec<u8>> = expected.into_iter().map(|(_, text)| text).collect();
            prop_assert_eq!(given(sorted), expected);
        }
    }

    #[test]
    fn who_takes_them_may_stop() {
        let mut sorted = Sorted::holding(0);
        for number in 0..3 {
            sorted.take(place(number), vec![number]).unwrap();
        }
        let mut taken = 0;
        let stopped = sorted.give(&mut |_| {
            taken += 1;
            Err(io::ErrorKind::BrokenPipe.into())
        });
        assert_eq!((stopped.unwrap_err().kind(), taken), (io::ErrorKind::BrokenPipe, 1));
    }
}
