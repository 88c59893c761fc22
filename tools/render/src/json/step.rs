//! `scontrol show step --json` and `squeue --steps --json`.

use super::{Meta, document, exit, minutes, number, skeleton, time};
use crate::{clock::Clock, step_lines::StepLine, words};
use garrick_model::hostlist;
use serde_json::{Value, json};

/// The document of these steps.
pub fn steps(steps: &[StepLine<'_>], meta: &Meta, clock: &Clock) -> Value {
    let list = steps.iter().map(|line| step(line, clock)).collect();
    document("steps", list, Some(clock.now), meta)
}

fn step(line: &StepLine<'_>, clock: &Clock) -> Value {
    let view = line.view;
    let mut s = skeleton(include_str!("skeleton/step.json"));
    let elapsed = view.start_time.map_or(0, |start| view.end_time.unwrap_or(clock.now).since(start).as_secs());
    s["time"]["elapsed"] = json!(elapsed);
    s["time"]["start"] = time(view.start_time);
    s["time"]["end"] = time(view.end_time);
    s["time"]["limit"] = minutes(view.time_limit);
    s["exit_code"] = exit(view.exit);
    s["nodes"] = json!({
        "count": view.nodes,
        "range": view.nodelist,
        "list": hostlist::expand(&view.nodelist).unwrap_or_default(),
    });
    s["tasks"]["count"] = json!(view.tasks);
    s["state"] = json!([words::step_state(view.state)]);
    s["step"]["id"] = json!(line.id_text(None));
    s["step"]["name"] = json!(view.name);
    s["submit_line"] = json!(view.submit_line);
    s["tres"]["allocated"] = json!([
        {"type": "cpu", "name": "", "id": 1, "count": view.cpus},
        {"type": "node", "name": "", "id": 4, "count": view.nodes},
    ]);
    let frequency = number(0_u32);
    s["CPU"]["requested_frequency"] = json!({"min": frequency, "max": frequency});
    s
}
