//! Changes of accounts, users, associations, QOS and their limits, as `sacctmgr` asks for them. Pure: the entities, who asks and
//! the time are arguments. The service applies a change in one transaction.
//!
//! What a change does and who may do it follows sacctmgr(1) and what sacctmgr 26.05 answers. Coordinators act within the accounts
//! that they coordinate and below, and never give more than these accounts have.
//!
//! | module | what it is |
//! |---|---|
//! | [`edit`] | values to be set: limits, shares, QOS lists |
//! | [`refusal`] | why nothing was changed |
//! | [`fresh`] | what there is before the first change |
//! | [`active`] | what jobs keep from being removed |
//! | `rights` | who may |
//! | `bounds` | what coordinators leave to others at most |
//! | `tree` | names and order of associations |
//! | `associations` | setting values of associations, with what is checked after each change |
//! | `clusters`, `accounts`, `users`, `user_edits`, `qos`, `coordinators`, `wckeys`, `resources`, `federations` | what is done for each kind |

mod accounts;
pub mod active;
mod associations;
mod bounds;
#[cfg(test)]
mod bounds_test;
#[cfg(test)]
mod change_test;
mod clusters;
mod coordinators;
pub mod edit;
mod federations;
pub mod fresh;
mod qos;
pub mod refusal;
mod resources;
mod rights;
mod tree;
mod user_edits;
mod users;
mod wckeys;
mod work;

pub use self::{
    fresh::{fresh, register_cluster, register_cluster_by, register_tres},
    refusal::ChangeRefusal,
    tree::{AssocName, in_order},
};

use self::{
    edit::{
        AccountEdit, AssocEdit, AssocFilter, ClusterEdit, ListEdit, QosEdit, ResourceEdit, ResourceFilter, UserEdit,
    },
    work::Work,
};
use garrick_model::{
    entities::{Entities, names::AdminLevel},
    time::Timestamp,
};
use serde::{Deserialize, Serialize};

/// Who asks, as the service knows him.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Actor {
    /// His name.
    pub name: String,
    /// Root, `SlurmUser` or the service's own user: may do everything.
    pub believed: bool,
}

/// What a site says of changes in `slurmdbd.conf`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// `DisableCoordDBD`: coordinators change nothing.
    pub no_coordinators: bool,
    /// `AllResourcesAbsolute`: what clusters are allowed of a new resource is a number, not a percentage.
    pub resources_absolute: bool,
    /// `DefaultQOS`: the QOS of a cluster that is added without any.
    pub default_qos: Option<String>,
    /// `AllowNoDefAcct`: users may keep associations without a default account.
    pub no_default_account: bool,
}

/// What is to be changed: one action after the other, all or nothing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// In their order.
    pub actions: Vec<Action>,
}

impl From<Action> for Change {
    fn from(action: Action) -> Self {
        Self { actions: vec![action] }
    }
}

/// One action. Names come in any case and are kept in lower case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Action {
    /// `add cluster`.
    AddClusters {
        /// Names.
        names: Vec<String>,
        /// Facts of them.
        cluster: ClusterEdit,
        /// Values of their root associations.
        edit: AssocEdit,
    },
    /// `modify cluster`.
    ModifyClusters {
        /// Which; empty: all.
        names: Vec<String>,
        /// Facts of them.
        cluster: ClusterEdit,
        /// Values of their root associations.
        edit: AssocEdit,
    },
    /// `delete cluster`.
    DeleteClusters(Vec<String>),
    /// `add account`.
    AddAccounts(AddAccounts),
    /// `modify account`.
    ModifyAccounts {
        /// Which.
        filter: AssocFilter,
        /// Facts of the accounts.
        account: AccountEdit,
        /// The account above from now on.
        parent: Option<String>,
        /// Values of their associations.
        edit: AssocEdit,
    },
    /// `delete account`: with the associations below.
    DeleteAccounts(AssocFilter),
    /// `add user`.
    AddUsers(AddUsers),
    /// `modify user`.
    ModifyUsers {
        /// Which.
        filter: AssocFilter,
        /// Facts of the users.
        user: UserEdit,
        /// Values of their associations.
        edit: AssocEdit,
    },
    /// `delete user`: whole users, or their associations that the filter names by more than the user.
    DeleteUsers(AssocFilter),
    /// `add qos`.
    AddQos {
        /// Names.
        names: Vec<String>,
        /// Values.
        edit: QosEdit,
    },
    /// `modify qos`.
    ModifyQos {
        /// Which; empty: all.
        names: Vec<String>,
        /// Values.
        edit: QosEdit,
    },
    /// `delete qos`.
    DeleteQos(Vec<String>),
    /// `add coordinator`.
    AddCoordinators {
        /// Accounts.
        accounts: Vec<String>,
        /// Users.
        users: Vec<String>,
    },
    /// `delete coordinator`.
    DeleteCoordinators {
        /// Accounts; empty: all.
        accounts: Vec<String>,
        /// Users; empty: all.
        users: Vec<String>,
    },
    /// `add resource`.
    AddResources {
        /// Names.
        names: Vec<String>,
        /// Server.
        server: String,
        /// Clusters that may use it.
        clusters: Vec<String>,
        /// Values.
        edit: ResourceEdit,
    },
    /// `modify resource`: with clusters what these are allowed, else the resource itself.
    ModifyResources {
        /// Which.
        filter: ResourceFilter,
        /// Values.
        edit: ResourceEdit,
    },
    /// `delete resource`: with clusters what these are allowed, else the resource itself.
    DeleteResources(ResourceFilter),
    /// `add federation`.
    AddFederations {
        /// Names.
        names: Vec<String>,
        /// Clusters that are in it.
        clusters: Vec<String>,
    },
    /// `modify federation`.
    ModifyFederations {
        /// Which; empty: all.
        names: Vec<String>,
        /// Clusters that are in it.
        clusters: ListEdit<String>,
    },
    /// `delete federation`.
    DeleteFederations(Vec<String>),
}

/// `add account`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AddAccounts {
    /// Names.
    pub names: Vec<String>,
    /// On these clusters; empty: on all.
    pub clusters: Vec<String>,
    /// The account above; `None`: root.
    pub parent: Option<String>,
    /// Facts of new accounts.
    pub account: AccountEdit,
    /// Values of their associations.
    pub edit: AssocEdit,
}

/// `add user`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AddUsers {
    /// Names.
    pub names: Vec<String>,
    /// In these accounts.
    pub accounts: Vec<String>,
    /// On these clusters; empty: on all.
    pub clusters: Vec<String>,
    /// For these partitions; empty: for all.
    pub partitions: Vec<String>,
    /// `DefaultAccount`; `None`: the first of the accounts, for those who have none.
    pub default_account: Option<String>,
    /// `AdminLevel`.
    pub admin: Option<AdminLevel>,
    /// `WCKeys`.
    pub wckeys: Vec<String>,
    /// `DefaultWCKey`; `None`: the last of the keys, for those who have none.
    pub default_wckey: Option<String>,
    /// Values of their associations.
    pub edit: AssocEdit,
}

/// What a change came to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Applied {
    /// What was done, for the list of transactions.
    pub transactions: Vec<Transaction>,
    /// What it was done to, in the order in which it is told to the one who asked.
    pub affected: Vec<Affected>,
}

/// Something that was changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Affected {
    /// A cluster itself.
    Cluster(String),
    /// An account itself.
    Account(String),
    /// A user himself.
    User(String),
    /// A QOS.
    Qos(String),
    /// An association.
    Association {
        /// Which.
        name: AssocName,
        /// Of an account that was changed itself: the account that was above it before.
        parent: Option<String>,
    },
    /// A federation.
    Federation(String),
    /// A workload characterization key.
    WcKey {
        /// Cluster.
        cluster: String,
        /// Name.
        name: String,
        /// User.
        user: String,
    },
    /// A coordinator of an account.
    Coordinator {
        /// User.
        user: String,
        /// Account.
        account: String,
    },
    /// A resource itself.
    Resource {
        /// Name.
        name: String,
        /// Server.
        server: String,
    },
    /// What a cluster is allowed of a resource.
    Allowed {
        /// Cluster.
        cluster: String,
        /// Name.
        name: String,
        /// Server.
        server: String,
    },
    /// Not changed: there is no such account on that cluster.
    NoAccount {
        /// Account.
        account: String,
        /// Cluster.
        cluster: String,
    },
    /// The past use of associations or of a QOS was set to 0 on that cluster.
    UsageReset {
        /// Cluster.
        cluster: String,
    },
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

/// Applies a change. After an error the entities may be partly changed: they are thrown away.
///
/// # Errors
/// The actor may not, what it names is not there, or it would break a rule: among them that who is no operator leaves nobody with more
/// than he had, or than the account above him has.
pub fn apply(
    entities: &mut Entities,
    change: &Change,
    actor: &Actor,
    now: Timestamp,
) -> Result<Applied, ChangeRefusal> {
    apply_by(&Rules::default(), entities, change, actor, now)
}

/// The same by a site's rules.
///
/// # Errors
/// As [`apply`].
pub fn apply_by(
    rules: &Rules,
    entities: &mut Entities,
    change: &Change,
    actor: &Actor,
    now: Timestamp,
) -> Result<Applied, ChangeRefusal> {
    let mut work = Work::new(entities, actor, rules, now);
    let before = (!work.is_operator()).then(|| (work.entities.coordinated_by(&actor.name), work.entities.clone()));
    change.actions.iter().try_for_each(|action| work.act(action))?;
    let applied = work.finish();
    if let Some((coordinated, before)) = before {
        bounds::check(&before, entities, &coordinated)?;
    }
    entities.version += 1;
    Ok(applied)
}
