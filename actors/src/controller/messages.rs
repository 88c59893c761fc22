//! What the front accepts. The wiring sends the first five kinds; the rest the front sends to itself.

use super::{
    env::Saved,
    front::messages::FrontInput,
    ports::{AgentLink, ReplySink},
};
use crate::{job::messages::report_name, node::messages::Registration};
use garrick_model::{
    config::Config,
    ids::RequestId,
    messages::{
        command::{Caller, CommandRequest},
        node::{Joining, NodeToController},
    },
};
use garrick_runtime::Message;
use std::sync::Arc;

/// Messages of the front.
pub enum ControllerMsg {
    /// An agent connected and sent its `Register`. The front answers `Welcome` or `Declined` over `link`.
    AgentConnected {
        /// The name in the registration, which the connection's identity was checked against.
        node: String,
        /// Registration; its `conn` is unique among all connections since the controller started.
        registration: Box<Registration>,
        /// Way to the agent.
        link: Arc<dyn AgentLink>,
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
    /// Any frame of an agent but `Register`, in the order of arrival.
    AgentMessage {
        /// Node.
        node: String,
        /// Connection.
        conn: u64,
        /// Frame.
        message: Box<NodeToController>,
    },
    /// A command at the controller's own door.
    Command {
        /// Who, from the kernel.
        caller: Caller,
        /// What.
        request: Box<CommandRequest>,
        /// What it takes where it is sent.
        bytes: usize,
        /// Where replies go.
        replies: Box<dyn ReplySink>,
    },
    /// The configuration was read again.
    ConfigChanged {
        /// What the file says.
        config: Arc<Config>,
        /// Who waits until everybody may see it.
        replies: Option<Box<dyn ReplySink>>,
    },
    /// From itself: what came of what it had done.
    Input(FrontInput),
    /// The log answered for a submission.
    Submitted {
        /// Submission.
        request: RequestId,
        /// Outcome.
        result: Saved,
    },
    /// Followers of the log were registered, or unregistered: said by whoever did that, once it is answered.
    FollowersChanged,
    /// A query of agents took too long.
    QueryTimeout {
        /// Query.
        query: u64,
    },
    /// Nobody wants the answers of that query any more.
    QueryGone {
        /// Query.
        query: u64,
    },
    /// A handler that fails.
    #[cfg(test)]
    PanicForTests,
}

impl Message for ControllerMsg {
    fn name(&self) -> &'static str {
        match self {
            Self::AgentConnected { .. } => "AgentConnected",
            Self::AgentGone { .. } => "AgentGone",
            Self::AgentMessage { message, .. } => agent_message_name(message),
            Self::Command { request, .. } => request_name(request),
            Self::ConfigChanged { .. } => "ConfigChanged",
            Self::Input(input) => input.name(),
            Self::Submitted { .. } => "Submitted",
            Self::FollowersChanged => "FollowersChanged",
            Self::QueryTimeout { .. } => "QueryTimeout",
            Self::QueryGone { .. } => "QueryGone",
            #[cfg(test)]
            Self::PanicForTests => "PanicForTests",
        }
    }
}

/// Name of an agent's message, for traces and counts.
pub const fn agent_message_name(message: &NodeToController) -> &'static str {
    match message {
        NodeToController::Register { .. } => "Register",
        NodeToController::Heartbeat { .. } => "Heartbeat",
        NodeToController::Report { report, .. } => report_name(report),
        NodeToController::Steps { .. } => "Steps",
        NodeToController::Records { .. } => "Records",
        NodeToController::Trace { .. } => "Trace",
        NodeToController::Command { request, .. } => request_name(request),
        NodeToController::CommandGone { .. } => "CommandGone",
        NodeToController::Renew { .. } => "Renew",
        NodeToController::Holds { .. } => "Holds",
    }
}

/// Name of a command's request, for traces.
pub const fn request_name(request: &CommandRequest) -> &'static str {
    match request {
        CommandRequest::Ping => "Ping",
        CommandRequest::SubmitJob { .. } => "SubmitJob",
        CommandRequest::SubmitHetJob { .. } => "SubmitHetJob",
        CommandRequest::TestJob { .. } => "TestJob",
        CommandRequest::TestHetJob { .. } => "TestHetJob",
        CommandRequest::WaitJob { .. } => "WaitJob",
        CommandRequest::Watch { .. } => "Watch",
        CommandRequest::ListJobs { .. } => "ListJobs",
        CommandRequest::ListNodes => "ListNodes",
        CommandRequest::ListPriorities => "ListPriorities",
        CommandRequest::ListPartitions => "ListPartitions",
        CommandRequest::ListSteps { .. } => "ListSteps",
        CommandRequest::ShowConfig => "ShowConfig",
        CommandRequest::ShowScript { .. } => "ShowScript",
        CommandRequest::LocateStepManager { .. } => "LocateStepManager",
        CommandRequest::FindRecords { .. } => "FindRecords",
        CommandRequest::AskRun { .. } => "AskRun",
        CommandRequest::Cancel(_) => "Cancel",
        CommandRequest::ControlJob { .. } => "ControlJob",
        CommandRequest::UpdateJob { .. } => "UpdateJob",
        CommandRequest::UpdateNode { .. } => "UpdateNode",
        CommandRequest::CreateNodes { .. } => "CreateNodes",
        CommandRequest::DeleteNodes { .. } => "DeleteNodes",
        CommandRequest::UpdatePartition { .. } => "UpdatePartition",
        CommandRequest::Reconfigure => "Reconfigure",
        CommandRequest::SetLogLevel(_) => "SetLogLevel",
        CommandRequest::ChangeLog { .. } => "ChangeLog",
        CommandRequest::Shutdown { .. } => "Shutdown",
        CommandRequest::CreateJoinToken { .. } => "CreateJoinToken",
        CommandRequest::ListCerts => "ListCerts",
        CommandRequest::RevokeCerts { .. } => "RevokeCerts",
        CommandRequest::RenewCerts { .. } => "RenewCerts",
        CommandRequest::RotateAuthority { .. } => "RotateAuthority",
        CommandRequest::Trace { .. } => "Trace",
        CommandRequest::FinishAllocation { .. } => "FinishAllocation",
        CommandRequest::ListDaemons => "ListDaemons",
        CommandRequest::ListLicenses => "ListLicenses",
        CommandRequest::ListTopologies => "ListTopologies",
        CommandRequest::ListReservations => "ListReservations",
        CommandRequest::NameNodes(_) => "NameNodes",
        CommandRequest::Explain { .. } => "Explain",
        CommandRequest::CreateReservation(_) => "CreateReservation",
        CommandRequest::UpdateReservation(_) => "UpdateReservation",
        CommandRequest::DeleteReservation { .. } => "DeleteReservation",
        CommandRequest::CountMessages { .. } => "CountMessages",
    }
}
