//! `sacctmgr archive dump` and `archive load`: what is old is purged and archived at once, and archives are read back.

use super::{
    Session,
    change::{
        asking, told,
        words::{Word, unquoted},
        world::{Live, World},
    },
};
use crate::output;
use garrick_accounts::{
    messages::AccountsRefusal,
    records::{PurgeOrder, RecordsReply, RecordsRequest},
};
use garrick_asking::{accounting::AccountsError, cluster::ClusterError};
use std::fs;

const SURE: &str = "This may result in loss of accounting database records (if Purge* options enabled).\n\
                    Are you sure you want to continue?";
const NO_ENTITY: &str = "No valid entity in archive command\nInput line must include, \"Dump\", or \"load\"\n";

/// An option of `archive dump`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Setting {
    Directory,
    PurgeJobs,
    PurgeSteps,
    PurgeTransactions,
    PurgeScripts,
    PurgeEnvironments,
    PurgeEvents,
    PurgeReservations,
    Events,
    Reservations,
    Jobs,
    Steps,
    Transactions,
    Scripts,
    Environments,
    /// Of what is kept with jobs, and goes with them: suspensions, and usage, which is not rolled up.
    WithJobs,
    NotYet,
}

const SETTINGS: &[(&str, Setting)] = &[
    ("Directory", Setting::Directory),
    ("Events", Setting::Events),
    ("Jobs", Setting::Jobs),
    ("JobScript", Setting::Scripts),
    ("JobEnv", Setting::Environments),
    ("PurgeEventAfter", Setting::PurgeEvents),
    ("PurgeJobAfter", Setting::PurgeJobs),
    ("PurgeJobScriptAfter", Setting::PurgeScripts),
    ("PurgeJobEnvAfter", Setting::PurgeEnvironments),
    ("PurgeResvAfter", Setting::PurgeReservations),
    ("PurgeStepAfter", Setting::PurgeSteps),
    ("PurgeSuspendAfter", Setting::WithJobs),
    ("PurgeTXNAfter", Setting::PurgeTransactions),
    ("PurgeUsageAfter", Setting::WithJobs),
    ("Reservations", Setting::Reservations),
    ("Script", Setting::NotYet),
    ("Steps", Setting::Steps),
    ("Suspend", Setting::WithJobs),
    ("TXN", Setting::Transactions),
    ("Usage", Setting::WithJobs),
];

/// Why a word of `archive` cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Wrong {
    Unknown(String),
    NotYet(String),
}

/// Runs `archive`. Returns its exit code.
pub(super) fn run(session: &mut Session, words: &[String]) -> i32 {
    let immediate = session.manner.immediate;
    let verb = words.first().map(|word| word.to_ascii_lowercase()).unwrap_or_default();
    let is = |name: &str| verb.len() >= 2 && name.starts_with(&verb);
    let (dumps, loads) = (is("dump"), is("load"));
    if !dumps && !loads {
        output::stderr(NO_ENTITY.as_bytes());
        return 1;
    }
    let mut live = match session.service() {
        Ok(service) => Live::new(service),
        Err(code) => return code,
    };
    let code = match dumps {
        true => dump(&words[1..], immediate, &mut live),
        false => load(&words[1..], immediate, &mut live),
    };
    let written = live.written();
    let code = code.unwrap_or_else(|error| session.failed(&error, ""));
    output::finish(&session.console, written, code)
}

fn wrong(world: &mut dyn World, wrong: &Wrong) -> i32 {
    world.err(&match wrong {
        Wrong::Unknown(word) => format!(" Unknown condition: {word}\n"),
        Wrong::NotYet(word) => format!("sacctmgr: error: archive {word}: not supported yet\n"),
    });
    1
}

fn dump(words: &[String], immediate: bool, world: &mut dyn World) -> Result<i32, AccountsError> {
    let order = match order(words) {
        Ok(order) => order,
        Err(why) => return Ok(wrong(world, &why)),
    };
    if let Some(Err(error)) = order.folder.as_ref().map(fs::metadata) {
        let (folder, why) = (order.folder.unwrap_or_default(), told::plain(&error));
        world.err(&format!(
            " dump: Failed to stat {folder}: {why}\n Note: For archive dump, the directory must be on the calling host.\n"
        ));
        return Ok(1);
    }
    if !immediate && !asking::is_sure(world, SURE) {
        world.out(" Changes Discarded\n");
        return Ok(0);
    }
    match world.records(&RecordsRequest::Purge(order)) {
        Ok(RecordsReply::Purged(_)) => {
            world.err("sacctmgr: accounting_storage/slurmdbd: jobacct_storage_p_archive: SUCCESS\n");
            Ok(0)
        }
        Ok(_) => Err(ClusterError::Unexpected("accounts").into()),
        Err(error) => refused(error, "dumping", world),
    }
}

fn refused(error: AccountsError, doing: &str, world: &mut dyn World) -> Result<i32, AccountsError> {
    match &error {
        AccountsError::Refused(AccountsRefusal::Denied) => told::library_error(world, told::DENIED),
        AccountsError::Refused(AccountsRefusal::Invalid(_)) => {}
        _ => return Err(error),
    }
    world.err(&format!(" Problem {doing} archive: {error}\n"));
    Ok(1)
}

fn order(words: &[String]) -> Result<PurgeOrder, Wrong> {
    let mut order = PurgeOrder::default();
    for whole in words {
        let word = Word::of(whole);
        let unknown = || Wrong::Unknown(whole.clone());
        let name = word.key.unwrap_or(whole).to_ascii_lowercase();
        let setting = find(&name).ok_or_else(unknown)?;
        let text = word.key.map(|_| word.value.to_owned());
        match (setting, text) {
            (Setting::NotYet, _) => return Err(Wrong::NotYet(whole.clone())),
            (Setting::Directory, Some(text)) => order.folder = Some(text),
            (Setting::PurgeJobs, Some(text)) => order.jobs = Some(text),
            (Setting::PurgeSteps, Some(text)) => order.steps = Some(text),
            (Setting::PurgeTransactions, Some(text)) => order.transactions = Some(text),
            (Setting::PurgeScripts, Some(text)) => order.scripts = Some(text),
            (Setting::PurgeEnvironments, Some(text)) => order.environments = Some(text),
            (Setting::PurgeEvents, Some(text)) => order.events = Some(text),
            (Setting::PurgeReservations, Some(text)) => order.reservations = Some(text),
            (Setting::Events, None) => order.archive_events = true,
            (Setting::Reservations, None) => order.archive_reservations = true,
            (Setting::Jobs, None) => order.archive_jobs = true,
            (Setting::Steps, None) => order.archive_steps = true,
            (Setting::Transactions, None) => order.archive_transactions = true,
            (Setting::Scripts, None) => order.archive_scripts = true,
            (Setting::Environments, None) => order.archive_environments = true,
            (Setting::WithJobs, _) => {}
            _ => return Err(unknown()),
        }
    }
    Ok(order)
}

/// The option of that name, or the first that begins so.
fn find(name: &str) -> Option<Setting> {
    const LETTERS: usize = 3;
    let is = |(known, _): &&(&str, Setting)| known.eq_ignore_ascii_case(name);
    let begins = |(known, _): &&(&str, Setting)| {
        name.len() >= LETTERS && known.get(..name.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(name))
    };
    SETTINGS.iter().find(is).or_else(|| SETTINGS.iter().find(begins)).map(|(_, setting)| *setting)
}

fn load(words: &[String], immediate: bool, world: &mut dyn World) -> Result<i32, AccountsError> {
    let mut file = None;
    for whole in words {
        let word = Word::of(whole);
        match word.key.map(str::to_ascii_lowercase).as_deref() {
            None | Some("file") => file = Some(unquoted(word.value).to_owned()),
            Some("insert") => return Ok(wrong(world, &Wrong::NotYet(whole.clone()))),
            Some(_) => return Ok(wrong(world, &Wrong::Unknown(whole.clone()))),
        }
    }
    let Some(file) = file else { return Ok(not_loaded(world, "Error with request.", "Unspecified error")) };
    let request = |only_try| RecordsRequest::Load { file: file.clone(), only_try };
    let new = match world.records(&request(!immediate)) {
        Ok(RecordsReply::Loaded { new, .. }) => new,
        Ok(RecordsReply::NoArchive(why)) => {
            let code = not_loaded(world, "No archive file given to recover.", &told::bare(&why));
            world.err(" Note: For archive load, the file must be accessible on the slurmdbd host.\n");
            return Ok(code);
        }
        Ok(_) => return Err(ClusterError::Unexpected("accounts").into()),
        Err(error) => return refused(error, "loading", world),
    };
    if new == 0 {
        // All of it is there.
        return Ok(not_loaded(world, "Error with request.", "Unspecified error"));
    }
    world.err("sacctmgr: accounting_storage/slurmdbd: jobacct_storage_p_archive_load: SUCCESS\n");
    if !immediate && asking::commits(world) {
        world.records(&request(false))?;
    }
    Ok(0)
}

fn not_loaded(world: &mut dyn World, library: &str, why: &str) -> i32 {
    told::library_error(world, library);
    world.err(&format!(" Problem loading archive file: {why}\n"));
    1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &[&str]) -> Result<PurgeOrder, Wrong> {
        order(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn options_of_dump_are_read() {
        let some = |text: &str| Some(text.to_owned());
        let expected = PurgeOrder {
            folder: some("/a"),
            jobs: some("1days"),
            transactions: some("2"),
            archive_jobs: true,
            archive_transactions: true,
            ..PurgeOrder::default()
        };
        assert_eq!(read(&["directory=/a", "purgejobafter=1days", "jobs", "PurgeTXN=2", "txn"]), Ok(expected));
        assert_eq!(read(&[]), Ok(PurgeOrder::default()));
        for word in ["bogus=1", "jobs=1", "directory", "pu"] {
            assert_eq!(read(&[word]), Err(Wrong::Unknown(word.to_owned())));
        }
        let events =
            PurgeOrder { events: some("1"), archive_events: true, archive_reservations: true, ..PurgeOrder::default() };
        assert_eq!(read(&["events", "purgeeventafter=1", "resv"]), Err(Wrong::Unknown("resv".to_owned())));
        assert_eq!(read(&["events", "purgeeventafter=1", "reservations"]), Ok(events));
        let texts = PurgeOrder { archive_scripts: true, archive_environments: true, ..PurgeOrder::default() };
        assert_eq!(read(&["jobscript", "jobenv", "suspend", "purgeusageafter=1"]), Ok(texts));
        assert_eq!(read(&["script=/x"]), Err(Wrong::NotYet("script=/x".to_owned())));
    }
}
