//! The step manager's actor. It supervises the run in its `stepd`: it is started at `/job` under the job's number, so that its
//! steps are `/job/N/step/M`. Inputs go into the core; the core's effects go to the port, except those that actors carry out
//! themselves: steps, timers, the log.

use crate::{
    step::{
        StepCore, StepEffect, StepInput, StepMsg, StepPlan, StepTimer,
        backlog::{Backlog, RETRY},
    },
    stepmgr::{
        Ledger, RunFacts, StepMgrConfig, StepMgrCore, StepMgrEffect, StepMgrInput, StepMgrMsg, StepMgrTimer,
        step_shell::Step,
    },
};
use garrick_model::{ids::StepKey, time::Timestamp};
use garrick_runtime::{Actor, ActorPath, ChildEvent, ChildSpec, Context, TimerKey};
use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

/// What the step manager needs from its environment. It runs on the actor's thread and must not block.
pub trait StepMgrPort: 'static {
    /// Carries out an effect. `StartStep`, `ResumeStep`, `ToStep`, timers and `Log` are not passed here.
    fn perform(&mut self, effect: StepMgrEffect);

    /// The current state, sent after `Begin` in every life of the actor: `ShepherdUp` of each connected shepherd, `AgentUp`.
    /// Empty at the first start. Conversations of an earlier life are to be closed.
    fn standing(&mut self) -> Vec<StepMgrInput> {
        Vec::new()
    }

    /// The time.
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// Messages that may wait: those of hundreds of commands and tasks at once, for the time of some file system calls.
const MAILBOX: usize = 131_072;

/// Name of the timer after which messages that a step's mailbox refused are sent again.
const BACKLOG: &str = "backlog";

/// The actor.
pub struct StepMgr<P> {
    core: StepMgrCore,
    port: P,
    steps: HashMap<StepKey, StepHost>,
    refused: BTreeSet<StepKey>,
    effects: Vec<StepMgrEffect>,
    said: Vec<StepEffect>,
}

/// Where a running step's core lives. An attended step relays input and output, which must not delay its manager: it is an actor
/// of its own. A minibatch step gets little more than its start and its end, some thousand times a second for all of them
/// together: its manager hosts it.
enum StepHost {
    Actor(Backlog<StepMsg>),
    Here(Box<StepCore>),
}

impl<P: StepMgrPort> StepMgr<P> {
    /// A step manager. `ledger`: replayed from the run's journal, read anew in each life.
    pub fn new(facts: Arc<RunFacts>, config: StepMgrConfig, ledger: Ledger, port: P) -> Self {
        Self {
            core: StepMgrCore::new(facts, config, ledger),
            port,
            steps: HashMap::new(),
            refused: BTreeSet::new(),
            effects: Vec::new(),
            said: Vec::new(),
        }
    }

    /// How to start it (`system.start("/job", StepMgr::spec(...))`). Both lanes have room for bursts; use one lane for all
    /// messages of one sender, so that their order is kept.
    pub fn spec(job: garrick_model::ids::JobId, factory: impl FnMut() -> Self + Send + 'static) -> ChildSpec<Self> {
        ChildSpec::new(job.to_string(), factory).mailbox(MAILBOX).control(MAILBOX)
    }

    fn input(&mut self, cx: &mut Context<Self>, input: StepMgrInput) {
        let before = self.core.phase();
        self.core.handle(self.port.now(), input, &mut self.effects);
        let after = self.core.phase();
        if before != after {
            tracing::debug!(job_id = self.core.facts().job.0, from = ?before, to = ?after, "run.move");
        }
        let mut effects = std::mem::take(&mut self.effects);
        for effect in effects.drain(..) {
            match effect {
                StepMgrEffect::StartStep { plan } => self.host(cx, *plan, StepInput::Begin),
                StepMgrEffect::ResumeStep { plan, live } => self.host(cx, *plan, StepInput::Resume { live }),
                StepMgrEffect::ToStep { step, input } => self.tell_step(cx, step, input),
                StepMgrEffect::SetTimer { timer, after } => {
                    cx.set_timer(timer_key(timer), after, StepMgrMsg(StepMgrInput::Timer(timer)));
                }
                StepMgrEffect::ClearTimer(timer) => cx.clear_timer(timer_key(timer)),
                StepMgrEffect::Log { text } => tracing::warn!(job_id = self.core.facts().job.0, "{text}"),
                other => self.port.perform(other),
            }
        }
        // The buffer is reused.
        if self.effects.capacity() == 0 {
            self.effects = effects;
        }
    }

    fn host(&mut self, cx: &mut Context<Self>, plan: StepPlan, first: StepInput) {
        let key = plan.id.key();
        let host = if plan.attended || plan.launch.batch {
            StepHost::Actor(Backlog::new(cx.start_child(Step::spec(plan, cx.address()))))
        } else {
            StepHost::Here(Box::new(StepCore::new(plan)))
        };
        self.steps.insert(key, host);
        self.tell_step(cx, key, first);
    }

    fn tell_step(&mut self, cx: &mut Context<Self>, step: StepKey, input: StepInput) {
        match self.steps.get_mut(&step) {
            Some(StepHost::Actor(to)) => {
                let refused = to.send(StepMsg(input)) && self.refused.insert(step);
                if refused {
                    cx.set_timer(BACKLOG, RETRY, StepMgrMsg(StepMgrInput::Timer(StepMgrTimer::Backlog)));
                }
            }
            Some(StepHost::Here(core)) => {
                core.handle(self.port.now(), input, &mut self.said);
                let over = core.is_over();
                let mut said = Vec::with_capacity(self.said.len());
                for effect in self.said.drain(..) {
                    match effect {
                        StepEffect::SetTimer { timer, after } => {
                            let timer = StepMgrTimer::Step(step, timer);
                            cx.set_timer(timer_key(timer), after, StepMgrMsg(StepMgrInput::Timer(timer)));
                        }
                        other => said.push(other),
                    }
                }
                if over {
                    self.steps.remove(&step);
                    for timer in [StepTimer::Limit, StepTimer::Wait] {
                        cx.clear_timer(timer_key(StepMgrTimer::Step(step, timer)));
                    }
                }
                if !said.is_empty() {
                    self.input(cx, StepMgrInput::StepSays { step, effects: said });
                }
            }
            None => {}
        }
    }

    fn retry(&mut self, cx: &mut Context<Self>) {
        let steps = &mut self.steps;
        self.refused.retain(|step| match steps.get_mut(step) {
            Some(StepHost::Actor(to)) => to.retry(),
            Some(StepHost::Here(_)) | None => false,
        });
        if !self.refused.is_empty() {
            cx.set_timer(BACKLOG, RETRY, StepMgrMsg(StepMgrInput::Timer(StepMgrTimer::Backlog)));
        }
    }
}

impl<P: StepMgrPort> Actor for StepMgr<P> {
    type Msg = StepMgrMsg;

    fn started(&mut self, cx: &mut Context<Self>) {
        self.input(cx, StepMgrInput::Begin);
        for input in self.port.standing() {
            self.input(cx, input);
        }
    }

    fn handle(&mut self, cx: &mut Context<Self>, StepMgrMsg(input): StepMgrMsg) {
        match input {
            StepMgrInput::Timer(StepMgrTimer::Backlog) => self.retry(cx),
            StepMgrInput::Timer(StepMgrTimer::Step(step, timer)) => {
                self.tell_step(cx, step, StepInput::Timer(timer));
            }
            input => self.input(cx, input),
        }
    }

    fn child_event(&mut self, cx: &mut Context<Self>, event: ChildEvent) {
        match event {
            ChildEvent::Stopped { path } => {
                if let Some(step) = step_of(&path) {
                    self.steps.remove(&step);
                }
            }
            ChildEvent::GaveUp { path, reason } => {
                tracing::error!(actor = %path, "step's actor died: {reason}");
                if let Some(step) = step_of(&path) {
                    self.steps.remove(&step);
                    self.input(cx, StepMgrInput::StepCrashed { step });
                }
            }
            ChildEvent::Restarted { .. } => {}
        }
    }
}

/// The step at the end of an actor's path.
fn step_of(path: &ActorPath) -> Option<StepKey> {
    path.name().parse().ok()
}

fn timer_key(timer: StepMgrTimer) -> TimerKey {
    match timer {
        StepMgrTimer::TimeLimit => "time-limit".into(),
        StepMgrTimer::Warning => "warning".into(),
        StepMgrTimer::KillWait => "kill-wait".into(),
        StepMgrTimer::Report => "report".into(),
        StepMgrTimer::Retry => "retry".into(),
        StepMgrTimer::Step(step, timer) => step_timer(step, timer),
        StepMgrTimer::Others => "others".into(),
        StepMgrTimer::Progress(client) => ("progress", client.0).into(),
        StepMgrTimer::Backlog => BACKLOG.into(),
    }
}

/// The timers of hosted steps, distinguished by name (the timer) and number (the step).
fn step_timer(step: StepKey, timer: StepTimer) -> TimerKey {
    let number = u64::from(step.step.number().unwrap_or(u32::MAX));
    let whose = number << 32 | u64::from(step.array.map_or(0, |task| task + 1));
    match timer {
        StepTimer::Limit => ("step-limit", whose).into(),
        StepTimer::Wait | StepTimer::Backlog => ("step-wait", whose).into(),
    }
}

#[cfg(test)]
#[path = "shell_test.rs"]
mod tests;
