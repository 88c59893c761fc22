//! Durable state of jobs, nodes and partitions: what a restarted controller must know. Owners change it by events that the log
//! saves first.
//!
//! | file | what it is |
//! |---|---|
//! | [`charge`] | to whom a run's use is charged |
//! | [`job`] | the record of a job |
//! | [`job_event`] | events of a job, and the one function that applies them |
//! | [`jobs`] | records of jobs by id, cheap to copy |
//! | [`node`] | what is saved of a node |
//! | [`partition`] | what is saved of a partition |
//! | [`request`] | what a request amounts to |

pub mod charge;
pub mod job;
pub mod job_event;
pub mod jobs;
pub mod node;
pub mod partition;
pub mod request;
