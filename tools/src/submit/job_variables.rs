//! `SLURM_*` variables that the command of `salloc` gets about its allocation (salloc(1), "output environment
//! variables"), and the ones by which `srun` finds the step manager without asking the controller.

use super::allocation::nodes;
use crate::options::export;
use garrick_model::{
    env_vars, hostlist, messages::command::StepManagerPlace, resources::MemoryRequest, spec::Sharing,
    spec_text::counts_per_node, view::JobView,
};
use std::{borrow::Cow, ffi::OsString, os::unix::ffi::OsStrExt as _, path::Path, sync::Arc};

/// What is not in the job's view.
#[derive(Clone, Copy, Debug)]
pub struct Surroundings<'a> {
    /// `ClusterName`
    pub cluster: &'a str,
    /// Configuration file.
    pub conf: &'a Path,
    /// Where `salloc` runs.
    pub work_dir: &'a Path,
    /// Host on which it runs.
    pub host: &'a str,
    /// Where the step manager is.
    pub manager: Option<&'a StepManagerPlace>,
    /// Its door is on this host.
    pub manager_is_here: bool,
}

/// The variables, in alphabetical order.
pub fn variables(view: &JobView, around: &Surroundings<'_>) -> Vec<(&'static str, String)> {
    let spec = &view.spec;
    let allocated: Vec<_> = view.allocation.iter().flat_map(|a| &a.nodes).collect();
    let node_list = hostlist::fold(nodes(view));
    let count = allocated.len().to_string();
    let partition = view.allocation.as_ref().map_or_else(
        || view.partitions.first().cloned().unwrap_or_default(),
        |allocation| allocation.partition.clone(),
    );
    let id = view.id.to_string();
    let mut set = vec![
        ("SLURM_CLUSTER_NAME", around.cluster.to_owned()),
        ("SLURM_CONF", around.conf.display().to_string()),
        ("SLURM_JOBID", id.clone()),
        ("SLURM_JOB_CPUS_PER_NODE", counts_per_node(allocated.iter().map(|n| n.share.cpus.len()))),
        ("SLURM_JOB_EXCLUSIVE", if view.sharing == Sharing::Exclusive { "YES" } else { "NO" }.to_owned()),
        ("SLURM_JOB_GID", view.gid.to_string()),
        ("SLURM_JOB_ID", id),
        ("SLURM_JOB_NAME", spec.name.clone()),
        ("SLURM_JOB_NODELIST", node_list.clone()),
        ("SLURM_JOB_NUM_NODES", count.clone()),
        ("SLURM_JOB_OVERSUBSCRIBE", if view.sharing == Sharing::Oversubscribe { "YES" } else { "NO" }.to_owned()),
        ("SLURM_JOB_PARTITION", partition),
        ("SLURM_JOB_SLUID", view.sluid.to_string()),
        ("SLURM_JOB_UID", view.uid.to_string()),
        ("SLURM_JOB_USER", view.user.clone()),
        ("SLURM_NNODES", count),
        ("SLURM_NODELIST", node_list),
        ("SLURM_SUBMIT_DIR", around.work_dir.display().to_string()),
        ("SLURM_SUBMIT_HOST", around.host.to_owned()),
        ("SLURM_TASKS_PER_NODE", counts_per_node(allocated.iter().map(|n| n.share.tasks.max(1)))),
    ];
    let mut also = |name: &'static str, value: Option<String>| set.extend(value.map(|value| (name, value)));
    also("SLURM_JOB_START_TIME", view.start_time.map(|t| t.secs().to_string()));
    also("SLURM_JOB_END_TIME", view.end_time.map(|t| t.secs().to_string()));
    also("SLURM_JOB_ACCOUNT", spec.account.clone());
    also("SLURM_JOB_QOS", spec.qos.clone());
    also("SLURM_NTASKS", spec.tasks.map(|n| n.to_string()));
    also("SLURM_NPROCS", spec.tasks.map(|n| n.to_string()));
    also("SLURM_NTASKS_PER_NODE", spec.tasks_per_node.map(|n| n.to_string()));
    also("SLURM_CPUS_PER_TASK", spec.cpus_per_task.map(|n| n.to_string()));
    for (name, value) in spec.gres.variables() {
        also(name, Some(value));
    }
    let (per_node, per_cpu) = match spec.memory {
        MemoryRequest::PerNode(mib) => (Some(mib.0.to_string()), None),
        MemoryRequest::PerCpu(mib) => (None, Some(mib.0.to_string())),
        MemoryRequest::All => (Some("0".to_owned()), None),
        MemoryRequest::Default => (None, None),
    };
    also("SLURM_MEM_PER_NODE", per_node);
    also("SLURM_MEM_PER_CPU", per_cpu);
    if let Some(place) = around.manager {
        also(env_vars::SLURM_STEPMGR, Some(place.node.clone()));
        also(env_vars::GARRICK_STEPMGR_ADDRESS, Some(place.address.clone()));
        also(env_vars::GARRICK_STEPD_DOOR, around.manager_is_here.then(|| place.door.clone()));
    }
    set.sort_unstable();
    set
}

/// Variables about the components of a heterogeneous job, in the order of their offsets.
pub fn of_components(components: &[Arc<JobView>], around: &Surroundings<'_>) -> Vec<(Cow<'static, str>, String)> {
    let mut set = vec![(Cow::Borrowed("SLURM_HET_SIZE"), components.len().to_string())];
    for (offset, view) in components.iter().enumerate() {
        let own = variables(view, around).into_iter().filter(|(name, _)| env_vars::PER_HET_GROUP.contains(name));
        set.extend(own.map(|(name, value)| (Cow::Owned(format!("{name}_HET_GROUP_{offset}")), value)));
    }
    set
}

/// Names in this process's environment that belong to a surrounding job, which the command must not inherit.
pub fn to_remove() -> Vec<OsString> {
    std::env::vars_os().map(|(name, _)| name).filter(|name| export::of_the_surrounding_job(name.as_bytes())).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::submit::test_views::job_view;
    use garrick_model::{ids::JobId, state::JobState};

    fn value(set: &[(&'static str, String)], name: &str) -> Option<String> {
        set.iter().find(|(n, _)| *n == name).map(|(_, v)| v.clone())
    }

    #[test]
    fn the_allocation_is_described() {
        let view = job_view(531, JobState::Running);
        let place = StepManagerPlace {
            job: JobId(531),
            node: "n1".to_owned(),
            door: "/run/j531.sock".to_owned(),
            address: "n1:6818".to_owned(),
            nodes: Vec::new(),
        };
        let around = Surroundings {
            cluster: "peer",
            conf: Path::new("/etc/slurm.conf"),
            work_dir: Path::new("/home/alice"),
            host: "login",
            manager: Some(&place),
            manager_is_here: false,
        };
        let set = variables(&view, &around);
        for (name, want) in [
            ("SLURM_JOB_ID", "531"),
            ("SLURM_JOB_NODELIST", "n[1-2]"),
            ("SLURM_NNODES", "2"),
            ("SLURM_JOB_CPUS_PER_NODE", "4,2"),
            ("SLURM_TASKS_PER_NODE", "2,1"),
            ("SLURM_JOB_PARTITION", "debug"),
            ("SLURM_JOB_END_TIME", "1601"),
            ("SLURM_STEPMGR", "n1"),
            ("GARRICK_STEPMGR_ADDRESS", "n1:6818"),
        ] {
            assert_eq!(value(&set, name).as_deref(), Some(want), "{name}");
        }
        assert_eq!(value(&set, "SLURM_NTASKS"), None);
        assert_eq!(value(&set, "GARRICK_STEPD_DOOR"), None);
        let here = variables(&view, &Surroundings { manager_is_here: true, ..around });
        assert_eq!(value(&here, "GARRICK_STEPD_DOOR").as_deref(), Some("/run/j531.sock"));
    }
}
