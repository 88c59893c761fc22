//! Messages to the owner of steps.

use garrick_model::{
    ids::{ArrayTask, JobId, Sluid},
    packed_steps::PackedSteps,
    view::StepView,
};
use std::collections::{BTreeMap, BTreeSet};

/// The frontend's questions, for a user. The answer is sent to the user.
#[derive(Clone, Debug, PartialEq)]
pub enum StepsAsk {
    /// A list: `CommandReply::Steps`.
    List {
        /// Number of the question to agents.
        query: u64,
        /// Jobs whose ended steps are requested too.
        ended: Vec<JobId>,
        /// Which agents to ask about which jobs.
        ask: BTreeMap<String, Vec<JobId>>,
        /// Nodes that cannot be asked.
        missing: Vec<String>,
    },
    /// The places of the records of an unknown job: `CommandReply::RecordPlaces`.
    Find {
        /// Number of the question to agents.
        query: u64,
        /// Who, by uid.
        by: u32,
        /// Job.
        job: JobId,
        /// Only this run of it.
        run: Option<Sluid>,
        /// A task of a job array, instead of a job.
        task: Option<ArrayTask>,
        /// Which agents to ask.
        ask: BTreeSet<String>,
        /// Nodes that cannot be asked.
        missing: Vec<String>,
    },
}

/// Inputs of the owner of steps.
#[derive(Clone, Debug, PartialEq)]
pub enum StepsInput {
    /// Somebody asks.
    Asked {
        /// Request.
        request: u64,
        /// What.
        ask: StepsAsk,
    },
    /// A run's step manager reported. Repeatable.
    Reported {
        /// Job.
        job: JobId,
        /// Run.
        sluid: Sluid,
        /// Steps.
        steps: PackedSteps,
    },
    /// An agent's answer.
    Listed {
        /// Question.
        query: u64,
        /// Node.
        node: String,
        /// Steps.
        steps: Vec<StepView>,
        /// Managers that did not answer.
        missing: Vec<String>,
        /// Number of lines left out because the list is too long.
        left_out: u64,
    },
    /// An agent's answer.
    Found {
        /// Question.
        query: u64,
        /// Node.
        node: String,
        /// Where its daemon listens.
        address: String,
        /// Runs whose records it has.
        runs: Vec<Sluid>,
    },
    /// That node no longer answers.
    NodeGone(String),
    /// The known jobs among those that [`WhichAreKnown`](crate::steps::effects::StepsErrand::WhichAreKnown) named.
    Known(BTreeSet<JobId>),
    /// A question took too long.
    Late(StepsTimer),
}

/// How long agents may take to answer the question with this number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepsTimer(pub u64);
