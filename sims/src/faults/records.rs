//! Garrick's final records: the controller's journal, and the step journals that epilogs kept of every run.

use super::witness::StepRef;
use garrick_daemon::journal::series;
use garrick_events::event::Replayed;
use garrick_events::steps::{
    end::{StepEnd, StepResult},
    event::StepEvent,
};
use garrick_journal::{JournalError, Reader};
use garrick_model::{
    ids::{StepKey, StepNum},
    state::{ExitStatus, StepState},
};
use garrick_noded::controller::start::{Saved, Unread};
use std::{collections::BTreeMap, fs, io, path::Path};

/// Records cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum RecordsError {
    /// A journal.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The controller's.
    #[error(transparent)]
    Controller(#[from] Unread),
    /// The folder of kept journals.
    #[error("cannot list the kept journals: {0}")]
    List(#[from] io::Error),
}

/// One end of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Final state.
    pub state: StepState,
    /// Exit status.
    pub exit: ExitStatus,
    /// Why, if it was ended.
    pub cause: Option<StepEnd>,
    /// CPU time that its tasks used, microseconds.
    pub cpu_us: u64,
}

/// A numbered step in its run's journal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepRecord {
    /// It was accepted as part of a batch.
    pub accepted: bool,
    /// Times that it was started.
    pub started: u32,
    /// Its ends: one.
    pub ends: Vec<Ended>,
}

/// A run's journal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunRecords {
    /// Numbered steps.
    pub steps: BTreeMap<StepRef, StepRecord>,
    /// How its batch script ended.
    pub batch: Vec<Ended>,
    /// Step managers that took over.
    pub takeovers: u32,
}

fn name(sluid: &str, key: StepKey) -> Option<StepRef> {
    match key.step {
        StepNum::Number(step) => Some(StepRef { sluid: sluid.to_owned(), step, array: key.array }),
        _ => None,
    }
}

impl RunRecords {
    fn apply(&mut self, sluid: &str, event: &StepEvent) {
        match event {
            StepEvent::Accepted { first, batch, .. } => {
                for member in batch.all() {
                    if let Some(step) = name(sluid, batch.key(*first, member)) {
                        self.steps.entry(step).or_default().accepted = true;
                    }
                }
            }
            StepEvent::Started { step, .. } => {
                if let Some(step) = name(sluid, *step) {
                    self.steps.entry(step).or_default().started += 1;
                }
            }
            StepEvent::Ended { result, .. } => self.ended(sluid, result),
            StepEvent::Withdrawn { first, members, state, cause, .. } => {
                let end = Ended { state: *state, exit: ExitStatus::SUCCESS, cause: Some(cause.clone()), cpu_us: 0 };
                for member in members.iter().flat_map(|(from, to)| *from..=*to) {
                    // The members of an array are its tasks; others have numbers of their own.
                    let task = StepRef { sluid: sluid.to_owned(), step: *first, array: Some(member) };
                    let number = StepRef { sluid: sluid.to_owned(), step: first + member, array: None };
                    let step = if self.steps.contains_key(&task) { task } else { number };
                    self.steps.entry(step).or_default().ends.push(end.clone());
                }
            }
            StepEvent::Restarted => self.takeovers += 1,
            StepEvent::Retried { .. }
            | StepEvent::Ending { .. }
            | StepEvent::TimeLimit(_)
            | StepEvent::StepLimit { .. }
            | StepEvent::Moved(_)
            | StepEvent::NodeLost { .. }
            | StepEvent::ShepherdUp { .. }
            | StepEvent::CancelAsked { .. }
            | StepEvent::LaunchFailed { .. }
            | StepEvent::Reported { .. } => {}
        }
    }

    fn ended(&mut self, sluid: &str, result: &StepResult) {
        let cpu_us = result.usage.user_us + result.usage.system_us;
        let end = Ended { state: result.state, exit: result.exit, cause: result.ended.clone(), cpu_us };
        match name(sluid, result.step.key()) {
            Some(step) => self.steps.entry(step).or_default().ends.push(end),
            None => self.batch.push(end),
        }
    }

    /// Of one journal.
    pub fn read(path: &Path, sluid: &str) -> Result<Self, RecordsError> {
        let mut records = Self::default();
        let mut reader = Reader::open(path)?;
        while let Some(record) = reader.next_record()? {
            records.apply(sluid, &record.decode()?);
        }
        Ok(records)
    }
}

/// The journals of a folder, by run. What was being copied is passed over.
pub fn of_runs(folder: &Path) -> Result<BTreeMap<String, RunRecords>, RecordsError> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let sluid = entry.file_name().to_string_lossy().into_owned();
        if !sluid.contains('.') {
            all.insert(sluid.clone(), RunRecords::read(&entry.path(), &sluid)?);
        }
    }
    Ok(all)
}

/// The state that a controller's journal gives. A torn end is cut off: give it a copy.
pub fn of_controller(folder: &Path) -> Result<Replayed, RecordsError> {
    let mut saved = Saved::default();
    series::open(folder, &mut saved)?;
    Ok(saved.0)
}
