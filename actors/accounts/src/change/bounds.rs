//! What holds whatever a coordinator does: nobody has more after it than before, or than the account above him has.
//!
//! Slurm's page on user permissions lets coordinators add users and accounts below theirs and set limits, but "not increase job limits
//! above the parent ones". Where his highest account has no limit, one that was set below it is only lowered, also by who set it: it is
//! not known whether that was an operator. Deleting and adding again, adding for a partition, and moving give no more either.

use super::ChangeRefusal;
use garrick_model::entities::{
    Entities,
    association::{AssocId, Association, QosList},
    coordinators::Coordinated,
    limits::{Count, Limits, TresLimit},
};
use std::collections::{BTreeMap, BTreeSet};

/// Which limit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Count(Count),
    Tres(TresLimit, String),
}

/// What an association may have at most.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Held {
    /// Limits by which it is bound, those of groups above it too. What is not in it is not limited.
    limits: BTreeMap<Key, u64>,
    qos: BTreeSet<String>,
    priority: u32,
}

impl Held {
    /// What holds for an association.
    pub fn of(entities: &Entities, id: AssocId) -> Self {
        let effective = entities.effective(id);
        let mut held =
            Self { limits: BTreeMap::new(), qos: effective.qos, priority: effective.priority.unwrap_or_default() };
        for above in entities.lineage(id) {
            for (key, number, of_group) in numbers(&above.limits) {
                let bound = held.limits.entry(key).or_insert(number);
                if of_group {
                    *bound = number.min(*bound);
                }
            }
        }
        held
    }

    /// Nothing of it is more than that of the other one.
    pub fn check_within(&self, most: &Self) -> Result<(), ChangeRefusal> {
        if !self.qos.is_subset(&most.qos) {
            return Err(ChangeRefusal::Denied);
        }
        let fits = |(key, most): (&Key, &u64)| self.limits.get(key).is_some_and(|number| number <= most);
        let within = self.priority <= most.priority && most.limits.iter().all(fits);
        if within { Ok(()) } else { Err(ChangeRefusal::BeyondParent) }
    }

    /// The most that an association below this may have which had that before. Only what the top has a limit of may become more.
    fn or_before(mut self, mut before: Self, top: &Self) -> Self {
        for (key, number) in &mut before.limits {
            if let Some(above) = self.limits.get(key).filter(|_| top.limits.contains_key(key)) {
                *number = *above.max(number);
            }
        }
        self.limits = before.limits;
        self.qos.append(&mut before.qos);
        self.priority = self.priority.max(before.priority);
        self
    }

    /// The most that an association below this may have that comes back: where this has no limit, what was set for it.
    fn or_set(mut self, deleted: &Limits) -> Self {
        for (key, number, _) in numbers(deleted) {
            self.limits.entry(key).or_insert(number);
        }
        self
    }
}

/// Limits as numbers of which the greater is more, and whether they are of a group.
fn numbers(limits: &Limits) -> impl Iterator<Item = (Key, u64, bool)> + '_ {
    let counts = limits.counts.iter().map(|(count, number)| {
        let number = if *count == Count::MinPrioThreshold { u64::MAX - number } else { *number };
        (Key::Count(*count), number, count.is_of_group())
    });
    let amounts = limits.tres.iter().flat_map(|(limit, amounts)| {
        amounts.iter().map(|(name, number)| (Key::Tres(*limit, name.clone()), *number, limit.is_of_group()))
    });
    counts.chain(amounts)
}

/// Checks what was changed by who coordinates these accounts, and what inherits it.
///
/// # Errors
/// Somebody would have more than before, and than the account above him has.
pub(super) fn check(before: &Entities, after: &Entities, coordinated: &Coordinated) -> Result<(), ChangeRefusal> {
    let is_changed = |new: &&Association| {
        let Some(old) = before.associations.get(&new.id) else { return true };
        // Which account is the default gives nothing to anybody.
        *old != Association { is_default: old.is_default, ..(*new).clone() }
    };
    let changed: BTreeSet<AssocId> = after.associations.values().filter(is_changed).map(|a| a.id).collect();
    if changed.is_empty() {
        return Ok(());
    }
    let touched = |a: &&Association| !a.deleted && after.lineage(a.id).any(|above| changed.contains(&above.id));
    for association in after.associations.values().filter(touched) {
        let Some(above) = association.parent else { continue };
        let top = coordinated.top(after, above).map(|top| Held::of(after, top)).unwrap_or_default();
        let above = Held::of(after, above);
        let most = match before.associations.get(&association.id) {
            None => above,
            Some(old) if old.deleted => above.or_set(&old.limits),
            Some(old) => above.or_before(Held::of(before, old.id), &top),
        };
        Held::of(after, association.id).check_within(&most)?;
    }
    Ok(())
}

/// Is anything set for it that others in its account need not have?
pub(super) fn is_bound(association: &Association) -> bool {
    !association.limits.is_empty() || association.priority.is_some() || association.qos != QosList::default()
}

/// Gives an association that comes back what was set for it, as far as it is not more than the account above has now.
pub(super) fn restore(entities: &Entities, new: &mut Association, deleted: &Association) {
    let above = new.parent.map(|above| (Held::of(entities, above), entities.effective(above)));
    let Some((held, effective)) = above else { return };
    new.limits = deleted.limits.clone();
    for (key, number, _) in numbers(&deleted.limits) {
        let Some(most) = held.limits.get(&key).filter(|most| **most < number) else { continue };
        // He is still bound by himself: else he would get another association beside it.
        match key {
            Key::Count(Count::MinPrioThreshold) => new.limits.counts.insert(Count::MinPrioThreshold, u64::MAX - most),
            Key::Count(count) => new.limits.counts.insert(count, *most),
            Key::Tres(limit, name) => new.limits.tres.entry(limit).or_default().insert(name, *most),
        };
    }
    new.priority = deleted.priority.filter(|priority| *priority <= held.priority);
    new.qos = deleted.qos.clone();
    new.qos.added.retain(|name| effective.qos.contains(name));
    if let Some(own) = &mut new.qos.own {
        own.retain(|name| effective.qos.contains(name));
    }
    // A list of nothing means something else.
    new.qos.own.take_if(|own| own.is_empty());
    new.shares = deleted.shares;
}
