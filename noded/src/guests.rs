//! Limits commands at a daemon's door by user: one user's connections must not take all of its descriptors, nor that user's
//! requests fill the mailbox of the actor that serves them.

use garrick_actors::controller::frontend::fair_queue::{MOST_BYTES_OF_USER, MOST_OF_USER};
use garrick_kernel::rlimits;
use garrick_model::{
    messages::command::{CommandReply, CommandRequest},
    refusal::Refusal,
};
use garrick_transport::DoorConn;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Of the daemon's descriptors, one user's commands may hold one in so many.
const SHARE: u64 = 4;
/// And at least so many.
const FEWEST: usize = 64;
/// Requests of one user in a row that are on their way to whoever serves them, at a time: enough that he is not waited for.
const UNDER_WAY: usize = 8;
/// Those on top may come back after this.
const COME_BACK: Duration = Duration::from_secs(2);
/// How long the request of one that is turned away is waited for.
const PATIENCE: Duration = Duration::from_secs(5);

/// Who is connected.
#[derive(Clone, Debug)]
pub struct Guests {
    most: usize,
    of: Arc<Mutex<HashMap<u32, OfUser>>>,
}

/// What a user's connections share.
#[derive(Debug, Default)]
struct OfUser {
    connections: usize,
    ahead: Row,
    ordinary: Row,
}

/// A user's requests that have to wait, in the order in which they came.
#[derive(Debug)]
struct Row {
    places: Arc<Semaphore>,
    waiting: usize,
    bytes: usize,
}

impl Default for Row {
    fn default() -> Self {
        Self { places: Arc::new(Semaphore::new(UNDER_WAY)), waiting: 0, bytes: 0 }
    }
}

impl OfUser {
    const fn row(&mut self, ahead: bool) -> &mut Row {
        if ahead { &mut self.ahead } else { &mut self.ordinary }
    }
}

/// One connection; leaves when dropped.
#[derive(Debug)]
pub struct Guest {
    uid: u32,
    guests: Guests,
}

/// One request is on its way. Dropped when its turn has come.
#[derive(Debug)]
pub struct UnderWay {
    _place: OwnedSemaphorePermit,
}

/// One request in a row.
struct InRow<'g> {
    guest: &'g Guest,
    ahead: bool,
    bytes: usize,
}

impl Guests {
    /// By this process's limit of open files.
    pub fn of_this_process() -> Self {
        let files = rlimits::get(libc::RLIMIT_NOFILE).ok().and_then(|(soft, _)| soft).unwrap_or(u64::MAX);
        Self::with_most(usize::try_from(files / SHARE).unwrap_or(usize::MAX).max(FEWEST))
    }

    /// So many of each user.
    pub(crate) fn with_most(most: usize) -> Self {
        Self { most, of: Arc::default() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u32, OfUser>> {
        self.of.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection of this user; `None`: it has too many. Root has no limit.
    pub fn enter(&self, uid: u32) -> Option<Guest> {
        let mut of = self.lock();
        let user = of.entry(uid).or_default();
        if user.connections >= self.most && uid != 0 {
            return None;
        }
        user.connections += 1;
        Some(Guest { uid, guests: self.clone() })
    }
}

impl Guest {
    /// For one more request, so many bytes long: waits until few enough of the same user's are on their way, whichever
    /// connections they came by. While he has that many, nobody else waits for him. `ahead`: of those that go ahead of the rest,
    /// which have a row of their own. `None`: too many wait, or too much; the limits are those of the fair queue.
    pub async fn set_out(&self, ahead: bool, bytes: usize) -> Option<UnderWay> {
        let (place, _in_row) = {
            let mut of = self.guests.lock();
            let row = of.get_mut(&self.uid)?.row(ahead);
            if let Ok(place) = Arc::clone(&row.places).try_acquire_owned() {
                return Some(UnderWay { _place: place });
            }
            if row.waiting >= MOST_OF_USER || row.bytes.saturating_add(bytes) > MOST_BYTES_OF_USER {
                return None;
            }
            row.waiting += 1;
            row.bytes += bytes;
            (Arc::clone(&row.places).acquire_owned(), InRow { guest: self, ahead, bytes })
        };
        // They are never closed.
        place.await.ok().map(|place| UnderWay { _place: place })
    }
}

impl Drop for InRow<'_> {
    fn drop(&mut self) {
        if let Some(user) = self.guest.guests.lock().get_mut(&self.guest.uid) {
            let row = user.row(self.ahead);
            row.waiting -= 1;
            row.bytes -= self.bytes;
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let mut of = self.guests.lock();
        if let Some(user) = of.get_mut(&self.uid) {
            user.connections -= 1;
            if user.connections == 0 {
                of.remove(&self.uid);
            }
        }
    }
}

/// Tells a command to come back.
pub async fn turn_away(conn: DoorConn) {
    tracing::debug!(uid = conn.peer.uid, "door.too_many_of_user");
    let (replies, mut requests) = conn.split::<CommandReply, CommandRequest>();
    let first = tokio::time::timeout(PATIENCE, requests.recv()).await;
    if let Ok(Ok(Some(_))) = first {
        let busy = CommandReply::Refused(Refusal::RetryAfter { after: COME_BACK });
        // One that is gone needs no answer.
        let _ = replies.try_send(&garrick_daemon::links::traced(busy));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::{future::Future, pin::Pin};

    type SetOut<'g> = Pin<Box<dyn Future<Output = Option<UnderWay>> + 'g>>;

    /// What comes of it at once; `None`: it waits.
    async fn now(set_out: &mut SetOut<'_>) -> Option<Option<UnderWay>> {
        tokio::select! {
            biased;
            gone = set_out => Some(gone),
            () = std::future::ready(()) => None,
        }
    }

    #[test]
    fn a_user_has_so_many_connections_and_others_theirs() {
        let guests = Guests::with_most(2);
        let of_one: Vec<_> = (0..3).map(|_| guests.enter(1)).collect();
        assert_eq!(of_one.iter().flatten().count(), 2);
        assert!(guests.enter(2).is_some());
        assert_eq!((0..5).map(|_| guests.enter(0)).collect::<Vec<_>>().iter().flatten().count(), 5);
        drop(of_one);
        assert!(guests.enter(1).is_some());
        assert!(guests.lock().is_empty());
    }

    /// However many connections he had, so many of his requests stood before those of others.
    #[tokio::test]
    async fn a_user_has_few_requests_under_way_and_nobody_else_waits_for_them() {
        let guests = Guests::with_most(10_000);
        let of_one: Vec<_> = (0..MOST_OF_USER + 50).filter_map(|_| guests.enter(1)).collect();
        let (mut under_way, mut waiting, mut turned_away) = (Vec::new(), Vec::new(), 0);
        for guest in &of_one {
            let mut set_out: SetOut<'_> = Box::pin(guest.set_out(false, 10));
            match now(&mut set_out).await {
                Some(Some(gone)) => under_way.push(gone),
                Some(None) => turned_away += 1,
                None => waiting.push(set_out),
            }
        }
        assert_eq!((under_way.len(), waiting.len(), turned_away), (UNDER_WAY, MOST_OF_USER, 50 - UNDER_WAY));
        let other = guests.enter(2).unwrap();
        let mut set_out: SetOut<'_> = Box::pin(other.set_out(false, 10));
        assert!(matches!(now(&mut set_out).await, Some(Some(_))));
        let mut ahead: SetOut<'_> = Box::pin(of_one[0].set_out(true, 10));
        assert!(matches!(now(&mut ahead).await, Some(Some(_))), "what goes ahead of the rest does not wait for it");
        under_way.pop();
        assert!(now(&mut waiting[1]).await.is_none(), "in the order in which they came");
        assert!(matches!(now(&mut waiting[0]).await, Some(Some(_))));
        drop(waiting);
        assert_eq!(guests.lock()[&1].ordinary.bytes, 0, "whoever went away does not wait");
    }

    #[tokio::test]
    async fn what_waits_is_bounded_by_its_bytes() {
        let guests = Guests::with_most(10);
        let guest = guests.enter(1).unwrap();
        let large = 15 << 20;
        let mut held = Vec::new();
        for _ in 0..UNDER_WAY {
            held.push(guest.set_out(false, large).await.unwrap());
        }
        let mut waiting: Vec<SetOut<'_>> =
            (0..4).map(|_| Box::pin(guest.set_out(false, large)) as SetOut<'_>).collect();
        for set_out in &mut waiting {
            assert!(now(set_out).await.is_none());
        }
        assert!(guest.set_out(false, large).await.is_none(), "60 MiB wait, and 64 may");
    }
}
