//! How many messages the controller's actors handled, while steps ran and while nothing happened, by kind: reports of the job
//! (batched, out of the launch path) and everything else.
//!
//! Every record of a controller's trace carries a number that counts all messages of the process, so that the difference of
//! two numbers is the number of messages handled between them, also of those whose records were not kept.

use super::inside::{Fallible, Inside};
use serde::Deserialize;
use std::{
    collections::{BTreeMap, BTreeSet},
    io::{BufRead, BufReader},
    process::{Child, Stdio},
    sync::mpsc::{Receiver, channel},
    time::{Duration, Instant},
};

/// The messages with which a job's reports reach the controller. Whatever one such report sets off is part of it.
const REPORTS: [&str; 2] = ["Report", "StepReport"];
/// What time alone causes, steps or not.
const BY_TIME: [&str; 4] = ["Heartbeat", "Timer", "Pass", "Changed"];
/// The controller's actors.
const ACTORS: [&str; 6] = ["/controller", "/job", "/node", "/partition", "/scheduler", "/steps"];
/// Longest for a first record to come: there is one of every node's heartbeat.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug, Deserialize)]
struct Record {
    process: String,
    seq: u64,
    trace: u64,
    actor: String,
    message: String,
}

/// Messages of a stretch of time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// All of them.
    pub handled: u64,
    /// Reports of jobs and what they set off.
    pub of_reports: u64,
    /// The others by actor and name, as far as their records were seen.
    pub others: BTreeMap<String, u64>,
}

impl Tally {
    /// All but reports.
    pub const fn not_reports(&self) -> u64 {
        self.handled - self.of_reports
    }

    fn of(records: &[Record]) -> Self {
        let (Some(first), Some(last)) = (records.iter().map(|r| r.seq).min(), records.iter().map(|r| r.seq).max())
        else {
            return Self::default();
        };
        let reported: BTreeSet<u64> =
            records.iter().filter(|r| REPORTS.contains(&r.message.as_str())).map(|r| r.trace).collect();
        let mut tally = Self { handled: last - first, ..Self::default() };
        // The first record is the mark from which is counted.
        for record in records.iter().filter(|r| r.seq > first) {
            if BY_TIME.contains(&record.message.as_str()) {
                tally.handled -= 1;
            } else if reported.contains(&record.trace) {
                tally.of_reports += 1;
            } else {
                *tally.others.entry(format!("{} {}", kind(&record.actor), record.message)).or_default() += 1;
            }
        }
        tally
    }
}

/// `/node/n1` and `/node/n2` are of one kind.
fn kind(actor: &str) -> &str {
    actor.trim_start_matches('/').split('/').next().unwrap_or(actor)
}

/// A running count.
#[derive(Debug)]
pub struct Watch {
    stail: Child,
    records: Receiver<Record>,
    seen: Vec<Record>,
    began: Instant,
}

impl Watch {
    /// From now on. Returns once the first record has come.
    pub fn begin(inside: &Inside) -> Fallible<Self> {
        let mut stail = inside
            .command("stail")
            .args(["--follow", "--json"])
            .args(ACTORS)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let out = stail.stdout.take().ok_or("stail has no output")?;
        let (to, records) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                // Records of other processes have numbers of their own.
                let record = serde_json::from_str::<Record>(&line).ok().filter(|r| r.process == "controller");
                if record.is_some_and(|r| to.send(r).is_err()) {
                    break;
                }
            }
        });
        let mut watch = Self { stail, records, seen: Vec::new(), began: Instant::now() };
        // What was kept from before comes first, in one go; count from the last of it.
        watch.seen.push(watch.records.recv_timeout(PATIENCE).map_err(|e| format!("no record from stail: {e}"))?);
        watch.settle();
        Ok(watch)
    }

    /// Everything up to now becomes the mark from which is counted.
    pub fn settle(&mut self) {
        self.take();
        self.seen.sort_by_key(|r| r.seq);
        self.seen.drain(..self.seen.len().saturating_sub(1));
        self.began = Instant::now();
    }

    fn take(&mut self) {
        // Records are held back for a moment to be put in order (see `stail`).
        while let Ok(record) = self.records.recv_timeout(HELD_BACK) {
            self.seen.push(record);
        }
    }

    /// What was handled since the mark, and in how long.
    pub fn tally(&mut self) -> (Tally, Duration) {
        self.take();
        (Tally::of(&self.seen), self.began.elapsed())
    }
}

/// Longer than `stail` holds records back.
const HELD_BACK: Duration = Duration::from_millis(700);

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = self.stail.kill();
        let _ = self.stail.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(seq: u64, trace: u64, actor: &str, message: &str) -> Record {
        Record { process: "controller".into(), seq, trace, actor: actor.into(), message: message.into() }
    }

    #[test]
    fn what_a_report_sets_off_is_counted_with_it() {
        let tally = Tally::of(&[
            record(10, 1, "/node/n1", "Frame"),
            record(11, 2, "/node/n1", "Frame"),
            record(12, 2, "/job/1", "Report"),
            record(14, 2, "/node/n1", "ReportSafe"),
            record(15, 3, "/node/n2", "Frame"),
        ]);
        // Number 13 was not seen, and is still counted.
        assert_eq!((tally.handled, tally.of_reports, tally.not_reports()), (5, 3, 2));
        assert_eq!(tally.others, BTreeMap::from([("node Frame".to_owned(), 1)]));
    }

    #[test]
    fn nothing_seen_is_nothing_handled() {
        assert_eq!(Tally::of(&[]), Tally::default());
        assert_eq!(Tally::of(&[record(7, 1, "/scheduler", "Pass")]).handled, 0);
    }
}
