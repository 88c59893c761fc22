//! Watches a job: a stream of its views at a daemon's door, opened again when the daemon goes away, together with the signals of
//! the waiting process.

use super::{
    allocation::{Allocation, Progress, Speaker},
    startup,
};
use crate::{options::typed::Typed, output::Console};
use garrick_asking::{
    cluster::{Cluster, ClusterError, Daemon},
    patience,
    signals::Signals,
};
use garrick_model::{
    ids::JobId,
    messages::command::{CancelRequest, CommandReply, CommandRequest, JobSelector},
    refusal::Refusal,
    state::ExitStatus,
    view::JobView,
};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::{
    os::fd::{AsFd, BorrowedFd},
    sync::Arc,
    time::{Duration, Instant},
};

/// When a job that has not started by then is said to wait. Longer than a scheduling pass, shorter than a person's patience.
const SAY_AFTER: Duration = Duration::from_secs(1);
/// Pause before a lost stream is opened again.
const REOPEN_PAUSE: Duration = Duration::from_secs(1);
/// How long the end of an allocation is reported to a controller that does not answer.
const FINISH_ATTEMPTS: u32 = 5;

/// A job that is watched.
#[derive(Debug)]
pub struct Watch<'a> {
    cluster: &'a Cluster,
    console: &'a Console,
    job: JobId,
    stream: Option<Daemon>,
    reopen_at: Instant,
    said_lost: bool,
    silent: bool,
}

/// What a watched job does.
#[derive(Debug)]
pub enum Seen {
    /// It looks like this now.
    View(Arc<JobView>),
    /// `scontrol notify`
    Notice(String),
    /// The controller no longer knows it.
    Gone,
}

impl<'a> Watch<'a> {
    /// Opens a stream of the job's views.
    pub fn open(cluster: &'a Cluster, console: &'a Console, job: JobId) -> Self {
        Self { cluster, console, job, stream: None, reopen_at: Instant::now(), said_lost: false, silent: false }
    }

    /// From here on a lost controller is not worth a word: the allocation goes on without it.
    pub const fn be_silent(&mut self) {
        self.silent = true;
    }

    /// The stream's descriptor, while there is one.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.stream.as_ref().map(AsFd::as_fd)
    }

    /// When to look again without the descriptor saying so.
    pub fn look_at(&self) -> Option<Instant> {
        self.stream.is_none().then_some(self.reopen_at)
    }

    /// What is new, without waiting for it.
    pub fn look(&mut self) -> Option<Seen> {
        if self.stream.is_none() {
            if Instant::now() < self.reopen_at {
                return None;
            }
            match self.reopen() {
                Ok(daemon) => self.stream = Some(daemon),
                Err(error) => return self.failed(&error),
            }
        }
        match self.stream.as_mut()?.try_next() {
            Ok(None) => None,
            Ok(Some(CommandReply::Job(view))) => {
                self.said_lost = false;
                Some(Seen::View(view))
            }
            Ok(Some(CommandReply::Notice(text))) => Some(Seen::Notice(text)),
            Ok(Some(_)) => {
                // End of the stream: the last view has said that the job is over, unless the daemon just stops.
                self.stream = None;
                self.reopen_at = Instant::now() + REOPEN_PAUSE;
                None
            }
            Err(error) => self.failed(&error),
        }
    }

    fn reopen(&self) -> Result<Daemon, ClusterError> {
        let mut daemon = self.cluster.connect(self.console.program())?;
        daemon.send(&CommandRequest::Watch { job: self.job })?;
        daemon.set_timeout(None)?;
        Ok(daemon)
    }

    fn failed(&mut self, error: &ClusterError) -> Option<Seen> {
        self.stream = None;
        self.reopen_at = Instant::now() + patience::jittered(REOPEN_PAUSE, patience::random());
        if let Some(Refusal::InvalidJobId) = error.refusal() {
            return Some(Seen::Gone);
        }
        if !std::mem::replace(&mut self.said_lost, true) && !self.silent {
            self.console.error(format_args!("Lost contact with the controller: {error}; retrying"));
        }
        None
    }
}

/// How waiting ended.
#[derive(Debug)]
pub enum Waited {
    /// The nodes are ready.
    Ready(Arc<JobView>),
    /// The job is over. That has been said.
    Over,
    /// A signal asked to stop waiting. The job has been cancelled.
    Interrupted,
    /// `--immediate`, and no nodes in time. The job has been cancelled.
    Busy,
}

/// Waits until the allocation is ready, saying what happens meanwhile.
pub fn wait(
    watch: &mut Watch<'_>,
    allocation: &mut Allocation,
    signals: &Signals,
    immediate: Option<Duration>,
) -> Waited {
    let start = Instant::now();
    let mut said_slow = false;
    let give_up = immediate.map(|limit| start + limit + SAY_AFTER);
    loop {
        while let Some(seen) = watch.look() {
            let mut say = Vec::new();
            let progress = match seen {
                Seen::View(view) => allocation.view(&view, &mut say),
                Seen::Notice(text) => {
                    watch.console.info(text);
                    continue;
                }
                Seen::Gone => {
                    allocation.over(false, &mut say);
                    Progress::Over
                }
            };
            if immediate.is_some() && !allocation.is_granted() && progress == Progress::Over {
                return Waited::Busy;
            }
            say.iter().for_each(|line| watch.console.info(line));
            match progress {
                Progress::Waiting | Progress::Granted => {}
                Progress::Ready(view) => return Waited::Ready(view),
                Progress::Over => return Waited::Over,
            }
        }
        while let Some(signal) = signals.next() {
            if matches!(signal, libc::SIGINT | libc::SIGTERM | libc::SIGHUP | libc::SIGQUIT) {
                cancel(watch.cluster, watch.console, allocation.job());
                return Waited::Interrupted;
            }
        }
        let now = Instant::now();
        if give_up.is_some_and(|at| now >= at) && !allocation.is_granted() {
            cancel(watch.cluster, watch.console, allocation.job());
            return Waited::Busy;
        }
        if !said_slow && now >= start + SAY_AFTER {
            said_slow = true;
            let mut say = Vec::new();
            allocation.still_waiting(&mut say);
            say.iter().for_each(|line| watch.console.info(line));
        }
        let wake =
            [(!said_slow).then_some(start + SAY_AFTER), give_up.filter(|_| !allocation.is_granted()), watch.look_at()];
        poll_for(signals, watch.fd(), wake.into_iter().flatten().min());
    }
}

/// Waits for the allocation that `srun` asked for with these options. An error is the exit code; why has been said.
pub fn allocated(
    cluster: &Cluster,
    console: &Console,
    job: JobId,
    typed: &Typed,
    signals: &Signals,
) -> Result<Arc<JobView>, i32> {
    let mut allocation = Allocation::new(job, Speaker::Srun, typed.immediate_secs.is_some());
    let mut watch = Watch::open(cluster, console, job);
    let immediate = typed.immediate_secs.map(|secs| Duration::from_secs(u64::from(secs)));
    match wait(&mut watch, &mut allocation, signals, immediate) {
        Waited::Ready(view) => Ok(view),
        Waited::Over => Err(startup::exit_code(1)),
        Waited::Interrupted => {
            let mut say = Vec::new();
            allocation.over(false, &mut say);
            say.iter().for_each(|line| console.info(line));
            Err(startup::exit_code(1))
        }
        Waited::Busy => {
            console.error(format_args!("Unable to allocate resources: {}", Refusal::Busy));
            Err(startup::immediate_code())
        }
    }
}

/// Waits for a signal, for the descriptor, or for a point in time.
pub fn poll_for(signals: &Signals, fd: Option<BorrowedFd<'_>>, until: Option<Instant>) {
    let mut fds = vec![PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
    fds.extend(fd.map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
    let timeout = match until {
        None => PollTimeout::NONE,
        Some(at) => {
            let millis = at.saturating_duration_since(Instant::now()).as_micros().div_ceil(1000);
            PollTimeout::try_from(millis).unwrap_or(PollTimeout::MAX)
        }
    };
    // Whatever woke it, its caller looks at everything.
    let _ = poll(&mut fds, timeout);
}

/// Cancels a job that is no longer wanted.
pub fn cancel(cluster: &Cluster, console: &Console, job: JobId) {
    let request = CancelRequest {
        jobs: vec![JobSelector { job, tasks: None, het: None, run: None }],
        ..CancelRequest::default()
    };
    if let Err(error) = patience::ask(cluster, console, &CommandRequest::Cancel(request)) {
        console.error(format_args!("Job {job} could not be cancelled: {error}"));
    }
}

/// Says that the owner of an allocation is done with it.
pub fn finish(cluster: &Cluster, console: &Console, job: JobId, code: i32) {
    let exit = ExitStatus { code: u8::try_from(code.clamp(0, 255)).unwrap_or(u8::MAX), signal: None };
    let request = CommandRequest::FinishAllocation { job, exit };
    for attempt in 1.. {
        match patience::ask(cluster, console, &request) {
            Ok(_) => return,
            Err(ClusterError::Refused(Refusal::AlreadyDone | Refusal::InvalidJobId)) => return,
            Err(error) if error.is_passing() && attempt < FINISH_ATTEMPTS => {
                std::thread::sleep(patience::jittered(REOPEN_PAUSE, patience::random()));
            }
            Err(error) => {
                console.error(format_args!("Unable to release job {job}: {error}"));
                return;
            }
        }
    }
}
