//! Submissions: whoever repeats one gets the first answer, what is judged well gets ids, and what is saved gets an answer and an
//! owner. The core lives in the front, which judges (it knows users, partitions and what could ever run) and has the log save.

pub mod core;
#[cfg(test)]
mod core_test;
