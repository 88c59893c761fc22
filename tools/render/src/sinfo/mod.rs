//! What `sinfo` shows.
//!
//! | module | what it is |
//! |---|---|
//! | [`fields`] | the fields: letters, names, headings, what is shown in each, and whether nodes must agree in it to share a line |
//! | [`listing`] | which nodes are listed, in which lines and order |
//! | [`json`] | groups as JSON |

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
