//! Positions: which records of a log have them, and how far each named follower of the log is. The same rule is used live, in
//! replay, and where files are read back.

use crate::event::{ControllerEvent, Following};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt};

/// The number of an event in a log: from 1, without gaps. 0: before the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Position(pub u64);

impl Position {
    /// The next position.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Progress of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Position of the last event.
    pub position: Position,
    /// Followers by name, and the position up to which each has processed events.
    pub followers: BTreeMap<String, Position>,
    /// That many of the next events replace earlier ones: they have no positions of their own.
    stand_in: u64,
}

impl Progress {
    /// At a position, without followers.
    pub const fn at(position: Position) -> Self {
        Self { position, followers: BTreeMap::new(), stand_in: 0 }
    }

    /// Counts one event, or a record about the log itself. Events inside [`ControllerEvent::Together`] and
    /// [`ControllerEvent::Part`] are counted one by one, once they are valid. Returns true for an event with a position, which is
    /// then the current one.
    pub fn note(&mut self, event: &ControllerEvent) -> bool {
        match event {
            ControllerEvent::Base { position, events, followers } => {
                (self.position, self.stand_in) = (*position, *events);
                self.followers.clone_from(followers);
                false
            }
            ControllerEvent::Follower { name, is } => {
                self.follow(name, *is);
                false
            }
            _ if self.stand_in > 0 => {
                self.stand_in -= 1;
                false
            }
            _ => {
                self.position = self.position.next();
                true
            }
        }
    }

    /// Counts so many events.
    pub const fn pass(&mut self, events: u64) {
        self.position.0 += events;
    }

    fn follow(&mut self, name: &str, is: Following) {
        match is {
            Following::Registered => {
                self.followers.entry(name.to_owned()).or_insert(self.position);
            }
            // A position beyond the end cannot be acknowledged.
            Following::Acknowledged(upto) => {
                if let Some(so_far) = self.followers.get_mut(name) {
                    *so_far = upto.min(self.position).max(*so_far);
                }
            }
            Following::Gone => {
                self.followers.remove(name);
            }
        }
    }

    /// The first record of a file: `events` following events replace all up to here, then further ones follow.
    pub fn base(&self, events: u64) -> ControllerEvent {
        ControllerEvent::Base { position: self.position, events, followers: self.followers.clone() }
    }

    /// The lowest position up to which all registered followers have processed events. `None`: there are no followers.
    pub fn slowest(&self) -> Option<(&str, Position)> {
        self.followers.iter().map(|(name, upto)| (name.as_str(), *upto)).min_by_key(|(_, upto)| *upto)
    }
}

/// Unpacks records: the events of a batch in order, once all of the batch is there.
#[derive(Clone, Debug, Default)]
pub struct Unpacked {
    /// Parts whose last part has not come yet.
    parts: Vec<ControllerEvent>,
}

impl Unpacked {
    /// The events of a record, including those of parts that it completes.
    pub fn take(&mut self, record: ControllerEvent) -> Vec<ControllerEvent> {
        let mut events = Vec::new();
        if let ControllerEvent::Part { first, last, events: some } = record {
            if first {
                self.parts.clear();
            }
            self.parts.extend(some);
            if last {
                std::mem::take(&mut self.parts).into_iter().for_each(|event| unpack(event, &mut events));
            }
        } else {
            // They belong to a write that was cut short: this one was written after the restart.
            self.parts.clear();
            unpack(record, &mut events);
        }
        events
    }
}

fn unpack(event: ControllerEvent, into: &mut Vec<ControllerEvent>) {
    match event {
        ControllerEvent::Together(events) => events.into_iter().for_each(|event| unpack(event, into)),
        ControllerEvent::Part { events, .. } => events.into_iter().for_each(|event| unpack(event, into)),
        one => into.push(one),
    }
}
