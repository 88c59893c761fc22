//! The content of a graph's file, TOML or JSON, with line numbers.

use serde::{
    Deserializer,
    de::{self, DeserializeSeed, MapAccess, SeqAccess, Visitor},
};
use std::{
    cell::Cell,
    fmt,
    io::{self, Read},
    rc::Rc,
};
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A text.
    Text(String),
    /// A whole number.
    Whole(i64),
    /// True or false.
    Truth(bool),
    /// Values one after the other.
    List(Vec<Node>),
    /// Values with names, in the order of the file.
    Table(Vec<Entry>),
    /// Something that no graph has use for: what it is.
    Other(&'static str),
}

/// A value and where it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Its line, from 1.
    pub line: u32,
    /// The value.
    pub value: Value,
}

/// A value with a name.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The line of the name, from 1.
    pub line: u32,
    /// The name.
    pub key: String,
    /// The value.
    pub node: Node,
}

/// Something that is wrong, and in which line.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// The line, from 1.
    pub line: u32,
    /// What, and what to do.
    pub text: String,
}

impl Problem {
    /// A problem in a line.
    pub fn new(line: u32, text: impl Into<String>) -> Self {
        Self { line, text: text.into() }
    }
}

impl Value {
    /// What it is, in words.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Text(_) => "a text",
            Self::Whole(_) => "a number",
            Self::Truth(_) => "true or false",
            Self::List(_) => "a list",
            Self::Table(_) => "a table",
            Self::Other(what) => what,
        }
    }
}

/// Reads a file: JSON where it begins with `{`, else TOML.
pub fn read(text: &[u8]) -> Result<Vec<Entry>, Vec<Problem>> {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    if text.trim_ascii_start().starts_with(b"{") {
        return json(text).map_err(|problem| vec![problem]);
    }
    let text = std::str::from_utf8(text).map_err(|error| {
        let line = 1 + text[..error.valid_up_to()].iter().filter(|byte| **byte == b'\n').count();
        vec![Problem::new(line as u32, "this is not UTF-8 text")]
    })?;
    of_toml(text)
}

/// Lines by places in a text.
struct LineEnds(Vec<usize>);

impl LineEnds {
    fn of(text: &str) -> Self {
        Self(text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at).collect())
    }

    fn line(&self, at: usize) -> u32 {
        self.0.partition_point(|end| *end < at) as u32 + 1
    }
}

fn of_toml(text: &str) -> Result<Vec<Entry>, Vec<Problem>> {
    let ends = LineEnds::of(text);
    let (table, errors) = DeTable::parse_recoverable(text);
    if errors.is_empty() {
        return Ok(entries(table.get_ref(), &ends));
    }
    let problem = |error: &toml::de::Error| {
        let line = error.span().map_or(1, |span| ends.line(span.start));
        Problem::new(line, error.message().replace('\n', ", "))
    };
    let mut problems: Vec<Problem> = errors.iter().map(problem).collect();
    problems.dedup();
    Err(problems)
}

fn entries(table: &DeTable<'_>, ends: &LineEnds) -> Vec<Entry> {
    let mut in_order: Vec<_> = table.iter().collect();
    in_order.sort_by_key(|(key, _)| key.span().start);
    in_order
        .into_iter()
        .map(|(key, value)| Entry {
            line: ends.line(key.span().start),
            key: key.get_ref().to_string(),
            node: node(value, ends),
        })
        .collect()
}

fn node(value: &Spanned<DeValue<'_>>, ends: &LineEnds) -> Node {
    let line = ends.line(value.span().start);
    let value = match value.get_ref() {
        DeValue::String(text) => Value::Text(text.to_string()),
        DeValue::Integer(number) => match i64::from_str_radix(number.as_str(), number.radix()) {
            Ok(number) => Value::Whole(number),
            Err(_) => Value::Other("a number that is too large"),
        },
        DeValue::Float(_) => Value::Other("a number with decimals (write it as a text)"),
        DeValue::Boolean(truth) => Value::Truth(*truth),
        DeValue::Datetime(_) => Value::Other("a date or time (write it as a text)"),
        DeValue::Array(list) => Value::List(list.iter().map(|one| node(one, ends)).collect()),
        DeValue::Table(table) => Value::Table(entries(table, ends)),
    };
    Node { line, value }
}

/// Counts the lines of what is read from it. The reader of JSON takes byte after byte, one ahead at most.
struct Counted<'a> {
    text: &'a [u8],
    line: Rc<Cell<u32>>,
}

impl Read for Counted<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let (Some((first, rest)), Some(place)) = (self.text.split_first(), into.first_mut()) else { return Ok(0) };
        *place = *first;
        self.text = rest;
        self.line.set(self.line.get() + u32::from(*first == b'\n'));
        Ok(1)
    }
}

fn json(text: &[u8]) -> Result<Vec<Entry>, Problem> {
    let line = Rc::new(Cell::new(1));
    let mut reader = serde_json::Deserializer::from_reader(Counted { text, line: Rc::clone(&line) });
    let wrong = |error: serde_json::Error| {
        let text = error.to_string();
        let place = format!(" at line {} column {}", error.line(), error.column());
        Problem::new(error.line().max(1) as u32, text.strip_suffix(&place).unwrap_or(&text))
    };
    let node = Place(&line).deserialize(&mut reader).map_err(wrong)?;
    reader.end().map_err(wrong)?;
    match node.value {
        Value::Table(entries) => Ok(entries),
        // It begins with a brace.
        other => Err(Problem::new(1, format!("a graph is an object, not {}", other.kind()))),
    }
}

/// A value of JSON, with its line.
#[derive(Clone, Copy)]
struct Place<'a>(&'a Rc<Cell<u32>>);

impl Place<'_> {
    fn node(self, value: Value) -> Node {
        Node { line: self.0.get(), value }
    }
}

impl<'de> DeserializeSeed<'de> for Place<'_> {
    type Value = Node;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Node, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Place<'_> {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Node, E> {
        Ok(self.node(Value::Text(text.to_owned())))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Node, E> {
        Ok(self.node(Value::Whole(number)))
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Node, E> {
        Ok(self.node(i64::try_from(number).map_or(Value::Other("a number that is too large"), Value::Whole)))
    }

    fn visit_f64<E: de::Error>(self, _: f64) -> Result<Node, E> {
        Ok(self.node(Value::Other("a number with decimals (write it as a text)")))
    }

    fn visit_bool<E: de::Error>(self, truth: bool) -> Result<Node, E> {
        Ok(self.node(Value::Truth(truth)))
    }

    fn visit_unit<E: de::Error>(self) -> Result<Node, E> {
        Ok(self.node(Value::Other("null")))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<Node, A::Error> {
        let line = self.0.get();
        let mut list = Vec::new();
        while let Some(one) = all.next_element_seed(self)? {
            list.push(one);
        }
        Ok(Node { line, value: Value::List(list) })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut all: A) -> Result<Node, A::Error> {
        let line = self.0.get();
        let mut table = Vec::new();
        while let Some(key) = all.next_key::<String>()? {
            let line = self.0.get();
            let node = all.next_value_seed(self)?;
            // A number is known by what stands behind it, which may be the end of its line.
            let node = Node { line: if matches!(node.value, Value::Whole(_)) { line } else { node.line }, ..node };
            table.push(Entry { line, key, node });
        }
        Ok(Node { line, value: Value::Table(table) })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    /// Every text and number with its line.
    fn lines(entries: &[Entry]) -> Vec<(String, u32)> {
        fn of(node: &Node, into: &mut Vec<(String, u32)>) {
            match &node.value {
                Value::Text(text) => into.push((text.clone(), node.line)),
                Value::Whole(number) => into.push((number.to_string(), node.line)),
                Value::List(list) => list.iter().for_each(|one| of(one, into)),
                Value::Table(entries) => entries.iter().for_each(|entry| {
                    into.push((entry.key.clone(), entry.line));
                    of(&entry.node, into);
                }),
                Value::Truth(_) | Value::Other(_) => {}
            }
        }
        let mut all = Vec::new();
        of(&Node { line: 1, value: Value::Table(entries.to_vec()) }, &mut all);
        all
    }

    fn named(list: &[(&str, u32)]) -> Vec<(String, u32)> {
        list.iter().map(|(text, line)| ((*text).to_owned(), *line)).collect()
    }

    #[test]
    fn toml_and_json_are_read_with_their_lines() {
        let toml = "# a graph\n[[step]]\nlabel = \"b\"\nmem = 5\n\n[[step]]\nafter = [\n  \"b\",\n  \"c\",\n]\n";
        let read_toml = lines(&read(toml.as_bytes()).unwrap());
        assert_eq!(
            read_toml,
            named(&[("step", 2), ("label", 3), ("b", 3), ("mem", 4), ("5", 4), ("after", 7), ("b", 8), ("c", 9)])
        );
        let json = "\n{\n\"step\": [\n {\"label\": \"b\", \"mem\": 5\n},\n {\"after\": [\n\"b\",\n\"c\"]}]}\n";
        let read_json = lines(&read(json.as_bytes()).unwrap());
        assert_eq!(
            read_json,
            named(&[("step", 3), ("label", 4), ("b", 4), ("mem", 4), ("5", 4), ("after", 6), ("b", 7), ("c", 8)])
        );
    }

    #[test]
    fn what_cannot_be_read_is_said_with_its_line() {
        let said = |text: &[u8]| read(text).unwrap_err();
        assert_eq!(said(b"a = 1\nb = \xff\n"), [Problem::new(2, "this is not UTF-8 text")]);
        let both: Vec<u32> = said(b"a = 1\nb = \nc = 2\nd = 'x\n").iter().map(|p| p.line).collect();
        assert_eq!(both, [2, 4]);
        let twice = said(b"a = 1\na = 2\n");
        assert_eq!((twice.len(), twice[0].line), (1, 2), "{twice:?}");
        assert_eq!(said(b"{\n\"a\": 1,\n}"), [Problem::new(3, "trailing comma")]);
        assert_eq!(said(b"{} {}")[0].line, 1);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[-a-z\\[\\]{}=\"'\\\\,.:#0-9\n ]{0,60}") {
            let _ = read(text.as_bytes());
        }
    }
}
