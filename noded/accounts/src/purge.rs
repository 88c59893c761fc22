//! Purging what is old, and archiving it before. A file of an archive has a line of JSON for each record. It is on disk before the
//! records are deleted: after a crash in between, they are in two files, and nothing is lost.

use crate::{
    database::{Connection, Link, Statement},
    pages::{CHUNK, behind_step},
    store::{Store, StoreError, decoded},
    texts::{self, Archiving, Text, Words, Work},
};
use garrick_accounts::{
    change::Transaction, event::EventRow, reservation::ReservationRow, row::JobRow, step::StepRecord,
};
use garrick_kernel::files;
use garrick_model::{
    config::purge::{Age, PurgeSettings},
    time::Timestamp,
};
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{BufWriter, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

/// Rows of a part at most, whatever the site allows: they are held in memory.
const PART: i64 = 10_000;
/// Scripts that are read at a time to be archived: each may have some MiB.
const TEXTS_AT_ONCE: usize = 8;
/// Bytes of scripts in one file, about: files of an archive are read back whole.
const TEXT_BYTES: usize = 64 << 20;

/// A line of an archive.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Archived {
    /// A run of a job.
    Job(Box<JobRow>),
    /// A step, and its cluster.
    Step {
        /// `ClusterName`.
        cluster: String,
        /// The step.
        step: Box<StepRecord>,
    },
    /// A line of the list of transactions.
    Transaction(Transaction),
    /// An event of a node or a cluster.
    Event(EventRow),
    /// A reservation, or a part of one.
    Reservation(ReservationRow),
    /// A script or an environment of a job.
    Text {
        /// `ClusterName`.
        cluster: String,
        /// Its job, or its array.
        job: u32,
        /// Which.
        which: Text,
        /// It.
        words: Words,
    },
    /// A record that cannot be read, as it is in the database.
    Unreadable {
        /// Its bytes.
        body: Vec<u8>,
    },
}

impl Archived {
    /// A record, or its bytes where it cannot be read: one must not keep all others.
    fn of<T: DeserializeOwned>(body: &[u8], line: impl FnOnce(T) -> Self) -> Self {
        decoded(body).map_or_else(|_| Self::Unreadable { body: body.to_vec() }, line)
    }
}

/// What a purge came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Purged {
    /// Runs of jobs.
    pub jobs: u64,
    /// Steps.
    pub steps: u64,
    /// Transactions.
    pub transactions: u64,
    /// Events.
    pub events: u64,
    /// Reservations.
    pub reservations: u64,
    /// Scripts and environments of jobs.
    pub texts: u64,
}

/// What a purge goes by.
struct Purge<'p> {
    settings: &'p PurgeSettings,
    folder: &'p Path,
    now: Timestamp,
    zone: TimeZone,
}

impl Purge<'_> {
    /// What is older ended before that time.
    fn before(&self, age: Option<Age>) -> Option<Timestamp> {
        age?.before(self.now, &self.zone)
    }
}

/// What is purged by age, row by row.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Steps,
    Jobs,
    Events,
    Reservations,
    Transactions,
}

impl Kind {
    const fn table(self) -> &'static str {
        match self {
            Self::Steps => "steps",
            Self::Jobs => "jobs",
            Self::Events => "events",
            Self::Reservations => "reservations",
            Self::Transactions => "transactions",
        }
    }

    /// The columns of its key.
    const fn key(self) -> &'static [&'static str] {
        match self {
            Self::Steps => &["cluster", "sluid", "step", "task"],
            Self::Jobs => &["cluster", "job", "sluid"],
            Self::Events | Self::Reservations | Self::Transactions => &["id"],
        }
    }

    /// The column by which it is old.
    const fn time(self) -> &'static str {
        match self {
            Self::Steps | Self::Jobs | Self::Events | Self::Reservations => "end_ms",
            Self::Transactions => "time_ms",
        }
    }

    /// A line for each record: the word for it in names of files, where lines of it are wanted.
    fn archive(self, purge: &Purge<'_>) -> Option<&'static str> {
        let (is_wanted, word) = match self {
            Self::Steps => (purge.settings.archive_steps, "step"),
            Self::Jobs => (purge.settings.archive_jobs, "job"),
            Self::Events => (purge.settings.archive_events, "event"),
            Self::Reservations => (purge.settings.archive_reservations, "resv"),
            Self::Transactions => (purge.settings.archive_transactions, "txn"),
        };
        is_wanted.then_some(word)
    }

    fn line(self, cluster: &str, body: &[u8]) -> Archived {
        match self {
            Self::Steps => Archived::of(body, |step: StepRecord| Archived::Step {
                cluster: cluster.to_owned(),
                step: Box::new(step),
            }),
            Self::Jobs => Archived::of(body, |job: JobRow| Archived::Job(Box::new(job))),
            Self::Events => Archived::of(body, Archived::Event),
            Self::Reservations => Archived::of(body, Archived::Reservation),
            Self::Transactions => Archived::of(body, Archived::Transaction),
        }
    }
}

/// A row that is old.
struct Old {
    key: Vec<i64>,
    /// The time by which it is.
    at: i64,
    body: Vec<u8>,
}

/// Of a cluster, by number and name; transactions are of all.
type Of<'o> = Option<(i64, &'o str)>;

impl Store {
    /// Purges what is so old now, in the machine's time zone, in parts: between them, others store.
    pub async fn purge(&self, settings: &PurgeSettings, now: Timestamp) -> Result<Purged, StoreError> {
        let folder = settings.folder.as_deref().unwrap_or(&self.archive);
        let purge = Purge { settings, folder, now, zone: TimeZone::system() };
        let mut purged = Purged::default();
        let clusters = Statement::of("SELECT id, name FROM clusters ORDER BY id");
        let clusters = self.reader().await?.link().rows(clusters).await?;
        for cluster in &clusters {
            let (id, name) = (cluster.number(0)?, cluster.text(1)?);
            if let Some(before) = purge.before(settings.steps) {
                while self.purge_part(&purge, Kind::Steps, Some((id, name)), before, &mut purged).await? {}
            }
            for (age, which) in [(settings.scripts, Text::Script), (settings.environments, Text::Environment)] {
                if let Some(before) = purge.before(age) {
                    purged.texts += self.purge_texts(&purge, (id, name), which, before).await?;
                }
            }
            let by_end = [
                (settings.jobs, Kind::Jobs),
                (settings.events, Kind::Events),
                (settings.reservations, Kind::Reservations),
            ];
            for (age, kind) in by_end {
                if let Some(before) = purge.before(age) {
                    while self.purge_part(&purge, kind, Some((id, name)), before, &mut purged).await? {}
                }
            }
        }
        if let Some(before) = purge.before(settings.transactions) {
            while self.purge_part(&purge, Kind::Transactions, None, before, &mut purged).await? {}
        }
        Ok(purged)
    }

    /// Rows that were old before that time; jobs with their steps, scripts and environments. True: there may be more.
    async fn purge_part(
        &self,
        purge: &Purge<'_>,
        kind: Kind,
        of: Of<'_>,
        before: Timestamp,
        purged: &mut Purged,
    ) -> Result<bool, StoreError> {
        let steps = self
            .write(async |writer| {
                let connection = writer.connection()?;
                let old = old(&mut connection.link(), purge, kind, of, before).await?;
                if old.is_empty() {
                    return Ok(None);
                }
                if let (Kind::Jobs, Some(cluster)) = (kind, of) {
                    archive_steps(&mut connection.link(), purge, cluster, &old).await?;
                }
                archive(purge, kind, of, &old)?;
                let steps = delete(connection, purge, kind, of, &old).await?;
                if kind == Kind::Jobs {
                    let gone: BTreeSet<(i64, i64)> = old.iter().map(|old| (old.key[0], old.key[1])).collect();
                    writer.known.retain(|(of, job), _| !gone.contains(&(*of, job.0.into())));
                }
                Ok(Some((old.len() as u64, steps)))
            })
            .await?;
        let Some((rows, steps)) = steps else { return Ok(false) };
        purged.steps += steps;
        *match kind {
            Kind::Steps => &mut purged.steps,
            Kind::Jobs => &mut purged.jobs,
            Kind::Events => &mut purged.events,
            Kind::Reservations => &mut purged.reservations,
            Kind::Transactions => &mut purged.transactions,
        } += rows;
        Ok(true)
    }

    /// Scripts or environments of jobs that ended before that time, in parts. How many jobs had them.
    async fn purge_texts(
        &self,
        purge: &Purge<'_>,
        of: (i64, &str),
        which: Text,
        before: Timestamp,
    ) -> Result<u64, StoreError> {
        let (mut gone, mut behind) = (0, i64::MIN);
        loop {
            // They are looked up beside whoever stores something.
            let old = texts::old(&mut self.reader().await?.link(), of.0, (which, before), behind).await?;
            let Some(last) = old.last().map(|work| work.job) else { return Ok(gone) };
            behind = last;
            gone += self
                .write(async |writer| {
                    let mut tx = writer.connection()?.begin().await?;
                    // A job of that number may have come since.
                    let still = texts::still_old(&mut tx.link(), of.0, (which, before), &old).await?;
                    give_up_texts(&mut tx.link(), purge, of, &still).await?;
                    tx.commit().await?;
                    Ok(still.len() as u64)
                })
                .await?;
        }
    }
}

/// The next rows that were old before that time.
async fn old(
    link: &mut Link<'_>,
    purge: &Purge<'_>,
    kind: Kind,
    of: Of<'_>,
    before: Timestamp,
) -> Result<Vec<Old>, StoreError> {
    let columns = kind.key().len();
    let mut sql = Statement::built(format!("SELECT {}, {}, body", kind.key().join(", "), kind.time()));
    sql.push_with(format_args!(" FROM {} WHERE {} < ", kind.table(), kind.time()), before.0);
    if let Some((cluster, _)) = of {
        sql.push_with(" AND cluster = ", cluster);
    }
    sql.push_with(" LIMIT ", i64::from(purge.settings.at_a_time).min(PART));
    let mut all = Vec::new();
    for row in &link.rows(sql).await? {
        let key = (0..columns).map(|column| row.number(column)).collect::<Result<_, _>>()?;
        all.push(Old { key, at: row.number(columns)?, body: row.bytes(columns + 1)?.to_vec() });
    }
    Ok(all)
}

/// Writes old rows into a file.
fn archive(purge: &Purge<'_>, kind: Kind, of: Of<'_>, old: &[Old]) -> Result<(), StoreError> {
    let Some(word) = kind.archive(purge) else { return Ok(()) };
    let cluster = of.map_or("slurmdbd", |(_, name)| name);
    let mut file = ArchiveFile::create(purge.folder)?;
    for old in old {
        file.write(old.at, &kind.line(cluster, &old.body))?;
    }
    file.finish(cluster, word)
}

/// Writes all steps of old jobs into a file, a thousand at a time: some jobs have millions.
async fn archive_steps(
    link: &mut Link<'_>,
    purge: &Purge<'_>,
    (cluster, name): (i64, &str),
    jobs: &[Old],
) -> Result<(), StoreError> {
    // They go with their jobs: what is archived of one is archived of the other.
    let Some(word) = Kind::Steps.archive(purge).or_else(|| Kind::Jobs.archive(purge).map(|_| "step")) else {
        return Ok(());
    };
    let mut file = ArchiveFile::create(purge.folder)?;
    for job in jobs {
        let mut place = None;
        loop {
            let rows = link.rows(behind_step(link.dialect(), cluster, job.key[2], place)).await?;
            for row in &rows {
                place = Some((row.number(0)?, row.number(1)?));
                file.write(job.at, &Kind::Steps.line(name, row.bytes(2)?))?;
            }
            if rows.len() < CHUNK {
                break;
            }
        }
    }
    file.finish(name, word)
}

/// Deletes old rows; with jobs all that is theirs. How many steps went with them.
async fn delete(
    connection: &mut Connection,
    purge: &Purge<'_>,
    kind: Kind,
    of: Of<'_>,
    old: &[Old],
) -> Result<u64, StoreError> {
    let mut tx = connection.begin().await?;
    let mut link = tx.link();
    let mut steps = 0;
    for old in old.chunks(CHUNK) {
        let keys: Vec<&[i64]> = old.iter().map(|old| old.key.as_slice()).collect();
        let which = link.dialect().among(kind.key(), &keys);
        let rows = Statement::built(format!("DELETE FROM {} WHERE {which}", kind.table()));
        let (Kind::Jobs, Some(of)) = (kind, of) else {
            link.execute(rows).await?;
            continue;
        };
        let runs: Vec<[i64; 2]> = old.iter().map(|old| [old.key[0], old.key[2]]).collect();
        let of_runs = link.dialect().among(&["cluster", "sluid"], &runs);
        steps += link.execute(Statement::built(format!("DELETE FROM steps WHERE {of_runs}"))).await?;
        let mut works: BTreeSet<[i64; 2]> = old.iter().map(|old| [old.key[0], old.key[1]]).collect();
        let arrays = format!("SELECT cluster, array_job FROM jobs WHERE {which} AND array_job IS NOT NULL");
        for row in &link.rows(Statement::built(arrays)).await? {
            works.insert([row.number(0)?, row.number(1)?]);
        }
        link.execute(rows).await?;
        let last = old.iter().map(|old| old.at).max().unwrap_or_default();
        let left = texts::without_jobs(&mut link, &works.into_iter().collect::<Vec<_>>(), last).await?;
        give_up_texts(&mut link, purge, of, &left).await?;
    }
    tx.commit().await?;
    Ok(steps)
}

/// Deletes scripts and environments of jobs, archived before where that is wanted.
async fn give_up_texts(
    link: &mut Link<'_>,
    purge: &Purge<'_>,
    (cluster, name): (i64, &str),
    works: &[Work],
) -> Result<(), StoreError> {
    let wanted = [
        (purge.settings.archive_scripts, Text::Script, "job_script"),
        (purge.settings.archive_environments, Text::Environment, "job_env"),
    ];
    for (_, which, word) in wanted.into_iter().filter(|(is_wanted, ..)| *is_wanted) {
        let of_kind: Vec<&Work> = works.iter().filter(|work| work.which == which).collect();
        let mut some = of_kind.chunks(TEXTS_AT_ONCE).peekable();
        while some.peek().is_some() {
            let (mut file, mut bytes) = (ArchiveFile::create(purge.folder)?, 0);
            while let Some(some) = some.next_if(|_| bytes < TEXT_BYTES) {
                for Archiving { job, at, words } in texts::read(link, cluster, which, some).await? {
                    bytes += words.bytes().len();
                    file.write(at, &Archived::Text { cluster: name.to_owned(), job, which, words })?;
                }
            }
            file.finish(name, word)?;
        }
    }
    texts::delete(link, cluster, works).await
}

/// A file of the archive as it is written: it has its name when it is whole and on disk.
struct ArchiveFile {
    folder: PathBuf,
    file: BufWriter<File>,
    temporary: PathBuf,
    /// First and last time.
    span: Option<(i64, i64)>,
    lines: u64,
}

impl ArchiveFile {
    fn create(folder: &Path) -> Result<Self, StoreError> {
        files::create_folder(folder, 0o700)?;
        let temporary = folder.join(format!(".archive.{}.tmp", std::process::id()));
        // What an earlier process of that number left is not whole, and its records are still in the database.
        let _ = fs::remove_file(&temporary);
        let made = File::options().write(true).create_new(true).mode(0o600).open(&temporary);
        let file = made.map_err(|cause| StoreError::Create { path: temporary.clone(), cause })?;
        Ok(Self { folder: folder.to_owned(), file: BufWriter::new(file), temporary, span: None, lines: 0 })
    }

    fn write(&mut self, at: i64, line: &Archived) -> Result<(), StoreError> {
        let written = serde_json::to_writer(&mut self.file, line).map_err(std::io::Error::from);
        written.and_then(|()| self.file.write_all(b"\n")).map_err(self.failed())?;
        self.span = Some(self.span.map_or((at, at), |(first, last)| (first.min(at), last.max(at))));
        self.lines += 1;
        Ok(())
    }

    /// Names it `CLUSTER_KIND_table_archive_FROM_TO`, as slurmdbd.conf(5) says.
    fn finish(mut self, cluster: &str, kind: &str) -> Result<(), StoreError> {
        let Some((first, last)) = self.span else {
            return fs::remove_file(&self.temporary).map_err(self.failed());
        };
        self.file.flush().and_then(|()| self.file.get_ref().sync_all()).map_err(self.failed())?;
        let name = format!("{cluster}_{kind}_table_archive_{}_{}", clock(first), clock(last));
        let path = (1u32..)
            .map(|n| self.folder.join(if n == 1 { name.clone() } else { format!("{name}.{n}") }))
            .find(|path| !path.exists())
            .unwrap_or_else(|| self.folder.join(&name));
        fs::rename(&self.temporary, &path).map_err(self.failed())?;
        files::sync_folder(&self.folder)?;
        tracing::info!(file = %path.display(), lines = self.lines, "archived");
        Ok(())
    }

    fn failed(&self) -> impl FnOnce(std::io::Error) -> StoreError + use<> {
        let path = self.temporary.clone();
        move |cause| StoreError::Create { path, cause }
    }
}

/// `2026-11-23T08:00:00` in the machine's time zone.
fn clock(ms: i64) -> String {
    let at = jiff::Timestamp::from_millisecond(ms).unwrap_or_default().to_zoned(TimeZone::system());
    at.strftime("%Y-%m-%dT%H:%M:%S").to_string()
}

#[cfg(test)]
#[path = "purge_test.rs"]
mod tests;
