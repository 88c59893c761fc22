//! Submissions: whoever repeats one gets the first answer, what is judged well gets ids, and what is saved gets an answer and an
//! owner. The core is a part of the front's ([`crate::controller::front`]), which judges: it knows users, partitions and what could ever run.

pub mod core;
#[cfg(test)]
mod core_test;
