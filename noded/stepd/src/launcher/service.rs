//! The launcher's loop.

use super::{
    connection::{Connection, Listener},
    ends::Ends,
    lines::{Lines, TELL_WITHIN, Waiting},
    orders::Maker,
    packs::{COPY_AFTER, Capture, Packs, Told},
    reaping::Draining,
    settings::{Setting, Settings},
    unasked::Unasked,
};
use garrick_frame::{FdChannel, FdError};
use garrick_kernel::{
    files::open_standard_file,
    proc_tree::kill_descendants,
    sampling::OwnIo,
    signals::{self, Delivery, SignalDescriptor},
};
use garrick_model::{
    messages::{
        launch_failure::LaunchFailure,
        launcher::{FdSource, FileMode, FromLauncher, SpawnTask, TaskLabel, ToLauncher},
    },
    usage::TaskUsage,
};
use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::signal::Signal,
};
use std::{
    collections::{HashMap, VecDeque},
    io::{self, Write},
    os::fd::{AsFd, OwnedFd},
    path::Path,
    rc::Rc,
    time::{Duration, Instant},
};

/// Why a launcher ended before it was told to. Its tasks are killed by then.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// `stepd` is gone, or speaks nonsense, and no other can come.
    #[error("stepd: {0}")]
    Channel(#[from] FdError),
    /// `stepd` is gone, and so is the file at which another would find this launcher.
    #[error("the run is over")]
    RunOver,
    /// `stepd` is gone, and no other came in time.
    #[error("no stepd took this launcher over")]
    NotAdopted,
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
    Spawner(#[from] garrick_kernel::spawn::SpawnError),
}

pub(super) fn call<E: Into<io::Error>>(operation: &'static str) -> impl FnOnce(E) -> ServiceError {
    move |e| ServiceError::Call { operation, cause: e.into() }
}

/// Orders obeyed before ends are looked for and answers sent: a long row of them must not hold up what the first ones have
/// to say.
const ORDERS_A_TURN: usize = 8;

/// For processes to go once they were sent SIGKILL. Those in uninterruptible waits stay for `stepd`'s cgroup, or the
/// agent's clean-up.
const KILL_LIMIT: Duration = Duration::from_secs(10);

/// How a launcher is told to serve.
#[derive(Debug)]
pub struct Serving {
    /// To `stepd`.
    pub channel: FdChannel,
    /// Where another finds it; without one, the launcher ends with its `stepd`.
    pub listener: Option<Listener>,
    /// It is the run's first.
    pub first: bool,
}

/// Serves until told to finish and no task is left. Call it with one thread only. When it fails, everything below this
/// process is killed first.
pub fn serve(serving: Serving) -> Result<(), ServiceError> {
    let mut service = Service::new(serving)?;
    let outcome = service.run();
    if outcome.is_err() {
        // What cannot be killed from here has an owner above: `stepd`'s cgroup, the agent's clean-up.
        let _ = kill_descendants(std::process::id(), KILL_LIMIT);
        service.save_output();
    }
    outcome
}

/// A task that runs.
pub(super) struct Task {
    pub(super) pid: u32,
    pub(super) label: TaskLabel,
    pub(super) error_path: Option<String>,
    pub(super) capture: Option<Box<Capture>>,
    /// What it takes to start it once more, should its process not get as far as its program.
    pub(super) again: Option<Box<Again>>,
    /// The first signal it was sent that is to end it.
    pub(super) ended_by: Option<u8>,
    /// The file of its output, where nobody asked for it.
    pub(super) unasked: Option<Box<str>>,
}

/// See [`Task::again`].
pub(super) struct Again {
    order: SpawnTask,
    setting: Rc<Setting>,
}

/// The launcher. What becomes of its children is in [`super::reaping`].
pub(super) struct Service {
    pub(super) connection: Connection,
    pub(super) children: SignalDescriptor,
    pub(super) maker: Maker,
    settings: Settings,
    pub(super) packs: Packs,
    pub(super) unasked: Unasked,
    pub(super) tasks: HashMap<u64, Task>,
    pub(super) tokens: HashMap<u32, u64>,
    pub(super) lines: Lines,
    /// Something is to be told at once, or by then.
    urgent: bool,
    tell_by: Option<Instant>,
    pub(super) draining: VecDeque<Draining>,
    /// Running tasks that write to packs, and when what they wrote is copied next.
    pub(super) captured: usize,
    pub(super) copy_at: Option<Instant>,
    pub(super) ends: Ends,
    /// What its children read and write, where that may be known.
    pub(super) io: Option<OwnIo>,
    /// Killed process groups with members that are not gone.
    pub(super) dying: VecDeque<u32>,
    /// Failures that nobody was there to be told of.
    pub(super) untold: Vec<Told>,
    pub(super) first: bool,
    finishing: bool,
}

impl Service {
    fn new(serving: Serving) -> Result<Self, ServiceError> {
        Ok(Self {
            connection: Connection::new(serving.channel, serving.listener)?,
            children: SignalDescriptor::new(&[Signal::SIGCHLD]).map_err(call("signalfd"))?,
            maker: Maker::new()?,
            settings: Settings::default(),
            packs: Packs::default(),
            unasked: Unasked::default(),
            tasks: HashMap::new(),
            tokens: HashMap::new(),
            lines: Lines::default(),
            urgent: false,
            tell_by: None,
            draining: VecDeque::new(),
            captured: 0,
            copy_at: None,
            ends: Ends::default(),
            io: None,
            dying: VecDeque::new(),
            untold: Vec::new(),
            first: serving.first,
            finishing: false,
        })
    }

    fn run(&mut self) -> Result<(), ServiceError> {
        loop {
            self.flush_in_time()?;
            if self.finishing && self.tasks.is_empty() && self.draining.is_empty() {
                let told = self.packs.close_all();
                self.tell_all(told);
                self.flush()?;
                if self.connection.channel().is_none_or(|c| !c.wants_write()) {
                    return Ok(());
                }
            }
            let (ended, readable) = self.wait()?;
            if ended {
                self.reap()?;
            }
            if readable || self.connection.has_orders() {
                self.read_orders()?;
            }
            self.give_back_late();
            self.keep_packs()?;
            self.connection.look(Instant::now())?;
        }
    }

    /// Waits for children, `stepd`, or the time at which something is due: whether a child ended, and whether there is
    /// something to read.
    fn wait(&self) -> Result<(bool, bool), ServiceError> {
        let timeout =
            if self.connection.has_orders() || !self.draining.is_empty() { PollTimeout::ZERO } else { self.timeout() };
        let children = PollFd::new(self.children.as_fd(), PollFlags::POLLIN);
        // Anything but room to write has to be read: data, or the end.
        let readable = |f: &PollFd<'_>| f.revents().is_some_and(|r| r.intersects(!PollFlags::POLLOUT));
        let polled = |fds: &mut [PollFd<'_>]| match poll(fds, timeout) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(e) => Err(call("poll")(e)),
        };
        match self.connection.wanted(self.tell_by.is_some() && !self.urgent) {
            Some((socket, wanted)) => {
                let mut fds = [children, PollFd::new(socket, wanted)];
                polled(&mut fds)?;
                Ok((readable(&fds[0]), readable(&fds[1])))
            }
            None => {
                let mut fds = [children];
                polled(&mut fds)?;
                Ok((readable(&fds[0]), false))
            }
        }
    }

    fn timeout(&self) -> PollTimeout {
        // Nearly always nothing is: no look at the clock then.
        let lines = self.tell_by.is_none() && self.lines.is_empty();
        if lines && self.copy_at.is_none() && self.packs.is_idle() && self.connection.is_here() {
            return PollTimeout::NONE;
        }
        let now = Instant::now();
        let due = [self.tell_by, self.lines.due(), self.copy_at, self.packs.due(), self.connection.due(now)];
        let due = due.into_iter().flatten().min();
        due.map_or(PollTimeout::NONE, |due| {
            // Not a moment early, or it would be looked for again and again.
            let millis = due.saturating_duration_since(now).as_millis() + 1;
            PollTimeout::try_from(i32::try_from(millis).unwrap_or(i32::MAX)).unwrap_or(PollTimeout::MAX)
        })
    }

    pub(super) fn answer(&mut self, answer: &FromLauncher) {
        self.urgent = true;
        self.answer_soon(answer);
    }

    /// The same, in no hurry.
    pub(super) fn answer_soon(&mut self, answer: &FromLauncher) {
        self.tell_by.get_or_insert_with(|| Instant::now() + TELL_WITHIN);
        // A channel that broke is found out by the next flush; nothing here is larger than a frame.
        if let Some(channel) = self.connection.channel() {
            let _ = channel.queue(answer);
        }
    }

    fn flush_in_time(&mut self) -> Result<(), ServiceError> {
        let wanted = self.urgent || self.finishing || self.tell_by.is_none_or(|by| by <= Instant::now());
        if wanted { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), ServiceError> {
        (self.urgent, self.tell_by) = (false, None);
        match self.connection.channel().map(FdChannel::flush) {
            None | Some(Ok(_)) => Ok(()),
            Some(Err(e)) => self.lost(e),
        }
    }

    /// `stepd` is gone: what runs goes on, for another. One that was to finish has nobody to come.
    fn lost(&mut self, e: FdError) -> Result<(), ServiceError> {
        if self.connection.lost(Instant::now()) && !self.finishing {
            self.settings = Settings::default();
            return Ok(());
        }
        Err(e.into())
    }

    fn read_orders(&mut self) -> Result<(), ServiceError> {
        for _ in 0..ORDERS_A_TURN {
            if !self.connection.takes_orders() {
                break;
            }
            let Some(channel) = self.connection.channel() else { break };
            match channel.try_recv::<ToLauncher>() {
                Ok(Some((order, passed))) => self.obey(order, &passed),
                Ok(None) => return Ok(()),
                Err(e) => return self.lost(e),
            }
        }
        if self.connection.channel().is_none() {
            self.connection.accept()?;
        }
        Ok(())
    }

    fn obey(&mut self, order: ToLauncher, passed: &[OwnedFd]) {
        match order {
            ToLauncher::SetEnvironment { id, over, entries } => self.settings.set_environment(id, over, &entries),
            ToLauncher::DropEnvironment { id } => self.settings.drop_environment(id),
            ToLauncher::SetSetting { id, setting } => self.settings.set(id, setting),
            ToLauncher::DropSetting { id } => self.settings.drop_setting(id),
            ToLauncher::Spawn(task) => self.spawn_or_wait(*task, passed),
            ToLauncher::Signal { token, signal, group } => {
                if self.lines.take(token).is_some() {
                    return self.answer(&FromLauncher::NotStarted { token });
                }
                // A task that ended meanwhile has said so, or will. One that is here is not reaped, so the number is its.
                if let Some(task) = self.tasks.get_mut(&token) {
                    if matches!(signal, libc::SIGTERM | libc::SIGKILL) {
                        task.ended_by.get_or_insert(signal as u8);
                    }
                    // One that is on its way to its program may not have its group yet.
                    let there = group && signals::send_group(task.pid, signal).is_ok_and(|d| d == Delivery::Sent);
                    if !there {
                        let _ = signals::send_child(task.pid, signal);
                    }
                }
            }
            ToLauncher::Finish => {
                self.finishing = true;
                let waiting = self.lines.take_all();
                self.give_back(waiting);
            }
            ToLauncher::AppendText { path, text } => {
                // Not reported, as the message says: it is itself a report, for a file the user may have taken away.
                let _ = open_standard_file(Path::new(&path), FileMode::Append).and_then(|mut f| f.write_all(&text));
            }
            ToLauncher::Count => {
                self.io = passed.first().and_then(|fd| fd.try_clone().ok()).map(OwnIo::new);
            }
            ToLauncher::Adopt => {
                // They are not among what is here, so they never started.
                self.lines.take_all();
                self.tell_what_is_here();
            }
        }
    }

    /// Starts a task, or lines it up.
    fn spawn_or_wait(&mut self, task: SpawnTask, passed: &[OwnedFd]) {
        let (token, label) = (task.token, task.label);
        let setting = match self.settings.get(task.setting) {
            Ok(setting) => setting,
            Err(failure) => return self.spawn_failed(token, label, failure),
        };
        let waiting = match task.after.filter(|_| passed.is_empty() && !self.finishing) {
            Some(after) if self.lines.was_taken(after) => {
                // Whose place it was to get is not known any more.
                self.lines.note_taken(token);
                return self.answer(&FromLauncher::NotStarted { token });
            }
            Some(after) => self.lines.join(after, (task, setting), self.tasks.contains_key(&after)),
            None => Some((task, setting)),
        };
        if let Some((task, setting)) = waiting {
            self.spawn(task, setting, passed);
        }
    }

    /// Starts what was to start after a task that is over. True: there is enough left in that line, and the others.
    pub(super) fn go_on_after(&mut self, mut over: u64) -> bool {
        while let Some((task, setting)) = self.lines.next(over) {
            over = task.token;
            self.spawn(task, setting, &[]);
            if self.tasks.contains_key(&over) {
                return self.lines.are_long();
            }
        }
        false
    }

    fn give_back_late(&mut self) {
        if !self.lines.is_empty() {
            let late = self.lines.take_late(Instant::now());
            self.give_back(late);
        }
    }

    fn give_back(&mut self, waiting: Vec<Waiting>) {
        for (task, _) in waiting {
            self.answer(&FromLauncher::NotStarted { token: task.token });
        }
    }

    fn spawn(&mut self, task: SpawnTask, setting: Rc<Setting>, passed: &[OwnedFd]) {
        let (token, label) = (task.token, task.label);
        match self.try_spawn(task, setting, passed) {
            Ok(Some(pid)) => self.answer(&FromLauncher::Spawned { token, pid }),
            Ok(None) => {}
            Err(failure) => self.spawn_failed(token, label, failure),
        }
    }

    fn spawn_failed(&mut self, token: u64, label: TaskLabel, failure: LaunchFailure) {
        self.remember(token, label, failure.status(), TaskUsage::default());
        self.answer(&FromLauncher::SpawnFailed { token, failure });
    }

    /// The process, if `stepd` wants to hear of it.
    fn try_spawn(
        &mut self,
        task: SpawnTask,
        setting: Rc<Setting>,
        passed: &[OwnedFd],
    ) -> Result<Option<u32>, LaunchFailure> {
        if self.tasks.contains_key(&task.token) {
            return Err(LaunchFailure::new("token", task.token.to_string(), libc::EEXIST));
        }
        self.maker.take_mask(setting.umask);
        let capture = match task.pack {
            None => None,
            Some(_) => self.packs.begin(&task, Instant::now())?,
        };
        // Who wants to hear of a start wants to hear that it failed; and descriptors cannot be kept for a second time.
        let ahead = task.quiet && passed.is_empty();
        let unasked = unasked_output(&task);
        if let Some(path) = &unasked {
            self.unasked.begin(path, task.label.attempt > 0);
        }
        let launched = self.maker.launch(&task, &setting, passed, capture.as_deref(), ahead);
        if let Some(path) = &unasked {
            self.unasked.opened(path);
        }
        let pid = match launched {
            Ok(pid) => pid,
            Err(failure) => {
                self.end_output(unasked.as_deref());
                self.refuse_in_pack(capture.as_deref(), &failure);
                return Err(failure);
            }
        };
        if capture.is_some() {
            self.captured += 1;
            self.copy_at.get_or_insert_with(|| Instant::now() + COPY_AFTER);
        }
        let (token, label, quiet) = (task.token, task.label, task.quiet);
        let error_file = if task.stdio[2] == FdSource::SameAsStdout { &task.stdio[1] } else { &task.stdio[2] };
        let error_path = match error_file {
            FdSource::File { path, .. } => Some(path.clone()),
            _ => None,
        };
        let again = ahead.then(|| Box::new(Again { order: task, setting }));
        self.know(pid, token);
        self.tasks.insert(token, Task { pid, label, error_path, capture, again, ended_by: None, unasked });
        Ok((!quiet).then_some(pid))
    }

    fn know(&mut self, pid: u32, token: u64) {
        self.tokens.insert(pid, token);
        // Whoever had the number before is gone.
        self.dying.retain(|other| *other != pid);
    }

    /// A task whose process ended before its program was there: waited for this time, which tells why, or starts it.
    pub(super) fn spawn_again(&mut self, mut task: Task, again: Box<Again>) {
        let Again { order, setting } = *again;
        self.maker.take_mask(setting.umask);
        match self.maker.launch(&order, &setting, &[], task.capture.as_deref(), false) {
            Ok(pid) => {
                task.pid = pid;
                self.know(pid, order.token);
                self.tasks.insert(order.token, task);
            }
            Err(failure) => {
                if task.capture.is_some() {
                    self.captured -= 1;
                }
                self.end_output(task.unasked.as_deref());
                self.refuse_in_pack(task.capture.as_deref(), &failure);
                self.spawn_failed(order.token, task.label, failure);
                self.go_on_after(order.token);
            }
        }
    }

    /// A task is over, or could not be started: its output, where nobody asked for a file of it.
    pub(super) fn end_output(&mut self, unasked: Option<&str>) {
        if let Some(path) = unasked {
            self.unasked.end(path);
        }
    }

    fn refuse_in_pack(&mut self, capture: Option<&Capture>, failure: &LaunchFailure) {
        if let Some(capture) = capture
            && let Err(e) = self.packs.refuse(capture, failure, Instant::now())
        {
            self.tell((capture.label(), e.to_string()));
        }
    }
}

/// The file of a task's output, where it goes if nothing is in it.
fn unasked_output(task: &SpawnTask) -> Option<Box<str>> {
    match &task.stdio[1] {
        FdSource::File { path, .. } if task.unasked_output => Some(path.as_str().into()),
        _ => None,
    }
}
