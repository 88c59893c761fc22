//! Accounts of a cluster with those below them.

use crate::sacctmgr::rows::lineage;
use garrick_accounts::usage::{UsageKey, UsageRow, UsageSum};
use garrick_model::entities::{Entities, ROOT};
use std::collections::BTreeMap;

/// The accounts of a cluster, as they are or were, by name, with the path from the root.
#[derive(Debug)]
pub struct Tree {
    paths: BTreeMap<String, String>,
}

impl Tree {
    /// Of a cluster.
    pub fn of(entities: &Entities, cluster: &str) -> Self {
        let mut paths = BTreeMap::new();
        for a in entities.associations.values().filter(|a| a.cluster == cluster && a.user.is_none()) {
            // One that was deleted and made again is where it is now.
            if !a.deleted || !paths.contains_key(&a.account) {
                paths.insert(a.account.clone(), lineage(entities, a));
            }
        }
        Self { paths }
    }

    /// Where an account is: `/physics/astro/`. The root is `/`, and so are jobs without an account. One that is not known is below the
    /// root.
    pub fn path(&self, account: &str) -> String {
        match account {
            ROOT => "/".to_owned(),
            _ => self.paths.get(account).cloned().unwrap_or_else(|| format!("/{account}/")),
        }
    }

    /// An account and those above it, the root first.
    pub fn line(&self, account: &str) -> Vec<String> {
        let path = self.path(account);
        let parts = path.split('/').filter(|part| !part.is_empty()).map(str::to_owned);
        std::iter::once(ROOT.to_owned()).chain(parts).collect()
    }
}

/// The account of a row: jobs that named none are of the root.
pub fn account(key: &UsageKey) -> &str {
    key.account.as_deref().unwrap_or(ROOT)
}

/// Sums by cluster and something else.
pub fn by<K: Ord>(rows: &[UsageRow], key: impl Fn(&UsageKey) -> K) -> BTreeMap<(String, K), UsageSum> {
    let mut sums: BTreeMap<(String, K), UsageSum> = BTreeMap::new();
    for row in rows {
        sums.entry((row.key.cluster.clone(), key(&row.key))).or_default().merge(&row.sum);
    }
    sums
}
