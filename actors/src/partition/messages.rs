//! Inputs and effects of a partition's owner.

use crate::owner::Effect;
use garrick_model::{config::Config, refusal::Refusal, view::PartitionView};
use std::{convert::Infallible, sync::Arc};

/// An administrator's change, from the frontend. The answer is sent when it is on disk; it may be asked twice.
#[derive(Clone, Debug)]
pub struct PartitionUpdate {
    /// `Key=Value` pairs.
    pub fields: Vec<(String, String)>,
    /// The current configuration.
    pub config: Arc<Config>,
}

/// Inputs of a partition.
#[derive(Clone, Debug)]
pub enum PartitionInput {
    /// The actor's life begins.
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

/// An effect of a partition. It publishes its view, and has no timers and no errands.
pub type PartitionEffect = Effect<Infallible, Arc<PartitionView>, Result<(), Refusal>, Infallible>;
