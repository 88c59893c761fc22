//! Node agent and a `stepd` on the same host, over the agent's local door (the `stepd` connects; the agent checks that the
//! peer is root or its own user, and which run it names). A `stepd` that loses its agent keeps its jobs running,
//! connects again with backoff, and repeats what was not acknowledged.

use crate::{
    ids::{JobId, Sluid},
    messages::{command::TraceLine, node::SignalScope},
    packed_steps::PackedSteps,
    state::{ExitStatus, JobState, Reason},
    step_selector::WhichSteps,
    time::{TimeLimit, Timestamp},
    view::StepView,
};
use serde::{Deserialize, Serialize};

/// What a job's step manager is to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum StepsOrder {
    /// `scontrol notify`: a batch job has it in its error file, an `srun` that made the allocation says it.
    Notify(String),
    /// `scontrol update StepId= TimeLimit=`: the limit of running steps, from their start.
    SetLimit {
        /// Steps. The batch script has no limit of its own.
        steps: WhichSteps,
        /// Limit.
        limit: TimeLimit,
    },
}

/// Agent to `stepd`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum NodeToStepd {
    /// Adopted.
    Welcome,
    /// End the run.
    EndJob {
        /// State to record.
        state: JobState,
        /// Reason.
        reason: Reason,
        /// Nodes of the run that are lost: nothing is to be awaited from there.
        #[serde(default)]
        lost: Vec<String>,
    },
    /// Signal.
    SignalJob {
        /// Signal number.
        signal: i32,
        /// To whom.
        to: SignalScope,
    },
    /// New limit from the run's start.
    SetTimeLimit(TimeLimit),
    /// The allocation's owner is done.
    FinishAllocation(ExitStatus),
    /// Cancel or signal steps.
    SignalSteps {
        /// Steps.
        steps: WhichSteps,
        /// Only those of them that wait.
        #[serde(default)]
        pending_only: bool,
        /// Signal; `None`: end them.
        signal: Option<i32>,
        /// Who asked, by uid.
        #[serde(default)]
        by: Option<u32>,
    },
    /// For the step manager.
    Order(StepsOrder),
    /// Steps, please.
    ListSteps {
        /// Correlation.
        query: u64,
    },
    /// Trace records, please.
    Trace {
        /// Correlation.
        query: u64,
        /// Actor path prefixes.
        prefixes: Vec<String>,
        /// Keep sending.
        follow: bool,
    },
    /// End of interest.
    StopTrace {
        /// Correlation.
        query: u64,
    },
    /// Reports up to this sequence number are with the agent, on disk.
    Ack {
        /// Sequence number.
        upto: u64,
    },
}

/// `stepd` to agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum StepdToNode {
    /// First message.
    Hello {
        /// Job.
        job: JobId,
        /// Run.
        sluid: Sluid,
        /// Process.
        pid: u32,
        /// Its door.
        door: String,
        /// Hosts the step manager.
        batch_host: bool,
    },
    /// Must arrive.
    Report {
        /// Grows by one from 1.
        seq: u64,
        /// Report.
        report: StepdReport,
    },
    /// Answer to `ListSteps`.
    Steps {
        /// Correlation.
        query: u64,
        /// Steps.
        steps: Vec<StepView>,
        /// Lines that are not there because the list is too long.
        #[serde(default)]
        left_out: u64,
    },
    /// Answer to `Trace`.
    Trace {
        /// Correlation.
        query: u64,
        /// Records.
        records: Vec<TraceLine>,
    },
}

/// What a `stepd` must tell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum StepdReport {
    /// The job runs.
    Started,
    /// The work is over.
    Ended {
        /// Terminal state.
        state: JobState,
        /// Reason.
        reason: Reason,
        /// Exit status.
        exit: ExitStatus,
        /// Highest of its steps.
        derived: ExitStatus,
        /// When.
        at: Timestamp,
        /// Nodes that the step manager had given up.
        #[serde(default)]
        lost: Vec<String>,
        /// Why its script could not be started.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cause: Option<String>,
    },
    /// It could not be launched.
    LaunchFailed {
        /// Reason for users.
        reason: Reason,
        /// Details.
        detail: String,
    },
    /// Steps that started or ended; `StepRows::into` makes it.
    Steps(PackedSteps),
    /// No process of the run is left on this node; `stepd` exits after the acknowledgement.
    Gone,
}
