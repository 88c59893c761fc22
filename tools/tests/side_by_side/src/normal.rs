//! What is different in every run, in order: job ids, times, addresses.

use crate::{cluster::FIRST_JOB, scenario::Case, side::Observation};
use regex::Regex;
use std::{collections::BTreeMap, sync::LazyLock};

/// What holds for every case: pattern and replacement, in this order.
static EVERYWHERE: LazyLock<Vec<(Regex, &'static str)>> = LazyLock::new(|| {
    [
        // Plugins that a program loads: what it is made of is not compared.
        (r"(?m)^\w+: (debug\d?:  )?[a-z_]+/[a-z_0-9]+: \w+: .*\n", ""),
        // What srun meets when a task is gone sooner than it looks, and several nodes on one host.
        (r"(?m)^\w+: error: (IO: Hey, you told me node|Duplicated NodeHostName) .*\n", ""),
        // SLUIDs.
        (r"\bs[0-9A-HJKMNP-TV-Z]{13}\b", "<sluid>"),
        // Times of this year and the next ones. Times that cases name are of other years.
        (r"\b20(2[6-9]|3[0-4])-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?", "<time------------->"),
        // Seconds that something has taken so far: cases are short.
        (r"\b00:00:[0-5]\d\b", "00:00:00"),
        (r"\b0:[0-5]\d\b", "0:00"),
        (r"\b(port|pid|PID|Pid)([ =:]+)\d+", "$1$2<number>"),
        (r"127\.0\.0\.1:\d+", "127.0.0.1:<port>"),
    ]
    .into_iter()
    .map(|(pattern, with)| (Regex::new(pattern).unwrap_or_else(|e| unreachable!("{e}")), with))
    .collect()
});

/// Puts an observation in order.
///
/// # Errors
///
/// A mask of the case is no regular expression.
pub fn normal(case: &Case, mut seen: Observation) -> Result<Observation, regex::Error> {
    let mut masks = Vec::new();
    for (pattern, with) in &case.mask {
        masks.push((Regex::new(pattern)?, with.as_str()));
    }
    let mut ids = Vec::new();
    let texts = seen.steps.iter().flat_map(|step| [&step.stdout, &step.stderr]);
    for text in texts.chain(seen.written.keys()).chain(seen.written.values()) {
        ids.extend(numbers(text).filter_map(|(_, _, id)| id));
    }
    ids.sort_unstable();
    ids.dedup();
    let names: BTreeMap<u32, String> =
        ids.into_iter().enumerate().map(|(i, id)| (id, format!("<id{}>", i + 1))).collect();
    let put = |text: &str| {
        let mut text = with_ids(text, &names);
        for (pattern, with) in EVERYWHERE.iter() {
            text = pattern.replace_all(&text, *with).into_owned();
        }
        for (pattern, with) in &masks {
            text = pattern.replace_all(&text, *with).into_owned();
        }
        text
    };
    for step in &mut seen.steps {
        step.stdout = put(&step.stdout);
        step.stderr = put(&step.stderr);
    }
    seen.written = seen.written.iter().map(|(name, text)| (put(name), put(text))).collect();
    Ok(seen)
}

/// Runs of digits: where they begin and end, and the job that they are.
pub(crate) fn numbers(text: &str) -> impl Iterator<Item = (usize, usize, Option<u32>)> {
    let bytes = text.as_bytes();
    let mut at = 0;
    std::iter::from_fn(move || {
        while at < bytes.len() && !bytes[at].is_ascii_digit() {
            at += 1;
        }
        if at == bytes.len() {
            return None;
        }
        let begin = at;
        while at < bytes.len() && bytes[at].is_ascii_digit() {
            at += 1;
        }
        let id = text[begin..at].parse().ok().filter(|id| (FIRST_JOB..FIRST_JOB + 5000).contains(id));
        Some((begin, at, id.filter(|_| at - begin == 5)))
    })
}

fn with_ids(text: &str, names: &BTreeMap<u32, String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut last = 0;
    for (begin, end, id) in numbers(text) {
        if let Some(name) = id.and_then(|id| names.get(&id)) {
            out.push_str(&text[last..begin]);
            out.push_str(name);
            last = end;
        }
    }
    out.push_str(&text[last..]);
    out
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::{scenario::Scenario, side::Observed};

    fn case(mask: &str) -> Case {
        let text = format!("command = 'c'\n[[case]]\nname = 'n'\nsteps = []\nmask = {mask}\n");
        toml::from_str::<Scenario>(&text).unwrap().cases.remove(0)
    }

    #[test]
    fn jobs_are_named_by_the_order_of_their_ids() {
        let told = |stdout: &str| Observation {
            steps: vec![Observed { stdout: stdout.to_owned(), ..Observed::default() }],
            ..Observation::default()
        };
        let normal = |text: &str| normal(&case("[]"), told(text)).unwrap().steps.remove(0).stdout;
        assert_eq!(normal("job 70012 after 70009_3, 170009"), "job <id2> after <id1>_3, 170009");
        assert_eq!(normal("Start=2026-11-27T07:03:10 0:07"), "Start=<time-------------> 0:00");
    }

    #[test]
    fn a_case_has_masks_of_its_own() {
        let seen = Observation { written: [("a".to_owned(), "Load=0.31".to_owned())].into(), ..Observation::default() };
        let seen = normal(&case("[['Load=\\S+', 'Load=<load>']]"), seen).unwrap();
        assert_eq!(seen.written["a"], "Load=<load>");
    }
}
