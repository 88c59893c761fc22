//! `--dependency`: `afterok:3:4,after:7+5`, `singleton`, `afterany:1?afterok:2`, `afterok:12_3`, and back.

use crate::{
    ids::JobId,
    spec::{Dependencies, Dependency, DependencyKind},
};
use std::{fmt, str::FromStr};

/// Text that is no dependency list.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DependencyTextError {
    /// Nothing there.
    #[error("no dependency given")]
    Empty,
    /// Not a kind that exists.
    #[error(
        "dependency \"{text}\": \"{part}\" is not a kind of dependency \
         (after, afterany, afterok, afternotok, aftercorr, singleton)"
    )]
    Kind {
        /// The whole text.
        text: String,
        /// What is wrong.
        part: String,
    },
    /// No job, or one that is none.
    #[error("dependency \"{text}\": \"{part}\" is not a job")]
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

impl FromStr for Dependencies {
    type Err = DependencyTextError;
    /// What `scontrol` shows, `afterok:3(unfulfilled)`, is read too.
    fn from_str(text: &str) -> Result<Self, DependencyTextError> {
        let any = text.contains('?');
        if any && text.contains(',') {
            return Err(DependencyTextError::Mixed(text.to_owned()));
        }
        if text.trim().is_empty() {
            return Err(DependencyTextError::Empty);
        }
        let mut list = Vec::new();
        for part in text.split([',', '?']) {
            let part = part.split_once('(').map_or(part, |(condition, _)| condition);
            let mut words = part.split(':');
            let kind = words.next().unwrap_or_default();
            let kind = match kind.to_ascii_lowercase().as_str() {
                "after" => DependencyKind::After { minutes: 0 },
                // There are no burst buffers that could still be written back.
                "afterany" | "afterburstbuffer" => DependencyKind::AfterAny,
                "afterok" => DependencyKind::AfterOk,
                "afternotok" => DependencyKind::AfterNotOk,
                "aftercorr" => DependencyKind::AfterCorr,
                "singleton" => DependencyKind::Singleton,
                _ => return Err(DependencyTextError::Kind { text: text.to_owned(), part: kind.to_owned() }),
            };
            let before = list.len();
            for word in words {
                let wrong = || DependencyTextError::Job { text: text.to_owned(), part: word.to_owned() };
                list.push(on_job(kind, word).ok_or_else(wrong)?);
            }
            match (kind, list.len() > before) {
                (DependencyKind::Singleton, false) => {
                    list.push(Dependency { kind, job: None, array_index: None, failed: false })
                }
                (DependencyKind::Singleton, true) | (_, false) => {
                    return Err(DependencyTextError::Job { text: text.to_owned(), part: part.to_owned() });
                }
                (_, true) => {}
            }
        }
        Ok(Self { any, list })
    }
}

/// `12`, `12_3`, `12_*` (all of the array), `12+5` after a start.
fn on_job(kind: DependencyKind, word: &str) -> Option<Dependency> {
    let (job, kind) = match (word.split_once('+'), kind) {
        (Some((job, minutes)), DependencyKind::After { .. }) => {
            (job, DependencyKind::After { minutes: digits(minutes)? })
        }
        (Some(_), _) => return None,
        (None, kind) => (word, kind),
    };
    let (job, array_index) = match job.split_once('_') {
        Some((job, "*")) => (job, None),
        Some((job, index)) => (job, Some(digits(index)?)),
        None => (job, None),
    };
    let job = JobId(digits(job).filter(|&n| n > 0)?);
    Some(Dependency { kind, job: Some(job), array_index, failed: false })
}

fn digits(text: &str) -> Option<u32> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) { None } else { text.parse().ok() }
}

impl fmt::Display for Dependency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            DependencyKind::After { .. } => "after",
            DependencyKind::AfterAny => "afterany",
            DependencyKind::AfterOk => "afterok",
            DependencyKind::AfterNotOk => "afternotok",
            DependencyKind::AfterCorr => "aftercorr",
            DependencyKind::Singleton => "singleton",
        };
        f.write_str(kind)?;
        if let Some(job) = self.job {
            write!(f, ":{job}")?;
        }
        if let Some(index) = self.array_index {
            write!(f, "_{index}")?;
        }
        match self.kind {
            DependencyKind::After { minutes } if minutes > 0 => write!(f, "+{minutes}"),
            _ => Ok(()),
        }
    }
}

impl Dependency {
    /// As Slurm says it of one that is not fulfilled.
    pub const fn state_text(&self) -> &'static str {
        if self.failed { "failed" } else { "unfulfilled" }
    }

    /// The same condition, whatever it came to.
    pub fn is_of(&self, asked: &Self) -> bool {
        (self.kind, self.job, self.array_index) == (asked.kind, asked.job, asked.array_index)
    }
}

impl Dependencies {
    /// Each condition followed by its state in brackets, as `squeue -o %E` and `scontrol` show them:
    /// `afterok:12(unfulfilled),singleton(unfulfilled)`. Nothing for an empty list.
    pub fn text_with<'s>(&self, mut state: impl FnMut(&Dependency) -> &'s str) -> String {
        let separator = if self.any { "?" } else { "," };
        let texts = self.list.iter().map(|condition| format!("{condition}({})", state(condition)));
        texts.collect::<Vec<_>>().join(separator)
    }
    /// As above, none of them fulfilled.
    pub fn unfulfilled_text(&self) -> String {
        self.text_with(Dependency::state_text)
    }
}

impl fmt::Display for Dependencies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let separator = if self.any { "?" } else { "," };
        f.pad(&self.list.iter().map(Dependency::to_string).collect::<Vec<_>>().join(separator))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn dependencies_read_and_print_as_slurms() {
        for (text, want) in [
            ("afterok:3:4,after:7+5", "afterok:3(unfulfilled),afterok:4(unfulfilled),after:7+5(unfulfilled)"),
            ("singleton", "singleton(unfulfilled)"),
            ("aftercorr:7", "aftercorr:7(unfulfilled)"),
            ("afterany:1?afterok:2", "afterany:1(unfulfilled)?afterok:2(unfulfilled)"),
            ("AFTEROK:12_3", "afterok:12_3(unfulfilled)"),
            ("afternotok:1,singleton", "afternotok:1(unfulfilled),singleton(unfulfilled)"),
            ("afterany:1_*", "afterany:1(unfulfilled)"),
        ] {
            let read: Dependencies = text.parse().unwrap();
            assert_eq!(read.unfulfilled_text(), want, "{text}");
            assert_eq!(read.unfulfilled_text().parse::<Dependencies>().unwrap(), read);
        }
        assert_eq!(Dependencies::default().unfulfilled_text(), "");
    }

    #[test]
    fn malformed_dependencies_say_what_is_wrong() {
        let says = |text: &str| text.parse::<Dependencies>().unwrap_err().to_string();
        assert_eq!(says("afterok:x"), "dependency \"afterok:x\": \"x\" is not a job");
        // Slurm had it once.
        assert!(says("expand:1").contains("\"expand\" is not a kind"));
        assert!(says("later:1").contains("\"later\" is not a kind"));
        assert!(says("afterok:1?afterok:2,afterok:3").contains("cannot be mixed"));
        for text in
            ["", "afterok", "afterok:", "after:1+x", "afterok:1+5", "singleton:1", "afterok:0", "afterok:1, after:2"]
        {
            assert!(text.parse::<Dependencies>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_list_or_an_error(s in "\\PC{0,24}|(after|afterok|singleton)[:,?+_0-9]{0,16}") {
            if let Ok(list) = s.parse::<Dependencies>() {
                prop_assert_eq!(list.to_string().parse::<Dependencies>(), Ok(list));
            }
        }
    }
}
