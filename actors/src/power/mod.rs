//! Power saving (power_save.html): which nodes are powered down and up, and when.
//!
//! The owner of power saving reads the nodes' views, as the scheduler does: it proposes moves to the nodes' owners, which know
//! better and decide ([`crate::node`]), and has the site's programs run for the nodes whose views say that they are on their way.
//! It saves nothing: after a restart, the programs run again for nodes that are still on their way (slurm.conf(5) allows that).
//!
//! | file | what it is |
//! |---|---|
//! | [`core`] | decides |
//! | [`rate`] | how many nodes may be switched in a minute |
//! | [`resume_file`] | which jobs wait for which nodes, for `ResumeProgram` |

pub mod core;
pub mod rate;
pub mod resume_file;

#[cfg(test)]
mod core_test;
