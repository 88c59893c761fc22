//! The owner of one job's state, from submission until it is forgotten.
//!
//! The durable state of a job, and the events that change it, are in [`garrick_events::records`].
//!
//! | file | what it is |
//! |---|---|
//! | [`core`] | decides: input in, effects out |
//! | `start` | proposal, commit with the nodes, launch |
//! | `reports` | agents' reports about a run |
//! | [`ending`] | ends, requeue, forgetting |
//! | `fencing` | runs that may still be active on unreachable nodes |
//! | `control` | commands |
//! | `cron` | jobs of crontabs |
//! | `preempt` | preemption by another job |
//! | `suspend` | suspending and resuming |
//! | `array` | tasks split off an array |
//! | `het` | components of a heterogeneous job: their state, and their first turn |
//! | `het_agree` | heterogeneous jobs from a proposal to recorded allocations |
//! | `het_course` | heterogeneous jobs: launch and end |
//! | `dependency` | conditions on other jobs |
//! | `scripts` | programs of the site around a run |
//! | `mail` | which events its user is told about |
//! | `programs` | what the site's programs are told about it |
//! | [`news`] | what jobs need to know about each other, and how lost messages are asked for again |
//! | [`effects`] | effects |
//! | [`view`] | views |

mod array;
mod control;
pub mod core;
mod cron;
pub mod dependency;
pub mod effects;
pub mod ending;
mod fencing;
pub mod het;
mod het_agree;
mod het_course;
mod mail;
pub mod news;
mod preempt;
mod programs;
pub(crate) mod reports;
mod scripts;
mod start;
mod suspend;
mod told;
pub mod view;

#[cfg(test)]
mod core_test;
#[cfg(test)]
mod cron_test;
#[cfg(test)]
mod fencing_test;
#[cfg(test)]
pub(crate) mod fixtures;
#[cfg(test)]
mod het_test;
#[cfg(test)]
mod mail_test;
#[cfg(test)]
mod power_test;
#[cfg(test)]
mod preempt_test;
#[cfg(test)]
mod requeue_test;
#[cfg(test)]
mod scripts_test;
#[cfg(test)]
mod suspend_test;
