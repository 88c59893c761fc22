//! Changes of users: facts of themselves, and values of their associations.

use super::{
    Affected, ChangeRefusal,
    associations::{prepared, prepared_edit},
    edit::{AssocEdit, AssocFilter, UserEdit},
    users::is_of,
    work::{Work, new_names},
};
use garrick_model::entities::names::AdminLevel;

impl Work<'_> {
    pub fn modify_users(
        &mut self,
        filter: &AssocFilter,
        facts: &UserEdit,
        edit: &AssocEdit,
    ) -> Result<(), ChangeRefusal> {
        let (filter, edit) = (prepared(filter), prepared_edit(edit));
        if *facts != UserEdit::default() {
            self.modify_records(&filter, facts)?;
        }
        if edit == AssocEdit::default() {
            return Ok(());
        }
        self.check_edit(&edit)?;
        let meant = self.meant_users(&filter);
        let nobody = !self.is_operator() && !self.is_some_coordinator();
        if meant.is_empty() || nobody {
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
        self.set_values(&meant, &edit)?;
        self.log_associations("Modify Associations", &meant, "");
        self.tell_reset(&meant, &edit);
        if edit.sets_values() {
            self.tell_associations(&meant);
        }
        Ok(())
    }

    fn modify_records(&mut self, filter: &AssocFilter, facts: &UserEdit) -> Result<(), ChangeRefusal> {
        let names = self.named_users(filter);
        self.may_set(&filter.users, &names, facts)?;
        if names.is_empty() {
            return Err(ChangeRefusal::NothingModified);
        }
        if let Some(account) = &facts.default_account {
            self.set_default_accounts(filter, &names, &account.to_lowercase())?;
        }
        if let Some(key) = &facts.default_wckey {
            self.set_default_wckeys(filter, &names, &key.to_lowercase())?;
        }
        for name in &names {
            if let (Some(level), Some(user)) = (facts.admin, self.entities.users.get_mut(name)) {
                user.admin = level;
            }
            self.log("Modify Users", format!("(name='{name}')"), String::new(), vec![name.clone()]);
            self.tell(Affected::User(name.clone()));
        }
        match (&facts.new_name, names.as_slice()) {
            (None, _) => Ok(()),
            (Some(new), [old]) => self.rename(old, new),
            (Some(new), _) => Err(ChangeRefusal::Invalid(new.clone())),
        }
    }

    /// Users who are named, and have an association of the kind that is meant, if one is.
    fn named_users(&self, filter: &AssocFilter) -> Vec<String> {
        let others = AssocFilter { users: Vec::new(), ..filter.clone() };
        let meant = self.meant_users(filter);
        let has = |name: &str| {
            others.is_empty() || meant.iter().any(|id| self.entities.associations[id].user.as_deref() == Some(name))
        };
        let living = self.entities.users.values().filter(|user| !user.deleted).map(|user| &user.name);
        living.filter(|name| (filter.users.is_empty() || filter.users.contains(name)) && has(name)).cloned().collect()
    }

    fn may_set(&self, asked: &[String], names: &[String], facts: &UserEdit) -> Result<(), ChangeRefusal> {
        let level = self.level();
        if level == AdminLevel::Administrator {
            return Ok(());
        }
        if facts.admin.is_some() {
            return Err(if level == AdminLevel::Operator { ChangeRefusal::AdminLevel } else { ChangeRefusal::Denied });
        }
        // Who takes another name takes the rights that go with it.
        let has_level = |name: &String| self.entities.users.get(name).is_some_and(|user| user.admin > AdminLevel::None);
        if facts.new_name.is_some() && (level < AdminLevel::Operator || names.iter().any(has_level)) {
            return Err(ChangeRefusal::Denied);
        }
        let himself = asked.len() == 1 && asked.first() == Some(&self.actor.name);
        if level < AdminLevel::Operator && !himself {
            return Err(ChangeRefusal::Denied);
        }
        if let Some(key) = facts.default_wckey.as_ref().filter(|_| level < AdminLevel::Operator) {
            return Err(ChangeRefusal::NotInWcKey {
                wckey: key.to_lowercase(),
                users: self.on_clusters(names),
                denied: true,
            });
        }
        Ok(())
    }

    /// Users with each of the clusters on which they are.
    fn on_clusters(&self, names: &[String]) -> Vec<(String, String)> {
        let mut pairs = Vec::new();
        for association in self.entities.associations.values().filter(|a| !a.deleted) {
            let pair = association.user.clone().map(|user| (user, association.cluster.clone()));
            pairs.extend(pair.filter(|(user, _)| names.contains(user)));
        }
        pairs.sort();
        pairs.dedup();
        pairs
    }

    fn set_default_accounts(
        &mut self,
        filter: &AssocFilter,
        names: &[String],
        account: &str,
    ) -> Result<(), ChangeRefusal> {
        let mut pairs = self.on_clusters(names);
        pairs.retain(|(_, cluster)| filter.clusters.is_empty() || filter.clusters.contains(cluster));
        let is_in = |user: &str, cluster: &str| self.entities.living(cluster).any(|a| is_of(a, user, account));
        let outside = |(user, cluster): &&(String, String)| !is_in(user, cluster);
        let users: Vec<_> = pairs.iter().filter(outside).cloned().collect();
        if !users.is_empty() || pairs.is_empty() {
            return Err(ChangeRefusal::NotInAccount { account: account.to_owned(), users });
        }
        for (user, cluster) in pairs {
            self.set_default_account(&cluster, &user, account);
        }
        Ok(())
    }

    fn set_default_wckeys(&mut self, filter: &AssocFilter, names: &[String], key: &str) -> Result<(), ChangeRefusal> {
        let mut pairs = self.on_clusters(names);
        pairs.retain(|(_, cluster)| filter.clusters.is_empty() || filter.clusters.contains(cluster));
        let outside = |(user, cluster): &&(String, String)| !self.has_wckey(cluster, user, key);
        let users: Vec<_> = pairs.iter().filter(outside).cloned().collect();
        if !users.is_empty() || pairs.is_empty() {
            return Err(ChangeRefusal::NotInWcKey { wckey: key.to_owned(), users, denied: false });
        }
        for (user, cluster) in pairs {
            self.set_default_wckey(&cluster, &user, key);
        }
        Ok(())
    }

    /// Gives a user another name, everywhere.
    fn rename(&mut self, old: &str, new: &str) -> Result<(), ChangeRefusal> {
        let new = new_names(&[new.to_owned()])?.remove(0);
        let has_past = |name: &String| self.entities.associations.values().any(|a| a.user.as_ref() == Some(name));
        if self.entities.users.get(&new).is_some_and(|user| !user.deleted) || has_past(&new) {
            return Err(ChangeRefusal::Invalid(new));
        }
        let Some(mut user) = self.entities.users.remove(old) else { return Ok(()) };
        user.old_name = std::mem::replace(&mut user.name, new.clone());
        self.entities.users.insert(new.clone(), user);
        for association in self.entities.associations.values_mut().filter(|a| a.user.as_deref() == Some(old)) {
            association.user = Some(new.clone());
        }
        for key in self.entities.wckeys.values_mut().filter(|key| key.user == old) {
            key.user.clone_from(&new);
        }
        for account in self.entities.accounts.values_mut() {
            if account.coordinators.remove(old) {
                account.coordinators.insert(new.clone());
            }
        }
        Ok(())
    }
}
