//! The ledger of a kept plan: each job in each of its partitions with the resources reserved for it, and which jobs have what of
//! each node. It is written while a plan is made ([`crate::plan`]) and read when it is repaired ([`crate::plan::kept`]).

use super::Key;
use crate::{
    room::{horizon::Planned, reserved::Promise},
    rules::{
        accounting::Kind,
        reasons::{waits_for_room, weight_of},
    },
    snapshot::request::{Matters, NodeUse, Request},
};
use garrick_model::{ids::JobId, state::Reason, time::Timestamp, view::JobView};
use rustc_hash::FxHashMap;
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
    sync::Arc,
    time::Duration,
};

/// A job in one of its partitions.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// The job as it was when it was considered.
    pub job: Arc<JobView>,
    /// Why it waits, as of its last consideration.
    pub reason: Option<Reason>,
    /// The group of jobs with the same request; `None`: no resources were searched for it.
    pub group: Option<usize>,
    /// It was behind others when resources were searched for it.
    pub behind: bool,
    /// A start of the job, or of some of its tasks, was proposed.
    pub started: bool,
    /// What is reserved for it.
    pub promise: Option<Promise>,
}

/// The time for which a job has resources of a node.
#[derive(Clone, Copy, Debug)]
struct Stay {
    key: Key,
    from: Timestamp,
    until: Timestamp,
}

/// Jobs with the same request.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    /// The request.
    pub request: Request,
    /// Run time.
    pub length: Duration,
    /// Least run time: it is less than `length` where a start may lower the time limit.
    pub least: Duration,
    /// The jobs.
    pub members: BTreeSet<Key>,
}

/// The ledger of a plan.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    rows: BTreeMap<Key, Row>,
    of_job: FxHashMap<JobId, Vec<Key>>,
    on_node: Vec<Vec<Stay>>,
    groups: Vec<Group>,
    by_request: FxHashMap<(Request, Duration), usize>,
    /// Jobs that the plan had no time to consider.
    unlooked: BTreeSet<Key>,
    /// Jobs that wait for resources, by partition.
    waiting: BTreeMap<usize, BTreeSet<Key>>,
    /// How many jobs have resources reserved, by partition.
    promised: BTreeMap<usize, u32>,
    /// Reserved starts.
    begins: BTreeSet<(Timestamp, Key)>,
    /// Those whose reservation includes licenses.
    licensed: BTreeSet<Key>,
    /// Jobs whose start was proposed.
    started: BTreeSet<Key>,
    /// Arrays that run as many tasks as their limit allows.
    limited: BTreeSet<Key>,
    /// Jobs that are over limits of accounting, and those of each kind.
    over_limits: FxHashMap<Key, (Arc<Kind>, Reason)>,
    kinds: FxHashMap<Arc<Kind>, BTreeSet<Key>>,
    /// Number of components of heterogeneous jobs.
    components: usize,
    current: Option<Key>,
}

/// The request without differences that do not matter. The user matters only where nodes are kept to one user. MCS labels are
/// kept: they are few, and nodes that are kept to a label matter to all jobs.
fn alike(request: &Request) -> Request {
    let matters = Matters { users: request.usage == NodeUse::User, labels: true };
    Request { owner: request.owner.where_matters(matters), ..request.clone() }
}

impl Ledger {
    /// An empty ledger for so many nodes.
    pub fn new(nodes: usize) -> Self {
        Self {
            rows: BTreeMap::new(),
            of_job: FxHashMap::default(),
            on_node: vec![Vec::new(); nodes],
            groups: Vec::new(),
            by_request: FxHashMap::default(),
            unlooked: BTreeSet::new(),
            waiting: BTreeMap::new(),
            promised: BTreeMap::new(),
            begins: BTreeSet::new(),
            licensed: BTreeSet::new(),
            started: BTreeSet::new(),
            limited: BTreeSet::new(),
            over_limits: FxHashMap::default(),
            kinds: FxHashMap::default(),
            components: 0,
            current: None,
        }
    }

    /// Later notes are about this job.
    pub(crate) fn turn_to(&mut self, key: Key, job: &Arc<JobView>) {
        self.current = Some(key);
        self.enter(key, job);
    }

    /// Later notes are about no job.
    pub(crate) const fn turn_from(&mut self) {
        self.current = None;
    }

    /// Notes that the job waits and was not considered yet.
    pub fn enter(&mut self, key: Key, job: &Arc<JobView>) {
        self.drop_row(key);
        self.components += usize::from(job.spec.het.is_some());
        self.of_job.entry(job.id).or_default().push(key);
        let row = Row { job: Arc::clone(job), reason: None, group: None, behind: false, started: false, promise: None };
        self.rows.insert(key, row);
    }

    fn current(&mut self) -> Option<(Key, &mut Row)> {
        let key = self.current?;
        Some((key, self.rows.get_mut(&key)?))
    }

    /// Notes that resources are searched for this run time, and for at least `least`.
    pub fn asks(&mut self, request: &Request, (length, least): (Duration, Duration), behind: bool) {
        let groups = self.groups.len();
        let group = *self.by_request.entry((alike(request), least)).or_insert(groups);
        if group == groups {
            self.groups.push(Group { request: alike(request), length, least, members: BTreeSet::new() });
        }
        if let Some((key, row)) = self.current() {
            (row.group, row.behind) = (Some(group), behind);
            self.groups[group].members.insert(key);
        }
    }

    /// Notes a changed view of a job whose request is the same.
    pub(crate) fn renew(&mut self, key: Key, job: &Arc<JobView>) {
        if let Some(row) = self.rows.get_mut(&key) {
            row.job = Arc::clone(job);
        }
    }

    /// Notes that a start is proposed.
    pub fn starts(&mut self) {
        if let Some((key, row)) = self.current() {
            row.started = true;
            self.started.insert(key);
        }
    }

    /// Notes that resources are reserved.
    pub fn promise(&mut self, mut promise: Promise) {
        promise.nodes.sort_unstable_by_key(|(node, _)| *node);
        let Some(key) = self.current.filter(|key| self.rows.contains_key(key)) else { return };
        *self.promised.entry(key.partition).or_insert(0) += 1;
        let stay = Stay { key, from: promise.from, until: promise.until };
        for (node, _) in &promise.nodes {
            self.on_node[*node].push(stay);
        }
        self.begins.insert((promise.from, key));
        if !promise.licenses.is_empty() {
            self.licensed.insert(key);
        }
        if let Some(row) = self.rows.get_mut(&key) {
            row.promise = Some(promise);
        }
    }

    /// Notes that the job does not start.
    pub(crate) fn declines(&mut self, reason: &Reason) {
        let Some((key, row)) = self.current() else { return };
        row.reason = Some(reason.clone());
        let looked = row.group.is_some() || row.promise.is_some();
        if looked && waits_for_room(reason) {
            self.waiting.entry(key.partition).or_default().insert(key);
        } else if !looked
            && *reason == Reason::Priority
            && row.job.spec.het.is_none()
            && row.job.spec.reservations.is_empty()
        {
            self.unlooked.insert(key);
        }
        if *reason == Reason::JobArrayTaskLimit {
            self.limited.insert(key);
        }
    }

    /// Notes that the job is over that limit of accounting.
    pub(crate) fn is_over_limits(&mut self, limit: Reason, kind: impl FnOnce(&JobView, usize) -> Kind) {
        let Some(key) = self.current else { return };
        let Some(row) = self.rows.get(&key) else { return };
        let kind = Arc::new(kind(&row.job, key.partition));
        let kind = self.kinds.get_key_value(&kind).map_or(kind, |(known, _)| Arc::clone(known));
        self.kinds.entry(Arc::clone(&kind)).or_default().insert(key);
        self.over_limits.insert(key, (kind, limit));
    }

    /// The row of a job in a partition.
    pub fn row(&self, key: Key) -> Option<&Row> {
        self.rows.get(&key)
    }

    /// The first row in order.
    pub fn first(&self) -> Option<Key> {
        self.rows.keys().next().copied()
    }

    /// All rows, in order.
    #[cfg(test)]
    pub fn rows(&self) -> impl Iterator<Item = (&Key, &Row)> {
        self.rows.iter()
    }

    /// Jobs with resources reserved and their starts, the earliest first.
    pub fn begins(&self) -> impl Iterator<Item = (Timestamp, Key)> + '_ {
        self.begins.iter().copied()
    }

    /// Reservations that include licenses.
    pub fn licensed(&self) -> impl Iterator<Item = &Promise> {
        self.licensed.iter().filter_map(|key| self.rows.get(key)?.promise.as_ref())
    }

    /// Number of components of heterogeneous jobs, each counted in each of its partitions.
    pub const fn components(&self) -> usize {
        self.components
    }

    /// Jobs whose start was proposed.
    pub fn started(&self) -> impl Iterator<Item = Key> + '_ {
        self.started.iter().copied()
    }

    /// Arrays that run as many tasks as their limit allows.
    pub fn limited(&self) -> impl Iterator<Item = Key> + '_ {
        self.limited.iter().copied()
    }

    /// The first job of each kind that is over limits of accounting, in order.
    pub fn over_limits(&self) -> BTreeSet<Key> {
        self.kinds.values().filter_map(|keys| keys.first().copied()).collect()
    }

    /// The kind of a job that is over limits of accounting.
    pub fn kind_over_limits(&self, key: Key) -> Option<Arc<Kind>> {
        self.over_limits.get(&key).map(|(kind, _)| Arc::clone(kind))
    }

    /// The limit of accounting that a job is over.
    pub fn limit_of(&self, key: Key) -> Option<&Reason> {
        self.over_limits.get(&key).map(|(_, limit)| limit)
    }

    /// The first of that kind behind this one that is over limits of accounting.
    pub fn next_over_limits(&self, kind: &Arc<Kind>, key: Key) -> Option<Key> {
        self.kinds.get(kind)?.range((Bound::Excluded(key), Bound::Unbounded)).next().copied()
    }

    /// The rows of a job in all of its partitions.
    pub fn of_job(&self, job: JobId) -> &[Key] {
        self.of_job.get(&job).map_or(&[], Vec::as_slice)
    }

    /// Jobs with resources of a node reserved, in no order.
    pub fn on_node(&self, node: usize) -> impl Iterator<Item = Key> + '_ {
        self.on_node[node].iter().map(|stay| stay.key)
    }

    /// Reservations on a node whose times (begin and end) satisfy `times`, in order.
    pub fn planned(&self, node: usize, times: impl Fn(Timestamp, Timestamp) -> bool) -> Vec<(Key, Planned)> {
        let mut stays: Vec<&Stay> = self.on_node[node].iter().filter(|stay| times(stay.from, stay.until)).collect();
        stays.sort_unstable_by_key(|stay| stay.key);
        let planned = |stay: &Stay| {
            let what = self.rows.get(&stay.key)?.promise.as_ref()?.share(node)?.clone();
            Some((stay.key, Planned { from: stay.from, until: stay.until, what }))
        };
        stays.into_iter().filter_map(planned).collect()
    }

    /// Groups of jobs with the same request.
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// Groups that request an advance reservation.
    pub fn guests(&self) -> impl Iterator<Item = &Group> {
        self.groups.iter().filter(|group| group.request.reservation.is_some() && !group.members.is_empty())
    }

    /// How many jobs of a partition have resources reserved.
    pub fn promised(&self, partition: usize) -> u32 {
        self.promised.get(&partition).copied().unwrap_or(0)
    }

    /// Partitions in which jobs wait for resources, with those jobs.
    pub fn partitions(&self) -> impl Iterator<Item = (usize, &BTreeSet<Key>)> {
        self.waiting.iter().map(|(partition, keys)| (*partition, keys))
    }

    /// Jobs that the plan had no time to consider, in order.
    pub(crate) fn unlooked(&self) -> impl Iterator<Item = Key> + '_ {
        self.unlooked.iter().copied()
    }

    /// Jobs that were considered behind others, in no order.
    pub fn behind(&self) -> impl Iterator<Item = (Key, &Row)> {
        let members = self.groups.iter().flat_map(|group| &group.members);
        members.filter_map(|key| Some((*key, self.rows.get(key).filter(|row| row.behind)?)))
    }

    /// How many jobs were considered.
    pub fn looked(&self) -> usize {
        self.groups.iter().map(|group| group.members.len()).sum()
    }

    /// The last job that was considered.
    pub(crate) fn last_looked(&self) -> Option<Key> {
        let promised = self.begins.iter().map(|(_, key)| *key);
        self.groups.iter().filter_map(|group| group.members.last().copied()).chain(promised).max()
    }

    /// Frees what is reserved for a job.
    pub fn give_up(&mut self, key: Key) -> Option<Promise> {
        let promise = self.rows.get_mut(&key)?.promise.take()?;
        for (node, _) in &promise.nodes {
            self.on_node[*node].retain(|stay| stay.key != key);
        }
        self.begins.remove(&(promise.from, key));
        self.licensed.remove(&key);
        if let Some(promised) = self.promised.get_mut(&key.partition) {
            *promised -= 1;
        }
        Some(promise)
    }

    /// Removes a row; its reservation has to be given up before.
    pub(crate) fn drop_row(&mut self, key: Key) {
        let Some(row) = self.rows.remove(&key) else { return };
        self.components -= usize::from(row.job.spec.het.is_some());
        if let Some(group) = row.group {
            self.groups[group].members.remove(&key);
        }
        self.unlooked.remove(&key);
        self.started.remove(&key);
        self.limited.remove(&key);
        if let Some((kind, _)) = self.over_limits.remove(&key)
            && let Some(keys) = self.kinds.get_mut(&kind)
        {
            keys.remove(&key);
            if keys.is_empty() {
                self.kinds.remove(&kind);
            }
        }
        if let Some(waiting) = self.waiting.get_mut(&key.partition) {
            waiting.remove(&key);
        }
        if let Some(keys) = self.of_job.get_mut(&row.job.id) {
            keys.retain(|other| *other != key);
            if keys.is_empty() {
                self.of_job.remove(&row.job.id);
            }
        }
    }

    /// What a job is told: why it waits, and when it is expected to start.
    pub fn news(&self, job: JobId) -> (Option<Reason>, Option<Timestamp>) {
        let rows = || self.of_job(job).iter().filter_map(|key| self.rows.get(key));
        let reason = rows()
            .filter_map(|row| row.reason.clone())
            .reduce(|a, b| if weight_of(&b) > weight_of(&a) { b } else { a });
        (reason, rows().filter_map(|row| row.promise.as_ref().map(|promise| promise.from)).min())
    }
}
