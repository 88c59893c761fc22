//! What is not removed while jobs use it: their associations and QOS, as sacctmgr 26.05.3 refuses it.

use super::{Action, Change, edit::AssocFilter};
use crate::row::JobRow;
use garrick_model::entities::{
    Entities,
    association::{AssocId, Association},
    qos::choices,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// So many jobs are told of.
pub const MOST_ACTIVE: usize = 100;

/// A job that uses something that was to be removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActiveJob {
    /// Its number.
    pub job: u32,
    /// Cluster.
    pub cluster: String,
    /// Account.
    pub account: String,
    /// User.
    pub user: String,
    /// QOS.
    pub qos: String,
    /// Workload characterization key, `*` where none was named.
    pub wckey: String,
}

/// What a change removes that jobs may use.
#[derive(Debug)]
pub struct Removed<'e> {
    /// Before the change.
    entities: &'e Entities,
    associations: BTreeSet<AssocId>,
    qos: BTreeSet<&'e str>,
    /// Jobs that wait do not keep it: single associations of users go, and such jobs wait with `InvalidAccount` then.
    only_started: bool,
}

impl<'e> Removed<'e> {
    /// `None`: nothing is removed.
    pub fn of(old: &'e Entities, new: &Entities, change: &Change) -> Option<Self> {
        let lives = |id: &AssocId| new.associations.get(id).is_some_and(|now| !now.deleted);
        let gone = |own: &&Association| !own.deleted && own.user.is_some() && !lives(&own.id);
        let associations: BTreeSet<AssocId> = old.associations.values().filter(gone).map(|own| own.id).collect();
        let has_qos = |name: &str| new.qos.get(name).is_some_and(|qos| !qos.deleted);
        let living = old.qos.values().filter(|qos| !qos.deleted).map(|qos| qos.name.as_str());
        let qos: BTreeSet<&str> = living.filter(|name| !has_qos(name)).collect();
        let is_narrow = |action: &Action| match action {
            Action::DeleteUsers(filter) => *filter != AssocFilter { users: filter.users.clone(), ..Default::default() },
            _ => false,
        };
        let only_started = change.actions.iter().all(is_narrow);
        let any = !associations.is_empty() || !qos.is_empty();
        any.then_some(Self { entities: old, associations, qos, only_started })
    }

    /// May jobs of that cluster use any of it?
    pub fn is_on(&self, cluster: &str) -> bool {
        let mut gone = self.associations.iter().filter_map(|id| self.entities.associations.get(id));
        !self.qos.is_empty() || gone.any(|own| own.cluster == cluster)
    }

    /// The job of a row, if it uses any of it.
    pub fn used_by(&self, row: &JobRow) -> Option<ActiveJob> {
        if row.is_over() || (self.only_started && row.start.is_none()) {
            return None;
        }
        let (cluster, user) = (row.cluster.as_str(), row.user.to_lowercase());
        let named = row.account.as_deref().map(str::to_lowercase);
        let account = named.or_else(|| self.entities.default_account(cluster, &user).map(str::to_owned))?;
        let partition = row.partition.as_ref().or_else(|| row.partitions.first());
        let own = self.entities.association(cluster, &account, &user, partition.map(String::as_str));
        let default = || self.entities.effective(own?.id).default_qos;
        let qos = row.qos.as_deref().map(str::to_lowercase).or_else(default).unwrap_or_default();
        let names_it = || choices(&qos).any(|name| self.qos.contains(name));
        let is_used = own.is_some_and(|own| self.associations.contains(&own.id)) || names_it();
        is_used.then(|| ActiveJob {
            job: row.job.0,
            cluster: cluster.to_owned(),
            account,
            user,
            qos,
            wckey: row.wckey.clone().unwrap_or_else(|| "*".to_owned()),
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use garrick_events::testing::record;
    use garrick_model::{spec::JobSpec, testing::entities};

    #[test]
    fn a_waiting_job_uses_each_qos_that_it_names() {
        let old = entities();
        let uses = |removed: &str, named: &str| {
            let mut new = entities();
            new.qos.get_mut(removed).unwrap().deleted = true;
            let change = Change::from(Action::DeleteQos(vec![removed.to_owned()]));
            let spec = JobSpec { qos: Some(named.to_owned()), ..JobSpec::default() };
            let row = JobRow::of("test", &record(7, spec));
            Removed::of(&old, &new, &change).unwrap().used_by(&row).is_some()
        };
        assert!(uses("low", "high,low") && uses("high", "High,Low") && uses("low", "low"));
        assert!(!uses("normal", "high,low"));
    }
}
