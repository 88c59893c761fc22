//! Simulation and benchmarks: the production cores with a made-up world around them, and figures that are always given
//! as a ratio to a floor measured in the same run.
//!
//! | what | where | run with |
//! |---|---|---|
//! | jobs, nodes and faults from one seed, rules checked after every event | [`simulation`] | `garrick-sim --short` |
//! | steps per second beside the machine's own spawn rate | [`spawn_floor`] | `garrick-step-rate` |

pub mod simulation;
pub mod spawn_floor;
