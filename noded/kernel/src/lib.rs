//! The kernel corner: every system call that is not a plain file read, and every `unsafe` block of the daemons. What
//! is decided elsewhere (which task, which CPUs, which limit) is carried out here, and failures say what was tried.
//!
//! | module | what it is |
//! |---|---|
//! | [`spawn`] | start a program: one `clone3`, raw calls in the child, errors by stage |
//! | [`reap`] | how a process ended and what it used; subreaper; orphans |
//! | [`signals`] | signals as descriptors, and sending them to processes that cannot be mistaken |
//! | [`proc_tree`] | finding and ending processes without a cgroup |
//! | [`cgroup`] | the job's cgroup: tasks apart from their manager, limits, kill, freeze |
//! | [`inventory`] | what machine this is; `slurmd -C` |
//! | [`topology`] | sockets, cores and threads from sysfs; abstract CPUs to machine CPUs |
//! | [`cpu_list`] | `0-3,7` as sysfs and cpusets write it |
//! | [`users`] | names, ids, groups |
//! | [`daemonise`] | into the background, with word back to the one who waits; pid files |
//! | [`pty`] | pseudo-terminals |
//! | [`rlimits`] | resource limits by Slurm's names |
//! | [`files`] | files that are whole or absent; opening as the job's user |
//! | [`lock`] | locks that say that a process lives |
//! | [`sockets`] | sockets that come by number from the parent |
//! | `scratch` | folders, programs and disks for tests, with the feature `testing` |

pub mod cgroup;
pub mod cpu_list;
pub mod daemonise;
#[cfg(test)]
mod entry;
pub mod files;
pub mod inventory;
pub mod lock;
pub mod on_thread;
pub mod proc_tree;
pub mod pty;
pub mod reap;
pub mod rlimits;
#[cfg(any(test, feature = "testing"))]
pub mod scratch;
pub mod signals;
pub mod sockets;
pub mod spawn;
pub mod topology;
pub mod users;
pub mod watch;
