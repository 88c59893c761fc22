//! Labels of a list's lines, `--label`, and lines that wait for them, `--dependency=afterok:@prepare`. A label stands for the
//! step numbers of the earlier lines that have it: a line that names a label whose lines are not submitted yet goes into the next
//! request.

use garrick_model::batch::GivenNumbers;
use std::collections::BTreeMap;

/// What is known of the lines with one label.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Labelled {
    /// Numbers, as inclusive ranges.
    numbers: Vec<(u32, u32)>,
    /// Some of them are in the request in the making.
    gathered: bool,
    /// A line that is not a step.
    missing: Option<u64>,
}

/// Labels of the lines so far.
#[derive(Debug, Default)]
pub struct Labels {
    all: BTreeMap<String, Labelled>,
    /// By place in the request in the making.
    gathered: Vec<(u32, String)>,
}

/// What became of a text that names labels.
#[derive(Debug, PartialEq, Eq)]
pub enum Resolved {
    /// With numbers in their places.
    Text(String),
    /// Known when the request in the making is answered.
    Later,
}

/// A label that no line can wait for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LabelError {
    /// No line has it, or none so far.
    #[error("no line before this one is labelled \"{0}\"")]
    Unknown(String),
    /// A line of it was not accepted.
    #[error("line {1}, which is labelled \"{0}\", is not a step")]
    Missing(String, u64),
    /// Not a name.
    #[error("\"{0}\" is no label (letters, digits, _ and -)")]
    Invalid(String),
}

const fn of_label(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')
}

/// The label of a part of the steps that have this one. Users cannot write it.
pub fn of_part(label: &str, part: usize) -> String {
    format!("{label}.{part}")
}

/// Is this a label?
pub fn check(label: &str) -> Result<(), LabelError> {
    let good = !label.is_empty() && label.bytes().all(of_label);
    if good { Ok(()) } else { Err(LabelError::Invalid(label.to_owned())) }
}

impl Labels {
    /// The line at this place of the request in the making has a label.
    pub fn gather(&mut self, place: u32, label: &str) {
        self.all.entry(label.to_owned()).or_default().gathered = true;
        self.gathered.push((place, label.to_owned()));
    }

    /// A line with a label is not a step.
    pub fn miss(&mut self, line: u64, label: &str) {
        self.all.entry(label.to_owned()).or_default().missing.get_or_insert(line);
    }

    /// The request was answered. `declined`: places that were not accepted, in their order; `lines`: by place.
    pub fn answered(&mut self, given: Option<GivenNumbers>, declined: &[u32], lines: &[u64]) {
        for (place, label) in std::mem::take(&mut self.gathered) {
            let labelled = self.all.entry(label).or_default();
            labelled.gathered = false;
            let before = declined.partition_point(|other| *other < place);
            match given.filter(|_| declined.get(before) != Some(&place)) {
                Some(given) => {
                    let number = given.first + place - before as u32;
                    match labelled.numbers.last_mut() {
                        Some((_, last)) if *last + 1 == number => *last = number,
                        _ => labelled.numbers.push((number, number)),
                    }
                }
                None => {
                    labelled.missing = labelled.missing.or_else(|| lines.get(place as usize).copied());
                }
            }
        }
    }

    /// Numbers of the steps that have a label, as inclusive ranges.
    pub fn numbers(&self, label: &str) -> &[(u32, u32)] {
        self.all.get(label).map_or(&[], |labelled| &labelled.numbers)
    }

    /// A dependency with numbers in place of its `@labels`.
    pub fn resolve(&self, text: &str) -> Result<Resolved, LabelError> {
        let mut resolved = String::new();
        let mut rest = text;
        while let Some((before, behind)) = rest.split_once('@') {
            let end = behind.bytes().position(|b| !of_label(b) && b != b'.').unwrap_or(behind.len());
            let (label, after) = behind.split_at(end);
            check(label.split('.').next().unwrap_or_default())?;
            let labelled = self.all.get(label).ok_or_else(|| LabelError::Unknown(label.to_owned()))?;
            if let Some(line) = labelled.missing {
                return Err(LabelError::Missing(label.to_owned(), line));
            }
            if labelled.gathered {
                return Ok(Resolved::Later);
            }
            let range = |(first, last): &(u32, u32)| match first == last {
                true => first.to_string(),
                false => format!("{first}-{last}"),
            };
            let ranges: Vec<String> = labelled.numbers.iter().map(range).collect();
            resolved.push_str(before);
            resolved.push_str(&format!("[{}]", ranges.join(",")));
            rest = after;
        }
        resolved.push_str(rest);
        Ok(Resolved::Text(resolved))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn given(first: u32, count: u32) -> Option<GivenNumbers> {
        Some(GivenNumbers { first, count, array: false })
    }

    #[test]
    fn a_label_is_the_numbers_of_all_lines_before_that_have_it() {
        let mut labels = Labels::default();
        for (place, label) in [(0, "a"), (1, "a"), (3, "b"), (4, "a")] {
            labels.gather(place, label);
        }
        assert_eq!(labels.resolve("afterok:@a"), Ok(Resolved::Later));
        labels.answered(given(10, 5), &[], &[1, 2, 3, 4, 5]);
        let text = |text: &str| Ok(Resolved::Text(text.to_owned()));
        assert_eq!(labels.resolve("afterok:@a,after:3"), text("afterok:[10-11,14],after:3"));
        assert_eq!(labels.resolve("afterok:@b?afterany:@a:7"), text("afterok:[13]?afterany:[10-11,14]:7"));
        assert_eq!(labels.resolve("after:3"), text("after:3"));
        labels.gather(0, "b");
        assert_eq!(labels.resolve("afterok:@b"), Ok(Resolved::Later));
        labels.answered(given(20, 1), &[], &[9]);
        assert_eq!(labels.resolve("afterok:@b"), text("afterok:[13,20]"));
    }

    #[test]
    fn declined_lines_have_no_number_and_nobody_waits_for_them() {
        let mut labels = Labels::default();
        for (place, label) in [(0, "a"), (1, "b"), (2, "c")] {
            labels.gather(place, label);
        }
        labels.answered(given(10, 2), &[1], &[4, 5, 6]);
        assert_eq!(labels.resolve("after:@c"), Ok(Resolved::Text("after:[11]".to_owned())));
        assert_eq!(labels.resolve("after:@b"), Err(LabelError::Missing("b".to_owned(), 5)));
        labels.miss(7, "d");
        assert_eq!(labels.resolve("after:@d"), Err(LabelError::Missing("d".to_owned(), 7)));
    }

    #[test]
    fn what_no_line_before_has_is_refused() {
        let labels = Labels::default();
        assert_eq!(labels.resolve("after:@x"), Err(LabelError::Unknown("x".to_owned())));
        assert_eq!(labels.resolve("after:@"), Err(LabelError::Invalid(String::new())));
        assert!(check("a-1_b").is_ok() && check("a b").is_err() && check("").is_err());
    }
}
