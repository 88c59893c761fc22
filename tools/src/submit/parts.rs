//! A step over several components of a heterogeneous job: each component's step manager runs a part of it. This module makes one
//! step of the parts: the managers' messages are combined as if they came from one, and messages to the step are passed on to the
//! managers that need them. Plain and synchronous; the poll loop in [`step_loop`](super::step_loop) calls it.
//!
//! Parts are placed one after the other, in the order of the components, so that two such steps cannot each hold what the other
//! waits for. When all are placed, all are started. If a part cannot be placed, the whole step ends: the managers withdraw or end
//! their parts when the connections close.

use garrick_model::{
    ids::{JobId, RequestId, StepId},
    messages::step::{CommandToStepMgr, StepLayout, StepMgrToCommand, WholeStep},
    spec::{HetPart, PartsBefore, StdinTo, StepSpec, StreamTarget},
    state::{ExitStatus, StepState},
};
use std::time::Duration;

/// What is to be done.
#[derive(Clone, Debug, PartialEq)]
pub enum Heard {
    /// The step manager of this job says this about the whole step.
    Tell(JobId, StepMgrToCommand),
    /// Send this to the manager of that part.
    Send(usize, CommandToStepMgr),
}

#[derive(Clone, Debug, PartialEq)]
enum State {
    /// Not asked for yet.
    Ahead,
    /// Asked for.
    Asked,
    /// Has its place.
    Placed(StepLayout),
    /// Over, or about to be.
    Over,
}

#[derive(Debug)]
struct Part {
    job: JobId,
    spec: StepSpec,
    state: State,
    reads: bool,
    /// Bytes of input that its tasks took.
    took: u64,
    cancelled: bool,
}

/// The parts of a step.
#[derive(Debug)]
pub struct Parts {
    parts: Vec<Part>,
    leader: JobId,
    started: bool,
    before: PartsBefore,
    /// Bytes of input that all took, as far as it was told.
    told_taken: u64,
    exit: ExitStatus,
    state: StepState,
    kill_on_bad_exit: bool,
    wait: Option<Duration>,
    /// When `-W` ends the other parts than this one.
    wait_over: Option<(Duration, usize)>,
    any_ended: bool,
}

impl Parts {
    /// Parts by their jobs, in the order of the components. Nothing is asked for before [`Self::begin`].
    pub fn new(leader: JobId, parts: Vec<(JobId, StepSpec)>) -> Self {
        let first = parts.first().map(|(_, spec)| spec);
        Self {
            kill_on_bad_exit: first.is_some_and(|spec| spec.kill_on_bad_exit),
            wait: first.and_then(|spec| spec.wait_secs).map(|secs| Duration::from_secs(u64::from(secs))),
            parts: parts
                .into_iter()
                .map(|(job, spec)| Part { job, spec, state: State::Ahead, reads: false, took: 0, cancelled: false })
                .collect(),
            leader,
            started: false,
            before: PartsBefore::default(),
            told_taken: 0,
            exit: ExitStatus::SUCCESS,
            state: StepState::Completed,
            wait_over: None,
            any_ended: false,
        }
    }

    /// Asks for the first part.
    pub fn begin(&mut self, out: &mut Vec<Heard>) {
        self.ask_for(0, out);
    }

    /// Nothing more is to come from that part.
    pub fn is_over(&self, part: usize) -> bool {
        self.parts.get(part).is_none_or(|part| part.state == State::Over)
    }

    /// When [`Self::tick`] is to be called.
    pub fn deadline(&self) -> Option<Duration> {
        self.wait_over.map(|(at, _)| at)
    }

    /// The time has come.
    pub fn tick(&mut self, now: Duration, out: &mut Vec<Heard>) {
        if let Some((_, first)) = self.wait_over.take_if(|(at, _)| now >= *at) {
            self.cancel_but(first, out);
        }
    }

    /// The manager of a part says something.
    pub fn heard(&mut self, now: Duration, at: usize, message: StepMgrToCommand, out: &mut Vec<Heard>) {
        let Some(part) = self.parts.get_mut(at) else { return };
        let job = part.job;
        match message {
            StepMgrToCommand::Accepted { .. } if at > 0 => {}
            StepMgrToCommand::Placed(layout) => {
                self.before.tasks += layout.ranks.iter().map(|ranks| ranks.len() as u32).sum::<u32>();
                self.before.nodes += layout.nodes.len() as u32;
                part.reads = reads(&part.spec, &layout);
                part.state = State::Placed(layout);
                match at + 1 < self.parts.len() {
                    true => self.ask_for(at + 1, out),
                    false => self.start(out),
                }
            }
            // Was told when all were placed.
            StepMgrToCommand::Started(_) => {}
            StepMgrToCommand::TaskExited { status, .. } | StepMgrToCommand::TaskFailed { status, .. } => {
                out.push(Heard::Tell(job, message));
                self.task_ended(now, at, status, out);
            }
            StepMgrToCommand::StdinConsumed(bytes) => {
                part.took += bytes;
                self.tell_taken(out);
            }
            StepMgrToCommand::Finished { exit, state } => self.part_over(at, exit, state, out),
            message => out.push(Heard::Tell(job, message)),
        }
    }

    /// What is said to the step, to those whom it concerns.
    pub fn said(&self, message: &CommandToStepMgr, out: &mut Vec<Heard>) {
        let input = matches!(message, CommandToStepMgr::Stdin(_));
        let meant = self.parts.iter().enumerate().filter(|(_, p)| p.is_placed() && (p.reads || !input));
        out.extend(meant.map(|(at, _)| Heard::Send(at, message.clone())));
    }

    fn ask_for(&mut self, at: usize, out: &mut Vec<Heard>) {
        let Some(part) = self.parts.get_mut(at) else { return };
        part.state = State::Asked;
        part.spec.het = Some(HetPart { leader: self.leader, behind: Some(self.before) });
        let spec = Box::new(part.spec.clone());
        let request = RequestId::random();
        out.push(Heard::Send(at, CommandToStepMgr::Launch { request, spec, descriptors: [false; 3] }));
    }

    fn start(&mut self, out: &mut Vec<Heard>) {
        self.started = true;
        let mut layout = StepLayout { nodes: Vec::new(), ranks: Vec::new(), handed: [false; 3] };
        for part in &self.parts {
            if let State::Placed(own) = &part.state {
                layout.nodes.extend(own.nodes.iter().cloned());
                layout.ranks.extend(own.ranks.iter().cloned());
            }
        }
        let tasks_per_node = layout.ranks.iter().map(|ranks| ranks.len() as u32).collect();
        let whole = WholeStep { nodes: layout.nodes.clone(), tasks_per_node };
        for at in 0..self.parts.len() {
            out.push(Heard::Send(at, CommandToStepMgr::StartPart(whole.clone())));
        }
        out.push(Heard::Tell(self.leader, StepMgrToCommand::Started(layout)));
    }

    fn task_ended(&mut self, now: Duration, at: usize, status: ExitStatus, out: &mut Vec<Heard>) {
        let first = !std::mem::replace(&mut self.any_ended, true);
        if self.kill_on_bad_exit && !status.success() {
            // That part's own manager sees to that part.
            self.cancel_but(at, out);
        } else if let (true, Some(wait)) = (first, self.wait) {
            self.wait_over = Some((now + wait, at));
        }
    }

    fn cancel_but(&mut self, spared: usize, out: &mut Vec<Heard>) {
        for (at, part) in self.parts.iter_mut().enumerate() {
            if at != spared && part.is_placed() && !std::mem::replace(&mut part.cancelled, true) {
                out.push(Heard::Send(at, CommandToStepMgr::Cancel));
            }
        }
    }

    fn part_over(&mut self, at: usize, exit: ExitStatus, state: StepState, out: &mut Vec<Heard>) {
        self.parts[at].state = State::Over;
        if exit.shell_code() > self.exit.shell_code() {
            self.exit = exit;
        }
        if self.state == StepState::Completed || state == StepState::NodeFail {
            self.state = state;
        }
        if state == StepState::NodeFail {
            self.cancel_but(at, out);
        }
        // One that ends before all are started takes the others with it.
        if !self.started || self.parts.iter().all(|part| part.state == State::Over) {
            let finished = StepMgrToCommand::Finished { exit: self.exit, state: self.state };
            return out.push(Heard::Tell(self.leader, finished));
        }
        self.tell_taken(out);
    }

    /// Input is taken when all who read it took it.
    fn tell_taken(&mut self, out: &mut Vec<Heard>) {
        let reading = self.parts.iter().filter(|part| part.reads && part.is_placed());
        let Some(taken) = reading.map(|part| part.took).min() else { return };
        if taken > self.told_taken {
            let more = taken - self.told_taken;
            self.told_taken = taken;
            out.push(Heard::Tell(self.leader, StepMgrToCommand::StdinConsumed(more)));
        }
    }
}

impl Part {
    const fn is_placed(&self) -> bool {
        matches!(self.state, State::Placed(_))
    }
}

/// Relayed input is for some task of this part.
fn reads(spec: &StepSpec, layout: &StepLayout) -> bool {
    spec.stdin == StreamTarget::Relay
        && match spec.stdin_to {
            StdinTo::All => true,
            StdinTo::Task(rank) => layout.ranks.iter().flatten().any(|own| *own == rank),
            StdinTo::None => false,
        }
}

/// The number that a step is to have in all its jobs, when these are the first free ones: the highest, if they differ.
pub fn common_number(reserved: &[StepId]) -> Option<Result<u32, u32>> {
    let numbers: Vec<u32> = reserved.iter().filter_map(|step| step.key().step.number()).collect();
    let highest = numbers.iter().copied().max()?;
    Some(if numbers.iter().all(|number| *number == highest) { Ok(highest) } else { Err(highest) })
}

#[cfg(test)]
#[path = "parts_test.rs"]
mod tests;
