//! What every daemon does before it serves: read its command line and configuration, set up its log, go to the background.

pub mod logging;
pub mod options;
pub mod place;
pub mod programs;
pub mod reset_key;
pub mod signals;
pub mod slurm_user;
pub mod syslog;
pub mod versions;
