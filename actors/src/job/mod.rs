//! The owner of one job's state, from submission until it is forgotten.
//!
//! What lasts of a job, and the events that change it, are in [`garrick_events::records`].
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
//! | `het` | components of a heterogeneous job: what each remembers, and what it makes of a first turn |
//! | `het_agree` | of those, from a proposal to recorded allocations |
//! | `het_course` | of those, launch and end |
//! | `dependency` | conditions on other jobs |
//! | [`news`] | what jobs need to know of each other, and how a word that was lost is asked for again |
//! | [`effects`] | what it causes |
//! | [`view`] | what others see |

mod array;
mod control;
pub mod core;
pub mod dependency;
pub mod effects;
pub mod ending;
mod fencing;
pub mod het;
mod het_agree;
mod het_course;
pub mod news;
mod preempt;
pub(crate) mod reports;
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
