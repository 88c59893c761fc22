//! Who may change what.
//!
//! Root, `SlurmUser` and administrators may everything. Operators may all but levels of users, clusters, QOS and resources.
//! Coordinators act on associations below the accounts that they coordinate, and never give more than the account above has: neither
//! limits nor QOS nor priority. Levels of users, facts of accounts, past use and the coordinated account itself are not theirs.

use super::{
    ChangeRefusal,
    edit::{AssocEdit, Edit, TresEdit},
    work::Work,
};
use garrick_model::entities::{
    Entities,
    association::{AssocId, Association, Effective},
    limits::{Count, TresLimit},
    names::AdminLevel,
};

impl Work<'_> {
    /// The level of the one who asks.
    pub fn level(&self) -> AdminLevel {
        if self.actor.believed {
            return AdminLevel::Administrator;
        }
        let user = self.entities.users.get(&self.actor.name).filter(|user| !user.deleted);
        user.map_or(AdminLevel::None, |user| user.admin)
    }

    /// He has that level, or the change is refused.
    pub fn need(&self, level: AdminLevel) -> Result<(), ChangeRefusal> {
        if self.level() >= level { Ok(()) } else { Err(ChangeRefusal::Denied) }
    }

    pub fn is_operator(&self) -> bool {
        self.level() >= AdminLevel::Operator
    }

    /// Does he coordinate the account, or one above it on that cluster?
    pub fn coordinates(&self, cluster: &str, account: &str) -> bool {
        let of_account = self.entities.account_association(cluster, account);
        of_account.is_some_and(|a| is_coordinator(self.entities, a.id, &self.actor.name))
    }

    /// Does he coordinate anything?
    pub fn is_some_coordinator(&self) -> bool {
        let accounts = self.entities.associations.values().filter(|a| !a.deleted && a.user.is_none());
        accounts.into_iter().any(|a| is_coordinator(self.entities, a.id, &self.actor.name))
    }

    /// May he change that association? A coordinator: only what stands below an account of his.
    pub fn may_change(&self, association: &Association) -> bool {
        self.is_operator()
            || association.parent.is_some_and(|above| is_coordinator(self.entities, above, &self.actor.name))
    }

    /// What a coordinator sets for associations below an account is not more than that has. `now` is the association's own, if it
    /// exists: where the account above has no limit, one that was set for the association is only lowered.
    pub fn check_gift(&self, above: AssocId, now: Option<&Association>, edit: &AssocEdit) -> Result<(), ChangeRefusal> {
        if self.is_operator() {
            return Ok(());
        }
        if edit.reset_usage {
            return Err(ChangeRefusal::Denied);
        }
        let has = self.entities.effective(above);
        let has_now = now.map(|now| self.entities.effective(now.id).qos).unwrap_or_default();
        let default = match &edit.default_qos {
            Edit::Set(name) => Some(name),
            Edit::Keep | Edit::Clear => None,
        };
        if edit.qos.named().chain(default).any(|name| !has.qos.contains(name) && !has_now.contains(name)) {
            return Err(ChangeRefusal::Denied);
        }
        if matches!(edit.priority, Edit::Set(new) if new > has.priority.unwrap_or(0)) {
            return Err(ChangeRefusal::BeyondParent);
        }
        let fits = counts_fit(&has, now, edit) && tres_fit(&has, now, edit);
        if fits { Ok(()) } else { Err(ChangeRefusal::BeyondParent) }
    }
}

fn counts_fit(has: &Effective, now: Option<&Association>, edit: &AssocEdit) -> bool {
    edit.counts.iter().all(|(count, new)| {
        let (above, own) = (has.limits.count(*count), now.and_then(|a| a.limits.count(*count)));
        match new {
            Some(new) if *count == Count::MinPrioThreshold => above.or(own).is_none_or(|bound| *new >= bound),
            new => within(*new, above, own),
        }
    })
}

fn tres_fit(has: &Effective, now: Option<&Association>, edit: &AssocEdit) -> bool {
    let fits = |limit: TresLimit, name: &str, new: TresEdit| {
        let (above, own) = (has.limits.tres(limit, name), now.and_then(|a| a.limits.tres(limit, name)));
        within(new.on(own), above, own)
    };
    edit.tres.iter().all(|(limit, amounts)| amounts.iter().all(|(name, new)| fits(*limit, name, *new)))
}

/// Is a new limit not more than the account above has? Where that has none, not more than what was set for the association itself.
/// Unset, it is what is above.
fn within(new: Option<u64>, above: Option<u64>, own: Option<u64>) -> bool {
    match new {
        Some(new) => above.or(own).is_none_or(|bound| new <= bound),
        None => above.is_some() || own.is_none(),
    }
}

/// Does the user coordinate an account's association, himself, or since users of an account above are coordinators?
pub(super) fn is_coordinator(entities: &Entities, account: AssocId, user: &str) -> bool {
    if entities.users.get(user).is_none_or(|user| user.deleted) {
        return false;
    }
    entities.lineage(account).any(|above| {
        let known = entities.accounts.get(&above.account).filter(|account| !account.deleted);
        let Some(known) = known.filter(|_| !above.deleted) else { return false };
        let all_users = known.users_are_coordinators || above.users_are_coordinators;
        known.coordinators.contains(user)
            || (all_users
                && entities
                    .living(&above.cluster)
                    .any(|a| a.account == above.account && a.user.as_deref() == Some(user)))
    })
}
