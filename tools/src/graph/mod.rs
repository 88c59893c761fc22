//! Graphs of steps: a file that describes all steps is checked, drawn, and submitted as a list whose lines wait for each other.
//!
//! | module | what it is |
//! |---|---|
//! | [`tree`] | the file, TOML or JSON, with line numbers |
//! | [`written`] | its steps, with every key checked |
//! | [`many`] | how many steps one description stands for |
//! | [`check`] | which steps wait for which, by label and by file; cycles |
//! | [`picture`] | as a picture |
//! | [`plan`] | as the lines of a list |
//! | [`resume`] | what is left to run, according to records of earlier jobs |
//! | [`script`] | the batch script that submits it |
//! | [`command`] | `garrick graph` |

pub mod check;
pub mod command;
mod many;
pub mod picture;
pub mod plan;
pub mod resume;
pub mod script;
pub mod tree;
pub mod written;

use check::{Exists, Graph};
use std::{
    env, fs,
    io::{self, Read as _},
    path::{Path, PathBuf},
};
use tree::Problem;

/// Longest file: what a controller takes as a script, by default.
const LONGEST: u64 = 64 << 20;

/// A file that is no graph.
#[derive(Debug, thiserror::Error)]
pub enum GraphError {
    /// It cannot be read.
    #[error("Unable to read {file}: {cause}")]
    Read {
        /// Which.
        file: String,
        /// Why.
        cause: io::Error,
    },
    /// Something is wrong in it.
    #[error("{}", told(.file, .problems))]
    Wrong {
        /// Which.
        file: String,
        /// All of it.
        problems: Vec<Problem>,
    },
}

fn told(file: &str, problems: &[Problem]) -> String {
    let lines: Vec<String> = problems.iter().map(|p| format!("{file}:{}: {}", p.line, p.text)).collect();
    lines.join("\n")
}

/// A file that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GraphText {
    /// Its name, as messages have it.
    pub file: String,
    /// Its text.
    pub text: Vec<u8>,
}

impl GraphText {
    /// Reads a file; `-` is standard input.
    pub fn read(path: &Path) -> Result<Self, GraphError> {
        let is_input = path == Path::new("-");
        let file = if is_input { "stdin".to_owned() } else { path.display().to_string() };
        let mut text = Vec::new();
        let read = if is_input {
            io::stdin().lock().take(LONGEST + 1).read_to_end(&mut text)
        } else {
            fs::File::open(path).and_then(|file| file.take(LONGEST + 1).read_to_end(&mut text))
        };
        let too_long = || Err(io::Error::other("it is larger than 64 MiB"));
        match read.and_then(|bytes| if bytes as u64 > LONGEST { too_long() } else { Ok(()) }) {
            Ok(()) => Ok(Self { file, text }),
            Err(cause) => Err(GraphError::Read { file, cause }),
        }
    }

    /// The graph. `dir`: where names of files in it begin.
    pub fn graph(&self, dir: &Path) -> Result<Graph, GraphError> {
        parse(&self.text, dir, &|file| file.exists())
            .map_err(|problems| GraphError::Wrong { file: self.file.clone(), problems })
    }
}

/// The folder that one is in.
pub fn here() -> PathBuf {
    env::current_dir().unwrap_or_default()
}

/// Reads a graph; else all that is wrong with it, by line.
pub fn parse(text: &[u8], dir: &Path, exists: Exists<'_>) -> Result<Graph, Vec<Problem>> {
    let entries = tree::read(text)?;
    let mut problems = Vec::new();
    let steps = written::steps(&entries, dir, &mut problems);
    let graph = check::graph(steps, dir, exists, &mut problems);
    problems.sort();
    problems.dedup();
    if problems.is_empty() { Ok(graph) } else { Err(problems) }
}

#[cfg(test)]
mod graph_test;
