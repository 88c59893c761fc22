//! The latest committed events, for followers of a log. Implementations pass each committed batch to the feed, and say where
//! older events are read. While there are no followers, nothing is kept.

use crate::log::FollowError;
use garrick_events::{
    event::ControllerEvent,
    progress::{Position, Progress},
    records::job_event::JobEvent,
};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};
use tokio::sync::watch;

/// Events kept for followers that are a little behind; a follower that is further behind reads saved events.
const KEPT_EVENTS: usize = 4096;
/// Bytes of scripts, environments and arguments in them, which are shared with the jobs' records while those exist.
const KEPT_BYTES: u64 = 32 << 20;

/// A committed event.
#[derive(Clone, Debug, PartialEq)]
pub struct Committed {
    /// Its position.
    pub position: Position,
    /// The event.
    pub event: Arc<ControllerEvent>,
}

/// Reads events that the feed does not have (any more). Blocks.
pub trait Past: Send + Sync {
    /// Events from `from` on, at most up to `to`, which is committed, in order without gaps; at least the first of them.
    ///
    /// # Errors
    /// When the first was purged or cannot be read.
    fn read(&self, from: Position, to: Position) -> Result<Vec<Committed>, FollowError>;
}

#[derive(Debug, Default)]
struct State {
    progress: Progress,
    /// The latest events, without gaps up to the last one.
    kept: VecDeque<Committed>,
    kept_bytes: u64,
}

/// A batch that is committed together, in the form for the feed.
#[derive(Debug)]
pub struct Batch {
    /// All records; if there were no followers when it was appended, only records about followers.
    records: Vec<ControllerEvent>,
    /// The number of events, if `records` is incomplete.
    passed: Option<u64>,
}

/// The feed of a log.
#[derive(Debug)]
pub struct Feed {
    state: Mutex<State>,
    /// Number of followers. Changed while `state` is held.
    followers: AtomicUsize,
    /// Counts commits for which followers may be waiting.
    commits: watch::Sender<u64>,
}

/// The assumed size of a small event.
const SMALL: u64 = 512;

/// Approximate size of an event in memory, in bytes.
pub fn bytes_of(event: &ControllerEvent) -> u64 {
    match event {
        ControllerEvent::Job { event, .. } => match &**event {
            JobEvent::Submitted(record) | JobEvent::SubmittedLike { record, .. } => SMALL + record.spec.work_bytes(),
            _ => SMALL,
        },
        ControllerEvent::Steps { steps, .. } => SMALL + steps.bytes() as u64,
        _ => SMALL,
    }
}

fn count(record: ControllerEvent, passed: &mut u64, about_followers: &mut Vec<ControllerEvent>) {
    match record {
        ControllerEvent::Together(events) | ControllerEvent::Part { events, .. } => {
            events.into_iter().for_each(|event| count(event, passed, about_followers));
        }
        ControllerEvent::Follower { .. } => about_followers.push(record),
        ControllerEvent::Base { .. } => {}
        _ => *passed += 1,
    }
}

/// What the feed has for a follower.
enum Has {
    Events(VecDeque<Committed>),
    Nothing,
    /// What is older is read elsewhere, up to this one.
    Older(Position),
}

impl Feed {
    /// For a log that was read back up to here.
    pub fn new(progress: Progress) -> Self {
        let state = State { progress, ..State::default() };
        Self { state: Mutex::new(state), followers: AtomicUsize::new(0), commits: watch::Sender::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Whatever panicked elsewhere: each change is done by one call.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_followed(&self) -> bool {
        self.followers.load(Ordering::Relaxed) > 0
    }

    /// What to keep of records until they are committed.
    pub fn batch(&self, records: Vec<ControllerEvent>) -> Batch {
        if self.is_followed() {
            return Batch { records, passed: None };
        }
        let (mut passed, mut about_followers) = (0, Vec::new());
        for record in records {
            count(record, &mut passed, &mut about_followers);
        }
        // Their order among the events of the batch does not matter: nothing of the batch has been seen.
        Batch { records: about_followers, passed: Some(passed) }
    }

    /// A batch is committed; all batches passed before it have been too. Returns the position of its last event.
    pub fn commit(&self, batch: Batch) -> Position {
        let mut state = self.lock();
        if let Some(events) = batch.passed {
            state.progress.pass(events);
            if events > 0 {
                // New followers read it, and all before it, where it is saved.
                (state.kept, state.kept_bytes) = (VecDeque::new(), 0);
            }
        }
        let followed = self.is_followed();
        for record in batch.records {
            state.take_in(record, followed);
        }
        let position = state.progress.position;
        drop(state);
        if followed {
            self.commits.send_modify(|commits| *commits += 1);
        }
        position
    }

    /// Progress of the log.
    pub fn progress(&self) -> Progress {
        self.lock().progress.clone()
    }

    /// The last position that is committed.
    pub fn committed(&self) -> Position {
        self.lock().progress.position
    }

    /// Followers by name.
    pub fn followers(&self) -> BTreeMap<String, Position> {
        self.lock().progress.followers.clone()
    }

    /// Follows from a position on. `oldest`: the oldest event of `past`.
    ///
    /// # Errors
    /// See [`super::Log::subscribe`].
    pub fn subscribe(
        self: &Arc<Self>,
        from: Position,
        oldest: Position,
        past: Arc<dyn Past>,
    ) -> Result<Follower, FollowError> {
        let from = from.max(Position(1));
        let state = self.lock();
        let last = state.progress.position;
        if from > last.next() {
            return Err(FollowError::Ahead { asked: from, last });
        }
        if from < oldest {
            return Err(FollowError::Purged { asked: from, oldest });
        }
        self.followers.fetch_add(1, Ordering::Relaxed);
        drop(state);
        let commits = self.commits.subscribe();
        Ok(Follower { next: from, ready: VecDeque::new(), feed: Arc::clone(self), past, commits })
    }

    /// What the feed has from that position on.
    fn from(&self, from: Position) -> Has {
        let state = self.lock();
        let last = state.progress.position;
        match state.kept.front() {
            _ if from > last => Has::Nothing,
            Some(first) if first.position <= from => {
                let skipped = usize::try_from(from.0 - first.position.0).unwrap_or(usize::MAX);
                Has::Events(state.kept.range(skipped..).cloned().collect())
            }
            Some(first) => Has::Older(Position(first.position.0 - 1)),
            None => Has::Older(last),
        }
    }
}

impl State {
    fn take_in(&mut self, record: ControllerEvent, followed: bool) {
        match record {
            ControllerEvent::Together(events) | ControllerEvent::Part { events, .. } => {
                events.into_iter().for_each(|event| self.take_in(event, followed));
            }
            event => {
                if self.progress.note(&event) && followed {
                    self.keep(Committed { position: self.progress.position, event: Arc::new(event) });
                }
            }
        }
    }

    fn keep(&mut self, event: Committed) {
        self.kept_bytes += bytes_of(&event.event);
        self.kept.push_back(event);
        while self.kept.len() > KEPT_EVENTS || self.kept_bytes > KEPT_BYTES {
            let Some(oldest) = self.kept.pop_front() else { return };
            self.kept_bytes -= bytes_of(&oldest.event);
        }
    }
}

/// Follows a log; see [`super::Log::subscribe`]. A dropped follower is forgotten; it has to remember its position itself, or
/// register by name so that the log does.
pub struct Follower {
    next: Position,
    ready: VecDeque<Committed>,
    feed: Arc<Feed>,
    past: Arc<dyn Past>,
    commits: watch::Receiver<u64>,
}

impl Follower {
    /// The next position that it will see.
    pub const fn position(&self) -> Position {
        self.next
    }

    /// The next event, if it is committed. May read files.
    ///
    /// # Errors
    /// When it was purged meanwhile, or cannot be read. The next call tries again.
    pub fn try_next(&mut self) -> Result<Option<Committed>, FollowError> {
        if self.ready.is_empty() {
            match self.feed.from(self.next) {
                Has::Events(events) => self.ready = events,
                Has::Nothing => return Ok(None),
                Has::Older(to) => self.ready = self.past.read(self.next, to)?.into(),
            }
        }
        Ok(self.pop())
    }

    /// The next event, once it is committed. Files are read on a thread of their own. Dropping the future while it waits loses
    /// nothing.
    ///
    /// # Errors
    /// As [`Follower::try_next`].
    pub async fn next(&mut self) -> Result<Committed, FollowError> {
        loop {
            // Before looking, so that a later commit wakes this.
            self.commits.borrow_and_update();
            if let Some(event) = self.pop() {
                return Ok(event);
            }
            match self.feed.from(self.next) {
                Has::Events(events) => self.ready = events,
                // The feed, and so its sender, lives as long as this.
                Has::Nothing => drop(self.commits.changed().await),
                Has::Older(to) => {
                    let (past, from) = (Arc::clone(&self.past), self.next);
                    let read = tokio::task::spawn_blocking(move || past.read(from, to)).await;
                    self.ready = read.map_err(|e| FollowError::Unreadable(e.to_string()))??.into();
                }
            }
        }
    }

    fn pop(&mut self) -> Option<Committed> {
        let event = self.ready.pop_front()?;
        self.next = event.position.next();
        Some(event)
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let mut state = self.feed.lock();
        if self.feed.followers.fetch_sub(1, Ordering::Relaxed) == 1 {
            (state.kept, state.kept_bytes) = (VecDeque::new(), 0);
        }
    }
}
