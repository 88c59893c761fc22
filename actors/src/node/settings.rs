//! A node's settings, from the configuration.

use crate::messages::node::{InitialState, NodeSettings};
use garrick_model::config::{ConfiguredState, NodeConfig};

/// A node's settings, from the configuration.
pub fn node_settings(node: &NodeConfig) -> NodeSettings {
    NodeSettings {
        name: node.name.clone(),
        index: node.index,
        shape: node.settings.shape.clone(),
        features: node.settings.features.clone(),
        weight: node.settings.weight,
        address: node.address.clone(),
        hostname: node.hostname.clone(),
        port: node.port,
        initial: match node.initial.state {
            // A cloud node exists when it registers.
            ConfiguredState::Unknown | ConfiguredState::Cloud => InitialState::Unknown,
            ConfiguredState::Down => InitialState::Down,
            ConfiguredState::Drain => InitialState::Drain,
            ConfiguredState::Fail => InitialState::Fail,
            ConfiguredState::Future => InitialState::Future,
        },
        initial_reason: node.initial.reason.clone(),
        cloud: node.initial.state == ConfiguredState::Cloud,
        dynamic: node.dynamic,
        neighbours: Vec::new(),
    }
}
