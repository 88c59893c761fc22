//! Keys of `scontrol update JobId=`.

use super::{
    assign,
    keys::{Given, Key, KeyError, key, signed, synonym},
};
use garrick_model::{
    gres::GresCount,
    mail::MailTypes,
    messages::command::JobChange,
    node_shape::SpecCores,
    resources::{MemoryMib, MemoryRequest},
    spec::{Dependencies, NodeCount},
    spec_text::gres,
    time::{TimeLimit, parse_duration_secs},
};

/// Keys in the order of the alphabet; the beginning of one will do.
#[rustfmt::skip]
pub(super) static JOB_KEYS: &[Key<JobChange>] = &[
    key("Account", |c, given| assign(&mut c.account, given.text())),
    key("AdminComment", |c, given| assign(&mut c.admin_comment, given.text())),
    key("ArrayTaskThrottle", |c, given| assign(&mut c.array_limit, given.parsed())),
    key("Comment", |c, given| assign(&mut c.comment, given.text())),
    key("ConsolidateSegments", |c, given| assign(&mut c.request.consolidate_segments, given.yes_or_no())),
    key("Contiguous", |c, given| assign(&mut c.request.contiguous, given.yes_or_no())),
    key("CoreSpec", |c, given| assign(&mut c.request.left_to_system, given.parsed().map(SpecCores::Cores))),
    key("CPUsPerTask", |c, given| assign(&mut c.request.cpus_per_task, given.parsed())),
    key("Deadline", |c, given| assign(&mut c.request.deadline, given.time())),
    key("DelayBoot", delay_boot),
    key("Dependency", |c, given| assign(&mut c.dependencies, dependencies(given))),
    key("EligibleTime", |c, given| assign(&mut c.begin, given.time())),
    key("EndTime", |c, given| assign(&mut c.end_time, given.time())),
    key("ExcNodeList", |c, given| assign(&mut c.exclude, given.hosts())),
    key("Extra", |c, given| assign(&mut c.extra, given.text())),
    key("Features", |c, given| assign(&mut c.constraint, given.text())),
    key("Gres", gres_per_node),
    key("JobName", |c, given| assign(&mut c.name, given.text())),
    key("Licenses", |c, given| assign(&mut c.licenses, given.text())),
    key("MailType", |c, given| assign(&mut c.mail_types, mail_types(given))),
    key("MailUser", |c, given| assign(&mut c.mail_user, given.text())),
    key("MCSLabel", |c, given| assign(&mut c.mcs_label, given.text())),
    key("MinCPUsNode", |c, given| assign(&mut c.request.min_cpus_per_node, given.parsed())),
    key("MinMemoryCPU", |c, given| assign(&mut c.memory, given.explained().map(MemoryRequest::PerCpu))),
    key("MinMemoryNode", |c, given| assign(&mut c.memory, given.explained().map(MemoryRequest::PerNode))),
    key("MinTmpDiskNode", |c, given| assign(&mut c.request.tmp_disk_mib, given.explained().map(|MemoryMib(mib)| mib))),
    key("Name", |c, given| assign(&mut c.name, given.text())),
    key("Nice", |c, given| assign(&mut c.nice, if given.value.is_empty() { Ok(100) } else { adjustment(given) })),
    synonym("NodeList", "ReqNodeList", |c, given| assign(&mut c.nodelist, given.hosts())),
    key("NumNodes", nodes),
    key("NumTasks", |c, given| assign(&mut c.tasks, given.parsed())),
    key("OverSubscribe", |c, given| assign(&mut c.request.oversubscribe, given.yes_or_no())),
    key("Partition", |c, given| assign(&mut c.partitions, given.words())),
    key("Prefer", |c, given| assign(&mut c.prefer, given.text())),
    key("Priority", |c, given| assign(&mut c.priority, given.parsed())),
    key("QOS", |c, given| assign(&mut c.request.qos, given.text())),
    key("ReqCores", |c, given| assign(&mut c.request.cores_per_socket, given.parsed())),
    key("ReqNodeList", |c, given| assign(&mut c.nodelist, given.hosts())),
    synonym("ReqNodes", "NumNodes", nodes),
    synonym("ReqProcs", "NumTasks", |c, given| assign(&mut c.tasks, given.parsed())),
    key("ReqSockets", |c, given| assign(&mut c.request.sockets_per_node, given.parsed())),
    key("ReqThreads", |c, given| assign(&mut c.request.threads_per_core, given.parsed())),
    key("Requeue", |c, given| assign(&mut c.requeue, given.parsed::<u8>().map(|number| number != 0))),
    key("ReservationName", |c, given| assign(&mut c.reservations, given.words())),
    key("ResetAccrueTime", |c, _| {
        c.reset_accrue_time = true;
        Ok(())
    }),
    key("SegmentSize", |c, given| assign(&mut c.segment, given.parsed())),
    synonym("Shared", "OverSubscribe", |c, given| assign(&mut c.request.oversubscribe, given.yes_or_no())),
    key("SiteFactor", |c, given| assign(&mut c.site_factor, adjustment(given))),
    key("SpreadSegments", |c, given| assign(&mut c.request.spread_segments, given.yes_or_no())),
    key("StartTime", |c, given| assign(&mut c.begin, given.time())),
    key("StdErr", |c, given| assign(&mut c.request.stderr, given.text())),
    key("StdIn", |c, given| assign(&mut c.request.stdin, given.text())),
    key("StdOut", |c, given| assign(&mut c.request.stdout, given.text())),
    key("Switches", switches),
    key("TasksPerNode", |c, given| assign(&mut c.request.tasks_per_node, given.parsed())),
    key("ThreadSpec", |c, given| assign(&mut c.request.left_to_system, given.parsed().map(SpecCores::Threads))),
    signed("TimeLimit", time_limit),
    key("TimeMin", |c, given| assign(&mut c.time_min, given.parsed())),
    key("TresPerJob", |c, given| assign(&mut c.request.gpus_in_all, tres(given))),
    key("TresPerNode", |c, given| assign(&mut c.request.gres_per_node, tres(given))),
    key("wait-for-switch", |c, given| assign(&mut c.request.switches_wait_secs, given.parsed())),
    key("WCKey", |c, given| assign(&mut c.request.wckey, given.text())),
    key("WorkDir", work_dir),
];

/// Nice and site factor: as far as Slurm documents them.
fn adjustment(given: &Given<'_>) -> Result<i32, KeyError> {
    const MOST: i64 = 2_147_483_645;
    match given.parsed::<i64>()? {
        n if (-MOST..=MOST).contains(&n) => i32::try_from(n).map_err(|_| given.wrong("")),
        _ => Err(KeyError::Range { key: given.key, most: MOST }),
    }
}

fn delay_boot(change: &mut JobChange, given: &Given<'_>) -> Result<(), KeyError> {
    match given.parsed() {
        Ok(TimeLimit::Secs(secs)) => assign(&mut change.request.delay_boot_secs, Ok(secs)),
        _ => Err(KeyError::Unnamed("DelayBoot")),
    }
}

fn dependencies(given: &Given<'_>) -> Result<Dependencies, KeyError> {
    if matches!(given.value, "" | "0") { Ok(Dependencies::default()) } else { given.explained() }
}

/// `gpu:2`; what is written as in `TresPerNode` is taken too.
fn gres_per_node(change: &mut JobChange, given: &Given<'_>) -> Result<(), KeyError> {
    let asked = match given.value {
        "" => Ok(Vec::new()),
        list if list.starts_with("gres/") => tres(given),
        list => gres::request(list).map(Option::unwrap_or_default).map_err(|e| given.wrong(e)),
    };
    assign(&mut change.request.gres_per_node, asked)
}

/// `gres/gpu:2`.
fn tres(given: &Given<'_>) -> Result<Vec<GresCount>, KeyError> {
    match given.value {
        "" => Ok(Vec::new()),
        list => match gres::tres_per_task(list).map_err(|e| given.wrong(e))? {
            (asked, None) => Ok(asked),
            (_, Some(_)) => Err(given.wrong("only generic resources")),
        },
    }
}

fn mail_types(given: &Given<'_>) -> Result<MailTypes, KeyError> {
    given.value.parse().map_err(|_| KeyError::MailType(given.value.to_owned()))
}

/// `4`, `2-4` or the sizes of `1,2,4`.
fn nodes(change: &mut JobChange, given: &Given<'_>) -> Result<(), KeyError> {
    change.node_sizes = given.parsed()?;
    let bounds = change.node_sizes.bounds();
    assign(&mut change.nodes, bounds.map_or_else(|| node_count(given), Ok))
}

fn node_count(given: &Given<'_>) -> Result<NodeCount, KeyError> {
    let (min, max) = match given.value.split_once('-') {
        Some((min, max)) => (given.part(min)?, Some(given.part(max)?)),
        None => (given.parsed()?, None),
    };
    if min == 0 || max.is_some_and(|m| m < min) {
        return Err(given.wrong(""));
    }
    Ok(NodeCount { min, max })
}

/// `2@10:00`: how many, and how long to wait for them.
fn switches(change: &mut JobChange, given: &Given<'_>) -> Result<(), KeyError> {
    let (count, time) = given.value.split_once('@').map_or((given.value, None), |(count, time)| (count, Some(time)));
    let secs = time.map(|time| given.secs(time)).transpose()?;
    assign(&mut change.switches, Ok((given.part(count)?, secs.flatten())))
}

/// `+5` and `-5` as the value mean the same as `+=5` and `-=5`.
fn time_limit(change: &mut JobChange, given: &Given<'_>) -> Result<(), KeyError> {
    let (sign, text) = match (given.sign, given.value.strip_prefix('+'), given.value.strip_prefix('-')) {
        (None, Some(text), _) => (Some('+'), text),
        (None, None, Some(text)) if given.value != "-1" => (Some('-'), text),
        (sign, ..) => (sign, given.value),
    };
    let unnamed = |_| KeyError::Unnamed("TimeLimit");
    let Some(sign) = sign else { return assign(&mut change.time_limit, given.parsed().map_err(unnamed)) };
    let secs = parse_duration_secs(text).ok().flatten().and_then(|secs| i64::try_from(secs).ok());
    let secs = secs.ok_or(KeyError::Unnamed("TimeLimit"))?;
    assign(&mut change.time_limit_delta_secs, Ok(if sign == '-' { -secs } else { secs }))
}

fn work_dir(change: &mut JobChange, given: &Given<'_>) -> Result<(), KeyError> {
    if !given.value.starts_with('/') {
        return Err(given.wrong("an absolute path is needed"));
    }
    assign(&mut change.request.work_dir, given.text())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_key_is_in_two_rows() {
        assert!(JOB_KEYS.is_sorted_by_key(|row| row.name.to_ascii_lowercase()));
        assert!(JOB_KEYS.windows(2).all(|rows| rows[0].name != rows[1].name));
    }

    #[test]
    fn every_key_is_documented() {
        let page = include_str!("../../../../docs/requests.md");
        let missing: Vec<&str> =
            JOB_KEYS.iter().map(|row| row.name).filter(|name| !page.contains(&format!("`{name}`"))).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
}
