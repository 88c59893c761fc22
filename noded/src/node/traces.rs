//! Trace records of this process, as they travel.

use garrick_model::messages::command::TraceLine;
use garrick_runtime::{Outcome, System, TraceRecord};

/// A record under the name of the process that it comes from.
pub fn line(process: &str, record: &TraceRecord) -> TraceLine {
    TraceLine {
        process: process.to_owned(),
        seq: record.seq,
        at_us: record.at_us,
        trace: record.trace,
        id: record.id,
        cause: record.cause,
        actor: record.actor.to_string(),
        message: record.message.to_owned(),
        queue_us: record.queue_us,
        handle_us: record.handle_us,
        outcome: match &record.outcome {
            Outcome::Ok => "ok".into(),
            Outcome::Panic(what) => format!("panic: {what}"),
            Outcome::Dropped => "dropped".into(),
        },
    }
}

/// Gives the records under `prefixes` to `tell`: once, or for as long as the handle is not aborted.
pub fn serve(
    system: &System,
    process: String,
    prefixes: Vec<String>,
    follow: bool,
    mut tell: impl FnMut(Vec<TraceLine>) + 'static,
) -> Option<tokio::task::AbortHandle> {
    let now: Vec<TraceLine> = system.traces().collect(&prefixes).iter().map(|r| line(&process, r)).collect();
    if !follow {
        tell(now);
        return None;
    }
    let mut follower = system.traces().follow(prefixes);
    let task = actix_rt::spawn(async move {
        tell(now);
        loop {
            let (batch, lost) = follower.next_batch().await;
            let mut lines: Vec<TraceLine> = batch.iter().map(|r| line(&process, r)).collect();
            if lost > 0
                && let Some(first) = lines.first_mut()
            {
                first.outcome.push_str(&format!(" ({lost} records before this one were lost)"));
            }
            tell(lines);
        }
    });
    Some(task.abort_handle())
}
