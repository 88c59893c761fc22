//! The reply side of a request.
//!
//! A [`ReplyTo`] travels inside the message, so that the request is handled whether or not the requester still waits, and so that
//! dropping it unanswered (a panic, a stop, a lost link) tells the requester at once.

use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::sync::oneshot;

use crate::{address::AskError, tasks::guarded};

type Callback<R> = Box<dyn FnOnce(Result<R, AskError>) + Send>;

enum Way<R> {
    Channel(oneshot::Sender<Result<R, AskError>>),
    Callback(Callback<R>),
}

/// Where one answer goes. Dropped unanswered, the asker gets [`AskError::Dropped`].
pub struct ReplyTo<R>(Option<Way<R>>);

impl<R: Send + 'static> ReplyTo<R> {
    /// A reply and the future that resolves when it is answered or dropped: for tests, doors and links.
    pub fn channel() -> (Self, PendingReply<R>) {
        let (sender, receiver) = oneshot::channel();
        (Self(Some(Way::Channel(sender))), PendingReply(receiver))
    }

    /// A reply that calls `answered` exactly once, on the thread that answers or drops it; it must not block.
    ///
    /// For links, which encode the answer instead of waiting for it.
    pub fn calling(answered: impl FnOnce(Result<R, AskError>) + Send + 'static) -> Self {
        Self(Some(Way::Callback(Box::new(answered))))
    }

    /// A reply of another type, translated into this one by `translate` when it is answered.
    pub fn map<S: Send + 'static>(self, translate: impl FnOnce(S) -> R + Send + 'static) -> ReplyTo<S> {
        ReplyTo::calling(move |answer: Result<S, AskError>| match answer {
            Ok(answer) => self.reply(translate(answer)),
            Err(error) => self.fail(error),
        })
    }
}

impl<R> ReplyTo<R> {
    /// Answers. An asker that gave up is not told, and that is no error.
    pub fn reply(mut self, answer: R) {
        self.settle(Ok(answer));
    }

    /// Tells the asker that there will be no answer, and why: for those who forward requests.
    pub fn fail(mut self, error: AskError) {
        self.settle(Err(error));
    }

    /// Whether the asker has gone, so that costly work for the answer alone can be saved.
    pub fn is_abandoned(&self) -> bool {
        match &self.0 {
            Some(Way::Channel(sender)) => sender.is_closed(),
            Some(Way::Callback(_)) => false,
            None => true,
        }
    }

    fn settle(&mut self, answer: Result<R, AskError>) {
        match self.0.take() {
            // The asker may have given up; the message was handled all the same.
            Some(Way::Channel(sender)) => drop(sender.send(answer)),
            // May run while a panic unwinds, where a second one would end the process.
            Some(Way::Callback(answered)) => {
                if let Err(panic) = guarded(move || answered(answer)) {
                    tracing::error!(panic, "callback of a reply panicked");
                }
            }
            None => {}
        }
    }
}

impl<R> Drop for ReplyTo<R> {
    fn drop(&mut self) {
        self.settle(Err(AskError::Dropped));
    }
}

impl<R> fmt::Debug for ReplyTo<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReplyTo")
    }
}

/// The waiting side of [`ReplyTo::channel`].
#[derive(Debug)]
pub struct PendingReply<R>(oneshot::Receiver<Result<R, AskError>>);

impl<R> PendingReply<R> {
    /// The answer if it is there already. `None` while it may still come.
    pub fn try_take(&mut self) -> Option<Result<R, AskError>> {
        match self.0.try_recv() {
            Ok(answer) => Some(answer),
            Err(oneshot::error::TryRecvError::Empty) => None,
            Err(oneshot::error::TryRecvError::Closed) => Some(Err(AskError::Dropped)),
        }
    }
}

impl<R> Future for PendingReply<R> {
    type Output = Result<R, AskError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx).map(|answer| answer.unwrap_or(Err(AskError::Dropped)))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_mapped_reply_carries_answers_failures_and_drops_through() {
        let (reply, mut pending) = ReplyTo::<String>::channel();
        reply.map(|n: u32| n.to_string()).reply(7);
        assert_eq!(pending.try_take(), Some(Ok("7".to_owned())));

        let (reply, mut pending) = ReplyTo::<String>::channel();
        reply.map(|n: u32| n.to_string()).fail(AskError::LinkDown);
        assert_eq!(pending.try_take(), Some(Err(AskError::LinkDown)));

        let (reply, mut pending) = ReplyTo::<String>::channel();
        assert_eq!(pending.try_take(), None);
        drop(reply.map(|n: u32| n.to_string()));
        assert_eq!(pending.try_take(), Some(Err(AskError::Dropped)));
    }

    #[test]
    fn a_reply_knows_that_its_asker_has_gone() {
        let (reply, pending) = ReplyTo::<u32>::channel();
        assert!(!reply.is_abandoned());
        drop(pending);
        assert!(reply.is_abandoned());
    }
}
