//! Limits on the texts of a job. A name goes into the environment of the site's Prolog, a path to `open`: what the kernel would
//! not accept there is refused when the job is submitted or changed, as Slurm does, rather than on a node. Called by admission
//! and for changes.

use garrick_model::{mail, messages::command::JobChange, refusal::Refusal, spec::JobSpec};

/// Most bytes of a name, a word or a line, without the final zero: far above what a user types, and far below the size of an
/// environment. A choice of this project.
const MOST_OF_WORD: usize = 1024;
/// Bytes of a path (`PATH_MAX`).
const MOST_OF_PATH: usize = 4096;
/// Bytes of the command line as typed: Slurm's default of `max_submit_line_size` in slurm.conf(5).
const MOST_OF_LINE: usize = 1024 * 1024;
/// Nodes, partitions or reservations that one job names.
const MOST_NAMES: usize = 1 << 20;

/// Judges one text.
fn check(what: &str, text: &str, most: usize) -> Result<(), Refusal> {
    let size = text.len();
    if size > most {
        return Err(Refusal::TooLarge(format!("{what} has {size} bytes, and {most} are taken: make it shorter")));
    }
    without_zero(what, text.as_bytes())
}

fn without_zero(what: &str, bytes: &[u8]) -> Result<(), Refusal> {
    match bytes.iter().position(|byte| *byte == 0) {
        Some(at) => {
            Err(Refusal::InvalidUpdate(format!("{what} has a zero byte (at {at}): no program can be given that")))
        }
        None => Ok(()),
    }
}

fn check_some<'t>(
    texts: impl IntoIterator<Item = (&'static str, &'t Option<String>)>,
    most: usize,
) -> Result<(), Refusal> {
    let given = texts.into_iter().filter_map(|(what, text)| Some((what, text.as_deref()?)));
    given.into_iter().try_for_each(|(what, text)| check(what, text, most))
}

fn check_names(what: &str, names: &[String]) -> Result<(), Refusal> {
    if names.len() > MOST_NAMES {
        let said = format!("{what} has {} names, and {MOST_NAMES} are taken: name fewer", names.len());
        return Err(Refusal::TooLarge(said));
    }
    names.iter().try_for_each(|name| check(what, name, MOST_OF_WORD))
}

/// A mail program runs as SlurmUser, and is given the address as it is.
fn check_address(what: &str, address: Option<&str>) -> Result<(), Refusal> {
    match address.filter(|address| !mail::is_address(address)) {
        Some(address) => Err(Refusal::InvalidUpdate(format!("{what}: {address:?} is no address for mail"))),
        None => Ok(()),
    }
}

/// Judges the texts of a submission, except for the size of its script.
pub fn check_spec(spec: &JobSpec) -> Result<(), Refusal> {
    check("the job's name", &spec.name, MOST_OF_WORD)?;
    check("the submitting host's name", &spec.submit_host, MOST_OF_WORD)?;
    check_some(
        [
            ("the account", &spec.account),
            ("the QOS", &spec.qos),
            ("the comment", &spec.comment),
            ("--extra", &spec.extra),
            ("the WCKey", &spec.wckey),
            ("the constraint", &spec.constraint),
            ("--prefer", &spec.prefer),
            ("--batch", &spec.batch_features),
            ("the licenses", &spec.licenses),
            ("the MCS label", &spec.mcs_label),
            ("--mail-user", &spec.mail.user),
        ],
        MOST_OF_WORD,
    )?;
    check_address("--mail-user", spec.mail.user.as_deref())?;
    check("the working directory", &spec.work_dir, MOST_OF_PATH)?;
    let paths = [
        ("the path of standard input", &spec.stdin),
        ("the path of standard output", &spec.stdout),
        ("the path of standard error", &spec.stderr),
        ("the command", &spec.command),
    ];
    check_some(paths, MOST_OF_PATH)?;
    check("the command line", &spec.submit_line, MOST_OF_LINE)?;
    check_names("the list of partitions", &spec.partitions)?;
    check_names("the list of reservations", &spec.reservations)?;
    check_names("--nodelist", &spec.nodelist)?;
    check_names("--exclude", &spec.exclude)?;
    check_names("the nodes of tasks", &spec.layout.task_nodes)?;
    for asked in spec.gres.all() {
        check("a generic resource", &asked.to_string(), MOST_OF_WORD)?;
    }
    spec.environment.iter().try_for_each(|entry| without_zero("a variable of the environment", entry))?;
    spec.argv.iter().try_for_each(|argument| without_zero("an argument of the script", argument))
}

/// Judges the texts of a change.
pub fn check_change(change: &JobChange) -> Result<(), Refusal> {
    let request = &change.request;
    check_some(
        [
            ("Name", &change.name),
            ("Comment", &change.comment),
            ("AdminComment", &change.admin_comment),
            ("Extra", &change.extra),
            ("Features", &change.constraint),
            ("Prefer", &change.prefer),
            ("Licenses", &change.licenses),
            ("Account", &change.account),
            ("MCSLabel", &change.mcs_label),
            ("QOS", &request.qos),
            ("WCKey", &request.wckey),
            ("MailUser", &change.mail_user),
        ],
        MOST_OF_WORD,
    )?;
    check_address("MailUser", change.mail_user.as_deref())?;
    let paths = [
        ("StdIn", &request.stdin),
        ("StdOut", &request.stdout),
        ("StdErr", &request.stderr),
        ("WorkDir", &request.work_dir),
    ];
    check_some(paths, MOST_OF_PATH)?;
    let lists = [
        ("Partition", &change.partitions),
        ("ReqNodeList", &change.nodelist),
        ("ExcNodeList", &change.exclude),
        ("ReservationName", &change.reservations),
    ];
    lists.into_iter().try_for_each(|(what, names)| check_names(what, names.as_deref().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use garrick_model::testing::spec;

    fn named(name: String) -> JobSpec {
        JobSpec { name, ..spec() }
    }

    #[test]
    fn a_name_that_no_environment_holds_is_refused() {
        check_spec(&named("x".repeat(MOST_OF_WORD))).unwrap();
        let said = check_spec(&named("x".repeat(131_073))).unwrap_err().to_string();
        assert_eq!(said, "the job's name has 131073 bytes, and 1024 are taken: make it shorter");
        let said = check_spec(&named("a\0b".to_owned())).unwrap_err().to_string();
        assert_eq!(said, "the job's name has a zero byte (at 1): no program can be given that");
    }

    #[test]
    fn every_text_is_looked_at() {
        let zero = || Some("\0".to_owned());
        let wrong = [
            JobSpec { account: zero(), ..spec() },
            JobSpec { stdout: zero(), ..spec() },
            JobSpec { work_dir: "/".repeat(MOST_OF_PATH + 1), ..spec() },
            JobSpec { partitions: vec!["p".repeat(MOST_OF_WORD + 1)], ..spec() },
            JobSpec { environment: vec![b"A=\0".to_vec().into()].into(), ..spec() },
            JobSpec { argv: vec![b"\0".to_vec().into()], ..spec() },
        ];
        for one in wrong {
            assert!(check_spec(&one).is_err(), "{one:?}");
        }
        check_spec(&spec()).unwrap();
        let change = |name| JobChange { name, ..JobChange::default() };
        assert!(check_change(&change(zero())).is_err() && check_change(&change(Some("new".into()))).is_ok());
    }
}
