//! `add user`, `modify user`, `delete user`.

use super::{
    account::{edit_is_reset, modification, modified, narrow_line},
    asking,
    assoc_words::{self, Names, narrow},
    session::{Code, Session, not_modified},
    told,
    words::{Word, WordError, parts},
    world::World,
};
use garrick_accounts::change::{
    Action, AddUsers, Affected, Applied, Change, ChangeRefusal,
    edit::{AssocEdit, AssocFilter, UserEdit},
};
use garrick_model::entities::names::AdminLevel;

#[derive(Clone, Copy, Debug)]
enum Setting {
    Accounts,
    AdminLevel,
    Clusters,
    DefaultAccount,
    DefaultWcKey,
    Names,
    NewName,
    Partitions,
    WcKeys,
}

const SETTINGS: &[(&str, Setting)] = &[
    ("Accounts", Setting::Accounts),
    ("AdminLevel", Setting::AdminLevel),
    ("Clusters", Setting::Clusters),
    ("DefaultAccount", Setting::DefaultAccount),
    ("DefaultWCKey", Setting::DefaultWcKey),
    ("Names", Setting::Names),
    ("Users", Setting::Names),
    ("NewName", Setting::NewName),
    ("Partitions", Setting::Partitions),
    ("WCKeys", Setting::WcKeys),
];

impl Session<'_> {
    fn new_user_word(&self, add: &mut AddUsers, word: &Word<'_>) -> Result<(), WordError> {
        if word.key.is_none() {
            add.names.extend(word.names());
            return Ok(());
        }
        match word.find(SETTINGS) {
            Some(Setting::Accounts) => add.accounts.extend(word.names()),
            Some(Setting::AdminLevel) => add.admin = admin_level(word.value),
            Some(Setting::Clusters) => add.clusters.extend(word.names()),
            Some(Setting::DefaultAccount) => add.default_account = Some(word.value.to_lowercase()),
            Some(Setting::DefaultWcKey) => add.default_wckey = Some(word.value.to_lowercase()),
            Some(Setting::Names) => add.names.extend(word.names()),
            Some(Setting::Partitions) => add.partitions.extend(word.names()),
            Some(Setting::WcKeys) => add.wckeys.extend(word.names()),
            Some(Setting::NewName) => return Err(WordError::Unknown),
            None => return assoc_words::set(&mut add.edit, word, &self.entities),
        }
        Ok(())
    }

    /// `add user`.
    pub fn add_user(&mut self, words: &[String]) -> Code {
        let mut add = AddUsers::default();
        for word in words.iter().map(|word| Word::of(word)) {
            if let Err(error) = self.new_user_word(&mut add, &word) {
                return self.bad_word(&word, &error);
            }
        }
        if add.names.is_empty() {
            return self.fail(" Need name of user to add.\n");
        }
        // The account that is to be the default is one of the user's, the key as well.
        if add.accounts.is_empty() {
            add.accounts.extend(add.default_account.clone());
        }
        if add.wckeys.is_empty() {
            add.wckeys.extend(add.default_wckey.clone());
        }
        if add.accounts.is_empty() && add.wckeys.is_empty() {
            return self.fail(" Need name of account or wckey to add.\n");
        }
        if !self.users_are_known(&add.names) {
            return Ok(1);
        }
        let change = Action::AddUsers(add.clone());
        self.carry_out(change, |applied| added(applied, &add), |world, refusal| not_added(world, refusal))
    }

    /// Users who have no number here are asked about, unless nothing is to be asked.
    fn users_are_known(&mut self, names: &[String]) -> bool {
        for name in names.iter().map(|name| name.to_lowercase()) {
            let known = self.entities.users.get(&name).is_some_and(|user| !user.deleted);
            if self.immediate || known || self.world.uid(&name).is_some() {
                continue;
            }
            self.world.out(&format!("There is no uid for user '{name}'\n"));
            if !asking::is_sure(self.world, "Are you sure you want to continue?") {
                return false;
            }
        }
        true
    }

    fn user_setting(&self, user: &mut UserEdit, edit: &mut AssocEdit, word: &Word<'_>) -> Result<(), WordError> {
        match word.find(SETTINGS) {
            Some(Setting::AdminLevel) => user.admin = admin_level(word.value),
            Some(Setting::DefaultAccount) => user.default_account = Some(word.value.to_lowercase()),
            Some(Setting::DefaultWcKey) => user.default_wckey = Some(word.value.to_lowercase()),
            Some(Setting::NewName) => user.new_name = Some(word.value.to_lowercase()),
            Some(_) => return Err(WordError::Unknown),
            None => return assoc_words::set(edit, word, &self.entities),
        }
        Ok(())
    }

    /// `modify user`.
    pub fn modify_user(&mut self, words: &[String]) -> Code {
        let parts = parts(words);
        let mut filter = AssocFilter::default();
        for word in &parts.conditions {
            if narrow(&mut filter, word, Names::Users).is_err() {
                told::unknown_condition(self.world, word);
                return Ok(1);
            }
        }
        let (mut user, mut edit) = (UserEdit::default(), AssocEdit::default());
        for word in &parts.set {
            if let Err(error) = self.user_setting(&mut user, &mut edit, word) {
                return self.bad_word(word, &error);
            }
        }
        if user == UserEdit::default() && edit == AssocEdit::default() {
            return self.nothing_to_set();
        }
        let heading = match user == UserEdit::default() {
            true if edit_is_reset(&edit) => "",
            true => " Modified user associations...\n",
            false => " Modified users...\n",
        };
        let facts = Action::ModifyUsers { filter: filter.clone(), user: user.clone(), edit: AssocEdit::default() };
        let mut change = Change::default();
        if user != UserEdit::default() {
            change.actions.push(facts);
        }
        if edit != AssocEdit::default() {
            let here = self.world.cluster();
            change.actions.extend(
                modification(&filter, &here, edit, |filter, edit, _| Action::ModifyUsers {
                    filter,
                    user: UserEdit::default(),
                    edit,
                })
                .actions,
            );
        }
        self.carry_out(
            change,
            |applied| modified(applied, &filter),
            |world, refusal| not_modified(world, refusal, heading),
        )
    }

    /// `delete user`.
    pub fn delete_user(&mut self, words: &[String]) -> Code {
        let mut filter = AssocFilter::default();
        for word in &parts(words).conditions {
            if narrow(&mut filter, word, Names::Users).is_err() {
                told::unknown_condition(self.world, word);
                return Ok(1);
            }
        }
        if filter.is_empty() {
            return self.nothing_to_remove();
        }
        self.carry_out(Action::DeleteUsers(filter), deleted, |world, refusal| not_deleted(world, refusal))
    }
}

/// `None` where there is no such level, as for Slurm.
pub fn admin_level(text: &str) -> Option<AdminLevel> {
    let text = text.to_ascii_lowercase();
    let is = |word: &str, least: usize| text.len() >= least && word.starts_with(&text);
    match () {
        () if is("none", 1) => Some(AdminLevel::None),
        () if is("operator", 1) => Some(AdminLevel::Operator),
        () if is("administrator", 1) || is("superuser", 1) => Some(AdminLevel::Administrator),
        () => None,
    }
}

const fn level_text(level: AdminLevel) -> &'static str {
    match level {
        AdminLevel::None => "None",
        AdminLevel::Operator => "Operator",
        AdminLevel::Administrator => "Administrator",
    }
}

fn added(applied: &Applied, add: &AddUsers) -> String {
    let mut text = String::new();
    for one in &applied.affected {
        if let Affected::NoAccount { account, cluster } = one {
            text += &format!("No account {account} on cluster {cluster}, skipping.\n");
        }
    }
    let users = told::names(&applied.affected, told::user);
    if !users.is_empty() {
        text += &format!(" Adding User(s)\n{} Settings\n", told::lines(&users));
        if let Some(account) = &add.default_account {
            text += &format!("  Default Account = {account}\n");
        }
        if let Some(key) = &add.default_wckey {
            text += &format!("  Default WCKey   = {key}\n");
        }
        if let Some(level) = add.admin {
            text += &format!("  Admin Level     = {}\n", level_text(level));
        }
    }
    let associations = told::associations(&applied.affected);
    if !associations.is_empty() {
        text += &format!(" Associations =\n{associations}");
    }
    let keys: String = applied.affected.iter().filter_map(key_line).collect();
    if !keys.is_empty() {
        text += &format!(" Wckey(s)\n{keys}");
    }
    let values = assoc_words::lines(&add.edit, None);
    if !values.is_empty() {
        text += &format!(" Non Default Settings\n{}", assoc_words::table(&values, 13));
    }
    text
}

fn key_line(one: &Affected) -> Option<String> {
    match one {
        Affected::WcKey { cluster, name, user } => Some(format!("  C = {cluster:<10} W = {name:<10} U = {user:<9}\n")),
        _ => None,
    }
}

fn not_added(world: &mut dyn World, refusal: &ChangeRefusal) -> i32 {
    match refusal {
        ChangeRefusal::NothingAdded { missing } => {
            for (account, cluster) in missing {
                world.out(&format!("No account {account} on cluster {cluster}, skipping.\n"));
            }
            if missing.is_empty() {
                world.out("Request didn't affect anything\n");
            }
            world.out(
                "Nothing added.\nMake sure the accounts requested here have been added to the system/cluster. \
                 (sacctmgr add account...)\n",
            );
        }
        ChangeRefusal::NotEvenCoordinator => world.err(&format!(
            " error: Problem adding user associations: Access/permission denied ({})\n",
            told::why_not_added(refusal)
        )),
        ChangeRefusal::Denied => world
            .err(&format!(" error: Problem adding user associations: Access/permission denied ({}\n)\n", told::DENIED)),
        other => world.err(&format!(" error: Problem adding user associations: {}\n", told::why_not_added(other))),
    }
    1
}

fn deleted(applied: &Applied) -> String {
    let users = told::names(&applied.affected, told::user);
    let associations: String = applied.affected.iter().filter_map(narrow_line).collect();
    let mut text = String::new();
    if !associations.is_empty() {
        text += &format!(" Deleting user associations...\n{associations}");
    }
    if !users.is_empty() {
        let which = if associations.is_empty() { "users" } else { "users (No Associations)" };
        text += &format!(" Deleting {which}...\n{}", told::lines(&users));
    }
    text
}

fn not_deleted(world: &mut dyn World, refusal: &ChangeRefusal) -> i32 {
    match refusal {
        ChangeRefusal::NothingDeleted => world.out(" Nothing deleted\n"),
        ChangeRefusal::DefaultAccount(which) => {
            let lines: String = which.iter().map(|name| told::narrow_association(name, 15)).collect();
            world.err(&format!(
                " Error with request: You can not remove the default account of a user\n{lines} \
                 You must change the default account of these users or remove the users completely from the affected \
                 clusters to allow these changes.\n Changes Discarded\n"
            ));
        }
        other => told::refused(world, other, ""),
    }
    1
}
