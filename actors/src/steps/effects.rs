//! What the owner of steps causes.

use crate::{messages::steps::StepsTimer, owner::Effect};
use garrick_model::{ids::JobId, messages::command::CommandReply};
use std::convert::Infallible;

/// What the owner of steps has done at the controller's ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepsErrand {
    /// Say which of these jobs are known. Answered by [`StepsInput::Known`](crate::messages::steps::StepsInput::Known).
    WhichAreKnown(Vec<JobId>),
}

/// What it causes. It shows nothing.
pub type StepsEffect = Effect<StepsTimer, Infallible, CommandReply, StepsErrand>;
