//! `squeue --json` and `scontrol show job --json`.

use super::{Meta, document, exit, minutes, number, optional, skeleton, time};
use crate::{
    amounts::{self, Amounts as _},
    clock::Clock,
    job_rows::JobRow,
    words,
};
use garrick_model::{
    mail::MailType,
    node_shape::SpecCores,
    profile::Series,
    resources::MemoryRequest,
    spec::{JobKind, Sharing},
    state::JobState,
    time::{TimeLimit, Timestamp},
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

/// The document of ids and states alone: `squeue --only-job-state`.
pub fn job_states(rows: &[JobRow], meta: &Meta) -> Value {
    let one = |row: &JobRow| json!({ "job_id": row.id_text(None), "state": states(&row.job) });
    document("jobs", rows.iter().map(one).collect(), None, meta)
}

type Shown = fn(&JobView) -> Value;

/// Fields that every job has: key, and value.
#[rustfmt::skip]
static FIELDS: &[(&str, Shown)] = &[
    ("account", |job| text(job.spec.account.as_deref())),
    ("accrue_time", |job| time(job.accrue_time())),
    ("admin_comment", |job| text(job.admin_comment.as_deref())),
    ("allocating_node", |job| json!(job.spec.submit_host)),
    ("batch_flag", |job| json!(job.spec.kind == JobKind::Batch)),
    ("batch_host", |job| text(amounts::batch_host(job))),
    ("command", |job| text(job.spec.command.as_deref())),
    ("comment", |job| text(job.spec.comment.as_deref())),
    ("contiguous", |job| json!(job.spec.contiguous)),
    ("cores_per_socket", |job| optional(job.spec.layout.cores_per_socket.map(u64::from))),
    ("cpus", |job| number(job.cpu_count())),
    ("cpus_per_task", |job| number(job.cpus_per_task)),
    ("cpus_per_tres", |job| text(amounts::cpus_per_tres(job).as_deref())),
    ("current_working_directory", |job| json!(job.spec.work_dir)),
    ("cron", |job| json!(job.spec.cron.as_ref().map(ToString::to_string).unwrap_or_default())),
    ("deadline", |job| time(job.spec.deadline)),
    ("dependency", |job| json!(dependencies(job))),
    ("derived_exit_code", |job| exit(job.derived_exit)),
    ("eligible_time", |job| time(job.eligible_time)),
    ("end_time", |job| time(job.end_time.or_else(|| endless(job)))),
    ("excluded_nodes", |job| json!(amounts::fold(&job.spec.exclude))),
    ("exit_code", |job| exit(job.exit)),
    ("extra", |job| text(job.spec.extra.as_deref())),
    ("features", |job| text(job.spec.constraint.as_deref())),
    ("flags", |job| json!(flags(job))),
    ("gres_detail", |job| json!(amounts::gres_by_node(job))),
    ("group_id", |job| json!(job.gid)),
    ("group_name", |job| json!(job.group)),
    ("het_job_id", |job| optional(job.spec.het.map(|h| h.0.0.into()))),
    ("het_job_id_set", |job| text(amounts::het_ids(job).as_deref())),
    ("het_job_offset", |job| optional(job.spec.het.map(|h| h.1.into()))),
    ("hold", |job| json!(job.priority == 0)),
    ("job_id", |job| json!(job.id.0)),
    ("job_size_str", |job| json!(sizes(job))),
    ("job_state", |job| states(job)),
    ("last_sched_evaluation", |job| time(job.last_sched_eval)),
    ("licenses", |job| text(job.spec.licenses.as_deref())),
    ("licenses_allocated", |job| text(amounts::licenses(job).as_deref())),
    ("max_nodes", |job| optional(job.spec.nodes.and_then(|n| n.max).map(u64::from))),
    ("mail_type", |job| json!(job.spec.mail.types.in_json().map(MailType::json_word).collect::<Vec<_>>())),
    ("mail_user", |job| text(job.spec.mail.user.as_deref())),
    ("mcs_label", |job| text(job.spec.mcs_label.as_deref())),
    ("memory_per_tres", |job| text(amounts::mem_per_tres(job).as_deref())),
    ("minimum_cpus_per_node", |job| number(job.spec.min_cpus_per_node.unwrap_or(1).max(job.cpus_per_task))),
    ("minimum_tmp_disk_per_node", |job| number(job.spec.tmp_disk_mib)),
    ("name", |job| json!(job.spec.name)),
    ("nice", |job| json!(job.spec.nice)),
    ("node_count", |job| number(job.node_count())),
    ("nodes", |job| json!(amounts::node_list(job))),
    ("partition", |job| json!(job.allocation.as_ref().map_or_else(|| job.partitions.join(","), |a| a.partition.clone()))),
    ("preempt_time", |job| time(job.preempt_times().map(|times| times.at))),
    ("preemptable_time", |job| time(job.preempt_times().map(|times| times.eligible))),
    ("prefer", |job| text(job.spec.prefer.as_deref())),
    ("priority", |job| number(job.priority)),
    ("profile", |job| json!(profile(job))),
    ("qos", |job| text(job.spec.qos.as_deref())),
    ("requeue", |job| json!(job.requeue)),
    ("required_nodes", |job| json!(amounts::fold(&job.spec.nodelist))),
    ("required_switches", |job| job.spec.topology.switches.unwrap_or(0).into()),
    ("restart_cnt", |job| json!(job.restart_count())),
    ("segment_size", |job| job.spec.topology.segment.unwrap_or(0).into()),
    ("shared", |job| json!(shared(job.sharing))),
    ("sockets_per_node", |job| optional(job.spec.layout.sockets_per_node.map(u64::from))),
    ("start_time", |job| time(job.start_time)),
    ("state_reason", |job| json!(words::reason(&job.reason))),
    ("submit_line", |job| json!(job.spec.submit_line)),
    ("submit_time", |job| time(Some(job.submit_time))),
    ("suspend_time", |job| time(job.suspended.map(|times| times.at))),
    ("system_comment", |job| text(job.system_comment.as_deref())),
    ("tasks", |job| number(job.tasks)),
    ("tasks_per_core", |job| optional(job.spec.layout.tasks_per_core.map(u64::from))),
    ("tasks_per_node", |job| optional(job.spec.tasks_per_node.map(u64::from))),
    ("tasks_per_socket", |job| optional(job.spec.layout.tasks_per_socket.map(u64::from))),
    ("threads_per_core", |job| optional(job.spec.layout.threads_per_core.map(u64::from))),
    ("time_limit", |job| minutes(job.time_limit)),
    ("tres_alloc_str", |job| json!(amounts::allocated_tres(job))),
    ("tres_per_job", |job| text(amounts::tres_per_job(job).as_deref())),
    ("tres_per_node", |job| text(amounts::tres_per_node(job).as_deref())),
    ("tres_per_task", |job| text(amounts::tres_per_task(job).as_deref())),
    ("tres_req_str", |job| json!(amounts::requested_tres(job))),
    ("user_id", |job| json!(job.uid)),
    ("user_name", |job| json!(job.user)),
    ("wckey", |job| text(job.spec.wckey.as_deref())),
];

/// Which time series are recorded.
fn profile(job: &JobView) -> Vec<&'static str> {
    match job.spec.profiling.series {
        None => vec!["NOT_SET"],
        Some(series) if series.is_empty() => vec!["NONE"],
        Some(series) => series.iter().map(Series::flag).collect(),
    }
}

fn text(text: Option<&str>) -> Value {
    json!(text.unwrap_or(""))
}

/// The end of a run without a limit.
fn endless(job: &JobView) -> Option<Timestamp> {
    let start = job.start_time.filter(|_| job.state.works() && job.time_limit == TimeLimit::Unlimited)?;
    Some(job.time_limit.end_of_run(start))
}

fn flags(job: &JobView) -> Vec<&'static str> {
    let flags = [("CRON_JOB", job.recurs), ("STEPMGR_ENABLED", true), ("EXPEDITED_REQUEUE", job.spec.expedite)];
    flags.into_iter().filter(|(_, set)| *set).map(|(name, _)| name).collect()
}

fn shared(sharing: Sharing) -> &'static [&'static str] {
    match sharing {
        Sharing::Default => &[],
        Sharing::Exclusive => &["none"],
        Sharing::User => &["user"],
        Sharing::Mcs => &["mcs"],
        Sharing::Oversubscribe => &["oversubscribe"],
    }
}

fn dependencies(job: &JobView) -> String {
    Some(amounts::dependencies(job)).filter(|text| text != "(null)").unwrap_or_default()
}

fn sizes(job: &JobView) -> Vec<String> {
    job.spec.node_sizes.to_string().split(',').filter(|part| !part.is_empty()).map(str::to_owned).collect()
}

fn job(row: &JobRow, meta: &Meta) -> Value {
    let view = &*row.job;
    let spec = &*view.spec;
    let mut j = skeleton(include_str!("skeleton/job.json"));
    for (key, value) in FIELDS {
        j[*key] = value(view);
    }
    arrays(&mut j, row);
    j["cluster"] = json!(meta.cluster);
    if let Some(times) = view.suspended.filter(|_| view.state == JobState::Suspended) {
        j["pre_sus_time"] = number(u32::try_from(view.run_secs(times.at)).unwrap_or(u32::MAX));
    }
    match spec.layout.left_to_system {
        Some(SpecCores::Cores(count)) => j["core_spec"] = json!(count),
        Some(SpecCores::Threads(count)) => j["thread_spec"] = json!(count),
        None => {}
    }
    if view.allocation.is_some() {
        j["job_resources"] = resources(view);
    }
    if let Some(secs) = spec.delay_boot_secs {
        j["delay_boot"] = number(secs);
    }
    match view.memory {
        MemoryRequest::PerCpu(m) => j["memory_per_cpu"] = number(m.0),
        MemoryRequest::PerNode(m) => j["memory_per_node"] = number(m.0),
        MemoryRequest::All => j["memory_per_node"] = number(0_u32),
        MemoryRequest::Default => {}
    }
    j["step_id"]["sluid"] = json!(view.sluid.to_string());
    j["step_id"]["job_id"] = number(view.id.0);
    streams(&mut j, view);
    if let Some(least) = spec.time_min {
        j["time_minimum"] = minutes(least);
    }
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
        JobState::Completing if view.runs_again => json!(["PENDING", "COMPLETING"]),
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
