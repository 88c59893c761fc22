//! What there is before the first change, and what a controller brings when it registers.

use super::{Rules, tree};
use garrick_model::{
    entities::{
        Entities, NORMAL, ROOT,
        association::{Association, QosList},
        names::{Account, AdminLevel, Cluster, TresRecord, User},
        qos::QosRecord,
    },
    time::Timestamp,
};
use std::collections::BTreeMap;

/// Trackable resources that there always are: kind and name, 1 to 8 (Slurm's page on TRES).
const FIXED_TRES: [(&str, &str); 8] = [
    ("cpu", ""),
    ("mem", ""),
    ("energy", ""),
    ("node", ""),
    ("billing", ""),
    ("fs", "disk"),
    ("vmem", ""),
    ("pages", ""),
];
/// Number of the first other one.
const FIRST_TRES: u32 = 1001;

/// A database in which nothing was done yet: account and user `root`, QOS `normal`, and the kinds of TRES that there always are.
pub fn fresh(now: Timestamp) -> Entities {
    let mut entities = Entities { version: 1, ..Entities::default() };
    for (id, (kind, name)) in (1..).zip(FIXED_TRES) {
        entities.tres.insert(id, TresRecord { id, kind: kind.to_owned(), name: name.to_owned() });
    }
    let normal = QosRecord {
        description: "Normal QOS default".to_owned(),
        created: now,
        modified: now,
        ..QosRecord::new(1, NORMAL)
    };
    entities.qos.insert(NORMAL.to_owned(), normal);
    entities.accounts.insert(
        ROOT.to_owned(),
        Account {
            name: ROOT.to_owned(),
            description: "default root account".to_owned(),
            organization: ROOT.to_owned(),
            ..Account::default()
        },
    );
    entities
        .users
        .insert(ROOT.to_owned(), User { name: ROOT.to_owned(), admin: AdminLevel::Administrator, ..User::default() });
    entities
}

/// A cluster's controller registers: the cluster comes with the associations of its root account and of user root in it if it is not
/// there, and its TRES are noted. What was changed by hand stays. Changes nothing, also not the version, if all is there as it is.
pub fn register_cluster(entities: &mut Entities, name: &str, now: Timestamp, tres: &BTreeMap<String, u64>) {
    let mut changed = register_tres(entities, tres.keys().map(String::as_str));
    if entities.clusters.get(name).is_none_or(|cluster| cluster.deleted) {
        add_cluster(entities, name, now);
        if entities.users.get(ROOT).is_some_and(|user| !user.deleted) {
            add_root_user(entities, name, now);
        }
        changed = true;
    }
    if let Some(cluster) = entities.clusters.get_mut(name).filter(|cluster| cluster.tres != *tres) {
        cluster.tres.clone_from(tres);
        changed = true;
    }
    entities.version += u64::from(changed);
}

/// The same by a site's rules: a cluster that comes has the QOS that they name, if that is there.
pub fn register_cluster_by(
    rules: &Rules,
    entities: &mut Entities,
    name: &str,
    now: Timestamp,
    tres: &BTreeMap<String, u64>,
) {
    let is_new = entities.clusters.get(name).is_none_or(|cluster| cluster.deleted);
    register_cluster(entities, name, now, tres);
    let default = rules.default_qos.as_ref().map(|name| name.to_lowercase()).filter(|_| is_new);
    let Some(default) = default.filter(|name| entities.qos.get(name).is_some_and(|qos| !qos.deleted)) else { return };
    let root = entities.account_association(name, ROOT).map(|root| root.id);
    if let Some(root) = root.and_then(|id| entities.associations.get_mut(&id)) {
        root.qos = QosList { own: Some([default].into()), ..QosList::default() };
    }
}

/// Adds kinds of TRES by name (`gres/gpu`, `license/matlab`). Says whether any was new.
pub fn register_tres<'a>(entities: &mut Entities, names: impl IntoIterator<Item = &'a str>) -> bool {
    let mut new = false;
    for name in names {
        if tree::is_tres(entities, name) || name.is_empty() {
            continue;
        }
        let (kind, name) = name.split_once('/').unwrap_or((name, ""));
        let id = entities.tres.keys().last().map_or(FIRST_TRES, |last| (last + 1).max(FIRST_TRES));
        entities.tres.insert(id, TresRecord { id, kind: kind.to_owned(), name: name.to_owned() });
        new = true;
    }
    new
}

/// A cluster with the association of its root account.
pub(super) fn add_cluster(entities: &mut Entities, name: &str, now: Timestamp) {
    let next = || entities.clusters.values().map(|c| c.id.saturating_add(1)).max().unwrap_or(0);
    // Where its controller is and what it has does not go with a cluster that is deleted and added again.
    let cluster = match entities.clusters.get(name) {
        Some(Cluster { id, control, nodes, tres, .. }) => Cluster {
            id: *id,
            control: control.clone(),
            nodes: nodes.clone(),
            tres: tres.clone(),
            ..Cluster::default()
        },
        None => Cluster { id: next(), ..Cluster::default() },
    };
    entities.clusters.insert(name.to_owned(), Cluster { name: name.to_owned(), created: now, ..cluster });
    let root = Association {
        cluster: name.to_owned(),
        account: ROOT.to_owned(),
        qos: QosList { own: Some([NORMAL.to_owned()].into()), ..QosList::default() },
        ..Association::default()
    };
    tree::put(entities, root, now);
}

pub(super) fn add_root_user(entities: &mut Entities, cluster: &str, now: Timestamp) {
    let parent = entities.account_association(cluster, ROOT).map(|root| root.id);
    let root = Association {
        cluster: cluster.to_owned(),
        account: ROOT.to_owned(),
        user: Some(ROOT.to_owned()),
        parent,
        is_default: true,
        ..Association::default()
    };
    tree::put(entities, root, now);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_controller_that_registers_again_changes_nothing() {
        let mut entities = fresh(Timestamp::default());
        let tres = BTreeMap::from([("cpu".to_owned(), 12), ("gres/gpu".to_owned(), 2)]);
        register_cluster(&mut entities, "c", Timestamp::default(), &tres);
        let once = entities.clone();
        assert_eq!(once.tres.values().map(|t| t.id).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6, 7, 8, 1001]);
        let of: Vec<_> = once.living("c").map(|a| (a.id.0, a.account.as_str(), a.user.as_deref())).collect();
        assert_eq!(of, [(1, "root", None), (2, "root", Some("root"))]);
        assert_eq!(once.default_account("c", "root"), Some("root"));
        register_cluster(&mut entities, "c", Timestamp::default(), &tres);
        assert_eq!(entities, once);
    }
}
