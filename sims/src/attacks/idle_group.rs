//! A cgroup for processes that are to have only the CPU time that no other process of the same group wants.
//!
//! `SCHED_IDLE` alone does not achieve that: it applies among the processes of one task group, and the kernel makes a group of
//! each session (`sched_autogroup_enabled`, sched(7)). A daemon is in a session of its own, and shares CPUs with 64 idle
//! processes of another session as with one busy process: then a command mostly waits for the kernel's scheduler. `cpu.idle`
//! applies to the whole group (Documentation/admin-guide/cgroup-v2.rst); with version 1 it is in the `cpu` hierarchy.

use super::Fallible;
use nix::errno::Errno;
use std::{
    fs,
    path::{Path, PathBuf},
};

/// The group. Dropped, it is removed; its processes must have ended.
#[derive(Debug)]
pub struct IdleGroup(PathBuf);

impl IdleGroup {
    /// Below the group of this program, so that what else runs there goes first.
    pub fn make() -> Fallible<Self> {
        let text = fs::read_to_string("/proc/self/cgroup")?;
        let folder = own_group(&text).ok_or("no cgroup with the cpu controller")?;
        let group = Self(folder.join(format!("garrick-siege-{}", std::process::id())));
        fs::create_dir(&group.0)?;
        fs::write(group.0.join("cpu.idle"), "1")?;
        Ok(group)
    }

    /// Puts a process and all that it has started into it.
    pub fn take(&self, pid: u32) -> Fallible<()> {
        let mut family = vec![pid];
        let mut next = 0;
        while let Some(&pid) = family.get(next) {
            // One that has ended has no children.
            let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
            family.extend(children.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
            next += 1;
        }
        for pid in family {
            match fs::write(self.0.join("cgroup.procs"), pid.to_string()) {
                Err(e) if e.raw_os_error() != Some(Errno::ESRCH as i32) => return Err(e.into()),
                _ => {}
            }
        }
        Ok(())
    }
}

impl Drop for IdleGroup {
    fn drop(&mut self) {
        if let Err(e) = fs::remove_dir(&self.0) {
            eprintln!("{} is left: {e}", self.0.display());
        }
    }
}

/// Of `/proc/PID/cgroup` (cgroups(7)): the folder of the group that the cpu controller goes by.
fn own_group(text: &str) -> Option<PathBuf> {
    let lines = || text.lines().filter_map(|line| line.splitn(3, ':').skip(1).collect::<Vec<_>>().try_into().ok());
    let below = |root: &str, path: &str| Path::new("/sys/fs/cgroup").join(root).join(path.trim_start_matches('/'));
    let cpu = lines().find(|[controllers, _]: &[&str; 2]| controllers.split(',').any(|one| one == "cpu"));
    let unified = || lines().find(|[controllers, _]| controllers.is_empty());
    match cpu {
        Some([controllers, path]) => Some(below(controllers, path)),
        None => unified().map(|[_, path]| below("", path)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_group_is_where_the_cpu_controller_is() {
        let found = |text| own_group(text).map(|path| path.to_string_lossy().into_owned());
        let one = "3:memory:/a\n2:cpu,cpuacct:/b/c\n1:cpuset:/d\n0::/e\n";
        assert_eq!(found(one).as_deref(), Some("/sys/fs/cgroup/cpu,cpuacct/b/c"));
        assert_eq!(found("1:cpuset:/d\n0::/e/f\n").as_deref(), Some("/sys/fs/cgroup/e/f"));
        assert_eq!(found("0::/\n").as_deref(), Some("/sys/fs/cgroup/"));
        assert_eq!(found("1:cpuset:/d\n"), None);
    }
}
