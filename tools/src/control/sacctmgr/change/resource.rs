//! `add resource`, `modify resource`, `delete resource`.

use super::{
    session::{Code, Session},
    told,
    words::{Operator, Word, WordError, parts},
    world::World,
};
use garrick_accounts::change::{
    Action, Affected, Applied, ChangeRefusal,
    edit::{ResourceEdit, ResourceFilter},
};

/// Where licenses come from that are not given a server (sacctmgr(1)).
const SERVER: &str = "slurmdb";

#[derive(Clone, Copy, Debug)]
enum Setting {
    Allowed,
    Clusters,
    Count,
    Description,
    Flags,
    LastConsumed,
    Names,
    Server,
    ServerType,
    Type,
}

const SETTINGS: &[(&str, Setting)] = &[
    ("Allowed", Setting::Allowed),
    ("PercentAllowed", Setting::Allowed),
    ("Clusters", Setting::Clusters),
    ("Count", Setting::Count),
    ("Descriptions", Setting::Description),
    ("Flags", Setting::Flags),
    ("LastConsumed", Setting::LastConsumed),
    ("Names", Setting::Names),
    ("Server", Setting::Server),
    ("ServerType", Setting::ServerType),
    ("Type", Setting::Type),
];

impl Session<'_> {
    /// `add resource`.
    pub fn add_resource(&mut self, words: &[String]) -> Code {
        let (mut filter, mut edit) = (ResourceFilter::default(), ResourceEdit::default());
        for word in words.iter().map(|word| Word::of(word)) {
            let taken = condition(&mut filter, &word) || set(&mut edit, &word).map_or_else(|_| false, |()| true);
            if !taken {
                let error = set(&mut edit, &word).err().unwrap_or(WordError::Unknown);
                return self.bad_word(&word, &error);
            }
        }
        if filter.names.is_empty() {
            return self.fail(" Need name of resource to add.\n");
        }
        let server = filter.servers.first().cloned().unwrap_or_else(|| SERVER.to_owned());
        let ResourceFilter { names, clusters, .. } = filter;
        let change = Action::AddResources { names, server: server.clone(), clusters, edit: edit.clone() };
        self.carry_out(
            change,
            |applied| added(applied, &server, &edit),
            |world, refusal| {
                match refusal {
                    ChangeRefusal::NothingAdded { .. } => world.out(" Nothing new added.\n"),
                    ChangeRefusal::NoCount(name) => {
                        world.err(&format!(" Need to designate a resource count to initially add '{name}'.\n"))
                    }
                    other => world.err(&format!(" Problem adding system resource: {}\n", told::sentence(other))),
                }
                1
            },
        )
    }

    /// `modify resource`.
    pub fn modify_resource(&mut self, words: &[String]) -> Code {
        let parts = parts(words);
        let Some(filter) = self.resource_filter(&parts.conditions) else { return Ok(1) };
        let mut edit = ResourceEdit::default();
        for word in &parts.set {
            if let Err(error) = set(&mut edit, word) {
                return self.bad_word(word, &error);
            }
        }
        if edit == ResourceEdit::default() {
            return self.nothing_to_set();
        }
        let change = Action::ModifyResources { filter, edit };
        let modified = |applied: &Applied| format!(" Modified server resource ...\n{}", affected(applied));
        self.carry_out(change, modified, |world, refusal| nothing(world, refusal, " Nothing modified\n"))
    }

    /// `delete resource`.
    pub fn delete_resource(&mut self, words: &[String]) -> Code {
        let Some(filter) = self.resource_filter(&parts(words).conditions) else { return Ok(1) };
        if filter == ResourceFilter::default() {
            return self.nothing_to_remove();
        }
        let deleted = |applied: &Applied| format!(" Deleting resource(s)...\n{}", affected(applied));
        let change = Action::DeleteResources(filter);
        self.carry_out(change, deleted, |world, refusal| nothing(world, refusal, " Nothing deleted\n"))
    }

    fn resource_filter(&mut self, words: &[Word<'_>]) -> Option<ResourceFilter> {
        let mut filter = ResourceFilter::default();
        for word in words {
            if !condition(&mut filter, word) {
                told::unknown_condition(self.world, word);
                return None;
            }
        }
        Some(filter)
    }
}

/// Narrows the filter, if the word is a condition.
fn condition(filter: &mut ResourceFilter, word: &Word<'_>) -> bool {
    match (word.key, word.find(SETTINGS)) {
        (None, _) | (_, Some(Setting::Names)) => filter.names.extend(word.names()),
        (_, Some(Setting::Server)) => filter.servers.extend(word.names()),
        (_, Some(Setting::Clusters)) => filter.clusters.extend(word.names()),
        _ => return false,
    }
    true
}

fn set(edit: &mut ResourceEdit, word: &Word<'_>) -> Result<(), WordError> {
    let number = |what: &'static str| {
        let number = word.number(what)?.and_then(|number| u32::try_from(number).ok());
        number.map(Some).ok_or_else(|| WordError::Number(what, word.value.to_owned()))
    };
    match word.find(SETTINGS) {
        Some(Setting::Allowed) => edit.allowed = number("Allowed")?,
        Some(Setting::Count) => edit.count = number("Count")?,
        Some(Setting::LastConsumed) => edit.last_consumed = number("LastConsumed")?,
        Some(Setting::Description) => edit.description = Some(word.value.to_owned()),
        Some(Setting::ServerType) => edit.server_type = Some(word.value.to_owned()),
        Some(Setting::Type) if word.value.eq_ignore_ascii_case("license") => {}
        Some(Setting::Flags) => match word.value.to_ascii_lowercase().as_str() {
            "absolute" => edit.absolute = Some(word.operator != Operator::Subtract),
            "sharedpool" => return Err(WordError::NotYet),
            _ => return Err(WordError::Unknown),
        },
        _ => return Err(WordError::Unknown),
    }
    Ok(())
}

fn added(applied: &Applied, server: &str, edit: &ResourceEdit) -> String {
    let count = edit.count.unwrap_or(0);
    let mut text = " Adding Resource(s)\n".to_owned();
    let mut name = "";
    let mut new = false;
    for one in &applied.affected {
        match one {
            Affected::Resource { name: added, .. } => {
                text += &format!("  {added}@{server}\n");
                (name, new) = (added, true);
            }
            Affected::Allowed { cluster, name: of, .. } => {
                if name != of {
                    text += &format!("  {of}@{server}\n");
                    name = of;
                }
                text += &format!("   Cluster - {cluster}\t{}\n", edit.allowed.unwrap_or(0));
            }
            _ => {}
        }
    }
    text += &format!(" Settings\n  Name           = {name}\n  Server         = {server}\n");
    if new {
        text += &format!("  Description    = {}\n", edit.description.as_deref().unwrap_or(name).to_lowercase());
        if let Some(kind) = &edit.server_type {
            text += &format!("  ServerType     = {kind}\n");
        }
        text += &format!("  Count          = {count}\n");
    } else {
        text += &format!("  Count          = {count}\n  LastConsumed   = {}\n", edit.last_consumed.unwrap_or(0));
        let flags = if edit.absolute == Some(true) { "Absolute" } else { "(null)" };
        text += &format!("  Flags          = {flags}\n");
    }
    text + "  Type           = License\n"
}

fn affected(applied: &Applied) -> String {
    let line = |one: &Affected| match one {
        Affected::Resource { name, server } => Some(format!("  {name}@{server}\n")),
        Affected::Allowed { cluster, name, server } => Some(format!("  Cluster - {cluster}\t- {name}@{server}\n")),
        _ => None,
    };
    applied.affected.iter().filter_map(line).collect()
}

fn nothing(world: &mut dyn World, refusal: &ChangeRefusal, text: &str) -> i32 {
    match refusal {
        ChangeRefusal::NothingModified | ChangeRefusal::NothingDeleted => world.out(text),
        other => told::refused(world, other, ""),
    }
    1
}
