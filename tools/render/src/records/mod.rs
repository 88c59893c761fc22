//! Records of `scontrol show`: Slurm's keys in Slurm's order, one record over several lines or (`-o`) on one.

use crate::words::or_null;
use garrick_model::visible::written_out;
use std::{
    borrow::Cow,
    io::{self, Write},
};

pub mod assoc_mgr;
pub mod job;
pub mod license;
pub mod node;
pub mod partition;
pub mod reservation;
pub mod step;
pub mod topology;

#[cfg(test)]
mod transcript_test;

/// How records are laid out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lines {
    /// Indented lines, an empty one after each record.
    #[default]
    Many,
    /// `-o`: one line a record.
    One,
}

/// One record, line by line, without indentation. Slurm ends some lines with a space and keeps it on one line too.
#[derive(Clone, Debug, Default)]
pub struct Record {
    lines: Vec<String>,
}

impl Record {
    /// Adds a line.
    pub fn line(&mut self, text: impl Into<String>) {
        self.lines.push(text.into());
    }

    /// Adds a line `key=value` when there is a value.
    pub fn line_if(&mut self, key: &str, value: Option<&str>) {
        if let Some(value) = value {
            self.lines.push(format!("{key}={value}"));
        }
    }

    /// Writes it.
    pub fn write(&self, out: &mut dyn Write, lines: Lines) -> io::Result<()> {
        match lines {
            Lines::Many => {
                let shown: Vec<Cow<'_, str>> = self.lines.iter().map(|line| written_out(line)).collect();
                writeln!(out, "{}\n", shown.join("\n   "))
            }
            Lines::One => {
                let flat: Vec<Cow<'_, str>> =
                    self.lines.iter().map(|line| written_out(line.strip_prefix("  ").unwrap_or(line))).collect();
                writeln!(out, "{}", flat.join(" "))
            }
        }
    }
}
