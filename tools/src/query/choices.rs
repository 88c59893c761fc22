//! Parses lists of jobs, steps, users and nodes after `-j`, `-s`, `-u` and `-w`, for every command of this family.

use crate::{
    output::{self, Console},
    query::arguments::Arguments,
    telling,
};
use garrick_asking::{
    accounts::{self, User},
    cluster::Cluster,
};
use garrick_model::{hostlist, ids::IdError, messages::command::JobSelector, step_selector::StepsSelector};
use garrick_render::json::{Form, Meta, Version};
use std::time::Duration;

/// A list that cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChoiceError {
    /// Not a job id.
    #[error("Invalid job id: {0}")]
    Job(String),
    /// Not a step id.
    #[error("Invalid job step id: {0}")]
    Step(String),
    /// Not a user.
    #[error("Invalid user: {0}")]
    User(String),
    /// Not a host list.
    #[error("Invalid node name specified: {0}")]
    Nodes(String),
}

impl ChoiceError {
    fn step(text: &str) -> impl FnOnce(IdError) -> Self {
        let text = text.to_owned();
        move |_| Self::Step(text)
    }
}

/// Words between commas.
pub fn words(text: &str) -> Vec<String> {
    text.split(',').map(str::trim).filter(|w| !w.is_empty()).map(str::to_owned).collect()
}

/// Splits at commas that are not inside brackets: `5_[1,3],7`. Parts are as they are.
pub fn at_commas(text: &str) -> Vec<&str> {
    let mut depth = 0_usize;
    let outside = |c: char| {
        match c {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    };
    text.split(outside).collect()
}

/// The same without blanks around parts, and without empty ones.
pub fn outside_brackets(text: &str) -> Vec<&str> {
    at_commas(text).into_iter().map(str::trim).filter(|p| !p.is_empty()).collect()
}

/// `503,504_1,505_[2-4]`
pub fn jobs(text: &str) -> Result<Vec<JobSelector>, ChoiceError> {
    outside_brackets(text).into_iter().map(job).collect()
}

/// One of those.
pub fn job(text: &str) -> Result<JobSelector, ChoiceError> {
    text.parse().map_err(|_| ChoiceError::Job(text.to_owned()))
}

/// `503.0,503.batch,503.7_[1,3-5]`
pub fn steps(text: &str) -> Result<Vec<StepsSelector>, ChoiceError> {
    outside_brackets(text).into_iter().map(|w| w.parse().map_err(ChoiceError::step(w))).collect()
}

/// `alice,1002`, as numbers.
pub fn users(text: &str) -> Result<Vec<u32>, ChoiceError> {
    words(text).iter().map(|w| user(w)).collect()
}

/// The same; those who are not known are given beside them.
pub fn known_users(text: &str) -> (Vec<u32>, Vec<ChoiceError>) {
    let (mut known, mut unknown) = (Vec::new(), Vec::new());
    for read in words(text).iter().map(|word| user(word)) {
        match read {
            Ok(uid) => known.push(uid),
            Err(error) => unknown.push(error),
        }
    }
    (known, unknown)
}

/// One of those.
pub fn user(text: &str) -> Result<u32, ChoiceError> {
    if let Some(user) = User::by_name(text) {
        return Ok(user.uid);
    }
    text.parse().map_err(|_| ChoiceError::User(text.to_owned()))
}

/// A user's name, or his number in digits.
pub fn user_name(uid: u32) -> String {
    User::by_uid(uid).map_or_else(|| uid.to_string(), |user| user.name)
}

/// Who asks for a document of JSON: the user of this process, with its command line.
pub fn meta(cluster: &str, form: Form) -> Meta {
    let gid = nix::unistd::Gid::current().as_raw();
    Meta {
        cluster: cluster.to_owned(),
        command: std::env::args_os().map(|a| a.to_string_lossy().into_owned()).collect(),
        user: user_name(nix::unistd::Uid::current().as_raw()),
        group: accounts::group_name(gid).unwrap_or_else(|| gid.to_string()),
        form,
    }
}

/// Clusters are found by their `slurm.conf` alone, so only that file's own can be named.
///
/// # Errors
///
/// Another was named: that is said, and this is the exit code.
pub fn is_own_cluster(name: &str, console: &Console) -> Result<(), i32> {
    if found_cluster(console)?.name() == name {
        return Ok(());
    }
    console.error(telling::other_cluster(name));
    Err(1)
}

fn found_cluster(console: &Console) -> Result<Cluster, i32> {
    Cluster::find(None).map_err(|error| {
        console.error(error);
        1
    })
}

/// `-M` or `SLURM_CLUSTERS`, which may name several clusters; see [`is_own_cluster`].
///
/// # Errors
///
/// Another was named: that is said, and this is the exit code.
pub fn own_cluster(arguments: &Arguments, console: &Console) -> Result<(), i32> {
    let set = || std::env::var("SLURM_CLUSTERS").ok();
    let Some(text) = arguments.value("clusters").or_else(set).filter(|text| !text.is_empty()) else { return Ok(()) };
    let cluster = found_cluster(console)?;
    match words(&text).into_iter().find(|name| name != "all" && name != cluster.name()) {
        None => Ok(()),
        Some(other) => {
            console.error(telling::other_cluster(&other));
            console.fatal("Could not get cluster information");
            Err(1)
        }
    }
}

/// A host list, as names; functions in it stay, for [`garrick_asking::contact::named_nodes`].
pub fn nodes(text: &str) -> Result<Vec<String>, ChoiceError> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    hostlist::expand(text).map_err(|e| ChoiceError::Nodes(e.to_string()))
}

/// `--iterate`: the pause between two listings, if there is to be more than one. The error is what was given.
pub fn interval(arguments: &Arguments) -> Result<Option<Duration>, String> {
    let secs = |text: String| match text.parse() {
        Ok(secs) if secs > 0 => Ok(Duration::from_secs(secs)),
        _ => Err(text),
    };
    arguments.value("iterate").map(secs).transpose()
}

/// The last of `--json` and `--yaml`; `None`: text is wanted.
///
/// # Errors
/// What is wrong with the version that is named.
pub fn form(arguments: &Arguments) -> Result<Option<Form>, FormError> {
    let last = arguments.options.iter().rev().find(|given| matches!(given.def.long, "json" | "yaml"));
    let Some(given) = last else { return Ok(None) };
    let version = given.value.as_ref().map_or_else(String::new, |text| text.to_string_lossy().into_owned());
    let yaml = given.def.long == "yaml";
    if version == "list" {
        return Err(FormError::List);
    }
    let known = Version::read(&version).ok_or(FormError::Unknown { yaml, version })?;
    Ok(Some(Form { version: known, yaml }))
}

/// Why no document is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FormError {
    /// The versions are to be listed.
    List,
    /// There is no such version.
    Unknown {
        /// YAML was asked for.
        yaml: bool,
        /// As written.
        version: String,
    },
}

impl FormError {
    /// Lists the versions, or says that there is no such one; `failure` is the exit code then.
    pub fn tell(&self, console: &Console, failure: i32) -> i32 {
        match self {
            Self::List => {
                let listed = output::stdout(|out| {
                    Version::ALL.iter().try_for_each(|version| writeln!(out, "{}", version.plugin()))
                });
                output::stderr(b"Possible data_parser plugins:\n");
                output::finish(console, listed, 0)
            }
            Self::Unknown { yaml, version } => {
                let plugin = version.strip_prefix("data_parser/").unwrap_or(version);
                console.error(format_args!("load_plugins: unable to find plugin: data_parser/{plugin}"));
                let failed = "failure loading plugins: Plugin has invalid format or unable to be loaded";
                console.error(format_args!("data_parser_g_new: {failed}"));
                let kind = if *yaml { "x-yaml" } else { "json" };
                console.error(format_args!("application/{kind} output not supported by {}", Version::V45.plugin()));
                failure
            }
        }
    }
}
