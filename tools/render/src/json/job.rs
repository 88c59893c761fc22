//! `squeue --json` and `scontrol show job --json`.

use super::{Meta, document, exit, minutes, number, optional, skeleton, time};
use crate::{
    amounts::{self, Amounts as _},
    clock::Clock,
    job_rows::JobRow,
    words,
};
use garrick_model::{
    node_shape::SpecCores,
    resources::MemoryRequest,
    spec::{JobKind, Sharing},
    state::JobState,
    view::JobView,
};
use serde_json::{Value, json};

/// The document of these jobs.
pub fn jobs(rows: &[JobRow], meta: &Meta, clock: &Clock) -> Value {
    let list = rows.iter().map(|row| job(row, meta)).collect();
    let mut document = document("jobs", list, Some(clock.now), meta);
    document["last_backfill"] = time(rows.iter().filter_map(|r| r.job.last_sched_eval).max());
    document
}

fn job(row: &JobRow, meta: &Meta) -> Value {
    let view = &*row.job;
    let spec = &*view.spec;
    let text = |t: Option<&str>| json!(t.unwrap_or(""));
    let mut j = skeleton(include_str!("skeleton/job.json"));
    j["account"] = text(spec.account.as_deref());
    j["accrue_time"] = time(view.eligible_time.filter(|_| view.eligible || !view.state.waits()));
    j["admin_comment"] = text(view.admin_comment.as_deref());
    j["allocating_node"] = json!(spec.submit_host);
    arrays(&mut j, row);
    j["batch_flag"] = json!(spec.kind == JobKind::Batch);
    j["batch_host"] = text(amounts::batch_host(view));
    j["cluster"] = json!(meta.cluster);
    j["command"] = text(spec.command.as_deref());
    j["comment"] = text(spec.comment.as_deref());
    j["contiguous"] = json!(spec.contiguous);
    j["cpus_per_task"] = number(view.cpus_per_task);
    j["cpus"] = number(view.cpu_count());
    j["current_working_directory"] = json!(spec.work_dir);
    j["deadline"] = time(spec.deadline);
    let dependencies = amounts::dependencies(view);
    j["dependency"] = json!(if dependencies == "(null)" { "" } else { &dependencies });
    j["derived_exit_code"] = exit(view.derived_exit);
    j["eligible_time"] = time(view.eligible_time);
    j["preempt_time"] = time(view.preempt_times().map(|times| times.at));
    j["preemptable_time"] = time(view.preempt_times().map(|times| times.eligible));
    j["suspend_time"] = time(view.suspended.map(|times| times.at));
    if let Some(times) = view.suspended.filter(|_| view.state == JobState::Suspended) {
        j["pre_sus_time"] = number(u32::try_from(view.run_secs(times.at)).unwrap_or(u32::MAX));
    }
    j["end_time"] = time(view.end_time);
    j["excluded_nodes"] = json!(amounts::fold(&spec.exclude));
    j["exit_code"] = exit(view.exit);
    j["extra"] = text(spec.extra.as_deref());
    j["features"] = text(spec.constraint.as_deref());
    j["mcs_label"] = text(spec.mcs_label.as_deref());
    j["prefer"] = text(spec.prefer.as_deref());
    j["sockets_per_node"] = optional(spec.layout.sockets_per_node.map(u64::from));
    j["cores_per_socket"] = optional(spec.layout.cores_per_socket.map(u64::from));
    j["threads_per_core"] = optional(spec.layout.threads_per_core.map(u64::from));
    j["tasks_per_socket"] = optional(spec.layout.tasks_per_socket.map(u64::from));
    match spec.layout.left_to_system {
        Some(SpecCores::Cores(count)) => j["core_spec"] = json!(count),
        Some(SpecCores::Threads(count)) => j["thread_spec"] = json!(count),
        None => {}
    }
    j["tasks_per_core"] = optional(spec.layout.tasks_per_core.map(u64::from));
    j["flags"] = match spec.expedite {
        true => json!(["STEPMGR_ENABLED", "EXPEDITED_REQUEUE"]),
        false => json!(["STEPMGR_ENABLED"]),
    };
    j["licenses"] = text(spec.licenses.as_deref());
    j["required_switches"] = spec.topology.switches.unwrap_or(0).into();
    j["segment_size"] = spec.topology.segment.unwrap_or(0).into();
    j["licenses_allocated"] = text(amounts::licenses(view).as_deref());
    j["group_id"] = json!(view.gid);
    j["group_name"] = json!(view.group);
    j["het_job_id"] = optional(spec.het.map(|h| h.0.0.into()));
    j["het_job_offset"] = optional(spec.het.map(|h| h.1.into()));
    j["het_job_id_set"] = text(amounts::het_ids(view).as_deref());
    j["job_id"] = json!(view.id.0);
    if view.allocation.is_some() {
        j["job_resources"] = resources(view);
    }
    j["job_state"] = states(view);
    j["last_sched_evaluation"] = time(view.last_sched_eval);
    if let Some(secs) = spec.delay_boot_secs {
        j["delay_boot"] = number(secs);
    }
    let sizes = spec.node_sizes.to_string();
    j["job_size_str"] = json!(sizes.split(',').filter(|part| !part.is_empty()).collect::<Vec<_>>());
    j["max_nodes"] = optional(spec.nodes.and_then(|n| n.max).map(u64::from));
    match view.memory {
        MemoryRequest::PerCpu(m) => j["memory_per_cpu"] = number(m.0),
        MemoryRequest::PerNode(m) => j["memory_per_node"] = number(m.0),
        MemoryRequest::All => j["memory_per_node"] = number(0_u32),
        MemoryRequest::Default => {}
    }
    j["minimum_cpus_per_node"] = number(spec.min_cpus_per_node.unwrap_or(1).max(view.cpus_per_task));
    j["minimum_tmp_disk_per_node"] = number(spec.tmp_disk_mib);
    j["name"] = json!(spec.name);
    j["nice"] = json!(spec.nice);
    j["node_count"] = number(view.node_count());
    j["nodes"] = json!(amounts::node_list(view));
    j["partition"] = json!(view.allocation.as_ref().map_or_else(|| view.partitions.join(","), |a| a.partition.clone()));
    j["hold"] = json!(view.priority == 0);
    j["priority"] = number(view.priority);
    j["qos"] = text(spec.qos.as_deref());
    j["requeue"] = json!(view.requeue);
    j["required_nodes"] = json!(amounts::fold(&spec.nodelist));
    j["restart_cnt"] = json!(view.restarts);
    j["shared"] = match view.sharing {
        Sharing::Default => json!([]),
        Sharing::Exclusive => json!(["none"]),
        Sharing::User => json!(["user"]),
        Sharing::Mcs => json!(["mcs"]),
        Sharing::Oversubscribe => json!(["oversubscribe"]),
    };
    j["start_time"] = time(view.start_time);
    j["state_reason"] = json!(words::reason(&view.reason));
    j["step_id"]["sluid"] = json!(view.sluid.to_string());
    j["step_id"]["job_id"] = number(view.id.0);
    streams(&mut j, view);
    j["submit_line"] = json!(spec.submit_line);
    j["submit_time"] = time(Some(view.submit_time));
    j["tasks"] = number(view.tasks);
    j["tasks_per_node"] = optional(spec.tasks_per_node.map(u64::from));
    j["system_comment"] = text(view.system_comment.as_deref());
    j["time_limit"] = minutes(view.time_limit);
    if let Some(least) = spec.time_min {
        j["time_minimum"] = minutes(least);
    }
    j["cpus_per_tres"] = text(amounts::cpus_per_tres(view).as_deref());
    j["memory_per_tres"] = text(amounts::mem_per_tres(view).as_deref());
    j["tres_per_job"] = text(amounts::tres_per_job(view).as_deref());
    j["tres_per_node"] = text(amounts::tres_per_node(view).as_deref());
    j["tres_per_task"] = text(amounts::tres_per_task(view).as_deref());
    j["gres_detail"] = json!(amounts::gres_by_node(view));
    j["tres_alloc_str"] = json!(amounts::allocated_tres(view));
    j["tres_req_str"] = json!(amounts::requested_tres(view));
    j["user_id"] = json!(view.uid);
    j["user_name"] = json!(view.user);
    j["wckey"] = text(spec.wckey.as_deref());
    j
}

fn arrays(j: &mut Value, row: &JobRow) {
    let view = &*row.job;
    let array = view.array_task.is_some() || view.array_pending.is_some();
    j["array_job_id"] = number(if array { row.array_job().0 } else { 0 });
    j["array_task_id"] = optional(view.array_task.map(|t| t.index.into()));
    if let Some(waiting) = &view.array_pending {
        j["array_max_tasks"] = number(waiting.limit.unwrap_or(0));
        j["array_task_string"] = json!(row.task_text(None).unwrap_or_default());
    }
}

fn streams(j: &mut Value, view: &JobView) {
    let asked = |given: &Option<String>| json!(given.as_deref().unwrap_or(""));
    j["standard_input"] = asked(&view.spec.stdin);
    j["standard_output"] = asked(&view.spec.stdout);
    j["standard_error"] = asked(&view.spec.stderr);
    j["stdin_expanded"] = asked(&view.stdin_path);
    j["stdout_expanded"] = asked(&view.stdout_path);
    j["stderr_expanded"] = asked(&view.stderr_path);
}

/// The state, with COMPLETING and CONFIGURING as flags beside it.
fn states(view: &JobView) -> Value {
    match view.state {
        JobState::Completing => match view.ending {
            Some(ending) => json!([words::job_state(ending), "COMPLETING"]),
            None => json!(["COMPLETING"]),
        },
        // These are flags of a job that waits.
        JobState::SpecialExit | JobState::Expediting | JobState::RequeueHold => {
            json!(["PENDING", words::job_state(view.state)])
        }
        JobState::Configuring => json!(["RUNNING", "CONFIGURING"]),
        state => json!([words::job_state(state)]),
    }
}

fn resources(view: &JobView) -> Value {
    let nodes = view.allocation.as_deref().map_or(&[][..], |a| &a.nodes[..]);
    let each: Vec<Value> = nodes
        .iter()
        .map(|n| {
            json!({
                "index": n.index.0,
                "name": n.name,
                "cpus": {"count": n.share.cpus.len(), "used": n.share.cpus.len()},
                "memory": {"used": 0, "allocated": n.share.memory.map_or(0, |m| m.0)},
                "sockets": [],
            })
        })
        .collect();
    json!({
        "select_type": ["CR_CORE_MEMORY"],
        "nodes": {
            "count": nodes.len(),
            "select_type": ["AVAILABLE"],
            "list": amounts::node_list(view),
            "whole": view.allocation.as_ref().is_some_and(|a| a.exclusive),
            "allocation": each,
        },
        "cpus": view.cpu_count(),
        "threads_per_core": optional(None),
    })
}
