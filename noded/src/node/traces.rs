//! Trace records of this process, as they travel.

use garrick_actors::trace_line::trace_line;
use garrick_model::messages::command::TraceLine;
use garrick_runtime::System;

/// Gives the records under `prefixes` to `tell`: once, or for as long as the handle is not aborted.
pub fn serve(
    system: &System,
    process: String,
    prefixes: Vec<String>,
    follow: bool,
    mut tell: impl FnMut(Vec<TraceLine>) + 'static,
) -> Option<tokio::task::AbortHandle> {
    let now: Vec<TraceLine> = system.traces().collect(&prefixes).iter().map(|r| trace_line(&process, r)).collect();
    if !follow {
        tell(now);
        return None;
    }
    let mut follower = system.traces().follow(prefixes);
    let task = actix_rt::spawn(async move {
        tell(now);
        loop {
            let (batch, lost) = follower.next_batch().await;
            let mut lines: Vec<TraceLine> = batch.iter().map(|r| trace_line(&process, r)).collect();
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
