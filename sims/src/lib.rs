//! Benchmarks and faults of real processes: figures are always given as a ratio to a floor measured in the same run. The
//! simulator is a crate of its own below this folder: it needs no daemon.
//!
//! | what | where | run with |
//! |---|---|---|
//! | minibatch on real clusters: rates, memory, packing, costs | [`minibatch`] | `garrick-minibatch all` |
//! | what durability costs: submissions, restart with a long queue | [`records`] | `garrick-records rates` |
//! | what a whole job costs: jobs a second, CPU time by process, time by layer | [`jobs`] | `garrick-jobs` |
//! | what a parallel program waits for: its file on all nodes, its tasks that find each other | [`parallel`] | `garrick-parallel start` |
//! | what accounting takes in and how quickly it answers, beside SQL by hand; what it costs the cluster | [`accounting`] | `garrick-accounting` |
//! | the same against real processes: kills, stops, cut links, full disks | [`faults`] | `garrick-faults --short` |
//! | attacks on a real cluster, by users, from the network and with a node's identity | [`attacks`] | `garrick-attacks` |
//! | a node that dies under an expedited job: detection, restart, what happened | [`requeue`] | `garrick-requeue` |
//! | how fast this machine can start processes at all | [`spawn_floor`] | by each scenario of the minibatch row |

pub mod accounting;
pub mod attacks;
pub mod database;
pub mod faults;
pub mod jobs;
pub mod minibatch;
pub mod parallel;
pub mod program;
pub mod records;
pub mod requeue;
pub mod schedule;
pub mod spawn_floor;
