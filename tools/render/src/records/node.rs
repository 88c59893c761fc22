//! `scontrol show node`.

use super::{Record, job::Detail, or_null};
use crate::{amounts, clock::Clock, node_state};
use garrick_model::{
    node_shape::{NodeShape, entries_text},
    spec::Sharing,
    view::NodeView,
};

/// Whose the node is while it runs jobs that share it with those of one user only (`--exclusive=user`).
fn owner(node: &NodeView, user: &dyn Fn(u32) -> String) -> String {
    let own = node.holds.iter().find(|hold| hold.sharing == Sharing::User);
    own.map_or_else(|| "N/A".to_owned(), |hold| format!("{}({})", user(hold.uid), hold.uid))
}

/// The record of a node that belongs to these partitions. `user` gives the name of a user by number.
pub fn record(
    node: &NodeView,
    partitions: &[String],
    clock: &Clock,
    detail: Detail,
    user: &dyn Fn(u32) -> String,
) -> Record {
    let mut r = Record::default();
    let facts = node.registration.as_deref();
    let used = node_state::usage(node);
    let shape = &node.shape;
    let arch = facts.map(|f| format!(" Arch={}", f.arch)).unwrap_or_default();
    r.line(format!("NodeName={}{arch} CoresPerSocket={} ", node.name, shape.cores_per_socket));
    let load = facts.map_or_else(
        || "N/A".to_owned(),
        |_| format!("{}.{:02}", node.load.load_hundredths / 100, node.load.load_hundredths % 100),
    );
    r.line(format!("CPUAlloc={} CPUEfctv={} CPUTot={} CPULoad={load}", used.cpus, shape.job_cpu_count(), shape.cpus));
    let features = node.features.join(",");
    r.line(format!("AvailableFeatures={}", or_null(Some(&features))));
    r.line(format!("ActiveFeatures={}", or_null(Some(&features))));
    r.line(format!("Gres={}", or_null(Some(&entries_text(shape)))));
    if detail == Detail::Detailed {
        r.line(format!("GresDrain=N/A GresUsed={}", or_null(Some(&amounts::gres_used(node)))));
    }
    let version = facts.map(|f| format!(" Version={}", f.version)).unwrap_or_default();
    r.line(format!("NodeAddr={} NodeHostName={} Port={}{version}", node.address, node.hostname, node.port));
    if let Some(facts) = facts {
        r.line(format!("OS={} ", facts.os));
    }
    r.line(format!(
        "RealMemory={} AllocMem={} FreeMem={} Sockets={} Boards={}",
        shape.memory.0,
        used.memory.0,
        node.load.free_memory.map_or_else(|| "N/A".to_owned(), |m| m.0.to_string()),
        shape.sockets,
        shape.boards
    ));
    let reserved = reserved(shape);
    if !reserved.is_empty() {
        r.line(reserved.join(" "));
    }
    state(&mut r, node, partitions, clock, user);
    r.line(format!("CfgTRES={}", amounts::configured_tres(node)));
    r.line(format!("AllocTRES={}", amounts::used_tres(node, used.cpus, used.memory)));
    let power = node.load.power.unwrap_or_default();
    r.line(format!("CurrentWatts={} AveWatts={}", power.watts, power.mean_watts));
    if let Some(reason) = &node.reason {
        r.line(format!("Reason={} [{}@{}]", reason.text, reason.user, clock.at(reason.at)));
    }
    r.line_if("Comment", node.comment.as_deref());
    r.line_if("Extra", node.extra.as_deref());
    let id = node.instance_id.as_ref().map(|id| format!("InstanceId={id} "));
    let kind = node.instance_type.as_ref().map(|kind| format!("InstanceType={kind}"));
    if id.is_some() || kind.is_some() {
        r.line([id, kind].into_iter().flatten().collect::<String>());
    }
    r
}

/// What is left to the system.
fn reserved(shape: &NodeShape) -> Vec<String> {
    let mut reserved = Vec::new();
    if !shape.reserved_cpus.is_empty() {
        let cores = shape.reserved_cpus.len() / shape.cpus_per_core().max(1);
        reserved.push(format!("CoreSpecCount={cores} CPUSpecList={}", shape.reserved_cpus));
    }
    if !shape.reserved_memory.is_zero() {
        reserved.push(format!("MemSpecLimit={}", shape.reserved_memory.0));
    }
    if !shape.gpu_cpus.is_empty() {
        reserved.push(format!("RestrictedCoresPerGPU={}", shape.cpus_per_gpu() / shape.cpus_per_core().max(1)));
    }
    reserved
}

/// How it stands, since when, and whose it is.
fn state(r: &mut Record, node: &NodeView, partitions: &[String], clock: &Clock, user: &dyn Fn(u32) -> String) {
    let facts = node.registration.as_deref();
    r.line(format!(
        "State={} ThreadsPerCore={} TmpDisk={} Weight={} Owner={} MCS_label={}",
        node_state::record_words(node).join("+"),
        node.shape.threads_per_core,
        node.shape.tmp_disk_mib,
        node.weight,
        owner(node, user),
        node.mcs_label().unwrap_or("N/A")
    ));
    r.line_if("NextState", node.after_reboot.map(garrick_model::view::AfterReboot::word));
    if !partitions.is_empty() {
        r.line(format!("Partitions={} ", partitions.join(",")));
    }
    r.line(format!(
        "BootTime={} SlurmdStartTime={}",
        clock.at_or(facts.map(|f| f.boot_time), "None"),
        clock.at_or(facts.map(|f| f.agent_start), "None")
    ));
    r.line(format!(
        "LastBusyTime={} ResumeAfterTime={} SuspendTime={}",
        clock.at_or(node.last_busy, "Unknown"),
        clock.at_or(node.resume_at, "None"),
        node.suspend_time_secs.map_or_else(|| "INFINITE".to_owned(), |secs| secs.to_string())
    ));
}
