//! Associations: the tree of a cluster's accounts, and the users in them.

use super::{limits::Limits, names::Cluster, used::Who};
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Number of an association: unique in the service, never used again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AssocId(pub u32);

/// `Fairshare`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Shares {
    /// So many among those with the same parent.
    Number(u32),
    /// `parent`: of a user, the shares of the account; of an account, its members count as those of its parent.
    Parent,
}

impl Default for Shares {
    fn default() -> Self {
        Self::Number(1)
    }
}

/// Which QOS an association may use: its own list, or that from above with changes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QosList {
    /// `QOS=`; `None`: that from above.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own: Option<BTreeSet<String>>,
    /// `QOS+=`.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub added: BTreeSet<String>,
    /// `QOS-=`.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub removed: BTreeSet<String>,
}

/// An account on a cluster, or a user in it, perhaps for one partition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Association {
    /// Number.
    pub id: AssocId,
    /// Cluster.
    pub cluster: String,
    /// Account.
    pub account: String,
    /// User; `None`: the account itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// For this partition only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<String>,
    /// The account's association above: of a user, that of the account. `None`: the root of the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<AssocId>,
    /// `Fairshare`.
    #[serde(default)]
    pub shares: Shares,
    /// `Priority`; `None`: that from above.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u32>,
    /// Limits that are set here.
    #[serde(default)]
    pub limits: Limits,
    /// `DefaultQOS` that is set here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_qos: Option<String>,
    /// `QOS`.
    #[serde(default)]
    pub qos: QosList,
    /// `Comment`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub comment: String,
    /// Of a user: his jobs run in this account on this cluster unless they name one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_default: bool,
    /// `UsersAreCoords`: users in it coordinate it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub users_are_coordinators: bool,
    /// Kept only since jobs refer to it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deleted: bool,
    /// When it came.
    #[serde(default)]
    pub created: Timestamp,
    /// When it was last changed.
    #[serde(default)]
    pub modified: Timestamp,
    /// When its past use was last set to 0 (`RawUsage=0`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage_reset: Option<Timestamp>,
}

/// What holds for an association: its own values, and where it has none those from above.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effective {
    /// `Priority`.
    pub priority: Option<u32>,
    /// Limits. Of groups only its own: those above count by themselves.
    pub limits: Limits,
    /// `DefaultQOS`.
    pub default_qos: Option<String>,
    /// QOS that may be used.
    pub qos: BTreeSet<String>,
}

impl Association {
    /// Under which names its usage is counted; `None`: it is that of an account, whose usage is that of its users.
    pub fn who(&self) -> Option<Who> {
        let user = self.user.clone()?;
        Some(Who { account: self.account.clone(), user, partition: self.partition.clone() })
    }
}

impl Effective {
    /// From the association, its parents in order, and the cluster, which is above the root.
    pub(super) fn of<'a>(lineage: impl Iterator<Item = &'a Association>, cluster: Option<&Cluster>) -> Self {
        let mut effective = Self::default();
        let mut lists = Vec::new();
        for association in lineage {
            if lists.is_empty() {
                effective.limits = association.limits.clone();
            } else {
                effective.limits.inherit(&association.limits);
            }
            effective.priority = effective.priority.or(association.priority);
            effective.default_qos = effective.default_qos.take().or_else(|| association.default_qos.clone());
            lists.push(&association.qos);
        }
        // From the top down: each list, or the one from above with its changes.
        for list in lists.into_iter().rev() {
            effective.qos = list.over(std::mem::take(&mut effective.qos));
        }
        if effective.qos.is_empty() && cluster.is_some() {
            effective.qos.insert(super::NORMAL.to_owned());
        }
        effective
    }
}

impl QosList {
    /// The list that comes to with that from above.
    pub fn over(&self, above: BTreeSet<String>) -> BTreeSet<String> {
        let mut list = self.own.clone().unwrap_or(above);
        list.extend(self.added.iter().cloned());
        list.retain(|name| !self.removed.contains(name));
        list
    }
}
