//! Colours for who sits at a terminal: other readers get Slurm's bytes. None where `NO_COLOR` is set (no-color.org) or the terminal
//! has none.

use std::{borrow::Cow, env, ffi::OsStr};

const BOLD: &str = "\x1b[1m";
const RED: &str = "\x1b[1;31m";
const YELLOW: &str = "\x1b[1;33m";
const CYAN: &str = "\x1b[36m";
const PLAIN: &str = "\x1b[0m";

/// Words that messages begin with, and their colours.
const KINDS: [(&str, &str); 3] = [("error:", RED), ("fatal:", RED), ("warning:", YELLOW)];

/// Furthest that the names of options and commands are indented in helps; their texts stand further to the right.
const NAMES_INDENT: usize = 6;

/// May a stream be coloured that is a terminal or none?
pub fn wanted(is_terminal: bool) -> bool {
    let variable = |name: &str| env::var_os(name);
    is_terminal && allowed(variable("NO_COLOR").as_deref(), variable("TERM").as_deref())
}

fn allowed(no_color: Option<&OsStr>, term: Option<&OsStr>) -> bool {
    no_color.is_none_or(OsStr::is_empty) && term.is_some_and(|term| !term.is_empty() && term != "dumb")
}

/// A message with the word that says how bad it is in a colour.
pub fn message(line: &str) -> Cow<'_, str> {
    match KINDS.iter().find_map(|(kind, colour)| Some((kind, colour, line.strip_prefix(kind)?))) {
        Some((kind, colour, rest)) => format!("{colour}{kind}{PLAIN}{rest}").into(),
        None => line.into(),
    }
}

/// A help with its headings and names in colours.
pub fn help(text: &str) -> String {
    let mut coloured: String = text.lines().map(|line| help_line(line) + "\n").collect();
    if !text.ends_with('\n') {
        coloured.pop();
    }
    coloured
}

fn help_line(line: &str) -> String {
    let names = line.trim_start_matches(' ');
    let indent = line.len() - names.len();
    match indent {
        _ if names.is_empty() => line.to_owned(),
        0 => match line.split_once(": ").filter(|(first, _)| *first == "Usage") {
            Some((usage, rest)) => format!("{BOLD}{usage}:{PLAIN} {rest}"),
            None if line.ends_with([':', ')']) => format!("{BOLD}{line}{PLAIN}"),
            None => line.to_owned(),
        },
        1..=NAMES_INDENT => {
            let (names, rest) = names.find("  ").map_or((names, ""), |end| names.split_at(end));
            // Text of a paragraph has no second column.
            if rest.is_empty() && !names.starts_with('-') {
                return line.to_owned();
            }
            format!("{:indent$}{CYAN}{names}{PLAIN}{rest}", "")
        }
        _ => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_for_terminals_that_have_them_and_users_that_want_them() {
        let (on, dumb, empty) = (Some(OsStr::new("xterm")), Some(OsStr::new("dumb")), Some(OsStr::new("")));
        assert!(allowed(None, on) && allowed(empty, on));
        assert!(!allowed(Some(OsStr::new("1")), on) && !allowed(None, dumb) && !allowed(None, None));
        assert!(!wanted(false));
    }

    #[test]
    fn of_a_message_the_first_word_is_coloured() {
        assert_eq!(message("error: a: error: b"), "\x1b[1;31merror:\x1b[0m a: error: b");
        assert_eq!(message("warning: a"), "\x1b[1;33mwarning:\x1b[0m a");
        assert_eq!(message("an error: a"), "an error: a");
    }

    #[test]
    fn of_a_help_headings_and_names_are_coloured() {
        let plain = "Usage: x [OPTIONS]\nShow.\n\nOptions:\n  -a, --all      everything: all\n      --long\n                 text\n";
        let coloured = help(plain);
        assert_eq!(
            coloured,
            "\x1b[1mUsage:\x1b[0m x [OPTIONS]\nShow.\n\n\x1b[1mOptions:\x1b[0m\n  \x1b[36m-a, --all\x1b[0m      everything: \
             all\n      \x1b[36m--long\x1b[0m\n                 text\n"
        );
        assert_eq!(help("--x (option of y)\n    text of it\n"), "\x1b[1m--x (option of y)\x1b[0m\n    text of it\n");
    }
}
