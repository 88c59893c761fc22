//! Half of the records are archived and deleted while a cluster goes on to feed: how long that takes, and how long it keeps those
//! waiting who store something. What should be left and what should be archived is counted.

use super::{
    Amounts,
    fill::{self, RAN, start_of},
    service::Place,
    since,
};
use crate::minibatch::{
    figures::{Findings, median},
    inside::Fallible,
};
use garrick_accountant::store::{Followed, Store};
use garrick_accounts::messages::LogId;
use garrick_events::{event::ControllerEvent, progress::Position};
use garrick_model::{
    config::purge::{Age, PurgeSettings},
    time::Timestamp,
};
use std::{
    cell::Cell,
    fs::{self, File},
    io::{BufRead as _, BufReader},
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

/// Jobs that the cluster feeds at a time, and how often.
const FED: u32 = 10;
const EVERY: Duration = Duration::from_millis(100);
/// Times that it is looked how long they wait when nothing is purged.
const QUIET: usize = 20;
const HOUR: i64 = 3_600_000;
/// When the jobs of that cluster start: later than all others.
const LATER: i64 = 2_000_000_000_000;

/// `stored`: records that were stored a second, when nothing else was done.
pub async fn purge(
    store: Arc<Store>,
    place: &Place,
    amounts: Amounts,
    stored: f64,
    findings: &mut Findings,
) -> Fallible<()> {
    let archive = place.folder().join("archive");
    // The hour after the one in the middle: what ended before that one is over an hour old.
    let until = start_of(amounts.jobs / 2, amounts);
    let until = until - until.rem_euclid(HOUR);
    let settings = PurgeSettings {
        jobs: Age::of("1hours"),
        archive_jobs: true,
        archive_steps: true,
        folder: Some(archive.clone()),
        ..PurgeSettings::default()
    };
    let old = (1..=amounts.jobs).filter(|id| start_of(*id, amounts) + RAN < until).count() as u64;
    let mut feed = Feed::begin(&store, amounts.steps).await?;
    let mut quiet = Vec::new();
    for _ in 0..QUIET {
        quiet.push(feed.next().await?);
    }
    let (is_over, began) = (Cell::new(false), Instant::now());
    let purging = async {
        let purged = store.purge(&settings, Timestamp(until + HOUR)).await;
        is_over.set(true);
        (purged, since(began))
    };
    let feeding = async {
        let mut waits = Vec::new();
        while !is_over.get() {
            waits.push(feed.next().await?);
        }
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(waits)
    };
    let ((purged, seconds), waits) = tokio::join!(purging, feeding);
    let (purged, waits) = (purged?, waits?);
    let records = old * (1 + u64::from(amounts.steps));
    if (purged.jobs, purged.steps) != (old, records - old) {
        return Err(format!("{purged:?} were purged, and {old} jobs were old").into());
    }
    check(place, &archive, amounts, old, feed.jobs)?;
    findings.pace("records archived and deleted", records, seconds, None);
    findings.amount("of the time in which they were stored", seconds * stored / super::as_f64(records), "", None);
    findings.amount(
        "size in the archive, of a record",
        super::as_f64(size(&archive)?) / super::as_f64(records),
        "bytes",
        None,
    );
    let most = |all: &[f64]| all.iter().copied().fold(0.0, f64::max);
    let millis = |seconds: f64| format!("{:.0}", seconds * 1e3);
    findings.table(
        format!("{FED} jobs with their steps every {} ms: until they are stored, ms", EVERY.as_millis()),
        &["", "times", "median", "longest"],
        [("when nothing is purged", quiet), ("meanwhile", waits)]
            .into_iter()
            .map(|(what, all)| {
                vec![what.to_owned(), all.len().to_string(), millis(median(all.clone())), millis(most(&all))]
            })
            .collect(),
    );
    Ok(())
}

/// What is left, and what is archived.
fn check(place: &Place, archive: &Path, amounts: Amounts, old: u64, fed: u32) -> Fallible<()> {
    let jobs = u64::from(amounts.jobs) - old + u64::from(fed);
    let wanted = [("jobs", jobs), ("steps", jobs * u64::from(amounts.steps))];
    for (table, wanted) in wanted {
        let left: u64 = place.database.sql(&format!("SELECT COUNT(*) FROM {table}"))?.parse()?;
        if left != wanted {
            return Err(format!("{left} {table} are left, and not {wanted}").into());
        }
    }
    let mut lines = 0;
    for entry in fs::read_dir(archive)? {
        let mut file = BufReader::with_capacity(1 << 20, File::open(entry?.path())?);
        let mut line = Vec::new();
        while file.read_until(b'\n', &mut line)? > 0 {
            (lines, line) = (lines + 1, Vec::new());
        }
    }
    let wanted = old * (1 + u64::from(amounts.steps));
    if lines == wanted { Ok(()) } else { Err(format!("{lines} records are archived, and not {wanted}").into()) }
}

fn size(folder: &Path) -> Fallible<u64> {
    let entries = fs::read_dir(folder)?.collect::<Result<Vec<_>, _>>()?;
    Ok(entries.iter().map(|entry| entry.metadata().map(|about| about.len())).sum::<Result<u64, _>>()?)
}

/// A cluster that goes on to feed.
struct Feed<'s> {
    store: &'s Store,
    of: Followed,
    position: u64,
    jobs: u32,
    /// Of each job.
    steps: u32,
    due: Instant,
}

impl<'s> Feed<'s> {
    async fn begin(store: &'s Store, steps: u32) -> Fallible<Self> {
        let (of, _) = store.follow("later", LogId(2, 2)).await?;
        store.begin(&of, Position(0)).await?;
        Ok(Self { store, of, position: 0, jobs: 0, steps, due: Instant::now() })
    }

    /// The next jobs, when they are due. Seconds until they are stored.
    async fn next(&mut self) -> Fallible<f64> {
        tokio::time::sleep_until(self.due.into()).await;
        let began = Instant::now();
        let id = |at: u32| self.jobs + at;
        let start = |at| LATER + i64::from(id(at));
        let events: Vec<ControllerEvent> =
            (1..=FED).flat_map(|at| fill::job_at(id(at), start(at), self.steps)).collect();
        let upto = self.position + events.len() as u64;
        self.store.keep(&self.of, Position(self.position), Position(upto), events).await?;
        (self.position, self.jobs) = (upto, self.jobs + FED);
        self.due = (self.due + EVERY).max(Instant::now());
        Ok(since(began))
    }
}
