//! A watched step: reactions to messages of its step manager, and to the content of its files. Plain and synchronous.

use super::follow::Wanted;
use crate::submit::labels::Labels;
use garrick_model::{
    hostlist,
    ids::StepId,
    messages::{
        shepherd::Stream,
        step::{AttachedFile, CommandToStepMgr, StepLayout, StepMgrToCommand},
    },
    refusal::Refusal,
    state::{ExitStatus, StepState},
    step_selector::WhichSteps,
};
use std::{fmt::Write as _, path::PathBuf};

/// Whose output is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filters {
    /// Standard output of this task only.
    pub output: Option<u32>,
    /// Standard error of this task only.
    pub error: Option<u32>,
}

impl Filters {
    const fn takes(self, rank: u32, stream: Stream) -> bool {
        let only = match stream {
            Stream::Stdout => self.output,
            Stream::Stderr => self.error,
        };
        match only {
            Some(task) => task == rank,
            None => true,
        }
    }
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Write.
    Write(Stream, Vec<u8>),
    /// Print this, which is all that was asked for.
    Layout(String),
    /// Read these as they grow.
    Follow(Vec<Wanted>),
    /// Its tasks take input.
    TakeInput {
        /// Task zero has a terminal.
        terminal: bool,
    },
    /// They have taken so many bytes of it.
    Taken(u64),
    /// Say `sattach: text`.
    Info(String),
    /// Say `sattach: error: text`.
    Error(String),
    /// The step is over; this is the exit code.
    Ended(i32),
    /// Ask this, on a connection of its own.
    Ask(CommandToStepMgr),
    /// There is nothing to watch.
    GiveUp,
}

/// A conversation.
#[derive(Debug)]
pub struct Watched {
    step: StepId,
    filters: Filters,
    labels: Option<Labels>,
    layout_only: bool,
    /// The terminal of task zero is wanted.
    pty: bool,
    /// Input is for one task.
    to_one: bool,
    attached: bool,
    /// The connection broke after that.
    parted: bool,
}

impl Watched {
    /// Before anything was heard.
    pub fn new(step: StepId, filters: Filters, label: bool, layout_only: bool) -> Self {
        let labels = label.then(|| Labels::new(1, true));
        Self { step, filters, labels, layout_only, pty: false, to_one: false, attached: false, parted: false }
    }

    /// The terminal of task zero is wanted; or input is for one task.
    #[must_use]
    pub fn with_input(self, pty: bool, to_one: bool) -> Self {
        Self { pty, to_one, ..self }
    }

    /// The step manager says something.
    pub fn message(&mut self, message: StepMgrToCommand, out: &mut Vec<Effect>) {
        match message {
            // After the connection broke: what is followed goes on.
            StepMgrToCommand::Attached { .. } if self.parted => {}
            StepMgrToCommand::Attached { layout, files, input, pty } => {
                let terminal = self.pty && pty;
                if self.pty && !pty && !self.layout_only {
                    out.push(Effect::Error(format!("step {} has no pseudo terminal (srun --pty)", self.step)));
                    out.push(Effect::GiveUp);
                    return;
                }
                self.attached(&layout, files, out);
                if self.attached && input {
                    out.push(Effect::TakeInput { terminal });
                } else if self.attached && self.to_one {
                    out.push(Effect::Info(format!("step {} takes no input from commands", self.step)));
                }
            }
            StepMgrToCommand::StdinConsumed(bytes) => out.push(Effect::Taken(bytes)),
            StepMgrToCommand::Output { rank, stream, data } => self.output(rank, stream, &data, out),
            StepMgrToCommand::TaskFailed { rank, message, .. } => {
                out.push(Effect::Error(format!("{}: task {rank}: {message}", self.step)));
            }
            StepMgrToCommand::Terminating { message } if !message.is_empty() => out.push(Effect::Info(message)),
            StepMgrToCommand::Finished { exit, state } => {
                let code = i32::from(state != StepState::Completed || exit != ExitStatus::SUCCESS);
                out.push(Effect::Ended(code));
            }
            StepMgrToCommand::Drained { worst, .. } => out.push(Effect::Ended(i32::from(worst != ExitStatus::SUCCESS))),
            // It ended while nobody was there to say so: how, is told to those who wait for it.
            StepMgrToCommand::Refused(Refusal::AlreadyDone) if self.parted => {
                let steps = vec![WhichSteps::one(self.step.key())];
                out.push(Effect::Ask(CommandToStepMgr::Wait {
                    steps,
                    any: false,
                    progress_ms: 0,
                    groups: false,
                    stay: false,
                }));
            }
            StepMgrToCommand::Refused(refusal) => {
                let why = match refusal {
                    Refusal::JobPending => "it waits".to_owned(),
                    other => other.to_string(),
                };
                let what = if self.attached && !self.parted { "Lost" } else { "Unable to attach to" };
                out.push(Effect::Error(format!("{what} step {}: {why}", self.step)));
                out.push(Effect::GiveUp);
            }
            _ => {}
        }
    }

    /// The connection broke, and there is another.
    pub const fn parted(&mut self) {
        self.parted = self.attached;
    }

    /// The connection is gone before the step was over.
    pub fn lost(&mut self, cause: &str, out: &mut Vec<Effect>) {
        out.push(Effect::Error(format!("Lost contact with the step manager of step {}: {cause}", self.step)));
        out.push(if self.attached { Effect::Ended(1) } else { Effect::GiveUp });
    }

    /// A file held this; of which task is not known where tasks share it.
    pub fn followed(&mut self, rank: Option<u32>, stream: Stream, bytes: &[u8], out: &mut Vec<Effect>) {
        match rank {
            Some(rank) => self.output(rank, stream, bytes, out),
            None => out.push(Effect::Write(stream, bytes.to_vec())),
        }
    }

    /// Everything was read.
    pub fn finish(&mut self, out: &mut Vec<Effect>) {
        let Some(labels) = &mut self.labels else { return };
        for stream in [Stream::Stdout, Stream::Stderr] {
            let mut bytes = Vec::new();
            labels.finish(stream, &mut bytes);
            if !bytes.is_empty() {
                out.push(Effect::Write(stream, bytes));
            }
        }
    }

    fn output(&mut self, rank: u32, stream: Stream, data: &[u8], out: &mut Vec<Effect>) {
        if !self.filters.takes(rank, stream) {
            return;
        }
        let bytes = match &mut self.labels {
            Some(labels) => {
                let mut bytes = Vec::with_capacity(data.len() + 16);
                labels.label(rank, stream, data, &mut bytes);
                bytes
            }
            None => data.to_vec(),
        };
        if !bytes.is_empty() {
            out.push(Effect::Write(stream, bytes));
        }
    }

    fn attached(&mut self, layout: &StepLayout, files: Vec<AttachedFile>, out: &mut Vec<Effect>) {
        if self.layout_only {
            out.push(Effect::Layout(layout_text(layout)));
            return;
        }
        if let Some(labels) = &mut self.labels {
            labels.set_tasks(layout.ranks.iter().map(Vec::len).sum());
        }
        for (handed, name) in [(layout.handed[1], "standard output"), (layout.handed[2], "standard error")] {
            if handed {
                let text = format!("{name} of step {} goes straight to its srun and cannot be watched", self.step);
                out.push(if layout.handed[1] && layout.handed[2] { Effect::Error(text) } else { Effect::Info(text) });
            }
        }
        if layout.handed[1] && layout.handed[2] {
            out.push(Effect::GiveUp);
            return;
        }
        self.attached = true;
        let wanted = self.wanted(files);
        if self.labels.is_some() && wanted.iter().any(|w| !w.pack && w.rank.is_none()) {
            out.push(Effect::Info("tasks share a file: its lines have no labels".to_owned()));
        }
        if !wanted.is_empty() {
            out.push(Effect::Follow(wanted));
        }
    }

    /// Each file once. What is in it is shown as standard output where any of that goes there.
    fn wanted(&self, files: Vec<AttachedFile>) -> Vec<Wanted> {
        let mut wanted: Vec<Wanted> = Vec::new();
        for file in files.into_iter().filter(|f| self.filters.takes(f.rank, f.stream)) {
            let path = PathBuf::from(file.path);
            match wanted.iter_mut().find(|w| w.path == path && w.node == file.node) {
                Some(known) => {
                    if file.stream == Stream::Stdout {
                        known.stream = Stream::Stdout;
                    }
                    known.rank = known.rank.filter(|rank| *rank == file.rank);
                    if !known.ranks.contains(&file.rank) {
                        known.ranks.push(file.rank);
                    }
                }
                None => wanted.push(Wanted {
                    step: self.step,
                    path,
                    node: file.node,
                    pack: file.pack,
                    rank: Some(file.rank),
                    ranks: vec![file.rank],
                    stream: file.stream,
                }),
            }
        }
        // The same file on several nodes is one where they share a file system.
        let mut at = 0;
        while at < wanted.len() {
            let before = wanted[..at].iter().position(|w| !w.pack && w.path == wanted[at].path);
            match before {
                Some(first) => {
                    wanted[first].rank = None;
                    wanted.remove(at);
                }
                None => at += 1,
            }
        }
        wanted
    }
}

/// As `sattach --layout` prints it.
fn layout_text(layout: &StepLayout) -> String {
    let tasks: usize = layout.ranks.iter().map(Vec::len).sum();
    let nodes = hostlist::fold(&layout.nodes);
    let mut text = format!("Job step layout:\n  {tasks} tasks, {} nodes ({nodes})\n\n", layout.nodes.len());
    for ((number, node), ranks) in layout.nodes.iter().enumerate().zip(&layout.ranks) {
        let list: Vec<String> = ranks.iter().map(ToString::to_string).collect();
        let _ = writeln!(text, "  Node {number} ({node}), {} task(s): {}", ranks.len(), list.join(" "));
    }
    text
}

#[cfg(test)]
#[path = "watched_test.rs"]
mod tests;
