//! A registered follower of the controller's log, such as a feed of accounting: it sees committed events, acknowledges them from
//! time to time, and after a crash continues from the position that the log knows.

use super::{mutation::Mutation, world::World};
use garrick_actors::log::{ACCOUNTING, Committed, Feed, FollowError, Follower, Past};
use garrick_events::{
    event::{ControllerEvent, Following},
    progress::{Position, Progress},
};
use std::{
    collections::VecDeque,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::{Arc, Mutex, PoisonError},
};

const ONCE: &str = "whoever_follows_the_log_sees_each_event_once_and_in_order";

/// Events that were committed and not purged: what files would have.
#[derive(Debug, Default)]
struct Kept {
    purged: Position,
    events: VecDeque<Committed>,
}

/// The log as those see it who follow.
#[derive(Debug)]
pub(super) struct Followed {
    feed: Arc<Feed>,
    kept: Arc<Mutex<Kept>>,
}

struct Files(Arc<Mutex<Kept>>);

impl Past for Files {
    fn read(&self, from: Position, to: Position) -> Result<Vec<Committed>, FollowError> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if from <= kept.purged {
            return Err(FollowError::Purged { asked: from, oldest: kept.purged.next() });
        }
        Ok(kept.events.iter().filter(|one| (from..=to).contains(&one.position)).cloned().collect())
    }
}

impl Followed {
    pub(super) fn new() -> Self {
        Self { feed: Arc::new(Feed::new(Progress::default())), kept: Arc::default() }
    }

    /// These are saved, behind all others. `progress`: how far the log was.
    fn keep(&self, progress: &mut Progress, events: &[ControllerEvent]) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        for event in events {
            if progress.note(event) {
                kept.events.push_back(Committed { position: progress.position, event: Arc::new(event.clone()) });
            }
        }
    }

    pub(super) fn committed(&self, events: &[ControllerEvent]) {
        self.keep(&mut self.feed.progress(), events);
        self.feed.commit(self.feed.batch(events.to_vec()));
    }

    #[cfg(test)]
    pub(super) fn feed(&self) -> &Feed {
        &self.feed
    }

    /// The oldest position that can be followed from.
    pub(super) fn oldest(&self) -> Position {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).purged.next()
    }

    /// The next process has read the log: it came to this, with what came through of what was being written.
    pub(super) fn reopen(&mut self, came_through: &[ControllerEvent], progress: &Progress) -> Result<(), String> {
        let mut counted = self.feed.progress();
        self.keep(&mut counted, came_through);
        self.feed = Arc::new(Feed::new(progress.clone()));
        if counted == *progress {
            Ok(())
        } else {
            Err(format!("the log was at {counted:?} and is read as {progress:?}"))
        }
    }

    /// Drops what is not waited for, or everything.
    pub(super) fn purge(&self, all: bool) {
        let progress = self.feed.progress();
        let upto = progress.slowest().filter(|_| !all).map_or(progress.position, |(_, upto)| upto);
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.purged = kept.purged.max(upto);
        kept.events.retain(|one| one.position > upto);
    }

    pub(super) fn subscribe(&self, from: Position) -> Result<Follower, FollowError> {
        self.feed.subscribe(from, self.oldest(), Arc::new(Files(Arc::clone(&self.kept))))
    }
}

/// See the module.
#[derive(Default)]
pub(super) struct Accountant {
    /// What was committed, in order.
    committed: Vec<u64>,
    /// What it has seen of that.
    seen: usize,
    follower: Option<Follower>,
}

fn digest(event: &ControllerEvent) -> u64 {
    let mut hasher = DefaultHasher::new();
    match event {
        ControllerEvent::Job { job, event } => (job.0, event.name()).hash(&mut hasher),
        ControllerEvent::Node { node, saved } => (node, saved.drain, saved.down.is_some()).hash(&mut hasher),
        ControllerEvent::Started { epoch } => epoch.hash(&mut hasher),
        _ => {}
    }
    hasher.finish()
}

impl Accountant {
    /// Events that are saved now.
    pub(super) fn note(&mut self, events: &[ControllerEvent]) {
        let has_position = |event: &&ControllerEvent| !matches!(event, ControllerEvent::Follower { .. });
        self.committed.extend(events.iter().filter(has_position).map(digest));
    }

    fn look(&mut self) -> Result<(), String> {
        let Some(follower) = &mut self.follower else { return Ok(()) };
        while let Some(Committed { position, event }) = follower.try_next().map_err(|e| e.to_string())? {
            let expected = self.seen + 1;
            if position.0 != expected as u64 || self.committed.get(self.seen) != Some(&digest(&event)) {
                return Err(format!("event {expected} is to be seen, and {position} is: {event:?}"));
            }
            self.seen = expected;
        }
        Ok(())
    }
}

impl World {
    /// Something was committed: it may look.
    pub(super) fn accountant_turn(&mut self) {
        if self.accountant.follower.is_none() || !self.disk.has_a_mind(300) {
            return;
        }
        if let Err(what) = self.accountant.look() {
            self.broken = Some((ONCE, what));
        }
        if self.disk.has_a_mind(100) {
            let upto = Position(self.accountant.seen as u64);
            self.disk.say(ControllerEvent::Follower { name: ACCOUNTING.to_owned(), is: Following::Acknowledged(upto) });
        }
    }

    /// The controller has read its log, and followers come again.
    pub(super) fn accountant_again(&mut self, came_through: &[ControllerEvent], progress: &Progress, shortened: bool) {
        let overtaken = self.has(Mutation::PurgingOvertakesFollowers);
        self.accountant.note(came_through);
        self.accountant.follower = None;
        let Some(followed) = self.disk.followed_mut() else { return };
        let mut came = followed.reopen(came_through, progress);
        if shortened {
            followed.purge(overtaken);
        }
        match progress.followers.get(ACCOUNTING) {
            None => self.disk.say(ControllerEvent::Follower { name: ACCOUNTING.to_owned(), is: Following::Registered }),
            Some(upto) => {
                self.accountant.seen = usize::try_from(upto.0).unwrap_or(usize::MAX);
                match followed.subscribe(upto.next()) {
                    Ok(follower) => self.accountant.follower = Some(follower),
                    Err(error) => came = came.and(Err(error.to_string())),
                }
                self.ledger.counts.add("follower came again");
            }
        }
        if let Err(what) = came {
            self.broken = Some((ONCE, what));
        }
    }
}
