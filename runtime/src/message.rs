//! What an actor is, and its notifications about children.
//!
//! Shells implement [`Actor`]; everything else in the runtime is written against these traits.

use crate::{context::Context, path::ActorPath};

/// What an actor accepts: one enum (or struct) with all of its messages.
pub trait Message: Send + 'static {
    /// The message's name as traces show it, such as `SubmitJob`: the variant, never its data.
    fn name(&self) -> &'static str;

    /// Is it kept in traces? What carries traces must not be: whoever follows its actor would be sent a record of each batch of
    /// records, without end. It is counted all the same.
    fn is_traced(&self) -> bool {
        true
    }
}

/// A unit of state that handles one message at a time, on one thread.
///
/// An actor is built by its factory on its arbiter's thread and never leaves it, so it need not be `Send`. Nothing in
/// it may block: a slow handler holds up every actor on that arbiter.
pub trait Actor: Sized + 'static {
    /// What it accepts.
    type Msg: Message;

    /// Called first in every life of the actor, before any message; after a restart too.
    fn started(&mut self, cx: &mut Context<Self>) {
        let _ = cx;
    }

    /// Handles one message. A panic here ends this life of the actor; its parent decides about the next.
    fn handle(&mut self, cx: &mut Context<Self>, msg: Self::Msg);

    /// Called when something happened to a child. Not called any more once the actor is stopping.
    fn child_event(&mut self, cx: &mut Context<Self>, event: ChildEvent) {
        let _ = (cx, event);
    }

    /// Which children a failing child takes along. Asked at each failure.
    fn strategy(&self) -> Strategy {
        Strategy::OneForOne
    }

    /// Called last in a life that ends in order (a stop, or a restart on behalf of a sibling), after all children have
    /// ended. Not called after a panic, since the state cannot be trusted then.
    fn stopped(&mut self) {}
}

/// What a parent learns about a child.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChildEvent {
    /// The child failed and runs again, built anew by its factory; mailbox and address are the same.
    Restarted {
        /// The child.
        path: ActorPath,
        /// What it panicked with, or on whose behalf it was restarted.
        panic: String,
        /// How many times it has been restarted so far.
        restarts: u32,
    },
    /// The child ended in order and is gone; its path is free again.
    Stopped {
        /// The child.
        path: ActorPath,
    },
    /// The child could not be started, or failed and will not be restarted; it is gone and its path is free again
    /// (unless the reason is that another actor had that path).
    GaveUp {
        /// The child.
        path: ActorPath,
        /// Why.
        reason: String,
    },
}

impl ChildEvent {
    /// The child that it happened to.
    pub fn path(&self) -> &ActorPath {
        match self {
            Self::Restarted { path, .. } | Self::Stopped { path } | Self::GaveUp { path, .. } => path,
        }
    }
}

/// Which siblings are restarted with a failing child.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strategy {
    /// The failing child alone.
    #[default]
    OneForOne,
    /// The failing child and all that were started after it, since they build on it. They are ended in reverse start
    /// order, and started again one after the other in start order.
    RestForOne,
}

/// The two queues of a mailbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lane {
    /// Ordinary work; its bound is the back-pressure.
    Normal,
    /// Heartbeats, cancels, kills, timers: taken before anything in the normal lane, with a bound of its own.
    Control,
}
