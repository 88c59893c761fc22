//! A bounded queue of encoded frames before a socket or stream. The bound is in bytes: a sender of a frame first reserves space
//! and waits while there is none; the writer releases the space when the kernel or QUIC has the bytes.

use crate::{class::Class, error::LinkError};
use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::sync::{Notify, Semaphore};

/// Every frame costs at least this much room, so that many tiny ones are bounded too.
const LEAST_COST: usize = 256;
/// Small frames are joined up to this size for one write.
const BATCH: usize = 64 << 10;
/// How long a writer goes on with what is queued after the last sender is gone.
const LINGER: Duration = Duration::from_secs(30);

#[derive(Debug)]
struct Lane {
    class: Class,
    room: Semaphore,
}

/// Queue of one writer. A lane per class that it carries, the most urgent first.
#[derive(Debug)]
pub(crate) struct Outbox {
    lanes: Vec<Lane>,
    state: Mutex<OutState>,
    ready: Notify,
    ending: Notify,
}

#[derive(Debug, Default)]
struct OutState {
    frames: Vec<VecDeque<Vec<u8>>>,
    /// Goes out in front of the first frame, with it.
    held: Vec<u8>,
    /// Being written, with how much of it is out, and the room that it gives back.
    current: Vec<u8>,
    written: usize,
    returns: Vec<usize>,
    /// No sender is left: write what is queued, then end.
    finishing: bool,
    failed: Option<LinkError>,
}

impl Outbox {
    pub fn new(classes: &[Class]) -> Self {
        let lanes: Vec<Lane> =
            classes.iter().map(|&class| Lane { class, room: Semaphore::new(class.queue_bytes()) }).collect();
        let frames = lanes.iter().map(|_| VecDeque::new()).collect();
        let returns = vec![0; lanes.len()];
        Self {
            lanes,
            state: Mutex::new(OutState { frames, returns, ..OutState::default() }),
            ready: Notify::new(),
            ending: Notify::new(),
        }
    }

    /// Bytes that leave together with the first frame, or at the end.
    pub fn hold(&self, bytes: Vec<u8>) {
        self.lock().held = bytes;
    }

    fn lock(&self) -> MutexGuard<'_, OutState> {
        // No code that can panic runs under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lane for a class; a writer with fewer lanes than classes carries the rest in its last one.
    fn lane(&self, class: Class) -> usize {
        class.index().min(self.lanes.len() - 1)
    }

    fn cost(&self, lane: usize, frame: &[u8]) -> usize {
        frame.len().clamp(LEAST_COST, self.lanes[lane].class.queue_bytes())
    }

    /// Waits for room and puts a frame in. Dropped before it is done, the frame is not in.
    pub async fn push(&self, class: Class, frame: Vec<u8>) -> Result<(), LinkError> {
        let lane = self.lane(class);
        let cost = self.cost(lane, &frame);
        if let Ok(room) = self.lanes[lane].room.acquire_many(cost as u32).await {
            room.forget();
            self.put(lane, frame)
        } else {
            Err(self.failure())
        }
    }

    /// Puts a frame in if there is room: `Ok(false)` when there is none.
    pub fn try_push(&self, class: Class, frame: Vec<u8>) -> Result<bool, LinkError> {
        use tokio::sync::TryAcquireError;
        let lane = self.lane(class);
        match self.lanes[lane].room.try_acquire_many(self.cost(lane, &frame) as u32) {
            Ok(room) => {
                room.forget();
                self.put(lane, frame).map(|()| true)
            }
            Err(TryAcquireError::NoPermits) => Ok(false),
            Err(TryAcquireError::Closed) => Err(self.failure()),
        }
    }

    fn put(&self, lane: usize, frame: Vec<u8>) -> Result<(), LinkError> {
        let mut state = self.lock();
        if let Some(error) = &state.failed {
            return Err(error.clone());
        }
        state.frames[lane].push_back(frame);
        Ok(())
    }

    /// Tells the writer's task that something was put in.
    pub fn wake(&self) {
        self.ready.notify_one();
    }

    fn failure(&self) -> LinkError {
        self.lock().failed.clone().unwrap_or_else(|| LinkError::lost("link", "closed"))
    }

    /// No sender is left.
    pub fn finish(&self) {
        self.lock().finishing = true;
        self.ready.notify_one();
        self.ending.notify_one();
    }

    /// Ends [`LINGER`] after the last sender is gone: no more patience with a peer that does not read.
    pub async fn lingered(&self) {
        self.ending.notified().await;
        tokio::time::sleep(LINGER).await;
    }

    /// The link is broken: current and later senders get this error.
    pub fn fail(&self, error: LinkError) {
        let mut state = self.lock();
        state.failed.get_or_insert(error);
        state.frames.iter_mut().for_each(VecDeque::clear);
        state.current = Vec::new();
        state.written = 0;
        drop(state);
        self.lanes.iter().for_each(|lane| lane.room.close());
        self.ready.notify_one();
    }

    /// Writes with `write` until nothing is left or it says that the socket is full (`Ok(None)`, then the result is
    /// false). `write` must not wait.
    pub fn drain<E>(&self, mut write: impl FnMut(&[u8]) -> Result<Option<usize>, E>) -> Result<bool, E> {
        let mut state = self.lock();
        loop {
            if state.written == state.current.len() {
                self.give_back(&mut state);
                if !self.next_batch(&mut state) {
                    return Ok(true);
                }
            }
            match write(&state.current[state.written..])? {
                Some(count) => state.written += count,
                None => return Ok(false),
            }
        }
    }

    /// The next bytes to write, whole; the room is given back by [`Outbox::batch_done`].
    pub fn take_batch(&self) -> Option<Vec<u8>> {
        let mut state = self.lock();
        if !self.next_batch(&mut state) {
            return None;
        }
        Some(std::mem::take(&mut state.current))
    }

    /// What [`Outbox::take_batch`] gave is written.
    pub fn batch_done(&self) {
        self.give_back(&mut self.lock());
    }

    fn next_batch(&self, state: &mut OutState) -> bool {
        state.written = 0;
        let mut batch = if state.finishing || state.frames.iter().any(|lane| !lane.is_empty()) {
            std::mem::take(&mut state.held)
        } else {
            Vec::new()
        };
        'lanes: for (lane, frames) in state.frames.iter_mut().enumerate() {
            while let Some(frame) = frames.front() {
                if !batch.is_empty() && batch.len() + frame.len() > BATCH {
                    break 'lanes;
                }
                let Some(frame) = frames.pop_front() else { break };
                state.returns[lane] += self.cost(lane, &frame);
                if batch.is_empty() {
                    batch = frame;
                } else {
                    batch.extend_from_slice(&frame);
                }
            }
        }
        let some = !batch.is_empty();
        state.current = batch;
        some
    }

    fn give_back(&self, state: &mut OutState) {
        state.current = Vec::new();
        state.written = 0;
        for (lane, cost) in self.lanes.iter().zip(&mut state.returns) {
            lane.room.add_permits(std::mem::take(cost));
        }
    }

    /// Waits until there is something to do: frames, the end, or a failure.
    pub async fn wait(&self) -> Wait {
        loop {
            let notified = self.ready.notified();
            {
                let state = self.lock();
                if state.failed.is_some() {
                    return Wait::Failed;
                }
                if state.written < state.current.len() || state.frames.iter().any(|lane| !lane.is_empty()) {
                    return Wait::Frames;
                }
                if state.finishing {
                    return if state.held.is_empty() { Wait::Finish } else { Wait::Frames };
                }
            }
            notified.await;
        }
    }
}

/// What a writer is woken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Something to write.
    Frames,
    /// Everything is written and no sender is left.
    Finish,
    /// The link is broken.
    Failed,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn all(outbox: &Outbox) -> Vec<u8> {
        let mut out = Vec::new();
        outbox
            .drain(|bytes| {
                out.extend_from_slice(bytes);
                Ok::<_, ()>(Some(bytes.len()))
            })
            .unwrap();
        out
    }

    #[test]
    fn control_overtakes_what_is_queued_but_not_what_is_half_out() {
        let outbox = Outbox::new(&[Class::Control, Class::Request]);
        assert!(outbox.try_push(Class::Request, b"11".to_vec()).unwrap());
        outbox.drain(|_| Ok::<_, ()>(None)).unwrap();
        assert!(outbox.try_push(Class::Trace, b"22".to_vec()).unwrap());
        assert!(outbox.try_push(Class::Control, b"CC".to_vec()).unwrap());
        assert_eq!(all(&outbox), b"11CC22");
    }

    #[test]
    fn a_full_queue_says_so_and_room_returns_when_written() {
        let outbox = Outbox::new(&[Class::Control, Class::Request]);
        let mut taken = 0;
        while outbox.try_push(Class::Control, vec![0; LEAST_COST]).unwrap() {
            taken += 1;
        }
        assert_eq!(taken, Class::Control.queue_bytes() / LEAST_COST);
        assert!(outbox.try_push(Class::Request, vec![1]).unwrap(), "another class has room of its own");
        assert_eq!(all(&outbox).len(), Class::Control.queue_bytes() + 1);
        assert!(outbox.try_push(Class::Control, vec![0; Class::Control.queue_bytes() * 2]).unwrap());
    }

    #[test]
    fn held_bytes_go_out_with_the_first_frame_or_at_the_end() {
        let outbox = Outbox::new(&[Class::Control, Class::Request]);
        outbox.hold(b"hi ".to_vec());
        assert_eq!(all(&outbox), b"");
        assert!(outbox.try_push(Class::Request, b"you".to_vec()).unwrap());
        assert_eq!(outbox.take_batch().unwrap(), b"hi you");
        outbox.batch_done();
        let outbox = Outbox::new(&[Class::Control]);
        outbox.hold(b"hi".to_vec());
        outbox.finish();
        assert_eq!(all(&outbox), b"hi");
    }

    #[tokio::test]
    async fn a_failure_reaches_those_who_wait_and_those_who_come() {
        let outbox = std::sync::Arc::new(Outbox::new(&[Class::Control]));
        while outbox.try_push(Class::Control, vec![0; 60_000]).unwrap() {}
        let waiting = tokio::spawn({
            let outbox = std::sync::Arc::clone(&outbox);
            async move { outbox.push(Class::Control, vec![0; 60_000]).await }
        });
        tokio::task::yield_now().await;
        outbox.fail(LinkError::lost("n1", "gone"));
        assert!(waiting.await.unwrap().unwrap_err().to_string().contains("n1"));
        assert!(outbox.try_push(Class::Control, vec![0]).is_err());
        assert_eq!(outbox.wait().await, Wait::Failed);
    }
}
