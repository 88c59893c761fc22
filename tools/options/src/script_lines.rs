//! `#SBATCH` lines of a batch script, and the `#SRUN` lines that only `srun --batch` reads. They count until the first line
//! that is neither blank nor a comment; each must begin with exactly `#SBATCH` (`#SRUN`). Words are separated by blanks; quotes keep blanks together, a backslash keeps the next
//! character, and `#` outside quotes starts a comment. A line is not continued on the next one.

use std::{ffi::OsString, os::unix::ffi::OsStringExt};

/// What marks a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// `#SBATCH`: options of `sbatch`.
    Sbatch,
    /// `#SRUN`: options of `srun`.
    Srun,
}

/// The marks that `sbatch` looks for.
pub const OF_SBATCH: &[Mark] = &[Mark::Sbatch];
/// The marks that `srun --batch` looks for.
pub const OF_SRUN: &[Mark] = &[Mark::Sbatch, Mark::Srun];

impl Mark {
    const fn text(self) -> &'static [u8] {
        match self {
            Self::Sbatch => b"#SBATCH",
            Self::Srun => b"#SRUN",
        }
    }
}

/// Options of one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptLine {
    /// Counted from 1.
    pub number: usize,
    /// Whose options they are.
    pub mark: Mark,
    /// Its words after the mark.
    pub words: Vec<OsString>,
}

/// What the head of a script says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScriptHead {
    /// Its option lines; of a heterogeneous job, those of the first component.
    pub lines: Vec<ScriptLine>,
    /// Those of the other components, after a line `hetjob` each.
    pub others: Vec<Vec<ScriptLine>>,
    /// It has `#PBS` lines, which are not read.
    pub has_pbs: bool,
}

/// A line that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScriptLineError {
    /// A quote is opened and never closed.
    #[error("line {number}: quote {quote} is never closed")]
    OpenQuote {
        /// Line.
        number: usize,
        /// Which quote.
        quote: char,
    },
}

/// Reads the head of a script, for lines with one of these marks.
pub fn read(script: &[u8], marks: &[Mark]) -> Result<ScriptHead, ScriptLineError> {
    let mut head = ScriptHead::default();
    for (index, line) in script.split(|b| *b == b'\n').enumerate() {
        let number = index + 1;
        let blank = line.trim_ascii_start();
        match marks.iter().find_map(|mark| Some((*mark, line.strip_prefix(mark.text())?))) {
            Some((mark, text)) if text.first().is_none_or(u8::is_ascii_whitespace) => {
                let words = words(text).map_err(|quote| ScriptLineError::OpenQuote { number, quote })?;
                if words.first().is_some_and(|w| w == "hetjob" || w == "packjob") {
                    head.others.push(Vec::new());
                } else if !words.is_empty() {
                    head.others.last_mut().unwrap_or(&mut head.lines).push(ScriptLine { number, mark, words });
                }
            }
            _ if line.starts_with(b"#PBS ") => head.has_pbs = true,
            _ if blank.is_empty() || blank[0] == b'#' => {}
            _ => break,
        }
    }
    Ok(head)
}

/// Words of a line, or the quote that is never closed.
fn words(text: &[u8]) -> Result<Vec<OsString>, char> {
    let mut words = Vec::new();
    let mut word: Option<Vec<u8>> = None;
    let mut bytes = text.iter().copied();
    while let Some(byte) = bytes.next() {
        match byte {
            b'#' => break,
            b' ' | b'\t' | b'\r' => words.extend(word.take().map(OsString::from_vec)),
            // At the end of the line it keeps nothing.
            b'\\' => match bytes.next() {
                Some(next) => word.get_or_insert_default().push(next),
                None => break,
            },
            quote @ (b'"' | b'\'') => {
                let word = word.get_or_insert_default();
                loop {
                    match bytes.next() {
                        None => return Err(char::from(quote)),
                        Some(b) if b == quote => break,
                        Some(b'\\') if quote == b'"' => word.extend(bytes.next()),
                        Some(b) => word.push(b),
                    }
                }
            }
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word.map(OsString::from_vec));
    Ok(words)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn read_words(script: &str) -> Vec<(usize, Vec<String>)> {
        let head = read(script.as_bytes(), OF_SBATCH).unwrap();
        head.lines
            .into_iter()
            .map(|l| (l.number, l.words.into_iter().map(|w| w.into_string().unwrap()).collect()))
            .collect()
    }

    fn one(line: &str) -> Vec<String> {
        read_words(&format!("#!/bin/sh\n{line}\n")).pop().map(|(_, words)| words).unwrap_or_default()
    }

    #[test]
    fn lines_count_until_the_first_command() {
        let script = "#!/bin/bash\n# hello\n#SBATCH -n 4\n\n  \t\n   # indented comment\n#SBATCH --time=5\necho hi\n#SBATCH -N 9\n";
        assert_eq!(read_words(script), [(3, vec!["-n".to_owned(), "4".to_owned()]), (7, vec!["--time=5".to_owned()])]);
    }

    #[test]
    fn only_the_exact_mark_at_the_start_of_a_line_counts() {
        for line in [" #SBATCH -n4", "##SBATCH -n4", "# SBATCH -n4", "#SBATCHX -n4", "#sbatch -n4"] {
            assert!(one(line).is_empty(), "{line}");
        }
        assert_eq!(one("#SBATCH\t-n4"), ["-n4"]);
    }

    #[test]
    fn quotes_and_backslashes_keep_blanks() {
        assert_eq!(one(r#"#SBATCH --comment="a b" -J 'c d'"#), ["--comment=a b", "-J", "c d"]);
        assert_eq!(one(r"#SBATCH --comment=a\ b"), ["--comment=a b"]);
        assert_eq!(one(r#"#SBATCH --comment="say \"hi\"" '\n'"#), ["--comment=say \"hi\"", "\\n"]);
        assert_eq!(one(r#"#SBATCH --comment="""#), ["--comment="]);
    }

    #[test]
    fn a_comment_may_follow_the_options() {
        assert_eq!(one("#SBATCH -n 4 # four tasks"), ["-n", "4"]);
        // Within a word too, as in 26.05.
        assert_eq!(one("#SBATCH --comment=a#b"), ["--comment=a"]);
        assert_eq!(one("#SBATCH --comment='a#b'"), ["--comment=a#b"]);
        assert!(one("#SBATCH # nothing").is_empty());
    }

    #[test]
    fn a_backslash_at_the_end_does_not_continue_the_line() {
        let script = "#!/bin/sh\n#SBATCH -n 4 \\\n-N 2\n";
        assert_eq!(read_words(script), [(2, vec!["-n".to_owned(), "4".to_owned()])]);
    }

    #[test]
    fn lines_of_srun_count_where_they_are_looked_for() {
        let script = b"#!/bin/sh\n#SRUN --retries=2\n#SBATCH -n 4\n#SRUNX\n";
        let marks = |marks| read(script, marks).unwrap().lines.iter().map(|l| (l.number, l.mark)).collect::<Vec<_>>();
        assert_eq!(marks(OF_SRUN), [(2, Mark::Srun), (3, Mark::Sbatch)]);
        assert_eq!(marks(OF_SBATCH), [(3, Mark::Sbatch)]);
    }

    #[test]
    fn an_open_quote_names_its_line() {
        let error = read(b"#!/bin/sh\n\n#SBATCH -J \"x\n", OF_SBATCH).unwrap_err();
        assert_eq!(error.to_string(), "line 3: quote \" is never closed");
    }

    #[test]
    fn each_component_of_a_heterogeneous_job_has_its_lines_and_pbs_lines_are_noticed() {
        let head = read(b"#!/bin/sh\n#SBATCH -n1\n#SBATCH hetjob\n#SBATCH -n2\n#SBATCH packjob\n", OF_SBATCH).unwrap();
        assert_eq!(head.lines.iter().map(|l| l.number).collect::<Vec<_>>(), [2]);
        assert_eq!(head.others.iter().map(|lines| lines.len()).collect::<Vec<_>>(), [1, 0]);
        assert_eq!(head.others[0][0].number, 4);
        assert!(read(b"#!/bin/sh\n#PBS -N x\n", OF_SBATCH).unwrap().has_pbs);
    }
}
