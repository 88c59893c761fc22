//! Arguments of the query and control commands: the getopt of the submitting commands with tables of their own, with operands
//! anywhere between the options.

use crate::{
    getopt::{self, GetoptError, Occurrence},
    help,
    table::{Arg, EVERY, Effect, OptionDef},
    typed::OptionError,
};
use std::{ffi::OsString, fmt::Write as _};

/// A command's table.
#[derive(Debug)]
pub struct Table {
    /// Command.
    pub program: &'static str,
    /// What it is for, one line.
    pub purpose: &'static str,
    /// Operands, as in the usage line.
    pub operands: &'static str,
    /// What the first operand may be, where that is one of some words.
    pub words: &'static [Word],
    /// Options, `--help`, `--usage` and `--version` left out.
    pub options: &'static [OptionDef],
    /// Exit code for a wrong option.
    pub misuse: i32,
}

/// A command of a command: `show` of `scontrol`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word {
    /// What it is about: a heading of the help.
    pub subject: &'static str,
    /// As typed.
    pub name: &'static str,
    /// What stands behind it.
    pub operands: &'static str,
    /// One line of help.
    pub help: &'static str,
    /// Slurm has it, Garrick not yet.
    pub refused: bool,
}

/// A command of a command.
pub const fn word(subject: &'static str, name: &'static str, operands: &'static str, help: &'static str) -> Word {
    Word { subject, name, operands, help, refused: false }
}

/// One that Slurm has and Garrick has not yet.
pub const fn unsupported_word(
    subject: &'static str,
    name: &'static str,
    operands: &'static str,
    help: &'static str,
) -> Word {
    Word { refused: true, ..word(subject, name, operands, help) }
}

/// An entry of a table. Its meaning is the command's own, found by the long name.
pub const fn option(long: &'static str, short: Option<char>, arg: Arg, help: &'static str) -> OptionDef {
    OptionDef::other(long, short, arg, EVERY, help, Effect::ByName)
}

/// An entry that is accepted without effect, and why.
pub const fn inert(
    long: &'static str,
    short: Option<char>,
    arg: Arg,
    help: &'static str,
    why: &'static str,
) -> OptionDef {
    OptionDef::inert(long, short, arg, EVERY, help, why)
}

/// An entry for what Slurm has and Garrick has not yet: [`Arguments::refused`] finds it.
pub const fn unsupported(long: &'static str, short: Option<char>, arg: Arg, help: &'static str) -> OptionDef {
    OptionDef::other(long, short, arg, EVERY, help, Effect::NotSupported)
}

/// Why options about other clusters have no effect.
pub const NO_FEDERATION: &str = "there is no federation of clusters";

impl Table {
    /// The command's options, and those that all commands have unless it has its own by that name.
    pub fn all_options(&'static self) -> impl Iterator<Item = &'static OptionDef> {
        let own = |common: &&OptionDef| !self.options.iter().any(|o| o.long == common.long);
        self.options.iter().chain(COMMON.iter().filter(own))
    }
}

static COMMON: [OptionDef; 3] = [
    option("help", None, Arg::None, "show this help"),
    option("usage", None, Arg::None, "show a short usage"),
    option("version", Some('V'), Arg::None, "show the version"),
];

/// Arguments, taken apart.
#[derive(Debug, Default)]
pub struct Arguments {
    /// Options in the order given.
    pub options: Vec<Occurrence>,
    /// The other arguments.
    pub operands: Vec<OsString>,
}

impl Arguments {
    /// How often an option was given.
    pub fn count(&self, long: &str) -> usize {
        self.options.iter().filter(|o| o.def.long == long).count()
    }

    /// Whether it was given.
    pub fn has(&self, long: &str) -> bool {
        self.count(long) > 0
    }

    /// Its last value, as text.
    pub fn value(&self, long: &str) -> Option<String> {
        self.options
            .iter()
            .rev()
            .find(|o| o.def.long == long)
            .and_then(|o| o.value.as_ref())
            .map(|v| v.to_string_lossy().into_owned())
    }

    /// The first option that is not supported yet, as an error.
    pub fn refused(&self) -> Option<OptionError> {
        let refused = self.options.iter().find(|o| o.def.is_refused())?;
        Some(OptionError::NotSupported(format!("--{}", refused.def.long)))
    }

    /// Operands as text.
    pub fn words(&self) -> Vec<String> {
        self.operands.iter().map(|w| w.to_string_lossy().into_owned()).collect()
    }
}

/// `-j 5`: the argument of an option is optional, but a word that looks like one (`fits`) belongs to it. `flags` are the
/// letters that may stand before the option's in one word.
pub fn attach_ids(
    args: Vec<OsString>,
    long: &[&str],
    short: char,
    flags: &str,
    fits: fn(&str) -> bool,
) -> Vec<OsString> {
    let takes_ids = |option: &OsString| match option.to_str() {
        Some(text) if long.contains(&text) => true,
        Some(text) => text
            .strip_prefix('-')
            .and_then(|letters| letters.strip_suffix(short))
            .is_some_and(|letters| letters.chars().all(|c| flags.contains(c))),
        None => false,
    };
    let mut attached: Vec<OsString> = Vec::with_capacity(args.len());
    for arg in args {
        let id = arg.to_str().is_some_and(fits);
        match attached.last_mut() {
            Some(last) if id && takes_ids(last) => {
                if last.to_str().is_some_and(|l| l.starts_with("--")) {
                    last.push("=");
                }
                last.push(arg);
            }
            _ => attached.push(arg),
        }
    }
    attached
}

/// Takes arguments apart, operands allowed anywhere.
pub fn parse(table: &'static Table, args: &[OsString]) -> Result<Arguments, GetoptError> {
    let defs: Vec<&'static OptionDef> = table.all_options().collect();
    let parsed = getopt::parse_anywhere(&defs, args)?;
    Ok(Arguments { options: parsed.options, operands: parsed.rest })
}

/// The text of `--usage`: one line, without a newline.
pub fn usage(table: &Table) -> String {
    let mut text = format!("Usage: {}", table.program);
    let usable = || table.options.iter().filter(|o| !o.is_refused());
    let flags: String = usable().filter(|o| o.arg == Arg::None).filter_map(|o| o.short).collect();
    if !flags.is_empty() {
        let _ = write!(text, " [-{flags}]");
    }
    for option in usable() {
        if let (Some(short), Arg::Required(word)) = (option.short, option.arg) {
            let _ = write!(text, " [-{short} {word}]");
        }
    }
    if !table.operands.is_empty() {
        let _ = write!(text, " {}", table.operands);
    }
    text
}

/// The text of `--help`.
pub fn help(table: &'static Table) -> String {
    let options = if table.options.is_empty() { "" } else { " [OPTIONS]" };
    let usage = format!("{}{options} {}", table.program, table.operands);
    let mut text = format!("Usage: {}\n{}\n", usage.trim_end(), table.purpose);
    let mut subject = "";
    for word in table.words {
        if word.subject != subject {
            subject = word.subject;
            let _ = writeln!(text, "\n{subject}:");
        }
        let names = format!("  {} {}", word.name, word.operands);
        let not_yet = if word.refused { " (not supported yet)" } else { "" };
        text.push_str(&help::row(names.trim_end(), &format!("{}{not_yet}", word.help)));
    }
    text.push_str(if table.words.is_empty() { "\n" } else { "\nOptions:\n" });
    text + &help::list(&table.all_options().collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    static TABLE: Table = Table {
        program: "scancel",
        purpose: "Signal or cancel jobs.",
        operands: "[job_id...]",
        words: &[],
        options: &[
            option("quiet", Some('Q'), Arg::None, "say nothing"),
            option("signal", Some('s'), Arg::Required("name"), "send this signal"),
        ],
        misuse: 1,
    };

    fn read_words(words: &str) -> Arguments {
        let args: Vec<OsString> = words.split(' ').map(OsString::from).collect();
        parse(&TABLE, &args).unwrap()
    }

    #[test]
    fn operands_may_stand_between_options() {
        let arguments = read_words("5 -Q 6 -s TERM 7");
        assert_eq!(arguments.words(), ["5", "6", "7"]);
        assert!(arguments.has("quiet"));
        assert_eq!(arguments.value("signal").as_deref(), Some("TERM"));
    }

    #[test]
    fn everything_after_two_dashes_is_an_operand() {
        assert_eq!(read_words("5 -- -Q").words(), ["5", "-Q"]);
    }

    #[test]
    fn help_lists_every_option() {
        assert_eq!(
            help(&TABLE),
            "Usage: scancel [OPTIONS] [job_id...]\nSignal or cancel jobs.\n\n  \
             -Q, --quiet                     say nothing\n  \
             -s, --signal=name               send this signal\n      \
             --help                      show this help\n      \
             --usage                     show a short usage\n  \
             -V, --version                   show the version\n"
        );
        assert_eq!(usage(&TABLE), "Usage: scancel [-Q] [-s name] [job_id...]");
    }
}
