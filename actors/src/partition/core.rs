//! Decides about one partition: its configured settings, updates over them, and its members.

use super::messages::{PartitionEffect, PartitionInput, PartitionUpdate};
use crate::{
    owner::{Effect, FreshIds, Out, Owner},
    roster::nodes::unfit_partition,
};
use garrick_events::{event::ControllerEvent, records::partition::SavedPartition};
use garrick_model::{
    config::{Config, PartitionConfig},
    ids::NodeIndex,
    refusal::Refusal,
    time::Timestamp,
    view::PartitionView,
};
use std::{convert::Infallible, sync::Arc};

/// The owner of one partition's state.
#[derive(Clone, Debug)]
pub struct PartitionCore {
    name: String,
    saved: SavedPartition,
    generation: u64,
    settings: Arc<PartitionConfig>,
    members: Vec<NodeIndex>,
}

impl PartitionCore {
    /// As configured, with the saved updates. Updates that are no longer valid (a node that is gone) are left out.
    pub fn new(config: &Config, name: &str, mut saved: SavedPartition) -> Option<Self> {
        let configured = config.partition(name)?;
        prune(config, &mut saved);
        let (settings, members) = match applied(config, configured, &saved) {
            Ok(both) => both,
            Err(error) => {
                tracing::warn!(partition = name, %error, "partition.update_dropped");
                let mut plain = configured.clone();
                let members = config.resolve_nodes(&mut plain).unwrap_or_default();
                (plain, members)
            }
        };
        Some(Self { name: name.to_owned(), saved, generation: 1, settings: Arc::new(settings), members })
    }

    /// Name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The view.
    pub fn view(&self) -> PartitionView {
        PartitionView {
            generation: self.generation,
            config: Arc::clone(&self.settings),
            state: self.settings.state,
            nodes: self.members.clone(),
        }
    }

    /// The durable state.
    pub const fn saved(&self) -> &SavedPartition {
        &self.saved
    }

    /// An administrator's `Key=Value` pairs: all are accepted, or none. Returns the state to be saved.
    pub fn update(&mut self, config: &Config, fields: &[(String, String)]) -> Result<SavedPartition, Refusal> {
        let configured = config.partition(&self.name).ok_or_else(|| Refusal::InvalidPartition(self.name.clone()))?;
        let mut saved = self.saved.clone();
        for (key, value) in fields {
            let key = key.to_ascii_lowercase();
            match key.as_str() {
                "shared" => drop(saved.fields.insert("oversubscribe".to_owned(), value.clone())),
                "partitionname" => {}
                "nodes" => {
                    let nodes = config.nodes_after(&self.members, value);
                    saved.fields.insert(key, nodes.map_err(|_| Refusal::InvalidNode(value.clone()))?);
                }
                _ => drop(saved.fields.insert(key, value.clone())),
            }
        }
        let (settings, members) =
            applied(config, configured, &saved).map_err(|error| unfit_partition(config, fields, error))?;
        self.settings = Arc::new(settings);
        self.members = members;
        self.generation += 1;
        self.saved = saved.clone();
        Ok(saved)
    }

    /// The configuration was read again. Updates are dropped as in Slurm, unless `ReconfigFlags` keeps them.
    pub fn reconfigure(&mut self, config: &Config) -> SavedPartition {
        if !config.reconfig_flags.has("KeepPartInfo") {
            let keep_state = config.reconfig_flags.has("KeepPartState");
            self.saved.fields.retain(|key, _| keep_state && key == "state");
        }
        self.apply_again(config);
        self.saved.clone()
    }

    /// Nodes came or went: updates stay, without nodes that are gone. Returns the state to be saved.
    pub fn nodes_changed(&mut self, config: &Config) -> SavedPartition {
        prune(config, &mut self.saved);
        self.apply_again(config);
        self.saved.clone()
    }

    fn changed(&mut self, before: &SavedPartition, out: &mut Vec<PartitionEffect>) {
        if self.saved != *before {
            let (partition, saved) = (self.name.clone(), Box::new(self.saved.clone()));
            out.push(Effect::Save(ControllerEvent::Partition { partition, saved }));
        }
        out.push(Effect::Publish(Arc::new(self.view())));
    }

    fn apply_again(&mut self, config: &Config) {
        if let Some(new) = Self::new(config, &self.name, self.saved.clone()) {
            self.settings = new.settings;
            self.members = new.members;
            self.generation += 1;
        }
    }
}

impl Owner for PartitionCore {
    type Input = PartitionInput;
    type Timer = Infallible;
    type Shown = Arc<PartitionView>;
    type Answer = Result<(), Refusal>;
    type Errand = Infallible;

    fn handle(&mut self, _: Timestamp, _: &mut dyn FreshIds, input: PartitionInput, out: &mut Out<Self>) {
        let before = self.saved.clone();
        match input {
            PartitionInput::Begun => {}
            PartitionInput::Update { request, update: PartitionUpdate { fields, config } } => {
                let answer = self.update(&config, &fields).map(|_| ());
                if answer.is_ok() {
                    tracing::info!(
                        partition = self.name,
                        ?fields,
                        "partition.update: in force until the controller is started again (kept with -R); what is to stay \
                         belongs into slurm.conf"
                    );
                    self.changed(&before, out);
                }
                return out.push(Effect::Answer { request, answer });
            }
            PartitionInput::Configure(config) => {
                self.reconfigure(&config);
            }
            PartitionInput::NodesChanged(config) => {
                self.nodes_changed(&config);
            }
        }
        self.changed(&before, out);
    }

    fn timer(timer: Infallible) -> PartitionInput {
        match timer {}
    }
}

/// Removes nodes that are gone from updates.
fn prune(config: &Config, saved: &mut SavedPartition) {
    if let Some(text) = saved.fields.get_mut("nodes")
        && let Some(left) = config.without_gone(text)
    {
        *text = left;
    }
}

fn applied(
    config: &Config,
    configured: &PartitionConfig,
    saved: &SavedPartition,
) -> Result<(PartitionConfig, Vec<NodeIndex>), garrick_model::config::SettingError> {
    let mut settings = configured.clone();
    for (key, value) in &saved.fields {
        settings.set(key, value)?;
    }
    config.check_alternate(&settings)?;
    let members = config.resolve_nodes(&mut settings)?;
    Ok((settings, members))
}
