//! Names of associations, their order, and how they come and go.

use garrick_model::{
    entities::{
        Entities,
        association::{AssocId, Association},
    },
    time::Timestamp,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// An association as users know it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct AssocName {
    /// Cluster.
    pub cluster: String,
    /// Account.
    pub account: String,
    /// User; `None`: the account itself.
    pub user: Option<String>,
    /// Partition.
    pub partition: Option<String>,
}

impl From<&Association> for AssocName {
    fn from(association: &Association) -> Self {
        Self {
            cluster: association.cluster.clone(),
            account: association.account.clone(),
            user: association.user.clone(),
            partition: association.partition.clone(),
        }
    }
}

/// Where it stands among those of its cluster: account by account from the root, users of an account before accounts below it.
/// This is the order in which Slurm lists them.
fn place(entities: &Entities, association: &Association) -> (String, Vec<(bool, String)>, Option<String>) {
    let mut path: Vec<(bool, String)> = entities
        .lineage(association.id)
        .filter(|above| above.user.is_none() && above.parent.is_some())
        .map(|above| (true, above.account.clone()))
        .collect();
    path.reverse();
    path.extend(association.user.clone().map(|user| (false, user)));
    (association.cluster.clone(), path, association.partition.clone())
}

/// Living associations in the order in which they are told: by cluster, then down the tree.
pub fn in_order<'a>(entities: &'a Entities, which: impl IntoIterator<Item = &'a Association>) -> Vec<&'a Association> {
    let mut placed: Vec<_> = which.into_iter().map(|a| (place(entities, a), a)).collect();
    placed.sort_by(|a, b| a.0.cmp(&b.0));
    placed.into_iter().map(|(_, association)| association).collect()
}

/// One of the same name that was deleted.
pub(super) fn deleted<'a>(entities: &'a Entities, new: &Association) -> Option<&'a Association> {
    let same = |old: &&Association| {
        old.deleted
            && (&old.cluster, &old.account, &old.user, &old.partition)
                == (&new.cluster, &new.account, &new.user, &new.partition)
    };
    entities.associations.values().find(same)
}

/// Puts a new association. One of the same name that was deleted comes back with its number, for its jobs, but nothing else of it.
pub(super) fn put(entities: &mut Entities, mut new: Association, now: Timestamp) -> AssocId {
    let old = deleted(entities, &new);
    let next = || entities.associations.keys().last().map_or(1, |last| last.0.saturating_add(1));
    new.id = old.map_or_else(|| AssocId(next()), |old| old.id);
    new.usage_reset = old.map(|_| now);
    (new.created, new.modified) = (now, now);
    let id = new.id;
    entities.associations.insert(id, new);
    id
}

/// The account itself and everything below it on its cluster, living, by number.
pub(super) fn subtree(entities: &Entities, top: AssocId) -> Vec<AssocId> {
    let Some(cluster) = entities.associations.get(&top).map(|a| a.cluster.clone()) else { return Vec::new() };
    let mut children: BTreeMap<AssocId, Vec<AssocId>> = BTreeMap::new();
    for association in entities.living(&cluster) {
        children.entry(association.parent.unwrap_or(association.id)).or_default().push(association.id);
    }
    let mut found = Vec::new();
    let mut open = vec![top];
    while let Some(id) = open.pop() {
        found.push(id);
        // The root is its own parent in the table above.
        open.extend(children.remove(&id).unwrap_or_default().into_iter().filter(|child| *child != id));
    }
    found
}

/// Is that the name of a kind of TRES: `cpu`, `gres/gpu`?
pub(super) fn is_tres(entities: &Entities, name: &str) -> bool {
    let (kind, name) = name.split_once('/').unwrap_or((name, ""));
    entities.tres.values().any(|tres| tres.kind == kind && tres.name == name)
}
