//! The Standard Workload Format of the Parallel Workloads Archive: 18 columns, `;` before header lines, -1 for unknown values (S.
//! J. Chapin et al., Benchmarks and Standards for the Evaluation of Parallel Job Schedulers, JSSPP 1999).

use crate::TraceJob;
use flate2::bufread::MultiGzDecoder;
use garrick_model::{ids::JobId, resources::MemoryMib, time::Timestamp};
use std::{
    collections::{BTreeMap, HashSet},
    fs::File,
    io::{self, BufRead, BufReader, Read},
    path::{Path, PathBuf},
};

/// A trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// Jobs that can be replayed, by submission and number.
    pub jobs: Vec<TraceJob>,
    /// Jobs that cannot be replayed: how many, by what is the matter with them.
    pub left_out: BTreeMap<&'static str, usize>,
    /// Jobs whose numbers cannot be theirs here, by what is the matter with them: all jobs are numbered anew then.
    pub misnumbered: BTreeMap<&'static str, usize>,
    /// `MaxProcs` of the header.
    pub max_procs: Option<u32>,
}

impl Trace {
    /// Jobs that cannot be replayed.
    pub fn left_out(&self) -> usize {
        self.left_out.values().sum()
    }
}

/// Why a trace is not read.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// File.
        path: PathBuf,
        /// Cause.
        #[source]
        source: io::Error,
    },
    /// A line is not one of the format.
    #[error("{}:{line}: column {column} ({name}): \"{text}\" is not a number; the format has 18 columns of numbers", path.display())]
    Number {
        /// File.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
        /// What stands there.
        name: &'static str,
        /// The text.
        text: String,
    },
    /// A line is short.
    #[error("{}:{line}: {found} columns; the format has 18, of which the first 9 are needed", path.display())]
    Short {
        /// File.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// Columns there.
        found: usize,
    },
    /// Nothing to replay.
    #[error("{}: no job that can be replayed{}", path.display(), causes(left_out))]
    Empty {
        /// File.
        path: PathBuf,
        /// What is the matter with those that are there.
        left_out: BTreeMap<&'static str, usize>,
    },
}

fn causes(left_out: &BTreeMap<&'static str, usize>) -> String {
    let said: Vec<String> = left_out.iter().map(|(cause, jobs)| format!("{jobs} {cause}")).collect();
    if said.is_empty() { String::new() } else { format!(": {}", said.join(", ")) }
}

/// Reads a trace, compressed by gzip or not.
pub fn read(path: &Path) -> Result<Trace, TraceError> {
    let failed = |source| TraceError::Read { path: path.to_owned(), source };
    let mut file = BufReader::new(File::open(path).map_err(failed)?);
    let compressed = file.fill_buf().map_err(failed)?.starts_with(&[0x1f, 0x8b]);
    let text: Box<dyn Read> = if compressed { Box::new(MultiGzDecoder::new(file)) } else { Box::new(file) };
    parse(path, BufReader::new(text))
}

/// Reads lines; `path` is for messages.
pub fn parse(path: &Path, text: impl BufRead) -> Result<Trace, TraceError> {
    let mut trace = Trace::default();
    let mut jobs: Vec<(Option<u64>, TraceJob)> = Vec::new();
    let mut named = (false, Vec::new());
    for (line, text) in (1..).zip(text.lines()) {
        let text = text.map_err(|source| TraceError::Read { path: path.to_owned(), source })?;
        let text = text.trim();
        if let Some(header) = text.strip_prefix(';') {
            let value = header.trim().strip_prefix("MaxProcs:").and_then(|v| v.trim().parse().ok());
            trace.max_procs = value.or(trace.max_procs);
        } else if !text.is_empty() {
            match job(path, line, text)? {
                Ok((number, whose, job)) => {
                    named.0 |= whose.0.is_some();
                    named.1.push(whose.1);
                    jobs.push((number, job));
                }
                Err(cause) => *trace.left_out.entry(cause).or_default() += 1,
            }
        }
    }
    if jobs.is_empty() {
        return Err(TraceError::Empty { path: path.to_owned(), left_out: trace.left_out });
    }
    // A trace without users may have groups, which are accounts or tenants.
    if !named.0 {
        jobs.iter_mut().zip(named.1).for_each(|((_, job), group)| job.user = group.unwrap_or(0));
    }
    jobs.sort_by_key(|(number, job)| (job.submit, *number));
    trace.misnumbered = misnumbered(&jobs);
    trace.jobs = jobs.into_iter().map(|(_, job)| job).collect();
    if !trace.misnumbered.is_empty() {
        for (number, job) in (1..).zip(&mut trace.jobs) {
            job.id = JobId(number);
        }
    }
    Ok(trace)
}

fn misnumbered(jobs: &[(Option<u64>, TraceJob)]) -> BTreeMap<&'static str, usize> {
    let mut wrong = BTreeMap::new();
    let mut known = HashSet::new();
    for (number, _) in jobs {
        let cause = match number {
            None => "have no number",
            Some(number) if *number > u64::from(u32::MAX) => "have numbers above 4294967295",
            Some(number) if !known.insert(number) => "have the number of an earlier one",
            Some(_) => continue,
        };
        *wrong.entry(cause).or_default() += 1;
    }
    wrong
}

/// A line's number, user and group, and job, or what keeps the job from being replayed.
type Line = Result<(Option<u64>, (Option<u32>, Option<u32>), TraceJob), &'static str>;

fn job(path: &Path, line: usize, text: &str) -> Result<Line, TraceError> {
    let columns: Vec<&str> = text.split_ascii_whitespace().collect();
    if columns.len() < 9 {
        return Err(TraceError::Short { path: path.to_owned(), line, found: columns.len() });
    }
    // Some archives have fractions of seconds; -1 and the like mean nothing is known.
    let number = |column: usize, name: &'static str| -> Result<Option<u64>, TraceError> {
        let Some(text) = columns.get(column - 1) else { return Ok(None) };
        let wrong = || TraceError::Number { path: path.to_owned(), line, column, name, text: (*text).to_owned() };
        let value: f64 = text.parse().map_err(|_| wrong())?;
        if !value.is_finite() || value > 1e15 {
            return Err(wrong());
        }
        Ok((value >= 0.0).then_some(value as u64))
    };
    let small = |value: Option<u64>| value.and_then(|v| u32::try_from(v).ok());
    let id = number(1, "job number")?;
    let submit = number(2, "submit time")?;
    let run = number(4, "run time")?;
    let allocated = small(number(5, "allocated processors")?).filter(|n| *n > 0);
    let size = small(number(8, "requested processors")?).filter(|n| *n > 0).or(allocated);
    let requested = number(9, "requested time")?.filter(|secs| *secs > 0);
    let memory = number(10, "requested memory")?.filter(|kib| *kib > 0).map(|kib| MemoryMib(kib.div_ceil(1024)));
    let whose = (small(number(12, "user")?), small(number(13, "group")?));
    let queue = small(number(15, "queue")?);
    let Some(submit) = submit else { return Ok(Err("have no submission time")) };
    let Some(run) = run else { return Ok(Err("have no run time")) };
    let Some(size) = size else { return Ok(Err("have no size")) };
    let submit = Timestamp::from_secs(i64::try_from(submit).unwrap_or(i64::MAX));
    let known = JobId(small(id).unwrap_or_default());
    let user = whose.0.unwrap_or(0);
    Ok(Ok((id, whose, TraceJob { id: known, submit, run, size, requested, memory, user, queue })))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn parsed(text: &str) -> Result<Trace, TraceError> {
        parse(Path::new("t.swf"), text.as_bytes())
    }

    #[test]
    fn columns_are_read_and_what_is_unknown_is_left_out() {
        let text = "; MaxProcs: 64\n\n2 10 -1 60.5 4 -1 -1 -1 -1\n1 10 5 60 4 -1 2048 8 120 4096 1 7 1 1 2 -1 -1 -1\n3 9 -1 -1 4 -1 -1 4 60\n";
        let trace = parsed(text).unwrap();
        assert_eq!(trace.max_procs, Some(64));
        assert_eq!(trace.left_out, BTreeMap::from([("have no run time", 1)]));
        assert!(trace.misnumbered.is_empty());
        let [first, second] = trace.jobs.as_slice() else { panic!("{trace:?}") };
        assert_eq!((first.id, first.size, first.requested, first.queue), (JobId(1), 8, Some(120), Some(2)));
        assert_eq!((first.memory, first.user), (Some(MemoryMib(4)), 7));
        assert_eq!((second.id, second.size, second.run, second.requested), (JobId(2), 4, 60, None));
    }

    #[test]
    fn groups_stand_for_users_where_there_are_none() {
        let line = |user: i32, group: i32| format!("1 0 -1 60 4 -1 -1 4 60 -1 1 {user} {group}\n");
        let users = |text: &str| parsed(text).unwrap().jobs.iter().map(|job| job.user).collect::<Vec<_>>();
        assert_eq!(users(&[line(-1, 7), line(-1, 8)].concat()), [7, 8]);
        assert_eq!(users(&[line(-1, 7), line(3, 8)].concat()), [0, 3]);
    }

    #[test]
    fn jobs_that_cannot_keep_their_numbers_are_numbered_anew() {
        let line = |number: &str, submit: i32| format!("{number} {submit} -1 60 4 -1 -1 4 60\n");
        let twice = [line("1", 20), line("2", 30), line("1", 10), line("2", 30)].concat();
        let trace = parsed(&twice).unwrap();
        let jobs: Vec<_> = trace.jobs.iter().map(|job| (job.id.0, job.submit)).collect();
        assert_eq!(jobs, [(1, 10), (2, 20), (3, 30), (4, 30)].map(|(id, at)| (id, Timestamp::from_secs(at))));
        assert_eq!(trace.misnumbered, BTreeMap::from([("have the number of an earlier one", 2)]));

        let odd = parsed(&[line("-1", 0), line("5000000000", 1), line("7", -5)].concat()).unwrap();
        assert_eq!(odd.jobs.iter().map(|job| job.id.0).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(odd.misnumbered, BTreeMap::from([("have no number", 1), ("have numbers above 4294967295", 1)]));
        assert_eq!((odd.left_out(), odd.left_out), (1, BTreeMap::from([("have no submission time", 1)])));
    }

    #[test]
    fn errors_name_line_and_column() {
        let error = parsed("1 0 -1 60 4 -1 -1 4 x\n").unwrap_err().to_string();
        assert!(error.starts_with("t.swf:1: column 9 (requested time): \"x\" is not a number"), "{error}");
        assert!(parsed("1 2 3\n").unwrap_err().to_string().starts_with("t.swf:1: 3 columns"));
        assert!(parsed("; nothing\n").unwrap_err().to_string().contains("no job"));
        let said = parsed("1 -5 -1 60 4 -1 -1 4 60\n").unwrap_err().to_string();
        assert_eq!(said, "t.swf: no job that can be replayed: 1 have no submission time");
        for number in ["nan", "inf", "1e99"] {
            assert!(parsed(&format!("1 0 -1 {number} 4 -1 -1 4 60\n")).is_err(), "{number}");
        }
    }
}
