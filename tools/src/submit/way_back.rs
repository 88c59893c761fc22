//! Returns to a step manager that was lost: one that was killed is restarted within moments and knows its steps.

use super::launch::Launch;
use garrick_asking::{
    cluster::ClusterError,
    search::{NoWay, Search, Until},
};
use garrick_frame::{DoorClient, DoorError};
use garrick_model::messages::step::CommandToStepMgr;

/// How to get there, and what was asked for.
#[derive(Debug)]
pub struct WayBack<'a> {
    search: Search<'a>,
    /// The request, for a step that did not begin.
    launch: Launch,
}

/// Would another connection do better?
pub fn is_worth_trying(error: &DoorError) -> bool {
    match error {
        DoorError::Frame { .. } | DoorError::PathTooLong { .. } => false,
        DoorError::Refused { .. } => error.is_turned_away(),
        _ => true,
    }
}

impl<'a> WayBack<'a> {
    /// For a request that is under way. The conversation says what happens.
    pub fn new(search: Search<'a>, launch: Launch) -> Self {
        Self { search: search.silent(), launch }
    }

    /// Makes the request, on a connection where none was made.
    pub fn ask(&self, door: &mut DoorClient) -> Result<(), DoorError> {
        self.launch.send(door)
    }

    /// Connects again, and asks what became of a step that began, or for one that did not once more.
    pub fn go(
        &mut self,
        error: DoorError,
        began: Option<&CommandToStepMgr>,
        until: Until<'_>,
    ) -> Result<DoorClient, NoWay> {
        let mut error = error;
        loop {
            let mut door = self.search.again(ClusterError::Door(error), until)?;
            let sent = match began {
                Some(question) => door.send(question),
                None => self.launch.send(&mut door),
            };
            match sent {
                Ok(()) => return Ok(door),
                Err(failed) => error = failed,
            }
        }
    }

    /// The step manager says something.
    pub fn heard(&mut self) {
        self.search.heard();
    }
}
