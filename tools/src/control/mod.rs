//! Commands that control and watch: `scancel`, `scontrol`, `stail`.

pub mod scancel;
pub mod scontrol;
pub mod stail;
