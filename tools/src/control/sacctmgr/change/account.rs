//! `add account`, `modify account`, `delete account`.

use super::{
    assoc_words::{self, Names, narrow},
    session::{Code, Session, not_modified},
    told,
    words::{Word, WordError, parts},
    world::World,
};
use garrick_accounts::change::{
    Action, AddAccounts, Affected, Applied, Change, ChangeRefusal,
    edit::{AccountEdit, AssocEdit, AssocFilter},
};

#[derive(Clone, Copy, Debug)]
enum Setting {
    Clusters,
    Description,
    Flags,
    Names,
    Organization,
    Parent,
}

const SETTINGS: &[(&str, Setting)] = &[
    ("Clusters", Setting::Clusters),
    ("Description", Setting::Description),
    ("Flags", Setting::Flags),
    ("Names", Setting::Names),
    ("Accounts", Setting::Names),
    ("Organization", Setting::Organization),
    ("Parent", Setting::Parent),
];

/// What `add account` and `modify account` are told.
#[derive(Debug, Default)]
struct Asked {
    add: AddAccounts,
    /// Something but names and clusters.
    sets: bool,
}

impl Session<'_> {
    fn account_word(&self, asked: &mut Asked, word: &Word<'_>) -> Result<(), WordError> {
        let add = &mut asked.add;
        if word.key.is_none() {
            add.names.extend(word.names());
            return Ok(());
        }
        let Some(setting) = word.find(SETTINGS) else {
            asked.sets = true;
            return assoc_words::set(&mut add.edit, word, &self.entities);
        };
        asked.sets |= !matches!(setting, Setting::Clusters | Setting::Names);
        match setting {
            Setting::Clusters => add.clusters.extend(word.names()),
            Setting::Names => add.names.extend(word.names()),
            Setting::Description => add.account.description = Some(word.value.to_owned()),
            Setting::Organization => add.account.organization = Some(word.value.to_owned()),
            Setting::Parent => add.parent = Some(word.value.to_lowercase()),
            Setting::Flags => add.account.users_are_coordinators = Some(users_are_coordinators(word)?),
        }
        Ok(())
    }

    /// `add account`.
    pub fn add_account(&mut self, words: &[String]) -> Code {
        let mut asked = Asked::default();
        for word in words.iter().map(|word| Word::of(word)) {
            if let Err(error) = self.account_word(&mut asked, &word) {
                return self.bad_word(&word, &error);
            }
        }
        if asked.add.names.is_empty() {
            return self.fail(" Need name of account to add.\n");
        }
        let change = Action::AddAccounts(asked.add.clone());
        self.carry_out(change, |applied| added(applied, &asked), |world, refusal| not_added(world, refusal))
    }

    /// `modify account`.
    pub fn modify_account(&mut self, words: &[String]) -> Code {
        let parts = parts(words);
        let mut filter = AssocFilter::default();
        for word in &parts.conditions {
            match narrow(&mut filter, word, Names::Accounts) {
                Ok(()) => {}
                Err(_) => {
                    told::unknown_condition(self.world, word);
                    return Ok(1);
                }
            }
        }
        let mut asked = Asked::default();
        for word in &parts.set {
            if word.key.is_none() || matches!(word.find(SETTINGS), Some(Setting::Clusters | Setting::Names)) {
                return self.bad_word(word, &WordError::Unknown);
            }
            if let Err(error) = self.account_word(&mut asked, word) {
                return self.bad_word(word, &error);
            }
        }
        if !asked.sets {
            return self.nothing_to_set();
        }
        let AddAccounts { account, parent, edit, .. } = asked.add;
        let change = modification(&filter, &self.world.cluster(), edit.clone(), |filter, edit, rest| {
            let (account, parent) = if rest { (account.clone(), parent.clone()) } else { Default::default() };
            Action::ModifyAccounts { filter, account, parent, edit }
        });
        let heading = match account {
            AccountEdit { description: None, organization: None, .. } if edit_is_reset(&edit) && parent.is_none() => "",
            AccountEdit { description: None, organization: None, .. } => " Modified account associations...\n",
            _ => " Modified accounts...\n",
        };
        self.carry_out(
            change,
            |applied| modified(applied, &filter),
            |world, refusal| not_modified(world, refusal, heading),
        )
    }

    /// `delete account`.
    pub fn delete_account(&mut self, words: &[String]) -> Code {
        let mut filter = AssocFilter::default();
        for word in &parts(words).conditions {
            if narrow(&mut filter, word, Names::Accounts).is_err() {
                told::unknown_condition(self.world, word);
                return Ok(1);
            }
        }
        if filter.is_empty() {
            return self.nothing_to_remove();
        }
        self.carry_out(Action::DeleteAccounts(filter), deleted, |world, refusal| not_deleted(world, refusal))
    }
}

/// Nothing is set but `RawUsage`.
pub fn edit_is_reset(edit: &AssocEdit) -> bool {
    edit.reset_usage && !edit.sets_values()
}

/// The change, and where past use is set to 0 as well, that for the cluster that is here unless others are named. What else is set,
/// values or facts, is in the first action; it may be nothing.
pub fn modification(
    filter: &AssocFilter,
    here: &str,
    edit: AssocEdit,
    action: impl Fn(AssocFilter, AssocEdit, bool) -> Action,
) -> Change {
    if !edit.reset_usage {
        return action(filter.clone(), edit, true).into();
    }
    let mut on_cluster = filter.clone();
    if on_cluster.clusters.is_empty() {
        on_cluster.clusters.push(here.to_owned());
    }
    let reset = action(on_cluster, AssocEdit { reset_usage: true, ..AssocEdit::default() }, false);
    let values = AssocEdit { reset_usage: false, ..edit };
    Change { actions: vec![action(filter.clone(), values, true), reset] }
}

fn users_are_coordinators(word: &Word<'_>) -> Result<bool, WordError> {
    match word.value.to_ascii_lowercase().as_str() {
        "usersarecoords" => Ok(word.operator != super::words::Operator::Subtract),
        "nousersarecoords" => Ok(word.operator == super::words::Operator::Subtract),
        _ => Err(WordError::Unknown),
    }
}

fn added(applied: &Applied, asked: &Asked) -> String {
    let mut text = String::new();
    let new = told::names(&applied.affected, told::account);
    if !new.is_empty() {
        let shown = |text: &Option<String>, otherwise: &str| {
            text.as_ref().map_or_else(|| otherwise.to_owned(), |text| text.to_lowercase())
        };
        let facts = &asked.add.account;
        text += &format!(" Adding Account(s)\n{} Settings\n", told::lines(&new));
        text += &format!("  Description     = {}\n", shown(&facts.description, "Account Name"));
        text += &format!("  Organization    = {}\n", shown(&facts.organization, "Parent/Account Name"));
    }
    text += &format!(" Associations =\n{}", told::associations(&applied.affected));
    if asked.sets {
        let lines = assoc_words::lines(&asked.add.edit, asked.add.parent.as_deref());
        text += &format!(" Settings\n{}", assoc_words::table(&lines, 13));
    }
    text
}

fn not_added(world: &mut dyn World, refusal: &ChangeRefusal) -> i32 {
    match refusal {
        ChangeRefusal::AccountsExist(which) => {
            for (account, cluster) in which {
                world.err(&format!(" Already existing account {account} on cluster {cluster}\n"));
            }
        }
        other => world.err(&format!(" error: {}\n", told::why_not_added(other))),
    }
    1
}

/// What `modify account` and `modify user` tell.
pub fn modified(applied: &Applied, filter: &AssocFilter) -> String {
    let mut text = String::new();
    for cluster in told::resets(&applied.affected).into_iter().filter(|_| filter.clusters.is_empty()) {
        text += &format!("No cluster specified, resetting on local cluster {cluster}\n");
    }
    let users = told::names(&applied.affected, told::user);
    if !users.is_empty() {
        text += &format!(" Modified users...\n{}", told::lines(&users));
    }
    let accounts = told::names(&applied.affected, told::account);
    if !accounts.is_empty() {
        text += &format!(" Modified accounts...\n{}", told::lines(&accounts));
    }
    let mut associations = applied.affected.iter().filter_map(|one| match one {
        Affected::Association { name, parent } => Some((name, parent)),
        _ => None,
    });
    if let Some((_, parent)) = associations.next() {
        let all = told::associations(&applied.affected);
        let of_account = parent.is_some();
        let what = if of_account { "account" } else { "user" };
        text += &format!(" Modified {what} associations...\n{all}");
    }
    text
}

fn deleted(applied: &Applied) -> String {
    let accounts = told::names(&applied.affected, told::account);
    let associations: String = applied.affected.iter().filter_map(narrow_line).collect();
    let mut text = String::new();
    if !associations.is_empty() {
        text += &format!(" Deleting account associations...\n{associations}");
    }
    if !accounts.is_empty() {
        let which = if associations.is_empty() { "accounts" } else { "accounts (No Associations)" };
        text += &format!(" Deleting {which}...\n{}", told::lines(&accounts));
    }
    text
}

/// An association that is deleted.
pub fn narrow_line(one: &Affected) -> Option<String> {
    match one {
        Affected::Association { name, .. } => Some(told::narrow_association(name, 10)),
        _ => None,
    }
}

fn not_deleted(world: &mut dyn World, refusal: &ChangeRefusal) -> i32 {
    match refusal {
        ChangeRefusal::NothingDeleted => world.out(" Nothing deleted\n"),
        ChangeRefusal::RootAccount => {
            world.err(" You are not allowed to remove the root account.\n Use remove cluster instead.\n");
        }
        ChangeRefusal::DefaultAccount(which) => {
            let lines: String = which.iter().map(|name| told::narrow_association(name, 15)).collect();
            world.err(&format!(
                " Error with request: You can not remove the default account of a user\n{lines} \
                 Please either remove the accounts listed above from list and resubmit,\n \
                 or change these users' default accounts to remove the account(s).\n Changes Discarded\n"
            ));
        }
        other => told::refused(world, other, ""),
    }
    1
}
