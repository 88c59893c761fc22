//! Which cluster this daemon belongs to, and its paths and addresses: configuration, run folder, doors, logs.

use garrick_daemon::logging::LogLevels;
use garrick_kernel::{files, inventory, users};
use garrick_model::{
    config::{Config, DebugFlags, LogLevel, NodeConfig},
    doors, env_vars,
};
use std::{
    env,
    path::{Path, PathBuf},
    sync::Arc,
};

/// A cluster as a daemon on one of its hosts sees it.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// Configuration.
    pub config: Arc<Config>,
    /// Short name of the cluster that is unique on a machine.
    pub id: String,
    /// Folder of the doors.
    pub doors: PathBuf,
    /// `SlurmUser`; `None`: there is no such user here.
    pub slurm_uid: Option<u32>,
    /// Set for an embedded cluster.
    pub home: Option<PathBuf>,
    /// `-v`, counted.
    pub verbosity: u8,
    /// `-L`.
    pub log: Option<PathBuf>,
    /// `-D`: the log goes to standard error.
    pub foreground: bool,
}

impl Cluster {
    /// From a configuration that was read.
    pub fn new(config: Config, home: Option<PathBuf>, verbosity: u8, log: Option<PathBuf>, foreground: bool) -> Self {
        let id = config.cluster_id();
        let slurm_uid = users::by_name_or_uid(&config.slurm_user).ok().map(|account| account.uid);
        let doors = run_folder(&config, slurm_uid, home.as_deref());
        Self { config: Arc::new(config), id, doors, slurm_uid, home, verbosity, log, foreground }
    }

    /// Notes beside the doors which configuration they are of, for commands that would look elsewhere by now.
    pub fn note_conf(&self) {
        let text = self.config.path.as_os_str().as_encoded_bytes();
        if let Err(e) = files::replace(&self.doors.join(doors::CONF), text, 0o644) {
            tracing::warn!(error = %e, "commands do not find this daemon when the configuration's port or host is edited");
        }
    }

    /// Where this process serves the controller's door.
    pub fn controller_door(&self) -> PathBuf {
        self.doors.join(doors::CONTROLLER)
    }

    /// Where the controller's door can be on this host, whoever serves it.
    pub fn controller_doors(&self) -> Vec<PathBuf> {
        let mut folders = vec![self.doors.clone()];
        folders.extend(self.config.run_dirs(users::effective_uid(), self.slurm_uid, self.home.as_deref()));
        let mut doors: Vec<PathBuf> = Vec::new();
        for door in folders.into_iter().map(|folder| folder.join(doors::CONTROLLER)) {
            if !doors.contains(&door) {
                doors.push(door);
            }
        }
        doors
    }

    /// Whose doors are believed: those of root, of this process's user, of `SlurmUser`.
    pub fn believed(&self) -> Vec<u32> {
        [Some(0), Some(users::effective_uid()), self.slurm_uid].into_iter().flatten().collect()
    }

    /// This is a host that a `SlurmctldHost` names.
    pub fn is_controller_host(&self) -> bool {
        let own = inventory::hostname().unwrap_or_default();
        self.config.controllers.iter().any(|c| {
            let target = c.target();
            inventory::short_hostname(&c.name) == own || target == "localhost" || target.starts_with("127.")
        })
    }

    /// Is the controller of a host of that short name the primary one: on the host that the first `SlurmctldHost` names?
    pub fn is_primary(&self, host: &str) -> bool {
        self.config.controllers.first().is_none_or(|c| {
            let target = c.target();
            inventory::short_hostname(&c.name) == host || target == "localhost" || target.starts_with("127.")
        })
    }

    /// A node agent's door, on its host.
    pub fn node_door(&self, node: &str) -> PathBuf {
        doors::of_agent(&self.doors, node)
    }

    /// `host:port` of the controller.
    pub fn controller_address(&self) -> String {
        let host =
            self.config.slurmctld_addr.as_deref().or_else(|| self.config.controllers.first().map(|c| c.target()));
        format!("{}:{}", host.unwrap_or("localhost"), self.config.slurmctld_port.first)
    }

    /// A path setting with `%n` and `%h` filled in for a node.
    pub fn node_path(&self, pattern: &str, node: &str) -> PathBuf {
        let host = inventory::hostname().unwrap_or_default();
        garrick_model::config::expand_path(pattern, node, &host)
    }

    /// Where the key that a site distributes would be: `slurm.key` beside `slurm.conf`.
    pub fn shared_key_path(&self) -> PathBuf {
        self.config.path.parent().unwrap_or(Path::new("/")).join("slurm.key")
    }

    /// That key file, if there is one.
    pub fn shared_key(&self) -> Option<PathBuf> {
        Some(self.shared_key_path()).filter(|p| p.is_file())
    }

    /// How much a daemon logs where, as a configuration of this cluster has it. `node`: that node's daemon, else the
    /// controller's. `SLURM_DEBUG_FLAGS` goes before the configuration's flags (`slurm.conf(5)`).
    pub fn log_levels_of(&self, config: &Config, node: Option<&str>) -> LogLevels {
        let (level, syslog) = match node {
            Some(_) => (config.slurmd_debug, config.slurmd_syslog_debug),
            None => (config.slurmctld_debug, config.slurmctld_syslog_debug),
        };
        let level = level.louder(self.verbosity);
        // slurm.conf(5): what has no other log goes to the system's.
        let alone = !self.foreground && self.log_file(node).is_none();
        let flags = env::var(env_vars::SLURM_DEBUG_FLAGS).ok().and_then(|text| DebugFlags::of(&text).ok());
        let flags = flags.map_or_else(|| config.debug_flags.clone(), |(flags, _)| flags);
        let syslog = syslog.unwrap_or(if alone { level } else { LogLevel::QUIET });
        LogLevels { level, syslog, flags, scheduler: node.is_none() && config.sched_log_level > 0 }
    }

    /// The file of the scheduler's log.
    pub fn scheduler_log(&self) -> Option<PathBuf> {
        self.config.sched_log_file.as_deref().map(PathBuf::from)
    }

    /// This daemon's log file; `None`: standard error. `node`: the log of that node's daemon, else the controller's.
    pub fn log_file(&self, node: Option<&str>) -> Option<PathBuf> {
        if self.log.is_some() {
            return self.log.clone();
        }
        if self.foreground {
            return None;
        }
        match node {
            Some(node) => self.config.slurmd_log_file.as_deref().map(|p| self.node_path(p, node)),
            None => self.config.slurmctld_log_file.as_deref().map(PathBuf::from),
        }
    }

    /// The pid file of a role.
    pub fn pid_file(&self, node: Option<&NodeConfig>) -> PathBuf {
        match node {
            Some(node) => self.node_path(&self.config.slurmd_pid_file, &node.name),
            None => PathBuf::from(&self.config.slurmctld_pid_file),
        }
    }
}

/// The folder in which this process's doors are. SlurmUser's is the one in `/run` where somebody made it.
fn run_folder(config: &Config, slurm_uid: Option<u32>, home: Option<&Path>) -> PathBuf {
    let own = users::effective_uid();
    let made = config.slurm_user_run().filter(|_| own != 0 && Some(own) == slurm_uid && home.is_none());
    match made.filter(|folder| nix::unistd::access(folder, nix::unistd::AccessFlags::W_OK).is_ok()) {
        Some(folder) => folder.join(config.cluster_id()),
        None => config.run_dir(own, home),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use garrick_model::config;

    fn levels(lines: &str, foreground: bool, node: Option<&str>) -> (&'static str, &'static str) {
        let text = format!("ClusterName=c\nSlurmctldHost=h\nNodeName=n1\nPartitionName=p Nodes=n1\n{lines}\n");
        let config = config::read_text(Path::new("/etc/slurm.conf"), &text).0.unwrap();
        let cluster = Cluster::new(config, None, 0, None, foreground);
        let levels = cluster.log_levels_of(&cluster.config, node);
        (levels.level.name(), levels.syslog.name())
    }

    #[test]
    fn the_controller_is_looked_for_where_the_site_says() {
        for (lines, at) in [
            ("SlurmctldHost=h", "h:6817"),
            ("SlurmctldHost=h(10.0.0.1)", "10.0.0.1:6817"),
            ("SlurmctldHost=h(10.0.0.1)\nSlurmctldAddr=vip", "vip:6817"),
        ] {
            let text = format!("ClusterName=c\n{lines}\nNodeName=n1\nPartitionName=p Nodes=n1\n");
            let config = config::read_text(Path::new("/etc/slurm.conf"), &text).0.unwrap();
            let cluster = Cluster::new(config, None, 0, None, false);
            assert_eq!(
                (cluster.controller_address(), cluster.config.controller_targets()),
                (at.into(), vec![at.into()])
            );
        }
    }

    #[test]
    fn what_has_no_other_log_goes_to_the_systems() {
        for (daemon, node) in [("Slurmctld", None), ("Slurmd", Some("n1"))] {
            let of = |lines: &str, foreground| levels(&lines.replace('@', daemon), foreground, node);
            assert_eq!(of("", false), ("info", "info"));
            assert_eq!(of("@Debug=debug", false), ("debug", "debug"));
            assert_eq!(of("@Debug=debug", true), ("debug", "quiet"));
            assert_eq!(of("@LogFile=/var/log/x", false), ("info", "quiet"));
            assert_eq!(of("@LogFile=/var/log/x\n@SyslogDebug=error", false), ("info", "error"));
            assert_eq!(of("@SyslogDebug=quiet", false), ("info", "quiet"));
        }
    }
}
