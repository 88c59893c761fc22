//! The owner of one job's state, from submission until it is forgotten.
//!
//! What lasts of a job, and the events that change it, are in [`crate::records`].
//!
//! | file | what it is |
//! |---|---|
//! | [`core`] | decides: input in, effects out |
//! | `start` | proposal, commit with the nodes, launch |
//! | `reports` | what agents say about a run |
//! | [`ending`] | ends, requeue, being forgotten |
//! | `fencing` | runs that may go on where nobody hears of them |
//! | `control` | commands |
//! | `preempt` | giving way to another job |
//! | `suspend` | standing still, and going on |
//! | `array` | tasks split off an array |
//! | [`het`] | components of a heterogeneous job |
//! | `dependency` | conditions on other jobs |
//! | [`shell`] | the actor, and the supervisor of all jobs |
//! | [`news`] | what jobs need to know of each other, and how a word that was lost is asked for again |
//! | [`messages`] | what it accepts and causes |
//! | [`view`] | what others see |

mod array;
mod control;
pub mod core;
pub mod dependency;
pub mod ending;
mod fencing;
pub mod het;
pub mod messages;
pub mod news;
mod preempt;
pub(crate) mod reports;
pub mod shell;
mod start;
mod suspend;
mod told;
pub mod view;

#[cfg(test)]
mod core_test;
#[cfg(test)]
mod fencing_test;
#[cfg(test)]
pub(crate) mod fixtures;
#[cfg(test)]
mod het_test;
#[cfg(test)]
mod preempt_test;
#[cfg(test)]
mod requeue_test;
#[cfg(test)]
mod suspend_test;
