//! One line of a list of commands: `[options --] command`. Options are `srun`'s own; the command means what `/bin/sh -c COMMAND`
//! would do, and is run without a shell if it consists of words only.

use super::shell_words::{self, NotWords};
use crate::options::{
    getopt::{self, GetoptError, Occurrence},
    minibatch::IN_A_LINE,
    table::OptionDef,
};
use std::{borrow::Cow, ffi::OsString, fmt, os::unix::ffi::OsStringExt as _};

/// Longest line, in bytes: what the kernel takes as one argument of a program, less its final zero (execve(2)).
pub const LONGEST: usize = (128 << 10) - 1;

/// A line that holds a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListLine<'a> {
    /// Its options as written; lines with equal ones ask for the same.
    pub options_text: Cow<'a, [u8]>,
    /// Its options.
    pub options: Vec<Occurrence>,
    /// Program and arguments.
    pub argv: Vec<Vec<u8>>,
    /// Its number in its file, from 1.
    pub line: Option<u32>,
    /// What the command was made of, as it is shown.
    pub values: String,
    /// A name of its own.
    pub name: String,
    /// Variables of its own, `NAME=value`, each closed by a zero byte.
    pub environment: String,
}

impl ListLine<'_> {
    /// The same, without what it was read from.
    pub fn into_owned(self) -> ListLine<'static> {
        ListLine { options_text: Cow::Owned(self.options_text.into_owned()), ..self }
    }
}

/// A line that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LineError {
    /// Options that cannot be taken apart.
    Getopt(GetoptError),
    /// An option that is not for one line.
    NotHere(&'static str),
    /// A quote that is never closed.
    Unclosed(char),
    /// An option with something in it that only a shell could make out.
    ShellInOption(String),
    /// Options, but no command.
    NoCommand,
    /// A zero byte.
    Nul,
    /// More than [`LONGEST`].
    TooLong,
    /// Not the JSON that it should be.
    Json(String),
    /// A word that is neither an option nor the argument of one.
    Stray(String),
}

impl fmt::Display for LineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Getopt(error) => match error.suggestion() {
                Some(hint) => write!(f, "{error} ({hint})"),
                None => write!(f, "{error}"),
            },
            Self::NotHere(name) => write!(f, "--{name} cannot be set for one line of a list"),
            Self::Unclosed(quote) => write!(f, "quote {quote} is never closed"),
            Self::ShellInOption(text) => {
                write!(f, "options of a line are not read by a shell (quote what is meant as it is): {text}")
            }
            Self::NoCommand => f.write_str("no command"),
            Self::Nul => f.write_str("a zero byte is in it"),
            Self::TooLong => write!(f, "longer than {LONGEST} bytes"),
            Self::Json(error) => f.write_str(error),
            Self::Stray(word) => write!(f, "\"{word}\" stands among the options and is none"),
        }
    }
}

/// Reads a line without its line end. `None`: it is blank or a comment. `options` are those of `srun`.
pub fn read<'a>(text: &'a [u8], options: &[&'static OptionDef]) -> Result<Option<ListLine<'a>>, LineError> {
    // Lists that come from elsewhere may have the line ends of DOS.
    let text = text.strip_suffix(b"\r").unwrap_or(text);
    let begin = shell_words::skip_blanks(text, 0);
    if begin == text.len() || text[begin] == b'#' {
        return Ok(None);
    }
    if text.contains(&0) {
        return Err(LineError::Nul);
    }
    let (own, command_at) = leading_options(text, begin, options)?;
    let argv = argv(&text[command_at..])?;
    let options_text = Cow::Borrowed(&text[begin..command_at]);
    Ok(Some(ListLine { options_text, options: own, argv, ..ListLine::default() }))
}

/// Program and arguments of a command, which may be the shell with it.
pub fn argv(command: &[u8]) -> Result<Vec<Vec<u8>>, LineError> {
    let at = shell_words::skip_blanks(command, 0);
    if at == command.len() || command[at] == b'#' {
        return Err(LineError::NoCommand);
    }
    match shell_words::words(command) {
        Ok(words) => Ok(words),
        Err(NotWords::Unclosed(quote)) => Err(LineError::Unclosed(quote)),
        Err(NotWords::Shell) => Ok(vec![b"/bin/sh".to_vec(), b"-c".to_vec(), command[at..].to_vec()]),
    }
}

/// The words of a text that holds options and nothing else.
pub fn option_words(text: &[u8]) -> Result<Vec<OsString>, LineError> {
    let mut words = Vec::new();
    let mut at = shell_words::skip_blanks(text, 0);
    while at < text.len() {
        let (word, end) = option_word(text, at)?;
        words.push(word);
        at = shell_words::skip_blanks(text, end);
    }
    Ok(words)
}

/// The options at the beginning of a line, and where the command begins.
fn leading_options(
    text: &[u8],
    begin: usize,
    options: &[&'static OptionDef],
) -> Result<(Vec<Occurrence>, usize), LineError> {
    let mut words: Vec<OsString> = Vec::new();
    let mut parsed = Vec::new();
    let mut at = begin;
    loop {
        at = shell_words::skip_blanks(text, at);
        if text.get(at) != Some(&b'-') {
            break;
        }
        let (mut word, mut end) = option_word(text, at)?;
        if word == "--" {
            at = end;
            break;
        }
        if word == "-" {
            break;
        }
        // An option's argument may be the next word.
        loop {
            words.push(word);
            match getopt::parse(options, &words) {
                Ok(all) => {
                    parsed = all.options;
                    break;
                }
                Err(error @ (GetoptError::MissingLong(_) | GetoptError::MissingShort(_))) => {
                    let next = shell_words::skip_blanks(text, end);
                    if next == text.len() {
                        return Err(LineError::Getopt(error));
                    }
                    (word, end) = option_word(text, next)?;
                }
                Err(error) => return Err(LineError::Getopt(error)),
            }
        }
        at = end;
    }
    match parsed.iter().find(|o| !IN_A_LINE.contains(&o.def.long)) {
        Some(other) => Err(LineError::NotHere(other.def.long)),
        None => Ok((parsed, at)),
    }
}

fn option_word(text: &[u8], at: usize) -> Result<(OsString, usize), LineError> {
    match shell_words::word(text, at) {
        Ok((word, end)) => Ok((OsString::from_vec(word), end)),
        Err(NotWords::Unclosed(quote)) => Err(LineError::Unclosed(quote)),
        Err(NotWords::Shell) => {
            let rest: Vec<u8> = text[at..].iter().copied().take_while(|b| !b.is_ascii_whitespace()).collect();
            Err(LineError::ShellInOption(String::from_utf8_lossy(&rest).into_owned()))
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::options::table::{Command, options_of};
    use proptest::prelude::*;

    /// Options with values, and the words.
    type Shown = (Vec<String>, Vec<String>);

    fn shown(text: &str) -> Result<Option<Shown>, String> {
        let line = read(text.as_bytes(), &options_of(Command::Srun)).map_err(|e| e.to_string())?;
        Ok(line.map(|line| {
            let value = |o: &Occurrence| o.value.as_ref().map(|v| format!("={}", v.to_string_lossy()));
            (
                line.options.iter().map(|o| format!("{}{}", o.def.long, value(o).unwrap_or_default())).collect(),
                line.argv.into_iter().map(|w| String::from_utf8(w).unwrap()).collect(),
            )
        }))
    }

    fn is(text: &str, options: &[&str], argv: &[&str]) {
        let owned = |words: &[&str]| words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>();
        assert_eq!(shown(text), Ok(Some((owned(options), owned(argv)))), "{text}");
    }

    #[test]
    fn a_line_is_words_or_for_the_shell() {
        is("./prog 'a b'", &[], &["./prog", "a b"]);
        is("  cd x && ./y ", &[], &["/bin/sh", "-c", "cd x && ./y "]);
        is("prog\r", &[], &["prog"]);
    }

    #[test]
    fn a_line_may_begin_with_options() {
        let long = "-n2 -c 1 --time=5 --mem 100 --step-priority=-3 -o 'out %J' -- ./prog -x --y";
        let options = ["ntasks=2", "cpus-per-task=1", "time=5", "mem=100", "step-priority=-3", "output=out %J"];
        is(long, &options, &["./prog", "-x", "--y"]);
        is("-n2 echo $HOME", &["ntasks=2"], &["/bin/sh", "-c", "echo $HOME"]);
        is("-K prog", &["kill-on-bad-exit"], &["prog"]);
        is("-- -odd", &[], &["-odd"]);
        is("- x", &[], &["-", "x"]);
    }

    #[test]
    fn blank_lines_and_comments_are_no_commands() {
        for text in ["", "  \t", "# x", "   #!/bin/sh", "\r"] {
            assert_eq!(shown(text), Ok(None), "{text:?}");
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, want) in [
            ("prog 'x", "quote ' is never closed"),
            ("-o 'x prog", "quote ' is never closed"),
            ("-n2", "no command"),
            ("-n2 -- # nothing", "no command"),
            ("-n", "option requires an argument -- 'n'"),
            ("--nodse=5 prog", "unrecognized option '--nodse=5' (did you mean '--nodes'?)"),
            ("-Z prog", "--no-allocate cannot be set for one line of a list"),
            ("--pty prog", "--pty cannot be set for one line of a list"),
            ("--async prog", "--async cannot be set for one line of a list"),
            ("-o $X prog", "options of a line are not read by a shell (quote what is meant as it is): $X"),
            ("pr\0og", "a zero byte is in it"),
        ] {
            assert_eq!(shown(text).unwrap_err(), want, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_line_panics(text in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = read(&text, &options_of(Command::Srun));
        }

        #[test]
        fn no_line_of_options_panics(text in "[-a-z= '\"\\\\$0-9]{0,30}") {
            let _ = read(text.as_bytes(), &options_of(Command::Srun));
        }
    }
}
