//! What the controller counted as JSON.

use super::{Meta, number, time};
use crate::sdiag::{Order, per_minute, rpcs, users};
use garrick_model::messages::statistics::{Exits, Statistics};
use serde_json::{Map, Value, json};

/// The document of `sdiag`. `name` finds a user's name.
pub fn statistics(counted: &Statistics, meta: &Meta, name: &dyn Fn(u32) -> String) -> Value {
    let mut fields = process(counted);
    fields.extend(main(counted));
    fields.extend(backfill(counted));
    let average = |micros: u64, count: u64| number(micros / count.max(1));
    let by_type = rpcs(counted, Order::Count).into_iter().map(|rpc| {
        json!({
            "type_id": rpc.id,
            "message_type": rpc.name,
            "count": rpc.count,
            "queued": 0,
            "dropped": 0,
            "cycle_last": 0,
            "cycle_max": 0,
            "total_time": rpc.micros,
            "average_time": average(rpc.micros, rpc.count),
        })
    });
    fields.insert("rpcs_by_message_type".to_owned(), by_type.collect());
    let by_user = users(counted, Order::Count).into_iter().map(|user| {
        json!({
            "user_id": user.uid,
            "user": name(user.uid),
            "count": user.count,
            "total_time": user.micros,
            "average_time": average(user.micros, user.count),
        })
    });
    fields.insert("rpcs_by_user".to_owned(), by_user.collect());
    fields.insert("pending_rpcs".to_owned(), json!([]));
    fields.insert("pending_rpcs_by_hostlist".to_owned(), json!([]));
    json!({ "statistics": fields, "meta": meta.value(), "errors": [], "warnings": [] })
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

fn process(counted: &Statistics) -> Map<String, Value> {
    let jobs = &counted.jobs;
    object(json!({
        "req_time": time(Some(counted.at)),
        "req_time_start": time(Some(counted.since)),
        "server_thread_count": counted.serving,
        "agent_queue_size": 0,
        "agent_count": 0,
        "agent_thread_count": 0,
        "dbd_agent_queue_size": counted.accounting.events,
        "gettimeofday_latency": counted.clock_micros,
        "jobs_submitted": jobs.submitted,
        "jobs_started": jobs.started,
        "jobs_completed": jobs.completed,
        "jobs_canceled": jobs.cancelled,
        "jobs_failed": jobs.failed,
        "jobs_pending": jobs.pending,
        "jobs_running": jobs.running,
        "job_states_ts": time(Some(counted.at)),
    }))
}

fn main(counted: &Statistics) -> Map<String, Value> {
    let (passes, cycles) = (&counted.passes, &counted.passes.cycles);
    let Exits { end_of_queue, most_starts, time, .. } = passes.exits;
    object(json!({
        "schedule_cycle_max": cycles.max_micros,
        "schedule_cycle_last": cycles.last_micros,
        "schedule_cycle_sum": cycles.sum_micros,
        "schedule_cycle_total": cycles.count,
        "schedule_cycle_mean": cycles.mean_micros().unwrap_or(0),
        "schedule_cycle_mean_depth": passes.depth_sum.checked_div(cycles.count).unwrap_or(0),
        "schedule_cycle_per_minute": per_minute(counted).unwrap_or(0),
        "schedule_cycle_depth": passes.depth_sum,
        "schedule_exit": {
            "end_job_queue": end_of_queue,
            "default_queue_depth": 0,
            "max_job_start": most_starts,
            "max_rpc_cnt": 0,
            "max_sched_time": time,
            "licenses": 0,
        },
        "schedule_queue_length": passes.last_queue,
    }))
}

fn backfill(counted: &Statistics) -> Map<String, Value> {
    let (plans, cycles) = (&counted.plans, &counted.plans.cycles);
    let Exits { end_of_queue, most_starts, time: out_of_time, changed } = plans.exits;
    let mean = |sum: u64| sum.checked_div(cycles.count).unwrap_or(0);
    object(json!({
        "bf_backfilled_jobs": plans.backfilled_ever,
        "bf_last_backfilled_jobs": plans.backfilled,
        "bf_backfilled_het_jobs": plans.backfilled_components,
        "bf_cycle_counter": cycles.count,
        "bf_cycle_mean": cycles.mean_micros().unwrap_or(0),
        "bf_depth_mean": mean(plans.depth_sum),
        "bf_depth_mean_try": mean(plans.tried_sum),
        "bf_cycle_sum": cycles.sum_micros,
        "bf_cycle_last": cycles.last_micros,
        "bf_cycle_max": cycles.max_micros,
        "bf_exit": {
            "end_job_queue": end_of_queue,
            "bf_max_job_start": most_starts,
            "bf_max_job_test": 0,
            "bf_max_time": out_of_time,
            "bf_node_space_size": 0,
            "state_changed": changed,
        },
        "bf_last_depth": plans.last_depth,
        "bf_last_depth_try": plans.last_tried,
        "bf_depth_sum": plans.depth_sum,
        "bf_depth_try_sum": plans.tried_sum,
        "bf_queue_len": plans.last_queue,
        "bf_queue_len_mean": mean(plans.queue_sum),
        "bf_queue_len_sum": plans.queue_sum,
        "bf_table_size": plans.last_slots,
        "bf_table_size_sum": plans.slots_sum,
        "bf_table_size_mean": mean(plans.slots_sum),
        "bf_when_last_cycle": time(plans.last_at),
        "bf_active": false,
    }))
}
