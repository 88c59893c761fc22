//! Why nothing was changed. Facts only: `sacctmgr` has the words.

use super::{AssocName, active::ActiveJob};
use serde::{Deserialize, Serialize};

/// Why nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ChangeRefusal {
    /// The user may not.
    Denied,
    /// He neither administers nor coordinates anything, and that is what it takes to add accounts and users.
    NotEvenCoordinator,
    /// A coordinator may not give more than the account above has.
    BeyondParent,
    /// Only administrators set `AdminLevel`.
    AdminLevel,
    /// The entities are not those any more that the user was shown.
    Outdated,
    /// Everything that was to be added is there already.
    NothingAdded {
        /// Accounts that are not there, with their clusters.
        missing: Vec<(String, String)>,
    },
    /// Nothing is as the conditions say.
    NothingModified,
    /// Nothing is as the conditions say.
    NothingDeleted,
    /// These accounts are on these clusters already.
    AccountsExist(Vec<(String, String)>),
    /// That cluster is there already.
    ClusterExists(String),
    /// There is no such cluster.
    NoCluster(String),
    /// There is no such federation.
    NoFederation(String),
    /// A cluster is in another federation.
    InFederation {
        /// Cluster.
        cluster: String,
        /// The federation that it is in.
        federation: String,
    },
    /// There is no cluster at all.
    NoClusters,
    /// There is no such account to be the parent on that cluster.
    NoParent {
        /// Account.
        parent: String,
        /// Cluster.
        cluster: String,
    },
    /// There is no such account.
    NoAccount(String),
    /// There is no such user.
    NoUser(String),
    /// There is no such QOS.
    NoQos(String),
    /// There is no such kind of trackable resource.
    NoTres(String),
    /// Associations would have a default QOS that they may not use.
    DefaultQos(Vec<(AssocName, String)>),
    /// Users would lose the account that is their default, and keep others.
    DefaultAccount(Vec<AssocName>),
    /// Jobs use what was to be removed: these, and maybe more.
    JobsActive(Vec<ActiveJob>),
    /// These users are not in the account that was to be their default on these clusters.
    NotInAccount {
        /// Account.
        account: String,
        /// User and cluster.
        users: Vec<(String, String)>,
    },
    /// These users do not have the key that was to be their default on these clusters.
    NotInWcKey {
        /// Key.
        wckey: String,
        /// User and cluster.
        users: Vec<(String, String)>,
        /// The user who asks may not set it.
        denied: bool,
    },
    /// The account at the top of a cluster cannot be removed or moved.
    RootAccount,
    /// An account cannot be below itself.
    Loop {
        /// The account that was to be above.
        parent: String,
        /// The account that is above it now.
        account: String,
        /// Cluster.
        cluster: String,
    },
    /// QOS would preempt each other in a circle.
    PreemptLoop,
    /// A resource that is added needs a count.
    NoCount(String),
    /// Clusters would be allowed more of a resource than there is.
    OverAllocated(String),
    /// A name or value that cannot be.
    Invalid(String),
}
