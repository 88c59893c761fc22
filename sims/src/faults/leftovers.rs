//! What a cluster must not leave behind when it has ended.

use super::{population, site::Site};
use std::{
    fs,
    os::linux::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// Names of what is left.
pub fn find(site: &Site, key: &str, mounts_before: &[Vec<String>]) -> Vec<String> {
    let mut left = Vec::new();
    let mut processes = population::with_text(&site.home.to_string_lossy());
    processes.extend(population::with_text(&format!("/run/garrick/{key}/")));
    processes.sort_unstable();
    processes.dedup();
    left.extend(processes.iter().map(|pid| format!("process {pid} {}", population::called(*pid))));
    left.extend(cgroups(key).iter().map(|path| format!("cgroup {}", path.display())));
    left.extend(locks(&site.home).iter().map(|line| format!("lock {line}")));
    for (host, before) in site.hosts.iter().zip(mounts_before) {
        let new = host.mounts().into_iter().filter(|m| !before.contains(m));
        left.extend(new.map(|m| format!("mount on {}: {m}", host.name)));
        let doors = host.sees(Path::new("/run/garrick")).join(key);
        // Which configuration they are of stays noted there.
        let note = |path: &PathBuf| path.file_name().is_some_and(|name| name == garrick_model::doors::CONF);
        let doors = entries(&doors).into_iter().filter(|path| !note(path));
        left.extend(doors.map(|path| format!("door {}", path.display())));
        let runs = host.sees(&site.home.join(format!("spool-{}", host.name)).join("runs"));
        left.extend(entries(&runs).iter().map(|path| format!("spool folder {}", path.display())));
    }
    left
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path()).collect()
}

/// The cluster's own folders in every hierarchy.
fn tops(key: &str) -> Vec<PathBuf> {
    let mut mounts = entries(Path::new("/sys/fs/cgroup"));
    mounts.push(PathBuf::from("/sys/fs/cgroup"));
    mounts.into_iter().map(|m| m.join("garrick").join(key)).filter(|p| p.is_dir()).collect()
}

fn folders(path: &Path) -> Vec<PathBuf> {
    entries(path).into_iter().filter(|p| p.is_dir()).collect()
}

/// Groups below those of nodes. These themselves stay when a daemon ends, for the next one.
fn cgroups(key: &str) -> Vec<PathBuf> {
    let nodes = tops(key).iter().flat_map(|top| folders(top)).collect::<Vec<_>>();
    let (mut open, mut found) = (nodes.iter().flat_map(|n| folders(n)).collect::<Vec<_>>(), Vec::new());
    while let Some(folder) = open.pop() {
        open.extend(folders(&folder));
        found.push(folder);
    }
    found
}

/// Removes the empty groups of nodes.
pub fn remove_node_cgroups(key: &str) {
    for top in tops(key) {
        for folder in folders(&top).into_iter().chain([top]) {
            // What is not empty stays, and was complained about.
            let _ = fs::remove_dir(folder);
        }
    }
}

/// Lines of `/proc/locks` (proc_locks(5)) about files below a folder.
fn locks(home: &Path) -> Vec<String> {
    let (mut files, mut folders) = (Vec::new(), vec![home.to_owned()]);
    while let Some(folder) = folders.pop() {
        for path in entries(&folder) {
            let Ok(meta) = fs::symlink_metadata(&path) else { continue };
            if meta.is_dir() {
                folders.push(path);
            } else {
                files.push(format!(":{}", meta.st_ino()));
            }
        }
    }
    let text = fs::read_to_string("/proc/locks").unwrap_or_default();
    let about = |line: &&str| {
        line.split_whitespace().any(|w| w.matches(':').count() == 2 && files.iter().any(|f| w.ends_with(f)))
    };
    text.lines().filter(about).map(ToOwned::to_owned).collect()
}
