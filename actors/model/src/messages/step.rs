//! Commands and a job's step manager, at `stepd`'s door. One conversation per connection: the first message is a request;
//! `Launch` and `Wait` conversations then go on both ways.

use crate::{
    ids::{JobId, RequestId, Sluid, StepId},
    messages::{command::Caller, shepherd::Stream},
    refusal::Refusal,
    spec::StepSpec,
    state::{ExitStatus, Reason},
    view::{StepCounts, StepView},
};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

/// From a command.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum CommandToStepMgr {
    /// Only from a daemon (root or the cluster's user) that relays for a command elsewhere: who it is. First of all.
    OnBehalfOf(Caller),
    /// Run a step and stay with it. Withdrawn when the connection closes before it started; killed when it closes after.
    Launch {
        /// Identity of this request.
        request: RequestId,
        /// Step.
        spec: Box<StepSpec>,
    },
    /// Queue steps and go. A repeat with the same id gets the first answer.
    Enqueue {
        /// Identity of this request.
        request: RequestId,
        /// Steps.
        specs: Vec<StepSpec>,
    },
    /// Wait until nothing is queued or running (batch step left out), or the named steps are over. Progress is sent as it
    /// changes, at most every `progress_ms`.
    Wait {
        /// Only these.
        steps: Vec<StepId>,
        /// Least time between two progress messages; 0: none wanted.
        progress_ms: u32,
    },
    /// Steps, queued ones too.
    List,
    /// Input for the launched step; empty: end.
    Stdin(ByteBuf),
    /// Signal the launched step.
    Signal(i32),
    /// Terminal size.
    Resize {
        /// Rows.
        rows: u16,
        /// Columns.
        cols: u16,
    },
    /// End the launched step (second Ctrl-C).
    Cancel,
    /// Signal or end named steps of the caller's own.
    SignalSteps {
        /// Steps.
        steps: Vec<StepId>,
        /// Signal; `None`: end them.
        signal: Option<i32>,
    },
    /// More output may be sent: bytes that the command has consumed since the last grant.
    Consumed(u64),
}

/// Layout of a started step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepLayout {
    /// Node names in step order.
    pub nodes: Vec<String>,
    /// Ranks on each node.
    pub ranks: Vec<Vec<u32>>,
}

/// To a command.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum StepMgrToCommand {
    /// The step has a number.
    Accepted {
        /// Step.
        step: StepId,
        /// Run.
        sluid: Sluid,
        /// Things said to the user.
        warnings: Vec<String>,
    },
    /// It waits (said once, and when the reason changes).
    Queued {
        /// Why.
        reason: Reason,
    },
    /// All its tasks were handed to their nodes.
    Started(StepLayout),
    /// A task runs.
    TaskStarted {
        /// Rank.
        rank: u32,
        /// Process.
        pid: u32,
    },
    /// Output of a task; empty: end of the stream.
    Output {
        /// Rank.
        rank: u32,
        /// Which.
        stream: Stream,
        /// Bytes.
        data: ByteBuf,
    },
    /// A task could not be started.
    TaskFailed {
        /// Rank.
        rank: u32,
        /// What and why.
        message: String,
        /// Exit status.
        status: ExitStatus,
    },
    /// A task ended.
    TaskExited {
        /// Rank.
        rank: u32,
        /// How.
        status: ExitStatus,
        /// Ran out of memory.
        oom: bool,
    },
    /// The step is being ended, and why (`Force Terminated`).
    Terminating {
        /// Why, in Slurm's words: `STEP 5609.0 ON n1 CANCELLED AT 2026-11-21T10:00:00 DUE TO TIME LIMIT`.
        message: String,
    },
    /// The step is over. Last message of a `Launch` conversation.
    Finished {
        /// Highest exit status.
        exit: ExitStatus,
        /// Final state.
        state: crate::state::StepState,
    },
    /// Answer to `Enqueue`: durable.
    Enqueued {
        /// Ids in the order of the specs.
        steps: Vec<StepId>,
        /// Things said to the user.
        warnings: Vec<String>,
    },
    /// During `Wait`.
    Progress(StepCounts),
    /// Answer to `Wait`: nothing is left.
    Drained {
        /// Job.
        job: JobId,
        /// Counts at the end.
        counts: StepCounts,
        /// Worst exit status of the steps waited for.
        worst: ExitStatus,
    },
    /// Answer to `List`.
    Steps(Vec<StepView>),
    /// Answer to `SignalSteps`, per step.
    PerStep(Vec<(StepId, Result<(), Refusal>)>),
    /// Declined. Last message.
    Refused(Refusal),
    /// The tasks took so many bytes of input. A command has at most [`STDIN_WINDOW`] bytes of `Stdin` under way; what
    /// comes beyond four times that ends the conversation.
    StdinConsumed(u64),
}

/// Bytes of `Stdin` that a command may send before the first [`StepMgrToCommand::StdinConsumed`].
pub const STDIN_WINDOW: u64 = 256 * 1024;

/// Bytes of `Output` that the step manager sends before the first [`CommandToStepMgr::Consumed`]. A command says what it
/// consumed at the latest every quarter of this.
pub const OUTPUT_GRANT: u64 = 512 * 1024;
