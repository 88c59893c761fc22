//! States of the tasks of a running step, and what a step's state follows from. Used by the step's core, and by the step manager for
//! steps that end before they ran.

use garrick_model::state::{ExitStatus, StepState};

/// The state of a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TaskState {
    /// Handed to its node.
    #[default]
    Launching,
    /// Runs.
    Running,
    /// Over; its status is part of the step's.
    Over,
}

/// The worse of two exit statuses, as a shell would rank them.
pub fn worse(a: ExitStatus, b: ExitStatus) -> ExitStatus {
    if b.shell_code() > a.shell_code() { b } else { a }
}

/// The state that follows from the tasks' statuses alone.
pub const fn state_of_exit(exit: ExitStatus, oom: bool) -> StepState {
    if oom {
        StepState::OutOfMemory
    } else if exit.success() {
        StepState::Completed
    } else {
        StepState::Failed
    }
}
