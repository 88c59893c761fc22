//! What Prometheus reads of the controller. Names, order and words of help are those of Slurm 26.05, so that dashboards carry over;
//! memory is in MiB there, whatever the names say. Garrick's own metrics are apart, with units in their names.
//!
//! | module | what it is |
//! |---|---|
//! | [`jobs`] | jobs: all, by partition, by user and account |
//! | [`nodes`] | nodes and partitions |
//! | [`own`] | what Slurm has no metrics for |
//! | [`scheduler`] | what the controller counted of its work |
//! | `exposition` | the text format |

mod exposition;
pub mod jobs;
pub mod nodes;
pub mod own;
pub mod scheduler;

#[cfg(test)]
mod tests;
