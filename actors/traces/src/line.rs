//! Trace records of a process, as they travel to who asks for them.

use garrick_model::messages::command::TraceLine;
use garrick_runtime::TraceRecord;

/// A record under the name of the process that it comes from.
pub fn trace_line(process: &str, record: &TraceRecord) -> TraceLine {
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
        outcome: record.outcome.to_string(),
    }
}
