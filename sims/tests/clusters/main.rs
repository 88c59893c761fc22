//! Tests of what is measured and tried on real clusters. One program, so that what they all need is built and linked once.

mod accounting;
mod attacks;
mod delay_switch;
mod faults;
mod support;
mod usage;
