//! The actors of the controller around the cores of its owners, and what they share. Each kind of owner has a file here, which says
//! what its verbs come to: which boards show it, what it has done at the process's ports, and what is supervised of its kind.
//! They decide nothing.
//!
//! | file | what it is |
//! |---|---|
//! | [`actor`] | an owner in the controller: mailbox, journal, timers, replies and restart |
//! | [`supervisor`] | which owners of a kind live there, and that one that failed lives again |
//! | [`job`], [`node`], [`partition`], [`reservation`], [`roster`], [`scheduler`], [`steps`] | what an owner of that kind does there |
//! | [`mod@env`] | what all of them share: boards, what is committed, ports, and the way to each other |
//! | [`job_board`] | of that: what jobs show, found by user, state and array too |
//! | [`ports`] | what the process must provide |
//! | [`audit`] | of that: what was asked for and what came of it |
//! | [`entering`] | jobs that are being saved |
//! | [`leftovers`] | what a later life of an owner must know although it is not saved |
//! | [`ids`] | fresh job ids and runs |
//! | [`sites`] | what holds for all nodes and all jobs, from the configuration |
//! | [`agents`] | replies to commands that came through nodes' doors |

pub mod actor;
pub mod agents;
pub mod audit;
pub mod entering;
#[cfg(test)]
mod entering_test;
pub mod env;
pub mod ids;
pub mod job;
pub mod job_board;
pub mod leftovers;
pub mod node;
pub mod partition;
pub mod ports;
pub mod reservation;
pub mod roster;
pub mod scheduler;
pub mod sites;
pub mod steps;
pub mod supervisor;
