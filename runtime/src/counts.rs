//! Counts the messages that actors handled, by name, to show what a piece of work costs in messages. They are counted whether or
//! not trace records are kept.

use std::{collections::BTreeMap, ops::AddAssign, time::Duration};

use crate::path::ActorPath;

/// Messages of one name that an actor handled since it was started, in all of its lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageCount {
    /// The actor's path; `/job/*` stands for all actors below `/job` that have ended.
    pub actor: String,
    /// The message's name.
    pub message: &'static str,
    /// How many.
    pub handled: u64,
    /// How long they waited for their turns, all together; only those are in it that came while records were kept.
    pub queued: Duration,
    /// How long they were handled, all together; likewise.
    pub handling: Duration,
}

/// Messages of one name.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) handled: u64,
    pub(crate) queued: Duration,
    pub(crate) handling: Duration,
}

impl Tally {
    /// One message whose times were not taken.
    pub(crate) const ONE: Self = Self { handled: 1, queued: Duration::ZERO, handling: Duration::ZERO };
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.handled += other.handled;
        self.queued = self.queued.saturating_add(other.queued);
        self.handling = self.handling.saturating_add(other.handling);
    }
}

/// Counts of one actor. Few names, so a list; the frequent ones come early, since they were there first.
#[derive(Debug, Default)]
pub(crate) struct Counts(Vec<(&'static str, Tally)>);

impl Counts {
    pub(crate) fn add(&mut self, message: &'static str, tally: Tally) {
        // Mostly the very same string; two equal strings at different addresses count as one name.
        let same = |name: &str| std::ptr::eq(name, message) || name == message;
        match self.0.iter_mut().find(|(name, _)| same(name)) {
            Some((_, sum)) => *sum += tally,
            None => self.0.push((message, tally)),
        }
    }

    fn append(&mut self, other: &Self) {
        for (message, tally) in &other.0 {
            self.add(message, *tally);
        }
    }

    pub(crate) fn list(&self, actor: String) -> impl Iterator<Item = MessageCount> {
        self.0.iter().map(move |(message, tally)| MessageCount {
            actor: actor.clone(),
            message,
            handled: tally.handled,
            queued: tally.queued,
            handling: tally.handling,
        })
    }
}

/// Counts of actors that ended, summed up by parent; when the parent ends too, by its own.
#[derive(Debug, Default)]
pub(crate) struct EndedCounts(BTreeMap<ActorPath, Counts>);

impl EndedCounts {
    pub(crate) fn add(&mut self, actor: &ActorPath, counts: &Counts) {
        let below: Vec<ActorPath> =
            self.0.range(actor..).map(|(path, _)| path).take_while(|p| p.is_under(actor.as_str())).cloned().collect();
        let below: Vec<Counts> = below.iter().filter_map(|path| self.0.remove(path)).collect();
        let sum = self.0.entry(actor.parent()).or_default();
        sum.append(counts);
        for counts in &below {
            sum.append(counts);
        }
    }

    pub(crate) fn list(&self, wanted: impl Fn(&ActorPath) -> bool) -> Vec<MessageCount> {
        let parents = self.0.iter().filter(|(parent, _)| wanted(parent));
        parents
            .flat_map(|(parent, counts)| counts.list(format!("{}/*", parent.as_str().trim_end_matches('/'))))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn counts(of: &[(&'static str, u64)]) -> Counts {
        let mut counts = Counts::default();
        of.iter().for_each(|(name, handled)| counts.add(name, Tally { handled: *handled, ..Tally::default() }));
        counts
    }

    fn path(text: &str) -> ActorPath {
        ActorPath::new(text).unwrap()
    }

    fn shown(ended: &EndedCounts) -> Vec<(String, &'static str, u64)> {
        ended.list(|_| true).into_iter().map(|c| (c.actor, c.message, c.handled)).collect()
    }

    #[test]
    fn names_that_read_alike_are_one() {
        let other: &'static str = String::from("Beat").leak();
        let list: Vec<_> = counts(&[("Beat", 1), ("Stop", 1), (other, 2)]).list("/a".to_owned()).collect();
        assert_eq!(list.iter().map(|c| (c.message, c.handled)).collect::<Vec<_>>(), [("Beat", 3), ("Stop", 1)]);
    }

    #[test]
    fn ended_actors_are_summed_up_by_parent_and_with_it() {
        let mut ended = EndedCounts::default();
        ended.add(&path("/job/5/step/1"), &counts(&[("Begin", 1)]));
        ended.add(&path("/job/5/step/2"), &counts(&[("Begin", 1), ("End", 1)]));
        ended.add(&path("/job/50"), &counts(&[("Start", 1)]));
        let two = [("/job/*".to_owned(), "Start", 1), ("/job/5/step/*".to_owned(), "Begin", 2)];
        assert_eq!(shown(&ended)[..2], two);
        ended.add(&path("/job/5"), &counts(&[("Start", 1)]));
        let all =
            [("/job/*".to_owned(), "Start", 2), ("/job/*".to_owned(), "Begin", 2), ("/job/*".to_owned(), "End", 1)];
        assert_eq!(shown(&ended), all);
    }
}
