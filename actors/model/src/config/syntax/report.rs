//! Everything that is wrong or not honoured in a configuration, with file, line, cause and suggestion.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

/// How bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Read, but not (fully) honoured, or surely not meant like that. Daemons log it, commands say nothing.
    Warning,
    /// The file cannot be used.
    Error,
}

/// Where something was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// File.
    pub file: Arc<Path>,
    /// Line from 1; 0 for the file as a whole.
    pub line: u32,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}", self.file.display()),
            line => write!(f, "{}:{line}", self.file.display()),
        }
    }
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// How bad.
    pub severity: Severity,
    /// Where.
    pub place: Place,
    /// What was written, for example `MaxTime=abc`.
    pub what: String,
    /// What is wrong with it.
    pub cause: String,
    /// What to write instead.
    pub suggestion: Option<String>,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Warning => "warning",
            Severity::Error => "error",
        };
        write!(f, "{}: {severity}: {}: {}", self.place, self.what, self.cause)?;
        match &self.suggestion {
            Some(suggestion) => write!(f, " ({suggestion})"),
            None => Ok(()),
        }
    }
}

/// All findings of one reading, in the order of the lines as they were read. As an error it prints one finding per line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigReport {
    /// The findings.
    pub problems: Vec<Problem>,
    /// Every file that was read, the main one first.
    pub files: Vec<PathBuf>,
    /// Groups that partitions name, and where. Whether they are there only the system can say.
    pub groups: Vec<(Place, String)>,
}

impl ConfigReport {
    pub(in crate::config) fn error(&mut self, place: &Place, what: impl Into<String>, wrong: SettingError) {
        self.add(Severity::Error, place, what.into(), wrong);
    }
    pub(in crate::config) fn warning(&mut self, place: &Place, what: impl Into<String>, wrong: SettingError) {
        self.add(Severity::Warning, place, what.into(), wrong);
    }
    fn add(&mut self, severity: Severity, place: &Place, what: String, wrong: SettingError) {
        let SettingError { cause, suggestion } = wrong;
        self.problems.push(Problem { severity, place: place.clone(), what, cause, suggestion });
    }
    /// Warns of groups that the system does not know: nobody is in them, but they may come.
    pub fn check_groups(&mut self, is_known: impl Fn(&str) -> bool) {
        for (place, group) in std::mem::take(&mut self.groups) {
            if !is_known(&group) {
                let wrong = SettingError::new("this system knows no such group, so nobody is in it");
                self.warning(&place, format!("AllowGroups={group}"), wrong.suggest("\"getent group\" lists them"));
            }
        }
    }
    /// Findings that make the file unusable.
    pub fn errors(&self) -> impl Iterator<Item = &Problem> {
        self.problems.iter().filter(|p| p.severity == Severity::Error)
    }
    /// Findings that do not.
    pub fn warnings(&self) -> impl Iterator<Item = &Problem> {
        self.problems.iter().filter(|p| p.severity == Severity::Warning)
    }
    /// Is the file unusable?
    pub fn has_errors(&self) -> bool {
        self.errors().next().is_some()
    }
}

impl fmt::Display for ConfigReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, problem) in self.problems.iter().enumerate() {
            if n > 0 {
                writeln!(f)?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigReport {}

/// A value that a key cannot have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{cause}{}", suggestion.as_ref().map(|s| format!(" ({s})")).unwrap_or_default())]
pub struct SettingError {
    /// What is wrong.
    pub cause: String,
    /// What to write instead.
    pub suggestion: Option<String>,
}

impl SettingError {
    pub(in crate::config) fn new(cause: impl Into<String>) -> Self {
        Self { cause: cause.into(), suggestion: None }
    }
    pub(in crate::config) fn suggest(mut self, suggestion: impl Into<String>) -> Self {
        self.suggestion = Some(suggestion.into());
        self
    }
}

pub(in crate::config) fn not_yet(name: &str) -> SettingError {
    SettingError::new(format!("{name} is not supported yet and has no effect"))
}

pub(in crate::config) fn dropped(name: &str) -> SettingError {
    SettingError::new(format!("{name} is no longer a key of Slurm and has no effect")).suggest("remove it")
}
