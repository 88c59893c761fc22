//! `scontrol show node --json`.

use super::{Meta, document, number, optional, skeleton, time, warn};
use crate::{amounts, clock::Clock, node_state};
use garrick_model::{node_shape::entries_text, resources::CpuSet, view::NodeView};
use serde_json::{Value, json};
use std::sync::Arc;

/// The document of these nodes, each with the names of its partitions.
pub fn nodes(nodes: &[(Arc<NodeView>, Vec<String>)], meta: &Meta, clock: &Clock) -> Value {
    let list = nodes.iter().map(|(view, partitions)| node(view, partitions)).collect();
    let mut document = document("nodes", list, Some(clock.now), meta);
    if nodes.is_empty() {
        warn(&mut document, "No nodes to dump");
    }
    document
}

fn node(view: &NodeView, partitions: &[String]) -> Value {
    let mut n = skeleton(include_str!("skeleton/node.json"));
    let used = node_state::usage(view);
    let shape = &view.shape;
    if let Some(facts) = view.registration.as_deref() {
        n["architecture"] = json!(facts.arch);
        n["operating_system"] = json!(facts.os);
        n["version"] = json!(facts.version);
        n["boot_time"] = time(Some(facts.boot_time));
        n["slurmd_start_time"] = time(Some(facts.agent_start));
        n["cpu_load"] = json!(view.load.load_hundredths);
    }
    n["free_mem"] = optional(view.load.free_memory.map(|m| m.0));
    n["boards"] = json!(shape.boards);
    n["cores"] = json!(shape.cores_per_socket);
    n["cpus"] = json!(shape.cpus);
    n["effective_cpus"] = json!(shape.job_cpu_count());
    n["specialized_cores"] = json!(shape.reserved_cpus.len() / shape.cpus_per_core().max(1));
    if !shape.reserved_cpus.is_empty() {
        n["specialized_cpus"] = json!(shape.reserved_cpus.to_string());
    }
    let cores: CpuSet = shape.restricted_cpus().iter().map(|cpu| shape.core_of_cpu(cpu)).collect();
    n["gpu_spec"] = json!(cores.to_string());
    n["res_cores_per_gpu"] = json!(shape.cpus_per_gpu() / shape.cpus_per_core().max(1));
    n["specialized_memory"] = json!(shape.reserved_memory.0);
    n["mcs_label"] = json!(view.mcs_label().unwrap_or_default());
    n["features"] = json!(view.features);
    n["active_features"] = json!(view.features);
    n["last_busy"] = time(view.last_busy);
    n["name"] = json!(view.name);
    n["address"] = json!(view.address);
    n["hostname"] = json!(view.hostname);
    n["state"] = json!(node_state::record_words(view));
    n["partitions"] = json!(partitions);
    n["port"] = json!(view.port);
    n["real_memory"] = json!(shape.memory.0);
    n["comment"] = json!(view.comment.as_deref().unwrap_or(""));
    n["extra"] = json!(view.extra.as_deref().unwrap_or(""));
    n["reason_changed_at"] = time(None);
    if let Some(reason) = &view.reason {
        n["reason"] = json!(reason.text);
        n["reason_changed_at"] = time(Some(reason.at));
        n["reason_set_by_user"] = json!(reason.user);
    }
    n["instance_id"] = json!(view.instance_id.as_deref().unwrap_or(""));
    n["instance_type"] = json!(view.instance_type.as_deref().unwrap_or(""));
    n["resume_after"] = optional(view.resume_at.and_then(|at| u64::try_from(at.secs()).ok()));
    n["suspend_time"] = match view.suspend_time_secs {
        Some(secs) => number(secs),
        None => json!({"set": false, "infinite": true, "number": 0}),
    };
    n["alloc_memory"] = json!(used.memory.0);
    n["alloc_cpus"] = json!(used.cpus);
    n["alloc_idle_cpus"] = json!(shape.cpus.saturating_sub(used.cpus));
    n["gres"] = json!(entries_text(shape));
    n["gres_used"] = json!(amounts::gres_used(view));
    n["tres_used"] = json!(amounts::used_tres(view, used.cpus, used.memory));
    n["sockets"] = json!(shape.sockets);
    n["threads"] = json!(shape.threads_per_core);
    n["temporary_disk"] = json!(shape.tmp_disk_mib);
    n["weight"] = json!(view.weight);
    n["tres"] = json!(amounts::configured_tres(view));
    let power = view.load.power.unwrap_or_default();
    n["energy"]["current_watts"] = number(power.watts);
    n["energy"]["average_watts"] = json!(power.mean_watts);
    n["energy"]["consumed_energy"] = json!(power.joules);
    n["energy"]["previous_consumed_energy"] = json!(power.joules_before);
    n["energy"]["last_collected"] = json!(power.at.secs());
    n
}
