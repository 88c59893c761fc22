//! `--dependency` of a step inside its job: `afterok:3,after:7_*`, `afterany:1?afternotok:2`, `aftercorr:7`, and back. Steps
//! are named as in [`WhichSteps`]; the job may stand before them (`afterok:5609.3`), and is then checked by the caller.

use crate::{
    batch::{StepDependencies, StepDependency, StepDependencyKind},
    ids::JobId,
    step_selector::{StepsSelector, WhichSteps},
};
use std::{fmt, str::FromStr};

/// Text that is no dependency of a step.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StepDependencyError {
    /// Nothing there.
    #[error("no dependency given")]
    Empty,
    /// Not a kind that exists.
    #[error(
        "dependency \"{text}\": \"{part}\" is not a kind of dependency between steps \
         (after, afterany, afterok, afternotok, aftercorr)"
    )]
    Kind {
        /// The whole text.
        text: String,
        /// What is wrong.
        part: String,
    },
    /// No step, or one that is none.
    #[error("dependency \"{text}\": \"{part}\" names no steps (expected STEP, STEP_TASK, STEP_[TASKS] or STEP_*)")]
    Steps {
        /// The whole text.
        text: String,
        /// What is wrong.
        part: String,
    },
    /// Steps of two jobs.
    #[error(
        "dependency \"{text}\": step {part} belongs to another job; steps can wait for steps of their own job only"
    )]
    Job {
        /// The whole text.
        text: String,
        /// What is wrong.
        part: String,
    },
    /// `,` and `?` in one list.
    #[error("dependency \"{0}\": all of (,) and any of (?) cannot be mixed")]
    Mixed(String),
}

const KINDS: [(&str, StepDependencyKind); 5] = [
    ("after", StepDependencyKind::After),
    ("afterany", StepDependencyKind::AfterAny),
    ("afterok", StepDependencyKind::AfterOk),
    ("afternotok", StepDependencyKind::AfterNotOk),
    ("aftercorr", StepDependencyKind::AfterCorr),
];

/// Parts between separators that stand outside brackets.
fn split_outside_brackets(text: &str, separators: [char; 2]) -> Vec<&str> {
    let (mut parts, mut depth, mut from) = (Vec::new(), 0, 0);
    for (at, c) in text.char_indices() {
        match c {
            '[' => depth += 1,
            ']' => depth -= 1,
            c if depth == 0 && separators.contains(&c) => {
                parts.push(&text[from..at]);
                from = at + c.len_utf8();
            }
            _ => {}
        }
    }
    parts.push(&text[from..]);
    parts
}

impl StepDependencies {
    /// Reads a dependency of a step of `job`; `None`: a job named before a step is not checked.
    pub fn parse(text: &str, job: Option<JobId>) -> Result<Self, StepDependencyError> {
        let any = text.contains('?');
        let parts = split_outside_brackets(text, [',', '?']);
        if any && split_outside_brackets(text, [',', ',']).len() > 1 {
            return Err(StepDependencyError::Mixed(text.to_owned()));
        }
        if text.trim().is_empty() {
            return Err(StepDependencyError::Empty);
        }
        let mut on = Vec::new();
        for part in parts {
            let mut words = split_outside_brackets(part, [':', ':']).into_iter();
            let name = words.next().unwrap_or_default();
            let kind = KINDS.iter().find(|(word, _)| word.eq_ignore_ascii_case(name)).map(|(_, kind)| *kind);
            let Some(kind) = kind else {
                return Err(StepDependencyError::Kind { text: text.to_owned(), part: name.to_owned() });
            };
            let before = on.len();
            for word in words {
                on.push(StepDependency { kind, steps: steps(text, word, job)? });
            }
            if on.len() == before {
                return Err(StepDependencyError::Steps { text: text.to_owned(), part: part.to_owned() });
            }
        }
        Ok(Self { any, on })
    }
}

fn steps(text: &str, word: &str, job: Option<JobId>) -> Result<WhichSteps, StepDependencyError> {
    let wrong = || StepDependencyError::Steps { text: text.to_owned(), part: word.to_owned() };
    let which = if word.contains('.') {
        let named: StepsSelector = word.parse().map_err(|_| wrong())?;
        if job.is_some_and(|own| own != named.job || named.task.is_some()) {
            return Err(StepDependencyError::Job { text: text.to_owned(), part: word.to_owned() });
        }
        named.which
    } else {
        word.parse().map_err(|_| wrong())?
    };
    match which {
        WhichSteps::Numbers(_) | WhichSteps::Tasks { .. } => Ok(which),
        WhichSteps::All | WhichSteps::Special(_) => Err(wrong()),
    }
}

impl FromStr for StepDependencies {
    type Err = StepDependencyError;
    fn from_str(text: &str) -> Result<Self, StepDependencyError> {
        Self::parse(text, None)
    }
}

impl fmt::Display for StepDependencies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        for one in &self.on {
            if !text.is_empty() {
                text.push(if self.any { '?' } else { ',' });
            }
            let word = KINDS.iter().find(|(_, kind)| *kind == one.kind).map_or("", |(word, _)| word);
            text.push_str(&format!("{word}:{}", one.steps));
        }
        f.pad(&text)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn dependencies_read_back() {
        for text in
            ["afterok:3", "afterok:3,after:7", "afterany:1?afternotok:2", "aftercorr:7", "after:7_[1-4,9],afterok:2"]
        {
            assert_eq!(text.parse::<StepDependencies>().unwrap().to_string(), text);
        }
        assert_eq!("after:7_*".parse::<StepDependencies>().unwrap().to_string(), "after:7");
        assert_eq!("afterok:3:4".parse::<StepDependencies>().unwrap().to_string(), "afterok:3,afterok:4");
        assert_eq!(StepDependencies::parse("afterok:12.3", Some(JobId(12))).unwrap().to_string(), "afterok:3");
    }

    #[test]
    fn wrong_dependencies_say_what_is_wrong() {
        let says = |text: &str| StepDependencies::parse(text, Some(JobId(12))).unwrap_err().to_string();
        assert_eq!(says(""), "no dependency given");
        assert!(says("afterx:1").contains("\"afterx\" is not a kind"));
        assert!(says("afterok").contains("names no steps"));
        assert!(says("afterok:batch").contains("names no steps"));
        assert!(says("afterok:13.1").contains("belongs to another job"));
        assert!(says("afterok:1,after:2?after:3").contains("cannot be mixed"));
    }

    proptest! {
        #[test]
        fn any_text_is_a_dependency_or_an_error(s in "\\PC{0,20}|after(ok|any)?:[0-9_,?:*\\[\\]-]{0,16}") {
            if let Ok(named) = s.parse::<StepDependencies>() {
                prop_assert_eq!(named.to_string().parse::<StepDependencies>(), Ok(named));
            }
        }
    }
}
