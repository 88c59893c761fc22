//! The service of accounting (`slurmdbd`): it is fed with the committed events of controllers' logs, keeps what they come to in a
//! database, and answers questions from that.
//!
//! | module | what it is |
//! |---|---|
//! | [`database`] | SQLite, PostgreSQL and MariaDB in one way |
//! | [`store`] | the database: rows of a batch and its position in one transaction |
//! | [`completion`] | runs that are over, in a table of the form of Slurm's `jobcomp/mysql` |
//! | [`entities`] | accounts, users, associations and QOS, and changes of them |
//! | [`events`] | when nodes were out of service, what clusters had, reservations |
//! | [`texts`] | scripts and environments |
//! | [`purge`] | what is old is deleted |
//! | [`archive`] | files that it is written to before |
//! | [`records`] | changes of records that are there, and archives that are read back |
//! | [`usage`] | what was used in a window of time |
//! | [`pages`] | questions to the database, answered in pages of bounded size |

pub mod archive;
pub mod completion;
pub mod database;
pub mod entities;
pub mod events;
pub mod pages;
pub mod purge;
pub mod records;
pub mod store;
pub mod texts;
pub mod usage;

#[cfg(test)]
mod testing;
