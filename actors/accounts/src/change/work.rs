//! A change on its way: the entities, who asks, and what was done so far.

use super::{
    Action, Actor, Affected, Applied, AssocName, ChangeRefusal, Rules, Transaction, associations, bounds,
    edit::AssocEdit, tree,
};
use garrick_model::{
    entities::{
        Entities,
        association::{AssocId, Association},
        coordinators::Coordinated,
    },
    time::Timestamp,
};

/// Longest name that is kept.
const LONGEST_NAME: usize = 250;
/// Longest other text that is kept.
const LONGEST_TEXT: usize = 4096;

pub(super) struct Work<'a> {
    pub entities: &'a mut Entities,
    pub actor: &'a Actor,
    pub rules: &'a Rules,
    pub now: Timestamp,
    /// What he coordinates, as of the beginning of the action. Of operators, nothing; nor where coordinators change
    /// nothing.
    pub coordinated: Coordinated,
    applied: Applied,
}

impl<'a> Work<'a> {
    pub fn new(entities: &'a mut Entities, actor: &'a Actor, rules: &'a Rules, now: Timestamp) -> Self {
        Self { entities, actor, rules, now, coordinated: Coordinated::default(), applied: Applied::default() }
    }

    pub fn finish(self) -> Applied {
        self.applied
    }

    /// Carries out one action.
    pub fn act(&mut self, action: &Action) -> Result<(), ChangeRefusal> {
        self.coordinated = match self.is_operator() || self.rules.no_coordinators {
            true => Coordinated::default(),
            false => self.entities.coordinated_by(&self.actor.name),
        };
        match action {
            Action::AddClusters { names, cluster, edit } => self.add_clusters(names, cluster, edit),
            Action::ModifyClusters { names, cluster, edit } => self.modify_clusters(names, cluster, edit),
            Action::DeleteClusters(names) => self.delete_clusters(names),
            Action::AddAccounts(add) => self.add_accounts(add),
            Action::ModifyAccounts { filter, account, parent, edit } => {
                self.modify_accounts(filter, account, parent.as_deref(), edit)
            }
            Action::DeleteAccounts(filter) => self.delete_accounts(filter),
            Action::AddUsers(add) => self.add_users(add),
            Action::ModifyUsers { filter, user, edit } => self.modify_users(filter, user, edit),
            Action::DeleteUsers(filter) => self.delete_users(filter),
            Action::AddQos { names, edit } => self.add_qos(names, edit),
            Action::ModifyQos { names, edit } => self.modify_qos(names, edit),
            Action::DeleteQos(names) => self.delete_qos(names),
            Action::AddCoordinators { accounts, users } => self.add_coordinators(accounts, users),
            Action::DeleteCoordinators { accounts, users } => self.delete_coordinators(accounts, users),
            Action::AddResources { names, server, clusters, edit } => self.add_resources(names, server, clusters, edit),
            Action::ModifyResources { filter, edit } => self.modify_resources(filter, edit),
            Action::DeleteResources(filter) => self.delete_resources(filter),
            Action::AddFederations { names, clusters } => self.add_federations(names, clusters),
            Action::ModifyFederations { names, clusters } => self.modify_federations(names, clusters),
            Action::DeleteFederations(names) => self.delete_federations(names),
        }
    }

    /// Tells the one who asked.
    pub fn tell(&mut self, affected: Affected) {
        self.applied.affected.push(affected);
    }

    /// Tells of associations, in their order.
    pub fn tell_associations(&mut self, ids: &[AssocId]) {
        let named: Vec<AssocName> = self.ordered(ids).into_iter().map(AssocName::from).collect();
        self.applied.affected.extend(named.into_iter().map(|name| Affected::Association { name, parent: None }));
    }

    /// Associations in the order in which they are told.
    pub fn ordered(&self, ids: &[AssocId]) -> Vec<&Association> {
        tree::in_order(self.entities, ids.iter().filter_map(|id| self.entities.associations.get(id)))
    }

    /// Notes a line for the list of transactions.
    pub fn log(&mut self, action: &str, target: String, info: String, about: Vec<String>) {
        let (time, actor) = (self.now, self.actor.name.clone());
        self.applied.transactions.push(Transaction { time, action: action.to_owned(), actor, target, info, about });
    }

    /// A line of the list of transactions about associations.
    pub fn log_associations(&mut self, action: &str, ids: &[AssocId], info: &str) {
        let target = ids.iter().map(|id| format!("id_assoc={}", id.0)).collect::<Vec<_>>().join(" || ");
        let target = if action.starts_with("Modify") { format!("({target})") } else { target };
        let mut about: Vec<String> = Vec::new();
        for association in ids.iter().filter_map(|id| self.entities.associations.get(id)) {
            about.extend([association.cluster.clone(), association.account.clone()]);
            about.extend(association.user.clone());
        }
        about.sort();
        about.dedup();
        self.log(action, target, info.to_owned(), about);
    }

    /// Puts a new association with these values. Where a coordinator puts one that was deleted, it comes back with what was set for it,
    /// and what was used of it is not forgotten.
    pub fn put(&mut self, mut new: Association, edit: &AssocEdit) -> Result<AssocId, ChangeRefusal> {
        let deleted = tree::deleted(self.entities, &new).filter(|_| !self.is_operator()).cloned();
        if let Some(deleted) = &deleted {
            bounds::restore(self.entities, &mut new, deleted);
        }
        let above = new.parent;
        let id = tree::put(self.entities, new, self.now);
        if let (Some(above), Some(new)) = (above, self.entities.associations.get(&id)) {
            self.check_gift(above, Some(new), edit)?;
        }
        if let Some(new) = self.entities.associations.get_mut(&id) {
            if let Some(deleted) = deleted {
                new.usage_reset = deleted.usage_reset;
            }
            associations::set(new, edit);
        }
        Ok(id)
    }

    /// The clusters of that name, all living ones if none is named.
    pub fn clusters(&self, names: &[String]) -> Result<Vec<String>, ChangeRefusal> {
        let living = |name: &str| self.entities.clusters.get(name).is_some_and(|cluster| !cluster.deleted);
        let names = lower(names);
        if let Some(unknown) = names.iter().find(|name| !living(name)) {
            return Err(ChangeRefusal::NoCluster(unknown.clone()));
        }
        if !names.is_empty() {
            return Ok(names);
        }
        let all: Vec<String> = self.entities.clusters.keys().filter(|name| living(name)).cloned().collect();
        if all.is_empty() { Err(ChangeRefusal::NoClusters) } else { Ok(all) }
    }

    /// Is there such a QOS?
    pub fn is_qos(&self, name: &str) -> bool {
        self.entities.qos.get(name).is_some_and(|qos| !qos.deleted)
    }

    /// Are there all of these QOS?
    pub fn all_qos<'n>(&self, mut names: impl Iterator<Item = &'n String>) -> Result<(), ChangeRefusal> {
        names.find(|name| !self.is_qos(name)).map_or(Ok(()), |name| Err(ChangeRefusal::NoQos(name.clone())))
    }

    /// Is there such an account?
    pub fn is_account(&self, name: &str) -> bool {
        self.entities.accounts.get(name).is_some_and(|account| !account.deleted)
    }

    /// Is there such a user?
    pub fn is_user(&self, name: &str) -> bool {
        self.entities.users.get(name).is_some_and(|user| !user.deleted)
    }
}

/// Names in lower case, each once, in their order.
pub(super) fn lower(names: &[String]) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    let mut seen = std::collections::BTreeSet::new();
    for name in names.iter().map(|name| name.to_lowercase()) {
        if seen.insert(name.clone()) {
            all.push(name);
        }
    }
    all
}

/// Names of new things in lower case: what no list, file or command line can tell from something else is refused.
pub(super) fn new_names(names: &[String]) -> Result<Vec<String>, ChangeRefusal> {
    let names = lower(names);
    let unfit = |c: char| c.is_control() || c.is_whitespace() || ",'\"|:=/\\".contains(c);
    match names.iter().find(|name| name.is_empty() || name.len() > LONGEST_NAME || name.contains(unfit)) {
        Some(bad) => Err(ChangeRefusal::Invalid(bad.clone())),
        None => Ok(names),
    }
}

/// Text of a description: kept in lower case, on one line.
pub(super) fn text(text: &str) -> Result<String, ChangeRefusal> {
    if text.len() > LONGEST_TEXT || text.contains(char::is_control) {
        return Err(ChangeRefusal::Invalid(text.chars().take(40).collect()));
    }
    Ok(text.to_lowercase())
}
