//! Users: they come with an association in each account, and go with their last.

use super::{
    AddUsers, Affected, ChangeRefusal,
    associations::{prepared, prepared_edit},
    bounds,
    edit::{AssocEdit, AssocFilter},
    work::{Work, lower, new_names},
};
use garrick_model::entities::{
    association::{AssocId, Association},
    names::{AdminLevel, User},
};
use std::collections::BTreeSet;

impl Work<'_> {
    pub fn add_users(&mut self, add: &AddUsers) -> Result<(), ChangeRefusal> {
        if !self.is_operator() && !self.is_some_coordinator() {
            return Err(ChangeRefusal::NotEvenCoordinator);
        }
        if add.admin.is_some_and(|level| level > AdminLevel::None) && self.level() < AdminLevel::Administrator {
            return Err(ChangeRefusal::AdminLevel);
        }
        let names = new_names(&add.names)?;
        let (accounts, edit) = (lower(&add.accounts), prepared_edit(&add.edit));
        new_names(&add.partitions)?;
        self.check_edit(&edit)?;
        let clusters = self.clusters(&add.clusters)?;
        let (above, missing) = self.accounts_of(&clusters, &accounts);
        self.check_hosts(&above, &edit)?;
        let new = self.put_users(&names, &above, add, &edit)?;
        let keys = !add.wckeys.is_empty() && (accounts.is_empty() || !new.is_empty());
        if new.is_empty() && !keys {
            return Err(ChangeRefusal::NothingAdded { missing });
        }
        for (account, cluster) in missing {
            self.tell(Affected::NoAccount { account, cluster });
        }
        self.add_records(&names, add.admin.unwrap_or_default());
        self.set_new_defaults(&names, &clusters, &accounts, add.default_account.as_deref())?;
        self.check_default_qos(&new)?;
        self.log_new_associations(&new);
        self.tell_associations(&new);
        if keys {
            self.add_wckeys(&names, &clusters, &add.wckeys, add.default_wckey.as_deref())?;
        }
        Ok(())
    }

    /// Associations of accounts on clusters, in their order, and those that are not there.
    fn accounts_of(&self, clusters: &[String], accounts: &[String]) -> (Vec<AssocId>, Vec<(String, String)>) {
        let (mut found, mut missing) = (Vec::new(), Vec::new());
        for cluster in clusters {
            for account in accounts {
                match self.entities.account_association(cluster, account) {
                    Some(association) => found.push(association.id),
                    None => missing.push((account.clone(), cluster.clone())),
                }
            }
        }
        (self.ordered(&found).into_iter().map(|a| a.id).collect(), missing)
    }

    /// Whoever asks may put users with these values into these accounts.
    fn check_hosts(&self, accounts: &[AssocId], edit: &AssocEdit) -> Result<(), ChangeRefusal> {
        for association in accounts.iter().filter_map(|id| self.entities.associations.get(id)) {
            if !self.is_operator() && !self.coordinates(&association.cluster, &association.account) {
                return Err(ChangeRefusal::Denied);
            }
            self.check_gift(association.id, None, edit)?;
        }
        Ok(())
    }

    fn put_users(
        &mut self,
        names: &[String],
        above: &[AssocId],
        add: &AddUsers,
        edit: &AssocEdit,
    ) -> Result<Vec<AssocId>, ChangeRefusal> {
        let named: BTreeSet<Option<String>> = add.partitions.iter().cloned().map(Some).collect();
        let partitions = if named.is_empty() { [None].into() } else { named };
        let mut new = Vec::new();
        for id in above {
            let Some(account) = self.entities.associations.get(id).cloned() else { continue };
            for name in names {
                let of_user = self.of_user(&account, name);
                for partition in &partitions {
                    let association = Association {
                        cluster: account.cluster.clone(),
                        account: account.account.clone(),
                        user: Some(name.clone()),
                        partition: partition.clone(),
                        parent: Some(*id),
                        ..Association::default()
                    };
                    if of_user.iter().any(|own| !own.deleted && own.partition == *partition) {
                        continue;
                    }
                    self.may_stand_beside(&association, &of_user)?;
                    new.push(self.put(association, edit)?);
                }
            }
        }
        Ok(new)
    }

    /// All associations that a user has or had in an account.
    fn of_user(&self, account: &Association, user: &str) -> Vec<Association> {
        let is_his = |a: &&Association| a.cluster == account.cluster && is_of(a, user, &account.account);
        self.entities.associations.values().filter(is_his).cloned().collect()
    }

    /// Another association of a user, for another partition, has limits that count for themselves: a coordinator gives none to who is or
    /// was bound in the account otherwise.
    fn may_stand_beside(&self, new: &Association, others: &[Association]) -> Result<(), ChangeRefusal> {
        let bound = others.iter().any(|other| other.partition != new.partition && bounds::is_bound(other));
        if bound && !self.is_operator() { Err(ChangeRefusal::BeyondParent) } else { Ok(()) }
    }

    /// The users themselves, where they are not there.
    fn add_records(&mut self, names: &[String], admin: AdminLevel) {
        for name in names.iter().filter(|name| !self.is_user(name)).cloned().collect::<Vec<_>>() {
            let user = User { name: name.clone(), admin, ..User::default() };
            self.entities.users.insert(name.clone(), user);
            self.log("Add Users", name.clone(), format!("admin_level={}", admin as u8 + 1), vec![name.clone()]);
            self.tell(Affected::User(name));
        }
    }

    /// A default account for each user on each cluster: the one that is asked for, or for those who have none the first of the new.
    fn set_new_defaults(
        &mut self,
        names: &[String],
        clusters: &[String],
        accounts: &[String],
        wanted: Option<&str>,
    ) -> Result<(), ChangeRefusal> {
        let wanted = wanted.map(str::to_lowercase);
        for cluster in clusters {
            for user in names {
                let is_in = |account: &str| self.entities.living(cluster).any(|a| is_of(a, user, account));
                let first = || accounts.iter().find(|account| is_in(account)).cloned();
                let has = self.entities.default_account(cluster, user).is_some();
                let default = match &wanted {
                    Some(wanted) if !is_in(wanted) => {
                        let users = vec![(user.clone(), cluster.clone())];
                        return Err(ChangeRefusal::NotInAccount { account: wanted.clone(), users });
                    }
                    // A coordinator puts users into his accounts, but where their jobs run is not for him to say.
                    _ if has && !(wanted.is_some() && self.is_operator()) => None,
                    Some(wanted) => Some(wanted.clone()),
                    None => first(),
                };
                if let Some(account) = default {
                    self.set_default_account(cluster, user, &account);
                }
            }
        }
        Ok(())
    }

    /// Makes it the account of a user's jobs on a cluster. Of several associations in it, it is that for all partitions, or the first.
    pub fn set_default_account(&mut self, cluster: &str, user: &str, account: &str) {
        let in_account = self.entities.living(cluster).filter(|a| is_of(a, user, account));
        let default = in_account.min_by_key(|a| (a.partition.is_some(), a.id)).map(|a| a.id);
        let of_user = |a: &&mut Association| !a.deleted && a.cluster == cluster && a.user.as_deref() == Some(user);
        for association in self.entities.associations.values_mut().filter(of_user) {
            association.is_default = Some(association.id) == default;
        }
    }

    pub fn delete_users(&mut self, filter: &AssocFilter) -> Result<(), ChangeRefusal> {
        let filter = prepared(filter);
        if filter.is_empty() {
            return Err(ChangeRefusal::NothingDeleted);
        }
        let others = AssocFilter { users: Vec::new(), ..filter.clone() };
        if others.is_empty() {
            return self.delete_whole_users(&filter.users);
        }
        let mut gone = self.meant_users(&filter);
        gone.sort_unstable();
        if !self.is_operator() && !self.is_some_coordinator() {
            return Err(ChangeRefusal::Denied);
        }
        if gone.iter().any(|id| !self.may_change(&self.entities.associations[id])) {
            return Err(ChangeRefusal::Denied);
        }
        if gone.is_empty() {
            return Err(ChangeRefusal::NothingDeleted);
        }
        self.keep_defaults(&gone)?;
        self.tell_associations(&gone);
        let mut users: Vec<String> = gone.iter().filter_map(|id| self.entities.associations[id].user.clone()).collect();
        users.sort();
        users.dedup();
        self.remove_associations(&gone);
        self.keep_marked_defaults(&gone);
        users.retain(|user| !self.entities.associations.values().any(|a| !a.deleted && a.user.as_ref() == Some(user)));
        users.retain(|user| self.is_operator() || !self.has_more(user));
        users.retain(|user| self.is_user(user) && self.may_remove(user));
        self.remove_records(&users);
        Ok(())
    }

    /// Has that user, who has no association any more, what a coordinator cannot take from him: a level, keys, or accounts to coordinate
    /// that are not the coordinator's?
    fn has_more(&self, user: &String) -> bool {
        let level = self.entities.users.get(user).map_or(AdminLevel::None, |user| user.admin);
        let mut coordinated = self.entities.accounts.values().filter(|account| account.coordinators.contains(user));
        level > AdminLevel::None
            || self.entities.wckeys.values().any(|key| !key.deleted && key.user == *user)
            || coordinated.any(|account| self.may_appoint(std::slice::from_ref(&account.name)).is_err())
    }

    /// Where the association that was the default is gone, but not the account: another one in the account is it.
    fn keep_marked_defaults(&mut self, gone: &[AssocId]) {
        for id in gone {
            let lost = &self.entities.associations[id];
            let (cluster, user, account) = (lost.cluster.clone(), lost.user.clone(), lost.account.clone());
            let Some(user) = user else { continue };
            if self.entities.default_account(&cluster, &user).is_none() {
                self.set_default_account(&cluster, &user, &account);
            }
        }
    }

    fn delete_whole_users(&mut self, names: &[String]) -> Result<(), ChangeRefusal> {
        self.need(AdminLevel::Operator)?;
        let users: Vec<String> = names.iter().filter(|name| self.is_user(name)).cloned().collect();
        if users.is_empty() {
            return Err(ChangeRefusal::NothingDeleted);
        }
        if users.iter().any(|user| !self.may_remove(user)) {
            return Err(ChangeRefusal::Denied);
        }
        let is_theirs = |a: &&Association| !a.deleted && a.user.as_ref().is_some_and(|user| users.contains(user));
        let gone: Vec<AssocId> = self.entities.associations.values().filter(is_theirs).map(|a| a.id).collect();
        self.remove_associations(&gone);
        self.remove_records(&users);
        Ok(())
    }

    /// Only administrators remove administrators.
    fn may_remove(&self, user: &str) -> bool {
        let level = self.entities.users.get(user).map_or(AdminLevel::None, |user| user.admin);
        level < AdminLevel::Administrator || self.level() == AdminLevel::Administrator
    }

    fn remove_records(&mut self, users: &[String]) {
        for name in users {
            if let Some(user) = self.entities.users.get_mut(name) {
                (user.deleted, user.admin) = (true, AdminLevel::None);
            }
            for account in self.entities.accounts.values_mut() {
                account.coordinators.remove(name);
            }
            for key in self.entities.wckeys.values_mut().filter(|key| !key.deleted && key.user == *name) {
                (key.deleted, key.is_default) = (true, false);
            }
            self.tell(Affected::User(name.clone()));
        }
        if !users.is_empty() {
            let names = users.iter().map(|name| format!("'{name}'")).collect::<Vec<_>>().join(",");
            self.log("Remove Users", format!("name in({names})"), String::new(), users.to_vec());
        }
    }
}

pub(super) fn is_of(association: &Association, user: &str, account: &str) -> bool {
    association.user.as_deref() == Some(user) && association.account == account
}
