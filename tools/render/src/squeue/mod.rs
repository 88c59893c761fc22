//! What `squeue` shows.
//!
//! | module | what it is |
//! |---|---|
//! | [`fields`] | letters, names and headings |
//! | [`cells`] | what a row shows in a field |
//! | [`sort`] | the order of rows; rows themselves are in [`crate::job_rows`] |

pub mod cells;
pub mod fields;
pub mod sort;
