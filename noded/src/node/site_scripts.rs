//! What the site runs around the jobs of this node, as of the last time that `slurm.conf` was read: `scontrol reconfigure` and SIGHUP
//! have it read again, for runs and moments that come later.

use crate::scripts::{ScriptPatternError, resolve};
use garrick_model::{
    config::{self, Config},
    spec::{SiteOfSrun, TaskScripts},
};
use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

/// Programs, and their limits.
#[derive(Clone, Debug, Default)]
pub struct SiteScripts {
    /// `Prolog` settings.
    pub prolog: Vec<String>,
    /// `Epilog` settings.
    pub epilog: Vec<String>,
    /// PrologTimeout.
    pub prolog_limit: Option<Duration>,
    /// EpilogTimeout.
    pub epilog_limit: Option<Duration>,
    /// `TaskProlog` and `TaskEpilog`.
    pub task: TaskScripts,
    /// `SrunProlog` and the like.
    pub of_srun: SiteOfSrun,
    /// RebootProgram.
    pub reboot: Option<PathBuf>,
    /// UnkillableStepProgram.
    pub unkillable: Option<PathBuf>,
}

impl SiteScripts {
    /// Those of a configuration.
    ///
    /// # Errors
    ///
    /// A setting is no path and no pattern of paths.
    pub fn of(config: &Config) -> Result<Self, ScriptPatternError> {
        let limit = |secs: Option<u32>| secs.map(|secs| Duration::from_secs(secs.into()));
        Ok(Self {
            prolog: named(&config.prolog)?,
            epilog: named(&config.epilog)?,
            prolog_limit: limit(config.prolog_timeout_secs),
            epilog_limit: limit(config.epilog_timeout_secs),
            task: task_scripts(config),
            of_srun: config.of_srun(),
            reboot: config.reboot_program.clone(),
            unkillable: config.unkillable_step_program.clone(),
        })
    }
}

/// Settings that name programs; which programs, is found out when they run.
fn named(settings: &[String]) -> Result<Vec<String>, ScriptPatternError> {
    resolve(settings).map(|_| settings.to_vec())
}

/// `TaskProlog` and `TaskEpilog`: a path that is not absolute is relative to the folder of `slurm.conf` (slurm.conf(5)).
fn task_scripts(config: &Config) -> TaskScripts {
    let folder = config.path.parent().unwrap_or(Path::new("/"));
    let absolute = |path: &Option<PathBuf>| path.as_ref().map(|path| folder.join(path).to_string_lossy().into_owned());
    TaskScripts { prolog: absolute(&config.task_prolog), epilog: absolute(&config.task_epilog) }
}

/// The scripts in force.
#[derive(Debug, Default)]
pub struct Current(Mutex<Arc<SiteScripts>>);

impl Current {
    /// To begin with.
    pub fn new(scripts: SiteScripts) -> Self {
        Self(Mutex::new(Arc::new(scripts)))
    }

    /// As they are now.
    pub fn get(&self) -> Arc<SiteScripts> {
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads the file again; if it cannot be used, everything stays as it was, and that is logged.
    pub fn read_again(&self, conf: &Path) {
        let read = match config::read_reporting(conf) {
            (Some(config), report) if !report.has_errors() => {
                SiteScripts::of(&config).map_err(|error| error.to_string())
            }
            _ => Err("it cannot be used".to_owned()),
        };
        match read {
            Ok(scripts) => *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(scripts),
            Err(error) => tracing::error!(%error, "{}: the site's programs stay as they were", conf.display()),
        }
    }
}
