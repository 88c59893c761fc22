//! The frontend's inputs, its questions to owners, and its effects at ports.

use super::shares::SharesAsk;
use crate::{
    log::Saved,
    messages::crontab::InstallCrontab,
    messages::{
        job::{Authority, JobAnswer, JobAsk},
        names::{agent_message_name, request_name},
        node::{NodeAsk, Registration},
        steps::StepsAsk,
    },
    partition::messages::PartitionUpdate,
    reservation::owner::ReservationAsk,
    roster::core::RosterAsk,
    scheduler::messages::SchedulerAsk,
    submission::{
        core::SubmissionErrand,
        job_submit::{SiteAnswer, SiteAsk},
    },
    trigger::core::TriggerAsk,
};
use garrick_model::{
    config::{Config, LogChange},
    ids::{JobId, RequestId, Sluid},
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

/// The frontend's inputs. Requests are numbered as they come; 0 is used for no request.
#[derive(Debug)]
pub enum FrontendInput {
    /// The actor's life begins.
    Begun {
        /// Submissions whose jobs exist.
        answered: Vec<(RequestId, JobId)>,
        /// Submissions of an earlier life that are in progress.
        entering: Vec<RequestId>,
        /// Monotonic time from an arbitrary start.
        clock: Duration,
    },
    /// The log has answered a submission.
    Heard {
        /// Submission.
        id: RequestId,
        /// The log's answer.
        result: Saved,
    },
    /// Answer to [`FrontendErrand::Settle`].
    Settled {
        /// Submission.
        id: RequestId,
        /// Those of its jobs that exist now; the one that the reply names comes first.
        jobs: Vec<JobId>,
        /// The log's answer.
        result: Saved,
        /// Monotonic time from an arbitrary start.
        clock: Duration,
    },
    /// A command that expects an answer. It is served when its user's turn comes.
    Asked {
        /// Who.
        caller: Caller,
        /// What.
        command: Box<CommandRequest>,
        /// Its size as sent.
        bytes: usize,
    },
    /// Answer to [`FrontendErrand::Next`].
    Next,
    /// Answer to [`FrontendErrand::Turn`]: the requester still waits.
    Turn {
        /// Request.
        request: u64,
        /// Who.
        caller: Caller,
        /// What.
        command: Box<CommandRequest>,
    },
    /// Answer to [`FrontendErrand::Ask`].
    Answered {
        /// Question.
        question: u64,
        /// The answers, in the order of the questions.
        said: Vec<Said>,
    },
    /// Answer to [`FrontendErrand::When`].
    Told {
        /// Request.
        request: u64,
        /// Reply; `None`: it failed.
        reply: Option<CommandReply>,
    },
    /// Answer to [`FrontendErrand::Shares`].
    Shown {
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
        /// For a dynamic node, its own description and its address.
        joining: Option<(Box<Joining>, String)>,
    },
    /// An agent's connection is gone.
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
        /// A requester waits for the answer.
        waits: bool,
    },
    /// What jobs are told of their site has changed: followers of the log, or what accounting knows.
    SiteChanged,
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
            Self::Shown { .. } => "Shown",
            Self::Connected { .. } => "AgentConnected",
            Self::AgentGone { .. } => "AgentGone",
            Self::AgentSaid { message, .. } => agent_message_name(message),
            Self::ConfigRead { .. } => "ConfigChanged",
            Self::SiteChanged => "SiteChanged",
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
        /// It may still be starting, or be that of an earlier node of the name.
        starting: bool,
    },
    /// To a partition's owner, after all that it has been told of the configuration.
    Partition(String, PartitionUpdate),
    /// To the roster's owner.
    Roster(RosterAsk),
    /// To reservations' owner.
    Reservations(ReservationAsk),
    /// To the site's own checks.
    Site(Box<SiteAsk>),
    /// To crontabs' owner.
    Crontab(InstallCrontab),
    /// To triggers' owner.
    Trigger(TriggerAsk),
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

/// A question whose answer goes directly to the command. It may be long, so it does not pass through the frontend.
#[derive(Clone, Debug)]
pub enum Passed {
    /// To the owner of steps.
    Steps(StepsAsk),
    /// To the scheduler, and the reply if there is none.
    Scheduler(SchedulerAsk, CommandReply),
}

/// The answer to a question.
#[derive(Clone, Debug, PartialEq)]
pub enum Said {
    /// Done, or why not.
    Done(Result<(), Refusal>),
    /// By a job.
    Job(JobAnswer),
    /// From the owner of reservations: the name of the reservation.
    Reservation(Result<String, Refusal>),
    /// By the site's own checks.
    Checked(Result<Box<SiteAnswer>, Refusal>),
    /// Number of certificates.
    Revoked(Result<usize, Refusal>),
    /// There is no owner to ask.
    Nobody,
    /// No answer within the time.
    Late,
    /// No answer: the owner failed over the question, or is gone.
    Gone(AskError),
}

impl Said {
    /// Done, or why not; `None`: no answer.
    pub fn done(self) -> Option<Result<(), Refusal>> {
        match self {
            Self::Done(result) | Self::Job(JobAnswer::Done(result)) => Some(result),
            _ => None,
        }
    }
}

/// Requests that concern the process, which answers them itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostAsk {
    /// `Ping`.
    Identity,
    /// The configuration for display.
    ShowConfig,
    /// Other processes besides the agents.
    Daemons,
    /// Read the configuration again.
    Reconfigure,
    /// End.
    Shutdown,
    /// A token with which commands act as a user.
    UserToken {
        /// Whose.
        user: String,
        /// How long it holds.
        lifespan: Duration,
    },
    /// A token with which agents can join.
    JoinToken {
        /// How long it is valid.
        lifetime: Duration,
        /// For that node only.
        node: Option<String>,
    },
    /// Certificates that the authority issued.
    Certs,
    /// Have these nodes ask for new certificates.
    RenewCerts(Vec<String>),
    /// Replace the cluster's authority.
    RotateAuthority {
        /// Continue although some have not been reached.
        leave_behind: bool,
    },
    /// Messages that actors handled.
    CountMessages(Vec<String>),
}

/// The frontend's effects.
#[derive(Clone, Debug)]
pub enum FrontendErrand {
    /// Send `Next` to itself, behind the messages that are waiting.
    Next,
    /// It is the request's turn: return it if the requester still waits, and keep the result for the audit log.
    Turn {
        /// Request.
        request: u64,
        /// Who.
        caller: Caller,
        /// What.
        command: Box<CommandRequest>,
    },
    /// A request is answered without a turn; keep the result for the audit log.
    Audit {
        /// Request.
        request: u64,
        /// Who.
        caller: Caller,
        /// What.
        command: Box<CommandRequest>,
    },
    /// The sender of the current message waits for the answer to this request.
    Take(u64),
    /// Return the jobs of a submission that exist, after the log's answer.
    Settle {
        /// Submission.
        id: RequestId,
        /// The log's answer.
        result: Saved,
    },
    /// The request is not answered.
    Drop(u64),
    /// Ask, and collect the answers.
    Ask {
        /// Question; 0: no answer is needed.
        question: u64,
        /// The questions.
        asks: Vec<Ask>,
        /// Time limit for the answers.
        within: Option<Duration>,
    },
    /// Have another part answer a request directly.
    Pass {
        /// Request.
        request: u64,
        /// Whom and what to ask.
        to: Passed,
    },
    /// Compute when these jobs would start together, the first not before that time. This makes a plan and takes time.
    When {
        /// Request.
        request: u64,
        /// Jobs.
        jobs: Vec<JobView>,
        /// Earliest time.
        at: Timestamp,
        /// What the site's own checks say to the user.
        said: Vec<String>,
    },
    /// Compute shares, usage and loads of associations, at that time. This walks all of them, and all jobs.
    Shares {
        /// Request.
        request: u64,
        /// What of it.
        ask: SharesAsk,
        /// When.
        at: Timestamp,
    },
    /// Tell the commands that watch the job.
    Notify {
        /// Job.
        job: JobId,
        /// What.
        text: String,
    },
    /// Carry it out, and answer.
    Host(u64, HostAsk),
    /// Collect what the controller counted, and answer.
    ShowStatistics(u64),
    /// Have the counters begin anew, and answer.
    ResetStatistics(u64),
    /// Change this process's log.
    ChangeLog(LogChange),
    /// Effects of submissions.
    Submission(SubmissionErrand),
    /// Send a job's views to the requester until it is over, and what its owner is told of it (`scontrol notify`).
    Watch {
        /// Request.
        request: u64,
        /// Job.
        job: JobId,
        /// Who asks.
        by: Authority,
    },
    /// Send traces of this process, and of these nodes, which are asked.
    Trace {
        /// Request.
        request: u64,
        /// Number of the question to nodes, if there is one.
        query: Option<u64>,
        /// Of actors below these paths.
        prefixes: Vec<String>,
        /// Later records too.
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
    /// Compute the settings for jobs again.
    RenewSite,
    /// About agents and their connections.
    Agent(AgentErrand),
}

/// What is to be done about agents and their connections.
#[derive(Clone, Debug)]
pub enum AgentErrand {
    /// Replies to a request go through the door of this node.
    Door {
        /// Request.
        request: u64,
        /// Node.
        node: String,
        /// The agent's number for it.
        query: u64,
    },
    /// The command at that door went away.
    DoorLeft {
        /// Node.
        node: String,
        /// The agent's number for it.
        query: u64,
    },
    /// Tell all agents to end.
    ShutAgentsDown,
    /// From now on an agent is reached through this connection.
    OpenLink {
        /// Node.
        node: String,
        /// Connection.
        conn: u64,
    },
    /// A node's connection is gone.
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
        /// The owner may still be starting.
        starting: bool,
    },
    /// Tell an agent why it is refused, and close its connection.
    Decline {
        /// Node.
        node: String,
        /// Connection.
        conn: u64,
        /// Why.
        refusal: Refusal,
        /// Runs that it has and is to end first.
        lost: Vec<(JobId, Sluid)>,
    },
    /// A newer connection replaced this one: close it.
    LetGo {
        /// Connection.
        conn: u64,
    },
}
