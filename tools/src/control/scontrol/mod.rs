//! `scontrol`: shows and changes jobs, nodes and partitions; one command per call, or a prompt that reads them.
//!
//! | module | what it does |
//! |---|---|
//! | [`show`] | `show job`, `node`, `partition`, `step`, `config`, host lists |
//! | [`jobs`] | `hold`, `release`, `requeue`, `suspend`, `write batch_script` and the like |
//! | `reservations` | `create`, `update`, `delete` and `show` of reservations |
//! | `nodes`, `partitions` | `create` and `delete` of nodes and partitions |
//! | [`update`] | `update JobId=...`, `NodeName=...`, `PartitionName=...` |
//! | `keys`, `job_keys` | keys of `create` and `update`, one row each; those of jobs |
//! | [`daemons`] | `ping`, `reconfigure`, `shutdown`, how much is logged |
//! | `local` | `listpids`, `listjobs`, `liststeps`, `pidinfo`, `getent`: what runs on this host |
//! | `power` | `power`, `reboot`, `cancel_reboot` |
//! | `words` | the names of all commands |
//! | `write_config` | `write config` |
//! | `steps` | `notify`, `update StepId=` |
//! | `site` | `completing`, `errnumstr`, `getaddrs`, `wait_job`, `token`, `cluster` |

mod assoc_mgr;
pub mod daemons;
mod job_keys;
pub mod jobs;
mod keys;
mod licenses;
mod local;
mod nodes;
mod partitions;
mod power;
pub(crate) mod reservations;
pub mod show;
mod site;
mod steps;
mod topology;
pub mod update;
mod words;
mod write_config;

use crate::{
    options::{getopt, table::Arg},
    output::{self, Console, Verbosity},
    query::{
        arguments::{self, NO_FEDERATION, Outcome, Table, inert, option},
        choices,
    },
    telling::{self, Tell as _},
};
use garrick_asking::{
    accounts,
    cluster::Cluster,
    contact::{self, AskError, Asked, Contact},
};
use garrick_model::{
    ids::JobId,
    messages::command::{CommandReply, CommandRequest},
    refusal::Refusal,
};
use garrick_render::{
    clock::Clock,
    json::Form,
    records::{Lines, job::Detail},
    words::SLURM_VERSION,
};
use nix::unistd::{Gid, Uid, geteuid, setgroups, setresgid, setresuid};
use std::{
    ffi::OsString,
    io::{self, BufRead, IsTerminal as _, Write},
};

pub(crate) static TABLE: Table = Table {
    program: "scontrol",
    purpose: "Show and change jobs, nodes and partitions. Without a command, commands are read from a prompt.",
    operands: "[command [arguments]]",
    words: words::WORDS,
    options: &[
        option("all", Some('a'), Arg::None, "include hidden partitions"),
        option("details", Some('d'), Arg::None, "more about jobs"),
        option("future", Some('F'), Arg::None, "include planned nodes"),
        inert("federation", None, Arg::None, "jobs of the federation", NO_FEDERATION),
        option("hide", None, Arg::None, "exclude hidden partitions"),
        option("json", None, Arg::Optional("data_parser"), "show job, node, partition and step as JSON"),
        option("yaml", None, Arg::Optional("data_parser"), "the same as YAML"),
        inert("local", None, Arg::None, "only this cluster", NO_FEDERATION),
        option("clusters", Some('M'), Arg::Required("cluster"), "the cluster that is meant: this one, no other"),
        option("oneliner", Some('o'), Arg::None, "one line for each record"),
        option("quiet", Some('Q'), Arg::None, "only errors"),
        inert("sibling", None, Arg::None, "sibling jobs", NO_FEDERATION),
        option("uid", Some('u'), Arg::Required("user"), "as this user, where root asks"),
        option("verbose", Some('v'), Arg::None, "more messages"),
    ],
    misuse: 1,
};

/// How commands show things.
#[derive(Clone, Copy, Debug, Default)]
pub struct Manner {
    /// One line a record, or many.
    pub lines: Lines,
    /// More about jobs.
    pub detail: Detail,
    /// Hidden partitions too.
    pub hidden: bool,
    /// Planned nodes too.
    pub future: bool,
    /// A document instead of records.
    pub form: Option<Form>,
    /// Only errors.
    pub quiet: bool,
}

/// One run of `scontrol`: its connection is opened by the first command that needs it.
pub struct Session {
    /// Messages.
    pub console: Console,
    /// How things are shown.
    pub manner: Manner,
    cluster: Option<Contact>,
}

impl Session {
    /// The connection.
    pub fn cluster(&mut self) -> Asked<&mut Contact> {
        if self.cluster.is_none() {
            self.cluster = Some(Contact::open(&self.console)?);
        }
        Ok(self.cluster.as_mut().expect("set just above"))
    }

    /// Writes to standard output.
    pub fn print(&self, render: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> i32 {
        output::finish(&self.console, output::stdout(render), 0)
    }

    /// An error line without the command's name, as most of `scontrol`'s are.
    pub fn plain_error(&self, text: impl std::fmt::Display) -> i32 {
        output::stderr(format!("{text}\n").as_bytes());
        1
    }

    /// The same without a newline, as Slurm ends a few of its own.
    pub fn unended_error(&self, text: impl std::fmt::Display) -> i32 {
        output::stderr(text.to_string().as_bytes());
        1
    }

    /// A request that failed: `slurm_update error: ...`.
    pub fn failed(&self, call: &str, error: &AskError) -> i32 {
        if self.manner.quiet { 1 } else { error.tell(call, &self.console) }
    }

    /// What is told of a record or a job, where not only errors of use are wanted.
    pub fn said_unless_quiet(&self, text: impl std::fmt::Display) -> i32 {
        if self.manner.quiet { 1 } else { self.plain_error(text) }
    }

    /// Nothing is called so: told on standard output, as Slurm does.
    pub fn not_found(&self, text: impl std::fmt::Display) -> i32 {
        if !self.manner.quiet {
            self.print(|out| writeln!(out, "{text}"));
        }
        1
    }

    /// A request that failed, in words that Slurm has of its own where the caller may not do that.
    pub fn denied(&self, prefix: &str, error: &AskError, denied: &str) -> i32 {
        telling::hints(error, &self.console);
        match error.refusal() {
            Some(Refusal::AccessDenied) => self.plain_error(format_args!("{prefix}{denied}")),
            _ => self.plain_error(format_args!("{prefix}{error}")),
        }
    }

    /// A setting of the controller, as `show config` has it; `None`: there is none. The error is an exit code.
    pub fn setting(&mut self, name: &str) -> Result<Option<String>, i32> {
        let answer = self.cluster().and_then(|c| match c.ask(&CommandRequest::ShowConfig)? {
            CommandReply::Config { pairs, .. } => Ok(pairs),
            other => Err(c.unexpected(&other)),
        });
        let pairs = answer.map_err(|error| self.failed("slurm_load_ctl_conf", &error))?;
        Ok(pairs.into_iter().find(|(key, _)| key == name).map(|(_, value)| value).filter(|value| value != "(null)"))
    }

    /// `--uid`: from here on as that user. Who may not, stays who he is: what he may do is the controller's to say.
    fn become_user(&self, user: &str) -> Result<(), i32> {
        let account = choices::user(user).ok().and_then(accounts::User::by_uid);
        let Some(account) = account else {
            self.console.error(format_args!("--uid=\"{user}\" invalid"));
            return Err(1);
        };
        let (uid, gid) = (Uid::from_raw(account.uid), Gid::from_raw(account.gid));
        if !geteuid().is_root() {
            return Ok(());
        }
        let groups: Vec<Gid> = account.groups(account.gid).into_iter().map(Gid::from_raw).collect();
        let become_it =
            || setgroups(&groups).and_then(|()| setresgid(gid, gid, gid)).and_then(|()| setresuid(uid, uid, uid));
        become_it().map_err(|error| {
            self.console.error(format_args!("--uid={user}: {error}"));
            1
        })
    }

    /// Is the caller one of those whom the controller takes for administrators? For what is answered without it.
    pub fn is_admin(&self) -> bool {
        let own = geteuid().as_raw();
        own == 0 || Cluster::find(None).is_ok_and(|cluster| cluster.is_administrator(own))
    }

    /// When a job's time is over, for `pidinfo`.
    pub(crate) fn end_of_job(&mut self, job: u32) -> i32 {
        let request = CommandRequest::list_jobs(vec![JobId(job).into()]);
        match self.cluster().and_then(|c| contact::known_jobs(c, &request)) {
            Ok(found) => {
                let end = found.first().and_then(|job| job.end_time);
                let text = end.map_or_else(|| "Unknown".to_owned(), |end| Clock::system().at(end));
                self.print(|out| writeln!(out, "Slurm JobId={job} ends at {text}"))
            }
            Err(error) => self.failed("slurm_get_end_time", &error),
        }
    }

    /// A word that cannot be used.
    pub(crate) fn wrong(&self, error: &keys::KeyError) -> i32 {
        error.why().into_iter().for_each(|why| self.console.verbose(why));
        let code = self.plain_error(error);
        error.hint().into_iter().for_each(|hint| self.console.hint(hint));
        code
    }

    /// What is not there yet.
    pub fn not_supported(&self, what: &str) -> i32 {
        self.console.error(format_args!("{what} is not supported yet"));
        1
    }
}

/// What Slurm says to those who are not the owner of a job, nor an administrator.
pub const NOT_THEIRS: &str = "Invalid user id";

/// Runs `scontrol`. Returns its exit code.
pub fn main(mut args: Vec<OsString>) -> i32 {
    // Its words begin with signs.
    if let Some(at) = args.iter().position(|word| word.eq_ignore_ascii_case("setdebugflags")) {
        args.insert(at, "--".into());
    }
    let console = Console::new("scontrol");
    let arguments = match arguments::read(&TABLE, &args, &console) {
        Outcome::Go(arguments) => arguments,
        Outcome::Done(code) => return code,
    };
    let mut session = Session { console, manner: Manner::default(), cluster: None };
    let verbose = u8::try_from(arguments.count("verbose")).unwrap_or(u8::MAX);
    if verbose > 0 {
        session.console.set_verbosity(Verbosity::Verbose(verbose));
    }
    if let Some(user) = arguments.value("uid")
        && let Err(code) = session.become_user(&user)
    {
        return code;
    }
    if let Some(name) = arguments.value("clusters")
        && let Err(code) = choices::is_own_cluster(&name, &session.console)
    {
        return code;
    }
    let form = match choices::form(&arguments) {
        Ok(form) => form,
        Err(error) => return error.tell(&session.console, 1),
    };
    session.manner = Manner {
        lines: if arguments.has("oneliner") { Lines::One } else { Lines::Many },
        detail: if arguments.has("details") { Detail::Detailed } else { Detail::Plain },
        hidden: (arguments.has("all") || std::env::var_os("SCONTROL_ALL").is_some()) && !arguments.has("hide"),
        future: arguments.has("future") || std::env::var_os("SCONTROL_FUTURE").is_some(),
        form,
        quiet: arguments.has("quiet"),
    };
    let words = arguments.words();
    if words.is_empty() {
        return prompt(&mut session);
    }
    match run(&mut session, &words) {
        Next::Code(code) => code,
        Next::Quit => 0,
    }
}

/// What follows a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// It ended with this code.
    Code(i32),
    /// It was `quit`.
    Quit,
}

/// Commands from standard input, until `quit` or its end.
fn prompt(session: &mut Session) -> i32 {
    let terminal = io::stdin().is_terminal();
    let mut worst = 0;
    let mut last: Vec<String> = Vec::new();
    loop {
        if terminal && output::stdout(|out| out.write_all(b"scontrol: ")).is_err() {
            return worst;
        }
        let mut line = String::new();
        match io::stdin().lock().read_line(&mut line) {
            Ok(0) | Err(_) => return worst,
            Ok(_) => {}
        }
        let mut words = split_words(&line);
        if words.is_empty() {
            continue;
        }
        // The command before it, once more.
        if words == ["!!"] && !last.is_empty() {
            words.clone_from(&last);
        }
        last.clone_from(&words);
        match run(session, &words) {
            Next::Quit => return worst,
            Next::Code(code) => worst = worst.max(code),
        }
    }
}

/// Words of a line, with quotes as in a shell.
pub(crate) fn split_words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for c in line.trim_end().chars() {
        match (quote, c) {
            (Some(q), c) if c == q => quote = None,
            (Some(_), c) => word.get_or_insert_default().push(c),
            (None, '"' | '\'') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (None, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

/// The word itself or the one that it shortens, in any case.
pub fn full_word(typed: &str, known: &[&'static str]) -> Option<&'static str> {
    if let Some(exact) = known.iter().find(|k| k.eq_ignore_ascii_case(typed)) {
        return Some(exact);
    }
    let begins = |k: &str| k.get(..typed.len()).is_some_and(|start| start.eq_ignore_ascii_case(typed));
    let mut fitting = known.iter().filter(|k| typed.len() >= 2 && begins(k));
    match (fitting.next(), fitting.next()) {
        (Some(one), None) => Some(one),
        _ => None,
    }
}

/// A field is to change to a value that was read.
fn assign<T, E>(field: &mut Option<T>, value: Result<T, E>) -> Result<(), E> {
    *field = Some(value?);
    Ok(())
}

fn run(session: &mut Session, words: &[String]) -> Next {
    let (typed, rest) = (words[0].as_str(), &words[1..]);
    if let Some(command) = words::names(true).iter().find(|c| c.eq_ignore_ascii_case(typed)) {
        return Next::Code(session.not_supported(&format!("scontrol {command}")));
    }
    let commands = words::names(false);
    let Some(command) = full_word(typed, &commands) else {
        let code = session.plain_error(format_args!("invalid keyword: {typed}"));
        if let Some(meant) = getopt::nearest(&typed.to_ascii_lowercase(), commands.into_iter()) {
            session.console.hint(format_args!("did you mean {meant}?"));
        }
        return Next::Code(code);
    };
    Next::Code(match command {
        "show" => show::run(session, rest),
        "update" => update::run(session, rest),
        "create" => create(session, rest),
        "delete" => delete(session, rest),
        "cancel_reboot" => power::cancel_reboot(session, rest),
        "power" => power::run(session, rest),
        "reboot" | "reboot_nodes" => power::reboot(session, rest),
        "cluster" => site::cluster(session, rest),
        "completing" => site::completing(session, rest),
        "errnumstr" => site::error_text(session, rest),
        "getaddrs" => site::addresses(session, rest),
        "notify" => steps::notify(session, rest),
        "token" => site::token(session, rest),
        "wait_job" => site::wait_job(session, rest),
        "getent" => local::entities(session, rest),
        "listjobs" => local::jobs(session, rest),
        "listpids" => local::pids(session, rest),
        "liststeps" => local::steps(session, rest),
        "pidinfo" => local::pid_info(session, rest),
        "hold" | "uhold" | "release" | "requeue" | "requeuehold" | "suspend" | "resume" => {
            jobs::run(session, command, rest)
        }
        "top" => jobs::top(session, rest),
        "write" => jobs::write(session, rest),
        "ping" if !rest.is_empty() => too_many(session, "ping"),
        "ping" => daemons::ping(session),
        "fsdampeningfactor" => daemons::dampening_factor(session, rest),
        "schedloglevel" => daemons::scheduler_log(session, rest),
        "reconfigure" => daemons::reconfigure(session),
        "setdebug" => daemons::set_debug(session, rest),
        "setdebugflags" => daemons::set_debug_flags(session, rest),
        "shutdown" => daemons::shutdown(session, rest),
        "takeover" => daemons::take_over(session, rest),
        "version" => session.print(|out| writeln!(out, "{SLURM_VERSION}")),
        "help" => match arguments::read(&TABLE, &["--help".into()], &session.console) {
            Outcome::Done(code) => code,
            Outcome::Go(_) => 0,
        },
        "oneliner" => set(session, |m| m.lines = Lines::One),
        "details" => set(session, |m| m.detail = Detail::Detailed),
        "all" => set(session, |m| m.hidden = true),
        "hide" => set(session, |m| m.hidden = false),
        "quiet" => set(session, |m| m.quiet = true),
        "verbose" => set(session, |m| m.quiet = false),
        _ => return Next::Quit,
    })
}

/// `create` and `delete` name what kind of record they mean in their first word: `reservation`, or `ReservationName=r`.
const KINDS: [&str; 5] = ["nodename", "partitionname", "partition", "reservationname", "reservation"];

/// The kind of record that a first word names.
fn kind(word: &str) -> Option<&'static str> {
    full_word(word.split_once('=').map_or(word, |(key, _)| key), &KINDS)
}

fn create(session: &mut Session, words: &[String]) -> i32 {
    let Some(first) = words.first() else { return session.plain_error("too few arguments for create keyword") };
    match words.iter().find_map(|word| kind(word)) {
        // Slurm takes the singular for a node line too.
        Some("nodename") => nodes::create(session, words),
        Some("partitionname" | "partition") => partitions::create(session, words),
        Some(_) => reservations::create(session, words),
        None => {
            session.console.error(format_args!("Invalid creation entity: {first}"));
            1
        }
    }
}

fn delete(session: &mut Session, words: &[String]) -> i32 {
    // `delete KIND=NAME` or `delete KIND NAME`.
    let (key, name) = match words {
        [] => return session.plain_error("too few arguments for delete keyword"),
        [word] => match word.split_once('=') {
            Some(pair) => pair,
            None => {
                session.console.error("Proper format is 'delete <ENTITY>=<ID>' or 'delete <ENTITY> <ID>'");
                return 1;
            }
        },
        [key, name] if !key.contains('=') => (key.as_str(), name.as_str()),
        _ => return too_many(session, "delete"),
    };
    // As Slurm names it in its answers.
    let word = &words[0];
    match kind(key) {
        Some("nodename") => nodes::delete(session, word, name),
        Some("partitionname" | "partition") => partitions::delete(session, word, name),
        Some(_) if !name.is_empty() => reservations::delete(session, word, name),
        _ => session.plain_error(format_args!("Invalid deletion entity: {key}")),
    }
}

fn set(session: &mut Session, change: impl FnOnce(&mut Manner)) -> i32 {
    change(&mut session.manner);
    0
}

/// The arguments of a command that needs some.
pub fn too_few(session: &Session, command: &str) -> i32 {
    session.plain_error(format_args!("too few arguments for keyword:{command}"))
}

/// The arguments of a command that takes fewer.
pub fn too_many(session: &Session, command: &str) -> i32 {
    session.plain_error(format_args!("too many arguments for keyword:{command}"))
}

/// Words as somebody typed them, for tests.
#[cfg(test)]
fn typed(words: &[&str]) -> Vec<String> {
    words.iter().map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_may_be_shortened_while_unambiguous() {
        let commands = words::names(false);
        assert_eq!(full_word("sho", &commands), Some("show"));
        assert_eq!(full_word("SHOW", &commands), Some("show"));
        assert_eq!(full_word("rel", &commands), Some("release"));
        assert_eq!(full_word("re", &commands), None);
        assert_eq!(full_word("requeue", &commands), Some("requeue"));
        assert_eq!(full_word("x", &commands), None);
    }

    #[test]
    fn prompt_lines_are_split_at_blanks_outside_quotes() {
        assert_eq!(
            split_words("update nodename=n1 reason=\"bad fan\" state='drain'\n"),
            ["update", "nodename=n1", "reason=bad fan", "state=drain"]
        );
        assert!(split_words("  \n").is_empty());
    }
}
