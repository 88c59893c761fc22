//! Jobs that are named by one of their runs (SLUIDs). The controller knows the job of a run; for the run around a command its
//! environment names the job.

use crate::{
    Asker,
    cluster::{Answer, Cluster, ClusterError},
    patience,
};
use garrick_model::{
    env_vars,
    ids::{JobId, Sluid},
    messages::command::{CommandReply, CommandRequest, JobSelector},
    refusal::Refusal,
    step_selector::StepsSelector,
};
use std::{env, path::Path};

/// The job whose newest run that is. A run before is not found: what is done to the job now is not done to that.
pub fn job_of(conf: Option<&Path>, asker: &dyn Asker, run: Sluid) -> Answer<JobId> {
    named(conf, asker, &run.into())
}

/// The one job that is named by its run, or as an element of an array.
pub fn named(conf: Option<&Path>, asker: &dyn Asker, name: &JobSelector) -> Answer<JobId> {
    let variable = |name: &str| env::var(name).ok();
    if let Some(own) = name.run.and_then(|run| own_job(run, variable)) {
        return Ok(own);
    }
    let request = CommandRequest::list_jobs(vec![name.clone()]);
    match patience::ask(&Cluster::find(conf)?, asker, &request)? {
        CommandReply::Jobs { jobs, .. } => {
            let found = jobs.iter().find(|job| name.run.is_none_or(|run| job.sluid == run)).map(|job| job.id);
            found.ok_or_else(|| Refusal::InvalidJobId.into())
        }
        _ => Err(ClusterError::Unexpected("asked for a job")),
    }
}

/// The job around, where the run is its.
fn own_job(run: Sluid, variable: impl Fn(&str) -> Option<String>) -> Option<JobId> {
    let own: Sluid = variable(env_vars::SLURM_JOB_SLUID)?.parse().ok()?;
    variable(env_vars::SLURM_JOB_ID)?.parse().ok().filter(|_| own == run)
}

/// Finds the jobs of all that are named by a run. The error names the first unknown one.
pub fn find(asker: &dyn Asker, jobs: &mut [JobSelector], steps: &mut [StepsSelector]) -> Result<(), NoRun> {
    let of_jobs = jobs.iter_mut().map(|named| (named.run, named.to_string(), &mut named.job));
    let of_steps = steps.iter_mut().map(|named| (named.run, named.to_string(), &mut named.job));
    for (run, name, job) in of_jobs.chain(of_steps) {
        if let Some(run) = run {
            *job = job_of(None, asker, run).map_err(|error| NoRun { name, error })?;
        }
    }
    Ok(())
}

/// A run that could not be found.
#[derive(Debug)]
pub struct NoRun {
    /// What names it, as typed.
    pub name: String,
    /// Why not.
    pub error: ClusterError,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_run_around_is_known_without_asking() {
        let run = Sluid(70);
        let variables = [(env_vars::SLURM_JOB_ID, "5".to_owned()), (env_vars::SLURM_JOB_SLUID, run.to_string())];
        let read = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, v)| v.clone());
        assert_eq!(own_job(run, read), Some(JobId(5)));
        assert_eq!(own_job(Sluid(71), read), None);
        assert_eq!(own_job(run, |_| None), None);
    }
}
