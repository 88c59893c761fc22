//! The agent, which represents a node in the cluster: it registers the node with the controller, starts a `stepd` for each run,
//! adopts living `stepd`s when it starts itself, runs prolog and epilog, passes orders down and reports up.
//!
//! It decides when a run may start here, when nothing of the run is left, and what the controller still has to be told. It does
//! not decide what happens inside a job (the step manager does), nor whether a run may be on this node at all (the controller's
//! credential says so).
//!
//! It keeps no journal. The record of a run is its folder in the spool: it is created before `stepd` starts; it is marked when
//! the run's processes are gone and the controller has its end ([`AgentEffect::MarkClean`]); and it is removed once the
//! controller has acknowledged that the node is released. The agent acknowledges a `stepd`'s report only after the controller has
//! acknowledged it: so after a crash of the agent the `stepd` repeats it. If a `stepd` dies, the agent starts it again from the
//! run's folder ([`RESTARTS`] times in [`RESTART_WINDOW`]), and repeats the orders that came meanwhile.
//!
//! | module | what it is |
//! |---|---|
//! | [`core`](NodeAgentCore) | decides |
//! | `state`, `runs`, `lease`, `restart` | the runs of this node: their phases, how long they may stay, restarts of `stepd`s |
//! | [`belief`] | whether a credential is accepted |
//! | `messages` | its inputs and effects |
//! | `outbox` | reports that the controller has not acknowledged |
//! | `queries` | questions passed on to `stepd`s |
//! | [`shell`](NodeAgent) | the actor |

pub mod belief;
mod core;
mod lease;
mod messages;
mod outbox;
mod queries;
mod restart;
mod runs;
mod shell;
mod state;

#[cfg(test)]
mod core_test;

pub use self::{
    core::{AgentConfig, NodeAgentCore},
    lease::lease_of,
    messages::{
        AgentEffect, AgentInput, AgentMsg, AgentTimer, FoundRun, Leftover, PeersSaid, PrepareFailure, RunKey,
        StartOrder, StepdState,
    },
    restart::{RESTART_PAUSES, RESTART_WINDOW, RESTARTS},
    shell::{AgentPort, NodeAgent},
};
