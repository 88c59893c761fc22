//! Coordinators of accounts.

use super::{
    Affected, ChangeRefusal,
    work::{Work, lower},
};

impl Work<'_> {
    pub fn add_coordinators(&mut self, accounts: &[String], users: &[String]) -> Result<(), ChangeRefusal> {
        let (accounts, users) = (lower(accounts), lower(users));
        if let Some(unknown) = accounts.iter().find(|account| !self.is_account(account)) {
            return Err(ChangeRefusal::NoAccount(unknown.clone()));
        }
        if let Some(unknown) = users.iter().find(|user| !self.is_user(user)) {
            return Err(ChangeRefusal::NoUser(unknown.clone()));
        }
        self.may_appoint(&accounts)?;
        for account in &accounts {
            let Some(known) = self.entities.accounts.get_mut(account) else { continue };
            known.coordinators.extend(users.iter().cloned());
            for user in &users {
                let info = format!("acct='{account}', user='{user}'");
                self.log("Add Account Coord", user.clone(), info, vec![account.clone(), user.clone()]);
                self.tell(Affected::Coordinator { user: user.clone(), account: account.clone() });
            }
        }
        Ok(())
    }

    pub fn delete_coordinators(&mut self, accounts: &[String], users: &[String]) -> Result<(), ChangeRefusal> {
        let (accounts, users) = (lower(accounts), lower(users));
        if accounts.is_empty() && users.is_empty() {
            return Err(ChangeRefusal::NothingDeleted);
        }
        let mut pairs = Vec::new();
        for account in self.entities.accounts.values().filter(|account| !account.deleted) {
            let meant = accounts.is_empty() || accounts.contains(&account.name);
            let coordinators =
                account.coordinators.iter().filter(|user| meant && (users.is_empty() || users.contains(user)));
            pairs.extend(coordinators.map(|user| (account.name.clone(), user.clone())));
        }
        let of: Vec<String> =
            if pairs.is_empty() { accounts } else { pairs.iter().map(|(account, _)| account.clone()).collect() };
        self.may_appoint(&of)?;
        if pairs.is_empty() {
            return Err(ChangeRefusal::NothingDeleted);
        }
        for (account, user) in pairs {
            if let Some(known) = self.entities.accounts.get_mut(&account) {
                known.coordinators.remove(&user);
            }
            let target = format!("(user='{user}')");
            self.log("Remove Account Coords", target, String::new(), vec![account.clone(), user.clone()]);
            self.tell(Affected::Coordinator { user, account });
        }
        Ok(())
    }

    /// A coordinator of an account on all clusters where it is may name others for it, since they coordinate it everywhere.
    pub(super) fn may_appoint(&self, accounts: &[String]) -> Result<(), ChangeRefusal> {
        if self.is_operator() {
            return Ok(());
        }
        let everywhere = |account: &String| {
            let of_account = |a: &&garrick_model::entities::association::Association| {
                !a.deleted && a.user.is_none() && a.account == *account
            };
            let mut places = self.entities.associations.values().filter(of_account).peekable();
            places.peek().is_some() && places.all(|place| self.coordinates(&place.cluster, account))
        };
        if !accounts.is_empty() && accounts.iter().all(everywhere) { Ok(()) } else { Err(ChangeRefusal::Denied) }
    }
}
