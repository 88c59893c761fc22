//! Whose request is served next: users take turns, so that one with ten thousand requests does not hold up another with
//! one. What frees something or is small enough (cancelling, an allocation's end, "are you there") goes ahead of the rest.
//!
//! Plain data; the front asks it.

use garrick_model::messages::command::CommandRequest;
use std::collections::{BTreeMap, VecDeque};

/// Requests of one user that wait at most, for each of both classes; what comes on top is told to come back.
pub const MOST_OF_USER: usize = 1000;
/// Requests that wait in all, for each of both classes.
pub const MOST: usize = 20_000;

/// Users that wait in a class, in turn.
#[derive(Debug)]
struct Class<T> {
    queues: BTreeMap<u32, VecDeque<T>>,
    /// Each user with a queue once, whose turn is next first.
    turns: VecDeque<u32>,
    waiting: usize,
}

impl<T> Class<T> {
    const fn new() -> Self {
        Self { queues: BTreeMap::new(), turns: VecDeque::new(), waiting: 0 }
    }

    fn put(&mut self, uid: u32, request: T) -> Result<(), T> {
        let queue = self.queues.entry(uid).or_default();
        if queue.len() >= MOST_OF_USER || self.waiting >= MOST {
            return Err(request);
        }
        if queue.is_empty() {
            self.turns.push_back(uid);
        }
        queue.push_back(request);
        self.waiting += 1;
        Ok(())
    }

    fn take(&mut self) -> Option<T> {
        let uid = self.turns.pop_front()?;
        let queue = self.queues.get_mut(&uid)?;
        let request = queue.pop_front();
        if queue.is_empty() {
            self.queues.remove(&uid);
        } else {
            self.turns.push_back(uid);
        }
        self.waiting -= usize::from(request.is_some());
        request
    }
}

/// Requests that wait.
#[derive(Debug)]
pub struct Turnstile<T> {
    ahead: Class<T>,
    ordinary: Class<T>,
}

impl<T> Turnstile<T> {
    /// Nobody waits.
    pub const fn new() -> Self {
        Self { ahead: Class::new(), ordinary: Class::new() }
    }

    /// A request of a user. Given back when too many wait.
    pub fn put(&mut self, uid: u32, ahead: bool, request: T) -> Result<(), T> {
        if ahead { self.ahead.put(uid, request) } else { self.ordinary.put(uid, request) }
    }

    /// Whose turn it is.
    pub fn take(&mut self) -> Option<T> {
        self.ahead.take().or_else(|| self.ordinary.take())
    }

    /// Nobody waits.
    pub const fn is_empty(&self) -> bool {
        self.ahead.waiting == 0 && self.ordinary.waiting == 0
    }
}

impl<T> Default for Turnstile<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// Whether a request goes ahead of others.
pub const fn goes_ahead(request: &CommandRequest) -> bool {
    matches!(
        request,
        CommandRequest::Ping
            | CommandRequest::Cancel(_)
            | CommandRequest::FinishAllocation { .. }
            | CommandRequest::Shutdown { .. }
    )
}

/// Whether a request begins or changes something that has to be saved. Where the disk has no room these are told to come
/// back; cancelling and the ends of allocations are taken all the same, and saved when there is room.
pub const fn begins_something(request: &CommandRequest) -> bool {
    matches!(
        request,
        CommandRequest::SubmitJob { .. }
            | CommandRequest::SubmitHetJob { .. }
            | CommandRequest::UpdateJob { .. }
            | CommandRequest::ControlJob { .. }
            | CommandRequest::UpdateNode { .. }
            | CommandRequest::CreateNodes { .. }
            | CommandRequest::DeleteNodes { .. }
            | CommandRequest::UpdatePartition { .. }
            | CommandRequest::CreateReservation(_)
            | CommandRequest::UpdateReservation(_)
            | CommandRequest::DeleteReservation { .. }
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_with_one_request_waits_for_one_of_each_other_user() {
        let mut turnstile = Turnstile::new();
        for n in 0..MOST_OF_USER {
            assert_eq!(turnstile.put(1, false, (1, n)), Ok(()));
        }
        assert_eq!(turnstile.put(1, false, (1, 9999)), Err((1, 9999)));
        assert_eq!(turnstile.put(2, false, (2, 0)), Ok(()));
        assert_eq!(turnstile.put(3, true, (3, 0)), Ok(()));
        let order: Vec<_> = std::iter::from_fn(|| turnstile.take()).collect();
        assert_eq!(order[..4], [(3, 0), (1, 0), (2, 0), (1, 1)]);
        assert_eq!(order.len(), MOST_OF_USER + 2);
        assert!(order.iter().filter(|(uid, _)| *uid == 1).map(|(_, n)| *n).is_sorted());
        assert!(turnstile.is_empty());
        assert_eq!(turnstile.put(1, false, (1, 0)), Ok(()));
    }

    #[test]
    fn all_users_together_are_bounded() {
        let mut turnstile = Turnstile::new();
        let taken = (0..30)
            .flat_map(|uid| (0..MOST_OF_USER).map(move |_| uid))
            .filter(|uid| turnstile.put(*uid, false, ()).is_ok());
        assert_eq!(taken.count(), MOST);
        assert!(turnstile.put(99, true, ()).is_ok());
    }
}
