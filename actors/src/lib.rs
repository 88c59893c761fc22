//! The actors of the controller, each as a core that decides and a shell that acts. A folder per owner: `core.rs` decides,
//! `view.rs` is what others may see. They share [`log`], [`messages`] and [`owner`] below
//! them; their actors are above them, in [`controller::shells`]. What lasts of them is in [`garrick_events`], what the scheduler
//! plans in [`garrick_plan`].
//!
//! | module | what it is |
//! |---|---|
//! | [`controller`] | the controller's frontend: submission, ids, commands, queries, recovery, and the flow through all of these |
//! | [`job`] | the owner of one job's state |
//! | [`reservation`] | advance reservations |
//! | [`log`] | the controller's log: what its events come to, and how they are written and followed |
//! | [`license`] | who has how many of each license |
//! | [`messages`] | what owners of the controller say to each other |
//! | [`node`] | the controller's record of one node and the owner of its free resources |
//! | [`owner`] | what all owners of the controller's state have in common |
//! | [`partition`] | one partition's settings and state |
//! | [`roster`] | which nodes there are, and so the configuration |
//! | [`scheduler`] | when plans are made over what owners show |
//! | [`submission`] | whether a job may be submitted, and what it comes to |
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
