//! Questions that change records of jobs, purge and read archives back, and how long questions took.

use super::{
    archive::purge,
    door::{Asker, World},
};
use garrick_accountant::{
    purge::Purged,
    records::{Edited, LoadError},
};
use garrick_accounts::{
    messages::{AccountsRefusal, AccountsReply, ServiceOrder, Statistics},
    records::{self, JobEdit, MOST_RUNS, PurgeOrder, RecordsReply, RecordsRequest},
};
use garrick_model::{
    config::purge::{Age, PurgeSettings},
    time::Timestamp,
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// Permission bits of who is not the owner to write.
const OTHERS_WRITE: u32 = 0o022;

/// Who tells the service to end has heard the answer, and ended the conversation, by then.
const BEFORE_END: Duration = Duration::from_secs(1);

/// Characters of a question that are logged.
const LONGEST_LINE: usize = 400;

/// How long questions took so far.
pub struct Clockwork(Mutex<Statistics>);

impl Clockwork {
    /// From now on.
    pub fn started() -> Self {
        Self(Mutex::new(Statistics { since: Timestamp::now(), ..Statistics::default() }))
    }

    /// Something was done that began then.
    pub fn note(&self, kind: &str, uid: u32, begun: Instant) {
        let micros = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).note(kind, uid, micros);
    }

    fn begin_anew(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) =
            Statistics { since: Timestamp::now(), ..Statistics::default() };
    }

    fn so_far(&self) -> Statistics {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn invalid(what: impl Into<String>) -> AccountsReply {
    AccountsReply::Refused(AccountsRefusal::Invalid(what.into()))
}

impl World {
    /// For operators and administrators.
    pub(super) fn statistics(&self, caller: &Asker) -> AccountsReply {
        match self.is_admin(caller) {
            true => AccountsReply::Statistics(Box::new(self.clockwork.so_far())),
            false => AccountsReply::Refused(AccountsRefusal::Denied),
        }
    }

    /// Does what the service itself is told to do: for administrators, and the counting anew for operators too.
    pub(super) fn obey(&self, order: ServiceOrder, caller: &Asker) -> AccountsReply {
        let who = self.actor(caller);
        let clears = order == ServiceOrder::ClearStatistics && self.is_admin(caller);
        let may = who.believed || self.is_administrator(&who) || clears;
        if !may {
            return AccountsReply::Refused(AccountsRefusal::Denied);
        }
        tracing::info!(user = who.name, host = caller.caller.host, ?order, "the service is told to do something");
        match order {
            ServiceOrder::ClearStatistics => self.clockwork.begin_anew(),
            ServiceOrder::Reconfigure => {
                if let Err(why) = self.live.read_again() {
                    tracing::error!("the settings were not changed: {why}");
                    return invalid(why);
                }
            }
            ServiceOrder::Shutdown if self.live.is_embedded() => {
                return invalid(
                    "this service is a part of its cluster's controller, and ends with it: use `garrick down`",
                );
            }
            // The service ends when that was heard: see `end_when`.
            ServiceOrder::Shutdown => {}
        }
        AccountsReply::Done
    }

    /// Ends the service, as a signal from outside would, when this conversation has ended.
    pub(super) async fn end_when(ended: impl Future<Output = ()>) {
        let _ = tokio::time::timeout(BEFORE_END, ended).await;
        if let Err(error) = kill(Pid::this(), Signal::SIGTERM) {
            tracing::error!(%error, "this process cannot be ended");
        }
    }

    /// A TRES of an edit that there is not.
    fn unknown_tres<'e>(&self, edit: &'e JobEdit) -> Option<&'e String> {
        let entities = self.store.entities();
        let is_there = |full: &str| {
            let (kind, name) = full.split_once('/').unwrap_or((full, ""));
            entities.tres.values().any(|tres| tres.kind == kind && tres.name == name)
        };
        edit.tres.keys().find(|name| !is_there(name))
    }

    /// Changes records, if the one who asks may.
    pub(super) async fn records(&self, request: RecordsRequest, caller: &Asker) -> AccountsReply {
        let who = self.actor(caller);
        if !records::may(&request, &who, self.is_admin(caller), self.is_administrator(&who)) {
            return AccountsReply::Refused(AccountsRefusal::Denied);
        }
        let of_archives = matches!(request, RecordsRequest::Purge(_) | RecordsRequest::Load { .. });
        if of_archives && self.settings.no_archive_commands {
            return invalid("the site does without these commands (DisableArchiveCommands of slurmdbd.conf)");
        }
        let Ok(_turn_of_user) = self.answering.of(caller.caller.uid).acquire_owned().await else {
            return AccountsReply::Refused(AccountsRefusal::Busy);
        };
        let done: String = format!("{request:?}").chars().take(LONGEST_LINE).collect();
        let reply = match request {
            RecordsRequest::Modify { which, edit, only_try } => {
                if !which.filter.is_sound() || !edit.is_sound() {
                    return invalid("a list or text of the question is too long, or means nothing");
                }
                if let Some(unknown) = self.unknown_tres(&edit) {
                    return invalid(format!("there is no TRES {unknown}"));
                }
                let owner = (!self.is_admin(caller)).then(|| caller.owner());
                match self.store.edit(&which, &edit, owner.as_ref(), only_try).await {
                    Ok(Edited::Done(modified)) => Ok(RecordsReply::Modified(modified)),
                    Ok(Edited::Denied) => return AccountsReply::Refused(AccountsRefusal::Denied),
                    Ok(Edited::TooMany) => return invalid("too many jobs at a time"),
                    Err(error) => Err(error),
                }
            }
            RecordsRequest::Repair { runs, .. } if runs.len() > MOST_RUNS => return invalid("too many jobs at a time"),
            RecordsRequest::Repair { cluster, runs, failed } => {
                self.store.repair(&cluster, &runs, failed).await.map(RecordsReply::Repaired)
            }
            RecordsRequest::Purge(order) => match ordered(&self.settings.purge, &order) {
                Ok(settings) => purge(&self.store, &self.settings, &settings).await.map(purged),
                Err(why) => return invalid(why),
            },
            RecordsRequest::Load { file, only_try } => match self.store.load(Path::new(&file), only_try).await {
                Ok(loaded) => Ok(RecordsReply::Loaded { new: loaded.new, known: loaded.known }),
                Err(LoadError::Store(error)) => Err(error),
                Err(error) => Ok(RecordsReply::NoArchive(error.to_string())),
            },
        };
        if reply.is_ok() {
            tracing::info!(user = who.name, host = caller.caller.host, done, "records were asked to be changed");
        }
        reply.map_or_else(super::door::failed, AccountsReply::Records)
    }
}

const fn purged(purged: Purged) -> RecordsReply {
    let Purged { jobs, steps, transactions, events, reservations, texts } = purged;
    RecordsReply::Purged([jobs, steps, transactions, events, reservations, texts])
}

/// The settings with what is said otherwise.
fn ordered(settings: &PurgeSettings, order: &PurgeOrder) -> Result<PurgeSettings, String> {
    let age = |own: Option<Age>, said: &Option<String>| match said {
        None => Ok(own),
        Some(text) => Age::of(text).map(Some).ok_or_else(|| format!("\"{text}\" is not an age")),
    };
    let folder = order.folder.as_deref().map(folder).transpose()?;
    Ok(PurgeSettings {
        jobs: age(settings.jobs, &order.jobs)?,
        steps: age(settings.steps, &order.steps)?,
        transactions: age(settings.transactions, &order.transactions)?,
        events: age(settings.events, &order.events)?,
        reservations: age(settings.reservations, &order.reservations)?,
        scripts: age(settings.scripts, &order.scripts)?,
        environments: age(settings.environments, &order.environments)?,
        archive_jobs: settings.archive_jobs || order.archive_jobs,
        archive_steps: settings.archive_steps || order.archive_steps,
        archive_transactions: settings.archive_transactions || order.archive_transactions,
        archive_events: settings.archive_events || order.archive_events,
        archive_reservations: settings.archive_reservations || order.archive_reservations,
        archive_scripts: settings.archive_scripts || order.archive_scripts,
        archive_environments: settings.archive_environments || order.archive_environments,
        folder: folder.or_else(|| settings.folder.clone()),
        at_a_time: settings.at_a_time,
    })
}

/// A folder that is there and in which nobody else puts files or links.
fn folder(path: &str) -> Result<PathBuf, String> {
    let about = fs::metadata(path).map_err(|error| format!("{path}: {error}"))?;
    let unfit = |why: &str| Err(format!("{path}: {why}"));
    match () {
        () if !Path::new(path).is_absolute() || !about.is_dir() => unfit("not the absolute path of a folder"),
        () if about.mode() & OTHERS_WRITE != 0 => unfit("others may write there"),
        () => Ok(path.into()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use garrick_model::config::purge::AgeUnit;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn what_is_not_said_is_as_it_is_configured() {
        let age = |count, unit| Some(Age { count, unit });
        let settings = PurgeSettings { jobs: age(3, AgeUnit::Days), archive_jobs: true, ..PurgeSettings::default() };
        let order = PurgeOrder { steps: Some("2hours".to_owned()), archive_steps: true, ..PurgeOrder::default() };
        let expected = PurgeSettings { steps: age(2, AgeUnit::Hours), archive_steps: true, ..settings.clone() };
        assert_eq!(ordered(&settings, &order), Ok(expected));
        let bad = PurgeOrder { jobs: Some("soon".to_owned()), ..PurgeOrder::default() };
        assert_eq!(ordered(&settings, &bad), Err("\"soon\" is not an age".to_owned()));
    }

    #[test]
    fn archives_go_where_nobody_else_writes() {
        let path = std::env::temp_dir().join(format!("garrick-archive-{}", std::process::id()));
        fs::create_dir(&path).unwrap();
        let text = path.to_str().unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(folder(text), Ok(path.clone()));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o1777)).unwrap();
        assert_eq!(folder(text), Err(format!("{text}: others may write there")));
        fs::remove_dir(&path).unwrap();
        assert!(folder(text).unwrap_err().contains("No such file"));
        assert!(folder("tmp").is_err());
    }
}
