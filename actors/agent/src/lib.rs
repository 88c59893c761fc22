//! A node's side of the cluster, beside its local door: it registers the node with the controller, starts a `stepd` for each
//! run it is handed, adopts the living ones when it starts itself, runs prolog and epilog, passes orders down and reports up.
//!
//! What it decides: when a run may start here, when nothing of it is left, and what the controller still has to be told. What it
//! leaves to others: everything inside a job (the step manager), and whether a run may be here at all (the controller's
//! credential says so).
//!
//! It keeps no journal. A run's folder in the spool is the record: it is there before `stepd` starts, it learns when the run's
//! processes are gone and its end is with the controller ([`AgentEffect::MarkClean`]), and it is removed once the controller has acknowledged that the node is
//! released. What a `stepd` reports it acknowledges only when the controller has: after a crash of the agent the `stepd`
//! repeats it. A `stepd` that dies it starts again from the run's folder ([`RESTARTS`] times in [`RESTART_WINDOW`]), and
//! tells it what was ordered meanwhile.
//!
//! | module | what it is |
//! |---|---|
//! | [`core`](NodeAgentCore) | decides |
//! | `state`, `runs`, `lease`, `restart` | the runs of this node: their phases, how long they may be here, `stepd`s started again |
//! | [`belief`] | whose word on a run is taken |
//! | `messages` | what it is told and what it wants done |
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
