//! Values that a change sets.

use garrick_model::entities::{
    association::Shares,
    limits::{Count, TresLimit},
    names::{AdminLevel, FedState},
    qos::{QosFlag, QosPreemptMode},
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// What happens to a value that may be unset. Sent as a list: empty, of nothing, or of the value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(
    from = "Vec<Option<T>>",
    into = "Vec<Option<T>>",
    bound(serialize = "T: Clone + Serialize", deserialize = "T: Deserialize<'de>")
)]
pub enum Edit<T> {
    /// It stays.
    #[default]
    Keep,
    /// It is unset (`-1`).
    Clear,
    /// It is set.
    Set(T),
}

/// What happens to an amount of a TRES limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TresEdit {
    /// It is unset (`cpu=-1`).
    Clear,
    /// `cpu=2`.
    Set(u64),
    /// `cpu+=2`.
    Add(u64),
    /// `cpu-=2`: not below 0.
    Subtract(u64),
}

/// What happens to a list of names or flags. Sent as three lists: what it is set to, what comes, what goes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    from = "SentList<T>",
    into = "SentList<T>",
    bound(serialize = "T: Clone + Ord + Serialize", deserialize = "T: Ord + Deserialize<'de>")
)]
pub enum ListEdit<T: Ord> {
    /// It stays.
    #[default]
    Keep,
    /// `=`: it is these; empty: as if it had never been set.
    Set(BTreeSet<T>),
    /// `+=` and `-=`.
    Change {
        /// These come.
        added: BTreeSet<T>,
        /// These go.
        removed: BTreeSet<T>,
    },
}

type SentList<T> = (Option<BTreeSet<T>>, BTreeSet<T>, BTreeSet<T>);

/// Numbers; `None` unsets.
pub type CountEdits = BTreeMap<Count, Option<u64>>;
/// Amounts by the name of a TRES.
pub type TresEdits = BTreeMap<TresLimit, BTreeMap<String, TresEdit>>;

/// Values of associations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AssocEdit {
    /// `Fairshare`; unset is 1.
    #[serde(default)]
    pub shares: Edit<Shares>,
    /// `Priority`.
    #[serde(default)]
    pub priority: Edit<u32>,
    /// Limits that are numbers.
    #[serde(default)]
    pub counts: CountEdits,
    /// Limits of TRES.
    #[serde(default)]
    pub tres: TresEdits,
    /// `DefaultQOS`.
    #[serde(default)]
    pub default_qos: Edit<String>,
    /// `QOS`.
    #[serde(default)]
    pub qos: ListEdit<String>,
    /// `Comment`.
    #[serde(default)]
    pub comment: Option<String>,
    /// `RawUsage=0`.
    #[serde(default)]
    pub reset_usage: bool,
}

/// Which associations are meant. An empty list: any.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AssocFilter {
    /// Clusters.
    #[serde(default)]
    pub clusters: Vec<String>,
    /// Accounts.
    #[serde(default)]
    pub accounts: Vec<String>,
    /// Users.
    #[serde(default)]
    pub users: Vec<String>,
    /// Partitions.
    #[serde(default)]
    pub partitions: Vec<String>,
    /// Accounts directly above.
    #[serde(default)]
    pub parents: Vec<String>,
}

/// Facts of an account.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccountEdit {
    /// `Description`.
    #[serde(default)]
    pub description: Option<String>,
    /// `Organization`.
    #[serde(default)]
    pub organization: Option<String>,
    /// `Flags=UsersAreCoords`, `NoUsersAreCoords`.
    #[serde(default)]
    pub users_are_coordinators: Option<bool>,
}

/// Facts of a user.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserEdit {
    /// `AdminLevel`.
    #[serde(default)]
    pub admin: Option<AdminLevel>,
    /// `DefaultAccount`.
    #[serde(default)]
    pub default_account: Option<String>,
    /// `DefaultWCKey`.
    #[serde(default)]
    pub default_wckey: Option<String>,
    /// `NewName`.
    #[serde(default)]
    pub new_name: Option<String>,
}

/// Facts of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterEdit {
    /// `Classification`.
    #[serde(default)]
    pub classification: Option<String>,
    /// `Features`.
    #[serde(default)]
    pub features: ListEdit<String>,
    /// `Federation`; an empty name: none.
    #[serde(default)]
    pub federation: Option<String>,
    /// `FedState`.
    #[serde(default)]
    pub fed_state: Option<FedState>,
}

/// Values of a QOS.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct QosEdit {
    /// `Description`.
    #[serde(default)]
    pub description: Option<String>,
    /// `Priority`; unset is 0.
    #[serde(default)]
    pub priority: Edit<u32>,
    /// `Flags`.
    #[serde(default)]
    pub flags: ListEdit<QosFlag>,
    /// `Preempt`.
    #[serde(default)]
    pub preempt: ListEdit<String>,
    /// `PreemptMode`; an empty list: the cluster's.
    #[serde(default)]
    pub preempt_mode: Option<BTreeSet<QosPreemptMode>>,
    /// `PreemptExemptTime`, seconds.
    #[serde(default)]
    pub preempt_exempt_secs: Edit<u64>,
    /// `GraceTime`, seconds; unset is 0.
    #[serde(default)]
    pub grace_secs: Edit<u64>,
    /// `UsageFactor`; unset is 1.
    #[serde(default)]
    pub usage_factor: Edit<f64>,
    /// `UsageThreshold`.
    #[serde(default)]
    pub usage_threshold: Edit<f64>,
    /// `LimitFactor`.
    #[serde(default)]
    pub limit_factor: Edit<f64>,
    /// Limits that are numbers.
    #[serde(default)]
    pub counts: CountEdits,
    /// Limits of TRES.
    #[serde(default)]
    pub tres: TresEdits,
    /// `RawUsage=0`.
    #[serde(default)]
    pub reset_usage: bool,
}

/// Values of a resource.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceEdit {
    /// `Count`.
    #[serde(default)]
    pub count: Option<u32>,
    /// `LastConsumed`.
    #[serde(default)]
    pub last_consumed: Option<u32>,
    /// `Description`.
    #[serde(default)]
    pub description: Option<String>,
    /// `ServerType`.
    #[serde(default)]
    pub server_type: Option<String>,
    /// `Flags=Absolute`.
    #[serde(default)]
    pub absolute: Option<bool>,
    /// `Allowed`, for each of the clusters.
    #[serde(default)]
    pub allowed: Option<u32>,
}

/// Which resources are meant. An empty list: any.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceFilter {
    /// Names.
    #[serde(default)]
    pub names: Vec<String>,
    /// Servers.
    #[serde(default)]
    pub servers: Vec<String>,
    /// What these clusters are allowed of them. Empty: the resources themselves.
    #[serde(default)]
    pub clusters: Vec<String>,
}

impl<T> From<Vec<Option<T>>> for Edit<T> {
    fn from(sent: Vec<Option<T>>) -> Self {
        match sent.into_iter().next() {
            None => Self::Keep,
            Some(None) => Self::Clear,
            Some(Some(value)) => Self::Set(value),
        }
    }
}

impl<T> From<Edit<T>> for Vec<Option<T>> {
    fn from(edit: Edit<T>) -> Self {
        match edit {
            Edit::Keep => Self::new(),
            Edit::Clear => vec![None],
            Edit::Set(value) => vec![Some(value)],
        }
    }
}

impl<T: Ord> From<SentList<T>> for ListEdit<T> {
    fn from((set, added, removed): SentList<T>) -> Self {
        match set {
            Some(all) => Self::Set(all),
            None if added.is_empty() && removed.is_empty() => Self::Keep,
            None => Self::Change { added, removed },
        }
    }
}

impl<T: Ord> From<ListEdit<T>> for SentList<T> {
    fn from(edit: ListEdit<T>) -> Self {
        match edit {
            ListEdit::Keep => (None, BTreeSet::new(), BTreeSet::new()),
            ListEdit::Set(all) => (Some(all), BTreeSet::new(), BTreeSet::new()),
            ListEdit::Change { added, removed } => (None, added, removed),
        }
    }
}

impl<T> Edit<T> {
    /// Does it change anything?
    pub const fn is_keep(&self) -> bool {
        matches!(self, Self::Keep)
    }

    /// Sets or unsets.
    pub fn on(self, value: &mut Option<T>) {
        match self {
            Self::Keep => {}
            Self::Clear => *value = None,
            Self::Set(new) => *value = Some(new),
        }
    }

    /// Sets, or sets to what there is when nothing is set.
    pub fn or_on(self, value: &mut T, unset: T) {
        match self {
            Self::Keep => {}
            Self::Clear => *value = unset,
            Self::Set(new) => *value = new,
        }
    }
}

/// Greatest amount that `+=` comes to (sacctmgr(1)).
const GREATEST: u64 = 18_446_744_073_709_551_600;

impl TresEdit {
    /// What the amount comes to.
    pub fn on(self, now: Option<u64>) -> Option<u64> {
        match self {
            Self::Clear => None,
            Self::Set(number) => Some(number.min(GREATEST)),
            Self::Add(number) => Some(now.unwrap_or(0).saturating_add(number).min(GREATEST)),
            Self::Subtract(number) => Some(now.unwrap_or(0).saturating_sub(number)),
        }
    }
}

impl<T: Ord + Clone> ListEdit<T> {
    /// Does it change nothing?
    pub const fn is_keep(&self) -> bool {
        matches!(self, Self::Keep)
    }

    /// All that it names.
    pub fn named(&self) -> impl Iterator<Item = &T> {
        let (some, others) = match self {
            Self::Keep => (None, None),
            Self::Set(all) => (Some(all), None),
            Self::Change { added, removed } => (Some(added), Some(removed)),
        };
        some.into_iter().flatten().chain(others.into_iter().flatten())
    }

    /// Changes the list.
    pub fn on(&self, list: &mut BTreeSet<T>) {
        match self {
            Self::Keep => {}
            Self::Set(all) => list.clone_from(all),
            Self::Change { added, removed } => {
                list.extend(added.iter().cloned());
                list.retain(|name| !removed.contains(name));
            }
        }
    }
}

impl AssocEdit {
    /// Does it set anything but `RawUsage`?
    pub fn sets_values(&self) -> bool {
        let without = Self { reset_usage: false, ..self.clone() };
        without != Self::default()
    }
}

impl AssocFilter {
    /// Does it name associations by more than the user or the account?
    pub const fn is_empty(&self) -> bool {
        self.clusters.is_empty()
            && self.accounts.is_empty()
            && self.users.is_empty()
            && self.partitions.is_empty()
            && self.parents.is_empty()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn edits_arrive_as_they_were_sent() {
        let edit = AssocEdit {
            shares: Edit::Set(Shares::Parent),
            priority: Edit::Clear,
            counts: [(Count::MaxJobs, None), (Count::GrpJobs, Some(3))].into(),
            tres: [(TresLimit::GrpTres, [("cpu".to_owned(), TresEdit::Add(2))].into())].into(),
            qos: ListEdit::Change { added: ["high".to_owned()].into(), removed: BTreeSet::new() },
            ..AssocEdit::default()
        };
        let sent = rmp_serde::to_vec_named(&edit).unwrap();
        assert_eq!(rmp_serde::from_slice::<AssocEdit>(&sent).unwrap(), edit);
        let flags =
            QosEdit { flags: ListEdit::Set(BTreeSet::new()), usage_factor: Edit::Set(0.5), ..QosEdit::default() };
        let sent = rmp_serde::to_vec_named(&flags).unwrap();
        assert_eq!(rmp_serde::from_slice::<QosEdit>(&sent).unwrap(), flags);
    }
}
