//! Text to runs of names: elements between commas or blanks, each with any number of bracket groups.

use super::{
    list::HostList,
    run::{MAX_DIGITS, Run},
};
use std::sync::Arc;

/// A text that stands for more names than this is refused: a mistyped range must not fill the memory.
pub const MAX_HOSTS: u64 = 1_000_000;

/// An element with more than one pair of brackets is spelled out but for the last pair (`a[1-3]b[2-4]`: three ranges). More
/// ranges than this in a text are refused: they take memory that the text does not show.
pub const MAX_SPELLED: u64 = 100_000;

/// Text that is no host list. Columns count from 1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostListError {
    /// `[` without `]`.
    #[error("host list \"{text}\": the bracket opened at column {column} is not closed")]
    Unclosed {
        /// The whole text.
        text: String,
        /// Where it opens.
        column: usize,
    },
    /// `]` without `[`.
    #[error("host list \"{text}\": nothing is open for the closing bracket at column {column}")]
    Unopened {
        /// The whole text.
        text: String,
        /// Where it is.
        column: usize,
    },
    /// `[` inside brackets.
    #[error("host list \"{text}\": a bracket inside brackets at column {column}")]
    Nested {
        /// The whole text.
        text: String,
        /// Where it is.
        column: usize,
    },
    /// Something between brackets that is no number and no range.
    #[error("host list \"{text}\": \"{part}\" at column {column} is neither a number nor a range")]
    NotARange {
        /// The whole text.
        text: String,
        /// What is there.
        part: String,
        /// Where it starts.
        column: usize,
    },
    /// `[5-3]`
    #[error("host list \"{text}\": the range \"{part}\" at column {column} runs backwards")]
    Backwards {
        /// The whole text.
        text: String,
        /// What is there.
        part: String,
        /// Where it starts.
        column: usize,
    },
    /// More than [`MAX_SPELLED`].
    #[error("host list \"{text}\": its pairs of brackets together make more than {MAX_SPELLED} ranges")]
    TooManyRanges {
        /// The whole text.
        text: String,
    },
    /// More than [`MAX_HOSTS`], or than the limit given.
    #[error("host list \"{text}\" stands for more than {limit} names")]
    TooMany {
        /// The whole text.
        text: String,
        /// The limit.
        limit: u64,
    },
}

/// A part of an element.
enum Segment<'a> {
    Literal(&'a str),
    Ranges(Vec<(u64, u64, usize)>),
}

pub(super) fn parse(text: &str, limit: u64) -> Result<HostList, HostListError> {
    let (mut list, mut spelled) = (HostList::new(), 0);
    for (start, element) in elements(text)? {
        let segments = segments(text, start, element)?;
        let too_many = || HostListError::TooMany { text: text.to_owned(), limit };
        let names = segments.iter().try_fold(1u64, |product, segment| match segment {
            Segment::Literal(_) => Some(product),
            Segment::Ranges(ranges) => {
                let sum = ranges.iter().try_fold(0u64, |sum, (first, last, _)| sum.checked_add(last - first + 1));
                product.checked_mul(sum?)
            }
        });
        if names.and_then(|n| n.checked_add(list.len())).is_none_or(|n| n > limit) {
            return Err(too_many());
        }
        spelled += ranges_spelled(&segments);
        if spelled > MAX_SPELLED {
            return Err(HostListError::TooManyRanges { text: text.to_owned() });
        }
        push_element(&mut list, element, &segments);
    }
    Ok(list)
}

/// How many ranges an element with several pairs of brackets becomes; its names are few enough to be counted.
fn ranges_spelled(segments: &[Segment<'_>]) -> u64 {
    let names = |ranges: &[(u64, u64, usize)]| ranges.iter().map(|(first, last, _)| last - first + 1).sum::<u64>();
    let mut pairs = segments.iter().rev().filter_map(|segment| match segment {
        Segment::Literal(_) => None,
        Segment::Ranges(ranges) => Some(ranges),
    });
    let in_last = pairs.next().map_or(0, |ranges| ranges.len() as u64);
    let before: Vec<u64> = pairs.map(|ranges| names(ranges)).collect();
    if before.is_empty() { 0 } else { before.iter().product::<u64>() * in_last }
}

/// Elements with their offsets. Commas and blanks separate outside brackets; empty elements are nothing.
fn elements(text: &str) -> Result<Vec<(usize, &str)>, HostListError> {
    let mut found = Vec::new();
    let mut start = 0;
    let mut open = None;
    for (at, c) in text.char_indices() {
        match c {
            '[' if open.is_some() => return Err(HostListError::Nested { text: text.to_owned(), column: at + 1 }),
            '[' => open = Some(at),
            ']' if open.is_none() => return Err(HostListError::Unopened { text: text.to_owned(), column: at + 1 }),
            ']' => open = None,
            ',' | ' ' | '\t' | '\n' | '\r' if open.is_none() => {
                if at > start {
                    found.push((start, &text[start..at]));
                }
                start = at + 1;
            }
            _ => {}
        }
    }
    if let Some(at) = open {
        return Err(HostListError::Unclosed { text: text.to_owned(), column: at + 1 });
    }
    if start < text.len() {
        found.push((start, &text[start..]));
    }
    Ok(found)
}

/// Splits an element with balanced brackets; `start` is its offset in the whole text.
fn segments<'a>(text: &str, start: usize, element: &'a str) -> Result<Vec<Segment<'a>>, HostListError> {
    let mut segments = Vec::new();
    let mut rest = element;
    let mut at = start;
    while let Some((literal, after)) = rest.split_once('[') {
        let (inside, after) = after.split_once(']').unwrap_or((after, ""));
        if !literal.is_empty() {
            segments.push(Segment::Literal(literal));
        }
        at += literal.len() + 1;
        let mut ranges = Vec::new();
        for part in inside.split(',') {
            ranges.push(range(text, at, part)?);
            at += part.len() + 1;
        }
        segments.push(Segment::Ranges(ranges));
        rest = after;
    }
    if !rest.is_empty() {
        segments.push(Segment::Literal(rest));
    }
    Ok(segments)
}

/// `7`, `0003-0005`: first, last, and the width of the first as written.
fn range(text: &str, at: usize, part: &str) -> Result<(u64, u64, usize), HostListError> {
    let column = at + 1;
    let number = |figures: &str| -> Option<u64> {
        let plain = !figures.is_empty() && figures.len() <= MAX_DIGITS && figures.bytes().all(|b| b.is_ascii_digit());
        if plain { figures.parse().ok() } else { None }
    };
    let (first, last) = part.split_once('-').unwrap_or((part, part));
    match (number(first), number(last)) {
        (Some(a), Some(b)) if a <= b => Ok((a, b, first.len())),
        (Some(_), Some(_)) => Err(HostListError::Backwards { text: text.to_owned(), part: part.to_owned(), column }),
        _ => Err(HostListError::NotARange { text: text.to_owned(), part: part.to_owned(), column }),
    }
}

/// The last bracket group stays a run; those before it are spelled out.
fn push_element(list: &mut HostList, element: &str, segments: &[Segment<'_>]) {
    let Some(last) = segments.iter().rposition(|s| matches!(s, Segment::Ranges(_))) else {
        list.push_run(Run::of_name(element));
        return;
    };
    let suffix: Arc<str> = match segments.get(last + 1) {
        Some(Segment::Literal(text)) => Arc::from(*text),
        _ => Arc::from(""),
    };
    let mut prefixes = vec![String::new()];
    for segment in &segments[..last] {
        match segment {
            Segment::Literal(text) => prefixes.iter_mut().for_each(|p| p.push_str(text)),
            Segment::Ranges(ranges) => {
                let mut longer = Vec::new();
                for prefix in &prefixes {
                    for &(first, last, width) in ranges {
                        longer.extend((first..=last).map(|n| format!("{prefix}{n:0width$}")));
                    }
                }
                prefixes = longer;
            }
        }
    }
    let Segment::Ranges(ranges) = &segments[last] else { return };
    for prefix in prefixes {
        let prefix: Arc<str> = Arc::from(prefix);
        for &(first, last, width) in ranges {
            list.push_run(Run::new(prefix.clone(), suffix.clone(), first, last, width));
        }
    }
}
