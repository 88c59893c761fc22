//! `add coordinator`, `delete coordinator`.

use super::{
    session::{Code, Session},
    told,
    words::{Word, WordError},
    world::World,
};
use garrick_accounts::change::{Action, Affected, Applied, ChangeRefusal};

#[derive(Clone, Copy, Debug)]
enum Setting {
    Accounts,
    Names,
}

const SETTINGS: &[(&str, Setting)] =
    &[("Accounts", Setting::Accounts), ("Names", Setting::Names), ("Users", Setting::Names)];

impl Session<'_> {
    /// Accounts and users.
    fn coordinator_words(&mut self, words: &[String]) -> Option<(Vec<String>, Vec<String>)> {
        let (mut accounts, mut users) = (Vec::new(), Vec::new());
        for word in words.iter().filter(|word| !word.eq_ignore_ascii_case("where")).map(|word| Word::of(word)) {
            match (word.key, word.find(SETTINGS)) {
                (None, _) | (_, Some(Setting::Names)) => users.extend(word.names()),
                (_, Some(Setting::Accounts)) => accounts.extend(word.names()),
                (_, None) => {
                    told::word_error(self.world, &word, &WordError::Unknown);
                    return None;
                }
            }
        }
        let lower = |names: Vec<String>| names.into_iter().map(|name| name.to_lowercase()).collect();
        Some((lower(accounts), lower(users)))
    }

    /// `add coordinator`.
    pub fn add_coordinator(&mut self, words: &[String]) -> Code {
        let Some((accounts, users)) = self.coordinator_words(words) else { return Ok(1) };
        if users.is_empty() {
            return self.fail(" You need to specify a user list here.\n");
        }
        if accounts.is_empty() {
            return self.fail(" You need to specify a account list here.\n");
        }
        let adding = format!(
            " Adding Coordinator User(s)\n{} To Account(s) and all sub-accounts\n{}",
            told::lines(&users.iter().map(String::as_str).collect::<Vec<_>>()),
            told::lines(&accounts.iter().map(String::as_str).collect::<Vec<_>>())
        );
        let change = Action::AddCoordinators { accounts, users };
        self.carry_out(change, |_| adding.clone(), |world, refusal| not_added(world, refusal, &adding))
    }

    /// `delete coordinator`.
    pub fn delete_coordinator(&mut self, words: &[String]) -> Code {
        let Some((accounts, users)) = self.coordinator_words(words) else { return Ok(1) };
        if accounts.is_empty() && users.is_empty() {
            return self.fail(" You need to specify a user list or account list here.\n");
        }
        let mut removing = String::new();
        if !users.is_empty() {
            let users = told::lines(&users.iter().map(String::as_str).collect::<Vec<_>>());
            removing += &format!(" Removing Coordinators with user name\n{users}");
        }
        if accounts.is_empty() {
            removing += " From all accounts\n";
        } else {
            let accounts = told::lines(&accounts.iter().map(String::as_str).collect::<Vec<_>>());
            removing += &format!(" From Account(s)\n{accounts}");
        }
        let change = Action::DeleteCoordinators { accounts, users };
        self.carry_out(
            change,
            |applied| format!("{removing}{}", removed(applied)),
            |world, refusal| {
                if *refusal == ChangeRefusal::NothingDeleted {
                    world.out(&format!("{removing} Nothing removed\n"));
                } else {
                    told::refused(world, refusal, &removing);
                }
                1
            },
        )
    }
}

fn removed(applied: &Applied) -> String {
    let mut text = " Removed Coordinators (sub accounts not listed)...\n".to_owned();
    for one in &applied.affected {
        if let Affected::Coordinator { user, account } = one {
            text += &format!("  U = {user:<9} A = {account:<10}\n");
        }
    }
    text
}

fn not_added(world: &mut dyn World, refusal: &ChangeRefusal, adding: &str) -> i32 {
    match refusal {
        ChangeRefusal::NoAccount(_) | ChangeRefusal::NoUser(_) => world.err(&format!(" {}\n", told::sentence(refusal))),
        other => {
            world.err(&format!(" Problem adding coordinator: {}\n", told::sentence(other)));
            world.out(adding);
        }
    }
    1
}
