//! Problems when a node released a run.

use garrick_model::ids::JobId;

/// Slurm's reason for a node that was drained because an epilog failed.
const EPILOG_ERROR: &str = "Epilog error";
/// Reason of a drain for processes that outlive their job, as in Slurm.
const KILL_TASK_FAILED: &str = "Kill task failed";

/// Problems when a node released a run.
#[derive(Debug, Default)]
pub struct Trouble {
    /// The epilog's failure.
    pub epilog_failed: Option<String>,
    /// What of the job could not be ended.
    pub unkillable: Option<String>,
}

impl Trouble {
    /// Why the node is to be drained; what is left of the job comes before the epilog's failure, which may follow from it.
    pub fn reason(&self) -> Option<String> {
        let reason = match self {
            Self { unkillable: Some(_), .. } => KILL_TASK_FAILED,
            Self { epilog_failed: Some(_), .. } => EPILOG_ERROR,
            _ => return None,
        };
        Some(reason.to_owned())
    }

    /// Writes them to the log.
    pub fn log(&self, job: JobId, node: &str) {
        if let Some(why) = &self.unkillable {
            tracing::warn!(job_id = job.0, node, why, "job.unkillable");
        }
        if let Some(why) = &self.epilog_failed {
            tracing::warn!(job_id = job.0, node, why, "job.epilog_failed");
        }
    }
}
