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
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// A program that hangs keeps the controller from its work no longer. A choice of this project.
const LIMIT: Duration = Duration::from_secs(60);

/// What runs where this process is not the cluster's controller any more.
struct Off {
    program: Option<PathBuf>,
    /// Its `slurm.conf`.
    conf: PathBuf,
}

impl Off {
    fn of(config: &Config) -> Self {
        Self { program: config.primary_off.clone(), conf: config.path.clone() }
    }
}

/// Set while this process is the cluster's controller. Whoever takes it runs the program, so that it runs once.
static OFF: Mutex<Option<Off>> = Mutex::new(None);

fn off() -> MutexGuard<'static, Option<Off>> {
    OFF.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn run(moment: Moment, program: &Path, conf: &Path) {
    let programs = vec![program.display().to_string()];
    let environment = vec![variable(SLURM_CONF, conf.display())];
    let program = SiteProgram { moment, programs, arguments: Vec::new(), environment, limit: Some(LIMIT) };
    match scripts::run(&program).await {
        Ok(()) => tracing::info!("{} has run", moment.key()),
        Err(error) => tracing::error!("{error}"),
    }
}

/// This process has become the cluster's controller. Its program has run, or failed, when this returns.
pub async fn becomes(config: &Config) {
    *off() = Some(Off::of(config));
    if let Some(on) = &config.primary_on {
        run(Moment::PrimaryOn, on, &config.path).await;
    }
}

/// The configuration was read again.
pub fn reconfigured(config: &Config) {
    if let Some(off) = off().as_mut() {
        *off = Off::of(config);
    }
}

/// It ends in order, or could not start.
pub async fn ends() {
    let taken = off().take();
    if let Some(Off { program: Some(program), conf }) = taken {
        run(Moment::PrimaryOff, &program, &conf).await;
    }
}

/// Another one has its place: this process ends at once, and the program is not waited for.
pub fn is_lost() {
    let taken = off().take();
    let Some(Off { program: Some(off), conf }) = taken else { return };
    let mut program = Command::new(&off);
    program.env_clear().env("PATH", scripts::PATH).env(SLURM_CONF, conf).current_dir("/").process_group(0);
    program.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    if let Err(error) = program.spawn() {
        tracing::error!(program = %off.display(), %error, "{}", Moment::PrimaryOff.key());
    }
}
