//! Every environment variable that Garrick reads or writes, in one list.

/// Path of `slurm.conf`.
pub const SLURM_CONF: &str = "SLURM_CONF";
/// Home of an embedded cluster.
pub const GARRICK_HOME: &str = "GARRICK_HOME";
/// Door of the job's step manager or of the shepherd that relays to it, on this host: set in every task.
pub const GARRICK_STEPD_DOOR: &str = "GARRICK_STEPD_DOOR";
/// Node name of the batch host, where the job's step manager is: set in every task and for the command of `salloc`.
pub const SLURM_STEPMGR: &str = "SLURM_STEPMGR";
/// QUIC address (`host:port`) of that node's agent, through which commands on other hosts reach the step manager: set for
/// the command of `salloc`.
pub const GARRICK_STEPMGR_ADDRESS: &str = "GARRICK_STEPMGR_ADDRESS";
/// The user's home folder.
pub const HOME: &str = "HOME";
/// Where the user keeps programs' state, instead of `~/.local/state`.
pub const XDG_STATE_HOME: &str = "XDG_STATE_HOME";
