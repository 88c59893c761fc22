//! How views become text: columns (`squeue`, `sinfo`), records (`scontrol show`) and JSON, over the same words, times and
//! amounts. Nothing here asks anyone or writes anywhere but to the writer that it was given.

pub mod amounts;
pub mod clock;
pub mod columns;
pub mod json;
pub mod node_state;
pub mod records;
#[cfg(test)]
pub mod test_views;
pub mod words;
