//! Fuzzing of everything that reads bytes or text from outside. A target is a plain function over bytes: a test on the
//! stable toolchain replays the corpora and tries changed inputs, libFuzzer drives the same functions by coverage.
//! `docs/fuzzing.md` has the table of targets and says how to run them.
//!
//! | module | what it is |
//! |---|---|
//! | [`targets`] | the targets |
//! | [`mod@target`] | a target: how it is run, with limits |
//! | [`corpus`] | saved inputs, a file of lines for each target |
//! | [`requests`] | requests with hostile values, sent to a real daemon |
//! | [`forms`] | valid messages with hostile values, generated from the message types |

/// Every enum that travels, as `$act!(Type, ...)`.
macro_rules! for_every_message {
    ($act:ident) => {
        $act!(
            CommandRequest,
            CommandReply,
            CommandToStepMgr,
            StepMgrToCommand,
            ControllerToNode,
            NodeToController,
            NodeToStepd,
            StepdToNode,
            StepMgrToAgent,
            AgentToStepMgr,
            StepMgrToShepherd,
            ShepherdToStepMgr,
            ToLauncher,
            FromLauncher,
            JoinRequest,
            JoinReply,
            RecordsRequest,
            RecordsReply,
            AccountsRequest,
            AccountsReply
        );
    };
}

pub mod corpus;
pub mod forms;
pub mod requests;
pub mod target;
pub mod targets;

use target::Target;

/// The target of that name.
pub fn target(name: &str) -> Option<&'static Target> {
    targets::ALL.iter().find(|target| target.name == name)
}
