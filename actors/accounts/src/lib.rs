//! What accounting keeps of jobs and steps for years. Everything here is plain data and pure functions: the service of accounting
//! stores it, the controller feeds it, commands ask for it.
//!
//! | module | what it is |
//! |---|---|
//! | [`row`] | what is kept of one run of a job |
//! | [`fold`] | how that follows from the events of the controller's log |
//! | [`step`] | what is kept of a step |
//! | [`tres`] | amounts of what jobs ask for and have |
//! | [`change`] | changes of accounts, users, associations and QOS (`sacctmgr`) |
//! | [`records`] | changes of records of jobs, and archives (`sacctmgr`) |
//! | [`filter`] | which rows a question is about |
//! | [`event`] | when nodes were out of service, and what clusters had |
//! | [`reservation`] | what is kept of reservations |
//! | [`usage`] | what was used in a window of time (`sreport`) |
//! | [`parts`] | entities on their way |
//! | [`visible`] | what a user may see of accounts, users and associations |
//! | [`messages`] | between controller, service and commands |

pub mod change;
pub mod event;
pub mod filter;
pub mod fold;
pub mod messages;
pub mod parts;
pub mod records;
pub mod reservation;
pub mod row;
pub mod step;
pub mod tres;
pub mod usage;
pub mod visible;
