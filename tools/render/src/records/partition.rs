//! `scontrol show partition`.

use super::{Record, or_null};
use crate::amounts;
use garrick_model::{
    hostlist,
    view::{NodeView, PartitionView},
};
use std::sync::Arc;

/// What stands on each line, if there is anything to show of it.
const LAYOUT: &[&[&str]] = &[
    &["PartitionName"],
    &["AllowGroups", "AllowAccounts", "AllowQos"],
    &["AllocNodes", "Alternate", "Default", "QOS"],
    &["DefaultTime", "DisableRootJobs", "Exclusive", "GraceTime", "Hidden"],
    &["MaxNodes", "MaxTime", "MinNodes", "LLN", "MaxCPUsPerNode", "MaxCPUsPerSocket"],
    &["NodeSets"],
    &["Nodes"],
    &["PriorityJobFactor", "PriorityTier", "RootOnly", "ReqResv", "OverSubscribe"],
    &["OverTimeLimit", "PreemptMode"],
    &["State", "TotalCPUs", "TotalNodes", "SelectTypeParameters"],
    &["JobDefaults"],
    &["DefMem", "MaxMem"],
    &["TRES"],
    &["TRESBillingWeights"],
];

/// Where nodes are powered down when they are idle.
const POWER: &[&str] = &["ResumeTimeout", "SuspendTimeout", "SuspendTime", "PowerDownOnIdle"];

/// The record of a partition; `nodes` are all nodes, for its totals.
pub fn record(view: &PartitionView, nodes: &[Arc<NodeView>]) -> Record {
    let members = amounts::members(view, nodes);
    let shown = |key: &&str| match *key {
        "Nodes" => Some(format!("Nodes={}", or_null(Some(&hostlist::fold(members.iter().map(|n| &n.name)))))),
        "State" => Some(format!("State={}", view.state)),
        "TotalCPUs" => Some(format!("TotalCPUs={}", members.iter().map(|n| n.shape.cpus).sum::<u32>())),
        "TotalNodes" => Some(format!("TotalNodes={}", members.len())),
        "TRES" if members.is_empty() => Some("TRES=(null)".to_owned()),
        "TRES" => Some(format!("TRES={}", amounts::of_nodes(&members))),
        key => view.config.shown(key),
    };
    let saves_power = nodes.iter().any(|node| node.suspend_time_secs.is_some());
    let mut r = Record::default();
    for keys in LAYOUT.iter().copied().chain(saves_power.then_some(POWER)) {
        let words: Vec<String> = keys.iter().filter_map(shown).collect();
        if !words.is_empty() {
            r.line(words.join(" "));
        }
    }
    r
}
