//! The settings of a service that serves: they are read again when somebody asks for it.

use super::start::settings_of;
use crate::daemon::place::Cluster;
use garrick_daemon::logging::{self, LogLevels};
use garrick_model::config::{self, LogLevel, slurmdbd::DbdConfig};
use std::sync::{Arc, PoisonError, RwLock};

/// See the module.
#[derive(Debug)]
pub struct LiveSettings {
    cluster: Cluster,
    now: RwLock<Arc<DbdConfig>>,
}

impl LiveSettings {
    /// Those that a service starts with.
    pub fn new(cluster: &Cluster, settings: DbdConfig) -> Self {
        Self { cluster: cluster.clone(), now: RwLock::new(Arc::new(settings)) }
    }

    /// As of now.
    pub fn now(&self) -> Arc<DbdConfig> {
        Arc::clone(&self.now.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Is it a part of an embedded cluster, and not a process of its own?
    pub const fn is_embedded(&self) -> bool {
        self.cluster.home.is_some()
    }

    /// Reads them again: for conversations that begin after that. Database, port and hosts stay until the service is started again.
    ///
    /// # Errors
    /// They cannot be used: nothing is changed.
    pub fn read_again(&self) -> Result<(), String> {
        let old = self.now();
        let read = match (&self.cluster.home, old.path.exists()) {
            (None, _) | (_, true) => match DbdConfig::read(&old.path) {
                (Some(read), _) => read,
                (None, report) => return Err(format!("{} cannot be used:\n{report}", old.path.display())),
            },
            // What slurm.conf says of it.
            (Some(_), false) => match config::read_reporting(&self.cluster.config.path) {
                (Some(config), report) if !report.has_errors() => {
                    settings_of(&Cluster { config: Arc::new(config), ..self.cluster.clone() })?
                }
                (_, report) => {
                    return Err(format!("{} cannot be used:\n{report}", self.cluster.config.path.display()));
                }
            },
        };
        let DbdConfig { storage, host, address, backup, port, .. } = DbdConfig::clone(&old);
        let new = DbdConfig { storage, host, address, backup, port, ..read };
        if !self.is_embedded() {
            logging::set_levels(&levels_of(&new, &self.cluster));
        }
        *self.now.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(new);
        tracing::info!(file = %old.path.display(), "the settings of accounting were read again");
        Ok(())
    }
}

/// How much the service of accounting logs: what has no other log goes to the system's.
pub fn levels_of(settings: &DbdConfig, cluster: &Cluster) -> LogLevels {
    let level = settings.debug_level.louder(cluster.verbosity);
    let alone = !cluster.foreground && cluster.log.is_none();
    let syslog = settings.debug_level_syslog.unwrap_or(if alone { level } else { LogLevel::QUIET });
    LogLevels { level, syslog, flags: cluster.config.debug_flags.clone(), scheduler: false }
}
