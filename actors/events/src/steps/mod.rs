//! What a job's step manager saves: which steps were accepted, which started where, and how they ended.
//!
//! | file | what it is |
//! |---|---|
//! | [`event`] | the records of its journal |
//! | [`batch`] | steps that were accepted together |
//! | [`end`] | how a step ended, and why |

pub mod batch;
pub mod end;
pub mod event;
