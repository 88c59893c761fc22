//! Tests of the commands: the real programs, mostly behind a door that the test plays. One program, so that what they all need is
//! built and linked once.

mod controlled;
mod fake_door;
mod finding;
mod following;
mod journal;
mod minibatch;
mod packs;
mod submitting;
mod terminal;
mod waiting;
