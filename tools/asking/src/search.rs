//! Searches for a step manager that does not answer. The search lasts as long as the run lives, according to the agent of this
//! host or, for commands outside the job's hosts, the controller. Slow work is done on a thread of its own, so that a signal or a
//! command's own time limit ends the search at once.

use crate::{
    Asker,
    cluster::{ANSWER_TIMEOUT, ClusterError},
    manager::{RunEnd, Told, Way},
    patience::{Absence, Word, random},
    signals::Signals,
};
use garrick_frame::{DoorClient, DoorError};
use garrick_model::{
    ids::JobId,
    messages::step::{CommandToStepMgr, StepMgrToCommand},
    refusal::Refusal,
};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::{
    fmt, io,
    os::{fd::AsFd as _, unix::net::UnixStream},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

/// For the first attempt at a door on this host, made before anything else is done: only one whose backlog is full is not
/// connected to at once.
const AT_ONCE: Duration = Duration::from_millis(100);
/// So many looks in vain are not worth a word: a step manager that was killed is back before the next.
const LOOKS_UNSAID: u32 = 1;

/// What ends a search early.
#[derive(Clone, Copy, Debug, Default)]
pub struct Until<'a> {
    /// Signals that are not left to the kernel.
    pub signals: Option<&'a Signals>,
    /// The command's own time is up.
    pub deadline: Option<Instant>,
}

/// Why it found nothing.
#[derive(Debug)]
pub enum NoWay {
    /// Looking again does not help, or nobody answered for long.
    Failed(ClusterError),
    /// The run is over.
    Over(RunEnd),
    /// This signal came.
    Interrupted(i32),
    /// The command's own time is up.
    TimeUp,
}

impl fmt::Display for NoWay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(ClusterError::Door(error)) => error.fmt(f),
            Self::Failed(error) => error.fmt(f),
            Self::Over(end) => end.fmt(f),
            Self::Interrupted(signal) => write!(f, "ended by signal {signal}"),
            Self::TimeUp => f.write_str("the time is up"),
        }
    }
}

impl From<ClusterError> for NoWay {
    fn from(error: ClusterError) -> Self {
        Self::Failed(error)
    }
}

impl NoWay {
    /// For a command that was not asked to end.
    pub fn into_error(self) -> ClusterError {
        match self {
            Self::Failed(error) => error,
            Self::Over(_) | Self::Interrupted(_) | Self::TimeUp => Refusal::AlreadyDone.into(),
        }
    }
}

/// A search, and what it has come to so far.
#[derive(Debug)]
pub struct Search<'a> {
    way: Way,
    asker: &'a dyn Asker,
    away: Absence,
    met: bool,
    said: bool,
}

impl<'a> Search<'a> {
    /// Nothing was tried.
    pub fn new(way: Way, asker: &'a dyn Asker) -> Self {
        Self { way, asker, away: Absence::default(), met: false, said: false }
    }

    /// The caller says itself that the step manager is away.
    pub fn silent(self) -> Self {
        Self { said: true, ..self }
    }

    /// The job whose step manager is meant.
    pub const fn job(&self) -> JobId {
        self.way.job()
    }

    /// Finds it for the first time.
    pub fn begin(&mut self, until: Until<'_>) -> Result<DoorClient, NoWay> {
        let first = match self.way.is_short() {
            true => self.way.take(AT_ONCE),
            false => self.apart(until, |way| way.take(ANSWER_TIMEOUT))?,
        };
        match first {
            Ok(door) => Ok(door),
            Err(error) => self.again(error, until),
        }
    }

    /// Finds it once more, after that came of the last way.
    pub fn again(&mut self, mut error: ClusterError, until: Until<'_>) -> Result<DoorClient, NoWay> {
        loop {
            if !error.is_passing() {
                return Err(NoWay::Failed(error));
            }
            let met = self.met;
            let word = match self.apart(until, move |way| way.ask_around(met))? {
                Told::Word(word) => word,
                Told::Over(end) => return Err(NoWay::Over(end)),
                Told::No(error) => return Err(NoWay::Failed(error)),
            };
            // No run is known at all.
            if word == Word::Silence && !met && !self.way.is_promised() {
                return Err(NoWay::Failed(error));
            }
            let Some(pause) = self.away.again(word, Instant::now(), random()) else {
                return Err(NoWay::Failed(error));
            };
            if self.away.looks() > LOOKS_UNSAID {
                self.say(word, &error);
            }
            until.pause(pause)?;
            match self.apart(until, |way| way.take(ANSWER_TIMEOUT))? {
                Ok(door) => return Ok(door),
                Err(next) => error = next,
            }
        }
    }

    /// The step manager says something.
    pub fn heard(&mut self) {
        (self.away, self.met) = (Absence::default(), true);
    }

    /// Asks a question that may be asked twice, until it is answered.
    pub fn ask(&mut self, question: &CommandToStepMgr) -> Result<StepMgrToCommand, NoWay> {
        let until = Until::default();
        let mut door = self.begin(until)?;
        loop {
            let error = match door.send(question).and_then(|()| self.answer(&mut door)) {
                Ok(answer) => {
                    self.heard();
                    return Ok(answer);
                }
                Err(error) => error,
            };
            door = self.again(error.into(), until)?;
        }
    }

    /// The next message at a door, as long as it may come.
    pub fn answer(&mut self, door: &mut DoorClient) -> Result<StepMgrToCommand, DoorError> {
        loop {
            match door.recv() {
                Err(error @ DoorError::Timeout { .. }) if matches!(self.may_come(Until::default()), Ok(true)) => {
                    self.say(Word::GoesOn, &error.into());
                }
                result => return result,
            }
        }
    }

    /// An answer is late. The step manager may be stopped: the question is there, and is not asked again as long as its run lives.
    pub fn may_come(&mut self, until: Until<'_>) -> Result<bool, NoWay> {
        let met = self.met;
        let told = self.apart(until, move |way| way.ask_around(met))?;
        Ok(matches!(told, Told::Word(Word::GoesOn)))
    }

    fn say(&mut self, word: Word, error: &ClusterError) {
        if std::mem::replace(&mut self.said, true) {
            return;
        }
        let cause = match error {
            ClusterError::Door(error) => error.to_string(),
            other => other.to_string(),
        };
        let what = match word {
            Word::GoesOn => "its run goes on: waiting for it",
            Word::StartsAgain => "it is started again: waiting for it",
            Word::Silence => "nobody here knows what became of its run: trying for some minutes",
        };
        self.asker.info(&format_args!("The step manager of job {} is away ({cause}); {what}", self.way.job()));
    }

    /// Has something done that may take its time, and waits for it or for what ends the search.
    fn apart<T: Send + 'static>(
        &mut self,
        until: Until<'_>,
        act: impl FnOnce(&mut Way) -> T + Send + 'static,
    ) -> Result<T, NoWay> {
        let mut way = self.way.clone();
        let (way, done) = until.apart(move || {
            let done = act(&mut way);
            (way, done)
        })?;
        self.way = way;
        Ok(done)
    }
}

impl<'a> Until<'a> {
    /// Until one of these signals comes.
    pub const fn signal(signals: &'a Signals) -> Self {
        Self { signals: Some(signals), deadline: None }
    }

    const fn is_some(&self) -> bool {
        self.signals.is_some() || self.deadline.is_some()
    }

    /// Has something done that may take its time, on a thread of its own, and waits for it or for what ends the waiting.
    pub fn apart<T: Send + 'static>(self, act: impl FnOnce() -> T + Send + 'static) -> Result<T, NoWay> {
        let Some((wake, waker)) = self.is_some().then(UnixStream::pair).and_then(io::Result::ok) else {
            return Ok(act());
        };
        let (send, receive) = mpsc::channel();
        let worker = move || {
            // The asking process may be gone. Closing its end wakes the search.
            drop(send.send(act()));
            drop(waker);
        };
        if thread::Builder::new().spawn(worker).is_err() {
            return Err(NoWay::Failed(Refusal::Internal("no thread can be made".to_owned()).into()));
        }
        loop {
            match receive.try_recv() {
                Ok(done) => return Ok(done),
                Err(mpsc::TryRecvError::Empty) => self.wait(Some(&wake), None)?,
                Err(mpsc::TryRecvError::Disconnected) => {
                    return Err(NoWay::Failed(ClusterError::Unexpected("asked on a thread of its own")));
                }
            }
        }
    }

    /// Waits that long, or for what ends it before.
    pub fn pause(self, pause: Duration) -> Result<(), NoWay> {
        let end = Instant::now() + pause;
        while Instant::now() < end {
            self.wait(None, Some(end))?;
        }
        Ok(())
    }

    /// Until something is there to be read, or a time has come; the error when that is to end it all.
    fn wait(self, wake: Option<&UnixStream>, end: Option<Instant>) -> Result<(), NoWay> {
        while let Some(signal) = self.signals.and_then(Signals::next) {
            if matches!(signal, libc::SIGINT | libc::SIGTERM | libc::SIGHUP | libc::SIGQUIT) {
                return Err(NoWay::Interrupted(signal));
            }
        }
        let now = Instant::now();
        if self.deadline.is_some_and(|deadline| deadline <= now) {
            return Err(NoWay::TimeUp);
        }
        let left = self.deadline.into_iter().chain(end).min().map(|at| at.saturating_duration_since(now));
        let timeout = match left {
            None => PollTimeout::NONE,
            Some(left) => PollTimeout::try_from(left.as_micros().div_ceil(1000)).unwrap_or(PollTimeout::MAX),
        };
        let mut fds: Vec<PollFd<'_>> =
            wake.map(|wake| PollFd::new(wake.as_fd(), PollFlags::POLLIN)).into_iter().collect();
        fds.extend(self.signals.map(|signals| PollFd::new(signals.as_fd(), PollFlags::POLLIN)));
        // Whatever woke it, everything is looked at.
        let _ = poll(&mut fds, timeout);
        Ok(())
    }
}
