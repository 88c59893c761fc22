//! `sacctmgr`: what accounting knows of accounts, users, associations, QOS and clusters; one command per call, or a prompt that
//! reads them.
//!
//! | module | what it does |
//! |---|---|
//! | `words` | the names of all commands |
//! | [`list`] | `list` and `show` of what is kept as entities, and of changes |
//! | `service` | `ping`, `show configuration`, `reconfigure`, `shutdown`, `clear stats`, `rollup` |
//! | `runaway` | `show runawayjobs` |
//! | `stats` | `show stats` |
//! | `archive` | `archive dump`, `archive load` |
//! | `dump` | `dump` |
//! | `change` | `add`, `modify`, `delete`, `load` |

mod archive;
mod change;
mod dump;
pub mod list;
mod runaway;
mod service;
mod stats;
mod words;

use crate::{
    control::scontrol::split_words,
    options::table::Arg,
    output::{self, Console},
    query::{
        arguments::{self, Outcome, Table, inert, option},
        choices,
    },
    telling::hints,
};
use garrick_accounts::messages::AccountsRefusal;
use garrick_asking::{
    accounting::{Accounts, AccountsError},
    accounts::User,
    cluster::{Cluster, ClusterError},
};
use garrick_model::entities::Entities;
use garrick_render::{field_table::Setting, json::Form, words::SLURM_VERSION};
use nix::unistd::geteuid;
use std::{
    ffi::OsString,
    fmt::Display,
    io::{self, BufRead, Write},
};

pub(crate) static TABLE: Table = Table {
    program: "sacctmgr",
    purpose: "Show and change accounts, users, associations and QOS. Without a command, commands are read from a prompt.",
    operands: "[command [arguments]]",
    words: words::WORDS,
    options: &[
        option("help", Some('h'), Arg::None, "show this help"),
        option("immediate", Some('i'), Arg::None, "change without asking"),
        option("noheader", Some('n'), Arg::None, "no heading"),
        inert("oneliner", Some('o'), Arg::None, "one line for each record", "lists have no other form"),
        option("parsable", Some('p'), Arg::None, "a | behind each value"),
        option("parsable2", Some('P'), Arg::None, "a | between values"),
        option("quiet", Some('Q'), Arg::None, "only errors"),
        option("readonly", Some('r'), Arg::None, "change nothing"),
        option("associations", Some('s'), Arg::None, "show associations with accounts and users"),
        option("verbose", Some('v'), Arg::None, "more messages"),
        option("json", None, Arg::Optional("data_parser"), "accounts, users, associations and the like as JSON"),
        option("yaml", None, Arg::Optional("data_parser"), "the same as YAML"),
    ],
    misuse: 1,
};

/// How commands show things, and what they may do.
#[derive(Clone, Debug)]
pub struct Manner {
    /// Heading.
    pub heading: bool,
    /// Columns, or values with a delimiter.
    pub setting: Setting,
    /// A document instead of a table.
    pub form: Option<Form>,
    /// Associations with accounts and users.
    pub associations: bool,
    /// Nothing is asked before a change.
    pub immediate: bool,
    /// Nothing may be changed.
    pub readonly: bool,
}

/// One run of `sacctmgr`: its connection is opened by the first command that needs it.
pub struct Session {
    /// Messages.
    pub console: Console,
    /// How things are shown.
    pub manner: Manner,
    service: Option<Accounts>,
}

impl Session {
    /// The connection. The error was told, and is an exit code.
    ///
    /// # Errors
    /// Nobody is there.
    pub fn service(&mut self) -> Result<&mut Accounts, i32> {
        if self.service.is_none() {
            let opened = Accounts::open(&self.console);
            self.service = Some(opened.map_err(|error| self.failed(&error, ""))?);
        }
        Ok(self.service.as_mut().expect("set just above"))
    }

    /// All entities that the user may see, and the name of his cluster.
    ///
    /// # Errors
    /// As [`Self::service`]; a denial has `what` before it.
    pub fn entities(&mut self, what: &str) -> Result<(Entities, String), i32> {
        let service = self.service()?;
        let here = service.cluster().name().to_owned();
        let asked = service.entities();
        asked.map(|entities| (entities, here)).map_err(|error| self.failed(&error, what))
    }

    /// Writes to standard output.
    pub fn print(&self, render: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> i32 {
        output::finish(&self.console, output::stdout(render), 0)
    }

    /// An error line without the command's name.
    #[expect(clippy::unused_self, reason = "said by a session like all else")]
    pub fn plain_error(&self, text: impl Display) -> i32 {
        output::stderr(format!("{text}\n").as_bytes());
        1
    }

    /// What is not there yet.
    pub fn not_supported(&self, what: &str) -> i32 {
        self.console.error(format_args!("{what} is not supported yet"));
        1
    }

    /// Says why the service did not answer. Returns the exit code.
    pub fn failed(&self, error: &AccountsError, what: &str) -> i32 {
        match error {
            AccountsError::Off => {
                self.plain_error("You are not running a supported accounting_storage plugin");
                return self.plain_error("Only 'accounting_storage/slurmdbd' is supported.");
            }
            AccountsError::Cluster(ClusterError::Unknown(why)) => self.console.error(why),
            AccountsError::Cluster(why) => {
                hints(why, &self.console);
                self.console.error("Problem talking to the database: Connection refused");
            }
            AccountsError::Refused(AccountsRefusal::Away(why)) => {
                self.console.error(format_args!("Sending PersistInit msg: {why}"));
                self.console.error(format_args!("Problem talking to the database: {why}"));
            }
            AccountsError::Refused(AccountsRefusal::Denied) => {
                self.console.error(error);
                self.plain_error(if what.is_empty() {
                    format!(" Error with request: {error}")
                } else {
                    what.to_owned()
                });
            }
            AccountsError::Refused(_) | AccountsError::NotTaken(_) => {
                self.console.error(format_args!("Problem talking to the database: {error}"));
            }
        }
        1
    }
}

/// May the caller do what operators may? The service decides; this is for what is answered without it.
pub fn is_operator(cluster: &Cluster, entities: &Entities) -> bool {
    let own = geteuid().as_raw();
    let operator = || User::by_uid(own).is_some_and(|user| entities.is_operator(&user.name));
    own == 0 || cluster.is_administrator(own) || operator()
}

/// Runs `sacctmgr`. Returns its exit code.
pub fn main(args: Vec<OsString>) -> i32 {
    let mut console = Console::new("sacctmgr");
    let arguments = match arguments::read(&TABLE, &args, &console) {
        Outcome::Go(arguments) => arguments,
        Outcome::Done(code) => return code,
    };
    console.set_verbosity(arguments::verbosity(&arguments));
    let form = match choices::form(&arguments) {
        Ok(form) => form,
        Err(error) => return error.tell(&console, 1),
    };
    let manner = Manner {
        heading: !arguments.has("noheader"),
        setting: setting(&arguments),
        form,
        associations: arguments.has("associations"),
        immediate: arguments.has("immediate"),
        readonly: arguments.has("readonly"),
    };
    let mut session = Session { console, manner, service: None };
    let words = arguments.words();
    if words.is_empty() {
        return prompt(&mut session);
    }
    match run(&mut session, &words) {
        Next::Code(code) => code,
        Next::Quit => 0,
    }
}

/// `-p` and `-P`: the last one counts.
pub fn setting(arguments: &arguments::Arguments) -> Setting {
    match arguments.options.iter().rev().map(|given| given.def.long).find(|long| long.starts_with("parsable")) {
        Some("parsable") => Setting::Parsable("|".to_owned()),
        Some(_) => Setting::Parsable2("|".to_owned()),
        None => Setting::Columns,
    }
}

/// Can these words be used, as far as that is known without asking anybody?
pub fn is_readable(words: &[String]) -> bool {
    let Some(word) = words.first().and_then(|word| words::find(word)) else { return false };
    word.name != "list" || list::is_readable(&words[1..])
}

/// What follows a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// It ended with this code.
    Code(i32),
    /// It was `quit`.
    Quit,
}

/// Commands from standard input, until `quit` or its end.
fn prompt(session: &mut Session) -> i32 {
    let mut last: Vec<String> = Vec::new();
    let mut code = 0;
    loop {
        if output::stdout(|out| out.write_all(b"sacctmgr: ")).is_err() {
            return code;
        }
        let mut line = String::new();
        if !matches!(io::stdin().lock().read_line(&mut line), Ok(1..)) {
            session.print(|out| writeln!(out));
            return code;
        }
        let mut words = split_words(&line);
        if words.is_empty() {
            continue;
        }
        if words == ["!!"] && !last.is_empty() {
            words.clone_from(&last);
        }
        last.clone_from(&words);
        match run(session, &words) {
            Next::Quit => return code,
            Next::Code(this) => code = this,
        }
    }
}

fn run(session: &mut Session, words: &[String]) -> Next {
    let (typed, rest) = (words[0].as_str(), &words[1..]);
    let Some(word) = words::find(typed) else {
        return Next::Code(session.plain_error(format_args!("invalid keyword: {typed}")));
    };
    Next::Code(match word.name {
        "list" | "show" => list::run(session, rest),
        "dump" => dump::run(session, rest),
        "ping" => service::ping(session, rest),
        "associations" => set(session, |manner| manner.associations = true),
        "readonly" => set(session, |manner| manner.readonly = true),
        "quiet" => verbosity(session, output::Verbosity::Quiet),
        "verbose" => verbosity(session, output::Verbosity::Verbose(1)),
        "version" => session.print(|out| writeln!(out, "{SLURM_VERSION}")),
        "help" => session.print(|out| out.write_all(arguments::help(&TABLE).as_bytes())),
        "exit" | "quit" => return Next::Quit,
        name => change(session, name, rest),
    })
}

/// Commands that change something: add, create, modify, delete, remove, load, archive and those of the service.
fn change(session: &mut Session, name: &str, words: &[String]) -> i32 {
    if session.manner.readonly {
        return session.plain_error("Can't run this command in readonly mode.");
    }
    match change::Verb::of(name) {
        Some(verb) => run_change(verb, words, session),
        None if name == "archive" => archive::run(session, words),
        None if name == "reconfigure" => service::reconfigure(session, words),
        None if name == "shutdown" => service::shutdown(session, words),
        None if name == "clear" => service::clear(session, words),
        None if name == "rollup" => service::rollup(session, words),
        None => session.not_supported(&format!("sacctmgr {name}")),
    }
}

fn run_change(verb: change::Verb, words: &[String], session: &mut Session) -> i32 {
    let immediate = session.manner.immediate;
    let mut live = match session.service() {
        Ok(service) => change::world::Live::new(service),
        Err(code) => return code,
    };
    let code = change::in_world(verb, words, immediate, &mut live);
    let written = live.written();
    let code = code.unwrap_or_else(|error| session.failed(&error, ""));
    output::finish(&session.console, written, code)
}

fn set(session: &mut Session, change: fn(&mut Manner)) -> i32 {
    change(&mut session.manner);
    0
}

fn verbosity(session: &mut Session, verbosity: output::Verbosity) -> i32 {
    session.console.set_verbosity(verbosity);
    0
}
