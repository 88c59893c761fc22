//! `scontrol show partition`.

use super::{Record, yes_no};
use crate::render::amounts;
use garrick_model::{
    config::{MemoryPer, OverTime},
    time::TimeLimit,
    view::{NodeView, PartitionView},
};
use std::sync::Arc;

/// The record of a partition; `nodes` are all nodes, for its totals.
pub fn record(view: &PartitionView, nodes: &[Arc<NodeView>]) -> Record {
    let p = &*view.config;
    let all = |list: &Option<Vec<String>>| list.as_ref().map_or_else(|| "ALL".to_owned(), |l| l.join(","));
    let unlimited = |n: Option<u32>| n.map_or_else(|| "UNLIMITED".to_owned(), |n| n.to_string());
    let mut r = Record::default();
    r.line(format!("PartitionName={}", p.name));
    let accounts = list_or_denied("Accounts", &p.allow_accounts, &p.deny_accounts);
    let qos = list_or_denied("Qos", &p.allow_qos, &p.deny_qos);
    r.line(format!("AllowGroups={} {accounts} {qos}", all(&p.allow_groups)));
    let alternate = p.alternate.as_ref().map(|a| format!(" Alternate={a}")).unwrap_or_default();
    r.line(format!(
        "AllocNodes={}{alternate} Default={} QoS={}",
        p.alloc_nodes.as_deref().unwrap_or("ALL"),
        yes_no(p.default),
        p.qos.as_deref().unwrap_or("N/A")
    ));
    let exclusive = match (p.exclusive_user, p.exclusive_topo) {
        (true, _) => "USER",
        (false, true) => "TOPO",
        (false, false) => "NO",
    };
    r.line(format!(
        "DefaultTime={} DisableRootJobs={} Exclusive={exclusive} GraceTime={} Hidden={}",
        p.default_time.map_or_else(|| "NONE".to_owned(), TimeLimit::scontrol_text),
        yes_no(p.disable_root_jobs.unwrap_or(false)),
        p.grace_secs,
        yes_no(p.hidden)
    ));
    r.line(format!(
        "MaxNodes={} MaxTime={} MinNodes={} LLN={} MaxCPUsPerNode={} MaxCPUsPerSocket={}",
        unlimited(p.max_nodes),
        p.max_time.scontrol_text(),
        p.min_nodes,
        yes_no(p.least_loaded),
        unlimited(p.max_cpus_per_node),
        unlimited(p.max_cpus_per_socket)
    ));
    if !p.node_sets.is_empty() {
        r.line(format!("NodeSets={}", p.node_sets.join(",")));
    }
    let members = amounts::members(view, nodes);
    let names = garrick_model::hostlist::fold(members.iter().map(|n| &n.name));
    r.line(format!("Nodes={}", super::or_null(Some(&names))));
    r.line(format!(
        "PriorityJobFactor={} PriorityTier={} RootOnly={} ReqResv={} OverSubscribe={}",
        p.priority_job_factor,
        p.priority_tier,
        yes_no(p.root_only),
        yes_no(p.require_reservation),
        p.over_subscribe
    ));
    let over_time = match p.over_time_limit {
        None => "NONE".to_owned(),
        Some(OverTime::Minutes(n)) => n.to_string(),
        Some(OverTime::Unlimited) => "UNLIMITED".to_owned(),
    };
    r.line(format!("OverTimeLimit={over_time} PreemptMode={}", p.preempt_mode.as_deref().unwrap_or("OFF")));
    let cpus: u32 = members.iter().map(|n| n.shape.cpus).sum();
    r.line(format!(
        "State={} TotalCPUs={cpus} TotalNodes={} SelectTypeParameters={}",
        view.state,
        members.len(),
        p.select.as_ref().map_or("NONE", |s| s.text.as_str())
    ));
    let defaults = p.job_defaults.join(",");
    r.line(format!("JobDefaults={}", super::or_null(Some(&defaults))));
    r.line(format!("{} {}", memory("Def", p.def_memory), memory("Max", p.max_memory)));
    r.line(format!("TRES={}", amounts::of_nodes(&members)));
    r.line_if("TRESBillingWeights", p.billing_weights.as_deref());
    r
}

/// `AllowQos=ALL`, or `DenyQos=...` where some are kept out.
fn list_or_denied(what: &str, allowed: &Option<Vec<String>>, denied: &[String]) -> String {
    match allowed {
        Some(list) => format!("Allow{what}={}", list.join(",")),
        None if !denied.is_empty() => format!("Deny{what}={}", denied.join(",")),
        None => format!("Allow{what}=ALL"),
    }
}

fn memory(which: &str, limit: Option<MemoryPer>) -> String {
    match limit {
        None => format!("{which}MemPerNode=UNLIMITED"),
        Some(MemoryPer::Node(m)) => format!("{which}MemPerNode={}", m.0),
        Some(MemoryPer::Cpu(m)) => format!("{which}MemPerCPU={}", m.0),
    }
}
