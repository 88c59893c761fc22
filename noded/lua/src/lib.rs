//! Lua for scripts of the site: `job_submit.lua` in the controller, `cli_filter.lua` in the commands that make jobs.
//!
//! | module | what it is |
//! |---|---|
//! | [`interpreter`] | a script that is loaded, with limits on time and memory |
//! | [`error`] | what is wrong with a script: file, line and cause |
//! | [`numbers`] | numbers that stand for "not set" and "without limit" |
//! | [`slurm`] | the part of the table `slurm` that every script has |
//! | [`json`] | `slurm.to_json` and `slurm.from_json` |

mod constants;
pub mod error;
pub mod interpreter;
pub mod json;
pub mod numbers;
pub mod slurm;
