//! The actor of a running step, `/job/N/step/M`: a child of its step manager, which ends with the step. It sends its effects to
//! the step manager, whose port carries them out; only its timers are its own.

use crate::{
    step::{
        StepCore, StepEffect, StepInput, StepPlan, StepTimer,
        backlog::{Backlog, RETRY},
        messages::StepMsg,
    },
    stepmgr::{StepMgrInput, StepMgrMsg},
};
use garrick_model::time::Timestamp;
use garrick_runtime::{Actor, Address, ChildSpec, Context, Restart};

/// The actor.
#[derive(Debug)]
pub struct Step {
    core: StepCore,
    manager: Backlog<StepMgrMsg>,
    effects: Vec<StepEffect>,
}

/// A step gets its shepherds' messages within their credit and little else; this is enough for a step of thousands of tasks.
const MAILBOX: usize = 65_536;

/// Name of the timer after which refused messages are sent again.
const BACKLOG: &str = "backlog";

impl Step {
    /// How a step manager starts it. It is never restarted: its knowledge of its tasks died with it, and its manager ends the
    /// step.
    pub fn spec(plan: StepPlan, manager: Address<StepMgrMsg>) -> ChildSpec<Self> {
        let name = format!("step/{}", plan.id.key());
        let mut core = Some(StepCore::new(plan));
        let factory = move || Self {
            core: core.take().expect("a step's actor is never restarted"),
            manager: Backlog::new(manager.clone()),
            effects: Vec::new(),
        };
        ChildSpec::new(name, factory).restart(Restart::Never).mailbox(MAILBOX)
    }
}

impl Actor for Step {
    type Msg = StepMsg;

    fn handle(&mut self, cx: &mut Context<Self>, StepMsg(input): StepMsg) {
        if matches!(input, StepInput::Timer(StepTimer::Backlog)) {
            if self.manager.retry() {
                cx.set_timer(BACKLOG, RETRY, StepMsg(StepInput::Timer(StepTimer::Backlog)));
            } else if self.core.is_over() {
                cx.stop();
            }
            return;
        }
        self.core.handle(Timestamp::now(), input, &mut self.effects);
        let mut said = Vec::with_capacity(self.effects.len());
        for effect in self.effects.drain(..) {
            match effect {
                StepEffect::SetTimer { timer, after } => {
                    cx.set_timer(timer.key(), after, StepMsg(StepInput::Timer(timer)));
                }
                other => said.push(other),
            }
        }
        let step = self.core.plan().id.key();
        let kept = !said.is_empty() && self.manager.send(StepMgrMsg(StepMgrInput::StepSays { step, effects: said }));
        if kept {
            cx.set_timer(BACKLOG, RETRY, StepMsg(StepInput::Timer(StepTimer::Backlog)));
        } else if self.core.is_over() {
            cx.stop();
        }
    }
}
