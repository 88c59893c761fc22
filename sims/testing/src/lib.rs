//! What tests of several crates have in common.

pub mod interrupts;
