//! A log in memory that does what its driver says, for tests and for the simulator: it commits when it is told how much, is busy,
//! loses its leadership and dies at the points that its driver chooses. Nothing in it depends on time or on threads.

use crate::log::{
    AppendError, Appended, Committed, Feed, FollowError, Follower, Log, Past, committed::Committed as Value,
};
use garrick_events::{
    event::{ControllerEvent, Replayed},
    progress::{Position, Progress},
};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

struct Batch {
    events: Vec<ControllerEvent>,
    done: Appended,
}

/// What outlives a crash.
#[derive(Debug, Default)]
struct Saved {
    /// All that was ever committed.
    records: Vec<ControllerEvent>,
    /// The oldest position that followers can have.
    oldest: Position,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Batch>,
    refuses: Option<AppendError>,
    /// Refuses so many offers of a thousand as busy, by this seed.
    unsteady: Option<(u64, u32)>,
    /// Commits only when told.
    held: bool,
}

/// See the module. Clones are the same log.
#[derive(Clone)]
pub struct MemoryLog {
    state: Arc<Mutex<State>>,
    saved: Arc<Mutex<Saved>>,
    value: Value,
    feed: Arc<Feed>,
}

fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Default for MemoryLog {
    fn default() -> Self {
        Self::of(Arc::new(Mutex::new(Saved { records: Vec::new(), oldest: Position(1) })))
    }
}

impl MemoryLog {
    fn of(saved: Arc<Mutex<Saved>>) -> Self {
        let mut replayed = Replayed::default();
        for record in &locked(&saved).records {
            if let Err(error) = replayed.apply(record) {
                tracing::error!(%error, "log.event_does_not_fit");
            }
        }
        let feed = Arc::new(Feed::new(replayed.progress.clone()));
        Self { state: Arc::default(), saved, value: Value::new(replayed), feed }
    }

    /// All events that are committed, and what was said of the log itself.
    pub fn events(&self) -> Vec<ControllerEvent> {
        locked(&self.saved).records.clone()
    }

    /// From here on nothing is committed before [`Self::commit`], or no longer so.
    pub fn hold(&self, held: bool) {
        locked(&self.state).held = held;
        if !held {
            self.commit(usize::MAX);
        }
    }

    /// Appends that wait to be committed.
    pub fn waiting(&self) -> usize {
        locked(&self.state).waiting.len()
    }

    /// So many of the appends that wait are committed, the oldest first, and answered. Returns how many there were.
    pub fn commit(&self, appends: usize) -> usize {
        let mut count = 0;
        while count < appends {
            // Answers call back, perhaps into this log.
            let Some(Batch { events, done }) = locked(&self.state).waiting.pop_front() else { break };
            done.reply(Ok(self.save(events)));
            count += 1;
        }
        count
    }

    fn save(&self, events: Vec<ControllerEvent>) -> Position {
        // Before those hear of it who follow.
        let mut saved = locked(&self.saved);
        saved.records.extend_from_slice(&events);
        self.value.advance(&events);
        drop(saved);
        self.feed.commit(self.feed.batch(events))
    }

    /// It has no room, or has again.
    pub fn busy(&self, after: Option<Duration>) {
        locked(&self.state).refuses = after.map(|after| AppendError::Busy { after });
    }

    /// From here on it is busy for so many of a thousand offers, by this seed.
    pub fn unsteady(&self, seed: u64, of_thousand: u32) {
        locked(&self.state).unsteady = Some((seed | 1, of_thousand));
    }

    /// Another leads now. Of the appends that wait, it has so many of the oldest, and no other; this one cannot tell, and answers
    /// that they failed.
    pub fn lose(&self, leader: Option<String>, known_there: usize) {
        let mut state = locked(&self.state);
        state.refuses = Some(AppendError::NotLeader { leader });
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        for (number, Batch { events, done }) in waiting.into_iter().enumerate() {
            if number < known_there {
                self.save(events);
            }
            done.reply(Err(AppendError::Failed("another controller leads since before it was committed".into())));
        }
    }

    /// It leads again.
    pub fn lead(&self) {
        locked(&self.state).refuses = None;
    }

    /// The process dies. So many of the appends that wait came through as a whole, the oldest; nobody is answered. Returns the
    /// log as the next process opens it.
    #[must_use]
    pub fn crash(&self, came_through: usize) -> Self {
        let waiting = std::mem::take(&mut locked(&self.state).waiting);
        let whole = waiting.into_iter().take(came_through);
        locked(&self.saved).records.extend(whole.flat_map(|batch| batch.events));
        Self::of(Arc::clone(&self.saved))
    }

    /// Purges all that nobody registered waits for.
    pub fn purge(&self) {
        let progress = self.feed.progress();
        let upto = progress.slowest().map_or(progress.position, |(_, upto)| upto);
        let mut saved = locked(&self.saved);
        saved.oldest = saved.oldest.max(upto.next());
    }

    /// The next number of the seed (xorshift64).
    fn turned_away(state: &mut State) -> Option<AppendError> {
        let (seed, of_thousand) = state.unsteady.as_mut()?;
        *seed ^= *seed << 13;
        *seed ^= *seed >> 7;
        *seed ^= *seed << 17;
        ((*seed >> 16) % 1000 < u64::from(*of_thousand))
            .then_some(AppendError::Busy { after: Duration::from_millis((*seed >> 32) % 5000 + 1) })
    }
}

impl Log for MemoryLog {
    fn append(&self, events: Vec<ControllerEvent>, done: Appended) {
        let mut state = locked(&self.state);
        if let Some(why @ AppendError::NotLeader { .. }) = state.refuses.clone() {
            drop(state);
            return done.reply(Err(why));
        }
        state.waiting.push_back(Batch { events, done });
        let held = state.held;
        drop(state);
        if !held {
            self.commit(usize::MAX);
        }
    }

    fn offer(&self, events: Vec<ControllerEvent>, done: Appended) {
        let refused = self.refuses().or_else(|| Self::turned_away(&mut locked(&self.state)));
        match refused {
            Some(why) => done.reply(Err(why)),
            None => self.append(events, done),
        }
    }

    fn refuses(&self) -> Option<AppendError> {
        locked(&self.state).refuses.clone()
    }

    fn committed(&self) -> Position {
        self.feed.committed()
    }

    fn value(&self) -> Value {
        self.value.clone()
    }

    fn oldest(&self) -> Position {
        locked(&self.saved).oldest
    }

    fn followers(&self) -> BTreeMap<String, Position> {
        self.feed.followers()
    }

    fn subscribe(&self, from: Position) -> Result<Follower, FollowError> {
        self.feed.subscribe(from, self.oldest(), Arc::new(Records(Arc::clone(&self.saved))))
    }
}

/// Everything that is saved, for who is behind.
struct Records(Arc<Mutex<Saved>>);

impl Past for Records {
    fn read(&self, from: Position, to: Position) -> Result<Vec<Committed>, FollowError> {
        let saved = locked(&self.0);
        if from < saved.oldest {
            return Err(FollowError::Purged { asked: from, oldest: saved.oldest });
        }
        let mut progress = Progress::default();
        let mut found = Vec::new();
        for record in &saved.records {
            if progress.note(record) && (from..=to).contains(&progress.position) {
                found.push(Committed { position: progress.position, event: Arc::new(record.clone()) });
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::{
        super::contract::{self, Bench, Opened},
        *,
    };
    use garrick_events::event::Replayed;
    use garrick_runtime::ReplyTo;

    #[derive(Default)]
    struct InMemory(MemoryLog);

    impl Bench for InMemory {
        fn open(&mut self) -> Opened {
            self.0 = self.0.crash(0);
            let mut replayed = Replayed::default();
            self.0.events().iter().for_each(|event| replayed.apply(event).unwrap());
            Opened { log: Arc::new(self.0.clone()), replayed }
        }
        fn settle(&mut self) {
            self.0.busy(None);
            self.0.hold(false);
        }
        fn hold(&mut self) -> bool {
            self.0.hold(true);
            true
        }
        fn crash(&mut self, batch: Vec<ControllerEvent>, point: usize) -> bool {
            self.0.hold(true);
            self.0.append(batch, ReplyTo::calling(|answer| assert!(answer.is_err(), "nobody is answered")));
            self.0 = self.0.crash(point);
            point < 5
        }
        fn purge(&mut self) -> bool {
            self.0.purge();
            true
        }
        fn busy(&mut self) -> bool {
            self.0.busy(Some(Duration::from_secs(1)));
            true
        }
        fn lose(&mut self) -> bool {
            self.0.lose(Some("host2".to_owned()), 0);
            true
        }
    }

    #[test]
    fn the_log_in_memory_keeps_its_promises() {
        contract::keeps_its_promises(InMemory::default);
    }

    fn started(epoch: u64) -> ControllerEvent {
        ControllerEvent::Started { epoch }
    }

    #[test]
    fn of_what_waits_when_the_lead_is_lost_nobody_can_tell() {
        let log = MemoryLog::default();
        log.hold(true);
        let mut answers = Vec::new();
        for epoch in 1..4 {
            let (done, told) = ReplyTo::channel();
            log.append(vec![started(epoch)], done);
            answers.push(told);
        }
        assert_eq!(log.commit(1), 1);
        log.lose(None, 1);
        let told = |n: usize, answers: &mut Vec<garrick_runtime::PendingReply<_>>| answers[n].try_take();
        assert_eq!(told(0, &mut answers), Some(Ok(Ok(Position(1)))));
        assert!((1..3).all(|n| matches!(told(n, &mut answers), Some(Ok(Err(AppendError::Failed(_)))))));
        assert_eq!((log.events(), log.committed()), (vec![started(1), started(2)], Position(2)));
        let (done, mut refused) = ReplyTo::channel();
        log.append(vec![started(9)], done);
        assert_eq!(refused.try_take(), Some(Ok(Err(AppendError::NotLeader { leader: None }))));
        log.lead();
        assert_eq!(log.refuses(), None);
    }

    #[test]
    fn an_unsteady_log_refuses_the_same_offers_for_the_same_seed() {
        let run = |seed| {
            let log = MemoryLog::default();
            log.unsteady(seed, 300);
            let answers: Vec<bool> = (1..200)
                .map(|epoch| {
                    let (done, mut told) = ReplyTo::channel();
                    log.offer(vec![started(epoch)], done);
                    told.try_take().unwrap().unwrap().is_ok()
                })
                .collect();
            let taken = answers.iter().filter(|taken| **taken).count();
            assert_eq!(log.events().len(), taken, "what was refused is not there");
            assert!((100..190).contains(&taken), "{taken}");
            answers
        };
        assert_eq!(run(7), run(7));
        assert_ne!(run(7), run(8));
    }

    #[test]
    fn whoever_waits_is_woken_by_the_next_commit() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let log = MemoryLog::default();
            let mut follower = log.subscribe(Position(1)).unwrap();
            let writer = log.clone();
            let (seen, ()) = tokio::join!(follower.next(), async move {
                writer.append(vec![started(1)], ReplyTo::channel().0);
            });
            assert_eq!(seen.unwrap().event, Arc::new(started(1)));
        });
    }
}
