//! What a partition's owner accepts.

use garrick_model::refusal::Refusal;
use garrick_runtime::{Message, ReplyTo};

/// Messages of the partition actor, all from the front. All may be delivered twice.
pub enum PartitionMsg {
    /// An administrator's change. The reply leaves when it is on disk.
    Update {
        /// `Key=Value` pairs.
        fields: Vec<(String, String)>,
        /// Answer.
        reply: ReplyTo<Result<(), Refusal>>,
    },
    /// The configuration was read again.
    Configure,
    /// Nodes came or went.
    NodesChanged,
    /// The journal answered.
    Journaled {
        /// Batch.
        batch: u64,
        /// Outcome.
        result: Result<(), String>,
    },
}

impl Message for PartitionMsg {
    fn name(&self) -> &'static str {
        match self {
            Self::Update { .. } => "Update",
            Self::Configure => "Configure",
            Self::NodesChanged => "NodesChanged",
            Self::Journaled { .. } => "Journaled",
        }
    }
}
