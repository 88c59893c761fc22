//! Where descriptors 0, 1 and 2 of a task go: relay pipes, files by pattern, a terminal, descriptors of its `srun`, `/dev/null`.
//! Pure.

use crate::shepherd::{
    messages::PassedFd,
    state::{StepHere, StreamState},
};
use garrick_model::{
    messages::{
        launcher::{FdSource, FileMode},
        shepherd::{StepLaunch, Stream, TaskLaunch},
    },
    patterns::{PatternFacts, fill, in_folder},
    spec::{OpenMode, StdinTo, StreamTarget},
};

/// A task's standard files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StdioPlan {
    /// Descriptors 0, 1, 2.
    pub sources: [FdSource; 3],
    /// What is passed, in order.
    pub passed: Vec<PassedFd>,
    /// All three are a terminal.
    pub pty: bool,
    /// Relayed output.
    pub streams: [StreamState; 2],
    /// Takes relayed input.
    pub input: bool,
    /// The output pack that it writes to.
    pub pack: Option<String>,
    /// The file behind descriptor 2, if it is one.
    pub error_path: Option<String>,
}

/// Where files are written.
#[derive(Clone, Copy, Debug)]
pub struct NodePlace<'a> {
    /// The node's name.
    pub node: &'a str,
    /// The job has other nodes too.
    pub several: bool,
}

/// Plans a task's standard files; truncated files are added to `step.opened`.
pub fn plan(step: &mut StepHere, place: NodePlace<'_>, task: &TaskLaunch, token: u64) -> StdioPlan {
    let node = place.node;
    let launch = step.launch.clone();
    let takes_input = match (&launch.stdin, launch.stdin_to) {
        (StreamTarget::Relay, StdinTo::All) => true,
        (StreamTarget::Relay, StdinTo::Task(rank)) => rank == task.rank,
        _ => false,
    };
    if let (Some((rows, cols)), 0) = (launch.pty, task.rank) {
        return StdioPlan {
            sources: [FdSource::Passed(0), FdSource::Passed(0), FdSource::Passed(0)],
            passed: vec![PassedFd::Terminal { token, rows, cols }],
            pty: true,
            streams: [StreamState::Idle, StreamState::Closed],
            input: true,
            pack: None,
            error_path: None,
        };
    }
    let pack = pack_path(step, place);
    let mut passed = Vec::new();
    let stdin = match &launch.stdin {
        StreamTarget::Relay if takes_input => pass(&mut passed, PassedFd::Input { token }),
        StreamTarget::File(pattern) => {
            let path = path_of(pattern, step, node, task.rank);
            if path == "/dev/null" { FdSource::Null } else { FdSource::File { path, mode: FileMode::Read } }
        }
        StreamTarget::Handed => pass(&mut passed, PassedFd::Handed { step: step.id, fd: 0 }),
        _ => FdSource::Null,
    };
    let mut streams = [StreamState::Closed; 2];
    let mut out_path = None;
    let stdout = match &launch.stdout {
        StreamTarget::Relay => {
            streams[0] = StreamState::Idle;
            pass(&mut passed, PassedFd::Output { token, stream: Stream::Stdout })
        }
        StreamTarget::File(pattern) => {
            let source = output_file(step, pattern, node, task.rank);
            out_path = path_in(&source);
            source
        }
        StreamTarget::Handed => pass(&mut passed, PassedFd::Handed { step: step.id, fd: 1 }),
        StreamTarget::Pack if pack.is_some() => FdSource::Pack,
        StreamTarget::Null | StreamTarget::SameAsStdout | StreamTarget::Pack => FdSource::Null,
    };
    let mut error_path = None;
    let stderr = match &launch.stderr {
        StreamTarget::Relay => {
            streams[1] = StreamState::Idle;
            pass(&mut passed, PassedFd::Output { token, stream: Stream::Stderr })
        }
        StreamTarget::File(pattern) => {
            let path = path_of(pattern, step, node, task.rank);
            // One open file for both, or the second would truncate what the first wrote.
            if Some(&path) == out_path.as_ref() {
                error_path = Some(path);
                FdSource::SameAsStdout
            } else {
                let source = output_file(step, pattern, node, task.rank);
                error_path = path_in(&source);
                source
            }
        }
        StreamTarget::SameAsStdout => {
            error_path = out_path;
            FdSource::SameAsStdout
        }
        StreamTarget::Handed => pass(&mut passed, PassedFd::Handed { step: step.id, fd: 2 }),
        StreamTarget::Pack if pack.is_some() => FdSource::Pack,
        StreamTarget::Null | StreamTarget::Pack => FdSource::Null,
    };
    StdioPlan { sources: [stdin, stdout, stderr], passed, pty: false, streams, input: takes_input, pack, error_path }
}

fn pass(passed: &mut Vec<PassedFd>, fd: PassedFd) -> FdSource {
    passed.push(fd);
    FdSource::Passed(passed.len() as u8 - 1)
}

fn path_in(source: &FdSource) -> Option<String> {
    match source {
        FdSource::File { path, .. } => Some(path.clone()),
        _ => None,
    }
}

/// An output file. The first task of a step that opens it truncates it if requested; all others append. On a node other than the
/// step's first, a file whose name contains neither node nor task is also opened by the first node's task (on a shared file
/// system), so here it is only appended to.
fn output_file(step: &mut StepHere, pattern: &str, node: &str, rank: u32) -> FdSource {
    let path = path_of(pattern, step, node, rank);
    if path == "/dev/null" {
        return FdSource::Null;
    }
    let shared = step.share.node_id > 0 && !tells_nodes_apart(pattern);
    // No task comes after the only one.
    let first = step.alone || step.opened.insert(path.clone());
    let mode = match step.launch.open_mode {
        OpenMode::Append => FileMode::Append,
        OpenMode::Default | OpenMode::Truncate if first && !shared => FileMode::Truncate,
        OpenMode::Default | OpenMode::Truncate => FileMode::Append,
    };
    FdSource::File { path, mode }
}

/// The file of a step's output pack on this node, if the step has one. A pack has one writer, so if the job has several nodes and
/// the pattern names none (`%N`, `%n`), the node's name is appended as `.%N` would: `FILE.NODE`. It belongs to no task: `%t`
/// stays as it is.
fn pack_path(step: &StepHere, place: NodePlace<'_>) -> Option<String> {
    let launch = &step.launch;
    let pattern = launch.output_pack.as_deref()?;
    if launch.stdout != StreamTarget::Pack && launch.stderr != StreamTarget::Pack {
        return None;
    }
    let path = filled(pattern, step, place.node, None);
    if place.several && !names(pattern, &['n', 'N']) {
        let short = place.node.split('.').next().unwrap_or(place.node);
        return Some(format!("{path}.{short}"));
    }
    Some(path)
}

/// Whether tasks on different nodes write to one file, which the step's first task truncates.
pub fn one_file_for_all(launch: &StepLaunch) -> bool {
    let shared = |target: &StreamTarget| matches!(target, StreamTarget::File(pattern) if pattern != "/dev/null" && !tells_nodes_apart(pattern));
    launch.open_mode != OpenMode::Append && (shared(&launch.stdout) || shared(&launch.stderr))
}

fn tells_nodes_apart(pattern: &str) -> bool {
    names(pattern, &['t', 'n', 'N'])
}

fn names(pattern: &str, symbols: &[char]) -> bool {
    // A backslash turns replacement off.
    if pattern.contains('\\') {
        return false;
    }
    let mut rest = pattern;
    while let Some(at) = rest.find('%') {
        let symbol = rest[at + 1..].trim_start_matches(|c: char| c.is_ascii_digit());
        if symbol.starts_with(symbols) {
            return true;
        }
        // Skip the symbol, so that `%%t` names no task.
        rest = symbol.get(symbol.chars().next().map_or(0, char::len_utf8)..).unwrap_or("");
    }
    false
}

fn path_of(pattern: &str, step: &StepHere, node: &str, rank: u32) -> String {
    filled(pattern, step, node, Some(rank))
}

fn filled(pattern: &str, step: &StepHere, node: &str, task: Option<u32>) -> String {
    let launch = &step.launch;
    let facts = PatternFacts {
        job: step.id.job,
        array_task: launch.array_task,
        step: Some(step.id.key()),
        node: Some(node),
        node_id: Some(step.share.node_id),
        task,
        user: &launch.user,
        job_name: &launch.job_name,
    };
    in_folder(fill(pattern, &facts), &launch.work_dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_that_name_tasks_or_nodes_are_told_from_those_that_do_not() {
        assert!(tells_nodes_apart("out.%t") && tells_nodes_apart("a%5N.x") && tells_nodes_apart("%j-%n"));
        assert!(!tells_nodes_apart("out.%j") && !tells_nodes_apart("%%t") && !tells_nodes_apart("plain"));
    }
}
