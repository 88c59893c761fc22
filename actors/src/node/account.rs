//! Which jobs hold what of a node, and whether one more share fits. The rules: a CPU has one holder, or several that all share it
//! and are no more than each allows; accounted memory never exceeds what the node has; a job with exclusive use has no
//! neighbours; a job that keeps the node for its user only has neighbours of that user.
//!
//! A parked run (suspended for another) holds everything but its CPUs, and does not restrict its neighbours, unless it keeps the
//! node for its user. It gets its CPUs back when no other job has them.

use super::effects::KeptHold;
use crate::messages::node::ReserveAsk;
use garrick_model::{
    gres::{GPU, GresPool, GresShare, SHARD, devices_used, place_of},
    ids::{JobId, Sluid},
    node_shape::NodeShape,
    resources::{CpuSet, MemoryMib},
    spec::Sharing,
    time::Timestamp,
    view::NodeHold,
};
use garrick_plan::snapshot::{caps::CpuCaps, request::NodeUse};
use std::collections::BTreeMap;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    hold: NodeHold,
    attempt: u64,
    most_holders: u32,
    /// The limits on its partition's CPUs here, if they apply.
    caps: CpuCaps,
    /// What was kept here for the job before this attempt took its place: restored if the attempt is given up, and until then not
    /// available to others.
    instead_of: Option<Box<Entry>>,
}

/// The holds on one node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    entries: BTreeMap<(JobId, Sluid), Entry>,
    /// Held by at least one.
    cpus: CpuSet,
    memory: u64,
}

/// The result of a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reserved {
    /// It is held now.
    Taken,
    /// The same run holds the same share already.
    Already,
    /// It does not fit.
    Refused,
}

impl Account {
    /// Takes the share if it fits.
    pub fn reserve(&mut self, shape: &NodeShape, ask: &ReserveAsk) -> Reserved {
        let key = (ask.job, ask.sluid);
        if let Some(entry) = self.entries.get_mut(&key) {
            let given_up = entry.attempt < ask.attempt && !entry.hold.completing && !entry.hold.kept;
            let same = entry.hold.share == ask.share && !entry.hold.completing;
            if same {
                entry.attempt = ask.attempt;
                entry.hold.expected_end = ask.expected_end;
                return Reserved::Already;
            }
            if !given_up {
                return Reserved::Refused;
            }
            // A run makes one attempt after the other: the release of the one before was lost.
            let before = entry.attempt;
            self.release(ask.job, ask.sluid, Some(before));
        }
        // What is kept for the job makes room for its next run.
        let kept = self.take_kept(ask.job);
        if !self.fits(shape, ask) {
            self.put_back(kept);
            return Reserved::Refused;
        }
        let hold = NodeHold {
            job: ask.job,
            sluid: ask.sluid,
            uid: ask.uid,
            share: ask.share.clone(),
            sharing: ask.usage.sharing(),
            mcs_label: ask.mcs_label.clone(),
            partition: Some(ask.partition.clone()),
            expected_end: ask.expected_end,
            completing: false,
            kept: false,
            parked: false,
        };
        let instead_of = kept.map(Box::new);
        let caps = ask.caps.of(ask.usage);
        self.insert(Entry { hold, attempt: ask.attempt, most_holders: ask.usage.most_holders(), caps, instead_of });
        Reserved::Taken
    }

    /// Restores a hold that a job's record says exists. Not checked: the allocation was made and is valid.
    pub fn restore(&mut self, kept: KeptHold) {
        let KeptHold { hold, most_holders, caps } = kept;
        self.insert(Entry { hold, attempt: 0, most_holders, caps, instead_of: None });
    }

    fn insert(&mut self, entry: Entry) {
        self.entries.insert((entry.hold.job, entry.hold.sluid), entry);
        self.recount();
    }

    fn take_kept(&mut self, job: JobId) -> Option<Entry> {
        let of_job = (job, Sluid(0))..=(job, Sluid(u64::MAX));
        let key = self.entries.range(of_job).find(|(_, e)| e.hold.kept).map(|(key, _)| *key)?;
        let entry = self.entries.remove(&key);
        self.recount();
        entry
    }

    fn put_back(&mut self, kept: Option<Entry>) {
        if let Some(entry) = kept {
            self.insert(entry);
        }
    }

    /// A run is suspended: its CPUs are free from now on. True if that is new.
    pub fn park(&mut self, job: JobId, sluid: Sluid) -> bool {
        match self.entries.get_mut(&(job, sluid)) {
            Some(entry) if !entry.hold.parked && !entry.hold.kept && !entry.hold.completing => {
                entry.hold.parked = true;
                self.recount();
                true
            }
            _ => false,
        }
    }

    /// A parked run wants its CPUs back. `None`: another job has them; otherwise whether it was parked.
    pub fn unpark(&mut self, shape: &NodeShape, job: JobId, sluid: Sluid) -> Option<bool> {
        let entry = self.entries.get(&(job, sluid)).filter(|entry| !entry.hold.kept)?;
        if !entry.hold.parked {
            return (!entry.hold.completing).then_some(false);
        }
        let hold = entry.hold.clone();
        let mine = |e: &Entry| (e.hold.job, e.hold.sluid) == (job, sluid);
        let others = || self.all_entries().filter(|e| !mine(e) && !e.hold.parked);
        let alone = |e: &Entry| e.hold.sharing == Sharing::Exclusive;
        let welcome = |e: &Entry| !alone(e) && lets_in(&e.hold, hold.uid, hold.mcs_label.as_deref());
        let may_come = match hold.sharing {
            Sharing::Exclusive => others().next().is_none(),
            _ => others().all(welcome),
        };
        let shares = || hold.sharing == Sharing::Oversubscribe && self.may_share_again(entry);
        if !self.caps_allow(shape, entry.caps, (hold.partition.as_deref(), &hold.share.cpus)) {
            return None;
        }
        if hold.completing || !may_come || !(hold.share.cpus.is_disjoint(&self.cpus) || shares()) {
            return None;
        }
        self.entries.get_mut(&(job, sluid))?.hold.parked = false;
        self.recount();
        Some(true)
    }

    /// May it share the CPUs that it had with the jobs that share them now?
    fn may_share_again(&self, entry: &Entry) -> bool {
        entry.hold.share.cpus.iter().all(|cpu| {
            let there = |e: &&Entry| !e.hold.parked && e.hold.share.cpus.contains(cpu);
            let mut holders = 0;
            self.all_entries().filter(there).all(|e| {
                holders += 1;
                e.hold.sharing == Sharing::Oversubscribe && holders < entry.most_holders.min(e.most_holders)
            })
        })
    }

    /// A run left the node; its share stays with the job. True if that is new.
    pub fn keep(&mut self, job: JobId, sluid: Sluid) -> bool {
        match self.entries.get_mut(&(job, sluid)) {
            Some(entry) if !entry.hold.kept => {
                (entry.hold.kept, entry.hold.completing, entry.hold.expected_end) = (true, false, None);
                true
            }
            _ => false,
        }
    }

    fn fits(&self, shape: &NodeShape, ask: &ReserveAsk) -> bool {
        let share = &ask.share;
        let holds = || self.entries.values().map(|e| &e.hold);
        let keeps = |hold: &NodeHold| matches!(hold.sharing, Sharing::User | Sharing::Mcs);
        let neighbours = || holds().any(|hold| !hold.parked || keeps(hold));
        let alone = self.all_entries().any(|e| e.hold.sharing == Sharing::Exclusive && !e.hold.parked);
        let for_others = self.all_entries().any(|e| !lets_in(&e.hold, ask.uid, ask.mcs_label.as_deref()));
        let may_come = match ask.usage {
            NodeUse::Whole => !neighbours(),
            NodeUse::User => !alone && holds().all(|hold| hold.uid == ask.uid && hold.sharing != Sharing::Mcs),
            NodeUse::Label => {
                !alone && holds().all(|hold| hold.mcs_label == ask.mcs_label && hold.sharing != Sharing::User)
            }
            NodeUse::Cpus | NodeUse::Oversubscribe(_) => !alone && !for_others,
        };
        let memory = share.memory.unwrap_or(MemoryMib(0)).0;
        let gpus = devices_used(&share.gres, GPU);
        let allowed = match (ask.usage, ask.left_to_system) {
            (NodeUse::Whole, Some(left)) => {
                shape.job_cpus_but(left).difference(&shape.cpus_of_gpus(|gpu| !gpus.contains(gpu)))
            }
            _ => shape.job_cpus_with(&gpus),
        };
        may_come
            && !share.cpus.is_empty()
            && share.cpus.is_subset(&allowed)
            && self.within_caps(shape, ask)
            && self.memory.saturating_add(memory) <= shape.job_memory()
            && self.free_gres(shape).has(&shape.gres, &share.gres)
            && (share.cpus.is_disjoint(&self.cpus) || self.may_share(ask))
    }

    /// Would the partition stay within its CPU limits?
    fn within_caps(&self, shape: &NodeShape, ask: &ReserveAsk) -> bool {
        !ask.caps.count(ask.usage) || self.caps_allow(shape, ask.caps, (Some(ask.partition.as_str()), &ask.share.cpus))
    }

    /// May the partition have these CPUs besides those that its jobs hold?
    fn caps_allow(&self, shape: &NodeShape, caps: CpuCaps, (partition, cpus): (Option<&str>, &CpuSet)) -> bool {
        let mut cpus = cpus.clone();
        let there = self.entries.values().map(|entry| &entry.hold).filter(|hold| !hold.parked);
        let own = there.filter(|hold| hold.partition.as_deref() == partition);
        own.for_each(|hold| cpus.add(&hold.share.cpus));
        caps.allow(shape, &cpus)
    }

    /// Generic resources without a holder. What an attempt takes of its kept share counts once.
    fn free_gres(&self, shape: &NodeShape) -> GresPool {
        let mut pool = GresPool::all(&shape.gres);
        for entry in self.entries.values() {
            let own = &entry.hold.share.gres;
            pool.take(&shape.gres, own);
            if let Some(before) = &entry.instead_of {
                pool.take(&shape.gres, &beyond(&before.hold.share.gres, own));
            }
        }
        pool
    }

    /// All entries, including kept ones that attempts replaced.
    fn all_entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.values().flat_map(|entry| std::iter::once(entry).chain(entry.instead_of.as_deref()))
    }

    fn may_share(&self, ask: &ReserveAsk) -> bool {
        let NodeUse::Oversubscribe(most) = ask.usage else { return false };
        ask.share.cpus.iter().all(|cpu| {
            let mut holders = 0;
            for entry in self.all_entries().filter(|e| !e.hold.parked && e.hold.share.cpus.contains(cpu)) {
                holders += 1;
                if entry.hold.sharing != Sharing::Oversubscribe || holders >= most.min(entry.most_holders) {
                    return false;
                }
            }
            true
        })
    }

    /// Releases a share. With `attempt`, only what that attempt or an earlier one reserved: a run makes one attempt after the
    /// other. True if something was held.
    pub fn release(&mut self, job: JobId, sluid: Sluid, attempt: Option<u64>) -> bool {
        let held = self.entries.get(&(job, sluid)).is_some_and(|e| attempt.is_none_or(|a| e.attempt <= a));
        if held {
            let entry = self.entries.remove(&(job, sluid));
            self.recount();
            let kept = entry.and_then(|e| e.instead_of).filter(|_| attempt.is_some());
            self.put_back(kept.map(|kept| *kept));
        } else if attempt.is_none() {
            // The released share may have made room for an attempt that is still in progress.
            for entry in self.entries.values_mut() {
                if entry.instead_of.as_ref().is_some_and(|e| (e.hold.job, e.hold.sluid) == (job, sluid)) {
                    entry.instead_of = None;
                }
            }
            self.recount();
        }
        held
    }

    /// Marks a run's work here as over. True if that is new.
    pub fn completing(&mut self, job: JobId, sluid: Sluid, now: Timestamp) -> bool {
        match self.entries.get_mut(&(job, sluid)) {
            Some(entry) if !entry.hold.completing && !entry.hold.kept => {
                entry.hold.completing = true;
                // It is expected to be gone any moment.
                entry.hold.expected_end = Some(now);
                true
            }
            _ => false,
        }
    }

    /// Changes a run's expected end. True if that is new.
    pub fn move_end(&mut self, job: JobId, sluid: Sluid, end: Option<Timestamp>) -> bool {
        match self.entries.get_mut(&(job, sluid)) {
            Some(entry) if !entry.hold.completing && !entry.hold.kept && entry.hold.expected_end != end => {
                entry.hold.expected_end = end;
                true
            }
            _ => false,
        }
    }

    /// All holds, by job.
    pub fn holds(&self) -> impl Iterator<Item = &NodeHold> {
        self.entries.values().map(|e| &e.hold)
    }

    /// Holds kept for jobs, including those that attempts replaced.
    pub fn all_kept(&self) -> impl Iterator<Item = &NodeHold> {
        self.all_entries().map(|e| &e.hold).filter(|hold| hold.kept)
    }

    /// Holds in the form from which recovery restores them.
    pub fn kept(&self) -> impl Iterator<Item = KeptHold> + '_ {
        self.entries.values().map(|e| KeptHold { hold: e.hold.clone(), most_holders: e.most_holders, caps: e.caps })
    }

    /// Nobody holds anything.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn recount(&mut self) {
        let mut cpus = CpuSet::new();
        let mut memory: u64 = 0;
        for entry in self.entries.values() {
            let before = entry.instead_of.as_deref();
            if !entry.hold.parked {
                cpus.add(&entry.hold.share.cpus);
            }
            before.iter().for_each(|before| cpus.add(&before.hold.share.cpus));
            let of = |entry: &Entry| entry.hold.share.memory.map_or(0, |m| m.0);
            memory = memory.saturating_add(of(entry).max(before.map_or(0, of)));
        }
        (self.cpus, self.memory) = (cpus, memory);
    }

    /// Checks all invariants; the error names the violation.
    pub fn sanity_check(&self, shape: &NodeShape) -> Result<(), String> {
        let mut recounted = self.clone();
        recounted.recount();
        if recounted != *self {
            return Err(format!(
                "counted {} and {} MiB, holds say {} and {}",
                self.cpus, self.memory, recounted.cpus, recounted.memory
            ));
        }
        if !self.cpus.is_subset(&shape.all_cpus()) {
            return Err(format!("CPUs {} of a node with {}", self.cpus, shape.cpus));
        }
        let entries: Vec<&Entry> = self.entries.values().collect();
        for (i, a) in entries.iter().enumerate() {
            let alone = a.hold.sharing == Sharing::Exclusive;
            let awake = entries.iter().filter(|b| !b.hold.parked).count();
            if alone && !a.hold.parked && awake > 1 {
                return Err(format!("job {} has the node alone, and {} neighbours", a.hold.job.0, awake - 1));
            }
            if let Some(b) = entries.iter().find(|b| !lets_in(&a.hold, b.hold.uid, b.hold.mcs_label.as_deref())) {
                return Err(format!(
                    "job {} keeps the node from others, and job {} is there",
                    a.hold.job.0, b.hold.job.0
                ));
            }
            for b in &entries[i + 1..] {
                let common = a.hold.share.cpus.intersection(&b.hold.share.cpus);
                let both_share = a.hold.sharing == Sharing::Oversubscribe && b.hold.sharing == Sharing::Oversubscribe;
                if !common.is_empty() && !both_share && !a.hold.parked && !b.hold.parked {
                    return Err(format!("CPUs {common} given to jobs {} and {}", a.hold.job.0, b.hold.job.0));
                }
            }
        }
        for (place, one) in shape.gres.iter().enumerate().filter(|(_, one)| !one.no_consume) {
            let of = |entry: &&Entry| {
                let shares = entry.hold.share.gres.iter().filter(|share| place_of(&shape.gres, share) == Some(place));
                shares.fold((0u64, CpuSet::new()), |(n, set), share| (n + share.count, set.union(&share.devices)))
            };
            let held: Vec<(u64, CpuSet)> = entries.iter().map(of).collect();
            let (count, devices) = held.iter().fold((0, CpuSet::new()), |(n, all), (m, set)| (n + m, all.union(set)));
            let twice = one.devices && u64::from(devices.len()) != count;
            let shards = |share: &&GresShare| share.name == one.name && share.kind == one.kind;
            let all = || entries.iter().flat_map(|entry| &entry.hold.share.gres);
            for (gpu, most) in (0u32..).zip(&one.shards) {
                let of_gpu = all().filter(shards).filter(|share| share.devices.contains(gpu));
                let given: u64 = of_gpu.map(|share| share.count).sum();
                let whole = all().any(|share| share.name == GPU && share.devices.contains(gpu));
                if given > *most || (whole && given > 0) {
                    return Err(format!("{given} shards given of GPU {gpu}, which has {most}, whole: {whole}"));
                }
            }
            if count > one.count || twice {
                return Err(format!("{count} of {one} given, devices {devices}"));
            }
        }
        if self.memory > shape.memory.0 {
            return Err(format!("{} MiB given of {}", self.memory, shape.memory.0));
        }
        Ok(())
    }
}

/// What some shares have beyond others.
fn beyond(shares: &[GresShare], others: &[GresShare]) -> Vec<GresShare> {
    let more = shares.iter().filter_map(|share| {
        let shards = share.name == SHARD;
        let same = |other: &&GresShare| {
            other.name == share.name && other.kind == share.kind && (!shards || other.devices == share.devices)
        };
        let Some(other) = others.iter().find(same) else { return Some(share.clone()) };
        let devices = if shards { share.devices.clone() } else { share.devices.difference(&other.devices) };
        let count = match shards || share.devices.is_empty() {
            true => share.count.saturating_sub(other.count),
            false => u64::from(devices.len()),
        };
        (count > 0).then(|| GresShare { count, devices, ..share.clone() })
    });
    more.collect()
}

/// May a job of that user and MCS label be on the node beside it? Not for holds of whole nodes.
fn lets_in(hold: &NodeHold, uid: u32, mcs_label: Option<&str>) -> bool {
    match hold.sharing {
        Sharing::User => hold.uid == uid,
        Sharing::Mcs => hold.mcs_label.as_deref() == mcs_label,
        _ => true,
    }
}
