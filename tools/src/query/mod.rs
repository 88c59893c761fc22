//! Query commands: `squeue`, `sinfo`, `sprio`, `sdiag`, `sshare`, `sstat`, `sacct` and `sreport`, and what they share with the control commands; `garrick cat`,
//! `garrick profile` and `garrick steps`.

pub mod arguments;
pub mod cat;
pub mod choices;
pub mod profile;
pub mod records;
pub mod sacct;
pub mod sdiag;
pub mod sinfo;
pub mod sprio;
pub mod squeue;
pub mod sreport;
pub mod sshare;
pub mod sstat;
