//! Changes of partitions, and of which there are.

use super::{
    core::{FrontendCore, Reply, Then, Turn},
    members::RosterAsked,
    messages::Ask,
};
use crate::{
    partition::{core::PartitionCore, messages::PartitionUpdate},
    roster::{core::RosterAsk, nodes::in_use_as_alternate},
};
use garrick_model::{
    config::{Config, PartitionConfig},
    refusal::Refusal,
    view::JobView,
};

/// Is it the default one by these pairs?
fn becomes_default(fields: &[(String, String)]) -> bool {
    let last = fields.iter().rev().find(|(key, _)| key.eq_ignore_ascii_case("Default"));
    last.is_some_and(|(key, value)| {
        let mut read = PartitionConfig::named("");
        read.set(key, value).is_ok() && read.default
    })
}

/// Does the job wait for that partition, or run in it?
fn is_in(job: &JobView, partition: &str) -> bool {
    let of_run = job.allocation.as_ref().map(|allocation| &allocation.partition);
    job.state.is_live() && job.partitions.iter().chain(of_run).any(|name| name == partition)
}

fn check_topology(config: &Config, fields: &[(String, String)]) -> Result<(), Refusal> {
    let unknown = |(key, value): &&(String, String)| {
        key.eq_ignore_ascii_case("Topology") && !value.is_empty() && config.topology(value).is_none()
    };
    match fields.iter().find(unknown) {
        Some(_) => Err(Refusal::InvalidUpdate("Requested topology configuration is not available".to_owned())),
        None => Ok(()),
    }
}

impl FrontendCore {
    /// Changes a partition. Where it becomes the default one, the other ones are not any more.
    pub(super) fn update_partition(
        &mut self,
        turn: &mut Turn<'_>,
        request: u64,
        partition: String,
        fields: Vec<(String, String)>,
    ) -> Reply {
        let config = self.sight.config();
        if config.partition(&partition).is_none() {
            return Err(Refusal::InvalidPartition(partition));
        }
        check_topology(&config, &fields)?;
        let mut asks = Vec::new();
        if becomes_default(&fields) {
            // Others stay what they are if this one refuses.
            let saved = self.sight.committed().partition(&partition);
            if let Some(mut tried) = PartitionCore::new(&config, &partition, saved) {
                tried.update(&config, &fields)?;
            }
            let shown = self.sight.boards().partitions.list();
            let others = shown.iter().filter(|view| view.config.default && view.config.name != partition);
            asks.extend(others.map(|view| {
                let fields = vec![("Default".to_owned(), "NO".to_owned())];
                Ask::Partition(view.config.name.clone(), PartitionUpdate { fields, config: config.clone() })
            }));
        }
        asks.push(Ask::Partition(partition, PartitionUpdate { fields, config }));
        self.ask(turn, request, asks, Then::Changed);
        Ok(None)
    }

    /// Creates a partition. That it is the default one is an update of it, since then others are not.
    pub(super) fn create_partition(
        &mut self,
        turn: &mut Turn<'_>,
        request: u64,
        name: String,
        mut fields: Vec<(String, String)>,
    ) -> Reply {
        check_topology(&self.sight.config(), &fields)?;
        let asked = match becomes_default(&fields) {
            true => RosterAsked::NewDefault(name.clone()),
            false => RosterAsked::Answer,
        };
        fields.retain(|(key, _)| !key.eq_ignore_ascii_case("Default"));
        self.ask_roster(turn, request, RosterAsk::CreatePartition { name, fields }, asked);
        Ok(None)
    }

    /// Deletes a partition that no job waits for or runs in.
    pub(super) fn delete_partition(&mut self, turn: &mut Turn<'_>, request: u64, name: String) -> Reply {
        let used = self.sight.boards().jobs.list().iter().any(|job| is_in(job, &name))
            || self.sight.entering().any(|job| is_in(job, &name));
        if used {
            return Err(Refusal::InvalidUpdate("Partition is in use".to_owned()));
        }
        // Also by an update, of which the list of partitions does not know.
        let shown = self.sight.boards().partitions.list();
        let alternate = shown.iter().find(|view| view.config.alternate.as_deref() == Some(&name));
        if let Some(other) = alternate.filter(|other| other.config.name != name) {
            return Err(in_use_as_alternate(&other.config.name));
        }
        self.ask_roster(turn, request, RosterAsk::DeletePartition(name), RosterAsked::Answer);
        Ok(None)
    }
}
