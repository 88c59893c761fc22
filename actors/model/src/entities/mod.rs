//! What accounting knows of who may use how much: clusters, accounts, users, associations, qualities of service (QOS), and their
//! limits, as in sacctmgr(1). The service of accounting owns them; each controller works with a copy ([`Entities`]), also while the
//! service is away. Names of accounts, users and QOS are in lower case.
//!
//! | module | what it is |
//! |---|---|
//! | [`limits`] | limits of associations and QOS |
//! | [`association`] | a user in an account on a cluster, and the accounts themselves |
//! | [`coordinators`] | who coordinates which accounts |
//! | [`qos`] | qualities of service |
//! | [`remote`] | licenses of servers, as a cluster has them |
//! | [`relative`] | QOS whose limits are percentages |
//! | [`reasons`] | why a job waits for one of them |
//! | [`used`] | what somebody has used |
//! | [`names`] | clusters, accounts, users, workload characterization keys (WCKeys), trackable resources (TRES), licenses |

pub mod association;
pub mod coordinators;
pub mod limits;
pub mod names;
pub mod qos;
pub mod reasons;
pub mod relative;
pub mod remote;
pub mod used;

use self::{
    association::{AssocId, Association, Effective},
    names::{Account, Cluster, Federation, Resource, TresRecord, User, WcKey},
    qos::QosRecord,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The account at the top of each cluster's tree.
pub const ROOT: &str = "root";
/// The QOS that there always is.
pub const NORMAL: &str = "normal";

/// Everything that is known, also what was deleted while jobs refer to it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Entities {
    /// Grows with every change.
    pub version: u64,
    /// Trackable resources, by number.
    #[serde(default)]
    pub tres: BTreeMap<u32, TresRecord>,
    /// By name.
    #[serde(default)]
    pub clusters: BTreeMap<String, Cluster>,
    /// By name.
    #[serde(default)]
    pub federations: BTreeMap<String, Federation>,
    /// By name.
    #[serde(default)]
    pub accounts: BTreeMap<String, Account>,
    /// By name.
    #[serde(default)]
    pub users: BTreeMap<String, User>,
    /// By name.
    #[serde(default)]
    pub qos: BTreeMap<String, QosRecord>,
    /// By number.
    #[serde(default)]
    pub associations: BTreeMap<AssocId, Association>,
    /// By number.
    #[serde(default)]
    pub wckeys: BTreeMap<u32, WcKey>,
    /// By number.
    #[serde(default)]
    pub resources: BTreeMap<u32, Resource>,
}

impl Entities {
    /// The living association of a user in an account, for that partition if there is one for it, else for all partitions.
    pub fn association(
        &self,
        cluster: &str,
        account: &str,
        user: &str,
        partition: Option<&str>,
    ) -> Option<&Association> {
        let of_user = |a: &&Association| a.account == account && a.user.as_deref() == Some(user);
        let named = |a: &&Association| partition.is_some() && a.partition.as_deref() == partition;
        let named = self.living(cluster).filter(of_user).find(named);
        named.or_else(|| self.living(cluster).filter(of_user).find(|a| a.partition.is_none()))
    }

    /// The living associations of a cluster, by number.
    pub fn living<'a, 'c>(&'a self, cluster: &'c str) -> impl Iterator<Item = &'a Association> + use<'a, 'c> {
        self.associations.values().filter(move |a| !a.deleted && a.cluster == cluster)
    }

    /// The association of an account itself.
    pub fn account_association(&self, cluster: &str, account: &str) -> Option<&Association> {
        self.living(cluster).find(|a| a.account == account && a.user.is_none())
    }

    /// The association itself, then its parents up to the root.
    pub fn lineage(&self, id: AssocId) -> impl Iterator<Item = &Association> {
        // A tree is not deeper than it has members: a loop in damaged data ends as well.
        let longest = self.associations.len();
        std::iter::successors(self.associations.get(&id), |a| self.associations.get(&a.parent?)).take(longest)
    }

    /// The account in which a user's jobs run that name none.
    pub fn default_account(&self, cluster: &str, user: &str) -> Option<&str> {
        let default = self.living(cluster).find(|a| a.is_default && a.user.as_deref() == Some(user));
        default.map(|a| a.account.as_str())
    }

    /// What a cluster's controller works with: the associations and keys of its cluster, and nothing that was deleted.
    #[must_use]
    pub fn of_cluster(&self, cluster: &str) -> Self {
        let mut of = self.clone();
        of.clusters.retain(|name, known| name == cluster && !known.deleted);
        // Nothing is scheduled by them.
        of.federations.clear();
        of.accounts.retain(|_, account| !account.deleted);
        of.users.retain(|_, user| !user.deleted);
        of.qos.retain(|_, qos| !qos.deleted);
        of.associations.retain(|_, association| association.cluster == cluster && !association.deleted);
        of.wckeys.retain(|_, key| key.cluster == cluster && !key.deleted);
        of.resources.retain(|_, resource| !resource.deleted);
        of
    }

    /// Living clusters of a federation, in the order of their numbers in it.
    pub fn in_federation(&self, name: &str) -> Vec<&Cluster> {
        let members = self.clusters.values().filter(|cluster| !cluster.deleted && cluster.federation == name);
        let mut members: Vec<&Cluster> = members.collect();
        members.sort_by_key(|cluster| cluster.fed_index);
        members
    }

    /// What holds for an association, with what it inherits.
    pub fn effective(&self, id: AssocId) -> Effective {
        Effective::of(self.lineage(id), self.associations.get(&id).and_then(|a| self.clusters.get(&a.cluster)))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::{association::QosList, limits::Count, *};

    fn tree() -> Entities {
        let assoc = |id, parent: Option<u32>, account: &str, user: Option<&str>| Association {
            id: AssocId(id),
            cluster: "c".to_owned(),
            account: account.to_owned(),
            user: user.map(str::to_owned),
            parent: parent.map(AssocId),
            is_default: user.is_some(),
            ..Association::default()
        };
        let mut root = assoc(1, None, ROOT, None);
        root.qos.own = Some(std::iter::once(NORMAL.to_owned()).collect());
        root.limits.counts.insert(Count::MaxJobs, 9);
        let mut physics = assoc(2, Some(1), "physics", None);
        physics.limits.counts.insert(Count::GrpJobs, 4);
        physics.qos = QosList { own: None, added: ["high".to_owned()].into(), removed: [].into() };
        let mut alice = assoc(3, Some(2), "physics", Some("alice"));
        alice.limits.counts.insert(Count::MaxWall, 60);
        Entities { associations: [root, physics, alice].map(|a| (a.id, a)).into(), ..Entities::default() }
    }

    #[test]
    fn what_is_not_set_comes_from_above_but_for_groups() {
        let of_alice = tree().effective(AssocId(3));
        assert_eq!(of_alice.limits.count(Count::MaxJobs), Some(9));
        assert_eq!(of_alice.limits.count(Count::MaxWall), Some(60));
        assert_eq!(of_alice.limits.count(Count::GrpJobs), None);
        assert_eq!(of_alice.qos.into_iter().collect::<Vec<_>>(), ["high", NORMAL]);
    }

    #[test]
    fn an_association_for_a_partition_goes_before_that_for_all() {
        let mut entities = tree();
        let of = |entities: &Entities, part| entities.association("c", "physics", "alice", part).map(|a| a.id.0);
        assert_eq!((of(&entities, Some("short")), of(&entities, None)), (Some(3), Some(3)));
        let mut short = entities.associations[&AssocId(3)].clone();
        (short.id, short.partition) = (AssocId(4), Some("short".to_owned()));
        entities.associations.insert(short.id, short);
        assert_eq!((of(&entities, Some("short")), of(&entities, None)), (Some(4), Some(3)));
        assert_eq!(entities.default_account("c", "alice"), Some("physics"));
        assert_eq!(entities.association("d", "physics", "alice", None), None);
    }
}
