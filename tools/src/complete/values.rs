//! What options and operands take: names that the cluster knows, one of some words, files.

use super::line::Candidate;
use crate::{
    control::scontrol::show,
    manual::{commands::Command, find},
    options::table::{Arg, OptionDef},
};
use garrick_model::{mail, signal};
use garrick_render::{node_state, sacct, sacctmgr::kind, sinfo, squeue, sreport, words};

/// Names of what a cluster has.
pub trait Names {
    /// Partitions.
    fn partitions(&self) -> Vec<Candidate>;
    /// Jobs of the user that wait or run.
    fn jobs(&self) -> Vec<Candidate>;
    /// Nodes.
    fn nodes(&self) -> Vec<Candidate>;
    /// Users of this host.
    fn users(&self) -> Vec<Candidate>;
    /// Reservations.
    fn reservations(&self) -> Vec<Candidate>;
    /// The cluster.
    fn clusters(&self) -> Vec<Candidate>;
}

/// What is taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Partitions.
    Partition,
    /// Jobs.
    Job,
    /// Nodes.
    Node,
    /// Users.
    User,
    /// Reservations.
    Reservation,
    /// Clusters.
    Cluster,
    /// One of these words.
    OneOf(Vec<String>),
    /// Some of these words, with commas between them.
    SomeOf(Vec<String>),
    /// A file.
    File,
    /// A folder.
    Folder,
    /// A program.
    Program,
}

impl Value {
    /// There may be several, with commas between them.
    pub const fn is_list(&self) -> bool {
        !matches!(self, Self::OneOf(_) | Self::File | Self::Folder | Self::Program)
    }

    /// What it may be.
    pub fn candidates(self, names: &dyn Names) -> Vec<Candidate> {
        match self {
            Self::Partition => names.partitions(),
            Self::Job => names.jobs(),
            Self::Node => names.nodes(),
            Self::User => names.users(),
            Self::Reservation => names.reservations(),
            Self::Cluster => names.clusters(),
            Self::OneOf(words) | Self::SomeOf(words) => {
                words.into_iter().map(|text| Candidate { text, help: String::new() }).collect()
            }
            Self::File | Self::Folder | Self::Program => Vec::new(),
        }
    }
}

fn some_of<'w>(words: impl IntoIterator<Item = &'w str>) -> Option<Value> {
    Some(Value::SomeOf(words.into_iter().map(str::to_owned).collect()))
}

fn one_of<'w>(words: impl IntoIterator<Item = &'w str>) -> Option<Value> {
    Some(Value::OneOf(words.into_iter().map(str::to_owned).collect()))
}

/// Values of options that take one of some words, or several: what the options' own texts do not list.
pub const WORDS: [(&str, &[&str]); 9] = [
    ("dependency", &["after:", "afterok:", "afterany:", "afternotok:", "aftercorr:", "singleton"]),
    ("hint", &["compute_bound", "memory_bound", "multithread", "nomultithread", "help"]),
    ("distribution", &["block", "cyclic", "plane=", "arbitrary", "block:block", "block:cyclic", "cyclic:block"]),
    ("cpu-bind", &["none", "rank", "map_cpu:", "mask_cpu:", "sockets", "cores", "threads", "verbose", "quiet", "help"]),
    ("mpi", &["none", "pmi2", "pmix", "list"]),
    ("gres-flags", &["disable-binding", "enforce-binding"]),
    ("export", &["ALL", "NONE", "NIL"]),
    ("profile", &["none", "all", "energy", "filesystem", "network", "task"]),
    ("json", &["v0.0.45"]),
];

/// What an option of the command takes, if there is something to say of it.
pub fn of_option(command: &Command, option: &OptionDef) -> Option<Value> {
    let (Arg::Required(word) | Arg::Optional(word)) = option.arg else { return None };
    if let Some((_, words)) = WORDS.iter().find(|(name, _)| *name == option.long) {
        return some_of(words.iter().copied());
    }
    words_of_option(command.name(), option.long)
        .or_else(|| names_for_option(command.name(), option.long))
        .or_else(|| by_placeholder(word))
}

/// Of options whose words are in tables of their own.
fn words_of_option(command: &str, option: &str) -> Option<Value> {
    match (command, option) {
        ("squeue" | "scancel", "states" | "state") => some_of(words::job_state_words().split(',')),
        ("sacct", "state") => some_of(sacct::state::listed()),
        ("sacct", "reason") => some_of(sacct::reasons()),
        ("sacct", "format") => some_of(sacct::fields::FIELDS.iter().map(|field| field.name)),
        ("sinfo", "states") => some_of(node_state::FILTER_WORDS.split(',')),
        ("squeue", "Format") => some_of(squeue::fields::JOB.iter().map(|entry| entry.names[0])),
        ("sinfo", "Format") => some_of(sinfo::fields::TABLE.iter().map(|entry| entry.names[0])),
        ("scancel", "signal") => one_of(signal::names()),
        (_, "mail-type") => some_of(["NONE", "ALL"].into_iter().chain(mail::words())),
        _ => None,
    }
}

/// Of options that name something of the cluster, or a file.
fn names_for_option(command: &str, option: &str) -> Option<Value> {
    Some(match (command, option) {
        // Folders of shared objects.
        ("sbcast", "exclude") => return None,
        (_, "nodelist" | "exclude" | "node") | ("sinfo", "nodes") => Value::Node,
        (_, "partition") => Value::Partition,
        (_, "jobs" | "jobid") => Value::Job,
        (_, "user" | "uid" | "mail-user") => Value::User,
        (_, "reservation") => Value::Reservation,
        (_, "clusters" | "cluster") => Value::Cluster,
        (_, "chdir" | "prefix") => Value::Folder,
        (_, "program" | "prolog" | "epilog" | "task-prolog" | "task-epilog") => Value::File,
        (_, "output" | "error" | "input" | "nodefile" | "conf" | "export-file") => Value::File,
        _ => return None,
    })
}

/// By the word that stands for the argument in helps: `file`, or all that it may be, `yes|no`.
fn by_placeholder(word: &str) -> Option<Value> {
    if word.to_ascii_lowercase().starts_with("file") {
        return Some(Value::File);
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '|' || c == '_';
    if word.contains('|') && word.chars().all(plain) { one_of(word.split('|')) } else { None }
}

/// What stands behind a key of `scontrol`, `NodeName=`.
pub fn of_key(key: &str) -> Option<Value> {
    Some(match key.to_ascii_lowercase().as_str() {
        "jobid" => Value::Job,
        "nodename" | "nodes" | "nodelist" | "reqnodelist" | "excnodelist" => Value::Node,
        "partitionname" | "partition" => Value::Partition,
        "reservationname" | "reservation" => Value::Reservation,
        "user" | "users" => Value::User,
        _ => return None,
    })
}

/// What the next operand is, if there is something to say of it.
pub fn of_operand(command: &Command, operands: &[&str]) -> Option<Value> {
    match (command.name(), operands) {
        ("sbatch" | "sbcast" | "sgather" | "scrontab", _) => Some(Value::File),
        ("srun" | "salloc", []) => Some(Value::Program),
        ("srun" | "salloc", _) => Some(Value::File),
        ("scancel" | "sattach" | "swait", _) => Some(Value::Job),
        ("scontrol", [word, rest @ ..]) => of_scontrol(word, rest),
        ("sacctmgr", ["list" | "show"]) => some_of(kind::Kind::words()),
        ("sreport", []) => some_of(sreport::kinds()),
        ("sreport", [kind @ ("cluster" | "job" | "user")]) => some_of(sreport::Report::names(kind)),
        ("seff" | "garrick why" | "garrick steps" | "garrick efficiency", _) => Some(Value::Job),
        ("garrick check" | "garrick cat" | "garrick graph" | "garrick init", _) => Some(Value::File),
        ("garrick", ["completion"]) => one_of(["bash", "zsh", "fish"]),
        ("garrick", ["help"]) => Some(Value::OneOf(find::names())),
        ("garrick", ["run" | "sim" | "topology" | "journal", ..]) => Some(Value::File),
        _ => None,
    }
}

/// Behind a command of `scontrol`.
fn of_scontrol(word: &str, rest: &[&str]) -> Option<Value> {
    match (word, rest) {
        ("show", []) => one_of(show::ENTITIES.iter().copied()),
        ("show", ["job" | "jobs" | "step" | "steps"]) => Some(Value::Job),
        ("show", ["node" | "nodes"]) => Some(Value::Node),
        ("show", ["partition" | "partitions"]) => Some(Value::Partition),
        ("show", ["reservation" | "reservations"]) => Some(Value::Reservation),
        ("update", []) => one_of(["JobId=", "NodeName=", "PartitionName=", "ReservationName=", "StepId="]),
        ("create", []) => one_of(["NodeName=", "PartitionName=", "reservation"]),
        ("delete", []) => one_of(["NodeName=", "PartitionName=", "ReservationName="]),
        ("write", []) => one_of(["batch_script"]),
        ("write", ["batch_script"]) => Some(Value::Job),
        ("power", []) => one_of(["up", "down"]),
        ("reboot" | "reboot_nodes" | "cancel_reboot" | "power" | "getaddrs", _) => Some(Value::Node),
        (
            "hold" | "uhold" | "release" | "requeue" | "requeuehold" | "suspend" | "resume" | "top" | "notify"
            | "wait_job" | "listpids",
            _,
        ) => Some(Value::Job),
        _ => None,
    }
}
