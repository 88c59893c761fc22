//! `srun` and a step: reactions to each message of the step manager and each signal. Plain and synchronous; the poll loop in
//! [`step_loop`](super::step_loop) calls it and carries out the result. Time is counted from the start of the conversation.

use super::{
    labels::Labels,
    task_report::{Ending, TaskReport, rank_list},
};
use crate::options::{light, stream_plan::Sink};
use garrick_asking::cluster::refusal_details;
use garrick_model::{
    ids::{JobId, Sluid, StepId},
    messages::{
        shepherd::Stream,
        step::{CommandToStepMgr, LightReply, STDIN_WINDOW, StepLayout, StepMgrToCommand},
    },
    state::{ExitStatus, StepState},
};
use serde_bytes::ByteBuf;
use std::{mem, time::Duration};

/// A second Ctrl-C within this time ends the step (srun(1)).
const SECOND_INTERRUPT: Duration = Duration::from_secs(1);
/// Ends of tasks are reported together when they come this close to each other. Chosen to be shorter than what a person
/// notices, and longer than what tasks that are killed together need to end.
const GATHER_ENDS: Duration = Duration::from_millis(50);
/// What Slurm says that it waits: its default KillWait and two seconds.
const KILL_WAIT_SECS: u32 = 32;

/// How `srun` was asked to behave.
#[derive(Clone, Debug)]
pub struct Behaviour {
    /// Job of the step.
    pub job: JobId,
    /// The command made the allocation: what is told of the job is told to it.
    pub own_job: bool,
    /// `-l`
    pub label: bool,
    /// `-u`
    pub unbuffered: bool,
    /// Where relayed output goes.
    pub output: Sink,
    /// Where relayed errors go.
    pub error: Sink,
    /// There is input to relay.
    pub relays_input: bool,
    /// `--pty`
    pub pty: bool,
    /// `-X`
    pub disable_status: bool,
    /// `--quit-on-interrupt`
    pub quit_on_interrupt: bool,
    /// `-K`
    pub kill_on_bad_exit: bool,
    /// Output of the tasks may pass through here, as far as is known before the step is heard to start.
    pub may_relay: bool,
    /// `--immediate`: the step manager is to have said by then whether there is room.
    pub immediate: Option<Duration>,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Send this.
    Send(CommandToStepMgr),
    /// Ask for the step, on the same connection: what asked for it so far was not understood.
    AskAgain,
    /// The step has a number: files named by it can be opened.
    Numbered(StepId),
    /// Write to where output (or errors) go.
    Write(Stream, Vec<u8>),
    /// Say `srun: text`.
    Info(String),
    /// Say `srun: text`, with `-v`.
    Verbose(String),
    /// Say `srun: debug:  text`, with `-vv`.
    Debug(String),
    /// Say `srun: warning: text`.
    Warning(String),
    /// Say `srun: error: text`.
    Error(String),
    /// Say what a task's launcher says, with the time in front.
    TaskError(String),
    /// Say it as it is.
    Line(String),
    /// Send the program to these nodes, and have the step started.
    SendProgram(StepLayout),
    /// Over, with this exit code.
    End(i32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Asked,
    Queued,
    Running,
    Ending,
    Over,
}

/// A conversation.
#[derive(Debug)]
pub struct Conversation {
    behaviour: Behaviour,
    phase: Phase,
    step: Option<StepId>,
    labels: Option<Labels>,
    report: TaskReport,
    said_queued: bool,
    task_errors: Vec<String>,
    news_at: Option<Duration>,
    last_interrupt: Option<Duration>,
    aborted: bool,
    /// That a task that failed takes the others with it was said.
    said_terminating: bool,
    /// Bytes of input under way.
    input_under_way: u64,
    /// The run, as its step manager names it.
    sluid: Option<Sluid>,
    /// Output of the tasks passes through here.
    relays_output: bool,
    /// The connection broke, and the step was not heard to start since.
    parted: bool,
    /// That it broke was said, and nothing was heard since.
    said_parted: bool,
}

impl Conversation {
    /// Before anything was sent.
    pub fn new(behaviour: Behaviour) -> Self {
        let relays_output = behaviour.may_relay;
        let labels = behaviour.label.then(|| Labels::new(1, !behaviour.unbuffered));
        Self {
            behaviour,
            phase: Phase::Asked,
            step: None,
            labels,
            report: TaskReport::default(),
            said_queued: false,
            task_errors: Vec::new(),
            news_at: None,
            last_interrupt: None,
            aborted: false,
            said_terminating: false,
            input_under_way: 0,
            sluid: None,
            relays_output,
            parted: false,
            said_parted: false,
        }
    }

    /// What comes next is about that job.
    pub const fn speak_of(&mut self, job: JobId) {
        self.behaviour.job = job;
    }

    /// The tasks are there to read input.
    pub fn takes_input(&self) -> bool {
        self.behaviour.relays_input && self.phase == Phase::Running
    }

    /// Bytes of input that can be sent now.
    pub fn input_room(&self) -> u64 {
        if self.takes_input() { STDIN_WINDOW.saturating_sub(self.input_under_way) } else { 0 }
    }

    /// Input was read; an empty piece is its end.
    pub fn input(&mut self, piece: Vec<u8>, out: &mut Vec<Effect>) {
        self.input_under_way += piece.len() as u64;
        out.push(Effect::Send(CommandToStepMgr::Stdin(ByteBuf::from(piece))));
    }

    /// When [`Conversation::tick`] is to be called.
    pub fn deadline(&self) -> Option<Duration> {
        self.news_at.into_iter().chain(self.give_up_at()).min()
    }

    /// When a step is given up of which nothing was heard.
    pub fn give_up_at(&self) -> Option<Duration> {
        self.behaviour.immediate.filter(|_| self.phase == Phase::Asked && self.step.is_none())
    }

    /// The time has come.
    pub fn tick(&mut self, now: Duration, out: &mut Vec<Effect>) {
        if self.news_at.is_some_and(|at| now >= at) {
            self.tell_news(out);
        }
        if self.give_up_at().is_some_and(|at| now >= at) {
            let job = self.behaviour.job;
            let text =
                format!("Unable to create step for job {job}: its step manager did not answer in time (--immediate)");
            out.push(Effect::Error(text));
            self.end(1, out);
        }
    }

    /// The step manager says something.
    pub fn message(&mut self, now: Duration, message: StepMgrToCommand, out: &mut Vec<Effect>) {
        if self.phase == Phase::Over {
            return;
        }
        self.said_parted = false;
        match message {
            StepMgrToCommand::Accepted { step, sluid, warnings } => {
                self.sluid = Some(sluid);
                // Said again after the connection broke.
                if self.step.replace(step) != Some(step) {
                    out.push(Effect::Numbered(step));
                }
                out.extend(warnings.into_iter().map(Effect::Warning));
            }
            StepMgrToCommand::Queued { reason } => {
                self.phase = Phase::Queued;
                if mem::replace(&mut self.said_queued, true) {
                    out.push(Effect::Verbose(format!("Step still waits ({reason:?})")));
                } else {
                    out.push(Effect::Info(light::waits(self.behaviour.job)));
                }
            }
            StepMgrToCommand::Light(reply) => self.light(reply, out),
            StepMgrToCommand::Started(layout) => self.started(layout, out),
            StepMgrToCommand::TaskStarted { rank, pid } => {
                out.push(Effect::Debug(format!("{} task {rank}: started, pid {pid}", self.step_text())));
            }
            StepMgrToCommand::Output { rank, stream, data } => self.output(rank, stream, &data, out),
            StepMgrToCommand::TaskFailed { rank, message, status } => {
                self.task_failed(now, rank, &message, status, out);
            }
            StepMgrToCommand::TaskExited { rank, status, oom } => {
                self.ended(now, rank, if oom { Ending::OutOfMemory } else { Ending::Status(status) });
            }
            StepMgrToCommand::Terminating { message } => self.terminating(message, out),
            StepMgrToCommand::Notice(text) => {
                if self.behaviour.own_job {
                    out.push(Effect::Info(text));
                }
            }
            StepMgrToCommand::Finished { exit, state } => self.finished(exit, state, out),
            StepMgrToCommand::Refused(refusal) => {
                out.extend(refusal_details(&refusal).into_iter().map(Effect::Error));
                out.push(Effect::Error(format!("Unable to create step for job {}: {refusal}", self.behaviour.job)));
                self.end(1, out);
            }
            // Of a step with several parts only those who put them together hear this.
            StepMgrToCommand::Placed(layout) => out.push(Effect::SendProgram(layout)),
            StepMgrToCommand::StdinConsumed(bytes) => {
                self.input_under_way = self.input_under_way.saturating_sub(bytes);
            }
            StepMgrToCommand::Enqueued { .. }
            | StepMgrToCommand::Reserved { .. }
            | StepMgrToCommand::Attached { .. }
            | StepMgrToCommand::Sampling(_)
            | StepMgrToCommand::Sampled { .. }
            | StepMgrToCommand::Progress(_)
            | StepMgrToCommand::Groups { .. }
            | StepMgrToCommand::Drained { .. }
            | StepMgrToCommand::Steps(_)
            | StepMgrToCommand::PerStep(_)
            | StepMgrToCommand::FileReady { .. }
            | StepMgrToCommand::FileDone(_) => {
                out.push(Effect::Verbose("answer of another conversation ignored".to_owned()));
            }
        }
    }

    fn started(&mut self, layout: StepLayout, out: &mut Vec<Effect>) {
        if let Some(step) = self.step.filter(|_| self.said_queued) {
            out.push(Effect::Info(light::created(step)));
        }
        self.phase = Phase::Running;
        // All that it says is heard.
        self.parted = false;
        // The tasks read for themselves. Handed output needs nothing: none comes.
        self.behaviour.relays_input &= !layout.handed[0];
        let handed = [(1, &self.behaviour.output), (2, &self.behaviour.error)];
        self.relays_output = handed.iter().any(|(fd, to)| !layout.handed[*fd] && **to != Sink::None);
        let nodes = || layout.nodes.iter().zip(&layout.ranks);
        for (node, ranks) in nodes() {
            let (step, tasks, ranks) = (self.step_text(), ranks.len(), rank_list(ranks));
            out.push(Effect::Verbose(format!("launching {step} on host {node}, {tasks} tasks: {ranks}")));
        }
        for (node, ranks) in nodes() {
            out.push(Effect::Verbose(format!("Node {node}, {} tasks started", ranks.len())));
        }
        self.report.set_layout(layout);
        if let Some(labels) = &mut self.labels {
            labels.set_tasks(self.report.tasks());
        }
    }

    fn task_failed(&mut self, now: Duration, rank: u32, message: &str, status: ExitStatus, out: &mut Vec<Effect>) {
        // Every task of a step that cannot be started says the same, but for the time on its node.
        let message = without_time(message).to_owned();
        if !self.task_errors.contains(&message) {
            out.push(Effect::TaskError(message.clone()));
            self.task_errors.push(message);
        }
        self.ended(now, rank, Ending::Status(status));
    }

    /// `srun` got a signal.
    pub fn signal(&mut self, now: Duration, signal: i32, out: &mut Vec<Effect>) {
        match self.phase {
            Phase::Over => {}
            // ^Z is ignored (srun(1)).
            _ if signal == libc::SIGTSTP => {}
            Phase::Asked | Phase::Queued => {
                if matches!(signal, libc::SIGINT | libc::SIGTERM | libc::SIGQUIT | libc::SIGHUP) {
                    // Closing the connection withdraws the step.
                    out.push(Effect::Info(format!("Cancelled pending job step with signal {signal}")));
                    self.end(1, out);
                }
            }
            Phase::Running | Phase::Ending if signal == libc::SIGINT && !self.behaviour.pty => self.interrupt(now, out),
            Phase::Running | Phase::Ending => out.push(Effect::Send(CommandToStepMgr::Signal(signal))),
        }
    }

    /// The reader of `srun`'s output went away: the tasks get the same error as if they had written to that pipe themselves.
    pub fn output_closed(&mut self, out: &mut Vec<Effect>) {
        if matches!(self.phase, Phase::Running | Phase::Ending) {
            out.push(Effect::Send(CommandToStepMgr::Signal(libc::SIGPIPE)));
        }
    }

    /// The connection is gone before the step was over.
    pub fn lost(&mut self, cause: &str, out: &mut Vec<Effect>) {
        if self.phase == Phase::Over {
            return;
        }
        self.flush_labels(out);
        self.tell_news(out);
        out.push(Effect::Error(format!("Lost contact with the step manager of {}: {cause}", self.step_text())));
        let code = self.report.exit_code().unwrap_or(0).max(1);
        self.end(code, out);
    }

    /// The connection is gone, and there is a way back. What to ask there about a step that began; `None`: the request itself
    /// once more.
    pub fn parted(&mut self, cause: &str, out: &mut Vec<Effect>) -> Option<CommandToStepMgr> {
        let step = self.step.zip(self.sluid).filter(|_| matches!(self.phase, Phase::Running | Phase::Ending));
        // A step that was not heard to start may have begun, and its output be lost on the way.
        self.parted = true;
        self.input_under_way = 0;
        if mem::replace(&mut self.said_parted, true) {
            return step.map(|(step, sluid)| CommandToStepMgr::Rejoin { step, sluid });
        }
        let todo = if step.is_some() { "asking how the step ended" } else { "retrying" };
        let text = format!("Lost contact with the step manager of {} ({cause}); {todo}", self.step_text());
        out.push(Effect::Info(text));
        step.map(|(step, sluid)| CommandToStepMgr::Rejoin { step, sluid })
    }

    /// A signal came while there was no connection.
    pub fn given_up(&mut self, signal: i32, out: &mut Vec<Effect>) {
        match self.phase {
            Phase::Asked | Phase::Queued => self.signal(Duration::ZERO, signal, out),
            _ => self.lost(&format!("ended by signal {signal}"), out),
        }
    }

    /// What was on its way to the light form of this command.
    fn light(&mut self, reply: LightReply, out: &mut Vec<Effect>) {
        match reply {
            LightReply::Done => self.end(0, out),
            LightReply::Whole => out.push(Effect::AskAgain),
            LightReply::TakeOver => {}
            LightReply::Waits => {
                self.phase = Phase::Queued;
                self.said_queued = true;
            }
            LightReply::Say(text) => out.push(Effect::Line(text.trim_end_matches('\n').to_owned())),
        }
    }

    fn interrupt(&mut self, now: Duration, out: &mut Vec<Effect>) {
        if self.aborted {
            out.push(Effect::Info("forcing job termination".to_owned()));
            self.end(128 + libc::SIGINT, out);
            return;
        }
        let second = self.last_interrupt.is_some_and(|last| now.saturating_sub(last) <= SECOND_INTERRUPT);
        self.last_interrupt = Some(now);
        if second || self.behaviour.quit_on_interrupt {
            self.aborted = true;
            out.push(Effect::Info(format!("sending Ctrl-C to {}", self.step_text())));
            out.push(Effect::Send(CommandToStepMgr::Signal(libc::SIGINT)));
            out.push(Effect::Send(CommandToStepMgr::Cancel));
        } else if self.behaviour.disable_status {
            out.push(Effect::Send(CommandToStepMgr::Signal(libc::SIGINT)));
        } else {
            out.push(Effect::Info("interrupt (one more within 1 sec to abort)".to_owned()));
            if let Some(step) = self.step {
                out.extend(self.report.status(step).into_iter().map(Effect::Info));
            }
        }
    }

    fn output(&mut self, rank: u32, stream: Stream, data: &[u8], out: &mut Vec<Effect>) {
        let sink = match stream {
            Stream::Stdout => &self.behaviour.output,
            Stream::Stderr => &self.behaviour.error,
        };
        let to = match sink {
            Sink::None => return,
            Sink::OwnOf(only) if *only != rank => return,
            Sink::AsOutput => Stream::Stdout,
            _ => stream,
        };
        let bytes = match &mut self.labels {
            Some(labels) => {
                let mut bytes = Vec::with_capacity(data.len() + 16);
                labels.label(rank, to, data, &mut bytes);
                bytes
            }
            None => data.to_vec(),
        };
        if !bytes.is_empty() {
            out.push(Effect::Write(to, bytes));
        }
    }

    fn ended(&mut self, now: Duration, rank: u32, ending: Ending) {
        if self.report.ended(rank, ending) {
            self.news_at.get_or_insert(now + GATHER_ENDS);
        }
    }

    fn terminating(&mut self, message: String, out: &mut Vec<Effect>) {
        self.tell_news(out);
        let first = self.phase != Phase::Ending;
        if first {
            self.phase = Phase::Ending;
        }
        if self.said_terminating && message.starts_with("STEP ") {
            out.push(Effect::TaskError(format!("*** {message} DUE TO TASK FAILURE ***")));
            return;
        }
        if first {
            out.push(Effect::Info(format!(
                "Job step aborted: Waiting up to {KILL_WAIT_SECS} seconds for job step to finish."
            )));
        }
        if message.starts_with("STEP ") || message.starts_with("JOB ") {
            out.push(Effect::Line(format!("slurmstepd: error: *** {message} ***")));
        } else if !message.is_empty() {
            out.push(Effect::Info(message));
        }
    }

    fn finished(&mut self, exit: ExitStatus, state: StepState, out: &mut Vec<Effect>) {
        self.flush_labels(out);
        self.tell_news(out);
        let reported = self.report.exit_code();
        let code = match reported.unwrap_or(0).max(exit.shell_code()) {
            0 if state == StepState::Completed => 0,
            // Nothing failed, but the step did not end by itself.
            0 => 1,
            code => code,
        };
        let code = self.after_parting(code, exit, out);
        match state {
            StepState::NodeFail => {
                out.push(Effect::Error(format!("{}: a node of the step failed", self.step_text())));
            }
            _ if self.report.any_by_signal() || reported.is_none() && exit.signal.is_some() => {
                out.push(Effect::Info(format!("Force Terminated {}", self.step_text())));
            }
            _ => {}
        }
        self.end(code, out);
    }

    /// The command lost the connection for a time, so it did not see all output of the step.
    fn after_parting(&self, code: i32, exit: ExitStatus, out: &mut Vec<Effect>) -> i32 {
        if !self.parted {
            return code;
        }
        if exit.signal.is_some() {
            let text = format!("{}: Job step aborted: it was lost with its step manager", self.step_text());
            out.push(Effect::Error(text));
        }
        if self.relays_output {
            let text = format!("{}: output of the step may be missing: its step manager was lost", self.step_text());
            out.push(Effect::Error(text));
            return code.max(1);
        }
        code
    }

    fn flush_labels(&mut self, out: &mut Vec<Effect>) {
        let Some(labels) = &mut self.labels else { return };
        for stream in [Stream::Stdout, Stream::Stderr] {
            let mut bytes = Vec::new();
            labels.finish(stream, &mut bytes);
            if !bytes.is_empty() {
                out.push(Effect::Write(stream, bytes));
            }
        }
    }

    fn tell_news(&mut self, out: &mut Vec<Effect>) {
        self.news_at = None;
        if !self.report.has_news() {
            return;
        }
        for line in self.report.news() {
            let (tasks, plural) = (line.tasks, if line.tasks == 1 { "" } else { "s" });
            let text = format!("Received task exit notification for {tasks} task{plural} of {}", self.step_text());
            out.push(Effect::Verbose(format!("{text} (status=0x{:04x}).", line.wait_status)));
            out.push(if line.success { Effect::Verbose(line.text) } else { Effect::Error(line.text) });
        }
        let ends = self.behaviour.kill_on_bad_exit && self.report.any_failed() && !self.aborted;
        if ends && !mem::replace(&mut self.said_terminating, true) {
            out.push(Effect::Info(format!("Terminating {}", self.step_text())));
        }
    }

    fn end(&mut self, code: i32, out: &mut Vec<Effect>) {
        self.phase = Phase::Over;
        out.push(Effect::End(code));
    }

    fn step_text(&self) -> String {
        match self.step {
            Some(step) => format!("StepId={step}"),
            None => format!("JobId={}", self.behaviour.job),
        }
    }
}

/// A node's message without its `[time] error: `, which is put in front of it again where it is shown.
fn without_time(message: &str) -> &str {
    let rest = message.strip_prefix('[').and_then(|m| m.split_once("] error: "));
    rest.map_or(message, |(_, text)| text)
}

#[cfg(test)]
#[path = "conversation_test.rs"]
mod tests;
