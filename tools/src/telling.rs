//! How the commands say that asking failed (`slurm_load_jobs error: ...`).

use crate::output::{self, Console};
use garrick_asking::cluster::ClusterError;
use garrick_model::{ids::JobId, refusal::Refusal};

/// How these commands tell of a failure. Each returns the exit code, 1.
pub trait Tell {
    /// `slurm_load_jobs error: Invalid job id specified`.
    fn tell(&self, call: &str, console: &Console) -> i32;
    /// `slurm_load_partitions: Unable to contact slurm controller (connect failure)`.
    fn tell_plainly(&self, call: &str, console: &Console) -> i32;
    /// `scancel: error: Unable to contact slurm controller (connect failure)`.
    fn tell_as(&self, console: &Console) -> i32;
}

impl Tell for ClusterError {
    fn tell(&self, call: &str, console: &Console) -> i32 {
        hints(self, console);
        output::stderr(format!("{call} error: {self}\n").as_bytes());
        1
    }

    fn tell_plainly(&self, call: &str, console: &Console) -> i32 {
        hints(self, console);
        output::stderr(format!("{call}: {self}\n").as_bytes());
        1
    }

    fn tell_as(&self, console: &Console) -> i32 {
        hints(self, console);
        console.error(self);
        1
    }
}

/// What a user can act on when nobody answered. Refusals stand alone, as Slurm's do.
pub fn hints(error: &ClusterError, console: &Console) {
    if matches!(error, ClusterError::NoDaemon { .. } | ClusterError::Door(_)) {
        error.details().iter().for_each(|line| console.line(line));
    }
}

/// What is said of a cluster that is not the own one.
pub fn other_cluster(name: &str) -> String {
    format!(
        "'{name}' can't be reached now, or it is an invalid entry for --cluster.  Use 'sacctmgr list clusters' to see \
         available clusters."
    )
}

/// Says that there is no way to the step manager of a job.
pub fn no_step_manager(console: &Console, job: JobId, error: &ClusterError) {
    error.details().iter().for_each(|line| console.error(line));
    match error.refusal() {
        Some(Refusal::AlreadyDone) => console.error(format_args!("Slurm job {job} has expired")),
        _ => console.error(format_args!("Unable to confirm allocation for job {job}: {error}")),
    }
    if matches!(error.refusal(), Some(Refusal::InvalidJobId | Refusal::AlreadyDone | Refusal::JobPending)) {
        console.info(format_args!("Check SLURM_JOB_ID environment variable. Expired or invalid job {job}"));
    }
}
