//! Which configuration file is meant, and with it which cluster.

use crate::env_vars::{GARRICK_HOME, HOME, SLURM_CONF, XDG_STATE_HOME};
use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

/// Where the system's configuration is when nothing else is.
pub const SYSTEM_CONF: &str = "/etc/slurm/slurm.conf";
/// The file's place in a prefix, in `GARRICK_HOME` and in a user's own cluster.
const IN_HOME: &str = "etc/slurm.conf";

/// Why a file is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// `--conf` or `-f`.
    Option,
    /// `SLURM_CONF`.
    SlurmConf,
    /// `GARRICK_HOME`.
    GarrickHome,
    /// The prefix that the program is installed in.
    Prefix,
    /// The user's own embedded cluster.
    OwnCluster,
    /// The system's.
    System,
}

/// A file to try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Path.
    pub path: PathBuf,
    /// Why.
    pub source: Source,
}

/// The folder of the user's own embedded cluster: `$XDG_STATE_HOME/garrick` or `~/.local/state/garrick`.
pub fn own_home(env: &dyn Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let set = |name: &str| env(name).filter(|v| !v.is_empty()).map(PathBuf::from).filter(|p| p.is_absolute());
    set(XDG_STATE_HOME).map(|state| state.join("garrick")).or_else(|| Some(set(HOME)?.join(".local/state/garrick")))
}

/// Files to try, in order; the first that exists counts. One that was named (by option, `SLURM_CONF` or `GARRICK_HOME`) is
/// the only one: when it is missing that is an error, not a reason to talk to another cluster.
pub fn conf_path(
    explicit: Option<&Path>,
    env: &dyn Fn(&str) -> Option<OsString>,
    exe: Option<&Path>,
) -> Vec<Candidate> {
    let set = |name: &str| env(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let one = |path: PathBuf, source| vec![Candidate { path, source }];
    if let Some(path) = explicit {
        return one(path.to_owned(), Source::Option);
    }
    if let Some(path) = set(SLURM_CONF) {
        return one(path, Source::SlurmConf);
    }
    if let Some(home) = set(GARRICK_HOME) {
        return one(home.join(IN_HOME), Source::GarrickHome);
    }
    let mut candidates = Vec::new();
    let mut add = |path: PathBuf, source| candidates.push(Candidate { path, source });
    // PREFIX/bin/squeue, PREFIX/sbin/slurmd
    if let Some(prefix) = exe.and_then(Path::parent).and_then(Path::parent) {
        add(prefix.join(IN_HOME), Source::Prefix);
    }
    if let Some(home) = own_home(env) {
        add(home.join(IN_HOME), Source::OwnCluster);
    }
    add(PathBuf::from(SYSTEM_CONF), Source::System);
    candidates
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(explicit: Option<&str>, env: &[(&str, &str)], exe: Option<&str>) -> Vec<String> {
        let env = |name: &str| env.iter().find(|(n, _)| *n == name).map(|(_, v)| OsString::from(v));
        let found = conf_path(explicit.map(Path::new), &env, exe.map(Path::new));
        found.into_iter().map(|c| format!("{:?} {}", c.source, c.path.display())).collect()
    }

    #[test]
    fn what_was_named_is_the_only_candidate() {
        let env = [("SLURM_CONF", "/s.conf"), ("GARRICK_HOME", "/g"), ("HOME", "/home/a")];
        assert_eq!(paths(Some("/x.conf"), &env, Some("/p/bin/squeue")), ["Option /x.conf"]);
        assert_eq!(paths(None, &env, Some("/p/bin/squeue")), ["SlurmConf /s.conf"]);
        assert_eq!(paths(None, &env[1..], Some("/p/bin/squeue")), ["GarrickHome /g/etc/slurm.conf"]);
    }

    #[test]
    fn else_the_prefix_then_the_own_cluster_then_the_system() {
        let found = paths(None, &[("SLURM_CONF", ""), ("HOME", "/home/a")], Some("/p/bin/squeue"));
        let own = "OwnCluster /home/a/.local/state/garrick/etc/slurm.conf";
        assert_eq!(found, ["Prefix /p/etc/slurm.conf", own, "System /etc/slurm/slurm.conf"]);
        let state = paths(None, &[("XDG_STATE_HOME", "/st"), ("HOME", "/home/a")], None);
        assert_eq!(state, ["OwnCluster /st/garrick/etc/slurm.conf", "System /etc/slurm/slurm.conf"]);
    }
}
