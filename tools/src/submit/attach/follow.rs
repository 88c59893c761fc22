//! Follows files and output packs that a step writes, from their beginning.

use garrick_model::{ids::StepId, messages::shepherd::Stream};
use garrick_pack::{Content, FLUSH_AFTER, PackReader, Selection};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, WatchDescriptor};
use std::{
    collections::BTreeSet,
    fs::File,
    io::{self, Read as _},
    os::fd::{AsFd as _, BorrowedFd},
    path::{Path, PathBuf},
    time::Duration,
};

/// Read at a time.
const PIECE: usize = 64 << 10;

/// How long after a step's end its last records may come into its pack: the writer holds them back for a while, and has
/// others to write.
pub const LAST_RECORDS: Duration = Duration::from_secs(FLUSH_AFTER.as_secs() + 3);

/// A file that is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The step.
    pub step: StepId,
    /// Its path.
    pub path: PathBuf,
    /// The node that writes it.
    pub node: String,
    /// It is an output pack.
    pub pack: bool,
    /// Whose output it is, where it is one task's alone.
    pub rank: Option<u32>,
    /// Every task that writes to it.
    pub ranks: Vec<u32>,
    /// Where what it holds goes. A pack says for itself.
    pub stream: Stream,
}

#[derive(Debug)]
enum Source {
    /// It was not there yet.
    Awaited,
    File(File),
    Pack(Box<PackReader>),
    /// It cannot be read, and why.
    Broken(String),
}

#[derive(Debug)]
struct One {
    wanted: Wanted,
    source: Source,
    /// Tasks whose end was seen in the pack.
    ended: BTreeSet<u32>,
}

/// Files that are followed.
#[derive(Debug)]
pub struct Followed {
    files: Vec<One>,
    /// Wakes when one of them grows; a kernel may have none left.
    inotify: Option<Inotify>,
    /// Folders that are watched for files to come. A folder may get a thousand others a second.
    folders: Vec<(PathBuf, WatchDescriptor)>,
}

/// Takes what was read: whose it is if that is known, which stream, and the bytes.
pub type Sink<'a> = &'a mut dyn FnMut(Option<u32>, Stream, &[u8]);

impl Followed {
    /// Nothing is opened yet.
    pub fn new(files: Vec<Wanted>) -> Self {
        let one = |wanted| One { wanted, source: Source::Awaited, ended: BTreeSet::new() };
        Self {
            files: files.into_iter().map(one).collect(),
            inotify: Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC).ok(),
            folders: Vec::new(),
        }
    }

    /// Polls as readable when there may be something new.
    pub fn notice(&self) -> Option<BorrowedFd<'_>> {
        self.inotify.as_ref().map(|i| i.as_fd())
    }

    /// Takes note: what it was does not matter, everything is looked at.
    pub fn noticed(&self) {
        let Some(inotify) = &self.inotify else { return };
        while inotify.read_events().is_ok_and(|events| !events.is_empty()) {}
    }

    /// Reads what is new.
    pub fn look(&mut self, sink: Sink<'_>) {
        // Without it, the next look is a little later.
        let watch = |path: &Path, what| self.inotify.as_ref().and_then(|inotify| inotify.add_watch(path, what).ok());
        for one in &mut self.files {
            if matches!(one.source, Source::Awaited) {
                // Before looking, so that nothing comes in between.
                let folder = one.wanted.path.parent().unwrap_or(Path::new("/"));
                if !self.folders.iter().any(|(known, _)| known == folder) {
                    let watched = watch(folder, AddWatchFlags::IN_CREATE | AddWatchFlags::IN_MOVED_TO);
                    self.folders.extend(watched.map(|watched| (folder.to_owned(), watched)));
                }
                if let Some((source, path)) = open(&one.wanted) {
                    watch(&path, AddWatchFlags::IN_MODIFY | AddWatchFlags::IN_CLOSE_WRITE);
                    one.source = source;
                }
            }
            one.read(sink);
        }
        if !self.files.iter().any(|one| matches!(one.source, Source::Awaited)) {
            for (_, watched) in self.folders.drain(..) {
                // One that is gone needs no watch.
                let _ = self.inotify.as_ref().map(|inotify| inotify.rm_watch(watched));
            }
        }
    }

    /// Everything that will be written has been read, as far as that can be known: of a pack, the end of every task.
    pub fn is_complete(&self) -> bool {
        self.files.iter().all(|one| match &one.source {
            Source::Awaited => !one.wanted.pack,
            Source::Pack(_) => one.wanted.ranks.iter().all(|rank| one.ended.contains(rank)),
            Source::File(_) | Source::Broken(_) => true,
        })
    }

    /// Files that could not be read, in words.
    pub fn problems(&self) -> impl Iterator<Item = String> {
        self.files.iter().filter_map(|one| {
            let Wanted { path, node, .. } = &one.wanted;
            match &one.source {
                Source::Awaited => Some(format!("{} (written on {node}) is not to be found here", path.display())),
                Source::Broken(why) => Some(why.clone()),
                Source::File(_) | Source::Pack(_) => None,
            }
        })
    }
}

/// Opens it if it is there.
fn open(wanted: &Wanted) -> Option<(Source, PathBuf)> {
    let broken = |why: String| Some((Source::Broken(why), wanted.path.clone()));
    if wanted.pack {
        // Of several nodes, each has one of its own.
        let own = garrick_pack::on_node(&wanted.path, &wanted.node);
        let path = [own, wanted.path.clone()].into_iter().find(|path| garrick_pack::is_pack(path))?;
        let opened = PackReader::open(&path).and_then(|mut reader| {
            reader.select(Selection::one(wanted.step))?;
            Ok(reader)
        });
        return match opened {
            Ok(reader) => Some((Source::Pack(Box::new(reader)), path)),
            Err(error) => broken(error.to_string()),
        };
    }
    match File::open(&wanted.path) {
        Ok(file) if file.metadata().is_ok_and(|m| m.is_file()) => Some((Source::File(file), wanted.path.clone())),
        Ok(_) => broken(format!("{} is not a regular file and cannot be watched", wanted.path.display())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => broken(format!("{}: {error}", wanted.path.display())),
    }
}

impl One {
    fn read(&mut self, sink: Sink<'_>) {
        let path = self.wanted.path.display();
        let failed = match &mut self.source {
            Source::Awaited | Source::Broken(_) => None,
            Source::File(file) => loop {
                let mut piece = [0; PIECE];
                match file.read(&mut piece) {
                    Ok(0) => break None,
                    Ok(count) => sink(self.wanted.rank, self.wanted.stream, &piece[..count]),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => break Some(format!("{path}: {error}")),
                }
            },
            Source::Pack(reader) => loop {
                match reader.next_record() {
                    None => break None,
                    Some(Ok(record)) => match record.content {
                        Content::Output { stream, bytes } => sink(Some(record.task.rank), stream, bytes),
                        Content::End(_) => {
                            self.ended.insert(record.task.rank);
                        }
                    },
                    Some(Err(garrick_pack::PackError::Damaged { .. } | garrick_pack::PackError::Changed { .. })) => {}
                    Some(Err(error)) => break Some(error.to_string()),
                }
            },
        };
        if let Some(why) = failed {
            self.source = Source::Broken(why);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::io::Write as _;

    fn wanted(path: &Path, rank: Option<u32>) -> Wanted {
        Wanted {
            step: "5609.3".parse().unwrap(),
            path: path.to_owned(),
            node: "n1".to_owned(),
            pack: false,
            rank,
            ranks: vec![rank.unwrap_or(0)],
            stream: Stream::Stdout,
        }
    }

    fn looked(followed: &mut Followed) -> String {
        let mut seen = String::new();
        followed.look(&mut |rank, stream, bytes| {
            seen.push_str(&format!("{rank:?} {stream:?} {}|", String::from_utf8_lossy(bytes)));
        });
        seen
    }

    #[test]
    fn a_file_is_read_from_its_beginning_and_on() {
        let folder = std::env::temp_dir().join(format!("garrick-follow-attach-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("out");
        let mut followed = Followed::new(vec![wanted(&path, Some(2))]);
        assert_eq!(looked(&mut followed), "");
        assert_eq!(followed.problems().count(), 1);
        let mut file = File::create(&path).unwrap();
        file.write_all(b"one\n").unwrap();
        assert_eq!(looked(&mut followed), "Some(2) Stdout one\n|");
        assert_eq!(looked(&mut followed), "");
        file.write_all(b"two\n").unwrap();
        assert_eq!(looked(&mut followed), "Some(2) Stdout two\n|");
        assert!(followed.is_complete() && followed.problems().next().is_none());
        let missing = Followed::new(vec![wanted(&folder.join("none"), None)]);
        let text = missing.problems().next().unwrap();
        assert!(text.ends_with("none (written on n1) is not to be found here"), "{text}");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn what_cannot_be_followed_is_said() {
        let mut followed = Followed::new(vec![wanted(Path::new("/dev/null"), None)]);
        assert_eq!(looked(&mut followed), "");
        let want = "/dev/null is not a regular file and cannot be watched";
        assert_eq!(followed.problems().collect::<Vec<_>>(), [want]);
    }
}
