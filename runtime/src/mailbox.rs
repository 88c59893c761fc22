//! A mailbox: two bounded lanes for messages and one for the runtime's own signals.
//!
//! It decides which messages are refused, their order, and when its host has to wake. Messages are counted here, since actix
//! counts per sender and not per mailbox. It survives the lives of its actor. Addresses fill it from any thread; one
//! [`Host`](crate::host::Host) empties it.

use std::{
    any::Any,
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::Waker,
    time::Instant,
};

use tokio::sync::{Semaphore, TryAcquireError};

use crate::{
    address::SendError,
    message::{Lane, Message},
    path::ActorPath,
    supervision::Slot,
    trace::{TraceContext, next_id},
    trace_hub::TraceHub,
};

/// A message on its way.
pub(crate) struct Envelope<M> {
    pub(crate) msg: M,
    /// Trace and cause; the message's own id is the cause of what its handler sends.
    pub(crate) cx: TraceContext,
    pub(crate) id: u64,
    /// When it was put in; `None` while tracing is off.
    pub(crate) queued: Option<Instant>,
    pub(crate) origin: Origin,
}

/// Where a message came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Anyone with an address: it takes a place.
    Sender,
    /// The actor itself, in that life: it takes no place, and only the same life gets it.
    Own(u64),
    /// The runtime: it takes no place.
    Runtime,
}

/// What the runtime's hosts tell each other.
#[derive(Debug)]
pub(crate) enum Signal {
    /// From the parent: begin a life.
    Begin,
    /// From the parent: end this life in order and wait.
    Suspend,
    /// From the parent: end for good.
    Stop,
    /// From a child: its life has begun.
    ChildUp(Slot),
    /// From a child: its life ended with this panic.
    ChildFailed(Slot, String),
    /// From a child: suspended as told.
    ChildSuspended(Slot),
    /// From a child: ended for good; its path is free.
    ChildGone(Slot),
    /// From a future of the actor's own.
    TaskPanicked { incarnation: u64, panic: String },
}

/// A mailbox whatever its messages: what supervision and the registry hold.
pub(crate) trait Inbox: Send + Sync {
    fn path(&self) -> &ActorPath;
    fn signal(&self, signal: Signal);
    /// Messages that wait.
    fn waiting(&self) -> usize;
    fn as_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync>;
}

/// The next thing for a host to do.
pub(crate) enum Taken<M> {
    Signal(Signal),
    Message(Envelope<M>),
    Timer { id: u64, queued: Option<Instant> },
}

enum ControlItem<M> {
    Message(Envelope<M>),
    Timer { id: u64, queued: Option<Instant> },
}

struct Lanes<M> {
    signals: VecDeque<Signal>,
    control: VecDeque<ControlItem<M>>,
    normal: VecDeque<Envelope<M>>,
    /// Messages (not timers) in `control`.
    control_used: usize,
    /// Closed for good: nothing more gets in.
    closed: bool,
    /// Whether the actor takes messages just now; signals are always taken.
    accepting: bool,
    /// Set while the host sleeps.
    waker: Option<Waker>,
}

impl<M> Lanes<M> {
    fn has_work(&self) -> bool {
        !self.signals.is_empty() || (self.accepting && (!self.control.is_empty() || !self.normal.is_empty()))
    }
}

pub(crate) struct Mailbox<M> {
    path: ActorPath,
    lanes: Mutex<Lanes<M>>,
    /// Free places in the normal lane. Waiting senders are served in the order in which they came.
    places: Semaphore,
    capacity: usize,
    control_capacity: usize,
    traces: TraceHub,
}

impl<M: Message> Mailbox<M> {
    pub(crate) fn new(path: ActorPath, capacity: usize, control_capacity: usize, traces: TraceHub) -> Arc<Self> {
        Arc::new(Self {
            path,
            lanes: Mutex::new(Lanes {
                signals: VecDeque::new(),
                control: VecDeque::new(),
                normal: VecDeque::new(),
                control_used: 0,
                closed: false,
                accepting: false,
                waker: None,
            }),
            places: Semaphore::new(capacity.clamp(1, Semaphore::MAX_PERMITS)),
            capacity,
            control_capacity,
            traces,
        })
    }

    pub(crate) fn path(&self) -> &ActorPath {
        &self.path
    }

    /// A mailbox's own code does not panic between two consistent states, so a poisoned lock is taken as it is.
    fn lock(&self) -> MutexGuard<'_, Lanes<M>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn envelope(&self, msg: M, cx: TraceContext, origin: Origin) -> Envelope<M> {
        Envelope { msg, cx, id: next_id(), queued: self.traces.is_enabled().then(Instant::now), origin }
    }

    /// Puts a message in without waiting.
    pub(crate) fn push(&self, lane: Lane, cx: TraceContext, msg: M) -> Result<(), SendError<M>> {
        match lane {
            Lane::Normal => match self.places.try_acquire() {
                Ok(place) => {
                    let pushed = self.push_normal(self.envelope(msg, cx, Origin::Sender));
                    if pushed.is_ok() {
                        place.forget();
                    }
                    pushed
                }
                Err(TryAcquireError::NoPermits) => Err(SendError::Full(msg)),
                Err(TryAcquireError::Closed) => Err(SendError::Closed(msg)),
            },
            Lane::Control => {
                let envelope = self.envelope(msg, cx, Origin::Sender);
                let mut lanes = self.lock();
                if lanes.closed {
                    return Err(SendError::Closed(envelope.msg));
                }
                if lanes.control_used >= self.control_capacity {
                    return Err(SendError::Full(envelope.msg));
                }
                lanes.control_used += 1;
                lanes.control.push_back(ControlItem::Message(envelope));
                self.wake(lanes);
                Ok(())
            }
        }
    }

    /// Waits for a place in the normal lane, then puts the message in.
    pub(crate) async fn push_when_room(&self, cx: TraceContext, msg: M) -> Result<(), SendError<M>> {
        match self.places.acquire().await {
            Ok(place) => {
                let pushed = self.push_normal(self.envelope(msg, cx, Origin::Sender));
                if pushed.is_ok() {
                    place.forget();
                }
                pushed
            }
            Err(_closed) => Err(SendError::Closed(msg)),
        }
    }

    /// Puts in what the actor owes itself (the result of a pipe): never refused for want of room.
    pub(crate) fn push_own(&self, lane: Lane, incarnation: u64, msg: M) {
        let envelope = self.envelope(msg, TraceContext::current_or_root(), Origin::Own(incarnation));
        let mut lanes = self.lock();
        // A closed mailbox has no actor left that could miss the message.
        if lanes.closed {
            return;
        }
        match lane {
            Lane::Normal => lanes.normal.push_back(envelope),
            Lane::Control => lanes.control.push_back(ControlItem::Message(envelope)),
        }
        self.wake(lanes);
    }

    /// Puts in a message that takes no place, for the runtime's own actors.
    pub(crate) fn push_unbounded(&self, msg: M) -> Result<(), SendError<M>> {
        self.push_normal(self.envelope(msg, TraceContext::current_or_root(), Origin::Runtime))
    }

    fn push_normal(&self, envelope: Envelope<M>) -> Result<(), SendError<M>> {
        let mut lanes = self.lock();
        if lanes.closed {
            return Err(SendError::Closed(envelope.msg));
        }
        lanes.normal.push_back(envelope);
        self.wake(lanes);
        Ok(())
    }

    /// Puts a due timer into the control lane.
    pub(crate) fn push_timer(&self, id: u64) {
        let queued = self.traces.is_enabled().then(Instant::now);
        let mut lanes = self.lock();
        if !lanes.closed {
            lanes.control.push_back(ControlItem::Timer { id, queued });
        }
    }

    /// Wakes the host if it sleeps and there is something for it, after letting go of the lock.
    fn wake(&self, mut lanes: MutexGuard<'_, Lanes<M>>) {
        let waker = if lanes.has_work() { lanes.waker.take() } else { None };
        drop(lanes);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// What comes next: signals, then control, then normal.
    pub(crate) fn take(&self) -> Option<Taken<M>> {
        let mut lanes = self.lock();
        if let Some(signal) = lanes.signals.pop_front() {
            return Some(Taken::Signal(signal));
        }
        if !lanes.accepting {
            return None;
        }
        if let Some(item) = lanes.control.pop_front() {
            return Some(match item {
                ControlItem::Message(envelope) => {
                    if envelope.origin == Origin::Sender {
                        lanes.control_used -= 1;
                    }
                    Taken::Message(envelope)
                }
                ControlItem::Timer { id, queued } => Taken::Timer { id, queued },
            });
        }
        let envelope = lanes.normal.pop_front()?;
        drop(lanes);
        if envelope.origin == Origin::Sender {
            self.places.add_permits(1);
        }
        Some(Taken::Message(envelope))
    }

    /// Registers the host's waker. False when there is work, so that the host has to look again.
    pub(crate) fn park(&self, waker: &Waker) -> bool {
        let mut lanes = self.lock();
        if lanes.has_work() {
            return false;
        }
        match &mut lanes.waker {
            Some(old) => old.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
        true
    }

    /// Whether messages are taken; they wait otherwise.
    pub(crate) fn set_accepting(&self, accepting: bool) {
        self.lock().accepting = accepting;
    }

    /// Closes for good and returns the messages that will not be handled.
    pub(crate) fn close(&self) -> Vec<Envelope<M>> {
        let mut lanes = self.lock();
        lanes.closed = true;
        lanes.accepting = false;
        lanes.control_used = 0;
        let control = std::mem::take(&mut lanes.control);
        let normal = std::mem::take(&mut lanes.normal);
        drop(lanes);
        self.places.close();
        let messages = control.into_iter().filter_map(|item| match item {
            ControlItem::Message(envelope) => Some(envelope),
            ControlItem::Timer { .. } => None,
        });
        messages.chain(normal).collect()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.places.is_closed()
    }

    /// Messages waiting in both lanes.
    pub(crate) fn len(&self) -> usize {
        let lanes = self.lock();
        let message = |item: &&ControlItem<M>| matches!(item, ControlItem::Message(_));
        lanes.control.iter().filter(message).count() + lanes.normal.len()
    }

    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }
}

impl<M: Message> Inbox for Mailbox<M> {
    fn path(&self) -> &ActorPath {
        &self.path
    }

    fn signal(&self, signal: Signal) {
        let mut lanes = self.lock();
        lanes.signals.push_back(signal);
        self.wake(lanes);
    }

    fn waiting(&self) -> usize {
        self.len()
    }

    fn as_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }
}
