//! Why a task could not be started: what the launcher found, and what users read and scripts see of it.

use crate::state::ExitStatus;
use serde::{Deserialize, Serialize};

/// A task that could not be started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaunchFailure {
    /// What failed: `execve`, `open stdout`, `open output pack`, ...
    pub stage: String,
    /// On what; for a failure without a number, what is wrong with it too.
    pub subject: String,
    /// Error number, or 0.
    pub errno: i32,
}

/// Exit status of a task that could not be started for the system's reasons.
pub const NOT_STARTED: ExitStatus = ExitStatus { code: 1, signal: None };

/// Exit status of a task whose output cannot be opened: `0:53`, as a live Slurm 26.05.3 records it.
pub const NO_OUTPUT: ExitStatus = ExitStatus { code: 0, signal: Some(53) };

impl LaunchFailure {
    /// With an error number.
    pub fn new(stage: impl Into<String>, subject: impl Into<String>, errno: i32) -> Self {
        Self { stage: stage.into(), subject: subject.into(), errno }
    }

    /// Exit status to record, as Slurm has it: the errno where the program could not be executed, `0:53` where its output
    /// could not be opened.
    pub fn status(&self) -> ExitStatus {
        match (self.stage.as_str(), u8::try_from(self.errno)) {
            ("execve", Ok(code)) if code != 0 => ExitStatus { code, signal: None },
            ("open stdout" | "open stderr", _) => NO_OUTPUT,
            _ => NOT_STARTED,
        }
    }

    /// What happened, in Slurm's words where it has some.
    pub fn text(&self) -> String {
        let Self { stage, subject, errno } = self;
        if *errno == 0 {
            return format!("{stage}: {subject}");
        }
        let why = errno_text(*errno);
        match stage.as_str() {
            "execve" => format!("execve(): {subject}: {why}"),
            "open stdin" | "open stdout" | "open stderr" => format!("Could not {stage} file {subject}: {why}"),
            _ => format!("{stage} {subject}: {why}"),
        }
    }
}

/// What whoever reads a text of [`LaunchFailure::text`] can do about it.
pub fn advice(text: &str) -> Option<&'static str> {
    if text.starts_with("Could not open stdin file ") {
        Some("the file has to be on the node, and its user may have to be let read it; -i names another")
    } else if text.starts_with("Could not open stdout file ") || text.starts_with("Could not open stderr file ") {
        Some(
            "the folder has to be on the node, and its user may have to be let write there; -o and -e name other files, -D \
             another folder for names without one",
        )
    } else if text.starts_with("execve(): ") {
        Some("the program, or what the script's first line names (#!), has to be on the node, and executable")
    } else {
        None
    }
}

/// What a task is told on its standard error when its working directory is out of reach.
pub fn moved_text(folder: &str, errno: i32) -> String {
    format!("slurmstepd: error: couldn't chdir to `{folder}': {}: going to /tmp instead", errno_text(errno))
}

/// `No such file or directory`.
pub fn errno_text(errno: i32) -> String {
    let text = std::io::Error::from_raw_os_error(errno).to_string();
    match text.find(" (os error") {
        Some(at) => text[..at].to_owned(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn programs_that_cannot_be_executed_end_with_the_errno_and_all_else_with_one() {
        let status = |stage: &str, errno| LaunchFailure::new(stage, "x", errno).status().to_string();
        assert_eq!([status("execve", 13), status("execve", 0), status("clone", 11)], ["13:0", "1:0", "1:0"]);
    }

    /// `sbatch -o /nosuch/x.out` ended as `1:0`, as if the script had run and failed.
    #[test]
    fn outputs_that_cannot_be_opened_end_as_slurm_has_it() {
        let status = |stage: &str| LaunchFailure::new(stage, "/nosuch/x.out", 2).status().to_string();
        assert_eq!([status("open stdout"), status("open stderr"), status("open stdin")], ["0:53", "0:53", "1:0"]);
    }

    #[test]
    fn there_is_advice_for_what_users_can_mend() {
        let advised = |stage: &str| advice(&LaunchFailure::new(stage, "/x", 2).text());
        let outputs = advised("open stdout").unwrap();
        assert!(outputs.contains("-o and -e name other files"));
        assert_eq!(advised("open stderr"), Some(outputs));
        assert!(advised("open stdin").unwrap().contains("-i names another"));
        assert!(advised("execve").unwrap().contains("executable"));
        assert_eq!(advised("clone"), None);
    }

    #[test]
    fn texts_name_stage_subject_and_reason() {
        let text = |stage: &str, errno| LaunchFailure::new(stage, "/x", errno).text();
        assert_eq!(text("execve", 2), "execve(): /x: No such file or directory");
        assert_eq!(text("open stdout", 13), "Could not open stdout file /x: Permission denied");
        assert_eq!(text("clone", 11), "clone /x: Resource temporarily unavailable");
        assert_eq!(text("open output pack", 0), "open output pack: /x");
        assert_eq!(
            moved_text("/home/alice", 2),
            "slurmstepd: error: couldn't chdir to `/home/alice': No such file or directory: going to /tmp instead"
        );
    }
}
