//! How a partition's effects are carried out in the controller, and how partitions' owners are supervised.

use super::{
    actor::{Came, OwnerMsg, Shell},
    env::Env,
    supervisor::{Kind, SupervisorMsg},
};
use crate::{
    owner::{Out, Owner},
    partition::{
        core::PartitionCore,
        messages::{PartitionInput, PartitionUpdate},
    },
};
use garrick_model::{
    config::{Config, PartitionConfig},
    refusal::Refusal,
    time::Timestamp,
    view::PartitionView,
};
use garrick_runtime::TimerKey;
use std::{convert::Infallible, sync::Arc, time::Duration};

/// Administrators and readers of the configuration write here.
const PARTITION_MAILBOX: usize = 1_024;

/// Messages of the partition actor.
pub type PartitionMsg = OwnerMsg<PartitionCore>;

impl Shell for PartitionCore {
    type Ask = PartitionUpdate;
    type Gift = Infallible;
    type Hands = ();

    fn name(input: &PartitionInput) -> &'static str {
        match input {
            PartitionInput::Begun => "Begun",
            PartitionInput::Update { .. } => "Update",
            PartitionInput::Configure(_) => "Configure",
            PartitionInput::NodesChanged(_) => "NodesChanged",
        }
    }

    fn ask_name(_: &PartitionUpdate) -> &'static str {
        "Update"
    }

    fn key(timer: Infallible) -> TimerKey {
        match timer {}
    }

    fn asked(request: u64, update: PartitionUpdate) -> PartitionInput {
        PartitionInput::Update { request, update }
    }

    fn begin(&mut self, (): &mut (), env: &Env, now: Timestamp, out: &mut Out<Self>) {
        self.handle(now, &mut env.ids.clone(), PartitionInput::Begun, out);
    }

    fn hand(&self, (): &mut (), gift: Infallible) {
        match gift {}
    }

    fn run(&self, (): &mut (), _: &Env, errand: Infallible) -> Came<PartitionInput> {
        match errand {}
    }

    /// At its position in the configuration; nowhere if it is no longer configured.
    fn publish(&self, (): &mut (), env: &Env, view: Arc<PartitionView>) {
        let place = env.config().partitions.iter().position(|p| p.name == self.name());
        if let Some(place) = place.and_then(|place| u32::try_from(place).ok()) {
            env.boards.partitions.publish(place, view);
        }
    }

    fn try_again(after: Duration) -> Result<(), Refusal> {
        Err(Refusal::RetryAfter { after })
    }

    fn label(&self) -> String {
        format!("partition/{}", self.name())
    }
}

/// Messages of the supervisor of partitions, at `/partition`. A start message has what is new for the owner.
pub type PartitionsMsg = SupervisorMsg<Partitions>;

/// The configuration was read again, or nodes or partitions came or went.
pub fn configured(config: &Arc<Config>, read_again: bool) -> PartitionsMsg {
    let seed = |partition: &PartitionConfig| {
        let config = Arc::clone(config);
        let news = if read_again { PartitionInput::Configure(config) } else { PartitionInput::NodesChanged(config) };
        (partition.name.clone(), news)
    };
    SupervisorMsg::Only(config.partitions.iter().map(seed).collect())
}

/// Owners of partitions.
pub struct Partitions;

impl Kind for Partitions {
    type Owner = PartitionCore;
    type Key = String;
    type Seed = PartitionInput;

    const NAME: &'static str = "partition";
    const MAILBOX: usize = PARTITION_MAILBOX;

    fn all(env: &Env) -> Vec<String> {
        env.config().partitions.iter().map(|partition| partition.name.clone()).collect()
    }

    fn is_there(env: &Env, partition: &String) -> bool {
        env.config().partition(partition).is_some()
    }

    fn make(env: &Env, partition: &String) -> Option<PartitionCore> {
        PartitionCore::new(&env.config(), partition, env.committed.partition(partition))
    }

    /// In an earlier life of the supervisor, or before it was removed.
    fn had_another(_: &Env, _: &String) -> bool {
        true
    }

    fn begin(_: &Env, _: &String, news: PartitionInput, lives: bool) -> Option<PartitionInput> {
        lives.then_some(news)
    }

    fn forget(_: &Env, _: &String) {}
}

/// Publishes partitions from a configuration before anyone asks; their owners replace the views. If the configuration was read
/// `again`, updates that do not survive that are dropped.
pub(crate) fn show_partitions(env: &Env, config: &Config, again: bool) {
    let board = &env.boards.partitions;
    for (partition, place) in config.partitions.iter().zip(0..) {
        if let Some(mut core) = PartitionCore::new(config, &partition.name, env.committed.partition(&partition.name)) {
            if again {
                core.reconfigure(config);
            }
            board.publish(place, Arc::new(core.view()));
        }
    }
    for (place, _) in board.entries() {
        if place as usize >= config.partitions.len() {
            board.remove(&place);
        }
    }
}
