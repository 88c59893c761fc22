//! Values of one parameter, as `--each` has them: `1..100`, `0..1..0.25`, `001..100`, `small,large`, `@file`.

use std::borrow::Cow;

/// Most decimals of a number in a range.
const MOST_DECIMALS: usize = 9;

/// Values in their order. Ranges are kept as such.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Values {
    /// One by one.
    Listed(Vec<Box<[u8]>>),
    /// Words and ranges, each with the number of values up to its end.
    Written(Vec<(u64, Item)>),
}

/// What stands between two commas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// A value.
    Word(String),
    /// Several.
    Range(Range),
}

/// Numbers, in units of the last decimal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    start: i128,
    step: i128,
    count: u64,
    decimals: usize,
    width: usize,
}

/// Values that cannot be taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ValuesError {
    /// Nothing, or nothing between two commas.
    #[error("an empty value (values are separated by single commas)")]
    Empty,
    /// A file without lines.
    #[error("no value in it")]
    NoLine,
    /// A file with a zero byte.
    #[error("line {0}: a zero byte is in it")]
    Nul(usize),
    /// Not a range after all.
    #[error("\"{0}\" is no range: START..END or START..END..STEP, all numbers")]
    NoRange(String),
    /// It has no value.
    #[error("the range {0} is empty{1}")]
    EmptyRange(String, &'static str),
    /// Decimals without a step.
    #[error("the range {0} needs a step: {0}..0.1")]
    NoStep(String),
    /// Too large.
    #[error("the range {0} has numbers that are too large")]
    TooLarge(String),
}

/// A number as written: in units of the last decimal, and how it was written.
struct Number {
    scaled: i128,
    decimals: usize,
    width: usize,
    padded: bool,
}

fn number(text: &str) -> Option<Number> {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (whole, decimals) = unsigned.split_once('.').unwrap_or((unsigned, ""));
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    let dotted = unsigned.len() > whole.len();
    if whole.is_empty() || !digits(whole) || !digits(decimals) || (dotted && decimals.is_empty()) {
        return None;
    }
    let scaled: i128 = format!("{whole}{decimals}").parse().ok().filter(|_| decimals.len() <= MOST_DECIMALS)?;
    let scaled = if text.starts_with('-') { -scaled } else { scaled };
    let padded = whole.len() > 1 && whole.starts_with('0');
    Some(Number { scaled, decimals: decimals.len(), width: text.trim_start_matches('+').len(), padded })
}

/// Looks like the beginning of a number.
fn begins_a_number(text: &str) -> bool {
    text.trim_start_matches(['-', '+']).starts_with(|c: char| c.is_ascii_digit())
}

impl Range {
    /// A range, if the text is meant as one.
    fn parse(text: &str) -> Result<Option<Self>, ValuesError> {
        let Some((start, rest)) = text.split_once("..") else { return Ok(None) };
        if !begins_a_number(start) || !begins_a_number(rest) {
            return Ok(None);
        }
        let (end, step) = rest.split_once("..").map_or((rest, None), |(end, step)| (end, Some(step)));
        let no_range = || ValuesError::NoRange(text.to_owned());
        let too_large = || ValuesError::TooLarge(text.to_owned());
        let read = |text: &str| number(text).ok_or_else(no_range);
        let (start, end, by) = (read(start)?, read(end)?, step.map(read).transpose()?);
        if by.is_none() && start.decimals + end.decimals > 0 {
            return Err(ValuesError::NoStep(text.to_owned()));
        }
        let decimals = start.decimals.max(end.decimals).max(by.as_ref().map_or(0, |by| by.decimals));
        let scaled = |number: &Number| {
            let scale = 10i128.checked_pow((decimals - number.decimals) as u32)?;
            number.scaled.checked_mul(scale).filter(|n| n.abs() < 1 << 100)
        };
        let (first, last) = (scaled(&start).ok_or_else(too_large)?, scaled(&end).ok_or_else(too_large)?);
        let step = by.as_ref().map_or(Some(1), scaled).ok_or_else(too_large)?;
        let empty = |hint| Err(ValuesError::EmptyRange(text.to_owned(), hint));
        if step == 0 {
            return empty(": its step is 0");
        }
        if (step > 0 && last < first) || (step < 0 && last > first) {
            return empty(if by.is_none() { ": to count down, give it a step of -1" } else { "" });
        }
        let count = u64::try_from((last - first) / step + 1).map_err(|_| too_large())?;
        let padded = decimals == 0 && (start.padded || end.padded);
        let width = if padded { start.width.max(end.width) } else { 0 };
        Ok(Some(Self { start: first, step, count, decimals, width }))
    }

    fn value(&self, index: u64) -> String {
        let value = self.start + self.step * i128::from(index);
        if self.decimals == 0 {
            return format!("{value:0width$}", width = self.width);
        }
        let scale = 10u128.pow(self.decimals as u32);
        let (sign, size) = (if value < 0 { "-" } else { "" }, value.unsigned_abs());
        format!("{sign}{}.{:0decimals$}", size / scale, size % scale, decimals = self.decimals)
    }
}

impl Values {
    /// Values as written on the command line.
    pub fn parse(text: &str) -> Result<Self, ValuesError> {
        let mut items = Vec::new();
        let mut count = 0u64;
        for word in text.split(',') {
            if word.is_empty() {
                return Err(ValuesError::Empty);
            }
            let (more, item) = match Range::parse(word)? {
                Some(range) => (range.count, Item::Range(range)),
                None => (1, Item::Word(word.to_owned())),
            };
            count = count.checked_add(more).ok_or_else(|| ValuesError::TooLarge(text.to_owned()))?;
            items.push((count, item));
        }
        Ok(Self::Written(items))
    }

    /// The lines of a file; blank ones are passed over.
    pub fn of_lines(text: &[u8]) -> Result<Self, ValuesError> {
        let mut all = Vec::new();
        for (number, line) in (1..).zip(text.split(|b| *b == b'\n')) {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line.contains(&0) {
                return Err(ValuesError::Nul(number));
            }
            if !line.trim_ascii().is_empty() {
                all.push(line.into());
            }
        }
        if all.is_empty() { Err(ValuesError::NoLine) } else { Ok(Self::Listed(all)) }
    }

    /// How many: at least one.
    pub fn count(&self) -> u64 {
        match self {
            Self::Listed(all) => all.len() as u64,
            Self::Written(items) => items.last().map_or(0, |(count, _)| *count),
        }
    }

    /// One of them, counted from 0.
    pub fn get(&self, index: u64) -> Cow<'_, [u8]> {
        match self {
            Self::Listed(all) => all.get(index as usize).map_or(Cow::Borrowed(&[]), |value| Cow::Borrowed(value)),
            Self::Written(items) => {
                let at = items.partition_point(|(upto, _)| *upto <= index);
                let before = at.checked_sub(1).map_or(0, |before| items[before].0);
                match items.get(at) {
                    Some((_, Item::Word(word))) => Cow::Borrowed(word.as_bytes()),
                    Some((_, Item::Range(range))) => Cow::Owned(range.value(index - before).into_bytes()),
                    None => Cow::Borrowed(&[]),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn all(values: &Values) -> Vec<String> {
        (0..values.count()).map(|index| String::from_utf8(values.get(index).into_owned()).unwrap()).collect()
    }

    fn parsed(text: &str) -> Result<Vec<String>, String> {
        Values::parse(text).map(|values| all(&values)).map_err(|e| e.to_string())
    }

    #[test]
    fn ranges_and_words_are_values() {
        for (text, want) in [
            ("1..5", &["1", "2", "3", "4", "5"] as &[&str]),
            ("7..7", &["7"]),
            ("0..100..45", &["0", "45", "90"]),
            ("3..1..-1", &["3", "2", "1"]),
            ("-1..1", &["-1", "0", "1"]),
            ("098..101", &["098", "099", "100", "101"]),
            ("8..0010", &["0008", "0009", "0010"]),
            ("0..1..0.25", &["0.00", "0.25", "0.50", "0.75", "1.00"]),
            ("-0.1..0.1..0.1", &["-0.1", "0.0", "0.1"]),
            ("small,large", &["small", "large"]),
            ("1..3,10,20..22,x", &["1", "2", "3", "10", "20", "21", "22", "x"]),
            ("../a,b..c,1.5,a=b", &["../a", "b..c", "1.5", "a=b"]),
        ] {
            assert_eq!(parsed(text).unwrap(), want, "{text}");
        }
        let large = Values::parse("1..1000000000000").unwrap();
        assert_eq!((large.count(), large.get(999_999_999_999).as_ref()), (1_000_000_000_000, &b"1000000000000"[..]));
    }

    #[test]
    fn what_has_no_value_is_refused() {
        for (text, want) in [
            ("", "an empty value (values are separated by single commas)"),
            ("1,,2", "an empty value (values are separated by single commas)"),
            ("5..1", "the range 5..1 is empty: to count down, give it a step of -1"),
            ("1..5..-1", "the range 1..5..-1 is empty"),
            ("1..5..0", "the range 1..5..0 is empty: its step is 0"),
            ("1..5x", "\"1..5x\" is no range: START..END or START..END..STEP, all numbers"),
            ("1..5..2..3", "\"1..5..2..3\" is no range: START..END or START..END..STEP, all numbers"),
            ("0..0.5", "the range 0..0.5 needs a step: 0..0.5..0.1"),
        ] {
            assert_eq!(parsed(text).unwrap_err(), want, "{text}");
        }
        assert!(parsed(&format!("1..{}", u128::MAX)).unwrap_err().contains("no range"));
        assert!(parsed(&format!("1..{}", i128::MAX)).unwrap_err().contains("too large"));
    }

    #[test]
    fn lines_of_a_file_are_values_as_they_are() {
        let values = Values::of_lines(b"a b,c\n\n  x \r\n# y").unwrap();
        assert_eq!(all(&values), ["a b,c", "  x ", "# y"]);
        assert_eq!(Values::of_lines(b"\n \n"), Err(ValuesError::NoLine));
        assert_eq!(Values::of_lines(b"a\nb\0"), Err(ValuesError::Nul(2)));
    }

    proptest! {
        #[test]
        fn a_range_is_counted_as_the_shell_would(start in -50i64..50, end in -50i64..50, step in -9i64..9) {
            let want: Vec<String> = (0..200).map(|n| start + n * step)
                .take_while(|v| if step < 0 { *v >= end } else { *v <= end })
                .map(|v| v.to_string()).collect();
            let got = parsed(&format!("{start}..{end}..{step}"));
            if step == 0 || want.is_empty() {
                prop_assert!(got.is_err());
            } else {
                prop_assert_eq!(got.unwrap(), want);
            }
        }

        #[test]
        fn no_text_panics(text in "[-+0-9.,a@]{0,16}") {
            if let Ok(values) = Values::parse(&text) {
                let _ = (values.get(0), values.get(values.count()));
            }
        }
    }
}
