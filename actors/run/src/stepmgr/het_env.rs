//! The environment of steps of a heterogeneous job, and of its leader's script, which gets the job's variables of each component
//! once more, with `_HET_GROUP_` and the component's offset appended to their names.

use super::{
    env::{Environment, job_variables},
    run::RunFacts,
};
use crate::env_entry::entry;
use garrick_model::{
    env_vars::{GARRICK_STEPD_JOB, PER_HET_GROUP},
    hostlist,
    ids::JobId,
    messages::step::WholeStep,
    spec::{EnvEntry, HetPart},
};

/// Sets them; does nothing unless the job is a leader.
pub(super) fn het_variables(facts: &RunFacts, env: &mut Environment) {
    if facts.het.is_empty() {
        return;
    }
    env.set("SLURM_HET_SIZE", facts.het.len() + 1);
    let alone = RunFacts { het: Vec::new(), ..facts.clone() };
    let others = facts.het.iter().map(|component| RunFacts {
        job: component.job,
        sluid: component.sluid,
        spec: component.spec.clone(),
        nodes: component.nodes.clone(),
        partition: component.partition.clone(),
        tasks: component.tasks,
        cpus_per_task: component.cpus_per_task,
        ..alone.clone()
    });
    for (offset, group) in std::iter::once(alone.clone()).chain(others).enumerate() {
        let mut own = Environment::default();
        job_variables(&group, &mut own);
        for name in PER_HET_GROUP {
            if let Some(value) = own.get(name) {
                env.set(&format!("{name}_HET_GROUP_{offset}"), value);
            }
        }
    }
}

/// The variables of a step in a component that differ from those of a normal job: the job is the leader's, and, if the step has
/// several components, the job's nodes are the step's.
pub(super) fn part_variables(job: JobId, part: &HetPart, whole: Option<&WholeStep>) -> Vec<EnvEntry> {
    let mut set =
        vec![entry("SLURM_JOBID", part.leader), entry("SLURM_JOB_ID", part.leader), entry(GARRICK_STEPD_JOB, job)];
    if let Some(whole) = whole {
        set.push(entry("SLURM_JOB_NODELIST", hostlist::fold(&whole.nodes)));
        set.push(entry("SLURM_JOB_NUM_NODES", whole.nodes.len()));
    }
    set
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use crate::stepmgr::{builders, env::batch_environment, run::RunFacts};
    use garrick_model::{
        gres::{GpuBind, GresRequest},
        ids::{JobId, Sluid},
        messages::node::HetComponent,
        spec::{JobKind, JobSpec},
    };
    use std::sync::Arc;

    fn value(facts: &RunFacts, name: &str) -> Option<String> {
        let entries = batch_environment(facts);
        let prefix = format!("{name}=");
        entries.iter().find_map(|e| std::str::from_utf8(e).unwrap().strip_prefix(&prefix).map(str::to_owned))
    }

    #[test]
    fn the_leaders_script_is_told_of_every_component() {
        let mut facts = builders::run(JobKind::Batch, &[4, 2]);
        let gres = GresRequest { bind: Some(GpuBind::Closest), ..GresRequest::default() };
        let spec = JobSpec { tasks: Some(3), gres, ..(*facts.spec).clone() };
        facts.het = vec![HetComponent {
            job: JobId(facts.job.0 + 1),
            sluid: Sluid(99),
            spec: Arc::new(spec),
            nodes: facts.nodes[1..].to_vec(),
            partition: "gpu".to_owned(),
            tasks: 3,
            cpus_per_task: 1,
        }];
        let own = facts.job.to_string();
        assert_eq!(value(&facts, "SLURM_HET_SIZE").as_deref(), Some("2"));
        assert_eq!(value(&facts, "SLURM_JOB_ID"), Some(own.clone()));
        assert_eq!(value(&facts, "SLURM_JOB_ID_HET_GROUP_0"), Some(own));
        assert_eq!(value(&facts, "SLURM_JOB_ID_HET_GROUP_1"), Some((facts.job.0 + 1).to_string()));
        assert_eq!(value(&facts, "SLURM_JOB_NUM_NODES_HET_GROUP_0").as_deref(), Some("2"));
        assert_eq!(value(&facts, "SLURM_JOB_NODELIST_HET_GROUP_1"), Some(facts.nodes[1].name.clone()));
        assert_eq!(value(&facts, "SLURM_JOB_PARTITION_HET_GROUP_1").as_deref(), Some("gpu"));
        assert_eq!(value(&facts, "SLURM_NTASKS_HET_GROUP_1").as_deref(), Some("3"));
        assert_eq!(value(&facts, "SLURM_GPU_BIND_HET_GROUP_0"), None);
        assert_eq!(value(&facts, "SLURM_GPU_BIND_HET_GROUP_1").as_deref(), Some("closest"));
        facts.het.clear();
        assert_eq!(value(&facts, "SLURM_HET_SIZE"), None);
        assert_eq!(value(&facts, "SLURM_JOB_ID_HET_GROUP_0"), None);
    }
}
