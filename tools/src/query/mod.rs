//! Commands that ask: `squeue`, `sinfo` and `sprio`, and what they share with those that control; `garrick cat` and
//! `garrick steps`.

pub mod arguments;
pub mod cat;
pub mod choices;
pub mod records;
pub mod sinfo;
pub mod sprio;
pub mod squeue;
pub mod steps;
