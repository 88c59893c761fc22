//! What `sshare` and `scontrol show assoc_mgr` show: the controller's copy of associations, QOS and users, with what was used and what is
//! in use.

use crate::entities::{association::Association, limits::Amounts, names::AdminLevel, qos::QosRecord};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What jobs have now, and have asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Load {
    /// Running jobs.
    pub jobs: u64,
    /// Waiting jobs that gain priority by age.
    pub accruing: u64,
    /// Waiting and running jobs.
    pub submitted: u64,
    /// What running ones have, by the name of the TRES.
    pub tres: Amounts,
    /// That, times the seconds that they may still run.
    pub left_secs: Amounts,
}

/// An association in the order of the tree: an account, its users, then its accounts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AssocView {
    /// It.
    pub association: Association,
    /// Levels below the root.
    pub depth: u32,
    /// The accounts above it, the highest first, without the root and with its own.
    pub lineage: Vec<String>,
    /// Name of the account above.
    pub above: Option<String>,
    /// Its part of the shares, 0 to 1.
    pub norm_shares: f64,
    /// Its part of all usage, 0 to 1.
    pub norm_usage: f64,
    /// The usage that counts, 0 to 1.
    pub effective: f64,
    /// Level fair share, 0 to infinity.
    pub level: f64,
    /// Shares of all with the same account above.
    pub level_shares: u64,
    /// Fair-share factor, 0 to 1.
    pub factor: Option<f64>,
    /// Amounts times seconds that were used, by the name of the TRES.
    pub used: BTreeMap<String, f64>,
    /// Seconds of jobs.
    pub wall_secs: f64,
    /// What is in use now.
    pub load: Load,
}

/// A QOS.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QosView {
    /// It.
    pub record: QosRecord,
    /// Amounts times seconds that were used, by the name of the TRES.
    #[serde(default)]
    pub used: BTreeMap<String, f64>,
    /// Seconds of jobs.
    #[serde(default)]
    pub wall_secs: f64,
    /// What is in use now.
    #[serde(default)]
    pub load: Load,
    /// That by account.
    #[serde(default)]
    pub by_account: BTreeMap<String, Load>,
    /// That by user.
    #[serde(default)]
    pub by_user: BTreeMap<String, Load>,
}

/// A user.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UserView {
    /// Name.
    pub name: String,
    /// Account for jobs that name none.
    pub default_account: Option<String>,
    /// WCKey for jobs that name none.
    pub default_wckey: Option<String>,
    /// `AdminLevel`.
    pub admin: AdminLevel,
}

/// What the controller knows of accounting.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SharesBoard {
    /// Fair Tree is the algorithm.
    pub fair_tree: bool,
    /// Names of all TRES, in the order of their numbers.
    pub tres: Vec<String>,
    /// Associations that the asker may see.
    pub associations: Vec<AssocView>,
    /// QOS by number; only for `ShowAssociations`.
    pub qos: Vec<QosView>,
    /// Users by name; only for `ShowAssociations`.
    pub users: Vec<UserView>,
}
