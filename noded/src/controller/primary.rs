//! The site's programs for what follows the cluster's controller from host to host, such as an IP address (slurm.conf(5),
//! `SlurmctldPrimaryOnProg` and `SlurmctldPrimaryOffProg`). They run as the controller's user, with `SLURM_CONF` and no arguments.

use crate::scripts;
use garrick_model::{
    config::Config,
    env_vars::SLURM_CONF,
    site_program::{Moment, SiteProgram, variable},
};
use std::{
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::OnceLock,
    time::Duration,
};

/// A program that hangs keeps the controller from its work no longer. A choice of this project.
const LIMIT: Duration = Duration::from_secs(60);

/// What runs where this process learns that it is not the cluster's controller any more, and its `slurm.conf`.
static OFF: OnceLock<(PathBuf, PathBuf)> = OnceLock::new();

fn of_config(config: &Config) -> (String, String) {
    variable(SLURM_CONF, config.path.display())
}

async fn run(moment: Moment, program: &Path, config: &Config) {
    let programs = vec![program.display().to_string()];
    let environment = vec![of_config(config)];
    let program = SiteProgram { moment, programs, arguments: Vec::new(), environment, limit: Some(LIMIT) };
    match scripts::run(&program).await {
        Ok(()) => tracing::info!("{} has run", moment.key()),
        Err(error) => tracing::error!("{error}"),
    }
}

/// This process has become the cluster's controller. Its program has run, or failed, when this returns.
pub async fn becomes(config: &Config) {
    if let Some(off) = &config.primary_off {
        // Only the first controller of a process counts.
        let _ = OFF.set((off.clone(), config.path.clone()));
    }
    if let Some(on) = &config.primary_on {
        run(Moment::PrimaryOn, on, config).await;
    }
}

/// It ends in order.
pub async fn ends(config: &Config) {
    if let Some(off) = &config.primary_off {
        run(Moment::PrimaryOff, off, config).await;
    }
}

/// Another one has its place: this process ends at once, and the program is not waited for.
pub fn is_lost() {
    let Some((off, conf)) = OFF.get() else { return };
    let mut program = Command::new(off);
    program.env_clear().env("PATH", scripts::PATH).env(SLURM_CONF, conf).current_dir("/").process_group(0);
    program.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    if let Err(error) = program.spawn() {
        tracing::error!(program = %off.display(), %error, "{}", Moment::PrimaryOff.key());
    }
}
