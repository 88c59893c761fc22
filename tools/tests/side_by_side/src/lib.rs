//! The same commands on a cluster of Garrick and on one of Slurm, and what differs.
//!
//! A scenario file describes a small cluster and many cases. Each case runs commands as given users. [`side`] runs all cases of a
//! file on a fresh cluster of one installation, in namespaces of its own, and tells what it observed. [`normal`] puts what is
//! different in every run (job ids, times) in order, [`compare`] finds what differs, and [`differences`] has the differences that
//! are known, each with its reason. [`report`] counts. A difference that is in no list fails, and so does a listed one that is no
//! longer there.

pub mod cluster;
pub mod compare;
pub mod differences;
pub mod normal;
pub mod report;
pub mod scenario;
pub mod side;
