//! Names of what agents and commands send, for traces and counts.

use garrick_model::messages::{
    command::{CommandRequest, JobAction},
    node::{AgentReport, NodeToController},
};

/// Name of an agent's report, for traces and counts: those of steps are told apart, since there may be many.
pub const fn report_name(report: &AgentReport) -> &'static str {
    match report {
        AgentReport::Steps { .. } => "StepReport",
        _ => "Report",
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

/// Name of a command's request where requests are counted: what is done to jobs is told apart, as in Slurm.
pub const fn counted_name(request: &CommandRequest) -> &'static str {
    match request {
        CommandRequest::ControlJob { action, .. } => match action {
            JobAction::Hold | JobAction::UserHold | JobAction::Release => "UpdateJob",
            JobAction::Requeue | JobAction::RequeueHold | JobAction::RequeueSpecialExit => "RequeueJob",
            JobAction::Suspend | JobAction::Resume => "SuspendJob",
            JobAction::Top => "TopJob",
        },
        other => request_name(other),
    }
}

/// Is it answered only when something happens? The time until then says nothing about the controller.
pub const fn waits_on_purpose(request: &CommandRequest) -> bool {
    matches!(request, CommandRequest::WaitJob { .. } | CommandRequest::Watch { .. } | CommandRequest::Trace { .. })
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
        CommandRequest::ListShares => "ListShares",
        CommandRequest::ShowAssociations => "ShowAssociations",
        CommandRequest::ShowStatistics => "ShowStatistics",
        CommandRequest::ResetStatistics => "ResetStatistics",
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
        CommandRequest::OrderSteps { .. } => "OrderSteps",
        CommandRequest::CreateNodes { .. } => "CreateNodes",
        CommandRequest::CreatePartition { .. } => "CreatePartition",
        CommandRequest::DeletePartition { .. } => "DeletePartition",
        CommandRequest::DeleteNodes { .. } => "DeleteNodes",
        CommandRequest::UpdatePartition { .. } => "UpdatePartition",
        CommandRequest::Reconfigure => "Reconfigure",
        CommandRequest::SetLogLevel(_) => "SetLogLevel",
        CommandRequest::ChangeLog { .. } => "ChangeLog",
        CommandRequest::Shutdown { .. } => "Shutdown",
        CommandRequest::CreateJoinToken { .. } => "CreateJoinToken",
        CommandRequest::MakeUserToken { .. } => "MakeUserToken",
        CommandRequest::WithToken { .. } => "WithToken",
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
        CommandRequest::ShowCrontab { .. } => "ShowCrontab",
        CommandRequest::ListTriggers => "ListTriggers",
        CommandRequest::SetTrigger(_) => "SetTrigger",
        CommandRequest::ClearTriggers(_) => "ClearTriggers",
        CommandRequest::InstallCrontab(_) => "InstallCrontab",
    }
}
