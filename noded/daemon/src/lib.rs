//! What the daemons `noded` and `stepd` have in common.
//!
//! | module | what it is |
//! |---|---|
//! | [`logging`], [`syslog`] | the log: to a file, to standard error, to the system's |
//! | [`signals`] | how a daemon is told to end, to read its configuration again, to open its log anew |
//! | [`versions`] | which version this is |
//! | [`journal`] | the append-only file behind every promise |
//! | [`links`] | what links of all daemons share |
//! | [`run`] | what the agent of a node and the `stepd` of a run share of that run |

pub mod journal;
pub mod links;
pub mod logging;
pub mod run;
pub mod signals;
pub mod syslog;
pub mod versions;
