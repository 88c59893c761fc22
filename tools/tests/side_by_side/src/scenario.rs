//! Scenario files: a small cluster, and cases that run on it one after another.
//!
//! A case with `values` stands for several: `{}` in its name and steps is replaced by each value. A value may be a list; then
//! `{1}`, `{2}` stand for its parts.

use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

/// Why a scenario file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// It cannot be read.
    #[error("cannot read {0}: {1}")]
    Read(PathBuf, #[source] io::Error),
    /// It is no TOML, or not of this form.
    #[error("{0}: {1}")]
    Form(PathBuf, #[source] Box<toml::de::Error>),
    /// A mask is no regular expression.
    #[error("{0}: {1}")]
    Mask(PathBuf, #[source] regex::Error),
    /// Two cases have one name.
    #[error("{0}: two cases have the name {1:?}")]
    Twice(PathBuf, String),
}

/// A scenario file.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// The file's name without `.toml`.
    #[serde(default)]
    pub name: String,
    /// The command that its cases are counted under, unless they say another.
    pub command: String,
    /// The cluster on which the cases run.
    #[serde(default)]
    pub cluster: Cluster,
    /// Masks of all cases, see [`Case::mask`].
    #[serde(default)]
    pub mask: Vec<(String, String)>,
    /// The cases, in the order in which they run.
    #[serde(rename = "case")]
    pub cases: Vec<Case>,
}

/// The cluster of a scenario: nodes `n1` to `nN` of four CPUs and 1000 MiB, and one partition `debug`.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Cluster {
    /// How many nodes.
    pub nodes: u32,
    /// More lines of `slurm.conf`.
    pub conf: String,
    /// What follows the nodes' names in their lines.
    pub node: String,
    /// The lines of partitions.
    pub partitions: String,
    /// More files beside `slurm.conf`: names and contents.
    pub files: BTreeMap<String, String>,
    /// No daemon is started.
    pub down: bool,
}

impl Default for Cluster {
    fn default() -> Self {
        Self {
            nodes: 4,
            conf: String::new(),
            node: "CPUs=4 RealMemory=1000".to_owned(),
            partitions: "PartitionName=debug Nodes=ALL Default=YES MaxTime=INFINITE State=UP".to_owned(),
            files: BTreeMap::new(),
            down: false,
        }
    }
}

/// One case: steps, and what else is compared after them.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// What it is called in tables. Unique in its file.
    pub name: String,
    /// The command that it is counted under.
    #[serde(default)]
    pub command: Option<String>,
    /// The oldest reference that has what is shown, such as `26.05`. Older ones are not asked.
    #[serde(default)]
    pub since: Option<String>,
    /// The only references that are asked, such as `22.05`.
    #[serde(default)]
    pub references: Vec<String>,
    /// Files to lay down in the folder in which the case runs. Those that begin with `#!` are executable.
    #[serde(default)]
    pub files: BTreeMap<String, String>,
    /// What is run before, as the case's user, and not compared.
    #[serde(default)]
    pub before: Vec<Step>,
    /// What is run, in order.
    pub steps: Vec<Step>,
    /// What is run afterwards as root, to put the cluster in order. It is not compared.
    #[serde(default)]
    pub after: Vec<Step>,
    /// Patterns of files whose names and contents are compared in the end.
    #[serde(default)]
    pub written: Vec<String>,
    /// Regular expressions, and what replaces their matches in all that is compared.
    #[serde(default)]
    pub mask: Vec<(String, String)>,
    /// Who runs steps that do not say it.
    #[serde(default)]
    pub user: Option<String>,
    /// Environment variables of all steps.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// What is compared of each step that does not say it: of `stdout`, `stderr` and `code`.
    #[serde(default)]
    pub compare: Option<Vec<Part>>,
    /// Why less than everything is compared, in a sentence.
    #[serde(default)]
    pub because: Option<String>,
    /// What `{}` stands for; see the module.
    #[serde(default)]
    pub values: Vec<Value>,
}

/// A value of a case that stands for several.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(untagged)]
pub enum Value {
    /// For `{}`.
    One(String),
    /// For `{1}`, `{2}` and so on.
    Several(Vec<String>),
}

/// A step of a case: a line of a shell alone, or with more to say about it.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(from = "StepForm")]
pub struct Step {
    /// The line. `$J1`, `$J2` and so on are the jobs that were submitted so far in the case.
    pub run: String,
    /// Who runs it: `root`, `slurm`, `alice` or `bob`.
    pub user: Option<String>,
    /// Its standard input. Nothing, unless set.
    pub stdin: Option<String>,
    /// More environment variables.
    pub env: BTreeMap<String, String>,
    /// What is compared.
    pub compare: Option<Vec<Part>>,
    /// The lines of its outputs are compared in order of text: tasks write at the same time.
    pub sort: bool,
    /// Its standard output is JSON, of which this is compared.
    pub json: Option<Json>,
    /// It is run until its standard output matches this regular expression.
    pub until: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum StepForm {
    Line(String),
    Whole(StepTable),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StepTable {
    #[serde(default)]
    run: String,
    #[serde(rename = "as", alias = "user")]
    user: Option<String>,
    stdin: Option<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    compare: Option<Vec<Part>>,
    #[serde(default)]
    sort: bool,
    json: Option<Json>,
    until: Option<String>,
    /// Short for a step that waits until a job has a state: `J1 RUNNING`.
    #[serde(rename = "await")]
    state: Option<String>,
}

impl From<StepForm> for Step {
    fn from(form: StepForm) -> Self {
        let line = |run| Self {
            run,
            user: None,
            stdin: None,
            env: BTreeMap::new(),
            compare: None,
            sort: false,
            json: None,
            until: None,
        };
        match form {
            StepForm::Line(run) => line(run),
            StepForm::Whole(StepTable { state: Some(state), .. }) => {
                let (job, state) = state.split_once(' ').unwrap_or((&state, "RUNNING"));
                Self {
                    until: Some(format!("JobState={state}\\b")),
                    compare: Some(Vec::new()),
                    user: Some("root".to_owned()),
                    ..line(format!("scontrol -o show job ${job}"))
                }
            }
            StepForm::Whole(table) => Self {
                user: table.user,
                stdin: table.stdin,
                env: table.env,
                compare: table.compare,
                sort: table.sort,
                json: table.json,
                until: table.until,
                ..line(table.run)
            },
        }
    }
}

/// A part of what a step shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Part {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// The exit code.
    Code,
}

/// What is compared of JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Json {
    /// Names and types.
    Shape,
    /// Names and values.
    Value,
}

impl Scenario {
    /// Reads a file, with one case for each value of those that stand for several.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or is not of this form.
    pub fn read(path: &Path) -> Result<Self, ScenarioError> {
        let text = fs::read_to_string(path).map_err(|e| ScenarioError::Read(path.to_owned(), e))?;
        let mut scenario: Self =
            toml::from_str(&text).map_err(|e| ScenarioError::Form(path.to_owned(), Box::new(e)))?;
        scenario.name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        scenario.cases = scenario.cases.into_iter().flat_map(expand).collect();
        let mut names = std::collections::BTreeSet::new();
        for case in &mut scenario.cases {
            case.mask.extend(scenario.mask.iter().cloned());
            for (pattern, _) in &case.mask {
                regex::Regex::new(pattern).map_err(|e| ScenarioError::Mask(path.to_owned(), e))?;
            }
            if !names.insert(case.name.clone()) {
                return Err(ScenarioError::Twice(path.to_owned(), case.name.clone()));
            }
        }
        Ok(scenario)
    }

    /// What a case is called in tables.
    #[must_use]
    pub fn title(&self, case: &Case) -> String {
        format!("{}/{}", self.name, case.name)
    }

    /// The command that a case is counted under.
    #[must_use]
    pub fn command_of<'a>(&'a self, case: &'a Case) -> &'a str {
        case.command.as_deref().unwrap_or(&self.command)
    }
}

impl Case {
    /// Whether a reference of this version, such as `22.05`, is asked.
    #[must_use]
    pub fn asks(&self, version: &str) -> bool {
        // Versions are a year and a month, so that text compares as they do.
        self.since.as_deref().is_none_or(|since| version >= since)
            && (self.references.is_empty() || self.references.iter().any(|r| r == version))
    }
}

/// The cases that a case stands for.
fn expand(case: Case) -> Vec<Case> {
    if case.values.is_empty() {
        return vec![case];
    }
    let one = |value: &Value| {
        let put = |text: &str| match value {
            Value::One(value) => text.replace("{}", value),
            Value::Several(values) => values
                .iter()
                .enumerate()
                .fold(text.to_owned(), |text, (i, v)| text.replace(&format!("{{{}}}", i + 1), v)),
        };
        let steps = |steps: &[Step]| -> Vec<Step> {
            let put_step = |step: &Step| Step {
                run: put(&step.run),
                user: step.user.as_deref().map(put),
                stdin: step.stdin.as_deref().map(put),
                env: step.env.iter().map(|(k, v)| (put(k), put(v))).collect(),
                ..step.clone()
            };
            steps.iter().map(put_step).collect()
        };
        let mut name = put(&case.name);
        if name == case.name {
            let value = match value {
                Value::One(value) => value,
                Value::Several(values) => &values[0],
            };
            name = format!("{name} {value}");
        }
        Case {
            name: name.trim().to_owned(),
            steps: steps(&case.steps),
            before: steps(&case.before),
            after: steps(&case.after),
            files: case.files.iter().map(|(name, text)| (name.clone(), put(text))).collect(),
            env: case.env.iter().map(|(k, v)| (put(k), put(v))).collect(),
            values: Vec::new(),
            ..case.clone()
        }
    };
    case.values.iter().map(one).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_case_with_values_stands_for_several() {
        let text = "command = 'squeue'\n[[case]]\nname = 'a {}'\nsteps = ['squeue {}']\nvalues = ['-l', '-s']\n\
                    [[case]]\nname = 'b'\nsteps = [{run = 'x {2}', as = 'bob'}]\nvalues = [['p', 'q']]\n";
        let scenario: Scenario = toml::from_str(text).unwrap();
        let cases: Vec<_> = scenario.cases.into_iter().flat_map(expand).collect();
        let told: Vec<_> = cases.iter().map(|c| (c.name.as_str(), c.steps[0].run.as_str())).collect();
        assert_eq!(told, [("a -l", "squeue -l"), ("a -s", "squeue -s"), ("b p", "x q")]);
        assert_eq!(cases[2].steps[0].user.as_deref(), Some("bob"));
    }

    #[test]
    fn older_references_are_not_asked_for_what_is_newer() {
        let text = "command = 'c'\n[[case]]\nname = 'n'\nsteps = []\nsince = '26.05'\n";
        let scenario: Scenario = toml::from_str(text).unwrap();
        assert!(!scenario.cases[0].asks("22.05"));
        assert!(scenario.cases[0].asks("26.05"));
    }
}
