//! `AccountingStorageEnforce` (slurm.conf(5)): which of what accounting knows binds jobs.

use super::super::syntax::{report::SettingError, values::Value};
use std::{collections::BTreeSet, fmt};

/// A word of `AccountingStorageEnforce`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EnforceWord {
    /// `associations`: jobs need an association.
    Associations,
    /// `limits`: limits of associations and QOS hold.
    Limits,
    /// `qos`: jobs need a QOS that their association may use.
    Qos,
    /// `safe`: no job starts that could pass a limit of minutes.
    Safe,
    /// `wckeys`: jobs need a WCKey of their user.
    WcKeys,
    /// `nojobs`: nothing is recorded.
    NoJobs,
    /// `nosteps`: no steps are recorded.
    NoSteps,
}

/// What is enforced: the words that are set, with all that they imply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Enforce(BTreeSet<EnforceWord>);

/// All words in the order in which they are shown, with what they imply.
const WORDS: &[(&str, EnforceWord, &[EnforceWord])] = {
    use EnforceWord::{Associations, Limits, NoJobs, NoSteps, Qos, Safe, WcKeys};
    &[
        ("associations", Associations, &[]),
        ("limits", Limits, &[Associations]),
        ("nojobs", NoJobs, &[NoSteps]),
        ("nosteps", NoSteps, &[]),
        ("qos", Qos, &[Associations]),
        ("safe", Safe, &[Limits, Associations]),
        ("wckeys", WcKeys, &[Associations]),
    ]
};

/// What `all` stands for.
const ALL: [EnforceWord; 5] =
    [EnforceWord::Associations, EnforceWord::Limits, EnforceWord::Qos, EnforceWord::Safe, EnforceWord::WcKeys];

impl Enforce {
    /// From words separated by commas.
    pub fn parse(text: &str) -> Value<Self> {
        let mut all = BTreeSet::new();
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            let lower = word.to_ascii_lowercase();
            if lower == "all" {
                all.extend(ALL);
                continue;
            }
            let known = WORDS.iter().find(|(name, ..)| *name == lower);
            let (_, word, implied) = known.ok_or_else(|| {
                let names: Vec<&str> = WORDS.iter().map(|(name, ..)| *name).collect();
                SettingError::new(format!("\"{word}\" is none of all, {}", names.join(", ")))
            })?;
            all.insert(*word);
            all.extend(*implied);
        }
        Ok(Self(all))
    }

    /// Is that enforced?
    pub fn has(&self, word: EnforceWord) -> bool {
        self.0.contains(&word)
    }
}

/// From these words, with all that they imply.
impl FromIterator<EnforceWord> for Enforce {
    fn from_iter<I: IntoIterator<Item = EnforceWord>>(words: I) -> Self {
        let with_implied = |word| {
            let implied = WORDS.iter().find(|(_, known, _)| *known == word).map_or(&[][..], |(.., implied)| implied);
            std::iter::once(word).chain(implied.iter().copied())
        };
        Self(words.into_iter().flat_map(with_implied).collect())
    }
}

/// As `scontrol show config` prints it: `associations,limits,qos,safe`, or `none`.
impl fmt::Display for Enforce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown: Vec<&str> = WORDS.iter().filter(|(_, word, _)| self.has(*word)).map(|(name, ..)| *name).collect();
        f.write_str(if shown.is_empty() { "none".to_owned() } else { shown.join(",") }.as_str())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    // What 26.05.3 shows.
    #[test]
    fn words_bring_what_they_imply() {
        let shown = |text: &str| Enforce::parse(text).unwrap().to_string();
        assert_eq!(shown("associations,limits,qos,safe"), "associations,limits,qos,safe");
        assert_eq!(shown("limits"), "associations,limits");
        assert_eq!(shown("Safe"), "associations,limits,safe");
        assert_eq!(shown("qos"), "associations,qos");
        assert_eq!(shown("wckeys"), "associations,wckeys");
        assert_eq!(shown("nojobs"), "nojobs,nosteps");
        assert_eq!(shown("all"), "associations,limits,qos,safe,wckeys");
        assert_eq!(shown(""), "none");
        assert!(Enforce::parse("none").is_err() && Enforce::parse("limits,foo").is_err());
        let safe: Enforce = [EnforceWord::Safe].into_iter().collect();
        assert_eq!(safe, Enforce::parse("safe").unwrap());
    }
}
