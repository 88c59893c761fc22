//! The simulated disk keeps what every log promises: the contract's tests run on it, with a log that writes to it whenever nobody
//! holds it back, and with crashes at every seventh byte of a write.
#![allow(clippy::unwrap_used)]

use super::disk::{Disk, Offered, Writer};
use garrick_actors::log::{
    AppendError, Appended, FollowError, Follower, Log,
    committed::Committed,
    contract::{self, Bench, Opened},
};
use garrick_events::{
    event::{ControllerEvent, Replayed},
    progress::Position,
};
use garrick_model::time::Timestamp;
use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

/// It is always the same time here.
const NOW: Timestamp = Timestamp::from_secs(0);
/// Bytes between two points at which a write is cut.
const CUT_EVERY: usize = 7;

struct Drive {
    disk: Disk,
    /// Nothing is written.
    held: bool,
    /// Who waits for what is appended, in order.
    answers: VecDeque<Appended>,
    /// What is committed.
    value: Committed,
}

impl Drive {
    /// Writes all that waits. Whom to tell what.
    fn write(&mut self) -> Vec<(Appended, Position)> {
        let mut told = Vec::new();
        while !self.held && self.disk.begin_write() {
            for append in self.disk.written() {
                self.value.advance(&append.events);
                let followed = self.disk.followed().unwrap();
                followed.committed(&append.events);
                told.push((self.answers.pop_front().unwrap(), followed.feed().committed()));
            }
        }
        told
    }
}

/// A log on the simulated disk.
#[derive(Clone)]
struct DiskLog(Arc<Mutex<Drive>>);

impl DiskLog {
    fn drive(&self) -> MutexGuard<'_, Drive> {
        self.0.lock().unwrap()
    }

    fn write(&self) {
        let told = self.drive().write();
        told.into_iter().for_each(|(done, position)| done.reply(Ok(position)));
    }

    /// As the controller does it.
    fn read(&self) -> Replayed {
        let left = self.drive().disk.read().unwrap();
        let mut replayed = Replayed::default();
        left.events.iter().for_each(|event| replayed.apply(event).unwrap());
        let came_through = &left.events[left.certain..];
        self.drive().value = Committed::new(replayed.clone());
        self.drive().disk.followed_mut().unwrap().reopen(came_through, &replayed.progress).unwrap();
        replayed
    }
}

impl Log for DiskLog {
    fn append(&self, events: Vec<ControllerEvent>, done: Appended) {
        if let Some(why @ AppendError::NotLeader { .. }) = self.refuses() {
            return done.reply(Err(why));
        }
        let mut drive = self.drive();
        drive.disk.append(Writer::Start, 0, events);
        drive.answers.push_back(done);
        drop(drive);
        self.write();
    }

    fn offer(&self, events: Vec<ControllerEvent>, done: Appended) {
        let offered = self.drive().disk.offer(NOW, false);
        match offered {
            Offered::Taken => self.append(events, done),
            Offered::Refused(why) | Offered::Lost(why) => done.reply(Err(why)),
        }
    }

    fn refuses(&self) -> Option<AppendError> {
        self.drive().disk.refuses(NOW)
    }

    fn committed(&self) -> Position {
        self.drive().disk.followed().unwrap().feed().committed()
    }

    fn value(&self) -> Committed {
        self.drive().value.clone()
    }

    fn oldest(&self) -> Position {
        self.drive().disk.followed().unwrap().oldest()
    }

    fn followers(&self) -> BTreeMap<String, Position> {
        self.drive().disk.followed().unwrap().feed().followers()
    }

    fn subscribe(&self, from: Position) -> Result<Follower, FollowError> {
        self.drive().disk.followed().unwrap().subscribe(from)
    }
}

struct OnDisk(DiskLog);

impl OnDisk {
    fn new() -> Self {
        let drive = Drive { disk: Disk::steady(), held: false, answers: VecDeque::new(), value: Committed::default() };
        Self(DiskLog(Arc::new(Mutex::new(drive))))
    }
}

impl Bench for OnDisk {
    fn open(&mut self) -> Opened {
        let mut drive = self.0.drive();
        drive.disk.refuse(None);
        drive.held = false;
        drop(drive);
        let replayed = self.0.read();
        Opened { log: Arc::new(self.0.clone()), replayed }
    }

    fn settle(&mut self) {
        let mut drive = self.0.drive();
        drive.disk.refuse(None);
        drive.held = false;
        drop(drive);
        self.0.write();
    }

    fn hold(&mut self) -> bool {
        self.0.drive().held = true;
        true
    }

    /// Points beyond the last byte: the write came through and was not answered, and only its length did.
    fn crash(&mut self, batch: Vec<ControllerEvent>, point: usize) -> bool {
        let mut drive = self.0.drive();
        drive.disk.append(Writer::Start, 0, batch);
        assert!(drive.disk.begin_write());
        let (unsure, kept) = (drive.disk.unsure(), point * CUT_EVERY);
        let blank = kept >= unsure + CUT_EVERY;
        drive.disk.die(if blank { 0 } else { kept.min(unsure) }, blank);
        kept < unsure + 2 * CUT_EVERY
    }

    fn purge(&mut self) -> bool {
        let replayed = self.0.read();
        let mut drive = self.0.drive();
        drive.disk.replace(&replayed.into_events().collect::<Vec<_>>());
        drive.disk.followed().unwrap().purge(false);
        true
    }

    fn busy(&mut self) -> bool {
        let busy = AppendError::Busy { after: Duration::from_secs(1) };
        self.0.drive().disk.refuse(Some(busy));
        true
    }

    fn lose(&mut self) -> bool {
        let lost = AppendError::NotLeader { leader: Some("another".to_owned()) };
        self.0.drive().disk.refuse(Some(lost));
        true
    }
}

#[test]
fn a_log_on_the_simulated_disk_keeps_its_promises() {
    contract::keeps_its_promises(OnDisk::new);
}

/// What a restart of the controller goes by: nothing is there that was not answered or on its way.
#[test]
fn a_write_that_a_crash_cut_short_is_there_as_a_whole_or_not_at_all() {
    let mut bench = OnDisk::new();
    let batch = || (1..4).map(|epoch| ControllerEvent::Started { epoch }).collect::<Vec<_>>();
    let mut whole = 0;
    for point in 0.. {
        let more = bench.crash(batch(), point);
        let Opened { replayed, .. } = bench.open();
        let found = replayed.progress.position.0;
        assert!(found == 3 * whole || found == 3 * (whole + 1), "{found} after {whole} whole batches");
        whole = found / 3;
        if !more {
            break;
        }
    }
    assert!(whole > 0, "some writes come through");
}
