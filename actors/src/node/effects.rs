//! What a node causes, and what it begins with.

use crate::{messages::node::NodeTimer, owner::Effect};
use garrick_model::{
    messages::node::ControllerToNode,
    refusal::Refusal,
    view::{NodeHold, NodeView},
};
use garrick_plan::snapshot::caps::CpuCaps;
use std::sync::Arc;

/// What a node causes. It shows its view.
pub type NodeEffect = Effect<NodeTimer, Arc<NodeView>, Result<(), Refusal>, NodeErrand>;

/// What a node has done at the controller's ports.
#[derive(Clone, Debug, PartialEq)]
pub enum NodeErrand {
    /// Send to the agent on that link; lost when there is another one by now, or none.
    Send {
        /// Link.
        conn: u64,
        /// What.
        frame: Box<ControllerToNode>,
    },
    /// Close that link, if it is open.
    Close {
        /// Link.
        conn: u64,
    },
    /// Tell operators that the node goes by another `slurm.conf` than the controller.
    WarnOfConf {
        /// Hash of the node's.
        theirs: u32,
        /// Hash of the controller's.
        ours: u32,
    },
}

/// A hold, as recovery hands it to a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptHold {
    /// As shown.
    pub hold: NodeHold,
    /// Most holders of each CPU.
    pub most_holders: u32,
    /// Most CPUs of its partition there, where others of it count.
    pub caps: CpuCaps,
}
