//! What the frontend is told, what it asks owners, and what it has done at ports.

use crate::{
    log::Saved,
    messages::{
        job::{JobAnswer, JobAsk},
        names::{agent_message_name, request_name},
        node::{NodeAsk, Registration},
        steps::StepsAsk,
    },
    partition::messages::PartitionUpdate,
    reservation::owner::ReservationAsk,
    roster::core::RosterAsk,
    scheduler::messages::SchedulerAsk,
    submission::core::SubmissionErrand,
};
use garrick_model::{
    config::{Config, LogChange},
    ids::{JobId, RequestId},
    messages::{
        command::{Caller, CommandReply, CommandRequest, TraceLine},
        node::{Joining, NodeToController},
    },
    refusal::Refusal,
    time::Timestamp,
    view::JobView,
};
use garrick_runtime::AskError;
use std::{sync::Arc, time::Duration};

/// What may happen to the frontend. Requests get numbers as they come; 0 is nobody's.
#[derive(Debug)]
pub enum FrontendInput {
    /// A life begins.
    Begun {
        /// Submissions of jobs that are there.
        answered: Vec<(RequestId, JobId)>,
        /// Those that an earlier life had under way.
        entering: Vec<RequestId>,
        /// Time by a clock that nobody sets, from any beginning.
        clock: Duration,
    },
    /// The log has answered for a submission.
    Heard {
        /// Submission.
        id: RequestId,
        /// What the log said.
        result: Saved,
    },
    /// What [`FrontendErrand::Settle`] asked for.
    Settled {
        /// Submission.
        id: RequestId,
        /// Its jobs, where they are there now, the one that is answered first.
        jobs: Vec<JobId>,
        /// What the log said.
        result: Saved,
        /// Time by a clock that nobody sets, from any beginning.
        clock: Duration,
    },
    /// Somebody asks, who is there to be answered. He is served when his turn comes.
    Asked {
        /// Who.
        caller: Caller,
        /// What.
        command: Box<CommandRequest>,
        /// What it takes where it is sent.
        bytes: usize,
    },
    /// What [`FrontendErrand::Next`] asked for.
    Next,
    /// What [`FrontendErrand::Turn`] asked for: somebody waits for the answer.
    Turn {
        /// Request.
        request: u64,
        /// Who.
        caller: Caller,
        /// What.
        command: Box<CommandRequest>,
    },
    /// What [`FrontendErrand::Ask`] asked for.
    Answered {
        /// Question.
        question: u64,
        /// What each said who was asked, in that order.
        said: Vec<Said>,
    },
    /// What [`FrontendErrand::When`] asked for.
    Told {
        /// Request.
        request: u64,
        /// Reply; `None`: it failed.
        reply: Option<CommandReply>,
    },
    /// An agent connected.
    Connected {
        /// Node that it says it is.
        node: String,
        /// Registration.
        registration: Box<Registration>,
        /// What node it is and where it comes from, when `slurm.conf` need not have it.
        joining: Option<(Box<Joining>, String)>,
    },
    /// That connection is gone.
    AgentGone {
        /// Node.
        node: String,
        /// Connection.
        conn: u64,
    },
    /// An agent's frame.
    AgentSaid {
        /// Node.
        node: String,
        /// Connection.
        conn: u64,
        /// Frame.
        message: Box<NodeToController>,
    },
    /// The configuration was read again.
    ConfigRead {
        /// What the file says.
        config: Arc<Config>,
        /// Somebody is there to be answered.
        waits: bool,
    },
    /// Followers of the log were registered, or unregistered.
    FollowersChanged,
}

impl FrontendInput {
    /// Its name, for traces.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Begun { .. } => "Begun",
            Self::Heard { .. } | Self::Settled { .. } => "Submitted",
            Self::Asked { command, .. } | Self::Turn { command, .. } => request_name(command),
            Self::Next => "Serve",
            Self::Answered { .. } => "Answered",
            Self::Told { .. } => "Told",
            Self::Connected { .. } => "AgentConnected",
            Self::AgentGone { .. } => "AgentGone",
            Self::AgentSaid { message, .. } => agent_message_name(message),
            Self::ConfigRead { .. } => "ConfigChanged",
            Self::FollowersChanged => "FollowersChanged",
        }
    }
}

/// A question to an owner, or to a port that answers later.
#[derive(Clone, Debug)]
pub enum Ask {
    /// To a job's owner.
    Job(JobId, JobAsk),
    /// To a node's owner.
    Node {
        /// Node.
        node: String,
        /// What.
        ask: NodeAsk,
        /// It may be only just being started, or be that of one before it.
        starting: bool,
    },
    /// To a partition's owner, behind what it has been told of the configuration.
    Partition(String, PartitionUpdate),
    /// To the roster's owner.
    Roster(RosterAsk),
    /// To reservations' owner.
    Reservations(ReservationAsk),
    /// To the authority: revoke the certificates of these nodes.
    Revoke(Vec<String>),
    /// To a node's daemon: change its log.
    ChangeLog {
        /// Node.
        node: String,
        /// Change.
        change: LogChange,
    },
}

/// A question whose answer is what the command is told. It may be long: it does not come by the frontend.
#[derive(Clone, Debug)]
pub enum Passed {
    /// To the owner of steps.
    Steps(StepsAsk),
    /// To the scheduler, and what is told where there is none.
    Scheduler(SchedulerAsk, CommandReply),
}

/// What was answered.
#[derive(Clone, Debug, PartialEq)]
pub enum Said {
    /// Done, or why not.
    Done(Result<(), Refusal>),
    /// By a job.
    Job(JobAnswer),
    /// By reservations' owner: the name of the one that it is about.
    Reservation(Result<String, Refusal>),
    /// How many certificates there were.
    Revoked(Result<usize, Refusal>),
    /// There is nobody to be asked.
    Nobody,
    /// Nothing, in the time that there was.
    Late,
    /// Nothing: it failed over the question, or is gone.
    Gone(AskError),
}

impl Said {
    /// Done, or why not; `None`: nobody said so.
    pub fn done(self) -> Option<Result<(), Refusal>> {
        match self {
            Self::Done(result) | Self::Job(JobAnswer::Done(result)) => Some(result),
            _ => None,
        }
    }
}

/// What of a command concerns the process: it answers by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostAsk {
    /// Are you there?
    Identity,
    /// The configuration as it is shown.
    ShowConfig,
    /// Processes beside the agents.
    Daemons,
    /// Read the configuration again.
    Reconfigure,
    /// End.
    Shutdown,
    /// A token for agents to join by.
    JoinToken {
        /// How long it is good.
        lifetime: Duration,
        /// For that node only.
        node: Option<String>,
    },
    /// What the authority issued.
    Certs,
    /// Have these nodes ask for new certificates.
    RenewCerts(Vec<String>),
    /// Replace the authority.
    RotateAuthority {
        /// Whoever is not reached.
        leave_behind: bool,
    },
    /// Messages that actors handled.
    CountMessages(Vec<String>),
}

/// What the frontend has done.
#[derive(Clone, Debug)]
pub enum FrontendErrand {
    /// Come again behind what has come meanwhile.
    Next,
    /// It is that request's turn: come again with it if somebody waits for the answer, keeping what comes of it.
    Turn {
        /// Request.
        request: u64,
        /// Who.
        caller: Caller,
        /// What.
        command: Box<CommandRequest>,
    },
    /// A request is answered without a turn, and what comes of it is kept.
    Audit {
        /// Request.
        request: u64,
        /// Who.
        caller: Caller,
        /// What.
        command: Box<CommandRequest>,
    },
    /// Whoever came with what is handled now waits for the answer to that request.
    Take(u64),
    /// Say which jobs of a submission are there, of which the log has said that.
    Settle {
        /// Submission.
        id: RequestId,
        /// What the log said.
        result: Saved,
    },
    /// Replies to a request go to the door of that node.
    Door {
        /// Request.
        request: u64,
        /// Node.
        node: String,
        /// The agent's number for it.
        query: u64,
    },
    /// Whoever asked there went away.
    DoorLeft {
        /// Node.
        node: String,
        /// The agent's number for it.
        query: u64,
    },
    /// Nobody answers that request.
    Drop(u64),
    /// Ask, and bring the answers together.
    Ask {
        /// Question; of 0 no answer is wanted.
        question: u64,
        /// Whom, and what.
        asks: Vec<Ask>,
        /// For so long only.
        within: Option<Duration>,
    },
    /// Have who can answer a request answer it.
    Pass {
        /// Request.
        request: u64,
        /// Whom, and what.
        to: Passed,
    },
    /// Say when these jobs would start, all at once, the first by that time. It takes a plan, and time.
    When {
        /// Request.
        request: u64,
        /// Jobs.
        jobs: Vec<JobView>,
        /// Not before.
        at: Timestamp,
    },
    /// See to it, and answer.
    Host(u64, HostAsk),
    /// Change this process's log.
    ChangeLog(LogChange),
    /// Tell all agents to end.
    ShutAgentsDown,
    /// What submissions have done.
    Submission(SubmissionErrand),
    /// Show a job to whoever asks until it is over.
    Watch {
        /// Request.
        request: u64,
        /// Job.
        job: JobId,
    },
    /// Show traces of this process and of these nodes, which are asked.
    Trace {
        /// Request.
        request: u64,
        /// Number of the question to nodes, if there is one.
        query: Option<u64>,
        /// Of actors below these paths.
        prefixes: Vec<String>,
        /// What comes later too.
        follow: bool,
        /// Nodes.
        nodes: Vec<String>,
    },
    /// An agent's part of a trace.
    Traced {
        /// Query.
        query: u64,
        /// Node.
        node: String,
        /// Records.
        records: Vec<TraceLine>,
        /// The last ones.
        last: bool,
    },
    /// The way to an agent is that connection's from now on.
    OpenLink {
        /// Node.
        node: String,
        /// Connection.
        conn: u64,
    },
    /// A node's connection is gone, with all that went over it.
    CloseLink {
        /// Node.
        node: String,
        /// Connection.
        conn: u64,
    },
    /// Hand an agent to its node's owner.
    Welcome {
        /// Node.
        node: String,
        /// Registration.
        registration: Box<Registration>,
        /// The owner may be only just being started.
        starting: bool,
    },
    /// Tell an agent why it is not taken, and let it go.
    Decline {
        /// Node.
        node: String,
        /// Connection.
        conn: u64,
        /// Why.
        refusal: Refusal,
    },
    /// Another connection took its place: let it go.
    LetGo {
        /// Connection.
        conn: u64,
    },
    /// What holds for jobs is to be made anew.
    RenewSite,
}
