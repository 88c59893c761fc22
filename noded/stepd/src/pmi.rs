//! The sockets over which tasks speak PMI: cuts what they write into requests for the shepherd, and writes its answers. A task is
//! read again only when it has its answer.

use crate::{
    launching,
    streams::{read_later, watched, write_all},
};
use garrick_run::{
    pmi::{Reader, Request},
    shepherd::{ShepherdInput, ShepherdMsg},
};
use garrick_runtime::{Address, TraceContext};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use std::{collections::HashMap, io, os::fd::OwnedFd};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// The sockets of all tasks, by token.
#[derive(Default)]
pub struct PmiSockets(HashMap<u64, UnboundedSender<Vec<u8>>>);

impl PmiSockets {
    /// A socket whose other end goes to the task.
    pub fn open(&mut self, token: u64, shepherd: &Address<ShepherdMsg>) -> io::Result<OwnedFd> {
        let (ours, theirs) = socketpair(AddressFamily::Unix, SockType::Stream, None, SockFlag::SOCK_CLOEXEC)?;
        let (sender, answers) = unbounded_channel();
        self.0.insert(token, sender);
        actix_rt::spawn(serve(token, ours, answers, shepherd.clone()));
        Ok(theirs)
    }

    /// Sends an answer. A task that is gone needs none.
    pub fn answer(&self, token: u64, data: Vec<u8>) {
        if let Some(sender) = self.0.get(&token) {
            let _ = sender.send(data);
        }
    }

    /// Ends the conversation with a task.
    pub fn close(&mut self, token: u64) {
        self.0.remove(&token);
    }
}

/// Ends with the task, or when its socket is closed here.
async fn serve(token: u64, ours: OwnedFd, mut answers: UnboundedReceiver<Vec<u8>>, shepherd: Address<ShepherdMsg>) {
    let Ok(watch) = watched(ours) else { return };
    let mut reader = Reader::default();
    loop {
        let asked = loop {
            if let Some(asked) = reader.next() {
                break asked;
            }
            let bytes = tokio::select! {
                bytes = read_later(watch.clone()) => bytes,
                // Closed: nothing is answered that was not asked for.
                _ = answers.recv() => return,
            };
            if bytes.is_empty() {
                return;
            }
            reader.push(&bytes);
        };
        let last = matches!(asked.request, Request::Abort(_) | Request::Malformed(_));
        launching::tell(&shepherd, TraceContext::root(), ShepherdInput::Pmi { token, asked });
        if last {
            return;
        }
        let Some(answer) = answers.recv().await else { return };
        if !write_all(watch.clone(), &answer).await {
            return;
        }
    }
}
