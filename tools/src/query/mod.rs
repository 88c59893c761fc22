//! Commands that ask: `squeue` and `sinfo`, and what they share with those that control.

pub mod arguments;
pub mod asking;
pub mod choices;
pub mod sinfo;
pub mod squeue;
