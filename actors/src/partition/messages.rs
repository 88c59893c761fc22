//! What a partition's owner accepts, and what it causes.

use crate::owner::Effect;
use garrick_model::{config::Config, refusal::Refusal, view::PartitionView};
use std::{convert::Infallible, sync::Arc};

/// An administrator's change, from the frontend. The answer leaves when it is on disk; it may be asked twice.
#[derive(Clone, Debug)]
pub struct PartitionUpdate {
    /// `Key=Value` pairs.
    pub fields: Vec<(String, String)>,
    /// The configuration of now.
    pub config: Arc<Config>,
}

/// What may happen to a partition.
#[derive(Clone, Debug)]
pub enum PartitionInput {
    /// A life begins.
    Begun,
    /// An administrator's change.
    Update {
        /// Request.
        request: u64,
        /// Change.
        update: PartitionUpdate,
    },
    /// The configuration was read again.
    Configure(Arc<Config>),
    /// Nodes came or went.
    NodesChanged(Arc<Config>),
}

/// What a partition causes. It shows its view, has no timers and nothing done at ports.
pub type PartitionEffect = Effect<Infallible, Arc<PartitionView>, Result<(), Refusal>, Infallible>;
