//! The actors of the field, each as a core that decides and a shell that acts. A folder per actor: `core.rs` decides,
//! `state.rs` holds what it remembers, `messages.rs` says what it accepts, `view.rs` is what others may see, `shell.rs` is the
//! actor. Those of the controller's owners share [`records`], [`log`], [`messages`] and [`owner`] below them; their actors are
//! above them, in [`controller::shells`].
//!
//! | module | what it is |
//! |---|---|
//! | [`controller`] | the controller's frontend: submission, ids, commands, queries, recovery, and the flow through all of these |
//! | [`job`] | the owner of one job's state |
//! | [`reservation`] | advance reservations |
//! | [`log`] | the controller's log: its events, what they come to, and how it is written |
//! | [`license`] | who has how many of each license |
//! | [`messages`] | what owners of the controller say to each other |
//! | [`node`] | the controller's record of one node and the owner of its free resources |
//! | [`owner`] | what all owners of the controller's state have in common |
//! | [`partition`] | one partition's settings and state |
//! | [`scheduler`] | when plans are made over what owners show |
//! | [`steps`] | steps as the controller knows them: reports, and lists of them |

pub mod controller;
pub mod job;
pub mod license;
pub mod log;
pub mod messages;
pub mod node;
pub mod owner;
pub mod partition;
pub mod reservation;
pub mod roster;
pub mod scheduler;
pub mod steps;
pub mod submission;
