//! Who may change what.
//!
//! Root, `SlurmUser` and administrators may everything. Operators may all but levels of users, clusters, QOS and resources.
//! Coordinators act on associations below the accounts that they coordinate, and never give more than the account above has: neither
//! limits nor QOS nor priority. Levels of users, facts of accounts, past use and the coordinated account itself are not theirs. What
//! else keeps them from giving more is in [`super::bounds`].

use super::{
    ChangeRefusal,
    edit::{AssocEdit, Edit, TresEdit},
    work::Work,
};
use garrick_model::entities::{
    association::{AssocId, Association},
    limits::{Count, Limits, TresLimit},
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
        of_account.is_some_and(|a| self.coordinated.contains(a.id))
    }

    /// Does he coordinate anything?
    pub fn is_some_coordinator(&self) -> bool {
        !self.coordinated.is_empty()
    }

    /// May he change that association? A coordinator: only what stands below an account of his.
    pub fn may_change(&self, association: &Association) -> bool {
        self.is_operator() || association.parent.is_some_and(|above| self.coordinated.contains(above))
    }

    /// What a coordinator sets for associations below an account is not more than that has. `now` is the association's own, if it
    /// exists. Where the highest of his accounts has no limit, one that is set below it is only lowered: that of an account in between
    /// may be his own.
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
        let top = self.coordinated.top(self.entities, above).map(|top| self.entities.effective(top).limits);
        let gift = Gift { top: top.unwrap_or_default(), above: has.limits, own: now.map(|now| &now.limits) };
        if gift.counts_fit(edit) && gift.tres_fit(edit) { Ok(()) } else { Err(ChangeRefusal::BeyondParent) }
    }
}

/// What new limits are measured by.
struct Gift<'a> {
    /// Of the highest account of the coordinator.
    top: Limits,
    /// Of the account above.
    above: Limits,
    /// Set for the association itself.
    own: Option<&'a Limits>,
}

impl Gift<'_> {
    fn counts_fit(&self, edit: &AssocEdit) -> bool {
        edit.counts.iter().all(|(count, new)| {
            let of = |limits: &Limits| limits.count(*count);
            let (top, above, own) = (of(&self.top), of(&self.above), self.own.and_then(of));
            match new {
                // Of this one, less is more.
                Some(new) if *count == Count::MinPrioThreshold => {
                    within(Some(u64::MAX - new), [top, above, own].map(|bound| bound.map(|bound| u64::MAX - bound)))
                }
                new => within(*new, [top, above, own]),
            }
        })
    }

    fn tres_fit(&self, edit: &AssocEdit) -> bool {
        let fits = |limit: TresLimit, name: &str, new: TresEdit| {
            let of = |limits: &Limits| limits.tres(limit, name);
            let (top, above, own) = (of(&self.top), of(&self.above), self.own.and_then(of));
            within(new.on(own), [top, above, own])
        };
        edit.tres.iter().all(|(limit, amounts)| amounts.iter().all(|(name, new)| fits(*limit, name, *new)))
    }
}

/// Is a new limit not more than the account above has? Where the top has none, not more than what holds now. Unset, it is what is
/// above.
fn within(new: Option<u64>, [top, above, own]: [Option<u64>; 3]) -> bool {
    let bound = if top.is_some() { above.or(own) } else { own.or(above) };
    match new {
        Some(new) => bound.is_none_or(|bound| new <= bound),
        None => top.is_some() || own.is_none(),
    }
}
