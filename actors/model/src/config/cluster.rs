//! Where a cluster's things are: its short id, its run folders with the doors in them, and `%n` `%h` in paths.

use super::settings::Config;
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

    /// Where a command of this user looks for doors, in order: root's folder, then that of daemons of the same user.
    /// A door counts only if its peer is root, SlurmUser or the caller.
    pub fn run_dirs(&self, euid: u32, garrick_home: Option<&Path>) -> Vec<PathBuf> {
        let mut folders = vec![self.run_dir(0, None)];
        let below_home = garrick_home.filter(|home| home.is_absolute()).map(|home| home.join("run"));
        folders.extend(below_home.filter(|run| self.fits(run)));
        folders.push(Path::new(&format!("/tmp/garrick-{euid}")).join(self.cluster_id()));
        folders
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
        let candidates = c.run_dirs(1001, Some(Path::new("/home/a")));
        assert_eq!(candidates, [Path::new("/run/garrick").join(&id), "/home/a/run".into(), tmp]);
        assert_eq!(c.run_dirs(1001, Some(Path::new(&long))).len(), 2);
    }

    #[test]
    fn paths_know_their_node_and_host() {
        assert_eq!(expand_path("/var/%h/%n-%%-%x%", "n1", "host.cluster"), Path::new("/var/host/n1-%-%x%"));
    }
}
