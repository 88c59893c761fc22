//! Simulation and benchmarks: the production cores with a made-up world around them, and figures that are always given
//! as a ratio to a floor measured in the same run.
//!
//! | what | where | run with |
//! |---|---|---|
//! | jobs, nodes and faults from one seed, rules checked after every event | [`simulation`] | `garrick-sim --short` |
//! | minibatch on real clusters: rates, memory, packing, costs | [`minibatch`] | `garrick-minibatch all` |
//! | what durability costs: submissions, restart with a long queue | [`records`] | `garrick-records rates` |
//! | the same against real processes: kills, stops, cut links, full disks | [`faults`] | `garrick-faults --short` |
//! | a node that dies under an expedited job: detection, restart, what happened | [`requeue`] | `garrick-requeue` |
//! | how fast this machine can start processes at all | [`spawn_floor`] | by each scenario of the minibatch row |

// The people and processes of a run are the same in the tests of its step manager, whose names these are.
use garrick_actors::{shepherd, step, stepmgr};

pub mod faults;
pub mod minibatch;
pub mod records;
pub mod requeue;
pub mod schedule;
pub mod simulation;
pub mod spawn_floor;
