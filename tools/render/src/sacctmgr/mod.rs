//! What accounting knows of clusters, accounts, users, their associations and QOS, as `sacctmgr` lists it (sacctmgr(1)): entities of
//! the service in, text out.
//!
//! | module | what it is |
//! |---|---|
//! | [`kind`] | what can be listed |
//! | [`condition`] | what is asked for: conditions, fields, more than usual |
//! | [`rows`] | which lines are shown, in which order |
//! | [`amounts`] | limits and times as text |
//! | [`fields`] | the fields, and which of them are shown unasked |
//! | [`events`] | when nodes were out of service, and what clusters had |
//! | [`reservations`] | reservations of the past and of now |
//! | [`limit_words`] | words for limits |
//! | [`problems`] | what is wrong with accounts and users |
//! | [`document`] | the same as JSON |
//! | [`dump`] | everything of a cluster as a file that `sacctmgr load` reads |

pub mod amounts;
pub mod condition;
pub mod document;
pub mod dump;
pub mod events;
pub mod fields;
pub mod kind;
pub mod limit_words;
pub mod problems;
pub mod reservations;
pub mod rows;

#[cfg(test)]
pub(crate) mod samples;
