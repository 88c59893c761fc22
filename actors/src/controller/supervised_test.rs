//! Which owners live after the configuration was read again, and after they failed too often.
#![allow(clippy::unwrap_used)]

use super::{
    fixtures::{MemoryJournal, Rig, TWO_NODES, config_of, with_system},
    messages::ControllerMsg,
    shells::partition::{PartitionMsg, PartitionsMsg},
};
use garrick_model::{
    messages::command::{CommandReply, CommandRequest},
    state::PartitionState,
};
use garrick_runtime::{ActorPath, ReplyTo};

fn two_partitions() -> String {
    format!("{TWO_NODES}PartitionName=extra Nodes=n0\n")
}

/// Until an owner does it.
async fn set(rig: &Rig, partition: &str, state: &str) {
    let fields = vec![("State".to_owned(), state.to_owned())];
    let update = CommandRequest::UpdatePartition { partition: partition.to_owned(), fields };
    while rig.ask(0, update.clone()).await != CommandReply::Done {
        tokio::task::yield_now().await;
    }
}

async fn shows(rig: &Rig, wanted: &[(&str, PartitionState)]) {
    let board = &rig.controller.env.boards.partitions;
    loop {
        let generation = board.generation();
        let shown = board.list();
        if shown.iter().map(|view| (view.config.name.as_str(), view.state)).eq(wanted.iter().copied()) {
            return;
        }
        board.changed(generation).await;
    }
}

/// The second owner begins when the first has ended.
#[test]
fn a_partition_that_goes_and_comes_back_has_one_owner() {
    with_system(async |system| {
        let rig = Rig::start(&system, &two_partitions(), MemoryJournal::default());
        let (up, down) = (PartitionState::Up, PartitionState::Down);
        set(&rig, "extra", "DOWN").await;
        shows(&rig, &[("debug", up), ("extra", down)]).await;
        let read = |conf: &str| {
            let news = ControllerMsg::config_changed(config_of(conf), None);
            rig.frontend().try_send(news).unwrap();
        };
        read(TWO_NODES);
        read(&two_partitions());
        set(&rig, "extra", "DRAIN").await;
        shows(&rig, &[("debug", up), ("extra", PartitionState::Drain)]).await;
        read(TWO_NODES);
        shows(&rig, &[("debug", up)]).await;
        let path = ActorPath::root().child("partition").child("extra");
        while system.find::<PartitionMsg>(&path).is_some() {
            tokio::task::yield_now().await;
        }
    });
}

#[test]
fn an_owner_of_a_partition_that_failed_too_often_is_tried_again() {
    with_system(async |system| {
        let rig = Rig::start(&system, TWO_NODES, MemoryJournal::default());
        let path = ActorPath::root().child("partition").child("debug");
        set(&rig, "debug", "DOWN").await;
        while let Some(owner) = system.find::<PartitionMsg>(&path) {
            let (reply, fails) = ReplyTo::channel();
            let _ = owner.try_send(PartitionMsg::PanicForTests(reply));
            assert!(fails.await.is_err());
        }
        let supervisor = rig.controller.env.partitions_supervisor().unwrap();
        supervisor.try_send(PartitionsMsg::Again("debug".to_owned())).unwrap();
        set(&rig, "debug", "DOWN").await;
        shows(&rig, &[("debug", PartitionState::Down)]).await;
    });
}
