//! The journal of a controller as a workload: the jobs in it, with their allocations and run times. Jobs that a snapshot has
//! dropped (`MinJobAge`) are missing; for a requeued job the last run counts.

use crate::{TraceJob, swf::Trace};
use garrick_events::{
    event::ControllerEvent,
    records::{
        job::{JobRecord, Run},
        job_event::JobEvent,
    },
};
use garrick_journal::{JournalError, Reader};
use garrick_model::{ids::JobId, resources::MemoryMib, time::Timestamp};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

/// Why a journal is not read as a workload.
#[derive(Debug, thiserror::Error)]
pub enum JournalTraceError {
    /// The folder cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Folder {
        /// Folder.
        path: PathBuf,
        /// Cause.
        #[source]
        source: std::io::Error,
    },
    /// A folder without one.
    #[error("{}: no journal of a controller is in this folder; name its StateSaveLocation", path.display())]
    NoJournal {
        /// Folder.
        path: PathBuf,
    },
    /// A file is no journal.
    #[error("{}: {what}; name the journal of a controller, or its StateSaveLocation", path.display())]
    Foreign {
        /// File.
        path: PathBuf,
        /// What was found.
        what: String,
    },
    /// A file cannot be read, or is damaged.
    #[error(transparent)]
    Journal(JournalError),
    /// Nothing to replay.
    #[error("{}: no job in it has run to its end", path.display())]
    Empty {
        /// File or folder.
        path: PathBuf,
    },
}

impl From<JournalError> for JournalTraceError {
    fn from(error: JournalError) -> Self {
        match error {
            // Nothing starts here that could start empty.
            JournalError::Foreign { path, what } => Self::Foreign { path, what },
            other => Self::Journal(other),
        }
    }
}

/// Reads one file, or all that a controller's `StateSaveLocation` has. `partitions`: their names, in the order of the
/// configuration that the workload is for; jobs of others go to its default partition.
pub fn read(path: &Path, partitions: &[String]) -> Result<Trace, JournalTraceError> {
    let mut found = BTreeMap::new();
    let files = files(path)?;
    if files.is_empty() {
        return Err(JournalTraceError::NoJournal { path: path.to_owned() });
    }
    for file in files {
        let mut reader = Reader::open(&file)?;
        while let Some(record) = reader.next_record()? {
            note(&mut found, record.decode()?);
        }
    }
    let first = found.values().map(|job| job.submit).min().unwrap_or_default();
    let (mut jobs, mut left_out) = (Vec::new(), BTreeMap::new());
    for (id, job) in found {
        match job.replayable(id, first, partitions) {
            Some(job) => jobs.push(job),
            None => *left_out.entry("have not run to their end").or_default() += 1,
        }
    }
    if jobs.is_empty() {
        return Err(JournalTraceError::Empty { path: path.to_owned() });
    }
    jobs.sort_by_key(|job| (job.submit, job.id));
    Ok(Trace { jobs, left_out, ..Trace::default() })
}

/// Oldest first: snapshots, closed files, the open one. A job that is in several is the same in all.
fn files(path: &Path) -> Result<Vec<PathBuf>, JournalTraceError> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let failed = |source| JournalTraceError::Folder { path: path.to_owned(), source };
    let mut files = Vec::new();
    for entry in std::fs::read_dir(path).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        let Some(name) = name.to_str() else { continue };
        let place = match name.split_once('.') {
            None if name == "journal" => (2, 0),
            Some(("snapshot", number)) => (0, number.parse::<u64>().unwrap_or(0)),
            Some(("journal", number)) => (1, number.parse().unwrap_or(0)),
            _ => continue,
        };
        // Files that are being made have no number.
        if place.0 == 2 || place.1 > 0 {
            files.push((place, path.join(name)));
        }
    }
    files.sort();
    Ok(files.into_iter().map(|(_, path)| path).collect())
}

struct Noted {
    submit: Timestamp,
    user: u32,
    run: Option<Run>,
    end: Option<Timestamp>,
}

impl Noted {
    fn of(record: &JobRecord) -> Self {
        Self {
            submit: record.submit_time,
            user: record.owner.uid,
            run: record.phase.run().cloned(),
            end: record.phase.end().map(|end| end.at),
        }
    }

    fn replayable(self, id: JobId, first: Timestamp, partitions: &[String]) -> Option<TraceJob> {
        let (run, end) = (self.run?, self.end?);
        let cpus: u32 = run.allocation.nodes.iter().map(|node| node.share.cpus.len()).sum();
        let memory: Option<u64> = run.allocation.nodes.iter().map(|node| Some(node.share.memory?.0)).sum();
        let queue = partitions.iter().position(|name| *name == run.allocation.partition);
        Some(TraceJob {
            id,
            submit: Timestamp::from_secs(i64::try_from(self.submit.since(first).as_secs()).ok()?),
            run: end.since(run.start).as_secs(),
            size: cpus,
            requested: run.time_limit.duration().map(|limit| limit.as_secs()),
            memory: memory.map(|all| MemoryMib(all.div_ceil(u64::from(cpus.max(1))))),
            user: self.user,
            queue: queue.and_then(|index| u32::try_from(index + 1).ok()),
        })
        .filter(|job| job.size > 0)
    }
}

fn note(found: &mut BTreeMap<JobId, Noted>, event: ControllerEvent) {
    match event {
        ControllerEvent::Together(events) | ControllerEvent::Part { events, .. } => {
            events.into_iter().for_each(|event| note(found, event))
        }
        ControllerEvent::Job { job, event } => match *event {
            JobEvent::Submitted(record) | JobEvent::SubmittedLike { record, .. } => {
                let new = Noted::of(&record);
                let known = found.entry(job).or_insert(new);
                if let (None, Some(_)) = (known.end, record.phase.end()) {
                    *known = Noted::of(&record);
                }
            }
            JobEvent::Allocated(run) => {
                if let Some(noted) = found.get_mut(&job) {
                    (noted.run, noted.end) = (Some(*run), None);
                }
            }
            JobEvent::Ended(end) => {
                if let Some(noted) = found.get_mut(&job) {
                    noted.end = Some(end.at);
                }
            }
            JobEvent::LimitChanged(limit) => {
                if let Some(run) = found.get_mut(&job).and_then(|noted| noted.run.as_mut()) {
                    run.time_limit = limit;
                }
            }
            _ => {}
        },
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_is_no_journal_is_called_that() {
        let folder = std::env::temp_dir().join(format!("garrick-no-journal-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("passwd");
        std::fs::write(&file, "root:x:0:0:root:/root:/bin/bash\n").unwrap();
        let said = |path: &Path| read(path, &[]).unwrap_err().to_string();
        let (of_folder, of_file) = (said(&folder), said(&file));
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(
            of_folder.ends_with("no journal of a controller is in this folder; name its StateSaveLocation"),
            "{of_folder}"
        );
        assert!(of_file.ends_with("; name the journal of a controller, or its StateSaveLocation"), "{of_file}");
        assert!(of_file.contains("passwd: ") && !of_file.contains("start empty"), "{of_file}");
    }
}
