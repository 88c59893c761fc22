//! `scontrol`: shows and changes jobs, nodes and partitions; one command per call, or a prompt that reads them.
//!
//! | module | what it does |
//! |---|---|
//! | [`show`] | `show job`, `node`, `partition`, `step`, `config`, host lists |
//! | [`jobs`] | `hold`, `release`, `requeue`, `suspend`, `write batch_script` and the like |
//! | `reservations` | `create`, `update`, `delete` and `show` of reservations |
//! | `nodes` | `create` and `delete` of nodes |
//! | [`update`] | `update JobId=...`, `NodeName=...`, `PartitionName=...` |
//! | `keys`, `job_keys` | keys of `create` and `update`, one row each; those of jobs |
//! | [`daemons`] | `ping`, `reconfigure`, `shutdown` |

pub mod daemons;
mod job_keys;
pub mod jobs;
mod keys;
mod licenses;
mod nodes;
pub(crate) mod reservations;
pub mod show;
mod topology;
pub mod update;

use crate::{
    options::{getopt, table::Arg},
    output::{self, Console},
    query::{
        arguments::{self, Outcome, Table, option},
        choices,
    },
    telling::Tell as _,
};
use garrick_asking::contact::{AskError, Asked, Contact};
use garrick_render::{
    records::{Lines, job::Detail},
    words::SLURM_VERSION,
};
use std::{
    ffi::OsString,
    io::{self, BufRead, IsTerminal as _, Write},
};

pub(crate) static TABLE: Table = Table {
    program: "scontrol",
    purpose: "Show and change jobs, nodes and partitions. Without a command, commands are read from a prompt.\n\
              Commands: show, update, create, delete, hold, uhold, release, requeue, requeuehold, suspend, resume, top, write,\n\
              ping, reconfigure, setdebug, setdebugflags, shutdown, version, help, quit.",
    operands: "[command [arguments]]",
    options: &[
        option("all", Some('a'), Arg::None, "include hidden partitions"),
        option("details", Some('d'), Arg::None, "more about jobs"),
        option("future", Some('F'), Arg::None, "include planned nodes"),
        option("hide", None, Arg::None, "exclude hidden partitions"),
        option("json", None, Arg::Optional("data_parser"), "show job, node, partition and step as JSON"),
        option("yaml", None, Arg::Optional("data_parser"), "as YAML (not supported yet)"),
        option("local", None, Arg::None, "the local cluster (always so here)"),
        option("oneliner", Some('o'), Arg::None, "one line for each record"),
        option("quiet", Some('Q'), Arg::None, "only errors"),
        option("verbose", Some('v'), Arg::None, "more messages"),
    ],
    misuse: 1,
};

/// Every command, for shortened ones and suggestions.
const COMMANDS: &[&str] = &[
    "show",
    "update",
    "create",
    "delete",
    "hold",
    "uhold",
    "release",
    "requeue",
    "requeuehold",
    "suspend",
    "resume",
    "top",
    "write",
    "ping",
    "reconfigure",
    "setdebug",
    "setdebugflags",
    "shutdown",
    "version",
    "help",
    "oneliner",
    "details",
    "all",
    "hide",
    "quiet",
    "verbose",
    "quit",
    "exit",
];

/// Commands that Slurm has and Garrick has not yet.
const NOT_YET: &[&str] = &[
    "abort",
    "cancel_reboot",
    "completing",
    "crontab",
    "errnumstr",
    "fsdampeningfactor",
    "getent",
    "gethost",
    "listjobs",
    "listpids",
    "liststeps",
    "notify",
    "pidinfo",
    "power",
    "reboot",
    "reboot_nodes",
    "schedloglevel",
    "takeover",
    "token",
    "wait_job",
];

/// How commands show things.
#[derive(Clone, Copy, Debug, Default)]
pub struct Manner {
    /// One line a record, or many.
    pub lines: Lines,
    /// More about jobs.
    pub detail: Detail,
    /// Hidden partitions too.
    pub hidden: bool,
    /// JSON.
    pub json: bool,
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

    /// A request that failed: `slurm_update error: ...`.
    pub fn failed(&self, call: &str, error: &AskError) -> i32 {
        error.tell(call, &self.console)
    }

    /// What is not there yet.
    pub fn not_supported(&self, what: &str) -> i32 {
        self.console.error(format_args!("{what} is not supported yet"));
        1
    }
}

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
    if let Err(what) = choices::json_version(&arguments) {
        return session.not_supported(&what);
    }
    session.manner = Manner {
        lines: if arguments.has("oneliner") { Lines::One } else { Lines::Many },
        detail: if arguments.has("details") { Detail::Detailed } else { Detail::Plain },
        hidden: arguments.has("all") || std::env::var_os("SCONTROL_ALL").is_some(),
        json: arguments.has("json"),
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
    loop {
        if terminal && output::stdout(|out| out.write_all(b"scontrol: ")).is_err() {
            return worst;
        }
        let mut line = String::new();
        match io::stdin().lock().read_line(&mut line) {
            Ok(0) | Err(_) => return worst,
            Ok(_) => {}
        }
        let words = split_words(&line);
        if words.is_empty() {
            continue;
        }
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
    if let Some(command) = NOT_YET.iter().find(|c| c.eq_ignore_ascii_case(typed)) {
        return Next::Code(session.not_supported(&format!("scontrol {command}")));
    }
    let Some(command) = full_word(typed, COMMANDS) else {
        let hint = getopt::nearest(&typed.to_ascii_lowercase(), COMMANDS.iter().copied())
            .map(|c| format!(" (did you mean {c}?)"))
            .unwrap_or_default();
        return Next::Code(session.plain_error(format_args!("invalid keyword: {typed}{hint}")));
    };
    Next::Code(match command {
        "show" => show::run(session, rest),
        "update" => update::run(session, rest),
        "create" if nodes::is_meant(rest) => nodes::create(session, rest),
        "create" => reservations::create(session, rest),
        "delete" if nodes::is_meant(rest) => nodes::delete(session, rest),
        "delete" => reservations::delete(session, rest),
        "hold" | "uhold" | "release" | "requeue" | "requeuehold" | "suspend" | "resume" => {
            jobs::run(session, command, rest)
        }
        "top" => jobs::top(session, rest),
        "write" => jobs::write(session, rest),
        "ping" => daemons::ping(session),
        "reconfigure" => daemons::reconfigure(session),
        "setdebug" => daemons::set_debug(session, rest),
        "setdebugflags" => daemons::set_debug_flags(session, rest),
        "shutdown" => daemons::shutdown(session, rest),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_may_be_shortened_while_unambiguous() {
        assert_eq!(full_word("sho", COMMANDS), Some("show"));
        assert_eq!(full_word("SHOW", COMMANDS), Some("show"));
        assert_eq!(full_word("rel", COMMANDS), Some("release"));
        assert_eq!(full_word("re", COMMANDS), None);
        assert_eq!(full_word("requeue", COMMANDS), Some("requeue"));
        assert_eq!(full_word("x", COMMANDS), None);
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
