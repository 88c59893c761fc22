//! The actor.
