//! Parameters of many steps that are made from one command, `--each` and `--each-csv`, and their combinations: all with all, or
//! side by side. Combinations are counted, not stored.

use super::{
    template::{Names, is_name},
    values::{Values, ValuesError},
};
use crate::options::minibatch::EachOption;
use std::{
    borrow::Cow,
    ffi::OsStr,
    io::{self, Read},
    os::unix::ffi::OsStrExt as _,
    path::Path,
};

/// Parameters that cannot be taken.
#[derive(Debug, thiserror::Error)]
pub enum ParameterError {
    /// Something before the `=` that is no name.
    #[error("--each={text}: \"{name}\" is no name for a parameter (letters, digits, _ and -, a letter first)")]
    Name {
        /// As typed.
        text: String,
        /// Of it, what stands for the name.
        name: String,
    },
    /// Values that make no sense.
    #[error("--each={text}: {cause}")]
    Values {
        /// As typed.
        text: String,
        /// Why.
        cause: ValuesError,
    },
    /// Two with one name.
    #[error("two parameters are named {0}")]
    Twice(String),
    /// A file that cannot be read.
    #[error("Unable to read {file}: {cause}")]
    Read {
        /// Which.
        file: String,
        /// Why.
        cause: io::Error,
    },
    /// A table that is none.
    #[error("{file}:{line}: {detail}")]
    Table {
        /// Which.
        file: String,
        /// Line, from 1.
        line: u32,
        /// What is wrong.
        detail: String,
    },
    /// Side by side, but not equally many.
    #[error("--zip needs equally many values: {0} has {1}, {2} has {3}")]
    Unequal(String, u64, String, u64),
    /// More than steps can be numbered.
    #[error("{0} combinations are more than a job can number")]
    TooMany(u128),
}

/// What varies together.
#[derive(Clone, Debug)]
enum Dimension {
    One(Values),
    /// Rows of a table.
    Table(Table),
}

/// A table, the names of its columns apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Table {
    columns: usize,
    rows: Vec<csv::ByteRecord>,
    /// The line that each begins in, from 1.
    lines: Vec<u32>,
}

impl Dimension {
    fn count(&self) -> u64 {
        match self {
            Self::One(values) => values.count(),
            Self::Table(table) => table.rows.len() as u64,
        }
    }

    const fn parameters(&self) -> usize {
        match self {
            Self::One(_) => 1,
            Self::Table(table) => table.columns,
        }
    }
}

/// All parameters.
#[derive(Clone, Debug)]
pub struct Parameters {
    names: Names,
    dimensions: Vec<Dimension>,
    /// By parameter: its dimension, and its column there.
    places: Vec<(usize, usize)>,
    zip: bool,
    count: u64,
}

fn of_file(file: &OsStr) -> Result<Vec<u8>, ParameterError> {
    let mut text = Vec::new();
    let read = match file.as_bytes() {
        b"-" => io::stdin().read_to_end(&mut text).map(|_| text),
        _ => std::fs::read(Path::new(file)),
    };
    read.map_err(|cause| ParameterError::Read { file: file.to_string_lossy().into_owned(), cause })
}

/// The names in the first line of a table, and the rest of it.
fn table(file: &str, text: &[u8]) -> Result<(Vec<String>, Table), ParameterError> {
    let wrong = |line: u32, detail: String| ParameterError::Table { file: file.to_owned(), line, detail };
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(text);
    let head = reader.headers().map_err(|error| wrong(1, error.to_string()))?;
    let head: Vec<String> = head.iter().map(|name| name.trim().to_owned()).collect();
    if head.iter().all(String::is_empty) {
        return Err(wrong(1, "the first line is to name the columns".to_owned()));
    }
    let mut table = Table { columns: head.len(), ..Table::default() };
    let (mut line, mut counted) = (1, 0);
    for row in reader.into_byte_records() {
        let row = row.map_err(|error| wrong(line, error.to_string()))?;
        // Where the reader is may be before line ends that it passes over.
        let begin = row.position().map_or(0, |at| at.byte() as usize).clamp(counted, text.len());
        let begin = begin + text[begin..].iter().take_while(|b| matches!(b, b'\r' | b'\n')).count();
        line += text[counted..begin].iter().filter(|b| **b == b'\n').count() as u32;
        counted = begin;
        if row.len() != head.len() {
            return Err(wrong(line, format!("{} fields, and the first line names {}", row.len(), head.len())));
        }
        if row.iter().any(|field| field.contains(&0)) {
            return Err(wrong(line, "a zero byte is in it".to_owned()));
        }
        table.rows.push(row);
        table.lines.push(line);
    }
    if table.rows.is_empty() {
        return Err(wrong(1, "no line follows the names of the columns".to_owned()));
    }
    Ok((head, table))
}

impl Parameters {
    /// Takes what was asked for, in its order. `zip`: side by side.
    pub fn new(options: &[EachOption], zip: bool) -> Result<Self, ParameterError> {
        let mut all = Self { names: Names::default(), dimensions: Vec::new(), places: Vec::new(), zip, count: 0 };
        for option in options {
            match option {
                EachOption::Values(text) => all.add_values(text)?,
                EachOption::Csv(file) => {
                    let (head, table) = table(&file.to_string_lossy(), &of_file(file)?)?;
                    for name in &head {
                        all.add_name(Some(name.as_str()).filter(|name| !name.is_empty()))?;
                    }
                    all.add(Dimension::Table(table));
                }
            }
        }
        all.count = all.combinations()?;
        Ok(all)
    }

    fn add_values(&mut self, text: &str) -> Result<(), ParameterError> {
        let (name, written) = match text.split_once('=') {
            Some((name, written)) if !text.starts_with('@') => (Some(name), written),
            _ => (None, text),
        };
        if let Some(name) = name.filter(|name| !is_name(name)) {
            return Err(ParameterError::Name { text: text.to_owned(), name: name.to_owned() });
        }
        let values = match written.strip_prefix('@').filter(|file| !file.is_empty()) {
            Some(file) => Values::of_lines(&of_file(OsStr::new(file))?),
            None => Values::parse(written),
        };
        let values = values.map_err(|cause| ParameterError::Values { text: text.to_owned(), cause })?;
        self.add_name(name)?;
        self.add(Dimension::One(values));
        Ok(())
    }

    fn add_name(&mut self, name: Option<&str>) -> Result<(), ParameterError> {
        self.names.add(name).map_err(|_| ParameterError::Twice(name.unwrap_or_default().to_owned()))
    }

    fn add(&mut self, dimension: Dimension) {
        let at = self.dimensions.len();
        self.places.extend((0..dimension.parameters()).map(|column| (at, column)));
        self.dimensions.push(dimension);
    }

    fn combinations(&self) -> Result<u64, ParameterError> {
        let counts = || self.dimensions.iter().map(Dimension::count);
        let shown = |at: usize| {
            let first = self.places.iter().position(|(dimension, _)| *dimension == at).unwrap_or(0);
            self.names.shown(first)
        };
        if self.zip {
            let first = counts().next().unwrap_or(0);
            return match counts().position(|count| count != first) {
                Some(at) => Err(ParameterError::Unequal(shown(0), first, shown(at), self.dimensions[at].count())),
                None => Ok(first),
            };
        }
        let all = counts().fold(1u128, |all, count| all.saturating_mul(u128::from(count)));
        if all > u128::from(u32::MAX) { Err(ParameterError::TooMany(all)) } else { Ok(all as u64) }
    }

    /// Their names.
    pub const fn names(&self) -> &Names {
        &self.names
    }

    /// How many combinations there are.
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Is any of the parameters that vary together with this one among those that are used?
    pub fn is_any_used(&self, parameter: usize, used: &[bool]) -> bool {
        let of = |at: usize| self.places.get(at).map(|(dimension, _)| *dimension);
        used.iter().enumerate().any(|(at, used)| *used && of(at) == of(parameter))
    }

    /// Which value of each dimension a combination has: the last varies fastest.
    fn picked(&self, combination: u64) -> Vec<u64> {
        let mut left = combination;
        let mut picked: Vec<u64> = vec![combination; self.dimensions.len()];
        if !self.zip {
            for (at, dimension) in self.dimensions.iter().enumerate().rev() {
                picked[at] = left % dimension.count().max(1);
                left /= dimension.count().max(1);
            }
        }
        picked
    }

    /// The values of all parameters in a combination, counted from 0.
    pub fn values(&self, combination: u64) -> Vec<Cow<'_, [u8]>> {
        let picked = self.picked(combination);
        let value = |(dimension, column): &(usize, usize)| match &self.dimensions[*dimension] {
            Dimension::One(values) => values.get(picked[*dimension]),
            Dimension::Table(table) => {
                let row = table.rows.get(picked[*dimension] as usize);
                Cow::Borrowed(row.and_then(|row| row.get(*column)).unwrap_or_default())
            }
        };
        self.places.iter().map(value).collect()
    }

    /// The line of the table that a combination has its values from.
    pub fn line(&self, combination: u64) -> Option<u32> {
        let picked = self.picked(combination);
        self.dimensions.iter().zip(picked).find_map(|(dimension, row)| match dimension {
            Dimension::Table(table) => table.lines.get(row as usize).copied(),
            Dimension::One(_) => None,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn made(each: &[&str], zip: bool) -> Result<Parameters, String> {
        let options: Vec<EachOption> = each.iter().map(|text| EachOption::Values((*text).to_owned())).collect();
        Parameters::new(&options, zip).map_err(|e| e.to_string())
    }

    fn all(parameters: &Parameters) -> Vec<String> {
        let shown = |combination| {
            let values: Vec<String> =
                parameters.values(combination).iter().map(|v| String::from_utf8_lossy(v).into_owned()).collect();
            values.join(" ")
        };
        (0..parameters.count()).map(shown).collect()
    }

    #[test]
    fn all_are_combined_with_all_and_the_last_varies_fastest() {
        let parameters = made(&["a=1..2", "x,y,z"], false).unwrap();
        assert_eq!(all(&parameters), ["1 x", "1 y", "1 z", "2 x", "2 y", "2 z"]);
        assert_eq!((parameters.names().shown(0), parameters.names().shown(1)), ("a".to_owned(), "2".to_owned()));
        assert_eq!(parameters.line(0), None);
    }

    #[test]
    fn side_by_side_they_have_to_be_equally_many() {
        assert_eq!(all(&made(&["a=1..3", "b=x,y,z"], true).unwrap()), ["1 x", "2 y", "3 z"]);
        let unequal = "--zip needs equally many values: a has 3, b has 2";
        assert_eq!(made(&["a=1..3", "c=4..6", "b=x,y"], true).unwrap_err(), unequal);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (each, want) in [
            (&["a=1..3", "a=1..2"] as &[&str], "two parameters are named a"),
            (&["1a=x"], "--each=1a=x: \"1a\" is no name for a parameter (letters, digits, _ and -, a letter first)"),
            (&["=x"], "--each==x: \"\" is no name for a parameter (letters, digits, _ and -, a letter first)"),
            (&["a="], "--each=a=: an empty value (values are separated by single commas)"),
            (&["a=2..1"], "--each=a=2..1: the range 2..1 is empty: to count down, give it a step of -1"),
            (&["a=1..100000", "b=1..100000"], "10000000000 combinations are more than a job can number"),
            (&["a=@/nosuch/x"], "Unable to read /nosuch/x: No such file or directory (os error 2)"),
        ] {
            assert_eq!(made(each, false).unwrap_err(), want);
        }
    }

    fn read(text: &str) -> Result<Vec<(Vec<String>, u32)>, String> {
        let (head, table) = table("t.csv", text.as_bytes()).map_err(|e| e.to_string())?;
        let fields = |row: &csv::ByteRecord| row.iter().map(|f| String::from_utf8(f.to_vec()).unwrap()).collect();
        let rows = table.rows.iter().map(fields).zip(table.lines);
        Ok(std::iter::once((head, 1)).chain(rows).collect())
    }

    #[test]
    fn a_table_is_read_with_its_quotes_and_lines() {
        let owned = |fields: &[&str]| fields.iter().map(|f| (*f).to_owned()).collect::<Vec<_>>();
        let text = "\u{feff}seed, my size \r\n1,\"a,b\"\r\n\r\n2,\"two\nlines \"\"x\"\"\"\n3,\n";
        let want = [
            (owned(&["seed", "my size"]), 1),
            (owned(&["1", "a,b"]), 2),
            (owned(&["2", "two\nlines \"x\""]), 4),
            (owned(&["3", ""]), 6),
        ];
        assert_eq!(read(text).unwrap(), want);
    }

    #[test]
    fn a_table_that_is_none_is_refused_with_the_line() {
        for (text, want) in [
            ("", "t.csv:1: the first line is to name the columns"),
            ("a,b\n", "t.csv:1: no line follows the names of the columns"),
            ("a,b\n1,2\n1,2,3\n", "t.csv:3: 3 fields, and the first line names 2"),
            ("a,b\n1,\0\n", "t.csv:2: a zero byte is in it"),
        ] {
            assert_eq!(read(text).unwrap_err(), want);
        }
    }
}
