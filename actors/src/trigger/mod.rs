//! Triggers (strigger(1)): programs of SlurmUser that the controller runs when something happens to nodes, jobs or itself. One
//! actor owns all of them. From time to time it looks at what happened since it looked last, and runs the programs of the triggers
//! that waited for it.
//!
//! | file | what it is |
//! |---|---|
//! | [`core`] | decides: which triggers there are, and which programs run |
//! | [`marks`] | what happened to a node, from one view of it to the next |
//!
//! A trigger is removed, or its next run noted, before its program is started: a program runs once, or not at all where the
//! controller ends in between.

pub mod core;
#[cfg(test)]
mod core_test;
pub mod marks;
