//! Futures that belong to one life of an actor.
//!
//! They run on the actor's arbiter with the trace of the message that spawned them, are dropped at the moment when the
//! life ends, and a panic in one counts as a panic of the actor.

use std::{
    any::Any,
    cell::{Cell, RefCell},
    collections::HashMap,
    mem::ManuallyDrop,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll},
};

use tokio::task::AbortHandle;

use crate::{
    mailbox::{Inbox, Signal},
    trace::TraceContext,
};

type LocalFuture = Pin<Box<dyn Future<Output = ()>>>;

/// What a panic said.
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> String {
    if let Some(text) = panic.downcast_ref::<&'static str>() {
        (*text).to_owned()
    } else if let Some(text) = panic.downcast_ref::<String>() {
        text.clone()
    } else {
        "panic without text".to_owned()
    }
}

/// Runs code of an actor's author; a panic comes back as its text.
pub(crate) fn guarded<T>(body: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(body)).map_err(|panic| {
        let text = panic_text(&*panic);
        // The payload may be a value whose own drop panics, and so may the second; that one is left alone.
        if let Err(second) = catch_unwind(AssertUnwindSafe(move || drop(panic))) {
            let _kept = ManuallyDrop::new(second);
        }
        text
    })
}

/// The future, where both its task and its owner can reach it: the owner takes it out when the life ends.
struct Seat {
    future: RefCell<Option<LocalFuture>>,
    ended: Cell<bool>,
}

type Seats = Rc<RefCell<HashMap<u64, (Rc<Seat>, AbortHandle)>>>;

pub(crate) struct Tasks {
    seats: Seats,
    next: u64,
}

impl Tasks {
    pub(crate) fn new() -> Self {
        Self { seats: Seats::default(), next: 0 }
    }

    /// Spawns on this thread. A panic is told to `inbox` as one of `incarnation`.
    pub(crate) fn spawn(
        &mut self,
        cx: TraceContext,
        inbox: Arc<dyn Inbox>,
        incarnation: u64,
        future: impl Future<Output = ()> + 'static,
    ) {
        let id = self.next;
        self.next += 1;
        let seat = Rc::new(Seat { future: RefCell::new(Some(Box::pin(future))), ended: Cell::new(false) });
        let run = Run { seat: Rc::clone(&seat), seats: Rc::clone(&self.seats), id, cx, inbox, incarnation };
        let handle = tokio::task::spawn_local(run).abort_handle();
        self.seats.borrow_mut().insert(id, (seat, handle));
    }

    /// Drops all futures now.
    pub(crate) fn clear(&mut self) {
        let seats = std::mem::take(&mut *self.seats.borrow_mut());
        for (seat, handle) in seats.into_values() {
            seat.ended.set(true);
            handle.abort();
            let future = seat.future.borrow_mut().take();
            if let Err(panic) = guarded(move || drop(future)) {
                tracing::error!(panic, "future of an actor panicked while it was dropped");
            }
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.seats.borrow().len()
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        self.clear();
    }
}

struct Run {
    seat: Rc<Seat>,
    seats: Seats,
    id: u64,
    cx: TraceContext,
    inbox: Arc<dyn Inbox>,
    incarnation: u64,
}

impl Run {
    fn end(&self) {
        self.seat.ended.set(true);
        self.seats.borrow_mut().remove(&self.id);
    }
}

impl Future for Run {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        // Taken out while it runs, so that nothing is borrowed while the author's code runs.
        let Some(mut future) = self.seat.future.borrow_mut().take() else { return Poll::Ready(()) };
        let polled = guarded(|| {
            let polled = self.cx.enter(|| future.as_mut().poll(cx));
            polled.is_pending().then_some(future)
        });
        match polled {
            Ok(Some(future)) if !self.seat.ended.get() => {
                *self.seat.future.borrow_mut() = Some(future);
                return Poll::Pending;
            }
            Ok(_) => {}
            Err(panic) => {
                self.inbox.signal(Signal::TaskPanicked { incarnation: self.incarnation, panic });
            }
        }
        self.end();
        Poll::Ready(())
    }
}
