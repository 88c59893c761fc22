//! Decides the life of one running step: hands its tasks to their nodes, counts their ends, applies `-K`, `-W` and the step's own
//! limit, ends it when told to, and relays output and input within their grants. The step manager decides where the step runs,
//! when, and what happens to its resources; it calls this through the step's actor.

use crate::{
    pmi,
    shepherd::stdio::one_file_for_all,
    step::{
        messages::{NodeSlot, StepEffect, StepInput, StepPlan, StepTimer, Watcher},
        notice,
        relay::{Frame, InputRelay, OutputRelay},
        state::{TaskState, state_of_exit, worse},
    },
};
use garrick_events::steps::end::{StepEnd, StepResult};
use garrick_model::{
    messages::{
        shepherd::{LaunchRef, ShepherdToStepMgr, SignalReach, StepMgrToShepherd, StepStart, Stream, TaskEnd},
        step::{CommandToStepMgr, StepLayout, StepMgrToCommand},
    },
    refusal::Refusal,
    signal::{SIGKILL, SIGTERM},
    spec::{StdinTo, StreamTarget},
    state::{ExitStatus, StepState},
    time::Timestamp,
    usage::StepUsage,
};
use serde_bytes::ByteBuf;
use std::{collections::BTreeMap, sync::Arc};

/// Exit status of a task whose end was not seen: its node was lost, or its shepherd could not tell.
const UNKNOWN_EXIT: ExitStatus = ExitStatus { code: 0, signal: Some(9) };

/// The phase of a step.
#[derive(Clone, Debug, PartialEq)]
enum Phase {
    /// Not begun.
    Ready,
    /// Tasks run.
    Running,
    /// Told to end, for this reason; `killed`: SIGKILL was sent.
    Ending { cause: StepEnd, killed: bool },
    /// Over.
    Over,
}

/// One node's part.
#[derive(Debug)]
struct NodePart {
    slot: NodeSlot,
    tasks_left: u32,
    gone: bool,
}

/// The core of a running step.
#[derive(Debug)]
pub struct StepCore {
    plan: StepPlan,
    phase: Phase,
    tasks: Vec<TaskState>,
    /// Index in `nodes`, by rank.
    node_of: Vec<usize>,
    nodes: Vec<NodePart>,
    slots: BTreeMap<NodeSlot, usize>,
    tasks_left: u32,
    any_over: bool,
    exit: ExitStatus,
    oom: bool,
    /// The end of a task was not seen.
    unknown: bool,
    usage: StepUsage,
    /// Why the first task that could not be started was not started.
    detail: Option<String>,
    /// The first signal sent to it that is to end it.
    signalled: Option<u8>,
    output: OutputRelay,
    input: InputRelay,
    attended: bool,
    held: Option<Held>,
    /// The fence that some nodes have come to.
    fence: Option<OpenFence>,
    /// The last fence that all have passed.
    passed: Option<u32>,
}

/// A fence of an MPI program that some nodes have come to.
#[derive(Debug)]
struct OpenFence {
    number: u32,
    /// What the tasks of each told.
    come: BTreeMap<NodeSlot, Vec<(String, String)>>,
    /// Bytes of that.
    bytes: usize,
}

/// Messages to nodes that wait until the step's first task has opened its files: a file that several nodes write is truncated
/// before any other task opens it.
#[derive(Debug)]
struct Held {
    first: NodeSlot,
    rank: u32,
    waiting: Vec<StepEffect>,
}

impl StepCore {
    /// A step that has been placed. Nothing happens before `Begin` or `Resume`.
    pub fn new(plan: StepPlan) -> Self {
        let total: usize = plan.nodes.iter().map(|node| node.tasks.len()).sum();
        let mut node_of = vec![0; total];
        let mut nodes = Vec::with_capacity(plan.nodes.len());
        let mut slots = BTreeMap::new();
        for (at, node) in plan.nodes.iter().enumerate() {
            for task in &node.tasks {
                node_of[(task.rank - plan.first_rank) as usize] = at;
            }
            slots.insert(node.slot, at);
            nodes.push(NodePart { slot: node.slot, tasks_left: node.tasks.len() as u32, gone: false });
        }
        let input = match (&plan.launch.stdin, plan.launch.stdin_to) {
            (StreamTarget::Relay, StdinTo::All) => plan.nodes.iter().map(|n| n.slot).collect(),
            (StreamTarget::Relay, StdinTo::Task(rank)) => {
                let own = rank.checked_sub(plan.first_rank);
                own.and_then(|own| node_of.get(own as usize)).map(|at| nodes[*at].slot).into_iter().collect()
            }
            _ => Vec::new(),
        };
        Self {
            phase: Phase::Ready,
            tasks: vec![TaskState::Launching; total],
            output: OutputRelay::new(nodes.len()),
            input: InputRelay::new(input),
            tasks_left: total as u32,
            any_over: false,
            exit: ExitStatus::SUCCESS,
            oom: false,
            unknown: false,
            usage: StepUsage::new(total),
            detail: None,
            signalled: None,
            attended: plan.attended,
            held: None,
            fence: None,
            passed: None,
            node_of,
            nodes,
            slots,
            plan,
        }
    }

    /// The plan that it was made from.
    pub const fn plan(&self) -> &StepPlan {
        &self.plan
    }

    /// True after `Over` was sent.
    pub fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    /// Handles one input and appends its effects.
    pub fn handle(&mut self, now: Timestamp, input: StepInput, out: &mut Vec<StepEffect>) {
        if self.phase == Phase::Over {
            return;
        }
        match input {
            StepInput::Begin if self.plan.awaits_others => self.say_placed(out),
            StepInput::Begin => self.begin(out),
            StepInput::StartPart { plan } => self.start_part(*plan, out),
            StepInput::Resume { live } => self.resume(&live, out),
            StepInput::Shepherd { node, message } => self.on_shepherd(now, node, message, out),
            StepInput::NodeLost { node } => self.node_lost(now, node, out),
            StepInput::Client(message) => self.on_client(now, message, out),
            StepInput::Attached { watcher, rank, data } if !data.is_empty() => {
                self.attached_input(watcher, rank, data, out);
            }
            StepInput::Attached { .. } => {}
            StepInput::ClientGone => {
                self.attended = false;
                self.output.open();
                self.pass_output(out);
                self.end(now, StepEnd::ClientGone, false, out);
            }
            StepInput::End(cause) => self.end(now, cause, false, out),
            StepInput::Kill(cause) => self.end(now, cause, true, out),
            StepInput::Signal { signal, reach } => self.signal(signal, reach, out),
            StepInput::SetLimit(after) => {
                self.plan.time_limit = after;
                if let Some(after) = after {
                    out.push(StepEffect::SetTimer { timer: StepTimer::Limit, after });
                }
            }
            StepInput::Notice(text) => self.to_client(StepMgrToCommand::Notice(text), out),
            // Of a limit that it no longer has.
            StepInput::Timer(StepTimer::Limit) if self.plan.time_limit.is_none() => {}
            StepInput::Timer(StepTimer::Limit) => self.end(now, StepEnd::TimeLimit, false, out),
            StepInput::Timer(StepTimer::Wait) => self.end(now, StepEnd::WaitOver, false, out),
            StepInput::Timer(StepTimer::Backlog) => {}
        }
        let opened = |held: &Held| self.index(held.rank).is_none_or(|own| self.tasks[own] != TaskState::Launching);
        if self.held.as_ref().is_some_and(opened) {
            self.let_others_begin(out);
        }
        if self.phase != Phase::Over && self.nodes.iter().all(|n| n.gone) {
            self.over(out);
        }
    }

    /// The index of a rank in `tasks` and `node_of`.
    fn index(&self, rank: u32) -> Option<usize> {
        let own = rank.checked_sub(self.plan.first_rank)? as usize;
        (own < self.tasks.len()).then_some(own)
    }

    fn is_on(&self, node: NodeSlot, rank: u32) -> bool {
        let at = self.slots.get(&node);
        at.is_some() && self.index(rank).map(|own| &self.node_of[own]) == at
    }

    fn layout(&self) -> StepLayout {
        StepLayout {
            nodes: self.plan.nodes.iter().map(|n| n.name.clone()).collect(),
            ranks: self.plan.nodes.iter().map(|n| n.tasks.iter().map(|t| t.rank).collect()).collect(),
            handed: self.plan.handed(),
        }
    }

    /// Reports the placement. Nothing is started: an end now leaves no trace.
    fn say_placed(&self, out: &mut Vec<StepEffect>) {
        if self.phase == Phase::Ready {
            self.to_client(StepMgrToCommand::Placed(self.layout()), out);
        }
    }

    fn start_part(&mut self, plan: StepPlan, out: &mut Vec<StepEffect>) {
        if self.phase == Phase::Ready && plan.nodes.len() == self.nodes.len() {
            self.plan = plan;
            self.begin(out);
        }
    }

    fn begin(&mut self, out: &mut Vec<StepEffect>) {
        if self.phase != Phase::Ready {
            return;
        }
        self.phase = Phase::Running;
        // If a launch does not report starts, nothing would tell that its files are open.
        let launch = &self.plan.launch;
        if let [first, _, ..] = &self.plan.nodes[..]
            && let Some(task) = first.tasks.first()
            && first.share.node_id == 0
            && !launch.unattended
            && one_file_for_all(launch)
        {
            self.held = Some(Held { first: first.slot, rank: task.rank, waiting: Vec::new() });
        }
        let mapping = (!self.plan.launch.mpi.is_none()).then(|| self.mapping());
        for at in 0..self.plan.nodes.len() {
            let node = &self.plan.nodes[at];
            let start = StepStart {
                step: self.plan.id,
                attempt: self.plan.attempt,
                launch: LaunchRef::Whole(self.plan.launch.clone()),
                env: self.plan.env.clone(),
                own_env: self.plan.own_env.clone(),
                share: node.share.clone(),
                tasks: node.tasks.clone(),
                after: self.plan.after,
                mapping: mapping.clone(),
            };
            self.to_shepherd(node.slot, StepMgrToShepherd::Launch(Box::new(start)), out);
        }
        if self.attended {
            out.push(StepEffect::ToClient(StepMgrToCommand::Started(self.layout())));
        } else {
            self.output.open();
        }
        if let Some(after) = self.plan.time_limit {
            out.push(StepEffect::SetTimer { timer: StepTimer::Limit, after });
        }
    }

    /// Where its tasks are, in PMI's form.
    fn mapping(&self) -> String {
        let nodes: Vec<u32> = self.node_of.iter().map(|at| *at as u32).collect();
        pmi::mapping(&nodes)
    }

    /// The tasks of a node have come to a fence. When those of all nodes have, all get what was told.
    fn come_to_fence(
        &mut self,
        now: Timestamp,
        node: NodeSlot,
        fence: u32,
        puts: Vec<(String, String)>,
        out: &mut Vec<StepEffect>,
    ) {
        // What was passed is repeated by a shepherd that was out of reach meanwhile.
        let is_passed = self.passed.is_some_and(|passed| fence <= passed);
        if is_passed || self.phase != Phase::Running || !self.slots.contains_key(&node) {
            return;
        }
        let step = self.plan.id;
        let open = self.fence.get_or_insert_with(|| OpenFence { number: fence, come: BTreeMap::new(), bytes: 0 });
        if open.number != fence {
            // Some nodes passed a fence just as the step manager before this one ended, and what was told there is lost.
            let text = format!("STEP {step} ABORTED: its step manager ended in an exchange over PMI");
            return self.end_with(now, node, self.plan.first_rank, &text, out);
        }
        open.bytes += pmi::bytes_of(&puts);
        if let Some(before) = open.come.insert(node, puts) {
            open.bytes -= pmi::bytes_of(&before);
        }
        if open.bytes > pmi::MOST_FENCED {
            let why = format!("its tasks tell each other more than {} bytes at once", pmi::MOST_FENCED);
            return self.end_with(now, node, self.plan.first_rank, &format!("STEP {step} ABORTED: {why}"), out);
        }
        let Some(full) = self.fence.take_if(|open| open.come.len() == self.nodes.len()) else { return };
        self.passed = Some(fence);
        let puts: Vec<(String, String)> = full.come.into_values().flatten().collect();
        let puts = Arc::new(puts);
        for at in 0..self.nodes.len() {
            let message = StepMgrToShepherd::PmiFenced { step, fence, puts: Arc::clone(&puts) };
            self.to_shepherd(self.nodes[at].slot, message, out);
        }
    }

    /// A task that uses PMI wants the step to end.
    fn aborted(&mut self, now: Timestamp, node: NodeSlot, rank: u32, why: &str, out: &mut Vec<StepEffect>) {
        if !self.is_on(node, rank) || self.phase != Phase::Running {
            return;
        }
        let text = format!("STEP {} ABORTED BY TASK {rank}: {why}", self.plan.id);
        self.end_with(now, node, rank, &text, out);
    }

    /// Ends the step, and says why where a task's errors go.
    fn end_with(&mut self, now: Timestamp, node: NodeSlot, rank: u32, text: &str, out: &mut Vec<StepEffect>) {
        let (step, text) = (self.plan.id, notice::error_line(text));
        match self.plan.launch.stderr {
            StreamTarget::Relay => {
                let data = ByteBuf::from(format!("{text}\n"));
                self.to_client(StepMgrToCommand::Output { rank, stream: Stream::Stderr, data }, out);
            }
            _ => self.to_shepherd(node, StepMgrToShepherd::Note { step, text }, out),
        }
        self.end(now, StepEnd::BadExit, false, out);
    }

    /// Sends in order, and not before the node may begin.
    fn to_shepherd(&mut self, node: NodeSlot, message: StepMgrToShepherd, out: &mut Vec<StepEffect>) {
        let effect = StepEffect::ToShepherd { node, message };
        match &mut self.held {
            Some(held) if held.first != node => held.waiting.push(effect),
            _ => out.push(effect),
        }
    }

    /// The first task's files are open, or never will be. If the step is to end by now, the other tasks end as if they had been
    /// running.
    fn let_others_begin(&mut self, out: &mut Vec<StepEffect>) {
        let Some(Held { first, waiting, .. }) = self.held.take() else { return };
        let killed = match &self.phase {
            Phase::Ending { killed: true, .. } => Some(SIGKILL as u8),
            Phase::Ending { .. } => Some(SIGTERM as u8),
            _ => self.signalled,
        };
        let Some(signal) = killed else {
            out.extend(waiting);
            return;
        };
        let others = self.plan.nodes.iter().filter(|node| node.slot != first);
        let ranks: Vec<(NodeSlot, u32)> =
            others.flat_map(|node| node.tasks.iter().map(|task| (node.slot, task.rank))).collect();
        for (slot, rank) in ranks {
            self.count_out(rank, ExitStatus { code: 0, signal: Some(signal) });
            self.node_gone(slot);
        }
    }

    fn resume(&mut self, live: &[u32], out: &mut Vec<StepEffect>) {
        if self.phase != Phase::Ready {
            return;
        }
        self.phase = Phase::Running;
        self.attended = false;
        self.output.open();
        let mut running = vec![false; self.tasks.len()];
        for rank in live {
            if let Some(own) = self.index(*rank) {
                running[own] = true;
            }
        }
        for (runs, rank) in running.into_iter().zip(self.plan.first_rank..) {
            // It is not known whether the known tasks have begun: they may wait behind others.
            if !runs {
                self.unknown = true;
                self.count_out(rank, UNKNOWN_EXIT);
            }
        }
        for node in &mut self.nodes {
            node.gone = node.tasks_left == 0;
        }
        if let Some(after) = self.plan.time_limit {
            out.push(StepEffect::SetTimer { timer: StepTimer::Limit, after });
        }
    }

    fn on_shepherd(&mut self, now: Timestamp, node: NodeSlot, message: ShepherdToStepMgr, out: &mut Vec<StepEffect>) {
        match message {
            ShepherdToStepMgr::TaskStarted { rank, pid, .. } => {
                if let Some(task @ TaskState::Launching) = self.task_on(node, rank) {
                    *task = TaskState::Running;
                    self.to_client(StepMgrToCommand::TaskStarted { rank, pid }, out);
                }
            }
            ShepherdToStepMgr::TaskFailed { rank, message, status, unknown, .. } => {
                if self.count_out_on(node, rank, status) {
                    self.unknown |= unknown;
                    if !unknown {
                        self.detail.get_or_insert_with(|| notice::detail(&message));
                    }
                    self.to_client(StepMgrToCommand::TaskFailed { rank, message, status }, out);
                    self.after_task(now, status, out);
                }
            }
            ShepherdToStepMgr::TaskExited { rank, end: TaskEnd { status, usage, oom }, gone, .. } => {
                if self.count_out_on(node, rank, status) {
                    if let Some(at) = self.slots.get(&node) {
                        self.usage.add(rank, u32::try_from(*at).unwrap_or(u32::MAX), usage);
                    }
                    self.oom |= oom;
                    self.to_client(StepMgrToCommand::TaskExited { rank, status, oom }, out);
                    if oom && self.plan.kill_on_oom && self.tasks_left > 0 {
                        self.end(now, StepEnd::TaskOutOfMemory, false, out);
                    }
                    self.after_task(now, status, out);
                }
                if gone {
                    self.node_gone(node);
                }
            }
            ShepherdToStepMgr::PmiFence { fence, puts, .. } => self.come_to_fence(now, node, fence, puts, out),
            ShepherdToStepMgr::PmiAbort { rank, message, .. } => self.aborted(now, node, rank, &message, out),
            ShepherdToStepMgr::Output { rank, stream, data, .. } => {
                if let Some(&at) = self.slots.get(&node)
                    && self.is_on(node, rank)
                {
                    self.output.push(Frame { node: at, rank, stream, data });
                    self.pass_output(out);
                }
            }
            ShepherdToStepMgr::StdinConsumed { bytes, .. } => {
                self.input.consumed(node, bytes);
                self.grant_input(out);
            }
            ShepherdToStepMgr::StepGone { .. } => self.node_gone(node),
            // Only for steps with one task.
            ShepherdToStepMgr::NotStarted { .. } => {
                let launching = matches!(self.task_on(node, 0), Some(TaskState::Launching));
                match (&self.phase, self.signalled) {
                    (Phase::Running, None) if launching => {
                        self.phase = Phase::Over;
                        out.push(StepEffect::NotStarted);
                    }
                    // As if it had been running when it was told to end.
                    (_, signal) if launching => {
                        let status = ExitStatus { code: 0, signal: Some(signal.unwrap_or(SIGTERM as u8)) };
                        self.count_out_on(node, 0, status);
                        self.node_gone(node);
                    }
                    // It ran, and is not known any more: its end was reported before, or never will be.
                    _ => {
                        self.unknown |= self.count_out_on(node, 0, UNKNOWN_EXIT);
                        self.node_gone(node);
                    }
                }
            }
            ShepherdToStepMgr::Register { .. }
            | ShepherdToStepMgr::Gone
            | ShepherdToStepMgr::Sampled { .. }
            | ShepherdToStepMgr::Tasks { .. } => {}
        }
    }

    fn on_client(&mut self, now: Timestamp, message: CommandToStepMgr, out: &mut Vec<StepEffect>) {
        match message {
            CommandToStepMgr::Stdin(data) => match self.input.push(data.len()) {
                Ok(nodes) => {
                    for node in nodes {
                        self.to_shepherd(
                            node,
                            StepMgrToShepherd::Stdin { step: self.plan.id, data: data.clone(), rank: None },
                            out,
                        );
                    }
                    self.grant_input(out);
                }
                Err(_) => self.end(now, StepEnd::InputOverrun, false, out),
            },
            CommandToStepMgr::Signal(signal) => self.signal(signal, SignalReach::Groups, out),
            CommandToStepMgr::Resize { rows, cols } => {
                if let Some(node) = self.node_of.first().map(|at| self.nodes[*at].slot) {
                    let message = StepMgrToShepherd::Resize { step: self.plan.id, rows, cols };
                    out.push(StepEffect::ToShepherd { node, message });
                }
            }
            CommandToStepMgr::Cancel => {
                // The first request asks the tasks to end; a repeated request does not wait for KillWait.
                let again = matches!(self.phase, Phase::Ending { .. });
                self.end(now, StepEnd::Cancelled, again, out);
            }
            CommandToStepMgr::Consumed(bytes) => {
                self.output.grant(bytes);
                self.pass_output(out);
            }
            _ => {}
        }
    }

    /// Input of a command that attached, for all tasks or one. One that does not wait for what it is granted is refused.
    fn attached_input(&mut self, watcher: Watcher, rank: Option<u32>, data: ByteBuf, out: &mut Vec<StepEffect>) {
        // A task that is not there takes nothing.
        let nowhere = NodeSlot(u32::MAX);
        let only = rank.map(|rank| {
            let at = self.index(rank).and_then(|own| self.node_of.get(own)).copied();
            at.map_or(nowhere, |at| self.nodes[at].slot)
        });
        let Ok(nodes) = self.input.push_of(watcher, data.len(), only) else {
            let refusal = Refusal::Internal("more input came than was granted".to_owned());
            return out.push(StepEffect::ToWatcher { watcher, message: StepMgrToCommand::Refused(refusal) });
        };
        for node in nodes {
            self.to_shepherd(node, StepMgrToShepherd::Stdin { step: self.plan.id, data: data.clone(), rank }, out);
        }
        self.grant_input(out);
    }

    /// Ends what still runs: SIGTERM and after KillWait SIGKILL (by the shepherds), or SIGKILL now.
    fn end(&mut self, now: Timestamp, cause: StepEnd, kill: bool, out: &mut Vec<StepEffect>) {
        let first = match &mut self.phase {
            Phase::Running => {
                let text = notice::cancelled(
                    format_args!("STEP {}", self.plan.id),
                    self.plan.nodes.first().map_or("", |n| n.name.as_str()),
                    now,
                    &self.plan.zone,
                    cause.due_to(),
                );
                self.phase = Phase::Ending { cause, killed: kill };
                Some(text)
            }
            Phase::Ending { killed, .. } if kill && !*killed => {
                *killed = true;
                None
            }
            // A step that never began has no process to end.
            Phase::Ready => {
                self.phase = Phase::Ending { cause, killed: kill };
                for node in &mut self.nodes {
                    node.gone = true;
                }
                return;
            }
            Phase::Ending { .. } | Phase::Over => return,
        };
        let step = self.plan.id;
        if let Some(text) = first {
            if !self.plan.launch.batch
                && matches!(self.plan.launch.stderr, StreamTarget::File(_) | StreamTarget::SameAsStdout)
                && let Some(node) = self.nodes.first()
            {
                let note = StepMgrToShepherd::Note { step, text: notice::error_line(&text) };
                out.push(StepEffect::ToShepherd { node: node.slot, message: note });
            }
            self.to_client(StepMgrToCommand::Terminating { message: text }, out);
        }
        for at in 0..self.nodes.len() {
            if self.nodes[at].gone {
                continue;
            }
            let message = if kill { StepMgrToShepherd::Kill { step } } else { StepMgrToShepherd::Terminate { step } };
            self.to_shepherd(self.nodes[at].slot, message, out);
        }
    }

    fn signal(&mut self, signal: i32, reach: SignalReach, out: &mut Vec<StepEffect>) {
        if matches!(signal, SIGTERM | SIGKILL) {
            self.signalled.get_or_insert(signal as u8);
        }
        for at in 0..self.nodes.len() {
            if self.nodes[at].tasks_left == 0 {
                continue;
            }
            let message = StepMgrToShepherd::Signal { step: self.plan.id, signal, reach, whole_run: false };
            self.to_shepherd(self.nodes[at].slot, message, out);
        }
    }

    fn node_lost(&mut self, now: Timestamp, slot: NodeSlot, out: &mut Vec<StepEffect>) {
        let Some(&at) = self.slots.get(&slot) else { return };
        if self.nodes[at].gone {
            return;
        }
        self.node_gone(slot);
        let node = self.plan.nodes[at].name.clone();
        self.end(now, StepEnd::NodeLost { node }, false, out);
    }

    /// No process is left on the node. Tasks whose ends were not seen are counted as ended.
    fn node_gone(&mut self, slot: NodeSlot) {
        let Some(&at) = self.slots.get(&slot) else { return };
        self.nodes[at].gone = true;
        self.input.closed(slot);
        if self.nodes[at].tasks_left > 0 {
            let ranks: Vec<u32> = self.plan.nodes[at].tasks.iter().map(|t| t.rank).collect();
            for rank in ranks {
                self.count_out(rank, UNKNOWN_EXIT);
            }
        }
    }

    fn task_on(&mut self, node: NodeSlot, rank: u32) -> Option<&mut TaskState> {
        if !self.is_on(node, rank) {
            return None;
        }
        let own = self.index(rank)?;
        self.tasks.get_mut(own)
    }

    /// As `count_out`, for a report of a shepherd, which may only be about tasks on its own node.
    fn count_out_on(&mut self, node: NodeSlot, rank: u32, status: ExitStatus) -> bool {
        self.task_on(node, rank).is_some() && self.count_out(rank, status)
    }

    /// Records a task's end, once. False when it was over before.
    fn count_out(&mut self, rank: u32, status: ExitStatus) -> bool {
        let Some(own) = self.index(rank) else { return false };
        let task = &mut self.tasks[own];
        if *task == TaskState::Over {
            return false;
        }
        *task = TaskState::Over;
        self.tasks_left -= 1;
        self.nodes[self.node_of[own]].tasks_left -= 1;
        self.exit = worse(self.exit, status);
        true
    }

    fn after_task(&mut self, now: Timestamp, status: ExitStatus, out: &mut Vec<StepEffect>) {
        let first = !std::mem::replace(&mut self.any_over, true);
        if self.tasks_left == 0 {
            return;
        }
        if !status.success() && self.plan.kill_on_bad_exit {
            self.end(now, StepEnd::BadExit, false, out);
        } else if let (true, Some(after)) = (first, self.plan.wait) {
            out.push(StepEffect::SetTimer { timer: StepTimer::Wait, after });
        }
    }

    fn pass_output(&mut self, out: &mut Vec<StepEffect>) {
        while let Some((frame, credit)) = self.output.pop() {
            let Frame { node, rank, stream, data } = frame;
            self.to_client(StepMgrToCommand::Output { rank, stream, data }, out);
            if let (Some(bytes), false) = (credit, self.nodes[node].gone) {
                let message = StepMgrToShepherd::Credit { step: self.plan.id, bytes };
                out.push(StepEffect::ToShepherd { node: self.nodes[node].slot, message });
            }
        }
    }

    fn grant_input(&mut self, out: &mut Vec<StepEffect>) {
        for (whose, bytes) in self.input.due() {
            let message = StepMgrToCommand::StdinConsumed(bytes);
            match whose {
                None => self.to_client(message, out),
                Some(watcher) => out.push(StepEffect::ToWatcher { watcher, message }),
            }
        }
    }

    fn to_client(&self, message: StepMgrToCommand, out: &mut Vec<StepEffect>) {
        if self.attended {
            out.push(StepEffect::ToClient(message));
        }
    }

    fn over(&mut self, out: &mut Vec<StepEffect>) {
        // Output that was held back belongs to a command that may still read it; it goes before the end is reported.
        self.output.open();
        self.pass_output(out);
        let ended = match std::mem::replace(&mut self.phase, Phase::Over) {
            Phase::Ending { cause, .. } => Some(cause),
            _ if self.unknown => Some(StepEnd::ExitUnknown),
            _ => None,
        };
        let state = ended.as_ref().and_then(StepEnd::state).unwrap_or_else(|| state_of_exit(self.exit, self.oom));
        // All tasks may have ended by themselves before the request to end reached them.
        let state = match (&ended, state) {
            (Some(StepEnd::ClientGone | StepEnd::BatchOver | StepEnd::TooManyFailed), StepState::Cancelled)
                if self.exit.success() =>
            {
                StepState::Completed
            }
            (_, state) => state,
        };
        let ((usage, spread), detail) = (std::mem::take(&mut self.usage).finish(), self.detail.take());
        let (step, exit) = (self.plan.id, self.exit);
        out.push(StepEffect::Over(StepResult { step, state, exit, ended, usage, spread, detail }));
    }
}

#[cfg(test)]
#[path = "core_test.rs"]
mod tests;
