//! Metrics of the controller's work, which are those of `sdiag`.

use super::exposition::{Exposition, Type::Gauge};
use garrick_model::{
    messages::statistics::{Exits, Statistics},
    time::Timestamp,
};

/// `/metrics/scheduler`. Times are microseconds, as in `sdiag`. What Slurm counts of threads and queues that are not there is 0.
pub fn scheduler(counted: &Statistics) -> String {
    let mut text = Exposition::default();
    for (name, help, value) in rows(counted) {
        text.value(Gauge, name, help, value);
    }
    text.text()
}

/// In Slurm's order, with its words.
fn rows(counted: &Statistics) -> Vec<(&'static str, &'static str, u64)> {
    let (passes, plans, jobs) = (&counted.passes, &counted.plans, &counted.jobs);
    let (pass, plan) = (&passes.cycles, &plans.cycles);
    let mean = |sum: u64| sum.checked_div(plan.count).unwrap_or(0);
    let secs = |at: Timestamp| u64::try_from(at.secs()).unwrap_or(0);
    let Exits { end_of_queue, most_starts, time, .. } = passes.exits;
    let of_plans = &plans.exits;
    vec![
        ("slurm_agent_cnt", "Number of agent threads", 0),
        ("slurm_agent_queue_size", "Outgoing RPC retry queue length", 0),
        ("slurm_agent_thread_cnt", "Total active agent-created threads", 0),
        ("slurm_bf_depth_mean", "Mean backfill cycle depth", mean(plans.depth_sum)),
        ("slurm_bf_mean_cycle", "Mean backfill cycle time", plan.mean_micros().unwrap_or(0)),
        ("slurm_bf_mean_table_sz", "Mean backfill table size", mean(plans.slots_sum)),
        ("slurm_bf_queue_len_mean", "Mean backfill queue length", mean(plans.queue_sum)),
        ("slurm_bf_try_depth_mean", "Mean depth attempts in backfill", mean(plans.tried_sum)),
        ("slurm_backfilled_het_jobs", "Heterogeneous components backfilled", plans.backfilled_components),
        ("slurm_backfilled_jobs", "Total backfilled jobs since reset", plans.backfilled_ever),
        ("slurm_bf_active", "Backfill scheduler active jobs", 0),
        ("slurm_bf_cycle_cnt", "Backfill cycle count", plan.count),
        ("slurm_bf_cycle_last", "Last backfill cycle time", plan.last_micros),
        ("slurm_bf_cycle_max", "Max backfill cycle time", plan.max_micros),
        ("slurm_bf_cycle_tot", "Sum of backfill cycle times", plan.sum_micros),
        ("slurm_bf_depth_tot", "Sum of backfill job depths", plans.depth_sum),
        ("slurm_bf_depth_try_tot", "Sum of backfill depth attempts", plans.tried_sum),
        ("slurm_bf_last_depth", "Last backfill depth", plans.last_depth),
        ("slurm_bf_last_depth_try", "Last backfill depth attempts", plans.last_tried),
        ("slurm_bf_queue_len", "Backfill queue length", plans.last_queue),
        ("slurm_bf_queue_len_tot", "Sum of backfill queue lengths", plans.queue_sum),
        ("slurm_bf_table_size", "Backfill table size", plans.last_slots),
        ("slurm_bf_table_size_tot", "Sum of backfill table sizes", plans.slots_sum),
        ("slurm_bf_when_last_cycle", "Timestamp of last backfill cycle", plans.last_at.map_or(0, secs)),
        ("slurm_sdiag_jobs_canceled", "Jobs canceled since reset", jobs.cancelled),
        ("slurm_sdiag_jobs_completed", "Jobs completed since reset", jobs.completed),
        ("slurm_sdiag_jobs_failed", "Jobs failed since reset", jobs.failed),
        ("slurm_sdiag_jobs_pending", "Jobs pending at timestamp", jobs.pending),
        ("slurm_sdiag_jobs_running", "Jobs running at timestamp", jobs.running),
        ("slurm_sdiag_jobs_started", "Jobs started since reset", jobs.started),
        ("slurm_sdiag_jobs_submitted", "Jobs submitted since reset", jobs.submitted),
        ("slurm_sdiag_job_states_ts", "Job states timestamp", secs(counted.at)),
        ("slurm_last_backfilled_jobs", "Backfilled jobs since last cycle", plans.backfilled),
        ("slurm_sdiag_latency", "Measurement latency", counted.clock_micros),
        ("slurm_schedule_cycle_cnt", "Scheduling cycle count", pass.count),
        ("slurm_schedule_cycle_depth", "Processed jobs depth total", passes.depth_sum),
        ("slurm_schedule_cycle_last", "Last scheduling cycle time", pass.last_micros),
        ("slurm_schedule_cycle_max", "Max scheduling cycle time", pass.max_micros),
        ("slurm_schedule_cycle_tot", "Sum of scheduling cycle times", pass.sum_micros),
        ("slurm_schedule_queue_len", "Jobs pending queue length", passes.last_queue),
        ("slurm_sched_exit_end", "End of job queue", end_of_queue),
        ("slurm_sched_exit_max_depth", "Hit default_queue_depth", 0),
        ("slurm_sched_exit_max_job_start", "Hit sched_max_job_start", most_starts),
        ("slurm_sched_exit_lic", "Blocked on licenses", 0),
        ("slurm_sched_exit_rpc_cnt", "Hit max_rpc_cnt", 0),
        ("slurm_sched_exit_timeout", "Timeout (max_sched_time)", time),
        ("slurm_bf_exit_end", "End of job queue", of_plans.end_of_queue),
        ("slurm_bf_exit_max_job_start", "Hit bf_max_job_start", of_plans.most_starts),
        ("slurm_bf_exit_max_job_test", "Hit bf_max_job_test", 0),
        ("slurm_bf_exit_state_changed", "System state changed", of_plans.changed),
        ("slurm_bf_exit_table_limit", "Hit table size limit (bf_node_space_size)", 0),
        ("slurm_bf_exit_timeout", "Timeout (bf_max_time)", of_plans.time),
        ("slurm_sched_mean_cycle", "Mean scheduling cycle time", pass.mean_micros().unwrap_or(0)),
        (
            "slurm_sched_mean_depth_cycle",
            "Mean depth of scheduling cycles",
            passes.depth_sum.checked_div(pass.count).unwrap_or(0),
        ),
        ("slurm_server_thread_cnt", "Active slurmctld threads count", counted.serving.into()),
        ("slurm_slurmdbd_queue_size", "Queued messages to SlurmDBD", counted.accounting.events),
        ("slurm_last_proc_req_start", "Timestamp of last process request start", secs(counted.since)),
        ("slurm_sched_stats_timestamp", "Statistics snapshot timestamp", secs(counted.at)),
    ]
}
