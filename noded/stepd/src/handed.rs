//! Descriptors that commands handed over, on their way from the door to the launcher, which makes them the tasks' standard files.
//!
//! They belong to users: `stepd` runs as root, and must never read, write, examine or wait on one. A pipe without a reader, a
//! file on an unreachable server, or a file system served by the user would block the job's manager. They are kept here, borrowed
//! for one `sendmsg`, and dropped; even closing is done by another thread ([`garrick_transport::handed`]). The door accepts them
//! only from the job's owner, as whom the tasks run.
//!
//! A stream ends for its reader when the last copy is closed, so a descriptor is dropped as soon as it is not needed: with the
//! last task that it was passed for, when the step starts without it, or with the conversation.

use garrick_model::{ids::StepId, messages::step::StepMgrToCommand};
use garrick_run::stepmgr::ClientId;
use garrick_transport::{HandedFd, close_together};
use std::{
    cell::RefCell,
    collections::HashMap,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    rc::Rc,
};

/// A descriptor that is sent to the launcher with a message.
#[derive(Debug)]
pub enum TaskFd {
    /// Made here for one task.
    Own(OwnedFd),
    /// A command's.
    Handed(Rc<HandedFd>),
}

impl AsFd for TaskFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Own(fd) => fd.as_fd(),
            Self::Handed(fd) => fd.as_fd(),
        }
    }
}

/// Closes descriptors that went to the launcher: one wake-up for all of a task, and of tasks that start together.
pub fn close(fds: Vec<TaskFd>) {
    let handed = fds.into_iter().filter_map(|fd| match fd {
        TaskFd::Handed(fd) => Rc::into_inner(fd),
        TaskFd::Own(_) => None,
    });
    close_together(handed.collect());
}

/// What is held for the conversations of this `stepd`. Lives on its thread.
#[derive(Debug)]
pub struct HandedStreams<F = HandedFd>(RefCell<Held<F>>);

#[derive(Debug)]
struct Held<F> {
    clients: HashMap<ClientId, Streams<F>>,
    steps: HashMap<StepId, ClientId>,
}

/// What came with one command's request: standard input, output, errors.
#[derive(Debug)]
struct Streams<F> {
    step: Option<StepId>,
    fds: [Option<Rc<F>>; 3],
    passed: [u32; 3],
    /// Tasks that get them, once the step has started.
    tasks: Option<u32>,
}

impl<F> Default for HandedStreams<F> {
    fn default() -> Self {
        Self(RefCell::new(Held { clients: HashMap::new(), steps: HashMap::new() }))
    }
}

impl<F> Streams<F> {
    /// Drops what no further task needs; false when nothing is left.
    fn trim(&mut self) -> bool {
        if let Some(tasks) = self.tasks {
            for (fd, passed) in self.fds.iter_mut().zip(self.passed) {
                if passed >= tasks {
                    *fd = None;
                }
            }
        }
        self.fds.iter().any(Option::is_some)
    }
}

impl<F> HandedStreams<F> {
    /// Keeps the descriptors of a request that says which of 0, 1 and 2 it handed over. If the two do not match (a relay passes
    /// none on, and the door may have refused them), none counts as handed over: the step's streams are relayed.
    pub fn keep(&self, client: ClientId, descriptors: &mut [bool; 3], came: Vec<F>) {
        if descriptors.iter().filter(|said| **said).count() != came.len() {
            *descriptors = [false; 3];
        }
        if !descriptors.contains(&true) {
            return;
        }
        let mut came = came.into_iter().map(Rc::new);
        let fds = descriptors.map(|said| if said { came.next() } else { None });
        self.0.borrow_mut().clients.insert(client, Streams { step: None, fds, passed: [0; 3], tasks: None });
    }

    /// What the step manager tells a command says which step its descriptors are for, and which of them are used.
    pub fn told(&self, client: ClientId, message: &StepMgrToCommand) {
        let mut held = self.0.borrow_mut();
        let Held { clients, steps } = &mut *held;
        let Some(streams) = clients.get_mut(&client) else { return };
        match message {
            StepMgrToCommand::Accepted { step, .. } => {
                streams.step = Some(*step);
                steps.insert(*step, client);
            }
            StepMgrToCommand::Started(layout) => {
                streams.tasks = Some(layout.ranks.iter().map(|ranks| ranks.len() as u32).sum());
                for (fd, used) in streams.fds.iter_mut().zip(layout.handed) {
                    if !used {
                        *fd = None;
                    }
                }
                if !streams.trim() {
                    drop(held);
                    self.forget(client);
                }
            }
            _ => {}
        }
    }

    /// One of a step's descriptors, for one task.
    pub fn pass(&self, step: StepId, number: u8) -> io::Result<Rc<F>> {
        let gone = || io::Error::new(io::ErrorKind::BrokenPipe, "the command that handed the descriptor over is gone");
        let mut held = self.0.borrow_mut();
        let client = *held.steps.get(&step).ok_or_else(gone)?;
        let streams = held.clients.get_mut(&client).ok_or_else(gone)?;
        let at = usize::from(number);
        let fd = streams.fds.get(at).cloned().flatten().ok_or_else(gone)?;
        streams.passed[at] += 1;
        if !streams.trim() {
            drop(held);
            self.forget(client);
        }
        Ok(fd)
    }

    /// The conversation is over.
    pub fn forget(&self, client: ClientId) {
        let mut held = self.0.borrow_mut();
        if let Some(step) = held.clients.remove(&client).and_then(|streams| streams.step) {
            held.steps.remove(&step);
        }
    }

    /// All conversations are.
    pub fn forget_all(&self) {
        let mut held = self.0.borrow_mut();
        held.clients.clear();
        held.steps.clear();
    }
}

#[cfg(test)]
#[path = "handed_test.rs"]
mod tests;
