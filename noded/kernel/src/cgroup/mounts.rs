//! Where the kernel's cgroup hierarchies are mounted, and which of them are used for what.
//!
//! cgroups-rs decides this by the file system at `/sys/fs/cgroup` alone, and so takes a hybrid host (version 1 hierarchies, with
//! version 2 mounted beside them) for version 1; this code reads all mounts.

use std::path::{Path, PathBuf};

/// A mounted hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Where.
    pub point: PathBuf,
    /// Which folder of the hierarchy is to be seen there (`/` outside containers).
    pub root: PathBuf,
}

/// What is mounted of what Garrick can use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mounts {
    /// Version 2.
    pub unified: Option<Mount>,
    /// Version 1 cpuset.
    pub cpuset: Option<Mount>,
    /// Version 1 memory.
    pub memory: Option<Mount>,
    /// Version 1 devices.
    pub devices: Option<Mount>,
    /// Version 1 freezer.
    pub freezer: Option<Mount>,
}

impl Mounts {
    /// Mounts of this process.
    pub fn of_this_process() -> std::io::Result<Self> {
        // Users mount file systems at paths of their choice, which need not be UTF-8.
        Ok(Self::parse(&String::from_utf8_lossy(&std::fs::read("/proc/self/mountinfo")?)))
    }

    /// Reads the text of `/proc/PID/mountinfo`.
    pub fn parse(mountinfo: &str) -> Self {
        let mut mounts = Self::default();
        for line in mountinfo.lines() {
            let Some((before, after)) = line.split_once(" - ") else { continue };
            let mut before = before.split(' ').skip(3);
            let (Some(root), Some(point)) = (before.next(), before.next()) else { continue };
            let mount = Mount { point: unescape(point), root: unescape(root) };
            let mut after = after.split(' ');
            let (kind, options) = (after.next(), after.nth(1).unwrap_or_default());
            match kind {
                // The first of several mounts counts, as for cgroups-rs.
                Some("cgroup2") => {
                    mounts.unified.get_or_insert(mount);
                }
                Some("cgroup") => {
                    let has = |name| options.split(',').any(|o| o == name);
                    for (name, slot) in [
                        ("cpuset", &mut mounts.cpuset),
                        ("memory", &mut mounts.memory),
                        ("devices", &mut mounts.devices),
                        ("freezer", &mut mounts.freezer),
                    ] {
                        if has(name) {
                            slot.get_or_insert(mount.clone());
                        }
                    }
                }
                _ => {}
            }
        }
        mounts
    }
}

/// Spaces and the like are octal in mountinfo.
fn unescape(text: &str) -> PathBuf {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        let (plain, escaped) = rest.split_at(at);
        out.push_str(plain);
        match escaped.get(1..4).and_then(|d| u8::from_str_radix(d, 8).ok()) {
            Some(byte) => {
                out.push(char::from(byte));
                rest = escaped.get(4..).unwrap_or_default();
            }
            None => {
                out.push('\\');
                rest = escaped.get(1..).unwrap_or_default();
            }
        }
    }
    out.push_str(rest);
    PathBuf::from(out)
}

/// The version 2 cgroup of a process, from the text of `/proc/PID/cgroup`, as a path below the mount point.
pub(super) fn own_unified(cgroup: &str, mount: &Mount) -> Option<PathBuf> {
    let path = cgroup.lines().find_map(|l| l.strip_prefix("0::"))?;
    let path = Path::new(path);
    let below = path.strip_prefix(&mount.root).or_else(|_| path.strip_prefix("/")).ok()?;
    Some(below.to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const HYBRID: &str = "\
30 20 0:25 / /sys/fs/cgroup rw,relatime shared:5 - tmpfs tmpfs rw,mode=755
31 30 0:26 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
32 30 0:27 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset
33 30 0:28 / /sys/fs/cgroup/memory rw,relatime shared:7 master:1 - cgroup cgroup rw,memory
34 30 0:29 / /sys/fs/cgroup/freezer rw,relatime - cgroup cgroup rw,freezer
35 30 0:30 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
36 20 0:31 / /mnt/a\\040b rw - ext4 /dev/vda rw
";

    #[test]
    fn hybrid_hosts_show_both_versions() {
        let mounts = Mounts::parse(HYBRID);
        let at = |m: &Option<Mount>| m.as_ref().unwrap().point.to_string_lossy().into_owned();
        assert_eq!(at(&mounts.unified), "/sys/fs/cgroup/unified");
        assert_eq!(at(&mounts.cpuset), "/sys/fs/cgroup/cpuset");
        assert_eq!(at(&mounts.memory), "/sys/fs/cgroup/memory");
        assert_eq!(at(&mounts.freezer), "/sys/fs/cgroup/freezer");
    }

    #[test]
    fn unified_hosts_show_version_2_only() {
        let mounts = Mounts::parse("29 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n");
        assert_eq!(mounts.unified.unwrap().point, Path::new("/sys/fs/cgroup"));
        assert_eq!(mounts.memory, None);
    }

    #[test]
    fn escapes_and_nonsense_are_stood() {
        assert_eq!(unescape("/a\\040b\\134c"), Path::new("/a b\\c"));
        assert_eq!(unescape("/a\\9"), Path::new("/a\\9"));
        assert_eq!(Mounts::parse("garbage\n1 2 - cgroup2\n"), Mounts::default());
    }

    #[test]
    fn own_cgroup_is_relative_to_the_mounted_folder() {
        let mount = |root: &str| Mount { point: "/sys/fs/cgroup".into(), root: root.into() };
        let text = "4:memory:/x\n0::/docker/abc/d\n";
        assert_eq!(own_unified(text, &mount("/")).unwrap(), Path::new("docker/abc/d"));
        assert_eq!(own_unified(text, &mount("/docker/abc")).unwrap(), Path::new("d"));
        assert_eq!(own_unified("4:memory:/x\n", &mount("/")), None);
    }
}
