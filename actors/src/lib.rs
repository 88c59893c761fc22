//! The actors of the controller, each as a core that decides and a shell that acts. One folder per owner: `core.rs` decides,
//! `view.rs` has what others may see. Owners share [`log`], [`messages`] and [`owner`]; their actors are in
//! [`controller::shells`]. Durable state is in [`garrick_events`], the scheduler's plans in [`garrick_plan`].
//!
//! | module | what it is |
//! |---|---|
//! | [`controller`] | the controller's frontend (commands, queries), recovery, and how they work together |
//! | [`job`] | the owner of one job's state |
//! | [`crontab`] | crontabs of users |
//! | [`trigger`] | programs that run when something happens |
//! | [`reservation`] | advance reservations |
//! | [`log`] | the controller's log: the durable order of its events, and the state that they lead to |
//! | [`license`] | which jobs hold how many of each license |
//! | [`messages`] | messages between the controller's owners |
//! | [`node`] | the owner of one node's state and of its free resources |
//! | [`owner`] | what all owners of the controller's state have in common |
//! | [`partition`] | one partition's settings and state |
//! | [`power`], [`power_policy`] | which nodes are powered down and up; what the site says about it |
//! | [`roster`] | which nodes exist, and with them the configuration |
//! | [`scheduler`] | when plans are made from the owners' views |
//! | [`submission`] | whether a job may be submitted, and its request with defaults filled in |
//! | [`steps`] | steps as the controller knows them: reports, and lists of them |

pub mod controller;
pub mod crontab;
pub mod job;
pub mod license;
pub mod log;
pub mod messages;
pub mod node;
pub mod owner;
pub mod partition;
pub mod power;
pub mod power_policy;
pub mod reservation;
pub mod roster;
pub mod scheduler;
pub mod steps;
pub mod submission;
pub mod trigger;
