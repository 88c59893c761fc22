//! Simulation and benchmarks: the production cores with a made-up world around them, and figures that are always given
//! as a ratio to a floor measured in the same run.

pub mod spawn_floor;
