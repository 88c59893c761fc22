//! Commands at a daemon's door, counted by user: one user's connections must not take all of its descriptors.

use crate::kernel::rlimits;
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

/// Of the daemon's descriptors, one user's commands may hold one in so many.
const SHARE: u64 = 4;
/// And at least so many.
const FEWEST: usize = 64;
/// Those on top may come back after this.
const COME_BACK: Duration = Duration::from_secs(2);
/// How long the request of one that is turned away is waited for.
const PATIENCE: Duration = Duration::from_secs(5);

/// Who is connected.
#[derive(Clone, Debug)]
pub struct Guests {
    most: usize,
    of: Arc<Mutex<HashMap<u32, usize>>>,
}

/// One connection; leaves when dropped.
#[derive(Debug)]
pub struct Guest {
    uid: u32,
    guests: Guests,
}

impl Guests {
    /// By this process's limit of open files.
    pub fn of_this_process() -> Self {
        let files = rlimits::get(libc::RLIMIT_NOFILE).ok().and_then(|(soft, _)| soft).unwrap_or(u64::MAX);
        Self::with_most(usize::try_from(files / SHARE).unwrap_or(usize::MAX).max(FEWEST))
    }

    fn with_most(most: usize) -> Self {
        Self { most, of: Arc::default() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u32, usize>> {
        self.of.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection of this user; `None`: it has too many. Root has no limit.
    pub fn enter(&self, uid: u32) -> Option<Guest> {
        let mut of = self.lock();
        let count = of.entry(uid).or_default();
        if *count >= self.most && uid != 0 {
            return None;
        }
        *count += 1;
        Some(Guest { uid, guests: self.clone() })
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let mut of = self.guests.lock();
        if let Some(count) = of.get_mut(&self.uid) {
            *count -= 1;
            if *count == 0 {
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
        let _ = replies.try_send(&crate::node::conversations::traced(busy));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
