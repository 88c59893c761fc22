//! Decodes the records of a journal one by one. Its first record tells whether it belongs to a controller or a step manager.

use garrick_events::steps::event::StepEvent;
use garrick_events::{event::ControllerEvent, records::job_event::JobEvent};
use garrick_journal::{JournalError, Reader, Record};
use garrick_model::{ids::JobId, time::Timestamp};
use std::{collections::VecDeque, fmt, fs::File, io::BufReader, path::Path};

/// Whose journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A controller's.
    Controller,
    /// A run's step manager's.
    Steps,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Controller => "controller",
            Self::Steps => "steps",
        })
    }
}

/// What a record says.
#[derive(Debug)]
pub enum Event {
    /// In a controller's journal.
    Controller(ControllerEvent),
    /// In a step manager's.
    Steps(StepEvent),
}

impl Event {
    /// Decodes a record of that kind of journal.
    fn of(record: &Record<'_>, kind: Kind) -> Result<Self, JournalError> {
        match kind {
            Kind::Controller => record.decode().map(Self::Controller),
            Kind::Steps => record.decode().map(Self::Steps),
        }
    }

    /// Decodes the first record.
    pub fn first(record: &Record<'_>) -> Result<Self, JournalError> {
        let controller = match Self::of(record, Kind::Controller) {
            Err(JournalError::Damaged { what, .. }) => what,
            decoded => return decoded,
        };
        Self::of(record, Kind::Steps).map_err(|error| match error {
            JournalError::Damaged { what: steps, .. } => record.damaged(format!(
                "it is no event that this version knows, neither of a controller ({controller}) nor of a step manager ({steps})"
            )),
            other => other,
        })
    }

    /// In which kind of journal it stands.
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Controller(_) => Kind::Controller,
            Self::Steps(_) => Kind::Steps,
        }
    }

    /// When it happened, if it says so. A job that stands in a compacted journal has the time of its submission.
    pub fn time(&self) -> Option<Timestamp> {
        match self {
            Self::Controller(ControllerEvent::Job { event, .. }) => match &**event {
                JobEvent::Submitted(record) | JobEvent::SubmittedLike { record, .. } => Some(record.submit_time),
                JobEvent::Eligible { at } | JobEvent::Started { at, .. } => Some(*at),
                JobEvent::Allocated(run) => Some(run.start),
                JobEvent::Ended(end) => Some(end.at),
                _ => None,
            },
            Self::Controller(_) => None,
            Self::Steps(event) => match event {
                StepEvent::Accepted { at, .. }
                | StepEvent::Started { at, .. }
                | StepEvent::Ended { at, .. }
                | StepEvent::Withdrawn { at, .. } => Some(*at),
                _ => None,
            },
        }
    }

    /// Whether it is about that job: itself, or a task that becomes that job.
    pub fn is_about(&self, wanted: JobId) -> bool {
        match self {
            Self::Controller(ControllerEvent::Job { job, event }) => {
                *job == wanted || matches!(**event, JobEvent::TaskSplit { job, .. } if job == wanted)
            }
            Self::Controller(ControllerEvent::Steps { job, .. }) => *job == wanted,
            _ => false,
        }
    }
}

/// Events in order.
pub struct Events {
    reader: Reader<BufReader<File>>,
    kind: Option<Kind>,
    /// Of a record that holds several: those to come, and where it begins.
    together: (u64, VecDeque<ControllerEvent>),
}

impl Events {
    /// Opens a journal.
    pub fn open(path: &Path) -> Result<Self, JournalError> {
        Ok(Self { reader: Reader::open(path)?, kind: None, together: Default::default() })
    }

    /// The next one, and where its record begins. A record that is no event of this kind of journal is damage, as it is for
    /// the daemon.
    pub fn next_event(&mut self) -> Result<Option<(u64, Event)>, JournalError> {
        if let Some(event) = self.together.1.pop_front() {
            return Ok(Some((self.together.0, Event::Controller(event))));
        }
        let Some(record) = self.reader.next_record()? else { return Ok(None) };
        let event = match self.kind {
            Some(kind) => Event::of(&record, kind)?,
            None => Event::first(&record)?,
        };
        self.kind = Some(event.kind());
        let offset = record.offset;
        match event {
            Event::Controller(ControllerEvent::Together(events) | ControllerEvent::Part { events, .. }) => {
                self.together = (offset, events.into());
                self.next_event()
            }
            event => Ok(Some((offset, event))),
        }
    }

    /// Whose journal, once a record was read.
    pub const fn kind(&self) -> Option<Kind> {
        self.kind
    }

    /// How far reading came.
    pub const fn reader(&self) -> &Reader<BufReader<File>> {
        &self.reader
    }
}
