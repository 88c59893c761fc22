//! What `noded` does before it serves: read its command line and configuration, find its place and its programs, hand over
//! files to the user that it serves as.

pub mod options;
pub mod place;
pub mod programs;
pub mod reset_key;
pub mod slurm_user;
