//! How views become text: columns (`squeue`, `sinfo`, `sprio`), records (`scontrol show`) and JSON, over the same words, times
//! and amounts. Nothing here asks anyone or writes anywhere but to the writer that it was given.
//!
//! | module | what it is |
//! |---|---|
//! | [`job_rows`], [`step_lines`] | which jobs and steps a listing shows, and which of them share a line |
//! | [`squeue`], [`sinfo`], [`sprio`], [`sshare`], [`sstat`] | the fields of these commands, and what is shown in each |
//! | [`sacct`] | records of accounting |
//! | [`sacctmgr`] | accounts, users, their associations and QOS |
//! | [`sreport`] | what was used in a window of time |
//! | [`sdiag`] | what the controller counted |
//! | [`steps`] | what `garrick steps` shows, from the records of a run |
//! | [`columns`] | fields as columns: formats (`-o`, `-O`), widths, headings |
//! | [`field_table`] | fields as columns, as the commands about usage and accounting print them |
//! | [`records`] | records of `key=value` |
//! | [`json`] | views as JSON |
//! | [`metrics`] | views and counters as Prometheus reads them |
//! | [`words`], [`node_state`] | states, reasons and exit codes as words; the states of nodes |
//! | [`amounts`] | CPUs, memory, generic resources and lists of nodes |
//! | [`clock`] | points in time |
//! | `testing` | views for tests (feature `testing`) |

pub mod amounts;
pub mod clock;
pub mod columns;
pub mod field_table;
pub mod job_rows;
pub mod json;
pub mod metrics;
pub mod node_state;
pub mod records;
pub mod sacct;
pub mod sacctmgr;
pub mod sdiag;
pub mod sinfo;
pub mod sprio;
pub mod squeue;
pub mod sreport;
pub mod sshare;
pub mod sstat;
pub mod step_lines;
pub mod steps;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod words;
