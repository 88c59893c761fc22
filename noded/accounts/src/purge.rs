//! Purging what is old, and archiving it before ([`crate::archive`]). What is old is looked up beside whoever stores something, and
//! deleted in transactions of so many rows (`MaxPurgeLimit`), between which others store.

use crate::{
    archive::{About, Archived, Draft, Kind, Manner, Row, Settled},
    database::{Reader, Statement},
    pages::{CHUNK, behind_step},
    store::{Store, StoreError},
    texts::{self, Text, Work},
};
use garrick_model::{
    config::purge::{Age, PurgeSettings},
    time::Timestamp,
};
use jiff::tz::TimeZone;
use std::{path::Path, sync::atomic::Ordering};

/// Rows of a file at most, whatever the site allows: they are held in memory, but for steps of jobs.
const PART: usize = 10_000;
/// Scripts that are read at a time to be archived: each may have some MiB.
const TEXTS_AT_ONCE: usize = 8;
/// Bytes of scripts in one file, about: files of an archive are read back whole.
const TEXT_BYTES: u64 = 64 << 20;

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

    const fn at_a_time(&self) -> usize {
        self.settings.at_a_time as usize
    }

    fn manner(&self) -> Manner {
        Manner {
            at_a_time: self.at_a_time().min(CHUNK),
            scripts: self.settings.archive_scripts,
            environments: self.settings.archive_environments,
        }
    }

    /// The word in names of files, where rows of that kind are archived.
    const fn word(&self, kind: Kind) -> Option<&'static str> {
        let settings = self.settings;
        let (is_wanted, word) = match kind {
            Kind::Steps => (settings.archive_steps, "step"),
            Kind::Jobs => (settings.archive_jobs, "job"),
            Kind::Events => (settings.archive_events, "event"),
            Kind::Reservations => (settings.archive_reservations, "resv"),
            Kind::Transactions => (settings.archive_transactions, "txn"),
            Kind::Texts => return None,
        };
        if is_wanted { Some(word) } else { None }
    }

    const fn word_of_text(&self, which: Text) -> Option<&'static str> {
        let (is_wanted, word) = match which {
            Text::Script => (self.settings.archive_scripts, "job_script"),
            Text::Environment => (self.settings.archive_environments, "job_env"),
        };
        if is_wanted { Some(word) } else { None }
    }
}

/// The column by which a row is old.
const fn time(kind: Kind) -> Option<&'static str> {
    match kind {
        Kind::Steps | Kind::Jobs | Kind::Events | Kind::Reservations => Some("end_ms"),
        Kind::Transactions => Some("time_ms"),
        Kind::Texts => None,
    }
}

/// A row that is old.
struct Old {
    key: Vec<i64>,
    /// The time by which it is.
    at: i64,
    /// Read where it is archived.
    body: Vec<u8>,
}

/// Of a cluster, by number and name; transactions are of all.
#[derive(Clone, Copy)]
struct Of<'o> {
    cluster: Option<i64>,
    name: &'o str,
}

/// Of that kind, old before that time.
type Which = (Kind, Timestamp);

impl Store {
    /// Purges what is so old now, in the machine's time zone, in parts. One purge at a time.
    pub async fn purge(&self, settings: &PurgeSettings, now: Timestamp) -> Result<Purged, StoreError> {
        let _one_at_a_time = self.purging.lock().await;
        let folder = settings.folder.as_deref().unwrap_or(&self.archive);
        let purge = Purge { settings, folder, now, zone: TimeZone::system() };
        let mut purged = Purged::default();
        // Until the end of this purge it is not known.
        let was_clean = self.has_no_orphans.swap(false, Ordering::Relaxed);
        let is_clean = !self.settle_earlier(&purge, &mut purged).await? && was_clean;
        let clusters = Statement::of("SELECT id, name FROM clusters ORDER BY id");
        let clusters = self.read(async |reader| Ok(reader.link().rows(clusters).await?)).await?;
        for cluster in &clusters {
            let of = Of { cluster: Some(cluster.number(0)?), name: cluster.text(1)? };
            if let Some(before) = purge.before(settings.steps) {
                while self.purge_part(&purge, (Kind::Steps, before), of, &mut purged).await? {}
            }
            for (age, which) in [(settings.scripts, Text::Script), (settings.environments, Text::Environment)] {
                if let Some(before) = purge.before(age) {
                    purged.texts += self.purge_texts(&purge, of, (which, before)).await?;
                }
            }
            if let Some(before) = purge.before(settings.jobs) {
                while self.purge_jobs(&purge, before, of, &mut purged).await? {}
                if !is_clean {
                    self.purge_orphans(&purge, before, of).await?;
                }
            }
            for (age, kind) in [(settings.events, Kind::Events), (settings.reservations, Kind::Reservations)] {
                if let Some(before) = purge.before(age) {
                    while self.purge_part(&purge, (kind, before), of, &mut purged).await? {}
                }
            }
        }
        // Those of a purge that was interrupted are gone now.
        self.has_no_orphans.store(is_clean || settings.jobs.is_some(), Ordering::Relaxed);
        if let Some(before) = purge.before(settings.transactions) {
            let of = Of { cluster: None, name: "slurmdbd" };
            while self.purge_part(&purge, (Kind::Transactions, before), of, &mut purged).await? {}
        }
        Ok(purged)
    }

    /// Is anything so old that a purge would delete it?
    pub async fn has_old(&self, settings: &PurgeSettings, now: Timestamp) -> Result<bool, StoreError> {
        let purge = Purge { settings, folder: &self.archive, now, zone: TimeZone::system() };
        let clusters = Statement::of("SELECT id FROM clusters");
        let clusters = self.read(async |reader| Ok(reader.link().rows(clusters).await?)).await?;
        let of_clusters = [
            (settings.steps, Kind::Steps),
            (settings.jobs, Kind::Jobs),
            (settings.events, Kind::Events),
            (settings.reservations, Kind::Reservations),
        ];
        for row in &clusters {
            let cluster = row.number(0)?;
            for (age, kind) in of_clusters {
                let Some(before) = purge.before(age) else { continue };
                if !self.old((kind, before), Some(cluster), (1, false)).await?.is_empty() {
                    return Ok(true);
                }
            }
            for (age, which) in [(settings.scripts, Text::Script), (settings.environments, Text::Environment)] {
                let Some(before) = purge.before(age) else { continue };
                let old = async |reader: &mut Reader| {
                    texts::old(&mut reader.link(), cluster, (which, before), i64::MIN).await
                };
                if !self.read(old).await?.is_empty() {
                    return Ok(true);
                }
            }
        }
        let Some(before) = purge.before(settings.transactions) else { return Ok(false) };
        Ok(!self.old((Kind::Transactions, before), None, (1, false)).await?.is_empty())
    }

    /// Does the rest of what earlier purges began. Did one of them delete jobs, whose scripts may be left?
    async fn settle_earlier(&self, purge: &Purge<'_>, purged: &mut Purged) -> Result<bool, StoreError> {
        let mut of_jobs = false;
        for noted in self.unsettled().await? {
            if let Some((kind, settled)) = self.settle(&noted, purge.manner()).await? {
                purged.note(kind, settled.gone);
                of_jobs |= kind == Kind::Jobs;
            }
        }
        Ok(of_jobs)
    }

    /// The next rows that were old before that time: so many at most, with their bodies or without.
    async fn old(
        &self,
        (kind, before): Which,
        cluster: Option<i64>,
        (most, bodies): (usize, bool),
    ) -> Result<Vec<Old>, StoreError> {
        let (columns, time) = (kind.key().len(), time(kind).unwrap_or_default());
        let body = if bodies { ", body" } else { "" };
        let mut sql = Statement::built(format!("SELECT {}, {time}{body}", kind.key().join(", ")));
        sql.push_with(format_args!(" FROM {} WHERE {time} < ", kind.table()), before.0);
        if let Some(cluster) = cluster {
            sql.push_with(" AND cluster = ", cluster);
        }
        sql.push(format_args!(" LIMIT {most}"));
        let mut all = Vec::new();
        for row in &self.read(async |reader| Ok(reader.link().rows(sql).await?)).await? {
            let key = kind.key_of(row)?;
            let body = if bodies { row.bytes(columns + 1)?.to_vec() } else { Vec::new() };
            all.push(Old { key, at: row.number(columns)?, body });
        }
        Ok(all)
    }

    /// Purges rows that were old before that time. True: there may be more.
    async fn purge_part(
        &self,
        purge: &Purge<'_>,
        which: Which,
        of: Of<'_>,
        purged: &mut Purged,
    ) -> Result<bool, StoreError> {
        let word = purge.word(which.0);
        let most = purge.at_a_time().min(PART);
        let old = self.old(which, of.cluster, (most, word.is_some())).await?;
        let settled = self.give_up(purge, which, of, old, word).await?;
        purged.note(which.0, settled.gone);
        Ok(settled.gone > 0)
    }

    /// Deletes rows that are old, archived before where there is a word for that.
    async fn give_up(
        &self,
        purge: &Purge<'_>,
        (kind, before): Which,
        of: Of<'_>,
        old: Vec<Old>,
        word: Option<&str>,
    ) -> Result<Settled, StoreError> {
        let mut settled = Settled::default();
        if old.is_empty() {
            return Ok(settled);
        }
        let Some(word) = word else {
            let keys: Vec<Vec<i64>> = old.into_iter().map(|old| old.key).collect();
            for some in keys.chunks(purge.manner().at_a_time) {
                self.delete_old((kind, time(kind), before), some, purge.manner(), &mut settled).await?;
            }
            return Ok(settled);
        };
        let rows = old
            .into_iter()
            .filter_map(|Old { key, at, body }| Some(Row { key, at, line: kind.line(of.name, &body)?, content: body }));
        let rows: Vec<Row> = rows.collect();
        let draft = self.draft(purge.folder, about(kind, of, word, before)).await?;
        self.settle_draft(purge, draft.add(rows).await?).await
    }

    async fn settle_draft(&self, purge: &Purge<'_>, draft: Draft) -> Result<Settled, StoreError> {
        let noted = draft.finish().await?;
        Ok(self.settle(&noted, purge.manner()).await?.map_or_else(Settled::default, |(_, settled)| settled))
    }

    /// Purges jobs that were old before that time, with their steps, scripts and environments. True: there may be more.
    async fn purge_jobs(
        &self,
        purge: &Purge<'_>,
        before: Timestamp,
        of: Of<'_>,
        purged: &mut Purged,
    ) -> Result<bool, StoreError> {
        let word = purge.word(Kind::Jobs);
        let most = purge.at_a_time().min(PART);
        let old = self.old((Kind::Jobs, before), of.cluster, (most, word.is_some())).await?;
        if old.is_empty() {
            return Ok(false);
        }
        // Steps go with their jobs: what is archived of one is archived of the other.
        let steps = match purge.word(Kind::Steps).or_else(|| word.map(|_| "step")) {
            Some(word) => self.archive_steps(purge, (of, word, before), &old).await?,
            None => self.delete_steps(purge, &old).await?,
        };
        // Of a job whose steps were told of in between nothing more is deleted now.
        let settled = self.give_up(purge, (Kind::Jobs, before), of, old, word).await?;
        purged.steps += steps;
        purged.jobs += settled.gone;
        for which in [Text::Script, Text::Environment] {
            let orphans = settled.orphans.iter().filter(|(_, work)| work.which == which);
            let orphans: Vec<Work> = orphans.map(|(_, work)| work.clone()).collect();
            self.give_up_texts(purge, of, (which, before), &orphans).await?;
        }
        Ok(settled.gone + steps > 0)
    }

    /// Archives and deletes all steps of old jobs, a thousand at a time: some jobs have millions. How many.
    async fn archive_steps(
        &self,
        purge: &Purge<'_>,
        (of, word, before): (Of<'_>, &str, Timestamp),
        jobs: &[Old],
    ) -> Result<u64, StoreError> {
        let mut draft: Option<Draft> = None;
        let mut rows = Vec::new();
        for (number, job) in jobs.iter().enumerate() {
            let (cluster, run) = (job.key[0], job.key[2]);
            let mut place = None;
            loop {
                let some = self
                    .read(async |reader| {
                        let mut link = reader.link();
                        Ok(link.rows(behind_step(link.dialect(), cluster, run, place)).await?)
                    })
                    .await?;
                for row in &some {
                    let (step, task, content) = (row.number(0)?, row.number(1)?, row.bytes(2)?.to_vec());
                    place = Some((step, task));
                    let line = Kind::Steps.line(of.name, &content);
                    rows.extend(line.map(|line| Row {
                        key: vec![cluster, run, step, task],
                        at: job.at,
                        content,
                        line,
                    }));
                }
                let is_last = some.len() < CHUNK && number + 1 == jobs.len();
                if !rows.is_empty() && (rows.len() >= CHUNK || is_last) {
                    let begun = match draft.take() {
                        Some(draft) => draft,
                        None => self.draft(purge.folder, about(Kind::Steps, of, word, before)).await?,
                    };
                    draft = Some(begun.add(std::mem::take(&mut rows)).await?);
                }
                if some.len() < CHUNK {
                    break;
                }
            }
        }
        match draft {
            Some(draft) => Ok(self.settle_draft(purge, draft).await?.gone),
            None => Ok(0),
        }
    }

    /// Deletes all steps of old jobs. How many.
    async fn delete_steps(&self, purge: &Purge<'_>, jobs: &[Old]) -> Result<u64, StoreError> {
        let at_a_time = purge.manner().at_a_time;
        let mut all = 0;
        for some in jobs.chunks(CHUNK) {
            let runs: Vec<[i64; 2]> = some.iter().map(|job| [job.key[0], job.key[2]]).collect();
            loop {
                let gone = self
                    .write(async |writer| {
                        let mut tx = writer.connection()?.begin().await?;
                        let mut link = tx.link();
                        let which = link.dialect().among(&["cluster", "sluid"], &runs);
                        let key = Kind::Steps.key();
                        let next = format!("SELECT {} FROM steps WHERE {which} LIMIT {at_a_time}", key.join(", "));
                        let mut keys = Vec::new();
                        for row in &link.rows(Statement::built(next)).await? {
                            keys.push(Kind::Steps.key_of(row)?);
                        }
                        if !keys.is_empty() {
                            let these = link.dialect().among(key, &keys);
                            link.execute(Statement::built(format!("DELETE FROM steps WHERE {these}"))).await?;
                        }
                        tx.commit().await?;
                        Ok(keys.len())
                    })
                    .await?;
                all += gone as u64;
                if gone < at_a_time {
                    break;
                }
            }
        }
        Ok(all)
    }

    /// Scripts or environments of jobs that ended before that time, in parts. How many jobs had them.
    async fn purge_texts(
        &self,
        purge: &Purge<'_>,
        of: Of<'_>,
        (which, before): (Text, Timestamp),
    ) -> Result<u64, StoreError> {
        let cluster = of.cluster.unwrap_or_default();
        let (mut gone, mut behind) = (0, i64::MIN);
        loop {
            let old =
                async |reader: &mut Reader| texts::old(&mut reader.link(), cluster, (which, before), behind).await;
            let old = self.read(old).await?;
            let Some(last) = old.last().map(|work| work.job) else { return Ok(gone) };
            behind = last;
            gone += self.give_up_texts(purge, of, (which, before), &old).await?;
        }
    }

    /// Scripts and environments that no job has any more: those of a purge that was interrupted between the two.
    async fn purge_orphans(&self, purge: &Purge<'_>, before: Timestamp, of: Of<'_>) -> Result<(), StoreError> {
        let cluster = of.cluster.unwrap_or_default();
        let mut behind = i64::MIN;
        loop {
            let some = async |reader: &mut Reader| texts::orphans(&mut reader.link(), cluster, before, behind).await;
            let some = self.read(some).await?;
            let Some(last) = some.last().map(|work| work.job) else { return Ok(()) };
            // Both of a job may be the last ones.
            behind = if some.len() < CHUNK { last } else { last - 1 };
            let mut gone = 0;
            for which in [Text::Script, Text::Environment] {
                let of_kind: Vec<Work> = some.iter().filter(|work| work.which == which).cloned().collect();
                gone += self.give_up_texts(purge, of, (which, before), &of_kind).await?;
            }
            if gone == 0 {
                behind = last;
            }
        }
    }

    /// Deletes scripts or environments of jobs, archived before where that is wanted. How many.
    async fn give_up_texts(
        &self,
        purge: &Purge<'_>,
        of: Of<'_>,
        (which, before): (Text, Timestamp),
        works: &[Work],
    ) -> Result<u64, StoreError> {
        let cluster = of.cluster.unwrap_or_default();
        let key = |work: &Work| vec![cluster, work.job, work.which as i64];
        let mut settled = Settled::default();
        let Some(word) = purge.word_of_text(which) else {
            for some in works.chunks(purge.manner().at_a_time) {
                let keys: Vec<Vec<i64>> = some.iter().map(key).collect();
                self.delete_old((Kind::Texts, None, before), &keys, purge.manner(), &mut settled).await?;
            }
            return Ok(settled.gone);
        };
        let mut gone = 0;
        let mut some = works.chunks(TEXTS_AT_ONCE).peekable();
        while some.peek().is_some() {
            let mut draft = self.draft(purge.folder, about(Kind::Texts, of, word, before)).await?;
            while let Some(some) = some.next_if(|_| draft.bytes() < TEXT_BYTES) {
                let read = self.read(async |reader| texts::read(&mut reader.link(), cluster, some).await).await?;
                let rows = read.into_iter().map(|(work, words)| {
                    let (name, job) = (of.name.to_owned(), u32::try_from(work.job).unwrap_or(u32::MAX));
                    let line = Archived::Text { cluster: name, job, which, words };
                    Row { key: key(work), at: work.at, content: work.hash.clone(), line }
                });
                draft = draft.add(rows.collect()).await?;
            }
            gone += self.settle_draft(purge, draft).await?.gone;
        }
        Ok(gone)
    }
}

fn about(kind: Kind, of: Of<'_>, word: &str, before: Timestamp) -> About {
    About { kind, cluster: of.name.to_owned(), word: word.to_owned(), before }
}

impl Purged {
    const fn note(&mut self, kind: Kind, count: u64) {
        *match kind {
            Kind::Steps => &mut self.steps,
            Kind::Jobs => &mut self.jobs,
            Kind::Events => &mut self.events,
            Kind::Reservations => &mut self.reservations,
            Kind::Transactions => &mut self.transactions,
            Kind::Texts => &mut self.texts,
        } += count;
    }
}

#[cfg(test)]
#[path = "purge_test.rs"]
mod tests;
