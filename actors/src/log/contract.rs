//! What a log promises (`docs/log.md`), as tests for any implementation: a [`Bench`] says how one is opened, made to wait, crashed
//! and purged, and each function here is a promise. A bench may put events of its own in between.

use crate::log::{AppendError, FollowError, Follower, Log};
use garrick_events::{
    event::{ControllerEvent, Replayed},
    progress::Position,
    records::partition::SavedPartition,
};
use garrick_runtime::ReplyTo;
use std::sync::{
    Arc,
    mpsc::{Receiver, TryRecvError, channel},
};

/// A log that was opened.
pub struct Opened {
    /// The log.
    pub log: Arc<dyn Log>,
    /// What it holds comes to.
    pub replayed: Replayed,
}

/// An implementation under test, and what can be done to it. Those who cannot do something to theirs say so.
pub trait Bench {
    /// Opens the log, again after all else but [`Bench::settle`], [`Bench::hold`] and [`Bench::busy`].
    fn open(&mut self) -> Opened;
    /// Lets what was appended be committed from here on, where it is held.
    fn settle(&mut self);
    /// Nothing is committed before [`Bench::settle`].
    fn hold(&mut self) -> bool;
    /// The log, which nobody uses any more, dies while it writes this batch, at that one of the points where it can. False:
    /// there is none of that number.
    fn crash(&mut self, batch: Vec<ControllerEvent>, point: usize) -> bool;
    /// Purges as much of the log, which nobody uses any more, as may be, perhaps by appending to it.
    fn purge(&mut self) -> bool;
    /// There is no room, until [`Bench::settle`].
    fn busy(&mut self) -> bool;
    /// Another controller leads.
    fn lose(&mut self) -> bool;
}

/// All of them. `bench` makes an empty one.
pub fn keeps_its_promises<B: Bench>(bench: impl Fn() -> B) {
    positions_have_no_gaps(&mut bench());
    whoever_falls_far_behind_misses_nothing(&mut bench());
    nothing_is_read_before_it_is_committed(&mut bench());
    the_value_is_what_the_committed_events_come_to(&mut bench());
    what_was_answered_outlasts_every_crash_and_is_seen_once(&mut bench());
    purging_waits_for_the_slowest_that_is_registered(&mut bench());
    followers_are_told_what_is_not_there(&mut bench());
    busy_leaves_nothing_behind(&mut bench());
    not_the_leader_leaves_nothing_behind(&mut bench());
}

/// An event that is told from others.
fn event(number: u32) -> ControllerEvent {
    ControllerEvent::Partition { partition: format!("event {number}"), saved: Box::<SavedPartition>::default() }
}

fn events(numbers: std::ops::Range<u32>) -> Vec<ControllerEvent> {
    numbers.map(event).collect()
}

fn number_of(event: &ControllerEvent) -> Option<u32> {
    match event {
        ControllerEvent::Partition { partition, .. } => partition.strip_prefix("event ")?.parse().ok(),
        _ => None,
    }
}

type Answer = Receiver<Result<Position, AppendError>>;

fn reply() -> (ReplyTo<Result<Position, AppendError>>, Answer) {
    let (tell, told) = channel();
    let reply = ReplyTo::calling(move |answer: Result<_, _>| {
        // One that is dropped is not answered.
        if let Ok(answer) = answer {
            let _ = tell.send(answer);
        }
    });
    (reply, told)
}

fn send(log: &dyn Log, events: Vec<ControllerEvent>) -> Answer {
    let (done, told) = reply();
    log.append(events, done);
    told
}

fn append(log: &dyn Log, events: Vec<ControllerEvent>) -> Position {
    send(log, events).recv().expect("an append is answered").expect("an append is committed")
}

fn tell(log: &dyn Log, what: impl FnOnce(&dyn Log, super::Appended)) {
    let (done, told) = reply();
    what(log, done);
    told.recv().expect("an append is answered").expect("an append is committed");
}

/// Events of the tests in what a follower sees up to what is committed; positions are without gaps.
fn seen(follower: &mut Follower) -> Vec<u32> {
    let mut numbers = Vec::new();
    loop {
        let next = follower.position();
        let Some(committed) = follower.try_next().expect("it can be followed") else { return numbers };
        assert_eq!(committed.position, next, "positions follow each other");
        assert_eq!(follower.position(), next.next());
        numbers.extend(number_of(&committed.event));
    }
}

fn from(log: &dyn Log, position: Position) -> Follower {
    log.subscribe(position).expect("it can be followed")
}

fn value(log: &dyn Log) -> Replayed {
    log.value().copy().expect("all events fit")
}

/// The value has an event before whoever appended it is answered, and none that is not committed; after a crash it is what was there.
pub fn the_value_is_what_the_committed_events_come_to(bench: &mut impl Bench) {
    let Opened { log, mut replayed } = bench.open();
    assert_eq!(value(&*log), replayed);
    for batch in [0..1, 1..4, 4..4, 4..6] {
        let (tell, told) = channel();
        let seen = Arc::clone(&log);
        let done = ReplyTo::calling(move |answer: Result<_, _>| {
            let _ = tell.send((answer.ok(), value(&*seen)));
        });
        log.append(events(batch.clone()), done);
        events(batch).iter().for_each(|event| replayed.apply(event).expect("it fits"));
        let (answer, then) = told.recv().expect("an append is answered");
        assert_eq!(answer, Some(Ok(replayed.progress.position)));
        assert_eq!(then, replayed);
    }
    tell(&*log, |log, done| log.register("reader", done));
    assert_eq!(value(&*log).progress.followers, log.followers());
    let before = value(&*log);
    if bench.hold() {
        let answer = send(&*log, events(6..8));
        assert_eq!((answer.try_recv(), value(&*log)), (Err(TryRecvError::Empty), before.clone()));
        bench.settle();
        answer.recv().expect("an append is answered").expect("an append is committed");
    }
    // A copy stays what it was.
    assert!(!before.partitions.contains_key("event 6"));
    let last = value(&*log);
    drop(log);
    let mut point = 0;
    while bench.crash(events(8..13), point) {
        let Opened { log, replayed } = bench.open();
        assert_eq!(value(&*log), replayed);
        assert!(last.partitions.keys().all(|name| replayed.partitions.contains_key(name)));
        drop(log);
        point += 1;
    }
    assert!(point > 0);
}

/// The answer to an append is the position of its last event; events inside of what is saved at once count each.
pub fn positions_have_no_gaps(bench: &mut impl Bench) {
    let Opened { log, replayed } = bench.open();
    let mut last = log.committed();
    assert_eq!(replayed.progress.position, last);
    let mut follower = from(&*log, last.next());
    let mut next = 0;
    for size in [1, 3, 0, 2, 1, 500, 0] {
        let position = append(&*log, events(next..next + size));
        assert_eq!(position, Position(last.0 + u64::from(size)), "of the last of {size}");
        assert_eq!(log.committed(), position);
        (last, next) = (position, next + size);
    }
    assert_eq!(seen(&mut follower), (0..next).collect::<Vec<_>>());
    drop(log);
    let Opened { log, replayed } = bench.open();
    assert_eq!(replayed.progress.position, log.committed());
    assert!(log.committed() >= last);
    assert_eq!(replayed.partitions.keys().filter(|name| name.starts_with("event ")).count(), next as usize);
}

/// Who reads nothing for long, or follows from long ago, gets all, in order.
pub fn whoever_falls_far_behind_misses_nothing(bench: &mut impl Bench) {
    let Opened { log, .. } = bench.open();
    let first = log.committed().next();
    let mut idle = from(&*log, first);
    let mut busy = from(&*log, first);
    let mut answers = Vec::new();
    for batch in 0..120 {
        answers.push(send(&*log, events(batch * 50..(batch + 1) * 50)));
        if batch % 10 == 0 {
            seen(&mut busy);
        }
    }
    for told in answers {
        told.recv().expect("an append is answered").expect("an append is committed");
    }
    let all: Vec<u32> = (0..6000).collect();
    assert_eq!(seen(&mut idle), all);
    assert_eq!(seen(&mut from(&*log, first)), all, "by one who comes late");
    assert_eq!(seen(&mut from(&*log, Position(first.0 + 5990))), all[5990..], "from the middle");
    append(&*log, events(6000..6001));
    for follower in [&mut idle, &mut busy] {
        seen(follower);
        assert_eq!(follower.position(), log.committed().next());
    }
}

/// Neither followers nor whoever asks for the position.
pub fn nothing_is_read_before_it_is_committed(bench: &mut impl Bench) {
    let Opened { log, .. } = bench.open();
    append(&*log, events(0..1));
    let before = log.committed();
    let mut follower = from(&*log, before);
    assert_eq!(seen(&mut follower), [0]);
    if bench.hold() {
        let answers: Vec<Answer> = (1..4).map(|n| send(&*log, events(n..n + 1))).collect();
        assert!(answers.iter().all(|told| told.try_recv() == Err(TryRecvError::Empty)));
        assert_eq!((log.committed(), seen(&mut follower)), (before, Vec::new()));
        assert!(seen(&mut from(&*log, before.next())).is_empty());
        bench.settle();
        for (told, number) in answers.iter().zip(1..) {
            assert_eq!(told.recv(), Ok(Ok(Position(before.0 + number))));
        }
        assert_eq!(seen(&mut follower), [1, 2, 3]);
    }
}

/// Who follows by name goes on behind what it acknowledged, and has then seen each event once. A batch that nobody was answered
/// is there as a whole, or not at all.
pub fn what_was_answered_outlasts_every_crash_and_is_seen_once(bench: &mut impl Bench) {
    let mut all: Vec<u32> = Vec::new();
    let mut saw: Vec<u32> = Vec::new();
    let (mut next, mut point) = (0, 0);
    {
        let Opened { log, .. } = bench.open();
        tell(&*log, |log, done| log.register("accounting", done));
    }
    loop {
        let Opened { log, replayed } = bench.open();
        let at = log.followers()["accounting"];
        assert_eq!(replayed.progress.followers, log.followers());
        all.extend(came_through(&replayed, next));
        next += 3;
        append(&*log, events(next..next + 2));
        all.extend(next..next + 2);
        next += 2;
        let mut follower = from(&*log, at.next());
        let mut seen = seen(&mut follower);
        // Of what it has seen it acknowledges a part: the rest it will see again.
        if point % 3 == 0 {
            tell(&*log, |log, done| log.acknowledge("accounting", log.committed(), done));
            saw.append(&mut seen);
            assert_eq!(saw, all);
        }
        drop((follower, log));
        if !bench.crash(events(next..next + 3), point) {
            break;
        }
        point += 1;
    }
    assert!(point > 1, "there are points to crash at");
    let Opened { log, replayed } = bench.open();
    all.extend(came_through(&replayed, next));
    assert!(all.iter().all(|n| replayed.partitions.contains_key(&format!("event {n}"))));
    saw.extend(seen(&mut from(&*log, log.followers()["accounting"].next())));
    assert_eq!(saw, all);
}

/// What of a batch of three came through: all of it, or nothing.
fn came_through(replayed: &Replayed, next: u32) -> Vec<u32> {
    let there = |number: &u32| replayed.partitions.contains_key(&format!("event {number}"));
    let unsure: Vec<u32> = (next..next + 3).filter(there).collect();
    assert!(unsure.is_empty() || unsure.len() == 3, "a part of a batch is there: {unsure:?}");
    unsure
}

/// What one of those has not acknowledged can be read, whatever the others did, over restarts too.
pub fn purging_waits_for_the_slowest_that_is_registered(bench: &mut impl Bench) {
    let Opened { mut log, .. } = bench.open();
    for name in ["slow", "quick"] {
        tell(&*log, |log, done| log.register(name, done));
    }
    let begun = log.followers()["slow"];
    append(&*log, events(0..100));
    tell(&*log, |log, done| log.acknowledge("quick", log.committed(), done));
    tell(&*log, |log, done| log.acknowledge("slow", Position(begun.0 + 40), done));
    // Nobody goes back, nor beyond what there is.
    tell(&*log, |log, done| log.acknowledge("slow", begun, done));
    tell(&*log, |log, done| log.acknowledge("quick", Position(u64::MAX), done));
    tell(&*log, |log, done| log.acknowledge("nobody", log.committed(), done));
    let followers = log.followers();
    assert_eq!((followers["slow"], followers["quick"]), (Position(begun.0 + 40), log.committed()));
    assert!(!followers.contains_key("nobody"));
    for round in 1..4 {
        drop(log);
        if !bench.purge() {
            return;
        }
        log = bench.open().log;
        assert_eq!(log.followers()["slow"], followers["slow"], "round {round}");
        assert!(log.oldest() <= followers["slow"].next());
        let seen = seen(&mut from(&*log, followers["slow"].next()));
        assert_eq!(seen, (40..100).collect::<Vec<_>>(), "round {round}");
    }
    let held = log.oldest();
    tell(&*log, |log, done| log.acknowledge("slow", log.committed(), done));
    tell(&*log, |log, done| log.unregister("quick", done));
    for _ in 0..3 {
        drop(log);
        bench.purge();
        log = bench.open().log;
    }
    assert!(!log.followers().contains_key("quick"));
    assert!(log.oldest() > held, "nobody waits for {held} any more");
    assert!(log.oldest() <= log.followers()["slow"].next());
    let asked = Position(begun.0 + 41);
    let oldest = log.oldest();
    assert_eq!(log.subscribe(asked).err(), Some(FollowError::Purged { asked, oldest }));
}

/// What comes later can be followed from, and nothing else that is not there.
pub fn followers_are_told_what_is_not_there(bench: &mut impl Bench) {
    let Opened { log, .. } = bench.open();
    let last = append(&*log, events(0..2));
    let asked = last.next().next();
    assert_eq!(log.subscribe(asked).err(), Some(FollowError::Ahead { asked, last }));
    let mut follower = from(&*log, last.next());
    assert!(seen(&mut follower).is_empty());
    append(&*log, events(2..3));
    assert_eq!(seen(&mut follower), [2]);
}

/// What begins something new is refused; what goes on with something waits and gets in.
pub fn busy_leaves_nothing_behind(bench: &mut impl Bench) {
    let Opened { log, .. } = bench.open();
    append(&*log, events(0..1));
    if !bench.busy() {
        return;
    }
    let before = log.committed();
    let (done, told) = reply();
    log.offer(events(1..2), done);
    let refused = told.recv().expect("an offer is answered at once");
    let Err(AppendError::Busy { after }) = refused else { panic!("{refused:?}") };
    assert!(!after.is_zero());
    assert!(matches!(log.refuses(), Some(AppendError::Busy { .. })));
    let goes_on = send(&*log, events(2..3));
    bench.settle();
    goes_on.recv().expect("an append is answered").expect("an append is committed");
    assert_eq!(log.refuses(), None);
    let (done, told) = reply();
    log.offer(events(3..4), done);
    told.recv().expect("an offer is answered").expect("there is room again");
    assert_eq!(seen(&mut from(&*log, before.next())), [2, 3]);
    drop(log);
    let Opened { log, replayed } = bench.open();
    assert!(!replayed.partitions.contains_key("event 1"));
    assert_eq!(seen(&mut from(&*log, before.next())), [2, 3]);
}

/// Neither what begins something nor what goes on with it.
pub fn not_the_leader_leaves_nothing_behind(bench: &mut impl Bench) {
    let Opened { log, .. } = bench.open();
    let last = append(&*log, events(0..1));
    if !bench.lose() {
        return;
    }
    let (done, offered) = reply();
    log.offer(events(1..2), done);
    for told in [offered, send(&*log, events(2..3))] {
        let refused = told.recv().expect("answered at once");
        assert!(
            matches!(&refused, Err(why @ AppendError::NotLeader { .. }) if why.retry_after().is_some()),
            "{refused:?}"
        );
    }
    assert!(matches!(log.refuses(), Some(AppendError::NotLeader { .. })));
    assert_eq!(log.committed(), last);
    // It goes on being read.
    assert_eq!(seen(&mut from(&*log, last)), [0]);
    drop(log);
    let Opened { replayed, .. } = bench.open();
    assert!(replayed.partitions.contains_key("event 0"));
    assert!((1..3).all(|n| !replayed.partitions.contains_key(&format!("event {n}"))));
}
