//! Waiting minibatch steps. Steps of a batch with the same spec form a row: shared data are stored once, and each step is one
//! bit. A row is in the queue while one of its steps may start.

use crate::stepmgr::{
    journal::ranges,
    launch::Layouts,
    lines::Pace,
    queue::{QueueKey, StepQueue, Waiting},
    shape::StepShape,
};
use garrick_events::steps::batch::StoredBatch;
use garrick_model::{
    ids::{StepKey, StepNum},
    messages::shepherd::StepLaunch,
    spec::{ArraySpec, EnvEntry, StepSpec},
    step_selector::WhichSteps,
    time::Timestamp,
    view::StepOrigin,
};
use roaring::RoaringBitmap;
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    sync::Arc,
};

/// Identity of a row; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowId(pub u64);

/// Steps that are equal except for number, program and arguments.
#[derive(Debug)]
pub struct Row {
    /// First number of its batch.
    pub first: u32,
    /// Its batch.
    pub batch: Arc<StoredBatch>,
    /// Members of the batch that belong to it.
    pub members: Range<u32>,
    /// What was asked for.
    pub spec: Arc<StepSpec>,
    /// What each step needs.
    pub shape: Arc<StepShape>,
    /// First layer of environment.
    pub environment: Arc<Vec<EnvEntry>>,
    /// How reports describe all of them.
    pub origin: Arc<StepOrigin>,
    /// The shared data of their launches, after the first was started.
    pub launch: Option<Arc<StepLaunch>>,
    /// Variables by layout.
    pub layouts: Layouts,
    /// Its place in the queue.
    pub key: QueueKey,
    /// Members that may start, unless the whole row waits.
    pub waiting: RoaringBitmap,
    /// Members that wait for the step of the same index in another array.
    pub corresponding: RoaringBitmap,
    /// Members that are tried again, with their earliest start.
    pub delayed: BTreeMap<u32, Timestamp>,
    /// Tries so far, of members that were tried.
    pub tries: BTreeMap<u32, u32>,
    /// Members that run, or were handed to their node.
    pub running: u32,
    /// How many of them are lined up behind others ([`super::lines`]).
    pub lined: u32,
    /// Their run time.
    pub pace: Pace,
    /// At most so many run (`%64`).
    pub limit: Option<u32>,
    /// The row waits for other steps.
    pub held: bool,
    queued: bool,
}

impl Row {
    /// Number of steps that are not over and do not run.
    pub fn pending(&self) -> u64 {
        self.waiting.len() + self.corresponding.len() + self.delayed.len() as u64
    }

    /// All members that wait, for any cause.
    pub fn all_waiting(&self) -> RoaringBitmap {
        let mut all = &self.waiting | &self.corresponding;
        all.extend(self.delayed.keys().copied());
        all
    }

    /// Members by name; `limit`: that many of an array at a time.
    pub fn named(&self, members: &RoaringBitmap, limit: Option<u32>) -> WhichSteps {
        let ranges = |offset: u32| ranges(members).into_iter().map(|(a, b)| (a + offset, b + offset, 1)).collect();
        match self.batch.array() {
            Some(_) => WhichSteps::Tasks { step: self.first, tasks: ArraySpec { ranges: ranges(0), limit } },
            None => WhichSteps::Numbers(ArraySpec { ranges: ranges(self.first), limit: None }),
        }
    }

    /// The key of a member.
    pub fn step(&self, member: u32) -> StepKey {
        self.batch.key(self.first, member)
    }

    /// The next member to start.
    pub fn next(&self) -> Option<u32> {
        self.waiting.min()
    }

    fn ready(&self) -> bool {
        !self.held && !self.waiting.is_empty() && self.limit.is_none_or(|limit| self.running < limit)
    }
}

/// All rows.
#[derive(Debug, Default)]
pub struct Rows {
    all: BTreeMap<RowId, Row>,
    /// By the number of the first step.
    by_number: BTreeMap<u32, RowId>,
    /// Members that are tried again, by time.
    delayed: BTreeSet<(Timestamp, RowId, u32)>,
    next: u64,
}

/// The data of a new row.
#[derive(Debug)]
pub struct RowParts {
    /// First number of its batch.
    pub first: u32,
    /// Its batch.
    pub batch: Arc<StoredBatch>,
    /// Members that belong to it.
    pub members: Range<u32>,
    /// What was asked for.
    pub spec: Arc<StepSpec>,
    /// What each step needs.
    pub shape: Arc<StepShape>,
    /// First layer of environment.
    pub environment: Arc<Vec<EnvEntry>>,
    /// How reports describe it.
    pub origin: Arc<StepOrigin>,
    /// Place in the queue.
    pub key: QueueKey,
    /// Those of the members that wait.
    pub waiting: RoaringBitmap,
}

impl Rows {
    /// A new row; not in the queue yet.
    pub fn add(&mut self, parts: RowParts) -> RowId {
        self.next += 1;
        let id = RowId(self.next);
        let RowParts { first, batch, members, spec, shape, environment, origin, key, waiting } = parts;
        let limit = batch.array().and_then(|tasks| tasks.limit);
        self.by_number.insert(first + if batch.array().is_some() { 0 } else { members.start }, id);
        let row = Row {
            first,
            batch,
            members,
            spec,
            shape,
            environment,
            origin,
            launch: None,
            layouts: Layouts::default(),
            key,
            waiting,
            corresponding: RoaringBitmap::new(),
            delayed: BTreeMap::new(),
            tries: BTreeMap::new(),
            running: 0,
            lined: 0,
            pace: Pace::default(),
            limit,
            held: false,
            queued: false,
        };
        self.all.insert(id, row);
        id
    }

    /// A row.
    pub fn get(&self, id: RowId) -> Option<&Row> {
        self.all.get(&id)
    }

    /// A row, to be changed: call [`Rows::settle`] after it.
    pub fn get_mut(&mut self, id: RowId) -> Option<&mut Row> {
        self.all.get_mut(&id)
    }

    /// Adds a row to the queue or removes it, as its state requires; removes and returns it when nothing is left of it.
    pub fn settle(&mut self, id: RowId, queue: &mut StepQueue) -> Option<Row> {
        let row = self.all.get_mut(&id)?;
        let ready = row.ready();
        match (row.queued, ready) {
            (false, true) => queue.insert(row.key, Waiting::Row(id)),
            (true, false) => queue.remove(row.key),
            _ => {}
        }
        row.queued = ready;
        if row.pending() == 0 && row.running == 0 {
            let number = row.first + if row.batch.array().is_some() { 0 } else { row.members.start };
            self.by_number.remove(&number);
            return self.all.remove(&id);
        }
        None
    }

    /// The row of a step and its member number, while the row exists.
    pub fn find(&self, step: StepKey) -> Option<(RowId, u32)> {
        let StepNum::Number(number) = step.step else { return None };
        let (_, id) = self.by_number.range(..=number).next_back()?;
        let row = self.all.get(id)?;
        let member = row.batch.member(row.first, step)?;
        row.members.contains(&member).then_some((*id, member))
    }

    /// Delays a member that is to be tried again. True: it is the earliest of all.
    pub fn delay(&mut self, id: RowId, member: u32, tries: u32, until: Timestamp) -> bool {
        let Some(row) = self.all.get_mut(&id) else { return false };
        row.tries.insert(member, tries);
        row.delayed.insert(member, until);
        self.delayed.insert((until, id, member));
        self.delayed.first() == Some(&(until, id, member))
    }

    /// Removes a member from the delayed ones.
    pub fn undelay(&mut self, id: RowId, member: u32) {
        if let Some(until) = self.all.get_mut(&id).and_then(|row| row.delayed.remove(&member)) {
            self.delayed.remove(&(until, id, member));
        }
    }

    /// A delayed member whose time has come.
    pub fn due(&mut self, now: Timestamp) -> Option<(RowId, u32)> {
        let (until, id, member) = self.delayed.first().copied()?;
        if until > now {
            return None;
        }
        self.delayed.pop_first();
        if let Some(row) = self.all.get_mut(&id) {
            row.delayed.remove(&member);
        }
        Some((id, member))
    }

    /// When the next delayed member may start.
    pub fn next_due(&self) -> Option<Timestamp> {
        self.delayed.first().map(|(until, _, _)| *until)
    }

    /// All rows, in order of arrival.
    pub fn iter(&self) -> impl Iterator<Item = (RowId, &Row)> {
        self.all.iter().map(|(id, row)| (*id, row))
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// None.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
}
