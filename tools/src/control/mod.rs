//! Commands that control and watch: `scancel`, `sacctmgr`, `scontrol`, `strigger`, `stail`.

pub mod own_steps;
pub mod sacctmgr;
pub mod scancel;
pub mod scontrol;
pub mod stail;
pub mod strigger;
