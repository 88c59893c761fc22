//! The actor runtime: typed addresses, supervision, bounded mailboxes, timers, snapshot boards and message traces.
//!
//! It is built on actix and actix-rt and hides both: an actor here is plain synchronous code behind an [`Address`].
//! `docs/runtime.md` lists the runtime's guarantees, with one test for each. It knows nothing of jobs, nodes or links; other
//! crates pass it messages and [`Forward`]s.
//!
//! | module | decides |
//! |---|---|
//! | `path` | how actors are named |
//! | `message` | what an actor and a message are |
//! | `address` | the three ways to send, near or far |
//! | `reply` | who answers a request, and what the requester learns if nobody does |
//! | `mailbox` | bounds and lanes: the order of messages, when a sender is refused |
//! | `spec` | a parent's description of a child: factory, restart, place, bounds |
//! | `supervision` | which children are restarted, suspended, given up or stopped, and in which order (pure) |
//! | `host` | one actor's life on its arbiter: turns, panics, restarts, stops |
//! | `context` | what an actor may ask of the runtime while it handles a message |
//! | `tasks` | futures that belong to one life of an actor |
//! | `timer` | named timers (pure) |
//! | `system` | start, find, shutdown |
//! | `arbiters` | which thread an actor lives on |
//! | `registry` | addresses by name |
//! | `board`, `board_map` | published snapshots for readers that must not wait |
//! | `requests` | outstanding requests with deadlines; first answers kept for repeats |
//! | `trace`, `trace_hub`, `counts` | which message caused which, the records of that, and message counts |

mod address;
mod arbiters;
mod board;
mod board_map;
mod context;
mod counts;
mod host;
mod mailbox;
mod message;
mod path;
mod registry;
mod reply;
mod requests;
mod spec;
mod supervision;
mod system;
mod tasks;
mod timer;
mod trace;
mod trace_hub;

pub use address::{Address, AskError, ChannelReceiver, Delivered, Forward, SendError};
pub use board::{Board, Snapshot};
pub use board_map::BoardMap;
pub use context::Context;
pub use counts::MessageCount;
pub use message::{Actor, ChildEvent, Lane, Message, Strategy};
pub use path::{ActorPath, PathError};
pub use registry::StartError;
pub use reply::{PendingReply, ReplyTo};
pub use requests::{Answered, BeginError, Requests};
pub use spec::{ChildSpec, Placement, Restart, RestartLimits, WhenExceeded};
pub use system::{System, SystemConfig, SystemFailed};
pub use timer::TimerKey;
pub use trace::{Carried, Outcome, TraceContext, TraceRecord};
pub use trace_hub::{TraceFollower, TraceHub};
