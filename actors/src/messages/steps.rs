//! What is said to the owner of steps.

use garrick_model::{
    ids::{ArrayTask, JobId, Sluid},
    packed_steps::PackedSteps,
    view::StepView,
};
use std::collections::{BTreeMap, BTreeSet};

/// What the frontend asks, in somebody's name. The answer is what he is told.
#[derive(Clone, Debug, PartialEq)]
pub enum StepsAsk {
    /// A list: `CommandReply::Steps`.
    List {
        /// Number of the question to agents.
        query: u64,
        /// Jobs whose ended steps are wanted too.
        ended: Vec<JobId>,
        /// Which agents to ask about which jobs.
        ask: BTreeMap<String, Vec<JobId>>,
        /// Nodes that cannot be asked.
        missing: Vec<String>,
    },
    /// Where the records of a job are that nobody knows here: `CommandReply::RecordPlaces`.
    Find {
        /// Number of the question to agents.
        query: u64,
        /// Who, by uid.
        by: u32,
        /// Job.
        job: JobId,
        /// Only this run of it.
        run: Option<Sluid>,
        /// The task of a job array that is meant instead of a job.
        task: Option<ArrayTask>,
        /// Which agents to ask.
        ask: BTreeSet<String>,
        /// Nodes that cannot be asked.
        missing: Vec<String>,
    },
}

/// What may happen.
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
        /// Lines that are not there because the list is too long.
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
    /// That node answers nothing any more.
    NodeGone(String),
    /// Of the jobs that [`WhichAreKnown`](crate::steps::effects::StepsErrand::WhichAreKnown) named, these are known.
    Known(BTreeSet<JobId>),
    /// A question took too long.
    Late(StepsTimer),
}

/// How long agents may take to answer the question with this number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepsTimer(pub u64);
