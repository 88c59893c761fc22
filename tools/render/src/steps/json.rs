//! A step as an object of `garrick steps --json`. Times are seconds since 1970, durations seconds, memory KiB.

use super::{Row, fields};
use crate::words;
use garrick_model::time::Timestamp;
use serde_json::{Value, json};

fn secs(at: Option<Timestamp>) -> Value {
    at.map_or(Value::Null, |at| json!(at.0 as f64 / 1000.0))
}

/// The object.
pub fn of(row: &Row<'_>, now: Timestamp) -> Value {
    let step = row.step;
    let over = step.start.is_some() && step.end.is_some();
    let argv = if step.argv.is_empty() { &row.origin.argv } else { &step.argv };
    let words: Vec<_> = argv.iter().map(|word| String::from_utf8_lossy(word)).collect();
    json!({
        "step": fields::step(row),
        "job": row.run.job.0,
        "sluid": row.run.sluid.to_string(),
        "name": fields::name(row),
        "line": step.line,
        "command": words,
        "values": step.values,
        "submit_line": row.origin.submit_line,
        "state": words::step_state(step.state),
        "exit_code": step.end.map(|_| step.exit.code),
        "signal": step.exit.signal,
        "reason": fields::reason(row),
        "tries": step.attempt + u32::from(step.start.is_some()),
        "tried_again": step.again,
        "again_of": fields::again_of(row),
        "queued": secs(step.queued),
        "start": secs(step.start),
        "end": secs(step.end),
        "elapsed": step.elapsed_ms(now).map(|ms| ms as f64 / 1000.0),
        "cpu_time": over.then(|| fields::cpu_ms(row) as f64 / 1000.0),
        "max_rss_kib": over.then_some(step.usage.max_rss_kib),
        "nodes": fields::nodes(row),
        "cpus": step.cpus,
        "tasks": row.origin.tasks,
        "output": step.output,
    })
}
