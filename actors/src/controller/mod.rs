//! The controller: the frontend that takes commands and agents' connections, and the actors of all owners.
//!
//! # The actors
//!
//! | path | actor | owns |
//! |---|---|---|
//! | `/controller` | [`frontend::core::FrontendCore`] | nothing: admits, routes, answers from boards |
//! | `/job` | [`shells::supervisor`] | which job actors run |
//! | `/job/N` | [`crate::job::core::JobCore`] | the state of job N |
//! | `/node` | [`shells::supervisor`] | which node actors run |
//! | `/node/NAME` | [`crate::node::core::NodeCore`] | a node's state and free resources, the link to its agent |
//! | `/partition`, `/partition/NAME` | [`shells::partition`] | a partition's settings and state |
//! | `/roster` | [`crate::roster::core::RosterCore`] | which nodes there are, and so the configuration |
//! | `/reservation` | [`crate::reservation::core::ReservationsCore`] | all reservations |
//! | `/crontab` | [`crate::crontab::core::CrontabsCore`] | all crontabs |
//! | `/trigger` | [`crate::trigger::core::TriggersCore`] | all triggers |
//! | `/steps` | [`crate::steps::core::StepsCore`] | reported steps, lists of steps being gathered |
//! | `/scheduler` | [`crate::scheduler::core::SchedulerCore`] | nothing: reads boards, proposes |
//!
//! Licenses have an account instead of an actor: see [`crate::license`].
//!
//! # The life of a job
//!
//! 1. *Submit.* The frontend judges the request ([`crate::submission::admission`]) as [`crate::submission`] describes, and offers
//!    `Submitted` to the log. When the log has saved it, the job is committed and visible, `/job` starts its actor, and the reply
//!    is sent; before that the job is invisible ([`shells::entering`]). A log that is busy, or not the leader's, accepts nothing:
//!    the user is told to try again. A repeat of the request id gets the first answer, also after a restart.
//! 2. *Eligible.* The job's core decides by hold, begin time and dependencies (it asks the jobs that it depends on), and
//!    publishes its view.
//! 3. *Plan.* The scheduler wakes when views change, plans, and sends `Start` to the owners of jobs that fit, and `Considered`
//!    with a reason to the others. The next pass waits for all answers.
//! 4. *Commit.* The job asks every node of the proposal for its share (`Reserve`, with the generation of the view that the plan
//!    was made from). If all accept, `Allocated` is recorded, and once that is on disk, the signed launch is sent to the batch
//!    host's agent through that node's owner. If one refuses, all shares are released and the job keeps waiting.
//! 5. *Run.* The agent's reports reach the job through the node's owner, which numbers and acknowledges them: `JobStarted`,
//!    `JobEnded`. An acknowledgement is sent when the events that follow from the report are on disk. Batches of steps take the
//!    same way: the job uses their counts, `/steps` keeps their rows.
//! 6. *Clean up.* From `JobEnded` on the job is `COMPLETING` until each node's agent sends `NodeReleased`; then it is over,
//!    or requeued as a new run. After MinJobAge it is forgotten.
//!
//! # Guarantees
//!
//! - Nothing that an owner promises or causes happens before its events are saved: effects of a turn, and all later ones of that
//!   owner, wait until the turn's events are on disk ([`crate::owner::outbox`]).
//! - The same `apply` changes records in live owners, in the committed state and in recovery
//!   ([`garrick_events::event::Replayed`], [`crate::log::committed`], [`setup`]).
//! - A run is identified by its SLUID everywhere; messages about an older run have no effect except that its nodes are released.
//! - An actor that panics is rebuilt from the committed state, after all that it had appended is committed
//!   ([`crate::log::committed`]); an allocation in progress is released ([`shells::leftovers`]).
//! - After a restart, running jobs wait for their agents: runs that an agent's registration names go on. A run that it does not
//!   name is launched again if it never started, or is ended after a grace for late reports.
//!
//! # Requirements for agents
//!
//! - `EndJob` for an unknown run is answered by `NodeReleased`.
//! - A registration names every run that is not gone; unacknowledged reports are repeated after `Welcome`, in order.
//!
//! | file | what it is |
//! |---|---|
//! | [`setup`] | brings a controller up from its journal |
//! | [`shells`] | the actors of owners, what they share, and what the process must provide |
//! | [`messages`] | messages to the frontend |
//! | [`frontend`] | takes commands and agents' connections |

pub mod frontend;
pub mod messages;
pub mod setup;
pub mod shells;

#[cfg(test)]
mod cores_test;
#[cfg(test)]
mod crontabs_test;
#[cfg(test)]
mod dynamic_nodes_test;
#[cfg(test)]
pub(crate) mod fixtures;
#[cfg(test)]
mod hres_test;
#[cfg(test)]
mod limits_test;
#[cfg(test)]
mod moves_test;
#[cfg(test)]
mod power_test;
#[cfg(test)]
mod priority_test;
#[cfg(test)]
mod private_test;
#[cfg(test)]
mod revise_test;
#[cfg(test)]
mod shells_test;
#[cfg(test)]
mod statistics_test;
#[cfg(test)]
mod steps_test;
#[cfg(test)]
mod supervised_test;
#[cfg(test)]
mod trust_test;
