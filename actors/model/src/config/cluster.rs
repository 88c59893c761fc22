//! Where a cluster's things are: its short id, its run folders with the doors in them, and `%n` `%h` in paths.

use super::settings::config::Config;
use std::path::{Path, PathBuf};

/// Bytes that a socket's address can have on Linux (`unix(7)`: 108 with the closing zero).
const SOCKET_PATH_BYTES: usize = 107;

impl Config {
    /// A short name for this cluster among others on the same host: hexadecimal, from ClusterName, the first
    /// SlurmctldHost and SlurmctldPort. It tells clusters apart; it protects nothing.
    pub fn cluster_id(&self) -> String {
        let host = self.controllers.first().map_or("", |c| c.name.as_str());
        let text = format!("{}\n{host}\n{}", self.cluster_name, self.slurmctld_port.first);
        // FNV-1a: the same everywhere and in every version, unlike the standard library's hasher.
        let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
        for byte in text.bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        format!("{:010x}", (hash >> 24) ^ (hash & 0xff_ffff))
    }

    /// Longest name of a socket in the run folder: a stepd's door, `j<job>-<node>-<run>.sock`.
    fn door_name_bytes(&self) -> usize {
        let longest_node = self.nodes.iter().map(|n| n.name.len()).max().unwrap_or(0);
        "j67108863-".len() + longest_node + "-12345678.sock".len()
    }

    fn fits(&self, folder: &Path) -> bool {
        folder.as_os_str().len() + 1 + self.door_name_bytes() <= SOCKET_PATH_BYTES
    }

    /// The run folder of a daemon with this user id: `/run/garrick/ID` for root, else `GARRICK_HOME/run` when socket names
    /// fit below it, else `/tmp/garrick-UID/ID`.
    pub fn run_dir(&self, euid: u32, garrick_home: Option<&Path>) -> PathBuf {
        let id = self.cluster_id();
        if euid == 0 {
            return Path::new("/run/garrick").join(id);
        }
        let below_home = garrick_home.filter(|home| home.is_absolute()).map(|home| home.join("run"));
        below_home.filter(|run| self.fits(run)).unwrap_or_else(|| Path::new(&format!("/tmp/garrick-{euid}")).join(id))
    }

    /// `/run/garrick-USER`: the folder in which a controller that runs as a SlurmUser other than root has its run folder.
    /// SlurmUser cannot make it; root's start of the controller does, or the system at boot (`RuntimeDirectory=garrick-USER`
    /// of a unit, or a line in `tmpfiles.d`). `None` where SlurmUser is root.
    pub fn slurm_user_run(&self) -> Option<PathBuf> {
        let user = self.slurm_user.as_str();
        let other = !matches!(user, "" | "root" | "0") && !user.contains('/');
        other.then(|| Path::new(&format!("/run/garrick-{user}")).to_owned())
    }

    /// The run folder below [`Self::slurm_user_run`].
    pub fn slurm_user_dir(&self) -> Option<PathBuf> {
        Some(self.slurm_user_run()?.join(self.cluster_id()))
    }

    /// Where a process of this user looks for doors, in order: root's folder, below the cluster's home, SlurmUser's two (in
    /// `/run`, and the one that it can make without help), and that of daemons of the same user. `slurm_uid`: SlurmUser, where
    /// there is such a user. A door counts only if its peer is root, SlurmUser or the caller, wherever it is.
    pub fn run_dirs(&self, euid: u32, slurm_uid: Option<u32>, garrick_home: Option<&Path>) -> Vec<PathBuf> {
        let mut folders = vec![self.run_dir(0, None)];
        let below_home = garrick_home.filter(|home| home.is_absolute()).map(|home| home.join("run"));
        folders.extend(below_home.filter(|run| self.fits(run)));
        folders.extend(self.slurm_user_dir());
        folders.extend(slurm_uid.filter(|uid| *uid != 0 && *uid != euid).map(|uid| self.run_dir(uid, None)));
        folders.push(Path::new(&format!("/tmp/garrick-{euid}")).join(self.cluster_id()));
        folders
    }

    /// Are jobs of this user possible? Node daemons that root runs start anybody's; with another `SlurmdUser` theirs alone.
    pub fn runs_jobs_of(&self, uid: u32, name: Option<&str>) -> bool {
        let user = self.slurmd_user.as_str();
        matches!(user, "root" | "0") || Some(user) == name || user.parse() == Ok(uid)
    }
}

/// Fills in `%n` (node name), `%h` (host name up to its first dot) and `%%` in a path of the configuration.
pub fn expand_path(pattern: &str, node_name: &str, hostname: &str) -> PathBuf {
    let mut path = String::with_capacity(pattern.len() + 16);
    let mut chars = pattern.chars().peekable();
    while let Some(c) = chars.next() {
        match (c, chars.peek()) {
            ('%', Some('n')) => path.push_str(node_name),
            ('%', Some('h')) => path.push_str(hostname.split('.').next().unwrap_or(hostname)),
            ('%', Some('%')) => path.push('%'),
            _ => {
                path.push(c);
                continue;
            }
        }
        chars.next();
    }
    PathBuf::from(path)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::config::read_text;

    fn config(name: &str) -> Config {
        let text = format!("ClusterName={name}\nSlurmctldHost=a\nNodeName=n[1-2]\nPartitionName=p Nodes=ALL");
        read_text(Path::new("/x/slurm.conf"), &text).0.unwrap()
    }

    #[test]
    fn clusters_are_told_apart() {
        let (a, b) = (config("a"), config("b"));
        assert_eq!(a.cluster_id().len(), 10);
        assert_ne!(a.cluster_id(), b.cluster_id());
        assert_eq!(a.cluster_id(), config("a").cluster_id());
    }

    #[test]
    fn run_folders_are_short_enough_for_sockets() {
        let c = config("a");
        let id = c.cluster_id();
        assert_eq!(c.run_dir(0, Some(Path::new("/home/a"))), Path::new("/run/garrick").join(&id));
        assert_eq!(c.run_dir(1001, Some(Path::new("/home/a"))), Path::new("/home/a/run"));
        let long = format!("/home/{}", "x".repeat(90));
        let tmp = Path::new("/tmp/garrick-1001").join(&id);
        assert_eq!(c.run_dir(1001, Some(Path::new(&long))), tmp);
        let candidates = c.run_dirs(1001, Some(0), Some(Path::new("/home/a")));
        assert_eq!(candidates, [Path::new("/run/garrick").join(&id), "/home/a/run".into(), tmp]);
        assert_eq!(c.run_dirs(1001, None, Some(Path::new(&long))).len(), 2);
    }

    #[test]
    fn doors_of_a_slurm_user_are_where_everybody_looks() {
        let text = "ClusterName=a\nSlurmctldHost=a\nSlurmUser=slurm\nNodeName=n1\nPartitionName=p Nodes=ALL";
        let c = read_text(Path::new("/x/slurm.conf"), text).0.unwrap();
        let id = c.cluster_id();
        let at = |folder: &str| Path::new(folder).join(&id);
        let (root, run, tmp) = (at("/run/garrick"), at("/run/garrick-slurm"), at("/tmp/garrick-64030"));
        assert_eq!(c.slurm_user_dir(), Some(run.clone()));
        let of_root = c.run_dirs(0, Some(64030), None);
        assert_eq!(of_root, [root.clone(), run.clone(), tmp.clone(), at("/tmp/garrick-0")]);
        let of_user = c.run_dirs(1001, Some(64030), None);
        assert_eq!(of_user, [root.clone(), run.clone(), tmp.clone(), at("/tmp/garrick-1001")]);
        assert_eq!(c.run_dirs(64030, Some(64030), None), [root, run, tmp]);
        assert_eq!(config("a").slurm_user_dir(), None, "it is root");
    }

    #[test]
    fn node_daemons_of_an_ordinary_user_run_jobs_of_that_user_alone() {
        let mut c = config("a");
        assert!(c.runs_jobs_of(0, Some("root")) && c.runs_jobs_of(1001, None), "SlurmdUser is root");
        c.slurmd_user = "alice".to_owned();
        assert!(c.runs_jobs_of(1001, Some("alice")));
        assert!(!c.runs_jobs_of(1002, Some("bob")) && !c.runs_jobs_of(0, Some("root")) && !c.runs_jobs_of(1001, None));
        c.slurmd_user = "1001".to_owned();
        assert!(c.runs_jobs_of(1001, Some("alice")) && !c.runs_jobs_of(1002, Some("bob")));
    }

    #[test]
    fn paths_know_their_node_and_host() {
        assert_eq!(expand_path("/var/%h/%n-%%-%x%", "n1", "host.cluster"), Path::new("/var/host/n1-%-%x%"));
    }
}
