//! Addresses by name, for code that was not given an address.
//!
//! Written when actors start and end; read by `System::find`. An entry is copied and the map's guard released at once.

use std::sync::Arc;

use dashmap::{DashMap, Entry};

use crate::{
    address::Address,
    mailbox::{Inbox, Mailbox},
    message::Message,
    path::ActorPath,
};

/// Why an actor was not started.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    /// Another actor has the path, or had it and has not quite ended: wait for its `Stopped` event.
    #[error("actor {0} is already running")]
    PathTaken(ActorPath),
    /// The system (or the parent) is ending.
    #[error("actor {0} cannot start: its parent is ending")]
    Ending(ActorPath),
}

#[derive(Default)]
pub(crate) struct Registry {
    inboxes: DashMap<ActorPath, Arc<dyn Inbox>>,
}

impl Registry {
    pub(crate) fn add(&self, inbox: Arc<dyn Inbox>) -> Result<(), StartError> {
        let path = inbox.path().clone();
        match self.inboxes.entry(path) {
            Entry::Occupied(taken) => Err(StartError::PathTaken(taken.key().clone())),
            Entry::Vacant(free) => {
                free.insert(inbox);
                Ok(())
            }
        }
    }

    /// Frees the path, if it still belongs to this mailbox.
    pub(crate) fn remove<M: Message>(&self, mailbox: &Arc<Mailbox<M>>) {
        let mine = Arc::as_ptr(mailbox).cast::<()>();
        self.inboxes.remove_if(mailbox.path(), |_, inbox| Arc::as_ptr(inbox).cast::<()>() == mine);
    }

    pub(crate) fn find<M: Message>(&self, path: &ActorPath) -> Option<Address<M>> {
        let inbox = Arc::clone(&*self.inboxes.get(path)?);
        inbox.as_any().downcast::<Mailbox<M>>().ok().map(Address::near)
    }

    pub(crate) fn contains(&self, path: &ActorPath) -> bool {
        self.inboxes.contains_key(path)
    }

    pub(crate) fn len(&self) -> usize {
        self.inboxes.len()
    }

    /// Calls `look` with each path and how many messages wait there.
    pub(crate) fn mailboxes(&self, mut look: impl FnMut(&ActorPath, usize)) {
        for entry in &self.inboxes {
            look(entry.key(), entry.value().waiting());
        }
    }

    /// Paths at or below `prefix`, sorted.
    pub(crate) fn paths(&self, prefix: &str) -> Vec<ActorPath> {
        let mut paths: Vec<ActorPath> =
            self.inboxes.iter().filter(|entry| entry.key().is_under(prefix)).map(|entry| entry.key().clone()).collect();
        paths.sort_unstable();
        paths
    }
}
