//! Sends requests one after the other to a step manager that may be busy, or unreachable for a moment. A repeat has the id of the
//! first try, so that nothing is accepted twice.

use crate::{output::Console, submit::way_back};
use garrick_asking::{
    cluster::ClusterError,
    manager::Way,
    patience,
    search::{NoWay, Search, Until},
    signals::Signals,
};
use garrick_frame::{DoorClient, DoorError};
use garrick_model::{
    batch::{GivenNumbers, StepBatch},
    ids::RequestId,
    messages::step::{CommandToStepMgr, StepMgrToCommand},
    refusal::Refusal,
};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::{
    os::fd::AsFd as _,
    time::{Duration, Instant},
};

/// Time for an answer: it is given when the steps are on disk, which a busy disk may hold up for a while.
const ANSWER: Duration = Duration::from_secs(60);
/// Time for the answer that is under way when a user interrupts: after that it is unknown what was accepted.
const LAST_ANSWER: Duration = Duration::from_secs(2);
/// A busy step manager that keeps on saying so is asked less and less often, but not less than this often: whoever waits
/// for its queue to have room is to be there before it runs dry.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// What came of a request.
#[derive(Debug)]
pub enum Handed {
    /// It was answered: numbers, and what was declined by its place in the batch.
    Answered {
        /// Numbers of the others.
        given: Option<GivenNumbers>,
        /// Which were not accepted.
        declined: Vec<(u32, Refusal)>,
    },
    /// None of it was accepted, and trying again does not help.
    Refused(ClusterError),
    /// No answer: it may have been accepted or not.
    Lost(ClusterError),
    /// By a signal, before it was sent or before it was answered.
    Interrupted {
        /// It was under way: it may have been accepted or not.
        under_way: bool,
    },
}

/// A conversation that outlives its connection.
pub struct Handover<'a> {
    search: Search<'a>,
    console: &'a Console,
    signals: Option<&'a Signals>,
    door: DoorClient,
    /// The request is under way on this connection.
    asked: bool,
    said: bool,
    warned: Vec<String>,
    /// The signal that ended it.
    pub interrupted: Option<i32>,
}

/// What waiting brought.
enum Got {
    Message(StepMgrToCommand),
    Failed(DoorError),
    Interrupted,
}

impl<'a> Handover<'a> {
    /// Connects. `signals`: those that end it, if they are not left to the kernel.
    pub fn begin(way: Way, console: &'a Console, signals: Option<&'a Signals>) -> Result<Self, NoWay> {
        let mut search = Search::new(way, console);
        let door = search.begin(Until { signals, deadline: None })?;
        let search = search.silent();
        Ok(Self { search, console, signals, door, asked: false, said: false, warned: Vec::new(), interrupted: None })
    }

    /// Hands a batch over and waits for the answer.
    pub fn hand_over(&mut self, batch: StepBatch) -> Handed {
        let request = CommandToStepMgr::Enqueue { request: RequestId::random(), batch: Box::new(batch) };
        let until = Until { signals: self.signals, deadline: None };
        let mut busy = 0;
        // Once it was sent on a connection that broke, it may have been accepted.
        let mut sent = false;
        loop {
            if self.is_interrupted() {
                return Handed::Interrupted { under_way: sent };
            }
            let error = match self.attempt(&request) {
                Got::Message(StepMgrToCommand::Enqueued { given, declined, warnings }) => {
                    self.warn(warnings);
                    return Handed::Answered { given, declined };
                }
                Got::Message(StepMgrToCommand::Refused(Refusal::RetryAfter { after })) => {
                    sent = false;
                    busy += 1;
                    self.say(Refusal::RetryAfter { after });
                    let grown = after.saturating_mul(1 << (busy / 4u32).min(6));
                    self.pause(patience::jittered(grown.min(LONGEST_PAUSE.max(after)), patience::random()));
                    continue;
                }
                Got::Message(StepMgrToCommand::Refused(refusal)) => return Handed::Refused(refusal.into()),
                Got::Message(_) => return Handed::Lost(ClusterError::Unexpected("asked to queue steps")),
                Got::Interrupted => return Handed::Interrupted { under_way: true },
                Got::Failed(error) => error,
            };
            // Too large, or not understood: the next try would fare no better.
            if !way_back::is_worth_trying(&error) {
                return Handed::Lost(error.into());
            }
            self.say(format_args!("Lost contact with the step manager ({error})"));
            let found = match &error {
                DoorError::Timeout { .. } => match self.search.may_come(until) {
                    Ok(true) => continue,
                    Ok(false) => self.search.again(error.into(), until),
                    Err(no_way) => Err(no_way),
                },
                _ => self.search.again(error.into(), until),
            };
            (sent, self.asked) = (true, false);
            self.door = match found {
                Ok(door) => door,
                Err(NoWay::Interrupted(signal)) => {
                    self.interrupted = Some(signal);
                    return Handed::Interrupted { under_way: true };
                }
                Err(no_way) => return Handed::Lost(no_way.into_error()),
            };
        }
    }

    /// Waiting is said once, not for every request and every try.
    fn say(&mut self, why: impl std::fmt::Display) {
        if !std::mem::replace(&mut self.said, true) {
            self.console.info(format_args!("{why}; retrying"));
        }
    }

    /// What a step manager says about each of many requests is said once.
    fn warn(&mut self, warnings: Vec<String>) {
        for warning in warnings {
            if !self.warned.contains(&warning) && self.warned.len() < 100 {
                self.console.warning(&warning);
                self.warned.push(warning);
            }
        }
    }

    /// Asks, unless that was done on this connection, and waits for the answer.
    fn attempt(&mut self, request: &CommandToStepMgr) -> Got {
        if !std::mem::replace(&mut self.asked, true)
            && let Err(error) = self.door.enqueue(request)
        {
            return Got::Failed(error);
        }
        let got = self.answer();
        if matches!(got, Got::Message(_)) {
            self.asked = false;
            self.search.heard();
        }
        got
    }

    fn answer(&mut self) -> Got {
        let door = &mut self.door;
        let mut deadline = Instant::now() + ANSWER;
        loop {
            let unsent = if door.wants_write() { door.try_flush().err() } else { None };
            // A peer that closes while it is written to may have said why before.
            match (door.try_next::<StepMgrToCommand>(), unsent) {
                (Ok(Some(message)), _) => return Got::Message(message),
                (Ok(None), None) => {}
                (Ok(None), Some(error)) | (Err(error), _) => return Got::Failed(error),
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let (path, after) = (door.path().to_owned(), ANSWER);
                return match self.interrupted {
                    Some(_) => Got::Interrupted,
                    None => Got::Failed(DoorError::Timeout { path, after, doing: "queueing steps" }),
                };
            }
            let out = if door.wants_write() { PollFlags::POLLOUT } else { PollFlags::empty() };
            let mut fds = vec![PollFd::new(door.as_fd(), PollFlags::POLLIN | out)];
            fds.extend(self.signals.map(|s| PollFd::new(s.as_fd(), PollFlags::POLLIN)));
            let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
            // Whatever woke it, everything is looked at.
            let _ = poll(&mut fds, timeout);
            if let Some(signal) = self.signals.and_then(Signals::next) {
                if self.interrupted.replace(signal).is_some() {
                    return Got::Interrupted;
                }
                deadline = deadline.min(Instant::now() + LAST_ANSWER);
            }
        }
    }

    /// Waits, but not longer than until a signal.
    fn pause(&mut self, pause: Duration) {
        let Some(signals) = self.signals else { return std::thread::sleep(pause) };
        let end = Instant::now() + pause;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() || self.is_interrupted() {
                return;
            }
            signals.wait(left);
        }
    }

    /// Has a signal come that ends it?
    pub fn is_interrupted(&mut self) -> bool {
        if let Some(signal) = self.signals.and_then(Signals::next) {
            self.interrupted = Some(signal);
        }
        self.interrupted.is_some()
    }
}
