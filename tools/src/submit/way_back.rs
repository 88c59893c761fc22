//! The way back to a step manager that was lost: one that was killed is there again within moments and knows its steps.

use super::{launch::Launch, manager::Look, patience::Lost, signals::Signals};
use crate::cluster::{Answer, ClusterError};
use garrick_frame::{DoorClient, DoorError};
use garrick_model::messages::step::CommandToStepMgr;
use std::{
    fmt,
    time::{Duration, Instant},
};

/// How to get there, and what was asked for.
pub struct WayBack<'a> {
    /// Connects.
    reach: &'a dyn Fn(Look) -> Answer<DoorClient>,
    /// The request, for a step that did not begin.
    launch: Launch,
    /// Since something was heard.
    lost: Lost,
}

impl fmt::Debug for WayBack<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WayBack").field("launch", &self.launch).finish_non_exhaustive()
    }
}

/// Why there is none.
#[derive(Debug)]
pub enum NoWay {
    /// It is not there any more, or does not want to.
    Gone(Option<ClusterError>),
    /// This signal came.
    Interrupted(i32),
}

/// Would another connection do better?
pub const fn is_worth_trying(error: &DoorError) -> bool {
    !matches!(error, DoorError::Frame { .. } | DoorError::Refused { .. } | DoorError::PathTooLong { .. })
}

impl<'a> WayBack<'a> {
    /// For a request that is under way.
    pub fn new(reach: &'a dyn Fn(Look) -> Answer<DoorClient>, launch: Launch) -> Self {
        Self { reach, launch, lost: Lost::default() }
    }

    /// Connects again, and asks what became of a step that began, or for one that did not once more.
    pub fn go(&mut self, began: Option<&CommandToStepMgr>, signals: &Signals) -> Result<DoorClient, NoWay> {
        let mut last = None;
        loop {
            let Some(pause) = self.lost.again() else { return Err(NoWay::Gone(last)) };
            self::pause(pause, signals).map_err(NoWay::Interrupted)?;
            match self.attempt(began) {
                Ok(door) => return Ok(door),
                // One that does not answer in time is not waited for as long again.
                Err(error @ ClusterError::Door(DoorError::Timeout { .. })) => return Err(NoWay::Gone(Some(error))),
                Err(error) if error.is_passing() => last = Some(error),
                Err(error) => return Err(NoWay::Gone(Some(error))),
            }
        }
    }

    /// The step manager says something.
    pub fn heard(&mut self) {
        self.lost = Lost::default();
    }

    fn attempt(&self, began: Option<&CommandToStepMgr>) -> Answer<DoorClient> {
        let mut door = (self.reach)(Look::Once)?;
        match began {
            Some(question) => door.send(question)?,
            None => self.launch.send(&mut door)?,
        }
        Ok(door)
    }
}

/// Waits, but not longer than until a signal that ends commands.
fn pause(pause: Duration, signals: &Signals) -> Result<(), i32> {
    let end = Instant::now() + pause;
    loop {
        while let Some(signal) = signals.next() {
            if matches!(signal, libc::SIGINT | libc::SIGTERM | libc::SIGHUP | libc::SIGQUIT) {
                return Err(signal);
            }
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        // Whatever woke it, everything is looked at.
        signals.wait(left);
    }
}
