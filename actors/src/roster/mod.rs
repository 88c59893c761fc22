//! The roster: the nodes of `slurm.conf`, and dynamic nodes. Its owner, at `/roster`, also decides the configuration that all
//! others see: it is told when the file was read again.
//!
//! | file | what it is |
//! |---|---|
//! | [`nodes`] | which nodes may come and go, and the resulting configuration |
//! | [`core`] | the owner: changes wait for each other, are saved in groups, and then announced |

pub mod core;
pub mod nodes;

#[cfg(test)]
mod core_test;
