//! `scrontab`: crontabs that the controller keeps, whose entries are jobs.
//!
//! | module | what it is |
//! |---|---|
//! | [`text`] | the text, taken apart |
//! | [`options`] | options of an entry |
//! | `editing` | the user's editor |

mod editing;
pub mod options;
pub mod text;

use crate::{
    options::{
        arguments::usage,
        export::{self, For},
        job_spec::{self, Checked, Submitter, Work},
        limits,
        table::Arg,
        typed::{OptionError, Typed},
    },
    output::{self, Console},
    query::arguments::{self, Arguments, Outcome, Table, option},
    submit::{startup, submitter},
    telling::hints,
};
use garrick_asking::{
    accounts::User,
    cluster::{Cluster, ClusterError, refusal_details},
    patience,
};
use garrick_model::{
    crontab::{CrontabChange, CrontabEntry},
    ids::RequestId,
    messages::command::{CommandReply, CommandRequest},
    refusal::Refusal,
    spec::{EnvEntry, JobKind, JobSpec},
    time::Timestamp,
};
use serde_bytes::ByteBuf;
use std::{
    ffi::OsString,
    fs,
    io::{self, IsTerminal as _, Read as _},
    path::PathBuf,
};
use text::{Broken, Entry};

pub(crate) static TABLE: Table = Table {
    program: "scrontab",
    purpose: "Show, replace, edit or remove the crontab of a user, whose entries are recurring batch jobs.",
    operands: "[FILE | -]",
    words: &[],
    options: &[
        option("edit", Some('e'), Arg::None, "edit the crontab (what is done at a terminal where nothing is named)"),
        option("list", Some('l'), Arg::None, "print the crontab"),
        option("remove", Some('r'), Arg::None, "remove the crontab: its jobs do not recur any more"),
        option("user", Some('u'), Arg::Required("user"), "the crontab of this user; for administrators"),
        option("verbose", Some('v'), Arg::None, "more messages"),
    ],
    misuse: 1,
};

/// The session of a job that no process submits: Slurm's "no value".
const NO_SESSION: u32 = u32::MAX - 1;

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Edit,
    List,
    Remove,
    /// Install what is in this file; `None`: what comes on standard input.
    Install(Option<PathBuf>),
}

/// Reads the arguments. `None`: they do not go together. Of several actions the last one counts, as in Slurm.
pub(crate) fn action(arguments: &Arguments, at_terminal: bool) -> Option<Action> {
    let named = arguments.options.iter().rev().find_map(|given| match given.def.long {
        "edit" => Some(Action::Edit),
        "list" => Some(Action::List),
        "remove" => Some(Action::Remove),
        _ => None,
    });
    match (named, arguments.operands.as_slice()) {
        (Some(action), []) => Some(action),
        (None, []) if at_terminal => Some(Action::Edit),
        (None, []) => Some(Action::Install(None)),
        (None, [file]) if file == "-" => Some(Action::Install(None)),
        (None, [file]) => Some(Action::Install(Some(file.into()))),
        _ => None,
    }
}

/// Runs `scrontab`; `args` are without the program's name. Returns the exit code.
pub fn main(args: Vec<OsString>) -> i32 {
    let mut console = Console::new("scrontab");
    let arguments = match arguments::read(&TABLE, &args, &console) {
        Outcome::Go(arguments) => arguments,
        Outcome::Done(code) => return code,
    };
    console.set_verbosity(arguments::verbosity(&arguments));
    let Some(action) = action(&arguments, io::stdin().is_terminal()) else {
        output::stderr(format!("{}\n", usage(&TABLE)).as_bytes());
        return startup::exit_code(1);
    };
    run(&action, arguments.value("user").as_deref(), &console).unwrap_or_else(|code| code)
}

/// Says that it ends here; returns the exit code.
fn fatal(console: &Console, text: impl std::fmt::Display) -> i32 {
    console.fatal(text);
    startup::exit_code(1)
}

fn run(action: &Action, user: Option<&str>, console: &Console) -> Result<i32, i32> {
    let cluster = Cluster::find(None).map_err(|error| fatal(console, error))?;
    if !cluster.config().scron_parameters.has("enable") {
        return Err(fatal(console, "scrontab is disabled on this cluster"));
    }
    let own = nix::unistd::getuid().as_raw();
    let found = match user {
        None => User::by_uid(own),
        Some(name) => User::by_number_or_name(name),
    };
    let called = || user.map_or_else(|| own.to_string(), str::to_owned);
    let user = found.ok_or_else(|| fatal(console, format_args!("Could not find user {}", called())))?;
    let of = Crontabs { cluster, user, console };
    match action {
        Action::List => of.list(),
        Action::Remove => of.remove(),
        Action::Install(file) => {
            let text = match file {
                None => {
                    let mut text = Vec::new();
                    io::stdin().lock().read_to_end(&mut text).map(|_| text)
                }
                Some(file) => fs::read(file),
            };
            let name = file.as_ref().map_or_else(|| "stdin".to_owned(), |file| file.display().to_string());
            let text = text.map_err(|_| fatal(console, format_args!("failed to open {name}")))?;
            of.install(&text).map_or_else(|wrong| Err(wrong.tell(console)), |()| Ok(0))
        }
        Action::Edit if !io::stdin().is_terminal() => Err(fatal(console, "Standard input is not a TTY")),
        Action::Edit => editing::edit(&of),
    }
}

/// Why a crontab is not installed.
#[derive(Debug)]
enum NotInstalled {
    /// A line is wrong.
    Broken(Broken),
    /// The controller declined: the job of an entry, or all of it.
    Declined { lines: Option<(u32, u32)>, refusal: Refusal },
    /// It could not be asked.
    Unasked(ClusterError),
}

impl NotInstalled {
    /// The lines that it is about.
    const fn lines(&self) -> Option<(u32, u32)> {
        match self {
            Self::Broken(broken) => Some(broken.lines),
            Self::Declined { lines, .. } => *lines,
            Self::Unasked(_) => None,
        }
    }

    /// Says so, in Slurm's words. Returns the exit code.
    fn tell(&self, console: &Console) -> i32 {
        let lines = match self {
            Self::Broken(broken) => {
                broken.errors.iter().for_each(|error| console.error(error));
                console.hint(format_args!("in line {}", broken.lines.1));
                vec!["There are errors in your crontab.".to_owned()]
            }
            Self::Declined { lines, refusal } => {
                let lines = match lines {
                    None => "(null)".to_owned(),
                    Some((first, last)) if first == last => first.to_string(),
                    Some((first, last)) => format!("{first}-{last}"),
                };
                let details = refusal_details(refusal).join("\n");
                vec![
                    format!("There was an issue with the job submission on lines {lines}"),
                    format!("The error code return was: {refusal}"),
                    format!("The error message was: {}", if details.is_empty() { "(null)" } else { &details }),
                ]
            }
            Self::Unasked(error) => {
                hints(error, console);
                vec![
                    "There was an issue with the job submission on lines (null)".to_owned(),
                    format!("The error code return was: {error}"),
                ]
            }
        };
        let written = output::stdout(|out| lines.iter().try_for_each(|line| writeln!(out, "{line}")));
        output::finish(console, written, startup::exit_code(1))
    }
}

/// The environment of a job: that of a login, since no process of the user is there when it is due, and what `--export` sets.
fn environment(user: &User, typed: &Typed) -> Result<Vec<EnvEntry>, OptionError> {
    let login = [("HOME", &user.home), ("LOGNAME", &user.name), ("SHELL", &user.shell), ("USER", &user.name)];
    let login = login.into_iter().map(|(name, value)| (name.into(), value.into()));
    let path = [("PATH", export::LOGIN_PATH)].map(|(name, value)| (name.into(), value.into()));
    export::environment(typed.export.as_deref(), login.chain(path), For::Job)
}

/// The crontab of a user.
struct Crontabs<'a> {
    cluster: Cluster,
    user: User,
    console: &'a Console,
}

impl Crontabs<'_> {
    /// Its text; `None`: there is none.
    fn text(&self) -> Result<Option<ByteBuf>, i32> {
        let request = CommandRequest::ShowCrontab { uid: self.user.uid };
        match patience::ask(&self.cluster, self.console, &request) {
            Ok(CommandReply::Crontab(text)) => Ok(text),
            Ok(_) => Err(self.failed("slurm_request_crontab", &ClusterError::Unexpected("asked for a crontab"))),
            Err(error) => Err(self.failed("slurm_request_crontab", &error)),
        }
    }

    fn failed(&self, call: &str, error: &ClusterError) -> i32 {
        hints(error, self.console);
        fatal(self.console, format_args!("{call} failed: {error}"))
    }

    fn list(&self) -> Result<i32, i32> {
        let Some(text) = self.text()? else {
            let written = output::print_line(format_args!("no crontab for {}", self.user.name));
            return Ok(output::finish(self.console, written, startup::exit_code(1)));
        };
        let written = output::stdout(|out| out.write_all(&text));
        Ok(output::finish(self.console, written, 0))
    }

    fn remove(&self) -> Result<i32, i32> {
        match self.ask_for_change(None, Vec::new()) {
            Ok(()) => Ok(0),
            Err(NotInstalled::Declined { refusal, .. }) => {
                Err(self.failed("slurm_remove_crontab", &ClusterError::Refused(refusal)))
            }
            Err(NotInstalled::Unasked(error)) => Err(self.failed("slurm_remove_crontab", &error)),
            Err(other) => Err(other.tell(self.console)),
        }
    }

    /// Replaces the crontab by this text.
    fn install(&self, text: &[u8]) -> Result<(), NotInstalled> {
        let entries = text::parse(text).map_err(NotInstalled::Broken)?;
        let now = Timestamp::now();
        let job = |entry| self.job(entry, now).map_err(NotInstalled::Broken);
        let entries = entries.into_iter().map(job).collect::<Result<Vec<_>, _>>()?;
        self.ask_for_change(Some(text), entries)
    }

    fn ask_for_change(&self, text: Option<&[u8]>, entries: Vec<CrontabEntry>) -> Result<(), NotInstalled> {
        let lines: Vec<(u32, u32)> = entries.iter().map(|entry| entry.lines).collect();
        let own = nix::unistd::getuid().as_raw() == self.user.uid;
        let gid = if own { nix::unistd::getgid().as_raw() } else { self.user.gid };
        let text = text.map(|text| ByteBuf::from(text.to_vec()));
        let change = CrontabChange { request: RequestId::random(), uid: self.user.uid, gid, text, entries };
        let request = CommandRequest::InstallCrontab(Box::new(change));
        match patience::ask(&self.cluster, self.console, &request) {
            Ok(CommandReply::CrontabInstalled { warnings }) => {
                warnings.iter().for_each(|line| self.console.info(line));
                Ok(())
            }
            Ok(CommandReply::CrontabWrong { entry, refusal }) => {
                let lines = usize::try_from(entry).ok().and_then(|entry| lines.get(entry).copied());
                Err(NotInstalled::Declined { lines, refusal })
            }
            Ok(_) => Err(NotInstalled::Unasked(ClusterError::Unexpected("installed a crontab"))),
            Err(ClusterError::Refused(refusal)) => Err(NotInstalled::Declined { lines: None, refusal }),
            Err(error) => Err(NotInstalled::Unasked(error)),
        }
    }

    /// The job of an entry.
    fn job(&self, entry: Entry, now: Timestamp) -> Result<CrontabEntry, Broken> {
        let broken = |errors: Vec<String>| Broken { lines: entry.lines, errors };
        let no_option = |word: &str| format!("Invalid option found in #SCRON line: {word}");
        let typed = options::read(&entry.words, now).map_err(|wrong| {
            let why = wrong.error.iter().map(OptionError::to_string);
            broken(why.chain([no_option(&wrong.word)]).collect())
        })?;
        let environment = environment(&self.user, &typed).map_err(|error| broken(vec![error.to_string()]))?;
        let submitter = Submitter {
            work_dir: typed.chdir.clone().map_or_else(|| PathBuf::from(&self.user.home), PathBuf::from),
            host: submitter::host_name(),
            pid: std::process::id(),
            session: NO_SESSION,
            umask: limits::file_mode_mask(),
            nice: 0,
            rlimits: Vec::new(),
            environment,
            submit_line: String::new(),
            frequencies: self.cluster.config().frequencies.clone(),
        };
        let work = Work {
            kind: JobKind::Batch,
            default_name: entry.name,
            argv: Vec::new(),
            script: Some(entry.script),
            command: None,
        };
        let built = job_spec::build(&typed, submitter, work)
            .map_err(|error| Broken { lines: entry.lines, errors: vec![error.to_string()] })?;
        let Checked { spec, warnings } = built;
        warnings.iter().for_each(|line| self.console.warning(line));
        Ok(CrontabEntry { lines: entry.lines, spec: JobSpec { cron: Some(entry.schedule), ..spec } })
    }
}
