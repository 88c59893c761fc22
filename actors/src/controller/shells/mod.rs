//! The actors of the controller around its owners' cores, and what they share. Each kind of owner has a file here, which says how
//! its effects are carried out: where its views are published, which ports of the process it uses, and how its kind is
//! supervised. These files decide nothing.
//!
//! | file | what it is |
//! |---|---|
//! | [`actor`] | an owner in the controller: mailbox, journal, timers, replies and restart |
//! | [`supervisor`] | which owners of a kind are running, and their restart after a failure |
//! | [`job`], [`node`], [`partition`], [`mod@power`], [`reservation`], [`crontab`], [`trigger`], [`roster`], [`scheduler`], [`steps`] | effects of that kind |
//! | [`mod@env`] | what all of them share: views, committed state, ports, and addresses |
//! | [`job_board`] | views of jobs, with indexes by user, state and array |
//! | [`submitted`] | how many jobs wait or run, by account, QOS, user and partition |
//! | [`ports`] | what the process must provide |
//! | [`audit`] | the audit log: requests and their results |
//! | [`entering`] | jobs that are being saved |
//! | [`leftovers`] | unsaved state that a later life of an owner needs |
//! | [`fair`] | fair shares, and the rules by which usage is counted |
//! | [`ids`] | fresh job ids and runs |
//! | [`sites`] | settings for all nodes and all jobs, from the configuration |
//! | [`agents`] | replies to commands that came through nodes' doors |

pub mod actor;
pub mod agents;
pub mod audit;
pub mod counted;
pub mod crontab;
pub mod entering;
#[cfg(test)]
mod entering_test;
pub mod env;
pub mod fair;
pub mod ids;
pub mod job;
pub mod job_board;
pub mod leftovers;
pub mod node;
pub mod notices;
pub mod partition;
pub mod ports;
pub mod power;
pub mod reservation;
pub mod roster;
pub mod scheduler;
pub mod sites;
pub mod steps;
pub mod submitted;
pub mod supervisor;
pub mod trigger;
