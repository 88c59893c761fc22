//! Asking a cluster: finding it, reaching its controller, its step managers and the agents of its nodes, and asking again
//! while they are away. Nothing here prints or ends the process: failures are values
//! ([`ClusterError`](cluster::ClusterError), [`NoWay`](search::NoWay)), and what a caller may want to say while it waits goes
//! to its [`Asker`].
//!
//! | module | what it is |
//! |---|---|
//! | [`cluster`] | finding a cluster, and one conversation at one of its doors |
//! | [`contact`] | the questions of the commands that show and control |
//! | [`manager`], [`search`] | the way to a job's step manager; looking for one that does not answer |
//! | [`patience`] | asking again |
//! | [`runs`] | jobs that are named by one of their runs |
//! | [`run_records`], [`ended_steps`] | the records of a run's steps; steps that are over, from them |
//! | [`own_job`] | steps of the job around this process, while the controller does not answer |
//! | [`signals`] | signals as input, which end a wait |
//! | [`accounting`] | the questions about records of accounting |
//! | [`accounts`] | users and groups |

use std::fmt::{Debug, Display};

pub mod accounting;
pub mod accounts;
pub mod cluster;
pub mod contact;
pub mod ended_steps;
pub mod manager;
pub mod own_job;
pub mod patience;
pub mod run_records;
pub mod runs;
pub mod search;
pub mod signals;

/// Who asks.
pub trait Asker: Debug {
    /// The name that daemons see: that of the command, or of the program that asks.
    fn program(&self) -> &str;

    /// Something takes longer, and why: one line, without a newline.
    fn info(&self, text: &dyn Display);

    /// What is given is not all that was asked for, and why: one line, without a newline.
    fn warning(&self, text: &dyn Display);
}
