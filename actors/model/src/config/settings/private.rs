//! What ordinary users may not see of others (`PrivateData` of slurm.conf(5)).

use crate::config::syntax::{
    report::SettingError,
    values::{self, Value},
};
use std::collections::BTreeSet;

/// A kind of information that can be hidden from ordinary users. In the order in which Slurm shows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PrivateKind {
    /// Accounts.
    Accounts,
    /// Events.
    Events,
    /// Jobs of others, and their steps.
    Jobs,
    /// States of nodes.
    Nodes,
    /// Partitions.
    Partitions,
    /// Reservations that the user cannot use.
    Reservations,
    /// Usage of others.
    Usage,
    /// Other users.
    Users,
}

const WORDS: &[(&str, PrivateKind)] = &[
    ("accounts", PrivateKind::Accounts),
    ("events", PrivateKind::Events),
    ("jobs", PrivateKind::Jobs),
    ("nodes", PrivateKind::Nodes),
    ("partitions", PrivateKind::Partitions),
    ("reservations", PrivateKind::Reservations),
    ("usage", PrivateKind::Usage),
    ("users", PrivateKind::Users),
];

impl PrivateKind {
    /// The controller hides it. The others are for accounting alone.
    const fn is_of_controller(self) -> bool {
        matches!(self, Self::Jobs | Self::Nodes | Self::Partitions | Self::Reservations | Self::Usage | Self::Users)
    }

    /// The service of accounting hides it.
    const fn is_of_accounting(self) -> bool {
        !matches!(self, Self::Nodes | Self::Partitions)
    }
}

/// What only root and `SlurmUser` may see of others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrivateData(BTreeSet<PrivateKind>);

impl FromIterator<PrivateKind> for PrivateData {
    fn from_iter<I: IntoIterator<Item = PrivateKind>>(kinds: I) -> Self {
        Self(kinds.into_iter().collect())
    }
}

impl PrivateData {
    /// Is that hidden from ordinary users?
    pub fn has(&self, kind: PrivateKind) -> bool {
        self.0.contains(&kind)
    }

    /// Is nothing hidden?
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes `PrivateData`; `none` hides nothing.
    pub(in crate::config) fn parse(text: &str) -> Value<Self> {
        let names: Vec<&str> = WORDS.iter().map(|(name, _)| *name).collect();
        let words = values::list(text).into_iter().filter(|word| !word.eq_ignore_ascii_case("none"));
        let kind = |word: &str| -> Value<Option<PrivateKind>> {
            let name = values::choice(word, &names)?;
            Ok(WORDS.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind))
        };
        let kinds = words.map(|word| kind(&word)).collect::<Value<Vec<_>>>()?;
        Ok(Self(kinds.into_iter().flatten().collect()))
    }

    /// Words that have no effect in the controller.
    pub(super) fn without_effect(&self) -> String {
        self.words(|kind| !kind.is_of_controller())
    }

    /// Words that have no effect in the service of accounting.
    pub(in crate::config) fn without_effect_on_records(&self) -> String {
        self.words(|kind| !kind.is_of_accounting())
    }

    /// `jobs,nodes`, or `none`.
    pub fn text(&self) -> String {
        match self.0.is_empty() {
            true => "none".to_owned(),
            false => self.words(|_| true),
        }
    }

    fn words(&self, which: fn(PrivateKind) -> bool) -> String {
        let words = WORDS.iter().filter(|(_, kind)| which(*kind) && self.has(*kind));
        words.map(|(name, _)| *name).collect::<Vec<_>>().join(",")
    }
}

/// Takes `PrivateData`, with a note about words that have no effect.
pub(super) fn private_data(to: &mut PrivateData, text: &str) -> Value<Option<SettingError>> {
    *to = PrivateData::parse(text)?;
    let without = to.without_effect();
    let note =
        SettingError::new(format!("{without} is not supported yet")).suggest("there is no accounting that has it");
    Ok((!without.is_empty()).then_some(note))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn private_data_is_shown_in_order_and_unknown_words_are_refused() {
        let data = PrivateData::parse("Users,jobs, nodes,jobs").unwrap();
        assert_eq!(data.text(), "jobs,nodes,users");
        assert_eq!(data.without_effect(), "");
        assert_eq!(PrivateData::parse("usage,accounts").unwrap().without_effect(), "accounts");
        assert!(data.has(PrivateKind::Jobs) && !data.has(PrivateKind::Reservations));
        assert_eq!(PrivateData::parse("none").unwrap().text(), "none");
        assert_eq!(PrivateData::parse("").unwrap(), PrivateData::default());
        assert!(PrivateData::parse("job").unwrap_err().to_string().contains("jobs"));
    }
}
