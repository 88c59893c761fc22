//! Partitions as their owners publish them, and administrators who change their state.

use super::{
    disk::Writer,
    lives::{Life, Saved},
    roster::TOLD,
    world::{Happening, Place, World},
};
use garrick_actors::{
    messages::letter::Letter,
    owner::{Owner, Stage, Turn, outbox::Outbox, perform},
    partition::{
        core::PartitionCore,
        messages::{PartitionInput, PartitionUpdate},
    },
};
use garrick_events::records::job::Run;
use garrick_model::{ids::JobId, refusal::Refusal, state::PartitionState, time::Timestamp, view::PartitionView};
use std::{convert::Infallible, sync::Arc};

/// What a partition's verbs come to in the world.
struct PartitionStage<'w>(&'w mut World, usize);

impl Stage<PartitionCore> for PartitionStage<'_> {
    fn tell(&mut self, letter: Letter) {
        self.0.post(Place::Partition(self.1), letter);
    }

    fn run(&mut self, errand: Infallible) {
        match errand {}
    }

    fn set_timer(&mut self, timer: Infallible, _: Timestamp) {
        match timer {}
    }

    fn clear_timer(&mut self, timer: Infallible) {
        match timer {}
    }

    fn publish(&mut self, view: Arc<PartitionView>) {
        self.0.partitions[self.1] = view;
        self.0.fit.clear();
        self.0.is_shown(|seen| &mut seen.partitions);
    }

    fn answer(&mut self, _: u64, answer: Result<(), Refusal>) {
        let what = if answer.is_ok() { "partition changed" } else { "change of a partition refused" };
        self.0.ledger.counts.add(what);
    }

    fn stop(&mut self) {}
}

impl World {
    /// Their owners begin with what is saved over the configuration.
    pub(super) fn start_partitions(&mut self) {
        let names = self.config.partitions.iter().map(|p| p.name.as_str());
        self.partition_cores = names.filter_map(|name| self.partition_core(name)).collect();
        self.partitions = self.partition_cores.iter().map(|core| Arc::new(core.view())).collect();
        self.outboxes.partitions = self.partition_cores.iter().map(|_| Outbox::default()).collect();
        self.lives.partitions = self.partition_cores.iter().map(|_| Life::default()).collect();
        self.is_shown(|seen| &mut seen.partitions);
    }

    pub(super) fn partition_core(&self, name: &str) -> Option<PartitionCore> {
        let saved = self.replayed.partitions.get(name).cloned().unwrap_or_default();
        PartitionCore::new(&self.config, name, saved)
    }

    pub(super) fn tell_partition(&mut self, partition: usize, input: PartitionInput) {
        let Some(input) = self.lives.partitions[partition].wait(input) else { return };
        if self.fails_over_it(20) {
            return self.partition_fails(partition);
        }
        self.partition_turn(partition, input);
    }

    fn partition_turn(&mut self, partition: usize, input: PartitionInput) {
        let (mut out, clock) = (Vec::new(), self.clock());
        Owner::handle(&mut self.partition_cores[partition], clock, &mut self.ids, input, &mut out);
        if let Some((batch, events)) = Turn::<PartitionCore>::of(out).queue(&mut self.outboxes.partitions[partition]) {
            let batch = self.lives.partitions[partition].number_of(batch);
            self.append(Writer::Partition(partition), batch, events);
        }
        self.flush_partition(partition);
    }

    /// Its owner panics over what it is told. Another begins once all that this one appended is committed.
    fn partition_fails(&mut self, partition: usize) {
        self.meets_all("owner of a partition failed");
        self.outboxes.partitions[partition] = Outbox::default();
        let batch = self.lives.partitions[partition].fail();
        self.append(Writer::Partition(partition), batch, Vec::new());
    }

    pub(super) fn partition_is_saved(&mut self, partition: usize, batch: u64) {
        match self.lives.partitions[partition].saved(batch) {
            Saved::All => {
                let name = self.partition_cores[partition].name().to_owned();
                self.partition_cores[partition] =
                    self.partition_core(&name).expect("partitions stay in the configuration");
                self.partition_turn(partition, PartitionInput::Begun);
                while let Some(early) = self.lives.partitions[partition].next_early() {
                    self.tell_partition(partition, early);
                }
            }
            Saved::Batch(batch) => {
                self.outboxes.partitions[partition].saved(batch);
                self.flush_partition(partition);
            }
            Saved::OfEarlierLife => {}
        }
    }

    fn flush_partition(&mut self, partition: usize) {
        while let Some(effects) = self.outboxes.partitions[partition].take_ready() {
            perform(effects, &mut PartitionStage(self, partition));
        }
    }

    /// For seconds or minutes a partition starts nothing, or takes no new jobs.
    pub(super) fn change_some_partition(&mut self) {
        let last = u32::try_from(self.partitions.len() - 1).unwrap_or(0);
        let partition = self.random.between(0, last) as usize;
        let state = self.random.pick(&["DOWN", "DOWN", "DRAIN", "INACTIVE"]).copied().unwrap_or("DOWN");
        self.set_partition(partition, state);
        let pause = self.random.between(20_000, 120_000);
        self.after(u64::from(pause), Happening::PartitionUp(partition));
    }

    pub(super) fn set_partition(&mut self, partition: usize, state: &str) {
        self.requests += 1;
        let fields = vec![("State".to_owned(), state.to_owned())];
        let update = PartitionUpdate { fields, config: Arc::clone(&self.config) };
        let input = PartitionInput::Update { request: self.requests, update };
        self.send(Place::Frontend, Happening::Partition(partition, input));
    }

    /// A run is given nodes: of its partition, and for no longer than that allows, where that has been shown for some time.
    pub(super) fn against_partition(&mut self, job: JobId, run: &Run) {
        if self.now.since(self.members.told) < TOLD {
            return;
        }
        let Some(partition) = self.partitions.iter().find(|p| p.config.name == run.allocation.partition) else {
            return;
        };
        let most = partition.config.max_time.duration();
        let longer = most.is_some_and(|most| run.time_limit.duration().is_none_or(|limit| limit > most));
        let other = run.allocation.nodes.iter().find(|node| !partition.nodes.contains(&node.index));
        if longer || other.is_some() {
            let what = format!(
                "job {} begins in {} for {:?}, which allows {:?}, with {:?}, which is not there",
                job.0,
                run.allocation.partition,
                run.time_limit,
                partition.config.max_time,
                other.map(|node| &node.name)
            );
            self.broken = Some(("no_job_starts_beyond_what_its_partition_allows", what));
        }
    }

    /// After the faults all of them serve.
    pub(super) fn raise_partitions(&mut self) {
        for partition in 0..self.partitions.len() {
            if self.partitions[partition].state != PartitionState::Up {
                self.set_partition(partition, "UP");
            }
        }
    }
}
