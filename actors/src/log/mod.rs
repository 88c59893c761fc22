//! The log of what was decided: the one order of the controller's [events](garrick_events::event), saved before anything that
//! follows from them leaves. A file on this host is one ([`Log`] of `noded`), a log kept by several controllers is to be another. What an implementation
//! promises stands in `docs/log.md`; [`contract`] tests it.
//!
//! | file | what it is |
//! |---|---|
//! | `mod` | the trait |
//! | [`committed`] | what all that is saved comes to |
//! | [`feed`] | what was committed last, kept for those who follow: shared by implementations |
//! | [`memory`] | an implementation in memory that fails as it is told |
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

/// Where a new leader is found by then, or this controller is one again: while nobody leads, try again after this.
const LEADERLESS: Duration = Duration::from_secs(2);

/// Why events were not appended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// There is no room now. Nothing of them is in the log, nor will be.
    #[error("the log is busy")]
    Busy {
        /// When to try again.
        after: Duration,
    },
    /// Another controller decides now. Nothing of them is in the log, nor will be.
    #[error("this controller does not lead{}", leader.as_ref().map(|leader| format!(": {leader} does")).unwrap_or_default())]
    NotLeader {
        /// Who does, where that is known.
        leader: Option<String>,
    },
    /// They may be in the log or not, as a whole: nobody can tell before it is opened again, so the process is to end.
    #[error("log: {0}")]
    Failed(String),
}

impl AppendError {
    /// When whoever asked for it is to ask again; `None`: he cannot know whether it was done.
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

/// The log's answer; one that does not come is a failure.
pub fn log_outcome(answer: Result<Saved, AskError>) -> Saved {
    answer.unwrap_or_else(|error| Err(AppendError::Failed(error.to_string())))
}

/// Where events could not be followed (further).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FollowError {
    /// What is asked for was purged.
    #[error("the log has no event {asked} any more: the oldest is {oldest}")]
    Purged {
        /// Asked for.
        asked: Position,
        /// The oldest position that there is, or the next one where there is none.
        oldest: Position,
    },
    /// What is asked for cannot be there yet: whoever asks has followed another log, or one that was given up since.
    #[error("the log's last event is {last}, and {asked} is asked for")]
    Ahead {
        /// Asked for.
        asked: Position,
        /// The last position that is committed.
        last: Position,
    },
    /// What is there cannot be read.
    #[error("reading the log back: {0}")]
    Unreadable(String),
}

/// Name of the follower that keeps accounts. While it is registered what steps came to is saved, too.
pub const ACCOUNTING: &str = "accounting";

/// Where the answer to an append goes: the position of its last event once all of its events are committed. Without events it is
/// that of the last event before it.
pub type Appended = ReplyTo<Result<Position, AppendError>>;

/// See the module. Calls never block.
pub trait Log: Send + Sync + 'static {
    /// Appends what an owner has decided, and goes on from. The events of one call are committed together or not at all, behind
    /// those of all calls before. Never answered [`AppendError::Busy`]: where there is no room, it waits.
    fn append(&self, events: Vec<ControllerEvent>, done: Appended);

    /// Appends what begins something that nobody has heard of: refused without a trace while [`Log::refuses`].
    fn offer(&self, events: Vec<ControllerEvent>, done: Appended) {
        match self.refuses() {
            Some(why) => done.reply(Err(why)),
            None => self.append(events, done),
        }
    }

    /// Why nothing new is to be begun now: [`AppendError::Busy`] or [`AppendError::NotLeader`].
    fn refuses(&self) -> Option<AppendError>;

    /// The last position that is committed; 0: none.
    fn committed(&self) -> Position;

    /// What all events that are committed come to, when it was opened and ever since: advanced before an append is answered and
    /// before a follower sees its events.
    fn value(&self) -> Value;

    /// The oldest position that can be followed from; the next one where there is none.
    fn oldest(&self) -> Position;

    /// Followers that are registered by name, and the position up to which each has dealt with all.
    fn followers(&self) -> BTreeMap<String, Position>;

    /// Follows the log: every event from that position on, once, in order, as soon as it is committed. The position after the
    /// last is the earliest one that is not there yet.
    ///
    /// # Errors
    /// See [`FollowError`].
    fn subscribe(&self, from: Position) -> Result<Follower, FollowError>;

    /// Registers a follower: from now on nothing is purged that it has not acknowledged. A new one begins behind what is
    /// committed before this is; one that is registered stays where it is ([`Log::followers`] says where).
    fn register(&self, name: &str, done: Appended) {
        self.append(vec![following(name, Following::Registered)], done);
    }

    /// A registered follower has dealt with all events up to that one, and will not ask for them again.
    fn acknowledge(&self, name: &str, upto: Position, done: Appended) {
        self.append(vec![following(name, Following::Acknowledged(upto))], done);
    }

    /// Nobody waits for that follower any more.
    fn unregister(&self, name: &str, done: Appended) {
        self.append(vec![following(name, Following::Gone)], done);
    }
}

fn following(name: &str, is: Following) -> ControllerEvent {
    ControllerEvent::Follower { name: name.to_owned(), is }
}
