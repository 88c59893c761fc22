//! The step manager: owner of what runs inside one run of a job. One per job, in the `stepd` of its batch host.
//!
//! | file | what it is |
//! |---|---|
//! | [`run`] | facts of the run, settings of the site |
//! | [`messages`] | inputs and effects |
//! | [`core`] with [`clients`], [`enqueue`], [`attach`], [`naming`], [`schedule`], [`holds`], [`lines`], [`endings`], `failing`, [`life`], `motion`, [`takeover`] | decides |
//! | [`state`] | phases of the run, records of its steps |
//! | [`shape`] | what a step needs |
//! | [`pool`], [`placement`] | the job's resources, and where a step is placed |
//! | [`batch`], [`rows`], [`queue`] | waiting steps, and their order |
//! | [`findings`] | what is known about a step after a takeover |
//! | [`groups`] | progress of arrays and lists |
//! | [`ends`], [`watch`] | how steps ended, and who waits for that |
//! | [`launch`], [`mod@env`] | from a placed step to the orders for its nodes |
//! | [`interning`] | equal environments and shapes stored once |
//! | [`journal`] | what survives a restart |
//! | [`history`] | what a journal says about the steps, for queries |
//! | [`reports`], [`waiters`], [`view`] | what others are told |
//! | [`shell`] | the actor, `/job/N` in its `stepd` |

pub mod attach;
pub mod batch;
pub mod clients;
pub mod core;
pub mod endings;
pub mod ends;
pub mod enqueue;
pub mod env;
mod failing;
mod files;
pub mod findings;
pub mod groups;
mod het_env;
pub mod history;
pub mod holds;
pub mod interning;
pub mod journal;
pub mod launch;
pub mod life;
pub mod lines;
pub mod messages;
mod motion;
pub mod naming;
mod orders;
pub mod placement;
pub mod pool;
pub mod queue;
mod recent;
mod rejoin;
pub mod reports;
pub mod rows;
pub mod run;
mod sampling;
pub mod schedule;
pub mod shape;
pub mod shell;
pub mod state;
pub mod step_shell;
pub mod takeover;
pub mod view;
pub mod waiters;
pub mod watch;

#[cfg(test)]
pub(crate) mod builders;
#[cfg(test)]
mod failing_test;
#[cfg(any(test, feature = "testing"))]
#[allow(clippy::unwrap_used, missing_docs)]
pub mod harness;
#[cfg(test)]
mod parts_test;
#[cfg(test)]
mod property_test;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod rejoin_test;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod takeover_test;

pub use self::core::StepMgrCore;
pub use journal::Ledger;
pub use messages::{ClientId, StepMgrEffect, StepMgrInput, StepMgrMsg, StepMgrTimer};
pub use run::{RunFacts, StepMgrConfig};
pub use shell::{StepMgr, StepMgrPort};
