//! What the controller decided, as it is saved: its events, and the records of jobs, nodes and partitions that they come to.
//! Who reads a journal needs no more than this. How events are kept, in one order and for good, is the controller's log.
//!
//! | module | what it is |
//! |---|---|
//! | [`event`] | the events, and how a controller is rebuilt from them |
//! | [`records`] | what lasts of jobs, nodes and partitions, and the events that change it |
//! | [`progress`] | which events have positions, and how far followers are |
//! | [`beside`] | what is kept beside the events: which version of each piece counts |
//! | `testing` | records with good defaults, with the feature of that name |

pub mod beside;
pub mod event;
pub mod progress;
pub mod records;
#[cfg(any(test, feature = "testing"))]
#[allow(clippy::unwrap_used)]
pub mod testing;
