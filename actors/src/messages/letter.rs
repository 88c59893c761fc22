//! Messages from one owner to another.

use super::{
    crontab::CrontabInput,
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

/// The receiver and the message.
#[derive(Clone, Debug, PartialEq)]
pub enum Letter {
    /// To a job's owner.
    Job(JobId, JobInput),
    /// To a node's owner, by name.
    Node(String, NodeInput),
    /// To the owner of licenses.
    Licenses(LicenseInput),
    /// To the scheduler: the result of a proposal.
    Outcome {
        /// Pass that the proposal came from.
        pass: u64,
        /// The owner accepted it.
        accepted: bool,
    },
    /// To the supervisor: a job that was just saved needs an owner.
    Begin {
        /// As it was saved.
        record: Box<JobRecord>,
        /// Its owner's first input.
        first: Option<Box<JobInput>>,
    },
    /// To the owner of crontabs.
    Crontabs(CrontabInput),
    /// To the owner of steps.
    Steps(StepsInput),
    /// To those that depend on the configuration: what is new in it.
    News(ConfigNews),
}

/// What is new in the configuration, and for whom.
#[derive(Clone, Debug, PartialEq)]
pub enum ConfigNews {
    /// To the supervisor of nodes: the settings of a node, which needs an owner.
    Node(Box<NodeSettings>),
    /// To the same: the node is not configured any more.
    NoNode(String),
    /// To the supervisor of partitions.
    Partitions {
        /// The file was read again; otherwise nodes or partitions came or went.
        read_again: bool,
    },
    /// To all jobs' owners: settings for all jobs have changed.
    Jobs,
    /// To the scheduler and to the owner of power saving: the site's policy has changed.
    Policy,
}

impl Letter {
    /// The letters in place of an owner that is gone for good, so that nobody waits for it.
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

/// For an unknown job: its runs end, its shares are released, reports about it are acknowledged.
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

/// Ends a run that its node has and that is not wanted any more: the node was lost, and came back with it before its owner was
/// told that the run is over.
pub fn end_lost(job: JobId, node: String, sluid: Sluid) -> Letter {
    Letter::Node(node, NodeInput::Send(Box::new(end_of_lost(job, sluid))))
}

/// The message to the agent in that case.
pub fn end_of_lost(job: JobId, sluid: Sluid) -> ControllerToNode {
    let (state, reason) = (JobState::NodeFail, Reason::NodeDown);
    ControllerToNode::EndJob { job, sluid, state, reason, lost: Vec::new() }
}
