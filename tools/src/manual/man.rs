//! Manual pages, made of the tables that commands read their arguments by and of the keys of `slurm.conf`.

use super::commands::{COMMANDS, Command, SUBCOMMANDS, own};
use crate::options::{
    arguments::{Table, Word},
    table::{Arg, Effect, OptionDef},
};
use garrick_model::{
    config::{self, Class, DescribedKey},
    env_vars,
};
use garrick_render::words;
use roff::{Inline, Roff, bold, italic, roman};

/// A file below `share/man`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// `man1/sbatch.1`
    pub path: String,
    /// For `man`.
    pub text: String,
}

/// All pages: one for each command, and slurm.conf(5).
pub fn pages() -> Vec<Page> {
    let page =
        |command: &Command| Page { path: format!("man1/{}.1", command.name()), text: of_command(command).render() };
    let conf = Page { path: "man5/slurm.conf.5".to_owned(), text: of_settings().render() };
    COMMANDS.iter().map(page).chain([conf]).collect()
}

fn title(page: &mut Roff, name: &str, section: &str, purpose: &str) {
    let version = format!("Garrick {}", env!("CARGO_PKG_VERSION"));
    // Without a date: pages of the same sources are the same.
    page.control("TH", [name.to_uppercase().as_str(), section, "\"\"", version.as_str(), "Garrick"]);
    page.control("SH", ["NAME"]);
    page.text([roman(format!("{name} - {}", purpose.trim_end_matches('.')))]);
}

fn of_command(command: &Command) -> Roff {
    let mut page = Roff::new();
    title(&mut page, command.name(), "1", command.purpose());
    page.control("SH", ["SYNOPSIS"]);
    page.text(synopsis(command));
    page.control("SH", ["DESCRIPTION"]);
    page.text([roman(command.purpose())]);
    commands(&mut page, command.words());
    if command.name() == "garrick" {
        SUBCOMMANDS.iter().for_each(|table| subcommand(&mut page, table));
    }
    page.control("SH", ["OPTIONS"]);
    options(&mut page, &command.options());
    if command.name() == "squeue" {
        states(&mut page);
    }
    environment(&mut page, command);
    page.control("SH", ["SEE ALSO"]);
    let others = COMMANDS.iter().filter(|other| other.name() != command.name());
    let mut also: Vec<Inline> = others.flat_map(|other| [bold(other.name()), roman("(1), ")]).collect();
    also.extend([bold("slurm.conf"), roman("(5)")]);
    page.text(also);
    page
}

fn synopsis(command: &Command) -> Vec<Inline> {
    let mut line = vec![bold(command.name())];
    if !command.options().is_empty() {
        line.extend([roman(" ["), italic("OPTIONS"), roman("]")]);
    }
    if !command.operands().is_empty() {
        line.push(roman(format!(" {}", command.operands())));
    }
    line
}

/// A heading for each subject, and an entry for each word.
fn commands(page: &mut Roff, words: &[Word]) {
    let mut subject = "";
    for word in words {
        if subject.is_empty() {
            page.control("SH", ["COMMANDS"]);
        }
        if subject != word.subject {
            subject = word.subject;
            page.control("SS", [subject]);
        }
        page.control("TP", []);
        let mut entry = vec![bold(word.name)];
        if !word.operands.is_empty() {
            entry.push(roman(format!(" {}", word.operands)));
        }
        page.text(entry);
        let not_yet = if word.refused { " (not supported yet)" } else { "" };
        page.text([roman(format!("{}{not_yet}", sentence(word.help)))]);
    }
}

/// A command of `garrick` with options of its own.
fn subcommand(page: &mut Roff, table: &'static Table) {
    let command = own(table);
    page.control("SH", [table.program.to_uppercase().as_str()]);
    page.text(synopsis(&command));
    page.control("PP", []);
    page.text([roman(table.purpose)]);
    options(page, &command.options());
}

fn options(page: &mut Roff, options: &[&OptionDef]) {
    for option in options.iter().filter(|option| !option.is_refused()) {
        page.control("TP", []);
        page.text(names(option));
        let mut text = sentence(option.help);
        if let Effect::Inert(_) | Effect::Ignored(_) = option.effect {
            text.push_str(&format!(" {}", sentence(&option.state())));
        }
        page.text([roman(text)]);
    }
    let refused: Vec<Inline> =
        options.iter().filter(|o| o.is_refused()).flat_map(|o| [bold(format!("--{}", o.long)), roman(" ")]).collect();
    if !refused.is_empty() {
        page.control("PP", []);
        page.text([roman("Slurm has these options too. They are not supported yet, and errors here:")]);
        page.text(refused);
    }
}

fn names(option: &OptionDef) -> Vec<Inline> {
    let mut names = Vec::new();
    if let Some(letter) = option.short {
        names.extend([bold(format!("-{letter}")), roman(", ")]);
    }
    names.push(bold(format!("--{}", option.long)));
    match option.arg {
        Arg::None => {}
        Arg::Required(word) => names.extend([roman("="), italic(word)]),
        Arg::Optional(word) => names.extend([roman("[="), italic(word), roman("]")]),
    }
    names
}

/// A name in bold with its text.
fn entry(page: &mut Roff, name: &str, text: &str) {
    page.control("TP", []);
    page.text([bold(name)]);
    page.text([roman(text)]);
}

/// Variables that every command reads.
const OF_EVERY_COMMAND: [&str; 4] =
    [env_vars::SLURM_CONF, env_vars::GARRICK_HOME, env_vars::SLURM_CLUSTERS, env_vars::SLURM_TIME_FORMAT];

/// Variables that stand for options, those that all commands read, and those that jobs and steps find.
fn environment(page: &mut Roff, command: &Command) {
    page.control("SH", ["ENVIRONMENT"]);
    page.text([roman("What options say goes before what these variables say.")]);
    for (variable, option) in command.variables() {
        entry(page, variable, &format!("As --{option}."));
    }
    let (every, others): (Vec<_>, Vec<_>) =
        env_vars::DESCRIBED.iter().partition(|(name, _)| OF_EVERY_COMMAND.contains(name));
    every.into_iter().for_each(|(name, what)| entry(page, name, &super::joined(what)));
    if ["sbatch", "salloc", "srun"].contains(&command.name()) {
        page.control("SH", ["ENVIRONMENT OF JOBS AND STEPS"]);
        let of_slurm = others.into_iter().filter(|(name, _)| name.starts_with("SLURM"));
        of_slurm.for_each(|(name, what)| entry(page, name, &super::joined(what)));
    }
}

/// What squeue(1) shows in the columns for states and reasons.
fn states(page: &mut Roff) {
    page.control("SH", ["STATES OF JOBS"]);
    for (word, compact, meaning) in words::job_states() {
        entry(page, &format!("{word}, {compact}"), &sentence(meaning));
    }
    page.control("SH", ["REASONS OF JOBS"]);
    for (word, meaning) in words::reasons() {
        entry(page, &word, &sentence(meaning));
    }
}

fn of_settings() -> Roff {
    let mut page = Roff::new();
    title(&mut page, "slurm.conf", "5", "configuration of a cluster");
    page.control("SH", ["DESCRIPTION"]);
    page.text([
        roman("The same file is on all hosts of a cluster. Each line has pairs of a key and a value, "),
        italic("Key=Value"),
        roman("; # begins a comment. Keys may be written in any case. "),
        bold("garrick check"),
        roman(" lists all problems of a file, with line, cause and suggestion."),
    ]);
    for lines in config::described() {
        let heading = lines.begins_with.map_or_else(
            || "KEYS WITH LINES OF THEIR OWN".to_owned(),
            |key| format!("KEYS ON LINES THAT BEGIN WITH {}", key.to_uppercase()),
        );
        page.control("SH", [heading.as_str()]);
        keys(&mut page, &lines.keys);
    }
    page.control("SH", ["SEE ALSO"]);
    page.text([bold("garrick"), roman("(1), "), bold("scontrol"), roman("(1)")]);
    page
}

fn keys(page: &mut Roff, keys: &[DescribedKey]) {
    for key in keys.iter().filter(|key| key.class == Class::Honoured) {
        let mut text = sentence(key.what);
        if !key.unset.is_empty() {
            text.push_str(&format!(" Unless set: {}.", key.unset));
        }
        entry(page, key.name, &text);
    }
    let unused = keys.iter().filter(|key| matches!(key.class, Class::OwnWay | Class::NotYet | Class::Dropped));
    let names: Vec<Inline> = unused.flat_map(|key| [bold(key.name), roman(" ")]).collect();
    page.control("PP", []);
    page.text([roman("Slurm has these keys too. They are accepted and have no effect:")]);
    page.text(names);
}

/// With a capital and a full stop, and without the marks of docs.
fn sentence(text: &str) -> String {
    let text = text.replace('`', "");
    let mut letters = text.chars();
    let first: String = letters.next().into_iter().flat_map(char::to_uppercase).collect();
    format!("{first}{}.", letters.as_str().trim_end_matches('.'))
}

#[cfg(test)]
#[path = "man_test.rs"]
#[allow(clippy::unwrap_used)]
mod tests;
