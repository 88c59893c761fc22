//! Qualities of service. Only administrators change them.

use super::{
    Affected, ChangeRefusal,
    associations::{lower_list, set_limits},
    edit::QosEdit,
    work::{Work, lower, new_names, text},
};
use garrick_model::entities::{NORMAL, names::AdminLevel, qos::QosRecord};
use std::collections::BTreeSet;

impl Work<'_> {
    pub fn add_qos(&mut self, names: &[String], edit: &QosEdit) -> Result<(), ChangeRefusal> {
        self.need(AdminLevel::Administrator)?;
        self.check_qos_edit(edit)?;
        let names = new_names(names)?;
        let new: Vec<String> = names.into_iter().filter(|name| !self.is_qos(name)).collect();
        if new.is_empty() {
            return Err(ChangeRefusal::NothingAdded { missing: Vec::new() });
        }
        for name in new {
            let old = self.entities.qos.get(&name);
            let next = || self.entities.qos.values().map(|qos| qos.id.saturating_add(1)).max().unwrap_or(1);
            let mut qos = QosRecord::new(old.map_or_else(next, |old| old.id), &name);
            qos.usage_reset = old.map(|_| self.now);
            (qos.created, qos.modified) = (self.now, self.now);
            set(&mut qos, edit)?;
            self.entities.qos.insert(name.clone(), qos);
            self.log("Add QOS", name.clone(), String::new(), vec![name.clone()]);
            self.tell(Affected::Qos(name));
        }
        self.check_preempt()
    }

    pub fn modify_qos(&mut self, names: &[String], edit: &QosEdit) -> Result<(), ChangeRefusal> {
        self.need(AdminLevel::Administrator)?;
        self.check_qos_edit(edit)?;
        let names = self.living_qos(names);
        if names.is_empty() {
            return Err(ChangeRefusal::NothingModified);
        }
        if edit.reset_usage {
            let clusters = self.clusters(&[]).unwrap_or_default();
            clusters.into_iter().for_each(|cluster| self.tell(Affected::UsageReset { cluster }));
        }
        let sets = QosEdit { reset_usage: false, ..edit.clone() } != QosEdit::default();
        for name in names {
            let Some(qos) = self.entities.qos.get_mut(&name) else { continue };
            set(qos, edit)?;
            qos.modified = self.now;
            if edit.reset_usage {
                qos.usage_reset = Some(self.now);
            }
            self.log("Modify QOS", format!("(name='{name}')"), String::new(), vec![name.clone()]);
            if sets {
                self.tell(Affected::Qos(name));
            }
        }
        self.check_preempt()
    }

    pub fn delete_qos(&mut self, names: &[String]) -> Result<(), ChangeRefusal> {
        self.need(AdminLevel::Administrator)?;
        let mut names = if names.is_empty() { Vec::new() } else { self.living_qos(names) };
        names.retain(|name| name != NORMAL);
        if names.is_empty() {
            return Err(ChangeRefusal::NothingDeleted);
        }
        for name in names {
            self.forget_qos(&name);
            if let Some(qos) = self.entities.qos.get_mut(&name) {
                qos.deleted = true;
                qos.modified = self.now;
            }
            self.log("Remove QOS", format!("name='{name}'"), String::new(), vec![name.clone()]);
            self.tell(Affected::Qos(name));
        }
        Ok(())
    }

    /// Nobody may use it and no QOS may preempt it any more.
    fn forget_qos(&mut self, name: &str) {
        for association in self.entities.associations.values_mut() {
            let list = &mut association.qos;
            list.added.remove(name);
            list.removed.remove(name);
            if list.own.as_mut().is_some_and(|own| own.remove(name) && own.is_empty()) {
                list.own = None;
            }
            association.default_qos.take_if(|default| default == name);
        }
        for qos in self.entities.qos.values_mut() {
            qos.preempt.remove(name);
        }
    }

    /// Those that there are of the names, by number; all if none is named.
    fn living_qos(&self, names: &[String]) -> Vec<String> {
        let names = lower(names);
        let is_meant = |qos: &&QosRecord| !qos.deleted && (names.is_empty() || names.contains(&qos.name));
        let mut meant: Vec<&QosRecord> = self.entities.qos.values().filter(is_meant).collect();
        meant.sort_by_key(|qos| qos.id);
        meant.into_iter().map(|qos| qos.name.clone()).collect()
    }

    fn check_qos_edit(&self, edit: &QosEdit) -> Result<(), ChangeRefusal> {
        let factors = [edit.usage_factor, edit.usage_threshold, edit.limit_factor];
        let bad =
            |factor: &super::edit::Edit<f64>| matches!(factor, super::edit::Edit::Set(f) if !f.is_finite() || *f < 0.0);
        if factors.iter().any(bad) {
            return Err(ChangeRefusal::Invalid("factor".to_owned()));
        }
        self.all_qos(lower_list(&edit.preempt).named())?;
        self.check_tres(&edit.tres)
    }

    /// No QOS may be preempted by one that it may preempt, over however many others.
    fn check_preempt(&self) -> Result<(), ChangeRefusal> {
        for qos in self.entities.qos.values().filter(|qos| !qos.deleted) {
            let mut seen = BTreeSet::new();
            let mut open: Vec<&String> = qos.preempt.iter().collect();
            while let Some(name) = open.pop() {
                if *name == qos.name {
                    return Err(ChangeRefusal::PreemptLoop);
                }
                if seen.insert(name) {
                    open.extend(self.entities.qos.get(name).into_iter().flat_map(|next| &next.preempt));
                }
            }
        }
        Ok(())
    }
}

fn set(qos: &mut QosRecord, edit: &QosEdit) -> Result<(), ChangeRefusal> {
    if let Some(description) = &edit.description {
        qos.description = text(description)?;
    }
    edit.priority.or_on(&mut qos.priority, 0);
    edit.flags.on(&mut qos.flags);
    lower_list(&edit.preempt).on(&mut qos.preempt);
    if let Some(mode) = &edit.preempt_mode {
        qos.preempt_mode.clone_from(mode);
    }
    edit.preempt_exempt_secs.on(&mut qos.preempt_exempt_secs);
    edit.grace_secs.or_on(&mut qos.grace_secs, 0);
    edit.usage_factor.or_on(&mut qos.usage_factor, 1.0);
    edit.usage_threshold.on(&mut qos.usage_threshold);
    edit.limit_factor.on(&mut qos.limit_factor);
    set_limits(&mut qos.limits, &edit.counts, &edit.tres);
    Ok(())
}
