//! `modify job`: what is said of records of jobs.

use super::{
    asking,
    session::Code,
    told,
    words::{Word, WordError, parts, past},
    world::World,
};
use crate::query::sacct::{named, options::filter_job};
use garrick_accounts::records::{JobEdit, Modified, RecordsReply, RecordsRequest, Which};
use garrick_asking::{accounting::AccountsError, cluster::ClusterError};
use garrick_model::{entities::Entities, state::ExitStatus, time::Timestamp};
use garrick_render::clock::Clock;

#[derive(Clone, Copy, Debug)]
enum Condition {
    Clusters,
    EndTime,
    JobIds,
    StartTime,
    Users,
    WcKeys,
}

const CONDITIONS: &[(&str, Condition)] = &[
    ("Clusters", Condition::Clusters),
    ("EndTime", Condition::EndTime),
    ("JobIDs", Condition::JobIds),
    ("StartTime", Condition::StartTime),
    ("Users", Condition::Users),
    ("WCKeys", Condition::WcKeys),
];

#[derive(Clone, Copy, Debug)]
enum Setting {
    AdminComment,
    Comment,
    DerivedExitCode,
    Extra,
    NewWcKey,
    SystemComment,
    Tres,
}

const SETTINGS: &[(&str, Setting)] = &[
    ("AdminComment", Setting::AdminComment),
    ("Comment", Setting::Comment),
    ("DerivedExitCode", Setting::DerivedExitCode),
    ("DerivedEC", Setting::DerivedExitCode),
    ("Extra", Setting::Extra),
    ("NewWCKey", Setting::NewWcKey),
    ("SystemComment", Setting::SystemComment),
    ("TRES", Setting::Tres),
];

const HEADING: &str = " Modified jobs...\n";

/// Runs `modify job`.
pub fn run(words: &[String], immediate: bool, world: &mut dyn World) -> Code {
    let parts = parts(words);
    let mut which = Which::default();
    for word in &parts.conditions {
        if let Err(why) = narrow(&mut which, word, world) {
            match why {
                Some(why) => world.err(&format!("sacctmgr: error: {why}\n")),
                None => told::unknown_condition(world, word),
            }
            return Ok(1);
        }
    }
    if which.filter.clusters.is_empty() {
        which.filter.clusters.push(world.cluster());
    }
    let mut edit = JobEdit::default();
    // Which TRES there are is asked for where one is named.
    let names_tres = parts.set.iter().any(|word| matches!(word.find(SETTINGS), Some(Setting::Tres)));
    let entities = if names_tres { world.entities()? } else { Entities::default() };
    for word in &parts.set {
        if let Err(error) = set(&mut edit, word, &entities) {
            told::word_error(world, word, &error);
            return Ok(1);
        }
    }
    if edit == JobEdit::default() {
        world.err(" You didn't give me anything to set\n");
        return Ok(1);
    }
    carry_out(which, &edit, immediate, world)
}

fn carry_out(which: Which, edit: &JobEdit, immediate: bool, world: &mut dyn World) -> Code {
    let which = Box::new(which);
    let request = |only_try| RecordsRequest::Modify { which: which.clone(), edit: edit.clone(), only_try };
    let modified = match world.records(&request(!immediate)) {
        Ok(RecordsReply::Modified(modified)) => modified,
        Ok(_) => return Err(ClusterError::Unexpected("accounts").into()),
        Err(error) => return refused(error, world),
    };
    if modified.is_empty() {
        world.err(" Error with request: Data has not changed since time specified\n");
        world.out(HEADING);
        return Ok(1);
    }
    world.out(&lines(&modified, &Clock::system()));
    if !immediate && asking::commits(world) {
        return world.records(&request(false)).map(|_| 0).or_else(|error| refused(error, world));
    }
    Ok(0)
}

fn refused(error: AccountsError, world: &mut dyn World) -> Code {
    if !error.is_denial() {
        return Err(error);
    }
    told::library_error(world, told::DENIED);
    world.err(&format!(" Error with request: {error}\n"));
    world.out(HEADING);
    Ok(1)
}

fn lines(modified: &[Modified], clock: &Clock) -> String {
    let line = |one: &Modified| format!("  {} submitted at {}\n", one.job, clock.at(one.submit));
    std::iter::once(HEADING.to_owned()).chain(modified.iter().map(line)).collect()
}

/// Narrows what is meant. `Err(None)`: it is no condition.
fn narrow(which: &mut Which, word: &Word<'_>, world: &dyn World) -> Result<(), Option<String>> {
    let filter = &mut which.filter;
    match word.find(CONDITIONS).ok_or(None)? {
        Condition::Clusters => filter.clusters.extend(word.names()),
        Condition::JobIds => {
            let jobs = named::read(word.value).map_err(|error| Some(error.to_string()))?;
            filter.jobs.extend(jobs.into_iter().map(filter_job));
        }
        Condition::WcKeys => filter.wckeys.extend(word.names()),
        Condition::StartTime => which.start = Some(time(word)?),
        Condition::EndTime => which.end = Some(time(word)?),
        Condition::Users => {
            for name in word.names() {
                let uid = world.uid(&name).ok_or_else(|| Some(format!("Invalid user id: {name}")))?;
                filter.users.push(uid);
            }
        }
    }
    Ok(())
}

fn time(word: &Word<'_>) -> Result<Timestamp, Option<String>> {
    past(word.value).map_err(Some)
}

fn set(edit: &mut JobEdit, word: &Word<'_>, entities: &Entities) -> Result<(), WordError> {
    word.only_is()?;
    let text = Some(word.value.to_owned());
    match word.find(SETTINGS).ok_or(WordError::Unknown)? {
        Setting::AdminComment => edit.admin_comment = text,
        Setting::Comment => edit.comment = text,
        Setting::DerivedExitCode => {
            let number = word.number("DerivedExitCode")?;
            let bad = || WordError::Number("DerivedExitCode", word.value.to_owned());
            edit.derived = Some(number.and_then(wait_status).ok_or_else(bad)?);
        }
        Setting::Extra => edit.extra = text,
        Setting::NewWcKey => edit.wckey = Some(word.value.to_lowercase()),
        Setting::SystemComment => edit.system_comment = text,
        Setting::Tres => edit.tres.extend(word.tres(entities)?),
    }
    Ok(())
}

/// The number is one of wait(2): `9` is signal 9 (seen in Slurm 26.05.3).
fn wait_status(number: u64) -> Option<ExitStatus> {
    let status = u16::try_from(number).ok()?;
    let [code, signal] = status.to_be_bytes();
    Some(ExitStatus { code, signal: Some(signal & 0x7f).filter(|signal| *signal != 0) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use garrick_accounts::change::edit::TresEdit;
    use garrick_model::entities::names::TresRecord;

    #[test]
    fn a_derived_exit_code_is_a_number_of_wait() {
        let shown = |number| wait_status(number).map(|status| status.to_string());
        assert_eq!(
            [9, 256, 0, 65_536].map(shown),
            [Some("0:9"), Some("1:0"), Some("0:0"), None].map(|s| s.map(str::to_owned))
        );
    }

    #[test]
    fn owners_words_and_administrators_words_are_known() {
        let cpu = TresRecord { id: 1, kind: "cpu".to_owned(), name: String::new() };
        let entities = Entities { tres: [(1, cpu)].into(), ..Entities::default() };
        let set = |edit: &mut JobEdit, word: &str| set(edit, &Word::of(word), &entities);
        let mut edit = JobEdit::default();
        for word in
            ["comment='a b'", "admincomment=adm", "derivedec=7", "sys=''", "newwckey=K", "extra=e", "tres=cpu=4"]
        {
            assert_eq!(set(&mut edit, word), Ok(()), "{word}");
        }
        let text = |text: &str| Some(text.to_owned());
        let expected = JobEdit {
            comment: text("a b"),
            admin_comment: text("adm"),
            derived: wait_status(7),
            system_comment: text(""),
            wckey: text("k"),
            extra: text("e"),
            tres: [("cpu".to_owned(), TresEdit::Set(4))].into(),
        };
        assert_eq!(edit, expected);
        assert_eq!(set(&mut edit, "bogus=x"), Err(WordError::Unknown));
        let unknown = WordError::Tres("no TRES known by type tape".to_owned());
        assert_eq!(set(&mut edit, "tres=tape=1"), Err(unknown));
        assert_eq!(set(&mut edit, "comment+=x"), Err(WordError::Operator));
    }
}
