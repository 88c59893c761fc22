//! Files of an archive, written before what is in them is deleted. Reading and writing them takes nobody's turn to store, and each
//! transaction that deletes is short: whoever stores something has its turn in between.
//!
//! So rows may change between the two, and this process may be killed at any moment. A file is written under a name of its own,
//! with a second file that has the key of each line and a digest of the row as it was read ([`Draft`]). When both are on disk, rows
//! are deleted by these keys, where they are still as they were read. What has changed stays in the database, its line is taken out
//! of the file, and it is archived anew by the next purge. Only then the file gets its name ([`Store::settle`]). The database notes
//! such files: a purge begins with those that an earlier process left, and does the rest of the same with them. So each record is in
//! the database or in one file, never in neither or both.

use crate::{
    database::{self, Link, Statement},
    store::{Store, StoreError, decoded},
    texts::{self, Text, Words, Work},
};
use garrick_accounts::{
    change::Transaction, event::EventRow, reservation::ReservationRow, row::JobRow, step::StepRecord,
};
use garrick_kernel::files;
use garrick_model::time::Timestamp;
use garrick_transport::identity::hex;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use sha2::{Digest as _, Sha256};
use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    fs::{self, File},
    io::{self, BufRead as _, BufReader, BufWriter, Lines, Write as _},
    os::unix::{ffi::OsStrExt as _, fs::OpenOptionsExt as _},
    path::{Path, PathBuf},
};

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

/// What is purged row by row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Kind {
    Steps,
    Jobs,
    Events,
    Reservations,
    Transactions,
    /// Scripts and environments.
    Texts,
}

impl Kind {
    pub(crate) const fn table(self) -> &'static str {
        match self {
            Self::Steps => "steps",
            Self::Jobs => "jobs",
            Self::Events => "events",
            Self::Reservations => "reservations",
            Self::Transactions => "transactions",
            Self::Texts => "works",
        }
    }

    /// The columns of its key.
    pub(crate) const fn key(self) -> &'static [&'static str] {
        match self {
            Self::Steps => &["cluster", "sluid", "step", "task"],
            Self::Jobs => &["cluster", "job", "sluid"],
            Self::Events | Self::Reservations | Self::Transactions => &["id"],
            Self::Texts => &["cluster", "job", "kind"],
        }
    }

    /// That of a row which begins with these columns.
    pub(crate) fn key_of(self, row: &database::Row) -> Result<Vec<i64>, sqlx::Error> {
        (0..self.key().len()).map(|column| row.number(column)).collect()
    }

    /// The column that changes whenever the row does.
    const fn content(self) -> &'static str {
        match self {
            Self::Texts => "hash",
            _ => "body",
        }
    }

    /// Its line. Scripts and environments are no rows of their own ([`texts::read`]).
    pub(crate) fn line(self, cluster: &str, body: &[u8]) -> Option<Archived> {
        Some(match self {
            Self::Steps => Archived::of(body, |step: StepRecord| Archived::Step {
                cluster: cluster.to_owned(),
                step: Box::new(step),
            }),
            Self::Jobs => Archived::of(body, |job: JobRow| Archived::Job(Box::new(job))),
            Self::Events => Archived::of(body, Archived::Event),
            Self::Reservations => Archived::of(body, Archived::Reservation),
            Self::Transactions => Archived::of(body, Archived::Transaction),
            Self::Texts => return None,
        })
    }
}

/// Of what a file is: the first line of its keys.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct About {
    pub(crate) kind: Kind,
    /// Cluster, for the file's name; `slurmdbd` where it is of all.
    pub(crate) cluster: String,
    /// The word for it in the file's name.
    pub(crate) word: String,
    /// What is in it was old before that time.
    pub(crate) before: Timestamp,
}

/// A row that is archived.
pub(crate) struct Row {
    pub(crate) key: Vec<i64>,
    /// The time by which it is old, milliseconds.
    pub(crate) at: i64,
    /// Its content in the database, as it was read.
    pub(crate) content: Vec<u8>,
    pub(crate) line: Archived,
}

/// Key, time and digest of a row, as the file of keys has them: `KEY[,KEY...] TIME DIGEST`.
#[derive(Debug)]
struct Mark {
    key: Vec<i64>,
    at: i64,
    digest: String,
}

fn digest(content: &[u8]) -> String {
    hex(&Sha256::digest(content)[..16])
}

impl Mark {
    fn read(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let key = words.next()?.split(',').map(str::parse).collect::<Result<_, _>>().ok()?;
        Some(Self { key, at: words.next()?.parse().ok()?, digest: words.next()?.to_owned() })
    }
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> StoreError + use<> {
    let path = path.to_owned();
    move |cause| StoreError::Create { path, cause }
}

/// Runs what reads and writes files where nobody waits for it.
async fn beside<T: Send + 'static>(
    what: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    let done = tokio::task::spawn_blocking(what).await;
    done.unwrap_or_else(|error| Err(StoreError::Row(format!("an archive: {error}"))))
}

/// The names of a file before it has its own.
#[derive(Clone, Debug)]
struct Stem(PathBuf);

impl Stem {
    fn with(&self, end: &str) -> PathBuf {
        let mut path = self.0.clone().into_os_string();
        path.push(end);
        path.into()
    }

    /// Whole, and on disk, as its keys are.
    fn lines(&self) -> PathBuf {
        self.with(".lines")
    }

    /// Whole, on disk, and nothing in it is in the database any more: only its name is missing.
    fn done(&self) -> PathBuf {
        self.with(".done")
    }

    fn unfinished(&self) -> PathBuf {
        self.with(".lines.tmp")
    }

    fn keys(&self) -> PathBuf {
        self.with(".keys")
    }

    fn folder(&self) -> &Path {
        self.0.parent().unwrap_or(Path::new("/"))
    }
}

/// A file of the archive as it is written.
#[derive(Debug)]
pub(crate) struct Draft {
    noted: Noted,
    lines: BufWriter<File>,
    keys: BufWriter<File>,
    count: u64,
    bytes: u64,
}

/// One that the database has noted.
#[derive(Clone, Debug)]
pub(crate) struct Noted {
    id: i64,
    stem: Stem,
}

impl Draft {
    fn begin(noted: Noted, about: &About) -> Result<Self, StoreError> {
        files::create_folder(noted.stem.folder(), 0o700)?;
        let make = |path: PathBuf| {
            let made = File::options().write(true).create_new(true).mode(0o600).open(&path);
            made.map(BufWriter::new).map_err(failed(&path))
        };
        let (lines, mut keys) = (make(noted.stem.unfinished())?, make(noted.stem.keys())?);
        let written = serde_json::to_writer(&mut keys, about).map_err(io::Error::from);
        written.and_then(|()| keys.write_all(b"\n")).map_err(failed(&noted.stem.keys()))?;
        Ok(Self { noted, lines, keys, count: 0, bytes: 0 })
    }

    fn write(&mut self, rows: &[Row]) -> Result<(), StoreError> {
        for row in rows {
            let line = serde_json::to_vec(&row.line).map_err(io::Error::from);
            let written = line.and_then(|mut line| {
                line.push(b'\n');
                self.bytes += line.len() as u64;
                self.lines.write_all(&line)
            });
            written.map_err(failed(&self.noted.stem.unfinished()))?;
            let key: Vec<String> = row.key.iter().map(ToString::to_string).collect();
            let mark = writeln!(self.keys, "{} {} {}", key.join(","), row.at, digest(&row.content));
            mark.map_err(failed(&self.noted.stem.keys()))?;
            self.count += 1;
        }
        Ok(())
    }

    /// Adds rows.
    pub(crate) async fn add(mut self, rows: Vec<Row>) -> Result<Self, StoreError> {
        beside(move || self.write(&rows).map(|()| self)).await
    }

    /// Bytes so far.
    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// It is whole, and on disk.
    pub(crate) async fn finish(self) -> Result<Noted, StoreError> {
        beside(move || {
            let Self { noted, lines, keys, .. } = self;
            for (file, path) in [(keys, noted.stem.keys()), (lines, noted.stem.unfinished())] {
                let file = file.into_inner().map_err(|error| failed(&path)(error.into_error()))?;
                file.sync_all().map_err(failed(&path))?;
            }
            fs::rename(noted.stem.unfinished(), noted.stem.lines()).map_err(failed(&noted.stem.lines()))?;
            files::sync_folder(noted.stem.folder())?;
            Ok(noted)
        })
        .await
    }
}

/// What became of the rows of a file, or of other rows that are deleted.
#[derive(Debug, Default)]
pub(crate) struct Settled {
    /// So many are deleted.
    pub(crate) gone: u64,
    /// Scripts and environments that no job has any more, and that have to be archived, each with its cluster's number.
    pub(crate) orphans: Vec<(i64, Work)>,
}

/// How rows are deleted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manner {
    /// So many in one transaction at most.
    pub(crate) at_a_time: usize,
    /// Scripts are archived before.
    pub(crate) scripts: bool,
    /// Environments are.
    pub(crate) environments: bool,
}

impl Manner {
    const fn keeps(&self, which: Text) -> bool {
        match which {
            Text::Script => self.scripts,
            Text::Environment => self.environments,
        }
    }
}

/// The lines of a file's keys that have not been read.
struct Marks {
    path: PathBuf,
    about: About,
    lines: Lines<BufReader<File>>,
    /// First and last time of those that were.
    span: Option<(i64, i64)>,
}

impl Marks {
    fn open(path: PathBuf) -> Result<Self, StoreError> {
        let file = File::open(&path).map_err(failed(&path))?;
        let mut lines = BufReader::new(file).lines();
        let about = lines.next().transpose().map_err(failed(&path))?;
        let about = about.and_then(|line| serde_json::from_str(&line).ok());
        let about = about.ok_or_else(|| StoreError::Row(format!("{} is none of an archive", path.display())))?;
        Ok(Self { path, about, lines, span: None })
    }

    /// The next ones.
    fn next(&mut self, most: usize) -> Result<Vec<Mark>, StoreError> {
        let mut marks = Vec::new();
        for line in self.lines.by_ref().take(most) {
            let line = line.map_err(failed(&self.path))?;
            let mark = Mark::read(&line);
            let mark = mark.ok_or_else(|| StoreError::Row(format!("{}: \"{line}\"", self.path.display())))?;
            self.span = Some(self.span.map_or((mark.at, mark.at), |(a, b)| (a.min(mark.at), b.max(mark.at))));
            marks.push(mark);
        }
        Ok(marks)
    }
}

impl Store {
    /// Begins a file of an archive in that folder.
    pub(crate) async fn draft(&self, folder: &Path, about: About) -> Result<Draft, StoreError> {
        let stem = Stem(folder.join(format!(".archive.{:x}.{}", unique(), std::process::id())));
        let noted = stem.clone();
        let id = self
            .write(async |writer| {
                let mut tx = writer.connection()?.begin().await?;
                let next = Statement::of("SELECT COALESCE(MAX(id), 0) + 1 FROM archiving");
                let id = tx.link().row(next).await?.ok_or(sqlx::Error::RowNotFound)?.number(0)?;
                let note = Statement::of("INSERT INTO archiving (id, stem) VALUES (?, ?)");
                tx.link().execute(note.with(id).with(noted.0.as_os_str().as_bytes())).await?;
                tx.commit().await?;
                Ok(id)
            })
            .await?;
        let noted = Noted { id, stem };
        let begun = noted.clone();
        match beside(move || Draft::begin(begun, &about)).await {
            Ok(draft) => Ok(draft),
            Err(error) => {
                self.forget_draft(&noted).await?;
                Err(error)
            }
        }
    }

    /// Files that were not settled, the first one first.
    pub(crate) async fn unsettled(&self) -> Result<Vec<Noted>, StoreError> {
        let noted = Statement::of("SELECT id, stem FROM archiving ORDER BY id");
        let rows = self.read(async |reader| Ok(reader.link().rows(noted).await?)).await?;
        let stem = |bytes: &[u8]| Stem(OsStr::from_bytes(bytes).into());
        rows.iter().map(|row| Ok(Noted { id: row.number(0)?, stem: stem(row.bytes(1)?) })).collect()
    }

    /// Deletes what is in a file, in transactions of so many rows, and gives the file its name. See the module. The kind of what was
    /// in it; `None`: the file was not whole, or its folder is not there, and nothing is deleted.
    pub(crate) async fn settle(&self, noted: &Noted, manner: Manner) -> Result<Option<(Kind, Settled)>, StoreError> {
        let folder = noted.stem.folder().to_owned();
        if !beside(move || folder.try_exists().map_err(failed(&folder))).await? {
            let folder = noted.stem.folder().display();
            tracing::warn!(%folder, "a file of the archive is not finished, and its folder is not there: it is done when it is");
            return Ok(None);
        }
        let stem = noted.stem.clone();
        let marks = beside(move || {
            let is_there = |path: PathBuf| path.try_exists().map_err(failed(&path));
            let is_done = is_there(stem.done())?;
            match is_done || is_there(stem.lines())? {
                true => Marks::open(stem.keys()).map(|marks| Some((marks, is_done))),
                false => Ok(None),
            }
        })
        .await?;
        let Some((mut marks, is_done)) = marks else {
            self.forget_draft(noted).await?;
            return Ok(None);
        };
        let (mut settled, mut number, mut stale) = (Settled::default(), 0, BTreeSet::new());
        let kind = marks.about.kind;
        loop {
            let (rest, some) = beside(move || {
                let some = marks.next(manner.at_a_time)?;
                Ok((marks, some))
            })
            .await?;
            marks = rest;
            if some.is_empty() {
                break;
            }
            if is_done {
                number += some.len() as u64;
                continue;
            }
            let left = self.delete_as_read(&marks.about, &some, manner, &mut settled).await?;
            let lines = some.iter().enumerate().filter(|(_, mark)| left.contains(&mark.key));
            stale.extend(lines.map(|(at, _)| number + at as u64));
            number += some.len() as u64;
        }
        let (stem, count) = (noted.stem.clone(), number);
        beside(move || name_file(&stem, &marks, count, &stale)).await?;
        self.forget_draft(noted).await?;
        Ok(Some((kind, settled)))
    }

    /// Deletes rows that are as they were read. Keys of those that are there and are not.
    async fn delete_as_read(
        &self,
        about: &About,
        marks: &[Mark],
        manner: Manner,
        settled: &mut Settled,
    ) -> Result<BTreeSet<Vec<i64>>, StoreError> {
        let kind = about.kind;
        let digests: BTreeMap<&[i64], &str> =
            marks.iter().map(|mark| (mark.key.as_slice(), mark.digest.as_str())).collect();
        let keys: Vec<&[i64]> = digests.keys().copied().collect();
        self.write(async |writer| {
            let mut tx = writer.connection()?.begin().await?;
            let mut link = tx.link();
            let mut now = Statement::built(format!("SELECT {}, {} FROM ", kind.key().join(", "), kind.content()));
            now.push(kind.table()).push(" WHERE ").push(link.dialect().among(kind.key(), &keys));
            now.push(link.dialect().for_update());
            let (mut there, mut same) = (BTreeSet::new(), Vec::new());
            for row in &link.rows(now).await? {
                let key = kind.key_of(row)?;
                let content = row.bytes(key.len()).unwrap_or_default();
                if digests.get(key.as_slice()).is_some_and(|of| *of == digest(content)) {
                    same.push(key.clone());
                }
                there.insert(key);
            }
            let gone = delete(&mut link, (kind, about.before), same, manner, &mut settled.orphans).await?;
            tx.commit().await?;
            if kind == Kind::Jobs {
                writer.forget_jobs(&gone);
            }
            settled.gone += gone.len() as u64;
            for key in &gone {
                there.remove(key);
            }
            Ok(there)
        })
        .await
    }

    /// Deletes rows of these keys that are old before that time by that column, in one transaction, without archiving them. How many.
    pub(crate) async fn delete_old(
        &self,
        (kind, time, before): (Kind, Option<&str>, Timestamp),
        keys: &[Vec<i64>],
        manner: Manner,
        settled: &mut Settled,
    ) -> Result<u64, StoreError> {
        self.write(async |writer| {
            let mut tx = writer.connection()?.begin().await?;
            let mut link = tx.link();
            let mut old = Vec::new();
            match time {
                Some(time) => {
                    let mut still = Statement::built(format!("SELECT {} FROM {}", kind.key().join(", "), kind.table()));
                    still.push(" WHERE ").push(link.dialect().among(kind.key(), keys));
                    still.push_with(format_args!(" AND {time} < "), before.0).push(link.dialect().for_update());
                    for row in &link.rows(still).await? {
                        old.push(kind.key_of(row)?);
                    }
                }
                // Whether they are is seen by their jobs.
                None => old.extend_from_slice(keys),
            }
            let gone = delete(&mut link, (kind, before), old, manner, &mut settled.orphans).await?;
            tx.commit().await?;
            if kind == Kind::Jobs {
                writer.forget_jobs(&gone);
            }
            settled.gone += gone.len() as u64;
            Ok(gone.len() as u64)
        })
        .await
    }

    /// Removes what is left of a file that has its name, or never got it.
    async fn forget_draft(&self, noted: &Noted) -> Result<(), StoreError> {
        let (id, stem) = (noted.id, noted.stem.clone());
        beside(move || {
            for path in [stem.unfinished(), stem.keys()] {
                match fs::remove_file(&path) {
                    Err(cause) if !matches!(cause.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                        return Err(failed(&path)(cause));
                    }
                    _ => {}
                }
            }
            Ok(())
        })
        .await?;
        let done = Statement::of("DELETE FROM archiving WHERE id = ?").with(id);
        self.write(async |writer| Ok(writer.connection()?.link().execute(done).await?)).await.map(drop)
    }
}

/// Different for each file of a folder, unless its clock is set back.
fn unique() -> u128 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_nanos())
}

/// Deletes rows of these keys, in a transaction. Of jobs, those that have no steps any more; scripts and environments that no job has
/// then go too, or are named where they have to be archived. The keys of what was deleted.
async fn delete(
    link: &mut Link<'_>,
    (kind, before): (Kind, Timestamp),
    mut keys: Vec<Vec<i64>>,
    manner: Manner,
    orphans: &mut Vec<(i64, Work)>,
) -> Result<Vec<Vec<i64>>, StoreError> {
    match kind {
        _ if keys.is_empty() => return Ok(keys),
        Kind::Texts => {
            let mut gone = Vec::new();
            let clusters: BTreeSet<i64> = keys.iter().map(|key| key[0]).collect();
            for cluster in clusters {
                let of: Vec<&Vec<i64>> = keys.iter().filter(|key| key[0] == cluster).collect();
                let old = texts::still_old(link, before, &of).await?;
                texts::delete(link, cluster, &old).await?;
                gone.extend(old.iter().map(|work| vec![cluster, work.job, work.which as i64]));
            }
            return Ok(gone);
        }
        Kind::Jobs => {
            // By the key of steps, which a search for all of these runs would not use.
            let busy = format!(
                "SELECT {} FROM jobs WHERE {} AND EXISTS (SELECT 1 FROM steps \
                 WHERE steps.cluster = jobs.cluster AND steps.sluid = jobs.sluid)",
                kind.key().join(", "),
                link.dialect().among(kind.key(), &keys)
            );
            let busy = link.rows(Statement::built(busy)).await?;
            let busy = busy.iter().map(|row| kind.key_of(row)).collect::<Result<BTreeSet<_>, _>>()?;
            keys.retain(|key| !busy.contains(key));
            if keys.is_empty() {
                return Ok(keys);
            }
        }
        _ => {}
    }
    let which = link.dialect().among(kind.key(), &keys);
    let rows = Statement::built(format!("DELETE FROM {} WHERE {which}", kind.table()));
    if kind != Kind::Jobs {
        link.execute(rows).await?;
        return Ok(keys);
    }
    let mut works: BTreeSet<[i64; 2]> = keys.iter().map(|key| [key[0], key[1]]).collect();
    let arrays = format!("SELECT cluster, array_job FROM jobs WHERE {which} AND array_job IS NOT NULL");
    for row in &link.rows(Statement::built(arrays)).await? {
        works.insert([row.number(0)?, row.number(1)?]);
    }
    link.execute(rows).await?;
    let clusters: BTreeSet<i64> = works.iter().map(|work| work[0]).collect();
    for cluster in clusters {
        let of: Vec<[i64; 2]> = works.iter().filter(|work| work[0] == cluster).copied().collect();
        let left = texts::without_jobs(link, &of, before.0).await?;
        let (kept, gone): (Vec<Work>, Vec<Work>) = left.into_iter().partition(|work| manner.keeps(work.which));
        texts::delete(link, cluster, &gone).await?;
        orphans.extend(kept.into_iter().map(|work| (cluster, work)));
    }
    Ok(keys)
}

/// Takes lines out of a file, and names it `CLUSTER_KIND_table_archive_FROM_TO`, as slurmdbd.conf(5) says.
fn name_file(stem: &Stem, marks: &Marks, count: u64, stale: &BTreeSet<u64>) -> Result<(), StoreError> {
    let (lines, done) = (stem.lines(), stem.done());
    let remove = |path: &Path| match fs::remove_file(path) {
        Err(cause) if cause.kind() != io::ErrorKind::NotFound => Err(failed(path)(cause)),
        _ => Ok(()),
    };
    let folder = stem.folder();
    if !done.try_exists().map_err(failed(&done))? {
        match stale.len() as u64 {
            left_out if left_out == count => return remove(&lines),
            0 => fs::rename(&lines, &done).map_err(failed(&done))?,
            _ => take_out(stem, stale).map_err(failed(&lines))?,
        }
        files::sync_folder(folder)?;
    }
    // A line that was taken out of the other one is in the database.
    remove(&lines)?;
    let About { cluster, word, .. } = &marks.about;
    let (first, last) = marks.span.unwrap_or_default();
    let name = format!("{cluster}_{word}_table_archive_{}_{}", clock(first), clock(last));
    let path = (1u32..)
        .map(|n| folder.join(if n == 1 { name.clone() } else { format!("{name}.{n}") }))
        .find(|path| !path.exists())
        .unwrap_or_else(|| folder.join(&name));
    fs::rename(&done, &path).map_err(failed(&path))?;
    files::sync_folder(folder)?;
    tracing::info!(file = %path.display(), lines = count - stale.len() as u64, "archived");
    Ok(())
}

/// A file without these lines.
fn take_out(stem: &Stem, stale: &BTreeSet<u64>) -> io::Result<()> {
    let (lines, rest) = (stem.lines(), stem.unfinished());
    match fs::remove_file(&rest) {
        Err(cause) if cause.kind() != io::ErrorKind::NotFound => return Err(cause),
        _ => {}
    }
    let mut out = BufWriter::new(File::options().write(true).create_new(true).mode(0o600).open(&rest)?);
    for (number, line) in (0..).zip(BufReader::new(File::open(&lines)?).split(b'\n')) {
        let line = line?;
        if !stale.contains(&number) {
            out.write_all(&line)?;
            out.write_all(b"\n")?;
        }
    }
    out.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
    fs::rename(&rest, stem.done())
}

/// `2026-11-23T08:00:00` in the machine's time zone.
fn clock(ms: i64) -> String {
    let at = jiff::Timestamp::from_millisecond(ms).unwrap_or_default().to_zoned(TimeZone::system());
    at.strftime("%Y-%m-%dT%H:%M:%S").to_string()
}
