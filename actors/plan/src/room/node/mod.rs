//! What is free on one node.
//!
//! | file | what it is |
//! |---|---|
//! | [`free`] | in amounts, and what fits into them |
//! | [`room`] | by single CPU and device |
//! | [`sockets`] | which CPUs of a node's sockets a job gets |
//! | [`binding`] | which CPUs of a node go with which GPUs |

pub mod binding;
pub mod free;
pub mod room;
pub mod sockets;
