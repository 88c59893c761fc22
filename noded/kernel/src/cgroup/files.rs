//! Files and folders of cgroup hierarchies.

use super::CgroupError;
use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
};

/// Members of a group; writing moves a process there. Named as all here in the kernel's admin-guide/cgroup-v2.rst.
pub(super) const PROCS: &str = "cgroup.procs";
/// Threads of a version 1 group. A process of one thread that writes `0` here moves at once, with `cgroup.procs` after some 5 to
/// 20 ms: there the kernel first waits until no process anywhere is being forked or ended, since others may have threads.
pub(super) const THREADS: &str = "tasks";
const CONTROLLERS: &str = "cgroup.controllers";
const SUBTREE_CONTROL: &str = "cgroup.subtree_control";

/// The group went away under us: the file is gone, or was gone after it was opened.
pub(super) fn gone(e: &io::Error) -> bool {
    e.kind() == io::ErrorKind::NotFound || e.raw_os_error() == Some(libc::ENODEV)
}

pub(super) fn read(path: &Path) -> Result<String, CgroupError> {
    fs::read_to_string(path).map_err(CgroupError::file("read", path))
}

pub(super) fn read_if_there(path: &Path) -> Result<Option<String>, CgroupError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(e) if gone(&e) => Ok(None),
        Err(e) => Err(CgroupError::file("read", path)(e)),
    }
}

/// One write, as the kernel wants it; never makes a file.
pub(super) fn write(path: &Path, value: &str) -> Result<(), CgroupError> {
    let written =
        OpenOptions::new().write(true).truncate(true).open(path).and_then(|mut f| f.write_all(value.as_bytes()));
    written.map_err(CgroupError::file(format!("write '{value}' to"), path))
}

/// The number behind a key in lines of `key number`.
pub(super) fn keyed(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|l| l.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok())
}

/// Folders below `dir`.
pub(super) fn list_folders(dir: &Path) -> Result<Vec<PathBuf>, CgroupError> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(e) if gone(&e) => return Ok(Vec::new()),
        Err(e) => return Err(CgroupError::file("list", dir)(e)),
    };
    let mut folders = Vec::new();
    for entry in entries {
        let entry = entry.map_err(CgroupError::file("list", dir))?;
        if entry.file_type().is_ok_and(|t| t.is_dir()) {
            folders.push(entry.path());
        }
    }
    Ok(folders)
}

/// A folder and all below it, each before what is in it. Empty when it is not there.
pub(super) fn subtree(top: &Path) -> Result<Vec<PathBuf>, CgroupError> {
    if !top.is_dir() {
        return Ok(Vec::new());
    }
    let mut found = vec![top.to_owned()];
    let mut at = 0;
    while let Some(dir) = found.get(at) {
        let below = list_folders(dir)?;
        found.extend(below);
        at += 1;
    }
    Ok(found)
}

/// Version 2: asks that the groups below `dir` get a controller. One a write, so that a refusal takes no other with it.
pub(super) fn enable(dir: &Path, controller: &str) -> Result<(), CgroupError> {
    write(&dir.join(SUBTREE_CONTROL), &format!("+{controller}"))
}

/// Version 2: the controller is there.
pub(super) fn check_enabled(dir: &Path, controller: &'static str) -> Result<(), CgroupError> {
    let there = read(&dir.join(CONTROLLERS))?.split_ascii_whitespace().any(|c| c == controller);
    if there { Ok(()) } else { Err(CgroupError::NotEnabled { controller, path: dir.to_owned() }) }
}
