//! Messages about the ends of a step's tasks, in Slurm's words: `n1: tasks 0-1: Killed`. Tasks of a node that ended in the same
//! way share a line.

use garrick_model::{ids::StepId, messages::step::StepLayout, signal, state::ExitStatus};
use std::{
    collections::BTreeMap,
    fmt::{self, Write as _},
};

/// Exit code of a task that ran out of memory, reserved for that by srun(1).
const OUT_OF_MEMORY: i32 = 253;

/// How a task ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// By itself or by a signal.
    Status(ExitStatus),
    /// The kernel's out-of-memory killer ended it.
    OutOfMemory,
}

impl Ending {
    /// True for exit code 0.
    pub fn success(self) -> bool {
        matches!(self, Self::Status(status) if status.success())
    }

    /// What it adds to `srun`'s exit code.
    pub fn exit_code(self) -> i32 {
        match self {
            Self::Status(status) => status.shell_code(),
            Self::OutOfMemory => OUT_OF_MEMORY,
        }
    }

    /// As wait(2) tells it.
    pub fn wait_status(self) -> u32 {
        match self {
            Self::OutOfMemory => libc::SIGKILL.unsigned_abs(),
            Self::Status(status) => (u32::from(status.code) << 8) | u32::from(status.signal.unwrap_or(0)),
        }
    }

    /// A signal ended it.
    pub fn by_signal(self) -> bool {
        matches!(self, Self::OutOfMemory | Self::Status(ExitStatus { signal: Some(_), .. }))
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfMemory => f.write_str("Out Of Memory"),
            Self::Status(ExitStatus { signal: Some(number), .. }) => {
                f.write_str(&signal::signal_description(i32::from(*number)))
            }
            Self::Status(status) if status.success() => f.write_str("Completed"),
            Self::Status(status) => write!(f, "Exited with exit code {}", status.code),
        }
    }
}

/// A line about ended tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// `n1: tasks 0-1: Killed`
    pub text: String,
    /// All ended with 0: said only with `-v`.
    pub success: bool,
    /// How many.
    pub tasks: usize,
    /// As wait(2) tells how they ended.
    pub wait_status: u32,
}

/// The tasks of a step, as far as is known.
#[derive(Debug, Default)]
pub struct TaskReport {
    nodes: Vec<String>,
    node_of: BTreeMap<u32, usize>,
    ended: BTreeMap<u32, Ending>,
    unreported: Vec<u32>,
}

impl TaskReport {
    /// The step was laid out.
    pub fn set_layout(&mut self, layout: StepLayout) {
        self.nodes = layout.nodes;
        self.node_of = layout
            .ranks
            .into_iter()
            .enumerate()
            .flat_map(|(node, ranks)| ranks.into_iter().map(move |rank| (rank, node)))
            .collect();
    }

    /// Number of tasks, once laid out.
    pub fn tasks(&self) -> usize {
        self.node_of.len()
    }

    /// A task ended; false when that was known already.
    pub fn ended(&mut self, rank: u32, ending: Ending) -> bool {
        if self.ended.contains_key(&rank) {
            return false;
        }
        self.ended.insert(rank, ending);
        self.unreported.push(rank);
        true
    }

    /// Something is to be said.
    pub fn has_news(&self) -> bool {
        !self.unreported.is_empty()
    }

    /// Highest exit code so far.
    pub fn exit_code(&self) -> Option<i32> {
        self.ended.values().map(|e| e.exit_code()).max()
    }

    /// A task failed.
    pub fn any_failed(&self) -> bool {
        self.ended.values().any(|e| !e.success())
    }

    /// A signal ended a task.
    pub fn any_by_signal(&self) -> bool {
        self.ended.values().any(|e| e.by_signal())
    }

    /// Lines about the tasks that ended since the last call, by node and way of ending.
    pub fn news(&mut self) -> Vec<Line> {
        let mut groups: Vec<(Option<usize>, Ending, Vec<u32>)> = Vec::new();
        let mut ranks = std::mem::take(&mut self.unreported);
        ranks.sort_unstable();
        for rank in ranks {
            let Some(ending) = self.ended.get(&rank).copied() else { continue };
            let node = self.node_of.get(&rank).copied();
            match groups.iter_mut().find(|(n, e, _)| *n == node && *e == ending) {
                Some((_, _, ranks)) => ranks.push(rank),
                None => groups.push((node, ending, vec![rank])),
            }
        }
        groups.sort_by_key(|(node, _, ranks)| (*node, ranks[0]));
        groups
            .into_iter()
            .map(|(node, ending, ranks)| {
                let node = node.and_then(|n| self.nodes.get(n)).map_or("unknown node", String::as_str);
                let text = format!("{node}: {}: {ending}", task_list(&ranks));
                Line { text, success: ending.success(), tasks: ranks.len(), wait_status: ending.wait_status() }
            })
            .collect()
    }

    /// Lines for Ctrl-C: `StepId=5609.0 tasks 0-1: running`.
    pub fn status(&self, step: StepId) -> Vec<String> {
        let word = |rank: &u32| match self.ended.get(rank) {
            None => "running",
            Some(ending) if ending.success() => "exited",
            Some(_) => "exited abnormally",
        };
        let mut lines = Vec::new();
        for state in ["running", "exited", "exited abnormally"] {
            let ranks: Vec<u32> = self.node_of.keys().filter(|rank| word(rank) == state).copied().collect();
            if !ranks.is_empty() {
                lines.push(format!("StepId={step} {}: {state}", task_list(&ranks)));
            }
        }
        lines
    }
}

/// `task 3` or `tasks 0-1,3`, from ascending ranks.
fn task_list(ranks: &[u32]) -> String {
    format!("{} {}", if ranks.len() == 1 { "task" } else { "tasks" }, ranges(ranks))
}

/// `3` or `[0-1,3]`, from ascending ranks.
pub fn rank_list(ranks: &[u32]) -> String {
    if ranks.len() == 1 { ranges(ranks) } else { format!("[{}]", ranges(ranks)) }
}

/// `0-1,3`, from ascending ranks.
fn ranges(ranks: &[u32]) -> String {
    let mut text = String::new();
    for (i, run) in ranks.chunk_by(|a, b| a + 1 == *b).enumerate() {
        let comma = if i == 0 { "" } else { "," };
        let (first, last) = (run[0], run[run.len() - 1]);
        let _ = if first == last { write!(text, "{comma}{first}") } else { write!(text, "{comma}{first}-{last}") };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use garrick_model::ids::{JobId, StepNum};

    const fn exit(code: u8) -> Ending {
        Ending::Status(ExitStatus { code, signal: None })
    }

    const fn killed(signal: u8) -> Ending {
        Ending::Status(ExitStatus { code: 0, signal: Some(signal) })
    }

    fn report() -> TaskReport {
        let mut report = TaskReport::default();
        report.set_layout(StepLayout {
            nodes: vec!["n1".to_owned(), "n2".to_owned()],
            ranks: vec![vec![0, 1, 2], vec![3]],
            handed: [false; 3],
        });
        report
    }

    fn texts(report: &mut TaskReport) -> Vec<String> {
        report.news().into_iter().map(|l| l.text).collect()
    }

    #[test]
    fn a_single_task_is_named_alone() {
        let mut report = report();
        report.ended(3, exit(7));
        assert_eq!(texts(&mut report), ["n2: task 3: Exited with exit code 7"]);
        assert!(!report.has_news());
    }

    #[test]
    fn tasks_of_a_node_with_the_same_end_share_a_line() {
        let mut report = report();
        for rank in [1, 0, 3] {
            report.ended(rank, killed(9));
        }
        assert_eq!(texts(&mut report), ["n1: tasks 0-1: Killed", "n2: task 3: Killed"]);
    }

    #[test]
    fn different_ends_and_gaps_are_told_apart() {
        let mut report = report();
        report.ended(0, exit(1));
        report.ended(1, killed(11));
        report.ended(2, exit(1));
        assert_eq!(texts(&mut report), ["n1: tasks 0,2: Exited with exit code 1", "n1: task 1: Segmentation fault"]);
    }

    #[test]
    fn the_highest_exit_code_counts_and_signals_are_high() {
        let mut report = report();
        assert_eq!(report.exit_code(), None);
        report.ended(0, exit(3));
        report.ended(1, killed(9));
        assert_eq!(report.exit_code(), Some(137));
        report.ended(2, Ending::OutOfMemory);
        assert_eq!(report.exit_code(), Some(253));
        assert!(report.any_by_signal() && report.any_failed());
    }

    #[test]
    fn a_task_ends_once() {
        let mut report = report();
        assert!(report.ended(0, exit(2)));
        assert!(!report.ended(0, exit(0)));
        assert_eq!(report.exit_code(), Some(2));
    }

    #[test]
    fn status_lists_tasks_by_state() {
        let mut report = report();
        let step = StepId::new(JobId(5609), StepNum::Number(0));
        assert_eq!(report.status(step), ["StepId=5609.0 tasks 0-3: running"]);
        report.ended(1, exit(0));
        report.ended(3, exit(5));
        assert_eq!(
            report.status(step),
            [
                "StepId=5609.0 tasks 0,2: running",
                "StepId=5609.0 task 1: exited",
                "StepId=5609.0 task 3: exited abnormally"
            ]
        );
    }

    #[test]
    fn success_is_marked_as_such() {
        let mut report = report();
        report.ended(0, exit(0));
        let lines = report.news();
        assert_eq!((lines[0].text.as_str(), lines[0].success), ("n1: task 0: Completed", true));
    }
}
