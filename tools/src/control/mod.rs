//! Commands that control and watch: `scancel`, `scontrol`, `stail`.

pub mod own_steps;
pub mod scancel;
pub mod scontrol;
pub mod stail;
