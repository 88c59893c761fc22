//! `scontrol show step --json` and `squeue --steps --json`.

use super::{Meta, document, exit, minutes, number, skeleton, time};
use crate::render::{amounts, clock::Clock, words};
use garrick_model::{
    hostlist,
    view::{JobView, StepView},
};
use serde_json::{Value, json};

/// The document of these steps, each with its job where that is known.
pub fn steps(steps: &[(&StepView, Option<&JobView>)], meta: &Meta, clock: &Clock) -> Value {
    let list = steps.iter().map(|(view, job)| step(view, *job, clock)).collect();
    document("steps", list, Some(clock.now), meta)
}

fn step(view: &StepView, job: Option<&JobView>, clock: &Clock) -> Value {
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
    s["step"]["id"] = json!(amounts::step_id(view, job));
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
