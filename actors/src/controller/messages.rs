//! What the front accepts, as the wiring sends it.

use super::{
    front::{core::FrontCore, messages::FrontInput, shell::FrontGift},
    ports::{AgentLink, ReplySink},
};
use crate::{job::messages::report_name, node::messages::Registration, owner::actor::OwnerMsg};
use garrick_model::{
    config::Config,
    messages::{
        command::{Caller, CommandRequest},
        node::{Joining, NodeToController},
    },
};
use std::sync::Arc;

/// Messages of the front.
pub type ControllerMsg = OwnerMsg<FrontCore>;

impl ControllerMsg {
    /// An agent connected and sent its `Register`. The front answers `Welcome` or `Declined` over `link`. The name in the
    /// registration is one which the connection's identity was checked against; its `conn` is unique among all connections since
    /// the controller started. `joining`: what node it is and where it comes from, when `slurm.conf` need not have it.
    pub fn agent_connected(
        node: String,
        registration: Box<Registration>,
        link: Arc<dyn AgentLink>,
        joining: Option<(Box<Joining>, String)>,
    ) -> Self {
        let gift = FrontGift::Link(registration.conn, link);
        Self::Hand { gift, input: Some(FrontInput::Connected { node, registration, joining }) }
    }

    /// That connection is gone.
    pub const fn agent_gone(node: String, conn: u64) -> Self {
        Self::Input(FrontInput::AgentGone { node, conn })
    }

    /// Any frame of an agent but `Register`, in the order of arrival.
    pub const fn agent_message(node: String, conn: u64, message: Box<NodeToController>) -> Self {
        Self::Input(FrontInput::AgentSaid { node, conn, message })
    }

    /// A command at the controller's own door, of a caller whom the kernel names. `bytes`: what it takes where it is sent.
    pub fn command(caller: Caller, command: Box<CommandRequest>, bytes: usize, replies: Box<dyn ReplySink>) -> Self {
        Self::Hand { gift: FrontGift::Replies(replies), input: Some(FrontInput::Asked { caller, command, bytes }) }
    }

    /// The configuration was read again. Whoever is to be told waits until everybody may see it.
    pub fn config_changed(config: Arc<Config>, replies: Option<Box<dyn ReplySink>>) -> Self {
        let input = FrontInput::ConfigRead { config, waits: replies.is_some() };
        match replies {
            Some(replies) => Self::Hand { gift: FrontGift::Replies(replies), input: Some(input) },
            None => Self::Input(input),
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
