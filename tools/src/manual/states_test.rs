//! Every option and word that Slurm documents has a state here, docs/options.md says which, and what is refused is refused.

use super::commands::{COMMANDS, Command, Source};
use crate::options::{
    arguments::{self, Word},
    help,
    sources::{self, SourceError},
    table::{Arg, OptionDef},
    typed::OptionError,
};
use garrick_model::{testing::assert_page, time::Timestamp};
use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    fmt::Write as _,
};

const DOCUMENTED: &str = include_str!("documented.txt");

/// Names by command, from `documented.txt`.
fn documented() -> BTreeMap<&'static str, BTreeSet<&'static str>> {
    let mut names: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    let mut command = "";
    for line in DOCUMENTED.lines().filter(|line| !line.starts_with('#')) {
        match line.strip_suffix(':') {
            Some(name) => command = name,
            None => names.entry(command).or_default().extend(line.split_whitespace()),
        }
    }
    names
}

/// The commands that Slurm documents too, with the names.
fn slurms() -> Vec<(&'static Command, BTreeSet<&'static str>)> {
    let documented = documented();
    let slurms: Vec<_> = COMMANDS.iter().filter_map(|c| Some((c, documented.get(c.name())?.clone()))).collect();
    assert!(slurms.len() >= 14, "{}", slurms.len());
    slurms
}

/// What `documented.txt` has for an option: its long name, or its letter where Slurm has no long one.
fn is_documented(option: &OptionDef, names: &BTreeSet<&str>) -> bool {
    names.contains(option.long) || option.short.is_some_and(|letter| names.contains(format!("-{letter}").as_str()))
}

#[test]
fn every_command_is_described() {
    let described: BTreeSet<&str> = COMMANDS.iter().map(Command::name).collect();
    assert_eq!(described, crate::COMMANDS.iter().map(|(name, _)| *name).collect());
}

#[test]
fn every_documented_option_and_word_has_a_state() {
    for (command, names) in slurms() {
        let own: BTreeSet<String> = command
            .options()
            .iter()
            .flat_map(|o| [Some(o.long.to_owned()), o.short.map(|letter| format!("-{letter}"))])
            .flatten()
            .chain(command.words().iter().map(|word| format!("{}()", word.name)))
            .collect();
        let missing: Vec<_> = names.iter().filter(|name| !own.contains(**name)).collect();
        assert!(missing.is_empty(), "{} has no entry for {missing:?}", command.name());
    }
}

/// The option alone, as it is typed.
fn typed(option: &OptionDef) -> OsString {
    match option.arg {
        Arg::Required("margin@delay") => format!("--{}=1@1", option.long),
        Arg::Required(_) => format!("--{}=1", option.long),
        Arg::None | Arg::Optional(_) => format!("--{}", option.long),
    }
    .into()
}

/// What the command says of these arguments, where it says that something is not supported yet.
fn refusal(command: &Command, args: &[OsString]) -> Option<String> {
    let error = match command.source {
        Source::Own(table) => arguments::parse(table, args).unwrap().refused()?,
        Source::Submit(command) => {
            let parsed = sources::command_line(command, args).unwrap();
            match sources::lay_over(command, &[], &|_| None, &parsed.options, Timestamp::from_secs(0)) {
                Err(SourceError::Option { error, .. }) => error,
                _ => return None,
            }
        }
    };
    matches!(error, OptionError::NotSupported(_)).then(|| error.to_string())
}

#[test]
fn what_is_refused_is_refused_by_the_commands_grammar() {
    let mut refused = 0;
    for command in &COMMANDS {
        for option in command.options().into_iter().filter(|option| option.is_refused()) {
            let said = refusal(command, &[typed(option)]);
            assert_eq!(said.as_deref(), Some(format!("--{} is not supported yet", option.long).as_str()));
            refused += 1;
        }
        for option in command.options().into_iter().filter(|option| !option.is_refused()) {
            assert_eq!(refusal(command, &[typed(option)]), None, "{} {}", command.name(), option.long);
        }
    }
    assert!(refused > 0);
}

#[test]
fn help_and_usage_of_every_command_are_made_of_its_table() {
    for command in &COMMANDS {
        let (full, usage) = match command.source {
            Source::Own(table) => (arguments::help(table), arguments::usage(table)),
            Source::Submit(command) => (help::full(command), help::usage(command)),
        };
        let begin = format!("Usage: {}", command.name());
        assert!(full.starts_with(&begin) && usage.starts_with(&begin), "{full}{usage}");
        assert!(full.contains(command.purpose()), "{full}");
        for option in command.options() {
            assert!(full.contains(&format!("--{}", option.long)), "{}: {}", command.name(), option.long);
        }
        for word in command.words() {
            assert!(full.contains(&format!("\n  {}", word.name)), "{}: {}", command.name(), word.name);
        }
    }
}

fn spelled(option: &OptionDef) -> String {
    let short = option.short.map(|letter| format!("`-{letter}`, ")).unwrap_or_default();
    cell(&format!("{short}`{}`", option.with_argument()))
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

const INTRODUCTION: &str = "# Options of commands

What each option does here: it works; it is accepted without effect, with the reason; or it is refused with `not supported
yet` and exit code 1. A name that is in no table below is unrecognized. This page is generated from the tables that the
commands read their arguments by; a test compares them, and writes the page again if `GARRICK_WRITE_DOCS` is set.
";

/// Rows of options that Slurm has, or of those that it has not: the same option of several commands is one.
fn options_table(page: &mut String, commands: &[(&Command, BTreeSet<&str>)], from_slurm: bool) {
    let mut rows: BTreeMap<(&str, String), Vec<&str>> = BTreeMap::new();
    for (command, names) in commands {
        for option in command.options().into_iter().filter(|option| is_documented(option, names) == from_slurm) {
            let row = format!("| {} | %s | {} | {} |", spelled(option), cell(&option.state()), cell(option.help));
            rows.entry((option.long, row)).or_default().push(command.name());
        }
    }
    page.push_str("\n| option | commands | state | what it is for |\n|---|---|---|---|\n");
    for ((_, row), on) in rows {
        writeln!(page, "{}", row.replacen("%s", &on.join(", "), 1)).unwrap();
    }
}

fn words_table(page: &mut String, command: &Command) {
    let state = |word: &Word| if word.refused { "refused: not supported yet" } else { "works" };
    writeln!(page, "\n## Words of {}\n\n| word | state | what it is for |\n|---|---|---|", command.name()).unwrap();
    for word in command.words() {
        let typed = cell(format!("{} {}", word.name, word.operands).trim_end());
        writeln!(page, "| `{typed}` | {} | {} |", state(word), cell(word.help)).unwrap();
    }
}

/// How many options of each command have which state.
fn counts_table(page: &mut String, commands: &[(&Command, BTreeSet<&str>)]) {
    page.push_str("\n## How many\n\n| command | works | no effect | refused |\n|---|---|---|---|\n");
    for (command, names) in commands {
        let (mut works, mut inert, mut refused) = (0, 0, 0);
        for option in command.options().into_iter().filter(|option| is_documented(option, names)) {
            match option.state() {
                state if state == "works" => works += 1,
                state if state.starts_with("no effect") => inert += 1,
                _ => refused += 1,
            }
        }
        writeln!(page, "| {} | {works} | {inert} | {refused} |", command.name()).unwrap();
    }
}

#[test]
fn the_page_of_options_says_what_the_tables_say() {
    let all = slurms();
    let (submit, others): (Vec<_>, Vec<_>) =
        all.iter().cloned().partition(|(command, _)| ["sbatch", "salloc", "srun"].contains(&command.name()));
    let mut page = INTRODUCTION.to_owned();
    counts_table(&mut page, &all);
    page.push_str("\n## salloc, sbatch and srun: options of Slurm 26.05\n");
    options_table(&mut page, &submit, true);
    page.push_str("\n## salloc, sbatch and srun: options of Garrick\n");
    options_table(&mut page, &submit, false);
    for pair in &others {
        writeln!(page, "\n## {}\n\n{}", pair.0.name(), pair.0.purpose()).unwrap();
        options_table(&mut page, std::slice::from_ref(pair), true);
        if pair.0.options().iter().any(|option| !is_documented(option, &pair.1)) {
            page.push_str("\nOptions of Garrick:\n");
            options_table(&mut page, std::slice::from_ref(pair), false);
        }
        if !pair.0.words().is_empty() {
            words_table(&mut page, pair.0);
        }
    }
    assert_page("docs/options.md", &page);
}
