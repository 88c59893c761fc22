//! The table of known differences: which case, from which references, and why.

use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, fs, io,
    path::Path,
};

/// What kind of difference it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
pub enum Class {
    /// Newer versions of Slurm than the reference do as Garrick does.
    #[serde(rename = "newer")]
    Newer,
    /// Garrick does it on purpose.
    #[serde(rename = "deliberate")]
    Deliberate,
    /// It shall become the same.
    #[serde(rename = "not yet")]
    NotYet,
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Newer => "newer",
            Self::Deliberate => "deliberate",
            Self::NotYet => "not yet",
        })
    }
}

/// One reason, and the cases that it explains.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Difference {
    /// Why, in a sentence.
    pub reason: String,
    /// What kind of difference it is.
    pub class: Class,
    /// The references that the cases differ from, such as `22.05`.
    pub references: BTreeSet<String>,
    /// `FILE/CASE`.
    pub cases: BTreeSet<String>,
}

/// The whole table.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Differences {
    /// In the order of the file.
    #[serde(default, rename = "difference")]
    pub all: Vec<Difference>,
}

/// What stands above the table.
const HEAD: &str = "# Differences between Garrick and versions of Slurm that are known, each with its reason.\n\
    # newer: newer versions of Slurm do as Garrick does. deliberate: on purpose. not yet: shall become the same.\n";

impl Differences {
    /// Reads a table.
    ///
    /// # Errors
    ///
    /// The file cannot be read or is of another form, or a case has two reasons for one reference.
    pub fn read(path: &Path) -> io::Result<Self> {
        let table: Self = toml::from_str(&fs::read_to_string(path)?)
            .map_err(|e| io::Error::other(format!("{}: {e}", path.display())))?;
        let mut seen = BTreeSet::new();
        for difference in &table.all {
            for (case, reference) in
                difference.cases.iter().flat_map(|case| difference.references.iter().map(move |r| (case, r)))
            {
                if !seen.insert((case, reference)) {
                    return Err(io::Error::other(format!("{case} has two reasons for {reference}")));
                }
            }
        }
        Ok(table)
    }

    /// Writes the table.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let quoted = |text: &str| toml::Value::String(text.to_owned()).to_string();
        let mut text = HEAD.to_owned();
        for Difference { reason, class, references, cases } in &self.all {
            let references: Vec<String> = references.iter().map(|reference| quoted(reference)).collect();
            let (reason, references) = (quoted(reason), references.join(", "));
            text.push_str(&format!("\n[[difference]]\nreason = {reason}\nclass = \"{class}\"\n"));
            text.push_str(&format!("references = [{references}]\ncases = [\n"));
            cases.iter().for_each(|case| text.push_str(&format!("    {},\n", quoted(case))));
            text.push_str("]\n");
        }
        fs::write(path, text)
    }

    /// The reason of a difference, if there is one.
    #[must_use]
    pub fn of(&self, case: &str, reference: &str) -> Option<&Difference> {
        self.all.iter().find(|d| d.cases.contains(case) && d.references.contains(reference))
    }

    /// Makes the table true for the cases that ran against a reference: adds those that differ, as `not yet` with a reason to begin
    /// with, and removes those that do not. Cases of one reason stand together then.
    pub fn renew(&mut self, reference: &str, differ: &BTreeMap<String, String>, same: &BTreeSet<String>) {
        let mut known: BTreeMap<(String, String), (Class, String)> = BTreeMap::new();
        for (case, reason) in differ {
            known.insert((case.clone(), reference.to_owned()), (Class::NotYet, reason.trim().to_owned()));
        }
        for difference in &self.all {
            for case in &difference.cases {
                for from in &difference.references {
                    let why = (difference.class, difference.reason.clone());
                    known.insert((case.clone(), from.clone()), why);
                }
            }
        }
        known.retain(|(case, from), _| from != reference || !same.contains(case));
        let mut by_case: BTreeMap<(Class, String, String), BTreeSet<String>> = BTreeMap::new();
        for ((case, from), (class, reason)) in known {
            by_case.entry((class, reason, case)).or_default().insert(from);
        }
        let mut by_reason: BTreeMap<(Class, String, BTreeSet<String>), BTreeSet<String>> = BTreeMap::new();
        for ((class, reason, case), references) in by_case {
            by_reason.entry((class, reason, references)).or_default().insert(case);
        }
        let whole = |((class, reason, references), cases)| Difference { reason, class, references, cases };
        self.all = by_reason.into_iter().map(whole).collect();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn table() -> Differences {
        toml::from_str(
            "[[difference]]\nreason = 'r'\nclass = 'newer'\nreferences = ['22.05', '26.05']\ncases = ['f/a', 'f/b']\n",
        )
        .unwrap()
    }

    #[test]
    fn what_is_the_same_for_one_reference_stays_for_the_other() {
        let mut table = table();
        table.renew("22.05", &BTreeMap::new(), &["f/a".to_owned()].into());
        assert!(table.of("f/a", "22.05").is_none());
        assert!(table.of("f/a", "26.05").is_some());
        assert!(table.of("f/b", "22.05").is_some());
    }

    #[test]
    fn new_differences_are_added_once() {
        let mut table = table();
        let differ = BTreeMap::from([("f/a".to_owned(), "x".to_owned()), ("f/c".to_owned(), "y".to_owned())]);
        table.renew("22.05", &differ, &BTreeSet::new());
        table.renew("26.05", &differ, &BTreeSet::new());
        assert_eq!(table.all.len(), 2);
        assert_eq!(table.of("f/c", "22.05"), table.of("f/c", "26.05"));
        assert_eq!(table.of("f/c", "22.05").unwrap().class, Class::NotYet);
    }
}
