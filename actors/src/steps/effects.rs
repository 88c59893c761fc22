//! Effects of the owner of steps.

use crate::{messages::steps::StepsTimer, owner::Effect};
use garrick_model::{ids::JobId, messages::command::CommandReply};
use std::convert::Infallible;

/// Errands of the owner of steps at the controller's ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepsErrand {
    /// Find which of these jobs are known. Answered by [`StepsInput::Known`](crate::messages::steps::StepsInput::Known).
    WhichAreKnown(Vec<JobId>),
}

/// An effect of the owner of steps. It publishes nothing.
pub type StepsEffect = Effect<StepsTimer, Infallible, CommandReply, StepsErrand>;
