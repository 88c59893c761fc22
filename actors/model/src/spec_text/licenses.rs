//! Text forms of licenses: `Licenses=` of `slurm.conf`, and `--licenses`, where commas mean that all are needed and `|` that
//! one is enough.

use crate::spec::JobSpec;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt, str::FromStr};

/// So many licenses of a name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LicenseCount {
    /// Name.
    pub name: String,
    /// How many.
    pub count: u32,
}

/// Licenses that belong together, in the order given, each name once. Shown as `foo:4,bar:2`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Licenses(pub Vec<LicenseCount>);

/// Text that names no licenses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is not a list of licenses")]
pub struct LicensesError(pub String);

impl Licenses {
    /// None.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many of that name; 0 where it is not there.
    pub fn count(&self, name: &str) -> u32 {
        self.0.iter().find(|l| l.name == name).map_or(0, |l| l.count)
    }

    /// By name.
    pub fn by_name(&self) -> BTreeMap<&str, u32> {
        self.0.iter().map(|l| (l.name.as_str(), l.count)).collect()
    }
}

impl fmt::Display for Licenses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, LicenseCount { name, count }) in self.0.iter().enumerate() {
            let comma = if i > 0 { "," } else { "" };
            write!(f, "{comma}{name}:{count}")?;
        }
        Ok(())
    }
}

impl FromStr for Licenses {
    type Err = LicensesError;
    /// `foo:4,bar`: a name without a number is one; a name that comes twice counts together.
    fn from_str(text: &str) -> Result<Self, LicensesError> {
        let wrong = || LicensesError(text.to_owned());
        let mut licenses: Vec<LicenseCount> = Vec::new();
        for part in text.split(',').map(str::trim) {
            let (name, count) = match part.split_once(':') {
                Some((name, count)) => (name, count.parse().map_err(|_| wrong())?),
                None => (part, 1),
            };
            let named = !name.is_empty() && !name.contains(|c: char| c.is_whitespace() || "|&=*;()[]".contains(c));
            if !named || count == 0 {
                return Err(wrong());
            }
            match licenses.iter_mut().find(|l| l.name == name) {
                Some(known) => known.count = known.count.checked_add(count).ok_or_else(wrong)?,
                None => licenses.push(LicenseCount { name: name.to_owned(), count }),
            }
        }
        Ok(Self(licenses))
    }
}

/// What `--licenses` asks for: all of one of these, rather of an earlier one. Slurm has `,` or `|` in one request, not both.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LicenseRequest {
    /// At least one, none of them empty.
    pub alternatives: Vec<Licenses>,
}

impl LicenseRequest {
    /// What a job asks for; `None`: nothing, or it cannot be read.
    pub fn of(spec: &JobSpec) -> Option<Self> {
        spec.licenses.as_deref().and_then(|text| text.parse().ok())
    }
}

impl FromStr for LicenseRequest {
    type Err = LicensesError;
    fn from_str(text: &str) -> Result<Self, LicensesError> {
        if text.contains('|') && text.contains(',') {
            return Err(LicensesError(text.to_owned()));
        }
        let parse = |part: &str| part.parse().map_err(|_| LicensesError(text.to_owned()));
        Ok(Self { alternatives: text.split('|').map(parse).collect::<Result<_, _>>()? })
    }
}

/// A request with numbers for the words that stand for amounts of hierarchical resources (`power:full_node`, `variables` in
/// resources.yaml(5)): `value` says what a word is worth for a name.
pub fn with_numbers(text: &str, value: &dyn Fn(&str, &str) -> Option<u32>) -> Result<String, LicensesError> {
    let mut out = String::new();
    for piece in text.split_inclusive([',', '|']) {
        let (part, end) = match piece.strip_suffix([',', '|']) {
            Some(part) => (part, &piece[part.len()..]),
            None => (piece, ""),
        };
        let word = part.split_once(':').filter(|(_, word)| !word.is_empty() && word.trim().parse::<i64>().is_err());
        match word {
            Some((name, word)) => {
                let worth = value(name.trim(), word.trim()).ok_or_else(|| LicensesError(text.to_owned()))?;
                out.push_str(&format!("{name}:{worth}{end}"));
            }
            None => out.push_str(piece),
        }
    }
    Ok(out)
}

/// May that be a request? Whether its words stand for amounts, the controller knows.
pub fn may_be_request(text: &str) -> bool {
    let is_word = |word: &str| word.chars().all(|c| c.is_ascii_alphanumeric() || "-_./".contains(c));
    let numbered = with_numbers(text, &|_, word| is_word(word).then_some(1));
    numbered.is_ok_and(|text| text.parse::<LicenseRequest>().is_ok())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_list_has_names_and_counts() {
        let licenses: Licenses = "foo:4, bar".parse().unwrap();
        assert_eq!((licenses.count("foo"), licenses.count("bar"), licenses.count("baz")), (4, 1, 0));
        assert_eq!(licenses.to_string(), "foo:4,bar:1");
        assert_eq!("a,a:2,b".parse::<Licenses>().unwrap().to_string(), "a:3,b:1");
        for text in
            ["", ",", "foo:", "foo:x", "foo:0", "foo:-1", ":3", "foo,,bar", "foo:1:2", "a b", "foo:4294967295,foo"]
        {
            assert!(text.parse::<Licenses>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_request_has_alternatives() {
        let read = |text: &str| text.parse::<LicenseRequest>().map(|r| r.alternatives.len());
        assert_eq!(read("a:2|b:1"), Ok(2));
        assert_eq!(read("a:2,b:1"), Ok(1));
        for text in ["", "|", "a|", "|a", "a||b", "a,b|c", "a|b:0"] {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn words_stand_for_amounts() {
        let value = |name: &str, word: &str| (name == "power" && word == "full").then_some(1000);
        assert_eq!(with_numbers("a:2,power:full,b", &value).unwrap(), "a:2,power:1000,b");
        assert_eq!(with_numbers("power:full|a", &value).unwrap(), "power:1000|a");
        assert!(with_numbers("power:half", &value).is_err());
        assert!(may_be_request("power:half") && may_be_request("a:2|b"));
        for text in ["power:a b", "a:", "a:-1", "power:half:2", "a,b|c"] {
            assert!(!may_be_request(text), "{text}");
        }
    }
}
