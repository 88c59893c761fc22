//! The partition's actor, and the supervisor of all partitions.

use super::{core::PartitionCore, messages::PartitionMsg, record::SavedPartition};
use crate::controller::{
    env::{Env, deliver, journal_outcome},
    event::ControllerEvent,
    outbox::Outbox,
};
use garrick_model::{refusal::Refusal, view::PartitionView};
use garrick_runtime::{Actor, ChildEvent, ChildSpec, Context, Message, ReplyTo};
use std::{collections::BTreeSet, sync::Arc};

enum Effect {
    Publish(Arc<PartitionView>),
    Answer(ReplyTo<Result<(), Refusal>>, Result<(), Refusal>),
}

/// The actor of one partition.
pub struct PartitionActor {
    name: String,
    core: PartitionCore,
    env: Arc<Env>,
    outbox: Outbox<Effect>,
}

impl PartitionActor {
    fn save(&mut self, cx: &mut Context<Self>, saved: SavedPartition, effects: Vec<Effect>) {
        let batch = self.outbox.push_unsaved(effects);
        self.env.partitions.put(&self.name, saved.clone());
        let event = ControllerEvent::Partition { partition: self.name.clone(), saved: Box::new(saved) };
        let done = self.env.append(vec![event]);
        cx.pipe(done, move |answer| PartitionMsg::Journaled { batch, result: journal_outcome(answer) });
    }

    /// Place in configuration order; gone when the configuration does not have it any more.
    fn place(&self) -> Option<u32> {
        let place = self.env.config().partitions.iter().position(|p| p.name == self.name);
        place.and_then(|p| u32::try_from(p).ok())
    }

    fn flush(&mut self) {
        while let Some(effects) = self.outbox.take_ready() {
            for effect in effects {
                match effect {
                    Effect::Publish(view) => {
                        if let Some(place) = self.place() {
                            self.env.boards.partitions.publish(place, view);
                        }
                    }
                    Effect::Answer(reply, result) => reply.reply(result),
                }
            }
        }
    }
}

impl Actor for PartitionActor {
    type Msg = PartitionMsg;

    fn started(&mut self, _: &mut Context<Self>) {
        self.outbox.push(vec![Effect::Publish(Arc::new(self.core.view()))]);
        self.flush();
    }

    fn handle(&mut self, cx: &mut Context<Self>, message: PartitionMsg) {
        match message {
            PartitionMsg::Update { fields, reply } => match self.core.update(&self.env.config(), &fields) {
                Ok(saved) => {
                    tracing::info!(
                        partition = self.name,
                        ?fields,
                        "partition.update: in force until the controller is started again (kept with -R); what is to stay \
                         belongs into slurm.conf"
                    );
                    let view = Arc::new(self.core.view());
                    self.save(cx, saved, vec![Effect::Publish(view), Effect::Answer(reply, Ok(()))]);
                }
                Err(refusal) => self.outbox.push(vec![Effect::Answer(reply, Err(refusal))]),
            },
            PartitionMsg::Configure | PartitionMsg::NodesChanged => {
                let config = self.env.config();
                let before = self.core.saved().clone();
                let saved = match message {
                    PartitionMsg::NodesChanged => self.core.nodes_changed(&config),
                    _ => self.core.reconfigure(&config),
                };
                let show = vec![Effect::Publish(Arc::new(self.core.view()))];
                if saved == before {
                    self.outbox.push(show);
                } else {
                    self.save(cx, saved, show);
                }
            }
            PartitionMsg::Journaled { batch, result } => match result {
                Ok(()) => self.outbox.saved(batch),
                Err(error) => {
                    tracing::error!(partition = self.name, error, "partition.not_saved");
                    self.outbox.lost(batch);
                }
            },
        }
        self.flush();
    }
}

/// Messages of the supervisor of partitions, all from the front.
pub enum PartitionsMsg {
    /// The configuration was read again.
    Configure,
    /// Nodes came or went.
    NodesChanged,
}

impl Message for PartitionsMsg {
    fn name(&self) -> &'static str {
        match self {
            Self::Configure => "Configure",
            Self::NodesChanged => "NodesChanged",
        }
    }
}

/// The supervisor of partitions, at `/partition`.
pub struct PartitionsSupervisor {
    env: Arc<Env>,
    /// Partitions that run.
    names: BTreeSet<String>,
}

impl PartitionsSupervisor {
    /// A supervisor.
    pub const fn new(env: Arc<Env>) -> Self {
        Self { env, names: BTreeSet::new() }
    }

    fn configure(&mut self, cx: &mut Context<Self>) {
        let config = self.env.config();
        let old = std::mem::take(&mut self.names);
        // Places may move: what is behind the end of the new list must not stay shown.
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        for place in count(config.partitions.len())..count(old.len()) {
            self.env.boards.partitions.remove(&place);
        }
        for partition in &config.partitions {
            let name = partition.name.clone();
            self.names.insert(name.clone());
            let path = cx.path().child(&name);
            if let Some(address) = old.contains(&name).then(|| cx.system().find::<PartitionMsg>(&path)).flatten() {
                deliver(cx, &address, PartitionMsg::Configure);
                continue;
            }
            let (env, config) = (Arc::clone(&self.env), Arc::clone(&config));
            cx.start_child(ChildSpec::new(name.clone(), move || {
                let newest = env.config();
                let config = if newest.partition(&name).is_some() { &newest } else { &config };
                let core = PartitionCore::new(config, &name, env.partitions.get(&name))
                    .expect("the partition is in the configuration that it was started from");
                PartitionActor { name: name.clone(), core, env: Arc::clone(&env), outbox: Outbox::default() }
            }));
        }
        for name in old.difference(&self.names) {
            let path = cx.path().child(name);
            cx.stop_child(&path);
        }
    }
}

impl Actor for PartitionsSupervisor {
    type Msg = PartitionsMsg;

    fn started(&mut self, cx: &mut Context<Self>) {
        self.configure(cx);
    }

    fn handle(&mut self, cx: &mut Context<Self>, message: PartitionsMsg) {
        match message {
            PartitionsMsg::Configure => self.configure(cx),
            PartitionsMsg::NodesChanged => {
                for name in &self.names {
                    let path = cx.path().child(name);
                    if let Some(owner) = cx.system().find::<PartitionMsg>(&path) {
                        deliver(cx, &owner, PartitionMsg::NodesChanged);
                    }
                }
            }
        }
    }

    fn child_event(&mut self, _: &mut Context<Self>, event: ChildEvent) {
        match event {
            ChildEvent::Restarted { path, panic, restarts } => {
                tracing::error!(%path, panic, restarts, "partition.actor_restarted");
            }
            ChildEvent::Stopped { path } => tracing::debug!(%path, "partition.actor_stopped"),
            ChildEvent::GaveUp { path, reason } => tracing::error!(%path, reason, "partition.actor_gave_up"),
        }
    }
}
