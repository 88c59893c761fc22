//! Accounts: they come with an association on each cluster, move with all that is below, and go with it.

use super::{
    AddAccounts, Affected, AssocName, ChangeRefusal,
    associations::{prepared, prepared_edit},
    bounds::Held,
    edit::{AccountEdit, AssocEdit, AssocFilter},
    tree,
    work::{Work, lower, new_names, text},
};
use garrick_model::entities::{
    ROOT,
    association::{AssocId, Association},
    names::{Account, AdminLevel},
};

impl Work<'_> {
    pub fn add_accounts(&mut self, add: &AddAccounts) -> Result<(), ChangeRefusal> {
        if !self.is_operator() && !self.is_some_coordinator() {
            return Err(ChangeRefusal::NotEvenCoordinator);
        }
        let names = new_names(&add.names)?;
        let edit = prepared_edit(&add.edit);
        self.check_edit(&edit)?;
        let parent = add.parent.as_ref().map_or_else(|| ROOT.to_owned(), |parent| parent.to_lowercase());
        let above = self.parents(&self.clusters(&add.clusters)?, &parent)?;
        for (cluster, id) in &above {
            if !self.is_operator() && !self.coordinates(cluster, &parent) {
                return Err(ChangeRefusal::Denied);
            }
            self.check_gift(*id, None, &edit)?;
        }
        let mut exist = Vec::new();
        let mut new = Vec::new();
        for name in &names {
            self.add_account(name, &parent, &add.account)?;
            for (cluster, id) in &above {
                if self.entities.account_association(cluster, name).is_some() {
                    exist.push((name.clone(), cluster.clone()));
                } else {
                    new.push(self.put_account(cluster, name, *id, &add.account, &edit)?);
                }
            }
        }
        if new.is_empty() {
            return Err(ChangeRefusal::AccountsExist(exist));
        }
        self.check_default_qos(&new)?;
        self.log_new_associations(&new);
        self.tell_associations(&new);
        Ok(())
    }

    /// The association of that account on each of the clusters.
    fn parents(&self, clusters: &[String], parent: &str) -> Result<Vec<(String, AssocId)>, ChangeRefusal> {
        let find = |cluster: &String| match self.entities.account_association(cluster, parent) {
            Some(above) => Ok((cluster.clone(), above.id)),
            None => Err(ChangeRefusal::NoParent { parent: parent.to_owned(), cluster: cluster.clone() }),
        };
        clusters.iter().map(find).collect()
    }

    /// The account itself, if it is not there.
    fn add_account(&mut self, name: &str, parent: &str, facts: &AccountEdit) -> Result<(), ChangeRefusal> {
        if self.is_account(name) {
            return Ok(());
        }
        let otherwise = if parent == ROOT { name } else { parent };
        let account = Account {
            name: name.to_owned(),
            description: text(facts.description.as_deref().unwrap_or(name))?,
            organization: text(facts.organization.as_deref().unwrap_or(otherwise))?,
            ..Account::default()
        };
        let info = format!("description='{}', organization='{}'", account.description, account.organization);
        self.log("Add Accounts", name.to_owned(), info, vec![name.to_owned()]);
        self.entities.accounts.insert(name.to_owned(), account);
        self.tell(Affected::Account(name.to_owned()));
        Ok(())
    }

    fn put_account(
        &mut self,
        cluster: &str,
        name: &str,
        above: AssocId,
        facts: &AccountEdit,
        edit: &AssocEdit,
    ) -> Result<AssocId, ChangeRefusal> {
        let association = Association {
            cluster: cluster.to_owned(),
            account: name.to_owned(),
            parent: Some(above),
            users_are_coordinators: facts.users_are_coordinators.unwrap_or(false),
            ..Association::default()
        };
        self.put(association, edit)
    }

    /// A line of the list of transactions for each new association.
    pub fn log_new_associations(&mut self, ids: &[AssocId]) {
        for id in ids {
            let info = self.entities.associations.get(id).map(|a| {
                format!(
                    "mod_time={}, acct='{}', user='{}', `partition`='{}'",
                    a.modified.secs(),
                    a.account,
                    a.user.as_deref().unwrap_or(""),
                    a.partition.as_deref().unwrap_or("")
                )
            });
            self.log_associations("Add Associations", &[*id], &info.unwrap_or_default());
        }
    }

    pub fn modify_accounts(
        &mut self,
        filter: &AssocFilter,
        facts: &AccountEdit,
        parent: Option<&str>,
        edit: &AssocEdit,
    ) -> Result<(), ChangeRefusal> {
        let (filter, edit) = (prepared(filter), prepared_edit(edit));
        self.check_edit(&edit)?;
        let meant = self.meant_accounts(&filter);
        if facts.description.is_some() || facts.organization.is_some() {
            self.set_accounts(&filter, &meant, facts)?;
        }
        if edit == AssocEdit::default() && parent.is_none() && facts.users_are_coordinators.is_none() {
            return Ok(());
        }
        if meant.is_empty() {
            return Err(ChangeRefusal::NothingModified);
        }
        for association in meant.iter().filter_map(|id| self.entities.associations.get(id)) {
            if !self.may_change(association) {
                return Err(ChangeRefusal::Denied);
            }
            if let Some(above) = association.parent {
                self.check_gift(above, Some(association), &edit)?;
            }
        }
        self.set_users_are_coordinators(&filter, &meant, facts);
        let before = self.above(&meant);
        if let Some(parent) = parent {
            self.move_accounts(&meant, &parent.to_lowercase())?;
        }
        let mut changed = self.set_values(&meant, &edit)?;
        changed.extend(&meant);
        self.log_associations("Modify Associations", &meant, "");
        self.tell_reset(&meant, &edit);
        if edit.sets_values() || parent.is_some() || facts.users_are_coordinators.is_some() {
            self.tell_with_parents(&before, &changed);
        }
        Ok(())
    }

    /// Facts of the accounts themselves: not for coordinators.
    fn set_accounts(
        &mut self,
        filter: &AssocFilter,
        meant: &[AssocId],
        facts: &AccountEdit,
    ) -> Result<(), ChangeRefusal> {
        self.need(AdminLevel::Operator)?;
        let by_association = |name: &str| meant.iter().any(|id| self.entities.associations[id].account == name);
        let by_name = |name: &str| filter.accounts.iter().any(|one| one == name) && filter.clusters.is_empty();
        let living = self.entities.accounts.values().filter(|account| !account.deleted).map(|account| &account.name);
        let names: Vec<String> = living.filter(|name| by_name(name) || by_association(name)).cloned().collect();
        if names.is_empty() {
            return Err(ChangeRefusal::NothingModified);
        }
        for name in names {
            let Some(account) = self.entities.accounts.get_mut(&name) else { continue };
            if let Some(description) = &facts.description {
                account.description = text(description)?;
            }
            if let Some(organization) = &facts.organization {
                account.organization = text(organization)?;
            }
            let info = format!("description='{}', organization='{}'", account.description, account.organization);
            self.log("Modify Accounts", format!("(name='{name}')"), info, vec![name.clone()]);
            self.tell(Affected::Account(name));
        }
        Ok(())
    }

    fn set_users_are_coordinators(&mut self, filter: &AssocFilter, meant: &[AssocId], facts: &AccountEdit) {
        let Some(set) = facts.users_are_coordinators else { return };
        for id in meant {
            let Some(association) = self.entities.associations.get_mut(id) else { continue };
            association.users_are_coordinators = set;
            let name = association.account.clone();
            // Of the account as a whole only where nothing narrows it, and by whom it is on all clusters.
            let whole = !set || (filter.clusters.is_empty() && filter.parents.is_empty());
            if whole
                && self.may_appoint(std::slice::from_ref(&name)).is_ok()
                && let Some(account) = self.entities.accounts.get_mut(&name)
            {
                account.users_are_coordinators = set;
            }
        }
    }

    fn move_accounts(&mut self, ids: &[AssocId], parent: &str) -> Result<(), ChangeRefusal> {
        for id in ids {
            let Some(moved) = self.entities.associations.get(id) else { continue };
            let cluster = moved.cluster.clone();
            let (_, above) = self.parents(std::slice::from_ref(&cluster), parent)?.remove(0);
            if !self.is_operator() && !self.coordinates(&cluster, parent) {
                return Err(ChangeRefusal::Denied);
            }
            let Some(now) = moved.parent else { return Err(ChangeRefusal::RootAccount) };
            if self.entities.lineage(above).any(|one| one.id == *id) {
                let account = moved.account.clone();
                return Err(ChangeRefusal::Loop { parent: parent.to_owned(), account, cluster });
            }
            self.may_move(now, above)?;
            if let Some(moved) = self.entities.associations.get_mut(id) {
                moved.parent = Some(above);
            }
        }
        Ok(())
    }

    /// A coordinator moves accounts only further down, where all that limited them still does, and nothing else is allowed.
    fn may_move(&self, from: AssocId, to: AssocId) -> Result<(), ChangeRefusal> {
        if self.is_operator() {
            return Ok(());
        }
        if self.entities.lineage(to).all(|above| above.id != from) {
            return Err(ChangeRefusal::BeyondParent);
        }
        Held::of(self.entities, to).check_within(&Held::of(self.entities, from))
    }

    /// Of accounts the one above: empty for the root.
    fn above(&self, ids: &[AssocId]) -> Vec<(AssocId, String)> {
        let name = |id: AssocId| self.entities.associations.get(&id).map(|above| above.account.clone());
        let above = |id: &AssocId| self.entities.associations.get(id).and_then(|a| a.parent).and_then(name);
        ids.iter().map(|id| (*id, above(id).unwrap_or_default())).collect()
    }

    /// Tells what was changed itself and what inherits it.
    pub fn tell_changed(&mut self, direct: &[AssocId], changed: &[AssocId]) {
        let before = self.above(direct);
        self.tell_with_parents(&before, changed);
    }

    fn tell_with_parents(&mut self, before: &[(AssocId, String)], changed: &[AssocId]) {
        let parent = |id: AssocId| before.iter().find(|(one, _)| *one == id).map(|(_, parent)| parent.clone());
        let mut changed = changed.to_vec();
        changed.sort_unstable();
        changed.dedup();
        let named = self.ordered(&changed).into_iter().map(|a| (AssocName::from(a), parent(a.id)));
        let named: Vec<_> = named.collect();
        for (name, parent) in named {
            self.tell(Affected::Association { name, parent });
        }
    }

    /// Tells on which clusters past use was reset.
    pub fn tell_reset(&mut self, ids: &[AssocId], edit: &AssocEdit) {
        if !edit.reset_usage {
            return;
        }
        let mut clusters: Vec<String> = ids.iter().map(|id| self.entities.associations[id].cluster.clone()).collect();
        clusters.sort();
        clusters.dedup();
        for cluster in clusters {
            self.tell(Affected::UsageReset { cluster });
        }
    }

    pub fn delete_accounts(&mut self, filter: &AssocFilter) -> Result<(), ChangeRefusal> {
        self.need(AdminLevel::Operator)?;
        let filter = prepared(filter);
        if filter.accounts.iter().any(|name| name == ROOT) {
            return Err(ChangeRefusal::RootAccount);
        }
        let mut meant = if filter.is_empty() { Vec::new() } else { self.meant_accounts(&filter) };
        meant.retain(|id| self.entities.associations[id].parent.is_some());
        let mut gone: Vec<AssocId> = meant.iter().flat_map(|id| tree::subtree(self.entities, *id)).collect();
        gone.sort_unstable();
        gone.dedup();
        self.keep_defaults(&gone)?;
        let whole = filter.clusters.is_empty() && filter.partitions.is_empty() && filter.parents.is_empty();
        if !whole {
            self.tell_associations(&meant);
        }
        self.remove_associations(&gone);
        let mut names: Vec<String> = meant.iter().map(|id| self.entities.associations[id].account.clone()).collect();
        names.extend(filter.accounts.iter().filter(|_| whole).cloned());
        let mut names = lower(&names);
        names.sort();
        names.retain(|name| self.is_account(name) && !self.has_associations(name));
        if names.is_empty() && gone.is_empty() {
            return Err(ChangeRefusal::NothingDeleted);
        }
        for name in names {
            if let Some(account) = self.entities.accounts.get_mut(&name) {
                account.deleted = true;
                account.coordinators.clear();
                account.users_are_coordinators = false;
            }
            self.log("Remove Accounts", format!("name='{name}'"), String::new(), vec![name.clone()]);
            self.tell(Affected::Account(name));
        }
        Ok(())
    }

    fn has_associations(&self, account: &str) -> bool {
        self.entities.associations.values().any(|a| !a.deleted && a.account == account)
    }

    /// None of the users who lose an association keeps others without a default account, unless the site allows that.
    pub fn keep_defaults(&self, gone: &[AssocId]) -> Result<(), ChangeRefusal> {
        if self.rules.no_default_account {
            return Ok(());
        }
        let stays = |lost: &Association| {
            self.entities.living(&lost.cluster).any(|a| a.user == lost.user && gone.binary_search(&a.id).is_err())
        };
        let without = |a: &&Association| a.is_default && stays(a);
        let without: Vec<AssocName> = self.ordered(gone).into_iter().filter(without).map(AssocName::from).collect();
        if without.is_empty() { Ok(()) } else { Err(ChangeRefusal::DefaultAccount(without)) }
    }

    /// Marks associations as deleted: jobs refer to them.
    pub fn remove_associations(&mut self, ids: &[AssocId]) {
        for id in ids {
            if let Some(association) = self.entities.associations.get_mut(id) {
                (association.deleted, association.is_default) = (true, false);
                association.users_are_coordinators = false;
                association.modified = self.now;
            }
        }
        if !ids.is_empty() {
            self.log_associations("Remove Associations", ids, "");
        }
    }
}
