//! File name patterns (`%j`, `%A_%a`, `%5t`) as `sbatch(1)` and `srun(1)` document them. Commands fill in what a job's view
//! shows, the node that opens the file fills in the rest.

use crate::ids::{ArrayTask, JobId, StepKey};

/// What `%a` gives outside an array, seen with Slurm.
const NO_ARRAY_INDEX: u32 = 4_294_967_294;
/// Wider paddings are cut to this.
const MAX_WIDTH: usize = 10;

/// Where a batch job's output goes when nothing was said; of a job array each task's (sbatch(1)).
pub const fn default_output(of_array: bool) -> &'static str {
    if of_array { "slurm-%A_%a.out" } else { "slurm-%j.out" }
}

/// What a pattern may ask for. What is `None` is not known here: its symbol stays as it is.
#[derive(Clone, Copy, Debug)]
pub struct PatternFacts<'a> {
    /// `%j`; with the step `%J`; outside an array also `%A`.
    pub job: JobId,
    /// `%A`, `%a` and `%b` (the index modulo 10).
    pub array_task: Option<ArrayTask>,
    /// `%s`. For the batch script `%J` is the job's number alone. In a task of a step array `%s` and `%J` end with `_` and
    /// its index, and `%a` and `%b` are that index.
    pub step: Option<StepKey>,
    /// `%N`: the node's name up to its first dot.
    pub node: Option<&'a str>,
    /// `%n`: number of the node within the job.
    pub node_id: Option<u32>,
    /// `%t`: rank of the task.
    pub task: Option<u32>,
    /// `%u`.
    pub user: &'a str,
    /// `%x`.
    pub job_name: &'a str,
}

/// A path as it is below a folder, unless it is absolute.
pub fn in_folder(path: String, folder: &str) -> String {
    if path.starts_with('/') { path } else { format!("{}/{path}", folder.trim_end_matches('/')) }
}

/// Fills a pattern in. A backslash anywhere turns replacement off (and is taken out).
pub fn fill(pattern: &str, facts: &PatternFacts<'_>) -> String {
    if pattern.contains('\\') {
        return unescape(pattern);
    }
    let mut filled = String::with_capacity(pattern.len() + 16);
    let mut rest = pattern;
    while let Some(at) = rest.find('%') {
        filled.push_str(&rest[..at]);
        let symbol = &rest[at + 1..];
        let digits = symbol.bytes().take_while(u8::is_ascii_digit).count();
        let (width, letter) = symbol.split_at(digits);
        let Some(letter) = letter.chars().next() else {
            filled.push_str(&rest[at..]);
            return filled;
        };
        let end = at + 1 + digits + letter.len_utf8();
        let width = width.parse().unwrap_or(if digits == 0 { 0 } else { MAX_WIDTH });
        match replacement(letter, width.min(MAX_WIDTH), facts) {
            Some(text) => filled.push_str(&text),
            None => filled.push_str(&rest[at..end]),
        }
        rest = &rest[end..];
    }
    filled.push_str(rest);
    filled
}

fn replacement(letter: char, width: usize, facts: &PatternFacts<'_>) -> Option<String> {
    let padded = |n: u32| format!("{n:0width$}");
    let step = |step: StepKey| match (step.step.number(), step.array) {
        (Some(number), None) => padded(number),
        (Some(number), Some(task)) => format!("{}_{task}", padded(number)),
        (None, _) => step.to_string(),
    };
    let index = facts.step.and_then(|s| s.array).or(facts.array_task.map(|task| task.index)).unwrap_or(NO_ARRAY_INDEX);
    match letter {
        '%' => Some("%".to_owned()),
        'A' => Some(padded(facts.array_task.map_or(facts.job, |task| task.array_job).0)),
        'a' => Some(padded(index)),
        'b' => Some(padded(index % 10)),
        'j' => Some(padded(facts.job.0)),
        'J' => match facts.step? {
            StepKey::BATCH => Some(padded(facts.job.0)),
            other => Some(format!("{}.{other}", padded(facts.job.0))),
        },
        's' => facts.step.map(step),
        'N' => facts.node.map(|name| name.split('.').next().unwrap_or(name).to_owned()),
        'n' => facts.node_id.map(padded),
        't' => facts.task.map(padded),
        'u' => Some(facts.user.to_owned()),
        'x' => Some(facts.job_name.to_owned()),
        _ => None,
    }
}

/// Takes backslashes out; of two together one stays.
fn unescape(pattern: &str) -> String {
    let mut text = String::with_capacity(pattern.len());
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => text.extend(chars.next()),
            c => text.push(c),
        }
    }
    text
}

/// How many files a pattern makes in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilesPer {
    /// One file.
    Step,
    /// `%n` or `%N`: one file on each node.
    Node,
    /// `%t`: one file for each task.
    Task,
}

/// Whether a pattern names one file, one per node or one per task.
pub fn files_per(pattern: &str) -> FilesPer {
    if pattern.contains('\\') {
        return FilesPer::Step;
    }
    let mut per = FilesPer::Step;
    let mut rest = pattern;
    while let Some(at) = rest.find('%') {
        rest = rest[at + 1..].trim_start_matches(|c: char| c.is_ascii_digit());
        let mut chars = rest.chars();
        match chars.next() {
            Some('t') => return FilesPer::Task,
            Some('n' | 'N') => per = FilesPer::Node,
            _ => {}
        }
        rest = chars.as_str();
    }
    per
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FACTS: PatternFacts<'static> = PatternFacts {
        job: JobId(128),
        array_task: None,
        step: Some(StepKey::number(0)),
        node: Some("n1.cluster"),
        node_id: Some(1),
        task: Some(3),
        user: "alice",
        job_name: "demo",
    };

    #[test]
    fn symbols_are_replaced_as_documented() {
        for (pattern, want) in [
            ("job%J.out", "job128.0.out"),
            ("job%4j.out", "job0128.out"),
            ("job%j-%2t.out", "job128-03.out"),
            ("%x-%u-%N-%n-%s", "demo-alice-n1-1-0"),
            ("%3N%5x", "n1demo"),
            ("%A_%a", "128_4294967294"),
            ("100%%", "100%"),
            ("%%j", "%j"),
            ("%q%", "%q%"),
            ("%5", "%5"),
            ("%999999999999999999999j", "0000000128"),
            ("a\\%j", "a%j"),
            ("ä%jö%ü", "ä128ö%ü"),
        ] {
            assert_eq!(fill(pattern, &FACTS), want, "{pattern}");
        }
        let task = PatternFacts { array_task: Some(ArrayTask { array_job: JobId(120), index: 13 }), ..FACTS };
        assert_eq!(fill("%A_%a-%b-%4a", &task), "120_13-3-0013");
    }

    #[test]
    fn the_batch_script_has_the_jobs_number() {
        let batch = PatternFacts { step: Some(StepKey::BATCH), ..FACTS };
        assert_eq!(fill("%J-%s-%5s", &batch), "128-batch-batch");
    }

    #[test]
    fn what_is_not_known_stays() {
        let controller = PatternFacts { step: None, node: None, node_id: None, task: None, ..FACTS };
        assert_eq!(fill("%j-%4t-%N-%J", &controller), "128-%4t-%N-%J");
    }

    #[test]
    fn patterns_tell_how_many_files_they_make() {
        assert_eq!(files_per("out.%j"), FilesPer::Step);
        assert_eq!(files_per("out.%3n"), FilesPer::Node);
        assert_eq!(files_per("%N/%2t"), FilesPer::Task);
        assert_eq!(files_per("%%t"), FilesPer::Step);
        assert_eq!(files_per("\\%t"), FilesPer::Step);
    }

    proptest! {
        #[test]
        fn any_pattern_fills(s in "\\PC{0,30}|[%0-9a-zA-Z\\\\]{0,20}") {
            let _ = fill(&s, &FACTS);
            let _ = files_per(&s);
        }
    }
}
