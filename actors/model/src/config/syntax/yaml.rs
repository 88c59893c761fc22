//! How the YAML files beside `slurm.conf` are opened: a list of entries, with the first thing that is wrong with its form in
//! the report, in the words of the file.

use super::report::{ConfigReport, Place, SettingError};
use serde::de::DeserializeOwned;
use serde_saphyr::Spanned;

/// The entries of a file called `file`, of which each begins with `first`; none where its form is wrong.
pub(in crate::config) fn entries<T: DeserializeOwned>(
    text: &str,
    file: &str,
    first: &str,
    place: &Place,
    report: &mut ConfigReport,
) -> Vec<T> {
    serde_saphyr::from_str(text).unwrap_or_else(|e| {
        let (line, column) = e.location().map_or((0, 0), |at| (number(at.line()), number(at.column())));
        // The library draws the line below its message, and says the place in its own way.
        let full = e.to_string();
        let head = full.lines().next().unwrap_or(&full).trim_start_matches("error: ");
        let cause = match head.split_once(": ") {
            Some((place, cause)) if place.starts_with("line ") => cause,
            _ => head,
        };
        let (what, wrong) = match Shape::wanted(cause) {
            Some(shape) => shape.told(&Found::at(text, line, column), file, first),
            None => (file.to_owned(), SettingError::new(cause).suggest(format!("see {file}(5)"))),
        };
        report.error(&Place { line, ..place.clone() }, what, wrong);
        Vec::new()
    })
}

/// The line of something.
pub(in crate::config) fn line_of<T>(spanned: &Spanned<T>) -> u32 {
    number(spanned.referenced.line())
}

fn number(at: impl TryInto<u32>) -> u32 {
    at.try_into().unwrap_or(0)
}

/// What should have been there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    List,
    Keys,
    Word,
}

impl Shape {
    fn wanted(cause: &str) -> Option<Self> {
        [
            ("expected sequence start", Self::List),
            ("expected mapping start", Self::Keys),
            ("expected string scalar", Self::Word),
        ]
        .into_iter()
        .find(|(end, _)| cause.ends_with(end))
        .map(|(_, shape)| shape)
    }

    fn told(self, found: &Found, file: &str, first: &str) -> (String, SettingError) {
        let Found { key, value } = found;
        let Some(key) = key else {
            let wrong = SettingError::new(match self {
                Self::List => "is no list of entries",
                Self::Keys | Self::Word => "has an entry that is none",
            });
            let suggestion = format!("each entry begins with a line like \"- {first}: NAME\", its other keys below it");
            return (file.to_owned(), wrong.suggest(suggestion));
        };
        let what = if value.is_empty() { key.clone() } else { format!("{key}: {value}") };
        let (wrong, write) = match self {
            Self::List if value.is_empty() => {
                ("is no list", format!("write each of its items behind \"- \" below {key}:"))
            }
            Self::List => (
                "is no list",
                format!("write {key}: [{}], or each item behind \"- \" on a line of its own", quoted(value)),
            ),
            Self::Keys => {
                ("has no keys of its own", format!("write them below {key}:, each on a line of its own, indented"))
            }
            Self::Word => (
                "is not one word",
                format!("write {key}: and one text behind it; nodes are one host list, like \"n[1-4],n7\""),
            ),
        };
        (what, SettingError::new(wrong).suggest(write))
    }
}

fn quoted(value: &str) -> String {
    if value.starts_with(['"', '\'']) { value.to_owned() } else { format!("\"{value}\"") }
}

/// What the file has at the place of an error.
#[derive(Debug, PartialEq, Eq)]
struct Found {
    /// The key whose value is wrong.
    key: Option<String>,
    /// The value, where it is on the same line.
    value: String,
}

impl Found {
    /// Line and column from 1.
    fn at(text: &str, line: u32, column: u32) -> Self {
        let lines: Vec<&str> = text.lines().take(line as usize).collect();
        let Some((last, before)) = lines.split_last() else { return Self { key: None, value: String::new() } };
        let split = last.char_indices().nth(column.saturating_sub(1) as usize).map_or(last.len(), |(at, _)| at);
        let (head, tail) = last.split_at(split);
        if let Some(key) = key_of(head) {
            return Self { key: Some(key), value: tail.split(" #").next().unwrap_or(tail).trim().to_owned() };
        }
        // The value begins on a line below its key.
        let above = before
            .iter()
            .rev()
            .map(|line| line.split(" #").next().unwrap_or(line))
            .find(|line| !line.trim().is_empty());
        Self { key: above.filter(|_| head.trim().is_empty()).and_then(key_of), value: String::new() }
    }
}

/// The key that ends this beginning of a line: `  - nodes:`.
fn key_of(head: &str) -> Option<String> {
    let key = head.trim_end().strip_suffix(':')?;
    let key = key.rsplit([' ', '{', ',']).next().unwrap_or(key).trim_matches(['"', '\'']);
    (!key.is_empty()).then(|| key.to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde::Deserialize;
    use std::{path::Path, sync::Arc};

    #[derive(Debug, Deserialize)]
    #[allow(dead_code)]
    struct Entry {
        resource: String,
        layers: Vec<Layer>,
    }

    #[derive(Debug, Deserialize)]
    #[allow(dead_code)]
    struct Layer {
        nodes: Vec<String>,
        tree: Option<Keys>,
    }

    #[derive(Debug, Deserialize)]
    #[allow(dead_code)]
    struct Keys {
        word: String,
    }

    fn problem(text: &str) -> String {
        let place = Place { file: Arc::from(Path::new("/e/r.yaml")), line: 0 };
        let mut report = ConfigReport::default();
        let entries: Vec<Entry> = entries(text, "r.yaml", "resource", &place, &mut report);
        assert!(entries.is_empty());
        report.problems[0].to_string()
    }

    #[test]
    fn a_wrong_shape_is_said_in_the_words_of_the_file() {
        for (text, want) in [
            (
                "- resource: a\n  layers:\n    - nodes: n[1-4]  # all\n",
                "/e/r.yaml:3: error: nodes: n[1-4]: is no list (write nodes: [\"n[1-4]\"], or each item behind \"- \" on a line \
                 of its own)",
            ),
            (
                "- resource: a\n  layers:\n    nodes: [n1]\n",
                "/e/r.yaml:3: error: layers: is no list (write each of its items behind \"- \" below layers:)",
            ),
            (
                "- resource: [a, b]\n  layers: []\n",
                "/e/r.yaml:1: error: resource: [a, b]: is not one word (write resource: and one text behind it; nodes are one \
                 host list, like \"n[1-4],n7\")",
            ),
            (
                "- resource: a\n  layers:\n    - nodes: [n1]\n      tree: all\n",
                "/e/r.yaml:4: error: tree: all: has no keys of its own (write them below tree:, each on a line of its own, \
                 indented)",
            ),
            (
                "resource: a\nlayers: []\n",
                "/e/r.yaml:1: error: r.yaml: is no list of entries (each entry begins with a line like \"- resource: NAME\", \
                 its other keys below it)",
            ),
            (
                "- a\n",
                "/e/r.yaml:1: error: r.yaml: has an entry that is none (each entry begins with a line like \"- resource: \
                 NAME\", its other keys below it)",
            ),
        ] {
            assert_eq!(problem(text), want);
        }
    }

    #[test]
    fn other_mistakes_are_said_in_the_librarys_words() {
        let said = problem("- resource: a\n");
        assert!(said.starts_with("/e/r.yaml:1: error: r.yaml: missing field `layers`"), "{said}");
    }
}
