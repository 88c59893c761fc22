//! Whose request is served next: users take turns, so that one with ten thousand requests does not delay another with one.
//! Requests that free something or are small (cancel, the end of an allocation, ping) go ahead of the rest.
//!
//! Plain data; the frontend uses it.

use garrick_model::messages::command::CommandRequest;
use std::collections::{BTreeMap, VecDeque};

/// Most waiting requests of one user, for each of both classes; further ones are told to try again.
pub const MOST_OF_USER: usize = 1000;
/// Most waiting requests of all users, for each of both classes.
pub const MOST: usize = 20_000;
/// Most bytes of a user's waiting requests, for each of both classes: four of the largest that a door accepts.
pub const MOST_BYTES_OF_USER: usize = 64 << 20;
/// Most bytes of all waiting requests, for each of both classes.
pub const MOST_BYTES: usize = 512 << 20;

/// Users with waiting requests in a class, in turn.
#[derive(Debug)]
struct Class<T> {
    queues: BTreeMap<u32, Queue<T>>,
    /// Each user with a queue once; the first one's turn is next.
    turns: VecDeque<u32>,
    waiting: usize,
    bytes: usize,
}

/// Requests of one user, with their total size.
#[derive(Debug)]
struct Queue<T> {
    requests: VecDeque<(usize, T)>,
    bytes: usize,
}

impl<T> Class<T> {
    const fn new() -> Self {
        Self { queues: BTreeMap::new(), turns: VecDeque::new(), waiting: 0, bytes: 0 }
    }

    fn put(&mut self, uid: u32, bytes: usize, request: T) -> Result<(), T> {
        let (count, of_user) = self.queues.get(&uid).map_or((0, 0), |queue| (queue.requests.len(), queue.bytes));
        let full = count >= MOST_OF_USER || of_user.saturating_add(bytes) > MOST_BYTES_OF_USER;
        if full || self.waiting >= MOST || self.bytes.saturating_add(bytes) > MOST_BYTES {
            return Err(request);
        }
        if count == 0 {
            self.turns.push_back(uid);
        }
        let queue = self.queues.entry(uid).or_insert_with(|| Queue { requests: VecDeque::new(), bytes: 0 });
        queue.requests.push_back((bytes, request));
        queue.bytes += bytes;
        self.bytes += bytes;
        self.waiting += 1;
        Ok(())
    }

    fn take(&mut self) -> Option<T> {
        let uid = self.turns.pop_front()?;
        let queue = self.queues.get_mut(&uid)?;
        let (bytes, request) = queue.requests.pop_front()?;
        queue.bytes -= bytes;
        if queue.requests.is_empty() {
            self.queues.remove(&uid);
        } else {
            self.turns.push_back(uid);
        }
        self.bytes -= bytes;
        self.waiting -= 1;
        Some(request)
    }
}

/// Waiting requests.
#[derive(Debug)]
pub struct FairQueue<T> {
    ahead: Class<T>,
    ordinary: Class<T>,
}

impl<T> FairQueue<T> {
    /// No requests.
    pub const fn new() -> Self {
        Self { ahead: Class::new(), ordinary: Class::new() }
    }

    /// Adds a user's request of so many bytes. Returned if too many wait, or too many bytes.
    pub fn put(&mut self, uid: u32, ahead: bool, bytes: usize, request: T) -> Result<(), T> {
        if ahead { self.ahead.put(uid, bytes, request) } else { self.ordinary.put(uid, bytes, request) }
    }

    /// The request whose turn it is.
    pub fn take(&mut self) -> Option<T> {
        self.ahead.take().or_else(|| self.ordinary.take())
    }

    /// Does no request wait?
    pub const fn is_empty(&self) -> bool {
        self.ahead.waiting == 0 && self.ordinary.waiting == 0
    }
}

impl<T> Default for FairQueue<T> {
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

/// Does a request begin or change something that has to be saved? If the disk is full, such requests are told to try again;
/// cancelling and ends of allocations are accepted nevertheless, and saved when there is space.
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
            | CommandRequest::CreatePartition { .. }
            | CommandRequest::DeletePartition { .. }
            | CommandRequest::CreateReservation(_)
            | CommandRequest::UpdateReservation(_)
            | CommandRequest::DeleteReservation { .. }
            | CommandRequest::InstallCrontab(_)
            | CommandRequest::SetTrigger(_)
            | CommandRequest::ClearTriggers(_)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_with_one_request_waits_for_one_of_each_other_user() {
        let mut fair_queue = FairQueue::new();
        for n in 0..MOST_OF_USER {
            assert_eq!(fair_queue.put(1, false, 10, (1, n)), Ok(()));
        }
        assert_eq!(fair_queue.put(1, false, 10, (1, 9999)), Err((1, 9999)));
        assert_eq!(fair_queue.put(2, false, 10, (2, 0)), Ok(()));
        assert_eq!(fair_queue.put(3, true, 10, (3, 0)), Ok(()));
        let order: Vec<_> = std::iter::from_fn(|| fair_queue.take()).collect();
        assert_eq!(order[..4], [(3, 0), (1, 0), (2, 0), (1, 1)]);
        assert_eq!(order.len(), MOST_OF_USER + 2);
        assert!(order.iter().filter(|(uid, _)| *uid == 1).map(|(_, n)| *n).is_sorted());
        assert!(fair_queue.is_empty());
        assert_eq!(fair_queue.put(1, false, 10, (1, 0)), Ok(()));
    }

    #[test]
    fn bytes_bound_what_waits_as_numbers_do() {
        let mut fair_queue = FairQueue::new();
        let large = 16 << 20;
        let taken = (0..10).filter(|n| fair_queue.put(1, false, large, *n).is_ok()).count();
        assert_eq!(taken, 4, "64 MiB of one user");
        assert!(fair_queue.put(1, false, 1, 99).is_err() && fair_queue.put(1, true, large, 99).is_ok());
        let taken = (2..100).filter(|uid| (0..4).all(|n| fair_queue.put(*uid, false, large, n).is_ok())).count();
        assert_eq!(taken, 7, "512 MiB of all");
        while fair_queue.take().is_some() {}
        assert!(fair_queue.is_empty() && fair_queue.ordinary.bytes == 0 && fair_queue.ordinary.queues.is_empty());
        assert!(fair_queue.put(1, false, large, 1).is_ok());
    }

    #[test]
    fn all_users_together_are_bounded() {
        let mut fair_queue = FairQueue::new();
        let taken = (0..30)
            .flat_map(|uid| (0..MOST_OF_USER).map(move |_| uid))
            .filter(|uid| fair_queue.put(*uid, false, 10, ()).is_ok());
        assert_eq!(taken.count(), MOST);
        assert!(fair_queue.put(99, true, 10, ()).is_ok());
    }
}
