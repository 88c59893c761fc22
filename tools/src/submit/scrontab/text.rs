//! The text of a crontab, taken apart as scrontab(1) describes it: comments, variables, lines of options, and entries.

use garrick_model::cron::{Schedule, ScheduleError, shortcut};
use std::collections::BTreeMap;

/// What begins a line of options.
const OPTIONS: &[u8] = b"#SCRON";

/// An entry: when which command is to run, and the options before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its first and last line, from 1: its options, and the entry itself.
    pub lines: (u32, u32),
    /// Words of its options.
    pub words: Vec<String>,
    /// When it is due.
    pub schedule: Schedule,
    /// The name of its job: the first word of its command.
    pub name: String,
    /// The script that runs its command.
    pub script: Vec<u8>,
}

/// A line that is none of a crontab. The texts are Slurm's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// First line of what is wrong, and the last.
    pub lines: (u32, u32),
    /// What there is to say.
    pub errors: Vec<String>,
}

impl Broken {
    fn at(number: u32, why: Option<&str>) -> Self {
        let errors = why.into_iter().chain(["something is broken"]).map(str::to_owned).collect();
        Self { lines: (number, number), errors }
    }
}

/// Takes a crontab apart.
pub fn parse(text: &[u8]) -> Result<Vec<Entry>, Broken> {
    let mut entries = Vec::new();
    let mut variables = BTreeMap::new();
    let mut options = Options::default();
    for (number, line) in (1u32..).zip(text.split(|byte| *byte == b'\n')) {
        let trimmed = line.trim_ascii_start();
        if line.starts_with(OPTIONS) {
            options.add(number, line);
        } else if trimmed.is_empty() || trimmed[0] == b'#' {
            // Nothing to do.
        } else if let Some((name, value)) = variable(trimmed) {
            variables.insert(name, value);
        } else {
            let options = std::mem::take(&mut options);
            entries.push(entry(number, trimmed, options, &variables)?);
        }
    }
    Ok(entries)
}

/// Lines of options before an entry.
#[derive(Default)]
struct Options {
    first: Option<u32>,
    lines: Vec<Vec<u8>>,
    words: Vec<String>,
}

impl Options {
    fn add(&mut self, number: u32, line: &[u8]) {
        self.first.get_or_insert(number);
        self.lines.push(line.to_vec());
        let words = line[OPTIONS.len()..].split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        self.words.extend(words.map(|word| String::from_utf8_lossy(word).into_owned()));
    }
}

const fn is_of_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// `NAME=value`: blanks around the sign and quotes around the value do not count.
fn variable(line: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let at = line.iter().position(|byte| *byte == b'=')?;
    let name = line[..at].trim_ascii();
    let begins = name.first().is_some_and(|byte| !byte.is_ascii_digit());
    if !begins || !name.iter().all(|byte| is_of_name(*byte)) {
        return None;
    }
    let value = line[at + 1..].trim_ascii();
    let unquoted = |quote: u8| value.strip_prefix(&[quote])?.strip_suffix(&[quote]);
    Some((name.to_vec(), unquoted(b'"').or_else(|| unquoted(b'\'')).unwrap_or(value).to_vec()))
}

/// Splits the first word off: the word, and what follows the blanks behind it.
fn word(line: &[u8]) -> (&[u8], &[u8]) {
    let end = line.iter().position(u8::is_ascii_whitespace).unwrap_or(line.len());
    let (word, rest) = line.split_at(end);
    (word, rest.trim_ascii_start())
}

fn entry(number: u32, line: &[u8], options: Options, variables: &BTreeMap<Vec<u8>, Vec<u8>>) -> Result<Entry, Broken> {
    let (times, command) = times_and_command(number, line)?;
    let schedule = times.parse::<Schedule>().map_err(|error| {
        let why = match error {
            ScheduleError::Step(_) => Some("bad step value"),
            ScheduleError::Month(_) => Some("bad month specification"),
            ScheduleError::Day(_) => Some("bad day specification"),
            ScheduleError::Other(_) => None,
        };
        Broken::at(number, why)
    })?;
    if command.trim_ascii().is_empty() || command.contains(&0) {
        return Err(Broken::at(number, None));
    }
    let command = expanded(command, variables);
    let mut script = b"#!/bin/sh\n# This job was submitted through scrontab\n".to_vec();
    for line in &options.lines {
        script.extend_from_slice(line);
        script.push(b'\n');
    }
    script.extend_from_slice(format!("# crontab time request was: '{times}'\n").as_bytes());
    script.extend_from_slice(&command);
    script.push(b'\n');
    Ok(Entry {
        lines: (options.first.unwrap_or(number), number),
        words: options.words,
        schedule,
        name: String::from_utf8_lossy(word(&command).0).into_owned(),
        script,
    })
}

/// The five fields, or what stands for them, as they were written; and the command.
fn times_and_command(number: u32, line: &[u8]) -> Result<(String, &[u8]), Broken> {
    if line[0] == b'@' {
        let (name, command) = word(line);
        let name = String::from_utf8_lossy(name).into_owned();
        return match shortcut(&name) {
            Some(_) => Ok((name, command)),
            None => Err(Broken::at(number, Some("invalid @ line"))),
        };
    }
    let mut rest = line;
    let mut fields = Vec::with_capacity(5);
    for _ in 0..5 {
        let (field, behind) = word(rest);
        fields.push(String::from_utf8_lossy(field));
        rest = behind;
    }
    Ok((fields.join(" ").trim_end().to_owned(), rest))
}

/// A command with its variables filled in: `$NAME`, not after a backslash and not between single quotes. What is no variable of the
/// crontab stays, for the shell.
fn expanded(command: &[u8], variables: &BTreeMap<Vec<u8>, Vec<u8>>) -> Vec<u8> {
    let mut text = Vec::with_capacity(command.len());
    let mut quoted = false;
    let mut rest = command;
    while let Some((byte, behind)) = rest.split_first() {
        rest = behind;
        match byte {
            b'\\' if !quoted => {
                text.push(b'\\');
                if let Some((next, behind)) = rest.split_first() {
                    text.push(*next);
                    rest = behind;
                }
            }
            b'$' if !quoted => {
                let end = rest.iter().position(|byte| !is_of_name(*byte)).unwrap_or(rest.len());
                let (name, behind) = rest.split_at(end);
                match variables.get(name) {
                    Some(value) => text.extend_from_slice(value),
                    None => text.extend([b"$", name].concat()),
                }
                rest = behind;
            }
            byte => {
                quoted ^= *byte == b'\'';
                text.push(*byte);
            }
        }
    }
    text
}

/// A crontab with these lines as comments, for another edit.
pub fn with_bad_lines(text: &[u8], (first, last): (u32, u32)) -> Vec<u8> {
    let mut marked = Vec::with_capacity(text.len() + 16);
    for (number, line) in (1u32..).zip(text.split_inclusive(|byte| *byte == b'\n')) {
        if (first..=last).contains(&number) {
            marked.extend_from_slice(b"#BAD: ");
        }
        marked.extend_from_slice(line);
    }
    marked
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn scripts(text: &str) -> Vec<(String, (u32, u32), String)> {
        let text_of = |entry: Entry| (entry.name, entry.lines, String::from_utf8(entry.script).unwrap());
        parse(text.as_bytes()).unwrap().into_iter().map(text_of).collect()
    }

    fn command_of(text: &str) -> String {
        scripts(text).pop().unwrap().2.lines().last().unwrap().to_owned()
    }

    #[test]
    fn options_belong_to_the_next_entry_and_are_in_its_script() {
        let text =
            "A=1\n@weekly  prog  x  \n#SCRON -t 1\n# c\n#SCRON -n 2\n\nZ=3\n\n@monthly /bin/x $Z\n*/5  * * * * y\n";
        let head = "#!/bin/sh\n# This job was submitted through scrontab\n";
        let with = |rest: &str| format!("{head}{rest}");
        assert_eq!(
            scripts(text),
            [
                ("prog".to_owned(), (2, 2), with("# crontab time request was: '@weekly'\nprog  x  \n")),
                (
                    "/bin/x".to_owned(),
                    (3, 9),
                    with("#SCRON -t 1\n#SCRON -n 2\n# crontab time request was: '@monthly'\n/bin/x 3\n")
                ),
                ("y".to_owned(), (10, 10), with("# crontab time request was: '*/5 * * * *'\ny\n")),
            ]
        );
        let words: Vec<Vec<String>> = parse(text.as_bytes()).unwrap().into_iter().map(|entry| entry.words).collect();
        assert_eq!(words, [vec![], vec!["-t".to_owned(), "1".into(), "-n".into(), "2".into()], vec![]]);
    }

    #[test]
    fn variables_of_the_crontab_are_filled_in_and_all_else_is_the_shells() {
        let text = "A=1\nB=$A.x\nC = \"q r\"\n@daily echo $A $B ${A} $C $HOME $D \\$A '$A' \"$A\" % $AB $\n";
        assert_eq!(command_of(text), "echo 1 $A.x ${A} q r $HOME $D \\$A '$A' \"1\" % $AB $");
    }

    #[test]
    fn what_is_wrong_is_said_as_slurm_says_it() {
        let said = |text: &str| parse(text.as_bytes()).unwrap_err();
        for (line, why) in [
            ("x y z", None),
            ("A b", None),
            ("@daily", None),
            ("* * * * *", None),
            ("* * * * 8 true", None),
            ("5-3 * * * * true", None),
            ("*/0 * * * * true", Some("bad step value")),
            ("*/90 * * * * true", Some("bad step value")),
            ("* * * * true", Some("bad day specification")),
            ("* * * x * true", Some("bad month specification")),
            ("@never true", Some("invalid @ line")),
        ] {
            assert_eq!(said(&format!("# c\n{line}\n")), Broken::at(2, why), "{line}");
        }
    }

    #[test]
    fn bad_lines_become_comments() {
        assert_eq!(with_bad_lines(b"a\nb\nc", (2, 3)), b"a\n#BAD: b\n#BAD: c");
    }
}
