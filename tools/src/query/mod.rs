//! Commands that ask: `squeue` and `sinfo`, and what they share with those that control; `garrick cat`.

pub mod arguments;
pub mod asking;
pub mod cat;
pub mod choices;
pub mod sinfo;
pub mod squeue;
pub mod steps;
