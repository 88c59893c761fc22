//! Submissions: what is judged of them and of changes, and what becomes of them. Whoever repeats one gets the first answer, what is
//! judged well gets ids, and what is saved gets an answer and an owner. The core is a part of the frontend's
//! (`controller/frontend`), which knows users, partitions and what could ever run.
//!
//! | file | what it is |
//! |---|---|
//! | [`core`] | repeats, ids, answers |
//! | [`admission`] | what is judged of a submission and of a change, pure |
//! | `places`, `resolution` | of that: where a job may be, and what its request comes to |
//! | `gpu_counts` | of those, that numbers of GPUs agree |
//! | `labels`, `texts` | MCS labels; how long texts may be, and what must not be in them |
//! | `dependency_cycles` | would a job wait for itself |
//! | [`job_submit`] | the site's own word on requests |
//! | [`users`] | users, as the site's user database has them |

pub mod admission;
#[cfg(test)]
mod admission_test;
pub mod core;
#[cfg(test)]
mod core_test;
pub(crate) mod dependency_cycles;
mod gpu_counts;
pub mod job_submit;
mod labels;
mod places;
mod resolution;
pub(crate) mod texts;
pub mod users;
