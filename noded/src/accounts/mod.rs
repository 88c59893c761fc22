//! The role of accounting (`slurmdbd`): one service, with a door on its host, and a port for controllers of other hosts.
//!
//! | file | what it is |
//! |---|---|
//! | [`start`] | opening database and door |
//! | [`door`] | conversations with the controller that feeds it, and with commands |
//! | [`live`] | the settings, while it serves |
//! | [`records`] | changes of records of jobs, archives, and how long questions took |
//! | [`archive`] | the site's own program that archives |
//! | [`network`] | the port: who is trusted there, and as what |
//! | [`reach`] | how controllers find the service |
//! | [`relay`] | how daemons pass the questions of commands on to it |
//! | [`program`] | the command line of `slurmdbd` |

pub mod archive;
pub mod door;
pub mod live;
pub mod network;
pub mod program;
pub mod reach;
pub mod records;
pub mod relay;
pub mod start;
