//! Trace records of a process, for those who ask for them.
//!
//! | module | what it is |
//! |---|---|
//! | [`line`](mod@line) | a record as it travels |
//! | [`answers`] | who is told of this process's records, once or on and on |

pub mod answers;
pub mod line;
