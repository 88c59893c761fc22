//! What a partition's verbs come to in the controller, and the supervisor of all partitions.

use super::{
    core::PartitionCore,
    messages::{PartitionInput, PartitionMsg, PartitionUpdate},
};
use crate::{
    controller::env::{Env, deliver},
    owner::{
        Out, Owner,
        actor::{Came, OwnerActor, Shell},
    },
};
use garrick_model::{refusal::Refusal, time::Timestamp, view::PartitionView};
use garrick_runtime::{Actor, ChildEvent, ChildSpec, Context, Message, TimerKey};
use std::{collections::BTreeSet, convert::Infallible, sync::Arc, time::Duration};

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

    /// At its place in configuration order; nowhere when the configuration does not have it any more.
    fn publish(&self, (): &mut (), env: &Env, view: Arc<PartitionView>) {
        let place = env.config().partitions.iter().position(|p| p.name == self.name());
        if let Some(place) = place.and_then(|place| u32::try_from(place).ok()) {
            env.boards.partitions.publish(place, view);
        }
    }

    fn forget(&self, _: &Env) {}

    fn try_again(after: Duration) -> Result<(), Refusal> {
        Err(Refusal::RetryAfter { after })
    }

    fn label(&self) -> String {
        format!("partition/{}", self.name())
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
                deliver(cx, &address, PartitionMsg::Input(PartitionInput::Configure(Arc::clone(&config))));
                continue;
            }
            let (env, config) = (Arc::clone(&self.env), Arc::clone(&config));
            cx.start_child(ChildSpec::new(name.clone(), move || {
                let (name, config) = (name.clone(), Arc::clone(&config));
                let make = move |env: &Env| {
                    let newest = env.config();
                    let config = if newest.partition(&name).is_some() { &newest } else { &config };
                    // It is in the one that it was started from.
                    PartitionCore::new(config, &name, env.committed.partition(&name))
                };
                // Another actor may have had it before: in an earlier life of this one, or before it was taken away.
                OwnerActor::new(make, (), Arc::clone(&env)).behind_all_appended(true)
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
                let config = self.env.config();
                for name in &self.names {
                    let path = cx.path().child(name);
                    if let Some(owner) = cx.system().find::<PartitionMsg>(&path) {
                        deliver(cx, &owner, PartitionMsg::Input(PartitionInput::NodesChanged(Arc::clone(&config))));
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
