//! The controller's disk: appended records are written in groups, as the journal's writer does, and are durable when the write is
//! over, sometimes much later. A crash loses what waits, and of the current write it leaves as much as the seed says, down to a
//! part of a record. The bytes have the journal's real format, and its reader reads them back.
//!
//! From time to time the log accepts nothing new: it is busy, or another controller is the leader for a while. Then submitters
//! are told to try again.

use super::{follower::Followed, random::Random};
use garrick_actors::log::{ACCOUNTING, AppendError};
use garrick_events::event::{ControllerEvent, Following};
use garrick_journal::{JournalError, Reader, frame, header};
use garrick_model::{
    ids::{JobId, RequestId},
    time::Timestamp,
};
use std::{collections::BTreeSet, path::Path, time::Duration};

/// Who waits for an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Writer {
    /// Somebody who submits.
    Frontend(RequestId),
    /// A job's owner.
    Job(JobId),
    /// A node's owner.
    Node(usize),
    /// The owner of reservations.
    Reservations,
    /// A partition's owner.
    Partition(usize),
    /// The owner of the roster.
    Roster,
    /// The controller, before it serves.
    Start,
}

/// Events that somebody waits for.
#[derive(Clone, Debug)]
pub(super) struct Append {
    pub(super) owner: Writer,
    /// The owner's number for it.
    pub(super) batch: u64,
    pub(super) events: Vec<ControllerEvent>,
    bytes: Vec<u8>,
}

/// When the log takes nothing new. Drawn apart from everything else.
#[derive(Clone, Debug)]
struct Moods {
    random: Random,
    /// Offers of a thousand over which one begins.
    often: u32,
    now: Option<(AppendError, Timestamp)>,
}

/// What became of an offer.
pub(super) enum Offered {
    Taken,
    Refused(AppendError),
    /// The lead was lost this moment.
    Lost(AppendError),
}

/// See the module.
#[derive(Debug)]
pub(super) struct Disk {
    /// What a crash leaves for certain.
    image: Vec<u8>,
    events: usize,
    /// What is appended together is several records: a bug.
    apart: bool,
    writing: Vec<Append>,
    waiting: Vec<Append>,
    /// Jobs that are submitted in those two.
    entering: BTreeSet<JobId>,
    moods: Moods,
    /// What those see who follow, where there is one.
    followed: Option<Followed>,
    /// What it has to say, appended with what is appended next.
    say: Vec<ControllerEvent>,
}

/// What a crash left.
pub(super) struct Left {
    pub(super) events: Vec<ControllerEvent>,
    /// So many of them were certain to be there.
    pub(super) certain: usize,
    /// Bytes of a record that was not written whole.
    pub(super) torn_bytes: u64,
}

const PATH: &str = "simulated journal";

impl Disk {
    pub(super) fn new(apart: bool, seed: u64) -> Self {
        let mut random = Random::new(seed ^ 0x6c6f_6720_6d6f_6f64);
        let often = random.pick(&[0, 10, 30, 120]).copied().unwrap_or(0);
        let (writing, waiting, entering) = (Vec::new(), Vec::new(), BTreeSet::new());
        let followed = random.one_in_thousand(400).then(Followed::new);
        let registered = ControllerEvent::Follower { name: ACCOUNTING.to_owned(), is: Following::Registered };
        let say = followed.iter().map(|_| registered.clone()).collect();
        let moods = Moods { random, often, now: None };
        Self { image: header().to_vec(), events: 0, apart, writing, waiting, entering, moods, followed, say }
    }

    /// Whether what begins something new is taken now. While it is `calm` it is.
    pub(super) fn offer(&mut self, now: Timestamp, calm: bool) -> Offered {
        let Moods { random, often, now: mood } = &mut self.moods;
        if calm || mood.as_ref().is_some_and(|(_, until)| *until <= now) {
            *mood = None;
        }
        if let Some((why, _)) = mood {
            return Offered::Refused(why.clone());
        }
        if calm || !random.one_in_thousand(*often) {
            return Offered::Taken;
        }
        let ms = |random: &mut Random, most| Duration::from_millis(u64::from(random.between(100, most)));
        let until = now.plus(ms(random, 30_000));
        if random.one_in_thousand(300) {
            let leader = random.one_in_thousand(500).then(|| "another".to_owned());
            let why = AppendError::NotLeader { leader };
            *mood = Some((why.clone(), until));
            return Offered::Lost(why);
        }
        let why = AppendError::Busy { after: ms(random, 5_000) };
        *mood = Some((why.clone(), until));
        Offered::Refused(why)
    }

    /// Why it takes nothing new at that time.
    #[cfg(test)]
    pub(super) fn refuses(&self, now: Timestamp) -> Option<AppendError> {
        self.moods.now.as_ref().filter(|(_, until)| now < *until).map(|(why, _)| why.clone())
    }

    /// From now on it takes nothing new for this, or takes it again.
    #[cfg(test)]
    pub(super) fn refuse(&mut self, why: Option<AppendError>) {
        self.moods.now = why.map(|why| (why, Timestamp(i64::MAX)));
    }

    /// One without moods, and with whoever follows.
    #[cfg(test)]
    pub(super) fn steady() -> Self {
        let mut disk = Self::new(false, 0);
        disk.moods.often = 0;
        disk.followed = Some(Followed::new());
        disk.say.clear();
        disk
    }

    /// True this many times in a thousand.
    pub(super) fn has_a_mind(&mut self, times: u32) -> bool {
        self.moods.random.one_in_thousand(times)
    }

    pub(super) fn say(&mut self, event: ControllerEvent) {
        self.say.push(event);
    }

    pub(super) const fn followed(&self) -> Option<&Followed> {
        self.followed.as_ref()
    }

    pub(super) const fn followed_mut(&mut self) -> Option<&mut Followed> {
        self.followed.as_mut()
    }

    /// Is the job being saved? Others do not see it yet.
    pub(super) fn is_entering(&self, job: JobId) -> bool {
        self.entering.contains(&job)
    }

    /// Queues events to be written together: one record, as the controller's journal port has it.
    pub(super) fn append(&mut self, owner: Writer, batch: u64, mut events: Vec<ControllerEvent>) {
        events.append(&mut self.say);
        let bytes = match self.apart || events.is_empty() {
            true => framed(&events),
            false => framed(&[ControllerEvent::from(events.clone())]),
        };
        if matches!(owner, Writer::Frontend(_)) {
            self.entering.extend(events.iter().filter_map(about));
        }
        self.waiting.push(Append { owner, batch, events, bytes });
    }

    /// Begins to write what waits, unless it writes already. True when it began.
    pub(super) fn begin_write(&mut self) -> bool {
        let begins = self.writing.is_empty() && !self.waiting.is_empty();
        if begins {
            self.writing = std::mem::take(&mut self.waiting);
        }
        begins
    }

    /// The write is over.
    pub(super) fn written(&mut self) -> Vec<Append> {
        let done = std::mem::take(&mut self.writing);
        for append in &done {
            self.image.extend_from_slice(&append.bytes);
            self.events += append.events.len();
            if matches!(append.owner, Writer::Frontend(_)) {
                for job in append.events.iter().filter_map(about) {
                    self.entering.remove(&job);
                }
            }
        }
        done
    }

    /// All is written, without a fault: what is appended before anybody is served.
    pub(super) fn write_all(&mut self) -> Vec<Append> {
        let mut done = self.written();
        if self.begin_write() {
            done.extend(self.written());
        }
        done
    }

    /// A byte of what is there changes.
    pub(super) fn damage(&mut self, random: &mut Random) {
        let last = u32::try_from(self.image.len().saturating_sub(1)).unwrap_or(u32::MAX);
        if let Some(byte) = self.image.get_mut(random.between(0, last) as usize) {
            *byte ^= 0x10;
        }
    }

    /// The process dies, or its machine, and the next one reads what is left.
    pub(super) fn crash(&mut self, random: &mut Random) -> Result<Left, JournalError> {
        let unsure = self.unsure();
        let kept = match random.between(0, 3) {
            0 => 0,
            1 => unsure,
            _ => random.between(0, u32::try_from(unsure).unwrap_or(u32::MAX)) as usize,
        };
        self.die(kept, kept == 0 && random.one_in_thousand(200));
        self.read()
    }

    /// Bytes that are being written.
    pub(super) fn unsure(&self) -> usize {
        self.writing.iter().map(|append| append.bytes.len()).sum()
    }

    /// Of what was being written so many bytes are there. `blank`: a file system has noted the new length, and not written the data.
    pub(super) fn die(&mut self, kept: usize, blank: bool) {
        self.waiting.clear();
        self.entering.clear();
        self.say.clear();
        let unsure: Vec<u8> = std::mem::take(&mut self.writing).into_iter().flat_map(|append| append.bytes).collect();
        self.image.extend_from_slice(&unsure[..kept]);
        if blank {
            self.image.resize(self.image.len() + unsure.len() - kept, 0);
        }
    }

    /// What the next process finds.
    pub(super) fn read(&mut self) -> Result<Left, JournalError> {
        let mut reader = Reader::new(&self.image[..], Path::new(PATH), self.image.len() as u64)?;
        let mut events = Vec::new();
        while let Some(record) = reader.next_record()? {
            match record.decode()? {
                ControllerEvent::Together(several) | ControllerEvent::Part { events: several, .. } => {
                    events.extend(several);
                }
                one => events.push(one),
            }
        }
        let (end, torn_bytes) = (reader.position(), reader.torn_bytes());
        self.image.truncate(usize::try_from(end).unwrap_or(usize::MAX));
        let certain = std::mem::replace(&mut self.events, events.len());
        Ok(Left { events, certain, torn_bytes })
    }

    /// Puts these in place of all, in one step.
    pub(super) fn replace(&mut self, events: &[ControllerEvent]) {
        self.image = header().to_vec();
        self.image.extend(framed(events));
        self.events = events.len();
    }
}

fn about(event: &ControllerEvent) -> Option<JobId> {
    match event {
        ControllerEvent::Job { job, .. } => Some(*job),
        _ => None,
    }
}

fn framed(events: &[ControllerEvent]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for event in events {
        let framed = frame(Path::new(PATH), event, &mut bytes);
        framed.expect("an event of the controller can be encoded and is far below the limit of a record");
    }
    bytes
}
