//! What may stand at the end of a command line.

use super::values::{self, Names, Value};
use crate::{
    control::scontrol::split_words,
    manual::commands::{COMMANDS, Command, SUBCOMMANDS, Source, named, own},
    options::table::{Arg, OptionDef},
};

/// A word that may stand there, whole.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Candidate {
    /// As it is typed. With `=` at its end, more is to follow.
    pub text: String,
    /// What it is.
    pub help: String,
}

/// What is wanted at the end of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// One of these.
    Words(Vec<Candidate>),
    /// A file.
    File,
    /// A folder.
    Folder,
    /// A program.
    Program,
}

impl Wanted {
    /// For the script in the shell.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Words(_) => "words",
            Self::File => "files",
            Self::Folder => "folders",
            Self::Program => "programs",
        }
    }

    /// The words, if it is one of some.
    pub fn words(&self) -> &[Candidate] {
        match self {
            Self::Words(words) => words,
            _ => &[],
        }
    }
}

/// What may stand at the end of `typed`, a line up to the cursor that begins with the command.
pub fn wanted(typed: &str, names: &dyn Names) -> Wanted {
    let mut words = split_words(typed);
    if typed.ends_with(char::is_whitespace) || words.is_empty() {
        words.push(String::new());
    }
    let last = words.pop().unwrap_or_default();
    let mut before = words.into_iter();
    let called = before.next().unwrap_or_default();
    let name = called.rsplit('/').next().unwrap_or_default().to_owned();
    let before: Vec<String> = before.collect();
    let found = match command_of(&name, &before) {
        Some((command, before)) => after(&command, before, &last, names),
        None => Wanted::Words(Vec::new()),
    };
    match found {
        Wanted::Words(mut words) => {
            words.retain(|word| word.text.starts_with(&last));
            words.sort();
            words.dedup_by(|a, b| a.text == b.text);
            Wanted::Words(words)
        }
        other => other,
    }
}

/// The command, with the words behind it: `garrick squeue -l` is `squeue -l`, `garrick up --nodes` a command with a table.
fn command_of<'a>(name: &str, before: &'a [String]) -> Option<(Command, &'a [String])> {
    let command = named(name)?;
    let Some((first, rest)) = before.split_first().filter(|_| name == "garrick") else {
        return Some((*command, before));
    };
    let with_table = format!("garrick {first}");
    let subcommand = SUBCOMMANDS.iter().find(|table| table.program == with_table).map(|table| own(table));
    match subcommand.or_else(|| named(first).copied()) {
        Some(other) => Some((other, rest)),
        None => Some((*command, before)),
    }
}

/// Reads the words as the command would, to the end.
fn after(command: &Command, before: &[String], last: &str, names: &dyn Names) -> Wanted {
    let options = command.options();
    let mut operands: Vec<&str> = Vec::new();
    let mut words = before.iter();
    // Behind the program of a step or the script of a job, options are that program's.
    let ends_at_operand = matches!(command.source, Source::Submit(_));
    let mut only_operands = false;
    while let Some(word) = words.next() {
        if only_operands || !word.starts_with('-') || word == "-" {
            operands.push(word);
            only_operands |= ends_at_operand;
        } else if word == "--" {
            only_operands = true;
        } else if let Some(option) = waiting_for_value(&options, word)
            && words.next().is_none()
        {
            return value(command, option, "", last, names);
        }
    }
    if !only_operands && last.starts_with('-') {
        return option(command, &options, last, names);
    }
    if let Some((key, text)) = last.split_once('=').filter(|_| command.name() == "scontrol")
        && let Some(kind) = values::of_key(key)
    {
        return listed(kind, &format!("{key}="), text, names);
    }
    match values::of_operand(command, &operands) {
        Some(kind) => listed(kind, "", last, names),
        None => words_of(command, &operands),
    }
}

/// The option at the end of a word whose value is the next word.
fn waiting_for_value<'a>(options: &[&'a OptionDef], word: &str) -> Option<&'a OptionDef> {
    let needs = |option: &&&OptionDef| matches!(option.arg, Arg::Required(_));
    match word.strip_prefix("--") {
        Some(long) if long.contains('=') => None,
        Some(long) => long_option(options, long).filter(|option| needs(&option)),
        None => {
            let mut letters = word.chars().skip(1).peekable();
            while let Some(letter) = letters.next() {
                let option = options.iter().find(|option| option.short == Some(letter))?;
                if option.arg != Arg::None {
                    return letters.peek().is_none().then_some(*option).filter(|option| needs(&option));
                }
            }
            None
        }
    }
}

/// By its name or the beginning that no other has.
fn long_option<'a>(options: &[&'a OptionDef], name: &str) -> Option<&'a OptionDef> {
    let mut begin = options.iter().filter(|option| option.long.starts_with(name));
    let exact = options.iter().find(|option| option.long == name);
    exact.or_else(|| begin.next().filter(|_| begin.next().is_none())).copied()
}

/// Options, or the value that is attached to one.
fn option(command: &Command, options: &[&'static OptionDef], last: &str, names: &dyn Names) -> Wanted {
    if let Some((name, text)) = last.split_once('=').filter(|_| last.starts_with("--")) {
        let Some(option) = long_option(options, &name[2..]) else { return Wanted::Words(Vec::new()) };
        return value(command, option, &format!("{name}="), text, names);
    }
    let attached = last.chars().nth(1).and_then(|letter| options.iter().find(|option| option.short == Some(letter)));
    if let Some(option) = attached
        && last.len() > 2
        && option.arg != Arg::None
    {
        return value(command, option, &last[..2], &last[2..], names);
    }
    let usable = options.iter().filter(|option| !option.is_refused());
    let spelled = |option: &&&OptionDef| {
        let more = if matches!(option.arg, Arg::Required(_)) { "=" } else { "" };
        let help = option.help.to_owned();
        let long = Candidate { text: format!("--{}{more}", option.long), help: help.clone() };
        let short = option.short.map(|letter| Candidate { text: format!("-{letter}"), help });
        [Some(long), short]
    };
    Wanted::Words(usable.flat_map(|option| spelled(&option)).flatten().collect())
}

fn value(command: &Command, option: &OptionDef, head: &str, text: &str, names: &dyn Names) -> Wanted {
    match values::of_option(command, option) {
        Some(kind) => listed(kind, head, text, names),
        None => Wanted::Words(Vec::new()),
    }
}

/// What a value may be. Of a list, the part behind the last comma is completed.
fn listed(kind: Value, head: &str, text: &str, names: &dyn Names) -> Wanted {
    let done = if kind.is_list() { text.rfind(',').map_or("", |at| &text[..=at]) } else { "" };
    let found = match kind {
        Value::File => return Wanted::File,
        Value::Folder => return Wanted::Folder,
        Value::Program => return Wanted::Program,
        kind => kind.candidates(names),
    };
    let whole = |word: Candidate| Candidate { text: format!("{head}{done}{}", word.text), help: word.help };
    Wanted::Words(found.into_iter().map(whole).collect())
}

/// The words of a command that has some, where none was typed yet.
fn words_of(command: &Command, operands: &[&str]) -> Wanted {
    let usable = command.words().iter().filter(|word| operands.is_empty() && !word.refused);
    let mut words: Vec<Candidate> =
        usable.map(|word| Candidate { text: word.name.to_owned(), help: word.help.to_owned() }).collect();
    // `garrick squeue` is `squeue`.
    if command.name() == "garrick" && operands.is_empty() {
        let others = COMMANDS.iter().filter(|other| other.name() != "garrick");
        words.extend(others.map(|c| Candidate { text: c.name().to_owned(), help: c.purpose().to_owned() }));
    }
    Wanted::Words(words)
}

#[cfg(test)]
#[path = "line_test.rs"]
#[allow(clippy::unwrap_used)]
mod tests;
