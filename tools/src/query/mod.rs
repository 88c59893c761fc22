//! Query commands: `squeue`, `sinfo` and `sprio`, and what they share with the control commands; `garrick cat` and `garrick
//! steps`.

pub mod arguments;
pub mod cat;
pub mod choices;
pub mod records;
pub mod sinfo;
pub mod sprio;
pub mod squeue;
