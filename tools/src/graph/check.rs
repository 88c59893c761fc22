//! From descriptions to a graph: which steps wait for which, by name and by files; reports all errors.

use super::{
    tree::Problem,
    written::{FileName, Many, Step, kind_word},
};
use crate::options::getopt;
use garrick_model::batch::StepDependencyKind;
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    path::{Component, Path, PathBuf},
};

/// Most circles that are told of: each of them is followed through the whole graph.
const MOST_CIRCLES: usize = 20;
/// Most files that are told apart, those of all tasks of arrays counted.
const MOST_FILES: u64 = 1_000_000;
/// Most steps of a graph, tasks of arrays and combinations counted one by one.
const MOST_STEPS: u64 = 10_000_000;
/// Most unknown labels for which a similar one is looked for.
const MOST_HINTS: usize = 20;

/// A step waits for another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// Place of the other in the graph.
    pub on: usize,
    /// What must have become of it.
    pub kind: StepDependencyKind,
    /// The line that says so.
    pub line: u32,
    /// The file that the other writes, where that is why.
    pub file: Option<String>,
}

/// Steps in the order of the file, and what each waits for.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    /// The steps.
    pub steps: Vec<Step>,
    /// By step: what it waits for.
    pub waits: Vec<Vec<Wait>>,
}

/// Looks a file up.
pub type Exists<'a> = &'a dyn Fn(&Path) -> bool;

/// Makes a graph of steps. `dir`: where names of files begin that do not begin at the root.
pub fn graph(steps: Vec<Step>, dir: &Path, exists: Exists<'_>, problems: &mut Vec<Problem>) -> Graph {
    let mut count = 0;
    let one_too_many = steps.iter().find(|step| {
        count += step.count();
        count > MOST_STEPS
    });
    if let Some(step) = one_too_many {
        problems
            .push(Problem::new(step.line, format!("more than {MOST_STEPS} steps with those of \"{}\"", step.label)));
        let waits = vec![Vec::new(); steps.len()];
        return Graph { steps, waits };
    }
    let mut by_label: HashMap<&str, usize> = HashMap::new();
    for (at, step) in steps.iter().enumerate() {
        if let Some(first) = by_label.get(step.label.as_str()) {
            let line = steps[*first].line;
            problems.push(Problem::new(step.line, format!("\"{}\" is the label of line {line} too", step.label)));
        } else {
            by_label.insert(&step.label, at);
        }
    }
    let mut hints = MOST_HINTS;
    let mut waits: Vec<Vec<Wait>> =
        steps.iter().map(|step| named(step, &steps, &by_label, &mut hints, problems)).collect();
    by_files(&steps, &mut waits, dir, exists, problems);
    let graph = Graph { steps, waits };
    circles(&graph, problems);
    graph
}

/// What a step says that it waits for.
fn named(
    step: &Step,
    steps: &[Step],
    by_label: &HashMap<&str, usize>,
    hints: &mut usize,
    problems: &mut Vec<Problem>,
) -> Vec<Wait> {
    let mut waits = Vec::new();
    for after in &step.after {
        let Some(on) = by_label.get(after.label.as_str()).copied() else {
            // Any letter is near another.
            let others = steps.iter().map(|other| other.label.as_str()).filter(|other| *other != step.label);
            let near = if *hints > 0 { getopt::nearest(&after.label, others) } else { None };
            *hints = hints.saturating_sub(1);
            let near = near.filter(|_| after.label.len() > 2);
            let hint = near.map(|label| format!(" (did you mean \"{label}\"?)")).unwrap_or_default();
            problems.push(Problem::new(
                after.line,
                format!("step \"{}\" waits for \"{}\", and no step has that label{hint}", step.label, after.label),
            ));
            continue;
        };
        if after.kind == StepDependencyKind::AfterCorr && !step.is_broken && !steps[on].is_broken {
            match (&step.many, &steps[on].many) {
                (Many::Array(own), Many::Array(other)) => {
                    if let Some(index) = own.indices().find(|index| !other.contains(*index)) {
                        problems.push(Problem::new(
                            after.line,
                            format!(
                                "\"{}\" has no task {index} for that of \"{}\" to wait for",
                                after.label, step.label
                            ),
                        ));
                    }
                }
                _ => problems.push(Problem::new(
                    after.line,
                    format!(
                        "aftercorr is for an array that waits for an array: \"{}\" and \"{}\" are not both one",
                        step.label, after.label
                    ),
                )),
            }
        }
        waits.push(Wait { on, kind: after.kind, line: after.line, file: None });
    }
    waits
}

/// A path without `.` and, where it can be told from the text alone, without `..`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => drop(plain.pop()),
            other => plain.push(other),
        }
    }
    plain
}

/// Where a step's files begin.
fn folder(step: &Step, dir: &Path) -> PathBuf {
    step.option("chdir").map_or_else(|| dir.to_owned(), |own| dir.join(own))
}

/// The files that a name stands for.
fn files<'a>(step: &'a Step, name: &'a FileName, folder: &'a Path) -> Box<dyn Iterator<Item = PathBuf> + 'a> {
    use std::os::unix::ffi::OsStringExt as _;
    let path = |text: Vec<u8>| plain(&folder.join(std::ffi::OsString::from_vec(text)));
    let varies = name.varies();
    match &step.many {
        Many::Array(tasks) if varies => {
            Box::new(tasks.indices().map(move |index| path(name.template.fill(|_| index.to_string()))))
        }
        Many::Each(each) if varies => {
            Box::new((0..each.count()).map(move |number| path(each.filled(&name.template, number))))
        }
        _ => Box::new(std::iter::once(path(name.template.fill(|_| "{index}")))),
    }
}

/// Who writes a file, in which line it says so, and which of its tasks or combinations by its place; `None`: each of them.
type Writer = (usize, u32, Option<u64>);

/// Files that steps write.
#[derive(Default)]
struct Written {
    files: HashMap<PathBuf, Writer>,
    /// Names with a place for the index, as they are written: the arrays that write them.
    of_arrays: HashMap<PathBuf, Vec<usize>>,
    /// There are writers of which it is not known how many steps they are, and so not what they write.
    is_open: bool,
    /// All that were named so far.
    count: u64,
}

impl Written {
    fn of(steps: &[Step], dir: &Path, problems: &mut Vec<Problem>) -> Option<Self> {
        let mut written = Self::default();
        for (at, step) in steps.iter().enumerate() {
            if step.is_broken {
                written.is_open |= !step.writes.is_empty();
                continue;
            }
            let folder = folder(step, dir);
            for name in &step.writes {
                if !written.add(steps, at, name, &folder, problems) {
                    return None;
                }
            }
        }
        Some(written)
    }

    /// False: there are too many.
    fn add(&mut self, steps: &[Step], at: usize, name: &FileName, folder: &Path, problems: &mut Vec<Problem>) -> bool {
        let step = &steps[at];
        if !self.counts(step, name, problems) {
            return false;
        }
        if name.varies() && matches!(step.many, Many::One) {
            let text = "{index} is the index of an array's task, and this is a single step; write {{index}} for the \
                        letters themselves";
            problems.push(Problem::new(name.line, format!("\"{}\": {text}", name.text)));
            return true;
        }
        if name.varies() && matches!(step.many, Many::Array(_)) {
            let writers = self.of_arrays.entry(plain(&folder.join(&name.text))).or_default();
            if writers.last() != Some(&at) {
                writers.push(at);
            }
        }
        for (member, file) in (0..).zip(files(step, name, folder)) {
            if let Some((other, line, _)) = self.files.get(&file).filter(|(other, ..)| *other != at) {
                problems.push(Problem::new(
                    name.line,
                    format!(
                        "{} is written by \"{}\" and by \"{}\" (line {line}): a file is written by one step",
                        file.display(),
                        step.label,
                        steps[*other].label
                    ),
                ));
                return true;
            }
            self.files.insert(file, (at, name.line, name.varies().then_some(member)));
        }
        true
    }

    /// Counts the files that a name stands for. False: there are too many.
    fn counts(&mut self, step: &Step, name: &FileName, problems: &mut Vec<Problem>) -> bool {
        self.count += if name.varies() { step.count() } else { 1 };
        let good = self.count <= MOST_FILES;
        if !good {
            problems.push(Problem::new(name.line, format!("more than {MOST_FILES} files are named: name fewer")));
        }
        good
    }
}

fn by_files(steps: &[Step], waits: &mut [Vec<Wait>], dir: &Path, exists: Exists<'_>, problems: &mut Vec<Problem>) {
    let Some(mut written) = Written::of(steps, dir, problems) else { return };
    for (at, step) in steps.iter().enumerate().filter(|(_, step)| !step.is_broken) {
        let folder = folder(step, dir);
        let named = waits[at].iter().map(|wait| wait.on).collect();
        let mut reader = Reader { steps, at, named, waits: &mut waits[at] };
        for name in &step.reads {
            if name.varies() && !matches!(step.many, Many::Each(_)) {
                let writers = written.of_arrays.get(&plain(&folder.join(&name.text)));
                let others: Vec<usize> = writers.into_iter().flatten().copied().filter(|on| *on != at).collect();
                if !others.is_empty() {
                    reader.of_arrays(name, &others, problems);
                    continue;
                }
                if matches!(step.many, Many::One) {
                    if !written.is_open {
                        let what = "no array writes files that are named so; {{index}} stands for itself";
                        problems.push(Problem::new(name.line, format!("\"{}\": {what}", name.text)));
                    }
                    continue;
                }
            }
            if !written.counts(step, name, problems) {
                return;
            }
            reader.of_files(name, &folder, &written, exists, problems);
        }
    }
}

/// A step that reads files.
struct Reader<'a> {
    steps: &'a [Step],
    at: usize,
    /// Whom it waits for so far.
    named: HashSet<usize>,
    waits: &'a mut Vec<Wait>,
}

impl Reader<'_> {
    /// It waits for the one that writes what it reads, unless it says itself how it waits for that one.
    fn wait(&mut self, on: usize, kind: StepDependencyKind, name: &FileName) {
        if self.named.insert(on) {
            self.waits.push(Wait { on, kind, line: name.line, file: Some(name.text.clone()) });
        }
    }

    /// Files with a place for the index, which arrays write. A single step takes all of them. An array waits task by task
    /// where one array writes all that it reads, else for each that writes some of it.
    fn of_arrays(&mut self, name: &FileName, writers: &[usize], problems: &mut Vec<Problem>) {
        let step = &self.steps[self.at];
        let Many::Array(own) = &step.many else {
            writers.iter().for_each(|on| self.wait(*on, StepDependencyKind::AfterOk, name));
            return;
        };
        let writes = |on: usize, index: u32| matches!(&self.steps[on].many, Many::Array(of) if of.contains(index));
        let mut needed: Vec<usize> = Vec::new();
        for index in own.indices() {
            if needed.last().is_some_and(|on| writes(*on, index)) {
                continue;
            }
            match writers.iter().copied().find(|on| writes(*on, index)) {
                Some(on) if needed.contains(&on) => {}
                Some(on) => needed.push(on),
                None => {
                    let labels: Vec<String> =
                        writers.iter().map(|on| format!("\"{}\"", self.steps[*on].label)).collect();
                    let has =
                        if labels.len() == 1 { ", which writes it, has none" } else { ", which write it, have none" };
                    problems.push(Problem::new(
                        name.line,
                        format!(
                            "\"{}\": \"{}\" has a task {index}, and {}{has}",
                            name.text,
                            step.label,
                            labels.join(" and ")
                        ),
                    ));
                    return;
                }
            }
        }
        let kind = if needed.len() == 1 { StepDependencyKind::AfterCorr } else { StepDependencyKind::AfterOk };
        needed.into_iter().for_each(|on| self.wait(on, kind, name));
    }

    /// Files by their names: each is written by a step, or is there.
    fn of_files(
        &mut self,
        name: &FileName,
        folder: &Path,
        written: &Written,
        exists: Exists<'_>,
        problems: &mut Vec<Problem>,
    ) {
        let step = &self.steps[self.at];
        let mut missing: Option<(PathBuf, u64)> = None;
        for (member, file) in (0..).zip(files(step, name, folder)) {
            match written.files.get(&file) {
                Some((on, ..)) if *on != self.at => self.wait(*on, StepDependencyKind::AfterOk, name),
                // What changes a file needs one that is there.
                Some((.., writer))
                    if !matches!(step.many, Many::One) && (!name.varies() || *writer != Some(member)) =>
                {
                    problems.push(Problem::new(
                        name.line,
                        format!(
                            "\"{}\" reads {}, which another step of \"{}\" writes: these do not wait for each other",
                            step.label,
                            file.display(),
                            step.label
                        ),
                    ));
                    return;
                }
                _ if exists(&file) => {}
                _ => missing.get_or_insert((file, 0)).1 += 1,
            }
        }
        let Some((file, how_many)) = missing.filter(|_| !written.is_open) else { return };
        let others = if how_many > 1 { format!(" (and {} more)", how_many - 1) } else { String::new() };
        let is_own = written.files.contains_key(&file);
        let who = if is_own { "no other step writes it" } else { "no step writes it" };
        problems.push(Problem::new(
            name.line,
            format!("\"{}\" reads {}{others}, which is not there, and {who}", step.label, file.display()),
        ));
    }
}

/// Names circles: steps that wait for each other, so that none of them would ever start.
fn circles(graph: &Graph, problems: &mut Vec<Problem>) {
    let mut gone = vec![false; graph.steps.len()];
    for _ in 0..MOST_CIRCLES {
        let levels = graph.levels_without(&gone);
        let stuck = |at: &usize| !gone[*at] && levels[*at].is_none();
        let Some(first) = (0..graph.steps.len()).find(stuck) else { return };
        // A step that is stuck waits for another one that is stuck, so a step is met twice sooner or later.
        let mut way: Vec<usize> = Vec::new();
        let mut met: HashMap<usize, usize> = HashMap::new();
        let mut at = first;
        let circle = loop {
            if let Some(begin) = met.insert(at, way.len()) {
                break way.split_off(begin);
            }
            way.push(at);
            let Some(next) = graph.waits[at].iter().map(|wait| wait.on).find(stuck) else { return };
            at = next;
        };
        circle.iter().for_each(|at| gone[*at] = true);
        let begin = (0..circle.len()).min_by_key(|n| circle[*n]).unwrap_or(0);
        let circle: Vec<usize> = circle.iter().cycle().skip(begin).take(circle.len()).copied().collect();
        let label = |at: usize| format!("\"{}\"", graph.steps[at].label);
        let mut said = Vec::new();
        for (n, at) in circle.iter().enumerate() {
            let next = circle[(n + 1) % circle.len()];
            let Some(wait) = graph.waits[*at].iter().find(|wait| wait.on == next) else { continue };
            let why = wait.file.as_ref().map(|file| format!(" to write {file}")).unwrap_or_default();
            said.push(format!("{} waits for {}{why} (line {})", label(*at), label(next), wait.line));
        }
        let line = graph.steps.get(circle[0]).map_or(1, |step| step.line);
        problems.push(Problem::new(
            line,
            format!("a circle, in which none could ever start: {}; take one of these out", said.join(", ")),
        ));
    }
}

impl Graph {
    /// By step: how many are before it on the longest way to it. `None`: it is in a circle or behind one.
    pub fn levels(&self) -> Vec<Option<u32>> {
        self.levels_without(&vec![false; self.steps.len()])
    }

    fn levels_without(&self, gone: &[bool]) -> Vec<Option<u32>> {
        let mut open: Vec<usize> = self.waits.iter().map(|w| w.iter().filter(|w| !gone[w.on]).count()).collect();
        let mut behind: Vec<Vec<usize>> = vec![Vec::new(); self.steps.len()];
        for (at, waits) in self.waits.iter().enumerate() {
            waits.iter().for_each(|wait| behind[wait.on].push(at));
        }
        let mut levels = vec![None; self.steps.len()];
        let mut ready: Vec<usize> = (0..self.steps.len()).filter(|at| open[*at] == 0 && !gone[*at]).collect();
        let mut level = 0;
        while !ready.is_empty() {
            let mut next = Vec::new();
            for at in ready {
                levels[at] = Some(level);
                for waiting in &behind[at] {
                    open[*waiting] -= 1;
                    if open[*waiting] == 0 && !gone[*waiting] {
                        next.push(*waiting);
                    }
                }
            }
            ready = next;
            level += 1;
        }
        levels
    }

    /// Places of the steps so that each stands behind all that it waits for, level by level, in the order of the file within
    /// one.
    pub fn in_order(&self) -> Vec<usize> {
        let levels = self.levels();
        let mut order: Vec<usize> = (0..self.steps.len()).filter(|at| levels[*at].is_some()).collect();
        order.sort_by_key(|at| (levels[*at], *at));
        order
    }

    /// The longest way through the graph, by steps.
    pub fn longest_way(&self) -> Vec<usize> {
        let levels = self.levels();
        let Some(mut at) = (0..self.steps.len()).rev().max_by_key(|at| levels[*at]) else { return Vec::new() };
        let mut way = vec![at];
        while let Some(before) = self.waits[at].iter().map(|wait| wait.on).max_by_key(|on| levels[*on]) {
            way.push(before);
            at = before;
        }
        way.reverse();
        way
    }

    /// How many steps there will be, tasks of arrays and combinations counted one by one.
    pub fn count(&self) -> u64 {
        self.steps.iter().map(Step::count).sum()
    }

    /// The level with the most steps, and how many.
    pub fn widest(&self) -> (u32, u64) {
        let mut wide: BTreeMap<u32, u64> = BTreeMap::new();
        for (step, level) in self.steps.iter().zip(self.levels()) {
            *wide.entry(level.unwrap_or(0)).or_default() += step.count();
        }
        wide.into_iter().rev().max_by_key(|(_, count)| *count).unwrap_or((0, 0))
    }

    /// The steps whose ends say whether all went well: not those that are there for a failure, nor what only runs after one of
    /// them ended well. A failure counts by itself.
    pub fn counting(&self) -> Vec<bool> {
        let mut counting = vec![true; self.steps.len()];
        for at in self.in_order() {
            counting[at] = self.waits[at].iter().all(|wait| match wait.kind {
                StepDependencyKind::AfterNotOk => false,
                StepDependencyKind::AfterOk | StepDependencyKind::AfterCorr => counting[wait.on],
                StepDependencyKind::After | StepDependencyKind::AfterAny => true,
            });
        }
        counting
    }
}

impl std::fmt::Display for Wait {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.file {
            Some(file) => write!(f, "{} by {file}", kind_word(self.kind)),
            None => f.write_str(kind_word(self.kind)),
        }
    }
}
