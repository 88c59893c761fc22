//! One line of a list of JSON objects, a step each: `{"command": ["./simulate", "--seed", "1"], "name": "first"}`.

use super::list_line::{self, LineError, ListLine};
use crate::options::{getopt, minibatch::IN_A_LINE, table::OptionDef};
use serde::{Deserialize, Deserializer, de};
use std::{borrow::Cow, ffi::OsString, fmt};

/// A line as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Task {
    command: Command,
    #[serde(default)]
    options: Words,
    #[serde(default)]
    environment: Variables,
    input: Option<String>,
    name: Option<String>,
}

/// A text, which means what a line of a list does, or the words.
#[derive(Debug)]
enum Command {
    Text(String),
    Words(Vec<String>),
}

/// Words; a text is parted where a shell would.
#[derive(Debug)]
struct Words(Command);

impl Default for Words {
    fn default() -> Self {
        Self(Command::Words(Vec::new()))
    }
}

#[derive(Debug, Default)]
struct Variables(Vec<(String, String)>);

struct CommandVisitor;

impl<'de> de::Visitor<'de> for CommandVisitor {
    type Value = Command;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text or an array of texts")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Command, E> {
        Ok(Command::Text(text.to_owned()))
    }

    fn visit_seq<A: de::SeqAccess<'de>>(self, mut all: A) -> Result<Command, A::Error> {
        let mut words = Vec::new();
        while let Some(word) = all.next_element()? {
            words.push(word);
        }
        Ok(Command::Words(words))
    }
}

impl<'de> Deserialize<'de> for Command {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(CommandVisitor)
    }
}

impl<'de> Deserialize<'de> for Words {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Command::deserialize(from).map(Self)
    }
}

struct VariablesVisitor;

impl<'de> de::Visitor<'de> for VariablesVisitor {
    type Value = Variables;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of variables")
    }

    fn visit_map<A: de::MapAccess<'de>>(self, mut all: A) -> Result<Variables, A::Error> {
        let mut variables: Vec<(String, String)> = Vec::new();
        while let Some((name, value)) = all.next_entry::<String, serde_json::Value>()? {
            let value = match value {
                serde_json::Value::String(text) => text,
                serde_json::Value::Number(number) => number.to_string(),
                other => {
                    return Err(de::Error::custom(format_args!("variable {name} is {other}, not a text or a number")));
                }
            };
            if name.is_empty() || name.contains('=') {
                return Err(de::Error::custom(format_args!("\"{name}\" is no name of a variable")));
            }
            if variables.iter().any(|(other, _)| *other == name) {
                return Err(de::Error::custom(format_args!("variable {name} is there twice")));
            }
            variables.push((name, value));
        }
        Ok(Variables(variables))
    }
}

impl<'de> Deserialize<'de> for Variables {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(VariablesVisitor)
    }
}

/// Reads a line without its line end. `None`: it is blank. `options` are those of `srun`.
pub fn read(text: &[u8], options: &[&'static OptionDef]) -> Result<Option<ListLine<'static>>, LineError> {
    if text.trim_ascii().is_empty() {
        return Ok(None);
    }
    let task: Task = serde_json::from_slice(text).map_err(|error| LineError::Json(said(&error)))?;
    let mut words = match task.options.0 {
        Command::Words(words) => words.into_iter().map(OsString::from).collect(),
        Command::Text(text) => list_line::option_words(text.as_bytes())?,
    };
    words.extend(task.input.map(|file| OsString::from(format!("--input={file}"))));
    let parsed = getopt::parse(options, &words).map_err(LineError::Getopt)?;
    if let Some(other) = parsed.options.iter().find(|o| !IN_A_LINE.contains(&o.def.long)) {
        return Err(LineError::NotHere(other.def.long));
    }
    if let Some(stray) = parsed.rest.first() {
        return Err(LineError::Stray(stray.to_string_lossy().into_owned()));
    }
    let argv = match task.command {
        Command::Words(words) => words.into_iter().map(String::into_bytes).collect(),
        Command::Text(text) => list_line::argv(text.as_bytes())?,
    };
    if argv.first().is_none_or(Vec::is_empty) {
        return Err(LineError::NoCommand);
    }
    let mut environment = String::new();
    for (name, value) in &task.environment.0 {
        if name.contains('\0') || value.contains('\0') {
            return Err(LineError::Nul);
        }
        environment.extend([name, "=", value, "\0"]);
    }
    let name = task.name.unwrap_or_default();
    let texts = words.iter().map(|word| word.as_encoded_bytes());
    let nul = |text: &[u8]| text.contains(&0);
    if argv.iter().any(|word| nul(word)) || texts.clone().any(nul) || nul(name.as_bytes()) {
        return Err(LineError::Nul);
    }
    let options_text = texts.collect::<Vec<_>>().join(&0);
    Ok(Some(ListLine {
        options_text: Cow::Owned(options_text),
        options: parsed.options,
        argv,
        name,
        environment,
        ..ListLine::default()
    }))
}

/// What is wrong; the line is said before it.
fn said(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    match text.strip_suffix(&place) {
        Some(text) if error.column() > 0 => format!("{text} (column {})", error.column()),
        Some(text) => text.to_owned(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::options::table::{Command as Program, options_of};
    use proptest::prelude::*;

    fn line(text: &str) -> Result<ListLine<'static>, String> {
        read(text.as_bytes(), &options_of(Program::Srun)).map(Option::unwrap).map_err(|e| e.to_string())
    }

    fn words(line: &ListLine<'_>) -> Vec<String> {
        line.argv.iter().map(|word| String::from_utf8(word.clone()).unwrap()).collect()
    }

    fn options(line: &ListLine<'_>) -> Vec<String> {
        let value = |o: &getopt::Occurrence| o.value.clone().unwrap_or_default().into_string().unwrap();
        line.options.iter().map(|o| format!("{}={}", o.def.long, value(o))).collect()
    }

    #[test]
    fn a_command_is_its_words_or_what_a_shell_makes_of_it() {
        let of = |text| words(&line(text).unwrap());
        assert_eq!(of(r#"{"command": ["./a", "b c", "$X", ""]}"#), ["./a", "b c", "$X", ""]);
        assert_eq!(of(r#"{"command": "./a 'b c'"}"#), ["./a", "b c"]);
        assert_eq!(of(r#"{"command": "cd x && ./a > \"$Y\""}"#), ["/bin/sh", "-c", "cd x && ./a > \"$Y\""]);
    }

    #[test]
    fn a_line_has_options_variables_input_and_a_name() {
        let all = line(
            r#"{"name": "größe 1", "command": ["x"], "options": ["-n2", "--time", "5"], "input": "in 1.txt",
                "environment": {"A": "b c", "N": 3, "E": ""}}"#,
        )
        .unwrap();
        assert_eq!(options(&all), ["ntasks=2", "time=5", "input=in 1.txt"]);
        assert_eq!((all.name.as_str(), all.environment.as_str()), ("größe 1", "A=b c\0N=3\0E=\0"));
        let text = line(r#"{"command": "x", "options": "-n2 -o 'out %J'"}"#).unwrap();
        assert_eq!(options(&text), ["ntasks=2", "output=out %J"]);
        let plain = line(r#"{"command": "x"}"#).unwrap();
        assert_eq!((plain.options_text.as_ref(), plain.environment.as_str()), (&b""[..], ""));
        assert_eq!(read(b" \r", &options_of(Program::Srun)), Ok(None));
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, want) in [
            ("{", "EOF while parsing an object (column 1)"),
            (
                r#"{"cmd": "x"}"#,
                "unknown field `cmd`, expected one of `command`, `options`, `environment`, `input`, `name` (column 6)",
            ),
            (r#"{"name": "x"}"#, "missing field `command` (column 13)"),
            (r#"{"command": "x", "command": "y"}"#, "duplicate field `command` (column 26)"),
            (r#"{"command": 1}"#, "invalid type: integer `1`, expected a text or an array of texts (column 13)"),
            (r#"{"command": []}"#, "no command"),
            (r#"{"command": " # nothing"}"#, "no command"),
            (r#"{"command": ["a\u0000b"]}"#, "a zero byte is in it"),
            (r#"{"command": "x 'y"}"#, "quote ' is never closed"),
            (r#"{"command": "x", "options": "--pty"}"#, "--pty cannot be set for one line of a list"),
            (r#"{"command": "x", "options": ["-n2", "y"]}"#, "\"y\" stands among the options and is none"),
            (r#"{"command": "x", "environment": {"A": [1]}}"#, "variable A is [1], not a text or a number (column 42)"),
            (r#"{"command": "x", "environment": {"A=B": "1"}}"#, "\"A=B\" is no name of a variable (column 44)"),
            (r#"{"command": "x"} {}"#, "trailing characters (column 18)"),
        ] {
            assert_eq!(line(text).unwrap_err(), want, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_line_panics(text in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = read(&text, &options_of(Program::Srun));
        }

        #[test]
        fn words_come_back(written in proptest::collection::vec("[^\\x00]{1,12}", 1..6)) {
            let text = serde_json::json!({ "command": written }).to_string();
            prop_assert_eq!(words(&line(&text).unwrap()), written);
        }
    }
}
