//! What one owner says to another.

use super::{
    job::JobInput,
    license::LicenseInput,
    node::{NodeInput, NodeSettings, ReserveRefusal},
    released::Trouble,
    steps::StepsInput,
};
use garrick_events::records::job::JobRecord;
use garrick_model::{
    ids::{JobId, Sluid},
    messages::node::{AgentReport, ControllerToNode},
    state::{JobState, Reason},
};

/// To whom, and what.
#[derive(Clone, Debug, PartialEq)]
pub enum Letter {
    /// To a job's owner.
    Job(JobId, JobInput),
    /// To a node's owner, by name.
    Node(String, NodeInput),
    /// To the owner of licenses.
    Licenses(LicenseInput),
    /// To the scheduler: what came of a proposal.
    Outcome {
        /// Pass that the proposal came from.
        pass: u64,
        /// It is done.
        accepted: bool,
    },
    /// To whoever lets owners live: a job that was just saved is to have one.
    Begin {
        /// As it was saved.
        record: Box<JobRecord>,
        /// What it is told first.
        first: Option<Box<JobInput>>,
    },
    /// To the owner of steps.
    Steps(StepsInput),
    /// To who goes by the configuration: what is new in it.
    News(ConfigNews),
}

/// What is new in the configuration, and for whom.
#[derive(Clone, Debug, PartialEq)]
pub enum ConfigNews {
    /// To whoever lets nodes' owners live: what it says of a node, which is to have an owner.
    Node(Box<NodeSettings>),
    /// To the same: it does not have that node any more.
    NoNode(String),
    /// To whoever lets partitions' owners live.
    Partitions {
        /// The file was read again; otherwise nodes came or went.
        read_again: bool,
    },
    /// To all jobs' owners: what holds for all jobs is another.
    Jobs,
    /// To the scheduler: the site's rules are others.
    Policy,
}

impl Letter {
    /// What is said in the place of an owner that is gone for good, so that nobody waits for it.
    pub fn undeliverable(self) -> Vec<Self> {
        match self {
            Self::Job(job, input) => of_no_job(job, input),
            Self::Node(node, NodeInput::Reserve(ask)) => {
                let result = Err(ReserveRefusal::OutOfService("gone"));
                vec![Self::Job(ask.job, JobInput::Reserved { attempt: ask.attempt, node, result })]
            }
            Self::Node(node, NodeInput::Unpark { job, attempt, .. }) => {
                vec![Self::Job(job, JobInput::Unparked { attempt, node, granted: false })]
            }
            _ => Vec::new(),
        }
    }
}

/// For a job that is not known (any more): its runs end, its shares go back, reports about it are acknowledged.
fn of_no_job(job: JobId, input: JobInput) -> Vec<Letter> {
    let release = |node, sluid, drain| Letter::Node(node, NodeInput::Release { job, sluid, attempt: None, drain });
    let refused = |pass| vec![Letter::Outcome { pass, accepted: false }];
    match input {
        JobInput::Report { node, seq, report } => {
            let mut back = Vec::new();
            if let AgentReport::NodeReleased { sluid, epilog_failed, unkillable, .. } = *report {
                let trouble = Trouble { epilog_failed, unkillable };
                trouble.log(job, &node);
                back.push(release(node.clone(), sluid, trouble.reason()));
            }
            back.push(Letter::Node(node, NodeInput::ReportSafe { seq }));
            back
        }
        // Welcome named it if the node still held it by then.
        JobInput::RunHeld { node, sluid, .. } => vec![end_lost(job, node.clone(), sluid), release(node, sluid, None)],
        JobInput::RunMissing { node, sluid } | JobInput::NodeLost { node, sluid } => vec![release(node, sluid, None)],
        JobInput::Start(proposal) => refused(proposal.pass),
        JobInput::Preempt(proposal) => refused(proposal.pass),
        JobInput::GoOn(proposal) => refused(proposal.pass),
        JobInput::Turn(proposal) => refused(proposal.pass),
        JobInput::Subscribe { by } => vec![Letter::Job(by, JobInput::Fact { job, fact: None })],
        _ => Vec::new(),
    }
}

/// Has a run ended that its node has and nobody wants any more: the node was lost, and came back with it before its owner
/// had heard that the run is over.
pub fn end_lost(job: JobId, node: String, sluid: Sluid) -> Letter {
    Letter::Node(node, NodeInput::Send(Box::new(end_of_lost(job, sluid))))
}

/// What the agent is told then.
pub fn end_of_lost(job: JobId, sluid: Sluid) -> ControllerToNode {
    let (state, reason) = (JobState::NodeFail, Reason::NodeDown);
    ControllerToNode::EndJob { job, sluid, state, reason, lost: Vec::new() }
}
