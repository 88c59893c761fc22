//! What went wrong when a node let go of a run.

use garrick_model::ids::JobId;

/// What Slurm writes as the reason of a node that an epilog's failure drained.
const EPILOG_ERROR: &str = "Epilog error";
/// Reason of a drain for processes that outlive their job, as in Slurm.
const KILL_TASK_FAILED: &str = "Kill task failed";

/// What went wrong when a node let go of a run.
#[derive(Debug, Default)]
pub struct Trouble {
    /// What its epilog said, where that failed.
    pub epilog_failed: Option<String>,
    /// What of the job outlived the attempts to end it.
    pub unkillable: Option<String>,
}

impl Trouble {
    /// Why the node is to be drained; what is left of the job before what its epilog said, which may follow from it.
    pub fn reason(&self) -> Option<String> {
        let reason = match self {
            Self { unkillable: Some(_), .. } => KILL_TASK_FAILED,
            Self { epilog_failed: Some(_), .. } => EPILOG_ERROR,
            _ => return None,
        };
        Some(reason.to_owned())
    }

    /// Says so in the log.
    pub fn log(&self, job: JobId, node: &str) {
        if let Some(why) = &self.unkillable {
            tracing::warn!(job_id = job.0, node, why, "job.unkillable");
        }
        if let Some(why) = &self.epilog_failed {
            tracing::warn!(job_id = job.0, node, why, "job.epilog_failed");
        }
    }
}
