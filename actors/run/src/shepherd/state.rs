//! Steps and tasks on this node.

use crate::shepherd::{pmi::PmiHere, task_scripts::Epilogs};
use garrick_model::{
    ids::StepId,
    messages::shepherd::{OUTPUT_WINDOW, StepLaunch, StepNodeShare, StepStart, Stream, TaskLaunch},
    spec::EnvEntry,
    state::ExitStatus,
    usage::TaskUsage,
};
use serde_bytes::ByteBuf;
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

/// The phase of a shepherd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShepherdPhase {
    /// Launches and reports.
    Serving,
    /// Everything is being killed.
    Sweeping,
    /// No task is left; it waits for the last ends.
    Counting,
    /// All is reported; the launcher writes its buffers and ends.
    Leaving,
    /// Nothing of the job is left.
    Gone,
}

/// A step here.
#[derive(Debug)]
pub struct StepHere {
    /// The step.
    pub id: StepId,
    /// Number of earlier tries.
    pub attempt: u32,
    /// What it shares with other steps.
    pub launch: Arc<StepLaunch>,
    /// Variables shared by steps with the same layout.
    pub env: Arc<Vec<EnvEntry>>,
    /// Variables of this step alone.
    pub own_env: Vec<EnvEntry>,
    /// Its share here.
    pub share: StepNodeShare,
    /// The step after whose end it is spawned.
    pub after: Option<StepId>,
    /// Rank and token of its tasks that were handed to the launcher.
    pub running: Vec<(u32, u64)>,
    /// Number of tasks that are not over.
    pub tasks_left: u32,
    /// It has one task here.
    pub alone: bool,
    /// Number of its tasks here.
    pub tasks_here: u32,
    /// Tasks to spawn when it is prepared.
    pub unspawned: Vec<TaskLaunch>,
    /// Path of its script.
    pub script: Option<String>,
    /// Files that one of its tasks has truncated already.
    pub opened: BTreeSet<String>,
    /// Where notes go: the error file of its first task here.
    pub error_path: Option<String>,
    /// Bytes of output that may still be sent; below zero after a large read.
    pub credit: i64,
    /// Streams that wait for credit.
    pub paused: BTreeSet<(u64, u8)>,
    /// Process groups of ended tasks that still have members; they are killed at the end.
    pub groups: Vec<u32>,
    /// It is being ended.
    pub ending: bool,
    /// Its cgroup is being swept.
    pub sweeping: bool,
    /// Input for its tasks.
    pub input: StepStdin,
    /// What its tasks told each other over PMI.
    pub pmi: Option<Box<PmiHere>>,
}

impl StepHere {
    /// A step whose tasks are not spawned yet.
    pub fn new(launch: Arc<StepLaunch>, start: StepStart) -> Self {
        Self {
            pmi: PmiHere::of(&start, launch.mpi),
            id: start.step,
            attempt: start.attempt,
            tasks_left: start.tasks.len() as u32,
            alone: start.tasks.len() == 1,
            tasks_here: u32::try_from(start.tasks.len()).unwrap_or(u32::MAX),
            unspawned: start.tasks,
            launch,
            env: start.env,
            own_env: start.own_env,
            share: start.share,
            after: start.after,
            running: Vec::new(),
            script: None,
            opened: BTreeSet::new(),
            error_path: None,
            credit: OUTPUT_WINDOW as i64,
            paused: BTreeSet::new(),
            groups: Vec::new(),
            ending: false,
            sweeping: false,
            input: StepStdin::default(),
        }
    }

    /// The token of a rank's task.
    pub fn token(&self, rank: u32) -> Option<u64> {
        self.running.iter().find(|(r, _)| *r == rank).map(|(_, token)| *token)
    }

    /// A task is over.
    pub fn forget(&mut self, token: u64) {
        if let Some(at) = self.running.iter().position(|(_, t)| *t == token) {
            self.running.remove(at);
        }
    }
}

/// Input of a step for its tasks, each at its own pace. Chunks that all have taken are dropped and reported.
#[derive(Debug, Default)]
pub struct StepStdin {
    /// Chunks, and the one reader that they are for (`None`: all); an empty one ends the input.
    chunks: VecDeque<(ByteBuf, Option<u64>)>,
    /// Number of the first chunk kept.
    first: u64,
    /// Next chunk, and whether a write is in progress, by token.
    readers: BTreeMap<u64, (u64, bool)>,
}

/// The next action for a task's input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextInput {
    /// Nothing, or a write is in progress.
    Wait,
    /// Write this.
    Write(ByteBuf),
    /// End it.
    End,
}

impl StepStdin {
    /// Adds a task that takes input.
    pub fn add_reader(&mut self, token: u64) {
        self.readers.insert(token, (self.first, false));
        self.pass_over(token);
    }

    /// Removes a task that takes no more input. Returns the bytes that are dropped because of it.
    pub fn remove_reader(&mut self, token: u64) -> u64 {
        if self.readers.remove(&token).is_some() { self.trim() } else { 0 }
    }

    /// Adds input, for all tasks or one. Returns the tasks that may take it.
    pub fn push(&mut self, data: ByteBuf, only: Option<u64>) -> Vec<u64> {
        self.chunks.push_back((data, only));
        let free: Vec<u64> = self.readers.iter().filter(|(_, (_, busy))| !busy).map(|(t, _)| *t).collect();
        free.iter().for_each(|token| self.pass_over(*token));
        free
    }

    /// What comes next and is for others only is not for this task.
    fn pass_over(&mut self, token: u64) {
        let Some((at, _)) = self.readers.get_mut(&token) else { return };
        let is_others = |place: u64| {
            self.chunks.get(place as usize).is_some_and(|(_, only)| only.is_some_and(|only| only != token))
        };
        while is_others(*at - self.first) {
            *at += 1;
        }
    }

    /// The next input for a task.
    pub fn next(&mut self, token: u64) -> NextInput {
        let Some((at, busy)) = self.readers.get_mut(&token) else { return NextInput::Wait };
        if *busy {
            return NextInput::Wait;
        }
        match self.chunks.get((*at - self.first) as usize) {
            None => NextInput::Wait,
            Some((chunk, _)) if chunk.is_empty() => {
                self.readers.remove(&token);
                NextInput::End
            }
            Some((chunk, _)) => {
                *busy = true;
                NextInput::Write(chunk.clone())
            }
        }
    }

    /// A write is done. Returns the bytes that all have taken now.
    pub fn written(&mut self, token: u64) -> u64 {
        if let Some((at, busy)) = self.readers.get_mut(&token) {
            *at += 1;
            *busy = false;
        }
        self.pass_over(token);
        self.trim()
    }

    /// Drops the bytes that all have taken, or that no task will take. Returns their number.
    pub fn trim(&mut self) -> u64 {
        let end = self.first + self.chunks.len() as u64;
        let least = self.readers.values().map(|(at, _)| *at).min().unwrap_or(end);
        let mut bytes = 0;
        while self.first < least {
            bytes += self.chunks.pop_front().map_or(0, |(chunk, _)| chunk.len() as u64);
            self.first += 1;
        }
        bytes
    }
}

/// An output stream that is relayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamState {
    /// Not relayed, or at its end.
    Closed,
    /// The task does not run yet.
    Idle,
    /// A read is in progress.
    Reading,
    /// Waits for credit.
    Paused,
}

/// A task here.
#[derive(Debug)]
pub struct TaskHere {
    /// Its step.
    pub step: StepId,
    /// Its rank there.
    pub rank: u32,
    /// Its phase.
    pub phase: TaskPhase,
    /// Standard output and error.
    pub streams: [StreamState; 2],
    /// Whether output was relayed from them.
    pub spoke: [bool; 2],
    /// The file that its standard error goes to, for messages to its user.
    pub error_path: Option<String>,
    /// What runs after it.
    pub epilogs: Option<Box<Epilogs>>,
    /// What was seen of its use while it ran.
    pub seen: Option<Box<TaskUsage>>,
    /// The energy of its step is known.
    pub metered: bool,
}

/// The phase of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskPhase {
    /// With the launcher; if only the end of a task is needed, for as long as it runs.
    Launched,
    /// Runs.
    Running {
        /// Process.
        pid: u32,
    },
    /// Ended; its streams are not all at their end, or the cause of its death is not known yet.
    Ended {
        /// Its end.
        exit: Exit,
        /// Out of memory; `None`: not known yet.
        oom: Option<bool>,
    },
}

/// How a task's process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exit {
    /// Process id.
    pub pid: u32,
    /// Exit status.
    pub status: ExitStatus,
    /// Resource usage.
    pub usage: TaskUsage,
    /// Its process group still has members.
    pub survivors: bool,
}

/// Index of a stream in a task's pair.
pub const fn stream_index(stream: Stream) -> usize {
    match stream {
        Stream::Stdout => 0,
        Stream::Stderr => 1,
    }
}

/// The stream at an index.
pub const fn stream_at(index: usize) -> Stream {
    if index == 0 { Stream::Stdout } else { Stream::Stderr }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stepmgr::builders::bytes;

    #[test]
    fn input_for_one_task_is_passed_over_by_the_others_and_dropped_when_that_one_took_it() {
        let mut input = StepStdin::default();
        input.add_reader(1);
        input.add_reader(2);
        input.push(bytes("one"), Some(1));
        input.push(bytes("all"), None);
        assert_eq!(input.next(2), NextInput::Write(bytes("all")));
        input.push(bytes("two"), Some(2));
        assert_eq!(input.next(1), NextInput::Write(bytes("one")));
        assert_eq!(input.written(1), 3);
        assert_eq!(input.next(1), NextInput::Write(bytes("all")));
        assert_eq!(input.written(1), 0, "the other one has it still");
        assert_eq!(input.next(1), NextInput::Wait);
        assert_eq!(input.written(2), 3);
        assert_eq!(input.next(2), NextInput::Write(bytes("two")));
        assert_eq!(input.written(2), 3);
        // Nobody's.
        input.push(bytes("none"), Some(9));
        assert_eq!(input.trim(), 4);
    }

    #[test]
    fn a_task_that_comes_later_is_not_given_what_is_for_another() {
        let mut input = StepStdin::default();
        input.add_reader(1);
        input.push(bytes("one"), Some(1));
        input.push(bytes("all"), None);
        input.add_reader(2);
        assert_eq!(input.next(2), NextInput::Write(bytes("all")));
        assert_eq!(input.next(1), NextInput::Write(bytes("one")));
    }

    #[test]
    fn input_reaches_each_task_at_its_own_pace_and_is_dropped_when_all_took_it() {
        let mut input = StepStdin::default();
        input.add_reader(1);
        input.add_reader(2);
        assert_eq!(input.push(bytes("abc"), None), [1, 2]);
        assert_eq!(input.next(1), NextInput::Write(bytes("abc")));
        assert_eq!(input.next(1), NextInput::Wait);
        assert_eq!(input.written(1), 0);
        assert_eq!(input.push(bytes(""), None), [1, 2]);
        assert_eq!(input.next(1), NextInput::End);
        assert_eq!(input.next(2), NextInput::Write(bytes("abc")));
        assert_eq!(input.written(2), 3);
        assert_eq!(input.next(2), NextInput::End);
    }

    #[test]
    fn a_task_that_stops_reading_does_not_hold_the_others() {
        let mut input = StepStdin::default();
        input.add_reader(1);
        input.add_reader(2);
        input.push(bytes("abcd"), None);
        assert_eq!(input.next(1), NextInput::Write(bytes("abcd")));
        assert_eq!(input.written(1), 0);
        assert_eq!(input.remove_reader(2), 4);
    }
}
