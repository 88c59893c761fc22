//! The controller: the frontend that takes commands and agents' connections, and the actors of all owners.
//!
//! # Who is there
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
//! | `/steps` | [`crate::steps::core::StepsCore`] | reported steps, lists of steps being gathered |
//! | `/scheduler` | [`crate::scheduler::core::SchedulerCore`] | nothing: reads boards, proposes |
//!
//! Licenses have an account instead of an actor: see [`crate::license`].
//!
//! # How a job flows
//!
//! 1. *Submit.* Where [`crate::submission`] says so, the frontend judges the request ([`crate::submission::admission`]) and offers `Submitted` to the
//!    log. When that says that it is saved, the job is committed and shown, `/job` starts the actor, and the reply leaves;
//!    before that nobody sees the job ([`shells::entering`]). A log that is busy, or not the leader's, takes nothing: the user is told
//!    to try again. A repeat of the request id gets the first answer, after a restart too.
//! 2. *Eligible.* The job's core decides by hold, begin time and dependencies (it asks the jobs it depends on), and
//!    publishes its view.
//! 3. *Plan.* The scheduler wakes on changed boards, plans, and sends `Start` to the owners of what fits and `Considered`
//!    with a reason to the others. The next pass waits for all answers.
//! 4. *Commit.* The job asks every node of the proposal for its share (`Reserve`, naming the generation that the plan was
//!    made from). All say yes: `Allocated` is recorded, and once that is on disk the signed launch goes to the batch host's
//!    agent, by way of that node's owner. One says no: everything goes back, the job waits on.
//! 5. *Run.* Reports come from the agent through the node's owner (which numbers and acknowledges them) to the job:
//!    `JobStarted`, `JobEnded`. An acknowledgement leaves when what the report caused is on disk. Batches of steps go the
//!    same way without being looked into: the job takes their numbers, `/steps` remembers their rows.
//! 6. *Clean up.* From `JobEnded` on the job is `COMPLETING` until each node's agent says `NodeReleased`; then it is over,
//!    or back in the queue as a new run. After MinJobAge it is forgotten.
//!
//! # What is promised
//!
//! - Nothing that an owner promises or causes overtakes the journal: effects of a turn, and all later ones of that owner,
//!   wait until the turn's events are on disk ([`crate::owner::outbox`]).
//! - The same `apply` makes records live, as they are committed and in recovery ([`garrick_events::event::Replayed`],
//!   [`crate::log::committed`], [`setup`]).
//! - A run is named by its SLUID everywhere; what is said about an older run changes nothing but gives its nodes back.
//! - An actor that panics is built anew from what is committed, once all that it had appended is ([`crate::log::committed`]); an allocation
//!   that was under way is given back ([`shells::leftovers`]).
//! - After a restart, running jobs wait for their agents: what an agent's registration names goes on, what it does not
//!   name is launched again if it never started, or is ended after a grace for late reports.
//!
//! # What agents are expected to do
//!
//! - `EndJob` for a run that is not there is answered by `NodeReleased`.
//! - A registration names every run that is not gone; reports that were not acknowledged come again after `Welcome`, in
//!   order.
//!
//! | file | what it is |
//! |---|---|
//! | [`setup`] | brings a controller up from its journal |
//! | [`shells`] | the actors of owners, what they share, and what the process must provide |
//! | [`messages`] | what the wiring sends |
//! | [`frontend`] | takes commands and agents' connections |

pub mod frontend;
pub mod messages;
pub mod setup;
pub mod shells;

#[cfg(test)]
mod cores_test;
#[cfg(test)]
mod dynamic_nodes_test;
#[cfg(test)]
pub(crate) mod fixtures;
#[cfg(test)]
mod hres_test;
#[cfg(test)]
mod moves_test;
#[cfg(test)]
mod priority_test;
#[cfg(test)]
mod revise_test;
#[cfg(test)]
mod shells_test;
#[cfg(test)]
mod steps_test;
#[cfg(test)]
mod supervised_test;
#[cfg(test)]
mod trust_test;
