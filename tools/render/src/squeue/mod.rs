//! What `squeue` shows.
//!
//! | module | what it is |
//! |---|---|
//! | [`fields`] | the fields: letters, names and headings, and what is shown in each |
//! | [`sort`] | the order of rows; rows themselves are in [`crate::job_rows`] |

pub mod fields;
pub mod sort;
