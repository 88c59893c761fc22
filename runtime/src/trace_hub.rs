//! Where trace records are kept: a bounded ring per actor, read on demand.
//!
//! The host of an actor writes one fixed-size record per message into its own ring; nothing is formatted or sent then. Readers
//! copy records ([`TraceHub::collect`]) or receive them in a bounded queue of their own ([`TraceHub::follow`]). Each ring also
//! counts its actor's messages by name; while tracing is off, that is a message's only cost here.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use dashmap::DashMap;
use tokio::sync::Notify;

use crate::{
    counts::{Counts, EndedCounts, MessageCount, Tally},
    path::ActorPath,
    trace::{Outcome, TraceContext, TraceRecord},
};

/// Panic texts kept per ring, so that records stay of fixed size.
const PANICS_KEPT: usize = 8;
/// Records a ring may hold even when the process is at its overall limit.
const RING_FLOOR: usize = 4;
/// Records waiting for one follower; more are counted as lost.
const FOLLOWER_LEN: usize = 8192;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A record as rings hold it.
#[derive(Clone, Copy)]
struct RingRecord {
    seq: u64,
    at_us: i64,
    cx: TraceContext,
    id: u64,
    message: &'static str,
    queue_us: u64,
    handle_us: u64,
    outcome: RingOutcome,
}

#[derive(Clone, Copy)]
enum RingOutcome {
    Ok,
    Panic,
    Dropped,
}

struct RingState {
    records: VecDeque<RingRecord>,
    /// Texts of the last panics, by `seq`.
    panics: VecDeque<(u64, String)>,
    followers: Vec<Arc<FollowerQueue>>,
    counts: Counts,
}

/// The records of one actor. Written by its host alone.
pub(crate) struct Ring {
    path: ActorPath,
    state: Mutex<RingState>,
    shared: Arc<Shared>,
}

struct FollowerQueue {
    prefixes: Vec<String>,
    records: Mutex<VecDeque<TraceRecord>>,
    lost: AtomicU64,
    gone: AtomicBool,
    arrived: Notify,
}

/// What rings need of the hub.
struct Shared {
    enabled: AtomicBool,
    ring_len: usize,
    /// Most records that all rings together may hold.
    total_len: usize,
    held: AtomicUsize,
    seq: AtomicU64,
    /// Fixed pair of clocks, to turn monotonic times into wall-clock ones cheaply.
    epoch: (Instant, i64),
}

struct Hub {
    shared: Arc<Shared>,
    /// Rings of ended actors that are kept.
    retired_len: usize,
    rings: DashMap<ActorPath, Arc<Ring>>,
    retired: Mutex<VecDeque<Arc<Ring>>>,
    ended: Mutex<EndedCounts>,
    /// How often actors were started again after a panic, by the first part of their paths.
    restarts: Mutex<BTreeMap<String, u64>>,
    followers: Mutex<Vec<Arc<FollowerQueue>>>,
}

/// All trace rings of a system. Cheap to clone.
#[derive(Clone)]
pub struct TraceHub(Arc<Hub>);

impl std::fmt::Debug for TraceHub {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TraceHub({} records)", self.0.shared.held.load(Ordering::Relaxed))
    }
}

fn matches(path: &ActorPath, prefixes: &[String]) -> bool {
    prefixes.is_empty() || prefixes.iter().any(|prefix| path.is_under(prefix))
}

impl TraceHub {
    pub(crate) fn new(enabled: bool, ring_len: usize, total_len: usize, retired_len: usize) -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let shared = Shared {
            enabled: AtomicBool::new(enabled),
            ring_len: ring_len.max(1),
            total_len,
            held: AtomicUsize::new(0),
            seq: AtomicU64::new(1),
            epoch: (Instant::now(), i64::try_from(wall.as_micros()).unwrap_or(i64::MAX)),
        };
        Self(Arc::new(Hub {
            shared: Arc::new(shared),
            retired_len,
            rings: DashMap::new(),
            retired: Mutex::new(VecDeque::new()),
            ended: Mutex::new(EndedCounts::default()),
            restarts: Mutex::new(BTreeMap::new()),
            followers: Mutex::new(Vec::new()),
        }))
    }

    /// Whether records are kept.
    pub fn is_enabled(&self) -> bool {
        self.0.shared.enabled.load(Ordering::Relaxed)
    }

    /// Switches records on or off; what the rings hold stays. Contexts and ids travel with messages either way.
    pub fn set_enabled(&self, enabled: bool) {
        self.0.shared.enabled.store(enabled, Ordering::Relaxed);
    }

    /// The records that the rings hold now of actors at or below any of `prefixes` (of all actors if there are none),
    /// in the order in which handling began. Actors that ended lately are included.
    pub fn collect(&self, prefixes: &[String]) -> Vec<TraceRecord> {
        // The rings are cloned out first: a guard of the map is never held while a ring is locked.
        let mut rings: Vec<Arc<Ring>> = self
            .0
            .rings
            .iter()
            .filter(|entry| matches(entry.key(), prefixes))
            .map(|entry| Arc::clone(&entry))
            .collect();
        rings.extend(lock(&self.0.retired).iter().filter(|ring| matches(&ring.path, prefixes)).cloned());
        let mut records: Vec<TraceRecord> = Vec::new();
        for ring in rings {
            let state = lock(&ring.state);
            records.extend(state.records.iter().map(|record| ring.export(record, &state.panics)));
        }
        records.sort_unstable_by_key(|record| record.seq);
        records
    }

    /// How many messages each actor at or below any of `prefixes` (each actor if there are none) handled since it was
    /// started, by name; of actors that ended, by parent. Sorted by actor and name. Counted whether records are kept or not.
    pub fn counts(&self, prefixes: &[String]) -> Vec<MessageCount> {
        let rings: Vec<Arc<Ring>> = self
            .0
            .rings
            .iter()
            .filter(|entry| matches(entry.key(), prefixes))
            .map(|entry| Arc::clone(&entry))
            .collect();
        let mut counts = lock(&self.0.ended).list(|parent| matches(parent, prefixes));
        for ring in rings {
            counts.extend(lock(&ring.state).counts.list(ring.path.as_str().to_owned()));
        }
        counts.sort_unstable_by(|a, b| (&a.actor, a.message).cmp(&(&b.actor, b.message)));
        counts
    }

    /// How often actors were started again after a panic since the system was started, by the first part of their paths (`/job`).
    /// Kinds without a restart are not in it.
    pub fn restarts(&self) -> BTreeMap<String, u64> {
        lock(&self.0.restarts).clone()
    }

    pub(crate) fn restarted(&self, path: &ActorPath) {
        *lock(&self.0.restarts).entry(path.kind().to_owned()).or_default() += 1;
    }

    /// Follows the actors at or below any of `prefixes` (all if there are none), also those yet to be started: every
    /// record from now on, as far as the follower keeps up.
    pub fn follow(&self, prefixes: Vec<String>) -> TraceFollower {
        let queue = Arc::new(FollowerQueue {
            prefixes,
            records: Mutex::new(VecDeque::new()),
            lost: AtomicU64::new(0),
            gone: AtomicBool::new(false),
            arrived: Notify::new(),
        });
        // Held while the rings are looked through, so that a ring made meanwhile finds the follower in the list.
        let mut followers = lock(&self.0.followers);
        followers.retain(|follower| !follower.gone.load(Ordering::Relaxed));
        followers.push(Arc::clone(&queue));
        let rings: Vec<Arc<Ring>> = self.0.rings.iter().map(|entry| Arc::clone(&entry)).collect();
        for ring in rings.iter().filter(|ring| matches(&ring.path, &queue.prefixes)) {
            lock(&ring.state).followers.push(Arc::clone(&queue));
        }
        drop(followers);
        TraceFollower { queue }
    }

    /// Makes the ring of an actor that starts.
    pub(crate) fn ring(&self, path: &ActorPath) -> Arc<Ring> {
        let mut followers = lock(&self.0.followers);
        followers.retain(|follower| !follower.gone.load(Ordering::Relaxed));
        let mine = followers.iter().filter(|follower| matches(path, &follower.prefixes)).cloned().collect();
        let ring = Arc::new(Ring {
            path: path.clone(),
            state: Mutex::new(RingState {
                records: VecDeque::new(),
                panics: VecDeque::new(),
                followers: mine,
                counts: Counts::default(),
            }),
            shared: Arc::clone(&self.0.shared),
        });
        self.0.rings.insert(path.clone(), Arc::clone(&ring));
        ring
    }

    /// Keeps the ring of an actor that ended among the last few.
    pub(crate) fn retire(&self, ring: &Arc<Ring>) {
        self.0.rings.remove_if(&ring.path, |_, held| Arc::ptr_eq(held, ring));
        let mut state = lock(&ring.state);
        state.followers.clear();
        let counts = std::mem::take(&mut state.counts);
        let empty = state.records.is_empty();
        drop(state);
        lock(&self.0.ended).add(&ring.path, &counts);
        if empty {
            return;
        }
        let mut retired = lock(&self.0.retired);
        retired.push_back(Arc::clone(ring));
        while retired.len() > self.0.retired_len {
            retired.pop_front();
        }
    }
}

/// A message whose handling has begun, for the record written at its end.
pub(crate) struct Begun {
    seq: u64,
    at: Instant,
}

impl Ring {
    /// Notes that handling begins now; `None` while tracing is off.
    pub(crate) fn begin(&self) -> Option<Begun> {
        if !self.shared.enabled.load(Ordering::Relaxed) {
            return None;
        }
        Some(Begun { seq: self.shared.seq.fetch_add(1, Ordering::Relaxed), at: Instant::now() })
    }

    /// Counts a message that was handled while no records are kept.
    pub(crate) fn count(&self, message: &'static str) {
        lock(&self.state).counts.add(message, Tally::ONE);
    }

    /// Writes the record of a message handled (or dropped, then `begun` is now).
    pub(crate) fn record(
        &self,
        begun: &Begun,
        cx: TraceContext,
        id: u64,
        queued: Option<Instant>,
        message: &'static str,
        outcome: &Outcome,
    ) {
        let waited = queued.map_or(Duration::ZERO, |queued| begun.at.saturating_duration_since(queued));
        let handling = match outcome {
            Outcome::Dropped => Duration::ZERO,
            Outcome::Ok | Outcome::Panic(_) => begun.at.elapsed(),
        };
        let record = RingRecord {
            seq: begun.seq,
            at_us: self.shared.wall_us(begun.at),
            cx,
            id,
            message,
            queue_us: micros(waited),
            handle_us: micros(handling),
            outcome: match outcome {
                Outcome::Ok => RingOutcome::Ok,
                Outcome::Panic(_) => RingOutcome::Panic,
                Outcome::Dropped => RingOutcome::Dropped,
            },
        };
        let mut state = lock(&self.state);
        if !matches!(outcome, Outcome::Dropped) {
            state.counts.add(message, Tally { handled: 1, queued: waited, handling });
        }
        if let Outcome::Panic(text) = outcome {
            if state.panics.len() == PANICS_KEPT {
                state.panics.pop_front();
            }
            state.panics.push_back((record.seq, text.clone()));
        }
        let full = state.records.len() >= self.shared.ring_len
            || (state.records.len() >= RING_FLOOR && self.shared.held.load(Ordering::Relaxed) >= self.shared.total_len);
        if full {
            state.records.pop_front();
        } else {
            self.shared.held.fetch_add(1, Ordering::Relaxed);
        }
        state.records.push_back(record);
        if !state.followers.is_empty() {
            let exported = self.export(&record, &state.panics);
            state.followers.retain(|follower| follower.offer(&exported));
        }
    }

    fn export(&self, record: &RingRecord, panics: &VecDeque<(u64, String)>) -> TraceRecord {
        TraceRecord {
            seq: record.seq,
            at_us: record.at_us,
            trace: record.cx.trace,
            id: record.id,
            cause: record.cx.cause,
            actor: self.path.clone(),
            message: record.message,
            queue_us: record.queue_us,
            handle_us: record.handle_us,
            outcome: match record.outcome {
                RingOutcome::Ok => Outcome::Ok,
                RingOutcome::Dropped => Outcome::Dropped,
                RingOutcome::Panic => Outcome::Panic(
                    panics
                        .iter()
                        .find(|(seq, _)| *seq == record.seq)
                        .map_or_else(String::new, |(_, text)| text.clone()),
                ),
            },
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        let held = lock(&self.state).records.len();
        self.shared.held.fetch_sub(held, Ordering::Relaxed);
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

impl Shared {
    fn wall_us(&self, at: Instant) -> i64 {
        let since = at.saturating_duration_since(self.epoch.0);
        self.epoch.1.saturating_add(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
    }
}

impl FollowerQueue {
    /// False when the follower has gone.
    fn offer(&self, record: &TraceRecord) -> bool {
        if self.gone.load(Ordering::Relaxed) {
            return false;
        }
        let mut records = lock(&self.records);
        if records.len() >= FOLLOWER_LEN {
            drop(records);
            self.lost.fetch_add(1, Ordering::Relaxed);
        } else {
            records.push_back(record.clone());
            drop(records);
        }
        self.arrived.notify_one();
        true
    }
}

/// The reading end of [`TraceHub::follow`]; dropping it ends the following.
pub struct TraceFollower {
    queue: Arc<FollowerQueue>,
}

impl TraceFollower {
    /// Waits for records and takes all that wait, in the order in which their handling ended, with the number of
    /// records lost since the last call because too many were waiting.
    ///
    /// Never resolves with nothing; dropping the future loses nothing.
    pub async fn next_batch(&mut self) -> (Vec<TraceRecord>, u64) {
        loop {
            if let Some(batch) = self.try_batch() {
                return batch;
            }
            self.queue.arrived.notified().await;
        }
    }

    /// As [`next_batch`](Self::next_batch), without waiting.
    pub fn try_batch(&mut self) -> Option<(Vec<TraceRecord>, u64)> {
        let records: Vec<TraceRecord> = lock(&self.queue.records).drain(..).collect();
        let lost = self.queue.lost.swap(0, Ordering::Relaxed);
        (!records.is_empty() || lost > 0).then_some((records, lost))
    }
}

impl std::fmt::Debug for TraceFollower {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TraceFollower").field("prefixes", &self.queue.prefixes).finish_non_exhaustive()
    }
}

impl Drop for TraceFollower {
    fn drop(&mut self) {
        self.queue.gone.store(true, Ordering::Relaxed);
        // Rings drop their hold at their next record; what waits here is let go now.
        lock(&self.queue.records).clear();
    }
}
