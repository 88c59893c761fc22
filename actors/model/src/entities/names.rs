//! Clusters, accounts, users, WCKeys, TRES and licenses, as accounting keeps them.

use crate::time::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// A cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cluster {
    /// `ClusterName`.
    pub name: String,
    /// Number, as `sacctmgr show cluster format=id` shows it.
    #[serde(default)]
    pub id: u32,
    /// Address and port of its controller when it last came; `None`: it has not come yet.
    #[serde(default)]
    pub control: Option<(String, u16)>,
    /// `Classification`.
    #[serde(default)]
    pub classification: String,
    /// `Federation`.
    #[serde(default)]
    pub federation: String,
    /// Its number in the federation, from 1; 0: it is in none.
    #[serde(default)]
    pub fed_index: u32,
    /// `FedState`.
    #[serde(default)]
    pub fed_state: FedState,
    /// `Features`.
    #[serde(default)]
    pub features: BTreeSet<String>,
    /// `Flags`.
    #[serde(default)]
    pub flags: BTreeSet<String>,
    /// Nodes, as a host list.
    #[serde(default)]
    pub nodes: String,
    /// Its TRES, by name.
    #[serde(default)]
    pub tres: BTreeMap<String, u64>,
    /// Kept only since jobs refer to it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deleted: bool,
    /// When it came.
    #[serde(default)]
    pub created: Timestamp,
}

impl Cluster {
    /// `FedState`; `None`: it is in no federation.
    pub fn shown_fed_state(&self) -> Option<FedState> {
        (self.fed_index > 0).then_some(self.fed_state)
    }
}

/// `FedState`: what a cluster does in its federation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum FedState {
    /// It takes and schedules jobs of the federation.
    #[default]
    Active,
    /// It does neither.
    Inactive,
    /// It takes no more.
    Drain,
    /// The same, until it leaves the federation.
    DrainRemove,
}

impl FedState {
    /// As sacctmgr(1) has it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Active => "ACTIVE",
            Self::Inactive => "INACTIVE",
            Self::Drain => "DRAIN",
            Self::DrainRemove => "DRAIN+REMOVE",
        }
    }

    /// As `sacctmgr list cluster format=fedstateraw` of Slurm 22.05.8 has it; of a cluster without a federation that is 0.
    pub const fn number(self) -> u32 {
        match self {
            Self::Active => 1,
            Self::Inactive => 2,
            Self::Drain => 17,
            Self::DrainRemove => 49,
        }
    }

    /// That of a word.
    pub fn of(word: &str) -> Option<Self> {
        let all = [Self::Active, Self::Inactive, Self::Drain, Self::DrainRemove];
        all.into_iter().find(|state| state.word().eq_ignore_ascii_case(word))
    }
}

/// Clusters that belong together. Which ones do is kept with them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Federation {
    /// Name.
    pub name: String,
    /// When it came.
    #[serde(default)]
    pub created: Timestamp,
    /// It was deleted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deleted: bool,
}

/// An account.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// Name.
    pub name: String,
    /// `Description`.
    #[serde(default)]
    pub description: String,
    /// `Organization`.
    #[serde(default)]
    pub organization: String,
    /// Users who coordinate it. They coordinate the accounts below it too.
    #[serde(default)]
    pub coordinators: BTreeSet<String>,
    /// `UsersAreCoords`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub users_are_coordinators: bool,
    /// Kept only since jobs refer to it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deleted: bool,
}

/// `AdminLevel`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum AdminLevel {
    /// `None`.
    #[default]
    None,
    /// `Operator`: may change what jobs are measured by, but not administrators.
    Operator,
    /// `Administrator`: may everything.
    Administrator,
}

/// A user.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// Name.
    pub name: String,
    /// `AdminLevel`.
    #[serde(default)]
    pub admin: AdminLevel,
    /// Earlier name.
    #[serde(default)]
    pub old_name: String,
    /// Kept only since jobs refer to it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deleted: bool,
}

/// A workload characterization key of a user on a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WcKey {
    /// Number.
    pub id: u32,
    /// Cluster.
    pub cluster: String,
    /// Name.
    pub name: String,
    /// User.
    pub user: String,
    /// His jobs have it unless they name one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_default: bool,
    /// Kept only since jobs refer to it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deleted: bool,
}

/// A kind of trackable resource. 1 to 8 are `cpu`, `mem`, `energy`, `node`, `billing`, `fs/disk`, `vmem`, `pages`; others begin at
/// 1001.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TresRecord {
    /// Number.
    pub id: u32,
    /// `cpu`, `gres`, `license`.
    pub kind: String,
    /// `gpu`; empty where the kind has no names.
    #[serde(default)]
    pub name: String,
}

/// Licenses of a server, divided among clusters (`sacctmgr add resource`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resource {
    /// Number.
    pub id: u32,
    /// Name.
    pub name: String,
    /// `Server`.
    pub server: String,
    /// `ServerType`.
    #[serde(default)]
    pub server_type: String,
    /// `Description`.
    #[serde(default)]
    pub description: String,
    /// `Count`.
    #[serde(default)]
    pub count: u32,
    /// `LastConsumed`.
    #[serde(default)]
    pub last_consumed: u32,
    /// `Flags=Absolute`: what clusters are allowed are numbers, not percentages.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub absolute: bool,
    /// What each cluster is allowed.
    #[serde(default)]
    pub allowed: BTreeMap<String, u32>,
    /// When it was changed last.
    #[serde(default)]
    pub changed: Timestamp,
    /// Kept only since jobs refer to it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deleted: bool,
}
