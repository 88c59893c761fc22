//! `srun --multi-prog`: a file whose lines name tasks and the program that they run.
//!
//! ```text
//! # tasks   program and arguments
//! 4-6       hostname
//! 1,7       echo task:%t
//! 0,2-3     echo "offset %o"
//! *         true
//! ```

use garrick_model::spec::MultiProg;
use serde_bytes::ByteBuf;

/// A file that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MultiProgError {
    /// Tasks are not ranks, ranges of them, or `*`.
    #[error("Invalid task range specification ({text})")]
    Tasks {
        /// Line.
        line: usize,
        /// The word.
        text: String,
    },
    /// There is no program on a line.
    #[error("no program")]
    NoProgram {
        /// Line.
        line: usize,
    },
    /// A quote is never closed.
    #[error("quote {quote} is never closed")]
    OpenQuote {
        /// Line.
        line: usize,
        /// Quote.
        quote: char,
    },
    /// A task is named twice.
    #[error("Duplicate record for task {rank}")]
    Twice {
        /// Line of the second one.
        line: usize,
        /// Rank.
        rank: u32,
    },
    /// A task has no program.
    #[error("no record for task id {rank}")]
    Missing {
        /// Rank.
        rank: u32,
    },
    /// A task beyond the step's.
    #[error("task id {rank} is not below the number of tasks, {tasks}")]
    Beyond {
        /// Rank.
        rank: u32,
        /// Tasks.
        tasks: u32,
    },
    /// Nothing in it.
    #[error("no record for task id 0")]
    Empty,
}

impl MultiProgError {
    /// What `srun` says of it, in lines.
    pub fn lines(&self, file: &str) -> Vec<String> {
        let place = |line: &usize| format!("Line {line} of configuration file {file} invalid");
        match self {
            Self::NoProgram { line } => vec![place(line)],
            Self::Tasks { line, .. } | Self::OpenQuote { line, .. } | Self::Twice { line, .. } => {
                vec![self.to_string(), place(line)]
            }
            Self::Missing { .. } | Self::Beyond { .. } | Self::Empty => {
                vec![format!("Configuration file {file} invalid, {self}")]
            }
        }
    }
}

/// Reads a file's text.
pub fn parse(text: &str) -> Result<Vec<MultiProg>, MultiProgError> {
    let mut programs: Vec<MultiProg> = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((index, line)) = lines.next() {
        let number = index + 1;
        let mut whole = line.trim().to_owned();
        if whole.is_empty() || whole.starts_with('#') {
            continue;
        }
        // A backslash at its end continues a line.
        while whole.ends_with('\\') {
            whole.pop();
            whole.push_str(lines.next().map_or("", |(_, next)| next.trim()));
        }
        let mut words = words(&whole).map_err(|quote| MultiProgError::OpenQuote { line: number, quote })?.into_iter();
        let tasks = words.next().unwrap_or_default();
        let argv: Vec<ByteBuf> = words.map(|w| ByteBuf::from(w.into_bytes())).collect();
        if argv.is_empty() {
            return Err(MultiProgError::NoProgram { line: number });
        }
        let tasks = match tasks.as_str() {
            "*" => Vec::new(),
            list => ranges(list).ok_or(MultiProgError::Tasks { line: number, text: tasks.clone() })?,
        };
        if let Some(rank) = tasks.iter().find_map(|range| named_before(&programs, *range)) {
            return Err(MultiProgError::Twice { line: number, rank });
        }
        programs.push(MultiProg { tasks, argv });
    }
    if programs.is_empty() { Err(MultiProgError::Empty) } else { Ok(programs) }
}

/// The first of these ranks that has a program already.
fn named_before(programs: &[MultiProg], (first, last): (u32, u32)) -> Option<u32> {
    let known = programs.iter().flat_map(|p| &p.tasks).filter(|(from, to)| first <= *to && *from <= last);
    known.map(|(from, _)| first.max(*from)).min()
}

/// Number of tasks that the programs are for, when that is known from them.
pub fn task_count(programs: &[MultiProg]) -> Option<u32> {
    if programs.iter().any(|p| p.tasks.is_empty()) {
        return None;
    }
    programs.iter().flat_map(|p| &p.tasks).map(|(_, last)| last.saturating_add(1)).max()
}

/// Checks that each of `tasks` tasks has a program.
pub fn check(programs: &[MultiProg], tasks: u32) -> Result<(), MultiProgError> {
    let mut ranges: Vec<(u32, u32)> = programs.iter().flat_map(|p| p.tasks.iter().copied()).collect();
    ranges.sort_unstable();
    let others = programs.iter().any(|p| p.tasks.is_empty());
    let mut next = 0u32;
    for (first, last) in ranges {
        if first > next && !others {
            return Err(MultiProgError::Missing { rank: next });
        }
        if last >= tasks {
            return Err(MultiProgError::Beyond { rank: last.max(first), tasks });
        }
        next = last + 1;
    }
    if next < tasks && !others { Err(MultiProgError::Missing { rank: next }) } else { Ok(()) }
}

fn ranges(text: &str) -> Option<Vec<(u32, u32)>> {
    text.split(',')
        .map(|part| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (first.parse().ok()?, last.parse().ok()?);
            (first <= last).then_some((first, last))
        })
        .collect()
}

fn words(line: &str) -> Result<Vec<String>, char> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match c {
            c if c.is_whitespace() => words.extend(word.take()),
            '\\' => word.get_or_insert_default().extend(chars.next()),
            quote @ ('"' | '\'') => {
                let word = word.get_or_insert_default();
                loop {
                    match chars.next() {
                        None => return Err(quote),
                        Some(c) if c == quote => break,
                        Some(c) => word.push(c),
                    }
                }
            }
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Tasks and words of a line.
    type Shown = (Vec<(u32, u32)>, Vec<String>);

    fn shown(text: &str) -> Vec<Shown> {
        parse(text)
            .unwrap()
            .into_iter()
            .map(|p| (p.tasks, p.argv.into_iter().map(|a| String::from_utf8(a.into_vec()).unwrap()).collect()))
            .collect()
    }

    #[test]
    fn lines_name_tasks_and_programs() {
        let text = "# comment\n4-6  hostname\n1,7 echo task:%t\n\n0,2-3 echo \"offset %o\" \\\n  again\n";
        assert_eq!(
            shown(text),
            [
                (vec![(4, 6)], vec!["hostname".to_owned()]),
                (vec![(1, 1), (7, 7)], vec!["echo".to_owned(), "task:%t".to_owned()]),
                (vec![(0, 0), (2, 3)], vec!["echo".to_owned(), "offset %o".to_owned(), "again".to_owned()]),
            ]
        );
        assert_eq!(task_count(&parse(text).unwrap()), Some(8));
        assert_eq!(check(&parse(text).unwrap(), 8), Ok(()));
    }

    #[test]
    fn a_star_takes_all_others() {
        let programs = parse("0 master\n* worker %t\n").unwrap();
        assert_eq!((task_count(&programs), check(&programs, 5)), (None, Ok(())));
    }

    #[test]
    fn gaps_repeats_and_strangers_are_refused() {
        let checked = |text: &str, tasks| check(&parse(text).unwrap(), tasks).unwrap_err();
        assert_eq!(checked("0 a\n2 b\n", 3), MultiProgError::Missing { rank: 1 });
        assert_eq!(parse("0-1 a\n2 c\n1-3 b\n").unwrap_err(), MultiProgError::Twice { line: 3, rank: 1 });
        assert_eq!(checked("0-5 a\n", 4), MultiProgError::Beyond { rank: 5, tasks: 4 });
        assert_eq!(checked("0 a\n", 2), MultiProgError::Missing { rank: 1 });
    }

    #[test]
    fn malformed_lines_are_named() {
        assert_eq!(parse("x hostname\n").unwrap_err(), MultiProgError::Tasks { line: 1, text: "x".to_owned() });
        assert_eq!(parse("\n3-1 hostname\n").unwrap_err(), MultiProgError::Tasks { line: 2, text: "3-1".to_owned() });
        assert_eq!(parse("0\n").unwrap_err(), MultiProgError::NoProgram { line: 1 });
        assert_eq!(parse("0 'x\n").unwrap_err(), MultiProgError::OpenQuote { line: 1, quote: '\'' });
        assert_eq!(parse("# nothing\n").unwrap_err(), MultiProgError::Empty);
        let lines = parse("x hostname\n").unwrap_err().lines("m");
        assert_eq!(lines, ["Invalid task range specification (x)", "Line 1 of configuration file m invalid"]);
        assert_eq!(MultiProgError::Empty.lines("m"), ["Configuration file m invalid, no record for task id 0"]);
    }
}
