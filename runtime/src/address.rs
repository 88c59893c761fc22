//! Addresses, through which messages are sent to an actor in this or another process.
//!
//! The three kinds of send differ in what happens when the mailbox is full: [`Address::try_send`] refuses, [`Address::send`]
//! waits, [`Address::control`] has a lane of its own. A failed send returns the message. The [`Forward`] of a remote address (a
//! link of the transport) decides what happens to a message.

use std::{fmt, future::Future, pin::Pin, sync::Arc, time::Duration};

use tokio::sync::mpsc;

use crate::{
    mailbox::Mailbox,
    message::{Lane, Message},
    path::ActorPath,
    reply::ReplyTo,
    trace::TraceContext,
};

/// A send that did not happen, with the message.
pub enum SendError<M> {
    /// The lane is full. Try again later, or answer "busy".
    Full(M),
    /// The actor has ended for good.
    Closed(M),
    /// The actor lives in another process that cannot be reached now.
    LinkDown(M),
}

impl<M> SendError<M> {
    /// The message.
    pub fn into_inner(self) -> M {
        match self {
            Self::Full(msg) | Self::Closed(msg) | Self::LinkDown(msg) => msg,
        }
    }

    /// The same failure about another message: for links, which wrap and unwrap.
    pub fn map<N>(self, f: impl FnOnce(M) -> N) -> SendError<N> {
        match self {
            Self::Full(msg) => SendError::Full(f(msg)),
            Self::Closed(msg) => SendError::Closed(f(msg)),
            Self::LinkDown(msg) => SendError::LinkDown(f(msg)),
        }
    }
}

impl<M> fmt::Display for SendError<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full(_) => "mailbox is full",
            Self::Closed(_) => "actor has ended",
            Self::LinkDown(_) => "actor's process cannot be reached",
        })
    }
}

impl<M> fmt::Debug for SendError<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full(_) => "Full",
            Self::Closed(_) => "Closed",
            Self::LinkDown(_) => "LinkDown",
        })
    }
}

impl<M> std::error::Error for SendError<M> {}

/// Why a request got no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum AskError {
    /// No answer within the deadline. The request was delivered; it may be handled later, or may have been.
    #[error("no answer within the deadline")]
    Timeout,
    /// Not delivered: the lane was full.
    #[error("mailbox is full")]
    Full,
    /// Not delivered: the actor has ended for good.
    #[error("actor has ended")]
    Closed,
    /// Delivered, and then dropped without an answer: the handler panicked, or the actor ended first.
    #[error("request was dropped without an answer")]
    Dropped,
    /// The actor's process cannot be reached. It is not known whether a request in flight was handled.
    #[error("actor's process cannot be reached")]
    LinkDown,
}

impl<M> From<&SendError<M>> for AskError {
    fn from(error: &SendError<M>) -> Self {
        match error {
            SendError::Full(_) => Self::Full,
            SendError::Closed(_) => Self::Closed,
            SendError::LinkDown(_) => Self::LinkDown,
        }
    }
}

/// The way to actors of another process: implemented by links.
pub trait Forward<M>: Send + Sync {
    /// Hands a message over without waiting, in order per lane.
    ///
    /// # Errors
    /// `Full` when the link's queue is, `LinkDown` while there is no connection, `Closed` when there will be none.
    fn forward(&self, to: &ActorPath, lane: Lane, cx: TraceContext, msg: M) -> Result<(), SendError<M>>;

    /// Resolves when it is worth trying again after `Full`. By default after 5 milliseconds: links that know better
    /// should say so.
    fn room(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(tokio::time::sleep(Duration::from_millis(5)))
    }
}

enum Route<M> {
    Near(Arc<Mailbox<M>>),
    Far(Arc<FarRoute<M>>),
}

struct FarRoute<M> {
    path: ActorPath,
    via: Arc<dyn Forward<M>>,
}

/// Where to send messages for one actor. It remains valid when the actor is restarted; closed once it has ended for good.
pub struct Address<M>(Route<M>);

impl<M> Clone for Address<M> {
    fn clone(&self) -> Self {
        Self(match &self.0 {
            Route::Near(mailbox) => Route::Near(Arc::clone(mailbox)),
            Route::Far(far) => Route::Far(Arc::clone(far)),
        })
    }
}

impl<M: Message> fmt::Debug for Address<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({})", self.path())
    }
}

impl<M: Message> Address<M> {
    pub(crate) fn near(mailbox: Arc<Mailbox<M>>) -> Self {
        Self(Route::Near(mailbox))
    }

    /// An address of an actor in another process.
    pub fn far(path: ActorPath, via: Arc<dyn Forward<M>>) -> Self {
        Self(Route::Far(Arc::new(FarRoute { path, via })))
    }

    /// An address with a receiver instead of an actor behind it, holding up to `capacity` messages: for tasks that are
    /// not actors, and for tests that look at what an actor sends.
    ///
    /// Both lanes share the one queue; the receiver is told which lane each message came by.
    pub fn channel(path: ActorPath, capacity: usize) -> (Self, ChannelReceiver<M>) {
        let (sender, receiver) = mpsc::channel(capacity.max(1));
        (Self::far(path, Arc::new(ChannelForward(sender))), ChannelReceiver(receiver))
    }

    /// The actor's path.
    pub fn path(&self) -> &ActorPath {
        match &self.0 {
            Route::Near(mailbox) => mailbox.path(),
            Route::Far(far) => &far.path,
        }
    }

    /// Whether the actor has ended for good. Always false for far addresses, which only a send can find out about.
    pub fn is_closed(&self) -> bool {
        match &self.0 {
            Route::Near(mailbox) => mailbox.is_closed(),
            Route::Far(_) => false,
        }
    }

    /// Messages waiting in the mailbox, for metrics; 0 for far addresses.
    pub fn waiting(&self) -> usize {
        match &self.0 {
            Route::Near(mailbox) => mailbox.len(),
            Route::Far(_) => 0,
        }
    }

    /// Bound of the normal lane; `None` for far addresses.
    pub fn capacity(&self) -> Option<usize> {
        match &self.0 {
            Route::Near(mailbox) => Some(mailbox.capacity()),
            Route::Far(_) => None,
        }
    }

    /// Sends without ever waiting.
    ///
    /// # Errors
    /// `Full`, `Closed` or `LinkDown`, with the message.
    pub fn try_send(&self, msg: M) -> Result<(), SendError<M>> {
        self.deliver(TraceContext::current_or_root(), Lane::Normal, msg)
    }

    /// Sends, waiting for room if there is none: back-pressure. Nothing is sent if the future is dropped while it waits.
    ///
    /// # Errors
    /// `Closed` or `LinkDown`, with the message.
    pub async fn send(&self, msg: M) -> Result<(), SendError<M>> {
        let cx = TraceContext::current_or_root();
        match &self.0 {
            Route::Near(mailbox) => mailbox.push_when_room(cx, msg).await,
            Route::Far(far) => {
                let mut msg = msg;
                loop {
                    match far.via.forward(&far.path, Lane::Normal, cx, msg) {
                        Err(SendError::Full(back)) => msg = back,
                        done => return done,
                    }
                    far.via.room().await;
                }
            }
        }
    }

    /// Sends on the control lane, without ever waiting: overtakes everything in the normal lane.
    ///
    /// # Errors
    /// `Full` (of the control lane), `Closed` or `LinkDown`, with the message.
    pub fn control(&self, msg: M) -> Result<(), SendError<M>> {
        self.deliver(TraceContext::current_or_root(), Lane::Control, msg)
    }

    /// Hands in a message that came from another process, with the trace that it carried (a new one if it carried
    /// none). For readers of links.
    ///
    /// # Errors
    /// `Full`, `Closed` or `LinkDown`, with the message.
    pub fn deliver(&self, cx: TraceContext, lane: Lane, msg: M) -> Result<(), SendError<M>> {
        let cx = if cx.trace == 0 { TraceContext::root() } else { cx };
        match &self.0 {
            Route::Near(mailbox) => mailbox.push(lane, cx, msg),
            Route::Far(far) => far.via.forward(&far.path, lane, cx, msg),
        }
    }

    /// Sends a request (as [`try_send`](Self::try_send) does) and waits for its answer.
    ///
    /// Nothing is sent before the future is first polled. Once sent, the request is handled whether or not the asker
    /// still waits: a timeout or a dropped future takes nothing back.
    ///
    /// # Errors
    /// See [`AskError`]; only `Full`, `Closed` and an immediate `LinkDown` mean that it was not delivered.
    pub async fn ask<R: Send + 'static>(
        &self,
        deadline: Duration,
        make: impl FnOnce(ReplyTo<R>) -> M,
    ) -> Result<R, AskError> {
        self.ask_on(Lane::Normal, deadline, make).await
    }

    /// As [`ask`](Self::ask), on the control lane.
    ///
    /// # Errors
    /// As [`ask`](Self::ask).
    pub async fn ask_control<R: Send + 'static>(
        &self,
        deadline: Duration,
        make: impl FnOnce(ReplyTo<R>) -> M,
    ) -> Result<R, AskError> {
        self.ask_on(Lane::Control, deadline, make).await
    }

    async fn ask_on<R: Send + 'static>(
        &self,
        lane: Lane,
        deadline: Duration,
        make: impl FnOnce(ReplyTo<R>) -> M,
    ) -> Result<R, AskError> {
        let (reply, pending) = ReplyTo::channel();
        if let Err(error) = self.deliver(TraceContext::current_or_root(), lane, make(reply)) {
            return Err(AskError::from(&error));
        }
        match tokio::time::timeout(deadline, pending).await {
            Ok(answer) => answer,
            Err(_elapsed) => Err(AskError::Timeout),
        }
    }
}

/// A message as a [`ChannelReceiver`] gets it.
#[derive(Debug)]
pub struct Delivered<M> {
    /// By which lane it was sent.
    pub lane: Lane,
    /// Trace and cause that it carried.
    pub cx: TraceContext,
    /// The message.
    pub msg: M,
}

struct ChannelForward<M>(mpsc::Sender<Delivered<M>>);

impl<M: Message> Forward<M> for ChannelForward<M> {
    fn forward(&self, _to: &ActorPath, lane: Lane, cx: TraceContext, msg: M) -> Result<(), SendError<M>> {
        self.0.try_send(Delivered { lane, cx, msg }).map_err(|error| match error {
            mpsc::error::TrySendError::Full(delivered) => SendError::Full(delivered.msg),
            mpsc::error::TrySendError::Closed(delivered) => SendError::Closed(delivered.msg),
        })
    }

    fn room(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async {
            // An error means closed, which the next try reports.
            drop(self.0.reserve().await);
        })
    }
}

/// The receiving end of [`Address::channel`].
#[derive(Debug)]
pub struct ChannelReceiver<M>(mpsc::Receiver<Delivered<M>>);

impl<M> ChannelReceiver<M> {
    /// The next message; `None` when no address is left.
    pub async fn recv(&mut self) -> Option<M> {
        self.0.recv().await.map(|delivered| delivered.msg)
    }

    /// The next message with its lane and trace; `None` when no address is left.
    pub async fn recv_delivered(&mut self) -> Option<Delivered<M>> {
        self.0.recv().await
    }

    /// The next message if one is waiting.
    pub fn try_recv(&mut self) -> Option<M> {
        self.0.try_recv().ok().map(|delivered| delivered.msg)
    }
}
