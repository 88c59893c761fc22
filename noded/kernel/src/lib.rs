//! All system calls that are not plain file reads, and every `unsafe` block of the daemons. Other modules decide (which task,
//! which CPUs, which limit); this one carries out, and its errors say what was tried.
//!
//! | module | what it is |
//! |---|---|
//! | [`spawn`] | starts a program: one `clone3`, raw calls in the child, errors by stage |
//! | [`children`] | a program that is waited for with all that it leaves |
//! | [`reap`] | how a process ended and what it used; subreaper; orphans |
//! | [`signals`] | signals as descriptors, and sending them without the risk of a reused process id |
//! | [`proc_tree`] | finds and ends processes without a cgroup |
//! | [`cgroup`] | the job's cgroup: tasks apart from their manager, limits, kill, freeze |
//! | [`inventory`] | facts of the machine; `slurmd -C` |
//! | [`topology`] | sockets, cores and threads from sysfs; abstract CPUs to machine CPUs |
//! | [`cpu_list`] | `0-3,7` as sysfs and cpusets write it |
//! | [`cpu_freq`] | frequencies and governors of CPUs in sysfs |
//! | [`energy`] | energy that the machine used, by counters or power meters in sysfs |
//! | [`traffic`] | what the machine sends and receives, and reads and writes on Lustre |
//! | [`gpu`], [`gpu_freq`] | what processes use of GPUs, by the library of their driver; clocks of GPUs |
//! | `kept` | what CPUs and GPUs had before steps changed them |
//! | [`thread_ids`] | a thread that opens files as another user |
//! | [`users`] | names, ids, groups |
//! | [`daemonise`] | runs in the background and reports readiness to the starting command; pid files |
//! | [`pty`] | pseudo-terminals |
//! | [`rlimits`] | resource limits by Slurm's names |
//! | [`files`] | files that are whole or absent; opening as the job's user |
//! | [`lock`] | locks that say that a process lives |
//! | [`sockets`] | sockets that come by number from the parent |
//! | `scratch` | folders, programs and disks for tests, with the feature `testing` |

pub mod cgroup;
pub mod children;
pub mod cpu_freq;
pub mod cpu_list;
pub mod daemonise;
pub mod energy;
#[cfg(test)]
mod entry;
pub mod files;
pub mod gpu;
pub mod gpu_freq;
pub mod inventory;
mod kept;
pub mod lock;
pub mod on_thread;
pub mod proc_tree;
pub mod pty;
pub mod reap;
pub mod rlimits;
pub mod sampling;
#[cfg(any(test, feature = "testing"))]
pub mod scratch;
pub mod signals;
pub mod sockets;
pub mod spawn;
pub mod thread_ids;
pub mod topology;
pub mod traffic;
pub mod users;
pub mod watch;
