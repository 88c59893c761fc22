//! The launcher's loop.

use super::{
    environment::Environment,
    orders::{self, Refusal},
};
use crate::kernel::{
    files::open_standard_file,
    proc_tree::kill_descendants,
    reap,
    signals::{self, SignalDescriptor},
    spawn::{Spawned, Spawner},
};
use garrick_frame::{FdChannel, FdError};
use garrick_model::messages::launcher::{FileMode, FromLauncher, SpawnTask, ToLauncher};
use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::signal::Signal,
};
use std::{
    collections::{BTreeMap, VecDeque},
    fs::File,
    io::{self, Write},
    os::fd::{AsFd, OwnedFd},
    path::Path,
    time::Duration,
};

/// Why a launcher ended before it was told to. Its tasks are killed by then.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// `stepd` is gone, or speaks nonsense.
    #[error("stepd: {0}")]
    Channel(#[from] FdError),
    /// A system call that has no reason to fail.
    #[error("{operation}: {cause}")]
    Call {
        /// Which.
        operation: &'static str,
        /// Why.
        #[source]
        cause: io::Error,
    },
    /// No memory for children.
    #[error(transparent)]
    Spawner(#[from] crate::kernel::spawn::SpawnError),
}

fn call<E: Into<io::Error>>(operation: &'static str) -> impl FnOnce(E) -> ServiceError {
    move |e| ServiceError::Call { operation, cause: e.into() }
}

/// While this many answers wait to be sent, no orders are read: a `stepd` that does not read cannot make us keep more.
const MOST_ANSWERS: usize = 4096;

/// For processes to go once they were sent SIGKILL. Those in uninterruptible waits stay for `stepd`'s cgroup, or the
/// agent's clean-up.
const KILL_LIMIT: Duration = Duration::from_secs(10);

/// Serves until told to finish and no task is left. Call it with one thread only. When it fails, everything below this
/// process is killed first.
pub fn serve(channel: FdChannel) -> Result<(), ServiceError> {
    let mut service = Service::new(channel)?;
    let outcome = service.run();
    if outcome.is_err() {
        service.kill_everything();
    }
    outcome
}

struct Service {
    channel: FdChannel,
    children: SignalDescriptor,
    spawner: Spawner,
    null: OwnedFd,
    environments: BTreeMap<u32, Environment>,
    tasks: BTreeMap<u64, Spawned>,
    tokens: BTreeMap<u32, u64>,
    answers: VecDeque<FromLauncher>,
    finishing: bool,
}

impl Service {
    fn new(channel: FdChannel) -> Result<Self, ServiceError> {
        let null = File::options().read(true).write(true).open("/dev/null").map_err(call("open /dev/null"))?;
        Ok(Self {
            channel,
            children: SignalDescriptor::new(&[Signal::SIGCHLD]).map_err(call("signalfd"))?,
            spawner: Spawner::new()?,
            null: null.into(),
            environments: BTreeMap::new(),
            tasks: BTreeMap::new(),
            tokens: BTreeMap::new(),
            answers: VecDeque::new(),
            finishing: false,
        })
    }

    fn run(&mut self) -> Result<(), ServiceError> {
        loop {
            self.send_answers()?;
            if self.finishing && self.tasks.is_empty() && self.answers.is_empty() && !self.channel.wants_write() {
                return Ok(());
            }
            let mut wanted = PollFlags::empty();
            if self.answers.len() < MOST_ANSWERS {
                wanted |= PollFlags::POLLIN;
            }
            if self.channel.wants_write() || !self.answers.is_empty() {
                wanted |= PollFlags::POLLOUT;
            }
            let (orders, ended) = {
                let mut fds =
                    [PollFd::new(self.channel.as_fd(), wanted), PollFd::new(self.children.as_fd(), PollFlags::POLLIN)];
                match poll(&mut fds, PollTimeout::NONE) {
                    Ok(_) | Err(Errno::EINTR) => {}
                    Err(e) => return Err(call("poll")(e)),
                }
                // Anything but room to write has to be read: data, or the end.
                let readable = |f: &PollFd<'_>| f.revents().is_some_and(|r| r.intersects(!PollFlags::POLLOUT));
                (readable(&fds[0]), readable(&fds[1]))
            };
            if ended {
                self.reap()?;
            }
            if orders {
                self.read_orders()?;
            }
        }
    }

    fn send_answers(&mut self) -> Result<(), ServiceError> {
        if !self.channel.flush()? {
            return Ok(());
        }
        while let Some(answer) = self.answers.front() {
            match self.channel.try_send(answer, &[]) {
                Ok(()) => {
                    self.answers.pop_front();
                }
                Err(FdError::WouldBlock) => return Ok(()),
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }

    fn read_orders(&mut self) -> Result<(), ServiceError> {
        while self.answers.len() < MOST_ANSWERS {
            let Some((order, passed)) = self.channel.try_recv::<ToLauncher>()? else { break };
            self.obey(order, &passed);
            // A long row of orders must not hold up what the first ones have to say.
            self.send_answers()?;
        }
        Ok(())
    }

    fn obey(&mut self, order: ToLauncher, passed: &[OwnedFd]) {
        match order {
            ToLauncher::SetEnvironment { id, entries } => {
                // A variable that cannot be given to a program: those who name the set are refused.
                match Environment::new(&entries) {
                    Ok(environment) => self.environments.insert(id, environment),
                    Err(_) => self.environments.remove(&id),
                };
            }
            ToLauncher::DropEnvironment { id } => {
                self.environments.remove(&id);
            }
            ToLauncher::Spawn(task) => {
                let answer = match self.launch(&task, passed) {
                    Ok(pid) => FromLauncher::Spawned { token: task.token, pid },
                    Err(Refusal { stage, subject, errno }) => {
                        FromLauncher::SpawnFailed { token: task.token, stage, subject, errno }
                    }
                };
                self.answers.push_back(answer);
            }
            ToLauncher::Signal { token, signal, group } => {
                // A task that ended meanwhile has said so, or will.
                if let Some(task) = self.tasks.get(&token) {
                    let _ = if group {
                        signals::send_group(task.pid, signal)
                    } else {
                        signals::send(task.pidfd.as_fd(), signal)
                    };
                }
            }
            ToLauncher::Finish => self.finishing = true,
            ToLauncher::AppendText { path, text } => {
                // Not reported, as the message says: it is itself a report, for a file the user may have taken away.
                let _ = open_standard_file(Path::new(&path), FileMode::Append).and_then(|mut f| f.write_all(&text));
            }
        }
    }

    fn launch(&mut self, task: &SpawnTask, passed: &[OwnedFd]) -> Result<u32, Refusal> {
        if self.tasks.contains_key(&task.token) {
            return Err(Refusal::new("token", task.token.to_string(), libc::EEXIST));
        }
        let Some(environment) = self.environments.get(&task.environment) else {
            return Err(Refusal::new("environment", task.environment.to_string(), libc::ENOENT));
        };
        let spawned = orders::launch(task, environment, passed, &self.null, &mut self.spawner)?;
        let pid = spawned.pid;
        self.tokens.insert(pid, task.token);
        self.tasks.insert(task.token, spawned);
        Ok(pid)
    }

    fn reap(&mut self) -> Result<(), ServiceError> {
        self.children.drain().map_err(call("signalfd"))?;
        while let Some(pid) = reap::peek_any().map_err(call("waitid"))? {
            let Some(token) = self.tokens.remove(&pid) else {
                // An orphan of some task.
                reap::reap_pid(pid).map_err(call("waitid"))?;
                continue;
            };
            // Not reaped yet, so the group is still the task's. Whoever may not be killed by this user is `stepd`'s to kill.
            let _ = signals::send_group(pid, libc::SIGKILL);
            let ended = reap::reap_pid(pid).map_err(call("waitid"))?;
            self.tasks.remove(&token);
            self.answers.push_back(FromLauncher::Exited { token, status: ended.status, usage: ended.usage });
        }
        Ok(())
    }

    fn kill_everything(&self) {
        // What cannot be killed from here has an owner above: `stepd`'s cgroup, the agent's clean-up.
        let _ = kill_descendants(std::process::id(), KILL_LIMIT);
    }
}
