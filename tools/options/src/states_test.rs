//! Every option that Slurm documents has a state here, and docs/options.md says which.

use crate::table::{Arg, Command, Effect, OptionDef, all, options_of};
use garrick_model::testing::assert_page;
use std::{collections::BTreeMap, fmt::Write as _};

const COMMANDS: [Command; 3] = [Command::Salloc, Command::Sbatch, Command::Srun];
const DOCUMENTED: &str = include_str!("documented.txt");

/// Names by command, from `documented.txt`.
fn documented() -> BTreeMap<&'static str, Vec<&'static str>> {
    let mut names: BTreeMap<_, Vec<_>> = BTreeMap::new();
    let mut command = "";
    for line in DOCUMENTED.lines().filter(|line| !line.starts_with('#')) {
        match line.strip_suffix(':') {
            Some(name) => command = name,
            None => names.entry(command).or_default().extend(line.split_whitespace()),
        }
    }
    names
}

#[test]
fn every_documented_option_has_a_state() {
    let documented = documented();
    for command in COMMANDS {
        let own: Vec<&str> = options_of(command).iter().map(|option| option.long).collect();
        let names = &documented[command.name()];
        assert!(names.len() > 90, "{}: {}", command.name(), names.len());
        let missing: Vec<_> = names.iter().filter(|name| !own.contains(name)).collect();
        assert!(missing.is_empty(), "{} has no entry for {missing:?}", command.name());
    }
}

fn spelled(option: &OptionDef) -> String {
    let argument = match option.arg {
        Arg::None => String::new(),
        Arg::Required(word) => format!("={word}"),
        Arg::Optional(word) => format!("[={word}]"),
    };
    let short = option.short.map(|letter| format!("`-{letter}`, ")).unwrap_or_default();
    format!("{short}`--{}{argument}`", option.long).replace('|', "\\|")
}

fn state(option: &OptionDef) -> String {
    match option.effect {
        Effect::Set(_) | Effect::ByName => "works".to_owned(),
        Effect::Inert(why) => format!("no effect: {why}"),
        Effect::Ignored(notice) => format!("no effect, with the warning \"{notice}\""),
        Effect::NotSupported => "refused: not supported yet".to_owned(),
    }
}

#[test]
fn the_page_of_options_says_what_the_table_says() {
    let documented = documented();
    let mut page = "# Options of salloc, sbatch and srun\n\n\
        What each option does here: it works; it is accepted without effect, with the reason; or it is refused with `not supported\n\
        yet` and exit code 1. A name that is in neither table below is unrecognized. This page is generated from the table in\n\
        `tools/options/src`; a test compares them, and writes the page again if `GARRICK_WRITE_DOCS` is set.\n"
        .to_owned();
    for (title, from_slurm) in [("Options of Slurm 26.05", true), ("Options of Garrick", false)] {
        writeln!(page, "\n## {title}\n\n| option | commands | state | what it is for |\n|---|---|---|---|").unwrap();
        let mut options: Vec<&OptionDef> = all().collect();
        options.sort_by_key(|option| option.long);
        for option in options {
            let on = COMMANDS
                .iter()
                .filter(|command| option.is_on(**command))
                .map(|command| command.name())
                .filter(|name| documented[name].contains(&option.long) == from_slurm)
                .collect::<Vec<_>>()
                .join(", ");
            if !on.is_empty() {
                let help = option.help.replace('|', "\\|");
                writeln!(page, "| {} | {on} | {} | {help} |", spelled(option), state(option)).unwrap();
            }
        }
    }
    assert_page("docs/options.md", &page);
}
