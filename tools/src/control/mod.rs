//! Commands that control and watch: `scancel`, `scontrol`, `strigger`, `stail`.

pub mod own_steps;
pub mod scancel;
pub mod scontrol;
pub mod stail;
pub mod strigger;
