//! What scripts see of others' state and cannot change: names and units of Slurm's Lua interface (26.05).

use crate::{
    fields::or_infinite,
    value::{NICE_OFFSET, NO_VAL, Value},
};
use garrick_model::{
    config::{MemoryPer, PartitionConfig},
    hostlist,
    reservation::Reservation,
    spec::NodeCount,
    state::PartitionState,
    view::{JobView, PartitionView},
};

/// A row: a field's name, and how it is read.
pub type Row<T> = (&'static str, fn(&T) -> Value);

/// Reads the field of that name.
pub fn read<T>(rows: &[Row<T>], of: &T, name: &str) -> Value {
    rows.iter().find(|(known, _)| *known == name).map_or(Value::Nil, |(_, get)| get(of))
}

/// A partition, and the CPUs of its nodes.
#[derive(Debug)]
pub struct PartitionShown {
    /// The partition.
    pub view: std::sync::Arc<PartitionView>,
    /// Of all its nodes.
    pub cpus: u32,
}

fn list(names: Option<&Vec<String>>) -> Value {
    Value::from(names.map(|names| names.join(",")))
}

fn memory(config: &PartitionConfig, of_cpu: bool, of: fn(&PartitionConfig) -> Option<MemoryPer>) -> Value {
    match (of(config), of_cpu) {
        (Some(MemoryPer::Cpu(mib)), true) | (Some(MemoryPer::Node(mib)), false) => Value::from_u64(mib.0),
        (None, false) => Value::from(0),
        _ => Value::Nil,
    }
}

/// A partition's fields.
pub const PARTITION: &[Row<PartitionShown>] = &[
    ("allow_accounts", |p| list(p.view.config.allow_accounts.as_ref())),
    ("allow_alloc_nodes", |p| Value::from(p.view.config.alloc_nodes.clone())),
    ("allow_groups", |p| list(p.view.config.allow_groups.as_ref())),
    ("allow_qos", |p| list(p.view.config.allow_qos.as_ref())),
    ("alternate", |p| Value::from(p.view.config.alternate.clone())),
    ("billing_weights_str", |p| Value::from(p.view.config.billing_weights.clone())),
    ("def_mem_per_cpu", |p| memory(&p.view.config, true, |c| c.def_memory)),
    ("def_mem_per_node", |p| memory(&p.view.config, false, |c| c.def_memory)),
    ("default_time", |p| Value::minutes(p.view.config.default_time)),
    ("deny_accounts", |p| list(Some(&p.view.config.deny_accounts))),
    ("deny_qos", |p| list(Some(&p.view.config.deny_qos))),
    ("flag_default", |p| Value::from(u32::from(p.view.config.default))),
    ("max_cpus_per_node", |p| or_infinite(p.view.config.max_cpus_per_node)),
    ("max_cpus_per_socket", |p| or_infinite(p.view.config.max_cpus_per_socket)),
    ("max_mem_per_cpu", |p| memory(&p.view.config, true, |c| c.max_memory)),
    ("max_mem_per_node", |p| memory(&p.view.config, false, |c| c.max_memory)),
    ("max_nodes", |p| or_infinite(p.view.config.max_nodes)),
    ("max_nodes_orig", |p| or_infinite(p.view.config.max_nodes)),
    ("max_time", |p| Value::minutes(Some(p.view.config.max_time))),
    ("min_nodes", |p| Value::from(p.view.config.min_nodes)),
    ("name", |p| Value::from(p.view.config.name.as_str())),
    ("nodes", |p| Value::from(Some(p.view.config.nodes_text.clone()))),
    ("priority_job_factor", |p| Value::from(u32::from(p.view.config.priority_job_factor))),
    ("priority_tier", |p| Value::from(u32::from(p.view.config.priority_tier))),
    ("qos", |p| Value::from(p.view.config.qos.clone())),
    ("state_up", |p| {
        // Bit 1: it takes jobs; bit 2: they start.
        Value::from(match p.view.state {
            PartitionState::Up => 3,
            PartitionState::Down => 1,
            PartitionState::Drain => 2,
            PartitionState::Inactive => 0,
        })
    }),
    ("total_cpus", |p| Value::from(p.cpus)),
    ("total_nodes", |p| Value::from_u64(p.view.nodes.len() as u64)),
];

/// A known job's fields.
pub const JOB: &[Row<JobView>] = &[
    ("account", |j| Value::from(j.spec.account.clone())),
    ("admin_comment", |j| Value::from(j.admin_comment.clone())),
    ("alloc_node", |j| Value::from(j.spec.submit_host.as_str())),
    ("argv", |j| Value::Words(j.spec.argv.iter().map(|word| word.to_vec()).collect())),
    ("array_job_id", |j| Value::from(j.array_task.map_or(0, |task| task.array_job.0))),
    ("array_task_id", |j| Value::or(j.array_task.map(|task| task.index), NO_VAL)),
    ("batch_host", |j| {
        Value::from(j.allocation.as_ref().and_then(|own| own.nodes.first().map(|node| node.name.clone())))
    }),
    ("comment", |j| Value::from(j.spec.comment.clone())),
    ("dependency", |j| Value::from(Some(j.dependencies.to_string()))),
    ("end_time", |j| j.end_time.map_or(Value::from(0), Value::from)),
    ("exc_nodes", |j| Value::from(Some(hostlist::fold(&j.spec.exclude)))),
    ("exit_code", |j| Value::from(j.exit.wait_status())),
    ("extra", |j| Value::from(j.spec.extra.clone())),
    ("features", |j| Value::from(j.spec.constraint.clone())),
    ("group_id", |j| Value::from(j.gid)),
    ("het_job_id", |j| Value::from(j.spec.het.map_or(0, |(leader, _)| leader.0))),
    ("het_job_offset", |j| Value::from(j.spec.het.map_or(0, |(_, offset)| offset))),
    ("job_id", |j| Value::from(j.id.0)),
    ("job_state", |j| Value::from(j.state.number())),
    ("licenses", |j| Value::from(j.spec.licenses.clone())),
    ("max_nodes", |j| Value::from(j.spec.nodes.and_then(|nodes: NodeCount| nodes.max).unwrap_or(0))),
    ("min_cpus", |j| Value::from(j.cpus)),
    ("min_nodes", |j| Value::from(j.min_nodes)),
    ("name", |j| Value::from(Some(j.spec.name.clone()))),
    ("nice", |j| Value::from_i64(NICE_OFFSET + i64::from(j.spec.nice))),
    ("nodes", |j| {
        let names = j.allocation.iter().flat_map(|own| &own.nodes).map(|node| node.name.as_str());
        Value::from(Some(hostlist::fold(names)))
    }),
    ("num_tasks", |j| Value::from(j.tasks)),
    ("partition", |j| Value::from(Some(j.partitions.join(",")))),
    ("pn_min_memory", |j| Value::memory(j.memory)),
    ("priority", |j| Value::from(j.priority)),
    ("qos", |j| Value::from(j.spec.qos.clone())),
    ("req_nodes", |j| Value::from(Some(hostlist::fold(&j.spec.nodelist)))),
    ("reservation", |j| Value::from(Some(j.spec.reservations.join(",")))),
    ("restart_cnt", |j| Value::from(j.restarts)),
    ("start_time", |j| j.start_time.map_or(Value::from(0), Value::from)),
    ("std_err", |j| Value::from(j.spec.stderr.clone())),
    ("std_in", |j| Value::from(j.spec.stdin.clone())),
    ("std_out", |j| Value::from(j.spec.stdout.clone())),
    ("submit_time", |j| Value::from(j.submit_time)),
    ("time_limit", |j| Value::minutes(Some(j.time_limit))),
    ("time_min", |j| j.spec.time_min.map_or(Value::from(0), |least| Value::minutes(Some(least)))),
    ("total_cpus", |j| Value::from(j.allocation.as_ref().map_or(0, |_| j.cpus))),
    ("total_nodes", |j| Value::from_u64(j.allocation.as_ref().map_or(0, |own| own.nodes.len() as u64))),
    ("user_id", |j| Value::from(j.uid)),
    ("user_name", |j| Value::from(j.user.as_str())),
    ("wckey", |j| Value::from(j.spec.wckey.clone())),
    ("work_dir", |j| Value::from(j.spec.work_dir.as_str())),
];

/// A reservation's fields.
pub const RESERVATION: &[Row<Reservation>] = &[
    ("comment", |r| Value::from(r.comment.clone())),
    ("core_cnt", |r| Value::from(r.cores)),
    ("end_time", |r| Value::from(r.end)),
    ("features", |r| Value::from(r.features.clone())),
    ("name", |r| Value::from(r.name.as_str())),
    ("node_cnt", |r| Value::from_u64(r.nodes.len() as u64)),
    ("node_list", |r| Value::from(Some(hostlist::fold(&r.nodes)))),
    ("partition", |r| Value::from(r.partition.clone())),
    ("start_time", |r| Value::from(r.start)),
];
