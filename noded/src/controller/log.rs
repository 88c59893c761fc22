//! The controller's log in files of this host ([`garrick_daemon::journal::series`]): what was answered is on disk, group by group. Who follows
//! reads the last events from memory and earlier ones from the files, as long as these are there.

use super::start::Saved;
use garrick_actors::log::{
    AppendError, Appended, Committed, Feed, FollowError, Follower, Log, Past, committed::Committed as Value,
    feed::bytes_of,
};
use garrick_daemon::journal::{Close, JournalError, JournalWriter, Segments, Standing};
use garrick_events::{
    event::ControllerEvent,
    progress::{Position, Progress, Unpacked},
};
use garrick_journal::Reader;
use garrick_model::messages::encoded_bytes;
use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

/// Bytes of events in one record, so that what a record adds to them stays far below what it may have.
const MOST_OF_RECORD: usize = 8 << 20;

/// While the disk has no room, try again after this.
const DISK_FULL: Duration = Duration::from_secs(5);
/// While so many appends wait for the disk that no more should be begun.
const CROWDED: Duration = Duration::from_secs(1);

/// Events that are read from files at a time.
const READ_EVENTS: usize = 1000;
/// And about so many bytes.
const READ_BYTES: u64 = 8 << 20;

/// See the module.
pub struct FileLog {
    writer: JournalWriter<ControllerEvent>,
    value: Value,
    feed: Arc<Feed>,
    segments: Arc<Segments>,
    /// Told when nobody can tell what is on disk: owners went on as if it were.
    failed: fn(&JournalError),
}

/// What stands when a file is closed, as that value has it: the writer, which asks, has answered all that it wrote, and whoever it
/// answered had the value advanced before.
pub(super) fn standing(value: &Value, folder: &Path, epoch: u64) -> Close {
    let (value, folder) = (value.clone(), folder.to_owned());
    Box::new(move || {
        let saved = Saved(value.copy().map_err(|e| e.to_string())?);
        Standing::of(saved, &folder, epoch).map_err(|e| e.to_string())
    })
}

impl FileLog {
    /// Over a writer that runs, from what was read back, which is that value: the feed begins there.
    pub fn new(
        writer: JournalWriter<ControllerEvent>,
        value: Value,
        feed: Arc<Feed>,
        segments: Arc<Segments>,
        failed: fn(&JournalError),
    ) -> Self {
        Self { writer, value, feed, segments, failed }
    }
}

impl Log for FileLog {
    fn append(&self, events: Vec<ControllerEvent>, done: Appended) {
        let records = ControllerEvent::records(events, MOST_OF_RECORD, encoded_bytes);
        let framed = self.writer.frame(&records);
        let (value, feed, failed) = (self.value.clone(), Arc::clone(&self.feed), self.failed);
        self.writer.append_framed(
            framed,
            Box::new(move |outcome| {
                let commit = || {
                    // Before anybody goes on, or sees them.
                    value.advance(&records);
                    feed.commit(feed.batch(records))
                };
                let saved = outcome.map(|()| commit()).inspect_err(failed);
                done.reply(saved.map_err(|e| AppendError::Failed(e.to_string())));
            }),
        );
    }

    fn refuses(&self) -> Option<AppendError> {
        let full = self.writer.waits_for_room().then_some(DISK_FULL);
        let after = full.or_else(|| self.writer.is_crowded().then_some(CROWDED))?;
        Some(AppendError::Busy { after })
    }

    fn committed(&self) -> Position {
        self.feed.committed()
    }

    fn value(&self) -> Value {
        self.value.clone()
    }

    fn oldest(&self) -> Position {
        Position(self.segments.oldest())
    }

    fn followers(&self) -> BTreeMap<String, Position> {
        self.feed.followers()
    }

    fn subscribe(&self, from: Position) -> Result<Follower, FollowError> {
        let past = Files { segments: Arc::clone(&self.segments), at: Mutex::default() };
        self.feed.subscribe(from, self.oldest(), Arc::new(past))
    }
}

/// Reads back what one follower asks for; goes on in a file where it stopped.
struct Files {
    segments: Arc<Segments>,
    at: Mutex<Option<Place>>,
}

/// Where reading stopped.
struct Place {
    /// Tells the file: position of the last event before it.
    file: u64,
    /// Behind the last record that was read.
    offset: u64,
    version: u8,
    epoch: u64,
    progress: Progress,
    unpacked: Unpacked,
}

impl Past for Files {
    fn read(&self, from: Position, to: Position) -> Result<Vec<Committed>, FollowError> {
        let unreadable = |e: JournalError| FollowError::Unreadable(e.to_string());
        let mut at = self.at.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(found) = self.segments.find(from.0).map_err(unreadable)? else {
            return Err(FollowError::Purged { asked: from, oldest: Position(self.segments.oldest()) });
        };
        let stopped = at.take().filter(|place| place.file == found.before && place.progress.position.next() == from);
        let (events, place) = match stopped {
            Some(place) => {
                let reader = Reader::behind_in(&found.file, &found.path, place.offset, place.version);
                read_on(reader.map_err(unreadable)?.after_epoch(place.epoch), place, from, to)
            }
            None => {
                let reader = Reader::whole(&found.file, &found.path).map_err(unreadable)?;
                let progress = Progress::at(Position(found.before));
                let (version, unpacked) = (reader.version(), Unpacked::default());
                let place = Place { file: found.before, offset: 0, version, epoch: 0, progress, unpacked };
                read_on(reader, place, from, to)
            }
        }
        .map_err(unreadable)?;
        *at = Some(place);
        if events.first().is_none_or(|first| first.position != from) {
            return Err(FollowError::Unreadable(format!("event {from} is not in {}", found.path.display())));
        }
        Ok(events)
    }
}

/// The reader of an open file.
type Rest<'a> = Reader<std::io::BufReader<garrick_journal::Rest<'a>>>;

fn read_on(
    mut reader: Rest<'_>,
    mut place: Place,
    from: Position,
    to: Position,
) -> Result<(Vec<Committed>, Place), JournalError> {
    let (mut events, mut bytes) = (Vec::new(), 0);
    // What stands behind `to` may not be on disk yet. A batch is never divided by it.
    while place.progress.position < to && events.len() < READ_EVENTS && bytes < READ_BYTES {
        let Some(record) = reader.next_record()? else { break };
        for event in place.unpacked.take(record.decode()?) {
            if place.progress.note(&event) && place.progress.position >= from {
                bytes += bytes_of(&event);
                events.push(Committed { position: place.progress.position, event: Arc::new(event) });
            }
        }
        place.offset = reader.position();
    }
    place.epoch = reader.epoch();
    Ok((events, place))
}
