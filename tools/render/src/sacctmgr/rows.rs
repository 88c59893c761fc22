//! Which lines `sacctmgr list` shows, in which order.

use super::condition::{Key, More, Request};
use garrick_accounts::change::Transaction;
use garrick_model::entities::{
    Entities,
    association::Association,
    limits::{Count, Limits, TresLimit},
    names::{Account, Cluster, Resource, TresRecord, User, WcKey},
    qos::QosRecord,
};
use std::collections::BTreeSet;

/// A line: what it is about, and what belongs to that.
#[derive(Clone, Debug)]
pub struct Row<'e> {
    /// Everything.
    pub entities: &'e Entities,
    /// The cluster of the one who asks.
    pub here: &'e str,
    /// Account.
    pub account: Option<&'e Account>,
    /// User.
    pub user: Option<&'e User>,
    /// Cluster.
    pub cluster: Option<&'e Cluster>,
    /// Federation.
    pub federation: Option<&'e str>,
    /// QOS.
    pub qos: Option<&'e QosRecord>,
    /// WCKey.
    pub wckey: Option<&'e WcKey>,
    /// TRES.
    pub tres: Option<&'e TresRecord>,
    /// Licenses, and the cluster that may use so many of them.
    pub resource: Option<(&'e Resource, Option<(&'e str, u32)>)>,
    /// A change.
    pub transaction: Option<&'e Transaction>,
    /// Association, with what holds for it.
    pub association: Option<Seen<'e>>,
}

/// An association as it is shown.
#[derive(Clone, Debug)]
pub struct Seen<'e> {
    /// The association.
    pub of: &'e Association,
    /// Limits.
    pub limits: Limits,
    /// Priority.
    pub priority: Option<u32>,
    /// Default QOS.
    pub default_qos: Option<String>,
    /// QOS.
    pub qos: BTreeSet<String>,
    /// How far below the root, where accounts are indented.
    pub indent: usize,
}

impl<'e> Seen<'e> {
    /// With what comes from above, or only with its own.
    fn of(entities: &'e Entities, of: &'e Association, request: &Request) -> Self {
        let indent = if request.has(More::Tree) { entities.lineage(of.id).count().saturating_sub(1) } else { 0 };
        if request.has(More::OwnOnly) {
            return Self {
                of,
                limits: of.limits.clone(),
                priority: of.priority,
                default_qos: of.default_qos.clone(),
                qos: of.qos.over(BTreeSet::new()),
                indent,
            };
        }
        let effective = entities.effective(of.id);
        Self {
            of,
            limits: effective.limits,
            priority: effective.priority,
            default_qos: effective.default_qos,
            qos: effective.qos,
            indent,
        }
    }

    /// A number.
    pub fn count(&self, count: Count) -> Option<u64> {
        self.limits.count(count)
    }

    /// The number for a kind of TRES.
    pub fn tres(&self, limit: TresLimit, name: &str) -> Option<u64> {
        self.limits.tres(limit, name)
    }
}

/// Where an association is in its tree: accounts from the root on, users before the accounts below (`/physics/0-alice/`).
pub fn lineage(entities: &Entities, association: &Association) -> String {
    let mut accounts: Vec<&str> = entities
        .lineage(association.id)
        .filter(|a| a.user.is_none() && a.parent.is_some())
        .map(|a| &*a.account)
        .collect();
    accounts.reverse();
    let mut text = String::from("/");
    for account in accounts {
        text.extend([account, "/"]);
    }
    if let Some(user) = &association.user {
        text.extend(["0-", user, "/"]);
        text.extend(association.partition.iter().flat_map(|partition| [partition.as_str(), "/"]));
    }
    text
}

/// All associations that may be shown, in order: by cluster, then as in the tree.
pub fn ordered(entities: &Entities, deleted: bool) -> Vec<&Association> {
    let mut all: Vec<&Association> = entities.associations.values().filter(|a| deleted || !a.deleted).collect();
    all.sort_by_cached_key(|a| (a.cluster.clone(), lineage(entities, a), a.id));
    all
}

/// Who lists.
#[derive(Clone, Copy, Debug)]
pub struct Listing<'e> {
    /// Everything that he may see.
    pub entities: &'e Entities,
    /// His cluster.
    pub here: &'e str,
    /// What he asks for.
    pub request: &'e Request,
}

impl<'e> Listing<'e> {
    fn blank(&self) -> Row<'e> {
        Row {
            entities: self.entities,
            here: self.here,
            account: None,
            user: None,
            cluster: None,
            federation: None,
            qos: None,
            wckey: None,
            tres: None,
            resource: None,
            transaction: None,
            association: None,
        }
    }

    fn shows(&self, deleted: bool) -> bool {
        !deleted || self.request.has(More::Deleted)
    }

    fn of_association(&self, association: &'e Association) -> Row<'e> {
        Row {
            account: self.entities.accounts.get(&association.account),
            user: association.user.as_ref().and_then(|user| self.entities.users.get(user)),
            cluster: self.entities.clusters.get(&association.cluster),
            association: Some(Seen::of(self.entities, association, self.request)),
            ..self.blank()
        }
    }

    /// Does an association meet the conditions? Those about accounts may name one above.
    fn takes(&self, association: &Association) -> bool {
        let request = self.request;
        let in_account = if request.has(More::SubAccounts) {
            request.takes_any(Key::Account, self.entities.lineage(association.id).map(|a| a.account.as_str()))
        } else {
            request.takes(Key::Account, &association.account)
        };
        let parent = || self.parent(association).unwrap_or_default();
        let qos = || self.entities.effective(association.id);
        in_account
            && request.takes(Key::Cluster, &association.cluster)
            && request.takes_option(Key::User, association.user.as_deref())
            && request.takes_option(Key::Partition, association.partition.as_deref())
            && request.takes(Key::Id, &association.id.0.to_string())
            && (!request.asks(Key::Parent) || request.takes(Key::Parent, parent()))
            && (!request.asks(Key::Qos) || request.takes_any(Key::Qos, qos().qos.iter().map(String::as_str)))
            && (!request.asks(Key::DefaultQos) || request.takes_option(Key::DefaultQos, qos().default_qos.as_deref()))
    }

    /// The account above an account; of a user, none.
    fn parent(&self, association: &Association) -> Option<&'e str> {
        parent_name(self.entities, association)
    }

    /// Associations.
    pub fn associations(&self) -> Vec<Row<'e>> {
        let mut all = ordered(self.entities, self.request.has(More::Deleted));
        all.retain(|a| self.takes(a) && (!self.request.has(More::OnlyDefaults) || a.is_default));
        all.into_iter().map(|a| self.of_association(a)).collect()
    }

    /// Is anything said about associations?
    fn asks_of_associations(&self) -> bool {
        [Key::Account, Key::Cluster, Key::User, Key::Partition, Key::Parent, Key::Qos, Key::DefaultQos]
            .into_iter()
            .any(|key| self.request.asks(key))
    }

    /// Lines of something with associations: one for each with `WithAssoc`, else one.
    fn with_associations(
        &self,
        row: &Row<'e>,
        its: impl Fn(&Association) -> bool,
        all: &[&'e Association],
    ) -> Vec<Row<'e>> {
        let its: Vec<&'e Association> = all.iter().copied().filter(|a| its(a) && self.takes(a)).collect();
        if its.is_empty() && self.asks_of_associations() {
            return Vec::new();
        }
        if its.is_empty() || !self.request.has(More::Associations) {
            return vec![row.clone()];
        }
        its.into_iter().map(|a| self.of_association(a)).collect()
    }

    /// Accounts, by name.
    pub fn accounts(&self) -> Vec<Row<'e>> {
        let request = self.request;
        let all = ordered(self.entities, request.has(More::Deleted));
        let mut rows = Vec::new();
        for account in self.entities.accounts.values() {
            if self.shows(account.deleted)
                && request.takes(Key::Name, &account.name)
                && request.takes(Key::Description, &account.description)
                && request.takes(Key::Organization, &account.organization)
            {
                let row = Row { account: Some(account), ..self.blank() };
                rows.extend(self.with_associations(&row, |a| a.account == account.name, &all));
            }
        }
        rows
    }

    /// Users, by name.
    pub fn users(&self) -> Vec<Row<'e>> {
        let request = self.request;
        let all = ordered(self.entities, request.has(More::Deleted));
        let mut rows = Vec::new();
        for user in self.entities.users.values() {
            let row = Row { user: Some(user), ..self.blank() };
            if self.shows(user.deleted)
                && request.takes(Key::Name, &user.name)
                && request.takes(Key::Admin, super::amounts::admin(user.admin))
                && (!request.asks(Key::DefaultAccount)
                    || request.takes_option(Key::DefaultAccount, row.default_account()))
                && (!request.asks(Key::DefaultWcKey) || request.takes_option(Key::DefaultWcKey, row.default_wckey()))
            {
                rows.extend(self.with_associations(&row, |a| a.user.as_ref() == Some(&user.name), &all));
            }
        }
        rows
    }

    /// Clusters, by name, with the associations of their roots.
    pub fn clusters(&self) -> Vec<Row<'e>> {
        let request = self.request;
        let clusters = self.entities.clusters.values().filter(|cluster| {
            self.shows(cluster.deleted)
                && request.takes(Key::Name, &cluster.name)
                && request.takes(Key::Classification, &cluster.classification)
                && request.takes(Key::Federation, &cluster.federation)
                && request.takes_any(Key::Flags, cluster.flags.iter().map(String::as_str))
        });
        let row = |cluster: &'e Cluster| {
            let root = self.entities.living(&cluster.name).find(|a| a.parent.is_none() && a.user.is_none());
            let association = root.map(|a| Seen::of(self.entities, a, request));
            Row { cluster: Some(cluster), association, ..self.blank() }
        };
        clusters.map(row).collect()
    }

    /// Federations, by name, with their clusters; with `Tree` in lines of their own below them.
    pub fn federations(&self) -> Vec<Row<'e>> {
        let request = self.request;
        let mut rows = Vec::new();
        for federation in self.entities.federations.values() {
            let members = self.entities.in_federation(&federation.name);
            let taken = self.shows(federation.deleted)
                && request.takes(Key::Name, &federation.name)
                && request.takes_any(Key::Cluster, members.iter().map(|cluster| cluster.name.as_str()));
            if !taken {
                continue;
            }
            let (tree, name) = (request.has(More::Tree), Some(federation.name.as_str()));
            if tree || members.is_empty() {
                rows.push(Row { federation: name, ..self.blank() });
            }
            let federation = name.filter(|_| !tree);
            rows.extend(members.into_iter().map(|cluster| Row { federation, cluster: Some(cluster), ..self.blank() }));
        }
        rows
    }

    /// QOS, by number.
    pub fn qos(&self) -> Vec<Row<'e>> {
        let request = self.request;
        let mut all: Vec<&QosRecord> = self.entities.qos.values().filter(|qos| self.shows(qos.deleted)).collect();
        all.retain(|qos| {
            request.takes(Key::Name, &qos.name)
                && request.takes(Key::Id, &qos.id.to_string())
                && request.takes(Key::Description, &qos.description)
        });
        all.sort_by_key(|qos| qos.id);
        all.into_iter().map(|qos| Row { qos: Some(qos), ..self.blank() }).collect()
    }

    /// TRES, by number.
    pub fn tres(&self) -> Vec<Row<'e>> {
        let request = self.request;
        let takes = |tres: &&TresRecord| {
            request.takes(Key::Name, &tres.name)
                && request.takes(Key::Type, &tres.kind)
                && request.takes(Key::Id, &tres.id.to_string())
        };
        self.entities.tres.values().filter(takes).map(|tres| Row { tres: Some(tres), ..self.blank() }).collect()
    }

    /// WCKeys, by name and user.
    pub fn wckeys(&self) -> Vec<Row<'e>> {
        let request = self.request;
        let mut all: Vec<&WcKey> = self.entities.wckeys.values().filter(|key| self.shows(key.deleted)).collect();
        all.retain(|key| {
            request.takes(Key::Name, &key.name)
                && request.takes(Key::Cluster, &key.cluster)
                && request.takes(Key::User, &key.user)
                && request.takes(Key::Id, &key.id.to_string())
        });
        all.sort_by_key(|key| (&key.name, &key.cluster, &key.user, key.id));
        all.into_iter().map(|key| Row { wckey: Some(key), ..self.blank() }).collect()
    }

    /// Licenses of servers, by number: with `WithClusters` a line for each cluster.
    pub fn resources(&self) -> Vec<Row<'e>> {
        let request = self.request;
        let mut rows = Vec::new();
        for resource in self.entities.resources.values() {
            let taken = self.shows(resource.deleted)
                && request.takes(Key::Name, &resource.name)
                && request.takes(Key::Server, &resource.server)
                && request.takes(Key::Description, &resource.description)
                && request.takes(Key::Id, &resource.id.to_string())
                && request.takes_any(Key::Cluster, resource.allowed.keys().map(String::as_str));
            let clusters = resource.allowed.iter().map(|(name, allowed)| (name.as_str(), *allowed));
            let clusters = clusters.filter(|(name, _)| request.takes(Key::Cluster, name));
            let row = |of| Row { resource: Some((resource, of)), ..self.blank() };
            match (taken, request.has(More::Clusters) && !resource.allowed.is_empty()) {
                (false, _) => {}
                (true, true) => rows.extend(clusters.map(|of| row(Some(of)))),
                (true, false) => rows.push(row(None)),
            }
        }
        rows
    }

    /// Changes, oldest first.
    pub fn transactions(&self, all: &'e [Transaction]) -> Vec<Row<'e>> {
        let request = self.request;
        let about = |t: &Transaction, key| request.takes_any(key, t.about.iter().map(String::as_str));
        let takes = |t: &&Transaction| {
            request.takes(Key::Action, &t.action)
                && request.takes(Key::Actor, &t.actor)
                && [Key::Account, Key::User, Key::Cluster].into_iter().all(|key| about(t, key))
        };
        all.iter().filter(takes).map(|t| Row { transaction: Some(t), ..self.blank() }).collect()
    }
}

/// The account above an account; `None` of a user and of the root.
pub fn parent_name<'e>(entities: &'e Entities, association: &Association) -> Option<&'e str> {
    let parent = association.parent.filter(|_| association.user.is_none())?;
    Some(entities.associations.get(&parent)?.account.as_str())
}

impl<'e> Row<'e> {
    /// The cluster that the line is about, or that of the one who asks.
    fn cluster_name(&self) -> &str {
        self.association.as_ref().map_or(self.here, |a| &a.of.cluster)
    }

    /// The user's default account: here, or where he has one.
    pub fn default_account(&self) -> Option<&'e str> {
        let user = self.user?;
        let here = self.entities.default_account(self.cluster_name(), &user.name);
        here.or_else(|| {
            let any = |a: &&Association| !a.deleted && a.is_default && a.user.as_ref() == Some(&user.name);
            self.entities.associations.values().find(any).map(|a| a.account.as_str())
        })
    }

    /// The user's default WCKey.
    pub fn default_wckey(&self) -> Option<&'e str> {
        let user = self.user?;
        let its = |key: &&WcKey| !key.deleted && key.is_default && key.user == user.name;
        let here = |key: &&WcKey| its(key) && key.cluster == self.cluster_name();
        let keys = || self.entities.wckeys.values();
        keys().find(here).or_else(|| keys().find(its)).map(|key| key.name.as_str())
    }

    /// Accounts that the user coordinates.
    pub fn coordinated(&self) -> Vec<&'e str> {
        let Some(user) = self.user else { return Vec::new() };
        let accounts = self.entities.accounts.values().filter(|account| !account.deleted);
        accounts.filter(|account| account.coordinators.contains(&user.name)).map(|account| &*account.name).collect()
    }
}
