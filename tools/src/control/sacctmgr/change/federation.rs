//! `add federation`, `modify federation`, `delete federation`. Nothing is scheduled by them: they say which clusters belong together.

use super::{
    session::{Code, Session},
    told,
    words::{Word, WordError, parts},
};
use garrick_accounts::change::{Action, Applied, ChangeRefusal, edit::ListEdit};
use std::collections::BTreeSet;

#[derive(Clone, Copy, Debug)]
enum Setting {
    Clusters,
    Names,
}

const SETTINGS: &[(&str, Setting)] =
    &[("Clusters", Setting::Clusters), ("Federations", Setting::Names), ("Names", Setting::Names)];

fn is_name(word: &Word<'_>) -> bool {
    word.key.is_none() || matches!(word.find(SETTINGS), Some(Setting::Names))
}

impl Session<'_> {
    /// `add federation`.
    pub fn add_federation(&mut self, words: &[String]) -> Code {
        let (mut names, mut clusters) = (Vec::new(), Vec::new());
        for word in words.iter().map(|word| Word::of(word)) {
            match (is_name(&word), word.find(SETTINGS)) {
                (true, _) => names.extend(word.names()),
                (false, Some(Setting::Clusters)) => clusters.extend(word.names()),
                (false, _) => return self.bad_word(&word, &WordError::Unknown),
            }
        }
        if names.is_empty() {
            return self.fail(" Need name of federation to add.\n");
        }
        let settings = settings("=", &clusters);
        let change = Action::AddFederations { names, clusters };
        let added = |applied: &Applied| {
            let names = told::names(&applied.affected, told::federation);
            format!(" Adding Federation(s)\n{}{settings}", told::lines(&names))
        };
        self.carry_out(change, added, |world, refusal| {
            match refusal {
                ChangeRefusal::NothingAdded { .. } => world.out(" Nothing new added.\n"),
                other => world.err(&format!(" Problem adding federation(s): {}\n", told::sentence(other))),
            }
            1
        })
    }

    /// `modify federation`.
    pub fn modify_federation(&mut self, words: &[String]) -> Code {
        let parts = parts(words);
        let (mut names, mut clusters) = (Vec::new(), ListEdit::Keep);
        for word in &parts.conditions {
            if !is_name(word) {
                told::unknown_condition(self.world, word);
                return Ok(1);
            }
            names.extend(word.names());
        }
        for word in &parts.set {
            match word.find(SETTINGS) {
                Some(Setting::Clusters) => clusters = word.list(),
                _ => return self.bad_word(word, &WordError::Unknown),
            }
        }
        let settings = match &clusters {
            ListEdit::Keep => return self.nothing_to_set(),
            ListEdit::Set(all) => settings("=", all),
            ListEdit::Change { added, removed } => changed(added, removed),
        };
        let change = Action::ModifyFederations { names, clusters };
        let modified = |applied: &Applied| {
            let names = told::names(&applied.affected, told::federation);
            format!("{settings} Modified federation...\n{}", told::lines(&names))
        };
        self.carry_out(change, modified, |world, refusal| {
            match refusal {
                ChangeRefusal::NothingModified => world.out("  Nothing modified\n"),
                other => told::refused(world, other, ""),
            }
            1
        })
    }

    /// `delete federation`.
    pub fn delete_federation(&mut self, words: &[String]) -> Code {
        let deleted = (" Deleting federations...\n", " Nothing deleted\n");
        self.delete_named(words, is_name, Action::DeleteFederations, told::federation, deleted)
    }
}

/// What is set, as `add` tells it.
fn settings<'n>(sign: &str, clusters: impl IntoIterator<Item = &'n String>) -> String {
    let lines: String = clusters.into_iter().map(|name| format!("  Cluster       {sign} {name}\n")).collect();
    if lines.is_empty() { String::new() } else { format!(" Settings\n{lines}") }
}

fn changed(added: &BTreeSet<String>, removed: &BTreeSet<String>) -> String {
    let lines = |sign: &str, names: &BTreeSet<String>| {
        names.iter().map(|name| format!("  Cluster       {sign} {name}\n")).collect::<String>()
    };
    format!(" Settings\n{}{}", lines("+=", added), lines("-=", removed))
}
