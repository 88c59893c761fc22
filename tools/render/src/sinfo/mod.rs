//! What `sinfo` shows.
//!
//! | module | what it is |
//! |---|---|
//! | [`fields`] | letters, names, headings, and in which fields nodes must agree to share a line |
//! | [`listing`] | which nodes are listed, in which lines and order |
//! | [`cells`] | what a group of nodes shows in a field |
//! | [`json`] | groups as JSON |

pub mod cells;
pub mod fields;
pub mod json;
pub mod listing;

use garrick_model::view::{NodeView, PartitionView};

/// A line of `sinfo`: some nodes of a partition, perhaps none.
#[derive(Clone, Debug)]
pub struct Group<'a> {
    /// Partition.
    pub partition: &'a PartitionView,
    /// Place of the partition in the configuration.
    pub place: usize,
    /// Nodes, in configuration order.
    pub nodes: Vec<&'a NodeView>,
}
