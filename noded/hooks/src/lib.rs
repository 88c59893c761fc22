//! The site's own checks of jobs (`JobSubmitPlugins`): `job_submit.lua`, a program of the site behind a Unix socket, and plain checks.
//!
//! | module | what it is |
//! |---|---|
//! | [`checks`] | the port that the controller asks: all checks of the configuration, in order |
//! | [`value`] | a field's value as scripts have it |
//! | [`fields`] | a job's fields: how each is read and set |
//! | [`shown`] | what scripts see and cannot change: jobs, partitions, reservations |
//! | [`lua`] | `job_submit.lua` |
//! | [`plain`] | checks that Slurm brings along |
//! | [`socket`] | the same over a Unix socket, as JSON |

pub mod checks;
pub mod fields;
pub mod lua;
pub mod plain;
pub mod shown;
pub mod socket;
#[cfg(test)]
mod testing;
pub mod value;
