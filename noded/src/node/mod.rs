//! The node role: wiring between the agent's actor and the machine.
//!
//! | task | input | output |
//! |---|---|---|
//! | controller link | frames from the controller | agent's inputs; reconnects with backoff |
//! | door | commands and `stepd`s on this host | agent's inputs; relays to step managers elsewhere |
//! | peers | QUIC connections of step managers and of other daemons' relays | agent's inputs; relays to `stepd`s here |
//! | watchers | process descriptors of `stepd`s | `StepdExited` |

pub mod conversations;
pub mod door;
pub mod health;
pub mod joining;
pub mod membership;
pub mod neighbours;
pub mod peers;
pub mod port;
pub mod power;
pub mod records;
pub mod records_link;
pub mod runs;
pub mod shared_cpus;
pub mod site_scripts;
pub mod spool;
pub mod start;
pub mod unkillable;
pub mod uplink;
pub mod user_env;
