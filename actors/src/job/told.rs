//! Messages about a job in the operator's log: one line for each step of its life, and for each command.

use crate::messages::job::{Authority, JobCommand};
use garrick_events::records::{
    job::{JobRecord, Run},
    job_event::JobEvent,
};
use garrick_model::hostlist;

fn nodes_of(run: Option<&Run>) -> String {
    hostlist::fold(run.iter().flat_map(|run| &run.allocation.nodes).map(|node| node.name.as_str()))
}

/// Logs an event of a job; `record` is the state after the event.
pub fn tell(record: &JobRecord, event: &JobEvent) {
    if !tracing::enabled!(tracing::Level::INFO) {
        return;
    }
    let job_id = record.id.0;
    let run = record.phase.run();
    match event {
        // Not `Started`: a short job may be over before its step manager reports that it is ready.
        JobEvent::Allocated(_) => {
            let user = record.owner.user.as_str();
            let partition = run.map(|run| run.allocation.partition.as_str());
            tracing::info!(job_id, user, partition, nodes = nodes_of(run), restarts = record.restarts, "job.started");
        }
        JobEvent::Ended(end) => {
            let by = run.and_then(|run| run.ending.as_ref()?.by);
            let (exit, state, reason) = (end.exit.to_string(), end.state, &end.reason);
            tracing::info!(job_id, ?state, ?reason, exit, nodes = nodes_of(run), by, "job.ended");
        }
        JobEvent::Requeued { hold, .. } => {
            tracing::info!(job_id, restarts = record.restarts, ?hold, "job.requeued");
        }
        _ => {}
    }
}

/// The name of a command in the log.
pub const fn name_of(command: &JobCommand) -> Option<&'static str> {
    match command {
        JobCommand::Cancel => Some("job.cancel_asked"),
        JobCommand::Requeue { .. } | JobCommand::RequeueSpecialExit => Some("job.requeue_asked"),
        JobCommand::Suspend => Some("job.suspend_asked"),
        JobCommand::Resume => Some("job.resume_asked"),
        JobCommand::Hold { .. } => Some("job.hold_asked"),
        JobCommand::Release => Some("job.release_asked"),
        JobCommand::Signal { .. }
        | JobCommand::Update(_)
        | JobCommand::Revise(_)
        | JobCommand::FinishAllocation { .. } => None,
    }
}

/// Logs a command that was carried out.
pub fn tell_of_command(record: &JobRecord, by: Authority, what: &str) {
    tracing::info!(job_id = record.id.0, by = by.uid, "{what}");
}
