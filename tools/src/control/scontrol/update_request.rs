//! `scontrol update JobId=...`: changes of a job's request other than amounts.

use super::update::{UpdateError, memory, number, wrong};
use garrick_model::{
    date,
    messages::request_change::RequestChange,
    node_shape::SpecCores,
    time::{TimeLimit, Timestamp},
};
use jiff::tz::TimeZone;

fn yes_or_no(key: &'static str, value: &str) -> Result<bool, UpdateError> {
    match value.to_ascii_lowercase().as_str() {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err(wrong(key, value, "yes or no")),
    }
}

pub(super) fn read(
    change: &mut RequestChange,
    (key, value): (&str, &str),
    now: Timestamp,
    zone: &TimeZone,
) -> Result<(), UpdateError> {
    match key {
        "consolidatesegments" => change.consolidate_segments = Some(yes_or_no("ConsolidateSegments", value)?),
        "contiguous" => change.contiguous = Some(yes_or_no("Contiguous", value)?),
        "corespec" => change.left_to_system = Some(SpecCores::Cores(number("CoreSpec", value)?)),
        "cpuspertask" => change.cpus_per_task = Some(number("CPUsPerTask", value)?),
        "deadline" => {
            let at = date::parse_date(value, now, zone).map_err(|e| wrong("Deadline", value, e))?;
            change.deadline = Some(at);
        }
        "delayboot" => match value.parse::<TimeLimit>() {
            Ok(TimeLimit::Secs(secs)) => change.delay_boot_secs = Some(secs),
            _ => return Err(wrong("DelayBoot", value, "")),
        },
        "mincpusnode" => change.min_cpus_per_node = Some(number("MinCPUsNode", value)?),
        "mintmpdisknode" => change.tmp_disk_mib = Some(memory("MinTmpDiskNode", value)?.0),
        "qos" => change.qos = Some(value.to_owned()),
        "reqcores" => change.cores_per_socket = Some(number("ReqCores", value)?),
        "reqsockets" => change.sockets_per_node = Some(number("ReqSockets", value)?),
        "reqthreads" => change.threads_per_core = Some(number("ReqThreads", value)?),
        "spreadsegments" => change.spread_segments = Some(yes_or_no("SpreadSegments", value)?),
        "stderr" => change.stderr = Some(value.to_owned()),
        "stdin" => change.stdin = Some(value.to_owned()),
        "stdout" => change.stdout = Some(value.to_owned()),
        "taskspernode" => change.tasks_per_node = Some(number("TasksPerNode", value)?),
        "threadspec" => change.left_to_system = Some(SpecCores::Threads(number("ThreadSpec", value)?)),
        "wait-for-switch" => change.switches_wait_secs = Some(number("wait-for-switch", value)?),
        "wckey" => change.wckey = Some(value.to_owned()),
        "workdir" if value.starts_with('/') => change.work_dir = Some(value.to_owned()),
        _ => return Err(wrong("WorkDir", value, "an absolute path is needed")),
    }
    Ok(())
}
