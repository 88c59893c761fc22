//! `add cluster`, `modify cluster`, `delete cluster`.

use super::{
    assoc_words,
    session::{Code, Session},
    told,
    words::{Word, WordError, parts, unquoted},
    world::World,
};
use garrick_accounts::change::{
    Action, Applied, ChangeRefusal,
    edit::{AssocEdit, ClusterEdit, ListEdit},
};
use garrick_model::entities::names::FedState;

#[derive(Clone, Copy, Debug)]
enum Setting {
    Classification,
    Features,
    Federation,
    FedState,
    Names,
}

const SETTINGS: &[(&str, Setting)] = &[
    ("Classification", Setting::Classification),
    ("Clusters", Setting::Names),
    ("Features", Setting::Features),
    ("Federation", Setting::Federation),
    ("FedState", Setting::FedState),
    ("Names", Setting::Names),
];

#[derive(Debug, Default)]
struct Asked {
    names: Vec<String>,
    cluster: ClusterEdit,
    edit: AssocEdit,
}

impl Session<'_> {
    fn cluster_word(&self, asked: &mut Asked, word: &Word<'_>) -> Result<(), WordError> {
        match (word.key, word.find(SETTINGS)) {
            (None, _) | (_, Some(Setting::Names)) => asked.names.extend(word.names()),
            (_, Some(Setting::Classification)) => asked.cluster.classification = Some(classification(word.value)?),
            (_, Some(Setting::Features)) => asked.cluster.features = word.list(),
            (_, Some(Setting::Federation)) => {
                word.only_is()?;
                asked.cluster.federation = Some(unquoted(word.value).to_owned());
            }
            (_, Some(Setting::FedState)) => {
                word.only_is()?;
                asked.cluster.fed_state = Some(FedState::of(unquoted(word.value)).ok_or(WordError::Unknown)?);
            }
            (_, None) => return assoc_words::set(&mut asked.edit, word, &self.entities),
        }
        Ok(())
    }

    /// `add cluster`.
    pub fn add_cluster(&mut self, words: &[String]) -> Code {
        let mut asked = Asked::default();
        for word in words.iter().map(|word| Word::of(word)) {
            if let Err(error) = self.cluster_word(&mut asked, &word) {
                return self.bad_word(&word, &error);
            }
        }
        if asked.names.is_empty() {
            return self.fail(" Need name of cluster to add.\n");
        }
        let Asked { names, cluster, edit } = &asked;
        let settings = settings(cluster, edit);
        let change = Action::AddClusters { names: names.clone(), cluster: cluster.clone(), edit: edit.clone() };
        let adding = |names: &[&str]| {
            let names: String = names.iter().map(|name| format!("  Name           = {name}\n")).collect();
            format!(" Adding Cluster(s)\n{names}{settings}")
        };
        let asked: Vec<&str> = names.iter().map(String::as_str).collect();
        self.carry_out(
            change,
            |applied| adding(&told::names(&applied.affected, told::cluster)),
            |world, refusal| not_added(world, refusal, &adding(&asked)),
        )
    }

    /// `modify cluster`.
    pub fn modify_cluster(&mut self, words: &[String]) -> Code {
        let parts = parts(words);
        let mut names = Vec::new();
        for word in &parts.conditions {
            if word.key.is_some() && !matches!(word.find(SETTINGS), Some(Setting::Names)) {
                told::unknown_condition(self.world, word);
                return Ok(1);
            }
            names.extend(word.names());
        }
        let mut asked = Asked::default();
        for word in &parts.set {
            if let Err(error) = self.cluster_word(&mut asked, word) {
                return self.bad_word(word, &error);
            }
        }
        let Asked { cluster, edit, .. } = asked;
        if cluster == ClusterEdit::default() && edit == AssocEdit::default() {
            return self.nothing_to_set();
        }
        let settings = settings(&cluster, &edit);
        let change = Action::ModifyClusters { names, cluster, edit };
        self.carry_out(
            change,
            |applied| format!("{settings}{}", modified(applied)),
            |world, refusal| {
                if *refusal == ChangeRefusal::NothingModified {
                    world.out("  Nothing modified\n");
                } else {
                    told::refused(world, refusal, &settings);
                }
                1
            },
        )
    }

    /// `delete cluster`.
    pub fn delete_cluster(&mut self, words: &[String]) -> Code {
        let is_name = |word: &Word<'_>| word.key.is_none() || matches!(word.find(SETTINGS), Some(Setting::Names));
        let deleted = (" Deleting clusters...\n", " Nothing deleted\n");
        self.delete_named(words, is_name, Action::DeleteClusters, told::cluster, deleted)
    }
}

fn classification(text: &str) -> Result<String, WordError> {
    let text = text.to_ascii_lowercase();
    let kinds = ["Capability", "Capacity", "Capapacity"];
    let found = kinds.into_iter().find(|kind| text.len() >= 4 && kind.to_ascii_lowercase().starts_with(&text));
    match found {
        _ if text.is_empty() => Ok(String::new()),
        Some(kind) => Ok(kind.to_owned()),
        None => Err(WordError::Unknown),
    }
}

fn settings(cluster: &ClusterEdit, edit: &AssocEdit) -> String {
    let lines = assoc_words::lines(edit, None);
    if *cluster == ClusterEdit::default() && lines.is_empty() {
        return String::new();
    }
    let mut text = " Setting\n".to_owned();
    if let Some(kind) = &cluster.classification {
        text += &format!("  Classification = {kind}\n");
    }
    if let Some(federation) = &cluster.federation {
        text += &format!("  Federation     = {federation}\n");
    }
    if let Some(state) = cluster.fed_state {
        text += &format!("  FedState       = {}\n", state.word());
    }
    if !matches!(cluster.features, ListEdit::Keep) {
        text += &format!("  Features       = {}\n", assoc_words::list_text(&cluster.features).unwrap_or_default());
    }
    if !lines.is_empty() {
        text += &format!("  Default Limits:\n{}", assoc_words::table(&lines, 13));
    }
    text
}

fn modified(applied: &Applied) -> String {
    let clusters = told::names(&applied.affected, told::cluster);
    let associations = told::associations(&applied.affected);
    let mut text = String::new();
    if !clusters.is_empty() {
        text += &format!(" Modified cluster...\n{}", told::lines(&clusters));
    }
    if !associations.is_empty() {
        text += &format!(" Modified cluster defaults for associations...\n{associations}");
    }
    text
}

fn not_added(world: &mut dyn World, refusal: &ChangeRefusal, adding: &str) -> i32 {
    match refusal {
        ChangeRefusal::ClusterExists(name) => {
            world.err(&format!(" This cluster {name} already exists.  Not adding.\n"));
        }
        other => {
            world.err(&format!(" Problem adding clusters: {}\n", told::sentence(other)));
            world.out(adding);
            world.err(" Error rolling back changes: Unspecified error\n");
        }
    }
    1
}
