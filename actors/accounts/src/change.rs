//! Changes of accounts, users, associations, QOS and their limits, as `sacctmgr` asks for them. Pure: the entities, who asks and
//! the time are arguments. The service applies a change in one transaction.

use garrick_model::{entities::Entities, time::Timestamp};
use serde::{Deserialize, Serialize};

/// Who asks, as the service knows him.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Actor {
    /// His name.
    pub name: String,
    /// Root, `SlurmUser` or the service's own user: may do everything.
    pub believed: bool,
}

/// What is to be changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Change {}

/// What a change came to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Applied {
    /// What was done, for the list of transactions.
    pub transactions: Vec<Transaction>,
    /// What is told to the one who asked, a line each.
    pub affected: Vec<String>,
}

/// A line of the list of transactions (`sacctmgr show transactions`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transaction {
    /// When.
    pub time: Timestamp,
    /// `Add Users`.
    pub action: String,
    /// Who asked.
    pub actor: String,
    /// Of what.
    pub target: String,
    /// What was set.
    pub info: String,
    /// Names of clusters, accounts and users that it is about, to look them up by.
    pub about: Vec<String>,
}

/// Why nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ChangeRefusal {
    /// The user may not.
    Denied,
    /// The entities are not those any more that the user was shown.
    Outdated,
}

/// Applies a change. After an error the entities may be partly changed: they are thrown away.
pub fn apply(
    _entities: &mut Entities,
    change: &Change,
    _actor: &Actor,
    _now: Timestamp,
) -> Result<Applied, ChangeRefusal> {
    match *change {}
}

pub fn fresh(_now: Timestamp) -> Entities {
    Entities::default()
}
pub fn register_cluster(e: &mut Entities, name: &str, _now: Timestamp) {
    e.clusters.entry(name.to_owned()).or_default();
}
pub fn register_tres(_e: &mut Entities, _name: &str) {}
