//! Positions: which of a log's records have them, and how far those are who follow it by name. The same rule counts live,
//! in replay, and where files are read back.

use crate::event::{ControllerEvent, Following};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt};

/// The number of an event in a log, from 1, without gaps. 0: before the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Position(pub u64);

impl Position {
    /// The one behind it.
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

/// How far a log is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Position of the last event.
    pub position: Position,
    /// Followers by name, and up to which position each has dealt with all.
    pub followers: BTreeMap<String, Position>,
    /// So many of the next events stand for earlier ones: they have no positions of their own.
    stand_in: u64,
}

impl Progress {
    /// At a position, without followers.
    pub const fn at(position: Position) -> Self {
        Self { position, followers: BTreeMap::new(), stand_in: 0 }
    }

    /// Takes in what is one event, or says something of the log itself: what is in [`ControllerEvent::Together`] and
    /// [`ControllerEvent::Part`] one by one, once it counts. True for an event that has a position: the one that it is at then.
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

    /// So many events passed.
    pub const fn pass(&mut self, events: u64) {
        self.position.0 += events;
    }

    fn follow(&mut self, name: &str, is: Following) {
        match is {
            Following::Registered => {
                self.followers.entry(name.to_owned()).or_insert(self.position);
            }
            // What is not there yet is acknowledged by nobody.
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

    /// What a file begins with that holds what comes next: so many `events` that stand for all up to here, then the rest.
    pub fn base(&self, events: u64) -> ControllerEvent {
        ControllerEvent::Base { position: self.position, events, followers: self.followers.clone() }
    }

    /// Position up to which all registered followers have dealt with everything. `None`: there are none.
    pub fn slowest(&self) -> Option<(&str, Position)> {
        self.followers.iter().map(|(name, upto)| (name.as_str(), *upto)).min_by_key(|(_, upto)| *upto)
    }
}

/// Takes records apart: those of a batch in order, once all of it is there.
#[derive(Clone, Debug, Default)]
pub struct Unpacked {
    /// Parts whose last one is still to come.
    parts: Vec<ControllerEvent>,
}

impl Unpacked {
    /// Events of a record, and of the parts before it that it ends.
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
            // Those of a write that was cut short: this was written after the restart.
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
