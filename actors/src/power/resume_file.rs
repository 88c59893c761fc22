//! The file that `SLURM_RESUME_FILE` names for `ResumeProgram`: which jobs wait for which nodes (power_save.html).

use garrick_model::{hostlist, spec::Sharing, view::JobView};
use serde_json::{Value, json};
use std::{collections::BTreeSet, sync::Arc};

/// The text for these nodes and the jobs that hold something on them.
pub fn text(nodes: &BTreeSet<String>, jobs: &[Arc<JobView>]) -> String {
    let jobs: Vec<Value> = jobs.iter().filter_map(|job| entry(nodes, job)).collect();
    let document = json!({"all_nodes_resume": hostlist::fold(nodes), "jobs": jobs});
    format!("{document:#}\n")
}

/// Sharing is in `squeue`'s words (`%h` and `Exclusive`).
fn entry(nodes: &BTreeSet<String>, job: &JobView) -> Option<Value> {
    let allocation = job.allocation.as_ref()?;
    let names = || allocation.nodes.iter().map(|node| &node.name);
    let exclusive = match job.sharing {
        Sharing::Exclusive if job.spec.topology.exclusive => "TOPO",
        Sharing::Exclusive => "NODE",
        Sharing::User => "USER",
        Sharing::Mcs => "MCS",
        Sharing::Default | Sharing::Oversubscribe => "NO",
    };
    let oversubscribe = match job.sharing {
        Sharing::Exclusive => "NO",
        Sharing::Oversubscribe => "YES",
        Sharing::Default | Sharing::User | Sharing::Mcs => "OK",
    };
    Some(json!({
        "extra": job.spec.extra,
        "features": job.spec.constraint,
        "job_id": job.id.0,
        "nodes_alloc": hostlist::fold(names()),
        "nodes_resume": hostlist::fold(names().filter(|name| nodes.contains(*name))),
        "oversubscribe": oversubscribe,
        "exclusive": exclusive,
        "partition": allocation.partition,
        "reservation": allocation.reservation,
    }))
}
