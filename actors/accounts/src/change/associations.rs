//! Setting values of associations, and what must hold after it.

use super::{
    AssocName, ChangeRefusal,
    edit::{AssocEdit, AssocFilter, CountEdits, Edit, ListEdit, TresEdits},
    tree,
    work::{Work, lower},
};
use garrick_model::entities::{
    Entities,
    association::{AssocId, Association, QosList, Shares},
    limits::{Count, Limits, TresLimit},
};

/// A filter with its names as they are kept.
pub(super) fn prepared(filter: &AssocFilter) -> AssocFilter {
    AssocFilter {
        clusters: lower(&filter.clusters),
        accounts: lower(&filter.accounts),
        users: lower(&filter.users),
        partitions: filter.partitions.clone(),
        parents: lower(&filter.parents),
    }
}

/// Values with their names as they are kept.
pub(super) fn prepared_edit(edit: &AssocEdit) -> AssocEdit {
    let default_qos = match &edit.default_qos {
        Edit::Set(name) => Edit::Set(name.to_lowercase()),
        other => other.clone(),
    };
    AssocEdit { default_qos, qos: lower_list(&edit.qos), ..edit.clone() }
}

pub(super) fn lower_list(list: &ListEdit<String>) -> ListEdit<String> {
    let all = |names: &std::collections::BTreeSet<String>| names.iter().map(|name| name.to_lowercase()).collect();
    match list {
        ListEdit::Keep => ListEdit::Keep,
        ListEdit::Set(names) => ListEdit::Set(all(names)),
        ListEdit::Change { added, removed } => ListEdit::Change { added: all(added), removed: all(removed) },
    }
}

/// Is it one that the filter means?
pub(super) fn is_meant(entities: &Entities, filter: &AssocFilter, association: &Association) -> bool {
    let among = |names: &[String], name: Option<&str>| {
        names.is_empty() || name.is_some_and(|name| names.iter().any(|one| one == name))
    };
    let above = || association.parent.and_then(|id| entities.associations.get(&id)).map(|above| above.account.as_str());
    among(&filter.clusters, Some(&association.cluster))
        && among(&filter.accounts, Some(&association.account))
        && among(&filter.partitions, association.partition.as_deref())
        && among(&filter.parents, above())
        && (association.user.is_none() || among(&filter.users, association.user.as_deref()))
}

impl Work<'_> {
    /// Living associations of users that the filter means.
    pub fn meant_users(&self, filter: &AssocFilter) -> Vec<AssocId> {
        let meant = |a: &&Association| !a.deleted && a.user.is_some() && is_meant(self.entities, filter, a);
        self.entities.associations.values().filter(meant).map(|a| a.id).collect()
    }

    /// Living associations of accounts themselves that the filter means.
    pub fn meant_accounts(&self, filter: &AssocFilter) -> Vec<AssocId> {
        let meant = |a: &&Association| !a.deleted && a.user.is_none() && is_meant(self.entities, filter, a);
        self.entities.associations.values().filter(meant).map(|a| a.id).collect()
    }

    /// Everything that it names is there and can be set for an association.
    pub fn check_edit(&self, edit: &AssocEdit) -> Result<(), ChangeRefusal> {
        self.all_qos(edit.qos.named())?;
        if let Edit::Set(name) = &edit.default_qos {
            self.all_qos(std::iter::once(name))?;
        }
        let of_qos = |count: &&Count| !is_for_associations(**count);
        if edit.counts.keys().any(|count| of_qos(&count))
            || edit.tres.keys().any(|limit| !tres_is_for_associations(*limit))
        {
            return Err(ChangeRefusal::Invalid("a limit of QOS".to_owned()));
        }
        if let Some(comment) = &edit.comment {
            super::work::text(comment)?;
        }
        self.check_tres(&edit.tres)
    }

    /// All kinds of TRES that it names are known.
    pub fn check_tres(&self, edits: &TresEdits) -> Result<(), ChangeRefusal> {
        let unknown =
            edits.values().flat_map(|amounts| amounts.keys()).find(|name| !tree::is_tres(self.entities, name));
        unknown.map_or(Ok(()), |name| Err(ChangeRefusal::NoTres(name.clone())))
    }

    /// Sets values of these associations. Gives those below that inherit what was set.
    pub fn set_values(&mut self, ids: &[AssocId], edit: &AssocEdit) -> Result<Vec<AssocId>, ChangeRefusal> {
        for id in ids {
            if let Some(association) = self.entities.associations.get_mut(id) {
                set(association, edit);
                association.modified = self.now;
                if edit.reset_usage {
                    association.usage_reset = Some(self.now);
                }
            }
        }
        let mut heirs = Vec::new();
        for id in ids {
            heirs.extend(self.heirs(*id, edit).into_iter().filter(|heir| !ids.contains(heir)));
        }
        self.check_default_qos(ids)?;
        Ok(heirs)
    }

    /// Those below an account that have one of the values from it.
    fn heirs(&self, top: AssocId, edit: &AssocEdit) -> Vec<AssocId> {
        let mut heirs = Vec::new();
        let below = tree::subtree(self.entities, top);
        let mut open = vec![(top, edit.clone())];
        while let Some((above, edit)) = open.pop() {
            for child in below.iter().filter_map(|id| self.entities.associations.get(id)) {
                if child.parent != Some(above) || child.id == top {
                    continue;
                }
                let inherited = not_set(child, &edit);
                if inherits(&inherited) {
                    heirs.push(child.id);
                    // Nothing is below a user.
                    if child.user.is_none() {
                        open.push((child.id, inherited));
                    }
                }
            }
        }
        heirs
    }

    /// Every association there and below may use its default QOS.
    pub fn check_default_qos(&self, tops: &[AssocId]) -> Result<(), ChangeRefusal> {
        let mut below: Vec<AssocId> = tops.iter().flat_map(|top| tree::subtree(self.entities, *top)).collect();
        below.sort_unstable();
        below.dedup();
        let without = |association: &Association| {
            let effective = self.entities.effective(association.id);
            effective.default_qos.filter(|name| !effective.qos.contains(name))
        };
        let bad = self.ordered(&below).into_iter().filter_map(|a| Some((AssocName::from(a), without(a)?)));
        let bad: Vec<_> = bad.collect();
        if bad.is_empty() { Ok(()) } else { Err(ChangeRefusal::DefaultQos(bad)) }
    }
}

/// Is it a limit that associations have?
const fn is_for_associations(count: Count) -> bool {
    matches!(
        count,
        Count::GrpJobs
            | Count::GrpJobsAccrue
            | Count::GrpSubmit
            | Count::GrpWall
            | Count::MaxJobs
            | Count::MaxJobsAccrue
            | Count::MaxSubmit
            | Count::MaxWall
            | Count::MinPrioThreshold
    )
}

const fn tres_is_for_associations(limit: TresLimit) -> bool {
    matches!(
        limit,
        TresLimit::GrpTres
            | TresLimit::GrpTresMins
            | TresLimit::GrpTresRunMins
            | TresLimit::MaxTresPerJob
            | TresLimit::MaxTresPerNode
            | TresLimit::MaxTresMinsPerJob
    )
}

pub(super) fn set(association: &mut Association, edit: &AssocEdit) {
    edit.shares.or_on(&mut association.shares, Shares::default());
    edit.priority.on(&mut association.priority);
    edit.default_qos.clone().on(&mut association.default_qos);
    set_limits(&mut association.limits, &edit.counts, &edit.tres);
    set_qos(&mut association.qos, &edit.qos);
    if let Some(comment) = &edit.comment {
        association.comment.clone_from(comment);
    }
}

pub(super) fn set_limits(limits: &mut Limits, counts: &CountEdits, tres: &TresEdits) {
    for (count, new) in counts {
        match new {
            Some(number) => limits.counts.insert(*count, *number),
            None => limits.counts.remove(count),
        };
    }
    for (limit, edits) in tres {
        let amounts = limits.tres.entry(*limit).or_default();
        for (name, edit) in edits {
            match edit.on(amounts.get(name).copied()) {
                Some(number) => amounts.insert(name.clone(), number),
                None => amounts.remove(name),
            };
        }
        if amounts.is_empty() {
            limits.tres.remove(limit);
        }
    }
}

/// `=` sets the list of its own, empty unsets it. `+=` and `-=` change that list, or what comes from above.
fn set_qos(list: &mut QosList, edit: &ListEdit<String>) {
    match edit {
        ListEdit::Keep => {}
        ListEdit::Set(names) if names.is_empty() => *list = QosList::default(),
        ListEdit::Set(names) => *list = QosList { own: Some(names.clone()), ..QosList::default() },
        ListEdit::Change { added, removed } => {
            if let Some(own) = &mut list.own {
                edit.on(own);
                return;
            }
            list.added.extend(added.iter().cloned());
            list.removed.retain(|name| !added.contains(name));
            list.added.retain(|name| !removed.contains(name));
            list.removed.extend(removed.iter().cloned());
        }
    }
}

/// The part of an edit that is inherited by an association which has no such values of its own.
fn not_set(child: &Association, edit: &AssocEdit) -> AssocEdit {
    let mut part = AssocEdit {
        priority: if child.priority.is_none() { edit.priority } else { Edit::Keep },
        default_qos: if child.default_qos.is_none() { edit.default_qos.clone() } else { Edit::Keep },
        qos: if child.qos.own.is_none() { edit.qos.clone() } else { ListEdit::Keep },
        ..AssocEdit::default()
    };
    let counts = edit.counts.iter().filter(|(count, _)| !count.is_of_group() && child.limits.count(**count).is_none());
    part.counts = counts.map(|(count, new)| (*count, *new)).collect();
    for (limit, amounts) in edit.tres.iter().filter(|(limit, _)| !limit.is_of_group()) {
        let open = amounts.iter().filter(|(name, _)| child.limits.tres(*limit, name).is_none());
        part.tres.insert(*limit, open.map(|(name, new)| (name.clone(), *new)).collect());
    }
    part.tres.retain(|_, amounts| !amounts.is_empty());
    part
}

fn inherits(edit: &AssocEdit) -> bool {
    *edit != AssocEdit::default()
}
