//! Steps as described in a graph's file: checks every key and collects all errors.

use super::tree::{Entry, Node, Problem, Value};
use crate::{
    options::{
        getopt::{self, Occurrence},
        minibatch::IN_A_LINE,
        sources,
        table::{Arg, Command, OptionDef, options_of},
        typed::Typed,
    },
    step_lists::{
        each::Each,
        labels, list_line,
        template::{Names, Template},
    },
};
use garrick_model::{batch::StepDependencyKind, spec::ArraySpec, time::Timestamp};
use std::{
    collections::HashSet,
    ffi::{OsStr, OsString},
    path::Path,
};

/// What a graph says of a step that a list's line says otherwise.
const NOT_OPTIONS: &[&str] = &["array", "dependency", "job-name", "label"];
/// Keys of a step beside options.
const KEYS: &[&str] =
    &["label", "command", "array", "each", "each-csv", "zip", "after", "reads", "writes", "environment"];
/// Kinds of dependencies, as they are written.
pub const KINDS: [(&str, StepDependencyKind); 5] = [
    ("afterok", StepDependencyKind::AfterOk),
    ("afterany", StepDependencyKind::AfterAny),
    ("afternotok", StepDependencyKind::AfterNotOk),
    ("aftercorr", StepDependencyKind::AfterCorr),
    ("after", StepDependencyKind::After),
];

/// How many steps one description stands for.
#[derive(Clone, Debug)]
pub enum Many {
    /// One.
    One,
    /// An array.
    Array(ArraySpec),
    /// One for every combination of values.
    Each(Box<Each>),
}

/// An option of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The line of its name.
    pub line: u32,
    /// The option, with its value.
    pub option: Occurrence,
}

/// A step that is waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct After {
    /// The line.
    pub line: u32,
    /// What must have become of it.
    pub kind: StepDependencyKind,
    /// Its label.
    pub label: String,
}

/// Files that a step reads or writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileName {
    /// The line.
    pub line: u32,
    /// As it is written.
    pub text: String,
    /// With places for an index or values.
    pub template: Template,
}

impl FileName {
    /// Has it places for an index or values?
    pub fn varies(&self) -> bool {
        self.template.parameters().next().is_some()
    }
}

/// A step, an array, or a step for every combination.
#[derive(Clone, Debug)]
pub struct Step {
    /// The line of its description.
    pub line: u32,
    /// Its label, which is its name too.
    pub label: String,
    /// Program and arguments.
    pub argv: Vec<Vec<u8>>,
    /// How many.
    pub many: Many,
    /// Its options, those for all steps laid under them.
    pub settings: Vec<Setting>,
    /// Its variables.
    pub environment: Vec<(String, String)>,
    /// What it waits for.
    pub after: Vec<After>,
    /// What it reads.
    pub reads: Vec<FileName>,
    /// What it writes.
    pub writes: Vec<FileName>,
    /// How many steps it is makes no sense; so its files are not known either.
    pub is_broken: bool,
}

impl Step {
    /// How many steps it stands for.
    pub fn count(&self) -> u64 {
        match &self.many {
            Many::One => 1,
            Many::Array(tasks) => u64::from(tasks.count()),
            Many::Each(each) => each.count(),
        }
    }

    /// The value of an option.
    pub fn option(&self, name: &str) -> Option<&OsStr> {
        self.settings.iter().rev().find(|s| s.option.def.long == name).and_then(|s| s.option.value.as_deref())
    }
}

/// The name of a kind of dependency.
pub fn kind_word(kind: StepDependencyKind) -> &'static str {
    KINDS.iter().find(|(_, other)| *other == kind).map_or("after", |(word, _)| word)
}

/// What is for all steps.
#[derive(Clone, Debug, Default)]
struct Defaults {
    settings: Vec<Setting>,
    environment: Vec<(String, String)>,
}

pub(super) struct Reader<'a> {
    /// Where names of files with values begin.
    pub(super) dir: &'a Path,
    options: Vec<&'static OptionDef>,
    problems: Vec<Problem>,
}

/// Reads all steps. `dir`: where names of files begin. What is wrong goes to `problems`; a step without a label that can be used is
/// left out.
pub fn steps(entries: &[Entry], dir: &Path, problems: &mut Vec<Problem>) -> Vec<Step> {
    let allowed = |option: &&'static OptionDef| IN_A_LINE.contains(&option.long) && !NOT_OPTIONS.contains(&option.long);
    let options = options_of(Command::Srun).into_iter().filter(allowed).collect();
    let mut reader = Reader { dir, options, problems: Vec::new() };
    let mut defaults = Defaults::default();
    for entry in entries.iter().filter(|entry| entry.key == "defaults") {
        reader.defaults(entry, &mut defaults);
    }
    let mut steps: Vec<Step> = Vec::new();
    for entry in entries {
        match (entry.key.as_str(), &entry.node.value) {
            ("defaults", _) => {}
            ("step", Value::List(all)) => steps.extend(all.iter().filter_map(|node| reader.step(node, &defaults))),
            ("step", _) => reader.say(entry.line, "\"step\" is a list of tables: write [[step]] before each"),
            (other, _) => {
                reader.say(entry.line, format!("\"{other}\" is nothing that a graph has: [defaults] and [[step]] are"));
            }
        }
    }
    if steps.is_empty() && reader.problems.is_empty() {
        reader.say(1, "there is no step: write [[step]] with a label and a command");
    }
    problems.append(&mut reader.problems);
    steps
}

impl Reader<'_> {
    pub(super) fn say(&mut self, line: u32, text: impl Into<String>) {
        self.problems.push(Problem::new(line, text));
    }

    fn defaults(&mut self, entry: &Entry, defaults: &mut Defaults) {
        let Value::Table(entries) = &entry.node.value else {
            return self.say(entry.line, format!("[defaults] is a table, not {}", entry.node.value.kind()));
        };
        for entry in entries {
            match entry.key.as_str() {
                "environment" => self.environment(&entry.node, &mut defaults.environment),
                key if KEYS.contains(&key) => {
                    self.say(entry.line, format!("\"{key}\" is of one step, and not for all of them"));
                }
                _ => self.setting(entry, &mut defaults.settings),
            }
        }
    }

    fn step(&mut self, node: &Node, defaults: &Defaults) -> Option<Step> {
        let Value::Table(entries) = &node.value else {
            self.say(node.line, format!("a step is a table, not {}", node.value.kind()));
            return None;
        };
        for (at, entry) in entries.iter().enumerate() {
            if let Some(first) = entries[..at].iter().find(|other| other.key == entry.key) {
                self.say(entry.line, format!("\"{}\" is there twice (line {})", entry.key, first.line));
            }
        }
        let line = entries.first().map_or(node.line, |first| node.line.min(first.line));
        let mut step = Step {
            line,
            label: String::new(),
            argv: Vec::new(),
            many: Many::One,
            settings: defaults.settings.clone(),
            environment: defaults.environment.clone(),
            after: Vec::new(),
            reads: Vec::new(),
            writes: Vec::new(),
            is_broken: false,
        };
        let find = |key: &str| entries.iter().find(|entry| entry.key == key);
        match find("label") {
            None => self.say(line, "the step has no label: others wait for it by that, and it is shown by it"),
            Some(entry) => {
                let label = self.text(entry);
                match label.as_deref().map_or(Ok(()), labels::check) {
                    Ok(()) => step.label = label.unwrap_or_default(),
                    Err(error) => self.say(entry.line, error.to_string()),
                }
            }
        }
        let mut command = Vec::new();
        match find("command") {
            None => self.say(line, format!("{} no command", Named(&step.label, "has"))),
            Some(entry) => command = self.command(entry),
        }
        for entry in entries {
            match entry.key.as_str() {
                "environment" => self.environment(&entry.node, &mut step.environment),
                "after" => step.after = self.after(entry),
                key if KEYS.contains(&key) => {}
                _ => self.setting(entry, &mut step.settings),
            }
        }
        step.is_broken = !self.many(&mut step, entries, command);
        for (key, files) in [("reads", true), ("writes", false)] {
            let Some(entry) = find(key) else { continue };
            let names = self.files(entry, (!step.is_broken).then_some(&step.many));
            if files { step.reads = names } else { step.writes = names }
        }
        (!step.label.is_empty()).then_some(step)
    }

    /// A text, or what else can only mean one.
    pub(super) fn text(&mut self, entry: &Entry) -> Option<String> {
        match &entry.node.value {
            Value::Text(text) if text.contains('\0') => self.say(entry.node.line, "a zero byte is in it"),
            Value::Text(text) => return Some(text.clone()),
            Value::Whole(number) => return Some(number.to_string()),
            other => self.say(entry.node.line, format!("\"{}\" is a text, not {}", entry.key, other.kind())),
        }
        None
    }

    /// Texts of a list, or the only one, with their lines.
    pub(super) fn texts(&mut self, entry: &Entry) -> Vec<(u32, String)> {
        let Value::List(list) = &entry.node.value else {
            return self.text(entry).into_iter().map(|text| (entry.node.line, text)).collect();
        };
        list.iter()
            .filter_map(|node| {
                let line = node.line;
                let one = Entry { line, key: entry.key.clone(), node: node.clone() };
                self.text(&one).map(|text| (line, text))
            })
            .collect()
    }

    fn command(&mut self, entry: &Entry) -> Vec<Vec<u8>> {
        let argv = match &entry.node.value {
            Value::List(_) => Ok(self.texts(entry).into_iter().map(|(_, word)| word.into_bytes()).collect()),
            _ => match self.text(entry) {
                Some(text) => list_line::argv(text.as_bytes()),
                None => return Vec::new(),
            },
        };
        match argv {
            Ok(argv) if argv.first().is_none_or(Vec::is_empty) => self.say(entry.line, "\"command\" has no program"),
            Ok(argv) => return argv,
            Err(error) => self.say(entry.line, format!("\"command\": {error}")),
        }
        Vec::new()
    }

    fn environment(&mut self, node: &Node, into: &mut Vec<(String, String)>) {
        let Value::Table(entries) = &node.value else {
            return self.say(node.line, format!("\"environment\" is a table of variables, not {}", node.value.kind()));
        };
        for entry in entries {
            if entry.key.is_empty() || entry.key.contains(['=', '\0']) {
                self.say(entry.line, format!("\"{}\" is no name of a variable", entry.key));
            } else if let Some(value) = self.text(entry) {
                into.retain(|(name, _)| *name != entry.key);
                into.push((entry.key.clone(), value));
            }
        }
    }

    /// An option. The last of its name counts; `false` undoes one.
    fn setting(&mut self, entry: &Entry, into: &mut Vec<Setting>) {
        let Some(def) = self.options.iter().find(|def| def.long == entry.key).copied() else {
            let names = KEYS.iter().copied().chain(self.options.iter().map(|def| def.long));
            let hint = match entry.key.as_str() {
                "dependency" => " (a graph has \"after\")".to_owned(),
                "job-name" | "name" => " (a step's name is its label)".to_owned(),
                key => {
                    getopt::nearest(key, names).map(|name| format!(" (did you mean \"{name}\"?)")).unwrap_or_default()
                }
            };
            return self.say(entry.line, format!("\"{}\" is neither a key of a step nor an option{hint}", entry.key));
        };
        into.retain(|setting| setting.option.def != def);
        let value = match (&entry.node.value, def.arg) {
            (Value::Truth(false), _) => return,
            (Value::Truth(true), Arg::None | Arg::Optional(_)) => None,
            (other, Arg::None) => {
                return self.say(entry.node.line, format!("\"{}\" is true or false, not {}", def.long, other.kind()));
            }
            (Value::List(_), _) => {
                let words: Vec<String> = self.texts(entry).into_iter().map(|(_, text)| text).collect();
                Some(words.join(","))
            }
            _ => match self.text(entry) {
                Some(text) => Some(text),
                None => return,
            },
        };
        let option = Occurrence { def, value: value.map(OsString::from) };
        if let Err(error) = sources::lay_on(&mut Typed::default(), std::slice::from_ref(&option), Timestamp::now()) {
            return self.say(entry.line, error.to_string());
        }
        into.push(Setting { line: entry.line, option });
    }

    fn after(&mut self, entry: &Entry) -> Vec<After> {
        let mut all: Vec<After> = Vec::new();
        let mut known: HashSet<(&'static str, String)> = HashSet::new();
        for (line, text) in self.texts(entry) {
            let mut words = text.split(':');
            let first = words.next().unwrap_or_default();
            let rest: Vec<&str> = words.collect();
            let kind = KINDS.iter().find(|(word, _)| *word == first).map(|(_, kind)| *kind);
            let (kind, named) = match (kind, rest.is_empty()) {
                (_, true) => (StepDependencyKind::AfterOk, vec![first]),
                (Some(kind), false) => (kind, rest),
                (None, false) => {
                    let kinds = KINDS.map(|(word, _)| word).join(", ");
                    self.say(line, format!("\"{text}\": \"{first}\" is none of {kinds}"));
                    continue;
                }
            };
            for label in named {
                let label = label.strip_prefix('@').unwrap_or(label);
                match labels::check(label) {
                    Ok(()) => {
                        if known.insert((kind_word(kind), label.to_owned())) {
                            all.push(After { line, kind, label: label.to_owned() });
                        }
                    }
                    Err(error) => self.say(line, format!("\"{text}\": {error}")),
                }
            }
        }
        all
    }

    /// Names of files; `None`: how many steps they are of is not known, and their places are not looked at.
    fn files(&mut self, entry: &Entry, many: Option<&Many>) -> Vec<FileName> {
        let mut index = Names::default();
        if let Err(twice) = index.add(Some("index")) {
            self.say(entry.line, format!("{{index}} is parameter {twice}"));
        }
        let mut files = Vec::new();
        for (line, text) in self.texts(entry) {
            let template = match many {
                None => Ok(Template::default()),
                Some(Many::Each(each)) => each.template(text.as_bytes()),
                // A step that is one takes all files of an array that are written so.
                Some(Many::One | Many::Array(_)) => Template::parse(text.as_bytes(), &index),
            };
            match template {
                _ if text.is_empty() => self.say(line, format!("\"{}\": a file without a name", entry.key)),
                Ok(template) => files.push(FileName { line, text, template }),
                Err(error) => self.say(line, format!("\"{}\": {error}", entry.key)),
            }
        }
        files
    }
}

/// The step with its label, where it has one.
struct Named<'a>(&'a str, &'static str);

impl std::fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            "" => write!(f, "the step {}", self.1),
            label => write!(f, "step \"{label}\" {}", self.1),
        }
    }
}
