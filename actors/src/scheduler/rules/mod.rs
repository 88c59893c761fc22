//! The rules of a plan, one file each.

pub mod arrays;
pub mod bounds;
pub mod expedited;
pub mod features;
pub mod limits;
pub mod preempt;
pub mod priority;
pub mod reasons;
pub mod resume;
pub mod turns;
