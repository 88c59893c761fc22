//! The controller's log: its [events](garrick_events::event) in one order, saved before any of their consequences leaves the
//! process. One implementation is a file on this host ([`Log`] of `noded`); a log kept by several controllers is planned.
//! `docs/log.md` says what an implementation guarantees; [`contract`] tests it.
//!
//! | file | what it is |
//! |---|---|
//! | `mod` | the trait |
//! | [`committed`] | the state that all saved events lead to |
//! | [`feed`] | the latest committed events, kept for followers; shared by implementations |
//! | [`memory`] | an implementation in memory that fails on command |
//! | [`contract`] | tests for any implementation |

pub mod committed;
#[cfg(any(test, feature = "testing"))]
pub mod contract;
#[cfg(test)]
mod event_test;
pub mod feed;
pub mod memory;

use self::committed::Committed as Value;
pub use feed::{Committed, Feed, Follower, Past};
use garrick_events::{
    event::{ControllerEvent, Following},
    progress::Position,
};
use garrick_runtime::{AskError, ReplyTo};
use std::{collections::BTreeMap, time::Duration};

/// While there is no leader: try again after this time. By then there is a new leader, or this controller is it again.
const LEADERLESS: Duration = Duration::from_secs(2);

/// Why events were not appended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// There is no space now. The events are not in the log, and will not be.
    #[error("the log is busy")]
    Busy {
        /// When to try again.
        after: Duration,
    },
    /// Another controller is the leader. The events are not in the log, and will not be.
    #[error("this controller does not lead{}", leader.as_ref().map(|leader| format!(": {leader} does")).unwrap_or_default())]
    NotLeader {
        /// The leader, if known.
        leader: Option<String>,
    },
    /// All or none of the events may be in the log: this cannot be known before it is opened again, so the process must end.
    #[error("log: {0}")]
    Failed(String),
}

impl AppendError {
    /// When the requester is to ask again; `None`: it cannot know whether it was done.
    pub const fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Busy { after } => Some(*after),
            Self::NotLeader { .. } => Some(LEADERLESS),
            Self::Failed(_) => None,
        }
    }
}

/// What the log answers.
pub type Saved = Result<Position, AppendError>;

/// The log's answer; a missing one is a failure.
pub fn log_outcome(answer: Result<Saved, AskError>) -> Saved {
    answer.unwrap_or_else(|error| Err(AppendError::Failed(error.to_string())))
}

/// Appends something, and waits for the log's answer.
///
/// # Errors
/// As the log says.
pub async fn answered(append: impl FnOnce(Appended)) -> Saved {
    let (done, answer) = ReplyTo::channel();
    append(done);
    log_outcome(answer.await)
}

/// Why events cannot be followed (any further).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FollowError {
    /// The requested events were purged.
    #[error("the log has no event {asked} any more: the oldest is {oldest}")]
    Purged {
        /// Requested position.
        asked: Position,
        /// The oldest position that exists, or the next one if there is none.
        oldest: Position,
    },
    /// The requested position does not exist yet: the follower has followed another log, or one that was given up since.
    #[error("the log's last event is {last}, and {asked} is asked for")]
    Ahead {
        /// Requested position.
        asked: Position,
        /// The last position that is committed.
        last: Position,
    },
    /// The events cannot be read.
    #[error("reading the log back: {0}")]
    Unreadable(String),
}

/// Name of the follower for accounting. While it is registered, results of steps are saved too.
pub const ACCOUNTING: &str = "accounting";

/// Receives the answer to an append: the position of its last event, once all of its events are committed. Without events it is
/// that of the last event before it.
pub type Appended = ReplyTo<Result<Position, AppendError>>;

/// A log. Calls never block.
pub trait Log: Send + Sync + 'static {
    /// Appends events that an owner has already applied. The events of one call are committed together or not at all, after those
    /// of all earlier calls. Never answered [`AppendError::Busy`]: if there is no space, it waits.
    fn append(&self, events: Vec<ControllerEvent>, done: Appended);

    /// Appends events that begin something new: refused without a trace while [`Log::refuses`].
    fn offer(&self, events: Vec<ControllerEvent>, done: Appended) {
        match self.refuses() {
            Some(why) => done.reply(Err(why)),
            None => self.append(events, done),
        }
    }

    /// Why nothing new is accepted now: [`AppendError::Busy`] or [`AppendError::NotLeader`].
    fn refuses(&self) -> Option<AppendError>;

    /// The last position that is committed; 0: none.
    fn committed(&self) -> Position;

    /// The state that all committed events lead to, since the log was opened: advanced before an append is answered and before a
    /// follower sees its events.
    fn value(&self) -> Value;

    /// The oldest position that can be followed from; the next one if there is none.
    fn oldest(&self) -> Position;

    /// Registered followers, and the position up to which each has processed events.
    fn followers(&self) -> BTreeMap<String, Position>;

    /// Follows the log: every event from that position on, once, in order, as soon as it is committed. The latest possible
    /// position is the one after the last event.
    ///
    /// # Errors
    /// See [`FollowError`].
    fn subscribe(&self, from: Position) -> Result<Follower, FollowError>;

    /// Registers a follower: from now on nothing is purged that it has not acknowledged. A new follower begins after what is
    /// committed before this; one that is registered keeps its position (see [`Log::followers`]).
    fn register(&self, name: &str, done: Appended) {
        self.append(vec![following(name, Following::Registered)], done);
    }

    /// A registered follower has processed all events up to that one, and will not ask for them again.
    fn acknowledge(&self, name: &str, upto: Position, done: Appended) {
        self.append(vec![following(name, Following::Acknowledged(upto))], done);
    }

    /// Removes a follower: nothing is kept for it any more.
    fn unregister(&self, name: &str, done: Appended) {
        self.append(vec![following(name, Following::Gone)], done);
    }
}

fn following(name: &str, is: Following) -> ControllerEvent {
    ControllerEvent::Follower { name: name.to_owned(), is }
}
