//! Which nodes there are: those of `slurm.conf`, and those that come and go at run time. One owner says so, at `/roster`, and with
//! it what the configuration is that all others see: it hears when the file was read again, too.
//!
//! | file | what it is |
//! |---|---|
//! | [`nodes`] | who may come and go, and what the configuration is with them |
//! | [`core`] | the owner: changes wait for each other, are saved in lots, and then everybody is told |

pub mod core;
pub mod nodes;

#[cfg(test)]
mod core_test;
