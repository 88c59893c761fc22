//! `scontrol show partition --json`.

use super::{Meta, document, minutes, number, optional, skeleton, warn};
use crate::{amounts, clock::Clock};
use garrick_model::{
    config::{MemoryPer, OverSubscribe, OverTime, PartitionConfig, Span},
    hostlist,
    view::{NodeView, PartitionView},
};
use serde_json::{Value, json};
use std::sync::Arc;

/// The document of these partitions; `nodes` are all nodes, for totals.
pub fn partitions(views: &[Arc<PartitionView>], nodes: &[Arc<NodeView>], meta: &Meta, clock: &Clock) -> Value {
    let list = views.iter().map(|view| partition(view, nodes, meta)).collect();
    let mut document = document("partitions", list, Some(clock.now), meta);
    if views.is_empty() {
        warn(&mut document, "No partitions to dump");
    }
    document
}

/// One partition.
pub fn partition(view: &PartitionView, nodes: &[Arc<NodeView>], meta: &Meta) -> Value {
    let config = &*view.config;
    let members = amounts::members(view, nodes);
    let joined = |list: &Option<Vec<String>>| json!(list.as_ref().map(|l| l.join(",")).unwrap_or_default());
    let mut p = skeleton(include_str!("skeleton/partition.json"));
    p["nodes"] = json!({
        "allowed_allocation": config.alloc_nodes.as_deref().unwrap_or(""),
        "configured": hostlist::fold(members.iter().map(|n| &n.name)),
        "total": members.len(),
    });
    p["accounts"] = json!({"allowed": joined(&config.allow_accounts), "deny": config.deny_accounts.join(",")});
    p["groups"]["allowed"] = joined(&config.allow_groups);
    p["qos"] = json!({
        "allowed": joined(&config.allow_qos),
        "deny": config.deny_qos.join(","),
        "assigned": config.qos.as_deref().unwrap_or(""),
    });
    p["alternate"] = json!(config.alternate.as_deref().unwrap_or(""));
    p["tres"]["billing_weights"] = json!(config.billing_weights.as_deref().unwrap_or(""));
    p["tres"]["configured"] = json!(amounts::of_nodes(&members));
    p["cluster"] = json!(meta.cluster);
    p["cpus"]["total"] = json!(members.iter().map(|n| n.shape.cpus).sum::<u32>());
    memory(&mut p["defaults"], config.def_memory);
    p["defaults"]["time"] = config.default_time.map_or_else(|| optional(None), minutes);
    p["defaults"]["job"] = json!(config.job_defaults.join(","));
    p["flags"] = json!(flags(config));
    p["partition"] = json!({
        "exclusive": config.exclusive(),
        "oversubscribe": config.over_subscribe.to_string(),
        "state": [view.state.to_string()],
    });
    p["grace_time"] = json!(config.grace_secs);
    maximums(&mut p["maximums"], config);
    p["minimums"]["nodes"] = json!(config.min_nodes);
    p["name"] = json!(config.name);
    p["node_sets"] = json!(config.node_sets.join(","));
    let preempts = config.preempt_mode.as_deref().filter(|mode| *mode != "OFF").unwrap_or("DISABLED");
    p["preempt_mode"] = json!(preempts.split(',').collect::<Vec<_>>());
    p["suspend_time"] = span(config.suspend_time);
    p["timeouts"]["suspend"] = span(config.suspend_timeout);
    p["timeouts"]["resume"] = span(config.resume_timeout);
    p["priority"] = json!({"job_factor": config.priority_job_factor, "tier": config.priority_tier});
    p
}

fn flags(config: &PartitionConfig) -> Vec<&'static str> {
    let flags = [
        (config.default, "DEFAULT"),
        (config.hidden, "HIDDEN"),
        (config.disable_root_jobs == Some(true), "NO_ROOT"),
        (config.root_only, "ROOT_ONLY"),
        (config.require_reservation, "REQ_RESV"),
        (config.least_loaded, "LLN"),
        (config.power_down_on_idle, "PDOI"),
    ];
    flags.into_iter().filter(|f| f.0).map(|f| f.1).collect()
}

/// `GLOBAL` is neither set nor infinite.
fn span(own: Option<Span>) -> Value {
    match own {
        None => json!({"set": false, "infinite": false, "number": 0}),
        Some(Span::Infinite) => limit(None),
        Some(Span::Secs(secs)) => number(secs),
    }
}

fn limit(most: Option<u32>) -> Value {
    most.map_or_else(|| json!({"set": false, "infinite": true, "number": 0}), number)
}

fn maximums(p: &mut Value, config: &PartitionConfig) {
    memory(p, config.max_memory);
    p["cpus_per_node"] = limit(config.max_cpus_per_node);
    p["cpus_per_socket"] = limit(config.max_cpus_per_socket);
    p["nodes"] = limit(config.max_nodes);
    p["time"] = minutes(config.max_time);
    p["over_time_limit"] = match config.over_time_limit {
        None => optional(None),
        Some(OverTime::Minutes(n)) => number(n),
        Some(OverTime::Unlimited) => limit(None),
    };
    let (jobs, force) = match config.over_subscribe {
        OverSubscribe::No => (1, false),
        OverSubscribe::Exclusive => (0, false),
        OverSubscribe::Yes(n) => (n, false),
        OverSubscribe::Force(n) => (n, true),
    };
    p["shares"] = json!(jobs);
    p["oversubscribe"] = json!({"jobs": jobs, "flags": if force { vec!["force"] } else { Vec::new() }});
}

fn memory(p: &mut Value, limit: Option<MemoryPer>) {
    match limit {
        None => {}
        Some(MemoryPer::Node(m)) => {
            p["partition_memory_per_node"] = number(m.0);
            p["memory_per_cpu"] = json!(m.0);
        }
        Some(MemoryPer::Cpu(m)) => {
            p["partition_memory_per_cpu"] = number(m.0);
            p["memory_per_cpu"] = json!(m.0);
        }
    }
}
