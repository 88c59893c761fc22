//! What the controller decided, in the form that is saved: its events, and the records of jobs, nodes and partitions that follow
//! from them. A reader of a journal needs no other crate. Writing events in one durable order is the task of the controller's
//! log.
//!
//! | module | what it is |
//! |---|---|
//! | [`event`] | the events, and how a controller is rebuilt from them |
//! | [`steps`] | the records of the step manager's journal |
//! | [`records`] | durable state of jobs, nodes and partitions, and the events that change it |
//! | [`progress`] | which events have positions, and how far followers are |
//! | [`beside`] | which version of each piece beside the log is valid |
//! | [`usage`] | what users and QOS have used, with decay |
//! | `testing` | records with good defaults, with the feature of that name |

pub mod beside;
pub mod event;
pub mod progress;
pub mod records;
pub mod steps;
#[cfg(any(test, feature = "testing"))]
#[allow(clippy::unwrap_used)]
pub mod testing;
pub mod usage;
