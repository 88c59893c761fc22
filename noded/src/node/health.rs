//! The site's health check program: it runs before the node registers, and then at times that are the same for all nodes. The
//! program itself acts on what it finds (`scontrol update nodename=... state=drain`).

use crate::{node::runs::RunWorld, scripts};
use garrick_model::{
    config::HealthCheck,
    site_program::{Moment, SiteProgram, variable},
};
use std::{
    path::Path,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// It is killed after so long (slurm.conf(5), HealthCheckProgram).
const LIMIT: Duration = Duration::from_secs(60);

/// Runs it once. A failure is logged, and has no other effect.
pub async fn check(program: &Path, world: &RunWorld) {
    let check = SiteProgram {
        moment: Moment::HealthCheck,
        programs: vec![program.to_string_lossy().into_owned()],
        arguments: Vec::new(),
        environment: vec![
            variable("SLURMD_NODENAME", &world.node),
            variable("SLURM_CONF", world.settings.conf.to_string_lossy()),
        ],
        limit: Some(LIMIT),
    };
    match scripts::run(&check).await {
        Ok(()) => tracing::debug!(program = %program.display(), "the health check found nothing"),
        Err(e) => tracing::warn!(error = %e, "the health check failed"),
    }
}

/// Runs it at its times, for the life of the process. `place`: this node's among so many of the site.
pub async fn serve(health: HealthCheck, (place, nodes): (u32, u32), world: Arc<RunWorld>) {
    let Some(program) = health.program.clone() else { return };
    loop {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let Some(pause) = health.next(now, place, nodes) else { return };
        tokio::time::sleep(pause).await;
        if health.concerns(world.spool.has_runs()) {
            check(&program, &world).await;
        }
    }
}
