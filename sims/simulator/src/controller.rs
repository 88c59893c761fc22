//! The controller around its cores: carries out effects as its shells do, but through the queue of events.

use super::{
    disk::{Append, Writer},
    ledger::Ledger,
    lives::Lives,
    mutation::Mutation,
    roster::machine_of,
    world::{Happening, Place, World},
};
use garrick_actors::{
    controller::{setup, shells::sites::job_site},
    job::{
        core::{JobCore, Leftover},
        effects::{JobEffect, JobErrand, JobShown},
    },
    license::account::LicenseAccount,
    messages::{
        job::{Authority, JobAnswer, JobCommand, JobInput, JobTimer},
        letter::Letter,
        node::{NodeInput, NodeSettings, NodeSite, NodeTimer, ReturnToService},
    },
    node::{
        core::NodeCore,
        effects::{KeptHold, NodeEffect, NodeErrand},
    },
    owner::{Stage, Turn, outbox::Outbox, perform},
    partition::messages::PartitionEffect,
    reservation::owner::ReservationEffect,
    submission::{
        admission::{Change, Rules, Submitter},
        users::User,
    },
};
use garrick_events::{
    event::{ControllerEvent, Replayed},
    records::{
        job::{JobRecord, Phase, waits_for},
        node::SavedNode,
    },
};
use garrick_model::{
    ids::{JobId, Sluid},
    messages::{
        command::{Caller, JobChange},
        node::{AgentReport, JobCredential, SignedCredential},
    },
    refusal::Refusal,
    time::Timestamp,
    view::NodeView,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// What waits for the disk.
#[derive(Debug, Default)]
pub(super) struct Outboxes {
    pub(super) jobs: BTreeMap<JobId, Outbox<JobEffect>>,
    pub(super) nodes: Vec<Outbox<NodeEffect>>,
    pub(super) reservations: Outbox<ReservationEffect>,
    pub(super) partitions: Vec<Outbox<PartitionEffect>>,
}

impl World {
    /// Starts (again) from what was replayed.
    pub(super) fn start_controller(&mut self, replayed: Replayed) {
        self.epoch = replayed.epoch + 1;
        self.ids.resume(replayed.last_job, replayed.last_sluid, replayed.submissions);
        self.shown_jobs.clear();
        self.lives = Lives { nodes: vec![0; self.machines.len()], ..Lives::default() };
        self.unheard.clear();
        self.jobs.clear();
        self.nodes.clear();
        self.outboxes =
            Outboxes { nodes: self.machines.iter().map(|_| Outbox::default()).collect(), ..Default::default() };
        // On disk before anybody is served.
        let mut first = vec![ControllerEvent::Started { epoch: self.epoch }];
        for (name, saved) in
            replayed.reservations.iter().filter(|(name, _)| !self.replayed.reservations.contains_key(*name))
        {
            first.push(ControllerEvent::Reservation {
                reservation: name.clone(),
                saved: Some(Box::new(saved.clone())),
                at: None,
            });
        }
        self.append(Writer::Start, 0, first);
        for append in self.disk.write_all() {
            self.is_on_disk(&append);
        }
        self.start_roster();
        (self.shown_nodes, self.earlier_nodes) = Default::default();
        self.node_site = Arc::new(NodeSite {
            silence: Some(Duration::from_secs(u64::from(self.config.slurmd_timeout_secs))),
            return_to_service: ReturnToService::IfSilent,
            epoch: self.epoch,
            ..NodeSite::default()
        });
        let mut holds = setup::holds_by_node(&self.config, replayed.jobs.values());
        self.held_at_drain.fill(None);
        for node in Arc::clone(&self.config).nodes.iter() {
            let Some(number) = machine_of(&node.name) else { continue };
            let holds = holds.remove(&node.name).unwrap_or_default();
            let saved = replayed.nodes.get(&node.name).cloned();
            self.start_node(number, self.members.shown.settings(node), saved, holds);
        }
        self.start_partitions();
        self.start_reservations();
        self.licenses = LicenseAccount::default();
        self.licenses.configure(&self.config.licenses, &self.config.hres);
        for record in replayed.jobs.into_values() {
            if let Some(licenses) = record.licenses() {
                self.licenses.restore(record.id, licenses.clone());
            }
            self.start_job(record);
        }
        self.start_scheduler();
        self.start_submissions();
    }

    /// A node's owner begins.
    pub(super) fn start_node(
        &mut self,
        node: usize,
        settings: NodeSettings,
        saved: Option<SavedNode>,
        holds: Vec<KeptHold>,
    ) {
        let (site, clock, shape) = (Arc::clone(&self.node_site), self.clock(), settings.shape.clone());
        let mut core = NodeCore::new(clock, self.as_owner_has(settings), site, saved, holds);
        let mut out = Vec::new();
        core.resume(clock, &mut out);
        let drained = core.saved().is_held_back();
        self.nodes.insert(node, core);
        self.note_shape(node, Some(shape));
        self.held_at_drain[node] = drained.then(|| self.holds_of(node));
        self.node_effects(node, out);
    }

    pub(super) fn holds_of(&self, node: usize) -> BTreeSet<(JobId, Sluid)> {
        let kept = self.nodes.get(&node).map(NodeCore::kept).unwrap_or_default();
        kept.iter().map(|k| (k.hold.job, k.hold.sluid)).collect()
    }

    /// The controller dies and starts again from what the disk has, which is compacted now and then.
    pub(super) fn restart_controller(&mut self) {
        self.meets_all("controller restart");
        self.lose_controller_messages();
        for node in 0..self.machines.len() {
            self.break_link(node);
        }
        // The links broke with the controller: its next life does not hear of it.
        self.lose_controller_messages();
        let (replayed, came_through) = match self.read_disk() {
            Ok(read) => read,
            Err(what) => return self.broken = Some(("the_journal_can_be_read_after_every_crash", what)),
        };
        let shortened = self.random.one_in_thousand(500);
        if shortened {
            self.disk.replace(&replayed.clone().into_events().collect::<Vec<_>>());
        }
        self.accountant_again(&came_through, &replayed.progress, shortened);
        self.replayed = replayed.clone();
        self.note_leaders_again();
        self.start_controller(replayed);
        self.touched.all = true;
    }

    /// What it comes to, and what came through of what was being written.
    fn read_disk(&mut self) -> Result<(Replayed, Vec<ControllerEvent>), String> {
        if self.has(Mutation::JournalsAreDamaged) {
            self.disk.damage(&mut self.random);
        }
        let left = self.disk.crash(&mut self.random).map_err(|error| error.to_string())?;
        if left.torn_bytes > 0 {
            self.ledger.counts.add("torn write");
        }
        let mut replayed = Replayed::default();
        for event in &left.events {
            replayed.apply(event).map_err(|error| error.to_string())?;
        }
        // What was not on its way to the disk never was; what was and came through is to be kept from now on.
        let survived = left.events.get(left.certain..).unwrap_or_default();
        survived.iter().for_each(|event| self.saved.note(event));
        for event in survived {
            if let ControllerEvent::DynamicNode { node, saved, .. } = event {
                self.members.is_on_disk(node, saved.is_some());
            }
        }
        let counts = std::mem::take(&mut self.ledger.counts);
        let lost = self.ledger.runs.len() + self.ledger.jobs.len() - self.saved.runs.len() - self.saved.jobs.len();
        self.ledger = Ledger { counts, ..self.saved.clone() };
        if lost > 0 {
            self.ledger.counts.add("loss of what was not saved");
        }
        Ok((replayed, survived.to_vec()))
    }

    /// Saves events together; the owner is told when they are on disk.
    pub(super) fn append(&mut self, owner: Writer, batch: u64, events: Vec<ControllerEvent>) {
        events.iter().for_each(|event| self.record(event));
        self.disk.append(owner, batch, events);
        self.write();
    }

    fn write(&mut self) {
        if self.disk.begin_write() {
            let slow =
                !self.is_calm() && (self.slow_until > self.now || self.random.one_in_thousand(self.mix.slow_writes));
            let took = self.random.between(1, if slow { 5_000 } else { 8 });
            self.after(u64::from(took), Happening::Written);
        }
    }

    /// A write is over: what waited for it may happen.
    pub(super) fn written(&mut self) {
        for append in self.disk.written() {
            self.is_on_disk(&append);
            match append.owner {
                Writer::Start => {}
                Writer::Frontend(id) => self.submission_is_on_disk(id, append.batch, append.events),
                owner => self.send(Place::Disk, Happening::Saved(owner, append.batch)),
            }
        }
        self.accountant_turn();
        self.write();
    }

    fn is_on_disk(&mut self, append: &Append) {
        append.events.iter().for_each(|event| self.saved.note(event));
        for event in &append.events {
            if let ControllerEvent::DynamicNode { node, saved, .. } = event {
                self.members.is_on_disk(node, saved.is_some());
            }
        }
        if let Some(followed) = self.disk.followed() {
            followed.committed(&append.events);
            self.accountant.note(&append.events);
        }
    }

    /// The owner hears of it.
    pub(super) fn is_saved(&mut self, owner: Writer, batch: u64) {
        match owner {
            Writer::Job(job) => {
                let life = self.lives.jobs.get(&job).copied().unwrap_or(0);
                if let Some(outbox) = self.outboxes.jobs.get_mut(&job).filter(|_| batch >> 32 == life) {
                    outbox.saved(batch & u64::from(u32::MAX));
                }
                self.flush_job(job);
            }
            Writer::Node(node) => {
                if batch >> 32 == self.lives.nodes[node] {
                    self.outboxes.nodes[node].saved(batch & u64::from(u32::MAX));
                }
                self.flush_node(node);
            }
            Writer::Reservations => self.reservations_are_saved(batch),
            Writer::Partition(partition) => self.partition_is_saved(partition, batch),
            Writer::Roster => self.roster_is_saved(batch),
            Writer::Frontend(_) | Writer::Start => {}
        }
    }

    /// A change as the controller's frontend passes it on.
    pub(super) fn judged(&mut self, by: Authority, job: JobId, change: JobChange) -> Result<JobCommand, Refusal> {
        match self.jobs.get(&job).map(|core| core.record().clone()) {
            Some(record) if matches!(record.phase, Phase::Pending) && record.may_act(by.uid, by.admin) => {
                let asked = Change { record: &record, change: &change, by };
                let revised = self.with_rules(record.owner.uid, |rules, owner| rules.revise(owner, asked));
                Ok(JobCommand::Revise(Box::new(revised?)))
            }
            _ => Ok(JobCommand::Update(Box::new(change))),
        }
    }

    pub(super) fn with_rules<T>(&mut self, uid: u32, judge: impl FnOnce(&mut Rules<'_>, &Submitter<'_>) -> T) -> T {
        let name = format!("user{uid}");
        let user = User { uid, name: name.clone(), gid: uid, groups: vec![(uid, name.clone())] };
        let caller = Caller { uid, gid: uid, pid: 1, host: "login".to_owned() };
        let submitter = Submitter { caller: &caller, user: Some(user), group: Some(name), admin: false };
        let jobs = &self.jobs;
        let known_job = |job: JobId, task: Option<u32>| jobs.contains_key(&job) && task.is_none();
        let (clock, accounting) = (self.clock(), self.accounting());
        let mut rules = Rules {
            accounting: &accounting,
            config: &self.config,
            partitions: &self.partitions,
            feasibility: &mut self.feasibility,
            priority: self.scheduler.rules.as_deref(),
            known_job: &known_job,
            reservation: &|_| None,
            licenses: &|name| self.config.licenses.count(name),
            now: clock,
        };
        judge(&mut rules, &submitter)
    }

    pub(super) fn start_job(&mut self, record: JobRecord) {
        if !self.jobs.contains_key(&record.id) {
            self.resume_job(record, Leftover::default());
        }
    }

    fn resume_job(&mut self, record: JobRecord, leftover: Leftover) {
        let job = record.id;
        let site = Arc::new(job_site(&self.config, self.epoch));
        let mut core = JobCore::new(record, site);
        let (mut out, clock) = (Vec::new(), self.clock());
        core.resume(clock, &mut self.ids, leftover, &mut out);
        self.touched.jobs.insert(job);
        self.jobs.insert(job, core);
        self.job_effects(job, out);
    }

    pub(super) fn tell_job(&mut self, job: JobId, input: JobInput) {
        self.touched.jobs.insert(job);
        if let Some((node, seq)) = self.is_its_own_to_tell(job, &input) {
            return self.to_node(job, &node, NodeInput::ReportSafe { seq });
        }
        let judged = self.judge(job, &input);
        let mutated = if self.mutation.is_some() { self.as_job_hears(job, input) } else { Some(input) };
        let Some(input) = mutated else { return };
        let clock = self.clock();
        if self.jobs.contains_key(&job) && self.fails_over_it(1) {
            return self.owner_fails(job);
        }
        let Some(core) = self.jobs.get_mut(&job) else {
            // An event on its way to the disk is not known to others yet.
            if !self.replayed.jobs.contains_key(&job) {
                let letters = Letter::Job(job, input).undeliverable();
                letters.into_iter().for_each(|letter| self.post(Place::Job(job), letter));
            }
            return;
        };
        let mut out = Vec::new();
        core.handle(clock, &mut self.ids, input, &mut out);
        self.refuses_and_does(&mut out);
        if let Some(judged) = judged {
            self.against_forgers(job, judged, &out);
        }
        self.job_effects(job, out);
    }

    /// A job's owner panics over what it is told, and another is built as its supervisor does it. What it had to do and was
    /// not saved yet, or not done yet, is lost.
    fn owner_fails(&mut self, job: JobId) {
        let Some((known, leftover)) = self.jobs.get(&job).map(|core| (core.record().clone(), core.leftover())) else {
            return;
        };
        // With what the leader of a heterogeneous job has recorded for it and it has not heard.
        let record = self.replayed.jobs.get(&job).cloned().unwrap_or(known);
        self.meets_job("owner of a job failed", job);
        self.forget_answers(job);
        if leftover.forgotten {
            self.ledger.counts.add("owner of a forgotten job failed");
        }
        let life = self.lives.jobs.entry(job).or_insert(0);
        *life += 1;
        let mut outbox = Outbox::default();
        // Behind all that the failed one recorded.
        let batch = outbox.push_unsaved(Vec::new()) | *life << 32;
        self.outboxes.jobs.insert(job, outbox);
        self.append(Writer::Job(job), batch, Vec::new());
        let own = format!("job {} ", job.0);
        self.timers.retain(|key, _| !key.starts_with(&own));
        self.resume_job(record.clone(), leftover);
        for node in self.nodes.keys().copied().collect::<Vec<_>>() {
            self.unheard.insert((job, node));
            self.send(Place::Jobs, Happening::Node(node, NodeInput::OwnerIsNew { job }));
        }
        let waiting = self.replayed.jobs.values().filter(|other| waits_for(other, &record));
        for by in waiting.map(|other| other.id).collect::<Vec<_>>() {
            self.send(Place::Jobs, Happening::Job(job, JobInput::Subscribe { by }));
        }
        let split = |other: &&JobRecord| other.array_task.is_some_and(|task| task.array_job == job);
        let unborn = self.replayed.jobs.values().filter(split).filter(|other| !self.jobs.contains_key(&other.id));
        for record in unborn.cloned().collect::<Vec<_>>() {
            self.start_job(record);
        }
    }

    fn to_node(&mut self, job: JobId, node: &str, input: NodeInput) {
        if let Some(node) = machine_of(node).filter(|node| self.nodes.contains_key(node)) {
            self.send(Place::Job(job), Happening::Node(node, input));
        }
    }

    /// Hands a letter over. What becomes of it on its way is a mutation's to say.
    pub(super) fn post(&mut self, from: Place, letter: Letter) {
        let Some(letter) = self.as_is_posted(letter) else { return };
        match letter {
            Letter::Job(job, input) => self.send(from, Happening::Job(job, input)),
            Letter::Node(node, input) => match machine_of(&node).filter(|node| self.nodes.contains_key(node)) {
                Some(node) => self.send(from, Happening::Node(node, input)),
                None => {
                    let letters = Letter::Node(node, input).undeliverable();
                    letters.into_iter().for_each(|letter| self.post(from, letter));
                }
            },
            Letter::Licenses(input) => {
                let clock = self.clock();
                let letters = self.licenses.answers(clock, &mut self.ids, input);
                letters.into_iter().for_each(|letter| self.post(from, letter));
            }
            Letter::Outcome { pass, accepted } => {
                if let Place::Job(job) = from {
                    self.send(from, Happening::Outcome { job, pass, accepted });
                }
            }
            Letter::Begin { record, first } => {
                let task = record.id;
                self.start_job(*record);
                if let Some(first) = first {
                    self.send(from, Happening::Job(task, *first));
                }
            }
            // Steps are not gathered here, and there are no crontabs.
            Letter::Steps(_) | Letter::Crontabs(_) => {}
            Letter::News(news) => self.news(news),
        }
    }

    /// Events are appended, and the rest of the turn waits behind them.
    fn job_effects(&mut self, job: JobId, out: Vec<JobEffect>) {
        let mut turn = Turn::<JobCore>::of(out);
        turn.events = self.as_is_saved(job, turn.events);
        let outbox = self.outboxes.jobs.entry(job).or_default();
        if let Some((batch, events)) = turn.queue(outbox) {
            if self.mutation == Some(Mutation::EffectsDoNotWaitForTheDisk) {
                outbox.saved(batch);
            }
            // An answer for an earlier owner is dropped.
            let life = self.lives.jobs.get(&job).copied().unwrap_or(0);
            self.append(Writer::Job(job), batch | life << 32, events);
        }
        self.flush_job(job);
    }

    fn flush_job(&mut self, job: JobId) {
        while let Some(effects) = self.outboxes.jobs.get_mut(&job).and_then(Outbox::take_ready) {
            perform(effects, &mut JobStage(self, job));
        }
        if self.outboxes.jobs.get(&job).is_some_and(Outbox::is_empty) {
            self.outboxes.jobs.remove(&job);
        }
    }

    pub(super) fn tell_node(&mut self, node: usize, input: NodeInput) {
        if !self.nodes.contains_key(&node) {
            return;
        }
        self.touched.nodes.insert(node);
        let before = self.holds_of(node);
        let mutated = if self.mutation.is_some() { self.as_node_hears(node, input) } else { Some(input) };
        let Some(input) = mutated else { return };
        if self.fails_over_it(1) {
            return self.node_owner_fails(node);
        }
        let (mut out, clock) = (Vec::new(), self.clock());
        let was_down = self.nodes[&node].saved().down.is_some();
        let hears_again = match &input {
            // What the agent still has is released when it says that it has not.
            NodeInput::Registered(news) => {
                let released = news.released.iter().map(|run| run.job);
                HearsAgain::AllBut(news.runs.iter().map(|run| run.job).chain(released).collect())
            }
            NodeInput::OwnerIsNew { job } if was_down => HearsAgain::Of(*job),
            _ => HearsAgain::Nothing,
        };
        self.takes_work_though_drained(node, &input, &mut out);
        let told = match &input {
            NodeInput::Configure { settings, .. } => Some(settings.shape.clone()),
            _ => None,
        };
        let Some(core) = self.nodes.get_mut(&node) else { return };
        core.handle(clock, input, &mut out);
        let (is_down, drained) = (core.saved().down.is_some(), core.saved().is_held_back());
        if told.is_some() {
            self.against_moves(node, before.len());
            self.note_shape(node, told);
        } else if !out.is_empty() {
            self.note_shape(node, None);
        }
        // A report of a run that the node let go of is answered by a release, where it is passed on: a repeated one is not.
        let releases: Vec<JobId> = out.iter().filter_map(released_job).collect();
        let hears = |job| hears_again.is_about(job) || releases.contains(&job) || (is_down && !was_down);
        self.unheard.retain(|(job, of)| *of != node || !hears(*job));
        self.held_at_drain[node] = match (drained, self.held_at_drain[node].take()) {
            (false, _) => None,
            (true, Some(held)) => Some(held),
            (true, None) => Some(before),
        };
        self.node_effects(node, out);
    }

    /// A node's owner panics over what it is told, as [`Self::owner_fails`] for a job.
    fn node_owner_fails(&mut self, node: usize) {
        self.meets_node("owner of a node failed", node);
        self.lives.nodes[node] += 1;
        let mut outbox = Outbox::default();
        // Behind all that the failed one recorded.
        let batch = outbox.push_unsaved(Vec::new()) | self.lives.nodes[node] << 32;
        self.outboxes.nodes[node] = outbox;
        self.append(Writer::Node(node), batch, Vec::new());
        let own = format!("node {node} ");
        self.timers.retain(|key, _| !key.starts_with(&own));
        self.break_link(node);
        // A release that was lost is given again when the node registers, or was known to be lost before.
        let jobs = self.holds_of(node).into_iter().map(|(job, _)| (job, node));
        self.unheard.extend(jobs);
        self.owner_does_not_answer(node);
        let (mut out, clock) = (Vec::new(), self.clock());
        let known = self.config.node(&self.machines[node].name);
        let settings = known.map(|node| self.members.shown.settings(node));
        let told = settings.as_ref().map(|settings| settings.shape.clone());
        let settings = settings.map(|settings| self.as_owner_has(settings));
        let Some(core) = self.nodes.get_mut(&node) else { return };
        if let Some(settings) = settings {
            core.go_by(settings, Arc::clone(&self.node_site));
        }
        core.resume(clock, &mut out);
        self.note_shape(node, told);
        self.node_effects(node, out);
    }

    fn node_effects(&mut self, node: usize, out: Vec<NodeEffect>) {
        if let Some((batch, events)) = Turn::<NodeCore>::of(out).queue(&mut self.outboxes.nodes[node]) {
            self.append(Writer::Node(node), batch | self.lives.nodes[node] << 32, events);
        }
        self.flush_node(node);
    }

    fn flush_node(&mut self, node: usize) {
        while let Some(effects) = self.outboxes.nodes[node].take_ready() {
            perform(effects, &mut NodeStage(self, node));
        }
    }
}

/// What a job's verbs come to in the world.
struct JobStage<'w>(&'w mut World, JobId);

impl Stage<JobCore> for JobStage<'_> {
    fn tell(&mut self, letter: Letter) {
        self.0.post(Place::Job(self.1), letter);
    }

    fn run(&mut self, errand: JobErrand) {
        let Self(world, job) = self;
        let (from, job) = (Place::Job(*job), *job);
        match errand {
            JobErrand::Launch(order) => {
                world.promises.run(order.credential.sluid);
                world.against_early_leaders(job);
                let signed = signed(&order.credential);
                world.post(from, order.letter(signed, Vec::new()));
            }
            JobErrand::Script { sluid, script, .. } => {
                world.send(from, Happening::Job(job, JobInput::ScriptEnded { sluid, script, result: Ok(()) }));
            }
            JobErrand::Mail(_) => {}
            JobErrand::FindSiblings => {
                // As in the controller: from the saved state, since the owner of a sibling may be between two lives.
                let own = world.jobs.get(&job).map(JobCore::record);
                let siblings = own.into_iter().flat_map(|own| {
                    let earlier = world.replayed.jobs.below(own.id).map(|(_, record)| record);
                    earlier.filter(move |record| record.holds_up_singleton(own))
                });
                let jobs = siblings.map(|record| record.id).collect();
                world.send(from, Happening::Job(job, JobInput::Siblings { jobs }));
            }
        }
    }

    fn set_timer(&mut self, timer: JobTimer, at: Timestamp) {
        self.0.set_clock_timer(at, Happening::JobTimer(self.1, timer));
    }

    fn clear_timer(&mut self, timer: JobTimer) {
        self.0.clear_timer(&Happening::JobTimer(self.1, timer));
    }

    fn publish(&mut self, shown: JobShown) {
        if let JobShown::View(view) = shown {
            self.0.shown_jobs.insert(self.1, view);
            self.0.is_shown(|seen| &mut seen.jobs);
        }
    }

    fn answer(&mut self, request: u64, answer: JobAnswer) {
        if let JobAnswer::Done(result) = answer
            && let Some(sluid) = self.0.cancels.remove(&request).filter(|_| result.is_ok())
        {
            self.0.promises.cancelled.insert(sluid);
        }
    }

    fn stop(&mut self) {
        self.0.jobs.remove(&self.1);
        self.0.shown_jobs.remove(&self.1);
        self.0.is_shown(|seen| &mut seen.jobs);
    }
}

/// What a node's verbs come to in the world.
struct NodeStage<'w>(&'w mut World, usize);

impl Stage<NodeCore> for NodeStage<'_> {
    fn tell(&mut self, letter: Letter) {
        self.0.post(Place::Node(self.1), letter);
    }

    fn run(&mut self, errand: NodeErrand) {
        let Self(world, node) = self;
        match errand {
            NodeErrand::Send { conn, frame } => {
                if world.machines[*node].link == Some(conn) {
                    world.send(Place::Node(*node), Happening::Frame(*node, conn, *frame));
                }
            }
            NodeErrand::Close { conn } => {
                if world.machines[*node].link == Some(conn) {
                    world.break_link(*node);
                }
            }
            NodeErrand::WarnOfConf { .. } => {}
        }
    }

    fn set_timer(&mut self, timer: NodeTimer, at: Timestamp) {
        self.0.set_clock_timer(at, Happening::NodeTimer(self.1, timer));
    }

    fn clear_timer(&mut self, timer: NodeTimer) {
        self.0.clear_timer(&Happening::NodeTimer(self.1, timer));
    }

    fn publish(&mut self, mut view: Arc<NodeView>) {
        let Self(world, _) = self;
        if world.has(Mutation::MemoryIsNotCounted)
            && let Some(known) = world.config.node(&view.name)
        {
            Arc::make_mut(&mut view).shape = known.settings.shape.clone();
        }
        let index = view.index;
        let before = world.shown_nodes.insert(index, Arc::clone(&view));
        let before = before.unwrap_or_else(|| Arc::clone(&view));
        if before.shape != view.shape {
            world.fit.clear();
        }
        world.earlier_nodes.insert(index, before);
        world.is_shown(|seen| &mut seen.nodes);
    }

    fn answer(&mut self, request: u64, answer: Result<(), Refusal>) {
        self.0.node_answered(request, answer);
    }

    fn stop(&mut self) {}
}

/// The simulated machines trust what they read: nothing is forged here.
fn signed(credential: &JobCredential) -> SignedCredential {
    let payload = serde_json::to_vec(credential).expect("a credential has only string keys and plain numbers");
    SignedCredential { payload: payload.into(), signature: Vec::new().into(), key_id: String::new() }
}

/// Of which job a node passes on that it let go of a run: that is answered by a release.
fn released_job(effect: &NodeEffect) -> Option<JobId> {
    match effect {
        NodeEffect::Tell(Letter::Job(job, JobInput::Report { report, .. })) => {
            matches!(**report, AgentReport::NodeReleased { .. }).then_some(*job)
        }
        _ => None,
    }
}

/// Of which jobs a node is told all that it may have missed.
enum HearsAgain {
    AllBut(BTreeSet<JobId>),
    Of(JobId),
    Nothing,
}

impl HearsAgain {
    fn is_about(&self, job: JobId) -> bool {
        match self {
            Self::AllBut(others) => !others.contains(&job),
            Self::Of(one) => *one == job,
            Self::Nothing => false,
        }
    }
}
