//! Prints what happened in a world: the last events, or all that concerned some jobs and nodes.

use garrick_model::ids::{JobId, Sluid};
use std::{
    collections::{BTreeSet, VecDeque},
    str::FromStr,
};

/// Lines kept of a world whose story was not asked for.
const LAST: usize = 40;
/// Longest line of a story that was asked for, in characters.
const LONGEST: usize = 400;

/// Whom a story is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subjects {
    /// Jobs.
    pub jobs: BTreeSet<JobId>,
    /// Runs.
    pub runs: BTreeSet<Sluid>,
    /// Nodes, by index.
    pub nodes: BTreeSet<usize>,
}

/// Words before a job's number, in what rules say and in what messages look like.
const JOB_WORDS: &[&str] = &["job", "JobId", "leader", "component", "array"];

impl Subjects {
    /// Those that a text names: `job 7`, `leader 7`, `run s0...`, `n3`.
    pub fn named_in(text: &str) -> Self {
        let mut subjects = Self::default();
        let mut before = "";
        for word in words(text) {
            if let (true, Ok(job)) = (JOB_WORDS.contains(&before), word.parse()) {
                subjects.jobs.insert(JobId(job));
            } else if let Ok(run) = word.parse() {
                subjects.runs.insert(run);
            } else if let (true, Ok(run)) = (before == "Sluid", word.parse()) {
                subjects.runs.insert(Sluid(run));
            } else if let Some(node) = word.strip_prefix('n').and_then(|number| number.parse().ok()) {
                subjects.nodes.insert(node);
            }
            before = word;
        }
        subjects
    }

    /// Is it empty?
    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty() && self.runs.is_empty() && self.nodes.is_empty()
    }

    fn meets(&self, other: &Self) -> bool {
        !(self.jobs.is_disjoint(&other.jobs)
            && self.runs.is_disjoint(&other.runs)
            && self.nodes.is_disjoint(&other.nodes))
    }
}

/// As on the command line: `job/7,node/3`.
impl FromStr for Subjects {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut subjects = Self::default();
        for one in text.split(',') {
            let wrong = || format!("{one:?} is not of the form job/7 or node/3");
            let (what, number) = one.split_once('/').ok_or_else(wrong)?;
            match what {
                "job" => {
                    subjects.jobs.insert(JobId(number.parse().map_err(|_| wrong())?));
                }
                "node" => {
                    let number = number.strip_prefix('n').unwrap_or(number);
                    subjects.nodes.insert(number.parse().map_err(|_| wrong())?);
                }
                _ => return Err(wrong()),
            }
        }
        Ok(subjects)
    }
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty())
}

/// What is kept of what happens.
#[derive(Clone, Debug)]
pub(super) enum Story {
    Last(VecDeque<String>),
    /// `repeats`: how often the last line came again, with another time.
    About {
        subjects: Subjects,
        lines: Vec<String>,
        repeats: u32,
    },
}

/// A line without its time.
fn untimed(line: &str) -> &str {
    line.trim_start().trim_start_matches(|c: char| c.is_ascii_digit())
}

impl Story {
    pub(super) fn new(about: Option<Subjects>) -> Self {
        match about {
            Some(subjects) => Self::About { subjects, lines: Vec::new(), repeats: 0 },
            None => Self::Last(VecDeque::new()),
        }
    }

    /// Does it want more than the line?
    pub(super) const fn wants_all(&self) -> bool {
        matches!(self, Self::About { .. })
    }

    /// `whole`: all that is known of it, where that is wanted.
    pub(super) fn tell(&mut self, line: String, whole: Option<&str>) {
        match self {
            Self::Last(lines) => {
                lines.push_back(line);
                if lines.len() > LAST {
                    lines.pop_front();
                }
            }
            Self::About { subjects, lines, repeats } => {
                let whole = whole.unwrap_or_default();
                if !(subjects.meets(&Subjects::named_in(&line)) || subjects.meets(&Subjects::named_in(whole))) {
                    return;
                }
                // Short ones say it all twice.
                let text = if whole.is_empty() || line.ends_with(whole) { line } else { format!("{line}: {whole}") };
                let shown: String = text.chars().take(LONGEST).collect();
                let shown = if shown.len() < text.len() { format!("{shown}...") } else { shown };
                if lines.last().is_some_and(|last| untimed(last) == untimed(&shown)) {
                    *repeats += 1;
                    return;
                }
                if *repeats > 0 {
                    lines.push(format!("{:>12} ... {repeats} times again", ""));
                    *repeats = 0;
                }
                lines.push(shown);
            }
        }
    }

    pub(super) fn text(&self) -> String {
        match self {
            Self::Last(lines) => lines.iter().map(String::as_str).collect::<Vec<_>>().join("\n"),
            Self::About { lines, .. } => lines.join("\n"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_runs_and_nodes_are_found_in_what_rules_say() {
        let text = "run s0123456789ABC of job 7 is launched, and leader 9 on n3, after 12s, has JobId(11) of Sluid(5)";
        let subjects = Subjects::named_in(text);
        assert_eq!(subjects.jobs, BTreeSet::from([JobId(7), JobId(9), JobId(11)]));
        assert_eq!(subjects.runs, "s0123456789ABC".parse().into_iter().chain([Sluid(5)]).collect());
        assert_eq!(subjects.nodes, BTreeSet::from([3]));
    }

    #[test]
    fn a_story_that_was_asked_for_has_all_of_its_subjects_and_nothing_else() {
        let mut story = Story::new("job/7,node/n3".parse().ok());
        story.tell("job 7 Start".to_owned(), Some("Start { .. }"));
        story.tell("job 8 Start".to_owned(), Some("Start { .. }"));
        story.tell("node n3 Ping".to_owned(), None);
        story.tell("node n4 Reserve".to_owned(), Some("Reserve(Reservation { job: JobId(7) })"));
        let text = story.text();
        assert_eq!(text.lines().count(), 3, "{text}");
        for time in 5..8 {
            story.tell(format!("{time} step_side of job 7"), None);
        }
        story.tell("9 job 7 Ended".to_owned(), None);
        let last: Vec<String> = story.text().lines().skip(3).map(|line| line.trim().to_owned()).collect();
        assert_eq!(last, ["5 step_side of job 7", "... 2 times again", "9 job 7 Ended"]);
        assert!(!text.contains("job 8"), "{text}");
    }

    #[test]
    fn a_subject_that_is_none_is_refused_with_its_form() {
        assert_eq!("job/x".parse::<Subjects>(), Err("\"job/x\" is not of the form job/7 or node/3".to_owned()));
        assert!("run/7".parse::<Subjects>().is_err() && "7".parse::<Subjects>().is_err());
    }
}
