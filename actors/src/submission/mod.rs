//! Submissions: how they and changes of jobs are judged, and what follows. A repeated submission gets the first answer, an
//! accepted one gets ids, and a saved one gets an answer and an owner. The core is part of the frontend (`controller/frontend`),
//! which knows users, partitions and the feasibility of requests.
//!
//! | file | what it is |
//! |---|---|
//! | [`core`] | repeats, ids, answers |
//! | [`admission`] | judges a submission or a change; pure |
//! | `places`, `resolution` | parts of it: partitions and reservations; the request with defaults filled in |
//! | `accounting` | part of it: account, QOS, WCKey, limits of accounting |
//! | `gpu_counts` | part of it: numbers of GPUs must agree |
//! | `labels`, `texts` | MCS labels; limits on texts |
//! | `dependency_cycles` | would a job depend on itself |
//! | [`job_submit`] | the site's own checks of requests |
//! | [`users`] | users, as the site's user database has them |

mod accounting;
#[cfg(test)]
mod accounting_test;
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
