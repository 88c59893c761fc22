//! What the agent of a node and the `stepd` of a run share of that run.
//!
//! | module | what it is |
//! |---|---|
//! | [`folder`] | the run's folder: which `stepd` serves it, its journal, its sockets |
//! | [`orders`] | what the agent has the `stepd` do |

pub mod folder;
pub mod orders;
