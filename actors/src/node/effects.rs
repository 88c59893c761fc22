//! Effects of a node, and its initial holds.

use crate::{messages::node::NodeTimer, owner::Effect};
use garrick_model::{
    messages::node::ControllerToNode,
    refusal::Refusal,
    view::{NodeHold, NodeView},
};
use garrick_plan::snapshot::caps::CpuCaps;
use std::sync::Arc;

/// An effect of a node. It publishes its view.
pub type NodeEffect = Effect<NodeTimer, Arc<NodeView>, Result<(), Refusal>, NodeErrand>;

/// A node's errands at the controller's ports.
#[derive(Clone, Debug, PartialEq)]
pub enum NodeErrand {
    /// Send to the agent on that connection; lost if it is not the current one.
    Send {
        /// Connection.
        conn: u64,
        /// What.
        frame: Box<ControllerToNode>,
    },
    /// Close that connection, if it is open.
    Close {
        /// Connection.
        conn: u64,
    },
    /// Warn operators that the node uses another `slurm.conf` than the controller.
    WarnOfConf {
        /// Hash of the node's.
        theirs: u32,
        /// Hash of the controller's.
        ours: u32,
    },
}

/// A hold that recovery passes to a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptHold {
    /// As shown.
    pub hold: NodeHold,
    /// Most holders of each CPU.
    pub most_holders: u32,
    /// The limits on its partition's CPUs there, if they apply.
    pub caps: CpuCaps,
}
