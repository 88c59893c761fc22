//! Workloads replayed through the production scheduler: what would a cluster with these nodes, partitions and rules have
//! done with these jobs?
//!
//! | module | what it is |
//! |---|---|
//! | [`swf`] | workload traces in the Standard Workload Format |
//! | [`journal`] | the journal of a real controller as a workload |
//! | [`cluster`] | the nodes, partitions and rules |
//! | [`engine`] | the replay |
//! | [`figures`] | the results, in numbers |
//! | [`picture`] | the results, drawn |
//! | [`shares`] | fair shares of the users |

pub mod cluster;
pub mod engine;
pub mod figures;
pub mod idle;
pub mod journal;
pub mod map;
pub mod picture;
pub mod shares;
pub mod swf;

use garrick_model::{ids::JobId, resources::MemoryMib, time::Timestamp};

/// A job of a workload: what it asked for, and how long it really ran.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceJob {
    /// Number in the trace.
    pub id: JobId,
    /// Submission.
    pub submit: Timestamp,
    /// Run time, seconds.
    pub run: u64,
    /// Places (processors or nodes, as the trace counts them).
    pub size: u32,
    /// Time limit asked for, seconds.
    pub requested: Option<u64>,
    /// Memory of each place.
    pub memory: Option<MemoryMib>,
    /// User.
    pub user: u32,
    /// Queue number of the trace; partitions are numbered in the order of the configuration, from 1.
    pub queue: Option<u32>,
}
