//! The changes that a file of `load` comes to, found by trying each on a copy of what there is.

use super::{
    assoc_words,
    flat_file::{Line, Title},
    qos,
    user::admin_level,
    words::{Word, WordError},
};
use garrick_accounts::change::{
    Action, Actor, AddAccounts, AddUsers, ChangeRefusal, apply,
    edit::{AccountEdit, AssocEdit, AssocFilter, ClusterEdit, QosEdit, UserEdit},
};
use garrick_model::{
    entities::{
        Entities, ROOT,
        association::{AssocId, Association},
        names::{Account, AdminLevel, WcKey},
    },
    time::Timestamp,
};
use std::collections::BTreeSet;

/// Of the copy only: what is stored gets the time of the service.
const NOW: Timestamp = Timestamp(0);

/// Why a file cannot be loaded. Numbers are those of lines.
#[derive(Debug)]
pub enum PlanError {
    /// A line comes before that of the cluster.
    NoCluster,
    /// The account above is not there.
    NoParent(usize, String),
    /// A word is not understood.
    Word(usize, String, WordError),
    /// The line cannot be carried out.
    Refused(usize, ChangeRefusal),
}

/// Changes, and what they come to.
pub struct Plan {
    before: Entities,
    /// What there will be.
    pub after: Entities,
    name: Option<String>,
    clean: bool,
    cluster: Option<String>,
    parent: String,
    seen: BTreeSet<String>,
    late: Vec<(usize, String, Action)>,
    /// In their order.
    pub actions: Vec<Action>,
    /// Lines about users.
    pub notes: String,
    /// The cluster is new: the association of its root.
    pub root: Option<AssocId>,
    /// New accounts.
    pub accounts: Vec<String>,
    /// New associations of accounts.
    pub of_accounts: Vec<AssocId>,
    /// New associations of users.
    pub of_users: Vec<AssocId>,
}

/// What the line of a user says.
#[derive(Default)]
struct Asked {
    add: AddUsers,
    coordinates: Vec<String>,
}

impl Plan {
    pub fn new(entities: Entities, name: Option<String>, clean: bool) -> Self {
        Self {
            after: entities.clone(),
            before: entities,
            name,
            clean,
            cluster: None,
            parent: ROOT.to_owned(),
            seen: BTreeSet::new(),
            late: Vec::new(),
            actions: Vec::new(),
            notes: String::new(),
            root: None,
            accounts: Vec::new(),
            of_accounts: Vec::new(),
            of_users: Vec::new(),
        }
    }

    /// The cluster that the file is for, once its line was read.
    pub fn cluster(&self) -> Option<&str> {
        self.cluster.as_deref()
    }

    /// Takes all lines.
    pub fn take(&mut self, lines: &[Line]) -> Result<(), PlanError> {
        // QOS name each other: first all that are new, then their values.
        let is_new =
            |line: &&Line| line.title == Title::Qos && self.after.qos.get(&line.name).is_none_or(|qos| qos.deleted);
        let new: Vec<Line> = lines.iter().filter(is_new).cloned().collect();
        for line in &new {
            let change = Action::AddQos { names: vec![line.name.clone()], edit: QosEdit::default() };
            self.step(line.number, change)?;
        }
        for line in &new {
            self.qos(line)?;
        }
        for line in lines {
            match line.title {
                Title::Qos => {}
                Title::Cluster => self.cluster_line(line)?,
                _ if self.cluster.is_none() => return Err(PlanError::NoCluster),
                Title::Parent => self.parent_line(line)?,
                Title::Account => self.account(line)?,
                Title::User => self.user(line)?,
            }
        }
        for (number, user, change) in std::mem::take(&mut self.late) {
            self.step_if_needed(number, &user, change)?;
        }
        Ok(())
    }

    fn step(&mut self, number: usize, action: Action) -> Result<(), PlanError> {
        let root = Actor { name: ROOT.to_owned(), believed: true };
        apply(&mut self.after, &action.clone().into(), &root, NOW).map_err(|why| PlanError::Refused(number, why))?;
        self.actions.push(action);
        Ok(())
    }

    /// A step that changes nothing of what has that name, but for times, is left out.
    fn step_if_needed(&mut self, number: usize, name: &str, action: Action) -> Result<(), PlanError> {
        let before = about(&self.after, name);
        self.step(number, action)?;
        if before == about(&self.after, name) {
            self.actions.pop();
        }
        Ok(())
    }

    fn qos(&mut self, line: &Line) -> Result<(), PlanError> {
        let mut edit = QosEdit::default();
        for whole in &line.words {
            let set = qos::set(&mut edit, &Word::of(whole), &self.after);
            set.map_err(|error| PlanError::Word(line.number, whole.clone(), error))?;
        }
        if edit != QosEdit::default() {
            self.step(line.number, Action::ModifyQos { names: vec![line.name.clone()], edit })?;
        }
        Ok(())
    }

    fn cluster_line(&mut self, line: &Line) -> Result<(), PlanError> {
        let name = self.name.clone().unwrap_or_else(|| line.name.clone());
        let (mut cluster, mut edit) = (ClusterEdit::default(), AssocEdit::default());
        for whole in &line.words {
            let word = Word::of(whole);
            match word.key {
                Some(key) if key.eq_ignore_ascii_case("Classification") => {
                    cluster.classification = Some(word.value.to_owned());
                }
                _ => assoc_words::set(&mut edit, &word, &self.after)
                    .map_err(|error| PlanError::Word(line.number, whole.clone(), error))?,
            }
        }
        self.cluster = Some(name.clone());
        let lives = |plan: &Self| plan.after.clusters.get(&name).is_some_and(|cluster| !cluster.deleted);
        if self.clean && lives(self) {
            self.step(line.number, Action::DeleteClusters(vec![name.clone()]))?;
        }
        let names = vec![name.clone()];
        if lives(self) {
            return self.step_if_needed(line.number, &name, Action::ModifyClusters { names, cluster, edit });
        }
        self.step(line.number, Action::AddClusters { names, cluster, edit })?;
        self.root = self.after.account_association(&name, ROOT).map(|root| root.id);
        Ok(())
    }

    fn parent_line(&mut self, line: &Line) -> Result<(), PlanError> {
        let cluster = self.cluster.as_deref().unwrap_or_default();
        if self.after.account_association(cluster, &line.name).is_none() {
            return Err(PlanError::NoParent(line.number, line.name.clone()));
        }
        self.parent.clone_from(&line.name);
        Ok(())
    }

    fn account(&mut self, line: &Line) -> Result<(), PlanError> {
        let cluster = self.cluster.clone().unwrap_or_default();
        let (mut account, mut edit) = (AccountEdit::default(), AssocEdit::default());
        for whole in &line.words {
            let word = Word::of(whole);
            match word.key.map(str::to_ascii_lowercase).as_deref() {
                Some("description") => account.description = Some(word.value.to_owned()),
                Some("organization") => account.organization = Some(word.value.to_owned()),
                _ => assoc_words::set(&mut edit, &word, &self.after)
                    .map_err(|error| PlanError::Word(line.number, whole.clone(), error))?,
            }
        }
        let (names, clusters) = (vec![line.name.clone()], vec![cluster.clone()]);
        if let Some(there) = self.after.account_association(&cluster, &line.name) {
            let above = there.parent.and_then(|id| self.after.associations.get(&id)).map(|above| above.account.clone());
            let parent = (above.as_ref() != Some(&self.parent)).then(|| self.parent.clone());
            let filter = AssocFilter { clusters, accounts: names, ..AssocFilter::default() };
            return self.step_if_needed(
                line.number,
                &line.name,
                Action::ModifyAccounts { filter, account, parent, edit },
            );
        }
        if self.after.accounts.get(&line.name).is_none_or(|account| account.deleted) {
            self.accounts.push(line.name.clone());
        }
        let parent = Some(self.parent.clone());
        self.step(line.number, Action::AddAccounts(AddAccounts { names, clusters, parent, account, edit }))?;
        self.of_accounts.extend(self.after.account_association(&cluster, &line.name).map(|new| new.id));
        Ok(())
    }

    fn user(&mut self, line: &Line) -> Result<(), PlanError> {
        let cluster = self.cluster.clone().unwrap_or_default();
        let mut asked = Asked::default();
        for whole in &line.words {
            user_word(&mut asked, &Word::of(whole), &self.after)
                .map_err(|error| PlanError::Word(line.number, whole.clone(), error))?;
        }
        if self.seen.insert(line.name.clone()) {
            self.facts(line, &asked, &cluster);
        }
        let Asked { add, .. } = asked;
        let partition = add.partitions.first().cloned();
        if self.of_user(&cluster, &line.name, partition.as_deref()).is_some() {
            let filter = AssocFilter {
                clusters: vec![cluster],
                accounts: vec![self.parent.clone()],
                users: vec![line.name.clone()],
                partitions: add.partitions,
                parents: Vec::new(),
            };
            let change = Action::ModifyUsers { filter, user: UserEdit::default(), edit: add.edit };
            return self.step_if_needed(line.number, &line.name, change);
        }
        let new = AddUsers {
            names: vec![line.name.clone()],
            accounts: vec![self.parent.clone()],
            clusters: vec![cluster.clone()],
            partitions: add.partitions,
            admin: add.admin,
            edit: add.edit,
            ..AddUsers::default()
        };
        self.step(line.number, Action::AddUsers(new))?;
        self.of_users.extend(self.of_user(&cluster, &line.name, partition.as_deref()));
        Ok(())
    }

    /// The association of a user in the account that was last named as parent.
    fn of_user(&self, cluster: &str, user: &str, partition: Option<&str>) -> Option<AssocId> {
        let is_it = |a: &&Association| {
            a.account == self.parent && a.user.as_deref() == Some(user) && a.partition.as_deref() == partition
        };
        self.after.living(cluster).find(is_it).map(|a| a.id)
    }

    /// What holds for the user in all his accounts: said by his first line, done when all of them are there.
    fn facts(&mut self, line: &Line, asked: &Asked, cluster: &str) {
        let (number, user) = (line.number, &line.name);
        let modify = |facts: UserEdit, clusters: Vec<String>| Action::ModifyUsers {
            filter: AssocFilter { clusters, users: vec![user.clone()], ..AssocFilter::default() },
            user: facts,
            edit: AssocEdit::default(),
        };
        let level = self.before.users.get(user).filter(|user| !user.deleted).map(|user| user.admin);
        if let Some(admin) = asked.add.admin.filter(|admin| level.is_some_and(|level| level != *admin)) {
            self.notes += &format!(
                " Changed Admin Level           for User    {user:<10} {:>8} -> {}\n",
                word(level),
                word(Some(admin))
            );
            self.late.push((
                number,
                user.clone(),
                modify(UserEdit { admin: Some(admin), ..UserEdit::default() }, Vec::new()),
            ));
        }
        if let Some(account) = &asked.add.default_account {
            let now = self.before.default_account(cluster, user);
            if now != Some(account) {
                self.notes += &changed("Default Account", user, now.unwrap_or("(null)"), account);
            }
            let facts = UserEdit { default_account: Some(account.clone()), ..UserEdit::default() };
            self.late.push((number, user.clone(), modify(facts, vec![cluster.to_owned()])));
        }
        self.keys(line, asked, cluster);
        if !asked.coordinates.is_empty() {
            let (accounts, users) = (asked.coordinates.clone(), vec![user.clone()]);
            self.late.push((number, user.clone(), Action::AddCoordinators { accounts, users }));
        }
    }

    fn keys(&mut self, line: &Line, asked: &Asked, cluster: &str) {
        let user = &line.name;
        let of_user = |key: &&WcKey| !key.deleted && key.cluster == cluster && key.user == *user;
        let now = self.before.wckeys.values().filter(of_user).find(|key| key.is_default);
        if let Some(key) = &asked.add.default_wckey {
            let now = now.map(|key| key.name.as_str());
            if now != Some(key) {
                self.notes += &changed("Default WCKey", user, now.unwrap_or(""), key);
            }
        }
        let has = |name: &String| self.before.wckeys.values().filter(of_user).any(|key| key.name == *name);
        let new: Vec<String> = asked.add.wckeys.iter().filter(|name| !has(name)).cloned().collect();
        if !new.is_empty() {
            let names = new.iter().map(|name| format!("'{name}'")).collect::<Vec<_>>().join(", ");
            self.notes += &format!(" Adding WCKey(s) {names} for user '{user}'\n");
            let add = AddUsers {
                names: vec![user.clone()],
                clusters: vec![cluster.to_owned()],
                wckeys: new,
                default_wckey: asked.add.default_wckey.clone(),
                ..AddUsers::default()
            };
            self.late.push((line.number, user.clone(), Action::AddUsers(add)));
        }
        if let Some(key) = asked.add.default_wckey.clone() {
            let filter =
                AssocFilter { clusters: vec![cluster.to_owned()], users: vec![user.clone()], ..AssocFilter::default() };
            let facts = UserEdit { default_wckey: Some(key), ..UserEdit::default() };
            self.late.push((
                line.number,
                user.clone(),
                Action::ModifyUsers { filter, user: facts, edit: AssocEdit::default() },
            ));
        }
    }
}

fn user_word(asked: &mut Asked, word: &Word<'_>, entities: &Entities) -> Result<(), WordError> {
    match word.key.map(str::to_ascii_lowercase).as_deref() {
        Some("adminlevel") => asked.add.admin = admin_level(word.value),
        Some("coordinator") => asked.coordinates = word.names(),
        Some("defaultaccount") => asked.add.default_account = Some(word.value.to_lowercase()),
        Some("defaultwckey") => asked.add.default_wckey = Some(word.value.to_lowercase()),
        Some("partition") => asked.add.partitions = word.names(),
        Some("wckeys") => asked.add.wckeys = word.names(),
        _ => return assoc_words::set(&mut asked.add.edit, word, entities),
    }
    Ok(())
}

fn changed(what: &str, user: &str, before: &str, after: &str) -> String {
    format!(" Changed {what:<22}for User    {user:<10} {before:>8} -> {after}\n")
}

const fn word(level: Option<AdminLevel>) -> &'static str {
    match level {
        None => "(null)",
        Some(AdminLevel::None) => "None",
        Some(AdminLevel::Operator) => "Operator",
        Some(AdminLevel::Administrator) => "Administrator",
    }
}

/// What there is of a cluster, an account or a user, without the times, which each change moves on.
fn about(entities: &Entities, name: &str) -> impl PartialEq + use<> {
    let is_about = |a: &&Association| {
        a.account == name || a.user.as_deref() == Some(name) || (a.cluster == name && a.account == ROOT)
    };
    let timeless = |a: &Association| Association { modified: NOW, ..a.clone() };
    let associations: Vec<Association> = entities.associations.values().filter(is_about).map(timeless).collect();
    let keys: Vec<WcKey> = entities.wckeys.values().filter(|key| key.user == name).cloned().collect();
    let coordinates = |account: &&Account| account.coordinators.contains(name);
    let coordinated: Vec<String> = entities.accounts.values().filter(coordinates).map(|a| a.name.clone()).collect();
    let cluster = entities.clusters.get(name).cloned();
    (associations, keys, coordinated, entities.accounts.get(name).cloned(), entities.users.get(name).cloned(), cluster)
}
