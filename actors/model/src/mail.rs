//! `--mail-type` and `--mail-user`: when a user is told about a job, and at which address (sbatch(1)).

use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// An event that users are told about, or how they are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[repr(u8)]
pub enum MailType {
    /// It began.
    Begin,
    /// It ended.
    End,
    /// It failed.
    Fail,
    /// It was requeued.
    Requeue,
    /// All of its time is over.
    TimeLimit,
    /// 90 percent of its time are over.
    TimeLimit90,
    /// 80 percent.
    TimeLimit80,
    /// 50 percent.
    TimeLimit50,
    /// Its files were staged out of a burst buffer. There is none in Garrick, so that this never happens.
    StageOut,
    /// Not an event: of an array, each task is told of by itself.
    ArrayTasks,
    /// What it depends on never happens.
    InvalidDepend,
}

/// Each with its word in options and texts, and that in JSON (data parser v0.0.45), in the order in which texts list them.
const WORDS: [(MailType, &str, &str); 11] = [
    (MailType::ArrayTasks, "ARRAY_TASKS", "ARRAY_TASKS"),
    (MailType::InvalidDepend, "INVALID_DEPEND", "INVALID_DEPENDENCY"),
    (MailType::Begin, "BEGIN", "BEGIN"),
    (MailType::End, "END", "END"),
    (MailType::Fail, "FAIL", "FAIL"),
    (MailType::Requeue, "REQUEUE", "REQUEUE"),
    (MailType::StageOut, "STAGE_OUT", "STAGE_OUT"),
    (MailType::TimeLimit50, "TIME_LIMIT_50", "TIME=50%"),
    (MailType::TimeLimit80, "TIME_LIMIT_80", "TIME=80%"),
    (MailType::TimeLimit90, "TIME_LIMIT_90", "TIME=90%"),
    (MailType::TimeLimit, "TIME_LIMIT", "TIME=100%"),
];

/// The words of options.
pub fn words() -> impl Iterator<Item = &'static str> {
    WORDS.iter().map(|(_, word, _)| *word)
}

/// Those in the order of the JSON schema.
const IN_JSON: [MailType; 11] = [
    MailType::Begin,
    MailType::End,
    MailType::Fail,
    MailType::Requeue,
    MailType::TimeLimit,
    MailType::TimeLimit90,
    MailType::TimeLimit80,
    MailType::TimeLimit50,
    MailType::StageOut,
    MailType::ArrayTasks,
    MailType::InvalidDepend,
];

/// What `ALL` means (sbatch(1)).
const ALL: [MailType; 6] =
    [MailType::Begin, MailType::End, MailType::Fail, MailType::InvalidDepend, MailType::Requeue, MailType::StageOut];

impl MailType {
    /// The word for it in options, and in `SLURM_JOB_MAIL_TYPE`.
    pub fn word(self) -> &'static str {
        WORDS.iter().find(|(kind, ..)| *kind == self).map_or("", |(_, word, _)| word)
    }

    /// The word for it in JSON.
    pub fn json_word(self) -> &'static str {
        WORDS.iter().find(|(kind, ..)| *kind == self).map_or("", |(.., word)| word)
    }

    /// How much of the time limit is over then, percent.
    pub const fn percent(self) -> Option<u64> {
        match self {
            Self::TimeLimit => Some(100),
            Self::TimeLimit90 => Some(90),
            Self::TimeLimit80 => Some(80),
            Self::TimeLimit50 => Some(50),
            _ => None,
        }
    }
}

/// A set of [`MailType`]s, a bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MailTypes(u16);

impl MailTypes {
    /// None.
    pub const NONE: Self = Self(0);

    /// Is it among them?
    pub const fn has(self, kind: MailType) -> bool {
        self.0 & 1 << kind as u8 != 0
    }

    /// As Slurm numbers them: 1 for `BEGIN` to 1024 for `INVALID_DEPEND`.
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// The set of these bits; `None`: one of them is no event.
    pub fn from_bits(bits: u16) -> Option<Self> {
        let all: Self = IN_JSON.into_iter().collect();
        (bits & !all.0 == 0).then_some(Self(bits))
    }

    /// Nobody is told of anything.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// In the order of the JSON schema.
    pub fn in_json(self) -> impl Iterator<Item = MailType> {
        IN_JSON.into_iter().filter(move |kind| self.has(*kind))
    }
}

impl FromIterator<MailType> for MailTypes {
    fn from_iter<I: IntoIterator<Item = MailType>>(kinds: I) -> Self {
        Self(kinds.into_iter().fold(0, |bits, kind| bits | 1 << kind as u8))
    }
}

impl fmt::Display for MailTypes {
    /// `BEGIN,END`, or `NONE`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<&str> = WORDS.iter().filter(|(kind, ..)| self.has(*kind)).map(|(_, word, _)| *word).collect();
        if words.is_empty() { f.write_str("NONE") } else { f.write_str(&words.join(",")) }
    }
}

/// None of the words is an event.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("none of {0:?} is an event that mail can be sent for")]
pub struct MailTypesError(String);

impl FromStr for MailTypes {
    type Err = MailTypesError;

    /// Words with commas between them, in either case; `NONE` overrules the others (sbatch(1)). Unknown words are passed over
    /// as long as one is known.
    fn from_str(text: &str) -> Result<Self, MailTypesError> {
        let mut kinds = Vec::new();
        let mut known = false;
        for word in text.split(',').map(str::trim) {
            let named = WORDS.iter().find(|(_, name, _)| word.eq_ignore_ascii_case(name));
            if word.eq_ignore_ascii_case("NONE") {
                return Ok(Self::NONE);
            } else if word.eq_ignore_ascii_case("ALL") {
                kinds.extend(ALL);
            } else if let Some((kind, ..)) = named {
                kinds.push(*kind);
            } else {
                continue;
            }
            known = true;
        }
        if known { Ok(kinds.into_iter().collect()) } else { Err(MailTypesError(text.to_owned())) }
    }
}

/// What a job says of mail.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Mail {
    /// `--mail-type`.
    #[serde(skip_serializing_if = "types_are_none")]
    pub types: MailTypes,
    /// `--mail-user`; filled in at submission where anything is said of mail.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
const fn types_are_none(types: &MailTypes) -> bool {
    types.is_empty()
}

impl Mail {
    /// Nothing is said.
    pub const fn is_default(&self) -> bool {
        self.types.is_empty() && self.user.is_none()
    }
}

/// The address for a `--mail-user` (empty or none: the submitting user), which is qualified by `MailDomain` where it names no
/// domain (slurm.conf(5)).
pub fn address(given: Option<&str>, owner: &str, domain: Option<&str>) -> String {
    let user = given.filter(|user| !user.is_empty()).unwrap_or(owner);
    match domain.filter(|_| !user.contains('@')) {
        Some(domain) => format!("{user}@{domain}"),
        None => user.to_owned(),
    }
}

/// Can mail be sent there? What mail programs take for an option, a file, a folder or a command is refused, since the program runs
/// as SlurmUser.
pub fn is_address(text: &str) -> bool {
    let special = |c: char| c.is_control() || c.is_whitespace() || "|/`$;<>()\"&".contains(c);
    text.split(',').all(|one| !one.starts_with(['-', '+', '~', '#', '%', ':'])) && !text.contains(special)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<String> {
        text.parse().ok().map(|types: MailTypes| types.to_string())
    }

    #[test]
    fn words_are_events_and_none_overrules_them() {
        assert_eq!(read("END,begin"), Some("BEGIN,END".to_owned()));
        assert_eq!(read("ALL"), Some("INVALID_DEPEND,BEGIN,END,FAIL,REQUEUE,STAGE_OUT".to_owned()));
        assert_eq!(read("END,NONE"), Some("NONE".to_owned()));
        assert_eq!(read("NONE"), Some("NONE".to_owned()));
        assert_eq!(read("time_limit_80,TIME_LIMIT"), Some("TIME_LIMIT_80,TIME_LIMIT".to_owned()));
        assert_eq!((read("never"), read("")), (None, None));
        assert_eq!(read("never,FAIL"), Some("FAIL".to_owned()));
    }

    #[test]
    fn each_event_has_a_bit_and_a_word_of_its_own() {
        for kind in IN_JSON {
            let alone: MailTypes = [kind].into_iter().collect();
            assert_eq!(alone.in_json().collect::<Vec<_>>(), [kind]);
            assert_eq!(read(kind.word()), Some(kind.word().to_owned()));
        }
    }

    #[test]
    fn what_a_mail_program_could_take_for_something_else_is_no_address() {
        for good in ["", "alice", "alice@example.org", "a.b+c@x-y.z", "a@x,b@y"] {
            assert!(is_address(good), "{good}");
        }
        for bad in ["-S@x", "|sh", "/etc/passwd", "+folder", "a@x,-b", "a b", "a@x\nBcc:b", "$(id)"] {
            assert!(!is_address(bad), "{bad}");
        }
    }

    #[test]
    fn an_address_without_a_domain_gets_that_of_the_site() {
        assert_eq!(address(None, "alice", None), "alice");
        assert_eq!(address(Some(""), "alice", Some("example.org")), "alice@example.org");
        assert_eq!(address(Some("bob"), "alice", Some("example.org")), "bob@example.org");
        assert_eq!(address(Some("bob@here"), "alice", Some("example.org")), "bob@here");
    }
}
