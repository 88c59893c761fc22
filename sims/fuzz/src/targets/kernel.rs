//! Texts from the kernel. Users choose the names of processes, mount points and cgroups in them.

use super::{choice, chosen, plain};
use crate::target::Target;
use garrick_kernel::{cgroup::Mounts, cpu_list::CpuList, proc_tree::Process};

/// `/proc/self/mountinfo`: users mount file systems where they like.
pub(super) const MOUNTS: Target = Target {
    name: "mounts",
    read: |input| {
        let _ = Mounts::parse(&String::from_utf8_lossy(input));
    },
    bytes_per_byte: 200,
    base_bytes: 64 << 10,
    seeds: || {
        plain(&[
            "30 20 0:25 / /sys/fs/cgroup rw,relatime shared:5 - cgroup2 cgroup2 rw,nsdelegate\n",
            "31 30 0:26 / /sys/fs/cgroup/mem\\040x rw - cgroup cgroup rw,memory\n",
            "1 2 0:3 / \\ - cgroup2 \\777 \\0\n",
        ])
    },
};

/// `/proc/PID/stat`.
pub(super) const PROCESSES: Target = Target {
    name: "processes",
    read: |input| {
        if let Some(process) = Process::parse(&String::from_utf8_lossy(input)) {
            let _ = process.is_dead();
        }
    },
    bytes_per_byte: 200,
    base_bytes: 64 << 10,
    seeds: || plain(&["10 (a) S 77 () S 1 10 10 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0 1010 0", "1 () Z", ") ("]),
};

/// Lists of CPUs, as files below `/sys` have them.
pub(super) const CPUS: Target = Target {
    name: "cpus",
    read: |input| {
        let (_, rest) = choice(input);
        let text = String::from_utf8_lossy(rest);
        if let Ok(list) = text.parse::<CpuList>() {
            assert_eq!(list.to_string().parse().ok(), Some(list), "{text:?}");
        }
    },
    bytes_per_byte: 1000,
    base_bytes: 4 << 20,
    seeds: || chosen(&[(0, "0-3,7\n"), (0, "0-65535"), (0, "")]),
};
