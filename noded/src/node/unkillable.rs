//! What is left of a run that was killed, and the site's program for that (slurm.conf(5), UnkillableStepProgram), which may
//! notify administrators or do what this daemon cannot. The node is drained in any case.

use crate::scripts::{self, ScriptFailure};
use garrick_agent::{Leftover, RunKey};
use garrick_kernel::cgroup::CgroupError;
use garrick_model::site_program::{Moment, SiteProgram, variable};
use std::{path::Path, time::Duration};

/// It is killed after so long. Slurm names no limit; this is that of HealthCheckProgram.
const LIMIT: Duration = Duration::from_secs(60);

/// Runs it. `SLURM_STEP_ID` is not set: a run is swept as a whole, when its steps are over.
pub async fn run(program: &Path, run: RunKey, node: &str, conf: &Path) -> Result<(), ScriptFailure> {
    let environment = vec![
        variable("SLURM_JOB_ID", run.job.0),
        variable("SLURM_JOBID", run.job.0),
        variable("SLURM_JOB_SLUID", run.sluid),
        variable("SLURMD_NODENAME", node),
        variable("SLURM_CONF", conf.to_string_lossy()),
    ];
    let programs = vec![program.to_string_lossy().into_owned()];
    let moment = Moment::UnkillableStep;
    scripts::run(&SiteProgram { moment, programs, arguments: Vec::new(), environment, limit: Some(LIMIT) }).await
}

/// What a cgroup that was to be cleaned up still contains. If the error does not say, `look` does: a cgroup that could not be
/// removed, and is empty, does not block the node.
pub fn left_in(
    run: RunKey,
    cleaned: Result<(), CgroupError>,
    look: impl FnOnce() -> Result<Vec<u32>, CgroupError>,
) -> Option<Leftover> {
    let error = match cleaned {
        Ok(()) => return None,
        Err(CgroupError::Busy { pids, .. }) if !pids.is_empty() => return Some(Leftover::Processes(pids)),
        Err(error) => error,
    };
    tracing::error!(job_id = run.job.0, %error, "cleaning up after a job");
    match look() {
        Ok(pids) if pids.is_empty() => None,
        Ok(pids) => Some(Leftover::Processes(pids)),
        Err(_) => Some(Leftover::Unknown(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use garrick_model::ids::{JobId, Sluid};

    const RUN: RunKey = RunKey { job: JobId(7), sluid: Sluid(70) };

    #[tokio::test]
    async fn the_program_for_what_cannot_be_killed_knows_the_job_and_its_node() {
        let folder = std::env::temp_dir().join(format!("garrick-unkillable-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (program, told) = (folder.join("program"), folder.join("told"));
        let text = format!(
            "#!/bin/sh\necho \"$SLURM_JOB_ID $SLURMD_NODENAME $SLURM_CONF\" > {}\necho paged >&2\nexit 3\n",
            told.display()
        );
        garrick_kernel::scratch::put_program(&program, &text);
        let failure = run(&program, RUN, "n1", Path::new("/etc/slurm.conf")).await.unwrap_err().to_string();
        assert_eq!(std::fs::read_to_string(&told).unwrap(), "7 n1 /etc/slurm.conf\n");
        assert!(failure.contains("UnkillableStep") && failure.contains("exit code 3") && failure.contains("paged"));
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_cgroup_that_cannot_be_looked_into_is_not_taken_for_empty() {
        let failed = || Err(CgroupError::Unavailable("no permission".into()));
        let busy = |pids: &[u32]| Err(CgroupError::Busy { path: "/c".into(), pids: pids.to_vec() });
        let never = || panic!("the result says all");
        assert_eq!(left_in(RUN, Ok(()), never), None);
        assert_eq!(left_in(RUN, busy(&[51]), never), Some(Leftover::Processes(vec![51])));
        assert_eq!(left_in(RUN, busy(&[]), || Ok(vec![])), None);
        assert_eq!(left_in(RUN, failed(), || Ok(vec![])), None);
        assert_eq!(left_in(RUN, failed(), || Ok(vec![52])), Some(Leftover::Processes(vec![52])));
        let look = || Err(CgroupError::Unavailable("not now".into()));
        assert_eq!(left_in(RUN, failed(), look), Some(Leftover::Unknown("no permission".into())));
    }
}
