//! Running a scenario on both sides, judging what differs, and counting by command.

use crate::{
    cluster::Kind,
    compare::{difference, shown},
    differences::{Class, Differences},
    scenario::Scenario,
    side::{Order, Side},
};
use std::{
    collections::BTreeMap,
    fmt::Write as _,
    io,
    path::{Path, PathBuf},
    thread,
};

/// Two installations, and where there is room for their clusters.
#[derive(Debug, Clone)]
pub struct Pair {
    /// The program of this crate.
    pub program: PathBuf,
    /// Where Garrick is installed.
    pub ours: PathBuf,
    /// Where Slurm is installed.
    pub reference: PathBuf,
    /// Its version, such as `22.05`.
    pub version: String,
    /// What `ours` is. Slurm itself, to find what differs from one run to the next.
    pub ours_is: Kind,
    /// A folder to work in.
    pub work: PathBuf,
}

/// How a case came out.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// `FILE/CASE`.
    pub title: String,
    /// The command that it is counted under.
    pub command: String,
    /// What differs; `None` if nothing does.
    pub differs: Option<String>,
    /// What ours showed.
    pub ours: String,
    /// What the reference showed.
    pub reference: String,
    /// The class of the known difference.
    pub known: Option<Class>,
    /// How long ours took, and the reference, in milliseconds.
    pub millis: [u64; 2],
}

impl Outcome {
    /// What is wrong with it: a difference that is in no list, or a listed one that is no longer there.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        match (&self.differs, self.known) {
            (Some(differs), None) => Some(format!("{} differs:\n{differs}", self.title)),
            (None, Some(class)) => {
                Some(format!("{} is listed as a difference ({class}), and is the same now", self.title))
            }
            _ => None,
        }
    }
}

/// Runs the cases of a scenario on both sides that the reference is asked for and that `wanted` names.
///
/// # Errors
///
/// A side did not start or ended early, or a mask is no regular expression.
pub fn run(
    pair: &Pair,
    mut scenario: Scenario,
    table: &Differences,
    wanted: impl Fn(&str) -> bool,
) -> io::Result<Vec<Outcome>> {
    let name = scenario.name.clone();
    scenario.cases.retain(|case| case.asks(&pair.version) && wanted(&format!("{name}/{}", case.name)));
    if scenario.cases.is_empty() {
        return Ok(Vec::new());
    }
    let side = |kind: Kind, prefix: &Path, folder: &str| -> io::Result<_> {
        let order = Order { scenario: scenario.clone(), kind, prefix: prefix.to_owned() };
        let side = Side::start(&pair.program, &pair.work.join(format!("{name}-{folder}")), &order)?;
        let failed = |e| io::Error::other(format!("{name}, {}: {e}", prefix.display()));
        side.observations(scenario.cases.len()).map_err(failed)
    };
    let began = std::time::Instant::now();
    let (ours, reference) = thread::scope(|scope| {
        let ours = scope.spawn(|| side(pair.ours_is, &pair.ours, "ours"));
        let reference = side(Kind::Reference, &pair.reference, "reference");
        (ours.join().unwrap_or_else(|_| Err(io::Error::other("a panic"))), reference)
    });
    eprintln!("{name}: {} cases in {} s", scenario.cases.len(), began.elapsed().as_secs());
    let mut outcomes = Vec::new();
    for (case, (ours, reference)) in scenario.cases.iter().zip(ours?.into_iter().zip(reference?)) {
        let millis = [ours.millis, reference.millis];
        let ours = shown(case, ours).map_err(io::Error::other)?;
        let reference = shown(case, reference).map_err(io::Error::other)?;
        let title = scenario.title(case);
        outcomes.push(Outcome {
            command: scenario.command_of(case).to_owned(),
            differs: (ours != reference).then(|| difference(&ours, &reference)),
            known: table.of(&title, &pair.version).map(|d| d.class),
            title,
            ours,
            reference,
            millis,
        });
    }
    Ok(outcomes)
}

/// A table of how many cases are the same and how many differ, by command.
#[must_use]
pub fn table(outcomes: &[Outcome]) -> String {
    let mut by_command: BTreeMap<&str, [usize; 6]> = BTreeMap::new();
    for outcome in outcomes {
        for name in [outcome.command.as_str(), "~all"] {
            let row = by_command.entry(name).or_default();
            row[0] += 1;
            let column = match (&outcome.differs, outcome.known) {
                (None, _) => 1,
                (Some(_), Some(Class::Newer)) => 2,
                (Some(_), Some(Class::Deliberate)) => 3,
                (Some(_), Some(Class::NotYet)) => 4,
                (Some(_), None) => 5,
            };
            row[column] += 1;
        }
    }
    let mut text = format!(
        "{:<12} {:>9} {:>6} {:>6} {:>10} {:>7} {:>8}\n",
        "command", "scenarios", "same", "newer", "deliberate", "not yet", "unlisted"
    );
    for (name, row) in by_command {
        let [all, same, newer, deliberate, not_yet, unlisted] = row;
        let name = name.trim_start_matches('~');
        // Writing to a text does not fail.
        let _ = writeln!(text, "{name:<12} {all:>9} {same:>6} {newer:>6} {deliberate:>10} {not_yet:>7} {unlisted:>8}");
    }
    text
}

/// The first line of each side that differs, as a reason to begin with.
#[must_use]
pub fn first_line(differs: &str) -> String {
    let line = |sign: char| {
        let found = differs.lines().skip(3).find(|line| line.starts_with(sign));
        found.map_or("nothing".to_owned(), |line| format!("`{}`", &line[1..]))
    };
    format!("Slurm shows {}, Garrick {}.", line('+'), line('-'))
}
