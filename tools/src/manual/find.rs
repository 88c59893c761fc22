//! `garrick help NAME`: what a command, option, key of `slurm.conf`, variable, state, reason or topic is, from the tables that they
//! are read by.

use super::{
    commands::{COMMANDS, SUBCOMMANDS},
    joined, topics,
};
use crate::{
    options::{getopt::nearest, table::OptionDef},
    output::{self, Console},
};
use garrick_model::{
    config::{self, Class, DescribedKey},
    env_vars,
};
use garrick_render::words;
use std::{collections::BTreeMap, ffi::OsString};

/// Width of explanations.
const WIDTH: usize = 80;

/// Something that has a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Names by which it is found, without dashes.
    names: Vec<String>,
    /// First line of the explanation.
    heading: String,
    /// The rest, a paragraph each.
    text: Vec<String>,
}

impl Entry {
    fn new(name: &str, heading: String, text: impl Into<String>) -> Self {
        Self { names: vec![name.to_owned()], heading, text: vec![text.into()] }
    }

    fn is_called(&self, name: &str) -> bool {
        self.names.iter().any(|own| own.eq_ignore_ascii_case(name))
    }
}

/// Runs `garrick help NAME`. Returns 1 where nothing has such a name.
pub fn main(args: &[OsString], console: &Console) -> i32 {
    let typed = args.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
    let name = typed.trim_start_matches('-');
    let entries = entries();
    let found: Vec<&Entry> = entries.iter().filter(|entry| entry.is_called(name)).collect();
    if found.is_empty() {
        console.error(format_args!("nothing is called {typed}"));
        if let Some(near) = nearest_name(&entries, name) {
            console.line(format_args!("did you mean {near}?"));
        }
        return 1;
    }
    output::finish(console, output::print_help(&written(&found)), 0)
}

fn nearest_name<'e>(entries: &'e [Entry], name: &str) -> Option<&'e str> {
    nearest(name, entries.iter().flat_map(|entry| &entry.names).map(String::as_str))
}

/// Every name that is explained.
pub fn names() -> Vec<String> {
    entries().into_iter().flat_map(|entry| entry.names).collect()
}

fn written(entries: &[&Entry]) -> String {
    let explanation = |entry: &&Entry| {
        let text: String = entry.text.iter().map(|paragraph| wrapped(paragraph)).collect();
        format!("{}\n{text}", entry.heading)
    };
    entries.iter().map(explanation).collect::<Vec<_>>().join("\n")
}

/// A paragraph in lines that begin with four blanks.
fn wrapped(paragraph: &str) -> String {
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in paragraph.split_whitespace() {
        if !line.is_empty() && 4 + line.len() + 1 + word.len() > WIDTH {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.push(line);
    lines.into_iter().map(|line| format!("    {line}\n")).collect()
}

/// Everything that has a name.
pub fn entries() -> Vec<Entry> {
    [of_commands(), of_options(), of_settings(), of_variables(), of_states(), topics::entries()].concat()
}

impl Entry {
    /// A page of docs, found by its file's name.
    pub fn topic(name: &str, title: &str, text: Vec<String>) -> Self {
        Self { names: vec![name.to_owned()], heading: format!("{title} (topic)"), text }
    }
}

/// Commands, and the words of those that have some.
fn of_commands() -> Vec<Entry> {
    let mut entries = Vec::new();
    for command in &COMMANDS {
        let name = command.name();
        let usage = format!("{name} [OPTIONS] {}", command.operands());
        let mut entry = Entry::new(name, format!("{} (command)", usage.trim_end()), command.purpose());
        entry.text.push(format!("More: {name} --help, man {name}"));
        entries.push(entry);
        for word in command.words() {
            let heading = format!("{name} {} {}", word.name, word.operands);
            let not_yet = if word.refused { " (not supported yet)" } else { "" };
            let mut entry =
                Entry::new(word.name, format!("{} (command)", heading.trim_end()), format!("{}{not_yet}", word.help));
            entry.names.push(format!("{name} {}", word.name));
            if SUBCOMMANDS.iter().any(|table| table.program == format!("{name} {}", word.name)) {
                entry.text.push(format!("More: {name} {} --help", word.name));
            }
            entries.push(entry);
        }
    }
    entries
}

/// Options: one entry for the commands where it is the same.
fn of_options() -> Vec<Entry> {
    let mut same: BTreeMap<(&str, String, String), (&OptionDef, Vec<&str>)> = BTreeMap::new();
    for command in &COMMANDS {
        for option in command.options() {
            let key = (option.long, option.with_argument(), format!("{}{}", option.help, option.state()));
            same.entry(key).or_insert((option, Vec::new())).1.push(command.name());
        }
    }
    let entry = |(option, commands): (&OptionDef, Vec<&str>)| {
        let short = option.short.map(|letter| format!("-{letter}, ")).unwrap_or_default();
        let heading = format!("{short}{} (option of {})", option.with_argument(), commands.join(", "));
        let mut entry = Entry::new(option.long, heading, option.help);
        entry.names.extend(option.short.map(String::from));
        let state = option.state();
        if state != "works" {
            entry.text.push(state);
        }
        entry
    };
    same.into_values().map(entry).collect()
}

fn of_settings() -> Vec<Entry> {
    let mut entries = Vec::new();
    for lines in config::described() {
        let place = lines.begins_with.map_or_else(String::new, |key| format!(", on lines of {key}"));
        for key in &lines.keys {
            let heading = format!("{} (key of slurm.conf{place})", key.name);
            entries.push(Entry::new(key.name, heading, of_key(key)));
        }
    }
    entries
}

fn of_key(key: &DescribedKey) -> String {
    match key.class {
        Class::Honoured if key.unset.is_empty() => joined(&[key.what]),
        Class::Honoured => format!("{}; unless set: {}", joined(&[key.what]), key.unset),
        Class::OwnWay => "accepted without effect: Garrick does the same in its own way".to_owned(),
        Class::NotYet => "accepted with a warning: it has no effect yet".to_owned(),
        Class::Dropped => "accepted with a warning: Slurm has removed it".to_owned(),
        Class::Fact => "shown by scontrol show config, and cannot be set".to_owned(),
    }
}

/// Environment variables: what they are, and which options they stand for.
fn of_variables() -> Vec<Entry> {
    let heading = |name: &str| format!("{name} (environment variable)");
    let described = env_vars::DESCRIBED.iter().map(|(name, what)| Entry::new(name, heading(name), joined(what)));
    let mut entries: Vec<Entry> = described.collect();
    let mut stand_for: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for command in &COMMANDS {
        for (variable, option) in command.variables() {
            stand_for.entry(variable).or_default().push(format!("{} --{option}", command.name()));
        }
    }
    for (variable, options) in stand_for {
        let text = format!("stands for {} where that option is not given", options.join(", "));
        match entries.iter_mut().find(|entry| entry.is_called(variable)) {
            Some(entry) => entry.text.push(text),
            None => entries.push(Entry::new(variable, heading(variable), text)),
        }
    }
    entries
}

/// States of jobs, and reasons.
fn of_states() -> Vec<Entry> {
    let state = |(word, compact, meaning): (&str, &str, &str)| {
        let mut entry = Entry::new(word, format!("{word}, {compact} (state of a job)"), meaning);
        entry.names.push(compact.to_owned());
        entry
    };
    let reason = |(word, meaning): (String, &str)| {
        let mut entry = Entry::new(&word, format!("{word} (reason of a job)"), meaning);
        entry.text.push("garrick why JOB says more about a job.".to_owned());
        entry
    };
    words::job_states().map(state).chain(words::reasons().into_iter().map(reason)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(name: &str) -> String {
        let entries = entries();
        let found: Vec<&Entry> = entries.iter().filter(|entry| entry.is_called(name)).collect();
        written(&found)
    }

    #[test]
    fn every_kind_of_name_is_explained() {
        for (name, part) in [
            ("sbatch", "sbatch [OPTIONS] script [args...] (command)\n    Submit a batch script as a job.\n"),
            ("hold", "scontrol hold JOB... (command)\n"),
            ("scontrol hold", "scontrol hold JOB... (command)\n"),
            ("install", "    More: garrick install --help\n"),
            ("nodelist", "-w, --nodelist=hosts... (option of sbatch, salloc, srun)\n"),
            ("mem-update", "    refused: not supported yet\n"),
            ("KillWait", "KillWait (key of slurm.conf)\n"),
            ("maxtime", "MaxTime (key of slurm.conf, on lines of PartitionName)\n"),
            ("SLURM_JOB_ID", "SLURM_JOB_ID (environment variable)\n    Job id.\n"),
            ("SBATCH_PARTITION", "    stands for sbatch --partition where that option is not given\n"),
            ("SQUEUE_FORMAT", "    stands for squeue --format where that option is not given\n"),
            ("CG", "COMPLETING, CG (state of a job)\n    its work is over"),
            ("Resources", "Resources (reason of a job)\n    the resources that it asks for are in use\n"),
            ("licenses", "Licenses (topic)\n"),
        ] {
            let text = shown(name);
            assert!(text.contains(part), "{name}: {text}");
            assert!(text.lines().all(|line| line.len() <= WIDTH || !line.starts_with(' ')), "{text}");
        }
        assert_eq!(shown("no such thing"), "");
    }

    #[test]
    fn several_things_of_one_name_are_all_explained() {
        let text = shown("priority");
        for kind in ["(option of sbatch, salloc, srun)", "(option of squeue)", "(reason of a job)", "(topic)"] {
            assert!(text.contains(kind), "{kind}: {text}");
        }
    }

    #[test]
    fn a_slip_finds_the_nearest_name() {
        let entries = entries();
        assert_eq!(nearest_name(&entries, "partiton"), Some("partition"));
        assert_eq!(nearest_name(&entries, "killwiat"), Some("KillWait"));
        assert_eq!(nearest_name(&entries, "xyzzyplugh"), None);
    }
}
