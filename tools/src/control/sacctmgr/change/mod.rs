//! The words of `sacctmgr` that change something: `add` (or `create`), `modify`, `delete` (or `remove`), `load`.
//!
//! | module | what it is |
//! |---|---|
//! | [`words`] | words taken apart |
//! | [`assoc_words`] | values of associations |
//! | [`session`], [`asking`] | how a change goes: what it would come to, the question, the change |
//! | [`world`] | the service, the one who types, two ways out |
//! | [`told`] | Slurm's words for changes and refusals |
//! | `load`, `load_plan`, `load_tables`, `flat_file` | `load` |
//! | `account`, `user`, `qos`, `cluster`, `coordinator`, `resource`, `federation` | the words for each kind |
//! | `job` | `modify job` |
//!
//! What a change does and who may do it is decided by the service ([`garrick_accounts::change`]).

mod account;
pub(super) mod asking;
mod assoc_words;
mod cluster;
mod coordinator;
mod federation;
mod flat_file;
#[cfg(test)]
mod golden_test;
mod job;
mod load;
mod load_plan;
mod load_tables;
mod qos;
mod resource;
pub(super) mod session;
pub(super) mod told;
mod user;
pub(super) mod words;
pub(super) mod world;

use session::{Code, Session};
use world::World;

/// A word that changes something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// `add`, `create`
    Add,
    /// `modify`, `update`
    Modify,
    /// `delete`, `remove`
    Delete,
    /// `load`
    Load,
}

/// What something is changed of.
#[derive(Clone, Copy, Debug)]
enum Entity {
    Account,
    Cluster,
    Coordinator,
    Federation,
    Job,
    Qos,
    Resource,
    User,
}

/// Names of what can be changed, with the fewest characters by which each is known.
const ENTITIES: [(&str, usize, Entity); 8] = [
    ("Accounts", 2, Entity::Account),
    ("Clusters", 2, Entity::Cluster),
    ("Coordinators", 2, Entity::Coordinator),
    ("Federations", 1, Entity::Federation),
    ("Jobs", 1, Entity::Job),
    ("QOS", 1, Entity::Qos),
    ("Resources", 1, Entity::Resource),
    ("Users", 1, Entity::User),
];

impl Verb {
    /// That of a command's word; `None`: it changes nothing.
    pub fn of(word: &str) -> Option<Self> {
        match word {
            "add" | "create" => Some(Self::Add),
            "modify" => Some(Self::Modify),
            "delete" | "remove" => Some(Self::Delete),
            "load" => Some(Self::Load),
            _ => None,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Add => "add",
            Self::Modify => "modify",
            Self::Delete => "delete",
            Self::Load => "load",
        }
    }

    const fn entities(self) -> &'static str {
        match self {
            Self::Modify => r#""Account", "Cluster", "Federation", "Job", "QOS", "Resource" or "User""#,
            _ => r#""Account", "Cluster", "Coordinator", "Federation", "QOS", "Resource", or "User""#,
        }
    }

    fn entity(self, word: &str) -> Option<Entity> {
        let word = word.to_ascii_lowercase();
        let is_it = |(name, least, entity): &&(&str, usize, Entity)| {
            let here = match entity {
                Entity::Coordinator => self != Self::Modify,
                Entity::Job => self == Self::Modify,
                _ => true,
            };
            here && word.len() >= *least && name.to_ascii_lowercase().starts_with(&word)
        };
        ENTITIES.iter().find(is_it).map(|(_, _, entity)| *entity)
    }
}

/// Does what the words behind a verb say. Returns the exit code.
pub(super) fn in_world(verb: Verb, words: &[String], immediate: bool, world: &mut dyn World) -> Code {
    if verb == Verb::Load {
        return load::run(words, immediate, world);
    }
    let entity = words.first().and_then(|word| verb.entity(word));
    let Some(entity) = entity else {
        let (name, all) = (verb.name(), verb.entities());
        world.err(&format!("No valid entity in {name} command\nInput line must include {all}\n"));
        return Ok(1);
    };
    if let Entity::Job = entity {
        return job::run(&words[1..], immediate, world);
    }
    let mut session = Session::new(world, immediate)?;
    session.carry(verb, entity, &words[1..])
}

impl Session<'_> {
    fn carry(&mut self, verb: Verb, entity: Entity, words: &[String]) -> Code {
        match (entity, verb) {
            (Entity::Account, Verb::Add) => self.add_account(words),
            (Entity::Account, Verb::Modify) => self.modify_account(words),
            (Entity::Account, Verb::Delete) => self.delete_account(words),
            (Entity::Cluster, Verb::Add) => self.add_cluster(words),
            (Entity::Cluster, Verb::Modify) => self.modify_cluster(words),
            (Entity::Cluster, Verb::Delete) => self.delete_cluster(words),
            (Entity::Coordinator, Verb::Delete) => self.delete_coordinator(words),
            (Entity::Coordinator, Verb::Add | Verb::Modify) => self.add_coordinator(words),
            (Entity::Federation, Verb::Add) => self.add_federation(words),
            (Entity::Federation, Verb::Modify) => self.modify_federation(words),
            (Entity::Federation, Verb::Delete) => self.delete_federation(words),
            (Entity::Qos, Verb::Add) => self.add_qos(words),
            (Entity::Qos, Verb::Modify) => self.modify_qos(words),
            (Entity::Qos, Verb::Delete) => self.delete_qos(words),
            (Entity::Resource, Verb::Add) => self.add_resource(words),
            (Entity::Resource, Verb::Modify) => self.modify_resource(words),
            (Entity::Resource, Verb::Delete) => self.delete_resource(words),
            (Entity::User, Verb::Add) => self.add_user(words),
            (Entity::User, Verb::Modify) => self.modify_user(words),
            (Entity::User, Verb::Delete) => self.delete_user(words),
            // Told before.
            (Entity::Job, _) | (_, Verb::Load) => Ok(1),
        }
    }
}
