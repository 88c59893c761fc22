//! A graph as the lines of a list: each line comes after all lines that it waits for, with labels in place of step numbers. Steps
//! that completed before are left out, and no line waits for them.

use super::{
    check::{Graph, Wait},
    written::{Many, Step, kind_word},
};
use crate::{
    options::{getopt::Occurrence, table::OptionDef},
    step_lists::{labels, list_line::ListLine},
};
use garrick_model::{batch::StepDependencyKind, spec::ArraySpec};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, VecDeque},
    ffi::OsString,
    sync::Arc,
};

/// How much of a step is handed over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Share {
    /// All of it.
    #[default]
    All,
    /// These tasks of an array.
    Tasks(Vec<u32>),
    /// These combinations, counted from 0.
    Combinations(Vec<u64>),
    /// Nothing.
    Nothing,
}

/// Lines that have something in common.
#[derive(Debug)]
enum Lines {
    One,
    Array(ArraySpec),
    /// All, or those that are named: the number of the next.
    Each(Option<Vec<u64>>, u64),
}

/// A part of a step of the graph.
#[derive(Debug)]
struct Part {
    step: usize,
    /// Its labels: the step's, and its own where there are several parts.
    labels: Vec<String>,
    dependency: String,
    lines: Lines,
}

/// What is to be handed over, in its order.
#[derive(Debug)]
pub struct Plan {
    graph: Arc<Graph>,
    parts: VecDeque<Part>,
}

/// By index of an array's tasks: in which part it is.
type Parts = BTreeMap<u32, usize>;

impl Plan {
    /// The whole graph, or by step what of it is to be handed over.
    pub fn new(graph: Arc<Graph>, shares: &[Share]) -> Self {
        let share = |at: usize| shares.get(at).unwrap_or(&Share::All);
        let mut parts = VecDeque::new();
        let mut parted: BTreeMap<usize, Parts> = BTreeMap::new();
        for at in graph.in_order() {
            let step = &graph.steps[at];
            let waits: Vec<&Wait> = graph.waits[at].iter().filter(|wait| *share(wait.on) != Share::Nothing).collect();
            let lines = match (&step.many, share(at)) {
                (_, Share::Nothing) => continue,
                (Many::Array(tasks), share) => {
                    parts.extend(array(at, tasks, share, &waits, &graph, &mut parted));
                    continue;
                }
                (Many::Each(_), Share::Combinations(numbers)) => Lines::Each(Some(numbers.clone()), 0),
                (Many::Each(_), _) => Lines::Each(None, 0),
                (Many::One, _) => Lines::One,
            };
            let named = |wait: &&Wait| (wait.kind, graph.steps[wait.on].label.clone());
            let dependency = dependency(waits.iter().map(named));
            parts.push_back(Part { step: at, labels: vec![step.label.clone()], dependency, lines });
        }
        Self { graph, parts }
    }

    /// The line of the step that is next, or of the graph's last when there is none.
    pub fn upcoming(&self) -> u64 {
        let step = self.parts.front().map(|part| &self.graph.steps[part.step]).or(self.graph.steps.last());
        step.map_or(1, |step| u64::from(step.line))
    }

    /// The label of the step with this line.
    pub fn label(&self, line: u64) -> &str {
        self.graph.steps.iter().find(|step| u64::from(step.line) == line).map_or("", |step| step.label.as_str())
    }

    /// The next step with its line in the graph's file. `options` are those of `srun`.
    pub fn next(&mut self, options: &[&'static OptionDef]) -> Option<(u64, ListLine<'static>)> {
        loop {
            let part = self.parts.front_mut()?;
            let step = &self.graph.steps[part.step];
            let line = match (&mut part.lines, &step.many) {
                (Lines::Each(numbers, next), Many::Each(each)) => {
                    let number = match numbers {
                        Some(numbers) => numbers.get(*next as usize).copied(),
                        None => Some(*next).filter(|next| *next < each.count()),
                    };
                    let Some(number) = number else {
                        self.parts.pop_front();
                        continue;
                    };
                    *next += 1;
                    finished(step, part, each.line(number, options), options)
                }
                _ => {
                    let part = self.parts.pop_front()?;
                    let line = ListLine { argv: step.argv.clone(), ..ListLine::default() };
                    finished(step, &part, line, options)
                }
            };
            return Some((u64::from(step.line), line));
        }
    }
}

/// A line with all that its step asks for.
fn finished(step: &Step, part: &Part, line: ListLine<'static>, options: &[&'static OptionDef]) -> ListLine<'static> {
    let option = |name: &str, value: &str| {
        let def = options.iter().copied().find(|def| def.long == name)?;
        Some(Occurrence { def, value: Some(OsString::from(value)) })
    };
    let mut all: Vec<Occurrence> = step.settings.iter().map(|setting| setting.option.clone()).collect();
    all.extend(line.options);
    all.extend(part.labels.iter().filter_map(|label| option("label", label)));
    if !part.dependency.is_empty() {
        all.extend(option("dependency", &part.dependency));
    }
    if let Lines::Array(tasks) = &part.lines {
        all.extend(option("array", &tasks.to_string()));
    }
    let mut environment = String::new();
    for (name, value) in &step.environment {
        environment.extend([name, "=", value, "\0"]);
    }
    ListLine { options: all, environment, name: step.label.clone(), line: Some(step.line), ..line }
}

/// `afterok:@a:@b,afternotok:@c`
fn dependency(waits: impl Iterator<Item = (StepDependencyKind, String)>) -> String {
    let mut kinds: Vec<(StepDependencyKind, String)> = Vec::new();
    for (kind, label) in waits {
        match kinds.iter_mut().find(|(other, _)| *other == kind) {
            Some((_, labels)) => labels.push_str(&format!(":@{label}")),
            None => kinds.push((kind, format!("{}:@{label}", kind_word(kind)))),
        }
    }
    let texts: Vec<String> = kinds.into_iter().map(|(_, text)| text).collect();
    texts.join(",")
}

/// An array in as many parts as its tasks wait for different arrays: one whose counterpart completed waits for none.
fn array(
    at: usize,
    tasks: &ArraySpec,
    share: &Share,
    waits: &[&Wait],
    graph: &Graph,
    parted: &mut BTreeMap<usize, Parts>,
) -> Vec<Part> {
    let label = &graph.steps[at].label;
    let is_by_task = |wait: &&&Wait| wait.kind == StepDependencyKind::AfterCorr;
    let is_whole = !matches!(share, Share::Tasks(_));
    if is_whole && !waits.iter().filter(is_by_task).any(|wait| parted.contains_key(&wait.on)) {
        let dependency = dependency(waits.iter().map(|wait| (wait.kind, graph.steps[wait.on].label.clone())));
        return vec![Part { step: at, labels: vec![label.clone()], dependency, lines: Lines::Array(tasks.clone()) }];
    }
    let indices: Box<dyn Iterator<Item = u32>> = match share {
        Share::Tasks(indices) => Box::new(indices.iter().copied()),
        _ => Box::new(tasks.indices()),
    };
    let mut groups: BTreeMap<Vec<Option<usize>>, Vec<u32>> = BTreeMap::new();
    for index in indices {
        // An array that is whole has every task, in one part.
        let of = |wait: &&Wait| parted.get(&wait.on).map_or(Some(0), |parts| parts.get(&index).copied());
        groups.entry(waits.iter().filter(is_by_task).map(of).collect()).or_default().push(index);
    }
    let how_many = |on: usize| parted.get(&on).map_or(1, |parts| parts.values().max().map_or(1, |last| last + 1));
    let mut own = Parts::new();
    let mut made = Vec::new();
    let several = groups.len() > 1;
    let sizes: Vec<u64> = groups.values().map(|indices| indices.len() as u64).collect();
    let limits = tasks.limit.map(|limit| divided(limit, &sizes));
    for (number, (counterparts, indices)) in groups.into_iter().enumerate() {
        own.extend(indices.iter().map(|index| (*index, number)));
        let mut counterparts = counterparts.into_iter();
        let named = |wait: &&Wait| {
            let label = &graph.steps[wait.on].label;
            if wait.kind != StepDependencyKind::AfterCorr {
                return Some((wait.kind, label.clone()));
            }
            let part = counterparts.next().flatten()?;
            let label = if how_many(wait.on) > 1 { labels::of_part(label, part) } else { label.clone() };
            Some((wait.kind, label))
        };
        let dependency = dependency(waits.iter().filter_map(named));
        let mut labels = vec![label.clone()];
        if several {
            labels.push(labels::of_part(label, number));
        }
        let lines = Lines::Array(ArraySpec::from_indices(indices, limits.as_ref().map(|limits| limits[number])));
        made.push(Part { step: at, labels, dependency, lines });
    }
    parted.insert(at, own);
    made
}

/// A limit of an array in parts of these sizes: how many tasks of each may run at once. One at least, and together no more than of
/// the whole unless there are more parts than that.
fn divided(limit: u32, sizes: &[u64]) -> Vec<u32> {
    let total = sizes.iter().sum::<u64>().max(1);
    let rest = u64::from(limit).saturating_sub(sizes.len() as u64);
    let first = |size: &u64| 1 + (rest * size / total).min(size.saturating_sub(1));
    let mut limits: Vec<u64> = sizes.iter().map(first).collect();
    let mut spare = u64::from(limit).saturating_sub(limits.iter().sum());
    let mut by_size: Vec<usize> = (0..sizes.len()).collect();
    by_size.sort_by_key(|at| Reverse(sizes[*at]));
    for at in by_size {
        let more = spare.min(sizes[at].saturating_sub(limits[at]));
        limits[at] += more;
        spare -= more;
    }
    limits.into_iter().map(|limit| limit as u32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_limit_is_divided_by_size() {
        assert_eq!(divided(5, &[2, 2, 96]), [1, 1, 3]);
        assert_eq!(divided(2, &[1, 1, 1]), [1, 1, 1]);
        assert_eq!(divided(10, &[3, 2]), [3, 2]);
        assert_eq!(divided(8, &[40, 40]), [4, 4]);
    }

    proptest! {
        #[test]
        fn parts_together_run_as_many_tasks_as_the_whole(
            limit in 1u32..50, sizes in proptest::collection::vec(1u64..40, 1..10)
        ) {
            let limits = divided(limit, &sizes);
            let total: u64 = sizes.iter().sum();
            let want = u64::from(limit).max(sizes.len() as u64).min(total);
            prop_assert_eq!(limits.iter().map(|limit| u64::from(*limit)).sum::<u64>(), want);
            prop_assert!(limits.iter().zip(&sizes).all(|(limit, size)| (1..=*size).contains(&u64::from(*limit))));
        }
    }
}
