//! Commands and a job's step manager, at `stepd`'s door. One conversation per connection: the first message is a request;
//! `Launch` and `Wait` conversations then go on both ways.

use crate::{
    batch::{GivenNumbers, StepBatch},
    ids::{JobId, RequestId, Sluid, StepId},
    messages::{
        command::Caller,
        files::{FileFailure, FilePart, FileRequest},
        shepherd::Stream,
    },
    refusal::Refusal,
    spec::StepSpec,
    state::{ExitStatus, Reason},
    step_selector::WhichSteps,
    usage::TaskSample,
    view::{StepCounts, StepView},
};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

/// From a command.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum CommandToStepMgr {
    /// Only from a daemon (root or the cluster's user) that relays for a command elsewhere: who it is. First of all.
    OnBehalfOf(Caller),
    /// Run a step and stay with it. Withdrawn when the connection closes before it started; killed when it closes after. A
    /// repeat with the same id, on another connection, starts nothing anew: see `Rejoin`.
    Launch {
        /// Identity of this request.
        request: RequestId,
        /// Step.
        spec: Box<StepSpec>,
        /// Which of descriptors 0, 1 and 2 are passed beside this message, for tasks on this very host.
        #[serde(default)]
        descriptors: [bool; 3],
    },
    /// From the light `srun`: its arguments and what it is, laid out as `garrick_frame::light` says. The door makes a
    /// `Launch` of it, or answers that the whole command is to do that.
    LaunchLight(ByteBuf),
    /// The light `srun` has become the whole command: what was kept from it is to be said, and all that follows.
    TakeOver,
    /// The command of a started step is back after its connection broke. `Accepted`, and how the step ended, once it has:
    /// what it wrote meanwhile had nowhere to go, so it is ended if it runs still.
    Rejoin {
        /// Which.
        step: StepId,
        /// Of which run of the job.
        sluid: Sluid,
    },
    /// Queue steps and go. A repeat with the same id gets the first answer. Several may follow each other on one
    /// connection, each after the answer to the one before; `Refused(RetryAfter)` leaves the connection open.
    Enqueue {
        /// Identity of this request.
        request: RequestId,
        /// Steps.
        batch: Box<StepBatch>,
    },
    /// Wait until nothing is queued or running (batch step left out), or the named steps are over. Progress is sent as it
    /// changes, at most every `progress_ms`.
    Wait {
        /// Only these; of an array, all tasks named.
        steps: Vec<WhichSteps>,
        /// Until the first of them is over (without names: the first step that ends from now on).
        #[serde(default)]
        any: bool,
        /// Least time between two progress messages; 0: none wanted.
        progress_ms: u32,
        /// Progress is wanted of each array and list by itself: `Groups` instead of `Progress`.
        #[serde(default)]
        groups: bool,
        /// Without named steps: that nothing is left for the moment is not the end, since more may be handed over. The end of
        /// the run is.
        #[serde(default)]
        stay: bool,
    },
    /// Steps, queued ones too.
    List,
    /// Watch the output of a running step, as `sattach`. Answered by `Attached`, then `Output`, at last `Finished`.
    Attach {
        /// Step.
        step: StepId,
    },
    /// What do the tasks of these running steps use, as `sstat`? Answered by `Sampling`, then by `Sampled` for each of its nodes.
    Sample {
        /// Steps.
        steps: WhichSteps,
    },
    /// Input for the launched step; empty: end.
    Stdin(ByteBuf),
    /// Signal the launched step.
    Signal(i32),
    /// From a command that attached to a step: input for its tasks, or one of them, beside that of the step's own command. At most
    /// [`STDIN_WINDOW`] bytes are under way; answered by `StdinConsumed`. Its end ends nobody's input.
    AttachedInput {
        /// For this task only.
        #[serde(default)]
        rank: Option<u32>,
        /// Bytes.
        data: ByteBuf,
    },
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
        steps: Vec<WhichSteps>,
        /// Only those of them that wait.
        #[serde(default)]
        pending_only: bool,
        /// Signal; `None`: end them.
        signal: Option<i32>,
    },
    /// Before `Launch` in the same conversation, for a step of several components of a heterogeneous job, which has the same
    /// number in all: takes the first free one from this on. Answer: `Reserved`. May be repeated.
    ReserveStep {
        /// Not below.
        at_least: u32,
    },
    /// All parts of the launched step are placed ([`PartsBefore`](crate::spec::PartsBefore)): start this one.
    StartPart(WholeStep),
    /// More output may be sent: bytes that the command has consumed since the last grant.
    Consumed(u64),
    /// Send a file to nodes of the job, as `sbcast`. Answered by `FileReady`, then `FileDone`; by `FileDone` alone if a node
    /// cannot have it.
    SendFile(Box<FileRequest>),
    /// After `FileReady`: the next piece. Goes past the step manager: its reader stops while nodes do not keep up.
    FilePart(FilePart),
}

/// A step over several components of a heterogeneous job: all nodes, in the order of the components.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WholeStep {
    /// Names of the nodes.
    pub nodes: Vec<String>,
    /// Tasks on each.
    pub tasks_per_node: Vec<u32>,
}

/// Layout of a started step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepLayout {
    /// Node names in step order.
    pub nodes: Vec<String>,
    /// Ranks on each node.
    pub ranks: Vec<Vec<u32>>,
    /// Which of the handed descriptors the tasks have: nothing of these streams comes by message.
    #[serde(default)]
    pub handed: [bool; 3],
}

/// Arrays and lists in one `Groups` message.
pub const MOST_GROUPS: usize = 100;

/// An array or a list of steps, of which some are not over.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepGroup {
    /// Its number, or that of its first step.
    pub first: u32,
    /// The number of its last step so far; of an array its number.
    pub last: u32,
    /// It is an array.
    pub array: bool,
    /// What its steps are called.
    pub name: String,
    /// What became of them so far.
    pub counts: StepCounts,
}

/// Where a stream of a task goes that is not relayed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttachedFile {
    /// Rank.
    pub rank: u32,
    /// Node.
    pub node: String,
    /// Which.
    pub stream: Stream,
    /// Absolute path, as the task's node sees it.
    pub path: String,
    /// It is an output pack, of which this step's records are meant.
    #[serde(default)]
    pub pack: bool,
}

/// What the light `srun` is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LightReply {
    /// The step is over, and all went well.
    Done,
    /// Nothing was begun: the whole command is to read the options itself.
    Whole,
    /// The whole command is to go on with this connection: what was kept back follows, and all that comes.
    TakeOver,
    /// To the whole command that it has become: that the step waits was said.
    Waits,
    /// Write this to standard error.
    Say(String),
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
    /// To the light `srun`, from the door.
    Light(LightReply),
    /// It waits (said once, and when the reason changes).
    Queued {
        /// Why.
        reason: Reason,
    },
    /// Answer to `ReserveStep`.
    Reserved {
        /// Step.
        step: StepId,
    },
    /// A part of a step over several components has its place, and waits for the others.
    Placed(StepLayout),
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
    /// `scontrol notify`: for the `srun` that made the allocation to say.
    Notice(String),
    /// The step is over. Last message of a `Launch` conversation.
    Finished {
        /// Highest exit status.
        exit: ExitStatus,
        /// Final state.
        state: crate::state::StepState,
    },
    /// Answer to `Enqueue`: durable.
    Enqueued {
        /// Numbers, in the order of the steps that were not declined. `None`: all were.
        given: Option<GivenNumbers>,
        /// Steps that were not accepted, by their place in the batch, ascending (of an array: place 0 for all).
        declined: Vec<(u32, Refusal)>,
        /// Things said to the user.
        warnings: Vec<String>,
    },
    /// Answer to `Attach`.
    Attached {
        /// Where the step runs.
        layout: StepLayout,
        /// What does not come by message: files to follow.
        files: Vec<AttachedFile>,
        /// Its tasks take input from commands.
        #[serde(default)]
        input: bool,
        /// Task zero has a pseudo terminal.
        #[serde(default)]
        pty: bool,
    },
    /// During `Wait`.
    Progress(StepCounts),
    /// During `Wait`, if it asked for groups.
    Groups {
        /// Of all steps, those of no group included.
        counts: StepCounts,
        /// Arrays and lists of which something waits or runs, [`MOST_GROUPS`] at most: the busiest, in the order of their numbers.
        groups: Vec<StepGroup>,
        /// How many there are beside those.
        left_out: u64,
        /// Counts of their steps.
        #[serde(default)]
        rest: StepCounts,
    },
    /// Answer to `Wait`: nothing is left.
    Drained {
        /// Job.
        job: JobId,
        /// Counts at the end.
        counts: StepCounts,
        /// Worst exit status of the steps waited for.
        worst: ExitStatus,
    },
    /// Answer to `Sample`: the steps that are asked about, and the nodes that will answer for each.
    Sampling(Vec<(StepView, Vec<String>)>),
    /// After `Sampling`.
    Sampled {
        /// Step.
        step: StepId,
        /// Node.
        node: String,
        /// Its tasks there.
        tasks: Vec<TaskSample>,
    },
    /// Answer to `List`.
    Steps(Vec<StepView>),
    /// Answer to `SignalSteps`, in the order of the names: how many steps it reached.
    PerStep(Vec<Result<u32, Refusal>>),
    /// Declined. Last message.
    Refused(Refusal),
    /// The tasks took so many bytes of input. A command has at most [`STDIN_WINDOW`] bytes of `Stdin` under way; what
    /// comes beyond four times that ends the conversation.
    StdinConsumed(u64),
    /// All nodes are ready to write the file.
    FileReady {
        /// Their names.
        nodes: Vec<String>,
    },
    /// Last message of a `SendFile` conversation: all have the file but these.
    FileDone(Vec<FileFailure>),
}

/// Bytes of `Stdin` that a command may send before the first [`StepMgrToCommand::StdinConsumed`].
pub const STDIN_WINDOW: u64 = 256 * 1024;

/// Bytes of `Output` that the step manager sends before the first [`CommandToStepMgr::Consumed`]. A command says what it
/// consumed at the latest every quarter of this.
pub const OUTPUT_GRANT: u64 = 512 * 1024;
