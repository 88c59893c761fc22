//! What the agent of a node and the `stepd` of a run share.
//!
//! | module | what it is |
//! |---|---|
//! | [`folder`] | the run's folder: which `stepd` serves it, its journal, its sockets |
//! | [`orders`] | the agent's orders for the `stepd` |

pub mod folder;
pub mod orders;
