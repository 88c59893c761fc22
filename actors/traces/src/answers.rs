//! Trace records of this process, as they travel.

use crate::line::trace_line;
use garrick_model::messages::command::TraceLine;
use garrick_runtime::System;
use std::collections::HashMap;
use tokio::task::AbortHandle;

/// Answers questions about the trace records of this process.
pub struct Traces {
    system: System,
    /// Name of this process in them.
    process: String,
    /// Questions that are answered on and on.
    follows: HashMap<u64, AbortHandle>,
}

impl Traces {
    /// Of that system.
    pub fn new(system: System, process: String) -> Self {
        Self { system, process, follows: HashMap::new() }
    }

    /// Gives the records under `prefixes` to `tell`: once, or until [`Self::stop`].
    pub fn serve(
        &mut self,
        query: u64,
        prefixes: Vec<String>,
        follow: bool,
        mut tell: impl FnMut(Vec<TraceLine>) + 'static,
    ) {
        let (traces, process) = (self.system.traces(), self.process.clone());
        let now: Vec<TraceLine> = traces.collect(&prefixes).iter().map(|r| trace_line(&process, r)).collect();
        if !follow {
            return tell(now);
        }
        let mut follower = traces.follow(prefixes);
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
        self.follows.insert(query, task.abort_handle());
    }

    /// That question is answered no longer.
    pub fn stop(&mut self, query: u64) {
        if let Some(task) = self.follows.remove(&query) {
            task.abort();
        }
    }
}
